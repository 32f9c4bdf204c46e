//! The socket on which everything is published. One task owns it, so front ends get the messages in the
//! order in which they enter its queue.
//!
//! A cell whose output is faster than the front ends does not fill the memory: its prints are joined and
//! limited ([`super::limit`]), and only the newest of a display's waiting updates is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use jupyter_protocol::{IoPubWelcome, JupyterMessage, JupyterMessageContent, Status};
use jupyter_zmq_client::{KernelIoPubXPubConnection, SubscriptionEvent};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::content::PROTOCOL;
use crate::mutex::lock;

/// The sending end of the queue.
#[derive(Clone)]
pub struct IoPub(Arc<Queue>);

#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<JupyterMessage>>,
    arrived: Notify,
}

/// The size in bytes to which stream messages are joined if output comes faster than it is sent.
const JOINED: usize = 1 << 16;
/// How many messages back an older update is replaced by a newer one.
const LOOK_BACK: usize = 64;
/// If this many messages wait, an update that replaces none of the last ones is dropped.
const CROWDED: usize = 1 << 12;

impl IoPub {
    /// Publishes a message as it is.
    pub fn send(&self, message: JupyterMessage) {
        self.0.push(message);
    }

    /// Publishes a message that a request has caused.
    pub fn publish(&self, request: &JupyterMessage, content: impl Into<JupyterMessageContent>) {
        self.publish_with(request, content, serde_json::json!({}));
    }

    /// Publishes such a message with metadata, a JSON object.
    pub fn publish_with(
        &self,
        request: &JupyterMessage,
        content: impl Into<JupyterMessageContent>,
        metadata: serde_json::Value,
    ) {
        let message = JupyterMessage::new(content, Some(request)).with_metadata(metadata);
        // The first frames of a published message are its topic, not a peer's address.
        let topic = message.header.msg_type.clone().into_bytes();
        self.send(message.with_zmq_identities(vec![topic.into()]));
    }

    /// Publishes that the kernel begins or ends to work on a request.
    pub fn status(&self, request: &JupyterMessage, status: Status) {
        self.publish(request, status);
    }
}

/// Starts the task that owns the socket.
pub fn start(socket: KernelIoPubXPubConnection) -> (IoPub, JoinHandle<()>) {
    let queue = Arc::new(Queue::default());
    let publishing = tokio::spawn(publish(socket, Arc::clone(&queue)));
    (IoPub(queue), publishing)
}

impl Queue {
    fn push(&self, message: JupyterMessage) {
        let mut waiting = lock(&self.waiting);
        if let Some(id) = updated(&message) {
            // It must not overtake a message that clears or shows something.
            let same = waiting
                .iter_mut()
                .rev()
                .take(LOOK_BACK)
                .take_while(|older| updated(older).is_some() || is_stream(older))
                .find(|older| updated(older) == Some(id) && parent(older) == parent(&message));
            if let Some(older) = same {
                older.content = message.content;
                return;
            }
            if waiting.len() >= CROWDED {
                return;
            }
        }
        waiting.push_back(message);
        self.arrived.notify_one();
    }

    fn pop(&self) -> Option<JupyterMessage> {
        let mut waiting = lock(&self.waiting);
        waiting.pop_front()
    }

    async fn next(&self) -> JupyterMessage {
        loop {
            if let Some(message) = self.pop() {
                return message;
            }
            // A notification since `pop` is kept for this call.
            self.arrived.notified().await;
        }
    }
}

async fn publish(mut socket: KernelIoPubXPubConnection, queue: Arc<Queue>) {
    let mut held = None;
    loop {
        let message = if let Some(held) = held.take() {
            held
        } else {
            tokio::select! {
                subscription = socket.recv_subscription() => match subscription {
                    // Reports to a subscriber that it is connected (JEP 65).
                    Ok(SubscriptionEvent::Subscribe(topic)) => {
                        JupyterMessage::new(IoPubWelcome::new(topic), None)
                    }
                    Ok(SubscriptionEvent::Unsubscribe(_)) | Err(_) => continue,
                },
                message = queue.next() => message,
            }
        };
        let mut message = join(message, &queue, &mut held);
        PROTOCOL.clone_into(&mut message.header.version);
        if let Err(error) = socket.send(message).await {
            cloze::note!("cloze-kernel: an output could not be published: {error}");
        }
    }
}

/// Joins waiting stream messages of the same cell, so that many prints become few messages.
fn join(
    mut message: JupyterMessage,
    queue: &Queue,
    held: &mut Option<JupyterMessage>,
) -> JupyterMessage {
    while let JupyterMessageContent::StreamContent(stream) = &mut message.content
        && stream.text.len() < JOINED
        && let Some(next) = queue.pop()
    {
        let cell = message.parent_header.as_ref();
        match &next.content {
            JupyterMessageContent::StreamContent(more)
                if std::mem::discriminant(&stream.name) == std::mem::discriminant(&more.name)
                    && parent(&next) == cell.map(|header| header.msg_id.as_str()) =>
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

/// Returns the id of the request that a message belongs to.
fn parent(message: &JupyterMessage) -> Option<&str> {
    let header = message.parent_header.as_ref();
    header.map(|header| header.msg_id.as_str())
}

/// Returns the id of the display that a message updates.
fn updated(message: &JupyterMessage) -> Option<&str> {
    match &message.content {
        JupyterMessageContent::UpdateDisplayData(update) => update.transient.display_id.as_deref(),
        _ => None,
    }
}

fn is_stream(message: &JupyterMessage) -> bool {
    matches!(message.content, JupyterMessageContent::StreamContent(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jupyter_protocol::{
        ClearOutput, ExecuteRequest, Media, MediaType, Stdio, StreamContent, UpdateDisplayData,
    };

    #[test]
    fn waiting_prints_of_a_cell_are_joined_and_nothing_else_is() {
        let queue = Queue::default();
        let cells = [(); 2].map(|()| JupyterMessage::new(ExecuteRequest::default(), None));
        let print = |cell: &JupyterMessage, name, text: &str| {
            let text = text.to_owned();
            JupyterMessage::new(StreamContent { name, text }, Some(cell))
        };
        queue.push(print(&cells[0], Stdio::Stdout, "b"));
        queue.push(print(&cells[0], Stdio::Stderr, "c"));
        queue.push(print(&cells[1], Stdio::Stderr, "d"));
        let mut held = Some(print(&cells[0], Stdio::Stdout, "a"));
        let mut texts = Vec::new();
        while let Some(message) = held.take() {
            let joined = join(message, &queue, &mut held);
            let JupyterMessageContent::StreamContent(stream) = joined.content else {
                panic!();
            };
            texts.push(stream.text);
        }
        assert_eq!(texts, ["ab", "c", "d"]);
    }

    #[test]
    fn the_newest_of_the_waiting_updates_is_kept_and_overtakes_nothing_else() {
        let queue = Queue::default();
        let cell = JupyterMessage::new(ExecuteRequest::default(), None);
        let update = |id: &str, text: &str| {
            let data = Media::from(MediaType::Plain(text.to_owned()));
            JupyterMessage::new(UpdateDisplayData::new(data, id), Some(&cell))
        };
        queue.push(update("a", "1"));
        queue.push(update("b", "2"));
        queue.push(update("a", "3"));
        queue.push(JupyterMessage::new(ClearOutput { wait: true }, Some(&cell)));
        queue.push(update("a", "4"));
        let shown: Vec<String> = std::iter::from_fn(|| queue.pop())
            .map(|message| match message.content {
                JupyterMessageContent::UpdateDisplayData(update) => {
                    serde_json::to_value(update.data).unwrap()["text/plain"].to_string()
                }
                _ => "clear".to_owned(),
            })
            .collect();
        assert_eq!(shown, ["\"3\"", "\"2\"", "clear", "\"4\""]);
        for number in 0..2 * CROWDED {
            queue.push(update(&number.to_string(), "x"));
        }
        assert_eq!(queue.waiting.lock().unwrap().len(), CROWDED);
    }

    /// `publish` abandons a wait whenever a front end subscribes.
    #[test]
    fn no_message_of_any_thread_is_lost_or_overtaken_when_waits_are_abandoned() {
        const EACH: usize = 3000;
        let queue = Arc::new(Queue::default());
        let cell = JupyterMessage::new(ExecuteRequest::default(), None);
        let writers: Vec<_> = ["a", "b", "c"]
            .map(|writer| {
                let (queue, cell) = (Arc::clone(&queue), cell.clone());
                std::thread::spawn(move || {
                    for number in 0..EACH {
                        let (name, text) = (Stdio::Stdout, format!("{writer} {number}"));
                        queue.push(JupyterMessage::new(StreamContent { name, text }, Some(&cell)));
                    }
                })
            })
            .into();
        let mut texts: Vec<String> = Vec::new();
        let take = async {
            while texts.len() < writers.len() * EACH {
                tokio::select! {
                    message = queue.next() => match message.content {
                        JupyterMessageContent::StreamContent(stream) => texts.push(stream.text),
                        other => panic!("{other:?}"),
                    },
                    () = tokio::task::yield_now() => {}
                }
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let most = std::time::Duration::from_secs(60);
        runtime.block_on(async { tokio::time::timeout(most, take).await }).unwrap();
        for writer in ["a", "b", "c"] {
            let of_writer = texts.iter().filter(|text| text.starts_with(writer));
            assert!(of_writer.eq(
                (0..EACH).map(|number| format!("{writer} {number}")).collect::<Vec<_>>().iter()
            ));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}
