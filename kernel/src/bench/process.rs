//! A kernel's process: started as Jupyter starts it, watched, measured and ended.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use cloze::{Error, Result};
use jupyter_protocol::ConnectionInfo;
use jupyter_protocol::connection_info::Transport;
use jupyter_zmq_client::KernelspecDir;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::mutex::lock;
use crate::session;

/// A running kernel; dropping it kills what is left of it.
pub struct Process {
    pub connection: ConnectionInfo,
    child: Child,
    group: Option<Pid>,
    last_words: Arc<Mutex<String>>,
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
            key: session::secret().map_err(|error| failed(&error))?,
            signature_scheme: "hmac-sha256".to_owned(),
            kernel_name: Some(spec.kernel_name.clone()),
        };
        // The folder is the user's alone, and so is the key in it.
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        let file = folder.path().join("connection.json");
        let text = serde_json::to_string(&connection).map_err(|error| failed(&error))?;
        write_private(&file, &text).map_err(|error| failed(&error))?;

        let mut command = command(spec, &file)?;
        // The kernel is to bind these ports next.
        drop(held);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let last_words = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let last_words = Arc::clone(&last_words);
            tokio::spawn(async move {
                let mut lines = BufReader::new(stderr).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if !line.trim().is_empty() {
                        *lock(&last_words) = line;
                    }
                }
            });
        }
        Ok(Self {
            connection,
            group: child.id().map(|id| Pid::from_raw(id.cast_signed())),
            child,
            last_words,
            _folder: folder,
        })
    }

    /// Waits for the process to end by itself; may be dropped and called again.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// The error that it ended, with its last line on standard error.
    pub async fn epitaph(&self, status: std::io::Result<ExitStatus>) -> Error {
        // Its last line may still be on the way.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = lock(&self.last_words);
        let words = if words.is_empty() {
            "nothing on standard error"
        } else {
            &words
        };
        Error::Failed(format!("it ended ({status}): {words}"))
    }

    /// Sends the process group the signal of Ctrl-C, as Jupyter does.
    pub fn signal_interrupt(&self) {
        if let Some(group) = self.group {
            // It may have ended, which the next answer tells.
            let _ = killpg(group, Signal::SIGINT);
        }
    }

    /// Resident memory in MiB: of the kernel's own process, and of all below it too; `None` where
    /// there is no `/proc`.
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

/// Puts variables in place of `${NAME}`, as Jupyter does; an unknown one stays as it is written.
fn expand(value: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        expanded += before;
        let known = after
            .split_once('}')
            .and_then(|(name, after)| Some((variable(name)?, after)));
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
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
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
            // The name before the bracket may hold anything.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            Some((id, parent.parse().ok()?))
        })
        .collect();
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == above)
                .map(|(id, _)| id),
        );
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
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .spawn()
            .unwrap();
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
