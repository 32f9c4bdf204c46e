//! The settings and the batch of a pass.

use crate::model::{Config, threshold};
use crate::random::Site;

use super::batch::DeviceBatch;
use super::device::{Address, Element};
use super::kernels::{Batch, Heads, SiteDropout};
use super::state::State;
use super::ways::Ways;

/// One pass over one batch.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub config: &'a Config,
    pub state: &'a State,
    pub device_batch: &'a DeviceBatch,
    /// Whether products in f32 may round their factors to TF32.
    pub tf32: bool,
    /// Whether dropout is applied.
    pub dropout: bool,
    pub ways: Ways,
}

impl<'a> Pass<'a> {
    /// Returns the number format of activations.
    pub fn element(self) -> Element {
        self.state.element
    }

    pub fn batch(self) -> &'a Batch {
        &self.device_batch.batch
    }

    pub fn rows(self) -> usize {
        self.device_batch.batch.rows as usize
    }

    pub fn sequences(self) -> usize {
        self.device_batch.batch.sequences as usize
    }

    pub fn width(self) -> u32 {
        self.config.hidden_size as u32
    }

    pub fn embedding_width(self) -> u32 {
        self.config.embedding_width() as u32
    }

    /// Returns the address of a parameter in f32.
    pub fn value(self, place: usize) -> Address {
        self.state.values.offset(4 * place as u64)
    }

    /// Returns the address of a parameter's gradient in f32.
    pub fn gradient(self, place: usize) -> Address {
        self.state.gradients.offset(4 * place as u64)
    }

    /// Returns the address of a parameter for products of `element`: the engine's, or f32.
    pub fn weight(self, place: usize, element: Element) -> Address {
        if element == Element::F32 {
            return self.value(place);
        }
        self.state.weights.offset(element.bytes() * place as u64)
    }

    /// Returns the dropout of hidden states at a site.
    pub fn hidden_dropout(self, site: Site) -> Option<SiteDropout> {
        self.site_dropout(site, self.config.dropout_at(site))
    }

    /// Returns the dropout of a layer's attention probabilities.
    pub fn attention_dropout(self, layer: u32) -> Option<SiteDropout> {
        let p = self.config.attention_probs_dropout_prob;
        self.site_dropout(Site::AttentionDropout(layer), p)
    }

    /// Returns the dropout at a site with this probability.
    pub fn site_dropout(self, site: Site, p: f64) -> Option<SiteDropout> {
        (self.dropout && p > 0.0).then(|| SiteDropout {
            state: self.device_batch.state,
            site: site.number(),
            threshold: threshold(p),
            scale: (1.0 / (1.0 - p)) as f32,
        })
    }

    pub fn heads(self) -> Heads {
        Heads { tf32: self.tf32, ..Heads::of(self.config) }
    }
}
