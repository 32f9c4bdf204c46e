//! Rows of Parquet files.

#![no_main]

use cloze::data::bad::BadRows;
use cloze::data::table::Columns;
use cloze_fuzz::file;
use libfuzzer_sys::fuzz_target;

// The reader's own panics at damaged columns become errors; all others end the program.
fuzz_target!(init: {
    let end = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_readers = |at: &std::panic::Location<'_>| at.file().contains("/parquet-");
        if !info.location().is_some_and(is_readers) {
            end(info);
        }
    }));
}, |data: &[u8]| {
    let path = file("rows.parquet", data);
    let columns = Columns::parse("text,label").expect("these are columns");
    let rows = columns.read_as(&path, 1, &mut BadRows::skipped(), |_, row| Ok(row));
    for row in rows.iter().flatten() {
        assert_eq!(row.fields.len(), columns.len());
    }
});
