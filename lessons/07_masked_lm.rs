// ---
// title = "Masked language modelling: a task made of plain text"
// summary = "Mask tokens, measure surprise as a loss, and build the masked-LM head over the word table: everything with which a BERT learns from plain text."
// track = "core"
// minutes = 47
// seconds = 15
// needs = ["02", "06"]
//
// [[exercise]]
// id = "07.1"
// key = "disguise"
// was = "05.1"
// title = "Choose tokens and disguise them"
// hints = [
//     "Go over the positions. Skip special tokens (`special.contains(id)`). `draws.uniform()` is a number in [0, 1): choose the token if it is below 0.15.",
//     "For a chosen token draw a second number: below 0.8 the token becomes `special.mask`, from 0.8 to 0.9 a random one, otherwise it stays.",
//     "The random token is `draws.below(vocabulary)`. Push `(position, original id)` to the targets in all three cases: the model must predict the token even where it was kept.",
// ]
//
// [[exercise]]
// id = "07.2"
// key = "cross_entropy"
// was = "05.2"
// title = "Cross-entropy of one prediction"
// hints = [
//     "-ln of the softmax at the label is ln(Σ exp(logit)) - logits[label]: one sum, one logarithm, one subtraction.",
//     "exp(1000) is infinite in f64. Subtract the largest logit from all of them first: the softmax does not change, and nothing overflows.",
//     "With m the largest logit: m + ln(Σ exp(logit - m)) - logits[label]. Compute in f64: `f64::from(logit)`. The largest of several f32 numbers: `logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)`.",
// ]
//
// [[exercise]]
// id = "07.3"
// key = "masked_head"
// was = "05.3"
// title = "The masked-LM head: from a vector to logits"
// hints = [
//     "Follow the formula from the inside: `head.dense.forward(rows)`, `gelu(..)`, `head.norm.forward(..)`. Then the product with the table, then the bias.",
//     "The table is (V, H) and the vectors are (blanks, H). Transposed the table is (H, V): `words.clone().permute::<_, Axes2<1, 0>>()`, and `x.matmul(..)` gives (blanks, V).",
//     "The bias is (V), and every row adds the same one: `let shape = *product.shape(); product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 07 · Masked language modelling: a task made of plain text
    //
    // A BERT learns a language from nothing but text: some tokens are hidden, and the model must
    // predict them. In this lesson you write the masking, the loss, and the part that turns vectors
    // into predictions. In lesson 08 they train your own BERT.
    //
    // *About 47 minutes; every cell takes a few seconds at most. You need lessons 02 and 06.*

    // %%
    use cloze::data::pretraining::masking::{Masker, Target};
    use cloze::engine::{PretrainingScores, Recorded};
    use cloze::lessons::support::masked_lm::{self, HeadCase, Shares};
    use cloze::model::{MaskedLmHead, Part, Rows};
    use cloze::prelude::*;
    use cloze::random::{Draws, Site, Stream};
    use cloze::text::{Paragraph, SpecialIds, embedded};
    use cloze::view::style::number;

    // %% [markdown]
    // ## Where we are going
    //
    // First the text that comes with Cloze, and a vocabulary for it (lesson 02):

    // %%
    let paragraphs: Vec<Paragraph> = embedded::paragraphs().collect();
    let tokenizer: WordPiece = WordPiece::train(
        paragraphs.iter().map(|p| Ok(p.text.clone())),
        1_000,
        Casing::Uncased,
    )?;
    let special: SpecialIds = tokenizer.special();
    let vocabulary: u32 = tokenizer.vocab_size() as u32;
    let sequences: Vec<Vec<u32>> = paragraphs
        .iter()
        .map(|p| tokenizer.encode_with_special(&p.text).ids)
        .collect();
    println!(
        "{} paragraphs, {vocabulary} pieces; the first: {}",
        number(paragraphs.len() as f64),
        paragraphs[0].text
    );

    // %% [markdown]
    // This text is generated (lesson 02): what a model learns here is a small grammar, not English.
    // The sentences repeat their patterns, so a small model can learn most of them within a minute.
    //
    // Here is a paragraph as the model will see it. It must predict the coloured tokens:

    // %%
    let mut seen: Vec<u32> = sequences[1].clone();
    let targets: Vec<Target> = Masker::new(&tokenizer, 0.15, false, 1).mask(0, &mut seen);
    show!(masked_lm::masked_strip(&tokenizer, &seen, &targets));

    // %% [markdown]
    // ## The idea
    //
    // A left-to-right language model predicts each word from the words before it. BERT should use
    // the words on both sides, but a model that sees a word can't be asked to predict it. So some
    // tokens are hidden, and only they count in the loss ([Devlin et al.
    // 2019](https://arxiv.org/abs/1810.04805), section 3.1 and appendix A.1).
    //
    // 15 % of the tokens are chosen. If all of them became `[MASK]`, pre-training would differ from
    // every later use, where no `[MASK]` occurs. So of the chosen tokens
    //
    // - 80 % become `[MASK]`;
    // - 10 % become a random token: any visible token may be wrong, so the model must check every
    //   token against its context;
    // - 10 % stay as they are, which biases the vector of a token towards the word that is really
    //   there.
    //
    // **Exercise 07.1.** Write the masking of one sequence. Return the new ids and the targets as
    // (position, original id). Choose each token independently with probability 0.15, but never a
    // special one such as `[CLS]`: `special.contains(id)` says whether it is one, and `special.mask`
    // is the id of `[MASK]`. A random token is any id below `vocabulary`. `draws.uniform()` returns
    // the next random number in [0, 1), and `draws.below(n)` the next whole number below `n`.

    // %%
    fn disguise(
        ids: &[u32],
        special: SpecialIds,
        vocabulary: u32,
        draws: &mut Draws,
    ) -> (Vec<u32>, Vec<(usize, u32)>) {
        // BEGIN SOLUTION
        cloze::solution!("07.1");
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
    check!("07.1", |judge| {
        let mut shares = Shares::default();
        let mut random = vec![false; vocabulary as usize];
        for (number, ids) in sequences.iter().enumerate() {
            let mut draws = Stream::new(7, 0, Site::Masking, number as u64).draws();
            let (seen, targets) = disguise(ids, special, vocabulary, &mut draws);
            judge.equal(
                "the number of ids that you return",
                seen.len(),
                ids.len(),
                "Every position keeps its place: ids are replaced, never removed.",
            );
            for &(position, label) in &targets {
                judge.equal(
                    &format!("the label at position {position} of sequence {number}"),
                    Some(label),
                    ids.get(position).copied(),
                    "A target holds the token that was there before masking.",
                );
                judge.holds(
                    "no special token is chosen",
                    !special.contains(label),
                    "The model would learn nothing from predicting [CLS] and [SEP].",
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
            shares.add(ids, &seen, &targets, special);
        }
        judge.close(
            "the share of chosen tokens in percent",
            100.0 * shares.chosen as f64 / shares.tokens as f64,
            15.0,
            0.7,
            "Each token that is not special is chosen with probability 0.15. About 13.5 or 12? Then \
             chosen tokens that are kept, or random, are missing from your targets.",
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
                "Of the chosen tokens 80 % are masked, 10 % random and 10 % kept, and all are \
                 targets. Decide between the three with one new number. If [MASK] has 100 %, you \
                 used the number of the choice again: it is below 0.15. If you draw a third one for \
                 those that are not masked, 0.1 is a tenth of these only.",
            );
        }
        let different = random.iter().filter(|drawn| **drawn).count();
        judge.holds(
            &format!(
                "random tokens from the whole vocabulary; yours are {different} different ones"
            ),
            different > vocabulary as usize / 2,
            "Any token of the vocabulary may appear: what is the argument of `draws.below`?",
        );
    });

    // %% [markdown]
    // The crate's `Masker` draws a little differently: it chooses exactly 15 % of each sequence,
    // rounded, so that no short sentence goes without a target.

    // %% [markdown]
    // Draw other examples, and change the 80/10/10. (Elsewhere `cloze lessons picture masking`
    // writes the page.)

    // %%
    show!(Picture::Masking);

    // %% [markdown]
    // ## The loss: how surprised is the model?
    //
    // At each chosen position, a **blank**, the model gives every token of the vocabulary a
    // probability. Let $p$ be the probability of the token that was really there. How bad was the
    // prediction? Its **surprise** is $-\ln p$:
    //
    // | probability of the right token, $p$ | 1 | 0.9 | 0.5 | 0.1 | 0.001 |
    // |---|---:|---:|---:|---:|---:|
    // | surprise, $-\ln p$ | 0 | 0.11 | 0.69 | 2.30 | 6.91 |
    //
    // A model that was certain and right is not surprised at all. Each time the probability of the
    // right token falls to a tenth, the surprise grows by 2.30, so being certain and wrong is the
    // worst. A guess among $V$ equally likely tokens has $p = 1/V$ and a surprise of $\ln V$, here
    // $\ln 1000 = 6.91$. The loss is the mean surprise over all blanks and is called
    // **cross-entropy**. With the natural logarithm its unit is the **nat**.
    //
    // Where do the probabilities come from? The model computes one number $z_v$ for each token $v$,
    // its **logit**; softmax makes probabilities of them. If $c$ is the correct token, then
    //
    // $$ p_v = \frac{e^{z_v}}{\sum_u e^{z_u}}, \qquad
    //    L = -\ln p_c = \ln \sum_u e^{z_u} - z_c . $$
    //
    // **Exercise 07.2.** Write $L$ for one blank: `label` is $c$. Large logits must not
    // overflow: in an `f64` $e^{1000}$ is infinite.

    // %%
    fn cross_entropy(logits: &[f32], label: usize) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("07.2");
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&z| f64::from(z - largest).exp()).sum();
        f64::from(largest) + sum.ln() - f64::from(logits[label])
        // END SOLUTION
    }

    // %% [markdown]
    // Your function needs logits to be tested on, so here is the model: `tiny` with 2 layers of
    // width 128. `CpuEngine` is the crate's fast implementation (lesson 06).
    //
    // One thing differs from the paper: we choose 40 % of the tokens instead of 15 %. Our run is
    // short, and each chosen token is something to learn from ([Wettig et al.
    // 2022](https://arxiv.org/abs/2202.08005) find 40 % better than 15 % for models of BERT-large's
    // size, and less clearly so for smaller ones).

    // %%
    let mut config: Config = Size::Tiny.config(tokenizer.vocab_size());
    // Without dropout (lesson 06) two programs can compute the very same numbers.
    config.hidden_dropout_prob = 0.0;
    config.attention_probs_dropout_prob = 0.0;
    // 0.02 is made for width 768; a narrow model starts to learn sooner with larger weights.
    config.initializer_range = 0.05;
    let layout: std::sync::Arc<Layout> = Layout::new(&config, &[Part::Encoder, Part::MaskedLm]);
    let mut model: CpuEngine = CpuEngine::new(&config, &layout, layout.initialise(1))?;
    // The model never trains on the held-out data: every tenth document.
    let (data, held_out): (PretrainingData, PretrainingData) =
        masked_lm::data(&paragraphs, &tokenizer)?;
    println!(
        "{} parameters; {} tokens to train on, {} held out",
        number(layout.total() as f64),
        number(data.tokens() as f64),
        number(held_out.tokens() as f64)
    );

    // %%
    let test_batch: PretrainingBatch = held_out.batch(0, 64)?;
    let rows: usize = test_batch.masked_rows.len();
    let logits: Vec<f32> = model.masked_lm_logits(&test_batch.packed, &test_batch.masked_rows)?;
    println!("logits: {rows} × {vocabulary}");
    let start: PretrainingScores = model.pretraining_scores(&test_batch)?;

    // %%
    check!("07.2", |judge| {
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
             the logarithm. 3.41? That is only the logarithm: the label's logit is missing.",
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
             ln 0 is -∞. The right side of the formula needs no probability. 0? Then your function \
             ignores `label`.",
        );
        judge.close(
            "cross_entropy(&[-1000.0, -1000.0], 0)",
            cross_entropy(&[-1000.0, -1000.0], 0),
            2f64.ln(),
            1e-6,
            "The largest of these is -1000, not 0: with which number does your search begin?",
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
            "The crate's loss of the same logits. Does your function use `label`, and all logits?",
        );
    });

    // %%
    println!("loss at the start: {:.3}", start.mean_mlm_loss());
    println!(
        "ln(V) = ln({vocabulary}) = {:.3}",
        f64::from(vocabulary).ln()
    );

    // %% [markdown]
    // A fresh model finds every token about equally likely, so its loss should be near $\ln V$.
    // Remember this check: a fresh classifier whose loss is far from the logarithm of its number of
    // classes has a mistake in it, before any training.

    // %% [markdown]
    // ## From a vector to logits
    //
    // The encoder of lesson 06 gives each token $H$ numbers, and the loss needs $V$ logits. What
    // translates is a small module on top of the encoder, the **masked-LM head**. (In BERT, a *head*
    // on top of the encoder turns its vectors into the answers of one task. It has nothing to do
    // with the attention heads of lesson 05; the name is the same by accident.) It transforms the
    // vector $h$ of a blank once more and then compares it with *every row of the word table of
    // lesson 03*:
    //
    // $$ z = E \, \operatorname{LayerNorm}\big(\operatorname{GELU}(W_t\, h + b_t)\big) + b, \qquad
    //    E \in \mathbb{R}^{V \times H}, \quad b \in \mathbb{R}^V $$
    //
    // A token's logit is the dot product of the transformed vector with that token's own vector,
    // plus a bias, which training makes large for frequent tokens. The table serves twice, at the
    // input and at the output: the weights are **tied**. A second table would cost BERT-base 23
    // million parameters; the head adds only $W_t$, $b_t$, a LayerNorm and the biases $b$, 622,650 in
    // all. The head is in Google's code (run_pretraining.py, `get_masked_lm_output`), not in the
    // paper, and is dropped when the model is fine-tuned.
    //
    // **Exercise 07.3.** Write the head; you train with it in lesson 08. `rows` are the vectors at the
    // blanks, one a row, `(blanks, H)`. `words` is the table $E$, `(V, H)`; `head.dense` and
    // `head.norm` have a `forward(x)`; `head.bias` is $b$, `(V)`, the same for every blank; `gelu(x)`
    // is known from lesson 06. The logits are `(blanks, V)`.
    //
    // `rows` carries a tape (lesson 01): dfdx records what you do with it, so that training can find
    // the way back. `Recorded<S>` is short for `Tensor<S, f32, Cpu, OwnedTape<f32, Cpu>>`. The table and
    // the bias need no tape of their own; clone them, which copies no numbers.

    // %%
    const H: usize = 128;
    /// The crate's masked-LM head, of which you use the fields.
    type Head = MaskedLmHead<H, f32, Cpu>;

    fn masked_head(
        head: &Head,
        words: &Rows<H, f32, Cpu>,
        rows: Recorded<(usize, Const<H>)>,
    ) -> Recorded<(usize, usize)> {
        // BEGIN SOLUTION
        cloze::solution!("07.3");
        let x = head.norm.forward(gelu(head.dense.forward(rows)));
        let product = x.matmul(words.clone().permute::<_, Axes2<1, 0>>());
        let shape = *product.shape();
        product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)
        // END SOLUTION
    }

    // %% [markdown]
    // The check runs your head over the held-out batch and compares its logits with the engine's. A fresh
    // model's biases are 0, so nobody would miss one; therefore `HeadCase` moves all parameters a little.

    // %%
    let case: HeadCase = HeadCase::new(&config, &layout, &test_batch)?;
    show!(case.rows.shape().concrete());

    // %%
    check!("07.3", |judge| {
        let (head, words) = (&case.head, &case.words);
        let yours = masked_head(head, words, case.rows.leaky_trace()).retaped::<NoneTape>();
        let scores = |x: Rows<H, f32, Cpu>| x.matmul(words.clone().permute::<_, Axes2<1, 0>>());
        let with_bias = |product: Tensor<(usize, usize), f32, Cpu>| {
            let shape = *product.shape();
            product + head.bias.clone().broadcast_like::<_, Axis<0>>(&shape)
        };
        let dense = || head.dense.forward(case.rows.clone());
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
                "The LayerNorm, `head.norm`, is missing: it comes after the GELU.",
            ),
            (
                with_bias(scores(head.norm.forward(dense()))),
                "The GELU is missing: it comes between the linear layer and the LayerNorm.",
            ),
            (
                with_bias(scores(gelu(head.norm.forward(dense())))),
                "You normalise and then apply the GELU. It is the other way round.",
            ),
            (
                with_bias(scores(case.rows.clone())),
                "You compare the encoder's vectors with the table as they are: `head.dense`, the GELU and \
                 `head.norm` come first.",
            ),
            (
                case.logits.clone().softmax::<Axis<1>>(),
                "These are probabilities. Return the logits: the loss applies the softmax itself.",
            ),
        ];
        for (slip, said) in slips {
            judge.holds("your logits are those of the engine", !is(slip), said);
        }
        judge.close_tensor(
            "the logits at the blanks",
            &yours,
            &case.logits,
            1e-3,
            "These are the logits of the crate's engine for the same vectors. Compare your steps with the \
             formula, from the inside outwards.",
        );
        let taped = masked_head(head, words, case.rows.leaky_trace());
        let mut gradients = taped.square().sum::<Rank0, _>().backward();
        // Without a recording there is no gradient: zeros in its place.
        let _ = gradients.try_alloc_for(&case.rows);
        judge.holds(
            "in training the gradient reaches the vectors at the blanks",
            gradients.get(&case.rows).as_vec().iter().any(|&g| g != 0.0),
            "The tape of `rows` was dropped on the way, so the encoder would not learn: go on with \
             `rows` itself, without `retaped`.",
        );
    });

    // %% [markdown]
    // All three parts are there. Here are the logits that your head gives 300 of the tokens at one
    // blank. The model is untrained, so no cell stands out for a reason.

    // %%
    if solved!("07.3") {
        let logits = masked_head(&case.head, &case.words, case.rows.leaky_trace()).as_vec();
        let first: Vec<f32> = logits[..300].to_vec();
        show!(HeatMap::new(
            "Logits of an untrained head: the first blank, 300 tokens",
            &first,
            50
        ));
    }

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *logits, softmax, loss*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(7));

    // %% [markdown]
    // ## What goes wrong
    //
    // - **A loss of infinity or NaN**: a logit overflowed, or a probability of 0 went through a
    //   logarithm. Subtract the largest logit first and never compute the probability itself.
    // - **A first loss far from ln(V)**: the weights start too large, or the loss is not the mean over
    //   the blanks.
    // - **A loss that is near 0 at once**: the answer is visible. The loss includes tokens that are
    //   not masked, so the model only has to copy.
    // - **A model that is good in training and useless after it**: it was trained with `[MASK]` alone,
    //   and never saw a text without it. That is what the 10 % and 10 % are for.
    //
    // ## Expected numbers
    //
    // - at the start 6.90 against ln(1000) = 6.91;
    // - 80 %, 10 % and 10 % of the chosen tokens, within a percent or so;
    // - your logits differ from the engine's by rounding.
    //
    // ## On real text
    //
    // `cloze fill-mask --model DIR "The [MASK] sat on the mat."` runs such a head, trained, for any
    // BERT in Hugging Face's layout.
    //
    // ## Open questions
    //
    // 1. Only the chosen tokens contribute to the loss; a left-to-right model learns from every token.
    //    Is it fair to compare their losses?
    // 2. The word table serves at the input and at the output. What would be gained and lost by two
    //    tables?
    //
    // The crate's source of this part: `src/data/pretraining/masking.rs` and `src/model/heads.rs`.
    // Next: [lesson 08](08_fill_blanks.rs), in which your BERT trains.

    // %% [end]
    cloze::lessons::finish("07_masked_lm")
}
