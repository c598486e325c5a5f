// Small helpers. Text from the data is always added as text nodes, never as markup.

const find = (selector, root) => (root || document).querySelector(selector);
const SVG = "http://www.w3.org/2000/svg";
const events = new EventTarget();
const emit = (name, detail) => events.dispatchEvent(new CustomEvent(name, { detail }));
const on = (name, listener) => events.addEventListener(name, (event) => listener(event.detail));

/** Create an element. Attributes named on… are event listeners; children that are not nodes become text. */
function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const button = (label, onclick, attributes) =>
  make("button", { type: "button", onclick, ...attributes }, label);

const integerFormat = new Intl.NumberFormat("en");
const formatInteger = (value) => integerFormat.format(value);
const formatPercent = (share, digits) => `${(100 * share).toFixed(digits === undefined ? 0 : digits)} %`;
const formatCount = (count, one, many) => `${formatInteger(count)} ${count === 1 ? one : many || `${one}s`}`;

/** Three significant digits; very large and very small numbers in powers of ten. */
function formatNumber(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  const short =
    size >= 1e5 || size < 1e-3
      ? value.toExponential(2)
      : String(Number(value.toPrecision(size >= 1000 ? 5 : 3)));
  return short.replaceAll("-", "−");
}

/** Make control and text-direction characters visible, which could disguise a file name. */
function safeText(name) {
  return name
    .replace(/\p{Cs}/gu, "\ufffd")
    .replace(/[\u0000-\u001f]/g, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, "\u00b7");
}

/** Tell screen readers what has changed. */
function announce(text) {
  find("#announcer").textContent = text;
}

const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const narrow = () => matchMedia("(max-width: 62rem)").matches;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const modulo = (value, base) => ((value % base) + base) % base;

function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function download(filename, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = make("a", { href: address, download: filename });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Draw something new and give the focus back to the element that took the place of the focused one. */
function keepFocus(draw) {
  const at = document.activeElement;
  const place = at.closest("[id]:not(button, input, select)");
  const key = at.id ? `#${CSS.escape(at.id)}` : at.dataset.image ? `.thumb[data-image="${at.dataset.image}"]` : null;
  draw();
  if (!key || at.isConnected) return;
  const again = (place && place.isConnected && find(key, place)) || find(key);
  if (again) again.focus({ preventScroll: true });
}

/** Whether keys are text at this place. */
const isTyping = (node) => node.matches("input:not([type=range], [type=radio], [type=checkbox]), textarea, select");

/** Make a group of buttons one tab stop, in which the arrow keys move the focus. */
function rovingFocus(container, selector) {
  const items = () => [...container.querySelectorAll(selector)];
  container.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) items().forEach((other) => (other.tabIndex = other === item ? 0 : -1));
  });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(event.target.closest(selector));
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = rovingTarget(event.key, all, at);
    if (to === undefined) return;
    event.preventDefault();
    all[clamp(to, 0, all.length - 1)].focus();
  });
}

function rovingTarget(key, all, at) {
  if (key === "ArrowRight") return at + 1;
  if (key === "ArrowLeft") return at - 1;
  if (key === "Home") return 0;
  if (key === "End") return all.length - 1;
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  // In a grid: the nearest button in the row above or below.
  const here = all[at].getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best,
    cost = Infinity;
  all.forEach((item, index) => {
    const there = item.getBoundingClientRect();
    const down = sign * (there.top - here.top);
    const total = down * 10 + Math.abs(there.left - here.left);
    if (down > here.height / 2 && total < cost) [best, cost] = [index, total];
  });
  return best;
}
