//! The named model sizes: Google's miniatures, MiniLM, base and large.

use crate::error::{Error, Result};

use super::Config;

/// A named model size. Sources: google-research/bert's README (miniatures), the BERT paper, section
/// 3 (base, large), and all-MiniLM-L6 (minilm).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 2 layers, hidden size 128.
    Tiny,
    /// 4 layers, hidden size 256.
    Mini,
    /// 4 layers, hidden size 512.
    Small,
    /// 8 layers, hidden size 512.
    Medium,
    /// 6 layers, hidden size 384.
    Minilm,
    /// 12 layers, hidden size 768.
    Base,
    /// 24 layers, hidden size 1024.
    Large,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Self; 7] =
        [Self::Tiny, Self::Mini, Self::Small, Self::Medium, Self::Minilm, Self::Base, Self::Large];

    /// Returns the name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Mini => "mini",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Minilm => "minilm",
            Self::Base => "base",
            Self::Large => "large",
        }
    }

    /// Returns (layers, hidden size, heads, intermediate size).
    pub fn dimensions(self) -> (usize, usize, usize, usize) {
        match self {
            Self::Tiny => (2, 128, 2, 512),
            Self::Mini => (4, 256, 4, 1024),
            Self::Small => (4, 512, 8, 2048),
            Self::Medium => (8, 512, 8, 2048),
            Self::Minilm => (6, 384, 12, 1536),
            Self::Base => (12, 768, 12, 3072),
            Self::Large => (24, 1024, 16, 4096),
        }
    }

    /// Returns the configuration of this size with the paper's other settings.
    pub fn config(self, vocab_size: usize) -> Config {
        let (layers, hidden, heads, intermediate) = self.dimensions();
        Config::new(layers, hidden, heads, intermediate, vocab_size)
    }
}

impl std::str::FromStr for Size {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|size| size.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|s| s.name()).collect();
            Error::Usage(format!(
                "unknown size {name:?}: expected one of {} or the path of a config.json",
                names.join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_again() {
        for size in Size::ALL {
            assert_eq!(size.name().parse::<Size>().unwrap(), size);
        }
        let error = "huge".parse::<Size>().unwrap_err().to_string();
        assert!(error.contains("tiny, mini"));
    }
}
