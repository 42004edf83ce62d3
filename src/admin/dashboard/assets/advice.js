// The action that helps a waiting Route: by the reason of its condition, and by the reason of each shard.

import { h } from "./dom.js";
import { FIRST_ROUTER, code, commands, link } from "./words.js";

/** The missing term of a selector in a message, such as `tier=gold`; null if the term has another form. */
const term = (message) => /not match ([\w./-]+=[\w.-]+) \(/.exec(message)?.[1] ?? null;

/** The label that a selector excludes in a message, such as `!tier`; null if the term has another form. */
const excluded = (message) => /not match !([\w./-]+) \(/.exec(message)?.[1] ?? null;

/** The change of labels that makes a selector match: a text and, for simple terms, the command. */
function relabel(object, field, message, command) {
  const [wanted, unwanted] = [term(message), excluded(message)];
  if (wanted) return [`Add the label to the ${object}:`, `${command} ${wanted}`];
  if (unwanted) return [`Remove the label from the ${object}:`, `${command} ${unwanted}-`];
  return [`Change the labels of the ${object}, so that they match ${field}.`];
}

const patch = (router, spec) => `kubectl patch router ${router} --type=merge -p '${JSON.stringify({ spec })}'`;

/**
 * Actions by the text of a shard's reason: `[pattern, action]`. An action returns a text and, if one command is sufficient, the
 * command. `own` marks actions that need no permission beyond the Route's namespace.
 */
const OF_SHARD = [
  [/is being deleted/, () => ["Use another shard, or create one."]],
  [/is cordoned|is draining/, (router) => ["Let the shard accept Routes again:", `signpost uncordon ${router}`]],
  [/invalid selector/, (router) => ["Correct its selector:", `kubectl edit router ${router}`]],
  [
    /selects other Routes/,
    (_, message, { namespace, name }) =>
      relabel("Route", "spec.routeSelector", message, `kubectl -n ${namespace} label --overwrite route ${name}`),
    "own",
  ],
  [
    /selects other namespaces/,
    (_, message, { namespace }) =>
      relabel("namespace", "spec.namespaceSelector", message, `kubectl label --overwrite namespace ${namespace}`),
  ],
  [/hard capacity/, (router) => ["Delete Routes of the shard, or raise spec.capacity.hard:", `kubectl edit router ${router}`]],
  [/no active address/, (router) => ["Add an address, or set the state of one to active:", `kubectl edit router ${router}`]],
  [/longer than 253 octets/, () => ["Shorten spec.subdomain or the name of the Route."], "own"],
  [/already uses the Route's name/, () => ["Use another name or spec.subdomain for the Route."], "own"],
  [/not the Router that the host names/, () => ["Set spec.host to a name in the zone of this shard, or remove spec.host."], "own"],
  [/weight 0/, (router) => ["Set its weight:", patch(router, { weight: 1 })]],
  [/not all name servers serve/, () => ["Check its zone on each name server:", "signpost zone status"]],
];

/** Actions by the reason of the condition `Scheduled` or `Admitted`, with the same result. */
const OF_ROUTE = {
  NoRouter: () => ["Create a Router:"],
  QuotaExceeded: ({ namespace }) => [
    "Delete a Route of the namespace, or raise its quota:",
    `kubectl annotate namespace ${namespace} --overwrite signpost.dev/route-quota=NUMBER`,
  ],
  InvalidQuota: ({ namespace }) => [
    "Set the quota to a whole number:",
    `kubectl annotate namespace ${namespace} --overwrite signpost.dev/route-quota=NUMBER`,
  ],
  NamesInQuarantine: () => ["Wait until names in quarantine become available, or raise name.quarantine-max."],
  RouterNotFound: ({ namespace, name }) => [
    "Remove the requested Router, or create it:",
    `kubectl -n ${namespace} annotate rt ${name} signpost.dev/move-to-`,
  ],
  RouterGone: ({ namespace, name }) => ["Move the Route:", `signpost move route ${namespace}/${name} --to ROUTER`],
  BindingFailed: () => ["The scheduler retries. If the reason stays, read the log of the leading scheduler."],
  HostReserved: () => ["Wait until the time in the message, or use another host."],
  HostAlreadyClaimed: () => ["Use another host, or release it from the other Route."],
  HostInPlatformDomain: () => ["Use a host outside of the platform's domain, or remove spec.host."],
  OwnershipNotVerified: () => ["Create the TXT record below, in “Records for your DNS”."],
};

const shown = ([text, command]) => h("div.advice", null, text, " ", command && code(command, "the command"));

/** The action for a shard that does not accept a Route; null if none is known. `reason` begins with the shard's name. */
export function forShard(reason, route, rights) {
  const [, router, message] = /^(\S+) (.*)$/s.exec(reason) ?? [];
  const found = router && OF_SHARD.find(([pattern]) => pattern.test(message));
  if (!found) return null;
  const [, action, own] = found;
  const advice = action(router, message, route.metadata);
  if (rights.all || own) return shown(advice);
  return h("div.advice", null, "An operator can change this: ", h("a", { href: link.router(router) }, router), ".");
}

/** The action for the reason of a Route's condition; null if none is known. */
export function forRoute(reason, route, rights) {
  const advice = OF_ROUTE[reason]?.(route.metadata);
  if (!advice) return null;
  if (reason === "NoRouter")
    return rights.all
      ? [h("div.advice", null, advice[0]), commands(FIRST_ROUTER, "the first Router")]
      : h("div.advice", null, "An operator must create a Router.");
  const [text, command] = advice;
  if (command && !rights.all) return h("div.advice", null, text.replace(/:$/, "."), " This requires an operator.");
  return shown(advice);
}

/** A short action for a list, by the reason of the state; null if none is known. */
export function short(reason) {
  return (
    {
      NoRouter: "create a Router",
      Unschedulable: "each shard has a reason",
      QuotaExceeded: "raise the quota, or delete a Route",
      InvalidQuota: "correct the quota",
      NamesInQuarantine: "wait for names in quarantine",
      RouterNotFound: "correct the requested Router",
      NotAdmitted: "check the host",
      OwnershipNotVerified: "create the TXT record",
      HostAlreadyClaimed: "use another host",
      HostReserved: "wait, or use another host",
      HostInPlatformDomain: "use another host",
      RouterGone: "move the Route",
    }[reason] ?? null
  );
}
