// ---
// title = "Benchmarks: tokens a second, and what is possible"
// summary = "Time training steps honestly, count their operations, learn what a GPU is, see which operations of a BERT layer are limited by memory, and find the largest batch that fits."
// track = "systems"
// minutes = 58
// seconds = 50
// needs = ["08"]
//
// [[exercise]]
// id = "24.1"
// key = "training_flops"
// was = "13.2"
// title = "Operations of a training step"
// hints = [
//     "A layer has six weight matrices: four of hidden × hidden (query, key, value, output), one of hidden × inner and one of inner × hidden.",
//     "Each weight is used in one multiplication and one addition for each token: 2 operations forward. The backward pass needs two products of the same size, for the gradients of the input and of the weight: 6 in all.",
//     "Attention: a token's query meets `length` keys of `hidden` numbers (all heads together), and its weights meet as many values: 2 · 2 · hidden · length forward, three times that in all.",
// ]
//
// [[exercise]]
// id = "24.2"
// key = "at_best"
// was = "13.3"
// title = "The roof"
// hints = [
//     "For each operation compute two times: `flops / peak` for the arithmetic and `bytes / bandwidth` for the memory. The operation takes at least the longer of the two.",
//     "Keep two sums in a loop: the time of all operations, and the time of those whose memory time is the longer one.",
//     "Return the first sum, and the second divided by the first.",
// ]
//
// [[exercise]]
// id = "24.3"
// key = "largest_batch"
// was = "13.4"
// title = "The largest batch that fits"
// hints = [
//     "First double: 1, 2, 4, … until one does not fit. The answer lies between the last that fits and the first that does not.",
//     "Then halve: ask for the middle of the two and move one end there, until they are neighbours.",
//     "If not even 1 fits, the answer is 0.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 24 · Benchmarks: tokens a second, and what is possible
    //
    // "It trains at 300 tokens a second." Is that fast? The number means nothing until you know the
    // model, the length, the batch, the precision, and what the machine could do. In this lesson you
    // time training steps so that others can trust the result, count the operations of a step, and
    // compare both with the limits of your machine. At the end you draw the charts of a GPU benchmark
    // page, with your own machine beside published figures.
    //
    // *About 58 minutes; you need lesson 08. The cells compute for less than a minute. Close other
    // programs: a busy core makes every figure here wrong.*

    // %%
    use std::sync::Arc;

    use cloze::engine::timing::{Pass, median, pass_seconds};
    use cloze::engine::{Precision, measured_peak};
    use cloze::lessons::support::speed::{self, Run, median_seconds};
    use cloze::memory;
    use cloze::model::{Part, flops_per_token};
    use cloze::prelude::*;
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## Timing a step
    //
    // The public benchmarks of BERT time fine-tuning on SQuAD: sequences of full length, a head that
    // points at the first and the last token of the answer, dropout, and AdamW over all parameters.
    // Random ids will do. `span_engine` builds the fastest engine that this machine has (without a GPU,
    // the CPU engine). `pass_seconds` runs such training steps and returns how long each took.

    // %%
    let vocabulary: usize = 30_522;
    let mini: Config = Size::Mini.config(vocabulary);
    let mut engine: Box<dyn TaskEngine> = speed::span_engine(&mini, Precision::F32)?;
    let seconds: Vec<f64> = pass_seconds(&mut *engine, Pass::Train, (8, 128), 0, 12)?;
    let points: Vec<(f64, f64)> = (1..)
        .map(f64::from)
        .zip(seconds.iter().map(|seconds| 1e3 * seconds))
        .collect();
    show!(
        LineChart::new("Twelve steps of BERT-mini, 8 × 128 tokens")
            .axes("step", "ms")
            .points("this machine", &points)
    );

    // %% [markdown]
    // Look at the first step: it also allocated every buffer. The others scatter, but only upwards.
    // The machine always does something else too, and nothing makes a step faster than it can be. A
    // mean would carry every such disturbance into the result. The **median** does not. So the rule
    // is: some steps to warm up, then the median of the others.

    // %%
    /// Tokens a second of training steps: three to warm up, then the median of three more.
    fn speed_of(engine: &mut dyn TaskEngine, batch: (usize, usize)) -> cloze::Result<f64> {
        let mut seconds = pass_seconds(engine, Pass::Train, batch, 3, 3)?;
        Ok((batch.0 * batch.1) as f64 / median(&mut seconds))
    }

    for sequences in [1, 8] {
        let tokens_per_s = speed_of(&mut *engine, (sequences, 128))?;
        println!("{sequences} × 128 tokens a step: {tokens_per_s:.0} tokens/s");
    }

    // %% [markdown]
    // A small batch leaves the machine waiting: for memory, for threads that get tiny pieces of work,
    // and for the optimizer, whose work does not depend on the batch.

    // %% [markdown]
    // ## How much work is that?
    //
    // The unit of work is the floating-point operation (FLOP): one multiplication or one addition.
    // Only what the *model* needs counts, the operations of its matrix products. Whatever else an
    // implementation does (dropout, or computing layers twice to save memory) does not count. So two
    // programs can be compared on one model.
    //
    // **Exercise 24.1.** Count the operations that one token needs in a training step of a model with
    // $L$ layers of width $H$ and $I$ numbers inside the feed-forward part, in sequences of length
    // $S$:
    //
    // $$ 6 \cdot (\text{weights in the matrices of all layers}) + 12 \cdot L \cdot H \cdot S $$
    //
    // ([PaLM](https://arxiv.org/abs/2204.02311), appendix B, counts the same way;
    // [Kaplan et al. 2020](https://arxiv.org/abs/2001.08361), section 2.1, count half as much for
    // attention. The hints explain the 6 and the 12.)

    // %%
    fn training_flops(layers: usize, hidden: usize, inner: usize, length: usize) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("24.1");
        let weights = layers * (4 * hidden * hidden + 2 * hidden * inner);
        (6 * weights + 12 * layers * hidden * length) as f64
        // END SOLUTION
    }

    // %%
    check!("24.1", |judge| {
        let small = training_flops(1, 1, 0, 0);
        let what = format!("training_flops(1, 1, 0, 0) is 24; yours {small}");
        for (slip, think) in [
            (
                8.0,
                "That is the forward pass alone: two operations a weight. The backward pass needs \
                 twice as many.",
            ),
            (
                16.0,
                "The backward pass has two products for each one of the forward pass: one for the \
                 gradient of the input, one for that of the weight.",
            ),
            (
                12.0,
                "Count a multiplication and an addition for each weight, in each of three products.",
            ),
            (
                18.0,
                "There are four matrices of hidden × hidden: the output's comes after query, key and \
                 value.",
            ),
        ] {
            judge.holds(&what, small != slip, think);
        }
        judge.close(
            "training_flops(1, 1, 0, 0): one layer of width 1 without a feed-forward part",
            small,
            24.0,
            0.0,
            "Four weights (query, key, value, output), six operations each.",
        );
        judge.holds(
            "training_flops(1, 2, 8, 0) is 288",
            training_flops(1, 2, 8, 0) != 192.0,
            "The feed-forward part has two matrices: one to the inner width and one back.",
        );
        judge.close(
            "training_flops(1, 2, 8, 0)",
            training_flops(1, 2, 8, 0),
            288.0,
            0.0,
            "48 weights: four matrices of 2 × 2, one of 2 × 8 and one of 8 × 2.",
        );
        let attention = training_flops(2, 2, 8, 10) - training_flops(2, 2, 8, 0);
        judge.holds(
            &format!("attention over 10 keys adds 480 in two layers of width 2; yours {attention}"),
            attention != 240.0,
            "Half is missing: the other layer, or one of the two products (the scores, and the sum \
             of the values).",
        );
        judge.holds(
            &format!("attention over 10 keys adds 480 in two layers of width 2; yours {attention}"),
            attention != 160.0,
            "That is attention's forward pass alone.",
        );
        judge.close(
            "training_flops(2, 2, 8, 10) - training_flops(2, 2, 8, 0)",
            attention,
            480.0,
            0.0,
            "Attention grows with the length: 12 operations for each layer, column and key.",
        );
        for size in Size::ALL {
            let config = size.config(vocabulary);
            let (layers, hidden, _, inner) = size.dimensions();
            judge.close(
                &format!("{} at length 384, per token", size.name()),
                training_flops(layers, hidden, inner, 384),
                flops_per_token(&config, 384),
                1.0,
                "`cloze bench` counts by the same formula.",
            );
        }
    });

    // %% [markdown]
    // ## What the machine could do
    //
    // Two limits apply to every program. The arithmetic units do at most $P$ operations a second, and
    // memory delivers at most $B$ bytes a second. A program that does $F$ operations on $D$ bytes has
    // the **intensity** $F / D$, and reaches at best
    //
    // $$ \min\left(P,\; \frac{F}{D} \cdot B\right) $$
    //
    // operations a second. Drawn over the intensity, this is the **roofline** ([Williams et al.
    // 2009](https://doi.org/10.1145/1498765.1498785)): a slope where memory is the limit, then a flat
    // roof where arithmetic is. The two meet at the **ridge**, at the intensity $P / B$. First measure
    // both limits on this machine.

    // %%
    let peak: f64 = measured_peak(Precision::F32);
    let peak_bf16: f64 = measured_peak(Precision::Bf16);
    let cores: usize = std::thread::available_parallelism()?.get();
    let bandwidth: f64 = speed::measured_bandwidth(cores);
    let [f32s, bf16s, gb] = [peak, peak_bf16, bandwidth].map(|x| x / 1e9);
    println!("f32 {f32s:.0} GFLOP/s, bf16 {bf16s:.0} GFLOP/s, memory {gb:.1} GB/s");
    println!("ridge of f32: {:.0} operations a byte", peak / bandwidth);

    // %% [markdown]
    // Now time products of dfdx: some rows of 1,024 numbers by a matrix of 1,024 × 1,024. One row is
    // what a model does for a single token; 512 rows are four sequences of 128. The bytes are counted
    // as if each matrix moved once.

    // %%
    let dev: Cpu = Cpu::default();
    let weight: Tensor<Rank2<1024, 1024>, f32, Cpu> = dev.sample_normal();
    let mut measured: Vec<(f64, f64)> = Vec::new();
    for rows in [1usize, 4, 16, 64, 256, 512] {
        let x: Tensor<(usize, Const<1024>), f32, Cpu> = dev.sample_normal_like(&(rows, Const));
        let seconds = median_seconds(cloze::lessons::steps(20), || {
            x.clone().matmul(weight.clone());
            Ok(())
        })?;
        let flops = (2 * rows * 1024 * 1024) as f64;
        let bytes = (4 * (2 * rows * 1024 + 1024 * 1024)) as f64;
        measured.push((flops / bytes, flops / seconds / 1e9));
    }
    show!(
        LineChart::new("The roofline of this machine")
            .axes("operations a byte", "GFLOP/s")
            .logarithmic()
            .line("roof, f32", &speed::roofline(peak, bandwidth))
            .points("products of dfdx with 1 to 512 rows", &measured)
    );

    // %% [markdown]
    // A point below the roof could be faster. A point *above* the slope is possible: a matrix of 4 MB
    // fits into the caches of many machines, and they are faster than memory. (dfdx's products do not
    // use the widest vectors, so they stay below the flat part.)
    //
    // One row does half an operation a byte: all weights are read for a single token. That is why a
    // larger batch makes everything faster until the roof is flat, and then no more.

    // %% [markdown]
    // ## What a GPU is
    //
    // A CPU core spends most of its chip area on running one instruction stream quickly. A GPU spends
    // it on arithmetic. NVIDIA's H200 has 132 multiprocessors with 128 f32 units each
    // ([Hopper architecture](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/);
    // the H200 is an H100 with more memory). Threads run in groups of 32, called **warps**, which
    // execute the same instruction on different numbers. That suits a matrix product: millions of
    // independent sums.
    //
    // Each multiprocessor also has four **tensor cores**. One instruction of theirs multiplies two
    // small matrices of 16-bit numbers, such as **bf16** (an f32 without the lower half of its bits),
    // and adds up in f32. So the H200 does 67 TFLOP/s in plain f32, but 989 in bf16. Its memory
    // delivers 4.8 TB/s ([H200](https://www.nvidia.com/en-us/data-center/h200/); NVIDIA states twice
    // the 989, for matrices that are half zeros). The ridge for bf16 lies at 989 / 4.8 = 206 operations
    // a byte: only large products reach the roof.
    //
    // The CPU starts each operation by **launching** a kernel, a program for all threads of the GPU. A
    // launch costs microseconds ([CUDA graphs](https://developer.nvidia.com/blog/cuda-graphs/)), and
    // in one microsecond the tensor cores could do a billion operations. So a small model leaves a GPU
    // idle, and fast programs join several operations into one kernel.
    //
    // Cloze's CUDA engine was measured on one H100 (`docs/gpu.md`): BERT-base takes 36.5 ms for a
    // training step of 64 × 384 tokens in bf16. 18.7 of them go to products, at 54 to 77 % of the peak,
    // 8 to attention, and nearly 9 to GELU, LayerNorm and AdamW, which only move numbers. Every other
    // GPU figure in this lesson was published by others or is computed from theirs.

    // %% [markdown]
    // ## Which side of the ridge?
    //
    // Here is the forward pass of one layer of BERT-base as a list of operations, for 8 sequences of
    // 384 tokens, in numbers of `size` bytes. A product of m × k by k × n numbers moves each matrix
    // once. The other operations read each number, do a handful of operations to it and write it.

    // %%
    struct Operation {
        name: &'static str,
        flops: f64,
        bytes: f64,
    }

    fn layer(size: usize) -> Vec<Operation> {
        let operation = |name: &'static str, flops: usize, numbers: usize| {
            let (flops, bytes) = (flops as f64, (size * numbers) as f64);
            Operation { name, flops, bytes }
        };
        let product = |name, count, m, k, n| {
            operation(name, 2 * count * m * k * n, count * (m * k + k * n + m * n))
        };
        // Tokens, width, inner width; heads of all sequences, tokens of a sequence.
        let [t, h, i, heads, s] = [8 * 384, 768, 3072, 8 * 12, 384];
        vec![
            product("query, key, value, output", 4, t, h, h),
            product("attention scores", heads, s, 64, s),
            operation("softmax", 5 * heads * s * s, 2 * heads * s * s),
            product("weights × values", heads, s, s, 64),
            product("feed-forward, both", 2, t, h, i),
            operation("GELU", 10 * t * i, 2 * t * i),
            operation("residual and LayerNorm, twice", 18 * t * h, 6 * t * h),
        ]
    }

    // %% [markdown]
    // An operation with $F$ FLOPs on $D$ bytes takes at least $\max(F / P,\; D / B)$ seconds: it can't
    // end before its arithmetic is done, nor before its bytes have moved. Where $D / B$ is the larger
    // one, memory is the limit: the operation lies to the left of the ridge.
    //
    // **Exercise 24.2.** Compute how long a list of operations takes at least, one after the other,
    // and the share of that time that goes to operations limited by memory.

    // %%
    fn at_best(operations: &[Operation], peak: f64, bandwidth: f64) -> (f64, f64) {
        // BEGIN SOLUTION
        cloze::solution!("24.2");
        let (mut all, mut limited) = (0.0, 0.0);
        for operation in operations {
            let arithmetic = operation.flops / peak;
            let moving = operation.bytes / bandwidth;
            all += arithmetic.max(moving);
            if moving > arithmetic {
                limited += moving;
            }
        }
        (all, limited / all)
        // END SOLUTION
    }

    // %%
    check!("24.2", |judge| {
        let of = |flops: f64, bytes: f64| Operation {
            name: "test",
            flops,
            bytes,
        };
        let (left, right) = (of(100.0, 200.0), of(4000.0, 40.0));
        let first = at_best(&[of(100.0, 200.0)], 400.0, 40.0).0;
        let what = format!(
            "100 operations on 200 bytes, with 400 operations and 40 bytes a second, take 5 seconds; \
             yours {first}"
        );
        judge.holds(
            &what,
            (first - 5.25).abs() > 1e-9,
            "You added the two times. Arithmetic and memory work at the same time: the longer one \
             counts.",
        );
        judge.holds(
            &what,
            (first - 0.25).abs() > 1e-9,
            "That is the shorter of the two times. The operation has to wait for the longer one.",
        );
        judge.close(
            "the time of 100 operations on 200 bytes, with 400 operations and 40 bytes a second",
            first,
            5.0,
            1e-9,
            "The bytes take 200 / 40 = 5 seconds, the arithmetic 0.25: the longer one counts.",
        );
        judge.close(
            "the time of 4,000 operations on 40 bytes",
            at_best(&[of(4000.0, 40.0)], 400.0, 40.0).0,
            10.0,
            1e-9,
            "The arithmetic takes 4000 / 400 = 10 seconds, the bytes 1.",
        );
        let (time, share) = at_best(&[left, right], 400.0, 40.0);
        judge.holds(
            &format!("both one after the other take 15 seconds; yours {time}"),
            (time - 10.25).abs() > 1e-9,
            "You added up all arithmetic and all bytes first. The operations run one after the \
             other, and each has its own limit.",
        );
        judge.close(
            "the time of both, one after the other",
            time,
            15.0,
            1e-9,
            "5 + 10 seconds.",
        );
        let what =
            format!("a third of the time goes to the operation limited by memory; yours {share}");
        for (slip, think) in [
            (
                0.5,
                "You counted operations: one of two. Compute a share of the time.",
            ),
            (
                2.0 / 3.0,
                "That is the share of the operation limited by arithmetic.",
            ),
            (5.0, "Those are the seconds. Divide by the time of all."),
        ] {
            judge.holds(&what, (share - slip).abs() > 1e-9, think);
        }
        judge.close(
            "the share of the time that goes to operations limited by memory",
            share,
            1.0 / 3.0,
            1e-9,
            "5 of the 15 seconds.",
        );
        let (whole, _) = at_best(&layer(4), peak, bandwidth);
        let parts = layer(4)
            .into_iter()
            .map(|one| at_best(&[one], peak, bandwidth).0);
        judge.close(
            "the time of a layer divided by the sum over its operations",
            whole / parts.sum::<f64>(),
            1.0,
            1e-9,
            "A list takes as long as its operations together.",
        );
    });

    // %%
    fn print_limits(machine: &str, size: usize, peak: f64, bandwidth: f64) {
        let (whole, share) = at_best(&layer(size), peak, bandwidth);
        println!("{machine}: ridge at {:.0}", peak / bandwidth);
        for one in layer(size) {
            let (name, intensity) = (one.name, one.flops / one.bytes);
            let (time, limited) = at_best(&[one], peak, bandwidth);
            let side = ["arithmetic", "memory"][usize::from(limited > 0.0)];
            let of_time = 100.0 * time / whole;
            println!("  {name:<30} {intensity:>7.1} {of_time:>5.0} % of the time, {side}");
        }
        println!("  limited by memory: {:.0} % of the time", 100.0 * share);
    }

    if solved!("24.2") {
        print_limits("this machine, f32", 4, peak, bandwidth);
        print_limits("H200, bf16", 2, 989e12, 4.8e12);
    }

    // %% [markdown]
    // The same layer is two different problems. On a CPU nearly all time goes to large products, to
    // the right of the ridge. On the H200 the products are so fast that about half of the time goes
    // to the rest, even if every operation runs at its limit. Faster tensor cores would hardly help.
    // Moving fewer bytes would: joined operations, and attention whose scores never reach memory.
    // Lesson 25 builds both.

    // %% [markdown]
    // ## MFU
    //
    // **Model FLOPs utilisation** (MFU) sums up a run in one number: the operations a second that the
    // model's products amount to, as a share of the machine's peak.
    //
    // $$ \text{MFU} = \frac{\text{tokens a second} \cdot \text{FLOPs a token}}{P} $$

    // %%
    let sizes = [(Size::Tiny, 16, 128), (Size::Base, 1, 384)];
    let mut runs: Vec<Run> = Vec::new();
    println!("              tokens/s   TFLOP/s     MFU");
    // A test of the lesson measures only the first.
    let count = cloze::lessons::steps(20) as usize / 10;
    for (size, sequences, length) in sizes.into_iter().take(count) {
        for (precision, limit) in [(Precision::F32, peak), (Precision::Bf16, peak_bf16)] {
            let config = size.config(vocabulary);
            let mut engine = speed::span_engine(&config, precision)?;
            let tokens_per_s = speed_of(&mut *engine, (sequences, length))?;
            let flops = tokens_per_s * flops_per_token(&config, length);
            let run = Run {
                size,
                precision,
                tokens_per_s,
                flops,
                mfu: flops / limit,
            };
            println!("{run}");
            runs.push(run);
        }
    }

    // %%
    show!(
        BarChart::new("Share of the peak of matrix products (MFU)")
            .unit("%")
            .bars(runs.iter().map(|run| (run.name(), 100.0 * run.mfu)))
    );

    // %% [markdown]
    // MFU compares each precision with its own peak. So fast bf16 units can give a higher speed and a
    // lower MFU: the products got faster, the rest did not.

    // %% [markdown]
    // ## Memory, and the largest batch
    //
    // Training holds four numbers for each parameter (its value, its gradient and AdamW's two means:
    // 16 bytes) and the activations of the batch. The crate forecasts both before it allocates
    // anything.

    // %%
    let base: Config = Size::Base.config(vocabulary);
    let base_layout: Arc<Layout> = Layout::new(&base, &Part::Span.with_encoder());
    let available: u64 = memory::free().unwrap_or(8 << 30);
    let gib: f64 = f64::from(1 << 30);
    let mut points: Vec<(f64, f64)> = Vec::new();
    for sequences in [1, 2, 4, 8, 16, 32, 64] {
        let bytes = speed::training_bytes(&base, &base_layout, sequences, 384);
        points.push((sequences as f64, bytes as f64 / gib));
    }
    show!(
        LineChart::new("BERT-base, sequences of 384 tokens")
            .axes("sequences in a batch", "GiB")
            .line("a training step", &points)
            .reference("free here", available as f64 / gib)
    );

    // %% [markdown]
    // **Exercise 24.3.** Find the largest batch for which `fits` returns true, or 0 if there is none.
    // If a batch fits, every smaller one fits too. On a GPU each question is a whole training step
    // that may run out of memory, so ask few: no more than about twice the number of binary digits of
    // the answer.

    // %%
    fn largest_batch(mut fits: impl FnMut(usize) -> bool) -> usize {
        // BEGIN SOLUTION
        cloze::solution!("24.3");
        let mut not = 1;
        while fits(not) {
            not *= 2;
        }
        let mut fit = not / 2;
        while not - fit > 1 {
            let middle = fit + (not - fit) / 2;
            if fits(middle) {
                fit = middle;
            } else {
                not = middle;
            }
        }
        fit
        // END SOLUTION
    }

    // %%
    check!("24.3", |judge| {
        let needed = |sequences| speed::training_bytes(&base, &base_layout, sequences, 384);
        for limit in [0usize, 1, 2, 7, 8, 592] {
            let mut asked = 0;
            let found = largest_batch(|n| {
                asked += 1;
                // A search that never ends is stopped here.
                n <= limit && asked < 1000
            });
            let what = format!("largest_batch where {limit} fit is {limit}; yours {found}");
            judge.holds(
                &what,
                found != limit + 1,
                "That is the first batch that does not fit. Return the last one that does.",
            );
            judge.holds(
                &what,
                limit < 3 || found == limit || found != 1 << limit.ilog2(),
                "Doubling found the right power of two, but the answer can lie between it and the \
                 next one.",
            );
            judge.equal(
                &format!("largest_batch where {limit} fit"),
                found,
                limit,
                "Which of the two ends moves, and when do you stop?",
            );
            let digits = usize::BITS - limit.leading_zeros();
            judge.holds(
                &format!(
                    "it asked {asked} times where {limit} fit, at most {}",
                    2 * digits + 2
                ),
                asked <= 2 * digits + 2,
                "Counting up by one gives the right answer, but 592 questions are 592 training steps.",
            );
        }
        let found = largest_batch(|n| needed(n) <= available);
        judge.holds(
            &format!(
                "the crate's forecast: {found} sequences fit into {}, {} do not",
                memory::format_bytes(available),
                found + 1
            ),
            (found == 0 || needed(found) <= available) && needed(found + 1) > available,
            "`cloze bench train --find-batch` searches for the same number.",
        );
    });

    // %%
    if solved!("24.3") {
        let found =
            largest_batch(|n| speed::training_bytes(&base, &base_layout, n, 384) <= available);
        println!("BERT-base at length 384: batch {found} here, 592 published for 141 GB");
    }

    // %% [markdown]
    // ## The page
    //
    // A GPU benchmark page for BERT has four charts: base and large, each in 32 bits and in mixed
    // precision, in sequences of 384 tokens a second. The figures for GPUs are those that Lambda
    // published: NVIDIA's PyTorch program, training on SQuAD on one GPU
    // ([code and results](https://github.com/lambdal/deeplearning-benchmark)). "32 bits" means TF32
    // there, in which factors are rounded to 11 significant bits (the V100 has only f32). A bar of
    // your machine that was not measured is computed from the operations a second of the largest model
    // that was, and says so. "H100, Cloze" is what Cloze reached on one (`docs/gpu.md`).

    // %%
    for chart in speed::benchmark_page(&runs, vocabulary) {
        show!(chart);
    }
    let h200: f64 = 930.0 * 384.0 * flops_per_token(&base, 384) / 989e12;
    println!("MFU of the published H200 figure: {:.0} %", 100.0 * h200);

    // %% [markdown]
    // (Your own MFU divides by a *measured* peak, the GPU's by that of its data sheet, which no program
    // reaches. So don't compare the two.)
    //
    // With this program the fastest GPU of the page does a fifth of what it could. In the logs
    // submitted to [MLPerf Training](https://mlcommons.org/benchmarks/training/) an H200 trains
    // BERT-large on 998 sequences a second, some 254,000 real tokens. The products with weights alone
    // amount to 0.46 PFLOP/s, 47 % of the peak. The configuration lists packed samples, attention
    // without padding, and fused bias, GELU, dropout and residual: the ideas of lessons 25 and 26.

    // %% [markdown]
    // ## What goes wrong
    //
    // This is the crate's answer to a sequence that is longer than the model's position table:

    // %%
    if let Err(error) = pass_seconds(&mut *engine, Pass::Train, (1, 600), 0, 1) {
        println!("{error}");
    }

    // %% [markdown]
    // Three mistakes cause no error, only a wrong figure:
    //
    // - **Padding counted as work.** Count real tokens: otherwise a batch padded to twice its length
    //   seems twice as fast as it is.
    // - **Asynchronous work.** The call that launches a kernel on a GPU returns at once. If you stop
    //   the clock there, you have measured the launch. `Engine` returns when the numbers are there.
    // - **Dropout off, no optimizer, another vocabulary.** Each changes the work. `cloze bench --peer`
    //   times two programs in turn on the same work.

    // %% [markdown]
    // ## Expected numbers
    //
    // On two virtual cores of an AMD EPYC (Zen 4), which other programs used too:
    //
    // - large products reach 200 GFLOP/s in f32, and no more in bf16 on this processor; copying moved 35
    //   to 45 GB/s, which puts the ridge at 4 to 6. Changing numbers in place, as above, was not measured
    //   there. Where it was, it moved more than copying, so your ridge may be lower;
    // - operations limited by memory take 3 % of a layer's time there, and 48 % on an H200;
    // - MFU in f32: tiny 59 %, base 74 %. The narrower the model, the smaller the share of products;
    // - BERT-base at length 384 needs 0.2 GiB a sequence, and 1.6 GiB for parameters and optimizer;
    // - the published H200 figure is an MFU of 20 %.

    // %% [markdown]
    // ## On real hardware
    //
    // `cloze bench train --size base --seq 384 --batch 32 --dtype bf16 --chart base.svg` measures one
    // setting, and `--find-batch` finds the largest batch. `cloze bench train --backend cpu
    // --size minilm --batch 16 --seq 128 --roofline kernels.svg` draws each kernel of a step into this
    // machine's roofline, with a table of their shares. `cloze bench estimate --size base
    // --tokens-per-s 350000 --price-per-hour 3` estimates the days and the money of a whole
    // pre-training run.

    // %% [markdown]
    // ## Open questions
    //
    // 1. The roofline knows one memory. Your machine has three caches before it. What would the picture
    //    look like with a slope for each, and where would the products above lie?
    // 2. Two systems have the same tokens a second, one at an MFU of 20 % and one at 60 %. What do you
    //    know about their hardware, and which of the two could you still make faster?
    //
    // The crate's source for this part: `src/cli/bench/speed.rs`, `src/cli/bench/budget.rs`,
    // `src/engine/timing.rs` and `src/engine/memory.rs`. Next:
    // [lesson 25](25_making_it_fast.rs), where the share grows.

    // %% [end]
    cloze::lessons::finish("24_gpu_benchmarks")
}
