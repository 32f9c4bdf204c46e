// ---
// title = "110 million parameters, and one wrong gradient"
// summary = "Count the 110M and 340M parameters of BERT, check gradients with two calls of a function, find the wrong one in a real library, and write it correctly."
// track = "systems"
// minutes = 57
// seconds = 20
// needs = ["06"]
//
// [[exercise]]
// id = "23.1"
// key = "count"
// was = "04.5"
// title = "Count the parameters"
// hints = [
//     "A linear layer from n to m has n · m weights and m biases; a LayerNorm of width n has n scales and n shifts; a table of r rows has r · n numbers.",
//     "Embeddings: (vocabulary + positions + 2 segments) · H, and a LayerNorm. Pooler: one linear layer from H to H.",
//     "One layer: four linear layers from H to H (query, key, value, output), one from H to I, one from I to H, and two LayerNorms.",
// ]
//
// [[exercise]]
// id = "23.2"
// key = "slope_by_difference"
// was = "04.1"
// title = "The slope of a function by two calls"
// hints = [
//     "The slope at x is how much f grows per step: take a small step h to the right, see how much f has grown, and divide by h.",
//     "Step to both sides: (f(x + h) - f(x - h)) / (2h). The errors of the two halves cancel, so that what is left is proportional to h² instead of h.",
//     "h = 1e-5 is good for f64: so small that h² does not matter, and large enough for the difference to keep ten digits.",
// ]
//
// [[exercise]]
// id = "23.3"
// key = "gelu_and_slope"
// was = "04.2"
// title = "GELU and its slope"
// hints = [
//     "The value is x · Φ(x), with `share_below(x)` for Φ(x). You need Φ(x) twice: give it a name.",
//     "The slope is Φ(x) + x · φ(x). Compute φ(x) first and give it the name `density`.",
//     "φ(x) is `(-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 23 · 110 million parameters, and one wrong gradient
    //
    // Lesson 06 built BERT's encoder. Two questions about it remain. Where are its 110 million
    // parameters? You write a function that counts them, for any size. And how do you know that the
    // gradient of each parameter is right? Training trusts every gradient, and a wrong one raises no
    // error. You write the test that exposes it, find a wrong gradient in the library on which this
    // course is built, and write the right one.
    //
    // *About 57 minutes; every cell takes a few seconds at most. You need lesson 06.*

    // %%
    use cloze::lessons::largest_gap;
    use cloze::model::{Part, Real, elementwise};
    use cloze::prelude::*;

    // %% [markdown]
    // ## Part 1: the count
    //
    // The paper gives two sizes: BERT-base with 12 layers, $H = 768$, 12 heads, "110M parameters",
    // and BERT-large with 24 layers, $H = 1024$, 16 heads, "340M" ([Devlin et al.
    // 2019](https://arxiv.org/abs/1810.04805), section 3). Both have feed-forward blocks of the inner
    // width $I = 4H$, 512 positions, and a vocabulary of 30,522 pieces. Every parameter belongs to one of these modules:
    //
    // | where | modules |
    // |---|---|
    // | embeddings | the tables of words, positions and segments, with $H$ numbers a row; a LayerNorm |
    // | each layer, attention | four linear layers from $H$ to $H$ (query, key, value, output); a LayerNorm |
    // | each layer, feed-forward | a linear layer from $H$ to $I$ and one from $I$ to $H$; a LayerNorm |
    // | pooler | a linear layer from $H$ to $H$ over `[CLS]` |
    //
    // For example, the layer that makes BERT-base's queries has $768 \cdot 768$ weights and 768
    // biases: 590,592 parameters. A LayerNorm has a scale and a shift for each of its $H$ numbers.
    //
    // **Exercise 23.1.** Count the parameters of all these modules. There are always two segments.
    // The number of heads is not among the arguments. Why is it not needed?

    // %%
    fn count(
        layers: usize,
        hidden: usize,
        intermediate: usize,
        vocabulary: usize,
        positions: usize,
    ) -> usize {
        // BEGIN SOLUTION
        cloze::solution!("23.1");
        let linear = |from: usize, to: usize| from * to + to;
        let norm = 2 * hidden;
        let embeddings = (vocabulary + positions + 2) * hidden + norm;
        let attention = 4 * linear(hidden, hidden);
        let feed_forward = linear(hidden, intermediate) + linear(intermediate, hidden);
        let layer = attention + feed_forward + 2 * norm;
        embeddings + layers * layer + linear(hidden, hidden)
        // END SOLUTION
    }

    // %%
    /// The parameters of embeddings, layers and pooler in the crate's declaration.
    fn declared(size: Size) -> usize {
        Layout::new(&size.config(30_522), &[Part::Encoder, Part::Pooler]).total()
    }

    // %%
    check!("23.1", |judge| {
        let (l, h, i, v, p) = (12, 768, 3072, 30_522, 512);
        let yours = count(l, h, i, v, p) as i64;
        let right = declared(Size::Base) as i64;
        // What is often forgotten, by its size.
        let slips = [
            (h * h + h, "the pooler"),
            (h * h, "the pooler's weights"),
            (
                2 * h,
                "the LayerNorm of the embeddings, or else the two rows of the segments",
            ),
            (2 * h * (2 * l + 1), "every LayerNorm"),
            (
                4 * h * l,
                "the two LayerNorms of each layer, or else the biases of attention",
            ),
            (2 * h * l, "one of the two LayerNorms of each layer"),
            (
                2 * h * (l + 1),
                "one LayerNorm of each layer and that of the embeddings",
            ),
            (
                4 * h,
                "the LayerNorm of the embeddings and the two rows of the segments",
            ),
            (
                h * (2 * l + 1),
                "the shifts or the scales of the LayerNorms",
            ),
            (l * (5 * h + i), "the biases of the linear layers"),
            (l * (5 * h + i) + h, "the biases of the linear layers"),
            (
                l * (5 * h + i) + 2 * h * (2 * l + 1),
                "the biases of the linear layers and every LayerNorm",
            ),
            (
                l * (5 * h + i) + h + 2 * h * (2 * l + 1),
                "the biases of the linear layers and every LayerNorm",
            ),
            (l * (h + i), "the biases of the feed-forward block"),
            (
                l * (i - h),
                "biases: a linear layer has one for each output, so the wide one of each layer has I of them",
            ),
            (
                l * (h * i + h),
                "the second linear layer of each feed-forward block",
            ),
            (l * (h * h + h), "one of attention's four linear layers"),
            (p * h, "the positions"),
        ];
        for (size, what) in slips {
            judge.holds(
                &format!("BERT-base has {right} parameters; yours is {yours}"),
                right - yours != size as i64,
                &format!("The {size} that are missing are {what}."),
            );
        }
        judge.holds(
            &format!("BERT-base has {right} parameters; yours is {yours}"),
            yours <= right,
            &format!(
                "You count {} too many. No parameter exists once per head: the heads share the width. \
                 And there is only one pooler, not one in every layer.",
                yours - right
            ),
        );
        judge.equal(
            "count for BERT-base",
            yours,
            right,
            "This is the sum over all parameters that the crate declares.",
        );
        for size in Size::ALL {
            let (layers, hidden, _, intermediate) = size.dimensions();
            judge.equal(
                &format!("count for {}", size.name()),
                count(layers, hidden, intermediate, 30_522, 512),
                declared(size),
                "Does your formula still contain a number of BERT-base?",
            );
        }
    });

    // %%
    println!(
        "{:>8} {:>7} {:>6} {:>6} {:>14}",
        "size", "layers", "width", "heads", "parameters"
    );
    for size in Size::ALL {
        let (layers, hidden, heads, _) = size.dimensions();
        println!(
            "{:>8} {layers:>7} {hidden:>6} {heads:>6} {:>14}",
            size.name(),
            declared(size)
        );
    }

    // %% [markdown]
    // 109,482,240 and 335,141,888, which the paper rounds to 110M and 340M. The number of heads does
    // not occur in the formula, because the heads *share* the width.
    //
    // In f32 a parameter takes 4 bytes, so BERT-base is a file of 438 MB. Training needs four such
    // arrays: the parameters, their gradients, and the two means that AdamW keeps for each of them.
    // For BERT-base they take 1.75 GB, before the first activation is stored.
    //
    // Which part holds how many parameters? The crate declares each parameter under its name in
    // Hugging Face's files:

    // %%
    let base: std::sync::Arc<Layout> =
        Layout::new(&Size::Base.config(30_522), &[Part::Encoder, Part::Pooler]);
    let groups: [(&str, &str); 6] = [
        ("word embeddings", "word_embeddings"),
        ("positions and segments", "_embeddings"),
        ("LayerNorms", "LayerNorm"),
        ("attention", "attention"),
        ("feed-forward", "encoder"),
        ("pooler", "pooler"),
    ];
    let mut counts: [usize; 6] = [0; 6];
    for parameter in base.parameters() {
        let group = groups
            .iter()
            .position(|(_, part)| parameter.name.contains(part));
        counts[group.ok_or("a parameter of no group")?] += parameter.len();
    }

    // %%
    show!(
        BarChart::new("Where BERT-base keeps its parameters")
            .unit("million")
            .bars(
                groups
                    .iter()
                    .zip(counts)
                    .map(|(group, n)| (group.0, n as f64 / 1e6))
            )
    );

    // %% [markdown]
    // Half of BERT-base is feed-forward blocks, a quarter is attention, and more than a fifth is the
    // table of words. Each of these numbers is changed in every training step, by a gradient that
    // somebody's code has computed.

    // %% [markdown]
    // ## Part 2: is the gradient right?
    //
    // A wrong *value* usually shows: the loss does not fall, or the numbers differ from a published
    // model's. A wrong *gradient* hides. As long as it points more or less downhill, the loss falls,
    // and the model only learns worse than it could. No shape is wrong, and no error is raised.
    //
    // But a gradient can be tested without knowing how it is computed. It is a slope, and a slope can
    // be measured: step a little to both sides, and see how much the function has changed. With a
    // small step $h$,
    //
    // $$ f'(x) \approx \frac{f(x + h) - f(x - h)}{2h} . $$
    //
    // This is a **numerical gradient check**. It uses only values of $f$, so a mistake in the formula
    // of the gradient can't creep into it. Take $x^2$ at $x = 3$ with $h = 0.1$: $(9.61 - 8.41) / 0.2
    // = 6$, and the slope of $x^2$ is $2x = 6$. With a step to one side only it would be $(9.61 - 9) /
    // 0.1 = 6.1$.
    //
    // **Exercise 23.2.** Write it. Choose $h$ yourself, so that the slope of $\sin$ is right to six
    // digits.

    // %%
    fn slope_by_difference(f: &dyn Fn(f64) -> f64, x: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("23.2");
        let h = 1e-5;
        (f(x + h) - f(x - h)) / (2.0 * h)
        // END SOLUTION
    }

    // %%
    check!("23.2", |judge| {
        // Where the function is called.
        let called = std::cell::RefCell::new(Vec::new());
        let slope = slope_by_difference(
            &|x| {
                called.borrow_mut().push(x);
                x * x
            },
            3.0,
        );
        let called = called.into_inner();
        judge.holds(
            "3 + h and 3 are different numbers",
            called.is_empty() || called.iter().any(|&x| x != 3.0),
            "Your h is so small that 3 + h is rounded to 3. An f64 has 16 digits.",
        );
        judge.holds(
            "the function is called on both sides of 3",
            !called.contains(&3.0),
            "You called it at 3 itself, so you step to one side only. Then the error is proportional to \
             h. With a step to both sides it is proportional to h².",
        );
        for (slip, said) in [
            (12.0, "You divided by h, but the two points are 2h apart."),
            (
                -6.0,
                "The value on the right comes first: f(x + h) - f(x - h).",
            ),
            (
                3.0,
                "That is half of it. The two points are 2h apart: divide by that, once.",
            ),
            (
                0.0,
                "In Rust `a / 2.0 * h` is (a / 2) · h: put the denominator in brackets, `(2.0 * h)`.",
            ),
        ] {
            judge.holds(
                &format!("the slope of x² at 3 is 6, yours is {slope:.4}"),
                (slope - slip).abs() > 0.1,
                said,
            );
        }
        judge.holds(
            &format!("the slope of x² at 3 is 6, yours is {slope}"),
            slope.abs() < 1e3,
            "Only the second value was divided: put the difference in brackets, `(f(x + h) - f(x - h))`.",
        );
        judge.close(
            "the slope of x² at 3",
            slope,
            6.0,
            1e-6,
            "For x² the formula is exact, whatever h is. An error comes from rounding: h is too small.",
        );
        judge.close(
            "the slope of sin at 2",
            slope_by_difference(&f64::sin, 2.0),
            2f64.cos(),
            1e-6,
            "The slope of sin is cos. The error of the formula is about h² / 6 times that: is your h too \
             large?",
        );
        judge.close(
            "the slope of 1 / x at 1/4",
            slope_by_difference(&|x| 1.0 / x, 0.25),
            -16.0,
            1e-5,
            "The slope of 1 / x is -1 / x². Here the function bends more, so h must be smaller.",
        );
    });

    // %% [markdown]
    // How small should $h$ be? The formula's own error falls with $h^2$. But the smaller $h$, the more
    // the two values agree, and the fewer digits their difference keeps. The error of the slope of
    // $\sin$ at 1, in 64-bit and in 32-bit numbers:

    // %%
    println!("   h     f64      f32");
    for exponent in 1..=9 {
        let h = 10f64.powi(-exponent);
        let wide = ((1.0 + h).sin() - (1.0 - h).sin()) / (2.0 * h);
        let h = h as f32;
        let narrow = ((1.0 + h).sin() - (1.0 - h).sin()) / (2.0 * h);
        let error = |slope: f64| (slope - 1f64.cos()).abs();
        println!("{h:.0e}  {:.0e}  {:.0e}", error(wide), error(narrow.into()));
    }

    // %% [markdown]
    // With 64 bits there are eleven good digits at the best $h$; with 32 bits about five, and from
    // $10^{-8}$ on the slope is 0, because $1 + h$ is rounded to 1. So gradients are checked in f64.

    // %% [markdown]
    // ### The suspects
    //
    // dfdx supplies each operation together with its gradient. Take seven operations that a BERT
    // could use. `fast_gelu` is an approximation of GELU, `accurate_gelu` is dfdx's exact one, and
    // `gelu` is the crate's. Compute the slopes of each both ways, by the tape of lesson 01 and by
    // your function, at 161 points between -4 and 4. Then look at the largest gap.

    // %%
    /// Numbers with a tape that records what is computed from them.
    type Recorded = Tensor<(usize,), f64, Cpu, OwnedTape<f64, Cpu>>;

    type Operation = fn(Recorded) -> Recorded;

    const SUSPECTS: [(&str, Operation); 7] = [
        ("tanh", |x| x.tanh()),
        ("sigmoid", |x| x.sigmoid()),
        ("exp", |x| x.exp()),
        ("sin", |x| x.sin()),
        ("fast_gelu", |x| x.fast_gelu()),
        ("accurate_gelu", |x| x.accurate_gelu()),
        ("cloze's gelu", gelu),
    ];

    // %%
    /// Values of an operation at some points, and its slopes there by the tape.
    fn by_tape(operation: Operation, points: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let x = Cpu::default().tensor_from_vec(points.to_vec(), (points.len(),));
        let y = operation(x.leaky_trace());
        let values = y.as_vec();
        let gradients = y.sum::<Rank0, Axis<0>>().backward();
        (values, gradients.get(&x).as_vec())
    }

    /// The slope of an operation at one point: by the tape, and by your differences.
    fn two_slopes(operation: Operation, x: f64) -> (f64, f64) {
        let value = |x: f64| by_tape(operation, &[x]).0[0];
        (
            by_tape(operation, &[x]).1[0],
            slope_by_difference(&value, x),
        )
    }

    // %%
    let points: Vec<f64> = (-80..=80).map(|i| f64::from(i) / 20.0).collect();
    if solved!("23.2") {
        let mut chart = BarChart::new("Largest gap between the tape's slope and yours");
        for (name, operation) in SUSPECTS {
            let slopes = points.iter().map(|&x| two_slopes(operation, x));
            let largest = slopes.map(|(tape, yours)| (tape - yours).abs());
            let largest = largest.fold(0.0, f64::max);
            println!("{name:>14}: {largest:.1e}");
            chart = chart.bar(name, largest);
        }
        show!(chart);
    }

    // %% [markdown]
    // `accurate_gelu` is wrong by a tenth, which is no rounding error. Its *values* are right. Where
    // is its slope wrong?

    // %%
    let accurate: Operation = |x| x.accurate_gelu();
    if solved!("23.2") {
        let (mut tape, mut yours) = (Vec::new(), Vec::new());
        for &x in &points {
            let (of_tape, of_yours) = two_slopes(accurate, x);
            tape.push((x, of_tape));
            yours.push((x, of_yours));
        }
        show!(
            LineChart::new("The slope of GELU")
                .axes("x", "slope")
                .line("dfdx's accurate_gelu, by its tape", &tape)
                .line("by differences", &yours)
        );
        let (of_tape, of_yours) = two_slopes(accurate, 1.0);
        println!("at x = 1 the tape says {of_tape:.4}, the difference {of_yours:.4}");
    }

    // %% [markdown]
    // ### Would you have noticed?
    //
    // Train with both. The smallest model there is, $\operatorname{GELU}(wx + b)$ with two
    // parameters, learns the function $\max(x, -1)$, by gradient descent with the learning rate 0.1.
    // The two runs differ only in the gradient.

    // %%
    /// Fits an operation of w x + b to max(x, -1); returns the mean squared error of each step.
    fn fit(operation: Operation, points: &[f64]) -> Vec<(f64, f64)> {
        let (mut w, mut b, mut losses) = (0.5, 0.5, Vec::new());
        let share = 1.0 / points.len() as f64;
        for step in 0..60 {
            let inputs: Vec<f64> = points.iter().map(|x| w * x + b).collect();
            let (values, slopes) = by_tape(operation, &inputs);
            let mut loss = 0.0;
            for ((x, value), slope) in points.iter().zip(values).zip(slopes) {
                let error = value - x.max(-1.0);
                loss += share * error * error;
                w -= 0.1 * share * 2.0 * error * slope * x;
                b -= 0.1 * share * 2.0 * error * slope;
            }
            losses.push((f64::from(step), loss));
        }
        losses
    }

    let wrong: Vec<(f64, f64)> = fit(accurate, &points);
    let right: Vec<(f64, f64)> = fit(gelu, &points);
    println!("loss at the end: {:.4} and {:.4}", wrong[59].1, right[59].1);

    // %%
    show!(
        LineChart::new("From step 5 on: a wrong gradient, and the right one")
            .axes("step", "mean squared error")
            .line("accurate_gelu", &wrong[5..])
            .line("cloze's gelu", &right[5..])
    );

    // %% [markdown]
    // Both losses fall, and both end on a plateau. The wrong one is higher by 1.6 %. If you had only
    // seen that run, you would have believed that this is as well as the model can do.
    //
    // Didn't dfdx test its gradient? It did. [Its
    // test](https://docs.rs/crate/dfdx/0.13.0/source/src/tensor_ops/accurate_gelu/mod.rs) takes the
    // gradient of the mean of $e^{\operatorname{GELU}(x)}$ over five points, and expects 0.5490418 at
    // $x = 1$. That is $e^{0.8413} \cdot 1.1835 / 5$, with the wrong slope; the right one gives 0.5026.
    // A test against recorded numbers only says that nothing has changed. A test against differences
    // says whether the gradient is right.

    // %% [markdown]
    // ### The motive
    //
    // GELU is $x\,\Phi(x)$, where $\Phi(x)$ is the share of a normal distribution below $x$ (lesson
    // 06). To see what dfdx did, derive its slope. The **product rule** says: the slope of a product
    // of two functions is the slope of the first times the second, plus the first times the slope of
    // the second. The slope of $x$ is 1. The slope of $\Phi$ is the height of the bell curve at $x$,
    // called $\varphi(x)$: where the curve is high, the share grows fast. So
    //
    // $$ \operatorname{GELU}'(x) = 1 \cdot \Phi(x) + x \cdot \varphi(x), \qquad
    //    \varphi(x) = \frac{e^{-x^2/2}}{\sqrt{2\pi}} . $$
    //
    // At $x = 1$: $\Phi(1) = 0.8413$ and $\varphi(1) = 0.6065 / 2.5066 = 0.2420$, together 1.0833, which
    // is what the difference says. [The source of dfdx
    // 0.13](https://docs.rs/crate/dfdx/0.13.0/source/src/tensor_ops/accurate_gelu/cpu_kernel.rs) has
    // $\sqrt\pi$ in place of $\sqrt{2\pi}$: $0.6065 / 1.7725 = 0.3422$, and $0.8413 + 0.3422 = 1.1835$.
    //
    // How could that happen? No simple formula gives $\Phi$. Libraries have the related *error
    // function* $\operatorname{erf}$, and $\Phi(x) = \big(1 + \operatorname{erf}(x / \sqrt 2)\big) / 2$.
    // The slope of $\operatorname{erf}(u)$ is $2 e^{-u^2} / \sqrt\pi$. But here $u = x / \sqrt 2$, and by
    // the chain rule the slope of $u$, $1 / \sqrt 2$, is a factor too. This factor is missing. Case
    // closed.
    //
    // **Exercise 23.3.** Return the value and the slope of GELU at $x$. `share_below(x)` is $\Phi(x)$.
    // In Rust $e^a$ is `a.exp()`, $\sqrt a$ is `a.sqrt()`, and $\pi$ is `std::f64::consts::PI`.

    // %%
    /// Φ(x), the share of a normal distribution below x.
    fn share_below(x: f64) -> f64 {
        (1.0 + Real::erf(x / 2f64.sqrt())) / 2.0
    }

    // %%
    fn gelu_and_slope(x: f64) -> (f64, f64) {
        // BEGIN SOLUTION
        cloze::solution!("23.3");
        let share = share_below(x);
        let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        (x * share, share + x * density)
        // END SOLUTION
    }

    // %% [markdown]
    // As an operation on tensors it has value and gradient in one, which is how the crate's own GELU is
    // written:

    // %%
    fn my_gelu(x: Recorded) -> Recorded {
        elementwise(x, |_, x| gelu_and_slope(x))
    }

    // %%
    check!("23.3", |judge| {
        let (value, slope) = gelu_and_slope(1.0);
        judge.close(
            "the value of GELU at 1",
            value,
            0.841_344_746,
            1e-7,
            "84.13 % of a normal distribution lie below 1, and the value is 1 times that.",
        );
        judge.close(
            "the value of GELU at -1",
            gelu_and_slope(-1.0).0,
            -0.158_655_254,
            1e-7,
            "15.87 % lie below -1. 0.1587 without the minus is Φ(x); GELU is x · Φ(x).",
        );
        let slips = [
            (
                1.1835,
                "1.1835 is dfdx's very mistake: φ has the factor 1 / √(2π), not 1 / √π.",
            ),
            (
                0.8413,
                "That is Φ alone. By the product rule x · φ(x) is added to it.",
            ),
            (
                0.2420,
                "That is x · φ(x) alone. By the product rule Φ(x) is added to it.",
            ),
            (
                0.9779,
                "The root is over 2π as a whole: `(2.0 * PI).sqrt()`.",
            ),
            (
                2.1887,
                "Divide by the whole root: put 2π in brackets, `(2.0 * PI).sqrt()`.",
            ),
            (0.9379, "φ has √(2π) below the line, not 2π."),
            (0.9881, "The exponent is -x²/2: you left out the half."),
            (1.4991, "The exponent is -x²/2, with a minus."),
        ];
        for (slip, said) in slips {
            judge.holds(
                &format!("the slope at 1 is 1.0833, yours is {slope:.4}"),
                (slope - slip).abs() > 1e-3,
                said,
            );
        }
        for &x in &[-3.0, -1.0, -0.3, 0.0, 0.5, 1.0, 2.0] {
            let difference = (gelu_and_slope(x + 1e-5).0 - gelu_and_slope(x - 1e-5).0) / 2e-5;
            judge.close(
                &format!("your slope at {x}"),
                gelu_and_slope(x).1,
                difference,
                1e-6,
                "This is the difference of your own values, over 2h. The slope is Φ(x) + x · φ(x): did you \
                 multiply φ by x, and is its exponent -x²/2?",
            );
        }
        let (values, slopes) = by_tape(my_gelu, &points);
        let (crate_values, crate_slopes) = by_tape(gelu, &points);
        judge.close(
            "the largest gap to the values of the crate's gelu",
            largest_gap(&values, &crate_values),
            0.0,
            1e-12,
            "As an operation on tensors, at 161 points.",
        );
        judge.close(
            "the largest gap to the gradients of the crate's gelu",
            largest_gap(&slopes, &crate_slopes),
            0.0,
            1e-12,
            "By the tape, at 161 points. If the gap is about 1e-11, yours is a slope by difference: use \
             the formula.",
        );
    });

    // %% [markdown]
    // ## What goes wrong
    //
    // A check of gradients can mislead in both directions. Two examples with dfdx, each as the slope
    // by the tape and the slope by your differences:

    // %%
    if solved!("23.2") {
        println!("accurate_gelu at 0: {:?}", two_slopes(accurate, 0.0));
        println!("relu at 0:          {:?}", two_slopes(|x| x.relu(), 0.0));
    }

    // %% [markdown]
    // - **A wrong gradient passes.** At 0 the wrong term $x\,\varphi(x)$ is 0 whatever the factor. Check
    //   at many points, and not at special ones such as 0 or 1.
    // - **A right gradient fails.** $\max(x, 0)$ has a kink at 0, and the difference gives the mean of
    //   the two slopes. dfdx's 0 is as good a choice as any. Leave such points out.
    // - **Noise.** With dropout on, the two calls of $f$ draw different random numbers, and the
    //   difference, divided by a tiny $2h$, is enormous. Fix the seed, or turn dropout off.
    // - **Another function.** GELU has an approximation by tanh, here `fast_gelu`. Its gradient passes
    //   the check, because it is the right gradient of the approximation. In a model that was
    //   trained with the exact GELU all results are slightly wrong.

    // %% [markdown]
    // ## Expected numbers
    //
    // - 109,482,240 parameters for base and 335,141,888 for large;
    // - in BERT-base 56.7 million of them are in feed-forward blocks, 28.3 million in attention, 23.4
    //   million in the table of words;
    // - dfdx's `accurate_gelu` has the slope 1.1835 instead of 1.0833 at $x = 1$; the gradients of all
    //   other suspects agree with the differences to 2e-9 or better;
    // - after 60 steps the loss is 0.3656 with the wrong gradient and 0.3599 with the right one;
    // - every cell computes for less than a second; the rest is compiling.

    // %% [markdown]
    // ## On real text
    //
    // `cloze bench infer --size base --batch 1 --seq 128 --steps 3` builds a BERT-base with random
    // weights and times its forward pass. `--size tiny` does the same with the smallest model of the
    // table. Is the time proportional to the number of parameters? (The rows of the word table are
    // only looked up, not multiplied.)

    // %% [markdown]
    // ## Open questions
    //
    // 1. The check needs two values of the function for each number. For the loss of BERT-base that
    //    would be 219 million forward passes. How could you test a whole model's gradient with a few?
    //    (Step along a random direction. What does the gradient predict?)
    // 2. Twice as wide or twice as deep: which adds more parameters, and which takes longer when a
    //    processor can do many multiplications at once but layers must wait for each other?
    //
    // The crate's source of this part: the declaration of the parameters in `src/model/parameters.rs`,
    // `gelu` and `elementwise` in `src/model/ops.rs`. `tests/parity/finite_differences.rs` checks the
    // gradients of the whole model as you did here. Next: [lesson 24](24_gpu_benchmarks.rs), which
    // measures how fast such a model can be trained.

    // %% [end]
    cloze::lessons::finish("23_parameters")
}
