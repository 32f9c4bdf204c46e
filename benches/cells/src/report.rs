//! Medians over a kernel's runs, as JSON and as a table with a column for each kernel.

use cloze::engine::timing::median;
use serde_json::{Value, json};

use super::cells::Run;

/// The figures: their name in JSON and their meaning. Those that end in `mib` are in MiB, all others in
/// seconds.
pub const ROWS: [(&str, &str); 11] = [
    ("ready", "start of the process to the first kernel_info_reply"),
    ("first_tensor", "the first tensor cell, sent when the kernel is ready"),
    ("start_to_first_tensor", "start of the process to the end of that cell"),
    ("let", "let a = 1;"),
    ("tensor", "a sum over a tensor of an earlier cell"),
    ("expression", "1 + 1"),
    ("first_error", "the first cell that does not compile"),
    ("error", "the same again"),
    ("interrupt", "from the interrupt to the end of loop { n += 1; }"),
    ("memory_kernel_mib", "resident memory of the kernel's process"),
    ("memory_mib", "the same with all processes below it"),
];

/// A kernel's runs.
pub struct Measured {
    pub name: String,
    pub runs: Vec<Run>,
}

impl Measured {
    /// Returns the median over the runs, or `None` if a run lacks this figure.
    fn median(&self, figure: &str) -> Option<f64> {
        let find = |run: &Run| {
            let found = run.figures.iter().find(|(name, _)| *name == figure)?;
            Some(found.1)
        };
        let mut values: Vec<f64> = self.runs.iter().map(find).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| median(&mut values))
    }

    /// Returns whether variables survived every interrupt, or `None` if a loop could not be stopped.
    fn variables_kept(&self) -> Option<bool> {
        let kept: Option<Vec<bool>> = self.runs.iter().map(|run| run.variables_kept).collect();
        kept.map(|kept| kept.into_iter().all(|kept| kept))
    }

    /// Returns the figures with the conditions of the measurement.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "kernel": self.name,
            "implementation": self.runs.first().map(|run| &run.implementation),
            "runs": self.runs.len(),
        });
        for (name, _) in ROWS {
            // Milliseconds, and tenths of a MiB: more digits would be noise.
            let digits = if name.ends_with("mib") { 10.0 } else { 1000.0 };
            object[name] = self.median(name).map(|value| (value * digits).round() / digits).into();
        }
        object["variables_kept"] = self.variables_kept().into();
        object["setup"] = self.runs.first().map(|run| run.setup.as_str()).into();
        object
    }
}

/// Returns the figures as a table.
pub fn table(kernels: &[Measured]) -> String {
    let width = kernels.iter().map(|kernel| kernel.name.len()).max().unwrap_or(0).max(8);
    let mut text = format!("{:22}", "");
    for kernel in kernels {
        text += &format!(" {:>width$}", kernel.name);
    }
    text += "\n";
    for (name, meaning) in ROWS {
        text += &format!("{name:22}");
        let (unit, digits) = if name.ends_with("mib") { ("MiB", 0) } else { ("s", 3) };
        for kernel in kernels {
            let value = kernel.median(name).map(|value| format!("{value:.digits$}"));
            text += &format!(" {:>width$}", value.as_deref().unwrap_or("-"));
        }
        text += &format!("  {unit:3}  {meaning}\n");
    }
    text += &format!("{:22}", "variables_kept");
    for kernel in kernels {
        let kept = match kernel.variables_kept() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        text += &format!(" {kept:>width$}");
    }
    text += &format!("  {:3}  after the interrupt\n\n", "");
    for Measured { name, runs } in kernels {
        if let Some(run) = runs.first() {
            text += &format!(
                "{name} is {}, medians of {}; its first tensor cell:\n",
                run.implementation,
                runs.len()
            );
            for line in run.setup.lines() {
                text += &format!("    {line}\n");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, interrupts: [Option<f64>; 2]) -> Measured {
        let runs = interrupts.map(|interrupt| Run {
            figures: [("ready", 0.25)]
                .into_iter()
                .chain(interrupt.map(|seconds| ("interrupt", seconds)))
                .collect(),
            variables_kept: interrupt.map(|seconds| seconds < 1.0),
            setup: "let x = 1;".to_owned(),
            implementation: "test 1".to_owned(),
        });
        Measured { name: name.to_owned(), runs: runs.into() }
    }

    #[test]
    fn json_has_the_medians_and_null_if_a_run_lacks_one() {
        let good = measured("a", [Some(0.1), Some(0.2)]).json();
        assert_eq!(good["interrupt"], 0.15);
        assert_eq!(good["variables_kept"], true);
        let stuck = measured("b", [Some(0.1), None]).json();
        assert_eq!(stuck["interrupt"], Value::Null);
        assert_eq!(stuck["variables_kept"], Value::Null);
        assert_eq!(stuck["ready"], 0.25);
        for (name, _) in ROWS {
            assert!(good.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn each_kernel_has_a_column() {
        let table = table(&[measured("a", [Some(0.1); 2]), measured("b", [Some(2.0); 2])]);
        let row = table.lines().find(|line| line.starts_with("variables_kept"));
        let words: Vec<&str> = row.unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["variables_kept", "yes", "no"]);
    }
}
