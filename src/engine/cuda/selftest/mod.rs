//! The self-test of a device: every kernel and product beside the CPU engine, training steps beside
//! it, and how fast each kernel and whole steps are. `cloze bench --gpu-selftest` runs it, on a GPU or
//! on the emulated device, in processes that may be lost; the kernels' unit tests run its checks too.
//!
//! A check never stops another: errors and panics of each case are told with it. Only a device that
//! answers no more ends a run, and the rest is then run by another process.

mod attention;
mod elementwise;
mod embedding;
mod loss;
mod machine;
mod norm;
mod optimizer;
mod products;
mod rows;
mod speed;
mod steps;
#[cfg(test)]
mod tests;
mod training;
mod trial;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::{Error, Result};

use super::device::{Device, Element};

pub use self::trial::Trial;
use self::trial::name_of;

/// Parts of the self-test, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Section {
    /// What the machine is, and the kernels compiled.
    Machine,
    /// Every kernel beside the CPU engine.
    Kernels,
    /// Matrix products.
    Products,
    /// Training steps beside the CPU engine.
    Steps,
    /// Each kernel's time.
    Speed,
    /// Times of whole training steps.
    Training,
}

impl Section {
    pub const ALL: [Self; 6] = [
        Self::Machine,
        Self::Kernels,
        Self::Products,
        Self::Steps,
        Self::Speed,
        Self::Training,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Kernels => "kernels",
            Self::Products => "products",
            Self::Steps => "steps",
            Self::Speed => "speed",
            Self::Training => "training",
        }
    }
}

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All sizes, for a GPU.
    Full,
    /// Small ones, for the emulated device.
    Small,
    /// A few of them, for tests.
    Short,
}

impl Scale {
    /// Batches by the lengths of their sequences.
    fn lengths(self) -> &'static [&'static [usize]] {
        match self {
            Self::Full => &[
                &[1],
                &[2],
                &[31],
                &[33],
                &[127],
                &[383],
                &[512],
                &[512, 1, 33, 127, 2, 383, 31],
            ],
            Self::Small => &[&[1], &[2], &[31], &[33], &[127], &[17, 1, 33, 2]],
            Self::Short => &[&[1], &[17, 1, 33, 2]],
        }
    }

    fn widths(self) -> &'static [usize] {
        match self {
            Self::Full => &[128, 384, 768, 1024, 100, 77, 7, 1030],
            Self::Small => &[128, 33, 7],
            Self::Short => &[77],
        }
    }
}

/// Opens the device that is tested.
pub type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Device>>;

/// What checks share.
pub struct Session<'a> {
    pub scale: Scale,
    open: Open<'a>,
    /// That of the kernels' checks, opened when first asked for.
    device: Option<Box<dyn Device>>,
    memo: Memo,
}

/// What one check leaves to those after it.
#[derive(Default)]
struct Memo {
    steps: steps::References,
    /// Bytes a second of the memory, operations a second of the largest product.
    bandwidth: Option<f64>,
    peak: Option<f64>,
}

impl<'a> Session<'a> {
    pub fn new(open: Open<'a>, scale: Scale) -> Self {
        Self {
            scale,
            open,
            device: None,
            memo: Memo::default(),
        }
    }

    fn device(&mut self) -> Result<&mut dyn Device> {
        let device = match self.device.take() {
            Some(device) => device,
            None => (self.open)()?,
        };
        Ok(self.device.insert(device).as_mut())
    }

    /// Another one, for an engine that owns it.
    fn another(&self) -> Result<Box<dyn Device>> {
        (self.open)()
    }

    /// Fails where the device answers no more. `doubted`: where a check failed, that may be why.
    fn alive(&mut self, doubted: bool) -> Result<()> {
        match &mut self.device {
            Some(device) => device.synchronize(),
            None if doubted => self.device()?.synchronize(),
            None => Ok(()),
        }
    }
}

/// What a check found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub passed: bool,
    /// For people, in a line.
    pub line: String,
    /// For programs: an object.
    pub data: Value,
}

impl Told {
    fn good(line: String, data: Value) -> Self {
        Self {
            passed: true,
            line,
            data,
        }
    }

    fn failed(line: String) -> Self {
        Self {
            passed: false,
            data: json!({"error": &line}),
            line,
        }
    }
}

type Work = Box<dyn Fn(&mut Session<'_>) -> Result<Told>>;

/// One thing to find out.
pub struct Check {
    pub name: String,
    run: Work,
}

impl Check {
    fn new(
        name: impl Into<String>,
        run: impl Fn(&mut Session<'_>) -> Result<Told> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// All checks of a section. Where `emulated`, those that only a GPU can answer are left out.
pub fn checks(section: Section, scale: Scale, emulated: bool) -> Vec<Check> {
    match section {
        Section::Machine => machine::checks(emulated),
        Section::Kernels => kernel_checks(),
        Section::Products => products::checks(),
        Section::Steps => steps::checks(scale),
        Section::Speed | Section::Training if emulated => Vec::new(),
        Section::Speed => speed::checks(),
        Section::Training => training::checks(),
    }
}

/// A kernel's cases in one element type.
type Cases = fn(&mut Suite<'_>);

const KERNELS: &[(&str, Cases)] = &[
    ("embedding_forward", embedding::forward),
    ("embedding_backward", embedding::backward),
    ("norm_forward", norm::forward),
    ("norm_backward", norm::backward),
    ("add_bias", elementwise::add_bias),
    ("bias_gelu", elementwise::bias_gelu),
    ("gelu_backward", elementwise::gelu_backward),
    ("bias_gradient", elementwise::bias_gradient),
    ("stream", elementwise::stream),
    ("tanh", elementwise::tanh),
    ("add", elementwise::add),
    ("pick", rows::pick),
    ("add_picked", rows::add_picked),
    ("drop_rows", rows::drop_rows),
    ("cast", rows::cast),
    ("cross_entropy", loss::cross_entropy),
    ("distillation", loss::distillation),
    ("cosine", loss::cosine),
    ("sum_of_squares", optimizer::sum_of_squares),
    ("adamw", optimizer::adamw),
    ("lamb", optimizer::lamb),
    ("attention", attention::plain_and_flash),
];

fn kernel_checks() -> Vec<Check> {
    let elements = [Element::F32, Element::Bf16, Element::F16];
    let pairs = KERNELS
        .iter()
        .flat_map(|kernel| elements.map(|element| (*kernel, element)));
    pairs
        .map(|((name, cases), element)| {
            Check::new(format!("{name} {}", name_of(element)), move |session| {
                let scale = session.scale;
                Ok(suite(session.device()?, element, scale, cases).told())
            })
        })
        .collect()
}

/// Runs a kernel's cases on a device.
fn suite<'a>(
    device: &'a mut dyn Device,
    element: Element,
    scale: Scale,
    cases: impl FnOnce(&mut Suite<'_>),
) -> Suite<'a> {
    let mut suite = Suite::new(device, element, scale);
    cases(&mut suite);
    suite
}

/// Cases, and what became of them.
pub struct Suite<'a> {
    device: &'a mut dyn Device,
    pub element: Element,
    pub scale: Scale,
    cases: usize,
    failed: usize,
    /// The case that was nearest to its bound or farthest beyond, where, and by what part of it.
    worst: (f64, f64, String),
    complaints: Vec<String>,
    started: Instant,
}

/// Complaints of one check that are told.
const COMPLAINTS: usize = 6;

impl<'a> Suite<'a> {
    fn new(device: &'a mut dyn Device, element: Element, scale: Scale) -> Self {
        Self {
            device,
            element,
            scale,
            cases: 0,
            failed: 0,
            worst: (0.0, 0.0, String::new()),
            complaints: Vec::new(),
            started: Instant::now(),
        }
    }

    /// One case. It runs again, to see that it gives the same bits, and with numbers that are not
    /// aligned (in the small scales not every one does).
    pub fn case(&mut self, name: &str, work: impl Fn(&mut Trial<'_>) -> Result<()>) {
        self.aligned_case(name, &work);
        if self.scale == Scale::Full || self.cases.is_multiple_of(3) {
            let how = trial::How {
                shifted: true,
                ..trial::How::default()
            };
            self.one(&format!("{name}, not aligned"), how, &work);
        }
    }

    /// The same for what asks for aligned numbers.
    pub fn aligned_case(&mut self, name: &str, work: impl Fn(&mut Trial<'_>) -> Result<()>) {
        let twice = self.scale == Scale::Full || self.cases.is_multiple_of(4);
        let Some(first) = self.one(name, trial::How::default(), &work) else {
            return;
        };
        if twice {
            let how = trial::How {
                again: true,
                ..trial::How::default()
            };
            let complaint = match self.attempt(how, &work) {
                Ok(second) if second == first => return,
                Ok(_) => format!("{name}: other bits in the second run"),
                Err(error) => format!("{name}, again: {error}"),
            };
            self.failed += 1;
            self.complain(complaint);
        }
    }

    /// Runs a case once and judges it; the digest of its bits where it ran.
    fn one(
        &mut self,
        name: &str,
        how: trial::How,
        work: impl Fn(&mut Trial<'_>) -> Result<()>,
    ) -> Option<u64> {
        self.cases += 1;
        let distances = RefCell::new(Vec::new());
        let digest = self.attempt(how, |trial| {
            work(trial)?;
            distances.replace(trial.distances().to_vec());
            Ok(())
        });
        let mut good = true;
        // What was written beside buffers is an error, and doesn't hide what was found.
        for distance in distances.into_inner() {
            good &= self.take(name, &distance);
        }
        if let Err(error) = &digest {
            good = false;
            self.complain(format!("{name}: {error}"));
        }
        self.failed += usize::from(!good);
        digest.ok()
    }

    fn complain(&mut self, complaint: String) {
        if self.complaints.len() < COMPLAINTS {
            self.complaints.push(complaint);
        }
    }

    /// Runs a case; the digest of its bits.
    fn attempt(
        &mut self,
        how: trial::How,
        work: impl Fn(&mut Trial<'_>) -> Result<()>,
    ) -> Result<u64> {
        Trial::new(self.device, self.element, how).run(work)
    }

    /// Whether a distance is within its bound.
    fn take(&mut self, name: &str, distance: &trial::Distance) -> bool {
        let trial::Distance { what, error, bound } = distance;
        let good = error <= bound;
        if !good {
            self.complain(format!(
                "{name}: {what} is {error:.1e} off, more than {bound:.0e}"
            ));
        }
        let share = |error: f64, bound: f64| if error == 0.0 { 0.0 } else { error / bound };
        if share(*error, *bound) >= share(self.worst.0, self.worst.1) {
            self.worst = (*error, *bound, format!("{what} of {name}"));
        }
        good
    }

    fn told(self) -> Told {
        let (error, bound, at) = &self.worst;
        let mut line = format!(
            "{} cases, {} failed; error at most {error:.1e} (bound {bound:.0e}): {at}",
            self.cases, self.failed
        );
        for complaint in &self.complaints {
            line += &format!("\n    {complaint}");
        }
        Told {
            passed: self.failed == 0 && self.cases > 0,
            line,
            data: json!({
                "cases": self.cases,
                "failed": self.failed,
                "error": finite(*error),
                "bound": bound,
                "worst_case": at,
                "complaints": self.complaints,
                "seconds": self.started.elapsed().as_secs_f64(),
            }),
        }
    }
}

/// JSON has no infinity.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { f64::MAX }
}

/// Turns a panic into an error.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let message = text.unwrap_or("no message");
        Err(Error::Failed(format!("a panic: {message}")))
    })
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All checks were run.
    Whole,
    /// The device answers no more: the checks behind the last that was told want another process.
    Lost,
}

/// Runs checks one after the other; `tell` hears of each before it runs, and then what it found.
pub fn run(
    checks: &[Check],
    session: &mut Session<'_>,
    tell: &mut dyn FnMut(&str, Option<Told>),
) -> Ended {
    for check in checks {
        tell(&check.name, None);
        let mut told = match caught(|| (check.run)(session)) {
            Ok(told) => told,
            Err(error) => Told::failed(error.to_string()),
        };
        let alive = session.alive(!told.passed);
        if let Err(error) = &alive {
            told.passed = false;
            told.line += &format!("\n    the device is lost: {error}");
        }
        tell(&check.name, Some(told));
        if alive.is_err() {
            return Ended::Lost;
        }
    }
    Ended::Whole
}
