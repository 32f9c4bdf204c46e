//! `cloze records` writes MLflow's file store. tests/read_mlflow.py reads one with MLflow itself.

use std::path::{Path, PathBuf};

use crate::common::{Folder, assert_contains, fails, json, read_json, succeeds, text, tiny};

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the only folder in a folder.
fn only(folder: &Path) -> PathBuf {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].clone()
}

#[test]
fn a_run_becomes_one_of_mlflow_and_is_replaced_by_itself() {
    let folder = Folder::new();
    let store = folder.path("mlruns");
    let add = || json(&succeeds(["records", text(tiny()), "--mlflow", text(&store), "--json"]));
    let first = add();
    assert_eq!(first, add());
    let run = only(&only(&store));
    let id = first["runs"][0]["id"].as_str().unwrap();
    assert_eq!(run.file_name().unwrap(), id);
    let meta = read(run.join("meta.yaml"));
    assert_contains(&meta, &format!("run_id: \"{id}\"\n"));
    assert_contains(&meta, "\nstatus: 3\n");

    // Every number of the run, under the names that TensorBoard shows.
    let lines = read(tiny().join("trainer/metrics.jsonl"));
    let records: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (file, field) in [("train/loss", "/loss"), ("eval/mlm_accuracy", "/eval/mlm_accuracy")] {
        let with = records.iter().filter_map(|line| {
            let (value, time) = (line.pointer(field)?.as_f64()?, line["time"].as_f64()?);
            Some(format!("{:.0} {value} {}\n", time * 1e3, line["step"]))
        });
        let expected: String = with.collect();
        assert!(!expected.is_empty());
        assert_eq!(read(run.join("metrics").join(file)), expected);
    }
    assert_eq!(read(run.join("params/Recipe/steps")), "20");
    let layers = read_json(&tiny().join("config.json"))["num_hidden_layers"].to_string();
    assert_eq!(read(run.join("params/Model/layers")), layers);
}

#[test]
fn several_runs_join_an_experiment_that_mlflow_made() {
    let folder = Folder::new();
    for (seed, lines) in [
        (1, "{\"step\":1,\"time\":5.25,\"loss\":null,\"a b|c\":1}\n{\"step\":2,\"ti"),
        (2, "{\"step\":1,\"time\":7,\"left_out\":\"why\"}\n"),
    ] {
        let run = format!("out/trainer/runs/seed-{seed}");
        std::fs::create_dir_all(folder.path(&run)).unwrap();
        folder.write(&format!("{run}/metrics.jsonl"), lines);
    }
    std::fs::create_dir_all(folder.path("mlruns/77")).unwrap();
    folder.write("mlruns/77/meta.yaml", "experiment_id: '77'\nname: mine\n");
    let (out, store) = (folder.path("out"), folder.path("mlruns"));
    let args = ["records", text(&out), "--mlflow", text(&store), "--experiment", "mine", "--json"];
    let written = json(&succeeds(args));
    let id = |index: usize| written["runs"][index]["id"].as_str().unwrap();
    assert_eq!(written["runs"][0]["name"], "out/seed-1");
    let first = store.join("77").join(id(0));
    assert_eq!(read(first.join("metrics/train/loss")), "5250 nan 1\n");
    assert_eq!(read(first.join("metrics/train/a b_c")), "5250 1 1\n");
    assert_contains(&read(first.join("meta.yaml")), "experiment_id: \"77\"");
    assert!(!store.join("77").join(id(1)).join("metrics").exists());
}

#[test]
fn a_folder_without_records_or_with_damaged_ones_is_named() {
    let folder = Folder::new();
    let (out, store) = (folder.path("out"), folder.path("mlruns"));
    std::fs::create_dir_all(out.join("trainer")).unwrap();
    let run = || fails(["records", text(&out), "--mlflow", text(&store)], 1);
    assert_contains(&run(), "out: holds no records of a run");
    folder.write("out/trainer/metrics.jsonl", "{\"step\":0,\"time\":1}\n{\"step\":1}\n");
    assert_contains(&run(), "metrics.jsonl:2: is not a record of a run");
    assert!(!store.exists());
}
