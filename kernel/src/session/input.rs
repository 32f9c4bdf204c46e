//! The standard input of cells: a named pipe that the session fills when a cell asks for input.
//!
//! `cloze::input::ask` sends a record. A cell that reads standard input in any other way
//! (`std::io::stdin().read_line`, a program that it started) is detected through `/proc`: one of its
//! threads waits in a read of descriptor 0, which is the pipe. On systems without this information, such as macOS, which
//! reports that a thread waits but not for what, these reads find the end of the input, as they do if the front end
//! cannot ask.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode as Permissions;

/// The pipe's name in the session's folder.
pub const STDIN: &str = "stdin";

/// The number of the system call `read`, if it is known.
const READ: Option<&str> = if !cfg!(target_os = "linux") {
    None
} else if cfg!(target_arch = "x86_64") {
    Some("0")
} else if cfg!(target_arch = "aarch64") {
    Some("63")
} else {
    None
};

/// The session's end of the pipe.
pub struct Input {
    path: PathBuf,
    /// While it is open, a reader waits; without it a reader finds the end.
    writer: Option<File>,
}

impl Input {
    /// Creates the pipe in `folder`.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join(STDIN);
        nix::unistd::mkfifo(&path, Permissions::S_IRUSR | Permissions::S_IWUSR)?;
        Ok(Self { path, writer: None })
    }

    /// Lets readers of a new cell wait, if the session can detect that.
    pub fn begin(&mut self) -> std::io::Result<()> {
        if can_watch(std::process::id()) {
            self.attach()?;
        }
        Ok(())
    }

    /// Lets readers wait for input.
    pub fn attach(&mut self) -> std::io::Result<()> {
        if self.writer.is_none() {
            // Opened for reading too, because opening for writing alone would wait for a reader.
            let mut options = OpenOptions::new();
            self.writer = Some(options.read(true).write(true).open(&self.path)?);
        }
        Ok(())
    }

    /// Lets readers find the end, until the next `attach`.
    pub fn detach(&mut self) {
        self.writer = None;
    }

    /// Writes a line for the reader.
    pub fn give(&mut self, line: &str) -> std::io::Result<()> {
        self.attach()?;
        match &mut self.writer {
            Some(writer) => writer.write_all(format!("{line}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

/// Opens the child's end of the pipe, without waiting for a writer.
pub fn reader(folder: &Path) -> std::io::Result<File> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::os::unix::fs::OpenOptionsExt;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(folder.join(STDIN))?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

/// Returns whether the system reports what the threads of `process` wait for.
pub fn can_watch(process: u32) -> bool {
    READ.is_some() && std::fs::read_to_string(format!("/proc/{process}/syscall")).is_ok()
}

/// Returns whether a thread of `process`, or of a process below it, waits in a read of the standard
/// input of the session in `folder`. A program that a cell starts may have another standard input.
pub fn waits(process: u32, folder: &Path) -> bool {
    identity(&folder.join(STDIN)).is_some_and(|pipe| reads(process, pipe))
}

fn reads(process: u32, pipe: (u64, u64)) -> bool {
    let Some(read) = READ else {
        return false;
    };
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let path = |name| thread.path().join(name);
        let text = |name| std::fs::read_to_string(path(name)).unwrap_or_default();
        let call = text("syscall");
        let mut words = call.split(' ');
        if words.next() == Some(read)
            && words.next() == Some("0x0")
            && identity(&path("fd/0")) == Some(pipe)
        {
            return true;
        }
        let children = text("children");
        let mut children = children.split_whitespace();
        children.any(|child| child.parse().is_ok_and(|child| reads(child, pipe)))
    })
}

/// Identifies a file by its device and its inode.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let of = std::fs::metadata(path).ok()?;
    Some((of.dev(), of.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn soon(mut holds: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if holds() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn a_reader_is_detected_and_gets_a_line_and_then_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut input = Input::open(folder.path()).unwrap();
        input.attach().unwrap();
        // Not the shell waits, but its child.
        let mut command = Command::new("sh");
        command.args(["-c", "cat; exit"]);
        command.stdin(reader(folder.path()).unwrap());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        if can_watch(child.id()) {
            assert!(soon(|| waits(child.id(), folder.path())));
        }
        input.give("one line").unwrap();
        if can_watch(child.id()) {
            assert!(soon(|| waits(child.id(), folder.path())));
        }
        input.detach();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"one line\n");
    }

    #[test]
    fn a_process_that_does_not_read_or_reads_another_input_is_no_reader() {
        let folder = tempfile::tempdir().unwrap();
        let mut input = Input::open(folder.path()).unwrap();
        input.attach().unwrap();
        let mut sleeps = Command::new("sleep");
        sleeps.arg("5").stdin(reader(folder.path()).unwrap());
        let mut own = Command::new("cat");
        own.stdin(Stdio::piped());
        for mut command in [sleeps, own] {
            let mut child = command.spawn().unwrap();
            // Time to reach its read.
            std::thread::sleep(Duration::from_millis(300));
            assert!(!waits(child.id(), folder.path()), "{command:?}");
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!waits(child.id(), folder.path()));
        }
    }
}
