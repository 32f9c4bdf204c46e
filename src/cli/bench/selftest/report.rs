//! What is known so far, for people and programs, on the terminal and in files.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::engine::cuda::selftest::Section;
use crate::error::{Error, Result};
use crate::files;
use crate::files::create_folder;
use crate::note;

/// A check and what came of it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub section: Section,
    pub name: String,
    /// None where it was not run.
    pub passed: Option<bool>,
    pub line: String,
    pub data: Value,
    /// Whether the check took the device or its process with it.
    pub lost: bool,
}

impl Entry {
    /// Returns the entry of a check that took its process with it.
    pub fn failed(section: Section, name: &str, why: String) -> Self {
        Self {
            section,
            name: name.into(),
            passed: Some(false),
            data: json!({"error": &why}),
            line: why,
            lost: true,
        }
    }

    pub fn not_run(section: Section, name: &str) -> Self {
        Self {
            section,
            name: name.into(),
            passed: None,
            line: "not run: the time was over, or too many processes were lost".into(),
            data: json!({}),
            lost: false,
        }
    }

    /// Returns a line for users.
    fn format(&self) -> String {
        let mark = match self.passed {
            Some(true) => "ok  ",
            Some(false) => "FAIL",
            None => "--  ",
        };
        format!("{mark} {:<8} {:<34} {}", self.section.name(), self.name, self.line)
    }

    fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("section".into(), self.section.name().into());
        object.insert("check".into(), self.name.as_str().into());
        object.insert("passed".into(), self.passed.into());
        object.insert("told".into(), self.line.as_str().into());
        if let Value::Object(data) = &self.data {
            object.extend(data.clone());
        }
        object.into()
    }
}

/// All results.
pub struct Report {
    emulated: bool,
    started: Instant,
    pub entries: Vec<Entry>,
    /// How long each section took.
    phases: Vec<(Section, Duration)>,
    folder: Option<PathBuf>,
    events: Option<File>,
}

impl Report {
    pub fn new(emulated: bool, folder: Option<PathBuf>) -> Result<Self> {
        let events = match &folder {
            Some(folder) => {
                create_folder(folder)?;
                let path = folder.join("events.jsonl");
                Some(File::create(&path).map_err(|e| Error::io(&path, e))?)
            }
            None => None,
        };
        let (started, entries, phases) = (Instant::now(), Vec::new(), Vec::new());
        Ok(Self { emulated, started, entries, phases, folder, events })
    }

    /// Notes how long a section took.
    pub fn phase(&mut self, section: Section, time: Duration) {
        self.phases.push((section, time));
    }

    /// Returns the seconds that a section took.
    fn seconds(&self, section: Section) -> f64 {
        let phase = self.phases.iter().find(|(phase, _)| *phase == section);
        phase.map_or(0.0, |(_, time)| time.as_secs_f64())
    }

    /// Takes an entry, prints it, and writes it to the file.
    pub fn take(&mut self, entry: Entry) -> Result<()> {
        note!("{}", entry.format());
        if let Some(events) = &mut self.events {
            let written = writeln!(events, "{}", entry.object()).and_then(|()| events.sync_data());
            written.map_err(|e| Error::io("events.jsonl", e))?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Writes what is known so far.
    pub fn write(&self) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let mut text: String = self.entries.iter().map(|e| e.format() + "\n").collect();
        text += &self.summary();
        text.push('\n');
        files::replace(&folder.join("report.txt"), text.as_bytes())?;
        let object = format!("{:#}\n", self.object());
        files::replace(&folder.join("report.json"), object.as_bytes())
    }

    fn count(&self, section: Option<Section>, passed: Option<bool>) -> usize {
        let of = |e: &&Entry| section.is_none_or(|s| e.section == s) && e.passed == passed;
        self.entries.iter().filter(of).count()
    }

    /// Checks that failed or were not run.
    pub fn unsatisfied(&self) -> usize {
        self.count(None, Some(false)) + self.count(None, None)
    }

    pub fn object(&self) -> Value {
        let mut sections = Map::new();
        for section in Section::ALL {
            let own = self.entries.iter().filter(|e| e.section == section);
            let own: Vec<Value> = own.map(Entry::object).collect();
            if !own.is_empty() {
                sections.insert(section.name().into(), own.into());
            }
        }
        json!({
            "emulated": self.emulated,
            "ok": self.unsatisfied() == 0,
            "passed": self.count(None, Some(true)),
            "failed": self.count(None, Some(false)),
            "not_run": self.count(None, None),
            "seconds": self.started.elapsed().as_secs_f64(),
            "phases": self.phases.iter().map(|(section, time)| {
                (section.name().to_owned(), time.as_secs_f64().into())
            }).collect::<Map<_, _>>(),
            "sections": sections,
        })
    }

    /// How it went, in a few lines: what failed, and the numbers that count most.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| {
            // Writing to a string doesn't fail.
            let _ = writeln!(text, "{line}");
        };
        for section in Section::ALL {
            let [good, bad, none] =
                [Some(true), Some(false), None].map(|passed| self.count(Some(section), passed));
            if good + bad + none > 0 {
                let name = section.name();
                let seconds = self.seconds(section);
                line(format!(
                    "{name:<9} {good} passed, {bad} failed, {none} not run, {seconds:.0} s"
                ));
            }
        }
        for entry in &self.entries {
            let headline = matches!(entry.section, Section::Speed | Section::Training);
            if entry.passed != Some(true) || headline {
                line(entry.format());
            }
        }
        let seconds = self.started.elapsed().as_secs_f64();
        match self.unsatisfied() {
            0 => line(format!("all passed in {seconds:.0} s")),
            n => line(format!("{n} failed or not run, after {seconds:.0} s")),
        }
        text.trim_end().to_owned()
    }
}
