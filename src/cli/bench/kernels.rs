//! `cloze bench train --roofline`: the kernels of a training step on the CPU, their shares of its time, and how near
//! each is to what memory and arithmetic allow.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::shared::checks::refuse;
use crate::cli::shared::stdio::say;
use crate::engine::kernel_times::{Kernel, Work, recorded};
use crate::engine::timing::{Pass, measured_bandwidth, pass_seconds};
use crate::engine::{Backend, Setup, TaskEngine};
use crate::error::Result;
use crate::note;
use crate::view::RooflineChart;
use crate::view::roofline::Measured;

/// The kernels of a step, and the limits of the machine.
pub(super) struct Kernels {
    rows: Vec<(&'static str, Work)>,
    /// Time of a step.
    seconds: f64,
    /// Operations a second.
    peak: f64,
    /// Bytes a second.
    bandwidth: f64,
}

impl Kernels {
    pub(super) fn check(setup: Setup) -> Result<()> {
        match setup.backend.resolve().0 {
            Backend::Cpu => Ok(()),
            _ => refuse!(
                "--roofline times the kernels of the CPU engine: use it with --backend cpu; for those of a GPU there is cloze bench --gpu-selftest --charts"
            ),
        }
    }

    /// Measures `steps` steps of (sequences, tokens per sequence) on a machine that makes `peak` operations a second.
    pub(super) fn measure(
        engine: &mut dyn TaskEngine,
        size: (usize, usize),
        steps: u64,
        peak: f64,
    ) -> Result<Self> {
        let (seconds, works) = recorded(|| pass_seconds(engine, Pass::Train, size, 0, steps));
        let seconds = seconds?.iter().sum::<f64>() / steps as f64;
        let each = |work: Work| Work {
            calls: work.calls / steps,
            flops: work.flops / steps as f64,
            bytes: work.bytes / steps as f64,
            seconds: work.seconds / steps as f64,
        };
        let rows = Kernel::ALL.into_iter().map(|(_, name)| name).zip(works.map(each));
        Ok(Self {
            rows: rows.filter(|(_, work)| work.calls > 0).collect(),
            seconds,
            peak,
            bandwidth: measured_bandwidth(rayon::current_num_threads()),
        })
    }

    /// Returns the time of a kernel that is limited only by the machine.
    fn least(&self, work: Work) -> f64 {
        (work.flops / self.peak).max(work.bytes / self.bandwidth)
    }

    fn between(&self) -> f64 {
        self.seconds - self.rows.iter().map(|(_, work)| work.seconds).sum::<f64>()
    }

    pub(super) fn json(&self) -> Value {
        let kernels = self.rows.iter().map(|&(name, work)| {
            json!({
                "kernel": name,
                "calls": work.calls,
                "seconds": work.seconds,
                "flops": work.flops,
                "bytes": work.bytes,
                "roofline_seconds": self.least(work),
            })
        });
        json!({
            "step_seconds": self.seconds,
            "between_seconds": self.between(),
            "peak_flops": self.peak,
            "bytes_per_s": self.bandwidth,
            "kernels": kernels.collect::<Vec<_>>(),
        })
    }

    pub(super) fn print(&self) -> Result<()> {
        let (peak, bandwidth) = (self.peak / 1e9, self.bandwidth / 1e9);
        say!(
            "limits: {peak:.0} GFLOP/s in large products, {bandwidth:.1} GB/s of memory, both measured"
        )?;
        say!(
            "kernel                          calls  ms a step   share   GFLOP/s    GB/s  of the limit"
        )?;
        let share = |seconds: f64| 100.0 * seconds / self.seconds;
        for &(name, work) in &self.rows {
            let (calls, seconds) = (work.calls, work.seconds);
            say!(
                "{name:<30} {calls:>6} {:>10.2} {:>5.1} % {:>9.1} {:>7.1} {:>11.0} %",
                1e3 * seconds,
                share(seconds),
                work.flops / seconds / 1e9,
                work.bytes / seconds / 1e9,
                100.0 * self.least(work) / seconds,
            )?;
        }
        let between = self.between();
        say!("{:<37} {:>10.2} {:>5.1} %", "between the kernels", 1e3 * between, share(between))?;
        say!("{:<37} {:>10.2} {:>5.1} %", "a step", 1e3 * self.seconds, 100.0)
    }

    /// Draws the kernels. Those that run forward and backward have colours of their own.
    pub(super) fn draw(&self, title: &str, path: &Path) -> Result<()> {
        let mut chart = RooflineChart::new(title, self.bandwidth, self.peak);
        for &(name, Work { flops, bytes, seconds, .. }) in &self.rows {
            let (group, _) = name.split_once(", ").unwrap_or(("others", ""));
            chart = chart.kernel(group, Measured { bytes, flops, seconds });
        }
        chart.save(path)?;
        note!("{}", path.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_or_arithmetic_is_the_limit() {
        let kernels = Kernels { rows: Vec::new(), seconds: 1.0, peak: 100.0, bandwidth: 10.0 };
        let work = |flops, bytes| Work { calls: 1, flops, bytes, seconds: 1.0 };
        assert_eq!(kernels.least(work(50.0, 1.0)), 0.5);
        assert_eq!(kernels.least(work(50.0, 8.0)), 0.8);
    }
}
