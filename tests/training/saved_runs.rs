//! Saved files, folders in use, signals and resumed runs: nothing is lost, and nothing is replaced without being
//! asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::pretraining::{corpus, run};
use crate::common::{
    Folder, assert_contains, cloze, error_line, fails, interrupted, json, killed, signal, started,
    stderr, succeeds, text, wait_for,
};
use crate::opinions;

/// A folder with a corpus, data for `finetune sst-2` and places for models.
struct Place {
    folder: Folder,
    corpus: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = Folder::new();
        for name in ["train.tsv", "dev.tsv"] {
            folder.write(name, &opinions(0..24, false));
        }
        let corpus = corpus(folder.0.path());
        Self { folder, corpus }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    fn args(&self, out: &str, steps: &str, more: &[&str]) -> Vec<String> {
        let out = self.path(out);
        let all = run(&self.corpus, &out, steps);
        let all = all.iter().chain(more).map(|word| (*word).to_owned());
        all.collect()
    }

    fn pretrain(&self, out: &str, steps: &str, more: &[&str]) -> Output {
        succeeds(self.args(out, steps, more))
    }

    fn refused(&self, out: &str, steps: &str, more: &[&str], code: i32) -> String {
        fails(self.args(out, steps, more), code)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn finetune(&self, out: &str, more: &[&str]) -> Vec<String> {
        self.folder.finetune_into(out, "sst-2", more)
    }
}

/// Returns whether the run in `out` has trained for some steps.
fn has_trained(out: &Path) -> bool {
    let metrics = fs::read_to_string(out.join("trainer/metrics.jsonl"));
    metrics.is_ok_and(|text| text.lines().count() > 2)
}

/// Files are written as temporary ones, which nobody else may read, and renamed.
#[cfg(unix)]
#[test]
fn saved_files_obey_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let args = place.args("model", "2", &[]);
    for (mask, mode) in [("022", 0o644), ("027", 0o640)] {
        let script = format!("umask {mask}; exec \"$@\"");
        let status = Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_cloze")])
            .args(&args)
            .arg("--overwrite")
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", stderr(&status));
        let saved = "config.json model.safetensors trainer/state.safetensors vocab.txt";
        for name in saved.split(' ') {
            let metadata = fs::metadata(place.path("model").join(name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
        }
    }
}

#[test]
fn an_overwritten_run_does_not_come_back() {
    let place = Place::new();
    place.pretrain("model", "6", &[]);
    let (out, state) = (place.path("model"), "model/trainer/state.safetensors");
    let state = place.path(state);
    let before = place.read("model/model.safetensors");
    let more = ["--overwrite", "--save-every", "0", "--lr", "1e-4"];
    fs::remove_file(out.join("trainer/metrics.jsonl")).unwrap();
    killed(place.args("model", "100000", &more), || has_trained(&out));
    assert!(!state.exists(), "the old run's state");
    let message = place.refused("model", "100000", &["--resume"], 2);
    assert_contains(&message, "no run that could be resumed");
    // The old model stays until there is a new one.
    assert!(place.read("model/model.safetensors") == before);
    succeeds(["fill-mask", "--model", text(&out), "a [MASK]"]);

    // The same for fine-tuning.
    let args = place.finetune("tuned", &["--epochs", "500", "--save-every", "1"]);
    let state = place.path("tuned/trainer/state.safetensors");
    killed(args, || state.exists());
    let args = place.finetune("tuned", &["--epochs", "500", "--overwrite"]);
    fs::remove_file(place.path("tuned/trainer/metrics.jsonl")).unwrap();
    killed(args, || has_trained(&place.path("tuned")));
    assert!(!state.exists(), "the old run's state");
}

#[test]
fn files_of_two_models_are_refused() {
    let place = Place::new();
    place.pretrain("a", "2", &[]);
    let ask = |model: &str| {
        let model = place.path(model);
        let args = ["fill-mask", "--model", text(&model), "the [MASK]"];
        cloze().args(args).output().unwrap()
    };
    let whole = ask("a");
    assert!(whole.status.success());
    // Another vocabulary of the same size.
    let tokenizer = String::from_utf8(place.read("a/tokenizer.json")).unwrap();
    let vocabulary = String::from_utf8(place.read("a/vocab.txt")).unwrap();
    let swapped = |text: &str| {
        let text = text.replace("\"monday\"", "\"@\"");
        text.replace("\"friday\"", "\"monday\"").replace("\"@\"", "\"friday\"")
    };
    assert_ne!(swapped(&tokenizer), tokenizer);
    fs::write(place.path("a/tokenizer.json"), swapped(&tokenizer)).unwrap();
    let message = error_line(&ask("a"), 1);
    let expected = "a/model.safetensors: was saved with another vocabulary";
    assert_contains(&message, expected);
    fs::write(place.path("a/tokenizer.json"), &tokenizer).unwrap();
    assert_eq!(ask("a").stdout, whole.stdout);
    assert!(vocabulary.contains("monday\n"));

    // A changed configuration with the same tensors is refused; a dropout does not concern the weights.
    let config = String::from_utf8(place.read("a/config.json")).unwrap();
    let heads = config.replace("\"num_attention_heads\": 2", "\"num_attention_heads\": 4");
    assert_ne!(heads, config);
    fs::write(place.path("a/config.json"), &heads).unwrap();
    let message = error_line(&ask("a"), 1);
    assert_contains(&message, "was saved with another config.json");
    let (a, accepted) = (place.path("a"), place.path("accepted"));
    let message = fails(["convert", text(&a), text(&accepted)], 1);
    assert_contains(&message, "--accept-changes");
    succeeds(["convert", "--accept-changes", text(&a), text(&accepted)]);
    assert!(ask("accepted").status.success());
    let dropout = config.replace("_dropout_prob\": 0.0", "_dropout_prob\": 0.2");
    assert_ne!(dropout, config);
    fs::write(place.path("a/config.json"), &dropout).unwrap();
    assert_eq!(ask("a").stdout, whole.stdout);

    // Files of transformers have no checksums and are accepted.
    fs::write(place.path("a/config.json"), &heads).unwrap();
    let weights = place.read("a/model.safetensors");
    let tensors = safetensors::SafeTensors::deserialize(&weights).unwrap();
    safetensors::serialize_to_file(tensors.tensors(), None, &a.join("model.safetensors")).unwrap();
    assert!(ask("a").status.success());
}

#[test]
fn a_run_is_resumed_with_its_own_model() {
    let place = Place::new();
    place.pretrain("first", "2", &[]);
    let config = String::from_utf8(place.read("first/config.json")).unwrap();
    let file = |heads: &str| {
        let path = place.path(&format!("heads-{heads}.json"));
        let from = "\"num_attention_heads\": 2";
        let to = format!("\"num_attention_heads\": {heads}");
        fs::write(&path, config.replace(from, &to)).unwrap();
        path
    };
    let (two, four) = (file("2"), file("4"));
    place.pretrain("model", "2", &["--size", text(&two)]);
    let message = place.refused("model", "4", &["--size", text(&four), "--resume"], 2);
    assert_contains(&message, "the model was 2 layers");
    assert_contains(&message, "4 heads");
    place.pretrain("model", "4", &["--size", text(&two), "--resume"]);
}

/// A command that is killed after it listed a finished run and before it removed that run's state leaves both.
#[test]
fn a_finished_run_is_not_blocked_by_its_own_state() {
    let place = Place::new();
    let usual = ["--epochs", "30", "--save-every", "1"];
    let stopped = |out: &str, more: &[&str], until: &str| {
        let args = place.finetune(out, &[&usual, more].concat());
        interrupted(args, || place.path(out).join(until).exists());
    };
    let state = "trainer/state.safetensors";
    let [from, to] = ["alone", "two"].map(|out| place.path(out).join(state));
    let put_back = || fs::copy(&from, &to).unwrap();
    stopped("alone", &[], state);
    stopped("two", &["--seeds", "2"], "trainer/finished.json");
    put_back();
    let more = [&usual[..], &["--seeds", "2", "--resume"]].concat();
    let done = json(&succeeds(place.finetune("two", &more)));
    assert_eq!(done["runs"].as_array().unwrap().len(), 2);
    // All runs have finished, and the last state is left.
    put_back();
    let again = json(&succeeds(place.finetune("two", &more)));
    assert_eq!(again, done);
    assert!(!to.exists());
}

#[test]
fn only_one_run_at_a_time_uses_a_folder() {
    let place = Place::new();
    let args = place.args("model", "100000", &["--save-every", "3"]);
    let mut first = started(&args);
    wait_for(|| place.path("model/trainer/state.safetensors").exists());
    for more in ["--resume", "--overwrite"] {
        let message = place.refused("model", "100000", &[more], 2);
        let own = format!("in use by another run (process {})", first.id());
        assert_contains(&message, &own);
    }
    let message = fails(place.finetune("model", &["--overwrite"]), 2);
    assert_contains(&message, "in use by another run");
    assert!(first.try_wait().unwrap().is_none(), "the first continues");
    first.kill().unwrap();
    first.wait().unwrap();
    // The lock ended with its process. The next run removes unfinished files.
    let left = ["model/.cloze-a1b2c3", "model/trainer/.tmpA1b2C3"].map(|name| place.path(name));
    for path in &left {
        fs::write(path, "half").unwrap();
    }
    // A run that was killed between the two renames of a save has only the older state.
    let mut states =
        ["state", "previous"].map(|name| format!("model/trainer/{name}.safetensors")).into_iter();
    let newest = states.find(|name| place.path(name).exists()).expect("one is always there");
    let step = step_of(&place.read(&newest)) + 1;
    place.pretrain("model", &step.to_string(), &["--resume"]);
    assert!(left.iter().all(|path| !path.exists()));
}

/// Returns the step in the header of a state file.
fn step_of(state: &[u8]) -> u64 {
    let (_, header) = safetensors::SafeTensors::read_metadata(state).unwrap();
    let entry = &header.metadata().as_ref().unwrap()["state"];
    let entry: serde_json::Value = serde_json::from_str(entry).unwrap();
    entry["step"].as_u64().unwrap()
}

#[test]
fn a_run_that_diverges_keeps_the_last_good_state() {
    let place = Place::new();
    place.pretrain("model", "3", &[]);
    let files = ["model/model.safetensors", "model/trainer/state.safetensors"];
    let before = files.map(|name| place.read(name));
    let each = ["--eval-every", "1", "--save-every", "1", "--warmup", "0"];
    let high = [&each[..], &["--lr", "1e30", "--resume"]].concat();
    let message = place.refused("model", "6", &high, 1);
    assert_contains(&message, "held-out documents is not a number");
    assert_contains(&message, "not saved");
    assert!(files.map(|name| place.read(name)) == before);
    place.pretrain("model", "4", &[&each[..], &["--resume"]].concat());

    // A new run that diverges leaves nothing unreadable.
    let high = [&each[..], &["--lr", "1e30"]].concat();
    place.refused("alone", "6", &high, 1);
    place.pretrain("alone", "2", &["--resume"]);
}

/// As in `cloze pretrain … 2>&1 | head -1`.
#[test]
fn a_closed_stderr_does_not_end_a_run() {
    let place = Place::new();
    let args = [
        place.args("model", "30", &["--eval-every", "1"]),
        place.finetune("tuned", &["--epochs", "2", "--eval-epochs"]),
    ];
    for args in args {
        let mut child = started(&args);
        drop(child.stderr.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert_eq!(json(&output)["stopped"], false);
    }
}

#[test]
fn a_finished_model_is_replaced_only_on_request() {
    let place = Place::new();
    let train = |more: &[&str]| place.finetune("out", &[&["--epochs", "1"], more].concat());
    succeeds(train(&[]));
    let before = place.read("out/model.safetensors");
    let message = fails(train(&["--seed", "2"]), 2);
    let expected = "already holds a model: give --overwrite to replace it";
    assert_contains(&message, expected);
    // --resume replaces no model that did not come from fine-tuning either.
    place.pretrain("base", "1", &[]);
    fs::remove_file(place.path("base/trainer/state.safetensors")).unwrap();
    let base = place.read("base/model.safetensors");
    let args = place.finetune("base", &["--resume"]);
    let message = fails(&args, 2);
    assert_contains(&message, "no run that could be resumed");
    assert!(place.read("base/model.safetensors") == base);
    assert!(place.read("out/model.safetensors") == before);
    succeeds(train(&["--seed", "2", "--overwrite"]));
    assert!(place.read("out/model.safetensors") != before);
}

/// Otherwise the training would be lost when its result is saved.
#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_refused_before_the_first_step() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let nobody = 65_534;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.folder.0.path(), all.clone()).unwrap();
    // A program that everybody may run, and a model that everybody may read.
    let program = place.path("cloze");
    fs::copy(env!("CARGO_BIN_EXE_cloze"), &program).unwrap();
    let model = place.path("base");
    place.pretrain("base", "1", &[]);
    fs::create_dir_all(place.path("out/trainer")).unwrap();
    for locked in ["out/trainer", "out"] {
        fs::set_permissions(place.path(locked), fs::Permissions::from_mode(0o555)).unwrap();
        let (data, out) = (place.folder.0.path(), place.path("out"));
        let mut command = Command::new(&program);
        command.args(["finetune", "sst-2", "--model", text(&model)]);
        command.args(["--data", text(data), "--out", text(&out)]);
        // The superuser may write to every folder.
        let root = Command::new("id").arg("-u").output().unwrap();
        if root.stdout.starts_with(b"0\n") {
            command.uid(nobody).gid(nobody);
        }
        let output = command.output().unwrap();
        let message = error_line(&output, 1);
        assert_contains(&message, locked);
        assert_contains(&message, "denied");
        assert!(!stderr(&output).contains("steps"), "{}", stderr(&output));
        let files = fs::read_dir(place.path("out/trainer")).unwrap();
        assert_eq!(files.count(), 0, "nothing was started");
    }
    for locked in ["out", "out/trainer"] {
        fs::set_permissions(place.path(locked), all.clone()).unwrap();
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "a closed terminal ends a run at once on macOS")]
fn a_closed_terminal_stops_a_run_with_a_checkpoint_but_not_under_nohup() {
    let place = Place::new();
    let args = place.args("model", "100000", &["--save-every", "0"]);
    // These tests may run under nohup themselves.
    let child = Command::new("env")
        .arg("--default-signal=HUP")
        .arg(env!("CARGO_BIN_EXE_cloze"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(|| has_trained(&place.path("model")));
    signal(&child, "-HUP");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&output)["stopped"], true);
    assert!(place.path("model/trainer/state.safetensors").exists());

    let args = place.args("other", "100000", &["--save-every", "0"]);
    let mut child = Command::new("nohup")
        .arg(env!("CARGO_BIN_EXE_cloze"))
        .args(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(|| has_trained(&place.path("other")));
    signal(&child, "-HUP");
    // A run that obeyed the signal would have ended by now.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "SIGHUP ended it");
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(json(&output)["stopped"], true);
    let message = stderr(&output);
    assert_eq!(message.matches("stopping after this step").count(), 1, "{message}");
}

#[test]
fn a_resumed_run_reports_what_changes_the_last_bits() {
    let place = Place::new();
    place.pretrain("model", "2", &[]);
    let message = stderr(&place.pretrain("model", "4", &["--resume"]));
    assert!(!message.contains("last bits"), "{message}");
    let message = stderr(&place.pretrain("model", "6", &["--resume", "--micro-batch", "4"]));
    let expected =
        "the micro-batch was the whole batch and is 4 from here on: the last bits differ";
    assert_contains(&message, expected);
    let message = stderr(&place.pretrain("model", "7", &["--resume", "--backend", "reference"]));
    assert_contains(&message, "the engine was cpu and is reference from here on");
    // The same for fine-tuning.
    let usual = ["--epochs", "300", "--save-every", "1"];
    let state = place.path("tuned/trainer/state.safetensors");
    interrupted(place.finetune("tuned", &usual), || state.exists());
    let more = [&usual[..], &["--resume", "--micro-batch", "7"]].concat();
    let lines = || {
        let metrics = fs::read_to_string(place.path("tuned/trainer/metrics.jsonl"));
        metrics.map_or(0, |text| text.lines().count())
    };
    let before = lines();
    let output = interrupted(place.finetune("tuned", &more), || lines() > before);
    let expected = "the micro-batch was the whole batch and is 7";
    assert_contains(&stderr(&output), expected);
}

/// As docs/reliability.md promises.
#[test]
fn the_number_of_threads_changes_no_bit() {
    let place = Place::new();
    for dtype in ["f32", "bf16"] {
        let trained = ["1", "2", "3", "7"].map(|threads| {
            let name = format!("{dtype}-{threads}");
            let more = ["--dtype", dtype, "--threads", threads];
            place.pretrain(&name, "12", &more);
            place.read(&format!("{name}/model.safetensors"))
        });
        assert!(trained.iter().all(|model| *model == trained[0]), "{dtype}");
    }
    let more = |threads| ["--epochs", "1", "--threads", threads];
    let tuned = ["1", "3"].map(|threads| {
        succeeds(place.finetune(threads, &more(threads)));
        place.read(&format!("{threads}/model.safetensors"))
    });
    assert!(tuned[0] == tuned[1]);
}
