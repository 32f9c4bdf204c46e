//! Finds kernels in Jupyter's order: `$JUPYTER_PATH`, the user's folder, the active Python environment,
//! the system; and in the folders that `jupyter` itself adds, if it is installed.

use std::path::PathBuf;

use cloze::{Error, Result};
use jupyter_zmq_client::KernelspecDir;

/// Returns the kernelspecs with these names.
pub async fn find(names: &[String]) -> Result<Vec<KernelspecDir>> {
    let mut known = Vec::new();
    let mut folders = folders();
    for folder in &folders {
        known.extend(jupyter_zmq_client::read_kernelspec_jsons(folder).await);
    }
    if !names.iter().all(|name| named(&known, name).is_some()) {
        // It takes some time to answer, so it is asked only if a kernel is missing.
        for folder in asked().await {
            if !folders.contains(&folder) {
                known.extend(jupyter_zmq_client::read_kernelspec_jsons(&folder).await);
                folders.push(folder);
            }
        }
    }
    names
        .iter()
        .map(|name| named(&known, name).cloned().ok_or_else(|| unknown(name, &known)))
        .collect()
}

fn named<'a>(known: &'a [KernelspecDir], name: &str) -> Option<&'a KernelspecDir> {
    known.iter().find(|spec| spec.kernel_name == name)
}

fn unknown(name: &str, known: &[KernelspecDir]) -> Error {
    let mut names: Vec<&str> = known.iter().map(|spec| spec.kernel_name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    Error::Usage(if names.is_empty() {
        format!("there is no kernel `{name}`: Jupyter knows none here")
    } else {
        format!("there is no kernel `{name}`: Jupyter knows {}", names.join(", "))
    })
}

fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("JUPYTER_PATH").unwrap_or_default();
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(|prefix| PathBuf::from(prefix).join("share").join("jupyter"));
    let user = std::env::var_os("JUPYTER_DATA_DIR").filter(|value| !value.is_empty());
    let user = user.map(PathBuf::from);
    std::env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain(user.or_else(|| jupyter_zmq_client::user_data_dir().ok()))
        .chain(environments)
        .chain(jupyter_zmq_client::system_data_dirs())
        .collect()
}

/// Returns the folders that the `jupyter` on PATH names, or none if there is no such command.
async fn asked() -> Vec<PathBuf> {
    let answer = jupyter_zmq_client::ask_jupyter().await.unwrap_or_default();
    let folders = answer["data"].as_array().into_iter().flatten();
    folders.filter_map(|folder| folder.as_str().map(PathBuf::from)).collect()
}
