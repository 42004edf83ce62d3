// The Events that the user may list, problems first and then the newest first, with filters.

import { h } from "./dom.js";
import { model } from "./data.js";
import { chips, pager, removableChip, searchField, table } from "./table.js";
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
      ? [list(page.items), pager(page, PAGE, here, "event")]
      : isFiltered(query)
        ? empty("No matching Events.", "Shorten the search, or remove a filter.")
        : empty("No Events.", "Events expire an hour after their last occurrence."),
    h("footer", null, h("div.origin", null, command(query, rights).map((text) => code(text)))),
  ];
}

const events = (items) => table(items, COLUMNS, { keyOf: (one) => one.key });

/** The Events of a page: problems, then the folded others. */
function list(items) {
  const problems = items.filter((one) => one.type === "Warning");
  const others = items.filter((one) => one.type !== "Warning");
  if (problems.length === 0 || others.length === 0) return events(items);
  return [
    events(problems),
    h("details", { "data-key": "normal" }, h("summary", null, plural(others.length, "normal Event")), events(others)),
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
    searchField(query, "Reason, message, or object", "Search events"),
    chips("Type", "type", [["Normal", "Normal"], ["Warning", "Warning"]], query, here),
    select("namespace", "Namespace", page.namespaces),
    select("kind", "Kind", page.kinds),
    select("reason", "Reason", page.reasons),
    removableChip("name", "object", query, here),
  );
}

/** A link to the object of an Event, if there is a page for its kind. */
function about({ kind, namespace, name }) {
  const text = namespace ? `${namespace}/${name}` : name;
  const href = { Route: link.route(namespace, name), Router: link.router(name), Namespace: link.namespace(name), Zone: link.zone(name) };
  return [h("span.dim", null, `${kind} `), href[kind] ? h("a", { href: href[kind] }, text) : text];
}

const COLUMNS = [
  { label: "Last seen", kind: "dim", cell: (one) => time(one.at) },
  { label: "Type", cell: (one) => badge(one.type === "Warning" ? "warn" : "good", one.type) },
  { label: "Reason", cell: (one) => one.reason },
  { label: "Object", cell: about },
  { label: "Message", kind: "note", cell: (one) => one.note },
  { label: "Count", kind: "number", cell: (one) => figure(count(one.count), "series.count of the Event") },
  { label: "Reported by", kind: "dim", cell: (one) => one.reporter },
];
