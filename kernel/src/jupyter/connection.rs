//! The connection file: ports, and the key that proves that requests come from the user.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cloze::{Error, Result};
use jupyter_protocol::ConnectionInfo;

/// Reads the file that a front end has written, and logs a warning if others can open it too.
pub fn read(path: &Path) -> Result<ConnectionInfo> {
    let info = parse(path)?;
    let file = path.metadata().map_err(|source| Error::io(path, source))?;
    if let Some(warning) = warning(path, &file) {
        cloze::note!("cloze-kernel: {warning}");
    }
    Ok(info)
}

/// Reads the file without a warning.
pub fn parse(path: &Path) -> Result<ConnectionInfo> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    let info: ConnectionInfo = serde_json::from_str(&text).map_err(|error| {
        Error::file(path, format!("expected a Jupyter connection file: {error}"))
    })?;
    if info.signature_scheme != "hmac-sha256" {
        return Err(Error::file(
            path,
            format!("expected the signature scheme hmac-sha256, found {}", info.signature_scheme),
        ));
    }
    // Without a key, unsigned messages would be accepted.
    if info.key.is_empty() {
        return Err(Error::file(
            path,
            "expected a key for the signatures, found an empty one, with which whoever reaches \
             the ports could run code as you",
        ));
    }
    Ok(info)
}

/// Returns a warning if others may open the file: with its key they can run code as the user.
fn warning(path: &Path, file: &Metadata) -> Option<String> {
    let mode = file.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        format!(
            "warning: others may open {} (mode {mode:03o}), and with its key they can run code as \
             you: `chmod 600` it",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_key_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_with = |key: &str| {
            let text = format!(
                r#"{{"ip": "127.0.0.1", "transport": "tcp", "shell_port": 1, "iopub_port": 2,
                    "stdin_port": 3, "control_port": 4, "hb_port": 5, "key": "{key}",
                    "signature_scheme": "hmac-sha256"}}"#
            );
            std::fs::write(file.path(), text).unwrap();
            read(file.path()).map_err(|error| error.to_string())
        };
        assert_eq!(read_with("secret").unwrap().key, "secret");
        let refused = read_with("").unwrap_err();
        let name = file.path().display().to_string();
        assert!(refused.starts_with(&name), "{refused}");
        assert!(refused.contains("found an empty one"), "{refused}");
    }

    #[test]
    fn only_a_file_that_others_may_open_causes_a_warning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            file.as_file().set_permissions(permissions).unwrap();
            warning(file.path(), &file.as_file().metadata().unwrap())
        };
        assert_eq!(set(0o600), None);
        for mode in [0o644, 0o640, 0o602] {
            assert!(set(mode).unwrap().contains(&format!("{mode:o}")));
        }
    }
}
