// ---
// title = "SQuAD: point at the answer"
// summary = "Read long paragraphs through windows, find an answer's tokens by their places in the text, train a head that points, search the best span, and score it as the official script does."
// minutes = 60
// seconds = 45
// needs = ["01", "08"]
//
// [[exercise]]
// id = "09.1"
// title = "Windows over a long paragraph"
// hints = [
//     "A loop: a window begins at `start` and ends `room` pieces later, or where the pieces end if that is sooner. When a window has reached the end, it is the last.",
//     "The next window begins `stride` pieces later than the one before. A stride longer than the room would leave pieces out, so take `stride.min(room)`.",
//     "`loop { let end = pieces.min(start + room); list.push(start..end); if end == pieces { return list; } start += stride.min(room); }`. A paragraph without pieces has one empty window.",
// ]
//
// [[exercise]]
// id = "09.2"
// title = "From characters to pieces"
// hints = [
//     "A piece from `a` to `b` and an answer from `start` to `end` have a character in common where `a < answer.end && b > answer.start`.",
//     "`offsets.iter().position(…)` finds the first such piece, `rposition` the last. Both give an `Option`.",
//     "`Some((offsets.iter().position(touches)?, offsets.iter().rposition(touches)?))`, where `touches` is a closure over `&(usize, usize)`.",
// ]
//
// [[exercise]]
// id = "09.3"
// title = "The loss of a span"
// hints = [
//     "`head.forward(rows).as_vec()` has two numbers a token: start, end, start, end, … Every second one from 0 is a start score, every second one from 1 an end score: `.step_by(2)`.",
//     "The right start is one of the *tokens* of the sequence, so softmax runs over all start scores: `softmax(&starts)[answer[0]]`.",
//     "The loss is the mean of -ln P(start) and -ln P(end).",
// ]
//
// [[exercise]]
// id = "09.4"
// title = "The best span"
// hints = [
//     "Two loops: for each start `i` of the context, for each end `j` from `i` on, at most `longest` tokens: `i..context.end.min(i + longest)`.",
//     "Keep the pair with the largest `starts[i] + ends[j]`. Start with no best at all: an `Option`.",
//     "Replace the best only where a score is strictly larger, so that among equals the first stays.",
// ]
//
// [[exercise]]
// id = "09.5"
// title = "Normalise an answer"
// hints = [
//     "Four steps, in this order: lower case; leave out ASCII punctuation (without putting a blank there); drop the words a, an and the; one blank between words.",
//     "`let mut text = text.to_lowercase();`, then `text.retain(|c| !c.is_ascii_punctuation());`.",
//     "`split_whitespace()` gives the words; filter the articles, collect, `join(\" \")`.",
// ]
//
// [[exercise]]
// id = "09.6"
// title = "F1 of words"
// hints = [
//     "Both texts are normalised already: `split_whitespace()`. If one of them has no word, the result is 1 where both have none, else 0.",
//     "Count the words in common as often as both have them: go through the predicted words and take each found one out of a `Vec` of the right words, so that it can't be found twice.",
//     "Precision is common / predicted words, recall common / right words; F1 is 2 · precision · recall / (precision + recall), or 2 · common / (predicted + right).",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 09 · SQuAD: point at the answer
    //
    // A question, a paragraph, and the answer stands somewhere in the paragraph. BERT doesn't write
    // it: it points at its first and its last word. In this lesson you cut long paragraphs into
    // windows, find the tokens of an answer by the places of its characters, train a head that
    // points, search the best span, and score it to the letter as the official script does.
    // You also find out, with numbers, what a very small BERT can't do.
    //
    // *60 to 75 minutes, with a good place to stop half way; the longest cell trains for about ten
    // seconds. You need [lesson 08](08_glue.rs), and from [lesson 01](01_tokens.rs) what word pieces
    // are.*

    // %%
    use std::ops::Range;
    use std::path::{Path, PathBuf};

    use cloze::data::bad::BadRows;
    use cloze::data::sequences::BatchSize;
    use cloze::data::squad::{Misplaced, Squad, WindowOptions, Windows};
    use cloze::data::{Examples, Targets};
    use cloze::engine::inference;
    use cloze::engine::objective;
    use cloze::eval::softmax;
    use cloze::eval::squad::{self, AnswerOptions, Answers};
    use cloze::lessons::data;
    use cloze::model::Part;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::tasks::{self, Labels, Options, Reading, Role};
    use cloze::text::Encoding;
    use cloze::train::Finetuner;
    use cloze::train::finetune::{Settings as Recipe, TaskReport, TaskStep};
    use cloze::view::Flow;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // ## Where we are going
    //
    // The set `questions` was written for Cloze in the layout of SQuAD 2.0: 45 paragraphs about
    // things that exist nowhere else, so that nobody can know the answers beforehand.

    // %%
    let folder: PathBuf = data::folder(data::MODEL)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let questions: PathBuf = data::folder("questions")?;
    let train: Squad = Squad::read(&questions.join("train-v2.0.json"), Misplaced::Refuse)?;
    let held_out: Squad = Squad::read(&questions.join("dev-v2.0.json"), Misplaced::Refuse)?;
    for (name, squad) in [("to train on", &train), ("held out", &held_out)] {
        println!(
            "{} questions on {} paragraphs {name}",
            squad.questions().count(),
            squad.paragraphs().count()
        );
    }
    for (paragraph, asked) in train.questions().take(5) {
        if asked.id.ends_with("1-1") {
            // A sentence a line.
            println!("\n{}\n", paragraph.context.replace(". ", ".\n"));
        }
        let answers = asked.answers.iter().flatten();
        let answer = answers.map(|a| a.text.as_str()).next();
        println!("{} -> {}", asked.text, answer.unwrap_or("(no answer)"));
    }

    // %% [markdown]
    // This is what the model will see, and what it should say: segment A is the question, segment B
    // the paragraph; the answer is two row numbers.

    // %%
    let show_options: WindowOptions = WindowOptions {
        max_len: 128,
        stride: 64,
        max_question: 32,
    };
    let shown: Windows = Windows::cut(&train, &tokenizer, show_options)?;
    let second: usize = shown.of_question(1).start;
    let sequences: cloze::data::Sequences = shown.sequences();
    let tokens: Vec<String> = sequences
        .ids(second)
        .iter()
        .map(|&id| tokenizer.token(id).unwrap_or("?").to_owned())
        .collect();
    if let Some([first, last]) = shown.target(second) {
        let color = |row: usize| match row {
            row if (first as usize..=last as usize).contains(&row) => 1,
            row if row < shown.first_row(second) => 0,
            _ => TokenStrip::PLAIN,
        };
        let colors: Vec<u32> = (0..tokens.len()).map(color).collect();
        let end = (last as usize + 8).min(tokens.len());
        let rows: Vec<usize> = (0..end).collect();
        show!(
            TokenStrip::new("The question, the paragraph and the answer", &tokens[..end])
                .row("row", &rows)
                .colored(&colors)
        );
        println!("start {first}, end {last}");
    }

    // %% [markdown]
    // ## The idea
    //
    // The head learns two vectors, $S$ for starts and $E$ for ends, both in $\mathbb{R}^H$. With
    // $T_i$ the last hidden state of token $i$, the probability that the answer begins there is a
    // softmax *over the tokens of the sequence*:
    //
    // $$ P_i = \frac{e^{S \cdot T_i}}{\sum_k e^{S \cdot T_k}}, \qquad
    //    \text{score}(i, j) = S \cdot T_i + E \cdot T_j, \quad j \ge i $$
    //
    // and likewise for ends ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 4.2;
    // data: [Rajpurkar et al. 2016](https://arxiv.org/abs/1606.05250)). That is all there is to the
    // head: $2H + 2$ numbers. Where a question may have no answer (SQuAD 2.0,
    // [2018](https://arxiv.org/abs/1806.03822)), "no answer" is the span from `[CLS]` to `[CLS]`
    // (section 4.3).
    //
    // The work is in what stands around it:

    // %%
    show!(
        Flow::new(
            "From a question to an answer in words",
            "question, paragraph"
        )
        .step("windows", "09.1: as many as the paragraph needs")
        .step("encoder", "(tokens, H)")
        .step("span head", "09.3: (tokens, 2)")
        .step("best span", "09.4: two rows, or no answer")
        .step("places of the pieces", "09.2: a piece of the text")
        .step("compare", "09.5, 09.6: exact match, F1")
    );

    // %% [markdown]
    // ## Step 1: windows
    //
    // A model reads at most so many tokens: 512 for BERT, 128 for `cloze-tiny`. What the question
    // and three special tokens leave is the **room** for the paragraph. A longer one is read through
    // several windows, each `stride` pieces further on than the one before, so that they overlap: an
    // answer that one window cuts in two stands whole in the next.
    //
    // **Exercise 09.1.** Give the windows over so many pieces, in order. The one that reaches the
    // end is the last. A stride longer than the room would leave pieces out, so it counts as the
    // room; a paragraph without pieces has one empty window.

    // %%
    fn windows(pieces: usize, room: usize, stride: usize) -> Vec<Range<usize>> {
        // BEGIN SOLUTION
        cloze::solution!("09.1");
        let mut list = Vec::new();
        let mut start = 0;
        loop {
            let end = pieces.min(start + room);
            list.push(start..end);
            if end == pieces {
                return list;
            }
            start += stride.min(room);
        }
        // END SOLUTION
    }

    // %%
    check!("09.1", |judge| {
        let three = windows(10, 6, 2);
        judge.holds(
            &format!("windows(10, 6, 2) has 3 windows; yours has {}", three.len()),
            three.len() <= 3,
            "The window 4..10 reaches the end, so it is the last. Further ones would show nothing \
             new.",
        );
        judge.same_list(
            "windows(10, 6, 2)",
            &three,
            &[0..6, 2..8, 4..10],
            "Each window is 6 pieces long and begins 2 later than the one before. The stride is \
             how far the next window is moved, not how much two have in common.",
        );
        judge.same_list(
            "windows(9, 6, 4)",
            &windows(9, 6, 4),
            &[0..6, 4..9],
            "The last window ends where the pieces end; it may be shorter.",
        );
        judge.same_list(
            "windows(6, 6, 2)",
            &windows(6, 6, 2),
            std::slice::from_ref(&(0..6)),
            "All fits into one.",
        );
        judge.same_list(
            "windows(0, 6, 2)",
            &windows(0, 6, 2),
            std::slice::from_ref(&(0..0)),
            "One empty window, 0..0. The first window too ends where the pieces end.",
        );
        judge.same_list(
            "windows(7, 3, 9)",
            &windows(7, 3, 9),
            &[0..3, 3..6, 6..7],
            "A stride of 9 over a room of 3 would leave pieces out: move by 3 at most.",
        );
        // As the crate cuts the whole set.
        let mut number = 0;
        for paragraph in train.paragraphs() {
            let pieces = tokenizer.encode(&paragraph.context).ids.len();
            for asked in &paragraph.questions {
                let question = tokenizer.encode(&asked.text).ids.len().min(32);
                let crates: Vec<_> = shown.of_question(number).map(|w| shown.pieces(w)).collect();
                judge.same_list(
                    &format!("the windows of question {}", asked.id),
                    &windows(pieces, 128 - question - 3, 64),
                    &crates,
                    "The crate's `Windows::cut` gives these, for 128 tokens and a stride of 64.",
                );
                number += 1;
            }
        }
    });

    // %% [markdown]
    // Your windows over 26 pieces, with a room of 12 and a stride of 5. A piece that stands in
    // several of them is judged in the one where it has most neighbours on its poorer side (strong):
    // at a window's edge the model can't see what goes on beyond.

    // %%
    if solved!("09.1") {
        let parts = windows(26, 12, 5);
        let seen = |part: &Range<usize>, piece: usize| match part.contains(&piece) {
            true => (piece - part.start).min(part.end - 1 - piece) as i64,
            false => -1,
        };
        let mut values: Vec<f32> = Vec::new();
        for part in &parts {
            for piece in 0..26 {
                let most = parts.iter().map(|other| seen(other, piece)).max();
                values.push(match seen(part, piece) {
                    -1 => 0.0,
                    own if Some(own) == most => 1.0,
                    _ => 0.35,
                });
            }
        }
        let rows: Vec<String> = parts.iter().map(|p| format!("{p:?}")).collect();
        let columns: Vec<String> = (0..26).map(|piece| piece.to_string()).collect();
        show!(
            HeatMap::new("Windows over a paragraph of 26 pieces", &values, 26)
                .labels(&rows, &columns)
        );
    }
    println!(
        "{} questions of the small set make {} windows of 128 tokens",
        shown.questions(),
        shown.len()
    );

    // %% [markdown]
    // ## Step 2: characters and pieces
    //
    // SQuAD says where an answer starts by counting *characters* of the paragraph, Unicode code
    // points to be exact. The model points at *pieces*. The bridge are the **offsets**: with each
    // piece the tokenizer tells the place that it was cut from, as the first character and the one
    // behind the last.

    // %%
    let example: Encoding = tokenizer.encode("In Łódź, Zoë's café opened in 1907.");
    let places: Vec<String> = example
        .offsets
        .iter()
        .map(|(a, b)| format!("{a}-{b}"))
        .collect();
    show!(TokenStrip::new("Pieces and their places", &example.tokens).row("characters", &places));
    if let Some(byte) = "In Łódź, Zoë's café opened in 1907.".find("1907") {
        println!("1907 starts at byte {byte}");
    }

    // %% [markdown]
    // The pieces are lower-cased and have lost their accents; nothing could be cut out of *them*.
    // With the offsets an answer is cut out of the text itself. Note the two numbers for 1907: bytes
    // count every accented letter twice. Rust's `find` counts bytes, Python's counts code points,
    // and mixing them up moves every answer behind the first accent.
    //
    // **Exercise 09.2.** Give the first and the last piece that have a character in common with the
    // answer, `None` if there is no such piece.

    // %%
    fn covering(offsets: &[(usize, usize)], answer: Range<usize>) -> Option<(usize, usize)> {
        // BEGIN SOLUTION
        cloze::solution!("09.2");
        let touches = |place: &(usize, usize)| place.0 < answer.end && place.1 > answer.start;
        Some((
            offsets.iter().position(touches)?,
            offsets.iter().rposition(touches)?,
        ))
        // END SOLUTION
    }

    // %%
    check!("09.2", |judge| {
        let offsets = [(0, 2), (3, 7), (7, 8), (9, 12), (12, 14)];
        judge.equal(
            "covering(&[(0, 2), (3, 7), (7, 8), (9, 12), (12, 14)], 9..14)",
            covering(&offsets, 9..14),
            Some((3, 4)),
            "A word of two pieces: both belong to it. The last piece is included, so (3, 5) is one too far.",
        );
        judge.equal(
            "covering of the same for 3..7",
            covering(&offsets, 3..7),
            Some((1, 1)),
            "The answer ends before character 7, where the next piece begins: ends are not \
             included, so `<` and not `<=`.",
        );
        judge.equal(
            "covering of the same for 4..6",
            covering(&offsets, 4..6),
            Some((1, 1)),
            "An answer inside of a piece. The smallest thing that a model can point at is a whole \
             piece, so take it.",
        );
        judge.equal(
            "covering of the same for 2..3",
            covering(&offsets, 2..3),
            None,
            "Only the blank: no piece touches it.",
        );
        // All training questions: the rows that the crate trains on.
        let mut number = 0;
        for paragraph in train.paragraphs() {
            let offsets = tokenizer.encode(&paragraph.context).offsets;
            for asked in &paragraph.questions {
                let given = asked.answers.iter().flatten().next();
                let place = given.and_then(|answer| answer.place(&paragraph.context));
                let pieces = place.and_then(|place| covering(&offsets, place));
                for window in shown.of_question(number) {
                    let part = shown.pieces(window);
                    let row = |piece: usize| (shown.first_row(window) + piece - part.start) as u32;
                    let rows = match pieces {
                        Some((first, last)) if part.start <= first && last < part.end => {
                            [row(first), row(last)]
                        }
                        _ => [0, 0],
                    };
                    judge.equal(
                        &format!(
                            "the rows of the answer to {} in window {:?}",
                            asked.id, part
                        ),
                        Some(rows),
                        shown.target(window),
                        "The crate's `Windows::target` says this. A window that doesn't show the \
                         whole answer, or a question without one, has the rows [0, 0]: [CLS].",
                    );
                }
                number += 1;
            }
        }
    });

    // %% [markdown]
    // So every window has a target, also those that miss the answer: they should point at `[CLS]`.
    //
    // ## Step 3: the head and its loss
    //
    // In dfdx the head is `Linear<H, 2>`, applied to *every* row this time. Its two outputs are not
    // two classes: column 0 is compared down the tokens, and so is column 1. For the right start
    // $a$ and the right end $b$
    //
    // $$ L = -\tfrac{1}{2} \left( \ln P^{\text{start}}_a + \ln P^{\text{end}}_b \right) . $$
    //
    // **Exercise 09.3.** Give the loss of one sequence. `rows` are the last hidden states of its
    // tokens; `as_vec()` makes one flat list of a tensor, row by row; `softmax`, the crate's, takes
    // a `&[f32]` and gives a `Vec<f64>`.

    // %%
    const H: usize = 128;
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    fn span_loss(rows: Rows<H>, head: &Linear<H, 2, f32, Cpu>, answer: [usize; 2]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("09.3");
        let scores: Vec<f32> = head.forward(rows).as_vec();
        let starts: Vec<f32> = scores.iter().copied().step_by(2).collect();
        let ends: Vec<f32> = scores.iter().copied().skip(1).step_by(2).collect();
        -(softmax(&starts)[answer[0]].ln() + softmax(&ends)[answer[1]].ln()) / 2.0
        // END SOLUTION
    }

    // %%
    let model: Model = Model::read(&folder, &Part::Span.with_encoder(), Some(1))?;
    let bert: Bert<H, 2, 64, 512, f32, Cpu> =
        Bert::build(&model.config, &model.layout, &model.values, &Cpu::default())?;
    let head: Linear<H, 2, f32, Cpu> = Linear {
        weight: Cpu::default().tensor_from_vec(
            model.parameter("qa_outputs.weight")?.to_vec(),
            (Const::<2>, Const::<H>),
        ),
        bias: Cpu::default()
            .tensor_from_vec(model.parameter("qa_outputs.bias")?.to_vec(), (Const::<2>,)),
    };
    let one: Packed = sequences.batch(&[second]);
    let rows: Rows<H> = bert.encode::<NoneTape>(&one, None, &mut |_, _| {});
    println!(
        "rows {:?}, scores {:?}",
        rows.shape().concrete(),
        head.forward(rows.clone()).shape().concrete()
    );

    // %%
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let logits: Vec<f32> = engine.task_logits(&one)?;

    check!("09.3", |judge| {
        let [first, last] = shown.target(second).unwrap_or_default();
        let answer = [first as usize, last as usize];
        let yours = span_loss(rows.clone(), &head, answer);
        let scored = objective::spans(&mut logits.clone(), &one.cu_seqlens, &[[first, last]], 1.0);
        let crossed = objective::spans(&mut logits.clone(), &one.cu_seqlens, &[[last, first]], 1.0);
        let by_row: f64 = answer
            .iter()
            .enumerate()
            .map(|(which, &row)| -softmax(&logits[2 * row..2 * row + 2])[which].ln())
            .sum();
        let two = |starts: Vec<f64>, start: usize, ends: Vec<f64>, end: usize| {
            -(starts[start].ln() + ends[end].ln()) / 2.0
        };
        let (first_half, second_half) = logits.split_at(logits.len() / 2);
        let halves = two(
            softmax(first_half),
            answer[0],
            softmax(second_half),
            answer[1],
        );
        let flat = softmax(&logits);
        let together = two(flat.clone(), 2 * answer[0], flat, 2 * answer[1] + 1);
        let slips = [
            (
                2.0 * scored.loss,
                "That is the sum of both; the loss is their mean.",
            ),
            (
                by_row,
                "Your softmax runs over the two outputs of a token. The start is one of the *tokens*.",
            ),
            (
                by_row / 2.0,
                "Your softmax runs over the two outputs of a token. The start is one of the *tokens*.",
            ),
            (
                together,
                "Your softmax runs over starts and ends together. Each column has a softmax of its own.",
            ),
            (
                halves,
                "You took the first half of the list for starts and the second for ends. The list goes row \
                 by row: start, end, start, end, …",
            ),
            (
                crossed.loss,
                "Starts and ends are exchanged: output 0 is for starts, output 1 for ends.",
            ),
        ];
        for (value, said) in slips {
            judge.holds(
                "the loss is the crate's",
                (yours - value).abs() > 1e-5 || (value - scored.loss).abs() < 1e-5,
                said,
            );
        }
        judge.close(
            "span_loss of the question above",
            yours,
            scored.loss,
            1e-4,
            "The crate's `objective::spans` gives this for its engine's logits.",
        );
        let flat: Linear<H, 2, f32, Cpu> = Linear {
            weight: Cpu::default().zeros(),
            bias: Cpu::default().zeros(),
        };
        judge.close(
            "the loss of a head of zeros",
            span_loss(rows.clone(), &flat, answer),
            (one.rows() as f64).ln(),
            1e-4,
            "All tokens are equally likely: ln of their number.",
        );
    });

    // %% [markdown]
    // The check of lesson 05 again: a fresh head should be near $\ln(\text{tokens})$, here
    // $\ln 128 = 4.85$ for a full window.
    //
    // ## Step 4: the best span
    //
    // From 128 starts and 128 ends to one answer. Taking the best start and the best end each for
    // itself may give an end that lies *before* the start, or an answer as long as the paragraph. So
    // all pairs with $j \ge i$ of at most `longest` tokens are compared, and only rows of the
    // paragraph count, not those of the question.
    //
    // **Exercise 09.4.** Give the rows of the best span, start and end (both belong to it), the
    // first one among equals, and `None` where `context`, the rows of the paragraph, is empty.

    // %%
    fn best_span(
        starts: &[f32],
        ends: &[f32],
        context: Range<usize>,
        longest: usize,
    ) -> Option<(usize, usize)> {
        // BEGIN SOLUTION
        cloze::solution!("09.4");
        let mut best: Option<(usize, usize, f32)> = None;
        for i in context.clone() {
            let reachable = i..context.end.min(i + longest);
            for (j, end) in reachable.clone().zip(&ends[reachable]) {
                let score = starts[i] + end;
                if best.is_none_or(|(_, _, most)| score > most) {
                    best = Some((i, j, score));
                }
            }
        }
        best.map(|(i, j, _)| (i, j))
        // END SOLUTION
    }

    // %%
    /// A head's output for one window as starts and ends.
    fn columns(logits: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (pairs, _) = logits.as_chunks::<2>();
        pairs.iter().map(|pair| (pair[0], pair[1])).unzip()
    }

    // Windows that hold every paragraph whole: no model is needed to compare two searches.
    let whole: Windows = Windows::cut(&held_out, &tokenizer, WindowOptions::default())?;
    let noise: Stream = Stream::new(9, 0, Site::Order, 0);
    let token_count: usize = (0..whole.len()).map(|w| whole.tokens(w)).sum();
    let random: Vec<f32> = (0..2 * token_count)
        .map(|i| noise.uniform(i as u32) as f32)
        .collect();
    let options: AnswerOptions = AnswerOptions {
        n_best: 1,
        max_answer: 30,
        may_be_empty: false,
    };
    let by_crate: Vec<Answers> = squad::answer(&held_out, &whole, &random, options)?;

    check!("09.4", |judge| {
        let (starts, ends) = ([0.0, 1.0, 5.0, 2.0, 0.0], [0.0, 6.0, 1.0, 2.0, 0.0]);
        let yours = best_span(&starts, &ends, 0..5, 5);
        judge.holds(
            &format!("the end is not before the start; yours is {yours:?}"),
            yours != Some((2, 1)),
            "Best start and best end alone make the span from 2 to 1, which is none.",
        );
        judge.equal(
            "best_span(&[0, 1, 5, 2, 0], &[0, 6, 1, 2, 0], 0..5, 5)",
            yours,
            Some((1, 1)),
            "1 + 6 and 5 + 2 are both 7: among equals the first counts, and a span may be one \
             token long.",
        );
        judge.equal(
            "the same within 2..5",
            best_span(&starts, &ends, 2..5, 5),
            Some((2, 3)),
            "Only rows 2 to 4 are the paragraph: 5 + 2.",
        );
        judge.equal(
            "the same within 2..5, at most 1 token",
            best_span(&starts, &ends, 2..5, 1),
            Some((2, 2)),
            "From row i, `longest` tokens end at row i + longest - 1.",
        );
        judge.equal(
            "with negative scores, best_span(&[-3, -1], &[-2, -1], 0..2, 2)",
            best_span(&[-3.0, -1.0], &[-2.0, -1.0], 0..2, 2),
            Some((1, 1)),
            "Scores may all be negative, so the search can't begin with 0 as the best so far.",
        );
        judge.equal(
            "within an empty range",
            best_span(&starts, &ends, 3..3, 5),
            None,
            "No row, no span.",
        );
        let mut before = 0;
        for (question, (paragraph, asked)) in held_out.questions().enumerate() {
            let window = whole.of_question(question).start;
            let size = 2 * whole.tokens(window);
            let (starts, ends) = columns(&random[before..before + size]);
            before += size;
            let rows = whole.first_row(window)..whole.tokens(window) - 1;
            let yours = best_span(&starts, &ends, rows.clone(), 30);
            let within = |(i, j): &(usize, usize)| rows.start <= *i && i <= j && *j < rows.end;
            let Some((i, j)) = yours.filter(within) else {
                judge.holds(
                    &format!(
                        "for {} a span within {rows:?}; yours is {yours:?}",
                        asked.id
                    ),
                    false,
                    "Both ends lie in the rows of the paragraph, the end not before the start.",
                );
                return;
            };
            let place = whole.text_range(question, i - rows.start..j + 1 - rows.start);
            let text: String = paragraph
                .context
                .chars()
                .skip(place.start)
                .take(place.len())
                .collect();
            judge.equal(
                &format!("with random scores, your answer to {}", asked.id),
                text.as_str(),
                by_crate[question].best.as_str(),
                "The crate's `squad::answer` finds this for the same scores, with at most 30 tokens.",
            );
        }
    });

    // %% [markdown]
    // > **A good place to stop.** You are half way, and your answers stay in the notebook. On another
    // > day select the cell below this one and choose *Run → Run All Above Selected Cell* (in VS Code
    // > *Execute Above Cells*).

    // %% [markdown]
    // ## Step 5: compare answers
    //
    // Is `the River Sarn.` the same answer as `river Sarn`? To the official script it is: before
    // comparing, both are **normalised**: lower case, no ASCII punctuation, none of the articles *a*,
    // *an* and *the*, single blanks. **Exact match** asks whether they are equal then. **F1** gives
    // credit for words in common: with $c$ common words, $p$ predicted and $g$ right ones,
    // $F_1 = 2c / (p + g)$.
    //
    // **Exercise 09.5.** Normalise.

    // %%
    fn normalise(text: &str) -> String {
        // BEGIN SOLUTION
        cloze::solution!("09.5");
        let mut text = text.to_lowercase();
        text.retain(|c| !c.is_ascii_punctuation());
        let words = text.split_whitespace();
        let words = words.filter(|word| !matches!(*word, "a" | "an" | "the"));
        words.collect::<Vec<_>>().join(" ")
        // END SOLUTION
    }

    // %%
    check!("09.5", |judge| {
        let cases = [
            ("River", "Lower case."),
            (
                "ÉCOLE",
                "Lower case for letters with accents too: `to_lowercase`, not `to_ascii_lowercase`.",
            ),
            ("the Sarn", "The articles a, an and the go, as whole words."),
            (
                "the  river\tSarn ",
                "One blank between words, none at the ends.",
            ),
            ("\"Sarn\".", "Punctuation goes."),
            (
                "well-known",
                "Punctuation is left out, and no blank takes its place: wellknown.",
            ),
            (
                "The theatre, an anthem",
                "Articles are whole words: theatre and anthem stay.",
            ),
            (
                "a.",
                "Punctuation goes first, so this is an article alone: nothing is left.",
            ),
            (
                "$1,500",
                "1500: the dollar and the comma are ASCII punctuation too.",
            ),
            ("Zoë's café", "Letters with accents are letters."),
            (
                "1912–1913",
                "The long dash is no ASCII punctuation, so it stays, as in the official script.",
            ),
        ];
        for (text, think) in cases {
            judge.equal(
                &format!("normalise({text:?})"),
                normalise(text),
                squad::normalise(text),
                think,
            );
        }
        for (_, asked) in train.questions().chain(held_out.questions()) {
            for answer in asked.answers.iter().flatten() {
                judge.equal(
                    &format!("normalise({:?})", answer.text),
                    normalise(&answer.text),
                    squad::normalise(&answer.text),
                    "The crate's `squad::normalise` says this, to the letter what \
                     evaluate-v2.0.py does.",
                );
            }
        }
    });

    // %% [markdown]
    // **Exercise 09.6.** Give the F1 of two normalised texts. A word counts as often as both have it,
    // and two empty texts agree: 1.

    // %%
    fn f1(right: &str, predicted: &str) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("09.6");
        let mut left: Vec<&str> = right.split_whitespace().collect();
        let predicted: Vec<&str> = predicted.split_whitespace().collect();
        if left.is_empty() || predicted.is_empty() {
            return f64::from(left.is_empty() && predicted.is_empty());
        }
        let words = left.len() + predicted.len();
        let mut common = 0;
        for word in predicted {
            if let Some(at) = left.iter().position(|other| *other == word) {
                left.swap_remove(at);
                common += 1;
            }
        }
        2.0 * f64::from(common) / words as f64
        // END SOLUTION
    }

    // %%
    check!("09.6", |judge| {
        judge.close(
            "f1(\"first sunday of may\", \"sunday of may\")",
            f1("first sunday of may", "sunday of may"),
            6.0 / 7.0,
            1e-9,
            "Three words in common, of 3 and of 4. 0: whole numbers were divided (`as f64` comes first), or \
             the words were compared place by place.",
        );
        judge.close(
            "f1(\"x y\", \"x x x\")",
            f1("x y", "x x x"),
            0.4,
            1e-9,
            "Only one x is in common: the right answer has one. 1.2: it was counted again and again. \
             0.67: in a set the prediction has one word, and it has three.",
        );
        judge.close(
            "f1(\"x x\", \"x\")",
            f1("x x", "x"),
            2.0 / 3.0,
            1e-9,
            "Only one x is in common: the prediction has one. 1.33: it was counted for each x of the \
             right answer.",
        );
        judge.close(
            "f1(\"x x y\", \"x x z\")",
            f1("x x y", "x x z"),
            2.0 / 3.0,
            1e-9,
            "Both have x twice: two words in common. 0.33: a set holds each word once.",
        );
        judge.close(
            "f1(\"x\", \"y\")",
            f1("x", "y"),
            0.0,
            1e-9,
            "NaN: nothing in common is 0.",
        );
        judge.close(
            "f1(\"\", \"\")",
            f1("", ""),
            1.0,
            1e-9,
            "No answer, and rightly none. NaN is 0 / 0: say 1.",
        );
        judge.close(
            "f1(\"x\", \"\")",
            f1("x", ""),
            0.0,
            1e-9,
            "An answer was missed.",
        );
        let texts: Vec<String> = held_out
            .questions()
            .flat_map(|(_, asked)| asked.answers.iter().flatten())
            .map(|answer| squad::normalise(&answer.text))
            .collect();
        for a in &texts {
            for b in &texts {
                judge.close(
                    &format!("f1({a:?}, {b:?})"),
                    f1(a, b),
                    squad::f1(a, b),
                    1e-9,
                    "The crate's `squad::f1` says this.",
                );
            }
        }
    });

    // %% [markdown]
    // ## Train it
    //
    // Every window is an example. The loop is that of lesson 08, so the crate's `Finetuner` does it,
    // and the chart is fed from its reports.

    // %%
    struct Curve(LiveChart);

    impl TaskReport for Curve {
        fn step(&mut self, step: &TaskStep) {
            self.0.push("training batch", step.step as f64, step.loss);
        }
        fn skipped(&mut self, _: u64, _: &str) {}
        fn epoch(&mut self, _: u32, _: u64, _: &mut dyn TaskEngine) -> cloze::Result<()> {
            Ok(())
        }
    }

    /// A model that was trained on the windows: its parameters.
    fn trained(model: &Model, examples: &Examples, recipe: &Recipe) -> cloze::Result<Vec<f32>> {
        let engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
        let mut run = Finetuner::new(Box::new(engine), examples, recipe.clone())?;
        let chart = LineChart::new("Loss of a span head on the small set")
            .axes("step", "cross-entropy (nats)")
            .reference("ln 128", 128f64.ln());
        run.run(None, &mut Curve(LiveChart::new(chart)), &Stop::default())?;
        println!("{:.0} tokens/s", run.outcome().tokens_per_s());
        run.engine().parameters()
    }

    // All questions; a few where only the way through the lesson is tested.
    let mut learned: Squad = train.clone();
    learned.truncate(cloze::lessons::steps(1_000) as usize);
    let train_windows: Windows = Windows::cut(&learned, &tokenizer, show_options)?;
    let (train_sequences, spans): (cloze::data::Sequences, Vec<[u32; 2]>) =
        train_windows.training();
    let examples: Examples = Examples {
        sequences: train_sequences,
        targets: Targets::Spans(spans),
    };
    let recipe: Recipe = Recipe {
        epochs: 10,
        batch: BatchSize::Examples(16),
        learning_rate: 1e-3,
        seed: 1,
        ..Recipe::default()
    };
    let parameters: Vec<f32> = trained(&model, &examples, &recipe)?;
    engine.set_parameters(&parameters)?;

    // %% [markdown]
    // ### See a span
    //
    // One training question, the rows around its answer: the score $S \cdot T_i + E \cdot T_j$ of
    // each span, counted from the lowest of them. Below the diagonal the end would come before the
    // start; those cells are none of the search's and are left empty.

    // %%
    let probabilities: Vec<f32> = engine.task_logits(&one)?;
    let (start_scores, end_scores): (Vec<f32>, Vec<f32>) = columns(&probabilities);
    let target: [u32; 2] = shown.target(second).unwrap_or_default();
    let from: usize = (target[0] as usize).saturating_sub(8);
    let to: usize = (target[1] as usize + 9).min(one.rows());
    let spans: Vec<Option<f32>> = (from..to)
        .flat_map(|i| (from..to).map(move |j| (i, j)))
        .map(|(i, j)| (j >= i).then(|| start_scores[i] + end_scores[j]))
        .collect();
    let lowest: f32 = spans
        .iter()
        .flatten()
        .copied()
        .fold(f32::INFINITY, f32::min);
    let cells: Vec<f32> = spans
        .iter()
        .map(|score| score.map_or(f32::NAN, |score| score - lowest))
        .collect();
    show!(
        HeatMap::new(
            "Who built the toll bridge? Start (row) and end (column)",
            &cells,
            to - from
        )
        .labels(&tokens[from..to], &tokens[from..to])
    );
    if solved!("09.4") {
        let context = shown.first_row(second)..one.rows() - 1;
        if let Some((i, j)) = best_span(&start_scores, &end_scores, context, 30) {
            println!("best span: {}", tokens[i..=j].join(" "));
        }
    }
    let (p_start, p_end): (Vec<f64>, Vec<f64>) = (softmax(&start_scores), softmax(&end_scores));
    println!(
        "its probability: {:.2} as a start, {:.2} as an end",
        p_start[target[0] as usize], p_end[target[1] as usize]
    );

    // %% [markdown]
    // The map is made of stripes: a row is strong or weak as a whole, and so is a column, for a score
    // is a sum of a number of the row and a number of the column. Start and end don't know of each
    // other (the first open question below).

    // %% [markdown]
    // ### All questions
    //
    // `squad::answer` does what you did in steps 4 and 2, over all windows of a question, and gives
    // the **null odds** with it: by how much the score of `[CLS]`, $s_{\text{null}} = S \cdot C + E
    // \cdot C$, is above that of the best span.

    // %%
    /// The model's answers to all questions of a file.
    fn answer_all(
        engine: &mut CpuEngine,
        file: &Squad,
        windows: &Windows,
    ) -> cloze::Result<Vec<Answers>> {
        let logits = inference::logits(engine, &windows.sequences())?;
        let options = AnswerOptions {
            may_be_empty: true,
            ..AnswerOptions::default()
        };
        squad::answer(file, windows, logits.values(), options)
    }

    let held_windows: Windows = Windows::cut(&held_out, &tokenizer, show_options)?;
    let on_train: Vec<Answers> = answer_all(&mut engine, &learned, &train_windows)?;
    let on_held_out: Vec<Answers> = answer_all(&mut engine, &held_out, &held_windows)?;
    for ((_, asked), answers) in held_out.questions().zip(&on_held_out).take(10) {
        let odds = answers.null_odds.unwrap_or_default();
        let right = asked.answers.iter().flatten().next();
        let right = right.map_or("(no answer)", |answer| answer.text.as_str());
        println!(
            "{}\n    right: {right}\n    said:  {} (null odds {odds:.1})",
            asked.text, answers.best
        );
    }

    // %% [markdown]
    // Now the scores, by the official rules. Always answering means a threshold of infinity, never
    // answering one of minus infinity. A head of random numbers says what pointing blindly is worth.

    // %%
    /// Exact match and F1 in percent at a threshold of the null odds.
    fn figures(file: &Squad, answers: &[Answers], threshold: f64) -> cloze::Result<squad::Figures> {
        let texts = squad::predictions(answers, threshold);
        Ok(squad::score(file, &texts, None)?.all)
    }

    let mut blind: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let blindly: Vec<Answers> = answer_all(&mut blind, &held_out, &held_windows)?;
    const ALWAYS: f64 = f64::INFINITY;
    const NEVER: f64 = f64::NEG_INFINITY;
    let table: [(&'static str, squad::Figures); 5] = [
        (
            "training questions, always answering",
            figures(&learned, &on_train, ALWAYS)?,
        ),
        (
            "training questions, threshold 0",
            figures(&learned, &on_train, 0.0)?,
        ),
        (
            "held out, always answering",
            figures(&held_out, &on_held_out, ALWAYS)?,
        ),
        (
            "held out, before training",
            figures(&held_out, &blindly, ALWAYS)?,
        ),
        (
            "held out, never answering",
            figures(&held_out, &on_held_out, NEVER)?,
        ),
    ];
    for (name, figures) in &table {
        println!(
            "{name:<38} exact {:5.1} %, F1 {:5.1} %",
            figures.exact, figures.f1
        );
    }
    show!(
        BarChart::new("F1 of a very small BERT")
            .unit("%")
            .bars(table.iter().map(|(name, figures)| (*name, figures.f1)))
    );

    // %% [markdown]
    // The check of your last two exercises on real answers: exact match and F1 of the held-out
    // questions by your functions.

    // %%
    if solved!("09.5") && solved!("09.6") {
        let (mut exact, mut words, mut total) = (0.0, 0.0, 0.0);
        for ((_, asked), answers) in held_out.questions().zip(&on_held_out) {
            let said = normalise(&answers.best);
            let mut right: Vec<String> = asked
                .answers
                .iter()
                .flatten()
                .map(|a| normalise(&a.text))
                .collect();
            if right.is_empty() {
                right.push(String::new());
            }
            exact += f64::from(right.contains(&said));
            words += right
                .iter()
                .map(|right| f1(right, &said))
                .fold(0.0, f64::max);
            total += 1.0;
        }
        println!(
            "yours: exact {:.1} %, F1 {:.1} %",
            100.0 * exact / total,
            100.0 * words / total
        );
    }

    // %% [markdown]
    // ### The threshold
    //
    // Where a question has no answer, anything said is wrong and silence is right. Nothing is answered
    // where the null odds exceed a threshold $\tau$. Each $\tau$ gives other scores: answerable
    // questions want it high, the others low.

    // %%
    let mut odds: Vec<f64> = on_held_out.iter().filter_map(|a| a.null_odds).collect();
    odds.sort_by(f64::total_cmp);
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for &threshold in odds.iter().step_by(3) {
        let texts = squad::predictions(&on_held_out, threshold);
        let scores = squad::score(&held_out, &texts, None)?;
        let parts = [Some(scores.all), scores.has_answer, scores.no_answer];
        for (line, figures) in lines.iter_mut().zip(parts) {
            line.extend(figures.map(|figures| (threshold, figures.f1)));
        }
    }
    show!(
        LineChart::new("F1 on the held-out questions by the threshold of the null odds")
            .axes("threshold", "F1, %")
            .line("all questions", &lines[0])
            .line("with an answer", &lines[1])
            .line("without", &lines[2])
    );
    let best: squad::Best = squad::threshold(&held_out, &on_held_out)?;
    println!(
        "best F1 {:.1} % at a threshold of {:.2}",
        best.score,
        best.threshold.unwrap_or_default()
    );

    // %% [markdown]
    // The official script reports this best F1 (`best_f1`), though the threshold was chosen on the
    // very questions that it is measured on: it flatters a little. A model that is used needs a
    // threshold chosen elsewhere, which is why `cloze finetune squad2` stores the one of the
    // development file in `config.json` for later runs.
    //
    // ### Does it read the question?
    //
    // On the training questions the model is good, on others hardly better than blind. What has it
    // learned, then? Ask it something else about the same paragraph: give each question the words of
    // the next one, and count how often the answer stays the same. A model that reads the question
    // should nearly always change its mind.

    // %%
    /// The same file, each question asked in the words of the next one on its paragraph.
    fn rotated(file: &Squad) -> Squad {
        let mut all = file.clone();
        for paragraph in all.articles.iter_mut().flat_map(|a| &mut a.paragraphs) {
            let texts: Vec<String> = paragraph.questions.iter().map(|q| q.text.clone()).collect();
            for (question, next) in paragraph
                .questions
                .iter_mut()
                .zip(texts.iter().cycle().skip(1))
            {
                question.text.clone_from(next);
            }
        }
        all
    }

    for (name, file, before) in [
        ("training", &learned, &on_train),
        ("held-out", &held_out, &on_held_out),
    ] {
        let other = rotated(file);
        let windows = Windows::cut(&other, &tokenizer, show_options)?;
        let after = answer_all(&mut engine, &other, &windows)?;
        let same = before
            .iter()
            .zip(&after)
            .filter(|(a, b)| a.best == b.best)
            .count();
        println!(
            "{name}: the same answer to {same} of {} other questions",
            before.len()
        );
    }

    // %% [markdown]
    // On the training paragraphs it does change its mind: the words of each question lead to a place
    // that it knows by heart. On the held-out ones the answer stays the same for 28 of 78, so the
    // question does matter to the model; without reading it would be all 78. It only doesn't matter in
    // the right way. To answer *Who drives the van?* a token must find that what stands around it is
    // what the question speaks of, in other words and across two segments. That takes more layers, more
    // width and more text than cloze-tiny has had, and 233 questions teach it 233 answers.
    //
    // Your code is not what is missing: it agrees with the crate's, and the training questions prove
    // that it can be trained. all-MiniLM-L6-v2 (6 layers, 384 wide) gets an F1 of 48 % with the same
    // code and the same rows (`lessons/data/README.md`).
    //
    // ## What goes wrong
    //
    // The crate's real answers to four mistakes: an `answer_start` that counts bytes, a question
    // that leaves no room for the paragraph, windows longer than the model can read, and SQuAD 2.0
    // read as 1.1.

    // %%
    /// Reads a file as `cloze evaluate` would; gives the number of its questions.
    fn read_as(task: &str, file: &Path, tokenizer: &WordPiece) -> cloze::Result<usize> {
        let task = tasks::open(task, &Options::default(), Labels::Training(file))?;
        let reading = Reading {
            wordpiece: tokenizer,
            max_len: 128,
            limit: None,
            bad: &mut BadRows::refused(),
            notes: &mut Vec::new(),
        };
        Ok(task.read(file, Role::Dev, reading)?.rows())
    }

    let bytes: PathBuf = std::env::temp_dir().join("cloze-lesson-09.json");
    std::fs::write(
        &bytes,
        r#"{"data": [{"title": "Łódź", "paragraphs": [{"context": "In Łódź, Zoë's café opened in 1907.",
        "qas": [{"id": "q1", "question": "When?", "answers": [{"text": "1907", "answer_start": 35}]}]}]}]}"#,
    )?;
    if let Err(error) = Squad::read(&bytes, Misplaced::Refuse) {
        println!("{error}\n");
    }
    let narrow: WindowOptions = WindowOptions {
        max_len: 60,
        ..WindowOptions::default()
    };
    if let Err(error) = Windows::cut(&held_out, &tokenizer, narrow) {
        println!("{error}\n");
    }
    if let Err(error) = answer_all(&mut engine, &held_out, &whole) {
        println!("{error}\n");
    }
    if let Err(error) = read_as("squad", &questions.join("dev-v2.0.json"), &tokenizer) {
        println!("{error}");
    }

    // %% [markdown]
    // And from the compiler, if you think of one score a token, `let scores: Rows<1> =
    // head.forward(rows);`:
    //
    // ```text
    // error[E0308]: mismatched types
    //   |     let scores: Rows<1> = head.forward(rows);
    //   |                 -------   ^^^^^^^^^^^^^^^^^^ expected `1`, found `2`
    //   |                 |
    //   |                 expected due to this
    //   = note: expected struct `Tensor<(_, Const<1>), _, _>`
    //              found struct `Tensor<(_, Const<2>), _, _>`
    // ```
    //
    // Every token has two scores, one as a start and one as an end.
    //
    // **What no message says.**
    //
    // - *Exact match near 0, F1 fine*: ends are off by one. Rows are counted with both ends
    //   included here, ranges in Rust without the last.
    // - *Answers like "sarn, which a"*: `j >= i` holds, but the end's scores were taken from the
    //   wrong column.
    // - *A model that never answers*: most windows don't show the answer and say `[CLS]`. Fewer of
    //   them (a larger stride), or a threshold.
    //
    // ## Expected numbers
    //
    // - 233 questions make 461 windows of 128 tokens;
    // - the loss begins at 5.1 and ends at about 0.2; training takes about ten seconds;
    // - training questions: F1 83 % with the threshold 0, 64 % always answering (which is wrong about
    //   the 46 without an answer);
    // - held out: F1 6.5 % always answering, 5.3 % before training, 19.2 % never answering (15 of 78
    //   have no answer), 19.4 % with the best threshold;
    // - the same answer to another question: 34 of 233, and 28 of 78 held out.
    //
    // ## On real data
    //
    // `cloze data get squad`, then `cloze finetune squad --data data/SQuAD --model DIR --out answers`
    // with any BERT; `cloze score squad --data data/SQuAD/dev-v1.1.json --predictions
    // predictions.json` scores a file of answers from anywhere. The paper's BERT-base has exact
    // match 80.8 and F1 88.5 on SQuAD 1.1, BERT-large 84.1 and 90.9 (development set, table 2).
    //
    // ## Open questions
    //
    // 1. $P^{\text{start}}$ and $P^{\text{end}}$ are computed without knowing of each other. Find a
    //    sentence in which the best pair mixes two different answers. How would you let the end
    //    know the start, and what would it cost?
    // 2. F1 gives two thirds to an answer that holds the right words and as many wrong ones. A paragraph as
    //    a whole always holds the right words: what F1 would answering with all of it get here, and
    //    what does `longest` protect from?
    //
    // The crate's source of this part: windows and places in `src/data/squad/windows.rs`, the search
    // in `src/eval/squad/answers.rs`, normalisation and F1 in `src/eval/squad/normalise.rs`, the loss
    // in `src/engine/objective.rs`, the task in `src/tasks/span.rs`. Next: [lesson 10](10_swag.rs), where the
    // model chooses among four endings.

    // %% [end]
    cloze::lessons::finish("09_squad")
}
