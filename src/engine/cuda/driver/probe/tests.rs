use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::cuda::driver::fake::{Fake, compile};

/// What is said with a stand-in that has these macros; None without a C compiler.
fn said(macros: &[&str], visible: Option<&str>) -> Option<String> {
    let fake = Fake::new(macros)?;
    let error = fake
        .probe(visible)
        .err()
        .expect("something must be missing");
    let said = error.to_string();
    assert_eq!(Error::from(error).to_string(), said);
    fake.assert_clean();
    Some(said)
}

#[test]
fn a_gpu_is_found_with_what_it_takes() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake
        .probe(None)
        .map_err(|missing| missing.to_string())
        .unwrap();
    let properties = found.properties();
    assert_eq!(properties.name, "Fake GPU 0");
    assert_eq!(
        (properties.capability, properties.multiprocessors),
        ((9, 0), 132)
    );
    assert_eq!((properties.shared, properties.driver), (232_448, 13_000));
    // H200: 4.9 TB/s by clock and width.
    assert!(
        (properties.bandwidth / 4.917e12 - 1.0).abs() < 1e-3,
        "{}",
        properties.bandwidth
    );
    let folder = fake.toolkit().join("lib64");
    let file = |name| folder.join(name).display().to_string();
    let told = [
        "Fake GPU 0, sm_90, driver for CUDA 13.0".to_owned(),
        format!("NVRTC 13.0: {}", file("libnvrtc.so.13")),
        format!("cuBLASLt 13.0: {}", file("libcublasLt.so.13")),
    ];
    assert_eq!(found.told(), told);
    fake.assert_clean();
}

#[test]
fn the_first_device_that_is_new_enough_is_taken() {
    let Some(fake) = Fake::new(&["COUNT=2"]) else {
        return;
    };
    let found = fake
        .probe(None)
        .map_err(|missing| missing.to_string())
        .unwrap();
    assert_eq!(
        (found.ordinal, &*found.properties().name),
        (1, "Fake GPU 1")
    );
}

#[test]
fn without_a_driver_one_sentence_says_where_it_was_looked_for() {
    let nowhere = Surroundings::default();
    let driver = |_: &Surroundings| nowhere.find(Wanted::Driver, &[], Ok);
    let missing = probe_in(&|| panic!("not asked for Python"), driver, None)
        .err()
        .unwrap();
    assert!(matches!(missing, Missing::Driver(_)));
    // The machine's own, wherever this runs: whatever it has, nothing panics.
    let here = probe().map(|found| found.told());
    if let Err(missing @ Missing::Driver(_)) = here {
        let told = "there is no NVIDIA driver here: libcuda.so.1 was not found (looked in the system's \
                    library path, /usr/lib/wsl/lib, /usr/lib64-nvidia, /usr/local/nvidia/lib64, \
                    /run/opengl-driver/lib)";
        assert_eq!(missing.to_string(), told);
        let times = (0..20).map(|_| {
            let start = Instant::now();
            assert!(probe().is_err());
            start.elapsed()
        });
        assert!(times.min().unwrap() < Duration::from_millis(1));
    }
}

#[test]
fn a_driver_that_is_too_old_is_told_by_its_version() {
    let expected = |version| {
        format!(
            "NVIDIA's driver is too old: it runs CUDA {version}, and 12.0 or newer is needed (driver 525 \
             or newer)"
        )
    };
    let Some(all_functions) = said(&["VERSION=11080"], None) else {
        return;
    };
    assert_eq!(all_functions, expected("11.8"));
    let few_functions = said(&["VERSION=11040", "OLD_DRIVER"], None);
    assert_eq!(few_functions.unwrap(), expected("11.4"));
}

#[test]
fn what_is_no_driver_is_told_by_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    if !compile("int nothing;", &[], &path) {
        return;
    }
    let driver = |_: &Surroundings| Ok(Opened::open(&path).unwrap());
    let missing = probe_in(&Surroundings::default, driver, None)
        .err()
        .unwrap();
    let told = missing.to_string();
    assert!(
        told.starts_with("NVIDIA's driver did not start: "),
        "{told}"
    );
    assert!(
        told.ends_with("libcuda.so.1 has no function cuDriverGetVersion"),
        "{told}"
    );
}

#[test]
fn a_driver_that_refuses_is_told_in_its_own_words() {
    let Some(unknown) = said(&["INIT=999"], None) else {
        return;
    };
    let told = "NVIDIA's driver did not start: unknown error (CUDA_ERROR_UNKNOWN)";
    assert_eq!(unknown, told);
    let mismatch = said(&["INIT=803"], None).unwrap();
    assert!(
        mismatch
            .contains("(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); the library and the kernel module are")
    );
    // A status that the driver has no words for.
    let stub = said(&["INIT=34"], None).unwrap();
    assert!(
        stub.contains("did not start: status 34; a stub for linking stands before"),
        "{stub}"
    );
}

#[test]
fn without_a_device_one_sentence_says_whether_the_environment_hides_it() {
    let Some(none) = said(&["INIT=100"], None) else {
        return;
    };
    assert_eq!(none, "NVIDIA's driver is here, but it sees no GPU");
    let expected = |value: &str| {
        format!(
            "no GPU may be used: CUDA_VISIBLE_DEVICES is {value:?}, which names none that is there"
        )
    };
    assert_eq!(said(&["INIT=100"], Some("")).unwrap(), expected(""));
    assert_eq!(said(&["COUNT=0"], Some("-1")).unwrap(), expected("-1"));
}

#[test]
fn a_device_that_is_too_old_is_told_by_name() {
    let Some(old) = said(&["MAJOR=7", "MINOR=5"], None) else {
        return;
    };
    let told = "the GPU is too old: Fake GPU 0 has compute capability 7.5, and 8.0 (A100, RTX 30) or newer \
                is needed";
    assert_eq!(old, told);
}

#[test]
fn a_device_that_others_hold_is_told_from_one_that_is_free() {
    let Some(taken) = said(&["MODE=3", "RETAIN=46"], None) else {
        return;
    };
    let told = "another process has Fake GPU 0 for itself (compute mode \"exclusive process\"); end it, or \
                let others in with `nvidia-smi -c 0`";
    assert_eq!(taken, told);
    let prohibited = said(&["MODE=2"], None).unwrap();
    assert!(
        prohibited.starts_with("Fake GPU 0 is set to run nothing"),
        "{prohibited}"
    );
    let free = Fake::new(&["MODE=3"]).unwrap();
    assert!(free.probe(None).is_ok());
    free.assert_clean();
}

#[test]
fn a_library_that_is_missing_is_told_with_what_mends_it() {
    let Some(fake) = Fake::new(&["VERSION=12040"]) else {
        return;
    };
    // All there is are libraries of CUDA 13, which this driver can't run.
    let toolkit = fake.toolkit();
    let told = format!(
        "NVRTC for CUDA 12.4 was not found: `pip install \"nvidia-cuda-nvrtc-cu12\"`, or CUDA_PATH set to a \
         toolkit, mends that (looked in {})",
        toolkit.display()
    );
    assert_eq!(fake.probe(None).err().unwrap().to_string(), told);
    let Some(fake) = Fake::new(&[]) else { return };
    std::fs::remove_file(fake.toolkit().join("lib64/libcublasLt.so.13")).unwrap();
    let told = fake.probe(None).err().unwrap().to_string();
    let expected = "cuBLASLt for CUDA 13.0 was not found: `pip install \"nvidia-cublas==13.*\"`";
    assert!(told.starts_with(expected), "{told}");
}

#[test]
fn libraries_that_do_not_know_the_device_are_refused_with_the_reason() {
    let macros = ["MAJOR=12", "MINOR=0", "NVRTC_MAJOR=12", "NVRTC_MINOR=4"];
    let Some(told) = said(&macros, None) else {
        return;
    };
    let reason = "libnvrtc.so.13: it is of CUDA 12.4, and this GPU needs 12.8 or newer)";
    assert!(
        told.contains("could not use ") && told.ends_with(reason),
        "{told}"
    );
}

#[test]
fn a_file_that_is_no_library_is_refused_with_the_loader_s_reason() {
    let Some(fake) = Fake::new(&[]) else { return };
    let file = fake.toolkit().join("lib64/libnvrtc.so.13");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "no library").unwrap();
    let told = fake.probe(None).err().unwrap().to_string();
    assert!(
        told.contains(&format!("could not use {}", file.display())),
        "{told}"
    );
    assert!(Opened::open(Path::new(&file)).is_err());
}
