//! Rows of Parquet files.

#![no_main]

use cloze::data::bad::BadRows;
use cloze::data::table::Columns;
use cloze_fuzz::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = file("rows.parquet", data);
    let columns = Columns::parse("text,label").expect("these are columns");
    let rows = columns.read_as(&path, 1, &mut BadRows::skipped(), |_, row| Ok(row));
    for row in rows.iter().flatten() {
        assert_eq!(row.fields.len(), columns.len());
    }
});
