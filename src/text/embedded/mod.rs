//! A small corpus of our own: the stories of a village, told by a grammar.
//!
//! Eight workshops have a master, an apprentice, a tool, a trade and an animal that never change;
//! ten stories are told about each of them, six times, with another visitor, season, number and
//! wording. (With more workshops a tiny model needs millions of tokens more before it gets beyond
//! the frequencies of single words.) So a tiny model has much to learn in minutes: who belongs together (next-sentence
//! prediction lives on that), who does what where, cause and effect, sums, opposites and seasons.
//! The grammar draws from a fixed key: the text is the same everywhere.

mod stories;
mod trades;

use self::stories::STORIES;
use self::trades::{TRADES, Trade};
use super::Paragraph;
use crate::random::{Draws, Site, Stream};

/// How often every story is told about every workshop.
const TELLINGS: usize = 6;
/// Any number would do; it must only never change.
const KEY: u64 = 1912;

const NUMBERS: [&str; 10] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];

const DAYS: [&str; 6] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Name without and with its article, what the weather was like, and what the night was like.
const SEASONS: [(&str, &str, [&str; 2], &str); 4] = [
    (
        "spring",
        "a spring",
        [
            "soft rain fell on the roofs",
            "the cherry trees were in bloom",
        ],
        "the frogs sang in the mild night",
    ),
    (
        "summer",
        "a summer",
        ["the sun burned on the roofs", "the air was hot and dry"],
        "the crickets sang in the warm night",
    ),
    (
        "autumn",
        "an autumn",
        [
            "the wind blew leaves over the roofs",
            "the fog hung over the fields",
        ],
        "the wind howled in the dark night",
    ),
    (
        "winter",
        "a winter",
        ["snow lay on the roofs", "the pond was frozen"],
        "the snow fell in the cold night",
    ),
];

/// The documents, each a list of paragraphs. About 340 kB in 480 documents.
pub fn documents() -> Vec<Vec<String>> {
    let mut subjects: Vec<(usize, usize, usize)> = Vec::new();
    for telling in 0..TELLINGS {
        for story in 0..STORIES.len() {
            subjects.extend((0..TRADES.len()).map(|trade| (telling, story, trade)));
        }
    }
    // Mixed, so that any part of the corpus, such as every twentieth document, has all sorts.
    let mut draws = Stream::new(KEY, 0, Site::Order, 0).draws();
    for place in 0..subjects.len() - 1 {
        let other = place + draws.below((subjects.len() - place) as u32) as usize;
        subjects.swap(place, other);
    }
    subjects
        .into_iter()
        .enumerate()
        .map(|(index, (telling, story, trade))| tell(index, telling, story, trade))
        .collect()
}

/// The same as a stream of paragraphs, as a file would give them.
pub fn paragraphs() -> impl Iterator<Item = Paragraph> {
    (0..).zip(documents()).flat_map(|(document, paragraphs)| {
        paragraphs
            .into_iter()
            .map(move |text| Paragraph { document, text })
    })
}

fn tell(index: usize, telling: usize, story: usize, trade: usize) -> Vec<String> {
    let mut draws = Stream::new(KEY, 1, Site::Order, index as u64).draws();
    // Each telling has another visitor.
    let step = 1 + telling;
    let names = Names::new(
        &TRADES[trade],
        &TRADES[(trade + step) % TRADES.len()],
        &mut draws,
    );
    STORIES[story]
        .iter()
        .map(|paragraph| {
            let sentences: Vec<String> = paragraph
                .iter()
                .map(|wordings| {
                    let wording = wordings[draws.below(wordings.len() as u32) as usize];
                    names.fill(wording)
                })
                .collect();
            sentences.join(" ")
        })
        .collect()
}

/// What the names in braces stand for in one document.
struct Names(Vec<(&'static str, &'static str)>);

impl Names {
    fn new(trade: &Trade, visitor: &Trade, draws: &mut Draws) -> Self {
        let (season, a_season, weather, night) = SEASONS[draws.below(4) as usize];
        let (first, second) = (2 + draws.below(4) as usize, 2 + draws.below(3) as usize);
        let third = 2 + draws.below(3) as usize;
        let he = |woman: bool| if woman { "she" } else { "he" };
        let his = |woman: bool| if woman { "her" } else { "his" };
        Self(vec![
            ("M", trade.master.0),
            ("mhe", he(trade.master.1)),
            ("A", trade.apprentice.0),
            ("ahe", he(trade.apprentice.1)),
            ("ahis", his(trade.apprentice.1)),
            ("V", visitor.master.0),
            ("vhe", he(visitor.master.1)),
            ("place", trade.place),
            ("at", trade.at),
            ("trade", trade.trade),
            ("tool", trade.tool),
            ("tool_use", trade.tool_use),
            ("hiding", trade.hiding),
            ("stuff", trade.stuff),
            ("one", trade.one),
            ("many", trade.many),
            ("work", trade.work),
            ("working", trade.working),
            ("s1", trade.steps[0].0),
            ("s1p", trade.steps[0].1),
            ("s2", trade.steps[1].0),
            ("s2p", trade.steps[1].1),
            ("s3", trade.steps[2].0),
            ("s3p", trade.steps[2].1),
            ("trouble", trade.trouble),
            ("cause", trade.cause),
            ("remedy", trade.remedy),
            ("relief", trade.relief),
            ("good", trade.good),
            ("bad", trade.bad),
            ("why", trade.why),
            ("because", trade.because),
            ("sense", trade.sense),
            ("pet", trade.pet),
            ("pet_place", trade.pet_place),
            ("vplace", visitor.place),
            ("vat", visitor.at),
            ("vtrade", visitor.trade),
            ("vtool", visitor.tool),
            ("vone", visitor.one),
            ("vmany", visitor.many),
            ("vgood", visitor.good),
            ("vwhy", visitor.why),
            ("vbecause", visitor.because),
            ("season", season),
            ("a_season", a_season),
            ("weather", weather[draws.below(2) as usize]),
            ("night", night),
            ("day", DAYS[draws.below(6) as usize]),
            ("n1", NUMBERS[first]),
            ("n2", NUMBERS[second]),
            ("sum", NUMBERS[first + second]),
            ("less", NUMBERS[first + second - 1]),
            ("n3", NUMBERS[third]),
        ])
    }

    /// Replaces the names of a sentence. A name that is not known stays in its braces, which a test
    /// would notice.
    fn fill(&self, wording: &str) -> String {
        let mut text = String::new();
        let mut parts = wording.split(['{', '}']);
        while let Some(plain) = parts.next() {
            text.push_str(plain);
            let Some(name) = parts.next() else { break };
            let (capital, name) = match name.strip_prefix('^') {
                Some(name) => (true, name),
                None => (false, name),
            };
            let value = self.0.iter().find(|(known, _)| *known == name);
            let Some((_, value)) = value else {
                text.push_str(&format!("{{{name}}}"));
                continue;
            };
            let (first, rest) = value.split_at(1);
            if capital {
                text.push_str(&first.to_uppercase());
            } else {
                text.push_str(first);
            }
            text.push_str(rest);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::sentences;
    use std::collections::HashSet;

    #[test]
    fn the_corpus_is_as_large_and_as_simple_as_it_says() {
        let documents = documents();
        assert_eq!(documents.len(), 480);
        let text: String = documents.iter().flatten().flat_map(|p| [p, "\n"]).collect();
        assert!(
            (250_000..400_000).contains(&text.len()),
            "{} bytes",
            text.len()
        );
        let words: HashSet<String> = text
            .split(|c: char| !c.is_alphanumeric())
            .map(str::to_lowercase)
            .collect();
        assert!(words.len() < 2_000, "{} words", words.len());
    }

    #[test]
    fn every_sentence_is_filled_in_and_ends() {
        for paragraph in documents().iter().flatten() {
            assert!(!paragraph.contains(['{', '}', '^']), "{paragraph}");
            for sentence in sentences(paragraph) {
                let first = sentence.trim_start_matches('“').chars().next().unwrap();
                assert!(first.is_uppercase(), "{sentence}");
                let end = sentence.trim_end_matches('”');
                assert!(end.ends_with(['.', '?', '!']), "{sentence}");
            }
        }
    }

    #[test]
    fn no_document_is_told_twice() {
        let documents = documents();
        let different: HashSet<String> = documents.iter().map(|d| d.concat()).collect();
        assert_eq!(different.len(), documents.len());
    }

    #[test]
    fn nobody_has_two_names_or_two_trades() {
        let names: HashSet<&str> = TRADES
            .iter()
            .flat_map(|t| [t.master.0, t.apprentice.0, t.trade, t.tool, t.place])
            .collect();
        assert_eq!(names.len(), 5 * TRADES.len());
    }
}
