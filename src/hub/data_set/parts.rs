//! Which files of a repository hold the rows of a data set's parts: those that its card lists, or else those
//! whose names or folders say it, as the library `datasets` decides it.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use glob::{MatchOptions, Pattern};
use serde_json::Value;

use crate::data::labels::listed;
use crate::data::table::format_of;

use super::Part;

/// Files with the ending of a table that describe a repository.
const NO_DATA: [&str; 4] =
    ["config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"];
/// The configuration of a repository that names none.
const DEFAULT: &str = "default";

/// The files of each part of a data set, in the order in which they are read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    parts: [Vec<String>; 3],
}

impl Files {
    /// Returns the files of a part; none if the data set does not have it.
    pub(super) fn of(&self, part: Part) -> &[String] {
        &self.parts[part as usize]
    }

    /// Assigns the files of the parts among the `names` in a repository. `card` is the front matter of its
    /// README as JSON, and `wanted` the name of a configuration.
    ///
    /// # Errors
    /// If there are none, or several configurations; the message is the end of a sentence.
    pub(super) fn find(
        names: &BTreeSet<String>,
        card: &Value,
        wanted: Option<&str>,
    ) -> Result<Self, String> {
        let readable: Vec<&str> =
            names.iter().map(String::as_str).filter(|n| holds_rows(n)).collect();
        if readable.is_empty() {
            return Err(nothing_to_read(names));
        }
        let lists = card["configs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let lists: Vec<Listed> = lists.iter().filter_map(Listed::of).collect();
        let mut files = match lists.is_empty() {
            false => {
                chosen(&lists, wanted, |list| list.name, |list| list.default)?.files(&readable)
            }
            true => by_names(&readable, wanted)?,
        };
        for part in &mut files.parts {
            in_one_format(part);
        }
        match files.parts.iter().all(Vec::is_empty) {
            true => Err("its card lists no file that Cloze reads".into()),
            false => Ok(files),
        }
    }
}

/// Returns whether a file can hold rows: its format is one that Cloze reads, and its path stays in the cache.
fn holds_rows(name: &str) -> bool {
    let path = Path::new(name);
    let plain = |part: Component| match part {
        Component::Normal(part) => {
            let part = part.to_string_lossy();
            !part.starts_with('.') && !part.starts_with("__")
        }
        _ => false,
    };
    let file = path.file_name().unwrap_or_default();
    !name.contains('\\')
        && path.components().all(plain)
        && !NO_DATA.iter().any(|no_data| file == *no_data)
        && format_of(path).is_some()
}

/// Describes a repository without a file that can be read.
fn nothing_to_read(names: &BTreeSet<String>) -> String {
    let mut endings: Vec<&str> = Vec::new();
    let mut scripts = Vec::new();
    for name in names {
        let file = name.rsplit('/').next().unwrap_or(name);
        match file.rsplit_once('.') {
            Some((_, "py")) => scripts.push(file),
            Some((stem, ending)) if !stem.is_empty() && file != "README.md" => endings.push(ending),
            _ => {}
        }
    }
    endings.sort_unstable();
    endings.dedup();
    let endings: Vec<String> = endings.iter().map(|ending| format!(".{ending}")).collect();
    let holds = match (scripts.is_empty(), endings.is_empty()) {
        (true, true) => "no data".to_owned(),
        (true, false) => format!("only files of other formats: {}", listed(&endings)),
        (false, true) => format!("only a loading script, {}", listed(&scripts)),
        (false, false) => format!(
            "a loading script, {}, and files of other formats: {}",
            listed(&scripts),
            listed(&endings)
        ),
    };
    format!(
        "it has no .parquet, .csv, .tsv, .txt or .jsonl file, but {holds}. The Hub may have made a copy in \
         Parquet: put @refs/convert/parquet behind the name"
    )
}

/// A configuration in a repository's card.
struct Listed<'c> {
    name: &'c str,
    default: bool,
    data_files: &'c Value,
}

impl<'c> Listed<'c> {
    fn of(config: &'c Value) -> Option<Self> {
        Some(Self {
            name: config["config_name"].as_str()?,
            default: config["default"].as_bool().unwrap_or(false),
            data_files: config.get("data_files")?,
        })
    }

    /// Returns the files that match the configuration's patterns.
    fn files(&self, readable: &[&str]) -> Files {
        let entries = match self.data_files {
            Value::Array(entries) => entries.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut files = Files::default();
        for entry in entries {
            // Without the name of a split, files are for training.
            let (part, paths) = match entry.get("split") {
                Some(split) => (part_named(split.as_str().unwrap_or_default()), &entry["path"]),
                None => (Some(Part::Train), entry),
            };
            let paths = match paths {
                Value::Array(paths) => paths.as_slice(),
                one => std::slice::from_ref(one),
            };
            let patterns: Vec<Pattern> =
                paths.iter().filter_map(|path| Pattern::new(path.as_str()?).ok()).collect();
            let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
            let fits = |name: &str| patterns.iter().any(|p| p.matches_with(name, options));
            if let Some(part) = part {
                let found = readable.iter().filter(|name| fits(name));
                files.parts[part as usize].extend(found.map(|name| (*name).to_owned()));
            }
        }
        files
    }
}

/// Returns the part whose word this is.
fn part_named(word: &str) -> Option<Part> {
    Some(match word.to_lowercase().as_str() {
        "train" | "training" => Part::Train,
        "validation" | "valid" | "val" | "dev" => Part::Validation,
        "test" | "testing" | "eval" | "evaluation" => Part::Test,
        _ => return None,
    })
}

/// Returns the part of which a file's or folder's name has a word.
fn part_in(name: &str) -> Option<Part> {
    name.split(|c: char| "-._ ".contains(c) || c.is_ascii_digit()).find_map(part_named)
}

/// Returns the wanted configuration, or the one to take if none is named: that which is marked as the default or
/// called so, or the only one.
fn chosen<'c, C>(
    all: &'c [C],
    wanted: Option<&str>,
    name: impl Fn(&'c C) -> &'c str,
    marked: impl Fn(&C) -> bool,
) -> Result<&'c C, String> {
    let names = || listed(&all.iter().map(&name).collect::<Vec<_>>());
    if let Some(wanted) = wanted {
        let found = all.iter().find(|config| name(config) == wanted);
        return found
            .ok_or_else(|| format!("it has no configuration {wanted}; it has {}", names()));
    }
    let default = || all.iter().find(|config| name(config) == DEFAULT);
    match all {
        [only] => Ok(only),
        _ => all.iter().find(|config| marked(config)).or_else(default).ok_or_else(|| {
            let first = all.first().map_or("", &name);
            format!("it has several configurations: put one behind the name, such as :{first}; it has {}", names())
        }),
    }
}

/// Assigns files to parts by words in their folders' or their own names. Folders that are neither `data` nor
/// named after a part are configurations. If no name has such a word, all files are for training.
fn by_names(readable: &[&str], wanted: Option<&str>) -> Result<Files, String> {
    let mut configurations: Vec<(String, Files)> = Vec::new();
    let mut rest = Vec::new();
    for name in readable {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        let folders = || folder.split('/').filter(|folder| !folder.is_empty());
        let Some(part) = folders().find_map(part_in).or_else(|| part_in(file)) else {
            rest.push(*name);
            continue;
        };
        let own: Vec<&str> =
            folders().filter(|folder| *folder != "data" && part_in(folder).is_none()).collect();
        let own = if own.is_empty() { DEFAULT.to_owned() } else { own.join("/") };
        let at = configurations.iter().position(|(name, _)| *name == own).unwrap_or_else(|| {
            configurations.push((own, Files::default()));
            configurations.len() - 1
        });
        configurations[at].1.parts[part as usize].push((*name).to_owned());
    }
    if configurations.is_empty() {
        let rows = rest.into_iter().filter(|name| !name.ends_with(".txt")).map(str::to_owned);
        let parts = [rows.collect(), Vec::new(), Vec::new()];
        configurations.push((DEFAULT.to_owned(), Files { parts }));
    }
    let chosen = chosen(&configurations, wanted, |(name, _)| name.as_str(), |_| false)?;
    Ok(Files { parts: chosen.1.parts.clone() })
}

/// Leaves the files of one format: Parquet if there is any.
fn in_one_format(files: &mut Vec<String>) {
    let format = |name: &String| format_of(Path::new(name));
    let parquet = Some("parquet".to_owned());
    let formats: BTreeSet<Option<String>> = files.iter().map(format).collect();
    let kept = match formats.contains(&parquet) {
        true => Some(parquet),
        false => formats.into_iter().next(),
    };
    files.retain(|name| Some(format(name)) == kept);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(
        names: &[&str],
        card: &Value,
        wanted: Option<&str>,
    ) -> Result<[Vec<String>; 3], String> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Files::find(&names, card, wanted).map(|files| files.parts)
    }

    fn named(names: &[&str]) -> [String; 3] {
        find(names, &Value::Null, None).unwrap().map(|files| files.join(" "))
    }

    #[test]
    fn names_of_files_and_folders_say_the_part() {
        let shards = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"];
        let more = ["data/test-00000-of-00001.parquet", "README.md", "dataset_infos.json"];
        let train = shards.join(" ");
        let expected = [train.as_str(), "", "data/test-00000-of-00001.parquet"];
        assert_eq!(named(&[&shards[..], &more].concat()), expected);
        assert_eq!(
            named(&["my_train.csv", "dev.jsonl.gz", "eval2.tsv"]),
            ["my_train.csv", "dev.jsonl.gz", "eval2.tsv"]
        );
        assert_eq!(
            named(&["training/0.csv", "valid/test.csv"]),
            ["training/0.csv", "valid/test.csv", ""]
        );
        assert_eq!(named(&["retrained.csv", "requirements.txt"]), ["retrained.csv", "", ""]);
        assert_eq!(named(&["train.csv", "train.parquet", "train.json"]), ["train.parquet", "", ""]);
        let outside =
            ["../train.csv", "/train.csv", "a/../../train.csv", "a\\train.csv", "train.tsv"];
        assert_eq!(named(&outside), ["train.tsv", "", ""]);
    }

    #[test]
    fn folders_beside_the_parts_are_configurations() {
        let names = [
            "cola/train-00000-of-00001.parquet",
            "sst2/train/0000.parquet",
            "sst2/validation/0000.parquet",
        ];
        let message = find(&names, &Value::Null, None).unwrap_err();
        assert!(message.ends_with("such as :cola; it has cola, sst2"), "{message}");
        let sst2 = find(&names, &Value::Null, Some("sst2")).unwrap();
        assert_eq!((sst2[0].concat(), sst2[1].concat()), (names[1].into(), names[2].into()));
        let message = find(&names, &Value::Null, Some("sst")).unwrap_err();
        assert_eq!(message, "it has no configuration sst; it has cola, sst2");
        // Only one, and one that is called default.
        assert_eq!(named(&names[1..])[0], names[1]);
        assert_eq!(named(&["default/train/0.csv", "more/train/0.csv"])[0], "default/train/0.csv");
        assert!(find(&["data/train.csv"], &Value::Null, Some("default")).is_ok());
    }

    #[test]
    fn a_card_that_lists_the_files_decides() {
        let names = ["rows/a.csv", "rows/b.csv", "held/c.csv", "train.csv", "x/d.csv"];
        let files = |data_files: Value| {
            let card = json!({"configs": [{"config_name": "one", "data_files": data_files}]});
            find(&names, &card, None).map(|files| files.map(|files| files.join(" ")))
        };
        let two = json!([
            {"split": "train", "path": "rows/*"}, {"split": "validation", "path": ["held/c.csv"]},
            {"split": "unsupervised", "path": "x/*"},
        ]);
        assert_eq!(
            files(two),
            Ok(["rows/a.csv rows/b.csv".into(), "held/c.csv".into(), String::new()])
        );
        let train = |files: &str| -> Result<[String; 3], String> {
            Ok([files.to_owned(), String::new(), String::new()])
        };
        assert_eq!(files(json!("x/d.csv")), train("x/d.csv"));
        assert_eq!(files(json!(["x/d.csv", "train.csv"])), train("x/d.csv train.csv"));
        assert_eq!(
            files(json!("**/*.csv")),
            train("held/c.csv rows/a.csv rows/b.csv train.csv x/d.csv")
        );
        assert_eq!(files(json!("*.zip")), Err("its card lists no file that Cloze reads".into()));

        let config = |name: &str, path: &str, default: bool| json!({"config_name": name, "data_files": path, "default": default});
        let card = json!({"configs": [config("a", "train.csv", false), config("b", "x/*", true)]});
        assert_eq!(find(&names, &card, None).unwrap()[0], ["x/d.csv"]);
        assert_eq!(find(&names, &card, Some("a")).unwrap()[0], ["train.csv"]);
        // A card without files leaves the decision to the names.
        let card = json!({"configs": [{"config_name": "a", "data_dir": "x"}]});
        assert_eq!(find(&["train.csv"], &card, None).unwrap()[0], ["train.csv"]);
    }

    #[test]
    fn a_repository_without_files_to_read_is_described() {
        let message = |names: &[&str]| find(names, &Value::Null, None).unwrap_err();
        let script = message(&[".gitattributes", "README.md", "imdb.py"]);
        assert!(script.contains("but only a loading script, imdb.py. The Hub"), "{script}");
        let both = message(&["imdb.py", "data/a.zip", "data/b.zip"]);
        assert!(both.contains("imdb.py, and files of other formats: .zip."), "{both}");
        assert!(message(&["a.arrow"]).contains("but only files of other formats: .arrow."));
        assert!(message(&["README.md"]).contains("but no data."));
    }
}
