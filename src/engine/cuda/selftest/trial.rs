//! One case of a check: buffers on the device between guards, what a kernel left in them, and how far
//! that is from what it should be.

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

/// Bytes before and behind each buffer that nothing may write.
const GUARD: u64 = 1024;
/// As f32, bf16 and f16 alike it is not a number, so that what was never written shows, and what was
/// read beside a buffer. A GPU's arithmetic makes another such number of it, which shows in guards.
const POISON: u8 = 0xFF;

/// The key of every case's dropout: a seed beyond 32 bits.
pub const DROPOUT: Dropout = Dropout {
    seed: 0x1234_5678_9ABC,
    step: 6,
};
/// Ids of the cases' batches are below this.
pub const VOCABULARY: u32 = 203;

/// What an element's rounding may do to a kernel's result, in relation to it.
pub fn bound(element: Element) -> f64 {
    match element {
        Element::F32 => 1e-4,
        Element::Bf16 | Element::F16 => 1e-2,
    }
}

/// How it is written on the command line.
pub fn name_of(element: Element) -> &'static str {
    match element {
        Element::F32 => "f32",
        Element::Bf16 => "bf16",
        Element::F16 => "f16",
    }
}

/// Numbers as they are when stored as `element`.
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

/// Whole numbers below `limit`.
pub fn indices(count: usize, limit: u32, key: u64) -> Vec<u32> {
    let mut draws = Stream::new(key, 0, Site::Other(1), 2).draws();
    (0..count).map(|_| draws.below(limit)).collect()
}

/// Sequences of these lengths; every third token is the same, so that tables have busy entries.
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

/// A buffer that the device was asked for.
struct Held {
    start: Address,
    /// Bytes of the guard before it; [`GUARD`] are behind it.
    before: u64,
    bytes: u64,
    /// What must still be in it at the end.
    constant: Option<Vec<u8>>,
}

/// How far something is from what it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Distance {
    pub what: String,
    /// Relative; infinite where a number is none.
    pub error: f64,
    pub bound: f64,
}

/// A case under way.
pub struct Trial<'a> {
    pub device: &'a mut dyn Device,
    pub element: Element,
    how: How,
    held: Vec<Held>,
    staging: Staging,
    digest: DefaultHasher,
    distances: Vec<Distance>,
}

/// How a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// Once more, to see that it gives the same bits.
    pub again: bool,
    /// With all numbers one place behind where vectors could be read.
    pub shifted: bool,
}

/// A batch on the device and what the CPU engine wants of it.
pub struct Sample {
    pub packed: Packed,
    pub on_device: DeviceBatch,
    pub rows: Rows,
}

impl<'a> Trial<'a> {
    pub fn new(device: &'a mut dyn Device, element: Element, how: How) -> Self {
        Self {
            device,
            element,
            how,
            held: Vec::new(),
            staging: Staging::default(),
            digest: DefaultHasher::new(),
            distances: Vec::new(),
        }
    }

    /// Runs a case and gives all of its memory back, however it ended. The digest of all bits that it
    /// gave.
    pub fn run(mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<u64> {
        let worked = super::caught(|| work(&mut self));
        let sound = worked.and_then(|()| self.check_buffers());
        for held in std::mem::take(&mut self.held) {
            self.device.release(held.start);
        }
        self.staging.release(self.device);
        sound?;
        Ok(self.digest.finish())
    }

    /// A buffer, poisoned throughout, guards included, `shift` bytes behind where it would be.
    fn allocate(&mut self, bytes: u64, shift: u64, constant: Option<Vec<u8>>) -> Result<Address> {
        // The guard behind begins right at the end.
        let before = GUARD + shift;
        let whole = before + bytes + GUARD;
        let start = self.device.allocate(whole)?;
        self.held.push(Held {
            start,
            before,
            bytes,
            constant,
        });
        self.device.fill(start, POISON, whole)?;
        Ok(start.offset(before))
    }

    fn shift(&self, element: Element) -> u64 {
        if self.how.shifted { element.bytes() } else { 0 }
    }

    /// A place for `count` numbers that a kernel is to write.
    pub fn empty(&mut self, element: Element, count: usize) -> Result<Address> {
        self.allocate(element.bytes() * count as u64, self.shift(element), None)
    }

    /// A place for so many bytes of scratch, which is aligned always, as the engine's is.
    pub fn scratch(&mut self, bytes: u64) -> Result<Address> {
        self.allocate(bytes, 0, None)
    }

    /// Numbers that a kernel may change.
    pub fn changing(&mut self, element: Element, values: &[f32]) -> Result<Address> {
        let bytes = encode(element, values);
        let at = self.allocate(bytes.len() as u64, self.shift(element), None)?;
        self.device.upload(at, &bytes)?;
        Ok(at)
    }

    /// Numbers that must stay as they are.
    pub fn constant(&mut self, element: Element, values: &[f32]) -> Result<Address> {
        self.constant_at(self.shift(element), encode(element, values))
    }

    /// Whole numbers that must stay as they are.
    pub fn words(&mut self, values: &[u32]) -> Result<Address> {
        self.constant_bytes(values.iter().flat_map(|x| x.to_ne_bytes()).collect())
    }

    /// Bytes that must stay as they are.
    pub fn constant_bytes(&mut self, bytes: Vec<u8>) -> Result<Address> {
        self.constant_at(0, bytes)
    }

    fn constant_at(&mut self, shift: u64, bytes: Vec<u8>) -> Result<Address> {
        let at = self.allocate(bytes.len() as u64, shift, Some(bytes.clone()))?;
        self.device.upload(at, &bytes)?;
        Ok(at)
    }

    /// A batch of sequences of these lengths.
    pub fn sample(&mut self, lengths: &[usize]) -> Result<Sample> {
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
        Ok(Sample {
            packed,
            on_device,
            rows,
        })
    }

    /// What kernels left at places of so many numbers each; none in the second run of a case, where
    /// only the bits count.
    pub fn outputs<const N: usize>(
        &mut self,
        places: [(Address, Element, usize); N],
    ) -> Result<Option<[Vec<f32>; N]>> {
        let mut all = [const { Vec::new() }; N];
        for (into, (at, element, count)) in all.iter_mut().zip(places) {
            let bytes = self.bytes(at, element.bytes() * count as u64)?;
            *into = decode(element, &bytes);
        }
        Ok((!self.how.again).then_some(all))
    }

    /// The same of bytes.
    pub fn bytes(&mut self, at: Address, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        if count > 0 {
            self.device.download(at, &mut bytes)?;
        }
        self.digest.write(&bytes);
        Ok(bytes)
    }

    /// What was compared so far.
    pub fn distances(&self) -> &[Distance] {
        &self.distances
    }

    /// Whether only the bits count.
    pub fn is_again(&self) -> bool {
        self.how.again
    }

    /// Compares with what should be there, within what the element's rounding may do.
    pub fn near<E: Copy + Into<f64>>(&mut self, what: &str, got: &[f32], expected: &[E]) {
        self.within(what, got, expected, bound(self.element));
    }

    /// Compares with what should be there. The error is the distance of all numbers together in
    /// relation to their norm, or half of that of the farthest in relation to the largest, whichever
    /// is more.
    pub fn within<E: Copy + Into<f64>>(
        &mut self,
        what: &str,
        got: &[f32],
        expected: &[E],
        bound: f64,
    ) {
        self.distances.push(Distance {
            what: what.into(),
            error: distance(got, expected),
            bound,
        });
    }

    /// Compares to the bit.
    pub fn same(&mut self, what: &str, got: &[f32], expected: &[f32]) {
        let bits = |values: &[f32]| -> Vec<u32> {
            // One is as little a number as the other.
            let bits = |x: &f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
            values.iter().map(bits).collect()
        };
        let same = bits(got) == bits(expected);
        self.distances.push(Distance {
            what: what.into(),
            error: if same { 0.0 } else { f64::INFINITY },
            bound: 0.0,
        });
    }

    /// Fails where something was written beside a buffer or into one that is not to change.
    fn check_buffers(&mut self) -> Result<()> {
        self.device.synchronize()?;
        for held in &self.held {
            let mut bytes = vec![0; (held.before + held.bytes + GUARD) as usize];
            self.device.download(held.start, &mut bytes)?;
            let (before, rest) = bytes.split_at(held.before as usize);
            let (inside, behind) = rest.split_at(held.bytes as usize);
            for (guard, where_) in [(before, "before"), (behind, "behind")] {
                if guard.iter().any(|&byte| byte != POISON) {
                    return Err(Error::Failed(format!(
                        "something was written {where_} a buffer of {} bytes",
                        held.bytes
                    )));
                }
            }
            if held.constant.as_ref().is_some_and(|was| was != inside) {
                return Err(Error::Failed(format!(
                    "an input of {} bytes was changed",
                    held.bytes
                )));
            }
        }
        Ok(())
    }
}

impl Sample {
    /// Dropout of `p` at a site, as the kernels and as the CPU engine take it; none for 0.
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

/// See [`Trial::within`].
pub fn distance<E: Copy + Into<f64>>(got: &[f32], expected: &[E]) -> f64 {
    if got.len() != expected.len() {
        return f64::INFINITY;
    }
    let (mut apart, mut whole, mut farthest, mut largest) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for (&g, &e) in got.iter().zip(expected) {
        let (g, e) = (f64::from(g), e.into());
        if !g.is_finite() || !e.is_finite() {
            return f64::INFINITY;
        }
        let difference = (g - e).abs();
        apart += difference * difference;
        whole += e * e;
        farthest = farthest.max(difference);
        largest = largest.max(e.abs());
    }
    // What is below rounding of numbers around 1 is nothing.
    let floor = 1e-6;
    let together = apart.sqrt() / whole.sqrt().max(floor);
    together.max(farthest / largest.max(floor) / 2.0)
}
