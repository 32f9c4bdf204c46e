//! Refuses damaged Parquet files at which the library would panic, reserve memory without a limit, or read for hours.
//! Fuzzing found each of them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::TypePtr;

use crate::error::{Error, Result};

/// The most rows for each byte of a file. Repeated values take little space, but useful data repeats less than this.
const ROWS_PER_BYTE: u64 = 256;

/// Opens a file whose metadata states possible sizes.
pub(super) fn open(path: &Path) -> Result<SerializedFileReader<File>> {
    let broken = |e| broken(path, e);
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let length = file.metadata().map_err(|e| Error::io(path, e))?.len();
    let reader = SerializedFileReader::new(file).map_err(broken)?;
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

/// Returns an error if the headers of these columns' pages are no such headers, or if a dictionary states more values
/// than its bytes can hold: the library would reserve memory for all of them.
pub(super) fn check_pages(
    reader: &SerializedFileReader<File>,
    columns: &[TypePtr],
    path: &Path,
) -> Result<()> {
    let failed = |e| Error::io(path, e);
    let file = File::open(path).map_err(failed)?;
    let groups = reader.metadata().row_groups().iter();
    for column in groups.flat_map(|group| group.columns()) {
        let place = column.column_path();
        if !columns.iter().any(|wanted| place.parts().first().is_some_and(|p| p == wanted.name())) {
            continue;
        }
        let (mut at, length) = column.byte_range();
        let end = at + length;
        while at < end {
            // Most headers are short, but they may hold texts.
            let header = match Header::at(&file, at, 4096.min(end - at)).map_err(failed)? {
                None => Header::at(&file, at, end - at).map_err(failed)?,
                header => header,
            };
            let Some(header) = header.filter(|header| header.values <= header.unpacked) else {
                return Err(Error::file(
                    path,
                    format!("the pages of the column {place} are damaged"),
                ));
            };
            at += (header.length + header.packed) as u64;
        }
    }
    Ok(())
}

/// What is needed of a page's header (parquet.thrift, `PageHeader`).
#[derive(Default)]
struct Header {
    /// Its own bytes.
    length: usize,
    /// The page's bytes, unpacked and as they are in the file.
    unpacked: usize,
    packed: usize,
    /// The values of a dictionary.
    values: usize,
}

impl Header {
    /// Reads the header at this place of a file, in so many bytes; None if there is none.
    fn at(mut file: &File, place: u64, bytes: u64) -> io::Result<Option<Self>> {
        let mut header = Vec::new();
        file.seek(SeekFrom::Start(place))?;
        file.take(bytes).read_to_end(&mut header)?;
        Ok(Self::read(&header))
    }

    /// Reads the header at the beginning of these bytes.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (mut header, mut rest) = (Self::default(), bytes);
        Thrift(&mut rest).each_field(&mut |path, number| {
            let field = match path {
                [2] => &mut header.unpacked,
                [3] => &mut header.packed,
                [7, 1] => &mut header.values,
                _ => return Some(()),
            };
            *field = usize::try_from(i32::try_from(number).ok()?).ok()?;
            Some(())
        })?;
        header.length = bytes.len() - rest.len();
        Some(header)
    }
}

/// The deepest struct in a header.
const DEPTH: usize = 8;

/// Values in Thrift's compact form. Lists and maps are refused: no header has them, and the library would skip the
/// billions of elements that a damaged one states, one by one.
struct Thrift<'r, 'b>(&'r mut &'b [u8]);

impl Thrift<'_, '_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        *self.0 = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        *self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// Passes the numbers of a struct to `found`, each with its field's id after those of the structs around it.
    fn each_field(&mut self, found: &mut dyn FnMut(&[i64], i64) -> Option<()>) -> Option<()> {
        let mut path = vec![0];
        while let Some(last) = path.last_mut() {
            let kind = self.byte()?;
            if kind == 0 {
                path.pop();
                continue;
            }
            *last = match kind >> 4 {
                0 => self.number()?,
                more => last.checked_add(more.into())?,
            };
            match kind & 0xf {
                1 | 2 => {}
                3 => self.skip(1)?,
                4..=6 => {
                    let number = self.number()?;
                    found(&path, number)?;
                }
                7 => self.skip(8)?,
                8 => {
                    let length = self.varint()?;
                    self.skip(length)?;
                }
                12 if path.len() < DEPTH => path.push(0),
                _ => return None,
            }
        }
        Some(())
    }
}

pub(super) fn broken(path: &Path, error: ParquetError) -> Error {
    Error::file(path, format!("is no Parquet file: {error}"))
}
