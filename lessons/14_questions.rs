// ---
// title = "SQuAD: point at the answer"
// summary = "Read long paragraphs through windows, find an answer's tokens by their places in the text, write the loss of a head that points at them, search the best span, and see the spans of a model that you train."
// track = "use"
// minutes = 59
// seconds = 30
// needs = ["12"]
//
// [[exercise]]
// id = "14.1"
// key = "windows"
// was = "09.1"
// title = "Windows over a long paragraph"
// hints = [
//     "A loop: a window begins at `start` and ends `room` pieces later, or where the pieces end if that is sooner. The window that reaches the end is the last.",
//     "The next window begins `stride` pieces after the start of this one. A stride longer than the room would leave pieces out, so take `stride.min(room)`.",
//     "`loop { let end = pieces.min(start + room); list.push(start..end); if end == pieces { return list; } start += stride.min(room); }`. A paragraph without pieces has one empty window.",
// ]
//
// [[exercise]]
// id = "14.2"
// key = "covering"
// was = "09.2"
// title = "From characters to pieces"
// hints = [
//     "A piece from `a` to `b` and an answer from `start` to `end` have a character in common where `a < answer.end && b > answer.start`.",
//     "`offsets.iter().position(…)` finds the first such piece, `rposition` the last. Both return an `Option`.",
//     "`Some((offsets.iter().position(touches)?, offsets.iter().rposition(touches)?))`, where `touches` is a closure over `&(usize, usize)`.",
// ]
//
// [[exercise]]
// id = "14.3"
// key = "span_loss"
// was = "09.3"
// title = "The loss of a span"
// hints = [
//     "`head.forward(rows).as_vec()` has two numbers for each token: start, end, start, end, … Every second one from 0 is a start score, every second one from 1 an end score: `.step_by(2)`.",
//     "The right start is one of the *tokens* of the sequence, so softmax runs over all start scores: `softmax(&starts)[answer[0]]`.",
//     "The loss is the mean of -ln P(start) and -ln P(end).",
// ]
//
// [[exercise]]
// id = "14.4"
// key = "best_span"
// was = "09.4"
// title = "The best span"
// hints = [
//     "Two loops: for each start `i` in the context, for each end `j` from `i` on, at most `longest` tokens: `i..context.end.min(i + longest)`.",
//     "Keep the pair with the largest `starts[i] + ends[j]`. Begin without a best pair: an `Option`.",
//     "Replace the best pair only if a score is strictly larger, so that the first one stays among equals.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 14 · SQuAD: point at the answer
    //
    // BERT answers a question about a paragraph by pointing at the first and the last token of the
    // answer. You cut long paragraphs into windows, find the tokens of an answer by the places of its
    // characters, write the loss of a head that points, and search the best span. At the end you train
    // a model and see where it points.
    //
    // *About 59 minutes; one cell trains for about ten seconds. You need [lesson 12](12_fine_tuning.rs).*

    // %%
    use std::ops::Range;
    use std::path::PathBuf;

    use cloze::data::sequences::BatchSize;
    use cloze::data::squad::{Misplaced, Squad, WindowOptions, Windows};
    use cloze::data::{Examples, Sequences, Targets};
    use cloze::engine::objective;
    use cloze::eval::{softmax, squad};
    use cloze::lessons::data;
    use cloze::lessons::support::finetuning::{self, linear};
    use cloze::lessons::support::spans::{self, starts_and_ends};
    use cloze::model::Part;
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::random::{Site, Stream};
    use cloze::train::finetune::Settings as Recipe;
    use dfdx::nn::modules::Linear;

    // %% [markdown]
    // ## Where we are going
    //
    // The set `questions` has the layout of SQuAD 2.0: 60 paragraphs about things that exist nowhere
    // else, so nobody can know the answers beforehand. Here are the first paragraph and its questions:

    // %%
    let folder: PathBuf = data::folder(data::TINY)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let questions: PathBuf = data::folder("questions")?;
    let train: Squad = Squad::read(&questions.join("train-v2.0.json"), Misplaced::Refuse)?;
    if let Some(paragraph) = train.paragraphs().next() {
        println!("{}\n", paragraph.context.replace(". ", ".\n"));
        for asked in &paragraph.questions {
            let answer = asked.answers.iter().flatten().next();
            let answer = answer.map_or("(no answer)", |answer| answer.text.as_str());
            println!("{} -> {answer}", asked.text);
        }
    }

    // %% [markdown]
    // The model reads the question as segment A and the paragraph as segment B. The answer is two row
    // numbers.

    // %%
    let options: WindowOptions = WindowOptions {
        max_len: 128,
        stride: 64,
        max_question: 32,
    };
    let shown: Windows = Windows::cut(&train, &tokenizer, options)?;
    let second: usize = shown.of_question(1).start;
    let target: [u32; 2] = shown.target(second).unwrap_or_default();
    show!(spans::window_strip(&tokenizer, &shown, second));
    println!("start {}, end {}", target[0], target[1]);

    // %% [markdown]
    // ## The idea
    //
    // The head learns two vectors, $S$ for starts and $E$ for ends, both in $\mathbb{R}^H$. With
    // $T_i$ the last hidden state of token $i$, the probability that the answer begins there is a
    // softmax *over the tokens of the sequence*:
    //
    // $$ P^{\text{start}}_i = \frac{e^{S \cdot T_i}}{\sum_k e^{S \cdot T_k}}, \qquad
    //    \text{score}(i, j) = S \cdot T_i + E \cdot T_j, \quad j \ge i $$
    //
    // and $P^{\text{end}}$ likewise with $E$ ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805),
    // section 4.2; data: [Rajpurkar et al. 2016](https://arxiv.org/abs/1606.05250)). Where a question
    // may have no answer (SQuAD 2.0, [2018](https://arxiv.org/abs/1806.03822)), "no answer" is the span
    // from `[CLS]` to `[CLS]` (section 4.3).
    //
    // ## Step 1: windows
    //
    // A model reads a limited number of tokens: 512 for BERT, 128 for `cloze-tiny`. What the question
    // and three special tokens leave is the **room** for the paragraph. A longer paragraph is read
    // through several windows, each of which starts `stride` pieces after the one before, so that
    // they overlap: an answer that one window cuts in two is whole in the next.
    //
    // **Exercise 14.1.** Return the windows over so many pieces, in order. The one that reaches the
    // end is the last. A stride longer than the room would leave pieces out, so it counts as the
    // room; a paragraph without pieces has one empty window.

    // %%
    fn windows(pieces: usize, room: usize, stride: usize) -> Vec<Range<usize>> {
        // BEGIN SOLUTION
        cloze::solution!("14.1");
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
    check!("14.1", |judge| {
        let three = windows(10, 6, 2);
        judge.holds(
            &format!("windows(10, 6, 2) has 3 windows; yours has {}", three.len()),
            three.len() <= 3,
            "The window 4..10 reaches the end, so it is the last. Further ones would show nothing new.",
        );
        judge.same_list(
            "windows(10, 6, 2)",
            &three,
            &[0..6, 2..8, 4..10],
            "Each window is 6 pieces long and begins 2 later than the one before. The stride is \
             the distance between two starts, not the overlap of two windows.",
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
            "All of it fits into one window.",
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
            "A stride of 9 with a room of 3 would leave pieces out: advance by at most 3.",
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
                    "The crate's `Windows::cut` returns these, for 128 tokens and a stride of 64.",
                );
                number += 1;
            }
        }
    });

    // %% [markdown]
    // The picture shows your windows over 26 pieces, with a room of 12 and a stride of 5. At a window's
    // edge the model can't see how the text continues. So a span counts only in the window that shows
    // the most text around its first piece (the dark cell).

    // %%
    if solved!("14.1") {
        show!(spans::window_map(&windows(26, 12, 5), 26));
    }
    println!("{} windows of all questions", shown.len());

    // %% [markdown]
    // ## Step 2: characters and pieces
    //
    // SQuAD states where an answer starts in *characters* of the paragraph, more precisely in Unicode
    // code points. The model points at *pieces*. So the tokenizer returns the **offsets** of each
    // piece: its first character in the text, and the one after its last.

    // %%
    let sentence: &'static str = "In Łódź, Zoë's café opened in 1907.";
    let example: cloze::text::Encoding = tokenizer.encode(sentence);
    let places: Vec<String> = example
        .offsets
        .iter()
        .map(|(a, b)| format!("{a}-{b}"))
        .collect();
    show!(TokenStrip::new("Pieces and their places", &example.tokens).row("characters", &places));
    println!("1907 starts at byte {:?}", sentence.find("1907"));

    // %% [markdown]
    // The pieces are in lower case and without accents, so an answer is cut out of the text itself, by
    // the offsets. Note the two numbers for 1907: Rust's `find` counts bytes, and each accented letter
    // has two.
    //
    // **Exercise 14.2.** Return the first and the last piece that have a character in common with
    // the answer, `None` if there is no such piece.

    // %%
    fn covering(offsets: &[(usize, usize)], answer: Range<usize>) -> Option<(usize, usize)> {
        // BEGIN SOLUTION
        cloze::solution!("14.2");
        let touches = |place: &(usize, usize)| place.0 < answer.end && place.1 > answer.start;
        Some((
            offsets.iter().position(touches)?,
            offsets.iter().rposition(touches)?,
        ))
        // END SOLUTION
    }

    // %%
    check!("14.2", |judge| {
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
            "An answer inside a piece. The smallest thing that a model can point at is a whole \
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
                        "The crate's `Windows::target` returns this. For a window that doesn't show the \
                         whole answer, or a question without one, it is [0, 0]: [CLS].",
                    );
                }
                number += 1;
            }
        }
    });

    // %% [markdown]
    // So every window has a target, even one that misses the answer: it should point at `[CLS]`.
    //
    // ## Step 3: the head and its loss
    //
    // In dfdx the head is `Linear<H, 2>`, and it is applied to *every* row. Its two outputs are not
    // two classes: column 0 is compared along the tokens, and so is column 1. For the right start
    // $a$ and the right end $b$ the loss is
    //
    // $$ L = -\tfrac{1}{2} \left( \ln P^{\text{start}}_a + \ln P^{\text{end}}_b \right) . $$
    //
    // **Exercise 14.3.** Return the loss of one sequence. `rows` are the last hidden states of its
    // tokens; `as_vec()` returns the numbers of a tensor row by row; `softmax`, the crate's, takes
    // a `&[f32]` and returns a `Vec<f64>`.

    // %%
    const H: usize = 128;
    type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;

    fn span_loss(rows: Rows<H>, head: &Linear<H, 2, f32, Cpu>, answer: [usize; 2]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("14.3");
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
    let head: Linear<H, 2, f32, Cpu> = linear(&model, "qa_outputs")?;
    let one: Packed = shown.sequences().batch(&[second]);
    let rows: Rows<H> = bert.encode::<NoneTape>(&one, None, &mut |_, _| {});
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let logits: Vec<f32> = engine.task_logits(&one)?;

    // %%
    check!("14.3", |judge| {
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
                "Your softmax runs over starts and ends together. Each column needs its own softmax.",
            ),
            (
                halves,
                "You took the first half of the list as starts and the second as ends. The list is in rows: \
                 start, end, start, end, …",
            ),
            (
                crossed.loss,
                "Starts and ends are swapped: output 0 is for starts, output 1 for ends.",
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
            "The crate's `objective::spans` returns this for its engine's logits.",
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
    // Before training the loss should be near that of a guess, $\ln(\text{tokens})$: $\ln 128 = 4.85$
    // for a full window.
    //
    // ## Step 4: the best span
    //
    // The best start and the best end, each chosen alone, may form a span that ends *before* it starts,
    // or one as long as the paragraph. So the search compares all spans with $j \ge i$ of at most
    // `longest` tokens. Only rows of the paragraph count, not those of the question.
    //
    // **Exercise 14.4.** Return the rows of the best span, its start and its end (the end belongs to
    // it), the first one among equals, and `None` if `context`, the rows of the paragraph, is empty.

    // %%
    fn best_span(
        starts: &[f32],
        ends: &[f32],
        context: Range<usize>,
        longest: usize,
    ) -> Option<(usize, usize)> {
        // BEGIN SOLUTION
        cloze::solution!("14.4");
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
    check!("14.4", |judge| {
        let (starts, ends) = ([0.0, 1.0, 5.0, 2.0, 0.0], [0.0, 6.0, 1.0, 2.0, 0.0]);
        let yours = best_span(&starts, &ends, 0..5, 5);
        judge.holds(
            &format!("the end is not before the start; yours is {yours:?}"),
            yours != Some((2, 1)),
            "The best start is row 2 and the best end is row 1; a span can't end before it starts.",
        );
        judge.equal(
            "best_span(&[0, 1, 5, 2, 0], &[0, 6, 1, 2, 0], 0..5, 5)",
            yours,
            Some((1, 1)),
            "1 + 6 and 5 + 2 are both 7: the first among equals counts, and a span may be one \
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
            "Scores may all be negative, so the search can't start with 0 as the best score.",
        );
        judge.equal(
            "within an empty range",
            best_span(&starts, &ends, 3..3, 5),
            None,
            "Without rows there is no span.",
        );
        // Windows that hold every paragraph whole: no model is needed to compare two searches.
        let prepare = || -> cloze::Result<(Squad, Windows, Vec<f32>, Vec<squad::Answers>)> {
            let held_out = Squad::read(&questions.join("dev-v2.0.json"), Misplaced::Refuse)?;
            let whole = Windows::cut(&held_out, &tokenizer, WindowOptions::default())?;
            let noise = Stream::new(9, 0, Site::Order, 0);
            let tokens: usize = (0..whole.len()).map(|window| whole.tokens(window)).sum();
            let random: Vec<f32> = (0..2 * tokens)
                .map(|i| noise.uniform(i as u32) as f32)
                .collect();
            let options = squad::AnswerOptions {
                n_best: 1,
                max_answer: 30,
                may_be_empty: false,
            };
            let by_crate = squad::answer(&held_out, &whole, &random, options)?;
            Ok((held_out, whole, random, by_crate))
        };
        let (held_out, whole, random, by_crate) = match prepare() {
            Ok(prepared) => prepared,
            Err(error) => {
                judge.holds("the crate answers all questions", false, &error.to_string());
                return;
            }
        };
        let mut before = 0;
        for (question, (paragraph, asked)) in held_out.questions().enumerate() {
            let window = whole.of_question(question).start;
            let size = 2 * whole.tokens(window);
            let (starts, ends) = starts_and_ends(&random[before..before + size]);
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
                    "Start and end lie in the rows of the paragraph, and the end is not before the start.",
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
    // ## Train it
    //
    // Every window is an example. The crate's `Finetuner` runs the loop of lesson 12, and a chart shows
    // the loss.

    // %%
    // All questions; only a few in the automatic tests of the lessons.
    let mut learned: Squad = train.clone();
    learned.truncate(cloze::lessons::steps(1_000) as usize);
    let (sequences, spans): (Sequences, Vec<[u32; 2]>) =
        Windows::cut(&learned, &tokenizer, options)?.training();
    let targets: Targets = Targets::Spans(spans);
    let examples: Examples = Examples { sequences, targets };
    let recipe: Recipe = Recipe {
        epochs: 10,
        batch: BatchSize::Examples(16),
        learning_rate: 1e-3,
        seed: 1,
        ..Recipe::default()
    };
    let chart: LineChart = LineChart::new("Loss of a span head")
        .axes("step", "cross-entropy (nats)")
        .reference("ln 128", 128f64.ln());
    let (parameters, _): (Vec<f32>, Vec<f64>) =
        finetuning::finetune(&model, &examples, &recipe, Some(chart))?;
    engine.set_parameters(&parameters)?;

    // %% [markdown]
    // ## See a span
    //
    // The map shows the score of each span around the answer to the question above, minus the lowest
    // score. Below the diagonal the end would come before the start, so those cells are empty. Your
    // `best_span` searches the whole paragraph.

    // %%
    let (starts, ends): (Vec<f32>, Vec<f32>) = starts_and_ends(&engine.task_logits(&one)?);
    let tokens: Vec<String> = spans::window_tokens(&tokenizer, &shown, second);
    let near: Range<usize> = 32..53;
    let title: &'static str = "Who built the toll bridge? Start (row), end (column)";
    show!(spans::span_map(title, &tokens, &starts, &ends, near));
    if solved!("14.4") {
        let context = shown.first_row(second)..one.rows() - 1;
        if let Some((i, j)) = best_span(&starts, &ends, context, 30) {
            println!("best span: rows {i} to {j}, {}", tokens[i..=j].join(" "));
        }
    }

    // %% [markdown]
    // Each score is a number of the row plus a number of the column, so the map consists of stripes. The
    // model was trained on this very question. How well it answers new ones is the subject of lesson 15.

    // %% [markdown]
    // ## What goes wrong
    //
    // **An `answer_start` that counts bytes.** The crate reports it:

    // %%
    let bytes: PathBuf = std::env::temp_dir().join("cloze-lesson-14.json");
    std::fs::write(
        &bytes,
        r#"{"data": [{"title": "Łódź", "paragraphs": [{"context": "In Łódź, Zoë's café opened in 1907.",
        "qas": [{"id": "q1", "question": "When?", "answers": [{"text": "1907", "answer_start": 35}]}]}]}]}"#,
    )?;
    if let Err(error) = Squad::read(&bytes, Misplaced::Refuse) {
        println!("{error}");
    }

    // %% [markdown]
    // **One score for each token**, `let scores: Rows<1> = head.forward(rows);`:
    //
    // ```text
    // error[E0308]: mismatched types
    //   |     let scores: Rows<1> = head.forward(rows);
    //   |                 -------   ^^^^^^^^^^^^^^^^^^ expected `1`, found `2`
    // ```
    //
    // Every token has two scores: as a start and as an end.
    //
    // **What no message reports.**
    //
    // - *Every answer has a piece too many or too few*: a span here includes its last row, but a range
    //   in Rust excludes its end.
    // - *Answers like "sarn, which a"*: $j \ge i$ holds, but the scores of the ends were taken from the
    //   wrong column.

    // %% [markdown]
    // ## Expected numbers
    //
    // - 233 questions make 461 windows of at most 128 tokens;
    // - the loss begins at 5.1 and ends at about 0.2;
    // - the best span for the toll bridge: rows 40 to 43, *Odo Barras*.

    // %% [markdown]
    // ## On real data
    //
    // `cloze data get squad`, then `cloze finetune squad --data data/SQuAD --model DIR --out answers`
    // with any BERT. On SQuAD 1.1 the paper's BERT-base has an F1 of 88.5 %, BERT-large 90.9 %
    // (development set, table 2); lesson 15 explains this measure.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Start and end are chosen independently. Find a sentence in which the best pair mixes two
    //    answers. How would you let the end depend on the start, and what would it cost?
    // 2. A window without the answer has the target `[CLS]`. What does a model learn if nearly all
    //    windows are of this kind, and what could you change?
    //
    // The crate's source of this part: windows and places in `src/data/squad/windows.rs`, the loss in
    // `src/engine/objective.rs`, the search in `src/eval/squad/answers.rs`. Next: [lesson
    // 15](15_answers.rs), which scores the answers and decides when there is none.

    // %% [end]
    cloze::lessons::finish("14_questions")
}
