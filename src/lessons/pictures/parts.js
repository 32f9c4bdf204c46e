// The parts of which the pictures are made.

const NAMESPACE = "http://www.w3.org/2000/svg";

// Returns an element of SVG.
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(NAMESPACE, tag), attributes, children);

// Writes a number with a true minus sign.
function num(value, digits = 3) {
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

// Shows a number as text; its `value` has all digits.
function write(element, value, text = num(value)) {
  element.value = value;
  element.textContent = text;
  return element;
}

const number = (value, text) => write(make("data"), value, text);
const total = (values) => values.reduce((a, b) => a + b, 0);
const product = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const range = (count) => [...Array(count).keys()];

// Returns numbers with mean 0 and variance 1, and what it took to make them so.
function normalised(x, epsilon = 1e-12) {
  const mean = total(x) / x.length;
  const variance = total(x.map((v) => (v - mean) ** 2)) / x.length;
  const deviation = Math.sqrt(variance + epsilon);
  return { mean, variance, deviation, y: x.map((v) => (v - mean) / deviation) };
}

let sliders = 0;

// A control for a number, which `show` writes and `change` receives.
class Slider {
  constructor({ label, min, max, step = 1, show = String }, change) {
    const id = `slider-${sliders++}`;
    this.show = show;
    this.text = make("span");
    this.input = make("input", {
      type: "range",
      id,
      min,
      max,
      step,
      oninput: () => change(Number(this.input.value)),
    });
    this.root = make("div", { class: "slider" }, make("label", { for: id }, label), this.input, this.text);
  }

  set(value) {
    this.input.value = value;
    this.text.textContent = this.show(value);
    this.input.setAttribute("aria-valuetext", this.text.textContent);
  }
}

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };

// Makes an element of a drawing a control. `drag` receives the pointer's place in the drawing's units, `step`
// the direction of an arrow key, right and up.
function movable(svg, element, label, drag, step) {
  return fill(element, {
    tabindex: 0,
    role: "slider",
    "aria-label": label,
    class: "movable",
    onpointerdown: (event) => {
      event.preventDefault();
      element.setPointerCapture(event.pointerId);
      element.focus();
    },
    onpointermove: (event) => {
      if (!element.hasPointerCapture(event.pointerId)) return;
      const place = new DOMPoint(event.clientX, event.clientY);
      const { x, y } = place.matrixTransform(svg.getScreenCTM().inverse());
      drag(x, y);
    },
    onkeydown: (event) => {
      const direction = DIRECTIONS[event.key];
      if (!direction || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      step(...direction.map((x) => x * (event.shiftKey ? 5 : 1)));
    },
  }, []);
}

// Tells assistive programs the value of a control that `movable` made.
function tell(element, value, text) {
  element.setAttribute("aria-valuenow", value);
  element.setAttribute("aria-valuetext", text);
}

// Returns a table with a head; `rows` are lists of cells, the first of which names its row.
function table(caption, head, rows) {
  const top = head.map((title) => make("th", { scope: "col" }, title));
  return make("table", {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...top)),
    make("tbody", {}, ...rows.map(([name, ...cells]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell))))));
}

const WIDE = 520;
const EDGE = { left: 58, right: 14, top: 12, bottom: 42 };

// A drawing of lines over axes, each of which has `from`, `to`, `ticks`, a `title` and perhaps a logarithm.
class Chart {
  constructor(label, x, y, height = 250) {
    Object.assign(this, { x, y, height });
    this.lines = draw("g");
    this.svg = draw("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": label, class: "chart" });
    this.axes();
    this.svg.append(this.lines);
  }

  // Returns the share of the way along an axis.
  share({ from, to, log }, value) {
    const at = log ? Math.log10(clamp(value, 10 ** from, 10 ** to)) : clamp(value, from, to);
    return (at - from) / (to - from);
  }

  px(value) {
    return EDGE.left + this.share(this.x, value) * (WIDE - EDGE.left - EDGE.right);
  }

  py(value) {
    return this.height - EDGE.bottom - this.share(this.y, value) * (this.height - EDGE.top - EDGE.bottom);
  }

  axes() {
    const [left, right] = [EDGE.left, WIDE - EDGE.right];
    const [top, bottom] = [EDGE.top, this.height - EDGE.bottom];
    for (const [value, text] of this.y.ticks) {
      const y = this.py(value);
      this.svg.append(draw("line", { x1: left, x2: right, y1: y, y2: y, class: "rule" }),
        draw("text", { x: left - 6, y: y + 4, class: "end" }, text));
    }
    for (const [value, text] of this.x.ticks) {
      this.svg.append(draw("text", { x: this.px(value), y: bottom + 17, class: "middle" }, text));
    }
    const across = (top + bottom) / 2;
    this.svg.append(draw("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
      draw("text", { x: (left + right) / 2, y: this.height - 6, class: "middle" }, this.x.title),
      draw("text", { x: 12, y: across, class: "middle", transform: `rotate(-90 12 ${across})` }, this.y.title));
  }

  clear() {
    this.lines.replaceChildren();
  }

  // Draws a line through points.
  line(points, style) {
    const path = points.map(([x, y], i) => `${i ? "L" : "M"}${this.px(x).toFixed(1)} ${this.py(y).toFixed(1)}`);
    this.lines.append(draw("path", { d: path.join(""), class: `line ${style}` }));
  }

  // Draws a vertical line at the place of a cursor.
  cursor(value) {
    const x = this.px(value);
    this.lines.append(draw("line", { x1: x, x2: x, y1: EDGE.top, y2: this.height - EDGE.bottom, class: "cursor" }));
  }
}

// The question that a picture answers; `check` tells it whether the reader has done what it asks for.
class Question {
  constructor(text, answer) {
    this.state = make("p", { role: "status", class: "state" });
    this.root = make("section", { class: "question" },
      make("h2", {}, "Question"), make("p", {}, text), this.state,
      make("details", { ontoggle: fitFrame }, make("summary", {}, "Answer"), make("p", {}, answer)));
  }

  check(done, progress = "Not yet.") {
    const text = done ? "✓ You have found it." : progress;
    if (this.state.textContent !== text) this.state.textContent = text;
    this.state.classList.toggle("done", done);
  }
}

// Builds the page around its parts.
function show({ explains, parts, keys, again }) {
  document.querySelector("h1").textContent = data.title;
  byId("about").textContent = data.about;
  byId("keys").textContent = keys;
  byId("theme").before(make("button", { type: "button", id: "again", onclick: again }, "Start again"));
  byId("stage").append(make("p", { id: "explains" }, explains), ...parts);
  begin();
}

const controlBar = (...controls) => make("div", { class: "controls" }, ...controls);
const viewGrid = (...views) => make("div", { class: "views" }, ...views);
