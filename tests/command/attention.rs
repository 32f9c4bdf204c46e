//! `cloze attention`: prints attention weights and writes the page that shows them.

use crate::common::{
    assert_contains, close, fails, fixture, json, numbers, read_json, succeeds, text,
};

/// Returns the arguments of `cloze attention`.
fn arguments<'a>(folder: &'a str, texts: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["attention", "--model", folder], texts, more].concat()
}

#[test]
fn the_weights_are_printed_and_the_page_is_written() {
    let (model, out) = (fixture("attention"), tempfile::tempdir().unwrap());
    let expected = read_json(&model.join("expected.json"));
    let page = out.path().join("deep/view.html");
    let texts = ["a", "b"].map(|key| expected[key].as_str().unwrap());
    let more = ["--json", "--out", text(&page), "--view", "neuron"];
    let printed = json(&succeeds(arguments(text(&model), &texts, &more)));
    assert_eq!(printed["tokens"], expected["tokens"]);
    assert_eq!(printed["segments"], expected["segments"]);
    assert_eq!(printed["layers"], serde_json::json!([0, 1]));
    for (layer, weights) in printed["weights"].as_array().unwrap().iter().enumerate() {
        let heads = weights.as_array().unwrap();
        assert_eq!((heads.len(), heads[0].as_array().unwrap().len()), (3, 19));
        let rows = heads.iter().flat_map(|head| head.as_array().unwrap());
        let weights: Vec<f32> = rows.flat_map(numbers).map(|weight| weight as f32).collect();
        close("weights", &weights, &numbers(&expected["weights"][layer]), 1e-5);
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"view\":\"neuron\""));

    // Only the last layer of one text; without --out nothing is written.
    let more = ["--json", "--layers", "-1"];
    let printed = json(&succeeds(arguments(text(&model), &texts[..1], &more)));
    assert_eq!(printed["layers"], serde_json::json!([1]));
    assert_eq!(printed["segments"], serde_json::json!(vec![0; 8]));
}

#[test]
fn wrong_arguments_exit_2_and_failed_work_exits_1() {
    let (model, folder) = (fixture("attention"), tempfile::tempdir().unwrap());
    let model = text(&model);
    let page = folder.path().join("view.html");
    let out = ["--out", text(&page)];
    let wrong = |texts: &[&str], more: &[&str], code| {
        let message = fails(arguments(model, texts, &[&out, more].concat()), code);
        assert!(!page.exists(), "{message}");
        message
    };
    assert!(wrong(&[""], &[], 2).contains("the first text has no tokens"));
    assert!(wrong(&["store", " \u{200b}\t"], &[], 2).contains("the second text has no tokens"));
    let layers = wrong(&["store"], &["--layers", "2"], 2);
    assert_contains(&layers, "layers 2: the model has layers 0 to 1, or -2 to -1");
    wrong(&["store"], &["--view", "tail"], 2);
    fails(["attention", "--model", model, "store"], 2);
    let long = wrong(&[&"store ".repeat(23)], &[], 1);
    assert_contains(&long, "25 tokens");
    assert_contains(&long, "24 positions");
    let backend = wrong(&["store"], &["--backend", "reference"], 1);
    assert_contains(&backend, "24/3/40");
    assert_contains(&backend, "384/12/1536 (minilm)");

    let missing = folder.path().join("none");
    let message = fails(arguments(text(&missing), &["store"], &out), 1);
    assert_contains(&message, "none is neither a folder nor the name of a model");
    // A file is in the way of the folder.
    std::fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file/view.html");
    let message = fails(arguments(model, &["store"], &["--out", text(&below)]), 1);
    assert_contains(&message, "file");
    let message = fails(arguments(model, &["store"], &["--out", text(folder.path())]), 1);
    assert!(message.contains(text(folder.path())), "{message}");
}
