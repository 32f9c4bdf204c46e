// ---
// title = "SWAG: choose what happens next"
// summary = "Turn a question with four endings into four inputs, score each by one vector, follow the gradient to all four, find out whether a model is better than guessing, and why not."
// track = "use"
// minutes = 58
// seconds = 50
// needs = ["12"]
//
// [[exercise]]
// id = "16.1"
// key = "inputs"
// was = "10.1"
// title = "Four inputs from one question"
// hints = [
//     "Each ending makes its own pair: segment A is the context, segment B is the start, a space and the ending: `format!(\"{} {ending}\", question.start)`.",
//     "`tokenizer.encode_pair(a, b)` returns (encoding, segments) with [CLS] and both [SEP] in place; the ids are `encoding.ids`.",
//     "Iterate over `question.endings.iter()`, map each ending to `(encoding.ids, segments)`, and collect.",
// ]
//
// [[exercise]]
// id = "16.2"
// key = "choice_scores"
// was = "10.2"
// title = "From one vector to a choice"
// hints = [
//     "`vector.forward(pooled)` gives one number for each input: (4 Q, 1).",
//     "The four inputs of a question are consecutive rows, so the numbers only need another shape, (Q, 4): `reshape_like(&(questions, Const::<4>))`.",
//     "Q is a quarter of the rows: `let questions = pooled.shape().0 / 4;` before `pooled` is moved.",
// ]
//
// [[exercise]]
// id = "16.3"
// key = "gradient_of_w"
// was = "10.5"
// title = "The gradient of all four endings"
// hints = [
//     "`softmax(scores)` returns the four probabilities as f64. The slope of score k is p_k, minus 1 if k is the right ending.",
//     "The score is w · c_k, so the gradient of w is the sum of the four vectors c_k, each multiplied by the slope of its score.",
//     "Start from `vec![0.0; pooled[0].len()]`. For each ending k and each place i add `slope * pooled[k][i]`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 16 · SWAG: choose what happens next
    //
    // *The pilot has been told that the runway is free. She …* Four endings follow, and one makes
    // sense. To choose it, a model needs some knowledge of the world. The head for this task is a
    // single vector, and the four endings compete in one softmax. You build both, and follow the
    // gradient to the right ending and to the wrong ones. The small model hardly learns this task, so
    // you also find out *why*. At the end a larger model, which you may download, shows what the same
    // head can do.
    //
    // *About 58 minutes; the longest cell trains for about 20 seconds. You need
    // [lesson 12](12_fine_tuning.rs).*

    // %%
    use std::path::PathBuf;

    use cloze::MultipleChoice;
    use cloze::data::Examples;
    use cloze::data::bad::BadRows;
    use cloze::data::choices::{Question, read_swag};
    use cloze::data::sequences::BatchSize;
    use cloze::eval::{Scores, softmax};
    use cloze::lessons::data;
    use cloze::lessons::largest_gap;
    use cloze::lessons::support::choices::{self, ChoiceRun, echoed, marked, right_by, words};
    use cloze::lessons::support::finetuning::{self, Pretrained, larger_model, linear};
    use cloze::model::Part;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::tasks::{self, Labels, Options};
    use cloze::train::Finetuning;
    use cloze::train::finetune::Settings as Recipe;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // ## Where we are going
    //
    // The set `endings` has the layout of SWAG: 240 questions to train on and 80 held out. Here are three
    // of the held-out ones:

    // %%
    let endings: PathBuf = data::folder("endings")?;
    let train: Vec<Question> = read_swag(&endings.join("train.csv"), &mut BadRows::refused())?;
    let held_out: Vec<Question> = read_swag(&endings.join("val.csv"), &mut BadRows::refused())?;
    for question in held_out.iter().take(3) {
        println!("\n{} {} …", question.context, question.start);
        for (number, ending) in (0u32..).zip(&question.endings) {
            let right = question.right == Some(number);
            println!("  {} {ending}", if right { "->" } else { "  " });
        }
    }

    // %% [markdown]
    // The wrong endings are the right ones of other questions. Every ending of a file is right once and
    // wrong three times, so an ending alone says nothing: the answer is in how it *fits*.
    //
    // ## The idea
    //
    // The only new parameters are a vector $w \in \mathbb{R}^H$ and a bias $b$. Each ending $k$ goes
    // through BERT together with its context, which gives a pooled vector $c_k \in \mathbb{R}^H$. Its
    // score is the dot product with $w$, and a softmax turns the four scores into probabilities:
    //
    // $$ z_k = w \cdot c_k + b, \qquad p_k = \frac{e^{z_k}}{\sum_{l=1}^{4} e^{z_l}}, \qquad L = -\ln p_{\text{right}} $$
    //
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 4.4; data: [Zellers et al.
    // 2018](https://arxiv.org/abs/1808.05326)). In lesson 12 each class has a vector, and one text is
    // asked for its class. Here one vector scores four texts: the places 0 to 3 mean nothing, and a
    // question with seven endings needs no other model.

    // %% [markdown]
    // ## Step 1: four inputs
    //
    // **Exercise 16.1.** Return the token ids and the segment ids of a question's four inputs.
    // `start` is what all endings begin with (*She*); it belongs to segment B.

    // %%
    fn inputs(tokenizer: &WordPiece, question: &Question) -> Vec<(Vec<u32>, Vec<u32>)> {
        // BEGIN SOLUTION
        cloze::solution!("16.1");
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
    let folder: PathBuf = data::folder(data::TINY)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    // The questions as the crate feeds them: four sequences each, and which of them is right.
    let held_examples: Examples = choices::examples(&held_out, &tokenizer)?;

    // %%
    check!("16.1", |judge| {
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
                    "The context, then the start and the ending with a space between them. All \
                     four inputs contain the context.",
                );
                judge.same_list(
                    &format!("the ids of input {choice} of question {number}"),
                    ids,
                    &batch.ids[range.clone()],
                    "[CLS] context [SEP] start ending [SEP], as in the crate's Sequences.",
                );
                judge.same_list(
                    &format!("the segments of input {choice} of question {number}"),
                    segments,
                    &batch.segments[range],
                    "0 up to the first [SEP], 1 after it. Start and ending are one segment.",
                );
            }
        }
    });

    // %% [markdown]
    // ## Step 2: one vector
    //
    // **Exercise 16.2.** Compute the scores, (Q, 4), from the pooled vectors of all inputs, (4 Q, H).
    // `Linear<H, 1>` holds the vector $w$ and the bias $b$.

    // %%
    const H: usize = 128;
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    fn choice_scores(pooled: Rows<H>, vector: &Linear<H, 1, f32, Cpu>) -> Rows<4> {
        // BEGIN SOLUTION
        cloze::solution!("16.2");
        let questions = pooled.shape().0 / 4;
        let scores: Rows<1> = vector.forward(pooled);
        scores.reshape_like(&(questions, Const::<4>))
        // END SOLUTION
    }

    // %%
    let model: Model = Model::read(&folder, &Part::MultipleChoice.with_encoder(), Some(1))?;
    let bert: Bert<H, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &Cpu::default())?;
    let vector: Linear<H, 1, f32, Cpu> = linear(&model, "classifier")?;
    // Three questions: twelve sequences.
    let three: Packed = held_examples.sequences.batch(&[0, 1, 2]);
    let hidden: Rows<H> = bert.encode::<NoneTape>(&three, None, &mut |_, _| {});
    let pooled: Rows<H> = bert.pool(hidden, &three).ok_or("the model has no pooler")?;

    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let logits: Vec<f32> = engine.task_logits(&three)?;

    // %%
    check!("16.2", |judge| {
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
            "Your rows mix endings of several questions. The four inputs of a question are \
             consecutive rows, so (Q, 4) is only another shape of the same numbers.",
        );
        judge.close_tensor(
            "choice_scores of three questions",
            &yours,
            &Cpu::default().tensor_from_vec(logits.clone(), (3, Const)),
            1e-4,
            "The crate's engine gives these scores for the same twelve inputs.",
        );
    });

    // %% [markdown]
    // **A baseline without a model.** Perhaps the right ending repeats words of its context? Choose the
    // ending with the largest share of such words. The number of right answers comes with the 95 %
    // interval of [lesson 09](09_next_sentence.rs), which answers the question "could that be luck?".

    // %%
    /// Prints how many of the 80 held-out questions are right, in percent with a 95 % interval.
    fn report(name: &str, right: usize) {
        let p = right as f64 / 80.0;
        let margin = 1.96 * (p * (1.0 - p) / 80.0).sqrt();
        let [p, low, high] = [p, p - margin, p + margin].map(|share| 100.0 * share);
        println!("{name}: {right} of 80, {p:.0} % ({low:.0} to {high:.0})");
    }

    // %%
    /// Returns the share of an ending's words that occur in its context.
    fn overlap(question: &Question, ending: &str) -> f64 {
        let (context, ending) = (words(&question.context), words(ending));
        let common = ending.iter().filter(|word| context.contains(word)).count();
        common as f64 / ending.len().max(1) as f64
    }

    report("words in common", right_by(&held_out, overlap));

    // %% [markdown]
    // A guesser gets 25 %, which lies in the interval: counting words is no better. With only 80
    // questions the interval is wide, and a result of 35 % or less proves nothing.

    // %% [markdown]
    // ## Step 3: four endings, one softmax
    //
    // What does one training question teach? Take four scores $z = (1.0,\ 0.5,\ -0.5,\ 0.0)$, and let
    // the second ending be right, so $y = (0, 1, 0, 0)$.
    //
    // | ending | score $z_k$ | $e^{z_k}$ | $p_k$ | $y_k$ | slope $p_k - y_k$ |
    // |---|---:|---:|---:|---:|---:|
    // | wrong, but leads | 1.0 | 2.718 | 0.455 | 0 | 0.455 |
    // | **right** | 0.5 | 1.649 | 0.276 | 1 | -0.724 |
    // | wrong | -0.5 | 0.607 | 0.102 | 0 | 0.102 |
    // | wrong | 0.0 | 1.000 | 0.167 | 0 | 0.167 |
    //
    // The last column is the slope of the loss at each score, $\partial L / \partial z_k = p_k - y_k$
    // (lesson 12). A step of gradient descent moves each score *against* its slope:
    //
    // - The right ending is pushed up by the probability that it lacks.
    // - Each wrong ending is pushed down by the probability that it holds, so the one that leads is
    //   pushed most.
    // - The slopes sum to 0. The endings compete: one can only gain what the others lose.
    //
    // From the scores the gradient goes on by the chain rule. Since $z_k = w \cdot c_k + b$,
    //
    // $$ \frac{\partial L}{\partial w} = \sum_{k=1}^{4} (p_k - y_k)\, c_k = \sum_{k=1}^{4} p_k\, c_k - c_{\text{right}},
    //    \qquad \frac{\partial L}{\partial c_k} = (p_k - y_k)\, w . $$
    //
    // By the first equation a step moves $w$ towards the right ending's vector, and away from the mean
    // of all four vectors, weighted by their probabilities.
    //
    // **Exercise 16.3.** Compute the gradient of $w$ for one question: `pooled` holds the four vectors
    // $c_k$, `scores` the four $z_k$, and `right` the number of the right ending.

    // %%
    fn gradient_of_w(pooled: &[Vec<f32>], scores: &[f32], right: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("16.3");
        let mut gradient = vec![0.0; pooled[0].len()];
        for (k, p) in softmax(scores).into_iter().enumerate() {
            let slope = p as f32 - if k == right { 1.0 } else { 0.0 };
            for (sum, c) in gradient.iter_mut().zip(&pooled[k]) {
                *sum += slope * c;
            }
        }
        gradient
        // END SOLUTION
    }

    // %%
    check!("16.3", |judge| {
        let c = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0f32]].map(|c| c.to_vec());
        let scores = [1.0, 0.5, -0.5, 0.0];
        let p = softmax(&scores);
        let yours = gradient_of_w(&c, &scores, 1);
        judge.equal(
            "the length of the gradient",
            yours.len(),
            2,
            "The gradient of w has as many numbers as w, and as each c_k.",
        );
        let expected = [p[0] + p[2], p[1] - 1.0 + p[2]];
        let is = |other: [f64; 2]| largest_gap(&yours, &other) < 1e-5;
        judge.holds(
            "a step against the gradient raises the right ending",
            !is(expected.map(|g| -g)),
            "Your signs are reversed. The slope is p - y: positive for a wrong ending, negative for \
             the right one.",
        );
        judge.holds(
            "the wrong endings take part",
            !is([0.0, p[1] - 1.0]),
            "You used the right ending alone. Each wrong ending adds p_k times its vector.",
        );
        judge.holds(
            "each wrong ending counts by its own probability",
            !is([2.0 * (1.0 - p[1]) / 3.0, p[1] - 1.0 + (1.0 - p[1]) / 3.0]),
            "You gave the three wrong endings equal shares. Each counts by its own p_k, so the most \
             tempting one counts most.",
        );
        for (place, (yours, expected)) in yours.iter().zip(expected).enumerate() {
            judge.close(
                &format!("entry {place} of the gradient for c = (1, 0), (0, 1), (1, 1), (0, 0)"),
                f64::from(*yours),
                expected,
                1e-5,
                "The sum of (p_k - y_k) c_k over all four endings, with p of (1.0, 0.5, -0.5, 0.0) \
                 and the second ending right.",
            );
        }
        let shifted = c.map(|c| c.iter().map(|x| x + 3.0).collect());
        let moved = gradient_of_w(&shifted, &scores, 1);
        judge.close(
            "the first entry after 3 was added to every place of all four vectors",
            f64::from(moved[0]),
            f64::from(yours[0]),
            1e-5,
            "What all four vectors share must cancel, because the slopes sum to 0.",
        );
    });

    // %% [markdown]
    // The last line of the check shows that what all four vectors share cancels. They share their
    // context, so whatever the context adds equally to all four $c_k$ teaches $w$ nothing; only the
    // differences between the endings do.
    //
    // Watch it happen on one question. The vector starts in favour of a wrong ending, then takes 200
    // steps against your gradient:

    // %%
    let four: Vec<Vec<f32>> = pooled
        .as_vec()
        .chunks_exact(H)
        .take(4)
        .map(<[f32]>::to_vec)
        .collect();
    let answer: usize = held_out[0].right.unwrap_or_default() as usize;

    // %%
    if solved!("16.3") {
        // A small multiple of a wrong ending's own vector gives that ending the largest score.
        let tempting = (answer + 1) % 4;
        let mut w: Vec<f32> = four[tempting].iter().map(|x| 0.05 * x).collect();
        let mut lines: [Vec<(f64, f64)>; 4] = Default::default();
        for step in 0..=200 {
            let score = |c: &Vec<f32>| c.iter().zip(&w).map(|(c, w)| c * w).sum();
            let scores: Vec<f32> = four.iter().map(score).collect();
            for (line, p) in lines.iter_mut().zip(softmax(&scores)) {
                line.push((f64::from(step), p));
            }
            let gradient = gradient_of_w(&four, &scores, answer);
            w.iter_mut().zip(gradient).for_each(|(w, g)| *w -= 0.01 * g);
        }
        let mut chart =
            LineChart::new("The four endings of one question").axes("step", "probability");
        for (k, line) in lines.iter().enumerate() {
            let kind = if k == answer { "right" } else { "wrong" };
            chart = chart.line(format!("{kind}: {}", held_out[0].endings[k]), line);
        }
        show!(chart);
    }

    // %% [markdown]
    // The tempting ending falls and the right one rises. But another wrong ending, *lowers the wheels
    // and begins to descend*, rises with it at first. Both are about flying, so their vectors are
    // similar, and what raises one raises the other. In fine-tuning the encoder learns as well: by the
    // second equation it is pushed along $w$, forwards for the right ending and backwards for the wrong
    // ones, and so it can move such vectors apart.

    // %% [markdown]
    // ## Step 4: train, and doubt
    //
    // The paper's recipe for SWAG is 3 epochs, batches of 16 and a learning rate of 2e-5. The small
    // model, as in lesson 12, needs 1e-3, and six epochs.

    // %%
    // All questions; fewer if the lesson is only tested.
    let kept: usize = train.len().min(cloze::lessons::steps(1_000) as usize);
    let train_examples: Examples = choices::examples(&train[..kept], &tokenizer)?;

    /// Fine-tunes the pre-trained model with a new head.
    fn fine_tune(seed: u64, train: &Examples, held_out: &Examples) -> cloze::Result<ChoiceRun> {
        let folder = data::folder(data::TINY)?;
        let model = Model::read(&folder, &Part::MultipleChoice.with_encoder(), Some(seed))?;
        let recipe = Recipe {
            epochs: 6,
            batch: BatchSize::Examples(16),
            learning_rate: 1e-3,
            seed,
            ..Recipe::default()
        };
        choices::fine_tune(&model, train, held_out, recipe)
    }

    // %%
    let real: ChoiceRun = fine_tune(1, &train_examples, &held_examples)?;
    show!(
        LineChart::new("Choosing endings")
            .axes("epoch", "accuracy, %")
            .line("training questions", &real.train)
            .line("held out", &real.held_out)
            .reference("guessing", 25.0)
    );
    report("seed 1", real.right);
    for seed in 2..=4 {
        let again = fine_tune(seed, &train_examples, &held_examples)?;
        report(&format!("seed {seed}"), again.right);
    }

    // %% [markdown]
    // The model overfits: it answers most training questions and few others. Four seeds get 27, 29, 21
    // and 21 of 80 right, 31 % on average. One of the intervals lies above 25 %. Is that success? Run
    // enough seeds, and one of them will be lucky. Nor are the four runs 320 independent trials, because
    // they answer the *same* 80 questions. The honest answer is: if the model is better than guessing,
    // these questions can't show it.

    // %% [markdown]
    // ## Step 5: why?
    //
    // There are three suspects: a mistake in the code, too little data, a model that can't. Don't
    // guess. Make tasks for which you *know* what should come out:
    //
    // - **A mark.** The right ending gets the word *indeed* at its end. A model that can't learn that
    //   in a few epochs has a mistake in its code.
    // - **An echo.** The right ending repeats the context; the wrong ones are contexts of other
    //   questions. No single word gives the answer away: the model must *compare* the segments.

    // %%
    let mut chart: LineChart = LineChart::new("Held-out accuracy on tasks of known difficulty")
        .axes("epoch", "accuracy, %")
        .reference("guessing", 25.0)
        .line("the real endings", &real.held_out);
    type Change = fn(&[Question]) -> Vec<Question>;
    let kinds: [(&'static str, Change); 2] = [("a mark", marked), ("an echo", echoed)];
    for (name, change) in kinds {
        let seen = choices::examples(&change(&train[..kept]), &tokenizer)?;
        let unseen = choices::examples(&change(&held_out), &tokenizer)?;
        let run = fine_tune(1, &seen, &unseen)?;
        report(name, run.right);
        chart = chart.line(name, &run.held_out);
    }
    show!(chart);

    // %% [markdown]
    // The mark is learned within an epoch: inputs, labels, head and loop are right. The echo is learned
    // too, nearly without a mistake on new questions. (The simple interval is too narrow near 100 %.) So
    // 240 questions are enough to learn a rule, and the model *can* compare one segment with the other.
    //
    // The third suspect is left. The model sees whether two segments are about the same words, but it
    // doesn't know that a runway goes with a throttle. Such knowledge comes from pre-training, and 1.5
    // million parameters that have read 23 million tokens hold little of it. 240 questions can't teach
    // it: each is about another corner of the world.

    // %% [markdown]
    // ## A model that works
    //
    // all-MiniLM-L6-v2 has 6 layers of width 384, 22 million parameters, and was trained on over a
    // billion pairs of sentences. With the same head, loss and questions it gets 57 % of the held-out
    // questions right (`lessons/data/README.md`). The next cell is optional. Set `DOWNLOAD` to `true`, and
    // the crate fetches the model from the Hugging Face Hub, 91 MB, and trains it, which takes about a
    // minute on two cores. With `false`, or without a network, the cell trains `cloze-small`, of 4 layers
    // and 3.4 million parameters, for about 10 seconds.

    // %%
    const DOWNLOAD: bool = false;
    let larger: Pretrained = larger_model(DOWNLOAD)?;
    println!("{}", larger.note);
    let (rate, epochs): (f64, u32) = if larger.fetched {
        (1e-4, 3)
    } else {
        (5e-4, 10)
    };
    let train_file: PathBuf = endings.join("train.csv");
    let mut tuning: Finetuning = Finetuning::builder(
        tasks::open("swag", &Options::default(), Labels::Training(&train_file))?,
        &larger.folder,
    )
    .train(&train_file)
    .dev(endings.join("val.csv"))
    // A single epoch in the automatic tests of the lessons.
    .epochs(cloze::lessons::epochs(epochs))
    .batch(16)
    .learning_rate(rate)
    .build()?;
    let scores: Scores = finetuning::run_live("Choosing endings", &mut tuning)?;
    println!("held-out accuracy {}", scores["accuracy"]);

    // %% [markdown]
    // Now ask a question of your own. cloze-small may send the pilot into the kitchen.

    // %%
    let context: &'static str = "The pilot has been told that the runway is free.";
    let options: [&'static str; 4] = [
        "She pushes the throttle forward.",
        "She puts the cake into the oven.",
        "She asks the pupils to sit down.",
        "She waters the tomatoes.",
    ];
    let trained: PathBuf = std::env::temp_dir().join("cloze-lesson-16");
    tuning.save(&trained)?;
    for choice in MultipleChoice::load(&trained)?.choose(&[(context, &options)])? {
        for (option, p) in options.iter().zip(&choice.scores) {
            println!("{:>5.1} % {option}", 100.0 * p);
        }
    }

    // %% [markdown]
    // ## What goes wrong
    //
    // **The reshape forgotten.** `let scores: Rows<4> = vector.forward(pooled);`:
    //
    // ```text
    // error[E0308]: mismatched types
    //   |     let scores: Rows<4> = vector.forward(pooled);
    //   |                 -------   ^^^^^^^^^^^^^^^^^^^^^^ expected `4`, found `1`
    // ```
    //
    // One vector gives one number for each input. Only the shape makes a question of four.
    //
    // **Labels that count from 1.** `read_swag` reports the first one that names no ending:
    //
    // ```text
    // train.csv:2: the label is "4"; expected 0, 1, 2 or 3
    // ```
    //
    // **What no message reports.**
    //
    // - *A loss that stays at ln 4 = 1.386*: the model learns nothing. If it can't learn the mark
    //   either, the four inputs of a question are out of order, or the labels belong to other rows.
    // - *A result that is too good*: the right ending is longer, or always comes first. Hide the context
    //   and measure again. SWAG's wrong endings were *chosen* to fool such models, and BERT still found
    //   regularities to exploit ([Zellers et al. 2019](https://arxiv.org/abs/1905.07830)).

    // %% [markdown]
    // ## Expected numbers
    //
    // - words in common: 16 of 80, 20 % (11 to 29);
    // - four seeds: 27, 29, 21 and 21 of 80;
    // - a mark: 80 of 80; an echo: 78;
    // - cloze-small in `Finetuning`, with the seed 0: 24 of 80, 30 % (20 to 40).

    // %% [markdown]
    // ## On real data
    //
    // `cloze data get swag`, then `cloze finetune swag --data data/SWAG --model DIR --out endings`
    // with a larger BERT. The paper's BERT-base gets 81.6 % of the development set right, BERT-large
    // 86.6 %; an expert got 85 of a hundred questions of the test set (table 4).

    // %% [markdown]
    // ## Open questions
    //
    // 1. Each of the four inputs computes the same context anew. Could it be computed once? What would be
    //    lost? (Which tokens attend to which?)
    // 2. "A model of this size can't" is a strong claim after a few runs. Which runs would distinguish
    //    *too small* from *too little data* and from *pre-trained too briefly*?
    //
    // The crate's source of this part: the questions in `src/data/choices.rs`, the task in
    // `src/tasks/choice.rs`, the head in `src/model/parameters.rs` (`MultipleChoice`), the loss in
    // `src/train/finetune.rs` (`summed_loss`). Next: [lesson 17](17_names.rs), in which every word gets
    // its own answer.

    // %% [end]
    cloze::lessons::finish("16_endings")
}
