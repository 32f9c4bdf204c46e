use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::cuda::driver::fake::{Fake, compile};

/// Returns the error with a fake that has these macros; None without a C compiler.
fn message(macros: &[&str], visible: Option<&str>) -> Option<String> {
    let fake = Fake::new(macros)?;
    let error = fake.probe(visible).err().expect("something must be missing");
    let text = error.to_string();
    assert_eq!(Error::from(error).to_string(), text);
    fake.assert_clean();
    Some(text)
}

#[test]
fn a_gpu_is_found_with_its_libraries() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake.found();
    let properties = found.properties();
    assert_eq!(properties.name, "Fake GPU 0");
    assert_eq!((properties.capability, properties.multiprocessors), ((9, 0), 132));
    assert_eq!((properties.shared, properties.driver), (232_448, 13_000));
    // H200: 4.9 TB/s by clock and width.
    assert!((properties.bandwidth / 4.917e12 - 1.0).abs() < 1e-3, "{}", properties.bandwidth);
    let folder = fake.toolkit().join("lib64");
    let file = |name| folder.join(name).display().to_string();
    let expected = [
        "Fake GPU 0, sm_90, driver for CUDA 13.0".to_owned(),
        format!("NVRTC 13.0: {}", file("libnvrtc.so.13")),
        format!("cuBLASLt 13.0: {}", file("libcublasLt.so.13")),
    ];
    assert_eq!(found.describe(), expected);
    fake.assert_clean();
}

#[test]
fn the_first_supported_device_is_chosen() {
    let Some(fake) = Fake::new(&["COUNT=2"]) else {
        return;
    };
    let found = fake.found();
    assert_eq!((found.ordinal, &*found.properties().name), (1, "Fake GPU 1"));
}

#[test]
fn every_process_of_a_host_finds_a_gpu_of_its_own() {
    let Some(fake) = Fake::new(&["COUNT=3"]) else {
        return;
    };
    let ordinal = |place| fake.probe_at(None, Some(place)).unwrap().ordinal;
    // The first is old.
    assert_eq!([ordinal(0), ordinal(1)], [1, 2]);
    let text = fake.probe_at(None, Some(2)).err().unwrap().to_string();
    assert!(
        text.starts_with("process 2 of this host, counted from 0, has no GPU: 2 can"),
        "{text}"
    );
    let Some(own) = Fake::new(&[]) else {
        return;
    };
    assert_eq!(own.probe_at(None, Some(7)).unwrap().ordinal, 0, "the only visible one");
}

#[test]
fn without_a_driver_the_error_lists_the_search_paths() {
    let nowhere = SearchPaths::default();
    let driver = |_: &SearchPaths| nowhere.find(Library::Driver, &[], Ok);
    let missing = probe_in(&|| panic!("not asked for Python"), driver, None, None).err().unwrap();
    assert!(matches!(missing, Missing::Driver(_)));
    // On this machine, whatever it has, nothing panics.
    let here = probe().map(|found| found.describe());
    if let Err(missing @ Missing::Driver(_)) = here {
        let expected = "there is no NVIDIA driver here: libcuda.so.1 was not found (looked in the system's \
                    library path, /usr/lib/wsl/lib, /usr/lib64-nvidia, /usr/local/nvidia/lib64, \
                    /run/opengl-driver/lib)";
        assert_eq!(missing.to_string(), expected);
        let times = (0..20).map(|_| {
            let start = Instant::now();
            assert!(probe().is_err());
            start.elapsed()
        });
        assert!(times.min().unwrap() < Duration::from_millis(1));
    }
}

#[test]
fn an_old_driver_is_reported_with_its_version() {
    let expected = |version| {
        format!(
            "NVIDIA's driver is too old: it runs CUDA {version}, but 12.0 or newer is needed (driver 525 \
             or newer)"
        )
    };
    let Some(all_functions) = message(&["VERSION=11080"], None) else {
        return;
    };
    assert_eq!(all_functions, expected("11.8"));
    let few_functions = message(&["VERSION=11040", "OLD_DRIVER"], None);
    assert_eq!(few_functions.unwrap(), expected("11.4"));
}

#[test]
fn a_library_that_is_not_a_driver_is_reported_with_the_missing_function() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    if !compile("int nothing;", &[], &path) {
        return;
    }
    let driver = |_: &SearchPaths| Ok(Opened::open(&path).unwrap());
    let missing = probe_in(&SearchPaths::default, driver, None, None).err().unwrap();
    let text = missing.to_string();
    assert!(text.starts_with("NVIDIA's driver did not start: "), "{text}");
    assert!(text.ends_with("libcuda.so.1 has no function cuDriverGetVersion"), "{text}");
}

#[test]
fn a_driver_that_fails_is_reported_in_its_own_words() {
    let Some(unknown) = message(&["INIT=999"], None) else {
        return;
    };
    let expected = "NVIDIA's driver did not start: unknown error (CUDA_ERROR_UNKNOWN)";
    assert_eq!(unknown, expected);
    let mismatch = message(&["INIT=803"], None).unwrap();
    assert!(
        mismatch.contains(
            "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); the library and the kernel module have"
        )
    );
    // A status without a description in the driver.
    let stub = message(&["INIT=34"], None).unwrap();
    assert!(stub.contains("did not start: status 34; LD_LIBRARY_PATH has a linker stub"), "{stub}");
}

#[test]
fn without_a_device_the_error_says_whether_the_environment_hides_it() {
    let Some(none) = message(&["INIT=100"], None) else {
        return;
    };
    assert_eq!(none, "NVIDIA's driver finds no GPU");
    let expected = |value: &str| format!("no GPU is visible: CUDA_VISIBLE_DEVICES is {value:?}");
    assert_eq!(message(&["INIT=100"], Some("")).unwrap(), expected(""));
    assert_eq!(message(&["COUNT=0"], Some("-1")).unwrap(), expected("-1"));
}

#[test]
fn an_old_device_is_reported_by_name() {
    let Some(old) = message(&["MAJOR=7", "MINOR=5"], None) else {
        return;
    };
    let expected = "the GPU is too old: Fake GPU 0 has compute capability 7.5, but 8.0 (A100, RTX 30) or newer \
                    is needed";
    assert_eq!(old, expected);
}

#[test]
fn an_exclusively_used_device_is_distinguished_from_a_free_one() {
    let Some(taken) = message(&["MODE=3", "RETAIN=46"], None) else {
        return;
    };
    let expected = "another process uses Fake GPU 0 exclusively (compute mode \"exclusive process\"): end it, \
                    or allow sharing with `nvidia-smi -c 0`";
    assert_eq!(taken, expected);
    let prohibited = message(&["MODE=2"], None).unwrap();
    assert!(prohibited.starts_with("Fake GPU 0 runs nothing in compute mode"), "{prohibited}");
    let free = Fake::new(&["MODE=3"]).unwrap();
    assert!(free.probe(None).is_ok());
    free.assert_clean();
}

#[test]
fn a_missing_library_is_reported_with_its_package() {
    let Some(fake) = Fake::new(&["VERSION=12040"]) else {
        return;
    };
    // Only libraries of CUDA 13 exist, which this driver can't run.
    let toolkit = fake.toolkit();
    let expected = format!(
        "NVRTC for CUDA 12.4 was not found: install it with `pip install \"nvidia-cuda-nvrtc-cu12\"`, or set \
         CUDA_PATH to a toolkit (looked in {})",
        toolkit.display()
    );
    assert_eq!(fake.probe(None).err().unwrap().to_string(), expected);
    let Some(fake) = Fake::new(&[]) else { return };
    std::fs::remove_file(fake.toolkit().join("lib64/libcublasLt.so.13")).unwrap();
    let text = fake.probe(None).err().unwrap().to_string();
    let expected = "cuBLASLt for CUDA 13.0 was not found: install it with `pip install \"nvidia-cublas==13.*\"`";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn libraries_too_old_for_the_device_are_rejected_with_the_reason() {
    let macros = ["MAJOR=12", "MINOR=0", "NVRTC_MAJOR=12", "NVRTC_MINOR=4"];
    let Some(text) = message(&macros, None) else {
        return;
    };
    let reason = "libnvrtc.so.13: it belongs to CUDA 12.4, but this GPU needs 12.8 or newer)";
    assert!(text.contains("could not use ") && text.ends_with(reason), "{text}");
}

#[test]
fn a_file_that_is_not_a_library_is_rejected_with_the_loader_s_reason() {
    let Some(fake) = Fake::new(&[]) else { return };
    let file = fake.toolkit().join("lib64/libnvrtc.so.13");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "no library").unwrap();
    let text = fake.probe(None).err().unwrap().to_string();
    assert!(text.contains(&format!("could not use {}", file.display())), "{text}");
    assert!(Opened::open(Path::new(&file)).is_err());
}
