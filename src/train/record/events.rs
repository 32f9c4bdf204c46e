//! TensorBoard's event files: records of protobuf messages, each with its length and checksums
//! (tensorflow/core/lib/io/record_writer.cc, core/util/event.proto, core/framework/summary.proto).

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use prost::Message;

use crate::error::{Error, Result};
use crate::files::{Output, disk};

use super::lines::Appended;

/// One message of an event file.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub what: Option<What>,
}

/// The content of an event.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    Session(Session),
}

#[derive(Clone, PartialEq, Message)]
pub struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Scalar {
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Written even if it is 0.
    #[prost(float, optional, tag = "2")]
    pub value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Session {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// `SessionLog.SessionStatus.START`: TensorBoard forgets what it saw of this step and later ones.
const START: i32 = 1;
/// TensorBoard reads any file with "tfevents" in its name; the ending marks ours.
const NAME: &str = "events.out.tfevents.";
const ENDING: &str = ".cloze";
/// Our messages are shorter: a longer one means that the file is damaged.
const LONGEST: u64 = 1 << 20;

/// An event file that is being written.
pub struct Events {
    file: Appended,
}

impl Events {
    /// Continues the file in `folder` and removes everything after step `kept`. Without `kept`, or without a
    /// file, a new one replaces all that are there.
    pub fn open(folder: &Path, kept: Option<u64>, wall_time: f64) -> Result<Self> {
        let mut old = files(folder)?;
        if let (Some(step), Some(path)) = (kept, old.pop()) {
            let file = Output::open(&path).map_err(|e| Error::io(&path, e))?;
            let end = read(file.as_file(), |event| event.step <= step as i64);
            let end = end.map_err(|e| Error::io(&path, e))?;
            let mut events = Self { file: Appended::at(file, path, end)? };
            let start = What::Session(Session { status: START });
            events.write(wall_time, step + 1, start)?;
            return Ok(events);
        }
        remove(folder)?;
        let path = folder.join(format!("{NAME}{:010}{ENDING}", wall_time as u64));
        let file = Output::open(&path).map_err(|e| Error::io(&path, e))?;
        let mut events = Self { file: Appended::at(file, path, 0)? };
        events.write(wall_time, 0, What::FileVersion("brain.Event:2".into()))?;
        Ok(events)
    }

    /// Writes the values of a step, each with its tag.
    pub fn scalars(
        &mut self,
        wall_time: f64,
        step: u64,
        values: impl Iterator<Item = (String, f64)>,
    ) -> Result<()> {
        let scalar = |(tag, value): (String, f64)| Scalar { tag, value: Some(value as f32) };
        let values = values.map(scalar).collect();
        self.write(wall_time, step, What::Summary(Summary { values }))
    }

    fn write(&mut self, wall_time: f64, step: u64, what: What) -> Result<()> {
        let event = Event { wall_time, step: step as i64, what: Some(what) };
        self.file.append(&framed(&event.encode_to_vec()))
    }

    /// Passes everything to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

/// Removes the event files of an earlier run in `folder`.
pub fn remove(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        disk::remove(&path).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// Returns our event files in `folder`, the newest last.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let name = entry.map_err(|e| Error::io(folder, e))?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with(NAME) && text.ends_with(ENDING) {
            found.push(folder.join(&name));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns a message with its length and checksums, as in the file.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(message.len() + 16);
    record.extend(length);
    record.extend(checksum(&length).to_le_bytes());
    record.extend(message);
    record.extend(checksum(message).to_le_bytes());
    record
}

/// Returns the CRC-32C, masked as in TensorFlow so that checksums of checksums stay good.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Reads events until one is damaged or not `wanted`. Returns where the last wanted one ends.
pub fn read(file: &File, mut wanted: impl FnMut(&Event) -> bool) -> std::io::Result<u64> {
    let mut reader = BufReader::new(file);
    let mut end = 0;
    while let Some((event, bytes)) = next(&mut reader)? {
        if !wanted(&event) {
            break;
        }
        end += bytes;
    }
    Ok(end)
}

/// Returns the next event and its length in bytes; None at the end, or if the event is damaged.
fn next(reader: &mut impl Read) -> std::io::Result<Option<(Event, u64)>> {
    let mut head = [0; 12];
    if !whole(reader.read_exact(&mut head))? {
        return Ok(None);
    }
    let (length, sum) = head.split_at(8);
    // The slices have the arrays' lengths by the line above.
    let number = u64::from_le_bytes(length.try_into().expect("8 bytes"));
    if checksum(length).to_le_bytes() != sum || number > LONGEST {
        return Ok(None);
    }
    let mut message = vec![0; number as usize + 4];
    if !whole(reader.read_exact(&mut message))? {
        return Ok(None);
    }
    let sum = message.split_off(number as usize);
    if checksum(&message).to_le_bytes() != sum[..] {
        return Ok(None);
    }
    Ok(Event::decode(&message[..]).ok().map(|event| (event, number + 16)))
}

/// Returns whether a read filled its whole buffer.
fn whole(outcome: std::io::Result<()>) -> std::io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(folder: &Path) -> Vec<Event> {
        let paths = files(folder).unwrap();
        assert_eq!(paths.len(), 1);
        let mut all = Vec::new();
        let file = File::open(&paths[0]).unwrap();
        let end = read(&file, |event| {
            all.push(event.clone());
            true
        });
        assert_eq!(end.unwrap(), file.metadata().unwrap().len());
        all
    }

    fn values(event: &Event) -> Vec<(&str, f32)> {
        let Some(What::Summary(summary)) = &event.what else {
            return Vec::new();
        };
        let values = summary.values.iter();
        values.map(|v| (v.tag.as_str(), v.value.unwrap())).collect()
    }

    /// The expected number is TensorBoard's own: `masked_crc32c(b"123456789")` of its
    /// compat/tensorflow_stub/pywrap_tensorflow.py.
    #[test]
    fn the_checksum_is_tensorflow_s() {
        assert_eq!(checksum(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn what_is_written_is_read_again_and_a_resumed_run_goes_on_behind_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let one = |step: u64, loss: f64| {
            let values = [("train/loss".to_owned(), loss), ("train/zero".to_owned(), 0.0)];
            (step, values.into_iter())
        };
        let mut writer = Events::open(folder.path(), None, 5.25).unwrap();
        for (step, values) in [one(1, 0.5), one(2, 0.25), one(3, 9.0)] {
            writer.scalars(6.0, step, values).unwrap();
        }
        writer.flush().unwrap();
        let all = events(folder.path());
        assert_eq!(all[0].what, Some(What::FileVersion("brain.Event:2".into())));
        assert_eq!((all[0].wall_time, all.len()), (5.25, 4));
        assert_eq!(values(&all[1]), [("train/loss", 0.5), ("train/zero", 0.0)]);

        // Half a record, as a killed run leaves it.
        let path = &files(folder.path()).unwrap()[0];
        let mut bytes = fs::read(path).unwrap();
        bytes.extend([7, 0, 0]);
        fs::write(path, &bytes).unwrap();
        let mut writer = Events::open(folder.path(), Some(2), 7.0).unwrap();
        let (step, next) = one(3, 0.125);
        writer.scalars(8.0, step, next).unwrap();
        writer.flush().unwrap();
        let all = events(folder.path());
        let steps: Vec<i64> = all.iter().map(|event| event.step).collect();
        assert_eq!(steps, [0, 1, 2, 3, 3]);
        assert_eq!(all[3].what, Some(What::Session(Session { status: START })));
        assert_eq!(values(&all[4])[0], ("train/loss", 0.125));

        drop(Events::open(folder.path(), None, 9.0).unwrap());
        assert_eq!(events(folder.path()).len(), 1, "a new run starts anew");
    }
}
