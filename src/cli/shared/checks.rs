//! Checks of options' values.

use std::fmt::Display;

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

/// Returns an option's value as it is written on the command line.
pub(crate) fn option_name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
