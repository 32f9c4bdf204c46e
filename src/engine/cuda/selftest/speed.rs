//! How long each kernel takes at the sizes of base and large, and what share of what the device can do
//! that is: of the memory's speed or of the largest product's, whichever bounds it.

use serde_json::json;

use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::{stream_copy, stream_triad};
use crate::engine::cuda::peak::{Buffers, Launches, SIZE, product_peak};
use crate::error::{Error, Result};

use super::{Check, Session, Told};

mod kernels;

/// What the device can do at best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Bytes a second.
    pub bandwidth: f64,
    /// Floating-point operations a second of products in bf16.
    pub peak: f64,
}

pub fn checks() -> Vec<Check> {
    let mut checks = vec![
        Check::new("bandwidth", |session| {
            bandwidth(session).map(|(_, told)| told)
        }),
        Check::new("largest product", |session| {
            peaks(session).map(|(_, told)| told)
        }),
    ];
    checks.extend(kernels::checks());
    checks
}

impl Session<'_> {
    /// Measured when first asked for.
    pub(super) fn roofline(&mut self) -> Result<Roofline> {
        Ok(Roofline {
            bandwidth: match self.memo.bandwidth {
                Some(known) => known,
                None => bandwidth(self)?.0,
            },
            peak: match self.memo.peak {
                Some(known) => known,
                None => peaks(self)?.0,
            },
        })
    }
}

/// Bytes a second of the better of a copy and a triad.
fn bandwidth(session: &mut Session<'_>) -> Result<(f64, Told)> {
    const BYTES: u64 = 1 << 30;
    let by_clock = session.device()?.properties().bandwidth;
    let [copy, triad, fill] = Buffers::with(session.device()?, |buffers| {
        let count = (BYTES / 4) as usize;
        let [a, b, c] = [
            buffers.numbers(Element::F32, count)?,
            buffers.numbers(Element::F32, count)?,
            buffers.numbers(Element::F32, count)?,
        ];
        let vectors = (BYTES / 16) as u32;
        let copy = buffers.seconds(&mut |d| stream_copy(d, vectors, b, a))?;
        let triad = buffers.seconds(&mut |d| stream_triad(d, vectors, 0.5, [b, c], a))?;
        let fill = buffers.seconds(&mut |d| d.fill(a, 1, BYTES))?;
        let bytes = BYTES as f64;
        Ok([2.0 * bytes / copy, 3.0 * bytes / triad, bytes / fill])
    })?;
    let best = copy.max(triad);
    session.memo.bandwidth = Some(best);
    let line = format!(
        "copy {:.0} GB/s, triad {:.0}, fill {:.0}; by the memory's clock {:.0}",
        copy / 1e9,
        triad / 1e9,
        fill / 1e9,
        by_clock / 1e9
    );
    let data =
        json!({"copy": copy, "triad": triad, "fill": fill, "best": best, "by_clock": by_clock});
    Ok((best, Told::good(line, data)))
}

/// Those of all formats; gives that of bf16.
fn peaks(session: &mut Session<'_>) -> Result<(f64, Told)> {
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
    session.memo.peak = Some(peak);
    Ok((
        peak,
        Told {
            passed,
            line,
            data: data.into(),
        },
    ))
}

/// A kernel at work.
struct Work {
    /// That it reads and writes at least.
    bytes: f64,
    /// Of products.
    flops: f64,
    run: Box<Launches<'static>>,
}

/// Times a kernel.
fn timed(
    session: &mut Session<'_>,
    shape: &str,
    prepare: impl FnOnce(&mut Buffers<'_>) -> Result<Work>,
) -> Result<Told> {
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
    Ok(Told::good(line, data))
}
