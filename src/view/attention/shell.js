// The common parts of the three views: selection, controls, keys, colours.

const state = {
  view: data.view,
  layer: 0,
  head: 0,
  // The heads that the head view draws.
  shown: new Set(Array.from({ length: heads }, (_, head) => head)),
  filter: "all",
};

const layers = data.layers.length;

// Colours of medium lightness, legible on white and on black; they repeat for further heads.
const COLORS = [
  "#2f86d1", "#e07b1f", "#1f9e77", "#b062b8", "#d64b4b", "#8a8f1f", "#17a2b8", "#e0609a",
  "#a0673a", "#6a6fe0", "#5aa02c", "#78889a", "#c99a06", "#0e8f6f", "#c43bd0", "#b5462b",
];
const color = (head) => COLORS[head % COLORS.length];

// Returns an element with attributes, and children that are elements or plain text.
function make(tag, attributes = {}, ...children) {
  const out = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) out.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) out.setAttribute(name, value === true ? "" : value);
  }
  out.append(...children);
  return out;
}

const SPECIAL = /^\[(CLS|SEP|PAD|UNK|MASK)\]$/;

// Returns a token's element; its style shows which text it is from and whether it is special.
function tokenText(index) {
  const classes = SPECIAL.test(tokens[index]) ? "text special" : "text";
  return make("bdi", { class: classes }, tokens[index]);
}

const part = (index) => (index < second ? "A" : "B");

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

function pickLayer(layer) {
  if (layer < 0 || layer >= layers) return;
  state.layer = layer;
  render();
}

function pickHead(head) {
  if (head < 0 || head >= heads) return;
  state.head = head;
  render();
}

const byId = (id) => document.getElementById(id);

function filterControl() {
  const options = FILTERS.map((filter) => {
    const input = make("input", {
      type: "radio",
      name: "filter",
      value: filter,
      checked: filter === state.filter,
      onchange: () => {
        state.filter = filter;
        render();
      },
    });
    return make("label", {}, input, make("span", {}, filter === "all" ? "All" : filter));
  });
  return make("fieldset", { class: "filter" }, make("legend", {}, "Looking from → at"), ...options);
}

// Shows a view in its initial state.
function open(view) {
  state.view = view;
  for (const tab of byId("tabs").children) {
    const chosen = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  byId("explains").textContent = VIEWS[view].explains;
  byId("stage").setAttribute("aria-labelledby", `tab-${view}`);
  byId("stage").className = view;
  byId("controls").replaceChildren(...VIEWS[view].controls());
  if (FILTERS.length > 1) byId("controls").append(filterControl());
  VIEWS[view].open(byId("stage"));
  render();
  fitFrame();
}

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

function render() {
  VIEWS[state.view].render();
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

const ARROWS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

function keys(event) {
  const move = ARROWS[event.key];
  if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
  // These elements use the arrow keys themselves.
  if (!event.shiftKey && event.target.closest("select, input, [role=tab]")) return;
  event.preventDefault();
  VIEWS[state.view].move(...move);
}

function start() {
  const of = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  byId("about").textContent =
    (data.model ? `${data.model}: ` : "") +
    `${of(layers, "layer")} of ${of(heads, "head")}, ${of(count, "token")}`;
  const texts = [["A", data.a], ["B", data.b]].filter(([, text]) => text);
  byId("texts").append(...texts.map(([name, text]) =>
    make("p", {}, make("span", { class: `part ${name}` }, name), make("bdi", {}, text))));
  const tabs = Object.entries(VIEWS).map(([name, view]) =>
    make("button", {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      "aria-controls": "stage",
      onclick: () => open(name),
    }, view.name));
  byId("tabs").append(...tabs);
  byId("tabs").addEventListener("keydown", (event) => {
    if (roveByKey(event, tabs, { ArrowLeft: -1, ArrowRight: 1 })) document.activeElement.click();
  });
  document.addEventListener("keydown", keys);
  // Measures a frame that was hidden or has changed its width after its layout.
  let wide = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== wide) fitFrame();
    wide = contentRect.width;
  }).observe(document.documentElement);
  theme();
  open(state.view);
}
