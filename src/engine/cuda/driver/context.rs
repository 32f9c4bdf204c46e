//! The device's context and its one stream, and the handling of errors.

use std::ffi::c_uint;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUcontext, CUdevice, CUstream};

use super::api::{Functions, Status};
use crate::error::{Error, Result};

/// The stream doesn't wait for the null stream.
const NON_BLOCKING: c_uint = 1;

/// The primary context, shared with other libraries of this process, and a stream in it.
pub(super) struct Context {
    pub functions: Functions,
    pub stream: CUstream,
    context: CUcontext,
    device: CUdevice,
    name: String,
    /// Why nothing more can run; see [`Status::is_fatal`].
    lost: OnceLock<String>,
}

// SAFETY: a context and a stream may be used from any thread that has made the context current,
// which `enter` does; the driver's functions are thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn open(functions: Functions, ordinal: i32, name: String) -> Result<Self> {
        let mut opened = Self {
            functions,
            stream: ptr::null_mut(),
            context: ptr::null_mut(),
            device: 0,
            name,
            lost: OnceLock::new(),
        };
        let f = &opened.functions;
        // SAFETY: both pointers are valid.
        let status = unsafe {
            match (f.cuDeviceGet)(&mut opened.device, ordinal) {
                0 => (f.cuDevicePrimaryCtxRetain)(&mut opened.context, opened.device),
                status => status,
            }
        };
        match Functions::result(status) {
            Err(Status::OUT_OF_MEMORY) => {
                return Err(Error::Failed(format!(
                    "{} has no free memory for this process: other programs use it",
                    opened.name
                )));
            }
            // The context is still null, so dropping releases nothing.
            _ => opened.check(status, "open a context")?,
        }
        opened.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid; the context is current.
        let status = unsafe { (opened.functions.cuStreamCreate)(&mut stream, NON_BLOCKING) };
        opened.check(status, "create a stream")?;
        opened.stream = stream;
        Ok(opened)
    }

    /// Makes the context current on this thread; returns an error if the device is lost.
    pub fn enter(&self) -> Result<()> {
        if let Some(why) = self.lost.get() {
            return Err(Error::Failed(why.clone()));
        }
        // SAFETY: the context was retained, and is released when this is dropped.
        let status = unsafe { (self.functions.cuCtxSetCurrent)(self.context) };
        self.check(status, "enter its context")
    }

    /// Turns a status of the driver into an error; remembers one after which nothing can run.
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
                "{name} was lost when it tried to {doing}: {words}; nothing more can run on it in this \
                 process: resume from the last checkpoint"
            )
        });
        Err(Error::Failed(why.clone()))
    }

    /// Waits until the stream is empty.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this.
        let status = unsafe { (self.functions.cuStreamSynchronize)(self.stream) };
        self.check(status, "finish its work")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.context.is_null() {
            return;
        }
        // SAFETY: both were created in `open` and are released once; nothing else uses the stream
        // any more, since everything that does keeps this alive.
        unsafe {
            if !self.stream.is_null() && self.enter().is_ok() {
                (self.functions.cuStreamDestroy_v2)(self.stream);
            }
            (self.functions.cuDevicePrimaryCtxRelease_v2)(self.device);
        }
    }
}
