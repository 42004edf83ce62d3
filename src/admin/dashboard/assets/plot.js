// Plots of the last minutes, as SVG made from the server's samples. Series differ by colour and by dash, and the
// legend lists each with its current value, so that a plot can be read without seeing it.

import { h } from "./dom.js";
import { clock, measured } from "./words.js";

const WIDTH = 420;
const HEIGHT = 150;
const LEFT = 56;
const BOTTOM = 20;
const TOP = 8;
const COLOURS = 7;

/** The columns of a family: `[[label value, values], …]`, the largest now first. */
export function columns(samples, family) {
  const found = [];
  for (const [name, values] of samples?.columns ?? []) {
    if (name !== family && !name.startsWith(`${family}{`)) continue;
    const label = /="((?:[^"\\]|\\.)*)"/.exec(name)?.[1] ?? "";
    found.push([label, values]);
  }
  const lively = found.filter(([, values]) => values.some((value) => value > 0));
  if (lively.length > 0) found.splice(0, found.length, ...lively);
  const weight = ([, values]) => values.reduce((sum, value) => sum + (value ?? 0), 0);
  return found.sort((one, other) => weight(other) - weight(one));
}

/** The current value; null if it is unknown. */
export const now = (samples, name) => samples?.columns.get(name)?.at(-1) ?? null;

/** The sum of a family's columns now. */
export function total(samples, family) {
  const values = columns(samples, family)
    .map(([, values]) => values.at(-1))
    .filter((value) => value !== null && value !== undefined);
  return values.length ? values.reduce((sum, value) => sum + value, 0) : null;
}

/** At most `COLOURS` series; the rest is summed up as one. */
export function few(series, rest = "others") {
  if (series.length <= COLOURS) return series;
  const shown = series.slice(0, COLOURS - 1);
  const others = series.slice(COLOURS - 1).map(([, values]) => values);
  const sum = others[0].map((_, at) => {
    const known = others.map((values) => values[at]).filter((value) => value !== null);
    return known.length ? known.reduce((one, other) => one + other, 0) : null;
  });
  return [...shown, [`${series.length - shown.length} ${rest}`, sum]];
}

/** A round number at or above `value`. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/** Lines of `series` (`[[label, values], …]`) over the times `at`, in milliseconds. `source` is the name in /metrics. */
export function plot(at, series, { title, source, unit = measured }) {
  const end = at.at(-1) ?? Date.now();
  // The available time, rounded up to a step, so that the plot is not mostly empty in the first minutes.
  const known = end - (at[0] ?? end);
  const steps = [2, 5, 10, 15];
  const span = (steps.find((minutes) => minutes * 60_000 >= known) ?? 15) * 60_000;
  const x = (time) => LEFT + (1 - (end - time) / span) * (WIDTH - LEFT - 2);
  const highest = ceiling(Math.max(0, ...series.flatMap(([, values]) => values.map((value) => value ?? 0))));
  const y = (value) => TOP + (1 - value / highest) * (HEIGHT - TOP - BOTTOM);
  const path = (values) => {
    let text = "";
    let pen = "M";
    values.forEach((value, index) => {
      if (value === null || value === undefined) pen = "M";
      else {
        text += `${pen}${x(at[index]).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
    });
    return text;
  };
  const lines = [0, 0.5, 1].map((share) => {
    const value = highest * share;
    return [
      h("line.grid", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) }),
      h("text.tick", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, unit(value)),
    ];
  });
  const minutes = [1, 0.5, 0].map((share) => {
    const minute = (span * share) / 60_000;
    return h(
      "text.tick",
      {
        x: Math.min(x(end - span * share), WIDTH - 2),
        y: HEIGHT - 4,
        "text-anchor": { 1: "start", 0: "end" }[share] ?? "middle",
      },
      share === 0 ? clock(end) : `−${minute} min`,
    );
  });
  const said = series.map(([label, values]) => `${label || title}: ${unit(values.at(-1))}`).join(", ");
  return h(
    "figure.plot",
    { "data-key": title, title: source },
    h("figcaption", null, title),
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        role: "img",
        "aria-label": `${title}, last ${span / 60_000} minutes. Now ${said || "nothing"}`,
      },
      lines,
      minutes,
      series.map(([label, values], index) =>
        h("path", { class: `line line-${index}`, d: path(values), "data-key": `line ${label}` }),
      ),
    ),
    h(
      "ul.legend",
      null,
      series.map(([label, values], index) =>
        h(
          "li",
          { "data-key": label || title },
          h(
            "svg.swatch",
            { viewBox: "0 0 22 6", "aria-hidden": "true" },
            h("path", { class: `line line-${index}`, d: "M0 3L22 3" }),
          ),
          ` ${label || "all"} `,
          h("b", null, unit(values.at(-1))),
        ),
      ),
    ),
  );
}

/** A small line without axes, for a card. */
export function spark(values, label) {
  const highest = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const points = values
    .map((value, index) =>
      value === null
        ? null
        : `${((index / Math.max(values.length - 1, 1)) * 100).toFixed(1)} ${(23 - (value / highest) * 21).toFixed(1)}`,
    )
    .filter(Boolean);
  return h(
    "svg.spark",
    { viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    points.length > 1 && h("path", { class: "line line-0", d: `M${points.join("L")}` }),
  );
}
