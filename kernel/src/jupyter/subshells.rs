//! Subshells (JEP 91): lines of requests that are answered beside the cells.
//!
//! The session runs one cell at a time, so Rust code in a subshell waits for its turn as in the main
//! shell. Completions, inspections and the commands that need no cell are answered while one runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jupyter_protocol::{JupyterMessageContent, UnknownMessage};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::Kernel;
use super::jobs::{self, Job};
use crate::mutex::lock;

/// The subshells of a kernel, by their ids.
#[derive(Default)]
pub struct Subshells {
    open: Mutex<HashMap<String, Line>>,
    /// The workers of closed subshells, which may still answer.
    closed: Mutex<Vec<JoinHandle<()>>>,
    created: AtomicUsize,
}

/// A subshell's line of requests, and the task that answers them.
struct Line {
    jobs: UnboundedSender<Job>,
    worker: JoinHandle<()>,
}

impl Subshells {
    /// Queues a request in a subshell, or refuses it if there is no such subshell.
    pub fn queue(&self, kernel: &Kernel, id: &str, job: Job) {
        match lock(&self.open).get(id) {
            // The worker ends only with the subshell.
            Some(line) => drop(line.jobs.send(job)),
            None => jobs::refuse(kernel, job, unknown(id)),
        }
    }

    /// Opens a subshell and returns its id.
    fn create(&self, kernel: &Arc<Kernel>) -> String {
        let id = format!("subshell-{}", self.created.fetch_add(1, Ordering::Relaxed) + 1);
        let (jobs, queue) = unbounded_channel();
        let worker = tokio::spawn(jobs::answer_all(Arc::clone(kernel), queue, true));
        lock(&self.open).insert(id.clone(), Line { jobs, worker });
        id
    }

    /// Closes a subshell. What it has been asked is still answered.
    fn delete(&self, id: &str) -> bool {
        let Some(Line { worker, .. }) = lock(&self.open).remove(id) else {
            return false;
        };
        let mut closed = lock(&self.closed);
        closed.retain(|worker| !worker.is_finished());
        closed.push(worker);
        true
    }

    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = lock(&self.open).keys().cloned().collect();
        ids.sort();
        ids
    }

    /// Ends all workers.
    pub async fn end(&self) {
        let open: Vec<_> = lock(&self.open).drain().map(|(_, line)| line.worker).collect();
        let closed = std::mem::take(&mut *lock(&self.closed));
        for worker in open.into_iter().chain(closed) {
            worker.abort();
            // An aborted task reports just that.
            let _ = worker.await;
        }
    }
}

/// Answers the three messages about subshells, which the protocol crate does not know yet.
pub fn answer(kernel: &Arc<Kernel>, message: &UnknownMessage) -> Option<JupyterMessageContent> {
    let subshells = &kernel.subshells;
    let content = match message.msg_type.as_str() {
        "create_subshell_request" => {
            json!({ "status": "ok", "subshell_id": subshells.create(kernel) })
        }
        "delete_subshell_request" => {
            let id = message.content["subshell_id"].as_str().unwrap_or_default();
            match subshells.delete(id) {
                true => json!({ "status": "ok" }),
                false => unknown(id),
            }
        }
        "list_subshell_request" => json!({ "status": "ok", "subshell_id": subshells.ids() }),
        _ => return None,
    };
    let msg_type = message.msg_type.replace("request", "reply");
    Some(UnknownMessage { msg_type, content }.into())
}

/// Returns the reply to a request that names a subshell which doesn't exist.
fn unknown(id: &str) -> Value {
    let message = format!("there is no subshell {id:?}");
    json!({ "status": "error", "ename": "subshell", "evalue": message, "traceback": [] })
}
