//! Charts of what was measured.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::engine::cuda::selftest::Section;
use crate::error::{Error, Result};
use crate::view::roofline::Measured;
use crate::view::{BarChart, RooflineChart};

use super::report::{Entry, Report};

/// Published tokens a second on one H200 at length 384, fine-tuning on SQuAD in FP16 with NVIDIA's
/// PyTorch container.
const PUBLISHED: [(&str, f64); 2] = [
    ("published: base, batch 592, FP16", 358_000.0),
    ("published: large, batch 192, FP16", 134_000.0),
];

/// Writes the charts for which there are measurements.
pub fn save(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
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
        for entry in of(Section::Speed) {
            let (Some(measured), Some(share)) = (measured(&entry.data), number(entry, "share"))
            else {
                continue;
            };
            let mut words = entry.name.split(' ');
            let size = words.next().unwrap_or_default();
            let kind = words.next().unwrap_or_default();
            roofline = roofline.kernel(&format!("{kind}, {size}"), measured);
            shares = shares.bar(&entry.name, (1000.0 * share).round() / 10.0);
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
    Some(Measured {
        bytes: number("bytes")?,
        flops: number("flops")?,
        seconds: number("seconds")?,
    })
}
