//! Shell commands (`!ls`), which run beside the child in a process group of their own. They use the
//! pipes of cells: their output shows at once, and the front end asks for their input.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::CellError;
use super::channel::Channel;
use super::kill_timeout::KILL_TIMEOUT;
use super::process_group::{self, Left};

/// How often the session checks whether a command has ended or was interrupted.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a command with these variables until it ends, by itself or by an interrupt. The channel has
/// begun a cell for it. Processes that it leaves in the background are noted in `left`.
pub fn run(
    command: &str,
    channel: &Channel,
    environment: &[(OsString, OsString)],
    left: &mut Left,
) -> std::io::Result<ExitStatus> {
    let [input, output, errors] = channel.streams()?;
    let mut shell = Command::new("sh")
        .args(["-c", command])
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()?;
    channel.set_running(shell.id());
    let monitor = channel.monitor();
    let mut asked: Option<Instant> = None;
    loop {
        let ended = shell.try_wait()?;
        if asked.is_some_and(|at| ended.is_some() || at.elapsed() > KILL_TIMEOUT) {
            process_group::kill(shell.id());
        }
        if let Some(status) = ended {
            left.note(shell.id());
            return Ok(status);
        }
        if asked.is_none() && monitor.interrupted() {
            process_group::signal(shell.id(), Signal::SIGINT);
            asked = Some(Instant::now());
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Returns the error of a command that ended so, if it is one.
pub fn error(ended: std::io::Result<ExitStatus>, interrupted: bool) -> Option<CellError> {
    let message = match ended {
        Ok(_) if interrupted => {
            return Some(CellError::new("interrupted", "the command was stopped"));
        }
        Ok(status) if status.success() => return None,
        Ok(status) => match status.code() {
            Some(code) => format!("the command ended with exit code {code}"),
            None => format!("the command was killed: {status}"),
        },
        Err(error) => format!("the command could not be run: {error}"),
    };
    Some(CellError::new("shell", &message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Event, Stream};
    use std::sync::{Arc, mpsc};

    fn opened() -> (tempfile::TempDir, Channel, mpsc::Receiver<Event>) {
        let folder = tempfile::tempdir().unwrap();
        let channel = Channel::open(folder.path(), "t", || {}).unwrap();
        let (send, receive) = mpsc::channel();
        channel.begin(Arc::new(move |event| {
            let _ = send.send(event);
        }));
        (folder, channel, receive)
    }

    fn environment() -> Vec<(OsString, OsString)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        vec![("PATH".into(), path), ("GIVEN".into(), "größe".into())]
    }

    #[test]
    fn a_command_has_the_given_variables_and_its_output_is_that_of_the_cell() {
        let (_folder, mut channel, events) = opened();
        let command = "echo $GIVEN $CARGO_MANIFEST_DIR; echo wrong >&2; exit 3";
        let ended = run(command, &channel, &environment(), &mut Left::default());
        channel.drain();
        let collected = channel.finish();
        assert_eq!(collected.error_tail, "wrong\n");
        let error_of = error(ended, collected.interrupted).unwrap();
        assert_eq!(error_of.value, "the command ended with exit code 3");
        let printed = events.try_iter().filter_map(|event| match event {
            Event::Stream { stream, text } => (stream == Stream::Stdout).then_some(text),
            _ => None,
        });
        assert_eq!(printed.collect::<String>(), "größe\n");
        assert!(
            error(run("true", &channel, &environment(), &mut Left::default()), false).is_none()
        );
    }

    #[test]
    fn output_comes_while_a_command_runs_and_an_interrupt_ends_it_with_all_it_started() {
        // The second one ignores the interrupt, so it is killed.
        for script in ["echo on; sleep 60 & sleep 60; echo off", "trap '' INT; echo on; sleep 60"] {
            let (_folder, mut channel, events) = opened();
            let monitor = channel.monitor();
            let started = Instant::now();
            let seen = std::thread::spawn(move || {
                let first = events.recv_timeout(Duration::from_secs(20));
                assert!(monitor.interrupt());
                (first, events)
            });
            let ended = run(script, &channel, &environment(), &mut Left::default());
            channel.drain();
            let (first, events) = seen.join().unwrap();
            assert!(matches!(first, Ok(Event::Stream { text, .. }) if text == "on\n"));
            assert_eq!(events.try_iter().count(), 0);
            let error_of = error(ended, channel.finish().interrupted).unwrap();
            assert_eq!(error_of.name, "interrupted");
            assert!(started.elapsed() < Duration::from_secs(30), "{script}");
        }
    }

    #[test]
    fn the_front_end_is_asked_for_the_input_of_a_command() {
        let (_folder, mut channel, events) = opened();
        if !super::super::input::can_watch(std::process::id()) {
            return;
        }
        let monitor = channel.monitor();
        let answered = std::thread::spawn(move || {
            let asked = events.recv_timeout(Duration::from_secs(20));
            monitor.give_input(Some("word"));
            (asked, events)
        });
        let ended =
            run("read line; echo got $line", &channel, &environment(), &mut Left::default());
        channel.drain();
        let (asked, events) = answered.join().unwrap();
        assert!(matches!(asked, Ok(Event::Input { .. })));
        assert!(
            matches!(events.try_recv(), Ok(Event::Stream { text, .. }) if text == "got word\n")
        );
        assert!(error(ended, false).is_none());
    }
}
