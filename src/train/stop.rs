//! Ending a run early without loss: the loop looks at a flag at every step boundary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Error, Result};

/// A request to stop, shared between whoever asks and the loop that obeys.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A stop that Ctrl-C and SIGTERM ask for. A second signal ends the process at once, as it
    /// would without us: a step of a large model can take long.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let failed = |e| Error::Failed(format!("signal {signal} can't be watched: {e}"));
            // In this order: the shutdown looks at the flag before this signal raises it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.0.clone())
                .map_err(failed)?;
            signal_hook::flag::register(signal, stop.0.clone()).map_err(failed)?;
        }
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
