//! `cloze bench cells`: starts installed kernels as a front end does, by their kernelspecs, and times
//! the same cells in each, in turns.

mod cells;
mod client;
mod kernelspecs;
mod process;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cloze::{Error, Result};
use jupyter_zmq_client::KernelspecDir;

/// Times a notebook kernel's cells, or those of several kernels side by side.
#[derive(Debug, Parser)]
#[command(bin_name = "cloze bench cells")]
struct Options {
    /// A kernel's name in Jupyter; several are measured in turns
    #[arg(long = "kernel", value_name = "NAME", default_value = "cloze")]
    kernels: Vec<String>,
    /// How many kernels of each name are started; the figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The first tensor cell of other Rust kernels than Cloze's: it creates a `device` and a tensor `x` of
    /// 2 by 3, with dfdx's prelude in scope (built in: `:dep dfdx` and the same tensor)
    #[arg(long, value_name = "FILE")]
    setup: Option<PathBuf>,
    /// Seconds after which the whole measurement ends with an error
    #[arg(long, value_name = "S", default_value_t = 3600)]
    timeout: u64,
    /// Print one JSON object per kernel on stdout
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cloze::note!("cloze bench cells: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let setup = options
        .setup
        .as_ref()
        .map(|path| std::fs::read_to_string(path).map_err(|source| Error::io(path, source)))
        .transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot start a thread: {error}")))?;
    let limit = Duration::from_secs(options.timeout);
    // Dropping a measurement ends its kernels.
    let kernels = runtime.block_on(async {
        tokio::select! {
            measured = measure(options, setup.as_deref()) => measured,
            () = tokio::time::sleep(limit) => Err(Error::Failed(format!(
                "not done within {} s: see --timeout",
                options.timeout
            ))),
            _ = tokio::signal::ctrl_c() => Err(Error::Failed("stopped".to_owned())),
        }
    })?;
    if options.json {
        for kernel in &kernels {
            println!("{}", kernel.json());
        }
    } else {
        print!("{}", report::table(&kernels));
    }
    Ok(())
}

async fn measure(options: &Options, setup: Option<&str>) -> Result<Vec<report::Measured>> {
    let specs = kernelspecs::find(&options.kernels).await?;
    let mut runs: Vec<Vec<cells::Run>> = specs.iter().map(|_| Vec::new()).collect();
    for turn in 1..=options.repeat {
        let mut sessions = Vec::new();
        for spec in &specs {
            cloze::note!("{}: {turn} of {}", spec.kernel_name, options.repeat);
            sessions.push(of(spec, cells::Session::open(spec, setup).await)?);
        }
        for _ in 0..cells::WARM {
            for (spec, session) in specs.iter().zip(&mut sessions) {
                of(spec, session.warm().await)?;
            }
        }
        for _ in 0..cells::WRONG {
            for (spec, session) in specs.iter().zip(&mut sessions) {
                of(spec, session.wrong().await)?;
            }
        }
        for ((spec, session), runs) in specs.iter().zip(sessions).zip(&mut runs) {
            runs.push(of(spec, session.close().await)?);
        }
    }
    let names = specs.into_iter().map(|spec| spec.kernel_name);
    Ok(names.zip(runs).map(|(name, runs)| report::Measured { name, runs }).collect())
}

/// Adds the kernel's name to an error.
fn of<T>(spec: &KernelspecDir, result: Result<T>) -> Result<T> {
    result.map_err(|error| Error::Failed(format!("kernel `{}`: {error}", spec.kernel_name)))
}
