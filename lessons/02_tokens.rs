// ---
// title = "Tokens: from a string to word pieces"
// summary = "Turn text into the ids that BERT reads: split it into words, cut the words into WordPiece tokens, and join two sentences into one input."
// track = "core"
// minutes = 44
// seconds = 15
// needs = ["00"]
//
// [[exercise]]
// id = "02.1"
// key = "split_words"
// was = "01.1"
// title = "Split a text into words"
// hints = [
//     "Go through the characters of the lower-cased text (`text.to_lowercase().chars()`) and collect the current word in a `String`.",
//     "Three cases: white space ends the word; a punctuation character ends the word and is a word of its own; any other character is added to the word. Do not push empty words.",
//     "After the loop there may be an unfinished word. `char::is_whitespace` and `is_punctuation` from the cell distinguish the cases.",
// ]
//
// [[exercise]]
// id = "02.2"
// key = "cut_word"
// was = "01.2"
// title = "Cut a word by greedy longest match"
// hints = [
//     "Work on `let chars: Vec<char>`: start with the whole rest of the word and shorten it from the right until the vocabulary contains it.",
//     "Look up a piece that is not the first of the word with `##` in front: `format!(\"##{piece}\")`.",
//     "When you have found a piece, continue behind it. If not even a single character is found, the whole word is `[UNK]`: return `vec![\"[UNK]\".to_string()]`, without the pieces found so far. (Does the check never end? Then a loop never gets here: press stop.)",
// ]
//
// [[exercise]]
// id = "02.3"
// key = "join_pair"
// was = "01.3"
// title = "Put two sentences into one input"
// hints = [
//     "The ids are `[CLS] a… [SEP] b… [SEP]`: begin with `vec![cls]` and use `extend`.",
//     "There is one segment id for every token: 0 for everything up to and including the first `[SEP]`, 1 for the rest. `segments.resize(ids.len(), 1)` appends the ones.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 02 · Tokens: from a string to word pieces
    //
    // A neural network reads numbers, so text must become numbers first. In this lesson you turn a
    // string into the token ids that BERT reads: you split it into words, cut the words into pieces
    // of a vocabulary, and add special tokens. You see why `the` is one token and `embeddings` is
    // several.
    //
    // *About 44 minutes, you need lesson 00. Every cell finishes within seconds.*

    // %%
    use std::collections::HashSet;

    use cloze::lessons::FollowToken;
    use cloze::lessons::support::basics;
    use cloze::text::{Casing, WordPiece, embedded};
    use cloze::view::style::number;
    use cloze::view::{BarChart, TokenStrip};
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## Where we are going
    //
    // First the result, made by the crate. It trains a small vocabulary (lesson 22 explains how) and
    // cuts a sentence with it.
    //
    // The text comes with Cloze and is generated: a grammar fills names, tools and animals into ten
    // stories about a village. It has only 623 different words, so that a tiny model can learn it in
    // minutes. Remember this when you see good results in this course: on real text, with its tens of
    // thousands of words, everything is harder.

    // %%
    let corpus: Vec<String> = embedded::paragraphs().map(|p| p.text).collect();
    println!("{} paragraphs, for example:", number(corpus.len() as f64));
    println!("  {}", corpus[0].replace(". ", ".\n  "));
    // `Ok`, because a text may also come from a file, and reading a file can fail.
    let tokenizer: WordPiece =
        WordPiece::train(corpus.iter().cloned().map(Ok), 1_000, Casing::Uncased)?;

    // %%
    let sentence: &str = "The gardener was up early, watering unbelievably thirsty embeddings.";
    let encoding = tokenizer.encode_with_special(sentence);
    show!(TokenStrip::new("What BERT reads", &encoding.tokens).row("id", &encoding.ids));

    // %% [markdown]
    // ## The idea
    //
    // What should one number stand for?
    //
    // - **A character**: a vocabulary of a few hundred, and nothing is unknown. But sequences become
    //   about four times as long, and a single letter means next to nothing.
    // - **A word**: short sequences, but no vocabulary is ever complete. `gardener` may be in it and
    //   `gardeners` not.
    // - **A word piece**: frequent words stay whole, rare words are cut into parts. Nothing is unknown
    //   as long as its characters are known, and some 30,000 pieces are enough for one language.

    // %%
    let characters: usize = corpus.iter().map(|t| t.chars().count()).sum();
    let pieces: usize = corpus.iter().map(|t| tokenizer.encode(t).len()).sum();
    let words: usize = corpus
        .iter()
        .map(|t| basics::words(&tokenizer, t).len())
        .sum();
    show!(
        BarChart::new("The same text in three units")
            .unit("tokens")
            .bar("characters", characters as f64)
            .bar("word pieces", pieces as f64)
            .bar("words", words as f64)
    );

    // %% [markdown]
    // This text has hardly more pieces than words, because 1,000 pieces hold most of its 623 words
    // whole. On real text the difference is larger.
    //
    // BERT uses [WordPiece](https://arxiv.org/abs/1609.08144) (Schuster and Nakajima 2012, Wu et al.
    // 2016). A word $w$ is cut from the left: the first piece $t_1$ is the **longest** piece $v$ of
    // the vocabulary $V$ with which $w$ begins ($|v|$ is the length of $v$):
    //
    // $$ t_1 = \operatorname*{arg\,max}_{v \in V,\; w \text{ begins with } v} |v| $$
    //
    // The rest of the word is cut in the same way, but with pieces marked `##`. The mark says "this
    // continues a word": `##s` at the end of a word is a different token from `s` alone, with a
    // meaning of its own to learn.

    // %% [markdown]
    // ## Step 1: words
    //
    // BERT's *uncased* models convert the text to lower case, strip accents (`Café` becomes `cafe`),
    // split it at white space, and make every punctuation character a word of its own.
    //
    // **Exercise 02.1.** Write that without the accents: lower case, split at white space, punctuation
    // apart.

    // %%
    /// ASCII punctuation and the most frequent of the rest. (BERT includes all of Unicode's.)
    fn is_punctuation(c: char) -> bool {
        c.is_ascii_punctuation() || "‘’“”–—…".contains(c)
    }

    fn split_words(text: &str) -> Vec<String> {
        // BEGIN SOLUTION
        cloze::solution!("02.1");
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
    check!("02.1", |judge| {
        judge.same_list(
            "split_words(\"Hello,  World!\")",
            &split_words("Hello,  World!"),
            &["hello", ",", "world", "!"],
            "Lower case, no empty words, and each punctuation character is a word of its own.",
        );
        judge.same_list(
            "split_words(\"it's well-known...\")",
            &split_words("it's well-known..."),
            &["it", "'", "s", "well", "-", "known", ".", ".", "."],
            "Apostrophes and hyphens are punctuation too, and a new word begins after each. Three dots are \
             three words.",
        );
        judge.same_list(
            "split_words(\"a mill\")",
            &split_words("a mill"),
            &["a", "mill"],
            "The text ends without a full stop: after the loop, push the unfinished word.",
        );
        for line in corpus.iter().take(200) {
            judge.same_list(
                &format!("split_words({line:?})"),
                &split_words(line),
                &basics::words(&tokenizer, line),
                "This is a paragraph of the corpus, as the crate splits it.",
            );
        }
    });

    // %% [markdown]
    // ## Step 2: pieces
    //
    // **Exercise 02.2.** Cut one word into pieces: the longest piece with which the word begins, then
    // the longest with which the rest begins, and so on. Pieces after the first carry `##`. If no
    // piece fits some rest, the *whole* word becomes the single token `[UNK]`.
    //
    // With the vocabulary `em, ##bed, ##ding, ##s, …` the word `embeddings` becomes
    // `em ##bed ##ding ##s`.

    // %%
    fn cut_word(word: &str, vocabulary: &HashSet<String>) -> Vec<String> {
        // BEGIN SOLUTION
        cloze::solution!("02.2");
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

    // %%
    check!("02.2", |judge| {
        let small: HashSet<String> = ["em", "e", "##m", "##bed", "##be", "##ding", "##s", "bed"]
            .map(String::from)
            .into();
        judge.same_list(
            "cut_word(\"embeddings\")",
            &cut_word("embeddings", &small),
            &["em", "##bed", "##ding", "##s"],
            "Longest first: `em` before `e`, `##bed` before `##be`. `bed` fits only at the start of a word.",
        );
        judge.same_list(
            "cut_word(\"bedx\")",
            &cut_word("bedx", &small),
            &["[UNK]"],
            "No piece fits the x, so the whole word is unknown, including `bed`.",
        );
        let accents: HashSet<String> = ["na", "##ï", "##ve"].map(String::from).into();
        judge.same_list(
            "cut_word(\"naïve\")",
            &cut_word("naïve", &accents),
            &["na", "##ï", "##ve"],
            "A letter such as ï has two bytes: cut between characters, not between bytes.",
        );
        for line in corpus.iter().take(200) {
            // Words by the crate, so that this check does not need exercise 02.1.
            let pieces: Vec<String> = basics::words(&tokenizer, line)
                .iter()
                .flat_map(|word| cut_word(word, &vocabulary))
                .collect();
            judge.same_list(
                &format!("the pieces of {line:?}"),
                &pieces,
                &tokenizer.encode(line).tokens,
                "This is a paragraph of the corpus. Which word differs first, and in which piece?",
            );
        }
    });

    // %% [markdown]
    // That is the whole algorithm: two nested loops, and you tokenize as BERT does. (BERT also strips
    // accents, separates Chinese characters, and turns overlong words into `[UNK]`: words of more
    // than 200 characters in Google's code, of more than 100 in Hugging Face's.) Try it on words of
    // your own.

    // %%
    if solved!("02.2") {
        for word in "gardener gardeners watering unbelievably zzz naïve".split(' ') {
            println!("{word:>14}  {}", cut_word(word, &vocabulary).join(" "));
        }
    }

    // %% [markdown]
    // `naïve` contains a character that this small vocabulary lacks. The crate strips the accent
    // first and finds the pieces of `naive`:

    // %%
    show!(tokenizer.encode("naïve").tokens);

    // %% [markdown]
    // ## Step 3: special tokens and pairs
    //
    // Five tokens of the vocabulary stand for no text:
    //
    // | token | id here | purpose |
    // |---|---|---|
    // | `[PAD]` | 0 | fills up short sequences of a batch; the model ignores it |
    // | `[UNK]` | 1 | a word that can't be cut |
    // | `[CLS]` | 2 | comes first; its vector represents the whole input |
    // | `[SEP]` | 3 | ends each sentence |
    // | `[MASK]` | 4 | a hidden word, to be predicted: lesson 07 |
    //
    // BERT reads one or two sentences at once: a question and a paragraph, or two sentences that may
    // or may not follow each other. Besides the ids it reads a **segment id** for each token: 0 for
    // `[CLS] A [SEP]`, 1 for `B [SEP]`.
    //
    // **Exercise 02.3.** Return both lists as a pair: first the ids, then the segment ids.

    // %%
    fn join_pair(a: &[u32], b: &[u32], cls: u32, sep: u32) -> (Vec<u32>, Vec<u32>) {
        // BEGIN SOLUTION
        cloze::solution!("02.3");
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
    check!("02.3", |judge| {
        let (ids, segments) = join_pair(&[10, 11], &[20], 2, 3);
        judge.same_list(
            "join_pair(&[10, 11], &[20], 2, 3).0 (the ids)",
            &ids,
            &[2, 10, 11, 3, 20, 3],
            "[CLS] comes once, at the beginning; [SEP] comes after each sentence.",
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
            "Up to the first difference your list is right. Which part of the input begins there?",
        );
        judge.same_list(
            "a pair's segments",
            &yours.1,
            &segments,
            "There is one number for each id. Where does sentence B begin?",
        );
    });

    // %% [markdown]
    // A question and a sentence as BERT reads them. The colours show the segments:

    // %%
    let (pair, segments) = tokenizer.encode_pair("Where is the river?", "It runs behind the mill.");
    show!(
        TokenStrip::new("A pair: two sentences, one input", &pair.tokens)
            .row("id", &pair.ids)
            .row("segment", &segments)
            .colored(&segments)
    );

    // %% [markdown]
    // `[SEP]` alone would show where sentence B begins. The segment ids say it at every token, and
    // lesson 03 adds a vector for each of the two segments. A single sentence is segment 0 throughout.

    // %% [markdown]
    // ## Follow this token
    //
    // The page of lesson 00 has a new stage: *pieces and ids*.

    // %%
    show!(FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(2));

    // %% [markdown]
    // ## What goes wrong
    //
    // Two mistakes that cause no error message, which makes them the worst. The first is **reading
    // ids with another vocabulary than the one that wrote them**, such as that of another model. All
    // ids are valid, but they mean other pieces. Sorting the lines of `vocab.txt` is enough, because
    // the id of a piece is its line number.

    // %%
    // The same pieces in alphabetical order, after the special tokens.
    let mut pieces: Vec<String> = tokenizer.tokens().to_vec();
    pieces[5..].sort();
    let sorted_tokenizer: WordPiece = WordPiece::from_vocab(pieces, Casing::Uncased)?;
    let ids: Vec<u32> = sorted_tokenizer
        .encode("the river runs behind the mill")
        .ids;
    println!(
        "read with the vocabulary that wrote them: {}",
        sorted_tokenizer.decode(&ids)
    );
    println!(
        "read with the other order:                {}",
        tokenizer.decode(&ids)
    );

    // %% [markdown]
    // The second is **an uncased vocabulary that is used as a cased one**. It contains no capital
    // letter, so each word that begins with one is unknown:

    // %%
    let cased: WordPiece = WordPiece::from_vocab(tokenizer.tokens().to_vec(), Casing::Cased)?;
    show!(cased.encode("The mill of Mina stands by the river.").tokens);

    // %% [markdown]
    // ## Expected numbers
    //
    // - the corpus has 1,440 paragraphs; it is 333,997 characters, 81,718 pieces or 79,874
    //   words long, punctuation included;
    // - the sentence of the beginning becomes 30 tokens, 6 of them for `embeddings`;
    // - the whole notebook computes for a few seconds; the rest is compiling.

    // %% [markdown]
    // ## On real text
    //
    // `cloze tokenize --vocab vocab.txt < lines.txt` cuts each line of a file, with the vocabulary of
    // any BERT. In a cell: `WordPiece::from_file("vocab.txt".as_ref(), None)?`. If you have no
    // `vocab.txt`, make one: `cloze vocab --text books/ --size 8000 --out vocab.txt`.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Greedy longest match does not always cut a word well. Find a word that this vocabulary cuts
    //    badly. What would a better algorithm have to know?
    // 2. BERT reads at most 512 tokens. If a pair is longer, something must go: what would you cut
    //    away from a question and a paragraph, and what from two sentences?
    //
    // The crate's source of this part: `src/text/wordpiece/mod.rs`. Next:
    // [lesson 03](03_embeddings.rs), in which the numbers become vectors.

    // %% [end]
    cloze::lessons::finish("02_tokens")
}
