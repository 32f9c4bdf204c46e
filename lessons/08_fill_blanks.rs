// ---
// title = "Fill blanks: your BERT in training"
// summary = "Join your embeddings, attention, layers, head and loss to a BERT, train it in dfdx, watch the crate's engine repeat your run faster with the same losses, and let the model fill blanks."
// track = "core"
// minutes = 55
// seconds = 55
// needs = ["07"]
//
// [[exercise]]
// id = "08.1"
// key = "entropy"
// was = "05.4"
// title = "The loss of a model without context"
// hints = [
//     "The share of token v is p = count / total; its contribution to the sum is -p ln p.",
//     "Leave out tokens that never occur: 0 · ln 0 is NaN for a computer, but counts as 0 here.",
// ]
//
// [[exercise]]
// id = "08.2"
// key = "loss_gradient"
// title = "The gradient: p - y"
// hints = [
//     "Two steps: the probabilities p by softmax, then subtract 1 at the label.",
//     "exp(1000) is infinite: subtract the largest logit first, as in 07.2.",
//     "`let powers: Vec<f32> = logits.iter().map(|z| (z - largest).exp()).collect();`, their sum, then divide each by the sum; at last `p[label] -= 1.0`.",
// ]
//
// [[exercise]]
// id = "08.3"
// key = "most_probable"
// was = "05.5"
// title = "The most probable tokens for a blank"
// hints = [
//     "Softmax first: exp(logit - largest), divided by the sum of all of them.",
//     "Sort the pairs (token id, probability) by descending probability: `sort_by(|a, b| b.1.total_cmp(&a.1))`, then `truncate(k)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 08 · Fill blanks: your BERT in training
    //
    // You have written the parts of a BERT: embeddings, attention, layers, head and loss. Now they are
    // joined, and the model they make is trained: yours, in dfdx. Then the crate's engine repeats your
    // run, number for number, only faster, and finishes it. What you end with is what
    // `cloze pretrain` and `cloze fill-mask` do.
    //
    // *About 55 minutes; two cells train for up to half a minute each on two cores. You need
    // lesson 07.*

    // %%
    use std::time::Instant;

    use cloze::engine::optimizer::{Optimizer, Update};
    use cloze::engine::{OwnParts, PretrainingScores};
    use cloze::lessons::support::masked_lm;
    use cloze::model::{Dropout, Part};
    use cloze::prelude::*;
    use cloze::text::{Paragraph, SpecialIds, embedded};
    use cloze::train::schedule::Schedule;
    use cloze::view::Flow;
    use cloze::view::style::number;

    // %% [markdown]
    // ## Where we are going
    //
    // The next cell brings your own functions: `encode` of lesson 06, with the embeddings, the
    // attention and the layers on which it builds, and `masked_head` and `cross_entropy` of lesson 07.
    // For what you have not passed, it brings the lessons' solutions, and says so.

    // %% [yours] 06.3 07.2 07.3
    #[rustfmt::skip]
    #[allow(dead_code, unused_imports)]
    mod yours_06_07 {
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
    }
    use yours_06_07::encoder::encode;
    use yours_06_07::masked_lm::cross_entropy;
    use yours_06_07::masked_lm::masked_head;

    // %%
    show!(
        Flow::new("One step of training", "a batch of masked sequences")
            .step("encode", "yours: a vector for each token, (rows, H)")
            .step("pick the blanks", "(blanks, H)")
            .step("masked_head", "yours: logits, (blanks, V)")
            .step(
                "cross_entropy and its gradient",
                "yours: a loss for each blank, a gradient for each logit"
            )
            .step("backward", "the tape's: a gradient for each parameter")
            .step("update", "AdamW, which you write in lesson 10")
    );

    // %% [markdown]
    // The text, its vocabulary and the model are those of lesson 07.

    // %%
    let paragraphs: Vec<Paragraph> = embedded::paragraphs().collect();
    let tokenizer: WordPiece = WordPiece::train(
        paragraphs.iter().map(|p| Ok(p.text.clone())),
        1_000,
        Casing::Uncased,
    )?;
    let special: SpecialIds = tokenizer.special();
    let vocabulary: u32 = tokenizer.vocab_size() as u32;
    let mut config: Config = Size::Tiny.config(tokenizer.vocab_size());
    // Without dropout two programs can compute the very same numbers.
    config.hidden_dropout_prob = 0.0;
    config.attention_probs_dropout_prob = 0.0;
    config.initializer_range = 0.05;
    let layout: std::sync::Arc<Layout> = Layout::new(&config, &[Part::Encoder, Part::MaskedLm]);
    // The model never trains on the held-out data: every tenth document.
    let (data, held_out): (PretrainingData, PretrainingData) =
        masked_lm::data(&paragraphs, &tokenizer)?;
    let test_batch: PretrainingBatch = held_out.batch(0, 64)?;
    let mut model: CpuEngine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
    let start: PretrainingScores = model.pretraining_scores(&test_batch)?;
    println!(
        "{} parameters; held-out loss {:.3}",
        number(layout.total() as f64),
        start.mean_mlm_loss()
    );

    // %% [markdown]
    // ## Step 1: the baseline
    //
    // How good is a loss of 3? The simplest model, a **unigram** model, ignores the context: it knows
    // how often each token occurs and always answers with these shares $p_v$ as its probabilities.
    // Token $v$ surprises it by $-\ln p_v$, and that happens in a share $p_v$ of all cases. Its mean
    // loss is thus
    //
    // $$ L_\text{unigram} = -\sum_v p_v \ln p_v , $$
    //
    // the **entropy** of the shares. Only a model with a lower loss makes use of the context.
    //
    // **Exercise 08.1.** Compute it from counts: entry $v$ is how often token $v$ occurs.

    // %%
    fn entropy(counts: &[u64]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("08.1");
        let total: u64 = counts.iter().sum();
        counts
            .iter()
            .filter(|count| **count > 0)
            .map(|&count| count as f64 / total as f64)
            .map(|p| -p * p.ln())
            .sum()
        // END SOLUTION
    }

    // %%
    check!("08.1", |judge| {
        judge.close(
            "entropy(&[1, 1, 1, 1])",
            entropy(&[1, 1, 1, 1]),
            4f64.ln(),
            1e-9,
            "Four equal shares: ln 4, the loss of a guess among four. 2? That is in bits, with \
             log2. -1.386? ln of a share is negative: the sum has a minus. NaN or 0? \
             `count / total` of whole numbers is 0: convert to f64 first.",
        );
        judge.close(
            "entropy(&[5, 0])",
            entropy(&[5, 0]),
            0.0,
            1e-9,
            "A token that never occurs contributes nothing; NaN means that you computed ln 0.",
        );
        judge.close(
            "entropy(&[3, 1])",
            entropy(&[3, 1]),
            0.562335,
            1e-6,
            "0.75 · 0.288 + 0.25 · 1.386: each surprise counts with the share of its token. 0.837? \
             That is the plain mean of the two surprises.",
        );
        let sequences = paragraphs
            .iter()
            .map(|p| tokenizer.encode_with_special(&p.text).ids);
        let sequences: Vec<Vec<u32>> = sequences.collect();
        let mut counts: Vec<u64> = vec![0; vocabulary as usize];
        for &id in sequences
            .iter()
            .flatten()
            .filter(|id| !special.contains(**id))
        {
            counts[id as usize] += 1;
        }
        judge.close(
            "the entropy of the whole text",
            entropy(&counts),
            data.unigram_entropy(),
            0.05,
            "The crate computes it for the part that we train on, which is nearly the same.",
        );
    });

    // %% [markdown]
    // ## Step 2: the gradient of the loss
    //
    // Training starts where the loss meets the logits: how does $L$ change with each of them? Let $y$
    // be the right answer written as probabilities: 1 for the right token $c$ and 0 for all others.
    // Then
    //
    // $$ \frac{\partial L}{\partial z_v} = p_v - y_v . $$
    //
    // ($L = \ln \sum_u e^{z_u} - z_c$: by the chain rule the logarithm has the slope
    // $e^{z_v} / \sum_u e^{z_u} = p_v$, and $-z_c$ has the slope -1 at $v = c$.) The gradient is *what the
    // model said minus what it should have said*. A step against it raises the logit of the right token
    // in proportion to $1 - p_c$, and lowers every other logit in proportion to the probability that
    // the token wrongly got. A perfect prediction has no gradient.
    //
    // **Exercise 08.2.** Write it for one blank. This is where backpropagation begins when your model
    // trains; from there the tape goes on.

    // %%
    fn loss_gradient(logits: &[f32], label: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("08.2");
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f32> = logits.iter().map(|z| (z - largest).exp()).collect();
        let sum: f32 = powers.iter().sum();
        let mut gradient: Vec<f32> = powers.iter().map(|power| power / sum).collect();
        gradient[label] -= 1.0;
        gradient
        // END SOLUTION
    }

    // %%
    check!("08.2", |judge| {
        let logits = [1.0f32, 3.0, 2.0];
        let yours = loss_gradient(&logits, 2);
        judge.equal(
            "the length of the gradient of three logits",
            yours.len(),
            3,
            "One number for each logit.",
        );
        let p = [0.0900306f32, 0.6652409, 0.2447285];
        let is = |other: [f32; 3]| {
            yours.len() == 3 && yours.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-4)
        };
        let sum: f32 = logits.iter().map(|z| z.exp()).sum();
        for (slip, think) in [
            (
                p,
                "These are the probabilities: the 1 of the right answer is missing.",
            ),
            (
                [p[0], p[1] - 1.0, p[2]],
                "The 1 is subtracted at the largest logit. It belongs to `label`.",
            ),
            (
                [-p[0], -p[1], 1.0 - p[2]],
                "The sign is reversed: that is y - p. The gradient points uphill; the step goes against it.",
            ),
            (
                [1f32.exp(), 3f32.exp(), 2f32.exp() - 1.0],
                "The exponentials are not divided by their sum.",
            ),
            (
                [0.0, 0.0, p[2] - 1.0],
                "Only the right token's number is there. All others are pushed down.",
            ),
            (
                [1f32.exp() / sum, 3f32.exp() / sum, -1.0],
                "At the label it is p - 1, not -1.",
            ),
            (
                [1.0, 3.0, 1.0],
                "You subtracted from the logits. Make probabilities of them first, with softmax.",
            ),
            (
                [p[2], p[2], p[2] - 1.0],
                "Every number has the probability of the label. Each logit has one of its own.",
            ),
        ] {
            judge.holds(
                "the gradient for the logits 1, 3, 2 and the label 2",
                !is(slip),
                think,
            );
        }
        let dev = Cpu::default();
        let list = |values: Vec<f32>| -> Tensor<(usize,), f32, Cpu> {
            let shape = (values.len(),);
            dev.tensor_from_vec(values, shape)
        };
        judge.close_tensor(
            "the gradient for the logits 1, 3, 2 and the label 2",
            &list(yours.clone()),
            &list(vec![p[0], p[1], p[2] - 1.0]),
            1e-5,
            "0.09, 0.67 and 0.24 are the probabilities.",
        );
        let large = loss_gradient(&[1000.0, 0.0], 0);
        judge.holds(
            &format!("a logit of 1000 does no harm; yours is {large:?}"),
            large.iter().all(|v| v.abs() < 1e-6),
            "exp(1000) is infinite: subtract the largest logit first.",
        );
        let begun = Instant::now();
        let many = loss_gradient(&[0.0; 10_000], 0).len();
        judge.holds(
            &format!("the gradient of {many} logits takes less than 0.1 s"),
            begun.elapsed().as_secs_f64() < 0.1,
            "You add up all exponentials anew for every logit, so your training would take minutes. \
             Compute the sum once, before you divide.",
        );
        // By differences, on numbers of no pattern.
        let logits: Vec<f32> = (0..7).map(|i| ((i * 37) % 11) as f32 / 4.0).collect();
        let slope = |at: usize| {
            let moved = |by: f32| {
                let mut all = logits.clone();
                all[at] += by;
                cross_entropy(&all, 4)
            };
            ((moved(1.0 / 128.0) - moved(-1.0 / 128.0)) * 64.0) as f32
        };
        let slopes: Vec<f32> = (0..7).map(slope).collect();
        judge.close_tensor(
            "the gradient of seven logits, beside the slopes of your own loss by differences,",
            &list(loss_gradient(&logits, 4)),
            &list(slopes),
            1e-3,
            "Does your gradient depend on `label`, and does your `cross_entropy` of 07.2?",
        );
    });

    // %% [markdown]
    // ## Step 3: train
    //
    // Everything is there. `OwnParts` takes your functions, and `Reference` is the crate's dfdx model,
    // which holds the parameters and the tape. In a step of training it calls your functions in place
    // of its own. It divides the batch among the threads and adds up the gradients.

    // %%
    let parts: OwnParts = OwnParts {
        encode: encode::<OwnedTape<f32, Cpu>>,
        masked: masked_head,
        pairs: None,
        loss: cross_entropy,
        gradient: loss_gradient,
    };

    // %% [markdown]
    // A **training step** makes a batch (masked anew each time), computes the gradients of all
    // parameters, and updates them. The update rule is AdamW: gradient descent in which each
    // parameter's gradient is divided by its own typical size, so that all parameters move at about the
    // same pace, and in which weights shrink a little at every step. The **learning rate** sets that
    // pace; the schedule raises it over the first steps and then lowers it. You write all of these in
    // lesson 10.

    // %%
    const BATCH: usize = 16;
    // The model has no dropout, so its random numbers don't matter.
    const NO_DROPOUT: Dropout = Dropout { seed: 1, step: 0 };
    let steps: u64 = cloze::lessons::steps(2_500);

    fn update(step: u64, total: u64) -> Update {
        let schedule = Schedule::linear(2e-3, total / 25, total);
        Update {
            // The default remembers 1,000 steps of squared gradients (lesson 10): too many for this run.
            optimizer: Optimizer {
                beta2: 0.98,
                ..Optimizer::default()
            },
            learning_rate: schedule.rate(step),
            step,
            max_norm: 1.0,
        }
    }

    // %%
    /// Does one step with any engine; returns the loss.
    fn training_step(
        model: &mut dyn PretrainingEngine,
        data: &PretrainingData,
        update: &Update,
    ) -> cloze::Result<f64> {
        let batch = data.batch(update.step - 1, BATCH)?;
        let scores = model.pretraining_gradients(&batch, NO_DROPOUT)?;
        model.update(update)?;
        Ok(scores.mean_mlm_loss())
    }

    // %% [markdown]
    // Here is your run, the first 400 of 2,500 steps, for about half a minute:

    // %%
    let mut yours: Vec<f64> = Vec::new();
    if solved!("08.2") {
        let mut own =
            Reference::new(&config, &layout, layout.initialise(1))?.with_own_parts(parts)?;
        let mut chart = masked_lm::loss_chart("Your BERT in training", &data, vocabulary);
        let begun = Instant::now();
        for step in 1..=cloze::lessons::steps(400) {
            let loss = training_step(&mut own, &data, &update(step, steps))?;
            yours.push(loss);
            chart.push("training batch", step as f64, loss);
        }
        let each = begun.elapsed().as_secs_f64() / yours.len() as f64;
        println!(
            "{:.0} ms a step; loss {:.3} at the end",
            1e3 * each,
            yours[yours.len() - 1]
        );
    }

    // %% [markdown]
    // ## The same, faster
    //
    // Now the crate's engine, with the same initial parameters, the same batches and the same updates. It
    // does not call your functions: if its losses equal yours, your model computes what the engine's does.
    // It is faster, so it does all 2,500 steps.

    // %%
    let mut engine_losses: Vec<f64> = Vec::new();
    if !yours.is_empty() {
        let mut chart = masked_lm::loss_chart("The engine's run", &data, vocabulary);
        let begun = Instant::now();
        for step in 1..=steps {
            let loss = training_step(&mut model, &data, &update(step, steps))?;
            engine_losses.push(loss);
            chart.push("training batch", step as f64, loss);
            if step % 50 == 0 {
                let scores = model.pretraining_scores(&test_batch)?;
                chart.push("held out", step as f64, scores.mean_mlm_loss());
            }
        }
        let each = begun.elapsed().as_secs_f64() / steps as f64;
        println!("{:.0} ms a step, with the measurements", 1e3 * each);
    }

    // %%
    for step in [1, 10, 100, 200, 400] {
        if let (Some(yours), Some(engine)) = (yours.get(step - 1), engine_losses.get(step - 1)) {
            println!("step {step:>3}: yours {yours:.5}, the engine's {engine:.5}");
        }
    }
    if !yours.is_empty() {
        let apart = yours.iter().zip(&engine_losses).map(|(a, b)| (a - b).abs());
        println!("largest difference: {:.1e}", apart.fold(0.0, f64::max));
        let end = model.pretraining_scores(&test_batch)?;
        println!(
            "held-out loss: {:.3} at the start, {:.3} now; unigram {:.3}; {:.1} % of the blanks right",
            start.mean_mlm_loss(),
            end.mean_mlm_loss(),
            data.unigram_entropy(),
            100.0 * end.mlm_accuracy()
        );
    }

    // %% [markdown]
    // The engine's numbers are those of your functions. Look at the curve: within 100 steps it falls to
    // about the unigram entropy, for which the head's bias alone would do. What follows needs the
    // context, and comes slowly at first, until attention has found out where to look.
    //
    // Does an accuracy of some 84 % mean that the model knows English? No: the grammar leaves few choices, and many
    // blanks have only one possible answer. `cloze-tiny`, of the same width and depth and trained for
    // more than an hour on 23 million tokens of novels and Wikipedia, predicts 39.7 % of the blanks
    // in other novels and articles (`lessons/data/cloze-tiny/README.md`).

    // %% [markdown]
    // ## Fill blanks
    //
    // **Exercise 08.3.** From the logits of one blank, return the `k` most probable tokens as
    // (id, probability), the most probable first.

    // %%
    fn most_probable(logits: &[f32], k: usize) -> Vec<(u32, f64)> {
        // BEGIN SOLUTION
        cloze::solution!("08.3");
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = logits
            .iter()
            .map(|&z| f64::from(z - largest).exp())
            .collect();
        let sum: f64 = powers.iter().sum();
        let mut tokens: Vec<(u32, f64)> = (0u32..).zip(powers.iter().map(|p| p / sum)).collect();
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
        tokens.truncate(k);
        tokens
        // END SOLUTION
    }

    // %%
    check!("08.3", |judge| {
        let top = most_probable(&[0.0, 2.0, 1.0], 2);
        let ids: Vec<u32> = top.iter().map(|t| t.0).collect();
        judge.same_list(
            "the ids of most_probable(&[0.0, 2.0, 1.0], 2)",
            &ids,
            &[1, 2],
            "Largest logit first, k entries.",
        );
        let sure = top.first().map_or(0.0, |t| t.1);
        judge.close(
            "the first probability",
            sure,
            0.665241,
            1e-5,
            "e² / (e⁰ + e² + e¹). 0.731? You divided by the sum over the k tokens that you return, but the \
             others have a share too. 2? That is the logit. 1 or 7.39? You did not divide.",
        );
        let all: f64 = most_probable(&[1000.0, 999.0, 0.0], 3)
            .iter()
            .map(|t| t.1)
            .sum();
        judge.close(
            "the sum of all probabilities",
            all,
            1.0,
            1e-9,
            "Divide by the sum over the whole vocabulary, after subtracting the largest logit.",
        );
    });

    // %%
    if solved!("08.3") {
        for text in [
            "At noon they ate bread and [MASK] in the harbour.",
            "It was a winter [MASK], and the pond was frozen.",
            "“Where is my rolling pin?” [MASK] Rosa.",
        ] {
            let logits = masked_lm::blank_logits(&mut model, &tokenizer, text)?;
            let bars = most_probable(&logits, 5)
                .into_iter()
                .map(|(id, p)| (tokenizer.token(id).unwrap_or("?").to_owned(), 100.0 * p));
            show!(BarChart::new(text).unit("%").bars(bars));
        }
    }

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *where the blame begins*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(8));

    // %% [markdown]
    // ## What goes wrong
    //
    // Two mistakes that the crate reports: a text without a blank, and an input that is longer than
    // the table of positions.

    // %%
    if let Err(error) = masked_lm::blank_logits(&mut model, &tokenizer, "There is no blank here.") {
        println!("{error}");
    }
    let long: String = format!("[MASK] {}", "the river ".repeat(300));
    if let Err(error) = masked_lm::blank_logits(&mut model, &tokenizer, &long) {
        println!("{error}");
    }

    // %% [markdown]
    // And three that nothing reports but the curve:
    //
    // - **Stuck at ln(V)**: the model learns nothing. The learning rate is 0 (a schedule that has
    //   ended).
    // - **Stuck at the unigram entropy**: the head learns, the encoder does not. The labels belong to
    //   other rows, segments or positions are wrong, the learning rate is too high, or it is too
    //   early: below it every run is slow for a while.
    // - **Near 0 within a few steps**: the answer is visible. The loss includes tokens that are not
    //   masked, so the model only has to copy.

    // %% [markdown]
    // ## Expected numbers
    //
    // - at the start 6.90; unigram entropy 5.17;
    // - after 400 steps your loss is about 3.9, and at every step it differs from the engine's by less
    //   than 1e-3;
    // - after 2,500 steps the held-out loss is about 0.6, and some 84 % of the held-out blanks are
    //   right;
    // - each of the two runs takes 15 to 40 seconds on two cores;
    // - `“Where is my rolling pin?” [MASK] Rosa.` is filled with `cried`, at 85 % or more; `asked` and
    //   `said` follow.

    // %% [markdown]
    // ## On real text
    //
    // `cloze pretrain --text book.txt --size tiny --out model` trains on any text (with next-sentence
    // prediction too), and `cloze fill-mask --model model "The [MASK] sat on the mat."` fills blanks.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Lesson 07 hides 40 % of the tokens (`PretrainingOptions::mask_probability`). What would 15 %
    //    or 70 % do to the held-out loss, and is it fair to compare losses that were measured with
    //    different shares?
    // 2. The unigram entropy is the loss of a model without context. How would you compute the
    //    baseline of a model that sees only the left neighbour, and where would it lie in the chart?
    //
    // The crate's source of this part: `src/engine/reference/own.rs`, which calls your functions, and
    // `src/train/pretraining.rs`. Next: [lesson 09](09_next_sentence.rs), the paper's second task.

    // %% [end]
    cloze::lessons::finish("08_fill_blanks")
}
