//! How many floating-point operations a training step costs.

use super::Config;

/// Share of the tokens that are masked, at which alone the masked-LM head works (Devlin et al.,
/// section 3.1).
const MASKED: f64 = 0.15;

/// Floating-point operations that the model's matrix products make of a token in a training step,
/// forward and backward, without those of a head: six for every weight of the layers, and the
/// attention's. What dropout, LayerNorms and the optimizer cost is not counted.
pub fn flops_per_token(config: &Config, length: usize) -> f64 {
    let (l, h, i) = (
        config.num_hidden_layers as f64,
        config.hidden_size as f64,
        config.intermediate_size as f64,
    );
    6.0 * l * (4.0 * h * h + 2.0 * h * i) + 12.0 * l * h * length as f64
}

/// Returns the same for the masked-LM head, averaged over all tokens.
pub fn head_flops_per_token(config: &Config) -> f64 {
    let (h, v) = (config.hidden_size as f64, config.vocab_size as f64);
    MASKED * 6.0 * (h * h + h * v)
}
