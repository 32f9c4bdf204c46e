// ---
// title = "Looking inside: what heads look at"
// summary = "Draw what attention heads look at, measure it over many sentences, distinguish sharp heads from broad ones, cut heads off, and test whether attention shows what matters."
// track = "use"
// minutes = 57
// seconds = 20
// needs = ["08"]
//
// [[exercise]]
// id = "19.1"
// key = "by_distance"
// was = "12.2"
// title = "The habits of a head"
// hints = [
//     "Two loops: `i` over the tokens that look, `j` over the tokens that are looked at. Skip a token when `special.contains(ids[i])`, and the same for `j`.",
//     "The weight is `weights[i * n + j]`, where n is the number of tokens: row i belongs to the token that looks.",
//     "The index is `8 + j - i`. Compute it in `i64`, skip what is not in `0..17`, then add the weight to the first number at that index and 1 to the second.",
// ]
//
// [[exercise]]
// id = "19.2"
// key = "attention_entropy"
// title = "Sharp or broad?"
// hints = [
//     "Row i is `weights[i * n..(i + 1) * n]`, where n is the number of tokens. Take the rows of ordinary tokens only: `(0..n).filter(|&i| !special.contains(ids[i]))`. Use all columns of such a row, so that the weights have the sum 1.",
//     "The entropy of a row is the sum of `-w * w.ln()` over its weights. `0.0 * 0f64.ln()` is NaN, so leave the weights out that are 0: `.filter(|&w| w > 0.0)`.",
//     "Convert each weight with `f64::from(w)`. Collect one entropy for each row that you took, and return `mean(&entropies)`.",
// ]
//
// [[exercise]]
// id = "19.3"
// key = "without_head"
// was = "12.5"
// title = "Cut a head off"
// hints = [
//     "The outputs of the heads stand side by side, `size` numbers each, and the output projection multiplies them. Whatever it multiplies by 0 is gone.",
//     "The weight has the shape (outputs, inputs) = (H, H), row by row. A head owns some of the *inputs*, and these are columns.",
//     "`model.layout.find(&name)` returns the parameter and its range in `model.values`. In every row of that range set the columns `head * size..(head + 1) * size` to 0.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 19 · Looking inside: what heads look at
    //
    // A trained model is one and a half million numbers. What do they do? In this lesson you look at
    // the attention heads: you draw where each of them looks, measure it over hundreds of sentences,
    // compute how sharply a head looks, and remove heads one by one. At the end you test how far you
    // can trust such pictures.
    //
    // *About 57 minutes. Every cell finishes within a few seconds. You need lesson 08.*

    // %%
    use cloze::lessons::data;
    use cloze::lessons::support::inside::{self, Blanks, Effects, HABITS, mean};
    use cloze::model::SequenceAttention;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::text::SpecialIds;
    use cloze::view::attention::View;

    // %% [markdown]
    // ## Step 1: the pictures
    //
    // The model is cloze-tiny: 2 layers of 2 heads, 128 wide, pre-trained on English. It is small
    // enough that you can look at all of it. Here it reads two sentences:

    // %%
    let folder: std::path::PathBuf = data::folder(data::TINY)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let special: SpecialIds = tokenizer.special();
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    const LAYERS: usize = 2;
    const HEADS: usize = 2;

    let view: AttentionView = AttentionView::of(
        &mut engine,
        &tokenizer,
        "I went to the store.",
        Some("At the store, I bought fresh strawberries."),
    )?;
    show!(view.clone().named("cloze-tiny"));

    // %% [markdown]
    // This is the **head view**. The tokens on the left look at the tokens on the right; the
    // stronger a line, the larger the weight. Each head has a colour and a button with its number: a
    // click switches it on or off, a double click shows it alone. Move the mouse over a token to see
    // only its row. (These views follow bertviz, [Vig 2019](https://arxiv.org/abs/1906.05714).)
    //
    // The **model view** shows all heads at once, so that you see which deserve a closer look:

    // %%
    show!(view.clone().named("cloze-tiny").opened_with(View::Model));

    // %% [markdown]
    // The **neuron view** shows how one weight comes about. In each head, token $i$ has a query $q_i$
    // and a key $k_i$ of $d = 64$ numbers, drawn as strips: blue is positive, orange negative. You
    // wrote this formula in lesson 04. The weight that token $i$ gives to token $j$ is
    //
    // $$ \alpha_{ij} = \operatorname{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt{d}}\right) $$

    // %%
    show!(view.clone().named("cloze-tiny").opened_with(View::Neuron));

    // %% [markdown]
    // ## Step 2: many sentences instead of one
    //
    // You have seen one pair of sentences, and you have probably begun to explain what each head
    // does. One picture proves nothing: on the next sentence a head may do something else. So
    // *measure*, over as many sentences as you can get. (For the heads of BERT-base see
    // [Clark et al. 2019](https://arxiv.org/abs/1906.04341), sections 3 and 4.)
    //
    // These sentences come from the paragraphs of `questions`, which the model has never read:

    // %%
    let texts: Vec<Vec<u32>> = inside::sentences_of_questions(&tokenizer)?;
    let packed: Packed = inside::pack(&texts);
    let all_seen: Vec<SequenceAttention> = engine.attention(&packed)?;
    println!("{} sentences, {} tokens", texts.len(), packed.rows());

    // %% [markdown]
    // First sort all attention that ordinary tokens pay by where it goes: to `[CLS]`, to `[SEP]`, to
    // the token itself, to its left or right neighbour, or to the rest. The last row is a head that
    // gives every token the same weight: a share means nothing until you know what chance would
    // give.

    // %%
    let table: Vec<(String, [f64; 6])> = inside::habit_table(&texts, &all_seen, special);
    println!(
        "{:17}{}",
        "",
        HABITS.map(|habit| format!("{habit:>8}")).concat()
    );
    for (name, shares) in &table {
        let percent = shares.map(|share| format!("{:6.0} %", 100.0 * share));
        println!("{name:17}{}", percent.concat());
    }
    let names: Vec<String> = table.iter().map(|row| row.0.clone()).collect();
    let shares: Vec<f32> = table
        .iter()
        .flat_map(|row| row.1.map(|x| x as f32))
        .collect();
    show!(
        HeatMap::new(
            "Where ordinary tokens look, mean over all sentences",
            &shares,
            6
        )
        .labels(&names, &HABITS.map(String::from))
    );

    // %% [markdown]
    // Two of the four heads have a habit that chance could not give: one in layer 0 looks at the
    // right neighbour, one in layer 1 at the left neighbour. The other two spread their weight.
    // BERT-base has such neighbour heads too, and many heads that put most of their weight on
    // `[SEP]`: a head that finds nothing must put its weight *somewhere*, since every row sums to 1
    // (Clark et al., section 3.2).
    //
    // Most of the weight of the other two goes to "the rest". Is that nearby or far away?
    //
    // **Exercise 19.1.** For one sentence and one head, add the weights up by distance. The distance
    // from the token $i$ that looks to the token $j$ that it looks at is $d = j - i$, positive to the
    // right. Leave out special tokens as $i$ and as $j$. Return for each $d$ from -8 to 8 the sum of
    // the weights and the number of pairs $(i, j)$: index 0 is $d = -8$, index 8 the token itself,
    // index 16 is $d = 8$.

    // %%
    fn by_distance(weights: &[f32], ids: &[u32], special: SpecialIds) -> [[f64; 2]; 17] {
        // BEGIN SOLUTION
        cloze::solution!("19.1");
        let n = ids.len();
        let mut sums = [[0.0; 2]; 17];
        for i in (0..n).filter(|&i| !special.contains(ids[i])) {
            for j in (0..n).filter(|&j| !special.contains(ids[j])) {
                let at = 8 + j as i64 - i as i64;
                if (0..17).contains(&at) {
                    let [sum, pairs] = &mut sums[at as usize];
                    *sum += f64::from(weights[i * n + j]);
                    *pairs += 1.0;
                }
            }
        }
        sums
        // END SOLUTION
    }

    // %%
    check!("19.1", |judge| {
        // [CLS] a b c [SEP]; row i looks at column j with the weight of the table.
        let ids = [special.cls, 1000, 1001, 1002, special.sep];
        let mut weights = vec![0.2f32; 25];
        weights[5..10].copy_from_slice(&[0.5, 0.1, 0.3, 0.1, 0.0]);
        weights[10..15].copy_from_slice(&[0.0, 0.6, 0.2, 0.1, 0.1]);
        weights[15..20].copy_from_slice(&[0.1, 0.0, 0.0, 0.4, 0.5]);
        let yours = by_distance(&weights, &ids, special);
        judge.holds(
            &format!(
                "[CLS] a b c [SEP] has 3 pairs of distance 0; yours {}",
                yours[8][1]
            ),
            yours[8][1] != 5.0,
            "You counted [CLS] and [SEP]. Leave out special tokens.",
        );
        judge.holds(
            &format!(
                "[CLS] a b c [SEP] has 2 pairs of distance 1; yours {}",
                yours[9][1]
            ),
            yours[9][1] != 3.0,
            "You left special tokens out on one side only: [CLS] may neither look nor be looked at.",
        );
        judge.holds(
            &format!("the weights at distance 1 have the sum 0.4; yours {:.2}", yours[9][0]),
            (yours[9][0] - 0.6).abs() > 1e-6,
            "Left and right are swapped. Row i is where token i looks, `weights[i * n + j]`, and the \
             distance is j - i.",
        );
        for (d, sum, pairs) in [
            (-2, 0.0, 1.0),
            (-1, 0.6, 2.0),
            (0, 0.7, 3.0),
            (1, 0.4, 2.0),
            (2, 0.1, 1.0),
            (3, 0.0, 0.0),
        ] {
            let [your_sum, your_pairs] = yours[(8 + d) as usize];
            judge.equal(
                &format!("the number of pairs of [CLS] a b c [SEP] at distance {d}"),
                your_pairs,
                pairs,
                "Count every pair of ordinary tokens once.",
            );
            judge.close(
                &format!("the sum of the weights at distance {d}"),
                your_sum,
                sum,
                1e-6,
                "Add the weights up; don't divide them.",
            );
        }
        let mut long: Vec<u32> = (1000..1018).collect();
        long.insert(0, special.cls);
        long.push(special.sep);
        let equal = by_distance(&[0.05; 400], &long, special);
        judge.close(
            "the sum at distance 8 in a sentence of 18 tokens with equal weights of 0.05",
            equal[16][0],
            0.5,
            1e-6,
            "Ten pairs are 8 apart. Pairs that are farther apart belong to no index.",
        );
    });

    // %%
    if solved!("19.1") {
        let mut chart =
            LineChart::new("Mean weight by distance").axes("places to the right", "weight");
        for layer in 0..LAYERS {
            for head in 0..HEADS {
                let mut total = [[0.0; 2]; 17];
                for (ids, seen) in texts.iter().zip(&all_seen) {
                    let sums = by_distance(seen.weights(layer, head), ids, special);
                    for (total, sum) in total.iter_mut().zip(sums) {
                        *total = [total[0] + sum[0], total[1] + sum[1]];
                    }
                }
                let mean = total.map(|[sum, pairs]| sum / pairs);
                let line: Vec<(f64, f64)> = (-8..=8).map(f64::from).zip(mean).collect();
                chart = chart.line(format!("layer {layer}, head {head}"), &line);
            }
        }
        show!(chart);
    }

    // %% [markdown]
    // ## Step 3: sharp or broad
    //
    // The curves of two heads have one tall peak; those of the others are low. One number measures
    // this difference, wherever the head looks: the **entropy** of a row of weights,
    //
    // $$ H_i = -\sum_j \alpha_{ij} \ln \alpha_{ij} $$
    //
    // in nats, where $0 \ln 0$ counts as 0. If a token puts all its weight on one token, $H_i = 0$.
    // If it gives the same weight $1/n$ to each of $n$ tokens, $H_i = \ln n$, and no row of $n$
    // weights has a larger entropy. In between, $e^{H_i}$ is the number of tokens that would give
    // this entropy with equal weights: a row with the weights 0.5, 0.25 and 0.25 has $H_i = 1.04$,
    // and $e^{1.04} = 2.8$. Clark et al. (section 3.3) take the mean entropy of each head to
    // distinguish heads that look at few words from heads that look at many.
    //
    // **Exercise 19.2.** Return the mean entropy of the rows of one head in one sentence. Leave out
    // the rows of special tokens: the question is where words look. Keep all columns: the weight
    // that a word gives to `[SEP]` belongs to its row, which has the sum 1 only with it.
    // `mean(&values)` is given.

    // %%
    fn attention_entropy(weights: &[f32], ids: &[u32], special: SpecialIds) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("19.2");
        let n = ids.len();
        let entropy = |i: usize| -> f64 {
            let row = weights[i * n..(i + 1) * n].iter().map(|&w| f64::from(w));
            row.filter(|&w| w > 0.0).map(|w| -w * w.ln()).sum()
        };
        let rows = (0..n).filter(|&i| !special.contains(ids[i]));
        let entropies: Vec<f64> = rows.map(entropy).collect();
        mean(&entropies)
        // END SOLUTION
    }

    // %%
    check!("19.2", |judge| {
        // [CLS] a b c [SEP]: a looks at three tokens, b at one, c at all five alike.
        let ids = [special.cls, 1000, 1001, 1002, special.sep];
        let mut weights = vec![0.2f32; 25];
        weights[5..10].copy_from_slice(&[0.5, 0.25, 0.25, 0.0, 0.0]);
        weights[10..15].copy_from_slice(&[0.0, 0.0, 1.0, 0.0, 0.0]);
        weights[20..25].copy_from_slice(&[0.0, 1.0, 0.0, 0.0, 0.0]);
        let yours = attention_entropy(&weights, &ids, special);
        let said = format!(
            "the rows of a, b and c have the entropies 1.0397, 0 and 1.6094, with the mean 0.8831; \
             yours {yours:.4}"
        );
        judge.holds(
            &said,
            !yours.is_nan(),
            "The logarithm of 0 is minus infinity, and 0 times it is NaN. Leave out weights of 0.",
        );
        for (slip, think) in [
            (
                0.8517,
                "That is the mean of all five rows. Leave out the rows of [CLS] and [SEP].",
            ),
            (
                -0.8831,
                "The logarithm of a number below 1 is negative: the sum needs a minus.",
            ),
            (1.2740, "That is in bits. Use the natural logarithm, `ln`."),
            (
                2.6492,
                "That is the sum of the rows' entropies. Divide it by the number of rows.",
            ),
            (
                0.5298,
                "You divided by the number of all tokens. Divide by the number of rows that you \
                 took.",
            ),
            (
                0.5529,
                "You left out the columns of [CLS] and [SEP]. What is left of a row does not have \
                 the sum 1. Leave out rows, not columns.",
            ),
            (
                0.5973,
                "You left out the columns of [CLS] and [SEP]. Leave out their rows only.",
            ),
            (
                0.8748,
                "Those are the entropies of columns. What token i gives stands in row i, \
                 `weights[i * n + j]`.",
            ),
            (
                1.3366,
                "That is the entropy of the mean row. Take the entropy of each row first, then the \
                 mean.",
            ),
        ] {
            judge.holds(&said, (yours - slip).abs() > 2e-4, think);
        }
        judge.close(
            "the mean entropy of a, b and c",
            yours,
            0.88305,
            1e-4,
            "Each row that belongs to an ordinary token gives the sum of -w ln w over its five \
             weights. Return the mean of the three.",
        );
        let seven = [special.cls, 7, 8, 9, 10, 11, special.sep];
        judge.close(
            "the mean entropy of seven tokens with equal weights",
            attention_entropy(&[1.0 / 7.0; 49], &seven, special),
            7f64.ln(),
            1e-6,
            "Equal weights have the entropy ln n, here ln 7 = 1.9459. All seven columns count.",
        );
        for (ids, seen) in texts.iter().zip(&all_seen).take(20) {
            let yours = attention_entropy(seen.weights(1, 0), ids, special);
            let n = ids.len();
            // The first row is [CLS], the last one [SEP].
            let inner = &seen.weights(1, 0)[n..n * (n - 1)];
            let surprise = |&w: &f32| {
                if w > 0.0 {
                    f64::from(w) * (1.0 / f64::from(w)).ln()
                } else {
                    0.0
                }
            };
            let right = inner.iter().map(surprise).sum::<f64>() / (n - 2) as f64;
            judge.close(
                &format!("the mean entropy of layer 1, head 0, in a sentence of {n} tokens"),
                yours,
                right,
                1e-4,
                "The example above was right. Is n the number of tokens of this sentence?",
            );
        }
    });

    // %% [markdown]
    // Now measure all heads. A broad head gives weight to more tokens in a longer sentence, a sharp
    // head does not. So draw the entropy against the number of tokens, with $\ln n$ as the limit:

    // %%
    if solved!("19.2") {
        let mut chart = LineChart::new("Mean entropy by the length of the sentence")
            .axes("tokens", "entropy (nats)");
        for (layer, head) in (0..LAYERS * HEADS).map(|n| (n / HEADS, n % HEADS)) {
            let both = texts.iter().zip(&all_seen);
            let entropy = |(ids, seen): (&Vec<u32>, &SequenceAttention)| {
                attention_entropy(seen.weights(layer, head), ids, special)
            };
            let all: Vec<f64> = both.map(entropy).collect();
            let name = format!("layer {layer}, head {head}");
            let like = mean(&all).exp();
            println!("{name}: {:.2} nats, like {like:.1} tokens", mean(&all));
            let mut line = Vec::new();
            for from in (8..64).step_by(8) {
                let here = (0..all.len()).filter(|&t| (from..from + 8).contains(&texts[t].len()));
                let some: Vec<f64> = here.map(|t| all[t]).collect();
                line.push((from as f64 + 3.5, mean(&some)));
            }
            chart = chart.line(name, &line);
        }
        let limit: Vec<(f64, f64)> = (8..64).map(f64::from).map(|n| (n, n.ln())).collect();
        show!(chart.line("equal weights: ln n", &limit));
    }

    // %% [markdown]
    // Two heads are sharp: they look at one to three tokens, however long the sentence is. The other
    // two are broad: they spread their weight like equal weights on 11 and 13 tokens, about half of
    // a sentence. The output of such a head is close to a mean of the value vectors. It says which
    // words the sentence has, and little about their order. Clark et al. find broad heads especially
    // in the lower layers of BERT-base.

    // %% [markdown]
    // ## Step 4: cut heads off
    //
    // The output of a layer's attention is a sum over its heads $h$. Head $h$ computes a vector
    // $o_h$ of 64 numbers, which meets its own 64 columns $W^O_h$ of the output projection $W^O$:
    //
    // $$ \operatorname{Attention}(x) = b^O + \sum_h W^O_h \, o_h $$
    //
    // With these columns set to 0 the head is gone, and nothing else has changed ([Michel et al.
    // 2019](https://arxiv.org/abs/1905.10650), section 2.3, remove heads in this way).
    //
    // **Exercise 19.3.** Return the model's parameters without one head. $W^O$ is the parameter
    // `encoder.layer.N.attention.output.dense.weight`, stored row by row, one row for each output.
    // Head `h` owns the columns `h * size..(h + 1) * size`, where `size = model.config.head_size()`.
    // `model.layout.find(&name)` returns a parameter with its range in `model.values`.

    // %%
    fn without_head(model: &Model, layer: usize, head: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("19.3");
        let mut values = model.values.clone();
        let (width, size) = (model.config.hidden_size, model.config.head_size());
        let name = format!("encoder.layer.{layer}.attention.output.dense.weight");
        if let Some((_, range)) = model.layout.find(&name) {
            for row in values[range].chunks_exact_mut(width) {
                row[head * size..(head + 1) * size].fill(0.0);
            }
        }
        values
        // END SOLUTION
    }

    // %% [markdown]
    // The measure is the masked-LM loss of lesson 07 on the sentences from above, with 15 % of their
    // tokens masked, the same ones for every cut:

    // %%
    let blanks: Blanks = Blanks::new(&texts, &tokenizer);
    let whole: f64 = mean(&blanks.losses(&model, model.values.clone())?);
    println!(
        "{} blanks, loss of the whole model {whole:.3}",
        blanks.rows.len()
    );

    // %%
    check!("19.3", |judge| {
        let (width, size) = (model.config.hidden_size, model.config.head_size());
        for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let yours = without_head(&model, layer, head);
            judge.equal(
                "the number of values",
                yours.len(),
                model.values.len(),
                "Return all parameters, most of them unchanged.",
            );
            let name = format!("encoder.layer.{layer}.attention.output.dense.weight");
            let range = model
                .layout
                .find(&name)
                .map(|found| found.1)
                .unwrap_or_default();
            let outside = (0..model.values.len().min(yours.len()))
                .filter(|at| !range.contains(at) && yours[*at] != model.values[*at]);
            judge.equal(
                &format!("the number of values changed outside of {name}"),
                outside.count(),
                0,
                "Change only the head's columns of the output projection. The bias belongs to no head.",
            );
            let zero = |row: usize, column: usize| {
                yours.get(range.start + row * width + column) == Some(&0.0)
            };
            let block = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
                rows.clone()
                    .all(|row| columns.clone().all(|column| zero(row, column)))
            };
            let mine = head * size..(head + 1) * size;
            judge.holds(
                &format!("the columns {mine:?} of {name} are 0"),
                !block(mine.clone(), 0..width) || block(0..width, mine.clone()),
                "You set rows to 0. Rows are outputs; what a head computes enters through the columns.",
            );
            judge.holds(
                &format!("the columns {mine:?} of {name} are 0"),
                block(0..width, mine.clone()),
                "Set the head's 64 columns to 0 in each of the 128 rows.",
            );
            let zeros = (0..width).flat_map(|row| (0..width).map(move |column| (row, column)));
            let other = zeros.filter(|&(row, column)| !mine.contains(&column) && zero(row, column));
            judge.equal(
                "the number of zeros in other columns",
                other.count(),
                0,
                "The other head must stay as it was.",
            );
            // The same cut in another place: a head whose values are all 0 contributes nothing.
            let other = blanks.losses(&model, inside::zeroed(&model, layer, head, "value"));
            if let (Ok(a), Ok(b)) = (blanks.losses(&model, yours), other) {
                judge.close(
                    &format!(
                        "the loss without head {head} of layer {layer}, minus the loss with its \
                         values set to 0"
                    ),
                    mean(&a) - mean(&b),
                    0.0,
                    1e-5,
                    "Two ways of cutting the same head off must give the same loss.",
                );
            }
        }
    });

    // %% [markdown]
    // Make two cuts for each head. In the first the head is gone. In the second its queries are set
    // to 0, so that every score is 0 and every token gets the same weight. The second cut keeps what
    // the head *carries* and removes where it *looks*: exactly what the pictures above show.

    // %%
    if solved!("19.3") {
        let title = format!("Masked-LM loss added by a cut (whole model: {whole:.2})");
        let mut chart = BarChart::new(title).unit("nats");
        for layer in 0..LAYERS {
            for head in 0..HEADS {
                let cut = mean(&blanks.losses(&model, without_head(&model, layer, head))?);
                let values = inside::zeroed(&model, layer, head, "query");
                let equal = mean(&blanks.losses(&model, values)?);
                chart = chart
                    .bar(format!("layer {layer}, head {head} cut off"), cut - whole)
                    .beside("… with equal weights", equal - whole);
            }
        }
        show!(chart);
    }

    // %% [markdown]
    // The two sharp heads are the ones that the model can't do without. So the pictures did show
    // something. But notice two details. The broad heads cost something too. And for the sharp
    // heads, equal weights are about as bad as being cut off: what they carry is useful only if it
    // comes from the right place.

    // %% [markdown]
    // ## Step 5: does attention show what matters?
    //
    // It is tempting to read an attention picture like this: the thick lines go to the words on
    // which the model's answer depends. That can be tested. Take a sentence with one blank. For each
    // other word measure two things: the weight that the blank gives to it, and its **cost**, that
    // is, how much the loss at the blank grows when this word is masked too. If the reading is
    // right, both rank the words in the same order. The rank correlation is then 1; it is 0 if the
    // orders have nothing to do with each other. For comparison, rank the words also by something
    // that needs no model: their nearness to the blank.

    // %%
    let count: usize = cloze::lessons::steps(60) as usize;
    let effects: Vec<Effects> = Effects::measure(&model, special, &texts, count)?;
    let mut chart: BarChart =
        BarChart::new("How well the words that matter are found (mean rank correlation)");
    for head in 0..LAYERS * HEADS {
        let name = format!("layer {}, head {}", head / HEADS, head % HEADS);
        let rho = inside::rank_correlation(&effects, |one| one.weights[head].clone());
        chart = chart.bar(name, rho);
    }
    let together: f64 = inside::rank_correlation(&effects, Effects::weights_together);
    let nearness: f64 = inside::rank_correlation(&effects, |one| one.nearness.clone());
    show!(
        chart
            .bar("all heads, averaged", together)
            .bar("nearness to the blank", nearness)
    );

    // %% [markdown]
    // The correlations lie between 0.1 and 0.2, far from the 1 of the tempting reading. And
    // *nearness*, which knows nothing of the model, does about as well as all heads together.
    // Attention is not unrelated to what matters, but it explains an answer poorly. Why?
    //
    // - A weight says which *share* of a token's value vector is taken, not how long that vector is
    //   or what the output projection makes of it ([Kobayashi et al.
    //   2020](https://arxiv.org/abs/2004.10102)).
    // - From the second layer on, a position no longer stands for its own token alone: the layer
    //   below has mixed it with others ([Abnar and Zuidema 2020](https://arxiv.org/abs/2005.00928)).
    // - The skip connections carry information past the attention, and the feed-forward blocks
    //   change it afterwards. The picture shows neither.
    //
    // Two titles sum up the dispute: "Attention is not explanation" ([Jain and Wallace
    // 2019](https://arxiv.org/abs/1902.10186)) and "Attention is not not explanation" ([Wiegreffe and
    // Pinter 2019](https://arxiv.org/abs/1908.04626)). What you can take from it: a picture gives
    // you a *question*. A cut, a probe with its control, or a measurement over many sentences may
    // give you the answer.

    // %% [markdown]
    // ## What goes wrong
    //
    // These are the crate's answers to a text without tokens and to one that is too long for the
    // model:

    // %%
    if let Err(error) = AttentionView::of(&mut engine, &tokenizer, "I went.", Some("  ")) {
        println!("{error}");
    }
    let long: String = "the river ".repeat(100);
    if let Err(error) = AttentionView::of(&mut engine, &tokenizer, &long, None) {
        println!("{error}");
    }

    // %% [markdown]
    // **A layer too many.** `all_seen[0].weights(2, 0)` panics on a model of two layers, since they
    // are counted from 0:
    //
    // ```text
    // index out of bounds: the len is 2 but the index is 2
    // ```
    //
    // And these mistakes cause no error:
    //
    // - **Rows and columns swapped.** A head that looks at the left neighbour then seems to look at
    //   the right one.
    // - **Entropies compared across lengths.** 2.4 nats mean nearly equal weights in a sentence of 12
    //   tokens. In a sentence of 60 tokens they mean that the head looks at less than a fifth of it.
    // - **Losses compared under different masks.** Both models must fill the same blanks.
    // - **One sentence.** It always fits the story.

    // %% [markdown]
    // ## Expected numbers
    //
    // - 235 sentences of 6,400 tokens;
    // - layer 0: 67 % of head 0's weight goes to the rest, 94 % of head 1's to the right neighbour;
    //   layer 1: 72 % of head 0's to the rest, 84 % of head 1's to the left neighbour;
    // - mean entropies 2.40, 0.09, 2.54 and 0.61 nats, like 11.1, 1.1, 12.7 and 1.8 tokens;
    // - 900 blanks, loss 3.96; removing a head adds 0.25, 1.18, 0.18 and 0.91;
    // - rank correlations 0.10 to 0.20, all heads together 0.23, nearness 0.21.

    // %% [markdown]
    // ## On a real model
    //
    // BERT-base has 144 heads in 12 layers. This command writes a page that shows them all and needs
    // no network:
    //
    // ```text
    // cloze attention --model google-bert/bert-base-uncased "The cat sat on the mat." "It was tired." --out view.html --view model
    // ```
    //
    // With `--json` it prints the weights. To take this lesson's measurements there, set `folder` to
    // the model's folder, and `LAYERS` and `HEADS` to 12; they then take minutes.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Layer 0 has a head for the right neighbour, layer 1 one for the left. What can a position
    //    know of its surroundings after both, and why would training not put both heads into one
    //    layer?
    // 2. Two heads may each cost nothing when cut alone and much when cut together, and a few steps
    //    of training may repair an expensive cut. What, then, does the cost of a cut measure?
    //
    // The crate's source for this part: `src/view/attention/mod.rs`, `src/model/inspect.rs` and
    // `src/cli/attention.rs`. Next: [lesson 20](20_probes.rs), in which you look at the vectors
    // between the layers.

    // %% [end]
    cloze::lessons::finish("19_attention_maps")
}
