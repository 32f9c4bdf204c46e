//! Reading a request off the wire.
//!
//! The protocol lets a client leave fields out that the protocol crate's types want; they are
//! filled in here before the message is typed.

use jupyter_protocol::{Header, JupyterMessage, JupyterMessageContent};
use jupyter_zmq_client::RawMessage;
use serde_json::{Map, Value, json};

/// Types a message whose signature has been checked; `Err` says what is wrong with it.
pub fn decode(raw: RawMessage) -> Result<JupyterMessage, String> {
    let [header, parent, metadata, content, buffers @ ..] = raw.jparts.as_slice() else {
        return Err("it has fewer than four parts".to_owned());
    };
    let header: Header =
        serde_json::from_slice(header).map_err(|error| format!("its header: {error}"))?;
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
    Ok(JupyterMessage {
        zmq_identities: raw.zmq_identities,
        // An empty object stands for no parent.
        parent_header: serde_json::from_slice(parent).ok(),
        metadata: serde_json::from_slice(metadata).map_err(described)?,
        content,
        buffers: buffers.to_vec(),
        header,
        channel: None,
    })
}

/// What the protocol says of fields that are not there.
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
        "comm_open" => json!({ "data": {} }),
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

    fn message(kind: &str, content: Value) -> RawMessage {
        let header = json!({
            "msg_id": "1", "username": "", "session": "s", "msg_type": kind, "version": "5.3",
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
    fn a_search_needs_nothing_but_its_pattern() {
        let asked = json!({"hist_access_type": "search", "pattern": "a*", "n": null});
        let content = decode(message("history_request", asked)).unwrap().content;
        assert!(matches!(
            content,
            JupyterMessageContent::HistoryRequest(HistoryRequest::Search { pattern, n: 0, .. })
                if pattern == "a*"
        ));
    }

    #[test]
    fn a_bare_execute_request_stops_on_errors_and_is_remembered() {
        let content = decode(message("execute_request", json!({"code": "1"})))
            .unwrap()
            .content;
        assert!(matches!(
            content,
            JupyterMessageContent::ExecuteRequest(asked)
                if asked.stop_on_error && asked.store_history && !asked.silent
        ));
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        let error = decode(message("execute_request", json!({"code": 1}))).err();
        assert!(error.unwrap().contains("execute_request"));
        let mut short = message("execute_request", json!({}));
        short.jparts.pop();
        assert!(decode(short).is_err());
    }
}
