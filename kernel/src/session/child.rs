//! The process in which cells run: loads each compiled cell and calls it.
//!
//! It speaks evcxr's protocol (one `LOAD_AND_RUN <library> <function>` a line on standard input)
//! and gives the user's code pipes of its own, see [`super::channel`].

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cloze::display::wire::{self, Record};
use libloading::Library;
use nix::sys::signal::Signal;

use super::channel::{CONTROL, DONE, INTERRUPT, MOVE, SAY, STDERR, STDOUT};
use super::{input, surroundings};
use crate::mutex::lock;

/// Set by the session: the folder with the pipes. Makes this binary the child.
pub const FOLDER_VARIABLE: &str = "CLOZE_CHILD_FOLDER";
/// Set by the session: its process number.
pub const PARENT_VARIABLE: &str = "CLOZE_CHILD_PARENT";
/// Set by evcxr for its children; must not reach what a cell starts.
const EVCXR_VARIABLE: &str = "EVCXR_IS_RUNTIME";
/// evcxr's word for the end of a cell.
const COMPLETE: &str = "EVCXR_EXECUTION_COMPLETE";

/// The exit code of a child that can't do its work, most likely because a compiled cell can't be
/// loaded.
pub const CANNOT_GO_ON: i32 = 99;
/// With this it begins to say why, on standard error.
pub const WHY: &str = "The cell's process cannot go on: ";

/// How often a cell's unfinished line is passed on.
const FLUSH_EVERY: Duration = Duration::from_millis(50);

/// Becomes the child where the session started this process as one.
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
    unsafe { surroundings::take_over(&folder, &[wire::TOKEN_VARIABLE]) };
    // The kernel and its child end together, even where the kernel is killed.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    if parent.is_some_and(|parent| parent != nix::unistd::getppid().to_string()) {
        std::process::exit(0);
    }
    let code = match run(&folder) {
        Ok(()) => 0,
        Err(error) => {
            // The session reads it; if it is gone there is nobody to answer.
            let _ = writeln!(std::io::stderr(), "{WHY}{error}");
            CANNOT_GO_ON
        }
    };
    std::process::exit(code);
}

fn run(folder: &Path) -> std::io::Result<()> {
    // evcxr's ends move out of the way and stay out of what a cell starts (both are close-on-exec).
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
    let umbrella = Arc::new(Umbrella::new(folder));
    let acknowledged = listen(folder, child, pipes, Arc::clone(&umbrella))?;
    let running = Arc::new(AtomicBool::new(false));
    flush_regularly(Arc::clone(&running), Arc::clone(&umbrella));

    let mut variables: *mut c_void = std::ptr::null_mut();
    for (run, line) in commands.lines().enumerate() {
        let run = run as u64;
        let line = line?;
        let Some((library, function)) = line
            .strip_prefix("LOAD_AND_RUN ")
            .and_then(|rest| rest.rsplit_once(' '))
        else {
            return Err(std::io::Error::other(format!("unknown command `{line}`")));
        };
        umbrella.load();
        umbrella.interrupt(false);
        // SAFETY: the library is a cell that evcxr compiled for this process; its constructors are
        // those of Rust's standard library.
        let library = unsafe { Library::new(library) }.map_err(std::io::Error::other)?;
        // SAFETY: evcxr generates every cell's entry with exactly this signature.
        let entry = unsafe {
            library.get::<unsafe extern "C" fn(*mut c_void) -> *mut c_void>(function.as_bytes())
        }
        .map_err(std::io::Error::other)?;
        stdout.write_all(Record::Begin { child }.line(token).as_bytes())?;
        running.store(true, Ordering::Relaxed);
        // SAFETY: the pointer is the one that the cell before returned, or null for the first.
        variables = unsafe { entry(variables) };
        running.store(false, Ordering::Relaxed);
        // Variables may hold code of this library, and thread-local destructors run late: cells
        // are never unloaded.
        std::mem::forget(library);
        umbrella.load();
        let end = Record::End { child, run }.line(token);
        umbrella.end(&mut stdout, end.as_bytes())?;
        stderr.write_all(end.as_bytes())?;
        // The session has gone where its end of the pipe has.
        while let Ok(word) = acknowledged.recv() {
            match word {
                Word::Say(line) => writeln!(answers, "{line}")?,
                Word::Done(done) if done == run => break,
                Word::Done(_) => {}
            }
        }
        writeln!(answers, "{COMPLETE}")?;
    }
    Ok(())
}

enum Word {
    Say(String),
    Done(u64),
}

/// Reads the control pipe on a thread of its own, so that an interrupt is heard while a cell runs.
fn listen(
    folder: &Path,
    child: u32,
    pipes: (OwnedFd, OwnedFd),
    umbrella: Arc<Umbrella>,
) -> std::io::Result<mpsc::Receiver<Word>> {
    let pipe = BufReader::new(File::open(folder.join(CONTROL))?);
    let anew = [
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
            let word = match verb {
                Some(SAY) => Word::Say(rest.to_owned()),
                Some(DONE) => Word::Done(rest.parse().unwrap_or_default()),
                Some(INTERRUPT) => {
                    umbrella.interrupt(true);
                    continue;
                }
                Some(MOVE) => {
                    let error = surroundings::start_anew(&pipes, &anew);
                    cloze::note!("The cell's process cannot start anew: {error}");
                    continue;
                }
                _ => continue,
            };
            if send.send(word).is_err() {
                break;
            }
        }
    });
    Ok(receive)
}

/// Rust's standard output keeps an unfinished line back: this passes it on while a cell runs.
fn flush_regularly(running: Arc<AtomicBool>, umbrella: Arc<Umbrella>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(FLUSH_EVERY);
            if running.load(Ordering::Relaxed) {
                umbrella.flush();
            }
        }
    });
}

/// What the template's umbrella library offers to this process (see `umbrella.rs`).
///
/// Cells share the standard library's shared object with the umbrella, and this binary has its own
/// copy, so the buffer and the panic hook of the cells are reached through the umbrella only.
struct Umbrella {
    libraries: PathBuf,
    calls: Mutex<Option<Calls>>,
}

#[derive(Clone, Copy)]
struct Calls {
    flush: extern "C" fn(),
    interrupt: extern "C" fn(bool),
    end: unsafe extern "C" fn(BorrowedFd<'_>, *const u8, usize) -> bool,
}

impl Umbrella {
    fn new(folder: &Path) -> Self {
        Self {
            libraries: super::template::libraries(folder),
            calls: Mutex::new(None),
        }
    }

    /// Loads the library where it is built: while a template is made it is not yet there.
    fn load(&self) {
        let mut calls = lock(&self.calls);
        if calls.is_some() {
            return;
        }
        let Some(path) = find_umbrella(&self.libraries) else {
            return;
        };
        // SAFETY: the umbrella is our own library, built with this session's compiler.
        let Ok(library) = (unsafe { Library::new(path) }) else {
            return;
        };
        // SAFETY: the four symbols have these signatures in `umbrella.rs`, and the library is
        // never unloaded, so the pointers stay good.
        let loaded = unsafe {
            let pointer = |name: &[u8]| library.get::<extern "C" fn()>(name).map(|found| *found);
            match (
                pointer(b"cloze_session_start"),
                pointer(b"cloze_session_flush"),
                library.get::<extern "C" fn(bool)>(b"cloze_session_interrupt"),
                library.get(b"cloze_session_end"),
            ) {
                (Ok(start), Ok(flush), Ok(interrupt), Ok(end)) => Some((
                    start,
                    Calls {
                        flush,
                        interrupt: *interrupt,
                        end: *end,
                    },
                )),
                _ => None,
            }
        };
        if let Some((start, found)) = loaded {
            start();
            *calls = Some(found);
        }
        std::mem::forget(library);
    }

    fn calls(&self) -> Option<Calls> {
        *lock(&self.calls)
    }

    fn flush(&self) {
        if let Some(calls) = self.calls() {
            (calls.flush)();
        }
    }

    /// Writes a cell's end mark, after all that its threads are writing at this moment.
    fn end(&self, stdout: &mut File, mark: &[u8]) -> std::io::Result<()> {
        let Some(calls) = self.calls() else {
            // While a template is made no cell has threads.
            return stdout.write_all(mark);
        };
        // SAFETY: the mark is as long as it is.
        let written = unsafe { (calls.end)(stdout.as_fd(), mark.as_ptr(), mark.len()) };
        if written {
            Ok(())
        } else {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }

    fn interrupt(&self, on: bool) {
        if let Some(calls) = self.calls() {
            (calls.interrupt)(on);
        }
    }
}

fn find_umbrella(libraries: &Path) -> Option<PathBuf> {
    std::fs::read_dir(libraries)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == std::env::consts::DLL_EXTENSION)
                && path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.starts_with("libcloze_session"))
        })
}
