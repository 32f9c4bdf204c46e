//! The answers with which a learner has passed exercises, and the code that a later lesson takes from
//! earlier ones.
//!
//! An answer is a file in the user's data folder, `answers/scores.rs`, named by the exercise's key. It holds
//! the items (functions, types, constants) of the exercise's cell. A later lesson that builds on an exercise names it in a cell
//! `[yours]`. The cell brings the learner's code, or the lesson's solution if there is no answer, in a
//! module with everything that the code uses from its lesson, and from the earlier lessons on which that one
//! builds:
//!
//! ```text
//! mod yours_06 {
//!     pub mod heads {
//!         use …;                  the imports of lesson 05
//!         pub type Batch = …;     what the functions use
//!         pub fn multi_head(…) …
//!     }
//!     pub mod encoder {
//!         use super::heads::multi_head;
//!         pub fn encoder_layer(…) …
//!     }
//! }
//! use yours_06::encoder::encoder_layer;
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{GenericParam, Stmt, Visibility};

use super::declared;
use super::format::{Cell, CellKind, Lesson};
use super::review;
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
        Some(folder) => keep_in(&folder, &declared(id).key, code),
        None => Ok(()),
    }
}

fn keep_in(folder: &Path, key: &str, code: &str) -> Result<()> {
    let items: Vec<String> = items(code).into_iter().map(|item| item.code).collect();
    if items.is_empty() {
        return Ok(());
    }
    create_folder(folder)?;
    write_atomic(&folder.join(format!("{key}.rs")), format!("{}\n", items.join("\n\n")).as_bytes())
}

/// Returns the learner's answer to an exercise, if one is kept.
///
/// # Errors
/// If the file exists and can't be read.
pub fn kept(id: &str) -> Result<Option<String>> {
    let Some(folder) = folder() else {
        return Ok(None);
    };
    let exercise = declared(id);
    for name in [Some(exercise.key), exercise.was].into_iter().flatten() {
        let path = folder.join(format!("{name}.rs"));
        match std::fs::read_to_string(&path) {
            Ok(code) => return Ok(Some(code)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(path, error)),
        }
    }
    Ok(None)
}

/// Returns the names of the functions that a learner writes for an exercise.
pub fn functions(lesson: &Lesson, id: &str) -> Vec<String> {
    let cell = lesson.cells.iter().find(|cell| cell.exercise() == Some(id));
    let stub = cell.map(|cell| items(&cell.stub())).unwrap_or_default();
    let is_stub = |item: &Item| item.code.contains(&format!("cloze::exercise!(\"{id}\")"));
    stub.into_iter().filter(is_stub).map(|item| item.name).collect()
}

/// Returns the answer to an exercise from `cells`, a session's cells in order: the items of the last cell
/// that defines the exercise's functions, and the learner's own items in other cells that those use. Returns `None`
/// if there is no such cell, or if its code is the lesson's own solution.
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
    if answer.iter().any(|item| item.code.contains("cloze::solution!(")) {
        return None;
    }
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

/// The code that is taken from one lesson.
#[derive(Debug, Clone, PartialEq)]
pub struct LessonCode {
    /// The lesson.
    pub lesson: Lesson,
    /// Imports and items.
    pub code: String,
    /// The exercises whose answer is the learner's.
    pub yours: Vec<String>,
    /// The exercises whose answer is the lesson's solution.
    pub given: Vec<String>,
}

/// Code that a lesson takes from earlier ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gathered {
    /// A module for each lesson, in the order of the course.
    pub modules: Vec<LessonCode>,
    /// The functions that were asked for, each as `module::function`.
    functions: Vec<String>,
    /// The numbers of their lessons.
    lessons: BTreeSet<String>,
}

impl Gathered {
    /// Returns the code of a cell: the modules in one around them, named by the lessons of the functions that
    /// were asked for, and an import of these functions.
    pub fn cell(&self) -> String {
        let name = self.lessons.iter().map(String::as_str).collect::<Vec<_>>().join("_");
        let mut cell =
            format!("#[rustfmt::skip]\n#[allow(dead_code, unused_imports)]\nmod yours_{name} {{\n");
        for (number, LessonCode { lesson, code, .. }) in self.modules.iter().enumerate() {
            let space = if number == 0 { "" } else { "\n" };
            let (module, code) = (lesson.slug(), indented(code, 8));
            cell += &format!("{space}    pub mod {module} {{\n{code}\n    }}\n");
        }
        cell += "}\n";
        // In the order of rustfmt.
        let functions: BTreeSet<&String> = self.functions.iter().collect();
        for function in functions {
            cell += &format!("use yours_{name}::{function};\n");
        }
        cell.truncate(cell.trim_end().len());
        cell
    }

    /// Returns the exercises whose answer is the learner's.
    pub fn yours(&self) -> Vec<&str> {
        self.modules.iter().flat_map(|module| &module.yours).map(String::as_str).collect()
    }

    /// Returns the exercises whose answer is the lesson's solution.
    pub fn given(&self) -> Vec<&str> {
        self.modules.iter().flat_map(|module| &module.given).map(String::as_str).collect()
    }

    /// Reports which code is the learner's and which is the lessons'.
    pub fn summary(&self) -> String {
        let (yours, given) = (self.yours().join(", "), self.given().join(", "));
        match (yours.is_empty(), given.is_empty()) {
            (true, true) => "Nothing was taken from earlier lessons.".to_owned(),
            (false, true) => format!("Your own answers: {yours}."),
            (true, false) => format!("The lessons' solutions: {given}."),
            (false, false) => format!(
                "Your own answers: {yours}. The lessons' solutions, because you have not passed them yet: {given}."
            ),
        }
    }
}

/// Indents all lines that are not empty.
fn indented(code: &str, by: usize) -> String {
    let line = |line: &str| match line {
        "" => String::new(),
        line => format!("{:by$}{line}", ""),
    };
    code.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Gathers the code of these exercises, and of all exercises that it uses; `answer` returns the learner's answer
/// to one.
///
/// # Errors
/// If an exercise is unknown, or an answer can't be read.
pub fn gather(ids: &[String], answer: impl Fn(&str) -> Result<Option<String>>) -> Result<Gathered> {
    let mut found = Gathered::default();
    // What is still needed of each lesson. A lesson needs only earlier ones, so the last comes first.
    let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let need = |needed: &mut BTreeMap<String, BTreeSet<String>>, id: &str| {
        let number = id.split('.').next().unwrap_or_default();
        needed.entry(number.to_owned()).or_default().insert(id.to_owned());
    };
    ids.iter().for_each(|id| need(&mut needed, id));
    while let Some((number, of_lesson)) = needed.pop_last() {
        let lesson = super::find(&number)?;
        let module = Module::of(&lesson, &of_lesson, &answer)?;
        module.imports.keys().for_each(|id| need(&mut needed, id));
        let wanted = of_lesson.iter().filter(|id| ids.contains(id));
        let functions = wanted.flat_map(|id| functions(&lesson, id));
        let paths = functions.map(|function| format!("{}::{function}", lesson.slug()));
        found.functions.splice(0..0, paths.collect::<Vec<_>>());
        if of_lesson.iter().any(|id| ids.contains(id)) {
            found.lessons.insert(number);
        }
        let code = module.text()?;
        let Module { mut yours, mut given, .. } = module;
        yours.sort_unstable();
        given.sort_unstable();
        found.modules.insert(0, LessonCode { lesson: lesson.clone(), code, yours, given });
    }
    Ok(found)
}

/// Returns a lesson's code as a script for a session, with a mark before each cell. Each exercise has the
/// learner's answer, or the solution if there is no answer. With `asks` the lesson's questions come before and
/// after it.
///
/// # Errors
/// If an answer can't be read.
pub fn script(lesson: &Lesson, asks: bool) -> Result<String> {
    let question = |command: Option<String>| {
        let command = command.filter(|_| asks);
        command.map(|command| format!("// %%\n{command}\n")).unwrap_or_default()
    };
    let mut script = question(review::opening(lesson));
    for cell in lesson.cells.iter().filter(|cell| cell.kind != CellKind::Markdown) {
        let answer = cell.exercise().map_or(Ok(None), kept)?;
        script += "// %%\n";
        script += &match (cell.command(), answer) {
            (Some(command), _) => command,
            (None, Some(answer)) => with_answer(cell, &answer),
            (None, None) => cell.given(),
        };
        script.push('\n');
    }
    Ok(script + &question(Some(review::closing(lesson))))
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
    /// The functions that it takes from earlier lessons, by their exercises.
    imports: BTreeMap<String, BTreeSet<String>>,
    yours: Vec<String>,
    given: Vec<String>,
}

impl<'a> Module<'a> {
    fn of(
        lesson: &'a Lesson,
        ids: &BTreeSet<String>,
        answer: &impl Fn(&str) -> Result<Option<String>>,
    ) -> Result<Self> {
        let mut module = Self {
            lesson,
            items: Vec::new(),
            taken: BTreeSet::new(),
            imports: BTreeMap::new(),
            yours: Vec::new(),
            given: Vec::new(),
        };
        for id in ids {
            let place = lesson.cells.iter().position(|cell| cell.exercise() == Some(id));
            let Some(place) = place else {
                return Err(Error::Usage(format!("lesson {} has no exercise {id}", lesson.name)));
            };
            module.take(place, answer)?;
        }
        let brought = brought(lesson)?;
        // What these functions use: given code of the lesson, answers to its other exercises, or functions of
        // earlier lessons.
        let cells: Vec<Vec<Item>> = lesson.cells.iter().map(code_items).collect();
        let mut at = 0;
        while at < module.items.len() {
            for name in module.items[at].mentions.clone() {
                if module.items.iter().any(|item| item.name == name) {
                    continue;
                }
                let place = cells.iter().position(|items| items.iter().any(|it| it.name == name));
                let Some(place) = place else {
                    if let Some(id) = brought.get(&name) {
                        module.imports.entry(id.clone()).or_default().insert(name);
                    }
                    continue;
                };
                if module.taken.contains(&place) {
                    continue;
                }
                let id = lesson.cells[place].exercise();
                if id.is_some_and(|id| functions(lesson, id).contains(&name)) {
                    module.take(place, answer)?;
                } else {
                    let item = cells[place].iter().find(|item| item.name == name);
                    module.items.extend(item.cloned());
                }
            }
            at += 1;
        }
        Ok(module)
    }

    /// Takes an exercise's cell, with the learner's answer if there is one.
    fn take(
        &mut self,
        place: usize,
        answer: &impl Fn(&str) -> Result<Option<String>>,
    ) -> Result<()> {
        if !self.taken.insert(place) {
            return Ok(());
        }
        let cell = &self.lesson.cells[place];
        let id = cell.exercise().unwrap_or_default();
        let (code, list) = match answer(id)? {
            Some(code) => (code, &mut self.yours),
            None => (cell.solution(), &mut self.given),
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

    /// Returns the module's code: imports, then items.
    fn text(&self) -> Result<String> {
        let mut used = BTreeSet::new();
        for item in self.items.iter().filter(|item| !item.is_use) {
            all_names(item.code.parse().unwrap_or_default(), &mut used);
        }
        let mut uses: Vec<String> = Vec::new();
        let of_lesson = self.lesson.cells.iter().flat_map(code_items).filter(|item| item.is_use);
        let of_lesson = of_lesson.filter_map(|item| needed_import(&item.code, &used));
        let own = self.items.iter().filter(|item| item.is_use).map(|item| item.code.clone());
        for code in of_lesson.chain(own) {
            if !uses.contains(&code) {
                uses.push(code);
            }
        }
        for (id, names) in &self.imports {
            let lesson = super::lesson_of(id)?;
            let import = |name: &String| format!("use super::{}::{name};", lesson.slug());
            uses.extend(names.iter().map(import));
        }
        let items = self.items.iter().filter(|item| !item.is_use).map(Item::public);
        let parts: Vec<String> = [uses.join("\n")].into_iter().chain(items).collect();
        Ok(parts.join("\n\n").trim().to_owned())
    }
}

/// Collects all names in the code.
fn all_names(tokens: TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => drop(names.insert(name.to_string())),
            TokenTree::Group(group) => all_names(group.stream(), names),
            _ => {}
        }
    }
}

/// Returns an import reduced to the names that are used; `None` if none is. A glob stays.
fn needed_import(code: &str, used: &BTreeSet<String>) -> Option<String> {
    let Ok(import) = syn::parse_str::<syn::ItemUse>(code) else {
        return Some(code.to_owned());
    };
    Some(format!("use {};", needed_tree(&import.tree, used)?))
}

fn needed_tree(tree: &syn::UseTree, used: &BTreeSet<String>) -> Option<String> {
    use syn::UseTree as U;
    match tree {
        // `self` in a group is the module before it.
        U::Path(path) => match &*path.tree {
            U::Group(group) => {
                let name = path.ident.to_string();
                let needed = |tree: &U| match tree {
                    U::Name(it) if it.ident == "self" => {
                        used.contains(&name).then(|| "self".into())
                    }
                    other => needed_tree(other, used),
                };
                let names: Vec<String> = group.items.iter().filter_map(needed).collect();
                match &*names {
                    [] => None,
                    [one] if one == "self" => Some(name),
                    [one] => Some(format!("{name}::{one}")),
                    all => Some(format!("{name}::{{{}}}", all.join(", "))),
                }
            }
            inner => Some(format!("{}::{}", path.ident, needed_tree(inner, used)?)),
        },
        U::Name(it) => used.contains(&it.ident.to_string()).then(|| it.ident.to_string()),
        U::Rename(it) => {
            let name = it.rename.to_string();
            used.contains(&name).then(|| format!("{} as {name}", it.ident))
        }
        U::Glob(_) => Some("*".to_owned()),
        U::Group(group) => {
            let names: Vec<String> =
                group.items.iter().filter_map(|tree| needed_tree(tree, used)).collect();
            (!names.is_empty()).then(|| format!("{{{}}}", names.join(", ")))
        }
    }
}

/// Returns the functions that a lesson brings in from earlier ones, with their exercises.
fn brought(lesson: &Lesson) -> Result<BTreeMap<String, String>> {
    let mut brought = BTreeMap::new();
    for id in lesson.cells.iter().flat_map(|cell| &cell.exercises) {
        let earlier = super::lesson_of(id)?;
        brought.extend(functions(&earlier, id).into_iter().map(|name| (name, id.clone())));
    }
    Ok(brought)
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
        keep_in(&folder, "scores", "let x = 1;").unwrap();
        assert!(!folder.exists());
        for body in ["1", "2"] {
            keep_in(&folder, "scores", &format!("fn f() -> u8 {{ {body} }}\nf();")).unwrap();
        }
        let text = std::fs::read_to_string(folder.join("scores.rs")).unwrap();
        assert_eq!(text, "fn f() -> u8 { 2 }\n");
    }

    #[test]
    fn an_answer_brings_the_learner_s_own_helpers_and_nothing_of_the_lesson() {
        let lesson = lessons::find("04").unwrap();
        assert_eq!(functions(&lesson, "04.1"), ["scores"]);
        let cells = [
            "fn half(x: f32) -> f32 { x / 2.0 }",
            "type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;",
            "fn scores() { old() }",
            "fn scores() { half(1.0); let r: Rows<2>; }",
            "scores();",
        ]
        .map(str::to_owned);
        let answer = answer_in(&lesson, "04.1", &cells).unwrap();
        assert_eq!(names(&answer), ["scores", "half"]);
        assert!(!answer.contains("old"));
        assert_eq!(answer_in(&lesson, "04.2", &cells), None);
        // The lesson's own solution, as a notebook with solutions has it, until the learner replaces it.
        let solution = lesson.cells.iter().find(|cell| cell.exercise() == Some("04.1"));
        let mut cells = [cells.to_vec(), vec![solution.unwrap().given()]].concat();
        assert_eq!(answer_in(&lesson, "04.1", &cells), None);
        cells.push("fn scores() { half(2.0); }".to_owned());
        assert!(answer_in(&lesson, "04.1", &cells).unwrap().contains("half(2.0)"));
    }

    #[test]
    fn an_import_keeps_only_the_names_that_are_used() {
        let used: BTreeSet<String> = ["Model", "data", "Path", "b"].map(str::to_owned).into();
        for (import, needed) in [
            ("use cloze::model::weights::Model;", Some("use cloze::model::weights::Model;")),
            (
                "use cloze::model::{Attention, weights::{Model, Other}};",
                Some("use cloze::model::weights::Model;"),
            ),
            ("use cloze::lessons::data::{self, Row};", Some("use cloze::lessons::data;")),
            ("use std::{io::Read, path::{Path, PathBuf}};", Some("use std::path::Path;")),
            ("use a as b;", Some("use a as b;")),
            ("use cloze::prelude::*;", Some("use cloze::prelude::*;")),
            ("use cloze::text::{SpecialIds, embedded};", None),
        ] {
            assert_eq!(needed_import(import, &used).as_deref(), needed, "{import}");
        }
    }

    #[test]
    fn what_is_gathered_says_whose_it_is_and_has_what_it_uses() {
        let mine = "fn split_heads(x: u8) -> u8 { x }";
        let answer = |id: &str| Ok((id == "05.1").then(|| mine.to_owned()));
        let found = gather(&["06.2".to_owned(), "04.2".to_owned()], answer).unwrap();
        assert_eq!(found.yours(), ["05.1"]);
        assert_eq!(found.given(), ["04.2", "05.2", "05.3", "06.2"]);
        let code = found.cell();
        // The type `Grid` of lesson 04 stands in the cell of 04.1, whose function nothing uses.
        for part in [
            "mod yours_04_06 {",
            "    pub mod attention {",
            "        pub fn weights(scores: Grid",
            "        pub type Grid",
            "        pub fn split_heads(x: u8) -> u8 { x }",
            "        use super::heads::multi_head;",
            "        pub fn encoder_layer",
            "use yours_04_06::attention::weights;",
            "use yours_04_06::encoder::encoder_layer;",
        ] {
            assert!(code.contains(part), "{part} is missing in\n{code}");
        }
        for part in ["fn scores", "fn feed_forward", "embedded;", "use yours_04_06::heads"] {
            assert!(!code.contains(part), "{part} is not needed in\n{code}");
        }
        assert!(syn::parse_file(&code).is_ok(), "{code}");
        assert!(
            found.summary().starts_with("Your own answers: 05.1. The lessons'"),
            "{}",
            found.summary()
        );
        let error = gather(&["04.77".to_owned()], |_| Ok(None)).unwrap_err().to_string();
        assert!(error.contains("04.77"), "{error}");
    }
}
