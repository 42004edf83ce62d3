// The keyboard: its shortcuts, and the dialog that lists them. The dialog is modal, so that the browser keeps the focus inside,
// closes it with Escape, and returns the focus.

import { h, show } from "./dom.js";

/** The pages after `g`, by key; each is shown to users with that permission. */
const PAGES = [
  ["p", "#/", "Platform", ({ all }) => all],
  ["t", "#/topology", "Topology", () => true],
  ["r", "#/routes", "Routes", () => true],
  ["s", "#/routers", "Shards", ({ routers }) => routers],
  ["z", "#/zones", "Zones", ({ zones }) => zones],
  ["o", "#/sources", "Sources", ({ zones }) => zones],
  ["e", "#/events", "Events", ({ events, eventNamespaces }) => events || eventNamespaces?.length > 0],
  ["f", "#/fleet", "Fleet", ({ zones }) => zones],
];
/** The time for the second key of a shortcut, in milliseconds. */
const SECOND_KEY = 1500;

/** The pages that these permissions show: `[key, address, title]`. */
export const pages = (rights) => PAGES.filter(([, , , isShown]) => isShown(rights));

const dialog = document.getElementById("help");
let before = null;
let went = -Infinity;

/** Opens the help; `rights` is null before the sign-in. */
export function open(rights) {
  if (dialog.open) return;
  const keys = (keys, text) =>
    h("div", null, h("dt", null, keys.map((key, at) => [at > 0 && " then ", h("kbd", null, key)])), h("dd", null, text));
  show(
    dialog,
    h(
      "div.title",
      null,
      h("h2", { id: "help-title" }, "Keyboard"),
      h("button", { type: "button", "data-action": "close-help", autofocus: true }, "Close"),
    ),
    h(
      "dl.keys",
      null,
      keys(["?"], "Open this help"),
      keys(["Esc"], "Close this help, or leave the search"),
      keys(["/"], "Focus the search of the page"),
      keys(["Tab"], "Move the focus; the first stop skips the header"),
      keys(["Enter"], "Open the focused link; on a column header, sort by it"),
      rights && pages(rights).map(([key, , name]) => keys(["g", key], `Open ${name}`)),
    ),
  );
  before = document.activeElement;
  dialog.showModal();
}

export const close = () => dialog.close();

dialog.addEventListener("close", () => {
  // Redrawn pages can have lost the element that had the focus.
  if (before?.isConnected && before !== document.body) before.focus();
  else document.getElementById("main").focus({ preventScroll: true });
  before = null;
});
// A click on the backdrop hits the dialog itself.
dialog.addEventListener("click", (event) => event.target === dialog && close());

/** Handles a key outside of text fields; returns whether it was a shortcut. */
export function pressed(event, rights) {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return false;
  if (event.key === "?") {
    open(rights);
    return true;
  }
  if (event.key === "g") {
    went = performance.now();
    return false;
  }
  const isSecond = performance.now() - went < SECOND_KEY;
  went = -Infinity;
  const page = isSecond && rights && pages(rights).find(([key]) => key === event.key);
  if (page) location.hash = page[1];
  return Boolean(page);
}
