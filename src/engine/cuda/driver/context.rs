//! The device's context and its one stream, and what becomes of errors.

use std::ffi::c_uint;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUcontext, CUdevice, CUstream};

use super::api::{Functions, Status};
use super::probe::Found;
use crate::error::{Error, Result};

/// A stream that does not wait for the null stream.
const NON_BLOCKING: c_uint = 1;

/// The primary context, which other libraries of this process share, and a stream in it.
pub(super) struct Context {
    pub functions: Functions,
    pub stream: CUstream,
    context: CUcontext,
    device: CUdevice,
    name: String,
    /// Why nothing more can be run; see [`Status::is_fatal`].
    lost: OnceLock<String>,
}

// SAFETY: a context and a stream may be used from any thread that has made the context its current
// one, which `enter` does; the driver's functions take care of threads at the same time themselves.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn open(found: &Found) -> Result<Self> {
        let mut opened = Self {
            functions: found.functions,
            stream: ptr::null_mut(),
            context: ptr::null_mut(),
            device: 0,
            name: found.properties().name.clone(),
            lost: OnceLock::new(),
        };
        let f = &opened.functions;
        // SAFETY: both have places.
        let status = unsafe {
            match (f.cuDeviceGet)(&mut opened.device, found.ordinal) {
                0 => (f.cuDevicePrimaryCtxRetain)(&mut opened.context, opened.device),
                status => status,
            }
        };
        match Functions::result(status) {
            Err(Status::OUT_OF_MEMORY) => {
                return Err(Error::Failed(format!(
                    "{} has no room for a context of this process: others fill its memory",
                    opened.name
                )));
            }
            // The context is null still, so that dropping gives nothing back.
            _ => opened.check(status, "open a context")?,
        }
        opened.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: the stream has a place; the context is current.
        let status = unsafe { (opened.functions.cuStreamCreate)(&mut stream, NON_BLOCKING) };
        opened.check(status, "make a stream")?;
        opened.stream = stream;
        Ok(opened)
    }

    /// Makes the context that of this thread; fails where the device is lost.
    pub fn enter(&self) -> Result<()> {
        if let Some(why) = self.lost.get() {
            return Err(Error::Failed(why.clone()));
        }
        // SAFETY: the context was retained, and is given back when this is dropped.
        let status = unsafe { (self.functions.cuCtxSetCurrent)(self.context) };
        self.check(status, "enter its context")
    }

    /// A status of the driver as a sentence; remembers one after which nothing can be run.
    pub fn check(&self, status: c_uint, doing: &str) -> Result<()> {
        let Err(status) = Functions::result(status) else {
            return Ok(());
        };
        let words = self.functions.words(status);
        let name = &self.name;
        if !status.is_fatal() {
            return Err(Error::Failed(format!("{name} could not {doing}: {words}")));
        }
        let why = self.lost.get_or_init(|| {
            format!(
                "{name} was lost when it was to {doing}: {words}; nothing more can be run on it in this \
                 process, and the last checkpoint stands"
            )
        });
        Err(Error::Failed(why.clone()))
    }

    /// Whether the device is lost: then the driver has nothing to be given back.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Waits until the stream is empty.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this.
        let status = unsafe { (self.functions.cuStreamSynchronize)(self.stream) };
        self.check(status, "finish what it was asked for")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.context.is_null() {
            return;
        }
        // SAFETY: both were made in `open` and are given back once; nothing else uses the stream any
        // more, since all that does holds this alive.
        unsafe {
            if !self.stream.is_null() && self.enter().is_ok() {
                (self.functions.cuStreamDestroy_v2)(self.stream);
            }
            (self.functions.cuDevicePrimaryCtxRelease_v2)(self.device);
        }
    }
}
