//! The parts of a run's records that all commands share: the command line, the machine, the model.

use std::path::Path;

use crate::engine::{CpuEngine, Setup};
use crate::memory;
use crate::model::{Config, Layout};
use crate::view::page::Table;

/// Returns this process's command line, quoted for a shell.
pub fn command() -> String {
    let arguments = std::env::args().skip(1);
    // Quoting fails only for null bytes, which an argument can't have.
    let quoted = arguments.map(|a| shlex::try_quote(&a).map_or(a.clone(), |q| q.into_owned()));
    let words: Vec<String> = std::iter::once("cloze".to_owned()).chain(quoted).collect();
    words.join(" ")
}

/// Describes the machine.
pub fn machine(setup: Setup) -> Table {
    let table = Table::new("Machine")
        .row("processor", processor())
        .row("threads", rayon::current_num_threads())
        .row("matrix products", CpuEngine::unit(setup.precision));
    let table = match memory::total() {
        Some(bytes) => table.row("memory", memory::format_bytes(bytes)),
        None => table,
    };
    table.row("Cloze", env!("CARGO_PKG_VERSION"))
}

/// Describes the model.
pub fn model(config: &Config, layout: &Layout) -> Table {
    Table::new("Model")
        .row("layers", config.num_hidden_layers)
        .row("hidden size", config.hidden_size)
        .row("attention heads", config.num_attention_heads)
        .row("feed-forward size", config.intermediate_size)
        .row("vocabulary", config.vocab_size)
        .row("parameters", layout.total())
}

/// Returns a folder's own name.
pub fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().unwrap_or(whole.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Returns a model's name: its name on the Hub if the folder is in the Hub's cache
/// (`models--ORG--NAME/snapshots/…`), else the folder's own.
pub fn name_of_model(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut names = whole.iter().map(|part| part.to_string_lossy());
    match names.find_map(|name| Some(name.strip_prefix("models--")?.replace("--", "/"))) {
        Some(name) => name,
        None => name_of(folder),
    }
}

/// Returns the processor's name, or its architecture if the system doesn't report the name.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    match line.and_then(|line| line.split_once(':')) {
        Some((_, name)) => name.trim().to_owned(),
        None => std::env::consts::ARCH.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_wherever_one_stands() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("mrpc");
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(name_of(&inner), "mrpc");
        assert_eq!(name_of(&inner.join("..").join("mrpc")), "mrpc");
        assert_eq!(name_of(Path::new("not/there/yet")), "yet");
        assert_eq!(name_of_model(&inner), "mrpc");
        let cached = folder.path().join("models--a--b-c").join("snapshots").join("1f");
        assert_eq!(name_of_model(&cached), "a/b-c");
    }
}
