//! `cloze bench --gpu-selftest`: everything that can be found out about a GPU in one call.
//!
//! Each section of [`crate::engine::cuda::selftest`] runs in a process of its own ([`worker`]): a
//! kernel that hangs or that takes the device with it costs one check, and the next process goes on
//! behind it. What is known is written as soon as it is.

mod charts;
mod report;
mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cli::shared::stdio::say;
use crate::engine::cuda::selftest::{Check, Scale, Section, checks};
use crate::error::{Error, Result};

use self::report::{Entry, Report};
use self::worker::{Event, Worker};

#[derive(clap::Args)]
pub struct Args {
    /// Test this machine's GPU: every kernel beside the CPU, training steps, timings
    #[arg(long)]
    gpu_selftest: bool,
    /// With --gpu-selftest: the same kernels on the processor, thread by thread, without timings; needs
    /// a C++ compiler and a build with the feature `emulator`
    #[arg(long, requires = "gpu_selftest")]
    emulate: bool,
    /// With --gpu-selftest: a folder for the results, written as they come
    #[arg(long, requires = "gpu_selftest", value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --gpu-selftest: a folder for charts as SVG
    #[arg(long, requires = "gpu_selftest", value_name = "DIR")]
    chart: Option<PathBuf>,
    /// With --gpu-selftest: print one JSON object on stdout
    #[arg(long, requires = "gpu_selftest")]
    json: bool,
    /// With --gpu-selftest: minutes after which what is left is not run [default: 8 on a GPU]
    #[arg(long, requires = "gpu_selftest", value_name = "N")]
    minutes: Option<f64>,
    /// With --gpu-selftest: only these parts
    #[arg(long, requires = "gpu_selftest", value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Section>,
    /// With --gpu-selftest: only checks whose name contains this text
    #[arg(long = "match", requires = "gpu_selftest", value_name = "TEXT")]
    matching: Option<String>,
    /// With --gpu-selftest: a few small cases, as for a run under compute-sanitizer
    #[arg(long, requires = "gpu_selftest")]
    short: bool,
    /// Run one section as another process' worker
    #[arg(long, requires = "gpu_selftest", hide = true)]
    worker: Option<Section>,
    /// Leave out so many of the worker's checks
    #[arg(long, requires = "worker", hide = true, default_value_t = 0)]
    skip: usize,
    /// Run one check, and print each launch and wait for it
    #[arg(long, requires = "worker", hide = true)]
    wait: bool,
}

/// What a section has used up of the time at the latest when it ends: none may starve those behind it.
const SHARES: [f64; 6] = [0.08, 0.42, 0.50, 0.66, 0.78, 1.0];
/// Time limit of a check on a GPU.
const TIMEOUT: Duration = Duration::from_secs(80);
/// The emulated device is slow.
const EMULATED_TIMEOUT: Duration = Duration::from_secs(1200);
/// Processes that a section may lose.
const LOSSES: usize = 12;
/// Failed checks of a section that are run again, launch by launch.
const AGAIN: usize = 3;
/// Time limit of a check that waits after each launch.
const AGAIN_TIMEOUT: Duration = Duration::from_secs(40);

impl Args {
    /// Whether the self-test is asked for.
    pub fn asked(&self) -> bool {
        self.gpu_selftest
    }

    fn scale(&self) -> Scale {
        match (self.emulate, self.short) {
            (_, true) => Scale::Short,
            (true, false) => Scale::Small,
            (false, false) => Scale::Full,
        }
    }

    /// Returns the checks of a section that are asked for.
    fn checks(&self, section: Section) -> Vec<Check> {
        let mut all = checks(section, self.scale(), self.emulate);
        if let Some(text) = &self.matching {
            all.retain(|check| check.name.contains(text.as_str()));
        }
        all
    }

    fn deadline(&self, started: Instant, share: f64) -> Option<Instant> {
        let minutes = match (self.minutes, self.emulate) {
            (Some(minutes), _) => minutes,
            (None, false) => 8.0,
            (None, true) => return None,
        };
        // Some seconds are for what comes after the last check.
        let seconds = (60.0 * minutes - f64::min(10.0, 6.0 * minutes)) * share;
        Some(started + Duration::from_secs_f64(seconds))
    }
}

/// Runs the self-test, or a part of it as a worker.
pub fn run(args: Args) -> Result<()> {
    if let Some(section) = args.worker {
        return worker::serve(section, &args);
    }
    if args.minutes.is_some_and(|minutes| !(minutes > 0.0 && minutes < 1e4)) {
        return Err(Error::Usage("--minutes: a positive number is needed".into()));
    }
    let report = checked(&args)?;
    if let Some(folder) = args.chart.as_ref().or(args.out.as_ref()) {
        charts::save(&report, folder)?;
    }
    if args.json {
        say!("{}", report.object())?;
    } else {
        say!("{}", report.summary())?;
    }
    match report.unsatisfied() {
        0 => Ok(()),
        n => Err(Error::Failed(format!("{n} checks failed or were not run"))),
    }
}

/// Runs all requested sections.
fn checked(args: &Args) -> Result<Report> {
    // An early error if there is nothing to test.
    worker::available(args.emulate)?;
    let started = Instant::now();
    let mut report = Report::new(args.emulate, args.out.clone())?;
    for (section, share) in Section::ALL.into_iter().zip(SHARES) {
        if args.only.is_empty() || args.only.contains(&section) {
            let deadline = args.deadline(started, share);
            let began = Instant::now();
            test(args, section, deadline, &mut report)?;
            report.phase(section, began.elapsed());
            report.write()?;
        }
    }
    if report.entries.is_empty() {
        let text = args.matching.as_deref().unwrap_or_default();
        return Err(Error::Usage(format!("--match {text}: no check has a name with this text")));
    }
    Ok(report)
}

/// Runs a section in as many processes as it takes.
fn test(
    args: &Args,
    section: Section,
    deadline: Option<Instant>,
    report: &mut Report,
) -> Result<()> {
    let names: Vec<String> = args.checks(section).into_iter().map(|check| check.name).collect();
    let timeout = if args.emulate { EMULATED_TIMEOUT } else { TIMEOUT };
    let (mut done, mut losses, mut again) = (0, 0, 0);
    while done < names.len() {
        if losses == LOSSES || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        let mut worker = Worker::start(section, args, done, false)?;
        while done < names.len() {
            let (entry, over) = match worker.next(timeout, deadline) {
                Event::Checked(entry) => (Some(entry), false),
                Event::Ended(_) if worker.is_between_checks() => (None, true),
                Event::Ended(why) => (Some(Entry::failed(section, &names[done], why)), true),
                Event::Timeout => {
                    let seconds = timeout.as_secs();
                    let why = format!("it hangs: nothing was printed for {seconds} s");
                    (Some(Entry::failed(section, &names[done], why)), true)
                }
                Event::Deadline => (None, true),
            };
            if let Some(mut entry) = entry {
                if entry.lost && again < AGAIN {
                    again += 1;
                    // The device may be one that no two processes can use.
                    worker.stop();
                    let found = launch_by_launch(args, section, done, deadline)?;
                    entry.line += &format!("\n    launch by launch: {found}");
                }
                report.take(entry)?;
                done += 1;
            }
            if over {
                break;
            }
        }
        if !worker.has_started() {
            // Another one would not do better.
            losses = LOSSES;
        } else {
            losses += usize::from(done < names.len());
        }
        worker.end();
    }
    for name in &names[done..] {
        report.take(Entry::not_run(section, name))?;
    }
    Ok(())
}

/// Runs one check again in a process that waits after each launch, and returns what became of it: the launch that
/// fails or hangs is the last that was printed.
fn launch_by_launch(
    args: &Args,
    section: Section,
    check: usize,
    deadline: Option<Instant>,
) -> Result<String> {
    let mut worker = Worker::start(section, args, check, true)?;
    let found = match worker.next(AGAIN_TIMEOUT, deadline) {
        Event::Checked(entry) => entry.line,
        Event::Ended(why) => why,
        Event::Timeout => format!("it hangs in the last of these: {}", worker.last_lines()),
        Event::Deadline => "not run: the time was over".into(),
    };
    worker.end();
    Ok(found)
}

#[cfg(test)]
mod tests;
