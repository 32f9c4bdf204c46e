//! Tests that the emulator computes correctly, and that it detects errors that a GPU would not.

use half::{bf16, f16};

use super::*;
use crate::engine::cuda::device::{Element, Epilogue, Matrix};

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn upload(device: &mut Emulated, values: &[f32]) -> Address {
    let at = device.allocate(4 * values.len() as u64).unwrap();
    device.upload(at, &bytes(values)).unwrap();
    at
}

fn download(device: &mut Emulated, at: Address, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    device.download(at, &mut bytes).unwrap();
    let words = bytes.as_chunks::<4>().0.iter();
    words.map(|word| f32::from_ne_bytes(*word)).collect()
}

fn kernel(name: &'static str) -> Kernel {
    Kernel { name, element: Element::F32 }
}

fn grid(blocks: u32, threads: u32, shared: u32) -> Grid {
    Grid { blocks: [blocks, 1, 1], threads, shared }
}

/// Launches a kernel of 64 threads that writes 64 values; returns its error.
fn complaint(name: &'static str, shared: u32) -> Option<String> {
    let mut device = for_tests()?;
    let y = device.allocate(256).unwrap();
    let result = device.launch(kernel(name), grid(1, 64, shared), &[Argument::Address(y)]);
    Some(result.expect_err("a complaint").to_string())
}

#[test]
fn threads_of_a_block_work_together() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let (blocks, n) = (37, 101);
    let values: Vec<f32> = (0..blocks * n).map(|i| (i % 17) as f32).collect();
    let x = upload(&mut device, &values);
    let y = device.allocate(4 * blocks as u64).unwrap();
    let arguments =
        [Argument::Address(x), Argument::Address(y), Argument::U32(n as u32), Argument::F32(0.5)];
    let sums = kernel("test_sums");
    device.launch(sums, grid(blocks as u32, 64, 0), &arguments).unwrap();
    let expected: Vec<f32> = values.chunks(n).map(|row| row.iter().sum::<f32>() / 2.0).collect();
    assert_eq!(download(&mut device, y, blocks), expected);

    let wrong = device.launch(sums, grid(1, 64, 0), &arguments[..3]).unwrap_err();
    assert_eq!(wrong.to_string(), "kernel test_sums takes ppuf, not ppu");
    let stranger = [Argument::Address(Address(64)), arguments[1], arguments[2], arguments[3]];
    assert!(device.launch(sums, grid(1, 64, 0), &stranger).is_err());
    let much = device.launch(sums, grid(1, 64, 200 << 10), &arguments).unwrap_err();
    assert!(much.to_string().contains("shared memory"), "{much}");
}

#[test]
fn recorded_work_runs_when_it_is_replayed() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let x = upload(&mut device, &[1.0; 101]);
    let y = upload(&mut device, &[0.0]);
    let arguments =
        [Argument::Address(x), Argument::Address(y), Argument::U32(101), Argument::F32(1.0)];
    assert!(device.begin_capture().unwrap());
    device.launch(kernel("test_sums"), grid(1, 64, 0), &arguments).unwrap();
    device.copy(y, x, 4).unwrap();
    assert!(device.upload(x, &[0; 4]).is_err());
    let graph = device.end_capture().unwrap();
    assert_eq!(download(&mut device, y, 1), [0.0]);
    device.replay(graph).unwrap();
    device.replay(graph).unwrap();
    assert_eq!(download(&mut device, y, 1), [201.0]);
    device.drop_graph(graph);
    assert!(device.replay(graph).is_err());
}

#[test]
fn a_missing_barrier_is_visible() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let y = device.allocate(4 * 8 * 64).unwrap();
    let arguments = [Argument::Address(y)];
    device.launch(kernel("test_race"), grid(8, 64, 256), &arguments).unwrap();
    let sums = download(&mut device, y, 8 * 64);
    // In every block one warp runs before the other.
    let unread = |block: &[f32]| block.iter().filter(|x| x.is_nan()).count();
    assert!(sums.chunks(64).all(|block| unread(block) == 32), "{sums:?}");
}

#[test]
fn threads_that_wait_at_different_places_are_an_error() {
    if let Some(error) = complaint("test_diverging", 0) {
        assert!(error.contains("different __syncthreads"), "{error}");
        assert!(error.contains("tests.cu:28") && error.contains("tests.cu:30"), "{error}");
    }
    if let Some(error) = complaint("test_missing_lanes", 0) {
        assert!(error.contains("never come"), "{error}");
    }
}

#[test]
fn writing_outside_is_an_error() {
    if let Some(error) = complaint("test_behind_shared", 64) {
        assert!(error.contains("past its dynamic shared memory"), "{error}");
    }
    let Some(mut device) = for_tests() else {
        return;
    };
    let y = device.allocate(40).unwrap();
    let arguments = [Argument::Address(y), Argument::U32(10)];
    device.launch(kernel("test_beside"), grid(1, 1, 0), &arguments).unwrap();
    assert!(device.synchronize().is_err());
    // Restored, so that releasing the memory finds no error.
    let guard = Address(y.0 + 40).0 as *mut u32;
    // SAFETY: the guard zone is there.
    unsafe { guard.write(u32::MAX) };
    device.synchronize().unwrap();
    assert!(device.upload(y, &[0; 41]).is_err());
}

#[test]
fn threads_may_return_early() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let y = device.allocate(256).unwrap();
    let arguments = [Argument::Address(y)];
    device.launch(kernel("test_early_return"), grid(1, 64, 0), &arguments).unwrap();
    let votes = download(&mut device, y, 64);
    assert!(votes[..32].iter().all(|&x| x == 1.0), "{votes:?}");
    // New memory is NaN.
    assert!(votes[32..].iter().all(|x| x.is_nan()), "{votes:?}");
}

#[test]
fn half_precision_rounds_to_nearest_even() {
    let Some(mut device) = for_tests() else {
        return;
    };
    // Every sign and exponent, with fractions at and next to ties.
    let values: Vec<f32> = (0..512u32)
        .flat_map(|high| {
            [0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0x1_8000, 0x7F_FFFF]
                .map(|low| f32::from_bits(high << 23 | low))
        })
        .chain([65_519.0, 65_520.0, 5.96e-8, 2.98e-8, 2.99e-8, 6.1e-5])
        .collect();
    let n = values.len();
    let x = upload(&mut device, &values);
    let y = device.allocate(8 * n as u64).unwrap();
    let arguments = [Argument::Address(x), Argument::Address(y), Argument::U32(n as u32)];
    device.launch(kernel("test_rounding"), grid(1, 64, 0), &arguments).unwrap();
    let rounded = download(&mut device, y, 2 * n);
    for (value, pair) in values.iter().zip(rounded.chunks(2)) {
        let expected = [bf16::from_f32(*value).to_f32(), f16::from_f32(*value).to_f32()];
        for (is, should) in pair.iter().zip(expected) {
            let same = is.to_bits() == should.to_bits() || is.is_nan() && should.is_nan();
            assert!(same, "{value:e}: {is:e}, not {should:e}");
        }
    }
}

#[test]
fn products_are_those_of_their_definition() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let (m, n, k) = (5, 7, 33);
    let numbers =
        |count: usize| -> Vec<f32> { (0..count).map(|i| (i as f32 * 0.37).sin()).collect() };
    // a lies transposed, with a gap behind each row; c is added to.
    let (left, right, old) = (numbers(k * 8), numbers(k * n), numbers(m * n));
    let a = Matrix { stride: 8, ..Matrix::new(upload(&mut device, &left), Element::F32, k, m) };
    let b = Matrix::new(upload(&mut device, &right), Element::F32, k, n);
    let c = Matrix::new(upload(&mut device, &old), Element::F32, m, n);
    let bias = upload(&mut device, &numbers(n));
    let product = Product {
        a: a.t(),
        b,
        c,
        alpha: 0.5,
        add: true,
        tf32: false,
        epilogue: Epilogue::Bias(bias, Element::F32),
    };
    device.multiply(&product).unwrap();
    let result = download(&mut device, c.at, m * n);
    for row in 0..m {
        for column in 0..n {
            let products = (0..k).map(|i| f64::from(left[i * 8 + row] * right[i * n + column]));
            let sum = 0.5 * products.sum::<f64>() + f64::from(old[row * n + column]);
            let expected = sum + f64::from(numbers(n)[column]);
            let got = f64::from(result[row * n + column]);
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
    }
    let wrong = Product { b: b.t(), ..product };
    assert!(device.multiply(&wrong).is_err());
}
