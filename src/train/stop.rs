//! Ending a run early without loss: the loop looks at a flag at every step boundary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, Result};
use crate::note;

/// Signals that come so soon after the first are the same request: GNU timeout sends one to the
/// program and one to its process group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// A request to stop, shared between whoever asks and the loop that obeys.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A stop that Ctrl-C, SIGTERM and a closed terminal (SIGHUP) ask for, which is answered on
    /// stderr. Another signal a second later or more ends the process at once, as it would without
    /// us: a step of a large model can take long.
    pub fn on_signals() -> Result<Self> {
        let failed = |e| Error::Failed(format!("signals can't be watched: {e}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
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
                        note!("stopping after this step; once more ends the program at once");
                    }
                    Some(at) if at.elapsed() < ONE_REQUEST => {}
                    Some(_) => signal_hook::low_level::exit(128 + signal),
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(watch)
            .map_err(failed)?;
        Ok(stop)
    }

    /// Asks for the stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whether this process was started to outlive its terminal, as `nohup` starts it. Where the system
/// doesn't say (it has no /proc), nothing is changed about SIGHUP.
fn hangup_is_ignored() -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    // Bit 0 stands for signal 1.
    ignored().is_none_or(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
