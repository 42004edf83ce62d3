// Lists of routes: everywhere, and of one namespace.

import { h } from "./dom.js";
import { short } from "./advice.js";
import { items, model, objectIfThere, path } from "./data.js";
import { chips, pager, removableChip, searchField, table } from "./table.js";
import {
  STATES,
  age,
  badge,
  commands,
  empty,
  facts,
  firstRoute,
  link,
  origin,
  plural,
  queried,
  section,
  stamp,
  routeState,
  routeStates,
  time,
} from "./words.js";

const PAGE = 100;
const EVENTS = 30;

export const concerns = (changed, { namespace }) =>
  changed.more || changed.routes.some((name) => !namespace || name.startsWith(`${namespace}/`));

const columns = (withNamespace) => [
  withNamespace && {
    key: "namespace",
    label: "Namespace",
    cell: (one) => h("a.quiet", { href: link.namespace(one.namespace) }, one.namespace),
  },
  { key: "name", label: "Route", cell: (one) => h("a", { href: link.route(one.namespace, one.name) }, one.name) },
  { key: "dns", label: "Name in DNS", kind: "mono", cell: names },
  {
    key: "router",
    label: "Shard",
    cell: (one) =>
      one.router ? h("a.quiet", { href: link.router(one.router) }, one.router) : h("span.dim", null, "none"),
  },
  { key: "state", label: "State", cell: (one) => [routeState(one.state, one.reason), help(one)] },
  { key: "age", label: "Age", kind: "dim", cell: (one) => age(one.created) },
];

/** The table of a page of routes, and links to the other pages. The server sorts: it has all pages. */
function list(page, here, sort, withNamespace) {
  if (page.items.length === 0)
    return empty("No matching Routes.", "Shorten the search, or select another state.");
  const fallback = withNamespace ? "namespace" : "name";
  const keyOf = (one) => `${one.namespace}/${one.name}`;
  return [table(page.items, columns(withNamespace), { sort, fallback, keyOf }), pager(page, PAGE, here, "route")];
}

/** The action that helps a waiting Route, with a link to the details. */
function help({ namespace, name, state, reason }) {
  const action = ["pending", "refused", "unready"].includes(state) && short(reason);
  return action && h("div.advice", null, h("a.quiet", { href: link.route(namespace, name) }, action));
}

/** The name that stays first: a host of its own, or the stable alias; then that on the shard, which changes with it. */
function names({ alias, dns, host }) {
  const first = host ?? alias ?? dns;
  if (!first) return h("span.dim", null, "none yet");
  const second = host ? alias : dns;
  return [h("div", null, first), second && second !== first && h("div.dim", null, second)];
}

function search(query, here) {
  const states = Object.keys(STATES).map((name) => [name, name]);
  return h(
    "div.row.filters",
    null,
    searchField(query, "Namespace, name, DNS name, host or shard", "Search routes"),
    chips("State", "state", states, query, here),
    removableChip("router", "on", query, here),
  );
}

/** Where there is no route yet, what makes one; unless the user may see none. */
const noRoute = (maySee, namespace) =>
  maySee
    ? [
        empty(
          "No Routes yet.",
          "To get a name, create a Route. ",
          h("code", null, "kubectl explain rt.spec"),
          " describes its fields.",
        ),
        commands(firstRoute(namespace), "the first Route"),
      ]
    : empty(
        "You cannot list the Routes of any namespace.",
        "Request a role in a namespace from an administrator. ",
        "If your groups contain no namespace, enter it when you sign in.",
      );

// --- everywhere ---
export const all = {
  title: () => "Routes",
  concerns: (changed) => concerns(changed, {}),
  async load({ query }, _, signal) {
    return { page: await model("routes", { ...query, limit: PAGE }, signal) };
  },
  render({ page }, { query }, { rights }) {
    const here = (change) => link.routes({ ...query, ...change });
    const none = page.total === 0 && !query.q && !query.state && !query.router;
    const { all, namespaces } = rights;
    return [
      h("div.title", null, h("h1", null, "Routes")),
      !none && search(query, here),
      none ? noRoute(all || namespaces.length > 0, namespaces[0] ?? "default") : list(page, here, query.sort, true),
      h(
        "footer",
        null,
        all
          ? origin("/apis/signpost.dev/v1alpha1/routes?limit=50", "kubectl get rt -A")
          : namespaces.map((name) => origin(`${path.namespacedRoutes(name)}?limit=50`, `kubectl -n ${name} get rt`)),
      ),
    ];
  },
};

// --- one namespace ---
export const one = {
  title: ({ namespace }) => namespace,
  concerns,
  async load({ namespace, query }, { rights }, signal) {
    if (!rights.all && !rights.namespaces.includes(namespace)) return { hidden: true };
    const [page, overview, object, events] = await Promise.all([
      model("routes", { ...query, namespace, limit: PAGE }, signal),
      model("overview", {}, signal),
      objectIfThere(path.namespace(namespace), signal),
      items(path.events(namespace), signal, 500).catch(() => []),
    ]);
    return { page, overview, object, events };
  },
  render({ hidden, page, overview, object, events }, { namespace, query }) {
    if (hidden)
      return [
        h("div.title", null, h("div", null, h("p.kind", null, "Namespace"), h("h1", null, namespace))),
        empty(
          "You do not have permission to view this page.",
          `You cannot list the Routes of namespace ${namespace}, if it exists.`,
        ),
      ];
    const at = overview.namespaces.findIndex((one) => one.name === namespace);
    const counted = overview.namespaces[at];
    const shards = overview.links.filter(([index, router]) => index === at && router);
    const here = (change) => `${link.namespace(namespace)}?${queried({ ...query, ...change })}`;
    const quota = object?.metadata.annotations?.["signpost.dev/route-quota"];
    return [
      h(
        "div.title",
        null,
        h("div", null, h("p.kind", null, "Namespace"), h("h1", null, namespace)),
        object?.status?.phase === "Terminating" && badge("warn", "being deleted"),
      ),
      section(
        "Routes of this namespace",
        counted
          ? routeStates(
              counted.states,
              (state) => here({ state }),
              () => "Routes of the namespace, counted from the API",
            )
          : [
              empty("No Routes in this namespace yet.", "Request a name:"),
              commands(firstRoute(namespace), "the first Route"),
            ],
        facts([
          [
            "Shards",
            shards.length
              ? shards.map(([, router, routes]) =>
                  h(
                    "span.row",
                    { "data-key": router },
                    h("a", { href: link.router(router) }, router),
                    h("span.dim", null, plural(routes, "route")),
                  ),
                )
              : null,
          ],
          ["Age", object && age(object.metadata.creationTimestamp)],
          ["Quota", quota && `at most ${quota} Routes with a shard`],
        ]),
      ),
      counted && h("section.card", { "data-key": "list" }, search(query, here), list(page, here, query.sort, false)),
      section(
        "Recent events",
        h("p", null, h("a", { href: link.events({ namespace }) }, "All events of this namespace")),
        timeline(
          events
            .slice()
            .sort((one, other) => stamp(when(other)).localeCompare(stamp(when(one)), "en"))
            .slice(0, EVENTS)
            .map((event) =>
              entry(
                event,
                event.regarding?.kind === "Route" &&
                  h("a", { href: link.route(namespace, event.regarding.name) }, event.regarding.name),
              ),
            ),
        ),
      ),
      h("footer", null, origin(path.namespace(namespace), `kubectl -n ${namespace} get rt`)),
    ];
  },
};

// --- events ---
export const when = (event) =>
  event.series?.lastObservedTime ??
  event.eventTime ??
  event.deprecatedLastTimestamp ??
  event.metadata.creationTimestamp ??
  "";

export const entry = (event, about) => ({
  at: when(event),
  key: event.metadata.name,
  kind: event.type === "Warning" ? "warn" : "good",
  what: event.reason,
  text: event.note,
  by: event.reportingController,
  about,
});

/** Entries `{at, kind, what, text, by, about}`, the newest first. */
export function timeline(entries) {
  if (entries.length === 0) return empty("No recent events.", "Events are kept for one hour.");
  return h(
    "ol.timeline",
    null,
    entries.map(({ at, key, kind, what, text, by, about }) =>
      h(
        "li",
        { class: `is-${kind}`, "data-key": key },
        h(
          "div.row",
          null,
          h("strong", null, what),
          about,
          h("span.dim", null, time(at)),
          by && h("span.dim", null, `by ${by}`),
        ),
        text && h("p", null, text),
      ),
    ),
  );
}
