// ---
// title = "Many heads: the attention of BERT"
// summary = "Split the width into heads, join them again, and put multi-head attention together, equal to the crate's; then see what the heads of a trained model look at, and what attention costs."
// track = "core"
// minutes = 51
// seconds = 25
// needs = ["03", "04"]
//
// [[exercise]]
// id = "05.1"
// key = "split_heads"
// was = "03.4"
// title = "Split the width into heads"
// hints = [
//     "Two steps: cut the last axis, N, into A heads of K numbers each, then move the heads in front of the positions.",
//     "`x.reshape_like(&(b, s, Const::<A>, Const::<K>))` cuts the axis. It keeps the order of the numbers, so head 0 gets the first K columns of every token.",
//     "`.permute::<_, Axes4<0, 2, 1, 3>>()` lists the old axes in their new order: (B, S, A, K) becomes (B, A, S, K).",
// ]
//
// [[exercise]]
// id = "05.2"
// key = "join_heads"
// title = "Set the heads side by side again"
// hints = [
//     "Go back the way you came: first the heads must stand behind the positions again, (B, S, A, K), then the last two axes become one.",
//     "The permutation that swaps two axes is its own inverse: `Axes4<0, 2, 1, 3>` again.",
//     "`let (b, _, s, _) = *heads.shape();`, then permute, then `.reshape_like(&(b, s, Const::<N>))`.",
// ]
//
// [[exercise]]
// id = "05.3"
// key = "multi_head"
// was = "03.5"
// title = "Multi-head attention, whole"
// hints = [
//     "Project three times: `project(&layer.query, x.with_empty_tape())`, and the same with `key` and `value`. Each result is (B, S, H), and `split_heads::<H, A, K, T>(…)` turns it into (B, A, S, K). For the product the keys must be (B, A, K, S): swap their last two axes with `.permute::<_, Axes4<0, 1, 3, 2>>()`.",
//     "`q.matmul(k)` multiplies the last two axes for every sentence and every head: (B, A, S, S). Scale the result by 1 / sqrt(64).",
//     "The mask is (B, S), the scores are (B, A, S, S). Repeat the mask along the heads (axis 1) and the queries (axis 2): `mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape)`, where `let shape = *scores.shape();`. The keys are `Axis<3>` now, and softmax goes along them.",
//     "Mix: `weights.matmul(v)` is (B, A, S, K). Join with `join_heads::<H, A, K, T>(…)`, and finish with `project(&layer.output, …)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 05 · Many heads: the attention of BERT
    //
    // One head is one softmax, and one softmax can look for one thing. In this lesson you give
    // attention several heads, as BERT has them. Your function is the attention of your own BERT: in
    // lesson 08 it trains.
    //
    // *About 51 minutes; every cell takes a few seconds at most. You need lessons 03 and 04.*

    // %%
    use cloze::lessons::data;
    use cloze::lessons::largest_gap;
    use cloze::lessons::support::attention;
    use cloze::model::weights::Model;
    use cloze::model::{Attention, SequenceAttention, real_rows};
    use cloze::prelude::*;
    use cloze::text::embedded;
    use cloze::view::Flow;

    // %% [markdown]
    // ## Where we are going
    //
    // Language needs several things at once: *he* looks for the noun that it stands for, and also for
    // its verb. So BERT cuts its queries, keys and values into $A$ heads of $d_k = H/A$ columns each.
    // ($X$ itself is not cut: the projections of every head read all of it.) Each head does its own
    // attention; the results $O_1, \dots, O_A$ are set side by side again, and a fourth linear layer
    // mixes them ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2.2):
    //
    // $$ \operatorname{MultiHead}(X) = [\,O_1 \,|\, \dots \,|\, O_A\,]\, W^O + b^O $$
    //
    // BERT-base has 12 heads of size 64, `cloze-tiny` 2 of size 64. (From lesson 07 on, *head* also
    // means the layers on top of a model that turn its vectors into an answer. The two have nothing
    // in common but the name.)

    // %%
    show!(
        Flow::new("Multi-head attention", "x: (B, S, H)")
            .step("three projections", "queries, keys, values: (B, S, H) each")
            .step("split", "A heads of K numbers: (B, A, S, K)")
            .step(
                "scores, mask, softmax",
                "lesson 04, for each head: (B, A, S, S)"
            )
            .step("mix the values", "(B, A, S, K)")
            .step("join", "heads side by side: (B, S, H)")
            .step("output projection", "(B, S, H)")
    );

    // %% [markdown]
    // ## Step 1: split
    //
    // A batch has the shape $(B, S, H)$. The heads must become an axis of their own in front of the
    // positions, `(B, A, S, K)`: then `matmul`, which multiplies the last two axes, does all
    // sentences and all heads in one call. `reshape_like(&shape)` gives the numbers another shape
    // and keeps their order. `permute` reorders whole axes: `x.permute::<_, Axes4<…>>()` lists the
    // old axes in their new order. Sizes that are known only at run time come from the tensor,
    // `let (b, s, _) = *x.shape();`, and those of the type are written `Const::<A>` in a shape.
    //
    // **Exercise 05.1.** Split the width `N` into `A` heads of size `K`: head `a` gets the columns
    // `a * K .. (a + 1) * K` of every token. (`T` is the tape, as in lesson 03; here you can ignore
    // it.)

    // %%
    fn split_heads<const N: usize, const A: usize, const K: usize, T: Taped>(
        x: Tensor<(usize, usize, Const<N>), f32, Cpu, T>,
    ) -> Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu, T> {
        // BEGIN SOLUTION
        cloze::solution!("05.1");
        let (b, s, _) = *x.shape();
        x.reshape_like(&(b, s, Const::<A>, Const::<K>))
            .permute::<_, Axes4<0, 2, 1, 3>>()
        // END SOLUTION
    }

    // %%
    check!("05.1", |judge| {
        // Two sentences of three tokens, six numbers each: 100 · sentence + 10 · token + column.
        let dev = Cpu::default();
        let numbers = |b: usize, s: usize, c: usize| (100 * b + 10 * s + c) as f32;
        let mut x = Vec::new();
        for b in 0..2 {
            for s in 0..3 {
                x.extend((0..6).map(|c| numbers(b, s, c)));
            }
        }
        let yours = split_heads::<6, 2, 3, NoneTape>(dev.tensor_from_vec(x, (2, 3, Const::<6>)));
        let got = yours.as_vec();
        judge.holds(
            "sentence 0, head 0, token 1 starts with 10 (token 1, column 0); yours starts with 3",
            got[3] != 3.0,
            "3 is column 3 of token 0. `reshape_like` keeps the order of the numbers, so it can't move the \
             heads in front of the tokens: your head got halves of different tokens. Cut the axis \
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
            "Entry [b, a, s, k] is 100 b + 10 s + 3 a + k: head 1 begins with column 3 of each token. If \
             you have 10 in place of 1, you moved the columns before you cut them. If \
             you have 2 in place of 1, you cut the last axis into (K, A), and head 0 got every second \
             column; cut it into (A, K).",
        );
    });

    // %% [markdown]
    // The slip that the check looks for first, a reshape without a permute, is a nasty one. It
    // compiles, all shapes are right, the model even learns something, and every head sees scraps of
    // different tokens.

    // %% [markdown]
    // ## Step 2: join
    //
    // **Exercise 05.2.** Undo the split: (B, A, S, K) becomes (B, S, N), and head `a` fills the columns
    // `a * K .. (a + 1) * K` again.

    // %%
    fn join_heads<const N: usize, const A: usize, const K: usize, T: Taped>(
        heads: Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu, T>,
    ) -> Tensor<(usize, usize, Const<N>), f32, Cpu, T> {
        // BEGIN SOLUTION
        cloze::solution!("05.2");
        let (b, _, s, _) = *heads.shape();
        heads
            .permute::<_, Axes4<0, 2, 1, 3>>()
            .reshape_like(&(b, s, Const::<N>))
        // END SOLUTION
    }

    // %%
    check!("05.2", |judge| {
        // Entry [b, a, s, k] is 100 b + 10 s + column, where the column is 3 a + k: joined, each token
        // must have its columns in order.
        let dev = Cpu::default();
        let (mut split, mut right, mut unmoved) = (Vec::new(), Vec::new(), Vec::new());
        for b in 0..2 {
            for a in 0..2 {
                for s in 0..5 {
                    split.extend((0..3).map(|k| (100 * b + 10 * s + 3 * a + k) as f32));
                }
            }
            for s in 0..5 {
                right.extend((0..6).map(|c| (100 * b + 10 * s + c) as f32));
            }
        }
        unmoved.extend(split.iter().copied());
        let heads = dev.tensor_from_vec(split, (2, Const::<2>, 5, Const::<3>));
        let yours = join_heads::<6, 2, 3, NoneTape>(heads);
        judge.equal(
            "the shape of 2 sentences of 5 tokens, joined",
            *yours.shape(),
            (2, 5, Const::<6>),
            "B sentences, S tokens, N numbers each.",
        );
        judge.holds(
            "token 0 of sentence 0 has the columns 0, 1, 2, 3, 4, 5",
            yours.as_vec() != unmoved,
            "Yours has 0, 1, 2, 10, 11, 12: you reshaped without moving the heads behind the positions \
             first, so a token got the same head of two tokens.",
        );
        judge.close_tensor(
            "the joined heads",
            &yours,
            &dev.tensor_from_vec(right, (2, 5, Const::<6>)),
            1e-6,
            "Entry [b, s, c] is 100 b + 10 s + c. Before the last two axes become one they must be \
             (A, K), so that the K numbers of a head stay together.",
        );
    });

    // %% [markdown]
    // Follow a number through the split and the join, and leave the transposition out. (Elsewhere
    // `cloze lessons picture heads` writes the page.)

    // %%
    show!(Picture::Heads);

    // %% [markdown]
    // ## Step 3: the whole
    //
    // **Exercise 05.3.** Write multi-head attention for a padded batch. `layer` is the crate's
    // `Attention` and holds the parameters of four linear layers: `query`, `key`, `value` and, at the
    // end, `output`, which is $W^O$ with its bias. `project(&layer.query, x)` applies one of them to
    // every token. `mask` is $(B, S)$: 0 at real tokens, $-10^9$ at padding. Add it to the scores.
    //
    // `x` is needed three times, and with a tape it has no `clone`. `x.with_empty_tape()` gives you
    // the same numbers once more; in training each copy records its own part, and the parts are
    // joined where the results meet. Call your functions with all sizes, since the compiler can't
    // guess them: `split_heads::<H, A, K, T>(…)`.

    // %%
    const H: usize = 128;
    const A: usize = 2;
    const K: usize = 64;
    /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
    type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;
    /// What is added to the scores: 0 at real tokens, -10⁹ at padding, (B, S).
    type Grid = Tensor<(usize, usize), f32, Cpu>;

    fn multi_head<T: Taped>(
        layer: &Attention<H, A, K, f32, Cpu>,
        x: Batch<T>,
        mask: &Grid,
    ) -> Batch<T> {
        // BEGIN SOLUTION
        cloze::solution!("05.3");
        let q = split_heads::<H, A, K, T>(project(&layer.query, x.with_empty_tape()));
        let k = split_heads::<H, A, K, T>(project(&layer.key, x.with_empty_tape()));
        let v = split_heads::<H, A, K, T>(project(&layer.value, x));
        let scores = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>()) * (1.0 / (K as f32).sqrt());
        let shape = *scores.shape();
        let scores = scores + mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape);
        let mixed = scores.softmax::<Axis<3>>().matmul(v);
        project(&layer.output, join_heads::<H, A, K, T>(mixed))
        // END SOLUTION
    }

    // %% [markdown]
    // The check gives your function two sentences of different lengths, embedded as in lesson 03 and
    // padded. It compares the result with that of the crate's layer, which has the same parameters.
    // They are those of `cloze-tiny`.

    // %%
    let folder: std::path::PathBuf = data::folder(data::TINY)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let dev: Cpu = Cpu::default();
    // Width 128, 2 heads of size 64, feed-forward width 512.
    let bert: Bert<H, A, K, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &dev)?;
    let sentence: &str = "The old man opened the door, and he went into his house.";

    // %%
    let two: Packed = attention::batch_of(&tokenizer, &[sentence, "It rained all day."], 128);
    let x: Batch = attention::embedded(&bert, &two);
    let mask: Grid = attention::padding_mask(&two);
    let theirs: Batch = attention::attended(&bert, 0, &two, &x, Some(&mask));
    let unmasked: Batch = attention::attended(&bert, 0, &two, &x, None);
    show!(x.shape().concrete(), mask.shape().concrete());

    // %%
    check!("05.3", |judge| {
        let yours = multi_head(&bert.layers[0].attention, x.clone(), &mask);
        judge.equal(
            "the shape that comes out",
            yours.shape().concrete(),
            x.shape().concrete(),
            "Attention keeps the shape of its input; that is why layers can be stacked.",
        );
        if yours.shape() == x.shape() {
            let rows = |t: &Batch| real_rows(t.clone(), &two);
            let apart = |other: &Batch| largest_gap(&rows(&yours).as_vec(), &rows(other).as_vec());
            judge.holds(
                "the short sentence does not look at its padding",
                apart(&theirs) < 1e-4 || apart(&unmasked) > 1e-4,
                "These are the numbers without a mask. If you added it, look at how you repeated it: it \
                 hides keys, which are the last axis, and is the same for every query. (Adding the same \
                 number to a whole row of scores changes no weight.)",
            );
            // The frequent slips, computed without your `split_heads` and `join_heads`.
            type Split = Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu>;
            type Scores = Tensor<(usize, Const<A>, usize, usize), f32, Cpu>;
            let layer = &bert.layers[0].attention;
            let (b, s, _) = *x.shape();
            let [q, k, v]: [Split; 3] = [&layer.query, &layer.key, &layer.value].map(|linear| {
                let cut = (b, s, Const::<A>, Const::<K>);
                let y = linear.forward(x.clone()).reshape_like(&cut);
                y.permute::<_, Axes4<0, 2, 1, 3>>()
            });
            let bare: Scores = q.matmul(k.clone().permute::<_, Axes4<0, 1, 3, 2>>());
            let masked = |scale: f32| {
                let shape = *bare.shape();
                let mask = mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape);
                bare.clone() * scale + mask
            };
            let mix = |weights: Scores, v: &Split| -> Batch {
                let mixed = weights.matmul(v.clone());
                let mixed = mixed.permute::<_, Axes4<0, 2, 1, 3>>();
                mixed.reshape_like(&(b, s, Const::<H>))
            };
            let scaled_by = |scale: f32| {
                layer
                    .output
                    .forward(mix(masked(scale).softmax::<Axis<3>>(), &v))
            };
            let by_root = || masked((K as f32).sqrt().recip());
            let slips: [(Batch, &str); 6] = [
                (
                    scaled_by(1.0),
                    "The scores are not scaled: divide them by the square root of `K`.",
                ),
                (
                    scaled_by(1.0 / K as f32),
                    "You divided the scores by `K`: divide by its square root.",
                ),
                (
                    scaled_by((H as f32).sqrt().recip()),
                    "You divided by the root of the width H. A query has `K` numbers: take its root.",
                ),
                (
                    layer
                        .output
                        .forward(mix(by_root().softmax::<Axis<2>>(), &v)),
                    "The softmax went along the queries. The keys are the last axis, `Axis<3>`.",
                ),
                (
                    layer
                        .output
                        .forward(mix(by_root().softmax::<Axis<3>>(), &k)),
                    "The weights are right, but they mix the keys. Mix the values.",
                ),
                (
                    mix(by_root().softmax::<Axis<3>>(), &v),
                    "The last linear layer is missing: apply `layer.output` to the joined heads.",
                ),
            ];
            for (slip, advice) in slips {
                judge.holds(
                    "your attention returns what the crate's does",
                    apart(&slip) > 1e-4,
                    advice,
                );
            }
            judge.close_tensor(
                "your attention of the two sentences, the padding left out,",
                &rows(&yours),
                &rows(&theirs),
                1e-4,
                "Are the scores queries times keys, and is the scale 1 / sqrt(64)? Does the softmax go \
                 along the keys, the last axis? Does `value` make the values? Are the heads joined \
                 before `output`, and does `output` come last?",
            );
        }
        let start: Batch<OwnedTape<f32, Cpu>> = x.leaky_trace();
        let taped = multi_head(&bert.layers[0].attention, start, &mask);
        let mut gradients = taped.square().sum::<Rank0, _>().backward();
        for (name, linear) in [
            ("query", &bert.layers[0].attention.query),
            ("key", &bert.layers[0].attention.key),
            ("value", &bert.layers[0].attention.value),
            ("output", &bert.layers[0].attention.output),
        ] {
            // Without a recording there is no gradient: zeros in its place.
            let _ = gradients.try_alloc_for(&linear.weight);
            judge.holds(
                &format!("in training the gradient reaches `{name}`"),
                gradients.get(&linear.weight).as_vec().iter().any(|&g| g != 0.0),
                "Somewhere the tape was dropped: copy with `with_empty_tape()`, which keeps recording.",
            );
        }
    });

    // %% [markdown]
    // Your numbers are the crate's: this is the attention of every BERT. Now look at it at work.

    // %% [markdown]
    // ## Attention is blind to order
    //
    // Lesson 03 claimed that attention treats its input as a set. Reverse the order of the rows, and
    // see whether anything but the order of the results changes:

    // %%
    let batch: Packed = attention::batch_of(&tokenizer, &[sentence], 128);
    let one: Batch = attention::embedded(&bert, &batch);
    let result: Batch = attention::attended(&bert, 0, &batch, &one, None);
    let backwards: Batch = attention::reversed(&one);
    let of_backwards: Batch = attention::attended(&bert, 0, &batch, &backwards, None);
    let apart: Batch = (attention::reversed(&result) - of_backwards).abs();
    println!(
        "attention of the reverse and the reverse of attention differ by at most {:e}",
        apart.as_vec().into_iter().fold(0.0, f32::max)
    );

    // %% [markdown]
    // They differ by rounding only. (Each vector kept its position embedding: only the order of the
    // rows was reversed.) Whatever BERT knows about order comes from the positions that lesson 03
    // added.

    // %% [markdown]
    // ## In a trained model
    //
    // Here are all four heads of `cloze-tiny` on the sentence. Put a sentence of your own into its
    // cell above and run again from there.

    // %%
    let tokens: Vec<String> = tokenizer.encode_with_special(sentence).tokens;
    let seen: SequenceAttention = bert.attention(&batch).swap_remove(0);
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
    // Head 0 of layer 0 is the one of lesson 04. The two narrow diagonals are heads of another kind.
    //
    // One sentence is an anecdote. What do the heads do in a hundred texts? Take each token, except
    // the special ones, and average the weights that it gives to itself, to its neighbours, to the
    // special tokens, and to all others. ([Clark et al. 2019](https://arxiv.org/abs/1906.04341),
    // section 3, did this with BERT-base. They found heads for each of these places, and many that
    // look mostly at `[SEP]`.)

    // %%
    let texts: Vec<String> = embedded::paragraphs().take(100).map(|p| p.text).collect();
    let shares: Vec<f32> = attention::where_heads_look(&bert, &tokenizer, &texts);
    let names: Vec<String> = (0..4)
        .map(|head| format!("layer {} head {}", head / A, head % A))
        .collect();
    let places: [String; 6] = attention::PLACES.map(String::from);
    show!(
        HeatMap::new("Where the heads look: mean weights", &shares, places.len())
            .labels(&names, &places)
    );
    for (name, shares) in names.iter().zip(shares.chunks(places.len())) {
        println!(
            "{name}: {:.0} % to the token before, {:.0} % to the one after, {:.0} % to others",
            100.0 * shares[1],
            100.0 * shares[2],
            100.0 * shares[5]
        );
    }

    // %% [markdown]
    // A row with one strong cell is a specialist. Head 1 of layer 0 looks nearly always at the next
    // token, and head 1 of layer 1 gives five sixths of its weight to the one before. Nobody built
    // that in. To fill blanks, a model profits most from the neighbours, and attention is blind to
    // order, so the model spent a head on each side. The other two heads look by content, and most of their weight
    // falls under "others".
    //
    // In a notebook the next cell is a page to play with: point at a token to see its lines, and
    // choose layers and heads. (`cloze attention "…" --model cloze-tiny` writes the same page to a file.)

    // %%
    show!(AttentionView::new(seen.clone(), &tokens, &vec![0; tokens.len()])?.named("cloze-tiny"));

    // %% [markdown]
    // ## What it costs
    //
    // Every token looks at every other, so twice the length means four times as many scores. Measure
    // one head on this machine:

    // %%
    let measured: Vec<(f64, f64)> = [64, 128, 256, 512, 1024, 2048]
        .map(|n| (n as f64, 1e3 * attention::head_seconds(n)))
        .to_vec();
    let longest: (f64, f64) = measured[5];
    show!(
        LineChart::new("One head, forward, on this machine")
            .axes("tokens", "milliseconds")
            .logarithmic()
            .line("measured", &measured)
            .line(
                "if twice the length cost four times",
                &[(64.0, longest.1 / 1024.0), longest]
            )
    );
    println!(
        "2,048 tokens take {:.1} times as long as 1,024",
        longest.1 / measured[4].1
    );

    // %% [markdown]
    // That is why BERT's authors did 90 % of their pre-training steps at 128 tokens and only the last
    // 10 % at 512 ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), appendix A.2). The linear
    // layers cost only twice as much for twice the length; at short lengths they cost more than
    // attention does.
    //
    // BERT can't read more than 512 tokens for another reason: its table of positions (lesson 03) has
    // 512 rows. Nothing in attention depends on the length; your `multi_head` would take any.

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *all heads*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(5));

    // %% [markdown]
    // ## What goes wrong
    //
    // **Heads that do not fill the width.** `Bert<128, 3, 64, 512, f32, Cpu>` has 3 heads of 64 in a
    // width of 128:
    //
    // ```text
    // error[E0080]: evaluation panicked: heads × head size must be the hidden size
    //   | evaluation of `Attention::<128, 3, 64, f32, Cpu>::HEADS_FILL_HIDDEN` failed here
    // ```
    //
    // The crate has a constant whose only purpose is this check. The compiler computes it while it
    // builds the model, so no such model can exist. (`cargo check` does not compute it; building does.)
    //
    // **The same mistake in sizes that are values.** `x.clone().reshape_like(&(2, 16, Const::<3>,
    // Const::<64>))` of the `x` above, (2, 16, 128), compiles, because 2 and 16 are known only at
    // run time. Then:
    //
    // ```text
    // panic: reshape: the tensor holds 4096 numbers and the new shape 6144: the sizes must multiply to 4096
    // ```
    //
    // The tensor has 2 · 16 · 128 numbers; the new shape wants 2 · 16 · 3 · 64.
    //
    // **A mask of minus infinity**, as in lesson 04: one sentence of padding alone fills the whole
    // model with NaN. That is why the mask holds $-10^9$.

    // %% [markdown]
    // ## Expected numbers
    //
    // - attention of the reverse differs from the reverse of attention by rounding, about 1e-6;
    // - over 100 paragraphs head 1 of layer 0 gives 97 % of its weight to the next token, and head
    //   1 of layer 1 gives 84 % to the one before;
    // - one head of dfdx takes four to six times as long for 2,048 tokens as for 1,024;
    // - the cells compute for about a second; the rest is compiling.

    // %% [markdown]
    // ## On real text
    //
    // `cloze attention --model DIR "The animal didn't cross the street because it was too tired."
    // --out view.html` makes the page for any BERT in Hugging Face's layout. In a cell, put that
    // folder in place of `data::folder(data::TINY)?` and its sizes into `Bert<…>`.

    // %% [markdown]
    // ## Open questions
    //
    // 1. A head whose query fits no key still has to give away a weight of 1. Where could it put
    //    the weight so that it does no harm? Look at your heat maps again.
    // 2. Attention weights look like an explanation of what the model does. How would you test
    //    that? Could two models have the same weights and different outputs, or the same outputs
    //    and different weights? ([Jain and Wallace 2019](https://arxiv.org/abs/1902.10186), and an
    //    [answer to them](https://arxiv.org/abs/1908.04626).)
    //
    // The crate's source of this part: `Attention` and `attention_probabilities` in
    // `src/model/layers.rs`, and `src/model/inspect.rs` for the views. Next: [lesson 06](06_encoder.rs), in which
    // attention becomes a layer, and layers a model.

    // %% [end]
    cloze::lessons::finish("05_heads")
}
