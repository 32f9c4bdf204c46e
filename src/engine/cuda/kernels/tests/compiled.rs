//! Compiles every kernel with NVIDIA's compiler, which needs no GPU, for every element and some architectures, and checks
//! that there is no error, no warning and no register spilling.

use std::fmt::Write;
use std::path::PathBuf;

use rayon::prelude::*;

use super::{ELEMENTS, SOURCES, Source};
use crate::engine::cuda::device::Element;
use crate::engine::cuda::driver::nvrtc::{Architecture, Nvrtc, Target, Usage, usage};
use crate::engine::cuda::driver::search::SearchPaths;

/// Those of A100 and H100. `.ci/deep kernels` names more in [`MORE`], each a minute of processor time.
const ARCHITECTURES: &str = "80,90";

/// The environment variable with architectures in place of [`ARCHITECTURES`].
const MORE: &str = "CLOZE_TEST_ARCHITECTURES";

/// Bytes of local memory that a thread may use, including spilled registers.
const LOCAL_MEMORY: u32 = 0;

/// The environment variable with the folder of the Python package nvidia-cuda-nvrtc.
const PACKAGES: &str = "CLOZE_TEST_NVRTC";

/// The environment variable with a file for the table of all kernels.
const TABLE: &str = "CLOZE_TEST_KERNELS";

/// Finds the compiler, which may be missing only if [`PACKAGES`] is not set.
fn nvrtc() -> Option<Nvrtc> {
    let majors = [13, 12];
    if let Some(packages) = std::env::var_os(PACKAGES) {
        let paths = SearchPaths { packages: vec![packages.into()], ..SearchPaths::default() };
        let found = Nvrtc::find(&paths, &majors);
        return Some(found.unwrap_or_else(|missing| panic!("{PACKAGES}: {missing}")));
    }
    let found = Nvrtc::find(&SearchPaths::of_process(), &majors);
    if let Err(missing) = &found {
        eprintln!("not tested without NVRTC, and without {PACKAGES}: {missing}");
    }
    found.ok()
}

/// A source for an element and an architecture.
type Case = (&'static Source, Element, u32);

fn compiled(nvrtc: &Nvrtc, (source, element, architecture): Case) -> Result<Vec<Usage>, String> {
    let target = Target::Cubin(Architecture(architecture));
    let compiled = nvrtc
        .compile(source.name, source.text, element, target)
        .map_err(|error| error.to_string())?;
    if compiled.log.contains("warning") {
        return Err(compiled.log);
    }
    let kernels = usage(&compiled.log);
    let missing = |name: &&str| kernels.iter().all(|kernel| kernel.kernel != *name);
    match source.kernels().find(missing) {
        None => Ok(kernels),
        Some(name) => Err(format!("the log has no {name}:\n{}", compiled.log)),
    }
}

#[test]
fn every_kernel_compiles_and_keeps_its_numbers_in_registers() {
    let Some(nvrtc) = nvrtc() else { return };
    let numbers = std::env::var(MORE).unwrap_or(ARCHITECTURES.to_owned());
    let numbers = numbers.split(',').map(|number| number.parse().expect("a number for each"));
    let known = |number: &u32| nvrtc.architectures().contains(&Architecture(*number));
    let (architectures, unknown): (Vec<u32>, Vec<u32>) = numbers.partition(known);
    let version = nvrtc.version();
    assert!(version < (13, 0) || unknown.is_empty(), "NVRTC {version:?} lacks {unknown:?}");
    let mut cases: Vec<Case> = Vec::new();
    for source in SOURCES {
        for element in ELEMENTS.into_iter().filter(|&e| source.is_for(e)) {
            cases.extend(architectures.iter().map(|&number| (source, element, number)));
        }
    }
    let results: Vec<_> = cases.par_iter().map(|&case| (case, compiled(&nvrtc, case))).collect();
    let mut table = format!(
        "{:<20} {:<24} {:>4} {:>5} {:>9} {:>8} {:>6} {:>6} {:>6}\n",
        "source", "kernel", "type", "sm", "registers", "shared", "local", "stores", "loads"
    );
    let mut wrong = String::new();
    for ((source, element, number), result) in results {
        let kernels = result.unwrap_or_else(|why| {
            let _ = writeln!(wrong, "{} {element:?} sm_{number}: {why}", source.name);
            Vec::new()
        });
        for k in kernels {
            let row = format!(
                "{:<20} {:<24} {:>4} {number:>5} {:>9} {:>8} {:>6} {:>6} {:>6}",
                source.name,
                k.kernel,
                format!("{element:?}").to_lowercase(),
                k.registers,
                k.shared,
                k.stack,
                k.spill_stores,
                k.spill_loads
            );
            let _ = writeln!(table, "{row}");
            if k.stack > LOCAL_MEMORY {
                let _ = writeln!(wrong, "more than {LOCAL_MEMORY} bytes of local memory: {row}");
            }
        }
    }
    if let Some(path) = std::env::var_os(TABLE).map(PathBuf::from) {
        std::fs::write(&path, &table).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    assert!(wrong.is_empty(), "{wrong}\n{table}");
}
