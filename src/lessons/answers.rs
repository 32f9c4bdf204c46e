//! The answers with which a learner has passed exercises, and the code that a later lesson takes from
//! earlier ones.
//!
//! An answer is a file in the user's data folder, `answers/03.1.rs`: the items (functions, types,
//! constants) of the exercise's cell. A later lesson that builds on an exercise names it in a cell
//! `[yours]`. The cell brings the learner's code, or the lesson's solution if there is no answer, in a
//! module with everything that the code uses from that lesson:
//!
//! ```text
//! mod yours_03 {
//!     use …;                  the imports of lesson 03
//!     pub type Rows = …;      what the functions use
//!     pub fn scores(…) …
//! }
//! use yours_03::{scores};
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{GenericParam, Stmt, Visibility};

use super::format::{Cell, CellKind, Lesson};
use crate::error::{Error, Result};
use crate::files::{create_folder, data_folder, write_atomic};

/// An item of a cell: a function, a type, a constant, an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name; for an import or an `impl`, its text.
    pub name: String,
    /// Its text, with its documentation.
    pub code: String,
    /// Whether it is an import.
    pub is_use: bool,
    /// The names of types, constants and functions that it uses.
    mentions: BTreeSet<String>,
    /// Where `pub` must stand for other modules to see it and its fields, in bytes from its beginning.
    private: Vec<usize>,
}

/// Returns the items of a cell; statements are left out. Returns none if the code has a syntax error.
pub fn items(code: &str) -> Vec<Item> {
    const BEGIN: &str = "fn cell() {\n";
    let text = format!("{BEGIN}{code}\n}}");
    let Ok(cell) = syn::parse_str::<syn::ItemFn>(&text) else {
        return Vec::new();
    };
    let of_statement = |statement: &Stmt| match statement {
        Stmt::Item(item) => described(item, &text),
        _ => None,
    };
    cell.block.stmts.iter().filter_map(of_statement).collect()
}

fn described(item: &syn::Item, text: &str) -> Option<Item> {
    use syn::Item as I;
    let range = item.span().byte_range();
    let code = text.get(range.clone())?.to_owned();
    let hidden = |visibility: &Visibility, at: Span| match visibility {
        Visibility::Inherited => Some(at.byte_range().start - range.start),
        _ => None,
    };
    let named = |name: &Ident, visibility: &Visibility, keyword: Span| {
        (name.to_string(), hidden(visibility, keyword).into_iter().collect())
    };
    let (name, mut private): (String, Vec<usize>) = match item {
        I::Fn(it) => named(&it.sig.ident, &it.vis, it.sig.span()),
        I::Type(it) => named(&it.ident, &it.vis, it.type_token.span),
        I::Const(it) => named(&it.ident, &it.vis, it.const_token.span),
        I::Static(it) => named(&it.ident, &it.vis, it.static_token.span),
        I::Struct(it) => named(&it.ident, &it.vis, it.struct_token.span),
        I::Enum(it) => named(&it.ident, &it.vis, it.enum_token.span),
        I::Trait(it) => named(&it.ident, &it.vis, it.trait_token.span),
        _ => (code.clone(), Vec::new()),
    };
    if let I::Struct(it) = item {
        private.extend(it.fields.iter().filter_map(|field| {
            let at = field.ident.as_ref().map_or_else(|| field.ty.span(), Ident::span);
            hidden(&field.vis, at)
        }));
    }
    let mut mentions = BTreeSet::new();
    if let Ok(tokens) = code.parse() {
        names_in(tokens, &mut mentions);
    }
    let generics = match item {
        I::Fn(it) => Some(&it.sig.generics),
        I::Type(it) => Some(&it.generics),
        I::Struct(it) => Some(&it.generics),
        I::Enum(it) => Some(&it.generics),
        I::Trait(it) => Some(&it.generics),
        I::Impl(it) => Some(&it.generics),
        _ => None,
    };
    for parameter in generics.into_iter().flat_map(|generics| &generics.params) {
        match parameter {
            GenericParam::Type(it) => mentions.remove(&it.ident.to_string()),
            GenericParam::Const(it) => mentions.remove(&it.ident.to_string()),
            GenericParam::Lifetime(_) => false,
        };
    }
    Some(Item { name, is_use: matches!(item, I::Use(_)), code, mentions, private })
}

/// Collects the names of types and constants, and of functions that are called. Variables may have the
/// name of a function.
fn names_in(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: Option<usize>, sign: char| {
        let token = at.and_then(|at| tokens.get(at));
        matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == sign)
    };
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let called = match tokens.get(at + 1) {
                    Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
                    _ => is(Some(at + 1), ':') && is(Some(at + 2), ':'),
                };
                let of_value = is(at.checked_sub(1), '.');
                if !of_value && (called || name.starts_with(char::is_uppercase)) {
                    names.insert(name);
                }
            }
            TokenTree::Group(group) => names_in(group.stream(), names),
            _ => {}
        }
    }
}

impl Item {
    /// Returns the text with everything public.
    fn public(&self) -> String {
        let mut code = self.code.clone();
        for place in self.private.iter().rev() {
            code.insert_str(*place, "pub ");
        }
        code
    }
}

/// Returns the folder of the answers; `None` if the user has no data folder.
pub fn folder() -> Option<PathBuf> {
    data_folder().map(|folder| folder.join("answers"))
}

/// Keeps the answer with which an exercise was passed: `code`, of which the items count.
///
/// # Errors
/// If the file can't be written.
pub fn keep(id: &str, code: &str) -> Result<()> {
    match folder() {
        Some(folder) => keep_in(&folder, id, code),
        None => Ok(()),
    }
}

fn keep_in(folder: &Path, id: &str, code: &str) -> Result<()> {
    let items: Vec<String> = items(code).into_iter().map(|item| item.code).collect();
    if items.is_empty() {
        return Ok(());
    }
    create_folder(folder)?;
    write_atomic(&folder.join(format!("{id}.rs")), format!("{}\n", items.join("\n\n")).as_bytes())
}

/// Returns the learner's answer to an exercise, if one is kept.
///
/// # Errors
/// If the file exists and can't be read.
pub fn kept(id: &str) -> Result<Option<String>> {
    let Some(path) = folder().map(|folder| folder.join(format!("{id}.rs"))) else {
        return Ok(None);
    };
    match std::fs::read_to_string(&path) {
        Ok(code) => Ok(Some(code)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// Returns the names of the functions that a learner writes for an exercise.
pub fn functions(lesson: &Lesson, id: &str) -> Vec<String> {
    let cell = lesson.cells.iter().find(|cell| cell.exercise() == Some(id));
    let stub = cell.map(|cell| items(&cell.stub())).unwrap_or_default();
    let is_stub = |item: &Item| item.code.contains(&format!("cloze::exercise!(\"{id}\")"));
    stub.into_iter().filter(is_stub).map(|item| item.name).collect()
}

/// Returns the answer to an exercise from `cells`, a session's cells in order: the items of the last cell
/// that defines the exercise's functions, and the learner's own items in other cells that those use.
pub fn answer_in(lesson: &Lesson, id: &str, cells: &[String]) -> Option<String> {
    let wanted = functions(lesson, id);
    let given: BTreeSet<String> = lesson
        .cells
        .iter()
        .filter(|cell| cell.kind == CellKind::Code)
        .flat_map(|cell| items(&cell.solution()))
        .map(|item| item.name)
        .collect();
    // A later definition of a name takes the place of an earlier one.
    let mut defined = BTreeMap::new();
    let mut answer = None;
    for cell in cells {
        let items = items(cell);
        if items.iter().any(|item| wanted.contains(&item.name)) {
            answer = Some(items.clone());
        }
        defined.extend(items.into_iter().map(|item| (item.name.clone(), item)));
    }
    let mut answer = answer?;
    let mut at = 0;
    while at < answer.len() {
        for name in answer[at].mentions.clone() {
            let known = given.contains(&name) || answer.iter().any(|item| item.name == name);
            if let Some(helper) = defined.get(&name).filter(|_| !known) {
                answer.push(helper.clone());
            }
        }
        at += 1;
    }
    let code: Vec<String> = answer.into_iter().map(|item| item.code).collect();
    Some(code.join("\n\n"))
}

/// Code that a lesson takes from earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gathered {
    /// A module for each lesson, and an import of the functions.
    pub code: String,
    /// The exercises whose answer is the learner's.
    pub yours: Vec<String>,
    /// The exercises whose answer is the lesson's solution.
    pub given: Vec<String>,
}

impl Gathered {
    /// Reports which code is the learner's and which is the lessons'.
    pub fn summary(&self) -> String {
        let list = |ids: &[String]| ids.join(", ");
        match (self.yours.is_empty(), self.given.is_empty()) {
            (true, true) => "Nothing was taken from earlier lessons.".to_owned(),
            (false, true) => format!("Your own answers: {}.", list(&self.yours)),
            (true, false) => format!("The lessons' solutions: {}.", list(&self.given)),
            (false, false) => format!(
                "Your own answers: {}. The lessons' solutions, because you have not passed them yet: {}.",
                list(&self.yours),
                list(&self.given)
            ),
        }
    }
}

/// Gathers the code of these exercises; `answer` returns the learner's answer to one.
///
/// # Errors
/// If an exercise is unknown, or an answer can't be read.
pub fn gather(ids: &[String], answer: impl Fn(&str) -> Result<Option<String>>) -> Result<Gathered> {
    let mut found = Gathered::default();
    let numbers: BTreeSet<&str> = ids.iter().filter_map(|id| id.split('.').next()).collect();
    for number in numbers {
        let lesson = super::find(number)?;
        let of_lesson: Vec<&String> =
            ids.iter().filter(|id| id.split('.').next() == Some(number)).collect();
        let module = Module::of(&lesson, &of_lesson, &answer, &mut found)?;
        found.code += &module;
    }
    found.code.truncate(found.code.trim_end().len());
    Ok(found)
}

/// Returns a lesson's code as a script for a session. Each exercise has the learner's answer, or the
/// solution if there is no answer.
///
/// # Errors
/// If an answer can't be read.
pub fn script(lesson: &Lesson) -> Result<String> {
    let mut script = String::new();
    for cell in lesson.cells.iter().filter(|cell| cell.kind != CellKind::Markdown) {
        let answer = cell.exercise().map_or(Ok(None), kept)?;
        script += &match (cell.command(), answer) {
            (Some(command), _) => command,
            (None, Some(answer)) => with_answer(cell, &answer),
            (None, None) => cell.solution(),
        };
        script.push('\n');
    }
    Ok(script)
}

/// Returns an exercise's cell with the learner's answer in place of its functions; what else the cell
/// defines or runs stays.
fn with_answer(cell: &Cell, answer: &str) -> String {
    let mut code = cell.solution();
    for item in items(answer) {
        if let Some(own) = items(&code).iter().find(|own| own.name == item.name) {
            code = code.replace(&own.code, &item.code);
        } else {
            code = format!("{}\n\n{code}", item.code);
        }
    }
    code
}

/// A module under construction.
struct Module<'a> {
    lesson: &'a Lesson,
    items: Vec<Item>,
    taken: BTreeSet<usize>,
}

impl<'a> Module<'a> {
    fn of(
        lesson: &'a Lesson,
        ids: &[&String],
        answer: &impl Fn(&str) -> Result<Option<String>>,
        found: &mut Gathered,
    ) -> Result<String> {
        let mut module = Self { lesson, items: Vec::new(), taken: BTreeSet::new() };
        let mut functions = Vec::new();
        for id in ids {
            let place = lesson.cells.iter().position(|cell| cell.exercise() == Some(id));
            let Some(place) = place else {
                return Err(Error::Usage(format!("lesson {} has no exercise {id}", lesson.name)));
            };
            functions.extend(self::functions(lesson, id));
            module.take(place, answer, found)?;
        }
        // What these functions use: given code of the lesson, or answers to its other exercises.
        let cells: Vec<Vec<Item>> = lesson.cells.iter().map(code_items).collect();
        let mut at = 0;
        while at < module.items.len() {
            for name in module.items[at].mentions.clone() {
                let has = module.items.iter().any(|item| item.name == name);
                let place = cells.iter().position(|items| items.iter().any(|it| it.name == name));
                if let Some(place) = place.filter(|place| !has && !module.taken.contains(place)) {
                    let id = lesson.cells[place].exercise();
                    if id.is_some_and(|id| self::functions(lesson, id).contains(&name)) {
                        module.take(place, answer, found)?;
                    } else {
                        let item = cells[place].iter().find(|item| item.name == name);
                        module.items.extend(item.cloned());
                    }
                }
            }
            at += 1;
        }
        Ok(module.text(&cells, &functions))
    }

    /// Takes an exercise's cell, with the learner's answer if there is one.
    fn take(
        &mut self,
        place: usize,
        answer: &impl Fn(&str) -> Result<Option<String>>,
        found: &mut Gathered,
    ) -> Result<()> {
        if !self.taken.insert(place) {
            return Ok(());
        }
        let cell = &self.lesson.cells[place];
        let id = cell.exercise().unwrap_or_default();
        let (code, list) = match answer(id)? {
            Some(code) => (code, &mut found.yours),
            None => (cell.solution(), &mut found.given),
        };
        list.push(id.to_owned());
        // The lesson's own items of the cell, such as a type alias above the function, may be missing in
        // a learner's answer.
        for item in items(&code).into_iter().chain(items(&cell.solution())) {
            if !self.items.iter().any(|other| other.name == item.name) {
                self.items.push(item);
            }
        }
        Ok(())
    }

    fn text(&self, cells: &[Vec<Item>], functions: &[String]) -> String {
        let number = self.lesson.number();
        let mut uses: Vec<&str> = Vec::new();
        let imports = cells.iter().flatten().chain(&self.items).filter(|item| item.is_use);
        for item in imports {
            if !uses.contains(&&*item.code) {
                uses.push(&item.code);
            }
        }
        let mut lines = uses.join("\n");
        for item in self.items.iter().filter(|item| !item.is_use) {
            lines += "\n\n";
            lines += &item.public();
        }
        let body: Vec<String> = lines
            .trim()
            .lines()
            .map(|line| if line.is_empty() { String::new() } else { format!("    {line}") })
            .collect();
        let names = match functions {
            [one] => one.clone(),
            all => format!("{{{}}}", all.join(", ")),
        };
        format!(
            "#[rustfmt::skip]\n#[allow(dead_code, unused_imports)]\nmod yours_{number} {{\n{}\n}}\nuse yours_{number}::{names};\n",
            body.join("\n")
        )
    }
}

fn code_items(cell: &Cell) -> Vec<Item> {
    match cell.kind {
        CellKind::Code => items(&cell.solution()),
        CellKind::Markdown | CellKind::Yours => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons;

    fn names(code: &str) -> Vec<String> {
        items(code).into_iter().map(|item| item.name).collect()
    }

    #[test]
    fn the_items_of_a_cell_are_found_with_their_documentation() {
        let code = "use a::b;\n/// One.\nfn one() -> u8 { 1 }\nlet x = one();\nstruct Two { a: u8 }\nx + 1";
        assert_eq!(names(code), ["use a::b;", "one", "Two"]);
        let found = items(code);
        assert!(found[0].is_use && !found[1].is_use);
        assert_eq!(found[1].code, "/// One.\nfn one() -> u8 { 1 }");
        assert_eq!(found[1].public(), "/// One.\npub fn one() -> u8 { 1 }");
        assert_eq!(found[2].public(), "pub struct Two { pub a: u8 }");
        assert_eq!(names("fn broken( {"), [""; 0]);
        assert_eq!(
            items("pub struct A(pub u8, u16);")[0].public(),
            "pub struct A(pub u8, pub u16);"
        );
    }

    #[test]
    fn an_answer_is_kept_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("answers");
        keep_in(&folder, "03.1", "let x = 1;").unwrap();
        assert!(!folder.exists());
        for body in ["1", "2"] {
            keep_in(&folder, "03.1", &format!("fn f() -> u8 {{ {body} }}\nf();")).unwrap();
        }
        let text = std::fs::read_to_string(folder.join("03.1.rs")).unwrap();
        assert_eq!(text, "fn f() -> u8 { 2 }\n");
    }

    #[test]
    fn an_answer_brings_the_learner_s_own_helpers_and_nothing_of_the_lesson() {
        let lesson = lessons::find("03").unwrap();
        assert_eq!(functions(&lesson, "03.1"), ["scores"]);
        let cells = [
            "fn half(x: f32) -> f32 { x / 2.0 }",
            "type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;",
            "fn scores() { old() }",
            "fn scores() { half(1.0); let r: Rows<2>; }",
            "scores();",
        ]
        .map(str::to_owned);
        let answer = answer_in(&lesson, "03.1", &cells).unwrap();
        assert_eq!(names(&answer), ["scores", "half"]);
        assert!(!answer.contains("old"));
        assert_eq!(answer_in(&lesson, "03.2", &cells), None);
    }

    #[test]
    fn what_is_gathered_says_whose_it_is_and_has_what_it_uses() {
        let ids = ["03.5".to_owned(), "03.2".to_owned()];
        let mine = "fn weights(all: Grid, real: usize) -> Grid { all }";
        let answer = |id: &str| Ok((id == "03.2").then(|| mine.to_owned()));
        let found = gather(&ids, answer).unwrap();
        assert_eq!(
            (&*found.yours, &*found.given),
            (&["03.2".to_owned()][..], &["03.5".to_owned()][..])
        );
        // The type `Grid` stands in the cell of 03.1, whose function nothing uses.
        for part in [
            "mod yours_03 {",
            "pub fn weights(all: Grid",
            "pub fn multi_head",
            "pub type Grid",
            "use yours_03::{multi_head, weights};",
        ] {
            assert!(found.code.contains(part), "{part} is missing in\n{}", found.code);
        }
        assert!(!found.code.contains("fn scores"), "{}", found.code);
        assert!(syn::parse_file(&found.code).is_ok(), "{}", found.code);
        assert!(
            found.summary().starts_with("Your own answers: 03.2. The lessons'"),
            "{}",
            found.summary()
        );
        let error = gather(&["03.77".to_owned()], |_| Ok(None)).unwrap_err().to_string();
        assert!(error.contains("03.77"), "{error}");
    }
}
