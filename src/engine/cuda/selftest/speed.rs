//! Times each kernel at the sizes of base and large, as a share of what bounds it: the memory's
//! speed or the largest product's.

use serde_json::json;

use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::{stream_copy, stream_triad};
use crate::engine::cuda::peak::{Buffers, Launches, SIZE, product_peak};
use crate::error::{Error, Result};

use super::{Check, Outcome, Session};

mod kernels;

/// The device's limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Floating-point operations per second of products in bf16.
    pub peak: f64,
}

pub fn checks() -> Vec<Check> {
    let mut checks = vec![
        Check::new("bandwidth", |session| bandwidth(session).map(|(_, outcome)| outcome)),
        Check::new("largest product", |session| peaks(session).map(|(_, outcome)| outcome)),
    ];
    checks.extend(kernels::checks());
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
    Ok((peak, Outcome { passed, line, data: data.into() }))
}

/// A timed kernel.
struct Work {
    /// Minimum bytes read and written.
    bytes: f64,
    /// Operations of products.
    flops: f64,
    run: Box<Launches<'static>>,
}

/// Times a kernel.
fn timed(
    session: &mut Session<'_>,
    shape: &str,
    prepare: impl FnOnce(&mut Buffers<'_>) -> Result<Work>,
) -> Result<Outcome> {
    let roofline = session.roofline()?;
    let (work, seconds) = Buffers::with(session.device()?, |buffers| {
        let mut work = prepare(buffers)?;
        let seconds = buffers.seconds(&mut work.run)?;
        Ok((work, seconds))
    })?;
    let of_memory = work.bytes / roofline.bandwidth;
    let of_products = work.flops / roofline.peak;
    let (bound, least) = match of_memory >= of_products {
        true => ("memory", of_memory),
        false => ("compute", of_products),
    };
    let line = format!(
        "{:>8.1} µs {:>6.0} GB/s {:>6.1} TFLOP/s, {:>3.0} % of the roofline ({bound}); {shape}",
        seconds * 1e6,
        work.bytes / seconds / 1e9,
        work.flops / seconds / 1e12,
        100.0 * least / seconds,
    );
    let data = json!({
        "shape": shape,
        "seconds": seconds,
        "bytes": work.bytes,
        "flops": work.flops,
        "bytes_per_s": work.bytes / seconds,
        "flops_per_s": work.flops / seconds,
        "share": least / seconds,
        "bound": bound,
    });
    Ok(Outcome::good(line, data))
}
