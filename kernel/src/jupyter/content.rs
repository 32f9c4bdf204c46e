//! Converts the session's events and answers to messages of the protocol.

use cloze::display::Content;
use cloze::display::wire::{Comm, CommKind};
use jupyter_protocol::{
    ClearOutput, CodeMirrorMode, CommClose, CommId, CommMsg, CommOpen, CompleteReply, DisplayData,
    ExecuteResult, ExecutionCount, HelpLink, InputRequest, JupyterMessageContent, KernelInfoReply,
    LanguageInfo, Media, ReplyStatus, Stdio, StreamContent, Transient, UnknownMessage,
    UpdateDisplayData,
};

use crate::session::{Completions, Event, Stream, template};

/// The version of the messaging protocol that every message declares.
///
/// 5.4 requires shutdown requests on the control socket; 5.5 an XPUB socket with its `iopub_welcome`,
/// `kernel_info_request` on the control socket, and `supported_features`. That list declares its optional
/// additions, the debugger and subshells.
pub const PROTOCOL: &str = "5.5";

/// Describes the kernel and its protocol.
pub fn kernel_info() -> JupyterMessageContent {
    let mut info = serde_json::json!(about());
    // No `debugger`. The protocol crate does not have this field yet.
    info["supported_features"] = serde_json::json!(["kernel subshells"]);
    UnknownMessage { msg_type: "kernel_info_reply".to_owned(), content: info }.into()
}

fn about() -> KernelInfoReply {
    KernelInfoReply {
        status: ReplyStatus::Ok,
        protocol_version: PROTOCOL.to_owned(),
        implementation: "cloze".to_owned(),
        implementation_version: env!("CARGO_PKG_VERSION").to_owned(),
        language_info: LanguageInfo {
            name: "rust".to_owned(),
            version: template::compiler_version()
                .unwrap_or(env!("CARGO_PKG_RUST_VERSION"))
                .to_owned(),
            mimetype: Some("text/x-rust".to_owned()),
            file_extension: Some(".rs".to_owned()),
            pygments_lexer: Some("rust".to_owned()),
            codemirror_mode: Some(CodeMirrorMode::Simple("rust".to_owned())),
            nbconvert_exporter: None,
        },
        banner: format!(
            "Cloze {}: BERT in Rust. `use cloze::prelude::*;` brings the tensors.",
            env!("CARGO_PKG_VERSION")
        ),
        help_links: vec![HelpLink {
            text: "dfdx, the tensors".to_owned(),
            url: "https://docs.rs/dfdx/0.13.0/dfdx/".to_owned(),
        }],
        debugger: false,
        error: None,
    }
}

/// Returns a content's formats as the protocol's bundle.
pub fn media(content: &Content) -> Media {
    let bundle: serde_json::Map<String, serde_json::Value> =
        content.formats().map(|(mime, data)| (mime.to_owned(), value(mime, data))).collect();
    // If the protocol has another type for a format, the bundle is empty.
    serde_json::from_value(bundle.into()).unwrap_or_default()
}

/// Returns the data of a format: JSON as such, everything else as a string.
fn value(mime: &str, data: &str) -> serde_json::Value {
    let json = mime.ends_with("json").then(|| serde_json::from_str(data).ok());
    json.flatten().unwrap_or_else(|| data.into())
}

/// Returns the bundle's metadata: how large to show its PNG.
fn metadata(content: &Content) -> serde_json::Map<String, serde_json::Value> {
    let size = content.png_size().map(|(width, height)| {
        let size = serde_json::json!({ "width": width, "height": height });
        ("image/png".to_owned(), size)
    });
    size.into_iter().collect()
}

/// Returns the message for an event of the cell numbered `count`.
pub fn message(event: Event, count: usize) -> JupyterMessageContent {
    match event {
        Event::Input { prompt } => InputRequest { prompt, password: false }.into(),
        Event::Stream { stream, text } => {
            let name = match stream {
                Stream::Stdout => Stdio::Stdout,
                Stream::Stderr => Stdio::Stderr,
            };
            StreamContent { name, text }.into()
        }
        Event::Display { content, id } => DisplayData {
            data: media(&content),
            metadata: metadata(&content),
            transient: Some(Transient { display_id: id }),
        }
        .into(),
        Event::Update { content, id } => UpdateDisplayData {
            metadata: metadata(&content),
            ..UpdateDisplayData::new(media(&content), &id)
        }
        .into(),
        Event::Result(content) => ExecuteResult {
            execution_count: ExecutionCount::new(count),
            data: media(&content),
            metadata: metadata(&content),
            // The protocol requires an object here, not a null.
            transient: Some(Transient::default()),
        }
        .into(),
        Event::Clear { wait } => ClearOutput { wait }.into(),
        Event::Comm(Comm { id, kind, data }) => {
            let comm_id = CommId(id);
            let data = data.as_object().cloned().unwrap_or_default();
            match kind {
                CommKind::Open { target, .. } => {
                    CommOpen { comm_id, target_name: target, data, target_module: None }.into()
                }
                CommKind::Message => CommMsg { comm_id, data }.into(),
                CommKind::Close => CommClose { comm_id, data }.into(),
            }
        }
    }
}

/// Returns the completions in `code`. Their kinds and types are JupyterLab's extension of the protocol,
/// which other front ends ignore.
pub fn completions(code: &str, found: Completions) -> CompleteReply {
    let (start, end) = (to_characters(code, found.start), to_characters(code, found.end));
    let described = found.matches.iter().zip(&found.details);
    let described: serde_json::Value = described
        .map(|(name, detail)| {
            serde_json::json!({
                "text": name,
                "type": detail.kind,
                "signature": detail.text,
                "start": start,
                "end": end,
            })
        })
        .collect();
    let mut metadata = serde_json::Map::new();
    metadata.insert("_jupyter_types_experimental".to_owned(), described);
    CompleteReply {
        matches: found.matches,
        cursor_start: start,
        cursor_end: end,
        metadata,
        ..Default::default()
    }
}

/// Returns the byte at which the `characters`-th character of `text` begins.
pub fn to_bytes(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(byte, _)| byte)
}

/// Returns how many characters of `text` come before `byte`.
pub fn to_characters(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(index, _)| *index < byte).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_declares_its_optional_features() {
        let reply = kernel_info();
        assert_eq!(reply.message_type(), "kernel_info_reply");
        let content = serde_json::to_value(reply).unwrap();
        assert_eq!(content["protocol_version"], PROTOCOL);
        assert_eq!(content["supported_features"], serde_json::json!(["kernel subshells"]));
        assert_eq!(content["language_info"]["name"], "rust");
        // The installed compiler, not the oldest supported one.
        let version = template::compiler_version().unwrap();
        assert_eq!(content["language_info"]["version"], version);
    }

    #[test]
    fn positions_are_characters_on_the_wire() {
        let text = "aé€😀b";
        for (characters, byte) in [(0, 0), (1, 1), (2, 3), (3, 6), (4, 10), (5, 11)] {
            assert_eq!(to_bytes(text, characters), byte);
            assert_eq!(to_characters(text, byte), characters);
        }
        assert_eq!(to_bytes(text, 99), text.len());
    }

    #[test]
    fn completions_carry_their_kinds_and_types() {
        let found = Completions {
            matches: vec!["len".to_owned()],
            details: vec![crate::session::completion::Detail {
                kind: "function".to_owned(),
                text: "fn(&self) -> usize".to_owned(),
            }],
            start: 3,
            end: 5,
        };
        let value = serde_json::to_value(completions("é.le", found)).unwrap();
        assert_eq!(value["matches"], serde_json::json!(["len"]));
        assert_eq!(
            value["metadata"]["_jupyter_types_experimental"],
            serde_json::json!([{
                "text": "len", "type": "function", "signature": "fn(&self) -> usize",
                "start": 2, "end": 4,
            }])
        );
    }

    #[test]
    fn a_bundle_has_every_format_of_its_content() {
        let content = Content::html("<b>1</b>").with_text("1").with("image/svg+xml", "<svg/>");
        let value = serde_json::to_value(message(Event::Result(content), 3)).unwrap();
        assert_eq!(value["execution_count"], 3);
        assert_eq!(
            value["data"],
            serde_json::json!({
                "text/html": "<b>1</b>", "text/plain": "1", "image/svg+xml": "<svg/>"
            })
        );
        assert_eq!(value["metadata"], serde_json::json!({}));
    }

    #[test]
    fn a_picture_with_a_high_resolution_is_shown_in_its_stated_size() {
        use cloze::view::LineChart;
        let content = Content::png(&LineChart::new("loss").png().unwrap());
        let (update, display) = (content.clone(), content.clone());
        for event in [
            Event::Result(content),
            Event::Update { content: update, id: "one".to_owned() },
            Event::Display { content: display, id: None },
        ] {
            let value = serde_json::to_value(message(event, 3)).unwrap();
            let size = serde_json::json!({ "image/png": { "width": 720, "height": 360 } });
            assert_eq!(value["metadata"], size);
        }
    }
}
