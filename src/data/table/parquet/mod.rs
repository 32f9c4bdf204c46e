//! Rows of a Parquet file, as JSON objects of the wanted columns. Classes that the file keeps as numbers have
//! their names, if its metadata has them as the library `datasets` writes them.

mod damage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ::parquet::file::reader::FileReader;
use ::parquet::record::reader::RowIter;
use ::parquet::schema::types::Type;
use serde_json::{Map, Value};

use crate::data::labels::listed;
use crate::error::{Error, Result};
use damage::broken;

/// The key of a file's metadata under which the library `datasets` describes its columns.
const FEATURES: &str = "huggingface";

/// Returns the descriptions of columns in that metadata; none if they are not as expected.
fn features(stored: &str) -> Map<String, Value> {
    let mut stored: Value = serde_json::from_str(stored).unwrap_or_default();
    match stored.pointer_mut("/info/features").map(Value::take) {
        Some(Value::Object(features)) => features,
        _ => Map::new(),
    }
}

/// Replaces numbers of classes by the names that the column's description has for them, also in lists. A number
/// without a name, such as the -1 of hidden labels, becomes null.
fn name_classes(value: &mut Value, feature: &Value) {
    let list = || feature.get(0).or_else(|| feature.get("feature"));
    match value {
        Value::Number(number) if feature["_type"] == "ClassLabel" => {
            let class = number.as_u64().and_then(|class| usize::try_from(class).ok());
            let name = class.and_then(|class| feature["names"].get(class));
            *value = name.cloned().unwrap_or_default();
        }
        Value::Array(values) => {
            if let Some(feature) = list() {
                values.iter_mut().for_each(|value| name_classes(value, feature));
            }
        }
        _ => {}
    }
}

/// Reads the columns of these names, of which the first `needed` must exist.
pub(super) fn rows(
    path: &Path,
    names: &[String],
    needed: usize,
) -> Result<impl Iterator<Item = Result<Map<String, Value>>>> {
    let broken = move |e| broken(path, e);
    let reader = damage::open(path)?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema().clone();
    let stored = metadata.key_value_metadata().into_iter().flatten();
    let stored = stored.filter(|stored| stored.key == FEATURES).find_map(|s| s.value.as_deref());
    let features = stored.map(features).unwrap_or_default();
    let there: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
    let mut wanted = names.iter().take(needed);
    if let Some(missing) = wanted.find(|name| !there.contains(&name.as_str())) {
        let there = listed(&there);
        return Err(Error::file(path, format!("there is no column {missing}; there are {there}")));
    }
    let chosen = schema.get_fields().iter();
    let chosen = chosen.filter(|field| names.iter().any(|name| name == field.name()));
    let chosen: Vec<_> = chosen.cloned().collect();
    damage::check_pages(&reader, &chosen, path)?;
    let rows = RowIter::from_file_into(Box::new(reader));
    let chosen = Type::group_type_builder(schema.name()).with_fields(chosen).build();
    let mut rows = Some(rows.project(Some(chosen.map_err(broken)?)).map_err(broken)?);
    let next = move || {
        // The reader panics at some damages inside of a column, such as a missing dictionary.
        let next = catch_unwind(AssertUnwindSafe(|| rows.as_mut()?.next()));
        next.unwrap_or_else(|_| {
            rows = None;
            Some(Err(::parquet::errors::ParquetError::General("a column is damaged".into())))
        })
    };
    Ok(std::iter::from_fn(next).map(move |row| match row.map_err(broken)?.to_json_value() {
        Value::Object(mut columns) => {
            for (name, value) in &mut columns {
                if let Some(feature) = features.get(name) {
                    name_classes(value, feature);
                }
            }
            Ok(columns)
        }
        other => {
            Err(Error::file(path, format!("holds a row that is no group of columns: {other}")))
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::parquet::column::writer::ColumnWriter;
    use ::parquet::data_type::ByteArray;
    use ::parquet::file::metadata::{
        ColumnChunkMetaDataBuilder, KeyValue, ParquetMetaDataReader, ParquetMetaDataWriter,
        RowGroupMetaDataBuilder,
    };
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;
    use serde_json::json;

    use crate::data::bad::BadRows;
    use crate::data::table::{Columns, Field, Row};
    use crate::error::Result;

    /// Writes two rows with a column of each kind, and with these descriptions of the columns if there are any.
    fn written(path: &std::path::Path, features: Option<&str>) {
        let schema = "message rows { REQUIRED BYTE_ARRAY text (UTF8); OPTIONAL INT64 label;
            REQUIRED DOUBLE score; REQUIRED BOOLEAN good;
            REQUIRED GROUP words (LIST) { REPEATED GROUP list { REQUIRED BYTE_ARRAY element (UTF8); } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = std::fs::File::create(path).unwrap();
        let features =
            features.map(|features| vec![KeyValue::new("huggingface".into(), features.to_owned())]);
        let properties = WriterProperties::builder().set_key_value_metadata(features).build();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let texts =
            |all: &[&str]| all.iter().map(|&text| ByteArray::from(text)).collect::<Vec<_>>();
        let mut first = true;
        while let Some(mut column) = group.next_column().unwrap() {
            let values = match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(to) if first => {
                    first = false;
                    to.write_batch(&texts(&["Zoë, hi", "b"]), None, None)
                }
                ColumnWriter::ByteArrayColumnWriter(to) => {
                    to.write_batch(&texts(&["New", "York"]), Some(&[1, 1, 0]), Some(&[0, 1, 0]))
                }
                ColumnWriter::Int64ColumnWriter(to) => to.write_batch(&[7], Some(&[1, 0]), None),
                ColumnWriter::DoubleColumnWriter(to) => to.write_batch(&[0.5, -2.0], None, None),
                ColumnWriter::BoolColumnWriter(to) => to.write_batch(&[true, false], None, None),
                _ => unreachable!("the schema has no other column"),
            };
            values.unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    fn read(path: &std::path::Path, columns: &str, needed: usize) -> Result<Vec<Row>> {
        Columns::parse(columns)?.read_as(path, needed, &mut BadRows::refused(), |_, row| Ok(row))
    }

    #[test]
    fn classes_have_the_names_of_the_features() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let names = r#"["0", "1", "2", "3", "4", "5", "6", "good"]"#;
        let class = format!(r#"{{"names": {names}, "_type": "ClassLabel"}}"#);
        let labels = |columns: &str, features: &str| {
            written(&path, Some(features));
            let rows = read(&path, columns, 0).unwrap();
            rows[0].fields[0].clone().map(|field| field.text())
        };
        let of = |feature: &str| format!(r#"{{"info": {{"features": {{"label": {feature}}}}}}}"#);
        assert_eq!(labels("label", &of(&class)).as_deref(), Some("good"));
        let one = r#"{"names": ["bad"], "_type": "ClassLabel"}"#;
        assert_eq!(labels("label", &of(one)), None, "7 has no name");
        for other in [r#"{"dtype": "int64", "_type": "Value"}"#, "null", "[", "1}]}"] {
            assert_eq!(labels("label", &of(other)).as_deref(), Some("7"), "{other}");
        }
    }

    #[test]
    fn lists_of_classes_have_their_names_too() {
        let class = json!({"names": ["O", "B-PER"], "_type": "ClassLabel"});
        let lists = [
            json!({"feature": class, "_type": "Sequence"}),
            json!({"feature": class, "_type": "List"}),
            json!([class]),
        ];
        for feature in lists {
            let mut tags = json!([1, 0, -1]);
            super::name_classes(&mut tags, &feature);
            assert_eq!(tags, json!(["B-PER", "O", null]), "{feature}");
        }
    }

    #[test]
    fn rows_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        written(&path, None);
        let rows = read(&path, "good,text,score,words,label", 4).unwrap();
        let text = |text: &str| Some(Field::Text(text.into()));
        let words = Some(Field::List(vec!["New".into(), "York".into()]));
        assert_eq!(rows[0].fields, [text("true"), text("Zoë, hi"), text("0.5"), words, text("7")]);
        let none = Some(Field::List(Vec::new()));
        assert_eq!(rows[1].fields, [text("false"), text("b"), text("-2.0"), none, None]);
        assert_eq!((rows[1].line, rows[1].place, rows.len()), (2, 1, 2));
        for (columns, expected) in [
            ("text,lable", "there is no column lable; there are text, label, score, good, words"),
            ("1,2", "there is no column 1; there are"),
            ("text,label", "a.parquet:2: \"label\" is null"),
        ] {
            let message = read(&path, columns, 2).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        std::fs::write(&path, "text\nA\n").unwrap();
        let message = read(&path, "text", 1).unwrap_err().to_string();
        assert!(message.contains("a.parquet: is no Parquet file"), "{message}");
    }

    /// Fuzzing found that some make the reader panic.
    #[test]
    fn with_a_flipped_bit_a_file_is_refused_or_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        written(&path, None);
        let whole = std::fs::read(&path).unwrap();
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, bytes).unwrap();
            refused += u32::from(read(&path, "text,words,label", 0).is_err());
        }
        assert!(refused > 100, "{refused}");
    }

    /// Writes the two rows, these bytes and other metadata.
    fn written_with(
        path: &std::path::Path,
        more: &[u8],
        change: impl Fn(RowGroupMetaDataBuilder) -> RowGroupMetaDataBuilder,
    ) {
        written(path, None);
        let file = std::fs::File::open(path).unwrap();
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
        let mut all = metadata.into_builder();
        let group = all.take_row_groups().remove(0).into_builder();
        let metadata = all.add_row_group(change(group).build().unwrap()).build();
        let mut bytes = std::fs::read(path).unwrap();
        bytes.extend(more);
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn with_columns(
        mut group: RowGroupMetaDataBuilder,
        change: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
    ) -> RowGroupMetaDataBuilder {
        let columns = group.take_columns().into_iter();
        let columns = columns.map(|column| change(column.into_builder()).build().unwrap());
        group.set_column_metadata(columns.collect())
    }

    /// Writes the two rows, with this page in the place of every column's own.
    fn written_with_page(path: &std::path::Path, page: &[u8]) {
        written(path, None);
        let place = std::fs::metadata(path).unwrap().len() as i64;
        written_with(path, page, |group| {
            with_columns(group, |column| {
                let column = column.set_dictionary_page_offset(Some(place));
                column.set_data_page_offset(place).set_total_compressed_size(page.len() as i64)
            })
        });
    }

    /// Fuzzing found that the reader reserved 43 GB for a file of 1,630 bytes.
    #[test]
    fn a_dictionary_that_states_more_values_than_it_holds_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        // Thrift's compact form of a page's header: a dictionary of 8 bytes, with 2 or 2^30 plain values.
        let page = |count: &[u8]| {
            let header = [0x15, 4, 0x15, 16, 0x15, 16, 0x4c, 0x15];
            [&header[..], count, &[0x15, 0, 0, 0], &[0; 8]].concat()
        };
        written_with_page(&path, &page(&[0x80, 0x80, 0x80, 0x80, 8]));
        let message = read(&path, "text", 1).unwrap_err().to_string();
        let expected = "a.parquet: the pages of the column \"text\" are damaged";
        assert!(message.contains(expected), "{message}");
        // Two empty texts, but no page of data.
        written_with_page(&path, &page(&[4]));
        assert!(
            read(&path, "text", 1).map_or_else(|e| !e.to_string().contains(expected), |_| true)
        );
    }

    /// The reader skipped every one of them at the end of the file, with a call of the system.
    #[test]
    fn a_list_of_more_elements_than_the_file_holds_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        // A header that begins with a field of number 15: 2^31 - 1 numbers of 16 bytes, or truth values without bytes.
        for kind in [0xfd, 0xf1] {
            let list = [0xf9, kind, 0xff, 0xff, 0xff, 0xff, 7];
            written_with_page(&path, &list);
            let message = read(&path, "text", 1).unwrap_err().to_string();
            let expected = "a.parquet: the pages of the column \"text\" are damaged";
            assert!(message.contains(expected), "{message}");
            // The same in place of the metadata.
            std::fs::write(&path, [b"PAR1", &list[..], &[7, 0, 0, 0], b"PAR1"].concat()).unwrap();
            let message = read(&path, "text", 1).unwrap_err().to_string();
            assert!(message.contains("a.parquet: is no Parquet file"), "{message}");
        }
    }

    /// A small file would keep the reader busy for hours.
    #[test]
    fn more_rows_than_the_file_can_hold_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        written_with(&path, &[], |group| group.set_num_rows(2));
        assert_eq!(read(&path, "text", 1).unwrap().len(), 2);
        for rows in [1 << 40, i64::MAX, -1] {
            written_with(&path, &[], |group| group.set_num_rows(rows));
            let message = read(&path, "text", 1).unwrap_err().to_string();
            assert!(message.contains("a.parquet: its "), "{message}");
            assert!(message.contains("cannot hold the number of rows"), "{message}");
        }
    }

    /// Fuzzing found the panic of the first two.
    #[test]
    fn columns_outside_of_the_file_are_an_error() {
        type Change = fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder;
        let changes: [Change; 4] = [
            |column| column.set_total_compressed_size(-1),
            |column| column.set_data_page_offset(-1).set_dictionary_page_offset(None),
            |column| column.set_total_compressed_size(1 << 60),
            |column| column.set_total_compressed_size(i64::MAX),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        for change in changes {
            written_with(&path, &[], |group| with_columns(group, change));
            let message = read(&path, "text", 1).unwrap_err().to_string();
            let expected = "a.parquet: the column \"text\" lies outside of the file";
            assert!(message.contains(expected), "{message}");
        }
    }
}
