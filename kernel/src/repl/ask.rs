//! Asks the terminal what it can show.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};

/// The request for the terminal's attributes, and what encloses the answer.
const QUESTION: &str = "\x1b[c";
const BEGIN: &str = "\x1b[?";
const END: char = 'c';
/// The attribute of terminals that show sixels.
const SIXEL: &str = "4";
/// How long a terminal may take for its answer, here and over a network.
const PATIENCE: Duration = Duration::from_millis(100);
const FAR: Duration = Duration::from_secs(1);

/// What came from the terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub sixel: bool,
    /// What the user typed in the meantime.
    pub typed: String,
}

/// Asks the terminal, unless the user has already typed something.
pub fn ask() -> Answer {
    // Without an answer nothing is known.
    asked().unwrap_or_default()
}

fn asked() -> nix::Result<Answer> {
    let input = std::io::stdin();
    let mut output = std::io::stdout();
    if !input.is_terminal() || !output.is_terminal() {
        return Ok(Answer::default());
    }
    let before = tcgetattr(&input)?;
    let mut without_lines = before.clone();
    // The answer has no line end, and is not to be seen.
    without_lines.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
    tcsetattr(&input, SetArg::TCSANOW, &without_lines)?;
    let mut bytes = Vec::new();
    let received = (|| {
        if waits(&input, Duration::ZERO)? {
            return Ok(());
        }
        // A closed terminal gives no answer.
        let _ = output.write_all(QUESTION.as_bytes()).and_then(|()| output.flush());
        let far = std::env::var_os("SSH_CONNECTION").is_some();
        let deadline = Instant::now() + if far { FAR } else { PATIENCE };
        while split(&String::from_utf8_lossy(&bytes)).is_none()
            && waits(&input, deadline.saturating_duration_since(Instant::now()))?
        {
            let mut buffer = [0; 256];
            match nix::unistd::read(&input, &mut buffer)? {
                0 => break,
                length => bytes.extend_from_slice(&buffer[..length]),
            }
        }
        Ok(())
    })();
    tcsetattr(&input, SetArg::TCSANOW, &before)?;
    received.map(|()| understood(&String::from_utf8_lossy(&bytes)))
}

/// Returns whether there is input within this time.
fn waits(input: &impl AsFd, time: Duration) -> nix::Result<bool> {
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    Ok(poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout)? > 0)
}

/// Splits a text into what comes before the answer, the answer, and what comes after it.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (answer, after) = rest.split_once(END)?;
    Some((before, answer, after))
}

fn understood(text: &str) -> Answer {
    let (before, answer, after) = split(text).unwrap_or((text, "", ""));
    // The first number is the terminal's class.
    let sixel = answer.split(';').skip(1).any(|attribute| attribute == SIXEL);
    let typed = [before, after].concat();
    let typed = typed.chars().filter(|it| *it == '\n' || !it.is_control()).collect::<String>();
    Answer { sixel, typed: typed.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_between_what_the_user_types() {
        let answer = |sixel, typed: &str| Answer { sixel, typed: typed.to_owned() };
        assert_eq!(understood("\x1b[?62;4;22c"), answer(true, ""));
        assert_eq!(understood("let \x1b[?64;1;4ca = 1;\n"), answer(true, "let a = 1;"));
        assert_eq!(understood("\x1b[?4;22c"), answer(false, ""));
        assert_eq!(understood("\x1b[?62;14;44c"), answer(false, ""));
        assert_eq!(understood("abc\x03"), answer(false, "abc"));
    }
}
