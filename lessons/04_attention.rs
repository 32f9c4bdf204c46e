// ---
// title = "Attention: every token looks at every other"
// summary = "Query, key and value; scores, mask, softmax and mixing: one attention head from its parts, computed by hand, and seen at work in a trained model."
// track = "core"
// minutes = 53
// seconds = 20
// needs = ["03"]
//
// [[exercise]]
// id = "04.1"
// key = "scores"
// was = "03.1"
// title = "Scores: every query against every key"
// hints = [
//     "All dot products of the rows of one matrix with the rows of another are one matrix product: the queries times the transposed keys. Look at the shapes: (n, K) times (K, m) gives (n, m).",
//     "`k.permute::<_, Axes2<1, 0>>()` swaps the two axes of `k`.",
//     "Multiply by 1 / sqrt(K) at the end: `* (1.0 / (K as f32).sqrt())`. A tensor can be multiplied by a number.",
// ]
//
// [[exercise]]
// id = "04.2"
// key = "weights"
// was = "03.2"
// title = "Weights: mask and softmax"
// hints = [
//     "Apply softmax along the keys, axis 1, so that each row, which belongs to one query, has the sum 1: `.softmax::<Axis<1>>()`.",
//     "Hide the padding *before* the softmax. Add a large negative number to its scores: its weight becomes exp(-1e9) = 0, and the other weights still add up to 1.",
//     "Make a mask with one number for each column: `(0..m).map(|j| if j < real { 0.0 } else { -1e9 }).collect::<Vec<f32>>()`. `Cpu::default().tensor_from_vec(mask, (m,))` turns it into a tensor.",
//     "The mask is the same for every row, so repeat it along axis 0: `mask.broadcast_like::<_, Axis<0>>(&shape)`, where `let shape = *scores.shape();`. Add it to the scores, then apply softmax.",
// ]
//
// [[exercise]]
// id = "04.3"
// key = "one_head"
// was = "03.3"
// title = "One head, from vectors to vectors"
// hints = [
//     "Four steps: project `x` three times, compute the scores, apply softmax, and mix the values. `x.clone().matmul(head.query.clone())` projects all tokens to their queries at once.",
//     "`scores(q, k)`, your 04.1, includes the division. Softmax goes along the keys: `.softmax::<Axis<1>>()`.",
//     "Row i of the result is the sum over j of weights[i][j] · v[j]. A sum of products over a shared index is a matrix product: `weights.matmul(v)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 04 · Attention: every token looks at every other
    //
    // After lesson 03 each token has a vector that says what the token is and where it stands, but
    // nothing about its neighbours: *bank* has the same vector beside a river and in a city.
    // Attention lets every token look at all tokens, decide how much each of them matters, and take
    // a weighted mean of what they offer. You compute it by hand for three tokens, then write it:
    // scores, weights, and a whole **head**. At the end your functions run inside a trained model.
    // (BERT has several heads side by side: lesson 05.)
    //
    // *About 53 minutes; every cell takes a few seconds at most. You need lesson 03.*

    // %%
    use cloze::lessons::data;
    use cloze::lessons::largest_gap;
    use cloze::lessons::support::attention::{self, Reader};
    use cloze::model::SequenceAttention;
    use cloze::model::weights::Model;
    use cloze::prelude::*;

    // %% [markdown]
    // ## Where we are going
    //
    // `cloze-tiny` is a trained BERT of 2 layers with 2 heads each. Below, one of its heads reads a
    // sentence. Each row is a token that looks, each column a token that is looked at, and the
    // weights in a row add up to 1.

    // %%
    let folder: std::path::PathBuf = data::folder(data::TINY)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let dev: Cpu = Cpu::default();
    // Width 128, 2 heads of size 64, feed-forward width 512.
    let bert: Bert<128, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &dev)?;

    // %%
    let sentence: &str = "The old man opened the door, and he went into his house.";
    let tokens: Vec<String> = tokenizer.encode_with_special(sentence).tokens;
    let batch: Packed = attention::batch_of(&tokenizer, &[sentence], 128);
    let seen: SequenceAttention = bert.attention(&batch).swap_remove(0);
    show!(
        HeatMap::new(
            "Layer 0, head 0 of cloze-tiny",
            seen.weights(0, 0),
            tokens.len()
        )
        .labels(&tokens, &tokens)
    );

    // %% [markdown]
    // ## The idea: query, key and value
    //
    // In *the dog ran because it was afraid*, `it` needs to find `dog`. So each token plays three
    // parts, and has a vector for each:
    //
    // - its **query** $q$ says what it looks for (`it`: a thing that it can stand for);
    // - its **key** $k$ says what it can be found by (`dog`: "I am a thing");
    // - its **value** $v$ is what it hands to whoever finds it (`dog`: an animal, singular, …).
    //
    // As in a library: the query is what you ask for, the keys are the cards of the catalogue, the
    // values are the books. But you don't take home one book. You take home a mixture of all books,
    // and the better a card fits, the more of its book is in it.
    //
    // Let $X$ hold the tokens' vectors, one in each row. Three learned linear layers **project**
    // them: $Q = X W^Q$, $K = X W^K$, $V = X W^V$ (BERT adds a bias to each). Then
    //
    // $$ \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V , $$
    //
    // where $d_k$ is how many numbers a query or a key has ([Vaswani et al.
    // 2017](https://arxiv.org/abs/1706.03762), section 3.2.1). **Softmax** turns the scores of a row
    // into positive weights whose sum is 1; step 4 below computes one. In formulas $K$ is the matrix
    // of all keys. In code, `K` is the size $d_k$: 64 in BERT. Because $Q$, $K$ and $V$ are all made
    // from the same tokens, this is *self*-attention.

    // %% [markdown]
    // ## Three tokens by hand
    //
    // Take `dog`, `ran` and `it`, with two numbers each: how much the token is a thing, and how much
    // it refers to a thing. (The columns of a trained model have no names as plain as that.) The
    // matrices are chosen by hand too. Follow the picture from top to bottom.

    // %%
    const WORDS: [&str; 3] = ["dog", "ran", "it"];
    /// A row for each token: is a thing, refers to a thing.
    const X: [[f32; 2]; 3] = [[2.0, 0.0], [0.0, 1.0], [0.0, 2.0]];
    /// Whoever refers to a thing looks for one; a thing looks for nothing.
    const W_Q: [[f32; 2]; 2] = [[0.0, 0.0], [1.0, 0.0]];
    /// A token can be found by what it is.
    const W_K: [[f32; 2]; 2] = [[1.0, 0.0], [0.0, 1.0]];
    /// What a token hands over: the two numbers swapped, times 5.
    const W_V: [[f32; 2]; 2] = [[0.0, 5.0], [5.0, 0.0]];
    show!(Reader::new(&WORDS, &X, [&W_Q, &W_K, &W_V], 2));

    // %% [markdown]
    // 1. **Project.** The vector of `it` is $x = (0, 2)$. Its query is $x W^Q = 0 \cdot (0, 0) + 2
    //    \cdot (1, 0) = (2, 0)$. The keys are $(2, 0)$, $(0, 1)$ and $(0, 2)$, the values $(0, 10)$,
    //    $(5, 0)$ and $(10, 0)$.
    // 2. **Score.** The dot product of the query with each key: $2 \cdot 2 + 0 \cdot 0 = 4$ for
    //    `dog`, $2 \cdot 0 + 0 \cdot 1 = 0$ for `ran`, $2 \cdot 0 + 0 \cdot 2 = 0$ for `it`.
    // 3. **Scale.** Divide by $\sqrt{d_k} = \sqrt 2 = 1.414$: the scores become 2.83, 0, 0.
    // 4. **Softmax.** $e^{2.83} = 16.92$ and $e^0 = 1$. The sum is $16.92 + 1 + 1 = 18.92$, so the
    //    weights are $16.92 / 18.92 = 0.894$, $1 / 18.92 = 0.053$ and 0.053.
    // 5. **Mix.** $0.894 \cdot (0, 10) + 0.053 \cdot (5, 0) + 0.053 \cdot (10, 0) = (0.79, 8.94)$.
    //
    // `it` has found `dog`, and its new vector is nearly what `dog` hands over. Now let the others
    // look. The 2 at the end of the cell is the token that looks, counted from 0: write 1 or 0, but
    // first compute on paper what you expect. (`dog` looks for nothing. What does its softmax make
    // of three equal scores?)

    // %% [markdown]
    // ### Why three projections?
    //
    // Here are the same tokens with one projection for all three parts. (`W_K` changes nothing,
    // so $q = k = v = x$.)

    // %%
    show!(Reader::new(&WORDS, &X, [&W_K, &W_K, &W_K], 2));

    // %% [markdown]
    // `it` has found itself, and comes out much as it went in. That is no accident:
    //
    // - **With one vector for query and key** a token looks for what it is itself. No other
    //   vector of the same length has a larger dot product with it. And the scores are symmetric:
    //   `dog` would have to look at `it` as hard as `it` looks at `dog`. Above,
    //   where $W^Q \ne W^K$, the score of `it` for `dog` is 4, that of `dog` for `it` is 0.
    // - **With one vector for key and value** a token could hand over only what it is found by.
    //   `dog` is found as a thing; which thing it is should be in the value.

    // %% [markdown]
    // ### Why divide the scores?
    //
    // If the numbers in $q$ and $k$ are independent, with mean 0 and variance 1, then $q \cdot k$ is a
    // sum of $d_k$ terms with mean 0 and variance 1 each, so its variance is $d_k$ (section 3.2.1,
    // footnote 4). A typical score is then as large as the root of that, $\sqrt{d_k}$. Softmax of
    // large scores gives one key nearly all of the weight. A small change of a score then changes
    // nothing: its gradient is nearly zero, and the model can't learn to look elsewhere. Measure it:
    // among 16 random keys, how much weight does the best one get?

    // %%
    fn best_shares(scaled: bool) -> Vec<(f64, f64)> {
        [2, 4, 8, 16, 32, 64, 128, 192, 256]
            .map(|size| (size as f64, attention::best_share(size, scaled)))
            .to_vec()
    }

    show!(
        LineChart::new("The weight of the best of 16 random keys")
            .axes("size of queries and keys", "weight")
            .line("scores as they are", &best_shares(false))
            .line("divided by the square root of the size", &best_shares(true))
            .reference("all alike", 1.0 / 16.0)
    );
    println!(
        "at size 64 the best of 16 gets {:.2} unscaled, {:.2} scaled",
        attention::best_share(64, false),
        attention::best_share(64, true)
    );

    // %% [markdown]
    // Unscaled, at BERT's head size of 64 the best key takes nearly everything before anything has
    // been learned. Scaled, the size of the head makes no difference.
    //
    // Try it by hand. The slider divides the scores of four keys, 8, 4, 2 and 0, and softmax makes
    // weights of the results. Move it to both ends: where does one key take everything, and where
    // are all nearly alike? (In a terminal you see the first position only.)

    // %%
    Slider::new("divide by", 1.0..=16.0)
        .start(1.0)
        .step(0.5)
        .show(|divisor| {
            let scores = [8.0, 4.0, 2.0, 0.0];
            let parts = scores.map(|score: f64| (score / divisor).exp());
            let sum: f64 = parts.iter().sum();
            let weights = parts.map(|part| 100.0 * part / sum);
            let names = scores.map(|score| format!("score {score}"));
            BarChart::new("The weights of four keys")
                .unit("%")
                .bars(names.into_iter().zip(weights))
        });

    // %% [markdown]
    // With the divisor 1 the best key gets 98 %, and a small change of its score would change
    // nothing. With 8, the root of BERT's head size, it gets 41 % and the worst 15 %.

    // %% [markdown]
    // ## Step 1: scores
    //
    // The dot product of two vectors of given lengths is largest where they point in the same
    // direction. Row $i$, column $j$ of the scores says how well the query of token $i$ fits the key
    // of token $j$.
    //
    // **Exercise 04.1.** Return all scores, $Q K^\top / \sqrt{d_k}$, where $d_k$ is `K`, a `usize`.
    // (Roots and tensors need an `f32`: `K as f32`.)

    // %%
    /// One row of `N` numbers for each token: (tokens, N).
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;
    /// One row for each query, one column for each key.
    type Grid = Tensor<(usize, usize), f32, Cpu>;

    fn scores<const K: usize>(q: Rows<K>, k: Rows<K>) -> Grid {
        // BEGIN SOLUTION
        cloze::solution!("04.1");
        q.matmul(k.permute::<_, Axes2<1, 0>>()) * (1.0 / (K as f32).sqrt())
        // END SOLUTION
    }

    // %%
    check!("04.1", |judge| {
        let dev = Cpu::default();
        let q: Rows<4> = dev
            .tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
            .realize();
        let k: Rows<4> = dev
            .tensor([
                [6.0, 0.0, 0.0, 0.0],
                [0.0, 8.0, 0.0, 0.0],
                [4.0, 4.0, 0.0, 0.0],
            ])
            .realize();
        let yours = scores(q.clone(), k.clone());
        judge.equal(
            "the shape of the scores of 2 queries and 3 keys",
            *yours.shape(),
            (2, 3),
            "A row for each query, a column for each key.",
        );
        let right: Grid = dev.tensor([[3.0, 0.0, 2.0], [0.0, 8.0, 4.0]]).realize();
        let slips = [
            (
                2.0,
                "These are the bare dot products: divide by sqrt(K), which is 2 here.",
            ),
            (0.5, "You divided by K: divide by its square root."),
        ];
        for (factor, slip) in slips {
            // Only tensors of the right shape can be compared.
            if yours.shape() != right.shape() {
                break;
            }
            let apart = (yours.clone() - right.clone() * factor).abs().as_vec();
            judge.holds(
                "the score of [1, 0, 0, 0] and [6, 0, 0, 0] is 6 / sqrt(4) = 3",
                apart.iter().any(|&a| a > 1e-4),
                slip,
            );
        }
        judge.close_tensor(
            "scores of two queries and three keys",
            &yours,
            &right,
            1e-5,
            "Entry [i, j] is the dot product of query i and key j, divided by sqrt(4).",
        );
        let wide: Rows<16> = dev.ones_like(&(1, Const));
        judge.close_tensor(
            "the score of a query and a key of 16 ones",
            &scores(wide.clone(), wide),
            &dev.tensor([[4.0]]).realize(),
            1e-5,
            "The dot product is 16, and so is `K`: divide by the square root of `K`, not by a number of \
             your own.",
        );
    });

    // %% [markdown]
    // ## Step 2: weights
    //
    // Softmax divides the exponential of each score by the sum of its row's exponentials:
    //
    // $$ w_{ij} = \frac{e^{s_{ij}}}{\sum_{m} e^{s_{im}}} . $$
    //
    // In dfdx it is `x.softmax::<Axis<…>>()`, with the axis along which the weights have the sum 1.
    //
    // One thing must not get any weight: padding. Nothing stands behind a sentence's end, so no token
    // may look there.
    //
    // **Exercise 04.2.** Return the weights. The columns before `real` are tokens; `real` and all later
    // ones are padding: they stay in the table and get the weight 0.

    // %%
    fn weights(scores: Grid, real: usize) -> Grid {
        // BEGIN SOLUTION
        cloze::solution!("04.2");
        let shape = *scores.shape();
        let mask: Vec<f32> = (0..shape.1)
            .map(|j| if j < real { 0.0 } else { -1e9 })
            .collect();
        let mask = Cpu::default().tensor_from_vec(mask, (shape.1,));
        (scores + mask.broadcast_like::<_, Axis<0>>(&shape)).softmax::<Axis<1>>()
        // END SOLUTION
    }

    // %%
    check!("04.2", |judge| {
        let dev = Cpu::default();
        let ln = |x: f32| x.ln();
        let s: Grid = dev
            .tensor([[0.0, 0.0, ln(2.0)], [0.0, ln(3.0), ln(4.0)]])
            .realize();
        let sums = |w: &Grid| w.clone().sum::<(usize,), Axis<1>>().as_vec();
        let open = weights(s.clone(), 3);
        judge.holds(
            "every row of the weights has the sum 1",
            sums(&open).iter().all(|sum| (sum - 1.0).abs() < 1e-5),
            "A row belongs to one query, which divides a weight of 1 among the keys. If your columns add \
             up to 1, the softmax went along axis 0.",
        );
        judge.close_tensor(
            "weights of [[0, 0, ln 2], [0, ln 3, ln 4]], nothing padded,",
            &open,
            &dev.tensor([[0.25, 0.25, 0.5], [0.125, 0.375, 0.5]])
                .realize(),
            1e-5,
            "The exponentials are 1, 1, 2 in the first row and 1, 3, 4 in the second.",
        );
        let masked = weights(s, 2);
        judge.equal(
            "the shape of the weights of 2 queries and 3 keys, with `real` 2",
            *masked.shape(),
            (2, 3),
            "Padding keeps its columns. They hold the weight 0.",
        );
        let hidden: Vec<f32> = masked.as_vec().into_iter().skip(2).step_by(3).collect();
        judge.holds(
            &format!("with `real` 2 the last column is [0, 0], yours is {hidden:?}"),
            hidden.iter().all(|&w| (w - 1.0 / 3.0).abs() > 1e-4),
            "The padding gets a third: its score became 0, and e⁰ = 1 counts like any other. For which \
             score is the exponential 0?",
        );
        judge.holds(
            &format!("with `real` 2 the last column is [0, 0], yours is {hidden:?}"),
            hidden.iter().all(|&w| w == 0.0),
            "Column 2 is padding: no token may look at it, not even a little. Its score must be so low \
             that its exponential is 0.",
        );
        judge.holds(
            "with padding too every row has the sum 1",
            sums(&masked).iter().all(|sum| (sum - 1.0).abs() < 1e-5),
            "The weight of the padding must go to the other keys: hide the padding before the softmax, not after it.",
        );
        judge.close_tensor(
            "the same weights with `real` 2",
            &masked,
            &dev.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]).realize(),
            1e-5,
            "The exponentials are 1, 1 and 1, 3; the third column does not count.",
        );
        let large: Grid = dev.tensor([[1000.0, 1000.0]]).realize();
        judge.close_tensor(
            "weights of [[1000, 1000]]",
            &weights(large, 2),
            &dev.tensor([[0.5, 0.5]]).realize(),
            1e-5,
            "NaN means that exp(1000) was computed. dfdx's softmax subtracts the largest first.",
        );
    });

    // %% [markdown]
    // Move a query and keys, change the temperature (a number by which the scores are divided), and see
    // why attention divides them. (Elsewhere
    // `cloze lessons picture softmax` writes the page.)

    // %%
    show!(Picture::Softmax);

    // %% [markdown]
    // ## Step 3: one head
    //
    // What remains is to mix: row $i$ of the result is $\sum_j w_{ij} v_j$, the mean of all values in
    // the proportions of row $i$. A **head** is all of this: three projections, scores, weights, mix.
    // A lookup in a dictionary answers with one value or fails. Attention answers with a bit of every
    // value, so its answer has a gradient, and what to look for can be learned.
    //
    // **Exercise 04.3.** Write a head for one sentence: `x` holds the tokens' vectors, the result
    // their new vectors. A single sentence has no padding, so softmax is enough and you need no mask.

    // %%
    /// The learned matrices of a head, without biases. `x.matmul(matrix)` projects every row of `x`.
    struct Head<const N: usize, const K: usize> {
        query: Tensor<Rank2<N, K>, f32, Cpu>,
        key: Tensor<Rank2<N, K>, f32, Cpu>,
        value: Tensor<Rank2<N, K>, f32, Cpu>,
    }

    fn one_head<const N: usize, const K: usize>(x: Rows<N>, head: &Head<N, K>) -> Rows<K> {
        // BEGIN SOLUTION
        cloze::solution!("04.3");
        let q = x.clone().matmul(head.query.clone());
        let k = x.clone().matmul(head.key.clone());
        let v = x.matmul(head.value.clone());
        scores(q, k).softmax::<Axis<1>>().matmul(v)
        // END SOLUTION
    }

    // %%
    check!("04.3", |judge| {
        let dev = Cpu::default();
        // Four tokens of three numbers, and a head for which every slip gives other numbers.
        let x: Rows<3> = dev
            .tensor([
                [1.0, -0.5, 2.0],
                [0.5, 1.5, -1.0],
                [-1.0, 0.0, 0.5],
                [0.0, 1.0, 1.0],
            ])
            .realize();
        let head: Head<3, 2> = Head {
            query: dev.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, -1.0]]),
            key: dev.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]),
            value: dev.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]]),
        };
        let yours = one_head(x.clone(), &head);
        judge.equal(
            "the shape of the new vectors of 4 tokens, from a head of size 2,",
            *yours.shape(),
            (4, Const::<2>),
            "A row for each token, as many numbers as a value has.",
        );
        let q: Rows<2> = x.clone().matmul(head.query.clone());
        let k: Rows<2> = x.clone().matmul(head.key.clone());
        let v: Rows<2> = x.clone().matmul(head.value.clone());
        let bare: Grid = q.clone().matmul(k.clone().permute::<_, Axes2<1, 0>>());
        let scaled: Grid = bare.clone() * 0.5f32.sqrt();
        let mixed = |scores: Grid, v: &Rows<2>| scores.softmax::<Axis<1>>().matmul(v.clone());
        let slips: [(Rows<2>, &str); 7] = [
            (
                mixed(bare, &v),
                "The scores are not divided by the square root of `K`, which is 2 here.",
            ),
            (
                mixed(scaled.clone() * 0.5f32.sqrt(), &v),
                "The scores are divided twice: your `scores` does it already.",
            ),
            (
                mixed(scaled.clone().permute::<_, Axes2<1, 0>>(), &v),
                "Queries and keys are swapped: the rows of the scores belong to the queries.",
            ),
            (
                scaled.clone().softmax::<Axis<0>>().matmul(v.clone()),
                "The softmax went down the columns. Each query, a row, divides a weight of 1.",
            ),
            (
                scaled.clone().matmul(v.clone()),
                "The softmax is missing: the scores themselves mix the values.",
            ),
            (
                mixed(scaled.clone(), &k),
                "The weights are right, but they mix the keys. Mix the values.",
            ),
            (
                mixed(scaled.clone(), &q),
                "The weights are right, but they mix the queries. Mix the values.",
            ),
        ];
        for (slip, advice) in slips {
            // Only tensors of the right shape can be compared.
            if yours.shape() != slip.shape() {
                break;
            }
            let apart = (yours.clone() - slip).abs().as_vec();
            judge.holds(
                "each token gets the mean of all values, weighted by the softmax of its scores",
                apart.iter().any(|&a| a > 1e-4),
                advice,
            );
        }
        judge.close_tensor(
            "one_head of four tokens",
            &yours,
            &mixed(scaled, &v),
            1e-4,
            "Project three times, compute the scores, apply softmax along the keys, mix the values. \
             Does `head.value` make the values? If you call `weights`, all tokens are real here: is \
             `real` their number, `x.shape().0`?",
        );
        let by_hand: Head<2, 2> = Head {
            query: dev.tensor(W_Q),
            key: dev.tensor(W_K),
            value: dev.tensor(W_V),
        };
        judge.close_tensor(
            "one_head of dog, ran, it",
            &one_head(dev.tensor(X).realize(), &by_hand),
            &dev.tensor([[5.0, 3.333333], [2.453688, 6.728416], [0.79286, 8.942853]])
                .realize(),
            1e-4,
            "These are the numbers computed by hand above (if you have not changed the matrices).",
        );
    });

    // %%
    if solved!("04.3") {
        let head: Head<2, 2> = Head {
            query: dev.tensor(W_Q),
            key: dev.tensor(W_K),
            value: dev.tensor(W_V),
        };
        let new = one_head(dev.tensor(X).realize(), &head).as_vec();
        for (word, vector) in WORDS.iter().zip(new.chunks(2)) {
            println!("{word:>4}: ({:.2}, {:.2})", vector[0], vector[1]);
        }
    }

    // %% [markdown]
    // All three at once: `it` finds `dog`, `ran` finds it too, though less surely, and `dog`, whose
    // query fits every key equally, gets the plain mean of the values.

    // %% [markdown]
    // ## Your functions in a trained model
    //
    // Can your functions draw the picture from the beginning? It shows head 0 of the first layer.
    // `x` holds what this layer reads: the embeddings of lesson 03. The crate has one linear layer
    // for the queries of all heads: it returns 128 numbers for each token, and the first 64 belong to
    // head 0. The keys are stored in the same way. (How to cut the numbers into heads is an exercise
    // of lesson 05.)

    // %%
    let x: Rows<128> =
        attention::embedded(&bert, &batch).reshape_like(&(tokens.len(), Const::<128>));

    /// The columns of head 0: the first 64 of 128.
    fn first_head(rows: Rows<128>) -> Rows<64> {
        let tokens = rows.shape().0;
        rows.slice((0..tokens, 0..64)).realize()
    }

    // %%
    if solved!("04.1") && solved!("04.2") {
        let layer = &bert.layers[0].attention;
        let q = first_head(layer.query.forward(x.clone()));
        let k = first_head(layer.key.forward(x.clone()));
        let yours = weights(scores(q, k), tokens.len()).as_vec();
        let largest = largest_gap(&yours, seen.weights(0, 0));
        println!("the largest difference to the crate's weights is {largest:e}");
        show!(
            HeatMap::new("Head 0 of layer 0, by your functions", &yours, tokens.len())
                .labels(&tokens, &tokens)
        );
    }

    // %% [markdown]
    // The numbers are the crate's. (At most they differ by rounding.) Read a few rows: `the` finds `man`, `into`
    // and `his` find `house`. This head looks for nouns that come later. Nobody programmed that: the
    // model learned its three matrices from text. Two things to try:
    //
    // - Write `tokens.len() - 3` for the last argument of `weights`. Three columns become empty, and
    //   the other weights of each row grow.
    // - Put a sentence of your own into the cell near the top, and run all cells from there.

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *one head of attention*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(4));

    // %% [markdown]
    // ## What goes wrong
    //
    // **A forgotten transposition.** `q.matmul(k)`, where both are (14, 64), of the type `Rows<64>`:
    //
    // ```text
    // error[E0277]: matmul: the left is ?×64 and the right is ?×64: one inner size is 64 and the other is known only at run time; the right transposed to 64×?, `.permute::<_, Axes2<1, 0>>()`, would fit
    // rustc: the trait bound `Tensor<(usize, Const<64>), f32, Cpu>: TryMatMul<Tensor<(usize, Const<64>), f32, Cpu>>` is not satisfied
    // ```
    //
    // The inner sizes must agree, (n, 64) times (64, m). The right side begins with `?`, the number of
    // tokens, where 64 should be: the permute is missing.
    //
    // **A softmax along the wrong axis** causes no error, and with as many queries as keys even the
    // shape is right. Look at one row: is its sum 1?
    //
    // **A mask of minus infinity.** It works until a row has nothing left to look at, as in a
    // sentence that is all padding. Then softmax computes 0 / 0, and one NaN spreads through the
    // whole model:

    // %%
    let nothing: Grid = dev.tensor([[0.3f32, -0.2], [0.1, 0.4]]).realize();
    let infinite: Grid = dev.tensor([[f32::NEG_INFINITY; 2], [0.0; 2]]).realize();
    show!((nothing.clone() + infinite).softmax::<Axis<1>>().as_vec());
    let finite: Grid = dev.tensor([[-1e9f32; 2], [0.0; 2]]).realize();
    show!((nothing + finite).softmax::<Axis<1>>().as_vec());

    // %% [markdown]
    // With $-10^9$ the row gets nonsense too, but finite nonsense, in a place that nothing reads.

    // %% [markdown]
    // ## Expected numbers
    //
    // - by hand `it` gives 0.894 of its weight to `dog`; with one projection it gives 0.768 to itself;
    // - of 16 random keys of size 64 the best gets 0.90 of the weight unscaled and 0.29 scaled;
    // - the new vectors of `dog`, `ran`, `it` are (5, 3.33), (2.45, 6.73), (0.79, 8.94);
    // - your weights of head 0 differ from the crate's by less than 1e-5;
    // - the cells compute for less than a second; the rest is compiling.

    // %% [markdown]
    // ## On real text
    //
    // `cloze attention "The old man opened the door." --model cloze-tiny --out view.html` writes a page
    // on which you can point at a token and see where each head of `cloze-tiny` looks. With `--model DIR`
    // it does the same for any BERT in Hugging Face's layout.

    // %% [markdown]
    // ## Open questions
    //
    // 1. A head whose query fits no key still has to give away a weight of 1. Where could it put
    //    the weight so that it does no harm? Look at your heat map again.
    // 2. The division by $\sqrt{d_k}$ assumes that the numbers in $q$ and $k$ are independent and have
    //    variance 1. Training does not keep them so. How would you measure how sharp the weights of a
    //    trained head are, and is head 0 sharper than random keys are in your chart?
    //
    // The crate's source of this part: `attention_probabilities` in `src/model/layers.rs`. Next:
    // [lesson 05](05_heads.rs), in which several heads work side by side on a whole batch.

    // %% [end]
    cloze::lessons::finish("04_attention")
}
