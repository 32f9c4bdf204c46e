//! Views of dfdx tensors: shape, number type, range and values.

use dfdx::prelude::{Dtype, Shape, Storage, Tensor};

use super::display::{self, Content, Show};
use super::heat::HeatMap;
use super::style::{self, number};

/// Most rows and columns that are shown as numbers.
const ROWS: usize = 8;
const COLUMNS: usize = 8;
/// Most rows and columns that are drawn as a heat map.
const DRAWN: usize = 256;

/// A summary of a tensor, with values converted to `f64`.
struct Summary {
    /// Shape, number type and device, and whether it has a tape: `2×3 f32 cpu`.
    kind: String,
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Summary {
    fn of<S: Shape, E: Dtype, D: Storage<E>, T>(tensor: &Tensor<S, E, D, T>) -> Self {
        // Every number type of dfdx converts to f64; any other would become NaN.
        let value = |v: E| v.to_f64().unwrap_or(f64::NAN);
        Self {
            kind: kind(tensor),
            shape: tensor_shape(tensor),
            values: tensor.as_vec().into_iter().map(value).collect(),
        }
    }

    /// Returns `2×3 f32 cpu · min -1 · mean 0.25 · max 2`, and the number of values that are not finite.
    fn headline(&self) -> String {
        let mut out = self.kind.clone();
        let finite = self.values.iter().copied().filter(|v| v.is_finite());
        let finite: Vec<f64> = finite.collect();
        if !finite.is_empty() {
            let (low, high) = style::extent(finite.iter().copied());
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            let [low, mean, high] = [low, mean, high].map(number);
            out += &format!(" · min {low} · mean {mean} · max {high}");
        }
        match self.values.len() - finite.len() {
            0 => out,
            odd => out + &format!(" · {odd} NaN or infinite"),
        }
    }

    /// Returns the rows of the last two dimensions, of the first matrix if there are more, and their width.
    fn first_matrix(&self) -> (Vec<&[f64]>, usize) {
        let width = self.shape.last().copied().unwrap_or(1).max(1);
        let rows = match self.shape.len() {
            0 | 1 => 1,
            dims => self.shape[dims - 2],
        };
        (self.values.chunks(width).take(rows).collect(), width)
    }

    /// Returns which part is shown if the tensor has more than two dimensions.
    fn part(&self) -> Option<String> {
        let outer = self.shape.len().checked_sub(2).filter(|&n| n > 0)?;
        Some(format!("[{}, .., ..]", vec!["0"; outer].join(", ")))
    }

    fn table(&self) -> Vec<Vec<String>> {
        let (rows, width) = self.first_matrix();
        let line = |row: &[f64]| {
            let mut cells: Vec<String> = row.iter().take(COLUMNS).map(|&v| number(v)).collect();
            if width > COLUMNS {
                cells.push("…".into());
            }
            cells
        };
        let mut table: Vec<Vec<String>> = rows.iter().take(ROWS).map(|row| line(row)).collect();
        if rows.len() > ROWS {
            table.push(vec!["…".into(); width.min(COLUMNS)]);
        }
        table
    }

    fn text(&self) -> String {
        let mut out = self.headline();
        if let Some(part) = self.part() {
            out += &format!("\n  {part}");
        }
        let table = self.table();
        let width = style::longest(table.iter().flatten());
        for row in table {
            let cells: Vec<String> = row.iter().map(|cell| format!("{cell:>width$}")).collect();
            out += &format!("\n  {}", cells.join(" "));
        }
        out
    }

    fn html(&self) -> String {
        let (rows, width) = self.first_matrix();
        let mut out =
            format!("<div style=\"margin:4px 0\"><b>{}</b></div>", style::escape(&self.headline()));
        if let Some(part) = self.part() {
            out += &format!("<div style=\"opacity:.75\">{part}</div>");
        }
        let written = rows.len() <= ROWS && width <= COLUMNS;
        if !written && rows.len() > 1 && rows.len() <= DRAWN && width <= DRAWN {
            let values = rows.iter().flat_map(|row| row.iter().map(|&v| v as f32));
            let values: Vec<f32> = values.collect();
            return out + &HeatMap::new("", &values, width).svg();
        }
        out += "<table style=\"font-variant-numeric:tabular-nums;border-collapse:collapse\">";
        for row in self.table() {
            out += "<tr>";
            for cell in row {
                out += &format!("<td style=\"text-align:right;padding:1px 8px\">{cell}</td>");
            }
            out += "</tr>";
        }
        out + "</table>"
    }
}

/// Returns shape, number type and device of a tensor: `2×3 f32 cpu`.
fn kind<S: Shape, E: Dtype, D: Storage<E>, T>(tensor: &Tensor<S, E, D, T>) -> String {
    let shape = tensor_shape(tensor).into_iter();
    let shape = match shape.map(|size| size.to_string()).collect::<Vec<_>>() {
        sizes if sizes.is_empty() => "scalar".to_owned(),
        sizes => sizes.join("×"),
    };
    let device = last_name::<D>().to_lowercase();
    let taped = match last_name::<T>() {
        "NoneTape" => "",
        _ => ", with a tape",
    };
    format!("{shape} {} {device}{taped}", last_name::<E>())
}

/// Returns the name of a type without its path and its parameters.
fn last_name<T: ?Sized>() -> &'static str {
    let name = std::any::type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(path)
}

/// Returns a row of [`shapes`]: a variable and the kind of its tensor.
pub fn row<S: Shape, E: Dtype, D: Storage<E>, T>(
    name: &str,
    tensor: &Tensor<S, E, D, T>,
) -> (String, String) {
    (name.to_owned(), kind(tensor))
}

/// Shows a table of tensors' shapes, for the session's command `:shapes`.
pub fn shapes(rows: &[(String, String)]) {
    let width = style::longest(rows.iter().map(|row| &row.0));
    let lines = rows.iter().map(|(name, kind)| format!("{name:<width$}  {kind}"));
    let text: Vec<String> = lines.collect();
    let cells = rows.iter().map(|(name, kind)| {
        let cell =
            |text: &str| format!("<td style=\"text-align:left\">{}</td>", style::escape(text));
        format!("<tr>{}{}</tr>", cell(name), cell(kind))
    });
    let html = format!("<table>{}</table>", cells.collect::<String>());
    display::put(Content::html(html).with_text(text.join("\n")));
}

/// Returns the sizes of a tensor's dimensions.
fn tensor_shape<S: Shape, E: Dtype, D: Storage<E>, T>(tensor: &Tensor<S, E, D, T>) -> Vec<usize> {
    use dfdx::prelude::HasShape;
    tensor.shape().concrete().into_iter().collect()
}

impl<S: Shape, E: Dtype, D: Storage<E>, T> Show for Tensor<S, E, D, T> {
    fn content(&self) -> Content {
        let summary = Summary::of(self);
        Content::html(style::figure(&summary.html())).with_text(summary.text())
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;

    #[test]
    fn shape_type_and_range_are_shown() {
        let dev = Cpu::default();
        let x = dev.tensor([[1.0f32, -2.0, 0.5], [4.0, 0.0, 1.0]]);
        let expected = "2×3 f32 cpu · min -2 · mean 0.75 · max 4\n    1  -2 0.5\n    4   0   1";
        assert_eq!(Summary::of(&x).text(), expected);
        let html = Summary::of(&x).html();
        assert!(html.contains("<td") && html.contains("2×3 f32"));
    }

    #[test]
    fn a_tape_is_shown() {
        let dev = Cpu::default();
        let x: Tensor<Rank1<3>, f32, _> = dev.zeros();
        assert_eq!(kind(&x), "3 f32 cpu");
        let traced = x.leaky_trace().sum::<Rank0, _>();
        assert_eq!(kind(&traced), "scalar f32 cpu, with a tape");
    }

    #[test]
    fn of_many_matrices_the_first_is_shown_and_named() {
        let dev = Cpu::default();
        let x: Tensor<Rank3<2, 1, 2>, f64, _> = dev.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]);
        assert!(Summary::of(&x).text().ends_with("[0, .., ..]\n  1 2"));
    }

    #[test]
    fn large_tensors_are_drawn_and_never_written_as_numbers() {
        let dev = Cpu::default();
        let x: Tensor<Rank2<100, 64>, f32, _> = dev.ones();
        assert!(Summary::of(&x).html().contains("<svg"));
        assert_eq!(Summary::of(&x).text().lines().count(), 1 + ROWS + 1);
        let long: Tensor<Rank1<5000>, f32, _> = dev.zeros();
        assert!(Summary::of(&long).html().len() < 2000);
    }

    #[test]
    fn values_that_are_not_finite_are_counted() {
        let dev = Cpu::default();
        let x = dev.tensor([1.0f32, f32::NAN, f32::INFINITY]);
        assert!(Summary::of(&x).text().contains("max 1 · 2 NaN or infinite"));
    }
}
