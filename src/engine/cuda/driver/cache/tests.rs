use std::path::Path;

use super::*;
use crate::engine::cuda::driver::fake::{Fake, SOURCE};
use crate::engine::cuda::driver::nvrtc::Architecture;

const TARGET: Target = Target::Cubin(Architecture(90));

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_source_is_compiled_once_and_anew_where_anything_differs() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake
        .probe(None)
        .map_err(|missing| missing.to_string())
        .unwrap();
    let (nvrtc, folder) = (found.nvrtc(), fake.folder().join("deep/cache"));
    let cache = Cache::at(folder.clone());
    let compiled = |source, element, target| {
        let compiled = cache.compiled(nvrtc, source, element, target).unwrap();
        (compiled, fake.count("fake_compilations"))
    };
    let (first, count) = compiled(&SOURCE, Element::Bf16, TARGET);
    assert_eq!((&*first.log, count), ("compiled", 1));
    assert!(
        first
            .image
            .starts_with(b"-DELEMENT=1 --gpu-architecture=sm_90 ")
    );
    assert_eq!(compiled(&SOURCE, Element::Bf16, TARGET), (first.clone(), 1));
    assert_eq!(compiled(&SOURCE, Element::F32, TARGET).1, 2);
    assert_eq!(
        compiled(&SOURCE, Element::Bf16, Target::Cubin(Architecture(80))).1,
        3
    );
    assert_eq!(
        compiled(&SOURCE, Element::Bf16, Target::Ptx(Architecture(90))).1,
        4
    );
    let other = Source {
        name: SOURCE.name,
        text: "other",
    };
    assert_eq!(compiled(&other, Element::Bf16, TARGET).1, 5);
    assert_eq!(files(&folder).len(), 5);
    // Still there.
    assert_eq!(compiled(&SOURCE, Element::Bf16, TARGET), (first, 5));
}

#[test]
fn another_compiler_s_kernels_are_not_taken() {
    let Some(old) = Fake::new(&[]) else { return };
    let Some(new) = Fake::new(&["NVRTC_MINOR=1"]) else {
        return;
    };
    let cache = Cache::at(old.folder().join("cache"));
    for fake in [&old, &new] {
        let found = fake
            .probe(None)
            .map_err(|missing| missing.to_string())
            .unwrap();
        cache
            .compiled(found.nvrtc(), &SOURCE, Element::F32, TARGET)
            .unwrap();
        assert_eq!(fake.count("fake_compilations"), 1);
    }
}

#[test]
fn damage_anywhere_in_a_file_has_it_compiled_anew() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake
        .probe(None)
        .map_err(|missing| missing.to_string())
        .unwrap();
    let folder = fake.folder().join("cache");
    let cache = Cache::at(folder.clone());
    let compiled = || {
        cache
            .compiled(found.nvrtc(), &SOURCE, Element::F32, TARGET)
            .unwrap()
    };
    let whole = compiled();
    let [path] = &files(&folder)[..] else {
        panic!("one file")
    };
    let bytes = fs::read(path).unwrap();
    let mut compilations = fake.count("fake_compilations");
    let mut damaged: Vec<Vec<u8>> = vec![
        vec![],
        bytes[..20].to_vec(),
        bytes[..bytes.len() - 1].to_vec(),
    ];
    for place in [0, 10, 41, 50, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        damaged.push(changed);
    }
    for damage in damaged {
        fs::write(path, damage).unwrap();
        assert_eq!(compiled(), whole);
        compilations += 1;
        assert_eq!(fake.count("fake_compilations"), compilations);
        assert_eq!(fs::read(path).unwrap(), bytes, "mended");
    }
}

#[test]
fn a_folder_that_can_not_be_written_to_is_no_error_but_a_wrong_source_is() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake
        .probe(None)
        .map_err(|missing| missing.to_string())
        .unwrap();
    let file = fake.folder().join("file");
    fs::write(&file, "").unwrap();
    for cache in [Cache::at(file.join("below")), Cache { folder: None }] {
        assert!(
            cache
                .compiled(found.nvrtc(), &SOURCE, Element::F32, TARGET)
                .is_ok()
        );
    }
    let wrong = Source {
        name: "wrong.cu",
        text: "#error",
    };
    let error = Cache::at(file).compiled(found.nvrtc(), &wrong, Element::F32, TARGET);
    let told = "NVRTC 13.0 could not compile for sm_90 wrong.cu (status 6):\ncompiled";
    assert_eq!(error.unwrap_err().to_string(), told);
    fake.assert_clean();
}
