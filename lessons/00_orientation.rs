// ---
// title = "Orientation: tensors that know their shape"
// summary = "See what BERT is and how cells and exercises work, compute with tensors whose shapes the compiler checks, and write the linear layer that BERT is made of."
// track = "core"
// minutes = 48
// seconds = 15
// needs = []
//
// [[exercise]]
// id = "00.1"
// key = "numbers_in"
// was = "00.1"
// title = "How many numbers does a shape hold?"
// hints = [
//     "A table of 2 rows and 3 columns holds 2 · 3 numbers. Each axis multiplies.",
//     "`shape.iter().product()`. What is the product of an empty list? The check tries it.",
// ]
//
// [[exercise]]
// id = "00.2"
// key = "row_means"
// was = "00.2"
// title = "The mean of each row"
// hints = [
//     "`x.mean()` removes an axis. Two types between `::<` and `>` say which: first the shape of the result, then the axis to remove.",
//     "The mean of a *row* is taken over its columns, and the columns are axis 1. The result has one number for each row: `Rank1<R>`.",
//     "`x.mean::<Rank1<R>, Axis<1>>()`",
// ]
//
// [[exercise]]
// id = "00.3"
// key = "linear"
// was = "00.3"
// title = "A linear layer"
// hints = [
//     "`x` is (rows, I) and the weight is (O, I). In a matrix product the inner sizes must be equal: transpose the weight with `permute::<_, Axes2<1, 0>>()`.",
//     "The product is (rows, O) and the bias has O numbers. Repeat the bias for every row: `bias.clone().broadcast_like::<_, Axis<0>>(&shape)`, where `let shape = *product.shape();`.",
//     "`let product = x.matmul(weight.clone().permute::<_, Axes2<1, 0>>());`, then add the repeated bias.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 00 · Orientation: tensors that know their shape
    //
    // In this course you build BERT piece by piece and measure what it can do. This lesson shows what
    // BERT is and how a notebook works. Then you compute with **tensors**, blocks of numbers whose
    // shapes the compiler checks, and write the layer that BERT has most of.
    //
    // *About 48 minutes. You need some Rust and no deep learning.*

    // %% [markdown]
    // ## A first cell
    //
    // A notebook is a program that you run cell by cell. Click on the cell below and press
    // **Shift+Enter**. It imports what this lesson uses. Later cells can use what a cell defines.

    // %%
    use cloze::prelude::*;
    use cloze::view::Flow;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // `show!` shows any value: numbers as text, tensors with their shape, charts as pictures. Here is
    // what you will build, and in which lessons:

    // %%
    show!(
        Flow::new("From a text to an answer", "a text")
            .step("tokens", "numbers for pieces of words: lesson 02")
            .step("embeddings", "a vector for each token: lesson 03")
            .step("encoder", "vectors that depend on all tokens: 04 to 06")
            .step("head", "an answer, such as a hidden word: 07 to 09")
    );

    // %% [markdown]
    // ## What is BERT?
    //
    // **BERT** is a neural network that reads a text and returns a list of numbers, a **vector**, for
    // each word. A small layer on top turns these vectors into an answer: is this message spam, which
    // words are names, where in the paragraph is the answer?
    //
    // Vectors for words are older than BERT. What differs is what a vector depends on. Take the word
    // "bank" in "the bank of the river":
    //
    // | model | the vector of "bank" depends on |
    // |---|---|
    // | [word2vec](https://arxiv.org/abs/1301.3781) (2013) | the word alone: the bank of a river and a bank full of money get the same vector |
    // | [ELMo](https://arxiv.org/abs/1802.05365) (2018) | its sentence, read by two networks, one from the left and one from the right, that never see each other's words; their vectors are joined afterwards |
    // | [GPT](https://openai.com/index/language-unsupervised/) (2018) | the words to its left, so not on "river" |
    // | [BERT](https://arxiv.org/abs/1810.04805) (2018) | all words on both sides, in each of its layers: this is what **bidirectional** means |
    //
    // The name stands for *Bidirectional Encoder Representations from Transformers*. A Transformer is
    // a network in which words look at each other directly (lesson 04). Its encoder is the part that
    // reads, and the representations are the vectors.
    //
    // GPT reads from left to right because it learns to predict the next word and must not see it.
    // BERT learns something else: some words are hidden, and it predicts them from both sides
    // (lesson 07). This needs no labels, so it can learn from any text: BERT read books and Wikipedia,
    // 3.3 billion words. That long first training is called **pre-training**. Then the same network,
    // with a small new layer, is trained briefly on labelled examples of one task, often only a few
    // thousand: **fine-tuning**. Reusing what was learned from other data is **transfer learning**.
    //
    // At the end of the course you will have written every part of BERT and compared it with this
    // crate's, pre-trained small models on your own machine, fine-tuned them for the tasks of the
    // paper, and learned to distinguish a good result from a lucky one.

    // %% [markdown]
    // ## Cells
    //
    // The compiler checks a cell before it runs. After a wrong type or shape you get a message, and
    // nothing has run.

    // %%
    let lengths: Vec<usize> = vec![3, 1, 4];
    println!("the sum is {}", lengths.iter().sum::<usize>());
    show!(lengths, "text", 2.5);

    // %% [markdown]
    // You will need these commands later:
    //
    // | type in a cell | result |
    // |---|---|
    // | `:vars`, `:shapes` | your variables with their types; the shapes of all tensors |
    // | `:doc matmul`, `:doc Tensor::permute` | documentation of a function, of a method; the Tab key completes names |
    // | `:hint 00.1`, `:solution 00.1` | a hint for an exercise; a complete solution |
    // | `:replay` | after a restart: runs the cells again that defined something |
    // | `:help` | all commands |
    //
    // The stop button (Ctrl-C in the terminal) interrupts a cell that takes too long and keeps your
    // variables.

    // %% [markdown]
    // ## Exercises
    //
    // An exercise is a function whose body is missing. Write the body, run its cell, then run the
    // check below it. If the answer is wrong, the check shows a wrong value and what to think about.
    // Try it out: run the check before you have written anything, then with a wrong answer, then
    // with a right one. (A notebook folds each check to one line because it reveals the answer. Run
    // it like any other cell.)
    //
    // **Exercise 00.1.** The **shape** of a tensor is the list of its sizes, one for each **axis**:
    // a table of 2 rows and 3 columns has the shape (2, 3). How many numbers does a tensor of a
    // given shape hold?

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
            "Two rows of three. (5 is the sum of the sizes: each axis multiplies. 0 comes from a product \
             that starts at 0: start at 1.)",
        );
        judge.equal(
            "numbers_in(&[16, 128, 768])",
            numbers_in(&[16, 128, 768]),
            1_572_864,
            "16 sentences of 128 tokens with 768 numbers each: what BERT-base passes from layer to layer. \
             A shape may have any number of axes: multiply all of its sizes.",
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
            "No axis at all is a single number. The product of an empty list is 1.",
        );
    });

    // %% [markdown]
    // ## Tensors
    //
    // A tensor is a block of numbers with a shape. It lives on a device, ours is the CPU, and the
    // device creates it. The shape is part of the tensor's type:

    // %%
    let dev: Cpu = Cpu::default();
    let scores: Tensor<Rank2<2, 3>, f32, Cpu> = dev.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]);
    show!(scores);

    // %% [markdown]
    // `Rank2<2, 3>` is short for `(Const<2>, Const<3>)`. A size that is known only when the program
    // runs (how many sentences, how many tokens) is a `usize` instead, and its value is given when
    // the tensor is created:

    // %%
    let sentences: usize = 4;
    // `Const`: the 3 is in the type already.
    let rows: Tensor<(usize, Const<3>), f32, Cpu> =
        dev.tensor_from_vec((0..12).map(|n| n as f32).collect(), (sentences, Const));
    show!(rows);
    println!(
        "shape {:?}, numbers {:?}",
        rows.shape().concrete(),
        rows.as_vec()
    );

    // %% [markdown]
    // The design of a BERT (768 numbers a token, 12 heads) is fixed in types, so the compiler checks
    // it before anything runs. The sizes of the data stay open.
    //
    // `+ - * /` combine two tensors of the same shape number by number. Operations take ownership of
    // their tensors, like other functions in Rust. `.clone()` keeps a tensor for later and is cheap:
    // the numbers are shared until one of the two is changed.

    // %%
    show!(scores.clone() * scores.clone() - 1.0);
    // `::<shape of the result, axis to remove>`; `_` lets the compiler find it. `mean` is the same.
    // The sum of all numbers, of each column (over axis 0), and of each row (over axis 1):
    show!(scores.clone().sum::<Rank0, _>().array());
    show!(scores.clone().sum::<Rank1<3>, Axis<0>>().array());
    show!(scores.clone().sum::<Rank1<2>, Axis<1>>().array());

    // %% [markdown]
    // **Exercise 00.2.** Return the mean of each row of a table of any size. (The types say nearly
    // everything: if your answer compiles, it is probably right. What does the compiler say about
    // the other axis?)

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
            "(1 + 2 + 3) / 3 and (4 + 5 + 9) / 3. [6, 18] would be the sums; [3, 9] the sums divided \
             by the number of rows, but a row has C numbers.",
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
    // A matrix product combines each row of one table with each column of another. Multiply them
    // number by number and add up: the row (4, 5, 9) and the column (1, -1, 2) give
    // 4 · 1 + 5 · (-1) + 9 · 2 = 17. So (2, 3) times (3, 4) gives (2, 4), and the inner sizes, 3 and
    // 3, must be equal.

    // %%
    let right: Tensor<Rank2<3, 4>, f32, Cpu> = dev.tensor([
        [1.0, 0.0, 2.0, 1.0],
        [0.0, 1.0, 1.0, -1.0],
        [1.0, 0.0, 0.0, 2.0],
    ]);
    // The 17 is the last number: second row of `scores`, fourth column of `right`.
    show!(scores.clone().matmul(right));

    // %% [markdown]
    // Now make a mistake on purpose. Write this into a cell of your own and run it:
    //
    // ```rust
    // let wrong = scores.clone().matmul(scores.clone());
    // ```
    //
    // Nothing runs, because the compiler rejects (2, 3) times (2, 3). A notebook translates its
    // message and marks the place; the last line is the beginning of the original message.
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
    // Outside a notebook you see only Rust's own message. Its most useful lines, without the paths
    // of types:
    //
    // ```text
    // help: the trait `TryMatMul<Tensor<(Const<2>, Const<3>), f32, Cpu>>` is not implemented
    //       for `Tensor<(Const<2>, Const<3>), f32, Cpu>`
    // help: the following other types implement trait `TryMatMul<Rhs>`:
    //         `Tensor<(M, K), E, D, T>` implements `TryMatMul<Tensor<(K, N), E, D, R>>`
    // ```
    //
    // `TryMatMul` is the operation. The type in its brackets is the *right* side, the type after
    // "for" is the *left* side. The last line is the rule: (M, K) times (K, N), with the same K in
    // both. Here K would have to be 3 and 2.

    // %% [markdown]
    // ## Broadcasting
    //
    // Often a small tensor must be combined with a large one, such as the same three numbers added to
    // every row. Many libraries guess along which axis to repeat the smaller one. Here you name the
    // axis:

    // %%
    let bias: Tensor<Rank1<3>, f32, Cpu> = dev.tensor([10.0, 20.0, 30.0]);
    show!(scores.clone() + bias.clone().broadcast::<_, Axis<0>>());
    // With a size that is known only at run time, the shape is passed as a value.
    show!(rows.clone() + bias.clone().broadcast_like::<_, Axis<0>>(rows.shape()));

    // %% [markdown]
    // ## The layer that BERT is made of
    //
    // A **linear layer** turns rows of $I$ numbers into rows of $O$ numbers. Each output is a
    // weighted sum of all inputs plus a constant, the **bias**:
    //
    // $$ y = x W^\top + b, \qquad W \in \mathbb{R}^{O \times I}, \quad b \in \mathbb{R}^{O} $$
    //
    // $W$, the **weight**, is a table of $O$ rows and $I$ columns; $W^\top$ is the same table with
    // rows and columns swapped. Such layers hold 85 million of BERT-base's 110 million parameters
    // (the numbers that training changes) and take most of its time.

    // %%
    show!(
        Flow::new("A linear layer", "x: (rows, I)")
            .step("times W transposed: (I, O)", "gives (rows, O)")
            .step("+ b, repeated for each row", "(O) becomes (rows, O)")
    );

    // %% [markdown]
    // **Exercise 00.3.** Write it. `permute::<_, Axes2<1, 0>>()` swaps the axes of the weight: axis 1
    // comes first, then axis 0. `matmul` multiplies, and the bias is repeated for each row before it
    // is added. The number of rows is known only at run time.

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
            &dev.tensor([
                [101.0, 203.0, 305.0],
                [102.0, 204.0, 306.0],
                [103.0, 207.0, 311.0],
            ])
            .realize(),
            1e-4,
            "Row [1, 0] selects the first column of W: 1, 3, 5. If whole hundreds are missing, the \
             bias is. If the hundreds are right and the ones are not, W was not transposed \
             (`reshape` does not transpose, `permute` does).",
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
            "The expected numbers come from dfdx's Linear, of which the crate's model is made.",
        );
    });

    // %% [markdown]
    // This function is a large part of BERT. A layer of BERT-base contains six of them, and twelve
    // such layers stand one on the other. What is missing is how they get their numbers: lesson 01.

    // %% [markdown]
    // ## Follow this token
    //
    // This page follows a blank through `cloze-tiny`, a small trained BERT, with the true numbers.
    // Each lesson of the core adds a stage. A notebook shows it; elsewhere a command writes it for a
    // browser: `cloze lessons picture token`.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(0));

    // %% [markdown]
    // ## What goes wrong
    //
    // Two compiler errors that everybody meets in the first hour (here without Rust's own words), and
    // an error at run time.
    //
    // **A tensor that was moved.** `let doubled = scores + scores;`
    //
    // ```text
    // error[E0382]: `scores` was moved in line 1: write `scores.clone()` there to keep it, or lend it as `&scores`
    //    1 | let doubled = scores + scores;
    //      |               --------------- `scores` moved due to usage in operator
    //      |                        ^^^^^^ value used here after move
    // ```
    //
    // The left side took it. Write `scores.clone() + scores`.
    //
    // **Two shapes that differ.** `let y = scores + bias;`, (2, 3) plus (3):
    //
    // ```text
    // error[E0277]: +: the left is 2×3 and the right is a vector of 3: make the right 2×3 first, with `.broadcast::<Rank2<2, 3>, _>()`
    // ```
    //
    // Say how to repeat the bias: give the new shape, as in the message, or the axis,
    // `bias.broadcast::<_, Axis<0>>()`.
    //
    // **Sizes known only at run time.** Four rows plus five rows, both of the type `(usize,
    // Const<3>)`, compile. The program stops:
    //
    // ```text
    // panic: the two tensors of an operation by elements (`+`, `*`, …) differ in shape: the left is 4×? and the right is 5×?: the sizes 4 and 5 differ
    // dfdx: assertion `left == right` failed
    //         left: (4, Const)
    //        right: (5, Const)
    // ```
    //
    // A `usize` size is checked only when the program runs. (`?` is a size that the message doesn't
    // know: here the `Const`, in the compiler's messages the `usize`.)

    // %% [markdown]
    // ## Expected numbers
    //
    // - the sum of all `scores` is 24, the sums of the columns are 5, 7 and 12, those of the rows 6
    //   and 18;
    // - the product with `right` is (4, 2, 4, 5) and (13, 5, 13, 17);
    // - your linear layer and dfdx's agree within 0.001 at BERT-base's width of 768;
    // - every cell computes for less than a second; the rest is compiling.

    // %% [markdown]
    // ## In the terminal
    //
    // You can take a lesson without Jupyter. `cargo run -p cloze-kernel -- repl` opens a session in
    // the terminal; type `:lesson 00` there, then `:next` for each step. `cargo run --example
    // 00_orientation` runs the whole lesson as a program, with its solutions.

    // %% [markdown]
    // ## Open questions
    //
    // 1. A size in a type costs nothing and catches errors; a `usize` accepts any data. Which sizes
    //    would you fix in types if one program had to run ten sizes of BERT?
    // 2. Two linear layers, one after the other: is there a single linear layer that computes the
    //    same? (Lesson 06 shows what follows from the answer.)
    //
    // The crate's source of this part: `src/prelude.rs` lists what `use cloze::prelude::*` imports,
    // and in `src/model/layers.rs` such tensors become BERT. Next: [lesson 01](01_gradients.rs), in
    // which a model learns.

    // %% [end]
    cloze::lessons::finish("00_orientation")
}
