//! Compiles kernels: CUDA C++ to machine code of one architecture, with the assembler's report on
//! registers and spills. Needs no GPU.

use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;

use cudarc::nvrtc::sys as declared;
use cudarc::nvrtc::sys::nvrtcProgram;

use super::library::{Opened, functions};
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::code;
use crate::error::{self, Error};

functions! {
    struct Functions: nvrtcResult;
    status {
        fn nvrtcVersion(*mut c_int, *mut c_int);
        fn nvrtcGetNumSupportedArchs(*mut c_int);
        fn nvrtcGetSupportedArchs(*mut c_int);
        fn nvrtcCreateProgram(*mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        fn nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char);
        fn nvrtcDestroyProgram(*mut nvrtcProgram);
        fn nvrtcGetCUBINSize(nvrtcProgram, *mut usize);
        fn nvrtcGetCUBIN(nvrtcProgram, *mut c_char);
        fn nvrtcGetPTXSize(nvrtcProgram, *mut usize);
        fn nvrtcGetPTX(nvrtcProgram, *mut c_char);
        fn nvrtcGetProgramLogSize(nvrtcProgram, *mut usize);
        fn nvrtcGetProgramLog(nvrtcProgram, *mut c_char);
    }
    plain {}
    optional {}
}

/// The version of a CUDA library, (13, 0) for 13.0.
pub type Version = (u32, u32);

/// A compute capability as one number: 90 for 9.0, that of H100 and H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture(pub u32);

impl Architecture {
    /// The oldest supported: it has bf16 tensor cores and asynchronous copies.
    pub const OLDEST: Self = Self(80);

    /// Returns the architecture of a compute capability.
    pub fn of((major, minor): (u32, u32)) -> Self {
        Self(major * 10 + minor)
    }

    /// Returns the generation: `sm_86` runs code for `sm_80`.
    fn generation(self) -> u32 {
        self.0 / 10
    }
}

/// The target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Machine code of an architecture, which later ones of its generation run too.
    Cubin(Architecture),
    /// Code that the driver compiles for any later architecture.
    Ptx(Architecture),
}

impl Target {
    /// Returns the best target for a device among a compiler's architectures: its own architecture,
    /// else the nearest older one of its generation, else PTX of the newest older one.
    pub fn for_device(device: Architecture, supported: &[Architecture]) -> Option<Self> {
        let older = supported.iter().copied();
        let nearest =
            older.filter(|&known| known <= device && known >= Architecture::OLDEST).max()?;
        Some(if nearest.generation() == device.generation() {
            Self::Cubin(nearest)
        } else {
            Self::Ptx(nearest)
        })
    }

    fn option(self) -> String {
        match self {
            Self::Cubin(Architecture(number)) => format!("--gpu-architecture=sm_{number}"),
            Self::Ptx(Architecture(number)) => format!("--gpu-architecture=compute_{number}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubin(Architecture(number)) => write!(f, "sm_{number}"),
            Self::Ptx(Architecture(number)) => write!(f, "compute_{number}"),
        }
    }
}

/// Returns the compiler options. No element uses `--use_fast_math`: all arithmetic is f32, and a
/// division or a square root of the optimizer must not lose precision because activations are bf16;
/// kernels use fast exponentials explicitly.
pub fn options(element: Element, target: Target) -> Vec<String> {
    vec![
        format!("-DELEMENT={}", code(element)),
        target.option(),
        "--std=c++17".into(),
        "-default-device".into(),
        // Debuggers and sanitizers then name the line of a fault.
        "--generate-line-info".into(),
        // Reports registers and spills in the log.
        "--ptxas-options=-v".into(),
    ]
}

/// The result of a compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// A cubin, or PTX with a terminating zero byte, as the driver expects.
    pub image: Vec<u8>,
    /// Warnings, and the assembler's report on each kernel (see [`usage`]).
    pub log: String,
}

/// The compiler.
pub struct Nvrtc {
    functions: Functions,
    version: Version,
    architectures: Vec<Architecture>,
    path: PathBuf,
}

impl Nvrtc {
    /// Returns the compiler of a library, or why it can't be used.
    pub(super) fn of(library: Opened) -> Result<Self, String> {
        preload_builtins(&library.path);
        let functions =
            Functions::of(&library).map_err(|name| format!("it has no function {name}"))?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the pointers outlive the calls.
        let status = unsafe {
            match (functions.nvrtcVersion)(&mut major, &mut minor) {
                0 => (functions.nvrtcGetNumSupportedArchs)(&mut count),
                status => status,
            }
        };
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the buffer holds as many numbers as the first call reported.
        let known =
            status == 0 && unsafe { (functions.nvrtcGetSupportedArchs)(numbers.as_mut_ptr()) } == 0;
        if !known {
            return Err("it doesn't report its version".into());
        }
        let unsigned = |number: c_int| u32::try_from(number).unwrap_or(0);
        Ok(Self {
            functions,
            version: (unsigned(major), unsigned(minor)),
            architectures: numbers.into_iter().map(|n| Architecture(unsigned(n))).collect(),
            path: library.path,
        })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Describes the library's file, by its whole name and size: two with one version may differ in their last number.
    pub fn build(&self) -> String {
        // The loader was given a bare name, and found the file somewhere.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let found = mapped.map(Path::new).find(|path| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&*name))
        });
        let file = found.unwrap_or(&self.path);
        let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        format!("{} {bytes}", file.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Returns the architectures that it can compile for.
    pub fn architectures(&self) -> &[Architecture] {
        &self.architectures
    }

    /// Returns the library's file, or its bare name from the system's loader.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles a program of `extern "C"` kernels; `name` appears in messages. The error for a
    /// wrong source includes the compiler's log.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        element: Element,
        target: Target,
    ) -> error::Result<Compiled> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::Failed(format!("{name} holds a zero byte")))
        };
        let (c_source, c_name) = (text(source)?, text(name)?);
        let options = options(element, target);
        let options = options.iter().map(|o| text(o)).collect::<error::Result<Vec<_>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let program = Program::new(&self.functions, &c_source, &c_name)
            .map_err(|status| self.failed(name, "read", status, ""))?;
        let count = options.len() as c_int;
        // SAFETY: the program lives until it is dropped, the options until the end of this
        // function.
        let status = unsafe {
            (self.functions.nvrtcCompileProgram)(program.handle, count, options.as_ptr())
        };
        let f = &self.functions;
        let log = program.read(f.nvrtcGetProgramLogSize, f.nvrtcGetProgramLog);
        let log = log.map_err(|status| self.failed(name, "return the log of", status, ""))?;
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0').trim();
        if status != 0 {
            return Err(self.failed(name, &format!("compile for {target}"), status, log));
        }
        let image = match target {
            Target::Cubin(_) => program.read(f.nvrtcGetCUBINSize, f.nvrtcGetCUBIN),
            Target::Ptx(_) => program.read(f.nvrtcGetPTXSize, f.nvrtcGetPTX),
        };
        let image = image.map_err(|status| self.failed(name, "return the code of", status, log))?;
        Ok(Compiled { image, log: log.into() })
    }

    fn failed(&self, name: &str, what: &str, status: u32, log: &str) -> Error {
        let (major, minor) = self.version;
        let separator = if log.is_empty() { "" } else { ":\n" };
        Error::Failed(format!(
            "NVRTC {major}.{minor} could not {what} {name} (status {status}){separator}{log}"
        ))
    }
}

/// A program of the compiler.
struct Program<'a> {
    functions: &'a Functions,
    handle: nvrtcProgram,
    /// The handle may point to the texts.
    _texts: (&'a CString, &'a CString),
}

/// A function that returns a size, and one that writes as many bytes.
type Size = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> u32;
type Bytes = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> u32;

impl<'a> Program<'a> {
    fn new(functions: &'a Functions, source: &'a CString, name: &'a CString) -> Result<Self, u32> {
        let mut handle = ptr::null_mut();
        // SAFETY: both texts are zero-terminated and outlive the program; there are no headers.
        let status = unsafe {
            (functions.nvrtcCreateProgram)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        match status {
            0 => Ok(Self { functions, handle, _texts: (source, name) }),
            status => Err(status),
        }
    }

    fn read(&self, size: Size, bytes: Bytes) -> Result<Vec<u8>, u32> {
        let mut length = 0;
        // SAFETY: the program is alive, and the pointer is valid.
        let status = unsafe { size(self.handle, &mut length) };
        if status != 0 {
            return Err(status);
        }
        let mut into = vec![0u8; length];
        // SAFETY: the buffer has the size that the library just reported.
        match unsafe { bytes(self.handle, into.as_mut_ptr().cast()) } {
            0 => Ok(into),
            status => Err(status),
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created by the same library, and destroyed once. Drop can't report a status.
        unsafe { (self.functions.nvrtcDestroyProgram)(&mut self.handle) };
    }
}

/// NVRTC opens `libnvrtc-builtins` by its bare name, which the loader finds if it is already open:
/// in a Python package it is next to NVRTC, where the loader doesn't look.
fn preload_builtins(nvrtc: &Path) {
    let Some(folder) = nvrtc.parent().filter(|_| nvrtc.is_absolute()) else {
        return;
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("libnvrtc-builtins.so.") {
            // If this fails, NVRTC reports it.
            let _ = Opened::open(&entry.path());
        }
    }
}

/// A kernel's use of a multiprocessor, from the assembler's report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    pub kernel: String,
    pub registers: u32,
    /// Bytes of local memory per thread, spills included.
    pub stack: u32,
    /// Bytes written and read because of register spills.
    pub spill_stores: u32,
    pub spill_loads: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
}

/// Returns the report on each kernel in a log of [`Nvrtc::compile`].
pub fn usage(log: &str) -> Vec<Usage> {
    let mut kernels: Vec<Usage> = Vec::new();
    let mut current = None;
    for line in log.lines() {
        let number = |unit: &str| -> Option<u32> {
            let before = &line[..line.find(unit)?];
            before.split_whitespace().next_back()?.parse().ok()
        };
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            current = Some(kernels.len());
            kernels.push(Usage {
                kernel: rest.split('\'').next().unwrap_or(rest).into(),
                ..Usage::default()
            });
        } else if let Some((_, function)) = line.split_once("Function properties for ") {
            // Functions that kernels call are reported too.
            current = kernels.iter().position(|k| k.kernel == function.trim());
        } else if let Some(kernel) = current.map(|index| &mut kernels[index]) {
            if let Some(bytes) = number(" bytes stack frame") {
                kernel.stack = bytes;
                kernel.spill_stores = number(" bytes spill stores").unwrap_or(0);
                kernel.spill_loads = number(" bytes spill loads").unwrap_or(0);
            } else if let Some((_, used)) = line.split_once("Used ") {
                let first = used.split_whitespace().next();
                kernel.registers = first.and_then(|n| n.parse().ok()).unwrap_or(0);
                kernel.shared = number(" bytes smem").unwrap_or(0);
            }
        }
    }
    kernels
}

#[cfg(test)]
mod tests;
