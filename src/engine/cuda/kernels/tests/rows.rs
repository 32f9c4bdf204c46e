use super::*;
use crate::engine::cpu::heads as cpu;
use crate::engine::cuda::kernels::{Drops, add_picked, cast, drop_rows, pick};
use crate::engine::simd::Simd;

#[test]
fn rows_are_picked_and_given_back() {
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for width in [1, 7, 8, 33, 128, 768, 1100] {
            let (rows, from_rows) = ([5u32, 0, 30, 11, 7], 31);
            let all = rounded(&wave(from_rows * width, 0.7), element);
            let few = rounded(&wave(rows.len() * width, 0.3), element);
            let (all_at, rows_at) = (bench.activations(&all), bench.numbers(&rows));
            let size = (rows.len() as u32, width as u32);
            let mut picked = vec![0.0; few.len()];
            cpu::pick(&all, &rows, width, &mut picked);
            let mut given = all.clone();
            cpu::add_picked(&few, &rows, width, &mut given);
            for other in [element, Element::F32] {
                let what = format!("{element:?} {other:?} {width} {}", bench.shift);
                let to = bench.out(few.len(), other);
                let device = &mut bench.device;
                pick(device, element, size, all_at, rows_at, (to, other)).unwrap();
                assert_eq!(bench.take(to, few.len(), other), picked, "{what}");
                let (from, to) = (bench.put(&few, other), bench.activations(&all));
                let device = &mut bench.device;
                add_picked(device, element, size, (from, other), rows_at, to).unwrap();
                assert_close(&bench.taken(to, all.len()), &given, e, &what);
            }
        }
    }
}

#[test]
fn rows_and_sequences_drop_what_the_cpu_engine_drops() {
    let simd = Simd::detect();
    let packed = ragged(127);
    for mut bench in Bench::all() {
        let element = bench.element;
        let batch = bench.batch(&packed);
        for site in [Site::HeadDropout, Site::AttentionOutputDropout(11)] {
            let (mask, rows) = mask_of(&packed, site);
            let dropping = bench.dropping(site);
            for width in [1, 7, 8, 12, 33, 128, 1100] {
                for by_row in [true, false] {
                    let (drops, n) = match by_row {
                        true => (Drops::Rows(&batch), packed.rows()),
                        false => (Drops::Sequences(&batch), packed.sequences()),
                    };
                    let at = bench.activations(&vec![1.0; n * width]);
                    let device = &mut bench.device;
                    drop_rows(device, element, drops, width as u32, at, &dropping).unwrap();
                    let mut expected = vec![1.0; n * width];
                    for (row, x) in expected.chunks_mut(width).enumerate() {
                        if by_row {
                            mask.apply_to_row(simd, &rows, row, x);
                        } else {
                            mask.apply(simd, packed.examples[row], 0, x);
                        }
                    }
                    // To the last bit: the same numbers are dropped.
                    assert_eq!(
                        bench.taken(at, n * width),
                        rounded(&expected, element),
                        "{element:?} {site:?} {width} {by_row}"
                    );
                }
            }
        }
    }
}

#[test]
fn numbers_become_shorter_as_half_rounds_them() {
    // Ties, the ends of the ranges, subnormal numbers, infinities.
    let mut values = wave(1000, 0.7);
    values.extend([
        0.0, -0.0, 65504.0, 65519.0, 65520.0, 1e30, 3e38, -7e-6, 6e-8,
    ]);
    values.extend([2.980_232_2e-8, 2.980_232_6e-8, 6.1e-5, f32::INFINITY, 1e-40]);
    values.extend((0..512).map(|i| f32::from_bits(0x3F80_0000 + i * 0x0800)));
    values.extend((0..512).map(|i| f32::from_bits(0x3F80_0000 + i * 0x0100)));
    for mut bench in Bench::all() {
        let element = bench.element;
        let single = Element::F32;
        for n in [1, 7, 8, 100, values.len()] {
            let (from, to) = (bench.single(&values[..n]), bench.out(n, element));
            let device = &mut bench.device;
            cast(device, n as u64, (from, single), (to, element)).unwrap();
            let expected = rounded(&values[..n], element);
            assert_eq!(bench.taken(to, n), expected, "{element:?} {n}");
            let back = bench.out(n, single);
            let device = &mut bench.device;
            cast(device, n as u64, (to, element), (back, single)).unwrap();
            assert_eq!(bench.taken_single(back, n), expected, "{element:?} {n}");
        }
        if element != single {
            let other = if element == Element::F16 {
                Element::Bf16
            } else {
                Element::F16
            };
            let none = Address::NONE;
            let error = cast(&mut bench.device, 1, (none, element), (none, other)).unwrap_err();
            assert!(error.to_string().starts_with("no kernel turns"), "{error}");
        }
    }
}
