//! What comes over the network, for models of the Hub and for data sets: requests, transfers,
//! checksums, progress, and faults in words.

mod digest;
mod fetch;
mod http;
mod progress;
mod unpack;

pub use digest::{Digest, of_file};
pub use fetch::{Limits, Wanted, fetch, is_address};
pub use http::{STALL, Steady, ask, number, send};
pub use unpack::{Archive, unpack};

/// What went wrong with a request, for the end of a sentence.
pub fn describe(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(code) => format!("the server answered with status {code}"),
        ureq::Error::HostNotFound => "the name of the server is not known here".into(),
        ureq::Error::RequireHttpsOnly(address) => {
            format!("the server redirects from https to {address}, which is not encrypted")
        }
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
