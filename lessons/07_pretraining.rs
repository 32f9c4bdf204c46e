// ---
// title = "Pre-training: the loop that makes a BERT"
// summary = "Add both losses up, write the schedule, clipping and AdamW by hand, train with them and with the crate's, stop and resume to the very same numbers, and tell a sick run by its curve."
// minutes = 60
// seconds = 80
// needs = ["05", "06"]
//
// [[exercise]]
// id = "07.1"
// title = "The joint loss of a batch in parts"
// hints = [
//     "Each part holds sums: `mlm_loss` over `mlm_total` masked tokens, `nsp_loss` over `nsp_total` pairs. Sums may be added, means may not.",
//     "Add up the four numbers over all parts, then divide twice and add: masked tokens and pairs have each a mean of their own.",
//     "A batch without pairs has `nsp_total` 0: divide by `nsp_total.max(1)`, and 0 / 1 is 0.",
// ]
//
// [[exercise]]
// id = "07.2"
// title = "Warm-up and decay"
// hints = [
//     "Two straight lines. Before the warm-up ends the rate is peak · step / warmup.",
//     "From step `warmup` on it falls. The last step, `total`, should still learn something: count the steps that are left with itself, total - step + 1.",
//     "`peak * (total - step + 1) as f64 / (total - warmup + 1) as f64`: at step `warmup` this is the peak.",
// ]
//
// [[exercise]]
// id = "07.3"
// title = "Clip by the global norm"
// hints = [
//     "The norm is the root of the sum of the squares of *all* numbers. Add up in f64: `f64::from(*g)`.",
//     "Where the norm is above `max_norm`, multiply every number by max_norm / norm: the direction stays. Otherwise change nothing.",
//     "Give back the norm as it was before: one wants to see it, not 1.000 at every step.",
// ]
//
// [[exercise]]
// id = "07.4"
// title = "AdamW"
// hints = [
//     "For each i: `first[i] = BETA1 * first[i] + (1.0 - BETA1) * g`, and the same for `second` with BETA2 and g².",
//     "Both means began at 0 and are too small at first: divide by 1 - BETA1^step and 1 - BETA2^step. `BETA1.powi(step as i32)`.",
//     "The direction is m̂ / (√v̂ + EPSILON). Where `decay[i]`, add DECAY · value to it. Subtract `rate` times that.",
//     "Decay is no part of the gradient: it must not go through the two means.",
// ]
//
// [[exercise]]
// id = "07.5"
// title = "Resume"
// hints = [
//     "Three things go back: `set_parameters`, `set_moments`, and the number of the step.",
//     "`set_moments` takes the moments themselves: `saved.moments.clone()`.",
//     "`saved.step` steps are done. The next one is `saved.step + 1`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 07 · Pre-training: the loop that makes a BERT
    //
    // All parts are there: tokens, model, masked words, next sentences. What turns them into a BERT
    // is a loop of five lines and some ten decisions, each of which can ruin weeks of computing
    // without an error message. You write the decisions (joint loss, schedule, clipping, AdamW),
    // train with them, stop a run and resume it to the very same numbers, and learn to tell a sick
    // run by its curve.
    //
    // *60 to 75 minutes, with a good place to stop half way; the longest cell trains for about twenty
    // seconds on two cores. You need lessons 05 and 06.*

    // %%
    use cloze::engine::PretrainingScores;
    use cloze::engine::global_norm;
    use cloze::engine::optimizer::{Moments, Optimizer, Update};
    use cloze::model::Dropout;
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::text::embedded;
    use cloze::train::checkpoint;
    use cloze::train::pretrain::State;
    use cloze::train::{EvalReport, Report, Schedule, Silent, StepReport};
    use cloze::view::Flow;
    use cloze::view::style::number;

    // %% [markdown]
    // ## Where we are going

    // %%
    show!(
        Flow::new("One step of pre-training", "step number t")
            .step("batch t", "a function of the seed and t alone")
            .step("forward", "logits of masked tokens and of pairs")
            .step("joint loss", "two means, added")
            .step("backward", "a gradient for each parameter")
            .step("clip", "the norm of all gradients together: 1 at most")
            .step("AdamW", "at the rate that the schedule has for t")
            .step("now and then", "measure on held-out text, save")
    );

    // %% [markdown]
    // ## The idea
    //
    // The loss is the mean over the masked tokens $M$ plus the mean over the pairs $N$
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), appendix A.2):
    //
    // $$ L = \frac{1}{|M|} \sum_{i \in M} -\ln p(x_i) \; + \; \frac{1}{|N|} \sum_{j \in N} -\ln p(y_j) $$
    //
    // One gradient of this sum teaches the encoder both. The paper then trains for 1,000,000 steps
    // of 256 sequences with Adam: rate $10^{-4}$, $\beta_1 = 0.9$, $\beta_2 = 0.999$, weight decay
    // 0.01, warm-up over the first 10,000 steps, linear decay to 0. Nine tenths of the steps see
    // sequences of 128 tokens, the last tenth 512. We do the same on a small scale.

    // %%
    let tokenizer: WordPiece = WordPiece::train(
        embedded::paragraphs().map(|p| Ok(p.text)),
        1_000,
        Casing::Uncased,
    )?;
    let options: PretrainingOptions = PretrainingOptions {
        max_len: 40,
        // As in lesson 05: a short run learns more from more blanks.
        mask_probability: 0.4,
        seed: 7,
        ..PretrainingOptions::default()
    };

    /// The text that comes with Cloze as training data and held-out data.
    fn data_of(
        tokenizer: &WordPiece,
        options: &PretrainingOptions,
    ) -> cloze::Result<(PretrainingData, PretrainingData)> {
        let paragraphs = embedded::paragraphs().map(Ok);
        PretrainingData::build_split(paragraphs, tokenizer, options, None, 10)
    }

    let (data, held_out): (PretrainingData, PretrainingData) = data_of(&tokenizer, &options)?;
    println!(
        "{} tokens in {} documents, {} examples a pass; {} documents held out",
        number(data.tokens() as f64),
        data.documents(),
        number(data.examples_per_epoch() as f64),
        held_out.documents()
    );

    // %%
    /// A tiny BERT for this vocabulary, with both heads of pre-training.
    fn config_of(vocabulary: usize) -> Config {
        let mut config = Size::Tiny.config(vocabulary);
        config.hidden_dropout_prob = 0.0;
        config.attention_probs_dropout_prob = 0.0;
        config.initializer_range = 0.05;
        config
    }

    let config: Config = config_of(tokenizer.vocab_size());
    let layout: std::sync::Arc<Layout> = Layout::new(&config, &PRETRAINING);
    let start: Vec<f32> = layout.initialise(1);
    let mut model: CpuEngine = CpuEngine::new(&config, &layout, start.clone())?;
    let batch: PretrainingBatch = data.batch(0, 16)?;
    println!(
        "{} parameters; a batch of 16 pairs has {} tokens, {} of them masked",
        number(layout.total() as f64),
        batch.packed.rows(),
        batch.masked_rows.len()
    );

    // %% [markdown]
    // ## Step 1: the joint loss
    //
    // A batch of 256 sequences does not fit into every memory. So it goes through the model in
    // parts (*micro-batches*), and their gradients are added. The loss must be that of the whole
    // batch all the same. Each part gives its scores as sums and counts: `mlm_loss` is the sum over
    // its `mlm_total` masked tokens, `nsp_loss` that over its `nsp_total` pairs (losses are f64,
    // counts u64).
    //
    // **Exercise 07.1.** Give the joint loss of the whole batch. There may be no pairs at all: their
    // mean is 0 then.

    // %%
    fn joint_loss(parts: &[PretrainingScores]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("07.1");
        let mut all = PretrainingScores::default();
        for part in parts {
            all.mlm_loss += part.mlm_loss;
            all.mlm_total += part.mlm_total;
            all.nsp_loss += part.nsp_loss;
            all.nsp_total += part.nsp_total;
        }
        all.mlm_loss / all.mlm_total.max(1) as f64 + all.nsp_loss / all.nsp_total.max(1) as f64
        // END SOLUTION
    }

    // %%
    check!("07.1", |judge| {
        let part =
            |mlm_loss: f64, mlm_total: u64, nsp_loss: f64, nsp_total: u64| PretrainingScores {
                mlm_loss,
                mlm_total,
                nsp_loss,
                nsp_total,
                ..PretrainingScores::default()
            };
        judge.close(
            "the loss of one part with 4 tokens that cost 20 and 2 pairs that cost 1",
            joint_loss(&[part(20.0, 4, 1.0, 2)]),
            5.5,
            1e-9,
            "20 / 4 + 1 / 2. 21: these are sums. 3.5: tokens and pairs were thrown together, but each \
             kind has its own mean, else the few pairs would count for nothing.",
        );
        let two = [part(20.0, 4, 1.0, 2), part(12.0, 1, 3.0, 3)];
        let yours = joint_loss(&two);
        judge.holds(
            &format!("the loss of two parts of different size is 7.2, yours is {yours:.4}"),
            (yours - 9.25).abs() > 1e-6,
            "That is the mean of the parts' means. A part with one token would count as much as one \
             with four: add the sums, then divide.",
        );
        judge.holds(
            &format!("the loss of two parts of different size is 7.2, yours is {yours:.4}"),
            (yours - 18.5).abs() > 1e-6,
            "That is the sum of the parts' losses: twice as many parts would double the loss.",
        );
        judge.close(
            "the loss of two parts of different size",
            yours,
            7.2,
            1e-9,
            "(20 + 12) / (4 + 1) + (1 + 3) / (2 + 3).",
        );
        judge.close(
            "the loss of a batch without pairs",
            joint_loss(&[part(20.0, 4, 0.0, 0)]),
            5.0,
            1e-9,
            "NaN is 0 / 0. RoBERTa has no pairs at all (lesson 15).",
        );
        let whole = model.pretraining_scores(&batch).unwrap_or_default();
        let parts = [0..3, 3..4, 4..16].map(|which| {
            let part = batch.slice(which);
            model.pretraining_scores(&part).unwrap_or_default()
        });
        judge.close(
            "the loss of a real batch in parts of 3, 1 and 12 pairs",
            joint_loss(&parts),
            whole.loss(),
            1e-5,
            "This is the crate's loss of the whole batch at once.",
        );
    });

    // %%
    let scores: PretrainingScores = model.pretraining_scores(&batch)?;
    println!(
        "untrained: {:.3} a token (ln V = {:.3}) + {:.3} a pair (ln 2 = {:.3}) = {:.3}",
        scores.mean_mlm_loss(),
        (tokenizer.vocab_size() as f64).ln(),
        scores.mean_nsp_loss(),
        2f64.ln(),
        scores.loss()
    );

    // %% [markdown]
    // Both begin a little above a pure guess. The start values are larger than the paper's (lesson
    // 05), so the fresh model has chance preferences, and they cost something.
    //
    // ## Step 2: the schedule
    //
    // Large steps at the start throw a fresh model about: Adam knows nothing of the gradients' size
    // yet, and in a post-norm model those near the output are large at first ([Xiong et al.
    // 2020](https://arxiv.org/abs/2002.04745)). So the rate climbs from almost nothing to its peak.
    // Later it falls, so that the model comes to rest in place of jumping around a good point. BERT
    // does both in straight lines.
    //
    // **Exercise 07.2.** The rate of step `step`, counted from 1: at step `warmup` it is the peak;
    // before, it climbs in proportion to the step; after, it falls by the same amount at each step,
    // so that it would be 0 one step after the last.

    // %%
    fn rate(step: u64, peak: f64, warmup: u64, total: u64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("07.2");
        if step < warmup {
            peak * step as f64 / warmup as f64
        } else {
            peak * (total - step + 1) as f64 / (total - warmup + 1) as f64
        }
        // END SOLUTION
    }

    // %%
    check!("07.2", |judge| {
        judge.close(
            "the rate at step 5 of a warm-up of 10, peak 1,",
            rate(5, 1.0, 10, 100),
            0.5,
            1e-9,
            "Half of the warm-up, half of the peak. 0? `step / warmup` in whole numbers is 0: convert \
             first. 0.4? Steps are counted from 1.",
        );
        judge.holds(
            "the first step learns something",
            rate(1, 1.0, 10, 100) > 0.0,
            "Steps are counted from 1: with step - 1 the first one is thrown away.",
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
            "(total - step + 1) / (total - warmup + 1).",
        );
        for (warmup, total) in [(10, 100), (1, 50), (100, 1000)] {
            let schedule = Schedule {
                peak: 3e-4,
                warmup,
                total,
            };
            for step in 1..=total {
                judge.close(
                    &format!("the rate at step {step} (warm-up {warmup}, {total} steps)"),
                    rate(step, 3e-4, warmup, total),
                    schedule.rate(step),
                    1e-12,
                    "The crate's `Schedule` says so.",
                );
            }
        }
    });

    // %%
    if solved!("07.2") {
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
    // ## Step 3: clipping
    //
    // Now and then a batch has a gradient many times as long as usual, and one such step can undo a
    // thousand. BERT cuts the *norm of all gradients together* to 1 ([Pascanu et al.
    // 2013](https://arxiv.org/abs/1211.5063), section 3.2):
    //
    // $$ g \leftarrow g \cdot \min\!\Big(1, \frac{c}{\lVert g \rVert}\Big), \qquad
    //    \lVert g \rVert = \sqrt{\textstyle\sum_i g_i^2} $$
    //
    // **Exercise 07.3.** Do it in place, and give back the norm from before.

    // %%
    fn clip(gradients: &mut [f32], max_norm: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("07.3");
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
    check!("07.3", |judge| {
        let mut long = [3.0, -4.0];
        let norm = clip(&mut long, 1.0);
        judge.holds(
            "[3, -4] cut to norm 1 keeps its direction",
            long != [1.0, -1.0],
            "You cut each number by itself. Then all directions become diagonals: cut the length of \
             the whole.",
        );
        judge.holds(
            "[3, -4] cut to norm 1 is [0.6, -0.8]",
            (long[0] - 3.0 / 7.0).abs() > 1e-4,
            "That is the sum of absolute values. Take the root of the sum of squares, 5.",
        );
        let kept = [0.6f32, -0.8]
            .iter()
            .zip(&long)
            .all(|(a, b)| (a - b).abs() < 1e-6);
        judge.holds(
            &format!("[3, -4] cut to norm 1 is [0.6, -0.8], yours is {long:?}"),
            kept,
            "Its norm is 5: everything is multiplied by 1 / 5. [0.12, -0.16]? 25 is the sum of squares: take \
             its root.",
        );
        judge.close(
            "what comes back",
            norm,
            5.0,
            1e-6,
            "The norm before the cut: after it, it would be 1 at every step, and a run that grows \
             restless could not be seen.",
        );
        let mut short = [0.3, -0.4];
        clip(&mut short, 1.0);
        judge.equal(
            "[0.3, -0.4], whose norm is 0.5, cut to 1",
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
            "The crate's `global_norm` says so. A little too small? Six hundred thousand small squares \
             added in f32 lose digits: add in f64.",
        );
        judge.close(
            "its norm after the cut",
            global_norm(&gradients, &mut Vec::new()),
            right.min(1.0),
            1e-5,
            "1 at most.",
        );
    });

    // %% [markdown]
    // ## Step 4: AdamW
    //
    // Plain descent takes the same rate for all parameters. But a gradient at a rare word is small
    // and seldom, one at a LayerNorm large and always there. Adam keeps two running means for each
    // parameter, of its gradient and of its square, and divides the one by the root of the other: a
    // parameter moves by about the rate at each step, whatever the size of its gradients ([Kingma
    // and Ba 2014](https://arxiv.org/abs/1412.6980), algorithm 1):
    //
    // $$ m \leftarrow \beta_1 m + (1 - \beta_1)\, g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2 $$
    //
    // $$ \theta \leftarrow \theta - \eta \left( \frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda \theta \right),
    //    \qquad \hat m = \frac{m}{1 - \beta_1^t}, \quad \hat v = \frac{v}{1 - \beta_2^t} $$
    //
    // The hats mend that both means begin at 0. (Google's BERT leaves them out and lets the warm-up hide
    // it; PyTorch's AdamW and this crate keep them, which makes fine-tuning on few rows steadier, [Mosbach
    // et al. 2021](https://arxiv.org/abs/2006.04884).) The term $\lambda\theta$ is weight decay. It stands
    // outside the fraction, which is the W in AdamW: inside, large gradients would divide it away
    // ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1711.05101), section 2). Biases and
    // LayerNorms are not decayed.
    //
    // **Exercise 07.4.** Write one update of all parameters, at the rate `rate` in step `step`
    // (counted from 1). For parameter number $i$, $\theta$ is `values[i]` and $g$ is `gradients[i]`;
    // `moments.first[i]` and `moments.second[i]` keep $m$ and $v$, without hats, from step to step;
    // `decay[i]` says whether it is decayed. Don't clip here.

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
        cloze::solution!("07.4");
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
    /// The crate's optimizer with the same constants.
    fn crate_optimizer() -> Optimizer {
        Optimizer {
            beta2: 0.98,
            ..Optimizer::default()
        }
    }

    check!("07.4", |judge| {
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
                "The hats are missing: both means begin at 0 and are too small at first.",
            ),
            (
                1.95,
                "That is plain descent: divide by the root of the mean square.",
            ),
            (
                2.0 - 0.1 * 0.5 / 0.25,
                "You divided by the mean square itself. Take its root.",
            ),
            (2.0, "Nothing moved. Is the new value written back?"),
            (
                1.898,
                "The value was decayed, though `decay` says false for it: biases and LayerNorms are not.",
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
            "At the first step m̂ is the gradient and v̂ its square: their quotient is 1, so the step \
             is the rate.",
        );
        judge.close(
            "the same with a gradient of 0.0005",
            after(false, &[0.0005]),
            2.0 - 0.1 * 0.0005 / (0.0005 + 1e-6),
            2e-5,
            "A gradient a thousand times as small, and almost the same step: this is the point of \
             Adam. ε is added to the root, not under it.",
        );
        let decayed = after(true, &[0.5]);
        judge.holds(
            &format!("the same with decay is 1.898, yours is {decayed:.4}"),
            (decayed - 1.9).abs() > 1e-5,
            "Decay made no difference. Did it go into the gradient? There the fraction divides it away \
             again, which is what AdamW mended.",
        );
        judge.close(
            "2 after one step with decay",
            decayed,
            2.0 - 0.1 * (1.0 + 0.01 * 2.0),
            1e-5,
            "The direction is 1 + 0.01 · 2, with the value from before the step. 1.88? The rate multiplies \
             the decay, too.",
        );
        judge.close(
            "2 after three steps with gradients 0.5, -0.2, 0.1",
            after(false, &[0.5, -0.2, 0.1]),
            2.0 - 0.1 * (1.0 + 0.346_81 + 0.382_33),
            2e-4,
            "The means must be kept from step to step, and the hats take the step's number. 1.735? You kept \
             the hats in `moments`; there belong the means without them.",
        );

        // Ten steps of a whole small model, beside the crate's.
        let layout = Layout::new(&Config::new(1, 8, 2, 12, 20), &PRETRAINING);
        let mut decay = vec![false; layout.total()];
        for (parameter, range) in layout.iter() {
            decay[range].fill(parameter.decay);
        }
        let (mut yours, mut theirs) = (layout.initialise(3), layout.initialise(3));
        let (mut mine, mut its) = (Moments::zeros(yours.len()), Moments::zeros(yours.len()));
        for step in 1..=10 {
            let mut draws = Stream::new(74, step, Site::Other(7), 0).draws();
            let mut gradients: Vec<f32> = yours
                .iter()
                .map(|_| (draws.uniform() - 0.4) as f32 / 50.0)
                .collect();
            adamw(
                &mut yours,
                &gradients,
                &decay,
                &mut mine,
                1e-2,
                u64::from(step),
            );
            let update = Update {
                optimizer: crate_optimizer(),
                learning_rate: 1e-2,
                step: u64::from(step),
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
        let gaps = yours
            .iter()
            .zip(&theirs)
            .map(|(a, b)| f64::from((a - b).abs()));
        judge.close(
            "the largest gap to the crate's AdamW after ten steps of a small model",
            gaps.fold(0.0, f64::max),
            0.0,
            1e-5,
            "Is some parameter decayed that should not be, or the other way round?",
        );
    });

    // %% [markdown]
    // See what it is good for: a valley, a hundred times as steep across as along it,
    // $f(x, y) = (100\,x^2 + y^2) / 2$. Descent must keep its rate below 2 / 100 or be thrown out
    // across, and then it crawls along.

    // %%
    if solved!("07.4") {
        let height = |p: &[f32]| f64::from(100.0 * p[0] * p[0] + p[1] * p[1]) / 2.0;
        let slope = |p: &[f32]| vec![100.0 * p[0], p[1]];
        let mut curves: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
        for (name, rate) in [
            ("descent, rate 0.019", 0.019),
            ("descent, rate 0.0201", 0.0201),
        ] {
            let mut p = vec![1.0f32, 1.0];
            let mut points = Vec::new();
            for step in 1..=200 {
                points.push((f64::from(step), height(&p)));
                let g = slope(&p);
                p.iter_mut().zip(g).for_each(|(p, g)| *p -= rate * g);
            }
            curves.push((name, points));
        }
        let (mut p, mut moments) = (vec![1.0f32, 1.0], Moments::zeros(2));
        let mut points = Vec::new();
        for step in 1..=200 {
            points.push((step as f64, height(&p)));
            let g = slope(&p);
            let rate = 0.1 * (201 - step) as f32 / 200.0;
            adamw(&mut p, &g, &[false, false], &mut moments, rate, step);
        }
        curves.push(("your AdamW, rate 0.1 falling to 0", points));
        let mut chart = LineChart::new("Height in a narrow valley")
            .axes("step", "f")
            .logarithmic();
        for (name, points) in &curves {
            chart = chart.line(*name, points);
        }
        show!(chart);
    }

    // %% [markdown]
    // Descent at 0.0201 climbs out of the valley; at 0.019 it comes down, and crawls: 0.0002 is left
    // after 200 steps. AdamW divides each slope by its own size, so it goes down as fast along the
    // valley as across it. The mean of past gradients then carries it over the floor and back: each
    // dip of the curve is a crossing. As the rate falls the swings die out, and it ends far below, at
    // about $10^{-9}$.

    // %% [markdown]
    // > **A good place to stop.** You are half way, and your answers stay in the notebook. On another
    // > day select the cell below this one and choose *Run → Run All Above Selected Cell* (in VS Code
    // > *Execute Above Cells*).

    // %% [markdown]
    // ## Step 5: your loop beside the crate's
    //
    // Everything together: twenty steps of a real model with *your* schedule, clipping and AdamW,
    // and twenty with the crate's, on the same batches.

    // %%
    /// Step `step` of a run, counted from 1, with the crate's parts.
    fn crate_step(
        model: &mut CpuEngine,
        data: &PretrainingData,
        schedule: Schedule,
        step: u64,
    ) -> cloze::Result<PretrainingScores> {
        let batch = data.batch(step - 1, 16)?;
        let scores = model.pretraining_gradients(
            &batch,
            Dropout {
                seed: 1,
                step: step as u32,
            },
        )?;
        model.update(&Update {
            optimizer: crate_optimizer(),
            learning_rate: schedule.rate(step),
            step,
            max_norm: 1.0,
        })?;
        Ok(scores)
    }

    if solved!("07.2") && solved!("07.3") && solved!("07.4") {
        let schedule = Schedule {
            peak: 2e-3,
            warmup: 5,
            total: 20,
        };
        let mut decay = vec![false; layout.total()];
        for (parameter, range) in layout.iter() {
            decay[range].fill(parameter.decay);
        }
        let mut yours = CpuEngine::new(&config, &layout, start.clone())?;
        let mut theirs = CpuEngine::new(&config, &layout, start.clone())?;
        let (mut values, mut moments) = (start.clone(), Moments::zeros(start.len()));
        for step in 1..=20 {
            let batch = data.batch(step - 1, 16)?;
            let dropout = Dropout {
                seed: 1,
                step: step as u32,
            };
            let scores = yours.pretraining_gradients(&batch, dropout)?;
            let mut gradients = yours.gradients()?;
            yours.discard()?;
            let norm = clip(&mut gradients, 1.0);
            let rate = rate(step, schedule.peak, schedule.warmup, schedule.total) as f32;
            adamw(&mut values, &gradients, &decay, &mut moments, rate, step);
            yours.set_parameters(&values)?;
            let its = crate_step(&mut theirs, &data, schedule, step)?;
            if step % 5 == 0 {
                println!(
                    "step {step:>2}: norm {norm:.3}, your loss {:.6}, the crate's {:.6}",
                    scores.loss(),
                    its.loss()
                );
            }
        }
        let theirs = theirs.parameters()?;
        let gaps = values.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
        println!(
            "largest gap of {} parameters: {:.1e}",
            number(values.len() as f64),
            gaps.fold(0.0, f32::max)
        );
    }

    // %% [markdown]
    // ## Step 6: a whole run
    //
    // `Pretrainer` is that loop with everything around it: measuring, saving, stopping. It tells
    // what happens to a `Report`, and yours draws: one chart for the blanks, one for the pairs.

    // %%
    /// Draws the curves of a run while it goes on.
    struct Curves {
        blanks: LiveChart,
        pairs: LiveChart,
    }

    impl Curves {
        fn new(data: &PretrainingData, vocabulary: usize) -> Self {
            // Training has the first colour, though the first measurement comes before its first step.
            let blanks = LineChart::new("Masked words")
                .axes("step", "nats a masked token")
                .smoothed("training", &[])
                .reference("ln(V)", (vocabulary as f64).ln())
                .reference("unigram entropy", data.unigram_entropy());
            let pairs = LineChart::new("Next sentence")
                .axes("step", "nats a pair")
                .smoothed("training", &[])
                .reference("ln(2)", 2f64.ln());
            Self {
                blanks: LiveChart::new(blanks),
                pairs: LiveChart::new(pairs),
            }
        }
    }

    impl Report for Curves {
        fn step(&mut self, report: &StepReport) {
            let step = report.step as f64;
            self.blanks.push("training", step, report.mlm_loss);
            self.pairs.push("training", step, report.nsp_loss);
        }

        fn evaluated(&mut self, report: &EvalReport) {
            let step = report.step as f64;
            self.blanks.push("held out", step, report.mlm_loss);
            if let Some(loss) = report.nsp_loss {
                self.pairs.push("held out", step, loss);
            }
        }

        fn saved(&mut self, _step: u64) {}

        fn skipped(&mut self, step: u64, why: &str) {
            println!("step {step} was left out: {why}");
        }
    }

    // %%
    let steps: u64 = cloze::lessons::steps(2000);
    let mut curves: Curves = Curves::new(&data, tokenizer.vocab_size());
    let begun = std::time::Instant::now();
    let mut trainer: Pretrainer = {
        let (data, held_out) = data_of(&tokenizer, &options)?;
        let engine = CpuEngine::new(&config, &layout, start.clone())?;
        let settings = Settings {
            evaluate_every: (steps / 20).max(1),
            ..Settings::new(steps, 16, 2e-3)
        };
        Pretrainer::new(Box::new(engine), data, held_out, settings)
    };
    trainer.run(None, &mut curves, &Stop::default())?;
    drop(curves);
    println!("{:.0} s", begun.elapsed().as_secs_f64());

    // %%
    for report in [
        trainer.history().evaluations.first(),
        trainer.history().evaluations.last(),
    ]
    .into_iter()
    .flatten()
    {
        println!(
            "after step {:>4}: {:.3} nats a blank, {:.1} % of the blanks right, {:.3} nats a pair, \
             {:.1} % of the pairs right",
            report.step,
            report.mlm_loss,
            100.0 * report.mlm_accuracy,
            report.nsp_loss.unwrap_or_default(),
            100.0 * report.nsp_accuracy.unwrap_or_default()
        );
    }

    // %%
    let norms: Vec<(f64, f64)> = trainer
        .history()
        .steps
        .iter()
        .map(|report| (report.step as f64, report.norm))
        .collect();
    show!(
        LineChart::new("Global norm of the gradients, before clipping")
            .axes("step", "norm")
            .smoothed("norm", &norms)
            .reference("cut to", 1.0)
    );

    // %% [markdown]
    // Two things to see. The blanks fall at once; the pairs rest at $\ln 2$ for some 400 steps,
    // because the head can only tell apart what the encoder has learned to see. And the norm grows
    // while the loss falls: parameters get larger, and the model surer. It is above 1 at every
    // step, so each gradient is cut. With Adam that does little harm, since a factor that is always
    // there is divided away; what clipping does is that no batch counts many times as much as
    // another.
    //
    // ## Step 7: stop and resume
    //
    // A run of days will be stopped: by a power cut, by a batch system, by you. What must be saved,
    // so that it goes on as if nothing had been?
    //
    // - the **parameters**;
    // - the optimizer's two **means**, twice as many numbers as the parameters;
    // - the number of the **step**: schedule, hats and the batch follow from it.
    //
    // And the state of the random generators? None is needed here: batch $k$, its masks and its
    // dropout are functions of the seed and $k$. (Where a generator is stepped from draw to draw,
    // its state must be saved as well, and the place in the data.)
    //
    // **Exercise 07.5.** Put a saved state back into a fresh engine, with its `set_parameters` and
    // `set_moments`, and give the number of the step that comes next.

    // %%
    /// A run after `step` steps.
    struct Saved {
        step: u64,
        parameters: Vec<f32>,
        moments: Moments,
    }

    fn resume(engine: &mut CpuEngine, saved: &Saved) -> cloze::Result<u64> {
        // BEGIN SOLUTION
        cloze::solution!("07.5");
        engine.set_parameters(&saved.parameters)?;
        engine.set_moments(saved.moments.clone())?;
        Ok(saved.step + 1)
        // END SOLUTION
    }

    // %%
    check!("07.5", |judge| {
        let schedule = Schedule {
            peak: 2e-3,
            warmup: 3,
            total: 12,
        };
        // A failing engine would leave an empty list, which the comparison names.
        let fresh = || CpuEngine::new(&config, &layout, layout.initialise(2));
        let run = |engine: &mut CpuEngine, steps: std::ops::RangeInclusive<u64>| {
            for step in steps {
                crate_step(engine, &data, schedule, step)?;
            }
            engine.parameters()
        };
        let mut attempt = || -> cloze::Result<()> {
            let mut engine = fresh()?;
            run(&mut engine, 1..=6)?;
            let saved = Saved {
                step: 6,
                parameters: engine.parameters()?,
                moments: engine.moments()?,
            };
            let whole = run(&mut engine, 7..=12)?;
            let mut resumed = fresh()?;
            let next = resume(&mut resumed, &saved)?;
            judge.equal(
                "the step after 6 steps",
                next,
                7,
                "6 steps are done. With 6 the same batch would be trained on twice.",
            );
            judge.holds(
                "the engine has the saved parameters",
                resumed.parameters()? == saved.parameters,
                "Where is the model itself?",
            );
            judge.holds(
                "the engine has the saved means",
                resumed.moments()? == saved.moments,
                "Without them the optimizer begins anew, with hats that think it is old: v is far too \
                 small, so the first steps are far too long.",
            );
            let yours = run(&mut resumed, next..=12)?;
            let different = yours.iter().zip(&whole).filter(|(a, b)| a != b).count();
            judge.equal(
                "the number of parameters that differ after 12 steps, 6 of them after the stop,",
                different,
                0,
                "Not nearly the same: the same, bit for bit.",
            );
            Ok(())
        };
        let outcome = attempt().map_err(|error| error.to_string());
        judge.equal("the run", outcome, Ok(()), "The engine complained.");
    });

    // %% [markdown]
    // The crate keeps such a state in `trainer/state.safetensors` beside the model, written to
    // another file first and then renamed, so that a crash while saving leaves the old one whole.
    // Here is a run that is stopped in the middle and goes on in a new `Pretrainer`, and one that
    // forgot the means:

    // %%
    let stop_run: u64 = cloze::lessons::steps(120);
    let scratch: std::path::PathBuf =
        std::env::temp_dir().join(format!("cloze-lesson-07-{}", std::process::id()));

    /// A trainer for a short run, at its start.
    fn short_trainer(
        tokenizer: &WordPiece,
        options: &PretrainingOptions,
        steps: u64,
        peak: f64,
    ) -> cloze::Result<Pretrainer> {
        let (data, held_out) = data_of(tokenizer, options)?;
        let config = config_of(tokenizer.vocab_size());
        let layout = Layout::new(&config, &PRETRAINING);
        let engine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
        let settings = Settings {
            evaluate_every: steps,
            ..Settings::new(steps, 16, peak)
        };
        Ok(Pretrainer::new(Box::new(engine), data, held_out, settings))
    }

    /// Asks for a stop after a certain step, as Ctrl-C would.
    struct StopAfter(u64, Stop);

    impl Report for StopAfter {
        fn step(&mut self, report: &StepReport) {
            if report.step == self.0 {
                self.1.request();
            }
        }

        fn evaluated(&mut self, _: &EvalReport) {}
        fn saved(&mut self, step: u64) {
            println!("saved after step {step}");
        }
        fn skipped(&mut self, _: u64, _: &str) {}
    }

    /// The losses of a run's steps.
    fn losses(trainer: &Pretrainer) -> Vec<(f64, f64)> {
        let steps = trainer.history().steps.iter();
        steps
            .map(|report| (report.step as f64, report.mlm_loss))
            .collect()
    }

    /// By how much the losses of `other` are above those of `whole`.
    fn apart(whole: &Pretrainer, other: &Pretrainer) -> Vec<(f64, f64)> {
        let pairs = losses(whole).into_iter().zip(losses(other));
        pairs.map(|(a, b)| (a.0, b.1 - a.1)).collect()
    }

    // %%
    let mut whole: Pretrainer = short_trainer(&tokenizer, &options, stop_run, 2e-3)?;
    whole.run(None, &mut Silent, &Stop::default())?;

    let stop: Stop = Stop::default();
    let mut halved: Pretrainer = short_trainer(&tokenizer, &options, stop_run, 2e-3)?;
    halved.run(
        Some(&scratch),
        &mut StopAfter(stop_run / 2, stop.clone()),
        &stop,
    )?;

    // %%
    let saved: State = State::read(&scratch)?.ok_or("the run has just saved its state")?;
    let forgetful: State = State {
        moments: Moments::zeros(saved.parameters.len()),
        ..saved.clone()
    };
    let mut resumed: Pretrainer = short_trainer(&tokenizer, &options, stop_run, 2e-3)?;
    resumed.resume(saved)?;
    resumed.run(None, &mut Silent, &Stop::default())?;
    let mut without: Pretrainer = short_trainer(&tokenizer, &options, stop_run, 2e-3)?;
    without.resume(forgetful)?;
    without.run(None, &mut Silent, &Stop::default())?;

    let a: Vec<f32> = whole.engine().parameters()?;
    let b: Vec<f32> = resumed.engine().parameters()?;
    println!(
        "{} of {} parameters differ between the run in one piece and the one in two",
        a.iter().zip(&b).filter(|(a, b)| a != b).count(),
        number(a.len() as f64)
    );
    show!(
        LineChart::new(format!(
            "Stopped after step {}: loss less that of the run in one piece",
            stop_run / 2
        ))
        .axes("step", "nats a masked token")
        .line("resumed without the means", &apart(&whole, &without))
        .line("resumed with everything", &apart(&whole, &resumed))
    );

    // %% [markdown]
    // With everything the difference is 0, exactly. Without the means the run is thrown off by some
    // hundredths of a nat and comes back after fifty steps or so, which is how long $\beta_2 = 0.98$
    // remembers. The paper's 0.999 remembers a thousand.
    //
    // ## What a curve tells
    //
    // Most mistakes in pre-training give no error. They give a curve. Six short runs, the same but
    // for one fault each:

    // %%
    /// A fault that is built into a run.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// The schedule is over: every rate is 0.
        Over,
        /// Each label belongs to another masked token, half a batch away.
        Shifted,
        /// What is asked for stands in the input.
        Visible,
        /// Thirty times the rate.
        Fast,
        /// Every token says that it stands first.
        Placeless,
    }

    /// The losses of a run with a fault: of masked tokens, and of pairs.
    fn sick_run(
        fault: Fault,
        data: &PretrainingData,
        (config, layout): (&Config, &std::sync::Arc<Layout>),
        steps: u64,
    ) -> cloze::Result<[Vec<(f64, f64)>; 2]> {
        let mut model = CpuEngine::new(config, layout, layout.initialise(1))?;
        let peak = match fault {
            Fault::Over => 0.0,
            Fault::Fast => 6e-2,
            _ => 2e-3,
        };
        let schedule = Schedule {
            peak,
            warmup: steps / 10,
            total: steps,
        };
        let mut curves = [Vec::new(), Vec::new()];
        for step in 1..=steps {
            let mut batch = data.batch(step - 1, 16)?;
            match fault {
                Fault::Shifted => {
                    let half = batch.masked_labels.len() / 2;
                    batch.masked_labels.rotate_right(half);
                }
                Fault::Visible => {
                    for (row, label) in batch.masked_rows.iter().zip(&batch.masked_labels) {
                        batch.packed.ids[*row as usize] = *label;
                    }
                }
                Fault::Placeless => batch.packed.positions.fill(0),
                Fault::None | Fault::Over | Fault::Fast => {}
            }
            let dropout = Dropout {
                seed: 1,
                step: step as u32,
            };
            let scores = model.pretraining_gradients(&batch, dropout)?;
            model.update(&Update {
                optimizer: crate_optimizer(),
                learning_rate: schedule.rate(step),
                step,
                max_norm: 1.0,
            })?;
            curves[0].push((step as f64, scores.mean_mlm_loss()));
            curves[1].push((step as f64, scores.mean_nsp_loss()));
        }
        Ok(curves)
    }

    let faults: [(&str, Fault); 6] = [
        ("A", Fault::None),
        ("B", Fault::Over),
        ("C", Fault::Shifted),
        ("D", Fault::Visible),
        ("E", Fault::Fast),
        ("F", Fault::Placeless),
    ];
    let sick_steps: u64 = cloze::lessons::steps(300);
    let mut blanks: LineChart = LineChart::new("Six runs: masked words")
        .axes("step", "nats a masked token")
        .reference("ln(V)", (tokenizer.vocab_size() as f64).ln())
        .reference("unigram entropy", data.unigram_entropy());
    let mut next: LineChart = LineChart::new("Six runs: next sentence")
        .axes("step", "nats a pair")
        .reference("ln(2)", 2f64.ln());
    for (name, fault) in faults {
        let [tokens, pairs] = sick_run(fault, &data, (&config, &layout), sick_steps)?;
        let late = |curve: &[(f64, f64)]| {
            let last = &curve[curve.len() - curve.len() / 10 - 1..];
            last.iter().map(|point| point.1).sum::<f64>() / last.len() as f64
        };
        println!(
            "{name}: ends at {:.2} nats a blank, {:.2} a pair",
            late(&tokens),
            late(&pairs)
        );
        blanks = blanks.averaged(name, &tokens);
        next = next.averaged(name, &pairs);
    }
    show!(blanks);
    show!(next);

    // %% [markdown]
    // Which fault is which? Think before you read on. One run is healthy, one was given labels that
    // belong to other blanks, one can see the answers, one has a schedule that is already over, one
    // a rate thirty times too high, and one does not know the order of the words.
    //
    // | curve | what it says | what it was here |
    // |---|---|---|
    // | stays where it began, near $\ln V$ and $\ln 2$ | nothing is learned at all | B: the rate is 0 |
    // | falls to the unigram entropy and stays; pairs as in A | the frequencies are learned, by the head's bias alone; the context is of no use | C: labels of other blanks |
    // | near 0 within a hundred steps | the answer is visible | D: nothing was masked |
    // | rests at the unigram entropy, and the pairs for long far *above* $\ln 2$ | each step overshoots | E: the rate |
    // | below the entropy, but behind A more and more | part of the input is missing | F: no positions |
    //
    // ### Stuck at 7
    //
    // "My loss is stuck at 7" is asked again and again about BERT, and 7 is no accident:
    //
    // | vocabulary | at the start, $\ln V$ | unigram entropy |
    // |---|---:|---:|
    // | ours, 1,000 pieces | 6.91 | 5.17 |
    // | `cloze-tiny`'s, 8,000 pieces, novels and Wikipedia | 8.99 | 6.65 |
    // | BERT's, 30,522 pieces, paragraphs of Wikipedia | 10.33 | 7.25 |
    //
    // With BERT's vocabulary a loss that starts at about 10.3 and rests at about 7.2 (7.9 with the
    // pairs) has learned how often each piece occurs, and nothing else. Every run rests there for a
    // while, some for thousands of steps. If it stays: look at labels and positions (table above),
    // then at the warm-up and the rate, then at the length of the sequences: `cloze-tiny` began with
    // 64 tokens for this reason. With *our* vocabulary the same number, 6.9, is $\ln V$ and means
    // that nothing has been learned at all. Know both numbers before you judge a loss.
    //
    // ## What goes wrong
    //
    // What the crate says, really, of a rate beyond all reason, of a state that was cut off, and of
    // a model that the state does not fit:

    // %%
    let mut wild: Pretrainer = short_trainer(&tokenizer, &options, 40, 1e30)?;
    if let Err(error) = wild.run(None, &mut Silent, &Stop::default()) {
        println!("{error}");
    }
    let path: std::path::PathBuf = checkpoint::path(&scratch);
    let bytes: Vec<u8> = std::fs::read(&path)?;
    std::fs::write(&path, &bytes[..bytes.len() / 2])?;
    if let Err(error) = State::read(&scratch) {
        let place = scratch.display().to_string();
        println!("{}", error.to_string().replace(&place, "…"));
    }
    let mut deeper: Config = config.clone();
    deeper.num_hidden_layers = 3;
    let deep_layout: std::sync::Arc<Layout> = Layout::new(&deeper, &PRETRAINING);
    if let Err(error) = CpuEngine::new(&deeper, &deep_layout, start.clone()) {
        println!("{error}");
    }
    std::fs::remove_dir_all(&scratch)?;

    // %% [markdown]
    // And what the compiler says. **Two kinds of numbers.** The schedule counts in f64, parameters
    // are f32; `*value -= rate * g` with both:
    //
    // ```text
    // error[E0308]: mismatched types
    //   |         *value -= rate * g;
    //   |                          ^ expected `f64`, found `f32`
    // error[E0277]: cannot multiply `f64` by `&f32`
    // error[E0277]: cannot subtract-assign `f64` from `f32`
    // ```
    //
    // Convert once, before the loop: `let rate = rate as f32`.
    //
    // **A loop that only looks.** `gradients.iter().for_each(|g| *g *= scale)`:
    //
    // ```text
    // error[E0594]: cannot assign to `*g`, which is behind a `&` reference
    //   |     gradients.iter().for_each(|g| *g *= scale);
    //   |                                   ^^^^^^^^^^^ `g` is a `&` reference, so it cannot be written to
    // help: you may want to use `iter_mut` here
    // ```
    //
    // `iter_mut()` hands out references that may be written through.
    //
    // **What nobody says:** gradients that were not zeroed after the update. The engine's `update`
    // does it; a loop of your own must (`discard`), or each step goes along the sum of all before
    // it, which looks like a rate that is too high.
    //
    // ## Expected numbers
    //
    // - untrained 7.079 nats a token (ln V is 6.908) and 0.722 a pair (ln 2 is 0.693);
    // - twenty steps of your loop and of the crate's: the same losses to six digits, 625,130
    //   parameters to 4e-7;
    // - after 2,000 steps 1.120 nats a held-out blank (73.1 % right) and 0.494 a pair (76.6 % right);
    //   the run takes about twenty seconds on two quiet cores;
    // - the run in one piece and the one in two: 0 of 625,130 parameters differ;
    // - the six runs end at 4.27, 7.07, 5.18, 0.01, 5.20 and 4.61 nats a blank;
    // - all cells together compute for about a minute.
    //
    // ## On real text
    //
    // `cloze pretrain --text FOLDER --size tiny --steps 40000 --save-every 1000 --out DIR` is this
    // loop on books of your own; Ctrl-C stops it at a step's end and `--resume` goes on.
    // `lessons/data/cloze-tiny/README.md` tells what 23 million tokens and 78 minutes made of it.
    //
    // ## Open questions
    //
    // 1. AdamW keeps two numbers for each parameter. What does a step of BERT-large then need in
    //    memory, in bytes, for parameters, gradients and optimizer alone? Which of the three could
    //    be kept in 16 bits?
    // 2. You train with batches of 16. Somebody else has a machine for 256 and takes the same rate
    //    and the same number of passes through the text. What is different about their run, and what
    //    would you change?
    //
    // The crate's source of this part: `src/train/pretrain.rs`, `src/engine/cpu/optimizer.rs`,
    // `src/train/schedule.rs`, `src/train/checkpoint.rs`; steps that go wrong are judged in
    // `src/train/guard.rs`. What the model is good for comes next, in [lesson 08](08_glue.rs).

    // %% [end]
    cloze::lessons::finish("07_pretraining")
}
