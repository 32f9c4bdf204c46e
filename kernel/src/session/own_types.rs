//! The definitions that a variable's type depends on.
//!
//! rustc takes two types of a session for the same if they and their fields have the same names. So a variable of the
//! first `struct P { x: i64 }` would be read as one of the second, `struct P { x: f64 }`. Therefore each variable is
//! stored with hashes of these definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use ra_ap_syntax::ast::{self, HasModuleItem, HasName};
use ra_ap_syntax::{AstNode, Edition, SourceFile, SyntaxKind, SyntaxNode, SyntaxToken};

/// A value of these types may be one of any type of the session.
const HIDING: [&str; 2] = ["Any", "Error"];
/// Derived implementations do not change a type.
const DERIVE: &str = "#[derive";

/// The items of a session that can change a type.
#[derive(Default)]
pub struct OwnTypes(BTreeMap<String, Definition>);

#[derive(Default)]
struct Definition {
    hash: DefaultHasher,
    /// The names in it.
    uses: BTreeSet<String>,
    /// Whether it is more than an import.
    own: bool,
}

impl OwnTypes {
    pub fn of(items: &str) -> Self {
        let mut types = Self::default();
        for item in SourceFile::parse(items, Edition::CURRENT).tree().items() {
            let (names, parts) = relevant(&item);
            for name in names {
                let definition = types.0.entry(name).or_default();
                definition.own |= !matches!(item, ast::Item::Use(_));
                parts.iter().flat_map(tokens).for_each(|token| definition.add(&token));
            }
        }
        types
    }

    /// Returns the names that the type `of` depends on, each with the hash of its definition; nothing if they are not of
    /// the session. A name without a definition in the session is listed too, because it may get one.
    pub fn behind(&self, of: &str) -> String {
        let is_own = |name: &str| self.0.get(name).is_some_and(|it| it.own);
        let words = words(of).filter(|name| is_own(name) || HIDING.contains(name));
        let mut open: Vec<&str> = words.collect();
        let mut found = BTreeMap::new();
        while let Some(name) = open.pop() {
            let definition = self.0.get(name);
            let hash = definition.map(|it| format!("{:x}", it.hash.finish()));
            if found.insert(name, hash.unwrap_or_default()).is_some() {
                continue;
            }
            open.extend(definition.into_iter().flat_map(|it| &it.uses).map(String::as_str));
            if HIDING.contains(&name) && !is_own(name) {
                open.extend(self.0.iter().filter(|(_, it)| it.own).map(|(name, _)| name.as_str()));
            }
        }
        let list = found.iter().map(|(name, hash)| format!("{name}:{hash}"));
        list.collect::<Vec<_>>().join(" ")
    }
}

impl Definition {
    fn add(&mut self, token: &SyntaxToken) {
        token.text().hash(&mut self.hash);
        if token.kind() == SyntaxKind::IDENT && may_refer(token) {
            self.uses.insert(token.text().to_owned());
        }
    }
}

/// Returns whether an identifier may name an item of the session: in a path only the first one does.
fn may_refer(token: &SyntaxToken) -> bool {
    let Some(parent) = token.parent() else {
        return false;
    };
    let path = parent.ancestors().nth(2).and_then(ast::Path::cast);
    match parent.kind() {
        SyntaxKind::TOKEN_TREE => true,
        SyntaxKind::NAME_REF => path.is_none_or(|path| {
            let listed = |it: SyntaxNode| it.kind() == SyntaxKind::USE_TREE_LIST;
            path.qualifier().is_none() && !path.syntax().ancestors().any(listed)
        }),
        _ => false,
    }
}

/// Returns the names whose types an item can change, and the parts of it that do so.
fn relevant(item: &ast::Item) -> (Vec<String>, Vec<SyntaxNode>) {
    let node = item.syntax().clone();
    let named =
        |name: Option<ast::Name>| name.map(|it| it.text().to_string()).into_iter().collect();
    match item {
        ast::Item::Struct(it) => (named(it.name()), vec![node]),
        ast::Item::Enum(it) => (named(it.name()), vec![node]),
        ast::Item::Union(it) => (named(it.name()), vec![node]),
        ast::Item::Trait(it) => (named(it.name()), vec![node]),
        ast::Item::TypeAlias(it) => (named(it.name()), vec![node]),
        ast::Item::Const(it) => (named(it.name()), vec![node]),
        ast::Item::Module(it) => (named(it.name()), vec![node]),
        ast::Item::MacroRules(it) => (named(it.name()), vec![node]),
        ast::Item::Fn(it) if it.const_token().is_some() => (named(it.name()), vec![node]),
        ast::Item::Use(_) => (node.descendants().filter_map(import).collect(), vec![node]),
        // It may define anything that it names.
        ast::Item::MacroCall(_) => (identifiers(&node), vec![node]),
        ast::Item::Impl(it) => {
            let of = [it.trait_(), it.self_ty()].into_iter().flatten();
            let names = of.flat_map(|of| identifiers(of.syntax())).collect();
            let members = it.assoc_item_list().into_iter().flat_map(|list| list.assoc_items());
            let parts = members.filter(|member| !matches!(member, ast::AssocItem::Fn(_)));
            let parts: Vec<_> = parts.map(|member| member.syntax().clone()).collect();
            if parts.is_empty() { Default::default() } else { (names, parts) }
        }
        _ => Default::default(),
    }
}

/// Returns the name that a part of a `use` brings in. `*` brings in none that hides another one.
fn import(node: SyntaxNode) -> Option<String> {
    let tree = ast::UseTree::cast(node)?;
    if tree.use_tree_list().is_some() || tree.star_token().is_some() {
        return None;
    }
    match tree.rename() {
        Some(rename) => Some(rename.name()?.text().to_string()),
        None => Some(tree.path()?.segment()?.name_ref()?.text().to_string()),
    }
}

fn identifiers(node: &SyntaxNode) -> Vec<String> {
    let identifiers = tokens(node).filter(|token| token.kind() == SyntaxKind::IDENT);
    identifiers.map(|token| token.text().to_owned()).collect()
}

/// Returns the tokens that mean something.
fn tokens(node: &SyntaxNode) -> impl Iterator<Item = SyntaxToken> + use<> {
    let tokens = node.descendants_with_tokens().filter_map(|it| it.into_token());
    tokens.filter(|token| {
        let derives = |it: SyntaxNode| {
            it.kind() == SyntaxKind::ATTR && it.text().to_string().starts_with(DERIVE)
        };
        !token.kind().is_trivia() && !token.parent_ancestors().any(derives)
    })
}

pub fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    let parts = text.split(|it: char| !it.is_alphanumeric() && it != '_');
    parts.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(before: &str, after: &str, of: &str) -> bool {
        let [before, after] = [before, after].map(|items| OwnTypes::of(items).behind(of));
        assert!(!before.is_empty());
        before == after
    }

    #[test]
    fn a_change_of_a_type_or_of_what_it_contains_is_noticed() {
        for (before, after, of) in [
            ("struct P { x: i64 }", "struct P { x: f64 }", "Vec<ctx::P>"),
            ("struct I(u8); struct P(I);", "struct I(i8); struct P(I);", "P"),
            (
                "const N: usize = 1; struct P([u8; N]);",
                "const N: usize = 2; struct P([u8; N]);",
                "P",
            ),
            ("struct P(String);", "type String = u8; struct P(String);", "P"),
            ("use a::A as B; struct P(B);", "use a::C as B; struct P(B);", "P"),
            ("trait T { fn a(&self); }", "trait T { fn b(&self); }", "Box<dyn T>"),
            (
                "struct I; impl T for I { type O = u8; } struct P(<I as T>::O);",
                "struct I; impl T for I { type O = i8; } struct P(<I as T>::O);",
                "P",
            ),
            (
                "macro_rules! m { ($n:ident) => { struct $n(u8); } } m!(P);",
                "macro_rules! m { ($n:ident) => { struct $n(i8); } } m!(P);",
                "P",
            ),
            ("mod a { pub struct P(u8); }", "mod a { pub struct P(i8); }", "a::P"),
            ("struct P(u8);", "struct P(i8);", "Box<dyn std::any::Any>"),
        ] {
            assert!(!same(before, after, of), "{before}");
        }
    }

    #[test]
    fn other_changes_keep_the_variables() {
        for after in [
            "#[derive(Debug)]\nstruct P {\n    // A number.\n    x: i64 }",
            "struct P { x: i64 } impl P { fn x(&self) -> i64 { self.x } }",
            "struct P { x: i64 } struct Q; fn x() {} use std::fmt::Debug;",
        ] {
            assert!(same("struct P { x: i64 }", after, "P"), "{after}");
        }
        let imported = "use std::collections::HashMap; struct P { m: HashMap<u8, a::b::C> }";
        for more in ["use std::collections::*;", "mod collections {}", "use d::{b, C};"] {
            assert!(same(imported, &format!("{imported} {more}"), "P"), "{more}");
        }
        assert_eq!(OwnTypes::of("struct P; use a::Vec;").behind("Vec<f32>"), "");
        assert_eq!(OwnTypes::of("struct (").behind("P"), "");
    }
}
