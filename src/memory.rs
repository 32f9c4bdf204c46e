//! The memory of this machine and of this process. Each number is `None` if the system doesn't report it.

use std::path::Path;

/// Returns how many bytes can be allocated without swapping: the machine's, or what is left of the
/// container's limit if that is less.
pub fn free() -> Option<u64> {
    let machine = entry("/proc/meminfo", "MemAvailable:")?;
    let container = left_of_limit(Path::new("/sys/fs/cgroup"));
    Some(container.map_or(machine, |left| left.min(machine)))
}

/// Returns the peak memory of this process so far, in bytes.
pub fn peak() -> Option<u64> {
    entry("/proc/self/status", "VmHWM:")
}

/// Returns the machine's total memory in bytes.
pub fn total() -> Option<u64> {
    entry("/proc/meminfo", "MemTotal:")
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
        if cfg!(target_os = "linux") {
            assert!((1 << 24..1 << 44).contains(&free().unwrap()));
            assert!((1 << 20..1 << 44).contains(&peak().unwrap()));
            assert!(total().unwrap() >= free().unwrap());
        }
    }

    #[test]
    fn bytes_are_formatted_with_a_unit() {
        assert_eq!(format_bytes(320 << 20), "320 MiB");
        assert_eq!(format_bytes(3 << 29), "1.5 GiB");
    }
}
