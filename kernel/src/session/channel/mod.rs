//! The channel between a session and its child process.
//!
//! evcxr talks with a child over the child's standard input and output. This would mix the user's
//! prints with evcxr's own lines, pass on whole lines only, and let standard error arrive at any time.
//! So the child's standard output and error are two named pipes that the session reads itself. When a
//! cell has ended, the child writes an end mark on both, and the cell is over when the session has read
//! both marks. So all output of a cell comes before its end. Named pipes survive the child: the next one
//! opens the same three.
//!
//! evcxr waits for the end of a cell, and while it waits it can't complete or explain anything. So it is
//! given the end when the cell begins. The child asks, the session answers on a third pipe, and what evcxr
//! must learn of the cell after all, that variables no longer exist, it learns before the next one.

mod cell;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cloze::display::wire::{Comm, Record};
use nix::sys::stat::Mode as Permissions;

use self::cell::State;
pub use self::cell::{Collected, Panic};
use super::input::{self, Input};
use super::stream::{Piece, Splitter};
use super::{Event, Sink, Stream, inherited, markers};
use crate::mutex::lock;

/// The pipes' names in the session's folder.
pub const STDOUT: &str = "stdout";
pub const STDERR: &str = "stderr";
pub const CONTROL: &str = "control";

/// The messages on the control pipe: `<child> say <line for evcxr>`, `<child> run <run>`,
/// `<child> skip <run>`, `<child> interrupt`, `<child> comm <JSON>`, `<child> move`. The child's process number comes
/// first, so that a new child ignores messages to the one before it.
pub const SAY: &str = "say";
pub const RUN: &str = "run";
pub const SKIP: &str = "skip";
pub const INTERRUPT: &str = "interrupt";
/// Passes a message of the page on to a widget.
pub const COMM: &str = "comm";
/// Makes an idle child restart itself, see [`super::inherited`].
pub const MOVE: &str = "move";

/// How often the session checks whether a running cell reads its standard input.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Called when a cell has ended.
    ended: Box<dyn Fn() + Send + Sync>,
    control: Mutex<File>,
    input: Mutex<Input>,
    folder: PathBuf,
    token: String,
}

/// The session's end of the pipes.
pub struct Channel {
    shared: Arc<Shared>,
    writers: [File; 2],
    drains: u64,
}

impl Channel {
    /// Creates the pipes in `folder` and starts to read them. Calls `ended` whenever a cell has ended.
    pub fn open(
        folder: &Path,
        token: &str,
        ended: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        for name in [STDOUT, STDERR, CONTROL] {
            nix::unistd::mkfifo(&folder.join(name), Permissions::S_IRUSR | Permissions::S_IWUSR)?;
        }
        // Opened for reading and writing, a pipe always has both ends: no `open` blocks, and no read ends
        // with a child.
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(folder.join(name));
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: Box::new(ended),
            control: Mutex::new(open(CONTROL)?),
            input: Mutex::new(Input::open(folder)?),
            folder: folder.to_path_buf(),
            token: token.to_owned(),
        });
        let writers = [open(STDOUT)?, open(STDERR)?];
        for (index, name) in [STDOUT, STDERR].into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let pipe = writers[index].try_clone()?;
            std::thread::Builder::new()
                .name(format!("read {name}"))
                .spawn(move || shared.read(pipe, index))?;
        }
        let watching = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("watch input".to_owned())
            .spawn(move || watching.watch_input())?;
        Ok(Self { shared, writers, drains: 0 })
    }

    /// A handle for other threads.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Begins a new cell, to which all output belongs from here on.
    pub fn begin(&self, sink: Sink) {
        // If this fails, a read finds the end of the input.
        let _ = self.shared.input().begin();
        let mut state = self.shared.lock();
        *state = State {
            active: true,
            sink: Some(sink),
            ends: state.ends,
            lost: std::mem::take(&mut state.lost),
            ..State::default()
        };
    }

    /// Returns whether the cell's code, if any has begun, has ended and all of its output has been read.
    pub fn has_ended(&self) -> bool {
        let state = self.shared.lock();
        state.begun.is_none_or(|begun| state.ends == [Some(begun), Some(begun)])
    }

    /// Takes the variables whose types have changed, so that the cell has not run.
    pub fn take_changed(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().collected.changed)
    }

    /// Makes evcxr forget these variables when it runs the next cell.
    pub fn lose(&self, variables: impl IntoIterator<Item = String>) {
        self.shared.lock().lost.extend(variables);
    }

    /// Returns whether evcxr is about to forget this variable.
    pub fn is_lost(&self, variable: &str) -> bool {
        self.shared.lock().lost.iter().any(|lost| lost == variable)
    }

    /// Returns standard input, output and error for a program that runs in place of a cell.
    pub fn streams(&self) -> std::io::Result<[Stdio; 3]> {
        let [output, errors] = &self.writers;
        Ok([
            input::reader(&self.shared.folder)?.into(),
            output.try_clone()?.into(),
            errors.try_clone()?.into(),
        ])
    }

    /// Records that such a program runs.
    pub fn set_running(&self, process: u32) {
        self.shared.lock().running = Some((process, Instant::now()));
        self.shared.changed.notify_all();
    }

    /// Returns what the cell left behind; later output still goes to its sink.
    pub fn finish(&self) -> Collected {
        let mut state = self.shared.lock();
        state.active = false;
        state.running = None;
        Collected {
            interrupted: std::mem::take(&mut state.interrupted),
            ..std::mem::take(&mut state.collected)
        }
    }

    /// Reads what a dead child has left in the pipes.
    pub fn drain(&mut self) {
        self.drains += 1;
        // No child has process number 0.
        let mark = (0, self.drains);
        let line = Record::End { child: mark.0, run: mark.1 }.line(&self.shared.token);
        for writer in &mut self.writers {
            if writer.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
        let state = self.shared.lock();
        // The timeout is for a process that the cell started and that writes for ever.
        let _ = self.shared.changed.wait_timeout_while(state, Duration::from_secs(2), |state| {
            state.ends != [Some(mark), Some(mark)]
        });
    }
}

/// Watches and stops the running cell, from any thread.
#[derive(Clone)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// Asks the running cell, or the one being compiled, to stop at its next poll. Returns false if
    /// there is none.
    pub fn interrupt(&self) -> bool {
        let mut state = self.0.lock();
        if !state.active {
            return false;
        }
        state.interrupted = true;
        if let Some((child, _)) = state.running {
            self.0.send(child, INTERRUPT);
        }
        true
    }

    /// Gives an idle `child` other variables, and the working folder of this process.
    pub fn move_child(&self, child: u32, variables: &[(String, String)]) -> std::io::Result<()> {
        inherited::write(&self.0.folder, variables)?;
        self.0.send(child, MOVE);
        inherited::wait(&self.0.folder)
    }

    /// Stops what an idle `child` computes for a widget.
    pub fn interrupt_widgets(&self, child: u32) {
        self.0.send(child, INTERRUPT);
    }

    /// Passes a message of the page on to the widgets of `child`.
    pub fn comm(&self, child: u32, message: &Comm) {
        // It has no keys but strings.
        let json = serde_json::to_string(message).unwrap_or_default();
        self.0.send(child, &format!("{COMM} {json}"));
    }

    /// Answers a cell that waits for input; `None` means the end of the input.
    pub fn give_input(&self, line: Option<&str>) {
        let mut state = self.0.lock();
        if !std::mem::take(&mut state.asking) {
            return;
        }
        drop(state);
        self.0.changed.notify_all();
        let mut input = self.0.input();
        match line {
            // This process is a reader of the pipe, so a failure means that the session ends.
            Some(line) => drop(input.give(line)),
            // For the rest of the cell: if the pipe were opened again at once, the reader would wait on.
            None => input.detach(),
        }
    }

    /// Returns whether the cell was asked to stop.
    pub fn interrupted(&self) -> bool {
        self.0.lock().interrupted
    }

    /// Returns for how long the cell's code has run, if it runs in `child`.
    pub fn running_for(&self, child: u32) -> Option<Duration> {
        let running = self.0.lock().running;
        let (_, since) = running.filter(|(process, _)| *process == child)?;
        Some(since.elapsed())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn input(&self) -> MutexGuard<'_, Input> {
        lock(&self.input)
    }

    /// Detects a running cell that waits for input but has not asked for it.
    fn watch_input(&self) {
        let mut seen = None;
        loop {
            let idle = |state: &mut State| state.running.is_none() || state.asking;
            let state =
                self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            let now = (state.running, state.questions);
            drop(state);
            let waits = now.0.is_some_and(|(child, _)| input::waits(child, &self.folder));
            // Checked twice, because a reader that has just got its line may not have run yet.
            if waits && seen == Some(now) {
                let mut state = self.lock();
                if (state.running, state.questions) == now && !state.asking {
                    state.ask(String::new());
                }
            }
            seen = waits.then_some(now);
            std::thread::sleep(WATCH_INTERVAL);
        }
    }

    fn send(&self, child: u32, message: &str) {
        let mut control = lock(&self.control);
        // This process is a reader of the pipe, so a failure means that the session ends.
        let _ = control.write_all(format!("{child} {message}\n").as_bytes());
    }

    fn read(&self, mut pipe: File, index: usize) {
        let stream = [Stream::Stdout, Stream::Stderr][index];
        let mut splitter = Splitter::new(&self.token);
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length) = pipe.read(&mut buffer) {
            for piece in splitter.push(&buffer[..length]) {
                self.take(piece, stream, index);
            }
        }
    }

    fn take(&self, piece: Piece, stream: Stream, index: usize) {
        let mut state = self.lock();
        match piece {
            Piece::Text(text) => {
                if stream == Stream::Stderr {
                    state.collected.keep_error(&text);
                }
                state.release_value();
                state.send(Event::Stream { stream, text });
            }
            Piece::Content { mime, data } => state.add_content(mime, data),
            Piece::Evcxr(line) => match line.as_str() {
                markers::PANIC => state.collected.unwound = true,
                _ => {
                    let changed = line.strip_prefix(markers::TYPE_CHANGED).map(str::to_owned);
                    state.collected.changed.extend(changed);
                }
            },
            Piece::Record(Record::End { child, run }) => {
                state.ends[index] = Some((child, run));
                if state.ends[0] == state.ends[1] {
                    state.collected.ran = state.running.map(|(_, since)| since.elapsed());
                    state.running = None;
                    self.changed.notify_all();
                    (self.ended)();
                }
            }
            Piece::Record(Record::Begin { child, run }) => {
                let lost = std::mem::take(&mut state.lost);
                for name in &lost {
                    self.send(child, &format!("{SAY} {}{name}", markers::TYPE_CHANGED));
                }
                if !lost.is_empty() || state.interrupted {
                    // evcxr runs the code again if variables are lost. A cell that the user interrupted
                    // while it was compiled ends here.
                    state.collected.unwound = lost.is_empty();
                    self.send(child, &format!("{SKIP} {run}"));
                    return;
                }
                state.begun = Some((child, run));
                state.running = Some((child, Instant::now()));
                self.send(child, &format!("{RUN} {run}"));
                self.changed.notify_all();
            }
            Piece::Record(Record::Input { prompt }) => {
                // Only now on systems where waiting cells are not detected. If this fails, the cell finds
                // the end of the input.
                let _ = self.input().attach();
                state.ask(prompt);
            }
            Piece::Record(record) => state.show(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze::display::Content;
    use cloze::display::wire::Mode;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;

    fn opened() -> (tempfile::TempDir, Channel, mpsc::Receiver<Event>, File, File) {
        let folder = tempfile::tempdir().unwrap();
        let channel = Channel::open(folder.path(), "t", || {}).unwrap();
        let (send, receive) = mpsc::channel();
        channel.begin(Arc::new(move |event| {
            let _ = send.send(event);
        }));
        let open = |name| {
            OpenOptions::new().read(true).write(true).open(folder.path().join(name)).unwrap()
        };
        let (out, err) = (open(STDOUT), open(STDERR));
        (folder, channel, receive, out, err)
    }

    /// Returns what came on standard output and on standard error.
    fn printed(events: &mpsc::Receiver<Event>) -> [String; 2] {
        let mut printed = [String::new(), String::new()];
        for event in events.try_iter() {
            match event {
                Event::Stream { stream, text } => printed[stream as usize] += &text,
                other => panic!("{other:?}"),
            }
        }
        printed
    }

    #[test]
    fn draining_passes_on_what_a_dead_child_has_left() {
        let (_folder, mut channel, events, mut out, mut err) = opened();
        out.write_all(b"no line end").unwrap();
        err.write_all(b"last words\n").unwrap();
        channel.drain();
        assert_eq!(printed(&events), ["no line end", "last words\n"]);
        assert_eq!(channel.finish().error_tail, "last words\n");
    }

    #[test]
    fn an_interrupt_is_for_the_running_cell_and_ends_with_it() {
        let (_folder, channel, _events, _out, _err) = opened();
        let monitor = channel.monitor();
        channel.set_running(7);
        assert!(monitor.running_for(7).is_some() && monitor.running_for(8).is_none());
        assert!(monitor.interrupt() && monitor.interrupted());
        assert!(channel.finish().interrupted);
        assert!(!monitor.interrupted());
        assert!(!monitor.interrupt() && !monitor.interrupted());
        channel.begin(Arc::new(|_| {}));
        assert!(!channel.finish().interrupted);
    }

    #[test]
    fn a_cell_that_is_interrupted_before_it_begins_does_not_run() {
        let (folder, channel, _events, mut out, _err) = opened();
        let control = folder.path().join(CONTROL);
        let control = OpenOptions::new().read(true).write(true).open(control).unwrap();
        let mut control = BufReader::new(control).lines();
        let mut answers = |run| {
            out.write_all(Record::Begin { child: 7, run }.line("t").as_bytes()).unwrap();
            control.next().unwrap().unwrap()
        };
        assert!(channel.monitor().interrupt());
        assert_eq!(answers(1), "7 skip 1");
        assert!(channel.has_ended() && channel.monitor().running_for(7).is_none());
        let collected = channel.finish();
        assert!(collected.interrupted && collected.unwound);
        // The next cell runs.
        channel.begin(Arc::new(|_| {}));
        assert_eq!(answers(2), "7 run 2");
        assert!(!channel.has_ended());
    }

    #[test]
    fn an_unfinished_value_on_either_stream_causes_no_delay() {
        let (_folder, mut channel, events, mut out, mut err) = opened();
        for pipe in [&mut out, &mut err] {
            let open = format!("{}1", Record::Own { open: true }.line("t"));
            pipe.write_all(open.as_bytes()).unwrap();
        }
        let started = Instant::now();
        channel.drain();
        // Without both marks it waits for two seconds.
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(printed(&events), ["1", "1"]);
    }

    #[test]
    fn printed_markers_are_text() {
        let (_folder, mut channel, events, mut out, mut err) = opened();
        let markers = "EVCXR_VARIABLE_CHANGED_TYPE:x\nEVCXR_PANIC_NOTIFICATION\n\
                       EVCXR_BEGIN_CONTENT text/html\n<b>\nEVCXR_END_CONTENT\n";
        for pipe in [&mut out, &mut err] {
            pipe.write_all(markers.as_bytes()).unwrap();
        }
        channel.drain();
        assert_eq!(printed(&events), [markers, markers]);
        let collected = channel.finish();
        assert!(!collected.unwound && collected.value.is_none());
    }

    #[test]
    fn the_last_value_is_that_of_the_cell_and_earlier_ones_are_displays() {
        let (_folder, mut channel, events, mut out, _err) = opened();
        for number in [1, 2] {
            let text = format!("EVCXR_BEGIN_CONTENT text/html\n{number}\nEVCXR_END_CONTENT\n");
            let [open, close] = [true, false].map(|open| Record::Own { open }.line("t"));
            out.write_all(format!("{open}{text}{close}").as_bytes()).unwrap();
        }
        channel.drain();
        assert!(matches!(
            events.try_recv(),
            Ok(Event::Display { content, id: None }) if content.get("text/html") == Some("1")
        ));
        let value = channel.finish().value.unwrap();
        assert_eq!(value.get("text/html"), Some("2"));
    }

    #[test]
    fn a_live_display_is_shown_once_and_then_updated() {
        let (_folder, mut channel, events, mut out, _err) = opened();
        for _ in 0..2 {
            let record = Record::Display {
                mode: Mode::Live { id: "loss".into() },
                content: Content::text("x"),
            };
            out.write_all(record.line("t").as_bytes()).unwrap();
        }
        channel.drain();
        let events: Vec<_> = events.try_iter().collect();
        assert!(matches!(events[0], Event::Display { .. }));
        assert!(matches!(events[1], Event::Update { .. }));
    }
}
