//! Ends a run early without loss: the training loop checks a flag at every step boundary.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::error::{Error, Result};
use crate::note;

/// Signals within this time after the first are the same request: GNU timeout sends one to the program and
/// one to its process group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// The stop that signals request.
static OF_PROCESS: Mutex<Option<Stop>> = Mutex::new(None);

/// A request to stop, shared between its sender and the training loop.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Creates a stop that Ctrl-C, SIGTERM, SIGUSR1 (which `mpirun` passes on at once, and Slurm can send before a
    /// job's end) and a closed terminal (SIGHUP) request. The request is acknowledged on stderr.
    ///
    /// A Ctrl-C at least a second after the first signal ends the process at once, because a step of a large model can
    /// take long. Other signals may be repeated: schedulers send several before they kill.
    pub fn on_signals() -> Result<Self> {
        // One for the whole process: a signal is for all that it does.
        let mut of_process = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*of_process {
            return Ok(stop.clone());
        }
        let failed = |e| Error::Failed(format!("signals can't be watched: {e}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1]).map_err(failed)?;
        if !hangup_is_ignored() {
            signals.add_signal(SIGHUP).map_err(failed)?;
        }
        let stop = Self::default();
        let asked = stop.clone();
        let watch = move || {
            let mut first: Option<Instant> = None;
            for signal in signals.forever() {
                match first {
                    None => {
                        first = Some(Instant::now());
                        asked.request();
                        note!("stopping after this step; another Ctrl-C ends the program at once");
                    }
                    Some(at) if signal == SIGINT && at.elapsed() >= ONE_REQUEST => {
                        signal_hook::low_level::exit(128 + signal)
                    }
                    Some(_) => {}
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
        Ok(of_process.insert(stop).clone())
    }

    /// Requests the stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns whether this process was started to outlive its terminal, as by `nohup`. On systems without
/// /proc, SIGHUP keeps its effect.
fn hangup_is_ignored() -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    // Bit 0 is signal 1.
    ignored().is_none_or(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Slurm does: first the signal that the job asked for, later SIGTERM.
    #[test]
    fn a_scheduler_may_send_several_signals() {
        let stop = Stop::on_signals().unwrap();
        assert!(!stop.requested());
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !stop.requested() {
            assert!(Instant::now() < until, "SIGUSR1 was not noticed");
            std::thread::yield_now();
        }
        std::thread::sleep(ONE_REQUEST + Duration::from_millis(100));
        // The process would end here.
        signal_hook::low_level::raise(SIGTERM).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(stop.requested());
    }
}
