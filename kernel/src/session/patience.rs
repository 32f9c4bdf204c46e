//! How long a process was kept waiting for a processor: time in which it could not have stopped.
//!
//! A loop written by hand looks at the interrupt's flag once a turn. On a machine that is busy with
//! something else a turn of half a second may take five, and the cell's variables should not be
//! lost for it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long an interrupted cell may go on before its process is killed, not counting the time in
/// which it waited for a processor.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a cell that goes on for `over` since it was interrupted has had its time. What it `waited` is
/// asked for only where it counts: it takes a read of `/proc`.
pub fn too_long(over: Duration, waited: impl FnOnce() -> Duration) -> bool {
    over.checked_sub(PATIENCE)
        .is_some_and(|late| late > waited())
}

/// The waiting times of a process' threads at one moment.
pub struct Waits {
    process: u32,
    before: HashMap<String, Duration>,
}

impl Waits {
    pub fn of(process: u32) -> Waits {
        Waits {
            process,
            before: waits(process),
        }
    }

    /// How long since then the thread that had to wait longest was ready to run and did not. Zero
    /// where the system does not tell (it is Linux that does, in `/proc`).
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

/// Each thread's time in the run queue: the second number of its `schedstat`, in nanoseconds.
fn waits(process: u32) -> HashMap<String, Duration> {
    let threads = PathBuf::from(format!("/proc/{process}/task"));
    let Ok(threads) = std::fs::read_dir(threads) else {
        return HashMap::new();
    };
    threads
        .flatten()
        .filter_map(|thread| {
            // A thread may end while it is read.
            let told = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let waited = told.split_whitespace().nth(1)?.parse().ok()?;
            let name = thread.file_name().into_string().ok()?;
            Some((name, Duration::from_nanos(waited)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn time_without_a_processor_does_not_count() {
        let seconds = Duration::from_secs;
        assert!(too_long(seconds(5), || seconds(0)));
        assert!(too_long(seconds(5), || seconds(2)));
        assert!(!too_long(seconds(5), || seconds(4)));
        assert!(!too_long(seconds(5), || seconds(3)));
        for early in [0, 1] {
            let asked = || unreachable!("within its time nothing is asked");
            assert!(!too_long(seconds(early), asked));
        }
    }

    #[test]
    fn a_process_that_sleeps_or_is_gone_waits_for_no_processor() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
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
    fn threads_that_share_too_few_processors_wait() {
        let waits = Waits::of(std::process::id());
        let threads = 4 * std::thread::available_parallelism().unwrap().get();
        let end = Instant::now() + Duration::from_millis(400);
        let waited = std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| while Instant::now() < end {});
            }
            std::thread::sleep(Duration::from_millis(350));
            waits.since()
        });
        // Three quarters of 350 ms, were turns perfectly fair and instant.
        assert!(waited > Duration::from_millis(50), "{waited:?}");
    }
}
