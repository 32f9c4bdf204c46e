//! Times whole training steps: tokens per second, the share of the peak, memory, the largest batch.

use serde_json::json;

use crate::engine::cuda::device::Element;
use crate::engine::cuda::state::State;
use crate::engine::cuda::{CudaEngine, Settings, forecast};
use crate::engine::memory::{Work, largest};
use crate::engine::timing::{Pass, median, pass_seconds};
use crate::engine::{Engine, Recompute};
use crate::error::{Error, Result};
use crate::memory::format_bytes;
use crate::model::flops_per_token;
use crate::model::{Config, Layout, Part, Size};

use super::test_case::name_of;
use super::{Check, Outcome, Session};

pub(super) const VOCABULARY: usize = 30522;
const LENGTH: usize = 384;
const WARM_UP: u64 = 3;
const STEPS: u64 = 10;

/// A timed training step.
#[derive(Debug, Clone, Copy)]
struct Case {
    size: Size,
    batch: usize,
    element: Element,
    tf32: bool,
}

impl Case {
    fn format(&self) -> &'static str {
        if self.tf32 { "tf32" } else { name_of(self.element) }
    }

    fn settings(&self) -> Settings {
        Settings { element: self.element, tf32: self.tf32, recompute: Recompute::Nothing }
    }

    fn config(&self) -> Config {
        self.size.config(VOCABULARY)
    }
}

pub fn checks() -> Vec<Check> {
    let case = |size, batch, element, tf32| Case { size, batch, element, tf32 };
    let cases = [
        case(Size::Base, 64, Element::Bf16, false),
        case(Size::Large, 32, Element::Bf16, false),
        case(Size::Base, 128, Element::Bf16, false),
        case(Size::Base, 256, Element::Bf16, false),
        case(Size::Large, 128, Element::Bf16, false),
        case(Size::Base, 64, Element::F16, false),
        case(Size::Base, 64, Element::F32, true),
        case(Size::Large, 32, Element::F32, true),
        case(Size::Base, 128, Element::F32, true),
        case(Size::Base, 64, Element::F32, false),
    ];
    let time = |case: Case| {
        let (size, batch, format) = (case.size.name(), case.batch, case.format());
        let name = format!("{size} {batch}×{LENGTH} {format}");
        Check::new(name, move |session| timed(session, case))
    };
    let most = [Size::Base, Size::Large].map(|size| {
        let case = case(size, 0, Element::Bf16, false);
        let name = format!("largest batch of {} at {LENGTH}", size.name());
        Check::new(name, move |session| largest_batch(session, case))
    });
    cases.into_iter().map(time).chain(most).collect()
}

fn engine(session: &Session<'_>, case: Case) -> Result<CudaEngine> {
    let config = case.config();
    let layout = Layout::new(&config, &Part::Span.with_encoder());
    let values = layout.initialise(0);
    CudaEngine::new(session.another()?, &config, &layout, values, case.settings())
}

/// Describes the speed of a step.
fn outcome(
    session: &mut Session<'_>,
    case: Case,
    cuda: &CudaEngine,
    seconds: f64,
) -> Result<Outcome> {
    let peak = session.roofline()?.peak;
    let tokens_per_s = (case.batch * LENGTH) as f64 / seconds;
    let flops = flops_per_token(cuda.config(), LENGTH) * tokens_per_s;
    let state = State::bytes(cuda.layout(), case.element);
    let activations = cuda.activation_bytes();
    let line = format!(
        "{tokens_per_s:>9.0} tokens/s, {:>7.1} ms a step, {:.0} TFLOP/s of the model ({:.0} % of the largest \
         bf16 product's), {} of state, {} of activations; {} replays",
        seconds * 1e3,
        flops / 1e12,
        100.0 * flops / peak,
        format_bytes(state),
        format_bytes(activations),
        cuda.replayed(),
    );
    let data = json!({
        "size": case.size.name(),
        "batch": case.batch,
        "seq": LENGTH,
        "dtype": case.format(),
        "seconds": seconds,
        "tokens_per_s": tokens_per_s,
        "model_tflops": flops / 1e12,
        "mfu": flops / peak,
        "state_bytes": state,
        "activation_bytes": activations,
        "replayed": cuda.replayed(),
    });
    Ok(Outcome::good(line, data))
}

fn timed(session: &mut Session<'_>, case: Case) -> Result<Outcome> {
    // Measured before the engine takes the memory.
    session.roofline()?;
    let mut cuda = engine(session, case)?;
    let steps = if case.element == Element::F32 { 4 } else { STEPS };
    let mut seconds = pass_seconds(&mut cuda, Pass::Train, (case.batch, LENGTH), WARM_UP, steps)?;
    outcome(session, case, &cuda, median(&mut seconds))
}

/// Finds the largest batch by the arena's plan, and runs one step with it.
fn largest_batch(session: &mut Session<'_>, case: Case) -> Result<Outcome> {
    /// Memory for the driver, the batch itself and a head's outputs.
    const RESERVE: u64 = 1 << 30;
    session.roofline()?;
    let mut cuda = engine(session, case)?;
    let free = cuda.device.get_mut().free_memory()?.saturating_sub(RESERVE);
    let all = 1 << 14;
    let work = Work { rows: all * LENGTH, sequences: all, longest: LENGTH, predicted: 0 };
    let layout = cuda.layout().clone();
    let config = case.config();
    let needs = |work| forecast(&config, &layout, work, case.settings(), false).activations;
    let batch = largest(work, free, needs);
    if batch == 0 {
        return Err(Error::Failed(format!("not one sequence fits into {}", format_bytes(free))));
    }
    let seconds = pass_seconds(&mut cuda, Pass::Train, (batch, LENGTH), 1, 1)?;
    let case = Case { batch, ..case };
    let mut result = outcome(session, case, &cuda, seconds[0])?;
    result.line = format!("{batch} sequences fit into {}: {}", format_bytes(free), result.line);
    Ok(result)
}
