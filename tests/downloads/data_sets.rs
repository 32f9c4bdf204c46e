//! `cloze data get` from servers that drop connections, send wrong bytes, ignore ranges or change a file between
//! its parts, and from malicious archives.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    assert_contains, cloze, error_line, fails, json, real_data, stderr, succeeds, text, words,
};
use crate::server::{Request, Response, Server};
use cloze::data::catalogue::{SETS, Set};
use cloze::download::{Archive, Digest, Limits, Wanted, fetch, of_file, unpack};

const ZIP: &str = "/wikitext-2-raw-v1.zip";
const INSIDE: &str = "wikitext-2-raw/wiki.train.raw";

/// Returns two articles in WikiText's format, of random words so that they compress badly.
fn wikitext(seed: u64) -> String {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        format!("w{:x}", state >> 44)
    };
    let mut paragraph = || (0..400).map(|_| word() + " ").collect::<String>();
    format!(
        " \n = First = \n \n {}@-@ end \n {}\n \n = = Part = = \n \n {}\n \n = Second = \n \n {}\n",
        paragraph(),
        paragraph(),
        paragraph(),
        paragraph()
    )
}

/// Returns a zip with these members and optionally a symbolic link.
fn zipped(members: &[(&str, &str)], link: Option<(&str, &str)>) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    for (name, content) in members {
        zip.start_file(*name, options).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    if let Some((name, target)) = link {
        zip.add_symlink(name, target, options).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn archive(seed: u64) -> Vec<u8> {
    zipped(&[(INSIDE, &wikitext(seed))], None)
}

/// Runs `cloze data get wikitext-2` with the test's server.
fn get(server: &Server, dir: &Path) -> Output {
    command(&server.address, dir).output().unwrap()
}

fn command(mirror: &str, dir: &Path) -> Command {
    let mut command = cloze();
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.args(["data", "get", "wikitext-2", "--json", "--mirror", mirror]);
    command.args(["--dir", text(dir)]);
    command
}

/// Checks that the articles of [`wikitext`] were unpacked for pre-training.
fn check_text(dir: &Path, seed: u64) {
    let path = dir.join("WikiText-2/wikitext-2.txt");
    let got = std::fs::read_to_string(path).unwrap();
    let raw = wikitext(seed).replace(" @-@ ", "-");
    let lines: Vec<&str> = got.lines().collect();
    let paragraphs: Vec<&str> = raw
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('='))
        .collect();
    assert_eq!(paragraphs.len(), 4);
    assert_eq!(lines, [&paragraphs[..3], &[""], &paragraphs[3..]].concat());
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

#[test]
fn the_list_has_every_set() {
    let all = String::from_utf8(succeeds(["data", "list"]).stdout).unwrap();
    let lines = String::from_utf8(succeeds(["data", "list", "--json"]).stdout).unwrap();
    let names: Vec<String> = lines
        .lines()
        .map(|line| {
            let set: serde_json::Value = serde_json::from_str(line).unwrap();
            set["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(names.len(), SETS.len());
    for name in names {
        assert!(all.contains(&name), "{name}");
    }
    let mnli = Set::find("mnli").unwrap();
    assert_eq!(mnli.size(), Some(312_783_507));
}

#[test]
fn a_set_is_downloaded_and_unpacked_once() {
    let dir = tempfile::tempdir().unwrap();
    let seed = std::sync::Arc::new(AtomicUsize::new(1));
    let served = seed.clone();
    let server = Server::start(move |request| {
        assert_eq!(request.path, ZIP);
        Response::ranged(request, &archive(served.load(Ordering::SeqCst) as u64))
    });
    let first = get(&server, dir.path());
    succeeded(&first);
    assert!(stderr(&first).contains("no published checksum"), "{}", stderr(&first));
    assert_eq!(json(&first)["fresh"], true);
    check_text(dir.path(), 1);
    let folder = dir.path().join("WikiText-2");
    let mut left: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["SHA256SUMS", "wikitext-2.txt"]);

    server.requests();
    let again = get(&server, dir.path());
    succeeded(&again);
    assert_eq!(json(&again)["fresh"], false);
    assert!(server.requests().is_empty());

    // Every later download must bring what the first one brought.
    let path = folder.join("wikitext-2.txt");
    std::fs::write(&path, "changed").unwrap();
    let message = error_line(&get(&server, dir.path()), 1);
    assert_contains(&message, "wikitext-2.txt: was changed since it came");
    std::fs::remove_file(&path).unwrap();
    seed.store(2, Ordering::SeqCst);
    let message = error_line(&get(&server, dir.path()), 1);
    assert_contains(&message, "is what came the first time");
    assert!(message.contains("it was thrown away") && !path.exists(), "{message}");
    seed.store(1, Ordering::SeqCst);
    succeeded(&get(&server, dir.path()));
    check_text(dir.path(), 1);
}

/// A server that aborts the first transfer after `cut` bytes; `later` answers the others.
fn cutting(
    cut: usize,
    version: Option<&'static str>,
    later: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |request| {
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            return later(request);
        }
        let first = Response::ranged(request, &archive(1)).cut_after(cut);
        match version {
            Some(version) => first.with("ETag", version),
            None => first,
        }
    })
}

#[test]
fn an_aborted_download_continues_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let server = cutting(3000, Some("\"one\""), |request| {
        Response::ranged(request, &archive(1)).with("ETag", "\"one\"")
    });
    let run = get(&server, dir.path());
    succeeded(&run);
    assert!(stderr(&run).contains("trying again"), "{}", stderr(&run));
    check_text(dir.path(), 1);
    let asked = server.requests();
    assert_eq!(asked[1].range(), Some((3000, None)));
    assert_eq!(asked[1].header("if-range"), Some("\"one\""));
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|request| request.method == "GET"));

    // The next run continues what a failed run has left.
    let dir = tempfile::tempdir().unwrap();
    let server = cutting(3000, Some("\"one\""), |_| Response::new(503, ""));
    let message = error_line(&get(&server, dir.path()), 1);
    assert_contains(&message, "answered with status 503");
    let part = dir.path().join("WikiText-2/wikitext-2-raw-v1.zip.part");
    assert_eq!(part.metadata().unwrap().len(), 3000);
    let server =
        Server::start(|request| Response::ranged(request, &archive(1)).with("ETag", "\"one\""));
    succeeded(&get(&server, dir.path()));
    assert_eq!(server.requests()[0].range(), Some((3000, None)));
    check_text(dir.path(), 1);
}

#[test]
fn parts_of_different_versions_are_never_joined() {
    // The server supports If-Range, ignores it, or ignores ranges altogether.
    let whole = |_: &Request| Response::new(200, archive(2)).with("ETag", "\"two\"");
    let other = |request: &Request| Response::ranged(request, &archive(2)).with("ETag", "\"two\"");
    let same_whole = |_: &Request| Response::new(200, archive(1)).with("ETag", "\"one\"");
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, server: Server, seed: u64| {
        let dir = dir.path().join(name);
        succeeded(&get(&server, &dir));
        check_text(&dir, seed);
        server.requests()
    };
    run("whole", cutting(3000, Some("\"one\""), whole), 2);
    run("other", cutting(3000, Some("\"one\""), other), 2);
    run("ignores", cutting(3000, Some("\"one\""), same_whole), 1);
    // Without a version the whole file is downloaded again.
    let asked = run("nothing", cutting(3000, None, |r| Response::ranged(r, &archive(2))), 2);
    assert_eq!(asked[1].range(), None);
    // A weak ETag cannot be sent with If-Range, but is compared.
    let weak = |request: &Request| Response::ranged(request, &archive(1)).with("ETag", "W/\"one\"");
    let asked = run("weak", cutting(3000, Some("W/\"one\""), weak), 1);
    assert_eq!(asked[1].header("if-range"), None);
    assert_eq!(asked[1].range(), Some((3000, None)));
    // The file has become shorter than the part that was downloaded.
    let short = |request: &Request| {
        if request.range().is_some() {
            Response::new(416, "")
        } else {
            Response::new(200, archive(1))
        }
    };
    run("short", cutting(3000, Some("\"one\""), short), 1);
}

/// Returns a download of unknown size and checksum that may stall for half a second.
fn wanted<'a>(from: &'a str, to: &'a Path) -> Wanted<'a> {
    Wanted {
        from,
        token: None,
        to,
        size: None,
        digest: None,
        advice: "",
        limits: Limits { stall: Duration::from_millis(500), unannounced: 1 << 20 },
    }
}

#[test]
fn a_checksum_detects_joined_versions() {
    let dir = tempfile::tempdir().unwrap();
    let right = dir.path().join("right");
    std::fs::write(&right, archive(2)).unwrap();
    let sha256 = of_file(&right).unwrap();
    let server = cutting(3000, None, |request| Response::ranged(request, &archive(2)));
    let to = dir.path().join("file.zip");
    let from = format!("{}{ZIP}", server.address);
    let wanted =
        Wanted { digest: Some((Digest::Sha256(&sha256), "published")), ..wanted(&from, &to) };
    assert_eq!(fetch(&wanted).unwrap(), sha256);
    assert_eq!(std::fs::read(&to).unwrap(), archive(2));
    let ranges: Vec<_> = server.requests().iter().map(Request::range).collect();
    assert_eq!(ranges, [None, Some((3000, None)), None]);
}

#[test]
fn wrong_bytes_and_errors_of_servers_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let cola = |server: &Server| {
        let folder = format!("--dir {} --mirror {}", text(dir.path()), server.address);
        fails(words(&format!("data get cola {folder}")), 1)
    };
    let size = 376_971;
    let message = cola(&Server::start(|_| Response::new(200, "few")));
    assert_contains(&message, "has 3 bytes, but 376971 are published");
    let server = Server::start(move |_| Response::new(200, vec![b'x'; size]));
    let message = cola(&server);
    assert_contains(&message, "CoLA.zip came with checksum");
    assert_contains(&message, "but f212fcd8");
    assert_contains(&message, "is published: it was thrown away");
    assert_eq!(server.requests().len(), 1);
    let message = cola(&Server::start(|_| Response::new(404, "")));
    assert_contains(&message, "status 404; if the file has moved, give the address of a mirror");
    let server = Server::start(|_| Response::new(500, ""));
    let message = cola(&server);
    assert_contains(&message, "CoLA.zip: the server answered with status 500");
    assert_eq!(server.requests().len(), 3);
    let endless = Server::start(move |_| Response::new(200, vec![b'x'; size]).cut_after(0));
    let message = cola(&endless);
    assert_contains(&message, "broke off at byte 0");
    // No server listens on port 9 of this machine.
    let message = error_line(&command("http://127.0.0.1:9", dir.path()).output().unwrap(), 1);
    assert_contains(&message, "http://127.0.0.1:9/wikitext-2-raw-v1.zip: ");
    let left = std::fs::read_dir(dir.path().join("CoLA")).unwrap().count();
    assert_eq!(left, 0);
    assert!(fails(["data", "get", "nothing"], 2).contains("For more information"));
}

#[test]
fn no_server_sends_more_than_was_announced() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |server: &Server, to: &str| {
        let (from, to) = (format!("{}{ZIP}", server.address), dir.path().join(to));
        let message = fetch(&wanted(&from, &to)).unwrap_err().to_string();
        assert_eq!(server.requests().len(), 1, "{message}");
        message
    };
    let endless = || Response::new(200, "").endless(1 << 16, Duration::ZERO);
    // Neither the catalogue nor the server knows the size.
    let message = refused(&Server::start(move |_| endless()), "unknown");
    assert_contains(&message, "more than 1048576 bytes, the most that is taken");
    // Chunks that are longer than the announced length.
    let chunked = Server::start(|_| {
        Response::new(200, "5\r\nthese\r\n5\r\nbytes\r\n0\r\n\r\n")
            .with("Transfer-Encoding", "chunked")
            .with("Content-Length", "5")
    });
    let message = refused(&chunked, "chunked");
    assert_contains(&message, "more than 5 bytes, its size");
    // A rest whose total size contradicts the part that exists.
    std::fs::write(dir.path().join("rest.part"), "a part").unwrap();
    let sum = crc32fast::hash(b"\"one\"\n6");
    let noted = format!("\"one\"\n6\n{sum:08x}");
    std::fs::write(dir.path().join("rest.part.version"), noted).unwrap();
    let rest = Server::start(|_| {
        Response::new(206, "rest").with("ETag", "\"one\"").with("Content-Range", "bytes 6-9/3")
    });
    let message = refused(&rest, "rest");
    assert_contains(&message, "more than 3 bytes, its size");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    // The catalogue knows the size.
    let server = Server::start(move |_| endless());
    let args = ["data", "get", "cola", "--dir", text(dir.path()), "--mirror"];
    let message = fails([&args[..], &[&server.address]].concat(), 1);
    assert_contains(&message, "CoLA.zip brought more than 376971 bytes");
    let left = std::fs::read_dir(dir.path().join("CoLA")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_stalled_download_is_aborted() {
    let dir = tempfile::tempdir().unwrap();
    let whole = archive(1);
    // If nothing follows the first 3000 bytes, the rest is requested.
    let stalled = whole.clone();
    let server = Server::start(move |request| {
        let right = Response::ranged(request, &stalled).with("ETag", "\"one\"");
        match request.range() {
            None => {
                let length = stalled.len().to_string();
                let right = right.with("Content-Length", &length).cut_after(3000);
                right.endless(0, Duration::from_secs(1))
            }
            Some(_) => right,
        }
    });
    let (from, to) = (format!("{}{ZIP}", server.address), dir.path().join("zip"));
    fetch(&wanted(&from, &to)).unwrap();
    assert_eq!(std::fs::read(&to).unwrap(), whole);
    let ranges: Vec<_> = server.requests().iter().map(Request::range).collect();
    assert_eq!(ranges, [None, Some((3000, None))]);

    // A few bytes now and then count as a stall, and such progress allows no further attempts.
    let server = Server::start(|request| {
        let first = request.range().map_or(0, |(first, _)| first);
        Response::new(if first == 0 { 200 } else { 206 }, "")
            .with("ETag", "\"one\"")
            .with("Content-Range", &format!("bytes {first}-9999/10000"))
            .endless(1, Duration::from_millis(50))
    });
    let (from, to) = (format!("{}{ZIP}", server.address), dir.path().join("slow"));
    let began = Instant::now();
    let message = fetch(&wanted(&from, &to)).unwrap_err().to_string();
    assert_contains(&message, "(fewer than 1024 bytes came in 0.5 s)");
    let ranges: Vec<_> = server.requests().iter().map(Request::range).collect();
    assert!(ranges[2] > ranges[1] && ranges.len() == 3, "{ranges:?}");
    assert!(began.elapsed() < Duration::from_secs(20));

    // Slow is not stalled: 4 KiB arrive in half a second.
    let server = Server::start(|_| {
        Response::new(200, "")
            .with("Content-Length", "12288")
            .endless(1024, Duration::from_millis(125))
    });
    let (from, to) = (format!("{}{ZIP}", server.address), dir.path().join("steady"));
    fetch(&wanted(&from, &to)).unwrap();
    assert_eq!(to.metadata().unwrap().len(), 12288);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn sets_under_a_licence_agreement_come_from_a_local_folder() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("data");
    let message = fails(["data", "get", "conll2003", "--dir", text(&out)], 1);
    assert_contains(&message, "given out by NIST after an agreement");
    assert_contains(&message, "--mirror takes the folder");
    for name in ["eng.train", "eng.testa", "eng.testb"] {
        std::fs::write(dir.path().join(name), format!("{name} O O O\n")).unwrap();
    }
    let folders = format!("--dir {} --mirror {}", text(&out), text(dir.path()));
    let args = words(&format!("data get conll2003 {folders}"));
    succeeds(&args);
    let read = std::fs::read_to_string(out.join("CoNLL-2003/eng.testb")).unwrap();
    assert_eq!(read, "eng.testb O O O\n");
    // Now it exists: nothing is downloaded, so nothing is refused.
    succeeds(["data", "get", "conll2003", "--dir", text(&out)]);
    // A copy that differs from the first is refused.
    std::fs::remove_file(out.join("CoNLL-2003/eng.testb")).unwrap();
    std::fs::write(dir.path().join("eng.testb"), "other\n").unwrap();
    let message = fails(&args, 1);
    assert_contains(&message, "is what came the first time");
}

#[test]
fn real_files_agree_with_the_published_checksums() {
    let Some(data) = real_data() else { return };
    let (dir, mirror) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (copy, name) in
        [("codah/full_data.tsv", "full_data.tsv"), ("glue/diagnostic/diagnostic.tsv", "AX.tsv")]
    {
        std::fs::copy(data.join(copy), mirror.path().join(name)).unwrap();
    }
    let (to, from) = (text(dir.path()), text(mirror.path()));
    succeeds(["data", "get", "codah", "ax", "--dir", to, "--mirror", from]);
    for (name, lines) in [("CODAH/full_data.tsv", 2776), ("AX/AX.tsv", 1105)] {
        let read = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read.lines().count(), lines, "{name}");
    }
}

#[test]
fn malicious_archives_write_nothing_outside() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |bytes: Vec<u8>| Server::start(move |request| Response::ranged(request, &bytes));
    let out = |name: &str| dir.path().join(name);
    // Members that are not needed are not unpacked, whatever their paths.
    let raw = wikitext(1);
    let evil = [("../evil.txt", "x"), ("/tmp/cloze-evil.txt", "x"), (INSIDE, raw.as_str())];
    succeeded(&get(&serve(zipped(&evil, None)), &out("outside/data")));
    check_text(&out("outside/data"), 1);
    let all: Vec<_> = std::fs::read_dir(out("outside/data/WikiText-2")).unwrap().collect();
    assert_eq!(all.len(), 2);
    assert!(!out("outside/evil.txt").exists() && !out("outside/data/evil.txt").exists());
    assert!(!Path::new("/tmp/cloze-evil.txt").exists());

    let run = |name: &str, bytes: Vec<u8>| error_line(&get(&serve(bytes), &out(name)), 1);
    let message = run("link", zipped(&[], Some((INSIDE, "/etc/passwd"))));
    assert_contains(&message, "wiki.train.raw is no plain file in it");
    let message = run("empty", zipped(&[("other", "x")], None));
    assert_contains(&message, "wiki.train.raw is not in the archive");
    let message = run("text", b"not a zip".to_vec());
    assert_contains(&message, "wikitext-2-raw-v1.zip: is damaged");
    let mut bytes = archive(1);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    let message = run("damaged", bytes);
    assert_contains(&message, "is damaged in it");
    for name in ["link", "empty", "text", "damaged"] {
        assert!(!out(name).join("WikiText-2/wikitext-2.txt").exists(), "{name}");
    }
}

/// Writes a .tar.gz with a file, a symbolic link, and a path that leads outside.
fn tarred(path: &Path) {
    let gz =
        flate2::write::GzEncoder::new(std::fs::File::create(path).unwrap(), Default::default());
    let mut tar = tar::Builder::new(gz);
    let mut add = |name: &str, kind: tar::EntryType, content: &str| {
        let mut header = tar::Header::new_gnu();
        // The crate's own functions would refuse a path that leads outside.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    };
    add("../evil.txt", tar::EntryType::Regular, "evil");
    add("set/linked.txt", tar::EntryType::Symlink, "");
    add("set/plain.txt", tar::EntryType::Regular, "plain");
    tar.into_inner().unwrap().finish().unwrap();
}

#[test]
fn only_plain_files_of_a_tar_are_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("set.tgz");
    tarred(&path);
    let read = |members: &[&str]| {
        let mut all = Vec::new();
        let result = unpack(&path, Archive::TarGz, members, &mut |index, content| {
            let mut text = String::new();
            content.read_to_string(&mut text).unwrap();
            all.push((index, text));
            Ok(())
        });
        result.map(|()| all).map_err(|e| e.to_string())
    };
    assert_eq!(read(&["set/plain.txt"]).unwrap(), [(0, "plain".to_owned())]);
    let message = read(&["set/plain.txt", "set/linked.txt"]).unwrap_err();
    assert_contains(&message, "set/linked.txt is no plain file in it");
    let message = read(&["set/none.txt"]).unwrap_err();
    assert_contains(&message, "set/none.txt is not in the archive");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(read(&["set/none.txt"]).unwrap_err().contains("is damaged"));
}

#[test]
fn an_unwritable_folder_and_a_full_disk_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        Server::start(|request| Response::ranged(request, &archive(1)).with("ETag", "\"one\""));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let message = error_line(&get(&server, &file), 1);
    assert_contains(&message, "file");

    // With files limited to 2 KiB and the signal ignored, writing fails as on a full disk.
    let full = dir.path().join("full");
    let script = format!(
        "trap '' XFSZ; ulimit -f 2; exec {} data get wikitext-2 --dir {} --mirror {}",
        env!("CARGO_BIN_EXE_cloze"),
        text(&full),
        server.address
    );
    let run = Command::new("bash").args(["-c", &script]).output().unwrap();
    let message = error_line(&run, 1);
    assert_contains(&message, "wikitext-2-raw-v1.zip.part: ");
    // With enough space it continues from there.
    server.requests();
    succeeded(&get(&server, &full));
    assert_eq!(server.requests()[0].range(), Some((2048, None)));
    check_text(&full, 1);
}
