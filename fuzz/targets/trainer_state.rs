//! The trainer's states: as they are, and with the right checksums, so that contents that contradict themselves come to
//! the readers behind the checks.

#![no_main]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::path::Path;

use cloze::train::checkpoint::{self, State};
use cloze::train::finetune::FinetuningRun;
use cloze::train::pretrain::PretrainingRun;
use cloze_fuzz::{folder, write};
use libfuzzer_sys::fuzz_target;
use safetensors::SafeTensors;

fuzz_target!(|data: &[u8]| {
    let folder = folder("run");
    let path = checkpoint::path(&folder);
    std::fs::create_dir(folder.join("trainer")).expect("the folder is empty");
    for bytes in [Some(data.to_vec()), with_checksums(data)].into_iter().flatten() {
        write(&path, &bytes);
        round_trip(State::<PretrainingRun>::read(&folder), &folder);
        write(&path, &bytes);
        round_trip(State::<FinetuningRun>::read(&folder), &folder);
    }
});

/// Returns a state with the checksums of its parts, if it is a safetensors file with an entry "state".
fn with_checksums(data: &[u8]) -> Option<Vec<u8>> {
    let file = SafeTensors::deserialize(data).ok()?;
    let (_, header) = SafeTensors::read_metadata(data).ok()?;
    let state = header.metadata().as_ref()?.get("state")?;
    let tensors = file.tensors();
    let parts = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.data()));
    let parts = parts.chain([("state", state.as_bytes())]);
    let sums = parts.map(|(name, bytes)| (name, format!("{:08x}", crc32fast::hash(bytes))));
    let sums: BTreeMap<&str, String> = sums.collect();
    let sums = serde_json::to_string(&sums).expect("plain data");
    let entries = HashMap::from([("state".into(), state.clone()), ("checksums".into(), sums)]);
    safetensors::serialize(tensors, Some(entries)).ok()
}

/// What is read is the same when it is written and read again.
fn round_trip<R>(state: cloze::Result<Option<State<R>>>, folder: &Path)
where
    R: Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let Ok(state) = state else {
        return;
    };
    let state = state.expect("the file is there");
    state.write(folder).expect("it can be written");
    let again = State::<R>::read(folder).expect("we wrote it");
    // Compared as text: a measurement may be NaN.
    assert_eq!(format!("{again:?}"), format!("{:?}", Some(state)));
}
