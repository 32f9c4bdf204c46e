// Dot products in a plane, and the softmax that makes weights of them.

const KEYS = ["river", "money", "the", "shore"];
const REACH = 3;
const SCALE = 60;
const initial = () => ({
  query: [1.6, 0.8],
  keys: [[1.8, 0.2], [-1.2, 1.6], [0.3, -0.4], [1, 1.4]],
  // The decimal logarithm of the temperature.
  heat: Math.log10(Math.SQRT2),
  // The key whose dot product is drawn.
  shown: 0,
});
let state = initial();

const svg = draw("svg", { viewBox: "-200 -200 400 400", class: "plane", role: "group", "aria-label": "Arrows in a plane" });
const grid = range(2 * REACH + 1).flatMap((i) => {
  const at = (i - REACH) * SCALE;
  const style = i === REACH ? "axis" : "rule";
  return [
    draw("line", { x1: at, x2: at, y1: -190, y2: 190, class: style }),
    draw("line", { y1: at, y2: at, x1: -190, x2: 190, class: style }),
  ];
});
const shadow = draw("path", { class: "line reference" });
svg.append(...grid, shadow);

const place = ([x, y]) => [x * SCALE, -y * SCALE];
const inside = (x) => clamp(Math.round(x * 100) / 100, -REACH, REACH);

// Returns an arrow whose tip can be moved.
function arrow(name, style, vector, moved) {
  const line = draw("line", { x1: 0, y1: 0, class: `arrow ${style}` });
  const tip = draw("circle", { r: 9 });
  const text = draw("text", { class: "name" }, name);
  const move = (x, y) => {
    const at = vector();
    [at[0], at[1]] = [inside(x), inside(y)];
    moved();
    render();
  };
  movable(svg, tip, name, (x, y) => move(x / SCALE, -y / SCALE), (right, up) => {
    const [x, y] = vector();
    move(x + right / 10, y + up / 10);
  });
  tip.classList.add(style);
  tip.addEventListener("focus", () => {
    moved();
    render();
  });
  svg.append(line, tip, text);
  return () => {
    const [x, y] = place(vector());
    fill(line, { x2: x, y2: y }, []);
    fill(tip, { cx: x, cy: y }, []);
    fill(text, { x: x + (x < 0 ? -13 : 13), y: y + 5, class: x < 0 ? "name end" : "name" }, []);
    tell(tip, vector()[0], vector().map((v) => num(v, 1)).join(", "));
  };
}

const arrows = KEYS.map((name, i) => arrow(name, "other", () => state.keys[i], () => (state.shown = i)));
arrows.push(arrow("query", "blue", () => state.query, () => {}));

const temperature = new Slider({
  label: "Temperature T",
  min: -1.5,
  max: 1,
  step: 0.01,
  show: (heat) => num(10 ** heat, 2),
}, (heat) => {
  state.heat = heat;
  render();
});
const usual = make("button", {
  type: "button",
  onclick: () => {
    state.heat = initial().heat;
    render();
  },
}, "T = √d = 1.41");

const cells = KEYS.map(() => ({
  row: null,
  key: make("span"),
  dot: number(0),
  score: number(0),
  power: number(0),
  weight: number(0),
  bar: make("span", { class: "meter" }),
}));
const numbers = table("From arrows to weights", ["key", "k", "q · k", "q · k / T", "exp of it", "weight", ""],
  KEYS.map((name, i) => {
    const { key, dot, score, power, weight, bar } = cells[i];
    return [name, key, dot, score, power, weight, bar];
  }));
numbers.classList.add("weights");
for (const [i, row] of [...numbers.tBodies[0].rows].entries()) cells[i].row = row;
const query = make("p", { class: "value" });
const product_ = make("p", { class: "value", id: "product" });
const spread = make("p", { class: "value", id: "spread" });

const question = new Question(
  "Without moving an arrow, give one key more than 99 % of the weight. Which way must the temperature go, and " +
  "why does BERT divide by √d?",
  "Down: a low temperature stretches the differences between the scores, until the largest takes everything. " +
  "Then a small change of the arrows changes no weight, so no gradient reaches them. Dot products of long vectors " +
  "do this by themselves: the product of two vectors of d random numbers of size 1 is about √d in size, 8 for the " +
  "64 numbers of BERT's heads, as if T were an eighth. Dividing by √d takes exactly that factor away.");

function render() {
  for (const update of arrows) update();
  const heat = 10 ** state.heat;
  const dots = state.keys.map((key) => product(state.query, key));
  const scores = dots.map((x) => x / heat);
  const weights = softmax(scores);
  for (const [i, { row, key, dot, score, power, weight, bar }] of cells.entries()) {
    key.textContent = `(${state.keys[i].map((x) => num(x, 2)).join(", ")})`;
    write(dot, dots[i], num(dots[i], 2));
    write(score, scores[i], num(scores[i], 2));
    write(power, Math.exp(scores[i]), Math.exp(scores[i]).toPrecision(3));
    write(weight, weights[i], percent(weights[i]));
    bar.style.width = `${100 * weights[i]}%`;
    row.classList.toggle("chosen", i === state.shown);
  }
  temperature.set(state.heat);
  query.textContent = `The query is q = (${state.query.map((x) => num(x, 2)).join(", ")}).`;
  // The foot of the key's end on the query's line.
  const key = state.keys[state.shown];
  const length = Math.hypot(...state.query);
  const along = length ? dots[state.shown] / length : 0;
  const foot = length ? state.query.map((x) => (x / length) * along) : [0, 0];
  shadow.setAttribute("d", `M${place(key).join(" ")} L${place(foot).join(" ")} L0 0`);
  const [a, b] = state.query.map((x, i) => `${num(x, 2)} · ${num(key[i], 2)}`);
  product_.textContent =
    `${KEYS[state.shown]}: q · k = ${a} + ${b} = ${num(dots[state.shown], 2)}, the length of q, ${num(length, 2)}, ` +
    `times the length of the key's shadow on it, ${num(along, 2)} (dotted).`;
  const entropy = -total(weights.map((w) => (w > 0 ? w * Math.log(w) : 0)));
  spread.textContent =
    `The weights add up to 1 and are spread as over ${num(Math.exp(entropy), 2)} keys of equal weight.`;
  const start = initial();
  const unmoved = JSON.stringify([state.query, state.keys]) === JSON.stringify([start.query, start.keys]);
  question.check(unmoved && Math.max(...weights) > 0.99,
    unmoved ? `Not yet: the largest weight is ${percent(Math.max(...weights))}.` :
      "You have moved an arrow: “Start again” puts them back.");
}

show({
  explains:
    "A query asks, keys answer: the dot product q · k is large where a key points the same way as the query. " +
    "Softmax turns the products into weights: e to the power of q · k / T, divided by the sum over all keys.",
  parts: [
    controlBar(temperature.root, usual),
    viewGrid(
      make("div", {}, svg),
      make("div", {}, make("div", { class: "scroll" }, numbers), query, product_, spread),
    ),
    question.root,
  ],
  keys:
    "Drag the ends of the arrows, or choose one by Tab and move it with the arrow keys (with Shift five times as far).",
  again: () => {
    state = initial();
    render();
  },
});
render();
