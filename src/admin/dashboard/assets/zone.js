// One zone: its serial, the name servers that serve it, its versions, and its records.

import { h } from "./dom.js";
import { Failure, model, objectIfThere, path, platform, serialsOf } from "./data.js";
import { plot } from "./plot.js";
import { zoneVersions } from "./router.js";
import { chips, pager, searchField, table } from "./table.js";
import {
  age,
  badge,
  code,
  count,
  empty,
  facts,
  figure,
  link,
  origin,
  seconds,
  section,
  size,
  time,
} from "./words.js";
import { isAfter, problemsOf, serverState } from "./zones.js";

export const title = ({ apex }) => apex;
export const moves = true;
export const every = 10_000;
export const concerns = (changed) => changed.zones || changed.routers;

const PAGE = 100;

export async function load({ apex, query }, { rights }, signal) {
  if (!rights.zones) throw new Failure(403, "Forbidden", "zones require the permission to list Zones");
  const { q, type, offset } = query;
  const [zone, served, records, parent] = await Promise.all([
    objectIfThere(path.zone(apex), signal),
    model("zones", { q: apex, limit: 500 }, signal),
    ifListed(model("records", { zone: apex, q, type, offset, limit: PAGE }, signal)),
    platform(signal),
  ]);
  const own = served.items.find((one) => one.zone.replace(/\.$/, "").toLowerCase() === apex.toLowerCase());
  if (!zone && !own) throw new Failure(404, "NotFound", `there is no zone ${apex}`);
  const [serials, router] = await Promise.all([
    serialsOf(apex, parent, signal),
    zone?.spec.router ? objectIfThere(path.router(zone.spec.router), signal) : null,
  ]);
  return { zone, own, served, records, parent, serials, router };
}

/** The records, or the reason why they are not listed. */
async function ifListed(records) {
  try {
    return await records;
  } catch (failure) {
    if (failure.missing || failure.status === 422) return { why: failure.message };
    throw failure;
  }
}

export function render(data, { apex, query }, { samples }) {
  const { zone, own, served, serials, router, parent } = data;
  const newest = zone?.spec.versions?.[0];
  const serial = newest?.serial ?? own?.serial ?? null;
  const isServing = served.served && served.total <= served.items.length;
  const problems = problemsOf({ zone, served: own, router, serials, isServing });
  const series = samples?.columns.get(requests(apex));
  return [
    h(
      "div.title",
      null,
      h("div", null, h("p.kind", null, "Zone"), h("h1", null, apex)),
      problems.length ? badge("warn", "Warning", problems.join("\n")) : badge("good", "no problems"),
    ),
    problems.length > 0 &&
      h(
        "section.attention",
        { "data-key": "attention" },
        h("ul", null, problems.map((text) => h("li", { "data-key": text }, badge("warn", "Warning"), " ", h("span", null, text)))),
      ),
    h(
      "div.columns",
      null,
      h("div", null, section("Zone", aboutZone(data, serial))),
      h(
        "div",
        null,
        section("Name servers", nameServers(serials, serial, parent)),
        data.records.primaries && section("Primary servers", primaryServers(data.records.primaries)),
        data.records.secondaries?.length > 0 && section("Secondary servers", secondaryServers(data.records.secondaries)),
        series &&
          section(
            "Queries",
            plot(samples.at, [["", series]], {
              title: "Queries per second",
              source: requests(apex),
            }),
          ),
      ),
    ),
    h("section.card", { "data-key": "records" }, h("h2", null, "Records"), recordList(data, apex, query)),
    zone && zoneVersions(zone),
    h(
      "footer",
      null,
      zone && origin(path.zone(apex), `kubectl get zone ${apex} -o yaml`),
      h("div.origin", null, code(`signpost zone show ${apex}`), code(`signpost zone status ${apex}`)),
    ),
  ];
}

const requests = (apex) => `signpost_dns_zone_requests_total{zone="${apex}."}`;

function aboutZone({ zone, own, records, router }, serial) {
  const newest = zone?.spec.versions?.[0];
  return facts([
    ["Type", zone?.spec.type ?? own?.type],
    ["Shard", zone?.spec.router && h("a", { href: link.router(zone.spec.router) }, zone.spec.router)],
    [
      "Serial",
      h("span.mono", null, figure(serial === null ? "–" : String(serial), `signpost_dns_zone_serial{zone="${own?.zone ?? ""}"}`)),
    ],
    ["Allocated", newest && time(newest.at)],
    ["Age", zone && age(zone.metadata.creationTimestamp)],
    ["Owners", own && figure(count(own.owners), "data/zones of this process: owners")],
    ["Records", records.records !== undefined && figure(count(records.records), "data/records of this process: records")],
    ["Size", own && figure(`${size(own.octets)} of memory`, "data/zones of this process: octets")],
    ["Current records since serial", router?.status?.serial && figure(String(router.status.serial), "status.serial of the Router")],
  ]);
}

/** The name servers that the platform queries, with the serial of each. */
function nameServers(serials, newest, parent) {
  if (!serials) return empty("The name servers could not be queried.", "The page tries again after some seconds.");
  if (!serials.length)
    return empty(
      "No name servers are listed.",
      "The platform lists the servers of ",
      h("code", null, "verify.server"),
      " or ",
      h("code", null, "nameserver"),
      ".",
    );
  const names = serverNames(parent, serials);
  const [kind, text] = serverState(newest, serials);
  return [
    h("p", null, badge(kind, text), " name servers serve the serial, or a later one"),
    table(
      serials,
      [
        { label: "Name server", cell: ({ server }) => names.get(server) ?? h("span.dim", null, "–") },
        { label: "Address", kind: "mono", cell: ({ server }) => server },
        {
          label: "Serial",
          kind: "serial",
          cell: ({ serial }) => figure(serial === null ? "–" : String(serial), "the SOA record that the name server returned"),
        },
        { label: "State", cell: ({ serial, error }) => badge(...stateOf(serial, newest, error)) },
        {
          label: "Response time",
          kind: "labelled",
          cell: ({ error, seconds: took }) => figure(error ? "–" : seconds(took), "measured by this process"),
        },
      ],
      { keyOf: ({ server }) => server },
    ),
  ];
}

/** The primary servers from which this process copies the zone. */
function primaryServers({ servers, state, error, refreshedSeconds: age }) {
  const kinds = { current: "good", failing: "warn", expired: "bad", missing: "bad" };
  return facts([
    ["Address", h("span.mono", null, servers.join(", "))],
    ["State", badge(kinds[state] ?? "note", state, error ?? "")],
    ["Error", error],
    ["Refreshed", age !== null && figure(`${seconds(age)} ago`, "the last answer of a primary server with this version or an older one")],
  ]);
}

/** The secondary servers that this process notifies of the zone. */
function secondaryServers(secondaries) {
  const kinds = { acknowledged: "good", pending: "note", failed: "bad" };
  return table(
    secondaries,
    [
      { label: "Address", kind: "mono", cell: ({ server }) => server },
      {
        label: "Acknowledged",
        kind: "serial",
        cell: ({ acknowledged }) => figure(acknowledged === null ? "–" : String(acknowledged), "the last NOTIFY that the server answered"),
      },
      { label: "State", cell: ({ state, error }) => badge(kinds[state] ?? "note", error ? `${state}: ${error}` : state) },
      {
        label: "Pending for",
        kind: "labelled",
        cell: ({ pendingSeconds }) => figure(pendingSeconds === null ? "–" : seconds(pendingSeconds), "since the oldest change without an answer"),
      },
    ],
    { keyOf: ({ server }) => server },
  );
}

/** The names of name servers by their address and port. Servers that share an address with another one have none. */
export function serverNames(parent, serials) {
  const host = (server) => server.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  const known = new Map(
    (parent?.spec.platform?.nameServers ?? []).flatMap(({ name, addresses }) => (addresses ?? []).map((address) => [address, name])),
  );
  const servers = (serials ?? []).map(({ server }) => server);
  const isAlone = (server) => servers.filter((other) => host(other) === host(server)).length === 1;
  return new Map(servers.filter(isAlone).map((server) => [server, known.get(host(server))]));
}

/** The state of a serial on a name server: a kind of badge and a word. */
export function stateOf(serial, newest, error) {
  if (serial === null) return ["bad", error ?? "no serial"];
  if (newest === null || newest === undefined || serial === newest) return ["good", "current"];
  return isAfter(serial, newest) ? ["note", "ahead"] : ["bad", "behind"];
}

const RECORD_COLUMNS = [
  { label: "Owner", kind: "mono", cell: (one) => one.owner },
  { label: "TTL", kind: "number", cell: (one) => figure(String(one.ttl), "seconds") },
  { label: "Type", cell: (one) => one.type },
  { label: "Data", kind: "mono.data", cell: (one) => one.data },
];

function recordList({ records }, apex, query) {
  if (records.why) return empty("The records are not listed.", `${records.why}.`);
  const here = (change) => link.zone(apex, { ...query, ...change });
  const types = Object.entries(records.types).map(([type, number]) => [type, `${type} ${count(number)}`]);
  return [
    h(
      "div.row.filters",
      null,
      searchField(query, "Owner or data", "Search records"),
      chips("Type", "type", types, query, here),
    ),
    records.items.length === 0
      ? empty("No matching records.", "Shorten the search, or select another type.")
      : [
          table(records.items, RECORD_COLUMNS, { keyOf: (one) => `${one.owner} ${one.type} ${one.data}` }),
          pager(records, PAGE, here, "record"),
        ],
    h("p.dim", null, `From the zone in the memory of this process, serial ${records.serial ?? "unknown"}.`),
  ];
}
