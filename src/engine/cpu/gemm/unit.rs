//! Selects the unit of the processor that computes products of a precision.

use std::fmt;
use std::sync::{Arc, OnceLock};

#[cfg(all(test, target_arch = "x86_64"))]
use super::amx::emulated::Emulated;
#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
use super::{Matrix, PackedWeight, Precision, Product, Threads, rounding, sgemm};
#[cfg(target_arch = "x86_64")]
use super::{amx::Amx, avx512::Avx512};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::{blocked, check};

/// A unit that multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// AMX: tile registers and instructions that multiply them.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    /// Vector instructions on pairs of bf16 numbers.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512),
    /// Vector instructions of ARM64 on pairs of rows and columns of bf16 numbers.
    #[cfg(target_arch = "aarch64")]
    NeonBf16(Neon),
    /// Vector instructions on f32.
    F32,
    #[cfg(all(test, target_arch = "x86_64"))]
    Emulated(Emulated),
}

impl Unit {
    /// Returns the best unit of this processor that computes correctly.
    pub fn detect() -> Self {
        static UNIT: OnceLock<Unit> = OnceLock::new();
        *UNIT.get_or_init(|| {
            #[cfg(target_arch = "x86_64")]
            {
                if let Some(amx) = Amx::detect().map(Self::Amx).filter(check::computes_exactly) {
                    return amx;
                }
                if let Some(avx512) = Avx512::detect() {
                    return Self::Avx512Bf16(avx512);
                }
            }
            #[cfg(target_arch = "aarch64")]
            if let Some(neon) = Neon::detect().map(Self::NeonBf16).filter(check::computes_exactly) {
                return neon;
            }
            Self::F32
        })
    }

    /// Returns the unit for products of `precision`: this one, or [`F32`](Self::F32) if this one is
    /// slower at it or has no instructions for it; then rounded operands are multiplied as f32.
    pub fn of(self, precision: Precision) -> Self {
        match (self, precision) {
            // This engine rejects F16 earlier; products with weights of 8 bits are not made here.
            (_, Precision::F32 | Precision::F16 | Precision::Int8) => Self::F32,
            // Three products at twice the rate of f32 gain nothing.
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512Bf16(_), Precision::Bf16x3) => Self::F32,
            #[cfg(target_arch = "aarch64")]
            (Self::NeonBf16(_), Precision::Bf16x3) => Self::F32,
            _ => self,
        }
    }

    /// Returns how many tokens a sequence needs for its attention to be faster in bf16 than in f32.
    pub fn shortest_attention(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(_) => 24,
            // Not measured on AMX and ARM64.
            _ => 64,
        }
    }

    /// Packs a weight, (outputs, inputs), for products in this precision. Returns None if they are made in f32.
    pub(super) fn pack(
        self,
        weight: Matrix<'_>,
        precision: Precision,
    ) -> Option<Arc<dyn PackedWeight>> {
        Some(match self.of(precision) {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(amx) => Arc::new(blocked::Weight::new(amx, weight, precision)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(avx512) => Arc::new(blocked::Weight::new(avx512, weight, precision)),
            #[cfg(target_arch = "aarch64")]
            Self::NeonBf16(neon) => Arc::new(blocked::Weight::new(neon, weight, precision)),
            #[cfg(all(test, target_arch = "x86_64"))]
            Self::Emulated(kernel) => Arc::new(blocked::Weight::new(kernel, weight, precision)),
            Self::F32 => return None,
        })
    }

    /// Computes `work`.
    pub(super) fn multiply(self, work: Product<'_>, threads: Threads, precision: Precision) {
        match self.of(precision) {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(amx) => blocked::product(amx, work, threads, precision),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(avx512) => {
                blocked::product(avx512, work, threads, precision);
            }
            #[cfg(target_arch = "aarch64")]
            Self::NeonBf16(neon) => blocked::product(neon, work, threads, precision),
            #[cfg(all(test, target_arch = "x86_64"))]
            Self::Emulated(emulated) => {
                blocked::product(emulated, work, threads, precision);
            }
            Self::F32 if precision == Precision::Bf16 => rounding::product(work, threads),
            Self::F32 => sgemm::product(work, threads),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => "AMX",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(_) => "AVX512-BF16",
            #[cfg(target_arch = "aarch64")]
            Self::NeonBf16(_) => "NEON-BF16",
            Self::F32 => "f32",
            #[cfg(all(test, target_arch = "x86_64"))]
            Self::Emulated(_) => "emulated AMX",
        })
    }
}
