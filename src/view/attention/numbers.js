// The numbers of the page: the embedded queries and keys, and the weights that follow from them.

const { tokens, heads, size } = data;
const count = tokens.length;
// The first token of the second text.
const second = data.second ?? count;

// (layers, query or key, heads, tokens): the factor of each vector's whole numbers.
const scales = new Float32Array(bytes(data.scales));
// (layers, query or key, heads, tokens, size).
const vectors = new Int16Array(bytes(data.vectors));
const QUERY = 0;
const KEY = 1;

// Returns the queries or the keys of all tokens in a head: (tokens, size).
function vectorsOf(layer, kind, head) {
  const first = ((layer * 2 + kind) * heads + head) * count;
  const out = new Float32Array(count * size);
  for (let i = 0; i < out.length; i++) {
    out[i] = vectors[first * size + i] * scales[first + Math.floor(i / size)];
  }
  return out;
}

// Returns the products of a token's query with the keys of all tokens.
function dots(queries, keys, token) {
  const out = new Float64Array(count);
  for (let other = 0; other < count; other++) {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += queries[token * size + i] * keys[other * size + i];
    out[other] = sum;
  }
  return out;
}

// Returns shares of attention from the products of a query with the keys.
const sharesOf = (products) => softmax(products.map((x) => x / Math.sqrt(size)));

// Most weights that are cached: 64 MiB.
const KEPT = 1 << 24;
const kept = new Map();

// Returns the weights of a head: (tokens, tokens).
function weights(layer, head) {
  const key = layer * heads + head;
  let found = kept.get(key);
  if (found) return found;
  found = new Float32Array(count * count);
  const [queries, keys] = [QUERY, KEY].map((kind) => vectorsOf(layer, kind, head));
  for (let token = 0; token < count; token++) {
    found.set(sharesOf(dots(queries, keys, token)), token * count);
  }
  while (kept.size && (kept.size + 1) * found.length > KEPT) kept.delete(kept.keys().next().value);
  kept.set(key, found);
  return found;
}

const FILTERS = data.second === null ? ["all"] : ["all", "A → A", "A → B", "B → A", "B → B"];

// Returns the tokens on either side that pass the filter.
function sides(filter) {
  const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
  const part = { A: range(0, second), B: range(second, count) };
  if (filter === "all") return { from: range(0, count), to: range(0, count) };
  return { from: part[filter.at(0)], to: part[filter.at(-1)] };
}

// Describes where most of a head's attention goes: its mean share for each simple rule.
function habit(layer, head) {
  const w = weights(layer, head);
  const named = (name) => (token, other) => tokens[other] === name;
  const rules = {
    "the token itself": (token, other) => token === other,
    "the token before": (token, other) => token === other + 1,
    "the next token": (token, other) => token + 1 === other,
    "[CLS]": named("[CLS]"),
    "[SEP]": named("[SEP]"),
  };
  let best = ["", 0];
  for (const [name, holds] of Object.entries(rules)) {
    let sum = 0;
    for (let token = 0; token < count; token++) {
      for (let other = 0; other < count; other++) {
        if (holds(token, other)) sum += w[token * count + other];
      }
    }
    if (sum / count > best[1]) best = [name, sum / count];
  }
  const most = `${percent(best[1])} of its attention goes to ${best[0]}`;
  return best[1] < 0.3 ? `spread out: only ${most}` : most;
}
