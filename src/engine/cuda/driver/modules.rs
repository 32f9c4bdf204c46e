//! Kernels on the device: compiles them at their first launch, and launches them.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};

use super::api::{Functions, Status};
use super::cache::Cache;
use super::context::Context;
use super::nvrtc::{Architecture, Nvrtc, Target};
use super::probe::Found;
use crate::engine::cuda::device::{Argument, Element, Grid, Kernel};
use crate::engine::cuda::kernels::Source;
use crate::error::{Error, Result};

const DYNAMIC_SHARED: CUfunction_attribute =
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

/// Returns the source of a kernel.
pub(super) type Lookup = fn(&str) -> Option<&'static Source>;

/// A loaded kernel.
struct Function {
    handle: CUfunction,
    /// Bytes of each parameter, if the driver reports them (since CUDA 12.4).
    parameters: Option<Vec<usize>>,
    /// Bytes of dynamic shared memory that a launch may use without a change of its attributes.
    shared: u32,
}

/// The loaded kernels.
pub(super) struct Modules {
    context: Arc<Context>,
    nvrtc: Arc<Nvrtc>,
    cache: Cache,
    target: Target,
    lookup: Lookup,
    loaded: HashMap<(&'static str, Element), CUmodule>,
    functions: HashMap<Kernel, Function>,
    /// Arguments in the driver's format; kept for its allocation.
    values: Vec<u64>,
}

// SAFETY: modules and functions may be used from any thread with their context.
unsafe impl Send for Modules {}

impl Modules {
    pub fn new(context: Arc<Context>, found: &Found, cache: Cache, lookup: Lookup) -> Result<Self> {
        let device = Architecture::of(found.properties().capability);
        let nvrtc = found.nvrtc.clone();
        let target = Target::for_device(device, nvrtc.architectures()).ok_or_else(|| {
            let (major, minor) = nvrtc.version();
            Error::Failed(format!(
                "NVRTC {major}.{minor} knows no architecture that runs on sm_{}",
                device.0
            ))
        })?;
        Ok(Self {
            context,
            nvrtc,
            cache,
            target,
            lookup,
            loaded: HashMap::new(),
            functions: HashMap::new(),
            values: Vec::new(),
        })
    }

    /// Launches a kernel; the context must be entered.
    pub fn launch(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        let [x, y, z] = grid.blocks;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        if !self.functions.contains_key(&kernel) {
            let function = self.load(kernel)?;
            self.functions.insert(kernel, function);
        }
        // Inserted above if it was missing.
        let function = self.functions.get_mut(&kernel).expect("a loaded kernel");
        let name = kernel.name;
        if let Some(sizes) = &function.parameters {
            check_sizes(name, sizes, arguments)?;
        }
        let f = &self.context.functions;
        if grid.shared > function.shared {
            // SAFETY: the function is loaded.
            let status = unsafe {
                let bytes = i32::try_from(grid.shared).unwrap_or(i32::MAX);
                (f.cuFuncSetAttribute)(function.handle, DYNAMIC_SHARED, bytes)
            };
            let doing = format!("give {name} {} bytes of shared memory", grid.shared);
            self.context.check(status, &doing)?;
            function.shared = grid.shared;
        }
        self.values.clear();
        self.values.extend(arguments.iter().map(|&argument| word(argument)));
        let mut pointers: Vec<*mut c_void> =
            self.values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
        // SAFETY: the function is loaded in this context. The driver reads as many arguments, of as
        // many bytes each, as the kernel has parameters: this is checked above if the driver
        // reports them, and the typed launches match the source. The driver copies them before it
        // returns.
        let status = unsafe {
            (f.cuLaunchKernel)(
                function.handle,
                x,
                y,
                z,
                grid.threads,
                1,
                1,
                grid.shared,
                self.context.stream,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        let doing = format!("run {name} on {x}×{y}×{z} blocks of {} threads", grid.threads);
        self.context.check(status, &doing)
    }

    fn load(&mut self, kernel: Kernel) -> Result<Function> {
        let Kernel { name, element } = kernel;
        let source = (self.lookup)(name)
            .ok_or_else(|| Error::Failed(format!("there is no kernel {name}")))?;
        let f = self.context.functions;
        let module = match self.loaded.get(&(source.name, element)) {
            Some(&module) => module,
            None => {
                let compiled = self.cache.compiled(&self.nvrtc, source, element, self.target)?;
                let mut module = ptr::null_mut();
                // SAFETY: the image is a cubin, which contains its own length, or PTX with a zero
                // at its end; it is not needed once it is loaded.
                let status =
                    unsafe { (f.cuModuleLoadData)(&mut module, compiled.image.as_ptr().cast()) };
                let doing = format!("load {} for {}", source.name, self.target);
                self.context.check(status, &doing)?;
                self.loaded.insert((source.name, element), module);
                module
            }
        };
        let symbol = CString::new(name)
            .map_err(|_| Error::Failed(format!("{name:?} is not a kernel name")))?;
        let (mut handle, mut shared) = (ptr::null_mut(), 0);
        // SAFETY: the module is loaded; the pointers are valid.
        let status = unsafe {
            match (f.cuModuleGetFunction)(&mut handle, module, symbol.as_ptr()) {
                0 => (f.cuFuncGetAttribute)(&mut shared, DYNAMIC_SHARED, handle),
                status => status,
            }
        };
        self.context.check(status, &format!("find {name} in {}", source.name))?;
        Ok(Function {
            handle,
            parameters: parameters(&f, handle),
            shared: u32::try_from(shared).unwrap_or(0),
        })
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        let _ = self.context.synchronize();
        for (_, module) in self.loaded.drain() {
            // SAFETY: loaded here, unloaded once, and none of its kernels runs.
            unsafe { (self.context.functions.cuModuleUnload)(module) };
        }
    }
}

/// Returns the bytes of each parameter of a kernel, if the driver reports them.
fn parameters(functions: &Functions, kernel: CUfunction) -> Option<Vec<usize>> {
    let query = functions.cuFuncGetParamInfo?;
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and the pointers are valid.
        match Functions::result(unsafe { query(kernel, sizes.len(), &mut offset, &mut size) }) {
            Ok(()) => sizes.push(size),
            // No parameter has this number.
            Err(Status::INVALID_VALUE) => return Some(sizes),
            Err(_) => return None,
        }
    }
}

/// Returns the bytes of an argument.
fn size(argument: &Argument) -> usize {
    match argument {
        Argument::Address(_) => 8,
        Argument::U32(_) | Argument::F32(_) => 4,
    }
}

/// Returns an argument in the first bytes of a word, for any byte order.
fn word(argument: Argument) -> u64 {
    let half = |bytes: [u8; 4]| {
        let mut word = [0; 8];
        word[..4].copy_from_slice(&bytes);
        u64::from_ne_bytes(word)
    };
    match argument {
        Argument::Address(at) => at.0,
        Argument::U32(number) => half(number.to_ne_bytes()),
        Argument::F32(number) => half(number.to_ne_bytes()),
    }
}

/// Returns an error unless the arguments have the sizes of a kernel's parameters.
fn check_sizes(name: &str, takes: &[usize], given: &[Argument]) -> Result<()> {
    let given: Vec<usize> = given.iter().map(size).collect();
    if given != takes {
        return Err(Error::Failed(format!(
            "the kernel {name} takes arguments of {takes:?} bytes, but was given {given:?}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::device::Address;

    #[test]
    fn words_begin_with_the_argument_s_bytes() {
        let bytes = |argument| word(argument).to_ne_bytes();
        let address = Address(0x7f12_3456_789a_bcde);
        assert_eq!(bytes(Argument::Address(address)), address.0.to_ne_bytes());
        assert_eq!(bytes(Argument::U32(u32::MAX - 1))[..4], (u32::MAX - 1).to_ne_bytes());
        assert_eq!(bytes(Argument::F32(-0.1))[..4], (-0.1f32).to_ne_bytes());
    }

    #[test]
    fn arguments_of_other_sizes_are_rejected() {
        let given = [Argument::Address(Address(1)), Argument::U32(2), Argument::F32(3.0)];
        assert!(check_sizes("k", &[8, 4, 4], &given).is_ok());
        let error = check_sizes("k", &[8, 8, 4], &given).unwrap_err().to_string();
        assert_eq!(
            error,
            "the kernel k takes arguments of [8, 8, 4] bytes, but was given [8, 4, 4]"
        );
        assert!(check_sizes("k", &[8, 4], &given).is_err());
    }
}
