// The list of all shards.

import { h } from "./dom.js";
import { items, model, path } from "./data.js";
import { now } from "./plot.js";
import { number, table } from "./table.js";
import {
  FIRST_ROUTER,
  KINDS,
  addressStates,
  age,
  badge,
  commands,
  count,
  empty,
  figure,
  link,
  measured,
  origin,
  plural,
  routerState,
} from "./words.js";

export const title = () => "Shards";
export const moves = true;
export const concerns = () => true;

export async function load(_, __, signal) {
  const [overview, routers] = await Promise.all([model("overview", {}, signal), items(path.routers, signal)]);
  return { overview, routers };
}

/** The facts of a row. */
function rowOf(router, routes, samples) {
  const { name, creationTimestamp } = router.metadata;
  const [kind, word] = routerState(router);
  const addresses = addressStates(router);
  return {
    router,
    name,
    kind,
    word,
    dns: router.spec.dns,
    routes: routes.get(name) ?? 0,
    capacity: router.spec.capacity?.hard ?? router.spec.capacity?.soft ?? null,
    addresses: addresses.length,
    serving: addresses.filter((address) => !address.drained && !address.down).length,
    queries: now(samples, zoneRequests(router.spec.dns)),
    created: Date.parse(creationTimestamp),
    creationTimestamp,
  };
}

const zoneRequests = (dns) => `signpost_dns_zone_requests_total{zone="${dns}."}`;

const columns = (rights) => [
  { key: "name", label: "Shard", value: (row) => row.name, cell: (row) => h("a", { href: link.router(row.name) }, row.name) },
  {
    key: "state",
    label: "State",
    value: (row) => `${KINDS.indexOf(row.kind)} ${row.word}`,
    cell: (row) => badge(row.kind, row.word),
  },
  {
    key: "zone",
    label: "Zone",
    kind: "mono",
    value: (row) => row.dns,
    cell: (row) => (rights.zones ? h("a.quiet", { href: link.zone(row.dns) }, row.dns) : row.dns),
  },
  {
    key: "routes",
    label: rights.all ? "Routes" : "Your Routes",
    kind: "number",
    value: (row) => row.routes,
    cell: (row) =>
      h(
        "a.quiet",
        {
          href: link.routes({ router: row.name }),
          title: rights.all ? `signpost_router_routes{router="${row.name}"}` : "your Routes, counted from the API",
        },
        count(row.routes),
      ),
  },
  number("capacity", "Capacity", count, () => "spec.capacity of the Router"),
  {
    key: "addresses",
    label: "Addresses",
    kind: "number",
    value: (row) => row.serving,
    cell: (row) =>
      figure(`${count(row.serving)} of ${count(row.addresses)}`, `signpost_address_up{router="${row.name}"}`),
  },
  rights.zones && number("queries", "Queries/s", measured, (row) => zoneRequests(row.dns)),
  { key: "age", label: "Age", kind: "labelled", value: (row) => -row.created, cell: (row) => age(row.creationTimestamp) },
];

export function render({ overview, routers }, { query }, { samples, rights }) {
  const routes = new Map(overview.routers.map((one) => [one.name, one.routes]));
  const rows = routers.map((router) => rowOf(router, routes, samples));
  return [
    h("div.title", null, h("h1", null, "Shards"), h("span.dim", null, plural(rows.length, "shard"))),
    rows.length
      ? table(rows, columns(rights), { sort: query.sort, fallback: "name", keyOf: (row) => row.name })
      : [
          empty("No shards yet.", rights.all ? "To create one, apply a Router:" : "An operator creates them."),
          rights.all && commands(FIRST_ROUTER, "the first Router"),
        ],
    h("footer", null, origin(path.routers, "kubectl get routers -o wide")),
  ];
}
