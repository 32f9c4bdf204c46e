use super::*;
use crate::engine::cpu::elementwise::{self as cpu, Partials};
use crate::engine::cuda::kernels::{
    add, add_bias, bias_gelu, bias_gradient, gelu_backward, partials, tanh_backward, tanh_bias,
};
use crate::engine::simd::Simd;

const SIZES: [(usize, usize); 7] = [
    (1, 1),
    (2, 33),
    (31, 8),
    (33, 127),
    (127, 520),
    (383, 16),
    (9, 2100),
];

#[test]
fn biases_and_gelu_are_the_cpu_engines() {
    let simd = Simd::detect();
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for (n, width) in SIZES {
            let what = format!("{element:?} {n} × {width} {}", bench.shift);
            let size = (n as u32, width as u32);
            let mut x = rounded(&wave(n * width, 0.7), element);
            // Far out, where Φ is 0 or 1.
            x[0] = -40.0;
            let d = rounded(&wave(n * width, 0.31), element);
            let bias = wave(width, 0.9);
            let (x_at, bias_at) = (bench.activations(&x), bench.single(&bias));
            let out = bench.out(n * width, element);
            bias_gelu(&mut bench.device, element, size, x_at, bias_at, out).unwrap();
            let mut y = vec![0.0; n * width];
            cpu::bias_gelu(simd, &x, &bias, &mut y);
            assert_close(&bench.taken(out, n * width), &y, e, &what);

            let scratch = bench.scratch(partials(width as u32));
            let (d_at, sums) = (bench.activations(&d), bench.single(&vec![1.0; width]));
            gelu_backward(
                &mut bench.device,
                element,
                size,
                x_at,
                bias_at,
                d_at,
                sums,
                scratch,
            )
            .unwrap();
            let (mut d_cpu, mut d_bias) = (d.clone(), vec![1.0; width]);
            let mut room = Partials::default();
            cpu::gelu_backward(simd, &x, &bias, &mut d_cpu, &mut d_bias, &mut room);
            assert_close(&bench.taken(d_at, n * width), &d_cpu, e, &what);
            assert_close(&bench.taken_single(sums, width), &d_bias, 2e-4, &what);

            add_bias(&mut bench.device, element, size, x_at, bias_at).unwrap();
            let mut sum = x.clone();
            cpu::add_bias(simd, &mut sum, &bias);
            assert_close(&bench.taken(x_at, n * width), &sum, e, &what);
        }
    }
}

#[test]
fn sums_over_rows_leave_out_what_is_between_them() {
    for mut bench in Bench::all() {
        let element = bench.element;
        for (n, width) in SIZES {
            for gap in [0, 1, 7] {
                // Whole vectors from row to row where the gap is the largest.
                let stride = match gap {
                    7 => width.next_multiple_of(8),
                    gap => width + gap,
                };
                let mut x = rounded(&wave(n * stride, 0.7), element);
                let mut expected = vec![1.0; width];
                for row in x.chunks_mut(stride) {
                    for (sum, x) in expected.iter_mut().zip(&row[..width]) {
                        *sum += x;
                    }
                    row[width..].fill(f32::NAN);
                }
                let (at, into) = (bench.activations(&x), bench.single(&vec![1.0; width]));
                let scratch = bench.scratch(partials(width as u32));
                let size = (n as u32, width as u32, stride as u32);
                bias_gradient(&mut bench.device, element, size, at, into, scratch).unwrap();
                let what = format!("{element:?} {n} × {width} of {stride}");
                assert_close(&bench.taken_single(into, width), &expected, 2e-4, &what);
            }
        }
    }
}

#[test]
fn tanh_and_sums_are_those_of_the_definition() {
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for (n, width) in SIZES {
            let what = format!("{element:?} {n} × {width} {}", bench.shift);
            let size = (n as u32, width as u32);
            let (x, bias) = (wave(n * width, 0.7), wave(width, 0.9));
            let (at, bias_at) = (bench.single(&x), bench.single(&bias));
            tanh_bias(&mut bench.device, element, size, at, bias_at).unwrap();
            let y: Vec<f32> = (0..n * width)
                .map(|i| (x[i] + bias[i % width]).tanh())
                .collect();
            assert_close(&bench.taken_single(at, n * width), &y, 1e-6, &what);
            let d = wave(n * width, 0.31);
            let d_at = bench.single(&d);
            tanh_backward(&mut bench.device, element, size, at, d_at).unwrap();
            let slope: Vec<f32> = d.iter().zip(&y).map(|(d, y)| d * (1.0 - y * y)).collect();
            assert_close(&bench.taken_single(d_at, n * width), &slope, 1e-5, &what);

            for other in [element, Element::F32] {
                let (x, y) = (rounded(&x, element), rounded(&d, other));
                let (x_at, y_at) = (bench.activations(&x), bench.put(&y, other));
                add(&mut bench.device, element, size, x_at, (y_at, other)).unwrap();
                let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
                assert_close(&bench.taken(x_at, n * width), &sum, e, &what);
            }
        }
    }
}
