//! Messages between a cell's code and the page, which Jupyter calls comms; widgets are built on them.
//!
//! A comm lives as long as the session's process. Its messages are handled on a thread of their own, also while a
//! cell runs, one after another.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value};

use super::display::{self, wire};
use crate::interrupt;

/// What the page sends in a comm's message.
pub type Data = Map<String, Value>;

type Handler = Arc<Mutex<dyn FnMut(Data) + Send>>;

/// A message, and whether a request to stop that came before it is for a running cell.
type Received = (wire::Comm, bool);

#[derive(Default)]
struct Comms {
    handlers: HashMap<String, Handler>,
    /// The queue of the thread that calls them, once there is one.
    queue: Option<Sender<Received>>,
}

static COMMS: LazyLock<Mutex<Comms>> = LazyLock::new(Mutex::default);

fn comms() -> std::sync::MutexGuard<'static, Comms> {
    COMMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an id for a new comm.
pub(super) fn new_id() -> String {
    display::new_id("comm")
}

/// Opens a comm to the page's `target`. `handle` is called with each message from the page.
/// Outside a session the page does not exist, and nothing happens.
pub(super) fn open(
    id: &str,
    target: &str,
    data: Value,
    metadata: Value,
    handle: impl FnMut(Data) + Send + 'static,
) {
    comms().handlers.insert(id.to_owned(), Arc::new(Mutex::new(handle)));
    let kind = wire::CommKind::Open { target: target.to_owned(), metadata };
    wire::send(&wire::Record::Comm(wire::Comm { id: id.to_owned(), kind, data }));
}

/// Sends a message to the page.
pub(super) fn send(id: &str, data: Value) {
    let kind = wire::CommKind::Message;
    wire::send(&wire::Record::Comm(wire::Comm { id: id.to_owned(), kind, data }));
}

/// Queues a message from the page. `cell_runs` is set while a cell's code runs.
#[doc(hidden)]
pub fn receive(message: &str, cell_runs: bool) {
    let Ok(message) = serde_json::from_str::<wire::Comm>(message) else {
        return;
    };
    let mut comms = comms();
    if message.kind == wire::CommKind::Close {
        comms.handlers.remove(&message.id);
        return;
    }
    let queue = comms.queue.get_or_insert_with(|| {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || serve(&receive));
        send
    });
    // The thread ends only with the process.
    let _ = queue.send((message, cell_runs));
}

fn serve(messages: &mpsc::Receiver<Received>) {
    interrupt::share_on_this_thread();
    let mut waiting = VecDeque::new();
    while let Some((message, cell_runs)) = waiting.pop_front().or_else(|| messages.recv().ok()) {
        waiting.extend(messages.try_iter());
        if !cell_runs {
            // A cell clears it itself.
            interrupt::clear();
        }
        let message = with_later(message, &mut waiting);
        let handler = comms().handlers.get(&message.id).cloned();
        if let (Some(handler), Value::Object(data)) = (handler, message.data) {
            let mut handle = handler.lock().unwrap_or_else(PoisonError::into_inner);
            // The hook has printed the message of a panic, and an interrupt has none.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| handle(data)));
        }
    }
}

/// Adds the updates of the same widget that already wait: a slider moves faster than a picture is drawn.
fn with_later(mut message: wire::Comm, waiting: &mut VecDeque<Received>) -> wire::Comm {
    while let Some((next, _)) = waiting.front()
        && next.id == message.id
        && let (Some(state), Some(later)) = (updated(&message.data), updated(&next.data))
    {
        let mut state = state.clone();
        state.extend(later.clone());
        message.data["state"] = state.into();
        waiting.pop_front();
    }
    message
}

/// Returns the state in an update of a widget.
pub(super) fn updated(data: &Value) -> Option<&Data> {
    (data["method"] == "update").then(|| data["state"].as_object())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(id: &str, data: Value) -> wire::Comm {
        wire::Comm { id: id.to_owned(), kind: wire::CommKind::Message, data }
    }

    fn update(id: &str, state: Value) -> wire::Comm {
        message(id, json!({"method": "update", "state": state}))
    }

    #[test]
    fn waiting_updates_of_one_widget_become_one() {
        let request = message("a", json!({"method": "request_state"}));
        let mut waiting: VecDeque<_> = [
            update("a", json!({"value": 2})),
            update("a", json!({"other": 3})),
            request.clone(),
            update("a", json!({"value": 4})),
        ]
        .map(|message| (message, false))
        .into();
        let first = with_later(update("a", json!({"value": 1, "kept": 0})), &mut waiting);
        assert_eq!(first.data["state"], json!({"value": 2, "kept": 0, "other": 3}));
        assert_eq!(waiting.len(), 2);
        assert_eq!(with_later(request.clone(), &mut waiting), request);
        let mut of_another = [(update("b", json!({"value": 5})), false)].into();
        let alone = with_later(update("a", json!({"value": 1})), &mut of_another);
        assert_eq!((alone.data["state"]["value"].clone(), of_another.len()), (json!(1), 1));
    }

    #[test]
    fn a_handler_that_panics_does_not_end_the_others() {
        let (send, receive_values) = mpsc::channel();
        let id = new_id();
        open(&id, "test", json!({}), json!({}), move |data| {
            let value = data["state"]["value"].clone();
            assert_ne!(value, json!(1));
            let _ = send.send(value);
        });
        for value in [1, 2] {
            let text = serde_json::to_string(&update(&id, json!({ "value": value }))).unwrap();
            receive(&text, true);
            // Two that wait would become one.
            if value == 1 {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        let value = receive_values.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        assert_eq!(value, json!(2));
        receive("no message", true);
    }
}
