//! Web pages that a script of their own draws: single files that need no network, and the frame in which a
//! notebook shows one.

use serde_json::Value;

use super::display::Content;
use super::page::{hash, policy};
use super::style;

const PAGE: &str = include_str!("page.html");
/// Colours, texts and controls that the pages share.
const STYLE: &str = include_str!("base.css");
/// The functions that the pages share.
const SCRIPT: &str = include_str!("base.js");

/// What distinguishes a page from the others.
pub(crate) struct Document<'a> {
    /// The title of the window and of the frame.
    pub title: &'a str,
    /// The elements before the script.
    pub body: &'a str,
    /// The rules of style after the shared ones.
    pub style: &'a str,
    /// The parts of the script after the shared ones.
    pub scripts: &'a [&'a str],
    /// What the script reads.
    pub data: Value,
}

impl Document<'_> {
    /// Returns the page. Its policy runs and styles only what is in the file, and fetches nothing.
    pub fn html(&self) -> String {
        // The data contain no `<`, so that no text can end the element that it is in.
        let data = self.data.to_string().replace('<', "\\u003c");
        let style = format!("{STYLE}\n{}", self.style);
        // Wrapped in a function, it defines no global names.
        let script =
            format!("\"use strict\";\n(() => {{\n{SCRIPT}{}}})();\n", self.scripts.concat());
        let mut page = String::new();
        for piece in PAGE.split("{{") {
            let (name, after) = piece.split_once("}}").unwrap_or(("", piece));
            page += &match name {
                "policy" => {
                    let allowed =
                        format!("script-src {}; style-src {}", hash(&script), hash(&style));
                    policy(&allowed)
                }
                "title" => style::escape(self.title),
                "style" => style.clone(),
                "body" => self.body.to_owned(),
                "script" => script.clone(),
                "data" => data.clone(),
                _ => String::new(),
            };
            page += after;
        }
        page
    }
}

/// Returns a page in a frame, so that several pages in one notebook don't interfere. `height` is in CSS pixels
/// and holds until the page has measured itself; a terminal shows `text`.
pub(crate) fn framed(title: &str, page: &str, height: usize, text: String) -> Content {
    let html = format!(
        "<iframe title=\"{}\" srcdoc=\"{}\" style=\"display:block;width:100%;height:{height}px;\
         border:0;resize:vertical;overflow:auto\"></iframe>",
        style::escape(title),
        style::escape(page)
    );
    Content::html(html).with_text(text)
}
