// Learning-rate schedules with the runs that had them, and six runs of which five are sick. The curves are real:
// data.runs says how they were made.

const { steps, every, peaks, warmups, decays, unigram, faults } = data.runs;
const START_LOSS = Math.log(data.runs.vocabulary);
const DIAGNOSES = {
  None: "none: this run is healthy",
  Over: "every rate is 0, as after the end of the schedule",
  Shifted: "the labels belong to other masked tokens",
  Visible: "nothing is masked: the answers are visible",
  Fast: "the rate is thirty times too high",
  Placeless: "every token has the position 0",
};
const PATIENTS = ["Placeless", "Fast", "None", "Visible", "Over", "Shifted"];
const initial = () => ({ peak: 3, warmup: 1, decay: 0, step: 100, patient: 0, named: PATIENTS.map(() => "") });
let state = initial();

// Returns the learning rate of a step, counted from 1, as the crate's schedule does.
function rate({ peak, warmup, total, decay }, step) {
  if (step < warmup) return (peak * step) / warmup;
  const left = Math.min(1, (Math.max(0, total - step) + 1) / (total - Math.min(warmup, total) + 1));
  if (decay === "constant") return peak;
  return peak * (decay === "linear" ? left : 0.5 - 0.5 * Math.cos(Math.PI * left));
}

// Returns the points of a curve of means over `every` steps, each at the middle of its steps.
const points = (means) => means.map((value, i) => [i * every + (every + 1) / 2, value]);
const thousands = (x) => `${num(1000 * x, 2)} · 10⁻³`;

const stepAxis = () => ({
  from: 0,
  to: steps,
  title: "step",
  ticks: range(7).map((i) => [(i * steps) / 6, String((i * steps) / 6)]),
});
const axis = (from, to, title, ticks) => ({ from, to, title, ticks: ticks.map((x) => [x, String(x)]) });
const rates = new Chart("The learning rate of each step", stepAxis(),
  {
    from: 0,
    to: 1,
    title: "share of the peak",
    ticks: [0, 0.5, 1].map((x) => [x, String(x)]),
  });
const losses = new Chart("The loss of the run with this schedule", stepAxis(),
  axis(0, 10, "nats a masked token", [0, 2, 4, 6, 8, 10]));
const words = new Chart("A patient's loss on masked words", stepAxis(),
  axis(0, 10, "nats a masked token", [0, 2, 4, 6, 8, 10]));
const pairs = new Chart("A patient's loss on pairs", stepAxis(), axis(0, 2.5, "nats a pair", [0, 0.5, 1, 1.5, 2, 2.5]));

// Draws a value to compare with as a dotted line.
const reference = (chart, value) => chart.line([[0, value], [steps, value]], "reference");
const dotted = make("p", { class: "note" },
  `Dotted: ${num(START_LOSS, 2)} nats a token, guessing among ${data.runs.vocabulary} pieces; ${num(unigram, 2)}, knowing ` +
  `how often each occurs; ${num(Math.LN2, 2)} nats a pair, guessing.`);

const choose = make("div", { class: "controls" });
const cursor = new Slider({ label: "Step", min: 1, max: steps }, (step) => {
  state.step = step;
  render();
});
const now = make("p", { class: "value", id: "now" });
const rateNow = number(0);
const lossNow = number(0);
const endNow = number(0);
now.append("Its learning rate is ", rateNow, ", the loss around it ", lossNow, ", the loss at the end ", endNow,
  " nats a masked token.");
const patients = make("div");
const diagnosis = make("select", {
  id: "diagnosis",
  onchange: () => {
    state.named[state.patient] = diagnosis.value;
    render();
  },
}, make("option", { value: "" }, "– choose –"),
...Object.entries(DIAGNOSES).map(([fault, text]) => make("option", { value: fault }, text)));
const ends = make("p", { class: "value", id: "ends" });

const question = new Question(
  "Six runs had the same text, the same start and the schedule of 2 · 10⁻³ with a warm-up of 30 steps and linear decay. " +
  "One is healthy, each of the others has one fault. Which run has which?",
  "Run 1 has no positions: it learns, but falls behind. Run 2 has a rate thirty times too high: it knows how often a word " +
  "occurs and no more, and its pairs go wild. Run 3 is healthy: it falls below the entropy of single words, and its " +
  "start is that of guessing, ln V. Run 4 sees the answers: no honest loss falls to 0. Run 5 has the rate 0 and stays " +
  "where it began. Run 6 learns the frequencies of words, but not the context, for the labels belong to other places.");

// A choice that is drawn again keeps its focus.
function chooser(where, legend, options, chosen, pick) {
  const focused = where.contains(document.activeElement);
  where.replaceChildren(radios(legend, options, chosen, pick));
  if (focused) where.querySelector(":checked").focus();
}

const spots = ["peak", "warmup", "decay"].map(() => make("div"));
choose.append(...spots);
const set = (name) => (value) => {
  state[name] = value;
  render();
};

function render() {
  const index = (values, text) => values.map((value, i) => [i, text(value)]);
  chooser(spots[0], "Peak, in 10⁻³", index(peaks, (x) => String(Number((1000 * x).toPrecision(3)))), state.peak, set("peak"));
  chooser(spots[1], "Warm-up", index(warmups, (x) => (x ? `${x} steps` : "none")), state.warmup, set("warmup"));
  chooser(spots[2], "Decay", index(decays, String), state.decay, set("decay"));
  chooser(patients, "Run", PATIENTS.map((_, i) => [i, String(i + 1)]), state.patient, set("patient"));
  const schedule = {
    peak: peaks[state.peak],
    warmup: warmups[state.warmup],
    total: steps,
    decay: decays[state.decay],
  };
  cursor.set(state.step);
  rates.clear();
  rates.line(range(steps).map((i) => [i + 1, rate(schedule, i + 1) / schedule.peak]), "blue");
  rates.cursor(state.step);
  const means = data.runs.runs[state.peak][state.warmup][state.decay];
  losses.clear();
  losses.line(points(means), "orange");
  reference(losses, START_LOSS);
  reference(losses, unigram);
  losses.cursor(state.step);
  const here = rate(schedule, state.step);
  write(rateNow, here, thousands(here));
  const mean = means[Math.floor((state.step - 1) / every)];
  write(lossNow, mean, num(mean, 2));
  write(endNow, means.at(-1), num(means.at(-1), 2));

  const curves = faults[PATIENTS[state.patient]];
  words.clear();
  words.line(points(curves.tokens), "orange");
  reference(words, START_LOSS);
  reference(words, unigram);
  pairs.clear();
  pairs.line(points(curves.pairs), "orange");
  reference(pairs, Math.LN2);
  ends.textContent =
    `Run ${state.patient + 1} starts at ${num(curves.tokens[0], 2)} and ends at ${num(curves.tokens.at(-1), 2)} nats a ` +
    `masked token, and at ${num(curves.pairs.at(-1), 2)} nats a pair.`;
  diagnosis.value = state.named[state.patient];
  const right = PATIENTS.filter((fault, i) => state.named[i] === fault).length;
  question.check(right === PATIENTS.length, `${right} of ${PATIENTS.length} are right.`);
}

show({
  explains:
    `Every curve is a real run: ${steps} steps of pre-training of a tiny BERT, a point for the mean of ${every} steps. ` +
    "Choose a schedule, and see what became of the run that had it. The peak is the largest rate; before it comes the " +
    "warm-up, after it the decay.",
  parts: [
    controlBar(choose, cursor.root),
    viewGrid(
      make("div", {}, make("h2", {}, "The schedule"), rates.svg),
      make("div", {}, make("h2", {}, "The run that had it"), losses.svg),
      make("div", { class: "whole" }, now),
      make("div", { class: "whole controls" }, make("h2", {}, "Six runs, five of them sick"), patients,
        make("div", { class: "stepper" }, make("label", { for: "diagnosis" }, "Its fault"), diagnosis)),
      make("div", {}, words.svg),
      make("div", {}, pairs.svg),
      make("div", { class: "whole" }, dotted, ends),
    ),
    question.root,
  ],
  keys: "Choose a control by Tab and change it with the arrow keys.",
  again: () => {
    state = initial();
    render();
  },
});
render();
