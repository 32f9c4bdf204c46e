//! The one random source of training: Philox4x32-10, a counter-based generator.
//!
//! A draw is a pure function of (seed, step, site, example, element), so dropout and masking do not
//! depend on how examples are packed, split over ranks or threads, or on the device. Nothing is
//! stored: forward and backward ask for the same number again.
//!
//! Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, with the
//! published round and key constants.

pub(crate) const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox4x32: 128 random bits from a 64-bit key and a 128-bit counter.
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

/// Where in the computation a draw is used. Every use has a number of its own, so that no two
/// uses ever see the same stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Initial values of parameter number `n` of the declaration.
    Init(u32),
    /// Dropout after the embeddings' LayerNorm.
    EmbeddingDropout,
    /// Dropout on the attention probabilities of a layer.
    AttentionDropout(u32),
    /// Dropout on the attention block's output of a layer, before the residual is added.
    AttentionOutputDropout(u32),
    /// Dropout on the feed-forward block's output of a layer, before the residual is added.
    FeedForwardDropout(u32),
    /// Dropout on what a task head reads.
    HeadDropout,
    /// The order of examples in an epoch.
    Order,
    /// Which next-sentence pairs are random, where segments are cut, which are shortened.
    Pairing,
    /// Which tokens are chosen for prediction and what stands in their place.
    Masking,
    /// Anything else that needs a stream of its own.
    Other(u32),
}

impl Site {
    pub(crate) fn number(self) -> u32 {
        // The low byte tells the kind, the rest the layer or parameter.
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
            Self::Other(n) => n << 8 | 255,
        }
    }
}

/// The stream of random numbers of one example at one site and step.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    seed: u64,
    /// Counter words 1 to 3; word 0 counts blocks of four elements. The example index has 48 bits:
    /// its upper 16 are mixed into the step's word, whose own upper half stays free for long runs.
    words: [u32; 3],
}

impl Stream {
    /// The stream of `example` (its global index in the run) at `site` in step `step`.
    pub fn new(seed: u64, step: u32, site: Site, example: u64) -> Self {
        // An odd multiplier spreads the few upper bits of the example over the step's word.
        let high = ((example >> 32) as u32).wrapping_mul(0x9E37_79B1);
        Self {
            seed,
            words: [step ^ high, site.number(), example as u32],
        }
    }

    /// The generator's key, and words 1 to 3 of its counter.
    pub(crate) fn key_and_counter(&self) -> (u64, [u32; 3]) {
        (self.seed, self.words)
    }

    /// Four consecutive elements: numbers `4 * block` to `4 * block + 3` of the stream.
    #[inline]
    pub fn block(&self, block: u32) -> [u32; 4] {
        philox(
            self.seed,
            [block, self.words[0], self.words[1], self.words[2]],
        )
    }

    /// 64 consecutive elements: numbers `64 * group` to `64 * group + 63` of the stream. The same
    /// numbers as 16 calls of [`Stream::block`], laid out for vector instructions.
    #[inline(always)]
    pub fn group(&self, group: u32) -> [u32; 64] {
        let mut c = [
            [0; 16],
            [self.words[0]; 16],
            [self.words[1]; 16],
            [self.words[2]; 16],
        ];
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

    /// Element `index` of the stream: 32 random bits.
    #[inline]
    pub fn bits(&self, index: u32) -> u32 {
        self.block(index / 4)[index as usize % 4]
    }

    /// Element `index` as a number in [0, 1).
    pub fn uniform(&self, index: u32) -> f64 {
        f64::from(self.bits(index)) / 4_294_967_296.0
    }

    /// Element `index` as a whole number in [0, bound); `bound` must not be 0.
    pub fn below(&self, index: u32, bound: u32) -> u32 {
        // Multiply-shift: the bias is under bound / 2^32, far below any statistic taken here.
        ((u64::from(self.bits(index)) * u64::from(bound)) >> 32) as u32
    }

    /// The elements one after the other, for a use that can't tell how many it takes.
    pub fn draws(self) -> Draws {
        Draws {
            stream: self,
            next: 0,
        }
    }
}

/// Consecutive elements of a [`Stream`].
#[derive(Debug, Clone)]
pub struct Draws {
    stream: Stream,
    next: u32,
}

impl Draws {
    /// The next element as a whole number in [0, bound); `bound` must not be 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.next += 1;
        self.stream.below(self.next - 1, bound)
    }

    /// The next element as a number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.next += 1;
        self.stream.uniform(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors publish with Random123 (kat_vectors, philox4x32 10).
    #[test]
    fn philox_gives_the_published_vectors() {
        assert_eq!(
            philox(0, [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox(u64::MAX, [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                0x299f_31d0_a409_3822,
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
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
