// ---
// title = "Embeddings: from ids to vectors that know their place"
// summary = "Look token, segment and position vectors up, add them, normalise them: the first module of BERT, compared with the crate's."
// minutes = 40
// seconds = 30
// needs = ["00", "01"]
//
// [[exercise]]
// id = "02.1"
// title = "Look rows up in a table"
// hints = [
//     "`gather` picks rows: `table.clone().gather(index)`, where the index is a tensor of `usize`. `index(ids)`, defined in the cell above, makes one.",
//     "`table` is borrowed and `gather` takes a tensor whole, so it gets a clone. (A clone of a tensor shares its numbers; it costs next to nothing.)",
//     "The whole body: `table.clone().gather(index(ids))`.",
// ]
//
// [[exercise]]
// id = "02.2"
// title = "Add what, where and which"
// hints = [
//     "Three lookups in three tables. Each gives one row of H numbers a token, so the three results have the same shape and can be added with `+`.",
//     "Nobody hands you the positions: they are 0, 1, 2, … as many as there are ids. `(0..ids.len() as u32).collect::<Vec<u32>>()`.",
//     "`words.clone().gather(index(ids))` is the first summand; the second picks from `segments` with `segment_ids`, the third from `positions` with 0, 1, 2, …",
// ]
//
// [[exercise]]
// id = "02.3"
// title = "LayerNorm by hand"
// hints = [
//     "One number for each row: `x.clone().mean::<(usize,), Axis<1>>()` averages along axis 1, the columns, and leaves a tensor with one number a row.",
//     "A tensor with one number a row can't be subtracted from one with H numbers a row until it is repeated along the columns: `mean.broadcast_like::<_, Axis<1>>(&shape)`, where `let shape = *x.shape();`.",
//     "The variance is the mean of the squares *after* the mean was subtracted: `centred.clone().square().mean::<(usize,), Axis<1>>()`. Then `(variance + epsilon).sqrt()`, repeated along the columns again, divides.",
//     "gamma and beta have one number for each column, so they are repeated along the rows, axis 0: `gamma.clone().broadcast_like::<_, Axis<0>>(&shape)`. Multiply by the one, add the other.",
// ]
//
// [[exercise]]
// id = "02.4"
// title = "A batch of sentences, embedded"
// hints = [
//     "First the two sizes: B is the number of sentences, S the length of the longest. Make three `Vec<usize>` of B · S zeros: token ids, segment ids, positions.",
//     "Token `i` of sentence `b` goes to `b * S + i` in each of the three lists. What no token fills stays 0: `[PAD]`, segment 0, position 0.",
//     "`dev.tensor_from_vec(list, (B, S))` makes an index with two axes, and `gather` with it gives (B, S, H): every entry of the index becomes a row.",
//     "Add the three, then `tables.norm.forward(sum)`: dfdx's LayerNorm takes three axes too.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 02 · Embeddings: from ids to vectors that know their place
    //
    // A token id is a name, not a quantity: 2,000 is not twice as much of anything as 1,000. In
    // this lesson you turn ids into vectors that a network can compute with. You look up what a
    // token is, where it stands and which sentence it is of, add the three, and normalise the sum.
    // What you end with is BERT's first module, and it gives the same numbers as the crate's.
    //
    // *About 40 minutes; every cell answers within a second or two. You need lesson 01, and from
    // lesson 00 what a tensor with its shape in its type is.*

    // %%
    use cloze::lessons::data;
    use cloze::model::weights::Model;
    use cloze::model::{Pass, real_rows};
    use cloze::prelude::*;
    use cloze::text::Encoding;
    use dfdx::nn::modules::LayerNorm1D;

    // %% [markdown]
    // ## Where we are going
    //
    // We take the parts from a model that has been trained: `cloze-tiny`, a small BERT that comes
    // with the crate. Its vectors mean something already, so you can look at them.

    // %%
    let folder: std::path::PathBuf = data::folder(data::MODEL)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    println!(
        "{} pieces, {} numbers for each, {} positions, {} segments",
        model.config.vocab_size,
        model.config.hidden_size,
        model.config.max_position_embeddings,
        model.config.type_vocab_size
    );

    // %% [markdown]
    // This is the picture of the lesson. Each column is one token of a pair of sentences, and what
    // stands below it is added: a vector for the token, one for its segment, one for its position.

    // %%
    let (pair, pair_segments): (Encoding, Vec<u32>) =
        tokenizer.encode_pair("The dog bit the man.", "The man went home.");

    /// Names with numbers: W7, W12, …
    fn named(name: &str, numbers: &[u32]) -> Vec<String> {
        numbers.iter().map(|n| format!("{name}{n}")).collect()
    }

    let places: Vec<u32> = (0..pair.ids.len() as u32).collect();
    show!(
        TokenStrip::new("BERT's input: three vectors a token, added", &pair.tokens)
            .row("token", &named("W", &pair.ids))
            .row("+ segment", &named("S", &pair_segments))
            .row("+ position", &named("P", &places))
            .colored(&pair_segments)
    );

    // %% [markdown]
    // ## The idea
    //
    // There are three tables of vectors, all of width $H$ (128 here, 768 in BERT-base): $W$ with a
    // row for each piece of the vocabulary, $S$ with a row for each of the two segments, $P$ with a
    // row for each position. All of them start as random numbers and are learned like every other
    // parameter. Token $i$ with the id $x_i$ and the segment $s_i$ enters BERT as
    //
    // $$ h_i = \operatorname{LayerNorm}\left( W_{x_i} + S_{s_i} + P_i \right), \qquad h_i \in \mathbb{R}^H $$
    //
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3 and figure 2). The
    // original Transformer took sines and cosines for the positions ([Vaswani et al.
    // 2017](https://arxiv.org/abs/1706.03762), section 3.5); BERT learns them.
    //
    // ## Step 1: look up
    //
    // The tables come as tensors. A length that is known only when the program runs, such as the
    // size of a vocabulary, is a `usize` in the type; a length that is part of the design is a
    // `Const`.

    // %%
    const H: usize = 128;

    /// One row of `N` numbers for each of some things, how many is known at run time: (rows, N).
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    /// A table of the model's as a tensor.
    fn table(model: &Model, name: &str) -> cloze::Result<Rows<H>> {
        let values = model.parameter(name)?;
        Ok(Cpu::default().tensor_from_vec(values.to_vec(), (values.len() / H, Const)))
    }

    /// Numbers of rows as the tensor that `gather` wants.
    fn index(rows: &[u32]) -> Tensor<(usize,), usize, Cpu> {
        let rows: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
        let shape = (rows.len(),);
        Cpu::default().tensor_from_vec(rows, shape)
    }

    let words: Rows<H> = table(&model, "embeddings.word_embeddings.weight")?;
    let segments: Rows<H> = table(&model, "embeddings.token_type_embeddings.weight")?;
    let positions: Rows<H> = table(&model, "embeddings.position_embeddings.weight")?;
    println!("words     {:?}", words.shape().concrete());
    println!("segments  {:?}", segments.shape().concrete());
    println!("positions {:?}", positions.shape().concrete());

    // %% [markdown]
    // **Exercise 02.1.** Give the rows of `table` that `ids` name, in that order.

    // %%
    fn lookup<const N: usize>(table: &Rows<N>, ids: &[u32]) -> Rows<N> {
        // BEGIN SOLUTION
        cloze::solution!("02.1");
        table.clone().gather(index(ids))
        // END SOLUTION
    }

    // %%
    check!("02.1", |judge| {
        let dev = Cpu::default();
        let numbered: Rows<2> = dev.tensor([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]).realize();
        judge.close_tensor(
            "lookup(table, &[2, 0, 2]), where row i of the table is [i, i + 0.5],",
            &lookup(&numbered, &[2, 0, 2]),
            &dev.tensor([[2.0, 2.5], [0.0, 0.5], [2.0, 2.5]]).realize(),
            1e-6,
            "One row for each id, in the order of the ids; a row may be wanted twice.",
        );
        // What textbooks write: a row of zeros with a single one, times the table.
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
            "Each id as a one among zeros, multiplied by the whole table, gives these rows too.",
        );
    });

    // %% [markdown]
    // The check did it the textbook way as well: "one-hot vector times embedding matrix". It is the
    // same function, and it makes 8,000 × 128 multiplications a token, nearly all of them by zero.
    // A lookup makes none. That an embedding *is* a linear layer still matters, for it says how it
    // learns.
    //
    // ### What a lookup learns
    //
    // Lesson 00 showed the tape: `leaky_trace()` begins to record, `backward()` walks back. Here is
    // a table of five rows from which the rows 1, 3 and 1 are taken; the loss is the sum of
    // everything taken.

    // %%
    let dev: Cpu = Cpu::default();
    let small: Tensor<Rank2<5, 3>, f32, Cpu> = dev.zeros();
    let taken: Tensor<Rank2<3, 3>, f32, Cpu, OwnedTape<f32, Cpu>> =
        small.leaky_trace().gather(dev.tensor([1, 3, 1]));
    let gradients: Gradients<f32, Cpu> = taken.sum::<Rank0, _>().backward();
    show!(gradients.get(&small));

    // %% [markdown]
    // The gradient of a lookup *adds* each token's gradient to its row: row 1 was used twice and
    // gets 2, row 3 gets 1, and rows that were not used get nothing from the lookup. So a rare word is
    // seldom taught by what stands around it, which is one more reason for word pieces. (In BERT the
    // same table is the output matrix too, lesson 05: there every row is moved a little at every blank,
    // mostly away from it.)
    //
    // ### What a trained table knows
    //
    // Training moves two words together where they fill the same blanks. The cosine of the angle
    // between two vectors says how near they are: 1 for the same direction, 0 for unrelated. Change
    // the words and run the cell again.

    // %%
    /// The pieces whose vectors point most nearly in the direction of `word`'s.
    fn nearest(
        words: &Rows<H>,
        tokenizer: &WordPiece,
        word: &str,
        count: usize,
    ) -> Vec<(String, f64)> {
        let Some(id) = tokenizer.id(word) else {
            return Vec::new();
        };
        let lengths = words.clone().square().sum::<(usize,), Axis<1>>().sqrt();
        let directions = words.clone() / lengths.broadcast_like::<_, Axis<1>>(words.shape());
        let own: Tensor<Rank1<H>, f32, Cpu> = directions
            .clone()
            .select(Cpu::default().tensor(id as usize));
        let cosines = directions.matmul(own.reshape::<Rank2<H, 1>>()).as_vec();
        let mut all: Vec<(String, f64)> = (0u32..)
            .zip(cosines)
            // The special tokens and the word itself are no news.
            .filter(|(other, _)| *other != id && !tokenizer.special().contains(*other))
            .filter_map(|(other, c)| Some((tokenizer.token(other)?.to_owned(), f64::from(c))))
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(count);
        all
    }

    for word in ["his", "three", "said", "king", "water", "never", "morning"] {
        let near: Vec<String> = nearest(&words, &tokenizer, word, 6)
            .iter()
            .map(|(piece, cosine)| format!("{piece} {cosine:.2}"))
            .collect();
        println!("{word:>8}: {}", near.join("  "));
    }

    // %% [markdown]
    // ## Step 2: where, and which sentence
    //
    // A lookup gives `the` the same vector wherever it stands. What comes above in BERT, attention,
    // treats its input as a *set* of vectors (you will measure that in lesson 03). Without more,
    // *the dog bit the man* and *the man bit the dog* would be the same input. So each vector is
    // told its place, and, for pairs, its sentence.
    //
    // **Exercise 02.2.** Look up all three and add them. Positions count from 0, through both
    // sentences. (The table of positions has a row for each place that a text can have, most of them
    // more than this text needs.)

    // %%
    fn embed(
        words: &Rows<H>,
        segments: &Rows<H>,
        positions: &Rows<H>,
        ids: &[u32],
        segment_ids: &[u32],
    ) -> Rows<H> {
        // BEGIN SOLUTION
        cloze::solution!("02.2");
        let places: Vec<u32> = (0..ids.len() as u32).collect();
        words.clone().gather(index(ids))
            + segments.clone().gather(index(segment_ids))
            + positions.clone().gather(index(&places))
        // END SOLUTION
    }

    // %%
    check!("02.2", |judge| {
        // Tables whose numbers say which row of which table they are: 100s, 10s and ones.
        let dev = Cpu::default();
        let marked = |rows: usize, step: f32| -> Rows<H> {
            let values = (0..rows).flat_map(|row| [row as f32 * step; H]).collect();
            dev.tensor_from_vec(values, (rows, Const))
        };
        let (w, s, p) = (marked(9, 100.0), marked(3, 10.0), marked(8, 1.0));
        let yours = embed(&w, &s, &p, &[7, 5, 7], &[0, 0, 1]);
        judge.equal(
            "the number of rows for three ids",
            yours.shape().0,
            3,
            "One row for each token.",
        );
        let first: Vec<f32> = yours.as_vec().into_iter().step_by(H).collect();
        judge.equal(
            "the first column of embed(…, &[7, 5, 7], &[0, 0, 1]), where row i of the words is \
             100 i, of the segments 10 i, of the positions i,",
            first,
            vec![700.0, 501.0, 712.0],
            "Hundreds: the id. Tens: the segment. Ones: the position, from 0 \
             through both sentences. Which digit is wrong?",
        );
        let expected: Vec<f32> = (0..pair.ids.len())
            .flat_map(|i| {
                let row = |t: &Rows<H>, at: usize| t.as_vec()[at * H..][..H].to_vec();
                let (a, b, c) = (
                    row(&words, pair.ids[i] as usize),
                    row(&segments, pair_segments[i] as usize),
                    row(&positions, i),
                );
                (0..H).map(move |j| a[j] + b[j] + c[j])
            })
            .collect();
        judge.close_tensor(
            "embed of the pair above",
            &embed(&words, &segments, &positions, &pair.ids, &pair_segments),
            &dev.tensor_from_vec(expected, (pair.ids.len(), Const)),
            1e-5,
            "Here the check adds the rows up number by number.",
        );
    });

    // %% [markdown]
    // Look at one token's vectors: the two `the` of the first sentence, the first 40 numbers of
    // each.

    // %%
    if solved!("02.2") {
        let rows_of_the: Vec<usize> = (0..pair.tokens.len())
            .filter(|&i| pair.tokens[i] == "the")
            .collect();
        let sums = embed(&words, &segments, &positions, &pair.ids, &pair_segments).as_vec();
        let (w, s, p) = (words.as_vec(), segments.as_vec(), positions.as_vec());
        let mut shown: Vec<f32> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for &at in rows_of_the.iter().take(2) {
            let id = pair.ids[at] as usize;
            let parts = [
                ("W the".to_owned(), &w[id * H..]),
                ("S 0".to_owned(), &s[..]),
                (format!("P {at}"), &p[at * H..]),
                (format!("sum at {at}"), &sums[at * H..]),
            ];
            for (name, numbers) in parts {
                names.push(name);
                shown.extend(&numbers[..40]);
            }
        }
        show!(
            HeatMap::new("The word is the same, the sums are not", &shown, 40)
                .labels(&names, &[] as &[String])
        );
    }

    // %% [markdown]
    // Adding need not lose anything: in 128 dimensions there is room for what a token is and
    // where it stands side by side, and training decides how much room each gets.
    //
    // What do the positions know? Nobody told the model that 7 comes after 6; the rows of $P$ began
    // as unrelated random vectors. Here is the cosine of each position with each other, after
    // training:

    // %%
    let shown_positions: usize = 48;
    let rows: Rows<H> = positions
        .clone()
        .gather(index(&(0..shown_positions as u32).collect::<Vec<u32>>()));
    let lengths: Tensor<(usize,), f32, Cpu> =
        rows.clone().square().sum::<(usize,), Axis<1>>().sqrt();
    let directions: Rows<H> = rows.clone() / lengths.broadcast_like::<_, Axis<1>>(rows.shape());
    let cosines: Tensor<(usize, usize), f32, Cpu> = directions
        .clone()
        .matmul(directions.permute::<_, Axes2<1, 0>>());
    let names: Vec<String> = (0..shown_positions)
        .map(|position| match position % 8 {
            0 => position.to_string(),
            _ => String::new(),
        })
        .collect();
    show!(
        HeatMap::new(
            "Cosines between positions 0 to 47",
            &cosines.as_vec(),
            shown_positions
        )
        .labels(&names, &names)
    );

    // %% [markdown]
    // Neighbours point in like directions: the band along the diagonal. Positions further apart are
    // less alike, and from some 24 apart on most point away from each other (orange). Training has
    // found the order. (Position 0 is like no other: `[CLS]` alone stands there.)
    //
    // ## Step 3: LayerNorm
    //
    // A sum of three learned vectors can have any size. Look at the lengths of the sums of our
    // pair:

    // %%
    let sums: Rows<H> = words.clone().gather(index(&pair.ids))
        + segments.clone().gather(index(&pair_segments))
        + positions.clone().gather(index(&places));
    let lengths: Vec<f32> = sums
        .clone()
        .square()
        .sum::<(usize,), Axis<1>>()
        .sqrt()
        .as_vec();
    let bars: Vec<(String, f64)> = pair
        .tokens
        .iter()
        .zip(&lengths)
        .map(|(token, &length)| (token.clone(), f64::from(length)))
        .collect();
    show!(BarChart::new("Length of each token's sum").bars(bars));

    // %% [markdown]
    // Layers above would have to cope with all of them. LayerNorm gives every row the mean 0 and
    // the variance 1, and then lets the model choose a scale $\gamma$ and a shift $\beta$ for each
    // of the $H$ columns ([Ba et al. 2016](https://arxiv.org/abs/1607.06450), section 3):
    //
    // $$ \mu = \frac{1}{H} \sum_j x_j, \qquad \sigma^2 = \frac{1}{H} \sum_j (x_j - \mu)^2, \qquad
    //    y_j = \gamma_j \, \frac{x_j - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta_j $$
    //
    // Every row is normalised on its own: nothing depends on the other tokens or the other
    // sentences of a batch. $\varepsilon$ keeps a row of equal numbers from a division by zero;
    // BERT takes $10^{-12}$.
    //
    // **Exercise 02.3.** Write it with operations on whole tensors. Two shapes meet here: one
    // number a *row* (mean, variance) and one number a *column* (gamma, beta). Each must be
    // repeated along the other axis before it can meet (rows, N), and the type will not let you
    // forget it.

    // %%
    fn layer_norm<const N: usize>(
        x: Rows<N>,
        gamma: &Tensor<Rank1<N>, f32, Cpu>,
        beta: &Tensor<Rank1<N>, f32, Cpu>,
        epsilon: f32,
    ) -> Rows<N> {
        // BEGIN SOLUTION
        cloze::solution!("02.3");
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
    check!("02.3", |judge| {
        let dev = Cpu::default();
        let (ones, zeros) = (dev.ones(), dev.zeros());
        let x: Rows<4> = dev
            .tensor([[1.0, 2.0, 3.0, 4.0], [6.0, 6.0, 10.0, 10.0]])
            .realize();
        let yours = layer_norm(x.clone(), &ones, &zeros, 1e-12);
        let got = f64::from(yours.as_vec()[0]);
        // The slips that everybody makes, by the first number that they give.
        let slips = [
            (
                -1.2,
                "You divided by the variance; it is its square root that divides.",
            ),
            (
                -1.1619,
                "Your variance divides by N - 1, as statistics does for samples; LayerNorm divides by N.",
            ),
            (
                0.8944,
                "The mean is missing in the numerator: subtract it before you divide.",
            ),
            (
                -1.5,
                "The mean is subtracted, the division by the deviation is missing.",
            ),
            (
                -0.5477,
                "Your variance is the mean of x². Subtract the mean before you square.",
            ),
            (
                -1.0,
                "You normalised the columns. Each row is normalised on its own: `Axis<1>`.",
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
            "NaN is 0 / 0: epsilon is added to the variance, before the root is taken.",
        );
        let wide: Rows<2> = dev.tensor([[0.0, 2.0]]).realize();
        judge.close_tensor(
            "layer_norm of [0, 2] with epsilon 3",
            &layer_norm(wide, &dev.ones(), &dev.zeros(), 3.0),
            &dev.tensor([[-0.5, 0.5]]).realize(),
            1e-6,
            "The variance is 1, and 1 + 3 under the root makes 2. Epsilon stands under the root.",
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
            "gamma and beta have one number for each column, the same for every row; \
             beta comes last, untouched by gamma.",
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
            "dfdx's own LayerNorm, which the crate uses, gives this.",
        );
    });

    // %%
    if solved!("02.3") {
        let normal = layer_norm(sums.clone(), &dev.ones(), &dev.zeros(), 1e-12);
        let lengths = normal.square().sum::<(usize,), Axis<1>>().sqrt().as_vec();
        println!("lengths after LayerNorm: {lengths:.3?}");
        println!("the square root of H is  {:.3}", (H as f64).sqrt());
    }

    // %% [markdown]
    // All lengths are $\sqrt{H}$ now: $H$ numbers whose squares have the mean 1. In geometry,
    // LayerNorm puts every token on one sphere, and $\gamma$ and $\beta$ stretch and move that
    // sphere.
    //
    // ## Step 4: the whole module, for a batch
    //
    // A processor is busy only when it gets many tokens at once, so several sentences are embedded
    // together. They have different lengths, and a tensor has no ragged edge: short sentences are
    // filled up with `[PAD]`. The shape has three axes now, $(B, S, H)$: sentences, positions,
    // numbers.
    //
    // **Exercise 02.4.** Embed a batch. Each sentence comes as its ids and its segment ids. The
    // three tables and the LayerNorm stand in `tables`; `tables.norm.forward(x)` is what you wrote
    // in 02.3, for tensors of three axes too.

    // %%
    /// BERT's input layer: everything that it learns.
    struct Tables {
        words: Rows<H>,
        segments: Rows<H>,
        positions: Rows<H>,
        norm: LayerNorm1D<H, f32, Cpu>,
    }

    /// A batch of sentences, padded to the longest: (B, S, H).
    type Batch = Tensor<(usize, usize, Const<H>), f32, Cpu>;

    fn embed_batch(tables: &Tables, sentences: &[(Vec<u32>, Vec<u32>)]) -> Batch {
        // BEGIN SOLUTION
        cloze::solution!("02.4");
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
        let pick = |table: &Rows<H>, rows: Vec<usize>| -> Batch {
            table.clone().gather(dev.tensor_from_vec(rows, shape))
        };
        let sum = pick(&tables.words, ids)
            + pick(&tables.segments, segments)
            + pick(&tables.positions, positions);
        tables.norm.forward(sum)
        // END SOLUTION
    }

    // %% [markdown]
    // The check compares it with `Embeddings` of the crate, which gets the same parameters.
    // `Packed` is the crate's batch: real tokens only, one sentence behind the other. `real_rows`
    // takes the padding out of a padded tensor, so that only what counts is compared.

    // %%
    let gamma: Tensor<Rank1<H>, f32, Cpu> = dev.tensor_from_vec(
        model.parameter("embeddings.LayerNorm.weight")?.to_vec(),
        (Const,),
    );
    let beta: Tensor<Rank1<H>, f32, Cpu> = dev.tensor_from_vec(
        model.parameter("embeddings.LayerNorm.bias")?.to_vec(),
        (Const,),
    );
    let tables: Tables = Tables {
        words: words.clone(),
        segments: segments.clone(),
        positions: positions.clone(),
        norm: LayerNorm1D {
            gamma,
            beta,
            epsilon: model.config.layer_norm_eps,
        },
    };
    // The crate's model of this size: width 128, 2 heads of 64, feed-forward width 512.
    let bert: Bert<128, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &dev)?;

    // %%
    let texts: [(&str, &str); 3] = [
        ("The dog bit the man.", "The man went home."),
        ("Never!", "Not once in all my life, said the captain."),
        ("It rained.", "So they stayed."),
    ];
    let sentences: Vec<(Vec<u32>, Vec<u32>)> = texts
        .iter()
        .map(|(a, b)| {
            let (encoding, segments) = tokenizer.encode_pair(a, b);
            (encoding.ids, segments)
        })
        .collect();
    let mut batch: Packed = Packed::default();
    for (number, (ids, segments)) in sentences.iter().enumerate() {
        batch.push(number as u64, ids, segments);
    }
    let theirs: Batch = bert.embeddings.forward::<NoneTape>(&Pass {
        batch: &batch,
        config: &bert.config,
        dropout: None,
        mask: None,
        future: None,
    });
    println!(
        "{} sentences, the longest of {} tokens, {} tokens in all: {} of {} places are padding",
        batch.sequences(),
        batch.longest(),
        batch.rows(),
        batch.sequences() * batch.longest() - batch.rows(),
        batch.sequences() * batch.longest()
    );
    show!(theirs.shape().concrete());

    check!("02.4", |judge| {
        let yours = embed_batch(&tables, &sentences);
        judge.equal(
            "the shape (B, S, H) of the batch above",
            yours.shape().concrete(),
            theirs.shape().concrete(),
            "B sentences, S tokens in the longest, H numbers for each.",
        );
        // Comparing the tokens makes sense only where they stand in the same places.
        if yours.shape() == theirs.shape() {
            judge.close_tensor(
                "your embedding of the batch, the padding left out,",
                &real_rows(yours.clone(), &batch),
                &real_rows(theirs.clone(), &batch),
                1e-4,
                "The crate gives this. Rows count through all sentences: the first sentence's come first. \
                 Are positions counted from 0 in every sentence? Does the LayerNorm come last?",
            );
            let alone = embed_batch(&tables, &sentences[2..3]);
            let ids = sentences[2].0.len();
            judge.equal(
                "the shape (B, S, H) of the third sentence embedded alone",
                alone.shape().concrete(),
                [1, ids, H],
                "S is the length of the longest sentence that comes in, and it comes in alone here.",
            );
            if alone.shape().concrete() == [1, ids, H] {
                judge.close_tensor(
                    "the third sentence embedded alone",
                    &alone.reshape_like(&(ids, Const::<H>)),
                    &real_rows(theirs.clone(), &batch)
                        .slice((batch.rows() - ids.., ..))
                        .realize(),
                    1e-4,
                    "A sentence has the same vectors alone and in company.",
                );
            }
        }
    });

    // %% [markdown]
    // That is the first module of BERT. The crate's differs in one thing: during training it drops
    // a tenth of the numbers at random after the LayerNorm (dropout, lesson 04).
    //
    // ## What goes wrong
    //
    // **An id that the table has no row for.** A vocabulary of another model, or one piece added to
    // `vocab.txt`. The crate looks before it embeds and names the sentence:

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
    // **A text with more tokens than there are positions.** There is no row for the next position,
    // so BERT can't read on. (BERT-base has 512, this model 128. Lesson 09 cuts long texts into
    // windows.)

    // %%
    let long: Vec<u32> = vec![2; 200];
    let mut too_long: Packed = Packed::default();
    too_long.push(0, &long, &vec![0; long.len()]);
    if let Err(error) = too_long.check(limits.0, limits.1, limits.2) {
        println!("{error}");
    }

    // %% [markdown]
    // **Shapes that do not fit.** One segment's vector, of the shape (128), added to the rows of a
    // sentence, (14, 128):
    //
    // ```text
    // error[E0277]: +: the left is ?×128 and the right is a vector of 128: make the right ?×128 first, with `.broadcast_like::<(usize, Const<128>), _>(&shape)`
    // rustc: the trait bound `Tensor<(usize, Const<128>), f32, Cpu>: TryAdd<Tensor<(Const<128>,), f32, Cpu>>` is not satisfied
    // ```
    //
    // (`?` is a size that is known at run time only.) The vector must be repeated for every row
    // first, by the axis for example: `segment.broadcast_like::<_, Axis<0>>(sums.shape())`.
    //
    // **A mean along the wrong axis.** `x.mean::<(usize,), Axis<0>>()` for `x` of the shape
    // `(usize, Const<128>)`:
    //
    // ```text
    // error[E0277]: mean: ?×128 cannot be reduced to a vector of ?: without axis 0 it is a vector of 128, without axis 1 it is a vector of ?
    // rustc: the trait bound `(usize, Const<128>): ReduceShapeTo<(usize,), Axis<0>>` is not satisfied
    // ```
    //
    // Without axis 1 one number a row is left, as many as there are rows: `?`. Without axis 0 it is
    // one a column, 128. The two kinds of size, `usize` and `Const`, have made a mistake visible that
    // a library without shapes in its types would have computed.
    //
    // **An id too large, without the crate's check.** `gather` finds out while it runs:
    //
    // ```text
    // panic: the index [9, 0] is outside the tensor: positions count from 0 to one less than the size
    // dfdx: Index out of bounds: index=[9, 0] shape=(4, Const)
    // ```
    //
    // Row 9 was wanted of a table with 4 rows.
    //
    // **And no error at all**: segments that are all 0 for a pair, or positions that go on from one
    // sentence of the batch to the next. Every shape is right, and the model reads something else
    // than you wrote. So compare one batch with a model that you trust, as you did above.
    //
    // ## Expected numbers
    //
    // - the tables: 8,000, 2 and 128 rows of 128 numbers;
    // - the pieces nearest to `three` are other numbers, those nearest to `morning` other times of
    //   the day;
    // - neighbouring positions have cosines of 0.5 to 0.73 (0 and 1 only 0.11), those 30 apart -0.18
    //   on average, and the lowest of all is -0.61;
    // - after LayerNorm every row has the length 11.314, the root of 128;
    // - the batch is 3 × 16 × 128, with 7 of its 48 places padding;
    // - the cells compute for under a second; the rest is compiling.
    //
    // ## On real text
    //
    // Any BERT in Hugging Face's layout opens the same way: put its folder in place of
    // `data::folder(data::MODEL)?`, and its width in place of 128 (768 for BERT-base, `Bert<768,
    // 12, 64, 3072, f32, Cpu>`). `cloze features --model DIR --layers 0 --pool none < lines.txt`
    // writes what this module gives for each line of a file.
    //
    // ## Open questions
    //
    // 1. The three tables are added. Joining them end to end (128 numbers of the word, 16 of the
    //    position, …) would keep them apart for certain. What would that cost, and what could
    //    attention then not do as easily?
    // 2. A learned table ends at its last row. Sines and cosines do not. Would a model with sines,
    //    trained on 128 tokens, read 512? What would it have seen of them?
    //
    // The crate's source of this part: `Embeddings` in `src/model/layers.rs`, and `Packed` in
    // `src/data/packed.rs`. Next: [lesson 03](03_attention.rs), in which the tokens begin to
    // look at each other.

    // %% [end]
    cloze::lessons::finish("02_embeddings")
}
