//! Kernels as shared libraries of the host: each source is compiled once per element type, when the
//! first of its kernels is launched, and stored in the user's cache under the hash of everything
//! that affects it.

use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ring::digest::{Context, SHA256};

use crate::engine::cuda::device::{Argument, Element, Grid, Kernel};
use crate::engine::cuda::kernels::{Source, code};
use crate::error::{Error, Result};
use crate::files::create_folder;

/// The emulator's files; a source includes the first.
const EMULATOR: &[(&str, &str)] = &[
    ("emulator.hpp", include_str!("emulator.hpp")),
    ("launch.hpp", include_str!("launch.hpp")),
    ("machine.hpp", include_str!("machine.hpp")),
    ("numbers.hpp", include_str!("numbers.hpp")),
    ("types.hpp", include_str!("types.hpp")),
    ("warp.hpp", include_str!("warp.hpp")),
];
const OPTIONS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-w",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    // Kernels read memory as vectors of other types, as CUDA's compilers allow.
    "-fno-strict-aliasing",
    // The fortified longjmp doesn't allow jumps between fibers.
    "-U_FORTIFY_SOURCE",
    "-DCLOZE_EMULATED=1",
];

/// Returns the C++ compiler and its version, queried once.
pub fn compiler() -> Result<&'static (OsString, String)> {
    static FOUND: OnceLock<std::result::Result<(OsString, String), String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let name = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        match Command::new(&name).arg("--version").output() {
            Ok(output) if output.status.success() => {
                Ok((name, String::from_utf8_lossy(&output.stdout).into_owned()))
            }
            Ok(output) => Err(format!("{} --version: {}", name.display(), output.status)),
            Err(error) => {
                Err(format!("emulating kernels needs a C++ compiler: {}: {error}", name.display()))
            }
        }
    });
    found.as_ref().map_err(|e| Error::Failed(e.clone()))
}

/// `cloze::Entry` of the emulator.
#[repr(C)]
struct Entry {
    name: *const c_char,
    kinds: *const c_char,
    call: *const c_void,
}

/// `cloze_launch` of the emulator.
type Launch = unsafe extern "C" fn(
    index: u32,
    blocks: *const u32,
    threads: u32,
    shared: u32,
    arguments: *mut *mut c_void,
    workers: u32,
    message: *mut c_char,
    size: usize,
) -> c_int;

/// The kernels of one source for one element type.
pub struct Library {
    /// The kinds of each kernel's arguments: see `cloze::Entry`.
    kinds: HashMap<String, (u32, Vec<u8>)>,
    launch: Launch,
    /// The library of the function.
    _loaded: libloading::Library,
}

impl Library {
    fn open(path: &Path) -> Result<Self> {
        let failed = |e| Error::file(path, format!("can't be loaded: {e}"));
        // SAFETY: this process or another of the same version compiled it, and its initialisers do
        // nothing; the signatures are the emulator's.
        unsafe {
            let loaded = libloading::Library::new(path).map_err(failed)?;
            let launch = *loaded.get::<Launch>(b"cloze_launch").map_err(failed)?;
            let entries = *loaded.get::<*const Entry>(b"cloze_entries").map_err(failed)?;
            let mut kinds = HashMap::new();
            let mut entry = entries;
            while !(*entry).name.is_null() {
                let name = CStr::from_ptr((*entry).name).to_string_lossy().into_owned();
                let of = CStr::from_ptr((*entry).kinds).to_bytes().to_vec();
                kinds.insert(name, (kinds.len() as u32, of));
                entry = entry.add(1);
            }
            Ok(Self { kinds, launch, _loaded: loaded })
        }
    }

    /// Runs a kernel to its end.
    pub fn launch(&self, name: &str, grid: Grid, arguments: &[Argument]) -> Result<()> {
        let (index, kinds) = &self.kinds[name];
        let given: Vec<u8> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Address(_) => b'p',
                Argument::U32(_) => b'u',
                Argument::F32(_) => b'f',
            })
            .collect();
        if given != *kinds {
            return Err(Error::Failed(format!(
                "kernel {name} takes {}, not {}",
                String::from_utf8_lossy(kinds),
                String::from_utf8_lossy(&given)
            )));
        }
        let mut values: Vec<u64> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Address(at) => at.0,
                Argument::U32(value) => u64::from(*value).to_le(),
                Argument::F32(value) => u64::from(value.to_bits()).to_le(),
            })
            .collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let blocks: u64 = grid.blocks.iter().map(|&n| u64::from(n)).product();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = (workers as u64).min(blocks) as u32;
        let mut message = [0u8; 512];
        // SAFETY: the arguments have the kernel's kinds, and each pointer refers to a value. The
        // kernel is responsible for its use of addresses, as on a GPU.
        let code = unsafe {
            (self.launch)(
                *index,
                grid.blocks.as_ptr(),
                grid.threads,
                grid.shared,
                pointers.as_mut_ptr(),
                workers,
                message.as_mut_ptr().cast(),
                message.len(),
            )
        };
        if code == 0 {
            return Ok(());
        }
        let end = message.iter().position(|&byte| byte == 0);
        let message = String::from_utf8_lossy(&message[..end.unwrap_or(message.len())]);
        Err(Error::Failed(message.into_owned()))
    }
}

/// Returns the source of a kernel, in tests also the emulator's own.
fn source(kernel: &str) -> Option<&'static Source> {
    #[cfg(test)]
    {
        const OWN: &Source = &Source {
            name: "tests.cu",
            text: concat!(
                "#include \"emulator.hpp\"\n#line 1 \"tests.cu\"\n",
                include_str!("tests.cu")
            ),
        };
        if OWN.kernels().any(|name| name == kernel) {
            return Some(OWN);
        }
    }
    Source::of(kernel)
}

type Loaded = HashMap<(&'static str, Element), Arc<Mutex<Option<Arc<Library>>>>>;

/// Returns the library of a kernel; compiles it if it is not in the cache.
pub fn of(kernel: Kernel) -> Result<Arc<Library>> {
    static LOADED: OnceLock<Mutex<Loaded>> = OnceLock::new();
    let source = source(kernel.name)
        .ok_or_else(|| Error::Failed(format!("there is no kernel {}", kernel.name)))?;
    let slot = LOADED
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry((source.name, kernel.element))
        .or_default()
        .clone();
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = &*slot {
        return Ok(library.clone());
    }
    let path = compiled(source, kernel.element)?;
    let library = Arc::new(Library::open(&path)?);
    *slot = Some(library.clone());
    Ok(library)
}

/// Returns the path of the compiled library in the cache.
fn compiled(source: &Source, element: Element) -> Result<PathBuf> {
    let (compiler, version) = compiler()?;
    let kernels = source.kernels();
    let entries: Vec<String> = kernels.map(|name| format!("CLOZE_ENTRY({name})")).collect();
    let text = format!("{}\nCLOZE_EMULATED_LIBRARY({})\n", source.text, entries.join(", "));
    let element = format!("-DELEMENT={}", code(element));
    let options = OPTIONS.join(" ");
    let mut hash = Context::new(&SHA256);
    let emulator = EMULATOR.iter().map(|(_, text)| *text);
    // A home folder may be shared by machines of several kinds.
    let machine = std::env::consts::ARCH;
    for part in emulator.chain([&*text, &*element, &*options, version, machine]) {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finish();
    let digest: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let stem = source.name.trim_end_matches(".cu");
    let folder = dirs::cache_dir().unwrap_or_else(std::env::temp_dir).join("cloze/emulated");
    let path = folder.join(format!("{stem}-{digest}.so"));
    if path.exists() {
        return Ok(path);
    }
    create_folder(&folder)?;
    // In the same folder, so that the file can be renamed into place.
    let work = tempfile::tempdir_in(&folder).map_err(|e| Error::io(&folder, e))?;
    for (name, text) in EMULATOR {
        write(&work.path().join(name), text)?;
    }
    write(&work.path().join("library.cpp"), &text)?;
    let output = Command::new(compiler)
        .args(OPTIONS)
        .args([&*element, "-I.", "-x", "c++", "library.cpp", "-o", "library.so"])
        .current_dir(work.path())
        .output()
        .map_err(|e| Error::io(compiler, e))?;
    if !output.status.success() {
        return Err(Error::Failed(format!(
            "{} can't be compiled for emulation:\n{}",
            source.name,
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let made = work.path().join("library.so");
    std::fs::rename(&made, &path).map_err(|e| Error::io(&path, e))?;
    Ok(path)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| Error::io(path, e))
}
