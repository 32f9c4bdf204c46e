//! Measures the speed of the device: timed launches on their own buffers, and the rate of the
//! largest matrix product, with which training steps and kernels are compared.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use half::{bf16, f16};

use crate::engine::timing::median;
use crate::error::Result;
use crate::random::{Site, Stream};

use super::device::{Address, Device, Element, Epilogue, Matrix, Product};
use super::watched::{FLUSH, flush};

/// Number of measurements, of which the median counts, unless they take longer than [`PATIENCE`].
const REPEATS: usize = 15;
const PATIENCE: Duration = Duration::from_millis(600);

/// Device buffers for measurements, filled with random numbers: zeros would be faster.
pub struct Buffers<'a> {
    device: &'a mut dyn Device,
    allocated: Vec<Address>,
    flush: Address,
}

impl<'a> Buffers<'a> {
    pub fn with<T>(
        device: &'a mut dyn Device,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut buffers = Self { device, allocated: Vec::new(), flush: Address::NONE };
        let done = (|| {
            buffers.flush = buffers.take(FLUSH)?;
            work(&mut buffers)
        })();
        for at in std::mem::take(&mut buffers.allocated) {
            buffers.device.release(at);
        }
        done
    }

    fn take(&mut self, bytes: u64) -> Result<Address> {
        let at = self.device.allocate(bytes)?;
        self.allocated.push(at);
        Ok(at)
    }

    /// Allocates `count` numbers between -2 and 2, which repeat after a million.
    pub fn numbers(&mut self, element: Element, count: usize) -> Result<Address> {
        const PART: usize = 1 << 20;
        let bytes = count as u64 * element.bytes();
        let at = self.take(bytes)?;
        let part = encode(element, &numbers(PART.min(count), 1));
        self.device.upload(at, &part)?;
        let mut done = part.len() as u64;
        while done < bytes {
            let more = done.min(bytes - done);
            self.device.copy(at, at.offset(done), more)?;
            done += more;
        }
        Ok(at)
    }

    /// Allocates several buffers of `count` numbers.
    pub fn several<const N: usize>(
        &mut self,
        element: Element,
        count: usize,
    ) -> Result<[Address; N]> {
        let mut all = [Address::NONE; N];
        for at in &mut all {
            *at = self.numbers(element, count)?;
        }
        Ok(all)
    }

    /// Returns the seconds of `work`, the median of several measurements.
    pub fn seconds(&mut self, work: &mut Launches<'_>) -> Result<f64> {
        for _ in 0..2 {
            work(self.device)?;
        }
        self.device.synchronize()?;
        let started = Instant::now();
        let mut all = Vec::new();
        while all.len() < REPEATS && (all.len() < 3 || started.elapsed() < PATIENCE) {
            flush(self.device, self.flush)?;
            let from = self.device.mark()?;
            work(self.device)?;
            let to = self.device.mark()?;
            all.push(self.device.seconds(from, to)?);
        }
        Ok(median(&mut all))
    }
}

/// The launches of one measurement.
pub type Launches<'a> = dyn FnMut(&mut dyn Device) -> Result<()> + 'a;

/// Rows and columns of the largest products.
pub const SIZE: usize = 8192;

/// Measures the operations per second of the largest products in a format.
pub fn product_peak(device: &mut dyn Device, element: Element, tf32: bool) -> Result<f64> {
    let seconds = Buffers::with(device, |buffers| {
        let mut matrix = || -> Result<Matrix> {
            let at = buffers.numbers(element, SIZE * SIZE)?;
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
        buffers.seconds(&mut |device| device.multiply(&product))
    })?;
    Ok(2.0 * (SIZE as f64).powi(3) / seconds)
}

pub fn encode(element: Element, values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * element.bytes() as usize);
    for &x in values {
        match element {
            Element::F32 => bytes.extend(x.to_ne_bytes()),
            Element::Bf16 => bytes.extend(bf16::from_f32(x).to_ne_bytes()),
            Element::F16 => bytes.extend(f16::from_f32(x).to_ne_bytes()),
        }
    }
    bytes
}

/// Returns `count` numbers between -2 and 2 without a pattern, different for each `key`.
pub fn numbers(count: usize, key: usize) -> Vec<f32> {
    const POOL: usize = 1 << 16;
    static DRAWN: OnceLock<Vec<f32>> = OnceLock::new();
    let pool = DRAWN.get_or_init(|| {
        let stream = Stream::new(7, 0, Site::Other(0), 1);
        let blocks = (0..POOL as u32 / 4).flat_map(|block| stream.block(block));
        let one = |bits: u32| (f64::from(bits) / 2f64.powi(30) - 2.0) as f32;
        blocks.map(one).collect()
    });
    // A prime period, and a factor per pass over the pool: rows of common widths must not repeat.
    const PERIOD: usize = 65_521;
    let start = key * 7919;
    let value = |i: usize| {
        let at = start + i;
        pool[at % PERIOD] * (1.0 - 0.01 * ((at / PERIOD) % 31) as f32)
    };
    (0..count).map(value).collect()
}
