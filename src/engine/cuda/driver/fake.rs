//! Builds the fake libraries; see `fake.c` and `fake_nccl.c`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::library::Opened;
use super::probe::{Found, Missing, probe_in};
use super::search::SearchPaths;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::Source;

/// Kernels that the fake can run.
pub static SOURCE: Source = Source {
    name: "fake.cu",
    text: "
extern \"C\" __global__ void scale(T* x, u32 n, float by) {}
extern \"C\" __global__ void add_bias(u32 n, u32 width, T* x, const float* bias) {}
extern \"C\" __global__ void bias_gelu(u32 n, u32 width, const T* x, const float* bias, T* out) {}
",
};

/// A fake with its own folder and state.
pub struct Fake {
    folder: tempfile::TempDir,
    library: Opened,
}

impl Fake {
    /// Builds a fake with these macros; prints a note and returns None without a C compiler.
    pub fn new(macros: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("libcuda.so.1");
        let source = concat!(include_str!("fake.c"), include_str!("fake_nccl.c"));
        if !compile(source, macros, &driver) {
            return None;
        }
        let toolkit = folder.path().join("toolkit/lib64");
        fs::create_dir_all(&toolkit).unwrap();
        for name in ["libnvrtc.so.13", "libcublasLt.so.13", "libnccl.so.2"] {
            std::os::unix::fs::symlink(&driver, toolkit.join(name)).unwrap();
        }
        let library = Opened::open(&driver).unwrap();
        Some(Self { folder, library })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn toolkit(&self) -> PathBuf {
        self.folder().join("toolkit")
    }

    /// Probes with this driver and only its toolkit.
    pub fn probe(&self, visible: Option<&str>) -> Result<Found, Missing> {
        self.probe_at(visible, None)
    }

    /// Probes as the process with this number among those of its host.
    pub fn probe_at(&self, visible: Option<&str>, place: Option<usize>) -> Result<Found, Missing> {
        let driver = |_: &SearchPaths| Ok(self.library.clone());
        probe_in(&|| self.paths(), driver, visible.map(Into::into), place)
    }

    /// Returns the places of its libraries.
    pub fn paths(&self) -> SearchPaths {
        SearchPaths { toolkits: vec![self.toolkit()], ..SearchPaths::default() }
    }

    /// Returns what [`probe`](Self::probe) finds.
    pub fn found(&self) -> Found {
        let found = self.probe(None);
        found.unwrap_or_else(|missing| panic!("{missing}"))
    }

    /// Calls a function that returns a count.
    pub fn count(&self, function: &str) -> i32 {
        // SAFETY: all functions that begin with `fake_` take nothing and return an int.
        let function: Option<unsafe extern "C" fn() -> i32> =
            unsafe { self.library.function(function) };
        // SAFETY: as above.
        unsafe { function.unwrap()() }
    }

    /// Checks that everything was released and no call was wrong.
    pub fn assert_clean(&self) {
        assert_eq!(self.count("fake_alive"), 0, "objects that were not released");
        assert_eq!(self.count("fake_bad_calls"), 0, "wrong calls");
    }
}

/// Compiles a library; prints a note and returns false without a C compiler. Reuses earlier
/// compilations, but writes a new file each time: each file is a library with its own state.
pub fn compile(source: &str, macros: &[&str], library: &Path) -> bool {
    type Compiled = HashMap<String, Option<Vec<u8>>>;
    static COMPILED: Mutex<Option<Compiled>> = Mutex::new(None);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = compiled
        .get_or_insert_default()
        .entry(format!("{macros:?} {source}"))
        .or_insert_with(|| run_compiler(source, macros));
    let Some(bytes) = entry else {
        eprintln!("not tested without a C compiler");
        return false;
    };
    fs::write(library, bytes).unwrap();
    true
}

/// Returns a library's bytes; None without a C compiler.
fn run_compiler(source: &str, macros: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let [text, library] = ["fake.c", "fake.so"].map(|name| folder.path().join(name));
    fs::write(&text, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &text])
        .args(macros.iter().map(|name| format!("-D{name}")))
        .arg("-lm")
        .output()
        .ok()?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    Some(fs::read(&library).unwrap())
}

/// Returns values as bytes of an element.
pub fn bytes_of(values: &[f32], element: Element) -> Vec<u8> {
    let bytes = values.iter().flat_map(|&value| match element {
        Element::F32 => value.to_ne_bytes().to_vec(),
        Element::Bf16 => half::bf16::from_f32(value).to_ne_bytes().to_vec(),
        Element::F16 => half::f16::from_f32(value).to_ne_bytes().to_vec(),
    });
    bytes.collect()
}

/// Returns the values of an element's bytes.
pub fn numbers_of(bytes: &[u8], element: Element) -> Vec<f32> {
    let two = || bytes.as_chunks().0.iter().copied();
    match element {
        Element::F32 => bytes.as_chunks().0.iter().map(|&b| f32::from_ne_bytes(b)).collect(),
        Element::Bf16 => two().map(|b| half::bf16::from_ne_bytes(b).to_f32()).collect(),
        Element::F16 => two().map(|b| half::f16::from_ne_bytes(b).to_f32()).collect(),
    }
}
