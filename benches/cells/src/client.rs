//! A minimal front end for timing cells.
//!
//! It reads replies as plain JSON, so that it can time kernels that do not quite follow the protocol.

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

/// The result of one cell.
pub struct Cell {
    pub seconds: f64,
    /// The value of its last expression as text.
    pub value: Option<String>,
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
    /// The content of its `kernel_info_reply`.
    pub info: Value,
    shell: ClientShellConnection,
    control: ClientControlConnection,
    iopub: ClientIoPubConnection,
}

/// How often the client tries a port that the kernel has not opened yet.
const RETRY: Duration = Duration::from_millis(2);

impl Client {
    /// Connects to a kernel that has just been started, and subscribes to its outputs. Also returns the
    /// seconds from `started` to its first `kernel_info_reply`.
    pub async fn connect(mut process: Process, started: Instant) -> Result<(Self, f64)> {
        let info = process.connection.clone();
        let address = (info.ip.clone(), info.shell_port);
        while tokio::net::TcpStream::connect(&address).await.is_err() {
            tokio::select! {
                ended = process.ended() => return Err(process.end_error(ended).await),
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
        let mut client = Self { process, info: about, shell, control, iopub };
        client.subscribe().await?;
        Ok((client, ready))
    }

    /// Repeats a request until its status arrives on the output socket, because a subscription takes some
    /// time to take effect.
    async fn subscribe(&mut self) -> Result<()> {
        loop {
            let asked = send(&mut self.shell, KernelInfoRequest::default()).await?;
            while receive(&mut self.shell, &mut self.process).await?.parent != asked {}
            let idle = async {
                loop {
                    let message = receive(&mut self.iopub, &mut self.process).await?;
                    if message.parent == asked && is_idle(&message) {
                        return Ok(());
                    }
                }
            };
            if let Ok(result) = tokio::time::timeout(Duration::from_millis(200), idle).await {
                return result;
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

    /// Waits for a cell's reply and its last output; its seconds count from `started`.
    pub async fn finish(&mut self, cell: &str, started: Instant) -> Result<Cell> {
        let mut done = Cell { seconds: 0.0, value: None, error: None };
        let (mut replied, mut idle) = (false, false);
        while !(replied && idle) {
            let message = tokio::select! {
                message = self.shell.socket.recv() => parse(&self.shell, message)?,
                message = self.iopub.socket.recv() => parse(&self.iopub, message)?,
                ended = self.process.ended() => return Err(self.process.end_error(ended).await),
            };
            if message.parent != cell {
                continue;
            }
            let content = &message.content;
            match message.kind.as_str() {
                "execute_reply" => {
                    replied = true;
                    if content["status"] != "ok" && done.error.is_none() {
                        done.error = Some(error_text(content));
                    }
                }
                "execute_result" => {
                    done.value = content["data"]["text/plain"].as_str().map(str::to_owned);
                }
                "error" => done.error = Some(error_text(content)),
                _ => idle |= is_idle(&message),
            }
        }
        done.seconds = started.elapsed().as_secs_f64();
        Ok(done)
    }

    /// Interrupts the running cell, by a message or a signal as the kernelspec requires.
    pub async fn interrupt(&mut self, by_message: bool) -> Result<()> {
        if by_message {
            send(&mut self.control, InterruptRequest {}).await?;
        } else {
            self.process.signal_interrupt();
        }
        Ok(())
    }

    /// Asks the kernel to end, and waits some seconds for it.
    pub async fn shut_down(mut self) -> Result<()> {
        send(&mut self.control, ShutdownRequest { restart: false }).await?;
        // Dropping the process kills it if it remains.
        let _ = tokio::time::timeout(Duration::from_secs(10), self.process.ended()).await;
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("the connection failed: {error}"))
}

fn is_idle(message: &Message) -> bool {
    message.kind == "status" && message.content["execution_state"] == "idle"
}

fn error_text(content: &Value) -> String {
    let text = |key: &str| content[key].as_str().unwrap_or("(no text)");
    format!("{}: {}", text("ename"), text("evalue"))
}

/// Sends a request and returns its id.
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
        ended = process.ended() => Err(process.end_error(ended).await),
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
