//! Formulas as text: the part of LaTeX that the lessons use, in Unicode.
//!
//! The crates for this (`unicodeit`, …) replace symbols only, not fractions, roots and accents.

use std::iter::Peekable;
use std::str::Chars;

/// After the name of a function or a sum: a space, unless a bracket follows.
const APART: char = '\u{2009}';
/// Before a bracket that closes: no space.
const CLOSING: char = '\u{2060}';
/// A wide space, which stays when other spaces are merged.
const QUAD: char = '\u{2003}';

/// Symbols and names.
const SYMBOLS: [(&str, &str); 44] = [
    ("alpha", "α"),
    ("beta", "β"),
    ("gamma", "γ"),
    ("delta", "δ"),
    ("epsilon", "ε"),
    ("varepsilon", "ε"),
    ("eta", "η"),
    ("theta", "θ"),
    ("lambda", "λ"),
    ("mu", "μ"),
    ("pi", "π"),
    ("rho", "ρ"),
    ("sigma", "σ"),
    ("tau", "τ"),
    ("varphi", "φ"),
    ("phi", "φ"),
    ("omega", "ω"),
    ("Phi", "Φ"),
    ("Delta", "Δ"),
    ("Sigma", "Σ"),
    ("ell", "ℓ"),
    ("infty", "∞"),
    ("dots", "…"),
    ("top", "ᵀ"),
    ("lVert", "‖"),
    ("rVert", "\u{2060}‖"),
    ("lfloor", "⌊"),
    ("rfloor", "\u{2060}⌋"),
    ("cdot", " · "),
    ("times", " × "),
    ("odot", " ⊙ "),
    ("in", " ∈ "),
    ("ge", " ≥ "),
    ("le", " ≤ "),
    ("ne", " ≠ "),
    ("approx", " ≈ "),
    ("leftarrow", " ← "),
    ("to", " → "),
    ("quad", "\u{2003}"),
    ("qquad", "\u{2003}\u{2003}"),
    ("partial", "∂"),
    ("nabla", "∇"),
    ("sum", "∑\u{2009}"),
    ("prod", "∏\u{2009}"),
];
/// These change only size and style.
const SILENT: [&str; 10] = [
    "left",
    "right",
    "big",
    "Big",
    "bigl",
    "bigr",
    "displaystyle",
    "textstyle",
    "limits",
    "mathrm",
];
const LOWERED: [(&str, &str); 2] =
    [("0123456789+−=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎"), ("aehijklmnoprstuvxβγρφχ", "ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ")];
const RAISED: [(&str, &str); 2] = [
    ("0123456789+−=()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾"),
    ("abcdefghijklmnoprstuvwxyzᵀ", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ"),
];
/// Longer indices are easier to read on the line.
const SCRIPT: usize = 3;

/// Returns the formula `tex` as text.
pub fn text(tex: &str) -> String {
    let text = sequence(&mut tex.chars().peekable());
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let spaced = out.ends_with([' ', QUAD]);
        match character {
            APART | ' ' if spaced || out.is_empty() => {}
            APART => out.push(' '),
            QUAD if out.ends_with(' ') => {
                out.pop();
                out.push(QUAD);
            }
            ',' | '.' | ')' | ']' if out.ends_with(' ') => {
                out.pop();
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out.trim().replace(QUAD, "  ")
}

/// Reads up to the end of a group.
fn sequence(rest: &mut Peekable<Chars>) -> String {
    let mut out = String::new();
    while let Some(character) = rest.next() {
        match character {
            '}' => break,
            '^' | '_' => {
                let apart = out.ends_with(APART);
                if apart {
                    out.pop();
                }
                out += &script(character, &atom(rest));
                if apart {
                    out.push(APART);
                }
            }
            '(' | '[' | '|' if out.ends_with(APART) && character != '|' => {
                out.pop();
                out.push(character);
            }
            '\n' | '~' => out.push(' '),
            '-' => out.push('−'),
            '{' => out += &sequence(rest),
            '\\' => {
                let next = command(rest);
                if next.starts_with(['(', '[']) && out.ends_with(APART) {
                    out.pop();
                }
                if let Some(closing) = next.strip_prefix(CLOSING) {
                    out.truncate(out.trim_end_matches(' ').len());
                    out += closing;
                } else {
                    out += &next;
                }
            }
            _ => out.push(character),
        }
    }
    out
}

/// Reads the argument of a command or of `^` and `_`: a group, a command or a character.
fn atom(rest: &mut Peekable<Chars>) -> String {
    while rest.next_if(|character| character.is_whitespace()).is_some() {}
    match rest.next() {
        Some('{') => sequence(rest),
        Some('\\') => command(rest),
        Some('-') => "−".to_owned(),
        Some(character) => character.to_string(),
        None => String::new(),
    }
}

/// Reads a command after its backslash.
fn command(rest: &mut Peekable<Chars>) -> String {
    let mut name = String::new();
    while let Some(letter) = rest.next_if(char::is_ascii_alphabetic) {
        name.push(letter);
    }
    if name.is_empty() {
        return match rest.next() {
            Some('!') | None => String::new(),
            Some(',' | ';' | ':' | ' ') => " ".to_owned(),
            Some('\\') => QUAD.to_string(),
            Some('|') => "‖".to_owned(),
            Some(other) => other.to_string(),
        };
    }
    match name.as_str() {
        "frac" | "tfrac" | "dfrac" => {
            let (above, below) = (atom(rest), atom(rest));
            format!("{}/{}", grouped(&above), grouped(&below))
        }
        "sqrt" => {
            let inside = atom(rest);
            let short =
                inside.chars().all(|character| character.is_alphanumeric() || is_mark(character));
            if short { format!("√{inside}") } else { format!("√({})", inside.trim()) }
        }
        "hat" => atom(rest) + "\u{302}",
        "bar" => atom(rest) + "\u{304}",
        "mathbb" => match atom(rest).as_str() {
            "R" => "ℝ".to_owned(),
            "N" => "ℕ".to_owned(),
            other => other.to_owned(),
        },
        "text" => atom(rest),
        "operatorname" => {
            rest.next_if_eq(&'*');
            atom(rest) + &APART.to_string()
        }
        // The space ends the name; what is derived follows at once.
        "partial" | "nabla" | "lVert" | "lfloor" => {
            while rest.next_if(|character| character.is_whitespace()).is_some() {}
            symbol(&name)
        }
        name if SILENT.contains(&name) => {
            while rest.next_if(|character| character.is_whitespace()).is_some() {}
            match rest.peek() {
                Some('\\' | '(' | '[') => atom(rest),
                _ => String::new(),
            }
        }
        name => symbol(name),
    }
}

fn symbol(name: &str) -> String {
    match SYMBOLS.iter().find(|(known, _)| *known == name) {
        Some((_, symbol)) => (*symbol).to_owned(),
        // `\ln`, `\max`: the name of a function.
        None => format!("{name}{APART}"),
    }
}

/// Combining marks, and indices that are no letters for Unicode.
fn is_mark(character: char) -> bool {
    matches!(character, '\u{302}' | '\u{304}' | '₀'..='ₜ' | '⁰'..='ⁿ')
}

/// Returns a numerator or denominator, in brackets if it has several parts.
fn grouped(text: &str) -> String {
    let text = text.trim();
    let mut depth = 0;
    let several = text.chars().any(|character| {
        depth +=
            i32::from(matches!(character, '(' | '[')) - i32::from(matches!(character, ')' | ']'));
        depth == 0 && " +−/·×\u{2009}".contains(character)
    });
    if several { format!("({text})") } else { text.to_owned() }
}

/// Returns an index or exponent.
fn script(mark: char, text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" × ", "×");
    let alphabets = if mark == '_' { LOWERED } else { RAISED };
    let small = |character: char| {
        alphabets.iter().find_map(|(plain, small)| {
            small.chars().nth(plain.chars().position(|known| known == character)?)
        })
    };
    let short = text.chars().count() <= SCRIPT;
    if let Some(small) = text.chars().map(small).collect::<Option<String>>().filter(|_| short) {
        return small;
    }
    // Small letters are alphanumeric too.
    let plain =
        |character: char| character.is_ascii_alphanumeric() || ('α'..='ω').contains(&character);
    match text.chars().all(plain) {
        true => format!("{mark}{text}"),
        false => format!("{mark}({text})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_of_the_lessons_read_as_text() {
        for (tex, shown) in [
            (
                r"y = x W^\top + b, \qquad W \in \mathbb{R}^{O \times I}",
                "y = x Wᵀ + b,    W ∈ ℝ^(O×I)",
            ),
            (
                r"\frac{\partial L}{\partial w} = \frac{\partial L}{\partial e} \cdot 3",
                "∂L/∂w = ∂L/∂e · 3",
            ),
            (r"-6 \cdot 0.03 = -0.18", "−6 · 0.03 = −0.18"),
            (r"\frac{1}{n} \sum_{i=1}^{n} (w x_i + b)^2", "1/n ∑ᵢ₌₁ⁿ (w xᵢ + b)²"),
            (r"w \leftarrow w - \eta \frac{\partial L}{\partial w}", "w ← w − η ∂L/∂w"),
            (
                r"\operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V ,",
                "softmax((Q Kᵀ)/√dₖ) V,",
            ),
            (r"w_{ij} = \frac{e^{s_{ij}}}{\sum_{m} e^{s_{im}}} .", "wᵢⱼ = e^(sᵢⱼ)/(∑ₘ e^(sᵢₘ))."),
            (r"\hat m = \frac{m}{1 - \beta_1^t}", "m̂ = m/(1 − β₁ᵗ)"),
            (r"\sqrt{\frac{\hat p\,(1 - \hat p)}{n}}", "√((p̂ (1 − p̂))/n)"),
            (r"\min\!\Big(1, \frac{c}{\lVert g \rVert}\Big)", "min(1, c/‖g‖)"),
            (r"-\sum_v p_v \ln p_v", "−∑ᵥ pᵥ ln pᵥ"),
            (r"\operatorname*{arg\,max}_{v \in V} |v|", "arg max_(v ∈ V) |v|"),
            (r"h_{\text{CLS}} \in \mathbb{R}^H", "h_CLS ∈ ℝ^H"),
            (r"L = \ln(\text{tokens})", "L = ln(tokens)"),
            (r"\sqrt 2 = 1.414", "√2 = 1.414"),
        ] {
            assert_eq!(text(tex), shown, "{tex}");
        }
    }

    #[test]
    fn any_text_is_a_formula() {
        for tex in
            ["", "{", "}", "\\", "^", "_", "\\frac", "\\frac{a", "\\sqrt", "x_", "\\left", "\\hat"]
        {
            let _ = text(tex);
        }
        assert_eq!(text(r"\unknown{a} b"), "unknown a b");
    }
}
