//! The pages hold everything that they need, and `tests/fixtures/pictures/expected.json`, with whose numbers the
//! browser's tests compare the pages, has the crate's.
//!
//! `CLOZE_WRITE_PICTURES=1 cargo test -p cloze --lib pictures` makes that file and `runs.json` anew.

use std::path::Path;

use dfdx::nn::modules::LayerNorm1D;
use dfdx::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::data::pretraining::masking::Masker;
use crate::eval;
use crate::model::attention_probabilities;
use crate::random::{Site, Stream};
use crate::train::Schedule;
use crate::train::schedule::Decay;

type Row = Tensor<Rank1<8>, f64, Cpu>;

fn softmax() -> Value {
    let keys = [[1.8, 0.2], [-1.2, 1.6], [0.3, -0.4], [1.0, 1.4]];
    let case = |query: [f64; 2], temperature: f64| {
        let dots = keys.map(|key: [f64; 2]| query[0] * key[0] + query[1] * key[1]);
        let scores = dots.map(|dot| (dot / temperature) as f32);
        json!({ "query": query, "temperature": temperature, "dots": dots, "weights": eval::softmax(&scores) })
    };
    json!([
        case([1.6, 0.8], std::f64::consts::SQRT_2),
        case([2.1, 0.7], std::f64::consts::SQRT_2),
        case([1.6, 0.8], 0.1),
    ])
}

/// Returns the LayerNorm with one factor and one offset.
fn norm(gamma: f64, beta: f64) -> LayerNorm1D<8, f64, Cpu> {
    let dev = Cpu::default();
    let [gamma, beta] = [gamma, beta].map(|value| dev.tensor([value; 8]));
    LayerNorm1D { gamma, beta, epsilon: 1e-12 }
}

fn layer_norm() -> Value {
    let case = |x: [f64; 8], gamma, beta| {
        let y = norm(gamma, beta).forward(Cpu::default().tensor(x)).array();
        json!({ "x": x, "gamma": gamma, "beta": beta, "y": y })
    };
    let start = [0.8, -1.2, 2.1, 0.3, -0.4, 1.5, -2.0, 0.5];
    let mut moved = start;
    moved[2] = 2.6;
    json!([case(start, 1.0, 0.0), case(moved, 1.0, 0.0), case(start, 2.0, -3.0)])
}

fn masking() -> Value {
    let words = words().unwrap();
    let ids = words.encode_with_special(SENTENCE).ids;
    let cases = [false, true].map(|whole| {
        let masker = Masker::new(&words, 0.15, whole, 1);
        let mask = |example| {
            let mut seen = ids.clone();
            let targets = masker.mask(example, &mut seen);
            (seen, targets)
        };
        let first = (0..6).map(mask).map(|(seen, targets)| {
            let seen: Vec<_> = seen.iter().map(|&id| words.token(id)).collect();
            let chosen: Vec<u32> = targets.iter().map(|target| target.position).collect();
            json!({ "seen": seen, "chosen": chosen })
        });
        let first: Vec<_> = first.collect();
        let (mut chosen, mut masked, mut kept) = (0, 0, 0);
        for (seen, targets) in (0..1000).map(mask) {
            for target in targets {
                let id = seen[target.position as usize];
                chosen += 1;
                masked += u32::from(id == words.special().mask);
                kept += u32::from(id == target.label);
            }
        }
        json!({ "whole": whole, "first": first, "chosen": chosen, "masked": masked, "unchanged": kept })
    });
    json!(cases)
}

fn heads() -> Value {
    let x = [
        [0.4, -0.2, 1.1, 0.3, -0.7, 0.9],
        [1.6, 0.8, -0.5, 1.2, 0.2, -1.1],
        [-0.9, 1.4, 0.6, -1.3, 1.7, 0.1],
        [-0.3, 1.0, -1.2, 0.5, 1.3, -0.6],
    ];
    let dev = Cpu::default();
    let cases = [1, 2, 3, 6].map(|heads| {
        let shape = (1, 4, heads, 6 / heads);
        let all: Tensor<(usize, usize, usize, usize), f64, Cpu> =
            dev.tensor_from_vec(x.concat(), shape);
        let q = all.clone().permute::<_, Axes4<0, 2, 1, 3>>();
        let k = all.clone().permute::<_, Axes4<0, 2, 3, 1>>();
        let v = all.permute::<_, Axes4<0, 2, 1, 3>>();
        let weights = attention_probabilities(q, k, None, None);
        let context = weights.clone().matmul(v);
        let joined = context.clone().permute::<_, Axes4<0, 2, 1, 3>>().as_vec();
        // Reshaped as it stands in memory.
        let wrong = context.as_vec();
        json!({ "heads": heads, "weights": weights.as_vec(), "joined": joined, "wrong": wrong })
    });
    json!({ "x": x, "cases": cases })
}

/// Returns eight numbers with variance 1 for each row, as the script draws them.
fn noise<const N: usize>(example: u64) -> [f64; N] {
    let mut draws = Stream::new(5, 0, Site::Other(0), example).draws();
    std::array::from_fn(|_| (2.0 * draws.uniform() - 1.0) * 3f64.sqrt())
}

/// Returns the length of the gradient below a layer of a stack.
fn gradient(kind: &str, depth: u64, scale: f64, layer: u64) -> f64 {
    let dev = Cpu::default();
    let weights = |layer| -> Tensor<Rank2<8, 8>, f64, Cpu> {
        let weights = noise::<64>(layer).map(|w| w * scale / 8f64.sqrt());
        dev.tensor_from_vec(weights.to_vec(), (Const::<8>, Const::<8>)).permute()
    };
    fn step<T: Tape<f64, Cpu> + Merge<T>>(
        kind: &str,
        x: Tensor<Rank1<8>, f64, Cpu, T>,
        weights: Tensor<Rank2<8, 8>, f64, Cpu>,
    ) -> Tensor<Rank1<8>, f64, Cpu, T> {
        // The tape goes with the left side of an operation.
        let skip = x.retaped::<T>();
        let f = x.matmul(weights.retaped::<T>()).tanh();
        match kind {
            "plain" => f,
            "skip" => f + skip,
            _ => norm(1.0, 0.0).forward(f + skip),
        }
    }
    let mut below: Row = dev.tensor(noise::<8>(24));
    for layer in 0..layer {
        below = step(kind, below, weights(layer));
    }
    let mut x = below.leaky_trace();
    for layer in layer..depth {
        x = step(kind, x, weights(layer));
    }
    let above = noise::<8>(25);
    let length = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>().sqrt();
    let above = above.map(|g| g / length(&above));
    let gradients = (x * dev.tensor(above)).sum::<Rank0, _>().backward();
    length(&gradients.get(&below).array())
}

fn residual() -> Value {
    let case = |(depth, scale, layer)| {
        let of = |kind: &str| {
            json!([gradient(kind, depth, scale, layer), gradient(kind, depth, scale, 0)])
        };
        let lengths = ["plain", "skip", "skip + LayerNorm"].map(of);
        json!({ "depth": depth, "scale": scale, "layer": layer, "lengths": lengths })
    };
    json!([(12, 0.8, 0), (12, 3.0, 5), (24, 0.1, 23)].map(case))
}

fn schedule() -> Value {
    let mut cases = Vec::new();
    for (peak, warmup, decay) in
        [(2e-3, 30, Decay::Linear), (2e-4, 0, Decay::Cosine), (6e-2, 30, Decay::Constant)]
    {
        let schedule = Schedule { peak, warmup, total: 300, decay };
        let rates = [1, 15, 30, 100, 300].map(|step| (step, schedule.rate(step)));
        let decay = format!("{decay:?}").to_lowercase();
        cases.push(json!({ "peak": peak, "warmup": warmup, "decay": decay, "rates": rates }));
    }
    json!(cases)
}

/// Returns where two values differ, numbers by more than a little.
fn difference(a: &Value, b: &Value, at: &str) -> Option<String> {
    let report = || Some(format!("{at}: {a} and {b}"));
    match (a, b) {
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            let mut pairs = x.iter().zip(y).enumerate();
            pairs.find_map(|(i, (x, y))| difference(x, y, &format!("{at}/{i}")))
        }
        (Value::Object(x), Value::Object(y)) if x.len() == y.len() => {
            x.iter().find_map(|(key, x)| {
                difference(x, y.get(key).unwrap_or(&Value::Null), &format!("{at}/{key}"))
            })
        }
        (Value::Number(x), Value::Number(y)) => {
            let [x, y] = [x, y].map(|number| number.as_f64().unwrap());
            ((x - y).abs() > 1e-5 * x.abs().max(1e-3)).then(report).flatten()
        }
        _ => (a != b).then(report).flatten(),
    }
}

#[test]
fn the_browser_s_tests_expect_the_crate_s_numbers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pictures/expected.json");
    let found = json!({
        "softmax": softmax(),
        "layer-norm": layer_norm(),
        "masking": masking(),
        "heads": heads(),
        "residual": residual(),
        "schedule": schedule(),
    });
    if std::env::var_os("CLOZE_WRITE_PICTURES").is_some() {
        let text = serde_json::to_string_pretty(&found).unwrap() + "\n";
        return write_atomic(&file, text.as_bytes()).unwrap();
    }
    let stored = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(difference(&found, &stored, ""), None);
}

#[test]
fn pages_hold_everything_and_are_small() {
    let follow =
        FollowToken::load("cloze-tiny", "The <b>baker</b> sells [MASK].", "bread").unwrap();
    let pages = Picture::ALL.map(Picture::page);
    for page in pages.iter().chain([&follow.page()]) {
        // The name of SVG's elements is no address that is fetched.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for outside in
            ["http:", "https:", "src=", "url(", "@import", "import(", "onclick=", "<b>", "{{"]
        {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'; ") && !page.contains("unsafe"));
    }
    let sizes = pages.map(|page| page.len());
    assert!(sizes.iter().sum::<usize>() < 300_000, "{sizes:?}");
}

#[test]
fn a_picture_is_found_by_its_name() {
    for picture in Picture::ALL {
        assert_eq!(Picture::named(picture.name()).unwrap(), picture);
        let lesson = crate::lessons::find(picture.lesson()).unwrap();
        let shown = format!("show!(Picture::{picture:?})");
        assert!(lesson.cells.iter().any(|cell| cell.solution().contains(&shown)), "{shown}");
    }
    let message = Picture::named("sofmax").unwrap_err().to_string();
    assert!(message.contains("softmax, heads"), "{message}");
    let content = Picture::Heads.content();
    assert!(content.get("text/html").unwrap().starts_with("<iframe"));
    assert!(content.plain().contains("cloze lessons picture heads"));
}

#[test]
fn faults_of_a_text_or_an_answer_are_named() {
    let error = |text: &str, answer: &str| {
        let made = FollowToken::load("cloze-tiny", text, answer);
        made.unwrap_err().to_string()
    };
    assert!(error("The baker sells bread.", "bread").contains("has no [MASK]"));
    assert!(error("A [MASK].", "breadbasket").contains("is not one piece"));
    assert!(error(&format!("[MASK] {}", "a ".repeat(200)), "bread").contains("128 positions"));
}

#[test]
fn before_the_lesson_on_attention_the_layers_are_left_out() {
    let page = FollowToken::load("cloze-tiny", "The baker sells [MASK].", None).unwrap();
    let early = page.clone().after(3).page();
    assert!(early.len() + 100_000 < page.page().len());
    assert!(early.contains("\"layers\":[]"));
}
