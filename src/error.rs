//! The error type of the crate: a sentence that names the file, line or argument at fault.

use std::path::{Path, PathBuf};

/// The result of every fallible function of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error, worded for the person who has to fix its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system failed to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The content of a file is not as expected.
    #[error("{}: {message}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The content of a line of a file is not as expected.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// An argument or a combination of arguments is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The work itself failed: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Creates an operating-system error about `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), source }
    }

    /// Creates an error about the content of a file.
    pub fn file(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::File { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// Creates an error about one line of a file; `line` counts from 1.
    pub fn line(path: impl AsRef<Path>, line: usize, message: impl Into<String>) -> Self {
        Self::Line { path: path.as_ref().to_path_buf(), line, message: message.into() }
    }

    /// Returns the exit code of the `cloze` command: 2 for wrong usage, 1 for failed work.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
