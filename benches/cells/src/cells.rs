//! The measurements of one run of a kernel, from its start to its end.

use std::time::{Duration, Instant};

use cloze::engine::timing::median;
use cloze::{Error, Result};
use jupyter_zmq_client::KernelspecDir;

use super::client::{Cell, Client};
use super::process::Process;

/// Creates the tensor for the cells after the first.
const TENSOR: &str = "\
let device = Cpu::default();
let x: Tensor<Rank2<2, 3>, f32, Cpu> = device.zeros();";
/// Comes before it in a kernel without Cloze's prelude.
const DFDX: &str = "\
:dep dfdx = { version = \"=0.13.0\", default-features = false, features = [\"std\", \"fast-alloc\", \"cpu\"] }
use dfdx::prelude::*;";
const PRELUDE: &str = "use cloze::prelude::*;";

/// The warm cells' names in [`super::report::ROWS`].
const WARM_NAMES: [&str; 3] = ["let", "tensor", "expression"];

/// The cells of a warm session in one language.
#[derive(Debug)]
struct Cells {
    warm: [&'static str; WARM_NAMES.len()],
    wrong: &'static str,
    /// Sets the variable `n`.
    variable: &'static str,
    /// Prints a line, and then increases `n` for ever.
    endless: &'static str,
}

const RUST: Cells = Cells {
    warm: ["let a = 1;", "let y = (x.clone() + 1.0).sum::<Rank0, _>();", "1 + 1"],
    wrong: "let a: i32 = \"no\";",
    variable: "let mut n: u64 = 7;",
    endless: "println!(\"go\");\nloop { n += 1; }",
};
/// For ipykernel: NumPy has the nearest thing to a tensor that every Python has.
const PYTHON: Cells = Cells {
    warm: ["a = 1", "y = (x + 1.0).sum()", "1 + 1"],
    wrong: "a: int = no",
    variable: "n = 7",
    endless: "print(\"go\", flush=True)\nwhile True: n += 1",
};
const NUMPY: &str = "import numpy as np\nx = np.zeros((2, 3), dtype=np.float32)";

/// How often a warm cell is run for its median.
pub const WARM: usize = 10;
/// How often a wrong cell is run: once for the first error, then for a median.
pub const WRONG: usize = 4;
/// How long a loop may run on after the interrupt.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The figures of one run.
#[derive(Debug, Default)]
pub struct Run {
    /// By the names in [`super::report::ROWS`].
    pub figures: Vec<(&'static str, f64)>,
    /// Whether a variable survived the interrupt; `None` if the loop could not be stopped.
    pub variables_kept: Option<bool>,
    /// The first tensor cell.
    pub setup: String,
    /// The kernel's own name and version.
    pub implementation: String,
}

/// A running kernel whose cells are timed. Several run at once and take turns, so that other load on the
/// machine affects all of them.
pub struct Session<'a> {
    spec: &'a KernelspecDir,
    client: Client,
    cells: &'static Cells,
    run: Run,
    warm: [Vec<f64>; WARM_NAMES.len()],
    wrong: Vec<f64>,
}

impl<'a> Session<'a> {
    /// Starts a kernel and brings it to its first tensor.
    pub async fn open(spec: &'a KernelspecDir, setup: Option<&str>) -> Result<Self> {
        let started = Instant::now();
        let process = Process::start(spec).await?;
        let (mut client, ready) = Client::connect(process, started).await?;
        let info = |key: &str| client.info[key].as_str().unwrap_or("?").to_owned();
        let implementation = info("implementation");
        let is_python = client.info["language_info"]["name"] == "python";
        let cells = if is_python { &PYTHON } else { &RUST };
        let setup = match setup {
            _ if is_python => NUMPY.to_owned(),
            _ if implementation == "cloze" => format!("{PRELUDE}\n{TENSOR}"),
            Some(setup) => setup.trim_end().to_owned(),
            None => format!("{DFDX}\n{TENSOR}"),
        };
        let mut run = Run {
            implementation: format!("{implementation} {}", info("implementation_version")),
            ..Run::default()
        };
        run.take("ready", ready);
        let first = good(&setup, client.run(&setup).await?)?;
        run.take("first_tensor", first.seconds);
        run.take("start_to_first_tensor", started.elapsed().as_secs_f64());
        run.setup = setup;
        Ok(Self { spec, client, cells, run, warm: Default::default(), wrong: Vec::new() })
    }

    /// Runs each of the warm cells once.
    pub async fn warm(&mut self) -> Result<()> {
        for (code, seconds) in self.cells.warm.iter().zip(&mut self.warm) {
            seconds.push(good(code, self.client.run(code).await?)?.seconds);
        }
        Ok(())
    }

    /// Runs a cell that does not compile.
    pub async fn wrong(&mut self) -> Result<()> {
        let code = self.cells.wrong;
        let cell = self.client.run(code).await?;
        if cell.error.is_none() {
            return Err(Error::Failed(format!("it accepted `{code}`")));
        }
        self.wrong.push(cell.seconds);
        Ok(())
    }

    /// Makes the last measurements and ends the kernel.
    pub async fn close(mut self) -> Result<Run> {
        for (name, seconds) in WARM_NAMES.into_iter().zip(&mut self.warm) {
            self.run.take(name, median(seconds));
        }
        if let [first, again @ ..] = &mut self.wrong[..] {
            self.run.take("first_error", *first);
            self.run.take("error", median(again));
        }
        if let Some((kernel, all)) = self.client.process.memory() {
            self.run.take("memory_kernel_mib", kernel);
            self.run.take("memory_mib", all);
        }
        if interrupt(self.spec, &mut self.client, self.cells, &mut self.run).await? {
            self.client.shut_down().await?;
        }
        Ok(self.run)
    }
}

/// Interrupts a loop that makes no calls. Returns whether it stopped.
async fn interrupt(
    spec: &KernelspecDir,
    client: &mut Client,
    cells: &Cells,
    run: &mut Run,
) -> Result<bool> {
    good(cells.variable, client.run(cells.variable).await?)?;
    let cell = client.start(cells.endless).await?;
    client.printed(&cell).await?;
    let by_message = spec.kernelspec.interrupt_mode.as_deref() == Some("message");
    let asked = Instant::now();
    client.interrupt(by_message).await?;
    let Ok(stopped) = tokio::time::timeout(STOP_TIMEOUT, client.finish(&cell, asked)).await else {
        return Ok(false);
    };
    run.take("interrupt", stopped?.seconds);
    let value = client.run("n").await?.value;
    run.variables_kept = Some(value.is_some_and(|n| n.parse().is_ok_and(|n: u64| n >= 7)));
    Ok(true)
}

impl Run {
    fn take(&mut self, name: &'static str, value: f64) {
        self.figures.push((name, value));
    }
}

fn good(code: &str, cell: Cell) -> Result<Cell> {
    match &cell.error {
        None => Ok(cell),
        Some(error) => {
            Err(Error::Failed(format!("the cell `{}` failed: {error}", code.replace('\n', " "))))
        }
    }
}
