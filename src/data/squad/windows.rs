//! Token sequences of questions with their contexts: `[CLS] question [SEP] part of the context [SEP]`.
//!
//! A context that is too long is read through overlapping windows, each `stride` pieces further than
//! the one before (google-research/bert, run_squad.py, `convert_examples_to_features`). A piece in
//! several windows counts in the one that shows most of its surroundings.
//!
//! Each context is stored once, as pieces with their offsets; a window is a range of its pieces.

use std::ops::Range;

use rayon::prelude::*;
use unicode_general_category::get_general_category;

use crate::data::Sequences;
use crate::error::{Error, Result};
use crate::text::{Encoding, WordPiece};

use super::{Paragraph, Question, Squad};

/// Limits of questions and windows. The defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowOptions {
    /// Longest sequence, in tokens.
    pub max_len: usize,
    /// Pieces of the context between the starts of two windows.
    pub stride: usize,
    /// Longest question in pieces; longer ones are truncated.
    pub max_question: usize,
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self { max_len: 384, stride: 128, max_question: 64 }
    }
}

/// The windows of all questions of a file, in order.
#[derive(Debug, Clone)]
pub struct Windows {
    contexts: Vec<Context>,
    questions: Vec<Asked>,
    windows: Vec<Window>,
    cls: u32,
    sep: u32,
    /// The tokens between question and context.
    between: Vec<u32>,
    /// The segment id of the context.
    segment: u32,
}

/// A tokenised context.
#[derive(Debug, Clone)]
struct Context {
    ids: Vec<u32>,
    /// Start and end of each piece in the text, in code points.
    offsets: Vec<(u32, u32)>,
}

/// A tokenised question.
#[derive(Debug, Clone)]
struct Asked {
    /// The index of its context.
    context: usize,
    ids: Vec<u32>,
    answer: Position,
    /// Its windows, at least one.
    windows: Range<usize>,
}

/// The position of an answer in its context.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Position {
    /// The smallest range of pieces that covers it.
    Pieces(Range<usize>),
    /// The context has no answer.
    Nowhere,
    /// No answer is given.
    Unknown,
    /// No piece covers the answer: the tokenizer drops all its characters.
    Dropped,
}

#[derive(Debug, Clone)]
struct Window {
    question: usize,
    /// Its pieces of the context.
    pieces: Range<usize>,
}

impl Windows {
    /// Tokenises all questions of a file and splits their contexts into windows. Fails if the options leave
    /// no room for a context.
    pub fn cut(squad: &Squad, wordpiece: &WordPiece, options: WindowOptions) -> Result<Self> {
        let between = wordpiece.between().to_vec();
        let least = options.max_question.saturating_add(between.len() + 3);
        if options.max_len < least {
            return Err(Error::Usage(format!(
                "max_len {} leaves no room for a context beside a question of up to {} pieces \
                 (max_question) and the special tokens: at least {least} are needed",
                options.max_len, options.max_question
            )));
        }
        if options.stride == 0 {
            let message = "stride 0 never gets through a context: at least 1 is needed";
            return Err(Error::Usage(message.to_owned()));
        }
        let paragraphs: Vec<&Paragraph> = squad.paragraphs().collect();
        let cut = |paragraph: &&Paragraph| cut_paragraph(paragraph, wordpiece, options);
        let cut: Vec<(Context, Vec<Cut>)> = paragraphs.par_iter().map(cut).collect();
        let special = wordpiece.special();
        let mut all = Self {
            contexts: Vec::with_capacity(cut.len()),
            questions: Vec::new(),
            windows: Vec::new(),
            cls: special.cls,
            sep: special.sep,
            between,
            segment: wordpiece.second_segment(),
        };
        for (context, questions) in cut {
            for Cut { ids, answer, parts } in questions {
                let first = all.windows.len();
                let question = all.questions.len();
                let parts = parts.into_iter();
                all.windows.extend(parts.map(|pieces| Window { question, pieces }));
                all.questions.push(Asked {
                    context: all.contexts.len(),
                    ids,
                    answer,
                    windows: first..all.windows.len(),
                });
            }
            all.contexts.push(context);
        }
        Ok(all)
    }

    /// Returns the number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the number of questions of the file.
    pub fn questions(&self) -> usize {
        self.questions.len()
    }

    /// Returns the windows of a question, at least one.
    pub fn of_question(&self, question: usize) -> Range<usize> {
        self.questions[question].windows.clone()
    }

    /// Returns the number of tokens of a window.
    pub fn tokens(&self, window: usize) -> usize {
        let pieces = &self.windows[window].pieces;
        self.first_row(window) + pieces.len() + 1
    }

    /// Returns the row of a window's sequence at which its part of the context begins.
    pub fn first_row(&self, window: usize) -> usize {
        self.questions[self.windows[window].question].ids.len() + 1 + self.between.len()
    }

    /// Returns a window's pieces of the context.
    pub fn pieces(&self, window: usize) -> Range<usize> {
        self.windows[window].pieces.clone()
    }

    /// Returns the code points of the context that a range of pieces covers.
    pub fn text_range(&self, question: usize, pieces: Range<usize>) -> Range<usize> {
        let offsets = &self.contexts[self.questions[question].context].offsets[pieces];
        let start = offsets.iter().map(|&(start, _)| start).min().unwrap_or(0);
        let end = offsets.iter().map(|&(_, end)| end).max().unwrap_or(0);
        start as usize..end as usize
    }

    /// Returns the rows of a window's sequence at which its answer starts and ends. Both are 0, the row of
    /// `[CLS]`, if there is no answer or the window doesn't show all of it; returns `None` if the answer is
    /// unknown.
    pub fn target(&self, window: usize) -> Option<[u32; 2]> {
        let Window { question, pieces } = &self.windows[window];
        match &self.questions[*question].answer {
            Position::Unknown | Position::Dropped => None,
            Position::Pieces(answer)
                if pieces.start <= answer.start && answer.end <= pieces.end =>
            {
                let row = |piece: usize| (self.first_row(window) + piece - pieces.start) as u32;
                Some([row(answer.start), row(answer.end - 1)])
            }
            Position::Pieces(_) | Position::Nowhere => Some([0, 0]),
        }
    }

    /// Returns the number of questions whose answer no piece covers, so that they can't be trained on.
    pub fn dropped(&self) -> usize {
        let answers = self.questions.iter().map(|question| &question.answer);
        answers.filter(|&answer| *answer == Position::Dropped).count()
    }

    /// Returns all windows as sequences.
    pub fn sequences(&self) -> Sequences {
        let mut sequences = Sequences::default();
        for window in 0..self.len() {
            self.push(window, &mut sequences);
        }
        sequences
    }

    /// Returns the windows with known targets as sequences, and these [targets](Self::target).
    pub fn training(&self) -> (Sequences, Vec<[u32; 2]>) {
        let (mut sequences, mut targets) = (Sequences::default(), Vec::new());
        for window in 0..self.len() {
            if let Some(target) = self.target(window) {
                self.push(window, &mut sequences);
                targets.push(target);
            }
        }
        (sequences, targets)
    }

    fn push(&self, window: usize, sequences: &mut Sequences) {
        let Window { question, pieces } = &self.windows[window];
        let Asked { context, ids, .. } = &self.questions[*question];
        let context = &self.contexts[*context].ids[pieces.clone()];
        let (cls, sep) = ([self.cls], [self.sep]);
        let b = self.segment;
        sequences.push(&[(&cls, 0), (ids, 0), (&self.between, 0), (context, b), (&sep, b)]);
    }

    /// Returns whether no other window of its question shows more of a piece's surroundings: the shorter
    /// side, plus a hundredth of the window's length (run_squad.py, `_check_is_max_context`). Of equal
    /// windows the first is the best.
    pub fn is_best_window(&self, window: usize, piece: usize) -> bool {
        let siblings = &self.questions[self.windows[window].question].windows;
        let mut best: Option<(usize, f64)> = None;
        for other in siblings.clone() {
            let pieces = &self.windows[other].pieces;
            if !pieces.contains(&piece) {
                continue;
            }
            let shorter = (piece - pieces.start).min(pieces.end - 1 - piece);
            let seen = shorter as f64 + 0.01 * pieces.len() as f64;
            if best.is_none_or(|(_, most)| seen > most) {
                best = Some((other, seen));
            }
        }
        best.is_some_and(|(best, _)| best == window)
    }
}

/// A tokenised question with the parts of its context.
struct Cut {
    ids: Vec<u32>,
    answer: Position,
    parts: Vec<Range<usize>>,
}

fn cut_paragraph(
    paragraph: &Paragraph,
    wordpiece: &WordPiece,
    options: WindowOptions,
) -> (Context, Vec<Cut>) {
    let Encoding { ids, offsets, .. } = wordpiece.encode(&paragraph.context);
    let offsets = with_accents(&offsets, &paragraph.context);
    let questions = paragraph.questions.iter();
    let questions = questions
        .map(|question| {
            let mut asked = Vec::new();
            wordpiece.encode_ids(&question.text, &mut asked);
            asked.truncate(options.max_question);
            let room = options.max_len - asked.len() - 2 - wordpiece.between().len();
            Cut {
                parts: parts(ids.len(), room, options.stride),
                answer: position(question, &paragraph.context, &offsets),
                ids: asked,
            }
        })
        .collect();
    (Context { ids, offsets }, questions)
}

/// Extends the offsets of each piece by the accents after it that belong to no piece: an uncased vocabulary
/// strips them, but the text of an answer includes them.
fn with_accents(offsets: &[(usize, usize)], context: &str) -> Vec<(u32, u32)> {
    let chars: Vec<char> = match context.is_ascii() {
        true => Vec::new(),
        false => context.chars().collect(),
    };
    let nexts = offsets.iter().skip(1).map(|&(next, _)| next);
    offsets
        .iter()
        .zip(nexts.chain([usize::MAX]))
        .map(|(&(start, end), next)| {
            let after = chars.get(end..chars.len().min(next)).unwrap_or_default();
            let accents = after.iter().take_while(|&&c| is_mark(c)).count();
            (start as u32, (end + accents) as u32)
        })
        .collect()
}

/// Returns whether a character combines with the one before it.
fn is_mark(c: char) -> bool {
    get_general_category(c).abbreviation().starts_with('M')
}

/// Splits a context of `pieces` pieces into windows: at least one, even if it is empty.
fn parts(pieces: usize, room: usize, stride: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::with_capacity(1);
    let mut start = 0;
    loop {
        let end = pieces.min(start + room);
        parts.push(start..end);
        if end == pieces {
            return parts;
        }
        start += stride.min(room);
    }
}

/// Finds the answer among the pieces: the first of several answers, as run_squad.py takes the only one of
/// training files.
fn position(question: &Question, context: &str, offsets: &[(u32, u32)]) -> Position {
    let answer = match (question.answerable(), &question.answers) {
        (None, _) | (_, None) => return Position::Unknown,
        (Some(false), _) => return Position::Nowhere,
        (Some(true), Some(answers)) => answers.iter().find_map(|answer| answer.place(context)),
    };
    let Some(Range { start, end }) = answer else {
        return Position::Unknown;
    };
    let touches = |&(from, to): &(u32, u32)| (from as usize) < end && to as usize > start;
    match (offsets.iter().position(touches), offsets.iter().rposition(touches)) {
        (Some(first), Some(last)) => Position::Pieces(first..last + 1),
        _ => Position::Dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::squad::Answer;
    use crate::text::Casing;

    fn wordpiece() -> WordPiece {
        let letters = ('a'..='z').map(String::from);
        let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##c", "##b", "京", "."];
        let vocab = special.map(String::from).into_iter().chain(letters);
        WordPiece::from_vocab(vocab.collect(), Casing::Uncased).unwrap()
    }

    fn squad(context: &str, question: &str, answers: Option<&[(&str, i64)]>) -> Squad {
        let answer =
            |&(text, start): &(&str, i64)| Answer { text: text.to_owned(), start: Some(start) };
        let answers = answers.map(|answers| answers.iter().map(answer).collect());
        Squad::of_questions([("q".into(), context, question, answers)])
    }

    const SMALL: WindowOptions = WindowOptions { max_len: 12, stride: 2, max_question: 3 };

    #[test]
    fn windows_overlap_and_show_question_and_part() {
        let squad = squad("a b c d e f g h i j", "x y z w", Some(&[("g h", 12)]));
        let windows = Windows::cut(&squad, &wordpiece(), SMALL).unwrap();
        let parts: Vec<_> = (0..windows.len()).map(|w| windows.pieces(w)).collect();
        assert_eq!(parts, [0..6, 2..8, 4..10]);
        let sequences = windows.sequences();
        let text = |window: usize| wordpiece().decode(sequences.ids(window));
        assert_eq!(text(1), "x y z c d e f g h");
        let batch = sequences.batch(&[1]);
        assert_eq!(batch.segments, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!((windows.tokens(1), windows.first_row(1)), (12, 5));
        // The first window ends before the answer does.
        let targets: Vec<_> = (0..3).map(|window| windows.target(window)).collect();
        assert_eq!(targets, [Some([0, 0]), Some([9, 10]), Some([7, 8])]);
        assert_eq!(windows.training().1.len(), 3);
    }

    /// Like the example in the comment of `_check_is_max_context`: "bought" in three spans.
    #[test]
    fn a_piece_counts_in_the_window_that_shows_most_around_it() {
        let squad = squad("a b c d e f g h i j k", "x y z", None);
        let options = WindowOptions { stride: 3, ..SMALL };
        let windows = Windows::cut(&squad, &wordpiece(), options).unwrap();
        let best: Vec<Vec<usize>> = (0..windows.len())
            .map(|window| {
                let pieces = windows.pieces(window);
                pieces.filter(|&p| windows.is_best_window(window, p)).collect()
            })
            .collect();
        // Windows 0..6, 3..9 and 6..11: the shorter side of piece 4 has one neighbour in the first two, of
        // which the first is best; pieces 7 and 8 show less in the third, which is shorter.
        assert_eq!(best[0], [0, 1, 2, 3, 4]);
        assert_eq!(best[1], [5, 6, 7]);
        assert_eq!(best[2], [8, 9, 10]);
        assert_eq!(windows.target(0), None);
        assert!(windows.training().0.is_empty());
    }

    #[test]
    fn answers_are_covered_through_accents_and_inside_words() {
        let cut = |context: &str, text: &str, start: i64| {
            let squad = squad(context, "x", Some(&[(text, start)]));
            let windows = Windows::cut(&squad, &wordpiece(), SMALL).unwrap();
            let target = windows.target(0)?;
            let row = |end: usize| target[end] as usize - windows.first_row(0);
            let range = windows.text_range(0, row(0)..row(1) + 1);
            let text = context.chars().skip(range.start).take(range.len());
            Some(text.collect::<String>())
        };
        assert_eq!(cut("z abc d", "abc", 2).unwrap(), "abc");
        assert_eq!(cut("z abc d", "b", 3).unwrap(), "b");
        assert_eq!(cut("京京 a", "京", 1).unwrap(), "京");
        assert_eq!(cut("É á. b", "É á", 0).unwrap(), "É á");
        // Combining accents belong to the letter before them.
        assert_eq!(cut("z e\u{301} b", "e\u{301}", 2).unwrap(), "e\u{301}");
        let two = "e\u{301}\u{323}.";
        assert_eq!(cut(&format!("z {two} b"), two, 2).unwrap(), two);
        // Zero bytes count as code points, though no piece has them.
        assert_eq!(cut("z\0 \0 a\0b\0 d", "a\0b", 5).unwrap(), "a\0b");
        // An unknown word can't be split.
        assert_eq!(cut("z abd d", "b", 3).unwrap(), "abd");
        // No piece covers a character that the tokenizer drops.
        let squad = squad("a \u{200b} b", "x", Some(&[("\u{200b}", 2)]));
        let windows = Windows::cut(&squad, &wordpiece(), SMALL).unwrap();
        assert_eq!((windows.target(0), windows.dropped()), (None, 1));
    }

    #[test]
    fn targets_without_an_answer_are_cls_and_empty_contexts_have_a_window() {
        let squad = squad("", "x", Some(&[]));
        let windows = Windows::cut(&squad, &wordpiece(), SMALL).unwrap();
        assert_eq!((windows.len(), windows.tokens(0)), (1, 4));
        assert_eq!(windows.target(0), Some([0, 0]));
        assert_eq!(windows.sequences().length(0), 4);
    }

    #[test]
    fn options_that_leave_no_room_are_refused() {
        let squad = squad("a", "x", None);
        let message =
            |options| Windows::cut(&squad, &wordpiece(), options).unwrap_err().to_string();
        let short = WindowOptions { max_len: 6, ..SMALL };
        assert!(message(short).contains("at least 7 are needed"));
        let still = WindowOptions { stride: 0, ..SMALL };
        assert!(message(still).contains("stride 0 never"));
    }
}
