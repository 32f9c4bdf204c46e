//! The recipe of fine-tuning through the command: defaults that suit model and data, rows that are held out, the
//! model that is kept, layers that are frozen, several classes a text, long texts.

use serde_json::Value;

use crate::common::{Folder, assert_contains, cloze, fails, json, stderr, text, tiny, words};
use crate::opinion;

/// Returns a folder with a file of texts, each with its label and its number.
fn own(rows: usize) -> Folder {
    let folder = Folder::new();
    let row = |i| {
        let (good, sentence) = opinion(i);
        format!("{sentence}\t{}\n", if good { "fine" } else { "bad" })
    };
    folder
        .write("own.tsv", &("text\tlabel\n".to_owned() + &(0..rows).map(row).collect::<String>()));
    folder
}

/// Fine-tunes on the folder's only file; returns what was printed on stdout and stderr.
fn train(folder: &Folder, options: &str) -> (Value, String) {
    let (file, model, out) = (folder.path("own.tsv"), tiny(), folder.path("out"));
    let line = format!(
        "finetune custom --json --overwrite --columns text,label --train {} --model {} --out {} {options}",
        text(&file),
        text(model),
        text(&out)
    );
    let output = cloze().args(words(line.trim_end())).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    (json(&output), stderr(&output))
}

#[test]
fn what_suits_the_model_is_chosen_and_a_tenth_held_out() {
    let folder = own(120);
    let (trained, said) = train(&folder, "");
    assert_contains(&said, "own.tsv: 12 of 120 rows are held out to measure on (--split 0.1)");
    assert_contains(&said, "learning rate 1e-3, which suits a width of 128 (--lr), 10 epochs");
    assert_eq!((&trained["rows"], &trained["steps"]), (&108.into(), &40.into()));
    let classes = trained["classes"].as_object().unwrap();
    let support: u64 = classes.values().map(|class| class["support"].as_u64().unwrap()).sum();
    let confusion: u64 = trained["confusion"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!((support, confusion), (12, 12));
    // Both classes are held out as often as they occur: a third is fine.
    assert_eq!(classes["fine"]["support"], 4);
    let again = folder.ask("evaluate", "custom", "own.tsv", &["--json"]);
    let again = json(&cloze().args(again).output().unwrap());
    assert_eq!(again["rows"], 120);
    assert!(again["calibration"]["ece"].as_f64().unwrap() < 1.0);

    let (trained, said) = train(&folder, "--split 0 --epochs 1 --lr 3");
    assert_eq!((&trained["rows"], &trained["dev"]), (&120.into(), &Value::Null));
    assert_contains(&said, "a learning rate of 3 is high");
    let line = format!(
        "finetune custom --columns text,label --train {} --out {} --split 0",
        text(&folder.path("own.tsv")),
        text(&folder.path("other"))
    );
    for (option, message) in [
        ("--patience 1", "--patience needs development data"),
        ("--seeds 2", "--seeds and --lr-search need development data"),
    ] {
        assert_contains(&fails(words(&format!("{line} {option}")), 2), message);
    }
}

#[test]
fn a_run_ends_when_no_epoch_is_better_and_resumes_to_the_same_result() {
    let folder = own(90);
    // A rate of almost nothing changes no prediction: no epoch is better than the first.
    let options = "--lr 1e-12 --epochs 6 --patience 2 --metric accuracy";
    let (trained, _) = train(&folder, options);
    assert_eq!(trained["kept_epoch"], 1);
    assert_eq!((&trained["ended_after_epoch"], &trained["stopped"]), (&3.into(), &false.into()));
    assert_eq!(trained["epochs"].as_array().unwrap().len(), 3);
    let line = format!(
        "finetune custom --json --resume --columns text,label --train {} --model {} --out {} {options}",
        text(&folder.path("own.tsv")),
        text(tiny()),
        text(&folder.path("out"))
    );
    let again = json(&cloze().args(words(&line)).output().unwrap());
    assert_eq!(again, trained);
    let other = line.replace("--patience 2", "--patience 3");
    assert_contains(&fails(words(&other), 2), "--patience was 2 and is now 3");
    let message = fails(words(&line.replace("accuracy", "bleu")), 2);
    assert_contains(&message, "--metric bleu: custom has accuracy, f1, macro_f1, mcc, loss");
}

#[test]
fn frozen_layers_stay_as_they_were() {
    let folder = own(60);
    let parameters = |path: &std::path::Path| {
        let bytes = std::fs::read(path.join("model.safetensors")).unwrap();
        let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let bytes = |name: &str| all.tensor(name).unwrap().data().to_vec();
        [
            bytes("bert.embeddings.word_embeddings.weight"),
            bytes("bert.encoder.layer.0.output.dense.weight"),
            bytes("bert.encoder.layer.1.output.dense.weight"),
        ]
    };
    let before = parameters(tiny());
    let same = |options: &str| {
        let (trained, _) = train(&folder, &format!("--epochs 2 {options}"));
        assert!(trained["loss_last"].as_f64().unwrap().is_finite());
        let after = parameters(&folder.path("out"));
        [0, 1, 2].map(|i| before[i] == after[i])
    };
    assert_eq!(same("--freeze 1"), [true, true, false]);
    assert_eq!(same("--freeze 0"), [true, false, false]);
    let all = "--layer-decay 0.8 --schedule cosine --label-smoothing 0.1 --class-weights balanced \
               --sampling balanced";
    assert_eq!(same(all), [false, false, false]);
    let (trained, _) = train(&folder, "--max-steps 3");
    assert_eq!(trained["steps"], 3);
}

#[test]
fn a_text_can_have_several_classes_and_be_read_in_windows() {
    let folder = Folder::new();
    let row = |i: usize| {
        let (good, sentence) = opinion(i);
        let labels = [good.then_some("fine"), sentence.contains("road").then_some("road")];
        let labels: Vec<&str> = labels.into_iter().flatten().collect();
        format!("{sentence} {}\t{}\n", "and on ".repeat(i % 9), labels.join("|"))
    };
    let rows: String = (0..150).map(row).collect();
    folder.write("own.tsv", &format!("text\tlabel\n{rows}"));
    let options = "--kind classes --max-len 12 --long-text windows --epochs 12 --batch 16";
    let (trained, _) = train(&folder, options);
    let f1 = trained["dev"]["micro_f1"].as_f64().unwrap();
    assert!(f1 > 0.8, "{trained}");
    let config = folder.config();
    assert_eq!(config["problem_type"], "multi_label_classification");
    assert_eq!(config["finetuning_options"]["long_text"], "windows");
    let thresholds = &trained["dev"]["thresholds"];
    assert_eq!(&config["finetuning_options"]["thresholds"], thresholds);
    let lines = folder.predicted("custom", "own.tsv", &["--json"]);
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let probability = line["probabilities"]["fine"].as_f64().unwrap();
    let predicted = line["prediction"].as_array().unwrap().contains(&"fine".into());
    assert_eq!(predicted, probability >= thresholds["fine"].as_f64().unwrap());

    // The library reads in windows too, and gives the same probabilities.
    let model = cloze::TextClassifier::load(folder.path("out")).unwrap();
    let first = rows.lines().next().unwrap().split('\t').next().unwrap();
    let prediction = &model.predict(&[first]).unwrap()[0];
    assert!((f64::from(prediction.scores[0]) - probability).abs() < 1e-5, "{prediction:?}");
    assert_eq!(prediction.labels.contains(&"fine".to_owned()), predicted);
}
