//! Process groups. The child leads one, and so does each of the shell's commands: what they have
//! started ends with them, and does not go on holding the session's pipes.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Ends what is left of the group that `leader` leads, or led while it lived.
pub fn end(leader: u32) {
    signal(leader, Signal::SIGKILL);
}

/// Sends a signal to every process of the group.
pub fn signal(leader: u32, signal: Signal) {
    // 0 would be this process's own group, and 1 all processes there are.
    if let Ok(leader @ 2..) = i32::try_from(leader) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(leader), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_process_has_started_ends_with_it_also_when_it_has_ended_itself() {
        for script in ["sleep 60 & echo started; wait", "sleep 60 & echo started"] {
            let started = Instant::now();
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            let mut child = command.process_group(0).spawn().unwrap();
            let mut output = child.stdout.take().unwrap();
            let mut said = [0; 8];
            output.read_exact(&mut said).unwrap();
            if !script.ends_with("wait") {
                child.wait().unwrap();
            }
            end(child.id());
            // The pipe has its end where no process holds it any more.
            assert_eq!(output.read(&mut [0; 8]).unwrap(), 0);
            child.wait().unwrap();
            assert!(started.elapsed() < Duration::from_secs(30), "{script}");
        }
    }
}
