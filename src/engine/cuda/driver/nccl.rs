//! NCCL: sums and exchanges over the GPUs of several ranks, one GPU for each.
//!
//! NCCL works on a stream of its own, so that sums run while the engine's stream computes. A call to NCCL only submits
//! work. Whoever waits for it asks again and again whether it is done and whether another rank was lost, because a rank
//! that is gone would otherwise be waited for without end.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent;
use cudarc::nccl::sys as declared;
use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use super::api::{self, Status};
use super::context::Context;
use super::library::{Opened, functions};
use super::probe::Found;
use super::search::{Library, NotFound, SearchPaths};
use crate::bytes::{bytes_of, bytes_of_mut};
use crate::error::{Error, Result};
use crate::ranks::{Group, Pending};

/// How long a rank waits for the others: one of them may write a checkpoint or measure meanwhile.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// How often a waiting rank asks.
const PAUSE: Duration = Duration::from_micros(20);
/// The status of a call that goes on in the background.
const IN_PROGRESS: c_uint = 7;
/// An event without a time.
const DISABLE_TIMING: c_uint = 2;
/// Alignment of what ranks exchange, in bytes.
const ALIGNMENT: usize = 256;

functions! {
    /// All are in every NCCL since 2.4.
    struct Functions: ncclResult_t;
    status {
        fn ncclGetVersion(*mut c_int);
        fn ncclGetUniqueId(*mut ncclUniqueId);
        fn ncclCommInitRank(*mut ncclComm_t, c_int, ncclUniqueId, c_int);
        fn ncclAllReduce(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t
        );
        fn ncclAllGather(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, cudaStream_t
        );
        fn ncclCommAbort(ncclComm_t);
        fn ncclCommDestroy(ncclComm_t);
    }
    plain {
        // Declared with an `enum` for the status, which numbers of newer libraries don't fit.
        fn ncclCommGetAsyncError(ncclComm_t, *mut c_uint) -> c_uint;
        fn ncclGetErrorString(c_uint) -> *const c_char;
    }
    optional {}
}

/// The library.
pub struct Nccl {
    functions: Functions,
    /// 2.27.3 is (2, 27, 3).
    version: (u32, u32, u32),
    path: PathBuf,
}

impl Nccl {
    /// Finds the library.
    ///
    /// # Errors
    /// If it is not installed or can't be used, with what to install and where it was looked for.
    pub fn find() -> Result<Self> {
        Self::find_in(&SearchPaths::of_process())
    }

    /// Finds the library in these places.
    pub fn find_in(paths: &SearchPaths) -> Result<Self> {
        let missing = |not_found: NotFound| {
            Error::Failed(format!(
                "training on several GPUs needs NCCL, which was not found: install it with `pip install {}-cu13` \
                 (-cu12 for a driver of CUDA 12) or from your distribution ({not_found})",
                Library::Nccl.wheel()
            ))
        };
        paths.find(Library::Nccl, &[], |library| Self::of(&library)).map_err(missing)
    }

    /// That of a library; the reason where it can't be used.
    fn of(library: &Opened) -> std::result::Result<Self, String> {
        let functions =
            Functions::of(library).map_err(|name| format!("it has no function {name}"))?;
        let mut number = 0;
        // SAFETY: the pointer is valid.
        let status = unsafe { (functions.ncclGetVersion)(&mut number) };
        functions.check(status, "tell its version").map_err(|error| error.to_string())?;
        // Since 2.9: 22703 is 2.27.3. Older ones had a digit less for the minor version.
        let number = number.unsigned_abs();
        let unit = if number < 10_000 { 1000 } else { 10_000 };
        let version = (number / unit, number % unit / 100, number % 100);
        Ok(Self { functions, version, path: library.path.clone() })
    }

    /// Returns the version and the path for people.
    pub fn describe(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("NCCL {major}.{minor}.{patch}: {}", self.path.display())
    }

    /// Returns a new identity for a group of ranks, which the first rank makes and all need.
    pub fn fresh_id(&self) -> Result<Vec<u8>> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the pointer is valid.
        let status = unsafe { (self.functions.ncclGetUniqueId)(&mut id) };
        self.functions.check(status, "begin a group of ranks")?;
        Ok(id.internal.map(|byte| byte as u8).to_vec())
    }
}

impl Functions {
    /// Turns a status into an error.
    fn check(&self, status: c_uint, doing: &str) -> Result<()> {
        if matches!(status, 0 | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: the library returns a text that it keeps, for unknown statuses too.
        let words = unsafe {
            let text = (self.ncclGetErrorString)(status);
            if text.is_null() { c"no reason" } else { CStr::from_ptr(text) }
        };
        Err(Error::Failed(format!(
            "NCCL could not {doing}: {} (status {status})",
            words.to_string_lossy()
        )))
    }
}

/// The GPUs of several ranks, as this rank sees them.
pub struct Gpus {
    rank: usize,
    size: usize,
    functions: Functions,
    /// Its stream is NCCL's.
    context: Context,
    connection: Mutex<Connection>,
    limit: Duration,
}

/// What one thread may use at a time.
struct Connection {
    /// Null once it has ended.
    communicator: ncclComm_t,
    /// Comes when the stream is empty.
    done: CUevent,
    /// Memory of the GPU for numbers of the host: the address and the bytes.
    buffer: (u64, usize),
}

// SAFETY: NCCL's handles and events may be used from any thread, one at a time, as the mutex around them ensures.
unsafe impl Send for Connection {}

impl Gpus {
    /// Connects the GPU in `found` with those of the other ranks of this identity, once all have called this.
    ///
    /// # Errors
    /// If NCCL fails, for example because two ranks have the same GPU.
    pub fn connect(
        nccl: &Nccl,
        found: &Found,
        rank: usize,
        size: usize,
        id: &[u8],
    ) -> Result<Self> {
        let wrong =
            |_| Error::Failed(format!("the ranks' identity has {} bytes, not 128", id.len()));
        let id: [u8; 128] = id.try_into().map_err(wrong)?;
        let unique = ncclUniqueId { internal: id.map(|byte| byte as c_char) };
        let number =
            |n: usize| c_int::try_from(n).map_err(|_| Error::Failed("too many ranks".into()));
        let name = found.properties().name.clone();
        let context = Context::open(found.functions, found.ordinal, name)?;
        let connection =
            Connection { communicator: ptr::null_mut(), done: ptr::null_mut(), buffer: (0, 0) };
        let functions = nccl.functions;
        let connection = Mutex::new(connection);
        let gpus = Self { rank, size, functions, context, connection, limit: LIMIT };
        {
            let mut connection = gpus.lock();
            // SAFETY: the pointer is valid, and the context is current.
            let status = unsafe {
                (gpus.context.functions.cuEventCreate)(&mut connection.done, DISABLE_TIMING)
            };
            gpus.context.check(status, "create an event")?;
            let (size, rank) = (number(size)?, number(rank)?);
            // SAFETY: the pointer is valid, and the current context is that of this rank's GPU.
            let status = unsafe {
                (functions.ncclCommInitRank)(&mut connection.communicator, size, unique, rank)
            };
            functions.check(status, "connect the GPUs of the ranks")?;
        }
        Ok(gpus)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, with the context current on this thread.
    fn connected(&self) -> Result<MutexGuard<'_, Connection>> {
        let connection = self.lock();
        if connection.communicator.is_null() {
            return Err(Error::Failed("the connection of the ranks' GPUs has ended".into()));
        }
        self.context.enter()?;
        Ok(connection)
    }

    /// NCCL declares its own name for the driver's type.
    fn stream(&self) -> cudaStream_t {
        self.context.stream.cast()
    }

    /// Waits until NCCL's stream is empty. If another rank is lost, or takes too long, ends the connection.
    fn wait(&self, connection: &mut Connection) -> Result<()> {
        let (f, stream) = (&self.context.functions, self.context.stream);
        // SAFETY: event and stream are alive.
        let status = unsafe { (f.cuEventRecord)(connection.done, stream) };
        self.context.check(status, "mark the end of a sum")?;
        let began = Instant::now();
        loop {
            // SAFETY: the event is alive.
            let status = unsafe { (f.cuEventQuery)(connection.done) };
            if api::Functions::result(status) != Err(Status::NOT_READY) {
                return self.context.check(status, "add up over the ranks");
            }
            if let Err(error) = self.others_respond(connection, began) {
                let communicator = std::mem::replace(&mut connection.communicator, ptr::null_mut());
                // SAFETY: the communicator is alive, and nothing uses it after this. NCCL ends its work on the stream.
                unsafe { (self.functions.ncclCommAbort)(communicator) };
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn others_respond(&self, connection: &Connection, began: Instant) -> Result<()> {
        let mut failure = 0;
        // SAFETY: the communicator is alive, and the pointer is valid.
        let asked = unsafe {
            (self.functions.ncclCommGetAsyncError)(connection.communicator, &mut failure)
        };
        self.functions.check(asked, "watch the other ranks")?;
        self.functions.check(failure, "reach the other ranks")?;
        match began.elapsed() > self.limit {
            false => Ok(()),
            true => Err(Error::Failed(format!(
                "the other ranks have not come to the same exchange for {} s",
                self.limit.as_secs_f64()
            ))),
        }
    }

    /// Returns memory for this many bytes; the stream must be empty.
    fn reserve(&self, connection: &mut Connection, bytes: usize) -> Result<u64> {
        let (f, (mut at, size)) = (&self.context.functions, connection.buffer);
        if bytes > size {
            connection.buffer = (0, 0);
            // SAFETY: allocated here and used by nothing; the pointer is valid.
            let status = unsafe {
                if at != 0 {
                    (f.cuMemFree_v2)(at);
                }
                (f.cuMemAlloc_v2)(&mut at, bytes)
            };
            self.context.check(status, "allocate memory for the ranks' exchange")?;
            connection.buffer = (at, bytes);
        }
        Ok(at)
    }

    /// The stream must be empty, and `bytes` must live until it is empty again.
    fn upload(&self, to: u64, bytes: &[u8]) -> Result<()> {
        let f = &self.context.functions;
        // SAFETY: `reserve` returned memory of this size.
        let status = unsafe {
            (f.cuMemcpyHtoDAsync_v2)(to, bytes.as_ptr().cast(), bytes.len(), self.context.stream)
        };
        self.context.check(status, "copy to its memory")
    }

    /// The stream must be empty.
    fn download(&self, from: u64, into: &mut [u8]) -> Result<()> {
        let f = &self.context.functions;
        let (to, stream) = (into.as_mut_ptr().cast(), self.context.stream);
        // SAFETY: `reserve` returned memory of this size, and the copy is complete before this returns.
        let status = unsafe { (f.cuMemcpyDtoHAsync_v2)(to, from, into.len(), stream) };
        self.context.check(status, "copy from its memory")?;
        self.context.synchronize()
    }

    /// Adds up `count` f32 values at `at` over the ranks, in place and in NCCL's stream.
    fn add_up(&self, connection: &Connection, at: u64, count: usize) -> Result<()> {
        let (values, f32, sum) =
            (at as *mut c_void, ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        // SAFETY: the values are in the GPU's memory; the communicator and the stream are alive.
        let status = unsafe {
            let all_reduce = self.functions.ncclAllReduce;
            all_reduce(values, values, count, f32, sum, connection.communicator, self.stream())
        };
        self.functions.check(status, "add up over the ranks")
    }

    fn sum(&self, mut values: Vec<f32>) -> Result<Vec<f32>> {
        let mut connection = self.connected()?;
        let bytes = size_of_val(&values[..]);
        if bytes > 0 {
            self.wait(&mut connection)?;
            let at = self.reserve(&mut connection, bytes)?;
            self.upload(at, bytes_of(&values))?;
            self.add_up(&connection, at, values.len())?;
            self.wait(&mut connection)?;
            self.download(at, bytes_of_mut(&mut values))?;
        }
        Ok(values)
    }

    /// Returns the bytes of all ranks, which each give as many, one after the other.
    fn gather_equal(&self, connection: &mut Connection, own: &[u8]) -> Result<Vec<u8>> {
        self.wait(connection)?;
        let offset = own.len().next_multiple_of(ALIGNMENT);
        let from = self.reserve(connection, offset + own.len() * self.size)?;
        let to = from + offset as u64;
        self.upload(from, own)?;
        // SAFETY: `reserve` returned memory for the bytes of this rank, and after it for those of all; the communicator
        // and the stream are alive.
        let status = unsafe {
            (self.functions.ncclAllGather)(
                from as *const c_void,
                to as *mut c_void,
                own.len(),
                ncclDataType_t::ncclUint8,
                connection.communicator,
                self.stream(),
            )
        };
        self.functions.check(status, "exchange bytes between the ranks")?;
        self.wait(connection)?;
        let mut all = vec![0; own.len() * self.size];
        self.download(to, &mut all)?;
        Ok(all)
    }
}

impl Group for Gpus {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn start_sum(&self, values: Vec<f32>) -> Pending {
        let (send, receive) = channel();
        // The receiver is in this function.
        let _ = send.send(self.sum(values));
        receive
    }

    /// First the lengths go around, then the bytes, each as long as the longest.
    fn gather(&self, mut bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mut connection = self.connected()?;
        let own = (bytes.len() as u64).to_le_bytes();
        let lengths = self.gather_equal(&mut connection, &own)?;
        let lengths = lengths.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b) as usize);
        let longest = lengths.clone().max().unwrap_or(0);
        bytes.resize(longest, 0);
        let all = match longest {
            0 => Vec::new(),
            _ => self.gather_equal(&mut connection, &bytes)?,
        };
        let of = |(rank, length): (usize, usize)| all[rank * longest..][..length].to_vec();
        Ok(lengths.enumerate().map(of).collect())
    }

    fn start_sum_on_gpu(&self, at: u64, count: usize, after: u64) -> Result<()> {
        let connection = self.connected()?;
        if after != 0 {
            let (f, stream) = (&self.context.functions, self.context.stream);
            // SAFETY: the event is one of this process's primary context, which `Device::event` returned.
            let status = unsafe { (f.cuStreamWaitEvent)(stream, after as CUevent, 0) };
            self.context.check(status, "wait for gradients")?;
        }
        self.add_up(&connection, at, count)
    }

    fn finish_sums_on_gpu(&self) -> Result<()> {
        self.wait(&mut *self.connected()?)
    }

    fn finish(&self) {
        // Nothing is left to do if a rank or the GPU was lost.
        let Ok(mut connection) = self.connected() else { return };
        if self.wait(&mut connection).is_ok() {
            let communicator = std::mem::replace(&mut connection.communicator, ptr::null_mut());
            // SAFETY: the communicator is alive, has no work and is not used after this.
            unsafe { (self.functions.ncclCommDestroy)(communicator) };
        }
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        self.finish();
        let connection = self.lock();
        if self.context.enter().is_ok() {
            let f = &self.context.functions;
            // SAFETY: both were created here and are released once; NCCL's stream is empty, or its work was aborted.
            unsafe {
                if connection.buffer.0 != 0 {
                    (f.cuMemFree_v2)(connection.buffer.0);
                }
                if !connection.done.is_null() {
                    (f.cuEventDestroy_v2)(connection.done);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
