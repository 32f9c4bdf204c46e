//! The process in which cells run: loads each compiled cell and calls it.
//!
//! It speaks evcxr's protocol (a line `LOAD_AND_RUN <library> <function>` on standard input for each
//! cell) and gives the user's code pipes of its own, see [`super::channel`].

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cloze::display::wire::{self, Record};
use libloading::Library;
use nix::sys::signal::Signal;

use super::channel::{COMM, CONTROL, INTERRUPT, MOVE, RUN, SAY, SKIP, STDERR, STDOUT};
use super::layout;
use super::{inherited, input};

/// Set by the session: the folder with the pipes. Makes this process the child.
pub const FOLDER_VARIABLE: &str = "CLOZE_CHILD_FOLDER";
/// Set by the session: its process number.
pub const PARENT_VARIABLE: &str = "CLOZE_CHILD_PARENT";
/// Set by evcxr for its children; programs that a cell starts must not inherit it.
const EVCXR_VARIABLE: &str = "EVCXR_IS_RUNTIME";
/// evcxr's marker for the end of a cell.
const COMPLETE: &str = "EVCXR_EXECUTION_COMPLETE";

/// The exit code of a child that can't continue, most likely because it can't load a compiled cell.
pub const CANNOT_CONTINUE: i32 = 99;
/// The beginning of its last line on standard error, which gives the reason.
pub const REASON: &str = "The cell's process cannot continue: ";

/// How often an unfinished line of a cell is flushed, and the kernel is looked for.
const INTERVAL: Duration = Duration::from_millis(50);

/// Becomes the child if the session started this process as one.
///
/// Must be the first thing in `main`: it changes the environment.
pub fn run_if_child() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
        return;
    };
    let parent = std::env::var(PARENT_VARIABLE).ok();
    for name in [FOLDER_VARIABLE, PARENT_VARIABLE, EVCXR_VARIABLE] {
        // SAFETY: `main` has just begun and no other thread exists.
        unsafe { std::env::remove_var(name) };
    }
    // SAFETY: as above.
    unsafe { inherited::apply(&folder, &[wire::TOKEN_VARIABLE]) };
    // The child ends with the kernel, even if the kernel is killed. Elsewhere `attend` sees to that.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    if parent.is_some_and(|parent| parent != nix::unistd::getppid().to_string()) {
        std::process::exit(0);
    }
    let code = match run(&folder) {
        Ok(()) => 0,
        Err(error) => {
            // If the session has gone, nobody needs the answer.
            let _ = writeln!(std::io::stderr(), "{REASON}{error}");
            CANNOT_CONTINUE
        }
    };
    std::process::exit(code);
}

fn run(folder: &Path) -> std::io::Result<()> {
    // Programs that a cell starts do not get evcxr's pipes: the copies are close-on-exec.
    let commands = BufReader::new(File::from(std::io::stdin().as_fd().try_clone_to_owned()?));
    let mut answers = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let pipes = (
        std::io::stdin().as_fd().try_clone_to_owned()?,
        std::io::stdout().as_fd().try_clone_to_owned()?,
    );
    let write = |name| OpenOptions::new().write(true).open(folder.join(name));
    let (mut stdout, mut stderr) = (write(STDOUT)?, write(STDERR)?);
    nix::unistd::dup2_stdin(input::reader(folder)?)?;
    nix::unistd::dup2_stdout(&stdout)?;
    nix::unistd::dup2_stderr(&stderr)?;

    let child = std::process::id();
    let token = wire::token().unwrap_or_default();
    let dylib_root = DylibRoot::load(&layout::libraries(folder)?).map_err(std::io::Error::other)?;
    let running = Arc::new(AtomicBool::new(false));
    let replies = listen(folder, child, pipes, dylib_root, Arc::clone(&running))?;
    attend(Arc::clone(&running), dylib_root);

    let mut variables: *mut c_void = std::ptr::null_mut();
    for (run, line) in commands.lines().enumerate() {
        let run = run as u64;
        let line = line?;
        let Some((library, function)) =
            line.strip_prefix("LOAD_AND_RUN ").and_then(|rest| rest.rsplit_once(' '))
        else {
            return Err(std::io::Error::other(format!("unknown command `{line}`")));
        };
        (dylib_root.interrupt)(false);
        // SAFETY: the library is a cell that evcxr compiled for this process; its only constructors are
        // those of Rust's standard library.
        let library = unsafe { Library::new(library) }.map_err(std::io::Error::other)?;
        // SAFETY: evcxr generates every cell's entry with exactly this signature.
        let entry = unsafe {
            library.get::<unsafe extern "C" fn(*mut c_void) -> *mut c_void>(function.as_bytes())
        }
        .map_err(std::io::Error::other)?;
        // Cells are never unloaded: variables may refer to their code, and thread-local destructors
        // run late.
        let entry = *entry;
        std::mem::forget(library);
        stdout.write_all(Record::Begin { child, run }.line(token).as_bytes())?;
        let runs = loop {
            match replies.recv() {
                Ok(Reply::Say(line)) => writeln!(answers, "{line}")?,
                Ok(Reply::Run(turn)) if turn == run => break true,
                Ok(Reply::Skip(turn)) if turn == run => break false,
                Ok(_) => {}
                // The session has gone.
                Err(_) => return Ok(()),
            }
        };
        // evcxr need not wait for the cell: the session does, and meanwhile asks evcxr for completions.
        writeln!(answers, "{COMPLETE}")?;
        if !runs {
            continue;
        }
        running.store(true, Ordering::Relaxed);
        // SAFETY: the pointer is the one that the previous cell returned, or null for the first.
        variables = unsafe { entry(variables) };
        running.store(false, Ordering::Relaxed);
        let end = Record::End { child, run }.line(token);
        dylib_root.end(&stdout, end.as_bytes())?;
        stderr.write_all(end.as_bytes())?;
    }
    Ok(())
}

/// What the session answers when a cell is loaded.
enum Reply {
    Say(String),
    Run(u64),
    Skip(u64),
}

/// Reads the control pipe on a thread of its own, so that an interrupt arrives while a cell runs.
fn listen(
    folder: &Path,
    child: u32,
    pipes: (OwnedFd, OwnedFd),
    dylib_root: DylibRoot,
    running: Arc<AtomicBool>,
) -> std::io::Result<mpsc::Receiver<Reply>> {
    let pipe = BufReader::new(File::open(folder.join(CONTROL))?);
    let variables = [
        (FOLDER_VARIABLE, folder.display().to_string()),
        (PARENT_VARIABLE, nix::unistd::getppid().to_string()),
    ];
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in pipe.lines() {
            let Ok(line) = line else { break };
            let mut words = line.splitn(3, ' ');
            if words.next() != Some(child.to_string().as_str()) {
                continue;
            }
            let (verb, rest) = (words.next(), words.next().unwrap_or_default());
            let reply = match verb {
                Some(SAY) => Reply::Say(rest.to_owned()),
                Some(RUN) => Reply::Run(rest.parse().unwrap_or_default()),
                Some(SKIP) => Reply::Skip(rest.parse().unwrap_or_default()),
                Some(INTERRUPT) => {
                    (dylib_root.interrupt)(true);
                    continue;
                }
                Some(COMM) => {
                    dylib_root.comm(rest, running.load(Ordering::Relaxed));
                    continue;
                }
                Some(MOVE) => {
                    let error = inherited::restart(&pipes, &variables);
                    cloze::note!("The cell's process cannot restart: {error}");
                    continue;
                }
                _ => continue,
            };
            if send.send(reply).is_err() {
                break;
            }
        }
    });
    Ok(receive)
}

/// Flushes unfinished lines while a cell runs, because Rust's standard output keeps them in its buffer, and kills this
/// process when the kernel has ended.
fn attend(running: Arc<AtomicBool>, dylib_root: DylibRoot) {
    let parent = nix::unistd::getppid();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(INTERVAL);
            if nix::unistd::getppid() != parent {
                // Exiting would run destructors, which may wait for the cell.
                let _ = nix::sys::signal::raise(Signal::SIGKILL);
            }
            if running.load(Ordering::Relaxed) {
                (dylib_root.flush)();
            }
        }
    });
}

/// The functions of the cells' library (see `dylib_root.rs`).
///
/// Cells share one copy of the standard library with it. This program has another copy, so only those
/// functions reach the output buffer and the panic hook of the cells.
#[derive(Clone, Copy)]
struct DylibRoot {
    flush: extern "C" fn(),
    interrupt: extern "C" fn(bool),
    end: unsafe extern "C" fn(BorrowedFd<'_>, *const u8, usize) -> bool,
    comm: unsafe extern "C" fn(*const u8, usize, bool),
}

impl DylibRoot {
    /// Loads the library, which stays loaded, and prepares this thread for running cells.
    fn load(libraries: &Path) -> Result<Self, libloading::Error> {
        // The library names its standard library, but not where that is: it must be loaded before.
        // SAFETY: its only constructors are those of every Rust program.
        std::mem::forget(unsafe { Library::new(layout::standard_library(libraries)) }?);
        // SAFETY: this is our own library, built by this session's compiler; it has no constructors.
        let library = unsafe { Library::new(layout::library(libraries)) }?;
        // SAFETY: the five functions have these signatures in `dylib_root.rs`, and the library is never
        // unloaded, so the pointers stay valid.
        let (start, found) = unsafe {
            let start = *library.get::<extern "C" fn()>(b"cloze_session_start")?;
            let found = Self {
                flush: *library.get(b"cloze_session_flush")?,
                interrupt: *library.get(b"cloze_session_interrupt")?,
                end: *library.get(b"cloze_session_end")?,
                comm: *library.get(b"cloze_session_comm")?,
            };
            (start, found)
        };
        std::mem::forget(library);
        start();
        Ok(found)
    }

    /// Passes a message of the page on to the cells' widgets.
    fn comm(&self, message: &str, cell_runs: bool) {
        // SAFETY: pointer and length are those of one string.
        unsafe { (self.comm)(message.as_ptr(), message.len(), cell_runs) };
    }

    /// Writes a cell's end mark, after what its threads are writing at this moment.
    fn end(&self, stdout: &File, mark: &[u8]) -> std::io::Result<()> {
        // SAFETY: pointer and length are those of one slice.
        let written = unsafe { (self.end)(stdout.as_fd(), mark.as_ptr(), mark.len()) };
        if written { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    }
}
