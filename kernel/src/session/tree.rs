//! Folders of templates and sessions as wholes: hashed, copied, linked, taken over, removed.

use std::fs::File;
use std::hash::{DefaultHasher, Hash};
use std::path::{Path, PathBuf};

use cloze::{Error, Result};

use super::template::CRATE;
use crate::paths;

/// Hashes names and contents below `path`, in a fixed order; what is missing hashes as such.
pub fn hash_tree(path: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    path.file_name().hash(hasher);
    if path.is_dir() {
        for entry in sorted(path)? {
            hash_tree(&entry, hasher)?;
        }
    } else if path.is_file() {
        std::fs::read(path)
            .map_err(|source| Error::io(path, source))?
            .hash(hasher);
    }
    Ok(())
}

pub fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<std::io::Result<Vec<_>>>()
        })
        .map_err(|source| Error::io(folder, source))?;
    entries.sort();
    Ok(entries)
}

/// Copies a file or a folder with the times of its files, by which cargo knows what is fresh.
///
/// What cargo has made of dependencies is linked instead of copied where the file system can: no
/// session writes it. Whatever belongs to evcxr's crate is rewritten by every cell and is copied.
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

/// Copies a file with its time.
fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let copied = std::fs::copy(from, to).and_then(|_| {
        let modified = std::fs::metadata(from)?.modified()?;
        File::options().write(true).open(to)?.set_modified(modified)
    });
    copied.map_err(|source| Error::io(from, source))
}

/// Whether a file was made by cargo for a dependency: it lies below a profile's folder, and no part
/// of its path from there on is named after evcxr's crate.
fn is_dependency(path: &Path) -> bool {
    let parts: Vec<_> = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect();
    let Some(target) = parts.iter().rposition(|part| part == "target") else {
        return false;
    };
    let below = parts[target..].iter().position(|part| part == "debug");
    below.is_some_and(|debug| {
        let rest = &parts[target + debug + 1..];
        rest.len() > 1
            && !rest
                .iter()
                .any(|part| part.trim_start_matches("lib").starts_with(CRATE))
    })
}

pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        paths::create(parent)?;
    }
    std::fs::write(path, text).map_err(|source| Error::io(path, source))
}

pub fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, error)),
        _ => Ok(()),
    }
}

/// Copies what an earlier template has compiled of other people's crates: cargo finds by itself
/// what of it still fits, and a change in Cloze costs a minute and not all of the first build.
/// Copied rather than linked, because cargo may write into any of it.
pub fn take_over(from: &Path, to: &Path) -> Result<()> {
    for entry in sorted(from).unwrap_or_default() {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_start_matches("lib");
        let ours = [CRATE, "cloze", "code_", "incremental"];
        if ours.iter().any(|ours| name.starts_with(ours)) {
            continue;
        }
        if entry.is_dir() {
            take_over(&entry, &to.join(entry.file_name().unwrap_or_default()))?;
        } else {
            paths::create(to)?;
            copy_file(&entry, &to.join(entry.file_name().unwrap_or_default()))?;
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
        assert!(!is_dependency(
            &target.join("incremental/ctx-1/s-1/query-cache.bin")
        ));
        assert!(!is_dependency(&target.join(".cargo-lock")));
        assert!(!is_dependency(Path::new(
            "/home/target/debug/ctx/Cargo.toml"
        )));
    }

    /// Gives a file a time long past.
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
    fn the_key_changes_with_a_source_and_with_nothing_else() {
        let key = |folder: &Path| {
            let mut hasher = DefaultHasher::new();
            hash_tree(folder, &mut hasher).unwrap();
            hasher.finish()
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lib.rs");
        std::fs::write(&file, "one").unwrap();
        let first = key(folder.path());
        aged(&file);
        assert_eq!(first, key(folder.path()));
        std::fs::write(&file, "two").unwrap();
        assert_ne!(first, key(folder.path()));
    }
}
