// ---
// title = "Making it fast: threads, fusing, attention"
// summary = "Make a training step several times faster without changing what it computes: a part of the batch on every core, several operations in one pass, attention that never writes its matrix, with your own functions beside the crate's."
// track = "systems"
// minutes = 58
// seconds = 35
// needs = ["24"]
//
// [[exercise]]
// id = "25.1"
// key = "cut"
// was = "14.1"
// title = "Cut a batch into parts of equal work"
// hints = [
//     "Keep the number of tokens before the current sequence in `before`, beginning at 0. The part of a sequence is `before * parts / total`, in whole numbers, where `total` is the sum of the lengths.",
//     "If the part is that of the sequence before, make the last range longer: `run.end = index + 1`. Otherwise begin a new range: `runs.push(index..index + 1)`. Then add the length to `before`.",
//     "`match runs.last_mut() { Some(run) if part == last => run.end = index + 1, _ => runs.push(index..index + 1) }` does both; `last` is the part of the sequence before.",
// ]
//
// [[exercise]]
// id = "25.2"
// key = "add_norm"
// was = "14.2"
// title = "Bias, residual and LayerNorm in one pass"
// hints = [
//     "A row has `width = bias.len()` numbers. `x.chunks_exact_mut(width).zip(residual.chunks_exact(width))` pairs each row with its residual.",
//     "First loop over the row: `*x += bias + residual`. Then compute mean and variance of the row. Then the last loop: `(*x - mean) * scale * gain + shift`, with `scale = 1.0 / (variance + 1e-12).sqrt()`.",
//     "The variance is the mean of `(x - mean)²`: divide by the width, not by the width minus 1.",
// ]
//
// [[exercise]]
// id = "25.3"
// key = "add_block"
// was = "14.3"
// title = "Attention without its matrix"
// hints = [
//     "Follow the formulas from left to right. First the new maximum: `scores.iter().copied().fold(kept.largest, f32::max)`.",
//     "Then `let shrink = (kept.largest - largest).exp();`. Multiply `kept.sum` and every number of `kept.output` by it.",
//     "Then go over `scores.iter().zip(values.chunks(kept.output.len()))`. With `power = (score - largest).exp()`, add `power` to the sum, and `power` times the value row to the output.",
//     "At the end store the new maximum: `kept.largest = largest;`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 25 · Making it fast: threads, fusing, attention
    //
    // The BERT of the lessons is made to be read. In this lesson you take one of its training steps
    // and make it several times faster, while it still computes the same. Three ideas do it: a part of
    // the batch on every core, several operations in one pass over memory, and attention that never
    // writes its matrix. You write each in a few lines. Your functions then run in a real forward
    // pass, and a chart shows how far they climb beside the crate's.
    //
    // *About 58 minutes; you need lesson 24. The cells compute for less than a minute. Close other
    // programs: a busy core makes every figure here wrong.*

    // %%
    use std::ops::Range;
    use std::sync::Arc;

    use cloze::lessons::largest_gap;
    use cloze::lessons::support::speed::{self, Encoder, Ladder, median_seconds};
    use cloze::model::{Part, SequenceAttention};
    use cloze::prelude::*;
    use cloze::text::embedded;
    use cloze::view::Flow;
    use cloze::view::style::number;
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## Where we are going
    //
    // The second and the third idea together make one rung of the ladder: the crate's engine. Lesson 26
    // climbs two more.

    // %%
    show!(
        Flow::new("Three ideas", "dfdx on one thread")
            .step(
                "a part a thread",
                "25.1: every core takes a part of the batch"
            )
            .step("one pass over memory", "25.2: several operations at once")
            .step(
                "attention block by block",
                "25.3: its matrix is never written"
            )
    );

    // %% [markdown]
    // ## What is measured
    //
    // The model has the size *mini* (4 layers, 256 wide) and reads 16 paragraphs of text from the
    // crate. A training step is a forward pass, a backward pass and AdamW's update, with dropout. The
    // unit is **real tokens a second**: padding takes time, but it is not work done.
    //
    // The rules are those of lesson 24: the first run does not count, and the result is the median of
    // the others.

    // %%
    let paragraphs: Vec<String> = embedded::paragraphs().map(|p| p.text).collect();
    let tokenizer: WordPiece =
        WordPiece::train(paragraphs.iter().cloned().map(Ok), 1_000, Casing::Uncased)?;
    let sequences: Vec<Vec<u32>> = paragraphs
        .iter()
        .take(16)
        .map(|text| tokenizer.encode_with_special(text).ids)
        .collect();
    let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
    let longest: usize = lengths.iter().copied().max().unwrap_or(0);
    let real: usize = lengths.iter().sum();
    println!("lengths: {lengths:?}");
    println!(
        "{real} real tokens; padded to the longest {}",
        number((16 * longest) as f64)
    );

    // %%
    let mut batch: Packed = Packed::default();
    for (example, ids) in (0..).zip(&sequences) {
        batch.push(example, ids, &vec![0; ids.len()]);
    }
    let config: Config = Size::Mini.config(tokenizer.vocab_size());
    let layout: Arc<Layout> = Layout::new(&config, &Part::SequenceClassifier(2).with_encoder());

    // %% [markdown]
    // ## The first rung: dfdx on one thread
    //
    // `Reference` is the model of the lessons, dfdx module by dfdx module. There are two ladders: one
    // for training steps, and one for forward passes, on which your functions will stand.

    // %%
    let mut training: Ladder = Ladder::default();
    let mut forward: Ladder = Ladder::default();
    let mut alone: Reference =
        Reference::new(&config, &layout, layout.initialise(1))?.with_threads(1)?;
    let steps: f64 = speed::of_training(&mut alone, &batch, real)?;
    let passes: f64 = speed::of_forward(&mut alone, &batch, real)?;
    println!("training: {}", training.add("dfdx, one thread", steps));
    println!("forward:  {}", forward.add("dfdx, one thread", passes));

    // %% [markdown]
    // ## Rung 2: all cores
    //
    // dfdx multiplies matrices on all cores, but everything else (softmax, GELU, sums) runs on one.
    // The remedy needs no change in dfdx: cut the batch into parts, give each part to a thread with
    // its own tape, and add the gradients up. With $\ell_i$ the loss of sequence $i$, $B$ the batch
    // and $B_p$ its parts, the gradient of the sum is the sum of the gradients:
    //
    // $$ \nabla \sum_{i \in B} \ell_i = \sum_{p} \nabla \sum_{i \in B_p} \ell_i $$
    //
    // The step takes as long as its slowest part. So the parts should hold the same number of
    // *tokens*, which is not the same number of sequences.
    //
    // The rule: with $n$ tokens *before* a sequence, $N$ tokens in all and $P$ parts,
    // the sequence belongs to part $\lfloor n P / N \rfloor$. For example, with 2 parts:
    //
    // | sequence | 0 | 1 | 2 | 3 |
    // |---|---|---|---|---|
    // | length | 50 | 10 | 20 | 40 |
    // | tokens before it, $n$ | 0 | 50 | 60 | 80 |
    // | $n \cdot 2 / 120$ | 0 | 0.83 | 1 | 1.33 |
    // | part | 0 | 0 | 1 | 1 |
    //
    // The parts are the sequences `0..2` and `2..4`, with 60 tokens each. A long sequence can make the
    // rule skip a part; then there are fewer parts.
    //
    // **Exercise 25.1.** Cut the sequences by this rule. Return one range of sequences for each part
    // that is not empty, in order.

    // %%
    fn cut(lengths: &[usize], parts: usize) -> Vec<Range<usize>> {
        // BEGIN SOLUTION
        cloze::solution!("25.1");
        let total: usize = lengths.iter().sum();
        let mut runs: Vec<Range<usize>> = Vec::new();
        let (mut before, mut last) = (0, 0);
        for (index, length) in lengths.iter().enumerate() {
            let part = before * parts / total;
            match runs.last_mut() {
                Some(run) if part == last => run.end = index + 1,
                _ => runs.push(index..index + 1),
            }
            last = part;
            before += length;
        }
        runs
        // END SOLUTION
    }

    // %%
    check!("25.1", |judge| {
        // The number of tokens in the largest part.
        let heaviest = |runs: &[Range<usize>]| -> usize {
            let tokens = runs.iter().map(|run| lengths[run.clone()].iter().sum());
            tokens.max().unwrap_or(0)
        };
        let example = cut(&[50, 10, 20, 40], 2);
        judge.holds(
            &format!("cut(&[50, 10, 20, 40], 2) gives [0..2, 2..4]; yours {example:?}"),
            example != [0..1, 1..3, 3..4],
            "You counted the sequence itself too. Its part follows from the tokens before it.",
        );
        judge.equal(
            "cut(&[50, 10, 20, 40], 2)",
            example,
            vec![0..2, 2..4],
            "The example of the table: two parts of 60 tokens.",
        );
        let long = cut(&[60, 10, 10, 10, 10, 10, 10], 2);
        judge.holds(
            &format!("cut(&[60, 10, 10, 10, 10, 10, 10], 2) gives [0..1, 1..7]; yours {long:?}"),
            long != [0..3, 3..7] && long != [0..4, 4..7],
            "You cut by the number of sequences. The parts should hold the same number of tokens.",
        );
        judge.equal(
            "cut(&[60, 10, 10, 10, 10, 10, 10], 2)",
            long,
            vec![0..1, 1..7],
            "The first sequence has half of all tokens: it is a part of its own.",
        );
        judge.equal(
            "cut(&[90, 10], 4)",
            cut(&[90, 10], 4),
            vec![0..1, 1..2],
            "The parts are 0 and 3; parts 1 and 2 are empty and are left out.",
        );
        for parts in 1..=8 {
            let runs = cut(&lengths, parts);
            let joined: Vec<usize> = runs.iter().cloned().flatten().collect();
            judge.same_list(
                &format!("the sequences of cut(&lengths, {parts}), part by part"),
                &joined,
                &(0..lengths.len()).collect::<Vec<usize>>(),
                "Every sequence is in one part, in order, and none is left over.",
            );
            judge.holds(
                &format!("cut(&lengths, {parts}) has at most {parts} parts"),
                runs.len() <= parts,
                "With more parts than threads, one thread works twice.",
            );
            let (yours, theirs) = (heaviest(&runs), heaviest(&batch.balanced(parts)));
            judge.holds(
                &format!(
                    "the largest of your {parts} parts, {yours} tokens, exceeds the crate's \
                     largest, {theirs}, by at most one sequence"
                ),
                yours <= theirs + longest,
                "Cut by the sum of the lengths, not by the number of sequences.",
            );
        }
    });

    // %% [markdown]
    // The crate's `Packed::balanced` cuts the same way, and `Reference` runs one part a thread. Then
    // the same forward pass with your cut:

    // %%
    let cores: usize = std::thread::available_parallelism()?.get();
    let mut threaded: Reference = Reference::new(&config, &layout, layout.initialise(1))?;
    let steps: f64 = speed::of_training(&mut threaded, &batch, real)?;
    let passes: f64 = speed::of_forward(&mut threaded, &batch, real)?;
    println!("training: {}", training.add("dfdx, a part a thread", steps));
    println!("forward:  {}", forward.add("dfdx, a part a thread", passes));
    if solved!("25.1") {
        let runs = cut(&lengths, cores);
        let passes = speed::of_parts(&config, &layout, &batch, &runs)?;
        println!("forward, {}", forward.yours(passes));
    }

    // %% [markdown]
    // ## Rung 3: fewer passes over memory
    //
    // A core multiplies far faster than memory delivers numbers. `a + b` reads two tensors and writes
    // one: 12 bytes moved for one addition. Each half of an encoder layer ends with
    //
    // $$ y = g \odot \frac{z - \mu(z)}{\sqrt{\sigma^2(z) + \epsilon}} + s, \qquad z = x + b + r $$
    //
    // ($x$ is the output of a linear layer, $b$ its bias, $r$ the residual, $\mu$ and $\sigma^2$ mean
    // and variance of a row, $g$ the gain and $s$ the shift of the LayerNorm). In dfdx these are about
    // ten operations. Each reads all of its tensors and allocates a new one. But a row of 256 numbers
    // takes one kibibyte and stays in the fastest cache while all ten are done to it. Doing so is
    // called **fusing**.
    //
    // **Exercise 25.2.** Do all of it row by row, in place of `x`. $\epsilon$ is $10^{-12}$.

    // %%
    fn add_norm(x: &mut [f32], residual: &[f32], bias: &[f32], gain: &[f32], shift: &[f32]) {
        // BEGIN SOLUTION
        cloze::solution!("25.2");
        let width = bias.len();
        let rows = x.chunks_exact_mut(width);
        for (row, residual) in rows.zip(residual.chunks_exact(width)) {
            let mut sum = 0.0;
            for ((x, r), b) in row.iter_mut().zip(residual).zip(bias) {
                *x += r + b;
                sum += *x;
            }
            let mean = sum / width as f32;
            let squares: f32 = row.iter().map(|x| (x - mean) * (x - mean)).sum();
            let scale = 1.0 / (squares / width as f32 + 1e-12).sqrt();
            for ((x, g), s) in row.iter_mut().zip(gain).zip(shift) {
                *x = (*x - mean) * scale * g + s;
            }
        }
        // END SOLUTION
    }

    // %%
    type Wide = Tensor<(usize, Const<256>), f32, Cpu>;
    type Narrow = Tensor<Rank1<256>, f32, Cpu>;

    /// The same by operations of dfdx.
    fn by_operations(x: Wide, residual: Wide, bias: Narrow, gain: Narrow, shift: Narrow) -> Wide {
        let shape = *x.shape();
        let sum = x + bias.broadcast_like::<_, Axis<0>>(&shape) + residual;
        sum.normalize::<Axis<1>>(1e-12) * gain.broadcast_like::<_, Axis<0>>(&shape)
            + shift.broadcast_like::<_, Axis<0>>(&shape)
    }

    let dev: Cpu = Cpu::default();
    let shape: (usize, Const<256>) = (2048, Const);
    let x: Wide = dev.sample_normal_like(&shape);
    let residual: Wide = dev.sample_normal_like(&shape);
    let bias: Narrow = dev.sample_normal();
    let gain: Narrow = dev.sample_normal();
    let shift: Narrow = dev.sample_normal();

    // %%
    check!("25.2", |judge| {
        let mut wide = [0.0; 3];
        let (residual_of, bias_of) = ([0.0, 3.0, 0.0], [0.0, 0.0, 3.0]);
        add_norm(&mut wide, &residual_of, &bias_of, &[1.0; 3], &[0.0; 3]);
        let what = format!(
            "the row [0, 0, 0] with the residual [0, 3, 0] and the bias [0, 0, 3] becomes [-1.414, \
             0.707, 0.707]; yours {wide:.3?}"
        );
        for (slip, think) in [
            ([-0.707, 1.414, -0.707], "The bias is missing."),
            ([-0.707, -0.707, 1.414], "The residual is missing."),
            (
                [-1.155, 0.577, 0.577],
                "You divided the squares by the width minus 1. LayerNorm divides by the width.",
            ),
            (
                [-1.0, 0.5, 0.5],
                "You divided by the variance. Divide by its square root.",
            ),
            (
                [0.0, 2.121, 2.121],
                "The mean was not subtracted from the row.",
            ),
        ] {
            let same = wide
                .iter()
                .zip(slip)
                .all(|(a, b): (&f32, f32)| (a - b).abs() < 2e-3);
            judge.holds(&what, !same, think);
        }
        judge.close(
            "the last number of the row [0, 0, 0] with the residual [0, 3, 0] and the bias [0, 0, 3]",
            f64::from(wide[2]),
            0.5f64.sqrt(),
            1e-5,
            "The sum is [0, 3, 3]: mean 2, variance 2.",
        );
        let mut row = [1.0, 3.0];
        add_norm(&mut row, &[1.0, 1.0], &[0.5, 0.5], &[1.0, 1.0], &[0.0, 0.0]);
        judge.close(
            "the first number of the row [1, 3] after add_norm",
            f64::from(row[0]),
            -1.0,
            1e-5,
            "Residual and bias turn it into [2.5, 4.5]: mean 3.5, variance 1.",
        );
        let mut rows = [1.0, 3.0, 10.0, 30.0];
        add_norm(&mut rows, &[0.0; 4], &[0.0; 2], &[2.0, 2.0], &[5.0, 5.0]);
        let what = format!(
            "the rows [1, 3] and [10, 30], with gain 2 and shift 5, end with 7; yours {}",
            rows[3]
        );
        for (slip, think) in [
            (
                12.0,
                "The gain multiplies the shift too. Add the shift last.",
            ),
            (6.0, "The gain is missing."),
            (2.0, "The shift is missing."),
            (
                8.314,
                "You took one mean and one variance of all rows. Each row has its own.",
            ),
        ] {
            judge.holds(&what, (rows[3] - slip).abs() > 2e-3, think);
        }
        judge.close(
            "the last number of the rows [1, 3] and [10, 30], with gain 2 and shift 5",
            f64::from(rows[3]),
            7.0,
            1e-4,
            "Each row has its own mean and variance; then multiply by the gain and add the shift.",
        );
        let mut yours = x.as_vec();
        add_norm(
            &mut yours,
            &residual.as_vec(),
            &bias.as_vec(),
            &gain.as_vec(),
            &shift.as_vec(),
        );
        let (x, residual) = (x.clone(), residual.clone());
        let expected =
            by_operations(x, residual, bias.clone(), gain.clone(), shift.clone()).as_vec();
        judge.close(
            "the largest difference from dfdx over 2048 × 256 numbers",
            largest_gap(&yours, &expected),
            0.0,
            1e-4,
            "The small cases are right: look at how you separate the rows.",
        );
    });

    // %%
    if solved!("25.2") {
        let rounds: u64 = cloze::lessons::steps(20);
        let apart: f64 = median_seconds(rounds, || {
            let (x, r) = (x.clone(), residual.clone());
            by_operations(x, r, bias.clone(), gain.clone(), shift.clone());
            Ok(())
        })?;
        let (mut rows, r): (Vec<f32>, Vec<f32>) = (x.as_vec(), residual.as_vec());
        let [b, g, s] = [bias.as_vec(), gain.as_vec(), shift.as_vec()];
        let fused: f64 = median_seconds(rounds, || {
            add_norm(&mut rows, &r, &b, &g, &s);
            Ok(())
        })?;
        show!(
            BarChart::new("Bias, residual and LayerNorm of 2048 × 256")
                .unit("ms")
                .bar("operations of dfdx", 1e3 * apart)
                .bar("one pass, yours", 1e3 * fused)
        );
        println!("{:.1} times as fast, on one thread", apart / fused);
    }

    // %% [markdown]
    // The engine fuses wherever it can: bias and GELU; dropout, residual and LayerNorm; the loss with
    // its gradient; AdamW's whole update.

    // %% [markdown]
    // ## Attention without its matrix
    //
    // The largest tensor of a BERT is not a weight. For every sequence of $S$ tokens each head of each
    // layer makes $S \times S$ attention weights, and a plain backward pass needs all of them.

    // %%
    let base: Config = Size::Base.config(30_522);
    let base_layout: Arc<Layout> = Layout::new(&base, &Part::Span.with_encoder());
    let fixed: u64 = speed::training_bytes(&base, &base_layout, 1, 0);
    let mut matrices: Vec<(f64, f64)> = Vec::new();
    let mut engine_keeps: Vec<(f64, f64)> = Vec::new();
    for tokens in [64usize, 128, 256, 512, 1024, 2048, 4096] {
        let of_heads = 4 * base.num_hidden_layers * base.num_attention_heads * tokens * tokens;
        matrices.push((tokens as f64, of_heads as f64 / f64::from(1 << 20)));
        let kept = speed::training_bytes(&base, &base_layout, 1, tokens) - fixed;
        engine_keeps.push((tokens as f64, kept as f64 / f64::from(1 << 20)));
    }
    show!(
        LineChart::new("Memory for one sequence in BERT-base's training step")
            .axes("tokens", "MiB")
            .logarithmic()
            .line("attention weights alone, if kept", &matrices)
            .line("everything that the engine keeps", &engine_keeps)
    );

    // %% [markdown]
    // The engine's memory grows only in proportion to the tokens: it keeps no attention weights at
    // all. That is possible because softmax can be computed while the scores arrive, block after
    // block ([Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867);
    // [FlashAttention](https://arxiv.org/abs/2205.14135), Dao et al. 2022, section 3.1).
    //
    // For one query, three things are kept from block to block: the largest score so far $m$; the sum
    // $\ell$ of the powers $e^{s - m}$ of all scores $s$ so far; and $o$, the sum of the values so far,
    // each multiplied by its power. Relative to $m$ no power overflows. A block with scores $s_j$ and
    // values $v_j$ may bring a larger score $m'$. Then all that was summed before is too large by the
    // factor $e^{m' - m}$ and must shrink:
    //
    // $$ m' = \max(m, \max_j s_j), \quad \ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'}, \quad
    //    o' = e^{m - m'} o + \sum_j e^{s_j - m'} v_j $$
    //
    // An example with the scores 1, 2, 4 and the values 10, 20, 40, in blocks of two:
    //
    // | | $m$ | $\ell$ | $o$ |
    // |---|---|---|---|
    // | at first | $-\infty$ | 0 | 0 |
    // | after the block 1, 2 | 2 | $e^{-1} + 1 = 1.368$ | $e^{-1} \cdot 10 + 20 = 23.68$ |
    // | after the block 4 | 4 | $e^{-2} \cdot 1.368 + 1 = 1.185$ | $e^{-2} \cdot 23.68 + 40 = 43.20$ |
    //
    // The answer is $o / \ell = 43.20 / 1.185 = 36.46$, exactly what a softmax over all three scores
    // gives. The backward pass computes the weights again.
    //
    // **Exercise 25.3.** Write the step from one block to the next: update `kept` by a block's scores
    // and its values. `values` holds one row for each score, as wide as the output.

    // %%
    /// What is kept from block to block.
    struct Kept {
        largest: f32,
        sum: f32,
        output: Vec<f32>,
    }

    fn add_block(kept: &mut Kept, scores: &[f32], values: &[f32]) {
        // BEGIN SOLUTION
        cloze::solution!("25.3");
        let largest = scores.iter().copied().fold(kept.largest, f32::max);
        let shrink = (kept.largest - largest).exp();
        kept.sum *= shrink;
        kept.output.iter_mut().for_each(|o| *o *= shrink);
        for (score, value) in scores.iter().zip(values.chunks(kept.output.len())) {
            let power = (score - largest).exp();
            kept.sum += power;
            for (o, v) in kept.output.iter_mut().zip(value) {
                *o += power * v;
            }
        }
        kept.largest = largest;
        // END SOLUTION
    }

    // %% [markdown]
    // The rest is given: the scores of a block, the loop over the blocks, and the division at the
    // end. At no time are more than `block` scores in memory.

    // %%
    fn attend(query: &[f32], keys: &[f32], values: &[f32], block: usize) -> Vec<f32> {
        let width = query.len();
        let out_width = values.len() * width / keys.len();
        let scale = 1.0 / (width as f32).sqrt();
        let mut kept = Kept {
            largest: f32::NEG_INFINITY,
            sum: 0.0,
            output: vec![0.0; out_width],
        };
        let blocks = keys.chunks(block * width);
        for (keys, values) in blocks.zip(values.chunks(block * out_width)) {
            let dot = |key: &[f32]| -> f32 { query.iter().zip(key).map(|(q, k)| q * k).sum() };
            let scores: Vec<f32> = keys.chunks(width).map(|key| scale * dot(key)).collect();
            add_block(&mut kept, &scores, values);
        }
        kept.output.iter().map(|o| o / kept.sum).collect()
    }

    let mut engine: CpuEngine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
    let looked: Vec<SequenceAttention> = engine.attention(&batch.slice(0..1))?;

    // %%
    check!("25.3", |judge| {
        let mut kept = Kept {
            largest: f32::NEG_INFINITY,
            sum: 0.0,
            output: vec![0.0],
        };
        add_block(&mut kept, &[1.0, 2.0], &[10.0, 20.0]);
        judge.close(
            "the largest score after the first block of the example",
            f64::from(kept.largest),
            2.0,
            1e-5,
            "Store the new maximum in `kept.largest`.",
        );
        judge.holds(
            &format!("the sum after the first block is 1.368; yours {}", kept.sum),
            !kept.sum.is_nan(),
            "NaN is e^∞ · 0 here. The factor is e^(old maximum - new maximum), which is e^-∞ = 0 for \
             the first block.",
        );
        judge.close(
            "the sum after the first block of the example",
            f64::from(kept.sum),
            1.367_879,
            1e-4,
            "e^(1 - 2) + e^(2 - 2). With e¹ + e² = 10.1 the maximum was not subtracted.",
        );
        judge.close(
            "the output after the first block of the example",
            f64::from(kept.output[0]),
            23.678_79,
            1e-3,
            "Each value is multiplied by the power of its score.",
        );
        add_block(&mut kept, &[4.0], &[40.0]);
        let sum = kept.sum;
        judge.holds(
            &format!("the sum after the second block is 1.185; yours {sum}"),
            (sum - 2.367_879).abs() > 1e-3,
            "The block before was not scaled down: multiply sum and output by e^(2 - 4).",
        );
        judge.holds(
            &format!("the sum after the second block is 1.185; yours {sum}"),
            (sum - 11.107_34).abs() > 1e-2,
            "You scaled up. The factor is e^(old maximum - new maximum), at most 1.",
        );
        judge.close(
            "the sum after the second block of the example",
            f64::from(sum),
            1.185_122,
            1e-4,
            "e^(2 - 4) · 1.368 + e^(4 - 4).",
        );
        judge.close(
            "the output after the second block of the example",
            f64::from(kept.output[0]),
            43.204_58,
            1e-3,
            "e^(2 - 4) · 23.68 + 40: the output shrinks like the sum.",
        );
        add_block(&mut kept, &[3.0], &[0.0]);
        judge.close(
            "the largest score after a block with a smaller one",
            f64::from(kept.largest),
            4.0,
            1e-5,
            "The maximum is that of all scores so far, not of this block.",
        );
        for block in [3, 1] {
            let sure = attend(&[1.0], &[0.0, 500.0, 1000.0], &[1.0, 2.0, 4.0], block);
            judge.close(
                &format!("attend(&[1], &[0, 500, 1000], &[1, 2, 4], {block})"),
                sure.first().copied().unwrap_or(f32::NAN).into(),
                4.0,
                1e-5,
                "NaN means that e¹⁰⁰⁰ was computed: take every power relative to the maximum.",
            );
        }
        // With the unit vectors as values the output is the attention weights themselves.
        let looked = &looked[0];
        let tokens = looked.tokens;
        let unit: Vec<f32> = (0..tokens * tokens)
            .map(|i| f32::from(u8::from(i % (tokens + 1) == 0)))
            .collect();
        for (layer, head) in [(0, 0), (1, 2), (3, 3)] {
            let keys: Vec<f32> = (0..tokens)
                .flat_map(|token| looked.key(layer, head, token).to_vec())
                .collect();
            for token in [0, tokens / 2, tokens - 1] {
                let query = looked.query(layer, head, token);
                let yours = attend(query, &keys, &unit, 16);
                let theirs = &looked.weights(layer, head)[token * tokens..][..tokens];
                judge.close(
                    &format!(
                        "the largest difference from the model's attention weights (layer {layer}, \
                         head {head}, token {token}, {tokens} keys)"
                    ),
                    largest_gap(&yours, theirs),
                    0.0,
                    1e-5,
                    "The example is right: does a block with values of several columns work too?",
                );
            }
        }
    });

    // %% [markdown]
    // Fused kernels and attention by blocks make the first rung of the engine. To show what each idea
    // gives, this rung still gets the batch padded to its longest sequence, as most programs make it.

    // %%
    let mut full: Packed = Packed::default();
    for (example, ids) in (0..).zip(&sequences) {
        let mut ids = ids.clone();
        ids.resize(longest, tokenizer.special().pad);
        full.push(example, &ids, &vec![0; longest]);
    }
    let steps: f64 = speed::of_training(&mut engine, &full, real)?;
    let passes: f64 = speed::of_forward(&mut engine, &full, real)?;
    println!("training: {}", training.add("engine, padded", steps));
    println!("forward:  {}", forward.add("engine, padded", passes));

    // %% [markdown]
    // And now your own engine: `Encoder` runs the forward pass of the same model with *your*
    // `add_norm` and *your* `add_block`. Embeddings, GELU and the loops around are given; the matrix
    // products are the crate's, one thread for each part of the batch. First it must compute the
    // same:

    // %%
    if solved!("25.2") && solved!("25.3") {
        let encoder = Encoder::new(&config, &layout, layout.initialise(1), add_norm, attend);
        println!(
            "hidden states: the largest difference from the engine is {:.1e}",
            encoder.difference(&batch)?
        );
        let passes = encoder.speed(&full, &full.balanced(cores), real)?;
        println!("forward, {}", forward.yours(passes));
    }

    // %% [markdown]
    // Where is the rest? The engine computes several queries at a time, with the widest vectors of
    // the processor, and allocates nothing. Your functions take one query and one row at a time and
    // leave the vectors to the compiler.

    // %% [markdown]
    // ## The ladder so far

    // %%
    show!(training.chart(format!("A training step of BERT-mini, {real} real tokens")));
    show!(forward.chart("A forward pass, the crate's and yours"));

    // %% [markdown]
    // ## What goes wrong
    //
    // **Two threads and one buffer.** Threads that fill two halves of one vector are safe, but the
    // compiler can't see it here:
    //
    // ```text
    // error[E0499]: cannot borrow `rows` as mutable more than once at a time
    // ...
    // 4 |         scope.spawn(|| rows[..512].fill(1.0));
    // ...
    //   |         |           first mutable borrow occurs here
    //   |         argument requires that `rows` is borrowed for `'1`
    // 5 |         scope.spawn(|| rows[512..].fill(2.0));
    //   |                     ^^ ---- second borrow occurs due to use of `rows` in closure
    // ```
    //
    // Each closure borrows all of `rows`. Divide it first, so that every thread borrows its own part:
    // `for part in rows.chunks_mut(512) { scope.spawn(|| part.fill(1.0)); }`.
    //
    // **One pass too few.** The variance is also the mean of the squares minus the square of the mean,
    // and both fit into one pass. But the two can be large and nearly equal. For 256 numbers around
    // 1,000 with a variance of 0.85, f32 gives 0.94 in this way.
    //
    // **A block of masked keys.** If all scores of the first block are $-\infty$, then so is the new
    // maximum, and $e^{-\infty - (-\infty)}$ is NaN. It stays in the sum for good. An engine with
    // masks skips such a block. With packing (lesson 26) there is no padding to mask.

    // %% [markdown]
    // ## Expected numbers
    //
    // On two virtual cores of an AMD EPYC (Zen 4). Other processors have other ratios:
    //
    // - the 16 paragraphs hold 922 tokens; padded to the longest they would be 1,520;
    // - a part a thread trains 1.9 times as fast as one thread if nothing else runs; other programs
    //   can take all of that away. The engine, still padded, trains 3 times as fast again;
    // - `add_norm` in one pass is 2.5 to 5.5 times as fast as operation by operation in a program, and
    //   1.2 times in a notebook, whose cells are optimised less;
    // - your own forward pass agrees with the engine's to 2e-6 and is about a third as fast, in a
    //   notebook a fifth;
    // - at 4,096 tokens attention weights alone take 9,216 MiB; all that the engine keeps, 2,472.

    // %% [markdown]
    // ## On real sizes
    //
    // `cargo bench --bench ladder` measures the same ladder with MiniLM's size, and `cloze bench infer
    // --size base --batch 8 --seq 384` the forward pass of the paper's base model on this machine.
    //
    // One rung more is for answers only: weights rounded to 8 bits, of which a processor multiplies
    // more at a time. Add `--dtype int8` to that command, and compare. The gradients of training are too
    // small for such steps.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Fusing pays because memory is slow. Count the bytes that `add_norm` must move at least for one
    //    row, and those of the ten operations. Does the ratio agree with what you measured? If not,
    //    what else takes time?
    // 2. The backward pass of attention needs the weights again, and computes them a second time. Why
    //    can that still be faster than reading them from memory? Use the roofline of lesson 24.
    //
    // The crate's source for this part: `src/engine/reference/placement.rs` (parts of a batch),
    // `src/engine/cpu/norm.rs` and `src/engine/cpu/attention.rs`. `benches/NOTES.md` describes what was
    // tried, and what did not help. Next: [lesson 26](26_packing.rs), the last two rungs.

    // %% [end]
    cloze::lessons::finish("25_making_it_fast")
}
