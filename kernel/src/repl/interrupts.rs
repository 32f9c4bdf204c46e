//! Ctrl-C while a cell runs: the terminal is then in its normal mode, and the key sends a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cloze::{Error, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::screen::Screen;
use crate::session::Session;

/// The exit code of a program that Ctrl-C has ended, as in shells.
const ENDED: i32 = 130;
/// The count while no cell runs.
const IDLE: u32 = u32::MAX;

/// Counts the interrupts of the running cell.
#[derive(Clone)]
pub struct Interrupts(Arc<AtomicU32>);

impl Interrupts {
    /// Passes interrupts on to the running cell. In a `script`, an interrupt between two cells and the
    /// second one in a cell end the process: the session may not have begun yet, or the script waits for
    /// its input.
    pub fn pass_on(session: &Arc<Session>, screen: &Screen, script: bool) -> Result<Self> {
        let interrupts = Self(Arc::new(AtomicU32::new(IDLE)));
        let count = interrupts.clone();
        let session = Arc::downgrade(session);
        let screen = screen.clone();
        let failed =
            |error: std::io::Error| Error::Failed(format!("cannot wait for signals: {error}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        // The handler must exist before the line editor starts: after each line that restores the handler
        // it has found, and without one the signal ends the process.
        let mut signals =
            runtime.block_on(async { signal(SignalKind::interrupt()) }).map_err(failed)?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                while signals.recv().await.is_some() {
                    screen.echoed();
                    let too_many = count.again();
                    if script && too_many {
                        std::process::exit(ENDED);
                    }
                    let Some(session) = session.upgrade() else {
                        return;
                    };
                    session.interrupt();
                }
            });
        });
        Ok(interrupts)
    }

    /// Counts an interrupt, and returns whether no cell can take it.
    fn again(&self) -> bool {
        let count = |so_far: u32| Some(so_far.saturating_add(1));
        self.0
            .try_update(Ordering::Relaxed, Ordering::Relaxed, count)
            .is_ok_and(|so_far| so_far > 0)
    }

    pub fn cell_begins(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns whether the cell that has ended was interrupted.
    pub fn cell_ends(&self) -> bool {
        self.0.swap(IDLE, Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_takes_one_interrupt_and_the_time_between_two_cells_takes_none() {
        let interrupts = Interrupts(Arc::new(AtomicU32::new(IDLE)));
        assert!(interrupts.again());
        interrupts.cell_begins();
        assert!(!interrupts.again());
        assert!(interrupts.again());
        assert!(interrupts.cell_ends());
        assert!(interrupts.again());
        interrupts.cell_begins();
        assert!(!interrupts.cell_ends());
    }
}
