//! Model folders: `config.json` and `model.safetensors`.

#![no_main]

use cloze::model::weights::Model;
use cloze::model::{Config, PRETRAINING};
use cloze_fuzz::{folder, parts, write};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

// The parts of an input: the configuration, and the weights.
fuzz_target!(|data: &[u8]| {
    let [config, weights] = parts(data);
    let folder_in = folder("in");
    write(&folder_in.join("config.json"), config);
    write(&folder_in.join("model.safetensors"), weights);
    if let Ok(config) = Config::read(&folder_in.join("config.json")) {
        let path = folder_in.join("again.json");
        write(&path, config.to_json().as_bytes());
        let again = Config::read(&path).expect("we wrote it");
        assert_eq!(fields(&again), fields(&config));
    }
    let _ = Model::read(&folder_in, &PRETRAINING, Some(1));
    let Ok(model) = Model::read_all(&folder_in) else {
        return;
    };
    assert_eq!(model.values.len(), model.layout.total());
    let folder_out = folder("out");
    model.write(&folder_out).expect("it can be written");
    let again = Model::read_all(&folder_out).expect("we wrote it");
    let bits = |model: &Model| model.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&again), bits(&model));
    let (mut again, mut given) = (fields(&again.config), fields(&model.config));
    // The file that is written names its number format and its class, whatever the given one said.
    for config in [&mut again, &mut given] {
        let fields = config.as_object_mut().expect("a configuration");
        fields.retain(|name, _| !["torch_dtype", "architectures"].contains(&name.as_str()));
    }
    assert_eq!(again, given);
});

/// The fields of a configuration, whose order may change.
fn fields(config: &Config) -> Value {
    serde_json::from_str(&config.to_json()).expect("this is JSON")
}
