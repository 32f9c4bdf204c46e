//! Finds the other programs of Cloze, which some subcommands run.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Returns the path of a program that lies beside this one or on PATH.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.to_path_buf()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.into_iter().chain(std::env::split_paths(&path));
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()));
    found.ok_or_else(|| {
        Error::Failed(format!(
            "`{name}` is neither beside this program nor on PATH: build it with `cargo build --workspace \
             --bins`"
        ))
    })
}
