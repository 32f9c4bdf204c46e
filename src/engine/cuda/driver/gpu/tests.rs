use super::*;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::driver::fake::{Fake, SOURCE, bytes_of, numbers_of};

fn lookup(kernel: &str) -> Option<&'static Source> {
    SOURCE.kernels().any(|name| name == kernel).then_some(&SOURCE)
}

/// Opens a device on a fake; None without a C compiler.
fn gpu(macros: &[&str]) -> Option<(Fake, Gpu)> {
    let fake = Fake::new(macros)?;
    let cache = Cache::at(fake.folder().join("cache"));
    let gpu = Gpu::with(fake.found(), cache, lookup).unwrap();
    Some((fake, gpu))
}

fn upload(gpu: &mut Gpu, values: &[f32], element: Element) -> Address {
    let at = gpu.allocate(values.len() as u64 * element.bytes()).unwrap();
    gpu.upload(at, &bytes_of(values, element)).unwrap();
    at
}

fn download(gpu: &mut Gpu, at: Address, count: usize, element: Element) -> Vec<f32> {
    let mut bytes = vec![0xee; count * element.bytes() as usize];
    gpu.download(at, &mut bytes).unwrap();
    numbers_of(&bytes, element)
}

fn scale(gpu: &mut Gpu, element: Element, at: Address, count: u32, by: f32) -> Result<()> {
    let kernel = Kernel { name: "scale", element };
    let grid = Grid { blocks: [count.div_ceil(256), 1, 1], threads: 256, shared: 0 };
    let arguments = [Argument::Address(at), Argument::U32(count), Argument::F32(by)];
    gpu.launch(kernel, grid, &arguments)
}

#[test]
fn everything_is_released_in_an_order_that_the_driver_accepts() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let kept = upload(&mut gpu, &[1.0; 100], Element::F32);
    let given_back = gpu.allocate(1000).unwrap();
    gpu.release(given_back);
    scale(&mut gpu, Element::F32, kept, 100, 2.0).unwrap();
    gpu.mark().unwrap();
    assert!(gpu.begin_capture().unwrap());
    scale(&mut gpu, Element::F32, kept, 100, 2.0).unwrap();
    gpu.end_capture().unwrap();
    // A recording and copies are in progress when the device is dropped.
    gpu.upload(kept, &[0; 400]).unwrap();
    gpu.begin_capture().unwrap();
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn bytes_may_change_right_after_an_upload() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    // Passes through the ring three times, in pieces that don't divide it.
    let (size, count) = (5 << 20, 20);
    let at = gpu.allocate(size * count).unwrap();
    let mut bytes = vec![0; size as usize];
    for i in 0..count {
        bytes.fill(i as u8);
        gpu.upload(at.offset(i * size), &bytes).unwrap();
    }
    // One larger than the ring.
    let large: Vec<u8> = (0..70_000_001u32).map(|i| (i % 251) as u8).collect();
    let large_at = gpu.allocate(large.len() as u64).unwrap();
    gpu.upload(large_at, &large).unwrap();
    let mut got = vec![0; (size * count) as usize];
    gpu.download(at, &mut got).unwrap();
    for (i, part) in got.chunks(size as usize).enumerate() {
        assert!(part.iter().all(|&byte| byte == i as u8), "{i}");
    }
    let mut got = vec![0; large.len()];
    gpu.download(large_at, &mut got).unwrap();
    assert!(got == large);
    gpu.upload(at, &[]).unwrap();
    gpu.download(at, &mut []).unwrap();
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn kernels_get_their_arguments_and_run_in_order() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    for element in [Element::F32, Element::Bf16, Element::F16] {
        let at = upload(&mut gpu, &[1.0, -2.0, 0.5, 8.0], element);
        scale(&mut gpu, element, at, 3, 4.0).unwrap();
        let copy = gpu.allocate(8).unwrap();
        gpu.copy(at, copy, 2 * element.bytes()).unwrap();
        scale(&mut gpu, element, at, 4, 0.5).unwrap();
        gpu.fill(at.offset(element.bytes()), 0, element.bytes()).unwrap();
        assert_eq!(download(&mut gpu, at, 4, element), [2.0, 0.0, 1.0, 4.0]);
        assert_eq!(download(&mut gpu, copy, 2, element), [4.0, -8.0]);
    }
    assert_eq!(fake.count("fake_compilations"), 3, "one source, three elements");
    let at = upload(&mut gpu, &[1.0], Element::F32);
    // Empty operations skip the driver, which would reject them.
    scale(&mut gpu, Element::F32, at, 0, 2.0).unwrap();
    gpu.fill(at, 0, 0).unwrap();
    gpu.copy(at, at, 0).unwrap();
    assert_eq!(download(&mut gpu, at, 1, Element::F32), [1.0]);
    drop(gpu);
    fake.assert_clean();
}

/// The driver would take an address of the host.
#[test]
fn bytes_outside_of_the_allocations_are_refused() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let at = gpu.allocate(8).unwrap();
    let mut host = [0u8; 4];
    let host_at = Address(host.as_mut_ptr() as u64);
    for (from, to, bytes) in [(at, host_at, 4), (host_at, at, 4), (at, at.offset(4), 8)] {
        let message = gpu.copy(from, to, bytes).unwrap_err().to_string();
        assert!(message.contains("in none of its allocations"), "{message}");
    }
    assert!(gpu.fill(host_at, 1, 4).is_err() && gpu.fill(at.offset(7), 1, 2).is_err());
    assert!(gpu.upload(at.offset(1), &[0; 8]).is_err());
    assert!(gpu.download(host_at, &mut [0; 4]).is_err());
    gpu.fill(at.offset(4), 1, 4).unwrap();
    gpu.release(at);
    assert!(gpu.fill(at, 1, 1).is_err());
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn wrong_launches_are_errors() {
    let Some((_fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let grid = Grid { blocks: [1; 3], threads: 32, shared: 0 };
    let kernel = |name| Kernel { name, element: Element::F32 };
    let at = gpu.allocate(4).unwrap();
    let all = [Argument::Address(at), Argument::U32(1), Argument::F32(2.0)];
    let refused = |gpu: &mut Gpu, name, grid, arguments: &[Argument]| {
        gpu.launch(kernel(name), grid, arguments).unwrap_err().to_string()
    };
    assert_eq!(refused(&mut gpu, "none", grid, &all), "there is no kernel none");
    let two = refused(&mut gpu, "scale", grid, &all[..2]);
    assert_eq!(two, "the kernel scale takes arguments of [8, 4, 4] bytes, but was given [8, 4]");
    let threads = refused(&mut gpu, "scale", Grid { threads: 1025, ..grid }, &all);
    assert!(
        threads.starts_with("Fake GPU 0 could not run scale on 1×1×1 blocks of 1025 threads: "),
        "{threads}"
    );
    let shared = refused(&mut gpu, "scale", Grid { shared: 232_449, ..grid }, &all);
    let expected =
        "the kernel scale needs 232449 bytes of shared memory, but Fake GPU 0 has 232448 per block";
    assert_eq!(shared, expected);
    // More than 48 KiB must be requested, and less still works.
    for shared in [200_000, 50_000, 0] {
        gpu.launch(kernel("scale"), Grid { shared, ..grid }, &all).unwrap();
    }
}

#[test]
fn recorded_work_runs_when_it_is_replayed() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let at = upload(&mut gpu, &[3.0, 5.0], Element::F32);
    let to = upload(&mut gpu, &[0.0, 0.0], Element::F32);
    assert!(gpu.begin_capture().unwrap());
    scale(&mut gpu, Element::F32, at, 2, 2.0).unwrap();
    gpu.copy(at, to, 4).unwrap();
    gpu.fill(to.offset(4), 0, 4).unwrap();
    for (refused, doing) in [
        (gpu.upload(at, &[0; 4]), "copy from the host"),
        (gpu.download(at, &mut [0; 4]), "copy to the host"),
        (gpu.synchronize(), "wait"),
        (gpu.mark().map(|_| ()), "measure time"),
        (gpu.allocate(1).map(|_| ()), "allocate memory"),
        (gpu.begin_capture().map(|_| ()), "record launches"),
    ] {
        let expected = format!("the GPU was asked to {doing} while launches are recorded");
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
    let graph = gpu.end_capture().unwrap();
    assert_eq!(gpu.end_capture().unwrap_err().to_string(), "nothing is recorded");
    assert_eq!(download(&mut gpu, at, 2, Element::F32), [3.0, 5.0], "nothing was run");
    gpu.replay(graph).unwrap();
    gpu.replay(graph).unwrap();
    assert_eq!(download(&mut gpu, at, 2, Element::F32), [12.0, 20.0]);
    assert_eq!(download(&mut gpu, to, 2, Element::F32), [12.0, 0.0]);
    gpu.drop_graph(graph);
    gpu.drop_graph(graph);
    assert_eq!(gpu.replay(graph).unwrap_err().to_string(), "this recording was dropped");
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn times_are_measured_between_marks() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let at = upload(&mut gpu, &[1.0], Element::F32);
    let from = gpu.mark().unwrap();
    for _ in 0..4 {
        scale(&mut gpu, Element::F32, at, 1, 1.0).unwrap();
    }
    let to = gpu.mark().unwrap();
    // The fake takes a millisecond for each operation.
    assert_eq!(gpu.seconds(from, to).unwrap(), 0.005);
    assert!(gpu.seconds(from, Mark(to.0 + 1)).is_err());
    for _ in 0..MARKS {
        gpu.mark().unwrap();
    }
    let error = gpu.seconds(from, to).unwrap_err().to_string();
    assert_eq!(error, "this mark is too old to measure from");
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn a_failed_allocation_names_the_free_memory() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let free = gpu.free_memory().unwrap();
    assert_eq!(free, (1 << 30) - WORKSPACE);
    let error = gpu.allocate(3 << 30).unwrap_err().to_string();
    assert_eq!(error, "the GPU has no room for 3.0 GiB: 992 MiB of its memory are free");
    // The device is not lost: work continues.
    let at = gpu.allocate(free).unwrap();
    assert_eq!((at.0 % 256, gpu.free_memory().unwrap()), (0, 0));
    gpu.release(at);
    assert_eq!(gpu.free_memory().unwrap(), free);
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn a_device_without_memory_for_the_workspace_is_an_error() {
    let Some(fake) = Fake::new(&["MEMORY=1000000"]) else {
        return;
    };
    let cache = Cache::at(fake.folder().join("cache"));
    let error = Gpu::with(fake.found(), cache, lookup).err().unwrap().to_string();
    assert_eq!(error, "the GPU has no room for 32 MiB: 1 MiB of its memory are free");
    fake.assert_clean();
}

#[test]
fn a_lost_device_gives_the_same_error_from_then_on() {
    let Some((fake, mut gpu)) = gpu(&["LOST_AFTER=1"]) else {
        return;
    };
    let at = upload(&mut gpu, &[1.0], Element::F32);
    scale(&mut gpu, Element::F32, at, 1, 2.0).unwrap();
    let expected = "Fake GPU 0 was lost when it tried to run scale on 1×1×1 blocks of 256 threads: an illegal \
                memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS); nothing more can run on it in \
                this process: resume from the last checkpoint";
    let error = scale(&mut gpu, Element::F32, at, 1, 2.0).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let matrix = Matrix::new(at, Element::F32, 1, 1);
    let errors = [
        gpu.download(at, &mut [0; 4]).unwrap_err(),
        gpu.upload(at, &[0; 4]).unwrap_err(),
        gpu.multiply(&product(matrix, matrix, matrix)).unwrap_err(),
        gpu.free_memory().unwrap_err(),
        gpu.mark().unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.to_string() == expected));
    gpu.release(at);
    drop(gpu);
    assert_eq!(fake.count("fake_bad_calls"), 0);
}

#[test]
fn a_device_may_move_to_another_thread() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let at = upload(&mut gpu, &[1.5], Element::F32);
    let got = std::thread::spawn(move || {
        scale(&mut gpu, Element::F32, at, 1, 2.0).unwrap();
        download(&mut gpu, at, 1, Element::F32)
    });
    assert_eq!(got.join().unwrap(), [3.0]);
    fake.assert_clean();
}

fn product(a: Matrix, b: Matrix, c: Matrix) -> Product {
    Product { a, b, c, alpha: 1.0, add: false, tf32: false, epilogue: Epilogue::Nothing }
}

/// A matrix on the device with its values row by row. Its rows are `gap` elements longer than its
/// columns, and it starts `shift` elements after an aligned address.
struct Made {
    matrix: Matrix,
    values: Vec<Vec<f32>>,
}

fn made(
    gpu: &mut Gpu,
    (rows, columns): (usize, usize),
    element: Element,
    transposed: bool,
    gap: usize,
    shift: usize,
    seed: f32,
) -> Made {
    let (stored_rows, stored_columns) = if transposed { (columns, rows) } else { (rows, columns) };
    let stride = stored_columns + gap;
    // Halves and quarters are exact in every element, as are their sums.
    let value = |i: usize| ((i as f32 * 0.618 + seed).fract() * 8.0).floor() / 4.0 - 1.0;
    let stored: Vec<f32> = (0..shift + stored_rows * stride).map(value).collect();
    let at = upload(gpu, &stored, element).offset(shift as u64 * element.bytes());
    let matrix =
        Matrix { at, element, rows: stored_rows, columns: stored_columns, stride, transposed };
    let get = |row: usize, column: usize| {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        stored[shift + row * stride + column]
    };
    let values = (0..rows).map(|row| (0..columns).map(|column| get(row, column)).collect());
    Made { matrix, values: values.collect() }
}

/// All products that the engine uses: with and without gaps, every transposition, every pair of
/// elements, overwriting or accumulating, at addresses aligned only to their element.
#[test]
fn products_are_correct_for_every_layout_and_format() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let elements = [
        (Element::F32, Element::F32),
        (Element::Bf16, Element::Bf16),
        (Element::Bf16, Element::F32),
        (Element::F16, Element::F16),
        (Element::F16, Element::F32),
    ];
    for (element, result) in elements {
        for (m, inner, n) in [(1, 2, 1), (3, 5, 7), (33, 8, 2)] {
            for case in 0..16 {
                let [at, bt, add, gapped] = [1, 2, 4, 8].map(|bit| case & bit != 0);
                let (gap, shift) = if gapped { (3, 1) } else { (0, 0) };
                let a = made(&mut gpu, (m, inner), element, at, gap, shift, 0.1);
                let b = made(&mut gpu, (inner, n), element, bt, gap, 0, 0.2);
                let c = made(&mut gpu, (m, n), result, false, gap, shift, 0.3);
                let before = download(&mut gpu, c.matrix.at, m * c.matrix.stride - gap, result);
                gpu.multiply(&Product {
                    alpha: 0.5,
                    add,
                    tf32: true,
                    ..product(a.matrix, b.matrix, c.matrix)
                })
                .unwrap();
                let after = download(&mut gpu, c.matrix.at, m * c.matrix.stride - gap, result);
                for (i, got) in after.iter().enumerate() {
                    let (row, column) = (i / c.matrix.stride, i % c.matrix.stride);
                    let expected = if column < n {
                        let old = if add { c.values[row][column] } else { 0.0 };
                        let terms = (0..inner).map(|k| a.values[row][k] * b.values[k][column]);
                        old + 0.5 * terms.sum::<f32>()
                    } else {
                        before[i]
                    };
                    let tolerance = if result == Element::Bf16 { 8e-3 } else { 1e-3 };
                    let error = (got - expected).abs();
                    assert!(
                        error <= tolerance * expected.abs().max(1.0),
                        "{a:?} {case} {i}: {got} {expected}",
                        a = a.matrix
                    );
                }
                for matrix in [&a, &b, &c] {
                    let bytes = if gapped { matrix.matrix.element.bytes() } else { 0 };
                    let base = if std::ptr::eq(matrix, &b) { 0 } else { bytes };
                    gpu.release(Address(matrix.matrix.at.0 - base));
                }
            }
        }
    }
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn an_algorithm_is_chosen_once_per_shape() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let a = made(&mut gpu, (4, 6), Element::Bf16, false, 0, 0, 0.0).matrix;
    let b = made(&mut gpu, (6, 5), Element::Bf16, false, 0, 0, 0.0).matrix;
    let c = made(&mut gpu, (4, 5), Element::F32, false, 0, 0, 0.0).matrix;
    for add in [false, true, false] {
        gpu.multiply(&Product { add, ..product(a, b, c) }).unwrap();
    }
    assert_eq!(fake.count("fake_heuristics"), 1);
    // More shapes than are stored, made by different strides.
    let from = gpu.allocate(1 << 20).unwrap();
    for stride in 7..7 + 1100 {
        let a = Matrix { at: from, stride, ..a };
        gpu.multiply(&product(a, b, c)).unwrap();
    }
    assert_eq!(fake.count("fake_heuristics"), 1101);
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn products_with_empty_sizes_are_zero_or_skipped() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let c = made(&mut gpu, (2, 2), Element::F32, false, 1, 0, 0.5);
    let at = c.matrix.at;
    let empty = |rows, columns| Matrix::new(at, Element::F32, rows, columns);
    let nothing = product(empty(2, 0), empty(0, 2), c.matrix);
    let before = download(&mut gpu, at, 6, Element::F32);
    gpu.multiply(&Product { add: true, ..nothing }).unwrap();
    assert_eq!(download(&mut gpu, at, 6, Element::F32), before);
    gpu.multiply(&nothing).unwrap();
    let expected = [0.0, 0.0, before[2], 0.0, 0.0, before[5]];
    assert_eq!(download(&mut gpu, at, 6, Element::F32), expected, "what lies between rows stays");
    gpu.multiply(&product(empty(0, 3), empty(3, 2), empty(0, 2))).unwrap();
    assert_eq!(fake.count("fake_heuristics"), 0);
    assert!(gpu.multiply(&product(empty(2, 1), empty(2, 2), c.matrix)).is_err());
    drop(gpu);
    fake.assert_clean();
}

#[test]
fn biases_and_the_exact_gelu_follow_the_product() {
    let Some((fake, mut gpu)) = gpu(&[]) else {
        return;
    };
    let (m, inner, n) = (3, 4, 5);
    let bias_values: Vec<f32> = (0..n).map(|i| i as f32 * 0.5 - 1.0).collect();
    let bias = upload(&mut gpu, &bias_values, Element::F32);
    for (element, result) in [
        (Element::F32, Element::F32),
        (Element::Bf16, Element::F32),
        (Element::Bf16, Element::Bf16),
    ] {
        let a = made(&mut gpu, (m, inner), element, false, 0, 0, 0.1);
        let b = made(&mut gpu, (n, inner), element, false, 0, 0, 0.2);
        let b_values = |k: usize, column: usize| b.values[column][k];
        let c = made(&mut gpu, (m, n), result, false, 0, 0, 0.3);
        let before = made(&mut gpu, (m, n), result, false, 0, 0, 0.4);
        let sum = |i: usize| {
            let (row, column) = (i / n, i % n);
            let terms = (0..inner).map(|k| a.values[row][k] * b_values(k, column));
            terms.sum::<f32>() + bias_values[column]
        };
        let near =
            |got: f32, expected: f32| (got - expected).abs() <= 8e-3 * expected.abs().max(1.0);
        let plain = product(a.matrix, b.matrix.t(), c.matrix);
        gpu.multiply(&Product { epilogue: Epilogue::Bias(bias), ..plain }).unwrap();
        let got = download(&mut gpu, c.matrix.at, m * n, result);
        assert!((0..m * n).all(|i| near(got[i], sum(i))), "{got:?}");
        let epilogue = Epilogue::BiasGelu { bias, before: before.matrix.at };
        gpu.multiply(&Product { epilogue, ..plain }).unwrap();
        let sums = download(&mut gpu, before.matrix.at, m * n, result);
        let got = download(&mut gpu, c.matrix.at, m * n, result);
        for i in 0..m * n {
            let x = sum(i);
            let gelu = 0.5 * x * libm::erfcf(-x * std::f32::consts::FRAC_1_SQRT_2);
            assert!(near(sums[i], x) && near(got[i], gelu), "{i}: {} {} {x}", sums[i], got[i]);
        }
        let gaps = Matrix { stride: n + 1, ..c.matrix };
        let refused = gpu.multiply(&Product { c: gaps, epilogue, ..plain }).unwrap_err();
        assert!(refused.to_string().starts_with("a bias can't be added to"), "{refused}");
    }
    drop(gpu);
    fake.assert_clean();
}
