// The list of zones: those of the API's Zone objects, and those that this process serves.

import { h } from "./dom.js";
import { items, itemsIfThere, model, path, serialsOf } from "./data.js";
import { number, searchField, table } from "./table.js";
import { FIRST_ROUTER, age, badge, commands, condition, count, empty, link, origin, plural, size } from "./words.js";

export const title = () => "Zones";
export const every = 10_000;
export const concerns = (changed) => changed.zones || changed.routers;

/** The zones of this process in one response. */
const SERVED_MAX = 500;

export async function load({ query }, _, signal) {
  const [zones, served, routers] = await Promise.all([
    itemsIfThere(path.zones, signal),
    model("zones", { q: query.q, limit: SERVED_MAX }, signal),
    items(path.routers, signal),
  ]);
  const parent = zones.find((zone) => zone.spec.platform);
  // The zones of shards are verified continuously. For the others, the name servers are queried.
  const own = zones.filter((zone) => zone.spec.type !== "shard");
  const serials = await Promise.all(own.map((zone) => serialsOf(zone.metadata.name, parent, signal)));
  return { zones, served, routers, parent, serials: new Map(own.map((zone, at) => [zone.metadata.name, serials[at]])) };
}

const apexOf = (name) => name.replace(/\.$/, "").toLowerCase();

/** Whether a serial is after another one (RFC 1982 §3.2). */
export const isAfter = (one, other) => one !== other && (one - other) >>> 0 < 0x8000_0000;

/** The state of a zone on the name servers: a kind of badge, a word, and details. */
export function serverState(newest, serials) {
  if (!serials?.length) return ["note", "not checked", "no name servers are listed for verification"];
  const current = serials.filter(({ serial }) => serial !== null && (serial === newest || isAfter(serial, newest)));
  const text = `${current.length} of ${serials.length}`;
  const faults = serials.filter((one) => !current.includes(one)).map(({ server, serial, error }) => `name server ${server}: ${error ?? `serial ${serial}`}`);
  return [current.length === serials.length ? "good" : "bad", text, faults.join("\n") || "all have the serial, or a later one"];
}

/** The problems of a zone, as texts. */
export function problemsOf({ zone, served, router, serials, isServing }) {
  const problems = [];
  if (zone && !zone.spec.versions?.length) problems.push("no serial is allocated");
  if (zone?.spec.router && !router) problems.push(`Router ${zone.spec.router} does not exist`);
  const published = condition(router, "ZonePublished");
  if (published?.status === "False") problems.push(`${published.reason}: ${published.message}`);
  if (served && !served.available) problems.push("this process could not load the zone");
  const newest = zone?.spec.versions?.[0]?.serial;
  const [kind, , faults] = serverState(newest, serials);
  // The condition of a shard already has the faults of name servers.
  if (zone && kind === "bad" && published?.status !== "False") problems.push(...faults.split("\n"));
  if (served?.available && newest !== undefined && isAfter(newest, served.serial))
    problems.push(`this process serves the older serial ${served.serial}`);
  if (zone && isServing && !served) problems.push("this process does not serve the zone");
  return problems;
}

function rowsOf({ zones, served, routers, serials }, query) {
  const byName = new Map(routers.map((router) => [router.metadata.name, router]));
  const here = new Map(served.items.map((one) => [apexOf(one.zone), one]));
  const isComplete = served.served && served.total <= served.items.length;
  const row = (apex, zone) => {
    const own = here.get(apex);
    const router = byName.get(zone?.spec.router);
    const newest = zone?.spec.versions?.[0];
    const asked = serials.get(zone?.metadata.name);
    const published = condition(router, "ZonePublished");
    return {
      apex,
      type: zone?.spec.type ?? own.type,
      router: zone?.spec.router,
      serial: newest?.serial ?? own?.serial ?? null,
      changed: newest?.at,
      created: zone?.metadata.creationTimestamp,
      owners: own?.owners ?? null,
      octets: own?.octets ?? null,
      servers: published
        ? published.status === "True"
          ? ["good", "all", published.message]
          : ["bad", published.reason, published.message]
        : asked
          ? serverState(newest?.serial, asked)
          : null,
      problems: problemsOf({ zone, served: own, router, serials: asked, isServing: isComplete && !query.q }),
    };
  };
  const rows = zones.map((zone) => row(apexOf(zone.metadata.name), zone));
  const known = new Set(rows.map((one) => one.apex));
  const text = (query.q ?? "").trim().toLowerCase();
  return [...rows, ...[...here.keys()].filter((apex) => !known.has(apex)).map((apex) => row(apex, null))].filter(({ apex }) =>
    apex.includes(text),
  );
}

const serialMetric = (apex) => `signpost_dns_zone_serial{zone="${apex}."}`;
const since = (text) => (text ? -Date.parse(text) : null);

const COLUMNS = [
  {
    key: "zone",
    label: "Zone",
    kind: "mono",
    value: (row) => row.apex.split(".").reverse().join("."),
    cell: (row) => h("a", { href: link.zone(row.apex || ".") }, row.apex || "."),
  },
  {
    key: "type",
    label: "Type",
    value: (row) => row.type,
    cell: (row) => [row.type, row.router && [" ", h("a.quiet", { href: link.router(row.router) }, row.router)]],
  },
  number("serial", "Serial", (serial) => String(serial ?? "–"), (row) => serialMetric(row.apex)),
  {
    ...number("owners", "Owners", count, () => "data/zones of this process: owners"),
    key: "records",
    title: "Names with records, in the zone that this process serves",
  },
  {
    ...number("octets", "Size", size, () => "data/zones of this process: octets"),
    key: "size",
    title: "Memory of the zone in this process",
  },
  { key: "changed", label: "Changed", kind: "labelled", value: (row) => since(row.changed), cell: (row) => age(row.changed) },
  { key: "age", label: "Age", kind: "labelled", value: (row) => since(row.created), cell: (row) => age(row.created) },
  {
    key: "servers",
    label: "Name servers",
    title: "Name servers that serve the serial",
    value: (row) => row.servers && `${row.servers[0]} ${row.servers[1]}`,
    cell: (row) => (row.servers ? badge(...row.servers) : h("span.dim", null, "–")),
  },
  {
    key: "problems",
    label: "Problems",
    value: (row) => -row.problems.length,
    cell: (row) => (row.problems.length ? row.problems.map((text) => h("div", null, text)) : h("span.dim", null, "none")),
  },
];

export function render(data, { query }) {
  const rows = rowsOf(data, query);
  const { served } = data;
  const left = served.total - served.items.length;
  return [
    h("div.title", null, h("h1", null, "Zones"), h("span.dim", null, plural(rows.length, "zone"))),
    h("div.row.filters", null, searchField(query, "Name of the zone", "Search zones")),
    rows.length
      ? table(rows, COLUMNS, { sort: query.sort, fallback: "zone", keyOf: (row) => row.apex })
      : query.q
        ? empty("No matching zones.", "Shorten the search.")
        : empty("No zones yet."),
    !query.q && !rows.some((row) => row.type === "shard") && [
      empty("No shard has a zone yet.", "Each shard has a zone. To create a shard, apply a Router:"),
      commands(FIRST_ROUTER, "the first Router"),
    ],
    left > 0 && h("p.dim", null, `and ${plural(left, "more zone")} of this process; shorten the list with the search`),
    !served.served &&
      h("p.dim", null, "This process serves no zones, so owners and sizes are unknown here. See the dashboard of a name server."),
    h("footer", null, origin(path.zones, "kubectl get zones"), origin(path.routers, "signpost zone status")),
  ];
}
