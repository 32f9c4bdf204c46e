//! What comes over the network: checksums, progress, and faults in words, for models of the Hub and
//! for data sets.

mod digest;
mod fetch;
mod progress;
mod unpack;

pub use digest::{Digest, of_file};
pub use fetch::{Wanted, fetch, is_address};
pub use progress::TransferBar;
pub use unpack::{Archive, unpack};

/// A transfer is taken up again as long as it gets on; after so many attempts in a row that brought
/// nothing it is given up.
pub const FRUITLESS: u64 = 3;

/// What went wrong with a request, for the end of a sentence.
pub fn told(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(code) => format!("the server answered with status {code}"),
        ureq::Error::HostNotFound => "the name of the server is not known here".into(),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Whether the request failed before there was an answer.
pub fn unreachable(error: &ureq::Error) -> bool {
    matches!(
        error,
        ureq::Error::Io(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(_)
    )
}
