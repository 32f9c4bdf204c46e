//! The connection file: ports, and the key by which requests are known to be the user's.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cloze::{Error, Result, note};
use jupyter_protocol::ConnectionInfo;

/// Reads the file that a front end has written; a file that others can read is told of in the log.
pub fn read(path: &Path) -> Result<ConnectionInfo> {
    let failed = |source| Error::io(path, source);
    let mut file = File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let info: ConnectionInfo = serde_json::from_str(&text).map_err(|error| {
        Error::file(path, format!("expected a Jupyter connection file: {error}"))
    })?;
    if info.signature_scheme != "hmac-sha256" {
        return Err(Error::file(
            path,
            format!(
                "expected the signature scheme hmac-sha256, found {}",
                info.signature_scheme
            ),
        ));
    }
    if info.key.is_empty() {
        return Err(Error::file(
            path,
            "the key is empty, so anybody who can reach the ports could run code as you; expected a \
             secret",
        ));
    }
    if let Some(warning) = warning(path, &file.metadata().map_err(failed)?) {
        note!("cloze-kernel: {warning}");
    }
    Ok(info)
}

/// Whoever has the key can run code as the user.
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
    fn an_empty_key_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = |key: &str| {
            let info = serde_json::json!({
                "ip": "127.0.0.1", "transport": "tcp", "shell_port": 1, "iopub_port": 2,
                "stdin_port": 3, "control_port": 4, "hb_port": 5, "key": key,
                "signature_scheme": "hmac-sha256",
            });
            std::fs::write(file.path(), info.to_string()).unwrap();
            read(file.path()).map(|info| info.key)
        };
        assert_eq!(with("secret").unwrap(), "secret");
        let message = with("").unwrap_err().to_string();
        let name = file.path().display().to_string();
        assert!(
            message.starts_with(&name) && message.contains("the key is empty"),
            "{message}"
        );
    }

    #[test]
    fn only_a_file_that_others_may_open_is_warned_of() {
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
