// The numbers of the page that follows a token: those in the file, and those that follow from them.

const { tokens, width, heads, blank, vocabulary, answer } = data;
const count = tokens.length;
const size = width / heads;
const layers = data.layers.length;

// Returns the numbers of an array in the file, as an ordinary list.
const unpack = (text) => [...new Float32Array(bytes(text))];
const rowOf = (all, row, length) => all.slice(row * length, (row + 1) * length);
const add = (a, b) => a.map((x, i) => x + b[i]);

// Returns a LayerNorm as a function of a row.
function norm({ weight, bias }) {
  const [factors, offsets] = [unpack(weight), unpack(bias)];
  return (x) => {
    const { mean, deviation, y } = normalised(x, data.epsilon);
    return { mean, deviation, y: y.map((v, i) => v * factors[i] + offsets[i]), factors, offsets };
  };
}

// Returns the error function of a number that is not negative (Numerical Recipes, section 6.2: to 1.2e-7).
function erf(x) {
  const t = 1 / (1 + 0.5 * x);
  const series = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
    -0.82215223, 0.17087277,
  ];
  const sum = series.reduceRight((sum, factor) => sum * t + factor, 0);
  return 1 - t * Math.exp(-x * x + sum);
}

const gelu = (x) => 0.5 * x * (1 + Math.sign(x) * erf(Math.abs(x) / Math.SQRT2));

// The sum of the embeddings' rows of each token, and its LayerNorm.
const embedded = ["word", "segment", "position"].map((table) => unpack(data.embeddings[table]));
const embeddingNorm = norm(data.embeddings.norm);
const embeddings = range(count).map((token) => {
  const rows = embedded.map((table) => rowOf(table, token, width));
  const sum = add(add(rows[0], rows[1]), rows[2]);
  return { rows, sum, ...embeddingNorm(sum) };
});

// What each layer computes; its input is the output of the layer before.
const steps = [];
for (const layer of data.layers) {
  const before = steps.length ? steps.at(-1).output : embeddings.map(({ y }) => y);
  const [queries, keys, values, attended, inner, output] =
    ["queries", "keys", "values", "attended", "inner", "output"].map((name) => unpack(layer[name]));
  const [middleNorm, outputNorm] = [norm(layer.middle), norm(layer.norm)];
  const ofHead = (all, head, token) => rowOf(all, head * count + token, size);
  const rows = range(count).map((token) => {
    const block = rowOf(attended, token, width);
    const middle = middleNorm(add(before[token], block));
    const wide = rowOf(inner, token, data.inner);
    const forward = rowOf(output, token, width);
    return { block, middle, wide, forward, final: outputNorm(add(middle.y, forward)) };
  });
  steps.push({
    before,
    rows,
    output: rows.map(({ final }) => final.y),
    // Returns what a head computes for a token.
    head(head, token) {
      const query = ofHead(queries, head, token);
      const key = range(count).map((other) => ofHead(keys, head, other));
      const value = range(count).map((other) => ofHead(values, head, other));
      const dots = key.map((k) => product(query, k));
      const weights = softmax(dots.map((x) => x / Math.sqrt(size)));
      const context = range(size).map((i) => total(weights.map((w, other) => w * value[other][i])));
      return { query, key, value, dots, weights, context };
    },
  });
}

const logits = unpack(data.head.logits);
const probabilities = softmax(logits);
const untrained = softmax(unpack(data.untrained));
const loss = (probabilities) => -Math.log(probabilities[answer]);

// Returns the most probable pieces, and the answer if it is not among them.
function best(probabilities, many) {
  const order = range(probabilities.length).sort((a, b) => probabilities[b] - probabilities[a]);
  const out = order.slice(0, many);
  return out.includes(answer) ? out : [...out, answer];
}
