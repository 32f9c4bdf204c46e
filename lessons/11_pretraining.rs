// ---
// title = "Pre-training: the loop that makes your BERT"
// summary = "Join your parts in a loop of your own, pre-train your BERT with it on a text of your choice, stop and resume to the very same numbers, and keep the model for the lessons that follow."
// track = "core"
// minutes = 59
// seconds = 80
// needs = ["09", "10"]
//
// [[exercise]]
// id = "11.1"
// key = "joint_loss"
// was = "07.1"
// title = "The joint loss of a batch in parts"
// hints = [
//     "Each part holds sums: `mlm_loss` over `mlm_total` masked tokens, `nsp_loss` over `nsp_total` pairs. Sums may be added, means may not.",
//     "Add up each of the four numbers over all parts. Then divide twice and add: masked tokens and pairs each have a mean of their own.",
//     "A batch without pairs has `nsp_total` 0: divide by `nsp_total.max(1)`, and 0 / 1 is 0.",
// ]
//
// [[exercise]]
// id = "11.2"
// key = "resume"
// was = "07.5"
// title = "Resume"
// hints = [
//     "Three things must be restored: the parameters, the moments, and the number of the step.",
//     "`set_parameters` takes a slice, `&saved.parameters`; `set_moments` takes the moments themselves, `saved.moments.clone()`.",
//     "`saved.step` steps are done. The next one is `saved.step + 1`.",
// ]
//
// [[exercise]]
// id = "11.3"
// key = "pretrain"
// was = "07.6"
// title = "The loop"
// hints = [
//     "Before the loop: `let decay = pretraining::decayed(model.layout()); let (mut values, mut moments) = (model.parameters()?, model.moments()?);` and an empty list of steps.",
//     "In each step: `let batch = data.batch(step - 1, BATCH)?;`, then `for pairs in PARTS { scores.push(accumulate(model, &batch, pairs)?); }` with a new list `scores`.",
//     "Next: `let mut gradients = model.gradients()?; model.discard()?;`, then clip them, compute the rate of this step, call `adamw` with `rate as f32`, and give the values to the model with `set_parameters(&values)`.",
//     "Push `Step { loss: joint_loss(&scores), norm }`. After the loop: `model.set_moments(moments)?; Ok(log)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 11 · Pre-training: the loop that makes your BERT
    //
    // All parts are ready: tokens, the model, masked words, next sentences, the optimizer. You write the
    // loop that joins them, and then your BERT is pre-trained with your functions on a text of your
    // choice. It is kept: lesson 12 fine-tunes it, lesson 21 exports it.
    //
    // *About 59 minutes; two cells train for up to a minute each on two cores. You need lessons 09
    // and 10.*

    // %%
    use std::ops::{Range, RangeInclusive};

    use cloze::engine::optimizer::Moments;
    use cloze::engine::{LossWeights, OwnParts, PretrainingScores, Recorded, TinyBert};
    use cloze::lessons::largest_gap;
    use cloze::lessons::support::pretraining::{self, Slip};
    use cloze::lessons::support::yours::{self, Material};
    use cloze::model::Dropout;
    use cloze::prelude::*;
    use cloze::train::Schedule;
    use cloze::view::Flow;
    use cloze::view::style::number;

    // %% [markdown]
    // The next cell brings everything that you have written for the model and its training. It says
    // what is yours and what is a lesson's solution.

    // %% [yours] 06.3 07.2 07.3 08.2 09.3 10.1 10.2 10.3
    #[rustfmt::skip]
    #[allow(dead_code, unused_imports)]
    mod yours_06_07_08_09_10 {
        pub mod embeddings {
            use cloze::model::Embeddings;
            use cloze::prelude::*;

            /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
            pub type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;

            /// The parameters of BERT's input.
            pub type Tables = Embeddings<H, f32, Cpu>;

            pub fn embed_batch<T: Taped>(tables: &Tables, sentences: &[(Vec<u32>, Vec<u32>)]) -> Batch<T> {
                let dev = Cpu::default();
                let longest = sentences.iter().map(|(ids, _)| ids.len()).max();
                let shape = (sentences.len(), longest.unwrap_or(0));
                let mut ids = vec![0usize; shape.0 * shape.1];
                let mut segments = ids.clone();
                let mut positions = ids.clone();
                for (b, (sentence, sentence_segments)) in sentences.iter().enumerate() {
                    for (i, (&id, &segment)) in sentence.iter().zip(sentence_segments).enumerate() {
                        let at = b * shape.1 + i;
                        (ids[at], segments[at], positions[at]) = (id as usize, segment as usize, i);
                    }
                }
                let pick = |table: &Rows<H>, rows: Vec<usize>| -> Batch<T> {
                    table
                        .retaped::<T>()
                        .gather(dev.tensor_from_vec(rows, shape))
                };
                let sum = pick(&tables.words, ids)
                    + pick(&tables.segments, segments)
                    + pick(&tables.positions, positions);
                tables.norm.forward(sum)
            }

            pub const H: usize = 128;

            /// Rows of `N` numbers, how many is known at run time: (rows, N).
            pub type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;
        }

        pub mod heads {
            use cloze::model::Attention;
            use cloze::prelude::*;

            pub const H: usize = 128;

            pub const A: usize = 2;

            pub const K: usize = 64;

            /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
            pub type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;

            /// What is added to the scores: 0 at real tokens, -10⁹ at padding, (B, S).
            pub type Grid = Tensor<(usize, usize), f32, Cpu>;

            pub fn multi_head<T: Taped>(
                layer: &Attention<H, A, K, f32, Cpu>,
                x: Batch<T>,
                mask: &Grid,
            ) -> Batch<T> {
                let q = split_heads::<H, A, K, T>(project(&layer.query, x.with_empty_tape()));
                let k = split_heads::<H, A, K, T>(project(&layer.key, x.with_empty_tape()));
                let v = split_heads::<H, A, K, T>(project(&layer.value, x));
                let scores = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>()) * (1.0 / (K as f32).sqrt());
                let shape = *scores.shape();
                let scores = scores + mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape);
                let mixed = scores.softmax::<Axis<3>>().matmul(v);
                project(&layer.output, join_heads::<H, A, K, T>(mixed))
            }

            pub fn join_heads<const N: usize, const A: usize, const K: usize, T: Taped>(
                heads: Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu, T>,
            ) -> Tensor<(usize, usize, Const<N>), f32, Cpu, T> {
                let (b, _, s, _) = *heads.shape();
                heads
                    .permute::<_, Axes4<0, 2, 1, 3>>()
                    .reshape_like(&(b, s, Const::<N>))
            }

            pub fn split_heads<const N: usize, const A: usize, const K: usize, T: Taped>(
                x: Tensor<(usize, usize, Const<N>), f32, Cpu, T>,
            ) -> Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu, T> {
                let (b, s, _) = *x.shape();
                x.reshape_like(&(b, s, Const::<A>, Const::<K>))
                    .permute::<_, Axes4<0, 2, 1, 3>>()
            }
        }

        pub mod encoder {
            use cloze::engine::TinyBert;
            use cloze::lessons::support::attention;
            use cloze::model::{Layer, real_rows};
            use cloze::prelude::*;
            use super::embeddings::embed_batch;
            use super::heads::multi_head;

            pub fn encode<T: Taped>(bert: &TinyBert, batch: &Packed) -> Tensor<(usize, Const<H>), f32, Cpu, T> {
                let mask = attention::padding_mask(batch);
                let mut x = embed_batch::<T>(&bert.embeddings, &attention::sentences(batch));
                for layer in &bert.layers {
                    x = encoder_layer(layer, x, &mask);
                }
                real_rows(x, batch)
            }

            pub const H: usize = 128;

            pub fn encoder_layer<T: Taped>(layer: &TinyLayer, x: Batch<T>, mask: &Grid) -> Batch<T> {
                let attended = multi_head(&layer.attention, x.with_empty_tape(), mask);
                let between = layer.attention_norm.forward(attended + x);
                let inner = gelu(project(&layer.intermediate, between.with_empty_tape()));
                layer
                    .output_norm
                    .forward(project(&layer.output, inner) + between)
            }

            /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
            pub type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;

            /// What is added to the scores: 0 at real tokens, -10⁹ at padding, (B, S).
            pub type Grid = Tensor<(usize, usize), f32, Cpu>;

            /// The crate's encoder layer of this size: 2 heads of 64.
            pub type TinyLayer = Layer<H, 2, 64, I, f32, Cpu>;

            pub const I: usize = 512;
        }

        pub mod masked_lm {
            use cloze::engine::Recorded;
            use cloze::model::{MaskedLmHead, Rows};
            use cloze::prelude::*;

            pub fn cross_entropy(logits: &[f32], label: usize) -> f64 {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = logits.iter().map(|&z| f64::from(z - largest).exp()).sum();
                f64::from(largest) + sum.ln() - f64::from(logits[label])
            }

            pub const H: usize = 128;

            /// The crate's masked-LM head, of which you use the fields.
            pub type Head = MaskedLmHead<H, f32, Cpu>;

            pub fn masked_head(
                head: &Head,
                words: &Rows<H, f32, Cpu>,
                rows: Recorded<(usize, Const<H>)>,
            ) -> Recorded<(usize, usize)> {
                let x = head.norm.forward(gelu(head.dense.forward(rows)));
                let product = x.matmul(words.clone().permute::<_, Axes2<1, 0>>());
                let shape = *product.shape();
                product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)
            }
        }

        pub mod fill_blanks {
            use cloze::prelude::*;

            pub fn loss_gradient(logits: &[f32], label: usize) -> Vec<f32> {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let powers: Vec<f32> = logits.iter().map(|z| (z - largest).exp()).collect();
                let sum: f32 = powers.iter().sum();
                let mut gradient: Vec<f32> = powers.iter().map(|power| power / sum).collect();
                gradient[label] -= 1.0;
                gradient
            }
        }

        pub mod next_sentence {
            use cloze::model::{Rows, pick};
            use cloze::prelude::*;
            use dfdx::nn::modules::Linear;

            /// The pooler's linear layer and the classifier.
            pub type PairHead<const H: usize> = (Linear<H, H, f32, Cpu>, Linear<H, 2, f32, Cpu>);

            pub fn next_sentence<const H: usize, T: Taped>(
                head: &PairHead<H>,
                batch: &Packed,
                rows: Rows<H, f32, Cpu, T>,
            ) -> Rows<2, f32, Cpu, T> {
                let which: Vec<u32> = batch.ranges().map(|rows| rows.start as u32).collect();
                let pooled = head.0.forward(pick(rows, &which)).tanh();
                head.1.forward(pooled)
            }
        }

        pub mod optimizer {
            use cloze::engine::optimizer::Moments;
            use cloze::prelude::*;

            pub fn rate(step: u64, peak: f64, warmup: u64, total: u64) -> f64 {
                if step < warmup {
                    peak * step as f64 / warmup as f64
                } else {
                    peak * (total - step + 1) as f64 / (total - warmup + 1) as f64
                }
            }

            pub fn clip(gradients: &mut [f32], max_norm: f64) -> f64 {
                let sum: f64 = gradients.iter().map(|g| f64::from(*g).powi(2)).sum();
                let norm = sum.sqrt();
                if norm > max_norm {
                    let scale = (max_norm / norm) as f32;
                    gradients.iter_mut().for_each(|g| *g *= scale);
                }
                norm
            }

            pub const BETA1: f32 = 0.9;

            pub const BETA2: f32 = 0.98;

            pub const EPSILON: f32 = 1e-6;

            pub const DECAY: f32 = 0.01;

            pub fn adamw(
                values: &mut [f32],
                gradients: &[f32],
                decay: &[bool],
                moments: &mut Moments,
                rate: f32,
                step: u64,
            ) {
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
            }
        }
    }
    use yours_06_07_08_09_10::encoder::encode;
    use yours_06_07_08_09_10::fill_blanks::loss_gradient;
    use yours_06_07_08_09_10::masked_lm::cross_entropy;
    use yours_06_07_08_09_10::masked_lm::masked_head;
    use yours_06_07_08_09_10::next_sentence::next_sentence;
    use yours_06_07_08_09_10::optimizer::adamw;
    use yours_06_07_08_09_10::optimizer::clip;
    use yours_06_07_08_09_10::optimizer::rate;

    // %%
    show!(
        Flow::new("One step of pre-training", "step number t")
            .step("batch t", "a function of the seed and t alone")
            .step(
                "forward",
                "your model: logits of masked tokens and of pairs"
            )
            .step("joint loss", "two means, added")
            .step("backward", "a gradient for each parameter")
            .step(
                "clip",
                "yours: the norm of all gradients together is at most 1"
            )
            .step("AdamW", "yours, at the rate that your schedule sets for t")
            .step("now and then", "measure on held-out text, save")
    );

    // %% [markdown]
    // Choose the text. `None` takes the generated stories that come with Cloze: 623 different words,
    // so the numbers look better than any on natural text. Put the path of a text file, or of a folder
    // of them, in its place, and your BERT learns from that. (UTF-8; an empty line ends a document.
    // Some hundred kilobytes are enough for a small model.)

    // %%
    let text: Option<&str> = None; // Some("/home/me/book.txt")
    let Material {
        tokenizer,
        data,
        held_out,
        config,
        layout,
    } = Material::new(text.map(std::path::Path::new))?;
    let start: Vec<f32> = layout.initialise(1);
    let mut model: CpuEngine = CpuEngine::new(&config, &layout, start.clone())?;
    let batch: PretrainingBatch = data.batch(0, 16)?;
    println!(
        "{} tokens in {} documents, {} documents held out; {} parameters",
        number(data.tokens() as f64),
        data.documents(),
        held_out.documents(),
        number(layout.total() as f64)
    );

    // %% [markdown]
    // ## Step 1: the joint loss
    //
    // The loss is the mean over the set $M$ of masked tokens plus the mean over the set $N$ of pairs,
    // where $x_i$ is the token that was masked at $i$ and $y_j$ the label of pair $j$
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), appendix A.2):
    //
    // $$ L = \frac{1}{|M|} \sum_{i \in M} -\ln p(x_i) \; + \; \frac{1}{|N|} \sum_{j \in N} -\ln p(y_j) $$
    //
    // A batch of 256 sequences may not fit into memory. So it goes through the model in parts
    // (**micro-batches**), and the gradients of all parts are added up before the update: **gradient
    // accumulation**. The loss must still be that of the whole batch. Each part reports sums and
    // counts: `mlm_loss` is the sum over its `mlm_total` masked tokens, `nsp_loss` the sum over its
    // `nsp_total` pairs (losses are f64, counts u64).
    //
    // **Exercise 11.1.** Return the joint loss of the whole batch. There may be no pairs at all;
    // then their mean counts as 0.

    // %%
    fn joint_loss(parts: &[PretrainingScores]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("11.1");
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
    check!("11.1", |judge| {
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
            "20 / 4 + 1 / 2. 21? These are sums: divide. 3.5? Tokens and pairs were divided by their \
             common number, but each kind has its own mean, or the few pairs would hardly count.",
        );
        let two = [part(20.0, 4, 1.0, 2), part(12.0, 1, 3.0, 3)];
        let yours = joint_loss(&two);
        for (slip, think) in [
            (
                9.25,
                "That is the mean of the parts' means, in which a part with one token counts as much \
                 as one with four. Add the sums, then divide.",
            ),
            (
                18.5,
                "That is the sum of the parts' losses: twice as many parts would double the loss.",
            ),
        ] {
            judge.holds(
                &format!("the loss of two parts of different size is 7.2, yours is {yours:.4}"),
                (yours - slip).abs() > 1e-6,
                think,
            );
        }
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
            "NaN is 0 / 0. RoBERTa has no pairs at all (lesson 27).",
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

    // %% [markdown]
    // ## Step 2: what a run must remember
    //
    // A run of days will be interrupted: by a power cut, by a batch system, by you. What must be
    // saved, so that it can continue as if nothing had happened?
    //
    // - the **parameters**;
    // - AdamW's two **moments**, twice as many numbers as the parameters;
    // - the number of the **step**, which determines the rate, the hats and the batch.
    //
    // And the state of the random generators? Here it isn't needed: batch $k$ and its masks are
    // functions of the seed and $k$. (Where a generator advances with each draw, its state must be
    // saved as well, and so must the place in the data.)
    //
    // **Exercise 11.2.** Restore a saved state in a fresh engine, and return the number of the next step.
    // `engine.set_parameters(&values)?` and `engine.set_moments(moments)?` put numbers into an engine.

    // %%
    /// The state of a run after `step` steps.
    #[derive(Clone)]
    struct Saved {
        step: u64,
        parameters: Vec<f32>,
        moments: Moments,
    }

    /// Returns the state of a run after `step` steps.
    fn state_of(engine: &dyn PretrainingEngine, step: u64) -> cloze::Result<Saved> {
        Ok(Saved {
            step,
            parameters: engine.parameters()?,
            moments: engine.moments()?,
        })
    }

    fn resume(engine: &mut dyn PretrainingEngine, saved: &Saved) -> cloze::Result<u64> {
        // BEGIN SOLUTION
        cloze::solution!("11.2");
        engine.set_parameters(&saved.parameters)?;
        engine.set_moments(saved.moments.clone())?;
        Ok(saved.step + 1)
        // END SOLUTION
    }

    // %%
    check!("11.2", |judge| {
        let schedule = Schedule::linear(2e-3, 3, 12);
        let fresh = || CpuEngine::new(&config, &layout, layout.initialise(2));
        let run = |engine: &mut CpuEngine, steps: RangeInclusive<u64>| {
            for step in steps {
                pretraining::crate_step(engine, &data, schedule, step)?;
            }
            engine.parameters()
        };
        let mut attempt = || -> cloze::Result<()> {
            let mut engine = fresh()?;
            run(&mut engine, 1..=6)?;
            let saved = state_of(&engine, 6)?;
            let whole = run(&mut engine, 7..=12)?;
            let mut resumed = fresh()?;
            let next = resume(&mut resumed, &saved)?;
            judge.equal(
                "the next step after 6 steps",
                next,
                7,
                "6 steps are done. If you return 6, one batch is trained on twice.",
            );
            judge.holds(
                "the engine has the saved parameters",
                resumed.parameters()? == saved.parameters,
                "Where is the model itself?",
            );
            judge.holds(
                "the engine has the saved moments",
                resumed.moments()? == saved.moments,
                "Without them both moments start at 0 again, but the hats belong to step 7 and hardly \
                 correct them: the next steps have the wrong lengths.",
            );
            let yours = run(&mut resumed, next..=12)?;
            let different = pretraining::differing(&yours, &whole);
            judge.equal(
                "the number of parameters that differ after 12 steps, 6 of them after the stop,",
                different,
                0,
                "They must not be nearly the same, but the same, bit for bit.",
            );
            Ok(())
        };
        let outcome = attempt().map_err(|error| error.to_string());
        judge.equal("the run", outcome, Ok(()), "The engine reported an error.");
    });

    // %% [markdown]
    // ## Step 3: the loop
    //
    // Now put your parts together. `model` is either the dfdx model with your functions in it or the
    // crate's engine: the loop is the same for both. `accumulate` runs the forward and the backward
    // pass on some pairs of a batch. It scales their gradients so that those of all parts add up to the
    // gradients of the whole batch's joint loss.

    // %%
    const BATCH: usize = 16;
    /// The pairs of each part of a batch.
    const PARTS: [Range<usize>; 2] = [0..10, 10..16];

    /// What the loop reports of a step: its joint loss, and the norm of its gradients before clipping.
    struct Step {
        loss: f64,
        norm: f64,
    }

    /// Adds the gradients of some pairs to those that the model holds; returns the scores of the pairs.
    fn accumulate(
        model: &mut dyn PretrainingEngine,
        batch: &PretrainingBatch,
        pairs: Range<usize>,
    ) -> cloze::Result<PretrainingScores> {
        // Our model has no dropout, so its random numbers don't matter.
        let dropout = Dropout { seed: 1, step: 1 };
        let weights = LossWeights::of(batch);
        model.pretraining_gradients_of_part(&batch.slice(pairs), weights, dropout)
    }

    // %% [markdown]
    // **Exercise 11.3.** Write the loop over the steps `steps`, which are counted from 1, with a
    // maximal norm of 1. Return a `Step` for each. It may be the middle of a run: parameters and
    // moments come from the model and must be back in it at the end. What you need:
    //
    // - `data.batch(k, BATCH)?` is batch number `k`, counted from *0*;
    // - `accumulate(model, &batch, pairs)?`, for each range in `PARTS`;
    // - `model.gradients()?` returns a copy of the gradients that were added up, and
    //   `model.discard()?` zeroes them;
    // - `model.parameters()?` and `model.moments()?` return copies, `set_parameters` and `set_moments`
    //   put new ones into the model;
    // - `pretraining::decayed(model.layout())` is the list `decay` of your `adamw`;
    // - your `joint_loss`, `clip`, `rate` (with `schedule.peak`, `.warmup` and `.total`) and `adamw`.

    // %%
    fn pretrain(
        model: &mut dyn PretrainingEngine,
        data: &PretrainingData,
        schedule: Schedule,
        steps: RangeInclusive<u64>,
    ) -> cloze::Result<Vec<Step>> {
        // BEGIN SOLUTION
        cloze::solution!("11.3");
        let decay = pretraining::decayed(model.layout());
        let (mut values, mut moments) = (model.parameters()?, model.moments()?);
        let mut log = Vec::new();
        for step in steps {
            let batch = data.batch(step - 1, BATCH)?;
            let mut scores = Vec::new();
            for pairs in PARTS {
                scores.push(accumulate(model, &batch, pairs)?);
            }
            let mut gradients = model.gradients()?;
            model.discard()?;
            let norm = clip(&mut gradients, 1.0);
            let rate = rate(step, schedule.peak, schedule.warmup, schedule.total) as f32;
            adamw(&mut values, &gradients, &decay, &mut moments, rate, step);
            model.set_parameters(&values)?;
            let loss = joint_loss(&scores);
            log.push(Step { loss, norm });
        }
        model.set_moments(moments)?;
        Ok(log)
        // END SOLUTION
    }

    // %%
    check!("11.3", |judge| {
        let schedule = Schedule::linear(2e-3, 4, 20);
        let its = pretraining::Run {
            config: &config,
            layout: &layout,
            start: &start,
            data: &data,
            schedule,
            parts: &PARTS,
        };
        let fresh = || CpuEngine::new(&config, &layout, start.clone());
        let losses = |log: &[Step]| log.iter().map(|step| step.loss).collect::<Vec<f64>>();
        let mut attempt = || -> cloze::Result<()> {
            let mut model = fresh()?;
            let log = pretrain(&mut model, &data, schedule, 1..=8)?;
            let yours = losses(&log);
            judge.equal(
                "the number of entries for the steps 1 to 8",
                yours.len(),
                8,
                "Push one `Step` for each step, after all parts of its batch.",
            );
            if yours.len() != 8 {
                return Ok(());
            }
            judge.holds(
                &format!("the losses are numbers, yours are {yours:.3?}"),
                yours.iter().all(|loss| loss.is_finite()),
                "AdamW counts steps from 1: in step 0 its hats divide by 0.",
            );
            let (right, values) = its.with(Slip::None, 8)?;
            if largest_gap(&yours, &right) >= pretraining::SAME_LOSS {
                let same = |(a, b): (&f64, &f64)| (a - b).abs() < pretraining::SAME_LOSS;
                let alike = yours
                    .iter()
                    .zip(&right)
                    .take_while(|pair| same(*pair))
                    .count();
                let think = match its.slip_of(&yours)? {
                    Some(Slip::Frozen) => {
                        "The parameters never change. Do you read the gradients before `discard` \
                         zeroes them, and give the new values to the model with `set_parameters`?"
                    }
                    Some(Slip::NotZeroed) => {
                        "The gradients are never zeroed: each step follows the sum of all gradients \
                         since step 1. `discard` them once they are copied."
                    }
                    Some(Slip::LastPartOnly) => {
                        "Only the last part of each batch counts: the gradients are zeroed between \
                         the parts. They must be accumulated over all parts and zeroed once a step."
                    }
                    Some(Slip::UpdatedEachPart) => {
                        "The parameters are updated after each part. The parts belong to one batch: \
                         accumulate first, then update once."
                    }
                    Some(Slip::Unclipped) => {
                        "The gradients that reach AdamW are not clipped. Clip to 1 *before* the \
                         update: afterwards it changes nothing any more."
                    }
                    Some(Slip::RateBefore) => {
                        "Each step has the rate of the step before: the first one has rate 0 and \
                         learns nothing. Your `rate` counts from 1, as `steps` does."
                    }
                    Some(Slip::RateAfter) => {
                        "Each step has the rate of the step after. Your `rate` counts from 1, as \
                         `steps` does."
                    }
                    Some(Slip::BatchAfter) => {
                        "Step 1 trains on batch 1, so batch 0 is never seen: steps are counted from \
                         1, batches from 0."
                    }
                    Some(Slip::CorrectedAfter) => {
                        "AdamW gets the number of the step after, so its hats are too small. It \
                         counts from 1, as `steps` does."
                    }
                    _ if alike == 0 => {
                        "The very first loss differs, before any update: it is your `joint_loss` of \
                         the scores of both parts of batch 0."
                    }
                    _ => {
                        "The losses agree until an update goes wrong. Go through it line by line: \
                         accumulate, copy, zero, clip to 1, rate, adamw with the list `decay`, \
                         set_parameters. Is each of your parts still right? Run its check again."
                    }
                };
                let what = format!(
                    "the losses of the steps 1 to 8 are those of the crate's loop\n  {right:.4?}\nyours \
                     are\n  {yours:.4?}\nThe first that differs is that of step {}",
                    alike + 1
                );
                judge.holds(&what, false, think);
                return Ok(());
            }
            judge.close(
                "the largest gap to the crate's parameters after 8 steps",
                largest_gap(&model.parameters()?, &values),
                0.0,
                1e-5,
                "Losses agree, parameters don't: is the last update given to the model?",
            );
            judge.holds(
                "each `Step` holds the norm of its gradients before clipping",
                log.iter().all(|step| step.norm > 0.0) && log.iter().any(|step| step.norm > 1.01),
                "`clip` returns it. After clipping it would be at most 1 in every step.",
            );
            let mut parts = fresh()?;
            let mut halves = losses(&pretrain(&mut parts, &data, schedule, 1..=4)?);
            judge.holds(
                "the moments are in the model after the loop",
                parts.moments()?.second.iter().any(|v| *v > 0.0),
                "A later call, or a saved state, needs them: `set_moments` at the end.",
            );
            halves.extend(losses(&pretrain(&mut parts, &data, schedule, 5..=8)?));
            judge.same_list(
                "the losses of steps 1 to 4 and of steps 5 to 8 in a second call",
                &halves,
                &yours,
                "The second call continues the run: take the step's number from `steps`, and \
                 parameters and moments from the model.",
            );
            Ok(())
        };
        let outcome = attempt().map_err(|error| error.to_string());
        judge.equal("the run", outcome, Ok(()), "The engine reported an error.");
    });

    // %% [markdown]
    // ## Step 4: your BERT
    //
    // These are the functions that your model is made of. `pair_logits` gives your `next_sentence` the
    // two linear layers of the model that it needs.

    // %%
    fn pair_logits(
        bert: &TinyBert,
        rows: Recorded<(usize, Const<128>)>,
        batch: &Packed,
    ) -> Recorded<(usize, Const<2>)> {
        next_sentence(&yours::pair_head(bert), batch, rows)
    }

    let parts: OwnParts = OwnParts {
        encode: encode::<OwnedTape<f32, Cpu>>,
        masked: masked_head,
        pairs: Some(pair_logits),
        loss: cross_entropy,
        gradient: loss_gradient,
    };

    /// Returns our schedule for a run of `total` steps.
    fn schedule_of(total: u64) -> Schedule {
        Schedule::linear(2e-3, total / 10, total)
    }

    // %% [markdown]
    // 2,000 steps in all. The first 500 run through your functions in dfdx. Then the same loop, yours,
    // goes on with the engine from where your model stands: lesson 08 has shown that both compute the
    // same. (To run all 2,000 through your functions, set `own_steps` to `steps`; it takes some
    // minutes.)

    // %%
    let steps: u64 = cloze::lessons::steps(2_000);
    let own_steps: u64 = (steps / 4).max(1);
    let mut own: Reference =
        Reference::new(&config, &layout, start.clone())?.with_own_parts(parts)?;
    let mut norms: Vec<(f64, f64)> = Vec::new();

    /// Starts a chart of a part of the run.
    fn chart_of(title: &str, data: &PretrainingData) -> LiveChart {
        LiveChart::new(
            LineChart::new(title)
                .axes("step", "nats")
                .reference("unigram entropy", data.unigram_entropy())
                .reference("ln(2)", 2f64.ln()),
        )
    }

    // %%
    /// Trains in pieces and measures after each on the held-out documents.
    fn charted(
        model: &mut dyn PretrainingEngine,
        (data, held_out): (&PretrainingData, &PretrainingData),
        (schedule, steps): (Schedule, RangeInclusive<u64>),
        chart: &mut LiveChart,
        norms: &mut Vec<(f64, f64)>,
    ) -> cloze::Result<()> {
        let piece = (schedule.total / 20).max(1);
        for first in steps.clone().step_by(piece as usize) {
            let last = (first + piece - 1).min(*steps.end());
            let log = pretrain(model, data, schedule, first..=last)?;
            for (step, Step { loss, norm }) in (first..).zip(log) {
                norms.push((step as f64, norm));
                chart.push("training, both", step as f64, loss);
            }
            let scores = pretraining::held_out_scores(model, held_out)?;
            chart.push("held out, a token", last as f64, scores.mean_mlm_loss());
            chart.push("held out, a pair", last as f64, scores.mean_nsp_loss());
        }
        Ok(())
    }

    // %%
    if solved!("11.3") {
        let run = (schedule_of(steps), 1..=own_steps);
        let mut chart = chart_of("Your functions and your loop", &data);
        charted(&mut own, (&data, &held_out), run, &mut chart, &mut norms)?;
    }

    // %%
    let mut trained: CpuEngine = CpuEngine::new(&config, &layout, own.parameters()?)?;
    if solved!("11.3") {
        trained.set_moments(own.moments()?)?;
        let run = (schedule_of(steps), own_steps + 1..=steps);
        let mut chart = chart_of("Your loop goes on with the engine", &data);
        charted(
            &mut trained,
            (&data, &held_out),
            run,
            &mut chart,
            &mut norms,
        )?;
    }

    // %%
    if solved!("11.3") {
        let scores = pretraining::held_out_scores(&mut trained, &held_out)?;
        println!(
            "held out: {:.3} nats a masked token, {:.1} % right; {:.3} nats a pair, {:.1} % right",
            scores.mean_mlm_loss(),
            100.0 * scores.mlm_accuracy(),
            scores.mean_nsp_loss(),
            100.0 * scores.nsp_accuracy()
        );
        show!(
            LineChart::new("Global norm of the gradients, before clipping")
                .axes("step", "norm")
                .smoothed("norm", &norms)
                .reference("clipped to", 1.0)
        );
        let folder = yours::save(&trained, &tokenizer)?;
        println!("the model is kept in {}", folder.display());
    }

    // %% [markdown]
    // With your parts and your loop, a BERT has learned the language of the text. The loss of the
    // masked words falls at once, but that of the pairs stays at $\ln 2$ for some 400 steps, because
    // the head can only separate what the encoder has learned to see. And the norm grows while the
    // loss falls: the parameters grow, and the model becomes more certain. With Adam, clipping at
    // every step does little harm, since a factor that is always there cancels in $m / \sqrt v$. What
    // it achieves is that no batch counts many times as much as another.

    // %% [markdown]
    // ## Stop and resume
    //
    // Compare a run of 120 steps in one piece with two runs that are stopped after 60 steps and
    // continued with your `resume`: one with the whole state, one without the moments.

    // %%
    /// Continues a saved run in a new model to its end; returns the model and the losses.
    fn continued(
        mut engine: CpuEngine,
        data: &PretrainingData,
        schedule: Schedule,
        saved: &Saved,
    ) -> cloze::Result<(CpuEngine, Vec<Step>)> {
        let next = resume(&mut engine, saved)?;
        let log = pretrain(&mut engine, data, schedule, next..=schedule.total)?;
        Ok((engine, log))
    }

    // %%
    if solved!("11.2") && solved!("11.3") {
        let total = cloze::lessons::steps(120);
        let (half, schedule) = (total / 2, schedule_of(total));
        let mut whole = CpuEngine::new(&config, &layout, start.clone())?;
        pretrain(&mut whole, &data, schedule, 1..=half)?;
        let saved = state_of(&whole, half)?;
        let mut forgetful = saved.clone();
        forgetful.moments = Moments::zeros(layout.total());
        let log = pretrain(&mut whole, &data, schedule, half + 1..=total)?;
        let mut chart = LineChart::new("Stopped half way: loss minus that of the run in one piece")
            .axes("step", "nats");
        for (name, saved) in [
            ("without the moments", forgetful),
            ("with everything", saved),
        ] {
            let fresh = CpuEngine::new(&config, &layout, layout.initialise(2))?;
            let (engine, rest) = continued(fresh, &data, schedule, &saved)?;
            let gaps = (half + 1..).zip(rest.iter().zip(&log));
            let gaps = gaps.map(|(step, (a, b))| (step as f64, a.loss - b.loss));
            chart = chart.line(name, &gaps.collect::<Vec<_>>());
            let differ = pretraining::differing(&engine.parameters()?, &whole.parameters()?);
            println!("{name}: {} parameters differ", number(differ as f64));
        }
        show!(chart);
    }

    // %% [markdown]
    // With everything the difference is exactly 0. Without the moments the loss is up to 0.2 nats
    // higher, and the run needs some fifty steps to recover, about as many as $\beta_2 = 0.98$
    // remembers. The paper's 0.999 remembers a thousand.
    //
    // The crate keeps this state in `trainer/state.safetensors` beside the model. It is written to
    // another file first and then renamed, so that a crash while saving leaves the old one intact.

    // %% [markdown]
    // ## Follow this token
    //
    // Now in your own model, if you have saved one, otherwise in `cloze-tiny`. The new stage: *what
    // pre-training made*.

    // %%
    show!(FollowToken::load(yours::start()?.0, "The mill stands by the [MASK].", None)?.after(11));

    // %% [markdown]
    // ## What goes wrong
    //
    // Gradients that are not zeroed, a clipping after the update, a rate that is one step late: none
    // raises an error, and the loss falls, only less. The check of 11.3 runs your loop beside nine
    // others, each with one of these slips, and says whose losses yours are.

    // %% [markdown]
    // ## Expected numbers
    //
    // These are for our generated text.
    //
    // - after 2,000 steps about 1.12 nats a held-out token (73.6 % right) and 0.51 a pair (74.4 % right);
    // - resumed with everything: 0 of 625,130 parameters differ;
    // - all cells together compute for about a minute.

    // %% [markdown]
    // ## On real text
    //
    // `cloze pretrain --text FOLDER --size tiny --steps 40000 --save-every 1000 --out DIR` runs this
    // loop on books of your own; Ctrl-C stops it at the end of a step, and `--resume` continues it.
    // `lessons/data/cloze-tiny/README.md` describes what came of 23 million tokens and 78 minutes.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Your model saw 2,000 batches of 16 pairs. How many passes through the text is that, and what
    //    would you expect of 20,000?
    // 2. The masks are drawn anew in every pass. What would the held-out loss do if every pass had the
    //    same masks? (Lesson 27 tries it.)
    //
    // The crate's source of this part: `src/train/pretrain.rs` and `src/train/checkpoint.rs`. What your
    // model is good for comes next, in [lesson 12](12_fine_tuning.rs).

    // %% [end]
    cloze::lessons::finish("11_pretraining")
}
