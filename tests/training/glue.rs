//! Fine-tuning and evaluating on GLUE.

use crate::common::{assert_contains, fails, real_data_and_model, text, tiny};
use crate::{finetuned, sentiment, with_short_dev};

#[test]
fn a_rule_is_learned_and_evaluation_repeats_the_scores() {
    let folder = sentiment(240, 60);
    let trained = folder.finetuned("sst-2", &["--epochs", "4"]);
    assert_eq!(trained["task"], "sst-2");
    assert_eq!((&trained["rows"], &trained["steps"]), (&240.into(), &32.into()));
    let accuracy = trained["dev"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.95, "{trained}");
    assert!(trained["loss_last"].as_f64().unwrap() < 0.6, "{trained}");
    assert!(trained["real_tokens_per_s"].as_f64().unwrap() > 0.0);

    assert_eq!(folder.evaluated("sst-2", "dev.tsv", &[]), trained["dev"]);
    let config = folder.config();
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"]["1"], "1");
    assert!(folder.path("out/trainer/loss.svg").exists());
}

#[test]
fn micro_batches_and_recomputed_layers_change_nothing() {
    let folder = sentiment(64, 8);
    let loss = |more: &[&str]| {
        let all = [&["--epochs", "1"], more].concat();
        folder.finetuned("sst-2", &all)["loss_last"].as_f64().unwrap()
    };
    let whole = loss(&[]);
    assert!((loss(&["--micro-batch", "5"]) - whole).abs() < 1e-4);
    assert!((loss(&["--recompute"]) - whole).abs() < 1e-6);
    assert!((loss(&["--backend", "reference"]) - whole).abs() < 1e-4);
    assert!((loss(&["--batch-tokens", "100"]) - whole).abs() > 1e-6);
    assert!((loss(&["--optimizer", "lamb"]) - whole).abs() > 1e-6);
}

#[test]
fn wrong_usage_and_bad_data_are_reported_in_a_sentence() {
    let folder = sentiment(8, 8);
    let refused = |task: &str, more: &[&str], code, expected: &str| {
        assert_contains(&fails(folder.finetune(task, more), code), expected);
    };
    refused("sst-2", &["--epochs", "0"], 2, "--epochs 0: at least 1");
    refused("sst-2", &["--lr=-1"], 2, "--lr -1");
    refused("sst-2", &["--max-len", "513"], 2, "only 512 positions");
    refused("sst-2", &["--max-len", "4"], 2, "at least 5");
    let reference = ["--backend", "reference", "--dtype", "bf16"];
    refused("sst-2", &reference, 2, "the reference engine computes in f32");
    let fast = ["--matmul", "fast", "--dtype", "bf16"];
    refused("sst-2", &fast, 2, "not with --dtype bf16");
    refused("sst-2", &["--dtype", "int8"], 2, "--dtype int8 is for inference");
    refused("mrpc", &[], 1, "no columns #1 String, #2 String, Quality");
    let missing = folder.path("nothing.tsv");
    refused("sst-2", &["--dev", text(&missing)], 1, "nothing.tsv");
    folder.write("test.tsv", "index\tsentence\n0\tfine\n");
    let unlabelled = folder.path("test.tsv");
    refused("sst-2", &["--train", text(&unlabelled)], 1, "has no label column");
    let dev = folder.path("dev.tsv");
    let args = ["evaluate", "sst-2", "--data", text(&dev), "--model", text(tiny())];
    assert_contains(&fails(args, 1), "holds no sequence classifier");
}

#[test]
fn similarity_is_learned_from_a_real_model() {
    let Some((data, model)) = real_data_and_model() else {
        return;
    };
    let [train, dev] = ["train.tsv", "dev.tsv"].map(|name| data.join("glue/STS-B").join(name));
    let folder = with_short_dev([&train, &dev], "\n", 301);
    let more = ["--limit", "600", "--epochs", "2", "--lr", "3e-4", "--batch", "16"];
    let similarity = finetuned(&model, "sts-b", folder.0.path(), &more);
    for metric in ["pearson", "spearman"] {
        let value = similarity["dev"][metric].as_f64().unwrap();
        assert!(value > 0.5, "{similarity}");
    }
}
