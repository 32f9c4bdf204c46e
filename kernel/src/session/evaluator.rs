//! The thread that owns evcxr: warms a session up and answers its requests one after another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cloze::display::Content;
use cloze::display::wire;
use cloze::{Error, Result};
use evcxr::{CommandContext, EvalContext};

use super::channel::{Channel, Collected};
use super::commands::{self, Course, Log};
use super::template::{Template, Workshop};
use super::{
    CellError, Event, Outcome, Request, Running, Sink, Stream, Turns, cargo, child, completion,
    errors, group, rewrite, rustc, shell, types, words,
};
use crate::mutex::lock;

/// The first cells of every session: they make the compiler and rust-analyzer look at what lessons
/// use (a variable's type is inferred, so it must be one that outlives its cell), and leave nothing
/// behind.
const WARM_CELLS: [&str; 2] = [
    "\
let cloze_warm_product = {
    use cloze::prelude::*;
    let device = Cpu::default();
    let warm: Tensor<Rank2<2, 3>, f32, Cpu> = device.zeros();
    warm.clone().matmul(warm.permute::<Rank2<3, 2>, _>())
};
",
    "drop(cloze_warm_product);",
];

/// Answers requests until the handle is dropped; `environment` is what the shell's commands have.
pub fn serve(
    folder: &Path,
    environment: Vec<(OsString, OsString)>,
    inbox: &mpsc::Receiver<Request>,
    running: &Mutex<Option<Running>>,
    turns: Arc<Turns>,
    say: &Sink,
) {
    let tell = |line: &str| {
        say(Event::Stream {
            stream: Stream::Stderr,
            text: format!("{line}\n"),
        });
    };
    let opened = Template::find_or_build(tell)
        .and_then(|template| template.open(folder))
        .and_then(|workshop| Evaluator::start(&workshop));
    match opened {
        Ok(mut evaluator) => {
            evaluator.environment = environment;
            evaluator.turns = turns;
            *lock(running) = Some(evaluator.handles());
            for request in inbox {
                evaluator.answer(request);
            }
        }
        Err(error) => {
            let message = error.to_string();
            tell(&message);
            for request in inbox {
                refuse(request, &message);
            }
        }
    }
}

/// Builds the template's artifacts in `workshop`: the warm cell in both of cargo's modes.
pub fn fill_template(workshop: &Workshop) -> Result<()> {
    let mut evaluator = Evaluator::start(workshop)?;
    // A wrong cell compiles the metadata that `cargo check` wants, so that the first mistake is
    // answered as fast as the next.
    evaluator
        .context
        .check("let wrong: i32 = \"on purpose\";")
        .map_err(|error| Error::Failed(format!("checking a first cell: {error}")))?;
    Ok(())
}

/// What brings types that bring displays of their own for evcxr (`evcxr_display`), which come
/// first: another crate, or a cell that writes one.
const OWN_DISPLAYS: [&str; 3] = [":dep", "extern crate", rewrite::OWN_DISPLAY];

/// evcxr's context with the process in which its cells run.
pub struct Evaluator {
    pub(super) context: CommandContext,
    channel: Channel,
    /// The session's folder.
    folder: PathBuf,
    /// What the shell's commands have.
    environment: Vec<(OsString, OsString)>,
    turns: Arc<Turns>,
    /// The one that is being worked on.
    turn: u64,
    /// The process in which the last cell ran.
    child: u32,
    /// Whether a value may have a display that only evcxr finds.
    own_displays: bool,
    /// For how long the last cell's code ran.
    pub(super) last_run: Option<Duration>,
    pub(super) log: Log,
    pub(super) course: Course,
}

impl Evaluator {
    fn start(workshop: &Workshop) -> Result<Self> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Error::Failed(format!("the session cannot start: {what}: {error}"))
        };
        let folder = &workshop.folder;
        let token = secret().map_err(|error| failed("no random numbers", &error))?;
        let bin = cargo::bin(folder);
        // A template is made with the user's own cargo, which signs nothing.
        if bin.exists() {
            words::keep_token(&bin, &token).map_err(|error| failed("its token", &error))?;
        }
        let channel = Channel::open(folder, &token).map_err(|error| failed("pipes", &error))?;
        let binary = std::env::current_exe().map_err(|error| failed("own file", &error))?;
        let mut command = Command::new(binary);
        command
            .env(child::FOLDER_VARIABLE, folder)
            .env(child::PARENT_VARIABLE, std::process::id().to_string())
            .env(wire::TOKEN_VARIABLE, token)
            // What a cell starts is to use the user's own toolchain.
            .env_remove(cargo::TOOLCHAIN_VARIABLE);
        {
            use std::os::unix::process::CommandExt;
            // A group of its own: Ctrl-C in a terminal reaches the session, which decides.
            command.process_group(0);
        }
        let (eval, _outputs) = EvalContext::with_subprocess_command(command)
            .map_err(|error| failed("the compiler", &error))?;
        let context = CommandContext::with_eval_context(eval);
        let child = lock(&context.process_handle()).id();
        let mut evaluator = Self {
            context,
            channel,
            folder: folder.clone(),
            environment: Vec::new(),
            turns: Arc::default(),
            turn: 0,
            child,
            own_displays: false,
            last_run: None,
            log: Log::default(),
            course: Course::default(),
        };
        workshop.restore_lock()?;
        let problems = Arc::new(Mutex::new(String::new()));
        let keep = Arc::clone(&problems);
        let sink: Sink = Arc::new(move |event| {
            if let Event::Stream { text, .. } = event {
                lock(&keep).push_str(&text);
            }
        });
        let settings = workshop.settings();
        for (before, cell) in [settings.as_str(), ""].into_iter().zip(WARM_CELLS) {
            let first = evaluator.cell(&format!("{before}{cell}"), &sink);
            if let Some(error) = first.error {
                let text = format!("{}\n{}", lock(&problems), error.traceback.join("\n"));
                return Err(failed("the first cell", &errors::without_colours(&text)));
            }
        }
        // The user has neither added a crate nor defined anything yet.
        evaluator.own_displays = false;
        evaluator.log = Log::default();
        Ok(evaluator)
    }

    fn handles(&self) -> Running {
        Running {
            process: self.context.process_handle(),
            monitor: self.channel.monitor(),
        }
    }

    fn answer(&mut self, request: Request) {
        // A front end that has gone wants no reply.
        match request {
            Request::MoveTo {
                folder,
                environment,
                reply,
            } => {
                self.move_to(&folder, &environment);
                let _ = reply.send(());
            }
            Request::Execute {
                code,
                turn,
                sink,
                reply,
            } => {
                self.turn = turn;
                let _ = reply.send(self.run(&code, &sink));
            }
            Request::Complete {
                code,
                position,
                reply,
            } => {
                let _ = reply.send(completion::complete(&mut self.context, &code, position));
            }
            Request::Inspect {
                code,
                position,
                reply,
            } => {
                let _ = reply.send(completion::inspect(&mut self.context, &code, position));
            }
        }
    }

    /// Moves this process and its child to another working folder, the child to other variables
    /// too. What fails here leaves the session where it was.
    fn move_to(&mut self, folder: &Path, environment: &[(String, String)]) {
        let _ = std::env::set_current_dir(folder);
        let variables = environment.iter();
        self.environment = variables
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let child = lock(&self.context.process_handle()).id();
        let _ = self.channel.monitor().move_child(child, environment);
    }

    /// Runs a cell or a command.
    fn run(&mut self, code: &str, sink: &Sink) -> Outcome {
        commands::run(self, code, sink).unwrap_or_else(|| self.cell(code, sink))
    }

    /// The variables with their types, shortened for people.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let all = self.context.variables_and_types();
        all.map(|(name, kind)| (name.to_owned(), types::short(kind)))
            .collect()
    }

    /// The variables with their types in full.
    pub(super) fn variables_as_written(&self) -> Vec<(String, String)> {
        let all = self.context.variables_and_types();
        all.map(|(name, kind)| (name.to_owned(), kind.to_owned()))
            .collect()
    }

    /// Runs a cell: its lines for the shell first.
    pub(super) fn cell(&mut self, code: &str, sink: &Sink) -> Outcome {
        let lines = rewrite::command_lines(code).filter(|(_, line)| rewrite::is_for_shell(line));
        let lines: Vec<_> = lines.collect();
        if lines.is_empty() {
            return self.compile(code, sink);
        }
        for (_, line) in &lines {
            let error = self.shell(line.trim_start_matches('!').trim(), sink);
            if error.is_some() {
                return Outcome {
                    error,
                    pages: Vec::new(),
                };
            }
        }
        let rest = rewrite::blanked(code, lines.into_iter());
        if rest.trim().is_empty() {
            return Outcome::default();
        }
        self.compile(&rest, sink)
    }

    fn shell(&mut self, command: &str, sink: &Sink) -> Option<CellError> {
        self.channel.begin(Arc::clone(sink));
        if self.turns.is_interrupted(self.turn) {
            self.channel.finish();
            return Some(errors::interrupted());
        }
        let ended = shell::run(command, &self.channel, &self.environment);
        self.channel.drain();
        shell::error(ended, self.channel.finish().interrupted)
    }

    /// Compiles and runs a cell's Rust, and has evcxr run its own commands.
    fn compile(&mut self, code: &str, sink: &Sink) -> Outcome {
        if let Some(line) = rewrite::stray_return(code) {
            return Outcome {
                error: Some(errors::stray_return(code, line)),
                pages: Vec::new(),
            };
        }
        self.channel.begin(Arc::clone(sink));
        // Looked at only now: an interrupt that comes later is for the cell that has begun.
        if self.turns.is_interrupted(self.turn) {
            self.channel.finish();
            return Outcome {
                error: Some(errors::interrupted()),
                pages: Vec::new(),
            };
        }
        self.own_displays |= OWN_DISPLAYS.iter().any(|word| code.contains(word));
        let rewritten = rewrite::rewrite(code, self.own_displays);
        let mut compiled = rewritten.as_deref().unwrap_or(code);
        rustc::read_errors(&self.folder, rewritten.is_none());
        let mut result = self.evaluate(compiled);
        rustc::read_errors(&self.folder, true);
        if is_for_want_of_a_crate(&result) {
            // Sessions stay offline because that makes every call of cargo faster.
            // The setting is written where a cell is compiled.
            let _ = self.evaluate(":offline 0\n();");
            result = self.evaluate(compiled);
            let _ = self.evaluate(":offline 1");
        }
        if rewritten.is_some() && matches!(result, Err(evcxr::Error::CompilationErrors(_))) {
            // Errors are told of the cell as it was written. What is right as it was written can't
            // be compiled with a poll, or has a value of its own kind.
            let errors = self.errors_of(code);
            result = if errors.is_empty() {
                compiled = code;
                self.evaluate(code)
            } else {
                Err(evcxr::Error::CompilationErrors(errors))
            };
        }
        self.end_leftovers();
        if matches!(result, Err(evcxr::Error::SubprocessTerminated(_))) {
            self.channel.drain();
        }
        let mut collected = self.channel.finish();
        let interrupted = collected.interrupted;
        let value = collected.value.take().filter(|value| !is_unit(value));
        let pages = std::mem::take(&mut collected.pages);
        self.last_run = collected.ran;
        for (id, passed) in collected.checked.drain(..) {
            self.course.checked(&id, passed);
        }
        let error = match result {
            Ok(outputs) => {
                if let Some(content) = content_of(outputs.content_by_mime_type) {
                    sink(Event::Result(content));
                }
                self.run_time_error(code, compiled, collected)
            }
            Err(error) => Some(errors::from_evcxr(
                error,
                code,
                interrupted,
                &collected.error_tail,
            )),
        };
        if let Some(value) = value {
            sink(if error.is_none() && is_asked_for(code) {
                Event::Result(value)
            } else {
                Event::Display {
                    content: value,
                    id: None,
                }
            });
        }
        if error.is_none() {
            self.log.keep(code);
        }
        Outcome { error, pages }
    }

    /// Ends what a child that is no more (a crash, `:clear`) had started.
    fn end_leftovers(&mut self) {
        let child = lock(&self.context.process_handle()).id();
        let before = std::mem::replace(&mut self.child, child);
        if before != child {
            group::end(before);
        }
    }

    /// What the compiler finds wrong in a cell, without compiling it to the end.
    fn errors_of(&mut self, code: &str) -> Vec<evcxr::CompilationError> {
        // For a check evcxr makes earlier variables the arguments of a function, which those that
        // are references must not leave: that is no error of the cell's.
        const ESCAPES: Option<&str> = Some("E0521");
        let mut errors = self.context.check(code).unwrap_or_default();
        errors.retain(|error| error.level() == "error" && error.code() != ESCAPES);
        errors
    }

    fn evaluate(&mut self, code: &str) -> std::result::Result<evcxr::EvalOutputs, evcxr::Error> {
        self.context
            .execute_with_callbacks(code, &mut Default::default())
    }

    /// The error of a cell that evcxr takes for a success: a panic, an interrupt, a `?`.
    fn run_time_error(
        &self,
        code: &str,
        compiled: &str,
        collected: Collected,
    ) -> Option<CellError> {
        if collected.unwound && collected.panic.is_none() && collected.interrupted {
            return Some(errors::interrupted());
        }
        if collected.unwound {
            let source = self.context.last_source().unwrap_or_default();
            return Some(errors::panic(collected.panic, code, compiled, &source));
        }
        collected
            .user_error
            .then(|| errors::user_error(collected.last_error_line()))
    }
}

/// Whether a `:dep` failed because cargo may not ask its registry.
fn is_for_want_of_a_crate(result: &std::result::Result<evcxr::EvalOutputs, evcxr::Error>) -> bool {
    match result {
        Err(evcxr::Error::CompilationErrors(errors)) => errors
            .iter()
            .filter(|error| error.code().is_none())
            // The index lacks it, or the crate itself was not downloaded.
            .any(|error| {
                let message = error.message();
                message.contains("offline mode") || message.contains("--offline was specified")
            }),
        _ => false,
    }
}

/// The content that evcxr's own commands (`:vars`, `:help`, …) return.
fn content_of(by_mime: std::collections::HashMap<String, String>) -> Option<Content> {
    (!by_mime.is_empty()).then(|| {
        by_mime
            .into_iter()
            .fold(Content::default(), |content, (mime, data)| {
                content.with(mime, data)
            })
    })
}

/// `()` says nothing: it is the value of a trailing loop or of a call for its effect.
fn is_unit(value: &Content) -> bool {
    value.formats().eq([("text/plain", "()")])
}

/// Whether the cell ends in an expression that stands for its value.
fn is_asked_for(code: &str) -> bool {
    !code.trim_end().ends_with(';')
}

fn refuse(request: Request, message: &str) {
    match request {
        Request::Execute { reply, .. } => {
            let _ = reply.send(Outcome {
                error: Some(errors::plain("session", message)),
                pages: Vec::new(),
            });
        }
        // Dropped replies mean "nothing to offer".
        Request::Complete { .. } | Request::Inspect { .. } | Request::MoveTo { .. } => {}
    }
}

/// A word that a cell's prints do not hold by chance, nor anybody guesses.
pub fn secret() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_value_is_not_shown_and_a_string_like_it_is() {
        assert!(is_unit(&Content::text("()")));
        assert!(!is_unit(&Content::text("\"()\"")));
        assert!(!is_unit(&Content::html("()").with_text("()")));
    }
}
