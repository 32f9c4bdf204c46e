//! Connects the processes that train one model together, its ranks: by MPI on CPUs, by NCCL on GPUs.
//!
//! `mpirun`, Slurm's `srun` or torchrun start them, one for each device. [`Launch`] reads from the launcher's
//! variables which rank this process is; [`join`] connects it and makes it one of the [`Ranks`] of this process,
//! which engines and training loops ask. The ranks also keep a connection to the first one ([`control`]), which
//! ends all of them when one fails.

mod address;
mod control;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use self::address::Address;
use self::control::{Control, Process};
pub use self::launch::Launch;
use crate::engine::{Backend, Setup, cuda};
use crate::error::{Error, Result};
use crate::notes;
use crate::ranks::{Group, Ranks};

/// A process that has joined the others. [`end`](Self::end) leaves them.
pub struct Joined {
    ranks: Ranks,
    control: Control,
    /// Where every rank but the first keeps what the first writes into its output folder.
    own: Option<TempDir>,
}

/// Connects this process to the other ranks: by NCCL if `setup` computes on a GPU, else by MPI.
///
/// # Errors
/// If a rank, NCCL or MPI is missing.
pub fn join(launch: &Launch, setup: Setup) -> Result<Joined> {
    let own = match launch.rank {
        0 => None,
        _ => Some(tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), e))?),
    };
    let folder = own.as_ref().map(|own| own.path().to_path_buf());
    let cleanup = move || {
        if let Some(folder) = &folder {
            // The process ends early: what is left behind is only a temporary folder.
            let _ = std::fs::remove_dir_all(folder);
        }
    };
    let (control, group) = match setup.backend.resolve().0 {
        Backend::Cuda => on_gpus(launch, setup, cleanup)?,
        Backend::Reference | Backend::Cpu | Backend::Auto => on_cpus(launch, setup, cleanup)?,
    };
    let ranks = Ranks::of(group);
    if !ranks.is_first() {
        notes::silence();
    }
    ranks.clone().set()?;
    Ok(Joined { ranks, control, own })
}

/// Connects the ranks by MPI, and then each with the first.
fn on_cpus(
    launch: &Launch,
    setup: Setup,
    cleanup: impl Fn() + Send + Sync + 'static,
) -> Result<(Control, Arc<dyn Group>)> {
    let group = by_mpi(launch, setup)?;
    let control = meet(&Ranks::of(group.clone()), Vec::new(), cleanup)?;
    Ok((control, group))
}

/// Connects each rank with the first, which hands out the identity of the group, and then their GPUs by NCCL.
fn on_gpus(
    launch: &Launch,
    setup: Setup,
    cleanup: impl Fn() + Send + Sync + 'static,
) -> Result<(Control, Arc<dyn Group>)> {
    if setup.deterministic {
        return Err(refused(
            launch,
            "--deterministic needs the backend cpu on several ranks: the order in which NCCL adds up depends on their \
             number"
                .into(),
        ));
    }
    let id = match launch.rank {
        0 => cuda::fresh_id(),
        _ => Ok(Vec::new()),
    };
    // Without an identity the ranks meet too, so that all end with the one reason.
    let handed = id.as_ref().map_or(Vec::new(), Clone::clone);
    let control = match cfg!(feature = "mpi") && launch.is_mpi() {
        true => {
            let group = by_mpi(launch, setup)?;
            let control = meet(&Ranks::of(group.clone()), handed, cleanup)?;
            group.finish();
            control
        }
        false => {
            let address = Address::find().map_err(|error| refused(launch, error.to_string()))?;
            address.meet(launch, handed, cleanup)?
        }
    };
    let place = launch.local_rank.unwrap_or(control.place.rank);
    let connected =
        id.and_then(|_| cuda::connect(launch.rank, launch.size, place, &control.place.handed));
    match connected {
        Ok(group) => Ok((control, group)),
        Err(error) => {
            control.fail(&error);
            Err(error)
        }
    }
}

#[cfg(feature = "mpi")]
fn by_mpi(launch: &Launch, setup: Setup) -> Result<Arc<dyn Group>> {
    let mpi = Arc::new(mpi::Mpi::start(setup.deterministic)?);
    if (mpi.rank(), mpi.size()) != (launch.rank, launch.size) {
        return Err(Error::Usage(format!(
            "{} counts this process as rank {} of {}, and MPI as rank {} of {}: start Cloze with the launcher of the \
             MPI that it was built with",
            launch.by,
            launch.rank,
            launch.size,
            mpi.rank(),
            mpi.size()
        )));
    }
    Ok(mpi)
}

#[cfg(not(feature = "mpi"))]
fn by_mpi(launch: &Launch, _: Setup) -> Result<Arc<dyn Group>> {
    Err(refused(
        launch,
        format!(
            "{} started {} processes to train together, but this cloze was built without MPI: build it with \
             `--features mpi`, or start one process",
            launch.by, launch.size
        ),
    ))
}

/// Returns the error of all ranks, which only the first prints.
fn refused(launch: &Launch, why: String) -> Error {
    if launch.rank > 0 {
        notes::silence();
    }
    Error::Usage(why)
}

/// Connects all ranks to the first, whose address goes around. It hands `handed` to the others.
fn meet(
    ranks: &Ranks,
    handed: Vec<u8>,
    cleanup: impl Fn() + Send + Sync + 'static,
) -> Result<Control> {
    let failed = |e| Error::Failed(format!("a port for the other ranks: {e}"));
    let key = format!("{:016x}", fresh_key());
    let mut this = Process::this(ranks.rank(), ranks.size(), key);
    let listener = match ranks.is_first() {
        true => Some(TcpListener::bind("0.0.0.0:0").map_err(failed)?),
        false => None,
    };
    let port = match &listener {
        Some(listener) => listener.local_addr().map_err(failed)?.port(),
        None => 0,
    };
    let invitation = format!("{} {} {}", this.host, port, this.key);
    let all = ranks.gather(invitation.into_bytes())?;
    if let Some(listener) = listener {
        return Control::listen(&listener, this, handed, cleanup);
    }
    let invitation = String::from_utf8_lossy(&all[0]).into_owned();
    let mut words = invitation.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (host, port) = (word(), word());
    this.key = word();
    let addresses = match host == this.host {
        true => vec![format!("127.0.0.1:{port}")],
        false => vec![format!("{host}:{port}")],
    };
    Control::connect(&addresses, this, cleanup)
}

/// Returns a number that no other run has.
fn fresh_key() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

impl Joined {
    /// Returns the ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Returns how many ranks run on this host.
    pub fn ranks_here(&self) -> usize {
        self.control.place.size
    }

    /// Returns how many threads suit this rank: its share of the host's, and no more than the launcher bound it to.
    pub fn threads(&self) -> usize {
        let bound = std::thread::available_parallelism().map_or(1, usize::from);
        let share = all_threads().max(bound) / self.control.place.size;
        bound.min(share).max(1)
    }

    /// Returns where this rank writes what belongs at `path`: there on the first rank. The others have a folder of
    /// their own, which is removed in the end. Its files begin as links to, or copies of, those that a run can be
    /// continued from. All ranks must call this.
    pub fn own_path(&self, path: &Path) -> Result<PathBuf> {
        let own = match &self.own {
            None => path.to_path_buf(),
            Some(own) => {
                // A path that ends in `..` has no name.
                let own = own.path().join(path.file_name().unwrap_or("out".as_ref()));
                if path.is_dir() {
                    borrow_files(path, &own)?;
                    borrow_files(&path.join("trainer"), &own.join("trainer"))?;
                }
                own
            }
        };
        // The first rank may now remove files.
        self.ranks.barrier()?;
        Ok(own)
    }

    /// Leaves the other ranks, and ends them if this one has failed. Only the first rank prints an error.
    pub fn end<T>(self, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => {
                self.control.finish();
                self.ranks.finish();
            }
            Err(error) => self.control.fail(error),
        }
        result
    }
}

/// Returns the number of the host's threads, whatever this process is bound to.
fn all_threads() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = online.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    });
    ranges.sum()
}

/// Links the files of a folder from which a run can be continued into `own`, or copies them. They are never written
/// to: Cloze replaces files as a whole.
fn borrow_files(folder: &Path, own: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    std::fs::create_dir_all(own).map_err(|e| Error::io(own, e))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let kind = path.extension().and_then(|kind| kind.to_str());
        if let (Some("safetensors" | "json" | "txt"), Some(name)) = (kind, path.file_name()) {
            let to = own.join(name);
            let copied =
                std::fs::hard_link(&path, &to).or_else(|_| std::fs::copy(&path, &to).map(drop));
            copied.map_err(|e| Error::io(&path, e))?;
        }
    }
    Ok(())
}
