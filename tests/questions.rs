//! The code of the questions is compiled and run: it prints the right option, and it compiles or does not, as
//! the bank says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cloze::lessons::questions::{self, Kind, Question};

fn of_kind(kind: Kind) -> Vec<Question> {
    let all = [questions::all().unwrap(), questions::test().unwrap()].concat();
    all.into_iter().filter(|question| question.kind == kind).collect()
}

fn rustc(folder: &Path, code: &str, options: &[&str]) -> Output {
    let source = folder.join("cell.rs");
    std::fs::write(&source, code).unwrap();
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "-A", "warnings"]).args(options).arg(source);
    command.current_dir(folder).output().unwrap()
}

/// Returns the newest library of cloze beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|it| it.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libcloze-") && name.ends_with(".rlib")
    };
    let modified = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    files.filter(is_library).max_by_key(modified).unwrap()
}

#[test]
fn programs_print_the_right_option() {
    let (mut code, mut main) = (String::new(), String::new());
    let asked = of_kind(Kind::Predict);
    for Question { key, code: body, .. } in &asked {
        code += &format!("fn {key}() {{\n{}\n}}\n", body.as_deref().unwrap());
        main += &format!("println!(\"@{key}\");\n{key}();\n");
    }
    let dir = tempfile::tempdir().unwrap();
    let built = rustc(dir.path(), &format!("{code}fn main() {{\n{main}}}\n"), &["-o", "program"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(dir.path().join("program")).output().unwrap().stdout;
    let expected: String =
        asked.iter().map(|it| format!("@{}\n{}\n", it.key, it.right.0)).collect();
    assert_eq!(String::from_utf8(output).unwrap(), expected);
}

#[test]
fn cells_compile_or_not_as_the_bank_says() {
    let library = library();
    let dependencies = format!("dependency={}", library.parent().unwrap().display());
    let library = format!("cloze={}", library.display());
    let dir = tempfile::tempdir().unwrap();
    for question in of_kind(Kind::Compiles) {
        let options =
            ["--crate-type", "lib", "--emit=metadata", "--extern", &library, "-L", &dependencies];
        let built = rustc(dir.path(), question.code.as_deref().unwrap(), &options);
        let errors = String::from_utf8_lossy(&built.stderr);
        assert_eq!(Some(built.status.success()), question.compiles, "{}: {errors}", question.key);
        // A missing library or a slip of syntax is no reason that a question may have.
        let reasons = ["error[E0277]", "error[E0308]", "error[E0382]"];
        let known = reasons.iter().any(|reason| errors.contains(reason));
        assert!(built.status.success() || known, "{}: {errors}", question.key);
    }
}
