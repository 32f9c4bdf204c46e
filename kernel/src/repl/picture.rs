//! Pictures in terminals that can show them: kitty's graphics protocol, iTerm2's inline images and sixel.

use base64::Engine;
use cloze::display::Content;

use super::{ask, sixel};

pub const PNG: &str = "image/png";
/// The environment variable by which the user chooses a protocol.
const VARIABLE: &str = "CLOZE_PICTURES";
/// The longest piece that kitty's protocol allows.
const PIECE: usize = 4096;

/// The picture protocol of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Kitty,
    Iterm,
    Sixel,
}

/// What is known about a terminal.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    Shows(Protocol),
    Nothing,
    /// Only the terminal itself knows.
    Asks,
}

impl Known {
    /// Reads the environment.
    pub fn standard() -> Self {
        Self::detect(|name| std::env::var(name).ok())
    }

    fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
        match variable(VARIABLE).as_deref() {
            Some("kitty") => return Self::Shows(Protocol::Kitty),
            Some("iterm") => return Self::Shows(Protocol::Iterm),
            Some("sixel") => return Self::Shows(Protocol::Sixel),
            Some("text") => return Self::Nothing,
            None | Some("") => {}
            Some(other) => {
                cloze::note!("{VARIABLE} is `{other}`: it can be kitty, iterm, sixel or text");
            }
        }
        if variable("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            return Self::Nothing;
        }
        // A multiplexer does not know the height of such a picture and would overwrite it. It answers itself.
        if ["TMUX", "STY"].iter().any(|name| variable(name).is_some()) {
            return Self::Asks;
        }
        let kitty = variable("KITTY_WINDOW_ID").is_some()
            || is("TERM", "xterm-kitty")
            || is("TERM", "xterm-ghostty")
            || is("TERM_PROGRAM", "ghostty");
        let iterm = is("TERM_PROGRAM", "iTerm.app") || is("TERM_PROGRAM", "WezTerm");
        match (kitty, iterm) {
            (true, _) => Self::Shows(Protocol::Kitty),
            (false, true) => Self::Shows(Protocol::Iterm),
            (false, false) => Self::Asks,
        }
    }

    /// Returns the protocol that is known without asking.
    pub fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Shows(protocol) => Some(*protocol),
            Self::Nothing | Self::Asks => None,
        }
    }

    /// Returns the protocol, and what the user typed while the terminal was asked.
    pub fn or_ask(&self) -> (Option<Protocol>, String) {
        match self {
            Self::Asks => {
                let answer = ask::ask();
                (answer.sixel.then_some(Protocol::Sixel), answer.typed)
            }
            known => (known.protocol(), String::new()),
        }
    }
}

impl Protocol {
    /// Returns the characters that make the terminal draw the content's PNG. Returns `None` for a content without a PNG.
    pub fn draw(self, content: &Content) -> Option<String> {
        let data: String = content.get(PNG)?.split_whitespace().collect();
        let file = base64::prelude::BASE64_STANDARD.decode(&data).ok()?;
        if file.is_empty() {
            return None;
        }
        Some(match self {
            Self::Iterm => format!("\x1b]1337;File=inline=1:{data}\x07\n"),
            Self::Sixel => {
                let page = content.png_size().map(|(width, _)| width);
                sixel::encode(&file, page)? + "\n"
            }
            Self::Kitty => {
                let mut out = String::new();
                let mut rest = data.as_str();
                let mut control = "a=T,f=100,";
                while !rest.is_empty() {
                    // Every character is one byte, because the text is base64.
                    let (piece, after) = rest.split_at(rest.len().min(PIECE));
                    let more = u8::from(!after.is_empty());
                    out += &format!("\x1b_G{control}m={more};{piece}\x1b\\");
                    (rest, control) = (after, "");
                }
                out + "\n"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(environment: &[(&str, &str)]) -> Known {
        Known::detect(|name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn terminals_are_known_by_their_environment_and_the_user_decides() {
        let xterm = ("TERM", "xterm-256color");
        assert_eq!(detect(&[xterm]), Known::Asks);
        assert_eq!(detect(&[]), Known::Nothing);
        assert_eq!(detect(&[("TERM", "xterm-kitty")]), Known::Shows(Protocol::Kitty));
        assert_eq!(detect(&[xterm, ("TERM_PROGRAM", "WezTerm")]), Known::Shows(Protocol::Iterm));
        let inside = [xterm, ("KITTY_WINDOW_ID", "1"), ("TMUX", "/tmp/x")];
        assert_eq!(detect(&inside), Known::Asks);
        let kitty = ("KITTY_WINDOW_ID", "1");
        assert_eq!(detect(&[xterm, kitty, (VARIABLE, "text")]), Known::Nothing);
        assert_eq!(detect(&[xterm, kitty, (VARIABLE, "sixel")]), Known::Shows(Protocol::Sixel));
        assert_eq!(detect(&[xterm, kitty, (VARIABLE, "no")]), Known::Shows(Protocol::Kitty));
    }

    #[test]
    fn a_large_picture_is_split_and_other_text_is_refused() {
        let png = |data: &str| Content::default().with(PNG, data);
        let drawn = Protocol::Kitty.draw(&png(&"QUJD".repeat(2500))).unwrap();
        assert_eq!(drawn.matches("\x1b_G").count(), 3);
        assert!(drawn.starts_with("\x1b_Ga=T,f=100,m=1;") && drawn.contains("\x1b_Gm=0;"));
        assert!(Protocol::Iterm.draw(&png("QUJD\nQUJD")).unwrap().contains(":QUJDQUJD\x07"));
        for protocol in [Protocol::Kitty, Protocol::Iterm, Protocol::Sixel] {
            assert_eq!(protocol.draw(&png("\x1b[2J")), None);
            assert_eq!(protocol.draw(&png("")), None);
        }
        assert_eq!(Protocol::Sixel.draw(&png("QUJD")), None);
    }
}
