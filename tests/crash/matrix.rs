//! Resumed runs, by the moment at which they were killed and by what has changed since: each ends with the same bits,
//! reports the change, or is refused. docs/reliability.md has the same table.

use std::path::{Path, PathBuf};
use std::process::Output;

use clap::Parser;
use cloze::cli::Cli;
use cloze::files::watch::{self, Change, Death};
use cloze::notes;

use crate::cases::{CONFIG, sentiments};
use crate::common::pretraining::corpus;
use crate::common::{cloze, stderr, text};
use crate::place::{Place, remove};
use crate::power::Disk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Same,
    Reported,
    Refused,
}

use Outcome::{Refused, Reported, Same};

impl Outcome {
    fn words(self) -> &'static str {
        match self {
            Same => "the same bits",
            Reported => "reports the change",
            Refused => "refuses",
        }
    }
}

const COMMANDS: [&str; 3] = ["pretrain", "distill", "finetune"];

/// What has changed, and how a resumed `pretrain`, `distill` and `finetune` end.
const TABLE: [(&str, [Outcome; 3]); 9] = [
    ("nothing", [Same, Same, Same]),
    ("`--threads 1`", [Same, Same, Same]),
    ("`--threads 2`", [Same, Same, Same]),
    ("`--threads 7`", [Same, Same, Same]),
    ("`--micro-batch 2`", [Reported, Reported, Reported]),
    ("`--backend reference`", [Reported, Reported, Reported]),
    ("`--lr`", [Reported, Reported, Refused]),
    ("`--seed`", [Refused, Refused, Refused]),
    ("heads in `config.json`", [Refused, Refused, Refused]),
];

struct Matrix {
    place: Place,
    corpus: PathBuf,
}

impl Matrix {
    fn new(config: &str) -> Self {
        let place = Place::new();
        let corpus = corpus(place.folder.0.path());
        sentiments(&place);
        place.folder.write("small.json", config);
        place.folder.write("changed.json", &changed(config));
        let matrix = Self { place, corpus };
        let base = matrix.place.path("base");
        let mut args = matrix.args("pretrain", "");
        let at = args.iter().position(|word| word == "--out").unwrap();
        args[at + 1] = text(&base).to_owned();
        in_process(&args);
        let copy = matrix.place.path("changed");
        Disk::read(&base).write_as(&base, &copy);
        let config = std::fs::read_to_string(copy.join("config.json")).unwrap();
        std::fs::write(copy.join("config.json"), changed(&config)).unwrap();
        matrix
    }

    /// Returns the arguments of a command, with this change.
    fn args(&self, command: &str, change: &str) -> Vec<String> {
        let place = &self.place;
        let is_other = change.contains("config");
        let path = |name: &str| text(&place.path(name)).to_owned();
        let base = path(if is_other { "changed" } else { "base" });
        let size = path(if is_other { "changed.json" } else { "small.json" });
        let (corpus, data) = (text(&self.corpus), text(place.folder.0.path()));
        let lr = if change == "`--lr`" { "3e-3" } else { "1e-3" };
        let seed = if change == "`--seed`" { "6" } else { "5" };
        let line = match command {
            "pretrain" => format!(
                "pretrain --text {corpus} --size {size} --vocab-size 90 --seq 16 --first-seq 12 --eval-sequences 4 \
                 --eval-every 2 --steps 4 --save-every 1"
            ),
            "distill" => format!(
                "distill --teacher {base} --text {corpus} --layers 1 --seq 16 --eval-sequences 4 --eval-every 2 \
                 --steps 4 --save-every 1"
            ),
            _ => format!(
                "finetune sst-2 --data {data} --model {base} --epochs 2 --save-every 1 --seeds 2 --keep-best"
            ),
        };
        let out = place.out();
        let rest = format!(" --batch 4 --lr {lr} --seed {seed} --out {} --json", text(&out));
        let option = match change {
            "nothing" | "" | "`--lr`" | "`--seed`" => String::new(),
            _ if is_other => String::new(),
            option => format!(" {}", option.trim_matches('`')),
        };
        crate::common::words(&(line + &rest + &option))
    }

    /// Leaves the folder of a run that was killed at this moment.
    fn killed(&self, command: &str, moment: &str) -> Disk {
        let (args, root) = (self.args(command, ""), self.place.root());
        // The records are written by the clock, so the number of changes may differ from run to run.
        for _ in 0..9 {
            remove(&root);
            watch::begin(&root, None);
            in_process(&args);
            let (changes, _) = watch::end();
            let after = at(&changes, moment).unwrap_or_else(|| panic!("{command}: no {moment}"));
            remove(&root);
            watch::begin(&root, Some(Death { after, half: false }));
            let words = std::iter::once("cloze".to_owned()).chain(args.iter().cloned());
            assert!(Cli::try_parse_from(words).unwrap().work().is_err());
            let (done, died) = watch::end();
            let kinds = |all: &[Change]| all.iter().map(std::mem::discriminant).collect::<Vec<_>>();
            if died && kinds(&done) == kinds(&changes[..after]) {
                return Disk::read(&root);
            }
        }
        panic!("{command}: no run was killed {moment}");
    }

    fn resume(&self, command: &str, change: &str) -> Output {
        cloze().args(self.args(command, change)).arg("--resume").output().unwrap()
    }
}

/// Returns the configuration with one attention head in place of two.
fn changed(config: &str) -> String {
    let other = config.replace("attention_heads\":2", "attention_heads\":1");
    let other = other.replace("attention_heads\": 2", "attention_heads\": 1");
    assert_ne!(other, config);
    other
}

fn in_process(args: &[String]) {
    notes::keep();
    let words = std::iter::once("cloze".to_owned()).chain(args.iter().cloned());
    let done = Cli::try_parse_from(words).unwrap().work();
    done.unwrap_or_else(|e| panic!("{args:?}: {e}: {}", notes::keep()));
}

/// Returns the number of changes before a moment.
fn at(changes: &[Change], moment: &str) -> Option<usize> {
    let placed = |name: &'static str| {
        let is =
            move |change: &Change| matches!(change, Change::Rename(_, to) if to.ends_with(name));
        changes.iter().enumerate().filter(move |(_, change)| is(change)).map(|(at, _)| at)
    };
    let synced = |from: usize| {
        let is =
            |change: &Change| matches!(change, Change::SyncFolder(f) if f.ends_with("trainer"));
        Some(from + changes[from..].iter().position(is)? + 1)
    };
    let mut saves = placed("state.safetensors");
    match moment {
        "mid-epoch" => synced(saves.nth(1)?),
        "in evaluation" => match placed("best.safetensors").next() {
            Some(best) => Some(best),
            None => synced(saves.next()?),
        },
        "in a save" => saves.nth(1),
        _ => synced(placed("finished.json").next()?),
    }
}

pub fn check() {
    let is_reference = |(change, _): &(&str, _)| change.contains("reference");
    let (reference, others): (Vec<_>, Vec<_>) = TABLE.into_iter().partition(is_reference);
    let moments = ["mid-epoch", "in evaluation", "in a save", "between seeds"];
    let mut cells = check_rows(&Matrix::new(CONFIG), &others, &moments);
    // The reference engine has no smaller model than this, which is slow.
    let tiny = CONFIG.replace("size\":8", "size\":128").replace("size\":16", "size\":512");
    cells += check_rows(&Matrix::new(&tiny), &reference, &["mid-epoch", "between seeds"]);
    println!("{cells} cells");
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for (change, outcomes) in TABLE {
        let [pretrain, distill, finetune] = outcomes.map(Outcome::words);
        let row = format!("| {change} | {pretrain} | {distill} | {finetune} |");
        assert!(manual.contains(&row), "docs/reliability.md lacks the row {row}");
    }
}

/// Checks rows of the table at each of these moments. Returns the number of cells.
fn check_rows(matrix: &Matrix, rows: &[(&str, [Outcome; 3])], moments: &[&str]) -> usize {
    let mut wrong = Vec::new();
    let mut cells = 0;
    for (column, command) in COMMANDS.into_iter().enumerate() {
        remove(&matrix.place.root());
        in_process(&matrix.args(command, ""));
        let expected = matrix.place.result();
        // Only `finetune` has seeds.
        let has = |moment: &&&str| command == "finetune" || **moment != "between seeds";
        for moment in moments.iter().filter(has) {
            let disk = matrix.killed(command, moment);
            for (change, outcomes) in rows {
                cells += 1;
                disk.write(&matrix.place.root());
                let output = matrix.resume(command, change);
                let message = stderr(&output);
                let same = matrix.place.result() == expected;
                let found = match output.status.code() {
                    Some(0) if message.contains("from here on") => Some(Reported),
                    Some(0) if same => Some(Same),
                    Some(1 | 2) if !message.contains("panicked") => Some(Refused),
                    _ => None,
                };
                if found != Some(outcomes[column]) {
                    wrong.push(format!("{command} {moment}, {change}: {found:?}: {message}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cells
}
