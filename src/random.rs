//! The random number generator of training: Philox4x32-10, which is counter-based.
//!
//! A draw is a pure function of (seed, step, site, example, element), so dropout and masking do not
//! depend on how examples are packed or split over ranks or threads, nor on the device. Nothing is
//! stored: the backward pass computes the same numbers again.
//!
//! Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, with the
//! published round and key constants.

pub(crate) const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Computes ten rounds of Philox4x32: 128 random bits from a 64-bit key and a 128-bit counter.
#[inline]
pub fn philox(key: u64, mut counter: [u32; 4]) -> [u32; 4] {
    let mut key = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let p0 = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let p1 = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// What a draw is used for. Every use has its own number, so that no two uses share a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Initial values of parameter `n`, in the order of their declaration.
    Init(u32),
    /// Dropout after the embeddings' LayerNorm.
    EmbeddingDropout,
    /// Dropout on the attention probabilities of a layer.
    AttentionDropout(u32),
    /// Dropout on the attention block's output of a layer, before the residual is added.
    AttentionOutputDropout(u32),
    /// Dropout on the feed-forward block's output of a layer, before the residual is added.
    FeedForwardDropout(u32),
    /// Dropout on the input of a task head.
    HeadDropout,
    /// Dropout on the input of a pooler.
    PoolerDropout,
    /// The order of examples in an epoch.
    Order,
    /// Which next-sentence pairs are random, and where their segments are cut and shortened.
    Pairing,
    /// Which tokens are to be predicted, and what replaces them.
    Masking,
    /// Which rows of a file are held out for measuring.
    Split,
    /// Any other use.
    Other(u32),
}

impl Site {
    pub(crate) fn number(self) -> u32 {
        // The low byte is the kind, the rest the layer or parameter.
        match self {
            Self::Init(n) => n << 8,
            Self::EmbeddingDropout => 1,
            Self::AttentionDropout(layer) => layer << 8 | 2,
            Self::AttentionOutputDropout(layer) => layer << 8 | 3,
            Self::FeedForwardDropout(layer) => layer << 8 | 4,
            Self::HeadDropout => 5,
            Self::Order => 6,
            Self::Pairing => 7,
            Self::Masking => 8,
            Self::PoolerDropout => 9,
            Self::Split => 10,
            Self::Other(n) => n << 8 | 255,
        }
    }
}

/// The stream of random numbers of one example at one site and step.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    seed: u64,
    /// Words 1 to 3 of the counter; word 0 counts blocks of four elements. The upper half of the example
    /// index is mixed into the step's word.
    words: [u32; 3],
}

impl Stream {
    /// Creates the stream of `example` (its global index in the run) at `site` in step `step`.
    pub fn new(seed: u64, step: u32, site: Site, example: u64) -> Self {
        // An odd multiplier spreads the few upper bits of the index over the step's word.
        let high = ((example >> 32) as u32).wrapping_mul(0x9E37_79B1);
        Self { seed, words: [step ^ high, site.number(), example as u32] }
    }

    /// Returns the generator's key and words 1 to 3 of its counter.
    pub(crate) fn key_and_counter(&self) -> (u64, [u32; 3]) {
        (self.seed, self.words)
    }

    /// Returns four consecutive elements: `4 * block` to `4 * block + 3`.
    #[inline]
    pub fn block(&self, block: u32) -> [u32; 4] {
        let [step, site, example] = self.words;
        philox(self.seed, [block, step, site, example])
    }

    /// Returns 64 consecutive elements: `64 * group` to `64 * group + 63`. They are those of 16 calls of
    /// [`Stream::block`], computed so that the compiler uses vector instructions.
    #[inline(always)]
    pub fn group(&self, group: u32) -> [u32; 64] {
        let mut c = [[0; 16], [self.words[0]; 16], [self.words[1]; 16], [self.words[2]; 16]];
        for (block, word) in c[0].iter_mut().enumerate() {
            *word = (group * 16).wrapping_add(block as u32);
        }
        let mut key = [self.seed as u32, (self.seed >> 32) as u32];
        for _ in 0..10 {
            let [c0, c1, c2, c3] = &mut c;
            for (((c0, c1), c2), c3) in c0.iter_mut().zip(c1).zip(c2).zip(c3) {
                let p0 = u64::from(MULTIPLIER[0]) * u64::from(*c0);
                let p1 = u64::from(MULTIPLIER[1]) * u64::from(*c2);
                *c0 = (p1 >> 32) as u32 ^ *c1 ^ key[0];
                *c1 = p1 as u32;
                *c2 = (p0 >> 32) as u32 ^ *c3 ^ key[1];
                *c3 = p0 as u32;
            }
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        std::array::from_fn(|i| c[i % 4][i / 4])
    }

    /// Returns element `index`: 32 random bits.
    #[inline]
    pub fn bits(&self, index: u32) -> u32 {
        self.block(index / 4)[index as usize % 4]
    }

    /// Returns element `index` as a number in [0, 1).
    pub fn uniform(&self, index: u32) -> f64 {
        f64::from(self.bits(index)) / 4_294_967_296.0
    }

    /// Returns element `index` as a whole number in [0, bound); `bound` must not be 0.
    pub fn below(&self, index: u32, bound: u32) -> u32 {
        // Multiply-shift: the bias is below bound / 2^32, which no statistic here can detect.
        ((u64::from(self.bits(index)) * u64::from(bound)) >> 32) as u32
    }

    /// Returns a generator of the elements in order, for a use that doesn't know how many it needs.
    pub fn draws(self) -> Draws {
        let (stream, next) = (self, 0);
        Draws { stream, next }
    }
}

/// Generates the elements of a [`Stream`] in order.
#[derive(Debug, Clone)]
pub struct Draws {
    stream: Stream,
    next: u32,
}

impl Draws {
    /// Returns the next element as a whole number in [0, bound); `bound` must not be 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.next += 1;
        self.stream.below(self.next - 1, bound)
    }

    /// Shuffles `items` by the Fisher-Yates shuffle.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            items.swap(left, self.below(left as u32 + 1) as usize);
        }
    }

    /// Returns the next element as a number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.next += 1;
        self.stream.uniform(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors published with Random123 (kat_vectors, philox4x32 10).
    #[test]
    fn philox_gives_the_published_vectors() {
        assert_eq!(philox(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox(u64::MAX, [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(0x299f_31d0_a409_3822, [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ_in_every_coordinate() {
        let base = Stream::new(1, 2, Site::HeadDropout, 3);
        let others = [
            Stream::new(2, 2, Site::HeadDropout, 3),
            Stream::new(1, 3, Site::HeadDropout, 3),
            Stream::new(1, 2, Site::Masking, 3),
            Stream::new(1, 2, Site::HeadDropout, 4),
            Stream::new(1, 2, Site::HeadDropout, 3 + (1 << 32)),
            Stream::new(1, 2, Site::AttentionDropout(0), 3),
            Stream::new(1, 2, Site::AttentionDropout(1), 3),
        ];
        let first = base.block(0);
        assert!(others.iter().all(|other| other.block(0) != first));
        assert_ne!(base.block(1), first);
        assert_eq!(base.bits(6), base.block(1)[2]);
    }

    #[test]
    fn a_group_is_sixteen_blocks() {
        let stream = Stream::new(0x1234_5678_9ABC_DEF0, 6, Site::AttentionDropout(3), 1 << 33);
        for group in [0, 1, 77, (1 << 26) - 1] {
            let blocks: Vec<u32> = (0..16).flat_map(|i| stream.block(group * 16 + i)).collect();
            assert_eq!(stream.group(group)[..], blocks);
        }
    }

    #[test]
    fn below_stays_below() {
        let stream = Stream::new(9, 0, Site::Order, 0);
        assert!((0..1000).all(|i| stream.below(i, 7) < 7));
    }
}
