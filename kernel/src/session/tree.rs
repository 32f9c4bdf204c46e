//! Hashes, copies and removes the folders of templates and sessions.

use std::fs::File;
use std::hash::{DefaultHasher, Hash};
use std::path::{Path, PathBuf};

use cloze::{Error, Result};

use super::layout::CRATE;
use crate::paths;

/// Hashes names and contents below `path`, in a fixed order. A missing file hashes as its name.
pub fn hash_tree(path: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    path.file_name().hash(hasher);
    if path.is_dir() {
        for entry in sorted(path)? {
            hash_tree(&entry, hasher)?;
        }
    } else if path.is_file() {
        std::fs::read(path).map_err(|source| Error::io(path, source))?.hash(hasher);
    }
    Ok(())
}

/// Returns the entries of `folder`, sorted.
pub fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| {
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()
        })
        .map_err(|source| Error::io(folder, source))?;
    entries.sort();
    Ok(entries)
}

/// Copies a file or a folder, and keeps the times of the files, by which cargo knows what is fresh.
///
/// Compiled dependencies are hard-linked if the file system allows it, because no session writes
/// them. Every cell rewrites evcxr's own crate, so that is copied.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        paths::create(to)?;
        for entry in sorted(from)? {
            // `sorted` gives paths below `from`, which all have a name.
            let name = entry.file_name().unwrap_or_default();
            copy_tree(&entry, &to.join(name))?;
        }
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        paths::create(parent)?;
    }
    if is_dependency(from) && std::fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    copy_file(from, to)
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let copied = std::fs::copy(from, to).and_then(|_| {
        let modified = std::fs::metadata(from)?.modified()?;
        File::options().write(true).open(to)?.set_modified(modified)
    });
    copied.map_err(|source| Error::io(from, source))
}

/// Returns whether cargo made a file for a dependency: the file lies below a profile's folder, and no
/// part of its path below that is named after evcxr's crate.
fn is_dependency(path: &Path) -> bool {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let Some(target) = parts.iter().rposition(|part| part == "target") else {
        return false;
    };
    let below = parts[target..].iter().position(|part| part == "debug");
    below.is_some_and(|debug| {
        let rest = &parts[target + debug + 1..];
        rest.len() > 1 && !rest.iter().any(|part| part.trim_start_matches("lib").starts_with(CRATE))
    })
}

/// Writes a file, and creates its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        paths::create(parent)?;
    }
    std::fs::write(path, text).map_err(|source| Error::io(path, source))
}

/// Writes a file that only the user can read, because it contains secrets.
pub fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    std::io::Write::write_all(&mut file, bytes)
}

/// Removes a file or a folder, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    let removed =
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, error)),
        _ => Ok(()),
    }
}

/// Copies the compiled dependencies of an earlier template. Cargo finds out which of them still fit,
/// so that after a change in Cloze the template takes one minute to build. They are copied rather than
/// linked, because cargo may write into any of them.
pub fn copy_dependencies(from: &Path, to: &Path) -> Result<()> {
    const OWN: [&str; 4] = [CRATE, "cloze", "code_", "incremental"];
    for entry in sorted(from).unwrap_or_default() {
        let name = entry.file_name().unwrap_or_default();
        let text = name.to_string_lossy();
        let text = text.trim_start_matches("lib");
        if OWN.iter().any(|own| text.starts_with(own)) {
            continue;
        }
        if entry.is_dir() {
            copy_dependencies(&entry, &to.join(name))?;
        } else {
            paths::create(to)?;
            copy_file(&entry, &to.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_session_may_rewrite_its_crate_but_not_its_dependencies() {
        let deps = Path::new("target/x86_64-unknown-linux-gnu/debug/deps");
        assert!(is_dependency(&deps.join("libdfdx-0123.rlib")));
        assert!(is_dependency(&deps.join("libcloze_session-0123.so")));
        assert!(!is_dependency(&deps.join("libctx.so")));
        assert!(!is_dependency(&deps.join("ctx.d")));
        let target = Path::new("/home/a/target/x/ctx/target/debug");
        assert!(is_dependency(&target.join(".fingerprint/dfdx-1/lib-dfdx")));
        assert!(!is_dependency(&target.join(".fingerprint/ctx-1/lib-ctx")));
        assert!(!is_dependency(&target.join("incremental/ctx-1/s-1/query-cache.bin")));
        assert!(!is_dependency(&target.join(".cargo-lock")));
        assert!(!is_dependency(Path::new("/home/target/debug/ctx/Cargo.toml")));
    }

    /// Sets a file's time to 1970.
    fn aged(file: &Path) -> SystemTime {
        let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let file = File::options().write(true).open(file).unwrap();
        file.set_modified(old).unwrap();
        old
    }

    #[test]
    fn a_copied_file_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b/c"));
        std::fs::write(&from, "x").unwrap();
        let old = aged(&from);
        copy_tree(&from, &to).unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().modified().unwrap(), old);
    }

    #[test]
    fn the_hash_changes_with_a_source_and_with_nothing_else() {
        let hash = |folder: &Path| {
            let mut hasher = DefaultHasher::new();
            hash_tree(folder, &mut hasher).unwrap();
            hasher.finish()
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lib.rs");
        std::fs::write(&file, "one").unwrap();
        let first = hash(folder.path());
        aged(&file);
        assert_eq!(first, hash(folder.path()));
        std::fs::write(&file, "two").unwrap();
        assert_ne!(first, hash(folder.path()));
    }
}
