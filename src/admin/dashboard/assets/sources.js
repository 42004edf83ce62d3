// The sources: what the leader derives from the Gateways, Ingresses, and OpenShift routes of a source cluster.

import { h } from "./dom.js";
import { model } from "./data.js";
import { searchField, table } from "./table.js";
import { badge, code, count, empty, link, plural } from "./words.js";

export const title = () => "Sources";
export const every = 10_000;
export const concerns = (changed) => changed.routers || changed.routes;

export const load = ({ query }, _, signal) => model("sources", { q: query.q }, signal);

/** The name of an object, as in `HTTPRoute shop/web`. */
const nameOf = ({ kind, namespace, name }) => [kind, [namespace, name].filter(Boolean).join("/")].filter(Boolean).join(" ");

const mode = (row) =>
  row.mode === "show" ? badge("note", "shown", "The source has the mode show: nothing is published.") : badge("good", "published");
const shard = (row, name) => (row.mode === "show" ? name : h("a", { href: link.router(name) }, name));

/** The addresses of a shard, and the host names that have them. */
const targets = (row) => [...row.addresses, ...(row.hostNames ?? [])];

const SHARDS = [
  { key: "shard", label: "Shard", value: (row) => row.name, cell: (row) => shard(row, row.name) },
  { key: "zone", label: "Zone", kind: "mono", value: (row) => row.dns, cell: (row) => row.dns },
  {
    key: "addresses",
    label: "Addresses",
    kind: "mono",
    value: (row) => targets(row).join(" "),
    cell: (row) => (targets(row).length ? targets(row).map((text) => h("div", null, text)) : badge("bad", "none")),
  },
  { key: "source", label: "Source", value: (row) => nameOf(row.source), cell: (row) => nameOf(row.source) },
  { key: "mode", label: "Mode", value: (row) => row.mode, cell: mode },
];

const NAMES = [
  {
    key: "host",
    label: "Host",
    kind: "mono",
    value: (row) => row.host,
    cell: (row) =>
      row.mode === "show" ? row.host : h("a", { href: link.route(row.source.namespace, row.route) }, row.host),
  },
  { key: "shard", label: "Shard", value: (row) => row.shard, cell: (row) => shard(row, row.shard) },
  { key: "source", label: "Source", value: (row) => nameOf(row.source), cell: (row) => nameOf(row.source) },
  { key: "by", label: "Admitted by", value: (row) => row.admittedBy, cell: (row) => row.admittedBy },
  { key: "mode", label: "Mode", value: (row) => row.mode, cell: mode },
];

const NOTES = [
  { key: "object", label: "Object", value: (row) => nameOf(row.source), cell: (row) => nameOf(row.source) },
  { key: "reason", label: "Reason", value: (row) => row.reason, cell: (row) => badge("warn", row.reason) },
  { key: "message", label: "Message", value: (row) => row.message, cell: (row) => row.message },
];

/** A list under its heading. */
function section(heading, { total, items }, columns, query, fallback, keyOf) {
  if (!total) return null;
  const left = total - items.length;
  return h(
    "section.card",
    { "data-key": heading },
    h("h2", null, heading, " ", h("span.dim", null, count(total))),
    table(items, columns, { sort: query.sort, fallback, keyOf }),
    left > 0 && h("p.dim", null, `and ${plural(left, "more row")}; shorten the list with the search`),
  );
}

export function render({ shards, names, notes, reason }, { query }) {
  if (reason)
    return [
      h("div.title", null, h("h1", null, "Sources")),
      empty("This process has no report.", `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`),
    ];
  const isEmpty = !shards.total && !names.total && !notes.total;
  return [
    h(
      "div.title",
      null,
      h("h1", null, "Sources"),
      h("span.dim", null, `${plural(shards.total, "shard")}, ${plural(names.total, "name")}`),
    ),
    h("div.row.filters", null, searchField(query, "Host, shard, or object", "Search sources")),
    section("Shards", shards, SHARDS, query, "shard", (row) => row.name),
    section("Names", names, NAMES, query, "host", (row) => `${row.host} ${nameOf(row.source)}`),
    section("Notes", notes, NOTES, query, "object", (row) => `${nameOf(row.source)} ${row.reason} ${row.message}`),
    isEmpty && (query.q ? empty("No matching objects.", "Shorten the search.") : empty("The source cluster has no shards and names.")),
    h("footer", null, h("div.origin", null, code("signpost sources"))),
  ];
}
