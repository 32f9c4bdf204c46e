//! The driver's functions and statuses.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys as declared;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUmodule, CUstream, CUstreamCaptureMode,
};

use super::library::{Opened, functions};

functions! {
    /// All are in every driver since CUDA 11.4. `cuEventElapsedTime` is looked up by its first
    /// name: the second, with the same signature, exists only since CUDA 12.8.
    struct Functions: CUresult;
    status {
        fn cuDriverGetVersion(*mut c_int);
        fn cuInit(c_uint);
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut CUdevice, c_int);
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
        fn cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        fn cuDeviceTotalMem_v2(*mut usize, CUdevice);
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        fn cuDevicePrimaryCtxRelease_v2(CUdevice);
        fn cuCtxSetCurrent(CUcontext);
        fn cuStreamCreate(*mut CUstream, c_uint);
        fn cuStreamDestroy_v2(CUstream);
        fn cuStreamSynchronize(CUstream);
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint);
        fn cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
        fn cuStreamEndCapture(CUstream, *mut CUgraph);
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        fn cuGraphLaunch(CUgraphExec, CUstream);
        fn cuGraphExecDestroy(CUgraphExec);
        fn cuGraphDestroy(CUgraph);
        fn cuModuleLoadData(*mut CUmodule, *const c_void);
        fn cuModuleUnload(CUmodule);
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        fn cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
        fn cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
        fn cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void
        );
        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
        fn cuMemFree_v2(CUdeviceptr);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fn cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        fn cuMemsetD2D8Async(CUdeviceptr, usize, c_uchar, usize, usize, CUstream);
        fn cuEventCreate(*mut CUevent, c_uint);
        fn cuEventRecord(CUevent, CUstream);
        fn cuEventRecordWithFlags(CUevent, CUstream, c_uint);
        fn cuEventQuery(CUevent);
        fn cuEventSynchronize(CUevent);
        fn cuEventElapsedTime_v2(*mut f32, CUevent, CUevent) as "cuEventElapsedTime";
        fn cuEventDestroy_v2(CUevent);
    }
    plain {
        // Declared with an `enum` for the status, which numbers of newer drivers don't fit.
        fn cuGetErrorName(c_uint, *mut *const c_char) -> c_uint;
        fn cuGetErrorString(c_uint, *mut *const c_char) -> c_uint;
    }
    optional {
        // Since CUDA 12.4.
        fn cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
    }
}

/// A status other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(pub c_uint);

impl Status {
    pub const INVALID_VALUE: Self = Self(1);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const STUB_LIBRARY: Self = Self(34);
    pub const DEVICE_UNAVAILABLE: Self = Self(46);
    pub const NO_DEVICE: Self = Self(100);
    pub const NOT_READY: Self = Self(600);
    pub const SYSTEM_NOT_READY: Self = Self(802);
    pub const SYSTEM_DRIVER_MISMATCH: Self = Self(803);
    pub const COMPAT_NOT_SUPPORTED: Self = Self(804);

    /// Returns whether the device is lost for this process, so that the driver returns this status
    /// for every later call: after an uncorrectable memory error, a kernel that failed in a
    /// documented way, or a device that fell off the bus.
    pub fn is_fatal(self) -> bool {
        matches!(self.0, 4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
    }
}

impl Functions {
    /// Returns the functions of a library, or the name of one that it lacks.
    pub fn open(library: &Opened) -> Result<Self, &'static str> {
        Self::of(library)
    }

    /// Turns a status into a result.
    pub fn result(status: c_uint) -> Result<(), Status> {
        match status {
            0 => Ok(()),
            status => Err(Status(status)),
        }
    }

    /// Returns the driver's description of a status: `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`.
    pub fn words(&self, status: Status) -> String {
        let text = |of: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint| {
            let mut text = std::ptr::null();
            // SAFETY: the driver returns a text with its own lifetime, or null for an unknown
            // status.
            unsafe {
                (of(status.0, &mut text) == 0 && !text.is_null())
                    .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        match (text(self.cuGetErrorString), text(self.cuGetErrorName)) {
            (Some(words), Some(name)) => format!("{words} ({name})"),
            _ => format!("status {}", status.0),
        }
    }

    /// Returns an attribute of a device; 0 if the driver doesn't know it.
    pub fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> u32 {
        let mut value = 0;
        // SAFETY: the pointer is valid; an unknown device is an error.
        match unsafe { (self.cuDeviceGetAttribute)(&mut value, attribute, device) } {
            0 => u32::try_from(value).unwrap_or(0),
            _ => 0,
        }
    }
}
