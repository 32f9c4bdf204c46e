//! The commands that are broken off.

use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use cloze::Result;
use cloze::cli::Cli;
use cloze::data::TokenStore;
use cloze::download::{Digest, Limits, Wanted, fetch};
use cloze::files::create_folder;
use cloze::model::weights::{Model, wordpiece_of};

use crate::common::pretraining::corpus;
use crate::common::text;
use crate::place::{Place, digest};
use crate::power::Disk;
use crate::server::{Response, Server};

type Run = Box<dyn Fn(bool) -> Result<()>>;

/// A command that is broken off.
pub struct Case {
    pub name: &'static str,
    /// The files before the command.
    pub before: Disk,
    /// Runs the command; after a crash as a user would then.
    pub run: Run,
    /// Returns a digest of what the folder holds.
    pub load: fn(&Path) -> Result<String>,
}

/// Runs a command in this process.
fn command(args: &[String]) -> Result<()> {
    let words = std::iter::once("cloze".to_owned()).chain(args.iter().cloned());
    Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{args:?}: {e}")).work()
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|&word| word.to_owned()).collect()
}

fn model(folder: &Path) -> Result<String> {
    let model = Model::read_all(folder)?;
    let wordpiece = wordpiece_of(folder, &model)?;
    let values: Vec<u8> = model.values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let texts = model.config.to_json() + &wordpiece.vocab_text();
    Ok(digest(&[&values, texts.as_bytes()].concat()))
}

fn store(folder: &Path) -> Result<String> {
    let (store, _) = TokenStore::open(folder)?;
    store.check()?;
    Ok(format!("{:08x}", store.checksum()))
}

fn file(folder: &Path) -> Result<String> {
    let path = folder.join("file.bin");
    let bytes = std::fs::read(&path).map_err(|e| cloze::Error::io(&path, e))?;
    Ok(digest(&bytes))
}

pub const CONFIG: &str = r#"{"model_type":"bert","vocab_size":90,"hidden_size":8,"num_hidden_layers":2,
"num_attention_heads":2,"intermediate_size":16,"max_position_embeddings":32,"type_vocab_size":2,
"hidden_dropout_prob":0.1,"attention_probs_dropout_prob":0.1,"layer_norm_eps":1e-12,"initializer_range":0.3}"#;

/// Writes data for `finetune sst-2`.
pub fn sentiments(place: &Place) {
    let row = |i: usize| format!("it was a {} day\t{}\n", ["warm", "cold", "kind"][i % 3], i % 2);
    let rows: String = (0..12).map(row).collect();
    for name in ["train.tsv", "dev.tsv"] {
        place.folder.write(name, &format!("sentence\tlabel\n{rows}"));
    }
}

/// Returns all commands.
pub fn all(place: &Place) -> Vec<Case> {
    let corpus = corpus(place.folder.0.path());
    sentiments(place);
    place.folder.write("small.json", CONFIG);
    let (out, config, base) = (place.out(), place.path("small.json"), place.path("base"));
    let data = place.folder.0.path();
    let pretrain = [
        "pretrain",
        "--text",
        text(&corpus),
        "--size",
        text(&config),
        "--vocab-size",
        "90",
        "--seq",
        "16",
        "--first-seq",
        "12",
        "--batch",
        "4",
        "--eval-sequences",
        "4",
        "--json",
    ];
    let of_base = [&pretrain[..], &["--steps", "2", "--out", text(&base)]].concat();
    command(&words(&of_base)).unwrap();
    let with =
        |first: &[&str], more: &[&str]| words(&[first, more, &["--out", text(&out)]].concat());
    let finetune = [
        "finetune",
        "sst-2",
        "--data",
        text(data),
        "--model",
        text(&base),
        "--batch",
        "4",
        "--lr",
        "1e-3",
        "--json",
    ];
    // Returns the files that a command leaves, as those before another one.
    let left_by = |args: Vec<String>| {
        crate::place::remove(&place.root());
        command(&args).unwrap();
        Disk::read(&place.root())
    };
    crate::place::remove(&place.root());
    std::fs::create_dir(place.root()).unwrap();
    let nothing = Disk::read(&place.root());
    let older = left_by(with(&pretrain, &["--steps", "2", "--seed", "9", "--save-every", "1"]));
    let shorter = left_by(with(&pretrain, &["--steps", "2", "--save-every", "1"]));
    let tuned = left_by(with(&finetune, &["--epochs", "1", "--seed", "9"]));
    let case = |name, before: &Disk, args: Vec<String>, more: &[&str], load| {
        let again = [&args[..], &words(more)].concat();
        let run = move |is_again: bool| command(if is_again { &again } else { &args });
        Case { name, before: before.clone(), run: Box::new(run), load }
    };
    let resume = ["--resume"];
    let steps = ["--steps", "4", "--save-every", "1", "--eval-every", "2"];
    let small = ["--epochs", "2", "--save-every", "2"];
    let several = [&small[..], &["--seeds", "2", "--keep-best"]].concat();
    let search = ["--epochs", "1", "--save-every", "2", "--lr-search", "1e-3,3e-3", "--keep-best"];
    let search_base: Vec<&str> =
        finetune.iter().copied().filter(|word| !["--lr", "1e-3"].contains(word)).collect();
    let distill = [
        "distill",
        "--teacher",
        text(&base),
        "--text",
        text(&corpus),
        "--layers",
        "1",
        "--seq",
        "16",
        "--batch",
        "4",
        "--eval-sequences",
        "4",
        "--json",
        "--steps",
        "3",
        "--save-every",
        "1",
    ];
    let convert = words(&["convert", text(&base), text(&out), "--json"]);
    let vocabulary = base.join("vocab.txt");
    let prepare = ["prepare", "--text", text(&corpus), "--vocab", text(&vocabulary), "--json"];
    vec![
        case("pretrain", &nothing, with(&pretrain, &steps), &resume, model),
        case(
            "pretrain --resume",
            &shorter,
            with(&pretrain, &[&steps[..], &resume].concat()),
            &[],
            model,
        ),
        case(
            "pretrain --overwrite",
            &older,
            with(&pretrain, &[&steps[..], &["--overwrite"]].concat()),
            &[],
            model,
        ),
        case("finetune", &nothing, with(&finetune, &small), &resume, model),
        case(
            "finetune --overwrite",
            &tuned,
            with(&finetune, &[&small[..], &["--overwrite"]].concat()),
            &[],
            model,
        ),
        case("finetune --seeds --keep-best", &nothing, with(&finetune, &several), &resume, model),
        case("finetune --lr-search", &nothing, with(&search_base, &search), &resume, model),
        case(
            "finetune --frozen",
            &nothing,
            with(&finetune, &["--frozen", "--epochs", "2"]),
            &resume,
            model,
        ),
        case("distill", &nothing, with(&distill, &[]), &resume, model),
        case("convert", &nothing, convert, &[], model),
        case("prepare", &nothing, with(&prepare, &[]), &[], store),
        download(&nothing, place),
    ]
}

/// A file from a server that breaks off in the middle the first time.
fn download(before: &Disk, place: &Place) -> Case {
    let whole: Arc<Vec<u8>> = Arc::new((0..60_000u32).flat_map(|i| i.to_le_bytes()).collect());
    let served = whole.clone();
    let server = Server::start(move |request| {
        let right = Response::ranged(request, &served).with("ETag", "\"one\"");
        match request.range() {
            None => right.cut_after(150_000),
            Some(_) => right,
        }
    });
    let to = place.out().join("file.bin");
    let run = move |_| {
        create_folder(to.parent().unwrap())?;
        let from = format!("{}/file.bin", server.address);
        fetch(&Wanted {
            from: &from,
            token: None,
            to: &to,
            size: None,
            digest: None::<(Digest, &str)>,
            advice: "",
            limits: Limits::default(),
        })
        .map(drop)
    };
    Case { name: "download", before: before.clone(), run: Box::new(run), load: file }
}
