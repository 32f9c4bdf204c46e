//! Standard output that is closed or full, and messages with escape sequences.

use std::process::Stdio;

use crate::common::{Folder, assert_contains, cloze, fails, stderr, text};

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux has /dev/full")]
fn a_closed_or_full_output_is_no_panic() {
    for command in [&["data", "list"][..], &["lessons", "list"], &["bench", "estimate", "--paper"]]
    {
        let mut piped = cloze();
        piped.args(command).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let message = stderr(&output);
        assert!(output.status.success() && message.is_empty(), "{command:?}: {message}");

        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = cloze().args(command).stdout(full).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {message}");
        assert!(message.starts_with("error: stdout: "), "{command:?}: {message}");
    }
}

/// Escape sequences in the name or the text of a file are escaped.
#[test]
fn messages_do_not_control_the_terminal() {
    let folder = Folder::new();
    let name = "\u{1b}]0;title\u{7}\u{1b}[2J.txt";
    let message = fails(["tokenize", "--vocab", name], 1);
    assert_contains(&message, "\\u{1b}]0;title\\u{7}\\u{1b}[2J.txt");
    folder.write("rows.tsv", "text\tlabel\nfine\tgood\nfine\t\u{1b}[31mbad\n");
    let (file, out) = (folder.path("rows.tsv"), folder.path("out"));
    let mut command = cloze();
    command.args(["finetune", "custom", "--columns", "text,\u{1b}[31mlabel"]);
    command.args(["--train", text(&file), "--dev", text(&file), "--out", text(&out)]);
    let output = command.output().unwrap();
    assert!(!output.status.success() && !output.stderr.contains(&0x1b));
}
