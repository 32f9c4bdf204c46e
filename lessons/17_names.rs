// ---
// title = "Names: a label for every word"
// summary = "Read tag schemes, label the first piece of each word, score whole names as conlleval does, and fine-tune a model that finds names in new sentences."
// track = "use"
// minutes = 52
// seconds = 35
// needs = ["12"]
//
// [[exercise]]
// id = "17.1"
// key = "names_in"
// was = "11.1"
// title = "From tags to names"
// hints = [
//     "Iterate over the tags and keep the list of names found so far. A word starts a name, continues the last one, or is outside.",
//     "Split a tag with `tag.split_once('-')`: `(\"B\", \"PER\")`; `O` has no dash. Remember the type of the *previous* word (none after an `O`).",
//     "An `I-X` continues the last name if the previous word was of type X too. Any other tag except `O` starts a name.",
// ]
//
// [[exercise]]
// id = "17.2"
// key = "with_labels"
// was = "11.2"
// title = "The first piece carries the label"
// hints = [
//     "One sequence: `[CLS]`, then the pieces of each word, then `[SEP]`. Each id gets an entry in the list of labels.",
//     "`tokenizer.encode(word).ids` are a word's pieces. The first of them gets `Some(number)`, the others get `None`, and so do `[CLS]` and `[SEP]`.",
//     "The number of a tag is its place in `tags`: `tags.iter().position(|name| name == tag)`, as `u32`.",
// ]
//
// [[exercise]]
// id = "17.3"
// key = "precision_recall_f1"
// was = "11.3"
// title = "Precision, recall and F1 of whole names"
// hints = [
//     "Count three things over all sentences: names found, true names, and names that are in both lists of the same sentence.",
//     "Precision is both / found, recall is both / true. If the divisor is 0, the result is 0.",
//     "F1 is 2 · both / (found + true), the harmonic mean of the two.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 17 · Names: a label for every word
    //
    // Which words are names, and of what: a person, a place, an organisation? This task is *named
    // entity recognition* (NER), and in it BERT labels every word of a sentence. You write how tags
    // are read, how they are assigned to word pieces, and how answers are scored. Then you fine-tune
    // a model, and it finds names in sentences that it has never seen.
    //
    // *About 52 minutes; the longest cell trains for a few seconds. You need
    // [lesson 12](12_fine_tuning.rs).*

    // %%
    use std::path::PathBuf;

    use cloze::TokenClassifier;
    use cloze::data::bad::BadRows;
    use cloze::data::conll::{self, Sentence};
    use cloze::lessons::data;
    use cloze::lessons::support::finetuning;
    use cloze::lessons::support::tagging::{self, Name, Set, all_names, colours, score};
    use cloze::prelude::*;
    use cloze::tasks::{self, Labels, Options, Task};
    use cloze::train::Finetuning;

    // %% [markdown]
    // ## Where we are going
    //
    // The set `names` has 220 sentences to train on and 80 to measure on, in the layout of
    // CoNLL-2003: one word a line, with its tag at the end of the line. Here is one of them, each
    // name in the colour of its type. At the end of the lesson your model colours sentences that it
    // has never seen.

    // %%
    let folder: PathBuf = data::folder("names")?;
    let train_file: PathBuf = folder.join("train.txt");
    let dev_file: PathBuf = folder.join("valid.txt");
    let train: Vec<Sentence> = conll::read(&train_file, true, &mut BadRows::refused())?;
    let dev: Vec<Sentence> = conll::read(&dev_file, true, &mut BadRows::refused())?;
    show!(
        TokenStrip::new("A sentence and its tags", &train[1].words)
            .row("tag", &train[1].tags)
            .colored(&colours(&train[1].tags))
    );

    // %% [markdown]
    // ## Step 1: tags
    //
    // A name may have several words, and two names may be adjacent. So a tag has two parts: a letter
    // for the place of the word in its name, and the type X of the name. There are several schemes:
    //
    // | scheme | first word of a name | its other words |
    // |---|---|---|
    // | IOB2, also called BIO | always `B-X` | `I-X` |
    // | IOB1, the files of CoNLL-2003 | `I-X`; `B-X` only right after a name of the same type | `I-X` |
    // | IOBES | `B-X`, or `S-X` if it is the only one | `I-X`, the last `E-X` |
    //
    // A model may also predict what no scheme allows: an `I-LOC` after an `O`. The official scorer,
    // `conlleval`, treats it as the start of a name ([Tjong Kim Sang and De Meulder
    // 2003](https://aclanthology.org/W03-0419/), section 2.4, describes the task's measure). One
    // rule reads IOB1, IOB2 and such invalid sequences alike: an `I-X` continues a name of type X if
    // the previous word belongs to one; any other tag except `O` starts a name.
    //
    // **Exercise 17.1.** Find the names: the type, the first word, and the word *after* the last.
    // `B-PER I-PER O B-LOC` gives `("PER", 0, 2)` and `("LOC", 3, 4)`.

    // %%
    fn names_in(tags: &[String]) -> Vec<Name> {
        // BEGIN SOLUTION
        cloze::solution!("17.1");
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
    check!("17.1", |judge| {
        let cases = [
            (
                "B-PER I-PER O B-LOC",
                "IOB2: the B starts a name, the I continues it, and the last word is a name of its \
                 own. The second number of a name is the word after its last.",
            ),
            (
                "B-PER B-PER",
                "Two adjacent names: a B always starts a new one.",
            ),
            (
                "I-PER I-PER O I-LOC",
                "IOB1: without a B before it, the first I of a name starts it.",
            ),
            (
                "B-LOC I-PER I-PER",
                "An I of another type than the previous word can't continue that name: it starts one.",
            ),
            (
                "B-ORG O I-ORG",
                "An O ends a name: the I after it starts a second one. Look at the previous word, \
                 not at the last name found.",
            ),
            ("O O", "No names, an empty list."),
        ];
        for (tags, think) in cases {
            let list: Vec<String> = tags.split(' ').map(String::from).collect();
            judge.same_list(
                &format!("the names of {tags:?}"),
                &names_in(&list),
                &tagging::names(&list),
                think,
            );
        }
        for number in 0..3_000 {
            let tags = tagging::random_tags(number);
            judge.same_list(
                &format!("the names of {:?}", tags.join(" ")),
                &names_in(&tags),
                &tagging::names(&tags),
                "The crate's `eval::entities` finds these.",
            );
        }
        judge.equal(
            "the number of names to train on",
            train.iter().map(|s| names_in(&s.tags).len()).sum::<usize>(),
            371,
            "137 places, 91 persons, 82 organisations, 61 others.",
        );
    });

    // %% [markdown]
    // (The crate converts every scheme to IOB2 when it reads a file, so the rest of the lesson sees
    // nothing else.)

    // %% [markdown]
    // ## Step 2: words and pieces
    //
    // The file has words, the model reads pieces. *Calcutta* may be one piece or three, but it has
    // one tag. The paper gives the tag to the first piece and trains on no other: "we use the
    // representation of the first sub-token as the input to the token-level classifier" ([Devlin et
    // al. 2019](https://arxiv.org/abs/1810.04805), section 5.3).
    //
    // **Exercise 17.2.** Turn a sentence into one sequence: its ids, and for each id the number of
    // its tag in `tags`, or `None`.

    // %%
    let model_folder: PathBuf = data::folder(data::SMALL)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&model_folder), None)?;
    // O, B-LOC, I-LOC, B-MISC and so on: 9 classes.
    let tags: Vec<String> = tagging::tag_names();

    // %%
    fn with_labels(
        tokenizer: &WordPiece,
        tags: &[String],
        sentence: &Sentence,
    ) -> (Vec<u32>, Vec<Option<u32>>) {
        // BEGIN SOLUTION
        cloze::solution!("17.2");
        let special = tokenizer.special();
        let mut ids = vec![special.cls];
        let mut labels = vec![None];
        for (word, tag) in sentence.words.iter().zip(&sentence.tags) {
            let pieces = tokenizer.encode(word).ids;
            let number = tags.iter().position(|name| name == tag);
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
    // The crate's sequences, with the label of each row: the check compares yours with them.
    let train_set: Set = Set::read(&train_file, &tokenizer)?;

    // %%
    check!("17.2", |judge| {
        let mut start = 0;
        for (number, sentence) in train.iter().enumerate() {
            let (ids, labels) = with_labels(&tokenizer, &tags, sentence);
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
                train_set.sequences.ids(number),
                "[CLS], the pieces of all words, [SEP].",
            );
            let expected = &train_set.labels[start..start + train_set.sequences.length(number)];
            start += expected.len();
            let (words, labelled) = (sentence.words.len(), labels.iter().flatten().count());
            judge.holds(
                &format!("{text:?} has {words} words and as many labels"),
                labelled == words || labels.len() != ids.len(),
                &match labelled > words {
                    true => format!(
                        "Yours has {labelled} labels. A word has one label, on its first piece, \
                         however many pieces it has."
                    ),
                    false => {
                        format!("Yours has {labelled} labels. O is a label too, number 0.")
                    }
                },
            );
            judge.same_list(
                &format!("the labels of {text:?}"),
                &labels,
                expected,
                "The number of a tag is its place in `tags`, and it belongs to the word's first piece.",
            );
        }
    });

    // %% [markdown]
    // The sentence with the most split words:

    // %%
    if solved!("17.2") {
        let extra = |sentence: &&Sentence| {
            with_labels(&tokenizer, &tags, sentence).0.len() - sentence.words.len()
        };
        let sentence = train.iter().max_by_key(extra).ok_or("no sentence")?;
        let (ids, labels) = with_labels(&tokenizer, &tags, sentence);
        let piece = |&id: &u32| tokenizer.token(id).unwrap_or("?");
        let pieces: Vec<&str> = ids.iter().map(piece).collect();
        let name = |label: &Option<u32>| label.map_or("", |label| tags[label as usize].as_str());
        let shown: Vec<&str> = labels.iter().map(name).collect();
        show!(
            TokenStrip::new("Pieces and labels", &pieces)
                .row("label", &shown)
                .colored(&colours(&shown))
        );
    }

    // %% [markdown]
    // The pieces are lower-case. cloze-small is an *uncased* model: what helps a reader of English
    // most to find names, the capital letter, is gone before the model sees anything. The paper took
    // a cased model for this task. Lesson 18 shows how much the capital letters are worth.

    // %% [markdown]
    // ## Step 3: the score
    //
    // Three out of four words here are outside names. A model that always answers `O` gets most
    // words right and is useless. So the measure counts names, and a name is right if its type and
    // both its ends are:
    //
    // $$ P = \frac{\text{right}}{\text{found}}, \qquad R = \frac{\text{right}}{\text{true}}, \qquad
    //    F_1 = \frac{2PR}{P + R} = \frac{2 \cdot \text{right}}{\text{found} + \text{true}} $$
    //
    // $P$ is the precision and $R$ the recall.
    //
    // If a model finds 4 names, the truth has 5, and 3 are in both, then $P = 3/4$, $R = 3/5$ and
    // $F_1 = 6/9$.
    //
    // **Exercise 17.3.** Compute the three from the names of all sentences: count over all sentences,
    // then divide. If nothing was found, the precision is 0.

    // %%
    fn precision_recall_f1(found: &[Vec<Name>], truth: &[Vec<Name>]) -> (f64, f64, f64) {
        // BEGIN SOLUTION
        cloze::solution!("17.3");
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
    let truth: Vec<Vec<Name>> = all_names(dev.iter().map(|sentence| &sentence.tags));

    // %%
    check!("17.3", |judge| {
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
        let numbers =
            format!("three names found, three true, one in both; yours: {p:.3}, {r:.3}, {f:.3}");
        judge.holds(
            &numbers,
            (p - 2.0 / 3.0).abs() > 1e-9,
            "A name with the right words but the wrong type is wrong, and so is one of the right \
             type that ends too early.",
        );
        judge.holds(
            &numbers,
            (f - 0.25).abs() > 1e-9,
            "0.25 is the mean of the sentences' own scores. Count over all sentences first, then \
             divide once.",
        );
        for (what, value) in [("precision", p), ("recall", r), ("F1", f)] {
            judge.close(what, value, 1.0 / 3.0, 1e-9, &numbers);
        }
        let (p, r, f) = precision_recall_f1(&[vec![]], &[vec![name("PER", 0, 1)]]);
        judge.holds(
            &format!("finding nothing has the scores 0, 0 and 0; yours: {p}, {r}, {f}"),
            [p, r, f] == [0.0; 3],
            "0.0 / 0.0 is NaN. Return 0 if nothing was found.",
        );
        let swapped = vec![gold[1].clone(), gold[0].clone()];
        judge.close(
            "F1 if each sentence is given the names of the other",
            precision_recall_f1(&swapped, &gold).2,
            0.0,
            1e-9,
            "A name counts only in its own sentence.",
        );
        for share in [0.0, 0.05, 0.2, 0.5] {
            let predicted = tagging::spoiled(&dev, share);
            let (p, r, f) = precision_recall_f1(&all_names(&predicted), &truth);
            let [right_p, right_r, right_f, _] = score(&predicted, &dev);
            let percent = 100.0 * share;
            judge.holds(
                &format!(
                    "precision {right_p:.3} and recall {right_r:.3} with {percent:.0} % of the tags \
                     replaced; yours: {p:.3} and {r:.3}"
                ),
                right_p == right_r || (p, r) != (right_r, right_p),
                "You swapped them: precision is the share of the names *found*.",
            );
            for (what, yours, right) in [
                ("precision", p, right_p),
                ("recall", r, right_r),
                ("F1", f, right_f),
            ] {
                judge.close(
                    &format!("the {what} of the true tags with {percent:.0} % of them replaced"),
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
    // Before any model: what does a system score that finds nothing, and one that only memorises? The
    // second baseline finds exactly the names that occur in the training sentences, the longest first.
    // (CoNLL-2003 had the same baseline: its F1 was 59.6 on the English test set.)

    // %%
    let nothing: Vec<Vec<String>> = dev
        .iter()
        .map(|sentence| vec!["O".to_owned(); sentence.words.len()])
        .collect();
    let memory: Vec<Vec<String>> = tagging::remembered(&train, &dev);
    for (name, predicted) in [("no names", &nothing), ("memory", &memory)] {
        let [p, r, f1, accuracy] = score(predicted, &dev).map(|value| 100.0 * value);
        println!(
            "{name:>8}: {accuracy:.1} % of the tags right, precision {p:.1} %, recall {r:.1} %, \
             F1 {f1:.1} %"
        );
    }

    // %% [markdown]
    // A model must beat the second line to be worth anything. If somebody reports "accuracy" for this
    // task, compare it with the first line.

    // %% [markdown]
    // ## Step 4: a model that finds names
    //
    // The head is one linear layer. It turns the vector of each piece into 9 logits, one for each tag,
    // and only first pieces count in the loss. In lesson 18 you write the loss yourself. Here you use
    // the crate's own trainer, with the recipe of lesson 12, and `cloze-small`, of 4 layers, 192 numbers
    // wide. There are more epochs, because the set is small.

    // %%
    let task: Box<dyn Task> =
        tasks::open("ner", &Options::default(), Labels::Training(&train_file))?;
    let mut run: Finetuning = Finetuning::builder(task, &model_folder)
        .train(&train_file)
        .dev(&dev_file)
        .epochs(cloze::lessons::epochs(20))
        .batch(16)
        .learning_rate(5e-4)
        .build()?;
    let scores: cloze::eval::Scores = finetuning::run_live("Fine-tuning on names", &mut run)?;
    println!(
        "{:.1} % of the tags right, F1 {:.1} %",
        100.0 * scores["accuracy"].as_f64().unwrap_or(f64::NAN),
        100.0 * scores["f1"].as_f64().unwrap_or(f64::NAN)
    );
    let tagger_folder: PathBuf = std::env::temp_dir().join("cloze-lesson-17");
    run.save(&tagger_folder)?;

    // %% [markdown]
    // `TokenClassifier` loads the saved model. It cuts a text into words and pieces, predicts the tags
    // of the first pieces, and reads the names from them by the rule of exercise 17.1. It returns the
    // place of a name in characters. `names_of` counts the blanks before it, which gives the place in
    // words. So your own function can score the model:

    // %%
    let tagger: TokenClassifier = TokenClassifier::load(&tagger_folder)?;

    fn names_of(tagger: &TokenClassifier, words: &[String]) -> cloze::Result<Vec<Name>> {
        let text = words.join(" ");
        let word = |at: usize| text.chars().take(at).filter(|&c| c == ' ').count();
        let found = tagger.entities(&[&text])?.concat();
        let name = |e: &cloze::Entity| (e.label.clone(), word(e.start), word(e.end) + 1);
        Ok(found.iter().map(name).collect())
    }

    // %%
    let mut found: Vec<Vec<Name>> = Vec::new();
    for sentence in &dev {
        found.push(names_of(&tagger, &sentence.words)?);
    }
    if solved!("17.3") {
        let (p, r, f1) = precision_recall_f1(&found, &truth);
        println!("yours: precision {p:.3}, recall {r:.3}, F1 {f1:.3}");
    }

    // %% [markdown]
    // Your F1 is the trainer's. It is six times that of the better baseline. Far more tags are right
    // than names: most tags are `O`, and a name needs all of its tags. Here are four sentences that the
    // model has never seen, with the names that it found:

    // %%
    fn tags_of(names: &[Name], words: usize) -> Vec<String> {
        let mut tags = vec!["O".to_owned(); words];
        for (kind, start, end) in names {
            tags[*start..*end].fill(format!("I-{kind}"));
            tags[*start] = format!("B-{kind}");
        }
        tags
    }

    // %%
    for number in [3, 6, 20, 43] {
        let sentence = &dev[number];
        let tags = tags_of(&found[number], sentence.words.len());
        show!(
            TokenStrip::new("", &sentence.words)
                .row("found", &tags)
                .row("true", &sentence.tags)
                .colored(&colours(&tags))
        );
    }

    // %% [markdown]
    // The model usually sees that there is a name, but it often misses where the name begins or ends.
    // Now a sentence of your own: change it and run the cell again. Put blanks around punctuation.

    // %%
    let text: &str = "Clara Novak moved from Oslo to Prague and plays for the Prague Lions .";
    let words: Vec<String> = text.split_whitespace().map(String::from).collect();
    let tags_found: Vec<String> = tags_of(&names_of(&tagger, &words)?, words.len());
    show!(
        TokenStrip::new("Names found", &words)
            .row("found", &tags_found)
            .colored(&colours(&tags_found))
    );

    // %% [markdown]
    // Lesson 18 counts the kinds of mistakes and shows what helps: capital letters, and a larger model.

    // %% [markdown]
    // ## What goes wrong
    //
    // Two of the crate's answers, provoked: a file with a line that lost a column, and a tag of a type
    // that the training file does not have.

    // %%
    let broken: PathBuf = std::env::temp_dir().join("cloze-lesson-17.txt");
    for text in ["Leila B-PER\nHaddad I-PER\nsang\n. O\n", "Leila B-PRE\n"] {
        std::fs::write(&broken, text)?;
        let task = tasks::open("ner", &Options::default(), Labels::Training(&train_file))?;
        let run = Finetuning::builder(task, &model_folder).train(&train_file);
        if let Err(error) = run.dev(&broken).build() {
            println!("{error}");
        }
    }

    // %% [markdown]
    // And what gives no error but a wrong number:
    //
    // - **labels on every piece**: the `O` and `I-` of later pieces outweigh the rest, and long words
    //   count most;
    // - **padding or `[SEP]` labelled `O`**: the loss looks wonderful, because most rows are easy;
    // - **tags scored one by one**: 77 % for a model that finds nothing;
    // - **the scores of sentences averaged**: a sentence without names has no score, and one name in a
    //   short sentence counts as much as five in a long one.

    // %% [markdown]
    // ## Expected numbers
    //
    // - 371 names to train on, 143 to measure on;
    // - no names: 76.7 % of the tags, F1 0; memory: precision 83.3 %, recall 3.5 %, F1 6.7 %;
    // - fine-tuned: 85.8 % of the tags, precision 46.2 %, recall 42.0 %, F1 44.0 %.
    //
    // There are 143 names to measure on, so a score of 44 % has a standard error of about 4 points, an
    // interval of ±8 at 95 % (lesson 09). Smaller differences prove nothing.

    // %% [markdown]
    // ## On real data
    //
    // CoNLL-2003 has 14,041 sentences to train on. Its text belongs to Reuters and may not be
    // redistributed; `cloze data get conll2003` says where to ask for it. With the files `eng.train`,
    // `eng.testa` and `eng.testb` in a folder:
    //
    // ```text
    // cloze finetune ner --data conll2003 --model google-bert/bert-base-cased --out ner
    // cloze predict ner --model ner --input conll2003/eng.testb --out answers
    // ```
    //
    // The paper's base model reaches an F1 of 96.4 on `eng.testa` (table 7). Your own words and labels
    // can come in a table: `cloze finetune custom --columns words,labels`.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Each word's tag is predicted alone: nothing keeps the model from `O I-PER`. A CRF on top
    //    scores whole sequences of tags ([Lample et al. 2016](https://arxiv.org/abs/1603.01360)); the
    //    paper does without. What could a fine-tuned model learn that makes it unnecessary?
    // 2. The first piece carries the label. What would you lose with the last piece, or with the mean
    //    of a word's pieces?
    //
    // The crate's source of this part: `src/data/tags.rs`, `src/eval/entities.rs`,
    // `src/tasks/words/mod.rs` and `src/predict/token_classifier.rs`. Next:
    // [lesson 18](18_features.rs), in which you write the loss of the head and train it on the
    // vectors of a frozen model.

    // %% [end]
    cloze::lessons::finish("17_names")
}
