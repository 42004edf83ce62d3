// The client of the server: requests with the session's cookie, and the stream of live updates.

/**
 * A failed request. `reason` is one word: the API's own, or `SignedOut`, `ApiAway`,
 * `Offline`.
 */
export class Failure extends Error {
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
  get signedOut() {
    return this.status === 401;
  }
  get missing() {
    return this.status === 404;
  }
  get forbidden() {
    return this.status === 403;
  }
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "Offline", "the server is unreachable");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new Failure(
    response.status,
    answer?.reason ?? "Failed",
    answer?.message ?? `the server returned status ${response.status}`,
  );
}

/** Where an object of the API is shown as JSON. */
export const shownAt = (path) => `api${path}`;

/** An object or list of the API. */
export const object = (path, signal) => request(shownAt(path), { signal });

/** The same; null if it does not exist or is not visible. */
export async function objectIfThere(path, signal) {
  try {
    return await object(path, signal);
  } catch (failure) {
    if (failure.missing || failure.forbidden) return null;
    throw failure;
  }
}

/** All items of a list, page by page, at most `most`. */
export async function items(path, signal, most = 2000) {
  const found = [];
  let token = "";
  do {
    const page = await object(`${path}?limit=500${token && `&continue=${encodeURIComponent(token)}`}`, signal);
    found.push(...page.items);
    token = page.metadata.continue ?? "";
  } while (token && found.length < most);
  return found;
}

/** The wait of a page that lost its stream to another page, in milliseconds. */
const CROWDED = 15_000;

/** The items of a kind; none if it is not served or not visible. */
export async function itemsIfThere(path, signal) {
  try {
    return await items(path, signal);
  } catch (failure) {
    if (failure.missing || failure.forbidden) return [];
    throw failure;
  }
}

/** Discards the cached Zone and serials of the platform. */
export function forgetPlatform() {
  platformName = null;
  serials.clear();
}

let platformName = null;

/** The Zone object with the settings of the platform; null if there is none, or the user cannot read it. */
export async function platform(signal) {
  if (platformName === null) {
    const parent = (await itemsIfThere(path.zones, signal)).find((zone) => zone.spec.platform);
    platformName = parent?.metadata.name ?? null;
    return parent ?? null;
  }
  const zone = await objectIfThere(path.zone(platformName), signal);
  if (!zone) platformName = null;
  return zone;
}

/** The time for which the serials on name servers are kept, in milliseconds: each request queries all name servers. */
const SERIALS_KEPT = 5000;
const serials = new Map();

/** The serial of a zone on each name server of the platform: `[{server, serial, error, seconds}]`; null if the query failed. */
export async function serialsOf(zone, parent, signal) {
  if (!parent?.spec.platform?.asked?.length) return [];
  const known = serials.get(zone);
  if (known && Date.now() - known.at < SERIALS_KEPT) return known.items;
  try {
    const { items } = await model("servers", { zone, platform: parent.metadata.name }, signal);
    if (serials.size > 64) serials.clear();
    serials.set(zone, { at: Date.now(), items });
    return items;
  } catch (failure) {
    if (!(failure instanceof Failure) || failure.signedOut) throw failure;
    return null;
  }
}

/** One of the dashboard's own read models. */
export function model(name, wanted = {}, signal) {
  const query = new URLSearchParams(
    Object.entries(wanted).filter(([, value]) => value !== "" && value !== undefined && value !== null),
  );
  return request(`data/${name}${query.size ? `?${query}` : ""}`, { signal });
}

/** The names of the identity providers at which users can sign in; known after the first `session`. */
export let providers = [];
export async function session() {
  const who = await request("session");
  providers = who.providers ?? providers;
  return who;
}

const post = (path, body) =>
  request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
/**
 * Signs in with `{token, namespace}`, with the `{code}` of a link that `signpost dashboard` printed, or with the
 * query with which an identity provider sent the browser back, `{redirect}`.
 */
export const signIn = (body) => post("session", body);
/** The address at which the user signs in at an identity provider, by its position in `providers`. */
export const signInAddress = async (provider) => (await post("login", { provider })).address;
export const signOut = () => request("session", { method: "DELETE" });

const OURS = "/apis/signpost.dev/v1alpha1";
const part = encodeURIComponent;
export const path = {
  routers: `${OURS}/routers`,
  router: (name) => `${OURS}/routers/${part(name)}`,
  zones: `${OURS}/zones`,
  zone: (apex) => `${OURS}/zones/${part(apex)}`,
  route: (namespace, name) => `${OURS}/namespaces/${part(namespace)}/routes/${part(name)}`,
  namespacedRoutes: (namespace) => `${OURS}/namespaces/${part(namespace)}/routes`,
  binding: (namespace, name) => `${OURS}/namespaces/${part(namespace)}/routebindings/${part(name)}`,
  namespace: (name) => `/api/v1/namespaces/${part(name)}`,
  events: (namespace) => `/apis/events.k8s.io/v1/namespaces/${part(namespace)}/events`,
  eventsOf: (namespace, kind, name) =>
    `/apis/events.k8s.io/v1/namespaces/${part(namespace)}/events?limit=200&fieldSelector=` +
    part(`regarding.kind=${kind},regarding.name=${name}`),
  deletionHolds: `${OURS}/deletionholds`,
  deletionHold: (name) => `${OURS}/deletionholds/${part(name)}`,
  leases: (namespace) => `/apis/coordination.k8s.io/v1/namespaces/${part(namespace)}/leases`,
  lease: "/apis/coordination.k8s.io/v1/namespaces/signpost-system/leases/signpost-scheduler",
};

/** The stream of live updates. It is closed while the page is hidden: browsers allow few connections to one server. */
export class Live {
  #source = null;
  #handlers;
  #retry = 0;
  #wanted = false;

  /** `handlers`: `news(message)`, `up()`, `down()`, `ended(reason)`. */
  constructor(handlers) {
    this.#handlers = handlers;
    document.addEventListener(
      "visibilitychange",
      () => this.#wanted && (document.hidden ? this.#close() : this.#open()),
    );
  }

  start() {
    this.#wanted = true;
    if (!document.hidden) this.#open();
  }

  stop() {
    this.#wanted = false;
    this.#close();
  }

  #close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    if (this.#source) return;
    const source = new EventSource("data/live");
    this.#source = source;
    source.addEventListener("open", () => this.#handlers.up());
    source.addEventListener("news", (event) => this.#handlers.news(JSON.parse(event.data)));
    source.addEventListener("end", (event) => {
      this.#close();
      const { reason } = JSON.parse(event.data);
      this.#handlers.ended(reason);
      // Other pages use all streams; closing one of them frees its stream.
      if (reason === "TooManyStreams" && this.#wanted) this.#retry = setTimeout(() => this.#open(), CROWDED);
    });
    source.addEventListener("error", () => {
      if (this.#source !== source) return;
      this.#close();
      this.#handlers.down();
      if (this.#wanted) this.#retry = setTimeout(() => this.#open(), 2000);
    });
  }
}
