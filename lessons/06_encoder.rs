// ---
// title = "The encoder: layers that can be stacked"
// summary = "See why a network needs a nonlinearity, write the feed-forward block and a whole layer with its skip connections, and stack layers to an encoder of your own, equal to the crate's."
// track = "core"
// minutes = 58
// seconds = 20
// needs = ["03", "05"]
//
// [[exercise]]
// id = "06.1"
// key = "feed_forward"
// was = "04.3"
// title = "The feed-forward block"
// hints = [
//     "Begin with a copy of the output's bias, `bias.to_vec()`, and let every unit add to it.",
//     "How well y fits the unit's pattern: the sum of `pattern[k] * y[k]`, plus the unit's own bias. GELU of it is how strongly the unit answers.",
//     "`let fit: f32 = unit.pattern.iter().zip(y).map(|(w, y)| w * y).sum();`, then `let strength = gelu_of(fit + unit.bias);`, then add `strength * unit.adds[k]` to each number k.",
// ]
//
// [[exercise]]
// id = "06.2"
// key = "encoder_layer"
// was = "04.4"
// title = "One encoder layer"
// hints = [
//     "Twice the same pattern: compute something from x, add x to it, normalise the sum. First with attention and `attention_norm`, then with the feed-forward block and `output_norm`.",
//     "`multi_head(&layer.attention, x.with_empty_tape(), mask)` is lesson 05; keep `x` for the sum: `layer.attention_norm.forward(attended + x)`.",
//     "The second sum adds the output of the *first norm*, not the layer's input: give it a name, `between`, and pass a copy of it, `between.with_empty_tape()`, to the feed-forward block.",
//     "The block is `project(&layer.output, gelu(project(&layer.intermediate, between.with_empty_tape())))`.",
// ]
//
// [[exercise]]
// id = "06.3"
// key = "encode"
// title = "The encoder, whole"
// hints = [
//     "Start with the embeddings: `let mut x = embed_batch::<T>(&bert.embeddings, &attention::sentences(batch));`.",
//     "The mask is the same for all layers: `let mask = attention::padding_mask(batch);`. Then `x = encoder_layer(layer, x, &mask);` for each of `bert.layers`, in order.",
//     "At the end `real_rows(x, batch)` leaves the padding out: (B, S, H) becomes (rows, H).",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 06 · The encoder: layers that can be stacked
    //
    // Attention lets tokens exchange information. Around it BERT builds a *layer*: attention, a small
    // network for each token, and two devices that make 12 or 24 such layers trainable when they are
    // stacked. You write the parts and stack them. The result is the encoder of your own BERT, which
    // trains from lesson 08 on, and it computes the same numbers as the crate's fast engine.
    //
    // *About 58 minutes; every cell takes a few seconds at most. You need lessons 03 and 05.*

    // %%
    use cloze::engine::TinyBert;
    use cloze::lessons::data;
    use cloze::lessons::largest_gap;
    use cloze::lessons::support::attention;
    use cloze::model::weights::Model;
    use cloze::model::{Layer, Pass, real_rows};
    use cloze::prelude::*;
    use cloze::view::Flow;

    // %% [markdown]
    // ## Where we are going
    //
    // One encoder layer, from top to bottom. B sentences of S tokens come in, each token a vector of
    // H numbers, and the same shape comes out.

    // %%
    show!(
        Flow::new("One encoder layer", "x: (B, S, H)")
            .step("multi-head attention", "lesson 05: (B, S, H)")
            .add(0, "plus the layer's input")
            .step("LayerNorm", "lesson 03")
            .step("linear, H to I", "(B, S, I), with I = 4 H")
            .step("GELU", "the nonlinearity")
            .step("linear, I to H", "(B, S, H)")
            .add(3, "plus the output of the first LayerNorm")
            .step("LayerNorm", "(B, S, H), for the next layer")
    );

    // %% [markdown]
    // Attention moves information *between* tokens; the feed-forward block, which is the two linear
    // layers and the GELU, works on each token *alone*. With $x$ the vectors of all tokens, as rows,
    //
    // $$ y = \operatorname{LayerNorm}\big(x + \operatorname{Attention}(x)\big), \qquad
    //    z = \operatorname{LayerNorm}\big(y + \operatorname{GELU}(y W_1^\top + b_1)\, W_2^\top + b_2\big) $$
    //
    // where $W_1$ is (I, H), $W_2$ is (H, I), and $b_1$, $b_2$ are their biases ([Vaswani et al.
    // 2017](https://arxiv.org/abs/1706.03762), sections 3.1 and 3.3, with GELU in place of ReLU as in
    // [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section A.2).

    // %% [markdown]
    // ## Step 1: why a nonlinearity?
    //
    // What can a stack of linear layers compute? Leave the biases out. Two layers multiply by $W_1$
    // and then by $W_2$, and $W_2 (W_1 x) = (W_2 W_1)\, x$: the product $W_2 W_1$ is a matrix too, so
    // **one** linear layer does the same. So it is with any number of layers, and with biases too. Here
    // are twelve layers, and the one that replaces them:

    // %%
    type Square = Tensor<Rank2<8, 8>, f32, Cpu>;

    let dev: Cpu = Cpu::seed_from_u64(4);
    let mut through: Tensor<Rank2<1, 8>, f32, Cpu> = dev.sample_normal();
    let input = through.clone();
    let mut product: Square = dev.sample_normal();
    through = through.matmul(product.clone());
    for _ in 1..12 {
        let layer: Square = dev.sample_normal();
        // Divided by 2.8, the root of the width, so that the numbers keep about their size.
        let layer = layer / 2.8;
        product = product.matmul(layer.clone());
        through = through.matmul(layer);
    }
    println!("twelve layers: {:.3?}", through.array()[0]);
    println!("one layer:     {:.3?}", input.matmul(product).array()[0]);

    // %% [markdown]
    // And one linear layer is not much. A line $f(x) = ax + b$ always has $f(-1) + f(1) = 2 f(0)$, so it
    // can't even compute the absolute value: $|-1| + |1| = 2$, but $2\,|0| = 0$. Put a **nonlinearity**
    // between two linear layers (also called *activation function*), such as $\operatorname{ReLU}(x) =
    // \max(x, 0)$, and it can: $|x| = \operatorname{ReLU}(x) + \operatorname{ReLU}(-x)$. With enough such
    // units two layers come as near as you like to any continuous function on a bounded region
    // ([Leshno et al. 1993](https://doi.org/10.1016/S0893-6080%2805%2980131-5)).
    //
    // ReLU has a drawback: for negative inputs it is flat, so its gradient there is 0, and no weight
    // that leads to it learns. BERT's **GELU** is a smooth relative. It multiplies $x$ by $\Phi(x)$,
    // the share of a normal distribution that lies below $x$ ([Hendrycks and Gimpel
    // 2016](https://arxiv.org/abs/1606.08415), section 2):
    //
    // $$ \operatorname{GELU}(x) = x \, \Phi(x) $$
    //
    // | $x$ | -3 | -1 | 0 | 1 | 3 |
    // |---|---:|---:|---:|---:|---:|
    // | $\Phi(x)$ | 0.001 | 0.159 | 0.5 | 0.841 | 0.999 |
    // | $\operatorname{GELU}(x)$ | -0.004 | -0.159 | 0 | 0.841 | 2.996 |
    //
    // `gelu(x)` is the crate's, for tensors. (Lesson 23 explains why dfdx's own is not used.)

    // %%
    /// The crate's GELU of one number.
    fn gelu_of(x: f32) -> f32 {
        gelu(Cpu::default().tensor([x])).array()[0]
    }

    fn curve(f: fn(f32) -> f32) -> Vec<(f64, f64)> {
        let points = (-80..=80i16).map(|i| f32::from(i) / 20.0);
        points.map(|x| (x.into(), f(x).into())).collect()
    }

    show!(
        LineChart::new("Two nonlinearities")
            .axes("x", "")
            .line("ReLU", &curve(|x| x.max(0.0)))
            .line("GELU", &curve(gelu_of))
    );

    // %% [markdown]
    // ## Step 2: the feed-forward block
    //
    // The block widens each token's vector to $I = 4H$ numbers, applies GELU, and narrows it to $H$
    // again. Two thirds of a layer's parameters are in here. What do they do? Look at one of the $I$
    // inner **units**, number $i$. It owns a row $w_i$ of $W_1$, a bias $b_{1,i}$, and a column $v_i$ of
    // $W_2$. Written unit by unit, the block computes for one token, whose vector is $y$,
    //
    // $$ b_2 + \sum_{i=1}^{I} \operatorname{GELU}(w_i \cdot y + b_{1,i})\; v_i . $$
    //
    // So $w_i$ is a *pattern*: the better $y$ fits it, the larger the dot product, and the more of
    // $v_i$ is added. In this sense the block is a memory of $I$ entries: what to look for, and what to
    // add where it is found ([Geva et al. 2021](https://arxiv.org/abs/2012.14913), section 2).
    //
    // **Exercise 06.1.** Write it in this form for one token, without tensors. `gelu_of` is GELU of one
    // number.

    // %%
    /// An inner unit of a feed-forward block.
    struct Unit {
        /// The row of W₁, H numbers.
        pattern: Vec<f32>,
        /// Its number in b₁.
        bias: f32,
        /// The column of W₂, H numbers.
        adds: Vec<f32>,
    }

    /// Returns the block's output for the token `y`; `bias` is b₂.
    fn feed_forward(units: &[Unit], bias: &[f32], y: &[f32]) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("06.1");
        let mut sum = bias.to_vec();
        for unit in units {
            let fit: f32 = unit.pattern.iter().zip(y).map(|(w, y)| w * y).sum();
            let strength = gelu_of(fit + unit.bias);
            for (number, add) in sum.iter_mut().zip(&unit.adds) {
                *number += strength * add;
            }
        }
        sum
        // END SOLUTION
    }

    // %% [markdown]
    // A trained model gives the parameters, and two sentences of different length the input: the
    // vectors after the embeddings.

    // %%
    const H: usize = 128;
    const I: usize = 512;
    /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
    type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;
    /// What is added to the scores: 0 at real tokens, -10⁹ at padding, (B, S).
    type Grid = Tensor<(usize, usize), f32, Cpu>;
    /// The crate's encoder layer of this size: 2 heads of 64.
    type TinyLayer = Layer<H, 2, 64, I, f32, Cpu>;

    let folder: std::path::PathBuf = data::folder(data::TINY)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let bert: TinyBert = Bert::build(&model.config, &model.layout, &model.values, &dev)?;
    let two: Packed = attention::batch_of(
        &tokenizer,
        &["The old man opened the door.", "It rained."],
        128,
    );
    let x: Batch = attention::embedded(&bert, &two);
    show!(x.shape().concrete());

    // %%
    fn units(layer: &TinyLayer) -> Vec<Unit> {
        let (patterns, biases) = (
            layer.intermediate.weight.as_vec(),
            layer.intermediate.bias.as_vec(),
        );
        let adds = layer.output.weight.as_vec();
        (0..I)
            .map(|i| Unit {
                pattern: patterns[i * H..][..H].to_vec(),
                bias: biases[i],
                adds: (0..H).map(|k| adds[k * I + i]).collect(),
            })
            .collect()
    }

    // %%
    check!("06.1", |judge| {
        let layer = &bert.layers[0];
        let token = x.as_vec()[H..2 * H].to_vec();
        let bias = layer.output.bias.as_vec();
        let row: Tensor<Rank2<1, H>, f32, Cpu> = dev.tensor_from_vec(token.clone(), (Const, Const));
        let inner = || layer.intermediate.forward(row.clone());
        let right = layer.output.forward(gelu(inner())).as_vec();
        let yours = feed_forward(&units(layer), &bias, &token);
        let is = |other: &[f32]| largest_gap(&yours, other) < 1e-4;
        let plus = |a: &[f32], b: &[f32], sign: f32| -> Vec<f32> {
            a.iter().zip(b).map(|(a, b)| a + sign * b).collect()
        };
        let mut unbiased = units(layer);
        unbiased.iter_mut().for_each(|unit| unit.bias = 0.0);
        let without: Vec<f32> = {
            let weight = layer
                .intermediate
                .weight
                .clone()
                .permute::<_, Axes2<1, 0>>();
            layer
                .output
                .forward(gelu(row.clone().matmul(weight)))
                .as_vec()
        };
        let slips = [
            (
                layer.output.forward(inner()).as_vec(),
                "The GELU is missing: without it the two linear layers are only one.",
            ),
            (
                plus(&right, &bias, -1.0),
                "The output's bias, b₂, is missing: begin the sum with it.",
            ),
            (
                without,
                "Each unit has a bias of its own, which is added to the dot product before the GELU.",
            ),
            (
                plus(&right, &token, 1.0),
                "You added y. The layer does that, but after the block: see step 3.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds(
                "your block computes what the crate's does",
                !is(&slip),
                said,
            );
        }
        judge.equal(
            "the length of what you return",
            yours.len(),
            H,
            "One number for each number of b₂.",
        );
        judge.close(
            "the largest difference to the crate's block, for one token,",
            largest_gap(&yours, &right),
            0.0,
            1e-4,
            "For each unit: the dot product of its pattern with y, plus its bias; GELU of that, once; \
             times `adds`, added to the sum. b₂ is added only once, not for each unit.",
        );
    });

    // %% [markdown]
    // With tensors the same takes one line, for all tokens at once: `layer.intermediate` is the linear
    // layer from H to I, `layer.output` the one from I to H, and the block is
    // `project(&layer.output, gelu(project(&layer.intermediate, y)))`.

    // %% [markdown]
    // ## Step 3: skip connections
    //
    // Why not stack such blocks as they are? In training, the gradient of the loss travels from the top
    // of the stack to its bottom. Send one through and see how much of it arrives. Three kinds of stack,
    // with fresh random weights: the block alone; $x + \text{block}(x)$, where the input skips the
    // block and is added to its output, which is called a **skip connection** or *residual connection*;
    // and the same with a LayerNorm after the sum.

    // %%
    /// The length of the gradient that arrives below `depth` blocks of width 64, relative to that of the
    /// gradient sent in at the top.
    fn arriving_gradient(depth: usize, skip: bool, norm: bool) -> f64 {
        let dev = Cpu::seed_from_u64(4);
        let x: Tensor<Rank2<16, 64>, f32, Cpu> = dev.sample_normal();
        let sent: Tensor<Rank2<16, 64>, f32, Cpu> = dev.sample_normal();
        let mut h = x.leaky_trace();
        for _ in 0..depth {
            let weights: Tensor<Rank2<64, 64>, f32, Cpu> = dev.sample_normal();
            // The same numbers with a tape of their own.
            let skipping = h.retaped::<OwnedTape<f32, Cpu>>();
            let block = gelu(h.matmul(weights / 8.0));
            h = if skip { block + skipping } else { block };
            if norm {
                h = h.normalize::<Axis<1>>(1e-12);
            }
        }
        let length = |t: &[f32]| t.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let arrived = (h * sent.clone()).sum::<Rank0, _>().backward();
        length(&arrived.get(&x).as_vec()) / length(&sent.as_vec())
    }

    // %%
    fn by_depth(skip: bool, norm: bool) -> Vec<(f64, f64)> {
        [1, 2, 3, 4, 6, 8, 12, 16, 24]
            .map(|depth| (depth as f64, arriving_gradient(depth, skip, norm)))
            .to_vec()
    }

    show!(
        LineChart::new("What is left of a gradient below a stack of blocks")
            .axes("blocks", "length that arrives")
            .logarithmic()
            .line("blocks alone", &by_depth(false, false))
            .line("with skip connections", &by_depth(true, false))
            .line("with skip connections and LayerNorm", &by_depth(true, true))
    );
    println!(
        "below 24 blocks: {:.0e} alone, {:.0} with skip connections, {:.2} with LayerNorm too",
        arriving_gradient(24, false, false),
        arriving_gradient(24, true, false),
        arriving_gradient(24, true, true)
    );

    // %% [markdown]
    // Alone, each block passes on a fraction of the gradient, and fractions multiply: below 24 blocks
    // next to nothing arrives. In $x + \text{block}(x)$ the gradient also takes the skip connection,
    // on which it arrives whole ([He et al. 2015](https://arxiv.org/abs/1512.03385), section 3.1). But
    // what the blocks add piles up, forward and backward; LayerNorm restores the size after each
    // step.
    //
    // BERT normalises after the sum ("post-norm"), as the first Transformer did. Later models
    // normalise the input of the block and leave the skip connection untouched ("pre-norm"), which
    // trains deep models more steadily ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745)).

    // %% [markdown]
    // Change the depth and the weights, and watch three stacks hand a gradient down. (Elsewhere
    // `cloze lessons picture residual` writes the page.)

    // %%
    show!(Picture::Residual);

    // %% [markdown]
    // ## Step 4: the layer
    //
    // Its attention is yours, and so are the embeddings below it. The next cell brings your
    // `embed_batch` of lesson 03 and your `multi_head` of lesson 05, or the lessons' solutions if you
    // have not passed them.

    // %% [yours] 03.3 05.3
    #[rustfmt::skip]
    #[allow(dead_code, unused_imports)]
    mod yours_03_05 {
        pub mod embeddings {
            use cloze::model::Embeddings;
            use cloze::prelude::*;

            /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
            pub type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;

            /// The parameters of BERT's input.
            pub type Tables = Embeddings<H, f32, Cpu>;

            pub fn embed_batch<T: Taped>(tables: &Tables, sentences: &[(Vec<u32>, Vec<u32>)]) -> Batch<T> {
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
            }

            pub const H: usize = 128;

            /// Rows of `N` numbers, how many is known at run time: (rows, N).
            pub type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;
        }

        pub mod heads {
            use cloze::model::Attention;
            use cloze::prelude::*;

            pub const H: usize = 128;

            pub const A: usize = 2;

            pub const K: usize = 64;

            /// A batch of sentences, padded to the longest: (B, S, H). Without a tape unless one is named.
            pub type Batch<T = NoneTape> = Tensor<(usize, usize, Const<H>), f32, Cpu, T>;

            /// What is added to the scores: 0 at real tokens, -10⁹ at padding, (B, S).
            pub type Grid = Tensor<(usize, usize), f32, Cpu>;

            pub fn multi_head<T: Taped>(
                layer: &Attention<H, A, K, f32, Cpu>,
                x: Batch<T>,
                mask: &Grid,
            ) -> Batch<T> {
                let q = split_heads::<H, A, K, T>(project(&layer.query, x.with_empty_tape()));
                let k = split_heads::<H, A, K, T>(project(&layer.key, x.with_empty_tape()));
                let v = split_heads::<H, A, K, T>(project(&layer.value, x));
                let scores = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>()) * (1.0 / (K as f32).sqrt());
                let shape = *scores.shape();
                let scores = scores + mask.clone().broadcast_like::<_, Axes2<1, 2>>(&shape);
                let mixed = scores.softmax::<Axis<3>>().matmul(v);
                project(&layer.output, join_heads::<H, A, K, T>(mixed))
            }

            pub fn join_heads<const N: usize, const A: usize, const K: usize, T: Taped>(
                heads: Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu, T>,
            ) -> Tensor<(usize, usize, Const<N>), f32, Cpu, T> {
                let (b, _, s, _) = *heads.shape();
                heads
                    .permute::<_, Axes4<0, 2, 1, 3>>()
                    .reshape_like(&(b, s, Const::<N>))
            }

            pub fn split_heads<const N: usize, const A: usize, const K: usize, T: Taped>(
                x: Tensor<(usize, usize, Const<N>), f32, Cpu, T>,
            ) -> Tensor<(usize, Const<A>, usize, Const<K>), f32, Cpu, T> {
                let (b, s, _) = *x.shape();
                x.reshape_like(&(b, s, Const::<A>, Const::<K>))
                    .permute::<_, Axes4<0, 2, 1, 3>>()
            }
        }
    }
    use yours_03_05::embeddings::embed_batch;
    use yours_03_05::heads::multi_head;

    // %% [markdown]
    // **Exercise 06.2.** Write the whole layer. `layer` is the crate's and holds the parameters. Call
    // `multi_head(&layer.attention, …, mask)` for attention. `layer.attention_norm` and
    // `layer.output_norm` have a `forward(x)` each; `project` applies the two linear layers. What is
    // needed twice is copied with `with_empty_tape()`, as in lesson 05.

    // %%
    fn encoder_layer<T: Taped>(layer: &TinyLayer, x: Batch<T>, mask: &Grid) -> Batch<T> {
        // BEGIN SOLUTION
        cloze::solution!("06.2");
        let attended = multi_head(&layer.attention, x.with_empty_tape(), mask);
        let between = layer.attention_norm.forward(attended + x);
        let inner = gelu(project(&layer.intermediate, between.with_empty_tape()));
        layer
            .output_norm
            .forward(project(&layer.output, inner) + between)
        // END SOLUTION
    }

    // %%
    check!("06.2", |judge| {
        let layer = &bert.layers[0];
        let pass = Pass {
            batch: &two,
            config: &bert.config,
            dropout: None,
            mask: Some(attention::padding_mask(&two)),
            future: None,
        };
        let rows = |t: Batch| real_rows(t, &two);
        let block =
            |x: Batch| -> Batch { layer.output.forward(gelu(layer.intermediate.forward(x))) };
        let attended = || layer.attention.forward::<NoneTape>(x.clone(), 0, &pass);
        let between = || layer.attention_norm.forward(attended() + x.clone());
        let yours = rows(encoder_layer(
            layer,
            x.clone(),
            &attention::padding_mask(&two),
        ));
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
        let slips: [(Batch, &str); 12] = [
            (
                {
                    let y = || layer.output_norm.forward(bare());
                    layer.attention_norm.forward(block(y()) + y())
                },
                "The two norms are exchanged: `attention_norm` comes first, `output_norm` last.",
            ),
            (
                layer
                    .output_norm
                    .forward(block(layer.attention_norm.forward(attended()))),
                "Both sums are missing: add the input of each part to its output.",
            ),
            (
                layer.output_norm.forward(block(between())),
                "The second sum is missing: add the input of the feed-forward block to its output.",
            ),
            (
                layer.output_norm.forward(block(between()) + x.clone()),
                "Your second sum adds the layer's input. It should add the output of the first norm.",
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
                "The first sum is missing: add the layer's input to the output of attention.",
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
            judge.holds("your layer returns what the crate's does", !is(slip), said);
        }
        judge.close_tensor(
            "your layer's output for the two sentences, the padding left out,",
            &yours,
            &rows(layer.forward::<NoneTape>(x.clone(), 0, &pass)),
            1e-4,
            "This is the output of the crate's Layer. The norm comes after the sum, both times.",
        );
        let at_input = |output: Batch<OwnedTape<f32, Cpu>>| {
            let mut gradients = output.square().sum::<Rank0, _>().backward();
            // Without a recording there is no gradient: zeros in its place.
            let _ = gradients.try_alloc_for(&x);
            gradients.get(&x)
        };
        let mask = attention::padding_mask(&two);
        judge.close_tensor(
            "the gradient at your layer's input, in training,",
            &at_input(encoder_layer(layer, x.leaky_trace(), &mask)),
            &at_input(layer.forward(x.leaky_trace(), 0, &pass)),
            1e-2,
            "The numbers are right, but a part of the tape was dropped, and what lies below it \
             would not learn. Copy with `with_empty_tape()`, not with `retaped`.",
        );
    });

    // %% [markdown]
    // ## Step 5: the encoder
    //
    // BERT's encoder is the embeddings and then the layers, one after the other.
    //
    // **Exercise 06.3.** Write it with your functions. `attention::sentences(batch)` returns the ids
    // and segments of each sentence, as `embed_batch` takes them, and `attention::padding_mask(batch)`
    // the mask. `real_rows(x, batch)` removes the padding at the end: what comes out has one row for
    // each token.

    // %%
    fn encode<T: Taped>(bert: &TinyBert, batch: &Packed) -> Tensor<(usize, Const<H>), f32, Cpu, T> {
        // BEGIN SOLUTION
        cloze::solution!("06.3");
        let mask = attention::padding_mask(batch);
        let mut x = embed_batch::<T>(&bert.embeddings, &attention::sentences(batch));
        for layer in &bert.layers {
            x = encoder_layer(layer, x, &mask);
        }
        real_rows(x, batch)
        // END SOLUTION
    }

    // %% [markdown]
    // The check compares it with `CpuEngine`, the crate's fast implementation: without dfdx and without
    // padding, with several operations joined in each loop. The second batch has pairs and sentences of
    // three lengths.

    // %%
    let mut pairs: Packed = Packed::default();
    for (number, (a, b)) in (0..).zip([
        ("The dog bit the man.", "He ran."),
        ("Never!", "Not once in all my life, said the captain."),
        ("It rained.", "So they stayed."),
    ]) {
        let (encoding, segments) = tokenizer.encode_pair(a, b);
        pairs.push(number, &encoding.ids, &segments);
    }
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;

    /// What a layer of the engine returns, (rows, H); layer 0 is the embeddings.
    fn states(engine: &mut CpuEngine, batch: &Packed, layer: usize) -> cloze::Result<Vec<f32>> {
        Ok(engine
            .hidden_states(batch, layer..layer + 1)?
            .layers
            .concat())
    }

    let theirs: [Vec<f32>; 2] = [
        states(&mut engine, &two, 2)?,
        states(&mut engine, &pairs, 2)?,
    ];
    let embedded_only: Vec<f32> = states(&mut engine, &two, 0)?;
    let one_layer: Vec<f32> = states(&mut engine, &two, 1)?;

    // %%
    check!("06.3", |judge| {
        let yours = encode::<NoneTape>(&bert, &two).as_vec();
        let is = |other: &[f32]| {
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
            yours.len() == other.len() && yours.iter().zip(other).all(close)
        };
        let mask = attention::padding_mask(&two);
        let reversed = bert
            .layers
            .iter()
            .rev()
            .fold(x.clone(), |x, layer| encoder_layer(layer, x, &mask));
        let first_twice = encoder_layer(
            &bert.layers[0],
            encoder_layer(&bert.layers[0], x.clone(), &mask),
            &mask,
        );
        let open: Grid = mask.clone() * 0.0;
        let unmasked = bert
            .layers
            .iter()
            .fold(x.clone(), |x, layer| encoder_layer(layer, x, &open));
        let rows = |x: Batch| real_rows(x, &two).as_vec();
        let slips: [(Vec<f32>, &str); 5] = [
            (
                embedded_only.clone(),
                "These are the embeddings: no layer has changed them.",
            ),
            (
                one_layer.clone(),
                "Only the first layer was applied. Go through all of `bert.layers`.",
            ),
            (
                rows(reversed),
                "The layers come in the reverse order: the first one reads the embeddings.",
            ),
            (
                rows(first_twice),
                "The first layer was applied each time. Use each layer's own parameters.",
            ),
            (
                rows(unmasked),
                "The short sentence looked at its padding: give every layer the mask.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds(
                "your encoder returns what the engine does",
                !is(&slip),
                said,
            );
        }
        judge.equal(
            "the number of rows and columns of two sentences",
            yours.len(),
            two.rows() * H,
            "One row for each token: `real_rows` leaves the padding out.",
        );
        judge.close(
            "the largest difference to the engine, for two sentences,",
            largest_gap(&yours, &theirs[0]),
            0.0,
            1e-4,
            "Embeddings, then each layer in order with the mask, then `real_rows`.",
        );
        judge.close(
            "the largest difference to the engine, for three pairs,",
            largest_gap(&encode::<NoneTape>(&bert, &pairs).as_vec(), &theirs[1]),
            0.0,
            1e-4,
            "The single sentences are right, the pairs are not: do the segments of the batch reach the \
             embeddings?",
        );
        let taped = encode::<OwnedTape<f32, Cpu>>(&bert, &two);
        let mut gradients = taped.square().sum::<Rank0, _>().backward();
        let _ = gradients.try_alloc_for(&bert.embeddings.words);
        let arrived = gradients.get(&bert.embeddings.words).as_vec();
        judge.holds(
            "in training the gradient reaches the word table",
            arrived.iter().any(|&g| g != 0.0),
            "Somewhere the tape was dropped. Is `embed_batch` called with `::<T>`?",
        );
    });

    // %%
    if solved!("06.3") {
        let rows = encode::<NoneTape>(&bert, &two).as_vec();
        let tokens = tokenizer
            .encode_with_special("The old man opened the door.")
            .tokens;
        let shown: Vec<f32> = rows
            .chunks(H)
            .take(tokens.len())
            .flat_map(|row| row[..40].to_vec())
            .collect();
        show!(
            HeatMap::new(
                "What your encoder makes of a sentence: the first 40 numbers",
                &shown,
                40
            )
            .labels(&tokens, &[])
        );
    }

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *a layer, and the next*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(6));

    // %% [markdown]
    // You have built the encoder of BERT. The crate has it twice as well: once to be read, in dfdx, and
    // once to be fast. Its tests compare them operation by operation; you have just compared yours as
    // a whole.
    //
    // ### Dropout, in training only
    //
    // A layer has one more part. While BERT is trained, a tenth of the numbers that attention and the
    // feed-forward block return is set to 0, at random, before the skip connection is added, and the
    // others are divided by 0.9, so that the mean stays the same. The same happens to the embeddings
    // and to the attention weights. No number can then rely on one other number alone, which reduces
    // **overfitting**: learning the training texts instead of what they have in common with others
    // ([Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html)). When the model is
    // used, nothing is dropped. Your small model of the next lessons trains without dropout: its text
    // is short, but so is its training.
    //
    // ## What goes wrong
    //
    // **A tape that is lost.** `x.clone()` of a tensor that records does not compile, because two
    // tensors can't continue one recording:
    //
    // ```text
    // error[E0599]: clone: a tensor that has a tape, or may have one (`T`), has no `.clone()`: `x.with_empty_tape()` gives the same numbers, with a tape of their own
    // ```
    //
    // `retaped::<NoneTape>()` compiles too, but drops the recording: the numbers are
    // right, and nothing below learns. The checks of this lesson look for that.
    //
    // **A forgotten skip connection** is no error either. A model of 2 layers trains without them,
    // only worse; the more layers, the more a model misses them (step 3).
    //
    // **The norm in the wrong place.** A model that normalises before each part (pre-norm) is a good
    // model, but with BERT's parameters it computes nonsense. So compare with a model you trust.
    //
    // ## Expected numbers
    //
    // - below 24 blocks the gradient that arrives is 2e-7 times as long as what was sent in with blocks
    //   alone, 1,687 times with skip connections, and 2.46 times with LayerNorm too;
    // - your encoder differs from the engine's by about 1e-6.
    //
    // ## On real text
    //
    // `cloze features --model DIR --layers 1,2 --pool none < lines.txt` writes what each layer makes
    // of the lines of a file, for any BERT in Hugging Face's layout.
    //
    // ## Open questions
    //
    // 1. The feed-forward block has twice as many parameters as attention. What would a model lose
    //    whose block is as narrow as H? And one without attention in every second layer?
    // 2. Why does BERT add the input of a part to its output, and not multiply them or put them side
    //    by side?
    //
    // The crate's source of this part: `Layer` in `src/model/layers.rs` and `Bert::encode` in
    // `src/model/bert.rs`. Next: [lesson 07](07_masked_lm.rs), what the encoder learns from.

    // %% [end]
    cloze::lessons::finish("06_encoder")
}
