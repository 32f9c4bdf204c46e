use super::*;
use crate::engine::cuda::driver::search::{Library, NotFound, SearchPaths};

impl Nvrtc {
    /// Returns the first library for a driver of these major versions of CUDA, the newest first.
    pub fn find(paths: &SearchPaths, majors: &[u32]) -> Result<Self, NotFound> {
        paths.find(Library::Nvrtc, majors, Self::of)
    }
}

/// Returns the compiler of this machine, if it has one: `pip download nvidia-cuda-nvrtc==13.0.*` is
/// enough.
fn nvrtc() -> Option<Nvrtc> {
    let found = Nvrtc::find(&SearchPaths::of_process(), &[13, 12]);
    if let Err(missing) = &found {
        eprintln!("not tested without NVRTC: {missing}");
    }
    found.ok()
}

/// Doubles numbers of type T, whose size depends on the element.
const SOURCE: &str = r#"
#if ELEMENT == 0
typedef float T;
#else
typedef unsigned short T;
#endif
T twice(T x) { return x + x; }
extern "C" __global__ void double_all(T* x, unsigned n) {
    __shared__ float unused[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unused[threadIdx.x % 32] = i;
    __syncthreads();
    if (i < n) x[i] = twice(x[i]) + (T)unused[(i + 1) % 32];
}
extern "C" __global__ void nothing() {}
"#;

const TARGETS: [u32; 6] = [80, 86, 89, 90, 100, 120];

#[test]
fn kernels_are_compiled_for_every_architecture_and_their_registers_reported() {
    let Some(nvrtc) = nvrtc() else { return };
    for number in TARGETS {
        let target = Target::Cubin(Architecture(number));
        let mut images = Vec::new();
        for element in [Element::F32, Element::Bf16, Element::F16] {
            let compiled = nvrtc.compile("double.cu", SOURCE, element, target).unwrap();
            assert_eq!(&compiled.image[..4], b"\x7fELF", "{target}");
            let usage = usage(&compiled.log);
            let names: Vec<_> = usage.iter().map(|k| k.kernel.as_str()).collect();
            assert!(names.contains(&"double_all") && names.contains(&"nothing"), "{names:?}");
            let kernel = usage.iter().find(|k| k.kernel == "double_all").unwrap();
            assert!((4..64).contains(&kernel.registers), "{kernel:?}");
            assert_eq!((kernel.shared, kernel.spill_loads), (128, 0), "{kernel:?}");
            images.push(compiled.image);
        }
        assert_ne!(images[0], images[1], "an element must make a difference");
    }
}

#[test]
fn ptx_is_compiled_too() {
    let Some(nvrtc) = nvrtc() else { return };
    let target = Target::Ptx(Architecture(90));
    let compiled = nvrtc.compile("double.cu", SOURCE, Element::F32, target).unwrap();
    let text = String::from_utf8_lossy(&compiled.image);
    assert!(text.contains(".target sm_90") && text.contains("double_all"), "{text}");
    assert_eq!(compiled.image.last(), Some(&0));
}

#[test]
fn a_wrong_source_is_an_error_with_the_line() {
    let Some(nvrtc) = nvrtc() else { return };
    let target = Target::Cubin(Architecture(90));
    let source = "extern \"C\" __global__ void k() {\n  undeclared = 1;\n}";
    let error = nvrtc.compile("wrong.cu", source, Element::F32, target);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("compile for sm_90 wrong.cu"), "{error}");
    assert!(error.contains("wrong.cu(2): error") && error.contains("undeclared"), "{error}");
    let error = nvrtc.compile("zero.cu", "\0", Element::F32, target).unwrap_err();
    assert!(error.to_string().contains("zero byte"), "{error}");
}

#[test]
fn the_target_is_the_nearest_that_runs_on_the_device() {
    let known = [75, 80, 86, 89, 90, 100, 120].map(Architecture);
    let target = |device| Target::for_device(Architecture(device), &known);
    let cubin = |number| Some(Target::Cubin(Architecture(number)));
    assert_eq!(target(75), None, "older than the kernels");
    for own in TARGETS {
        assert_eq!(target(own), cubin(own));
    }
    assert_eq!(target(87), cubin(86));
    assert_eq!(target(103), cubin(100));
    assert_eq!(target(121), cubin(120));
    assert_eq!(target(130), Some(Target::Ptx(Architecture(120))));
    // An old compiler on a new device.
    let old = [75, 80, 86, 89, 90].map(Architecture);
    let newer = Target::for_device(Architecture(100), &old);
    assert_eq!(newer, Some(Target::Ptx(Architecture(90))));
}

#[test]
fn the_assembler_s_report_is_parsed() {
    let log = "\
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'backward' for 'sm_90'
ptxas info    : Function properties for backward
    416 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 416 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 12.345 ms
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'plain' for 'sm_90'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers, used 0 barriers, 400 bytes cmem[0]";
    let kernels = usage(log);
    let backward = Usage {
        kernel: "backward".into(),
        registers: 255,
        stack: 416,
        spill_stores: 12,
        spill_loads: 16,
        shared: 1024,
    };
    let plain = Usage { kernel: "plain".into(), registers: 9, ..Usage::default() };
    assert_eq!(kernels, [backward, plain]);
}
