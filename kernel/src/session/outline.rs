//! The sources that rust-analyzer reads, without what it does not need.
//!
//! evcxr's rust-analyzer loads the standard library, dfdx and Cloze to infer the types of a cell's
//! variables. Function bodies are half of that text, and the vendor intrinsics of `core::arch` are as
//! long as the rest of the standard library together. An outline has neither, and no private functions.
//! Signatures, types, traits and documentation stay. The first cell took 3.2 s of the evaluator's CPU time in place
//! of 7.1 s (2026-11-24, AMD EPYC).

use std::ops::Range;
use std::path::Path;

use cloze::{Error, Result};
use ra_ap_syntax::ast::HasVisibility;
use ra_ap_syntax::{AstNode, Edition, SourceFile, SyntaxKind, SyntaxNode, ast};

use super::tree::{copy_tree, name, sorted, write};
use crate::paths;

/// What stands in place of a body: it has every type.
const NO_BODY: &str = "{loop{}}";

/// The standard library's crates that cells can see.
const STANDARD_CRATES: [&str; 4] = ["alloc", "core", "proc_macro", "std"];
/// Modules of `core` that lie elsewhere, and what stays of them.
const STANDARD_PARTS: [(&str, &str); 2] = [
    ("stdarch/crates/core_arch/src/mod.rs", "pub mod arch {}\n"),
    ("portable-simd/crates/core_simd/src/mod.rs", "pub mod simd {}\n"),
];

/// Writes the outline of the standard library's sources in `library`, as the toolchain has them, to `to`.
pub fn write_standard_library(library: &Path, to: &Path) -> Result<()> {
    for name in STANDARD_CRATES {
        write_crate(&library.join(name), &to.join(name))?;
    }
    for (path, text) in STANDARD_PARTS {
        write(&to.join(path), text)?;
    }
    Ok(())
}

/// Writes the outline of the package in `from` to `to`: its manifest and its sources.
pub fn write_crate(from: &Path, to: &Path) -> Result<()> {
    let manifest = from.join("Cargo.toml");
    if manifest.exists() {
        copy_tree(&manifest, &to.join("Cargo.toml"))?;
    }
    write_folder(&from.join("src"), &to.join("src"))
}

fn write_folder(from: &Path, to: &Path) -> Result<()> {
    paths::create(to)?;
    for entry in sorted(from)? {
        let place = to.join(name(&entry));
        if entry.is_dir() {
            write_folder(&entry, &place)?;
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&entry).map_err(|source| Error::io(&entry, source))?;
            write(&place, &outline(&text))?;
        } else {
            copy_tree(&entry, &place)?;
        }
    }
    Ok(())
}

/// Returns the code without its private functions, without the bodies of the others, and without all but the
/// summaries of the documentation in its macros, which rust-analyzer reads again in each of their expansions. A
/// body stays if a type depends on it: that of a constant function, or of one that returns `impl Trait` or a
/// future.
fn outline(code: &str) -> String {
    let file = SourceFile::parse(code, Edition::Edition2024).tree();
    let mut cuts = Vec::new();
    for node in file.syntax().descendants() {
        if ast::MacroRules::can_cast(node.kind()) || ast::MacroDef::can_cast(node.kind()) {
            // Its rules; its own documentation stands before them.
            if let Some(rules) = node.last_child() {
                let range = rules.text_range();
                add_details(code, range.start().into()..range.end().into(), &mut cuts);
            }
        } else if let Some(function) = ast::Fn::cast(node) {
            let (cut, instead) = match function.body().filter(|_| !needs_body(&function)) {
                _ if is_private(&function) => (function.syntax().text_range(), ""),
                Some(body) => (body.syntax().text_range(), NO_BODY),
                None => continue,
            };
            cuts.push((cut.start().into()..cut.end().into(), instead));
        }
    }
    cuts.sort_by_key(|(range, _)| range.start);
    let mut outline = String::with_capacity(code.len());
    let mut done = 0;
    for (range, instead) in cuts {
        // A function may lie in another one's body.
        if range.start >= done {
            outline += &code[done..range.start];
            outline += instead;
            done = range.end;
        }
    }
    outline + &code[done..]
}

fn needs_body(function: &ast::Fn) -> bool {
    let is_impl = |node: SyntaxNode| node.kind() == SyntaxKind::IMPL_TRAIT_TYPE;
    let returned = function.ret_type();
    let returns_impl = returned.is_some_and(|it| it.syntax().descendants().any(is_impl));
    function.const_token().is_some() || function.async_token().is_some() || returns_impl
}

/// Returns whether a function can only be named in its own crate. Those of a trait have its visibility, and
/// constants may call a constant function.
fn is_private(function: &ast::Fn) -> bool {
    let of_module_or_type = function.syntax().parent().is_some_and(|list| match list.kind() {
        SyntaxKind::SOURCE_FILE | SyntaxKind::ITEM_LIST => true,
        SyntaxKind::ASSOC_ITEM_LIST => {
            let of = list.parent().and_then(ast::Impl::cast);
            of.is_some_and(|it| it.trait_().is_none())
        }
        _ => false,
    });
    let is_public = function.visibility().is_some_and(|it| it.syntax().text() == "pub");
    of_module_or_type && !is_public && function.const_token().is_none()
}

/// Adds the lines of documentation after each first paragraph in a part of the code.
fn add_details(code: &str, part: Range<usize>, cuts: &mut Vec<(Range<usize>, &str)>) {
    let mut start = part.start;
    let mut is_detail = false;
    for line in code[part].split_inclusive('\n') {
        let end = start + line.len();
        let bare = line.trim();
        if bare.starts_with("///") || (bare.starts_with("#[doc =") && bare.ends_with(']')) {
            is_detail |= bare == "///";
            if is_detail {
                cuts.push((start..end, ""));
            }
        } else {
            is_detail = false;
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_go_unless_a_type_depends_on_them() {
        let code = "\
/// Adds.
pub fn add(a: u32, b: u32) -> u32 { fn inner() {} a + b }
const fn size() -> usize { 3 }
pub async fn later() -> u32 { 1 }
pub fn all() -> impl Iterator<Item = u32> { fn inner() {} 0..3 }
trait Named { fn name(&self) -> String { String::new() } fn id(&self) -> u32; }
impl Named for u8 { fn id(&self) -> u32 { let s = \"}\"; 7 } }
";
        let expected = "\
/// Adds.
pub fn add(a: u32, b: u32) -> u32 {loop{}}
const fn size() -> usize { 3 }
pub async fn later() -> u32 { 1 }
pub fn all() -> impl Iterator<Item = u32> { fn inner() {loop{}} 0..3 }
trait Named { fn name(&self) -> String {loop{}} fn id(&self) -> u32; }
impl Named for u8 { fn id(&self) -> u32 {loop{}} }
";
        assert_eq!(outline(code), expected);
        assert_eq!(outline(expected), expected);
    }

    #[test]
    fn private_functions_go() {
        let code = "\
/// Private.
#[inline]
fn a() {}
pub(crate) fn b() {}
const fn c() {}
mod m { fn d() {} pub fn e() {loop{}} }
impl S { /// Private.
 fn f() {} pub fn g() {loop{}} }
extern \"C\" { fn h(); }
macro_rules! i { () => { fn j() {} } }
k! { fn l() {} }
";
        let expected = code
            .replace("/// Private.\n#[inline]\nfn a() {}", "")
            .replace("pub(crate) fn b() {}", "")
            .replace("fn d() {}", "")
            .replace("/// Private.\n fn f() {}", "");
        assert_eq!(outline(code), expected);
    }

    #[test]
    fn of_a_macro_s_documentation_the_summaries_stay() {
        let code = "\
/// Outside.
///
/// All of it stays.
macro_rules! numbers {
    ($name:ident) => {
        /// The largest
        #[doc = concat!(\"(\", stringify!($name), \").\")]
        ///
        /// # Examples
        #[doc = concat!(\"x\")]
        #[inline]
        /// The smallest.
        const MIN: $name = 0;
    };
}
";
        let expected = code
            .replace("        ///\n        /// # Examples\n", "")
            .replace("        #[doc = concat!(\"x\")]\n", "");
        assert_eq!(outline(code), expected);
    }

    #[test]
    fn a_package_is_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        let files = [
            ("Cargo.toml", "[package]", "[package]"),
            ("src/lib.rs", "mod part; pub fn f() { g() }", "mod part; pub fn f() {loop{}}"),
            ("src/part/mod.rs", "pub struct S;", "pub struct S;"),
            ("src/part/note.txt", "fn f() { g() }", "fn f() { g() }"),
        ];
        for (path, text, _) in files {
            write(&from.join(path), text).unwrap();
        }
        write_crate(&from, &to).unwrap();
        for (path, _, outline) in files {
            assert_eq!(std::fs::read_to_string(to.join(path)).unwrap(), outline);
        }
    }
}
