//! Picks rows and adds them back, and drops values.

use super::{Batch, SiteDropout, dropout_arguments, values};
use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::{Error, Result};

/// Returns the first name if `other` is `element`, the second if it is f32.
pub(super) fn of_either(
    element: Element,
    other: Element,
    [same, single]: [&'static str; 2],
) -> Result<&'static str> {
    if other == element {
        Ok(same)
    } else if other == Element::F32 {
        Ok(single)
    } else {
        Err(Error::Failed(format!("no kernel works on {element:?} and {other:?} at once")))
    }
}

/// `to[i] = from[rows[i]]` for n rows: `from` (E), `rows` (u32), `to` of `to_element`, which is E or
/// f32.
pub fn pick(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    from: Address,
    rows: Address,
    (to, to_element): (Address, Element),
) -> Result<()> {
    let name = of_either(element, to_element, ["pick", "pick_f32"])?;
    let cost = Cost::of_values(&[(element, values(n, width)), (to_element, values(n, width))]);
    launch!(device, element, name, ([n, 1, 1], 128), cost;
        width, from, rows, to)
}

/// `to[rows[i]] += from[i]` for n rows that are all different: `from` of `from_element`, which is E
/// or f32, `rows` (u32), `to` (E).
pub fn add_picked(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    (from, from_element): (Address, Element),
    rows: Address,
    to: Address,
) -> Result<()> {
    let name = of_either(element, from_element, ["add_picked", "add_picked_f32"])?;
    let cost =
        Cost::of_values(&[(element, 2 * values(n, width)), (from_element, values(n, width))]);
    launch!(device, element, name, ([n, 1, 1], 128), cost;
        width, from, rows, to)
}

/// The meaning of a matrix's rows for dropout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DropoutRows {
    /// The rows of a batch, each at its position.
    Rows(Batch),
    /// The sequences of a batch, at position 0.
    Sequences(Batch),
}

/// Applies dropout to `x` (E), `width` wide, in place.
pub fn drop_rows(
    device: &mut dyn Device,
    element: Element,
    rows: DropoutRows,
    width: u32,
    x: Address,
    dropout: SiteDropout,
) -> Result<()> {
    let (n, batch) = match rows {
        DropoutRows::Rows(batch) => (batch.rows, batch),
        DropoutRows::Sequences(batch) => (
            batch.sequences,
            // Without `sequence_of_row` a row is a sequence; without positions all are 0.
            Batch { sequence_of_row: Address::NONE, positions: Address::NONE, ..batch },
        ),
    };
    let cost = Cost::of_values(&[(element, 2 * values(n, width))]);
    launch!(device, element, "drop_rows", ([n, 1, 1], 128), cost;
        width, x; dropout_arguments(Some((batch, dropout))))
}
