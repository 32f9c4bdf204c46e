//! What ended the process of a cell, in a sentence.

use super::CellError;
use super::child::{CANNOT_GO_ON, WHY};
use super::errors::plain;

/// What a lost process means and what to do.
pub const AFTERWARDS: &str = "All variables are lost: a fresh process is ready, and `:replay` runs the cells again that defined things.";

/// The error of a cell whose process ended with `status` (evcxr's words), after it had written
/// `said` to standard error at its end.
pub fn explain(status: &str, said: &str) -> CellError {
    let status = status
        .rsplit_once("status: ")
        .map_or(status, |(_, status)| status);
    plain(
        "crash",
        &format!("{}. {AFTERWARDS}", reason(status.trim(), said)),
    )
}

fn reason(status: &str, said: &str) -> String {
    // `signal: 11 (SIGSEGV) (core dumped)`
    let signal = status
        .split_once('(')
        .and_then(|(_, rest)| Some(rest.split_once(')')?.0));
    match signal {
        Some("SIGABRT") if said.contains("stack overflow") => {
            "the cell ended its process by a stack overflow: a function calls itself without end, \
             or a large array lives on the stack (a Vec does not)"
                .to_owned()
        }
        Some("SIGABRT") if said.contains("memory allocation of") => {
            let bytes = said
                .rsplit_once("memory allocation of")
                .and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
            let asked = match bytes {
                Some(bytes) => format!("{bytes} bytes at once"),
                None => "more".to_owned(),
            };
            format!("the cell ran out of memory: it asked for {asked} and did not get it")
        }
        Some("SIGABRT") => "the cell ended its process by an abort".to_owned(),
        Some(name @ ("SIGSEGV" | "SIGBUS" | "SIGILL" | "SIGFPE" | "SIGTRAP")) => format!(
            "the cell ended its process by a memory fault or the like ({name}): only `unsafe` code \
             and faulty libraries can do that"
        ),
        Some("SIGKILL") => "the cell's process was killed from outside (SIGKILL), most likely by \
                            the system because memory ran out"
            .to_owned(),
        Some(name) => format!("the cell's process was ended by the signal {name}"),
        None => {
            let code = status
                .trim_start_matches("exit status: ")
                .trim_start_matches("exit code: ");
            // A user's own exit with that code says nothing of the kind.
            let why = said.trim_end().lines().next_back().unwrap_or_default();
            if let Some(why) = why
                .strip_prefix(WHY)
                .filter(|_| code == CANNOT_GO_ON.to_string())
            {
                return format!("the compiled cell could not be loaded: {why}");
            }
            format!(
                "the cell ended its process with exit code {code}: `std::process::exit` ends the \
                 process in which all cells run"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_reason() {
        let told = |status: &str, line: &str| {
            explain(
                &format!("x\nSubprocess terminated with status: {status}"),
                line,
            )
            .value
        };
        for (status, line, part) in [
            ("signal: 11 (SIGSEGV)", "", "memory fault"),
            ("signal: 11 (SIGSEGV) (core dumped)", "", "(SIGSEGV)"),
            (
                "signal: 6 (SIGABRT)",
                "fatal runtime error: stack overflow, aborting",
                "a stack overflow",
            ),
            (
                "signal: 6 (SIGABRT)",
                "memory allocation of 70368744177664 bytes failed",
                "70368744177664 bytes at once",
            ),
            (
                "signal: 6 (SIGABRT)",
                "memory allocation of",
                "asked for more and",
            ),
            ("signal: 6 (SIGABRT)", "", "an abort"),
            ("signal: 9 (SIGKILL)", "", "memory ran out"),
            ("signal: 15 (SIGTERM)", "", "signal SIGTERM"),
            (
                "exit status: 99",
                "before\nThe cell's process cannot go on: libctx.so: undefined symbol\n",
                "could not be loaded: libctx.so: undefined symbol",
            ),
            ("exit status: 99", "", "exit code 99"),
            ("exit status: 3", "", "exit code 3"),
            ("3", "", "exit code 3"),
        ] {
            let told = told(status, line);
            assert!(told.contains(part), "{status}: {told}");
            assert!(told.ends_with(AFTERWARDS));
        }
    }
}
