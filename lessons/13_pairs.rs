// ---
// title = "GLUE: pairs of texts, and numbers in place of classes"
// summary = "Fine-tune on pairs of texts, write the baseline that reads one text alone and see how much of a score it explains, and measure answers that are numbers by Pearson's and Spearman's correlation."
// track = "use"
// minutes = 56
// seconds = 25
// needs = ["12"]
//
// [[exercise]]
// id = "13.1"
// key = "word_odds"
// title = "One text alone: the odds of each word"
// hints = [
//     "Two counts for each word: the rows with the label `true` whose sentence has it, and the rows with `false`. A map from the word to `[f64; 2]` holds both.",
//     "For each word of `words(sentence)`: `counts.entry(word).or_insert([1.0, 1.0])[usize::from(*yes)] += 1.0;`. Starting at 1 adds the ones of the formula.",
//     "In the end turn `[no, yes]` into `(yes / no).ln()` for each word: `counts.into_iter().map(…).collect()`.",
// ]
//
// [[exercise]]
// id = "13.2"
// key = "pearson"
// was = "08.5"
// title = "Pearson's correlation"
// hints = [
//     "Subtract its mean from each list first.",
//     "Three sums over the centred numbers: x·y, x·x and y·y. The result is the first divided by √(second · third).",
//     "If one list is constant, the denominator is 0; return 0 then.",
// ]
//
// [[exercise]]
// id = "13.3"
// key = "ranks"
// was = "08.6"
// title = "Ranks, with ties"
// hints = [
//     "The rank of a number counts how many are smaller: without ties it is 1 + that count.",
//     "Equal numbers share the mean of the ranks that they occupy together: two at ranks 3 and 4 both get 3.5.",
//     "With `below` numbers smaller and `same` equal (itself included), the ranks are below + 1 to below + same; their mean is below + (same + 1) / 2.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 13 · GLUE: pairs of texts, and numbers in place of classes
    //
    // Most tasks of GLUE ask about two texts at once. In this lesson you fine-tune on pairs, and find
    // out what a score is worth: you write a baseline that reads only one of the two texts, and
    // compare it with a small model and with a larger one. Then the answer becomes a number, which you
    // measure by Pearson's and Spearman's correlation.
    //
    // *About 56 minutes; the longest cell trains for about ten seconds. You need lesson 12.*

    // %%
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use cloze::data::sequences::BatchSize;
    use cloze::data::{Examples, Targets};
    use cloze::engine::inference;
    use cloze::eval;
    use cloze::lessons::data;
    use cloze::lessons::support::finetuning::{self, Pretrained, Split, measure, words};
    use cloze::model::Part;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::train::finetune::Settings as Recipe;
    use cloze::view::TokenStrip;

    // %% [markdown]
    // ## Where we are going
    //
    // GLUE ([Wang et al. 2018](https://arxiv.org/abs/1804.07461)) is a collection of nine tasks, and
    // one recipe, that of lesson 12, serves them all. They differ in their files, their answers and
    // their metrics:

    // %%
    println!("{}", finetuning::glue_table());

    // %% [markdown]
    // (The last one is a tenth file, made to diagnose models of MNLI.) Only CoLA and SST-2 have a
    // single text. The other tasks ask about a *pair*: is B a paraphrase of A, does it follow from A,
    // does it answer A, how similar are the two?
    //
    // ## The idea
    //
    // The head doesn't change. The input becomes `[CLS] A [SEP] B [SEP]`, with the segment vectors of
    // [lesson 03](03_embeddings.rs) to mark A and B. Attention runs across both texts, so that the
    // last hidden state of `[CLS]` can hold how they relate. For a task that asks for a *number* the
    // head has one output $z$, and $z$ is the answer.

    // %%
    let folder: PathBuf = data::folder(data::TINY)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let (pair, segments) = tokenizer.encode_pair("Who left the door open?", "The old man did.");
    show!(
        TokenStrip::new("Two texts, one input", &pair.tokens)
            .row("segment", &segments)
            .colored(&segments)
    );

    // %% [markdown]
    // The set `answerable` was written for Cloze and has the layout of QNLI: does the sentence answer
    // the question? It has 300 pairs to train on and 100 to measure on.

    // %%
    let pairs: PathBuf = data::folder("answerable")?;
    let text: String = std::fs::read_to_string(pairs.join("train.tsv"))?;
    for row in text.lines().skip(2).take(5) {
        let fields: Vec<&str> = row.split('\t').skip(1).collect();
        println!("{}\n", fields.join("\n    "));
    }

    // %% [markdown]
    // ## Step 1: what must a model beat?
    //
    // A model that gets 65 % right may have learned to compare two texts, or something simpler. Three
    // baselines do not compare their meanings:
    //
    // - *always the same answer*: 50 %, because both classes are equally frequent. (The question
    //   alone gives no more: each stands in two rows, once with each label.)
    // - *words in common*: "yes" where a large enough share of the question's words stands in the
    //   sentence, with the share that is best on the training rows;
    // - *the sentence alone*. What it gets right beyond 50 % comes from **artefacts**: regularities
    //   that the writers of the rows left in the sentences.
    //
    // The last one is called the **hypothesis-only** baseline, because B is the hypothesis in tasks
    // of inference. [Gururangan et al. 2018](https://arxiv.org/abs/1803.02324) got 67 % of SNLI right
    // in this way, where guessing among three classes gets a third. [Poliak et al.
    // 2018](https://arxiv.org/abs/1805.01042) tried ten data sets, and found it above the most frequent
    // class on a number of them.
    //
    // Both list words that give the label away, and so do you. For each word $w$ count the training
    // rows whose sentence has it: $\text{yes}_w$ with the label `entailment` and $\text{no}_w$ with
    // the other one. Its **log odds** are
    //
    // $$ o_w = \ln \frac{\text{yes}_w + 1}{\text{no}_w + 1} . $$
    //
    // The added ones keep a word that occurs once from being certain. A sentence is taken for an
    // answer if the log odds of its words add up to more than 0. (This is a form of naive Bayes.)

    // %%
    /// The sentences of a file, each with whether it answers its question.
    fn sentences(file: &Path) -> std::io::Result<Vec<(String, bool)>> {
        let text = std::fs::read_to_string(file)?;
        let row = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields[2].to_owned(), fields[3] == "entailment")
        };
        Ok(text.lines().skip(1).map(row).collect())
    }

    let rows: Vec<(String, bool)> = sentences(&pairs.join("train.tsv"))?;
    let asked: Vec<(String, bool)> = sentences(&pairs.join("dev.tsv"))?;

    // %% [markdown]
    // **Exercise 13.1.** Return the log odds of every word of these rows. `words(text)` returns the
    // different words of a text, in lower case, so a word counts once for each row.

    // %%
    fn word_odds(rows: &[(String, bool)]) -> BTreeMap<String, f64> {
        // BEGIN SOLUTION
        cloze::solution!("13.1");
        let mut counts: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for (sentence, yes) in rows {
            for word in words(sentence) {
                counts.entry(word).or_insert([1.0, 1.0])[usize::from(*yes)] += 1.0;
            }
        }
        counts
            .into_iter()
            .map(|(word, [no, yes])| (word, (yes / no).ln()))
            .collect()
        // END SOLUTION
    }

    // %%
    check!("13.1", |judge| {
        let seven = [
            ("The red van is red.", true),
            ("A red door.", true),
            ("The van was sold.", false),
            ("Nobody said why.", false),
            ("the bird", true),
            ("A dog.", true),
            ("Birds sing.", true),
        ]
        .map(|(sentence, yes)| (sentence.to_owned(), yes));
        let odds = word_odds(&seven);
        let of = |word: &str| odds.get(word).copied().unwrap_or(f64::NAN);
        judge.holds(
            "the words are in lower case, without punctuation",
            !odds.contains_key("The") && !odds.contains_key("red."),
            "`words(sentence)` cuts a sentence into its different words, in lower case.",
        );
        judge.holds(
            "`why`, which stands in a row with the label false alone, has log odds",
            odds.contains_key("why"),
            "Words that stand only in sentences that are no answers count too: they say no.",
        );
        judge.equal(
            "the number of words in seven sentences",
            odds.len(),
            15,
            "a, bird, birds, dog, door, is, nobody, red, said, sing, sold, the, van, was, why.",
        );
        let red = of("red");
        let slips: [(f64, &str); 10] = [
            (3.0, "These are odds. Take their natural logarithm."),
            (
                f64::INFINITY,
                "`red` never stands in a row with the label false, and yes / 0 is infinite. Add 1 to both counts.",
            ),
            (2f64.ln(), "Add 1 to each of the two counts."),
            (
                3f64.log2(),
                "That is the logarithm to base 2. Take the natural one, `ln`.",
            ),
            (
                4f64.ln(),
                "`red` stands twice in the first sentence, but counts once for each row: take \
                 `words(sentence)`.",
            ),
            (
                1.0,
                "That is the share of rows with the label true. Take the logarithm of the odds.",
            ),
            (
                0.75,
                "That is the share of rows with the label true. Take the logarithm of the odds.",
            ),
            (
                -(3f64.ln()),
                "The fraction is upside down: words of answers have positive log odds.",
            ),
            (
                (12.0 / 7.0f64).ln(),
                "You divided the counts by the numbers of rows. The formula takes the counts.",
            ),
            (
                1.2f64.ln(),
                "You divided the counts by the numbers of rows. The formula takes the counts.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds(
                &format!("the log odds of `red` are 1.0986; yours are {red:.4}"),
                red != slip && (red - slip).abs().total_cmp(&1e-6).is_gt(),
                said,
            );
        }
        for (word, expected, counts) in [
            ("red", 3f64.ln(), "2 rows with true and 0 with false"),
            ("the", 1.5f64.ln(), "2 rows with true and 1 with false"),
            ("van", 0.0, "1 row with true and 1 with false"),
            ("why", 0.5f64.ln(), "0 rows with true and 1 with false"),
        ] {
            judge.close(
                &format!("the log odds of `{word}`, which stands in {counts},"),
                of(word),
                expected,
                1e-9,
                "ln((yes + 1) / (no + 1)).",
            );
        }
        let all = word_odds(&rows);
        let cut: Vec<_> = rows
            .iter()
            .map(|(sentence, yes)| (words(sentence), *yes))
            .collect();
        for (word, odds) in &all {
            let count = |label: bool| {
                let with = cut
                    .iter()
                    .filter(|(words, yes)| *yes == label && words.contains(word));
                with.count() as f64 + 1.0
            };
            judge.close(
                &format!("the log odds of `{word}` in the 300 rows"),
                *odds,
                (count(true) / count(false)).ln(),
                1e-9,
                "Count the rows of each label whose sentence has the word.",
            );
        }
        judge.holds(
            "every word of the 300 rows has log odds",
            cut.iter()
                .all(|(words, _)| words.iter().all(|word| all.contains_key(word))),
            "Some words of the rows are missing.",
        );
    });

    // %%
    /// The share of rows that the words alone get right, in percent. Unknown words say nothing.
    fn by_words(odds: &BTreeMap<String, f64>, rows: &[(String, bool)]) -> f64 {
        let sum =
            |text: &str| -> f64 { words(text).iter().filter_map(|word| odds.get(word)).sum() };
        let right = rows
            .iter()
            .filter(|(sentence, yes)| (sum(sentence) > 0.0) == *yes);
        100.0 * right.count() as f64 / rows.len() as f64
    }

    if solved!("13.1") {
        let odds = word_odds(&rows);
        let mut ordered: Vec<(&String, &f64)> = odds.iter().collect();
        ordered.sort_by(|a, b| a.1.total_cmp(b.1));
        let mut chart =
            BarChart::new("Log odds of words that say yes, and of words that say no (negated)");
        for i in 0..5 {
            let (no, yes) = (ordered[i], ordered[ordered.len() - 1 - i]);
            chart = chart.bar(format!("yes: {}", yes.0), *yes.1);
            chart = chart.beside(format!("no: {}", no.0), -no.1);
        }
        show!(chart);
        for (name, rows) in [("training", &rows), ("held-out", &asked)] {
            println!("{:.0} % of the {name} rows right", by_words(&odds, rows));
        }
    }

    // %% [markdown]
    // *what*, *why* and *how* stand almost only in wrong sentences: a sentence that leaves a question
    // open says that nobody knows how or why. With such words the rule gets 57 % of the held-out rows
    // right, without a look at the question.
    //
    // On the training rows it gets 75 %, and no rule could get more from the sentence alone. A third
    // of the sentences stand in two rows, once with the question that they answer and once with
    // another one. A rule that reads the sentence alone gives both rows the same answer, and is wrong
    // in one of them. The limit of 75 % holds for the held-out rows too.

    // %% [markdown]
    // ## Step 2: a model on pairs
    //
    // Training is as in lesson 12, but with the crate's loop. The columns decide what the model reads:
    // `question,sentence,label` makes pairs, `sentence,label` leaves the question out.

    // %%
    /// Trains a copy of the model in `folder`, with a new head of so many outputs.
    fn fine_tune(
        folder: &Path,
        outputs: usize,
        train: &Examples,
        recipe: &Recipe,
    ) -> cloze::Result<CpuEngine> {
        let parts = Part::SequenceClassifier(outputs).with_encoder();
        let model = Model::read(folder, &parts, Some(recipe.seed))?;
        let (parameters, _losses) = finetuning::finetune(&model, train, recipe, None)?;
        CpuEngine::new(&model.config, &model.layout, parameters)
    }

    // %%
    /// The settings of a run.
    fn recipe_of(seed: u64, epochs: u32, learning_rate: f64) -> Recipe {
        let batch = BatchSize::Examples(16);
        Recipe {
            seed,
            epochs,
            learning_rate,
            batch,
            ..Recipe::default()
        }
    }

    // All 300 rows; only a few in the automatic tests of the lessons.
    let limit: usize = cloze::lessons::steps(300) as usize;
    const COLUMNS: [&str; 2] = ["sentence,label", "question,sentence,label"];

    // %%
    if solved!("13.1") {
        let overlap =
            finetuning::overlap_accuracy(&pairs.join("train.tsv"), &pairs.join("dev.tsv"))?;
        let mut chart = BarChart::new("Does the sentence answer the question?")
            .unit("%")
            .bar("always the same answer", 50.0)
            .bar("words in common", overlap)
            .bar("words of the sentence", by_words(&word_odds(&rows), &asked));
        for columns in COLUMNS {
            let split = Split::read(columns, &pairs, &tokenizer, limit)?;
            let (mut on_train, mut right) = (0.0, 0.0);
            for seed in 1..=3 {
                let recipe = recipe_of(seed, 5, 1e-3);
                let mut engine = fine_tune(&folder, 2, &split.train, &recipe)?;
                on_train += measure(&mut engine, &split.train)?.1 / 3.0;
                right += measure(&mut engine, &split.held_out)?.1 / 3.0;
            }
            println!("{columns:<24} {on_train:.0} % of the training rows right");
            chart = chart.bar(format!("cloze-tiny: {columns}"), right);
        }
        show!(chart);
    }

    // %% [markdown]
    // cloze-tiny is as good without the question as with it: 56 % both times, the mean of three seeds.
    // Against 50 % alone, 56 % would have looked like progress; the other baselines show that it is
    // none. Training works, because the model gets 93 % of its training pairs right. But its two narrow
    // layers memorise them, and don't learn to compare one text with the other.

    // %% [markdown]
    // ### A larger model
    //
    // `cloze-small`, which comes with the lessons, has 4 layers, 192 numbers wide. all-MiniLM-L6-v2 has
    // 6 layers, 384 numbers wide, and was pre-trained on far more text. The cell trains cloze-small, which
    // takes some seconds. Set `DOWNLOAD` to `true`, and the crate fetches MiniLM from the Hugging Face
    // Hub, 91 MB, once; each of the two runs then takes about a minute on two cores.

    // %%
    const DOWNLOAD: bool = false;
    let larger: Pretrained = finetuning::larger_model(DOWNLOAD)?;
    println!("{}", larger.note);
    let rate: f64 = if larger.fetched { 1e-4 } else { 5e-4 };
    for columns in COLUMNS {
        let split = Split::read(columns, &pairs, &larger.wordpiece, limit)?;
        let mut engine = fine_tune(&larger.folder, 2, &split.train, &recipe_of(1, 8, rate))?;
        println!(
            "{columns}: {:.0} % right",
            measure(&mut engine, &split.held_out)?.1
        );
    }

    // %% [markdown]
    // cloze-small gets 73 % with the question and 65 % without it, MiniLM 85 % and 68 %. The second
    // figures are not far below the limit of 75 %: a better model finds more artefacts than counted words
    // do, so the baseline must be as strong as the model. MiniLM's first figure is above that limit, so
    // MiniLM compares the two texts. That of cloze-small is not, and 8 points on 100 rows are little more
    // than chance gives: with the question it probably does better, but this is no proof. The head, the
    // loss, the loop and the 300 rows are those of cloze-tiny; the pre-trained model makes the difference.
    //
    // After 3 epochs in place of 8, MiniLM is at 70 % and 65 %. With 50 % as its only baseline, 70 %
    // would look like a model that compares. (On 100 rows each figure is good to about 5 points.)

    // %% [markdown]
    // ## Step 3: a number in place of a class
    //
    // STS-B asks how similar two sentences are, from 0 to 5. The head has one output $z$, and for
    // the true number $y$ the loss is the squared error $(z - y)^2$ with the gradient $2(z - y)$.
    // The metric is how well answers and truths rise and fall together. Pearson's correlation of two
    // lists $x$ and $y$, with the means $\bar x$ and $\bar y$, is
    //
    // $$ r = \frac{\sum_i (x_i - \bar x)(y_i - \bar y)}{\sqrt{\sum_i (x_i - \bar x)^2 \, \sum_i (y_i - \bar y)^2}} . $$
    //
    // **Exercise 13.2.** Write it. For a list that is constant it would be 0 / 0; return 0 then.

    // %%
    fn pearson(x: &[f64], y: &[f64]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("13.2");
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (mean_x, mean_y) = (mean(x), mean(y));
        let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
        for (a, b) in x.iter().zip(y) {
            xy += (a - mean_x) * (b - mean_y);
            xx += (a - mean_x).powi(2);
            yy += (b - mean_y).powi(2);
        }
        let below = (xx * yy).sqrt();
        if below > 0.0 { xy / below } else { 0.0 }
        // END SOLUTION
    }

    // %%
    check!("13.2", |judge| {
        let x = [1.0, 2.0, 3.0, 5.0];
        judge.close(
            "pearson of a list with itself",
            pearson(&x, &x),
            1.0,
            1e-9,
            "Above 1: that is a covariance; divide by the root of both lists' own sums of squares. 0.114: the \
             root is missing. 0.25 or 4: take the mean of all three sums or of none.",
        );
        judge.close(
            "pearson of x and 10 - 3x",
            pearson(&x, &x.map(|v| 10.0 - 3.0 * v)),
            -1.0,
            1e-9,
            "A straight line downwards: scale and shift change nothing but the sign. -0.1175: subtract the means first.",
        );
        judge.close(
            "pearson(&[1, 2, 3, 5], &[2, 1, 4, 3])",
            pearson(&x, &[2.0, 1.0, 4.0, 3.0]),
            0.529_150,
            1e-5,
            "Sums of the centred products: 3.5 in the numerator; 8.75 and 5 under the root.",
        );
        judge.close(
            "pearson with a list that is constant",
            pearson(&x, &[7.0; 4]),
            0.0,
            1e-9,
            "NaN is 0 / 0. Return 0 for a constant list.",
        );
        let y: Vec<f64> = x.iter().map(|v| v * v - 2.0).collect();
        judge.close(
            "pearson of x and x² - 2",
            pearson(&x, &y),
            eval::pearson(&x, &y),
            1e-12,
            "The crate's `eval::pearson` returns this.",
        );
    });

    // %% [markdown]
    // Spearman's correlation, which GLUE reports beside it, is Pearson's of the **ranks**: only the
    // order counts.
    //
    // **Exercise 13.3.** Return the rank of each number, 1 for the smallest; equal numbers share the
    // mean of the ranks that they occupy together. No sorting is needed.

    // %%
    fn ranks(values: &[f64]) -> Vec<f64> {
        // BEGIN SOLUTION
        cloze::solution!("13.3");
        values
            .iter()
            .map(|value| {
                let below = values.iter().filter(|other| *other < value).count();
                let same = values.iter().filter(|other| *other == value).count();
                below as f64 + (same as f64 + 1.0) / 2.0
            })
            .collect()
        // END SOLUTION
    }

    // %%
    check!("13.3", |judge| {
        judge.same_list(
            "ranks(&[0.3, 10.0, -5.0])",
            &ranks(&[0.3, 10.0, -5.0]),
            &[2.0, 3.0, 1.0],
            "The ranks are in the order of the list: 0.3 is second, 10 third, -5 first.",
        );
        judge.same_list(
            "ranks(&[4.0, 1.0, 4.0, 4.0])",
            &ranks(&[4.0, 1.0, 4.0, 4.0]),
            &[3.0, 1.0, 3.0, 3.0],
            "Three 4s occupy ranks 2, 3 and 4; each gets their mean, 3.",
        );
        judge.same_list(
            "ranks(&[2.0, 2.0])",
            &ranks(&[2.0, 2.0]),
            &[1.5, 1.5],
            "Ranks 1 and 2, so 1.5 each. Integer division loses the half: `as f64` first.",
        );
        let x = [0.5, 2.0, 2.0, 4.75, 3.0, 1.0, 0.0, 2.0];
        let y = [1.0, 2.5, 2.0, 5.0, 2.0, 0.0, 0.5, 3.0];
        judge.close(
            "Spearman's correlation by your ranks",
            eval::pearson(&ranks(&x), &ranks(&y)),
            eval::spearman(&x, &y),
            1e-12,
            "The crate's `eval::spearman` returns this, as SciPy does.",
        );
    });

    // %% [markdown]
    // We have no small set with scores, so here is an artificial task: how many words does a message
    // of lesson 12 have (in tens, so that the numbers are near 1)? Only the targets and the number of
    // outputs change.

    // %%
    let spam: PathBuf = data::folder("spam")?;
    let messages: Split = Split::read("text,label", &spam, &tokenizer, limit)?;
    let train: Examples = finetuning::word_counts(&spam.join("train.tsv"), &messages.train)?;
    let held_out: Examples = finetuning::word_counts(&spam.join("dev.tsv"), &messages.held_out)?;
    let mut engine: CpuEngine = fine_tune(&folder, 1, &train, &recipe_of(1, 5, 1e-3))?;
    let logits = inference::logits(&mut engine, &held_out.sequences)?;

    // %%
    if solved!("13.2") && solved!("13.3") {
        let wide = |list: &[f32]| -> Vec<f64> { list.iter().map(|&v| v.into()).collect() };
        let (said, truth) = match &held_out.targets {
            Targets::Values(truth) => (wide(logits.values()), wide(truth)),
            _ => (Vec::new(), Vec::new()),
        };
        let rho = pearson(&ranks(&said), &ranks(&truth));
        println!("Pearson {:.3}, Spearman {rho:.3}", pearson(&said, &truth));
        let points: Vec<(f64, f64)> = truth.into_iter().zip(said).collect();
        show!(
            LineChart::new("How long is the message?")
                .axes("words, in tens", "the model's answer")
                .points("held-out messages", &points)
                .line("truth", &[(0.5, 0.5), (4.0, 4.0)])
        );
    }

    // %% [markdown]
    // ## What goes wrong
    //
    // Two messages of the crate, for columns that the file does not have, and for a list of columns in
    // which the label was forgotten (the last column is the label):
    //
    // ```text
    // train.tsv:1: there is no column sentence1; there are index, question, sentence, label
    // dev.tsv:2: unknown label "In summer the sun does not set in the town of Kall for fifty…"; known are …
    // ```
    //
    // **What no message reports.**
    //
    // - *Two texts in another order*: a model that was trained on `question,sentence` accepts
    //   `sentence,question`, in which each segment means the opposite of what it learned.
    // - *Pairs that lose their end*: texts longer than `max_len` are cut at the end, the longer one of
    //   a pair first. If what matters is there, the model never sees it.
    // - *A correlation near 0*: the model may give nearly the same number to every text. Look at the
    //   points before you blame the metric.
    //
    // ## Expected numbers
    //
    // - held-out rows of `answerable`: 59 % by words in common, 57 % by the words of the sentence,
    //   56 % by cloze-tiny with and without the question, 73 % and 65 % by cloze-small, 85 % and 68 % by
    //   MiniLM;
    // - training rows of `answerable`: 75 % by the words of the sentence and by cloze-tiny without the
    //   question, 93 % by cloze-tiny with it;
    // - the number of words: Pearson 0.931, Spearman 0.925.
    //
    // Processors round differently, so your figures may differ by some points. The paper's figures for
    // BERT-base (table 1, test sets): SST-2 accuracy 93.5 %, QNLI 90.5 %, MRPC F1 88.9, CoLA MCC 0.521,
    // STS-B Spearman 0.858, RTE 66.4 %.
    //
    // ## On real data
    //
    // `cloze data get mrpc`, then `cloze finetune mrpc --data data/MRPC --model DIR --out mrpc` (any of
    // the nine). For a baseline on pairs of your own leave one column out:
    //
    // ```text
    // cloze finetune custom --columns sentence,label --data lessons/data/answerable \
    //     --model cloze-tiny --out alone --batch 16 --lr 1e-3 --epochs 5
    // ```
    //
    // ## Open questions
    //
    // 1. The questions of `answerable` say nothing about the label, because each stands in two rows.
    //    How would you write rows in which the sentences say nothing either?
    // 2. A model answers with exactly twice the true number. What do Pearson, Spearman and the squared
    //    error say, and which of them would you report for a task of your own?
    //
    // The crate's source of this part: GLUE's files in `src/data/glue.rs`, your own data in
    // `src/tasks/sentences.rs`, the losses in `src/engine/objective.rs`, the metrics in
    // `src/eval/metrics.rs`. Next: [lesson 14](14_questions.rs), in which the model points at its
    // answer.

    // %% [end]
    cloze::lessons::finish("13_pairs")
}
