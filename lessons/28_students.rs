// ---
// title = "Beyond BERT: left to right, and a student"
// summary = "Hide the future from a model and see what that costs, then build a student of half its teacher's depth: from the teacher's own layers, and with a loss that teaches the teacher's doubts."
// track = "systems"
// minutes = 56
// seconds = 140
// needs = ["11"]
//
// [[exercise]]
// id = "28.1"
// key = "look_back"
// was = "15.3"
// title = "Hide the future"
// hints = [
//     "A table of `length` × `length` numbers, row by row: row q says which keys position q may see.",
//     "0 if the key is at or before the query, -1e9 if it is after it: these numbers are added to the scores before the softmax.",
//     "`for q in 0..length { for k in 0..length { mask.push(if k <= q { 0.0 } else { -1e9 }); } }`",
// ]
//
// [[exercise]]
// id = "28.2"
// key = "first_parameters"
// title = "Start from every second layer"
// hints = [
//     "First the list: with `every` = layers of the teacher / layers of the student, the student's layer i comes from the teacher's layer i · every. Then fill a list of `layout.total()` zeros, parameter by parameter.",
//     "`for (parameter, to) in layout.iter()`: `to` is the range in the student's list. Find the name that the parameter has in the teacher: another layer number if `in_layer` returns one, else the same name.",
//     "`their_layout.find(&name)` returns the parameter and its range in the teacher's list: `if let Some((_, from)) = their_layout.find(&name) { values[to].copy_from_slice(&theirs[from]); }`.",
// ]
//
// [[exercise]]
// id = "28.3"
// key = "soft_loss"
// was = "15.5"
// title = "Learn from a teacher's doubts"
// hints = [
//     "Divide both models' logits by T, then apply softmax to each: p for the teacher, q for the student.",
//     "Σ p (ln p - ln q), times T².",
//     "Work with logarithms: ln softmax(z)_i = z_i - m - ln Σ exp(z_j - m), where m is the largest z. Then no probability becomes 0.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 28 · Beyond BERT: left to right, and a student
    //
    // Is it worth it to read both sides of a word? BERT's authors asked that in an *ablation*, an
    // experiment that changes one decision and measures the effect. And can a model of half the depth
    // keep most of what a large one knows? DistilBERT's authors showed how. You write the mask that
    // hides the future, the start of a student that inherits layers of its teacher, and the loss that
    // teaches it.
    //
    // *About 56 minutes; the longest cells train for about half a minute on two cores. You need lesson
    // 11.*

    // %%
    use cloze::engine::{Distillation, DistillationScores, PretrainingScores, SoftTargets};
    use cloze::lessons::support::variants::{self, BATCH, MLM};
    use cloze::model::Dropout;
    use cloze::prelude::*;
    use cloze::text::{Paragraph, SpecialIds, embedded};
    use cloze::train::distill::student_of;

    // %% [markdown]
    // All models learn from the same text and are tested on the same blanks of held-out documents.

    // %%
    let paragraphs: Vec<Paragraph> = embedded::paragraphs().collect();
    let tokenizer: WordPiece = WordPiece::train(
        paragraphs.iter().map(|p| Ok(p.text.clone())),
        1_000,
        Casing::Uncased,
    )?;
    let special: SpecialIds = tokenizer.special();
    // As in lesson 07: a short run learns more from more blanks.
    let options: PretrainingOptions = PretrainingOptions {
        max_len: 32,
        mask_probability: 0.4,
        packing: Packing::Document,
        seed: 15,
        ..PretrainingOptions::default()
    };

    // %%
    let (data, held_out): (PretrainingData, PretrainingData) =
        variants::examples_of(&paragraphs, &tokenizer, &options, u64::MAX)?;
    let test: PretrainingBatch = held_out.batch(0, 96)?;
    // Two layers, 128 wide, without dropout.
    let config: Config = variants::config_of(2, &tokenizer);
    println!(
        "{} tokens to train on, {} blanks in the test",
        data.tokens(),
        test.masked_rows.len()
    );

    // %% [markdown]
    // ## 1. From the left alone (BERT's ablation)
    //
    // **Question.** Does reading both sides help? A left-to-right model predicts each token from the
    // tokens before it. Only the attention mask changes: position $q$ must not see later positions.
    //
    // **Exercise 28.1.** Make that mask, `length` × `length` numbers, row by row: the number that is
    // added to the score of query $q$ (row) and key $k$ (column).

    // %%
    fn look_back(length: usize) -> Vec<f32> {
        // BEGIN SOLUTION
        cloze::solution!("28.1");
        let places = (0..length).flat_map(|q| (0..length).map(move |k| (q, k)));
        places
            .map(|(q, k)| if k <= q { 0.0 } else { -1e9 })
            .collect()
        // END SOLUTION
    }

    // %%
    check!("28.1", |judge| {
        let yours = look_back(3);
        judge.equal(
            "the number of entries of look_back(3)",
            yours.len(),
            9,
            "One for each pair of query and key.",
        );
        judge.holds(
            &format!("no number is above 0; yours are {yours:?}"),
            yours.iter().all(|&m| m <= 0.0),
            "The mask is added to the scores, not multiplied: 0 leaves a score as it is.",
        );
        judge.holds(
            &format!("a hidden place has a large negative number; yours are {yours:?}"),
            yours.iter().all(|&m| m == 0.0 || m < -1e3),
            "A score can be larger than that, and then the token is still seen: use -1e9.",
        );
        let open: Vec<u8> = yours.iter().map(|&m| u8::from(m > -1e3)).collect();
        judge.holds(
            "the first token sees only itself, the last one sees all",
            open != [1, 1, 1, 0, 1, 1, 0, 0, 1],
            "Yours hides the past instead of the future. The row is the query, the column the key.",
        );
        judge.holds(
            "a token sees itself",
            open != [0, 0, 0, 1, 0, 0, 1, 1, 0],
            "Your first token sees nothing at all, and a softmax over nothing is undefined: \
             a token sees itself and what is before it.",
        );
        judge.holds(
            "a token does not see the one after it",
            open != [1, 1, 0, 1, 1, 1, 1, 1, 1],
            "Yours shows each token the one that it has to predict: the largest visible key is q.",
        );
        judge.same_list(
            "which keys are visible in look_back(3), row by row,",
            &open,
            &[1, 0, 0, 1, 1, 0, 1, 1, 1],
            "1 if the key is at or before the query.",
        );
        judge.holds(
            "visible places are 0 and hidden ones a large negative finite number",
            yours
                .iter()
                .all(|&m| m == 0.0 || (m < -1e4 && m.is_finite())),
            "The mask is added to scores. -∞ gives NaN in a row that is hidden completely; -1 only \
             weakens the attention.",
        );
        let ids = tokenizer.encode_with_special(&paragraphs[2].text).ids;
        let gap = variants::gap_to_left_to_right(&config, &ids, look_back(ids.len()));
        judge.close(
            "the largest gap between a BERT with your mask and the engine's left-to-right model",
            gap.unwrap_or(f64::NAN),
            0.0,
            1e-3,
            "The engine hides the future itself if the configuration says `is_decoder`.",
        );
    });

    // %% [markdown]
    // **Experiment.** The losses of the two models can't be compared: one predicts every token, the
    // other only the masked ones. So ask both for *the same held-out words*, one at a time. The
    // left-to-right model reads what stands before the word, the other everything except the word.

    // %%
    let mut both: CpuEngine = variants::fresh(&config, &MLM, 1)?;
    let mut left_options: PretrainingOptions = options.clone();
    left_options.left_to_right = true;
    let (left_data, _): (PretrainingData, PretrainingData) =
        variants::examples_of(&paragraphs, &tokenizer, &left_options, u64::MAX)?;
    let mut left_config: Config = config.clone();
    left_config.is_decoder = true;
    let mut left: CpuEngine = variants::fresh(&left_config, &MLM, 1)?;

    // %%
    let mut side_chart: LiveChart =
        LiveChart::new(LineChart::new("The same held-out words").axes("step", "% guessed right"));
    for (name, model, data, mask) in [
        ("from the left alone", &mut left, &left_data, None),
        ("from both sides", &mut both, &data, Some(special.mask)),
    ] {
        let steps = cloze::lessons::steps(2000);
        let few = variants::one_by_one(&test, 300, mask);
        let batch = |step: u64| data.batch(step - 1, BATCH);
        variants::train(model, steps, &batch, &few, &mut |step, scores| {
            side_chart.push(name, step as f64, 100.0 * scores.mlm_accuracy());
        })?;
        let all = variants::one_by_one(&test, test.masked_rows.len(), mask);
        let right = 100.0 * model.pretraining_scores(&all)?.mlm_accuracy();
        println!(
            "{name}: {right:.1} % of {} words right",
            all.masked_rows.len()
        );
    }
    drop(side_chart);

    // %% [markdown]
    // **Result.** The left-to-right model leads at first: it learns from every token, the other from
    // two of five. Then it levels off, because what comes before a word does not always determine it.
    // The model with both sides keeps improving and ends ahead, with 87.6 % against 85.1 %. (A small
    // lead: with 853 words each share is uncertain by about one point.)
    //
    // In the paper the masked model converges marginally slower than the left-to-right one, but
    // overtakes it in accuracy almost immediately ([Devlin et al.
    // 2019](https://arxiv.org/abs/1810.04805), appendix C.1, figure 5: MNLI after fine-tuning). On
    // tasks (BERT-base, dev sets; table 5):
    //
    // | | MNLI-m | QNLI | MRPC | SST-2 | SQuAD 1.1, F1 |
    // |---|---:|---:|---:|---:|---:|
    // | BERT | 84.4 | 88.4 | 86.7 | 92.7 | 88.5 |
    // | without NSP | 83.9 | 84.9 | 86.5 | 92.6 | 87.9 |
    // | left to right, without NSP | 82.1 | 84.3 | 77.5 | 92.1 | 77.8 |
    //
    // Finding an answer in a paragraph needs both sides: without them F1 drops by ten points. Whether
    // a review is friendly can be read from the left.

    // %% [markdown]
    // ## 2. A student's first parameters (DistilBERT)
    //
    // **Question.** A small model, the *student*, could start from random numbers. But there is a
    // trained model of the same width, its *teacher*. DistilBERT has half of BERT's layers, and it
    // starts as a copy of one layer out of two ([Sanh et al.
    // 2019](https://arxiv.org/abs/1910.01108), section 3). We copy embeddings and head too. What is
    // such a start worth?
    //
    // Our teacher has four layers, our student two.

    // %%
    let teacher_config: Config = variants::config_of(4, &tokenizer);
    let mut teacher: CpuEngine = variants::fresh(&teacher_config, &MLM, 1)?;
    {
        let batch = |step: u64| data.batch(step - 1, BATCH);
        let steps = cloze::lessons::steps(1600);
        let scores = variants::train(&mut teacher, steps, &batch, &test, &mut |_, _| {})?;
        println!("the teacher: {}", variants::summary(&scores));
    }

    // %% [markdown]
    // A model's parameters are one flat list. Its `Layout` knows which range belongs to which name:
    // `layout.iter()` visits all (parameter, range), with the name in `parameter.name`, and
    // `layout.find(name)` returns one as `Option<(parameter, range)>`. In a smaller model the same
    // name has another range.
    //
    // **Exercise 28.2.** The teacher has $k$ times as many layers as the student. Return the list of
    // the teacher's layers that the student gets, $0, k, 2k, \dots$, and the student's parameters.
    // Every parameter is a copy: that of a layer from the chosen layer, any other from the same name.

    // %%
    /// Splits `encoder.layer.3.output.dense.weight` into 3 and `output.dense.weight`.
    fn in_layer(name: &str) -> Option<(usize, &str)> {
        let (layer, rest) = name.strip_prefix("encoder.layer.")?.split_once('.')?;
        Some((layer.parse().ok()?, rest))
    }

    // %%
    fn first_parameters(
        teacher: (&Config, &Layout, &[f32]),
        student: (&Config, &Layout),
    ) -> (Vec<usize>, Vec<f32>) {
        // BEGIN SOLUTION
        cloze::solution!("28.2");
        let (their_config, their_layout, theirs) = teacher;
        let (config, layout) = student;
        let every = their_config.num_hidden_layers / config.num_hidden_layers;
        let layers: Vec<usize> = (0..config.num_hidden_layers).map(|i| i * every).collect();
        let mut values = vec![0.0; layout.total()];
        for (parameter, to) in layout.iter() {
            let name = match in_layer(&parameter.name) {
                Some((layer, rest)) => format!("encoder.layer.{}.{rest}", layers[layer]),
                None => parameter.name.clone(),
            };
            if let Some((_, from)) = their_layout.find(&name) {
                values[to].copy_from_slice(&theirs[from]);
            }
        }
        (layers, values)
        // END SOLUTION
    }

    // %%
    check!("28.2", |judge| {
        for (deep, shallow) in [(4, 2), (6, 2), (24, 12), (3, 3)] {
            let config = |layers| Config::new(layers, 8, 2, 12, 20);
            let (their_config, my_config) = (config(deep), config(shallow));
            let their_layout = Layout::new(&their_config, &MLM);
            let my_layout = Layout::new(&my_config, &MLM);
            // Each number is its own place in the list.
            let theirs: Vec<f32> = (0..their_layout.total()).map(|i| i as f32).collect();
            let (layers, values) = first_parameters(
                (&their_config, &their_layout, &theirs),
                (&my_config, &my_layout),
            );
            let every = deep / shallow;
            let of = format!("for a teacher of {deep} layers and a student of {shallow}");
            let expected: Vec<usize> = (0..shallow).map(|i| i * every).collect();
            let first: Vec<usize> = (0..shallow).collect();
            let last: Vec<usize> = (1..=shallow).map(|i| i * every - 1).collect();
            judge.holds(
                &format!("the layers {of} are {expected:?}; yours are {layers:?}"),
                every == 1 || layers != first,
                "These are the teacher's first layers. The student's layers are spread over the whole \
                 depth of the teacher.",
            );
            judge.holds(
                &format!("the layers {of} are {expected:?}; yours are {layers:?}"),
                every == 1 || layers != last,
                "You take the last layer of each group. The student gets the first: layer 0 is the \
                 one that reads embeddings.",
            );
            judge.same_list(
                &format!("the list of layers {of}"),
                &layers,
                &expected,
                "One layer out of so many, starting with layer 0.",
            );
            judge.equal(
                &format!("the number of parameters {of}"),
                values.len(),
                my_layout.total(),
                "The list has the length of the student's layout, not of the teacher's.",
            );
            judge.holds(
                &format!("{of}, each parameter stands in the student's range of its name"),
                every == 1 || values != theirs[..values.len()],
                "Yours are the first numbers of the teacher's list: you read it at the student's \
                 ranges. Ask the teacher's layout where a name stands in its own list.",
            );
            for (parameter, to) in my_layout.iter() {
                let name = &parameter.name;
                let Some(yours) = values.get(to) else {
                    break;
                };
                let (wanted, copied) = match in_layer(name) {
                    Some((layer, rest)) => (
                        format!("encoder.layer.{}.{rest}", layer * every),
                        "the layers",
                    ),
                    None => (name.clone(), "embeddings and head"),
                };
                let has = |range: std::ops::Range<usize>| theirs[range] == *yours;
                let right = their_layout.find(&wanted).is_some_and(|(_, at)| has(at));
                let what = format!("{of}, {name} is the teacher's {wanted}");
                judge.holds(
                    &what,
                    right || yours.iter().any(|&value| value != 0.0),
                    &format!("Yours is all 0: nothing was copied there. Copy {copied} too."),
                );
                judge.holds(
                    &what,
                    right || !their_layout.find(name).is_some_and(|(_, at)| has(at)),
                    "Yours is the teacher's parameter of the same name, from the layer of the same \
                     number. Look up the name with the number from the list of layers.",
                );
                let found = their_layout.iter().find(|(_, at)| has(at.clone()));
                let found = found.map_or("no parameter of the teacher", |(p, _)| &p.name);
                judge.holds(
                    &what,
                    right,
                    &format!(
                        "Yours is {found}. Exchange the whole number of the layer, and only once: \
                         `layer.11` begins with `layer.1`."
                    ),
                );
            }
            let crates = student_of((&their_layout, &theirs), &my_layout, &expected);
            judge.holds(
                "the crate's `student_of` copies the same parameters",
                crates.is_ok_and(|crates| crates == values),
                "Compare yours with it, range by range.",
            );
        }
    });

    // %%
    let student_config: Config = variants::config_of(2, &tokenizer);
    let student_layout: std::sync::Arc<Layout> = Layout::new(&student_config, &MLM);
    // What your function returns for them, by the crate's own.
    let inherited: Vec<f32> = student_of(
        (teacher.layout(), &teacher.parameters()?),
        &student_layout,
        &[0, 2],
    )?;

    // %% [markdown]
    // **Experiment.** Two students train for the same number of steps, without any help of the
    // teacher. Only their first parameters differ: random, or your copy. Predict first: is a model
    // with two of four layers removed any better than random numbers *before* it trains?

    // %%
    if solved!("28.2") {
        let (_, copied) = first_parameters(
            (&teacher_config, teacher.layout(), &teacher.parameters()?),
            (&student_config, &student_layout),
        );
        let batch = |step: u64| data.batch(step - 1, BATCH);
        let mut chart = LiveChart::new(
            LineChart::new("Two starts, no teacher").axes("step", "held-out nats a blank"),
        );
        for (name, values) in [
            ("random start", student_layout.initialise(1)),
            ("copied start", copied),
        ] {
            let mut model = CpuEngine::new(&student_config, &student_layout, values)?;
            let before = model.pretraining_scores(&test)?.mean_mlm_loss();
            let steps = cloze::lessons::steps(400);
            let after = variants::train(&mut model, steps, &batch, &test, &mut |step, s| {
                chart.push(name, step as f64, s.mean_mlm_loss());
            })?;
            let after = variants::summary(&after);
            println!("{name}: {before:.2} nats before training, then {after}");
        }
    }

    // %% [markdown]
    // **Result.** Before training, the copy with two of four layers is at 2.94 nats; the random start
    // is at 6.91, which is $\ln 1000$, a guess among all tokens. After 400 steps the copy is at 1.11,
    // close to its teacher's 0.95, and the random start at 3.70.

    // %% [markdown]
    // ## 3. A teacher's doubts (DistilBERT)
    //
    // **Question.** A teacher has more to give than its layers. For *At noon they ate bread and
    // [MASK]* the text has one answer. A trained model knows more: soup is likely, milk possible, an
    // anvil is not. Its probabilities teach more than the bare answer ([Hinton et al.
    // 2015](https://arxiv.org/abs/1503.02531), section 2). In *distillation* the student learns to
    // reproduce them.
    //
    // At a blank, let $z^t$ be the teacher's logits and $z^s$ the student's. Both are divided by a
    // *temperature* $T$ before the softmax; if it is above 1, small probabilities become larger:
    //
    // $$ p = \operatorname{softmax}(z^t / T), \qquad q = \operatorname{softmax}(z^s / T), \qquad
    //    L_{soft} = T^2 \sum_v p_v \ln \frac{p_v}{q_v} $$
    //
    // The sum over the vocabulary is the *Kullback-Leibler divergence*: 0 if the student agrees with
    // the teacher everywhere, and positive otherwise. Its gradients shrink as $1/T^2$; the factor
    // $T^2$ makes up for that.
    //
    // **Exercise 28.3.** Write $L_{soft}$ for one blank.

    // %%
    fn soft_loss(student: &[f32], teacher: &[f32], temperature: f64) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("28.3");
        let logarithms = |logits: &[f32]| -> Vec<f64> {
            let scaled: Vec<f64> = logits.iter().map(|&z| f64::from(z) / temperature).collect();
            let largest = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scaled.iter().map(|z| (z - largest).exp()).sum();
            scaled.iter().map(|z| z - largest - sum.ln()).collect()
        };
        let (q, p) = (logarithms(student), logarithms(teacher));
        let divergence: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
        temperature * temperature * divergence
        // END SOLUTION
    }

    // %% [markdown]
    // DistilBERT's student learns from three losses ([Sanh et al.
    // 2019](https://arxiv.org/abs/1910.01108), section 2):
    //
    // $$ L = 5\, L_{soft} + 2\, L_{mlm} + 1\, L_{cos} $$
    //
    // $L_{mlm}$ is the loss of lesson 07, $L_{cos}$ is one minus the cosine between the last hidden
    // states of both models. (The weights and $T = 2$ are those of its published command line.) The
    // check compares your loss with the engine's on a real batch:

    // %%
    let mut student: CpuEngine =
        CpuEngine::new(&student_config, &student_layout, inherited.clone())?;
    let some: PretrainingBatch = data.batch(0, 4)?;
    let answers: SoftTargets = variants::answers_to(&mut teacher, &some)?;
    let own: Vec<f32> = student.masked_lm_logits(&some.packed, &some.masked_rows)?;
    let recipe: Distillation = Distillation::default();
    let dropout: Dropout = Dropout { seed: 1, step: 1 };
    let taught: DistillationScores =
        student.distillation_gradients_of_part(&some, &answers, recipe.weights(&some), dropout)?;

    // %%
    check!("28.3", |judge| {
        judge.close(
            "the loss of a student that agrees with its teacher",
            soft_loss(&[1.0, 2.0, 0.5], &[1.0, 2.0, 0.5], 2.0),
            0.0,
            1e-9,
            "There is nothing left to learn. If yours is not 0, is it the cross-entropy, -Σ p ln q, \
             without Σ p ln p?",
        );
        let yours = soft_loss(&[0.0, 0.0], &[2.0, 0.0], 1.0);
        judge.holds(
            &format!("soft_loss([0, 0], [2, 0], T = 1) is 0.3278; yours is {yours:.4}"),
            (yours - 0.433_781).abs() > 1e-4,
            "You exchanged teacher and student: the probabilities before the logarithm are the \
             teacher's.",
        );
        judge.close(
            "soft_loss([0, 0], [2, 0], T = 1)",
            yours,
            0.327_813,
            1e-5,
            "p = (0.8808, 0.1192), q = (0.5, 0.5): Σ p ln(p / q).",
        );
        let yours = soft_loss(&[0.0, 0.0], &[2.0, 0.0], 2.0);
        judge.holds(
            &format!("the same at T = 2 is 0.4438; yours is {yours:.4}"),
            (yours - 0.110_944).abs() > 1e-4,
            "The factor T² is missing.",
        );
        judge.close(
            "the same at T = 2",
            yours,
            0.443_777,
            1e-4,
            "Both logits are divided by T before the softmax; the sum is multiplied by T².",
        );
        let far = soft_loss(&[0.0, 4000.0], &[4000.0, 0.0], 2.0);
        judge.holds(
            &format!("logits of 4000 give a finite loss; yours is {far}"),
            far.is_finite(),
            "exp(2000) is too large and ln(0) too small: subtract the largest logit, and work with \
             logarithms.",
        );
        let classes = tokenizer.vocab_size();
        let soft: f64 = own
            .chunks(classes)
            .zip(answers.logits.chunks(classes))
            .map(|(student, teacher)| soft_loss(student, teacher, recipe.temperature))
            .sum();
        judge.close(
            "the mean soft loss of a real student",
            soft / some.masked_rows.len() as f64,
            taught.soft / some.masked_rows.len() as f64,
            1e-3,
            "This is what the crate's engine computes.",
        );
    });

    // %% [markdown]
    // **Experiment.** The two starts again, now with all three losses.

    // %%
    let mut taught_chart: LiveChart = LiveChart::new(
        LineChart::new("Two starts, with a teacher").axes("step", "held-out nats a blank"),
    );
    for (name, values) in [
        ("random start", student_layout.initialise(1)),
        ("copied start", inherited.clone()),
    ] {
        let steps = cloze::lessons::steps(400);
        let mut model = CpuEngine::new(&student_config, &student_layout, values)?;
        let seen = &mut |step: u64, scores: &PretrainingScores| {
            taught_chart.push(name, step as f64, scores.mean_mlm_loss());
        };
        let scores = variants::train_student(&mut model, &mut teacher, &data, steps, &test, seen)?;
        println!("{name}: {}", variants::summary(&scores));
    }
    drop(taught_chart);

    // %% [markdown]
    // ## How sure is all this?
    //
    // Each of these comparisons is one run on a small and very regular text. Train both students
    // without a teacher three times, on other batches (and each random start with other numbers), to
    // see how far runs differ by chance:

    // %%
    for copied in [false, true] {
        let mut results: Vec<String> = Vec::new();
        for seed in 1..=3 {
            let steps = cloze::lessons::steps(400);
            let values = match copied {
                true => inherited.clone(),
                false => student_layout.initialise(seed),
            };
            let mut model = CpuEngine::new(&student_config, &student_layout, values)?;
            let batch = |step: u64| data.batch(step - 1 + 100_000 * seed, BATCH);
            let scores = variants::train(&mut model, steps, &batch, &test, &mut |_, _| {})?;
            results.push(format!("{:.3}", scores.mean_mlm_loss()));
        }
        println!("copied start: {copied}: {} nats", results.join(", "));
    }

    // %% [markdown]
    // **Result.** Random starts differ by 0.15 nats, copied starts by 0.03. A difference smaller than
    // that means nothing. Our four students, in held-out nats:
    //
    // | start | without a teacher | with a teacher |
    // |---|---:|---:|
    // | random | 3.70 | 3.28 |
    // | copied | 1.11 | 1.10 |
    //
    // The copied start wins by far. The teacher's losses help the random start; for the copied start
    // our experiment shows no effect. DistilBERT's authors, with much more training, found one (means
    // over GLUE's tasks: scores of their table 1, differences from DistilBERT in their table 4):
    //
    // | | layers | GLUE, score | GLUE, difference |
    // |---|---:|---:|---:|
    // | BERT-base | 12 | 79.5 | |
    // | DistilBERT | 6 | 77.0 | |
    // | without $L_{mlm}$ | 6 | | -0.31 |
    // | without $L_{cos}$ | 6 | | -1.46 |
    // | without $L_{soft}$ | 6 | | -2.96 |
    // | with all three, from random weights | 6 | | -3.69 |
    //
    // The teacher's probabilities matter more than the right answers, and the start more than any
    // single loss.

    // %% [markdown]
    // ## What goes wrong
    //
    // The crate's error for a teacher and a student of different width, and for a student that
    // inherits a layer which its teacher does not have:

    // %%
    let narrow: Config = Config::new(1, 64, 2, 256, tokenizer.vocab_size());
    let mut small: CpuEngine = variants::fresh(&narrow, &MLM, 1)?;
    let weights = recipe.weights(&some);
    if let Err(error) = small.distillation_gradients_of_part(&some, &answers, weights, dropout) {
        println!("{error}");
    }
    let whole: Vec<f32> = teacher.parameters()?;
    if let Err(error) = student_of((teacher.layout(), &whole), &student_layout, &[0, 4]) {
        println!("{error}");
    }

    // %% [markdown]
    // And mistakes that raise no error:
    //
    // - **A left-to-right model that is nearly always right.** It sees the token that it has to
    //   predict: the mask allows `k <= q + 1`, or the labels are not shifted.
    // - **A copied start that is no better than a random one.** The numbers were copied to the wrong
    //   ranges.
    // - **A student that learns nothing from its teacher.** The teacher's answers belong to another
    //   batch, or were computed with dropout, or only one model's logits were divided by $T$.

    // %% [markdown]
    // ## Expected numbers
    //
    // - the same 853 held-out words: 85.1 % right from the left alone, 87.6 % from both sides;
    // - the teacher of four layers: 0.951 nats a blank, 78.0 % right;
    // - before training: random start 6.91 nats, copied start 2.94;
    // - trained without a teacher: random start 3.701, copied start 1.111;
    // - trained with a teacher: random start 3.275, copied start 1.095;
    // - three seeds: random start 3.776, 3.636 and 3.782; copied start 1.120, 1.099 and 1.132.

    // %% [markdown]
    // ## On real text
    //
    // `cloze pretrain --left-to-right --text FOLDER --out DIR` trains a model that reads from the
    // left, and `cloze distill --teacher DIR --text FOLDER --out DIR` teaches a student.

    // %% [markdown]
    // ## Open questions
    //
    // 1. A left-to-right model predicts every token, BERT 15 % of them. Yours saw the same number of
    //    steps. How would you compare them at the same number of *predictions*, and which question
    //    does each comparison answer?
    // 2. DistilBERT's program copies layers 0, 2, 4, 7, 9 and 11 of BERT's 12. Let yours start from
    //    other layers with `student_of`: 0 and 1, 1 and 3, 2 and 3. Which choice is clearly worse, and
    //    what input was its first layer trained on?
    //
    // The crate's source of this part: `src/engine/distillation.rs` and `src/train/distill.rs`. This
    // is the last lesson of its track. [Lesson 21](21_ship_it.rs) turns a model into a program.

    // %% [end]
    cloze::lessons::finish("28_students")
}
