//! `cargo lab`: builds and installs everything that the lessons need, and opens them in JupyterLab.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use cloze::{Error, Result};

use crate::install::{self, folder_of};
use crate::paths;
use crate::session::{Template, layout};

/// The options of `lab`.
#[derive(Args)]
pub struct Options {
    /// Print the address instead of opening a browser.
    #[arg(long)]
    no_browser: bool,
    /// Only report what is installed and what is missing.
    #[arg(long)]
    check: bool,
    /// Arguments for JupyterLab itself, after `--`.
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Builds what is missing and becomes JupyterLab.
pub fn run(options: Options) -> Result<()> {
    if options.check {
        return check();
    }
    let folder = paths::notebooks()?;
    let jupyter = match JupyterLab::find()? {
        Some(found) => found,
        None => JupyterLab::install()?,
    };
    install::install(None)?;
    install::start_spare()?;
    let notebooks = cloze::lessons::build(&folder, false)?;
    cloze::note!("{} lessons are in {}.", notebooks.lessons.len(), folder.display());

    let mut command = jupyter.command();
    command.arg("--ServerApp.root_dir").arg(&folder);
    // It opens with the map of the course.
    if let Some(index) = notebooks.index.file_name() {
        let page = format!("/lab/tree/{}", index.to_string_lossy());
        command.arg(format!("--LabApp.default_url={page}"));
    }
    if options.no_browser {
        command.arg("--no-browser");
    }
    if nix::unistd::geteuid().is_root() {
        // Jupyter requires this in a container, where everybody is root.
        command.arg("--allow-root");
    }
    command.args(options.arguments);
    // JupyterLab replaces this process, so that it handles Ctrl-C and sets the exit code.
    let error = command.exec();
    Err(Error::Failed(format!("cannot start JupyterLab: {error}")))
}

/// Saved notebooks keep the state of their sliders, so that they show them without a kernel.
const SETTINGS: &str = r#"{ "@jupyter-widgets/jupyterlab-manager:plugin": { "saveState": true } }
"#;

/// A way to start JupyterLab.
enum JupyterLab {
    Program(PathBuf),
    Module { python: PathBuf },
}

impl JupyterLab {
    fn command(&self) -> Command {
        match self {
            Self::Program(program) => Command::new(program),
            Self::Module { python } => {
                let mut command = Command::new(python);
                command.args(["-m", "jupyterlab"]);
                command
            }
        }
    }

    /// Returns its version, if it starts.
    fn version(&self) -> Option<String> {
        let output = self.command().arg("--version").stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Finds one that starts: the private one, one beside this program, one on PATH, or one that Python can import.
    fn find() -> Result<Option<Self>> {
        let private = paths::environment()?.join("bin").join("jupyter-lab");
        let on_path = |program: &str| folder_of(program).map(|folder| folder.join(program));
        // A wheel puts this program into an environment, which need not be activated.
        let beside = paths::this_program()?.with_file_name("jupyter-lab");
        let candidates = [
            private.is_file().then_some(Self::Program(private)),
            beside.is_file().then_some(Self::Program(beside)),
            on_path("jupyter-lab").map(Self::Program),
            on_path("python3").map(|python| Self::Module { python }),
        ];
        Ok(candidates.into_iter().flatten().find(|candidate| candidate.version().is_some()))
    }

    /// Creates a private Python environment with JupyterLab.
    fn install() -> Result<Self> {
        let folder = paths::environment()?;
        if folder.exists() {
            // It does not start, so its creation was interrupted.
            std::fs::remove_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
        }
        if let Some(parent) = folder.parent() {
            paths::create(parent)?;
        }
        cloze::note!(
            "Installing JupyterLab in {} (some 100 MB from PyPI, a minute or two) …",
            folder.display()
        );
        let remedy = "install JupyterLab yourself, so that `jupyter-lab` starts, and run \
                      `cargo lab` again";
        python(
            Command::new("python3").args(["-m", "venv"]).arg(&folder),
            &format!("Python cannot make an environment (Debian: package python3-venv); {remedy}"),
        )?;
        let pip = "-m pip install --quiet --disable-pip-version-check jupyterlab jupyterlab_widgets anywidget";
        python(
            Command::new(folder.join("bin").join("python")).args(pip.split(' ')),
            &format!("JupyterLab could not be installed from PyPI; {remedy}"),
        )?;
        let settings = folder.join("share/jupyter/lab/settings");
        paths::create(&settings)?;
        let overrides = settings.join("overrides.json");
        std::fs::write(&overrides, SETTINGS).map_err(|source| Error::io(&overrides, source))?;
        Ok(Self::Program(folder.join("bin").join("jupyter-lab")))
    }
}

/// Runs a step of the installation. If it fails, the error has its last line of output.
fn python(command: &mut Command, complaint: &str) -> Result<()> {
    let reason = match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let all = [output.stdout, output.stderr].concat();
            let all = String::from_utf8_lossy(&all).into_owned();
            let last = all.lines().rfind(|line| !line.trim().is_empty());
            last.unwrap_or("no output").trim().to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(Error::Failed(format!("{complaint} ({reason})")))
}

/// Returns the kernelspec of the user, or the one that was installed with this program: by a wheel, or for all users.
fn kernelspec() -> Result<Option<PathBuf>> {
    let program = match paths::launcher() {
        Some(launcher) => launcher,
        None => paths::this_program()?,
    };
    let folders = [
        install::kernelspec_folder(None)?,
        // `<prefix>/bin/cloze-kernel`
        install::kernelspec_folder(program.ancestors().nth(2))?,
    ];
    Ok(folders.into_iter().map(|folder| folder.join("kernel.json")).find(|spec| spec.is_file()))
}

/// Prints a line for each requirement: what was found, or what to do.
fn check() -> Result<()> {
    let shown = |path: PathBuf| path.display().to_string();
    let program = |name: &str| folder_of(name).map(|folder| shown(folder.join(name)));
    let rust_src = layout::has_rust_sources().then(|| "found".to_owned());
    let jupyter = JupyterLab::find()?.and_then(|found| found.version());
    let template = Template::find()?.map(|_| "built".to_owned());
    let spec = kernelspec()?.map(shown);
    let no_linker = "install a C compiler (Debian: package gcc): Rust links with it";
    let no_python = "install Python 3 with its venv module, or JupyterLab itself";
    let no_jupyter = "`cargo lab` installs it in an environment of its own";
    let rows = [
        ("Rust compiler", program("rustc"), "install Rust with rustup"),
        ("linker", program("cc"), no_linker),
        ("rust-src", rust_src, "`cargo lab` adds it with rustup"),
        ("Python 3", program("python3"), no_python),
        ("JupyterLab", jupyter, no_jupyter),
        ("session template", template, "`cargo lab` builds it"),
        ("kernelspec", spec, "`cargo lab` installs it"),
    ];
    let mut missing = 0;
    for (name, found, remedy) in rows {
        match found {
            Some(found) => println!("found    {name}: {found}"),
            None => {
                missing += 1;
                println!("missing  {name}: {remedy}");
            }
        }
    }
    if missing == 0 {
        Ok(())
    } else {
        Err(Error::Failed(format!("{missing} of the requirements of notebooks are missing")))
    }
}
