//! Finds CUDA's libraries: through the system's loader, in a toolkit, in Python packages.
//!
//! Python is never run. The packages are those of the active virtual or conda environment, of the
//! first `python3` on `PATH`, and of the user; PyTorch installs them, or `pip install
//! nvidia-cuda-nvrtc nvidia-cublas`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::library::Opened;

/// A library to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The driver's library, which belongs to no toolkit and no package.
    Driver,
    /// The compiler of kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Sums over the GPUs of several processes. Its major version is not CUDA's.
    Nccl,
}

impl Library {
    /// Returns the name for messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Driver => "NVIDIA's driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Nccl => "NCCL",
        }
    }

    /// Returns the file name for a major version of CUDA; those of the driver and NCCL
    /// are the same for all.
    pub fn file(self, major: u32) -> String {
        match self {
            Self::Driver => "libcuda.so.1".into(),
            Self::Nvrtc => format!("libnvrtc.so.{major}"),
            Self::CublasLt => format!("libcublasLt.so.{major}"),
            Self::Nccl => "libnccl.so.2".into(),
        }
    }

    /// Returns the Python package that contains it.
    pub fn wheel(self) -> &'static str {
        match self {
            Self::Driver => "",
            Self::Nvrtc => "nvidia-cuda-nvrtc",
            Self::CublasLt => "nvidia-cublas",
            Self::Nccl => "nvidia-nccl",
        }
    }

    /// Returns its folders in `site-packages`: packages of CUDA 13 share one, older ones have one
    /// each.
    fn wheel_folders(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &[],
            Self::Nvrtc => &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
            Self::CublasLt => &["nvidia/cu13/lib", "nvidia/cublas/lib"],
            Self::Nccl => &["nvidia/nccl/lib"],
        }
    }
}

/// Folders of drivers that the loader doesn't search: WSL, Colab and containers, NixOS.
const DRIVER_FOLDERS: [&str; 4] =
    ["/usr/lib/wsl/lib", "/usr/lib64-nvidia", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"];

/// Folders of libraries in a toolkit.
const TOOLKIT_FOLDERS: [&str; 4] =
    ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// The places of a search.
#[derive(Debug, Clone, Default)]
pub struct SearchPaths {
    /// Whether to ask the system's loader, and to search the places that NVIDIA and distributions
    /// use.
    pub system: bool,
    /// Toolkits in order: `CUDA_PATH`, `CUDA_HOME`.
    pub toolkits: Vec<PathBuf>,
    /// Python environments, the active one first: folders that hold `lib/python3.*`.
    pub environments: Vec<PathBuf>,
    /// Folders of packages outside environments: `PYTHONPATH`.
    pub packages: Vec<PathBuf>,
}

impl SearchPaths {
    /// Returns those of this process.
    pub fn of_process() -> Self {
        Self::of_variables(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// Returns those that environment variables name.
    fn of_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).map(PathBuf::from);
        let mut toolkits: Vec<_> =
            ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(folder).collect();
        toolkits.push("/usr/local/cuda".into());
        let mut environments: Vec<_> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder).collect();
        environments.extend(variable("PATH").into_iter().flat_map(|path| of_python(&path)));
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

    /// Opens the first library of the given major versions of CUDA that `accept` accepts. The error
    /// lists the rejected libraries and the searched places.
    pub(super) fn find<T>(
        &self,
        library: Library,
        majors: &[u32],
        mut accept: impl FnMut(Opened) -> Result<T, String>,
    ) -> Result<T, NotFound> {
        let mut rejected = Vec::new();
        for candidate in self.candidates(library, majors) {
            match Opened::open(&candidate) {
                Ok(library) => match accept(library) {
                    Ok(accepted) => return Ok(accepted),
                    Err(why) => rejected.push(format!("{}: {why}", candidate.display())),
                },
                // A file that can't be opened is worth reporting; a name that the system's loader
                // doesn't know is not.
                Err(why) if candidate.is_absolute() => rejected.push(why),
                Err(_) => {}
            }
        }
        Err(NotFound { rejected, searched: self.describe(library) })
    }

    /// Returns what to open, in order: the files of a named toolkit, bare names for the loader, other files that exist.
    fn candidates(&self, library: Library, majors: &[u32]) -> Vec<PathBuf> {
        let names: Vec<String> = match library {
            Library::Driver | Library::Nccl => vec![library.file(0)],
            _ => majors.iter().map(|&major| library.file(major)).collect(),
        };
        let in_folders = |folders: &[PathBuf]| -> Vec<PathBuf> {
            let files =
                folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
            files.filter(|file| file.is_file()).collect()
        };
        // A toolkit that the user names comes before what the loader finds.
        let mut candidates = match library {
            Library::Driver => Vec::new(),
            _ => in_folders(&self.toolkit_folders()),
        };
        if self.system {
            candidates.extend(names.iter().map(PathBuf::from));
        }
        candidates.extend(in_folders(&self.folders(library)));
        without_repetition(candidates)
    }

    fn toolkit_folders(&self) -> Vec<PathBuf> {
        let of = |toolkit: &PathBuf| TOOLKIT_FOLDERS.map(|folder| toolkit.join(folder));
        self.toolkits.iter().flat_map(of).collect()
    }

    /// Returns the folders that may hold a library, in order.
    fn folders(&self, library: Library) -> Vec<PathBuf> {
        if library == Library::Driver {
            let system = DRIVER_FOLDERS.iter().filter(|_| self.system);
            return system.map(PathBuf::from).collect();
        }
        let of_environments = self.environments.iter().flat_map(|e| packages_of(e));
        let packages = of_environments.chain(self.packages.iter().cloned());
        let wheels = packages.flat_map(|packages| {
            let folders = library.wheel_folders().iter();
            folders.map(move |folder| packages.join(folder))
        });
        // A conda environment has libraries next to Python's.
        let conda = self.environments.iter().map(|e| e.join("lib"));
        self.toolkit_folders().into_iter().chain(wheels).chain(conda).collect()
    }

    /// Describes where [`SearchPaths::find`] looks.
    fn describe(&self, library: Library) -> Vec<String> {
        let display = |path: &PathBuf| path.display().to_string();
        let mut places = Vec::new();
        if self.system {
            places.push("the system's library path".to_owned());
        }
        if library == Library::Driver {
            places.extend(self.folders(library).iter().map(display));
            return places;
        }
        places.extend(self.toolkits.iter().map(display));
        let python = self.environments.iter().chain(&self.packages);
        places.extend(python.map(|e| format!("Python packages of {}", e.display())));
        places
    }
}

/// Why a library was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// Libraries that were found but rejected, each with the reason.
    pub rejected: Vec<String>,
    /// The searched places.
    pub searched: Vec<String>,
}

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "looked in {}", self.searched.join(", "))?;
        if !self.rejected.is_empty() {
            write!(f, "; could not use {}", self.rejected.join("; "))?;
        }
        Ok(())
    }
}

/// More links than lead from one Python to another; a circle of links ends there.
const LINKS: usize = 8;

/// Returns the environments of the first `python3` on a `PATH`: the one that it is called in, and those of the links
/// that lead to the program itself: that of a virtual environment is a link to another Python's, which may be one too.
fn of_python(path: &std::ffi::OsStr) -> Vec<PathBuf> {
    let python = std::env::split_paths(path)
        .map(|folder| folder.join("python3"))
        .find(|python| python.is_file());
    let Some(python) = python else {
        return Vec::new();
    };
    let target = |link: &PathBuf| {
        let target = fs::read_link(link).ok()?;
        Some(link.parent()?.join(target))
    };
    let links = std::iter::successors(Some(python.clone()), target).take(LINKS);
    let real = fs::canonicalize(&python).ok();
    let of = |python: PathBuf| Some(python.parent()?.parent()?.to_path_buf());
    let environments = links.chain(real).filter_map(of).collect();
    let mut environments = without_repetition(environments);
    // Debian's pip installs packages for all users in /usr/local.
    if environments.iter().any(|e| e == Path::new("/usr")) {
        environments.push("/usr/local".into());
    }
    environments
}

/// Returns the folders of packages in an environment, the newest Python's first.
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
    paths.into_iter().filter(|path| seen.insert(path.clone())).collect()
}

#[cfg(test)]
mod tests;
