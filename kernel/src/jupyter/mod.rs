//! The Jupyter kernel: five ZeroMQ sockets in front of a session.
//!
//! Nothing here waits for a cell. Cells are queued, and one task runs them in order; completions and
//! inspections have a queue of their own, and so has each subshell (JEP 91), whose commands are answered
//! while a cell runs. Everything else is answered at once. So a kernel responds, stops and restarts while
//! a cell runs or the session warms up.

mod comms;
pub mod connection;
mod content;
mod expressions;
mod history;
mod iopub;
mod jobs;
mod limit;
mod receive;
mod signatures;
mod subshells;

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloze::{Error, Result};
use jupyter_protocol::{
    ConnectionInfo, InterruptReply, IsCompleteReply, JupyterMessage, JupyterMessageContent,
    ReplyStatus, ShutdownReply, Status,
};
use jupyter_zmq_client::{
    KernelShellConnection, RouterRecvConnection, RuntimeError, create_kernel_control_connection,
    create_kernel_heartbeat_connection, create_kernel_iopub_xpub_connection,
    create_kernel_shell_connection, create_kernel_stdin_connection,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use zeromq::{SocketRecv, SocketSend};

use self::comms::Comms;
use self::history::History;
use self::iopub::IoPub;
use self::jobs::{Job, Notice, Queue};
use self::receive::Request;
use self::signatures::Signatures;
use self::subshells::Subshells;
use crate::mutex::lock;
use crate::paths;
use crate::session::completeness::{self, Completeness};
use crate::session::{Session, SessionFolder};
use crate::spare::{Keeper, Link};

/// Serves a front end until it asks for the end.
pub fn run(info: &ConnectionInfo, folder: SessionFolder, keeper: Keeper) -> Result<()> {
    start(info, Source::Fresh(folder), keeper)
}

/// Does the same with a session that is already warm, until its launcher ends. The launcher has read
/// `connection_file` too.
pub fn run_spare(
    connection_file: &Path,
    session: Session,
    launcher: Link,
    keeper: Keeper,
) -> Result<()> {
    let info = connection::parse(connection_file)?;
    start(&info, Source::Spare(session, launcher), keeper)
}

/// Where the session comes from.
enum Source {
    Fresh(SessionFolder),
    Spare(Session, Link),
}

fn start(info: &ConnectionInfo, source: Source, keeper: Keeper) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot start the kernel's threads: {error}")))?;
    let served = runtime.block_on(serve(info, source, keeper));
    // Does not wait for sockets that wait for their peers.
    runtime.shutdown_background();
    served
}

/// The state that the tasks share.
struct Kernel {
    session: Session,
    history: Arc<Mutex<History>>,
    iopub: IoPub,
    /// The cells that wait.
    cells: Arc<Queue>,
    /// The running cell's request.
    running: Mutex<Option<Arc<JupyterMessage>>>,
    /// How many cells were counted so far.
    count: AtomicUsize,
    /// Completions and inspections that wait.
    inquiries: UnboundedSender<Job>,
    subshells: Subshells,
    comms: Arc<Comms>,
    /// Takes the input requests of a cell; `None` if its front end can't be asked.
    questions: UnboundedSender<Option<JupyterMessage>>,
    keeper: Mutex<Keeper>,
    signatures: Signatures,
    /// Set if the front end or a signal ends the kernel, or its parent has ended.
    end: watch::Sender<bool>,
}

async fn serve(info: &ConnectionInfo, source: Source, keeper: Keeper) -> Result<()> {
    let failed = |error: RuntimeError| {
        Error::Failed(format!("cannot open the ports of the connection file: {error}"))
    };
    let id = format!("cloze-{}", std::process::id());
    let shell = create_kernel_shell_connection(info, &id).await.map_err(failed)?;
    let control = create_kernel_control_connection(info, &id).await.map_err(failed)?;
    let stdin = create_kernel_stdin_connection(info, &id).await.map_err(failed)?;
    let heartbeat = create_kernel_heartbeat_connection(info).await.map_err(failed)?;
    let publisher = create_kernel_iopub_xpub_connection(info, &id).await.map_err(failed)?;

    let beating = tokio::spawn(echo(heartbeat.socket));
    let (iopub, publishing) = iopub::start(publisher);
    iopub.send(JupyterMessage::new(Status::starting(), None));

    let notice = Arc::new(Notice::new(iopub.clone()));
    let (session, launcher) = match source {
        Source::Spare(session, launcher) => (session, Some(launcher)),
        Source::Fresh(folder) => {
            let session = Session::start(folder, true, notice.sink())
                .map_err(|error| Error::Failed(format!("cannot start a session: {error}")))?;
            (session, None)
        }
    };
    let history = match paths::notebook_history() {
        Ok(path) => History::open(&path),
        Err(_) => History::default(),
    };
    let (inquiries, asked_for) = unbounded_channel();
    let (questions, asked) = unbounded_channel();
    let (end, mut ended) = watch::channel(false);
    let kernel = Arc::new(Kernel {
        session,
        history: Arc::new(Mutex::new(history)),
        iopub,
        cells: Arc::default(),
        running: Mutex::default(),
        count: AtomicUsize::new(0),
        inquiries,
        subshells: Subshells::default(),
        comms: Arc::default(),
        questions,
        keeper: Mutex::new(keeper),
        signatures: Signatures::default(),
        end,
    });
    let (shell_replies, shell_requests) = split(shell);
    let (control_replies, control_requests) = split(control);
    let (stdin_requests, stdin_replies) = split(stdin);
    let working = tokio::spawn(jobs::run_cells(Arc::clone(&kernel), notice));
    let answering = tokio::spawn(jobs::answer_all(Arc::clone(&kernel), asked_for, false));
    let listening = [
        tokio::spawn(ask(Arc::clone(&kernel), asked, stdin_requests.clone())),
        tokio::spawn(listen(Arc::clone(&kernel), stdin_replies, stdin_requests)),
        tokio::spawn(listen(Arc::clone(&kernel), shell_requests, shell_replies)),
        tokio::spawn(listen(Arc::clone(&kernel), control_requests, control_replies)),
    ];
    let watching = [
        tokio::spawn(watch_process(Arc::clone(&kernel))),
        tokio::spawn(follow(Arc::clone(&kernel), launcher)),
    ];

    // The sender is in `kernel`, which lives here.
    let _ = ended.wait_for(|ended| *ended).await;
    // Gives the last reply and the last status time to leave.
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Frees the ports before the session ends, which takes some time: after a restart the next kernel uses
    // the same ones.
    let serving = [working, answering, beating, publishing];
    for task in listening.into_iter().chain(watching).chain(serving) {
        task.abort();
        // An aborted task reports just that.
        let _ = task.await;
    }
    kernel.subshells.end().await;
    if let Some(kernel) = Arc::into_inner(kernel) {
        tokio::task::block_in_place(|| kernel.session.shut_down());
    }
    Ok(())
}

/// Serves the heartbeat, which echoes messages (`single_heartbeat` would send its own text). It continues
/// after a peer that sends nonsense or disconnects.
async fn echo(mut heartbeat: impl SocketRecv + SocketSend) {
    loop {
        let sent = match heartbeat.recv().await {
            Ok(message) => heartbeat.send(message).await,
            Err(error) => Err(error),
        };
        if sent.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The queue of replies on one socket.
type Replies = UnboundedSender<JupyterMessage>;

/// Splits a socket into its receiving half and a queue into its sending half.
fn split(connection: KernelShellConnection) -> (Replies, RouterRecvConnection) {
    let (mut send, receive) = connection.split();
    let (replies, mut queue): (_, UnboundedReceiver<JupyterMessage>) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(mut reply) = queue.recv().await {
            content::PROTOCOL.clone_into(&mut reply.header.version);
            if let Err(error) = send.send(reply).await {
                cloze::note!("cloze-kernel: a reply could not be sent: {error}");
            }
        }
    });
    (replies, receive)
}

async fn listen(kernel: Arc<Kernel>, mut requests: RouterRecvConnection, replies: Replies) {
    loop {
        let message = match requests.socket.recv().await {
            Ok(message) => message,
            Err(error) => {
                cloze::note!("cloze-kernel: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let request =
            receive::verify(message, &requests, &kernel.signatures).and_then(receive::decode);
        match request {
            Ok(request) => kernel.take(request, &replies),
            Err(reason) => cloze::note!("cloze-kernel: a message was dropped: {reason}"),
        }
    }
}

/// Passes input requests on to the front end. If that can't be asked, the cell finds the end of its input.
async fn ask(
    kernel: Arc<Kernel>,
    mut questions: UnboundedReceiver<Option<JupyterMessage>>,
    stdin: Replies,
) {
    while let Some(question) = questions.recv().await {
        match question {
            // The queue ends only with the kernel.
            Some(question) => drop(stdin.send(question)),
            None => tokio::task::block_in_place(|| kernel.session.give_input(None)),
        }
    }
}

impl Kernel {
    /// Answers a request at once or queues it for the session.
    fn take(self: &Arc<Self>, request: Request, replies: &Replies) {
        use JupyterMessageContent as Content;
        let Request { message: request, subshell } = request;
        let is_cell = matches!(request.content, Content::ExecuteRequest(_));
        if is_cell
            || matches!(request.content, Content::CompleteRequest(_) | Content::InspectRequest(_))
        {
            let job = Job { request, replies: replies.clone() };
            match subshell {
                Some(id) => self.subshells.queue(self, &id, job),
                None if is_cell => self.cells.push(job),
                // The worker ends only with the kernel.
                None => drop(self.inquiries.send(job)),
            }
            return;
        }
        if let Content::InputReply(answer) = &request.content {
            tokio::task::block_in_place(|| self.session.give_input(Some(&answer.value)));
            return;
        }
        self.iopub.status(&request, Status::busy());
        let reply: Option<JupyterMessageContent> = match &request.content {
            Content::KernelInfoRequest(_) => Some(content::kernel_info()),
            Content::IsCompleteRequest(asked) => Some(
                match completeness::judge(&asked.code) {
                    Completeness::Complete => IsCompleteReply::complete(),
                    Completeness::Incomplete { indent } => IsCompleteReply::incomplete(indent),
                    Completeness::Invalid => IsCompleteReply::invalid(),
                }
                .into(),
            ),
            Content::HistoryRequest(asked) => Some(lock(&self.history).answer(asked).into()),
            Content::CommInfoRequest(asked) => Some(self.comms.info(asked).into()),
            Content::CommOpen(_) | Content::CommMsg(_) | Content::CommClose(_) => {
                tokio::task::block_in_place(|| {
                    self.comms.receive(&self.session, &self.iopub, &request);
                });
                None
            }
            Content::InterruptRequest(_) => {
                self.session.interrupt();
                Some(InterruptReply::new().into())
            }
            Content::ShutdownRequest(asked) => Some(
                ShutdownReply { restart: asked.restart, status: ReplyStatus::Ok, error: None }
                    .into(),
            ),
            Content::UnknownMessage(unknown) => {
                let reply = subshells::answer(self, unknown);
                if reply.is_none() {
                    cloze::note!(
                        "cloze-kernel: a {} has no answer: this kernel does not know it",
                        unknown.msg_type
                    );
                }
                reply
            }
            _ => None,
        };
        let ends = matches!(request.content, Content::ShutdownRequest(_));
        if let Some(reply) = reply {
            // The queue ends only with the kernel.
            let _ = replies.send(JupyterMessage::new(reply, Some(&request)));
        }
        self.idle(&request);
        if ends {
            self.end.send_replace(true);
        }
    }

    /// Publishes that a request is done. Front ends show the last status as the kernel's, so that of a
    /// running cell is published again.
    fn idle(&self, request: &JupyterMessage) {
        self.iopub.status(request, Status::idle());
        if let Some(cell) = lock(&self.running).as_ref() {
            self.iopub.status(cell, Status::busy());
        }
    }
}

/// Handles signals, and the end of the process that started the kernel.
async fn watch_process(kernel: Arc<Kernel>) {
    let (Ok(mut interrupts), Ok(mut terminations)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        cloze::note!("cloze-kernel: signals cannot be received");
        return;
    };
    let parent = std::os::unix::process::parent_id();
    let watched = std::env::var("JPY_PARENT_PID").is_ok_and(|id| id == parent.to_string());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = interrupts.recv() => kernel.session.interrupt(),
            _ = terminations.recv() => break,
            _ = tick.tick() => {
                if watched && std::os::unix::process::parent_id() != parent {
                    break;
                }
                tokio::task::block_in_place(|| lock(&kernel.keeper).start_if_idle());
            }
        }
    }
    kernel.end.send_replace(true);
}

/// Passes the launcher's interrupts on, and ends with it.
async fn follow(kernel: Arc<Kernel>, launcher: Option<Link>) {
    let Some(launcher) = launcher else {
        return;
    };
    // A broken connection has ended too.
    let _ = launcher.serve(|| kernel.session.interrupt()).await;
    kernel.end.send_replace(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeromq::{DealerSocket, RepSocket, ReqSocket, Socket, ZmqMessage};

    #[tokio::test]
    async fn the_heartbeat_continues_after_nonsense_and_after_a_peer_has_gone() {
        let mut heartbeat = RepSocket::new();
        let place = heartbeat.bind("tcp://127.0.0.1:0").await.unwrap();
        let beating = tokio::spawn(echo(heartbeat));
        // A message without the delimiter of a request, and one whose sender does not wait for the reply.
        let mut rude = DealerSocket::new();
        rude.connect(&place.to_string()).await.unwrap();
        rude.send(ZmqMessage::from("no request")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut empty = ZmqMessage::from("");
        empty.push_back("ping".into());
        rude.send(empty).await.unwrap();
        drop(rude);

        let mut front_end = ReqSocket::new();
        front_end.connect(&place.to_string()).await.unwrap();
        front_end.send(ZmqMessage::from("ping")).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(20), front_end.recv()).await;
        let heard = heard.unwrap().unwrap().into_vec();
        assert_eq!(heard, ["ping".as_bytes()]);
        beating.abort();
    }

    #[tokio::test]
    async fn ports_are_free_after_their_tasks_have_ended() {
        let mut heartbeat = RepSocket::new();
        let place = heartbeat.bind("tcp://127.0.0.1:0").await.unwrap();
        let mut front_end = ReqSocket::new();
        front_end.connect(&place.to_string()).await.unwrap();
        let beating = tokio::spawn(echo(heartbeat));
        assert!(RepSocket::new().bind(&place.to_string()).await.is_err());
        beating.abort();
        let _ = beating.await;
        // A task of the library drops the listener.
        let mut bound = false;
        for _ in 0..100 {
            bound = RepSocket::new().bind(&place.to_string()).await.is_ok();
            if bound {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(bound);
    }
}
