// LayerNorm of eight numbers.

const START = [0.8, -1.2, 2.1, 0.3, -0.4, 1.5, -2, 0.5];
const HIGH = 6;
const initial = () => ({ numbers: [...START], add: 0, times: 1, gamma: 1, beta: 0 });
let state = initial();

const input = () => state.numbers.map((x) => x * state.times + state.add);
const [unit, top, middle] = [44, 14, 134];
const py = (value) => middle - (clamp(value, -HIGH, HIGH) / HIGH) * (middle - top);

// Returns bars with their mean and deviation as lines.
function bars(label, style) {
  const band = draw("rect", { x: 24, width: 8 * unit, class: "band" });
  const mean = draw("line", { x1: 24, x2: 24 + 8 * unit, class: "cursor" });
  const boxes = START.map((_, i) => draw("rect", { x: 24 + i * unit + 6, width: unit - 12, class: `bar ${style}` }));
  const ticks = [-HIGH, 0, HIGH].flatMap((value) => [
    draw("line", { x1: 24, x2: 24 + 8 * unit, y1: py(value), y2: py(value), class: value ? "rule" : "axis" }),
    draw("text", { x: 20, y: py(value) + 4, class: "end" }, num(value, 0)),
  ]);
  const svg = draw("svg", { viewBox: "0 0 390 264", role: "group", "aria-label": label });
  svg.append(band, ...ticks, mean, ...boxes);
  const show = (values, centre, deviation) => {
    for (const [i, value] of values.entries()) {
      fill(boxes[i], { y: Math.min(py(value), py(0)), height: Math.abs(py(value) - py(0)) }, []);
    }
    fill(mean, { y1: py(centre), y2: py(centre) }, []);
    const [high, low] = [py(centre + deviation), py(centre - deviation)];
    fill(band, { y: high, height: low - high }, []);
  };
  return { svg, boxes, show };
}

const before = bars("The eight input numbers", "blue");
const after = bars("The eight output numbers", "orange");
const put = (i, value) => {
  const number = (clamp(value, -HIGH, HIGH) - state.add) / state.times;
  state.numbers[i] = Math.round(number * 1000) / 1000;
  render();
};
// The handles are as large when a bar is low.
const handles = START.map((_, i) => {
  const handle = draw("rect", { x: 24 + i * unit + 3, width: unit - 6, height: 8, rx: 3 });
  movable(before.svg, handle, `number ${i}`,
    (_, y) => put(i, Math.round(((middle - y) / (middle - top)) * HIGH * 20) / 20),
    (right, up) => put(i, input()[i] + (right + up) / 10));
  before.svg.append(handle);
  return handle;
});

const slider = (label, name, min, max, step) => new Slider({
  label,
  min,
  max,
  step,
  show: (value) => num(value, 2),
}, (value) => {
  state[name] = value;
  render();
});
const controls = {
  add: slider("Add to all", "add", -3, 3, 0.05),
  times: slider("Multiply all by", "times", 0.1, 3, 0.05),
  gamma: slider("γ", "gamma", -2, 2, 0.05),
  beta: slider("β", "beta", -3, 3, 0.05),
};

const cells = START.map(() => [number(0), number(0), number(0), number(0)]);
const numbers = table("Number by number", ["i", "x", "x − mean", "÷ deviation", "· γ + β"],
  cells.map((cells, i) => [String(i), ...cells]));
const steps = make("p", { class: "value", id: "steps" });
const output = make("p", { class: "value", id: "output" });

const question = new Question(
  "Change all eight input numbers, and leave all eight output numbers as they were at the start. What does LayerNorm " +
  "not notice?",
  "Adding the same to all numbers, which moves the mean along, and multiplying all by the same positive factor, which " +
  "the deviation takes away. So a vector cannot become too long or too short for the next layer. What is left is the " +
  "pattern: which numbers are large compared with the others. γ and β, which are learned and one for each place in " +
  "BERT, can give every place a size and an offset again.");

const reference = normalised(START).y;

function render() {
  const x = input();
  const { mean, variance, deviation, y: standard } = normalised(x);
  const y = standard.map((v) => v * state.gamma + state.beta);
  before.show(x, mean, deviation);
  const [centre, size] = [total(y) / y.length, Math.abs(state.gamma)];
  after.show(y, centre, size);
  for (const [i, handle] of handles.entries()) {
    handle.setAttribute("y", py(x[i]) - 4);
    tell(handle, x[i], num(x[i], 2));
  }
  for (const [i, [value, centred, divided, final]] of cells.entries()) {
    write(value, x[i]);
    write(centred, x[i] - mean);
    write(divided, standard[i]);
    write(final, y[i]);
  }
  for (const [name, slider] of Object.entries(controls)) slider.set(state[name]);
  steps.textContent =
    `Input: mean ${num(mean)}, variance ${num(variance)}, deviation √(variance + ε) = ${num(deviation)}.`;
  output.textContent = `Output: mean ${num(centre)}, deviation ${num(normalised(y).deviation)}.`;
  const same = y.filter((value, i) => Math.abs(value - reference[i]) < 0.005).length;
  const changed = x.filter((value, i) => Math.abs(value - START[i]) > 0.04).length;
  question.check(same === 8 && changed === 8, `Not yet: ${changed} inputs are changed, ${same} outputs are as they were.`);
}

show({
  explains:
    "LayerNorm subtracts the mean of a token's numbers, divides by their standard deviation, and then multiplies by " +
    "γ and adds β. The band is the mean plus and minus the deviation. BERT does it after every block, to 768 " +
    "numbers a token; here are eight.",
  parts: [
    controlBar(...Object.values(controls).map((slider) => slider.root)),
    viewGrid(
      make("div", {}, make("h2", {}, "Input x"), before.svg, steps),
      make("div", {}, make("h2", {}, "Output"), after.svg, output),
      make("div", { class: "whole scroll" }, numbers),
    ),
    question.root,
  ],
  keys: "Drag the ends of the blue bars, or choose one by Tab and move it with ↑ and ↓ (with Shift five times as far).",
  again: () => {
    state = initial();
    render();
  },
});
render();
