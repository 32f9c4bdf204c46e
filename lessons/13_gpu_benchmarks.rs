// ---
// title = "Benchmarks: tokens a second, and what is possible"
// summary = "Time training steps honestly, count their operations, draw your machine's roofline, find the largest batch, and make the charts of a GPU benchmark page."
// minutes = 50
// seconds = 75
// needs = ["05"]
//
// [[exercise]]
// id = "13.1"
// title = "A speed from measured times"
// hints = [
//     "Leave away the first `warm_up` times: `&seconds[warm_up..]`. Sort a copy of the rest with `sort_by(f64::total_cmp)`.",
//     "The median of an odd number of times is the middle one, of an even number the mean of the two in the middle. The speed is `tokens / median`.",
// ]
//
// [[exercise]]
// id = "13.2"
// title = "Operations of a training step"
// hints = [
//     "A layer has six weight matrices: four of hidden × hidden (query, key, value, output), and hidden × intermediate and back.",
//     "A weight is multiplied and added once for each token: 2 operations forward. The backward pass needs two products of the same size, for the gradient of the input and of the weight: 6 in all.",
//     "Attention: a token's query meets `length` keys of `hidden` numbers (all heads together), and its weights as many values: 2 · 2 · hidden · length forward, three times that in all.",
// ]
//
// [[exercise]]
// id = "13.3"
// title = "The roof"
// hints = [
//     "Two things can be the limit: how fast numbers arrive, and how fast they are multiplied.",
//     "Memory that delivers `bandwidth` bytes a second feeds `intensity * bandwidth` operations a second; the multipliers do at most `peak`. The smaller one counts.",
// ]
//
// [[exercise]]
// id = "13.4"
// title = "The largest batch that fits"
// hints = [
//     "First double: 1, 2, 4, … until one does not fit. The answer lies between the last that fits and the first that does not.",
//     "Then halve: ask for the middle of the two and move one end there, until they are neighbours.",
//     "Where not even 1 fits the answer is 0.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 13 · Benchmarks: tokens a second, and what is possible
    //
    // "It trains at 300 tokens a second." Is that fast? The number says nothing before you know the
    // model, the length, the batch, the precision, and above all what the machine could do. In this
    // lesson you measure training steps so that the figures can be believed, count the operations that they
    // need, and compare both with your machine's limits. At the end you have the charts of a GPU benchmark
    // page for your own machine, with published figures beside.
    //
    // Everything goes through `Backend::Auto`: the fastest engine that this machine has. Without a GPU that is
    // the CPU engine; the questions and the charts are the same.
    //
    // *About 50 minutes; the cells compute for some 40 seconds. Close what else keeps the machine busy.*

    // %%
    use std::sync::Arc;
    use std::time::Instant;

    use cloze::engine::memory::{Forecast, Work};
    use cloze::engine::optimizer::{Optimizer, Update};
    use cloze::engine::{Precision, Setup, measured_peak, objective};
    use cloze::memory;
    use cloze::model::flops_per_token;
    use cloze::model::{Dropout, Part};
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::view::Flow;
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## Where we are going

    // %%
    show!(
        Flow::new("From times to a share", "the seconds of some steps")
            .step("median, after a warm-up", "13.1: seconds a step")
            .step("tokens a step / seconds", "13.1: tokens a second")
            .step("× operations a token", "13.2: operations a second")
            .step("/ the machine's peak", "MFU: the share of what is possible")
    );

    // %% [markdown]
    // ## The work
    //
    // The public benchmarks of BERT time fine-tuning on SQuAD: sequences of full length, a head that
    // points at the answer's first and last token, dropout, and AdamW over all parameters. The text does
    // not matter for the time, so random ids do. `Bench` holds one engine and one such batch.

    // %%
    /// An engine and the batch that it trains on, over and over.
    struct Bench {
        engine: Box<dyn TaskEngine>,
        batch: Packed,
        answers: Vec<[u32; 2]>,
        steps: u32,
    }

    impl Bench {
        fn new(
            config: &Config,
            precision: Precision,
            sequences: usize,
            length: usize,
        ) -> cloze::Result<Self> {
            let layout = Layout::new(config, &Part::Span.with_encoder());
            let setup = Setup {
                precision,
                ..Setup::from(Backend::Auto)
            };
            let engine = setup.engine(config, &layout, layout.initialise(0))?;
            let mut bench = Self {
                engine,
                batch: Packed::default(),
                answers: Vec::new(),
                steps: 0,
            };
            bench.fill(sequences, length);
            Ok(bench)
        }

        /// Another batch for the same model.
        fn fill(&mut self, sequences: usize, length: usize) {
            let vocabulary = self.engine.config().vocab_size as u32;
            let mut draws = Stream::new(0, 0, Site::Other(5), 0).draws();
            (self.batch, self.answers) = (Packed::default(), Vec::new());
            for example in 0..sequences as u64 {
                let ids: Vec<u32> = (0..length).map(|_| draws.below(vocabulary)).collect();
                self.batch.push(example, &ids, &vec![0; length]);
                self.answers
                    .push([0; 2].map(|_| draws.below(length as u32)));
            }
        }

        /// Forward, backward and update; gives the seconds that it took.
        fn step(&mut self) -> cloze::Result<f64> {
            self.steps += 1;
            let begun = Instant::now();
            let (bounds, answers) = (&self.batch.cu_seqlens, &self.answers);
            let dropout = Dropout {
                seed: 0,
                step: self.steps,
            };
            self.engine
                .task_gradients(&self.batch, dropout, &mut |logits| {
                    let weight = 1.0 / answers.len() as f32;
                    objective::spans(logits, bounds, answers, weight);
                })?;
            self.engine.update(&Update {
                optimizer: Optimizer::default(),
                learning_rate: 1e-5,
                step: u64::from(self.steps),
                max_norm: f64::INFINITY,
            })?;
            Ok(begun.elapsed().as_secs_f64())
        }
    }

    // %%
    let full: bool = cloze::lessons::steps(100) == 100;
    let vocabulary: usize = 30_522;
    let mini: Config = Size::Mini.config(vocabulary);
    let mut bench: Bench = Bench::new(&mini, Precision::F32, 8, 128)?;
    let mut seconds: Vec<f64> = Vec::new();
    for _ in 0..cloze::lessons::steps(12) {
        seconds.push(bench.step()?);
    }
    let points: Vec<(f64, f64)> = (1..)
        .map(f64::from)
        .zip(seconds.iter().map(|s| 1e3 * s))
        .collect();
    show!(
        LineChart::new("Twelve steps of BERT-mini, 8 × 128 tokens")
            .axes("step", "ms")
            .points("this machine", &points)
    );

    // %% [markdown]
    // Look at the first step: it allocated every buffer. The others scatter, since a machine always does
    // something else too, and always upwards: nothing makes a step faster than it can be. A mean would carry
    // every such disturbance into the result.
    //
    // **Exercise 13.1.** Tokens a second from the times of steps: without the first `warm_up`, by the
    // **median** of the rest.

    // %%
    fn tokens_per_second(tokens: usize, seconds: &[f64], warm_up: usize) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("13.1");
        let mut timed = seconds[warm_up..].to_vec();
        timed.sort_by(f64::total_cmp);
        let half = timed.len() / 2;
        let median = match timed.len() % 2 {
            1 => timed[half],
            _ => 0.5 * (timed[half - 1] + timed[half]),
        };
        tokens as f64 / median
        // END SOLUTION
    }

    // %%
    check!("13.1", |judge| {
        judge.close(
            "tokens_per_second(100, &[9.0, 0.5, 0.5, 0.5], 1)",
            tokens_per_second(100, &[9.0, 0.5, 0.5, 0.5], 1),
            200.0,
            1e-9,
            "The first step does not count; 100 tokens in half a second are 200 a second.",
        );
        judge.close(
            "tokens_per_second(100, &[1.0, 4.0, 1.0, 0.5, 1.0], 0)",
            tokens_per_second(100, &[1.0, 4.0, 1.0, 0.5, 1.0], 0),
            100.0,
            1e-9,
            "One slow step moves a mean, not the median. The times come in no order.",
        );
        judge.close(
            "tokens_per_second(6, &[1.0, 2.0], 0)",
            tokens_per_second(6, &[1.0, 2.0], 0),
            4.0,
            1e-9,
            "Two times: the median is the mean of the two in the middle.",
        );
        let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let yours = tokens_per_second(1024, &seconds, 3);
        judge.holds(
            &format!("your speed, {yours:.0}, is no more than that of the fastest step"),
            yours <= 1024.0 / fastest,
            "A median is no extreme.",
        );
    });

    // %%
    /// What `cloze bench` prints too: three steps to warm up, then the median of some more.
    fn speed(bench: &mut Bench, steps: u64) -> cloze::Result<f64> {
        let mut seconds: Vec<f64> = Vec::new();
        for _ in 0..3 + steps {
            seconds.push(bench.step()?);
        }
        Ok(bench.batch.rows() as f64 / cloze::engine::timing::median(&mut seconds[3..]))
    }

    println!("{:.0} tokens/s", speed(&mut bench, 5)?);

    // %% [markdown]
    // ## Chart 1: speed by batch size
    //
    // A small batch leaves the machine waiting: for memory, for threads that are handed tiny pieces, and
    // for the optimizer, whose work is the same however many tokens a step has.

    // %%
    let sizes: Vec<usize> = vec![1, 2, 4, 8, 16, 32];
    let mut by_batch: LineChart = LineChart::new("BERT-mini, sequences of 128 tokens")
        .axes("sequences in a batch", "tokens/s")
        .logarithmic();
    for (name, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        let mut bench: Bench = Bench::new(&mini, precision, 1, 128)?;
        let mut line: Vec<(f64, f64)> = Vec::new();
        for &sequences in sizes.iter().take(if full { 6 } else { 2 }) {
            bench.fill(sequences, 128);
            line.push((sequences as f64, speed(&mut bench, 3)?));
        }
        by_batch = by_batch.line(name, &line);
    }
    show!(by_batch);

    // %% [markdown]
    // ## How much work is that?
    //
    // The unit of work is the floating-point operation (FLOP), and what counts is what the *model* needs: the
    // operations of its matrix products. What an implementation adds (dropout, layers computed twice to save
    // memory) is its own business. So two programs on one model can be compared.
    //
    // **Exercise 13.2.** Count the operations a token needs in a training step of $L$ layers, $H$ wide,
    // with $I$ inside the feed-forward part, in sequences of length $S$:
    //
    // $$ 6 \cdot (\text{weights in the layers' matrices}) + 12 \cdot L \cdot H \cdot S $$
    //
    // ([PaLM](https://arxiv.org/abs/2204.02311), appendix B, counts the same way;
    // [Kaplan et al. 2020](https://arxiv.org/abs/2001.08361), section 2.1, count half as much for attention.)

    // %%
    fn training_flops(layers: usize, hidden: usize, inner: usize, length: usize) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("13.2");
        let weights = layers * (4 * hidden * hidden + 2 * hidden * inner);
        (6 * weights + 12 * layers * hidden * length) as f64
        // END SOLUTION
    }

    // %%
    check!("13.2", |judge| {
        judge.close(
            "training_flops(1, 1, 0, 0): one layer, one wide, no feed-forward part",
            training_flops(1, 1, 0, 0),
            24.0,
            0.0,
            "Four weights (query, key, value, output), six operations each.",
        );
        judge.close(
            "training_flops(1, 2, 8, 0)",
            training_flops(1, 2, 8, 0),
            288.0,
            0.0,
            "48 weights: four matrices of 2 × 2, one of 2 × 8 and one of 8 × 2.",
        );
        judge.close(
            "training_flops(2, 2, 8, 10) - training_flops(2, 2, 8, 0)",
            training_flops(2, 2, 8, 10) - training_flops(2, 2, 8, 0),
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
                "The crate's `flops_per_token` gives this; `cloze bench` prints its MFU by it.",
            );
        }
    });

    // %% [markdown]
    // ## What the machine could do
    //
    // Two limits stand over every program. The multipliers do at most $P$ operations a second, and memory
    // delivers at most $B$ bytes a second. Whoever does $F$ operations on $D$ bytes has the **intensity**
    // $F / D$, and can at best reach
    //
    // $$ \min\left(P,\; \frac{F}{D} \cdot B\right) $$
    //
    // That is the **roofline** ([Williams et al. 2009](https://doi.org/10.1145/1498765.1498785)): a slope
    // where memory is the limit, then a flat roof. First measure both on this machine.

    // %%
    let peak: f64 = measured_peak(Precision::F32);
    let peak_bf16: f64 = measured_peak(Precision::Bf16);

    /// Bytes a second, read and written, of copies of much more than the caches hold.
    fn measured_bandwidth(threads: usize) -> f64 {
        let from: Vec<f32> = vec![1.0; 32 << 20];
        let mut to: Vec<f32> = vec![0.5; 32 << 20];
        let mut best: f64 = 0.0;
        for _ in 0..4 {
            let begun = Instant::now();
            std::thread::scope(|scope| {
                let part = from.len().div_ceil(threads);
                for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                    scope.spawn(move || to.copy_from_slice(from));
                }
            });
            let bytes = (2 * size_of_val(&from[..])) as f64;
            best = best.max(bytes / begun.elapsed().as_secs_f64());
        }
        best
    }

    let cores: usize = std::thread::available_parallelism()?.get();
    let bandwidth: f64 = measured_bandwidth(cores);
    println!("products in f32:  {:>6.0} GFLOP/s", peak / 1e9);
    println!(
        "products in bf16: {:>6.0} GFLOP/s, on {}",
        peak_bf16 / 1e9,
        CpuEngine::unit(Precision::Bf16)
    );
    println!(
        "memory:           {:>6.1} GB/s on {cores} cores",
        bandwidth / 1e9
    );
    println!(
        "so the roof is flat from {:.0} operations a byte on",
        peak / bandwidth
    );

    // %% [markdown]
    // The intensity of a product of $m \times k$ by $k \times n$ in f32, where each matrix moves once, is
    // written below.
    //
    // **Exercise 13.3.** Write the roof: the operations a second that are possible at an intensity
    // (operations a byte), with `peak` in operations a second and `bandwidth` in bytes a second.

    // %%
    fn intensity(m: usize, k: usize, n: usize) -> f64 {
        let operations = 2.0 * (m * k * n) as f64;
        operations / (4 * (m * k + k * n + m * n)) as f64
    }

    fn roof(intensity: f64, peak: f64, bandwidth: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("13.3");
        peak.min(intensity * bandwidth)
        // END SOLUTION
    }

    // %%
    check!("13.3", |judge| {
        judge.close(
            "roof(0.5, 400.0, 40.0)",
            roof(0.5, 400.0, 40.0),
            20.0,
            1e-9,
            "Half an operation a byte: 40 bytes a second feed 20 operations a second.",
        );
        judge.close(
            "roof(100.0, 400.0, 40.0)",
            roof(100.0, 400.0, 40.0),
            400.0,
            1e-9,
            "Plenty of work a byte: the multipliers are the limit.",
        );
    });

    // %% [markdown]
    // ## Chart 2: the roofline
    //
    // Now products of dfdx on this machine: rows of 1,024 numbers by a matrix of 1,024 × 1,024. One row is what a
    // model does for one token alone; 512 rows are four sequences of 128.

    // %%
    let dev: Cpu = Cpu::default();
    let weight: Tensor<Rank2<1024, 1024>, f32, Cpu> = dev.sample_normal();
    let mut measured: Vec<(f64, f64)> = Vec::new();
    for rows in [1usize, 4, 16, 64, 256, 512] {
        let x: Tensor<(usize, Const<1024>), f32, Cpu> = dev.sample_normal_like(&(rows, Const));
        let mut best: f64 = f64::INFINITY;
        for _ in 0..cloze::lessons::steps(20) {
            let x = x.clone();
            let weight = weight.clone();
            let begun = Instant::now();
            let y = x.matmul(weight);
            best = best.min(begun.elapsed().as_secs_f64());
            drop(y);
        }
        let operations = 2.0 * (rows * 1024 * 1024) as f64;
        let at = intensity(rows, 1024, 1024);
        measured.push((at, operations / best / 1e9));
        println!(
            "{rows:>4} rows: {at:>6.1} operations a byte, {:>6.1} GFLOP/s",
            operations / best / 1e9
        );
    }
    if solved!("13.3") {
        let line: Vec<(f64, f64)> = (0..=40)
            .map(|i| 10f64.powf(-1.0 + f64::from(i) / 10.0))
            .map(|at| (at, roof(at, peak, bandwidth) / 1e9))
            .collect();
        show!(
            LineChart::new("The roofline of this machine")
                .axes("operations a byte", "GFLOP/s")
                .logarithmic()
                .line("roof, f32", &line)
                .points("products of dfdx with 1 to 512 rows", &measured)
        );
    }

    // %% [markdown]
    // A point below the slope or the roof has something left to gain. A point *above* the slope is no
    // wonder: a matrix of 4 MB fits into many machines' caches, which are faster than memory. (dfdx's
    // products do not use the widest vectors, so they stay below the flat part; lesson 14 climbs it.)
    //
    // One row does half an operation a byte: the weights are read for a single token. That is why a batch
    // makes everything faster until the roof is flat, and then nothing more.
    //
    // ## MFU
    //
    // **Model FLOPs utilisation** puts it into one number: the operations a second that
    // the model's products amount to, divided by what the machine could do ([PaLM](https://arxiv.org/abs/2204.02311), appendix B).
    //
    // $$ \text{MFU} = \frac{\text{tokens a second} \cdot \text{FLOPs a token}}{P} $$

    // %%
    /// One measured run.
    #[derive(Clone)]
    struct Row {
        size: Size,
        precision: Precision,
        tokens_per_s: f64,
        /// Operations of the model a second.
        flops: f64,
        mfu: f64,
    }

    let sizes: Vec<(Size, usize, usize)> = if full {
        vec![
            (Size::Tiny, 16, 128),
            (Size::Mini, 16, 128),
            (Size::Minilm, 8, 128),
            (Size::Base, 1, 384),
        ]
    } else {
        vec![(Size::Tiny, 2, 128), (Size::Mini, 2, 128)]
    };
    let mut rows: Vec<Row> = Vec::new();
    println!("                          tokens/s    TFLOP/s     MFU");
    for &(size, sequences, length) in &sizes {
        for precision in [Precision::F32, Precision::Bf16] {
            let config = size.config(vocabulary);
            let mut bench: Bench = Bench::new(&config, precision, sequences, length)?;
            let tokens_per_s = speed(&mut bench, 3)?;
            let flops = tokens_per_s * flops_per_token(&config, length);
            let limit = if precision == Precision::F32 {
                peak
            } else {
                peak_bf16
            };
            let row = Row {
                size,
                precision,
                tokens_per_s,
                flops,
                mfu: flops / limit,
            };
            println!(
                "{:<6} {sequences:>2} × {length} {:<6} {tokens_per_s:>10.0} {:>10.3} {:>6.0} %",
                size.name(),
                if precision == Precision::F32 {
                    "f32"
                } else {
                    "bf16"
                },
                flops / 1e12,
                100.0 * row.mfu
            );
            rows.push(row);
        }
    }

    // %% [markdown]
    // ## Chart 3: FP32 against BF16
    //
    // The same rows as a picture. MFU compares each precision with its own limit, so a machine with fast
    // bf16 units can have a higher speed and a lower MFU: the products got faster, the rest did not.

    // %%
    impl Row {
        fn name(&self) -> String {
            let precision = format!("{:?}", self.precision).to_lowercase();
            format!("{} {precision}", self.size.name())
        }
    }

    show!(
        BarChart::new("Training on this machine")
            .unit("tokens/s")
            .bars(rows.iter().map(|row| (row.name(), row.tokens_per_s)))
    );
    show!(
        BarChart::new("Share of what products reach (MFU)")
            .unit("%")
            .bars(rows.iter().map(|row| (row.name(), 100.0 * row.mfu)))
    );

    // %% [markdown]
    // ## Chart 4: memory, and the largest batch
    //
    // Training holds the parameters four times (values, gradients, AdamW's two means: 16 bytes a
    // parameter) and the activations of the batch. `Forecast` computes both before anything is allocated.

    // %%
    let base: Config = Size::Base.config(vocabulary);
    let base_layout: Arc<Layout> = Layout::new(&base, &Part::Span.with_encoder());

    /// Bytes that a training step on so many sequences of 384 tokens holds.
    fn needed(config: &Config, layout: &Layout, sequences: usize) -> u64 {
        let work = Work {
            rows: 384 * sequences,
            sequences,
            longest: 384,
        };
        Forecast::of(config, layout, work, false).total()
    }

    let available: u64 = memory::free().unwrap_or(8 << 30);
    let points: Vec<(f64, f64)> = [1usize, 2, 4, 8, 16, 32, 64]
        .into_iter()
        .map(|n| {
            (
                n as f64,
                needed(&base, &base_layout, n) as f64 / f64::from(1 << 30),
            )
        })
        .collect();
    show!(
        LineChart::new("BERT-base, sequences of 384 tokens")
            .axes("sequences in a batch", "GiB")
            .line("a training step", &points)
            .reference("free here", available as f64 / f64::from(1 << 30))
    );

    // %% [markdown]
    // **Exercise 13.4.** Find the largest batch for which `fits` says yes, 0 where there is none. Whatever fits,
    // smaller fits too. On a GPU every question is a whole training step that may run out of memory, so
    // ask few: no more than about twice the number of binary digits of the answer.

    // %%
    fn largest_batch(mut fits: impl FnMut(usize) -> bool) -> usize {
        // BEGIN SOLUTION
        cloze::solution!("13.4");
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
    check!("13.4", |judge| {
        for limit in [0usize, 1, 2, 7, 8, 592] {
            let mut asked = 0;
            let found = largest_batch(|n| {
                asked += 1;
                // A search that never ends is stopped here.
                n <= limit && asked < 1000
            });
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
                "Counting up one by one is right, but 592 questions are 592 training steps.",
            );
        }
        let found = largest_batch(|n| needed(&base, &base_layout, n) <= available);
        judge.holds(
            &format!(
                "the crate's forecast: {found} sequences fit into {}, {} do not",
                memory::format_bytes(available),
                found + 1
            ),
            (found == 0 || needed(&base, &base_layout, found) <= available)
                && needed(&base, &base_layout, found + 1) > available,
            "`cloze bench train --find-batch` looks for the same number.",
        );
    });

    // %%
    if solved!("13.4") {
        let found = largest_batch(|n| needed(&base, &base_layout, n) <= available);
        println!(
            "BERT-base at length 384: batch {found} here; 592 were published for a GPU with 141 GB"
        );
    }

    // %% [markdown]
    // ## The page
    //
    // A GPU benchmark page for BERT has four charts: base and large, each in 32 bits and in mixed precision, in
    // sequences of 384 tokens a second. These are published figures for training on SQuAD with PyTorch on
    // one GPU (in 32 bits they are TF32: f32 factors rounded to 11 significant bits), with yours beside. What was not
    // measured here is computed from base's operations a second, and says so.

    // %%
    /// Sequences of 384 tokens a second on one GPU: base mixed, large mixed, base TF32, large TF32.
    type Published = (&'static str, [Option<f64>; 4]);
    let published: Vec<Published> = vec![
        ("H200", [Some(930.0), Some(350.0), Some(517.0), Some(181.0)]),
        ("H100", [Some(877.0), Some(311.0), None, None]),
        ("A100 80 GB", [Some(443.0), Some(152.0), None, None]),
        ("V100 16 GB", [Some(189.0), Some(57.0), None, None]),
    ];
    let charts: [(&str, Size, Precision); 4] = [
        ("BERT-base, mixed precision", Size::Base, Precision::Bf16),
        ("BERT-large, mixed precision", Size::Large, Precision::Bf16),
        ("BERT-base, 32 bits", Size::Base, Precision::F32),
        ("BERT-large, 32 bits", Size::Large, Precision::F32),
    ];
    for (column, (title, size, precision)) in charts.into_iter().enumerate() {
        let mut chart: BarChart = BarChart::new(title).unit("sequences/s");
        for (gpu, figures) in &published {
            if let Some(figure) = figures[column] {
                chart = chart.bar(*gpu, figure);
            }
        }
        let of = |wanted: Size| {
            rows.iter()
                .rfind(|row| row.size == wanted && row.precision == precision)
        };
        let own = match (
            of(size),
            rows.iter().rfind(|row| row.precision == precision),
        ) {
            (Some(row), _) => Some(("this machine", row.tokens_per_s)),
            (None, Some(other)) => {
                // The largest model that was measured, at the same operations a second.
                let tokens = other.flops / flops_per_token(&size.config(vocabulary), 384);
                Some(("this machine, computed", tokens))
            }
            _ => None,
        };
        if let Some((name, tokens)) = own {
            chart = chart.bar(name, tokens / 384.0);
        }
        show!(chart);
    }

    // %% [markdown]
    // What share of an H200 is 930 sequences a second? Its tensor cores are specified at 989 TFLOP/s in bf16
    // without sparsity.

    // %%
    let h200: f64 = 930.0 * 384.0 * flops_per_token(&base, 384) / 989e12;
    println!("MFU of the published H200 figure: {:.0} %", 100.0 * h200);
    if let Some(row) = rows.iter().rfind(|row| row.precision == Precision::Bf16) {
        println!(
            "yours, {} in bf16: {:.0} %",
            row.size.name(),
            100.0 * row.mfu
        );
    }
    println!(
        "the paper's pre-training (900,000 steps of 256 × 128 tokens, 100,000 of 256 × 512), at that H200's speed: {:.1} days",
        1e6 * 256.0 * (0.9 * 128.0 + 0.1 * 512.0) / (930.0 * 384.0) / 86_400.0
    );

    // %% [markdown]
    // (Yours is a share of what products were measured to reach, the GPU's one of what its data sheet says, which no
    // program reaches: a fair comparison divides both by the same kind of limit.)
    //
    // The fastest GPU of the page runs BERT-base at a fifth of what it could do. That is not a fault of the
    // GPU. It is room for a better program, which is what lesson 14 is about.
    //
    // ## What goes wrong
    //
    // The real answers to two wrong requests: a sequence that the model has no positions for, and a precision that the
    // engine does not have.

    // %%
    let mut too_long: Bench = Bench::new(&mini, Precision::F32, 1, 600)?;
    if let Err(error) = too_long.step() {
        println!("{error}");
    }
    let impossible: Setup = Setup {
        precision: Precision::Bf16,
        ..Setup::from(Backend::Reference)
    };
    let mini_layout: Arc<Layout> = Layout::new(&mini, &Part::Span.with_encoder());
    if let Err(error) = impossible.engine(&mini, &mini_layout, mini_layout.initialise(0)) {
        println!("{error}");
    }

    // %% [markdown]
    // And four mistakes that give no error, only a wrong figure:
    //
    // - **Padding counted as work.** Count real tokens: a batch padded to twice its length would seem twice as fast
    //   as it is.
    // - **The first steps counted in.** See the chart at the top.
    // - **Asynchronous work.** A GPU is given its work and the call returns at once: whoever stops the clock
    //   there has measured the asking. `Engine` returns when the numbers are there.
    // - **Dropout off, no optimizer, another vocabulary.** Each changes the work. `cloze bench --peer` runs two programs on
    //   the same work, alternately, so that a busy minute hits both.
    //
    // ## Expected numbers
    //
    // Measured on two cores with AVX512-BF16 while other programs ran on them, so read the shares and ratios
    // rather than the speeds:
    //
    // - products reach twice as much in bf16 as in f32, and memory some 30 GB/s;
    // - MFU in f32: tiny 26 %, mini 63 %, MiniLM 75 %, base 72 %. The narrower the model, the less of its time
    //   are products;
    // - bf16 makes base twice as fast (177 against 88 tokens/s there), and tiny by a sixth;
    // - BERT-base at length 384 needs 0.2 GiB a sequence beside 1.6 GiB of parameters and optimizer;
    // - the published H200 figure is an MFU of 20 %.
    //
    // ## On real hardware
    //
    // `cloze bench train --size base --seq 384 --batch 32 --dtype bf16 --chart base.svg` measures one
    // setting, and `--find-batch` the largest batch. What a whole pre-training run would cost in days and
    // money tells `cloze bench estimate --size base --tokens-per-s 350000 --price-per-hour 3`.
    //
    // ## Open questions
    //
    // 1. The roofline knows one memory. Your machine has three caches before it. What would the picture look
    //    like with a slope for each, and where would the products above lie?
    // 2. Two systems have the same tokens a second, one at an MFU of 20 % and one at 60 %. What do you know about
    //    their hardware, and about which you could still make faster?
    //
    // The crate's source of this part: `src/cli/bench/speed.rs`, `src/cli/bench/budget.rs` and
    // `src/engine/memory.rs`. Next: [lesson 14](14_making_it_fast.rs), where the share grows.

    // %% [end]
    cloze::lessons::finish("13_gpu_benchmarks")
}
