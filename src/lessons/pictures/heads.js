// The width split into heads, attention in each, and the heads joined again.

const TOKENS = ["the", "cat", "sat", "down"];
const X = [
  [0.4, -0.2, 1.1, 0.3, -0.7, 0.9],
  [1.6, 0.8, -0.5, 1.2, 0.2, -1.1],
  [-0.9, 1.4, 0.6, -1.3, 1.7, 0.1],
  [-0.3, 1.0, -1.2, 0.5, 1.3, -0.6],
];
const [S, H] = [X.length, X[0].length];
const initial = () => ({ heads: 3, token: 1, column: 3, back: true });
let state = initial();

// Returns the weights and the output of each head; queries, keys and values are its columns of X.
function attention(heads) {
  const size = H / heads;
  return range(heads).map((head) => {
    const part = X.map((row) => row.slice(head * size, (head + 1) * size));
    const weights = part.map((q) => softmax(part.map((k) => product(q, k) / Math.sqrt(size))));
    const context = weights.map((row) => range(size).map((i) => total(row.map((w, j) => w * part[j][i]))));
    return { part, weights, context };
  });
}

// Returns the joined matrix, rows by tokens; for each number also where it comes from.
function joined(all) {
  const size = H / all.length;
  const of = (head, token, i) => ({ head, token, i, value: all[head].context[token][i] });
  // In memory the heads' outputs stand head after head.
  const memory = range(all.length).flatMap((head) =>
    range(S).flatMap((token) => range(size).map((i) => of(head, token, i))));
  const rows = (flat) => range(S).map((row) => flat.slice(row * H, (row + 1) * H));
  if (!state.back) return rows(memory);
  return range(S).map((token) => range(H).map((h) => of(Math.floor(h / size), token, h % size)));
}

const pick = (token, column) => {
  [state.token, state.column] = [clamp(token, 0, S - 1), clamp(column, 0, H - 1)];
  render();
  return byId("x").querySelector("[tabindex='0']").focus();
};

const tint = (value) => {
  const [r, g, b] = value < 0 ? BELOW : ABOVE;
  return `rgb(${r} ${g} ${b} / ${Math.round(Math.min(1, Math.abs(value) / 2) * 70)}%)`;
};

// Returns a matrix as a table of cells, each with a text, a colour, and whether it is the chosen number.
function matrix(name, rows, names = TOKENS) {
  const body = rows.map((row, i) => make("tr", {}, make("th", { scope: "row" }, names[i]),
    ...row.map(({ value, text = num(value, 2), chosen = false, head = null }) => {
      const cell = make("td", { class: chosen ? "number chosen" : "number" }, number(value, text));
      cell.style.background = tint(value);
      if (head !== null) cell.style.boxShadow = `inset 0 -3px ${color(head)}`;
      return cell;
    })));
  const about = make("caption", {}, name);
  return make("table", { class: "matrix" }, about, make("tbody", {}, ...body));
}

const heads = make("div");
const back = make("input", {
  type: "checkbox",
  onchange: () => {
    state.back = back.checked;
    render();
  },
});
const whole = make("div", { id: "x", class: "scroll" });
const parts = make("div", { class: "parts", id: "parts" });
const result = make("div", { class: "scroll", id: "joined" });
const path = make("p", { class: "value", id: "path" });
whole.addEventListener("keydown", (event) => {
  const direction = DIRECTIONS[event.key];
  if (!direction || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  pick(state.token - direction[1], state.column + direction[0]);
});

const question = new Question(
  "With three heads, join them without bringing the tokens back to the front. The shapes still fit, and nothing " +
  "complains. Find a number, not of the first token, that lands in its place all the same.",
  "Only the first and the last number do: “the”, column 0, and “down”, column 5. All others land in another " +
  "token's row or in another column, so each token gets parts of other tokens. The shape (4, 6) is right either way: " +
  "a test that compares numbers finds the mistake, the compiler does not. In the crate the transposition is " +
  "`permute`, and only after it comes `reshape`.");

function render() {
  const size = H / state.heads;
  const all = attention(state.heads);
  const rows = joined(all);
  const head = Math.floor(state.column / size);
  const i = state.column % size;
  heads.replaceChildren(radios("Heads", [1, 2, 3, 6].map((n) => [n, String(n)]), state.heads, (n) => {
    state.heads = n;
    render();
    heads.querySelector(":checked").focus();
  }));
  back.checked = state.back;
  const cells = X.map((row, token) => row.map((value, column) => ({
    value,
    head: Math.floor(column / size),
    chosen: token === state.token && column === state.column,
  })));
  const left = matrix("X: 4 tokens, 6 columns", cells);
  for (const [token, row] of [...left.tBodies[0].rows].entries()) {
    for (const [column, cell] of [...row.cells].slice(1).entries()) {
      const chosen = token === state.token && column === state.column;
      const button = make("button", {
        type: "button",
        tabindex: chosen ? 0 : -1,
        "aria-pressed": String(chosen),
        "aria-label": `${TOKENS[token]}, column ${column}: ${num(X[token][column], 2)}`,
        onclick: () => pick(token, column),
      }, ...cell.childNodes);
      cell.append(button);
    }
  }
  whole.replaceChildren(left);
  const here = (token, column) => token === state.token && column === i;
  parts.replaceChildren(...all.map(({ part, weights, context }, h) => {
    const of = (matrix) => matrix.map((row, token) => row.map((value, column) => ({
      value,
      chosen: h === head && here(token, column),
    })));
    const shares = weights.map((row) => row.map((value) => ({ value, text: String(Math.round(100 * value)) })));
    const weighted = matrix("weights, in %", shares);
    weighted.classList.add("shares");
    const group = make("section", { class: "head", "aria-label": `head ${h}` },
      make("h2", {}, `Head ${h}`),
      matrix(size > 1 ? `columns ${h * size} to ${(h + 1) * size - 1}` : `column ${h}`, of(part)),
      weighted, matrix("output", of(context)));
    group.style.borderColor = color(h);
    return group;
  }));
  let landed = null;
  const out = rows.map((row, token) => row.map((from, column) => {
    const chosen = from.head === head && here(from.token, from.i);
    if (chosen) landed = [token, column];
    return { value: from.value, head: from.head, chosen };
  }));
  result.replaceChildren(matrix(state.back ? "joined, for the next layer" : "joined without transposing", out));
  const [token, column] = landed;
  const name = TOKENS[state.token];
  const at = (head * S + state.token) * size + i;
  path.textContent =
    `Column ${state.column} of “${name}” is number ${i} of head ${head}: ${state.column} = ${head} · ${size} + ${i}. ` +
    `The head's output for it, ${num(all[head].context[state.token][i], 2)}, stands at place ${at} in memory, ` +
    `(${head} · 4 + ${state.token}) · ${size} + ${i}, and lands in the row of “${TOKENS[token]}”, column ${column}` +
    (token === state.token && column === state.column ? ", where it belongs." : ": not its own place.");
  const right = token === state.token && column === state.column;
  question.check(state.heads === 3 && !state.back && right && state.token > 0,
    state.heads !== 3 ? "Choose three heads." : state.back ? "The heads are joined rightly: switch the transposing off." :
      right ? "That is the first token." : `Not yet: it lands in the row of “${TOKENS[token]}”, column ${column}.`);
}

show({
  explains:
    "A layer of width 6 has 1, 2, 3 or 6 heads. Each takes its own columns as queries, keys and values, computes its " +
    "own weights, and returns as many columns; side by side they are as wide as before. (In BERT three linear " +
    "layers come first; here queries, keys and values are X itself.)",
  parts: [
    controlBar(heads, make("label", { class: "check" }, back, " transpose back before joining")),
    viewGrid(
      make("div", {}, whole),
      make("div", {}, result),
      make("div", { class: "whole" }, path),
      make("div", { class: "whole scroll" }, parts),
    ),
    question.root,
  ],
  keys: "Click a number of X, or choose it by Tab and the arrow keys, and follow it.",
  again: () => {
    state = initial();
    render();
  },
});
render();
