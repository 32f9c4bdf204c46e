//! The clock of the shares: the time that the processor worked for this process. Another program that runs beside the
//! capstone changes it little, so that all runs are given the same work.

use std::time::Instant;

use crate::engine::Backend;

/// Ticks of a second in /proc on Linux.
const TICKS: f64 = 100.0;

/// A clock that runs from now on.
pub(super) struct Clock {
    began: Instant,
    /// The seconds of all threads so far; None where the system does not report them, or where a GPU computes.
    processor: Option<f64>,
}

impl Clock {
    pub(super) fn start() -> Self {
        let on_processor = matches!(Backend::Auto.resolve().0, Backend::Cpu);
        let processor = if on_processor { processor_seconds() } else { None };
        Self { began: Instant::now(), processor }
    }

    /// Returns the seconds on a clock at the wall.
    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Returns the seconds that the processor worked, added up over its threads; those on the wall where they are not
    /// known.
    pub(super) fn work(&self) -> f64 {
        match (self.processor, processor_seconds()) {
            (Some(before), Some(now)) => now - before,
            _ => self.seconds(),
        }
    }
}

/// Returns the seconds that all threads of this process have computed.
fn processor_seconds() -> Option<f64> {
    of_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Reads the fields 14 and 15 of a process's line: time in the program and in the system (man 5 proc). The second field
/// is the program's name, which may contain spaces and brackets.
fn of_stat(line: &str) -> Option<f64> {
    let (_, fields) = line.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(|field| field.parse::<f64>().ok());
    Some((ticks.next()?? + ticks.next()??) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_program_and_of_the_system_is_added_up() {
        let line = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 2 0 99";
        assert_eq!(of_stat(line), Some(3.0));
        assert_eq!(of_stat("7 (a) S 1"), None);
        assert_eq!(of_stat(""), None);
    }

    #[test]
    fn work_goes_on_only_while_something_is_computed() {
        let clock = Clock::start();
        let mut sum = 0u64;
        while clock.work() < 0.05 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(clock.seconds() > 0.0);
    }
}
