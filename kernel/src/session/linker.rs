//! Links cells with the toolchain's own linker.
//!
//! rustc calls the C compiler to link, which calls `collect2`, which calls a wrapper, which calls
//! rust-lld: four programs for one small library. Called directly, rust-lld needs what the C compiler
//! knows: where the system's libraries are, and the objects that begin and end a library. That is done on Linux with
//! x86-64 only; elsewhere rustc calls the C compiler.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use cloze::Result;

use super::layout;

/// The name under which rustc finds the linker in its toolchain.
const LINKER: &str = "rust-lld";
/// The objects around a shared library's own, in their order.
const AROUND: [&str; 4] = ["crti.o", "crtbeginS.o", "crtendS.o", "crtn.o"];
/// Parts of arguments with which the user has chosen how to link.
const CHOICES: [&str; 3] = ["linker", "link-arg", "link-self-contained"];

/// Returns the arguments that make rustc call the linker directly, or none if that is not sure to work:
/// another target, no such linker in the toolchain, a linker of the user's choice.
pub fn direct(rustc: &Path, arguments: &[OsString]) -> Vec<OsString> {
    let chosen = |argument: &OsString| {
        argument.to_str().is_none_or(|text| CHOICES.iter().any(|choice| text.contains(choice)))
    };
    if cfg!(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))
        || arguments.iter().any(chosen)
    {
        return Vec::new();
    }
    found(rustc).unwrap_or_default()
}

/// Returns the argument with which a library on macOS finds Rust's standard library when it is loaded: there that is named
/// `@rpath/libstd-….dylib`. On Linux its name is enough, because the child loads it first.
pub fn run_path() -> Result<Option<OsString>> {
    if !cfg!(target_os = "macos") {
        return Ok(None);
    }
    let mut argument = OsString::from("-Clink-arg=-Wl,-rpath,");
    argument.push(layout::rust_libraries()?);
    Ok(Some(argument))
}

fn found(rustc: &Path) -> Option<Vec<OsString>> {
    let libraries = printed(Command::new(rustc).args(["--print", "target-libdir"]))?;
    let linker = Path::new(&libraries).parent()?.join("bin").join(LINKER);
    let folders = printed(Command::new("cc").arg("-print-search-dirs"))?;
    let folders = folders.lines().find_map(|line| line.strip_prefix("libraries: ="))?;
    let objects = AROUND.map(|name| {
        let path = printed(Command::new("cc").arg(format!("-print-file-name={name}")));
        path.filter(|path| Path::new(path).is_absolute())
    });
    if !linker.exists() || objects.iter().any(Option::is_none) {
        return None;
    }
    let mut all = vec![format!("-Clinker={LINKER}"), "-Clinker-flavor=ld.lld".to_owned()];
    all.extend(folders.split(':').map(|folder| format!("-Clink-arg=-L{folder}")));
    all.extend(objects.into_iter().flatten().map(|object| format!("-Clink-arg={object}")));
    Some(all.into_iter().map(OsString::from).collect())
}

fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linker_of_the_user_s_choice_stays() {
        let direct = |argument: &str| direct(Path::new("rustc"), &[argument.into()]);
        for own in ["linker=clang", "-Clink-arg=-fuse-ld=mold"] {
            assert!(direct(own).is_empty(), "{own}");
        }
    }

    #[test]
    fn a_library_linked_directly_is_one() {
        let Some(arguments) = found(Path::new("rustc")) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("a.rs"), folder.path().join("a.so"));
        let code = "thread_local! { static A: String = String::new(); }\n\
                    #[unsafe(no_mangle)] pub extern \"C\" fn seven() -> usize {\n\
                    7 + std::panic::catch_unwind(|| A.with(String::len)).unwrap() }";
        std::fs::write(&source, code).unwrap();
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(&library).arg(&source);
        let built = rustc.args(arguments).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        assert!(library.exists());
    }
}
