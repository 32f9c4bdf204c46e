//! `user_expressions`: values that a front end requests with a cell, each with its own answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cloze::display::Content;
use jupyter_protocol::ExpressionResult;

use super::{Kernel, content, lock};
use crate::session::{CellError, Event, Sink};

/// Evaluates the expressions in the order of their names. Their output is not shown: the reply contains
/// values and errors only. What they read from standard input ends at once.
pub async fn evaluate(
    kernel: &Kernel,
    asked: &HashMap<String, String>,
) -> HashMap<String, ExpressionResult> {
    let mut names: Vec<_> = asked.iter().collect();
    names.sort();
    let mut results = HashMap::new();
    for (name, code) in names {
        results.insert(name.clone(), one(kernel, code).await);
    }
    results
}

async fn one(kernel: &Kernel, code: &str) -> ExpressionResult {
    let value: Arc<Mutex<Option<Content>>> = Arc::default();
    let (keep, questions) = (Arc::clone(&value), kernel.questions.clone());
    let sink: Sink = Arc::new(move |event| match event {
        Event::Result(content) => *lock(&keep) = Some(content),
        // The queue ends only with the kernel.
        Event::Input { .. } => drop(questions.send(None)),
        _ => {}
    });
    let outcome = kernel.session.execute(code.to_owned(), sink).await;
    // The evaluator answers every request unless it panicked.
    let error = outcome.map_or_else(|_| Some(CellError::session_lost()), |outcome| outcome.error);
    if let Some(error) = error {
        return refused(error);
    }
    match lock(&value).take() {
        Some(value) => {
            ExpressionResult::Ok { data: content::media(&value), metadata: Default::default() }
        }
        None => refused(CellError::new("value", &format!("`{code}` has no value to show"))),
    }
}

fn refused(error: CellError) -> ExpressionResult {
    ExpressionResult::Error { ename: error.name, evalue: error.value, traceback: error.traceback }
}
