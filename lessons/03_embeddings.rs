// ---
// title = "Embeddings: from ids to vectors that know their place"
// summary = "Look token, segment and position vectors up, add them, normalise them: the first module of BERT, compared with the crate's."
// track = "core"
// minutes = 58
// seconds = 25
// needs = ["01", "02"]
//
// [[exercise]]
// id = "03.1"
// key = "lookup"
// was = "02.1"
// title = "Look rows up in a table"
// hints = [
//     "`gather` picks rows: `table.clone().gather(index)`, where the index is a tensor of `usize`. `index(ids)`, defined in the cell above, makes one.",
//     "`table` is borrowed and `gather` consumes its tensor, so give it a clone. (A clone of a tensor shares its numbers; it costs next to nothing.)",
//     "The whole body: `table.clone().gather(index(ids))`.",
// ]
//
// [[exercise]]
// id = "03.2"
// key = "layer_norm"
// was = "02.3"
// title = "LayerNorm by hand"
// hints = [
//     "First one number for each row: `x.clone().mean::<(usize,), Axis<1>>()` averages along axis 1, the columns, and leaves one number for each row.",
//     "A tensor with one number for each row can't be subtracted from one with N numbers for each row until it is repeated along the columns: `mean.broadcast_like::<_, Axis<1>>(&shape)`, where `let shape = *x.shape();`.",
//     "The variance is the mean of the squares *after* the mean has been subtracted: `centred.clone().square().mean::<(usize,), Axis<1>>()`. Divide by `(variance + epsilon).sqrt()`, again repeated along the columns.",
//     "gamma and beta have one number for each column, so repeat them along the rows, axis 0: `gamma.clone().broadcast_like::<_, Axis<0>>(&shape)`. Multiply by gamma, then add beta.",
// ]
//
// [[exercise]]
// id = "03.3"
// key = "embed_batch"
// was = "02.4"
// title = "A batch of sentences, embedded"
// hints = [
//     "First the two sizes: B is the number of sentences, S the length of the longest. Make three `Vec<usize>` of B · S zeros: token ids, segment ids, positions.",
//     "Token `i` of sentence `b` belongs at `b * S + i` in each of the three lists. Where there is no token, the entry stays 0: `[PAD]`, segment 0, position 0.",
//     "`dev.tensor_from_vec(list, (B, S))` makes an index with two axes. `gather` with that index returns (B, S, H): it replaces every entry of the index by a row.",
//     "Look up in `table.retaped::<T>()`, add the three results, then apply `tables.norm.forward(sum)`. If the compiler needs a type, name that of the sum: `let sum: Batch<T> = …`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 03 · Embeddings: from ids to vectors that know their place
    //
    // A token id is a name, not a quantity: id 2,000 is not twice as much of anything as id 1,000.
    // In this lesson you turn ids into vectors that a network can compute with. You look up a vector
    // for what a token is, one for where it stands and one for which sentence it belongs to, add the
    // three, and normalise the sum. The result is BERT's first module, and its numbers equal those
    // of the crate's.
    //
    // *About 58 minutes; every cell answers within a second or two. You need lessons 01 and 02.*

    // %%
    use cloze::lessons::data;
    use cloze::lessons::support::attention;
    use cloze::model::weights::Model;
    use cloze::model::{Embeddings, real_rows};
    use cloze::prelude::*;
    use cloze::text::Encoding;
    use dfdx::nn::modules::LayerNorm1D;

    // %% [markdown]
    // ## Where we are going
    //
    // We take the parameters from a trained model: `cloze-tiny`, a small BERT that comes with the
    // crate. Its vectors already mean something, so there is something to see in them.

    // %%
    let folder: std::path::PathBuf = data::folder(data::TINY)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let dev: Cpu = Cpu::default();
    // Width 128, 2 heads of size 64, feed-forward width 512; you need only the first number here.
    let bert: Bert<128, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &dev)?;

    // %% [markdown]
    // This is the picture of the lesson. Each column is one token of a pair of sentences. Below the
    // token stand the three vectors that are added: one for the token, one for its segment (which of
    // the two sentences), one for its position.

    // %%
    let (pair, pair_segments): (Encoding, Vec<u32>) =
        tokenizer.encode_pair("The dog bit the man.", "The man went home.");
    let places: Vec<u32> = (0..pair.ids.len() as u32).collect();

    /// Names with numbers: W7, W12, …
    fn named(name: &str, numbers: &[u32]) -> Vec<String> {
        numbers.iter().map(|n| format!("{name}{n}")).collect()
    }

    show!(
        TokenStrip::new(
            "BERT's input: the sum of three vectors for each token",
            &pair.tokens
        )
        .row("token", &named("W", &pair.ids))
        .row("+ segment", &named("G", &pair_segments))
        .row("+ position", &named("P", &places))
        .colored(&pair_segments)
    );

    // %% [markdown]
    // ## The idea
    //
    // There are three tables of vectors, all of width $H$ (128 here, 768 in BERT-base): $W$ with a
    // row for each piece of the vocabulary, $G$ with a row for each of the two segments, $P$ with a
    // row for each position. All of them start as random numbers and are learned like every other
    // parameter. Token $i$, with the id $t_i$ and the segment $g_i$, enters BERT as
    //
    // $$ h_i = \operatorname{LayerNorm}\left( W_{t_i} + G_{g_i} + P_i \right), \qquad h_i \in \mathbb{R}^H . $$
    //
    // The sum is in the paper ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3 and
    // figure 2), the LayerNorm in [Google's
    // code](https://github.com/google-research/bert/blob/master/modeling.py), at the end of
    // `embedding_postprocessor`.

    // %% [markdown]
    // ## Step 1: look up
    //
    // The tables are tensors. A length that is known only when the program runs, such as the size of
    // a vocabulary, is a `usize` in the type; a length that is part of the design is a `Const`.

    // %%
    const H: usize = 128;

    /// Rows of `N` numbers, how many is known at run time: (rows, N).
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    /// Makes row numbers a tensor, as `gather` wants them.
    fn index(rows: &[u32]) -> Tensor<(usize,), usize, Cpu> {
        let rows: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
        let shape = (rows.len(),);
        Cpu::default().tensor_from_vec(rows, shape)
    }

    let words: Rows<H> = bert.embeddings.words.clone();
    let segments: Rows<H> = bert.embeddings.segments.clone();
    let positions: Rows<H> = bert.embeddings.positions.clone();
    println!("words     {:?}", words.shape().concrete());
    println!("segments  {:?}", segments.shape().concrete());
    println!("positions {:?}", positions.shape().concrete());

    // %% [markdown]
    // **Exercise 03.1.** Return for each id in `ids` the row of `table` with that number. The method
    // `gather` of a tensor picks rows; it takes their numbers as `index` makes them.

    // %%
    fn lookup<const N: usize>(table: &Rows<N>, ids: &[u32]) -> Rows<N> {
        // BEGIN SOLUTION
        cloze::solution!("03.1");
        table.clone().gather(index(ids))
        // END SOLUTION
    }

    // %%
    check!("03.1", |judge| {
        let dev = Cpu::default();
        let numbered: Rows<2> = dev.tensor([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]).realize();
        judge.close_tensor(
            "lookup(table, &[2, 0, 2]), where row i of the table is [i, i + 0.5],",
            &lookup(&numbered, &[2, 0, 2]),
            &dev.tensor([[2.0, 2.5], [0.0, 0.5], [2.0, 2.5]]).realize(),
            1e-6,
            "One row for each id, in the order of the ids; the same row may occur twice.",
        );
        // As textbooks write it: a row of zeros with a single one, times the table.
        let ids = &pair.ids[..4];
        let mut ones = vec![0.0; ids.len() * model.config.vocab_size];
        for (row, &id) in ids.iter().enumerate() {
            ones[row * model.config.vocab_size + id as usize] = 1.0;
        }
        let one_hot: Tensor<(usize, usize), f32, Cpu> =
            dev.tensor_from_vec(ones, (ids.len(), model.config.vocab_size));
        judge.close_tensor(
            "your lookup of the pair's first four tokens",
            &lookup(&words, ids),
            &one_hot.matmul(words.clone()),
            1e-6,
            "Write each id as a row of zeros with a single one and multiply by the table: the \
             result is the same rows.",
        );
    });

    // %% [markdown]
    // The check also did it the textbook way, "one-hot vector times embedding matrix": the same
    // function, with 8,000 × 128 multiplications for each token, nearly all of them by zero. Because
    // an embedding *is* a linear layer, it learns like one.

    // %% [markdown]
    // ### What a lookup learns
    //
    // Lesson 01 showed the tape: `leaky_trace()` begins to record, `backward()` goes back. Here the
    // rows 1, 3 and 1 are taken from a table of five rows, and the loss is the sum of all numbers
    // taken.

    // %%
    let small: Tensor<Rank2<5, 3>, f32, Cpu> = dev.zeros();
    let taken: Tensor<Rank2<3, 3>, f32, Cpu, OwnedTape<f32, Cpu>> =
        small.leaky_trace().gather(dev.tensor([1, 3, 1]));
    let gradients: Gradients<f32, Cpu> = taken.sum::<Rank0, _>().backward();
    show!(gradients.get(&small));

    // %% [markdown]
    // A lookup *adds* the gradient of each token to that token's row: row 1 was used twice and gets
    // 2, row 3 gets 1, and the unused rows get nothing. So the row of a rare word seldom learns
    // anything, which is one more reason for word pieces.

    // %% [markdown]
    // ### What a trained table knows
    //
    // Training moves two words towards each other if they fill the same blanks. The cosine of the
    // angle between two vectors measures how close their directions are: 1 for the same direction, 0
    // for a right angle. Change the words and run the cell again. (A word that is not one piece of the
    // vocabulary, or has a capital letter, prints nothing.)

    // %%
    for word in ["his", "three", "said", "king", "water", "never", "morning"] {
        let near: Vec<String> = attention::nearest(&words, &tokenizer, word, 6)
            .iter()
            .map(|(piece, cosine)| format!("{piece} {cosine:.2}"))
            .collect();
        println!("{word:>8}: {}", near.join("  "));
    }

    // %% [markdown]
    // ## Step 2: where, and which sentence
    //
    // A lookup returns the same vector for `the` wherever it stands. And the next part of BERT,
    // attention, treats its input as a *set* of vectors (you will measure that in lesson 05). With
    // word vectors alone, *the dog bit the man* and *the man bit the dog* would be the same input. So
    // BERT adds to each vector its position and, for pairs, its sentence.
    //
    // Positions count from 0 through both sentences. (The table of positions has more rows than this
    // text needs: one for each position that a text can have.)

    // %%
    let sums: Rows<H> = words.clone().gather(index(&pair.ids))
        + segments.clone().gather(index(&pair_segments))
        + positions.clone().gather(index(&places));

    // %% [markdown]
    // Look at the two `the` of the first sentence, at positions 1 and 4: the first 40 numbers of the
    // parts and of the sums.

    // %%
    {
        let start = |rows: &Rows<H>, at: usize| rows.as_vec()[at * H..][..40].to_vec();
        let shown: Vec<f32> = [
            start(&words, pair.ids[1] as usize),
            start(&segments, 0),
            start(&positions, 1),
            start(&sums, 1),
            start(&positions, 4),
            start(&sums, 4),
        ]
        .concat();
        let names = ["W the", "G 0", "P 1", "sum at 1", "P 4", "sum at 4"];
        show!(HeatMap::new("One word, two sums", &shown, 40).labels(&names, &[]));
    }

    // %% [markdown]
    // What do the positions know? The rows of $P$ began as unrelated random vectors. These are the
    // cosines between positions after training:

    // %%
    let first: Vec<u32> = (0..48).collect();
    let cosines: Vec<f32> = attention::cosines(&positions.clone().gather(index(&first)));
    let names: Vec<String> = first
        .iter()
        .map(|p| if p % 8 == 0 { p.to_string() } else { "".into() })
        .collect();
    show!(HeatMap::new("Cosines between positions 0 to 47", &cosines, 48).labels(&names, &names));
    for apart in [1, 4, 16, 30] {
        let of_pairs: Vec<f32> = (1..48 - apart)
            .map(|p| cosines[p * 48 + p + apart])
            .collect();
        let mean = of_pairs.iter().sum::<f32>() / of_pairs.len() as f32;
        println!("positions {apart:>2} apart have a mean cosine of {mean:.2}");
    }

    // %% [markdown]
    // Neighbours point in similar directions: the band along the diagonal. Positions more than about
    // 24 apart mostly point away from each other (orange). Training has found the order. (Position 0,
    // where only `[CLS]` ever stands, is unlike all others; the means leave it out.)

    // %% [markdown]
    // ## Step 3: LayerNorm
    //
    // A sum of three learned vectors can have any length. These are the lengths for our pair:

    // %%
    let lengths: Vec<f32> = sums
        .clone()
        .square()
        .sum::<(usize,), Axis<1>>()
        .sqrt()
        .as_vec();
    show!(
        BarChart::new("Length of each token's sum").bars(
            pair.tokens
                .iter()
                .cloned()
                .zip(lengths.iter().map(|&l| f64::from(l)))
        )
    );

    // %% [markdown]
    // LayerNorm brings all of them to one size: it gives every row the mean 0 and the variance 1.
    // There are two reasons to do that.
    //
    // **Tokens must be comparable.** Lesson 04 compares tokens by dot products. A vector twice as
    // long as another makes all of its products twice as large, whatever the token means.
    //
    // **Layers must be stackable.** If each layer makes its input a little larger, or a little
    // smaller, the factors multiply, and on its way back the gradient is multiplied by the same
    // factors. But all layers learn with one learning rate, which can't fit gradients of such
    // different sizes. Measure it: send random vectors through 24 layers, each of which multiplies
    // them by a random matrix and does nothing else. In one stack the weights are so small that a
    // layer shrinks its input to about 0.8 of its size, in the other so large that it stretches it to
    // 1.25. Run each stack with and without a LayerNorm after every layer.

    // %%
    let mut chart: LineChart = LineChart::new("The size of the numbers, layer by layer")
        .axes("layer", "root mean square")
        .logarithmic();
    for (gain, normalised) in [(0.8, false), (1.25, false), (0.8, true), (1.25, true)] {
        let stack = attention::random_stack(24, gain, normalised);
        let with = if normalised { "with" } else { "without" };
        let name = format!("{gain} {with} LayerNorm");
        println!(
            "{name}: size {:.3} after layer 24, gradient {:.3} at the bottom",
            stack.sizes[23].1, stack.gradient
        );
        chart = chart.line(name, &stack.sizes);
    }
    show!(chart);

    // %% [markdown]
    // Without LayerNorm, numbers and gradients vanish or explode: in 24 layers they shrink or grow
    // more than a hundredfold. With it every layer hands on numbers of size 1, however large its
    // weights are. The gradient stays usable too: LayerNorm divides a row by its standard deviation,
    // and on the way back it divides the gradient by the same number. Mean and deviation depend on the
    // row too, which centres the gradient and damps it further. ([Xu et al.
    // 2019](https://arxiv.org/abs/1911.07013) find that these derivatives matter more than the
    // normalised numbers.) So BERT has a LayerNorm here, and two more in each of its layers (lesson 06).
    //
    // After normalising, the model may choose a scale $\gamma_j$ and a shift $\beta_j$ for each of the
    // $H$ columns ([Ba et al. 2016](https://arxiv.org/abs/1607.06450), section 3). For a row $x_1,
    // \dots, x_H$:
    //
    // $$ \mu = \frac{1}{H} \sum_j x_j, \qquad \sigma^2 = \frac{1}{H} \sum_j (x_j - \mu)^2, \qquad
    //    y_j = \gamma_j \, \frac{x_j - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta_j $$
    //
    // Every row is normalised on its own: nothing depends on the other tokens or on the other
    // sentences of a batch. $\varepsilon$ prevents a division by zero for a row of equal numbers;
    // BERT takes $10^{-12}$.
    //
    // **Exercise 03.2.** Write it with operations on whole tensors. Two shapes meet here: mean and
    // variance have one number for each *row*, gamma and beta one for each *column*. Each must be
    // repeated along the other axis before it can be combined with (rows, N), and the types won't let
    // you forget that.

    // %%
    fn layer_norm<const N: usize>(
        x: Rows<N>,
        gamma: &Tensor<Rank1<N>, f32, Cpu>,
        beta: &Tensor<Rank1<N>, f32, Cpu>,
        epsilon: f32,
    ) -> Rows<N> {
        // BEGIN SOLUTION
        cloze::solution!("03.2");
        let shape = *x.shape();
        let mean = x.clone().mean::<(usize,), Axis<1>>();
        let centred = x - mean.broadcast_like::<_, Axis<1>>(&shape);
        let variance = centred.clone().square().mean::<(usize,), Axis<1>>();
        let deviation = (variance + epsilon).sqrt();
        let normal = centred / deviation.broadcast_like::<_, Axis<1>>(&shape);
        normal * gamma.clone().broadcast_like::<_, Axis<0>>(&shape)
            + beta.clone().broadcast_like::<_, Axis<0>>(&shape)
        // END SOLUTION
    }

    // %%
    check!("03.2", |judge| {
        let dev = Cpu::default();
        let (ones, zeros) = (dev.ones(), dev.zeros());
        let x: Rows<4> = dev
            .tensor([[1.0, 2.0, 3.0, 4.0], [6.0, 6.0, 10.0, 10.0]])
            .realize();
        let yours = layer_norm(x.clone(), &ones, &zeros, 1e-12);
        let got = f64::from(yours.as_vec()[0]);
        // Frequent slips, by the first number that each of them yields.
        let slips = [
            (
                -1.2,
                "You divided by the variance. Divide by its square root.",
            ),
            (
                -1.1619,
                "Your variance divides by N - 1, as is usual for samples; LayerNorm divides by N.",
            ),
            (
                0.8944,
                "You did not subtract the mean from the numbers that you divide.",
            ),
            (
                -1.5,
                "You subtracted the mean but did not divide by the deviation.",
            ),
            (
                -0.5477,
                "Your variance is the mean of x². Subtract the mean before you square.",
            ),
            (
                -1.0,
                "You normalised the columns. Each row is normalised on its own: `Axis<1>`.",
            ),
            (
                -1.3315,
                "You took one mean and one variance of the whole tensor. Each row has its own.",
            ),
            (
                -0.6708,
                "You divided by the root of the *sum* of the squares. The variance is their mean.",
            ),
        ];
        for (value, slip) in slips {
            judge.holds(
                &format!(
                    "the first number of layer_norm([1, 2, 3, 4]) is -1.3416, yours is {got:.4}"
                ),
                (got - value).abs() > 1e-3,
                slip,
            );
        }
        judge.close_tensor(
            "layer_norm of two rows, with gamma 1 and beta 0,",
            &yours,
            &dev.tensor([
                [-1.341641, -0.447214, 0.447214, 1.341641],
                [-1.0, -1.0, 1.0, 1.0],
            ])
            .realize(),
            1e-4,
            "Row 0 has the mean 2.5 and the variance 1.25, row 1 the mean 8 and the variance 4.",
        );
        let equal: Rows<3> = dev.tensor([[7.0, 7.0, 7.0]]).realize();
        judge.close_tensor(
            "layer_norm of a row of equal numbers, with epsilon 1e-12,",
            &layer_norm(equal.clone(), &dev.ones(), &dev.zeros(), 1e-12),
            &dev.tensor([[0.0, 0.0, 0.0]]).realize(),
            1e-6,
            "NaN is 0 / 0: add epsilon to the variance before you take the root.",
        );
        let wide: Rows<2> = dev.tensor([[0.0, 2.0]]).realize();
        judge.close_tensor(
            "layer_norm of [0, 2] with epsilon 3",
            &layer_norm(wide, &dev.ones(), &dev.zeros(), 3.0),
            &dev.tensor([[-0.5, 0.5]]).realize(),
            1e-6,
            "The variance is 1, and the root of 1 + 3 is 2: epsilon stands under the root.",
        );
        let (gamma, beta) = (
            dev.tensor([1.0, 10.0, 1.0, 1.0]),
            dev.tensor([0.0, 0.0, 5.0, 0.0]),
        );
        judge.close_tensor(
            "layer_norm with gamma [1, 10, 1, 1] and beta [0, 0, 5, 0]",
            &layer_norm(x, &gamma, &beta, 1e-12),
            &dev.tensor([
                [-1.341641, -4.47214, 5.447214, 1.341641],
                [-1.0, -10.0, 6.0, 1.0],
            ])
            .realize(),
            1e-4,
            "gamma and beta have one number for each column, the same for every row. Add beta after \
             you multiplied by gamma.",
        );
        let crates = LayerNorm1D {
            gamma: dev.sample_normal(),
            beta: dev.sample_normal(),
            epsilon: 1e-12,
        };
        judge.close_tensor(
            "your LayerNorm of the pair's sums",
            &layer_norm(sums.clone(), &crates.gamma, &crates.beta, 1e-12),
            &crates.forward(sums.clone()),
            1e-4,
            "Every slip that the checks above know is excluded: compare your formula with the text once more.",
        );
    });

    // %%
    if solved!("03.2") {
        let normal = layer_norm(sums.clone(), &dev.ones(), &dev.zeros(), 1e-12);
        let lengths = normal.square().sum::<(usize,), Axis<1>>().sqrt().as_vec();
        println!("lengths after LayerNorm: {lengths:.3?}");
        println!("the square root of H is  {:.3}", (H as f64).sqrt());
    }

    // %% [markdown]
    // Now all lengths are $\sqrt{H}$: $H$ numbers whose squares have the mean 1. In geometry,
    // LayerNorm puts every token on one sphere, and $\gamma$ and $\beta$ stretch and move that
    // sphere.

    // %% [markdown]
    // In a notebook the next cell is a page to play with. It asks what LayerNorm does not notice.
    // (Elsewhere `cloze lessons picture layer-norm` writes it for a browser.)

    // %%
    show!(Picture::LayerNorm);

    // %% [markdown]
    // ## Step 4: the whole module, for a batch
    //
    // A processor is busy only when it gets many tokens at once, so BERT embeds several sentences
    // together. They have different lengths, and a tensor is a rectangle: short sentences are
    // filled up with `[PAD]`. The shape has three axes now, $(B, S, H)$: sentences, positions,
    // numbers.
    //
    // **Exercise 03.3.** Embed a batch. Each sentence is given by its ids and its segment ids.
    // `tables` is the crate's: it holds the tables `words`, `segments` and `positions`, and
    // `tables.norm.forward(x)` computes what you wrote in 03.2, for three axes too. For an index of
    // two axes, (B, S), `gather` returns (B, S, H); name that type, `Batch<T>`, with a `let`.
    //
    // From lesson 08 on your function trains. `T` says whether operations are recorded: `NoneTape`
    // when the model is only used, `OwnedTape` in training. So take `table.retaped::<T>()` in place
    // of `table.clone()` for all three: the same numbers, with a tape of the kind that is asked for.

    // %%
    /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
    type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;
    /// The parameters of BERT's input.
    type Tables = Embeddings<H, f32, Cpu>;

    fn embed_batch<T: Taped>(tables: &Tables, sentences: &[(Vec<u32>, Vec<u32>)]) -> Batch<T> {
        // BEGIN SOLUTION
        cloze::solution!("03.3");
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
        // END SOLUTION
    }

    // %% [markdown]
    // The check compares your module with the crate's, which has the same parameters and gets the
    // same three pairs of sentences. `Packed` is the crate's batch: it holds real tokens only, one
    // sentence after the other.

    // %%
    let texts: [(&str, &str); 3] = [
        ("The dog bit the man.", "The man went home."),
        ("Never!", "Not once in all my life, said the captain."),
        ("It rained.", "So they stayed."),
    ];
    let mut sentences: Vec<(Vec<u32>, Vec<u32>)> = Vec::new();
    let mut batch: Packed = Packed::default();
    for (number, (a, b)) in (0..).zip(texts) {
        let (encoding, segments) = tokenizer.encode_pair(a, b);
        batch.push(number, &encoding.ids, &segments);
        sentences.push((encoding.ids, segments));
    }
    let theirs: Batch = attention::embedded(&bert, &batch);
    show!(theirs.shape().concrete(), batch.rows());

    // %%
    check!("03.3", |judge| {
        let tables = &bert.embeddings;
        let yours = embed_batch::<NoneTape>(tables, &sentences);
        judge.equal(
            "the shape (B, S, H) of the batch above",
            yours.shape().concrete(),
            theirs.shape().concrete(),
            "B sentences, S tokens in the longest, H numbers for each.",
        );
        // Only tensors of the same shape can be compared. `real_rows` leaves the padding out.
        if yours.shape() == theirs.shape() {
            judge.close_tensor(
                "your embedding of the batch, the padding left out,",
                &real_rows(yours.clone(), &batch),
                &real_rows(theirs.clone(), &batch),
                1e-4,
                "The rows of all sentences are counted through, those of the first sentence first. Do \
                 positions start from 0 in every sentence? Is each segment id from the sentence's second \
                 list? Does the LayerNorm come last?",
            );
            let alone = embed_batch::<NoneTape>(tables, &sentences[2..3]);
            let ids = sentences[2].0.len();
            judge.equal(
                "the shape (B, S, H) of the third sentence embedded alone",
                alone.shape().concrete(),
                [1, ids, H],
                "S is the length of the longest sentence of the batch, and this batch has only one.",
            );
            if alone.shape().concrete() == [1, ids, H] {
                judge.close_tensor(
                    "the third sentence embedded alone",
                    &alone.reshape_like(&(ids, Const::<H>)),
                    &real_rows(theirs.clone(), &batch)
                        .slice((batch.rows() - ids.., ..))
                        .realize(),
                    1e-4,
                    "A sentence has the same vectors alone as in a batch.",
                );
            }
        }
        let taped = embed_batch::<OwnedTape<f32, Cpu>>(tables, &sentences);
        let mut gradients = taped.square().sum::<Rank0, _>().backward();
        for (name, table) in [
            ("words", &tables.words),
            ("segments", &tables.segments),
            ("positions", &tables.positions),
        ] {
            judge.holds(
                &format!("in training the gradient reaches the table of the {name}"),
                // A table that no tape has seen gets zeros here: `get` alone would panic.
                gradients.try_alloc_for(table).is_ok()
                    && gradients.get(table).as_vec().iter().any(|&g| g != 0.0),
                "This table was looked up without a tape: take `table.retaped::<T>()`.",
            );
        }
    });

    // %% [markdown]
    // That is the first module of BERT. The crate's differs in one thing: during training it sets a
    // tenth of the numbers to zero at random after the LayerNorm (dropout, lesson 06). Of the 48
    // places of this batch, 7 are padding.

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *embeddings*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(3));

    // %% [markdown]
    // ## What goes wrong
    //
    // **An id without a row in the table**, because the vocabulary belongs to another model or
    // someone added a piece to `vocab.txt`. The crate checks ids before it embeds and names the
    // sentence:

    // %%
    let mut foreign: Packed = Packed::default();
    foreign.push(0, &[2, 8_500, 3], &[0, 0, 0]);
    let limits: (usize, usize, usize) = (
        model.config.vocab_size,
        model.config.max_position_embeddings,
        model.config.type_vocab_size,
    );
    if let Err(error) = foreign.check(limits.0, limits.1, limits.2) {
        println!("{error}");
    }

    // %% [markdown]
    // **A text with more tokens than there are positions** has no row for the next position, so BERT
    // can't read on. (BERT-base has 512 positions, this model 128. Lesson 14 cuts long texts into
    // windows.)
    //
    // **Shapes that do not fit.** One segment's vector, of the shape (128), added to the rows of a
    // sentence, (14, 128):
    //
    // ```text
    // error[E0277]: +: the left is ?×128 and the right is a vector of 128: make the right ?×128 first, with `.broadcast_like::<_, Axis<0>>(&shape)` …
    // rustc: the trait bound `Tensor<(usize, Const<128>), f32, Cpu>: TryAdd<Tensor<(Const<128>,), f32, Cpu>>` is not satisfied
    // ```
    //
    // Repeat the vector for every row first: `segment.broadcast_like::<_, Axis<0>>(sums.shape())`.
    //
    // **And no error at all**: segments that are all 0 for a pair, or positions that continue from
    // one sentence of the batch to the next. Every shape is right, but the model does not read what
    // you wrote. So compare one batch with a model that you trust, as you did above.

    // %% [markdown]
    // ## Expected numbers
    //
    // - the tables: 8,000, 2 and 128 rows of 128 numbers;
    // - the pieces nearest to `three` are other numbers, those nearest to `morning` other times of
    //   the day;
    // - neighbouring positions have a mean cosine of 0.61, those 30 apart one of -0.18;
    // - after 24 layers without LayerNorm, sizes and gradients have shrunk or grown more than a
    //   hundredfold; with LayerNorm all sizes are 1.000 and both gradients are 1.8;
    // - after LayerNorm every row has the length 11.314, the root of 128;
    // - the batch is 3 × 16 × 128 and has 41 tokens;
    // - the cells compute for about a second; the rest is compiling.

    // %% [markdown]
    // ## On real text
    //
    // Any BERT in Hugging Face's layout opens the same way: put its folder in place of
    // `data::folder(data::TINY)?` and its width in place of 128 (768 for BERT-base, `Bert<768, 12,
    // 64, 3072, f32, Cpu>`). `cloze features --model DIR --layers 0 --pool none < lines.txt` writes
    // the output of this module for each line of a file.

    // %% [markdown]
    // ## Open questions
    //
    // 1. The three vectors are added. Joining them end to end (128 numbers for the word, 16 for the
    //    position, …) would keep them apart for certain. What would that cost, and what could
    //    attention then not do as easily?
    // 2. A learned table ends with its last row. Sines and cosines do not end. Could a model with
    //    sines, trained on 128 tokens, read 512? What has it seen of the later positions?
    //
    // The crate's source of this part: `Embeddings` in `src/model/layers.rs`, and `Packed` in
    // `src/data/packed.rs`. Next: [lesson 04](04_attention.rs), in which the tokens begin to
    // look at each other.

    // %% [end]
    cloze::lessons::finish("03_embeddings")
}
