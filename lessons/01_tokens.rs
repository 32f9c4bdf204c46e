// ---
// title = "Tokens: from a string to word pieces"
// summary = "Cut text into WordPiece tokens, build BERT's input of one or two sentences, and see how a vocabulary is trained."
// minutes = 35
// seconds = 20
//
// [[exercise]]
// id = "01.1"
// title = "Split a text into words"
// hints = [
//     "Go over the characters of the lower-cased text (`text.to_lowercase().chars()`) and keep the word that is growing in a `String`.",
//     "Three cases: white space ends the word; a punctuation character ends the word and is a word of its own; anything else grows the word. Do not push empty words.",
//     "After the loop a word may still be growing. `char::is_whitespace` and `is_punctuation` in the cell tell the cases apart.",
// ]
//
// [[exercise]]
// id = "01.2"
// title = "Cut a word by greedy longest match"
// hints = [
//     "Work on `let chars: Vec<char>`: start with the whole rest of the word and shorten it from the right until the vocabulary holds it.",
//     "A piece that does not begin the word is looked up with `##` in front: `format!(\"##{piece}\")`.",
//     "When a piece is found, go on behind it. When not even one character is found, the whole word is `[UNK]`: return `vec![\"[UNK]\".to_string()]`, not the pieces so far.",
// ]
//
// [[exercise]]
// id = "01.3"
// title = "Put two sentences into one input"
// hints = [
//     "The ids are `[CLS] a… [SEP] b… [SEP]`: begin with `vec![cls]` and use `extend`.",
//     "There is one segment id for every token: 0 for everything up to and including the first `[SEP]`, 1 for the rest. `segments.resize(ids.len(), 1)` fills up.",
// ]
//
// [[exercise]]
// id = "01.4"
// title = "Find the pair that training merges next"
// hints = [
//     "`pieces.windows(2)` gives each pair of neighbours in a word; a pair in a word that occurs 7 times counts 7 times.",
//     "Collect the counts in a `BTreeMap<(String, String), u64>` with `*counts.entry(pair).or_insert(0) += occurrences`.",
//     "Take the entry with the largest count: `counts.into_iter().max_by_key(|(_, count)| *count)`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 01 · Tokens: from a string to word pieces
    //
    // A neural network reads numbers, so text must become numbers first. In this lesson you build
    // the way from a string to the token ids that BERT reads: split it into words, cut the words
    // into pieces that a vocabulary knows, frame them with special tokens. At the end you train a
    // vocabulary yourself and know why `the` is one token and `embeddings` is several.
    //
    // *About 35 minutes; every cell answers within seconds. Exercises are functions with a stub:
    // fill one in, run its cell, run the check below it.*

    // %%
    use std::collections::{BTreeMap, HashMap, HashSet};

    use cloze::text::{Casing, WordPiece, embedded};
    use cloze::view::style::number;
    use cloze::view::{BarChart, LineChart, TokenStrip};
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## Where we are going
    //
    // First the result, made by the crate. We train a small vocabulary from the text that comes
    // with Cloze (how that works is the last part of this lesson) and cut a sentence with it.

    // %%
    let corpus: Vec<String> = embedded::paragraphs().map(|p| p.text).collect();
    let words_in_corpus: usize = corpus.iter().map(|l| l.split_whitespace().count()).sum();
    println!(
        "{} paragraphs, {} words, for example:",
        number(corpus.len() as f64),
        number(words_in_corpus as f64)
    );
    // A sentence a line.
    println!("  {}", corpus[0].replace(". ", ".\n  "));

    // `Ok`: a text may also come from a file, where reading a line can fail.
    let tokenizer: WordPiece =
        WordPiece::train(corpus.iter().cloned().map(Ok), 1_000, Casing::Uncased)?;
    println!(
        "a vocabulary of {} pieces",
        number(tokenizer.vocab_size() as f64)
    );

    // %%
    let sentence: &str = "The gardener was up early, watering unbelievably thirsty embeddings.";
    let encoding = tokenizer.encode_with_special(sentence);
    show!(TokenStrip::new("What BERT reads", &encoding.tokens).row("id", &encoding.ids));

    // %% [markdown]
    // ## The idea
    //
    // Which units should the numbers stand for?
    //
    // - **Characters**: a vocabulary of a few hundred, nothing unknown, but sequences five times as
    //   long, and a single letter means next to nothing.
    // - **Words**: short sequences, but no vocabulary is ever complete. `gardener` was seen,
    //   `gardeners'` was not.
    // - **Word pieces**: frequent words stay whole and rare words fall into parts. Nothing is
    //   unknown as long as its characters are known, and 30,000 pieces do for a language.
    //
    // BERT uses [WordPiece](https://arxiv.org/abs/1609.08144) (Schuster and Nakajima 2012, Wu et al.
    // 2016). A word $w$ is cut from the left, always by the **longest** piece of the vocabulary $V$
    // that fits:
    //
    // $$ t_1 = \operatorname*{arg\,max}_{v \in V,\; v \text{ begins } w} |v|, \qquad
    //    \text{then the same for the rest of } w, \text{ with pieces that are marked } \texttt{\#\#} $$
    //
    // The mark `##` says "goes on without a blank": `##s` at the end of a word is another token,
    // with another meaning to learn, than `s` alone.
    //
    // ## Step 1: words
    //
    // BERT's *uncased* models lower the text and strip accents (`Café` becomes `cafe`), split it at
    // white space, and make every punctuation character a word of its own.
    //
    // **Exercise 01.1.** Write that, without the accents: lower case, split at white space,
    // punctuation apart.

    // %%
    /// The ASCII punctuation and the most frequent of the rest. (BERT takes all of Unicode's.)
    fn is_punctuation(c: char) -> bool {
        c.is_ascii_punctuation() || "‘’“”–—…".contains(c)
    }

    fn split_words(text: &str) -> Vec<String> {
        // BEGIN SOLUTION
        cloze::solution!("01.1");
        let mut words: Vec<String> = Vec::new();
        let mut word = String::new();
        for c in text.to_lowercase().chars() {
            if c.is_whitespace() || is_punctuation(c) {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if is_punctuation(c) {
                    words.push(c.to_string());
                }
            } else {
                word.push(c);
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        words
        // END SOLUTION
    }

    // %%
    // What the crate makes of a text: its pieces, glued together word by word.
    fn crate_words(tokenizer: &WordPiece, text: &str) -> Vec<String> {
        let encoding = tokenizer.encode(text);
        let mut words: BTreeMap<u32, String> = BTreeMap::new();
        for (token, word) in encoding.tokens.iter().zip(encoding.words.iter().flatten()) {
            let piece = token.strip_prefix("##").unwrap_or(token);
            words.entry(*word).or_default().push_str(piece);
        }
        words.into_values().collect()
    }

    check!("01.1", |judge| {
        judge.same_list(
            "split_words(\"Hello,  World!\")",
            &split_words("Hello,  World!"),
            &["hello", ",", "world", "!"],
            "Lower case, no empty words, and each punctuation character alone.",
        );
        judge.same_list(
            "split_words(\"it's well-known...\")",
            &split_words("it's well-known..."),
            &["it", "'", "s", "well", "-", "known", ".", ".", "."],
            "Apostrophes and hyphens are punctuation too; three dots are three words.",
        );
        judge.same_list(
            "split_words(\"a mill\")",
            &split_words("a mill"),
            &["a", "mill"],
            "The text ends without a full stop: the word that was still growing is a word too.",
        );
        for line in corpus.iter().take(200) {
            judge.same_list(
                &format!("split_words({line:?})"),
                &split_words(line),
                &crate_words(&tokenizer, line),
                "This is a line of the corpus, and the crate splits it so.",
            );
        }
    });

    // %% [markdown]
    // ## Step 2: pieces
    //
    // **Exercise 01.2.** Cut one word into pieces: the longest piece that begins the word, then the
    // longest that begins the rest, and so on. Pieces after the first carry `##`. When some rest has
    // no piece at all, the *whole* word is the one token `[UNK]`.
    //
    // With the vocabulary `em, ##bed, ##ding, ##s, …` the word `embeddings` becomes
    // `em ##bed ##ding ##s`.

    // %%
    fn cut_word(word: &str, vocabulary: &HashSet<String>) -> Vec<String> {
        // BEGIN SOLUTION
        cloze::solution!("01.2");
        let chars: Vec<char> = word.chars().collect();
        let mut pieces: Vec<String> = Vec::new();
        let mut start = 0;
        while start < chars.len() {
            let mut end = chars.len();
            let piece = loop {
                if end == start {
                    return vec!["[UNK]".to_string()];
                }
                let text: String = chars[start..end].iter().collect();
                let candidate = if start == 0 {
                    text
                } else {
                    format!("##{text}")
                };
                if vocabulary.contains(&candidate) {
                    break candidate;
                }
                end -= 1;
            };
            pieces.push(piece);
            start = end;
        }
        pieces
        // END SOLUTION
    }

    // %%
    let vocabulary: HashSet<String> = tokenizer.tokens().iter().cloned().collect();

    check!("01.2", |judge| {
        let small: HashSet<String> = ["em", "e", "##m", "##bed", "##be", "##ding", "##s", "bed"]
            .map(String::from)
            .into();
        judge.same_list(
            "cut_word(\"embeddings\")",
            &cut_word("embeddings", &small),
            &["em", "##bed", "##ding", "##s"],
            "Longest first: `em` before `e`, `##bed` before `##be`. `bed` begins words only.",
        );
        judge.same_list(
            "cut_word(\"bedx\")",
            &cut_word("bedx", &small),
            &["[UNK]"],
            "No piece fits the x, so the whole word is unknown, `bed` included.",
        );
        let accents: HashSet<String> = ["na", "##ï", "##ve"].map(String::from).into();
        judge.same_list(
            "cut_word(\"naïve\")",
            &cut_word("naïve", &accents),
            &["na", "##ï", "##ve"],
            "A letter such as ï has two bytes: cut between characters, not between bytes.",
        );
        for line in corpus.iter().take(200) {
            // Words by the crate, so that this check does not need exercise 01.1.
            let pieces: Vec<String> = crate_words(&tokenizer, line)
                .iter()
                .flat_map(|word| cut_word(word, &vocabulary))
                .collect();
            judge.same_list(
                &format!("the pieces of {line:?}"),
                &pieces,
                &tokenizer.encode(line).tokens,
                "This is a line of the corpus. Which word differs first, and by which piece?",
            );
        }
    });

    // %% [markdown]
    // That was all of it: two loops, and you tokenize as BERT does. (It also strips accents, sets
    // Chinese characters apart, and gives up on words of over 100 characters.) Try it on words of your own.

    // %%
    if solved!("01.2") {
        for word in [
            "gardener",
            "gardeners",
            "watering",
            "unbelievably",
            "zzz",
            "naïve",
        ] {
            println!("{word:>14}  {}", cut_word(word, &vocabulary).join(" "));
        }
    }

    // %% [markdown]
    // `naïve` holds a character that this small vocabulary does not have. The crate strips the
    // accent first and finds `naive`'s pieces:

    // %%
    show!(tokenizer.encode("naïve").tokens);

    // %% [markdown]
    // ## Step 3: special tokens and pairs
    //
    // A vocabulary has five tokens that stand for no text:
    //
    // | token | id here | what for |
    // |---|---|---|
    // | `[PAD]` | 0 | fills short sequences of a batch; never attended to |
    // | `[UNK]` | 1 | a word that can't be cut |
    // | `[CLS]` | 2 | stands first; its vector stands for the whole input |
    // | `[SEP]` | 3 | ends each sentence |
    // | `[MASK]` | 4 | the blank to fill in: lesson 05 |
    //
    // BERT reads one or two sentences at once (a question and a paragraph; two sentences of which
    // it says whether one follows the other). Beside the ids it gets a **segment id** for each
    // token: 0 for `[CLS] A [SEP]`, 1 for `B [SEP]`.
    //
    // **Exercise 01.3.** Build both lists and give them as a pair: first the ids, then the segment
    // ids.

    // %%
    fn join_pair(a: &[u32], b: &[u32], cls: u32, sep: u32) -> (Vec<u32>, Vec<u32>) {
        // BEGIN SOLUTION
        cloze::solution!("01.3");
        let mut ids: Vec<u32> = vec![cls];
        ids.extend(a);
        ids.push(sep);
        let mut segments: Vec<u32> = vec![0; ids.len()];
        ids.extend(b);
        ids.push(sep);
        segments.resize(ids.len(), 1);
        (ids, segments)
        // END SOLUTION
    }

    // %%
    check!("01.3", |judge| {
        let (ids, segments) = join_pair(&[10, 11], &[20], 2, 3);
        judge.same_list(
            "join_pair(&[10, 11], &[20], 2, 3).0 (the ids)",
            &ids,
            &[2, 10, 11, 3, 20, 3],
            "[CLS] comes once, at the front; [SEP] comes after each sentence.",
        );
        judge.same_list(
            "join_pair(&[10, 11], &[20], 2, 3).1 (the segments)",
            &segments,
            &[0, 0, 0, 0, 1, 1],
            "The first [SEP] still belongs to sentence A.",
        );
        let (a, b) = (&corpus[0], &corpus[1]);
        let special = tokenizer.special();
        let yours = join_pair(
            &tokenizer.encode(a).ids,
            &tokenizer.encode(b).ids,
            special.cls,
            special.sep,
        );
        let (encoding, segments) = tokenizer.encode_pair(a, b);
        judge.same_list(
            "a pair's ids",
            &yours.0,
            &encoding.ids,
            "The crate gives these.",
        );
        judge.same_list(
            "its segments",
            &yours.1,
            &segments,
            "The crate gives these.",
        );
    });

    // %%
    let (pair, segments) = tokenizer.encode_pair("Where is the river?", "It runs behind the mill.");
    show!(
        TokenStrip::new("A pair: two sentences, one input", &pair.tokens)
            .row("id", &pair.ids)
            .row("segment", &segments)
            .colored(&segments)
    );

    // %% [markdown]
    // ## Step 4: where a vocabulary comes from
    //
    // Training starts from characters (`w ##o ##r ##d`). Then, again and again, it takes the pair
    // of neighbouring pieces that occurs most often in the text and adds the two, merged, to the
    // vocabulary, until the vocabulary is full. So what is frequent becomes whole first.
    // ([Sennrich et al. 2016](https://arxiv.org/abs/1508.07909). The trainer of BERT's own vocabulary was
    // not published. WordPiece as first described merges the pair that raises the *likelihood* of the
    // text most, roughly count(ab) / (count(a) · count(b)); the `tokenizers` library and this crate merge
    // by count alone.)
    //
    // **Exercise 01.4.** Given the words as pieces, each with how often it occurs, find the pair
    // that is merged next. Where two pairs are equally frequent, either is right.

    // %%
    fn best_pair(words: &[(Vec<String>, u64)]) -> Option<(String, String)> {
        // BEGIN SOLUTION
        cloze::solution!("01.4");
        let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (pieces, occurrences) in words {
            for pair in pieces.windows(2) {
                let pair = (pair[0].clone(), pair[1].clone());
                *counts.entry(pair).or_insert(0) += occurrences;
            }
        }
        let best = counts.into_iter().max_by_key(|(_, count)| *count);
        best.map(|(pair, _)| pair)
        // END SOLUTION
    }

    // %%
    // A word as single characters, all but the first marked.
    fn characters(word: &str) -> Vec<String> {
        let mark = |(i, c): (usize, char)| {
            if i == 0 {
                c.to_string()
            } else {
                format!("##{c}")
            }
        };
        word.chars().enumerate().map(mark).collect()
    }

    fn merge(words: &mut [(Vec<String>, u64)], pair: &(String, String)) -> String {
        let merged = format!("{}{}", pair.0, pair.1.trim_start_matches("##"));
        for (pieces, _) in words {
            let mut at = 0;
            while at + 1 < pieces.len() {
                if pieces[at] == pair.0 && pieces[at + 1] == pair.1 {
                    pieces[at] = merged.clone();
                    pieces.remove(at + 1);
                }
                at += 1;
            }
        }
        merged
    }

    let mut counted: HashMap<String, u64> = HashMap::new();
    for line in &corpus {
        for word in crate_words(&tokenizer, line) {
            *counted.entry(word).or_default() += 1;
        }
    }
    println!("{} different words", counted.len());

    check!("01.4", |judge| {
        let toys = [
            (
                vec![("low", 7), ("newest", 6)],
                vec![("l", "##o"), ("##o", "##w")],
                "A pair in a word that occurs 7 times counts 7 times.",
            ),
            (
                vec![("to", 1), ("top", 1), ("mill", 7)],
                vec![("m", "##i"), ("##i", "##l"), ("##l", "##l")],
                "`t ##o` stands in two words, but each occurs once. The number beside a word is how \
                 often the text has it.",
            ),
            (
                vec![("to", 3), ("top", 3), ("it", 5)],
                vec![("t", "##o")],
                "`t ##o` occurs 3 times in `to` and 3 times in `top`: add up what a pair has in all \
                 words, and only then look for the largest.",
            ),
        ];
        for (toy, right, why) in toys {
            let words: Vec<(Vec<String>, u64)> = toy
                .iter()
                .map(|&(word, count)| (characters(word), count))
                .collect();
            let pair = best_pair(&words).unwrap_or_default();
            judge.holds(
                &format!(
                    "best_pair of the words and counts {toy:?} is in {right:?}, yours is {pair:?}"
                ),
                right.contains(&(pair.0.as_str(), pair.1.as_str())),
                why,
            );
        }
        judge.equal("best_pair(&[])", best_pair(&[]), None, "No words, no pair.");
        let mut words: Vec<(Vec<String>, u64)> = counted
            .iter()
            .map(|(word, count)| (characters(word), *count))
            .collect();
        for _ in 0..20 {
            let pair = best_pair(&words).unwrap_or_default();
            let merged = merge(&mut words, &pair);
            judge.holds(
                &format!("the crate's vocabulary holds your merge {merged:?}"),
                tokenizer.id(&merged).is_some(),
                "On this corpus the first 20 merges are in the crate's vocabulary too. Does each \
                 pair of neighbours count, everywhere in the word and in every word?",
            );
        }
    });

    // %%
    if solved!("01.4") {
        let mut words: Vec<(Vec<String>, u64)> = counted
            .iter()
            .map(|(word, count)| (characters(word), *count))
            .collect();
        let mut merges: Vec<String> = Vec::new();
        for _ in 0..20 {
            if let Some(pair) = best_pair(&words) {
                merges.push(merge(&mut words, &pair));
            }
        }
        println!("your first 20 merges: {}", merges.join(" "));
    }

    // %% [markdown]
    // ## Look at your data
    //
    // How long are the pieces, and how often does each occur? Natural text follows
    // [Zipf's law](https://en.wikipedia.org/wiki/Zipf%27s_law): the count of the piece of rank $r$
    // falls about as $1/r$, a straight line when both axes are logarithmic. Keep the picture in
    // mind for lesson 05: a model that only knew these frequencies is the first baseline to beat.

    // %%
    let mut counts: HashMap<u32, u64> = HashMap::new();
    let mut by_length: BTreeMap<usize, u64> = BTreeMap::new();
    for line in &corpus {
        for id in tokenizer.encode(line).ids {
            *counts.entry(id).or_default() += 1;
            let piece = tokenizer.token(id).unwrap_or_default();
            let length = piece.trim_start_matches("##").chars().count();
            *by_length.entry(length.min(10)).or_default() += 1;
        }
    }
    let total: u64 = counts.values().sum();
    println!(
        "{} tokens, {:.2} for each word between blanks",
        number(total as f64),
        total as f64 / words_in_corpus as f64
    );
    let lengths: Vec<(String, f64)> = by_length
        .iter()
        .map(|(&length, &count)| match length {
            10 => ("10 or more".to_owned(), count as f64),
            length => (length.to_string(), count as f64),
        })
        .collect();
    show!(BarChart::new("Tokens by their length in characters").bars(lengths));

    // %%
    let mut sorted: Vec<u64> = counts.values().copied().collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let ranks: Vec<(f64, f64)> = sorted
        .iter()
        .enumerate()
        .map(|(i, c)| ((i + 1) as f64, *c as f64))
        .collect();
    show!(
        LineChart::new("How often each piece occurs")
            .axes("rank", "occurrences")
            .logarithmic()
            .points("pieces of this vocabulary", &ranks)
            .line(
                "Zipf: the most frequent, divided by the rank",
                &[
                    ranks[0],
                    (ranks.len() as f64, ranks[0].1 / ranks.len() as f64)
                ]
            )
    );

    // %% [markdown]
    // ## What goes wrong
    //
    // These are the crate's real answers to three mistakes that everybody makes once.

    // %%
    // A vocabulary in which a piece stands twice: which id should it have?
    let mut twice: Vec<String> = tokenizer.tokens().to_vec();
    twice.push("the".into());
    println!(
        "{}",
        WordPiece::from_vocab(twice, Casing::Uncased).unwrap_err()
    );

    // A list of words that is no BERT vocabulary.
    let plain: Vec<String> = vec!["the".into(), "river".into()];
    println!(
        "{}",
        WordPiece::from_vocab(plain, Casing::Uncased).unwrap_err()
    );

    // %% [markdown]
    // The third gives no error at all, which makes it the worst: **text cut with another
    // vocabulary than the model was trained with**. The ids are valid, the meaning is gone. Sorting
    // `vocab.txt` is enough, because a piece's id is its line.

    // %%
    // The same pieces, sorted as a tidy person would sort a file; the special tokens stay in front.
    let mut pieces: Vec<String> = tokenizer.tokens().to_vec();
    pieces[5..].sort();
    let sorted_tokenizer: WordPiece = WordPiece::from_vocab(pieces, Casing::Uncased)?;
    let ids: Vec<u32> = sorted_tokenizer
        .encode("the river runs behind the mill")
        .ids;
    println!(
        "read with the vocabulary that wrote it: {}",
        sorted_tokenizer.decode(&ids)
    );
    println!(
        "read with the other order:              {}",
        tokenizer.decode(&ids)
    );

    // %% [markdown]
    // ## Expected numbers
    //
    // - the corpus: 1,440 paragraphs, 64,471 words between blanks, 623 different words after
    //   splitting;
    // - 81,718 tokens with 1,000 pieces: 1.27 for each word between blanks, punctuation included;
    // - the whole notebook computes for under a second; the rest is compiling.
    //
    // ## On real text
    //
    // `cloze vocab --text books/ --size 8000 --out vocab.txt` trains on a folder of books, and
    // `cloze tokenize --vocab vocab.txt < lines.txt` cuts text with it. In a cell:
    // `WordPiece::from_file("vocab.txt".as_ref(), None)?`.
    //
    // ## Open questions
    //
    // 1. Greedy longest match is not always the most likely way to cut a word. Find a word that your
    //    vocabulary cuts badly. What would a better algorithm have to know?
    // 2. A larger vocabulary makes sequences shorter and the embedding table larger. At 30,522 pieces
    //    of 768 numbers, what share of BERT-base's 110 million parameters is that table?
    //
    // The crate's source of this part: `src/text/wordpiece/mod.rs`
    // and `src/text/vocabulary.rs`. Next: [lesson 02](02_embeddings.rs), in which the numbers become
    // vectors.

    // %% [end]
    cloze::lessons::finish("01_tokens")
}
