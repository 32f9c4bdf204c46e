//! Finds what training on a GPU needs on this machine, or explains in one sentence what is missing.

use std::ffi::{CStr, OsString};
use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::api::{Functions, Status};
use super::cublaslt::CublasLt;
use super::library::Opened;
use super::nvrtc::{Architecture, Nvrtc, Version};
use super::search::{Library, NotFound, SearchPaths};
use crate::engine::cuda::device::Properties;
use crate::error::Error;

/// The oldest supported CUDA of a driver.
const OLDEST_DRIVER: Version = (12, 0);

/// The number of this process among those of its host that each use a GPU.
static PLACE: OnceLock<usize> = OnceLock::new();

/// Makes [`probe`] find the GPU of the process with this number among those of its host, from 0, instead of the first
/// GPU. The first call counts.
pub fn take_gpu(place: usize) {
    PLACE.get_or_init(|| place);
}

/// Everything that training on a GPU needs.
pub struct Found {
    pub(super) functions: Functions,
    /// The device's number among those that this process may use.
    pub(super) ordinal: i32,
    pub(super) nvrtc: Arc<Nvrtc>,
    pub(super) lt: CublasLt,
    properties: Properties,
}

impl Found {
    /// Returns the device's properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the compiler.
    pub fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
    }

    /// Describes what was found, one line each.
    pub fn describe(&self) -> Vec<String> {
        let p = &self.properties;
        let (major, minor) = version(p.driver);
        let (nvrtc_major, nvrtc_minor) = self.nvrtc.version();
        let (lt_major, lt_minor) = self.lt.version;
        vec![
            format!(
                "{}, sm_{}, driver for CUDA {major}.{minor}",
                p.name,
                Architecture::of(p.capability).0
            ),
            format!("NVRTC {nvrtc_major}.{nvrtc_minor}: {}", self.nvrtc.path().display()),
            format!("cuBLASLt {lt_major}.{lt_minor}: {}", self.lt.path.display()),
        ]
    }
}

/// Why training on a GPU is impossible here, as one sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No `libcuda.so.1`.
    Driver(NotFound),
    /// The driver's CUDA is older than what is supported.
    OldDriver { driver: Version },
    /// The driver could not start.
    Refused { why: String },
    /// No GPU, or none that is visible to this process.
    Device { visible: Option<String> },
    /// No supported GPU; describes the first.
    Architecture { name: String, capability: (u32, u32) },
    /// Fewer supported GPUs than processes of this host.
    TooFew { gpus: usize, place: usize },
    /// Another process uses the device exclusively.
    Taken { name: String },
    /// The device's compute mode prohibits use.
    Prohibited { name: String },
    /// The compiler or the library for products.
    Library { library: Library, driver: Version, not_found: NotFound },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(not_found) => write!(
                f,
                "there is no NVIDIA driver here: {} was not found ({not_found})",
                Library::Driver.file(0)
            ),
            Self::OldDriver { driver: (major, minor) } => {
                let (oldest, _) = OLDEST_DRIVER;
                write!(
                    f,
                    "NVIDIA's driver is too old: it runs CUDA {major}.{minor}, but {oldest}.0 or newer is \
                     needed (driver 525 or newer)"
                )
            }
            Self::Refused { why } => write!(f, "NVIDIA's driver did not start: {why}"),
            Self::Device { visible: None } => {
                write!(f, "NVIDIA's driver finds no GPU")
            }
            Self::Device { visible: Some(value) } => {
                write!(f, "no GPU is visible: CUDA_VISIBLE_DEVICES is {value:?}")
            }
            Self::Architecture { name, capability: (major, minor) } => write!(
                f,
                "the GPU is too old: {name} has compute capability {major}.{minor}, but 8.0 (A100, RTX 30) \
                 or newer is needed"
            ),
            Self::TooFew { gpus, place } => write!(
                f,
                "process {place} of this host, counted from 0, has no GPU: {gpus} can be used here; start one process \
                 for each GPU"
            ),
            Self::Taken { name } => write!(
                f,
                "another process uses {name} exclusively (compute mode \"exclusive process\"): end it, or \
                 allow sharing with `nvidia-smi -c 0`"
            ),
            Self::Prohibited { name } => write!(
                f,
                "{name} runs nothing in compute mode \"prohibited\": change it with `nvidia-smi -c 0`"
            ),
            Self::Library { library, driver: (major, minor), not_found } => write!(
                f,
                "{} for CUDA {major}.{minor} was not found: install it with `pip install \"{}{}\"`, or set \
                 CUDA_PATH to a toolkit ({not_found})",
                library.title(),
                library.wheel(),
                // Before CUDA 13 the names of packages ended with the version.
                if *major >= 13 { "==13.*" } else { "-cu12" },
            ),
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::Failed(missing.to_string())
    }
}

/// Finds a GPU and everything that training on it needs. Without a driver this takes well under a
/// millisecond; with one, the driver starts. Never panics.
pub fn probe() -> Result<Found, Missing> {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let driver = |system: &SearchPaths| system.find(Library::Driver, &[], Ok);
    probe_in(&SearchPaths::of_process, driver, visible, PLACE.get().copied())
}

/// Like [`probe`] with the given places, driver, visible devices and number of the process. Python environments are
/// searched only after the driver is found.
pub(super) fn probe_in(
    paths: &dyn Fn() -> SearchPaths,
    driver: impl FnOnce(&SearchPaths) -> Result<Opened, NotFound>,
    visible: Option<OsString>,
    place: Option<usize>,
) -> Result<Found, Missing> {
    let system = SearchPaths { system: true, ..SearchPaths::default() };
    let library = driver(&system).map_err(Missing::Driver)?;
    let functions = Functions::open(&library);
    let functions = match functions {
        Ok(functions) => functions,
        Err(name) => {
            let version = version_of(&library);
            return Err(match version {
                Some(driver) if driver < OLDEST_DRIVER => Missing::OldDriver { driver },
                _ => Missing::Refused {
                    why: format!("{} has no function {name}", library.path.display()),
                },
            });
        }
    };
    let driver = start(&functions, visible.as_deref())?;
    let (ordinal, properties) = choose(&functions, driver, visible, place)?;
    check_available(&functions, ordinal, &properties.name)?;
    // A driver runs libraries of its own major version and older ones.
    let (major, _) = version(driver);
    let majors: Vec<u32> = (OLDEST_DRIVER.0..=major.min(13)).rev().collect();
    let paths = paths();
    let oldest = needed(properties.capability);
    let missing =
        |library| move |not_found| Missing::Library { library, driver: version(driver), not_found };
    let nvrtc = paths
        .find(Library::Nvrtc, &majors, |library| {
            let nvrtc = Nvrtc::of(library)?;
            new_enough(nvrtc.version(), oldest)?;
            Ok(nvrtc)
        })
        .map_err(missing(Library::Nvrtc))?;
    let lt = paths
        .find(Library::CublasLt, &majors, |library| {
            let lt = CublasLt::of(&library)?;
            new_enough(lt.version, oldest)?;
            Ok(lt)
        })
        .map_err(missing(Library::CublasLt))?;
    Ok(Found { functions, ordinal, nvrtc: Arc::new(nvrtc), lt, properties })
}

/// Returns (13, 0) for 13000.
fn version(number: u32) -> Version {
    (number / 1000, number % 1000 / 10)
}

/// Returns the version of a driver that lacks other functions.
fn version_of(library: &Opened) -> Option<Version> {
    // SAFETY: the function has had this signature since CUDA 2.2.
    let get: unsafe extern "C" fn(*mut i32) -> u32 =
        unsafe { library.function("cuDriverGetVersion") }?;
    let mut number = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe { get(&mut number) };
    (status == 0).then_some(version(u32::try_from(number).ok()?))
}

/// Returns the oldest library version for a device: those before 12.8 don't support Blackwell.
fn needed(capability: (u32, u32)) -> Version {
    match capability.0 {
        ..10 => OLDEST_DRIVER,
        10 | 12 => (12, 8),
        _ => (13, 0),
    }
}

fn new_enough(version: Version, oldest: Version) -> Result<(), String> {
    if version >= oldest {
        return Ok(());
    }
    let ((major, minor), (least, least_minor)) = (version, oldest);
    Err(format!(
        "it belongs to CUDA {major}.{minor}, but this GPU needs {least}.{least_minor} or newer"
    ))
}

/// Starts the driver; returns its CUDA version, 13000 for 13.0.
fn start(functions: &Functions, visible: Option<&std::ffi::OsStr>) -> Result<u32, Missing> {
    let mut number = 0;
    // SAFETY: the pointer is valid, and this may be called before the driver is started.
    let status = unsafe { (functions.cuDriverGetVersion)(&mut number) };
    let driver = match (Functions::result(status), u32::try_from(number)) {
        (Ok(()), Ok(driver)) => driver,
        _ => return Err(refused(functions, Status(status))),
    };
    if version(driver) < OLDEST_DRIVER {
        return Err(Missing::OldDriver { driver: version(driver) });
    }
    // SAFETY: 0 is the only valid value of the flags.
    match Functions::result(unsafe { (functions.cuInit)(0) }) {
        Ok(()) => Ok(driver),
        Err(Status::NO_DEVICE) => Err(no_device(visible)),
        Err(status) => Err(refused(functions, status)),
    }
}

/// Explains a status of the driver's start.
fn refused(functions: &Functions, status: Status) -> Missing {
    let words = functions.words(status);
    let hint = match status {
        Status::STUB_LIBRARY => "; LD_LIBRARY_PATH has a linker stub before the driver",
        Status::SYSTEM_DRIVER_MISMATCH => {
            "; the library and the kernel module have different versions, as after an update: restart \
             the machine"
        }
        Status::COMPAT_NOT_SUPPORTED => {
            "; LD_LIBRARY_PATH has forward compatibility libraries, which this GPU does not support"
        }
        Status::SYSTEM_NOT_READY => "; is NVIDIA's fabric manager running?",
        _ => "",
    };
    Missing::Refused { why: words + hint }
}

fn no_device(visible: Option<&std::ffi::OsStr>) -> Missing {
    Missing::Device { visible: visible.map(|value| value.to_string_lossy().into_owned()) }
}

/// Returns the supported device at this place, or the first. A launcher may show each process only its own: then the
/// only one is taken.
fn choose(
    functions: &Functions,
    driver: u32,
    visible: Option<OsString>,
    place: Option<usize>,
) -> Result<(i32, Properties), Missing> {
    let mut count = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe { (functions.cuDeviceGetCount)(&mut count) };
    Functions::result(status).map_err(|status| refused(functions, status))?;
    let place = place.unwrap_or(0);
    let (mut supported, mut first) = (Vec::new(), None);
    for ordinal in 0..count {
        let properties = describe(functions, ordinal, driver)?;
        if Architecture::of(properties.capability) >= Architecture::OLDEST {
            supported.push((ordinal, properties));
            if supported.len() > place {
                break;
            }
        } else {
            first.get_or_insert(properties);
        }
    }
    let gpus = supported.len();
    if let Some(found) = supported.pop()
        && (gpus > place || gpus == 1)
    {
        return Ok(found);
    }
    Err(match first {
        _ if gpus > 0 => Missing::TooFew { gpus, place },
        Some(Properties { name, capability, .. }) => Missing::Architecture { name, capability },
        None => no_device(visible.as_deref()),
    })
}

/// Returns a device's properties.
fn describe(functions: &Functions, ordinal: i32, driver: u32) -> Result<Properties, Missing> {
    let mut device = 0;
    let mut name = [0u8; 256];
    let mut memory = 0;
    // SAFETY: the pointers are valid, and the name has the given length.
    let status = unsafe {
        match (functions.cuDeviceGet)(&mut device, ordinal) {
            0 => match (functions.cuDeviceGetName)(name.as_mut_ptr().cast(), 256, device) {
                0 => (functions.cuDeviceTotalMem_v2)(&mut memory, device),
                status => status,
            },
            status => status,
        }
    };
    Functions::result(status).map_err(|status| refused(functions, status))?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"a GPU");
    let attribute = |attribute| functions.attribute(device, attribute);
    let kilohertz = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    let bits = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    Ok(Properties {
        name: name.to_string_lossy().into_owned(),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        memory: memory as u64,
        // Two transfers per cycle.
        bandwidth: 2.0 * 1e3 * f64::from(kilohertz) * f64::from(bits) / 8.0,
        shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        driver,
    })
}

/// Returns an error if the device can't be used now. Exclusive use by another process shows only
/// when a context is requested, which takes time and is done only in that compute mode.
fn check_available(functions: &Functions, ordinal: i32, name: &str) -> Result<(), Missing> {
    let mut device = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe { (functions.cuDeviceGet)(&mut device, ordinal) };
    Functions::result(status).map_err(|status| refused(functions, status))?;
    // Values of CUcomputemode.
    const PROHIBITED: u32 = 2;
    const EXCLUSIVE_PROCESS: u32 = 3;
    let name = name.to_owned();
    match functions.attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) {
        PROHIBITED => return Err(Missing::Prohibited { name }),
        EXCLUSIVE_PROCESS => {}
        _ => return Ok(()),
    }
    let mut context = ptr::null_mut();
    // SAFETY: the pointer is valid.
    let status = unsafe { (functions.cuDevicePrimaryCtxRetain)(&mut context, device) };
    match Functions::result(status) {
        Ok(()) => {
            // SAFETY: just retained, and not used.
            unsafe { (functions.cuDevicePrimaryCtxRelease_v2)(device) };
            Ok(())
        }
        Err(Status::DEVICE_UNAVAILABLE) => Err(Missing::Taken { name }),
        Err(status) => Err(refused(functions, status)),
    }
}

#[cfg(test)]
mod tests;
