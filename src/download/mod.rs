//! Downloads of models from the Hub and of data sets, and uploads of models: requests, transfers,
//! checksums, progress and error messages.

mod bar;
mod digest;
mod fetch;
mod http;
mod unpack;
mod upload;

pub use bar::TransferBar;
pub use digest::{Digest, of_file};
pub use fetch::{Limits, Wanted, fetch, is_address};
pub use http::{STALL, Steady, ask, number, same_server, send};
pub use unpack::{Archive, unpack};
pub use upload::{Answer, upload, upload_part};

/// Describes the error of a request, as the end of a sentence.
pub fn describe(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(code) => format!("the server answered with status {code}"),
        ureq::Error::HostNotFound => "the name of the server can't be resolved".into(),
        ureq::Error::RequireHttpsOnly(address) => {
            format!("the server redirects from https to {address}, which is not encrypted")
        }
        other => other.to_string(),
    }
}

/// Returns whether a request failed before the server answered.
pub fn unreachable(error: &ureq::Error) -> bool {
    matches!(
        error,
        ureq::Error::Io(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(_)
    )
}
