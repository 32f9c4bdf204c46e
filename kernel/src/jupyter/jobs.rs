//! Answers the requests that need the session, one after another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use jupyter_protocol::{
    ErrorOutput, ExecuteInput, ExecuteReply, ExecuteRequest, ExecutionCount, InspectReply,
    JupyterMessage, JupyterMessageContent, MediaType, Payload, ReplyError, ReplyStatus, Status,
    UnknownMessage,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::iopub::IoPub;
use super::limit::Limit;
use super::{Kernel, Replies, content, expressions};
use crate::mutex::lock;
use crate::session::{CellError, Event, Outcome, Sink};

/// A queued request and the socket that it came from.
pub struct Job {
    pub request: JupyterMessage,
    pub replies: Replies,
}

/// Shows the messages of a session that starts slowly in the first cell that waits for it.
pub struct Notice {
    iopub: IoPub,
    state: Mutex<(Vec<Event>, Option<Arc<JupyterMessage>>)>,
}

impl Notice {
    pub fn new(iopub: IoPub) -> Self {
        Self { iopub, state: Mutex::default() }
    }

    /// Takes the session's messages, for the log and for the cell.
    pub fn sink(self: &Arc<Self>) -> Sink {
        let notice = Arc::clone(self);
        Arc::new(move |event| {
            if let Event::Stream { text, .. } = &event {
                cloze::note!("{}", text.trim_end());
            }
            let mut state = lock(&notice.state);
            match &state.1 {
                Some(cell) => notice.iopub.publish(cell, content::message(event, 0)),
                None => state.0.push(event),
            }
        })
    }

    fn show_in(&self, cell: Arc<JupyterMessage>) {
        let mut state = lock(&self.state);
        for event in state.0.drain(..) {
            self.iopub.publish(&cell, content::message(event, 0));
        }
        state.1 = Some(cell);
    }
}

/// Answers jobs until the kernel ends.
pub async fn work(kernel: Arc<Kernel>, mut queue: UnboundedReceiver<Job>, notice: Arc<Notice>) {
    let mut count = 0;
    let mut waiting = VecDeque::new();
    loop {
        let job = match waiting.pop_front() {
            Some(job) => job,
            None => match queue.recv().await {
                Some(job) => job,
                None => return,
            },
        };
        let Job { request, replies } = job;
        let request = Arc::new(request);
        kernel.iopub.status(&request, Status::busy());
        let mut failed = false;
        let reply: JupyterMessageContent = match &request.content {
            JupyterMessageContent::ExecuteRequest(asked) => {
                notice.show_in(Arc::clone(&request));
                let reply = execute(&kernel, &request, asked, &mut count).await;
                failed = reply.status == ReplyStatus::Error && asked.stop_on_error;
                reply.into()
            }
            JupyterMessageContent::CompleteRequest(asked) => {
                let position = content::to_bytes(&asked.code, asked.cursor_pos);
                let found = kernel.session.complete(asked.code.clone(), position);
                // A session that could not start has nothing to offer.
                let found = found.await.unwrap_or_default();
                content::completions(&asked.code, found).into()
            }
            JupyterMessageContent::InspectRequest(asked) => {
                let position = content::to_bytes(&asked.code, asked.cursor_pos);
                let found = kernel.session.inspect(asked.code.clone(), position);
                let found = found.await.unwrap_or_default();
                InspectReply {
                    found: found.is_some(),
                    data: found.as_ref().map(content::media).unwrap_or_default(),
                    ..Default::default()
                }
                .into()
            }
            // Only these three are queued.
            _ => continue,
        };
        // Before the reply: requests that a front end sends after it run as usual.
        while failed && let Ok(job) = queue.try_recv() {
            waiting.push_back(job);
        }
        // The queue ends only with the kernel.
        let _ = replies.send(JupyterMessage::new(reply, Some(&request)));
        kernel.iopub.status(&request, Status::idle());
        if failed {
            waiting = abort(&kernel, waiting);
        }
    }
}

/// Runs a cell and publishes all of its output.
async fn execute(
    kernel: &Kernel,
    request: &Arc<JupyterMessage>,
    asked: &ExecuteRequest,
    count: &mut usize,
) -> ExecuteReply {
    if asked.store_history && !asked.silent {
        *count += 1;
        lock(&kernel.history).push(*count, &asked.code);
    }
    let number = *count;
    if !asked.silent {
        kernel.iopub.publish(
            request,
            ExecuteInput { code: asked.code.clone(), execution_count: ExecutionCount::new(number) },
        );
    }
    let (iopub, parent, silent) = (kernel.iopub.clone(), Arc::clone(request), asked.silent);
    let limit = Arc::new(Limit::of_a_cell());
    let limited = Arc::clone(&limit);
    let remember = (asked.store_history && !silent).then(|| Arc::clone(&kernel.history));
    let (questions, may_ask) = (kernel.questions.clone(), asked.allow_stdin);
    let sink: Sink = Arc::new(move |event| {
        if let (Event::Result(value), Some(history)) = (&event, &remember) {
            lock(history).set_value(number, &value.plain());
        }
        if let Event::Input { .. } = event {
            // The queue ends only with the kernel.
            let _ = questions.send(may_ask.then(|| {
                let question = content::message(event, number);
                JupyterMessage::new(question, Some(&parent))
            }));
        } else if !silent {
            limited.pass(event, |event| {
                iopub.publish(&parent, content::message(event, number));
            });
        }
    });
    lock(&kernel.keeper).used(true);
    let outcome = kernel.session.execute(asked.code.clone(), sink).await;
    lock(&kernel.keeper).used(false);
    // The evaluator answers every request unless it panicked.
    let Outcome { error, pages } = outcome.unwrap_or_else(|_| CellError::session_lost().into());
    if let Some(note) = limit.note() {
        kernel.iopub.publish(request, content::message(note, number));
    }
    let mut reply = ExecuteReply {
        status: ReplyStatus::Ok,
        execution_count: ExecutionCount::new(number),
        payload: pages.into_iter().map(page).collect(),
        user_expressions: Some(Default::default()),
        error: None,
    };
    // The protocol requires the evaluation after the cell, and only if it succeeded.
    if let (None, Some(wanted)) = (&error, &asked.user_expressions) {
        reply.user_expressions = Some(expressions::evaluate(&kernel.session, wanted).await);
    }
    if let Some(error) = error {
        if !asked.silent {
            kernel.iopub.publish(
                request,
                ErrorOutput {
                    ename: error.name.clone(),
                    evalue: error.value.clone(),
                    traceback: error.traceback.clone(),
                },
            );
        }
        reply.status = ReplyStatus::Error;
        reply.error = Some(Box::new(ReplyError {
            ename: error.name,
            evalue: error.value,
            traceback: error.traceback,
        }));
    }
    reply
}

fn page(text: String) -> Payload {
    Payload::Page { data: MediaType::Plain(text).into(), start: 0 }
}

/// Refuses the cells that were sent before the failed one had ended; other requests stay queued.
fn abort(kernel: &Kernel, waiting: VecDeque<Job>) -> VecDeque<Job> {
    let (cells, rest): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .partition(|job| matches!(job.request.content, JupyterMessageContent::ExecuteRequest(_)));
    for Job { request, replies } in cells {
        kernel.iopub.status(&request, Status::busy());
        // Without a number, which a front end would show as if the cell had run. The protocol crate has no
        // reply without one.
        let reply = UnknownMessage {
            msg_type: "execute_reply".to_owned(),
            content: serde_json::json!({ "status": "aborted" }),
        };
        // The queue ends only with the kernel.
        let _ = replies.send(JupyterMessage::new(reply, Some(&request)));
        kernel.iopub.status(&request, Status::idle());
    }
    rest.into()
}
