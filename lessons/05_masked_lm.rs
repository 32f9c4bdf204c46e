// ---
// title = "Masked language modelling: learn by filling blanks"
// summary = "Mask tokens, measure the loss, build the head over the word table, train a tiny BERT with a live chart and let it fill blanks."
// minutes = 55
// seconds = 40
// needs = ["01", "04"]
//
// [[exercise]]
// id = "05.1"
// title = "Choose tokens and disguise them"
// hints = [
//     "Go over the positions. Skip special tokens (`special.contains(id)`). `draws.uniform()` is a number in [0, 1): a token is chosen where it is below 0.15.",
//     "For a chosen token draw a second number: below 0.8 the token becomes `special.mask`, below 0.9 a random one, else it stays.",
//     "The random token is `draws.below(vocabulary)`. Push `(position, original id)` to the targets in all three cases: the model must predict it even where it was left as it is.",
// ]
//
// [[exercise]]
// id = "05.2"
// title = "Cross-entropy of one prediction"
// hints = [
//     "-ln softmax(logits)[label] is ln(Σ exp(logit)) - logits[label]: one sum, one logarithm, one subtraction.",
//     "exp(1000) is infinite in f64. Subtract the largest logit from all of them first; the difference does not change, the overflow is gone.",
//     "With m the largest logit: m + ln(Σ exp(logit - m)) - logits[label]. Compute in f64: `f64::from(logit)`. The largest of f32s: `logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)`.",
// ]
//
// [[exercise]]
// id = "05.3"
// title = "The head: from a vector to logits"
// hints = [
//     "Follow the formula from the inside: `head.dense.forward(rows)`, `gelu(..)`, `head.norm.forward(..)`. Then the product with the table, then the bias.",
//     "The table is (V, H) and the vectors are (blanks, H): turned over it is (H, V), `words.clone().permute::<_, Axes2<1, 0>>()`, and `x.matmul(..)` gives (blanks, V).",
//     "The bias is (V); every row takes the same one: `let shape = *product.shape(); product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)`.",
// ]
//
// [[exercise]]
// id = "05.4"
// title = "The loss of a model without context"
// hints = [
//     "The share of token t is p = count / total; its contribution is -p ln p.",
//     "Leave out tokens that never occur: 0 · ln 0 is NaN for a computer and 0 for information theory.",
// ]
//
// [[exercise]]
// id = "05.5"
// title = "The most probable tokens for a blank"
// hints = [
//     "Softmax first: exp(logit - largest), divided by the sum of all of them.",
//     "Sort the pairs (token id, probability) by falling probability: `sort_by(|a, b| b.1.total_cmp(&a.1))`, then `truncate(k)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 05 · Masked language modelling: learn by filling blanks
    //
    // In this lesson a BERT learns English from nothing but text: some tokens are covered, and the
    // model must say what stood there. You write the masking, the loss, the model's head, the baseline to
    // beat and the filling of blanks, and train a small model in half a minute while you watch its loss fall.
    // What you end with is what `cloze pretrain` and `cloze fill-mask` do.
    //
    // *About 55 minutes; the longest cell trains for some twenty seconds on two cores.*

    // %%
    use cloze::data::pretraining::masking::{Masker, Target};
    use cloze::engine::PretrainingScores;
    use cloze::engine::optimizer::{Optimizer, Update};
    use cloze::model::{Dropout, MaskedLmHead, Part, Rows, pick};
    use cloze::prelude::*;
    use cloze::random::{Draws, Site, Stream};
    use cloze::text::{Paragraph, SpecialIds, embedded};
    use cloze::train::schedule::Schedule;
    use cloze::view::style::number;

    // %% [markdown]
    // ## Where we are going
    //
    // The text that comes with Cloze, a vocabulary for it (lesson 01), and one sentence as the model
    // will see it: orange tokens are to be predicted.

    // %%
    let paragraphs: Vec<Paragraph> = embedded::paragraphs().collect();
    let tokenizer: WordPiece = WordPiece::train(
        paragraphs.iter().map(|p| Ok(p.text.clone())),
        1_000,
        Casing::Uncased,
    )?;
    let special: SpecialIds = tokenizer.special();
    println!(
        "{} paragraphs, {} pieces",
        number(paragraphs.len() as f64),
        number(tokenizer.vocab_size() as f64)
    );

    // %%
    let original = tokenizer.encode_with_special(&paragraphs[1].text);
    let mut seen: Vec<u32> = original.ids.clone();
    let targets: Vec<Target> = Masker::new(&tokenizer, 0.15, false, 1).mask(0, &mut seen);
    let masked: Vec<String> = seen
        .iter()
        .map(|id| tokenizer.token(*id).unwrap_or("?").to_owned())
        .collect();
    let mut asked: Vec<String> = vec![String::new(); seen.len()];
    let mut colors: Vec<u32> = vec![0; seen.len()];
    for target in &targets {
        asked[target.position as usize] = tokenizer.token(target.label).unwrap_or("?").into();
        colors[target.position as usize] = 1;
    }
    show!(
        TokenStrip::new("What the model sees, and what it must say", &masked)
            .row("answer", &asked)
            .colored(&colors)
    );

    // %% [markdown]
    // ## The idea
    //
    // A left-to-right language model predicts each word from those before it. BERT wants both sides
    // at once, but a model that sees a word can't be asked for it. So some tokens are hidden, and
    // the loss is the cross-entropy at these positions $M$ alone
    // ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3.1 and appendix A.1):
    //
    // $$ L = -\frac{1}{|M|} \sum_{i \in M} \ln p(x_i \mid \tilde x) $$
    //
    // where $\tilde x$ is the text after masking. 15 % of the tokens are chosen. If all of them became
    // `[MASK]`, the model would never see a `[MASK]` after pre-training and could learn to care only
    // where one stands. So of the chosen ones
    //
    // - 80 % become `[MASK]`,
    // - 10 % become a random token: any visible token may be wrong, so every position needs context;
    // - 10 % stay as they are: what is visible is still mostly right.
    //
    // **Exercise 05.1.** Do it for one sequence. Give back the disguised ids and the targets as
    // (position, original id). Choose each token on its own, with probability 0.15, but never a
    // special one such as `[CLS]`: `special.contains(id)` tells, and `special.mask` is the id of
    // `[MASK]`. A random token is any id below `vocabulary`. `draws.uniform()` gives the next random
    // number in [0, 1), and `draws.below(n)` the next whole number below `n`.

    // %%
    fn disguise(
        ids: &[u32],
        special: SpecialIds,
        vocabulary: u32,
        draws: &mut Draws,
    ) -> (Vec<u32>, Vec<(usize, u32)>) {
        // BEGIN SOLUTION
        cloze::solution!("05.1");
        let mut seen: Vec<u32> = ids.to_vec();
        let mut targets: Vec<(usize, u32)> = Vec::new();
        for (position, &id) in ids.iter().enumerate() {
            if special.contains(id) || draws.uniform() >= 0.15 {
                continue;
            }
            targets.push((position, id));
            let how = draws.uniform();
            if how < 0.8 {
                seen[position] = special.mask;
            } else if how < 0.9 {
                seen[position] = draws.below(vocabulary);
            }
        }
        (seen, targets)
        // END SOLUTION
    }

    // %%
    /// Counts over many sequences: tokens that could be chosen, and the chosen ones that became
    /// `[MASK]`, another token, or stayed.
    #[derive(Debug, Default)]
    struct Shares {
        tokens: usize,
        chosen: usize,
        mask: usize,
        other: usize,
        same: usize,
    }

    impl Shares {
        fn add(&mut self, seen: &[u32], targets: &[(usize, u32)], special: SpecialIds) {
            self.chosen += targets.len();
            for &(position, label) in targets {
                match seen.get(position) {
                    Some(&id) if id == special.mask => self.mask += 1,
                    Some(&id) if id == label => self.same += 1,
                    _ => self.other += 1,
                }
            }
        }

        fn percent(&self, part: usize) -> f64 {
            100.0 * part as f64 / self.chosen.max(1) as f64
        }
    }

    let sequences: Vec<Vec<u32>> = paragraphs
        .iter()
        .map(|p| tokenizer.encode_with_special(&p.text).ids)
        .collect();
    let vocabulary: u32 = tokenizer.vocab_size() as u32;

    check!("05.1", |judge| {
        let mut shares = Shares::default();
        let mut random = vec![false; vocabulary as usize];
        for (number, ids) in sequences.iter().enumerate() {
            let mut draws = Stream::new(7, 0, Site::Masking, number as u64).draws();
            let (seen, targets) = disguise(ids, special, vocabulary, &mut draws);
            judge.equal(
                "the number of ids that come back",
                seen.len(),
                ids.len(),
                "Every position keeps its place: ids are replaced, never removed.",
            );
            for &(position, label) in &targets {
                judge.equal(
                    &format!("the label at position {position} of sequence {number}"),
                    Some(label),
                    ids.get(position).copied(),
                    "A target names the token that stood there before.",
                );
                judge.holds(
                    "no special token is chosen",
                    !special.contains(label),
                    "There is nothing to learn from guessing [CLS] and [SEP].",
                );
                let now = seen.get(position).copied().unwrap_or(special.mask);
                if now != label && now != special.mask {
                    judge.holds(
                        &format!("the random token {now} is below {vocabulary}"),
                        now < vocabulary,
                        "There is no such token: draw below the size of the vocabulary.",
                    );
                    random[now.min(vocabulary - 1) as usize] = true;
                }
            }
            let targeted: Vec<usize> = targets.iter().map(|t| t.0).collect();
            let changed = (0..ids.len().min(seen.len())).filter(|&i| ids[i] != seen[i]);
            judge.holds(
                "only chosen positions are changed",
                changed.into_iter().all(|i| targeted.contains(&i)),
                "A token that changes must be among the targets.",
            );
            shares.tokens += ids.iter().filter(|id| !special.contains(**id)).count();
            shares.add(&seen, &targets, special);
        }
        judge.close(
            "the share of chosen tokens in percent",
            100.0 * shares.chosen as f64 / shares.tokens as f64,
            15.0,
            0.7,
            "Each token that is not special is chosen with probability 0.15.",
        );
        let kinds = [
            ("[MASK]", shares.mask, 80.0),
            ("random", shares.other, 10.0),
            ("kept", shares.same, 10.0),
        ];
        for (kind, count, expected) in kinds {
            judge.close(
                &format!("the share of {kind} among the chosen in percent"),
                shares.percent(count),
                expected,
                1.5,
                "Of the chosen tokens 80 % are masked, 10 % random, 10 % kept, and all are \
                 targets. One number decides between the three: a second one, drawn for what the \
                 first has left, takes a tenth of the rest alone.",
            );
        }
        let different = random.iter().filter(|drawn| **drawn).count();
        judge.holds(
            &format!(
                "the random tokens come from everywhere, yours are {different} different ones"
            ),
            different > vocabulary as usize / 2,
            "Any token of the vocabulary may stand there: what must `draws.below` be given?",
        );
    });

    // %% [markdown]
    // The crate's `Masker` draws differently (it chooses exactly 15 % of each sequence, rounded, so
    // that no short sentence goes without a target), but its shares are the same. Compare:

    // %%
    let masker: Masker = Masker::new(&tokenizer, 0.15, false, 7);
    let mut crate_shares: Shares = Shares::default();
    for (number, ids) in sequences.iter().enumerate() {
        let mut seen = ids.clone();
        let targets: Vec<(usize, u32)> = masker
            .mask(number as u64, &mut seen)
            .iter()
            .map(|t| (t.position as usize, t.label))
            .collect();
        crate_shares.add(&seen, &targets, special);
    }
    show!(
        BarChart::new("The crate's disguises of chosen tokens")
            .unit("%")
            .bar("[MASK]", crate_shares.percent(crate_shares.mask))
            .bar("random token", crate_shares.percent(crate_shares.other))
            .bar("as it was", crate_shares.percent(crate_shares.same))
    );

    // %% [markdown]
    // ## The loss
    //
    // The model gives one number for each token of the vocabulary at each masked position: the
    // **logits** $z$, shape `masked × V`. Softmax makes probabilities of them, and the loss of one
    // position with the right token $y$ is
    //
    // $$ -\ln \operatorname{softmax}(z)_y = \ln \sum_v e^{z_v} - z_y . $$
    //
    // **Exercise 05.2.** Write it for one position, so that large logits don't overflow.

    // %%
    fn cross_entropy(logits: &[f32], label: usize) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("05.2");
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&z| f64::from(z - largest).exp()).sum();
        f64::from(largest) + sum.ln() - f64::from(logits[label])
        // END SOLUTION
    }

    // %% [markdown]
    // To judge it we need a model. `tiny` has 2 layers of width 128 (4.4 million parameters in the
    // paper's vocabulary, far fewer in ours). It starts with small random numbers, so it should find
    // every token about equally likely: a loss of $\ln V$. `CpuEngine` runs it: the model of the
    // lessons, written once more with fused kernels and checked against it.
    //
    // One thing differs from the paper: we choose 40 % of the tokens instead of 15 %. The run is short,
    // and each chosen token is something to learn from
    // ([Wettig et al. 2022](https://arxiv.org/abs/2202.08005) find 40 % better than 15 % for models of
    // BERT-large's size, less clearly so for smaller ones).

    // %%
    let mut config: Config = Size::Tiny.config(tokenizer.vocab_size());
    // Dropout protects from learning a text by heart; so short a run can't do that.
    config.hidden_dropout_prob = 0.0;
    config.attention_probs_dropout_prob = 0.0;
    // 0.02 is made for width 768; a narrow model gets going sooner with larger weights.
    config.initializer_range = 0.05;
    let layout: std::sync::Arc<Layout> = Layout::new(&config, &[Part::Encoder, Part::MaskedLm]);
    let mut model: CpuEngine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
    println!("{} parameters", number(layout.total() as f64));

    let options: PretrainingOptions = PretrainingOptions {
        max_len: 32,
        mask_probability: 0.4,
        packing: Packing::Document,
        ..PretrainingOptions::default()
    };
    // Every tenth document is kept apart: the model never trains on it.
    let (data, held_out): (PretrainingData, PretrainingData) = PretrainingData::build_split(
        paragraphs.iter().cloned().map(Ok),
        &tokenizer,
        &options,
        None,
        10,
    )?;
    println!(
        "{} tokens to train on, {} held out",
        number(data.tokens() as f64),
        number(held_out.tokens() as f64)
    );

    // %%
    let test_batch: PretrainingBatch = held_out.batch(0, 64)?;
    let rows: usize = test_batch.masked_rows.len();
    let logits: Vec<f32> = model.masked_lm_logits(&test_batch.packed, &test_batch.masked_rows)?;
    println!("logits: {rows} × {vocabulary}");
    let start: PretrainingScores = model.pretraining_scores(&test_batch)?;

    check!("05.2", |judge| {
        judge.close(
            "cross_entropy(&[0.0, 0.0], 0)",
            cross_entropy(&[0.0, 0.0], 0),
            2f64.ln(),
            1e-6,
            "Two equal logits are two probabilities of one half: -ln 0.5.",
        );
        judge.close(
            "cross_entropy(&[1.0, 3.0, 2.0], 1)",
            cross_entropy(&[1.0, 3.0, 2.0], 1),
            0.407606,
            1e-5,
            "ln(e¹ + e³ + e²) - 3. -2.59? What you subtracted in the exponents must be added again after \
             the logarithm. 3.41? That is the logarithm alone, without the label's logit.",
        );
        judge.close(
            "cross_entropy(&[1000.0, 0.0], 0)",
            cross_entropy(&[1000.0, 0.0], 0),
            0.0,
            1e-6,
            "NaN or infinity here means that exp(1000) was computed: subtract the largest first.",
        );
        judge.close(
            "cross_entropy(&[1000.0, 0.0], 1)",
            cross_entropy(&[1000.0, 0.0], 1),
            1000.0,
            1e-6,
            "Infinity here means that a probability was computed on the way. It is e⁻¹⁰⁰⁰, rounded to 0, and \
             ln 0 is -∞. The right side of the formula needs no probability. 0? Then `label` is not \
             looked at.",
        );
        judge.close(
            "cross_entropy(&[-1000.0, -1000.0], 0)",
            cross_entropy(&[-1000.0, -1000.0], 0),
            2f64.ln(),
            1e-6,
            "The largest of these is -1000, not 0: where does your search for it begin?",
        );
        let losses = logits
            .chunks(vocabulary as usize)
            .zip(&test_batch.masked_labels);
        let sum: f64 = losses
            .map(|(z, label)| cross_entropy(z, *label as usize))
            .sum();
        judge.close(
            "your mean loss of the untrained model",
            sum / rows as f64,
            start.mean_mlm_loss(),
            1e-4,
            "This is what the crate's `model::cross_entropy` gives for the same logits. Does your function \
             look at `label`, and at all logits?",
        );
    });

    // %%
    println!("loss at the start: {:.3}", start.mean_mlm_loss());
    println!(
        "ln(V) = ln({vocabulary}) = {:.3}",
        f64::from(vocabulary).ln()
    );

    // %% [markdown]
    // Remember this check. A fresh classifier whose loss is far from the logarithm of its number of
    // classes has a mistake in it, before any training.
    //
    // ## From a vector to logits
    //
    // Where do the logits come from? The encoder of lesson 04 gives each token $H$ numbers, and the loss
    // wants $V$. BERT's **head** turns the vector $h$ of a blank once more and then compares it with
    // *every row of the word table of lesson 02*:
    //
    // $$ z = E \, \operatorname{LayerNorm}\big(\operatorname{GELU}(W_t\, h + b_t)\big) + b, \qquad
    //    E \in \mathbb{R}^{V \times H}, \quad b \in \mathbb{R}^V $$
    //
    // A token's logit is thus the inner product of what the model expects with that token's own
    // vector, plus a bias that is high for frequent tokens. The table serves twice, at the input and at
    // the output; it is **tied**. A second one would cost BERT-base 23 million numbers; new are
    // only $W_t$, $b_t$, a LayerNorm and the biases $b$, 622,650 numbers. The head stands in Google's
    // code (run_pretraining.py, `get_masked_lm_output`), not in the paper, and is thrown away when the
    // model is fine-tuned.
    //
    // **Exercise 05.3.** Write the head. `rows` are the vectors at the blanks, one a row, `(blanks, H)`;
    // `words` is the table $E$, `(V, H)`; `head.dense` and `head.norm` have a `forward(x)`, and
    // `head.bias` is $b$, `(V)`. `gelu(x)` is the one of lesson 04. The logits are `(blanks, V)`.

    // %%
    const H: usize = 128;
    /// The crate's head: its layers, without the order in which they are used.
    type Head = MaskedLmHead<H, f32, Cpu>;

    fn masked_head(
        head: &Head,
        words: &Rows<H, f32, Cpu>,
        rows: Rows<H, f32, Cpu>,
    ) -> Tensor<(usize, usize), f32, Cpu> {
        // BEGIN SOLUTION
        cloze::solution!("05.3");
        let x = head.norm.forward(gelu(head.dense.forward(rows)));
        let product = x.matmul(words.clone().permute::<_, Axes2<1, 0>>());
        let shape = *product.shape();
        product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)
        // END SOLUTION
    }

    // %% [markdown]
    // To judge it: the lessons' BERT gives the vectors, your head the logits, and `CpuEngine` computes
    // both on its own. A fresh model has biases of 0, which nobody would miss, so all numbers are
    // moved a little first.

    // %%
    let moved: Vec<f32> = (0..layout.total())
        .map(|i| (i % 7) as f32 - 3.0)
        .zip(layout.initialise(2))
        .map(|(by, value)| value + 0.05 * by)
        .collect();
    let (head, words, blanks): (Head, Rows<H, f32, Cpu>, Rows<H, f32, Cpu>) = {
        let dev = Cpu::default();
        let bert: Bert<H, 2, 64, 512, f32, Cpu> = Bert::build(&config, &layout, &moved, &dev)?;
        let all = bert.encode(&test_batch.packed, None, &mut |_, _| {});
        let words = bert.embeddings.words;
        let head = bert.masked_lm.ok_or("the layout has this head")?;
        (head, words, pick(all, &test_batch.masked_rows))
    };
    let expected: Tensor<(usize, usize), f32, Cpu> = {
        let mut engine = CpuEngine::new(&config, &layout, moved)?;
        let logits = engine.masked_lm_logits(&test_batch.packed, &test_batch.masked_rows)?;
        words
            .device()
            .tensor_from_vec(logits, (rows, config.vocab_size))
    };
    show!(blanks.shape().concrete());

    // %%
    check!("05.3", |judge| {
        let yours = masked_head(&head, &words, blanks.clone());
        let scores = |x: Rows<H, f32, Cpu>| x.matmul(words.clone().permute::<_, Axes2<1, 0>>());
        let with_bias = |product: Tensor<(usize, usize), f32, Cpu>| {
            let shape = *product.shape();
            product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)
        };
        let dense = || head.dense.forward(blanks.clone());
        let is = |other: Tensor<(usize, usize), f32, Cpu>| {
            let same = yours.shape().concrete() == other.shape().concrete();
            let apart = || (yours.clone() - other).abs().as_vec();
            same && apart().iter().all(|&gap| gap < 1e-3)
        };
        let slips = [
            (
                scores(head.norm.forward(gelu(dense()))),
                "The bias of the tokens, `head.bias`, is missing.",
            ),
            (
                with_bias(scores(gelu(dense()))),
                "The LayerNorm, `head.norm`, is missing: it stands after the GELU.",
            ),
            (
                with_bias(scores(head.norm.forward(dense()))),
                "The GELU is missing: between the linear layer and the LayerNorm.",
            ),
            (
                with_bias(scores(gelu(head.norm.forward(dense())))),
                "You normalise and then take the GELU. It is the other way round.",
            ),
            (
                with_bias(scores(blanks.clone())),
                "You compare the encoder's vectors with the table as they are: `head.dense`, the GELU and \
                 `head.norm` come first.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds("your logits are those of the engine", !is(slip), said);
        }
        let softmax = expected.clone().softmax::<Axis<1>>();
        judge.holds(
            "your logits are those of the engine",
            !is(softmax),
            "These are probabilities. Give the logits: the loss takes their softmax itself.",
        );
        judge.close_tensor(
            "the logits at the blanks",
            &yours,
            &expected,
            1e-3,
            "The crate's engine gives these.",
        );
    });

    // %% [markdown]
    // ## The baseline
    //
    // How good is good? The simplest model looks at no context at all: it knows how often each token
    // occurs and always gives those shares $p_t$ as its probabilities. Its mean loss is the
    // **entropy** of that distribution,
    //
    // $$ H = -\sum_t p_t \ln p_t , $$
    //
    // and only below it does a model show that it reads.
    //
    // **Exercise 05.4.** Compute it from counts: entry $t$ says how often token $t$ occurs. With
    // the natural logarithm the unit is the **nat**, that of all losses here.

    // %%
    fn entropy(counts: &[u64]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("05.4");
        let total: u64 = counts.iter().sum();
        counts
            .iter()
            .filter(|count| **count > 0)
            .map(|&count| count as f64 / total as f64)
            .map(|p| -p * p.ln())
            .sum()
        // END SOLUTION
    }

    // %%
    check!("05.4", |judge| {
        judge.close(
            "entropy(&[1, 1, 1, 1])",
            entropy(&[1, 1, 1, 1]),
            4f64.ln(),
            1e-9,
            "Four equal shares: ln 4, the loss of a guess among four. 2? That is in bits, with \
             log2. NaN or 0? `count / total` in whole numbers is 0: convert first.",
        );
        judge.close(
            "entropy(&[5, 0])",
            entropy(&[5, 0]),
            0.0,
            1e-9,
            "A token that never occurs contributes nothing; NaN means that ln 0 was taken.",
        );
        let mut counts: Vec<u64> = vec![0; vocabulary as usize];
        for paragraph in &paragraphs {
            for id in tokenizer.encode(&paragraph.text).ids {
                counts[id as usize] += 1;
            }
        }
        judge.close(
            "the entropy of the whole text",
            entropy(&counts),
            data.unigram_entropy(),
            0.05,
            "The crate finds about this for the part that we train on.",
        );
    });

    // %% [markdown]
    // ## Training
    //
    // One step: make a batch (masked anew each time), compute the loss and its gradients, update the
    // parameters. AdamW, the optimizer, is gradient descent that gives each parameter a step length
    // of its own; the schedule sets the learning rate of each step, first rising, then falling.
    // You write both in lesson 07. The chart follows while the loop runs;
    // `chart.chart().save("loss.png")?` before it is dropped would keep it as a picture.

    // %%
    let steps: u64 = cloze::lessons::steps(2500);
    let schedule: Schedule = Schedule {
        peak: 2e-3,
        warmup: steps / 10,
        total: steps,
    };
    let mut chart: LiveChart = LiveChart::new(
        LineChart::new("Masked-LM loss of a tiny BERT")
            .axes("step", "cross-entropy (nats)")
            .reference("ln(V)", f64::from(vocabulary).ln())
            .reference("unigram entropy", data.unigram_entropy()),
    );
    let begun = std::time::Instant::now();
    let mut tokens: usize = 0;
    for step in 1..=steps {
        let batch = data.batch(step - 1, 16)?;
        tokens += batch.packed.rows();
        let dropout = Dropout {
            seed: 1,
            step: step as u32,
        };
        let scores = model.pretraining_gradients(&batch, dropout)?;
        model.update(&Update {
            // The default remembers 1,000 steps of squared gradients: too many for so short a run.
            optimizer: Optimizer {
                beta2: 0.98,
                ..Optimizer::default()
            },
            learning_rate: schedule.rate(step),
            step,
            max_norm: 1.0,
        })?;
        chart.push("training batch", step as f64, scores.mean_mlm_loss());
        if step == 1 || step % 50 == 0 || step == steps {
            let scores = model.pretraining_scores(&test_batch)?;
            chart.push("held out", step as f64, scores.mean_mlm_loss());
        }
    }
    drop(chart);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{seconds:.0} s, {} tokens/s",
        number(tokens as f64 / seconds)
    );

    // %%
    let end: PretrainingScores = model.pretraining_scores(&test_batch)?;
    println!(
        "held-out loss:    {:.3} at the start, {:.3} now",
        start.mean_mlm_loss(),
        end.mean_mlm_loss()
    );
    println!("unigram entropy:  {:.3}", data.unigram_entropy());
    println!(
        "held-out tokens guessed right: {:.1} %",
        100.0 * end.mlm_accuracy()
    );

    // %% [markdown]
    // Look at the curve again. It falls fast to about the unigram entropy (the model learns which
    // tokens are frequent: the head's bias alone can do that), and then further: attention begins to
    // use the neighbours.
    //
    // ## Fill blanks
    //
    // **Exercise 05.5.** From the logits of one position, give the `k` most probable tokens as
    // (id, probability), the most probable first.

    // %%
    fn most_probable(logits: &[f32], k: usize) -> Vec<(u32, f64)> {
        // BEGIN SOLUTION
        cloze::solution!("05.5");
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = logits
            .iter()
            .map(|&z| f64::from(z - largest).exp())
            .collect();
        let sum: f64 = powers.iter().sum();
        let mut tokens: Vec<(u32, f64)> = (0u32..).zip(powers.iter().map(|p| p / sum)).collect();
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
        tokens.truncate(k);
        tokens
        // END SOLUTION
    }

    // %%
    /// The model's logits for the first `[MASK]` of a text.
    fn blank_logits(
        model: &mut CpuEngine,
        tokenizer: &WordPiece,
        text: &str,
    ) -> cloze::Result<Vec<f32>> {
        let ids = tokenizer.encode_with_special(text).ids;
        let mask = tokenizer.special().mask;
        let Some(row) = ids.iter().position(|&id| id == mask) else {
            return Err(cloze::Error::Usage(format!("{text:?} has no [MASK]")));
        };
        let mut batch = Packed::default();
        batch.push(0, &ids, &vec![0; ids.len()]);
        model.masked_lm_logits(&batch, &[row as u32])
    }

    check!("05.5", |judge| {
        let top = most_probable(&[0.0, 2.0, 1.0], 2);
        let ids: Vec<u32> = top.iter().map(|t| t.0).collect();
        judge.same_list(
            "the ids of most_probable(&[0.0, 2.0, 1.0], 2)",
            &ids,
            &[1, 2],
            "Largest logit first, k entries.",
        );
        let sure = top.first().map_or(0.0, |t| t.1);
        judge.close(
            "the first probability",
            sure,
            0.665241,
            1e-5,
            "e² / (e⁰ + e² + e¹). 0.731? You divided by the sum over the k tokens given back, but the others \
             had a share too. 2? That is the logit. 1 or 7.39? Not divided at all.",
        );
        let all: f64 = most_probable(&[1000.0, 999.0, 0.0], 3)
            .iter()
            .map(|t| t.1)
            .sum();
        judge.close(
            "the sum of all probabilities",
            all,
            1.0,
            1e-9,
            "Divide by the sum over the whole vocabulary, after subtracting the largest logit.",
        );
    });

    // %%
    if solved!("05.5") {
        for text in [
            "At noon they ate bread and [MASK] in the harbour.",
            "It was a winter [MASK], and the pond was frozen.",
            "“Where is my rolling pin?” [MASK] Rosa.",
        ] {
            let logits = blank_logits(&mut model, &tokenizer, text)?;
            let bars = most_probable(&logits, 5)
                .into_iter()
                .map(|(id, p)| (tokenizer.token(id).unwrap_or("?").to_owned(), 100.0 * p));
            show!(BarChart::new(text).unit("%").bars(bars));
        }
    }

    // %% [markdown]
    // ## What goes wrong
    //
    // The crate's real answers to two mistakes: a text without a blank, and an input that is longer
    // than the model has positions.

    // %%
    if let Err(error) = blank_logits(&mut model, &tokenizer, "There is no blank here.") {
        println!("{error}");
    }
    let long: String = format!("[MASK] {}", "the river ".repeat(300));
    if let Err(error) = blank_logits(&mut model, &tokenizer, &long) {
        println!("{error}");
    }

    // %% [markdown]
    // And three mistakes that give no error but a curve:
    //
    // - **Stuck at ln(V)**: nothing is learned. A learning rate of 0 (a schedule that has ended), or
    //   labels that do not belong to the masked rows.
    // - **Stuck at the unigram entropy**: the head learns, the encoder does not. Segments or
    //   positions are wrong, the rate is too high, or it is simply too early: every run rests there
    //   for a while.
    // - **Near 0 within a few steps**: the answer is visible. The loss was taken at all positions
    //   rather than at the masked ones, so the model copies.
    //
    // ## Expected numbers
    //
    // - at the start 6.90 against ln(1000) = 6.91; unigram entropy 5.17;
    // - after 2,500 steps a held-out loss of about 0.6, and some 85 % of the held-out blanks filled
    //   right;
    // - the training takes 15 to 25 seconds on two quiet cores;
    // - `“Where is my rolling pin?” [MASK] Rosa.` is filled with `cried`, at 85 % or more; `said`
    //   and `asked` follow.
    //
    // ## On real text
    //
    // `cloze pretrain --text book.txt --size tiny --out model` trains on any text (with next-sentence
    // prediction too) and `cloze fill-mask --model model "The [MASK] sat on the mat."` fills blanks.
    // With `--dtype bf16` the factors of all matrix products are rounded to bf16, numbers of 16 bits
    // with the range of f32 and 8 significant bits; their sums, the parameters and the optimizer
    // stay f32. That is faster on processors with AMX or AVX512-BF16 and on GPUs, and the loss is
    // hardly another. You round to bf16 yourself in lesson 14.
    //
    // ## Open questions
    //
    // 1. Only the chosen tokens give a gradient; a left-to-right model learns from all of them. Try 15 %
    //    and 70 % (`mask_probability`): what happens to the held-out loss, and is it fair to compare
    //    losses that were measured with different shares?
    // 2. The unigram entropy is the loss of a model without context. How would you compute the
    //    baseline of a model that sees the left neighbour only, and where would it lie in the chart?
    //
    // The crate's source of this part: `src/data/pretraining/masking.rs`, `src/model/heads.rs` and
    // `src/train/pretrain.rs`. Next: [lesson 06](06_next_sentence.rs), the paper's second game.

    // %% [end]
    cloze::lessons::finish("05_masked_lm")
}
