//! Rows picked and given back, dropped, and numbers turned from one element type into another.

use super::{Batch, SiteDropout, dropout_arguments, launch};
use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::{Error, Result};

/// The first name where `other` is `element`, the second where it is f32.
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
        Err(Error::Failed(format!(
            "no kernel works on {element:?} and {other:?} at once"
        )))
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
    let arguments = [width.into(), from.into(), rows.into(), to.into()];
    launch(device, element, name, ([n, 1, 1], 128), &arguments)
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
    let arguments = [width.into(), from.into(), rows.into(), to.into()];
    launch(device, element, name, ([n, 1, 1], 128), &arguments)
}

/// What a matrix' rows are, to dropout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DropoutRows<'a> {
    /// The rows of a batch, each at its position.
    Rows(&'a Batch),
    /// The sequences of a batch, at position 0.
    Sequences(&'a Batch),
}

/// Dropout on `x` (E), `width` wide, in place.
pub fn drop_rows(
    device: &mut dyn Device,
    element: Element,
    rows: DropoutRows<'_>,
    width: u32,
    x: Address,
    drops: &SiteDropout,
) -> Result<()> {
    let (n, batch) = match rows {
        DropoutRows::Rows(batch) => (batch.rows, *batch),
        DropoutRows::Sequences(batch) => (
            batch.sequences,
            // A row without a sequence is one itself; without positions all are 0.
            Batch {
                sequence_of_row: Address::NONE,
                positions: Address::NONE,
                ..*batch
            },
        ),
    };
    let mut arguments = vec![width.into(), x.into()];
    arguments.extend(dropout_arguments(Some(&batch), Some(drops))?);
    launch(device, element, "drop_rows", ([n, 1, 1], 128), &arguments)
}

/// `to = from` for `count` numbers, of which one side is f32.
pub fn cast(
    device: &mut dyn Device,
    count: u64,
    (from, from_element): (Address, Element),
    (to, to_element): (Address, Element),
) -> Result<()> {
    if from_element == to_element {
        return device.copy(from, to, count * from_element.bytes());
    }
    let (name, element) = match (from_element, to_element) {
        (Element::F32, to) => ("narrow", to),
        (from, Element::F32) => ("widen", from),
        (from, to) => {
            return Err(Error::Failed(format!(
                "no kernel turns {from:?} into {to:?}"
            )));
        }
    };
    // Counts of parameters and activations of one batch fit into 32 bits; in two parts in any case.
    let (low, high) = (count as u32, (count >> 32) as u32);
    let arguments = [low.into(), high.into(), from.into(), to.into()];
    let blocks = count.div_ceil(256 * 8).min(1 << 16) as u32;
    launch(device, element, name, ([blocks, 1, 1], 256), &arguments)
}
