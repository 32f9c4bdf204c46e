//! Measures the device's limits, and each launch of training steps as a share of what bounds it: the memory's speed or
//! the largest product's.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::engine::cuda::device::{Cost, Element};
use crate::engine::cuda::kernels::{stream_copy, stream_triad};
use crate::engine::cuda::peak::{Buffers, SIZE, product_peak};
use crate::engine::cuda::watched::{Group, Watch, Watched, grouped};
use crate::engine::cuda::{CudaEngine, Settings};
use crate::engine::timing::{Pass, pass_seconds};
use crate::engine::{Engine, Recompute};
use crate::error::{Error, Result};
use crate::model::{Layout, Part, Size};

use super::training::VOCABULARY;
use super::{Check, Outcome, Session};

/// The device's limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Floating-point operations per second of products in bf16.
    pub peak: f64,
}

impl Roofline {
    /// Returns the seconds that a launch takes at least.
    fn seconds(self, cost: Cost) -> f64 {
        (cost.bytes as f64 / self.bandwidth).max(cost.flops as f64 / self.peak)
    }
}

pub fn checks() -> Vec<Check> {
    let mut checks = vec![
        Check::new("bandwidth", |session| bandwidth(session).map(|(_, outcome)| outcome)),
        Check::new("largest product", |session| peaks(session).map(|(_, outcome)| outcome)),
    ];
    checks.push(Check::new("clocks under load", clocks));
    checks.extend(STEPS.map(|shape| {
        let (size, batch, length) = shape;
        let name = format!("launches of {} {batch}×{length}", size.name());
        Check::new(name, move |session| step(session, shape))
    }));
    checks
}

impl Session<'_> {
    /// Returns the limits, measured at first use.
    pub(super) fn roofline(&mut self) -> Result<Roofline> {
        Ok(Roofline {
            bandwidth: match self.measured.bandwidth {
                Some(known) => known,
                None => bandwidth(self)?.0,
            },
            peak: match self.measured.peak {
                Some(known) => known,
                None => peaks(self)?.0,
            },
        })
    }
}

/// Measures the bytes per second of a copy and a triad; returns the better.
fn bandwidth(session: &mut Session<'_>) -> Result<(f64, Outcome)> {
    const BYTES: u64 = 1 << 30;
    let by_clock = session.device()?.properties().bandwidth;
    let [copy, triad, fill] = Buffers::with(session.device()?, |buffers| {
        let count = (BYTES / 4) as usize;
        let [a, b, c] = buffers.several(Element::F32, count)?;
        let vectors = (BYTES / 16) as u32;
        let copy = buffers.seconds(&mut |d| stream_copy(d, vectors, b, a))?;
        let triad = buffers.seconds(&mut |d| stream_triad(d, vectors, 0.5, [b, c], a))?;
        let fill = buffers.seconds(&mut |d| d.fill(a, 1, BYTES))?;
        let bytes = BYTES as f64;
        Ok([2.0 * bytes / copy, 3.0 * bytes / triad, bytes / fill])
    })?;
    let best = copy.max(triad);
    session.measured.bandwidth = Some(best);
    let line = format!(
        "copy {:.0} GB/s, triad {:.0}, fill {:.0}; by the memory's clock {:.0}",
        copy / 1e9,
        triad / 1e9,
        fill / 1e9,
        by_clock / 1e9
    );
    let data =
        json!({"copy": copy, "triad": triad, "fill": fill, "best": best, "by_clock": by_clock});
    Ok((best, Outcome::good(line, data)))
}

/// Measures the peaks of all formats; returns that of bf16.
fn peaks(session: &mut Session<'_>) -> Result<(f64, Outcome)> {
    let all = [
        ("bf16", Element::Bf16, false),
        ("f16", Element::F16, false),
        ("tf32", Element::F32, true),
        ("f32", Element::F32, false),
    ];
    let mut line = Vec::new();
    let mut data = serde_json::Map::new();
    let mut best = None;
    for (name, element, tf32) in all {
        let flops = product_peak(session.device()?, element, tf32);
        match &flops {
            Ok(flops) => line.push(format!("{name} {:.0} TFLOP/s", flops / 1e12)),
            Err(error) => line.push(format!("{name}: {error}")),
        }
        data.insert(name.into(), json!(flops.as_ref().ok()));
        best = best.or(flops.ok());
    }
    let passed = data.values().all(|value| !value.is_null());
    let line = format!("{SIZE}³: {}", line.join(", "));
    let peak = best.ok_or_else(|| Error::Failed(line.clone()))?;
    session.measured.peak = Some(peak);
    Ok((peak, Outcome::new(passed, line, data.into())))
}

/// Measures the clocks, the power and the temperature while the largest products run.
fn clocks(session: &mut Session<'_>) -> Result<Outcome> {
    const SECONDS: u64 = 2;
    const QUERY: &str = "clocks.sm,clocks.mem,power.draw,temperature.gpu";
    let device = session.device()?;
    let sampler = Command::new("nvidia-smi")
        .args(["--query-gpu", QUERY, "--format=csv,noheader,nounits", "-lms", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut sampler = match sampler {
        Ok(sampler) => sampler,
        Err(error) => {
            return Ok(Outcome::good(format!("not measured: nvidia-smi: {error}"), json!({})));
        }
    };
    let started = Instant::now();
    let mut worked = Ok(0.0);
    while worked.is_ok() && started.elapsed() < Duration::from_secs(SECONDS) {
        worked = product_peak(device, Element::Bf16, false);
    }
    // It may have ended by itself.
    let _ = sampler.kill();
    let output = sampler.wait_with_output().map_err(|e| Error::io("nvidia-smi", e))?;
    worked?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = |line: &str| -> Option<[f64; 4]> {
        let all: Vec<f64> = line.split(',').filter_map(|x| x.trim().parse().ok()).collect();
        all.try_into().ok()
    };
    let samples: Vec<[f64; 4]> = text.lines().filter_map(numbers).collect();
    let of = |which: usize| samples.iter().map(move |sample| sample[which]);
    let (least, most) = (|i| of(i).fold(f64::INFINITY, f64::min), |i| of(i).fold(0.0, f64::max));
    let line = match samples.len() {
        0 => "nvidia-smi printed nothing".into(),
        count => format!(
            "multiprocessors {:.0} to {:.0} MHz, memory {:.0} MHz, up to {:.0} W, {:.0} °C; {count} samples",
            least(0),
            most(0),
            most(1),
            most(2),
            most(3)
        ),
    };
    Ok(Outcome::good(line, json!({"columns": QUERY, "samples": samples})))
}

/// Training steps whose launches are measured one by one: size, sequences, length.
const STEPS: [(Size, usize, usize); 6] = [
    (Size::Base, 64, 384),
    (Size::Large, 32, 384),
    (Size::Base, 192, 128),
    (Size::Base, 48, 512),
    (Size::Large, 96, 128),
    (Size::Large, 24, 512),
];

/// Measures each launch of a training step, and compares it with what the memory and the products allow.
fn step(session: &mut Session<'_>, (size, batch, length): (Size, usize, usize)) -> Result<Outcome> {
    let roofline = session.roofline()?;
    let config = size.config(VOCABULARY);
    let layout = Layout::new(&config, &Part::Span.with_encoder());
    let settings = Settings { element: Element::Bf16, tf32: false, recompute: Recompute::Nothing };
    let values = layout.initialise(0);
    let (device, log) = Watched::new(session.another()?, Watch::Time(None));
    let mut cuda = CudaEngine::new(Box::new(device), &config, &layout, values, settings)?;
    pass_seconds(&mut cuda, Pass::Train, (batch, length), 2, 0)?;
    cuda.device.get_mut().synchronize()?;
    log.take();
    pass_seconds(&mut cuda, Pass::Train, (batch, length), 0, 1)?;
    let device = cuda.device.get_mut();
    device.synchronize()?;
    let algorithms = device.algorithms();
    let parameters = cuda.parameters()?;
    drop(cuda);
    // The same steps without measurements, some of them recorded and replayed.
    let values = layout.initialise(0);
    let mut unwatched = CudaEngine::new(session.another()?, &config, &layout, values, settings)?;
    pass_seconds(&mut unwatched, Pass::Train, (batch, length), 2, 0)?;
    pass_seconds(&mut unwatched, Pass::Train, (batch, length), 0, 1)?;
    let same = unwatched.parameters()? == parameters;
    drop(unwatched);
    let groups = grouped(log.take());
    let least_of = |group: &Group| roofline.seconds(group.cost);
    let seconds: f64 = groups.iter().map(|group| group.seconds).sum();
    let least: f64 = groups.iter().map(least_of).sum();
    let mut line = format!(
        "{:.1} ms in launches, at least {:.1} ms by the roofline ({:.0} %); {} parameters as without measurements",
        seconds * 1e3,
        least * 1e3,
        100.0 * least / seconds,
        if same { "the same" } else { "OTHER" }
    );
    for group in &groups {
        let share = 100.0 * least_of(group) / group.seconds;
        line += &format!("\n    {}, {share:.0} % of the roofline", group.line());
    }
    for algorithm in &algorithms {
        line += &format!("\n    {algorithm}");
    }
    let data = json!({
        "size": size.name(),
        "batch": batch,
        "seq": length,
        "seconds": seconds,
        "roofline_seconds": least,
        "launches": groups.iter().map(|group| {
            let mut data = group.data();
            data["roofline_seconds"] = least_of(group).into();
            data
        }).collect::<Vec<_>>(),
        "algorithms": algorithms,
        "same_parameters": same,
    });
    Ok(Outcome::new(same, line, data))
}
