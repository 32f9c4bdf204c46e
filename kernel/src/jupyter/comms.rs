//! Comms: the messages between the page and the widgets of cells.

use std::collections::HashMap;
use std::sync::Mutex;

use cloze::display::wire::{Comm, CommKind};
use jupyter_protocol::{
    CommClose, CommId, CommInfo, CommInfoReply, CommInfoRequest, JupyterMessage,
    JupyterMessageContent,
};

use super::content;
use super::iopub::IoPub;
use crate::mutex::lock;
use crate::session::{Event, Session};

/// The open comms: their targets by their ids.
#[derive(Default)]
pub struct Comms(Mutex<HashMap<String, String>>);

impl Comms {
    /// Publishes a message of a widget that the cell `parent` has created.
    pub fn publish(&self, iopub: &IoPub, parent: &JupyterMessage, comm: Comm, count: usize) {
        let mut metadata = serde_json::json!({});
        match &comm.kind {
            CommKind::Open { target, metadata: own } => {
                metadata = own.clone();
                lock(&self.0).insert(comm.id.clone(), target.clone());
            }
            CommKind::Message => {}
            CommKind::Close => drop(lock(&self.0).remove(&comm.id)),
        }
        let content = content::message(Event::Comm(comm), count);
        iopub.publish_with(parent, content, metadata);
    }

    /// Takes a message of the page. The page learns at once if the widget no longer exists. It cannot open a comm
    /// itself: no cell waits for one.
    pub fn receive(&self, session: &Session, iopub: &IoPub, request: &JupyterMessage) {
        let (id, kind, data) = match &request.content {
            JupyterMessageContent::CommMsg(message) => {
                (&message.comm_id, CommKind::Message, message.data.clone())
            }
            JupyterMessageContent::CommClose(close) => {
                lock(&self.0).remove(&close.comm_id.0);
                (&close.comm_id, CommKind::Close, close.data.clone())
            }
            JupyterMessageContent::CommOpen(open) => return refuse(iopub, request, &open.comm_id),
            _ => return,
        };
        let closes = kind == CommKind::Close;
        let known = closes || lock(&self.0).contains_key(&id.0);
        let message = Comm { id: id.0.clone(), kind, data: data.into() };
        let passed = known && session.comm(&message);
        if !passed && !closes {
            lock(&self.0).remove(&id.0);
            refuse(iopub, request, id);
        }
    }

    /// Lists the open comms, or those of one target.
    pub fn info(&self, asked: &CommInfoRequest) -> CommInfoReply {
        let wanted = |target: &str| asked.target_name.as_deref().is_none_or(|name| name == target);
        let open = lock(&self.0);
        let found = open.iter().filter(|(_, target)| wanted(target));
        let described = |(id, target): (&String, &String)| {
            (CommId(id.clone()), CommInfo { target_name: target.clone() })
        };
        CommInfoReply { comms: found.map(described).collect(), ..CommInfoReply::default() }
    }
}

/// Closes a comm on the page.
fn refuse(iopub: &IoPub, request: &JupyterMessage, id: &CommId) {
    iopub.publish(request, CommClose { comm_id: id.clone(), ..CommClose::default() });
}
