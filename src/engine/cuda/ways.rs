//! Ways of computing that are newer than the engine's first ones. Each can be switched off, so that one run on a GPU
//! compares the two.

use std::str::FromStr;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::note;

/// The variable that names what is switched off, separated by commas.
const VARIABLE: &str = "CLOZE_CUDA_WITHOUT";

/// What is switched on: everything, unless CLOZE_CUDA_WITHOUT names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ways {
    /// Products in 16 bits add their bias themselves, from the working copy of the parameters; otherwise a kernel adds
    /// it in f32 afterwards. `bias`.
    pub bias: bool,
    /// The algorithm of a product is the fastest of several that are measured, and is kept for later runs; otherwise
    /// it is the first that cuBLASLt suggests. `algorithms`.
    pub algorithms: bool,
    /// Ragged batches are filled up to sizes that many share, so that their steps are recorded and replayed. `buckets`.
    pub buckets: bool,
}

impl Ways {
    /// Everything is switched on.
    pub const ALL: Self = Self { bias: true, algorithms: true, buckets: true };

    /// Returns those of this process. A name that is not known is reported once, and changes nothing.
    pub fn of_process() -> Self {
        static KNOWN: OnceLock<Ways> = OnceLock::new();
        *KNOWN.get_or_init(|| {
            let names = std::env::var(VARIABLE).unwrap_or_default();
            names.parse().unwrap_or_else(|error| {
                note!("{error}");
                Self::ALL
            })
        })
    }
}

impl FromStr for Ways {
    type Err = Error;

    fn from_str(names: &str) -> Result<Self> {
        let mut ways = Self::ALL;
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "bias" => ways.bias = false,
                "algorithms" => ways.algorithms = false,
                "buckets" => ways.buckets = false,
                _ => {
                    return Err(Error::Usage(format!(
                        "{VARIABLE}: {name:?} is unknown: expected bias, algorithms or buckets"
                    )));
                }
            }
        }
        Ok(ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_switched_off() {
        assert_eq!("".parse::<Ways>().unwrap(), Ways::ALL);
        let one: Ways = "bias".parse().unwrap();
        assert_eq!(one, Ways { bias: false, ..Ways::ALL });
        assert_eq!("algorithms, bias".parse::<Ways>().unwrap(), Ways { algorithms: false, ..one });
        let error = "bias,speed".parse::<Ways>().unwrap_err().to_string();
        assert_eq!(
            error,
            "CLOZE_CUDA_WITHOUT: \"speed\" is unknown: expected bias, algorithms or buckets"
        );
    }
}
