//! When an interrupted cell is killed: two seconds of waiting for a processor do not count.
//!
//! A loop checks the interrupt's flag once per iteration. On a busy machine an iteration of half a
//! second may take five, and the user should not lose the cell's variables for that.
//!
//! Only Linux reports that time (in `/proc`). Elsewhere none is known, so a cell has two seconds in all: on a busy Mac a
//! long iteration may cost the variables, which `:replay` brings back.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long an interrupted cell may run on before its process is killed, not counting the time in
/// which it waited for a processor.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether a cell's time is up that has run for `over` since its interrupt. Calls `waited`,
/// which reads `/proc`, only if it matters.
pub fn is_over(over: Duration, waited: impl FnOnce() -> Duration) -> bool {
    over.checked_sub(KILL_TIMEOUT).is_some_and(|late| late > waited())
}

/// The waiting times of a process's threads at one moment.
pub struct Waits {
    process: u32,
    before: HashMap<String, Duration>,
}

impl Waits {
    pub fn of(process: u32) -> Waits {
        Waits { process, before: waits(process) }
    }

    /// Returns how long since then the thread that waited longest was ready to run but did not; zero if the system does not
    /// report it.
    pub fn since(&self) -> Duration {
        waits(self.process)
            .into_iter()
            .map(|(thread, now)| {
                let before = self.before.get(&thread).copied().unwrap_or_default();
                now.saturating_sub(before)
            })
            .max()
            .unwrap_or_default()
    }
}

/// Reads each thread's time in the run queue: the second number of its `schedstat`, in nanoseconds.
fn waits(process: u32) -> HashMap<String, Duration> {
    let threads = PathBuf::from(format!("/proc/{process}/task"));
    let Ok(threads) = std::fs::read_dir(threads) else {
        return HashMap::new();
    };
    threads
        .flatten()
        .filter_map(|thread| {
            // A thread may end while it is read.
            let times = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let waited = times.split_whitespace().nth(1)?.parse().ok()?;
            let name = thread.file_name().into_string().ok()?;
            Some((name, Duration::from_nanos(waited)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_processor_does_not_count() {
        let seconds = Duration::from_secs;
        for (waited, over) in [(0, true), (2, true), (3, false), (4, false)] {
            assert_eq!(is_over(seconds(5), || seconds(waited)), over, "{waited}");
        }
        for early in [0, 1] {
            let waited = || unreachable!("the waiting time does not matter yet");
            assert!(!is_over(seconds(early), waited));
        }
    }

    #[test]
    fn a_process_that_sleeps_or_has_ended_waits_for_no_processor() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let waits = Waits::of(child.id());
        std::thread::sleep(Duration::from_millis(100));
        assert!(waits.since() < Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(waits.since(), Duration::ZERO);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_that_compete_for_processors_wait() {
        let waits = Waits::of(std::process::id());
        let threads = 4 * std::thread::available_parallelism().unwrap().get();
        let end = std::time::Instant::now() + Duration::from_millis(400);
        let waited = std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| while std::time::Instant::now() < end {});
            }
            std::thread::sleep(Duration::from_millis(350));
            waits.since()
        });
        // With perfectly fair scheduling it would be three quarters of 350 ms.
        assert!(waited > Duration::from_millis(50), "{waited:?}");
    }
}
