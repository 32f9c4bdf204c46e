//! Exercises: the stub that stands for a solution, the check that judges an answer, and hints.
//!
//! A stub never returns: `exercise!` unwinds, so it fits any return type. `check!` catches it and
//! answers with the first hint; it catches a learner's panic too, and says what it was. What was
//! passed is remembered for the process, which in a notebook is the session, and noted for good in
//! [`super::progress`] where the answer is the learner's and not the lesson's own.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};

use super::Exercise;
use super::judge::Judge;
use super::panics::{self, Meaning};
use super::progress::{self, Progress};
use super::verdict::{Report, Verdict};
use crate::note;
use crate::view::display;
use crate::view::display::wire::{self, Record};

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
        note!("your progress is not kept: {error}");
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
    use dfdx::prelude::{HasShape, Tensor};

    use super::*;
    use crate::view::display::Show;

    fn text(id: &str, verdict: Verdict) -> String {
        let report = Report {
            exercise: declared(id),
            verdict,
            before: None,
        };
        report.content().plain()
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
