//! Checks of options' values.

use std::fmt::Display;
use std::path::Path;

use clap::ValueEnum;

use crate::error::Result;

/// Returns from the function with an error about the command line.
macro_rules! refuse {
    ($($text:tt)*) => {
        return Err($crate::error::Error::Usage(format!($($text)*)))
    };
}
pub(in crate::cli) use refuse;

/// Returns an error if a value is 0.
pub(crate) fn at_least_one<'n>(values: impl IntoIterator<Item = (&'n str, u64)>) -> Result<()> {
    let mut values = values.into_iter();
    values.try_for_each(|(name, value)| require(name, value, value > 0, "at least 1"))
}

/// Returns an error unless the value is positive and finite.
pub(crate) fn positive(name: &str, value: f64) -> Result<()> {
    let fits = value > 0.0 && value.is_finite();
    require(name, value, fits, "a positive number")
}

/// Returns an error if the value is negative or not finite.
pub(crate) fn from_zero(name: &str, value: f64) -> Result<()> {
    let fits = value >= 0.0 && value.is_finite();
    require(name, value, fits, "a number of at least 0")
}

/// Returns an error unless the value is from 0 to below 1.
pub(crate) fn share(name: &str, value: f64) -> Result<()> {
    let fits = (0.0..1.0).contains(&value);
    require(name, value, fits, "a number from 0 to below 1")
}

/// Returns an error that says what the option needs, unless its value `fits`.
pub(crate) fn require(name: &str, value: impl Display, fits: bool, what: &str) -> Result<()> {
    if !fits {
        refuse!("{name} {value}: {what} is needed");
    }
    Ok(())
}

/// Returns an error if a model has fewer positions than sequences have tokens.
pub(crate) fn positions(name: &str, tokens: usize, positions: usize) -> Result<()> {
    if tokens > positions {
        refuse!("{name} {tokens}: the model has only {positions} positions");
    }
    Ok(())
}

/// Returns whether both paths lead to the same file or folder. What does not exist yet is never the same.
pub(crate) fn same_place(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    whole(a).is_some_and(|a| whole(b) == Some(a))
}

/// Returns an error if the file `out` of the option `name` is one of these inputs, each with its option: it would
/// be lost.
pub(crate) fn not_an_input<'p>(
    name: &str,
    out: &Path,
    inputs: impl IntoIterator<Item = (&'p str, &'p Path)>,
) -> Result<()> {
    let mut inputs = inputs.into_iter();
    if let Some((input, _)) = inputs.find(|(_, path)| same_place(out, path)) {
        let out = out.display();
        refuse!("{name} {out}: is a file of {input}, which would be lost; expected another path");
    }
    Ok(())
}

/// Returns an option's value as it is written on the command line.
pub(crate) fn option_name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_not_overwritten_by_whatever_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("deep")).unwrap();
        std::fs::write(path("a"), "text").unwrap();
        let (a, b) = (path("a"), path("b"));
        let check = |out: &Path| not_an_input("--out", out, [("--data", &*b), ("--text", &*a)]);
        assert!(check(&b).is_ok() && check(&path("c")).is_ok());
        let message = check(&path("deep/../a")).unwrap_err().to_string();
        assert!(message.contains("a: is a file of --text, which would be lost"), "{message}");
    }

    #[test]
    fn limits_are_as_the_messages_say() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let message = positive("--lr", value).unwrap_err().to_string();
            assert_eq!(message, format!("--lr {value}: a positive number is needed"));
        }
        assert!(at_least_one([("--batch", 1)]).is_ok() && at_least_one([("--batch", 0)]).is_err());
        assert!(positive("--lr", 1e-9).is_ok());
        for (value, at_least_zero, is_share) in [
            (0.0, true, true),
            (0.999, true, true),
            (1.0, true, false),
            (-1e-9, false, false),
            (f64::NAN, false, false),
        ] {
            assert_eq!(from_zero("--weight-decay", value).is_ok(), at_least_zero);
            assert_eq!(share("--dropout", value).is_ok(), is_share);
        }
    }
}
