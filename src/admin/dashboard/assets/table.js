// Lists: their search and filters, tables with columns by which they can be sorted, and links to their pages. The order is in the
// address of the page: `sort=age`, or `sort=-age` for the descending order.

import { h } from "./dom.js";
import { count, figure, plural } from "./words.js";

const collator = new Intl.Collator("en", { numeric: true });

/** The search of a list, which filters as one types. */
export const searchField = (query, placeholder, label) =>
  h("input", {
    type: "search",
    id: "filter",
    "data-action": "filter",
    "data-name": "q",
    value: query.q ?? "",
    placeholder,
    "aria-label": label,
    autocomplete: "off",
    spellcheck: "false",
  });

/** Links that select the value of a filter: one for all, and one for each `[value, text]` of `choices`. */
export const chips = (label, name, choices, query, here) =>
  h(
    "span.row",
    { role: "group", "aria-label": label },
    [["", "all"], ...choices].map(([value, text]) =>
      h(
        "a.chip",
        {
          href: here({ [name]: value, offset: "" }),
          "aria-current": (query[name] ?? "") === value ? "true" : null,
          "data-key": value || "all",
        },
        text,
      ),
    ),
  );

/** A link that removes a filter, if the filter is set. */
export const removableChip = (name, text, query, here) =>
  query[name] &&
  h("a.chip", { href: here({ [name]: "", offset: "" }), "aria-current": "true" }, `${text} ${query[name]} ✕`);

/** The direction of a column in this order: `ascending`, `descending`, or null. */
const direction = (key, sort) => (sort === key ? "ascending" : sort === `-${key}` ? "descending" : null);

/** The header of a column. A column without a key cannot be sorted. */
function head({ key, label, kind, title }, sort) {
  const order = key && direction(key, sort);
  return h(
    kind === "number" ? "th.number" : "th",
    { scope: "col", "data-key": key ?? label, "aria-sort": order, title },
    key
      ? h(
          "button.sort",
          { type: "button", "data-action": "sort", "data-sort": order === "ascending" ? `-${key}` : key },
          label,
          h("span.mark", { "aria-hidden": "true" }, { ascending: " ▲", descending: " ▼" }[order] ?? ""),
        )
      : label,
  );
}

/** The rows in this order, by the `value` of the column; rows without a value come last. Pure. */
function sorted(rows, columns, sort) {
  const column = columns.find(({ key, value }) => key && value && direction(key, sort));
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  const isMissing = (value) => value === null || value === undefined || value === "";
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number" ? one - other : collator.compare(String(one), String(other));
  return rows
    .map((row) => [column.value(row), row])
    .sort(([one], [other]) => {
      if (isMissing(one) || isMissing(other)) return Number(isMissing(one)) - Number(isMissing(other));
      return sign * compare(one, other);
    })
    .map(([, row]) => row);
}

/**
 * A table of `columns`, each `{key, label, title, kind, cell, value}`: `cell(row)` is the contents, and `kind` a class of the cells.
 * A column with a key can be sorted, here by `value(row)`, or by the server. `fallback` is the order without `sort`; `keyOf(row)`
 * identifies a row.
 */
export function table(rows, columns, { sort, fallback, keyOf, classOf }) {
  const shown = columns.filter(Boolean);
  const order = sort || fallback;
  return h(
    "div.scroll",
    null,
    h(
      "table.list",
      null,
      h("thead", null, h("tr", null, shown.map((column) => head(column, order)))),
      h(
        "tbody",
        null,
        sorted(rows, shown, order).map((row) =>
          h(
            "tr",
            { "data-key": keyOf(row), class: classOf?.(row) },
            shown.map(({ kind, label, cell }) => h(kind ? `td.${kind}` : "td", { "data-label": label }, cell(row))),
          ),
        ),
      ),
    ),
  );
}

/** A column of the number `row[key]`: `text` formats it, and `source(row)` is its source. */
export const number = (key, label, text, source) => ({
  key,
  label,
  kind: "number",
  value: (row) => row[key],
  cell: (row) => figure(text(row[key]), source(row)),
});

/** Links to the pages of a list of `what`: `page` has `offset`, `items`, and `total`. */
export function pager(page, size, here, what) {
  const last = Math.min(page.offset + page.items.length, page.total);
  return h(
    "nav.row.spread",
    { "aria-label": `Pages of the list of ${what}s` },
    h("span.dim", null, `${count(page.offset + 1)}–${count(last)} of ${plural(page.total, what)}`),
    h(
      "span.row",
      null,
      page.offset > 0 && h("a", { href: here({ offset: Math.max(0, page.offset - size) || "" }) }, "← Previous"),
      last < page.total && h("a", { href: here({ offset: page.offset + size }) }, "Next →"),
    ),
  );
}
