// ---
// title = "Making it fast: from dfdx to the fused engine"
// summary = "Take one training step and make it several times faster without changing what it computes: threads, fusing, attention without its matrix, packing, bf16."
// minutes = 60
// seconds = 55
// needs = ["05", "13"]
//
// [[exercise]]
// id = "14.1"
// title = "Cut a batch into parts of equal work"
// hints = [
//     "Work is the number of tokens, so add up the lengths. After part `p` of `parts` the sum should have reached `total * p / parts`.",
//     "Go over the sequences with a running sum. Close a part after the sequence at which the sum reaches the next target: `start..index + 1`.",
//     "One long sequence may reach two targets at once. Then there is nothing between them, and a part without sequences is left away. The last target is the total itself, so no sequence is left over.",
// ]
//
// [[exercise]]
// id = "14.2"
// title = "Bias, residual and LayerNorm in one pass"
// hints = [
//     "A row is `width = bias.len()` numbers. `x.chunks_exact_mut(width).zip(residual.chunks_exact(width))` gives each row with its residual.",
//     "First loop over the row: `*x += bias + residual`. Then mean and variance of the row. Then the last loop: `(*x - mean) * scale * gain + shift`, with `scale = 1 / (variance + 1e-12).sqrt()`.",
//     "The variance is the mean of `(x - mean)²`, divided by the width and not by the width less one.",
// ]
//
// [[exercise]]
// id = "14.3"
// title = "Attention without its matrix"
// hints = [
//     "Keep three things from block to block: the largest score so far (begin at `f32::NEG_INFINITY`), the sum of the powers, and the weighted sum of the values.",
//     "When a block brings a larger score, what was summed so far was summed with too large powers: multiply the sum and the output by `(old_largest - new_largest).exp()`.",
//     "Keys and values go in step: `keys.chunks(block * width).zip(values.chunks(block * out_width))`, and within a block `chunks(width)` and `chunks(out_width)`.",
//     "Scores are `query · key / sqrt(width)`. Divide the output by the sum once, after the last block.",
// ]
//
// [[exercise]]
// id = "14.4"
// title = "Pack a batch"
// hints = [
//     "Of each row only the tokens that are not `pad` are kept: `row.iter().filter(|&&id| id != pad)`.",
//     "Positions begin at 0 in every sequence. The bounds begin with one 0, and after each sequence comes the number of ids so far.",
// ]
//
// [[exercise]]
// id = "14.5"
// title = "Round to bf16"
// hints = [
//     "A bf16 number is the upper half of an f32: `x.to_bits() & 0xffff_0000` cuts the lower half off. That rounds towards zero.",
//     "To round to nearest, first add half of the last place that stays: `0x7fff`, and 1 more where the bit `1 << 16` is set, so that a tie goes to the even neighbour.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 14 · Making it fast: from dfdx to the fused engine
    //
    // The BERT of the lessons is made to be read. In this lesson you take one of its training steps
    // and make it several times faster, and it still computes the same. Five ideas do it: parts of the batch on
    // every core, several operations in one pass over memory, attention that never writes its matrix,
    // no padding, and shorter numbers in the products.
    //
    // You write each idea in a few lines and see what it gives. At the end all of them stand in one
    // chart, measured on your machine: the ladder from the dfdx model to the crate's engine.
    //
    // *About 60 minutes; the cells compute for some 20 seconds. Close what else keeps your processor busy:
    // a busy core makes every figure here wrong.*

    // %%
    use std::ops::Range;
    use std::sync::Arc;
    use std::time::Instant;

    use cloze::engine::memory::{Forecast, Work};
    use cloze::engine::optimizer::{Optimizer, Update};
    use cloze::engine::timing::median;
    use cloze::engine::{Precision, Setup, measured_peak, objective, round_to_bf16};
    use cloze::model::flops_per_token;
    use cloze::model::{Dropout, Part, SequenceAttention};
    use cloze::prelude::*;
    use cloze::text::embedded;
    use cloze::view::Flow;
    use cloze::view::style::number;
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## Where we are going
    //
    // The second and the third idea make one rung of the ladder together: the crate's engine.

    // %%
    show!(
        Flow::new("Five ideas", "dfdx on one thread")
            .step(
                "a part a thread",
                "14.1: every core takes a part of the batch"
            )
            .step("one pass over memory", "14.2: several operations at once")
            .step(
                "attention block by block",
                "14.3: its matrix is never written"
            )
            .step("packing", "14.4: no padding")
            .step("bf16 products", "14.5: shorter numbers")
    );

    // %% [markdown]
    // ## What is measured
    //
    // One training step: forward, backward, and AdamW's update, with dropout, of a model of the size
    // *mini* (4 layers, 256 wide) on 16 paragraphs of real text. The unit is **real tokens a second**:
    // padding costs time but is no work done.
    //
    // Two rules make a time worth believing. The first run does not count: it fills caches and
    // allocates buffers. And of the others the **median** counts: one disturbed run does not move it.

    // %%
    /// The median time of `rounds` runs in seconds, after one that does not count.
    fn median_seconds(
        rounds: u64,
        mut work: impl FnMut() -> cloze::Result<()>,
    ) -> cloze::Result<f64> {
        work()?;
        let mut seconds: Vec<f64> = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            work()?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        Ok(median(&mut seconds))
    }

    /// One step; gives the loss. What the labels mean does not matter for the time.
    fn step(
        engine: &mut dyn TaskEngine,
        batch: &Packed,
        labels: &[u32],
        number: u32,
    ) -> cloze::Result<f64> {
        let mut loss = 0.0;
        let weight = 1.0 / labels.len() as f32;
        let dropout = Dropout {
            seed: 1,
            step: number,
        };
        engine.task_gradients(batch, dropout, &mut |logits| {
            let scored = objective::cross_entropy(logits, 2, labels, weight);
            loss = f64::from(weight) * scored.loss;
        })?;
        engine.update(&Update {
            optimizer: Optimizer::default(),
            learning_rate: 1e-4,
            step: u64::from(number),
            max_norm: 1.0,
        })?;
        Ok(loss)
    }

    /// Real tokens a second of an engine's steps on a batch.
    fn speed(engine: &mut dyn TaskEngine, batch: &Packed, real: usize) -> cloze::Result<f64> {
        let labels: Vec<u32> = (0..batch.sequences() as u32).map(|i| i % 2).collect();
        let mut number = 0;
        let rounds = cloze::lessons::steps(50) / 10;
        let seconds = median_seconds(rounds, || {
            number += 1;
            step(engine, batch, &labels, number).map(|_| ())
        })?;
        Ok(real as f64 / seconds)
    }

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

    let mut batch: Packed = Packed::default();
    for (example, ids) in (0..).zip(&sequences) {
        batch.push(example, ids, &vec![0; ids.len()]);
    }

    let config: Config = Size::Mini.config(tokenizer.vocab_size());
    let layout: Arc<Layout> = Layout::new(&config, &Part::SequenceClassifier(2).with_encoder());
    println!("{} parameters", number(layout.total() as f64));

    // %% [markdown]
    // ## The first rung: dfdx on one thread
    //
    // `Reference` is the model of the lessons, dfdx module by dfdx module. `ladder` collects what we
    // measure.

    // %%
    let mut ladder: Vec<(String, f64)> = Vec::new();
    let mut alone: Reference =
        Reference::new(&config, &layout, layout.initialise(1))?.with_threads(1)?;
    ladder.push(("dfdx, one thread".into(), speed(&mut alone, &batch, real)?));
    println!("{}: {:.0} tokens/s", ladder[0].0, ladder[0].1);

    // %% [markdown]
    // ## Rung 2: all cores
    //
    // dfdx multiplies matrices on all cores, but everything else (softmax, GELU, sums) runs on one.
    // The way out needs no change in dfdx: cut the batch into parts, give each thread one part with a
    // tape of its own, and add up the gradients. The gradient of a sum is the sum of the gradients:
    //
    // $$ \nabla \sum_{i \in B} \ell_i = \sum_{p} \nabla \sum_{i \in B_p} \ell_i $$
    //
    // The step takes as long as its slowest part, so the parts should hold the same number of
    // *tokens*, which is not the same number of sequences.
    //
    // **Exercise 14.1.** Cut the sequences, in order, into at most `parts` runs of about equal work.

    // %%
    fn cut(lengths: &[usize], parts: usize) -> Vec<Range<usize>> {
        // BEGIN SOLUTION
        cloze::solution!("14.1");
        let total: usize = lengths.iter().sum();
        let (mut runs, mut start, mut sum) = (Vec::new(), 0, 0);
        let mut part = 1;
        for (index, length) in lengths.iter().enumerate() {
            sum += length;
            if part <= parts && sum >= total * part / parts {
                runs.push(start..index + 1);
                start = index + 1;
                while part <= parts && sum >= total * part / parts {
                    part += 1;
                }
            }
        }
        runs
        // END SOLUTION
    }

    // %%
    /// The most tokens of a part.
    fn heaviest(lengths: &[usize], runs: &[Range<usize>]) -> usize {
        let tokens = runs.iter().map(|run| lengths[run.clone()].iter().sum());
        tokens.max().unwrap_or(0)
    }

    check!("14.1", |judge| {
        judge.equal(
            "cut(&[10, 10, 10, 10], 2)",
            cut(&[10, 10, 10, 10], 2),
            vec![0..2, 2..4],
            "Equal lengths: the same number of sequences in both parts.",
        );
        judge.equal(
            "cut(&[60, 10, 10, 10, 10, 10, 10], 2)",
            cut(&[60, 10, 10, 10, 10, 10, 10], 2),
            vec![0..1, 1..7],
            "The first sequence is half of all tokens: it is a part of its own.",
        );
        judge.equal(
            "cut(&[90, 10], 4)",
            cut(&[90, 10], 4),
            vec![0..1, 1..2],
            "A part holds at least one sequence: here two parts are all there is.",
        );
        for parts in 1..=8 {
            let runs = cut(&lengths, parts);
            let joined: Vec<usize> = runs.iter().cloned().flatten().collect();
            judge.same_list(
                &format!("the sequences of cut(&lengths, {parts}), run by run"),
                &joined,
                &(0..lengths.len()).collect::<Vec<usize>>(),
                "Every sequence is in one part, in order, and none is left over.",
            );
            judge.holds(
                &format!("cut(&lengths, {parts}) has at most {parts} parts"),
                runs.len() <= parts,
                "More parts than threads means that one thread works twice.",
            );
            let (yours, theirs) = (
                heaviest(&lengths, &runs),
                heaviest(&lengths, &batch.balanced(parts)),
            );
            judge.holds(
                &format!(
                    "the heaviest of your {parts} parts, {yours} tokens, is no heavier than the \
                     crate's, {theirs}, by more than one sequence"
                ),
                yours <= theirs + longest,
                "Cut by the sum of the lengths, not by the number of sequences.",
            );
        }
    });

    // %% [markdown]
    // The crate's `Packed::balanced` cuts the same way, and `Reference` runs one part a thread:

    // %%
    let mut threaded: Reference = Reference::new(&config, &layout, layout.initialise(1))?;
    ladder.push((
        "dfdx, a part a thread".into(),
        speed(&mut threaded, &batch, real)?,
    ));
    println!(
        "{}: {:.0} tokens/s, {:.2} times the rung before",
        ladder[1].0,
        ladder[1].1,
        ladder[1].1 / ladder[0].1
    );

    // %% [markdown]
    // ## Rung 3: fewer ways through memory
    //
    // A core multiplies far faster than memory delivers numbers. `a + b` reads two tensors and writes
    // one: 12 bytes moved for one addition. What ends each half of an encoder layer,
    //
    // $$ y = g \odot \frac{z - \mu(z)}{\sqrt{\sigma^2(z) + \epsilon}} + s, \qquad z = x + b + r $$
    //
    // ($x$ the output of a linear layer, $b$ its bias, $r$ the residual, gain $g$ and shift $s$ of the
    // LayerNorm), is about ten operations in dfdx, and each goes through all of its tensors and
    // allocates a new one. But a row of 256 numbers is one kibibyte: it stays in the fastest cache while all
    // ten are done to it. Doing so is called **fusing**.
    //
    // **Exercise 14.2.** Do all of it row by row, in place of `x`. The $\epsilon$ is $10^{-12}$.

    // %%
    fn add_norm(x: &mut [f32], residual: &[f32], bias: &[f32], gain: &[f32], shift: &[f32]) {
        // BEGIN SOLUTION
        cloze::solution!("14.2");
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
    let expected: Vec<f32> = by_operations(
        x.clone(),
        residual.clone(),
        bias.clone(),
        gain.clone(),
        shift.clone(),
    )
    .as_vec();

    check!("14.2", |judge| {
        let mut row = [1.0, 3.0];
        add_norm(&mut row, &[1.0, 1.0], &[0.5, 0.5], &[1.0, 1.0], &[0.0, 0.0]);
        judge.close(
            "the first of the row [1, 3] after add_norm",
            f64::from(row[0]),
            -1.0,
            1e-5,
            "Residual and bias make [2.5, 4.5] of it: mean 3.5, variance 1.",
        );
        let mut rows = [1.0, 3.0, 10.0, 30.0];
        add_norm(&mut rows, &[0.0; 4], &[0.0; 2], &[2.0, 2.0], &[5.0, 5.0]);
        judge.close(
            "the last of two rows [1, 3] and [10, 30], with gain 2 and shift 5",
            f64::from(rows[3]),
            7.0,
            1e-4,
            "Each row has a mean and a variance of its own; then times the gain, plus the shift.",
        );
        let mut yours = x.as_vec();
        add_norm(
            &mut yours,
            &residual.as_vec(),
            &bias.as_vec(),
            &gain.as_vec(),
            &shift.as_vec(),
        );
        let apart = yours.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        judge.close(
            "the largest difference from dfdx over 2048 × 256 numbers",
            f64::from(apart.fold(0.0, f32::max)),
            0.0,
            1e-4,
            "The small cases are right: look at how the rows are told apart.",
        );
    });

    // %%
    if solved!("14.2") {
        let rounds: u64 = cloze::lessons::steps(20);
        let apart: f64 = median_seconds(rounds, || {
            let (x, r) = (x.clone(), residual.clone());
            by_operations(x, r, bias.clone(), gain.clone(), shift.clone());
            Ok(())
        })?;
        let (r, b, g, s) = (
            residual.as_vec(),
            bias.as_vec(),
            gain.as_vec(),
            shift.as_vec(),
        );
        let mut rows: Vec<f32> = x.as_vec();
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
    // The engine fuses wherever it can: bias and GELU, dropout and residual and LayerNorm, the loss
    // with its gradient, AdamW's whole update. Its kernels use the processor's widest vectors, and its
    // buffers are allocated once.
    //
    // ## Attention without its matrix
    //
    // The largest tensor of a BERT is not a weight. For every sequence of $S$ tokens each head of each
    // layer makes $S \times S$ attention weights, and a plain backward pass wants all of them kept.

    // %%
    let base: Config = Size::Base.config(30_522);
    let base_layout: Arc<Layout> = Layout::new(&base, &Part::Span.with_encoder());
    let mut matrices: Vec<(f64, f64)> = Vec::new();
    let mut engine_keeps: Vec<(f64, f64)> = Vec::new();
    for tokens in [64usize, 128, 256, 512, 1024, 2048, 4096] {
        let one = 4 * base.num_hidden_layers * base.num_attention_heads * tokens * tokens;
        matrices.push((tokens as f64, one as f64 / f64::from(1 << 20)));
        let work = Work {
            rows: tokens,
            sequences: 1,
            longest: tokens,
        };
        let bytes = Forecast::of(&base, &base_layout, work, false).activations;
        engine_keeps.push((tokens as f64, bytes as f64 / f64::from(1 << 20)));
    }
    show!(
        LineChart::new("Memory of one sequence in BERT-base's training step")
            .axes("tokens", "MiB")
            .logarithmic()
            .line("attention weights alone, were they kept", &matrices)
            .line("all that the engine keeps", &engine_keeps)
    );

    // %% [markdown]
    // The engine's line is straight at a slope of one: it keeps no attention weights at all. It can do
    // so because softmax can be computed while the scores stream by, block after block
    // ([Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867);
    // [FlashAttention](https://arxiv.org/abs/2205.14135), Dao et al. 2022, section 3.1). With the largest
    // score so far $m$, the sum $\ell$ and the output $o$, a block with scores $s_j$ and values $v_j$ gives
    //
    // $$ m' = \max(m, \max_j s_j), \quad \ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'}, \quad
    //    o' = e^{m - m'} o + \sum_j e^{s_j - m'} v_j $$
    //
    // and the answer is $o / \ell$ after the last block. The backward pass computes the weights again.
    //
    // **Exercise 14.3.** Write it for one query. `keys` holds rows as wide as the query, `values` as many
    // rows of a width of their own. Keep at most `block` scores at a time: no check can see that, but it is
    // the point.

    // %%
    fn attend(query: &[f32], keys: &[f32], values: &[f32], block: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("14.3");
        let width = query.len();
        let out_width = values.len() * width / keys.len();
        let scale = 1.0 / (width as f32).sqrt();
        let (mut largest, mut sum) = (f32::NEG_INFINITY, 0.0);
        let mut out = vec![0.0; out_width];
        let blocks = keys.chunks(block * width);
        for (keys, values) in blocks.zip(values.chunks(block * out_width)) {
            let dot = |key: &[f32]| -> f32 { query.iter().zip(key).map(|(q, k)| q * k).sum() };
            let scores: Vec<f32> = keys.chunks(width).map(|key| scale * dot(key)).collect();
            let top = scores.iter().copied().fold(largest, f32::max);
            let shrink = (largest - top).exp();
            sum *= shrink;
            out.iter_mut().for_each(|o| *o *= shrink);
            for (score, value) in scores.iter().zip(values.chunks(out_width)) {
                let power = (score - top).exp();
                sum += power;
                for (o, v) in out.iter_mut().zip(value) {
                    *o += power * v;
                }
            }
            largest = top;
        }
        out.iter().map(|o| o / sum).collect()
        // END SOLUTION
    }

    // %%
    let mut engine: CpuEngine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
    let looked: Vec<SequenceAttention> = engine.attention(&batch.slice(0..1))?;

    check!("14.3", |judge| {
        let one = attend(&[0.0], &[1.0, 2.0, 3.0], &[3.0, 6.0, 9.0], 2);
        judge.equal(
            "the length of attend(..)",
            one.len(),
            1,
            "One number a column of values.",
        );
        judge.close(
            "attend(&[0], &[1, 2, 3], &[3, 6, 9], 2)",
            one.first().copied().unwrap_or(f32::NAN).into(),
            6.0,
            1e-5,
            "A query of zero scores every key alike: the mean of the values.",
        );
        let (keys, values) = ([0.0, 500.0, 1000.0], [1.0, 2.0, 4.0]);
        for block in [3, 1] {
            let sure = attend(&[1.0], &keys, &values, block);
            judge.close(
                &format!("attend(&[1], &[0, 500, 1000], &[1, 2, 4], {block})"),
                sure.first().copied().unwrap_or(f32::NAN).into(),
                4.0,
                1e-5,
                "NaN means that e¹⁰⁰⁰ was computed: subtract the largest score so far. Another \
                 number means that what was summed before the larger score came was not scaled down.",
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
                let apart = yours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
                judge.close(
                    &format!(
                        "the largest difference from the model's attention weights (layer {layer}, \
                         head {head}, token {token}, {tokens} keys)"
                    ),
                    f64::from(apart.fold(0.0, f32::max)),
                    0.0,
                    1e-5,
                    "The crate gives these for your text. Are the scores divided by the root of the width?",
                );
            }
        }
    });

    // %% [markdown]
    // Fused kernels and streaming attention make the first engine rung. To see what each idea gives,
    // this one still gets the batch padded to its longest sequence, as most programs would make it.

    // %%
    let mut full: Packed = Packed::default();
    for (example, ids) in (0..).zip(&sequences) {
        let mut ids = ids.clone();
        ids.resize(longest, tokenizer.special().pad);
        full.push(example, &ids, &vec![0; longest]);
    }
    ladder.push(("engine, padded".into(), speed(&mut engine, &full, real)?));
    println!(
        "{}: {:.0} real tokens/s, {:.2} times the rung before",
        ladder[2].0,
        ladder[2].1,
        ladder[2].1 / ladder[1].1
    );

    // %% [markdown]
    // ## Rung 4: no padding
    //
    // A batch padded to its longest sequence computes this share of its tokens for nothing:
    //
    // $$ 1 - \frac{\sum_i n_i}{B \cdot \max_i n_i} $$

    // %%
    let shade: Vec<f32> = lengths
        .iter()
        .flat_map(|&n| (0..longest).map(move |at| f32::from(u8::from(at < n))))
        .collect();
    show!(HeatMap::new(
        "A padded batch: a row a sequence, blue where there is a token",
        &shade,
        longest
    ));
    println!(
        "{:.0} % of it is padding",
        100.0 * (1.0 - real as f64 / (16 * longest) as f64)
    );

    // %% [markdown]
    // Everything in BERT but attention treats tokens one by one, so the real tokens can be laid end to
    // end, and attention needs to know only where each sequence begins
    // ([Krell et al. 2021](https://arxiv.org/abs/2107.02027) find half of Wikipedia's tokens at length 512
    // to be padding).
    //
    // **Exercise 14.4.** Make ids, positions and bounds of padded rows. Bounds are
    // $0, n_1, n_1 + n_2, \dots$: sequence $i$ owns the rows from bound $i$ up to bound $i + 1$.

    // %%
    fn pack(padded: &[Vec<u32>], pad: u32) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        // BEGIN SOLUTION
        cloze::solution!("14.4");
        let (mut ids, mut positions, mut bounds) = (Vec::new(), Vec::new(), vec![0]);
        for row in padded {
            let real = row.iter().copied().filter(|&id| id != pad);
            for (position, id) in (0..).zip(real) {
                ids.push(id);
                positions.push(position);
            }
            bounds.push(ids.len() as u32);
        }
        (ids, positions, bounds)
        // END SOLUTION
    }

    // %%
    check!("14.4", |judge| {
        let (ids, positions, bounds) = pack(&[vec![2, 7, 3, 0, 0], vec![2, 8, 9, 9, 3]], 0);
        judge.same_list(
            "the ids of pack(&[[2, 7, 3, 0, 0], [2, 8, 9, 9, 3]], 0)",
            &ids,
            &[2, 7, 3, 2, 8, 9, 9, 3],
            "The real tokens, sequence after sequence.",
        );
        judge.same_list(
            "its positions",
            &positions,
            &[0, 1, 2, 0, 1, 2, 3, 4],
            "Each sequence counts its positions from 0: the model looks them up in a table.",
        );
        judge.same_list(
            "its bounds",
            &bounds,
            &[0, 3, 8],
            "One more than there are sequences; the last is the number of tokens.",
        );
        let padded: Vec<Vec<u32>> = full.ranges().map(|rows| full.ids[rows].to_vec()).collect();
        let (ids, positions, bounds) = pack(&padded, tokenizer.special().pad);
        judge.same_list(
            "the ids of our batch",
            &ids,
            &batch.ids,
            "The crate's `Packed` has these.",
        );
        judge.same_list(
            "its positions",
            &positions,
            &batch.positions,
            "The crate's `Packed` has these.",
        );
        judge.same_list(
            "its bounds",
            &bounds,
            &batch.cu_seqlens,
            "The crate's `Packed` has these.",
        );
    });

    // %%
    ladder.push(("engine, packed".into(), speed(&mut engine, &batch, real)?));
    println!(
        "{}: {:.0} tokens/s, {:.2} times the rung before",
        ladder[3].0,
        ladder[3].1,
        ladder[3].1 / ladder[2].1
    );

    // %% [markdown]
    // ## Rung 5: shorter numbers
    //
    // What is left is mostly matrix products. Processors and GPUs have units that multiply numbers of
    // 16 bits, several times as many at once: AMX and AVX512-BF16 on CPUs, tensor cores on GPUs. The format
    // **bf16** is an f32 with the lower half of its bits cut off: 8 bits of exponent, so nothing
    // overflows that did not before, and 8 significant bits, so a product of two rounded factors is
    // right to less than one per cent. Sums, parameters and the optimizer stay f32.
    //
    // **Exercise 14.5.** Round an ordinary f32 to the nearest bf16, ties to the even neighbour (the one
    // whose last bit is 0).

    // %%
    fn to_bf16(x: f32) -> f32 {
        // BEGIN SOLUTION
        cloze::solution!("14.5");
        let bits = x.to_bits();
        let even = (bits >> 16) & 1;
        f32::from_bits((bits + 0x7fff + even) & 0xffff_0000)
        // END SOLUTION
    }

    // %%
    check!("14.5", |judge| {
        for (x, expected, think) in [
            (1.0, 1.0, "1 needs one bit: it stays as it is."),
            (
                std::f32::consts::PI,
                3.140625,
                "Eight significant bits of pi.",
            ),
            (
                1.007,
                1.0078125,
                "Cutting bits off gives 1: round to the nearest.",
            ),
            (
                257.0 / 256.0,
                1.0,
                "Halfway between 1 and 1.0078125: 1 has an even last bit.",
            ),
            (
                259.0 / 256.0,
                1.015625,
                "Halfway again, but here the upper neighbour is the even one.",
            ),
            (-259.0 / 256.0, -1.015625, "The sign has no part in it."),
        ] {
            judge.equal(&format!("to_bf16({x})"), to_bf16(x), expected, think);
        }
        let same = layout
            .initialise(1)
            .iter()
            .all(|&weight| to_bf16(weight) == round_to_bf16(weight));
        judge.holds(
            "every parameter of the model is rounded as the crate rounds it",
            same,
            "The small cases are right: look at numbers near zero and at the sign.",
        );
    });

    // %%
    println!("bf16 products run on {}", CpuEngine::unit(Precision::Bf16));
    let peak: f64 = measured_peak(Precision::F32);
    show!(
        BarChart::new("What large matrix products reach here")
            .unit("GFLOP/s")
            .bar("f32", peak / 1e9)
            .bar("bf16", measured_peak(Precision::Bf16) / 1e9)
    );

    // %%
    let mut rounded: CpuEngine =
        CpuEngine::new(&config, &layout, layout.initialise(1))?.with_precision(Precision::Bf16);
    ladder.push((
        "engine, packed, bf16".into(),
        speed(&mut rounded, &batch, real)?,
    ));
    println!(
        "{}: {:.0} tokens/s, {:.2} times the rung before",
        ladder[4].0,
        ladder[4].1,
        ladder[4].1 / ladder[3].1
    );

    // %% [markdown]
    // Does it still learn? Two models from the same start, one in f32 and one in bf16, learn labels
    // by heart. (The labels say only whether a paragraph's number is odd, so by heart is the one way.)

    // %%
    let labels: Vec<u32> = (0..16).map(|i| i % 2).collect();
    let mut curves: LineChart =
        LineChart::new("The same training in f32 and in bf16").axes("step", "cross-entropy (nats)");
    for (name, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        let mut learner: CpuEngine =
            CpuEngine::new(&config, &layout, layout.initialise(1))?.with_precision(precision);
        let mut losses: Vec<(f64, f64)> = Vec::new();
        for number in 1..=cloze::lessons::steps(60) as u32 {
            let loss = step(&mut learner, &batch, &labels, number)?;
            losses.push((f64::from(number), loss));
        }
        curves = curves.line(name, &losses);
    }
    show!(curves);

    // %% [markdown]
    // The curves part by less than two seeds would. (Lesson 13 measures f32 against bf16 on larger
    // models.)
    //
    // ## The whole ladder

    // %%
    show!(
        BarChart::new(format!(
            "A training step of BERT-mini, {real} real tokens, on this machine"
        ))
        .unit("tokens/s")
        .bars(ladder.iter().cloned())
    );
    let work: f64 = flops_per_token(&config, real / 16);
    println!("                         tokens/s   × before   × first   of f32 products");
    for (index, (name, speed)) in ladder.iter().enumerate() {
        println!(
            "{name:<22} {speed:>10.0} {:>10.2} {:>9.1} {:>15.0} %",
            speed / ladder[index.saturating_sub(1)].1,
            speed / ladder[0].1,
            100.0 * work * speed / peak
        );
    }

    // %% [markdown]
    // The last column is the floor that remains: 100 % would be a step that is nothing but f32
    // matrix products at their best speed. Only shorter numbers can pass it.
    //
    // ## What goes wrong
    //
    // **Two threads and one buffer.** Threads that fill two halves of one vector are safe, but this is
    // not how to say so:
    //
    // ```text
    // error[E0499]: cannot borrow `rows` as mutable more than once at a time
    //   |
    // 3 |     std::thread::scope(|scope| {
    //   |                         ----- has type `&'1 Scope<'1, '_>`
    // 4 |         scope.spawn(|| rows[..512].fill(1.0));
    //   |         -------------------------------------
    //   |         |           |  |
    //   |         |           |  first borrow occurs due to use of `rows` in closure
    //   |         |           first mutable borrow occurs here
    //   |         argument requires that `rows` is borrowed for `'1`
    // 5 |         scope.spawn(|| rows[512..].fill(2.0));
    //   |                     ^^ ---- second borrow occurs due to use of `rows` in closure
    // ```
    //
    // Each closure borrows all of `rows`. Cut it first, so that every thread owns its part:
    // `for part in rows.chunks_mut(512) { scope.spawn(|| part.fill(1.0)); }`.
    //
    // **A fast setting that the model can't have.** The reference refuses what it does not do, so that
    // nobody measures f32 and calls it bf16:

    // %%
    let impossible: Setup = Setup {
        precision: Precision::Bf16,
        ..Setup::from(Backend::Reference)
    };
    if let Err(error) = impossible.engine(&config, &layout, layout.initialise(1)) {
        println!("{error}");
    }

    // %% [markdown]
    // **A wrong measurement** gives no error at all. Here are the first step of a fresh engine and three
    // later ones:

    // %%
    let mut fresh: CpuEngine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
    for number in 1..=4u32 {
        let begun = Instant::now();
        step(&mut fresh, &batch, &labels, number)?;
        println!(
            "step {number}: {:>6.1} ms",
            1e3 * begun.elapsed().as_secs_f64()
        );
    }

    // %% [markdown]
    // The first step allocates every buffer, and the system hands out memory page by page when it is
    // first written. Whoever times one step times that.
    //
    // ## Expected numbers
    //
    // Measured on two cores with AVX512-BF16 while other programs ran on them, so read the ratios:
    //
    // - 16 paragraphs hold 922 tokens; padded to the longest, 95, they would be 1,520: 39 % padding;
    // - a part a thread 1.6 times one thread; the engine 4.5 times that, still padded; packed 1.7 times
    //   that, as 1,520 / 922 promises; bf16 1.3 times that. Together 16 times;
    // - bias, residual and LayerNorm in one pass: 1.6 times as fast as operation by operation in a
    //   notebook, 4.6 times as a program, which the compiler optimises more; on other processors up to
    //   35 times;
    // - all cells take 31 seconds of processor time, about half of that on two idle cores.
    //
    // ## On real sizes
    //
    // `cloze bench train --size base --batch 8 --seq 384 --dtype bf16` times the paper's base model on
    // this machine, and `cargo bench --bench ladder` the same ladder with MiniLM's size. Every training
    // command takes `--dtype bf16`, and none ever pads.
    //
    // ## Open questions
    //
    // 1. Fusing pays because memory is slow. Count the bytes that `add_norm` must move at least for one
    //    row, and those of the ten operations. Does the ratio agree with what you measured? If not, what else
    //    takes time?
    // 2. Packing makes the cost of a batch depend on its tokens alone, but attention still costs the square
    //    of each length. Two batches have equal numbers of tokens, one of 4 sequences of 512 tokens, the
    //    other of 64 sequences of 32. Which is slower at BERT-base, and by how much?
    //
    // The crate's source of this part: `src/data/packed.rs`, `src/engine/reference/placement.rs` (parts of a batch),
    // `src/engine/cpu/norm.rs`, `src/engine/cpu/attention.rs` and `src/engine/cpu/gemm/rounding.rs`;
    // `benches/NOTES.md` tells what was tried, and what did not help. Next: [lesson
    // 15](15_beyond_bert.rs), beyond BERT.

    // %% [end]
    cloze::lessons::finish("14_making_it_fast")
}
