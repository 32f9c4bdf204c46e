//! A front end reduced to what timing cells takes.
//!
//! Replies are read as bare JSON: a kernel that bends the protocol is timed all the same.

use std::time::{Duration, Instant};

use cloze::{Error, Result};
use jupyter_protocol::{
    ExecuteRequest, InterruptRequest, JupyterMessage, JupyterMessageContent, KernelInfoRequest,
    ShutdownRequest,
};
use jupyter_zmq_client::{
    ClientControlConnection, ClientIoPubConnection, ClientShellConnection, Connection, RawMessage,
};
use serde_json::Value;
use zeromq::SocketRecv;

use super::process::Process;

/// One cell as a front end saw it.
pub struct Cell {
    pub seconds: f64,
    /// The value of its last expression as text.
    pub value: Option<String>,
    /// What went wrong, where something did.
    pub error: Option<String>,
}

/// A message's kind, the request that it belongs to, and its content.
struct Message {
    kind: String,
    parent: String,
    content: Value,
}

/// The sockets of a front end, and the kernel's process behind them.
pub struct Client {
    pub process: Process,
    /// What the kernel says of itself.
    pub info: Value,
    shell: ClientShellConnection,
    control: ClientControlConnection,
    iopub: ClientIoPubConnection,
}

/// How often a port is tried that the kernel has not opened yet.
const RETRY: Duration = Duration::from_millis(2);

impl Client {
    /// Connects to a kernel that has just been started; returns at its first `kernel_info_reply`
    /// how long ago `started` was, and only then makes sure that its outputs are heard.
    pub async fn connect(mut process: Process, started: Instant) -> Result<(Self, f64)> {
        let info = process.connection.clone();
        let address = (info.ip.clone(), info.shell_port);
        while tokio::net::TcpStream::connect(&address).await.is_err() {
            tokio::select! {
                ended = process.ended() => return Err(process.epitaph(ended).await),
                () = tokio::time::sleep(RETRY) => {}
            }
        }
        let session = "cloze-bench";
        let identity = jupyter_zmq_client::peer_identity_for_session(session).map_err(failed)?;
        let mut shell = jupyter_zmq_client::create_client_shell_connection_with_identity(
            &info, session, identity,
        )
        .await
        .map_err(failed)?;
        let asked = send(&mut shell, KernelInfoRequest::default()).await?;
        let about = loop {
            let reply = receive(&mut shell, &mut process).await?;
            if reply.parent == asked {
                break reply.content;
            }
        };
        let ready = started.elapsed().as_secs_f64();

        let control = jupyter_zmq_client::create_client_control_connection(&info, session)
            .await
            .map_err(failed)?;
        let iopub = jupyter_zmq_client::create_client_iopub_connection(&info, "", session)
            .await
            .map_err(failed)?;
        let mut client = Self {
            process,
            info: about,
            shell,
            control,
            iopub,
        };
        client.subscribe().await?;
        Ok((client, ready))
    }

    /// Asks again until the answer's status comes on the output socket: a subscription takes effect
    /// some time after it was made.
    async fn subscribe(&mut self) -> Result<()> {
        loop {
            let asked = send(&mut self.shell, KernelInfoRequest::default()).await?;
            while receive(&mut self.shell, &mut self.process).await?.parent != asked {}
            let heard = async {
                loop {
                    let message = receive(&mut self.iopub, &mut self.process).await?;
                    if message.parent == asked && is_idle(&message) {
                        return Ok(());
                    }
                }
            };
            if let Ok(heard) = tokio::time::timeout(Duration::from_millis(200), heard).await {
                return heard;
            }
        }
    }

    /// Runs a cell to its reply and its last output.
    pub async fn run(&mut self, code: &str) -> Result<Cell> {
        let started = Instant::now();
        let asked = self.start(code).await?;
        self.finish(&asked, started).await
    }

    /// Sends a cell; `finish` waits for it.
    pub async fn start(&mut self, code: &str) -> Result<String> {
        let request = ExecuteRequest::new(code.to_owned());
        send(&mut self.shell, request).await
    }

    /// Waits until the cell has printed something.
    pub async fn printed(&mut self, cell: &str) -> Result<()> {
        loop {
            let message = receive(&mut self.iopub, &mut self.process).await?;
            if message.parent == cell && message.kind == "stream" {
                return Ok(());
            }
        }
    }

    /// Waits for a cell's reply and its last output; the time is counted from `started`.
    pub async fn finish(&mut self, cell: &str, started: Instant) -> Result<Cell> {
        let mut done = Cell {
            seconds: 0.0,
            value: None,
            error: None,
        };
        let (mut replied, mut idle) = (false, false);
        while !(replied && idle) {
            let message = tokio::select! {
                message = self.shell.socket.recv() => parse(&self.shell, message)?,
                message = self.iopub.socket.recv() => parse(&self.iopub, message)?,
                ended = self.process.ended() => return Err(self.process.epitaph(ended).await),
            };
            if message.parent != cell {
                continue;
            }
            let content = &message.content;
            match message.kind.as_str() {
                "execute_reply" => {
                    replied = true;
                    if content["status"] != "ok" && done.error.is_none() {
                        done.error = Some(told(content));
                    }
                }
                "execute_result" => {
                    done.value = content["data"]["text/plain"].as_str().map(str::to_owned);
                }
                "error" => done.error = Some(told(content)),
                _ => idle |= is_idle(&message),
            }
        }
        done.seconds = started.elapsed().as_secs_f64();
        Ok(done)
    }

    /// Asks for the end of the running cell in the way that the kernelspec wants.
    pub async fn interrupt(&mut self, by_message: bool) -> Result<()> {
        if by_message {
            send(&mut self.control, InterruptRequest {}).await?;
        } else {
            self.process.signal_interrupt();
        }
        Ok(())
    }

    /// Asks the kernel to end and gives it a few seconds for it.
    pub async fn shut_down(mut self) -> Result<()> {
        send(&mut self.control, ShutdownRequest { restart: false }).await?;
        // Where it stays, dropping the process ends it.
        let _ = tokio::time::timeout(Duration::from_secs(10), self.process.ended()).await;
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("talking to it failed: {error}"))
}

fn is_idle(message: &Message) -> bool {
    message.kind == "status" && message.content["execution_state"] == "idle"
}

fn told(content: &Value) -> String {
    let word = |key: &str| {
        content[key]
            .as_str()
            .unwrap_or("(no word of it)")
            .to_owned()
    };
    format!("{}: {}", word("ename"), word("evalue"))
}

/// Sends a request and returns its number.
async fn send<S: zeromq::SocketSend>(
    connection: &mut Connection<S>,
    content: impl Into<JupyterMessageContent>,
) -> Result<String> {
    let message = JupyterMessage::new(content, None);
    let id = message.header.msg_id.clone();
    connection.send(message).await.map_err(failed)?;
    Ok(id)
}

async fn receive<S: SocketRecv>(
    connection: &mut Connection<S>,
    process: &mut Process,
) -> Result<Message> {
    tokio::select! {
        message = connection.socket.recv() => parse(connection, message),
        ended = process.ended() => Err(process.epitaph(ended).await),
    }
}

fn parse<S>(
    connection: &Connection<S>,
    message: zeromq::ZmqResult<zeromq::ZmqMessage>,
) -> Result<Message> {
    let raw = RawMessage::from_multipart(message.map_err(failed)?, &connection.mac);
    let raw = raw.map_err(failed)?;
    let part = |index: usize| -> Result<Value> {
        let bytes = raw.jparts.get(index).map_or(&b"{}"[..], |part| &part[..]);
        serde_json::from_slice(bytes).map_err(failed)
    };
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    Ok(Message {
        kind: word(&part(0)?, "msg_type"),
        parent: word(&part(1)?, "msg_id"),
        content: part(3)?,
    })
}
