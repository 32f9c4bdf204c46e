//! What must not be lost, and what must not happen without a word: saves, folders, signals and
//! resumed runs, through the command.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::pretraining::{corpus, run};
use common::{
    cloze, fails, json, sentence, signal, started, stderr, succeeds, text, tiny, wait_for,
};

/// A folder with a text and a place for a model.
struct Place {
    folder: tempfile::TempDir,
    corpus: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let corpus = corpus(folder.path());
        Self { folder, corpus }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn args(&self, out: &str, steps: &str, more: &[&str]) -> Vec<String> {
        let out = self.path(out);
        let all = run(&self.corpus, &out, steps);
        let all = all.iter().chain(more).map(|word| (*word).to_owned());
        all.collect()
    }

    fn pretrain(&self, out: &str, steps: &str, more: &[&str]) -> Output {
        succeeds(&words(&self.args(out, steps, more)))
    }

    fn refused(&self, out: &str, steps: &str, more: &[&str], code: i32) -> String {
        fails(&words(&self.args(out, steps, more)), code)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// A set for `finetune sst-2`.
    fn sentiment(&self) -> PathBuf {
        let data = self.path("data");
        fs::create_dir_all(&data).unwrap();
        let rows = (0..24).map(|i| {
            let (word, label) = [("good", 1), ("bad", 0)][i % 2];
            format!("the number {i} was {word}\t{label}\n")
        });
        let rows: String = std::iter::once("sentence\tlabel\n".to_owned())
            .chain(rows)
            .collect();
        for name in ["train.tsv", "dev.tsv"] {
            fs::write(data.join(name), &rows).unwrap();
        }
        data
    }

    fn finetune(&self, out: &str, more: &[&str]) -> Vec<String> {
        let (data, out) = (self.sentiment(), self.path(out));
        let args = ["finetune", "sst-2", "--model", text(tiny()), "--json"];
        let place = ["--data", text(&data), "--out", text(&out), "--lr", "1e-3"];
        let all = args.iter().chain(&place).chain(more);
        all.map(|word| (*word).to_owned()).collect()
    }
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Whether the run in `out` has done steps.
fn has_trained(out: &Path) -> bool {
    let metrics = fs::read_to_string(out.join("trainer/metrics.jsonl"));
    metrics.is_ok_and(|text| text.lines().count() > 2)
}

/// The weights used to keep the mode of a temporary file, which nobody else may read.
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
        let saved = [
            "config.json",
            "model.safetensors",
            "trainer/state.safetensors",
            "vocab.txt",
        ];
        for name in saved {
            let metadata = fs::metadata(place.path("model").join(name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
        }
    }
}

#[test]
fn an_overwritten_run_does_not_come_back() {
    let place = Place::new();
    place.pretrain("model", "6", &[]);
    let (out, state) = (
        place.path("model"),
        place.path("model/trainer/state.safetensors"),
    );
    let before = place.read("model/model.safetensors");
    let more = ["--overwrite", "--save-every", "0", "--lr", "1e-4"];
    fs::remove_file(out.join("trainer/metrics.jsonl")).unwrap();
    let args = place.args("model", "100000", &more);
    let mut child = started(&words(&args));
    wait_for(|| has_trained(&out));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!state.exists(), "the old run's state");
    let told = place.refused("model", "100000", &["--resume"], 2);
    assert!(told.contains("no run that could be resumed"), "{told}");
    // Its model stands until there is another.
    assert!(place.read("model/model.safetensors") == before);
    let model = place.path("model");
    succeeds(&["fill-mask", "--model", text(&model), "a [MASK]"]);

    // The same of fine-tuning.
    let args = place.finetune("tuned", &["--epochs", "500", "--save-every", "1"]);
    let state = place.path("tuned/trainer/state.safetensors");
    let mut child = started(&words(&args));
    wait_for(|| state.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let args = place.finetune("tuned", &["--epochs", "500", "--overwrite"]);
    let metrics = place.path("tuned/trainer/metrics.jsonl");
    fs::remove_file(metrics).unwrap();
    let mut child = started(&words(&args));
    wait_for(|| has_trained(&place.path("tuned")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!state.exists(), "the old run's state");
}

#[test]
fn files_of_two_models_are_not_one_model() {
    let place = Place::new();
    place.pretrain("a", "2", &[]);
    let ask = |model: &str| {
        let model = place.path(model);
        let args = ["fill-mask", "--model", text(&model), "the [MASK]"];
        cloze().args(args).output().unwrap()
    };
    let whole = ask("a");
    assert!(whole.status.success());
    // Another vocabulary of as many pieces.
    let tokenizer = String::from_utf8(place.read("a/tokenizer.json")).unwrap();
    let vocabulary = String::from_utf8(place.read("a/vocab.txt")).unwrap();
    let swapped = |text: &str| {
        let text = text.replace("\"monday\"", "\"@\"");
        text.replace("\"friday\"", "\"monday\"")
            .replace("\"@\"", "\"friday\"")
    };
    assert_ne!(swapped(&tokenizer), tokenizer);
    fs::write(place.path("a/tokenizer.json"), swapped(&tokenizer)).unwrap();
    let told = sentence(&ask("a"), 1);
    let expected = "a/model.safetensors: was saved with another vocabulary";
    assert!(told.contains(expected), "{told}");
    fs::write(place.path("a/tokenizer.json"), &tokenizer).unwrap();
    assert_eq!(ask("a").stdout, whole.stdout);
    assert!(vocabulary.contains("monday\n"));

    // A configuration with the same tensors, and one that is not asked about weights at all.
    let config = String::from_utf8(place.read("a/config.json")).unwrap();
    let heads = config.replace("\"num_attention_heads\": 2", "\"num_attention_heads\": 4");
    assert_ne!(heads, config);
    fs::write(place.path("a/config.json"), &heads).unwrap();
    let told = sentence(&ask("a"), 1);
    assert!(
        told.contains("was saved with another config.json"),
        "{told}"
    );
    let (a, accepted) = (place.path("a"), place.path("accepted"));
    let told = fails(&["convert", text(&a), text(&accepted)], 1);
    assert!(told.contains("--accept-changes"), "{told}");
    succeeds(&["convert", "--accept-changes", text(&a), text(&accepted)]);
    assert!(ask("accepted").status.success());
    let dropout = config.replace("_dropout_prob\": 0.0", "_dropout_prob\": 0.2");
    assert_ne!(dropout, config);
    fs::write(place.path("a/config.json"), &dropout).unwrap();
    assert_eq!(ask("a").stdout, whole.stdout);

    // What transformers writes has no checksums, and is taken as it is.
    fs::write(place.path("a/config.json"), &heads).unwrap();
    let weights = place.read("a/model.safetensors");
    let tensors = safetensors::SafeTensors::deserialize(&weights).unwrap();
    safetensors::serialize_to_file(tensors.tensors(), None, &a.join("model.safetensors")).unwrap();
    assert!(ask("a").status.success());
}

#[test]
fn a_run_goes_on_with_the_model_that_it_began_with() {
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
    let told = place.refused("model", "4", &["--size", text(&four), "--resume"], 2);
    assert!(
        told.contains("the model was 2 layers") && told.contains("4 heads"),
        "{told}"
    );
    place.pretrain("model", "4", &["--size", text(&two), "--resume"]);
}

/// A command that is killed between the list of its finished runs and the removal of the last one's
/// state leaves both.
#[test]
fn a_finished_run_is_not_locked_out_by_its_own_state() {
    let place = Place::new();
    let usual = ["--epochs", "30", "--save-every", "1"];
    let stopped = |out: &str, more: &[&str], until: &str| {
        let args = place.finetune(out, &[&usual, more].concat());
        let child = started(&words(&args));
        wait_for(|| place.path(out).join(until).exists());
        signal(&child, "-INT");
        assert!(child.wait_with_output().unwrap().status.success());
    };
    let state = "trainer/state.safetensors";
    stopped("alone", &[], state);
    stopped("two", &["--seeds", "2"], "trainer/finished.json");
    fs::copy(
        place.path("alone").join(state),
        place.path("two").join(state),
    )
    .unwrap();
    let more = [&usual[..], &["--seeds", "2", "--resume"]].concat();
    let done = json(&succeeds(&words(&place.finetune("two", &more))));
    assert_eq!(done["runs"].as_array().unwrap().len(), 2);
    // Done with all of them, and the last state left.
    fs::copy(
        place.path("alone").join(state),
        place.path("two").join(state),
    )
    .unwrap();
    let again = json(&succeeds(&words(&place.finetune("two", &more))));
    assert_eq!(again, done);
    assert!(!place.path("two").join(state).exists());
}

#[test]
fn one_run_at_a_time_uses_a_folder() {
    let place = Place::new();
    let args = place.args("model", "100000", &["--save-every", "3"]);
    let mut first = started(&words(&args));
    wait_for(|| place.path("model/trainer/state.safetensors").exists());
    for more in ["--resume", "--overwrite"] {
        let told = place.refused("model", "100000", &[more], 2);
        let own = format!("in use by another run (process {})", first.id());
        assert!(told.contains(&own), "{told}");
    }
    let told = fails(&words(&place.finetune("model", &["--overwrite"])), 2);
    assert!(told.contains("in use by another run"), "{told}");
    assert!(first.try_wait().unwrap().is_none(), "the first goes on");
    first.kill().unwrap();
    first.wait().unwrap();
    // The lock died with its process. What the kill left unfinished goes with the next run.
    let left = ["model/.cloze-a1b2c3", "model/trainer/.tmpA1b2C3"].map(|name| place.path(name));
    left.iter()
        .for_each(|path| fs::write(path, "half").unwrap());
    let state = place.read("model/trainer/state.safetensors");
    let step = step_of(&state) + 1;
    place.pretrain("model", &step.to_string(), &["--resume"]);
    assert!(left.iter().all(|path| !path.exists()));
}

/// The step of a state file, by its header.
fn step_of(state: &[u8]) -> u64 {
    let (_, header) = safetensors::SafeTensors::read_metadata(state).unwrap();
    let entry = &header.metadata().as_ref().unwrap()["state"];
    let entry: serde_json::Value = serde_json::from_str(entry).unwrap();
    entry["step"].as_u64().unwrap()
}

#[test]
fn a_run_that_diverges_keeps_the_state_before() {
    let place = Place::new();
    place.pretrain("model", "3", &[]);
    let files = ["model/model.safetensors", "model/trainer/state.safetensors"];
    let before = files.map(|name| place.read(name));
    let each = ["--eval-every", "1", "--save-every", "1", "--warmup", "0"];
    let high = [&each[..], &["--lr", "1e30", "--resume"]].concat();
    let told = place.refused("model", "6", &high, 1);
    assert!(
        told.contains("held-out documents is not a number") && told.contains("not saved"),
        "{told}"
    );
    assert!(files.map(|name| place.read(name)) == before);
    place.pretrain("model", "4", &[&each[..], &["--resume"]].concat());

    // Alone, it leaves nothing that could not be read.
    let high = [&each[..], &["--lr", "1e30"]].concat();
    place.refused("alone", "6", &high, 1);
    place.pretrain("alone", "2", &["--resume"]);
}

/// `cloze pretrain … 2>&1 | head -1`: nobody reads what is said from there on.
#[test]
fn a_closed_stderr_ends_no_run() {
    let place = Place::new();
    let args = [
        place.args("model", "30", &["--eval-every", "1"]),
        place.finetune("tuned", &["--epochs", "2", "--eval-epochs"]),
    ];
    for args in args {
        let mut child = started(&words(&args));
        drop(child.stderr.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert_eq!(json(&output)["stopped"], false);
    }
}

#[test]
fn a_finished_model_is_not_replaced_unasked() {
    let place = Place::new();
    let train = |more: &[&str]| place.finetune("out", &[&["--epochs", "1"], more].concat());
    succeeds(&words(&train(&[])));
    let before = place.read("out/model.safetensors");
    let told = fails(&words(&train(&["--seed", "2"])), 2);
    let expected = "already holds a model: give --overwrite to replace it";
    assert!(told.contains(expected), "{told}");
    // A model that no run of fine-tuning left is not replaced by --resume either.
    place.pretrain("base", "1", &[]);
    fs::remove_file(place.path("base/trainer/state.safetensors")).unwrap();
    let base = place.read("base/model.safetensors");
    let args = place.finetune("base", &["--resume"]);
    let told = fails(&words(&args), 2);
    assert!(told.contains("no run that could be resumed"), "{told}");
    assert!(place.read("base/model.safetensors") == base);
    assert!(place.read("out/model.safetensors") == before);
    succeeds(&words(&train(&["--seed", "2", "--overwrite"])));
    assert!(place.read("out/model.safetensors") != before);
}

/// A folder of somebody else is found before the training, and not when there is something to lose.
#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_refused_before_the_first_step() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let nobody = 65_534;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.folder.path(), all.clone()).unwrap();
    // A copy that everybody may run, and a model that everybody may read.
    let program = place.path("cloze");
    fs::copy(env!("CARGO_BIN_EXE_cloze"), &program).unwrap();
    let model = place.path("base");
    place.pretrain("base", "1", &[]);
    fs::create_dir_all(place.path("out/trainer")).unwrap();
    for locked in ["out/trainer", "out"] {
        fs::set_permissions(place.path(locked), fs::Permissions::from_mode(0o555)).unwrap();
        let (data, out) = (place.sentiment(), place.path("out"));
        let mut command = Command::new(&program);
        command.args(["finetune", "sst-2", "--model", text(&model)]);
        command.args(["--data", text(&data), "--out", text(&out)]);
        // To the superuser every folder is open.
        let root = Command::new("id").arg("-u").output().unwrap();
        if root.stdout.starts_with(b"0\n") {
            command.uid(nobody).gid(nobody);
        }
        let output = command.output().unwrap();
        let told = sentence(&output, 1);
        assert!(told.contains(locked) && told.contains("denied"), "{told}");
        assert!(!stderr(&output).contains("steps"), "{}", stderr(&output));
        let files = fs::read_dir(place.path("out/trainer")).unwrap();
        assert_eq!(files.count(), 0, "nothing was begun");
    }
    for locked in ["out", "out/trainer"] {
        fs::set_permissions(place.path(locked), all.clone()).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_terminal_stops_a_run_with_a_checkpoint_and_nohup_goes_on() {
    let place = Place::new();
    let args = place.args("model", "100000", &["--save-every", "0"]);
    let child = started(&words(&args));
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
    // A run that obeyed would have ended long before.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "SIGHUP ended it");
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(json(&output)["stopped"], true);
    let told = stderr(&output);
    assert_eq!(
        told.matches("stopping after this step").count(),
        1,
        "{told}"
    );
}

#[test]
fn what_changes_the_last_bits_is_reported_when_a_run_goes_on() {
    let place = Place::new();
    place.pretrain("model", "2", &[]);
    let told = stderr(&place.pretrain("model", "4", &["--resume"]));
    assert!(!told.contains("last bits"), "{told}");
    let told = stderr(&place.pretrain("model", "6", &["--resume", "--micro-batch", "4"]));
    let expected = "--micro-batch was the whole batch and is 4 from here on: the last bits differ";
    assert!(told.contains(expected), "{told}");
    let told = stderr(&place.pretrain("model", "7", &["--resume", "--backend", "reference"]));
    assert!(
        told.contains("the engine was cpu and is reference from here on"),
        "{told}"
    );
    // Fine-tuning reports it too.
    let usual = ["--epochs", "300", "--save-every", "1"];
    let args = place.finetune("tuned", &usual);
    let child = started(&words(&args));
    wait_for(|| place.path("tuned/trainer/state.safetensors").exists());
    signal(&child, "-INT");
    assert!(child.wait_with_output().unwrap().status.success());
    let more = [&usual[..], &["--resume", "--micro-batch", "7"]].concat();
    let child = started(&words(&place.finetune("tuned", &more)));
    signal_after_start(&child, &place.path("tuned"));
    let told = stderr(&child.wait_with_output().unwrap());
    assert!(
        told.contains("--micro-batch was the whole batch and is 7"),
        "{told}"
    );
}

/// Stops a resumed run as soon as it can be stopped with a checkpoint.
fn signal_after_start(child: &std::process::Child, out: &Path) {
    let lines = || {
        let metrics = fs::read_to_string(out.join("trainer/metrics.jsonl"));
        metrics.map_or(0, |text| text.lines().count())
    };
    let before = lines();
    wait_for(|| lines() > before);
    signal(child, "-INT");
}

/// A name or a line of a file that holds an escape sequence is shown, and the terminal does not obey.
#[test]
fn messages_do_not_steer_the_terminal() {
    let place = Place::new();
    let name = "\u{1b}]0;title\u{7}\u{1b}[2J.txt";
    let told = fails(&["tokenize", "--vocab", name], 1);
    assert!(
        told.contains("\\u{1b}]0;title\\u{7}\\u{1b}[2J.txt"),
        "{told}"
    );
    let file = place.path("rows.tsv");
    fs::write(&file, "text\tlabel\nfine\tgood\nfine\t\u{1b}[31mbad\n").unwrap();
    let out = place.path("out");
    let files = ["--train", text(&file), "--dev", text(&file)];
    let columns = ["--columns", "text,\u{1b}[31mlabel", "--out", text(&out)];
    let output = cloze()
        .args(["finetune", "custom"])
        .args(files)
        .args(columns)
        .output()
        .unwrap();
    assert!(!output.status.success() && !output.stderr.contains(&0x1b));
}

/// docs/reliability.md says so.
#[test]
fn threads_change_no_bit() {
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
        succeeds(&words(&place.finetune(threads, &more(threads))));
        place.read(&format!("{threads}/model.safetensors"))
    });
    assert!(tuned[0] == tuned[1]);
}
