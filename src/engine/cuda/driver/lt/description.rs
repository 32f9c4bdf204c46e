//! A product in cuBLASLt's column-major terms.

use std::fmt;

use crate::engine::cuda::device::{Address, Element, Epilogue, Matrix, Product};
use crate::error::{Error, Result};

/// A column-major matrix whose columns start `leading` elements apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    pub element: Element,
    pub rows: u64,
    pub columns: u64,
    pub leading: u64,
}

impl Layout {
    /// Returns a row-major matrix in column-major terms: its stored rows are columns.
    fn of(matrix: &Matrix) -> Self {
        Self {
            element: matrix.element,
            rows: matrix.columns as u64,
            columns: matrix.rows as u64,
            leading: matrix.stride.max(1) as u64,
        }
    }
}

/// Everything that the choice of an algorithm depends on. The left factor is the product's `b`, the
/// right one its `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Description {
    pub left: Layout,
    pub right: Layout,
    pub result: Layout,
    pub left_transposed: bool,
    pub right_transposed: bool,
    pub tf32: bool,
    /// Whether a bias is added, one value per row of the column-major result.
    pub bias: bool,
    /// Alignments of the three addresses in bytes, up to 256.
    pub alignments: [u32; 3],
}

impl Description {
    /// Returns the bytes from the start of the result to its end.
    pub fn result_bytes(&self) -> u64 {
        let Layout { element, rows, columns, leading } = self.result;
        element.bytes() * (columns.saturating_sub(1) * leading + rows)
    }

    /// Returns the operations of the product.
    pub fn flops(&self) -> u64 {
        let inner = if self.right_transposed { self.right.columns } else { self.right.rows };
        2 * inner * self.result.rows * self.result.columns
    }

    /// Describes a product; returns an error for sizes and elements that don't fit.
    pub fn of(product: &Product) -> Result<Self> {
        let Product { a, b, c, .. } = product;
        let (m, inner) = a.shape();
        let (inner_too, n) = b.shape();
        let fits = inner == inner_too && (c.rows, c.columns) == (m, n) && !c.transposed;
        let strides = [a, b, c].iter().all(|matrix| matrix.stride >= matrix.columns);
        let elements = a.element == b.element && [Element::F32, a.element].contains(&c.element);
        if !(fits && strides && elements) {
            return Err(Error::Failed(format!("cannot multiply {a:?} by {b:?} into {c:?}")));
        }
        Ok(Self {
            left: Layout::of(b),
            right: Layout::of(a),
            result: Layout::of(c),
            left_transposed: b.transposed,
            right_transposed: a.transposed,
            tf32: product.tf32 && a.element == Element::F32,
            bias: matches!(product.epilogue, Epilogue::Bias(_, element) if element == c.element),
            alignments: [b.at, a.at, c.at].map(alignment),
        })
    }
}

fn alignment(at: Address) -> u32 {
    1 << at.0.trailing_zeros().min(8)
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (m, n) = (self.result.columns, self.result.rows);
        let inner = if self.right_transposed { self.right.columns } else { self.right.rows };
        let letter = |transposed: bool| if transposed { 'T' } else { 'N' };
        // The library's factors are the other way round.
        let (a, b) = (letter(self.right_transposed), letter(self.left_transposed));
        let (factors, result) = (self.right.element, self.result.element);
        write!(f, "{m}×{inner} {factors:?} by {inner}×{n} in {result:?} ({a}{b})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a value of a column-major matrix.
    fn value(values: &[f64], layout: &Layout, transposed: bool, row: u64, column: u64) -> f64 {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        assert!(row < layout.rows && column < layout.columns);
        values[(column * layout.leading + row) as usize]
    }

    /// Computes what cuBLASLt's documentation defines: `D = op(A) op(B)`, all column-major.
    fn interpret(d: &Description, left: &[f64], right: &[f64], into: &mut [f64]) {
        let inner = if d.left_transposed { d.left.rows } else { d.left.columns };
        let inner_too = if d.right_transposed { d.right.columns } else { d.right.rows };
        assert_eq!(inner, inner_too);
        for row in 0..d.result.rows {
            for column in 0..d.result.columns {
                let products = (0..inner).map(|i| {
                    value(left, &d.left, d.left_transposed, row, i)
                        * value(right, &d.right, d.right_transposed, i, column)
                });
                into[(column * d.result.leading + row) as usize] = products.sum();
            }
        }
    }

    #[test]
    fn a_product_by_columns_is_the_product_by_rows() {
        for (m, inner, n) in [(1, 1, 1), (2, 3, 5), (7, 4, 1), (1, 9, 6), (33, 31, 2)] {
            for (a_transposed, b_transposed) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                for gap in [0, 3] {
                    let matrix = |at, rows, columns, transposed: bool| {
                        let (rows, columns) =
                            if transposed { (columns, rows) } else { (rows, columns) };
                        Matrix {
                            stride: columns + gap,
                            transposed,
                            ..Matrix::new(Address(at), Element::F32, rows, columns)
                        }
                    };
                    let a = matrix(256, m, inner, a_transposed);
                    let b = matrix(512, inner, n, b_transposed);
                    let c = matrix(1024, m, n, false);
                    let product = Product {
                        a,
                        b,
                        c,
                        alpha: 1.0,
                        add: false,
                        tf32: false,
                        epilogue: Epilogue::Nothing,
                    };
                    let d = Description::of(&product).unwrap();
                    let values = |matrix: &Matrix, factor: f64| -> Vec<f64> {
                        let count = matrix.rows * matrix.stride;
                        (0..count).map(|i| (i as f64 * factor).sin()).collect()
                    };
                    let (left, right) = (values(&b, 0.7), values(&a, 0.3));
                    let mut got = vec![f64::NAN; c.rows * c.stride];
                    interpret(&d, &left, &right, &mut got);
                    let at = |values: &[f64], matrix: &Matrix, row: usize, column: usize| {
                        let (row, column) =
                            if matrix.transposed { (column, row) } else { (row, column) };
                        values[row * matrix.stride + column]
                    };
                    for row in 0..m {
                        for column in 0..n {
                            let terms = (0..inner)
                                .map(|i| at(&right, &a, row, i) * at(&left, &b, i, column));
                            let expected: f64 = terms.sum();
                            let got = at(&got, &c, row, column);
                            assert!(
                                (got - expected).abs() < 1e-12,
                                "{product:?}: {got} {expected}"
                            );
                        }
                    }
                    let letter = |transposed| if transposed { 'T' } else { 'N' };
                    let (of_a, of_b) = (letter(a_transposed), letter(b_transposed));
                    let expected = format!("{m}×{inner} F32 by {inner}×{n} in F32 ({of_a}{of_b})");
                    assert_eq!(d.to_string(), expected);
                }
            }
        }
    }

    #[test]
    fn alignment_is_the_largest_power_of_two_up_to_256() {
        let whole = [Address(256), Address(1 << 20), Address(0x7f00_0000_0100)];
        assert_eq!(whole.map(alignment), [256; 3]);
        assert_eq!([2, 4, 16, 48, 130].map(|at| alignment(Address(at))), [2, 4, 16, 16, 2]);
    }

    #[test]
    fn matrices_that_do_not_fit_are_rejected() {
        let matrix = |rows, columns| Matrix::new(Address(256), Element::Bf16, rows, columns);
        let good = Product {
            a: matrix(2, 3),
            b: matrix(3, 4),
            c: matrix(2, 4),
            alpha: 1.0,
            add: false,
            tf32: true,
            epilogue: Epilogue::Bias(Address(8), Element::F32),
        };
        let d = Description::of(&good).unwrap();
        // Neither TF32 nor a bias of the result's type: both need f32.
        assert!(!d.tf32 && !d.bias);
        let f32_result = Matrix { element: Element::F32, ..good.c };
        assert!(Description::of(&Product { c: f32_result, ..good }).unwrap().bias);
        for bad in [
            Product { b: matrix(4, 4), ..good },
            Product { c: matrix(4, 2), ..good },
            Product { c: matrix(4, 2).t(), ..good },
            Product { a: Matrix { stride: 2, ..good.a }, ..good },
            Product { a: Matrix { element: Element::F16, ..good.a }, ..good },
            Product { c: Matrix { element: Element::F16, ..good.c }, ..good },
        ] {
            let error = Description::of(&bad).unwrap_err().to_string();
            assert!(error.starts_with("cannot multiply "), "{error}");
        }
    }
}
