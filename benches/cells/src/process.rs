//! A kernel's process, started as Jupyter starts it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use cloze::{Error, Result};
use jupyter_protocol::ConnectionInfo;
use jupyter_protocol::connection_info::Transport;
use jupyter_zmq_client::KernelspecDir;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running kernel; dropping it kills its process group.
pub struct Process {
    pub connection: ConnectionInfo,
    child: Child,
    group: Option<Pid>,
    /// The last line on standard error.
    last_line: Arc<Mutex<String>>,
    _folder: tempfile::TempDir,
}

impl Process {
    pub async fn start(spec: &KernelspecDir) -> Result<Self> {
        let failed =
            |error: &dyn std::fmt::Display| Error::Failed(format!("cannot start: {error}"));
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (ports, held) = jupyter_zmq_client::peek_ports_with_listeners(ip, 5)
            .await
            .map_err(|error| failed(&error))?;
        let [shell_port, iopub_port, stdin_port, control_port, hb_port] = ports[..] else {
            return Err(failed(&"no free ports"));
        };
        let connection = ConnectionInfo {
            ip: ip.to_string(),
            transport: Transport::TCP,
            shell_port,
            iopub_port,
            stdin_port,
            control_port,
            hb_port,
            // The standard library's random keys come from the system.
            key: format!("{:016x}", RandomState::new().build_hasher().finish()),
            signature_scheme: "hmac-sha256".to_owned(),
            kernel_name: Some(spec.kernel_name.clone()),
        };
        // Only the user can open this folder, and so the file with the key.
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        let file = folder.path().join("connection.json");
        let text = serde_json::to_string(&connection).map_err(|error| failed(&error))?;
        write_private(&file, &text).map_err(|error| failed(&error))?;

        let mut command = command(spec, &file)?;
        // The kernel will bind these ports.
        drop(held);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let last_line = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let last_line = Arc::clone(&last_line);
            tokio::spawn(async move {
                let mut lines = BufReader::new(stderr).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if !line.trim().is_empty() {
                        *last_line.lock().unwrap_or_else(PoisonError::into_inner) = line;
                    }
                }
            });
        }
        Ok(Self {
            connection,
            group: child.id().map(|id| Pid::from_raw(id.cast_signed())),
            child,
            last_line,
            _folder: folder,
        })
    }

    /// Waits for the process to end by itself; may be cancelled and called again.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Returns the error of a kernel that has ended, with its last line on standard error.
    pub async fn end_error(&self, status: std::io::Result<ExitStatus>) -> Error {
        // The last line may not have arrived yet.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match line.as_str() {
            "" => "nothing on standard error",
            line => line,
        };
        Error::Failed(format!("it ended ({status}): {line}"))
    }

    /// Sends the process group the signal of Ctrl-C, as Jupyter does.
    pub fn signal_interrupt(&self) {
        if let Some(group) = self.group {
            // It may have ended, which the next reply reports.
            let _ = killpg(group, Signal::SIGINT);
        }
    }

    /// Returns the resident memory in MiB of the kernel's own process, and the sum with all processes below
    /// it. `None` on systems without `/proc`.
    pub fn memory(&self) -> Option<(f64, f64)> {
        let kernel = self.child.id()?;
        let own = resident(kernel)?;
        let below: f64 = descendants(kernel).into_iter().filter_map(resident).sum();
        Some((own, own + below))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?
        .write_all(text.as_bytes())
}

fn command(spec: &KernelspecDir, connection_file: &Path) -> Result<Command> {
    let fill = |argument: &String| {
        argument
            .replace("{connection_file}", &connection_file.display().to_string())
            .replace("{resource_dir}", &spec.path.display().to_string())
    };
    let mut arguments = spec.kernelspec.argv.iter().map(fill);
    let program = arguments
        .next()
        .ok_or_else(|| Error::Failed("its kernelspec has an empty `argv`".to_owned()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("JPY_PARENT_PID", std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0);
    for (name, value) in spec.kernelspec.env.iter().flatten() {
        command.env(name, expand(value, |name| std::env::var(name).ok()));
    }
    Ok(command)
}

/// Replaces `${NAME}` by the variable's value, as Jupyter does; an unknown name stays.
fn expand(value: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        expanded += before;
        let known = after.split_once('}').and_then(|(name, after)| Some((variable(name)?, after)));
        rest = match known {
            Some((value, after)) => {
                expanded += &value;
                after
            }
            None => {
                expanded += "${";
                after
            }
        };
    }
    expanded + rest
}

fn resident(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn descendants(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let folder: PathBuf = entry.ok()?.path();
            let id = folder.file_name()?.to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
            // The program's name before the bracket may contain anything.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            Some((id, parent.parse().ok()?))
        })
        .collect();
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(id, _)| id));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_kernelspec_are_filled_in() {
        let known = |name: &str| (name == "PATH").then(|| "/bin".to_owned());
        assert_eq!(expand("/rust:${PATH}", known), "/rust:/bin");
        assert_eq!(expand("${PATH}${HOLE}$x", known), "/bin${HOLE}$x");
        assert_eq!(expand("${PATH", known), "${PATH");
    }

    #[test]
    fn children_of_children_are_counted() {
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sleep 30 & wait"]).spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while descendants(shell.id()).is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let below = descendants(shell.id());
        assert_eq!(below.len(), 1);
        assert!(descendants(std::process::id()).contains(&below[0]));
        assert!(resident(std::process::id()).unwrap() > 1.0);
        nix::sys::signal::kill(Pid::from_raw(below[0].cast_signed()), Signal::SIGKILL).unwrap();
        shell.wait().unwrap();
    }
}
