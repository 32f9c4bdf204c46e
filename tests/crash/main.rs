//! Runs that are killed, and machines that lose power, at each change of a file.
//!
//! Every command runs once unbroken in this process, and the changes of its files are recorded. Then it runs again
//! and is killed at a change: before it, or when half of the bytes are written. Then its folder is loaded, and the
//! command is given again, usually with `--resume`. A power cut is replayed from the recorded changes: of those that
//! no fsync forced to the disk, some are kept and the others are lost, as a file system may do (ALICE, Pillai et al.,
//! OSDI 2014; CrashMonkey, Mohan et al., OSDI 2018).
//!
//! `cargo test` takes some points of each command; `.ci/deep crash` takes all (`CLOZE_CRASH_POINTS`).

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod matrix;
mod place;
mod power;
// The tests of downloads use what these leave unused.
#[path = "../downloads/server.rs"]
#[allow(dead_code)]
mod server;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cloze::files::watch::{Change, Death};

use cases::Case;
use place::{Ended, Place};

/// The points of each kind that are taken of each command; all are in `.ci/deep crash`.
fn points() -> usize {
    let points = std::env::var("CLOZE_CRASH_POINTS").ok();
    points.map_or(6, |points| points.parse().unwrap())
}

/// What came of the points of a command.
#[derive(Default)]
struct Counts {
    points: usize,
    /// By what the folder's model was right after.
    loaded: BTreeMap<String, usize>,
    /// By how the second run ended.
    again: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Counts {
    fn print(&self, case: &str, kind: &str) {
        let list = |counts: &BTreeMap<String, usize>| {
            let list: Vec<_> =
                counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
            list.join(", ")
        };
        let (loaded, again) = (list(&self.loaded), list(&self.again));
        println!("{case}, {kind}: {} points; at once: {loaded}; then: {again}", self.points);
    }
}

/// Takes at most `points` of `all`, evenly.
fn some<T>(all: Vec<T>, points: usize) -> Vec<T> {
    let count = all.len();
    let taken = |i: usize| i * points / count.max(1) != (i + 1) * points / count.max(1);
    all.into_iter()
        .enumerate()
        .filter(|(i, _)| points >= count || taken(*i))
        .map(|(_, x)| x)
        .collect()
}

/// Loads the folder as a crash left it, and runs the command again.
fn judge(place: &Place, case: &Case, at: &str, known: &place::Known, counts: &mut Counts) {
    counts.points += 1;
    let loaded = place.load(case);
    let what = match &loaded {
        Ok(hash) if known.saves.contains(hash) => "a complete save".to_owned(),
        Ok(_) => {
            counts.wrong.push(format!("{at}: the folder answers with bits of no complete save"));
            return;
        }
        Err(why) => place::kind(why),
    };
    *counts.loaded.entry(what).or_default() += 1;
    let (ended, notes) = place.run(case, true, None);
    let what = match ended {
        Ended::Panicked => {
            counts.wrong.push(format!("{at}: the second run panicked: {notes}"));
            return;
        }
        Ended::Failed(why) => format!("refused ({})", place::kind(&why)),
        Ended::Well => {
            let left = place.left();
            if !left.is_empty() {
                counts.wrong.push(format!("{at}: left behind: {left:?}"));
            }
            let reported = place::reports(&notes);
            match (place.result() == known.result, reported) {
                (true, None) => "the same bits".to_owned(),
                (true, Some(what)) => format!("the same bits ({what})"),
                (false, Some(what)) => format!("other bits ({what})"),
                (false, None) => {
                    counts.wrong.push(format!("{at}: other bits, and no word of it: {notes}"));
                    return;
                }
            }
        }
    };
    *counts.again.entry(what).or_default() += 1;
}

fn kills(place: &Place, case: &Case) -> usize {
    let (known, changes) = place.unbroken(case);
    let mut deaths = Vec::new();
    for (after, change) in changes.iter().enumerate() {
        deaths.push(Death { after, half: false });
        if matches!(change, Change::Write(_, _, bytes) if bytes.len() > 1) {
            deaths.push(Death { after, half: true });
        }
    }
    let mut counts = Counts::default();
    for death in some(deaths, points()) {
        place.reset(case);
        let at = format!("{}, killed at {death:?}, {}", case.name, short(&changes[death.after]));
        let (ended, notes) = place.run(case, false, Some(death));
        if matches!(ended, Ended::Panicked) {
            counts.wrong.push(format!("{at}: the killed run panicked: {notes}"));
        }
        judge(place, case, &at, &known, &mut counts);
    }
    counts.print(case.name, "kills");
    assert!(counts.wrong.is_empty(), "{}", counts.wrong.join("\n"));
    counts.points
}

fn power_cuts(place: &Place, case: &Case) -> usize {
    let (known, changes) = place.unbroken(case);
    let mut counts = Counts::default();
    for (at, state) in power::states(&case.before, &changes, points()) {
        state.write(&place.root());
        let change = changes.get(at.saturating_sub(1)).map_or(String::new(), short);
        let at = format!("{}, power lost after {at} changes ({change})", case.name);
        judge(place, case, &at, &known, &mut counts);
    }
    counts.print(case.name, "power cuts");
    assert!(counts.wrong.is_empty(), "{}", counts.wrong.join("\n"));
    counts.points
}

fn short(change: &Change) -> String {
    match change {
        Change::Write(path, at, bytes) => {
            format!("Write({}, {at}, {} bytes)", path.display(), bytes.len())
        }
        other => format!("{other:?}"),
    }
}

/// The changes of a whole process are watched, so one test at a time runs.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn resumed_runs_are_equal_report_changes_or_are_refused() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    matrix::check();
}

#[test]
fn nothing_is_lost_and_nothing_is_silent() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    cloze::notes::keep();
    let place = Place::new();
    let only = std::env::var("CLOZE_CRASH_CASE").unwrap_or_default();
    let mut points = 0;
    for case in cases::all(&place) {
        if case.name.contains(&only) {
            points += kills(&place, &case) + power_cuts(&place, &case);
        }
    }
    println!("{points} points");
}
