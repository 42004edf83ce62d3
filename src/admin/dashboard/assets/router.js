// One shard: its addresses, its capacity, the queries of its zone, and the versions of the zone.

import { h } from "./dom.js";
import { model, object, objectIfThere, path } from "./data.js";
import { fullness } from "./overview.js";
import { plot } from "./plot.js";
import { table } from "./table.js";
import { EVERY, totalTraffic, trafficOf } from "./traffic.js";
import {
  INSTANCE_KINDS,
  addressStates,
  age,
  badge,
  code,
  conditions,
  count,
  empty,
  facts,
  figure,
  instancesWord,
  link,
  origin,
  plural,
  routerState,
  section,
  routeStates,
  time,
} from "./words.js";

export const title = ({ name }) => name;
export const moves = true;
export const every = EVERY;
export const concerns = () => true;

export async function load({ name }, { rights }, signal) {
  const router = await object(path.router(name), signal);
  const [overview, traffic, zone] = await Promise.all([
    model("overview", {}, signal),
    trafficOf({ router: name }, signal),
    rights.zones && router.spec.dns ? objectIfThere(path.zone(router.spec.dns), signal) : null,
  ]);
  return { router, overview, traffic, zone };
}

export function render({ router, overview, traffic, zone }, { name }, { samples, rights }) {
  const { spec } = router;
  const [kind, word] = routerState(router);
  const routes = overview.routers.find((one) => one.name === name)?.routes ?? 0;
  const series = samples?.columns.get(`signpost_dns_zone_requests_total{zone="${spec.dns}."}`);
  return [
    h("div.title", null, h("div", null, h("p.kind", null, "Shard"), h("h1", null, name)), badge(kind, word)),
    spec.description && h("p", null, spec.description),
    h(
      "div.columns",
      null,
      h(
        "div",
        null,
        section("Configuration", configuration(router, routes, rights)),
        section(plural(addressStates(router).length, "address", "addresses"), addresses(router)),
        instances(router),
        totalTraffic(traffic, rights.all ? "Traffic" : "Traffic of the Routes that you can read"),
      ),
      h(
        "div",
        null,
        section(
          rights.all ? plural(routes, "route") : `${plural(routes, "route")} that you can read`,
          routesOf(name, overview, rights),
        ),
        router.status?.conditions?.length > 0 && section("Conditions", conditions(router.status.conditions)),
        rights.zones &&
          section(
            "Queries",
            series
              ? plot(samples.at, [["", series]], {
                  title: "Queries per second",
                  source: `signpost_dns_zone_requests_total{zone="${spec.dns}."}`,
                })
              : empty(
                  "No metrics.",
                  "This process does not serve the zone, or has no separate counter for it (--metrics-zones).",
                ),
          ),
      ),
    ),
    zone && zoneVersions(zone),
    h(
      "footer",
      null,
      origin(path.router(name), `kubectl describe router ${name}`),
      zone && origin(path.zone(spec.dns), `kubectl get zone ${spec.dns} -o yaml`),
    ),
  ];
}

function configuration(router, routes, rights) {
  const { spec } = router;
  return facts([
    ["Zone", h("span.row", null, code(spec.dns), rights.zones && h("a", { href: link.zone(spec.dns) }, "records"))],
    ["Mode", spec.mode],
    [
      "New routes",
      {
        active: "accepted",
        cordoned: "not accepted: cordoned",
        draining: "not accepted: draining",
      }[spec.state ?? "active"],
    ],
    ["Route selector", selector(spec.routeSelector)],
    ["Namespace selector", selector(spec.namespaceSelector)],
    ["Weight", figure(count(spec.weight), "spec.weight of the Router")],
    ["TTL", figure(`${spec.ttl} s`, "spec.ttl of the Router")],
    ["Capacity", h("span.row", null, fullness(routes, spec.capacity))],
    ["Former names", formerNames(router.status)],
    ["Age", age(router.metadata.creationTimestamp)],
    [
      "Additional records",
      spec.records?.length > 0 && spec.records.map((record) => h("div.mono", { "data-key": record }, record)),
    ],
  ]);
}

/** The Routes of a shard, by state and by namespace. */
function routesOf(name, overview, rights) {
  const counted = overview.routers.find((one) => one.name === name);
  const tenants = overview.links
    .filter(([, router]) => router === name)
    .map(([at, , routes]) => [overview.namespaces[at].name, routes])
    .sort((a, b) => b[1] - a[1]);
  return [
    counted
      ? routeStates(
          counted.states,
          (state) => link.routes({ router: name, state }),
          () => (rights.all ? `signpost_router_routes{router="${name}"}, by state` : "your Routes, counted from the API"),
        )
      : empty("No Routes on this shard.", "An active shard accepts new Routes that match its selectors."),
    tenants.length > 0 &&
      h(
        "ul.tenants",
        null,
        tenants
          .slice(0, 12)
          .map(([namespace, routes]) =>
            h(
              "li",
              { "data-key": namespace },
              h("a", { href: link.namespace(namespace) }, namespace),
              h("span.dim", null, plural(routes, "route")),
            ),
          ),
      ),
    tenants.length > 12 && h("p.dim", null, `and ${plural(tenants.length - 12, "more namespace")}`),
    h(
      "p.row",
      null,
      h("a", { href: link.routes({ router: name }) }, "Show in the list"),
      h("a", { href: link.topology({ router: name }) }, "Show in the topology"),
    ),
  ];
}

/** The versions of a zone, the newest first. */
export function zoneVersions(zone) {
  return section(
    "Zone versions",
    table(
      zone.spec.versions ?? [],
      [
        {
          label: "Serial",
          kind: "mono",
          cell: (version) =>
            figure(
              String(version.serial),
              version === zone.spec.versions[0]
                ? `signpost_dns_zone_serial{zone="${zone.metadata.name}."}`
                : "spec.versions of the Zone",
            ),
        },
        { label: "Allocated", cell: (version) => time(version.at) },
        { label: "Digest of the contents", kind: "mono.dim", cell: (version) => version.digest.slice(0, 16) },
      ],
      { keyOf: (version) => version.serial },
    ),
  );
}

/** How many routes have moved away and still have names here. */
function formerNames(status) {
  if (!status?.formerNames) return null;
  const until = new Date(status.formerNamesUntil).toLocaleString();
  return `${plural(status.formerNames, "route")} moved away; their former names on this shard resolve until ${until}`;
}

function selector(selector) {
  const labels = Object.entries(selector?.matchLabels ?? {}).map(([key, value]) => `${key} = ${value}`);
  const words = { In: "is one of", NotIn: "is not one of", Exists: "exists", DoesNotExist: "does not exist" };
  const expressions = (selector?.matchExpressions ?? []).map(({ key, operator, values }) =>
    `${key} ${words[operator] ?? operator} ${(values ?? []).join(", ")}`.trim(),
  );
  const all = [...labels, ...expressions];
  return all.length ? all.map((text) => h("span.chip", { "data-key": text }, text)) : "any";
}

/** The instances that have reported, by their Leases. */
function instances(router) {
  const word = instancesWord(router);
  if (!word) return null;
  const all = router.status.instances ?? [];
  const faults = `signpost_router_instance_faults{router="${router.metadata.name}"}`;
  const columns = [
    { label: "Instance", kind: "mono", cell: (one) => h("span", { title: `Lease ${one.name}` }, one.ip) },
    { label: "State", cell: (one) => badge(INSTANCE_KINDS[one.state] ?? "note", one.state) },
    { label: "Ports", kind: "labelled", cell: (one) => `${one.httpPort}, ${one.httpsPort}` },
    { label: "Proxy", cell: (one) => one.proxy },
    { label: "Version", cell: (one) => one.version },
    {
      label: "Faults",
      kind: "labelled",
      cell: (one) => h("span", { title: faults }, one.faults > 0 ? badge("warn", String(one.faults)) : "none"),
    },
  ];
  return section(word[1], table(all, columns, { keyOf: (one) => one.name }));
}

function addresses(router) {
  const all = addressStates(router);
  if (all.length === 0) return empty("No addresses.", "Queries for its names get NODATA until it has an address.");
  const weights = all.some((address) => (address.weight ?? 1) !== 1);
  const priorities = router.spec.mode === "active-passive";
  const up = (address) => `signpost_address_up{address="${address.ip}",router="${router.metadata.name}"}`;
  const columns = [
    { label: "Address", kind: "mono", cell: (address) => address.ip },
    { label: "State", cell: (address) => h("span", { title: up(address) }, badge(address.kind, address.word)) },
    weights && { label: "Weight", kind: "number", cell: (address) => count(address.weight ?? 1) },
    priorities && { label: "Priority", kind: "number", cell: (address) => count(address.priority ?? 0) },
    { label: "Probes", kind: "dim.labelled", cell: (address) => address.message },
  ];
  return table(all, columns, { keyOf: (address) => address.ip });
}
