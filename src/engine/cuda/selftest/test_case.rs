//! A test case: buffers on the device between guards, the outputs of a kernel, and their deviations
//! from the expected values.

use std::hash::{DefaultHasher, Hasher};

use half::{bf16, f16};

use crate::data::Packed;
use crate::engine::cpu::dropout::{Mask, Rows};
use crate::engine::cuda::batch::{DeviceBatch, HeadInputs, Staging};
use crate::engine::cuda::device::{Address, Device, Element};
use crate::engine::cuda::kernels::SiteDropout;
pub use crate::engine::cuda::peak::{encode, numbers};
use crate::error::{Error, Result};
use crate::model::{Dropout, threshold};
use crate::random::{Site, Stream};

/// Bytes before and after each buffer that must not be written.
const GUARD: u64 = 1024;
/// NaN in f32, bf16 and f16, which reveals values that were never written, and reads outside of
/// buffers. GPU arithmetic turns it into another NaN, which shows in guards.
const POISON: u8 = 0xFF;

/// The key of every case's dropout, with a seed beyond 32 bits.
pub const DROPOUT: Dropout = Dropout { seed: 0x1234_5678_9ABC, step: 6 };
/// Upper limit of the ids in batches.
pub const VOCABULARY: u32 = 203;

/// Returns the relative error that an element's rounding may cause.
pub fn bound(element: Element) -> f64 {
    match element {
        Element::F32 => 1e-4,
        Element::Bf16 | Element::F16 => 1e-2,
    }
}

/// Returns the element's name on the command line.
pub fn name_of(element: Element) -> &'static str {
    match element {
        Element::F32 => "f32",
        Element::Bf16 => "bf16",
        Element::F16 => "f16",
    }
}

/// Returns values rounded to `element`.
pub fn rounded(element: Element, values: &[f32]) -> Vec<f32> {
    decode(element, &encode(element, values))
}

fn decode(element: Element, bytes: &[u8]) -> Vec<f32> {
    let short = bytes.as_chunks::<2>().0.iter().copied();
    match element {
        Element::F32 => {
            let words = bytes.as_chunks::<4>().0.iter().copied();
            words.map(f32::from_ne_bytes).collect()
        }
        Element::Bf16 => short.map(|b| bf16::from_ne_bytes(b).to_f32()).collect(),
        Element::F16 => short.map(|b| f16::from_ne_bytes(b).to_f32()).collect(),
    }
}

/// Returns random whole numbers below `limit`.
pub fn indices(count: usize, limit: u32, key: u64) -> Vec<u32> {
    let mut draws = Stream::new(key, 0, Site::Other(1), 2).draws();
    (0..count).map(|_| draws.below(limit)).collect()
}

/// Returns sequences of these lengths; every third token is the same, so that tables have busy
/// entries.
pub fn packed(lengths: &[usize]) -> Packed {
    let mut packed = Packed::default();
    for (index, &length) in lengths.iter().enumerate() {
        let mut ids = indices(length, VOCABULARY, index as u64);
        ids.iter_mut().step_by(3).for_each(|id| *id = 7);
        let segments: Vec<u32> = (0..length).map(|i| u32::from(2 * i > length)).collect();
        // Some examples have more than 32 bits.
        let example = (index as u64 * 5 + 1) << (index % 3 * 20);
        packed.push(example, &ids, &segments);
    }
    packed
}

/// A buffer on the device.
struct Buffer {
    start: Address,
    /// Bytes of the guard before it; [`GUARD`] bytes follow it.
    before: u64,
    bytes: u64,
    /// Contents that must not change.
    constant: Option<Vec<u8>>,
}

/// The deviation of a result from its expected value.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    pub what: String,
    /// Relative error; infinite if a value is not finite.
    pub error: f64,
    pub bound: f64,
    /// Where the results differ; empty if they are within the bound.
    pub places: String,
}

/// A running test case.
pub struct TestCase<'a> {
    pub device: &'a mut dyn Device,
    pub element: Element,
    /// Values in a row of most results, for messages; 0 if they have no rows.
    pub columns: usize,
    mode: Mode,
    buffers: Vec<Buffer>,
    staging: Staging,
    digest: DefaultHasher,
    deviations: Vec<Deviation>,
}

/// How a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Again, to check that the bits are the same.
    pub again: bool,
    /// With all values shifted by one element, so that they are not aligned for vectors.
    pub shifted: bool,
}

/// A batch on the device and on the host.
pub struct TestBatch {
    pub packed: Packed,
    pub on_device: DeviceBatch,
    pub rows: Rows,
}

impl<'a> TestCase<'a> {
    pub fn new(device: &'a mut dyn Device, element: Element, mode: Mode) -> Self {
        Self {
            device,
            element,
            columns: 0,
            mode,
            buffers: Vec::new(),
            staging: Staging::default(),
            digest: DefaultHasher::new(),
            deviations: Vec::new(),
        }
    }

    /// Runs a case and releases all of its memory in any event. Returns the digest of all output
    /// bits.
    pub fn run(mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<u64> {
        let worked = super::caught(|| work(&mut self));
        let checked = worked.and_then(|()| self.check_buffers());
        for buffer in std::mem::take(&mut self.buffers) {
            self.device.release(buffer.start);
        }
        self.staging.release(self.device);
        checked?;
        Ok(self.digest.finish())
    }

    /// Allocates a buffer, filled with poison including its guards, shifted by `shift` bytes.
    fn allocate(&mut self, bytes: u64, shift: u64, constant: Option<Vec<u8>>) -> Result<Address> {
        // The guard after it begins right at its end.
        let before = GUARD + shift;
        let whole = before + bytes + GUARD;
        let start = self.device.allocate(whole)?;
        self.buffers.push(Buffer { start, before, bytes, constant });
        self.device.fill(start, POISON, whole)?;
        Ok(start.offset(before))
    }

    fn shift(&self, element: Element) -> u64 {
        if self.mode.shifted { element.bytes() } else { 0 }
    }

    /// Allocates `count` values for a kernel to write.
    pub fn empty(&mut self, element: Element, count: usize) -> Result<Address> {
        self.allocate(element.bytes() * count as u64, self.shift(element), None)
    }

    /// Allocates bytes of scratch, always aligned, as in the engine.
    pub fn scratch(&mut self, bytes: u64) -> Result<Address> {
        self.allocate(bytes, 0, None)
    }

    /// Uploads values that a kernel may change.
    pub fn changing(&mut self, element: Element, values: &[f32]) -> Result<Address> {
        let bytes = encode(element, values);
        let at = self.allocate(bytes.len() as u64, self.shift(element), None)?;
        self.device.upload(at, &bytes)?;
        Ok(at)
    }

    /// Uploads values that must not change.
    pub fn constant(&mut self, element: Element, values: &[f32]) -> Result<Address> {
        self.constant_at(self.shift(element), encode(element, values))
    }

    /// Uploads whole numbers that must not change.
    pub fn words(&mut self, values: &[u32]) -> Result<Address> {
        self.constant_bytes(values.iter().flat_map(|x| x.to_ne_bytes()).collect())
    }

    /// Uploads bytes that must not change.
    pub fn constant_bytes(&mut self, bytes: Vec<u8>) -> Result<Address> {
        self.constant_at(0, bytes)
    }

    fn constant_at(&mut self, shift: u64, bytes: Vec<u8>) -> Result<Address> {
        let at = self.allocate(bytes.len() as u64, shift, Some(bytes.clone()))?;
        self.device.upload(at, &bytes)?;
        Ok(at)
    }

    /// Uploads a batch of sequences of these lengths.
    pub fn sample(&mut self, lengths: &[usize]) -> Result<TestBatch> {
        let packed = packed(lengths);
        let (on_device, _) = self.staging.send(
            self.device,
            &packed,
            HeadInputs::default(),
            Some(DROPOUT),
            VOCABULARY as usize,
        )?;
        let mut rows = Rows::default();
        rows.set(&packed);
        Ok(TestBatch { packed, on_device, rows })
    }

    /// Downloads the outputs of kernels; None in the second run of a case, where only the bits
    /// count.
    pub fn outputs<const N: usize>(
        &mut self,
        outputs: [(Address, Element, usize); N],
    ) -> Result<Option<[Vec<f32>; N]>> {
        let mut all = [const { Vec::new() }; N];
        for (into, (at, element, count)) in all.iter_mut().zip(outputs) {
            let bytes = self.bytes(at, element.bytes() * count as u64)?;
            *into = decode(element, &bytes);
        }
        Ok((!self.mode.again).then_some(all))
    }

    /// Downloads bytes.
    pub fn bytes(&mut self, at: Address, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        if count > 0 {
            self.device.download(at, &mut bytes)?;
        }
        self.digest.write(&bytes);
        Ok(bytes)
    }

    /// Returns the deviations so far.
    pub fn deviations(&self) -> &[Deviation] {
        &self.deviations
    }

    /// Returns whether only the bits count.
    pub fn is_again(&self) -> bool {
        self.mode.again
    }

    /// Compares with the expected values, within the rounding of the element.
    pub fn near<E: Copy + Into<f64>>(&mut self, what: &str, got: &[f32], expected: &[E]) {
        self.within(what, got, expected, bound(self.element));
    }

    /// Compares with the expected values. The error is the larger of two: the norm of all
    /// differences relative to the norm of the values, and half of the largest difference relative
    /// to the largest value.
    pub fn within<E: Copy + Into<f64>>(
        &mut self,
        what: &str,
        got: &[f32],
        expected: &[E],
        bound: f64,
    ) {
        let error = deviation(got, expected);
        let places = match error <= bound {
            true => String::new(),
            false => differences(got, expected, bound, self.columns),
        };
        self.deviations.push(Deviation { what: what.into(), error, bound, places });
    }

    /// Compares bits.
    pub fn same(&mut self, what: &str, got: &[f32], expected: &[f32]) {
        let bits = |values: &[f32]| -> Vec<u32> {
            // All NaNs are equal.
            let bits = |x: &f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
            values.iter().map(bits).collect()
        };
        let (error, places) = match bits(got) == bits(expected) {
            true => (0.0, String::new()),
            false => (f64::INFINITY, differences(got, expected, 0.0, self.columns)),
        };
        self.deviations.push(Deviation { what: what.into(), error, bound: 0.0, places });
    }

    /// Returns an error if something was written outside of a buffer or into a constant one.
    fn check_buffers(&mut self) -> Result<()> {
        self.device.synchronize()?;
        for buffer in &self.buffers {
            let mut bytes = vec![0; (buffer.before + buffer.bytes + GUARD) as usize];
            self.device.download(buffer.start, &mut bytes)?;
            let (before, rest) = bytes.split_at(buffer.before as usize);
            let (inside, behind) = rest.split_at(buffer.bytes as usize);
            for (guard, side) in [(before, "before"), (behind, "after")] {
                if guard.iter().any(|&byte| byte != POISON) {
                    return Err(Error::Failed(format!(
                        "a kernel wrote {side} a buffer of {} bytes",
                        buffer.bytes
                    )));
                }
            }
            if buffer.constant.as_ref().is_some_and(|was| was != inside) {
                return Err(Error::Failed(format!(
                    "a kernel changed an input of {} bytes",
                    buffer.bytes
                )));
            }
        }
        Ok(())
    }
}

impl TestBatch {
    /// Returns the dropout of `p` at a site for the kernels and for the CPU engine; None for 0.
    pub fn dropout(&self, site: Site, p: f64) -> (Option<SiteDropout>, Option<Mask>) {
        let dropout = (p > 0.0).then(|| SiteDropout {
            state: self.on_device.state,
            site: site.number(),
            threshold: threshold(p),
            scale: (1.0 / (1.0 - p)) as f32,
        });
        (dropout, Mask::new(Some(DROPOUT), site, p))
    }
}

/// Describes where results differ from the expected values: how many, how many of them not finite, the first, the worst.
/// A value is wrong if it alone exceeds the bound of [`TestCase::within`].
pub fn differences<E: Copy + Into<f64>>(
    got: &[f32],
    expected: &[E],
    bound: f64,
    columns: usize,
) -> String {
    if got.len() != expected.len() {
        return format!("{} values instead of {}", got.len(), expected.len());
    }
    let expected: Vec<f64> = expected.iter().map(|&e| e.into()).collect();
    let finite = expected.iter().filter(|e| e.is_finite());
    let largest = finite.fold(1e-6f64, |most, e| most.max(e.abs()));
    let distance = |i: usize| -> f64 {
        let (g, e) = (f64::from(got[i]), expected[i]);
        if g == e || (g.is_nan() && e.is_nan()) {
            return 0.0;
        }
        let distance = (g - e).abs();
        if distance.is_nan() { f64::INFINITY } else { distance }
    };
    let place = |i: usize| {
        let at = match columns {
            0 => format!("value {i}"),
            columns => format!("value {i} (row {}, column {})", i / columns, i % columns),
        };
        format!("{at} is {:e} instead of {:e}", got[i], expected[i])
    };
    let (mut wrong, mut not_finite, mut first) = (0usize, 0usize, None);
    let mut worst = (0, 0.0);
    for (i, value) in got.iter().enumerate() {
        let off = distance(i);
        if off > 2.0 * bound * largest {
            wrong += 1;
            not_finite += usize::from(!value.is_finite());
            first = first.or(Some(i));
        }
        if off > worst.1 {
            worst = (i, off);
        }
    }
    let worst = place(worst.0);
    let Some(first) = first else {
        return format!("no single value is far off; at worst, {worst}");
    };
    let all = got.len();
    let first = place(first);
    format!(
        "{wrong} of {all} values are wrong, {not_finite} of them not finite; first, {first}; at worst, {worst}"
    )
}

/// Returns the error of [`TestCase::within`].
pub fn deviation<E: Copy + Into<f64>>(got: &[f32], expected: &[E]) -> f64 {
    if got.len() != expected.len() {
        return f64::INFINITY;
    }
    let (mut squared, mut whole, mut farthest, mut largest) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for (&g, &e) in got.iter().zip(expected) {
        let (g, e) = (f64::from(g), e.into());
        if !g.is_finite() || !e.is_finite() {
            return f64::INFINITY;
        }
        let difference = (g - e).abs();
        squared += difference * difference;
        whole += e * e;
        farthest = farthest.max(difference);
        largest = largest.max(e.abs());
    }
    // Norms below the rounding of values around 1 count as zero.
    let floor = 1e-6;
    let together = squared.sqrt() / whole.sqrt().max(floor);
    together.max(farthest / largest.max(floor) / 2.0)
}
