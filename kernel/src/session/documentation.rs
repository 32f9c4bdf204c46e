//! Formats documentation as rustdoc does: without the lines of an example that only make it compile.
//!
//! rust-analyzer passes them on, and joins the text's headings to the examples below them.

const OPENING: &str = "<pre><code";
const CLOSING: &str = "</code></pre>";

/// Removes those lines from both forms of a documentation.
pub fn shown(text: &str, html: &str) -> (String, String) {
    let (mut said, mut marked) = (String::new(), String::new());
    let (mut text, mut html) = (text, html);
    while let Some((before, attributes, code, after)) = block(html) {
        let kept = match is_rust(attributes) {
            true => visible(code),
            false => code.to_owned(),
        };
        // The text lacks the line end of its last block.
        if let Some((above, below)) = text.split_once(unescape(code).trim_end()) {
            said += above;
            if !above.is_empty() && !above.ends_with('\n') {
                said.push('\n');
            }
            said += unescape(&kept).trim_end();
            text = below;
        }
        marked += &format!("{before}{OPENING}{attributes}>{kept}{CLOSING}");
        html = after;
    }
    (said + text, marked + html)
}

/// Splits at the first block of code: the text before it, its attributes, its lines, the text after it.
fn block(html: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, rest) = html.split_once(OPENING)?;
    let (attributes, rest) = rest.split_once('>')?;
    let (code, after) = rest.split_once(CLOSING)?;
    Some((before, attributes, code, after))
}

/// Returns whether rustdoc would compile the block: an unknown word means another language.
fn is_rust(attributes: &str) -> bool {
    let class = attributes.split('"').nth(1).unwrap_or_default();
    let language = class.strip_prefix("language-").unwrap_or_default();
    language.split(',').all(|word| {
        matches!(word, "" | "rust" | "should_panic" | "no_run" | "compile_fail" | "ignore")
            || word.starts_with("ignore-")
            || word.starts_with("edition20")
    })
}

/// Returns the lines that do not begin with `# `; `##` is an escaped `#`.
fn visible(code: &str) -> String {
    let lines = code.lines().filter_map(|line| {
        let begun = line.trim_start();
        match begun.strip_prefix('#') {
            Some(rest) if rest.is_empty() || rest.starts_with(' ') => None,
            Some(rest) if rest.starts_with('#') => Some(line.replacen("##", "#", 1) + "\n"),
            _ => Some(format!("{line}\n")),
        }
    });
    let lines: String = lines.collect();
    // The empty lines below the hidden ones.
    lines.trim_start_matches('\n').to_owned()
}

/// Undoes the Markdown renderer's escapes.
fn unescape(html: &str) -> String {
    html.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_only_make_an_example_compile_are_removed() {
        let html = "<h1>Examples</h1>\n<pre><code># #![allow(x)]\n#\n\nlet a: Vec&lt;u8&gt; = f();\n  \
                    ## two\n#[derive(Debug)]\n</code></pre>\n<p>after</p>";
        let text = "Examples# #![allow(x)]\n#\n\nlet a: Vec<u8> = f();\n  ## two\n#[derive(Debug)]\n\
                    \nafter";
        let (last, _) = shown(text.trim_end_matches("\n\nafter"), html);
        assert!(last.ends_with("\n#[derive(Debug)]") && !last.contains("allow"), "{last}");
        let (text, html) = shown(text, html);
        let code = "let a: Vec<u8> = f();\n  # two\n#[derive(Debug)]\n";
        assert_eq!(text, format!("Examples\n{code}\nafter"));
        let code = code.replace('<', "&lt;").replace('>', "&gt;");
        let expected = format!("<h1>Examples</h1>\n<pre><code>{code}</code></pre>\n<p>after</p>");
        assert_eq!(html, expected);
    }

    #[test]
    fn other_languages_keep_their_comments() {
        for (class, kept) in [
            ("", false),
            (" class=\"language-rust\"", false),
            (" class=\"language-should_panic,edition2024\"", false),
            (" class=\"language-toml\"", true),
            (" class=\"language-text\"", true),
        ] {
            let html = format!("<pre><code{class}># a\nb\n</code></pre>");
            let (text, html) = shown("# a\nb\n", &html);
            assert_eq!(text.contains("# a"), kept, "{class}");
            assert_eq!(html.contains("# a"), kept, "{class}");
        }
    }

    #[test]
    fn text_without_a_complete_block_stays() {
        for html in ["", "<p># a</p>", "<pre><code", "<pre><code>a", "<pre><code class=\"x"] {
            assert_eq!(shown("# a", html), ("# a".to_owned(), html.to_owned()));
        }
    }
}
