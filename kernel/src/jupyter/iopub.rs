//! The socket on which everything is published, owned by one task: the order in which messages are
//! put into its queue is the order in which front ends see them.

use jupyter_protocol::{
    IoPubWelcome, JupyterMessage, JupyterMessageContent, Status, Stdio, StreamContent,
};
use jupyter_zmq_client::{KernelIoPubXPubConnection, SubscriptionEvent};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The queue's entrance.
#[derive(Clone)]
pub struct IoPub(UnboundedSender<JupyterMessage>);

/// A stream message grows to about this size when output comes faster than it is sent.
const JOINED: usize = 1 << 16;

impl IoPub {
    /// Publishes a message as it is.
    pub fn send(&self, message: JupyterMessage) {
        // The queue ends only with the kernel.
        let _ = self.0.send(message);
    }

    /// Publishes what a request led to.
    pub fn publish(&self, request: &JupyterMessage, content: impl Into<JupyterMessageContent>) {
        let message = JupyterMessage::new(content, Some(request));
        // The first frames of a published message are its topic, not a peer's address.
        let topic = message.header.msg_type.clone().into_bytes();
        self.send(message.with_zmq_identities(vec![topic.into()]));
    }

    /// Publishes that the kernel begins or has ended to work on a request.
    pub fn status(&self, request: &JupyterMessage, status: Status) {
        self.publish(request, status);
    }
}

/// Starts the task that owns the socket.
pub fn start(socket: KernelIoPubXPubConnection) -> IoPub {
    let (send, queue) = unbounded_channel();
    tokio::spawn(publish(socket, queue));
    IoPub(send)
}

async fn publish(
    mut socket: KernelIoPubXPubConnection,
    mut queue: UnboundedReceiver<JupyterMessage>,
) {
    let mut held = None;
    loop {
        let message = if let Some(held) = held.take() {
            held
        } else {
            tokio::select! {
                subscription = socket.recv_subscription() => match subscription {
                    // A subscriber that comes late learns that it is heard (JEP 65).
                    Ok(SubscriptionEvent::Subscribe(topic)) => {
                        JupyterMessage::new(IoPubWelcome::new(topic), None)
                    }
                    Ok(SubscriptionEvent::Unsubscribe(_)) | Err(_) => continue,
                },
                message = queue.recv() => match message {
                    Some(message) => message,
                    None => return,
                },
            }
        };
        let message = join(message, &mut queue, &mut held);
        if let Err(error) = socket.send(message).await {
            eprintln!("cloze-kernel: an output could not be published: {error}");
        }
    }
}

/// Joins waiting stream messages of the same cell, so that a flood of prints is few messages.
fn join(
    mut message: JupyterMessage,
    queue: &mut UnboundedReceiver<JupyterMessage>,
    held: &mut Option<JupyterMessage>,
) -> JupyterMessage {
    while let JupyterMessageContent::StreamContent(stream) = &mut message.content
        && stream.text.len() < JOINED
        && let Ok(next) = queue.try_recv()
    {
        let parent = |message: &JupyterMessage| {
            message
                .parent_header
                .as_ref()
                .map(|header| header.msg_id.clone())
        };
        match &next.content {
            JupyterMessageContent::StreamContent(more)
                if same(&stream.name, &more.name) && {
                    let ids = (parent(&next), message.parent_header.as_ref());
                    ids.0.as_deref() == ids.1.map(|header| header.msg_id.as_str())
                } =>
            {
                stream.text.push_str(&more.text);
            }
            _ => {
                *held = Some(next);
                break;
            }
        }
    }
    message
}

fn same(one: &Stdio, other: &Stdio) -> bool {
    matches!(
        (one, other),
        (Stdio::Stdout, Stdio::Stdout) | (Stdio::Stderr, Stdio::Stderr)
    )
}

/// A stream message's content.
pub fn stream(name: Stdio, text: String) -> StreamContent {
    StreamContent { name, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jupyter_protocol::ExecuteRequest;

    #[test]
    fn waiting_prints_of_a_cell_are_joined_and_nothing_else_is() {
        let (send, mut queue) = unbounded_channel();
        let cells = [(); 2].map(|()| JupyterMessage::new(ExecuteRequest::default(), None));
        let print = |cell: &JupyterMessage, name, text: &str| {
            JupyterMessage::new(stream(name, text.to_owned()), Some(cell))
        };
        send.send(print(&cells[0], Stdio::Stdout, "b")).unwrap();
        send.send(print(&cells[0], Stdio::Stderr, "c")).unwrap();
        send.send(print(&cells[1], Stdio::Stderr, "d")).unwrap();
        let mut held = Some(print(&cells[0], Stdio::Stdout, "a"));
        let mut texts = Vec::new();
        while let Some(message) = held.take() {
            let joined = join(message, &mut queue, &mut held);
            let JupyterMessageContent::StreamContent(stream) = joined.content else {
                panic!();
            };
            texts.push(stream.text);
        }
        assert_eq!(texts, ["ab", "c", "d"]);
    }
}
