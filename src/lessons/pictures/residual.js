// Gradients on their way down three stacks of layers: plain, with skip connections, and with LayerNorms too.

const WIDTH = 8;
const SEED = 5;
const DEEPEST = 24;
const KINDS = { plain: "orange", skip: "blue", "skip + LayerNorm": "green" };
const initial = () => ({ depth: 12, scale: 0.8, layer: 0 });
let state = initial();

// Returns a vector of numbers between -√3 and √3, whose variance is 1; each `example` gives others.
function noise(example, count) {
  const draws = new Draws(SEED, SITE.other, example);
  return range(count).map(() => (2 * draws.uniform() - 1) * Math.sqrt(3));
}

const START = noise(DEEPEST, WIDTH);
const ABOVE_TOP = noise(DEEPEST + 1, WIDTH);
const MATRICES = range(DEEPEST).map((layer) => noise(layer, WIDTH * WIDTH));
const length = (x) => Math.hypot(...x);

// Returns the length of the gradient above each layer and below the first: layer 0's input comes first.
function gradients(kind, depth, scale) {
  const factor = scale / Math.sqrt(WIDTH);
  const row = (layer, i) => MATRICES[layer].slice(i * WIDTH, (i + 1) * WIDTH);
  // Forward: x becomes f(x) = tanh(W x), or x + f(x), or its LayerNorm.
  let x = START;
  const kept = [];
  for (const layer of range(depth)) {
    const f = range(WIDTH).map((i) => Math.tanh(factor * product(row(layer, i), x)));
    let y = kind === "plain" ? f : x.map((v, i) => v + f[i]);
    let deviation = 1;
    if (kind === "skip + LayerNorm") {
      const norm = normalised(y);
      [y, deviation] = [norm.y, norm.deviation];
    }
    kept.push({ f, y, deviation });
    x = y;
  }
  // Backward, by the chain rule.
  let gradient = ABOVE_TOP.map((g) => g / length(ABOVE_TOP));
  const lengths = [length(gradient)];
  for (const layer of range(depth).reverse()) {
    const { f, y, deviation } = kept[layer];
    let g = gradient;
    if (kind === "skip + LayerNorm") {
      const [mean, along] = [total(g) / WIDTH, product(g, y) / WIDTH];
      g = g.map((v, i) => (v - mean - y[i] * along) / deviation);
    }
    const inner = f.map((v, i) => (1 - v * v) * g[i]);
    const through = range(WIDTH).map((j) => factor * total(inner.map((v, i) => v * MATRICES[layer][i * WIDTH + j])));
    gradient = kind === "plain" ? through : g.map((v, i) => v + through[i]);
    lengths.unshift(length(gradient));
  }
  return lengths;
}

const slider = (label, name, min, max, step, show) => new Slider({ label, min, max, step, show }, (value) => {
  state[name] = value;
  render();
});
const controls = {
  depth: slider("Layers", "depth", 1, DEEPEST, 1),
  scale: slider("Size of the weights", "scale", 0.1, 3, 0.05, (x) => num(x, 2)),
  layer: slider("Look below layer", "layer", 0, DEEPEST - 1, 1),
};
const chart = new Chart("The length of the gradient below each layer, in three stacks", {
  from: 0,
  to: DEEPEST,
  title: "layer",
  ticks: range(9).map((i) => [3 * i, String(3 * i)]),
}, {
  from: -8,
  to: 8,
  log: true,
  title: "length of the gradient",
  ticks: [-8, -4, 0, 4, 8].map((power) => [10 ** power, power ? `1e${num(power, 0)}` : "1"]),
}, 300);
const cells = Object.keys(KINDS).map((name) => [
  make("span", { class: `kind ${KINDS[name]}` }, name), number(0), number(0), number(0),
]);
const small = (value) => (value >= 0.01 && value < 1000 ? num(value) : value.toExponential(2).replace("-", "−"));
const numbers = table("The length of the gradient", ["stack", "above the top", "below the layer", "at the bottom"], cells);

const question = new Question(
  "Find a size of the weights at which the plain stack of at least 12 layers hands down a gradient between a tenth of " +
  "the length at the top and ten times it. Which stack spares you the search?",
  "In the plain stack each layer multiplies the gradient by about the same factor, and twelve factors of 0.6 are 0.002: " +
  "only a narrow range of sizes works, and a deeper stack needs a narrower one. With a skip connection y = x + f(x), " +
  "and the gradient has a way that no layer touches: dy/dx = 1 + f′(x). It does not vanish where f′ is small, but it may grow. A LayerNorm " +
  "after each block, as in BERT, divides by the size of the sum and keeps it from growing. What is left of the " +
  "imbalance is one reason for the warm-up.");

function render() {
  const { depth, scale } = state;
  state.layer = Math.min(state.layer, depth - 1);
  chart.clear();
  for (const [i, [kind, style]] of Object.entries(KINDS).entries()) {
    const lengths = gradients(kind, depth, scale);
    chart.line(lengths.map((length, layer) => [layer, length]), style);
    for (const [j, value] of [lengths.at(-1), lengths[state.layer], lengths[0]].entries()) {
      write(cells[i][j + 1], value, small(value));
    }
  }
  chart.cursor(state.layer);
  for (const [name, slider] of Object.entries(controls)) slider.set(state[name]);
  const bottom = cells[0][3].value;
  question.check(depth >= 12 && bottom >= 0.1 && bottom <= 10,
    depth < 12 ? "Take at least 12 layers." : `Not yet: ${small(Number(bottom))} times the length at the top.`);
}

show({
  explains:
    "A gradient of length 1 arrives at the top and is handed down, layer by layer, by the chain rule. Each layer is " +
    `f(x) = tanh(W x) over ${WIDTH} numbers, with random weights. The plain stack computes f(x), the second x + f(x), ` +
    "the third LayerNorm(x + f(x)), as BERT does.",
  parts: [
    controlBar(...Object.values(controls).map((slider) => slider.root)),
    viewGrid(make("div", { class: "whole" }, chart.svg), make("div", { class: "whole scroll" }, numbers)),
    question.root,
  ],
  keys: "Choose a slider by Tab and move it with the arrow keys.",
  again: () => {
    state = initial();
    render();
  },
});
render();
