// ---
// title = "The encoder: layers that can be stacked"
// summary = "Check gradients by differences and catch a library's error, write GELU, the feed-forward block and a whole layer, stack layers to a BERT, and count 110M and 340M parameters."
// minutes = 50
// seconds = 35
// needs = ["03"]
//
// [[exercise]]
// id = "04.1"
// title = "The slope of a function by two calls"
// hints = [
//     "The slope at x is how much f changes per step: go a small step h to the right and see how much f has grown.",
//     "Go to both sides: (f(x + h) - f(x - h)) / (2h). The errors of the two halves cancel, which makes it exact to h² in place of h.",
//     "h = 1e-5 does for f64: small enough for h² to vanish, large enough for the difference to keep ten digits.",
// ]
//
// [[exercise]]
// id = "04.2"
// title = "GELU and its slope"
// hints = [
//     "Φ(x), the share of a normal distribution below x, is (1 + erf(x / √2)) / 2. `Real::erf(x / 2f64.sqrt())` gives the erf.",
//     "The slope of x · Φ(x) by the product rule is Φ(x) + x · φ(x), where φ is the slope of Φ.",
//     "φ(x) = exp(-x²/2) / √(2π), the height of the normal distribution: `(-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()`.",
// ]
//
// [[exercise]]
// id = "04.3"
// title = "The feed-forward block"
// hints = [
//     "Two linear layers with a GELU between them: wide, bend, back.",
//     "`wide.forward(x)` is (B, S, 512); `gelu(…)` keeps the shape; `back.forward(…)` makes (B, S, 128) of it.",
// ]
//
// [[exercise]]
// id = "04.4"
// title = "One encoder layer"
// hints = [
//     "Twice the same pattern: compute something from x, add x to it, normalise the sum. First with attention and `attention_norm`, then with the feed-forward block and `output_norm`.",
//     "`layer.attention.forward(x.clone(), 0, pass)` is lesson 03; keep `x` for the sum: `layer.attention_norm.forward(attended + x)`.",
//     "The second sum adds what came out of the *first norm*, not the layer's input: give it a name, `between`, and the feed-forward block a clone of it.",
//     "The block is `layer.output.forward(gelu(layer.intermediate.forward(between.clone())))`.",
// ]
//
// [[exercise]]
// id = "04.5"
// title = "Count the parameters"
// hints = [
//     "A linear layer from n to m has n · m weights and m biases; a LayerNorm of width n has n scales and n shifts; a table of r rows has r · n numbers.",
//     "Embeddings: (vocabulary + positions + 2 segments) · H, and a LayerNorm. Pooler: one linear layer from H to H.",
//     "One layer: four linear layers from H to H (query, key, value, output), one from H to I, one from I to H, and two LayerNorms.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 04 · The encoder: layers that can be stacked
    //
    // Attention lets tokens look at each other. Around it BERT builds a *layer*: attention, a small
    // network for each token, and two devices that let 12 or 24 such layers stand on each other and
    // still learn. You write the parts, among them an activation whose gradient you check, which
    // catches a real error in a real library. At the end your layers, stacked, give the same
    // numbers as the crate's fast engine, and you can count BERT's 110 million parameters by hand.
    //
    // *About 50 minutes; every cell answers within a few seconds. You need lesson 03.*

    // %%
    use cloze::lessons::data;
    use cloze::model::weights::Model;
    use cloze::model::{Dropout, Layer, Part, Pass, Real, elementwise, real_rows};
    use cloze::prelude::*;
    use cloze::view::Flow;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // ## Where we are going
    //
    // One encoder layer, from the top to the bottom of the picture. What comes out has the shape of
    // what went in.

    // %%
    show!(
        Flow::new("One encoder layer", "x: (B, S, H)")
            .step("multi-head attention", "lesson 03: (B, S, H)")
            .add(0, "the layer's own input is added")
            .step("LayerNorm", "lesson 02")
            .step("linear, H to I", "(B, S, I), with I = 4 H")
            .step("GELU", "bends")
            .step("linear, I to H", "(B, S, H)")
            .add(3, "what came out of the first norm is added")
            .step("LayerNorm", "(B, S, H), for the next layer")
    );

    // %% [markdown]
    // ## The idea
    //
    // With $x$ the rows of all tokens, and weights as in lesson 00, a row for each output,
    //
    // $$ y = \operatorname{LayerNorm}\big(x + \operatorname{Attention}(x)\big), \qquad
    //    z = \operatorname{LayerNorm}\big(y + \operatorname{GELU}(y W_1^\top + b_1)\, W_2^\top + b_2\big) $$
    //
    // ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), sections 3.1 and 3.3, with GELU in
    // place of ReLU as in [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section A.2).
    // Attention moves information *between* tokens, the feed-forward block works on each token
    // *alone*.
    //
    // ## Step 1: is a gradient right?
    //
    // Training believes every gradient that it is given. A wrong one gives no error and no NaN; the
    // model only learns worse than it could. So whoever writes an operation checks its gradient
    // against the definition:
    //
    // $$ f'(x) \approx \frac{f(x + h) - f(x - h)}{2h} $$
    //
    // **Exercise 04.1.** Write it. It needs nothing but two values of the function.

    // %%
    fn slope_by_difference(f: &dyn Fn(f64) -> f64, x: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("04.1");
        let h = 1e-5;
        (f(x + h) - f(x - h)) / (2.0 * h)
        // END SOLUTION
    }

    // %%
    check!("04.1", |judge| {
        judge.close(
            "the slope of x² at 3",
            slope_by_difference(&|x| x * x, 3.0),
            6.0,
            1e-6,
            "Rise over run. 6.00001: you stepped to one side only; a step to both sides is far nearer. \
             12: the difference over both sides was divided by h, and it is 2h wide. \
             0: h is so small that 3 + h is 3 for a computer.",
        );
        judge.close(
            "the slope of x³ at 1",
            slope_by_difference(&|x| x * x * x, 1.0),
            3.0,
            1e-6,
            "A step to one side only is off by 3h here. Steps to both sides are off by h².",
        );
        judge.close(
            "the slope of sin at 2",
            slope_by_difference(&f64::sin, 2.0),
            2f64.cos(),
            1e-6,
            "The slope of sin is cos.",
        );
    });

    // %% [markdown]
    // ### How small is small?
    //
    // The formula wants a small $h$. A computer does not: the smaller $h$, the more digits cancel
    // in the difference. Here is the error for GELU's slope at 1, with 64-bit and with 32-bit
    // numbers:

    // %%
    /// The crate's GELU of one number.
    fn crate_gelu(x: f64) -> f64 {
        gelu(Cpu::default().tensor([x])).array()[0]
    }

    fn crate_gelu_f32(x: f64) -> f64 {
        f64::from(gelu(Cpu::default().tensor([x as f32])).array()[0])
    }

    /// The error of the difference quotient of `f` at 1, for steps from 1e-1 down.
    fn errors(f: fn(f64) -> f64, exponents: i32) -> Vec<(f64, f64)> {
        let exact = 1.083_315_470_587_686_4;
        (2..=2 * exponents)
            .map(|half| 10f64.powf(-f64::from(half) / 2.0))
            .map(|h| (h, ((f(1.0 + h) - f(1.0 - h)) / (2.0 * h) - exact).abs()))
            .collect()
    }

    show!(
        LineChart::new("Error of a slope by difference, against the step h")
            .axes("h", "error")
            .logarithmic()
            .line("f64", &errors(crate_gelu, 9))
            .line("f32", &errors(crate_gelu_f32, 6))
    );

    // %% [markdown]
    // Two slopes make a valley: to the right the formula's own error, falling as $h^2$; to the left
    // lost digits, growing as $1/h$. In f64 the bottom is between $10^{-6}$ and $10^{-5}$, with eleven
    // digits; in f32 it is between $10^{-3}$ and $10^{-2}$, with five or six at best, and at $10^{-5}$
    // hardly two are left. So gradients are checked in f64.
    //
    // ### Check a library
    //
    // dfdx gives each operation with its gradient. Take seven, compute their slopes both ways at
    // 161 points between -4 and 4, and show the largest gap of each:

    // %%
    /// Numbers with a tape that remembers what was done to them.
    type Taped = Tensor<(usize,), f64, Cpu, OwnedTape<f64, Cpu>>;

    type Operation = fn(Taped) -> Taped;

    const OPERATIONS: [(&str, Operation); 7] = [
        ("tanh", |x| x.tanh()),
        ("sigmoid", |x| x.sigmoid()),
        ("exp", |x| x.exp()),
        ("sin", |x| x.sin()),
        ("fast_gelu", |x| x.fast_gelu()),
        ("accurate_gelu", |x| x.accurate_gelu()),
        ("cloze's gelu", gelu),
    ];

    /// Values of an operation at some points, and its slopes there by the tape.
    fn by_tape(operation: Operation, points: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let x = Cpu::default().tensor_from_vec(points.to_vec(), (points.len(),));
        let y = operation(x.leaky_trace());
        let values = y.as_vec();
        let gradients = y.sum::<Rank0, Axis<0>>().backward();
        (values, gradients.get(&x).as_vec())
    }

    let points: Vec<f64> = (-80..=80).map(|i| f64::from(i) / 20.0).collect();

    // %%
    if solved!("04.1") {
        let mut chart = BarChart::new("Largest gap between the tape's slope and the difference");
        for (name, operation) in OPERATIONS {
            let value = |x: f64| by_tape(operation, &[x]).0[0];
            let (_, slopes) = by_tape(operation, &points);
            let gaps = points
                .iter()
                .zip(slopes)
                .map(|(&x, slope)| (slope - slope_by_difference(&value, x)).abs());
            let (worst, at) =
                gaps.zip(&points).fold(
                    (0.0, 0.0),
                    |most, (gap, &x)| if gap > most.0 { (gap, x) } else { most },
                );
            println!("{name:>14}: largest gap {worst:.1e}, at x = {at}");
            chart = chart.bar(name, worst);
        }
        show!(chart);
    }

    // %% [markdown]
    // `accurate_gelu` is wrong, by a tenth and not by rounding. Its *values* are right: only its
    // gradient is not, so no test of values could find it. See where:

    // %%
    fn difference(x: f64) -> f64 {
        (crate_gelu(x + 1e-5) - crate_gelu(x - 1e-5)) / 2e-5
    }

    fn accurate(x: Taped) -> Taped {
        x.accurate_gelu()
    }

    let wrong: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .zip(by_tape(accurate, &points).1)
        .collect();
    let right: Vec<(f64, f64)> = points.iter().map(|&x| (x, difference(x))).collect();
    show!(
        LineChart::new("The slope of GELU")
            .axes("x", "slope")
            .line("dfdx's accurate_gelu, by its tape", &wrong)
            .line("by differences", &right)
    );
    println!(
        "at x = 1: dfdx says {:.4}, the difference {:.4}",
        by_tape(accurate, &[1.0]).1[0],
        difference(1.0)
    );

    // %% [markdown]
    // By the formulas of the next step the second term of the slope is $x\, e^{-x^2/2} /
    // \sqrt{2\pi}$. dfdx 0.13 computes $x\, e^{-x^2/2} / \sqrt{\pi}$: it took the slope of erf and
    // forgot that $x / \sqrt 2$ stood inside of it. This is why the crate has a GELU of its own.
    // Write it.
    //
    // ## Step 2: GELU
    //
    // Without something that bends between them, two linear layers are one linear layer. ReLU bends
    // at 0, with a corner, and whatever is negative learns nothing. GELU multiplies $x$ by the
    // share of a normal distribution that lies below it ([Hendrycks and Gimpel
    // 2016](https://arxiv.org/abs/1606.08415), section 2):
    //
    // $$ \operatorname{GELU}(x) = x \, \Phi(x), \qquad \Phi(x) = \tfrac{1}{2}\Big(1 + \operatorname{erf}\frac{x}{\sqrt 2}\Big), \qquad
    //    \operatorname{GELU}'(x) = \Phi(x) + x \, \varphi(x), \quad \varphi(x) = \frac{e^{-x^2/2}}{\sqrt{2\pi}} $$
    //
    // (erf, the *error function*, adds up a bell curve: it rises from -1 to 1, and no simpler formula
    // gives it.)
    //
    // **Exercise 04.2.** Give the value and the slope. Rust's `f64` has no erf; the crate has one,
    // `Real::erf(v)`. `2f64.sqrt()` is $\sqrt 2$ and `std::f64::consts::PI` is $\pi$.

    // %%
    fn gelu_and_slope(x: f64) -> (f64, f64) {
        // BEGIN SOLUTION
        cloze::solution!("04.2");
        let share = (1.0 + Real::erf(x / 2f64.sqrt())) / 2.0;
        let height = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        (x * share, share + x * height)
        // END SOLUTION
    }

    // %%
    /// Your GELU as an operation on tensors, with its gradient: what the crate does with its own. (A
    /// function of Rust's runs on the CPU. On a GPU the crate puts it together from dfdx's operations.)
    fn my_gelu(x: Taped) -> Taped {
        elementwise(x, |_, x| gelu_and_slope(x))
    }

    check!("04.2", |judge| {
        let (value, slope) = gelu_and_slope(1.0);
        judge.close(
            "the value of GELU at 1",
            value,
            0.841_344_746,
            1e-7,
            "84.13 % of a normal distribution lie below 1. 0.9214: erf wants x / √2, not x. 0.6827: that \
             is erf alone, and Φ is (1 + erf) / 2. 0.8412: the tanh approximation, which Google's code has today; transformers' BERT and this crate \
             take erf.",
        );
        judge.close(
            "the value of GELU at -1",
            gelu_and_slope(-1.0).0,
            -0.158_655_254,
            1e-7,
            "15.87 % lie below -1. 0.1587 without the minus is Φ(x); GELU is x · Φ(x).",
        );
        judge.holds(
            &format!("the slope at 1 is 1.0833, yours is {slope:.4}"),
            (slope - 1.1835).abs() > 1e-3,
            "1.1835 is dfdx's very mistake: φ has the factor 1 / √(2π).",
        );
        judge.holds(
            &format!("the slope at 1 is 1.0833, yours is {slope:.4}"),
            (slope - 0.8413447).abs() > 1e-3,
            "That is Φ alone. By the product rule x · φ(x) comes to it.",
        );
        for &x in &[-3.0, -1.0, -0.3, 0.0, 0.5, 1.0, 2.0] {
            let difference = (gelu_and_slope(x + 1e-5).0 - gelu_and_slope(x - 1e-5).0) / 2e-5;
            judge.close(
                &format!("your slope at {x}"),
                gelu_and_slope(x).1,
                difference,
                1e-6,
                "This is the difference quotient of your own values. The slope is Φ(x) + x · φ(x): is φ \
                 multiplied by x, and is its exponent -x²/2, with the minus and the half?",
            );
        }
        let (values, slopes) = by_tape(my_gelu, &points);
        let (crate_values, crate_slopes) = by_tape(gelu, &points);
        let apart = |a: &[f64], b: &[f64]| {
            let gaps = a.iter().zip(b).map(|(a, b)| (a - b).abs());
            gaps.fold(0.0, f64::max)
        };
        judge.close(
            "the largest gap to the values of the crate's gelu",
            apart(&values, &crate_values),
            0.0,
            1e-12,
            "As an operation on tensors, at 161 points.",
        );
        judge.close(
            "the largest gap to the gradients of the crate's gelu",
            apart(&slopes, &crate_slopes),
            0.0,
            1e-12,
            "By the tape, at 161 points. If the gap is about 1e-11, yours is a slope by difference: take \
             the formula.",
        );
    });

    // %% [markdown]
    // Three ways to bend. The approximation with tanh, which GPT-2 takes, differs from the exact
    // GELU by less than the width of the line:

    // %%
    /// Points of an operation's curve.
    fn curve(operation: Operation, points: &[f64]) -> Vec<(f64, f64)> {
        points
            .iter()
            .copied()
            .zip(by_tape(operation, points).0)
            .collect()
    }

    show!(
        LineChart::new("Activations")
            .axes("x", "")
            .line("ReLU", &curve(|x| x.relu(), &points))
            .line("GELU", &curve(gelu, &points))
            .line(
                "GELU, tanh approximation",
                &curve(|x| x.fast_gelu(), &points)
            )
    );

    // %% [markdown]
    // ## Step 3: the feed-forward block
    //
    // Each token alone: widened to $I = 4H$ numbers, bent, narrowed to $H$ again. Two thirds of a
    // layer's parameters are in here. One can read it as a memory: each of the $I$ rows of $W_1$ is
    // a pattern to look for, and each column of $W_2$ what to add where the pattern is found ([Geva
    // et al. 2021](https://arxiv.org/abs/2012.14913), section 2).
    //
    // **Exercise 04.3.** Write it, with the crate's function `gelu`. (With dfdx's `accurate_gelu` the
    // check would pass too: it looks at values, and those are right.)

    // %%
    const H: usize = 128;
    const I: usize = 512;
    /// A batch of sentences, padded to the longest: (B, S, H).
    type Batch = Tensor<(usize, usize, Const<H>), f32, Cpu>;
    /// The crate's encoder layer of this size: 2 heads of 64.
    type TinyLayer = Layer<H, 2, 64, I, f32, Cpu>;

    fn feed_forward(
        wide: &Linear<H, I, f32, Cpu>,
        back: &Linear<I, H, f32, Cpu>,
        x: Batch,
    ) -> Batch {
        // BEGIN SOLUTION
        cloze::solution!("04.3");
        back.forward(gelu(wide.forward(x)))
        // END SOLUTION
    }

    // %% [markdown]
    // A trained model gives the parameters, and two sentences of different length the input.

    // %%
    let folder: std::path::PathBuf = data::folder(data::MODEL)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let dev: Cpu = Cpu::default();
    let bert: Bert<H, 2, 64, I, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &dev)?;

    let mut two: Packed = Packed::default();
    for (number, text) in ["The old man opened the door.", "It rained."]
        .iter()
        .enumerate()
    {
        let ids = tokenizer.encode_with_special(text).ids;
        two.push(number as u64, &ids, &vec![0; ids.len()]);
    }

    /// What the crate's modules want to know beside their input: here the padding, and no dropout.
    fn pass<'a>(batch: &'a Packed, config: &'a Config) -> Pass<'a, f32, Cpu> {
        let shape = (batch.sequences(), batch.longest());
        let mut mask: Vec<f32> = vec![-1e9; shape.0 * shape.1];
        for (number, range) in batch.ranges().enumerate() {
            mask[number * shape.1..][..range.len()].fill(0.0);
        }
        Pass {
            batch,
            config,
            dropout: None,
            mask: Some(Cpu::default().tensor_from_vec(mask, shape)),
            future: None,
        }
    }

    let x: Batch = bert
        .embeddings
        .forward::<NoneTape>(&pass(&two, &bert.config));
    show!(x.shape().concrete());

    // %%
    check!("04.3", |judge| {
        let layer = &bert.layers[0];
        let rows = || {
            x.clone()
                .reshape_like(&(x.shape().0 * x.shape().1, Const::<H>))
        };
        let yours = feed_forward(&layer.intermediate, &layer.output, x.clone());
        let straight = layer.output.forward(layer.intermediate.forward(rows()));
        let right = layer
            .output
            .forward(gelu(layer.intermediate.forward(rows())));
        judge.equal(
            "the shape of feed_forward",
            yours.shape().concrete(),
            x.shape().concrete(),
            "(B, S, 128) to (B, S, 512) and back.",
        );
        let yours = yours.reshape_like(right.shape());
        let apart = (yours.clone() - straight).abs().as_vec();
        judge.holds(
            "between the two layers something bends",
            apart.iter().any(|&a| a > 1e-4),
            "Two linear layers without a GELU between them are only one linear layer.",
        );
        judge.close_tensor(
            "feed_forward of the two sentences, a row for each token,",
            &yours,
            &right,
            1e-4,
            "First the wide layer, then GELU, then back, and nothing else: a sum with x comes in step 4. \
             If only the third digit is wrong, yours is the tanh approximation (dfdx's `x.gelu()` and \
             `x.fast_gelu()`): take the crate's function, `gelu(x)`.",
        );
    });

    // %% [markdown]
    // ## Step 4: how to stack
    //
    // Why not stack such blocks as they are? Send a gradient from the top of a deep stack to its
    // bottom and see what is left of it. Three kinds of stack, with fresh random weights: the block
    // alone; $x + \text{block}(x)$, where the input is added to what the block makes of it, which is
    // called a **residual**; and the same with a LayerNorm after it.

    // %%
    /// The length of the gradient that arrives below `depth` blocks of width 64, for one of length 1
    /// sent in at the top.
    fn arriving_gradient(depth: usize, residual: bool, norm: bool) -> f64 {
        let dev = Cpu::seed_from_u64(4);
        let x: Tensor<Rank2<16, 64>, f32, Cpu> = dev.sample_normal();
        let sent: Tensor<Rank2<16, 64>, f32, Cpu> = dev.sample_normal();
        let mut h = x.leaky_trace();
        for _ in 0..depth {
            let weights: Tensor<Rank2<64, 64>, f32, Cpu> = dev.sample_normal();
            // The same numbers on a tape of their own: the way around the block.
            let around = h.retaped::<OwnedTape<f32, Cpu>>();
            let block = gelu(h.matmul(weights / 8.0));
            h = if residual { block + around } else { block };
            if norm {
                h = h.normalize::<Axis<1>>(1e-12);
            }
        }
        let length = |t: &[f32]| t.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let arrived = (h * sent.clone()).sum::<Rank0, _>().backward();
        length(&arrived.get(&x).as_vec()) / length(&sent.as_vec())
    }

    fn by_depth(residual: bool, norm: bool) -> Vec<(f64, f64)> {
        [1, 2, 3, 4, 6, 8, 12, 16, 24]
            .map(|depth| (depth as f64, arriving_gradient(depth, residual, norm)))
            .to_vec()
    }

    show!(
        LineChart::new("What is left of a gradient below a stack of blocks")
            .axes("blocks", "length that arrives")
            .logarithmic()
            .line("blocks alone", &by_depth(false, false))
            .line("with residuals", &by_depth(true, false))
            .line("with residuals and LayerNorm", &by_depth(true, true))
    );
    println!(
        "below 24 blocks arrive {:.0e} of it, {:.0} with residuals, {:.2} with LayerNorm too",
        arriving_gradient(24, false, false),
        arriving_gradient(24, true, false),
        arriving_gradient(24, true, true)
    );

    // %% [markdown]
    // Alone, each block passes on a fraction, and fractions multiply: below 24 of them next to
    // nothing arrives. The sum $x + \text{block}(x)$ has a way around every block, on which the
    // gradient arrives whole ([He et al. 2015](https://arxiv.org/abs/1512.03385), section 3.1). But
    // what each block adds piles up, forward and backward; LayerNorm brings it back to one size
    // after each step.
    //
    // BERT normalises after the sum ("post-norm"), as the first Transformer did. Later models
    // normalise what goes into the block and leave the way around untouched ("pre-norm"), which
    // trains more steadily when models are deep ([Xiong et al.
    // 2020](https://arxiv.org/abs/2002.04745)).
    //
    // **Exercise 04.4.** The whole layer. `layer` is the crate's: take its parts, `attention`
    // (whose `forward(x, 0, pass)` is what lesson 03 ended with; 0 is the layer's number),
    // `attention_norm`, `intermediate`, `output` and `output_norm`. The last four have a `forward(x)`;
    // `intermediate` and `output` are the two layers of exercise 3, and the GELU between them is yours.

    // %%
    fn encoder_layer(layer: &TinyLayer, x: Batch, pass: &Pass<'_, f32, Cpu>) -> Batch {
        // BEGIN SOLUTION
        cloze::solution!("04.4");
        let attended = layer.attention.forward::<NoneTape>(x.clone(), 0, pass);
        let between = layer.attention_norm.forward(attended + x);
        let inner = layer.intermediate.forward(between.clone());
        let inner = layer.output.forward(gelu(inner));
        layer.output_norm.forward(inner + between)
        // END SOLUTION
    }

    // %%
    check!("04.4", |judge| {
        let (layer, pass) = (&bert.layers[0], pass(&two, &bert.config));
        let rows = |t: Batch| real_rows(t, &two);
        let block =
            |x: Batch| -> Batch { layer.output.forward(gelu(layer.intermediate.forward(x))) };
        let attended = || layer.attention.forward::<NoneTape>(x.clone(), 0, &pass);
        let between = || layer.attention_norm.forward(attended() + x.clone());
        let yours = rows(encoder_layer(layer, x.clone(), &pass));
        let is = |other: Batch| {
            let apart = (yours.clone() - rows(other)).abs().as_vec();
            apart.iter().all(|&a| a < 1e-4)
        };
        let bare = || attended() + x.clone();
        let alone = || layer.attention_norm.forward(attended());
        let early = || alone() + x.clone();
        let before = || {
            let normed = layer.attention_norm.forward(x.clone());
            layer.attention.forward::<NoneTape>(normed, 0, &pass) + x.clone()
        };
        let slips: [(Batch, &str); 11] = [
            (
                layer
                    .output_norm
                    .forward(block(layer.attention_norm.forward(attended()))),
                "Both sums are missing: add to each part's result what went into the part.",
            ),
            (
                layer.output_norm.forward(block(between())),
                "The second sum is missing: add what went into the feed-forward block to what came out.",
            ),
            (
                layer.output_norm.forward(block(between()) + x.clone()),
                "Your second sum adds the layer's input. It should add what the first norm gave.",
            ),
            (
                block(between()) + between(),
                "The last LayerNorm is missing.",
            ),
            (
                layer
                    .output_norm
                    .forward(block(between()) + attended() + x.clone()),
                "Your second sum adds the first sum before its norm; it should add it after.",
            ),
            (
                layer.output_norm.forward(
                    layer.output.forward(layer.intermediate.forward(between())) + between(),
                ),
                "The GELU between the two linear layers of the feed-forward block is missing.",
            ),
            (
                layer.output_norm.forward(block(alone()) + alone()),
                "The first sum is missing: add the layer's input to what attention gave.",
            ),
            (
                layer.output_norm.forward(block(bare()) + bare()),
                "The first LayerNorm, `attention_norm`, is missing.",
            ),
            (
                layer.attention_norm.forward(block(between()) + between()),
                "You normalised with `attention_norm` twice: the second norm is `output_norm`.",
            ),
            (
                layer.output_norm.forward(block(early())) + early(),
                "You normalise and then add. BERT adds first and normalises the sum.",
            ),
            (
                block(layer.output_norm.forward(before())) + before(),
                "That is pre-norm: you normalise what goes into each part. BERT normalises the sums.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds("your layer gives what the crate's does", !is(slip), said);
        }
        judge.close_tensor(
            "your layer's output for the two sentences, the padding left out,",
            &yours,
            &rows(layer.forward::<NoneTape>(x.clone(), 0, &pass)),
            1e-4,
            "The crate's Layer gives this. Norm after the sum, twice.",
        );
    });

    // %% [markdown]
    // ## Step 5: stack them
    //
    // A BERT is the embeddings and then the layers, one after the other. Here your layer does it,
    // and the result is compared with `CpuEngine`, the crate's fast run of the model: no dfdx, no
    // padding, and several operations joined in each loop, written by hand.

    // %%
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let last: usize = model.config.num_hidden_layers;
    let states: Vec<f32> = engine
        .hidden_states(&two, last..last + 1)?
        .layers
        .swap_remove(0);
    if solved!("04.4") {
        let mut hidden: Batch = x.clone();
        for layer in &bert.layers {
            hidden = encoder_layer(layer, hidden, &pass(&two, &bert.config));
        }
        let yours = real_rows(hidden, &two).as_vec();
        let apart = yours.iter().zip(&states).map(|(a, b)| (a - b).abs());
        println!(
            "{} tokens × {H} numbers; yours and the engine's differ by at most {:e}",
            two.rows(),
            apart.fold(0.0, f32::max)
        );
    }

    // %% [markdown]
    // The same model twice, once to be read and once to be fast. The crate's tests compare them
    // operation by operation; you have just done the test of the whole.
    //
    // ### Dropout, in training only
    //
    // One thing more stands in a layer. While BERT is trained, a tenth of what attention and the
    // feed-forward block give is set to 0, at random, before it is added to what went in, and the
    // others are divided by 0.9, so that the mean stays what it was ([Srivastava et al.
    // 2014](https://jmlr.org/papers/v15/srivastava14a.html)). The same happens to the embeddings after
    // their LayerNorm, and to the attention weights themselves. No number can then rely on one other
    // alone. When the model is used, nothing is dropped.

    // %%
    let mut dropping: Config = model.config.clone();
    dropping.hidden_dropout_prob = 0.1;
    let dropped: Batch = bert.embeddings.forward::<NoneTape>(&Pass {
        dropout: Some(Dropout { seed: 1, step: 1 }),
        ..pass(&two, &dropping)
    });
    let zeros: usize = dropped.as_vec().iter().filter(|&&v| v == 0.0).count();
    println!(
        "{:.1} % of the numbers are 0; sum of absolute values {:.0} before, {:.0} after",
        100.0 * zeros as f64 / dropped.as_vec().len() as f64,
        x.clone().abs().sum::<Rank0, _>().array(),
        dropped.clone().abs().sum::<Rank0, _>().array()
    );

    // %% [markdown]
    // ## Step 6: count
    //
    // The paper gives two sizes: BERT-base with 12 layers, $H = 768$, 12 heads, "110M parameters",
    // and BERT-large with 24 layers, $H = 1024$, 16 heads, "340M" (section 3). Where are they?
    //
    // **Exercise 04.5.** Count the parameters of the embeddings, the layers and the pooler (one
    // linear layer from $H$ to $H$ over `[CLS]`, lesson 06). There are always two segments. Does
    // the number of heads matter?

    // %%
    fn count(
        layers: usize,
        hidden: usize,
        intermediate: usize,
        vocabulary: usize,
        positions: usize,
    ) -> usize {
        // BEGIN SOLUTION
        cloze::solution!("04.5");
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
    /// What the crate's one declaration of the parameters says: embeddings, layers, pooler.
    fn declared(size: Size) -> usize {
        Layout::new(&size.config(30_522), &[Part::Encoder, Part::Pooler]).total()
    }

    check!("04.5", |judge| {
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
                "You count {} too many. Nothing is there once for each head: the heads share out the \
                 width. The pooler is there once, not in every layer.",
                yours - right
            ),
        );
        judge.equal(
            "count for BERT-base",
            yours,
            right,
            "The crate's Layout adds up the shapes of all declared parameters to this.",
        );
        for size in Size::ALL {
            let (layers, hidden, _, intermediate) = size.dimensions();
            judge.equal(
                &format!("count for {}", size.name()),
                count(layers, hidden, intermediate, 30_522, 512),
                declared(size),
                "The crate's Layout says so. Is some number of base left in your formula?",
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
    // 109,482,240 and 335,141,888, which the paper rounds to 110M and 340M. With both heads of
    // pre-training it is 110,106,428 and 336,226,108. The number of heads does not occur in the
    // formula: heads *share out* the width.
    //
    // Where are they? The crate's declaration knows every parameter by its name in Hugging Face's
    // files:

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
    // Half of BERT-base are feed-forward blocks, a quarter attention, and more than a fifth is the
    // table of words. (That answers the second open question of lesson 01.)
    //
    // ## What goes wrong
    //
    // **A tensor that is gone.** `back.forward(gelu(wide.forward(x))) + x`, the residual in its
    // most natural form. The notebook says:
    //
    // ```text
    // error[E0382]: `x` was moved in line 2: dfdx takes tensors by value; write `x.clone()` there, which copies no numbers
    // ```
    //
    // What goes around a block is needed twice: `wide.forward(x.clone())`.
    //
    // **A residual around half a block.** `wide.forward(x.clone()) + x` adds (B, S, 512) and (B, S,
    // 128):
    //
    // ```text
    // error[E0277]: +: the left is ?×?×512 and the right is ?×?×128: the sizes 512 and 128 differ; a right side of ?×?×512 would fit
    // ```
    //
    // A `?` is a size that is known only when the cell runs. What the message proposes would fit the
    // sum and not the idea: only what ends with the width that it began with can have a way around it.
    //
    // **A layer left out.** `back.forward(gelu(x))`:
    //
    // ```text
    // error[E0277]: forward: `Linear<512, 128>` expects 512 as the last size and it is given ?×?×128: the sizes 512 and 128 differ; a `Linear<128, 128>` would fit
    // ```
    //
    // As a program (`cargo run --example 04_encoder`) you get rustc's own words for the same, which the
    // notebook gives below its sentence: `the trait bound Tensor<…>: TryMatMul<…> is not satisfied`.
    //
    // **What no compiler sees.** The norm before the sum in place of after it; dropout left on when
    // the model is used (the same text then gives another vector each time); GELU by tanh for a
    // model that was trained with erf (two programs may both say `gelu` and mean one each). Shapes are right and numbers are a little wrong. Only a
    // comparison with known numbers finds them, which is why every lesson ends with one.
    //
    // ## Expected numbers
    //
    // - the slope by difference is best at h of about 3e-6 in f64, with an error near 1e-12, and at
    //   about 3e-3 in f32, with an error near 1e-6;
    // - dfdx's accurate_gelu is wrong by 0.1002 at x = 1: 1.1835 in place of 1.0833; all others
    //   agree to 2e-9 or better;
    // - below 24 blocks arrive 2e-7 of a gradient, with residuals 1,700 times as much as was sent,
    //   with residuals and LayerNorm 2.5 times;
    // - your layers, stacked, agree with the engine's to a few 1e-6;
    // - 109,482,240 parameters for base and 335,141,888 for large;
    // - the cells compute for under a second; the rest is compiling.
    //
    // ## On real text
    //
    // `cloze features --model DIR < lines.txt` runs exactly this, embeddings and layers, over each
    // line of a file, for any BERT in Hugging Face's layout, and `cloze bench infer --size base`
    // says how fast.
    //
    // ## Open questions
    //
    // 1. Attention's shares are always positive and add up to 1, so attention alone can only
    //    average values. What would a stack of attention layers without feed-forward blocks and
    //    without residuals do to the vectors of a sentence? ([Dong et al.
    //    2021](https://arxiv.org/abs/2103.03404) prove it.)
    // 2. Twice as wide or twice as deep: which adds more parameters, and which takes longer when a
    //    processor can do many multiplications at once but layers must wait for each other?
    //
    // The crate's source of this part: `Layer` in `src/model/layers.rs`, `gelu` in
    // `src/model/ops.rs`, the declaration of the parameters in `src/model/parameters.rs`, the stack
    // in `src/model/bert.rs`. Next: [lesson 05](05_masked_lm.rs), in which all this learns
    // English.

    // %% [end]
    cloze::lessons::finish("04_encoder")
}
