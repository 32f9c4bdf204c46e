//! The algorithms that were measured to be the fastest for products, kept in the user's cache folder: later runs then
//! compute the same bits, and measure nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::lt::Algorithm;
use super::lt::description::{Description, Layout};
use crate::files;

/// Steps between two powers of two into which sizes are divided: shapes whose sizes lie in one step share an algorithm,
/// so that batches with ever new numbers of rows are not measured each time.
const STEPS: u64 = 8;

/// The choices for one GPU and one version of cuBLASLt, by shape.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// None if nothing is kept.
    file: Option<PathBuf>,
    known: BTreeMap<String, String>,
}

impl Choices {
    /// Reads the choices from a file; a damaged one counts as empty.
    pub fn read(file: Option<PathBuf>) -> Self {
        let mut choices = Self { file, known: BTreeMap::new() };
        choices.known = choices.stored();
        choices
    }

    fn stored(&self) -> BTreeMap<String, String> {
        let bytes = self.file.as_ref().and_then(|file| fs::read(file).ok());
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Returns the choice for shapes like this one.
    pub fn get(&self, description: &Description) -> Option<Algorithm> {
        Algorithm::parse(self.known.get(&step(description))?)
    }

    /// Keeps a choice. A file that can't be written costs time in later runs, but is no error.
    pub fn keep(&mut self, description: &Description, algorithm: &Algorithm) {
        self.known.insert(step(description), algorithm.to_string());
        if let Some(file) = &self.file {
            // Another process may have written others meanwhile.
            let mut all = self.stored();
            all.extend(self.known.clone());
            if let Ok(bytes) = serde_json::to_vec_pretty(&all) {
                let _ = files::replace(file, &bytes);
            }
        }
    }
}

/// Names the step in which a shape lies.
fn step(d: &Description) -> String {
    let size = |n: u64| n.next_multiple_of((n.next_power_of_two() / 2 / STEPS).max(1));
    let layout = |l: &Layout| format!("{:?} {}×{}", l.element, size(l.rows), size(l.columns));
    let flags = [d.left_transposed, d.right_transposed, d.tf32, d.bias].map(u8::from);
    let [left, right, result] = [&d.left, &d.right, &d.result].map(layout);
    format!("{left}, {right}, {result}, {flags:?}, {:?}", d.alignments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::device::{Address, Element, Epilogue, Matrix, Product};

    fn description(rows: usize) -> Description {
        let matrix = |rows, columns| Matrix::new(Address(256), Element::Bf16, rows, columns);
        let product = Product {
            a: matrix(rows, 768),
            b: matrix(3072, 768).t(),
            c: matrix(rows, 3072),
            alpha: 1.0,
            add: false,
            tf32: false,
            epilogue: Epilogue::Nothing,
        };
        Description::of(&product).unwrap()
    }

    #[test]
    fn shapes_of_nearly_as_many_rows_share_a_choice_that_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("products.json");
        let algorithm = Algorithm::parse(&"0123456789abcdef".repeat(8)).unwrap();
        let mut choices = Choices::read(Some(file.clone()));
        assert!(choices.get(&description(1000)).is_none());
        choices.keep(&description(1000), &algorithm);
        let again = Choices::read(Some(file.clone()));
        for (rows, known) in [(1000, true), (961, true), (1024, true), (960, false), (1025, false)]
        {
            let found = again.get(&description(rows)).map(|a| a.to_string());
            assert_eq!(found, known.then(|| algorithm.to_string()), "{rows}");
        }
        // Another process' choices stay.
        let mut other = Choices::read(None);
        other.file = Some(file.clone());
        other.keep(&description(5000), &algorithm);
        assert!(Choices::read(Some(file.clone())).get(&description(1000)).is_some());
        fs::write(&file, "{").unwrap();
        assert!(Choices::read(Some(file)).get(&description(1000)).is_none());
    }

    #[test]
    fn small_sizes_are_their_own_steps() {
        let steps: std::collections::HashSet<String> =
            (1..=16).map(|rows| step(&description(rows))).collect();
        assert_eq!(steps.len(), 16);
    }
}
