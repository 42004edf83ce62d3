// The Events that the user may list, the newest first, with filters.

import { h } from "./dom.js";
import { model } from "./data.js";
import { heads, pager } from "./table.js";
import { badge, code, count, empty, figure, link, plural, time } from "./words.js";

export const title = () => "Events";
/** No stream announces Events; the server answers from memory. */
export const every = 2000;
export const concerns = () => false;

const PAGE = 100;

export async function load({ query }, _, signal) {
  const { q, namespace, kind, name, type, reason, offset } = query;
  return { page: await model("events", { q, namespace, kind, name, type, reason, offset, limit: PAGE }, signal) };
}

export function render({ page }, { query }, { rights }) {
  const here = (change) => link.events({ ...query, ...change });
  return [
    h(
      "div.title",
      null,
      h("h1", null, "Events"),
      h(
        "span.row.dim",
        null,
        figure(plural(page.all, "event"), "Events of the API"),
        h("a", { href: here({ type: "Warning", offset: "" }) }, plural(page.warnings, "Warning")),
        h("span", null, "updated every 2 s"),
      ),
    ),
    filters(page, query, here),
    page.items.length
      ? [list(page), pager(page, PAGE, here, (first, last) => `${count(first)}–${count(last)} of ${plural(page.total, "event")}`)]
      : isFiltered(query)
        ? empty("No matching Events.", "Shorten the search, or remove a filter.")
        : empty("No Events.", "Events expire an hour after their last occurrence."),
    h("footer", null, h("div.origin", null, command(query, rights).map((text) => code(text)))),
  ];
}

const isFiltered = ({ q, namespace, kind, name, type, reason }) => Boolean(q || namespace || kind || name || type || reason);

/** The matching kubectl commands. */
function command({ namespace, kind, name, type }, { events, eventNamespaces }) {
  const scopes = namespace ? [`-n ${namespace}`] : events ? ["-A"] : eventNamespaces.map((one) => `-n ${one}`);
  const about = kind && name ? ` --for ${kind.toLowerCase()}/${name}` : "";
  return scopes.map((scope) => `kubectl events ${scope}${about}${type ? ` --types=${type}` : ""}`);
}

function filters(page, query, here) {
  const chip = (type, text) =>
    h("a.chip", { href: here({ type, offset: "" }), "aria-current": (query.type ?? "") === type ? "true" : null }, text);
  const select = (name, label, choices) =>
    h(
      "label",
      { "data-key": name },
      `${label} `,
      h(
        "select",
        { "data-action": "filter", "data-name": name, id: `filter-${name}`, autocomplete: "off" },
        h("option", { value: "", selected: !query[name], "data-key": "all" }, "all"),
        // A value without Events stays selectable while it is the filter.
        [...(query[name] && !choices.some(([value]) => value === query[name]) ? [[query[name], 0]] : []), ...choices].map(
          ([value, number]) =>
            h("option", { value, selected: query[name] === value, "data-key": `=${value}` }, `${value} (${count(number)})`),
        ),
      ),
    );
  return h(
    "div.row.filters",
    null,
    h("input", {
      type: "search",
      id: "filter",
      "data-action": "filter",
      "data-name": "q",
      value: query.q ?? "",
      placeholder: "Reason, message, or object",
      "aria-label": "Search events",
      autocomplete: "off",
      spellcheck: "false",
    }),
    h(
      "span.row",
      { role: "group", "aria-label": "Type" },
      chip("", "all"),
      chip("Normal", "Normal"),
      chip("Warning", "Warning"),
    ),
    select("namespace", "Namespace", page.namespaces),
    select("kind", "Kind", page.kinds),
    select("reason", "Reason", page.reasons),
    query.name &&
      h("a.chip", { href: here({ name: "", offset: "" }), "aria-current": "true" }, `object ${query.name} ✕`),
  );
}

/** A link to the object of an Event, if there is a page for its kind. */
function about({ kind, namespace, name }) {
  const text = namespace ? `${namespace}/${name}` : name;
  const href = { Route: link.route(namespace, name), Router: link.router(name), Namespace: link.namespace(name), Zone: link.zone(name) };
  return [h("span.dim", null, `${kind} `), href[kind] ? h("a", { href: href[kind] }, text) : text];
}

const COLUMNS = [
  { label: "Last seen" },
  { label: "Type" },
  { label: "Reason" },
  { label: "Object" },
  { label: "Message" },
  { label: "Count", number: true },
  { label: "Reported by" },
];

function list(page) {
  return h(
    "div.scroll",
    null,
    h(
      "table.list.events",
      null,
      h("thead", null, heads(COLUMNS)),
      h(
        "tbody",
        null,
        page.items.map((one) =>
          h(
            "tr",
            { "data-key": one.key },
            h("td.dim", null, time(one.at)),
            h("td", null, badge(one.type === "Warning" ? "warn" : "good", one.type)),
            h("td", null, one.reason),
            h("td", null, about(one)),
            h("td.note", null, one.note),
            h("td.number", null, figure(count(one.count), "series.count of the Event")),
            h("td.dim", null, one.reporter),
          ),
        ),
      ),
    ),
  );
}
