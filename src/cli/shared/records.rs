//! What the commands that train write about themselves in their records: the command line, the machine,
//! the model.

use std::path::Path;

use crate::engine::{CpuEngine, Setup};
use crate::memory;
use crate::model::{Config, Layout};
use crate::view::page::Table;

/// Returns this process's command line, quoted for a shell.
pub(crate) fn command() -> String {
    let arguments = std::env::args().skip(1);
    // A null byte can't be in an argument: the system ends arguments with it.
    let quoted = arguments.map(|a| shlex::try_quote(&a).map_or(a.clone(), |q| q.into_owned()));
    let words: Vec<String> = std::iter::once("cloze".to_owned()).chain(quoted).collect();
    words.join(" ")
}

/// Describes the computer.
pub(crate) fn machine(setup: Setup) -> Table {
    let mut table = Table::new("Machine")
        .row("processor", processor())
        .row("threads", rayon::current_num_threads())
        .row("matrix products", CpuEngine::unit(setup.precision));
    if let Some(bytes) = memory::total() {
        table = table.row("memory", memory::format_bytes(bytes));
    }
    table.row("Cloze", env!("CARGO_PKG_VERSION"))
}

/// Describes the model that is trained.
pub(crate) fn model(config: &Config, layout: &Layout) -> Table {
    Table::new("Model")
        .row("layers", config.num_hidden_layers)
        .row("hidden size", config.hidden_size)
        .row("attention heads", config.num_attention_heads)
        .row("feed-forward size", config.intermediate_size)
        .row("vocabulary", config.vocab_size)
        .row("parameters", layout.total())
}

/// Returns the name of a folder.
pub(crate) fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().unwrap_or(whole.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Returns a model's name: the Hub's if the folder is in its cache (`models--ORG--NAME/snapshots/…`), else
/// the folder's.
pub(crate) fn name_of_model(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut names = whole.iter().map(|part| part.to_string_lossy());
    let of_hub = |name: &str| Some(name.strip_prefix("models--")?.replace("--", "/"));
    let found = names.find_map(|name| of_hub(&name));
    found.unwrap_or_else(|| name_of(folder))
}

/// Returns the processor's name if the system reports it, else its architecture.
fn processor() -> String {
    let name = if cfg!(target_os = "macos") {
        memory::sysctl("machdep.cpu.brand_string")
    } else {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        line.map(|(_, name)| name.trim().to_owned())
    };
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_same_name_by_every_path() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("mrpc");
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(name_of(&inner), "mrpc");
        assert_eq!(name_of(&inner.join("..").join("mrpc")), "mrpc");
        assert_eq!(name_of(Path::new("not/there/yet")), "yet");
        assert_eq!(name_of_model(&inner), "mrpc");
        let cached = folder.path().join("models--a--b-c/snapshots/1f");
        assert_eq!(name_of_model(&cached), "a/b-c");
    }
}
