// The operator's first page: current problems, the most important metrics, and all shards.

import { h } from "./dom.js";
import { items, itemsIfThere, model, objectIfThere, path, shownAt } from "./data.js";
import { columns, few, now, plot, spark, total } from "./plot.js";
import { totalTraffic, trafficOf } from "./traffic.js";
import {
  FIRST_ROUTER,
  KINDS,
  MARKS,
  addressStates,
  asOf,
  badge,
  commands,
  count,
  empty,
  figure,
  firstRoute,
  instancesWord,
  link,
  measured,
  origin,
  panics,
  plural,
  routerState,
  seconds,
  section,
  routeStates,
  time,
} from "./words.js";

export const title = () => "Platform";
/** The maximum age of the traffic, in milliseconds. */
export const every = 10_000;
export const moves = true;
export const concerns = () => true;

const CARDS_MAX = 60;
const ADDRESSES_MAX = 6;

export async function load(_, { rights }, signal) {
  const [overview, traffic, routers, zones, lease, deletionHolds] = await Promise.all([
    model("overview", {}, signal),
    trafficOf({}, signal),
    items(path.routers, signal),
    rights.zones ? items(path.zones, signal) : [],
    rights.leases ? objectIfThere(path.lease, signal) : null,
    rights.zones ? itemsIfThere(path.deletionHolds, signal) : [],
  ]);
  return { overview, traffic, routers, zones, lease, deletionHolds };
}

export function render({ overview, traffic, routers, zones, lease, deletionHolds }, _, { samples, state, rights, stale }) {
  const bound = new Map(overview.routers.map((one) => [one.name, one]));
  const serials = new Map(
    zones.filter((zone) => zone.spec.router).map((zone) => [zone.spec.router, zone.spec.versions?.[0]]),
  );
  const shard = (router) => card(router, bound.get(router.metadata.name), serials.get(router.metadata.name), samples);
  return [
    h("div.title", null, h("h1", null, "Platform"), health(state, stale, outages(overview, routers))),
    attention(overview, routers, lease, deletionHolds, samples, state, rights, stale),
    firstSteps(overview, routers),
    vitals(overview, zones, lease, samples, stale),
    plots(samples, routers, rights),
    traffic?.instanceCount > 0 && totalTraffic(traffic),
    h(
      "section",
      { "data-key": "shards" },
      h(
        "div.title",
        null,
        h("h2", null, plural(routers.length, "shard")),
        h("span.row", null, h("a", { href: "#/routers" }, "List"), h("a", { href: link.topology({}) }, "Topology")),
      ),
      routers.length
        ? h("div.shards", null, routers.slice(0, CARDS_MAX).map(shard))
        : empty("No shards yet.", "The first step above creates one."),
      routers.length > CARDS_MAX &&
        h(
          "p.dim",
          null,
          `The first ${CARDS_MAX} of ${count(routers.length)} shards are shown. The `,
          h("a", { href: link.topology({}) }, "topology"),
          " shows more, and the ",
          h("a", { href: "#/routers" }, "list"),
          " all.",
        ),
    ),
    h("footer", null, origin(path.routers, "kubectl get routers")),
  ];
}

/** Shards that need an active address and have none: an outage, regardless of what the name servers report. */
function outages(overview, routers) {
  const routes = new Map(overview.routers.map((one) => [one.name, one.routes]));
  const needed = ({ metadata, spec }) => routes.get(metadata.name) > 0 || (spec.state ?? "active") === "active";
  const isDead = (router) => addressStates(router).every((address) => address.drained || address.down);
  return {
    shards: routers.filter((router) => needed(router) && isDead(router) && !panics(router)).length,
    routes: overview.states.down ?? 0,
  };
}

function health(state, stale, { shards, routes }) {
  if (stale) return badge("bad", "unknown", stale.why);
  if (!state) return null;
  if (state.missing.length) return badge("bad", "not ready", state.missing.join("\n"));
  if (shards + routes > 0) return badge("bad", "outage", "names do not resolve: see below");
  return badge("good", "ready", "/readyz reports no missing check");
}

/** The first steps on an empty platform. */
function firstSteps(overview, routers) {
  if (routers.length > 0 && overview.routes > 0) return null;
  const step = (done, text, ...more) =>
    h("li", null, h("p", null, badge(done ? "good" : "note", done ? "done" : "next"), " ", text), !done && more);
  return h(
    "section.card",
    { "data-key": "first steps" },
    h("h2", null, "First steps"),
    h(
      "ol.first",
      null,
      step(
        routers.length > 0,
        [
          "Create a shard: a Router with the addresses to which its names resolve. ",
          h("code", null, "kubectl explain router.spec"),
          " describes every field.",
        ],
        commands(FIRST_ROUTER, "the first Router"),
      ),
      step(
        overview.routes > 0,
        "Request a name: create a Route in the namespace of an application.",
        commands(firstRoute("default"), "the first Route"),
      ),
    ),
  );
}

/** Problems for the attention of an operator, the worst first. */
function attention(overview, routers, lease, deletionHolds, samples, state, rights, stale) {
  const found = [];
  const add = (kind, ...text) => found.push([kind, ...text]);
  if (stale) add("bad", `Current problems are unknown: all data is as of ${asOf(stale.at)}.`);
  const { down: dead } = overview.states;
  if (dead)
    add(
      "bad",
      h("a", { href: link.routes({ state: "down" }) }, `${plural(dead, "route")} down`),
      dead === 1 ? ": its name does not resolve" : ": their names do not resolve",
    );
  for (const missing of state?.missing ?? []) add("bad", "not ready: ", missing);
  for (const warning of state?.warnings ?? []) add("bad", warning);
  found.push(...heldDeletions(deletionHolds, samples), ...shardProblems(overview, routers));
  if (rights.leases && !lease?.spec?.holderIdentity) add("warn", "No scheduler is the leader: new Routes stay pending.");
  for (const [address, values] of columns(samples, "signpost_name_server_silent"))
    if (values.at(-1) > 0)
      add(
        "warn",
        "Name server ",
        figure(address, `signpost_name_server_silent{address="${address}"}`),
        " does not answer: routes do not wait for it while another one answers",
      );
  const faults = now(samples, "signpost_zone_input_errors");
  if (faults > 0)
    add(
      "warn",
      figure(plural(faults, "error"), "signpost_zone_input_errors"),
      " in the objects from which zones are built; see the log",
    );
  for (const [state, text] of [
    ["unready", ": names resolve, and requests fail"],
    ["refused", ": not admitted with the host"],
    ["pending", ": not on a shard"],
    ["unverified", ": DNS answers are not verified"],
    ["answered", ": the custom host does not point here"],
  ]) {
    const number = overview.states[state];
    const title = stateMetric(state);
    if (number) add("warn", h("a", { href: link.routes({ state }), title }, `${plural(number, "route")} ${state}`), text);
  }
  if (found.length === 0)
    return h("section.attention", { "data-key": "attention" }, h("p", null, badge("good", "Nothing needs attention.")));
  // The sort is stable: entries of one kind keep their order.
  found.sort((one, other) => KINDS.indexOf(one[0]) - KINDS.indexOf(other[0]));
  return h(
    "section.attention",
    { "data-key": "attention" },
    h("h2.hidden-text", null, "Needs attention"),
    h(
      "ul",
      null,
      found
        .slice(0, 12)
        .map(([kind, ...text]) =>
          h("li", null, badge(kind, { bad: "Critical", warn: "Warning" }[kind]), " ", h("span", null, text)),
        ),
    ),
    found.length > 12 && h("p.dim", null, `and ${found.length - 12} more`),
  );
}

/** The entries of deletion holds. */
function heldDeletions(deletionHolds, samples) {
  const found = [];
  // For users that can read them, the DeletionHolds have more details.
  for (const [kind, values] of deletionHolds.length ? [] : columns(samples, "signpost_deletion_hold_objects")) {
    if (values.at(-1) > 0)
      found.push([
        "bad",
        "Deletion hold: ",
        figure(count(values.at(-1)), `signpost_deletion_hold_objects{kind="${kind}"}`),
        ` ${kind} missing from the API, and still served`,
      ]);
  }
  for (const {
    metadata: { name },
    spec,
    status,
  } of deletionHolds) {
    const held = status?.objects === undefined ? spec : status;
    found.push([
      spec.decision ? "warn" : "bad",
      "DeletionHold ",
      h("a", { href: shownAt(path.deletionHold(name)) }, name),
      `: ${plural(held.objects, spec.type)} of ${count(held.known)} missing, and kept`,
      spec.decision
        ? `; decision: ${spec.decision}`
        : [
            "; to decide, run ",
            h("code", null, `signpost hold approve ${name}`),
            " or ",
            h("code", null, "reject"),
          ],
    ]);
  }
  return found;
}

/** The entries of shards: outages, addresses and instances that are down, and exhausted capacities. */
function shardProblems(overview, routers) {
  const found = [];
  for (const router of routers) {
    const [state, word] = routerState(router);
    const name = router.metadata.name;
    const add = (kind, ...text) => found.push([kind, h("a", { href: link.router(name) }, name), ...text]);
    const hard = router.spec.capacity?.hard;
    const routes = overview.routers.find((one) => one.name === name)?.routes ?? 0;
    const down = addressStates(router).filter((address) => address.down).length;
    if (state === "bad") add("bad", `: ${word}`, routes > 0 && `, with ${plural(routes, "route")}`);
    else if (panics(router)) {
      const reason = figure("too few healthy addresses", `signpost_panic{router="${name}"}`);
      add("bad", ": ", reason, ", so answers contain all of them");
    } else if (down) add("warn", `: ${plural(down, "address", "addresses")} down`);
    const instances = instancesWord(router);
    if (instances && instances[0] !== "good" && state !== "bad") add("warn", `: ${instances[1]}`);
    if (hard && routes >= hard) add("warn", ` is full: ${count(routes)} of ${count(hard)} routes`);
  }
  return found;
}

/** The metric of the Routes in a state. */
const stateMetric = (state) => `signpost_routes{state="${state}"}`;

function vitals(overview, zones, lease, samples, stale) {
  const age = () => stale && h("div.more.as-of", null, `as of ${asOf(stale.at)}`);
  const vital = (name, source, value, ...more) =>
    h(
      "div.vital",
      { "data-key": name },
      h("h3", null, name),
      h("div.value", null, typeof value === "string" ? figure(value, source) : value),
      h("div.more", null, more),
      age(),
    );
  const held = total(samples, "signpost_deletion_hold_objects");
  const ready = now(samples, "signpost_dns_ready");
  const answers = now(samples, "signpost_dns_zones") !== null;
  return h(
    "section.vitals",
    { "data-key": "vitals", "aria-label": "Current metrics" },
    h(
      "div.vital.wide",
      { "data-key": "routes" },
      h("h3", null, "Routes"),
      h("div.value", null, h("a.quiet", { href: "#/routes", title: "signpost_routes" }, count(overview.routes))),
      routeStates(overview.states, (state) => link.routes({ state }), stateMetric),
      age(),
    ),
    vital(
      "Namespaces",
      "signpost_route_namespaces",
      h(
        "a.quiet",
        { href: link.topology({}), title: "signpost_route_namespaces" },
        count(overview.namespaceCount),
      ),
      "with routes",
    ),
    answers &&
      vital(
        "Queries",
        "signpost_dns_requests_total",
        measured(now(samples, "signpost_dns_requests_total")),
        "per second",
      ),
    answers &&
      vital(
        "Response time (p99)",
        "signpost_dns_request_duration_seconds",
        seconds(now(samples, 'signpost_dns_request_duration_seconds{quantile="0.99"}')),
        "99 % of responses are faster",
      ),
    answers &&
      vital(
        "Zones served",
        "signpost_dns_zones",
        count(now(samples, "signpost_dns_zones")),
        ready === 0 ? badge("bad", "not ready", "signpost_dns_ready") : badge("good", "ready", "signpost_dns_ready"),
      ),
    vital(
      "Last API message",
      "signpost_informer_age_seconds",
      seconds(now(samples, "signpost_informer_age_seconds")),
      "ago, at most a minute when idle",
    ),
    vital(
      "Leader",
      "signpost_scheduler_leading",
      lease?.spec?.holderIdentity
        ? h("span.small", { title: "signpost_scheduler_leading" }, lease.spec.holderIdentity)
        : "none",
      lease?.spec?.acquireTime ? ["since ", time(lease.spec.acquireTime)] : "",
    ),
    held !== null &&
      vital(
        "Held deletions",
        "signpost_deletion_hold_objects",
        count(held),
        held > 0 ? badge("bad", "still served") : "none",
      ),
  );
}

function plots(samples, routers, rights) {
  if (!rights.zones) return null;
  if (now(samples, "signpost_dns_requests_total") === null && !samples?.columns.has("signpost_dns_requests_total")) {
    return section(
      "Queries",
      empty("This process answers no queries.", "For plots and metrics, see the admin endpoints of the name servers."),
    );
  }
  const { at } = samples;
  const shards = new Map(routers.map((router) => [`${router.spec.dns}.`, router.metadata.name]));
  const zones = columns(samples, "signpost_dns_zone_requests_total").map(([zone, values]) => [
    shards.get(zone) ?? zone,
    values,
  ]);
  const times = ["0.5", "0.99"].map((share) => [
    share === "0.5" ? "p50" : "p99",
    samples.columns.get(`signpost_dns_request_duration_seconds{quantile="${share}"}`) ?? [],
  ]);
  const asked = columns(samples, "signpost_dns_responses_total");
  const card = (key, series, options) => h("div.card", { "data-key": key }, plot(at, series, options));
  return h(
    "section.plots",
    { "data-key": "plots", "aria-label": "The last 15 minutes" },
    card("by zone", few(zones, "zones"), {
      title: "Queries per second, by zone",
      source: "signpost_dns_zone_requests_total",
    }),
    card("by code", few(asked), { title: "Responses per second, by code", source: "signpost_dns_responses_total" }),
    card("times", times, {
      title: "Response time, p50 and p99",
      unit: seconds,
      source: "signpost_dns_request_duration_seconds",
    }),
  );
}

/** How full a Router is: its routes against its soft and hard capacity. */
export function fullness(routes, capacity) {
  const { soft, hard } = capacity ?? {};
  if (!soft && !hard) return h("span.dim", null, "no limit set");
  const most = hard ?? Math.max(soft * 1.25, routes);
  const over = hard && routes >= hard ? "fill-refused" : soft && routes >= soft ? "fill-unverified" : "fill-scheduled";
  return [
    h(
      "svg.bar",
      { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("rect.track", { width: 100, height: 6 }),
      h("rect", { width: Math.min(100, (routes / most) * 100), height: 6, class: over }),
      soft && h("line.mark", { x1: (soft / most) * 100, x2: (soft / most) * 100, y1: 0, y2: 6 }),
    ),
    h("span.dim", { title: "spec.capacity of the Router" }, [soft && `soft ${count(soft)}`, hard && `hard ${count(hard)}`].filter(Boolean).join(", ")),
  ];
}

function card(router, bound, version, samples) {
  const { name } = router.metadata;
  const [kind, word] = routerState(router);
  const [addresses, instances] = [addressStates(router), instancesWord(router)];
  const series = samples?.columns.get(`signpost_dns_zone_requests_total{zone="${router.spec.dns}."}`);
  const routes = bound?.routes ?? 0;
  return h(
    "article.card.shard",
    { "data-key": name },
    h("div.title", null, h("h3", null, h("a", { href: link.router(name) }, name)), badge(kind, word)),
    h("div.mono.dim", null, router.spec.dns),
    h(
      "div.row.spread",
      null,
      h(
        "a",
        { href: link.routes({ router: name }), title: `signpost_router_routes{router="${name}"}` },
        plural(routes, "route"),
      ),
      fullness(routes, router.spec.capacity),
    ),
    h(
      "ul.addresses",
      null,
      addresses
        .slice(0, ADDRESSES_MAX)
        .map((address) =>
          h(
            "li",
            { "data-key": address.ip, title: address.message },
            h("span", { class: `mark is-${address.kind}`, "aria-hidden": "true" }, MARKS[address.kind]),
            h("span.mono", null, address.ip),
            h("span.dim", null, address.word),
          ),
        ),
      addresses.length > ADDRESSES_MAX && h("li.dim", null, `and ${addresses.length - ADDRESSES_MAX} more`),
      addresses.length === 0 && h("li.dim", null, "no addresses"),
    ),
    instances && h("div.row", null, badge(...instances)),
    series &&
      h(
        "div.row.spread",
        null,
        spark(series, `queries per second in the zone ${router.spec.dns}, last 15 minutes`),
        h(
          "span",
          { title: `signpost_dns_zone_requests_total{zone="${router.spec.dns}."}` },
          measured(series.at(-1)),
          h("span.dim", null, " queries/s"),
        ),
      ),
    h(
      "div.dim",
      { title: `signpost_dns_zone_serial{zone="${router.spec.dns}."}` },
      version ? ["zone serial ", h("a.quiet", { href: link.zone(router.spec.dns) }, version.serial)] : "zone serial unknown",
    ),
  );
}
