//! The standard input of cells: a named pipe that the session fills when a cell asks for it.
//!
//! A cell that calls `cloze::input::ask` says so. One that reads standard input in any other way
//! (`std::io::stdin().read_line`, a program that it started) is noticed by what the kernel tells of
//! its threads: one of them waits in a read of descriptor 0, and that is the pipe. Where the system does not tell, such
//! reads find the input at its end, as they would where nobody can be asked.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode as Permissions;

/// The pipe's name in the session's folder.
pub const STDIN: &str = "stdin";

/// The number of the system call `read`, where it is known.
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
    /// While it is open a reader waits; without it a reader finds the end.
    writer: Option<File>,
}

impl Input {
    /// Makes the pipe in `folder`.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join(STDIN);
        nix::unistd::mkfifo(&path, Permissions::S_IRUSR | Permissions::S_IWUSR)?;
        Ok(Self { path, writer: None })
    }

    /// Readers of a new cell wait, where it can be noticed that they do.
    pub fn begin(&mut self) -> std::io::Result<()> {
        if can_watch(std::process::id()) {
            self.attach()?;
        }
        Ok(())
    }

    /// Lets readers wait for input.
    pub fn attach(&mut self) -> std::io::Result<()> {
        if self.writer.is_none() {
            // For both ways, because without a reader an opening for writing would wait for one.
            let mut options = OpenOptions::new();
            self.writer = Some(options.read(true).write(true).open(&self.path)?);
        }
        Ok(())
    }

    /// Gives readers the input's end, until somebody attaches it again.
    pub fn detach(&mut self) {
        self.writer = None;
    }

    /// Gives a line to whoever reads.
    pub fn give(&mut self, line: &str) -> std::io::Result<()> {
        self.attach()?;
        match &mut self.writer {
            Some(writer) => writer.write_all(format!("{line}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

/// The child's end of the pipe; opening it waits for nobody.
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

/// Whether the system tells what the threads of `process` wait for.
pub fn can_watch(process: u32) -> bool {
    READ.is_some() && std::fs::read_to_string(format!("/proc/{process}/syscall")).is_ok()
}

/// Whether a thread of `process`, or of a process below it, waits in a read of the standard input
/// of the session in `folder`. What a cell starts may have an input of its own.
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

/// What makes a file the same as another: its device and its number there.
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
    fn a_reader_is_noticed_given_a_line_and_then_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut input = Input::open(folder.path()).unwrap();
        input.attach().unwrap();
        // A shell's own child waits, not the shell.
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
    fn who_does_not_read_or_reads_something_else_is_not_taken_for_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let mut input = Input::open(folder.path()).unwrap();
        input.attach().unwrap();
        let mut sleeps = Command::new("sleep");
        sleeps.arg("5").stdin(reader(folder.path()).unwrap());
        let mut own = Command::new("cat");
        own.stdin(Stdio::piped());
        for mut command in [sleeps, own] {
            let mut child = command.spawn().unwrap();
            // Time to get to its read.
            std::thread::sleep(Duration::from_millis(300));
            assert!(!waits(child.id(), folder.path()), "{command:?}");
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!waits(child.id(), folder.path()));
        }
    }
}
