//! The memory of this machine and of this process. Each number is `None` if the system doesn't report it.
//!
//! Linux reports in `/proc`, macOS by its programs `sysctl`, `vm_stat` and `ps`.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns how many bytes can be allocated without swapping: the machine's, or what is left of the
/// container's limit if that is less.
pub fn free() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return free_pages(&answer("vm_stat", &[])?);
    }
    let machine = entry("/proc/meminfo", "MemAvailable:")?;
    let container = left_of_limit(Path::new("/sys/fs/cgroup"));
    Some(container.map_or(machine, |left| left.min(machine)))
}

/// Returns the peak memory of this process so far, in bytes; on macOS, which reports no peak to another program,
/// the memory that it holds now.
pub fn peak() -> Option<u64> {
    if cfg!(target_os = "macos") {
        let process = std::process::id().to_string();
        let kilobytes: u64 = answer("ps", &["-o", "rss=", "-p", &process])?.trim().parse().ok()?;
        return Some(kilobytes << 10);
    }
    entry("/proc/self/status", "VmHWM:")
}

/// Returns the machine's total memory in bytes.
pub fn total() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return sysctl("hw.memsize")?.parse().ok();
    }
    entry("/proc/meminfo", "MemTotal:")
}

/// Returns a value of macOS's kernel.
pub fn sysctl(name: &str) -> Option<String> {
    Some(answer("sysctl", &["-n", name])?.trim().to_owned())
}

/// Returns what a program of the system prints, if it is there and succeeds.
fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the bytes of the pages that macOS can give away, of the answer of `vm_stat`: those that are free, and those
/// that nobody has used for a time.
fn free_pages(answer: &str) -> Option<u64> {
    let size: u64 = answer.split_once("page size of ")?.1.split(' ').next()?.parse().ok()?;
    let pages = |name: &str| -> Option<u64> {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches('.').parse().ok()
    };
    Some((pages("Pages free")? + pages("Pages inactive")? + pages("Pages speculative")?) * size)
}

/// Reads the entry `name` of a system file and converts it from kilobytes to bytes.
fn entry(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Returns what is left of a control group's limit (version 2); `None` if it has no limit.
fn left_of_limit(group: &Path) -> Option<u64> {
    let bytes = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse().ok()
    };
    // The page cache of the group's files counts as used, but is freed on demand.
    let text = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = |line: &str| -> Option<u64> {
        let (name, bytes) = line.split_once(' ')?;
        let cache = ["inactive_file", "active_file"].contains(&name);
        cache.then(|| bytes.trim().parse().ok()).flatten()
    };
    let cache: u64 = text.lines().filter_map(cached).sum();
    let used = bytes("memory.current")?.saturating_sub(cache);
    Some(bytes("memory.max")?.saturating_sub(used))
}

/// Formats a number of bytes: `1.5 GiB`, `320 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes >= 1024.0 {
        format!("{:.1} GiB", mebibytes / 1024.0)
    } else {
        format!("{mebibytes:.0} MiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_container_s_limit_excludes_its_cache() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(left_of_limit(group.path()), None);
        std::fs::write(group.path().join("memory.current"), "3145728\n").unwrap();
        std::fs::write(group.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(left_of_limit(group.path()), None);
        std::fs::write(group.path().join("memory.max"), "8388608\n").unwrap();
        assert_eq!(left_of_limit(group.path()), Some(5 << 20));
        let stat = "anon 1048576\nfile 2097152\ninactive_file 1048576\nactive_file 524288\n";
        std::fs::write(group.path().join("memory.stat"), stat).unwrap();
        assert_eq!(left_of_limit(group.path()), Some(13 << 19));
    }

    #[test]
    fn memory_is_reported_in_bytes() {
        if cfg!(any(target_os = "linux", target_os = "macos")) {
            assert!((1 << 24..1 << 44).contains(&free().unwrap()));
            assert!((1 << 20..1 << 44).contains(&peak().unwrap()));
            assert!(total().unwrap() >= free().unwrap());
        }
    }

    /// In the format of macOS's vm_stat.
    #[test]
    fn free_pages_are_those_that_can_be_given_away() {
        let answer = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n\
                      Pages free:                               11021.\n\
                      Pages active:                            413310.\n\
                      Pages inactive:                          405402.\n\
                      Pages speculative:                         7291.\n\
                      Pages throttled:                              0.\n";
        assert_eq!(free_pages(answer), Some((11_021 + 405_402 + 7_291) << 14));
        assert_eq!(free_pages("Mach Virtual Memory Statistics:\n"), None);
    }

    #[test]
    fn a_program_that_is_missing_or_fails_has_no_answer() {
        assert_eq!(answer("sh", &["-c", "echo 12"]).as_deref(), Some("12\n"));
        assert_eq!(answer("sh", &["-c", "echo 12; exit 1"]), None);
        assert_eq!(answer("no-such-program-of-the-system", &[]), None);
    }

    #[test]
    fn bytes_are_formatted_with_a_unit() {
        assert_eq!(format_bytes(320 << 20), "320 MiB");
        assert_eq!(format_bytes(3 << 29), "1.5 GiB");
    }
}
