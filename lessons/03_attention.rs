// ---
// title = "Attention: every token looks at every other"
// summary = "Scores, mask, softmax, mixing, heads: multi-head attention from its parts, equal to the crate's, and seen at work in a trained model."
// minutes = 50
// seconds = 35
// needs = ["02"]
//
// [[exercise]]
// id = "03.1"
// title = "Scores: every query against every key"
// hints = [
//     "All dot products of the rows of one matrix with the rows of another are one matrix product: Q times K transposed. Look at the shapes: (n, K) times (K, m) gives (n, m).",
//     "`k.permute::<_, Axes2<1, 0>>()` swaps the two axes of `k`.",
//     "Multiply by 1 / sqrt(K) at the end: `* (1.0 / (K as f32).sqrt())`. A tensor times a number is allowed.",
// ]
//
// [[exercise]]
// id = "03.2"
// title = "Weights: mask and softmax"
// hints = [
//     "Softmax along the keys: axis 1, so that each row, one query's, has the sum 1: `.softmax::<Axis<1>>()`.",
//     "Hide the padding *before* the softmax. Add a large negative number to its scores, and its share becomes exp(-1e9) = 0 while the others still add up to 1.",
//     "A mask of one number a column: `(0..m).map(|j| if j < real { 0.0 } else { -1e9 }).collect::<Vec<f32>>()`, made a tensor with `Cpu::default().tensor_from_vec(mask, (m,))`.",
//     "The mask is the same for every row, so it is repeated along axis 0: `mask.broadcast_like::<_, Axis<0>>(&shape)`, where `let shape = *scores.shape();`. Add it, then softmax.",
// ]
//
// [[exercise]]
// id = "03.3"
// title = "Mix the values"
// hints = [
//     "Row i of the result is the sum over j of weights[i][j] · values[j]. What is a sum of products over a shared index called?",
//     "(n, m) times (m, K) is (n, K): one `matmul`.",
// ]
//
// [[exercise]]
// id = "03.4"
// title = "Split the width into heads"
// hints = [
//     "Two steps: cut the last axis W into A heads of K numbers, then bring the heads in front of the positions.",
//     "`x.reshape_like(&(b, s, Const::<A>, Const::<K>))` cuts: it keeps the order of the numbers, so head 0 gets the first K columns of every token.",
//     "`.permute::<_, Axes4<0, 2, 1, 3>>()` names the old axes in their new order: (B, S, A, K) becomes (B, A, S, K).",
// ]
//
// [[exercise]]
// id = "03.5"
// title = "Multi-head attention, whole"
// hints = [
//     "Project three times: `layer.query.forward(x.clone())`, and so with `key` and `value`. Each is (B, S, H). `split_heads::<H, A, K>(…)`, your 03.4, makes (B, A, S, K) of it. For the product the keys must be (B, A, K, S): turn their last two axes with `.permute::<_, Axes4<0, 1, 3, 2>>()`.",
//     "`q.matmul(k)` multiplies the last two axes, for every sentence and every head: (B, A, S, S). Scale it by 1 / sqrt(64).",
//     "The mask is (B, S), the scores (B, A, S, S): it must be repeated along the heads (axis 1) and the queries (axis 2): `mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape)`, where `let shape = *scores.shape();`. Softmax along the keys is `Axis<3>` now.",
//     "Mix: `weights.matmul(v)` is (B, A, S, K). Back: permute with `Axes4<0, 2, 1, 3>`, `reshape_like(&(b, s, Const::<H>))`, where `let (b, s, _) = *x.shape();` stands before `x` is moved, and last `layer.output.forward(…)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 03 · Attention: every token looks at every other
    //
    // After lesson 02 each token has a vector that knows what it is and where it stands, but
    // nothing of its neighbours: *bank* is the same vector by the river and in the city. Attention
    // lets every token look at all tokens, decide how much each matters to it, and take their mean
    // in those shares. You build it from four small functions, put them together for a batch with
    // several heads, and get the same numbers as the crate's `Attention`. Then you watch a trained
    // model do it.
    //
    // *About 50 minutes; every cell answers within a few seconds. You need lesson 02.*

    // %%
    use cloze::lessons::data;
    use cloze::model::weights::Model;
    use cloze::model::{Attention, Pass, SequenceAttention, real_rows};
    use cloze::prelude::*;
    use cloze::text::embedded;

    // %% [markdown]
    // ## Where we are going
    //
    // `cloze-tiny` is a trained BERT of 2 layers with 2 heads each. This is one of its heads
    // reading a sentence. Each row is a token that looks, each column one that is looked at; a
    // row's shares add up to 1.

    // %%
    let folder: std::path::PathBuf = data::folder(data::MODEL)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let dev: Cpu = Cpu::default();
    // Width 128, 2 heads of size 64, feed-forward width 512.
    let bert: Bert<128, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &dev)?;

    /// One text as a batch of its own, with its tokens.
    fn batch_of(tokenizer: &WordPiece, text: &str) -> (Packed, Vec<String>) {
        let encoding = tokenizer.encode_with_special(text);
        let mut batch = Packed::default();
        batch.push(0, &encoding.ids, &vec![0; encoding.ids.len()]);
        (batch, encoding.tokens)
    }

    // %%
    let sentence: &str = "The old man opened the door, and he went into his house.";
    let (batch, tokens): (Packed, Vec<String>) = batch_of(&tokenizer, sentence);
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
    // ## The idea
    //
    // Think of a library in which every token is both a reader and a book. As a reader it has a
    // **query** $q$: what it looks for. As a book it has a **key** $k$, the words on its spine, and
    // a **value** $v$, what is inside. The reader compares its query with every spine and goes home
    // with a mixture of all the books, most of those that fit best:
    //
    // $$ \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d}}\right) V $$
    //
    // with a row for each token in $Q$, $K$ and $V$, all of width $d$ ([Vaswani et al.
    // 2017](https://arxiv.org/abs/1706.03762), section 3.2.1). All three come from the same vectors
    // $x$ by three learned linear layers. That is the *self* in self-attention.
    //
    // We go from the inside to the outside: $QK^\top/\sqrt{d}$ is exercise 1, the softmax 2, the
    // product with $V$ 3; exercises 4 and 5 do it for many heads and sentences at once.
    //
    // ## Step 1: scores
    //
    // The dot product of two vectors is large where they point in the same direction. Row $i$,
    // column $j$ of the scores says how well the query of token $i$ fits the key of token $j$.
    //
    // **Exercise 03.1.** Compute the scores, divided by $\sqrt{K}$, for queries of size `K`.

    // %%
    /// One row of `N` numbers for each token: (tokens, N).
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;
    /// One row for each query, one column for each key.
    type Grid = Tensor<(usize, usize), f32, Cpu>;

    fn scores<const K: usize>(q: Rows<K>, k: Rows<K>) -> Grid {
        // BEGIN SOLUTION
        cloze::solution!("03.1");
        q.matmul(k.permute::<_, Axes2<1, 0>>()) * (1.0 / (K as f32).sqrt())
        // END SOLUTION
    }

    // %%
    check!("03.1", |judge| {
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
            (0.5, "You divided by K; its square root is meant."),
        ];
        for (factor, slip) in slips {
            // Only what has the right shape can be compared.
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
            "The product is 16 and K is 16 here: divide by the square root of whatever `K` is.",
        );
    });

    // %% [markdown]
    // ### Why divide by √K?
    //
    // A dot product of two random vectors with $K$ entries is a sum of $K$ random terms: it grows
    // like $\sqrt{K}$. And a softmax over large numbers is nearly all or nothing: one key gets
    // everything, and, worse, the gradient to all others is nearly zero, so nothing can be learned.
    // Measure it: among 16 random keys, how much does the best one get?

    // %%
    /// The mean share of the best of 16 random keys, for 64 random queries of size `k`.
    fn best_share(k: usize, scaled: bool) -> f64 {
        let dev = Cpu::seed_from_u64(k as u64);
        let q: Grid = dev.sample_normal_like(&(64, k));
        let keys: Grid = dev.sample_normal_like(&(k, 16));
        let divisor = if scaled { (k as f32).sqrt() } else { 1.0 };
        let weights: Grid = (q.matmul(keys) / divisor).softmax::<Axis<1>>();
        let best = weights.max::<(usize,), Axis<1>>();
        f64::from(best.mean::<Rank0, Axis<0>>().array())
    }

    fn best_shares(scaled: bool) -> Vec<(f64, f64)> {
        [2, 4, 8, 16, 32, 64, 128, 192, 256]
            .map(|k| (k as f64, best_share(k, scaled)))
            .to_vec()
    }

    show!(
        LineChart::new("What the best of 16 random keys gets")
            .axes("size K of queries and keys", "share")
            .line("scores as they are", &best_shares(false))
            .line("divided by sqrt(K)", &best_shares(true))
            .reference("all alike", 1.0 / 16.0)
    );
    println!(
        "at size 64 the best of 16 gets {:.2} unscaled, {:.2} scaled",
        best_share(64, false),
        best_share(64, true)
    );

    // %% [markdown]
    // Unscaled, at BERT's head size of 64 the best key already takes nearly everything before
    // anything was learned. Scaled, the size of the head makes no difference.
    //
    // ## Step 2: weights
    //
    // Softmax turns a row of scores into shares: all positive, their sum 1,
    //
    // $$ w_{ij} = \frac{e^{s_{ij}}}{\sum_{j'} e^{s_{ij'}}} . $$
    //
    // One thing must not get a share: padding. The tokens behind a sentence's end are not there,
    // and no token may look at them.
    //
    // **Exercise 03.2.** Give the weights. Columns from `real` on are padding and get 0.

    // %%
    fn weights(scores: Grid, real: usize) -> Grid {
        // BEGIN SOLUTION
        cloze::solution!("03.2");
        let shape = *scores.shape();
        let mask: Vec<f32> = (0..shape.1)
            .map(|j| if j < real { 0.0 } else { -1e9 })
            .collect();
        let mask = Cpu::default().tensor_from_vec(mask, (shape.1,));
        (scores + mask.broadcast_like::<_, Axis<0>>(&shape)).softmax::<Axis<1>>()
        // END SOLUTION
    }

    // %%
    check!("03.2", |judge| {
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
            "A row belongs to one query, which shares 1 among the keys. If your columns add up to 1, \
             the softmax went along axis 0.",
        );
        judge.close_tensor(
            "weights of [[0, 0, ln 2], [0, ln 3, ln 4]], nothing padded,",
            &open,
            &dev.tensor([[0.25, 0.25, 0.5], [0.125, 0.375, 0.5]])
                .realize(),
            1e-5,
            "The powers are 1, 1, 2 in the first row and 1, 3, 4 in the second.",
        );
        let masked = weights(s, 2);
        let hidden: Vec<f32> = masked.as_vec().into_iter().skip(2).step_by(3).collect();
        judge.holds(
            &format!("with `real` 2 the last column is [0, 0], yours is {hidden:?}"),
            hidden.iter().all(|&w| (w - 1.0 / 3.0).abs() > 1e-4),
            "A third for the padding: its score became 0, and a score of 0 counts as much as any \
             other, e⁰ = 1. Which score has a power of 0?",
        );
        judge.holds(
            &format!("with `real` 2 the last column is [0, 0], yours is {hidden:?}"),
            hidden.iter().all(|&w| w == 0.0),
            "Column 2 is padding: nobody looks at it, not even a little. Its score must be so low \
             that its power is 0.",
        );
        judge.holds(
            "with padding too every row has the sum 1",
            sums(&masked).iter().all(|sum| (sum - 1.0).abs() < 1e-5),
            "The share of the padding must go to the others: hide it before the softmax, not after it.",
        );
        judge.close_tensor(
            "the same weights with `real` 2",
            &masked,
            &dev.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]).realize(),
            1e-5,
            "Powers 1, 1 and 1, 3; the third column is not there.",
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
    // ## Step 3: mix
    //
    // **Exercise 03.3.** Each token goes home with the weighted mean of all values: row $i$ is
    // $\sum_j w_{ij} v_j$.

    // %%
    fn mix<const K: usize>(weights: Grid, values: Rows<K>) -> Rows<K> {
        // BEGIN SOLUTION
        cloze::solution!("03.3");
        weights.matmul(values)
        // END SOLUTION
    }

    // %%
    check!("03.3", |judge| {
        let dev = Cpu::default();
        let values: Rows<2> = dev
            .tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0]])
            .realize();
        let turn: Grid = dev
            .tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
            .realize();
        let turned = mix(turn, values.clone());
        judge.close_tensor(
            "mix where query 0 looks at token 1 alone, query 1 at token 2 and query 2 at token 0,",
            &turned,
            &dev.tensor([[3.0, 30.0], [5.0, 50.0], [1.0, 10.0]])
                .realize(),
            1e-6,
            "All of the weight on one token gives that token's value, unchanged. If your first row \
             is [5, 50], the weights were transposed: their rows are the queries already.",
        );
        // Transposed weights fit only where queries and keys are equally many.
        if turned.as_vec()[0] == 3.0 {
            let even: Grid = dev.tensor([[0.5, 0.25, 0.25]]).realize();
            judge.close_tensor(
                "mix with the weights [0.5, 0.25, 0.25]",
                &mix(even, values),
                &dev.tensor([[2.5, 25.0]]).realize(),
                1e-6,
                "0.5 · 1 + 0.25 · 3 + 0.25 · 5 = 2.5: a mean of the rows, in shares.",
            );
        }
    });

    // %% [markdown]
    // That is attention. Put your three functions behind each other and see it as a lookup: four
    // keys that point in four directions, values that say which, and two queries: one that knows
    // what it wants, one that does not.

    // %%
    if solved!("03.1") && solved!("03.2") && solved!("03.3") {
        let four: Rows<4> = dev
            .tensor([
                [1.0, 0.0, 0.0, 0.0],
                [0.0, 1.0, 0.0, 0.0],
                [0.0, 0.0, 1.0, 0.0],
                [0.0, 0.0, 0.0, 1.0],
            ])
            .realize();
        let queries: Rows<4> = dev
            .tensor([[0.0, 9.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
            .realize();
        let values: Rows<1> = dev.tensor([[10.0], [20.0], [30.0], [40.0]]).realize();
        let shares = weights(scores(queries, four), 4);
        show!(shares.clone());
        show!(mix(shares, values));
    }

    // %% [markdown]
    // The first query gets almost exactly 20, the value behind its key. The second gets 25, the
    // mean of everything. A dictionary that answers *partly*, and whose answer has a gradient, can
    // be trained.
    //
    // ## Step 4: heads
    //
    // One softmax can look for one thing. Language needs several at once: *he* looks for the noun
    // that it stands for, and also for its verb. So BERT cuts its *queries, keys and values* (not $x$:
    // every head sees all of it) into $A$ **heads** of $K = H/A$ columns. Each does attention on its own,
    // the results $o_1, \dots, o_A$ stand side by side again, and a fourth linear layer mixes them
    // (section 3.2.2):
    //
    // $$ \operatorname{MultiHead}(x) = [\,o_1 \,|\, \dots \,|\, o_A\,]\, {W^O}^\top + b^O $$
    //
    // BERT-base has 12 heads of 64, `cloze-tiny` 2 of 64.
    //
    // For a batch the shape is $(B, S, H)$, and heads must become an axis of their own, in front of
    // the positions, $(B, A, S, K)$: then `matmul`, which multiplies the last two axes, does all
    // sentences and all heads in one call. `reshape_like(&shape)` gives the numbers another shape and
    // keeps their order; `permute` moves whole axes. The sizes that are known at run time only can be
    // asked of the tensor: `let (b, s, _) = *x.shape();`.
    //
    // **Exercise 03.4.** Split the width `W` into `A` heads of size `K`: head `a` gets the columns
    // `a * K .. (a + 1) * K` of every token.

    // %%
    fn split_heads<const W: usize, const A: usize, const K: usize>(
        x: Tensor<(usize, usize, Const<W>), f32, Cpu>,
    ) -> Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu> {
        // BEGIN SOLUTION
        cloze::solution!("03.4");
        let (b, s, _) = *x.shape();
        x.reshape_like(&(b, s, Const::<A>, Const::<K>))
            .permute::<_, Axes4<0, 2, 1, 3>>()
        // END SOLUTION
    }

    // %%
    check!("03.4", |judge| {
        // Two sentences of three tokens, six numbers each: 100 · sentence + 10 · token + column.
        let dev = Cpu::default();
        let numbers = |b: usize, s: usize, c: usize| (100 * b + 10 * s + c) as f32;
        let mut x = Vec::new();
        for b in 0..2 {
            for s in 0..3 {
                x.extend((0..6).map(|c| numbers(b, s, c)));
            }
        }
        let yours = split_heads::<6, 2, 3>(dev.tensor_from_vec(x, (2, 3, Const::<6>)));
        let got = yours.as_vec();
        judge.holds(
            "sentence 0, head 0, token 1 starts with 10 (token 1, column 0); yours starts with 3",
            got[3] != 3.0,
            "3 is column 3 of token 0. `reshape` alone keeps the order of the numbers, so it can't \
             bring the heads in front of the tokens: a head got halves of different tokens. Cut \
             first, then permute.",
        );
        let mut right = Vec::new();
        for b in 0..2 {
            for a in 0..2 {
                for s in 0..3 {
                    right.extend((0..3).map(|k| numbers(b, s, 3 * a + k)));
                }
            }
        }
        judge.close_tensor(
            "split_heads, where entry [b, s, c] is 100 b + 10 s + c,",
            &yours,
            &dev.tensor_from_vec(right, (2, Const::<2>, 3, Const::<3>)),
            1e-6,
            "At [b, a, s, k] stands 100 b + 10 s + 3 a + k: head 1 begins with column 3 of each token. \
             2 in place of 1: the last axis was cut into (K, A), so head 0 got every second column; cut it \
             into (A, K).",
        );
    });

    // %% [markdown]
    // That slip deserves its place in the check. It compiles, all shapes are right, the model even
    // learns something, and every head sees scraps.
    //
    // ## Step 5: the whole
    //
    // **Exercise 03.5.** Multi-head attention for a padded batch. `layer` is the crate's
    // `Attention`: take its four linear layers, `query`, `key`, `value` and, at the end, `output`, which is
    // $W^O$ with its bias. Each has a `forward(x)` (leave the `forward` of `layer` itself alone). `mask` is $(B, S)$, 0 at real
    // tokens and $-10^9$ at padding, and is added to the scores.

    // %%
    const H: usize = 128;
    const A: usize = 2;
    const K: usize = 64;
    /// A batch of sentences, padded to the longest: (B, S, H).
    type Batch = Tensor<(usize, usize, Const<H>), f32, Cpu>;

    fn multi_head(layer: &Attention<H, A, K, f32, Cpu>, x: Batch, mask: &Grid) -> Batch {
        // BEGIN SOLUTION
        cloze::solution!("03.5");
        let (b, s, _) = *x.shape();
        let heads = (b, s, Const::<A>, Const::<K>);
        let q = layer.query.forward(x.clone()).reshape_like(&heads);
        let k = layer.key.forward(x.clone()).reshape_like(&heads);
        let v = layer.value.forward(x).reshape_like(&heads);
        let q = q.permute::<_, Axes4<0, 2, 1, 3>>();
        let k = k.permute::<_, Axes4<0, 2, 3, 1>>();
        let v = v.permute::<_, Axes4<0, 2, 1, 3>>();
        let scores = q.matmul(k) * (1.0 / (K as f32).sqrt());
        let shape = *scores.shape();
        let scores = scores + mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape);
        let mixed = scores.softmax::<Axis<3>>().matmul(v);
        let side_by_side = mixed.permute::<_, Axes4<0, 2, 1, 3>>();
        layer
            .output
            .forward(side_by_side.reshape_like(&(b, s, Const::<H>)))
        // END SOLUTION
    }

    // %% [markdown]
    // Two sentences of different length, embedded as in lesson 02, are what the first layer gets.
    // The crate's layer with the same parameters says what should come out.

    // %%
    let mut two: Packed = Packed::default();
    for (number, text) in [sentence, "It rained all day."].iter().enumerate() {
        let ids = tokenizer.encode_with_special(text).ids;
        two.push(number as u64, &ids, &vec![0; ids.len()]);
    }
    let shape: (usize, usize) = (two.sequences(), two.longest());
    let mut hidden_places: Vec<f32> = vec![-1e9; shape.0 * shape.1];
    for (number, range) in two.ranges().enumerate() {
        hidden_places[number * shape.1..][..range.len()].fill(0.0);
    }
    let mask: Grid = dev.tensor_from_vec(hidden_places, shape);

    /// What the crate's modules want to know beside their input; nothing is dropped out here.
    fn pass<'a>(batch: &'a Packed, config: &'a Config, mask: Option<Grid>) -> Pass<'a, f32, Cpu> {
        Pass {
            batch,
            config,
            dropout: None,
            mask,
            future: None,
        }
    }

    let x: Batch = bert
        .embeddings
        .forward::<NoneTape>(&pass(&two, &bert.config, None));
    let theirs: Batch = bert.layers[0].attention.forward::<NoneTape>(
        x.clone(),
        0,
        &pass(&two, &bert.config, Some(mask.clone())),
    );
    let unmasked: Batch =
        bert.layers[0]
            .attention
            .forward::<NoneTape>(x.clone(), 0, &pass(&two, &bert.config, None));
    show!(x.shape().concrete(), mask.shape().concrete());

    check!("03.5", |judge| {
        let yours = multi_head(&bert.layers[0].attention, x.clone(), &mask);
        judge.equal(
            "the shape that comes out",
            yours.shape().concrete(),
            x.shape().concrete(),
            "Attention keeps the shape: layers can be stacked because of it.",
        );
        if yours.shape() == x.shape() {
            let rows = |t: &Batch| real_rows(t.clone(), &two);
            let apart = |other: &Batch| {
                let differences = (rows(&yours) - rows(other)).abs().as_vec();
                differences.into_iter().fold(0.0, f32::max)
            };
            judge.holds(
                "the short sentence does not look at its padding",
                apart(&theirs) < 1e-4 || apart(&unmasked) > 1e-4,
                "The first sentence is right and the second is not: it is as if no mask had been added. \
                 If you added one, look at how it was repeated: it hides keys, the last axis, and is \
                 the same for every query. (The same number in all of a row changes no share.)",
            );
            judge.close_tensor(
                "your attention of the two sentences, the padding left out,",
                &rows(&yours),
                &rows(&theirs),
                1e-4,
                "The crate gives this. Are the scores queries times keys, and is the scale 1 / sqrt(64)? \
                 Does the softmax go along the keys, the last axis? Does `value` give the values? Do the \
                 heads stand side by side again, permuted back before the reshape? Does the output \
                 layer come last?",
            );
        }
    });

    // %% [markdown]
    // Equal to the crate's: this is the attention of every BERT. What is left is to look at it.
    //
    // ## Attention is blind to order
    //
    // Lesson 02 claimed that attention takes its input as a set. Turn the tokens round, and see
    // whether anything but the order of the answers changes:

    // %%
    /// The tokens of a batch of one sentence, from the last to the first.
    fn backwards(x: Batch) -> Batch {
        let n = x.shape().1;
        let order: Vec<usize> = (0..n).rev().collect();
        let rows: Rows<H> = x.reshape_like(&(n, Const::<H>));
        rows.gather(Cpu::default().tensor_from_vec(order, (n,)))
            .reshape_like(&(1, n, Const::<H>))
    }

    let one: Batch = bert
        .embeddings
        .forward::<NoneTape>(&pass(&batch, &bert.config, None));
    let answers: Batch = bert.layers[0].attention.forward::<NoneTape>(
        one.clone(),
        0,
        &pass(&batch, &bert.config, None),
    );
    let of_reverse: Batch = bert.layers[0].attention.forward::<NoneTape>(
        backwards(one.clone()),
        0,
        &pass(&batch, &bert.config, None),
    );
    let apart: Batch = (backwards(answers) - of_reverse).abs();
    println!(
        "attention of the reverse and the reverse of attention differ by at most {:e}",
        apart.as_vec().into_iter().fold(0.0, f32::max)
    );

    // %% [markdown]
    // Nothing but rounding. (The vectors kept their position embeddings here: what was turned round
    // is the order of the rows.) Whatever BERT knows of order comes from the positions that were
    // added in lesson 02.
    //
    // ## Seen in a trained model
    //
    // All four heads of `cloze-tiny` on the sentence. Write a sentence of your own above and run
    // from there.

    // %%
    for layer in 0..seen.layers.len() {
        for head in 0..seen.heads {
            let title = format!("Layer {layer}, head {head}");
            show!(
                HeatMap::new(title, seen.weights(layer, head), tokens.len())
                    .labels(&tokens, &tokens)
            );
        }
    }

    // %% [markdown]
    // In layer 0, head 0, `the` finds `man`, and `into` and `his` find `house`: nouns that are
    // still to come. The two narrow diagonals are heads of another kind.
    //
    // One sentence is an anecdote. What do the heads do on a hundred of them? For every token of
    // the text that comes with Cloze, sum up the weight that goes to itself, to its neighbours, to
    // the special tokens. ([Clark et al. 2019](https://arxiv.org/abs/1906.04341), section 3, do
    // this with BERT-base and find heads for each of these, and many that rest on `[SEP]`.)

    // %%
    let kinds: [&str; 6] = [
        "itself",
        "the one before",
        "the one after",
        "[CLS]",
        "[SEP]",
        "others",
    ];
    let texts: Vec<String> = embedded::paragraphs().take(100).map(|p| p.text).collect();
    let heads: usize = seen.layers.len() * seen.heads;
    let mut shares: Vec<f32> = vec![0.0; heads * kinds.len()];
    let mut lookers: usize = 0;
    for text in &texts {
        let mut ids = tokenizer.encode_with_special(text).ids;
        ids.truncate(model.config.max_position_embeddings);
        let mut batch = Packed::default();
        batch.push(0, &ids, &vec![0; ids.len()]);
        let seen = bert.attention(&batch).swap_remove(0);
        let n = seen.tokens;
        for head in 0..heads {
            let map = seen.weights(head / seen.heads, head % seen.heads);
            // The special tokens at both ends look too, but here only the words between are asked.
            for i in 1..n - 1 {
                for j in 0..n {
                    let kind = match j {
                        j if j == i => 0,
                        0 => 3,
                        j if j == n - 1 => 4,
                        j if j + 1 == i => 1,
                        j if j == i + 1 => 2,
                        _ => 5,
                    };
                    shares[head * kinds.len() + kind] += map[i * n + j];
                }
            }
        }
        lookers += n - 2;
    }
    for share in &mut shares {
        *share /= lookers as f32;
    }
    let names: Vec<String> = (0..heads)
        .map(|head| format!("layer {} head {}", head / seen.heads, head % seen.heads))
        .collect();
    show!(
        HeatMap::new(
            "Where the heads look: mean share of a token's attention",
            &shares,
            kinds.len()
        )
        .labels(&names, &kinds.map(String::from))
    );
    for (name, shares) in names.iter().zip(shares.chunks(kinds.len())) {
        // "Others" are many: the last kind is no place.
        let (place, share) =
            shares[..kinds.len() - 1]
                .iter()
                .enumerate()
                .fold(
                    (0, 0.0),
                    |most, (place, &share)| {
                        if share > most.1 { (place, share) } else { most }
                    },
                );
        println!("{name}: {:.0} % to {}", 100.0 * share, kinds[place]);
    }

    // %% [markdown]
    // Rows with one strong cell are specialists. In the model of this version head 1 of layer 0
    // looks at the token that follows, nearly always, and head 1 of layer 1 at the one before, in five
    // cases of six. Nobody built that in. Whoever has to fill blanks profits most from the neighbours,
    // and attention is blind to order, so the model spent a head on each. The other two look by
    // content; their weight falls under "others".
    //
    // In a notebook the next cell is a page to play with: point at a token to see its lines, choose
    // layers and heads. (`cloze attention "…"` writes the same page as a file.)

    // %%
    show!(AttentionView::new(seen.clone(), &tokens, &vec![0; tokens.len()])?.named("cloze-tiny"));

    // %% [markdown]
    // ## What it costs
    //
    // Every token looks at every other: twice the length is four times the scores. Measure one head
    // on this machine:

    // %%
    /// The least seconds of three that one head of size 64 takes for `n` tokens.
    fn seconds(n: usize) -> f64 {
        let dev = Cpu::seed_from_u64(1);
        let q: Grid = dev.sample_normal_like(&(n, 64));
        let k: Grid = dev.sample_normal_like(&(64, n));
        let v: Grid = dev.sample_normal_like(&(n, 64));
        let once = || {
            let begun = std::time::Instant::now();
            let mixed = (q.clone().matmul(k.clone()) / 8.0)
                .softmax::<Axis<1>>()
                .matmul(v.clone());
            assert_eq!(mixed.shape().0, n);
            begun.elapsed().as_secs_f64()
        };
        (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
    }

    let lengths: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
    let measured: Vec<(f64, f64)> = lengths
        .iter()
        .map(|&n| (n as f64, 1e3 * seconds(n)))
        .collect();
    let (first, last): ((f64, f64), (f64, f64)) = (measured[0], measured[measured.len() - 1]);
    show!(
        LineChart::new("One head, forward, on this machine")
            .axes("tokens", "milliseconds")
            .logarithmic()
            .line("measured", &measured)
            .line(
                "if twice the length cost four times",
                &[(first.0, last.1 * (first.0 / last.0).powi(2)), last]
            )
    );

    // %% [markdown]
    // That is why BERT stops at 512 tokens and why most of pre-training is done at 128 (section A.2
    // of the BERT paper). The linear layers grow only with $S$; at short lengths they cost more.
    //
    // ## What goes wrong
    //
    // **A forgotten transposition.** `q.matmul(k)`, both (14, 64), of the type `Rows<64>`:
    //
    // ```text
    // error[E0277]: matmul: the left is ?×64 and the right is ?×64: one inner size is 64 and the other is known only at run time; the right transposed to 64×?, `.permute::<_, Axes2<1, 0>>()`, would fit
    // rustc: the trait bound `Tensor<(usize, Const<64>), f32, Cpu>: TryMatMul<Tensor<(usize, Const<64>), f32, Cpu>>` is not satisfied
    // ```
    //
    // The rule says (M, K) times (K, N). The right side begins with `?`, the tokens, where 64 should
    // stand: what is missing is the permute.
    //
    // **Heads that do not fill the width.** `Bert<128, 3, 64, 512, f32, Cpu>`, 3 heads of 64 in a
    // width of 128:
    //
    // ```text
    // error[E0080]: evaluation panicked: heads × head size must be the hidden size
    //   | evaluation of `Attention::<128, 3, 64, f32, Cpu>::HEADS_FILL_HIDDEN` failed here
    // ```
    //
    // A constant of the crate that is computed while the model is compiled, for this very purpose:
    // no such model can exist. (`cargo check` does not compute it; building does.)
    //
    // **The same mistake in sizes of the data.** `x.reshape_like(&(2, 15, Const::<3>,
    // Const::<64>))` of (2, 15, 128) compiles, because 2 and 15 are values. It ends in
    //
    // ```text
    // panic: reshape: the tensor holds 3840 numbers and the new shape 5760: the sizes must multiply to 3840
    // ```
    //
    // 2 · 15 · 128 numbers are there, 2 · 15 · 3 · 64 are wanted.
    //
    // **A softmax along the wrong axis** gives no error where queries and keys are equally many.
    // Look at one row: is its sum 1?
    //
    // **A mask of minus infinity.** It works until a row has nothing left to look at, as in a
    // sentence that is all padding. Then softmax is 0 / 0, and one NaN spreads through the whole
    // model:

    // %%
    let nothing: Grid = dev.tensor([[0.3f32, -0.2], [0.1, 0.4]]).realize();
    let infinite: Grid = dev.tensor([[f32::NEG_INFINITY; 2], [0.0; 2]]).realize();
    show!((nothing.clone() + infinite).softmax::<Axis<1>>().as_vec());
    let finite: Grid = dev.tensor([[-1e9f32; 2], [0.0; 2]]).realize();
    show!((nothing + finite).softmax::<Axis<1>>().as_vec());

    // %% [markdown]
    // With $-10^9$ the row gets nonsense, but finite nonsense, in a place that nobody reads.
    //
    // ## Expected numbers
    //
    // - of 16 random keys of size 64 the best gets 0.90 of the weight unscaled and 0.29 scaled;
    // - the lookup with four keys gives 20.22 and 25;
    // - attention of the tokens in reverse differs from the reverse by rounding, about 1e-6;
    // - over 100 paragraphs head 1 of layer 0 gives 97 % of its weight to the next token, and head
    //   1 of layer 1 84 % to the one before;
    // - one head of dfdx takes four to six times as long for 2,048 tokens as for 1,024;
    // - the cells compute for about a second; the rest is compiling.
    //
    // ## On real text
    //
    // `cloze attention --model DIR "The animal didn't cross the street because it was too tired."
    // --out view.html` makes the page for any BERT in Hugging Face's layout. In a cell, put that
    // folder in place of `data::folder(data::MODEL)?` and its sizes in `Bert<…>`.
    //
    // ## Open questions
    //
    // 1. A head whose queries match no key anywhere must still give away a sum of 1. Where could it
    //    put it so that it does no harm? Look at your heat maps again.
    // 2. Attention weights look like an explanation of what the model does. Both ways of a test:
    //    could two models with the same weights give different outputs? The same outputs from
    //    different weights? ([Jain and Wallace 2019](https://arxiv.org/abs/1902.10186) and the
    //    [answer to it](https://arxiv.org/abs/1908.04626).)
    //
    // The crate's source of this part: `Attention` and `attention_probabilities` in
    // `src/model/layers.rs`, and `src/model/inspect.rs` for the views. Next: [lesson 04](04_encoder.rs), in which
    // attention becomes a layer, and layers a model.

    // %% [end]
    cloze::lessons::finish("03_attention")
}
