// ---
// title = "Fine-tuning: a spam filter"
// summary = "Put a head on [CLS], fine-tune the whole model to a spam filter, measure it by accuracy, F1 and Matthews' correlation, see what pre-training is worth, and teach the filter your own messages."
// track = "core"
// minutes = 58
// seconds = 75
// needs = ["08"]
//
// [[exercise]]
// id = "12.1"
// key = "head"
// was = "08.1"
// title = "The head: from [CLS] to logits"
// hints = [
//     "`rows` has one row for each token of the whole batch. The head reads one row for each text: that of its first token, [CLS]. `firsts` holds the numbers of these rows, and `pick(rows, firsts)` takes them.",
//     "The pooler is a linear layer and a tanh: `pooler.forward(…).tanh()` turns (texts, H) into (texts, H).",
//     "The classifier is one more linear layer, with nothing after it: softmax belongs to the loss. `classifier.forward(pooler.forward(pick(rows, firsts)).tanh())`.",
// ]
//
// [[exercise]]
// id = "12.2"
// key = "train_epoch"
// was = "08.3"
// title = "One epoch of fine-tuning"
// hints = [
//     "`data.sequences.epoch(recipe.seed, epoch, recipe.batch)` returns the epoch's batches: lists of the numbers of examples, in a different order in each epoch.",
//     "For each batch: `gradients(engine, data, batch, 0, dropout)?` returns (loss, tokens), and the engine keeps the gradients; then `engine.update(&Update { … })?` moves the parameters.",
//     "The step counts from 1 through all epochs: `u64::from(epoch) * batches.len() as u64 + number as u64 + 1`. Dropout, the schedule and the update all need it.",
//     "The update's fields are `optimizer: recipe.optimizer`, `learning_rate: schedule.rate(step)`, `step` and `max_norm: recipe.max_norm`. Dropout is `Dropout { seed: recipe.seed, step: step as u32 }`.",
// ]
//
// [[exercise]]
// id = "12.3"
// key = "binary_scores"
// was = "08.4"
// title = "Accuracy, F1 and Matthews' correlation"
// hints = [
//     "First count four numbers: predicted 1 and truly 1 (TP), predicted 1 but truly 0 (FP), predicted 0 but truly 1 (FN), predicted 0 and truly 0 (TN).",
//     "Accuracy is (TP + TN) / all. F1 and MCC follow the formulas above.",
//     "Where a denominator is 0, the metric is not defined; return 0 there.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 12 · Fine-tuning: a spam filter
    //
    // In pre-training BERT learned a language, but no task. In this lesson you put a small head on top,
    // train the whole model on 300 labelled messages, and it becomes a spam filter. You write the
    // head, the training loop and the metrics, measure what pre-training was worth, and teach the
    // filter messages of your own.
    //
    // *About 58 minutes; the longest cells train for a few seconds. You need lesson 08.*

    // %%
    use std::path::{Path, PathBuf};

    use cloze::data::Examples;
    use cloze::data::sequences::BatchSize;
    use cloze::engine::optimizer::Update;
    use cloze::eval::{self, softmax};
    use cloze::lessons::data;
    use cloze::lessons::support::finetuning::{self, HeadCase, Pretrained, Split, fine_tune};
    use cloze::lessons::support::yours;
    use cloze::model::weights::Model;
    use cloze::model::{Dropout, Part, pick};
    use cloze::prelude::*;
    use cloze::train::Schedule;
    use cloze::train::finetune::{Settings as Recipe, gradients};
    use cloze::view::Flow;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // ## Where we are going
    //
    // The encoder is that of [lesson 06](06_encoder.rs). The head is the last two boxes, and only the
    // very last one starts from random numbers.

    // %%
    show!(
        Flow::new("From a text to an answer", "[CLS] you won ! [SEP]")
            .step("encoder", "(tokens, H), pre-trained")
            .step("the row of [CLS]", "(texts, H)")
            .step("pooler: linear, tanh", "(texts, H), pre-trained")
            .step("classifier: linear", "(texts, 2), new: 258 numbers")
    );

    // %% [markdown]
    // The data: 300 messages to train on and 100 to measure on, each labelled `spam` or `ham` (not
    // spam). Read some:

    // %%
    let spam: PathBuf = data::folder("spam")?;
    let text: String = std::fs::read_to_string(spam.join("train.tsv"))?;
    for line in text.lines().take(7) {
        println!("{}", line.replace('\t', "   ->   "));
    }

    // %% [markdown]
    // ## The idea
    //
    // `[CLS]` is the first token of every input and stands for no word. Attention lets it look at
    // all other tokens, so its last hidden state $h_{\text{CLS}} \in \mathbb{R}^H$ can hold what the
    // task needs to know about the whole text. The head turns it into $C$ logits $z$, one for each
    // class:
    //
    // $$ u = \tanh(W_u h_{\text{CLS}} + b_u), \qquad z = W u + b, \qquad W \in \mathbb{R}^{C \times H} $$
    //
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), sections 3.2 and 4.1; the pooler with
    // its tanh is in Google's code, not in the paper). Softmax of $z$ gives the probabilities of
    // the classes.
    //
    // Then **all** parameters are trained, the encoder's too, for a few **epochs** (passes through
    // the training data) with a small learning rate. Reusing what was learned on one task for
    // another is called **transfer learning**.

    // %% [markdown]
    // ## Step 1: the head
    //
    // The model is your own BERT, if you have pre-trained one in lesson 11, or else `cloze-tiny`, the
    // course's small BERT. It has everything but the classifier, which `Model::read` creates from a
    // seed. A BERT that has read only the generated stories gets fewer messages right, and from step 4
    // on the text describes `cloze-tiny`. So after step 3 come back here, let the other line define
    // `folder`, and run all cells again.

    // %%
    const H: usize = 128;
    /// A matrix with rows of `N` numbers; the number of rows is known at run time.
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    let (folder, whose): (PathBuf, &str) = yours::start()?;
    // let (folder, whose): (PathBuf, &str) = (data::folder(data::TINY)?, "cloze-tiny");
    println!("fine-tuned here: {whose}");
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;

    /// A pre-trained model with a new head for two classes.
    fn with_head(dir: &Path, seed: u64) -> cloze::Result<Model> {
        Model::read(dir, &Part::SequenceClassifier(2).with_encoder(), Some(seed))
    }

    let model: Model = with_head(&folder, 1)?;
    println!("starts from random numbers: {:?}", model.fresh);

    // %% [markdown]
    // **Exercise 12.1.** Write the head for any number of outputs `C`. `rows` are the last hidden
    // states of all tokens of a batch, one text after the other. `firsts` holds the numbers of the
    // rows at which the texts begin. `pick(rows, firsts)` takes rows by their numbers, and
    // `layer.forward(x)` applies a layer. The number of outputs of a layer is in its type.

    // %%
    fn head<const C: usize>(
        rows: Rows<H>,
        firsts: &[u32],
        pooler: &Linear<H, H, f32, Cpu>,
        classifier: &Linear<H, C, f32, Cpu>,
    ) -> Rows<C> {
        // BEGIN SOLUTION
        cloze::solution!("12.1");
        classifier.forward(pooler.forward(pick(rows, firsts)).tanh())
        // END SOLUTION
    }

    // %% [markdown]
    // The check needs three messages that have passed the encoder, and the logits of the crate's fast
    // engine. The probabilities mean nothing yet: the new classifier's weights are random numbers.

    // %%
    let texts: [&str; 3] = ["Reply and win!", "Dinner at eight?", "Come on Friday."];
    let case: HeadCase = HeadCase::new(&model, &tokenizer, &texts)?;
    println!("the rows at which the texts begin: {:?}", case.firsts);
    for row in case.logits.chunks(2) {
        println!("probability of spam {:.2}", softmax(row)[1]);
    }

    // %%
    check!("12.1", |judge| {
        let (rows, logits, lasts) = (&case.rows, &case.logits, &case.lasts);
        let (firsts, pooler, classifier) = (&case.firsts, &case.pooler, &case.classifier);
        let yours = head(rows.clone(), firsts, pooler, classifier);
        judge.equal(
            "the shape of the logits of three texts",
            yours.shape().concrete(),
            [firsts.len(), 2],
            "One row for each text, not for each token: only the rows in `firsts` go into the head.",
        );
        let slips: [(Rows<2>, &str); 6] = [
            (
                classifier
                    .forward(pooler.forward(pick(rows.clone(), firsts)))
                    .tanh(),
                "The tanh belongs to the pooler: it comes between the two layers, not after the second.",
            ),
            (
                classifier
                    .forward(pooler.forward(pick(rows.clone(), firsts)).tanh())
                    .softmax::<Axis<1>>(),
                "These are probabilities. Return the logits: softmax belongs to the loss.",
            ),
            (
                classifier.forward(pooler.forward(pick(rows.clone(), firsts))),
                "The pooler's tanh is missing.",
            ),
            (
                classifier.forward(pick(rows.clone(), firsts)),
                "The pooler is missing: its layer and its tanh come before the classifier.",
            ),
            (
                classifier.forward(pick(rows.clone(), firsts).tanh()),
                "The pooler's linear layer is missing.",
            ),
            (
                classifier.forward(pooler.forward(pick(rows.clone(), lasts)).tanh()),
                "You took the last token of each text, [SEP]. In pre-training BERT learned to describe the \
                 whole text at [CLS].",
            ),
        ];
        for (slip, said) in slips {
            let same = slip
                .as_vec()
                .iter()
                .zip(yours.as_vec())
                .all(|(a, b)| (a - b).abs() < 1e-5);
            judge.holds("your logits are those of the crate's engine", !same, said);
        }
        judge.close_tensor(
            "head of the three messages",
            &yours,
            &Cpu::default().tensor_from_vec(logits.clone(), (firsts.len(), Const)),
            1e-4,
            "The crate's fast engine returns these logits for the same texts and parameters.",
        );
        let one: Linear<H, 1, f32, Cpu> = Linear {
            weight: classifier.weight.clone().slice((0..1, ..)).realize(),
            bias: classifier.bias.clone().slice((0..1,)).realize(),
        };
        judge.equal(
            "the shape with one output",
            head(rows.clone(), firsts, pooler, &one).shape().concrete(),
            [firsts.len(), 1],
            "With C = 1 the same head returns one number for each text.",
        );
    });

    // %% [markdown]
    // ## Step 2: train
    //
    // The loss of a text is the cross-entropy of its right class, and the gradient at its logits is
    // the $p - y$ of [lesson 08](08_fill_blanks.rs), with classes in place of tokens. The chain rule
    // carries it into all layers below.
    //
    // The paper's recipe (appendix A.3): batches of 16 or 32, a learning rate of 5e-5, 3e-5 or 2e-5,
    // 2 to 4 epochs. The rest is as in pre-training: AdamW, a learning rate that rises over the first
    // tenth of the steps and then falls linearly to 0, gradients clipped to a norm of 1 (the last two
    // are in Google's code).
    //
    // Such numbers, which are chosen and not learned, are **hyperparameters**. `cloze-tiny` has
    // 1.5 million parameters where BERT-base has 110 million, and our five epochs are only 95 steps. A
    // small model tolerates a larger learning rate, and so few steps need one. We take 1e-3.

    // %%
    // All 300 rows; only a few in the automatic tests of the lessons.
    let limit: usize = cloze::lessons::steps(300) as usize;
    let messages: Split = Split::read("text,label", &spam, &tokenizer, limit)?;

    /// The settings of a run.
    fn recipe_of(seed: u64, epochs: u32, learning_rate: f64) -> Recipe {
        Recipe {
            seed,
            epochs,
            learning_rate,
            batch: BatchSize::Examples(16),
            ..Recipe::default()
        }
    }

    let recipe: Recipe = recipe_of(1, 5, 1e-3);

    // %% [markdown]
    // **Exercise 12.2.** Train one epoch and return the loss of every batch. What you need:
    //
    // - `data.sequences.epoch(recipe.seed, epoch, recipe.batch)` returns the epoch's batches.
    // - `gradients(engine, data, batch, 0, dropout)?` runs forward and backward, and returns
    //   (loss, tokens). The `0` means that the batch is not split.
    // - `engine.update(&Update { … })?` moves the parameters. As in lesson 08, an `Update` has
    //   `optimizer`, `learning_rate`, `step` and `max_norm`, and a `Dropout` has `seed` and `step` (a
    //   `u32` there and a `u64` in `Update`). `recipe` holds the optimizer, the seed and `max_norm`.
    //
    // The step counts from 1 and continues through *all* epochs, as the schedule does.

    // %%
    fn train_epoch(
        engine: &mut CpuEngine,
        data: &Examples,
        recipe: &Recipe,
        schedule: &Schedule,
        epoch: u32,
    ) -> cloze::Result<Vec<f64>> {
        // BEGIN SOLUTION
        cloze::solution!("12.2");
        let batches = data.sequences.epoch(recipe.seed, epoch, recipe.batch);
        let mut losses = Vec::new();
        for (number, batch) in batches.iter().enumerate() {
            let step = u64::from(epoch) * batches.len() as u64 + number as u64 + 1;
            let dropout = Dropout {
                seed: recipe.seed,
                step: step as u32,
            };
            let (loss, _tokens) = gradients(engine, data, batch, 0, dropout)?;
            engine.update(&Update {
                optimizer: recipe.optimizer,
                learning_rate: schedule.rate(step),
                step,
                max_norm: recipe.max_norm,
            })?;
            losses.push(loss);
        }
        Ok(losses)
        // END SOLUTION
    }

    // %% [markdown]
    // The check trains on 40 rows for two epochs, and compares your losses with those of the crate's
    // `Finetuner`.

    // %%
    check!("12.2", |judge| {
        let short = Recipe {
            warmup: 0.4,
            ..recipe_of(1, 2, 1e-3)
        };
        let prepare = || -> cloze::Result<(Examples, Vec<f64>, CpuEngine)> {
            let few = Split::read("text,label", &spam, &tokenizer, 40)?.train;
            let (_, wanted) = finetuning::finetune(&model, &few, &short, None)?;
            let engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
            Ok((few, wanted, engine))
        };
        let (few, wanted, mut fresh) = match prepare() {
            Ok(prepared) => prepared,
            Err(error) => {
                judge.holds("the crate's own run succeeds", false, &error.to_string());
                return;
            }
        };
        let schedule = finetuning::schedule(&few, &short);
        let mut yours = Vec::new();
        for epoch in 0..short.epochs {
            match train_epoch(&mut fresh, &few, &short, &schedule, epoch) {
                Ok(losses) => yours.extend(losses),
                Err(error) => judge.holds("train_epoch runs", false, &error.to_string()),
            }
        }
        judge.equal(
            "the number of losses of two epochs over 40 rows in batches of 16",
            yours.len(),
            wanted.len(),
            "Three batches an epoch, of 16, 16 and 8 rows, and one loss for each.",
        );
        judge.holds(
            "the first batch has the loss of the crate's first batch",
            yours
                .first()
                .zip(wanted.first())
                .is_some_and(|(a, b)| (a - b).abs() < 1e-4),
            "No update has happened yet, so the batch is another one: which examples did you take?",
        );
        let same = yours.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-6);
        if !same && let Ok(Some(advice)) = finetuning::slip(&yours, &model, &few, &short) {
            judge.holds(
                "your losses are those of the crate's Finetuner",
                false,
                advice,
            );
        }
        for (step, (a, b)) in yours.iter().zip(&wanted).enumerate() {
            judge.close(
                &format!("your loss in step {}", step + 1),
                *a,
                *b,
                1e-4,
                "The crate's Finetuner has this loss. The first step that differs follows the first \
                 update that differs: gradients, then one update for each batch. NaN? Steps count \
                 from 1; in a step 0 AdamW divides by 0.",
            );
        }
    });

    // %% [markdown]
    // Now the filter. `fine_tune` copies the model, calls your function for each epoch, and measures on
    // the held-out texts after each.

    // %%
    let mut filter: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    if solved!("12.2") {
        let (trained, epochs) = fine_tune(&model, &messages, &recipe, train_epoch)?;
        filter = trained;
        for epoch in epochs {
            println!("{epoch}");
        }
    }

    // %% [markdown]
    // ## Step 3: how good is it?
    //
    // 60 of the 100 held-out messages are ham, so a filter that lets *everything* through has an
    // accuracy of 60 %. Two other metrics separate it from a filter that reads. Count the true
    // positives $TP$ (spam found), the false positives $FP$ (ham called spam), the false negatives
    // $FN$ (spam missed) and the true negatives $TN$ (ham let through):
    //
    // $$ F_1 = \frac{2\,TP}{2\,TP + FP + FN}, \qquad
    //    \mathrm{MCC} = \frac{TP \cdot TN - FP \cdot FN}{\sqrt{(TP+FP)(TP+FN)(TN+FP)(TN+FN)}} $$
    //
    // $F_1$ is the harmonic mean of precision, $TP/(TP+FP)$, and recall, $TP/(TP+FN)$, and ignores
    // $TN$. Matthews' correlation runs from -1 to 1 and treats both classes alike. A filter that
    // ignores its input gets about 0
    // ([Matthews 1975](https://doi.org/10.1016/0005-2795%2875%2990109-9)).
    //
    // **Exercise 12.3.** Return accuracy, F1 and MCC, in this order, as fractions of 1. Class 1 is
    // spam. Where a metric would be 0 / 0, it counts as 0.

    // %%
    fn scores(predicted: &[u32], gold: &[u32]) -> [f64; 3] {
        // BEGIN SOLUTION
        cloze::solution!("12.3");
        let count = |p: u32, g: u32| {
            let pairs = predicted.iter().zip(gold);
            pairs.filter(|(a, b)| (**a, **b) == (p, g)).count() as f64
        };
        let (tp, fp, fn_, tn) = (count(1, 1), count(1, 0), count(0, 1), count(0, 0));
        let ratio = |above: f64, below: f64| if below > 0.0 { above / below } else { 0.0 };
        let margins = (tp + fp) * (tp + fn_) * (tn + fp) * (tn + fn_);
        [
            ratio(tp + tn, gold.len() as f64),
            ratio(2.0 * tp, 2.0 * tp + fp + fn_),
            ratio(tp * tn - fp * fn_, margins.sqrt()),
        ]
        // END SOLUTION
    }

    // %%
    check!("12.3", |judge| {
        let gold = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0];
        let guess = [1, 1, 1, 0, 1, 0, 0, 0, 0, 0];
        let [accuracy, f1, mcc] = scores(&guess, &gold);
        judge.close(
            "the accuracy with 3 spam found, 1 missed, 1 false alarm, 5 ham let through",
            accuracy,
            0.8,
            1e-9,
            "8 of 10 are right. A fraction, not a percentage. 0? A division of whole numbers drops the \
             fraction: convert to f64 first.",
        );
        judge.holds(
            &format!("F1 there is 0.75; yours is {f1:.4}"),
            (f1 - 5.0 / 6.0).abs() > 1e-6,
            "5/6 is the F1 of ham. F1 asks about class 1, spam.",
        );
        judge.close(
            "F1 there",
            f1,
            0.75,
            1e-9,
            "Precision is 3 of 4, recall is 3 of 4, and so is their harmonic mean.",
        );
        judge.holds(
            &format!("MCC there is 0.5833; yours is {mcc:.4}"),
            (mcc - 14.0 / 576.0).abs() > 1e-6,
            "The root over the product is missing.",
        );
        judge.close(
            "MCC there",
            mcc,
            14.0 / 24.0,
            1e-9,
            "(3 · 5 - 1 · 1) / √(4 · 4 · 6 · 6).",
        );
        let [_, f1, mcc] = scores(&[0; 10], &gold);
        judge.holds(
            &format!(
                "a filter that lets everything through has F1 0 and MCC 0; yours {f1} and {mcc}"
            ),
            f1 == 0.0 && mcc == 0.0,
            "NaN is 0 / 0: nothing was called spam, so MCC is not defined. The crate, like \
             scikit-learn, returns 0 then.",
        );
        let [_, _, turned] = scores(&guess.map(|g| 1 - g), &gold);
        judge.close(
            "MCC of the opposite answers",
            turned,
            -14.0 / 24.0,
            1e-9,
            "The opposite answers hold as much information: the same number, negative.",
        );
        let mut draws = cloze::random::Stream::new(8, 0, cloze::random::Site::Order, 0).draws();
        let mut labels = || (0..200).map(|_| draws.below(2)).collect::<Vec<u32>>();
        let (p, g) = (labels(), labels());
        let yours = scores(&p, &g);
        let crates = [
            eval::accuracy(&p, &g),
            eval::f1(&p, &g),
            eval::matthews(&p, &g),
        ];
        for ((name, a), b) in ["accuracy", "F1", "MCC"].iter().zip(yours).zip(crates) {
            judge.close(
                &format!("{name} of 200 random answers"),
                a,
                b,
                1e-9,
                "The crate's metrics return this; its tests compare them with scikit-learn's. F1 is a \
                 little too large? The harmonic mean of precision and recall is not (P + R) / 2.",
            );
        }
    });

    // %% [markdown]
    // The filter, the one that lets everything through, and the messages that yours gets wrong. Reading
    // a model's mistakes is worth an hour in any project.

    // %%
    if solved!("12.2") && solved!("12.3") {
        let (predicted, gold) = finetuning::answers(&mut filter, &messages.held_out)?;
        println!("accuracy, F1, MCC: {:.3?}", scores(&predicted, &gold));
        println!("everything through: {:.3?}", scores(&[0; 100], &gold));
        let file = spam.join("dev.tsv");
        for mistake in finetuning::mistakes(&file, &["ham", "spam"], &predicted, &gold)? {
            println!("{mistake}");
        }
    }

    // %% [markdown]
    // ## Step 4: what is pre-training worth?
    //
    // The same head, rows and steps, once from the pre-trained encoder and once from random numbers,
    // with three seeds each. (A seed changes the head's first weights and the order of the rows. One
    // run proves little: on 100 messages the standard error of its accuracy is about 3 points.)

    // %%
    if solved!("12.2") {
        let mut chart = LineChart::new("The same head on two encoders")
            .axes("rows to train on", "held-out accuracy, %")
            .reference("all ham", 60.0);
        for (name, pretrained) in [("pre-trained", true), ("random", false)] {
            let mut ends = Vec::new();
            for rows in [32, 64, 128, limit].map(|rows| rows.min(limit)) {
                let part = Split::read("text,label", &spam, &tokenizer, rows)?;
                for seed in 1..=cloze::lessons::steps(30) / 10 {
                    let mut model = with_head(&folder, seed)?;
                    if !pretrained {
                        model.values = model.layout.initialise(seed);
                    }
                    let recipe = recipe_of(seed, 8, 1e-3);
                    let (_, epochs) = fine_tune(&model, &part, &recipe, train_epoch)?;
                    ends.push((rows as f64, epochs[7].accuracy));
                }
            }
            chart = chart.repeated(format!("{name}: each seed and their mean"), &ends);
        }
        show!(chart);
    }

    // %% [markdown]
    // Read the chart horizontally. With 64 rows `cloze-tiny` is where random numbers get with 300:
    // pre-training saves labels. A BERT that knows only the generated stories has never seen most words
    // of these messages, and gains little: what a model is pre-trained on matters. (For BERT-base on
    // real tasks the gap is far larger. Single words often show that a message is spam, and even a fresh
    // model learns single words quickly.)

    // %% [markdown]
    // ### Which learning rate?
    //
    // This is the one hyperparameter that you have to search for. Here are five rates with two seeds
    // each:

    // %%
    if solved!("12.2") {
        let mut chart = BarChart::new("Held-out accuracy by learning rate").unit("%");
        for rate in [5e-5, 3e-4, 1e-3, 3e-3, 3e-2] {
            let mut mean = 0.0;
            for seed in 1..=2 {
                let model = with_head(&folder, seed)?;
                let (_, epochs) =
                    fine_tune(&model, &messages, &recipe_of(seed, 5, rate), train_epoch)?;
                mean += epochs[4].accuracy / 2.0;
            }
            chart = chart.bar(format!("{rate:e}"), mean);
        }
        show!(chart);
    }

    // %% [markdown]
    // If it is too small, five epochs are not enough. If it is too large, the first steps destroy
    // what pre-training built: at 3e-2 one seed calls everything ham (60 %) and the other everything
    // spam (40 %). The best two are too close to separate.

    // %% [markdown]
    // ### A larger model
    //
    // Two models are larger than cloze-tiny. `cloze-small` comes with the lessons, has 4 layers, 192
    // numbers wide, and fills more blanks (44 % where cloze-tiny fills 40 %). all-MiniLM-L6-v2 has 6
    // layers, 384 numbers wide, and was pre-trained on far more text. They get 86 and 90 % of the
    // messages right, cloze-tiny 89 %: where single words decide, size buys little. In lesson 13 it
    // buys more. The cell takes cloze-small. With `DOWNLOAD` set to `true` it fetches MiniLM from the
    // Hugging Face Hub (91 MB, once) and trains it for about a minute.

    // %%
    const DOWNLOAD: bool = false;
    let larger: Pretrained = finetuning::larger_model(DOWNLOAD)?;
    println!("{}", larger.note);
    if solved!("12.2") {
        let messages = Split::read("text,label", &spam, &larger.wordpiece, limit)?;
        let model = with_head(&larger.folder, 1)?;
        // A larger model needs a smaller learning rate.
        let rate = if larger.fetched { 1e-4 } else { 5e-4 };
        let (_, epochs) = fine_tune(&model, &messages, &recipe_of(1, 3, rate), train_epoch)?;
        println!("{}", epochs[2]);
    }

    // %% [markdown]
    // ### Overfitting
    //
    // 1.5 million parameters have room to memorise 300 rows. Train for 20 epochs and watch both losses.

    // %%
    if solved!("12.2") {
        let (_, epochs) = fine_tune(&model, &messages, &recipe_of(1, 20, 1e-3), train_epoch)?;
        let title = "Overfitting: 20 epochs over 300 rows";
        show!(finetuning::losses(title, &epochs));
        println!("{}\n{}", epochs[0], epochs[19]);
    }

    // %% [markdown]
    // The training loss goes to 0: the model has memorised the 300 rows. The held-out loss is lowest
    // after the first epoch and ends at twice its best, while the accuracy hardly changes. The model
    // is wrong about as many messages as before, but far more certain of it, and cross-entropy
    // measures certainty. If you want to use the probabilities, stop where the held-out loss is lowest.

    // %% [markdown]
    // ## Your own messages
    //
    // You decide what is spam. Below are the messages of somebody whose rowing club writes like a bank
    // (*Dear member, your account*), and who is tired of recruiters, who write like friends. Replace
    // them with yours. The cell writes them to a file, in front of the 300 rows.

    // %%
    const MINE: &str = "
        ham: Dear member, the rowing club's lockers cost 60 from this year. Please pay Petra this week.
        ham: Dear member, your account shows 40 for the spring regatta. Pay at the boathouse.
        ham: Dear rower, your seat in the eight is confirmed. Your account was charged 25 for the bus.
        spam: I saw your profile and have a role at a client of mine. Do you have ten minutes on Tuesday?
        spam: Are you happy in your job? A team in your town is looking for somebody like you. Shall we talk?
        spam: A client of mine needs an engineer like you. When would be a good time to talk about the role?
        spam: Dear customer, your bank account was closed. Enter your password to open it again.
        spam: Dear client of our bank, confirm your card today or lose your account.
    ";
    let my_folder: PathBuf = std::env::temp_dir().join("cloze-lesson-12");
    let my_count: usize = finetuning::write_messages(&my_folder, MINE, &spam)?;

    // %%
    /// Messages that are in no file.
    const ASKED: [&str; 3] = [
        "Dear member, your account with the rowing club is overdue. Pay 60 by Friday to keep your place.",
        "I have a role for somebody with your profile. Can we talk on Thursday?",
        "Dear customer, your account is locked. Confirm your card number today.",
    ];
    if solved!("12.2") {
        let both = Split::read("text,label", &my_folder, &tokenizer, limit + my_count)?;
        let (mut retrained, _) = fine_tune(&model, &both, &recipe, train_epoch)?;
        let before = finetuning::second_class(&mut filter, &tokenizer, &ASKED)?;
        let after = finetuning::second_class(&mut retrained, &tokenizer, &ASKED)?;
        for ((message, a), b) in ASKED.iter().zip(before).zip(after) {
            println!("spam: {a:.0} %, with your rows {b:.0} %: {message}");
        }
    }

    // %% [markdown]
    // Eight rows were enough to change its mind about messages that it had never seen, because they
    // share words with those rows. But so few rows teach crudely. Leave out the last two and run both
    // cells again: the filter learns that *Dear* and *account* are a friend's words, and lets the
    // thief through.

    // %% [markdown]
    // ## Follow this token
    //
    // The last stage: *a head for a task*, on the model with which this lesson began.

    // %%
    show!(FollowToken::load(&folder, "The mill stands by the [MASK].", None)?.after(12));

    // %% [markdown]
    // ## What goes wrong
    //
    // **Another number of classes than the type says**: `let logits: Rows<3> = head(…)` with the
    // classifier of two outputs.
    //
    // ```text
    // error[E0308]: mismatched types
    //   = note: expected reference `&Linear<_, 3, _, _>`
    //              found reference `&Linear<_, 2, _, _>`
    // ```
    //
    // Your data decides which of the two is wrong: count its labels.
    //
    // **What no message reports.**
    //
    // - *One class too many*: `Spam` in a file of `spam` and `ham` is a class of its own.
    // - *Accuracy stays at 60 %, MCC 0*: one answer for everything. The learning rate is too large, or
    //   the rows are sorted by label and never shuffled.
    // - *Excellent on the training rows, poor in use*: overfitting, or the same message is in both
    //   files.
    //
    // ## Expected numbers
    //
    // These are for cloze-tiny, except the last two.
    //
    // - the filter after five epochs: 89 % right, F1 0.857, MCC 0.769;
    // - with 32, 64, 128 and 300 rows: 74, 83, 89 and 88 % from the pre-trained encoder, 60, 76, 78 and
    //   84 % from random numbers;
    // - by learning rate, from 5e-5 to 3e-2: 83.5, 87.5, 90, 83.5 and 50 %;
    // - 20 epochs: a held-out loss of 0.37 after the first, 0.73 at the end;
    // - the three messages: 99, 0 and 99 % spam before your rows, 1, 99 and 100 % with them.
    // - cloze-small after three epochs: 86 % right, with a held-out loss of 0.32;
    // - the same filter from a BERT that has read only the generated stories: 75 to 85 %. Its vocabulary
    //   cuts most words of these messages into single letters.
    //
    // Processors round differently, so your figures may differ by some points.
    //
    // ## On real data
    //
    // ```text
    // cloze finetune custom --columns text,label --train mine.tsv --dev dev.tsv \
    //     --out filter --batch 16 --lr 1e-3 --epochs 5
    // cloze predict custom --columns text,label --model filter --input new.tsv
    // ```
    //
    // ## Open questions
    //
    // 1. Freeze the encoder and train only the classifier: 258 numbers in place of 1.5 million. What
    //    would you expect of the training loss, of the held-out loss, and of the 20 epochs above?
    // 2. If you try ten seeds and report the best on the held-out rows, what does that number say about
    //    the next 100 messages? (See [Dodge et al. 2020](https://arxiv.org/abs/2002.06305).)
    //
    // The crate's source of this part: the head in `src/model/heads.rs`, the loop in
    // `src/train/finetune.rs`, the metrics in `src/eval/metrics.rs`, your own data in
    // `src/tasks/sentences.rs`. Next: [lesson 13](13_pairs.rs), in which the model must compare two
    // texts.

    // %% [end]
    cloze::lessons::finish("12_fine_tuning")
}
