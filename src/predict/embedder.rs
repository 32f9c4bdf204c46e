//! Vectors of texts.

use std::path::Path;

use crate::data::Sequences;
use crate::error::Result;
use crate::features::{self, Advice, Combine, LayerRange, Pool, Settings};
use crate::model::Part;
use crate::text::WordPiece;

use super::loaded::{Loaded, Shared};
use super::{Builder, Open, loading};

/// A model that computes vectors of texts: similar texts have vectors in similar directions.
///
/// A sentence-transformers folder says how the vectors of a text's tokens become one, and whether it is scaled to
/// length 1. Of another model it is the mean of the last layer's vectors, not scaled. Longer texts are cut to the
/// [longest sequence](Builder::max_len).
///
/// ```
/// use cloze::Embedder;
///
/// let model = Embedder::load("cloze-small")?;
/// let vectors = model.embed(&["A cat sat on the mat.", "Interest rates rose."])?;
/// assert_eq!((vectors.len(), vectors[0].len()), (2, model.width()));
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct Embedder {
    model: Shared,
    settings: Settings,
}

loading!(Embedder);

impl Builder<Embedder> {
    /// Chooses the layers whose vectors are used, counted as in Python: 0 is after the embeddings, -1 the last one,
    /// and both ends are included. The default is the last.
    pub fn layers(mut self, layers: LayerRange) -> Self {
        self.vectors.layers = Some(layers);
        self
    }

    /// Chooses how the vectors of several layers become one. The default puts one after the other.
    pub fn combine(mut self, combine: Combine) -> Self {
        self.vectors.combine = Some(combine);
        self
    }

    /// Chooses how the vectors of tokens become that of their text. The default is what the folder says, else their
    /// mean.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.vectors.pool = Some(pool);
        self
    }

    /// Scales every vector to length 1, or leaves its length. The default is what the folder says, else to leave it.
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.vectors.normalize = Some(normalize);
        self
    }
}

impl Open for Embedder {
    fn open(folder: &Path, builder: &Builder<Self>) -> Result<Self> {
        let wanted = &builder.vectors;
        // A sentence-transformers folder's advice is about pooled vectors of the last layer.
        let advice = match wanted.pool {
            None => Advice::read(folder)?,
            Some(_) => Advice::read(folder).unwrap_or_default(),
        };
        let loaded = Loaded::read(folder, &[Part::Encoder], builder.setup)?;
        let model = Shared::new(loaded, advice.max_len, builder)?;
        let pool = wanted.pool.or(advice.pool).unwrap_or(Pool::Mean);
        let layers = wanted.layers.clone().unwrap_or(-1..=-1);
        let settings = Settings {
            layers: features::layers(layers, model.config.num_hidden_layers)?,
            combine: wanted.combine.unwrap_or(Combine::Concat),
            pool,
            normalize: wanted.normalize.unwrap_or(advice.normalize && pool != Pool::None),
        };
        Ok(Self { model, settings })
    }
}

impl Embedder {
    /// Returns how many numbers a vector has.
    pub fn width(&self) -> usize {
        self.settings.width(self.model.config.hidden_size)
    }

    /// Returns the vector of each text; with [`Pool::None`] the vectors of its tokens, one after the other.
    ///
    /// # Errors
    /// If the longest sequence leaves no room for text.
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let singles: Vec<_> = texts.iter().map(|&text| (text, None)).collect();
        Ok(self.vectors(&singles)?.1)
    }

    /// Returns the tokens and the vectors of texts or pairs of texts.
    pub(crate) fn vectors(
        &self,
        texts: &[(&str, Option<&str>)],
    ) -> Result<(Sequences, Vec<Vec<f32>>)> {
        let sequences = self.model.cut(texts)?;
        let vectors =
            self.model.run(|engine| features::embed(engine, &sequences, &self.settings))?;
        Ok((sequences, vectors))
    }

    /// Returns what is computed: the layers, and how their vectors become one.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the longest sequence in tokens, to which texts are cut.
    pub fn max_len(&self) -> usize {
        self.model.max_len
    }

    /// Returns the model's tokenizer.
    pub fn wordpiece(&self) -> &WordPiece {
        &self.model.wordpiece
    }
}
