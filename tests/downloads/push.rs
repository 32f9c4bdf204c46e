//! `cloze push` to a server that stores what it gets as the Hub does: repositories, a plan for every file, large
//! files on a second server, commits.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloze::download::{Digest, of_file};
use serde_json::{Value, json};

use crate::common::{
    Folder, assert_contains, cloze, copy_of, error_line, fails, fixture, json as printed, stderr,
    text,
};
use crate::server::{Request, Response, Server};

const TOKEN: &str = "hf_secret";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const BRANCHES: [&str; 2] = ["main", "refs%2Fpr%2F1"];

/// What the Hub has.
#[derive(Default)]
struct State {
    /// Names of repositories, and the visibility of each, by the Hub's present key and by its earlier one.
    repositories: BTreeMap<String, [Value; 2]>,
    /// Objects by their SHA-256.
    objects: BTreeMap<String, Vec<u8>>,
    /// Parts of objects that are being sent.
    parts: BTreeMap<String, Vec<u8>>,
    /// Hashes of the files of the last commit.
    files: BTreeMap<String, String>,
    commits: Vec<Vec<Value>>,
    /// Large files are sent in parts of this many bytes.
    chunk: Option<usize>,
    /// The number of requests that the storage server answers with this status, after as many that it takes.
    broken: (usize, usize, u16),
}

struct Hub {
    server: Server,
    store: Server,
    state: Arc<Mutex<State>>,
    home: Folder,
}

fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    of_file(file.path()).unwrap()
}

fn git_blob(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Digest::GitBlob("").of(file.path()).unwrap()
}

fn good(body: &Value) -> Response {
    Response::new(200, body.to_string()).with("Content-Type", "application/json")
}

fn refused(status: u16, message: &str) -> Response {
    Response::new(status, json!({"error": message}).to_string())
}

fn answer(request: &Request, state: &Mutex<State>, own: &str, store: &str) -> Response {
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return refused(401, "Invalid username or password.");
    }
    let mut state = state.lock().unwrap();
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let path = request.path.as_str();
    match (request.method.as_str(), path) {
        ("POST", "/api/repos/create") => {
            let name = format!(
                "{}/{}",
                body["organization"].as_str().unwrap(),
                body["name"].as_str().unwrap()
            );
            if name.starts_with("foreign/") {
                return refused(403, "You don't have the rights to create a model\nthere");
            }
            if name == "me/taken" {
                return refused(409, "You already created this model repo");
            }
            let visibility = ["visibility", "private"].map(|key| body[key].clone());
            state.repositories.insert(name.clone(), visibility);
            return good(&json!({"url": format!("{own}/{name}")}));
        }
        ("POST", "/verify") => {
            let stored = &state.objects[body["oid"].as_str().unwrap()];
            assert_eq!(body["size"], stored.len());
            return good(&json!({}));
        }
        _ => {}
    }
    let known = state.repositories.keys().find(|name| path.contains(name.as_str())).cloned();
    let Some(name) = known else { return refused(404, "Repository not found") };
    if path == format!("/api/models/{name}") {
        return good(&json!({"id": name}));
    }
    if path == format!("/{name}.git/info/lfs/objects/batch") {
        return batch(&body, &state, own, store);
    }
    let path = path.strip_prefix(&format!("/api/models/{name}/")).unwrap();
    let (what, branch) = path.split_once('/').unwrap();
    if !BRANCHES.contains(&branch) {
        return refused(404, "Invalid rev id");
    }
    match what {
        "preupload" => plan(&body, &state),
        "commit" => commit(request, &mut state),
        other => panic!("{other}"),
    }
}

/// Plans that weights and ONNX files are large.
fn plan(body: &Value, state: &State) -> Response {
    let files = body["files"].as_array().unwrap().iter().map(|file| {
        let path = file["path"].as_str().unwrap();
        let sample = BASE64_STANDARD.decode(file["sample"].as_str().unwrap()).unwrap();
        assert_eq!(sample.len() as u64, file["size"].as_u64().unwrap().min(512));
        let large = path.ends_with(".safetensors") || path.ends_with(".onnx");
        json!({
            "path": path, "uploadMode": if large { "lfs" } else { "regular" },
            "shouldIgnore": path == "special_tokens_map.json", "oid": state.files.get(path),
        })
    });
    good(&json!({"files": files.collect::<Vec<_>>()}))
}

fn batch(body: &Value, state: &State, own: &str, store: &str) -> Response {
    assert_eq!((&body["operation"], &body["hash_algo"]), (&"upload".into(), &"sha256".into()));
    let objects = body["objects"].as_array().unwrap().iter().map(|object| {
        let (oid, size) = (object["oid"].as_str().unwrap(), object["size"].as_u64().unwrap());
        if state.objects.contains_key(oid) {
            return json!({"oid": oid, "size": size});
        }
        let verify = json!({"href": format!("{own}/verify")});
        let upload = match state.chunk {
            None => json!({"href": format!("{store}/{oid}"), "header": {"X-Signed": "yes"}}),
            Some(chunk) => {
                let mut header = json!({"chunk_size": chunk.to_string()});
                for part in 0..size.div_ceil(chunk as u64) {
                    // As on the Hub, without zeros before: "10" stands before "2".
                    header[(part + 1).to_string()] = format!("{store}/{oid}/{part:04}").into();
                }
                json!({"href": format!("{store}/complete/{oid}"), "header": header})
            }
        };
        json!({"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}})
    });
    good(&json!({"transfer": "basic", "objects": objects.collect::<Vec<_>>()}))
}

fn commit(request: &Request, state: &mut State) -> Response {
    assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
    let lines = std::str::from_utf8(&request.body).unwrap().lines();
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["key"], "header");
    for line in &lines[1..] {
        let value = &line["value"];
        let hash = if line["key"] == "lfsFile" {
            let oid = value["oid"].as_str().unwrap();
            assert_eq!(value["size"], state.objects[oid].len());
            oid.to_owned()
        } else {
            git_blob(&BASE64_STANDARD.decode(value["content"].as_str().unwrap()).unwrap())
        };
        state.files.insert(value["path"].as_str().unwrap().to_owned(), hash);
    }
    state.commits.push(lines);
    good(&json!({"success": true, "commitOid": COMMIT, "commitUrl": "", "hookOutput": ""}))
}

/// The storage server, whose addresses are signed.
fn stored(request: &Request, state: &Mutex<State>) -> Response {
    assert_eq!(request.header("authorization"), None);
    let mut state = state.lock().unwrap();
    match &mut state.broken {
        (0, 0, _) => {}
        (0, left, status) => {
            *left -= 1;
            return Response::new(*status, "");
        }
        (taken, ..) => *taken -= 1,
    }
    let path = request.path.trim_start_matches('/').to_owned();
    if let Some(oid) = path.strip_prefix("complete/") {
        let parts = std::mem::take(&mut state.parts);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let etags = body["parts"].as_array().unwrap().iter().zip(1_u64..).map(|(part, number)| {
            assert_eq!(part["partNumber"], number);
            part["etag"].as_str().unwrap().to_owned()
        });
        assert!(etags.eq(parts.keys().cloned()));
        let whole: Vec<u8> = parts.into_values().flatten().collect();
        assert_eq!((body["oid"].as_str().unwrap(), sha256(&whole).as_str()), (oid, oid));
        state.objects.insert(oid.to_owned(), whole);
    } else if path.contains('/') {
        state.parts.insert(path.clone(), request.body.clone());
        return Response::new(200, "").with("ETag", &path);
    } else {
        assert_eq!(request.header("x-signed"), Some("yes"));
        assert_eq!(sha256(&request.body), path);
        state.objects.insert(path, request.body.clone());
    }
    Response::new(200, "")
}

impl Hub {
    fn new() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let own = state.clone();
        let store = Server::start(move |request| stored(request, &own));
        let (own, address) = (state.clone(), store.address.clone());
        let server = Server::start(move |request| {
            let host = format!("http://{}", request.header("host").unwrap());
            answer(request, &own, &host, &address)
        });
        Self { server, store, state, home: Folder::new() }
    }

    fn push(&self, folder: &Path, name: &str, more: &[&str]) -> Output {
        self.push_with(folder, name, more, Some(TOKEN))
    }

    fn push_with(&self, folder: &Path, name: &str, more: &[&str], token: Option<&str>) -> Output {
        let mut command = self.server.as_hub(self.home.0.path());
        if let Some(token) = token {
            command.env("HF_TOKEN", token);
        }
        let output = command.args(["push", text(folder), name]).args(more).output().unwrap();
        let shown = [&output.stdout[..], &output.stderr].concat();
        assert!(!String::from_utf8_lossy(&shown).contains(TOKEN));
        output
    }
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    printed(output)
}

/// A model in two weight files, with the records of a run.
fn model() -> Folder {
    let folder = copy_of(&fixture("models/shards"));
    std::fs::create_dir(folder.path("trainer")).unwrap();
    folder.write("trainer/state.safetensors", "a checkpoint").write("README.md", "# A model");
    folder.write("special_tokens_map.json", "{}");
    folder
}

/// Returns the weight files of [`model`].
fn weights(folder: &Folder) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder.0.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|e| e == "safetensors"));
    paths.map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn a_model_is_sent_once_and_then_only_what_changed() {
    let (hub, folder) = (Hub::new(), model());
    let sent = json(&hub.push(folder.0.path(), "me/model", &["--private", "--json"]));
    assert_eq!(sent["commit"], COMMIT);
    assert_eq!(sent["address"], format!("{}/me/model", hub.server.address));
    let names = sent["sent"].as_array().unwrap();
    let expected = ["README.md", "config.json", "model.safetensors.index.json", "vocab.txt"];
    assert!(expected.iter().all(|name| names.contains(&(*name).into())), "{sent}");
    // The repository's .gitignore names the fixture's sixth small file; expected.json belongs to no model.
    assert!(
        ["special_tokens_map.json", "expected.json"].iter().all(|n| !names.contains(&(*n).into()))
    );
    {
        let state = hub.state.lock().unwrap();
        assert_eq!(state.repositories["me/model"], [json!("private"), json!(true)]);
        let weights = weights(&folder);
        assert!(weights.len() > 1 && weights.len() == state.objects.len());
        assert!(weights.iter().all(|file| state.objects[&sha256(file)] == *file));
        assert_eq!(state.commits[0][0]["value"]["summary"], "Upload a model");
        assert_eq!(state.commits[0].len(), 1 + names.len());
    }
    let verified = hub.server.requests().iter().filter(|r| r.path == "/verify").count();
    assert_eq!(verified, weights(&folder).len());

    // Nothing has changed: two questions, and no commit.
    hub.store.requests();
    let again = json(&hub.push(folder.0.path(), "me/model", &["--json"]));
    assert_eq!((&again["commit"], &again["unchanged"]), (&Value::Null, &sent["sent"]));
    let asked = hub.server.requests();
    let paths: Vec<&str> = asked.iter().map(|r| r.path.as_str()).collect();
    assert_eq!(paths, ["/api/models/me/model", "/api/models/me/model/preupload/main"]);
    assert!(hub.store.requests().is_empty());

    folder.write("README.md", "# A better model");
    let args = ["--json", "--message", "Better", "--revision", "refs/pr/1"];
    let third = json(&hub.push(folder.0.path(), "me/model", &args));
    assert_eq!(third["sent"], json!(["README.md"]));
    assert_eq!(hub.state.lock().unwrap().commits[1][0]["value"]["summary"], "Better");
    assert!(hub.store.requests().is_empty());
}

#[test]
fn a_large_file_is_sent_in_the_parts_that_the_storage_names() {
    let (hub, folder) = (Hub::new(), model());
    // More than nine parts, whose numbers don't stand in the order of their text.
    hub.state.lock().unwrap().chunk = Some(1000);
    json(&hub.push(folder.0.path(), "me/model", &["--json"]));
    let state = hub.state.lock().unwrap();
    assert_eq!(state.repositories["me/model"], [Value::Null, Value::Null]);
    assert!(weights(&folder).iter().all(|file| state.objects[&sha256(file)] == *file));
    assert!(weights(&folder).iter().any(|file| file.len() > 10_000));
}

#[test]
fn a_failed_upload_continues_with_the_files_that_are_missing() {
    let (hub, folder) = (Hub::new(), model());
    // The first large file is stored; the second is refused, also when it is sent again.
    hub.state.lock().unwrap().broken = (1, 3, 503);
    let failed = hub.push(folder.0.path(), "me/model", &[]);
    assert_contains(&error_line(&failed, 1), "the server answered with status 503");
    assert_contains(&stderr(&failed), "trying again");
    assert!(hub.state.lock().unwrap().commits.is_empty());
    let before = hub.store.requests().len();
    assert_eq!(before, 1 + 3);

    let sent = json(&hub.push(folder.0.path(), "me/model", &["--json"]));
    let files = weights(&folder).len();
    assert_eq!(hub.store.requests().len(), files - 1);
    assert!(sent["sent"].as_array().unwrap().len() > files);

    // One failure is no failure, but a refusal is final.
    let (hub, folder) = (Hub::new(), model());
    hub.state.lock().unwrap().broken = (0, 1, 500);
    json(&hub.push(folder.0.path(), "me/model", &["--json"]));
    let hub = Hub::new();
    hub.state.lock().unwrap().broken = (0, 1, 403);
    let failed = hub.push(folder.0.path(), "me/model", &[]);
    assert_contains(&error_line(&failed, 1), "the server answered with status 403");
    assert_eq!(hub.store.requests().len(), 1);
}

#[test]
fn what_the_hub_refuses_is_said_in_a_sentence() {
    let (hub, folder) = (Hub::new(), model());
    let fails = |name: &str, more: &[&str], token, code, expected: &str| {
        let output = hub.push_with(folder.0.path(), name, more, token);
        assert_contains(&error_line(&output, code), expected);
    };
    fails("me/model", &[], None, 1, "HF_TOKEN is not set");
    assert!(hub.server.requests().is_empty());
    fails("me/model", &[], Some("hf_wrong"), 1, "the token in HF_TOKEN is not accepted");
    let expected = "the token in HF_TOKEN may not write there (You don't have the rights to create a model there)";
    fails("foreign/model", &[], Some(TOKEN), 1, expected);
    fails("me/taken", &[], Some(TOKEN), 1, "it exists already, or another change is under way");
    fails("me/model", &["--revision", "v9"], Some(TOKEN), 1, "there is no such model or branch");
    for name in ["model", "me/model@main", "../x"] {
        fails(name, &[], Some(TOKEN), 2, "a name on the Hub is needed");
    }
    let mut command = cloze();
    command.env("HF_ENDPOINT", "http://127.0.0.1:9").env("HF_TOKEN", TOKEN);
    let output = command.args(["push", text(folder.0.path()), "me/model"]).output().unwrap();
    assert_contains(&error_line(&output, 1), "me/model on http://127.0.0.1:9: ");
    assert!(hub.state.lock().unwrap().commits.is_empty() && hub.store.requests().is_empty());
}

#[test]
fn a_dry_run_names_the_files_and_asks_nobody() {
    let (hub, folder) = (Hub::new(), model());
    let listed = json(&hub.push_with(folder.0.path(), "me/model", &["--dry-run", "--json"], None));
    let files = listed["files"].as_array().unwrap();
    assert!(files.contains(&json!({"name": "README.md", "bytes": 9})), "{listed}");
    assert!(!listed.to_string().contains("trainer"));
    let message = fails(["push", text(folder.0.path()), "no name", "--dry-run"], 2);
    assert_contains(&message, "a name on the Hub is needed");
    assert!(hub.server.requests().is_empty());
}
