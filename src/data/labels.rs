//! Labels: which texts can be one, and how messages show them.

/// How many names a message lists.
const LISTED: usize = 10;

/// Returns what is wrong with a text as a label, if anything. A label must not be empty, and must fit in
/// one field of a file of predictions.
pub fn complaint(label: &str) -> Option<String> {
    if label.trim().is_empty() {
        return Some("the label is empty (--skip-bad leaves such rows out)".into());
    }
    label.contains(['\t', '\n', '\r']).then(|| {
        let label = shortened(label);
        format!("the label {label:?} holds a tab or a line end, which a file of predictions has no place for")
    })
}

/// Returns the start of a long text, for messages.
pub fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Lists the first names, and the number of names if there are more.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let first = names.iter().take(LISTED);
    let first: Vec<String> = first.map(|name| shortened(name.as_ref())).collect();
    match names.len() {
        0 => "none".into(),
        count if count > LISTED => format!("{}, … ({count} in all)", first.join(", ")),
        _ => first.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_not_empty_and_fits_in_one_field() {
        assert_eq!(complaint("spam, probably"), None);
        assert!(complaint(" ").unwrap().contains("is empty"));
        for broken in ["a\tb", "a\nb", "a\r"] {
            assert!(complaint(broken).unwrap().contains("holds a tab"));
        }
    }

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(listed(&["ham", "spam"]), "ham, spam");
        assert_eq!(listed::<&str>(&[]), "none");
        let many: Vec<String> = (0..20_000).map(|i| format!("label{i}")).collect();
        let list = listed(&many);
        assert!(list.starts_with("label0, label1,") && list.ends_with("label9, … (20000 in all)"));
        assert_eq!(listed(&["x".repeat(99)]).chars().count(), 61);
    }
}
