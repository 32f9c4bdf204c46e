//! The order of folders and files: what a file may import. docs/architecture.md explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files of `src`: each imports only from groups before its own.
const ORDER: &[&[&str]] = &[
    &["error"],
    &["notes", "interrupt", "random", "memory", "bytes", "ranks"],
    &["files"],
    &["text"],
    &["download"],
    &["data"],
    &["model"],
    &["hub"],
    &["eval"],
    &["engine"],
    &["features"],
    &["view"],
    &["train"],
    &["tasks"],
    &["predict"],
    &["lessons"],
    &["prelude"],
    &["cli"],
];

/// Returns the `use` paths of a file without its unit tests: `crate::a::{b, c::d}` gives `crate::a::b` and
/// `crate::a::c::d`.
fn imports(source: &str) -> Vec<String> {
    let tests = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
    let mut paths = Vec::new();
    for statement in source[..tests].split(';') {
        let line = statement.lines().find_map(|line| {
            let words = line.trim_start();
            let words = words.strip_prefix("pub(crate) ").unwrap_or(words);
            let words = words.strip_prefix("pub(super) ").unwrap_or(words);
            let words = words.strip_prefix("pub ").unwrap_or(words);
            words.strip_prefix("use ").map(|path| (line, path))
        });
        if let Some((line, path)) = line {
            let rest = &statement[statement.find(line).unwrap() + line.len()..];
            let text: String =
                [path, rest].concat().split_whitespace().collect::<Vec<_>>().join(" ");
            expand("", &text, &mut paths);
        }
    }
    paths
}

/// Appends the paths of a `use` tree.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        paths.push(format!("{prefix}{path}"));
        return;
    };
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inside[start..at].trim().is_empty() {
                    expand(&format!("{prefix}{}", before.trim()), &inside[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

/// Returns the module path of a file: `src/engine/cpu/mod.rs` is `["engine", "cpu"]`.
fn module_of(root: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(root).unwrap().with_extension("");
    let mut names: Vec<String> = path.iter().map(|name| name.to_string_lossy().into()).collect();
    if names.last().is_some_and(|name| name == "mod" || name == "lib" || name == "main") {
        names.pop();
    }
    names
}

/// Maps the path of each module of a crate to those of the modules that it imports from.
fn graph(root: &Path) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut files = Vec::new();
    rust_files(root, &mut files);
    let tests = |module: &[String]| module.iter().any(|name| name == "tests");
    let modules: BTreeMap<Vec<String>, String> = files
        .iter()
        .map(|file| (module_of(root, file), fs::read_to_string(file).unwrap()))
        .filter(|(module, _)| !tests(module))
        .collect();
    modules
        .iter()
        .map(|(module, source)| {
            let mut targets = BTreeSet::new();
            for path in imports(source) {
                let names: Vec<&str> = path.split("::").collect();
                let mut at: Vec<String> = match names[0] {
                    "crate" => Vec::new(),
                    "self" | "super" => module.clone(),
                    child if modules.contains_key(&[&module[..], &[child.into()]].concat()) => {
                        [&module[..], &[child.into()]].concat()
                    }
                    _ => continue,
                };
                for name in &names[usize::from(names[0] == "crate")..] {
                    match *name {
                        "self" => {}
                        "super" => drop(at.pop()),
                        name => at.push(name.into()),
                    }
                }
                // The last names are items, not modules.
                while !modules.contains_key(&at) {
                    at.pop();
                }
                if at != *module {
                    targets.insert(at);
                }
            }
            (module.clone(), targets)
        })
        .collect()
}

fn crates() -> [PathBuf; 2] {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    [here.join("src"), here.join("kernel/src")]
}

#[test]
fn no_folder_imports_from_one_after_it() {
    let rank = |name: &str| ORDER.iter().position(|group| group.contains(&name));
    let mut wrong = Vec::new();
    for (module, targets) in graph(&crates()[0]) {
        let Some(name) = module.first() else { continue };
        if name == "main" {
            continue;
        }
        let own = rank(name).unwrap_or_else(|| panic!("src/{name} has no place in the order"));
        for target in targets.iter().filter(|target| target.first() != Some(name)) {
            // Macros and re-exports at the crate's root.
            let Some(other) = target.first() else {
                continue;
            };
            let theirs =
                rank(other).unwrap_or_else(|| panic!("src/{other} has no place in the order"));
            if theirs >= own {
                wrong.push(format!("{} imports {}", module.join("/"), target.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point back up:\n{}", wrong.join("\n"));
}

#[test]
fn no_files_import_from_each_other_in_a_circle() {
    for root in crates() {
        let mut graph = graph(&root);
        // A child may import from its parents' mod.rs.
        for (module, targets) in &mut graph {
            targets.retain(|target| !module.starts_with(target));
        }
        let reached = |start: &Vec<String>| {
            let mut seen = BTreeSet::new();
            let mut next: Vec<&Vec<String>> = graph[start].iter().collect();
            while let Some(module) = next.pop() {
                if seen.insert(module) {
                    next.extend(&graph[module]);
                }
            }
            seen
        };
        let circles: Vec<String> = graph
            .iter()
            .filter(|(module, _)| reached(module).contains(module))
            .map(|(module, targets)| {
                let targets = targets.iter().filter(|target| reached(target).contains(module));
                let targets: Vec<String> = targets.map(|target| target.join("/")).collect();
                format!("{} -> {}", module.join("/"), targets.join(", "))
            })
            .collect();
        assert!(circles.is_empty(), "in {}:\n{}", root.display(), circles.join("\n"));
    }
}

#[test]
fn imports_are_found_as_they_are_written() {
    let source = "use std::io;\npub use self::a::B;\nuse crate::x::{self, y::{Z, w}, V as U};\n\
                  fn f() {\n    use super::g;\n}\n#[cfg(test)]\nmod tests {\n    use crate::unseen;\n}\n";
    let expected = [
        "std::io",
        "self::a::B",
        "crate::x::self",
        "crate::x::y::Z",
        "crate::x::y::w",
        "crate::x::V",
        "super::g",
    ];
    assert_eq!(imports(source), expected);
}

/// Files that may change files without `files::disk`, and why.
const BESIDE_THE_SEAM: &[(&str, &str)] = &[
    ("files/disk.rs", "the seam itself"),
    ("hub/cached.rs", "a copy in place of a link, where there are no links"),
    ("train/parallel/mod.rs", "temporary copies of the other ranks"),
    ("cli/bench/selftest/report.rs", "the log of a selftest"),
    ("engine/cuda/emulated/library.rs", "the emulated GPU"),
    ("engine/cuda/driver/fake.rs", "the emulated GPU"),
    ("data/mod.rs", "a helper of unit tests"),
    ("lessons/checks.rs", "tools for those who write lessons"),
    ("lessons/support/finetuning.rs", "small files of a lesson"),
    ("lessons/support/variants.rs", "small files of a lesson"),
];

/// Otherwise the tests of crashes would not see a change.
#[test]
fn files_are_changed_in_one_place() {
    let root = &crates()[0];
    let mut files = Vec::new();
    rust_files(root, &mut files);
    let changes = [
        "fs::write(",
        "fs::rename(",
        "fs::remove_",
        "fs::create_dir",
        "fs::copy(",
        "fs::hard_link(",
        "fs::symlink(",
        "File::create",
        "File::options",
        "OpenOptions",
        "sync_all(",
        "sync_data(",
    ];
    let mut found = BTreeSet::new();
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let tests = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
        let name = file.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        if !name.contains("tests/") && changes.iter().any(|change| source[..tests].contains(change))
        {
            found.insert(name);
        }
    }
    let expected = BESIDE_THE_SEAM.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, expected, "change files through src/files/disk.rs");
}
