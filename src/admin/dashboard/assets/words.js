// Numbers, times, badges and links, in the same form everywhere.

import { h } from "./dom.js";
import { shownAt } from "./data.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

export const count = (number) => (number === null || number === undefined ? "–" : whole.format(number));

/** A rate or another measured number; `–` where nothing is known. */
export function measured(number) {
  if (number === null || number === undefined) return "–";
  return Math.abs(number) >= 1000 ? short.format(number) : String(Number(number.toPrecision(3)));
}

/** Seconds in the unit that reads best. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${Number((value * 1e6).toPrecision(3))} µs`;
  if (value < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} days`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A time as the text that `format` returns for the seconds since then, with the exact time as its title. */
function moment(text, format) {
  const at = new Date(text ?? "");
  if (Number.isNaN(at.getTime())) return text || "–";
  const passed = Math.max(0, Math.floor((Date.now() - at.getTime()) / 1000));
  return h("time", { datetime: text, title: at.toISOString() }, format(passed));
}

/** A time relative to now. */
export const time = (text) => moment(text, (passed) => (passed < 5 ? "just now" : `${seconds(passed)} ago`));

/** The age of something that was created at this time. */
export const age = (text) => moment(text, (passed) => (passed < 1 ? "0 s" : seconds(passed)));

/** A size in octets in the unit that reads best. */
export function size(octets) {
  if (octets === null || octets === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  let value = octets;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

/** A time as text that sorts by its time, including all fractions of a second. */
export function stamp(text) {
  const [, whole, part = ""] = /^([^.Z]*)(?:\.(\d+))?/.exec(text ?? "") ?? [];
  return `${whole ?? ""}.${part.padEnd(9, "0")}`;
}

export const clock = (milliseconds) => new Date(milliseconds).toLocaleTimeString([], { hour12: false });

/** When something was seen last, and how long ago that is. */
export const asOf = (milliseconds) =>
  `${clock(milliseconds)}, ${seconds(Math.max(1, Math.floor((Date.now() - milliseconds) / 1000)))} ago`;

// --- the state of a route: a shape and a word, so that no one needs the colour. The word is that of the address of a list, of
// the metrics, and of the command line ---
export const STATES = {
  resolvable: { mark: "●", says: "every name server answers its names correctly" },
  answered: {
    mark: "◑",
    says: "its platform names are answered correctly; its custom host does not point here yet",
  },
  unready: { mark: "▽", says: "its names resolve, and requests fail: see the conditions Ready and ResolvedRefs" },
  scheduled: { mark: "◐", says: "assigned to a shard; DNS answers not verified yet" },
  unverified: { mark: "△", says: "DNS answers are not, or no longer, verified" },
  pending: { mark: "◌", says: "not assigned to a shard yet" },
  refused: { mark: "✕", says: "it cannot have its host" },
  down: { mark: "▼", says: "an outage: its name does not resolve to an active address" },
};

export function routeState(name, reason) {
  const { mark, says } = STATES[name] ?? { mark: "?", says: "" };
  return h(
    "span.pill",
    { class: `is-${name}`, title: reason ? `${says} (${reason})` : says },
    h("span", { "aria-hidden": "true" }, mark),
    ` ${name}`,
  );
}

/** The shapes of badges, by their kind. */
export const MARKS = { bad: "✕", warn: "△", note: "◐", good: "●" };
/** The kinds of badges, the worst first. */
export const KINDS = Object.keys(MARKS);
/** The kinds of the badges of instances, by their state. */
export const INSTANCE_KINDS = { serving: "good", leaving: "note", expired: "bad" };

/** A badge of a kind. */
export const badge = (kind, text, title) =>
  h(
    "span.pill",
    { class: `is-${kind}`, title },
    h("span", { "aria-hidden": "true" }, MARKS[kind] ?? "○"),
    ` ${text}`,
  );

/** A bar of counts by state, with its legend as text; `source` returns the source of the count of a state, for its title. */
export function routeStates(counts, link, source = () => null) {
  const all = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const known = Object.keys(STATES).filter((name) => counts[name]);
  let x = 0;
  const parts = known.map((name) => {
    const width = (counts[name] / all) * 100;
    x += width;
    return h("rect", { x: x - width, width: Math.max(width - 0.3, 0.3), height: 6, class: `fill-${name}` });
  });
  const words = known.map((name) =>
    h("a.quiet", { href: link(name) }, routeState(name), " ", h("span", { title: source(name) }, count(counts[name]))),
  );
  return h(
    "div.states",
    null,
    h("svg.bar", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" }, parts),
    h("div.row", null, words.length ? words : "no routes"),
  );
}

/** A number with its source as the title: its name in /metrics, or the field of the API. */
export const figure = (value, source) =>
  source && source.startsWith("signpost")
    ? h("a.quiet.figure", { href: "/metrics", title: source }, value)
    : h("span.figure", { title: source || "counted from the API" }, value);

const copyable = (text, label) =>
  h("button.copy", { type: "button", "data-action": "copy", "data-text": text, "aria-label": `Copy ${label}` }, "copy");
/** Text that is meant to be pasted elsewhere. */
export const code = (text, label = text) => h("span.code", null, h("code", null, text), copyable(text, label));

/** Commands of several lines that are meant to be pasted into a terminal. */
export const commands = (text, label) => h("div.commands", null, h("pre", null, h("code", null, text)), copyable(text, label));

/** What makes a first Router. */
export const FIRST_ROUTER = `kubectl apply -f - <<'EOF'
apiVersion: signpost.dev/v1alpha1
kind: Router
metadata: {name: shard1}
spec: {addresses: [{ip: 192.0.2.1}]}
EOF`;
/** What makes a first Route. */
export const firstRoute = (namespace) => `kubectl apply -f - <<'EOF'
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: hello, namespace: ${namespace}}
spec: {to: {name: web}}
EOF`;

/** Where an object is in the API, and the command that shows it. */
export const origin = (path, command) =>
  h("div.origin", null, h("span", null, "API ", h("a", { href: shownAt(path) }, h("code", null, path))), code(command));

/** A query string of the parameters that are set. */
export const queried = (wanted) => new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));

export const link = {
  route: (namespace, name) => `#/namespaces/${encodeURIComponent(namespace)}/routes/${encodeURIComponent(name)}`,
  namespace: (name) => `#/namespaces/${encodeURIComponent(name)}`,
  router: (name) => `#/routers/${encodeURIComponent(name)}`,
  zone: (apex, wanted = {}) => {
    const query = queried(wanted);
    return `#/zones/${encodeURIComponent(apex)}${query.size ? `?${query}` : ""}`;
  },
  events: (wanted) => `#/events?${queried(wanted)}`,
  routes: (wanted) => `#/routes?${queried(wanted)}`,
  topology: (wanted) => `#/topology?${queried(wanted)}`,
};

/** The condition of an object with this type; undefined if it has none. */
export const condition = (object, type) => object?.status?.conditions?.find((one) => one.type === type);

/** Conditions that report a problem when they are true. */
const UNWANTED = new Set(["MovePending", "SelectorMismatch", "Held"]);

/** Conditions as a list of steps, whichever there are: the known ones in their order, then all others. */
export function conditions(all, order = []) {
  const at = (one) => (order.includes(one.type) ? order.indexOf(one.type) : order.length);
  const sorted = [...(all ?? [])].sort((one, other) => at(one) - at(other));
  const missing = order.filter((type) => !sorted.some((one) => one.type === type));
  const kind = ({ type, status }) =>
    type === "Drained" && status === "False"
      ? "warn"
      : ((UNWANTED.has(type) ? { True: "warn", False: "good" } : { True: "good", False: "bad" })[status] ?? "warn");
  const word = (status) => ({ True: "yes", False: "no" })[status] ?? "unknown";
  return h(
    "ol.steps",
    null,
    sorted.map((one) =>
      h(
        "li",
        { class: `is-${kind(one)}`, "data-key": one.type },
        h(
          "div.row",
          null,
          h("strong", null, one.type),
          badge(kind(one), word(one.status)),
          h("span.dim", null, one.reason),
          h("span.dim", null, time(one.lastTransitionTime)),
        ),
        one.message && h("p", null, one.message),
      ),
    ),
    missing.map((type) =>
      h(
        "li.is-none",
        { "data-key": type },
        h("div.row", null, h("strong", null, type), h("span.dim", null, "not reported yet")),
      ),
    ),
  );
}

export const empty = (title, ...more) => h("div.empty", null, h("strong", null, title), h("p", null, more));

/** Name and value pairs. */
export const facts = (pairs) =>
  h(
    "dl.facts",
    null,
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
      .map(([name, value]) => h("div", { "data-key": name }, h("dt", null, name), h("dd", null, value))),
  );

export const section = (title, ...content) => h("section.card", { "data-key": title }, h("h2", null, title), content);

/** The addresses in use. */
function addressesInUse({ spec, status }) {
  const managed = (spec.type ?? "external") !== "external";
  const own = spec.addresses ?? [];
  return spec.addressesFrom || (managed && own.length === 0) ? (status?.currentAddresses ?? []) : own;
}

/** The number of serving and of expected instances of a Router, as text; `null`: it has none. */
export function instancesWord({ spec, status }) {
  const serving = status?.readyInstances;
  if (serving === undefined || serving === null) return null;
  const wanted = spec.instances ?? ((spec.type ?? "external") !== "external" ? 1 : status.instances?.length);
  return [wanted <= serving ? "good" : serving > 0 ? "warn" : "bad", `${serving} of ${wanted} instances serve`];
}

/** The state of the instances at an address of the spec, the best one of several; none: undefined. */
function listedInstance(router, ip) {
  if (addressesInUse(router) !== router.spec.addresses) return undefined;
  const states = (router.status?.instances ?? []).filter((one) => one.ip === ip).map((one) => one.state);
  return ["serving", "leaving", "expired"].find((state) => states.includes(state));
}

/** Addresses of a Router, each with its configured state, the results of probes, and the state of its instance. */
export function addressStates(router) {
  const reported = new Map((router.status?.addresses ?? []).map((one) => [one.ip, one]));
  return addressesInUse(router).map((address) => {
    const { health, error: probed } = reported.get(address.ip) ?? {};
    const dead = listedInstance(router, address.ip) === "expired";
    const error = dead ? "its instance is dead: the Lease was not renewed" : probed;
    const drained = address.state === "drained";
    const down = !drained && (dead || health === "unhealthy");
    const [kind, word] = drained
      ? ["note", "drained"]
      : down
        ? ["bad", "down"]
        : ["good", health === "healthy" ? "up" : "active"];
    const probes = { healthy: "healthy", unhealthy: "unhealthy", unknown: "no result yet" };
    return { ...address, kind, word, drained, down, message: error ?? probes[health] ?? "none" };
  });
}

/** Whether too few addresses are healthy, so that answers contain all of them (panic threshold). */
export function panics(router) {
  const active = addressStates(router).filter((address) => !address.drained);
  const healthy = active.filter((address) => !address.down).length;
  const threshold = router.status?.panicThreshold;
  return threshold !== undefined && healthy < active.length && healthy * 100 < threshold * active.length;
}

/** The state of a Router, as a kind of badge and a word. */
export function routerState(router) {
  const state = router.spec.state ?? "active";
  const ready = condition(router, "Ready");
  const active = addressStates(router).filter((address) => !address.drained);
  if (active.length === 0) return ["bad", "no active address"];
  if (ready?.status === "False") return ["bad", ready.reason || "not ready"];
  if (active.length > 0 && active.every((address) => address.down)) return ["bad", "all down"];
  return state === "active" ? ["good", "active"] : ["warn", state];
}
