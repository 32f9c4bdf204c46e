//! The files that a path names: one, or all that match a pattern such as `data/train-*.parquet`.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::error::{Error, Result};

/// A `*` stands for a part of a name, not for folders.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Returns the file of this path. If there is none and the path has a `*`, returns the files that match it, in
/// the order of their names.
pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let Some(pattern) = path.to_str().filter(|text| text.contains('*') && !path.exists()) else {
        return Ok(vec![path.to_owned()]);
    };
    let found = glob::glob_with(pattern, OPTIONS)
        .map_err(|e| Error::file(path, format!("is neither a file nor a pattern of files: {e}")))?;
    let found: std::result::Result<Vec<PathBuf>, glob::GlobError> = found.collect();
    let mut files = found.map_err(|e| {
        let folder = e.path().to_owned();
        Error::io(folder, e.into())
    })?;
    files.retain(|file| file.is_file());
    match files.is_empty() {
        true => Err(Error::file(path, "no file matches this pattern")),
        false => Ok(files),
    }
}

/// Returns a path that names these files of a folder and none of `others`: that of the only file, or a pattern.
/// None if there is no such pattern with one `*`.
pub fn pattern_of<'n>(
    folder: &Path,
    names: &[&str],
    mut others: impl Iterator<Item = &'n str>,
) -> Option<PathBuf> {
    let (first, rest) = names.split_first()?;
    if rest.is_empty() {
        return Some(folder.join(first));
    }
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let reversed = |name: &str| name.chars().rev().collect::<String>();
    let shortest = names.iter().map(|name| name.chars().count()).min()?;
    let start = rest.iter().map(|name| common(first, name)).min()?;
    let end = rest.iter().map(|name| common(&reversed(first), &reversed(name))).min()?;
    let end = end.min(shortest - start);
    let head: String = first.chars().take(start).collect();
    let tail: String = first.chars().skip(first.chars().count() - end).collect();
    let escaped = [folder.to_str()?, &head, &tail].map(Pattern::escape);
    let below = format!("{}*{}", escaped[1], escaped[2]);
    let pattern = Pattern::new(&below).ok()?;
    let fits = |name: &str| pattern.matches_with(name, OPTIONS);
    let exact = names.iter().all(|name| fits(name)) && !others.any(fits);
    exact.then(|| Path::new(&escaped[0]).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_the_files_of_a_part_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        // A name with a bracket, which a pattern would read as a set of characters.
        let below = folder.path().join("a[1]");
        let names = ["data/train-1.csv", "data/train-11.csv", "data/test-1.csv", "train-1.csv"];
        for name in names {
            let path = below.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let of = |chosen: &[&str]| {
            let others = names.into_iter().filter(|name| !chosen.contains(name));
            pattern_of(&below, chosen, others)
        };
        let found = |path: &Path| files_of(path).unwrap();
        let train = of(&names[..2]).unwrap();
        assert!(train.ends_with("data/train-1*.csv"), "{train:?}");
        assert_eq!(found(&train), [below.join(names[0]), below.join(names[1])]);
        assert_eq!(found(&of(&names[2..3]).unwrap()), [below.join(names[2])]);
        assert_eq!(of(&[names[1], names[2]]), None, "train-1 would match");
        assert_eq!(of(&[names[0], names[3]]), None, "they lie in different folders");

        let message = files_of(&folder.path().join("no*.csv")).unwrap_err().to_string();
        assert!(message.ends_with("no*.csv: no file matches this pattern"), "{message}");
        let literal = folder.path().join("star*.csv");
        std::fs::write(&literal, "").unwrap();
        std::fs::write(folder.path().join("star2.csv"), "").unwrap();
        assert_eq!(
            found(&literal),
            std::slice::from_ref(&literal),
            "a file of that very name comes first"
        );
    }
}
