//! Checks of options' values.

use std::path::Path;

use clap::ValueEnum;

use crate::error::{Error, Result};

/// Checks that the option `name` is not 0.
pub fn at_least_one(name: &str, value: u64) -> Result<()> {
    needed(name, 0, value > 0, "at least 1")
}

/// Checks that it is a positive number.
pub fn positive(name: &str, value: f64) -> Result<()> {
    let fits = value > 0.0 && value.is_finite();
    needed(name, value, fits, "a positive number")
}

/// Checks that it is a number from 0 on.
pub fn from_zero(name: &str, value: f64) -> Result<()> {
    let fits = value >= 0.0 && value.is_finite();
    needed(name, value, fits, "a number from 0 on")
}

/// Checks that it is a number from 0 to below 1.
pub fn share(name: &str, value: f64) -> Result<()> {
    let fits = (0.0..1.0).contains(&value);
    needed(name, value, fits, "a number from 0 to below 1")
}

/// Checks that `--out` is not the folder of the model to start from.
pub fn not_the_same(out: &Path, model: Option<&Path>) -> Result<()> {
    // A folder that does not exist yet holds no model.
    let whole = |folder: &Path| folder.canonicalize().ok();
    if whole(out).is_none() || model.and_then(whole) != whole(out) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--out {}: that is the model to start from, which would be lost: give another folder",
        out.display()
    )))
}

fn needed(name: &str, value: impl std::fmt::Display, fits: bool, what: &str) -> Result<()> {
    match fits {
        true => Ok(()),
        false => Err(Error::Usage(format!("{name} {value}: {what} is needed"))),
    }
}

/// Returns the name of an option's value on the command line.
pub fn option_name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_where_the_sentences_say() {
        assert!(at_least_one("--batch", 1).is_ok());
        let message = |result: Result<()>| result.unwrap_err().to_string();
        assert_eq!(message(at_least_one("--batch", 0)), "--batch 0: at least 1 is needed");
        assert!(positive("--lr", 1e-9).is_ok());
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(message(positive("--lr", value)).ends_with("a positive number is needed"));
        }
        assert!(from_zero("--weight-decay", 0.0).is_ok());
        assert!(from_zero("--weight-decay", -1e-9).is_err());
        assert!(from_zero("--weight-decay", f64::NAN).is_err());
        assert!(share("--dropout", 0.0).is_ok());
        assert!(share("--dropout", 0.999).is_ok());
        for value in [1.0, -0.1, f64::NAN] {
            assert!(share("--dropout", value).is_err());
        }
    }
}
