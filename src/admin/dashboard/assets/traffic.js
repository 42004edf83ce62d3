// The traffic of Routes: requests, errors, times, bytes, connections, and endpoints, as the agents of their shard count them.

import { h } from "./dom.js";
import { Failure, model } from "./data.js";
import { plot } from "./plot.js";
import { table } from "./table.js";
import { badge, count, empty, facts, figure, link, measured, plural, seconds, section, size } from "./words.js";

/** The age at which a page with traffic is loaded again, in milliseconds. Agents read the counters every five seconds. */
export const EVERY = 5000;

/** The traffic of `{route}`, `{namespace}`, `{router}`, or all; null if this user or process cannot read it. */
export async function trafficOf(wanted, signal) {
  try {
    return await model("traffic", wanted, signal);
  } catch (failure) {
    if (!(failure instanceof Failure) || failure.signedOut) throw failure;
    return null;
  }
}

const SOURCE = "counted by the agents of the shard, over the last minute";
const SOURCE_OF_PLOTS = "counted by the agents of the shard, in spans of ten seconds";
/** A mean over a minute decays forever, so that it has a least value. */
const least = (value) => (value > 0 && value < 0.01 ? "< 0.01" : measured(value));
const rate = (value) => figure(`${least(value)} /s`, SOURCE);
const octets = (value) => figure(`${size(Math.round(value))}/s`, SOURCE);

/** A share in percent. */
function share(part, whole) {
  if (!(whole > 0)) return figure("–", SOURCE);
  return figure(`${least((100 * part) / whole)} %`, SOURCE);
}

const requestsOf = ({ requests }) => requests.reduce((sum, one) => sum + one, 0);

/** The section of a Route: its numbers, and its endpoints. */
export function routeTraffic(traffic) {
  if (!traffic) return null;
  const found = traffic.routes?.[0];
  if (!found) return section("Traffic", nothing(traffic));
  const { rates, meanMs, open, ready, connections } = found;
  return section(
    "Traffic",
    !ready && h("p", null, badge("bad", "no endpoint"), " All requests get the status 503."),
    facts([
      [connections > 0 ? "Connections" : "Requests", rate(rates.requests)],
      ["Status 5xx", share(rates.serverErrors, rates.requests)],
      ["Without an answer", share(rates.errors, rates.requests)],
      ["Response time", figure(meanMs === undefined ? "–" : seconds(meanMs / 1000), "the mean of the last 512 requests, to the head of the response")],
      ["Received, sent", h("span.row", null, octets(rates.bytesIn), octets(rates.bytesOut))],
      ["Open", open !== undefined && figure(count(open), "requests and connections in progress")],
      ["Since the agents started", statuses(found)],
    ]),
    plots(traffic.history),
    endpoints(found.endpoints),
    notes(traffic),
  );
}

/** The last minutes: requests and errors. Agents have a value every ten seconds, from the second on. */
function plots(history) {
  const { seconds: lengths = [], requests, serverErrors, errors } = history ?? {};
  if (lengths.length < 2) return null;
  let time = Date.now() - 1000 * lengths.reduce((sum, length) => sum + length, 0);
  const at = lengths.map((length) => (time += 1000 * length));
  const failed = [
    ["status 5xx", serverErrors],
    ["without an answer", errors],
  ];
  return h(
    "div.plots",
    { "data-key": "plots" },
    plot(at, [["", requests]], { title: "Requests per second", source: SOURCE_OF_PLOTS }),
    plot(at, failed, { title: "Errors per second", source: SOURCE_OF_PLOTS }),
  );
}

/** The finished requests by class of their status. */
function statuses({ requests, connections }) {
  const classes = ["ended by the client", "1xx", "2xx", "3xx", "4xx", "5xx"];
  const shown = classes.map((name, at) => [name, requests[at]]).filter(([, number]) => number > 0);
  if (connections > 0) shown.push(["connections", connections]);
  if (shown.length === 0) return "no requests";
  return h("span.row", null, shown.map(([name, number]) => h("span.chip", { "data-key": name }, `${name}: ${count(number)}`)));
}

const STATES = { up: "good", down: "bad", unknown: "note" };

function endpoints(all) {
  if (all.length === 0) return null;
  const answered = all.reduce((sum, one) => sum + one.answered, 0);
  return table(
    all,
    [
      { label: "Endpoint", kind: "mono", cell: ({ address }) => address },
      {
        label: "State",
        cell: ({ state }) => badge(STATES[state], state, "by the last requests to it"),
      },
      {
        label: "Share",
        kind: "number",
        cell: (one) => (answered > 0 ? `${measured((100 * one.answered) / answered)} %` : "–"),
      },
      { label: "Weight", kind: "number", cell: ({ weight }) => count(weight) },
      { label: "Failed", kind: "number", cell: ({ failed }) => count(failed) },
    ],
    { keyOf: ({ address }) => address },
  );
}

/** The section of a shard, a namespace, or the platform: sums, and the Routes with the most requests. */
export function totalTraffic(traffic, title = "Traffic") {
  if (!traffic) return null;
  const { totals, routes } = traffic;
  if (!totals || traffic.answered === 0) return section(title, nothing(traffic));
  const { rates } = totals;
  return section(
    title,
    facts([
      ["Requests", rate(rates.requests)],
      ["Status 5xx", share(rates.serverErrors, rates.requests)],
      ["Without an answer", share(rates.errors, rates.requests)],
      ["Received, sent", h("span.row", null, octets(rates.bytesIn), octets(rates.bytesOut))],
      ["Open", totals.open !== null && totals.open !== undefined && figure(count(totals.open), "requests and connections in progress")],
      [
        "Endpoints",
        h(
          "span.row",
          null,
          [
            ["good", "up"],
            ["bad", "down"],
            ["note", "unknown"],
          ]
            .filter(([, state]) => totals[state] > 0)
            .map(([kind, state]) => badge(kind, `${count(totals[state])} ${state}`)),
        ),
      ],
    ]),
    plots(traffic.history),
    busiest(routes),
    notes(traffic),
  );
}

function busiest(routes) {
  const shown = routes.filter((one) => requestsOf(one) + one.connections > 0).slice(0, 10);
  if (shown.length === 0) return null;
  return table(
    shown,
    [
      {
        label: "Busiest Routes",
        cell: ({ route, ready }) => [
          h("a", { href: link.route(...route.split("/")) }, route),
          !ready && badge("bad", "no endpoint"),
        ],
      },
      { label: "Requests", kind: "number", cell: ({ rates }) => rate(rates.requests) },
      { label: "5xx", kind: "number", cell: ({ rates }) => share(rates.serverErrors, rates.requests) },
      { label: "Time", kind: "number", cell: ({ meanMs }) => (meanMs === undefined ? "–" : seconds(meanMs / 1000)) },
    ],
    { keyOf: ({ route }) => route },
  );
}

function nothing({ unavailable, instanceCount }) {
  if (unavailable) return empty("Unknown.", `The traffic cannot be read: ${unavailable}.`);
  if (!instanceCount) return empty("Unknown.", "No agent reports for the shard, so that nothing counts requests.");
  return empty("Unknown.", "No agent has reported the traffic yet.");
}

/** What is missing in the numbers. */
function notes({ lost, instances, instanceCount, answered }) {
  const silent = instances.filter((one) => one.error);
  return [
    lost > 0 && h("p.dim", null, `${plural(lost, "request")} of the shard were not counted, because the agents were too slow.`),
    answered < instanceCount && h("p.dim", null, `The numbers are those of ${answered} of ${plural(instanceCount, "instance")}.`),
    silent.slice(0, 3).map(({ name, error }) => h("p.dim", { "data-key": name }, `${name}: ${error}.`)),
  ];
}

/** A link that opens the application of a Route, if it has a name. */
export function opens({ spec, status }, router) {
  // Without a Router, the host may be that of another Route.
  const name = status?.router && (spec.host ?? status.canonicalName ?? status.dns);
  if (!name || name.startsWith("*")) return null;
  const scheme = spec.tls ? "https" : "http";
  const port = spec.tls ? router?.spec.ports?.https : router?.spec.ports?.http;
  const usual = spec.tls ? 443 : 80;
  const address = `${scheme}://${name}${port && port !== usual ? `:${port}` : ""}${spec.path ?? "/"}`;
  return h("a.chip", { href: address, target: "_blank", rel: "noopener noreferrer" }, "Open the application");
}
