//! The self-test of a device: compares every kernel and product and whole training steps with the
//! CPU engine, and times kernels and training steps. `cloze bench --gpu-selftest` runs it, on a GPU
//! or on the emulated device, in processes that may crash; the kernels' unit tests run its checks
//! too.
//!
//! A check never stops another: errors and panics are part of its outcome. Only a device that no
//! longer responds ends a run; another process then continues with the rest.

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
mod test_case;
#[cfg(test)]
mod tests;
mod training;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::{Error, Result};

use super::device::{Cost, Device, Element};
use super::watched::{FLUSH, Watch, Watched};
use crate::engine::timing::median;

use self::test_case::{TestCase, name_of};

/// Sections of the self-test, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Section {
    /// The machine, and the compilation of kernels.
    Machine,
    /// Every kernel against the CPU engine.
    Kernels,
    /// Matrix products.
    Products,
    /// Training steps against the CPU engine.
    Steps,
    /// Each kernel's time.
    Speed,
    /// Times of whole training steps.
    Training,
}

impl Section {
    pub const ALL: [Self; 6] =
        [Self::Machine, Self::Kernels, Self::Products, Self::Steps, Self::Speed, Self::Training];

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

/// The amount of testing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All sizes, for a GPU.
    Full,
    /// Small sizes, for the emulated device.
    Small,
    /// A few sizes, for tests.
    Short,
}

impl Scale {
    /// Returns batches as the lengths of their sequences.
    fn lengths(self) -> &'static [&'static [usize]] {
        match self {
            Self::Full => {
                &[&[1], &[2], &[31], &[33], &[127], &[383], &[512], &[512, 1, 33, 127, 2, 383, 31]]
            }
            Self::Small => &[&[1], &[2], &[31], &[33], &[127], &[17, 1, 33, 2]],
            Self::Short => &[&[1], &[17, 1, 33, 2]],
        }
    }

    fn widths(self) -> &'static [usize] {
        match self {
            Self::Full => &[768, 77, 1024, 384, 128, 100, 7, 1030],
            Self::Small => &[128, 33, 7],
            Self::Short => &[77],
        }
    }

    /// Returns batches as the width of their rows and the lengths of their sequences. At full scale most widths have
    /// only the batch with all lengths.
    fn batches(self) -> impl Iterator<Item = (usize, &'static [usize])> {
        let widths = self.widths().iter().enumerate();
        widths.flat_map(move |(index, &width)| {
            let all =
                move |lengths: &&[usize]| self != Self::Full || index < 2 || lengths.len() > 1;
            self.lengths().iter().copied().filter(all).map(move |lengths| (width, lengths))
        })
    }

    /// Returns the width and the lengths of a batch whose launches are measured: a training step's of the base model.
    fn measured(self) -> (usize, &'static [usize]) {
        match self {
            Self::Full => (768, &[384; 64]),
            Self::Small => (64, &[33; 3]),
            Self::Short => (16, &[5]),
        }
    }

    /// Returns how often launches are measured.
    fn repeats(self, element: Element) -> usize {
        if self == Self::Full && element == Element::Bf16 { 5 } else { 1 }
    }
}

/// Opens the tested device.
pub type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Device>>;

/// The state that checks share.
pub struct Session<'a> {
    pub scale: Scale,
    open: Open<'a>,
    /// The device of the kernels' checks, opened at first use.
    device: Option<Box<dyn Device>>,
    measured: Measured,
}

/// Results of checks that later ones need.
#[derive(Default)]
struct Measured {
    steps: steps::References,
    /// Bytes per second of the memory; operations per second of the largest product.
    bandwidth: Option<f64>,
    peak: Option<f64>,
}

impl<'a> Session<'a> {
    pub fn new(open: Open<'a>, scale: Scale) -> Self {
        Self { scale, open, device: None, measured: Measured::default() }
    }

    fn device(&mut self) -> Result<&mut dyn Device> {
        let device = match self.device.take() {
            Some(device) => device,
            None => (self.open)()?,
        };
        Ok(self.device.insert(device).as_mut())
    }

    /// Opens another device, for an engine that owns it.
    fn another(&self) -> Result<Box<dyn Device>> {
        (self.open)()
    }

    /// Returns an error if the device no longer responds. `doubted`: a check failed, maybe for that
    /// reason.
    fn alive(&mut self, doubted: bool) -> Result<()> {
        match &mut self.device {
            Some(device) => device.synchronize(),
            None if doubted => self.device()?.synchronize(),
            None => Ok(()),
        }
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub passed: bool,
    /// A line for users.
    pub line: String,
    /// An object for programs.
    pub data: Value,
    /// Whether the device no longer responds.
    pub lost: bool,
}

impl Outcome {
    fn new(passed: bool, line: String, data: Value) -> Self {
        Self { passed, line, data, lost: false }
    }

    fn good(line: String, data: Value) -> Self {
        Self::new(true, line, data)
    }

    fn failed(line: String) -> Self {
        let data = json!({"error": &line});
        Self::new(false, line, data)
    }
}

type Work = Box<dyn Fn(&mut Session<'_>) -> Result<Outcome>>;

/// A check.
pub struct Check {
    pub name: String,
    run: Work,
}

impl Check {
    fn new(
        name: impl Into<String>,
        run: impl Fn(&mut Session<'_>) -> Result<Outcome> + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Returns all checks of a section. With `emulated`, omits those that need a GPU.
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

/// Tests a kernel in one element type.
type KernelTest = fn(&mut TestCases<'_>);

const KERNELS: &[(&str, KernelTest)] = &[
    // The most complicated one first.
    ("attention", attention::plain_and_flash),
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
    ("relu", elementwise::relu),
    ("add", elementwise::add),
    ("pick", rows::pick),
    ("add_picked", rows::add_picked),
    ("drop_rows", rows::drop_rows),
    ("cast", rows::cast),
    ("cross_entropy", loss::cross_entropy),
    ("span_loss", loss::span_loss),
    ("distillation", loss::distillation),
    ("cosine", loss::cosine),
    ("sum_of_squares", optimizer::sum_of_squares),
    ("adamw", optimizer::adamw),
    ("lamb", optimizer::lamb),
];

fn kernel_checks() -> Vec<Check> {
    let elements = [Element::F32, Element::Bf16, Element::F16];
    let pairs = KERNELS.iter().flat_map(|kernel| elements.map(|element| (*kernel, element)));
    let mut checks: Vec<Check> = pairs
        .map(|((name, cases), element)| {
            kernel_check(format!("{name} {}", name_of(element)), element, cases)
        })
        .collect();
    checks.insert(1, kernel_check("attention tf32".into(), Element::F32, attention::tf32));
    checks
}

fn kernel_check(name: String, element: Element, cases: KernelTest) -> Check {
    Check::new(name, move |session| {
        let scale = session.scale;
        Ok(run_cases(session.device()?, element, scale, cases).outcome())
    })
}

/// Runs a kernel's test cases on a device.
fn run_cases<'a>(
    device: &'a mut dyn Device,
    element: Element,
    scale: Scale,
    cases: impl FnOnce(&mut TestCases<'_>),
) -> TestCases<'a> {
    let mut all = TestCases::new(device, element, scale);
    cases(&mut all);
    all
}

/// Test cases and their results.
pub struct TestCases<'a> {
    device: &'a mut dyn Device,
    pub element: Element,
    pub scale: Scale,
    cases: usize,
    failed: usize,
    /// The worst case: its error, its bound and its name.
    worst: (f64, f64, String),
    complaints: Vec<String>,
    measured: Vec<Launch>,
    started: Instant,
}

/// A measured launch or product.
struct Launch {
    what: String,
    cost: Cost,
    /// The median.
    seconds: f64,
}

impl Launch {
    fn line(&self) -> String {
        let (bytes, flops) = (self.cost.bytes as f64, self.cost.flops as f64);
        let mut line = format!(
            "{:<28} {:>8.1} µs {:>6.0} GB/s",
            self.what,
            self.seconds * 1e6,
            bytes / self.seconds / 1e9
        );
        if self.cost.flops > 0 {
            line += &format!(" {:>6.1} TFLOP/s", flops / self.seconds / 1e12);
        }
        line
    }

    fn data(&self) -> Value {
        let Cost { bytes, flops } = self.cost;
        json!({"what": self.what, "seconds": self.seconds, "bytes": bytes, "flops": flops})
    }
}

/// Maximum number of reported complaints.
const COMPLAINTS: usize = 6;

impl<'a> TestCases<'a> {
    fn new(device: &'a mut dyn Device, element: Element, scale: Scale) -> Self {
        Self {
            device,
            element,
            scale,
            cases: 0,
            failed: 0,
            worst: (0.0, 0.0, String::new()),
            complaints: Vec::new(),
            measured: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Runs a case. Also runs it again, to check that the bits are the same, and with unaligned
    /// values; at small scales not for every case.
    pub fn test(&mut self, name: &str, work: impl Fn(&mut TestCase<'_>) -> Result<()>) {
        self.test_aligned(name, &work);
        if self.scale == Scale::Full || self.cases.is_multiple_of(3) {
            let mode = test_case::Mode { shifted: true, ..test_case::Mode::default() };
            self.one(&format!("{name}, not aligned"), mode, &work);
        }
    }

    /// Tests every width with every batch and dropout probability.
    pub fn over_batches(
        &mut self,
        dropouts: &[f64],
        work: impl Fn(&mut TestCase<'_>, usize, &[usize], f64) -> Result<()>,
    ) {
        let work = |case: &mut TestCase<'_>, width, lengths: &[usize], p| {
            case.columns = width;
            work(case, width, lengths, p)
        };
        for (width, lengths) in self.scale.batches() {
            for &p in dropouts {
                let name = format!("{width} wide, {lengths:?}, dropout {p}");
                self.test(&name, |case| work(case, width, lengths, p));
            }
        }
        let (width, lengths) = self.scale.measured();
        for &p in dropouts {
            let name = format!("{width} wide, {}×{}, dropout {p}", lengths.len(), lengths[0]);
            self.measure(&name, |case| work(case, width, lengths, p));
        }
    }

    /// Tests every width with the number of rows of every batch.
    pub fn over_matrices(&mut self, work: impl Fn(&mut TestCase<'_>, usize, usize) -> Result<()>) {
        let work = |case: &mut TestCase<'_>, n, width| {
            case.columns = width;
            work(case, n, width)
        };
        for (width, lengths) in self.scale.batches() {
            let n = lengths.iter().sum();
            self.test(&format!("{n} rows of {width}"), |case| work(case, n, width));
        }
        let (width, lengths) = self.scale.measured();
        let n = lengths.iter().sum();
        self.measure(&format!("{n} rows of {width}"), |case| work(case, n, width));
    }

    /// Tests a case as large as in training, then measures its launches: the results of each measurement must have the
    /// bits of the tested ones.
    pub fn measure(&mut self, name: &str, work: impl Fn(&mut TestCase<'_>) -> Result<()>) {
        let Some(tested) = self.one(name, test_case::Mode::default(), &work) else {
            return;
        };
        if let Err(error) = self.times(name, tested, &work) {
            self.failed += 1;
            self.complain(format!("{name}, measured: {error}"));
        }
    }

    fn times(
        &mut self,
        name: &str,
        tested: u64,
        work: impl Fn(&mut TestCase<'_>) -> Result<()>,
    ) -> Result<()> {
        // Reading so much takes the emulated device too long.
        let flush = match self.scale {
            Scale::Full => Some(self.device.allocate(FLUSH)?),
            Scale::Small | Scale::Short => None,
        };
        let (mut device, log) = Watched::new(&mut *self.device, Watch::Time(flush));
        let mode = test_case::Mode { again: true, ..test_case::Mode::default() };
        let mut all: Vec<(String, Cost, Vec<f64>)> = Vec::new();
        let mut done = Ok(());
        for _ in 0..self.scale.repeats(self.element) {
            let digest = TestCase::new(&mut device, self.element, mode).run(&work);
            match digest {
                Ok(digest) if digest == tested => {}
                Ok(_) => done = Err(Error::Failed("other bits than before".into())),
                Err(error) => done = Err(error),
            }
            // The case itself fills its buffers.
            let launches = log.take().into_iter().filter(|o| o.what != "fill" && o.what != "copy");
            for (index, launch) in launches.enumerate() {
                if all.len() == index {
                    all.push((launch.what, launch.cost, Vec::new()));
                }
                all[index].2.push(launch.seconds);
            }
        }
        if let Some(flush) = flush {
            self.device.release(flush);
        }
        done?;
        self.measured.extend(all.into_iter().map(|(what, cost, mut seconds)| Launch {
            what: format!("{what} ({name})"),
            cost,
            seconds: median(&mut seconds),
        }));
        Ok(())
    }

    /// Like [`test`](Self::test) for kernels that need aligned values.
    pub fn test_aligned(&mut self, name: &str, work: impl Fn(&mut TestCase<'_>) -> Result<()>) {
        let twice = self.scale == Scale::Full || self.cases.is_multiple_of(4);
        let Some(first) = self.one(name, test_case::Mode::default(), &work) else {
            return;
        };
        if twice {
            let mode = test_case::Mode { again: true, ..test_case::Mode::default() };
            let complaint = match self.attempt(mode, &work) {
                Ok(second) if second == first => return,
                Ok(_) => format!("{name}: other bits in the second run"),
                Err(error) => format!("{name}, again: {error}"),
            };
            self.failed += 1;
            self.complain(complaint);
        }
    }

    /// Runs a case once and judges it; returns the digest of its bits.
    fn one(
        &mut self,
        name: &str,
        mode: test_case::Mode,
        work: impl Fn(&mut TestCase<'_>) -> Result<()>,
    ) -> Option<u64> {
        self.cases += 1;
        let deviations = RefCell::new(Vec::new());
        let digest = self.attempt(mode, |case| {
            work(case)?;
            deviations.replace(case.deviations().to_vec());
            Ok(())
        });
        let mut good = true;
        // A write outside of buffers is an error, but doesn't hide the deviations.
        for distance in deviations.into_inner() {
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

    /// Runs a case; returns the digest of its bits.
    fn attempt(
        &mut self,
        mode: test_case::Mode,
        work: impl Fn(&mut TestCase<'_>) -> Result<()>,
    ) -> Result<u64> {
        TestCase::new(self.device, self.element, mode).run(work)
    }

    /// Records a deviation; returns whether it is within its bound.
    fn take(&mut self, name: &str, distance: &test_case::Deviation) -> bool {
        let test_case::Deviation { what, error, bound, places } = distance;
        let good = error <= bound;
        if !good {
            self.complain(format!(
                "{name}: {what} is {error:.1e} off, more than {bound:.0e}: {places}"
            ));
        }
        let share = |error: f64, bound: f64| if error == 0.0 { 0.0 } else { error / bound };
        if share(*error, *bound) >= share(self.worst.0, self.worst.1) {
            self.worst = (*error, *bound, format!("{what} of {name}"));
        }
        good
    }

    fn outcome(self) -> Outcome {
        let (error, bound, at) = &self.worst;
        let mut line = format!(
            "{} cases, {} failed; error at most {error:.1e} (bound {bound:.0e}): {at}",
            self.cases, self.failed
        );
        for complaint in &self.complaints {
            line += &format!("\n    {complaint}");
        }
        if self.scale == Scale::Full {
            let times = self.measured.iter().map(|launch| format!("\n    {}", launch.line()));
            line.extend(times);
        }
        let passed = self.failed == 0 && self.cases > 0;
        Outcome::new(
            passed,
            line,
            json!({
                "cases": self.cases,
                "failed": self.failed,
                "error": finite(*error),
                "bound": bound,
                "worst_case": at,
                "complaints": self.complaints,
                "measured": self.measured.iter().map(Launch::data).collect::<Vec<_>>(),
                "seconds": self.started.elapsed().as_secs_f64(),
            }),
        )
    }
}

/// Replaces infinity, which JSON lacks.
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
    /// All checks ran.
    Whole,
    /// The device no longer responds: the remaining checks need another process.
    Lost,
}

/// Runs checks; calls `report` before each, and again with its outcome.
pub fn run(
    checks: &[Check],
    session: &mut Session<'_>,
    report: &mut dyn FnMut(&str, Option<Outcome>),
) -> Ended {
    for check in checks {
        report(&check.name, None);
        let mut outcome = match caught(|| (check.run)(session)) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::failed(error.to_string()),
        };
        let alive = session.alive(!outcome.passed);
        if let Err(error) = &alive {
            outcome.passed = false;
            outcome.lost = true;
            outcome.line += &format!("\n    the device is lost: {error}");
        }
        report(&check.name, Some(outcome));
        if alive.is_err() {
            return Ended::Lost;
        }
    }
    Ended::Whole
}
