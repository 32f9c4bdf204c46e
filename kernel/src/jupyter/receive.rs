//! Checks and decodes requests.
//!
//! The protocol lets clients omit fields that the protocol crate's types require; they are added before
//! the message is decoded.

use jupyter_protocol::{Header, JupyterMessage, JupyterMessageContent};
use jupyter_zmq_client::{Connection, RawMessage, RuntimeError};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use zeromq::ZmqMessage;

use super::signatures::Signatures;

/// The frame before the signature.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// Splits a message if its signature is right and new; `Err` is the reason for refusing it.
pub fn verify<S>(
    message: ZmqMessage,
    connection: &Connection<S>,
    seen: &Signatures,
) -> Result<RawMessage, String> {
    let mut frames = message.iter().skip_while(|frame| **frame != DELIMITER);
    let signature = frames.nth(1).map(|frame| frame.to_vec());
    let raw =
        RawMessage::from_multipart(message, &connection.mac).map_err(|error| match error {
            RuntimeError::VerifyError(_) | RuntimeError::DecodeError(_) => {
                "its signature is wrong".to_owned()
            }
            other => other.to_string(),
        })?;
    // Only now: a forged message must not make the real one look like a copy.
    if seen.is_new(&signature.unwrap_or_default()) {
        Ok(raw)
    } else {
        Err("it is a copy of an earlier message".to_owned())
    }
}

/// A decoded message.
pub struct Request {
    pub message: JupyterMessage,
    /// The subshell that it is for (JEP 91); the protocol crate's headers do not have it yet.
    pub subshell: Option<String>,
}

/// Decodes a message whose signature has been checked; `Err` is the reason for refusing it.
pub fn decode(raw: RawMessage) -> Result<Request, String> {
    let [header, parent, metadata, content, buffers @ ..] = raw.jparts.as_slice() else {
        return Err("it has fewer than four parts".to_owned());
    };
    let in_header = |error| format!("its header: {error}");
    let Subshell { subshell_id: subshell } = serde_json::from_slice(header).map_err(in_header)?;
    let header: Header = serde_json::from_slice(header).map_err(in_header)?;
    let described = |error: serde_json::Error| format!("a {}: {error}", header.msg_type);
    let mut fields: Map<String, Value> = serde_json::from_slice(content).map_err(described)?;
    for (name, value) in defaults(&header.msg_type) {
        let field = fields.entry(name).or_insert(Value::Null);
        if field.is_null() {
            *field = value;
        }
    }
    let content = JupyterMessageContent::from_type_and_content(&header.msg_type, fields.into())
        .map_err(described)?;
    let message = JupyterMessage {
        zmq_identities: raw.zmq_identities,
        // An empty object stands for no parent.
        parent_header: serde_json::from_slice(parent).ok(),
        metadata: serde_json::from_slice(metadata).map_err(described)?,
        content,
        buffers: buffers.to_vec(),
        header,
        channel: None,
    };
    Ok(Request { message, subshell })
}

/// The part of a header that names the subshell.
#[derive(Deserialize)]
struct Subshell {
    #[serde(default)]
    subshell_id: Option<String>,
}

/// Returns the protocol's defaults for missing fields.
fn defaults(message: &str) -> Map<String, Value> {
    let fields = match message {
        "execute_request" => json!({
            "silent": false, "store_history": true, "user_expressions": {},
            "allow_stdin": true, "stop_on_error": true,
        }),
        "history_request" => json!({
            "hist_access_type": "tail", "output": false, "raw": true, "n": 0,
            "session": 0, "start": 0, "stop": 0, "pattern": "*", "unique": false,
        }),
        "inspect_request" => json!({ "detail_level": 0 }),
        "shutdown_request" => json!({ "restart": false }),
        "comm_open" | "comm_msg" | "comm_close" => json!({ "data": {} }),
        _ => json!({}),
    };
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jupyter_protocol::HistoryRequest;
    use proptest::prelude::*;
    use zeromq::Socket;

    fn message(kind: &str, content: Value) -> RawMessage {
        let header = json!({
            "msg_id": "1", "username": "", "session": "s", "msg_type": kind, "version": "5.5",
            "date": "2026-01-01T00:00:00Z",
        });
        RawMessage {
            zmq_identities: vec![],
            jparts: [header, json!({}), json!({}), content]
                .map(|part| part.to_string().into_bytes().into())
                .to_vec(),
        }
    }

    #[test]
    fn a_search_needs_only_its_pattern() {
        let asked = json!({"hist_access_type": "search", "pattern": "a*", "n": null});
        let content = decode(message("history_request", asked)).unwrap().message.content;
        assert!(matches!(
            content,
            JupyterMessageContent::HistoryRequest(HistoryRequest::Search { pattern, n: 0, .. })
                if pattern == "a*"
        ));
    }

    #[test]
    fn a_bare_execute_request_stops_on_errors_and_is_remembered() {
        let content =
            decode(message("execute_request", json!({"code": "1"}))).unwrap().message.content;
        assert!(matches!(
            content,
            JupyterMessageContent::ExecuteRequest(asked)
                if asked.stop_on_error && asked.store_history && !asked.silent
        ));
    }

    #[test]
    fn a_message_that_is_no_request_is_refused_with_the_reason() {
        let error = decode(message("execute_request", json!({"code": 1}))).err();
        assert!(error.unwrap().contains("execute_request"));
        let mut short = message("execute_request", json!({}));
        short.jparts.pop();
        assert!(decode(short).is_err());
    }

    /// The receiving end of a socket whose key is `key`.
    fn socket(key: &str) -> Connection<zeromq::RouterSocket> {
        Connection::new(zeromq::RouterSocket::new(), key, "s")
    }

    fn frames(parts: &[Vec<u8>]) -> ZmqMessage {
        let mut message = ZmqMessage::from(parts[0].clone());
        for part in &parts[1..] {
            message.push_back(part.clone().into());
        }
        message
    }

    /// Bytes, many of which are parts of messages.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => proptest::collection::vec(any::<u8>(), 0..200),
            2 => Just(DELIMITER.to_vec()),
            3 => text(),
            1 => "[0-9a-f]{64}".prop_map(String::into_bytes),
        ]
    }

    /// JSON and almost JSON.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let kinds = "(execute|inspect|complete|history|comm_info|kernel_info|shutdown|x)_request";
        let header = (kinds, any::<i64>()).prop_map(|(kind, number)| {
            json!({
                "msg_id": number.to_string(), "username": "", "session": "s", "msg_type": kind,
                "version": "5.5", "date": "2026-01-01T00:00:00Z",
            })
            .to_string()
        });
        let fields = "(code|cursor_pos|detail_level|hist_access_type|n|silent|user_expressions)";
        let value = prop_oneof![
            any::<i64>().prop_map(|number| json!(number)),
            any::<bool>().prop_map(|truth| json!(truth)),
            any::<String>().prop_map(|text| json!(text)),
            Just(Value::Null),
            Just(json!({"a": []})),
        ];
        let content = proptest::collection::hash_map(fields, value, 0..4)
            .prop_map(|fields| json!(fields).to_string());
        prop_oneof![
            header,
            content,
            Just("{}".to_owned()),
            (0..100_000_usize).prop_map(|depth| "[".repeat(depth)),
            any::<String>(),
        ]
        .prop_map(String::into_bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn no_frames_make_the_decoder_panic(
            parts in proptest::collection::vec(frame(), 1..10),
            key in prop_oneof![Just(""), Just("key")],
        ) {
            let taken = verify(frames(&parts), &socket(key), &Signatures::default());
            if let Err(reason) = taken.and_then(decode) {
                prop_assert!(!reason.is_empty());
            }
        }

        #[test]
        fn nothing_unsigned_passes(parts in proptest::collection::vec(text(), 4..8)) {
            let unsigned = [vec![DELIMITER.to_vec(), vec![]], parts].concat();
            prop_assert!(verify(frames(&unsigned), &socket("key"), &Signatures::default()).is_err());
        }

        #[test]
        fn every_message_is_decoded_or_refused(
            parts in proptest::array::uniform4(text()),
        ) {
            let raw = RawMessage {
                zmq_identities: vec![],
                jparts: parts.map(Into::into).to_vec(),
            };
            if let Err(reason) = decode(raw) {
                prop_assert!(!reason.is_empty());
            }
        }
    }

    #[test]
    fn a_copy_of_a_message_is_refused_on_every_socket() {
        let connection = socket("key");
        // HMAC-SHA256 of the four parts `{}` with the key `key`.
        let signature = "ca767b02c5bc061ed184a9a029e7f93a7f2f7ed4e8fe74120fc1212f0b008fa3";
        let signature = signature.as_bytes().to_vec();
        let mut parts = vec![b"peer".to_vec(), DELIMITER.to_vec(), signature];
        parts.extend([(); 4].map(|()| b"{}".to_vec()));
        let seen = Signatures::default();
        assert!(verify(frames(&parts), &connection, &seen).is_ok());
        let copied = verify(frames(&parts), &socket("key"), &seen);
        assert!(copied.unwrap_err().contains("copy"));
        parts[6] = b"{ }".to_vec();
        let forged = verify(frames(&parts), &connection, &Signatures::default());
        assert!(forged.unwrap_err().contains("signature"));
    }
}
