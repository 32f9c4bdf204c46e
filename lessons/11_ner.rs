// ---
// title = "Features and names: a label for every word"
// summary = "Read and write tag schemes, label first pieces, score whole names as conlleval does, train a head on frozen layers and on a model that learns with it."
// minutes = 60
// seconds = 50
// needs = ["04", "06", "08"]
//
// [[exercise]]
// id = "11.1"
// title = "From tags to names"
// hints = [
//     "Walk over the tags and keep the list of names found so far. A word either starts a name, or makes the last name longer, or is outside.",
//     "Split a tag with `tag.split_once('-')`: `(\"B\", \"PER\")`; `O` has no dash. Remember the type of the word *before* (nothing after an `O`).",
//     "An `I-X` makes the last name longer if the word before was of type X too. In every other case a tag that is not `O` starts a name.",
// ]
//
// [[exercise]]
// id = "11.2"
// title = "The first piece carries the label"
// hints = [
//     "One sequence: `[CLS]`, then the pieces of each word, then `[SEP]`. Each id gets an entry in the list of labels.",
//     "`tokenizer.encode(word).ids` are a word's pieces. The first of them gets `Some(number)`, the others `None`, and so do `[CLS]` and `[SEP]`.",
//     "The number of a tag is its place in `names`: `names.iter().position(|name| name == tag)`, as `u32`.",
// ]
//
// [[exercise]]
// id = "11.3"
// title = "Precision, recall and F1 of whole names"
// hints = [
//     "Count three things over all sentences: names found, true names, and names that are in both lists of the same sentence.",
//     "Precision is both / found, recall both / true. A division by nothing is 0 here.",
//     "F1 is 2 · both / (found + true): the harmonic mean of the two.",
// ]
//
// [[exercise]]
// id = "11.4"
// title = "Layers side by side"
// hints = [
//     "Row r of the result is row r of the first layer, then row r of the second, and so on.",
//     "Two loops: over the rows outside, over the layers inside; `layer[r * width..(r + 1) * width]` is a row. `extend_from_slice` appends it.",
// ]
//
// [[exercise]]
// id = "11.5"
// title = "The loss of the labelled rows"
// hints = [
//     "Only rows with a label count. Collect their numbers, and their labels beside them.",
//     "`pick(logits, &rows)` keeps some rows of a tensor, `cross_entropy(logits, &labels)` is the sum of -ln softmax(logits)[label] over the rows.",
//     "The mean: divide by the number of rows that have a label, not by the number of all rows.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 11 · Features and names: a label for every word
    //
    // Which words are names, and of what: a person, a place, an organisation? In this lesson BERT
    // says something about every word of a sentence. You write how tags are read, how they meet word
    // pieces, how answers are scored, and a linear head, and you use the model in both ways that
    // the paper compares: as a fixed machine that gives vectors, and as one that learns along.
    //
    // *60 to 80 minutes, with a good place to stop half way; the longest cell trains for a few
    // seconds. You need lessons 04, 06 and 08.*

    // %%
    use std::collections::{BTreeMap, HashMap};
    use std::sync::Arc;

    use cloze::data::bad::BadRows;
    use cloze::data::conll::{self, Sentence};
    use cloze::data::{Sequences, Targets};
    use cloze::engine::optimizer::Update;
    use cloze::engine::{Encoder, objective};
    use cloze::eval::entities;
    use cloze::features::{self, Combine, Pool};
    use cloze::lessons::data;
    use cloze::model::weights::Model;
    use cloze::model::{Dropout, Part, cross_entropy, pick};
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::tasks::{self, Labels, Options, Reading, Role};
    use cloze::train::schedule::Schedule;
    use dfdx::nn::modules::Linear;
    use dfdx::optim::Adam;

    // %% [markdown]
    // ## Where we are going
    //
    // The set `names` has 220 sentences to train on and 80 to measure on, in the layout of
    // CoNLL-2003: a word a line, its tag at the end of the line. Here is one of them, each name in
    // the colour of its type. At the end of the lesson your model colours sentences that it never
    // saw.

    // %%
    const KINDS: [&str; 4] = ["PER", "LOC", "ORG", "MISC"];

    /// A colour for each tag, by its type.
    fn colours<S: AsRef<str>>(tags: &[S]) -> Vec<u32> {
        let colour = |tag: &S| {
            let kind = tag.as_ref().split_once('-').map(|parts| parts.1);
            let place = KINDS.iter().position(|&k| Some(k) == kind);
            place.map_or(TokenStrip::PLAIN, |place| place as u32)
        };
        tags.iter().map(colour).collect()
    }

    let folder: std::path::PathBuf = data::folder("names")?;
    let train_file: std::path::PathBuf = folder.join("train.txt");
    let dev_file: std::path::PathBuf = folder.join("valid.txt");
    let train: Vec<Sentence> = conll::read(&train_file, true, &mut BadRows::refused())?;
    let dev: Vec<Sentence> = conll::read(&dev_file, true, &mut BadRows::refused())?;
    let example: Sentence = train[1].clone();
    show!(
        TokenStrip::new("A sentence and its tags", &example.words)
            .row("tag", &example.tags)
            .colored(&colours(&example.tags))
    );

    // %% [markdown]
    // ## Step 1: tags
    //
    // A name may have several words, and two names may stand side by side. So a tag says not only
    // the type but also the place in the name. There are several schemes:
    //
    // | scheme | first word of a name | its other words |
    // |---|---|---|
    // | IOB2, also called BIO | `B-X` always | `I-X` |
    // | IOB1, the files of CoNLL-2003 | `I-X`; `B-X` only right after a name of the same type | `I-X` |
    // | IOBES | `B-X`, or `S-X` where it stands alone | `I-X`, the last `E-X` |
    //
    // A model may also predict what no scheme allows: an `I-LOC` after an `O`. The official scorer,
    // `conlleval`, takes it as the start of a name ([Tjong Kim Sang and De Meulder
    // 2003](https://aclanthology.org/W03-0419/), section 2.4, describes the task's measure). One
    // rule reads IOB1, IOB2 and such nonsense alike.
    //
    // **Exercise 11.1.** Find the names: their type, their first word, and the word behind their
    // last.

    // %%
    /// A name: its type, its first word, and the word behind its last.
    type Name = (String, usize, usize);

    fn names_in(tags: &[String]) -> Vec<Name> {
        // BEGIN SOLUTION
        cloze::solution!("11.1");
        let mut found: Vec<Name> = Vec::new();
        let mut before = "";
        for (index, tag) in tags.iter().enumerate() {
            let (place, kind) = tag.split_once('-').unwrap_or(("O", ""));
            match found.last_mut() {
                Some(last) if place == "I" && kind == before => last.2 = index + 1,
                _ if place == "O" => {}
                _ => found.push((kind.to_owned(), index, index + 1)),
            }
            before = kind;
        }
        found
        // END SOLUTION
    }

    // %%
    /// What the crate finds.
    fn crate_names(tags: &[String]) -> Vec<Name> {
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        let found = entities::entities(&tags).into_iter();
        found.map(|e| (e.kind.to_owned(), e.start, e.end)).collect()
    }

    /// A list of tags, chosen at random: mostly nonsense.
    fn random_tags(number: u64) -> Vec<String> {
        let mut draws = Stream::new(11, 0, Site::Other(0), number).draws();
        let length = 1 + draws.below(8);
        let all = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"];
        let tags = (0..length).map(|_| all[draws.below(5) as usize].to_owned());
        tags.collect()
    }

    check!("11.1", |judge| {
        let cases = [
            (
                "B-PER I-PER O B-LOC",
                "IOB2: the B starts a name, the I makes it longer, the last word is one of its own.",
            ),
            (
                "B-PER B-PER",
                "Two names side by side: a B always starts a new one.",
            ),
            (
                "I-PER I-PER O I-LOC",
                "IOB1: without a B before it, the first I of a name starts it.",
            ),
            (
                "B-LOC I-PER I-PER",
                "An I of another type than the word before can't make that name longer: it starts one.",
            ),
            (
                "B-ORG O I-ORG",
                "An O ends a name: the I behind it starts a second one. Look at the word before, \
                 not at the last name found.",
            ),
            ("O O", "No names, an empty list."),
        ];
        for (tags, think) in cases {
            let list: Vec<String> = tags.split(' ').map(String::from).collect();
            judge.same_list(
                &format!("the names of {tags:?}"),
                &names_in(&list),
                &crate_names(&list),
                think,
            );
        }
        for number in 0..3_000 {
            let tags = random_tags(number);
            judge.same_list(
                &format!("the names of {:?}", tags.join(" ")),
                &names_in(&tags),
                &crate_names(&tags),
                "The crate's `eval::entities` finds these.",
            );
        }
        let of_data = |tags: fn(&[String]) -> Vec<Name>| -> usize {
            train
                .iter()
                .map(|sentence| tags(&sentence.tags).len())
                .sum()
        };
        judge.equal(
            "the number of names to train on",
            of_data(names_in),
            of_data(crate_names),
            "137 places, 91 persons, 82 organisations, 61 others.",
        );
    });

    // %% [markdown]
    // Which kinds of names, and how long? (The crate turns every scheme into IOB2 when it reads a
    // file, so the rest of the lesson sees nothing else.)

    // %%
    if solved!("11.1") {
        let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
        for sentence in &train {
            for (_, start, end) in names_in(&sentence.tags) {
                *lengths.entry(end - start).or_default() += 1;
            }
        }
        show!(
            BarChart::new("Names by their number of words").bars(
                lengths
                    .iter()
                    .map(|(n, &count)| (n.to_string(), count as f64))
            )
        );
    }

    // %% [markdown]
    // ## Step 2: words and pieces
    //
    // The file has words, the model reads pieces. *Calcutta* may be one piece or three, and there is
    // one tag for it. The paper gives the tag to the first piece and trains on no other: "we use
    // the representation of the first sub-token as the input to the token-level classifier"
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 5.3).
    //
    // **Exercise 11.2.** Make one sequence of a sentence: ids, and for each id the number of its tag
    // in `names`, or none.

    // %%
    fn with_labels(
        tokenizer: &WordPiece,
        names: &[String],
        sentence: &Sentence,
    ) -> (Vec<u32>, Vec<Option<u32>>) {
        // BEGIN SOLUTION
        cloze::solution!("11.2");
        let special = tokenizer.special();
        let mut ids = vec![special.cls];
        let mut labels = vec![None];
        for (word, tag) in sentence.words.iter().zip(&sentence.tags) {
            let pieces = tokenizer.encode(word).ids;
            let number = names.iter().position(|name| name == tag);
            labels.push(number.map(|number| number as u32));
            labels.extend(vec![None; pieces.len() - 1]);
            ids.extend(pieces);
        }
        ids.push(special.sep);
        labels.push(None);
        (ids, labels)
        // END SOLUTION
    }

    // %%
    let model_folder: std::path::PathBuf = data::folder(data::MODEL)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&model_folder), None)?;
    /// The classes: outside, and each type's first word and other words.
    const CLASSES: usize = 9;
    let class_names: Vec<String> = std::iter::once("O".to_owned())
        .chain(
            ["LOC", "MISC", "ORG", "PER"]
                .into_iter()
                .flat_map(|kind| ["B", "I"].map(|place| format!("{place}-{kind}"))),
        )
        .collect();

    /// What the crate makes of a file: sequences with the label of each row.
    fn crate_rows(
        file: &std::path::Path,
        tokenizer: &WordPiece,
    ) -> cloze::Result<(Sequences, Vec<Option<u32>>)> {
        let task = tasks::open("ner", &Options::default(), Labels::Training(file))?;
        let reading = Reading {
            wordpiece: tokenizer,
            max_len: 128,
            limit: None,
            bad: &mut BadRows::refused(),
            notes: &mut Vec::new(),
        };
        let data = task.read(file, Role::Train, reading)?;
        let examples = data.examples();
        let labels = match &examples.targets {
            Targets::Rows(labels) => labels.clone(),
            _ => Vec::new(),
        };
        Ok((examples.sequences.clone(), labels))
    }

    let crate_train: (Sequences, Vec<Option<u32>>) = crate_rows(&train_file, &tokenizer)?;

    check!("11.2", |judge| {
        let (sequences, all) = &crate_train;
        let mut start = 0;
        for (number, sentence) in train.iter().enumerate() {
            let (ids, labels) = with_labels(&tokenizer, &class_names, sentence);
            let text = sentence.words.join(" ");
            judge.equal(
                &format!("the number of labels for {text:?}"),
                labels.len(),
                ids.len(),
                "One label or None for each id, [CLS] and [SEP] included.",
            );
            judge.same_list(
                &format!("the ids of {text:?}"),
                &ids,
                sequences.ids(number),
                "[CLS], the pieces of all words, [SEP].",
            );
            let expected = &all[start..start + sequences.length(number)];
            start += expected.len();
            let labelled = labels.iter().flatten().count();
            judge.holds(
                &format!(
                    "{text:?} has {} words and as many labels",
                    sentence.words.len()
                ),
                labelled == sentence.words.len() || labels.len() != ids.len(),
                &match labelled > sentence.words.len() {
                    true => format!(
                        "Yours has {labelled} labels. A word has one label, on its first piece, \
                         however many pieces it has."
                    ),
                    false => {
                        format!("Yours has {labelled} labels. An O is a label too, number 0.")
                    }
                },
            );
            judge.same_list(
                &format!("the labels of {text:?}"),
                &labels,
                expected,
                "The number of a tag is its place in `names`, and it stands at the word's first piece.",
            );
        }
    });

    // %%
    if solved!("11.2") {
        let longest = train.iter().max_by_key(|sentence| {
            with_labels(&tokenizer, &class_names, sentence).0.len() - sentence.words.len()
        });
        let sentence = longest.ok_or("no sentence")?;
        let (ids, labels) = with_labels(&tokenizer, &class_names, sentence);
        let pieces: Vec<&str> = ids
            .iter()
            .map(|&id| tokenizer.token(id).unwrap_or("?"))
            .collect();
        let tags: Vec<&str> = labels
            .iter()
            .map(|label| label.map_or("", |label| &class_names[label as usize]))
            .collect();
        show!(
            TokenStrip::new("The sentence with the most broken words", &pieces)
                .row("label", &tags)
                .colored(&colours(&tags))
        );
    }

    // %% [markdown]
    // Look at the pieces: they are lower-case. cloze-tiny is an *uncased* model, and what tells a
    // reader of English most about names, the capital letter, is gone before the model sees
    // anything. The paper took a cased model for this task. Keep it in mind: there will be a price,
    // and you will measure it.
    //
    // ## Step 3: the score
    //
    // Three words of four here are outside of names. Whoever answers `O` always has most words right
    // and is of no use. So the measure counts names, and a name is right when its type and both its
    // ends are:
    //
    // $$ P = \frac{\text{right}}{\text{found}}, \qquad R = \frac{\text{right}}{\text{true}}, \qquad
    //    F_1 = \frac{2PR}{P + R} = \frac{2 \cdot \text{right}}{\text{found} + \text{true}} $$
    //
    // **Exercise 11.3.** Compute the three from the names of all sentences. Where nothing was found
    // the precision is 0.

    // %%
    fn precision_recall_f1(found: &[Vec<Name>], truth: &[Vec<Name>]) -> (f64, f64, f64) {
        // BEGIN SOLUTION
        cloze::solution!("11.3");
        let both = |(found, truth): (&Vec<Name>, &Vec<Name>)| {
            found.iter().filter(|name| truth.contains(name)).count()
        };
        let right: usize = found.iter().zip(truth).map(both).sum();
        let all_found: usize = found.iter().map(Vec::len).sum();
        let all_true: usize = truth.iter().map(Vec::len).sum();
        let share = |part: usize, whole: usize| match whole {
            0 => 0.0,
            whole => part as f64 / whole as f64,
        };
        (
            share(right, all_found),
            share(right, all_true),
            share(2 * right, all_found + all_true),
        )
        // END SOLUTION
    }

    // %%
    /// What the crate's `eval::entities` says of predicted tags: precision, recall, F1, and the share
    /// of words whose tag is right.
    fn crate_score(predicted: &[Vec<String>], truth: &[Sentence]) -> [f64; 4] {
        fn words(tags: &[String]) -> Vec<&str> {
            tags.iter().map(String::as_str).collect()
        }
        let pairs = predicted.iter().zip(truth);
        let scores = entities::score(pairs.map(|(p, s)| (words(p), words(&s.tags))));
        ["precision", "recall", "f1", "accuracy"]
            .map(|name| scores[name].as_f64().unwrap_or(f64::NAN))
    }

    /// The names in lists of tags.
    fn all_names<'a>(tags: impl IntoIterator<Item = &'a Vec<String>>) -> Vec<Vec<Name>> {
        tags.into_iter().map(|tags| crate_names(tags)).collect()
    }

    /// The true tags with some of them replaced by chance.
    fn spoiled(truth: &[Sentence], share: f64, names: &[String]) -> Vec<Vec<String>> {
        let mut draws = Stream::new(12, 0, Site::Other(0), (share * 100.0) as u64).draws();
        let mut one = |tag: &String| match draws.uniform() < share {
            true => names[draws.below(names.len() as u32) as usize].clone(),
            false => tag.clone(),
        };
        let sentences = truth.iter();
        sentences
            .map(|sentence| sentence.tags.iter().map(&mut one).collect())
            .collect()
    }

    let truth: Vec<Vec<Name>> = dev.iter().map(|s| crate_names(&s.tags)).collect();
    let nothing: Vec<Vec<String>> = dev
        .iter()
        .map(|sentence| vec!["O".to_owned(); sentence.words.len()])
        .collect();

    check!("11.3", |judge| {
        let name = |kind: &str, start, end| (kind.to_owned(), start, end);
        let gold = vec![
            vec![name("PER", 0, 2), name("LOC", 4, 5)],
            vec![name("ORG", 1, 4)],
        ];
        let found = vec![
            vec![name("PER", 0, 2), name("ORG", 4, 5)],
            vec![name("ORG", 1, 3)],
        ];
        let (p, r, f) = precision_recall_f1(&found, &gold);
        let said = format!(
            "one of three names found and of three true ones is right; yours: {p:.3}, {r:.3}, {f:.3}"
        );
        judge.holds(
            &said,
            (p - 2.0 / 3.0).abs() > 1e-9,
            "A name of the right words with the wrong type is wrong, and so is one of the right \
             type that ends too early.",
        );
        judge.holds(
            &said,
            (f - 0.25).abs() > 1e-9,
            "0.25 is the mean over the sentences' own scores. Count over all sentences first, then \
             divide once.",
        );
        for (what, value) in [("precision", p), ("recall", r), ("F1", f)] {
            judge.close(what, value, 1.0 / 3.0, 1e-9, &said);
        }
        let (p, r, f) = precision_recall_f1(&[vec![]], &[vec![name("PER", 0, 1)]]);
        judge.holds(
            &format!("finding nothing has the scores 0, 0 and 0; yours: {p}, {r}, {f}"),
            [p, r, f] == [0.0; 3],
            "0 / 0 is NaN for a computer. Say 0 where nothing was found.",
        );
        let shifted = vec![gold[1].clone(), gold[0].clone()];
        judge.close(
            "F1 where each sentence was given the names of the other",
            precision_recall_f1(&shifted, &gold).2,
            0.0,
            1e-9,
            "A name counts in its own sentence alone.",
        );
        for share in [0.0, 0.05, 0.2, 0.5] {
            let predicted = spoiled(&dev, share, &class_names);
            let (p, r, f) = precision_recall_f1(&all_names(&predicted), &truth);
            let scores = crate_score(&predicted, &dev);
            for (what, yours, right) in [
                ("precision", p, scores[0]),
                ("recall", r, scores[1]),
                ("F1", f, scores[2]),
            ] {
                judge.close(
                    &format!(
                        "the {what} of the true tags with {:.0} % of them spoiled",
                        100.0 * share
                    ),
                    yours,
                    right,
                    1e-9,
                    "The crate's `eval::entities::score` gives this, and conlleval the same.",
                );
            }
        }
    });

    // %% [markdown]
    // ### Two baselines
    //
    // Before any model: what does it cost to know nothing, and what to know by heart? The second
    // baseline finds the names that stood in the training sentences, the longest first, and nothing
    // else. (CoNLL-2003 had the same baseline: its F1 was 59.6 on the English test set.)

    // %%
    /// Tags by heart: the longest run of words that was a name in training.
    fn by_heart(known: &HashMap<Vec<String>, String>, words: &[String]) -> Vec<String> {
        let mut tags = vec!["O".to_owned(); words.len()];
        let mut at = 0;
        while at < words.len() {
            let longest = (at + 1..=words.len().min(at + 6))
                .rev()
                .find_map(|end| Some((end, known.get(&words[at..end])?)));
            let Some((end, kind)) = longest else {
                at += 1;
                continue;
            };
            for (index, tag) in tags[at..end].iter_mut().enumerate() {
                *tag = format!("{}-{kind}", if index == 0 { "B" } else { "I" });
            }
            at = end;
        }
        tags
    }

    let mut known: HashMap<Vec<String>, String> = HashMap::new();
    for sentence in &train {
        for (kind, start, end) in crate_names(&sentence.tags) {
            known.insert(sentence.words[start..end].to_vec(), kind);
        }
    }
    let remembered: Vec<Vec<String>> = dev.iter().map(|s| by_heart(&known, &s.words)).collect();
    for (name, predicted) in [("nothing is a name", &nothing), ("by heart", &remembered)] {
        let [p, r, f1, accuracy] = crate_score(predicted, &dev);
        println!(
            "{name:>18}: {:.1} % of the tags right, precision {:.1} %, recall {:.1} %, F1 {:.1} %",
            100.0 * accuracy,
            100.0 * p,
            100.0 * r,
            100.0 * f1
        );
    }

    // %% [markdown]
    // A model must beat the second line to be worth anything, and whoever reports "accuracy" for
    // this task should be asked for the first.

    // %% [markdown]
    // > **A good place to stop.** You are half way, and your answers stay in the notebook. On another
    // > day select the cell below this one and choose *Run → Run All Above Selected Cell* (in VS Code
    // > *Execute Above Cells*).

    // %% [markdown]
    // ## Step 4: the model as a machine for vectors
    //
    // "All of the BERT results presented so far have used the fine-tuning approach": so begins the
    // paper's section 5.3, which then asks what the vectors are worth when the model is *not*
    // trained further. Each token has a vector after the embeddings and one after each layer. Which
    // of them is best? The paper's table 7, on CoNLL-2003's development set, F1 of BERT-base: last
    // layer 94.9, second to last 95.6, **the last four side by side 96.1**, and fine-tuned 96.4.
    // (There the features went through a two-layer BiLSTM; here a linear layer reads them.)
    //
    // cloze-tiny has 2 layers of width 128, so there are three vectors a token: 384 numbers side by
    // side.
    //
    // **Exercise 11.4.** Put layers side by side. Each layer is a list of rows of `width` numbers,
    // one row behind the other; so is the result, with rows `layers.len()` times as wide.

    // %%
    fn side_by_side(layers: &[Vec<f32>], width: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("11.4");
        let rows = layers.first().map_or(0, |layer| layer.len() / width);
        let mut all = Vec::with_capacity(rows * width * layers.len());
        for row in 0..rows {
            for layer in layers {
                all.extend_from_slice(&layer[row * width..(row + 1) * width]);
            }
        }
        all
        // END SOLUTION
    }

    // %%
    let encoder: Model = Model::read(&model_folder, &[Part::Encoder], None)?;
    let mut engine: CpuEngine =
        CpuEngine::new(&encoder.config, &encoder.layout, encoder.values.clone())?;
    const H: usize = 128;

    check!("11.4", |judge| {
        let layers = [vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]];
        let yours = side_by_side(&layers, 2);
        judge.holds(
            "row 0 of the result is row 0 of the first layer, then row 0 of the second",
            yours != layers.concat(),
            "You put whole layers one behind the other: the vector of one token is then spread \
             over the list.",
        );
        judge.same_list(
            "side_by_side(&[[1, 2, 3, 4], [5, 6, 7, 8]], 2)",
            &yours,
            &[1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0],
            "Two rows of two numbers each; row 0 is 1, 2 of the first layer and 5, 6 of the second.",
        );
        let mut batch = Packed::default();
        let ids = tokenizer
            .encode_with_special("The ship left Lisbon for Goa.")
            .ids;
        batch.push(0, &ids, &vec![0; ids.len()]);
        // Both run the same engine on the same batch: they can't fail for one and not the other.
        let states = engine
            .hidden_states(&batch, 0..3)
            .map(|states| states.layers);
        let settings = features::Settings {
            layers: 0..=2,
            combine: Combine::Concat,
            pool: Pool::None,
            normalize: false,
        };
        let right = features::embed_batch(&mut engine, &batch, &settings);
        if let (Ok(states), Ok(right)) = (states, right) {
            judge.same_list(
                "the three layers of a sentence, side by side,",
                &side_by_side(&states, H),
                &right[0],
                "This is what `cloze features --layers 0..2 --combine concat --pool none` prints.",
            );
        }
    });

    // %% [markdown]
    // ## Step 5: the head and its loss
    //
    // The head is one linear layer, from a token's vector to 9 numbers, one a tag. Its loss is the
    // cross-entropy of the rows that have a label:
    //
    // $$ L = -\frac{1}{|F|} \sum_{i \in F} \ln \operatorname{softmax}(W h_i + b)_{y_i} $$
    //
    // where $F$ are the rows of the words' first pieces. What a row without a label says costs
    // nothing, so nothing is learned from it.
    //
    // **Exercise 11.5.** Write the loss in dfdx, so that it has a gradient: the mean over the labelled
    // rows. `pick(logits, &rows)` keeps the rows that a `Vec<u32>` names, and
    // `cross_entropy(logits, &classes)` gives the *sum* of the rows' losses.

    // %%
    /// Logits with a tape: (rows, classes).
    type Logits = Tensor<(usize, Const<CLASSES>), f32, Cpu, OwnedTape<f32, Cpu>>;

    fn labelled_loss(
        logits: Logits,
        labels: &[Option<u32>],
    ) -> Tensor<Rank0, f32, Cpu, OwnedTape<f32, Cpu>> {
        // BEGIN SOLUTION
        cloze::solution!("11.5");
        let mut rows: Vec<u32> = Vec::new();
        let mut classes: Vec<u32> = Vec::new();
        for (row, label) in labels.iter().enumerate() {
            if let Some(class) = label {
                rows.push(row as u32);
                classes.push(*class);
            }
        }
        cross_entropy(pick(logits, &rows), &classes) / rows.len() as f32
        // END SOLUTION
    }

    // %%
    check!("11.5", |judge| {
        let dev = Cpu::seed_from_u64(5);
        let x: Tensor<(usize, Const<CLASSES>), f32, Cpu> =
            dev.sample_normal_like(&(6, Const::<CLASSES>));
        let labels = [None, Some(3), None, Some(0), Some(8), None];
        let loss = labelled_loss(x.leaky_trace(), &labels);
        let value = f64::from(loss.array());
        let gradient = loss.backward().get(&x).as_vec();

        let mut logits = x.as_vec();
        let three = objective::labelled_cross_entropy(&mut logits, CLASSES, labels, 1.0 / 3.0);
        let mean = three.loss / 3.0;
        judge.holds(
            &format!("the loss is a mean: {mean:.4}; yours is {value:.4}"),
            (value - three.loss).abs() > 1e-4,
            "That is the sum. Divide by the number of labelled rows: otherwise a long batch takes \
             longer steps.",
        );
        judge.holds(
            &format!("the loss is the mean over 3 labelled rows, {mean:.4}; yours is {value:.4}"),
            (value - three.loss / 6.0).abs() > 1e-4,
            "You divided by all 6 rows; 3 of them have no label.",
        );
        let mut others = x.as_vec();
        let outside = labels.map(|label| label.unwrap_or(0));
        let all = objective::cross_entropy(&mut others, CLASSES, &outside, 1.0);
        judge.holds(
            &format!("the loss is the mean over 3 labelled rows, {mean:.4}; yours is {value:.4}"),
            [1.0, 3.0, 6.0].iter().all(|n| (value - all.loss / n).abs() > 1e-4),
            "You gave the rows without a label the class 0. That teaches the model that later pieces \
             are no names: leave them out.",
        );
        judge.close(
            "the loss of six rows, three of which have labels,",
            value,
            mean,
            1e-4,
            "The crate's `objective::labelled_cross_entropy` gives this.",
        );
        for row in [0, 2, 5] {
            let there = gradient[row * CLASSES..(row + 1) * CLASSES].iter();
            judge.holds(
                &format!("the gradient of row {row}, which has no label, is 0"),
                there.copied().all(|g| g == 0.0),
                "A row without a label must not take part: leave it out before the cross-entropy. \
                 Calling it class 0 teaches the model that later pieces are no names.",
            );
        }
        let apart = gradient
            .iter()
            .zip(&logits)
            .map(|(a, b)| f64::from((a - b).abs()));
        judge.close(
            "the largest gap between your gradient and the crate's",
            apart.fold(0.0, f64::max),
            0.0,
            1e-5,
            "The crate's engines put softmax minus one-hot, divided by the number of labelled \
             rows, in place of the logits.",
        );
    });

    // %% [markdown]
    // ## Step 6: train the head on frozen vectors
    //
    // Since the encoder stands still, its vectors are computed once. Then it is 300 steps over all
    // words at once. A linear layer under a cross-entropy has one valley only, so it may start from
    // zeros.

    // %%
    /// A set made ready: batches are not needed, everything goes through the head at once.
    struct Set {
        sentences: Vec<Sentence>,
        sequences: Sequences,
        labels: Vec<Option<u32>>,
        /// The row of each word's first piece.
        words: Vec<usize>,
        /// Of all rows, after the embeddings and after each layer.
        layers: Vec<Vec<f32>>,
    }

    impl Set {
        fn new(
            file: &std::path::Path,
            tokenizer: &WordPiece,
            engine: &mut CpuEngine,
        ) -> cloze::Result<Self> {
            let (sequences, labels) = crate_rows(file, tokenizer)?;
            let all: Vec<usize> = (0..sequences.len()).collect();
            let words = (0..labels.len()).filter(|&row| labels[row].is_some());
            Ok(Self {
                sentences: conll::read(file, true, &mut BadRows::refused())?,
                words: words.collect(),
                layers: engine.hidden_states(&sequences.batch(&all), 0..3)?.layers,
                labels,
                sequences,
            })
        }

        /// The tags of each sentence, from the logits of all rows.
        fn tags(&self, logits: &[f32], names: &[String]) -> Vec<Vec<String>> {
            let tag = |&row: &usize| {
                let row = &logits[row * CLASSES..(row + 1) * CLASSES];
                let best = (0..CLASSES).max_by(|&a, &b| row[a].total_cmp(&row[b]));
                names[best.unwrap_or_default()].clone()
            };
            let mut tags = self.words.iter().map(tag);
            let sentences = self.sentences.iter();
            sentences
                .map(|sentence| tags.by_ref().take(sentence.words.len()).collect())
                .collect()
        }
    }

    let train_set: Set = Set::new(&train_file, &tokenizer, &mut engine)?;
    let dev_set: Set = Set::new(&dev_file, &tokenizer, &mut engine)?;
    println!(
        "{} rows × {} layers × {H}; {} of the rows are first pieces",
        train_set.labels.len(),
        train_set.layers.len(),
        train_set.words.len()
    );

    // %%
    /// A head whose weights are drawn from a normal distribution of this deviation, the same ones
    /// each time.
    fn fresh_head<const F: usize>(deviation: f32) -> Linear<F, CLASSES, f32, Cpu> {
        let dev = Cpu::seed_from_u64(1);
        let weight: Tensor<Rank2<CLASSES, F>, f32, Cpu> = dev.sample_normal();
        Linear {
            weight: weight * deviation,
            bias: dev.zeros(),
        }
    }

    /// Trains a head on rows of `F` numbers; gives the logits of the set to measure on, and the loss
    /// of each step.
    fn train_head<const F: usize>(
        train: &[f32],
        labels: &[Option<u32>],
        dev_rows: &[f32],
    ) -> (Vec<f32>, Vec<(f64, f64)>) {
        let dev = Cpu::default();
        let rows =
            |values: &[f32]| dev.tensor_from_vec(values.to_vec(), (values.len() / F, Const::<F>));
        let x: Tensor<(usize, Const<F>), f32, Cpu> = rows(train);
        let mut head = fresh_head::<F>(0.0);
        let config = AdamConfig {
            lr: 1e-2,
            weight_decay: Some(WeightDecay::Decoupled(0.01)),
            ..AdamConfig::default()
        };
        let mut adam = Adam::new(&head, config);
        let mut losses = Vec::new();
        for step in 1..=cloze::lessons::steps(300) {
            let loss = labelled_loss(head.forward(x.leaky_trace()), labels);
            losses.push((step as f64, f64::from(loss.array())));
            let gradients = loss.backward();
            // Fails where a parameter has no gradient; the loss reads both.
            adam.update(&mut head, &gradients).expect("both are read");
        }
        (head.forward(rows(dev_rows)).as_vec(), losses)
    }

    let mut results: Vec<(String, f64)> = vec![
        ("nothing is a name".into(), crate_score(&nothing, &dev)[2]),
        ("by heart".into(), crate_score(&remembered, &dev)[2]),
    ];
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    if solved!("11.4") && solved!("11.5") {
        let begun = std::time::Instant::now();
        for (layer, name) in ["embeddings alone", "layer 1", "layer 2"]
            .iter()
            .enumerate()
        {
            let (logits, losses) = train_head::<H>(
                &train_set.layers[layer],
                &train_set.labels,
                &dev_set.layers[layer],
            );
            let score = crate_score(&dev_set.tags(&logits, &class_names), &dev);
            results.push((format!("frozen: {name}"), score[2]));
            curves.push((name.to_string(), losses));
        }
        let (logits, losses) = train_head::<{ 3 * H }>(
            &side_by_side(&train_set.layers, H),
            &train_set.labels,
            &side_by_side(&dev_set.layers, H),
        );
        let score = crate_score(&dev_set.tags(&logits, &class_names), &dev);
        results.push(("frozen: all three side by side".into(), score[2]));
        curves.push(("all three".into(), losses));
        println!("four heads in {:.1} s", begun.elapsed().as_secs_f64());
        let mut chart = LineChart::new("Loss of a linear head on frozen vectors")
            .axes("step", "cross-entropy (nats)");
        for (name, losses) in &curves {
            chart = chart.line(name, losses);
        }
        show!(chart);
        for (name, f1) in &results {
            println!("{name:>32}: F1 {:.1} %", 100.0 * f1);
        }
    }

    // %% [markdown]
    // The embeddings know the word and its position and nothing of its neighbours: their score is
    // what words alone are worth. What the layers add is context: the second layer's vectors
    // are worth two thirds more. That all three side by side are not better is no fault of yours.
    // Look at their loss: it is the lowest of the four. The head has 3,456 weights and 2,621 words to
    // learn from, so it learns accidents. With CoNLL-2003's 200,000 words to learn from, the paper
    // found side by side best.
    //
    // ### What an uncased model can't see
    //
    // A feature is a number that you choose. So put four beside the last layer's vector that the
    // tokenizer threw away: has the word a capital letter, has the word before it, has the word
    // behind it, and is it the first of its sentence?

    // %%
    /// The last layer's rows with four numbers more: whether the word has a capital letter, the word
    /// before it, the word behind it, and whether it is the first.
    fn with_capitals(set: &Set) -> Vec<f32> {
        let mut flags: Vec<[f32; 4]> = vec![[0.0; 4]; set.labels.len()];
        let mut rows = set.words.iter();
        for sentence in &set.sentences {
            let capital = |place: Option<usize>| {
                let word = place.and_then(|place| sentence.words.get(place));
                f32::from(u8::from(
                    word.is_some_and(|w| w.starts_with(char::is_uppercase)),
                ))
            };
            for (place, &row) in (0..sentence.words.len()).zip(rows.by_ref()) {
                flags[row] = [
                    capital(Some(place)),
                    capital(place.checked_sub(1)),
                    capital(Some(place + 1)),
                    f32::from(u8::from(place == 0)),
                ];
            }
        }
        let rows = set.layers[2].chunks_exact(H).zip(&flags);
        rows.flat_map(|(vector, flags)| [vector, flags].concat())
            .collect()
    }

    if solved!("11.5") {
        let (logits, _) = train_head::<{ H + 4 }>(
            &with_capitals(&train_set),
            &train_set.labels,
            &with_capitals(&dev_set),
        );
        let score = crate_score(&dev_set.tags(&logits, &class_names), &dev);
        println!(
            "layer 2 with four numbers about capital letters: F1 {:.1} %",
            100.0 * score[2]
        );
        results.push(("frozen: layer 2, and capitals".into(), score[2]));
    }

    // %% [markdown]
    // Four numbers beside 128, and the score grows by 9 points: a capital letter says that there is a
    // name, and the one before says where it began. That is the strength of the feature-based way:
    // whatever you know can be put beside what the model knows. (The real cure is a cased model.)
    //
    // ## Step 7: let the model learn along
    //
    // Fine-tuning is the same head on the last layer and the same loss. The one difference: the
    // gradient does not stop at the vectors. `Encoder::encode` gives the last hidden states with a
    // tape whose backward step runs through the engine, so your loss reaches every parameter of
    // the model. dfdx's Adam updates the head, the engine's AdamW the encoder.

    // %%
    /// The tags of a set by a head over the last hidden states.
    fn tagged(
        encoder: &Encoder,
        head: &Linear<H, CLASSES, f32, Cpu>,
        set: &Set,
        names: &[String],
    ) -> cloze::Result<Vec<Vec<String>>> {
        let all: Vec<usize> = (0..set.sequences.len()).collect();
        let hidden = encoder.infer::<H>(&set.sequences.batch(&all))?;
        Ok(set.tags(&head.forward(hidden).as_vec(), names))
    }

    /// What a run of fine-tuning shows and leaves.
    struct Tuned {
        encoder: Encoder,
        head: Linear<H, CLASSES, f32, Cpu>,
        tags: Vec<Vec<String>>,
    }

    /// Trains encoder and head for 20 epochs of batches of 16 sentences; the chart tells the run's
    /// name.
    fn fine_tune(
        name: &str,
        engine: CpuEngine,
        deviation: f32,
        train: &Set,
        dev: &Set,
        names: &[String],
    ) -> cloze::Result<Tuned> {
        let encoder = Encoder::new(engine);
        let mut head = fresh_head::<H>(deviation);
        let mut adam = Adam::new(&head, AdamConfig::default());
        let batches: Vec<Vec<usize>> = (0..20)
            .flat_map(|epoch| {
                let size = cloze::data::sequences::BatchSize::Examples(16);
                train.sequences.epoch(1, epoch, size)
            })
            .collect();
        let steps = cloze::lessons::steps(batches.len() as u64);
        let schedule = Schedule {
            peak: 1e-3,
            warmup: steps / 10,
            total: steps,
        };
        let chart = LineChart::new(format!("Finding names: {name}")).axes("step", "loss, and F1");
        let mut live = LiveChart::new(chart);
        for (step, which) in (1..=steps).zip(&batches) {
            let batch = Arc::new(train.sequences.batch(which));
            let rows = which.iter().flat_map(|&i| train.sequences.rows_of(i));
            let labels: Vec<Option<u32>> = rows.map(|row| train.labels[row]).collect();
            let dropout = Dropout {
                seed: 1,
                step: step as u32,
            };
            let hidden = encoder.encode::<H>(&batch, dropout)?;
            let loss = labelled_loss(head.forward(hidden), &labels);
            live.push("loss of the batch", step as f64, f64::from(loss.array()));
            // The backward pass gives the engine its gradients too.
            let gradients = loss.backward();
            adam.cfg.lr = schedule.rate(step);
            // Fails where a parameter has no gradient; the loss reads both.
            adam.update(&mut head, &gradients).expect("both are read");
            encoder.engine().update(&Update {
                optimizer: Default::default(),
                learning_rate: schedule.rate(step),
                step,
                max_norm: 1.0,
            })?;
            if step % 14 == 0 || step == steps {
                let tags = tagged(&encoder, &head, dev, names)?;
                live.push(
                    "F1 on the other set",
                    step as f64,
                    crate_score(&tags, &dev.sentences)[2],
                );
            }
        }
        Ok(Tuned {
            tags: tagged(&encoder, &head, dev, names)?,
            encoder,
            head,
        })
    }

    let mut tuned: Option<Tuned> = None;
    if solved!("11.5") {
        let begun = std::time::Instant::now();
        let values = encoder.values.clone();
        let engine = CpuEngine::new(&encoder.config, &encoder.layout, values)?;
        // As the encoder's own weights began.
        let deviation = encoder.config.initializer_range as f32;
        let run = fine_tune(
            "fine-tuned",
            engine,
            deviation,
            &train_set,
            &dev_set,
            &class_names,
        )?;
        let [p, r, f1, _] = crate_score(&run.tags, &dev);
        println!(
            "{:.1} s: precision {:.1} %, recall {:.1} %, F1 {:.1} %",
            begun.elapsed().as_secs_f64(),
            100.0 * p,
            100.0 * r,
            100.0 * f1
        );
        results.push(("fine-tuned".into(), f1));
        tuned = Some(run);
    }

    // %% [markdown]
    // Two runs more. The same from random weights tells what the pre-training is worth. And the same
    // with a head of zeros: on frozen vectors that made no difference. Here it does.

    // %%
    if solved!("11.5") {
        let fresh = encoder.layout.initialise(1);
        let deviation = encoder.config.initializer_range as f32;
        let runs = [
            ("fine-tuned, the head from zeros", &encoder.values, 0.0),
            ("fine-tuned from random weights", &fresh, deviation),
        ];
        for (name, values, deviation) in runs {
            let engine = CpuEngine::new(&encoder.config, &encoder.layout, values.clone())?;
            let run = fine_tune(name, engine, deviation, &train_set, &dev_set, &class_names)?;
            results.push((name.into(), crate_score(&run.tags, &dev)[2]));
        }
        show!(
            BarChart::new("F1 of whole names on 80 sentences")
                .unit("%")
                .bars(results.iter().map(|(name, f1)| (name.clone(), 100.0 * f1)))
        );
    }

    // %% [markdown]
    // A head of zeros sends nothing down: the gradient of the hidden states is $(p - y)\,W$, and
    // $W = 0$. In the first steps, while $W$ is hardly more than 0, the encoder's gradient is tiny
    // and says little, but Adam divides by its size, so the encoder takes full steps in a direction
    // that hardly means anything. A start that costs nothing in one setting costs half of the score
    // in another.
    //
    // The set to measure on has 143 names, so a figure of 40 % has a standard error of about 4 points,
    // an interval of ±8 at 95 % (lesson 06). Differences of that size are no finding.
    //
    // ## Step 8: look at what it found
    //
    // A number never shows *how* a model is wrong. Four sentences it was not trained on, in the
    // colours of the types that it found:

    // %%
    if let Some(tuned) = &tuned {
        let mut order: Vec<usize> = (0..dev.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(truth[i].len()));
        for &i in order.iter().take(4) {
            show!(
                TokenStrip::new("", &dev[i].words)
                    .row("found", &tuned.tags[i])
                    .row("true", &dev[i].tags)
                    .colored(&colours(&tuned.tags[i]))
            );
        }
    }

    // %% [markdown]
    // And all its mistakes, sorted: a name with the right words and a wrong type, one that overlaps
    // a true one, one invented, one missed.

    // %%
    if let Some(tuned) = &tuned {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for (found, truth) in all_names(&tuned.tags).iter().zip(&truth) {
            let meets = |a: &Name, b: &Name| a.1 < b.2 && b.1 < a.2;
            for name in found {
                let kind = if truth.contains(name) {
                    "right"
                } else if truth.iter().any(|t| t.1 == name.1 && t.2 == name.2) {
                    "wrong type"
                } else if truth.iter().any(|t| meets(t, name)) {
                    "wrong ends"
                } else {
                    "invented"
                };
                *kinds.entry(kind).or_default() += 1;
            }
            let missed = truth
                .iter()
                .filter(|t| !found.iter().any(|name| meets(t, name)));
            *kinds.entry("missed").or_default() += missed.count();
        }
        let order = ["right", "wrong type", "wrong ends", "invented", "missed"];
        let count = |kind: &str| kinds.get(kind).copied().unwrap_or_default() as f64;
        show!(
            BarChart::new("The names that it found, and those that it missed")
                .bars(order.map(|kind| (kind, count(kind))))
        );
    }

    // %% [markdown]
    // A sentence of your own: change it and run the cell again.

    // %%
    if let Some(tuned) = tuned.as_ref().filter(|_| solved!("11.2")) {
        let text = "Maria Lopez flew from Nairobi to Lisbon to speak at the University of Porto .";
        let words: Vec<String> = text.split(' ').map(String::from).collect();
        let sentence = Sentence {
            tags: vec!["O".to_owned(); words.len()],
            words,
        };
        let (ids, labels) = with_labels(&tokenizer, &class_names, &sentence);
        let mut sequences = Sequences::default();
        sequences.push(&[(&ids, 0)]);
        let own = Set {
            words: (0..ids.len())
                .filter(|&row| labels[row].is_some())
                .collect(),
            sentences: vec![sentence],
            sequences,
            labels,
            layers: Vec::new(),
        };
        let tags = tagged(&tuned.encoder, &tuned.head, &own, &class_names)?;
        show!(
            TokenStrip::new("Names found", &own.sentences[0].words)
                .row("found", &tags[0])
                .colored(&colours(&tags[0]))
        );
    }

    // %% [markdown]
    // ## What goes wrong
    //
    // Two of the crate's answers, provoked: rows of another width than the model gives, and a file
    // with a line that lost a column.

    // %%
    let small: Packed = train_set.sequences.batch(&[0]);
    let narrow: CpuEngine =
        CpuEngine::new(&encoder.config, &encoder.layout, encoder.values.clone())?;
    let shared: Encoder = Encoder::new(narrow);
    if let Err(error) = shared.infer::<384>(&small) {
        println!("{error}");
    }
    let broken: std::path::PathBuf = std::env::temp_dir().join("cloze-lesson-11.txt");
    std::fs::write(&broken, "Leila B-PER\nHaddad I-PER\nsang\n. O\n")?;
    if let Err(error) = conll::read(&broken, true, &mut BadRows::refused()) {
        println!("{error}");
    }

    // %% [markdown]
    // **No tape.** `labelled_loss(head.forward(x), &labels)`, the `leaky_trace()` forgotten:
    //
    // ```text
    // error[E0308]: mismatched types
    //   |     let loss = labelled_loss(head.forward(x), labels);
    //   |                ------------- ^^^^^^^^^^^^^^^ expected `Tensor<(usize, Const<9>), f32, Cpu, ...>`,
    //   |                                              found `Tensor<(usize, Const<9>), f32, Cpu>`
    //   = note: expected struct `Tensor<_, _, _, OwnedTape<f32, Cpu>>`
    //              found struct `Tensor<_, _, _, NoneTape>`
    // ```
    //
    // The last argument of a tensor's type is its tape. Without one there is nothing to go back
    // along: `head.forward(x.leaky_trace())`.
    //
    // **The wrong head.** A `Linear<128, 9>` on rows of three layers:
    //
    // ```text
    // error[E0277]: the trait bound `Tensor<(usize, Const<384>), f32, Cpu, ...>: TryMatMul<...>` is not satisfied
    //   |     let logits = head.forward(x.leaky_trace());
    //   |                       ^^^^^^^ unsatisfied trait bound
    //   = note: required for `Linear<128, 9, f32, Cpu>` to implement
    //           `Module<Tensor<(usize, Const<384>), f32, Cpu, OwnedTape<f32, Cpu>>>`
    // ```
    //
    // (Paths of types are left away.) The note has both numbers: a head from 128 was given 384.
    //
    // **Another batch between.** Measuring the model between `encode` and `backward`:
    //
    // ```text
    // the engine has run another batch since this one was encoded
    // ```
    //
    // The backward pass needs the activations of *its* batch, and the engine keeps one batch's.
    //
    // And what gives no error but a wrong number:
    //
    // - **labels on every piece**: `O` and `I-` of later pieces drown the rest, and long words count
    //   most;
    // - **padding or `[SEP]` labelled `O`**: the loss looks wonderful, since most rows are easy;
    // - **tags scored one by one**: 77 % for a model that finds nothing;
    // - **rows of 384 cut into rows of 128**: three times as many rows as labels, and the labels
    //   belong to other words. The loss falls, the F1 does not rise.
    //
    // ## Expected numbers
    //
    // - 371 names to train on, 143 to measure on; 4,119 rows of which 2,621 are first pieces;
    // - nothing is a name: 76.7 % of the tags, F1 0; by heart: precision 83 %, recall 3.5 %, F1 6.7 %;
    // - F1 of a head on frozen vectors: embeddings 18.6 %, layer 1 20.9 %, layer 2 31.0 %, all three
    //   25.3 %; layer 2 with four numbers about capitals 40.4 %;
    // - fine-tuned 37.7 %, with a head that starts from zeros 20.1 %, from random weights 12.6 %;
    // - `cloze finetune ner --lr 1e-3 --epochs 20 --batch 16` gets 39.6 % on the same set: its head
    //   starts from other numbers;
    // - the four heads take 5 seconds, each of the three runs of fine-tuning 3 to 6, on two cores.
    //
    // ## On real data
    //
    // CoNLL-2003 has 14,041 sentences to train on. Its text belongs to Reuters and is not for
    // everybody to give away: get the files `eng.train`, `eng.testa` and `eng.testb`, then
    //
    // ```text
    // cloze finetune ner --data conll2003 --model google-bert/bert-base-cased --out ner
    // cloze finetune ner --data conll2003 --model google-bert/bert-base-cased --out ner-frozen --frozen --layers -4..-1
    // ```
    //
    // The paper's base model reaches 96.4 and 96.1 on `eng.testa` (table 7; the second with a BiLSTM
    // between: `--head bilstm`). `cloze features --layers -4..-1 --combine concat --pool none` writes the
    // vectors for whatever else you want to do with them.
    //
    // ## Open questions
    //
    // 1. A tag is predicted for each word alone: nothing stops the model from `O I-PER`. A CRF on top
    //    scores whole sequences of tags ([Lample et al. 2016](https://arxiv.org/abs/1603.01360)); the
    //    paper does without. What could a model that is fine-tuned learn, so that it is not needed?
    // 2. A company that serves ten tasks could run one frozen encoder with ten heads, or ten
    //    fine-tuned models. What does each cost per request, and when is which right?
    //
    // The crate's source of this part: `src/eval/entities.rs`, `src/tasks/words.rs`,
    // `src/features/mod.rs` and `src/features/frozen/mod.rs`. Next: [lesson 12](12_inside.rs), in which you look
    // inside.

    // %% [end]
    cloze::lessons::finish("11_ner")
}
