//! Ranks that MPI connects: Open MPI or MPICH, through rsmpi.
//!
//! One thread makes all calls to MPI, in the order in which they were asked for, so that MPI needs no support for
//! threads and sums can be computed while the backward pass runs. It waits for the other ranks in short sleeps, because
//! MPI's own waiting would take a core from the training.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ::mpi::collective::{CommunicatorCollectives, SystemOperation};
use ::mpi::topology::{Communicator, SimpleCommunicator};

use crate::error::{Error, Result};
use crate::ranks::{Group, Pending};

/// Upper limit of the numbers in one call. MPI counts in i32, and a part of this size is copied within the caches.
const AT_ONCE: usize = 1 << 20;

/// A call for the thread.
enum Call {
    Sum(Vec<f32>, Sender<Result<Vec<f32>>>),
    Gather(Vec<u8>, Sender<Vec<Vec<u8>>>),
}

/// The processes that `mpirun` started.
pub(super) struct Mpi {
    rank: usize,
    size: usize,
    calls: Mutex<Option<Sender<Call>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Mpi {
    /// Connects to the other processes. With `deterministic`, sums are computed in the order of the ranks.
    ///
    /// # Errors
    /// If MPI was initialised before.
    pub fn start(deterministic: bool) -> Result<Self> {
        let (calls, todo) = channel();
        let (ready, started) = channel();
        let work = move || {
            let Some(universe) = ::mpi::initialize() else { return };
            let world = universe.world();
            // The receiver waits.
            let _ = ready.send((world.rank() as usize, world.size() as usize));
            serve(&world, &todo, deterministic);
        };
        let failed = |e| Error::Failed(format!("the thread for MPI: {e}"));
        let thread = std::thread::Builder::new().name("mpi".into()).spawn(work).map_err(failed)?;
        let twice = |_| Error::Failed("MPI was initialised before".into());
        let (rank, size) = started.recv().map_err(twice)?;
        Ok(Self { rank, size, calls: Mutex::new(Some(calls)), thread: Mutex::new(Some(thread)) })
    }

    fn call(&self, call: Call) {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a thread, nobody answers, which the caller notices.
        let _ = calls.as_ref().map(|calls| calls.send(call));
    }
}

impl Group for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn start_sum(&self, values: Vec<f32>) -> Pending {
        let (send, receive) = channel();
        self.call(Call::Sum(values, send));
        receive
    }

    fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let (send, receive) = channel();
        self.call(Call::Gather(bytes, send));
        receive.recv().map_err(|_| Error::Failed("the connection by MPI has ended".into()))
    }

    fn finish(&self) {
        drop(self.calls.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic of the thread has been printed.
        let _ = thread.map(JoinHandle::join);
    }
}

/// Makes the calls, until nobody can ask for more.
fn serve(world: &SimpleCommunicator, todo: &Receiver<Call>, deterministic: bool) {
    let mut scratch = Vec::new();
    for call in todo {
        meet(world);
        // Whoever asked may have given up.
        match call {
            Call::Sum(mut values, answer) => {
                for part in values.chunks_mut(AT_ONCE) {
                    match deterministic {
                        true => sum_in_order(world, part, &mut scratch),
                        false => sum(world, part, &mut scratch),
                    }
                }
                let _ = answer.send(Ok(values));
            }
            Call::Gather(bytes, answer) => {
                let _ = answer.send(gather(world, &bytes));
            }
        }
    }
}

/// Waits until every rank has come this far, in short sleeps. After that all take part in the transfer, so that it does
/// not wait any more.
fn meet(world: &SimpleCommunicator) {
    let mut request = world.immediate_barrier();
    let mut tries = 0u32;
    while let Err(unfinished) = request.test() {
        request = unfinished;
        tries += 1;
        match tries {
            0..20 => std::thread::yield_now(),
            20..200 => std::thread::sleep(Duration::from_micros(50)),
            _ => std::thread::sleep(Duration::from_micros(300)),
        }
    }
}

fn sum(world: &SimpleCommunicator, values: &mut [f32], own: &mut Vec<f32>) {
    own.clear();
    own.extend_from_slice(values);
    world.all_reduce_into(&own[..], values, SystemOperation::sum());
}

/// Every rank adds up its part of the values, which all send to it, in the order of the ranks.
fn sum_in_order(world: &SimpleCommunicator, values: &mut [f32], all: &mut Vec<f32>) {
    let size = world.size() as usize;
    let share = values.len().div_ceil(size);
    all.clear();
    all.extend_from_slice(values);
    // Every rank's part has the same length.
    all.resize(share * size, 0.0);
    let mut given = vec![0.0f32; share * size];
    world.all_to_all_into(&all[..], &mut given[..]);
    let (sums, others) = given.split_at_mut(share);
    for other in others.chunks_exact(share) {
        for (sum, x) in sums.iter_mut().zip(other) {
            *sum += x;
        }
    }
    world.all_gather_into(&*sums, &mut all[..]);
    values.copy_from_slice(&all[..values.len()]);
}

/// Returns the bytes of every rank: first their lengths go around, then the bytes, each as long as the longest.
fn gather(world: &SimpleCommunicator, bytes: &[u8]) -> Vec<Vec<u8>> {
    let size = world.size() as usize;
    let mut lengths = vec![0u64; size];
    world.all_gather_into(&(bytes.len() as u64), &mut lengths[..]);
    let longest = lengths.iter().max().map_or(0, |&longest| longest as usize);
    let mut all: Vec<Vec<u8>> =
        lengths.iter().map(|&length| Vec::with_capacity(length as usize)).collect();
    for start in (0..longest).step_by(AT_ONCE) {
        let end = longest.min(start + AT_ONCE);
        let within = |length: usize| start.min(length)..end.min(length);
        let mut own = bytes[within(bytes.len())].to_vec();
        own.resize(end - start, 0);
        let mut parts = vec![0u8; (end - start) * size];
        world.all_gather_into(&own[..], &mut parts[..]);
        for ((part, all), &length) in parts.chunks_exact(end - start).zip(&mut all).zip(&lengths) {
            all.extend_from_slice(&part[..within(length as usize).len()]);
        }
    }
    all
}
