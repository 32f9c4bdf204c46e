//! The two operations that BERT needs and dfdx 0.13 lacks: an exact GELU with the correct gradient,
//! and dropout with the crate's own random numbers.
//!
//! Both act on each element separately, so on the CPU each is one tape operation: `y[i] = f(i,
//! x[i])`, with the slope `dy[i]/dx[i]` computed in the same pass and kept for the backward pass.
//! On dfdx's `Cuda` (feature `dfdx-cuda`) they are composed of dfdx's operations.

use std::ops::DerefMut;

use dfdx::prelude::*;
use num_traits::Float;
use rayon::prelude::*;

/// A device that can run the reference model.
pub trait BertDevice<E: Real>: Device<E> {
    /// The exact GELU, `x Φ(x)` with the normal distribution function Φ (Hendrycks and Gimpel,
    /// arXiv 1606.08415), as BERT uses it. Its slope is `Φ(x) + x φ(x)`.
    ///
    /// dfdx's own `accurate_gelu` returns the right value but a wrong gradient: 1.1835 at x = 1,
    /// where the slope is 1.0833.
    fn gelu<S: Shape, T: Tape<E, Self>>(x: Tensor<S, E, Self, T>) -> Tensor<S, E, Self, T>;

    /// Multiplies every element by its own factor; `factors` is row-major.
    fn scaled<S: Shape, T: Tape<E, Self>>(
        x: Tensor<S, E, Self, T>,
        factors: Vec<E>,
    ) -> Tensor<S, E, Self, T>;
}

impl<E: Real> BertDevice<E> for Cpu
where
    Cpu: Device<E> + Storage<E, Vec: DerefMut<Target = Vec<E>> + Send + Sync>,
{
    fn gelu<S: Shape, T: Tape<E, Self>>(x: Tensor<S, E, Self, T>) -> Tensor<S, E, Self, T> {
        elementwise(x, |_, x| {
            let cumulative = E::HALF * (E::ONE + (x * E::FRAC_1_SQRT_2).erf());
            let density = (x * x * -E::HALF).exp() * E::FRAC_1_SQRT_TAU;
            (x * cumulative, cumulative + x * density)
        })
    }

    fn scaled<S: Shape, T: Tape<E, Self>>(
        x: Tensor<S, E, Self, T>,
        factors: Vec<E>,
    ) -> Tensor<S, E, Self, T> {
        elementwise(x, |i, x| (x * factors[i], factors[i]))
    }
}

/// dfdx compiles its CUDA kernels with itself, so it can't take one of ours.
#[cfg(feature = "dfdx-cuda")]
impl<E: Real> BertDevice<E> for Cuda
where
    Cuda: Device<E>,
{
    fn gelu<S: Shape, T: Tape<E, Self>>(x: Tensor<S, E, Self, T>) -> Tensor<S, E, Self, T> {
        composed_gelu(x)
    }

    fn scaled<S: Shape, T: Tape<E, Self>>(
        x: Tensor<S, E, Self, T>,
        factors: Vec<E>,
    ) -> Tensor<S, E, Self, T> {
        let factors = x.device().tensor_from_vec(factors, *x.shape());
        x * factors
    }
}

/// The exact GELU: see [`BertDevice::gelu`].
pub fn gelu<S: Shape, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<S, E, D, T> {
    D::gelu(x)
}

/// GELU composed of dfdx's operations: `accurate_gelu` for the value, with a corrected slope.
///
/// With `c` a copy of x outside the tape, `(x - c) slope(c) + value(c)` has the value of the second
/// term, because the first is zero, and the slope of the first. dfdx has no erf, but `value(|c|) /
/// |c|` is `Φ(|c|)`, and `Φ(c) = ½ + (c / |c|) (Φ(|c|) - ½)`.
#[cfg(any(test, feature = "dfdx-cuda"))]
fn composed_gelu<S: Shape, E: Real, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<S, E, D, T> {
    /// Replaces 0 as a divisor: Φ differs from Φ(0) by less than this.
    const NEARLY_ZERO: f64 = 1e-20;
    // Times one makes a new tensor: dfdx can't subtract a tensor from itself.
    let c = x.retaped::<NoneTape>() * E::ONE;
    let size = c.clone().abs().clamp(NEARLY_ZERO, f64::from(f32::MAX));
    let half_way = size.clone().accurate_gelu() / size.clone() - E::HALF;
    let cumulative = c.clone() / size * half_way + E::HALF;
    let density = (c.clone().square() * -E::HALF).exp() * E::FRAC_1_SQRT_TAU;
    let slope = cumulative + c.clone() * density;
    let value = c.clone().accurate_gelu();
    (x - c) * slope + value
}

/// Elements per task: enough to hide the cost of a task, few enough for the cache.
const CHUNK: usize = 8192;

/// Applies `f` to every element, as a tape operation with a gradient. `f` takes the element's
/// row-major index and its value, and returns the result and the slope there.
pub fn elementwise<S: Shape, E: Real, T: Tape<E, Cpu>>(
    x: Tensor<S, E, Cpu, T>,
    f: impl Fn(usize, E) -> (E, E) + Sync,
) -> Tensor<S, E, Cpu, T>
where
    Cpu: Device<E> + Storage<E, Vec: DerefMut<Target = Vec<E>> + Send + Sync>,
{
    // Gradient buffers follow a tensor's strides, so a permuted view is made row-major first.
    let (x, mut tape) = x.contiguous().split_tape();
    let mut values = x.as_vec();
    let mut slopes = if T::OWNS_TAPE { vec![E::default(); values.len()] } else { Vec::new() };
    if T::OWNS_TAPE {
        values.par_chunks_mut(CHUNK).zip(slopes.par_chunks_mut(CHUNK)).enumerate().for_each(
            |(chunk, (values, slopes))| {
                for (i, (v, s)) in values.iter_mut().zip(slopes).enumerate() {
                    (*v, *s) = f(chunk * CHUNK + i, *v);
                }
            },
        );
    } else {
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            for (i, v) in values.iter_mut().enumerate() {
                *v = f(chunk * CHUNK + i, *v).0;
            }
        });
    }
    let y = x.device().tensor_from_vec(values, *x.shape());
    let (input, output) = (x.ghost(), y.ghost());
    tape.add_backward_op(move |gradients| {
        // Taken out and put back, so that both buffers are accessible without a copy.
        let above = std::mem::take(&mut **gradients.get_or_alloc_mut(&output)?);
        gradients
            .get_or_alloc_mut(&input)?
            .par_chunks_mut(CHUNK)
            .zip(above.par_chunks(CHUNK))
            .zip(slopes.par_chunks(CHUNK))
            .for_each(|((below, above), slopes)| {
                for ((b, a), s) in below.iter_mut().zip(above).zip(slopes) {
                    *b += *a * *s;
                }
            });
        **gradients.get_or_alloc_mut(&output)? = above;
        Ok(())
    });
    y.put_tape(tape)
}

/// The number types of the model: f32, and f64 to check gradients against finite differences.
pub trait Real: Dtype + Float {
    /// 1 / 2
    const HALF: Self;
    /// 1 / sqrt(2)
    const FRAC_1_SQRT_2: Self;
    /// 1 / sqrt(2 π), the height of the normal density.
    const FRAC_1_SQRT_TAU: Self;
    /// Returns the error function.
    fn erf(self) -> Self;
}

macro_rules! real {
    ($type:ident, $height:literal, $erf:path) => {
        impl Real for $type {
            const HALF: Self = 0.5;
            const FRAC_1_SQRT_2: Self = std::$type::consts::FRAC_1_SQRT_2;
            const FRAC_1_SQRT_TAU: Self = $height;

            fn erf(self) -> Self {
                $erf(self)
            }
        }
    };
}
real!(f32, 0.398_942_3, libm::erff);
real!(f64, 0.398_942_280_401_432_7, libm::erf);

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [f64; 9] = [-5.0, -2.0, -1.0, -0.1, 0.0, 0.3, 1.0, 2.5, 6.0];

    #[test]
    fn gelu_has_the_slope_of_its_finite_difference() {
        let dev = Cpu::default();
        let x: Tensor<Rank1<9>, f64, _> = dev.tensor(POINTS);
        let gradients = gelu(x.leaky_trace()).sum().backward();
        let slopes = gradients.get(&x).array();
        let value = |x: f64| gelu(dev.tensor([x])).array()[0];
        for (x, slope) in POINTS.into_iter().zip(slopes) {
            let h = 1e-5;
            let difference = (value(x + h) - value(x - h)) / (2.0 * h);
            let apart = (slope - difference).abs();
            assert!(apart < 1e-9, "at {x}: {slope} and {difference}");
        }
    }

    /// Runs the operations of dfdx's `Cuda` on the CPU.
    #[test]
    fn gelu_composed_of_dfdx_operations_has_the_same_values_and_slopes() {
        let dev = Cpu::default();
        let mut points: Vec<f64> = (-600..=600).map(|i| f64::from(i) / 100.0).collect();
        points.extend([-0.0, 1e-30, -1e-12, 40.0, -40.0]);
        let x = dev.tensor_from_vec(points, (1206,));
        let (own, composed) = (gelu(x.leaky_trace()), composed_gelu(x.leaky_trace()));
        let difference = |a: Vec<f64>, b: Vec<f64>| {
            let differences = a.into_iter().zip(b).map(|(a, b)| (a - b).abs());
            differences.fold(0.0, f64::max)
        };
        assert!(difference(own.as_vec(), composed.as_vec()) < 1e-12);
        let slopes = [own, composed].map(|y| y.sum().backward().get(&x).as_vec());
        let [own, composed] = slopes;
        assert!(difference(own, composed) < 1e-12);
    }

    #[test]
    fn gradients_of_a_reused_input_add_up() {
        let dev = Cpu::default();
        let x: Tensor<Rank1<2>, f64, _> = dev.tensor([0.5, -0.5]);
        let twice = gelu(x.leaky_trace()) + gelu(x.leaky_trace());
        let once = gelu(x.leaky_trace()).sum().backward().get(&x).array();
        let both = twice.sum().backward().get(&x).array();
        let mut pairs = once.into_iter().zip(both);
        assert!(pairs.all(|(a, b)| (2.0 * a - b).abs() < 1e-12));
    }
}
