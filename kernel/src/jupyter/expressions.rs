//! `user_expressions`: values that a front end requests with a cell, each with its own answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cloze::display::Content;
use jupyter_protocol::ExpressionResult;

use super::{content, lock};
use crate::session::{CellError, Event, Session, Sink};

/// Evaluates the expressions in the order of their names. Their output is not shown: the reply contains
/// values and errors only.
pub async fn evaluate(
    session: &Session,
    asked: &HashMap<String, String>,
) -> HashMap<String, ExpressionResult> {
    let mut names: Vec<_> = asked.iter().collect();
    names.sort();
    let mut results = HashMap::new();
    for (name, code) in names {
        results.insert(name.clone(), one(session, code).await);
    }
    results
}

async fn one(session: &Session, code: &str) -> ExpressionResult {
    let value: Arc<Mutex<Option<Content>>> = Arc::default();
    let keep = Arc::clone(&value);
    let sink: Sink = Arc::new(move |event| {
        if let Event::Result(content) = event {
            *lock(&keep) = Some(content);
        }
    });
    let outcome = session.execute(code.to_owned(), sink).await;
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
