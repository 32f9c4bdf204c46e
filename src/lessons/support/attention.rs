//! For the lessons on embeddings and attention: a picture of one token's attention, random stacks of layers,
//! measurements over a text, and calls of the crate's modules.

use std::ops::Range;
use std::time::Instant;

use dfdx::prelude::*;
use plotters::element::{PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor};

use crate::data::Packed;
use crate::model::{Bert, Config, Pass};
use crate::text::WordPiece;
use crate::view::display::{Content, Show};
use crate::view::picture::{self, Canvas, Outcome};
use crate::view::style::{self, INK, WIDTH};

/// One row of `N` numbers for each token: (tokens, N).
pub type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;
/// A batch of sentences, padded to the longest: (B, S, H).
pub type Batch<const H: usize> = Tensor<(usize, usize, Const<H>), f32, Cpu>;
/// A table of two sizes that are known at run time, such as (queries, keys) or (B, S).
pub type Grid = Tensor<(usize, usize), f32, Cpu>;
/// A vector of two numbers.
type Pair = [f32; 2];

/// The attention of one token in a sentence of three, step by step: the numbers, and a picture of them.
#[derive(Debug, Clone)]
pub struct Reader {
    tokens: [String; 3],
    reader: usize,
    x: [Pair; 3],
    queries: [Pair; 3],
    keys: [Pair; 3],
    values: [Pair; 3],
}

impl Reader {
    /// Projects the vectors `x` of three tokens by the matrices of queries, keys and values (row vector times
    /// matrix); `reader` is the number of the token that looks.
    ///
    /// # Panics
    /// If there is no token `reader`.
    pub fn new(
        tokens: &[&str; 3],
        x: &[Pair; 3],
        [query, key, value]: [&[Pair; 2]; 3],
        reader: usize,
    ) -> Self {
        assert!(reader < 3, "there are the tokens 0, 1 and 2, not {reader}");
        let projected = |w: &[Pair; 2]| x.map(|[a, b]| [0, 1].map(|c| a * w[0][c] + b * w[1][c]));
        Self {
            tokens: tokens.map(str::to_owned),
            reader,
            x: *x,
            queries: projected(query),
            keys: projected(key),
            values: projected(value),
        }
    }

    /// Returns the dot products of the reader's query with each key.
    pub fn scores(&self) -> [f32; 3] {
        let q = self.queries[self.reader];
        self.keys.map(|k| q[0] * k[0] + q[1] * k[1])
    }

    /// Returns the reader's attention weights: the softmax of the scores divided by the root of 2.
    pub fn weights(&self) -> [f32; 3] {
        let powers = self.scaled().map(f32::exp);
        let sum: f32 = powers.iter().sum();
        powers.map(|power| power / sum)
    }

    /// Returns the weighted mean of the values.
    pub fn output(&self) -> Pair {
        let weighted = self.weighted();
        [0, 1].map(|c| weighted.iter().map(|v| v[c]).sum())
    }

    fn scaled(&self) -> [f32; 3] {
        self.scores().map(|score| score / 2f32.sqrt())
    }

    fn weighted(&self) -> [Pair; 3] {
        let weights = self.weights();
        [0, 1, 2].map(|j| self.values[j].map(|v| weights[j] * v))
    }

    fn title(&self) -> String {
        format!("How \"{}\" looks at the sentence", self.tokens[self.reader])
    }

    /// Returns the picture as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        picture::svg((WIDTH, 452), &self.title(), |root| self.draw(root))
    }

    fn draw(&self, root: &Canvas<'_>) -> Outcome<()> {
        const LEFT: i32 = 156;
        const COLUMN: i32 = 188;
        const SMALL: (i32, i32) = (54, 28);
        let [blue, orange, green] = [0, 1, 2].map(style::series);
        picture::title(root, &self.title())?;
        // The rows: their height and their names.
        let [token, projected, score, scaled, weight, weighted, output] =
            [44, 104, 182, 226, 270, 342, 412];
        let names = [
            (token, "token: x"),
            (projected, "projected"),
            (score, "score: q · k"),
            (scaled, "score / √2"),
            (weight, "weight: softmax"),
            (weighted, "weight · v"),
            (output, "sum"),
        ];
        for (y, name) in names {
            picture::label(root, name, (14, y + 14), HPos::Left)?;
        }
        let lane =
            |column: usize, place: i32| LEFT + COLUMN * column as i32 + 27 + place * (SMALL.0 + 6);
        let (scores, scaled_scores) = (self.scores(), self.scaled());
        let (weights, parts) = (self.weights(), self.weighted());
        // The reader's query goes along this line to every column.
        let bus = projected + 50;
        let ends = [lane(0, 0), lane(2, 0)];
        line(root, &[(ends[0], bus), (ends[1], bus)], blue)?;
        let own = lane(self.reader, 0);
        line(root, &[(own, projected + SMALL.1), (own, bus)], blue)?;
        for j in 0..3 {
            let left = lane(j, 0) - 27;
            let wide = 3 * SMALL.0 + 12;
            let two = 2 * SMALL.0 + 6;
            let heading = format!("{}: {}", self.tokens[j], pair(self.x[j]));
            boxed(root, (left, token), wide, &heading, INK, 0.0)?;
            let vectors = [
                (self.queries[j], "q", blue),
                (self.keys[j], "k", orange),
                (self.values[j], "v", green),
            ];
            for (place, (vector, name, color)) in (0..).zip(vectors) {
                let x = lane(j, place);
                line(root, &[(x, token + 28), (x, projected)], INK)?;
                // Of the queries only the reader's is used.
                let used = place > 0 || j == self.reader;
                let strength = if used { 0.25 } else { 0.0 };
                boxed(root, (x - 27, projected), SMALL.0, &pair(vector), color, strength)?;
                picture::label(root, name, (x + 4, projected - 9), HPos::Left)?;
            }
            arrow(root, (lane(j, 0), bus), score, blue)?;
            arrow(root, (lane(j, 1), projected + SMALL.1), score, orange)?;
            arrow(root, (lane(j, 2), projected + SMALL.1), weighted, green)?;
            boxed(root, (left, score), two, &short(scores[j]), INK, 0.0)?;
            boxed(root, (left, scaled), two, &short(scaled_scores[j]), INK, 0.0)?;
            // The bar behind the weight is as long as its share of the box.
            let bar = (f64::from(weights[j]) * f64::from(two)) as i32;
            let corners = [(left, weight), (left + bar, weight + 28)];
            root.draw(&Rectangle::new(corners, style::series(3).mix(0.35).filled()))?;
            boxed(root, (left, weight), two, &format!("{:.3}", weights[j]), INK, 0.0)?;
            let middle = left + two / 2;
            for (from, to) in [(score, scaled), (scaled, weight), (weight, weighted)] {
                arrow(root, (middle, from + 28), to, INK)?;
            }
            boxed(root, (left, weighted), wide, &pair(parts[j]), green, 0.25)?;
            let (x, below) = (left + wide / 2, weighted + 28);
            line(root, &[(x, below), (x, below + 20)], INK)?;
        }
        let centre = lane(1, 1);
        line(root, &[(lane(0, 1), weighted + 48), (lane(2, 1), weighted + 48)], INK)?;
        arrow(root, (centre, weighted + 48), output, INK)?;
        let text = format!("new vector of {}: {}", self.tokens[self.reader], pair(self.output()));
        boxed(root, (centre - 130, output), 260, &text, green, 0.25)
    }

    /// Returns the numbers as a table in characters, for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}, q = {}", self.title(), pair(self.queries[self.reader]));
        let scaled = self.scaled();
        let (scores, weights, weighted) = (self.scores(), self.weights(), self.weighted());
        for j in 0..3 {
            out += &format!(
                "\n  {:8} k = {:8} q·k = {:6} /√2 = {:6} weight {:.3}   v = {:8} weight·v = {}",
                self.tokens[j],
                pair(self.keys[j]),
                short(scores[j]),
                short(scaled[j]),
                weights[j],
                pair(self.values[j]),
                pair(weighted[j])
            );
        }
        out + &format!("\n  the sum is {}", pair(self.output()))
    }
}

impl Show for Reader {
    fn content(&self) -> Content {
        Content::html(style::figure(&self.svg())).with_text(self.text())
    }
}

/// Formats a number with up to two decimals.
fn short(value: f32) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn pair([a, b]: Pair) -> String {
    format!("({}, {})", short(a), short(b))
}

/// Draws a box with a text; `strength` is that of its fill.
fn boxed(
    root: &Canvas<'_>,
    (x, y): (i32, i32),
    width: i32,
    text: &str,
    color: RGBColor,
    strength: f64,
) -> Outcome<()> {
    let corners = [(x, y), (x + width, y + 28)];
    if strength > 0.0 {
        root.draw(&Rectangle::new(corners, color.mix(strength).filled()))?;
    }
    root.draw(&Rectangle::new(corners, color.stroke_width(1)))?;
    picture::label(root, text, (x + width / 2, y + 14), HPos::Center)
}

fn line(root: &Canvas<'_>, points: &[(i32, i32)], color: RGBColor) -> Outcome<()> {
    root.draw(&PathElement::new(points.to_vec(), color.stroke_width(1)))
}

/// Draws an arrow from a point down to the height `y`.
fn arrow(root: &Canvas<'_>, (x, from): (i32, i32), y: i32, color: RGBColor) -> Outcome<()> {
    line(root, &[(x, from), (x, y - 5)], color)?;
    let head = vec![(x, y), (x - 4, y - 6), (x + 4, y - 6)];
    root.draw(&Polygon::new(head, color.filled()))
}

/// Returns the cosine of each row with each other row, row by row: rows × rows numbers.
pub fn cosines<const N: usize>(rows: &Rows<N>) -> Vec<f32> {
    let directions = directions(rows);
    directions.clone().matmul(directions.permute::<_, Axes2<1, 0>>()).as_vec()
}

/// Returns each row divided by its length.
fn directions<const N: usize>(rows: &Rows<N>) -> Rows<N> {
    let lengths = rows.clone().square().sum::<(usize,), Axis<1>>().sqrt();
    rows.clone() / lengths.broadcast_like::<_, Axis<1>>(rows.shape())
}

/// Returns the `count` pieces whose rows in `table` (vocabulary, N) have the largest cosines with that of
/// `word`, with these cosines. Leaves out the word itself and special tokens; returns none if the vocabulary
/// lacks the word.
pub fn nearest<const N: usize>(
    table: &Rows<N>,
    tokenizer: &WordPiece,
    word: &str,
    count: usize,
) -> Vec<(String, f32)> {
    let Some(id) = tokenizer.id(word) else { return Vec::new() };
    let directions = directions(table);
    let own = directions.as_vec()[id as usize * N..][..N].to_vec();
    let own = Cpu::default().tensor_from_vec(own, (Const::<N>,));
    let own = own.broadcast_like::<_, Axis<0>>(directions.shape());
    let cosines = (directions * own).sum::<(usize,), Axis<1>>().as_vec();
    let others = (0u32..).zip(cosines);
    let others = others.filter(|(other, _)| *other != id && !tokenizer.special().contains(*other));
    let mut all: Vec<(String, f32)> = others
        .filter_map(|(other, cosine)| Some((tokenizer.token(other)?.to_owned(), cosine)))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(count);
    all
}

/// What happens in a stack of random layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// The number of the layer, from 1, and the root mean square of the numbers that it puts out.
    pub sizes: Vec<(f64, f64)>,
    /// The length of the gradient that reaches the input, for one of length 1 at the output.
    pub gradient: f64,
}

/// Sends 16 random vectors of 64 numbers through `depth` layers, each a product with a random matrix, with or
/// without a LayerNorm after it, and a random gradient back. Without LayerNorm a layer multiplies the size of
/// its input by about `gain`.
pub fn random_stack(depth: usize, gain: f32, normalised: bool) -> Stack {
    let dev = Cpu::seed_from_u64(2);
    let x: Tensor<Rank2<16, 64>, f32, Cpu> = dev.sample_normal();
    let sent: Tensor<Rank2<16, 64>, f32, Cpu> = dev.sample_normal();
    let length = |numbers: &[f32]| {
        let squares = numbers.iter().map(|&n| f64::from(n).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let mut h = x.leaky_trace();
    let mut sizes = Vec::new();
    for layer in 1..=depth {
        let weights: Tensor<Rank2<64, 64>, f32, Cpu> = dev.sample_normal();
        h = h.matmul(weights * (gain / 8.0));
        if normalised {
            h = h.normalize::<Axis<1>>(1e-12);
        }
        let numbers = h.as_vec();
        sizes.push((layer as f64, length(&numbers) / (numbers.len() as f64).sqrt()));
    }
    let arrived = (h * sent.clone()).sum::<Rank0, _>().backward();
    let gradient = length(&arrived.get(&x).as_vec()) / length(&sent.as_vec());
    Stack { sizes, gradient }
}

/// Returns a batch of sentences, each between `[CLS]` and `[SEP]`, all of segment 0. Of each no more than
/// `most` tokens are kept.
pub fn batch_of<S: AsRef<str>>(tokenizer: &WordPiece, sentences: &[S], most: usize) -> Packed {
    let mut batch = Packed::default();
    for (number, sentence) in (0..).zip(sentences) {
        let mut ids = tokenizer.encode_with_special(sentence.as_ref()).ids;
        ids.truncate(most);
        batch.push(number, &ids, &vec![0; ids.len()]);
    }
    batch
}

/// Returns the ids and the segments of each sequence of a batch.
pub fn sentences(batch: &Packed) -> Vec<(Vec<u32>, Vec<u32>)> {
    let of = |rows: Range<usize>| (batch.ids[rows.clone()].to_vec(), batch.segments[rows].to_vec());
    batch.ranges().map(of).collect()
}

/// Returns the padding mask of a batch, (B, S): 0 at its tokens, -1e9 behind the end of each sentence.
pub fn padding_mask(batch: &Packed) -> Grid {
    let shape = (batch.sequences(), batch.longest());
    let mut mask = vec![-1e9; shape.0 * shape.1];
    for (number, range) in batch.ranges().enumerate() {
        mask[number * shape.1..][..range.len()].fill(0.0);
    }
    Cpu::default().tensor_from_vec(mask, shape)
}

fn pass<'a>(batch: &'a Packed, config: &'a Config, mask: Option<&Grid>) -> Pass<'a, f32, Cpu> {
    Pass { batch, config, dropout: None, mask: mask.cloned(), future: None }
}

/// Returns what the model's embedding module makes of a batch, (B, S, H), without dropout.
pub fn embedded<const H: usize, const A: usize, const K: usize, const I: usize>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    batch: &Packed,
) -> Batch<H> {
    bert.embeddings.forward::<NoneTape>(&pass(batch, &bert.config, None))
}

/// Returns what the attention of layer `layer` makes of `x`, (B, S, H), without dropout; `mask` as in
/// [`padding_mask`].
///
/// # Panics
/// If there is no such layer.
pub fn attended<const H: usize, const A: usize, const K: usize, const I: usize>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    layer: usize,
    batch: &Packed,
    x: &Batch<H>,
    mask: Option<&Grid>,
) -> Batch<H> {
    let pass = pass(batch, &bert.config, mask);
    bert.layers[layer].attention.forward::<NoneTape>(x.clone(), layer as u32, &pass)
}

/// Returns the tokens of one sentence, (1, S, H), from the last to the first.
///
/// # Panics
/// If there are several sentences.
pub fn reversed<const H: usize>(x: &Batch<H>) -> Batch<H> {
    let (sentences, tokens, _) = *x.shape();
    assert_eq!(sentences, 1, "one sentence, not {sentences}");
    let order: Vec<usize> = (0..tokens).rev().collect();
    let order = Cpu::default().tensor_from_vec(order, (tokens,));
    let rows: Rows<H> = x.clone().reshape_like(&(tokens, Const::<H>));
    rows.gather(order).reshape_like(&(1, tokens, Const::<H>))
}

/// Returns the mean weight that the best of 16 random keys gets from each of 64 random queries of size
/// `size`; the scores are divided by the root of `size` if they are `scaled`.
pub fn best_share(size: usize, scaled: bool) -> f64 {
    let dev = Cpu::seed_from_u64(size as u64);
    let queries: Grid = dev.sample_normal_like(&(64, size));
    let keys: Grid = dev.sample_normal_like(&(size, 16));
    let divisor = if scaled { (size as f32).sqrt() } else { 1.0 };
    let weights: Grid = (queries.matmul(keys) / divisor).softmax::<Axis<1>>();
    let best = weights.max::<(usize,), Axis<1>>();
    f64::from(best.mean::<Rank0, Axis<0>>().array())
}

/// Where a token can look, for [`where_heads_look`].
pub const PLACES: [&str; 6] =
    ["itself", "the one before", "the one after", "[CLS]", "[SEP]", "others"];

/// Returns for each head of the model, layer by layer, the mean weights that tokens of the texts give to each
/// of the [`PLACES`], in that order: six numbers a head, whose sum is 1. Rows of `[CLS]` and `[SEP]` are not
/// counted; texts are cut to the model's number of positions.
pub fn where_heads_look<
    S: AsRef<str>,
    const H: usize,
    const A: usize,
    const K: usize,
    const I: usize,
>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    tokenizer: &WordPiece,
    texts: &[S],
) -> Vec<f32> {
    let batch = batch_of(tokenizer, texts, bert.config.max_position_embeddings);
    let heads = bert.layers.len() * A;
    let mut shares = vec![0.0; heads * PLACES.len()];
    let mut readers = 0;
    for seen in bert.attention(&batch) {
        let tokens = seen.tokens;
        for (head, sums) in shares.chunks_mut(PLACES.len()).enumerate() {
            add_shares(seen.weights(head / A, head % A), tokens, sums);
        }
        readers += tokens.saturating_sub(2);
    }
    shares.iter().map(|share| share / readers as f32).collect()
}

/// Adds the weights of one sentence, (tokens, tokens), to the sums of the [`PLACES`].
fn add_shares(weights: &[f32], tokens: usize, sums: &mut [f32]) {
    for i in 1..tokens.saturating_sub(1) {
        for (j, weight) in weights[i * tokens..][..tokens].iter().enumerate() {
            let place = match j {
                j if j == i => 0,
                0 => 3,
                j if j == tokens - 1 => 4,
                j if j + 1 == i => 1,
                j if j == i + 1 => 2,
                _ => 5,
            };
            sums[place] += weight;
        }
    }
}

/// Measures how long one head of size 64 takes for `tokens` tokens on the CPU: the least of three runs, in
/// seconds.
pub fn head_seconds(tokens: usize) -> f64 {
    let dev = Cpu::seed_from_u64(1);
    let q: Grid = dev.sample_normal_like(&(tokens, 64));
    let k: Grid = dev.sample_normal_like(&(64, tokens));
    let v: Grid = dev.sample_normal_like(&(tokens, 64));
    let once = || {
        let begun = Instant::now();
        let weights = (q.clone().matmul(k.clone()) / 8.0).softmax::<Axis<1>>();
        std::hint::black_box(weights.matmul(v.clone()));
        begun.elapsed().as_secs_f64()
    };
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons::data;
    use crate::model::weights::Model;

    /// The example of lesson 04, with `it` as the reader.
    fn reader() -> Reader {
        Reader::new(
            &["dog", "ran", "it"],
            &[[2.0, 0.0], [0.0, 1.0], [0.0, 2.0]],
            [&[[0.0, 0.0], [1.0, 0.0]], &[[1.0, 0.0], [0.0, 1.0]], &[[0.0, 5.0], [5.0, 0.0]]],
            2,
        )
    }

    #[test]
    fn a_reader_takes_the_numbers_that_the_lesson_computes_by_hand() {
        let it = reader();
        assert_eq!(it.scores(), [4.0, 0.0, 0.0]);
        let weights = it.weights().map(|w| format!("{w:.3}"));
        assert_eq!(weights, ["0.894", "0.053", "0.053"]);
        assert_eq!(pair(it.output()), "(0.79, 8.94)");
        assert!(it.text().contains("q = (2, 0)") && it.text().contains("the sum is (0.79, 8.94)"));
        let svg = it.svg();
        assert!(svg.contains("(0, 8.94)") && svg.contains("0.894"), "{svg}");
    }

    #[test]
    fn numbers_have_up_to_two_decimals() {
        assert_eq!([2.0, 2.828, 0.1, -0.001, 10.0].map(short), ["2", "2.83", "0.1", "0", "10"]);
    }

    #[test]
    fn cosines_are_those_of_the_angles() {
        let dev = Cpu::default();
        let rows: Rows<2> = dev.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]]).realize();
        let half = 0.5f32.sqrt();
        for (a, b) in cosines(&rows).iter().zip([1., 0., half, 0., 1., half, half, half, 1.]) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn a_stack_with_layer_norm_keeps_sizes_and_gradients() {
        for gain in [0.8, 1.25] {
            let bare = random_stack(24, gain, false);
            let expected = f64::from(gain).powi(24);
            for size in [bare.sizes[23].1, bare.gradient] {
                assert!((0.2..5.0).contains(&(size / expected)), "{size} {expected}");
            }
            let normalised = random_stack(24, gain, true);
            assert!((normalised.sizes[23].1 - 1.0).abs() < 1e-3);
            assert!((0.1..10.0).contains(&normalised.gradient), "{}", normalised.gradient);
        }
    }

    #[test]
    fn shares_are_counted_by_place() {
        // [CLS] a b [SEP]: row a looks at itself, row b at each by a quarter.
        let mut weights = vec![0.0; 16];
        weights[4 + 1] = 1.0;
        weights[8..12].fill(0.25);
        let mut sums = [0.0; 6];
        add_shares(&weights, 4, &mut sums);
        assert_eq!(sums, [1.25, 0.25, 0.0, 0.25, 0.25, 0.0]);
    }

    #[test]
    fn a_smaller_head_without_scaling_is_less_certain() {
        assert!(best_share(2, false) < best_share(64, false));
        assert!((best_share(16, true) - best_share(256, true)).abs() < 0.1);
        assert!(head_seconds(8) > 0.0);
    }

    #[test]
    fn the_crate_s_modules_are_called_as_in_a_forward_pass() {
        let folder = data::folder(data::TINY).unwrap();
        let model = Model::read_all(&folder).unwrap();
        let tokenizer = WordPiece::from_file(&WordPiece::file_in(&folder), None).unwrap();
        let bert: Bert<128, 2, 64, 512, f32, Cpu> =
            Bert::build(&model.config, &model.layout, &model.values, &Cpu::default()).unwrap();
        let near = nearest(&bert.embeddings.words, &tokenizer, "three", 3);
        assert_eq!(near.len(), 3);
        assert!(near[0].1 >= near[1].1 && near.iter().all(|(piece, _)| piece != "three"));
        assert!(nearest(&bert.embeddings.words, &tokenizer, "no such word", 3).is_empty());

        let batch = batch_of(&tokenizer, &["It rained all day.", "Never!"], 5);
        assert_eq!((batch.sequences(), batch.longest()), (2, 5));
        let mask = padding_mask(&batch);
        assert_eq!(mask.as_vec(), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1e9]);
        let x = embedded(&bert, &batch);
        let masked = attended(&bert, 0, &batch, &x, Some(&mask));
        let alone = batch_of(&tokenizer, &["Never!"], 5);
        let y = embedded(&bert, &alone);
        let y = attended(&bert, 0, &alone, &y, None);
        let (masked, y) = (masked.as_vec(), y.as_vec());
        let apart = masked[5 * 128..].iter().zip(&y).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-5);
        let back = reversed(&reversed(&embedded(&bert, &alone)));
        assert_eq!(back.as_vec(), embedded(&bert, &alone).as_vec());

        let shares = where_heads_look(&bert, &tokenizer, &["The old man opened the door."]);
        assert_eq!(shares.len(), 4 * PLACES.len());
        for head in shares.chunks(PLACES.len()) {
            assert!((head.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
    }
}
