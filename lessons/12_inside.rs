// ---
// title = "Looking inside: attention, vectors, probes and cuts"
// summary = "Draw what heads look at, measure it over many sentences, lay words out by a PCA of your own, probe layers against a control, cut heads off, and learn what attention does not tell."
// minutes = 60
// seconds = 45
// needs = ["04", "05"]
//
// [[exercise]]
// id = "12.1"
// title = "From a query and keys to weights"
// hints = [
//     "The score of a key is its product with the query, number by number, summed up, divided by the square root of how many numbers there are.",
//     "The weights are the softmax of the scores: exp(score), divided by the sum of all of them.",
//     "Subtract the largest score before `exp`: nothing changes and nothing overflows.",
// ]
//
// [[exercise]]
// id = "12.2"
// title = "The habits of a head"
// hints = [
//     "Row i of the weights belongs to the token that looks, column j to the token that is looked at: `weights[i * n + j]`, where n is the number of tokens.",
//     "Leave out rows of special tokens. For the others every column goes into exactly one of the six sums: ask for [CLS] and [SEP] first, then for i == j, j + 1 == i, j == i + 1, else the rest.",
//     "Divide each sum by the number of rows that you counted: every row has the sum 1, so the six shares have it too.",
// ]
//
// [[exercise]]
// id = "12.3"
// title = "The axis along which points differ most"
// hints = [
//     "Start with any vector, say the longest of the rows. One round: for each row, its product with the axis times the row itself, all summed up. That sum, scaled to length 1, is the next axis.",
//     "Repeat it some hundred times. Each round turns the axis further towards the direction of the largest spread.",
//     "Scale to length 1 in *every* round: dividing by the square root of the sum of squares. Otherwise the numbers grow until they are infinite.",
// ]
//
// [[exercise]]
// id = "12.4"
// title = "A control for a probe"
// hints = [
//     "The same piece must get the same label wherever it stands, so the label may depend on the id and the seed and on nothing else.",
//     "`Stream::new(seed, 0, Site::Other(0), u64::from(id)).draws().uniform()` is a number in [0, 1) that depends on them alone.",
//     "The label is 1 where that number is below `share`, else 0.",
// ]
//
// [[exercise]]
// id = "12.5"
// title = "Cut a head off"
// hints = [
//     "The heads' outputs stand side by side, `head_size` numbers each, before the output projection multiplies them. What it multiplies by 0 is gone.",
//     "The projection is `encoder.layer.N.attention.output.dense.weight`, shape (outputs, inputs) = (H, H), row by row. A head owns some of the *inputs*: columns.",
//     "`layout.find(name)` gives the parameter and its range in `values`. For every row set the columns `head * head_size..(head + 1) * head_size` to 0.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 12 · Looking inside: attention, vectors, probes and cuts
    //
    // A trained model is a heap of numbers. What do they do? In this lesson you look inside in four
    // ways: at the attention of single heads, at the vectors of words, at what a simple classifier
    // can read out of a layer, and at what breaks when a part is cut off. You write the tool for
    // each, and for each a comparison that keeps you from believing too much.
    //
    // *60 to 90 minutes, with a good place to stop half way; every cell answers within some seconds.
    // You need lessons 04 and 05.*

    // %%
    use std::collections::HashMap;

    use cloze::data::conll::{self, Sentence};
    use cloze::data::squad::{Misplaced, Squad};
    use cloze::data::{bad::BadRows, pretraining::masking::Masker};
    use cloze::eval::spearman;
    use cloze::lessons::data;
    use cloze::model::SequenceAttention;
    use cloze::model::cross_entropy;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::text::SpecialIds;
    use cloze::text::sentences::sentences;
    use cloze::view::Scatter;
    use cloze::view::attention::View;
    use dfdx::nn::modules::Linear;
    use dfdx::optim::Adam;

    // %% [markdown]
    // ## Where we are going
    //
    // The model is cloze-tiny: 2 layers of 2 heads, 128 wide, pre-trained on English. Small enough
    // to look at all of it. And two sentences for it to read:

    // %%
    let folder: std::path::PathBuf = data::folder(data::MODEL)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let special: SpecialIds = tokenizer.special();
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    const LAYERS: usize = 2;
    const HEADS: usize = 2;
    const H: usize = 128;

    let view: AttentionView = AttentionView::of(
        &mut engine,
        &tokenizer,
        "I went to the store.",
        Some("At the store, I bought fresh strawberries."),
    )?;
    show!(view.clone().named("cloze-tiny"));

    // %% [markdown]
    // This is the **head view**. Left the tokens that look, right the tokens that are looked at; the
    // stronger a line, the larger the weight. Each head has a colour and a button with its number: a
    // click switches it on or off, a double click leaves it alone. Go over a token with the mouse to
    // see its row. "Looking from, at" shows one sentence looking at the other, say. (These three
    // views are those of bertviz, [Vig 2019](https://arxiv.org/abs/1906.05714).)
    //
    // The **model view** shows all heads at once, so that you see which are worth a closer look:

    // %%
    show!(view.clone().named("cloze-tiny").opened_with(View::Model));

    // %% [markdown]
    // And the **neuron view** shows how one weight comes about. In each head a token has a query
    // $q$ and a key $k$, of 64 numbers here, drawn as strips: blue is above zero, orange below. The
    // query of the token that you choose is multiplied with each token's key, number by number; the
    // sum of the products is the score.

    // %%
    show!(view.clone().named("cloze-tiny").opened_with(View::Neuron));

    // %% [markdown]
    // ## Step 1: a weight by hand
    //
    // $$ \alpha_{ij} = \operatorname{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt{d}}\right) $$
    //
    // **Exercise 12.1.** Compute the weights with which one token looks at all others, from its
    // query and their keys.

    // %%
    fn weights_of(query: &[f32], keys: &[&[f32]]) -> Vec<f64> {
        // BEGIN SOLUTION
        cloze::solution!("12.1");
        let root = (query.len() as f64).sqrt();
        let score = |key: &&[f32]| {
            let products = query.iter().zip(*key).map(|(q, k)| f64::from(q * k));
            products.sum::<f64>() / root
        };
        let scores: Vec<f64> = keys.iter().map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|p| p / sum).collect()
        // END SOLUTION
    }

    // %%
    let seen: SequenceAttention = view.attention().clone();
    let tokens: Vec<String> = view.tokens().to_vec();

    check!("12.1", |judge| {
        let two = weights_of(&[2.0, 0.0, 0.0, 0.0], &[&[1.0, 0.0, 0.0, 0.0], &[0.0; 4]]);
        judge.equal(
            "the number of weights for two keys",
            two.len(),
            2,
            "One weight a key.",
        );
        let first = two.first().copied().unwrap_or(f64::NAN);
        judge.holds(
            &format!("a score of 1 against 0 has the weight 0.7311; yours is {first:.4}"),
            (first - 0.880_797).abs() > 1e-4,
            "That is the softmax of 2 and 0. The product is 2, and the score 2 / √4 = 1.",
        );
        judge.close(
            "the first of two weights",
            first,
            0.731_059,
            1e-5,
            "e¹ / (e¹ + e⁰).",
        );
        let far = weights_of(&[4000.0], &[&[1.0], &[0.0]]);
        judge.close(
            "the weight of a score of 4,000 against 0",
            far.first().copied().unwrap_or(f64::NAN),
            1.0,
            1e-9,
            "NaN: exp(4000) is infinite. Subtract the largest score first.",
        );
        for layer in 0..LAYERS {
            for head in 0..HEADS {
                let keys: Vec<&[f32]> =
                    (0..seen.tokens).map(|j| seen.key(layer, head, j)).collect();
                for (i, token) in tokens.iter().enumerate() {
                    let yours = weights_of(seen.query(layer, head, i), &keys);
                    let right = &seen.weights(layer, head)[i * seen.tokens..][..seen.tokens];
                    let apart = yours
                        .iter()
                        .zip(right)
                        .map(|(a, &b)| (a - f64::from(b)).abs());
                    judge.close(
                        &format!(
                            "layer {layer}, head {head}, token {i} ({token:?}): the largest gap to \
                             the model's own weights"
                        ),
                        apart.fold(0.0, f64::max),
                        0.0,
                        1e-5,
                        "The model's `attention_probabilities` gives these: scores over the root of the head size, \
                         then softmax over all keys.",
                    );
                }
            }
        }
    });

    // %% [markdown]
    // All four heads as tables, one row for each token that looks:

    // %%
    for layer in 0..LAYERS {
        for head in 0..HEADS {
            let title = format!("Layer {layer}, head {head}");
            show!(
                HeatMap::new(title, seen.weights(layer, head), seen.tokens)
                    .labels(&tokens, &tokens)
            );
        }
    }

    // %% [markdown]
    // ## Step 2: many sentences in place of one
    //
    // Stop here for a moment. You have seen one pair of sentences, and surely you have begun to tell
    // stories about the heads. One picture proves nothing: a head may do on the next sentence what it
    // did not do on this one. So *measure*, over all sentences that you can get. (On the heads of
    // BERT-base: [Clark et al. 2019](https://arxiv.org/abs/1906.04341), sections 3 and 4.)
    //
    // **Exercise 12.2.** For one sentence and one head: of all attention that ordinary tokens pay,
    // which share goes to `[CLS]`, to `[SEP]`, to the token itself, to its left neighbour, to its
    // right neighbour, and to the rest? The six shares have the sum 1. A special token counts as
    // special also where it is a neighbour.

    // %%
    const HABITS: [&str; 6] = ["[CLS]", "[SEP]", "itself", "left", "right", "rest"];

    fn habits(weights: &[f32], ids: &[u32], special: SpecialIds) -> [f64; 6] {
        // BEGIN SOLUTION
        cloze::solution!("12.2");
        let n = ids.len();
        let mut shares = [0.0; 6];
        let mut rows = 0.0;
        for (i, &id) in ids.iter().enumerate() {
            if special.contains(id) {
                continue;
            }
            rows += 1.0;
            for (j, &other) in ids.iter().enumerate() {
                let habit = match other {
                    other if other == special.cls => 0,
                    other if other == special.sep => 1,
                    _ if i == j => 2,
                    _ if j + 1 == i => 3,
                    _ if j == i + 1 => 4,
                    _ => 5,
                };
                shares[habit] += f64::from(weights[i * n + j]);
            }
        }
        shares.map(|share| share / rows)
        // END SOLUTION
    }

    // %% [markdown]
    // Sentences to measure on: those of the paragraphs of `questions`, which the model never read.

    // %%
    let questions: Squad = Squad::read(
        &data::folder("questions")?.join("train-v2.0.json"),
        Misplaced::Refuse,
    )?;
    let texts: Vec<Vec<u32>> = questions
        .paragraphs()
        .flat_map(|paragraph| sentences(&paragraph.context))
        .map(|sentence| tokenizer.encode_with_special(sentence).ids)
        .filter(|ids| (8..=64).contains(&ids.len()))
        .collect();
    let mut packed: Packed = Packed::default();
    for (number, ids) in texts.iter().enumerate() {
        packed.push(number as u64, ids, &vec![0; ids.len()]);
    }
    let all_seen: Vec<SequenceAttention> = engine.attention(&packed)?;
    println!("{} sentences, {} tokens", texts.len(), packed.rows());

    // %%
    check!("12.2", |judge| {
        // [CLS] a b c [SEP]; row i looks at column j with the weight of the table.
        let ids = [special.cls, 1000, 1001, 1002, special.sep];
        let mut weights = vec![0.2f32; 25];
        weights[5..10].copy_from_slice(&[0.5, 0.1, 0.3, 0.1, 0.0]);
        weights[10..15].copy_from_slice(&[0.0, 0.6, 0.2, 0.1, 0.1]);
        weights[15..20].copy_from_slice(&[0.1, 0.0, 0.0, 0.4, 0.5]);
        let yours = habits(&weights, &ids, special);
        let right = [0.6, 0.6, 0.7, 0.6, 0.4, 0.1].map(|sum: f64| sum / 3.0);
        let told = |shares: &[f64; 6]| {
            let named = HABITS
                .iter()
                .zip(shares)
                .map(|(name, s)| format!("{name} {s:.3}"));
            named.collect::<Vec<_>>().join(", ")
        };
        let said = format!("{}; yours: {}", told(&right), told(&yours));
        let sum: f64 = yours.iter().sum();
        judge.holds(
            &format!("the six shares have the sum 1, yours {sum:.3}"),
            (sum - 1.0).abs() < 1e-5,
            "Every column goes into one share, and the sums are divided by the number of rows that \
             were counted: those of ordinary tokens.",
        );
        let transposed: Vec<f32> = (0..25).map(|at| weights[at % 5 * 5 + at / 5]).collect();
        let by_columns = habits(&transposed, &ids, special);
        judge.holds(
            &said,
            (by_columns[2] - right[2]).abs() > 1e-6 || (by_columns[3] - right[3]).abs() > 1e-6,
            "You read the table by columns: row i holds where token i looks, `weights[i * n + j]`.",
        );
        judge.holds(
            &said,
            (yours[3] - right[4]).abs() > 1e-6 || (yours[4] - right[3]).abs() > 1e-6,
            "Left and right are the wrong way round: the left neighbour of i is i - 1.",
        );
        judge.holds(
            &said,
            (yours[2] - 0.14).abs() > 1e-6,
            "You counted the rows of [CLS] and [SEP] too: leave them out, in the sums and in the \
             number of rows.",
        );
        for (at, name) in HABITS.iter().enumerate() {
            judge.close(
                &format!("the share of {name}"),
                yours[at],
                right[at],
                1e-5,
                &said,
            );
        }
        let ones: Vec<f32> = vec![1.0 / 8.0; 64];
        let eight: Vec<u32> = [special.cls, 900, 901, 902, 903, 904, 905, special.sep].to_vec();
        judge.close(
            "the share of the rest under equal weights over 8 tokens",
            habits(&ones, &eight, special)[5],
            20.0 / 48.0,
            1e-5,
            "Six tokens look, at 8 each. The first of them has [CLS] for its left neighbour and \
             the last [SEP] for its right one: those count as special.",
        );
    });

    // %% [markdown]
    // Beside the four heads, a row for a head that looks everywhere alike: a share means nothing
    // until you know what chance would give.

    // %%
    if solved!("12.2") {
        let count = texts.len() as f64;
        let mut names: Vec<String> = Vec::new();
        let mut table: Vec<f32> = Vec::new();
        for layer in 0..LAYERS {
            for head in 0..HEADS {
                let mut mean = [0.0; 6];
                for (ids, seen) in texts.iter().zip(&all_seen) {
                    let shares = habits(seen.weights(layer, head), ids, special);
                    mean = std::array::from_fn(|i| mean[i] + shares[i] / count);
                }
                let most = (0..6)
                    .max_by(|&a, &b| mean[a].total_cmp(&mean[b]))
                    .unwrap_or(0);
                println!(
                    "layer {layer}, head {head}: {:.0} % to {}, {:.0} % to special tokens",
                    100.0 * mean[most],
                    HABITS[most],
                    100.0 * (mean[0] + mean[1])
                );
                names.push(format!("layer {layer}, head {head}"));
                table.extend(mean.map(|share| share as f32));
            }
        }
        let mut equal = [0.0; 6];
        for ids in &texts {
            let weights = vec![1.0 / ids.len() as f32; ids.len() * ids.len()];
            let shares = habits(&weights, ids, special);
            equal = std::array::from_fn(|i| equal[i] + shares[i] / count);
        }
        names.push("everywhere alike".into());
        table.extend(equal.map(|share| share as f32));
        show!(
            HeatMap::new(
                "Where ordinary tokens look, mean over all sentences",
                &table,
                6
            )
            .labels(&names, &HABITS.map(String::from))
        );
    }

    // %% [markdown]
    // Two of the four heads have a habit that chance could not give: one of layer 0 looks at the
    // right neighbour, one of layer 1 at the left. The other two spread their weight. In BERT-base
    // you would find such neighbour heads too, and many that put most of their weight on `[SEP]`:
    // a head that finds nothing must put its weight *somewhere*, since every row has the sum 1
    // (Clark et al., section 3.2).
    //
    // The same by distance: the mean weight that a token gives to the token so many places to the
    // right (or, below zero, to the left).

    // %%
    let mut distances: LineChart =
        LineChart::new("Mean weight by distance").axes("places to the right", "weight");
    for layer in 0..LAYERS {
        for head in 0..HEADS {
            let mut sums: HashMap<i64, (f64, f64)> = HashMap::new();
            for (ids, seen) in texts.iter().zip(&all_seen) {
                let ordinary = |i: &usize| !special.contains(ids[*i]);
                for i in (0..ids.len()).filter(ordinary) {
                    for j in (0..ids.len()).filter(ordinary) {
                        let weight = seen.weights(layer, head)[i * ids.len() + j];
                        let sum = sums.entry(j as i64 - i as i64).or_default();
                        *sum = (sum.0 + f64::from(weight), sum.1 + 1.0);
                    }
                }
            }
            let line: Vec<(f64, f64)> = (-8..=8)
                .filter_map(|d| sums.get(&d).map(|(sum, count)| (d as f64, sum / count)))
                .collect();
            distances = distances.line(format!("layer {layer}, head {head}"), &line);
        }
    }
    show!(distances);

    // %% [markdown]
    // ## Step 3: vectors of words, drawn
    //
    // 128 dimensions can't be drawn, two can. Which two? Principal component analysis takes the
    // direction along which the points spread most, then the one that spreads most at right angles
    // to it. With the points' mean subtracted, the spread along a direction $v$ of length 1 is
    //
    // $$ \sum_r (x_r \cdot v)^2 = v^\top \Big( \sum_r x_r x_r^\top \Big) v = v^\top C v , $$
    //
    // and it is largest for the first eigenvector of $C$. **Power iteration** finds it: multiply any
    // vector by $C$ again and again, scaled to length 1 each time. The part of it that lies along
    // the largest eigenvalue grows fastest and wins. $C$ itself is never needed:
    // $C v = \sum_r (x_r \cdot v)\, x_r$.
    //
    // **Exercise 12.3.** Write it. The rows have mean 0 already.

    // %%
    fn principal_axis(rows: &[Vec<f64>]) -> Vec<f64> {
        // BEGIN SOLUTION
        cloze::solution!("12.3");
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let longest = rows.iter().max_by(|a, b| dot(a, a).total_cmp(&dot(b, b)));
        let mut axis = longest.cloned().unwrap_or_default();
        for _ in 0..300 {
            let mut next = vec![0.0; axis.len()];
            for row in rows {
                let along = dot(row, &axis);
                for (sum, x) in next.iter_mut().zip(row) {
                    *sum += along * x;
                }
            }
            let length = dot(&next, &next).sqrt();
            axis = next.iter().map(|x| x / length).collect();
        }
        axis
        // END SOLUTION
    }

    // %%
    /// The rows with their mean subtracted.
    fn centred(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let count = rows.len() as f64;
        let width = rows.first().map_or(0, Vec::len);
        let mean: Vec<f64> = (0..width)
            .map(|i| rows.iter().map(|row| row[i]).sum::<f64>() / count)
            .collect();
        let less = |row: &Vec<f64>| row.iter().zip(&mean).map(|(x, m)| x - m).collect();
        rows.iter().map(less).collect()
    }

    /// The spread of rows along a direction.
    fn spread(rows: &[Vec<f64>], axis: &[f64]) -> f64 {
        let along = |row: &Vec<f64>| row.iter().zip(axis).map(|(x, a)| x * a).sum::<f64>();
        rows.iter().map(|row| along(row).powi(2)).sum()
    }

    /// The vectors of some word pieces in the model's table.
    fn table_rows(model: &Model, ids: &[u32]) -> Vec<Vec<f64>> {
        let name = "embeddings.word_embeddings.weight";
        let range = model
            .layout
            .find(name)
            .map(|found| found.1)
            .unwrap_or_default();
        let table = &model.values[range];
        let row = |&id: &u32| {
            table[id as usize * H..][..H]
                .iter()
                .map(|&x| f64::from(x))
                .collect()
        };
        ids.iter().map(row).collect()
    }

    check!("12.3", |judge| {
        let flat = centred(&[
            vec![0.0, 0.0],
            vec![3.0, 4.0],
            vec![6.0, 8.0],
            vec![9.0, 12.1],
        ]);
        let yours = principal_axis(&flat);
        judge.equal(
            "the length of the list for points of two numbers",
            yours.len(),
            2,
            "An axis has as many numbers as a row.",
        );
        judge.holds(
            &format!("all numbers are finite; yours: {yours:?}"),
            yours.iter().all(|x| x.is_finite()),
            "Scale to length 1 in every round: the numbers grow by the eigenvalue each time, until \
             they are infinite. NaN may also be a division by the length 0.",
        );
        let length = yours.iter().map(|x| x * x).sum::<f64>().sqrt();
        judge.close(
            "the length of the axis",
            length,
            1.0,
            1e-9,
            "Divide by the square root of the sum of squares at the end of each round.",
        );
        judge.close(
            "the share of the spread that your axis takes of four points that lie nearly on a line",
            spread(&flat, &yours) / (spread(&flat, &[1.0, 0.0]) + spread(&flat, &[0.0, 1.0])),
            1.0,
            1e-3,
            "The points lie along (3, 4): the axis is (0.6, 0.8) or its opposite.",
        );
        let ids: Vec<u32> = (1000..1200).collect();
        let rows = centred(&table_rows(&model, &ids));
        let axis = principal_axis(&rows);
        let most = spread(&rows, &axis);
        let mut turned = vec![0.0; axis.len()];
        for row in &rows {
            let along: f64 = row.iter().zip(&axis).map(|(x, a)| x * a).sum();
            for (sum, x) in turned.iter_mut().zip(row) {
                *sum += along * x;
            }
        }
        let off = turned
            .iter()
            .zip(&axis)
            .map(|(c, a)| (c - most * a).powi(2));
        judge.close(
            "‖C v − λ v‖ / λ for 200 word vectors of the model",
            off.sum::<f64>().sqrt() / most,
            0.0,
            1e-3,
            "v is an eigenvector when C only makes it longer. Too few rounds leave it on the way: \
             some hundred are needed where two eigenvalues are near each other.",
        );
        let mut draws = Stream::new(12, 0, Site::Other(0), 0).draws();
        for _ in 0..300 {
            let random: Vec<f64> = (0..H).map(|_| draws.uniform() - 0.5).collect();
            let length = random.iter().map(|x| x * x).sum::<f64>();
            judge.holds(
                "no direction has a larger spread than your axis",
                spread(&rows, &random) / length <= most,
                "A direction chosen by chance has a larger one: did you look for the largest?",
            );
        }
    });

    // %% [markdown]
    // The second axis is the first one of what is left when the first is subtracted from every
    // row. With it, words of the model's own table in two dimensions:

    // %%
    /// Each row's place along the first two principal axes, and the share of all spread that they
    /// show.
    fn in_two_dimensions(rows: &[Vec<f64>]) -> (Vec<(f64, f64)>, f64) {
        let along =
            |row: &[f64], axis: &[f64]| row.iter().zip(axis).map(|(x, a)| x * a).sum::<f64>();
        let rows = centred(rows);
        let first = principal_axis(&rows);
        let rest: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| {
                let part = along(row, &first);
                row.iter().zip(&first).map(|(x, a)| x - part * a).collect()
            })
            .collect();
        let second = principal_axis(&rest);
        let all: f64 = rows.iter().flatten().map(|x| x * x).sum();
        let shown = (spread(&rows, &first) + spread(&rows, &second)) / all;
        let places = rows
            .iter()
            .map(|row| (along(row, &first), along(row, &second)));
        (places.collect(), shown)
    }

    const GROUPS: [(&str, [&str; 9]); 5] = [
        (
            "numbers",
            [
                "two", "three", "four", "five", "six", "seven", "eight", "ten", "twenty",
            ],
        ),
        (
            "family",
            [
                "mother", "father", "sister", "brother", "son", "daughter", "wife", "husband",
                "aunt",
            ],
        ),
        (
            "months",
            [
                "january",
                "february",
                "march",
                "april",
                "june",
                "july",
                "august",
                "september",
                "october",
            ],
        ),
        (
            "body",
            [
                "hand", "head", "eyes", "face", "arm", "foot", "hair", "heart", "lips",
            ],
        ),
        (
            "past",
            [
                "went", "came", "took", "gave", "saw", "made", "found", "felt", "knew",
            ],
        ),
    ];

    if solved!("12.3") {
        let words: Vec<(&str, &str, u32)> = GROUPS
            .iter()
            .flat_map(|(group, words)| words.iter().map(move |word| (*group, *word)))
            .filter_map(|(group, word)| Some((group, word, tokenizer.id(word)?)))
            .collect();
        let ids: Vec<u32> = words.iter().map(|word| word.2).collect();
        let (places, shown) = in_two_dimensions(&table_rows(&model, &ids));
        let mut plot = Scatter::new("Word vectors of cloze-tiny, by two principal axes")
            .axes("first axis", "second axis");
        for ((group, word, _), (x, y)) in words.iter().zip(places) {
            plot = plot.point(group, *word, x, y);
        }
        show!(plot);
        println!(
            "{} words; the two axes show {:.0} % of the spread",
            words.len(),
            100.0 * shown
        );
    }

    // %% [markdown]
    // Nobody told the model what a month is. Words that fill the same blanks got vectors that point
    // the same way. But read the number below the picture too: most of the spread is *not* in it.
    // Two groups that lie on each other here may be far apart in the other 126 dimensions.
    //
    // ### One word in different sentences
    //
    // The table has one vector for *left*. After the layers there is one for each place where the
    // word stands. Does the model tell *she left the house* from *the left hand*?

    // %%
    const WORD: &str = "left";
    const SENSES: [(&str, [&str; 10]); 2] = [
        (
            "went away",
            [
                "he left the house at dawn.",
                "she left her keys on the table.",
                "they left London in the morning.",
                "the train left the station early.",
                "he left the room without a word.",
                "we left the village after supper.",
                "the boy left school last year.",
                "she left him in the garden.",
                "the ship left the harbour at noon.",
                "he left his hat in the hall.",
            ],
        ),
        (
            "not right",
            [
                "turn to the left at the church.",
                "he raised his left hand.",
                "the house on the left is empty.",
                "she wore a ring on her left hand.",
                "his left arm was broken.",
                "the door on the left was open.",
                "he sat on the left of the king.",
                "a mill stood on the left bank.",
                "her left eye was blue.",
                "they turned to the left and went on.",
            ],
        ),
    ];

    /// The vectors of the word in all sentences, after the embeddings and after each layer.
    fn in_context(
        engine: &mut CpuEngine,
        tokenizer: &WordPiece,
    ) -> cloze::Result<Vec<Vec<Vec<f64>>>> {
        let id = tokenizer.id(WORD);
        let mut batch = Packed::default();
        let mut rows: Vec<usize> = Vec::new();
        for (number, text) in SENSES.iter().flat_map(|sense| sense.1).enumerate() {
            let ids = tokenizer.encode_with_special(text).ids;
            let place = ids.iter().position(|&other| Some(other) == id);
            rows.push(batch.rows() + place.unwrap_or_default());
            batch.push(number as u64, &ids, &vec![0; ids.len()]);
        }
        let states = engine.hidden_states(&batch, 0..LAYERS + 1)?.layers;
        let vector = |layer: &Vec<f32>, row: usize| -> Vec<f64> {
            layer[row * H..][..H]
                .iter()
                .map(|&x| f64::from(x))
                .collect()
        };
        let of_layer = |layer| rows.iter().map(|&row| vector(layer, row)).collect();
        Ok(states.iter().map(of_layer).collect())
    }

    /// How often a vector's nearest other vector, by the angle, is of the same half of the list.
    fn nearest_alike(rows: &[Vec<f64>]) -> f64 {
        let half = rows.len() / 2;
        let cosine = |a: &[f64], b: &[f64]| {
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
        };
        let alike = (0..rows.len()).filter(|&i| {
            let others = (0..rows.len()).filter(|&j| j != i);
            let nearest = others
                .max_by(|&a, &b| cosine(&rows[i], &rows[a]).total_cmp(&cosine(&rows[i], &rows[b])));
            nearest.is_some_and(|j| (j < half) == (i < half))
        });
        alike.count() as f64 / rows.len() as f64
    }

    let contexts: Vec<Vec<Vec<f64>>> = in_context(&mut engine, &tokenizer)?;
    for (layer, rows) in contexts.iter().enumerate() {
        println!(
            "after {}: the nearest vector has the same sense for {:.0} % of the sentences",
            ["the embeddings", "one layer", "two layers"][layer],
            100.0 * nearest_alike(rows)
        );
    }
    if solved!("12.3") {
        for (layer, name) in [(0, "the embeddings"), (2, "two layers")] {
            let (places, shown) = in_two_dimensions(&contexts[layer]);
            let title = format!("“{WORD}” in 20 sentences, after {name}");
            let mut plot = Scatter::new(title).axes(
                format!("two axes with {:.0} % of the spread", 100.0 * shown),
                "",
            );
            let said = SENSES
                .iter()
                .flat_map(|(sense, texts)| texts.map(|text| (*sense, text)));
            for ((sense, text), (x, y)) in said.zip(places) {
                // The words around it.
                let words: Vec<&str> = text.trim_end_matches('.').split(' ').collect();
                let at = words
                    .iter()
                    .position(|&word| word == WORD)
                    .unwrap_or_default();
                let near = &words[at.saturating_sub(1)..words.len().min(at + 2)];
                plot = plot.point(sense, near.join(" "), x, y);
            }
            show!(plot);
        }
    }

    // %% [markdown]
    // After the embeddings only the position differs, and many points lie on each other. After
    // two layers the senses stand apart, and the second one has parted again: *his left hand* and *her
    // left eye*, where a noun follows, against *on the left*, where none does. The vector says not so
    // much what the word means as what kind of place it stands in. That is what filling blanks
    // teaches.

    // %% [markdown]
    // > **A good place to stop.** You are half way, and your answers stay in the notebook. On another
    // > day select the cell below this one and choose *Run → Run All Above Selected Cell* (in VS Code
    // > *Execute Above Cells*).

    // %% [markdown]
    // ## Step 4: what can be read out of a layer
    //
    // A **probe** is a small classifier trained on a layer's vectors, while the model stands still.
    // If a linear probe can tell where in the sentence a token stands, then that is in the vector, in
    // a form that is easy to read. First this: the position, from 1 to 12, at each layer.

    // %%
    /// Rows of a layer with a class each.
    #[derive(Default, Clone)]
    struct Labelled {
        rows: Vec<f32>,
        classes: Vec<u32>,
    }

    impl Labelled {
        fn push(&mut self, row: &[f32], class: u32) {
            self.rows.extend_from_slice(row);
            self.classes.push(class);
        }

        fn tensor(&self) -> Tensor<(usize, Const<H>), f32, Cpu> {
            Cpu::default().tensor_from_vec(self.rows.clone(), (self.classes.len(), Const::<H>))
        }
    }

    /// Trains a linear probe for `C` classes; gives its accuracy on other rows.
    fn probe<const C: usize>(train: &Labelled, test: &Labelled) -> f64 {
        let dev = Cpu::default();
        let mut head: Linear<H, C, f32, Cpu> = Linear {
            weight: dev.zeros(),
            bias: dev.zeros(),
        };
        let config = AdamConfig {
            lr: 1e-2,
            weight_decay: Some(WeightDecay::Decoupled(0.01)),
            ..AdamConfig::default()
        };
        let mut adam = Adam::new(&head, config);
        let x = train.tensor();
        for _ in 0..cloze::lessons::steps(150) {
            let logits = head.forward(x.leaky_trace());
            let loss = cross_entropy(logits, &train.classes) / train.classes.len() as f32;
            // Fails where a parameter has no gradient; the loss reads both.
            adam.update(&mut head, &loss.backward())
                .expect("both are read");
        }
        let logits = head.forward(test.tensor()).as_vec();
        let best = logits.chunks_exact(C).map(cloze::eval::best);
        let right = best
            .zip(&test.classes)
            .filter(|(best, class)| best == *class);
        right.count() as f64 / test.classes.len() as f64
    }

    let states: Vec<Vec<f32>> = engine.hidden_states(&packed, 0..LAYERS + 1)?.layers;
    for (layer, name) in ["the embeddings", "one layer", "two layers"]
        .iter()
        .enumerate()
    {
        let mut halves: [Labelled; 2] = Default::default();
        for (number, range) in packed.ranges().enumerate() {
            for position in 1..=12.min(range.len() - 2) {
                let row = range.start + position;
                halves[number % 2].push(&states[layer][row * H..][..H], position as u32 - 1);
            }
        }
        println!(
            "position after {name}: {:.1} % right, {} tokens to learn from",
            100.0 * probe::<12>(&halves[0], &halves[1]),
            halves[0].classes.len()
        );
    }

    // %% [markdown]
    // The embeddings have the position in them, added on top. After one layer all of it is still
    // there, after two six of ten are lost: the last vector must say which *word* belongs here.
    //
    // Now something that the model was never given. Its text is lower-case: the tokenizer took the
    // capital letters away. Can a probe say which words had one? It could be done by learning words
    // by heart: *london* has, *table* has not. So a good score alone does not show that the layer
    // knows anything; the probe may have learned it all. [Hewitt and Liang
    // 2019](https://arxiv.org/abs/1909.03368) propose a **control task**: labels that mean nothing,
    // each word type's drawn by lot. What a probe reaches on these is what it can learn by heart;
    // how much more it reaches on the real ones is its **selectivity**.
    //
    // **Exercise 12.4.** Draw the control labels: 1 with probability `share`, else 0, the same for
    // the same piece wherever it stands, others with another seed.
    // `Stream::new(seed, 0, Site::Other(0), number).draws().uniform()` is a number in [0, 1) that depends
    // on `seed` and `number` alone.

    // %%
    fn control_labels(ids: &[u32], share: f64, seed: u64) -> Vec<u32> {
        // BEGIN SOLUTION
        cloze::solution!("12.4");
        let label = |&id: &u32| {
            let mut draws = Stream::new(seed, 0, Site::Other(0), u64::from(id)).draws();
            u32::from(draws.uniform() < share)
        };
        ids.iter().map(label).collect()
        // END SOLUTION
    }

    // %%
    check!("12.4", |judge| {
        let many: Vec<u32> = (0..8_000).collect();
        let first = control_labels(&many, 0.3, 1);
        judge.equal(
            "the number of labels",
            first.len(),
            many.len(),
            "One for each id.",
        );
        judge.holds(
            "labels are 0 and 1",
            first.iter().all(|&label| label < 2),
            "Two classes: 1 with probability `share`, else 0.",
        );
        let ones = first.iter().map(|&label| f64::from(label)).sum::<f64>();
        judge.close(
            "the share of ones among 8,000 pieces for a share of 0.3",
            ones / 8_000.0,
            0.3,
            0.02,
            "1 where a number drawn from [0, 1) is below the share. About 0.7: the other way round.",
        );
        let twice = control_labels(&[17, 99, 17, 4_000, 99, 17], 0.5, 2);
        judge.holds(
            &format!(
                "the same piece has the same label everywhere: pieces 17, 99, 17, 4000, 99, 17 got \
                 {twice:?}"
            ),
            twice.len() == 6
                && twice[0] == twice[2]
                && twice[2] == twice[5]
                && twice[1] == twice[4],
            "Draw by the id, not one number after the other: a control must be learnable by heart.",
        );
        let mut turned = many.clone();
        turned.reverse();
        let mut back = control_labels(&turned, 0.3, 1);
        back.reverse();
        judge.holds(
            "a piece's label does not depend on where in the list it stands",
            back == first,
            "Make a stream for each id: `Stream::new(seed, 0, Site::Other(0), u64::from(id))`.",
        );
        let other = control_labels(&many, 0.3, 2);
        let alike = first.iter().zip(&other).filter(|(a, b)| a == b).count();
        judge.close(
            "the share of pieces with the same label under two seeds",
            alike as f64 / 8_000.0,
            0.58,
            0.03,
            "Two independent draws agree with 0.3² + 0.7² = 0.58. With 1 the seed was not used.",
        );
        let neighbours = first.windows(2).filter(|pair| pair[0] == pair[1]).count();
        judge.close(
            "the share of neighbouring ids with the same label",
            neighbours as f64 / 8_000.0,
            0.58,
            0.03,
            "The label should be drawn by lot, not follow from whether the id is even, say.",
        );
    });

    // %% [markdown]
    // The set of [lesson 11](11_ner.rs) has its words with their capitals. Left out are first words of sentences,
    // which always have one. The control is drawn three times and its accuracy averaged:

    // %%
    /// The words of a file but for each sentence's first.
    struct Words {
        /// The first piece of each.
        ids: Vec<u32>,
        /// 1 for a capital letter.
        capitals: Vec<u32>,
        /// Their vectors after the embeddings and after each layer.
        layers: Vec<Vec<f32>>,
    }

    impl Words {
        /// Their vectors at a layer, with classes.
        fn labelled(&self, layer: usize, classes: Vec<u32>) -> Labelled {
            Labelled {
                rows: self.layers[layer].clone(),
                classes,
            }
        }
    }

    fn words_of(file: &str, tokenizer: &WordPiece, engine: &mut CpuEngine) -> cloze::Result<Words> {
        let path = data::folder("names")?.join(file);
        let read: Vec<Sentence> = conll::read(&path, true, &mut BadRows::refused())?;
        let special = tokenizer.special();
        let mut batch = Packed::default();
        let (mut rows, mut capitals) = (Vec::new(), Vec::new());
        for (number, sentence) in read.iter().enumerate() {
            let mut ids = vec![special.cls];
            for (place, word) in sentence.words.iter().enumerate() {
                if place > 0 && word.starts_with(char::is_alphabetic) {
                    rows.push(batch.rows() + ids.len());
                    capitals.push(u32::from(word.starts_with(char::is_uppercase)));
                }
                ids.extend(tokenizer.encode(word).ids);
            }
            ids.push(special.sep);
            batch.push(number as u64, &ids, &vec![0; ids.len()]);
        }
        let states = engine.hidden_states(&batch, 0..LAYERS + 1)?.layers;
        let of_layer = |layer: &Vec<f32>| -> Vec<f32> {
            rows.iter()
                .flat_map(|&row| layer[row * H..][..H].to_vec())
                .collect()
        };
        Ok(Words {
            ids: rows.iter().map(|&row| batch.ids[row]).collect(),
            layers: states.iter().map(of_layer).collect(),
            capitals,
        })
    }

    if solved!("12.4") {
        let train = words_of("train.txt", &tokenizer, &mut engine)?;
        let test = words_of("valid.txt", &tokenizer, &mut engine)?;
        let share_of =
            |words: &Words| words.capitals.iter().sum::<u32>() as f64 / words.capitals.len() as f64;
        let share = share_of(&train);
        println!(
            "{} words to learn from, {} to measure on; \"no capital\" is right for {:.1} %",
            train.ids.len(),
            test.ids.len(),
            100.0 * (1.0 - share_of(&test))
        );
        let mut chart = BarChart::new("What a linear probe gets right").unit("%");
        for (layer, name) in ["embeddings", "one layer", "two layers"].iter().enumerate() {
            let capitals = |words: &Words| words.labelled(layer, words.capitals.clone());
            let real = probe::<2>(&capitals(&train), &capitals(&test));
            let drawn = |seed: u64| {
                let labels =
                    |words: &Words| words.labelled(layer, control_labels(&words.ids, share, seed));
                probe::<2>(&labels(&train), &labels(&test))
            };
            let control = (drawn(1) + drawn(2) + drawn(3)) / 3.0;
            println!("{name}: selectivity {:.1}", 100.0 * (real - control));
            chart = chart
                .bar(format!("{name}: capital letters"), 100.0 * real)
                .beside("control", 100.0 * control);
        }
        show!(chart);
    }

    // %% [markdown]
    // Read both bars of a layer together. At the embeddings the probe is hardly better than on labels
    // without any meaning: what looked like knowledge was mostly words learned by heart. From layer
    // to layer the control falls, since a word's identity is mixed with its context, while the real
    // task holds and then rises: the selectivity grows from 3 to 7 points. That is the finding, and it is a modest
    // one: a bar over 779 words has a standard error of about 1.2 points (lesson 06), so a growth of 4 in
    // the difference of two bars is at the edge of what they can show.
    //
    // A probe shows what *can* be read from a layer, not what the model *uses*. For that something
    // must be taken away.
    //
    // ## Step 5: cut heads off
    //
    // The output of a layer's attention is a sum over its heads: each head has its own 64 columns of
    // the output projection $W^O$,
    //
    // $$ \operatorname{Attention}(x) = b^O + \sum_h W^O_h \, o_h , $$
    //
    // so a head whose columns are 0 is gone, and nothing else has changed ([Michel et al.
    // 2019](https://arxiv.org/abs/1905.10650) cut heads off in this way, section 2.3).
    //
    // **Exercise 12.5.** Give the model's parameters without one head. $W^O$ is the parameter
    // `encoder.layer.N.attention.output.dense.weight`, a row for each output, and head `h` owns the
    // columns `h * size..(h + 1) * size`, where `size = model.config.head_size()`.
    // `model.layout.find(name)` gives a parameter with its range in `model.values`.

    // %%
    fn without_head(model: &Model, layer: usize, head: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("12.5");
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
    // What to measure: the masked-LM loss of lesson 05 on the sentences from above, 15 % of their
    // tokens masked, the same for every cut.

    // %%
    /// Sentences with blanks: the batch, the rows of the blanks, and what stood there.
    #[derive(Clone)]
    struct Blanks {
        batch: Packed,
        rows: Vec<u32>,
        answers: Vec<u32>,
    }

    impl Blanks {
        fn new(texts: &[Vec<u32>], tokenizer: &WordPiece) -> Self {
            let masker = Masker::new(tokenizer, 0.15, false, 12);
            let mut blanks = Self {
                batch: Packed::default(),
                rows: Vec::new(),
                answers: Vec::new(),
            };
            for (number, text) in texts.iter().enumerate() {
                let mut ids = text.clone();
                let start = blanks.batch.rows() as u32;
                for target in masker.mask(number as u64, &mut ids) {
                    blanks.rows.push(start + target.position);
                    blanks.answers.push(target.label);
                }
                blanks.batch.push(number as u64, &ids, &vec![0; ids.len()]);
            }
            blanks
        }

        /// The loss at each blank under these parameters.
        fn losses(&self, model: &Model, values: Vec<f32>) -> cloze::Result<Vec<f64>> {
            let mut engine = CpuEngine::new(&model.config, &model.layout, values)?;
            let logits = engine.masked_lm_logits(&self.batch, &self.rows)?;
            let rows = logits.chunks_exact(model.config.vocab_size);
            let loss = |(row, &answer): (&[f32], &u32)| {
                let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = row.iter().map(|&z| f64::from(z - top).exp()).sum();
                sum.ln() + f64::from(top - row[answer as usize])
            };
            Ok(rows.zip(&self.answers).map(loss).collect())
        }
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// The model's parameters with a head's part of a parameter set to 0: the rows of its queries,
    /// say. What the head computes from them is 0 then.
    fn zeroed(model: &Model, layer: usize, head: usize, which: &str) -> Vec<f32> {
        let mut values = model.values.clone();
        let (width, size) = (model.config.hidden_size, model.config.head_size());
        for (kind, columns) in [("weight", width), ("bias", 1)] {
            let name = format!("encoder.layer.{layer}.attention.self.{which}.{kind}");
            if let Some((_, range)) = model.layout.find(&name) {
                values[range][head * size * columns..(head + 1) * size * columns].fill(0.0);
            }
        }
        values
    }

    let blanks: Blanks = Blanks::new(&texts, &tokenizer);
    let whole: f64 = mean(&blanks.losses(&model, model.values.clone())?);
    println!(
        "{} blanks, loss of the whole model {whole:.3}",
        blanks.rows.len()
    );

    check!("12.5", |judge| {
        let (width, size) = (model.config.hidden_size, model.config.head_size());
        for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let yours = without_head(&model, layer, head);
            judge.equal(
                "the number of values",
                yours.len(),
                model.values.len(),
                "All parameters come back, most of them as they were.",
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
                "The head's columns of the output projection are enough. The bias belongs to no head.",
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
                !block(mine.clone(), 0..width),
                "You set rows to 0: rows are outputs. What comes from the head enters by the columns.",
            );
            judge.holds(
                &format!("the columns {mine:?} of {name} are 0"),
                block(0..width, mine.clone()),
                "In each of the 128 rows, the 64 columns of the head.",
            );
            let zeros = (0..width).flat_map(|row| (0..width).map(move |column| (row, column)));
            let other = zeros.filter(|&(row, column)| !mine.contains(&column) && zero(row, column));
            judge.equal(
                "the number of other columns' values that are 0",
                other.count(),
                0,
                "The other head stays.",
            );
            // The same cut in another place: a head whose values are all 0 gives 0.
            let other = blanks.losses(&model, zeroed(&model, layer, head, "value"));
            if let (Ok(a), Ok(b)) = (blanks.losses(&model, yours), other) {
                judge.close(
                    &format!(
                        "the loss without head {head} of layer {layer}, less that with its values \
                         set to 0"
                    ),
                    mean(&a) - mean(&b),
                    0.0,
                    1e-5,
                    "Two ways to cut the same head off must agree: the crate's engine says what each costs.",
                );
            }
        }
    });

    // %% [markdown]
    // Two cuts for each head. Without it at all; and with its queries set to 0, so that every score
    // is 0 and it looks everywhere alike. The second leaves what the head *carries* and takes away
    // where it *looks*: exactly what the pictures above show.

    // %%
    if solved!("12.5") {
        let mut chart = BarChart::new(format!(
            "Masked-LM loss added by a cut (whole model: {whole:.2})"
        ))
        .unit("nats");
        for layer in 0..LAYERS {
            for head in 0..HEADS {
                let cut = mean(&blanks.losses(&model, without_head(&model, layer, head))?);
                let alike = mean(&blanks.losses(&model, zeroed(&model, layer, head, "query"))?);
                chart = chart
                    .bar(format!("layer {layer}, head {head} cut off"), cut - whole)
                    .beside("… looks everywhere alike", alike - whole);
            }
        }
        show!(chart);
    }

    // %% [markdown]
    // The two heads with a clear habit are those that the model can't do without. That much the
    // pictures did tell. But look at two details. The heads with blurred pictures cost something
    // too. And for the neighbour heads looking everywhere alike is about as bad as being cut off:
    // what they carry is of use only from where they look.
    //
    // ## Step 6: does attention tell what matters?
    //
    // The tempting reading of an attention picture is: the thick lines go to what the model's answer
    // depends on. That can be tested. Take a sentence with one blank. For each other word measure
    // twice: the weight that the blank gives to it, and how much the loss at the blank grows when
    // this word is masked too. If the reading is right, the two should rank the words alike. As a
    // comparison, something that needs no model: nearness to the blank.

    // %%
    /// The numbers of one blank, for each other word: the weight of each head, nearness, and what
    /// masking it costs.
    struct Effects {
        weights: [Vec<f64>; LAYERS * HEADS],
        nearness: Vec<f64>,
        cost: Vec<f64>,
    }

    fn effects(
        model: &Model,
        engine: &mut CpuEngine,
        text: &[u32],
        at: usize,
        special: SpecialIds,
    ) -> cloze::Result<Effects> {
        let mut blank = text.to_vec();
        blank[at] = special.mask;
        let others: Vec<usize> = (0..text.len())
            .filter(|&j| j != at && !special.contains(text[j]))
            .collect();
        let mut batch = Packed::default();
        batch.push(0, &blank, &vec![0; blank.len()]);
        let seen = engine.attention(&batch)?.swap_remove(0);
        for &j in &others {
            let mut more = blank.clone();
            more[j] = special.mask;
            batch.push(batch.sequences() as u64, &more, &vec![0; more.len()]);
        }
        let rows: Vec<u32> = batch
            .ranges()
            .map(|range| (range.start + at) as u32)
            .collect();
        let answers = vec![text[at]; rows.len()];
        let losses = Blanks {
            batch,
            rows,
            answers,
        }
        .losses(model, model.values.clone())?;
        let weight = |number: usize, j: usize| {
            let row = &seen.weights(number / HEADS, number % HEADS)[at * text.len()..];
            f64::from(row[j])
        };
        Ok(Effects {
            weights: std::array::from_fn(|number| {
                others.iter().map(|&j| weight(number, j)).collect()
            }),
            nearness: others.iter().map(|&j| -(j.abs_diff(at) as f64)).collect(),
            cost: losses[1..].iter().map(|loss| loss - losses[0]).collect(),
        })
    }

    /// The effects of one blank each in so many of the shorter sentences.
    fn measured(
        model: &Model,
        engine: &mut CpuEngine,
        texts: &[Vec<u32>],
        count: usize,
        special: SpecialIds,
    ) -> cloze::Result<Vec<Effects>> {
        let short = texts.iter().filter(|text| (10..=24).contains(&text.len()));
        short
            .take(count)
            .enumerate()
            .map(|(number, text)| {
                let mut draws = Stream::new(12, 0, Site::Other(1), number as u64).draws();
                let at = 1 + draws.below(text.len() as u32 - 2) as usize;
                effects(model, engine, text, at, special)
            })
            .collect()
    }

    /// The mean rank correlation of something with the cost.
    fn rank(all: &[Effects], of: impl Fn(&Effects) -> Vec<f64>) -> f64 {
        let each: Vec<f64> = all.iter().map(|e| spearman(&of(e), &e.cost)).collect();
        mean(&each)
    }

    let count: usize = cloze::lessons::steps(60) as usize;
    let all_effects: Vec<Effects> = measured(&model, &mut engine, &texts, count, special)?;
    let mut ranks: Vec<(String, f64)> = (0..LAYERS * HEADS)
        .map(|n| {
            let name = format!("layer {}, head {}", n / HEADS, n % HEADS);
            (name, rank(&all_effects, |e| e.weights[n].clone()))
        })
        .collect();
    let together: f64 = rank(&all_effects, |e| {
        let sum = |word: usize| e.weights.iter().map(|head| head[word]).sum::<f64>();
        (0..e.cost.len()).map(sum).collect()
    });
    ranks.push(("all heads, averaged".into(), together));
    let nearness: f64 = rank(&all_effects, |e| e.nearness.clone());
    ranks.push(("nearness to the blank".into(), nearness));
    show!(
        BarChart::new("How well the words that matter are found (mean rank correlation)")
            .bars(ranks.iter().map(|(name, rho)| (name.clone(), *rho)))
    );

    // %% [markdown]
    // Correlations of 0.1 to 0.2, where 1 would be the reading that everybody takes for granted. And
    // *nearness*, which knows nothing of the model, does as well as all heads together. Attention is
    // not unrelated to what matters, but as an explanation of an answer it is a poor one. Why?
    //
    // - A weight says which *share* of a token's value vector is taken, not how long that vector is
    //   nor what the output projection makes of it ([Kobayashi et al.
    //   2020](https://arxiv.org/abs/2004.10102)).
    // - From the second layer on a position is no longer its token: each has been mixed with others
    //   by the layer below ([Abnar and Zuidema 2020](https://arxiv.org/abs/2005.00928)).
    // - The residual is a way around attention, and the feed-forward blocks stand behind it. Neither
    //   is in the picture.
    //
    // There was a dispute about this with telling titles: "Attention is not explanation" ([Jain and
    // Wallace 2019](https://arxiv.org/abs/1902.10186)) and "Attention is not not explanation"
    // ([Wiegreffe and Pinter 2019](https://arxiv.org/abs/1908.04626)). What you can take from it: a
    // picture gives you a *question*. A cut, a probe with its control, a measurement over many
    // sentences may give you the answer.
    //
    // ## What goes wrong
    //
    // The crate's answers to a text without tokens and to one that is too long for the model:

    // %%
    if let Err(error) = AttentionView::of(&mut engine, &tokenizer, "I went.", Some("  ")) {
        println!("{error}");
    }
    let long: String = "the river ".repeat(100);
    if let Err(error) = AttentionView::of(&mut engine, &tokenizer, &long, None) {
        println!("{error}");
    }

    // %% [markdown]
    // **A layer too many.** `seen.weights(2, 0)` on a model of two layers is a panic, and so is a
    // head that is not there:
    //
    // ```text
    // index out of bounds: the len is 2 but the index is 2
    // ```
    //
    // Layers of attention count from 0 here. Hidden states have one more: 0 is what the embeddings
    // give, 1 what layer 0 makes of it. Errors by one like to live there.
    //
    // **Tokens of another text.** `AttentionView::new(seen, &["a", "b"], &[0, 0])`:
    //
    // ```text
    // 2 tokens and 2 segments do not fit attention between 20 tokens
    // ```
    //
    // And what no error tells:
    //
    // - **no mean subtracted** before a PCA: the first axis is then the mean itself, and the picture
    //   shows how long vectors are;
    // - **distances read off the picture**: here 63 % of the spread are not in it;
    // - **a probe without a control** or without the share of the largest class: 85 % sounds like
    //   knowledge until 76 % is what saying "no" always gives, and 82 % what labels without a meaning
    //   give;
    // - **losses compared under different masks**: cut and whole model must fill the same blanks;
    // - **one sentence.** It always fits the story.
    //
    // ## Expected numbers
    //
    // - layer 0: 67 % of head 0's weight goes to the rest, 94 % of head 1's to the right neighbour;
    //   layer 1: 72 % of head 0's to the rest, 84 % of head 1's to the left neighbour;
    // - two axes show 37 % of the spread of 45 word vectors;
    // - *left*: the nearest vector has the same sense for 65 % after the embeddings (by the position
    //   alone: in the first sense it is mostly the second word), 95 % after one layer, 100 % after
    //   two;
    // - the position can be read for 100 %, 99.9 % and 39.5 % of the tokens after the embeddings, one
    //   layer and two;
    // - capital letters 85.1, 85.1, 87.9 %; control 82.4, 81.9, 80.9 %;
    // - 900 blanks, loss 3.96; cuts add 0.25, 1.18, 0.18 and 0.91;
    // - rank correlations 0.10 to 0.20, all heads together 0.23, nearness 0.21;
    // - the cells compute for about 4 seconds on two cores.
    //
    // ## On a real model
    //
    // BERT-base has 144 heads in 12 layers. The page of
    //
    // ```text
    // cloze attention --model google-bert/bert-base-uncased "The cat sat on the mat." "It was tired." --out view.html --view model
    // ```
    //
    // shows them all and needs no network; `--json` gives the weights. To take this lesson's
    // measurements there, set `folder` to its folder, `LAYERS` and `HEADS` to 12 and `H` to 768;
    // they take minutes then.
    //
    // ## Open questions
    //
    // 1. Layer 0 has a head for the right neighbour, layer 1 one for the left. What can a position
    //    know of its surroundings after both, and why would training not put both heads into one
    //    layer?
    // 2. Two heads whose cuts cost nothing each may cost much when both are cut, and a cut that costs
    //    much may be healed by a few steps of training. What then does the cost of a cut measure?
    //
    // The crate's source of this part: `src/view/attention/mod.rs`, `src/view/scatter.rs`,
    // `src/model/inspect.rs` and `src/cli/attention.rs`. Next: [lesson 13](13_gpu_benchmarks.rs), in
    // which you measure how fast all this can be.

    // %% [end]
    cloze::lessons::finish("12_inside")
}
