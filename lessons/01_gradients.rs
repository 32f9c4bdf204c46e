// ---
// title = "Gradients: how a model learns"
// summary = "Differentiate a neuron by hand with the chain rule, let a line learn by gradient descent, and write backpropagation for any computation."
// track = "core"
// minutes = 56
// seconds = 20
// needs = ["00"]
//
// [[exercise]]
// id = "01.1"
// key = "neuron_gradient"
// title = "The gradient of a neuron, by hand"
// hints = [
//     "Go forward first: `let f = (w * x + b).tanh();` and `let e = f - y;`. The loss is `e * e`.",
//     "Then go backward, one factor at a time. At f the derivative of the loss is `2.0 * e`. To reach s, multiply it by tanh's factor, `1.0 - f * f`.",
//     "s is a sum, so b receives what s has received. w receives the same times x: `(e * e, at_s * x, at_s)`, where `let at_s = 2.0 * e * (1.0 - f * f);`.",
// ]
//
// [[exercise]]
// id = "01.2"
// key = "descend"
// was = "00.4"
// title = "One step downhill"
// hints = [
//     "Start the tape at the two parameters: `let w = line.slope.leaky_trace();`, and the same for the offset. Repeat each for all points: `w.broadcast_like::<_, Axis<0>>(x.shape())`.",
//     "The errors are `w * x.clone() + b - y.clone()`; the loss is `.square().mean::<Rank0, Axis<0>>()`. Read its number with `loss.array()` before `backward()` consumes the loss.",
//     "After `let gradients = loss.backward();`, `gradients.get(&line.slope)` is the derivative of the loss with respect to the slope. To make the loss smaller, go against it.",
//     "`line.slope = line.slope.clone() - gradients.get(&line.slope) * rate;`, and the same for the offset.",
// ]
//
// [[exercise]]
// id = "01.3"
// key = "backward"
// was = "00.5"
// title = "Write backward"
// hints = [
//     "Start with `let mut gradients = vec![0.0; tape.len()];` and set the last one to 1. Then go through the positions in reverse: `for at in (0..tape.len()).rev()`.",
//     "At each node, `let g = gradients[at];` has arrived. `match tape[at]` decides what to add to the gradients of its inputs, for example `Node::Add(a, b) => { gradients[a] += g; gradients[b] += g; }`.",
//     "For `Node::Multiply(a, b)` add `g * values[b]` to `gradients[a]` and `g * values[a]` to `gradients[b]`. For `Node::Tanh(a)` add `g * (1.0 - values[at] * values[at])`. An input has nothing to pass on.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 01 · Gradients: how a model learns
    //
    // A model has parameters, and training changes them. In which direction, and by how much? In this
    // lesson you answer the question for one neuron by hand, train a straight line with the answer,
    // and write the program that finds it for any computation: backpropagation.
    //
    // *About 56 minutes, you need lesson 00. Every cell computes for less than a second.*

    // %%
    use cloze::lessons::support::basics;
    use cloze::prelude::*;
    use cloze::text::embedded;

    // %% [markdown]
    // ## One parameter
    //
    // Training makes an error smaller, the **loss** $L$. Begin with the smallest model there is. It
    // has one parameter $w$ and answers $w x$. For $x = 3$ the right answer is $y = 6$, and the loss
    // is the squared error, $L = (w x - y)^2$. At $w = 1$ the model answers 3, the error is -3, and
    // the loss is 9.
    //
    // Should $w$ grow or shrink? Try it: at $w = 1.01$ the loss is $(3.03 - 6)^2 = 8.8209$. So $w$
    // grew by 0.01 and the loss changed by -0.1791, about -18 times as much. For smaller and smaller
    // changes this ratio approaches -18 exactly. It is called the **derivative** of $L$ with respect
    // to $w$, and in a picture it is the slope of the curve.

    // %%
    fn loss_at(w: f64) -> f64 {
        (w * 3.0 - 6.0).powi(2)
    }

    for change in [0.01, 0.0001] {
        let ratio = (loss_at(1.0 + change) - loss_at(1.0)) / change;
        println!("w + {change}: the ratio is {ratio:.4}");
    }
    let curve: Vec<(f64, f64)> = (0..=40)
        .map(|n| f64::from(n) / 10.0)
        .map(|w| (w, loss_at(w)))
        .collect();
    show!(
        LineChart::new("The loss of one parameter")
            .axes("w", "loss")
            .line("loss", &curve)
            .line("slope at w = 1: -18", &[(0.5, 18.0), (1.5, 0.0)])
    );

    // %% [markdown]
    // The derivative is negative: if $w$ grows, the loss falls. So $w$ should grow.
    //
    // A real model has many parameters, and its loss depends on all of them. Ask the same question
    // for each: if this parameter grows a little and all others stay, how fast does the loss grow?
    // The answer is a **partial derivative**. It is written with a round d, $\partial L / \partial w$,
    // and read "the derivative of L with respect to w". All partial derivatives together are the
    // **gradient**.

    // %% [markdown]
    // ## The chain rule
    //
    // Trying it out costs one computation for each parameter, and BERT has 110 million parameters. A
    // cheaper way follows a change through the computation, step by step:
    //
    // | step | value at $w = 1$ | if its input grows by 0.01, its result grows by | factor |
    // |---|---|---|---|
    // | $p = w x$ | 3 | 0.03 | $x = 3$ |
    // | $e = p - y$ | -3 | 0.01 | 1 |
    // | $L = e^2$ | 9 | -0.06 (nearly) | $2 e = -6$ |
    //
    // So if $w$ grows by 0.01, then $p$ grows by 0.03, $e$ by 0.03, and $L$ by $-6 \cdot 0.03 = -0.18$.
    // The factors multiply: $-6 \cdot 1 \cdot 3 = -18$. This is the **chain rule**. Each factor is the
    // derivative of one step, and you get it from the numbers of that step alone:
    //
    // $$ \frac{\partial L}{\partial w} = \frac{\partial L}{\partial e} \cdot
    //    \frac{\partial e}{\partial p} \cdot \frac{\partial p}{\partial w} $$

    // %% [markdown]
    // ## A neuron, backwards
    //
    // **Backpropagation** ([Rumelhart et al. 1986](https://www.nature.com/articles/323533a0))
    // multiplies these factors from the end of the computation to its beginning. One such pass serves
    // all parameters. Do it for a neuron: a linear layer with one input and one output, followed by
    // tanh, a function that squeezes every number into the range from -1 to 1.
    //
    // $$ f = \tanh(w x + b), \qquad w = 2, \quad x = -3, \quad b = 7 $$
    //
    // **Forward**, one operation (a node) at a time: $u = w x = -6$, then $s = u + b = 1$, then
    // $f = \tanh(s) = 0.762$.
    //
    // **Backward**: each node has received the derivative of $f$ with respect to its result. It
    // multiplies this by the derivative of its own operation and passes the product on to its
    // inputs. The last node starts with $\partial f / \partial f = 1$.
    //
    // | node | derivative of the operation | has received | passes on |
    // |---|---|---|---|
    // | $f = \tanh(s)$ | $1 - f^2 = 0.42$ | $1$ | to $s$: $1 \cdot 0.42 = 0.42$ |
    // | $s = u + b$ | $1$ for each summand | $0.42$ | to $u$ and to $b$: $0.42$ |
    // | $u = w x$ | for each factor the other one | $0.42$ | to $w$: $0.42 \cdot (-3) = -1.26$; to $x$: $0.42 \cdot 2 = 0.84$ |
    //
    // So $\partial f / \partial w = -1.26$, $\partial f / \partial x = 0.84$ and
    // $\partial f / \partial b = 0.42$.
    //
    // **Exercise 01.1.** Now give the neuron a target $y$ and the loss $L = (f - y)^2$. Return three
    // numbers: $L$, $\partial L / \partial w$ and $\partial L / \partial b$. (Two nodes come after
    // $f$, as in the table of the chain rule: $e = f - y$ and $L = e^2$.)

    // %%
    fn neuron_gradient(w: f64, b: f64, x: f64, y: f64) -> (f64, f64, f64) {
        // BEGIN SOLUTION
        cloze::solution!("01.1");
        let f = (w * x + b).tanh();
        let e = f - y;
        let at_f = 2.0 * e;
        let at_s = at_f * (1.0 - f * f);
        (e * e, at_s * x, at_s)
        // END SOLUTION
    }

    // %%
    check!("01.1", |judge| {
        let (w, b, x, y) = (2.0, 7.0, -3.0, 1.0);
        let f = 1f64.tanh();
        let (e, slope) = (f - y, 1.0 - f * f);
        let (loss, at_w, at_b) = neuron_gradient(w, b, x, y);
        let near = |yours: f64, other: f64| (yours - other).abs() < 1e-6;
        let slips = [
            (e, "That is the error f - y. The loss is its square."),
            (-e, "That is the size of the error. The loss is its square."),
            (f, "That is the output f. The loss is (f - y)²."),
            (
                (w * x + b - y).powi(2),
                "The output is tanh(w x + b): tanh is missing.",
            ),
            (
                e * e / 2.0,
                "That is half of the squared error. Some books define the loss so; here it is (f - y)².",
            ),
        ];
        for (wrong, slip) in slips {
            judge.holds(
                &format!("the loss for w = 2, b = 7, x = -3, y = 1 is 0.0568, yours is {loss:.4}"),
                !near(loss, wrong),
                slip,
            );
        }
        judge.close(
            "the loss for w = 2, b = 7, x = -3, y = 1",
            loss,
            e * e,
            1e-6,
            "f = tanh(1) = 0.7616, e = f - 1 = -0.2384, and the loss is e².",
        );
        let right = 2.0 * e * slope;
        let slips = [
            (
                right * x,
                "That is the derivative by w. The order is: loss, by w, by b.",
            ),
            (
                slope,
                "That is the derivative of f. The loss has two more nodes: multiply by 2 e.",
            ),
            (
                0.42,
                "That is a number of the table. Compute the factors from w, b, x and y, and continue \
                 to the loss: multiply by 2 e.",
            ),
            (
                2.0 * e * 0.42,
                "0.42 is rounded and belongs to this example alone: compute 1 - f² from f.",
            ),
            (
                right * b,
                "You multiplied by b itself. If b grows by 1, w x + b grows by 1: the factor is 1.",
            ),
            (
                e * slope,
                "The factor 2 is missing: the derivative of e² is 2 e.",
            ),
            (
                -right,
                "The sign is wrong: the error is f - y, not y - f, and a derivative is not yet a step.",
            ),
            (
                2.0 * e,
                "That is the derivative by f. On the way to b stands tanh: multiply by 1 - f².",
            ),
            (
                2.0 * e * f * f,
                "The derivative of tanh is 1 - f²; you multiplied by f².",
            ),
            (
                2.0 * e * f,
                "The derivative of tanh is 1 - f²; you multiplied by f.",
            ),
            (
                0.0,
                "Is tanh's factor 1 - f², with the *result* of tanh? Its input is s = 1, and 1 - s² is 0.",
            ),
            (
                2.0 * e * e * slope,
                "You multiplied by the loss: the derivative of e² is 2 e, not 2 e².",
            ),
        ];
        for (wrong, slip) in slips {
            judge.holds(
                &format!("the derivative by b is {right:.4}, yours is {at_b:.4}"),
                !near(at_b, wrong),
                slip,
            );
        }
        judge.close(
            "the derivative by b",
            at_b,
            right,
            1e-6,
            "2 e = -0.4768, times 1 - f² = 0.42, times 1 for the sum.",
        );
        let slips = [
            (
                right,
                "That is the derivative by b. The node w x comes in between: multiply by x.",
            ),
            (
                right * w,
                "You multiplied by w itself. If w grows by 1, w x grows by x: multiply by x.",
            ),
            (
                -right * x,
                "The sign is wrong. x is -3, and the derivative by b is negative too.",
            ),
        ];
        for (wrong, slip) in slips {
            judge.holds(
                &format!(
                    "the derivative by w is {:.4}, yours is {at_w:.4}",
                    right * x
                ),
                !near(at_w, wrong),
                slip,
            );
        }
        judge.close(
            "the derivative by w",
            at_w,
            right * x,
            1e-6,
            "What arrives at b, -0.2002, times x, which is -3.",
        );
        let h = 1e-5;
        for (w, b, x, y) in [
            (0.3, -0.2, 1.7, 0.5),
            (-1.1, 0.4, 0.0, -2.0),
            (0.0, 0.9, 2.5, 0.1),
        ] {
            let loss = |w: f64, b: f64| neuron_gradient(w, b, x, y).0;
            let (_, at_w, at_b) = neuron_gradient(w, b, x, y);
            let change = [
                loss(w + h, b) - loss(w - h, b),
                loss(w, b + h) - loss(w, b - h),
            ];
            for (name, yours, change) in [("w", at_w, change[0]), ("b", at_b, change[1])] {
                judge.close(
                    &format!("the derivative by {name} at w = {w}, b = {b}, x = {x}, y = {y}"),
                    yours,
                    change / (2.0 * h),
                    1e-6,
                    "The expected number comes from changing the parameter a little in both directions. \
                     Does your answer use its arguments, and not the numbers of the example?",
                );
            }
        }
    });

    // %% [markdown]
    // There are two tests of such numbers: ask dfdx, and change each parameter a little. In dfdx
    // `leaky_trace()` starts a **tape** on which every operation is recorded, and `backward()` goes
    // through the tape from its end.

    // %%
    let dev: Cpu = Cpu::default();
    let w: Tensor<Rank0, f32, Cpu> = dev.tensor(2.0);
    let b: Tensor<Rank0, f32, Cpu> = dev.tensor(7.0);
    // w x + b at x = -3; the target is 1.
    let f: Tensor<Rank0, f32, Cpu, OwnedTape<f32, Cpu>> =
        (w.leaky_trace() * -3.0 + b.clone()).tanh();
    let gradients: Gradients<f32, Cpu> = (f - 1.0).square().backward();
    let [at_w, at_b] = [&w, &b].map(|tensor| gradients.get(tensor).array());
    println!("by dfdx:          w {at_w:.4}, b {at_b:.4}");

    // %%
    if solved!("01.1") {
        let (loss, at_w, at_b) = neuron_gradient(2.0, 7.0, -3.0, 1.0);
        println!("by your function: w {at_w:.4}, b {at_b:.4}");
        let at_w = (neuron_gradient(2.000001, 7.0, -3.0, 1.0).0 - loss) / 0.000001;
        let at_b = (neuron_gradient(2.0, 7.000001, -3.0, 1.0).0 - loss) / 0.000001;
        println!("by small changes: w {at_w:.4}, b {at_b:.4}");
    }

    // %% [markdown]
    // The tape is part of the type, `Tensor<…, OwnedTape<f32, Cpu>>`, and a tensor without a tape has
    // no `backward`: you can't forget to record. Only `w` started a tape, but `b` got a gradient too,
    // because each operation records both of its inputs. (`leaky_trace` keeps the gradients of
    // everything in between; `trace` frees them.)

    // %% [markdown]
    // ## A first model
    //
    // How many words does a text of so many characters have? We fit a straight line to paragraphs of
    // the text that comes with Cloze. Characters are counted in hundreds and words in tens, so that
    // all numbers are near 1.

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
    // The model is $\hat y = w x + b$, where $\hat y$ is its estimate of $y$. The loss is the mean of
    // the squared errors of all $n$ paragraphs. **Gradient descent** takes a small step against the
    // gradient; how small is set by the **learning rate** $\eta$ (eta):
    //
    // $$ L = \frac{1}{n} \sum_{i=1}^{n} (w x_i + b - y_i)^2, \qquad
    //    w \leftarrow w - \eta \frac{\partial L}{\partial w}, \quad b \leftarrow b - \eta \frac{\partial L}{\partial b} $$
    //
    // **Exercise 01.2.** Take one step: change `line`, and return the loss from before the step. Let
    // dfdx compute the gradients.

    // %%
    /// A straight line: slope w and offset b.
    #[derive(Clone)]
    struct Line {
        slope: Tensor<Rank0, f32, Cpu>,
        offset: Tensor<Rank0, f32, Cpu>,
    }

    /// The line 0 x + 0, where training starts.
    fn flat() -> Line {
        let dev = Cpu::default();
        Line {
            slope: dev.zeros(),
            offset: dev.zeros(),
        }
    }

    fn descend(line: &mut Line, x: &Column, y: &Column, rate: f32) -> f32 {
        // BEGIN SOLUTION
        cloze::solution!("01.2");
        let w = line.slope.leaky_trace();
        let b = line.offset.leaky_trace();
        let w = w.broadcast_like::<_, Axis<0>>(x.shape());
        let b = b.broadcast_like::<_, Axis<0>>(x.shape());
        let errors = w * x.clone() + b - y.clone();
        let loss = errors.square().mean::<Rank0, Axis<0>>();
        let value = loss.array();
        let gradients = loss.backward();
        line.slope = line.slope.clone() - gradients.get(&line.slope) * rate;
        line.offset = line.offset.clone() - gradients.get(&line.offset) * rate;
        value
        // END SOLUTION
    }

    // %%
    check!("01.2", |judge| {
        let dev = Cpu::default();
        let (two_x, two_y): (Column, Column) = (
            dev.tensor([1.0, 2.0]).realize(),
            dev.tensor([2.0, 4.0]).realize(),
        );
        let mut line = flat();
        let loss = descend(&mut line, &two_x, &two_y, 0.1);
        judge.close(
            "the loss of the line 0 x + 0 for the points (1, 2) and (2, 4)",
            f64::from(loss),
            10.0,
            1e-4,
            "(2² + 4²) / 2: the mean of the squared errors, before the step.",
        );
        let slope = f64::from(line.slope.array());
        let slips = [
            (
                0.0,
                "The line has not changed: assign the new value to `line.slope`.",
            ),
            (
                -1.0,
                "The step went uphill: the gradient points in the direction in which the loss grows. \
                 Subtract it, times the rate, from the old value.",
            ),
            (
                2.0,
                "That is the gradient of the sum of the squared errors; the loss is their mean.",
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
            "Its gradient is the mean of 2 · error · x: (2 · (-2) · 1 + 2 · (-4) · 2) / 2 = -10.",
        );
        judge.close(
            "the offset after one step at rate 0.1",
            f64::from(line.offset.array()),
            0.6,
            1e-4,
            "Its gradient is the mean of 2 · error: (2 · (-2) + 2 · (-4)) / 2 = -6.",
        );
        let mut line = flat();
        for _ in 0..2_000 {
            descend(&mut line, &x, &y, 0.05);
        }
        let best = basics::best_line(&characters, &words);
        judge.close(
            "the slope after 2,000 steps on the paragraphs",
            f64::from(line.slope.array()),
            best.0,
            0.01,
            "There is a formula for the line with the least squared error, and this is its slope.",
        );
        judge.close(
            "the offset after 2,000 steps on the paragraphs",
            f64::from(line.offset.array()),
            best.1,
            0.03,
            "The same formula gives this offset.",
        );
    });

    // %% [markdown]
    // Watch it learn. The chart grows while the loop runs.

    // %%
    if solved!("01.2") {
        let mut line = flat();
        let mut chart = LiveChart::new(
            LineChart::new("A line learns to count words").axes("step", "mean squared error"),
        );
        for step in 1..=60 {
            let loss = descend(&mut line, &x, &y, 0.05);
            chart.push("loss", f64::from(step), f64::from(loss));
        }
        drop(chart);
        let learned: (f64, f64) = (
            f64::from(line.slope.array()),
            f64::from(line.offset.array()),
        );
        let best: (f64, f64) = basics::best_line(&characters, &words);
        for (name, (slope, offset)) in [("after 60 steps", learned), ("the best line", best)] {
            let (slope, offset) = (10.0 * slope, 10.0 * offset);
            println!("{name:<14}  words = {slope:.1} per 100 characters {offset:+.1}");
        }
        let lines = [("learned", learned), ("the best line", best)];
        show!(basics::words_by_characters(&characters, &words, &lines));
    }

    // %% [markdown]
    // The loss falls fast for six steps and then slowly. Seen as a landscape, it is a valley with
    // steep sides and a nearly level floor, and one learning rate must do for both. After 60 steps
    // the line is good but not yet the best. (Lesson 10 has better steps.)
    //
    // BERT is trained by the same loop. It has 110 million parameters instead of two, twelve layers
    // instead of a line, a loss that asks for missing words, and better steps.

    // %% [markdown]
    // ## Inside `backward`
    //
    // How does `backward` find the gradients? Write it yourself, for numbers instead of tensors. The
    // tape is a list of nodes in the order of their computation. A node names its inputs by their
    // positions in the list; `forward` computes the value of every node.

    // %%
    /// An input or an operation. Operations name earlier nodes by their positions.
    #[derive(Debug, Clone, Copy)]
    enum Node {
        Input(f64),
        Add(usize, usize),
        Multiply(usize, usize),
        Tanh(usize),
    }

    fn forward(tape: &[Node]) -> Vec<f64> {
        let mut values: Vec<f64> = Vec::new();
        for &node in tape {
            values.push(match node {
                Node::Input(value) => value,
                Node::Add(a, b) => values[a] + values[b],
                Node::Multiply(a, b) => values[a] * values[b],
                Node::Tanh(a) => values[a].tanh(),
            });
        }
        values
    }

    // %%
    // f = tanh(w x + b): positions 0, 1, 3 are w, x, b; 2, 4, 5 are u, s, f.
    const NEURON: [Node; 6] = [
        Node::Input(2.0),
        Node::Input(-3.0),
        Node::Multiply(0, 1),
        Node::Input(7.0),
        Node::Add(2, 3),
        Node::Tanh(4),
    ];
    show!(forward(&NEURON));

    // %% [markdown]
    // **Exercise 01.3.** Return for every node the derivative of the last node with respect to it.
    // Follow the table of the neuron: start at the end with 1; each node passes what it has
    // received, times the derivative of its operation, to its inputs. One rule is new: a node may be
    // used twice, as in $x \cdot x$. Then it receives two numbers, and its gradient is their **sum**.

    // %%
    fn backward(tape: &[Node], values: &[f64]) -> Vec<f64> {
        // BEGIN SOLUTION
        cloze::solution!("01.3");
        let mut gradients = vec![0.0; tape.len()];
        gradients[tape.len() - 1] = 1.0;
        for at in (0..tape.len()).rev() {
            let g = gradients[at];
            match tape[at] {
                Node::Input(_) => {}
                Node::Add(a, b) => {
                    gradients[a] += g;
                    gradients[b] += g;
                }
                Node::Multiply(a, b) => {
                    gradients[a] += g * values[b];
                    gradients[b] += g * values[a];
                }
                Node::Tanh(a) => gradients[a] += g * (1.0 - values[at] * values[at]),
            }
        }
        gradients
        // END SOLUTION
    }

    // %%
    check!("01.3", |judge| {
        let gradients = |tape: &[Node]| backward(tape, &forward(tape));
        let yours = gradients(&NEURON);
        judge.equal(
            "the number of gradients",
            yours.len(),
            6,
            "One for each node.",
        );
        let at = |position: usize| yours.get(position).copied().unwrap_or(f64::NAN);
        judge.close(
            "the gradient of the last node, f",
            at(5),
            1.0,
            1e-9,
            "If f grows by 0.01, f grows by 0.01: start with 1.",
        );
        let slope = 1.0 - 1f64.tanh().powi(2);
        let slips = [
            (
                0.0,
                "Nothing has arrived. Do you go from the last node to the first, and is tanh's \
                   factor 1 - f², with the *result* of tanh and not its input?",
            ),
            (
                1f64.tanh().powi(2),
                "That is f², but the derivative of tanh is 1 - f².",
            ),
            (
                1.0,
                "That is what tanh has received. It must multiply this by 1 - f².",
            ),
            (
                1f64.tanh(),
                "That is tanh itself, the value of f; its derivative is 1 - f².",
            ),
            (
                1.0 + slope,
                "That is 1 too much. Only the last gradient starts with 1, all others start with 0.",
            ),
        ];
        for (wrong, slip) in slips {
            judge.holds(
                &format!("the gradient of s is {slope:.3}, yours is {:.3}", at(4)),
                (at(4) - wrong).abs() > 1e-6,
                slip,
            );
        }
        judge.close(
            "the gradient of s",
            at(4),
            slope,
            1e-6,
            "It is 1 - f², times 1.",
        );
        judge.holds(
            &format!("the gradient of b is {slope:.3}, yours is {:.3}", at(3)),
            at(3).abs() > 1e-6,
            "Nothing has arrived. Go from the last node to the first: s must have received its \
             gradient before it passes it on.",
        );
        judge.holds(
            &format!("the gradient of b is {slope:.3}, yours is {:.3}", at(3)),
            (at(3) - 7.0).abs() > 1e-6,
            "That is the value of b. An input passes nothing on: its gradient stays what it has received.",
        );
        judge.close(
            "the gradient of b",
            at(3),
            slope,
            1e-6,
            "A sum passes on to both summands what it has received.",
        );
        judge.holds(
            &format!("the gradient of w is -1.26, yours is {:.2}", at(0)),
            (at(0) - 2.0 * slope).abs() > 1e-6,
            "You multiplied by w itself. Each factor gets the value of the *other* one: if w grows \
             by 1, w x grows by x.",
        );
        judge.close(
            "the gradient of w",
            at(0),
            -3.0 * slope,
            1e-6,
            "0.42 times x, which is -3.",
        );
        judge.close(
            "the gradient of x",
            at(1),
            2.0 * slope,
            1e-6,
            "0.42 times w, which is 2.",
        );

        let square = gradients(&[Node::Input(3.0), Node::Multiply(0, 0)]);
        judge.close(
            "the gradient of x in x · x, at x = 3",
            square[0],
            6.0,
            1e-9,
            "x receives 3 as the left factor and 3 as the right one. If yours is 3, the second \
             replaced the first: add with `+=`.",
        );
        let double = gradients(&[Node::Input(3.0), Node::Add(0, 0)]);
        judge.close(
            "the gradient of x in x + x",
            double[0],
            2.0,
            1e-9,
            "x is used twice and receives 1 each time: add with `+=`.",
        );
        // z = t² + t with t = tanh(x w).
        let tape = [
            Node::Input(0.5),
            Node::Input(0.8),
            Node::Multiply(0, 1),
            Node::Tanh(2),
            Node::Multiply(3, 3),
            Node::Add(4, 3),
        ];
        let yours = gradients(&tape);
        let dev = Cpu::default();
        let x: Tensor<Rank0, f32, Cpu> = dev.tensor(0.5);
        let w: Tensor<Rank0, f32, Cpu> = dev.tensor(0.8);
        let t = (x.leaky_trace() * w.clone()).tanh();
        let theirs = (t.with_empty_tape().square() + t).backward();
        for (name, position, tensor) in [("x", 0, &x), ("w", 1, &w)] {
            judge.close(
                &format!("the gradient of {name} in t · t + t with t = tanh(x w), at x = 0.5, w = 0.8"),
                yours[position],
                f64::from(theirs.get(tensor).array()),
                1e-5,
                "dfdx finds this. Every use of a node adds its part (`+=`), and each node multiplies by \
                 what it has received. It passes its gradient on only after all uses: go from the last \
                 position to the first.",
            );
        }
    });

    // %%
    if solved!("01.3") {
        let values: Vec<f64> = forward(&NEURON);
        let gradients: Vec<f64> = backward(&NEURON, &values);
        println!("{:<14} {:>7} {:>9}", "node", "value", "gradient");
        for ((node, value), gradient) in NEURON.iter().zip(values).zip(gradients) {
            println!("{:<14} {value:>7.3} {gradient:>9.3}", format!("{node:?}"));
        }
    }

    // %% [markdown]
    // These are the numbers of the table. dfdx does the same with tensors as nodes and a few dozen
    // operations instead of three. Whatever BERT computes is made of such nodes, so its 110 million
    // derivatives come from one pass back.

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *which way is down*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(1));

    // %% [markdown]
    // ## What goes wrong
    //
    // Two compiler errors (without Rust's own words), a panic, and a failure without any error.
    //
    // **No tape.** `let gradients = x.square().sum::<Rank0, _>().backward();`
    //
    // ```text
    // error[E0599]: backward: no tape came with it: begin with `x.leaky_trace()` (or `x.trace(gradients)`) and use that instead of `x`
    // ```
    //
    // Nothing was recorded: a tape must be started at the beginning.
    //
    // **The tape on the right.** `let product = b.clone() * w.leaky_trace();`
    //
    // ```text
    // error[E0277]: *: the right side carries the gradient tape and the left does not: put the traced tensor on the left
    // ```
    //
    // An operation continues the tape of its left side.
    //
    // **A tensor that the tape doesn't know.** `gradients.get(&other)`
    //
    // ```text
    // panic: called `Option::unwrap()` on a `None` value
    // ```
    //
    // `other` was not part of the computation, for example because it is the *new* value of a
    // parameter, made after `backward()`. Ask for the gradient of the old one.
    //
    // **A learning rate that is too large.** No error at all, but a curve that rises: each step jumps
    // across the valley and lands higher on the other side.

    // %%
    if solved!("01.2") {
        let mut chart = LineChart::new("The same line with other learning rates")
            .axes("step", "mean squared error")
            .logarithmic();
        for rate in [0.002, 0.05, 0.25] {
            let mut line = flat();
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
    // - for the neuron without a loss the gradients are -1.26 (w), 0.84 (x) and 0.42 (b); with the
    //   target 1 the loss is 0.0568 and its gradients are 0.6007 (w) and -0.2002 (b);
    // - on 300 paragraphs the loss starts at 21.62; the line after 60 steps has 17.2 words per 100
    //   characters and an offset of 5.3, the best line 20.1 and -1.9;
    // - at a learning rate of 0.25 the loss grows beyond 1e20 within 30 steps.

    // %% [markdown]
    // ## On real text
    //
    // The line learns from other text too, one paragraph a line, from files, folders or `.gz`. Replace
    // the definition of `texts` by this one, with a path of yours:
    //
    // ```rust
    // let texts: Vec<String> = cloze::text::Paragraphs::new(&["books/"])?
    //     .take(300)
    //     .map(|p| p.map(|p| p.text))
    //     .collect::<Result<_, _>>()?;
    // ```
    //
    // Longer paragraphs are larger numbers and need a smaller learning rate.

    // %% [markdown]
    // ## Open questions
    //
    // 1. The learning rate was chosen by hand. What does the best rate depend on? Count single
    //    characters instead of hundreds, and find a rate that still works.
    // 2. `backward` needs the value of every node. How much memory does that cost for a BERT, and which
    //    values could it compute again instead of keeping them?
    //
    // The crate's source of this part: `src/engine/reference/mod.rs` computes the gradients of a whole
    // BERT with dfdx's tape. `src/engine/cpu/layer.rs` has no tape: its backward pass is written by hand,
    // like yours for the neuron. Next: [lesson 02](02_tokens.rs), in which text becomes numbers.

    // %% [end]
    cloze::lessons::finish("01_gradients")
}
