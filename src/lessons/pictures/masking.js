// The 80/10/10 rule: which tokens are chosen, and what the model sees in their place.

const SEED = 1;
// Examples that are counted.
const MANY = 1000;
const { ids, vocabulary, mask } = data.sentence;
// The ids of the special tokens come first.
const special = range(5);
const replacements = range(vocabulary.length).filter((id) => !special.includes(id));
const initial = () => ({ example: 0, share: 15, masked: 8, random: 1, whole: false });
let state = initial();

// Returns what can be chosen, as pairs of start and length: single tokens or whole words.
function groups() {
  const out = [];
  for (const [position, id] of ids.entries()) {
    if (special.includes(id)) continue;
    const last = out.at(-1);
    const continues = state.whole && vocabulary[id].startsWith("##");
    if (continues && last && last[0] + last[1] === position) last[1]++;
    else out.push([position, 1]);
  }
  return out;
}

// Returns what the model sees, and what became of each chosen position, as the crate's masker does.
function masked(example) {
  const draws = new Draws(SEED, SITE.masking, example);
  const all = groups();
  const candidates = total(all.map(([, length]) => length));
  const wanted = Math.max(1, Math.floor((candidates * state.share) / 100 + draws.uniform()));
  const chosen = [];
  for (let index = 0; index < all.length && chosen.length < wanted; index++) {
    const other = index + draws.below(all.length - index);
    [all[index], all[other]] = [all[other], all[index]];
    const [start, length] = all[index];
    if (!chosen.length || chosen.length + length <= wanted) chosen.push(...range(length).map((i) => start + i));
  }
  const seen = [...ids];
  const fates = new Map();
  for (const position of chosen.sort((a, b) => a - b)) {
    const tenth = draws.below(10);
    if (tenth < state.masked) {
      seen[position] = mask;
      fates.set(position, "[MASK]");
    } else if (tenth < state.masked + state.random) {
      seen[position] = replacements[draws.below(replacements.length)];
      fates.set(position, "random");
    } else {
      fates.set(position, "kept");
    }
  }
  return { seen, fates };
}

const change = (name) => (value) => {
  state[name] = value;
  // The two shares are at most ten tenths together.
  if (name === "masked") state.random = Math.min(state.random, 10 - value);
  if (name === "random") state.masked = Math.min(state.masked, 10 - value);
  render();
};
const tenths = (value) => `${10 * value} %`;
const controls = {
  example: new Slider({ label: "Example", min: 0, max: MANY - 1 }, change("example")),
  share: new Slider({ label: "Chosen", min: 5, max: 60, step: 5, show: (x) => `${x} %` }, change("share")),
  masked: new Slider({ label: "of these [MASK]", min: 0, max: 10, show: tenths }, change("masked")),
  random: new Slider({ label: "random token", min: 0, max: 10, show: tenths }, change("random")),
};
const kept = make("p", { id: "kept" });
const whole = make("input", { type: "checkbox", onchange: () => change("whole")(whole.checked) });

const strip_ = make("ol", { class: "sequence", "aria-label": "The sentence, token by token" });
const said = make("p", { id: "said" });
const counts = ["chosen", "seen as [MASK]", "seen as a random token", "seen as it is"].map((name) => [
  name, number(0), number(0),
]);
const numbers = table(`${MANY} examples of the sentence, counted`, ["tokens", "number", "share"], counts);
const visible = make("p", { class: "value", id: "visible" });

const question = new Question(
  "Set the shares so that the model could ignore all words that it can see, because it is never asked for one of them. " +
  "Why does BERT do it differently?",
  "With [MASK] at 100 % only the places of [MASK] are asked for. The model would need good vectors there and nowhere " +
  "else, and fine-tuning, which has no [MASK], reads just the others. With 80/10/10 about one in thirty visible words " +
  "is asked for, and nothing tells which: it may be wrong or right. So every word's vector has to say what fits at " +
  "its place. The price is small: few tokens of the text are wrong.");

function render() {
  const { seen, fates } = masked(state.example);
  strip_.replaceChildren(...ids.map((id, position) => {
    const fate = fates.get(position) ?? "";
    return make("li", { class: fate ? `fate ${fate.replace(/\W/g, "")}` : "" },
      make("bdi", { class: special.includes(id) ? "text special" : "text" }, vocabulary[id]),
      make("bdi", { class: "text seen" }, vocabulary[seen[position]]),
      make("span", { class: "note" }, fate));
  }));
  const asked = [...fates.keys()].map((position) => vocabulary[ids[position]]);
  said.textContent = `The model is asked for: ${asked.map((token) => `“${token}”`).join(", ")}.`;
  const tally = { "[MASK]": 0, random: 0, kept: 0 };
  let readable = 0;
  for (const example of range(MANY)) {
    const found = masked(example);
    for (const fate of found.fates.values()) tally[fate]++;
    readable += found.seen.filter((id) => !special.includes(id)).length;
  }
  const chosen = tally["[MASK]"] + tally.random + tally.kept;
  const candidates = MANY * ids.filter((id) => !special.includes(id)).length;
  for (const [i, count] of [chosen, tally["[MASK]"], tally.random, tally.kept].entries()) {
    write(counts[i][1], count, String(count));
    write(counts[i][2], count / candidates, percent(count / candidates));
  }
  const asked_ = (tally.random + tally.kept) / readable;
  visible.textContent =
    `Of the ${readable} visible words the model is asked for ${tally.random + tally.kept}: ${percent(asked_)}.`;
  for (const [name, slider] of Object.entries(controls)) slider.set(state[name]);
  whole.checked = state.whole;
  kept.textContent = `kept as it is: ${tenths(10 - state.masked - state.random)}`;
  question.check(asked_ === 0, `Not yet: it is asked for ${percent(asked_)} of the words that it sees.`);
}

show({
  explains:
    "Masked language modelling chooses 15 % of the tokens and asks the model for them. In their place it sees [MASK] " +
    "(80 %), a random token (10 %), or the token itself (10 %). Below, each box has the token of the text, and in bold what " +
    `the model sees. Every example draws anew; these are the draws of the crate with seed ${SEED}.`,
  parts: [
    controlBar(
      ...Object.values(controls).map((slider) => slider.root), kept,
      make("label", { class: "check" }, whole, " choose whole words"),
    ),
    viewGrid(
      make("div", { class: "whole" }, strip_, said),
      make("div", { class: "whole" }, numbers, visible),
    ),
    question.root,
  ],
  keys: "Choose a slider by Tab and move it with the arrow keys.",
  again: () => {
    state = initial();
    render();
  },
});
render();
