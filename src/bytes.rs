//! Numbers as the bytes that they are in memory: on their way to a device or into a file.

/// The bytes of numbers, as they lie in memory.
pub fn bytes_of<T: Number>(values: &[T]) -> &[u8] {
    // SAFETY: `Number` is for types without padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to be written to.
#[cfg(any(test, feature = "cuda"))]
pub fn bytes_of_mut<T: Number>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every pattern of bytes is a number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Numbers that are nothing but their bytes.
///
/// # Safety
///
/// The type has no padding, and every pattern of its bits is a value.
pub unsafe trait Number: Copy + Default {}
// SAFETY: four or eight plain bytes.
unsafe impl Number for f32 {}
// SAFETY: as above.
unsafe impl Number for u32 {}
// SAFETY: as above.
unsafe impl Number for f64 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_numbers_and_can_be_written() {
        for count in [0usize, 1, 3, 7] {
            let numbers: Vec<f32> = (0..count).map(|i| i as f32 - 1.5).collect();
            let expected: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
            assert_eq!(bytes_of(&numbers), expected);
            let mut others = vec![0f32; count];
            bytes_of_mut(&mut others).copy_from_slice(&expected);
            assert_eq!(others, numbers);
        }
        assert_eq!(bytes_of(&[1u32, 2]).len(), 8);
        assert_eq!(bytes_of(&[0.5f64]), 0.5f64.to_ne_bytes());
    }
}
