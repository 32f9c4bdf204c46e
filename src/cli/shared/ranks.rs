//! Commands that run as ranks: several processes that a launcher started share the work of one command.

use std::path::PathBuf;

use super::engine::EngineArgs;
use crate::error::{Error, Result};
use crate::note;
use crate::train::parallel::{Joined, Launch, join};

/// The options of a command whose work ranks can share.
pub(crate) struct Shareable<'a> {
    pub(crate) engine: EngineArgs,
    /// Where the command writes.
    pub(crate) out: Option<&'a mut PathBuf>,
}

/// Connects this process to the other ranks, if there are any, and gives each rank its threads and a place for its
/// files.
pub(crate) fn begin(
    launch: Option<&Launch>,
    command: Option<Shareable<'_>>,
    threads: Option<usize>,
) -> Result<Option<Joined>> {
    let joined = match (launch, &command) {
        (Some(launch), Some(command)) => Some(join(launch, command.engine.setup()?)?),
        _ => None,
    };
    if let Some(threads) = threads.or(joined.as_ref().map(Joined::threads)) {
        // Fails only if the pool exists already, and nothing has been computed yet.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build_global().map_err(|e| Error::Failed(format!("--threads {threads}: {e}")))?;
    }
    if let Some(joined) = &joined {
        let (size, threads) = (joined.ranks().size(), rayon::current_num_threads());
        let here = joined.ranks_here();
        note!("{size} ranks, {here} on this host; this one has {threads} of its threads");
        if let Some(out) = command.and_then(|command| command.out) {
            *out = joined.own_path(out)?;
        }
    }
    Ok(joined)
}
