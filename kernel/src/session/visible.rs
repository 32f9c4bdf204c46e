//! What cells see of Cloze: packages that consist of outlines, for rust-analyzer.
//!
//! To infer the types of a cell's variables, evcxr's rust-analyzer expands and indexes every crate that
//! `cargo metadata` lists. With all that Cloze depends on these would be some 150, of which cells can name only a
//! few. Therefore a session's crate depends on packages of the template: the sources of the crates that cells can
//! name, without bodies, with manifests that name no other crate. So a session reads nothing in cargo's registry,
//! which is empty for most users of a shared template.

use std::path::Path;

use cloze::{Error, Result};
use serde_json::Value;

use super::layout;
use super::outline;
use super::tree::write;

/// The packages of Cloze that cells see: its own, the tensors, the half-precision types in them, and
/// progress bars.
const VISIBLE: [&str; 5] = ["cloze-session", "cloze", "dfdx", "half", "indicatif"];

/// Writes the visible ones of the packages in cargo's `metadata` to `folder`.
pub fn write_packages(metadata: &Value, folder: &Path) -> Result<()> {
    let packages: Vec<&Value> = entries(&metadata["packages"])
        .filter(|package| VISIBLE.contains(&text(&package["name"])))
        .collect();
    for package in &packages {
        let mut nodes = entries(&metadata["resolve"]["nodes"]);
        let node = nodes.find(|node| node["id"] == package["id"]);
        let from = Path::new(text(&package["manifest_path"])).parent();
        let (Some(node), Some(from)) = (node, from) else {
            let name = text(&package["name"]);
            return Err(Error::Failed(format!("`cargo metadata` does not describe {name}")));
        };
        let to = folder.join(name(package));
        outline::write_crate(from, &to)?;
        write(&to.join("Cargo.toml"), &manifest(package, node, &packages).to_string())?;
    }
    Ok(())
}

/// Returns a manifest with the features that Cloze uses, all of them by default, and the visible dependencies.
fn manifest(package: &Value, node: &Value, visible: &[&Value]) -> toml::Table {
    let of_package = ["name", "version", "edition"]
        .map(|key| (key.to_owned(), toml::Value::from(text(&package[key]))));
    let features: Vec<&str> =
        entries(&node["features"]).map(text).filter(|name| *name != "default").collect();
    let nothing = || toml::Value::Array(Vec::new());
    let mut of_features: toml::Table =
        features.iter().map(|name| ((*name).to_owned(), nothing())).collect();
    of_features.insert("default".to_owned(), features.into());
    let dependencies = entries(&node["deps"]).filter_map(|dependency| {
        let of = visible.iter().find(|package| package["id"] == dependency["pkg"])?;
        let place = toml::Table::from_iter([
            ("package".to_owned(), text(&of["name"]).into()),
            ("path".to_owned(), format!("../{}", name(of)).into()),
        ]);
        Some((text(&dependency["name"]).to_owned(), place.into()))
    });
    let dependencies: toml::Table = dependencies.collect();
    let parts = [
        ("package", toml::Table::from_iter(of_package)),
        ("features", of_features),
        ("dependencies", dependencies),
    ];
    parts.into_iter().map(|(name, part)| (name.to_owned(), part.into())).collect()
}

/// Returns the name of a package's folder.
fn name(package: &Value) -> String {
    layout::package(text(&package["name"]), text(&package["version"]))
}

fn entries(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_package_has_the_features_that_cloze_uses_and_no_dependency_that_cells_cannot_see() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        write(&source.join("src/lib.rs"), "pub fn f() -> u8 { 1 }\n").unwrap();
        let graph = [
            ("cloze-session", vec!["cloze"]),
            ("cloze", vec!["dfdx", "clap"]),
            ("dfdx", vec!["rand"]),
            ("clap", vec![]),
            ("rand", vec![]),
        ];
        let packages = graph.iter().map(|(name, _)| {
            let manifest = source.join("Cargo.toml");
            json!({"id": name, "name": name, "version": "1.0.0", "edition": "2021",
                   "manifest_path": manifest})
        });
        let nodes = graph.iter().map(|(name, needs)| {
            let needs = needs.iter().map(|need| json!({"name": need, "pkg": need}));
            json!({"id": name, "features": ["default", "std"], "deps": needs.collect::<Vec<_>>()})
        });
        let metadata = json!({
            "packages": packages.collect::<Vec<_>>(),
            "resolve": {"nodes": nodes.collect::<Vec<_>>()},
        });
        let outlines = folder.path().join("outlines");
        write_packages(&metadata, &outlines).unwrap();
        let text = |path: &str| std::fs::read_to_string(outlines.join(path)).unwrap();
        assert!(text("dfdx-1.0.0/src/lib.rs").contains("pub fn f() -> u8 {loop{}}"));
        assert!(!outlines.join("clap-1.0.0").exists());

        // Cargo itself understands the packages, without any registry.
        let manifest = outlines.join("cloze-session-1.0.0/Cargo.toml");
        let output = std::process::Command::new("cargo")
            .args(["metadata", "--offline", "--format-version=1", "--manifest-path"])
            .arg(manifest)
            .env("CARGO_HOME", folder.path().join("empty"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        let nodes: Vec<_> = entries(&read["resolve"]["nodes"]).collect();
        assert_eq!(nodes.len(), 3);
        for node in nodes {
            assert_eq!(node["features"], json!(["default", "std"]));
        }
    }
}
