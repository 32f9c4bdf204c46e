//! Answers the requests that need the session: cells one after another, completions and inspections in a
//! line of their own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cloze::display::Content;
use jupyter_protocol::{
    ErrorOutput, ExecuteInput, ExecuteReply, ExecuteRequest, ExecutionCount, InspectReply,
    JupyterMessage, JupyterMessageContent, MediaType, Payload, ReplyError, ReplyStatus, Status,
    UnknownMessage,
};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use super::iopub::IoPub;
use super::limit::Limit;
use super::{Kernel, Replies, content, expressions};
use crate::mutex::lock;
use crate::session::{CellError, Event, Outcome, Sink, is_review};

/// A queued request and the socket that it came from.
pub struct Job {
    pub request: JupyterMessage,
    pub replies: Replies,
}

/// The cells that wait for their turn.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<VecDeque<Job>>,
    arrived: Notify,
    /// Whether the cell that was taken last had waited for the one before it.
    waited: AtomicBool,
}

impl Queue {
    pub fn push(&self, job: Job) {
        lock(&self.waiting).push_back(job);
        self.arrived.notify_one();
    }

    async fn next(&self) -> Job {
        let mut waited = true;
        loop {
            let job = lock(&self.waiting).pop_front();
            if let Some(job) = job {
                self.waited.store(waited, Ordering::Relaxed);
                return job;
            }
            waited = false;
            // A notification since then is kept for this call.
            self.arrived.notified().await;
        }
    }

    fn take_all(&self) -> VecDeque<Job> {
        std::mem::take(&mut lock(&self.waiting))
    }

    /// Returns whether the running cell was sent together with others, as when a notebook runs as a whole.
    fn is_of_many(&self) -> bool {
        self.waited.load(Ordering::Relaxed) || !lock(&self.waiting).is_empty()
    }

    /// Returns the first line of each waiting cell, with its number.
    fn list(&self) -> String {
        let waiting = lock(&self.waiting);
        let lines = waiting.iter().enumerate().map(|(index, job)| {
            let code = job.code();
            let first = code.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            format!("{}  {first}", index + 1)
        });
        match waiting.len() {
            0 => "No cell waits.".to_owned(),
            _ => lines.collect::<Vec<_>>().join("\n"),
        }
    }

    /// Removes the cell with this number.
    fn remove(&self, number: usize) -> Option<Job> {
        lock(&self.waiting).remove(number.checked_sub(1)?)
    }
}

impl Job {
    fn code(&self) -> &str {
        match &self.request.content {
            JupyterMessageContent::ExecuteRequest(asked) => &asked.code,
            _ => "",
        }
    }
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
            match &event {
                Event::Stream { text, .. } => cloze::note!("{}", text.trim_end()),
                Event::Display { content, id: None } => cloze::note!("{}", content.plain()),
                _ => {}
            }
            let mut state = lock(&notice.state);
            match &state.1 {
                Some(cell) => notice.iopub.publish(cell, content::message(event, 0)),
                None => keep(&mut state.0, event),
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

/// Keeps an event until a cell shows it; an update replaces the content of its display.
fn keep(events: &mut Vec<Event>, event: Event) {
    if let Event::Update { content: new, id: of } = &event {
        for earlier in &mut *events {
            if let Event::Display { content, id: Some(id) } = earlier
                && id == of
            {
                *content = new.clone();
                return;
            }
        }
    }
    events.push(event);
}

/// Runs cells until the kernel ends.
pub async fn run_cells(kernel: Arc<Kernel>, notice: Arc<Notice>) {
    loop {
        let Job { request, replies } = kernel.cells.next().await;
        let request = Arc::new(request);
        let JupyterMessageContent::ExecuteRequest(asked) = &request.content else {
            continue;
        };
        *lock(&kernel.running) = Some(Arc::clone(&request));
        kernel.iopub.status(&request, Status::busy());
        notice.show_in(Arc::clone(&request));
        let reply = execute(&kernel, &request, asked, false).await;
        let failed = reply.status == ReplyStatus::Error && asked.stop_on_error;
        // Before the reply: requests that a front end sends after it run as usual.
        let stopped = if failed { kernel.cells.take_all() } else { VecDeque::new() };
        // The queue ends only with the kernel.
        let _ = replies.send(JupyterMessage::new(reply, Some(&request)));
        *lock(&kernel.running) = None;
        kernel.idle(&request);
        for job in stopped {
            abort(&kernel, job);
        }
    }
}

/// Answers completions and inspections, and in a subshell commands, until the queue ends.
pub async fn answer_all(kernel: Arc<Kernel>, mut queue: UnboundedReceiver<Job>, subshell: bool) {
    while let Some(Job { request, replies }) = queue.recv().await {
        let request = Arc::new(request);
        kernel.iopub.status(&request, Status::busy());
        let reply: JupyterMessageContent = match &request.content {
            JupyterMessageContent::ExecuteRequest(asked) => {
                execute(&kernel, &request, asked, subshell).await.into()
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
        // The queue ends only with the kernel.
        let _ = replies.send(JupyterMessage::new(reply, Some(&request)));
        kernel.idle(&request);
    }
}

/// Lists the waiting cells, or removes one of them, if `code` asks for it.
fn command_on_queue(kernel: &Kernel, code: &str) -> Option<Result<String, CellError>> {
    let code = code.trim();
    if code == ":queue" {
        return Some(Ok(kernel.cells.list()));
    }
    let number = code.strip_prefix(":cancel")?.trim();
    Some(match number.parse().ok().and_then(|number| kernel.cells.remove(number)) {
        Some(job) => {
            let first = job.code().lines().next().unwrap_or_default().to_owned();
            abort(kernel, job);
            Ok(format!("cancelled: {first}"))
        }
        None => Err(CellError::new(
            "command",
            &format!("no cell {number} waits: `:queue` lists the numbers"),
        )),
    })
}

/// Runs a cell, or in a subshell a command beside one, and publishes all of its output.
async fn execute(
    kernel: &Kernel,
    request: &Arc<JupyterMessage>,
    asked: &ExecuteRequest,
    subshell: bool,
) -> ExecuteReply {
    if asked.store_history && !asked.silent {
        let number = kernel.count.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&kernel.history).push(number, &asked.code);
    }
    let number = kernel.count.load(Ordering::Relaxed);
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
    // A notebook that runs as a whole does not wait for answers to a lesson's questions.
    let review_among = is_review(&asked.code).then(|| Arc::clone(&kernel.cells));
    let comms = Arc::clone(&kernel.comms);
    let sink: Sink = Arc::new(move |event| {
        if let (Event::Result(value), Some(history)) = (&event, &remember) {
            lock(history).set_value(number, &value.plain());
        }
        if let Event::Input { .. } = event {
            let may_ask = may_ask && review_among.as_ref().is_none_or(|cells| !cells.is_of_many());
            // The queue ends only with the kernel.
            let _ = questions.send(may_ask.then(|| {
                let question = content::message(event, number);
                JupyterMessage::new(question, Some(&parent))
            }));
        } else if let Event::Comm(comm) = event {
            comms.publish(&iopub, &parent, comm, number);
        } else if !silent {
            limited.pass(event, |event| {
                iopub.publish(&parent, content::message(event, number));
            });
        }
    });
    let outcome = match command_on_queue(kernel, &asked.code) {
        Some(Ok(text)) => {
            sink(Event::Display { content: Content::text(text), id: None });
            Ok(Outcome::default())
        }
        Some(Err(error)) => Ok(error.into()),
        None if subshell => kernel.session.execute_beside(asked.code.clone(), sink).await,
        None => {
            lock(&kernel.keeper).used(true);
            let outcome = kernel.session.execute(asked.code.clone(), sink).await;
            lock(&kernel.keeper).used(false);
            outcome
        }
    };
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
        reply.user_expressions = Some(expressions::evaluate(kernel, wanted).await);
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

/// Refuses a cell that was sent before a failed one had ended, or that was cancelled.
fn abort(kernel: &Kernel, job: Job) {
    refuse(kernel, job, serde_json::json!({ "status": "aborted" }));
}

/// Answers a request that is not carried out. The content has no number, which a front end would show as if the
/// cell had run; the protocol crate has no reply without one.
pub fn refuse(kernel: &Kernel, Job { request, replies }: Job, content: serde_json::Value) {
    kernel.iopub.status(&request, Status::busy());
    let msg_type = request.header.msg_type.replace("request", "reply");
    let reply = UnknownMessage { msg_type, content };
    // The queue ends only with the kernel.
    let _ = replies.send(JupyterMessage::new(reply, Some(&request)));
    kernel.idle(&request);
}
