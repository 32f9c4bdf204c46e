//! `cloze attention`: draws a model's attention on a page for a browser, or prints it as numbers.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::shared::engine::EngineArgs;
use crate::cli::shared::records;
use crate::cli::shared::stdio::say;
use crate::error::Result;
use crate::features;
use crate::hub;
use crate::lessons::data::SMALL;
use crate::model::Part;
use crate::note;
use crate::predict::Loaded;
use crate::view::attention::{AttentionView, View};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model folder, or the name of one on the Hub
    #[arg(long, default_value = SMALL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// The text, or the first of two
    a: String,
    /// The second text, which the model reads together with the first
    b: Option<String>,
    /// HTML file to write; the page needs no network
    #[arg(long, value_name = "FILE", required_unless_present = "json")]
    out: Option<PathBuf>,
    /// View to show first; the page has all three
    #[arg(long, value_enum, default_value_t = View::Head)]
    view: View,
    /// Layer, or first and last of several, counted as in Python: 0 is the first layer, -1 the last
    /// [default: all]
    #[arg(long, value_name = "N|N..M", allow_hyphen_values = true)]
    layers: Option<String>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print tokens and weights as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let folder = hub::folder_of(&args.model)?;
    let mut model = Loaded::read(&folder, &[Part::Encoder], args.engine.setup()?)?;
    let all = model.engine.config().num_hidden_layers;
    let layers = match &args.layers {
        None => 0..=all - 1,
        Some(text) => {
            let known = format!("layers 0 to {}", all - 1);
            features::counted(features::parse_layers(text)?, all, &known)?
        }
    };
    let b = args.b.as_deref();
    let view = AttentionView::of(model.engine.as_mut(), &model.wordpiece, &args.a, b)?;
    let view = view.opened_with(args.view).layers(layers.clone());
    let view = view.named(records::name_of(&args.model));
    let found = view.attention();
    if let Some(out) = &args.out {
        let page = view.page();
        crate::files::write_atomic(out, page.as_bytes())?;
        let (out, megabytes) = (out.display(), page.len() as f64 / 1e6);
        let (count, heads, tokens) = (layers.clone().count(), found.heads, found.tokens);
        note!(
            "{out}: attention of {count} layers of {heads} heads over {tokens} tokens, {megabytes:.1} MB"
        );
    }
    if !args.json {
        return Ok(());
    }
    let of_head = |layer, head| found.weights(layer, head).chunks(found.tokens).collect();
    let of_layer = |layer| (0..found.heads).map(|head| of_head(layer, head)).collect();
    let weights: Vec<Vec<Vec<&[f32]>>> = layers.clone().map(of_layer).collect();
    let object = json!({
        "tokens": view.tokens(),
        "segments": view.segments(),
        "layers": layers.collect::<Vec<_>>(),
        "weights": weights,
    });
    say!("{object}")
}
