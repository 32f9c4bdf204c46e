//! Starts a kernel's spare and keeps it alive.

use std::ffi::OsString;
use std::process::Child;
use std::time::{Duration, Instant};

use super::Place;
use crate::session::CHANGED_VARIABLES;

/// How long a kernel must be idle before its spare starts, which keeps a small machine busy for some
/// seconds.
const QUIET: Duration = Duration::from_secs(6);
/// The shortest time between the starts of two spares.
const PAUSE: Duration = Duration::from_secs(60);

/// Starts a spare if the kernel has been used and is idle, and renews its lease.
#[derive(Debug)]
pub struct Keeper {
    place: Option<Place>,
    environment: Vec<(OsString, Option<OsString>)>,
    busy: bool,
    used: Option<Instant>,
    renewed: Option<Instant>,
    started: Option<Instant>,
    spare: Option<Child>,
}

impl Keeper {
    /// Reads this process's variables, before the session changes any.
    pub fn prepare() -> Self {
        // Without a template there is no spare; the kernel itself reports why.
        let place = super::minutes().and_then(|_| Place::find().ok().flatten());
        let of_the_front_end = std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| name.to_string_lossy().starts_with("JPY_"))
            .map(|name| (name, None));
        let changed = CHANGED_VARIABLES.map(|name| (name.into(), std::env::var_os(name)));
        Self {
            place,
            environment: changed.into_iter().chain(of_the_front_end).collect(),
            busy: false,
            used: None,
            renewed: None,
            started: None,
            spare: None,
        }
    }

    /// Returns the place of the spare that this process can be or have.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Records that a cell begins (`busy`) or has ended, and extends the spare's life.
    pub fn used(&mut self, busy: bool) {
        self.busy = busy;
        let now = Instant::now();
        self.used = Some(now);
        if self.renewed.is_none_or(|at| now - at > QUIET)
            && let Some(place) = &self.place
        {
            place.extend();
            self.renewed = Some(now);
        }
    }

    /// Starts a spare if it is time for one. Must be called regularly.
    pub fn start_if_idle(&mut self) {
        if let Some(spare) = &mut self.spare
            && !matches!(spare.try_wait(), Ok(None))
        {
            self.spare = None;
        }
        let quiet = !self.busy && self.used.is_some_and(|used| used.elapsed() > QUIET);
        let paused = self.started.is_some_and(|started| started.elapsed() < PAUSE);
        let recent = self.used > self.started;
        if self.place.is_none() || self.spare.is_some() || !quiet || paused || !recent {
            return;
        }
        self.started = Some(Instant::now());
        // Without a spare the next kernel warms itself up.
        self.spare = std::env::current_exe()
            .and_then(|program| super::start(&program, self.environment.clone()))
            .ok()
            .flatten();
    }
}
