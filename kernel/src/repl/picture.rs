//! Pictures in terminals that can show them: kitty's graphics protocol and iTerm2's inline images.

/// The picture protocol of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Kitty,
    Iterm,
}

/// The longest piece that kitty's protocol allows.
const PIECE: usize = 4096;

impl Protocol {
    /// Detects the protocol from the environment, which `variable` reads. A query to the terminal could
    /// mistake the user's input for the answer.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
        // A multiplexer does not know the height of a picture and would overwrite it.
        if ["TMUX", "STY"].iter().any(|name| variable(name).is_some()) {
            return None;
        }
        let kitty = variable("KITTY_WINDOW_ID").is_some()
            || is("TERM", "xterm-kitty")
            || is("TERM", "xterm-ghostty")
            || is("TERM_PROGRAM", "ghostty");
        let iterm = is("TERM_PROGRAM", "iTerm.app") || is("TERM_PROGRAM", "WezTerm");
        match (kitty, iterm) {
            (true, _) => Some(Self::Kitty),
            (false, true) => Some(Self::Iterm),
            (false, false) => None,
        }
    }

    /// Returns the text that shows a PNG in base64, or `None` if the argument is not base64.
    pub fn draw(self, base64: &str) -> Option<String> {
        let data: String = base64.split_whitespace().collect();
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        if data.is_empty() || !data.bytes().all(known) {
            return None;
        }
        Some(match self {
            Self::Iterm => format!("\x1b]1337;File=inline=1:{data}\x07\n"),
            Self::Kitty => {
                let mut out = String::new();
                let mut rest = data.as_str();
                let mut control = "a=T,f=100,";
                while !rest.is_empty() {
                    // Every character is one byte, as checked above.
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

    fn detect(environment: &[(&str, &str)]) -> Option<Protocol> {
        Protocol::detect(|name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn terminals_are_known_by_their_environment() {
        assert_eq!(detect(&[("TERM", "xterm-256color")]), None);
        assert_eq!(detect(&[("TERM", "xterm-kitty")]), Some(Protocol::Kitty));
        assert_eq!(detect(&[("TERM_PROGRAM", "WezTerm")]), Some(Protocol::Iterm));
        assert_eq!(detect(&[("KITTY_WINDOW_ID", "1"), ("TMUX", "/tmp/x")]), None);
    }

    #[test]
    fn a_large_picture_is_split_and_other_text_is_refused() {
        let data = "QUJD".repeat(2500);
        let drawn = Protocol::Kitty.draw(&data).unwrap();
        assert_eq!(drawn.matches("\x1b_G").count(), 3);
        assert!(drawn.starts_with("\x1b_Ga=T,f=100,m=1;") && drawn.contains("\x1b_Gm=0;"));
        assert!(Protocol::Iterm.draw("QUJD\nQUJD").unwrap().contains(":QUJDQUJD\x07"));
        assert_eq!(Protocol::Iterm.draw("\x1b[2J"), None);
        assert_eq!(Protocol::Kitty.draw(""), None);
    }
}
