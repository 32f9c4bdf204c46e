//! How much memory this machine has to give.

use std::path::Path;

/// How many bytes can be had without swapping, where the system tells: of the machine, or of the
/// container's share where that is less.
pub fn free() -> Option<u64> {
    let machine = entry("/proc/meminfo", "MemAvailable:")?;
    Some(share(Path::new("/sys/fs/cgroup")).map_or(machine, |share| share.min(machine)))
}

/// The most memory that this process has used so far, in bytes, where the system tells.
pub fn peak() -> Option<u64> {
    entry("/proc/self/status", "VmHWM:")
}

/// The machine's memory in bytes, where the system tells.
pub fn total() -> Option<u64> {
    entry("/proc/meminfo", "MemTotal:")
}

/// What a file of the system says in kilobytes under `name`, in bytes.
fn entry(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// What a control group (version 2) has left; `None` where it has no limit.
fn share(group: &Path) -> Option<u64> {
    let bytes = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse().ok()
    };
    // What the group has read and written lies in the page cache and counts as used, but gives way.
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

/// A number of bytes for people: `1.5 GiB`, `320 MiB`.
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
    fn a_container_s_share_is_what_it_has_left() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(share(group.path()), None);
        std::fs::write(group.path().join("memory.current"), "3145728\n").unwrap();
        std::fs::write(group.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(share(group.path()), None);
        std::fs::write(group.path().join("memory.max"), "8388608\n").unwrap();
        assert_eq!(share(group.path()), Some(5 << 20));
        let stat = "anon 1048576\nfile 2097152\ninactive_file 1048576\nactive_file 524288\n";
        std::fs::write(group.path().join("memory.stat"), stat).unwrap();
        assert_eq!(share(group.path()), Some(13 << 19), "the cache gives way");
    }

    #[test]
    fn free_and_peak_memory_are_told_in_bytes() {
        if cfg!(target_os = "linux") {
            assert!((1 << 24..1 << 44).contains(&free().unwrap()));
            assert!((1 << 20..1 << 44).contains(&peak().unwrap()));
            assert!(total().unwrap() >= free().unwrap());
        }
    }

    #[test]
    fn bytes_are_rounded_for_people() {
        assert_eq!(format_bytes(320 << 20), "320 MiB");
        assert_eq!(format_bytes(3 << 29), "1.5 GiB");
    }
}
