//! Runs kernels with the processor's widest instructions, chosen at run time.
//!
//! A kernel is ordinary Rust in a closure passed to [`Simd::run`]: the compiler generates and
//! vectorises a version for AVX-512, one for AVX2 with FMA and a plain one; on ARM64 one for NEON. All versions give the
//! same bits: sums go through 16 partial sums, and a product and a sum are rounded once only where the code says
//! `mul_add`, which is one instruction in all versions but the plain one.

/// Number of partial sums of a reduction: one AVX-512 register of f32.
pub const LANES: usize = 16;

/// An instruction set of this processor.
#[derive(Debug, Clone, Copy)]
pub struct Simd(pulp::Arch);

impl Simd {
    /// Returns the widest instruction set.
    pub fn detect() -> Self {
        Self(pulp::Arch::new())
    }

    /// Returns the name of the instruction set.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            pulp::Arch::V3(_) => "AVX2",
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            pulp::Arch::V4(_) => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            pulp::Arch::Neon(_) => "NEON",
            _ => "plain",
        }
    }

    /// Returns whether the instruction set is AVX-512.
    pub fn is_avx512(self) -> bool {
        self.name() == "AVX-512"
    }

    /// Returns every instruction set with its name: kernels are tested with each.
    #[cfg(test)]
    pub fn all() -> Vec<(&'static str, Self)> {
        let mut all = vec![Self(pulp::Arch::Scalar)];
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        {
            let v3 = pulp::x86::V3::try_new().map(pulp::Arch::V3);
            let v4 = pulp::x86::V4::try_new().map(pulp::Arch::V4);
            all.extend(v3.into_iter().chain(v4).map(Self));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(pulp::aarch64::Neon::try_new().map(|neon| Self(pulp::Arch::Neon(neon))));
        all.into_iter().map(|simd| (simd.name(), simd)).collect()
    }

    /// Returns the instruction set, for the few kernels written with intrinsics.
    #[inline(always)]
    pub fn arch(self) -> pulp::Arch {
        self.0
    }

    /// Runs `kernel`; functions that it calls must be `#[inline(always)]` to be compiled for the
    /// instruction set.
    #[inline(always)]
    pub fn run<R>(self, kernel: impl FnOnce() -> R) -> R {
        self.0.dispatch(kernel)
    }
}

/// Returns the sum of `f` over the values at each index of `slices`, which must have the length of the
/// first one.
#[inline(always)]
pub fn sum<const N: usize>(slices: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let n = slices[0].len();
    let mut lanes = [0.0f32; LANES];
    for chunk in 0..n / LANES {
        let terms = terms(&slices, chunk * LANES, LANES, &f);
        for lane in 0..LANES {
            lanes[lane] += terms[lane];
        }
    }
    // The partial sums pass through memory. Otherwise the compiler groups the loop's additions as those
    // below, and half of them become scalar instructions.
    let mut lanes = std::hint::black_box(lanes);
    let rest = n % LANES;
    if rest > 0 {
        let mut terms = terms(&slices, n - rest, rest, &f);
        terms[rest..].fill(0.0);
        for lane in 0..LANES {
            lanes[lane] += terms[lane];
        }
    }
    halved(lanes, |a, b| a + b)
}

/// Returns what `f` makes of all lanes, which are halved repeatedly, as a vector register is.
#[inline(always)]
fn halved(mut lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = f(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Returns `f` over `count` values of each slice from `start`; of the other lanes, `f` over zeros.
///
/// The loops over indices consist of vector instructions: there is no iterator or closure of the standard library,
/// which is compiled without them, no check of an index, and no memory that may overlap.
#[inline(always)]
pub fn terms<const N: usize>(
    slices: &[&[f32]; N],
    start: usize,
    count: usize,
    f: impl Fn([f32; N]) -> f32,
) -> [f32; LANES] {
    let mut values = [[0.0; LANES]; N];
    for slice in 0..N {
        values[slice][..count].copy_from_slice(&slices[slice][start..start + count]);
    }
    let mut terms = [0.0; LANES];
    for lane in 0..LANES {
        let mut one = [0.0; N];
        for slice in 0..N {
            one[slice] = values[slice][lane];
        }
        terms[lane] = f(one);
    }
    terms
}

/// Returns the sum of the squares of `f` over the values at each index of `slices`, which must have the
/// length of the first one, with 16 partial sums.
#[inline(always)]
pub fn squares<const N: usize>(slices: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f64 {
    let n = slices[0].len();
    let mut lanes = [0.0f64; LANES];
    for chunk in 0..n / LANES {
        let terms = terms(&slices, chunk * LANES, LANES, &f);
        for (lane, &x) in lanes.iter_mut().zip(&terms) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    let rest = n % LANES;
    let terms = terms(&slices, n - rest, rest, &f);
    for (lane, &x) in lanes.iter_mut().zip(&terms[..rest]) {
        *lane += f64::from(x) * f64::from(x);
    }
    lanes.iter().sum()
}

/// Returns the largest value; negative infinity if there is none.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    if !rest.is_empty() {
        let mut last = [f32::NEG_INFINITY; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], last[lane]);
        }
    }
    halved(lanes, larger)
}

/// Returns the polynomial with these coefficients, that of the highest power first.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "iterators of the standard library may not be inlined"
)]
pub fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for power in 1..N {
        sum = sum.mul_add(x, coefficients[power]);
    }
    sum
}

/// Returns `e^x` to about 1e-7 of its value for x in [-87, 88]; outside, the value at the border.
///
/// The polynomial and the two-part logarithm of 2 are those of Cephes' expf.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2^23 rounds to an integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let p = polynomial(
        r,
        [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5],
    );
    let p = (p * r).mul_add(r, r) + 1.0;
    // Moves the integer to the exponent's bits: p · 2^n.
    p * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exact_to_single_precision() {
        for i in -8700..=8800 {
            let x = i as f32 / 100.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "{x}: {error}");
        }
        assert!(exp(-1e9) > 0.0 && exp(-1e9) < 1e-37);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        for n in [0, 1, 15, 16, 17, 31, 33, 127, 1000] {
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
            let results: Vec<[u32; 3]> = Simd::all()
                .into_iter()
                .map(|(_, simd)| {
                    simd.run(
                        #[inline(always)]
                        || {
                            let total = sum([&values], |[x]| exp(x));
                            [total, max(&values), exp(total.min(10.0))].map(f32::to_bits)
                        },
                    )
                })
                .collect();
            assert!(results.iter().all(|r| *r == results[0]), "{n}: {results:?}");
            let exact: f64 = values.iter().map(|&v| f64::from(v).exp()).sum();
            let got = f64::from(f32::from_bits(results[0][0]));
            assert!((got - exact).abs() <= 1e-6 * exact, "{got} {exact}");
            let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(f32::from_bits(results[0][1]), largest, "{n}");
        }
    }
}
