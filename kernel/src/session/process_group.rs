//! Process groups. The child leads one, and so does each shell command, so that the processes that they
//! have started end with them and do not keep the session's pipes open.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Kills what is left of the group that `leader` leads or led.
pub fn kill(leader: u32) {
    signal(leader, Signal::SIGKILL);
}

/// Sends a signal to every process of the group.
pub fn signal(leader: u32, signal: Signal) {
    // 0 would mean this process's own group, and 1 all processes.
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
    fn a_group_is_killed_even_if_its_leader_has_ended() {
        for script in ["sleep 60 & echo started; wait", "sleep 60 & echo started"] {
            let started = Instant::now();
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            let mut child = command.process_group(0).spawn().unwrap();
            let mut output = child.stdout.take().unwrap();
            output.read_exact(&mut [0; 8]).unwrap();
            if !script.ends_with("wait") {
                child.wait().unwrap();
            }
            kill(child.id());
            // The pipe ends when no process holds it open any more.
            assert_eq!(output.read(&mut [0; 8]).unwrap(), 0);
            child.wait().unwrap();
            assert!(started.elapsed() < Duration::from_secs(30), "{script}");
        }
    }
}
