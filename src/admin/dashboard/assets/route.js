// One route: its specification, its names, its conditions, the reason for its shard, the records for the user's own
// DNS, and its history.

import { h } from "./dom.js";
import { forRoute, forShard } from "./advice.js";
import { object, objectIfThere, path } from "./data.js";
import { entry, timeline } from "./routes.js";
import { table } from "./table.js";
import { EVERY, opens, routeTraffic, trafficOf } from "./traffic.js";
import {
  addressStates,
  age,
  badge,
  code,
  condition,
  conditions,
  count,
  empty,
  facts,
  figure,
  link,
  origin,
  plural,
  section,
  stamp,
  routeState,
  time,
} from "./words.js";

/** The conditions of every route, in the order of its setup; others follow them. */
const STEPS = ["Scheduled", "Admitted", "Published", "Resolvable", "ResolvedRefs", "Ready"];

export const title = ({ namespace, name }) => `${namespace}/${name}`;
export const every = EVERY;
export const concerns = (changed, { namespace, name }) =>
  changed.routers || changed.routes.includes(`${namespace}/${name}`) || changed.more;

export async function load({ namespace, name }, { rights }, signal) {
  const route = await object(path.route(namespace, name), signal);
  const [binding, router, traffic, events] = await Promise.all([
    route.status?.router ? objectIfThere(path.binding(namespace, name), signal) : null,
    route.status?.router && rights.routers ? objectIfThere(path.router(route.status.router), signal) : null,
    route.status?.router ? trafficOf({ route: `${namespace}/${name}`, router: route.status.router }, signal) : null,
    object(path.eventsOf(namespace, "Route", name), signal).then(
      (list) => list.items,
      () => [],
    ),
  ]);
  // The binding of an earlier route of the same name may still exist.
  return { route, router, traffic, events, binding: binding?.spec.routeUID === route.metadata.uid ? binding : null };
}

/** The conditions of a route. With a challenge, the host must be verified as well. */
const stepsOf = (route) => [
  ...(route.status?.challenge ? STEPS.toSpliced(1, 0, "HostVerified") : STEPS),
  ...(isCustom(route) ? ["HostPointsHere"] : []),
];

/** Whether the route has a host outside the platform. */
const isCustom = ({ status }) => (status?.names ?? []).some((one) => one.type === "custom");

/** The state of a route; the same as the server returns in lists. */
export function stateOf(route) {
  const find = (type) => condition(route, type);
  const refused = find("Admitted");
  if (refused?.status === "False") return ["refused", refused];
  if (route.status?.phase !== "scheduled") return ["pending", find("Scheduled")];
  const proof = ["Resolvable", "Published"].map(find).filter(Boolean);
  const isDead = ({ type, status, reason }) =>
    status === "False" && (type === "Published" || reason === "NoActiveAddress");
  const down = proof.find(isDead);
  if (down) return ["down", down];
  const unverified = proof.find((one) => one.status !== "True");
  if (unverified) return ["unverified", unverified];
  if (!find("Resolvable")) return ["scheduled", find("Scheduled")];
  const refs = find("ResolvedRefs");
  if (refs?.status === "False") return ["unready", refs];
  const points = find("HostPointsHere");
  if (isCustom(route) && points?.status !== "True" && points?.reason !== "NotChecked")
    return ["answered", points ?? find("Resolvable")];
  const ready = find("Ready");
  if (ready?.status === "False") return ["unready", ready];
  return ["resolvable", find("Resolvable")];
}

export function render({ route, binding, router, traffic, events }, { namespace, name }, { rights }) {
  const [stands, decided] = stateOf(route);
  const status = route.status ?? {};
  return [
    h(
      "div.title",
      null,
      h(
        "div",
        null,
        h("p.kind", null, "Route in ", h("a", { href: link.namespace(namespace) }, namespace)),
        h("h1", null, name),
      ),
      h("div.row", null, opens(route, router), routeState(stands), decided && h("span.dim", null, "since ", time(decided.lastTransitionTime))),
    ),
    h(
      "section.card.answer",
      { "data-key": "answer" },
      answer(stands, decided, status),
      stands !== "unready" && backends(route),
      help(stands, decided, route, rights),
    ),
    h(
      "div.columns",
      null,
      h(
        "div",
        null,
        routeTraffic(traffic),
        section("Specification", asked(route)),
        section("Names", names(status, router)),
        section("Records for your DNS", own(route, status)),
      ),
      h(
        "div",
        null,
        section("Conditions", conditions(status.conditions, stepsOf(route))),
        section(
          "History",
          h("p", null, h("a", { href: link.events({ namespace, kind: "Route", name }) }, "Events of this Route")),
          timeline(story(route, binding, events)),
        ),
      ),
    ),
    section(status.router ? `Why ${status.router}` : "Why no shard", why(route, binding, rights)),
    h(
      "footer",
      null,
      origin(path.route(namespace, name), `kubectl -n ${namespace} describe rt ${name}`),
      binding && origin(path.binding(namespace, name), `kubectl -n ${namespace} get routebinding ${name} -o yaml`),
    ),
  ];
}

/** The main message: whether the name works. */
function answer(stands, decided, status) {
  // The stable name comes first: that on the shard is another one when the route moves.
  const name = status.names?.find((one) => one.type === "custom")?.name ?? status.canonicalName ?? status.dns;
  const dns = name && code(name, "the name");
  switch (stands) {
    case "resolvable":
      return [h("p.big", null, dns), h("p", null, "resolves. ", sentence(decided.message))];
    case "unready":
      return [h("p.big", null, dns), h("p", null, badge("bad", decided.reason), " resolves, and requests fail: ", sentence(decided.message))];
    case "answered":
      return [
        h("p.big", null, dns),
        h("p", null, "is assigned, and its platform names resolve. The custom host: ", sentence(decided.message)),
      ];
    case "down":
      return [
        h("p.big", null, dns),
        h("p", null, badge("bad", "down"), " does not resolve", decided.reason ? ` (${decided.reason})` : "", ". ", decided.message),
      ];
    case "scheduled":
      return [h("p.big", null, dns), h("p", null, "is assigned. DNS answers are not verified yet.")];
    case "unverified":
      return [
        h("p.big", null, dns),
        h(
          "p",
          null,
          "is assigned, but DNS answers are not verified",
          decided?.reason ? ` (${decided.reason})` : "",
          ". ",
          decided?.message ?? "",
        ),
      ];
    case "refused":
      return [h("p.big", null, "The host was refused."), h("p", null, decided?.message ?? "")];
    default:
      return [
        h("p.big", null, "No shard has accepted the Route yet."),
        h(
          "p",
          null,
          decided
            ? "The reason of each shard is below. The scheduler retries when a reason changes, and periodically."
            : "No scheduler has processed the Route yet.",
        ),
      ];
  }
}

/** The fault of the Services of a Route, also if its names resolve; null if there is none. */
function backends(route) {
  const refs = condition(route, "ResolvedRefs");
  return refs?.status === "False" ? h("p", null, badge("bad", refs.reason), " ", sentence(refs.message)) : null;
}

/** The action that helps a Route without a shard, or without its host. */
function help(stands, decided, route, rights) {
  if (!["pending", "refused"].includes(stands)) return null;
  const admitted = condition(route, "Admitted");
  const reasons = [decided?.reason, admitted?.status === "False" && admitted.reason].filter(Boolean);
  return [...new Set(reasons)].map((reason) => forRoute(reason, route, rights));
}

function asked({ spec, metadata }) {
  const { host, subdomain, path: prefix, to, port, tls } = spec;
  return facts([
    [
      "Name",
      host
        ? h("span.mono", null, host)
        : subdomain
          ? h("span", null, h("span.mono", null, subdomain), " below the shard's zone")
          : "assigned by the platform",
    ],
    ["Path", prefix && h("span.mono", null, prefix)],
    [
      "To",
      to &&
        h(
          "span",
          null,
          `${to.kind ?? "Service"} `,
          h("span.mono", null, to.name),
          to.weight !== undefined && ` with weight ${to.weight}`,
        ),
    ],
    ["Port", port && String(port.targetPort)],
    ["TLS", tls && `${tls.termination}${tls.secretName ? `, certificate ${tls.secretName}` : ""}`],
    [
      "Labels",
      metadata.labels &&
        Object.entries(metadata.labels).map(([key, value]) => h("span.chip", { "data-key": key }, `${key}=${value}`)),
    ],
    ["Age", age(metadata.creationTimestamp)],
  ]);
}

function names(status, router) {
  if (!status.dns) return empty("No name yet.", "The Route gets a name with its shard.");
  const kinds = {
    system: "on its shard",
    alias: "stable: it does not change when the Route moves",
    custom: "custom host",
  };
  const addresses = router ? addressStates(router).filter((address) => !address.drained) : [];
  return [
    h(
      "ul.names",
      null,
      ranked(status.names).map((one) =>
        h("li", { "data-key": one.name }, code(one.name), h("span.dim", null, kinds[one.type] ?? one.type)),
      ),
    ),
    status.formerNames?.length > 0 && [
      h("p.dim", null, "Former names on previous shards, which still resolve:"),
      h(
        "ul.names",
        null,
        status.formerNames.map((one) =>
          h(
            "li",
            { "data-key": one.name },
            code(one.name),
            h("span.dim", null, one.from && ["from ", untilTime(one.from), " "], "until ", untilTime(one.until)),
          ),
        ),
      ),
    ],
    facts([
      ["Shard", status.router && h("a", { href: link.router(status.router) }, status.router)],
      [
        "Resolves to",
        addresses.length > 0 &&
          addresses
            .slice(0, 12)
            .map((address) =>
              h(
                "span.row",
                { "data-key": address.ip },
                h("span.mono", null, address.ip),
                address.down && badge("bad", "down"),
              ),
            ),
      ],
    ]),
  ];
}

/** Names in the order of their use: custom hosts, then the stable name, then the name on the shard. */
const ranked = (names) => {
  const order = ["custom", "alias", "system"];
  return [...(names ?? [])].sort((one, other) => order.indexOf(one.type) - order.indexOf(other.type));
};

const untilTime = (text) =>
  h("time", { datetime: text }, new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }));

/** Whether a record exists, by a condition of the Route; and how to check again. */
function recordState(route, type, words) {
  const { namespace, name } = route.metadata;
  const found = condition(route, type);
  const [kind, word] = !found
    ? ["note", "not checked yet"]
    : found.status === "True"
      ? found.reason === "RecordMissing"
        ? ["warn", "missing now"]
        : ["good", words.exists]
      : found.status === "Unknown"
        ? ["note", "not checked"]
        : ["bad", words.missing[found.reason] ?? "missing"];
  return [
    h(
      "p.row",
      { "data-key": `${type} state` },
      badge(kind, word, found?.reason),
      found && h("span.dim", null, "since ", time(found.lastTransitionTime)),
    ),
    found && found.status !== "True" && h("p.dim", null, sentence(found.message)),
    // Without resolvers, the condition never becomes True.
    kind !== "good" && found?.reason !== "NotChecked" && [
      h("p.dim", null, words.again, " To wait for the result, run:"),
      code(`kubectl -n ${namespace} wait rt/${name} --for=condition=${type} --timeout=10m`, "the command"),
    ],
  ];
}

/** The state of the record for the custom host. */
function hostState(route) {
  const { host } = route.spec;
  if (!host) return null;
  return [
    recordState(route, "HostPointsHere", {
      exists: "the record exists",
      missing: { NoRecord: "the record does not exist yet", PointsElsewhere: "the host leads elsewhere" },
      again:
        "Signpost checks again after some seconds, then less frequently, at least every 5 minutes. A resolver can cache the " +
        "previous answer until its TTL ends.",
    }),
    h("p", null, "Check it yourself: ", code(`dig +noall +answer ${host.replace(/^\*/, "any")}`, "the command")),
  ];
}

function own(route, status) {
  const { challenge } = status;
  if (!challenge) return target(route, status);
  const proof = [
    h("p", null, "To verify the ownership of the host, create this record in its zone, and keep it:"),
    h("p", null, code(challenge.record, "the record")),
    recordState(route, "HostVerified", {
      exists: "the record exists",
      missing: { OwnershipNotVerified: "the record does not exist yet" },
      again: "Signpost checks again after some seconds, then at longer intervals, at most 5 minutes.",
    }),
    h("p", null, "Check it yourself: ", code(`dig +short TXT ${challenge.record.split(" ")[0]}`, "the command")),
    challenge.verifiedUntil &&
      h("p.dim", null, "If the record is removed, the host stays verified until ", untilTime(challenge.verifiedUntil), "."),
  ];
  return [proof, target(route, status)];
}

/** The target for the user's own names. */
function target(route, status) {
  const records = (status.names ?? []).map((one) => one.record).filter(Boolean);
  if (records.length) {
    return [
      h(
        "p",
        null,
        `Create ${records.length === 1 ? "this record" : "these records"} in the zone of ${route.spec.host}. `,
        "The target does not change when the Route moves to another shard.",
      ),
      records.map((record) => h("p", { "data-key": record }, code(record, "the record"))),
      hostState(route),
    ];
  }
  if (!status.canonicalName)
    return empty("Nothing to do yet.", "The record to create is shown here as soon as the Route has a name.");
  if (route.spec.host)
    return [
      h("p", null, "Point your host at this name; it does not change when the Route moves:"),
      code(`${route.spec.host}. CNAME ${status.canonicalName}.`, "the record"),
      isCustom(route) && hostState(route),
    ];
  return [
    h(
      "p",
      null,
      "Nothing to do: the platform answers queries for its own names. ",
      "To use a custom host, create a Route with ",
      h("code", null, "spec.host"),
      ", or point a CNAME at:",
    ),
    code(status.canonicalName, "the stable name"),
  ];
}

/** The reason of each shard, with the action that helps. */
function whyPending(route, rights) {
  const scheduled = condition(route, "Scheduled");
  if (!scheduled || scheduled.status === "True")
    return empty("No explanation.", "The Route has no RouteBinding that you can read.");
  const [first, ...reasons] = scheduled.message.split(/: |; /);
  return [
    h("p", null, h("strong", null, scheduled.reason), ": ", first),
    h(
      "ul",
      null,
      reasons.map((reason) => h("li", { "data-key": reason }, reason, forShard(reason, route, rights))),
    ),
  ];
}

/** The columns of the results of shards. */
const verdicts = (chosen, share) => [
  { label: "Shard", cell: (one) => h("a", { href: link.router(one.name) }, one.name) },
  {
    label: "Result",
    cell: (one) =>
      one.name === chosen
        ? badge("good", "chosen")
        : one.eligible
          ? badge("note", one.reason ?? "eligible")
          : badge("off", one.reason ?? "filtered out"),
  },
  {
    label: "Score",
    cell: (one) =>
      one.score === undefined
        ? h("span.dim", null, "–")
        : h(
            "span.score",
            null,
            h(
              "svg.bar",
              { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
              h("rect", { class: "fill-scheduled", width: share(one.score), height: 6 }),
            ),
            figure(count(one.score), "spec.explanation of the RouteBinding"),
          ),
  },
  {
    label: "Routes at the time",
    kind: "number",
    cell: (one) => figure(count(one.routes), "spec.explanation of the RouteBinding"),
  },
  { label: "Reason", kind: "why", cell: (one) => one.message },
];

/** Since when the route is on its Router: since it was moved there, or since its binding was made. */
function placedAt({ metadata, spec }) {
  const left = (spec.formerNames ?? []).map((one) => one.since).sort();
  return spec.explanation?.movedAt ?? left.at(-1) ?? metadata.creationTimestamp;
}

function why(route, binding, rights) {
  if (!binding) return whyPending(route, rights);
  const { explanation, strategy } = binding.spec;
  if (!explanation) return empty("No explanation.", `The strategy ${strategy} placed the Route.`);
  const scores = explanation.routers.map((one) => one.score).filter((score) => score !== undefined);
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  const share = (score) => (most === least ? 100 : 8 + ((score - least) / (most - least)) * 92);
  const chosen = binding.spec.router;
  const left = explanation.considered - explanation.routers.length;
  const others = (explanation.omitted ?? []).map((one) => `${one.count} ${one.reason}`).join(", ");
  return [
    h("p", null, explanation.summary, "."),
    facts([
      ["Strategy", strategy],
      ["Placed", time(placedAt(binding))],
    ]),
    h(
      "div.verdicts",
      null,
      table(explanation.routers, verdicts(chosen, share), {
        keyOf: (one) => one.name,
        classOf: (one) => one.name === chosen && "chosen",
      }),
    ),
    left > 0 && h("p.dim", null, `and ${plural(left, "more shard")}${others && ` (${others})`}`),
    code(`signpost explain route ${route.metadata.namespace}/${route.metadata.name} --why-not ROUTER`),
  ];
}

/** The known history, the newest entry first. */
function story(route, binding, events) {
  const reported = events
    .filter((event) => !event.regarding?.uid || event.regarding.uid === route.metadata.uid)
    .map((event) => entry(event));
  const says = (one) =>
    reported.some((event) => event.what === one.reason || (one.message && event.text?.includes(one.message)));
  const turned = (route.status?.conditions ?? [])
    .filter((one) => !says(one))
    .map((one) => ({
      rank: one.type,
      at: one.lastTransitionTime,
      key: `condition ${one.type}`,
      kind: one.status === "True" ? "good" : one.status === "False" ? "bad" : "warn",
      what: `${one.type} ${{ True: "yes", False: "no" }[one.status] ?? "unknown"}`,
      text: one.message,
    }));
  const all = [
    {
      rank: "Created",
      at: route.metadata.creationTimestamp,
      key: "created",
      kind: "note",
      what: "Created",
      text: "the Route was created",
    },
    binding && {
      rank: "Bound",
      at: placedAt(binding),
      key: "bound",
      kind: "good",
      what: "Bound",
      text: `${binding.spec.strategy} selected ${binding.spec.router}`,
    },
    ...turned,
    ...reported,
  ].filter(Boolean);
  return inOrder(all).reverse();
}

/** A message of a condition as a sentence. A message that ends with a domain name already ends with a dot. */
const sentence = (message) => `${message.replace(/\.$/, "")}.`;

/** The order of events of one second. */
const COMES = ["Created", "Bound", "Scheduled", "HostVerified", "Admitted", "Published", "Resolvable", "HostPointsHere"];

/**
 * Sorts entries, the oldest first; pure. Entries with fractions of a second are sorted by time. Most times are whole seconds:
 * such an entry precedes, within its second, the entries that follow it in `COMES`.
 */
export function inOrder(entries) {
  const rank = ({ rank, what }) => (COMES.includes(rank ?? what) ? COMES.indexOf(rank ?? what) : COMES.length);
  const by = (one, other) =>
    stamp(one.at) < stamp(other.at) ? -1 : stamp(one.at) > stamp(other.at) ? 1 : rank(one) - rank(other);
  const isExact = ({ at }) => /\.\d*[1-9]/.test(at ?? "");
  const second = ({ at }) => stamp(at).split(".")[0];
  const ordered = entries.filter(isExact).sort(by);
  for (const entry of entries.filter((one) => !isExact(one)).sort(by)) {
    const isLater = (one) => second(one) > second(entry) || (second(one) === second(entry) && rank(one) > rank(entry));
    const at = ordered.findIndex(isLater);
    ordered.splice(at < 0 ? ordered.length : at, 0, entry);
  }
  return ordered;
}
