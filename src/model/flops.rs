//! Floating-point operations of a training step.

use super::Config;

/// Fraction of masked tokens, the only ones that the masked-LM head predicts (Devlin et al.,
/// section 3.1).
const MASKED: f64 = 0.15;

/// Returns the floating-point operations per token of a training step, forward and backward,
/// without a head: six per weight of the layers and of the embeddings' projection, plus attention. Dropout, LayerNorms and the
/// optimizer are not counted.
pub fn flops_per_token(config: &Config, length: usize) -> f64 {
    let (l, h, i) = (
        config.num_hidden_layers as f64,
        config.hidden_size as f64,
        config.intermediate_size as f64,
    );
    let projection = match config.projects_embeddings() {
        true => h * config.embedding_width() as f64,
        false => 0.0,
    };
    6.0 * (l * (4.0 * h * h + 2.0 * h * i) + projection) + 12.0 * l * h * length as f64
}

/// Returns the operations per token of the masked-LM head, averaged over all tokens.
pub fn head_flops_per_token(config: &Config) -> f64 {
    let (h, v) = (config.hidden_size as f64, config.vocab_size as f64);
    let e = config.embedding_width() as f64;
    MASKED * 6.0 * (h * e + e * v)
}
