//! The one error type of the crate: a sentence that names the file, line or argument at fault.

use std::path::{Path, PathBuf};

/// What every fallible function of the crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Anything that can go wrong, worded for the person who has to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing a file failed in the operating system.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file was read, but what it holds is not what was expected.
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    /// The same, where the line is known (counted from 1).
    #[error("{}:{line}: {message}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        message: String,
    },
    /// An argument or a combination of arguments is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The work itself failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// An operating-system error with the path that it concerns.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_path_buf(),
            source,
        }
    }

    /// A complaint about the contents of a file.
    pub fn file(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::File {
            path: path.as_ref().to_path_buf(),
            message: message.into(),
        }
    }

    /// A complaint about one line of a file; `line` counts from 1.
    pub fn line(path: impl AsRef<Path>, line: usize, message: impl Into<String>) -> Self {
        Self::Line {
            path: path.as_ref().to_path_buf(),
            line,
            message: message.into(),
        }
    }

    /// The exit code of the `cloze` command: 2 for wrong usage, 1 for failed work.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
