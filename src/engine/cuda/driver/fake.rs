//! Makes the libraries that stand in for NVIDIA's; see `fake.c`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::library::Opened;
use super::probe::{Found, Missing, probe_in};
use super::search::Surroundings;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::Source;

/// Kernels that the stand-in knows how to run.
pub static SOURCE: Source = Source {
    name: "fake.cu",
    text: "
extern \"C\" __global__ void scale(T* x, u32 n, float by) {}
extern \"C\" __global__ void add_bias(u32 n, u32 width, T* x, const float* bias) {}
extern \"C\" __global__ void bias_gelu(u32 n, u32 width, const T* x, const float* bias, T* out) {}
",
};

/// A stand-in in a folder of its own, with a state of its own.
pub struct Fake {
    folder: tempfile::TempDir,
    library: Opened,
}

impl Fake {
    /// One with these macros; None, and a word about it, where there is no C compiler.
    pub fn new(macros: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("libcuda.so.1");
        if !compile(include_str!("fake.c"), macros, &driver) {
            return None;
        }
        let toolkit = folder.path().join("toolkit/lib64");
        fs::create_dir_all(&toolkit).unwrap();
        for name in ["libnvrtc.so.13", "libcublasLt.so.13"] {
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

    /// What [`super::probe`] would say with this driver and nothing but its toolkit.
    pub fn probe(&self, visible: Option<&str>) -> Result<Found, Missing> {
        let toolkits = vec![self.toolkit()];
        let surroundings = || Surroundings {
            toolkits: toolkits.clone(),
            ..Surroundings::default()
        };
        let driver = |_: &Surroundings| Ok(self.library.clone());
        probe_in(&surroundings, driver, visible.map(Into::into))
    }

    /// What a function of the stand-in tells of it.
    pub fn count(&self, function: &str) -> i32 {
        // SAFETY: all functions that begin with `fake_` take nothing and give an int.
        let function: Option<unsafe extern "C" fn() -> i32> =
            unsafe { self.library.function(function) };
        // SAFETY: as above.
        unsafe { function.unwrap()() }
    }

    /// Everything is given back, and no call was wrong.
    pub fn assert_clean(&self) {
        assert_eq!(
            self.count("fake_alive"),
            0,
            "things that were not given back"
        );
        assert_eq!(self.count("fake_bad_calls"), 0, "calls that were wrong");
    }
}

/// Compiles a library; false, and a word about it, where there is no C compiler. What was compiled
/// before in this process is written out again: each file is a library with a state of its own.
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

/// A library's bytes; None where there is no C compiler.
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

/// Numbers as bytes of an element.
pub fn bytes_of(values: &[f32], element: Element) -> Vec<u8> {
    let bytes = values.iter().flat_map(|&value| match element {
        Element::F32 => value.to_ne_bytes().to_vec(),
        Element::Bf16 => half::bf16::from_f32(value).to_ne_bytes().to_vec(),
        Element::F16 => half::f16::from_f32(value).to_ne_bytes().to_vec(),
    });
    bytes.collect()
}

/// Bytes of an element as numbers.
pub fn numbers_of(bytes: &[u8], element: Element) -> Vec<f32> {
    let two = || bytes.as_chunks().0.iter().copied();
    match element {
        Element::F32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_ne_bytes(b))
            .collect(),
        Element::Bf16 => two()
            .map(|b| half::bf16::from_ne_bytes(b).to_f32())
            .collect(),
        Element::F16 => two()
            .map(|b| half::f16::from_ne_bytes(b).to_f32())
            .collect(),
    }
}
