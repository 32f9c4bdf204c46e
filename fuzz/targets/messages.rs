//! What comes to the kernel from outside: the connection file, and the frames of Jupyter's messages.

#![no_main]

use bytes::Bytes;
use cloze_fuzz::{all_parts, file};
use jupyter_zmq_client::{Connection, RawMessage};
use libfuzzer_sys::fuzz_target;
use zeromq::{RouterSocket, Socket, ZmqMessage};

#[path = "../../kernel/src/jupyter/connection.rs"]
#[allow(dead_code)]
mod connection;
#[path = "../../kernel/src/mutex.rs"]
mod mutex;
#[path = "../../kernel/src/jupyter/receive.rs"]
mod receive;
#[path = "../../kernel/src/jupyter/signatures.rs"]
mod signatures;

use signatures::Signatures;

// The first byte of an input chooses: a connection file, the parts of a message whose signature is right, or all
// frames of one.
fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((b'c', rest)) => {
            if let Ok(info) = connection::parse(&file("connection.json", rest)) {
                assert!(!info.key.is_empty());
                let again = serde_json::to_vec(&info).expect("ports and texts");
                let again = connection::parse(&file("again.json", &again)).expect("we wrote it");
                assert_eq!(again, info);
            }
        }
        Some((b'm', rest)) => {
            let jparts = all_parts(rest).map(Bytes::copy_from_slice).collect();
            let decoded = receive::decode(RawMessage { zmq_identities: vec![], jparts });
            match decoded {
                Ok(request) => {
                    let _ = (request.message, request.subshell);
                }
                Err(reason) => assert!(!reason.is_empty()),
            }
        }
        Some((b'f', rest)) => {
            let mut frames = all_parts(rest).map(Bytes::copy_from_slice);
            let mut message = ZmqMessage::from(frames.next().unwrap_or_default());
            frames.for_each(|frame| message.push_back(frame));
            let socket = Connection::new(RouterSocket::new(), "a key that no input knows", "s");
            let taken = receive::verify(message, &socket, &Signatures::default());
            assert!(taken.is_err(), "nothing without the right signature passes");
        }
        _ => {}
    }
});
