//! Explains why the process of a cell has ended.

use super::CellError;
use super::child::{CANNOT_CONTINUE, REASON};

/// What a lost process means, and what to do.
pub const AFTERWARDS: &str = "All variables are lost: a new process is ready, and `:replay` runs the cells again that defined something.";

const KILLED: &str = "terminated with signal 9.";

/// Returns the error of a cell whose process ended with `status` (evcxr's text). `stderr` is the end of
/// its standard error.
pub fn explain(status: &str, stderr: &str) -> CellError {
    let status = status.rsplit_once("status: ").map_or(status, |(_, status)| status);
    let reason = reason(status.trim(), stderr);
    CellError::new("crash", &format!("{reason}. {AFTERWARDS}"))
}

fn reason(status: &str, stderr: &str) -> String {
    // `signal: 11 (SIGSEGV) (core dumped)`, but evcxr has a sentence of its own for SIGKILL on macOS.
    let killed = status.contains(KILLED).then_some("SIGKILL");
    let signal = killed.or_else(|| Some(status.split_once('(')?.1.split_once(')')?.0));
    match signal {
        Some("SIGABRT") if stderr.contains("stack overflow") => {
            "the cell ended its process by a stack overflow: a function calls itself without end, \
             or a large array lives on the stack (a Vec does not)"
                .to_owned()
        }
        Some("SIGABRT") if stderr.contains("memory allocation of") => {
            let bytes = stderr
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
            let code = status.trim_start_matches("exit status: ").trim_start_matches("exit code: ");
            let last = stderr.trim_end().lines().next_back().unwrap_or_default();
            // The user's own code may exit with that code too, but prints no such line.
            let why = last.strip_prefix(REASON);
            match why.filter(|_| code == CANNOT_CONTINUE.to_string()) {
                Some(why) => format!("the compiled cell could not be loaded: {why}"),
                None => format!(
                    "the cell ended its process with exit code {code}: `std::process::exit` ends \
                     the process in which all cells run"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_reason() {
        let overflow = "fatal runtime error: stack overflow, aborting";
        let memory = "memory allocation of 70368744177664 bytes failed";
        let unloadable = format!("before\n{REASON}libctx.so: undefined symbol\n");
        for (status, stderr, part) in [
            ("signal: 11 (SIGSEGV)", "", "memory fault"),
            ("signal: 11 (SIGSEGV) (core dumped)", "", "(SIGSEGV)"),
            ("signal: 6 (SIGABRT)", overflow, "a stack overflow"),
            ("signal: 6 (SIGABRT)", memory, "70368744177664 bytes at once"),
            ("signal: 6 (SIGABRT)", "memory allocation of", "asked for more and"),
            ("signal: 6 (SIGABRT)", "", "an abort"),
            ("signal: 9 (SIGKILL)", "", "memory ran out"),
            ("Subprocess terminated with signal 9. This is known to happen", "", "memory ran out"),
            ("signal: 15 (SIGTERM)", "", "signal SIGTERM"),
            ("exit status: 99", &unloadable, "could not be loaded: libctx.so: undefined symbol"),
            ("exit status: 99", "", "exit code 99"),
            ("exit status: 3", "", "exit code 3"),
            ("3", "", "exit code 3"),
        ] {
            let status = format!("x\nSubprocess terminated with status: {status}");
            let value = explain(&status, stderr).value;
            assert!(value.contains(part), "{status}: {value}");
            assert!(value.ends_with(AFTERWARDS));
        }
    }
}
