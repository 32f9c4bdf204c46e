//! Refuses damaged Parquet files at which the library would panic, reserve memory without a limit, or read for hours.
//! Fuzzing found each of them.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use ::parquet::schema::types::TypePtr;

use crate::error::{Error, Result};

/// The most rows for each byte of a file. Repeated values take little space, but useful data repeats less than this.
const ROWS_PER_BYTE: u64 = 256;

/// Opens a file whose metadata states possible sizes.
pub(super) fn open(path: &Path) -> Result<SerializedFileReader<Whole>> {
    let broken = |e| broken(path, e);
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let length = file.metadata().map_err(|e| Error::io(path, e))?.len();
    let reader = SerializedFileReader::new(Whole(file)).map_err(broken)?;
    // The reader would return as many rows as are stated, empty ones if there are no others.
    let mut groups = reader.metadata().row_groups().iter();
    let rows = groups
        .try_fold(0_u64, |rows, group| rows.checked_add(u64::try_from(group.num_rows()).ok()?));
    if rows.is_none_or(|rows| rows / ROWS_PER_BYTE >= length) {
        let message = format!("its {length} bytes cannot hold the number of rows that it states");
        return Err(Error::file(path, message));
    }
    // The reader would panic at a negative number and reserve memory for any size.
    let mut columns = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
    let outside = |column: &ColumnChunkMetaData| {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let end = start.checked_add(column.compressed_size());
        start < 0 || column.compressed_size() < 0 || end.is_none_or(|end| end as u64 > length)
    };
    if let Some(column) = columns.find(|column| outside(column)) {
        let message = format!("the column {} lies outside of the file", column.column_path());
        return Err(Error::file(path, message));
    }
    Ok(reader)
}

/// A file in which it is an error to read on after the end. At the end of a plain one the reader skips the billions of
/// elements that a damaged list states, one by one.
pub(super) struct Whole(File);

impl Length for Whole {
    fn len(&self) -> u64 {
        Length::len(&self.0)
    }
}

impl ChunkReader for Whole {
    type T = BufReader<Rest>;

    fn get_read(&self, start: u64) -> ::parquet::errors::Result<Self::T> {
        let mut file = self.0.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(Rest(file)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ::parquet::errors::Result<bytes::Bytes> {
        self.0.get_bytes(start, length)
    }
}

/// What follows a place in such a file.
pub(super) struct Rest(File);

impl Read for Rest {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }
}

/// Returns an error if a dictionary of one of these columns states more values than its bytes can hold: the reader would
/// reserve memory for all of them.
pub(super) fn check_dictionaries(
    reader: &SerializedFileReader<Whole>,
    columns: &[TypePtr],
    path: &Path,
) -> Result<()> {
    let broken = |e| broken(path, e);
    for (at, group) in reader.metadata().row_groups().iter().enumerate() {
        let pages = reader.get_row_group(at).map_err(broken)?;
        for (at, column) in group.columns().iter().enumerate() {
            let name = column.column_path();
            if !columns.iter().any(|field| Some(field.name()) == name.parts().first().map(|n| &**n))
            {
                continue;
            }
            let mut pages = pages.get_column_page_reader(at).map_err(broken)?;
            while let Some(page) = pages.peek_next_page().map_err(broken)? {
                if !page.is_dict {
                    pages.skip_next_page().map_err(broken)?;
                    continue;
                }
                let page = pages.get_next_page().map_err(broken)?;
                if page.is_some_and(|page| page.num_values() as usize > page.buffer().len()) {
                    let message = format!("the dictionary of the column {name} is damaged");
                    return Err(Error::file(path, message));
                }
            }
        }
    }
    Ok(())
}

pub(super) fn broken(path: &Path, error: ParquetError) -> Error {
    Error::file(path, format!("is no Parquet file: {error}"))
}

/// The error of a column at which the reader panics.
pub(super) fn damaged() -> ParquetError {
    ParquetError::General("a column is damaged".into())
}
