// The platform as a picture: namespace → route → shard → address. Without a choice routes are grouped by namespace;
// choosing a namespace or a shard shows its routes one by one. The columns are lists of links, readable and walkable
// without the picture; the lines between them are drawn behind.

import { h } from "./dom.js";
import { items, model, path } from "./data.js";
import { removableChip, searchField } from "./table.js";
import {
  KINDS,
  MARKS,
  STATES,
  addressStates,
  badge,
  count,
  empty,
  figure,
  link,
  plural,
  routerState,
  routeStates,
} from "./words.js";

const NAMESPACES = 40;
const ROUTES = 60;
const SHARDS = 100;
const ADDRESSES = 2;
const LINES = 1500;
const NOWHERE = "";
/** How much of a node's height its lines take, in pixels. */
const HEIGHT = 22;

export const title = () => "Topology";
export const concerns = () => true;

export async function load({ query }, { rights }, signal) {
  const chosen = query.namespace || query.router || query.q;
  const [overview, routers, page] = await Promise.all([
    model("overview", {}, signal),
    rights.routers ? items(path.routers, signal) : [],
    chosen
      ? model("routes", { q: query.q, namespace: query.namespace, router: query.router, limit: ROUTES }, signal)
      : null,
  ]);
  return { overview, routers, page };
}

const byName = new Intl.Collator("en", { numeric: true });

/** Which nodes and lines are in the picture; pure. */
function picture({ overview, routers, page }, query) {
  const { namespace, router, q } = query;
  const known = new Map(routers.map((one) => [one.metadata.name, one]));
  const names = new Set([...known.keys(), ...overview.routers.map((one) => one.name)]);
  const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const hasWords = (text) => words.every((word) => text.toLowerCase().includes(word));
  let links = overview.links.map(([at, shard, routes]) => ({ namespace: overview.namespaces[at].name, shard, routes }));
  if (namespace) links = links.filter((one) => one.namespace === namespace);
  if (router) links = links.filter((one) => one.shard === router);
  // A namespace with a route that is found may have others elsewhere: only where the found ones are is a match.
  const found = new Map();
  for (const one of words.length && page ? page.items : []) {
    const key = `${one.namespace} ${one.router ?? NOWHERE}`;
    found.set(key, { namespace: one.namespace, shard: one.router ?? NOWHERE, routes: (found.get(key)?.routes ?? 0) + 1 });
  }
  if (words.length) links = [...found.values()];
  const narrowed = Boolean(namespace || router || words.length);
  const linkedNamespaces = new Set(links.map((one) => one.namespace));
  const linkedShards = new Set(links.map((one) => one.shard));
  if (words.length && !namespace && !router) [...names].filter(hasWords).forEach((name) => linkedShards.add(name));
  const isFound = ({ name }) => linkedNamespaces.has(name) || (words.length > 0 && !namespace && !router && hasWords(name));
  const listed = overview.namespaces.filter(isFound);
  const largest = [...listed].sort((one, other) => other.routes - one.routes).slice(0, NAMESPACES);
  const namespaces = largest.sort((one, other) => byName.compare(one.name, other.name));
  const shown = new Set(namespaces.map((one) => one.name));
  const wanted = narrowed ? linkedShards : new Set([...names, ...linkedShards]);
  const shards = [...wanted]
    .filter((name) => name !== NOWHERE)
    .sort(byName.compare)
    .slice(0, SHARDS)
    .map((name) => ({
      name,
      router: known.get(name),
      routes: links.filter((one) => one.shard === name).reduce((sum, one) => sum + one.routes, 0),
    }));
  const waiting = links.filter((one) => one.shard === NOWHERE).reduce((sum, one) => sum + one.routes, 0);
  const single = Boolean(page);
  return {
    namespaces,
    shards,
    waiting,
    single,
    routes: page?.items ?? [],
    routesLeft: page ? page.total - page.items.length : 0,
    namespacesLeft: listed.length - namespaces.length,
    shardsLeft: [...wanted].filter((name) => name !== NOWHERE).length - shards.length,
    lines: single
      ? page.items.flatMap((one) => [
          { from: `n:${one.namespace}`, to: `r:${one.namespace}/${one.name}`, weight: 1 },
          {
            from: `r:${one.namespace}/${one.name}`,
            to: `s:${one.router ?? NOWHERE}`,
            weight: 1,
            state: one.state,
          },
        ])
      : links
          .filter((one) => shown.has(one.namespace))
          .sort((one, other) => other.routes - one.routes)
          .slice(0, LINES)
          .map((one) => ({
            from: `g:${one.namespace}`,
            to: `s:${one.shard}`,
            weight: one.routes,
            state: one.shard === NOWHERE ? "pending" : null,
          })),
  };
}

/** Why there is no picture. */
function nothing({ q, namespace, router }, { all }) {
  if (q || namespace || router) return empty("No matches.", "Shorten the search, or remove a filter.");
  return all
    ? empty("Nothing to show yet.", "The ", h("a", { href: "#/" }, "first page"), " has the first steps: a shard, then a route.")
    : empty("Nothing to show yet.", "The page of your ", h("a", { href: "#/routes" }, "routes"), " has the first step.");
}

export function render(data, { query }, { rights }) {
  const seen = picture(data, query);
  const here = (change) => link.topology({ ...query, ...change });
  return [
    h(
      "div.title",
      null,
      h("h1", null, "Topology"),
      h(
        "p.dim",
        null,
        figure(plural(data.overview.namespaceCount, "namespace"), rights.all && "signpost_route_namespaces"),
        ", ",
        figure(plural(data.overview.routes, "route"), rights.all && "signpost_routes"),
        ", ",
        figure(plural(data.routers.length, "shard"), "Routers of the API"),
      ),
    ),
    h(
      "div.row.filters",
      null,
      searchField(query, "Find a namespace, route, name or shard", "Search the topology"),
      ["namespace", "router"].map((name) => removableChip(name, name, query, here)),
      h(
        "span.row.dim",
        { "aria-hidden": "true" },
        Object.entries(STATES).map(([name, { mark }]) =>
          h("span", null, h("span", { class: `mark is-${name}` }, mark), ` ${name}`),
        ),
      ),
    ),
    seen.namespaces.length === 0 && seen.shards.length === 0
      ? nothing(query, rights)
      : drawing(seen, query),
  ];
}

const node = (key, href, label, more, kind) =>
  h(
    "li",
    { "data-key": key },
    h(
      "a.node",
      { href, "data-node": key, class: kind, title: label, "aria-current": kind === "chosen" ? "true" : null },
      h("span.name", null, label),
      more,
    ),
  );
const left = (number, what, href) =>
  number > 0 &&
  h("li.dim", null, href ? h("a", { href }, `and ${plural(number, what)} more`) : `and ${plural(number, what)} more`);
const column = (name, ...list) => h("div.column", { "data-key": name }, h("h2", null, name), h("ol", null, list));

/** The columns of the picture; the lines between them are drawn later. */
function drawing(seen, query) {
  const here = (change) => link.topology({ ...query, ...change });
  return h(
    "div.topology",
    { id: "topology" },
    h("svg", { id: "lines", "aria-hidden": "true" }),
    namespaceColumn(seen, query, here),
    routeColumn(seen, query, here),
    shardColumn(seen, query, here),
    column(
      "Addresses",
      seen.waiting > 0 && h("li", { "data-key": "a:" }, h("span.node.ghost", null, "none")),
      seen.shards.map((one) => h("li", { "data-key": `a:${one.name}` }, addressRow(one))),
    ),
  );
}

/** The namespaces, with their number of Routes. */
function namespaceColumn(seen, query, here) {
  return column(
    "Namespaces",
    seen.namespaces.map((one) =>
      node(
        `n:${one.name}`,
        here({ namespace: query.namespace === one.name ? "" : one.name }),
        one.name,
        h("span.count", { title: "Routes of the namespace, counted from the API" }, count(one.routes)),
        query.namespace === one.name ? "chosen" : null,
      ),
    ),
    left(seen.namespacesLeft, "namespace"),
  );
}

/** The Routes, one by one or by namespace. */
function routeColumn(seen, query, here) {
  return column(
    "Routes",
    seen.single
      ? seen.routes.map((one) =>
          node(
            `r:${one.namespace}/${one.name}`,
            link.route(one.namespace, one.name),
            query.namespace ? one.name : `${one.namespace}/${one.name}`,
            h(
              "span",
              { class: `mark is-${one.state}`, title: one.state },
              STATES[one.state]?.mark,
            ),
          ),
        )
      : seen.namespaces.map((one) =>
          node(
            `g:${one.name}`,
            here({ namespace: one.name }),
            plural(one.routes, "route"),
            group(one.states),
          ),
        ),
    left(
      seen.routesLeft,
      "route",
      link.routes({ q: query.q, router: query.router, namespace: query.namespace }),
    ),
    !seen.single && left(seen.namespacesLeft, "group"),
  );
}

/** The shards, and the Routes without one. */
function shardColumn(seen, query, here) {
  return column(
    "Shards",
    seen.waiting > 0 &&
      node(
        "s:",
        link.routes({ router: "(none)" }),
        "no shard",
        h("span.count", null, count(seen.waiting)),
        "is-pending",
      ),
    seen.shards.map((one) =>
      node(
        `s:${one.name}`,
        here({ router: query.router === one.name ? "" : one.name }),
        one.name,
        [one.router && state(one.router), h("span.count", { title: "Routes on the shard" }, count(one.routes))],
        query.router === one.name ? "chosen" : null,
      ),
    ),
    left(seen.shardsLeft, "shard"),
  );
}

const group = (counts) => h("span.tiny", null, routeStates(counts, () => null).firstChild);

function state(router) {
  const [kind, word] = routerState(router);
  return kind === "good" ? null : badge(kind, word);
}

function addressRow({ name, router }) {
  if (!router) return h("span.node.ghost", null, "not visible");
  const all = addressStates(router).sort((one, other) => KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind));
  return h(
    "a.node.addresses",
    { href: link.router(name), "aria-label": `${plural(all.length, "address", "addresses")} of ${name}` },
    all
      .slice(0, ADDRESSES)
      .map((address) =>
        h(
          "span",
          { "data-key": address.ip, title: `${address.ip}: ${address.word}` },
          h("span", { class: `mark is-${address.kind}` }, MARKS[address.kind]),
          ` ${address.ip}`,
        ),
      ),
    all.length > ADDRESSES && h("span.dim", null, `+${all.length - ADDRESSES}`),
    all.length === 0 && h("span.dim", null, "none"),
  );
}

/** Draws the lines after the layout of the lists. */
export function drawn(root, data, { query }) {
  const canvas = root.querySelector("#lines");
  const stage = root.querySelector("#topology");
  if (!canvas || !stage || getComputedStyle(canvas).display === "none") return;
  const origin = stage.getBoundingClientRect();
  canvas.setAttribute("viewBox", `0 0 ${Math.round(origin.width)} ${Math.round(origin.height)}`);
  const boxes = new Map();
  for (const node of stage.querySelectorAll("[data-node]")) boxes.set(node.dataset.node, node.getBoundingClientRect());
  for (const item of stage.querySelectorAll('[data-key^="a:"]')) {
    const box = item.firstElementChild.getBoundingClientRect();
    // On a small screen this column is not there.
    if (box.width > 0) boxes.set(item.dataset.key, box);
  }
  const { lines, single, shards, namespaces } = picture(data, query);
  const paths = [];
  const place = (key, side) => {
    const box = boxes.get(key);
    return (
      box && { x: (side === "left" ? box.left : box.right) - origin.left, y: box.top + box.height / 2 - origin.top }
    );
  };
  const curve = (from, to, width, line) => {
    const bend = (to.x - from.x) / 2;
    const [x1, y1, x2, y2] = [from.x, from.y, to.x, to.y].map((value) => value.toFixed(1));
    paths.push(
      h("path", {
        d: `M${x1} ${y1}C${(from.x + bend).toFixed(1)} ${y1} ${(to.x - bend).toFixed(1)} ${y2} ${x2} ${y2}`,
        "stroke-width": width.toFixed(2),
        class: line.state ? `line-${line.state}` : null,
        "data-from": line.from,
        "data-to": line.to,
      }),
    );
  };
  // The lines of a node are next to each other on its edge, in the order of the other ends, so that lines do
  // not hide one another. The fullest node's lines take its whole height.
  const known = lines.filter(({ from, to }) => boxes.has(from) && boxes.has(to));
  const sums = new Map();
  for (const { from, to, weight } of known) for (const key of [from, to]) sums.set(key, (sums.get(key) ?? 0) + weight);
  const scale = HEIGHT / Math.max(1, ...sums.values());
  const width = (line) => Math.max(0.35, single ? Math.min(2, line.weight * scale) : line.weight * scale);
  const sides = new Map();
  const addSide = (key, line, far) => sides.set(key, [...(sides.get(key) ?? []), { line, far: boxes.get(far).top }]);
  for (const line of known) {
    addSide(`${line.from}>`, line, line.to);
    addSide(`${line.to}<`, line, line.from);
  }
  const shift = new Map();
  for (const [key, list] of sides) {
    list.sort((one, other) => one.far - other.far);
    let at = -list.reduce((sum, { line }) => sum + width(line), 0) / 2;
    for (const { line } of list) {
      shift.set(`${key} ${line.from} ${line.to}`, at + width(line) / 2);
      at += width(line);
    }
  }
  for (const line of known) {
    const [from, to] = [place(line.from, "right"), place(line.to, "left")];
    from.y += shift.get(`${line.from}> ${line.from} ${line.to}`);
    to.y += shift.get(`${line.to}< ${line.from} ${line.to}`);
    curve(from, to, width(line), line);
  }
  // A group is next to its namespace, a shard next to its addresses.
  if (!single) {
    for (const { name } of namespaces) {
      const [from, to] = [place(`n:${name}`, "right"), place(`g:${name}`, "left")];
      if (from && to) curve(from, to, 1.5, { from: `n:${name}`, to: `g:${name}` });
    }
  }
  canvas.setAttribute("class", known.length > 120 && !single ? "many" : "");
  for (const { name } of shards) {
    const from = place(`s:${name}`, "right");
    const to = place(`a:${name}`, "left");
    if (from && to) curve(from, to, 1, { from: `s:${name}`, to: `a:${name}` });
  }
  canvas.replaceChildren(...paths);
}

/** Brings out the lines of the node that is pointed at or has the focus. */
export function pointed(root, target) {
  const canvas = root.querySelector("#lines");
  if (!canvas) return;
  const node = target?.closest?.("[data-node]")?.dataset.node;
  // A namespace and the group next to it are one node.
  const same = new Set(node ? [node, node.replace(/^n:/, "g:"), node.replace(/^g:/, "n:")] : []);
  canvas.classList.toggle("pointing", same.size > 0);
  for (const line of canvas.children)
    line.classList.toggle("lit", same.has(line.dataset.from) || same.has(line.dataset.to));
}
