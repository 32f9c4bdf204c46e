//! How long each kernel takes at the sizes of base and large, and what share of what the device can do
//! that is: of the memory's speed or of the largest product's, whichever bounds it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::engine::cuda::device::{Address, Device, Element, Epilogue, Matrix, Product};
use crate::engine::cuda::kernels::{stream_copy, stream_triad};
use crate::error::{Error, Result};
use crate::train::speed::median;

use super::trial::numbers;
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

/// Bytes that are written between two measurements, so that nothing is in the cache that would not be.
const FLUSH: u64 = 256 << 20;
/// Measurements of which the middle one counts, as long as they don't take longer than this.
const REPEATS: usize = 15;
const PATIENCE: Duration = Duration::from_millis(600);

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

/// The device's memory that measurements use, filled with numbers: zeros would flatter.
struct Room<'a> {
    device: &'a mut dyn Device,
    held: Vec<Address>,
    flush: Address,
}

impl<'a> Room<'a> {
    fn with<T>(device: &'a mut dyn Device, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut room = Self {
            device,
            held: Vec::new(),
            flush: Address::NONE,
        };
        let done = (|| {
            room.flush = room.take(FLUSH)?;
            work(&mut room)
        })();
        for at in std::mem::take(&mut room.held) {
            room.device.release(at);
        }
        done
    }

    fn take(&mut self, bytes: u64) -> Result<Address> {
        let at = self.device.allocate(bytes)?;
        self.held.push(at);
        Ok(at)
    }

    /// `count` numbers between -2 and 2, the same again after a million.
    fn numbers(&mut self, element: Element, count: usize) -> Result<Address> {
        const PART: usize = 1 << 20;
        let bytes = count as u64 * element.bytes();
        let at = self.take(bytes)?;
        let part = super::trial::encode(element, &numbers(PART.min(count), 1));
        self.device.upload(at, &part)?;
        let mut done = part.len() as u64;
        while done < bytes {
            let more = done.min(bytes - done);
            self.device.copy(at, at.offset(done), more)?;
            done += more;
        }
        Ok(at)
    }

    fn words(&mut self, words: &[u32]) -> Result<Address> {
        let at = self.take(4 * words.len() as u64)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.device.upload(at, &bytes)?;
        Ok(at)
    }

    /// Seconds of `work`, the median of several measurements.
    fn seconds(&mut self, work: &mut Launches<'_>) -> Result<f64> {
        for _ in 0..2 {
            work(self.device)?;
        }
        self.device.synchronize()?;
        let started = Instant::now();
        let mut all = Vec::new();
        while all.len() < REPEATS && (all.len() < 3 || started.elapsed() < PATIENCE) {
            self.device.fill(self.flush, 1, FLUSH)?;
            let from = self.device.mark()?;
            work(self.device)?;
            let to = self.device.mark()?;
            all.push(self.device.seconds(from, to)?);
        }
        Ok(median(&mut all))
    }
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
    let [copy, triad, fill] = Room::with(session.device()?, |room| {
        let count = (BYTES / 4) as usize;
        let [a, b, c] = [
            room.numbers(Element::F32, count)?,
            room.numbers(Element::F32, count)?,
            room.numbers(Element::F32, count)?,
        ];
        let vectors = (BYTES / 16) as u32;
        let copy = room.seconds(&mut |d| stream_copy(d, vectors, b, a))?;
        let triad = room.seconds(&mut |d| stream_triad(d, vectors, 0.5, [b, c], a))?;
        let fill = room.seconds(&mut |d| d.fill(a, 1, BYTES))?;
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

/// Rows and columns of the largest products.
const SIZE: usize = 8192;

/// Operations a second of the largest products in a format.
pub fn product_peak(device: &mut dyn Device, element: Element, tf32: bool) -> Result<f64> {
    let seconds = Room::with(device, |room| {
        let mut matrix = || -> Result<Matrix> {
            let at = room.numbers(element, SIZE * SIZE)?;
            Ok(Matrix::new(at, element, SIZE, SIZE))
        };
        let product = Product {
            a: matrix()?,
            b: matrix()?.t(),
            c: matrix()?,
            alpha: 1.0,
            add: false,
            tf32,
            epilogue: Epilogue::Nothing,
        };
        room.seconds(&mut |device| device.multiply(&product))
    })?;
    Ok(2.0 * (SIZE as f64).powi(3) / seconds)
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

/// What is timed.
type Launches<'a> = dyn FnMut(&mut dyn Device) -> Result<()> + 'a;

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
    prepare: impl FnOnce(&mut Room<'_>) -> Result<Work>,
) -> Result<Told> {
    let roofline = session.roofline()?;
    let (work, seconds) = Room::with(session.device()?, |room| {
        let mut work = prepare(room)?;
        let seconds = room.seconds(&mut work.run)?;
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
