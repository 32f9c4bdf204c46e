// ---
// title = "SWAG: choose what happens next"
// summary = "Turn a question with four endings into four inputs and one vector into a choice, find out whether a model is better than guessing, and why a small one is not."
// minutes = 45
// seconds = 50
// needs = ["08"]
//
// [[exercise]]
// id = "10.1"
// title = "Four inputs from one question"
// hints = [
//     "Each ending makes a pair of its own: segment A is the context, segment B the start and the ending with a blank between: `format!(\"{} {ending}\", question.start)`.",
//     "`tokenizer.encode_pair(a, b)` gives (encoding, segments) with [CLS] and both [SEP] in place; the ids are `encoding.ids`.",
//     "Go over `question.endings.iter()`, map each to `(encoding.ids, segments)`, collect.",
// ]
//
// [[exercise]]
// id = "10.2"
// title = "From one vector to a choice"
// hints = [
//     "`vector.forward(pooled)` gives one number for each input: (4 Q, 1).",
//     "The inputs of one question stand one behind the other, so the numbers only need another shape: (Q, 4). `reshape_like(&(questions, Const::<4>))`.",
//     "Q is a quarter of the rows: `let questions = pooled.shape().0 / 4;` before `pooled` is moved.",
// ]
//
// [[exercise]]
// id = "10.3"
// title = "A baseline that only looks at words"
// hints = [
//     "Cut both texts into words, in lower case and without punctuation: `text.to_lowercase()`, `split(|c: char| !c.is_alphanumeric())`, and leave out the empty ones.",
//     "Collect the context's words into a `HashSet<String>`, or a `Vec`, and count the ending's words that are in it.",
//     "The score is that count divided by the number of the ending's words; 0 where there is none.",
// ]
//
// [[exercise]]
// id = "10.4"
// title = "Could that be luck?"
// hints = [
//     "The probability of exactly k right is C(n, k) · pᵏ · (1-p)ⁿ⁻ᵏ. Add it up for k from `right` to `rows`.",
//     "Begin with k = 0, where it is (1-p)ⁿ, and go on by factors: the next term is the one before times (n-k)/(k+1) · p/(1-p).",
//     "With 20,000 rows (1-p)ⁿ is smaller than any f64, and 0 times something stays 0. Keep the term's *logarithm*, add the logarithms of the factors, and take `exp` only when you add up.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 10 · SWAG: choose what happens next
    //
    // *The pilot has been told that the runway is free. She …* Four endings follow, and one makes
    // sense. To choose it a model needs some idea of how the world goes on. In this lesson you build
    // the head for it, which is a single vector, and train it. The small model will hardly get beyond guessing.
    // So this lesson is also about a skill that every project needs: to find out *whether* a number
    // is better than luck, and *why* it is not.
    //
    // *About 45 minutes; the longest cell trains for some fifteen seconds. You need
    // [lesson 08](08_glue.rs).*

    // %%
    use std::path::{Path, PathBuf};

    use cloze::data::bad::BadRows;
    use cloze::data::choices::{CHOICES, Question, read_swag};
    use cloze::data::sequences::BatchSize;
    use cloze::data::{Examples, Sequences, Targets};
    use cloze::engine::inference;
    use cloze::engine::objective;
    use cloze::eval::{best, softmax};
    use cloze::lessons::data;
    use cloze::model::Part;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::tasks::{self, Labels, Options, Reading, Role};
    use cloze::train::Finetuner;
    use cloze::train::finetune::{Settings as Recipe, TaskReport, TaskStep};
    use cloze::view::Flow;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // ## Where we are going

    // %%
    show!(
        Flow::new("Multiple choice", "Q questions with 4 endings each")
            .step("four pairs a question", "(4 Q) texts: context, ending")
            .step("encoder and pooler", "(4 Q, H)")
            .step("one vector", "(4 Q, 1): how well it fits")
            .step("reshape", "(Q, 4)")
            .step(
                "softmax over the four",
                "(Q, 4): a probability for each ending"
            )
    );

    // %%
    let endings: PathBuf = data::folder("endings")?;
    let train: Vec<Question> = read_swag(&endings.join("train.csv"), &mut BadRows::refused())?;
    let held_out: Vec<Question> = read_swag(&endings.join("val.csv"), &mut BadRows::refused())?;
    println!(
        "{} questions to train on, {} held out",
        train.len(),
        held_out.len()
    );
    for question in held_out.iter().take(3) {
        println!("\n{} {} …", question.context, question.start);
        for (number, ending) in (0u32..).zip(&question.endings) {
            let mark = if question.right == Some(number) {
                "->"
            } else {
                "  "
            };
            println!("  {mark} {ending}");
        }
    }

    // %% [markdown]
    // The wrong endings are right ones of other questions. Every ending of a file is right once and
    // wrong three times, so an ending alone says nothing: the answer is in how it *fits*.
    //
    // ## The idea
    //
    // The only new parameter is a vector $w \in \mathbb{R}^H$. Each ending $k$ goes through BERT
    // together with its context, gives the pooled vector $c_k$, and its score is the scalar product:
    //
    // $$ z_k = w \cdot c_k + b, \qquad p_k = \frac{e^{z_k}}{\sum_{l=1}^{4} e^{z_l}}, \qquad L = -\ln p_{\text{right}} $$
    //
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 4.4; data: [Zellers et al.
    // 2018](https://arxiv.org/abs/1808.05326)). Compare this with lesson 08. There, four classes
    // would have four vectors, and one text was asked for its class. Here, one vector judges four texts: the
    // places 0 to 3 mean nothing, and a question with seven endings would need no other model.
    //
    // ## Step 1: four inputs
    //
    // **Exercise 10.1.** Give token ids and segment ids of the four inputs of a question. `start` is
    // what all endings begin with (*She*); it belongs to segment B.

    // %%
    fn inputs(tokenizer: &WordPiece, question: &Question) -> Vec<(Vec<u32>, Vec<u32>)> {
        // BEGIN SOLUTION
        cloze::solution!("10.1");
        let endings = question.endings.iter();
        let pairs = endings.map(|ending| {
            let second = format!("{} {ending}", question.start);
            let (encoding, segments) = tokenizer.encode_pair(&question.context, &second);
            (encoding.ids, segments)
        });
        pairs.collect()
        // END SOLUTION
    }

    // %%
    let folder: PathBuf = data::folder(data::MODEL)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;

    /// Questions as the crate feeds them: four sequences an example, and which of them is right.
    fn examples(questions: &[Question], tokenizer: &WordPiece) -> cloze::Result<Examples> {
        let pairs: Vec<(String, String)> = questions.iter().flat_map(Question::pairs).collect();
        let texts: Vec<(&str, Option<&str>)> = pairs
            .iter()
            .map(|(a, b)| (a.as_str(), Some(b.as_str())))
            .collect();
        let sequences = Sequences::tokenise(tokenizer, &texts, 80)?;
        Ok(Examples {
            sequences: sequences.with_choices(CHOICES),
            targets: Targets::Choices(questions.iter().filter_map(|q| q.right).collect()),
        })
    }

    let held_examples: Examples = examples(&held_out, &tokenizer)?;

    check!("10.1", |judge| {
        let first = inputs(&tokenizer, &held_out[0]);
        judge.equal(
            "the number of inputs of a question",
            first.len(),
            4,
            "One for each ending.",
        );
        for (number, question) in held_out.iter().enumerate() {
            for (choice, (ids, segments)) in inputs(&tokenizer, question).iter().enumerate() {
                let batch = held_examples.sequences.batch(&[number]);
                let range = batch.rows_of(choice);
                judge.equal(
                    &format!("input {choice} of question {number}, in words,"),
                    tokenizer.decode(ids),
                    tokenizer.decode(&batch.ids[range.clone()]),
                    "Context, then start and ending with a blank between. The context stands in \
                     all four.",
                );
                judge.same_list(
                    &format!("the ids of input {choice} of question {number}"),
                    ids,
                    &batch.ids[range.clone()],
                    "[CLS] context [SEP] start ending [SEP]: the crate's Sequences has these.",
                );
                judge.same_list(
                    &format!("the segments of input {choice} of question {number}"),
                    segments,
                    &batch.segments[range],
                    "0 up to the first [SEP], 1 behind it. Start and ending are one segment.",
                );
            }
        }
    });

    // %% [markdown]
    // ## Step 2: one vector
    //
    // **Exercise 10.2.** From the pooled vectors of all inputs to (Q, 4) scores. `Linear<H, 1>` is
    // the vector $w$ and its bias.

    // %%
    const H: usize = 128;
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    fn choice_scores(pooled: Rows<H>, vector: &Linear<H, 1, f32, Cpu>) -> Rows<4> {
        // BEGIN SOLUTION
        cloze::solution!("10.2");
        let questions = pooled.shape().0 / 4;
        let scores: Rows<1> = vector.forward(pooled);
        scores.reshape_like(&(questions, Const::<4>))
        // END SOLUTION
    }

    // %%
    let model: Model = Model::read(&folder, &Part::MultipleChoice.with_encoder(), Some(1))?;
    let bert: Bert<H, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &Cpu::default())?;
    let vector: Linear<H, 1, f32, Cpu> = Linear {
        weight: Cpu::default().tensor_from_vec(
            model.parameter("classifier.weight")?.to_vec(),
            (Const::<1>, Const::<H>),
        ),
        bias: Cpu::default()
            .tensor_from_vec(model.parameter("classifier.bias")?.to_vec(), (Const::<1>,)),
    };

    // Three questions: twelve sequences.
    let three: Packed = held_examples.sequences.batch(&[0, 1, 2]);
    let hidden: Rows<H> = bert.encode::<NoneTape>(&three, None, &mut |_, _| {});
    let pooled: Rows<H> = bert.pool(hidden, &three).ok_or("the model has no pooler")?;
    println!("pooled {:?}", pooled.shape().concrete());

    // %%
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let logits: Vec<f32> = engine.task_logits(&three)?;

    check!("10.2", |judge| {
        let yours = choice_scores(pooled.clone(), &vector);
        judge.equal(
            "the shape for twelve inputs",
            yours.shape().concrete(),
            [3, 4],
            "Twelve inputs are three questions of four.",
        );
        let theirs = Cpu::default().tensor_from_vec(logits.clone(), (4, 3));
        let turned = theirs.permute::<_, Axes2<1, 0>>().as_vec();
        let crossed = turned
            .iter()
            .zip(yours.as_vec())
            .all(|(a, b)| (a - b).abs() < 1e-5);
        judge.holds(
            "a row holds the four endings of one question",
            !crossed,
            "Your rows hold endings of several questions: the inputs of one question stand one \
             behind the other, so (Q, 4) is only another reading of the same numbers.",
        );
        judge.close_tensor(
            "choice_scores of three questions",
            &yours,
            &Cpu::default().tensor_from_vec(logits.clone(), (3, Const)),
            1e-4,
            "The crate's engine gives these scores for the same twelve inputs.",
        );
        let mut shifted = vector.clone();
        shifted.bias = shifted.bias + 5.0;
        let moved = choice_scores(pooled.clone(), &shifted).as_vec();
        let (a, b) = (softmax(&yours.as_vec()[..4]), softmax(&moved[..4]));
        judge.close(
            "the first probability after 5 was added to the bias",
            b[0],
            a[0],
            1e-5,
            "Softmax looks at differences only, so the bias changes nothing. Did you add it to \
             one score alone?",
        );
    });

    // %% [markdown]
    // The last check shows something odd: the bias $b$ is added to all four scores and cancels in
    // the softmax. It gets no gradient either, for the gradients $p_k - [k = \text{right}]$ of the
    // four add up to 0. The paper has no bias here; transformers and this crate keep one so that
    // files fit.
    //
    // The loss needs nothing new: it is lesson 08's cross-entropy over four logits.

    // %%
    let right: Vec<u32> = held_out.iter().filter_map(|q| q.right).collect();
    let mut all: Vec<f32> = inference::logits(&mut engine, &held_examples.sequences)?
        .values()
        .to_vec();
    let untrained: f64 =
        objective::cross_entropy(&mut all, CHOICES, &right, 1.0).loss / right.len() as f64;
    println!(
        "loss before training {:.3}, ln 4 = {:.3}",
        untrained,
        4f64.ln()
    );

    // %% [markdown]
    // ## Step 3: a baseline
    //
    // Before you train anything, ask what needs no training. Perhaps the right ending repeats words
    // of its context?
    //
    // **Exercise 10.3.** Score an ending by the share of its words that stand in the context too. In lower
    // case a word is a run of letters and digits (`char::is_alphanumeric`; so *children's* is two), and a
    // word that comes twice counts twice. An ending without words scores 0.

    // %%
    fn overlap(context: &str, ending: &str) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("10.3");
        let words = |text: &str| -> Vec<String> {
            let text = text.to_lowercase();
            let words = text.split(|c: char| !c.is_alphanumeric());
            words
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let (known, asked) = (words(context), words(ending));
        let common = asked.iter().filter(|word| known.contains(word)).count();
        match asked.len() {
            0 => 0.0,
            count => common as f64 / count as f64,
        }
        // END SOLUTION
    }

    // %%
    /// How many questions a score answers right: the first ending with the largest score counts.
    fn right_by(questions: &[Question], score: &dyn Fn(&Question, &str) -> f64) -> usize {
        let hit = |question: &&Question| {
            let scores: Vec<f32> = question
                .endings
                .iter()
                .map(|e| score(question, e) as f32)
                .collect();
            question.right == Some(best(&scores))
        };
        questions.iter().filter(hit).count()
    }

    check!("10.3", |judge| {
        judge.close(
            "overlap(\"The pilot waves.\", \"waves to the crowd.\")",
            overlap("The pilot waves.", "waves to the crowd."),
            0.5,
            1e-9,
            "`waves` and `the` of four words. Case and punctuation don't count: The is the, and \
             `waves.` is waves.",
        );
        judge.close(
            "overlap(\"a b c d\", \"a\")",
            overlap("a b c d", "a"),
            1.0,
            1e-9,
            "Divide by the words of the *ending*, not of the context.",
        );
        judge.close(
            "overlap(\"the theatre\", \"the heat\")",
            overlap("the theatre", "the heat"),
            0.5,
            1e-9,
            "Whole words: `heat` stands inside of `theatre`, but it is another word.",
        );
        judge.close(
            "overlap(\"a\", \"\")",
            overlap("a", ""),
            0.0,
            1e-9,
            "No word: 0, not NaN.",
        );
        judge.close(
            "overlap(\"Elena's phone\", \"Elena waves\")",
            overlap("Elena's phone", "Elena waves"),
            0.5,
            1e-9,
            "`Elena's` is two words, `elena` and `s`: whatever is neither a letter nor a digit parts words.",
        );
        judge.equal(
            "questions of the 80 that it answers right",
            right_by(&held_out, &|q, ending| overlap(&q.context, ending)),
            16,
            "Measured with the lesson's solution. Is every word counted, also the second time?",
        );
    });

    // %%
    if solved!("10.3") {
        for (name, questions) in [("training", &train), ("held-out", &held_out)] {
            let right = right_by(questions, &|q, ending| overlap(&q.context, ending));
            let percent = 100.0 * right as f64 / questions.len() as f64;
            println!(
                "{name}: {right} of {} right, {percent:.1} %",
                questions.len()
            );
        }
    }

    // %% [markdown]
    // ## Step 4: could that be luck?
    //
    // Counting words is right in 20 % of the cases, less than guessing! (Most endings share only `the`
    // or nothing with their context, so the first ending of several equal ones is taken.) But is 20 %
    // really less than 25? A guesser is right in a quarter of the cases *on average*; on 80 questions it
    // may well get 16 or 25. The probability that guessing gets **at least** $r$ of $n$ right is
    //
    // $$ P(X \ge r) = \sum_{k=r}^{n} \binom{n}{k} p^k (1-p)^{n-k}, \qquad p = \tfrac14 . $$
    //
    // A result for which this is not small proves nothing.
    //
    // **Exercise 10.4.** Compute it. It should work for SWAG's 20,006 validation rows too.

    // %%
    fn at_least(right: usize, rows: usize, chance: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("10.4");
        let odds = (chance / (1.0 - chance)).ln();
        let mut term = rows as f64 * (1.0 - chance).ln();
        let mut sum = 0.0;
        for k in 0..=rows {
            if k >= right {
                sum += term.exp();
            }
            term += ((rows - k) as f64 / (k + 1) as f64).ln() + odds;
        }
        sum
        // END SOLUTION
    }

    // %%
    check!("10.4", |judge| {
        judge.close(
            "at_least(0, 7, 0.25)",
            at_least(0, 7, 0.25),
            1.0,
            1e-9,
            "Everybody gets at least 0 right.",
        );
        judge.close(
            "at_least(2, 2, 0.25)",
            at_least(2, 2, 0.25),
            0.0625,
            1e-9,
            "A quarter of a quarter.",
        );
        judge.close(
            "at_least(1, 2, 0.25)",
            at_least(1, 2, 0.25),
            0.4375,
            1e-9,
            "1 - 0.75². 0.375 is the probability of exactly one: add the larger ones.",
        );
        // All 4⁶ ways to answer six questions, of which those with at least three zeros count.
        let ways = (0..4096u32).filter(|w| (0..6).filter(|i| (w >> (2 * i)) & 3 == 0).count() >= 3);
        judge.close(
            "at_least(3, 6, 0.25)",
            at_least(3, 6, 0.25),
            ways.count() as f64 / 4096.0,
            1e-9,
            "Counted over all 4096 ways to answer six questions.",
        );
        judge.close(
            "at_least(5_100, 20_006, 0.25)",
            at_least(5_100, 20_006, 0.25),
            0.055_022,
            1e-4,
            "0 or NaN: 0.75 to the power of 20,006 is smaller than any f64. Add logarithms in \
             place of multiplying.",
        );
    });

    // %%
    if solved!("10.4") {
        let tail: Vec<(f64, f64)> = (10..=40)
            .map(|r| (100.0 * r as f64 / 80.0, at_least(r, 80, 0.25)))
            .collect();
        show!(
            LineChart::new("How often a guesser gets so much right, of 80 questions")
                .axes("accuracy, %", "probability of at least that")
                .line("80 questions", &tail)
                .reference("1 in 20", 0.05)
        );
        for right in [20, 24, 27, 30] {
            println!(
                "at least {right} of 80 ({:.1} %): probability {:.3}",
                100.0 * f64::from(right) / 80.0,
                at_least(right as usize, 80, 0.25)
            );
        }
    }

    // %% [markdown]
    // So on 80 questions less than about 34 % proves nothing, and one in twenty guessers gets even
    // that. Run enough seeds, and one of them will.
    //
    // ## Step 5: train, and doubt
    //
    // The paper's recipe for SWAG: 3 epochs, batches of 16, a rate of 2e-5. For the small model, as
    // in lesson 08, 1e-3, and six epochs. Two runs first: from the pre-trained encoder and from random
    // numbers. Beside the held-out accuracy we look at that on the training questions.

    // %%
    /// Measures after each epoch on several sets of questions.
    struct Watch<'a> {
        sets: Vec<(&'static str, &'a Examples)>,
        /// Accuracy in percent by set, with the epoch.
        curves: Vec<Vec<(f64, f64)>>,
    }

    /// How many questions are answered right.
    fn right_answers(engine: &mut dyn TaskEngine, data: &Examples) -> cloze::Result<usize> {
        let Targets::Choices(right) = &data.targets else {
            return Err(cloze::Error::Failed(
                "these questions have no answers".into(),
            ));
        };
        let logits = inference::logits(engine, &data.sequences)?;
        Ok((0..data.len())
            .filter(|&i| best(logits.of(i)) == right[i])
            .count())
    }

    impl TaskReport for Watch<'_> {
        fn step(&mut self, _: &TaskStep) {}
        fn skipped(&mut self, _: u64, _: &str) {}
        fn epoch(&mut self, epoch: u32, _: u64, engine: &mut dyn TaskEngine) -> cloze::Result<()> {
            for ((_, data), curve) in self.sets.iter().zip(&mut self.curves) {
                let right = right_answers(engine, data)?;
                curve.push((f64::from(epoch), 100.0 * right as f64 / data.len() as f64));
            }
            Ok(())
        }
    }

    /// A run over `train`: the accuracy on `train` and on `held_out` after each epoch, and the
    /// parameters at its end.
    type Run = (Vec<(f64, f64)>, Vec<(f64, f64)>, Vec<f32>);

    fn run(model: &Model, train: &Examples, held_out: &Examples, seed: u64) -> cloze::Result<Run> {
        let recipe = Recipe {
            epochs: 6,
            batch: BatchSize::Examples(16),
            learning_rate: 1e-3,
            seed,
            ..Recipe::default()
        };
        let engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
        let mut trainer = Finetuner::new(Box::new(engine), train, recipe)?;
        let mut watch = Watch {
            sets: vec![("train", train), ("held out", held_out)],
            curves: vec![Vec::new(), Vec::new()],
        };
        trainer.run(None, &mut watch, &Stop::default())?;
        let held = watch.curves.pop().unwrap_or_default();
        let seen = watch.curves.pop().unwrap_or_default();
        Ok((seen, held, trainer.engine().parameters()?))
    }

    /// The last point of a curve.
    fn end(curve: &[(f64, f64)]) -> f64 {
        curve.last().map_or(0.0, |point| point.1)
    }

    // All questions; a few where only the way through the lesson is tested.
    let kept: usize = train.len().min(cloze::lessons::steps(1_000) as usize);
    let train_examples: Examples = examples(&train[..kept], &tokenizer)?;
    /// The pre-trained model, or one of random numbers, with a new head.
    fn start(folder: &Path, pretrained: bool, seed: u64) -> cloze::Result<Model> {
        let mut model = Model::read(folder, &Part::MultipleChoice.with_encoder(), Some(seed))?;
        if !pretrained {
            model.values = model.layout.initialise(seed);
        }
        Ok(model)
    }

    let real: Run = run(
        &start(&folder, true, 1)?,
        &train_examples,
        &held_examples,
        1,
    )?;
    let random: Run = run(
        &start(&folder, false, 1)?,
        &train_examples,
        &held_examples,
        1,
    )?;
    show!(
        LineChart::new("Choosing endings")
            .axes("epoch", "accuracy, %")
            .line("pre-trained, training questions", &real.0)
            .line("pre-trained, held out", &real.1)
            .line("random, training questions", &random.0)
            .line("random, held out", &random.1)
            .reference("guessing", 25.0)
    );

    /// Tells a run's end, and how often a guesser gets there.
    fn tell(name: &str, run: &Run) {
        let right = (end(&run.1) * 0.8).round() as usize;
        println!(
            "{name}: {:.1} % of the training questions, {right} of 80 held-out ones; a guesser gets \
             as many with probability {:.2}",
            end(&run.0),
            at_least(right, 80, 0.25)
        );
    }

    if solved!("10.4") {
        tell("pre-trained, seed 1", &real);
        tell("random, seed 1", &random);
    }

    // %% [markdown]
    // Both learn the training questions by heart, most of them. Of the held-out questions the random
    // one gets a quarter, as expected. But look at the pre-trained one: 27 of 80 where this was
    // written, and only one guesser in twenty gets so many. Is that it? Before you write it into a
    // paper: you looked at two runs, so a one-in-twenty event was to be expected one time in ten. Make
    // more.

    // %%
    if solved!("10.4") {
        for seed in 2..=4 {
            let again = run(
                &start(&folder, true, seed)?,
                &train_examples,
                &held_examples,
                seed,
            )?;
            tell(&format!("pre-trained, seed {seed}"), &again);
        }
    }

    // %% [markdown]
    // 27, 29, 21 and 21 of 80 where this was written: 31 % on average. Is that better than 25? The four
    // runs answer the *same* 80 questions and come from the same encoder, so they are not 320
    // independent tries, and the honest answer is: perhaps a little, and these questions can't tell. What
    // is certain is that little of what it learned carries over: two thirds and more of the training
    // questions by heart, and of new ones about as many as a guesser.
    //
    // ## Step 6: why?
    //
    // There are three suspects: a mistake in the code, too little data, a model that can't. Guessing
    // about them is no better than guessing endings. Make tasks for which you *know* what should
    // come out, and change one thing at a time:
    //
    // - **A mark.** The right ending gets the word *indeed* at its end. Whoever can't learn that in a
    //   few epochs has a mistake in the code.
    // - **An echo.** The right ending is the context's own sentence, the wrong ones are sentences of
    //   other contexts. No word gives the answer away; the model must *compare* segment B with
    //   segment A, in the simplest way that there is.

    // %%
    /// What is done to questions.
    type Change = fn(&[Question]) -> Vec<Question>;

    fn marked(questions: &[Question]) -> Vec<Question> {
        let mut all = questions.to_vec();
        for question in &mut all {
            if let Some(right) = question.right {
                let ending = &mut question.endings[right as usize];
                *ending = format!("{} indeed.", ending.trim_end_matches('.'));
            }
        }
        all
    }

    fn echoed(questions: &[Question]) -> Vec<Question> {
        let mut all = questions.to_vec();
        for (number, question) in all.iter_mut().enumerate() {
            for (place, ending) in question.endings.iter_mut().enumerate() {
                // The context's own sentence, or that of a question some way off.
                let other = match question.right == Some(place as u32) {
                    true => number,
                    false => (number + 7 * (place + 1)) % questions.len(),
                };
                *ending = questions[other].context.clone();
            }
        }
        all
    }

    let mut chart: LineChart = LineChart::new("Held-out accuracy on tasks of known difficulty")
        .axes("epoch", "accuracy, %")
        .reference("guessing", 25.0)
        .line("the real endings", &real.1);
    let kinds: [(&'static str, bool, Change); 3] = [
        ("a mark", true, marked),
        ("an echo", true, echoed),
        ("an echo, from random numbers", false, echoed),
    ];
    for (name, pretrained, changed) in kinds {
        let seen = examples(&changed(&train[..kept]), &tokenizer)?;
        let unseen = examples(&changed(&held_out), &tokenizer)?;
        let model = start(&folder, pretrained, 1)?;
        let (on_train, on_held_out, _) = run(&model, &seen, &unseen, 1)?;
        println!(
            "{name}: {:.1} % of the training questions, {:.1} % held out",
            end(&on_train),
            end(&on_held_out)
        );
        chart = chart.line(name, &on_held_out);
    }
    show!(chart);

    // %% [markdown]
    // The mark is learned within an epoch: inputs, labels, head and loop are right. The echo is learned
    // too, nearly without a mistake on questions never seen. So 240 rows are enough to learn a rule
    // from, and the model *can* compare one segment with the other. From random numbers it does that
    // far worse: comparing is something that it brings along from pre-training.
    //
    // What is left is the third suspect, and by now you know more of it. The model can see whether two
    // segments speak of the same words. It doesn't know that a runway goes with a throttle. Such
    // knowledge is in the weights after pre-training or it is nowhere, and 1.5 million parameters that
    // have read 23 million tokens hold little of it. 240 rows can't teach it: each of them tells of
    // another corner of the world.
    //
    // ## The whole, as the crate has it
    //
    // `tasks::open("swag", …)` reads the official file, makes the four inputs, and measures. The same
    // model must get the same accuracy as in your chart:

    // %%
    /// What `cloze evaluate swag` would say of a file.
    fn evaluated(
        engine: &mut CpuEngine,
        file: &Path,
        tokenizer: &WordPiece,
    ) -> cloze::Result<cloze::eval::Scores> {
        let task = tasks::open("swag", &Options::default(), Labels::Training(file))?;
        let reading = Reading {
            wordpiece: tokenizer,
            max_len: 80,
            limit: None,
            bad: &mut BadRows::refused(),
            notes: &mut Vec::new(),
        };
        let dataset = task.read(file, Role::Dev, reading)?;
        tasks::measure(engine, dataset.as_ref())
    }

    engine.set_parameters(&real.2)?;
    let scores: cloze::eval::Scores = evaluated(&mut engine, &endings.join("val.csv"), &tokenizer)?;
    println!(
        "the crate's task: accuracy {}; the chart's last point: {:.4}",
        scores["accuracy"],
        end(&real.1) / 100.0
    );

    // %% [markdown]
    // ## What goes wrong
    //
    // **The reshape forgotten.** `let scores: Rows<4> = vector.forward(pooled);`:
    //
    // ```text
    // error[E0308]: mismatched types
    //   |     let scores: Rows<4> = vector.forward(pooled);
    //   |                 -------   ^^^^^^^^^^^^^^^^^^^^^^ expected `4`, found `1`
    //   |                 |
    //   |                 expected due to this
    //   = note: expected struct `Tensor<(_, Const<4>), _, _>`
    //              found struct `Tensor<(_, Const<1>), _, _>`
    // ```
    //
    // One vector gives one number an input. What makes four of them a question is the shape.
    //
    // **Files.** The crate's real answers to a label that names no ending, and to a file of another
    // kind:

    // %%
    let bad: PathBuf = std::env::temp_dir().join("cloze-lesson-10.csv");
    for text in [
        "sent1,sent2,ending0,ending1,ending2,ending3,label\nIt rains.,He,a,b,c,d,4\n",
        "text,label\nIt rains.,1\n",
    ] {
        std::fs::write(&bad, text)?;
        if let Err(error) = read_swag(&bad, &mut BadRows::refused()) {
            println!("{error}");
        }
    }

    // %% [markdown]
    // **What no message says.**
    //
    // - *A loss that stays at ln 4 = 1.386*: nothing is learned. If the mark can't be learned either,
    //   the four inputs of a question are in disorder, or the labels belong to other rows.
    // - *A very good result that is too good*: the right ending is longer, or written in another
    //   style, or always comes first. Hide the context and measure again; what the model gets then,
    //   it gets without understanding. SWAG's wrong endings were *chosen* so that such a model is
    //   fooled, and BERT still found more to hold on to ([Zellers et al.
    //   2019](https://arxiv.org/abs/1905.07830)).
    // - *Memory*: a batch of 16 questions is 64 sequences.
    //
    // ## Expected numbers
    //
    // - overlap of words: 49 of 240 and 16 of 80 right;
    // - at least 27 of 80 by luck: 0.050; at least 30: 0.009;
    // - four runs from the pre-trained encoder: 27, 29, 21 and 21 of 80; from random numbers 20;
    //   training questions 63 to 83 %;
    // - a mark 100 %, an echo 97.5 %, an echo from random numbers 64 %;
    // - all cells together compute for about half a minute.
    //
    // ## On real data
    //
    // `cloze data get swag`, then `cloze finetune swag --data data/SWAG --model DIR --out endings`
    // with a larger BERT. The paper's BERT-base gets 81.6 % of the development set, BERT-large
    // 86.6 %; an expert got 85 of a hundred questions of the test set right (table 4). On the small set here
    // all-MiniLM-L6-v2 (6 layers, 384 wide) gets 57 % with the very same code and rows
    // (`lessons/data/README.md`).
    //
    // ## Open questions
    //
    // 1. The four endings of a question share their context, and each of the four inputs computes it
    //    anew. Could it be computed once? What would be lost? (Think of who looks at whom.)
    // 2. "A model of this size can't" is a strong claim after a few runs. Which runs would you make to
    //    tell *too small* from *too little data* from *pre-trained too briefly*, and how many
    //    held-out questions would you need to see a difference of three points?
    //
    // The crate's source of this part: the questions in `src/data/choices.rs`, the task in
    // `src/tasks/choice.rs`, the head in `src/model/parameters.rs` (`MultipleChoice`), the loss in
    // `src/train/finetune.rs` (`summed_loss`). Next: [lesson 11](11_ner.rs), in which every
    // word gets an answer of its own.

    // %% [end]
    cloze::lessons::finish("10_swag")
}
