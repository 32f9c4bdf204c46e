//! Data sets of the Hugging Face Hub by name, from a server with the Hub's addresses and headers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use cloze::download::Digest;
use serde_json::{Value, json};

use crate::common::{
    Folder, assert_contains, copy_of, error_line, fixture, json as printed, stderr, text,
};
use crate::server::{Request, Response, Server};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const API: &str = "/api/datasets/org/set/revision/main";

/// The repository `org/set`, its files in a folder.
struct Hub {
    server: Server,
    folder: Folder,
    /// What the server does with the next transfer: aborts it after this many bytes.
    cut: Arc<Mutex<Option<usize>>>,
    card: Arc<Mutex<Value>>,
    home: Folder,
}

/// Returns the names of the files below `folder`.
fn names(folder: &Path, below: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join(below)).unwrap();
    let mut all = Vec::new();
    for entry in entries.map(Result::unwrap) {
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        match entry.path().is_dir() {
            true => all.extend(names(folder, &format!("{name}/"))),
            false => all.push(name),
        }
    }
    all
}

impl Hub {
    fn new(files: &[(&str, &str)]) -> Self {
        let hub = Self::of(Folder::new());
        for (name, content) in files {
            let path = hub.folder.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        hub
    }

    fn of(folder: Folder) -> Self {
        let (cut, card) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Value::Null)));
        let (path, own) = (folder.0.path().to_owned(), (cut.clone(), card.clone()));
        let server = Server::start(move |request| {
            answer(request, &path, &mut own.0.lock().unwrap(), &own.1.lock().unwrap())
        });
        Self { server, folder, cut, card, home: Folder::new() }
    }

    /// Returns `finetune custom` of the smallest model on texts and labels.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.server.as_hub(self.home.0.path());
        let args = ["finetune", "custom", "--columns", "text,label", "--epochs", "1", "--json"];
        command.args(args).args(["--overwrite", "--out", text(&self.home.path("out"))]).args(more);
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// Returns the names of the files that were transferred.
    fn transferred(&self) -> Vec<String> {
        let asked = self.server.requests().into_iter().filter(|asked| asked.method == "GET");
        let below = format!("/datasets/org/set/resolve/{COMMIT}/");
        asked.filter_map(|asked| Some(asked.path.strip_prefix(&below)?.to_owned())).collect()
    }
}

fn answer(request: &Request, folder: &Path, cut: &mut Option<usize>, card: &Value) -> Response {
    if request.path == API {
        let files = names(folder, "").into_iter().map(|name| json!({"rfilename": name}));
        let siblings: Vec<Value> = files.collect();
        let info = json!({"id": "org/set", "sha": COMMIT, "siblings": siblings, "cardData": card});
        return Response::new(200, info.to_string());
    }
    let below = format!("/datasets/org/set/resolve/{COMMIT}/");
    let Some(name) = request.path.strip_prefix(&below) else {
        return Response::new(401, "{}");
    };
    let path: PathBuf = folder.join(name);
    let response = Response::ranged(request, &std::fs::read(&path).unwrap());
    let response = match request.method.as_str() {
        "HEAD" => response,
        _ => match cut.take() {
            Some(bytes) => response.cut_after(bytes),
            None => response,
        },
    };
    let etag = Digest::GitBlob("").of(&path).unwrap();
    response.with("X-Repo-Commit", COMMIT).with("ETag", &format!("\"{etag}\""))
}

fn result(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    printed(output)
}

const TRAIN: &str = "text,label\na good day,yes\na bad day,no\na good film,yes\na bad film,no\n";

/// The fixture is what the library `datasets` writes: two shards, and classes as numbers.
#[test]
fn shards_in_parquet_are_read_with_the_names_of_their_classes() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("data")).unwrap();
    let files = copy_of(&fixture("hub_data_set/data"));
    for file in names(files.0.path(), "") {
        std::fs::rename(files.path(&file), folder.path(&format!("data/{file}"))).unwrap();
    }
    folder.write("README.md", "a card");
    let hub = Hub::of(folder);
    let first = hub.run(&["--data", "hub:org/set"]);
    let trained = result(&first);
    assert_eq!(trained["rows"], 40, "both shards are read");
    assert_eq!(trained["labels"], json!(["bad", "good"]));
    assert_eq!(trained["classes"]["bad"]["support"], 6, "the validation file is measured on");
    assert_contains(
        &stderr(&first),
        "org/set: training files: data/train-00000-of-00002.parquet, ",
    );
    assert_eq!(hub.transferred().len(), 3);
    // The layout of Python's cache.
    let set = hub.home.path("hub/datasets--org--set");
    assert!(set.join("snapshots").join(COMMIT).join("data").is_dir());
    assert_eq!(std::fs::read_to_string(set.join("refs/main")).unwrap(), COMMIT);
    let card = std::fs::read_to_string(hub.home.path("out/README.md")).unwrap();
    assert_contains(&card, "datasets:\n- org/set\n");

    // Nothing is downloaded again, nor needed from the Hub.
    result(&hub.run(&["--data", "hub:org/set"]));
    assert!(hub.transferred().is_empty());
    let offline = hub.command(&["--data", "hub:org/set"]).env("HF_HUB_OFFLINE", "1").output();
    assert_eq!(result(&offline.unwrap())["classes"], trained["classes"]);
    let away =
        hub.command(&["--data", "hub:org/set"]).env("HF_ENDPOINT", "http://127.0.0.1:9").output();
    let away = away.unwrap();
    assert_contains(&stderr(&away), "org/set is taken from the cache as it is");
    assert_eq!(result(&away)["classes"], trained["classes"]);
    assert!(hub.server.requests().is_empty());
}

#[test]
fn parts_are_used_where_they_are_named() {
    let hub = Hub::new(&[
        ("train.csv", TRAIN),
        ("dev.jsonl", "{\"text\": \"good\", \"label\": \"yes\"}\n"),
        ("test.tsv", "text\tlabel\ngood\tyes\nbad\tno\n"),
    ]);
    let support = |output: &Output| -> u64 {
        let classes = result(output)["classes"].clone();
        classes.as_object().unwrap().values().map(|class| class["support"].as_u64().unwrap()).sum()
    };
    assert_eq!(support(&hub.run(&["--data", "hub:org/set"])), 1);
    assert_eq!(hub.transferred(), ["train.csv", "dev.jsonl"], "the test file is left alone");
    let held_out = hub.run(&["--data", "hub:org/set", "--split", "0.5"]);
    assert_eq!(support(&held_out), 2, "in the place of the validation file");
    let card = std::fs::read_to_string(hub.home.path("out/README.md")).unwrap();
    assert_contains(&card, "split: train");
    let own = Folder::new();
    own.write("own.csv", TRAIN);
    let file = own.path("own.csv");
    assert_eq!(support(&hub.run(&["--train", text(&file), "--dev", "hub:org/set"])), 1);
    assert_eq!(support(&hub.run(&["--train", "hub:org/set", "--dev", text(&file)])), 4);

    let model = hub.home.path("out");
    let mut evaluate = hub.server.as_hub(hub.home.0.path());
    evaluate.args([
        "evaluate",
        "custom",
        "--json",
        "--data",
        "hub:org/set",
        "--model",
        text(&model),
    ]);
    assert_eq!(result(&evaluate.output().unwrap())["rows"], 2, "the test file is measured on");
}

#[test]
fn an_aborted_download_continues_and_a_configuration_is_chosen() {
    let long = format!("{TRAIN}{}", "a long good day,yes\n".repeat(200));
    let hub = Hub::new(&[("one/train.csv", TRAIN), ("two/train.csv", &long)]);
    let message = error_line(&hub.run(&["--data", "hub:org/set"]), 1);
    assert_contains(&message, "put one behind the name, such as :one; it has one, two");
    *hub.cut.lock().unwrap() = Some(3000);
    let run = hub.run(&["--data", "hub:org/set:two"]);
    assert_contains(&stderr(&run), "trying again");
    result(&run);
    let again = hub.server.requests().into_iter().filter_map(|asked| asked.range());
    assert_eq!(again.collect::<Vec<_>>(), [(3000, None)]);

    // The card's lists are chosen from by their names.
    *hub.card.lock().unwrap() = json!({"configs": [
        {"config_name": "small", "data_files": [{"split": "train", "path": "one/*"}]},
        {"config_name": "large", "data_files": [{"split": "train", "path": "two/*"}]},
    ]});
    result(&hub.run(&["--data", "hub:org/set:small"]));
    assert_eq!(hub.transferred(), ["one/train.csv"]);
}

#[test]
fn what_cannot_be_read_is_said_in_a_sentence() {
    let hub = Hub::new(&[("set.py", "import datasets"), ("README.md", "a card")]);
    let fails = |args: &[&str], code, expected: &str| {
        assert_contains(&error_line(&hub.run(args), code), expected);
    };
    let data = ["--data", "hub:org/set"];
    fails(&data, 1, "but only a loading script, set.py. The Hub may have made a copy in Parquet");
    fails(&["--data", "hub:org/none"], 1, "has no data set org/none that is public (a private");
    fails(&["--data", "hub:imdb"], 2, "\"imdb\" is no name of a data set on the Hub, such as");
    hub.folder.write("test.csv", TRAIN);
    fails(&data, 1, "org/set on http");
    fails(&data, 1, "it has no training files that Cloze reads");
    hub.server.requests();
    let mut other = hub.server.as_hub(hub.home.0.path());
    other.args(["finetune", "cola", "--data", "hub:org/set", "--out", text(&hub.home.path("x"))]);
    let message = error_line(&other.output().unwrap(), 2);
    assert_contains(&message, "so the task is custom; cola reads its official files");
    let mut other = hub.server.as_hub(hub.home.0.path());
    other.args(["finetune", "custom", "--data", "hub:org/set", "--out", text(&hub.home.path("x"))]);
    assert_contains(&error_line(&other.output().unwrap(), 2), "--columns is needed");
    let offline = hub.command(&["--data", "hub:org/more"]).env("HF_HUB_OFFLINE", "1").output();
    let message = error_line(&offline.unwrap(), 1);
    assert_contains(
        &message,
        "HF_HUB_OFFLINE is set, and the cache has no list of the files of org/more",
    );
}
