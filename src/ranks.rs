//! The ranks of a run: processes that train one model together, each on its share of every batch.
//!
//! This is all that engines, training loops and commands know of the other processes. `train::parallel` starts
//! and connects them.

use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

/// A sum over all ranks that another thread computes.
pub type Pending = Receiver<Result<Vec<f32>>>;

/// Connected processes, as in an MPI communicator. Every rank makes the same calls in the same order.
pub trait Group: Send + Sync {
    /// Returns the number of this process, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn size(&self) -> usize;

    /// Starts to add up `values` element by element over all ranks. Every rank receives the sums.
    fn start_sum(&self, values: Vec<f32>) -> Pending;

    /// Returns the bytes that each rank gave, in the order of the ranks.
    fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>>;

    /// Starts to add up `count` f32 values at the address `at` in the memory of each rank's GPU, in place, once the
    /// event `after` (a `CUevent`; 0 for none) has come.
    ///
    /// # Errors
    /// If the ranks are not connected by their GPUs.
    fn start_sum_on_gpu(&self, _at: u64, _count: usize, _after: u64) -> Result<()> {
        Err(Error::Failed("these ranks are not connected by their GPUs".into()))
    }

    /// Waits for the sums that [`start_sum_on_gpu`](Self::start_sum_on_gpu) has started.
    fn finish_sums_on_gpu(&self) -> Result<()> {
        Ok(())
    }

    /// Ends the connection, once every rank has come this far.
    fn finish(&self) {}
}

/// A handle to the group of this process. The default is a process that trains alone.
#[derive(Clone, Default)]
pub struct Ranks(Option<Arc<dyn Group>>);

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

/// The group of this process.
static OF_PROCESS: OnceLock<Ranks> = OnceLock::new();

impl Ranks {
    /// A process that trains alone.
    pub const ALONE: &'static Self = &Self(None);

    /// Returns a handle to this group.
    pub fn of(group: Arc<dyn Group>) -> Self {
        Self(Some(group))
    }

    /// Returns the group of this process: alone, unless [`set`](Self::set) was called.
    pub fn of_process() -> &'static Self {
        OF_PROCESS.get().unwrap_or(Self::ALONE)
    }

    /// Makes this the group of this process.
    ///
    /// # Errors
    /// If the process has a group already.
    pub fn set(self) -> Result<()> {
        let twice = |_| Error::Failed("this process belongs to a group of ranks already".into());
        OF_PROCESS.set(self).map_err(twice)
    }

    /// Returns the number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |group| group.rank())
    }

    /// Returns the number of processes.
    pub fn size(&self) -> usize {
        self.0.as_ref().map_or(1, |group| group.size())
    }

    /// Returns whether this is the rank that writes files and reports progress.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Returns which of `count` things are this rank's. The shares of all ranks follow each other.
    pub fn share(&self, count: usize) -> Range<usize> {
        let (rank, size) = (self.rank(), self.size());
        count * rank / size..count * (rank + 1) / size
    }

    /// Starts to add up `values` element by element over all ranks.
    pub fn start_sum(&self, values: Vec<f32>) -> Pending {
        match &self.0 {
            Some(group) => group.start_sum(values),
            None => {
                let (send, receive) = channel();
                // The receiver is in this function.
                let _ = send.send(Ok(values));
                receive
            }
        }
    }

    /// Returns the bytes that each rank gave, in the order of the ranks.
    pub fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match &self.0 {
            Some(group) => group.gather(bytes),
            None => Ok(vec![bytes]),
        }
    }

    /// See [`Group::start_sum_on_gpu`]. Nothing changes if this process trains alone.
    pub fn start_sum_on_gpu(&self, at: u64, count: usize, after: u64) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |group| group.start_sum_on_gpu(at, count, after))
    }

    /// See [`Group::finish_sums_on_gpu`].
    pub fn finish_sums_on_gpu(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |group| group.finish_sums_on_gpu())
    }

    /// Leaves the group, once every rank has come this far.
    pub fn finish(&self) {
        if let Some(group) = &self.0 {
            group.finish();
        }
    }

    /// Returns the numbers that each rank gave.
    pub fn gather_values(&self, values: Vec<f32>) -> Result<Vec<Vec<f32>>> {
        if self.size() == 1 {
            return Ok(vec![values]);
        }
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = self.gather(bytes)?;
        let read =
            |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        Ok(all.into_iter().map(read).collect())
    }

    /// Adds up numbers over all ranks, in the order of the ranks, so that every rank has the same bits.
    pub fn sum<const N: usize>(&self, values: [f64; N]) -> Result<[f64; N]> {
        let all = self.gather(values.iter().flat_map(|x| x.to_le_bytes()).collect())?;
        let mut sums = [0.0; N];
        for bytes in all {
            for (sum, x) in sums.iter_mut().zip(bytes.as_chunks().0) {
                *sum += f64::from_le_bytes(*x);
            }
        }
        Ok(sums)
    }

    /// Returns the smallest of the numbers that the ranks gave.
    pub fn least(&self, own: usize) -> Result<usize> {
        let all = self.gather((own as u64).to_le_bytes().to_vec())?;
        let numbers = all.iter().flat_map(|bytes| bytes.as_chunks().0);
        Ok(numbers.map(|bytes| u64::from_le_bytes(*bytes) as usize).min().unwrap_or(own))
    }

    /// Returns whether `this` holds on any rank.
    pub fn any(&self, this: bool) -> Result<bool> {
        Ok(self.gather(vec![u8::from(this)])?.iter().any(|given| given == &[1]))
    }

    /// Waits until every rank has come this far.
    pub fn barrier(&self) -> Result<()> {
        self.gather(Vec::new()).map(drop)
    }

    /// Checks that all ranks have the same `value`.
    ///
    /// # Errors
    /// If one differs from the first rank's, with both values.
    pub fn agree(&self, what: &str, value: &str) -> Result<()> {
        let all = self.gather(value.as_bytes().to_vec())?;
        match all.iter().position(|given| given != &all[0]) {
            None => Ok(()),
            Some(rank) => Err(Error::Usage(format!(
                "the ranks disagree about {what}: rank 0 has {} and rank {rank} has {}",
                String::from_utf8_lossy(&all[0]),
                String::from_utf8_lossy(&all[rank])
            ))),
        }
    }
}

#[cfg(test)]
pub(crate) mod threads {
    //! A group whose ranks are threads of one process, for tests.

    use std::sync::mpsc::Sender;
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// What the ranks share.
    struct Table {
        turn: Barrier,
        given: Mutex<Vec<Vec<u8>>>,
    }

    impl Table {
        fn gather(&self, rank: usize, bytes: Vec<u8>) -> Vec<Vec<u8>> {
            self.given.lock().unwrap()[rank] = bytes;
            self.turn.wait();
            let all = self.given.lock().unwrap().clone();
            self.turn.wait();
            all
        }
    }

    /// Bytes to gather, and where all ranks' bytes go.
    type Call = (Vec<u8>, Box<dyn FnOnce(Vec<Vec<u8>>) + Send>);

    /// A rank. Another thread makes its calls: a rank that waited within the thread pool would keep the others, which
    /// share the pool, from coming as far.
    struct Thread {
        rank: usize,
        size: usize,
        calls: Mutex<Sender<Call>>,
    }

    /// Returns `size` ranks.
    pub(crate) fn group(size: usize) -> Vec<Ranks> {
        let given = Mutex::new(vec![Vec::new(); size]);
        let table = Arc::new(Table { turn: Barrier::new(size), given });
        let rank = |rank| {
            let (calls, todo) = channel::<Call>();
            let table = table.clone();
            std::thread::spawn(move || {
                for (bytes, answer) in todo {
                    answer(table.gather(rank, bytes));
                }
            });
            Ranks::of(Arc::new(Thread { rank, size, calls: Mutex::new(calls) }))
        };
        (0..size).map(rank).collect()
    }

    impl Thread {
        fn call(&self, bytes: Vec<u8>, answer: impl FnOnce(Vec<Vec<u8>>) + Send + 'static) {
            self.calls.lock().unwrap().send((bytes, Box::new(answer))).unwrap();
        }
    }

    impl Group for Thread {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.size
        }

        fn start_sum(&self, values: Vec<f32>) -> Pending {
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let (send, receive) = channel();
            self.call(bytes, move |all| {
                let mut sums = vec![0.0; values.len()];
                for bytes in all {
                    for (sum, x) in sums.iter_mut().zip(bytes.as_chunks().0) {
                        *sum += f32::from_le_bytes(*x);
                    }
                }
                // The receiver may have given up.
                let _ = send.send(Ok(sums));
            });
            receive
        }

        fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
            let (send, receive) = channel();
            self.call(bytes, move |all| send.send(all).unwrap());
            Ok(receive.recv().unwrap())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_each_other_and_leave_nothing_out() {
        for count in [0, 1, 5, 64] {
            let shares: Vec<_> = threads::group(3).iter().map(|r| r.share(count)).collect();
            assert_eq!(shares[0].start, 0);
            assert_eq!(shares[2].end, count);
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start), "{shares:?}");
        }
        assert_eq!(Ranks::ALONE.share(7), 0..7);
    }

    #[test]
    fn every_rank_learns_what_all_have_given() {
        std::thread::scope(|scope| {
            for ranks in threads::group(3) {
                scope.spawn(move || {
                    let rank = ranks.rank();
                    assert_eq!(ranks.sum([1.0, rank as f64]).unwrap(), [3.0, 3.0]);
                    assert_eq!(ranks.least(9 - rank).unwrap(), 7);
                    assert!(ranks.any(rank == 1).unwrap());
                    assert!(!ranks.any(false).unwrap());
                    let sums = ranks.start_sum(vec![rank as f32, 0.5]).recv().unwrap().unwrap();
                    assert_eq!(sums, [3.0, 1.5]);
                    let all = ranks.gather_values(vec![rank as f32; rank]).unwrap();
                    assert_eq!(all, [vec![], vec![1.0], vec![2.0, 2.0]]);
                    ranks.agree("the seed", "1").unwrap();
                    let value = if rank == 2 { "7" } else { "1" };
                    let message = ranks.agree("the seed", value).unwrap_err().to_string();
                    let expected =
                        "the ranks disagree about the seed: rank 0 has 1 and rank 2 has 7";
                    assert_eq!(message, expected);
                });
            }
        });
    }
}
