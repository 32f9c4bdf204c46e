// What the pages share: elements, the focus in lists, numbers, colours, and their place in a notebook.

const data = JSON.parse(document.getElementById("data").textContent);

// Sets the attributes of an element, and appends children that are elements or plain text.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// Returns an element of HTML.
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

const byId = (id) => document.getElementById(id);

// Colours of medium lightness, legible on white and on black; they repeat for further heads.
const COLORS = [
  "#2f86d1", "#e07b1f", "#1f9e77", "#b062b8", "#d64b4b", "#8a8f1f", "#17a2b8", "#e0609a",
  "#a0673a", "#6a6fe0", "#5aa02c", "#78889a", "#c99a06", "#0e8f6f", "#c43bd0", "#b5462b",
];
const color = (head) => COLORS[head % COLORS.length];

// Moves the focus in a list of elements of which only one is in the tab order.
function rove(elements, index) {
  const to = Math.max(0, Math.min(elements.length - 1, index));
  for (const [i, element] of elements.entries()) element.tabIndex = i === to ? 0 : -1;
  return elements[to];
}

// Focuses the element that a key leads to; returns false if there is none.
function roveByKey(event, elements, steps) {
  if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return false;
  const here = elements.indexOf(event.target.closest("button"));
  const to = { Home: 0, End: elements.length - 1 }[event.key] ?? here + (steps[event.key] ?? NaN);
  if (here < 0 || Number.isNaN(to)) return false;
  rove(elements, to).focus();
  event.preventDefault();
  event.stopPropagation();
  return true;
}

// Returns a control for a number: a list with buttons at its sides.
class Stepper {
  constructor(name, labels, chosen) {
    this.chosen = chosen;
    const id = `choose-${name}`;
    this.select = make("select", { id, onchange: () => chosen(this.select.selectedIndex) });
    this.select.append(...labels.map((label) => make("option", {}, String(label))));
    const step = (by, sign, what) =>
      make("button", {
        type: "button",
        "aria-label": `${what} ${name}`,
        onclick: () => this.step(by),
      }, sign);
    this.buttons = [step(-1, "‹", "previous"), step(1, "›", "next")];
    this.root = make("div", { class: "stepper" },
      make("label", { for: id }, name), this.select, ...this.buttons);
  }

  step(by) {
    const to = this.select.selectedIndex + by;
    if (to >= 0 && to < this.select.options.length) this.chosen(to);
  }

  show(index) {
    this.select.selectedIndex = index;
    this.buttons[0].disabled = index === 0;
    this.buttons[1].disabled = index === this.select.options.length - 1;
  }
}

let fieldsets = 0;

// Returns a choice between options, which are pairs of a value and its text.
function radios(legend, options, chosen, pick) {
  const name = `choice-${fieldsets++}`;
  const labels = options.map(([value, text]) => {
    const input = make("input", {
      type: "radio",
      name,
      value,
      checked: value === chosen,
      onchange: () => pick(value),
    });
    return make("label", {}, input, make("span", {}, text));
  });
  return make("fieldset", { class: "filter" }, make("legend", {}, legend), ...labels);
}

const SPECIAL = /^\[(CLS|SEP|PAD|UNK|MASK)\]$/;

// Decodes base64. Numbers are little-endian, as on every browser's machine.
function bytes(base64) {
  const text = atob(base64);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out.buffer;
}

// Returns shares that add up to 1 and grow exponentially with the scores.
function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = scores.map((x) => Math.exp(x - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / sum);
}

const ABOVE = [0x2f, 0x86, 0xd1];
const BELOW = [0xe0, 0x7b, 0x1f];

// Paints numbers as a row of colours: blue above zero, orange below, stronger for larger numbers.
function strip(canvas, values, largest) {
  canvas.width = values.length;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  const image = context.createImageData(values.length, 1);
  for (const [i, value] of values.entries()) {
    const strength = largest ? Math.sqrt(Math.abs(value) / largest) : 0;
    image.data.set([...(value < 0 ? BELOW : ABOVE), Math.round(255 * strength)], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
const short = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
// A share that is not nothing never looks like nothing.
const percent = (share) => share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;

// In a notebook, makes the frame of this page as high as the view, up to the height of the screen.
function fitFrame() {
  const HIGHEST = 1000;
  try {
    if (!window.frameElement) return;
    const high = document.documentElement.getBoundingClientRect().height;
    window.frameElement.style.height = `${Math.min(Math.ceil(high) + 2, HIGHEST)}px`;
  } catch {
    // The surrounding page has another origin.
  }
}

// Returns whether the surrounding notebook page is dark, by the background of the frame; null if there is
// none or it is not accessible.
function darkAround() {
  try {
    for (let node = window.frameElement; node; node = node.parentElement) {
      const [r, g, b, a = 1] = window.parent
        .getComputedStyle(node)
        .backgroundColor.match(/[\d.]+/g)
        .map(Number);
      if (a > 0.5) return 0.3 * r + 0.6 * g + 0.1 * b < 128;
    }
  } catch {
    // The surrounding page has another origin.
  }
  return null;
}

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let asked = null;
  const root = document.documentElement;
  const show = () => {
    const dark = asked ?? darkAround() ?? system.matches;
    root.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "Light colours" : "Dark colours";
  };
  byId("theme").addEventListener("click", () => {
    asked = root.dataset.theme !== "dark";
    show();
  });
  system.addEventListener("change", show);
  if (darkAround() !== null) {
    const around = new MutationObserver(show);
    const page = window.parent.document;
    for (const node of [page.documentElement, page.body]) around.observe(node, { attributes: true });
  }
  show();
}

// Begins a page: its colours, and the height of the frame around it once it is laid out.
function begin() {
  theme();
  // Measures a frame that was hidden or has changed its width after its layout.
  let wide = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== wide) fitFrame();
    wide = contentRect.width;
  }).observe(document.documentElement);
}
