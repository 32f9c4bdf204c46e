//! The attention of a model as a web page: bertviz's three views (Vig, "A multiscale visualization of
//! attention in the transformer model", arXiv 1906.05714), drawn by our own script.
//!
//! The page is a single file that needs no network. It contains the model's queries and keys, 16 bits a
//! number; the weights are computed from them when they are drawn, so that the page grows with the text
//! and not with its square.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::display::{Content, Show};
use super::document::{Document, framed};
use crate::data::Packed;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::model::SequenceAttention;
use crate::text::WordPiece;

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 6] = [
    include_str!("numbers.js"),
    include_str!("shell.js"),
    include_str!("columns.js"),
    include_str!("head.js"),
    include_str!("model.js"),
    include_str!("neuron.js"),
];

/// Height of the frame in a notebook, in CSS pixels, until the page has measured itself: that of the
/// controls, of a row for each token, and at most.
const FRAME: (usize, usize, usize) = (360, 26, 760);

/// A view of the page. Every page has all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum View {
    /// The heads of a layer as lines between two columns of tokens.
    #[default]
    Head,
    /// Every head of every layer as a small picture.
    Model,
    /// How a head computes its weights, number by number.
    Neuron,
}

/// The attention of a model in a text or a pair of texts, as a web page.
///
/// As the last expression of a notebook's cell it is shown in a frame; a notebook may have several.
#[derive(Debug, Clone)]
pub struct AttentionView {
    attention: SequenceAttention,
    tokens: Vec<String>,
    /// For each token 0 if it is from the first text, 1 if it is from the second.
    segments: Vec<u32>,
    texts: (String, Option<String>),
    model: String,
    view: View,
    /// The layers in the page, counted from 0.
    layers: Vec<usize>,
}

impl AttentionView {
    /// Computes the attention of an engine's model in `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`.
    ///
    /// # Errors
    /// If a text has no tokens or too many for the model.
    pub fn of(
        engine: &mut dyn Engine,
        wordpiece: &WordPiece,
        a: &str,
        b: Option<&str>,
    ) -> Result<Self> {
        for (which, text) in [("first", Some(a)), ("second", b)] {
            if text.is_some_and(|text| wordpiece.encode(text).is_empty()) {
                return Err(Error::Usage(format!(
                    "the {which} text has no tokens: attention needs something to look at"
                )));
            }
        }
        let (encoding, segments) = match b {
            Some(b) => wordpiece.encode_pair(a, b),
            None => {
                let encoding = wordpiece.encode_with_special(a);
                let segments = vec![0; encoding.len()];
                (encoding, segments)
            }
        };
        let mut batch = Packed::default();
        batch.push(0, &encoding.ids, &segments);
        let attention = engine.attention(&batch)?.swap_remove(0);
        let mut view = Self::new(attention, &encoding.tokens, &segments)?;
        view.texts = (a.to_owned(), b.map(str::to_owned));
        Ok(view)
    }

    /// Creates a view of attention between `tokens` with their segments, 0 and 1.
    ///
    /// # Errors
    /// If there is not one token and one segment for each row, or a number is not finite.
    pub fn new<S: ToString>(
        attention: SequenceAttention,
        tokens: &[S],
        segments: &[u32],
    ) -> Result<Self> {
        if [tokens.len(), segments.len()] != [attention.tokens; 2] {
            return Err(Error::Failed(format!(
                "{} tokens and {} segments do not fit attention between {} tokens",
                tokens.len(),
                segments.len(),
                attention.tokens
            )));
        }
        for (number, layer) in attention.layers.iter().enumerate() {
            let all = layer.queries.iter().chain(&layer.keys);
            if !all.chain(&layer.weights).all(|v| v.is_finite()) {
                return Err(Error::Failed(format!(
                    "the attention of layer {number} is not finite: the model's parameters are broken"
                )));
            }
        }
        Ok(Self {
            layers: (0..attention.layers.len()).collect(),
            attention,
            tokens: tokens.iter().map(S::to_string).collect(),
            segments: segments.to_vec(),
            texts: Default::default(),
            model: String::new(),
            view: View::default(),
        })
    }

    /// Sets the model's name on the page.
    pub fn named(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the initial view of the page.
    pub fn opened_with(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// Keeps only these layers, counted from 0; layers that the model doesn't have are ignored.
    pub fn layers(mut self, layers: std::ops::RangeInclusive<usize>) -> Self {
        self.layers.retain(|layer| layers.contains(layer));
        self
    }

    /// Returns the numbers of the page.
    pub fn attention(&self) -> &SequenceAttention {
        &self.attention
    }

    /// Returns the tokens, including special ones.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Returns for each token 0 if it is from the first text, 1 if it is from the second.
    pub fn segments(&self) -> &[u32] {
        &self.segments
    }

    /// Returns the page, a complete HTML document.
    pub fn page(&self) -> String {
        let (a, b) = &self.texts;
        let title = match b {
            Some(b) => format!("Attention: {a} {b}"),
            None => format!("Attention: {a}"),
        };
        let title = title.trim_end_matches([':', ' ']);
        Document { title, body: BODY, style: STYLE, scripts: &SCRIPTS, data: self.data() }.html()
    }

    /// Returns the numbers for the script.
    fn data(&self) -> Value {
        let found = &self.attention;
        let (mut scales, mut vectors) = (Vec::new(), Vec::new());
        for &layer in &self.layers {
            let layer = &found.layers[layer];
            for all in [&layer.queries, &layer.keys] {
                for vector in all.chunks_exact(found.head_size) {
                    let (scale, numbers) = quantised(vector);
                    scales.extend(scale.to_le_bytes());
                    vectors.extend(numbers.into_iter().flat_map(i16::to_le_bytes));
                }
            }
        }
        let (a, b) = &self.texts;
        json!({
            "model": self.model,
            "a": a,
            "b": b,
            "view": format!("{:?}", self.view).to_lowercase(),
            "tokens": self.tokens,
            // The first token of the second text.
            "second": self.segments.iter().position(|&segment| segment != 0),
            "layers": self.layers,
            "heads": found.heads,
            "size": found.head_size,
            "scales": BASE64_STANDARD.encode(scales),
            "vectors": BASE64_STANDARD.encode(vectors),
        })
    }

    /// Writes the page to a file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write_atomic(path.as_ref(), self.page().as_bytes())
    }
}

/// Quantises a vector to whole numbers of 16 bits; returns their factor and them. The error is at most
/// 1/65,534 of the largest number.
fn quantised(vector: &[f32]) -> (f32, Vec<i16>) {
    let largest = vector.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let scale = largest / f32::from(i16::MAX);
    if scale == 0.0 {
        return (0.0, vec![0; vector.len()]);
    }
    // At most i16::MAX in size, because of the division by the largest.
    let numbers = vector.iter().map(|v| (v / scale).round() as i16).collect();
    (scale, numbers)
}

impl Show for AttentionView {
    /// Returns the page in a frame, so that several pages in one notebook don't interfere.
    fn content(&self) -> Content {
        let (controls, row, most) = FRAME;
        let height = (controls + row * self.tokens.len()).min(most);
        let text = format!(
            "attention of {} layers of {} heads over {} tokens: {}\n\
             (a notebook shows it; `.save(\"view.html\")` writes the page for a browser)",
            self.layers.len(),
            self.attention.heads,
            self.tokens.len(),
            self.tokens.join(" ")
        );
        framed("Attention", &self.page(), height, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LayerAttention;

    /// Three layers of two heads of size 3 over four tokens.
    fn view(tokens: &[&str; 4]) -> AttentionView {
        let numbers = |from: usize| -> Vec<f32> {
            let count = 2 * 4 * 3;
            (from..from + count).map(|i| (i as f32 * 0.7).sin() * 3.0).collect()
        };
        let layer = LayerAttention {
            queries: numbers(0),
            keys: numbers(40),
            weights: vec![0.25; 2 * 4 * 4],
        };
        let attention = SequenceAttention {
            tokens: 4,
            heads: 2,
            head_size: 3,
            layers: vec![layer; 3],
            hidden: Vec::new(),
        };
        AttentionView::new(attention, tokens, &[0, 0, 1, 1]).unwrap()
    }

    fn data(page: &str) -> serde_json::Value {
        let (_, after) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(after.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn a_text_cannot_inject_markup() {
        let wicked = "</script><script>alert(1)</script>{{style}}\u{2028}\"&";
        let mut view = view(&["[CLS]", wicked, "<!--", "[SEP]"]);
        view.texts = (wicked.into(), Some("<b>".into()));
        let page = view.page();
        // Only the data's element and the page's own script.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("alert(1)</script>") && !page.contains("<b>"));
        let data = data(&page);
        assert_eq!(data["tokens"][1], wicked);
        assert_eq!((&data["a"], &data["b"]), (&wicked.into(), &"<b>".into()));
    }

    #[test]
    fn everything_is_in_the_file_and_the_policy_allows_nothing_else() {
        let page = view(&["[CLS]", "a", "b", "[SEP]"]).page();
        for outside in ["http:", "https:", "src=", "url(", "@import", "import("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("onclick="));
        assert!(page.contains("default-src 'none'; ") && page.contains("; script-src 'sha256-"));
        assert!(!page.contains("{{") && !page.contains("unsafe"));
    }

    #[test]
    fn vectors_are_preserved_nearly_exactly() {
        let view = view(&["[CLS]", "a", "b", "[SEP]"]).layers(1..=9);
        let data = data(&view.page());
        assert_eq!(data["layers"], json!([1, 2]));
        assert_eq!(data["second"], 2);
        let bytes = |key: &str| BASE64_STANDARD.decode(data[key].as_str().unwrap()).unwrap();
        let (scales, vectors) = (bytes("scales"), bytes("vectors"));
        let scales = scales.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
        let vectors = vectors.as_chunks().0.iter().map(|&b| i16::from_le_bytes(b));
        let vectors: Vec<i16> = vectors.collect();
        let layer = &view.attention.layers[1];
        let expected: Vec<f32> = [&layer.queries[..], &layer.keys].concat().repeat(2);
        assert_eq!((scales.len(), vectors.len()), (32, expected.len()));
        let found = scales
            .zip(vectors.chunks(3))
            .flat_map(|(scale, v)| v.iter().map(move |&v| f32::from(v) * scale));
        for (found, expected) in found.zip(expected) {
            assert!((found - expected).abs() < 3.0 / 65_000.0);
        }
        assert_eq!(quantised(&[0.0, 0.0]), (0.0, vec![0, 0]));
    }

    #[test]
    fn wrong_sizes_and_numbers_that_are_not_finite_are_refused() {
        let good = view(&["[CLS]", "a", "b", "[SEP]"]).attention;
        let error = |attention: &SequenceAttention, tokens: &[&str]| {
            let made = AttentionView::new(attention.clone(), tokens, &[0; 4]);
            made.unwrap_err().to_string()
        };
        assert!(error(&good, &["a"]).contains("1 tokens and 4 segments"));
        let mut broken = good;
        broken.layers[2].keys[5] = f32::NAN;
        assert!(error(&broken, &["a"; 4]).contains("layer 2 is not finite"));
    }

    #[test]
    fn a_notebook_gets_a_frame_and_a_terminal_the_tokens() {
        let content = view(&["[CLS]", "<i>", "b", "[SEP]"]).content();
        let html = content.get("text/html").unwrap();
        assert!(html.starts_with("<iframe") && html.ends_with("></iframe>"));
        assert_eq!(html.matches('<').count(), 2);
        let expected = "3 layers of 2 heads over 4 tokens: [CLS] <i> b";
        assert!(content.plain().contains(expected));
    }
}
