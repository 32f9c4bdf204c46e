// ---
// title = "The optimizer: schedule, clipping, AdamW"
// summary = "Write the learning-rate schedule, clipping and AdamW by hand, each equal to the crate's, see what each is for, and recognise sick runs by their curves."
// track = "core"
// minutes = 53
// seconds = 35
// needs = ["08"]
//
// [[exercise]]
// id = "10.1"
// key = "rate"
// was = "07.2"
// title = "Warm-up and decay"
// hints = [
//     "The schedule is two straight lines. Before the warm-up ends, the rate is peak · step / warmup.",
//     "From step `warmup` on it falls. The last step, `total`, should still learn something, so count the remaining steps including the current one: total - step + 1.",
//     "`peak * (total - step + 1) as f64 / (total - warmup + 1) as f64`: at step `warmup` this is the peak.",
// ]
//
// [[exercise]]
// id = "10.2"
// key = "clip"
// was = "07.3"
// title = "Clip by the global norm"
// hints = [
//     "The norm is the square root of the sum of the squares of *all* numbers. Add them up in f64: `f64::from(*g)`.",
//     "If the norm is above `max_norm`, multiply every number by max_norm / norm, which keeps the direction. Otherwise change nothing.",
//     "Return the norm before clipping: after it, it would be 1.000 at every step.",
// ]
//
// [[exercise]]
// id = "10.3"
// key = "adamw"
// was = "07.4"
// title = "AdamW"
// hints = [
//     "For each i: `first[i] = BETA1 * first[i] + (1.0 - BETA1) * g`, and the same for `second` with BETA2 and g².",
//     "Both moments started at 0 and are too small at first: divide them by 1 - BETA1^step and 1 - BETA2^step. `BETA1.powi(step as i32)` is a power.",
//     "The direction is m̂ / (√v̂ + EPSILON). If `decay[i]`, add DECAY · value to it. Subtract `rate` times the direction.",
//     "Weight decay is no part of the gradient: it must not enter the two moments.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 10 · The optimizer: schedule, clipping, AdamW
    //
    // A training run is a short loop:
    //
    // ```text
    // for each step:
    //     gradients of the loss on the next batch      (lesson 08)
    //     clip them                                     (here)
    //     learning rate of this step                    (here)
    //     AdamW updates the parameters                  (here)
    // ```
    //
    // A mistake in any of these lines can ruin weeks of computing without an error message. You write
    // the last three; in lesson 11 they pre-train your BERT.
    //
    // *About 53 minutes; the longest cell trains for about a quarter of a minute on two cores. You
    // need lesson 08.*

    // %%
    use cloze::engine::global_norm;
    use cloze::engine::optimizer::{Moments, Update};
    use cloze::lessons::largest_gap;
    use cloze::lessons::support::pretraining;
    use cloze::lessons::support::yours::Material;
    use cloze::model::Dropout;
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::train::Schedule;
    use cloze::view::Flow;

    // %% [markdown]
    // ## Where we are going

    // %%
    show!(
        Flow::new("One step of pre-training", "step number t")
            .step("batch t", "a function of the seed and t alone")
            .step("forward", "logits of masked tokens and of pairs")
            .step("joint loss", "two means, added")
            .step("backward", "a gradient for each parameter")
            .step("clip", "the norm of all gradients together: at most 1")
            .step("AdamW", "at the rate that the schedule sets for t")
            .step("now and then", "measure on held-out text, save")
    );

    // %% [markdown]
    // The paper trains BERT for 1,000,000 steps of 256 sequences with Adam: peak rate $10^{-4}$,
    // warm-up over the first 10,000 steps, then linear decay to 0; weight decay 0.01 ([Devlin et al.
    // 2019](https://arxiv.org/abs/1810.04805), appendix A.2). This lesson explains each of these
    // words. Here is the same on a small scale: a tiny BERT without dropout, and the generated
    // stories, cut into pairs of sentences.

    // %%
    let Material {
        tokenizer,
        data,
        config,
        layout,
        ..
    } = Material::new(None)?;
    let start: Vec<f32> = layout.initialise(1);
    let mut model: CpuEngine = CpuEngine::new(&config, &layout, start.clone())?;
    let batch: PretrainingBatch = data.batch(0, 16)?;
    println!(
        "{} parameters; a batch of 16 pairs has {} tokens, {} of them masked",
        layout.total(),
        batch.packed.rows(),
        batch.masked_rows.len()
    );

    // %% [markdown]
    // ## Step 1: the schedule
    //
    // Large steps at the start can ruin an untrained model: the optimizer knows nothing about the
    // size of the gradients yet, and in a post-norm model those near the output are large at first
    // ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745)). So the rate climbs from almost nothing
    // to its peak: the **warm-up**. Later it falls, so that the model settles instead of jumping
    // around a good point. BERT does both in straight lines.
    //
    // **Exercise 10.1.** Return the rate of step `step`, counted from 1. At step `warmup` it is the
    // peak. Before, it is proportional to the step. After, it falls by the same amount at each step.
    // The last step is `total`, and one step later the rate would be 0.

    // %%
    fn rate(step: u64, peak: f64, warmup: u64, total: u64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("10.1");
        if step < warmup {
            peak * step as f64 / warmup as f64
        } else {
            peak * (total - step + 1) as f64 / (total - warmup + 1) as f64
        }
        // END SOLUTION
    }

    // %%
    check!("10.1", |judge| {
        judge.close(
            "the rate at step 5 of a warm-up of 10, peak 1,",
            rate(5, 1.0, 10, 100),
            0.5,
            1e-9,
            "Half of the warm-up, half of the peak. 0? `step / warmup` in integers is 0: convert \
             first. 0.4? Steps are counted from 1.",
        );
        judge.holds(
            "the first step learns something",
            rate(1, 1.0, 10, 100) > 0.0,
            "Steps are counted from 1: with step - 1 the first one is wasted.",
        );
        judge.close(
            "the rate at step 10, the end of the warm-up,",
            rate(10, 1.0, 10, 100),
            1.0,
            1e-9,
            "Both lines meet here, at the peak.",
        );
        judge.holds(
            "the last step learns something",
            rate(100, 1.0, 10, 100) > 0.0,
            "The rate is 0 one step *after* the last: 91 steps of decay, from 91/91 down to 1/91.",
        );
        judge.close(
            "the rate at step 100 of 100",
            rate(100, 1.0, 10, 100),
            1.0 / 91.0,
            1e-9,
            "From the peak at step 10 down to 0 at step 101 there are 91 steps, not 90 or 100: one step \
             before 0 the rate is 1/91. The count is total - warmup + 1.",
        );
        for (warmup, total) in [(10, 100), (1, 50), (100, 1000)] {
            let schedule = Schedule::linear(3e-4, warmup, total);
            for step in 1..=total {
                judge.close(
                    &format!("the rate at step {step} (warm-up {warmup}, {total} steps)"),
                    rate(step, 3e-4, warmup, total),
                    schedule.rate(step),
                    1e-12,
                    "This is what the crate's `Schedule` returns.",
                );
            }
        }
    });

    // %%
    if solved!("10.1") {
        let paper: Vec<(f64, f64)> = (1..=1000)
            .map(|thousand| thousand * 1000)
            .map(|step| (step as f64, rate(step, 1e-4, 10_000, 1_000_000)))
            .collect();
        show!(
            LineChart::new("The paper's schedule: 10,000 steps up, 990,000 down")
                .axes("step", "learning rate")
                .line("rate", &paper)
        );
    }

    // %% [markdown]
    // ## Step 2: clipping
    //
    // Now and then a batch has a gradient many times as long as usual, and one such step can undo a
    // thousand others. So the vector $g$ of *all* gradients is shortened to a norm of at most $c$,
    // which is 1 in BERT ([Pascanu et al. 2013](https://arxiv.org/abs/1211.5063), section 3.2):
    //
    // $$ g \leftarrow g \cdot \min\!\Big(1, \frac{c}{\lVert g \rVert}\Big), \qquad
    //    \lVert g \rVert = \sqrt{\textstyle\sum_i g_i^2} $$
    //
    // **Exercise 10.2.** Clip the gradients in place, and return the norm that they had before.

    // %%
    fn clip(gradients: &mut [f32], max_norm: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("10.2");
        let sum: f64 = gradients.iter().map(|g| f64::from(*g).powi(2)).sum();
        let norm = sum.sqrt();
        if norm > max_norm {
            let scale = (max_norm / norm) as f32;
            gradients.iter_mut().for_each(|g| *g *= scale);
        }
        norm
        // END SOLUTION
    }

    // %%
    check!("10.2", |judge| {
        let mut long = [3.0, -4.0];
        let norm = clip(&mut long, 1.0);
        judge.holds(
            "[3, -4] clipped to norm 1 keeps its direction",
            long != [1.0, -1.0],
            "You clipped each number separately, which changes the direction. Shorten the whole \
             vector.",
        );
        judge.holds(
            "[3, -4] clipped to norm 1 is [0.6, -0.8]",
            (long[0] - 3.0 / 7.0).abs() > 1e-4,
            "You divided by the sum of absolute values, 7. Take the root of the sum of squares, 5.",
        );
        let kept = [0.6f32, -0.8]
            .iter()
            .zip(&long)
            .all(|(a, b)| (a - b).abs() < 1e-6);
        judge.holds(
            &format!("[3, -4] clipped to norm 1 is [0.6, -0.8], yours is {long:?}"),
            kept,
            "Its norm is 5: everything is multiplied by 1 / 5. [0.12, -0.16]? 25 is the sum of \
             squares: take its root.",
        );
        judge.close(
            "the returned norm",
            norm,
            5.0,
            1e-6,
            "Return the norm before clipping: after it, it would be 1 at every step, and nobody would \
             notice a run that becomes unstable.",
        );
        let mut short = [0.3, -0.4];
        clip(&mut short, 1.0);
        judge.equal(
            "[0.3, -0.4], whose norm is 0.5, clipped to 1",
            short,
            [0.3, -0.4],
            "It is shorter than the limit and stays. Clipping never makes a gradient longer.",
        );
        let mut zero = [0.0, 0.0];
        clip(&mut zero, 1.0);
        judge.equal("a gradient of zeros", zero, [0.0, 0.0], "NaN is 0 / 0.");
        let _ = model.discard();
        let dropout = Dropout { seed: 1, step: 1 };
        let _ = model.pretraining_gradients(&batch, dropout);
        let mut gradients = model.gradients().unwrap_or_default();
        let right = global_norm(&gradients, &mut Vec::new());
        judge.close(
            "the norm of a real gradient",
            clip(&mut gradients, 1.0),
            right,
            1e-6 * right,
            "This is what the crate's `global_norm` returns. Yours is slightly too small? Six hundred \
             thousand small squares added up in f32 lose digits: use f64.",
        );
        judge.close(
            "its norm after clipping",
            global_norm(&gradients, &mut Vec::new()),
            right.min(1.0),
            1e-5,
            "At most 1.",
        );
    });

    // %% [markdown]
    // ## Step 3: AdamW
    //
    // Plain gradient descent has one rate for all parameters. But the gradients of a rare word's
    // vector are small and seldom, those of a LayerNorm large and in every step. Whatever the rate,
    // it is too low for the one or too high for the other. Adam gives each parameter a step length
    // of its own. It remembers two numbers for each, the **moments**:
    //
    // - the *first moment* $m$ is a running mean of the gradients: nine tenths of the old mean plus
    //   one tenth of the new gradient. Where the gradients keep their sign, it is about as large as
    //   they are; where the sign alternates, they cancel, and it is near 0;
    // - the *second moment* $v$ is a running mean of the *squared* gradients. Its root says how large
    //   the gradients usually are, whatever their sign.
    //
    // Each parameter moves by the rate times $m / \sqrt v$. If its gradients are always 0.5, this
    // quotient is 0.5 / 0.5 = 1; if they are always 0.0005, it is 1 as well; if they are 0.5 and
    // -0.5 in turns, it is near 0. So a parameter moves by about the rate where its gradients
    // agree, and hardly at all where they contradict each other.
    //
    // One correction: both means start at 0 and are too small during the first steps. After the
    // first step $m$ is only a tenth of the gradient. Dividing by $1 - \beta^t$ in step $t$ corrects
    // this; the corrected moments wear hats. In formulas, for a parameter $\theta$ with gradient $g$
    // and the rate $\eta$
    // ([Kingma and Ba 2014](https://arxiv.org/abs/1412.6980), algorithm 1):
    //
    // $$ m \leftarrow \beta_1 m + (1 - \beta_1)\, g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2 $$
    //
    // $$ \hat m = \frac{m}{1 - \beta_1^t}, \qquad \hat v = \frac{v}{1 - \beta_2^t}, \qquad
    //    \theta \leftarrow \theta - \eta \left( \frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda \theta \right) $$
    //
    // A mean with the factor $\beta$ remembers about the last $1 / (1 - \beta)$ steps: 10 with
    // $\beta_1 = 0.9$, 50 with $\beta_2 = 0.98$. The small $\epsilon$ prevents a division by 0. The term
    // $\lambda\theta$ is **weight decay**: it pulls large weights towards 0. It stands outside the
    // fraction, which is the W in AdamW: inside, it would be divided by the size of the gradients, too
    // ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1711.05101), section 2). Biases and
    // LayerNorms are not decayed.
    // (Google's BERT omits the hats and relies on the warm-up; PyTorch's AdamW and this crate keep
    // them, which makes fine-tuning on few rows more stable, [Mosbach et al.
    // 2021](https://arxiv.org/abs/2006.04884).)
    //
    // **Exercise 10.3.** Write one update of all parameters at the rate `rate` in step `step`
    // (counted from 1). For parameter number $i$, $\theta$ is `values[i]` and $g$ is `gradients[i]`;
    // `moments.first[i]` and `moments.second[i]` keep $m$ and $v$, without hats, from step to step;
    // `decay[i]` says whether the parameter is decayed. Don't clip here.

    // %%
    const BETA1: f32 = 0.9;
    const BETA2: f32 = 0.98;
    const EPSILON: f32 = 1e-6;
    const DECAY: f32 = 0.01;

    fn adamw(
        values: &mut [f32],
        gradients: &[f32],
        decay: &[bool],
        moments: &mut Moments,
        rate: f32,
        step: u64,
    ) {
        // BEGIN SOLUTION
        cloze::solution!("10.3");
        let first_grown = 1.0 - BETA1.powi(step as i32);
        let second_grown = 1.0 - BETA2.powi(step as i32);
        let means = moments.first.iter_mut().zip(&mut moments.second);
        for (((value, g), decays), (m, v)) in values.iter_mut().zip(gradients).zip(decay).zip(means)
        {
            *m = BETA1 * *m + (1.0 - BETA1) * g;
            *v = BETA2 * *v + (1.0 - BETA2) * g * g;
            let mut direction = (*m / first_grown) / ((*v / second_grown).sqrt() + EPSILON);
            if *decays {
                direction += DECAY * *value;
            }
            *value -= rate * direction;
        }
        // END SOLUTION
    }

    // %%
    check!("10.3", |judge| {
        let after = |decays: bool, gradients: &[f32]| {
            let (mut value, mut moments) = ([2.0], Moments::zeros(1));
            for (g, step) in gradients.iter().zip(1..) {
                adamw(&mut value, &[*g], &[decays], &mut moments, 0.1, step);
            }
            f64::from(value[0])
        };
        let one = after(false, &[0.5]);
        let slips = [
            (
                2.1,
                "The value moved up. Descent goes *against* the gradient: subtract.",
            ),
            (
                2.0 - 0.1 * 0.05 / (0.02f64 * 0.25).sqrt(),
                "The hats are missing: both moments start at 0 and are too small at first.",
            ),
            (
                1.95,
                "That is plain gradient descent: divide by the root of the second moment.",
            ),
            (
                2.0 - 0.1 * 0.5 / 0.25,
                "You divided by the second moment itself. Take its root.",
            ),
            (2.0, "Nothing moved. Is the new value written back?"),
            (
                1.898,
                "The value was decayed though `decay` is false for it: biases and LayerNorms are not \
                 decayed.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds(
                &format!(
                    "2 after one step of rate 0.1 with gradient 0.5 is 1.9, yours is {one:.4}"
                ),
                (one - slip).abs() > 1e-4,
                said,
            );
        }
        judge.close(
            "2 after one step of rate 0.1 with gradient 0.5, without decay,",
            one,
            1.9,
            1e-5,
            "In the first step m̂ is the gradient and v̂ its square: their quotient is 1, so the value \
             moves by the rate.",
        );
        judge.close(
            "the same with a gradient of 0.0005",
            after(false, &[0.0005]),
            2.0 - 0.1 * 0.0005 / (0.0005 + 1e-6),
            2e-5,
            "The gradient is a thousand times as small, but the step is almost the same: this is the \
             point of Adam. ε is added to the root, not under it.",
        );
        let decayed = after(true, &[0.5]);
        judge.holds(
            &format!("the same with decay is 1.898, yours is {decayed:.4}"),
            (decayed - 1.9).abs() > 1e-5,
            "Decay made no difference. Did you add it to the gradient? There the fraction divides it \
             away again, which is what AdamW corrects.",
        );
        judge.close(
            "2 after one step with decay",
            decayed,
            2.0 - 0.1 * (1.0 + 0.01 * 2.0),
            1e-5,
            "The direction is 1 + 0.01 · 2, with the value from before the step. 1.88? The rate \
             multiplies the decay, too.",
        );
        judge.close(
            "2 after three steps with gradients 0.5, -0.2, 0.1",
            after(false, &[0.5, -0.2, 0.1]),
            2.0 - 0.1 * (1.0 + 0.346_81 + 0.382_33),
            2e-4,
            "The moments must be kept from step to step, and the hats depend on the step's number. \
             1.911? Nothing was kept: write m and v back to `moments`. 1.735? You stored the corrected \
             values there: store m and v without hats. NaN? β^t is a power, not a product.",
        );

        // Ten steps of a whole small model, beside the crate's.
        let layout = Layout::new(&Config::new(1, 8, 2, 12, 20), &PRETRAINING);
        let decay = pretraining::decayed(&layout);
        let (mut yours, mut theirs) = (layout.initialise(3), layout.initialise(3));
        let (mut mine, mut its) = (Moments::zeros(yours.len()), Moments::zeros(yours.len()));
        for step in 1..=10 {
            let mut draws = Stream::new(74, step, Site::Other(7), 0).draws();
            let mut gradients: Vec<f32> = yours
                .iter()
                .map(|_| (draws.uniform() - 0.4) as f32 / 50.0)
                .collect();
            let step = u64::from(step);
            adamw(&mut yours, &gradients, &decay, &mut mine, 1e-2, step);
            let update = Update {
                optimizer: pretraining::optimizer(),
                learning_rate: 1e-2,
                step,
                max_norm: f64::INFINITY,
            };
            update.apply(
                &layout,
                &mut theirs,
                &mut gradients,
                &mut its,
                &mut Vec::new(),
            );
        }
        judge.close(
            "the largest gap to the crate's AdamW after ten steps of a small model",
            largest_gap(&yours, &theirs),
            0.0,
            1e-5,
            "Is a parameter decayed that should not be, or the other way round?",
        );
    });

    // %% [markdown]
    // See what it is good for, in a valley that is a hundred times as steep across as along:
    // $f(x, y) = (100\,x^2 + y^2) / 2$. Plain gradient descent needs a rate below 2 / 100, or it is
    // thrown out of the valley sideways; with such a rate it crawls along the valley.

    // %%
    /// The height at a point of the valley.
    fn height(p: &[f32]) -> f64 {
        f64::from(100.0 * p[0] * p[0] + p[1] * p[1]) / 2.0
    }

    /// The gradient of the height.
    fn slope(p: &[f32]) -> [f32; 2] {
        [100.0 * p[0], p[1]]
    }

    /// Returns the height at each of 200 steps from (1, 1); `update` makes a step.
    fn heights(mut update: impl FnMut(&mut [f32], u64)) -> Vec<(f64, f64)> {
        let mut p = [1.0, 1.0];
        let step = |step: u64| {
            let point = (step as f64, height(&p));
            update(&mut p, step);
            point
        };
        (1..=200).map(step).collect()
    }

    // %%
    if solved!("10.3") {
        let descent = |rate: f32| {
            heights(|p, _| {
                let g = slope(p);
                p.iter_mut().zip(g).for_each(|(p, g)| *p -= rate * g);
            })
        };
        let mut moments = Moments::zeros(2);
        let yours = heights(|p, step| {
            let rate = 0.1 * (201 - step) as f32 / 200.0;
            let g = slope(p);
            adamw(p, &g, &[false, false], &mut moments, rate, step);
        });
        show!(
            LineChart::new("Height in a narrow valley")
                .axes("step", "f")
                .logarithmic()
                .line("descent, rate 0.019", &descent(0.019))
                .line("descent, rate 0.0201", &descent(0.0201))
                .line("your AdamW, rate 0.1 falling to 0", &yours)
        );
    }

    // %% [markdown]
    // At a rate of 0.0201 descent climbs out of the valley. At 0.019 it comes down slowly: a height
    // of 0.0002 is left after 200 steps. AdamW divides each slope by its usual size, so it moves as
    // fast along the valley as across. The first moment carries it past the lowest point and back:
    // each dip of the curve is a crossing. As the rate falls, the swings die out, and it ends far
    // lower, at about $10^{-9}$.

    // %% [markdown]
    // ## What a curve shows
    //
    // Most mistakes in pre-training raise no error, but leave a trace in the curve. Here are six short
    // runs. One is healthy; each of the others has one fault: the labels belong to other masked
    // tokens, the answers are visible, the schedule is already over, the rate is thirty times too
    // high, or the model does not know the order of the words.

    // %%
    let sick_steps: u64 = cloze::lessons::steps(300);
    let mut tokens: LineChart = LineChart::new("Six runs: masked words")
        .axes("step", "nats a masked token")
        .reference("ln(V)", (tokenizer.vocab_size() as f64).ln())
        .reference("unigram entropy", data.unigram_entropy());
    let mut pairs: LineChart = LineChart::new("Six runs: next sentence")
        .axes("step", "nats a pair")
        .reference("ln(2)", 2f64.ln());
    for (name, fault) in pretraining::FAULTS {
        let curves = pretraining::sick_run(fault, &data, &config, sick_steps)?;
        println!(
            "{name}: ends at {:.2} nats a masked token, {:.2} a pair",
            pretraining::late_mean(&curves.0),
            pretraining::late_mean(&curves.1)
        );
        tokens = tokens.averaged(name, &curves.0);
        pairs = pairs.averaged(name, &curves.1);
    }
    show!(tokens);
    show!(pairs);

    // %% [markdown]
    // Which run is healthy, and which fault has each of the others? Decide before you read on.
    //
    // | curve | what it means | what it was here |
    // |---|---|---|
    // | falls below the unigram entropy, faster than all but D | the context is learned | A: healthy |
    // | stays where it began, near $\ln V$ and $\ln 2$ | nothing is learned at all | B: the rate is 0 |
    // | falls to the unigram entropy and stays; pairs as in A | the frequencies are learned, by the head's bias alone; the context is useless | C: labels of other masked tokens |
    // | near 0 within a hundred steps | the answer is visible | D: nothing was masked |
    // | stays at the unigram entropy, and the pairs for long far *above* $\ln 2$ | each step overshoots | E: the rate |
    // | below the entropy, but more and more behind A | part of the input is missing | F: no positions |

    // %% [markdown]
    // Now without the answers beside them: the page has the six runs in another order, and runs
    // with 42 schedules. (Elsewhere `cloze lessons picture schedule` writes it.)

    // %%
    show!(Picture::Schedule);

    // %% [markdown]
    // ### Stuck at 7
    //
    // "My loss is stuck at 7" is a question that people ask about BERT again and again, and 7 is no
    // accident:
    //
    // | vocabulary | at the start, $\ln V$ | unigram entropy |
    // |---|---:|---:|
    // | ours, 1,000 pieces, generated text | 6.91 | 5.17 |
    // | `cloze-tiny`'s, 8,000 pieces, novels and Wikipedia | 8.99 | 6.65 |
    // | BERT's, 30,522 pieces, paragraphs of Wikipedia | 10.33 | 7.25 |
    //
    // With BERT's vocabulary a loss that starts at about 10.3 and stays at about 7.2 (7.9 with the
    // pairs) means that the model has learned how often each piece occurs, and nothing else. Every
    // run stays there for a while, some for thousands of steps. If it never leaves: check labels and
    // positions (table above), then the warm-up and the rate, then the length of the sequences:
    // `cloze-tiny` started with 64 tokens for this reason. With *our* vocabulary the same number,
    // 6.9, is $\ln V$ and means that nothing has been learned at all. Know both numbers before you
    // judge a loss.

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *one step of AdamW*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(10));

    // %% [markdown]
    // ## What goes wrong
    //
    // **Two kinds of numbers.** The schedule counts in f64, parameters are f32; `*value -= rate * g`
    // with both:
    //
    // ```text
    // error[E0308]: `f64` is expected here, and this is `f32`
    //   |         *value -= rate * g;
    //   |                          ^ expected `f64`, found `f32`
    // hint: `as f64` converts a number
    // error[E0277]: cannot multiply `f64` by `&f32`
    // error[E0277]: cannot subtract-assign `f64` from `f32`
    // ```
    //
    // The hint converts at each use. Convert once, before the loop: `let rate = rate as f32`.
    //
    // **A loop that only reads.** `gradients.iter().for_each(|g| *g *= scale)`:
    //
    // ```text
    // error[E0594]: cannot assign to `*g`, which is behind a `&` reference
    //   |     gradients.iter().for_each(|g| *g *= scale);
    //   |                                   ^^^^^^^^^^^ `g` is a `&` reference, so it cannot be written to
    // help: you may want to use `iter_mut` here
    // ```
    //
    // `iter_mut()` hands out references through which you may write.
    //
    // ## Expected numbers
    //
    // These are for our generated text.
    //
    // - in the valley, descent at 0.019 ends at 0.0002, your AdamW at about $10^{-9}$;
    // - the six runs end at 4.27, 7.07, 5.18, 0.01, 5.20 and 4.61 nats a token.
    //
    // ## On real text
    //
    // `cloze pretrain` and `cloze finetune` take the peak rate as `--lr` and report the norm of the
    // gradients before clipping in their logs.
    //
    // ## Open questions
    //
    // 1. AdamW keeps two numbers for each parameter. How many bytes does a step of BERT-large then
    //    need for parameters, gradients and optimizer alone? Which of the three could be kept in 16
    //    bits?
    // 2. You train with batches of 16. Somebody else has a machine for 256 and uses the same rate
    //    and the same number of passes through the text. What is different about their run, and what
    //    would you change?
    //
    // The crate's source of this part: `src/train/schedule.rs` and `src/engine/optimizer.rs`; bad
    // steps are handled in `src/train/guard.rs`. Next: [lesson 11](11_pretraining.rs), the loop.

    // %% [end]
    cloze::lessons::finish("10_optimizer")
}
