//! Labels as people write them: what can be one, and how they are told in a message.

/// How many names a message tells.
const TOLD: usize = 10;

/// What is wrong with a text as a label. A label must say something, and stand in one field of a
/// file of predictions.
pub fn complaint(label: &str) -> Option<String> {
    if label.trim().is_empty() {
        Some("the label is empty".into())
    } else if label.contains(['\t', '\n', '\r']) {
        let label = shortened(label);
        Some(format!(
            "the label {label:?} holds a tab or a line end, which a file of predictions has no place for"
        ))
    } else {
        None
    }
}

/// The start of a long text, for messages.
pub fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The first names of a list, and how many there are where these are not all.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let first = names.iter().take(TOLD);
    let first: Vec<String> = first.map(|name| shortened(name.as_ref())).collect();
    match names.len() {
        0 => "none".into(),
        count if count > TOLD => format!("{}, … ({count} in all)", first.join(", ")),
        _ => first.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_something_in_one_field() {
        assert_eq!(complaint("spam, probably"), None);
        assert!(complaint(" ").unwrap().contains("is empty"));
        for broken in ["a\tb", "a\nb", "a\r"] {
            assert!(complaint(broken).unwrap().contains("holds a tab"));
        }
    }

    #[test]
    fn long_lists_are_told_by_their_start() {
        assert_eq!(listed(&["ham", "spam"]), "ham, spam");
        assert_eq!(listed::<&str>(&[]), "none");
        let many: Vec<String> = (0..20_000).map(|i| format!("label{i}")).collect();
        let told = listed(&many);
        assert!(told.starts_with("label0, label1,") && told.ends_with("label9, … (20000 in all)"));
        assert_eq!(listed(&["x".repeat(99)]).chars().count(), 61);
    }
}
