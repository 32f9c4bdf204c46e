//! The trainer's states.

#![no_main]

use std::fmt::Debug;
use std::path::Path;

use cloze::train::checkpoint::{self, State};
use cloze::train::finetune::FinetuningRun;
use cloze::train::pretrain::PretrainingRun;
use cloze_fuzz::{folder, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = folder("run");
    let path = checkpoint::path(&folder);
    std::fs::create_dir(folder.join("trainer")).expect("the folder is empty");
    write(&path, data);
    round_trip(State::<PretrainingRun>::read(&folder), &folder);
    write(&path, data);
    round_trip(State::<FinetuningRun>::read(&folder), &folder);
});

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
