// The page: the session, the current view, and live updates. Views are modules with `load` (queries the server),
// `render` (pure, from the loaded data), `concerns` (whether a change affects the displayed data) and `title`.

import { h, show } from "./dom.js";
import {
  Failure,
  Live,
  forgetPlatform,
  model,
  providers,
  session,
  signIn,
  signInAddress,
  signOut,
} from "./data.js";
import * as help from "./help.js";
import { asOf, empty, link, queried } from "./words.js";
import * as overview from "./overview.js";
import * as topology from "./topology.js";
import * as routes from "./routes.js";
import * as route from "./route.js";
import * as shards from "./shards.js";
import * as router from "./router.js";
import * as zones from "./zones.js";
import * as zone from "./zone.js";
import * as sources from "./sources.js";
import * as events from "./events.js";
import * as fleet from "./fleet.js";

const top = document.getElementById("top");
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const announcement = document.getElementById("announcement");

/** The minimum time between two loads of the same view because of changes, in milliseconds. */
const PACE = 1000;
/** The interval at which the age of stale data is updated, in milliseconds. */
const AGES = 5000;
/** The maximum age of the data of a view, in milliseconds: ages grow, and new events are not announced. */
const IDLE = 30_000;
/** Where the session storage keeps the place to return to from an identity provider. */
const PLACE = "signpost-place";
/** The interval at which views with their own maximum age (`every`) are checked, in milliseconds. */
const CHECKS = 500;

/** The context of all views. */
const context = { user: null, rights: null, samples: null, state: null, stale: null };
let current = { view: null, place: null, data: null, at: 0 };
let request = null;
let loading = false;
let pending = 0;
let offline = null;
let walked = false;

// --- places ---
const VIEWS = [
  [/^\/$/, overview],
  [/^\/topology$/, topology],
  [/^\/routes$/, routes.all],
  [/^\/namespaces\/([^/]+)$/, routes.one, "namespace"],
  [/^\/namespaces\/([^/]+)\/routes\/([^/]+)$/, route, "namespace", "name"],
  [/^\/routers$/, shards],
  [/^\/routers\/([^/]+)$/, router, "name"],
  [/^\/zones$/, zones],
  [/^\/zones\/([^/]+)$/, zone, "apex"],
  [/^\/sources$/, sources],
  [/^\/events$/, events],
  [/^\/fleet$/, fleet],
];

function place() {
  const [path, search = ""] = (location.hash.slice(1) || "/").split("?");
  for (const [pattern, view, ...names] of VIEWS) {
    const match = pattern.exec(path);
    if (!match) continue;
    try {
      const parts = Object.fromEntries(names.map((name, at) => [name, decodeURIComponent(match[at + 1])]));
      return { path, view, place: { ...parts, query: Object.fromEntries(new URLSearchParams(search)) } };
    } catch {
      break;
    }
  }
  return { path, view: null, place: {} };
}

/** The first page of users without access to the platform page: their namespace, if they have exactly one. */
function home() {
  const { all, namespaces } = context.rights;
  if (all) return null;
  return namespaces.length === 1 ? link.namespace(namespaces[0]) : "#/routes";
}

async function go({ moved }) {
  if (!context.user) return;
  const { path, view, place: next } = place();
  if (path === "/" && home()) return location.replace(home());
  const same = current.view === view && current.path === path;
  if (moved && !same) {
    current = { view, place: next, path, data: null, at: 0, fresh: true };
    show(main, h("p.dim.loading", null, "Loading…"));
    window.scrollTo(0, 0);
  }
  current.place = next;
  navigation(path);
  if (!view) return show(main, empty("Page not found.", h("a", { href: "#/" }, "Go to the start page.")));
  document.title = `${view.title(next)} · Signpost`;
  request?.abort();
  const mine = new AbortController();
  request = mine;
  loading = true;
  try {
    const data = await view.load(next, context, mine.signal);
    if (request !== mine) return;
    const { fresh } = current;
    current = { view, place: next, path, data, at: Date.now() };
    reachable();
    mark();
    draw();
    if (fresh) {
      // After a load of the page, the focus is at its top; after a move within the page, at the new content.
      if (walked) main.focus({ preventScroll: true });
      walked = true;
      announcement.textContent = view.title(next);
    }
  } catch (failure) {
    if (failure.name === "AbortError" || request !== mine) return;
    failed(failure);
  } finally {
    if (request === mine) loading = false;
  }
}

function draw() {
  if (!current.data) return;
  show(main, current.view.render(current.data, current.place, context));
  current.view.drawn?.(main, current.data, current.place);
}

/** Reports a failure. Earlier data stays on the page. */
function failed(failure) {
  if (!(failure instanceof Failure)) throw failure;
  if (failure.signedOut)
    return welcome(failure.reason === "SignedOut" ? "" : `You were signed out: ${failure.message}.`);
  if (["ApiAway", "Offline", "Starting"].includes(failure.reason) || failure.status >= 500) {
    unreachable(
      failure.reason === "Offline" ? "The server is unreachable." : `The API is unavailable: ${failure.message}.`,
    );
    if (!current.data) show(main, empty("No data yet.", sentence(failure.message)));
    clearTimeout(pending);
    pending = setTimeout(() => {
      pending = 0;
      go({ moved: false });
    }, 3000);
    return;
  }
  reachable();
  const missing = " It may have been deleted, or it does not exist yet. This page shows it as soon as it exists.";
  const forbidden = "You do not have permission to view this page.";
  const title = failure.missing ? "Not found." : failure.forbidden ? forbidden : "This page cannot be displayed.";
  show(main, empty(title, sentence(failure.message), failure.missing && missing));
  Object.assign(current, { data: null, at: Date.now() });
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;

// --- marks of stale data ---
/** Marks the data as stale for this reason; without one, as current. */
function unreachable(what) {
  offline = what;
  mark();
}

const reachable = () => unreachable(null);

/** Marks stale data, and shows its age. */
function mark() {
  const { state } = context;
  const unheard = state && !state.connected;
  const why = offline ?? (unheard ? `${["No connection to the API", state.error].filter(Boolean).join(": ")}.` : null);
  const was = context.stale;
  context.stale = why && context.user ? { at: current.at, why } : null;
  main.classList.toggle("is-stale", Boolean(context.stale));
  const shown = why && current.at ? ` The data is as of ${asOf(current.at)}.` : "";
  show(
    banner,
    why &&
      h("div.banner.is-bad", null, h("span", { "aria-hidden": "true" }, "✕ "), `${why} Reconnecting…${shown}`),
  );
  if (Boolean(was) !== Boolean(context.stale)) draw();
}
setInterval(() => {
  if (!context.stale) return;
  mark();
  draw();
}, AGES);

// Not all changes are announced: such views have a maximum age of their data.
setInterval(() => {
  const { view, at } = current;
  const isDue = view?.every && at && Date.now() - at > view.every;
  // A load that takes long is not started again.
  if (isDue && context.user && !loading && !offline && !document.hidden) soon();
}, CHECKS);

// --- live updates ---
const live = new Live({
  up() {
    if (offline) go({ moved: false });
    if (context.rights?.zones) samples();
  },
  down() {
    unreachable("Connection lost.");
    recognized();
  },
  ended: (reason) =>
    reason === "TooManyStreams" ? unreachable("Too many open pages. Live updates are paused on this page.") : enter(),
  news({ changed, sample, state }) {
    if (sample) take(sample);
    if (state) {
      context.state = state;
      mark();
    }
    const concerned = changed && current.view?.concerns(changed, current.place);
    if (concerned || (current.data === null && changed) || Date.now() - current.at > IDLE) soon();
    else if ((sample && current.view?.moves) || state) draw();
  },
});

/** Reloads the view soon, at most once per `PACE`. */
function soon() {
  if (pending) return;
  pending = setTimeout(
    () => {
      pending = 0;
      go({ moved: false });
    },
    Math.max(0, current.at + PACE - Date.now()),
  );
}

async function samples() {
  try {
    const { at, columns, pointsMax } = await model("samples");
    context.samples = { at, pointsMax, columns: new Map(Object.entries(columns)) };
    draw();
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
  }
}

/** Adds the newest sample to the existing ones. */
function take({ at, columns }) {
  const known = context.samples;
  if (!known || known.at.at(-1) >= at) return;
  known.at.push(at);
  const old = known.at.length > known.pointsMax;
  if (old) known.at.shift();
  for (const name of Object.keys(columns))
    if (!known.columns.has(name)) known.columns.set(name, Array(known.at.length - 1).fill(null));
  for (const [name, values] of known.columns) {
    values.push(columns[name] ?? null);
    if (values.length > known.at.length) values.shift();
  }
}

// --- who is signed in ---
/** Checks the session. A server that restarted has no earlier sessions, and would reject the stream forever. */
async function recognized() {
  try {
    const { user } = await session();
    if (!user && context.user)
      welcome("You were signed out: the server restarted or ended your session. Sign in to return to this page.");
  } catch (failure) {
    // The server is not available yet. If the next stream fails as well, this check runs again.
    if (!(failure instanceof Failure)) throw failure;
  }
}

async function enter() {
  try {
    const who = await session();
    if (!who.user) return welcome(context.user ? "You were signed out." : "");
    forgetPlatform();
    Object.assign(context, { user: who.user, rights: who.rights, samples: null, state: null });
    reachable();
    go({ moved: true });
    live.start();
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    if (failure.signedOut) return welcome("");
    unreachable(failure.message);
    setTimeout(enter, 3000);
  }
}

/**
 * Starts the page. A link that `signpost dashboard` printed has the code of a session in its fragment. An identity
 * provider sends the browser to `callback`, with a code in the query.
 */
async function start() {
  const code = /^#sign-in=(.+)$/.exec(location.hash)?.[1];
  const redirect = location.pathname.endsWith("/callback") && location.search.slice(1);
  if (!code && !redirect) return enter();
  // The address with a code does not stay in the history.
  history.replaceState(null, "", redirect ? `./${sessionStorage.getItem(PLACE) || "#/"}` : "#/");
  try {
    await signIn(redirect ? { redirect } : { code });
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    await session().catch(() => null);
    return welcome(sentence(failure.message));
  }
  enter();
}

/** Leaves for the identity provider of a button. */
async function leave(button) {
  const problem = document.getElementById("problem");
  button.disabled = true;
  problem.textContent = "";
  try {
    const address = await signInAddress(Number(button.dataset.provider));
    sessionStorage.setItem(PLACE, location.hash);
    location.assign(address);
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    problem.textContent = sentence(failure.message);
    button.disabled = false;
  }
}

function welcome(why) {
  live.stop();
  request?.abort();
  walked = true;
  Object.assign(context, { user: null, rights: null, samples: null, state: null });
  current = { view: null, place: null, data: null, at: 0 };
  reachable();
  navigation(null);
  document.title = "Sign in · Signpost";
  // A token is safe over loopback and HTTPS, which browsers call a secure context.
  const form = window.isSecureContext
    ? h(
        "form",
        { "data-action": "sign-in", autocomplete: "off" },
        h("label", { for: "token" }, "Token"),
        h("input", {
          id: "token",
          name: "token",
          type: "password",
          required: true,
          autocomplete: "off",
          spellcheck: "false",
          "aria-describedby": "token-help",
        }),
        h(
          "p.dim",
          { id: "token-help" },
          "Use the same token as with kubectl. To sign in with your kubeconfig instead, run ",
          h("code", null, "signpost dashboard"),
          "; to create a token for another user, run ",
          h("code", null, "signpost user add"),
          ".",
        ),
        h(
          "details",
          null,
          h("summary", null, "My groups contain no namespace"),
          h("label", { for: "namespace" }, "Namespace"),
          h("input", { id: "namespace", name: "namespace", autocomplete: "off", spellcheck: "false" }),
          h("p.dim", null, "For platforms whose API is a Kubernetes cluster with its own roles."),
        ),
        h("button.primary", { type: "submit" }, providers.length ? "Sign in with the token" : "Sign in"),
      )
    : h(
        "p.problem",
        null,
        "This page was loaded over plain HTTP from another machine, which exposes a token to the network. Turn on TLS (",
        h("code", null, "--admin-tls true"),
        "), or run ",
        h("code", null, "ssh -L 9453:127.0.0.1:9453 HOST"),
        " and open http://127.0.0.1:9453/dashboard/.",
      );
  show(
    main,
    h(
      "div.welcome",
      null,
      h("h1", null, "Signpost"),
      h("p", null, "The dashboard is read-only. It shows the objects that you can read with the API."),
      h("p.problem", { id: "problem", role: "alert" }, why),
      window.isSecureContext &&
        providers.map((name, at) =>
          h(
            "button.primary.provider",
            { type: "button", "data-action": "provider", "data-provider": at },
            `Sign in with ${name}`,
          ),
        ),
      form,
    ),
  );
  (main.querySelector("[data-action=provider]") ?? document.getElementById("token"))?.focus();
}

async function submit(form) {
  const button = form.querySelector("button");
  const problem = document.getElementById("problem");
  button.disabled = true;
  problem.textContent = "";
  try {
    await signIn({ token: form.elements.token.value, namespace: form.elements.namespace.value });
    form.elements.token.value = "";
    await enter();
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    problem.textContent = failure.signedOut ? "The API rejected this token." : sentence(failure.message);
    form.elements.token.focus();
  } finally {
    button.disabled = false;
  }
}

// --- the head of the page ---
function navigation(path) {
  const brand = h(
    "a.brand",
    { href: "#/" },
    h("img", { src: "assets/icon.svg", alt: "", width: 24, height: 24 }),
    "Signpost",
  );
  if (!context.user) return show(top, h("div.inner", null, brand, h("div.settings", null, themes())));
  const { all, namespaces } = context.rights;
  const item = (href, text, here) => h("a", { href, "aria-current": here ? "page" : null }, text);
  const isBelow = (part) => path === part || path?.startsWith(`${part}/`);
  show(
    top,
    h(
      "div.inner",
      null,
      h("button.skip", { type: "button", "data-action": "skip" }, "Skip to content"),
      brand,
      h(
        "nav",
        { "aria-label": "Dashboard" },
        help
          .pages(context.rights)
          .map(([, href, title]) =>
            item(href, title, isBelow(href.slice(1)) || (href === "#/routes" && all && isBelow("/namespaces"))),
          ),
        !all &&
          namespaces.slice(0, 6).map((name) => item(link.namespace(name), name, isBelow(link.namespace(name).slice(1)))),
      ),
      h(
        "div.who",
        null,
        themes(),
        h("button", { type: "button", "data-action": "help", "aria-label": "Keyboard help", title: "Keyboard (?)" }, "?"),
        h("span.dim", { title: "Read-only" }, context.user),
        h("button", { type: "button", "data-action": "sign-out" }, "Sign out"),
      ),
    ),
  );
}

function themes() {
  const option = (value) => h("option", { value, selected: window.signpostTheme.get() === value }, value);
  return h(
    "select.theme",
    { "data-action": "theme", "aria-label": "Theme", title: "Theme", autocomplete: "off" },
    ["system", "light", "dark"].map(option),
  );
}

// --- what people do ---
document.addEventListener("submit", (event) => {
  if (event.target.dataset.action !== "sign-in") return;
  event.preventDefault();
  submit(event.target);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-action]");
  switch (button?.dataset.action) {
    case "skip":
      return main.focus();
    case "help":
      return help.open(context.rights);
    case "close-help":
      return help.close();
    case "provider":
      return leave(button);
    case "sort":
      return narrow({ sort: button.dataset.sort });
    case "sign-out":
      await signOut().catch(() => null);
      return welcome("");
    case "copy":
      try {
        await navigator.clipboard.writeText(button.dataset.text);
        button.textContent = "copied";
        announcement.textContent = "copied";
      } catch {
        button.textContent = "copy failed";
      }
      setTimeout(() => (button.textContent = "copy"), 1500);
  }
});

/** Changes the query of the address, and loads the first page of the list. */
function narrow(change) {
  const { path } = place();
  const search = queried({ ...current.place.query, ...change, offset: "" });
  history.replaceState(null, "", `#${path}${search.size ? `?${search}` : ""}`);
  go({ moved: true });
}

let typing = 0;
document.addEventListener("input", (event) => {
  const { action, name } = event.target.dataset;
  if (action === "theme") window.signpostTheme.set(event.target.value);
  if (action !== "filter") return;
  clearTimeout(typing);
  typing = setTimeout(() => narrow({ [name]: event.target.value }), 150);
});

document.addEventListener("keydown", (event) => {
  const typingText = event.target.matches?.("input, textarea, select");
  if (!typingText && help.pressed(event, context.rights)) return event.preventDefault();
  if (event.key === "/" && !typingText && !event.ctrlKey && !event.metaKey) {
    const filter = document.getElementById("filter");
    if (filter && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      filter.focus();
    }
  }
  if (event.key === "Escape" && event.target.id === "filter") main.focus();
});

for (const kind of ["pointerover", "focusin"])
  main.addEventListener(kind, (event) => current.view?.pointed?.(main, event.target));
main.addEventListener("pointerleave", () => current.view?.pointed?.(main, null));
new ResizeObserver(() => current.data && current.view?.drawn?.(main, current.data, current.place)).observe(main);
window.addEventListener("hashchange", () => (location.hash.startsWith("#sign-in=") ? start() : go({ moved: true })));

start();
