//! Models of the Hugging Face Hub by name, from a server with the Hub's redirects, ETags and ranges, and with
//! everything that can go wrong.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{assert_contains, error_line, stderr, text};
use crate::server::{Request, Response, Server};
use cloze::download::{Digest, of_file};
use serde_json::json;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER_COMMIT: &str = "89abcdef0123456789abcdef0123456789abcdef";

/// What the server does wrong with a file.
#[derive(Clone)]
enum Fault {
    /// Aborts the first transfer after this many bytes.
    CutOnce(usize),
    /// Aborts every transfer after this many bytes.
    CutAlways(usize),
    /// Sends as many other bytes.
    WrongBytes,
    /// Announces a wrong length.
    WrongSize,
    /// Aborts the first transfer after this many bytes; then ignores ranges and sends the whole file.
    IgnoresRange(usize),
    /// The file belongs to another commit than the list of files.
    OtherCommit,
    /// Sends endless bytes and announces no length.
    Endless,
    /// The first answers, this many, have the right checksum, later ones this text.
    ChecksumThen(usize, String),
}

/// A repository of the Hub. Its `.safetensors` files are on a second server.
struct Repository {
    folder: PathBuf,
    files: Vec<String>,
    commit: String,
    faults: BTreeMap<String, Fault>,
}

struct Hub {
    server: Server,
    /// The server of large files.
    store: Server,
    repository: Arc<Mutex<Repository>>,
    home: tempfile::TempDir,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/models")).join(name)
}

/// Returns the transfer of a file, with its fault.
fn transfer(request: &Request, name: &str, repository: &Mutex<Repository>) -> Response {
    let mut repository = repository.lock().unwrap();
    let whole = std::fs::read(repository.folder.join(name)).unwrap();
    let probe = request.method == "HEAD";
    let right = Response::ranged(request, &whole);
    match repository.faults.get(name).cloned() {
        Some(Fault::CutOnce(bytes)) if !probe => {
            repository.faults.remove(name);
            right.cut_after(bytes)
        }
        Some(Fault::CutAlways(bytes)) if !probe => right.cut_after(bytes),
        Some(Fault::WrongBytes) if !probe => Response::ranged(request, &vec![b'x'; whole.len()]),
        Some(Fault::IgnoresRange(bytes)) if !probe => match request.range() {
            Some((0, _)) | None => Response::new(200, whole).cut_after(bytes),
            Some(_) => {
                repository.faults.remove(name);
                Response::new(200, whole)
            }
        },
        Some(Fault::Endless) if !probe => {
            Response::new(200, whole).endless(1 << 16, Duration::ZERO)
        }
        _ => right,
    }
}

impl Hub {
    fn new(model: &str) -> Self {
        Self::of(fixture(model))
    }

    /// Returns a Hub with the model in `folder`.
    fn of(folder: PathBuf) -> Self {
        let files = std::fs::read_dir(&folder).unwrap();
        let files = files.map(|f| f.unwrap().file_name().into_string().unwrap());
        let repository = Arc::new(Mutex::new(Repository {
            folder,
            files: files.chain(["README.md".into(), "pytorch_model.bin".into()]).collect(),
            commit: COMMIT.into(),
            faults: BTreeMap::new(),
        }));
        let large = repository.clone();
        let store = Server::start(move |request| {
            let name = request.path.trim_start_matches("/store/").to_owned();
            transfer(request, &name, &large)
        });
        let (own, store_address) = (repository.clone(), store.address.clone());
        let server = Server::start(move |request| answer(request, &own, &store_address));
        Self { server, store, repository, home: tempfile::tempdir().unwrap() }
    }

    fn fault(self, name: &str, fault: Fault) -> Self {
        let mut repository = self.repository.lock().unwrap();
        repository.faults.insert(name.into(), fault);
        drop(repository);
        self
    }

    /// Returns `cloze fill-mask` with this model and with the variables that name the Hub.
    fn command(&self, model: &str) -> Command {
        let mut command = self.server.as_hub(self.home.path());
        command.args(["fill-mask", "--json", "--model", model, "the [MASK] sat"]);
        command
    }

    fn run(&self, model: &str) -> Output {
        self.command(model).output().unwrap()
    }

    fn cached(&self, name: &str) -> PathBuf {
        let model = self.home.path().join("hub/models--org--name");
        model.join("snapshots").join(COMMIT).join(name)
    }
}

/// Returns the Hub's answer.
fn answer(request: &Request, repository: &Mutex<Repository>, store: &str) -> Response {
    let path = request.path.as_str();
    let mut known = repository.lock().unwrap();
    let commit = known.commit.clone();
    if let Some(revision) = path.strip_prefix("/api/models/org/name/revision/") {
        if revision == "endless" {
            return Response::new(200, "").endless(1 << 16, Duration::ZERO);
        }
        if !["main", "v1", "refs%2Fpr%2F1"].contains(&revision) {
            return Response::new(404, "{}");
        }
        let siblings: Vec<_> = known.files.iter().map(|f| json!({"rfilename": f})).collect();
        let info = json!({"id": "org/name", "sha": commit, "siblings": siblings});
        return Response::new(200, info.to_string()).with("Content-Type", "application/json");
    }
    if path.starts_with("/api/models/") {
        // The Hub's answer for an unknown name if the user isn't logged in.
        return Response::new(401, "{}");
    }
    // Small files are redirected within the Hub, large ones to another server.
    let (name, redirected) = match path.strip_prefix("/api/resolve-cache/") {
        Some(name) => (name, true),
        None => {
            let file = path.strip_prefix(&format!("/org/name/resolve/{commit}/"));
            (file.unwrap_or("no such file"), false)
        }
    };
    let name = name.to_owned();
    let file = known.folder.join(&name);
    if !file.exists() {
        return Response::new(404, "");
    }
    let commit = match known.faults.get(&name) {
        Some(Fault::OtherCommit) => OTHER_COMMIT.to_owned(),
        _ => commit,
    };
    let large = name.ends_with(".safetensors");
    let mut etag = match large {
        true => of_file(&file).unwrap(),
        false => Digest::GitBlob("").of(&file).unwrap(),
    };
    if let Some(Fault::ChecksumThen(left, other)) = known.faults.get_mut(&name)
        && (large || redirected)
    {
        match left {
            0 => etag = other.clone(),
            _ => *left -= 1,
        }
    }
    let size = match known.faults.get(&name) {
        Some(Fault::WrongSize) => 999_999,
        _ => file.metadata().unwrap().len(),
    };
    drop(known);
    if large {
        return Response::new(302, "")
            .with("Location", &format!("{store}/store/{name}"))
            .with("X-Repo-Commit", &commit)
            .with("X-Linked-Size", &size.to_string())
            .with("X-Linked-Etag", &format!("\"{etag}\""));
    }
    if !redirected {
        return Response::new(307, "").with("Location", &format!("/api/resolve-cache/{name}"));
    }
    transfer(request, &name, repository)
        .with("X-Repo-Commit", &commit)
        .with("ETag", &format!("\"{etag}\""))
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

fn paths(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|r| r.path.as_str()).collect()
}

#[test]
fn only_the_needed_files_of_a_model_are_downloaded_and_only_once() {
    let hub = Hub::new("BertForMaskedLM");
    let here = hub.run(text(&fixture("BertForMaskedLM")));
    let named = hub.run("org/name");
    succeeded(&named);
    assert_eq!(here.stdout, named.stdout);
    assert!(stderr(&named).contains("model.safetensors: "), "{}", stderr(&named));
    let asked = hub.server.requests();
    for unwanted in ["README.md", "pytorch_model.bin", "expected.json"] {
        let found = paths(&asked).iter().any(|path| path.contains(unwanted));
        assert!(!found, "{unwanted}");
    }
    // The cache has the layout of Python's, and files in it are not downloaded again.
    assert!(hub.cached("vocab.txt").is_symlink());
    hub.store.requests();
    let again = hub.command("org/name").env("HF_TOKEN", "secret").output().unwrap();
    assert_eq!(named.stdout, again.stdout);
    let asked = hub.server.requests();
    assert_eq!(paths(&asked), ["/api/models/org/name/revision/main"]);
    assert_eq!(asked[0].header("authorization"), Some("Bearer secret"));
    assert!(hub.store.requests().is_empty());

    // A new commit with the same files costs a few small requests.
    hub.repository.lock().unwrap().commit = OTHER_COMMIT.into();
    succeeded(&hub.run("org/name"));
    let asked = hub.server.requests();
    assert!(asked[1..].iter().all(|r| r.method == "HEAD") && asked.len() > 1, "{asked:?}");
    assert!(hub.store.requests().is_empty());
    let reference = hub.home.path().join("hub/models--org--name/refs/main");
    assert_eq!(std::fs::read_to_string(reference).unwrap(), OTHER_COMMIT);
}

/// `finetune --frozen` writes the head to a file beside the encoder.
#[test]
fn a_head_beside_the_encoder_is_downloaded_too() {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(fixture("BertForMaskedLM")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("head.safetensors"), "a head").unwrap();
    let hub = Hub::of(folder.path().to_owned());
    succeeded(&hub.run("org/name"));
    let head = std::fs::read(hub.cached("head.safetensors")).unwrap();
    assert_eq!(head, b"a head");
}

#[test]
fn revisions_shards_and_another_cache_folder_work() {
    let hub = Hub::new("shards");
    let cache = hub.home.path().join("elsewhere");
    let run = hub.command("org/name@v1").env("HF_HUB_CACHE", &cache).output().unwrap();
    succeeded(&run);
    assert_eq!(run.stdout, hub.run(text(&fixture("shards"))).stdout);
    let reference = cache.join("models--org--name/refs/v1");
    assert_eq!(std::fs::read_to_string(reference).unwrap(), COMMIT);
    succeeded(&hub.run("org/name@refs/pr/1"));
    let pull = "hub/models--org--name/refs/refs/pr/1";
    let pull = std::fs::read_to_string(hub.home.path().join(pull)).unwrap();
    assert_eq!(pull, COMMIT);
    let message = error_line(&hub.run("org/name@v2"), 1);
    assert_contains(&message, "there is no folder org/name@v2, and http");
}

#[test]
fn without_a_network_the_cache_is_used_and_missing_files_are_named() {
    let hub = Hub::new("shards");
    let offline = || hub.command("org/name").env("HF_HUB_OFFLINE", "1").output().unwrap();
    let message = error_line(&offline(), 1);
    assert_contains(
        &message,
        "HF_HUB_OFFLINE is set, and the cache has no config.json of org/name",
    );
    assert!(hub.server.requests().is_empty());
    succeeded(&hub.run("org/name"));
    hub.server.requests();
    succeeded(&offline());
    assert!(hub.server.requests().is_empty());

    // No server listens on port 9 of this machine.
    let nobody = || {
        let mut command = hub.command("org/name");
        command.env("HF_ENDPOINT", "http://127.0.0.1:9").output().unwrap()
    };
    let run = nobody();
    succeeded(&run);
    assert!(stderr(&run).contains("org/name is taken from the cache as it is"), "{}", stderr(&run));

    std::fs::remove_file(hub.cached("model-00002-of-00002.safetensors")).unwrap();
    let message = error_line(&offline(), 1);
    assert_contains(&message, "the cache has no model-00002-of-00002.safetensors");
    let message = error_line(&nobody(), 1);
    assert_contains(&message, "can't be reached");
    assert_contains(&message, "the cache has no");
}

#[test]
fn an_unknown_name_is_reported_as_no_folder_and_no_model() {
    let hub = Hub::new("BertForMaskedLM");
    let message = error_line(&hub.run("org/nothing"), 1);
    assert_contains(&message, "there is no folder org/nothing, and http");
    assert_contains(&message, "a private or gated one needs HF_TOKEN");
    let message = error_line(&hub.run("some/deep/path"), 1);
    assert_contains(&message, "some/deep/path is neither a folder nor the name");
    let mut command = hub.command("org/name");
    let message = error_line(&command.env("HF_ENDPOINT", "hub.example").output().unwrap(), 2);
    assert_contains(&message, "HF_ENDPOINT is \"hub.example\"");
}

#[test]
fn an_aborted_download_continues_where_it_was() {
    let hub = Hub::new("BertForMaskedLM").fault("model.safetensors", Fault::CutOnce(9000));
    let run = hub.run("org/name");
    succeeded(&run);
    assert!(stderr(&run).contains("trying again"), "{}", stderr(&run));
    let ranges: Vec<_> = hub.store.requests().iter().filter_map(Request::range).collect();
    assert!(ranges.contains(&(9000, None)), "{ranges:?}");

    // From a server without ranges, the whole file is downloaded again.
    let hub = Hub::new("BertForMaskedLM").fault("model.safetensors", Fault::IgnoresRange(9000));
    succeeded(&hub.run("org/name"));

    // A download without progress fails with a message.
    let hub = Hub::new("BertForMaskedLM").fault("model.safetensors", Fault::CutAlways(0));
    let message = error_line(&hub.run("org/name"), 1);
    assert_contains(&message, "model.safetensors: ");
    assert!(!hub.cached("model.safetensors").exists());
}

#[test]
fn wrong_bytes_are_thrown_away_and_never_used() {
    for (name, fault, expected) in [
        ("model.safetensors", Fault::WrongBytes, "came with checksum"),
        ("config.json", Fault::WrongBytes, "came with checksum"),
        ("model.safetensors", Fault::WrongSize, "but 999999 were announced"),
        ("model.safetensors", Fault::Endless, "bytes, its size: it was thrown away"),
        ("vocab.txt", Fault::OtherCommit, "it changed while it was downloaded"),
    ] {
        let hub = Hub::new("BertForMaskedLM").fault(name, fault);
        let message = error_line(&hub.run("org/name"), 1);
        assert_contains(&message, expected);
        assert!(!hub.cached(name).exists());
        hub.repository.lock().unwrap().faults.clear();
        succeeded(&hub.run("org/name"));
    }
}

#[test]
fn a_repository_with_only_pickle_files_is_refused_with_advice() {
    let hub = Hub::new("BertForMaskedLM");
    hub.repository.lock().unwrap().files.retain(|name| name != "model.safetensors");
    let message = error_line(&hub.run("org/name"), 1);
    assert_contains(&message, "pytorch_model.bin, a pickle file");
    let line = "from transformers import BertForMaskedLM as M; M.from_pretrained('org/name')";
    assert_contains(&message, line);
    let bin = paths(&hub.server.requests()).iter().any(|path| path.contains("pytorch_model.bin"));
    assert!(!bin);
}

/// Returns all files below `folder`.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() && !path.is_symlink() {
        true => files_below(&path),
        false => vec![path],
    };
    entries.flat_map(below).collect()
}

#[test]
fn a_path_as_checksum_writes_nothing_outside_the_cache() {
    for name in ["config.json", "model.safetensors"] {
        // In the first answer, or only in a later one.
        for answers in 0..4 {
            let outside = tempfile::tempdir().unwrap();
            let absolute = text(&outside.path().join("bashrc")).to_owned();
            for evil in [absolute, "../../x".into(), "..".into(), String::new()] {
                let hub = Hub::new("BertForMaskedLM")
                    .fault(name, Fault::ChecksumThen(answers, evil.clone()));
                let run = hub.run("org/name");
                if answers == 0 {
                    let expected = format!("{name} has the ETag {evil:?}, not a checksum");
                    let message = error_line(&run, 1);
                    assert_contains(&message, &expected);
                } else {
                    succeeded(&run);
                }
                assert!(files_below(outside.path()).is_empty());
                let cache = hub.home.path().join("hub");
                for path in files_below(hub.home.path()) {
                    let at = |part: &str| path.starts_with(cache.join(part));
                    let model = ["blobs", "refs", "snapshots"]
                        .iter()
                        .any(|part| at(&format!("models--org--name/{part}")));
                    assert!(model || at(".locks/models--org--name"), "{path:?}");
                }
            }
        }
    }
}

#[test]
fn the_token_stays_with_the_hub() {
    let hub = Hub::new("BertForMaskedLM");
    let mut command = hub.command("org/name");
    succeeded(&command.env("HF_TOKEN", "secret").output().unwrap());
    // Redirects within the Hub keep it.
    let asked = hub.server.requests();
    let inside = paths(&asked);
    assert!(inside.contains(&"/api/resolve-cache/config.json"), "{inside:?}");
    for request in asked {
        assert_eq!(request.header("authorization"), Some("Bearer secret"));
    }
    // The same address with another port is another server.
    let asked = hub.store.requests();
    assert_eq!(paths(&asked), ["/store/model.safetensors"]);
    assert_eq!(asked[0].header("authorization"), None);
}

#[test]
fn an_endless_description_is_refused() {
    let hub = Hub::new("BertForMaskedLM");
    let message = error_line(&hub.run("org/name@endless"), 1);
    assert_contains(&message, "org/name@endless on http");
    assert_contains(&message, "4194304");
}

#[test]
fn two_processes_download_a_file_one_after_the_other() {
    let hub = Hub::new("BertForMaskedLM");
    let etag = of_file(&fixture("BertForMaskedLM").join("model.safetensors")).unwrap();
    // Python's huggingface_hub uses the same lock.
    let locks = hub.home.path().join("hub/.locks/models--org--name");
    std::fs::create_dir_all(&locks).unwrap();
    let lock = std::fs::File::create(locks.join(format!("{etag}.lock"))).unwrap();
    lock.lock().unwrap();
    let mut command = hub.command("org/name");
    let pipes = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waiting = pipes.spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let expected = "model.safetensors: another process is downloading it; waiting for that to end";
    assert!(lines.any(|line| line.unwrap() == expected));
    assert!(hub.store.requests().is_empty());
    drop(lock);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(hub.store.requests().len(), 1);
}
