//! The files of docs/clusters, with stand-ins for the programs that start ranks: `tests/clusters.sh`.

#[test]
fn the_files_for_clusters_start_stop_and_repeat_a_run() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clusters.sh");
    let output = std::process::Command::new("bash").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
