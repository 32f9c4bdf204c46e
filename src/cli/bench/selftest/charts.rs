//! Charts of what was measured.

use std::path::Path;

use serde_json::Value;

use crate::engine::cuda::selftest::Section;
use crate::error::Result;
use crate::files::create_folder;
use crate::view::roofline::Measured;
use crate::view::{BarChart, RooflineChart};

use super::report::{Entry, Report};

/// Published tokens a second on one H200 at length 384, fine-tuning on SQuAD in FP16 with NVIDIA's
/// PyTorch container.
const PUBLISHED: [(&str, f64); 2] = [
    ("published: base, batch 592, FP16", 358_000.0),
    ("published: large, batch 192, FP16", 134_000.0),
];

/// The length of the steps whose launches are drawn.
const LENGTH: f64 = 384.0;
/// Most launches of a step that are drawn: those that take the most time.
const MOST: usize = 12;

/// Writes the charts for which there are measurements.
pub fn save(report: &Report, folder: &Path) -> Result<()> {
    create_folder(folder)?;
    let of = |section| {
        let own = move |e: &&Entry| e.section == section && e.passed == Some(true);
        report.entries.iter().filter(own)
    };
    let find = |name: &str, key: &str| {
        let entry = of(Section::Speed).find(|e| e.name == name)?;
        entry.data.get(key)?.as_f64()
    };
    let roof = find("bandwidth", "best").zip(find("largest product", "bf16"));
    if let Some((bandwidth, peak)) = roof {
        let mut roofline = RooflineChart::new("Kernels below the roofline", bandwidth, peak);
        let mut shares = BarChart::new("Share of the roofline").unit("%");
        for entry in of(Section::Speed).filter(|entry| number(entry, "seq") == Some(LENGTH)) {
            let size = entry.data.get("size").and_then(Value::as_str).unwrap_or_default();
            let launches = entry.data.get("launches").and_then(Value::as_array);
            // They are sorted by the time that they take.
            for launch in launches.into_iter().flatten().take(MOST) {
                let what = launch.get("what").and_then(Value::as_str).unwrap_or_default();
                let Some(measured) = measured(launch) else { continue };
                let least = launch.get("roofline_seconds").and_then(Value::as_f64);
                let share = 100.0 * least.unwrap_or(0.0) / measured.seconds;
                let name = format!("{what}, {size}");
                roofline = roofline.kernel(&name, measured);
                shares = shares.bar(&name, (10.0 * share).round() / 10.0);
            }
        }
        roofline.save(folder.join("roofline.svg"))?;
        shares.save(folder.join("shares.svg"))?;
    }
    let speeds: Vec<(&str, f64)> = of(Section::Training)
        .filter_map(|e| Some((e.name.as_str(), number(e, "tokens_per_s")?.round())))
        .collect();
    if !speeds.is_empty() {
        let chart = BarChart::new("Training at length 384").unit("tokens/s");
        let chart = chart.bars(speeds).bars(PUBLISHED);
        chart.save(folder.join("training.svg"))?;
    }
    Ok(())
}

fn number(entry: &Entry, key: &str) -> Option<f64> {
    entry.data.get(key)?.as_f64()
}

fn measured(data: &Value) -> Option<Measured> {
    let number = |key: &str| data.get(key)?.as_f64();
    Some(Measured { bytes: number("bytes")?, flops: number("flops")?, seconds: number("seconds")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(section: Section, name: &str, data: Value) -> Entry {
        let (name, line) = (name.into(), String::new());
        Entry { section, name, passed: Some(true), line, data, lost: false }
    }

    #[test]
    fn what_was_measured_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Report::new(false, None).unwrap();
        save(&report, folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let launch = |what: &str, bytes: f64, flops: f64, seconds: f64, share: f64| {
            json!({"what": what, "bytes": bytes, "flops": flops, "seconds": seconds,
                "roofline_seconds": share * seconds})
        };
        let step = |size: &str, seq: u32, launches: &[Value]| {
            let data = json!({"size": size, "seq": seq, "launches": launches});
            entry(Section::Speed, &format!("launches of {size}, {seq}"), data)
        };
        let speed = |name: &str, tokens_per_s: f64| {
            entry(Section::Training, name, json!({"tokens_per_s": tokens_per_s}))
        };
        for one in [
            entry(Section::Speed, "bandwidth", json!({"best": 4.1e12})),
            entry(Section::Speed, "largest product", json!({"bf16": 7.1e14})),
            step(
                "base",
                384,
                &[
                    launch("norm_forward", 1.5e8, 0.0, 4.4e-5, 0.83),
                    launch("flash_forward_64_dropout", 1.5e8, 2.9e10, 1.3e-4, 0.33),
                    launch("product x Wᵀ 24576×768×3072", 1.9e8, 1.16e11, 1.9e-4, 0.86),
                ],
            ),
            step(
                "large",
                384,
                &[launch("product x Wᵀ 12288×1024×4096", 1.3e8, 1.03e11, 1.7e-4, 0.85)],
            ),
            step("base", 128, &[launch("short", 1.5e8, 0.0, 4.4e-5, 0.83)]),
            speed("base 64×384 bf16", 612_345.0),
            speed("large 32×384 bf16", 201_234.0),
        ] {
            report.take(one).unwrap();
        }
        save(&report, folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let roofline = read("roofline.svg");
        let drawn = ["flash_forward_64_dropout, base", "4096, large", "4100 GB/s, 710 TFLOP/s"];
        for text in drawn {
            assert!(roofline.contains(text), "{text}");
        }
        assert!(!roofline.contains("short"));
        let shares = read("shares.svg");
        assert!(shares.contains("norm_forward, base") && shares.contains("83 %"));
        let training = read("training.svg");
        assert!(training.contains("large 32×384 bf16"));
        assert!(training.contains("published: base, batch 592, FP16"));
    }
}
