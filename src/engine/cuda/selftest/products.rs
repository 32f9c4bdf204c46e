//! Tests matrix products: all of a layer and of the heads, in every element type and transposition,
//! overwriting and accumulating, with every epilogue, against the CPU engine's product and f64.

use crate::engine::Precision;
use crate::engine::cpu::{self, Output, Threads};
use crate::engine::cuda::device::{Device, Element, Epilogue, Matrix, Product};
use crate::engine::simd::Simd;
use crate::error::Result;

use super::test_case::{TestCase, bound, name_of, numbers, rounded};
use super::{Check, Scale, TestCases, run_cases};

/// The kind of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `x Wᵀ`
    Forward,
    /// `dy W`
    Input,
    /// `dyᵀ x` in f32
    Weight,
}

/// One product: m rows of x, k columns, n columns of the result.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: Kind,
    size: [usize; 3],
    tf32: bool,
    add: bool,
    alpha: f32,
    /// Values between the end of a row of `a` and the next row.
    gap: usize,
    epilogue: Fused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fused {
    Nothing,
    /// In f32.
    Bias,
    /// Of the result's element.
    OwnBias,
}

pub fn checks() -> Vec<Check> {
    let all = [
        (Element::F32, false),
        (Element::F32, true),
        (Element::Bf16, false),
        (Element::F16, false),
    ];
    let kinds = [Kind::Forward, Kind::Input, Kind::Weight];
    let pairs = all.into_iter().flat_map(|format| kinds.map(|kind| (format, kind)));
    pairs
        .map(|((element, tf32), kind)| {
            let name = if tf32 { "tf32" } else { name_of(element) };
            Check::new(format!("{kind:?} {name}").to_lowercase(), move |session| {
                let scale = session.scale;
                let device: &mut dyn Device = session.device()?;
                let all = |cases: &mut TestCases<'_>| all_cases(cases, kind, tf32);
                Ok(run_cases(device, element, scale, all).outcome())
            })
        })
        .collect()
}

/// Returns rows, inputs and outputs of linear layers.
fn sizes(scale: Scale) -> &'static [[usize; 3]] {
    match scale {
        Scale::Full => &[
            [512, 768, 2304],
            [383, 768, 768],
            [127, 768, 3072],
            [512, 3072, 768],
            [33, 1024, 4096],
            [31, 384, 1536],
            [1, 768, 768],
            [77, 768, 30528],
            [64, 768, 8],
            [2, 128, 128],
        ],
        Scale::Small => &[[33, 128, 384], [31, 128, 128], [1, 64, 64], [17, 64, 256], [5, 128, 8]],
        Scale::Short => &[[5, 64, 24]],
    }
}

fn all_cases(cases: &mut TestCases<'_>, kind: Kind, tf32: bool) {
    for &size in sizes(cases.scale) {
        let plain = Case {
            kind,
            size,
            tf32,
            add: kind == Kind::Weight,
            alpha: 1.0,
            gap: 0,
            epilogue: Fused::Nothing,
        };
        let mut tries =
            vec![plain, Case { add: !plain.add, alpha: 0.5, ..plain }, Case { gap: 16, ..plain }];
        if kind == Kind::Forward {
            tries.extend([Fused::Bias, Fused::OwnBias].map(|epilogue| Case { epilogue, ..plain }));
        }
        for one in tries {
            let Case { size: [m, k, n], add, alpha, gap, epilogue, .. } = one;
            let name =
                format!("{m}×{k}×{n}, add {add}, alpha {alpha}, gap {gap}, epilogue {epilogue:?}");
            cases.test_aligned(&name, |case| run_case(case, one));
        }
    }
    let (width, lengths) = cases.scale.measured();
    let size = [lengths.iter().sum(), width, 4 * width];
    let add = kind == Kind::Weight;
    let one = Case { kind, size, tf32, add, alpha: 1.0, gap: 0, epilogue: Fused::Nothing };
    cases.measure("of a training step", |case| run_case(case, one));
}

/// A factor as stored and as used.
struct Factor {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
    gap: usize,
    transposed: bool,
}

impl Factor {
    fn new(element: Element, [rows, columns]: [usize; 2], gap: usize, key: usize) -> Self {
        Self {
            values: rounded(element, &numbers(rows * (columns + gap), key)),
            rows,
            columns,
            gap,
            transposed: false,
        }
    }

    fn t(self) -> Self {
        Self { transposed: true, ..self }
    }

    fn upload(&self, case: &mut TestCase<'_>) -> Result<Matrix> {
        let at = case.constant(case.element, &self.values)?;
        Ok(Matrix {
            stride: self.columns + self.gap,
            transposed: self.transposed,
            ..Matrix::new(at, case.element, self.rows, self.columns)
        })
    }

    fn view(&self) -> cpu::Matrix<'_> {
        let stride = self.columns + self.gap;
        let whole = cpu::Matrix::strided(&self.values, self.rows, self.columns, stride);
        if self.transposed { whole.t() } else { whole }
    }

    /// Returns an element of the used matrix.
    fn get(&self, row: usize, column: usize) -> f64 {
        let (row, column) = match self.transposed {
            true => (column, row),
            false => (row, column),
        };
        f64::from(self.values[row * (self.columns + self.gap) + column])
    }
}

fn run_case(case: &mut TestCase<'_>, one: Case) -> Result<()> {
    let element = case.element;
    let [rows, inputs, outputs] = one.size;
    let factor = |shape, key| Factor::new(element, shape, 0, key);
    let first = |shape, key| Factor::new(element, shape, one.gap, key);
    let (a, b) = match one.kind {
        Kind::Forward => (first([rows, inputs], 1), factor([outputs, inputs], 2).t()),
        Kind::Input => (first([rows, outputs], 1), factor([outputs, inputs], 2)),
        Kind::Weight => (first([rows, outputs], 1).t(), factor([rows, inputs], 2)),
    };
    let (m, n, k) = match one.kind {
        Kind::Forward => (rows, outputs, inputs),
        Kind::Input => (rows, inputs, outputs),
        Kind::Weight => (outputs, inputs, rows),
    };
    case.columns = n;
    // The gradients of weights are f32 for every format of factors.
    let stored = match one.kind {
        Kind::Weight => Element::F32,
        Kind::Forward | Kind::Input => element,
    };
    let mut c = rounded(stored, &numbers(m * n, 3));
    let of_bias = if one.epilogue == Fused::OwnBias { stored } else { Element::F32 };
    let bias = rounded(of_bias, &numbers(n, 4));
    let at = match one.add {
        true => case.changing(stored, &c)?,
        false => case.empty(stored, m * n)?,
    };
    let bias_at = case.constant(of_bias, &bias)?;
    let product = Product {
        a: a.upload(case)?,
        b: b.upload(case)?,
        c: Matrix::new(at, stored, m, n),
        alpha: one.alpha,
        add: one.add,
        tf32: one.tf32,
        epilogue: match one.epilogue {
            Fused::Nothing => Epilogue::Nothing,
            Fused::Bias | Fused::OwnBias => Epilogue::Bias(bias_at, of_bias),
        },
    };
    case.device.multiply(&product)?;
    let Some([got]) = case.outputs([(at, stored, m * n)])? else {
        return Ok(());
    };
    let old = c.clone();
    cpu::product(
        cpu::MatrixMut::new(&mut c, m, n),
        if one.add { Output::Accumulate } else { Output::Overwrite },
        one.alpha,
        a.view(),
        b.view(),
        Threads::All,
        Precision::F32,
    );
    let bound = match (one.tf32, stored) {
        // Factors keep ten bits; the tensor cores cut off the others, so that errors of up to 2⁻¹⁰ add up.
        (true, _) => 3e-3,
        (false, stored) => bound(stored),
    };
    if one.epilogue != Fused::Nothing {
        cpu::elementwise::add_bias(Simd::detect(), &mut c, &bias);
    }
    case.within("the product", &got, &c, bound);
    if m * n * k < 1 << 20 {
        let exact: Vec<f64> = (0..m * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                let sum: f64 = (0..k).map(|x| a.get(row, x) * b.get(x, column)).sum();
                let old = if one.add { f64::from(old[i]) } else { 0.0 };
                let bias = match one.epilogue {
                    Fused::Bias | Fused::OwnBias => f64::from(bias[column]),
                    Fused::Nothing => 0.0,
                };
                f64::from(one.alpha) * sum + old + bias
            })
            .collect();
        case.within("the product against f64", &got, &exact, bound);
    }
    Ok(())
}
