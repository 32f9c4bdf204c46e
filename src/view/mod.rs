//! Showing things: charts, tensors as pictures, live displays in a notebook.

pub mod display;
