//! Where CUDA's libraries may lie: with the system's loader, in a toolkit, in Python wheels.
//!
//! Python is never run. The wheels are those of the active virtual or conda environment, of the
//! `python3` that stands first on `PATH`, and of the user's own packages; PyTorch brings them, or
//! `pip install nvidia-cuda-nvrtc nvidia-cublas`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::library::Opened;

/// A library that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The driver's own, of no toolkit and no wheel.
    Driver,
    /// The compiler of kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
}

impl Wanted {
    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Driver => "NVIDIA's driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
        }
    }

    /// The file of a major version of CUDA; the driver's has the same name in all.
    pub fn file(self, major: u32) -> String {
        match self {
            Self::Driver => "libcuda.so.1".into(),
            Self::Nvrtc => format!("libnvrtc.so.{major}"),
            Self::CublasLt => format!("libcublasLt.so.{major}"),
        }
    }

    /// The wheel that holds it.
    pub fn wheel(self) -> &'static str {
        match self {
            Self::Driver => "",
            Self::Nvrtc => "nvidia-cuda-nvrtc",
            Self::CublasLt => "nvidia-cublas",
        }
    }

    /// Its folders in `site-packages`: wheels of CUDA 13 share one, older ones have one each.
    fn wheel_folders(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &[],
            Self::Nvrtc => &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
            Self::CublasLt => &["nvidia/cu13/lib", "nvidia/cublas/lib"],
        }
    }
}

/// Where drivers lie that the loader doesn't know: WSL, Colab and containers, NixOS.
const DRIVER_FOLDERS: [&str; 4] = [
    "/usr/lib/wsl/lib",
    "/usr/lib64-nvidia",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
];

/// Folders of libraries below a toolkit's.
const TOOLKIT_FOLDERS: [&str; 4] = [
    "lib64",
    "lib",
    "targets/x86_64-linux/lib",
    "targets/sbsa-linux/lib",
];

/// What a search goes by.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Whether the system's loader is asked, and the places that NVIDIA and distributions use.
    pub system: bool,
    /// Toolkits, the first first: `CUDA_PATH`, `CUDA_HOME`.
    pub toolkits: Vec<PathBuf>,
    /// Python environments, the active one first: folders that hold `lib/python3.*`.
    pub environments: Vec<PathBuf>,
    /// Folders of packages outside environments: `PYTHONPATH`.
    pub packages: Vec<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self::of_variables(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// Those that environment variables tell of.
    fn of_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).map(PathBuf::from);
        let mut toolkits: Vec<_> = ["CUDA_PATH", "CUDA_HOME"]
            .into_iter()
            .filter_map(folder)
            .collect();
        toolkits.push("/usr/local/cuda".into());
        let mut environments: Vec<_> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
            .into_iter()
            .filter_map(folder)
            .collect();
        environments.extend(
            variable("PATH")
                .into_iter()
                .flat_map(|path| of_python(&path)),
        );
        let user = folder("PYTHONUSERBASE").or_else(|| Some(folder("HOME")?.join(".local")));
        environments.extend(user);
        let packages = variable("PYTHONPATH");
        let packages = packages.iter().flat_map(std::env::split_paths);
        Self {
            system: true,
            toolkits: without_repetition(toolkits),
            environments: without_repetition(environments),
            packages: packages.collect(),
        }
    }

    /// Opens the first library, of the wanted major versions of CUDA, that `accept` makes something
    /// of. Where there is none: what was found but refused, and where was looked.
    pub(super) fn find<T>(
        &self,
        wanted: Wanted,
        majors: &[u32],
        mut accept: impl FnMut(Opened) -> Result<T, String>,
    ) -> Result<T, NotFound> {
        let mut refused = Vec::new();
        for candidate in self.candidates(wanted, majors) {
            match Opened::open(&candidate) {
                Ok(library) => match accept(library) {
                    Ok(accepted) => return Ok(accepted),
                    Err(why) => refused.push(format!("{}: {why}", candidate.display())),
                },
                // A file that is there and can't be opened is worth telling of; a name that the
                // system's loader doesn't know is not.
                Err(why) if candidate.is_absolute() => refused.push(why),
                Err(_) => {}
            }
        }
        Err(NotFound {
            refused,
            looked: self.places(wanted),
        })
    }

    /// What to try to open, in order: bare names for the loader, then files that exist.
    fn candidates(&self, wanted: Wanted, majors: &[u32]) -> Vec<PathBuf> {
        let names: Vec<String> = match wanted {
            Wanted::Driver => vec![wanted.file(0)],
            _ => majors.iter().map(|&major| wanted.file(major)).collect(),
        };
        let mut candidates = Vec::new();
        if self.system {
            candidates.extend(names.iter().map(PathBuf::from));
        }
        let folders = self.folders(wanted);
        let files = folders
            .iter()
            .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        candidates.extend(files.filter(|file| file.is_file()));
        without_repetition(candidates)
    }

    /// The folders that may hold a library, in order.
    fn folders(&self, wanted: Wanted) -> Vec<PathBuf> {
        if wanted == Wanted::Driver {
            let system = DRIVER_FOLDERS.iter().filter(|_| self.system);
            return system.map(PathBuf::from).collect();
        }
        let toolkits = self.toolkits.iter();
        let toolkits =
            toolkits.flat_map(|toolkit| TOOLKIT_FOLDERS.iter().map(|folder| toolkit.join(folder)));
        let of_environments = self.environments.iter().flat_map(|e| packages_of(e));
        let packages = of_environments.chain(self.packages.iter().cloned());
        let wheels = packages.flat_map(|packages| {
            let folders = wanted.wheel_folders().iter();
            folders.map(move |folder| packages.join(folder))
        });
        // A conda environment has its libraries beside Python's.
        let conda = self.environments.iter().map(|e| e.join("lib"));
        toolkits.chain(wheels).chain(conda).collect()
    }

    /// Where [`Surroundings::find`] looks, for people.
    fn places(&self, wanted: Wanted) -> Vec<String> {
        let told = |path: &PathBuf| path.display().to_string();
        let mut places = Vec::new();
        if self.system {
            places.push("the system's library path".to_owned());
        }
        if wanted == Wanted::Driver {
            places.extend(self.folders(wanted).iter().map(told));
            return places;
        }
        places.extend(self.toolkits.iter().map(told));
        let python = self.environments.iter().chain(&self.packages);
        places.extend(python.map(|e| format!("Python packages of {}", e.display())));
        places
    }
}

/// Why a library was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// What was found and could not be used, each with the reason.
    pub refused: Vec<String>,
    /// The places looked at.
    pub looked: Vec<String>,
}

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "looked in {}", self.looked.join(", "))?;
        if !self.refused.is_empty() {
            write!(f, "; could not use {}", self.refused.join("; "))?;
        }
        Ok(())
    }
}

/// The environments of the first `python3` of a `PATH`: the one that it is called in, and the one
/// that it belongs to, which differ in a virtual environment.
fn of_python(path: &std::ffi::OsStr) -> Vec<PathBuf> {
    let python = std::env::split_paths(path)
        .map(|folder| folder.join("python3"))
        .find(|python| python.is_file());
    let Some(python) = python else {
        return Vec::new();
    };
    let real = fs::canonicalize(&python).ok();
    let of = |python: &Path| Some(python.parent()?.parent()?.to_path_buf());
    let environments = [of(&python), real.as_deref().and_then(of)];
    let mut environments: Vec<_> = environments.into_iter().flatten().collect();
    // Debian's Python has what pip installed for all users below /usr/local.
    if environments.iter().any(|e| e == Path::new("/usr")) {
        environments.push("/usr/local".into());
    }
    environments
}

/// The folders of packages in an environment, those of the newest Python first.
fn packages_of(environment: &Path) -> Vec<PathBuf> {
    let lib = environment.join("lib");
    let entries = fs::read_dir(&lib).into_iter().flatten().flatten();
    let mut pythons: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix("python3")?;
            let minor = version.strip_prefix('.').unwrap_or("0");
            Some((minor.parse().ok()?, entry.path()))
        })
        .collect();
    pythons.sort();
    let folders = pythons.into_iter().rev().flat_map(|(_, python)| {
        ["site-packages", "dist-packages"].map(|packages| python.join(packages))
    });
    folders.collect()
}

fn without_repetition(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = std::collections::HashSet::new();
    paths
        .into_iter()
        .filter(|path| seen.insert(path.clone()))
        .collect()
}

#[cfg(test)]
mod tests;
