//! `cloze convert` refuses model folders that it cannot read, also with little memory, and what an ONNX file
//! can't hold. tests/onnx compares the files that it writes with the engine.

use serde_json::Value;

use crate::common::{
    assert_contains, copy_of, error_line, fails, fixture, json, read_json, succeeds, text,
};

#[test]
fn unreadable_models_are_reported_in_a_sentence() {
    let folder = copy_of(&fixture("models/BertForMaskedLM"));
    let out = folder.path("out");
    let run = || fails(["convert", text(folder.0.path()), text(&out)], 1);
    let config = folder.path("config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    for (from, to, expected) in [
        ("\"bert\"", "\"gpt2\"", "model_type is \"gpt2\""),
        ("\"gelu\"", "\"relu\"", "hidden_act is \"relu\""),
        ("\"add_cross_attention\": false", "\"add_cross_attention\": true", "only self-attention"),
        (
            "\"use_cache\"",
            "\"position_embedding_type\": \"relative_key\", \"use_cache\"",
            "position_embedding_type is \"relative_key\"",
        ),
    ] {
        std::fs::write(&config, good.replace(from, to)).unwrap();
        let message = run();
        assert_contains(&message, "config.json");
        assert_contains(&message, expected);
    }
    std::fs::write(&config, &good).unwrap();

    let vocab = folder.path("vocab.txt");
    let words = std::fs::read_to_string(&vocab).unwrap();
    std::fs::write(&vocab, format!("{words}more\n")).unwrap();
    let expected = "vocab.txt: its vocabulary has 26 entries, but the model's vocab_size is 25";
    assert_contains(&run(), expected);

    let [from, to] = ["model.safetensors", "pytorch_model.bin"].map(|name| folder.path(name));
    std::fs::rename(from, to).unwrap();
    assert_contains(&run(), "pytorch_model.bin, a pickle file");
    assert!(!out.exists());
}

#[test]
fn what_an_onnx_file_cannot_hold_is_refused() {
    let folder = copy_of(&fixture("models/BertModel"));
    let out = folder.path("out");
    let run = |more: &[&str], code: i32| {
        let args = ["convert", text(folder.0.path()), text(&out), "--format", "onnx"];
        fails([&args[..], more].concat(), code)
    };
    assert_contains(&run(&["--dtype", "f16"], 2), "--dtype f16: --format onnx writes f32 only");
    folder.write("head.safetensors", "a head");
    assert_contains(&run(&[], 1), "its head stands on a frozen encoder (head.safetensors)");
    assert!(!out.exists());
    std::fs::remove_file(folder.path("head.safetensors")).unwrap();
    let args = ["convert", text(folder.0.path()), text(&out), "--format", "onnx", "--json"];
    assert_eq!(json(&succeeds(args))["format"], "onnx");
    assert_contains(&run(&[], 2), "already holds a model");
    std::fs::rename(out.join("model.onnx"), out.join("pytorch_model.bin")).unwrap();
    assert_contains(&run(&[], 2), "already holds a model");
}

#[test]
fn the_settings_of_sentence_vectors_are_kept_or_named() {
    let folder = copy_of(&fixture("models/BertModel"));
    std::fs::create_dir(folder.path("1_Pooling")).unwrap();
    let files = ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json"];
    for name in files {
        folder.write(name, &format!("{{\"name\": \"{name}\"}}\n"));
    }
    folder.write("tokenizer_config.json", "{\"do_lower_case\": true, \"model_max_length\": 8}\n");
    folder.write("head.safetensors", "a head");
    let converted = |out: &str, more: &[&str]| {
        let (from, out) = (text(folder.0.path()), folder.path(out));
        json(&succeeds([&["convert", from, text(&out), "--json"], more].concat()))["left_out"]
            .clone()
    };
    let head = "head on a frozen encoder (head.safetensors)";
    assert_eq!(converted("hf", &[]), serde_json::json!([head]));
    for name in files {
        let [from, to] = ["", "hf/"].map(|at| std::fs::read(folder.path(&format!("{at}{name}"))));
        assert_eq!(from.unwrap(), to.unwrap(), "{name}");
    }
    let settings = |out: &str| read_json(&folder.path(&format!("{out}/tokenizer_config.json")));
    assert_eq!(settings("hf")["model_max_length"], 8);
    std::fs::remove_file(folder.path("head.safetensors")).unwrap();
    folder.write("tokenizer_config.json", "{\"model_max_length\": 1e30}\n");
    assert_eq!(converted("onnx", &["--format", "onnx"]), serde_json::json!(files));
    assert!(files.iter().all(|name| !folder.path(&format!("onnx/{name}")).exists()));
    // Without a limit it is the model's.
    let positions = &read_json(&folder.path("config.json"))["max_position_embeddings"];
    assert_eq!(&settings("onnx")["model_max_length"], positions);
}

/// Runs `cloze` with an address space of 4 GB and returns the message with which it soon fails.
fn fails_in_little_memory(args: &[&str], code: i32) -> String {
    let started = std::time::Instant::now();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 4000000 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_cloze"))
        .args(args)
        .output()
        .unwrap();
    let message = error_line(&output, code);
    assert!(started.elapsed().as_secs() < 20, "{message}");
    message
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the limit of `ulimit -v` is Linux's")]
fn a_configuration_that_would_need_too_much_memory_is_refused_first() {
    let folder = copy_of(&fixture("models/BertForMaskedLM"));
    let (out, config) = (folder.path("out"), folder.path("config.json"));
    let good = read_json(&config);
    for (field, value, expected) in [
        ("num_hidden_layers", 1_u64 << 40, "must be at most 4096"),
        ("vocab_size", 1 << 60, "must be at most 16777216"),
        ("hidden_size", 1 << 40, "must be at most 65536"),
        ("intermediate_size", 1 << 40, "must be at most 1048576"),
        ("max_position_embeddings", 1 << 60, "must be at most 1048576"),
        ("type_vocab_size", 1 << 60, "must be at most 65536"),
        (
            "num_hidden_layers",
            1 << 12,
            "encoder.layer.2.attention.self.query.weight of shape [16, 16] is missing",
        ),
        ("vocab_size", 1 << 24, "has shape [25, 16], but config.json asks for [16777216, 16]"),
        ("hidden_size", 1 << 16, "has shape [25, 16], but config.json asks for [25, 65536]"),
        (
            "intermediate_size",
            1 << 20,
            "has shape [32, 16], but config.json asks for [1048576, 16]",
        ),
    ] {
        let mut changed = good.clone();
        changed[field] = Value::from(value);
        std::fs::write(&config, changed.to_string()).unwrap();
        let message = fails_in_little_memory(&["convert", text(folder.0.path()), text(&out)], 1);
        assert!(message.contains(expected), "{field}: {message}");
    }
    assert!(!out.exists());

    let args = ["pretrain", "--seq", "16", "--first-seq", "16", "--size"];
    let args = [&args[..], &[text(&config), "--out", text(&out)]].concat();
    for (layers, code, expected) in [
        (1_u64 << 40, 1, "must be at most 4096"),
        (
            1 << 12,
            2,
            "a model of 70396931997698 parameters needs 262249.0 GiB for these alone, but ",
        ),
    ] {
        let mut changed = good.clone();
        changed["num_hidden_layers"] = layers.into();
        changed["hidden_size"] = (1 << 16).into();
        std::fs::write(&config, changed.to_string()).unwrap();
        let message = fails_in_little_memory(&args, code);
        assert_contains(&message, expected);
    }
}
