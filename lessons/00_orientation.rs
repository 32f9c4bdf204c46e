// ---
// title = "Orientation: tensors that know their shape"
// summary = "Cells and exercises, tensors with their shapes in their types, broadcasting, gradients by the tape, and a first model that learns."
// minutes = 40
// seconds = 25
//
// [[exercise]]
// id = "00.1"
// title = "How many numbers has a shape?"
// hints = [
//     "A table of 2 rows and 3 columns holds 2 · 3 numbers. Each axis multiplies.",
//     "`shape.iter().product()`. And what does an empty product give? Ask the check.",
// ]
//
// [[exercise]]
// id = "00.2"
// title = "The mean of each row"
// hints = [
//     "`x.mean()` takes away an axis. Which one, and what is left, stands between `::<` and `>`: first the shape that is left, then the axis that goes.",
//     "The mean of a *row* runs along its columns, and those are axis 1. What is left is one number a row: `Rank1<R>`.",
//     "`x.mean::<Rank1<R>, Axis<1>>()`",
// ]
//
// [[exercise]]
// id = "00.3"
// title = "A linear layer"
// hints = [
//     "`x` is (rows, I) and the weight (O, I). For a matrix product the inner sizes must meet: transpose the weight with `permute::<_, Axes2<1, 0>>()`.",
//     "The product is (rows, O); the bias has O numbers. Repeat it for every row: `bias.clone().broadcast_like::<_, Axis<0>>(&shape)`, where `shape` is the product's: `let shape = *product.shape();`.",
//     "`let product = x.matmul(weight.clone().permute::<_, Axes2<1, 0>>());`, then add the repeated bias.",
// ]
//
// [[exercise]]
// id = "00.4"
// title = "One step downhill"
// hints = [
//     "Begin the tape at the two parameters: `let a = line.slope.leaky_trace();` and so with the offset. Repeat each for all points: `a.broadcast_like::<_, Axis<0>>(x.shape())`.",
//     "The errors are `a * x.clone() + b - y.clone()`; the loss is `.square().mean::<Rank0, Axis<0>>()`. `loss.array()` is its number: take it before `backward()` takes the loss.",
//     "`let gradients = loss.backward();` and then `gradients.get(&line.slope)` is how much the loss grows where the slope grows. You want it to fall.",
//     "`line.slope = line.slope.clone() - gradients.get(&line.slope) * rate;` and the same for the offset.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 00 · Orientation: tensors that know their shape
    //
    // A neural network is a program that computes with tables of numbers, and learning is a way to
    // change some of those numbers. In this lesson you get to know both: tensors, whose shapes the
    // compiler checks, and gradients, which say how to change a number so that an error gets
    // smaller. At the end a model of two parameters learns from text before your eyes, by the same
    // steps that train BERT's 110 million.
    //
    // *About 40 minutes. You need some Rust and no deep learning.*
    //
    // ## Cells
    //
    // A notebook is a program that you run piece by piece. Click on the cell below and press
    // **Shift+Enter**. What a cell defines, the next ones know. (Reading this as a file? Then the
    // whole program runs at once: `cargo run --example 00_orientation`.)

    // %%
    use cloze::prelude::*;
    use cloze::text::embedded;
    use cloze::view::Flow;
    use dfdx::nn::modules::Linear;

    let lengths: Vec<usize> = vec![3, 1, 4];
    println!(
        "{} numbers, the sum is {}",
        lengths.len(),
        lengths.iter().sum::<usize>()
    );

    // %% [markdown]
    // `show!` shows any value: numbers as text, tensors with their shape, charts as pictures.

    // %%
    show!(lengths, "text", 2.5);

    // %% [markdown]
    // And here is a picture: what happens to a cell that you run.

    // %%
    show!(
        Flow::new("What happens to a cell", "your cell")
            .step(
                "the Rust compiler",
                "reads its types, and the shapes in them"
            )
            .step("a wrong type or shape?", "a message, and nothing runs")
            .step(
                "otherwise the cell runs",
                "and knows what the cells before defined"
            )
            .step("what comes out", "a value, a chart, an exercise's check")
    );

    // %% [markdown]
    // Things worth knowing before you need them:
    //
    // | type in a cell | and you get |
    // |---|---|
    // | `:vars`, `:shapes` | your variables with their types; the shapes of all tensors |
    // | `:doc matmul` | documentation; the Tab key completes names |
    // | `:hint 00.1`, `:solution 00.1` | help with an exercise, a little or all |
    // | `:replay` | runs again what defined things, should the session have been lost |
    // | `:help` | the rest |
    //
    // The stop button (in the terminal Ctrl-C) ends a cell that takes too long and keeps your
    // variables.
    //
    // ## Exercises
    //
    // An exercise is a function with a stub. You fill it in, run its cell, and run the check below.
    // The check does not only say right or wrong: it says which value, and what to think about. Try
    // it out: run the check before you have written anything, then with a wrong answer, then with a
    // right one. (In a notebook a cell that is nothing but a check is folded to one line, for it
    // tells the answer: run it like any other cell, or click on it to read it.)
    //
    // **Exercise 00.1.** The *shape* of a tensor is a list of sizes, one for each axis: a table of
    // 2 rows and 3 columns has the shape (2, 3). How many numbers does a tensor of a given shape
    // hold?

    // %%
    fn numbers_in(shape: &[usize]) -> usize {
        // BEGIN SOLUTION
        cloze::solution!("00.1");
        shape.iter().product()
        // END SOLUTION
    }

    // %%
    check!("00.1", |judge| {
        judge.equal(
            "numbers_in(&[2, 3])",
            numbers_in(&[2, 3]),
            6,
            "Two rows of three. (5 is the sum of the sizes: each axis multiplies.)",
        );
        judge.equal(
            "numbers_in(&[16, 128, 768])",
            numbers_in(&[16, 128, 768]),
            1_572_864,
            "16 sentences of 128 tokens of 768 numbers: what BERT-base passes from layer to layer.",
        );
        judge.equal(
            "numbers_in(&[4, 0])",
            numbers_in(&[4, 0]),
            0,
            "Four empty rows.",
        );
        judge.equal(
            "numbers_in(&[])",
            numbers_in(&[]),
            1,
            "No axis at all: a single number. The product of nothing is 1.",
        );
    });

    // %% [markdown]
    // ## Tensors
    //
    // A tensor is a block of numbers with a shape, on a device. The device makes it; ours is the
    // CPU. Look at the type: the shape is part of it.

    // %%
    let dev: Cpu = Cpu::default();
    let scores: Tensor<Rank2<2, 3>, f32, Cpu> = dev.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]);
    show!(scores);

    // %% [markdown]
    // `Rank2<2, 3>` is short for `(Const<2>, Const<3>)`. A size that nobody knows before the
    // program runs (how many sentences? how long?) is a `usize` in its place, and then the shape is
    // given as a value:

    // %%
    let sentences: usize = 4;
    let rows: Tensor<(usize, Const<3>), f32, Cpu> =
        dev.tensor_from_vec((0..12).map(|n| n as f32).collect(), (sentences, Const));
    show!(rows);
    println!(
        "shape {:?}, numbers {:?}",
        rows.shape().concrete(),
        rows.as_vec()
    );

    // %% [markdown]
    // BERT's design is in the types (768 wide, 12 heads), and the data is not (so many sentences,
    // so many tokens). The compiler then checks the design, before anything runs.
    //
    // Operations work on whole tensors. Between tensors of one shape `+ - * /` go number by number.
    // Operations *take* their tensors, as functions take values in Rust: `.clone()` keeps one for
    // later, and costs next to nothing, because the numbers are shared until one of the two is
    // changed.

    // %%
    show!(scores.clone() * scores.clone() - 1.0);
    // Between `::<` and `>` stand the shape that is left and the axis that goes; `_` is worked out.
    // All of them; along axis 0, which leaves a number for each column; along axis 1: a number for each row.
    show!(scores.clone().sum::<Rank0, _>().array());
    show!(scores.clone().sum::<Rank1<3>, Axis<0>>().array());
    show!(scores.clone().sum::<Rank1<2>, Axis<1>>().array());

    // %% [markdown]
    // **Exercise 00.2.** Give the mean of each row, for a table of any size. (The type says nearly
    // everything. If it compiles, it is probably right: try what the other axis does.)

    // %%
    fn row_means<const R: usize, const C: usize>(
        x: Tensor<Rank2<R, C>, f32, Cpu>,
    ) -> Tensor<Rank1<R>, f32, Cpu> {
        // BEGIN SOLUTION
        cloze::solution!("00.2");
        x.mean::<Rank1<R>, Axis<1>>()
        // END SOLUTION
    }

    // %%
    check!("00.2", |judge| {
        let dev = Cpu::default();
        let two = dev.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]);
        judge.close_tensor(
            "row_means of [[1, 2, 3], [4, 5, 9]]",
            &row_means(two),
            &dev.tensor([2.0, 6.0]),
            1e-6,
            "(1 + 2 + 3) / 3 and (4 + 5 + 9) / 3. If yours is [6, 18], it is the sum; if it is \
             [3, 9], you divided by the number of rows. A row has C numbers.",
        );
        let square = dev.tensor([[0.0, 4.0], [1.0, 1.0]]);
        judge.close_tensor(
            "row_means of [[0, 4], [1, 1]]",
            &row_means(square),
            &dev.tensor([2.0, 1.0]),
            1e-6,
            "If yours is [0.5, 2.5], you took the mean of each column.",
        );
    });

    // %% [markdown]
    // ## Make a shape error
    //
    // A matrix product combines the rows of one table with the columns of another: (2, 3) times (3,
    // 4) gives (2, 4). The inner sizes, 3 and 3, must be equal.

    // %%
    let right: Tensor<Rank2<3, 4>, f32, Cpu> = dev.ones();
    let product: Tensor<Rank2<2, 4>, f32, Cpu> = scores.clone().matmul(right);
    show!(product);

    // %% [markdown]
    // Now make a mistake on purpose. Write this into a cell of your own and run it:
    //
    // ```rust
    // let wrong = scores.clone().matmul(scores.clone());
    // ```
    //
    // Nothing runs. The compiler has seen (2, 3) times (2, 3) and refuses. A notebook puts it into
    // a sentence and marks the place; the last line is the beginning of what Rust said.
    //
    // ```text
    // error[E0277]: matmul: the left is 2×3 and the right is 2×3: the inner sizes 3 and 2 differ;
    // the right transposed to 3×2, `.permute::<_, Axes2<1, 0>>()`, would fit
    //    1 | let wrong = scores.clone().matmul(scores.clone());
    //      |                            ------
    //      |                                   ^^^^^^^^^^^^^^
    // rustc: the trait bound `Tensor<(Const<2>, Const<3>), f32, Cpu>: TryMatMul<...>` is not satisfied
    // ```
    //
    // In a program of your own, outside a notebook, Rust speaks alone (here with the paths of types
    // left away):
    //
    // ```text
    // error[E0277]: the trait bound `Tensor<(Const<2>, Const<3>), f32, Cpu>: TryMatMul<...>` is not satisfied
    //   |
    //   |     let wrong = scores.clone().matmul(scores.clone());
    //   |                                ------ ^^^^^^^^^^^^^^ unsatisfied trait bound
    //   |
    //   = help: the trait `TryMatMul<Tensor<(Const<2>, Const<3>), f32, Cpu>>` is not implemented
    //           for `Tensor<(Const<2>, Const<3>), f32, Cpu>`
    //   = help: the following other types implement trait `TryMatMul<Rhs>`:
    //             `Tensor<(M, K), E, D, T>` implements `TryMatMul<Tensor<(K, N), E, D, R>>`
    // ```
    //
    // It reads well once you know how. `TryMatMul` is the operation. What follows "the trait" is
    // the *right* side, what follows "for" the *left* side. The last line is the rule: (M, K) times
    // (K, N), with the same K in both. Here K would have to be 3 and 2.
    //
    // ## Broadcasting
    //
    // Often a small tensor must meet a large one: the same three numbers added to every row. Many
    // libraries guess what you mean and repeat the smaller one silently, along whichever axis
    // happens to fit. Here you say along which axis:

    // %%
    let bias: Tensor<Rank1<3>, f32, Cpu> = dev.tensor([10.0, 20.0, 30.0]);
    show!(scores.clone() + bias.clone().broadcast::<_, Axis<0>>());
    // The same with a size that is known at run time only: there the shape comes as a value.
    show!(rows.clone() + bias.clone().broadcast_like::<_, Axis<0>>(rows.shape()));

    // %% [markdown]
    // ## The layer that BERT is made of
    //
    // A **linear layer** turns rows of $I$ numbers into rows of $O$ numbers. Each output is a
    // weighted sum of all inputs and a constant:
    //
    // $$ y = x W^\top + b, \qquad W \in \mathbb{R}^{O \times I}, \quad b \in \mathbb{R}^{O} $$
    //
    // Of BERT-base's 110 million parameters 85 million stand in such matrices; nearly all of its
    // time goes into them.

    // %%
    show!(
        Flow::new("A linear layer", "x: (rows, I)")
            .step("times W transposed", "(I, O): gives (rows, O)")
            .step("+ b, repeated for each row", "(O) becomes (rows, O)")
    );

    // %% [markdown]
    // **Exercise 00.3.** Write it. Its three steps have all stood above: `permute` swaps the axes of
    // the weight, `matmul` multiplies, and the bias is repeated for each row before it is added. How
    // many rows there are is known at run time only. The check compares yours with the layer that
    // the crate uses.

    // %%
    fn linear<const I: usize, const O: usize>(
        x: Tensor<(usize, Const<I>), f32, Cpu>,
        weight: &Tensor<Rank2<O, I>, f32, Cpu>,
        bias: &Tensor<Rank1<O>, f32, Cpu>,
    ) -> Tensor<(usize, Const<O>), f32, Cpu> {
        // BEGIN SOLUTION
        cloze::solution!("00.3");
        let product = x.matmul(weight.clone().permute::<_, Axes2<1, 0>>());
        let shape = *product.shape();
        product + bias.clone().broadcast_like::<_, Axis<0>>(&shape)
        // END SOLUTION
    }

    // %%
    check!("00.3", |judge| {
        let dev = Cpu::seed_from_u64(1);
        let x = dev.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).realize();
        let weight = dev.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let bias = dev.tensor([100.0, 200.0, 300.0]);
        judge.close_tensor(
            "linear of the rows [1, 0], [0, 1], [1, 1], with the weight [[1, 2], [3, 4], [5, 6]] \
             and the bias [100, 200, 300],",
            &linear(x, &weight, &bias),
            &dev.tensor([[101.0, 203.0, 305.0], [102.0, 204.0, 306.0], [103.0, 207.0, 311.0]])
                .realize(),
            1e-4,
            "Row [1, 0] picks the first column of W: 1, 3, 5. The bias comes to every row. \
             Whole hundreds missing: the bias. The pattern 1, 2, 3 / 4, 5, 6: W was not transposed.",
        );
        let layer: Linear<768, 64, f32, Cpu> = Linear {
            weight: dev.sample_normal(),
            bias: dev.sample_normal(),
        };
        let x: Tensor<(usize, Const<768>), f32, Cpu> = dev.sample_normal_like(&(5, Const));
        judge.close_tensor(
            "your layer for 5 tokens of BERT-base's width",
            &linear(x.clone(), &layer.weight, &layer.bias),
            &layer.forward(x),
            1e-3,
            "This is what dfdx's Linear gives, which the crate's model is made of.",
        );
    });

    // %% [markdown]
    // ## Gradients
    //
    // To learn is to change parameters so that an error, the **loss**, gets smaller. In which
    // direction, and how much does it help? The gradient of the loss says it for each parameter:
    // how fast the loss grows where this parameter grows and all others stay.
    //
    // Nobody derives them by hand. `leaky_trace()` puts a **tape** on a tensor; each operation
    // writes on it how to go back; `backward()` plays the tape from its end, by the chain rule
    // ([Rumelhart et al. 1986](https://www.nature.com/articles/323533a0)). Here is $\sum x^2$,
    // whose slope is $2x$:

    // %%
    let x: Tensor<Rank1<4>, f32, Cpu> = dev.tensor([-1.0, 0.0, 0.5, 3.0]);
    let sum: Tensor<Rank0, f32, Cpu, OwnedTape<f32, Cpu>> =
        x.leaky_trace().square().sum::<Rank0, Axis<0>>();
    show!(sum);
    let gradients: Gradients<f32, Cpu> = sum.backward();
    show!(gradients.get(&x));

    // %% [markdown]
    // The tape is in the type: `Tensor<…, OwnedTape<f32, Cpu>>`. A tensor without a tape has no
    // `backward`, so you can't forget to record. (`leaky_trace` also keeps the gradients of
    // everything between, which is handy in a notebook; `trace` frees them.)
    //
    // ## A first model
    //
    // How many words has a text of so many characters? Let a straight line learn it from the
    // paragraphs that come with Cloze. To keep all numbers near 1 (steps are then of one size)
    // characters are counted in hundreds and words in tens.

    // %%
    /// One number for each paragraph.
    type Column = Tensor<(usize,), f32, Cpu>;

    let texts: Vec<String> = embedded::paragraphs().take(300).map(|p| p.text).collect();
    let characters: Vec<f32> = texts
        .iter()
        .map(|t| t.chars().count() as f32 / 100.0)
        .collect();
    let words: Vec<f32> = texts
        .iter()
        .map(|t| t.split_whitespace().count() as f32 / 10.0)
        .collect();
    let x: Column = dev.tensor_from_vec(characters.clone(), (texts.len(),));
    let y: Column = dev.tensor_from_vec(words.clone(), (texts.len(),));
    println!("{} paragraphs; the first: {}", texts.len(), texts[0]);
    println!("x = {:.2}, y = {:.1}", characters[0], words[0]);

    // %% [markdown]
    // The model is $\hat y = a x + b$ and the loss the mean squared error over all $n$ paragraphs.
    // One step of **gradient descent** with the learning rate $\eta$ is
    //
    // $$ L = \frac{1}{n} \sum_i (a x_i + b - y_i)^2, \qquad
    //    a \leftarrow a - \eta \frac{\partial L}{\partial a}, \quad b \leftarrow b - \eta \frac{\partial L}{\partial b} $$
    //
    // **Exercise 00.4.** Do one step: change `line`, and give back the loss from before the step.

    // %%
    /// A straight line: its two parameters.
    #[derive(Clone)]
    struct Line {
        slope: Tensor<Rank0, f32, Cpu>,
        offset: Tensor<Rank0, f32, Cpu>,
    }

    fn descend(line: &mut Line, x: &Column, y: &Column, rate: f32) -> f32 {
        // BEGIN SOLUTION
        cloze::solution!("00.4");
        let a = line.slope.leaky_trace();
        let b = line.offset.leaky_trace();
        let a = a.broadcast_like::<_, Axis<0>>(x.shape());
        let b = b.broadcast_like::<_, Axis<0>>(x.shape());
        let errors = a * x.clone() + b - y.clone();
        let loss = errors.square().mean::<Rank0, Axis<0>>();
        let value = loss.array();
        let gradients = loss.backward();
        line.slope = line.slope.clone() - gradients.get(&line.slope) * rate;
        line.offset = line.offset.clone() - gradients.get(&line.offset) * rate;
        value
        // END SOLUTION
    }

    // %%
    /// The line that no line can beat, by the formulas for least squares.
    fn best_line(x: &[f32], y: &[f32]) -> (f64, f64) {
        let n = x.len() as f64;
        let mean = |v: &[f32]| v.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let (mx, my) = (mean(x), mean(y));
        let (mut above, mut below) = (0.0, 0.0);
        for (&x, &y) in x.iter().zip(y) {
            above += (f64::from(x) - mx) * (f64::from(y) - my);
            below += (f64::from(x) - mx).powi(2);
        }
        let slope = above / below;
        (slope, my - slope * mx)
    }

    check!("00.4", |judge| {
        let dev = Cpu::default();
        let zero = || Line {
            slope: dev.zeros(),
            offset: dev.zeros(),
        };
        let (two_x, two_y): (Column, Column) = (
            dev.tensor([1.0, 2.0]).realize(),
            dev.tensor([2.0, 4.0]).realize(),
        );
        let mut line = zero();
        let loss = descend(&mut line, &two_x, &two_y, 0.1);
        judge.close(
            "the loss of the line 0 x + 0 for the points (1, 2) and (2, 4)",
            f64::from(loss),
            10.0,
            1e-4,
            "(2² + 4²) / 2: the mean of the squares, before the step.",
        );
        let slope = f64::from(line.slope.array());
        let slips = [
            (
                0.0,
                "The line has not moved: assign the new value to `line.slope`.",
            ),
            (
                -1.0,
                "You went uphill: the gradient points to where the loss grows. Subtract it.",
            ),
            (
                2.0,
                "That is the gradient of the sum of the squares; the loss is their mean.",
            ),
            (10.0, "The rate is missing: multiply the gradient by it."),
        ];
        for (wrong, slip) in slips {
            judge.holds(
                &format!("after one step at rate 0.1 the slope is 1, yours is {slope}"),
                (slope - wrong).abs() > 1e-4,
                slip,
            );
        }
        judge.close(
            "the slope after one step at rate 0.1",
            slope,
            1.0,
            1e-4,
            "Its gradient is the mean of 2 · error · x: (2 · -2 · 1 + 2 · -4 · 2) / 2 = -10.",
        );
        judge.close(
            "the offset after one step at rate 0.1",
            f64::from(line.offset.array()),
            0.6,
            1e-4,
            "Its gradient is the mean of 2 · error: (2 · -2 + 2 · -4) / 2 = -6.",
        );
        let mut line = zero();
        for _ in 0..2_000 {
            descend(&mut line, &x, &y, 0.05);
        }
        let best = best_line(&characters, &words);
        judge.close(
            "the slope after 2,000 steps on the paragraphs",
            f64::from(line.slope.array()),
            best.0,
            0.01,
            "Least squares has a formula for the best line, and this is its slope.",
        );
        judge.close(
            "the offset after 2,000 steps on the paragraphs",
            f64::from(line.offset.array()),
            best.1,
            0.03,
            "This is the best line's offset.",
        );
    });

    // %% [markdown]
    // Watch it learn. The chart is live: it follows while the loop runs.

    // %%
    if solved!("00.4") {
        let mut line = Line {
            slope: dev.zeros(),
            offset: dev.zeros(),
        };
        let mut chart = LiveChart::new(
            LineChart::new("A line learns to count words").axes("step", "mean squared error"),
        );
        for step in 1..=60 {
            let loss = descend(&mut line, &x, &y, 0.05);
            chart.push("loss", f64::from(step), f64::from(loss));
        }
        drop(chart);
        let (a, b) = (
            f64::from(line.slope.array()),
            f64::from(line.offset.array()),
        );
        println!(
            "after 60 steps: words = {:.1} per 100 characters {:+.2}",
            10.0 * a,
            10.0 * b
        );
        let best = best_line(&characters, &words);
        println!(
            "the best line:  words = {:.1} per 100 characters {:+.2}",
            10.0 * best.0,
            10.0 * best.1
        );
        let points: Vec<(f64, f64)> = characters
            .iter()
            .zip(&words)
            .map(|(&x, &y)| (100.0 * f64::from(x), 10.0 * f64::from(y)))
            .collect();
        let most = points.iter().map(|p| p.0).fold(0.0, f64::max);
        show!(
            LineChart::new("Words by characters")
                .axes("characters", "words")
                .points("paragraphs", &points)
                .line(
                    "learned",
                    &[(0.0, 10.0 * b), (most, 10.0 * (a * most / 100.0 + b))]
                )
        );
    }

    // %% [markdown]
    // The loss falls within six steps and then creeps: one direction of the valley is steep, the
    // other nearly flat, and one rate must do for both. After 60 steps the line is good and not yet
    // the best. (Better steps are a subject of lesson 07.)
    //
    // Nothing more happens when BERT is trained. There are 110 million parameters in place of two,
    // the model is not a line but twelve layers, the loss asks for missing words, and the steps are
    // cleverer (lesson 07). The loop is this one.
    //
    // ## What goes wrong
    //
    // Three answers of the compiler that everybody gets in the first hour, and one of the running
    // program.
    //
    // **A tensor that is gone.** `let doubled = scores + scores;`
    //
    // ```text
    // error[E0382]: `scores` was moved in line 1: write `scores.clone()` there to keep it, or lend it as `&scores`
    //    1 | let doubled = scores + scores;
    //      |               --------------- `scores` moved due to usage in operator
    //      |                        ^^^^^^ value used here after move
    // rustc: use of moved value: `scores`
    // ```
    //
    // The left side took it. `scores.clone() + scores` is right, and cheap: numbers are not copied.
    //
    // **Two shapes that only look alike.** `let y = scores + bias;`, (2, 3) plus (3):
    //
    // ```text
    // error[E0277]: +: the left is 2×3 and the right is a vector of 3: make the right 2×3 first, with `.broadcast::<Rank2<2, 3>, _>()`
    // rustc: the trait bound `Tensor<(Const<2>, Const<3>), f32, Cpu>: TryAdd<Tensor<..., f32, ...>>` is not satisfied
    // ```
    //
    // Say how the bias is to be repeated: by the shape, as here, or by the axis,
    // `scores + bias.broadcast::<_, Axis<0>>()`. One of the two is enough.
    //
    // **No tape.** `let gradients = x.square().sum::<Rank0, _>().backward();`
    //
    // ```text
    // error[E0599]: backward: no tape came with it: begin with `x.leaky_trace()` (or `x.trace(gradients)`) and use that instead of `x`
    // rustc: no method named `backward` found for struct `Tensor<S, E, D, T>` in the current scope
    // ```
    //
    // There is nothing to play back: the tape is put on at the beginning.
    //
    // **Sizes that only the data know.** Four rows plus five rows, both of the type `(usize,
    // Const<3>)`, compile. The program finds out:
    //
    // ```text
    // panic: the two tensors of an operation by elements (`+`, `*`, …) differ in shape: the left is 4×? and the right is 5×?: the sizes 4 and 5 differ
    // dfdx: assertion `left == right` failed
    //         left: (4, Const)
    //        right: (5, Const)
    // ```
    //
    // What is not in the type is checked when it runs. That is the price of a `usize`.
    //
    // **A step that is too large.** No error at all, but a curve: each step overshoots the valley
    // by more than it was away from it.

    // %%
    if solved!("00.4") {
        let mut chart = LineChart::new("The same line with other learning rates")
            .axes("step", "mean squared error")
            .logarithmic();
        for rate in [0.002, 0.05, 0.25] {
            let mut line = Line {
                slope: dev.zeros(),
                offset: dev.zeros(),
            };
            let losses: Vec<(f64, f64)> = (1..=30)
                .map(|step| (f64::from(step), f64::from(descend(&mut line, &x, &y, rate))))
                .collect();
            chart = chart.line(format!("rate {rate}"), &losses);
        }
        show!(chart);
    }

    // %% [markdown]
    // ## Expected numbers
    //
    // - one step from the line 0 x + 0 at rate 0.1 gives the slope 1 and the offset 0.6;
    // - on 300 paragraphs the loss starts at 21.6 and is 0.09 after six steps; the line of 60 steps
    //   has 17.2 words per 100 characters and an offset of 5.3, the best line 20.1 and -1.9;
    // - at a learning rate of 0.25 the loss grows beyond 1e20 within 30 steps;
    // - the cells compute for under a second; the rest is compiling.
    //
    // ## On real text
    //
    // `cloze::text::Paragraphs` reads files, folders and `.gz` in place of
    // `embedded::paragraphs()`. To see a line cell by cell in the terminal: `cargo run -p
    // cloze-kernel -- repl`, then `:lesson 0` and `:next`.
    //
    // ## Open questions
    //
    // 1. The learning rate was chosen by hand. What does the best rate depend on? Count characters
    //    singly, not in hundreds, and find a rate that still works.
    // 2. A size known to the compiler costs nothing and catches errors; a `usize` takes any data.
    //    Which sizes of a BERT would you fix in types if you had to serve ten sizes of it with one
    //    program?
    //
    // The crate's source of this part: `src/prelude.rs` says what `use cloze::prelude::*` brings,
    // and `src/model/layers.rs` is where such tensors become BERT. Next: [lesson
    // 01](01_tokens.rs), in which text becomes numbers.

    // %% [end]
    cloze::lessons::finish("00_orientation")
}
