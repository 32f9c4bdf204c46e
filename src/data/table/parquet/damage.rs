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
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if !has_metadata(&mut file, length).map_err(failed)? {
        return Err(Error::file(path, "is no Parquet file, or its metadata is damaged"));
    }
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
                let message = format!("the pages of the column {place} are damaged");
                return Err(Error::file(path, message));
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
    /// Reads the header that begins at `place` in a file and has at most this number of bytes. Returns None if there is
    /// no header.
    fn at(mut file: &File, place: u64, bytes: u64) -> io::Result<Option<Self>> {
        let mut header = Vec::new();
        file.seek(SeekFrom::Start(place))?;
        file.take(bytes).read_to_end(&mut header)?;
        Ok(Self::read(&header))
    }

    /// Reads the header at the beginning of these bytes.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (mut header, mut rest) = (Self::default(), bytes);
        Thrift(&mut rest).structure(&mut Vec::new(), &mut |path, number| {
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

/// Returns whether the metadata at the end of a file is a struct whose lists are as long as they state.
fn has_metadata(file: &mut File, length: u64) -> io::Result<bool> {
    let mut end = [0; 8];
    let Some(place) = length.checked_sub(8) else {
        return Ok(false);
    };
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut end)?;
    let [size @ .., _, _, _, _] = end;
    let Some(place) = place.checked_sub(u32::from_le_bytes(size).into()) else {
        return Ok(false);
    };
    let mut metadata = Vec::new();
    file.seek(SeekFrom::Start(place))?;
    file.take(length - 8 - place).read_to_end(&mut metadata)?;
    let mut rest = &metadata[..];
    Ok(Thrift(&mut rest).structure(&mut Vec::new(), &mut |_, _| Some(())).is_some())
}

/// The deepest struct or list.
const DEPTH: usize = 16;
/// The kinds of a field without bytes of its own.
const TRUE: u8 = 1;
const FALSE: u8 = 2;

/// Values in Thrift's compact form (thrift-compact-protocol.md). Maps and lists of truth values are refused: neither is in
/// Parquet's structs, and the library would skip the billions of elements that a damaged one states, one by one.
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

    /// Reads a struct, and passes its numbers to `found`, each with its field's id after those of the fields around it.
    fn structure(&mut self, path: &mut Vec<i64>, found: Found<'_>) -> Option<()> {
        let mut id = 0_i64;
        loop {
            let field = self.byte()?;
            if field == 0 {
                return Some(());
            }
            id = match field >> 4 {
                0 => self.number()?,
                more => id.checked_add(more.into())?,
            };
            path.push(id);
            self.value(field & 0xf, path, found)?;
            path.pop();
        }
    }

    fn value(&mut self, kind: u8, path: &mut Vec<i64>, found: Found<'_>) -> Option<()> {
        if path.len() > DEPTH {
            return None;
        }
        match kind {
            TRUE | FALSE => Some(()),
            3 => self.skip(1),
            4..=6 => {
                let number = self.number()?;
                found(path, number)
            }
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => self.list(path, found),
            12 => self.structure(path, found),
            _ => None,
        }
    }

    fn list(&mut self, path: &mut Vec<i64>, found: Found<'_>) -> Option<()> {
        let (kind, count) = match self.byte()? {
            0 => return Some(()),
            header if header >> 4 == 0xf => (header & 0xf, self.varint()?),
            header => (header & 0xf, u64::from(header >> 4)),
        };
        if count > self.0.len() as u64 || (count > 0 && matches!(kind, TRUE | FALSE)) {
            return None;
        }
        path.push(0);
        (0..count).try_for_each(|_| self.value(kind, path, found))?;
        path.pop();
        Some(())
    }
}

/// Takes the number of a field.
type Found<'f> = &'f mut dyn FnMut(&[i64], i64) -> Option<()>;

pub(super) fn broken(path: &Path, error: ParquetError) -> Error {
    Error::file(path, format!("is no Parquet file: {error}"))
}
