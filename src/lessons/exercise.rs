//! Exercises: the stub in place of a solution, the check of an answer, and hints.
//!
//! A stub never returns: `exercise!` unwinds, so it fits any return type. `check!` catches the unwinding and
//! shows the first hint; it also catches and explains a panic of the learner's code. Passed exercises are
//! remembered for the process, which in a notebook is the session, and recorded in [`super::progress`] if
//! the answer is the learner's and not the lesson's own.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};

use super::Exercise;
use super::answers;
use super::format::CellKind;
use super::judge::Judge;
use super::panics::{self, Meaning};
use super::progress::{self, Progress};
use super::verdict::{Report, Verdict};
use crate::error::{Error, Result};
use crate::interrupt::Interrupted;
use crate::note;
use crate::view::display;
use crate::view::display::wire;

/// The environment variable that makes a lesson, run as a program, behave as if some exercises (`01.2`,
/// several with commas, or `all`) were not solved. For tests.
pub const STUB_VARIABLE: &str = "CLOZE_EXERCISE_STUB";

/// The panic payload of a stub.
struct Unsolved(String);

/// The state of an exercise in this session.
#[derive(Default)]
struct State {
    passed: bool,
    hints_given: usize,
    /// Whether the lesson's own solution was run.
    given: bool,
    /// The source file with the learner's answer, in a lesson that runs as a program.
    answered_in: Option<&'static str>,
}

static STATES: LazyLock<Mutex<HashMap<String, State>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Whether a check that will catch a stub is running on this thread.
    static CHECKING: Cell<bool> = const { Cell::new(false) };
    /// File and line of the last panic during a check on this thread.
    static PANICKED_AT: Cell<Option<(String, u32)>> = const { Cell::new(None) };
}

static HOOK: Once = Once::new();

/// Installs a panic hook that records panics during checks, which show them, and passes on the others.
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

/// Locks the states. A panic elsewhere does not invalidate these flags and counts.
fn states() -> MutexGuard<'static, HashMap<String, State>> {
    STATES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of a stub: unwinds to the check that called it.
///
/// # Panics
/// Always. During a check it unwinds silently; otherwise the panic names the exercise.
pub fn unsolved(id: &str) -> ! {
    if CHECKING.get() {
        resume_unwind(Box::new(Unsolved(id.to_owned())));
    }
    panic_any(format!(
        "exercise {id} is not solved yet: fill in its cell and run it, then this one again"
    ))
}

/// Returns whether [`STUB_VARIABLE`] asks to treat the exercise as not solved.
fn stubbed(id: &str) -> bool {
    let asked = std::env::var(STUB_VARIABLE).unwrap_or_default();
    asked.split(',').any(|name| name == id || name == "all")
}

/// Starts the lesson's own solution: records that it runs, and returns whether [`STUB_VARIABLE`] asks to
/// treat it as missing.
pub fn given(id: &str) -> bool {
    let stubbed = stubbed(id);
    if !stubbed {
        states().entry(id.to_owned()).or_default().given = true;
    }
    stubbed
}

/// Starts the learner's own answer in a source file: records the file, and returns whether
/// [`STUB_VARIABLE`] asks to treat the answer as missing.
pub fn answered(id: &str, file: &'static str) -> bool {
    states().entry(id.to_owned()).or_default().answered_in = Some(file);
    stubbed(id)
}

/// Returns whether the lesson's own solution of the exercise ran in this session.
pub fn was_given(id: &str) -> bool {
    states().get(id).is_some_and(|s| s.given)
}

/// Returns whether the exercise's check was passed in this session.
pub fn passed(id: &str) -> bool {
    states().get(id).is_some_and(|s| s.passed)
}

/// Returns whether the exercise's check was passed; if not, prints that the cell waits for it.
pub fn solved(id: &str) -> bool {
    let passed = passed(id);
    if !passed {
        println!("(this cell waits for exercise {id})");
    }
    passed
}

/// Prints the next hint of an exercise; after the last one, prints that again.
pub fn hint(id: &str) {
    let exercise = super::declared(id);
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

/// Runs the check of exercise `id` and displays the result.
pub fn check(id: &str, judge: impl FnOnce(&mut Judge)) {
    let verdict = judged(judge);
    let passed = matches!(verdict, Verdict::Right { .. });
    states().entry(id.to_owned()).or_default().passed = passed;
    let exercise = super::declared(id);
    let before = record(&exercise, passed);
    // The session needs it for `:next`.
    wire::send(&wire::Record::Checked { id: id.to_owned(), passed });
    let report = Report { exercise, verdict, before };
    display::show(&report);
}

/// Records an exercise of the course that is passed now by the learner's own answer; returns the day on
/// which it was passed before. If the file can't be read or written, the check works all the same, and
/// standard error says why nothing is recorded.
fn record(exercise: &Exercise, passed: bool) -> Option<String> {
    if exercise.hints.is_empty() {
        return None;
    }
    let id = &exercise.id;
    let file = states().get(id).and_then(|state| state.answered_in);
    if let Some(file) = file.filter(|_| passed)
        && let Err(error) = keep_answer(exercise, Path::new(file))
    {
        note!("your answer to {id} is not kept for later lessons: {error}");
    }
    let before = Progress::load().map(|progress| progress.day(exercise).map(str::to_owned));
    let noted = match (&before, passed && !was_given(id)) {
        (Ok(None), true) => progress::note(exercise),
        _ => Ok(()),
    };
    let before = before.and_then(|before| noted.map(|()| before));
    before.unwrap_or_else(|error| {
        note!("your progress is not saved: {error}");
        None
    })
}

/// Keeps the learner's answer, which stands in a lesson's source file.
fn keep_answer(exercise: &Exercise, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::io(file, error))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let cells = super::format::parse(&name, &text)?.cells;
    let code: Vec<String> = cells
        .iter()
        .filter(|cell| cell.kind == CellKind::Code)
        .map(|cell| cell.solution())
        .collect();
    let id = &exercise.id;
    let lesson = super::lesson_of(id)?;
    answers::answer_in(&lesson, id, &code).map_or(Ok(()), |answer| answers::keep(id, &answer))
}

/// Runs a check.
fn judged(judge: impl FnOnce(&mut Judge)) -> Verdict {
    HOOK.call_once(hook);
    let mut findings = Judge::default();
    let outer = CHECKING.replace(true);
    PANICKED_AT.set(None);
    // The judge only collects findings, so it is valid after an unwind, and the learner's values are only
    // used again by running their cells again.
    let outcome = catch_unwind(AssertUnwindSafe(|| judge(&mut findings)));
    CHECKING.set(outer);
    // The user stops the cell, not only the check.
    let outcome = outcome.map_err(|payload| match payload.downcast::<Interrupted>() {
        Ok(interrupted) => resume_unwind(interrupted),
        Err(payload) => payload,
    });
    match (outcome, findings.fault) {
        (Err(payload), fault) => match (payload.downcast::<Unsolved>(), fault) {
            (Ok(unsolved), _) => Verdict::Unsolved { id: unsolved.0 },
            // The first fault is more useful than a panic that follows from it.
            (Err(_), Some(fault)) => Verdict::Wrong { fault },
            (Err(payload), None) => {
                Verdict::Panicked { message: explained(&panic_text(&*payload), PANICKED_AT.take()) }
            }
        },
        (Ok(()), Some(fault)) => Verdict::Wrong { fault },
        (Ok(()), None) => Verdict::Right { checks: findings.right },
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}

/// Explains a panic's text.
fn explained(message: &str, place: Option<(String, u32)>) -> String {
    let (file, line) = place.unwrap_or_default();
    match panics::meaning(message, &file, line) {
        Some(Meaning::Sentence(sentence)) => sentence,
        Some(Meaning::Hint(hint)) => format!("{message}\n  {hint}"),
        None => message.to_owned(),
    }
}

/// Takes the place of the solution in an exercise's cell; never returns.
#[macro_export]
macro_rules! exercise {
    ($id:literal) => {
        $crate::lessons::exercise::unsolved($id)
    };
}

/// Starts a solution in a lesson's source. Notebooks omit it; if `STUB_VARIABLE` names the exercise, it acts
/// as a stub.
#[macro_export]
macro_rules! solution {
    ($id:literal) => {
        if $crate::lessons::exercise::given($id) {
            $crate::exercise!($id)
        }
    };
}

/// Starts your own answer in a lesson's source, in place of `solution!`: passing its check then counts as
/// yours.
#[macro_export]
macro_rules! answer {
    ($id:literal) => {
        if $crate::lessons::exercise::answered(
            $id,
            concat!(env!("CARGO_MANIFEST_DIR"), "/", file!()),
        ) {
            $crate::exercise!($id)
        }
    };
}

/// Checks an answer: `check!("01.2", |judge| { judge.equal(…); })`.
#[macro_export]
macro_rules! check {
    ($id:literal, $judge:expr $(,)?) => {
        $crate::lessons::exercise::check($id, $judge)
    };
    ($id:literal $(,)?) => {
        compile_error!(
            "`check!` also takes a function that checks the answer: run the lesson's cell with it, the one below the exercise"
        )
    };
}

/// Returns whether an exercise's check was passed; if not, prints that the cell waits for it.
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
    use dfdx::prelude::{HasShape, Tensor};

    use super::*;
    use crate::view::display::Show;

    fn text(id: &str, verdict: Verdict) -> String {
        let report = Report { exercise: crate::lessons::declared(id), verdict, before: None };
        report.content().plain()
    }

    #[test]
    fn a_stub_of_another_exercise_is_named() {
        let verdict = judged(|_| crate::exercise!("01.1"));
        assert!(text("01.2", verdict).contains("needs exercise 01.1 first"));
    }

    #[test]
    fn a_wrong_answer_is_shown_with_advice() {
        let verdict = judged(|judge| {
            judge.same_list("f()", &[1, 2, 3], &[1, 5, 3], "Think of the second.");
            judge.equal("g()", 1, 2, "Not shown: one thing at a time.");
        });
        let Verdict::Wrong { fault } = verdict else { panic!("{verdict:?}") };
        assert!(fault.contains("entry 1 is 2, expected 5"), "{fault}");
        assert!(fault.ends_with("Think of the second."));
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
    fn a_panic_during_a_check_is_explained() {
        use dfdx::prelude::{Const, Cpu, ZerosTensor};
        let dev = Cpu::default();
        let a: Tensor<(usize, Const<2>), f32, Cpu> = dev.zeros_like(&(3, Const));
        let b: Tensor<(usize, Const<2>), f32, Cpu> = dev.zeros_like(&(4, Const));
        let message = |verdict| match verdict {
            Verdict::Panicked { message } => message,
            other => panic!("{other:?}"),
        };
        let verdict = judged(|judge| judge.holds("a sum", (a + b).shape().0 == 3, ""));
        let expected = "the left is 3×? and the right is 4×?: the sizes 3 and 4 differ";
        assert!(message(verdict).contains(expected));
        let words: Vec<&str> = "a".split(' ').collect();
        let verdict = judged(|judge| judge.equal("", words[words.len()], "a", ""));
        let expected = "the len is 1 but the index is 1\n  positions go from 0 to 0";
        assert!(message(verdict).contains(expected));
    }

    #[test]
    fn a_correct_answer_counts_until_a_wrong_one() {
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
