use super::*;

/// Creates an empty file and its folders.
fn touch(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
}

fn search_paths(variables: &[(&str, &Path)]) -> SearchPaths {
    let of = |name: &str| {
        let value = variables.iter().find(|(variable, _)| *variable == name);
        value.map(|(_, value)| value.as_os_str().to_owned())
    };
    SearchPaths {
        // Without this machine's own, which would mix with the test's.
        toolkits: Vec::new(),
        system: false,
        ..SearchPaths::of_variables(&of)
    }
}

#[test]
fn every_layout_of_packages_is_searched() {
    let home = tempfile::tempdir().unwrap();
    let venv = home.path().join("venv");
    let packages = venv.join("lib/python3.12/site-packages");
    let nvrtc = [
        "nvidia/cu13/lib/libnvrtc.so.13",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.13",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    ];
    let lt = ["nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12"];
    for file in nvrtc.iter().chain(&lt) {
        touch(&packages.join(file));
    }
    let found = search_paths(&[("VIRTUAL_ENV", &venv)]);
    let in_packages =
        |files: &[&str]| -> Vec<PathBuf> { files.iter().map(|file| packages.join(file)).collect() };
    assert_eq!(found.candidates(Library::Nvrtc, &[13, 12]), in_packages(&nvrtc));
    assert_eq!(found.candidates(Library::Nvrtc, &[12]), in_packages(&nvrtc[2..]));
    assert_eq!(found.candidates(Library::CublasLt, &[13, 12]), in_packages(&lt));
    assert_eq!(found.candidates(Library::CublasLt, &[12]), in_packages(&lt[1..]));
}

#[test]
fn a_toolkit_comes_before_packages_and_the_active_environment_before_others() {
    let home = tempfile::tempdir().unwrap();
    let at = |folder: &str| home.path().join(folder);
    let file = "nvidia/cu13/lib/libnvrtc.so.13";
    let [venv, conda, user] = [
        at("venv/lib/python3.9/site-packages"),
        at("conda/lib/python3.13/site-packages"),
        at("home/.local/lib/python3.12/site-packages"),
    ];
    for packages in [&venv, &conda, &user, &at("extra")] {
        touch(&packages.join(file));
    }
    // The newest Python of an environment comes first, and 3.13 is newer than 3.9.
    let newer = at("venv/lib/python3.13/site-packages");
    touch(&newer.join(file));
    let toolkit = at("toolkit/targets/x86_64-linux/lib/libnvrtc.so.13");
    touch(&toolkit);
    let beside_python = at("conda/lib/libnvrtc.so.13");
    touch(&beside_python);
    let found = search_paths(&[
        ("VIRTUAL_ENV", &at("venv")),
        ("CONDA_PREFIX", &at("conda")),
        ("HOME", &at("home")),
        ("PYTHONPATH", &at("extra")),
    ]);
    let found = SearchPaths { toolkits: vec![at("toolkit")], ..found };
    let packages = [newer, venv, conda, user, at("extra")].map(|packages| packages.join(file));
    let expected = [&[toolkit][..], &packages, &[beside_python]].concat();
    assert_eq!(found.candidates(Library::Nvrtc, &[13, 12]), expected);
    let missing = found.find(Library::CublasLt, &[13], Ok).err().unwrap();
    let place = |folder| at(folder).display().to_string();
    let searched = [
        place("toolkit"),
        format!("Python packages of {}", place("venv")),
        format!("Python packages of {}", place("conda")),
        format!("Python packages of {}", place("home/.local")),
        format!("Python packages of {}", place("extra")),
    ];
    assert_eq!((missing.searched, missing.rejected), (searched.to_vec(), vec![]));
}

#[test]
fn the_environment_of_the_first_python_is_found_without_running_it() {
    let home = tempfile::tempdir().unwrap();
    let at = |folder: &str| home.path().join(folder);
    // A virtual environment's Python is a link to the system's.
    touch(&at("system/bin/python3.12"));
    fs::create_dir_all(at("venv/bin")).unwrap();
    std::os::unix::fs::symlink(at("system/bin/python3.12"), at("venv/bin/python3")).unwrap();
    touch(&at("later/bin/python3"));
    fs::create_dir_all(at("empty")).unwrap();
    let path = std::env::join_paths([at("empty"), at("venv/bin"), at("later/bin")]).unwrap();
    let real = fs::canonicalize(at("system")).unwrap();
    assert_eq!(of_python(&path), [at("venv"), real]);
    assert_eq!(of_python(at("empty").as_os_str()), Vec::<PathBuf>::new());
}

#[test]
fn a_named_toolkit_comes_before_the_system_s_loader_and_majors_in_order() {
    let system = SearchPaths { system: true, ..SearchPaths::default() };
    let names = |library, majors: &[u32]| system.candidates(library, majors);
    let expected = ["libnvrtc.so.13", "libnvrtc.so.12"].map(PathBuf::from);
    assert_eq!(names(Library::Nvrtc, &[13, 12]), expected);
    assert_eq!(names(Library::Driver, &[])[0], Path::new("libcuda.so.1"));
    let folder = tempfile::tempdir().unwrap();
    let toolkit = folder.path().join(TOOLKIT_FOLDERS[0]);
    fs::create_dir_all(&toolkit).unwrap();
    fs::write(toolkit.join("libnvrtc.so.12"), "").unwrap();
    let toolkits = vec![folder.path().to_path_buf()];
    let named = SearchPaths { system: true, toolkits, ..SearchPaths::default() };
    let found = named.candidates(Library::Nvrtc, &[13, 12]);
    assert_eq!(found, [&[toolkit.join("libnvrtc.so.12")], &expected[..]].concat());
    let process = SearchPaths::of_process();
    assert!(process.system && process.toolkits.contains(&"/usr/local/cuda".into()));
}
