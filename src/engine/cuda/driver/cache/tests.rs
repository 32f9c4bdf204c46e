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
fn a_source_is_compiled_once_and_again_if_anything_differs() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake.found();
    let (nvrtc, folder) = (found.nvrtc(), fake.folder().join("deep/cache"));
    let cache = Cache::at(folder.clone());
    let compiled = |source, element, target| {
        let compiled = cache.compiled(nvrtc, source, element, target).unwrap();
        (compiled, fake.count("fake_compilations"))
    };
    let (first, count) = compiled(&SOURCE, Element::Bf16, TARGET);
    assert_eq!((&*first.log, count), ("compiled", 1));
    assert!(first.image.starts_with(b"-DELEMENT=1 --gpu-architecture=sm_90 "));
    assert_eq!(compiled(&SOURCE, Element::Bf16, TARGET), (first.clone(), 1));
    assert_eq!(compiled(&SOURCE, Element::F32, TARGET).1, 2);
    assert_eq!(compiled(&SOURCE, Element::Bf16, Target::Cubin(Architecture(80))).1, 3);
    assert_eq!(compiled(&SOURCE, Element::Bf16, Target::Ptx(Architecture(90))).1, 4);
    let other = Source { name: SOURCE.name, text: "other" };
    assert_eq!(compiled(&other, Element::Bf16, TARGET).1, 5);
    assert_eq!(files(&folder).len(), 5);
    // Still there.
    assert_eq!(compiled(&SOURCE, Element::Bf16, TARGET), (first, 5));
}

#[test]
fn kernels_of_another_compiler_version_are_not_reused() {
    let Some(old) = Fake::new(&[]) else { return };
    let Some(new) = Fake::new(&["NVRTC_MINOR=1"]) else {
        return;
    };
    let cache = Cache::at(old.folder().join("cache"));
    for fake in [&old, &new] {
        let found = fake.found();
        cache.compiled(found.nvrtc(), &SOURCE, Element::F32, TARGET).unwrap();
        assert_eq!(fake.count("fake_compilations"), 1);
    }
}

#[test]
fn a_damaged_file_is_recompiled() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake.found();
    let folder = fake.folder().join("cache");
    let cache = Cache::at(folder.clone());
    let compiled = || cache.compiled(found.nvrtc(), &SOURCE, Element::F32, TARGET).unwrap();
    let whole = compiled();
    let [path] = &files(&folder)[..] else { panic!("one file") };
    let bytes = fs::read(path).unwrap();
    let mut compilations = fake.count("fake_compilations");
    let mut damaged: Vec<Vec<u8>> =
        vec![vec![], bytes[..20].to_vec(), bytes[..bytes.len() - 1].to_vec()];
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
fn an_unwritable_folder_is_no_error_but_a_wrong_source_is() {
    let Some(fake) = Fake::new(&[]) else { return };
    let found = fake.found();
    let file = fake.folder().join("file");
    fs::write(&file, "").unwrap();
    for cache in [Cache::at(file.join("below")), Cache { folder: None }] {
        assert!(cache.compiled(found.nvrtc(), &SOURCE, Element::F32, TARGET).is_ok());
    }
    let wrong = Source { name: "wrong.cu", text: "#error" };
    let error = Cache::at(file).compiled(found.nvrtc(), &wrong, Element::F32, TARGET);
    let expected = "NVRTC 13.0 could not compile for sm_90 wrong.cu (status 6):\ncompiled";
    assert_eq!(error.unwrap_err().to_string(), expected);
    fake.assert_clean();
}
