//! Every kernel on the emulated device beside the CPU engine's function for it.

mod compiled;
mod elementwise;
mod embedding;
mod loss;
mod norm;
mod optimizer;
mod rows;

use half::{bf16, f16};

use super::{Batch, Dropping, SOURCES, Source};
use crate::data::Packed;
use crate::engine::cpu::Mask;
use crate::engine::cpu::dropout::Rows;
use crate::engine::cuda::device::{Address, Device, Element};
use crate::engine::cuda::emulated::{Emulated, for_tests};
use crate::model::{Dropout, threshold};
use crate::random::Site;

pub const ELEMENTS: [Element; 3] = [Element::F32, Element::Bf16, Element::F16];

/// A probability, a step and a seed whose halves all differ.
pub const P: f64 = 0.3;
pub const DROPOUT: Dropout = Dropout {
    seed: 0x1234_5678_9ABC_DEF0,
    step: 77,
};

/// Waves that look like activations.
pub fn wave(n: usize, step: f64) -> Vec<f32> {
    (0..n)
        .map(|i| ((i as f64 + 1.0) * step).sin() as f32 * 2.0)
        .collect()
}

/// What an element type makes of numbers.
pub fn rounded(values: &[f32], element: Element) -> Vec<f32> {
    let round = |&x: &f32| match element {
        Element::F32 => x,
        Element::Bf16 => bf16::from_f32(x).to_f32(),
        Element::F16 => f16::from_f32(x).to_f32(),
    };
    values.iter().map(round).collect()
}

/// How far a result may lie from the CPU engine's, relative to the larger of it and 1.
pub fn tolerance(element: Element) -> f32 {
    match element {
        Element::F32 => 1e-4,
        Element::Bf16 => 1e-2,
        Element::F16 => 2e-3,
    }
}

#[track_caller]
pub fn assert_close(got: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        // Written so that NaN fails.
        assert!(
            error <= tolerance * expected.abs().max(1.0),
            "{what}, {i}: {got}, expected {expected}"
        );
    }
}

/// The emulated device and one element type.
pub struct Bench {
    pub device: Emulated,
    pub element: Element,
    /// Elements by which every buffer is moved from where vectors could be read.
    pub shift: usize,
}

impl Bench {
    /// A bench of each element type, with buffers that are aligned and that are not; none, said
    /// aloud, where there is no C++ compiler.
    pub fn all() -> impl Iterator<Item = Self> {
        let elements = ELEMENTS
            .into_iter()
            .flat_map(|element| [(element, 0), (element, 1)]);
        elements.filter_map(|(element, shift)| {
            Some(Self {
                device: for_tests()?,
                element,
                shift,
            })
        })
    }

    /// `bytes` of poison: NaN in every type.
    fn room(&mut self, bytes: u64, shift: u64) -> Address {
        let at = self.device.allocate(bytes + shift).unwrap();
        self.device.fill(at, 0xFF, bytes + shift).unwrap();
        at.offset(shift)
    }

    fn send(&mut self, bytes: &[u8], shift: u64) -> Address {
        let at = self.room(bytes.len() as u64, shift);
        self.device.upload(at, bytes).unwrap();
        at
    }

    /// Room for numbers of a type, poisoned.
    pub fn out(&mut self, n: usize, element: Element) -> Address {
        let shift = self.shift as u64 * element.bytes();
        self.room(n as u64 * element.bytes(), shift)
    }

    /// Scratch, which is always aligned as the engine's is.
    pub fn scratch(&mut self, bytes: u64) -> Address {
        self.room(bytes, 0)
    }

    /// Numbers of a type on the device.
    pub fn put(&mut self, values: &[f32], element: Element) -> Address {
        let bytes: Vec<u8> = match element {
            Element::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Element::Bf16 => values
                .iter()
                .flat_map(|&x| bf16::from_f32(x).to_le_bytes())
                .collect(),
            Element::F16 => values
                .iter()
                .flat_map(|&x| f16::from_f32(x).to_le_bytes())
                .collect(),
        };
        self.send(&bytes, self.shift as u64 * element.bytes())
    }

    /// Activations on the device.
    pub fn activations(&mut self, values: &[f32]) -> Address {
        self.put(values, self.element)
    }

    pub fn single(&mut self, values: &[f32]) -> Address {
        self.put(values, Element::F32)
    }

    pub fn numbers(&mut self, values: &[u32]) -> Address {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.send(&bytes, 0)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Address {
        self.send(bytes, 0)
    }

    fn words(&mut self, at: Address, n: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * n];
        self.device.download(at, &mut bytes).unwrap();
        let words = bytes.as_chunks::<4>().0.iter();
        words.map(|word| u32::from_le_bytes(*word)).collect()
    }

    /// Numbers of a type from the device.
    pub fn take(&mut self, at: Address, n: usize, element: Element) -> Vec<f32> {
        if element == Element::F32 {
            let words = self.words(at, n).into_iter();
            return words.map(f32::from_bits).collect();
        }
        let mut bytes = vec![0; 2 * n];
        self.device.download(at, &mut bytes).unwrap();
        let halves = bytes.as_chunks::<2>().0.iter();
        let widen = |half: &[u8; 2]| match element {
            Element::Bf16 => bf16::from_le_bytes(*half).to_f32(),
            _ => f16::from_le_bytes(*half).to_f32(),
        };
        halves.map(widen).collect()
    }

    pub fn taken(&mut self, at: Address, n: usize) -> Vec<f32> {
        self.take(at, n, self.element)
    }

    pub fn taken_single(&mut self, at: Address, n: usize) -> Vec<f32> {
        self.take(at, n, Element::F32)
    }

    pub fn taken_numbers(&mut self, at: Address, n: usize) -> Vec<u32> {
        self.words(at, n)
    }

    /// The batch as the engine sends it.
    pub fn batch(&mut self, packed: &Packed) -> Batch {
        let of_row: Vec<u32> = packed
            .ranges()
            .enumerate()
            .flat_map(|(sequence, rows)| rows.map(move |_| sequence as u32))
            .collect();
        let examples: Vec<u32> = packed
            .examples
            .iter()
            .flat_map(|&example| [example as u32, (example >> 32) as u32])
            .collect();
        let mut order: Vec<u32> = (0..packed.rows() as u32).collect();
        order.sort_by_key(|&row| packed.ids[row as usize]);
        let id = |at: usize| packed.ids[order[at] as usize];
        let firsts = (0..order.len()).filter(|&at| at == 0 || id(at) != id(at - 1));
        let mut starts: Vec<u32> = firsts.map(|at| at as u32).collect();
        // Two ids that don't exist, and the end.
        starts.extend([packed.rows() as u32; 3]);
        Batch {
            rows: packed.rows() as u32,
            sequences: packed.sequences() as u32,
            longest: packed.longest() as u32,
            ids: self.numbers(&packed.ids),
            segments: self.numbers(&packed.segments),
            positions: self.numbers(&packed.positions),
            cu_seqlens: self.numbers(&packed.cu_seqlens),
            sequence_of_row: self.numbers(&of_row),
            examples: self.numbers(&examples),
            word_order: self.numbers(&order),
            word_starts: self.numbers(&starts),
            words: starts.len() as u32 - 1,
        }
    }

    pub fn dropping(&mut self, site: Site) -> Dropping {
        let Dropout { seed, step } = DROPOUT;
        Dropping {
            state: self.numbers(&[seed as u32, (seed >> 32) as u32, step]),
            site: site.number(),
            threshold: threshold(P),
            kept: (1.0 / (1.0 - P)) as f32,
        }
    }
}

/// A ragged batch of that many rows, whose examples need more than 32 bits.
pub fn ragged(rows: usize) -> Packed {
    let mut packed = Packed::default();
    let mut left = rows;
    for sequence in 0.. {
        if left == 0 {
            return packed;
        }
        let length = [1, 17, 5, 40, 2][sequence % 5].min(left);
        let at = |i: usize| (packed.rows() + i) as u32;
        // Every third token is the same one.
        let ids: Vec<u32> = (0..length)
            .map(|i| if at(i) % 3 == 0 { 4 } else { at(i) * 7 % 13 })
            .collect();
        let segments: Vec<u32> = (0..length).map(|i| u32::from(i > length / 2)).collect();
        packed.push((sequence as u64) << 31 | 9, &ids, &segments);
        left -= length;
    }
    packed
}

/// What the CPU engine draws at a site for a batch.
pub fn mask_of(packed: &Packed, site: Site) -> (Mask, Rows) {
    let mut rows = Rows::default();
    rows.set(packed);
    (
        Mask::new(Some(DROPOUT), site, P).expect("a probability above 0"),
        rows,
    )
}

#[test]
fn every_kernel_is_found_by_its_name() {
    let names: Vec<&str> = SOURCES.iter().flat_map(|s| s.kernels()).collect();
    assert!(SOURCES.iter().all(|s| s.kernels().count() > 0));
    for (i, name) in names.iter().enumerate() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(!name.is_empty() && name.chars().all(word), "{name}");
        assert!(!names[..i].contains(name), "two kernels are called {name}");
    }
    // As many as there are functions that a GPU starts.
    let declared = |s: &Source| s.text.matches("__global__").count();
    assert_eq!(names.len(), SOURCES.iter().map(declared).sum::<usize>());
    assert_eq!(Source::of("adamw").map(|s| s.name), Some("optimizer.cu"));
    assert_eq!(Source::of("adam"), None);
}
