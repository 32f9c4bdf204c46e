//! Matrix products of the emulated device: computed in f32 by the CPU engine, rounded when stored.

use half::{bf16, f16};

use crate::engine::Precision;
use crate::engine::cpu;
use crate::engine::cuda::device::{Element, Epilogue, Matrix, Product};
use crate::error::{Error, Result};

use super::memory::Memory;

/// Computes `c = alpha · a b` with the product's options; biases are f32.
pub fn multiply(memory: &Memory, product: &Product) -> Result<()> {
    let (a, b, c) = (&product.a, &product.b, &product.c);
    let (m, k) = a.shape();
    let (inner, n) = b.shape();
    if inner != k || (c.rows, c.columns) != (m, n) || c.transposed {
        return Err(Error::Failed(format!(
            "a product of {m}×{k} and {inner}×{n} can't be {}×{}",
            c.rows, c.columns
        )));
    }
    let (left, right) = (read(memory, a)?, read(memory, b)?);
    let mut out = match product.add {
        true => read(memory, c)?,
        false => vec![0.0; m * n],
    };
    cpu::product(
        cpu::MatrixMut::new(&mut out, m, n),
        match product.add {
            true => cpu::Output::Accumulate,
            false => cpu::Output::Overwrite,
        },
        product.alpha,
        view(&left, a),
        view(&right, b),
        cpu::Threads::All,
        Precision::F32,
    );
    match product.epilogue {
        Epilogue::Nothing => {}
        Epilogue::Bias(bias, element) => {
            let bias = read(memory, &Matrix::new(bias, element, 1, n))?;
            for row in out.chunks_exact_mut(n.max(1)) {
                row.iter_mut().zip(&bias).for_each(|(x, b)| *x += b);
            }
        }
    }
    write(memory, c, &out)
}

fn view<'a>(values: &'a [f32], matrix: &Matrix) -> cpu::Matrix<'a> {
    let whole = cpu::Matrix::new(values, matrix.rows, matrix.columns);
    match matrix.transposed {
        true => whole.t(),
        false => whole,
    }
}

/// Returns the pointer to each row of a matrix.
fn rows(memory: &Memory, matrix: &Matrix) -> Result<Vec<*mut u8>> {
    let bytes = matrix.element.bytes();
    (0..matrix.rows)
        .map(|row| {
            let at = matrix.at.offset((row * matrix.stride) as u64 * bytes);
            memory.at(at, matrix.columns as u64 * bytes)
        })
        .collect()
}

/// Returns a matrix as stored, without gaps, in f32.
fn read(memory: &Memory, matrix: &Matrix) -> Result<Vec<f32>> {
    let mut values = Vec::with_capacity(matrix.rows * matrix.columns);
    for row in rows(memory, matrix)? {
        // SAFETY: `rows` found the row inside an allocation; nothing writes to it meanwhile.
        unsafe {
            match matrix.element {
                Element::F32 => values.extend_from_slice(part::<f32>(row, matrix.columns)),
                Element::Bf16 => {
                    values.extend(part::<bf16>(row, matrix.columns).iter().map(|x| x.to_f32()));
                }
                Element::F16 => {
                    values.extend(part::<f16>(row, matrix.columns).iter().map(|x| x.to_f32()));
                }
            }
        }
    }
    Ok(values)
}

fn write(memory: &Memory, matrix: &Matrix, values: &[f32]) -> Result<()> {
    for (row, values) in rows(memory, matrix)?.into_iter().zip(values.chunks(matrix.columns)) {
        // SAFETY: as in `read`; nothing else accesses it meanwhile.
        unsafe {
            match matrix.element {
                Element::F32 => part_mut::<f32>(row, matrix.columns).copy_from_slice(values),
                Element::Bf16 => {
                    let to = part_mut::<bf16>(row, matrix.columns).iter_mut();
                    to.zip(values).for_each(|(y, x)| *y = bf16::from_f32(*x));
                }
                Element::F16 => {
                    let to = part_mut::<f16>(row, matrix.columns).iter_mut();
                    to.zip(values).for_each(|(y, x)| *y = f16::from_f32(*x));
                }
            }
        }
    }
    Ok(())
}

/// # Safety
/// There must be `count` aligned values that don't change while the slice lives.
unsafe fn part<'a, E>(at: *mut u8, count: usize) -> &'a [E] {
    debug_assert!(at.cast::<E>().is_aligned());
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(at.cast(), count) }
}

/// # Safety
/// There must be `count` aligned values that nothing else uses while the slice lives.
unsafe fn part_mut<'a, E>(at: *mut u8, count: usize) -> &'a mut [E] {
    debug_assert!(at.cast::<E>().is_aligned());
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), count) }
}
