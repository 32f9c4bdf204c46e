// ---
// title = "Ship it: from a trained model to a program that is used"
// summary = "Fine-tune, save in Hugging Face's layout, read the file by hand, name its tensors as transformers does, load it in Rust and in Python with the same numbers, answer in batches, measure latency, and write a program."
// track = "use"
// minutes = 57
// seconds = 25
// needs = ["12"]
//
// [[exercise]]
// id = "21.1"
// key = "tensor"
// was = "16.1"
// title = "Read a safetensors file by hand"
// hints = [
//     "The first 8 bytes are a number, n: `u64::from_le_bytes`. The next n bytes are JSON. All offsets in it count from the byte after the JSON, 8 + n.",
//     "`serde_json::from_slice(&bytes[8..8 + n])` returns a `Value`; `header[name][\"shape\"]` is a list, and `header[name][\"data_offsets\"]` holds begin and end. `.as_u64()` takes a number out of a `Value`.",
//     "An f32 is four bytes, the lowest first: `data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))`.",
//     "If the name is not in the header, `header.get(name)?` leaves the function with `None`.",
// ]
//
// [[exercise]]
// id = "21.2"
// key = "name_and_shape"
// title = "The names in Hugging Face's layout"
// hints = [
//     "`match part` gives three things: the middle of the name, the number of outputs, and the number of inputs. A LayerNorm has no matrix, so let the inputs be `None` there: `\"norm 1\" => (\"attention.output.LayerNorm\", h, None)`. Any other part returns None: `_ => return None`.",
//     "Q, K and V are `attention.self.query`, `.key` and `.value`; O is `attention.output.dense`. W₁ is `intermediate.dense` with I outputs and H inputs, W₂ is `output.dense` with H outputs and I inputs, and the second LayerNorm is `output.LayerNorm`.",
//     "A weight with inputs has the shape `vec![outputs, inputs]`; a bias, and both vectors of a LayerNorm, have `vec![outputs]`.",
//     "The name is `format!(\"bert.encoder.layer.{layer}.{name}.{kind}\")`.",
// ]
//
// [[exercise]]
// id = "21.3"
// key = "predict"
// was = "16.3"
// title = "Answer many texts"
// hints = [
//     "`Sequences::tokenise(&model.tokenizer, &pairs, longest)` takes `(text, None)` pairs and cuts texts that are too long. `longest` is the model's number of positions.",
//     "`sequences.by_length(BatchSize::Examples(batch))` returns lists of indices that put texts of similar length together; `sequences.batch(&which)` makes the batch of one list.",
//     "`model.engine.task_logits(&packed)?` returns one row of logits a text, in the order of `which`: row k belongs to text `which[k]`, so put its answer there.",
//     "`cloze::eval::softmax(row)` returns the probabilities, `cloze::eval::best(row)` the index of the largest.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 21 · Ship it: from a trained model to a program that is used
    //
    // A model that only lives in a notebook helps nobody. You fine-tune yours to separate spam from ham
    // (messages that are not spam), save it in the layout that everybody reads, take the file apart
    // byte by byte, load it in Rust and in Python with the same numbers, answer many texts at once,
    // and measure how long users wait. It ends as a program.
    //
    // *About 57 minutes; the longest cell trains for a few seconds. You need lesson 12.*

    // %%
    use std::path::PathBuf;
    use std::time::Instant;

    use cloze::data::Sequences;
    use cloze::data::sequences::BatchSize;
    use cloze::engine::inference::{self, Logits};
    use cloze::eval::{Scores, best, softmax};
    use cloze::lessons::data;
    use cloze::lessons::support::variants;
    use cloze::lessons::support::yours;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::serde_json::{self, Value};
    use cloze::tasks::{self, Dataset, Role, Task};
    use cloze::train::card::Card;

    // %% [markdown]
    // ## Step 1: train and measure
    //
    // The crate does what you did in lesson 12: it puts a linear layer on the pooler's output and
    // trains all parameters with cross-entropy and AdamW for five epochs. A `Task` reads the files
    // and stores the names of the classes in the configuration. It starts from your own BERT of
    // lesson 11 if there is one, and from cloze-tiny otherwise.

    // %%
    let set: PathBuf = data::folder("spam")?;
    let (train_file, dev_file): (PathBuf, PathBuf) = (set.join("train.tsv"), set.join("dev.tsv"));
    let (base, whose): (PathBuf, &str) = yours::start()?;
    println!("starts from {whose}");
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&base), None)?;
    let task: Box<dyn Task> = tasks::your_own("text,label", &train_file)?;
    let train: Box<dyn Dataset> = variants::read(&*task, &train_file, Role::Train, &tokenizer)?;
    let dev: Box<dyn Dataset> = variants::read(&*task, &dev_file, Role::Dev, &tokenizer)?;

    // The pre-trained encoder with a new head of random weights.
    let mut model: Model = Model::read(&base, &task.part().with_encoder(), Some(1))?;
    task.describe(&mut model.config);

    // %%
    let mut losses: LiveChart = LiveChart::new(
        LineChart::new("Fine-tuning to separate spam from ham")
            .axes("step", "cross-entropy (nats)")
            .reference("ln 2", 2f64.ln()),
    );
    let epochs: u32 = cloze::lessons::epochs(5);
    model.values = variants::fine_tune(&model, train.examples(), epochs, &mut |step, loss| {
        losses.push("loss of the batch", step as f64, loss);
    })?;
    drop(losses);
    model.fresh.clear();
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let scores: Scores = tasks::measure(&mut engine, &*dev)?;
    println!(
        "accuracy on {} held-out messages: {}",
        dev.rows(),
        scores["accuracy"]
    );

    // %% [markdown]
    // ## Step 2: save
    //
    // A folder in Hugging Face's layout has everything that is needed to use the model, and nothing
    // that runs code. (Older models come as a pickle, `pytorch_model.bin`. Unpickling can run any
    // code, so Cloze never reads one.) `README.md` is the model card. Write one whenever you give a
    // model away: what it was made from, how it was measured, what it should not be used for
    // ([Mitchell et al. 2019](https://arxiv.org/abs/1810.03993)).

    // %%
    let out: PathBuf = std::env::temp_dir().join("cloze-lesson-21");
    std::fs::create_dir_all(&out)?;
    model.write(&out)?;
    tokenizer.save(&out)?;
    let card: Card = Card {
        name: "spam-tiny".into(),
        summary: format!(
            "Tells spam from ham in short English messages: accuracy {} on 100 held-out messages. \
             It was trained on 300 messages, too few for real use.",
            scores["accuracy"]
        ),
        pipeline: "text-classification",
        base_model: Some(whose.into()),
        command: "cargo run --example 21_ship_it".into(),
        ..Card::default()
    };
    card.write(&out)?;

    // %%
    for (name, bytes) in variants::files(&out)? {
        println!("{bytes:>9} bytes  {name}");
    }
    println!("\n{}", std::fs::read_to_string(out.join("config.json"))?);
    println!("{}", std::fs::read_to_string(out.join("README.md"))?);

    // %% [markdown]
    // | file | contents |
    // |---|---|
    // | `config.json` | the model's sizes, its class in transformers (`architectures`), the names of the labels (`id2label`) |
    // | `model.safetensors` | every parameter by its name |
    // | `vocab.txt` | the word pieces, one a line; the line's number is the id |
    // | `tokenizer.json`, `tokenizer_config.json` | the same with all rules for splitting text |
    //
    // A model without its tokenizer is useless: the same ids would stand for other words. So the two
    // travel together.

    // %% [markdown]
    // ## Step 3: open the file by hand
    //
    // `model.safetensors` is as simple as a file of tensors can be ([its
    // description](https://huggingface.co/docs/safetensors/index)):
    //
    // ```text
    // 8 bytes      n, a 64-bit integer, the lowest byte first
    // n bytes      JSON: for each tensor its dtype, its shape, and data_offsets: [begin, end]
    // the rest     the numbers of all tensors; offsets count from here, and end is exclusive
    // ```
    //
    // Nothing in it can run, one tensor can be read without the others, and the file can be mapped
    // into memory as it is. This is how yours begins:

    // %%
    let bytes: Vec<u8> = std::fs::read(out.join("model.safetensors"))?;
    println!("the first 8 bytes: {:02x?}", &bytes[..8]);
    println!("{} …", String::from_utf8_lossy(&bytes[8..360]));

    // %% [markdown]
    // **Exercise 21.1.** Read one tensor: return its shape and its numbers. All are F32 here. Return
    // `None` if the file has no tensor of that name.

    // %%
    fn tensor(bytes: &[u8], name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        // BEGIN SOLUTION
        cloze::solution!("21.1");
        let length: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
        let start = 8 + u64::from_le_bytes(length) as usize;
        let header: Value = serde_json::from_slice(bytes.get(8..start)?).ok()?;
        let entry = header.get(name)?;
        let numbers = |key: &str| -> Option<Vec<usize>> {
            let list = entry.get(key)?.as_array()?.iter();
            list.map(|n| n.as_u64().map(|n| n as usize)).collect()
        };
        let offsets = numbers("data_offsets")?;
        let data = bytes.get(start + offsets.first()?..start + offsets.get(1)?)?;
        let values = data
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Some((numbers("shape")?, values.collect()))
        // END SOLUTION
    }

    // %%
    check!("21.1", |judge| {
        let small = {
            let header = concat!(
                r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"#,
                r#""b":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}"#
            );
            let mut file = (header.len() as u64).to_le_bytes().to_vec();
            file.extend(header.bytes());
            file.extend([3.0f32, 1.0, 2.0].map(f32::to_le_bytes).concat());
            file
        };
        let a = tensor(&small, "a");
        judge.holds(
            "the tensor a of a small file, whose name is in the header, is found",
            a.is_some(),
            "Your function returns None. Does the JSON end at 8 + n? With a wrong end it can't be parsed.",
        );
        let values = a.clone().map(|a| a.1).unwrap_or_default();
        judge.holds(
            &format!("tensor a is [1, 2]; yours is {values:?}"),
            values != [3.0, 1.0],
            "Those are the bytes of b: begin is data_offsets[0] = 4, counted from the first byte \
             after the JSON.",
        );
        judge.equal(
            "tensor a of a small file",
            a,
            Some((vec![2], vec![1.0, 2.0])),
            "Shape [2], bytes 4 to 12 after the JSON. If the numbers look strange: the offsets count \
             from 8 + n, not from the file's first byte, and the lowest byte comes first.",
        );
        judge.equal(
            "a tensor that is not there",
            tensor(&small, "c"),
            None,
            "Return None instead of panicking: `header.get(name)?`.",
        );
        let mut compared = 0;
        for (parameter, range) in model.layout.iter() {
            // In the file the encoder's names begin with `bert.`, as in transformers.
            let name = match parameter.name.starts_with("classifier") {
                true => parameter.name.clone(),
                false => format!("bert.{}", parameter.name),
            };
            let found = tensor(&bytes, &name);
            judge.holds(
                &format!("{name} is in the file"),
                found.is_some(),
                "The crate's `Model::write` has just written it.",
            );
            let (shape, values) = found.unwrap_or_default();
            judge.equal(
                &format!("the shape of {name}"),
                &shape,
                &parameter.shape,
                "The header has it under `shape`.",
            );
            judge.holds(
                &format!("the numbers of {name} are those of the trained model, bit for bit"),
                values == model.values[range],
                "What the crate wrote and what you read must be equal, not only close: nothing is \
                 rounded on the way.",
            );
            compared += 1;
        }
        judge.equal(
            "the number of tensors compared",
            compared,
            model.layout.parameters().len(),
            "Every parameter of the model must be compared.",
        );
    });

    // %% [markdown]
    // You have read a model file with arithmetic and a JSON parser.
    //
    // ## Step 4: the names
    //
    // Whoever reads the file finds a tensor by its name alone, so the names are part of the layout.
    // The crate declares its parameters under the names of transformers, without `bert.`:

    // %%
    for parameter in model.layout.parameters() {
        if parameter.name.starts_with("encoder.layer.0.") {
            println!("{}", parameter.name);
        }
    }

    // %% [markdown]
    // Which of them is which? These are the parts of a layer in the formulas of lessons 05 and 06:
    //
    // | part | what it is |
    // |---|---|
    // | `Q`, `K`, `V` | the projections to queries, keys and values |
    // | `O` | the output projection $W^O$ of the attention |
    // | `norm 1` | the LayerNorm after the attention |
    // | `W1`, `W2` | the linear layers of the feed-forward block, from width H to I and back |
    // | `norm 2` | the LayerNorm after the feed-forward block |
    //
    // Each has a `weight` and a `bias`. A linear layer stores its weight as (outputs, inputs). In a
    // LayerNorm, `weight` is the scale and `bias` the shift.
    //
    // **Exercise 21.2.** Return the name and the shape that transformers expects for one part of one
    // layer, or `None` for any other part. In the file of a classifier the encoder's names begin with
    // `bert.`: the encoder is the field `bert` of the Python class. The check compares your answer
    // with the header of your file.

    // %%
    const PARTS: [&str; 8] = ["Q", "K", "V", "O", "norm 1", "W1", "W2", "norm 2"];

    fn name_and_shape(
        config: &Config,
        layer: usize,
        part: &str,
        kind: &str,
    ) -> Option<(String, Vec<usize>)> {
        // BEGIN SOLUTION
        cloze::solution!("21.2");
        let (h, i) = (config.hidden_size, config.intermediate_size);
        let (name, outputs, inputs) = match part {
            "Q" => ("attention.self.query", h, Some(h)),
            "K" => ("attention.self.key", h, Some(h)),
            "V" => ("attention.self.value", h, Some(h)),
            "O" => ("attention.output.dense", h, Some(h)),
            "norm 1" => ("attention.output.LayerNorm", h, None),
            "W1" => ("intermediate.dense", i, Some(h)),
            "W2" => ("output.dense", h, Some(i)),
            "norm 2" => ("output.LayerNorm", h, None),
            _ => return None,
        };
        let shape = match inputs {
            Some(inputs) if kind == "weight" => vec![outputs, inputs],
            _ => vec![outputs],
        };
        Some((format!("bert.encoder.layer.{layer}.{name}.{kind}"), shape))
        // END SOLUTION
    }

    // %%
    check!("21.2", |judge| {
        // A model of odd sizes: 3 layers, 6 wide, 22 inside.
        let odd = Config {
            hidden_size: 6,
            intermediate_size: 22,
            num_hidden_layers: 3,
            num_attention_heads: 3,
            ..model.config.clone()
        };
        let layout = Layout::new(&odd, &[cloze::model::Part::Encoder]);
        let kinds = ["weight", "bias"];
        for (layer, at, second) in
            (0..3).flat_map(|l| (0..8).flat_map(move |at| [(l, at, 0), (l, at, 1)]))
        {
            let (part, kind) = (PARTS[at], kinds[second]);
            let of_layer = format!("encoder.layer.{layer}.");
            let list: Vec<_> = layout
                .parameters()
                .iter()
                .filter(|p| p.name.starts_with(&of_layer))
                .collect();
            // The list has the weights of Q, K and V, then their biases, then each other part.
            let place = |at: usize, second: usize| match at {
                0..3 => at + 3 * second,
                _ => 2 * at + second,
            };
            let right = list[place(at, second)];
            let what =
                format!("the {kind} of `{part}` in layer {layer}, where H is 6 and I is 22,");
            let yours = name_and_shape(&odd, layer, part, kind);
            judge.holds(
                &format!("{what} has a name; your function returns None"),
                yours.is_some(),
                "The parts are called as in PARTS.",
            );
            let (name, shape) = yours.unwrap_or_default();
            let said = format!("{what} is stored under its own name; yours is {name:?}");
            judge.holds(
                &said,
                !name.starts_with("encoder."),
                "In the file the encoder's names begin with `bert.`: without it transformers finds \
                 none of them.",
            );
            judge.holds(
                &said,
                name.contains(&format!(".{of_layer}")),
                "The name has the number of the layer: `bert.encoder.layer.{layer}`, and so on.",
            );
            judge.holds(
                &said,
                name.ends_with(&format!(".{kind}")),
                "The name ends with the kind, `weight` or `bias`.",
            );
            let other = (0..8).find(|&o| o != at && name.ends_with(&list[place(o, second)].name));
            judge.holds(
                &said,
                other.is_none(),
                &format!(
                    "That is the name of `{}`. `attention` is in the names of the parts up to \
                     `norm 1`; the feed-forward block begins with `intermediate` and ends with \
                     `output`.",
                    PARTS[other.unwrap_or_default()]
                ),
            );
            judge.holds(
                &said,
                name == format!("bert.{}", right.name),
                "No parameter of the list above has this name after `bert.`. Compare letter by letter.",
            );
            let turned: Vec<usize> = shape.iter().rev().copied().collect();
            let think = match (shape.len(), part.starts_with("norm")) {
                _ if shape.iter().any(|n| [128, 512].contains(n)) => {
                    "128 and 512 are the sizes of one model. Take H and I from `config`."
                }
                (2, true) => "A LayerNorm has one scale and one shift for each of the H numbers.",
                (2, false) if kind == "bias" => "A bias has one number for each output.",
                (2, false) if turned == right.shape => {
                    "That is (inputs, outputs). The file has (outputs, inputs)."
                }
                _ => {
                    "W1 leads from H to I, W2 from I to H, all others from H to H. The weight of a \
                     linear layer has two sizes; everything else has one."
                }
            };
            judge.equal(&format!("the shape of {what}"), &shape, &right.shape, think);
        }
        judge.equal(
            "a part that no layer has, `W3`,",
            name_and_shape(&odd, 0, "W3", "bias"),
            None,
            "Return None for it.",
        );
        // The header of the file that you saved.
        let header = variants::split_file(&bytes)
            .map(|file| file.0)
            .unwrap_or_default();
        for layer in 0..model.config.num_hidden_layers {
            for (part, kind) in PARTS.iter().flat_map(|part| kinds.map(|kind| (part, kind))) {
                let found = name_and_shape(&model.config, layer, part, kind);
                let (name, shape) = found.unwrap_or_default();
                judge.equal(
                    &format!("the shape that the saved file has for {name:?}"),
                    header[&name]["shape"].clone(),
                    serde_json::json!(shape),
                    "The header of your file has another shape, or no such name.",
                );
            }
        }
    });

    // %% [markdown]
    // ## Step 5: load, and get the same numbers
    //
    // Test every export in this way: write, read, run, compare. Don't settle for "about the same
    // accuracy". The logits must be equal bit for bit, because f32 was written and f32 was read.

    // %%
    let again: Model = Model::read_all(&out)?;
    let mut loaded: CpuEngine = CpuEngine::new(&again.config, &again.layout, again.values.clone())?;
    let sequences: Sequences = dev.examples().sequences.clone();
    let before: Logits = inference::logits(&mut engine, &sequences)?;
    let after: Logits = inference::logits(&mut loaded, &sequences)?;
    println!("all logits equal: {}", before.values() == after.values());

    // %% [markdown]
    // ### In Python
    //
    // The same folder, with transformers, if you have it installed:
    //
    // ```python
    // import torch
    // from transformers import AutoModelForSequenceClassification, AutoTokenizer
    //
    // folder = "/tmp/cloze-lesson-21"
    // tokenizer = AutoTokenizer.from_pretrained(folder)
    // model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    // print(type(model).__name__, {k: v for k, v in report.items() if v})
    // texts = ["Win a free prize now, click here!", "Lunch at noon?"]
    // with torch.no_grad():
    //     print(model(**tokenizer(texts, padding=True, return_tensors="pt")).logits)
    // ```
    //
    // ```text
    // BertForSequenceClassification {}
    // tensor([[ 3.2419, -2.3114],
    //         [ 3.6812, -2.7046]])
    // ```
    //
    // (Transformers 5.23 with torch 2.15 printed this for a model that began as cloze-tiny.) The report is empty: no parameter is missing
    // and none is unexpected. A missing parameter would start from random numbers, with a warning that
    // is easily overlooked. Compare the logits with those of the next cell:

    // %%
    const TWO: [&str; 2] = ["Win a free prize now, click here!", "Lunch at noon?"];

    let longest: usize = model.config.max_position_embeddings;
    let both: Sequences = Sequences::tokenise(&tokenizer, &TWO.map(|text| (text, None)), longest)?;
    println!("{:?}", loaded.task_logits(&both.batch(&[0, 1]))?);

    // %% [markdown]
    // ## Step 6: a function that answers
    //
    // Users send texts and want labels. Answer many texts at once, because a matrix product with many
    // rows costs less per row. Three things are easily forgotten:
    //
    // - the answers must be in the order of the *texts*, whatever the order of the batches;
    // - a text longer than the model's positions must be cut, or it is an error;
    // - an empty list of texts must not fail.
    //
    // **Exercise 21.3.** Return each text's label and that label's probability, `batch` texts at a
    // time. `Sequences::tokenise` cuts texts and turns them into ids, `sequences.by_length` groups the
    // numbers of texts by length, `sequences.batch(&which)` makes a batch of one group, and
    // `engine.task_logits(&packed)` computes its logits. The hints have the details.

    // %%
    /// Everything that answering needs.
    struct Classifier {
        engine: CpuEngine,
        tokenizer: WordPiece,
        labels: Vec<String>,
    }

    fn predict(
        model: &mut Classifier,
        texts: &[&str],
        batch: usize,
    ) -> cloze::Result<Vec<(String, f64)>> {
        // BEGIN SOLUTION
        cloze::solution!("21.3");
        let pairs: Vec<(&str, Option<&str>)> = texts.iter().map(|text| (*text, None)).collect();
        let longest = model.engine.config().max_position_embeddings;
        let sequences = Sequences::tokenise(&model.tokenizer, &pairs, longest)?;
        let mut answers = vec![(String::new(), 0.0); texts.len()];
        for which in sequences.by_length(BatchSize::Examples(batch)) {
            let logits = model.engine.task_logits(&sequences.batch(&which))?;
            for (&text, row) in which.iter().zip(logits.chunks_exact(model.labels.len())) {
                let class = best(row) as usize;
                answers[text] = (model.labels[class].clone(), softmax(row)[class]);
            }
        }
        Ok(answers)
        // END SOLUTION
    }

    // %%
    let labels: Vec<String> = match again.config.labels() {
        Some(names) => names.into_iter().map(String::from).collect(),
        None => Vec::new(),
    };
    let mut classifier: Classifier = Classifier {
        engine: CpuEngine::new(&again.config, &again.layout, again.values.clone())?,
        tokenizer: WordPiece::from_file(&WordPiece::file_in(&out), None)?,
        labels,
    };
    let messages: Vec<String> = variants::texts(&dev_file)?;

    // %%
    check!("21.3", |judge| {
        let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
        let mut answer =
            |texts: &[&str], batch: usize, judge: &mut cloze::lessons::Judge| match predict(
                &mut classifier,
                texts,
                batch,
            ) {
                Ok(answers) => answers,
                Err(error) => {
                    judge.holds(
                        &format!("{} texts are answered, {batch} at a time", texts.len()),
                        false,
                        &format!("The crate's error: {error}"),
                    );
                    Vec::new()
                }
            };
        let one = answer(&texts[..1], 1, judge);
        judge.equal(
            "the number of answers to one text",
            one.len(),
            1,
            "One answer a text.",
        );
        let right: Vec<(String, f64)> = before
            .values()
            .chunks_exact(2)
            .map(|row| {
                let labels = model.config.labels().unwrap_or_default();
                let class = best(row) as usize;
                (labels[class].to_owned(), softmax(row)[class])
            })
            .collect();
        for batch in [1, 7, 32, 1000] {
            let yours = answer(&texts, batch, judge);
            judge.equal(
                &format!("the number of answers to 100 texts, {batch} at a time,"),
                yours.len(),
                100,
                "One answer a text, in the order of the texts.",
            );
            for (number, (yours, right)) in yours.iter().zip(&right).enumerate() {
                let what = format!(
                    "text {number} of 100, {batch} at a time, has the answer {right:?}; yours is {yours:?}"
                );
                judge.holds(
                    &what,
                    yours.0 == right.0 && (yours.1 - right.1).abs() < 1e-4,
                    match (yours.1 - (1.0 - right.1)).abs() < 1e-4 {
                        true => {
                            "That is the probability of the other class: return the label's own, the \
                             largest."
                        }
                        false => {
                            "Is it another text's answer? by_length changes the order, so put \
                             answer k in the place of text which[k]. Is it a logit? Then softmax is \
                             missing."
                        }
                    },
                );
            }
        }
        let long = "free money ".repeat(300);
        let answers = answer(&[&long, "Lunch at noon?"], 2, judge);
        judge.equal(
            "the number of answers where one text is longer than the model's longest sequence",
            answers.len(),
            2,
            "Cut it: `Sequences::tokenise` takes the largest length allowed.",
        );
        let none = answer(&[], 8, judge);
        judge.equal(
            "the number of answers to no texts",
            none.len(),
            0,
            "Return an empty list.",
        );
    });

    // %%
    if solved!("21.3") {
        let texts = [
            "Win a free prize now, click here!",
            "Lunch at noon?",
            "Your account is locked. Send your password to example.com within 24 hours.",
            "The plumber sent his bill, it is due on Friday.",
        ];
        for (text, (label, probability)) in texts.iter().zip(predict(&mut classifier, &texts, 4)?) {
            println!("{label:>4} {:.1} %  {text}", 100.0 * probability);
        }
    }

    // %% [markdown]
    // Every reader sees that the first message is spam; a filter that began as cloze-tiny answers
    // `ham`, with a probability of 99.6 %. Keep that in mind whenever a program shows a probability: it says how far apart the
    // logits are, not how often such answers are right.

    // %% [markdown]
    // ## Step 7: how fast?
    //
    // Two numbers describe speed. **Latency** is how long one user waits; **throughput** is how many
    // texts the machine answers in a second. A larger batch raises throughput, but also latency.
    //
    // A mean latency hides what users complain about: if one answer in a hundred takes ten times as
    // long, the mean rises by only 9 %. So services report **percentiles**: half of the answers take
    // at most p50, the median, and 99 of a hundred at most p99. The code sorts the times and reads
    // the percentiles off.

    // %%
    if solved!("21.3") {
        let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
        // The first calls allocate memory; users will not see their times.
        predict(&mut classifier, &texts, 32)?;
        let mut waits: Vec<f64> = Vec::new();
        for text in texts.repeat(5) {
            let begun = Instant::now();
            predict(&mut classifier, &[text], 1)?;
            waits.push(1e3 * begun.elapsed().as_secs_f64());
        }
        waits.sort_by(f64::total_cmp);
        for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("longest", 1.0)] {
            let rank = (share * waits.len() as f64).ceil() as usize;
            println!("{name:>8} {:.2} ms", waits[rank - 1]);
        }
    }

    // %%
    if solved!("21.3") {
        let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
        let many = texts.repeat(5);
        let mut line = Vec::new();
        for batch in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
            let begun = Instant::now();
            for part in many.chunks(batch) {
                predict(&mut classifier, part, batch)?;
            }
            let rate = many.len() as f64 / begun.elapsed().as_secs_f64();
            line.push((batch as f64, rate));
        }
        show!(
            LineChart::new("Throughput by batch size")
                .axes("texts in a batch", "texts a second")
                .logarithmic()
                .line("your model on this machine", &line)
        );
    }

    // %% [markdown]
    // Each call has a fixed cost, and a product of few rows leaves the processor partly idle. In a
    // batch, many texts share the one and keep the other busy. Beyond some size nothing is left to
    // gain, while latency still grows. Read the best batch off your own chart.

    // %% [markdown]
    // ## Step 8: a program of your own
    //
    // Create a project with `cargo new classify`, add Cloze (`cargo add cloze --path …`), and make
    // this its `main.rs`. `cloze::TextClassifier` is the crate's version of your `predict`:
    //
    // ```rust
    // use cloze::TextClassifier;
    //
    // fn main() -> Result<(), Box<dyn std::error::Error>> {
    //     let folder = std::env::args().nth(1).ok_or("usage: classify FOLDER < lines")?;
    //     let model = TextClassifier::load(folder)?;
    //     let lines: Vec<String> = std::io::stdin().lines().collect::<Result<_, _>>()?;
    //     let texts: Vec<&str> = lines.iter().map(String::as_str).collect();
    //     for (text, answer) in texts.iter().zip(model.predict(&texts)?) {
    //         println!("{}\t{:.3}\t{text}", answer.label, answer.score);
    //     }
    //     Ok(())
    // }
    // ```
    //
    // ```text
    // $ echo 'Lunch at noon?' | cargo run --release -- /tmp/cloze-lesson-21
    // ham	0.998	Lunch at noon?
    // ```
    //
    // It runs any BERT classifier, also one that was trained in Python, and needs no Python itself.

    // %% [markdown]
    // ## What goes wrong
    //
    // A folder can be broken in many ways. Here are the crate's errors for a file that is cut off, a
    // configuration of another size, and a pickle:

    // %%
    let broken: PathBuf = out.join("broken");
    let config: String = std::fs::read_to_string(out.join("config.json"))?;
    let wider: String = config.replace("\"hidden_size\": ", "\"hidden_size\": 2");
    for (config, name, bytes) in [
        (&config, "model.safetensors", &bytes[..bytes.len() / 2]),
        (&wider, "model.safetensors", &bytes[..]),
        (&config, "pytorch_model.bin", &bytes[..]),
    ] {
        println!("{}\n", variants::load_error(&broken, config, name, bytes)?);
    }

    // %% [markdown]
    // And mistakes that raise no error:
    //
    // - **Another model's `vocab.txt`**: every id stands for another word. The model loads, runs and
    //   guesses. The comparison of logits in Rust would not notice, because it starts from ids; the one
    //   with Python would, because it starts from text.
    // - **Classes in another order**: if `id2label` is swapped, every answer is exactly wrong.
    // - **Trained on lower-case text, used with capitals**: `do_lower_case` in
    //   `tokenizer_config.json` must be that of the training.

    // %% [markdown]
    // ## Expected numbers
    //
    // These are for a model that began as cloze-tiny.
    //
    // - 89 of 100 right, after a few seconds of training;
    // - `model.safetensors` has 5,821,448 bytes;
    // - the logits of the two messages are 3.242, -2.311 and 3.681, -2.705;
    // - one message a call: a median of about a millisecond or less; the longest calls depend more on
    //   other programs than on the model.

    // %% [markdown]
    // ## On real data
    //
    // The commands for what this lesson did by hand:
    //
    // ```text
    // cloze finetune sst-2 --data SST-2 --model google-bert/bert-base-uncased --out sst
    // cloze evaluate sst-2 --data SST-2/dev.tsv --model sst
    // cloze predict  sst-2 --model sst --input test.tsv
    // ```
    //
    // `cloze bench infer` measures throughput for any size.

    // %% [markdown]
    // ## Open questions
    //
    // 1. A file in bf16 would be half as long. For which inputs would you expect another answer, and
    //    would it matter?
    // 2. Your service gets a message every 5 ms on average, at random moments. If it waits for a batch
    //    of 32, the first message waits for the last. How long should it wait, and what would p99 be?
    //
    // The crate's source of this part: `src/model/parameters.rs`, `src/model/weights/mod.rs`,
    // `src/model/weights/writing.rs`, `src/train/card.rs` and `src/cli/predict.rs`. This is the last
    // lesson of its track. The next track begins with [lesson 22](22_vocabulary.rs).

    // %% [end]
    cloze::lessons::finish("21_ship_it")
}
