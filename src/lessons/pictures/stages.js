// The stages of the page that follows a token, one for each core lesson.

const initial = () => ({ token: blank, layer: 0, head: 0, number: 0 });
let state = initial();

const tokenName = (token) =>
  make("bdi", { class: SPECIAL.test(tokens[token]) ? "text special" : "text" }, tokens[token]);
const pieceName = (id) => make("bdi", { class: "text" }, vocabulary[id]);
const meter = (share) => {
  const bar = make("span", { class: "meter" });
  bar.style.width = `${100 * share}%`;
  return bar;
};
const text = (...parts) => make("p", {}, ...parts);

// Returns rows of vectors with the chosen number of each; a row is a name, its numbers, and which of them is
// chosen. A click on a vector chooses a number.
function vectors(rows) {
  const body = rows.map(([name, values, index = state.number]) => {
    const canvas = make("canvas", {
      class: "strip",
      "aria-hidden": "true",
      onclick: (event) => {
        const box = canvas.getBoundingClientRect();
        choose("number", Math.floor(((event.clientX - box.left) / box.width) * values.length) % width);
      },
    });
    strip(canvas, values, largest(values));
    const mark = make("span", { class: "mark" });
    mark.style.left = `${(100 * (index + 0.5)) / values.length}%`;
    return [name, make("div", { class: "vector" }, canvas, mark), make("span", { class: "note" }, `[${index}]`),
      number(values[index])];
  });
  const out = table("", ["", "", "", ""], body);
  out.deleteCaption();
  out.deleteTHead();
  out.classList.add("vectors");
  return out;
}

const formula = (...parts) => make("p", { class: "formula" }, ...parts);

// Returns a table of pieces with their probabilities.
const guesses = (probabilities, caption) => table(caption, ["piece", "probability", ""],
  best(probabilities, 5).map((id) => [
    id === answer ? make("span", {}, pieceName(id), " (the answer)") : pieceName(id),
    number(probabilities[id], percent(probabilities[id])), meter(probabilities[id]),
  ]));

const normText = ({ mean, deviation, factors, offsets, y }, sum, i) =>
  formula(`(${num(sum[i])} − mean ${num(mean)}) / deviation ${num(deviation)} · γ ${num(factors[i])} + β ` +
    `${num(offsets[i])} = ${num(y[i])}`);

// A layer's input, and what the layer computes for the token that is followed.
const here = () => ({
  x: steps[state.layer].before[state.token],
  ...steps[state.layer].rows[state.token],
});

// The share that two vectors have of a direction: the cosine between them.
const cosine = (a, b) => product(a, b) / Math.sqrt(product(a, a) * product(b, b));

function oneHead() {
  const { query, key, value, dots, weights, context } = steps[state.layer].head(state.head, state.token);
  const i = state.number % size;
  const rows = range(count).map((other) => [
    tokenName(other), number(dots[other], num(dots[other], 2)),
    number(dots[other] / Math.sqrt(size), num(dots[other] / Math.sqrt(size), 2)),
    number(weights[other], percent(weights[other])), meter(weights[other]),
    number(value[other][i]), number(weights[other] * value[other][i]),
  ]);
  return [
    text("The token's vector x is projected to a query, each token's to a key and a value: x Wᵀ + b, with a matrix of " +
      `${width} columns for each. Head ${state.head} of layer ${state.layer} has ${size} numbers of each.`),
    vectors([
      ["x", here().x], ["query q", query, i], ["its own key k", key[state.token], i],
      ["its own value v", value[state.token], i],
    ]),
    make("div", { class: "scroll" }, table("The head, for this token",
      ["looks at", "q · k", `/ √${size}`, "weight", "", `v[${i}]`, "weight · v"], rows)),
    vectors([["context: the sum", context, i]]),
  ];
}

function allHeads() {
  const all = range(heads).map((head) => steps[state.layer].head(head, state.token).context);
  const joined = all.flat();
  const head = Math.floor(state.number / size);
  return [
    text(`Layer ${state.layer} has ${heads} heads of ${size} numbers. Side by side they are ${width} again; number ` +
      `${state.number} is number ${state.number % size} of head ${head}. A linear layer mixes them.`),
    vectors([
      ...all.map((context, i) => [`head ${i}`, context, state.number % size]),
      ["joined", joined], ["after the linear layer", here().block],
    ]),
  ];
}

function wholeLayer() {
  const { x, block, middle, wide, forward, final } = here();
  const i = state.number;
  const sums = [add(x, block), add(middle.y, forward)];
  const active = wide.map(gelu);
  const j = i % data.inner;
  const through = [embeddings[state.token].y, ...steps.map(({ output }) => output[state.token])];
  return [
    text("What attention found is added to the token's own vector: the residual connection. A LayerNorm follows."),
    vectors([["x", x], ["+ attention", block], ["= sum", sums[0]], ["LayerNorm", middle.y]]),
    formula(`${num(x[i])} + ${num(block[i])} = ${num(sums[0][i])}`), normText(middle, sums[0], i),
    text(`The feed-forward block: ${data.inner} numbers, GELU, and back to ${width}; then again a sum and a LayerNorm.`),
    vectors([
      ["inner", wide, j], ["GELU", active, j], ["feed-forward", forward], ["+ before = sum", sums[1]],
      ["LayerNorm", final.y],
    ]),
    formula(`GELU(${num(wide[j])}) = ${num(active[j])}`), normText(final, sums[1], i),
    text("Through all layers, with the cosine between each vector and the one before:"),
    vectors(through.map((vector, layer) => [
      layer ? `layer ${layer - 1} (cosine ${num(cosine(vector, through[layer - 1]), 2)})` : "embeddings", vector,
    ])),
  ];
}

function maskedHead() {
  const dense = unpack(data.head.dense);
  const last = norm(data.head.norm)(dense.map(gelu));
  const rows = best(probabilities, 8).map((id) => [
    pieceName(id), number(logits[id]), number(probabilities[id], percent(probabilities[id])), meter(probabilities[id]),
  ]);
  return [
    text("At the place of ", tokenName(blank), " the head projects the vector once more, and compares it with the word " +
      `table: the logit of a piece is its row's dot product with the result, plus a bias. There are ${vocabulary.length}.`),
    vectors([
      ["after the last layer", steps.at(-1).output[blank]], ["dense", dense], ["GELU", dense.map(gelu)],
      ["LayerNorm", last.y],
    ]),
    table("The largest logits, and the answer's", ["piece", "logit", "softmax", ""], rows),
    formula("loss = −ln ", number(probabilities[answer], probabilities[answer].toPrecision(4)), " = ",
      number(loss(probabilities)), " nats, for the answer ", pieceName(answer)),
  ];
}

function blame() {
  const rows = best(probabilities, 6).map((id) => {
    const wanted = id === answer ? 1 : 0;
    return [pieceName(id), number(probabilities[id]), String(wanted), number(probabilities[id] - wanted)];
  });
  return [
    text("Training starts here: the derivative of the loss by a logit is the probability minus what it should have been, " +
      "1 for the answer and 0 for all others. A step moves each logit against it."),
    table("The gradient at the logits", ["piece", "p", "should be", "gradient"], rows),
  ];
}

function pairHead() {
  if (!data.pooled) return [text("This model has no next-sentence head.")];
  const shares = softmax(data.pooled.next);
  return [
    text("The vector of [CLS] after the last layer goes through the pooler, a linear layer and tanh, and two logits say " +
      "whether a second text follows the first. Here there is only one text, so the answer means little."),
    vectors([["[CLS]", steps.at(-1).output[0]], ["pooled", unpack(data.pooled.values)]]),
    table("The next-sentence head", ["class", "logit", "softmax"], ["B follows", "B is random"].map((name, i) => [
      name, number(data.pooled.next[i]), number(shares[i], percent(shares[i])),
    ])),
  ];
}

function oneStep() {
  const before = loss(probabilities);
  const lowest = Math.min(...data.steps.map(({ loss }) => loss));
  const rows = data.steps.map((step) => [
    String(step.rate), number(step.loss), number(step.loss - before),
    step.loss === lowest ? "the lowest" : step.loss > before ? "worse than before" : "",
  ]);
  return [
    text("One step of AdamW on this blank alone, from the same parameters at several learning rates. The loss was ",
      number(before), "."),
    table("After one step", ["rate", "loss", "change", ""], rows),
  ];
}

function pretrained() {
  return [
    text("A model of the same size with random parameters finds all pieces about equally likely: its loss is near ln " +
      `${vocabulary.length} = ${num(Math.log(vocabulary.length))}. What pre-training has made of it:`),
    make("div", { class: "views" }, guesses(untrained, "Before any training"), guesses(probabilities, "After pre-training")),
    formula("loss before ", number(loss(untrained)), ", after ", number(loss(probabilities))),
  ];
}

function newHead() {
  if (!data.pooled) return [text("This model has no pooler, from which a task would start.")];
  const shares = softmax(data.pooled.new);
  return [
    text("Fine-tuning puts a new head on the pooled vector of [CLS]. Its numbers are random, so it knows nothing yet: with " +
      "two classes it says about one half. Then all that you see on this page is trained together with it."),
    table("A new head with two classes", ["class", "logit", "softmax"], shares.map((share, i) => [
      String(i), number(data.pooled.new[i]), number(share, percent(share)),
    ])),
  ];
}

const ALL = [
  ["Text in, guesses out", () => [
    text("The model reads ", make("bdi", { class: "text" }, data.text), ", and says how probable each of its " +
      `${vocabulary.length} pieces is for the blank. In between are ${data.parameters} numbers: a closed box, which you ` +
      "open lesson by lesson."),
    guesses(probabilities, "What the model guesses"),
  ]],
  ["Which way is down", () => [
    text("The loss of the answer ", pieceName(answer), " is ", number(loss(probabilities)),
      ": the logarithm of its probability, negated. The gradient says how the loss would change with each number of the " +
      "model. These are its lengths, part by part:"),
    table("The gradient", ["part of the model", "length", ""], data.gradients.map(({ name, length }) => [
      name, number(length), meter(length / Math.max(...data.gradients.map(({ length }) => length))),
    ])),
  ]],
  ["Pieces and ids", () => {
    const rows = tokens.map((_, token) => [
      tokenName(token), String(token), String(data.ids[token]), token === state.token ? "followed" : "",
    ]);
    const out = table("What the model reads", ["piece", "position", "id", ""], rows);
    out.tBodies[0].rows[state.token].classList.add("chosen");
    return [text("The text becomes pieces of the vocabulary, with [CLS] before and [SEP] after them."), out];
  }],
  ["Embeddings", () => {
    const { rows, sum, ...normed } = embeddings[state.token];
    const i = state.number;
    return [
      text(`Three rows of ${width} numbers are added: that of the piece (${data.ids[state.token]}), of the segment (0), ` +
        `and of the position (${state.token}). A LayerNorm follows.`),
      vectors([["piece", rows[0]], ["+ segment", rows[1]], ["+ position", rows[2]], ["= sum", sum], ["LayerNorm", normed.y]]),
      formula(`${rows.map((row) => num(row[i])).join(" + ")} = ${num(sum[i])}`), normText(normed, sum, i),
    ];
  }],
  ["One head of attention", oneHead],
  ["All heads", allHeads],
  ["A layer, and the next", wholeLayer],
  ["Logits, softmax, loss", maskedHead],
  ["Where the blame begins", blame],
  ["The head for pairs", pairHead],
  ["One step", oneStep],
  ["What pre-training made", pretrained],
  ["A head for a task", newHead],
];
const STAGES = ALL.slice(0, data.after + 1);

const pickers = {
  token: new Stepper("Token", tokens, (token) => choose("token", token)),
  layer: new Stepper("Layer", range(layers), (layer) => choose("layer", layer)),
  head: new Stepper("Head", range(heads), (head) => choose("head", head)),
};
const picker = new Slider({ label: "Number", min: 0, max: width - 1 }, (index) => choose("number", index));
const stages = STAGES.map(([title], i) => {
  const body = make("div", { class: "body" });
  const lesson = String(i).padStart(2, "0");
  const root = make("section", { class: "stage", id: `stage-${lesson}` },
    make("h2", {}, title, make("span", { class: "note" }, ` lesson ${lesson}`)), body);
  return { root, body };
});

function choose(name, value) {
  state[name] = value;
  render();
}

function render() {
  for (const [name, picker] of Object.entries(pickers)) picker.show(state[name]);
  picker.set(state.number);
  for (const [i, { body }] of stages.entries()) body.replaceChildren(...STAGES[i][1]());
}

// Before the lessons on embeddings and heads there is nothing to choose.
const chosen = [
  data.after > 1 && pickers.token.root, data.after > 3 && pickers.layer.root, data.after > 3 && pickers.head.root,
  data.after > 2 && picker.root,
].filter(Boolean);
const controls = controlBar(...chosen);
controls.classList.add("pinned");
const next = String(data.after + 1).padStart(2, "0");

show({
  explains:
    "Each stage shows the true numbers of the model." +
    (data.after > 2 ? " Choose a token and one number of the vectors; a vector is drawn as a strip, blue above zero, " +
      "orange below, stronger for larger numbers." : ""),
  parts: [
    ...(chosen.length ? [controls] : []), ...stages.map(({ root }) => root),
    ...(stages.length < ALL.length ? [make("p", { class: "note", id: "next" }, `The next stage comes with lesson ${next}.`)] : []),
  ],
  keys: "Choose a control by Tab and change it with the arrow keys, or click into a vector.",
  again: () => {
    state = initial();
    render();
  },
});
render();
