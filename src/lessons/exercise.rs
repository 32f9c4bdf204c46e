//! Exercises: the stub that stands for a solution, the check that judges an answer, and hints.
//!
//! A stub never returns: `exercise!` unwinds, so it fits any return type. `check!` catches it and
//! answers with the first hint; it catches a learner's panic too, and says what it was. What was
//! passed is remembered for the process, which in a notebook is the session, and noted for good in
//! [`super::progress`] where the answer is the learner's and not the lesson's own.

use std::any::Any;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};

use dfdx::prelude::{Dtype, HasShape, Shape, Storage, Tensor};

use super::Exercise;
use super::panics::{self, Meaning};
use super::progress::{self, Progress};
use crate::view::display::wire::{self, Record};
use crate::view::display::{self, Content, Show};
use crate::view::style::{self, escape};

/// The environment variable that makes a lesson, run as a program, behave as if the exercises that
/// it names (`01.2`, several with commas, or `all`) were not solved. The tests use it.
pub const STUB_VARIABLE: &str = "CLOZE_EXERCISE_STUB";

/// What unwinds out of a stub.
struct Unsolved(String);

/// What the session knows of an exercise.
#[derive(Default)]
struct State {
    passed: bool,
    hints_given: usize,
    /// Whether the lesson's own solution was run.
    given: bool,
}

static STATES: LazyLock<Mutex<HashMap<String, State>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Whether a check is running on this thread and will catch a stub.
    static CHECKING: Cell<bool> = const { Cell::new(false) };
    /// File and line of the last panic in a check on this thread.
    static PANICKED_AT: Cell<Option<(String, u32)>> = const { Cell::new(None) };
}

/// Panics in a check are its own to tell: the hook that stood before gets the others only.
static HOOK: Once = Once::new();

fn hook() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !CHECKING.get() {
            return otherwise(info);
        }
        let place = info.location().map(|at| (at.file().to_owned(), at.line()));
        PANICKED_AT.set(place);
    }));
}

/// A panic elsewhere does not spoil a few flags and counts.
fn states() -> MutexGuard<'static, HashMap<String, State>> {
    STATES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exercise as its lesson declares it. An unknown id (a cell of the learner's own) has no
/// title and no hints.
fn declared(id: &str) -> Exercise {
    let lesson = id.split('.').next().and_then(|n| super::find(n).ok());
    let known = lesson.and_then(|l| l.exercises.into_iter().find(|e| e.id == id));
    known.unwrap_or_else(|| Exercise {
        id: id.to_owned(),
        title: "an exercise of no lesson".to_owned(),
        hints: Vec::new(),
    })
}

/// The body of a stub: leaves the function for the check that called it.
///
/// # Panics
/// Always. Within a check it unwinds silently; elsewhere it is a panic that names the exercise.
pub fn unsolved(id: &str) -> ! {
    if CHECKING.get() {
        resume_unwind(Box::new(Unsolved(id.to_owned())));
    }
    panic_any(format!(
        "exercise {id} is not solved yet: fill in its cell and run it, then this one again"
    ))
}

/// Whether a program run was asked to treat the exercise as not solved.
pub fn stubbed(id: &str) -> bool {
    let asked = std::env::var(STUB_VARIABLE).unwrap_or_default();
    asked.split(',').any(|name| name == id || name == "all")
}

/// Opens the lesson's own solution: notes that it is run, and tells whether the program was asked to
/// treat it as missing.
pub fn given(id: &str) -> bool {
    let stubbed = stubbed(id);
    if !stubbed {
        states().entry(id.to_owned()).or_default().given = true;
    }
    stubbed
}

/// Whether the lesson's own solution of the exercise was run in this session.
pub fn was_given(id: &str) -> bool {
    states().get(id).is_some_and(|s| s.given)
}

/// Whether the exercise's check was passed in this session.
pub fn passed(id: &str) -> bool {
    states().get(id).is_some_and(|s| s.passed)
}

/// The same, and says that the cell waits where it was not.
pub fn solved(id: &str) -> bool {
    let passed = passed(id);
    if !passed {
        println!("(this cell waits for exercise {id})");
    }
    passed
}

/// Prints the next hint of an exercise; the last one again when all were given.
pub fn hint(id: &str) {
    let exercise = declared(id);
    let count = exercise.hints.len();
    if count == 0 {
        println!("There is no exercise {id:?} with hints.");
        return;
    }
    let mut states = states();
    let state = states.entry(id.to_owned()).or_default();
    let index = state.hints_given.min(count - 1);
    state.hints_given = index + 1;
    println!("Hint {} of {count}: {}", index + 1, exercise.hints[index]);
}

/// Collects what a check finds. The first fault is kept: one thing to think about at a time.
#[derive(Debug, Default)]
pub struct Judge {
    right: usize,
    fault: Option<String>,
}

impl Judge {
    /// `yours`, the value of `what`, should equal `expected`; `think` says what to think about
    /// where it does not.
    pub fn equal<T: Debug + PartialEq<U>, U: Debug>(
        &mut self,
        what: &str,
        yours: T,
        expected: U,
        think: &str,
    ) {
        let holds = yours == expected;
        self.note(holds, || {
            format!("{what} gives\n  {yours:?}\nbut should give\n  {expected:?}\n{think}")
        });
    }

    /// Two lists should be equal; says which entry is the first to differ.
    pub fn same_list<T: Debug + PartialEq<U>, U: Debug>(
        &mut self,
        what: &str,
        yours: &[T],
        expected: &[U],
        think: &str,
    ) {
        let first = yours.iter().zip(expected).position(|(a, b)| a != b);
        let holds = first.is_none() && yours.len() == expected.len();
        self.note(holds, || {
            let entry =
                |at: usize| format!("entry {at} is {:?}, expected {:?}", yours[at], expected[at]);
            let difference = match first {
                Some(at) => entry(at),
                None => format!("its length is {}, expected {}", yours.len(), expected.len()),
            };
            format!(
                "{what} gives\n  {}\nbut should give\n  {}\n({difference})\n{think}",
                shortened(yours),
                shortened(expected)
            )
        });
    }

    /// A number should be within `tolerance` of `expected`.
    pub fn close(&mut self, what: &str, yours: f64, expected: f64, tolerance: f64, think: &str) {
        let holds = (yours - expected).abs() <= tolerance;
        self.note(holds, || {
            format!("{what} is {yours}, but should be {expected} (within {tolerance})\n{think}")
        });
    }

    /// A tensor should have the shape of `expected` and, within `tolerance`, its numbers; says where
    /// the first is that has not, and shows both where they are small.
    pub fn close_tensor<S: Shape, E: Dtype, D: Storage<E>>(
        &mut self,
        what: &str,
        yours: &Tensor<S, E, D>,
        expected: &Tensor<S, E, D>,
        tolerance: f64,
        think: &str,
    ) {
        let sizes = |tensor: &Tensor<S, E, D>| -> Vec<usize> {
            tensor.shape().concrete().into_iter().collect()
        };
        let shape = sizes(expected);
        if sizes(yours) != shape {
            let named = |sizes: &[usize]| {
                let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
                sizes.join("×")
            };
            return self.note(false, || {
                let (got, wanted) = (named(&sizes(yours)), named(&shape));
                format!("{what} has the shape {got}, but should have {wanted}\n{think}")
            });
        }
        // Every number type of dfdx converts; one that did not would count as wrong.
        let number = |value: &E| value.to_f64().unwrap_or(f64::NAN);
        let (got, wanted) = (yours.as_vec(), expected.as_vec());
        let differs = |(a, b): &(&E, &E)| {
            let apart = (number(a) - number(b)).abs();
            !matches!(
                apart.partial_cmp(&tolerance),
                Some(Ordering::Less | Ordering::Equal)
            )
        };
        let first = got.iter().zip(&wanted).position(|pair| differs(&pair));
        self.note(first.is_none(), || {
            let at = first.unwrap_or_default();
            let count = got.iter().zip(&wanted).filter(differs).count();
            let mut text = format!(
                "{what} is {} at {:?}, but should be {} (within {tolerance}; {count} of {} numbers differ)",
                style::number(number(&got[at])),
                place(at, &shape),
                style::number(number(&wanted[at])),
                got.len(),
            );
            if got.len() <= SMALL {
                let (got, wanted) = (yours.content().plain(), expected.content().plain());
                text += &format!("\nyours:     {got}\nshould be: {wanted}");
            }
            format!("{text}\n{think}")
        });
    }

    /// Something should hold.
    pub fn holds(&mut self, what: &str, holds: bool, think: &str) {
        self.note(holds, || format!("expected: {what}\n{think}"));
    }

    fn note(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        match (&self.fault, holds) {
            (Some(_), _) => {}
            (None, true) => self.right += 1,
            (None, false) => self.fault = Some(fault()),
        }
    }
}

/// Tensors with more numbers than this are not written out.
const SMALL: usize = 24;

/// Where the number at `index`, counted row by row, stands in a tensor.
fn place(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (at, size) in place.iter_mut().zip(shape).rev() {
        *at = index % size;
        index /= size;
    }
    place
}

/// A list as `Debug`, its middle left away where it is long.
fn shortened<T: Debug>(list: &[T]) -> String {
    const ENDS: usize = 12;
    if list.len() <= 2 * ENDS + 1 {
        return format!("{list:?}");
    }
    let inner = |part: &[T]| format!("{part:?}")[1..].trim_end_matches(']').to_owned();
    let (head, tail) = (&list[..ENDS], &list[list.len() - ENDS..]);
    format!("[{}, …, {}]", inner(head), inner(tail))
}

/// How a check ended.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Right { checks: usize },
    Unsolved { id: String },
    Wrong { fault: String },
    Panicked { message: String },
}

/// Runs the check of exercise `id` and displays what came of it.
pub fn check(id: &str, judge: impl FnOnce(&mut Judge)) {
    let verdict = judged(judge);
    let passed = matches!(verdict, Verdict::Right { .. });
    states().entry(id.to_owned()).or_default().passed = passed;
    let exercise = declared(id);
    let before = kept(&exercise, passed);
    // The session remembers it too, for `:next`.
    wire::send(&Record::Checked {
        id: id.to_owned(),
        passed,
    });
    let report = Report {
        exercise,
        verdict,
        before,
    };
    display::show(&report);
}

/// The day on which an exercise of the course was passed before this check; notes one that is passed
/// now by the learner's own answer. Where the file is not to be read or written, a check judges all
/// the same, and standard error says why nothing is kept.
fn kept(exercise: &Exercise, passed: bool) -> Option<String> {
    if exercise.hints.is_empty() {
        return None;
    }
    let id = &exercise.id;
    let before = Progress::load().map(|progress| progress.day(id).map(str::to_owned));
    let noted = match (&before, passed && !was_given(id)) {
        (Ok(None), true) => progress::note(id),
        _ => Ok(()),
    };
    let before = before.and_then(|before| noted.map(|()| before));
    before.unwrap_or_else(|error| {
        eprintln!("your progress is not kept: {error}");
        None
    })
}

fn judged(judge: impl FnOnce(&mut Judge)) -> Verdict {
    HOOK.call_once(hook);
    let mut findings = Judge::default();
    let outer = CHECKING.replace(true);
    PANICKED_AT.set(None);
    // The judge only collects findings, so it is whole after an unwind, and the learner's own
    // values are looked at only by running their cells again.
    let outcome = catch_unwind(AssertUnwindSafe(|| judge(&mut findings)));
    CHECKING.set(outer);
    match (outcome, findings.fault) {
        (Err(payload), fault) => match (payload.downcast::<Unsolved>(), fault) {
            (Ok(unsolved), _) => Verdict::Unsolved { id: unsolved.0 },
            // What was found first says more than a panic that came of it.
            (Err(_), Some(fault)) => Verdict::Wrong { fault },
            (Err(payload), None) => Verdict::Panicked {
                message: explained(&panic_text(&*payload), PANICKED_AT.take()),
            },
        },
        (Ok(()), Some(fault)) => Verdict::Wrong { fault },
        (Ok(()), None) => Verdict::Right {
            checks: findings.right,
        },
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    text.or(owned)
        .unwrap_or("a panic without a text")
        .to_owned()
}

/// A panic's text with what it means, where it has more to tell.
fn explained(message: &str, place: Option<(String, u32)>) -> String {
    let (file, line) = place.unwrap_or_default();
    match panics::meaning(message, &file, line) {
        Some(Meaning::Sentence(sentence)) => sentence,
        Some(Meaning::Hint(hint)) => format!("{message}\n  {hint}"),
        None => message.to_owned(),
    }
}

/// A verdict with its exercise, ready to be shown.
struct Report {
    exercise: Exercise,
    verdict: Verdict,
    /// The day on which the exercise was passed in an earlier run of its check.
    before: Option<String>,
}

impl Report {
    /// The sign, the colour and the text.
    fn parts(&self) -> (&'static str, &'static str, String) {
        let Exercise { id, hints, .. } = &self.exercise;
        let first_hint = match hints.first() {
            Some(hint) => format!("\nHint 1 of {}: {hint}", hints.len()),
            None => String::new(),
        };
        let help = match hints.is_empty() {
            true => String::new(),
            false => format!("\nNext hint: cloze::hint!(\"{id}\")"),
        };
        // What was passed once stays passed, whatever is tried later.
        let before = match &self.before {
            Some(day) => format!(" (passed before, on {day})"),
            None => String::new(),
        };
        let head = self.exercise.heading();
        match &self.verdict {
            Verdict::Right { checks } => (
                "✓",
                "46,160,67",
                format!("{head} right ({checks} checks){before}"),
            ),
            Verdict::Unsolved { id: open } if open == id => (
                "○",
                "122,128,136",
                format!("{head} not solved yet{before}{first_hint}"),
            ),
            Verdict::Unsolved { id: open } => (
                "○",
                "122,128,136",
                format!("{head} needs exercise {open} first, which is not solved yet{before}"),
            ),
            Verdict::Wrong { fault } => (
                "✗",
                "218,112,32",
                format!("{head} not right yet{before}\n{fault}{help}"),
            ),
            Verdict::Panicked { message } => (
                "✗",
                "218,112,32",
                format!("{head} your code panicked{before}\n  {message}{help}"),
            ),
        }
    }
}

impl Show for Report {
    fn content(&self) -> Content {
        let (sign, color, text) = self.parts();
        let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let rest = match rest {
            "" => String::new(),
            rest => format!(
                "<pre style=\"margin:4px 0 0;white-space:pre-wrap;background:none;color:inherit\">{}</pre>",
                escape(rest)
            ),
        };
        Content::html(format!(
            "<div style=\"border-left:4px solid rgb({color});background:rgba({color},.12);\
             padding:6px 12px;margin:4px 0;border-radius:3px\"><b>{sign} {}</b>{rest}</div>",
            escape(head)
        ))
        .with_text(format!("{sign} {text}").replace('\n', "\n  "))
    }
}

/// Stands in an exercise's cell where the solution goes: never returns.
#[macro_export]
macro_rules! exercise {
    ($id:literal) => {
        $crate::lessons::exercise::unsolved($id)
    };
}

/// Opens a solution in a lesson's source. A notebook leaves it away; a program run that was asked
/// to (see `STUB_VARIABLE`) takes the stub's way here.
#[macro_export]
macro_rules! solution {
    ($id:literal) => {
        if $crate::lessons::exercise::given($id) {
            $crate::exercise!($id)
        }
    };
}

/// Opens an answer of your own in a lesson's source, where `solution!` opened the lesson's: passing its
/// check then counts as yours.
#[macro_export]
macro_rules! answer {
    ($id:literal) => {
        if $crate::lessons::exercise::stubbed($id) {
            $crate::exercise!($id)
        }
    };
}

/// Judges an answer: `check!("01.2", |judge| { judge.equal(…); })`.
#[macro_export]
macro_rules! check {
    ($id:literal, $judge:expr $(,)?) => {
        $crate::lessons::exercise::check($id, $judge)
    };
    ($id:literal $(,)?) => {
        compile_error!(
            "`check!` takes what is to be tried too: run the lesson's own cell with it, the one below the exercise"
        )
    };
}

/// Whether an exercise's check was passed; says that the cell waits where it was not.
#[macro_export]
macro_rules! solved {
    ($id:literal) => {
        $crate::lessons::exercise::solved($id)
    };
}

/// Prints the next hint of an exercise.
#[macro_export]
macro_rules! hint {
    ($id:literal) => {
        $crate::lessons::exercise::hint($id)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &str, verdict: Verdict) -> String {
        let report = Report {
            exercise: declared(id),
            verdict,
            before: None,
        };
        report.content().plain()
    }

    #[test]
    fn an_exercise_that_was_passed_before_is_told_so_by_every_verdict() {
        let verdicts = [
            Verdict::Right { checks: 3 },
            Verdict::Unsolved { id: "01.1".into() },
            Verdict::Unsolved { id: "01.2".into() },
            Verdict::Wrong {
                fault: "f()".into(),
            },
            Verdict::Panicked {
                message: "f()".into(),
            },
        ];
        for verdict in verdicts {
            let report = Report {
                exercise: declared("01.1"),
                verdict,
                before: Some("2026-01-31".into()),
            };
            let text = report.content().plain();
            let first = text.lines().next().unwrap();
            assert!(first.ends_with("(passed before, on 2026-01-31)"), "{text}");
        }
    }

    #[test]
    fn a_stub_is_answered_with_the_first_hint() {
        fn stub() -> Vec<u32> {
            crate::exercise!("01.1")
        }
        let verdict = judged(|judge| judge.equal("stub()", stub(), vec![1], ""));
        let hint = &declared("01.1").hints[0];
        let text = text("01.1", verdict);
        assert!(
            text.contains("not solved yet") && text.contains(hint),
            "{text}"
        );
    }

    #[test]
    fn a_stub_of_another_exercise_is_named() {
        let verdict = judged(|_| crate::exercise!("01.1"));
        assert!(text("01.2", verdict).contains("needs exercise 01.1 first"));
    }

    #[test]
    fn a_wrong_answer_is_shown_with_what_to_think_about() {
        let verdict = judged(|judge| {
            judge.same_list("f()", &[1, 2, 3], &[1, 5, 3], "Think of the second.");
            judge.equal("g()", 1, 2, "Never said: one thing at a time.");
        });
        let Verdict::Wrong { fault } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(fault.contains("entry 1 is 2, expected 5"), "{fault}");
        assert!(fault.ends_with("Think of the second."));
    }

    #[test]
    fn lists_of_different_length_and_long_lists_stay_readable() {
        let mut judge = Judge::default();
        judge.same_list("f()", &[0; 100], &[0; 101], "");
        let fault = judge.fault.unwrap();
        assert!(fault.contains("its length is 100, expected 101"));
        assert!(fault.len() < 300);
    }

    #[test]
    fn tensors_are_compared_by_shape_and_by_place() {
        use dfdx::prelude::*;
        let dev = Cpu::default();
        let tensor =
            |rows: usize, values: &[f32]| dev.tensor_from_vec(values.to_vec(), (rows, Const::<2>));
        let right = tensor(2, &[1.0, 2.0, 3.0, 4.0]);
        let fault = |yours: &Tensor<(usize, Const<2>), f32, Cpu>| {
            let mut judge = Judge::default();
            judge.close_tensor("f(x)", yours, &right, 0.1, "Think.");
            judge.fault
        };
        assert_eq!(fault(&tensor(2, &[1.0, 2.05, 3.0, 4.0])), None);
        let shape = fault(&tensor(1, &[1.0, 2.0])).unwrap();
        assert_eq!(shape, "f(x) has the shape 1×2, but should have 2×2\nThink.");
        let wrong = fault(&tensor(2, &[1.0, 2.0, f32::NAN, 5.0])).unwrap();
        let start = "f(x) is NaN at [1, 0], but should be 3 (within 0.1; 2 of 4 numbers differ)";
        assert!(wrong.starts_with(start), "{wrong}");
        assert!(wrong.contains("yours:     2×2 f32 cpu") && wrong.ends_with("Think."));
    }

    #[test]
    fn a_panic_of_the_learner_s_code_is_a_verdict() {
        let verdict = judged(|_| panic!("index {} is out of reach", 7));
        let message = "index 7 is out of reach".to_owned();
        assert_eq!(verdict, Verdict::Panicked { message });
        let verdict = judged(|judge| {
            judge.equal("two", 3, 2, "");
            panic!("a later one");
        });
        assert!(matches!(verdict, Verdict::Wrong { .. }), "{verdict:?}");
    }

    #[test]
    fn a_panic_in_a_check_is_told_by_what_it_means() {
        use dfdx::prelude::{Const, Cpu, ZerosTensor};
        let dev = Cpu::default();
        let a: Tensor<(usize, Const<2>), f32, Cpu> = dev.zeros_like(&(3, Const));
        let b: Tensor<(usize, Const<2>), f32, Cpu> = dev.zeros_like(&(4, Const));
        let verdict = judged(|judge| judge.holds("a sum", (a + b).shape().0 == 3, ""));
        let Verdict::Panicked { message } = verdict else {
            panic!("{verdict:?}");
        };
        let expected = "the left is 3×? and the right is 4×?: the sizes 3 and 4 differ";
        assert!(message.contains(expected), "{message}");
        let words: Vec<&str> = "a".split(' ').collect();
        let verdict = judged(|judge| judge.equal("", words[words.len()], "a", ""));
        let Verdict::Panicked { message } = verdict else {
            panic!("{verdict:?}");
        };
        assert!(message.contains("the len is 1 but the index is 1\n  positions go from 0 to 0"));
    }

    #[test]
    fn right_answers_are_remembered_until_a_wrong_one() {
        assert!(!passed("97.1"));
        check("97.1", |judge| judge.close("x", 1.0, 1.05, 0.1, ""));
        assert!(passed("97.1") && solved("97.1"));
        check("97.1", |judge| judge.close("x", f64::NAN, 1.0, 0.1, ""));
        assert!(!passed("97.1"));
    }

    #[test]
    fn outside_of_a_check_a_stub_is_a_panic_that_names_the_exercise() {
        let payload = catch_unwind(|| unsolved("01.3")).unwrap_err();
        assert!(panic_text(&*payload).contains("exercise 01.3 is not solved yet"));
    }
}
