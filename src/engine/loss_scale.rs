//! The loss scale for gradients in f16.

use serde::{Deserialize, Serialize};

/// The dynamic loss scale for f16: it multiplies gradients that are too small for the format into
/// its range; they are divided by it where they are used. It is halved if they overflow, and
/// doubled after a long time without overflow.
///
/// Source: NVIDIA's "Training with mixed precision" and PyTorch's `GradScaler`, after Micikevicius et
/// al., arXiv 1710.03740.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    scale: f64,
    /// Updates without overflow since the scale was changed.
    good: u32,
    /// Why the last update overflowed.
    #[serde(skip)]
    overflow: Option<String>,
}

impl LossScale {
    const FIRST: f64 = 65536.0;
    const LARGEST: f64 = 16_777_216.0;
    /// Updates without overflow before the scale is doubled.
    const PATIENCE: u32 = 2000;

    /// Returns the factor of the loss.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns why the last update was skipped, if because of the scale.
    pub fn overflow(&self) -> Option<&str> {
        self.overflow.as_deref()
    }

    /// Adjusts the scale after an update with gradients of norm `norm`.
    pub fn take(&mut self, norm: f64) {
        self.overflow = None;
        if norm.is_finite() {
            self.good += 1;
            if self.good == Self::PATIENCE {
                self.good = 0;
                self.scale = (2.0 * self.scale).min(Self::LARGEST);
            }
        } else {
            self.good = 0;
            // At 1 the gradients themselves are not finite.
            if self.scale > 1.0 {
                let old = self.scale;
                self.scale = old / 2.0;
                self.overflow = Some(format!(
                    "gradients left the range of f16 at a loss scale of {old}; now it is {}",
                    self.scale
                ));
            }
        }
    }
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: Self::FIRST, good: 0, overflow: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_follows_what_the_gradients_allow() {
        let mut scale = LossScale::default();
        scale.take(f64::INFINITY);
        assert_eq!((scale.scale, scale.good), (32768.0, 0));
        assert!(scale.overflow.as_ref().unwrap().contains("now it is 32768"));
        for _ in 0..LossScale::PATIENCE - 1 {
            scale.take(1.0);
        }
        assert_eq!((scale.scale, scale.overflow.clone()), (32768.0, None));
        scale.take(1.0);
        assert_eq!((scale.scale, scale.good), (65536.0, 0));
        for _ in 0..16 {
            scale.take(f64::NAN);
        }
        assert_eq!(scale.scale, 1.0);
        // The scale can't be halved further: the run itself diverged.
        scale.take(f64::NAN);
        assert_eq!((scale.scale, scale.overflow), (1.0, None));
    }

    #[test]
    fn a_stored_scale_is_restored() {
        let mut scale = LossScale::default();
        scale.take(f64::INFINITY);
        scale.take(1.0);
        let text = serde_json::to_string(&scale).unwrap();
        assert_eq!(serde_json::from_str::<LossScale>(&text).unwrap(), scale);
    }
}
