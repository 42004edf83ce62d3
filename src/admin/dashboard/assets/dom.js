// Creates and updates elements. Views are functions from data to elements; `morph` changes the displayed elements to match
// newly created ones, element by element, so that focus, selection and scroll position stay while numbers change.
//
// Nothing here makes elements from text, and no element carries a listener of its own: `app.js` listens once, and
// finds what to do by `data-action`.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "title", "polyline"]);

/**
 * An element: `h("a.link", {href: "#/"}, "text", child, [more])`. Attributes that are null, undefined or false are
 * left out.
 */
export function h(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length > 0) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", [...classes, value].filter(Boolean).join(" "));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
}

/** Makes the children of `element` like `children`. */
export function show(element, ...children) {
  const wanted = document.createDocumentFragment();
  append(wanted, children);
  children_alike(element, wanted);
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.id || null : null);
const alike = (one, other) =>
  one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

function children_alike(element, wanted) {
  const keyed = new Map();
  for (const child of element.childNodes) {
    const key = keyOf(child);
    if (key) keyed.set(key, child);
  }
  let at = element.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = keyOf(child);
    const known = key ? keyed.get(key) : at;
    if (known && alike(known, child) && known.parentNode === element) {
      if (known === at) at = at.nextSibling;
      else element.insertBefore(known, at);
      morph(known, child);
    } else {
      element.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function morph(element, wanted) {
  if (element.nodeType !== Node.ELEMENT_NODE) {
    if (element.nodeValue !== wanted.nodeValue) element.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...element.attributes]) {
    // Opened details and typed text belong to the user.
    if (name !== "open" && !wanted.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
  if (element instanceof HTMLInputElement || element instanceof HTMLSelectElement) {
    const value = wanted instanceof HTMLSelectElement ? wanted.value : wanted.getAttribute("value");
    if (document.activeElement !== element && value !== null && element.value !== value) element.value = value;
    if (element instanceof HTMLInputElement) return;
  }
  children_alike(element, wanted);
}
