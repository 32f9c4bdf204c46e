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
    // It may have ended by itself.
    let _ = send(leader, Some(signal));
}

/// Returns whether the group has a process.
fn exists(leader: u32) -> bool {
    send(leader, None).is_ok()
}

fn send(leader: u32, signal: Option<Signal>) -> nix::Result<()> {
    match i32::try_from(leader) {
        Ok(leader @ 2..) => killpg(Pid::from_raw(leader), signal),
        // 0 would mean this process's own group, and 1 all processes.
        _ => Err(nix::errno::Errno::ESRCH),
    }
}

/// The groups whose leaders have ended before all of their processes. Those are killed with this list.
#[derive(Default)]
pub struct Left(Vec<u32>);

impl Left {
    /// Notes the group of a leader that has ended, if a process of it still runs.
    pub fn note(&mut self, leader: u32) {
        self.0.push(leader);
        // The number of a group without processes may be given to another one.
        self.0.retain(|leader| exists(*leader));
    }

    /// Kills what is left of these groups.
    pub fn kill(&mut self) {
        self.0.drain(..).for_each(kill);
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.kill();
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
    fn what_runs_in_the_background_ends_with_the_list() {
        let begun = |script: &str| {
            let mut command = Command::new("sh");
            let mut child = command.args(["-c", script]).process_group(0).spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let (runs, over) = (begun("sleep 60 &"), begun("true"));
        let mut left = Left::default();
        left.note(over);
        left.note(runs);
        assert_eq!(left.0, [runs]);
        drop(left);
        let started = Instant::now();
        while exists(runs) {
            assert!(started.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

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
