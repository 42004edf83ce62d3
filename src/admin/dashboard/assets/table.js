// Tables with columns by which they can be sorted. The order is in the address of the page: `sort=age`, or `sort=-age` for the
// descending order.

import { h } from "./dom.js";

const collator = new Intl.Collator("en", { numeric: true });

/** The direction of a column in this order: `ascending`, `descending`, or null. */
const direction = (key, sort) => (sort === key ? "ascending" : sort === `-${key}` ? "descending" : null);

/**
 * The header row of `columns`, each `{key, label, number, title}`. A column without a key cannot be sorted. `fallback` is the
 * order without `sort`.
 */
export function heads(columns, sort, fallback) {
  const current = sort || fallback;
  return h(
    "tr",
    null,
    columns.filter(Boolean).map(({ key, label, number, title }) => {
      const sorted = key && direction(key, current);
      return h(
        number ? "th.number" : "th",
        { scope: "col", "data-key": key ?? label, "aria-sort": sorted, title },
        key
          ? h(
              "button.sort",
              { type: "button", "data-action": "sort", "data-sort": sorted === "ascending" ? `-${key}` : key },
              label,
              h("span.mark", { "aria-hidden": "true" }, { ascending: " ▲", descending: " ▼" }[sorted] ?? ""),
            )
          : label,
      );
    }),
  );
}

/** The rows in this order, by the `value` of the column; rows without a value come last. Pure. */
export function sorted(rows, columns, sort, fallback) {
  const current = sort || fallback;
  const column = columns.find((one) => one && one.key && direction(one.key, current));
  if (!column) return rows;
  const sign = current.startsWith("-") ? -1 : 1;
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

/** A sortable table. Each column also has `cell(row)`, and `value(row)` if it has a key; `keyOf(row)` identifies a row. */
export function table(rows, columns, { sort, fallback, keyOf }) {
  const shown = columns.filter(Boolean);
  return h(
    "div.scroll",
    null,
    h(
      "table.list",
      null,
      h("thead", null, heads(shown, sort, fallback)),
      h(
        "tbody",
        null,
        sorted(rows, shown, sort, fallback).map((row) =>
          h(
            "tr",
            { "data-key": keyOf(row) },
            shown.map(({ number, mono, time, label, cell }) =>
              h(number ? "td.number" : mono ? "td.mono" : time ? "td.time" : "td", { "data-label": label }, cell(row)),
            ),
          ),
        ),
      ),
    ),
  );
}

/** Links to the pages of a list: `page` has `offset`, `items`, and `total`. */
export function pager(page, size, here, text) {
  const last = Math.min(page.offset + page.items.length, page.total);
  return h(
    "nav.row.spread",
    { "aria-label": "Pages" },
    h("span.dim", null, text(page.offset + 1, last)),
    h(
      "span.row",
      null,
      page.offset > 0 && h("a", { href: here({ offset: Math.max(0, page.offset - size) || "" }) }, "← Previous"),
      last < page.total && h("a", { href: here({ offset: page.offset + size }) }, "Next →"),
    ),
  );
}
