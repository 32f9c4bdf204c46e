// ---
// title = "Looking inside: what vectors know"
// summary = "Lay words out with a PCA of your own, compare one word's vectors across sentences with those of random words, and probe the layers against a control task."
// track = "use"
// minutes = 58
// seconds = 20
// needs = ["08"]
//
// [[exercise]]
// id = "20.1"
// key = "one_round"
// was = "12.3"
// title = "The axis along which points differ most"
// hints = [
//     "Begin with `let mut sum = vec![0.0; axis.len()];`. For each row compute `let along = dot(row, axis);`.",
//     "Then add the row to the sum, each of its numbers multiplied by `along`: `for (s, x) in sum.iter_mut().zip(row) { *s += along * x; }`.",
//     "Return `unit(&sum)`.",
// ]
//
// [[exercise]]
// id = "20.2"
// key = "mean_cosine"
// title = "How alike are vectors?"
// hints = [
//     "The cosine of two vectors is their dot product, divided by the product of their lengths. The length of `a` is `dot(a, a).sqrt()`.",
//     "Take each pair once: `for i in 0..n` and inside of it `for j in i + 1..n`. So no vector meets itself.",
//     "Add the cosines up, count the pairs, and divide. With n vectors there are n · (n - 1) / 2 pairs.",
// ]
//
// [[exercise]]
// id = "20.3"
// key = "control_labels"
// was = "12.4"
// title = "A control for a probe"
// hints = [
//     "The same piece must get the same label wherever it stands, so the label may depend only on the id and the seed.",
//     "`Stream::new(seed, 0, Site::Other(0), u64::from(id)).draws().uniform()` is a number in [0, 1) that depends only on these two.",
//     "The label is 1 where that number is below `share`, else 0.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 20 · Looking inside: what vectors know
    //
    // Between its layers a model has nothing but vectors. What do they know about words? In this
    // lesson you draw vectors of 128 numbers as points in a plane, compare the vectors of one word
    // in different sentences, and train small classifiers that read a layer. Each measurement gets a
    // control: the same measurement on something meaningless.
    //
    // *About 58 minutes. Every cell finishes within a few seconds. You need lesson 08.*

    // %%
    use cloze::lessons::data;
    use cloze::lessons::support::inside::{self, Labelled, Words, dot, mean, probe, spread, unit};
    use cloze::model::weights::Model;
    use cloze::prelude::*;
    use cloze::random::{Draws, Site, Stream};
    use cloze::view::Scatter;

    // %%
    let folder: std::path::PathBuf = data::folder(data::TINY)?;
    let model: Model = Model::read_all(&folder)?;
    let tokenizer: WordPiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    let mut engine: CpuEngine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    const LAYERS: usize = 2;
    const H: usize = 128;

    // %% [markdown]
    // ## Step 1: vectors of words, drawn
    //
    // A vector of 128 numbers can't be drawn, a point of two numbers can. **Principal component
    // analysis** (PCA) chooses the two numbers. It looks for the direction along which the points
    // spread most, and then for the direction at right angles to it along which they spread most of
    // the rest. A point's two numbers are its places along these two **principal axes**.
    //
    // Let $x_r$ be point $r$ after the mean of all points was subtracted, and $v$ a direction, that
    // is, a vector of length 1. The place of the point along $v$ is $x_r \cdot v$, and the spread
    // along $v$ is $\sum_r (x_r \cdot v)^2$. Which $v$ has the largest spread?
    //
    // Begin with any $v$. Add up all points, each multiplied by its place along $v$:
    //
    // $$ w = \sum_r (x_r \cdot v)\, x_r $$
    //
    // Points far out along $v$ contribute most, so $w$ points closer to the direction of the largest
    // spread than $v$ did. Scale $w$ to length 1, take it as the new $v$, and repeat. Here are three
    // rounds with the points (2, 0), (-2, 0), (0, 1), (0, -1) from $v$ = (0.71, 0.71):
    //
    // | round | $w$ | the new $v$: $w$ with length 1 |
    // |---|---|---|
    // | 1 | (5.66, 1.41) | (0.970, 0.243) |
    // | 2 | (7.76, 0.49) | (0.998, 0.062) |
    // | 3 | (7.98, 0.12) | (1.000, 0.016) |
    //
    // After three rounds $v$ is nearly (1, 0): the direction of the two points that are far out.
    //
    // In the language of matrices, one round multiplies $v$ by $C = \sum_r x_r x_r^\top$. A vector
    // whose direction $C$ does not change, $C v = \lambda v$, is called an **eigenvector** of $C$. The
    // principal axes are eigenvectors, $\lambda$ is the spread along them, and the rounds, called
    // **power iteration**, lead to the one with the largest $\lambda$.
    //
    // **Exercise 20.1.** Write one round: from the points and $v$ to the next $v$.
    // `dot(a, b)` computes $a \cdot b$, and `unit(w)` scales a vector to length 1.

    // %%
    fn one_round(rows: &[Vec<f64>], axis: &[f64]) -> Vec<f64> {
        // BEGIN SOLUTION
        cloze::solution!("20.1");
        let mut sum = vec![0.0; axis.len()];
        for row in rows {
            let along = dot(row, axis);
            for (s, x) in sum.iter_mut().zip(row) {
                *s += along * x;
            }
        }
        unit(&sum)
        // END SOLUTION
    }

    // %%
    /// The first principal axis: 300 rounds, beginning with the row that is farthest out.
    fn principal_axis(rows: &[Vec<f64>]) -> Vec<f64> {
        let farthest = rows.iter().max_by(|a, b| dot(a, a).total_cmp(&dot(b, b)));
        let start = unit(&farthest.cloned().unwrap_or_default());
        (0..300).fold(start, |axis, _| one_round(rows, &axis))
    }

    // %%
    check!("20.1", |judge| {
        let cross = [[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]].map(|p| p.to_vec());
        let start = [0.5f64.sqrt(), 0.5f64.sqrt()];
        let yours = one_round(&cross, &start);
        judge.equal(
            "the length of one_round(..) for points of two numbers",
            yours.len(),
            2,
            "A direction has as many numbers as a point.",
        );
        let near = |other: [f64; 2]| yours.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-3);
        let said = format!("the first round of the table gives (0.970, 0.243); yours {yours:.3?}");
        judge.holds(
            &said,
            !near([5.657, 1.414]),
            "That is w. Scale it to length 1: `unit(&sum)`.",
        );
        judge.holds(
            &said,
            !yours.iter().any(|x| x.is_nan()),
            "NaN comes from scaling a vector of zeros. Each point is multiplied by its place along \
             v: without that factor the four points cancel.",
        );
        judge.holds(
            &said,
            !near(start),
            "You added up multiples of v, which never leaves v. Add up multiples of the points.",
        );
        judge.holds(
            &said,
            near([0.9701, 0.2425]),
            "The places along v are 1.41, -1.41, 0.71 and -0.71. Multiply each point by its place, \
             add them up, and scale the sum.",
        );
        let ids: Vec<u32> = (1000..1200).collect();
        let rows = inside::centred(&inside::word_vectors(&model, &ids).unwrap_or_default());
        let axis = principal_axis(&rows);
        let most = spread(&rows, &axis);
        let next = one_round(&rows, &axis);
        judge.close(
            "the product of the axis of 200 word vectors with the result of one more round",
            dot(&axis, &next),
            1.0,
            1e-4,
            "After 300 rounds one more should change nothing.",
        );
        let mut draws = Stream::new(12, 0, Site::Other(0), 0).draws();
        for _ in 0..300 {
            let random: Vec<f64> = (0..H).map(|_| draws.uniform() - 0.5).collect();
            judge.holds(
                "no direction has a larger spread than your axis",
                spread(&rows, &unit(&random)) <= most,
                "A random direction has a larger one: does every point enter the sum?",
            );
        }
    });

    // %% [markdown]
    // The second axis is the first axis of what is left after every point's part along the first was
    // subtracted:

    // %%
    /// The places of points along their first two principal axes, and the share of the spread that
    /// these two show.
    fn in_two_dimensions(rows: &[Vec<f64>]) -> (Vec<(f64, f64)>, f64) {
        let rows = inside::centred(rows);
        let first = principal_axis(&rows);
        let second = principal_axis(&inside::without_axis(&rows, &first));
        let place = |row: &Vec<f64>| (dot(row, &first), dot(row, &second));
        let all: f64 = rows.iter().map(|row| dot(row, row)).sum();
        let shown = (spread(&rows, &first) + spread(&rows, &second)) / all;
        (rows.iter().map(place).collect(), shown)
    }

    // %%
    const GROUPS: &str = "
        numbers: two three four five six seven eight ten twenty
        family: mother father sister brother son daughter wife husband aunt
        months: january february march april june july august september october
        body: hand head eyes face arm foot hair heart lips
        past: went came took gave saw made found felt knew";

    // %% [markdown]
    // Now draw words of the model's own embedding table. Change the groups as you like; words that
    // are not in the vocabulary are left out.

    // %%
    if solved!("20.1") {
        let words: Vec<(&str, &str, u32)> = GROUPS
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .flat_map(|(group, words)| words.split(' ').map(move |word| (group, word)))
            .filter_map(|(group, word)| Some((group, word, tokenizer.id(word)?)))
            .collect();
        let ids: Vec<u32> = words.iter().map(|word| word.2).collect();
        let (places, shown) = in_two_dimensions(&inside::word_vectors(&model, &ids)?);
        let note = format!("two axes with {:.0} % of the spread", 100.0 * shown);
        let mut plot = Scatter::new("Word vectors of cloze-tiny").axes(note, "");
        for ((group, word, _), (x, y)) in words.iter().zip(places) {
            plot = plot.point(group, *word, x, y);
        }
        show!(plot);
    }

    // %% [markdown]
    // Nobody told the model what a month is. Words that fill the same blanks got similar vectors.
    // But read the number below the picture too: most of the spread is *not* in it. Two groups that
    // overlap here may be far apart in the other 126 dimensions.

    // %% [markdown]
    // ## Step 2: one word in different sentences
    //
    // The table has one vector for *left*. After the layers there is one for each place where the
    // word stands. Does the model distinguish *she left the house* from *the left hand*?

    // %%
    const WORD: &str = "left";
    const WENT: &str = "he left the house at dawn. she left her keys on the table. \
        they left London in the morning. the train left the station early. \
        he left the room without a word. we left the village after supper. \
        the boy left school last year. she left him in the garden. \
        the ship left the harbour at noon. he left his hat in the hall.";
    const SIDE: &str = "turn to the left at the church. he raised his left hand. \
        the house on the left is empty. she wore a ring on her left hand. \
        his left arm was broken. the door on the left was open. \
        he sat on the left of the king. a mill stood on the left bank. \
        her left eye was blue. they turned to the left and went on.";

    let sentences: Vec<&'static str> = [WENT, SIDE]
        .iter()
        .flat_map(|ten| ten.split_inclusive('.').map(str::trim))
        .collect();
    let senses: Vec<&'static str> = [["went away"; 10], ["not right"; 10]].concat();

    // %%
    const STAGES: [&str; 3] = ["the embeddings", "one layer", "two layers"];

    let contexts: Vec<Vec<Vec<f64>>> =
        inside::in_context(&mut engine, &tokenizer, WORD, &sentences)?;
    for (stage, vectors) in STAGES.iter().zip(&contexts) {
        println!(
            "after {stage}: the nearest vector has the same sense for {:.0} % of the sentences",
            100.0 * inside::nearest_alike(vectors, &senses)
        );
    }
    if solved!("20.1") {
        for at in [0, 2] {
            let (places, shown) = in_two_dimensions(&contexts[at]);
            let title = format!("“{WORD}” in 20 sentences, after {}", STAGES[at]);
            let note = format!("two axes with {:.0} % of the spread", 100.0 * shown);
            let mut plot = Scatter::new(title).axes(note, "");
            for ((sense, text), (x, y)) in senses.iter().zip(&sentences).zip(places) {
                plot = plot.point(sense, inside::surroundings(text, WORD), x, y);
            }
            show!(plot);
        }
    }

    // %% [markdown]
    // After the embeddings only the position differs, and many points coincide. After two layers
    // the senses stand apart, and the second has split again: *his left hand* and *her left eye*,
    // where a noun follows, against *on the left*, where none does. The vector says less about what
    // the word means than about what kind of place it stands in. That is what filling blanks
    // teaches.

    // %% [markdown]
    // ### How alike is alike?
    //
    // A picture shows two axes; a mean over all pairs of vectors uses all 128. The **cosine
    // similarity** of two vectors is the cosine of the angle between them (lesson 03):
    //
    // $$ \cos(a, b) = \frac{a \cdot b}{\sqrt{a \cdot a}\,\sqrt{b \cdot b}} $$
    //
    // It is 1 for vectors that point in the same direction and 0 at right angles. [Ethayarajh
    // 2019](https://arxiv.org/abs/1909.00512) takes the mean cosine of all pairs of vectors of one
    // word, each from another sentence (section 3.3). It would be 1 if the sentences changed nothing.
    //
    // **Exercise 20.2.** Return the mean cosine of all pairs of different vectors. A vector and
    // itself are no pair: their cosine is always 1.

    // %%
    fn mean_cosine(vectors: &[Vec<f64>]) -> f64 {
        // BEGIN SOLUTION
        cloze::solution!("20.2");
        let mut cosines = Vec::new();
        for (i, a) in vectors.iter().enumerate() {
            for b in &vectors[i + 1..] {
                cosines.push(dot(a, b) / (dot(a, a) * dot(b, b)).sqrt());
            }
        }
        mean(&cosines)
        // END SOLUTION
    }

    // %%
    check!("20.2", |judge| {
        // The cosines of the three pairs are 3/5, -5/13 and 33/65.
        let three = [[2.0, 0.0], [3.0, 4.0], [-5.0, 12.0]].map(|v| v.to_vec());
        let yours = mean_cosine(&three);
        let said = format!(
            "the vectors (2, 0), (3, 4) and (-5, 12) have the cosines 0.6000, -0.3846 and 0.5077, \
             with the mean 0.2410; yours {yours:.4}"
        );
        for (slip, think) in [
            (
                0.4940,
                "You counted each vector with itself: three cosines of 1.",
            ),
            (
                0.6205,
                "You counted each vector with itself: begin the inner loop at i + 1.",
            ),
            (
                0.1607,
                "You divided by n². Without the vectors themselves there are n · (n - 1) ordered \
                 pairs.",
            ),
            (
                0.1205,
                "You took each pair once and divided as if you had taken it twice. Each pair once \
                 makes n · (n - 1) / 2 pairs.",
            ),
            (
                0.4821,
                "You took each pair twice and divided as if you had taken it once. Both ways make \
                 n · (n - 1) pairs.",
            ),
            (0.7231, "That is the sum. Divide it by the number of pairs."),
            (
                1.4462,
                "That is the sum of all pairs, each taken twice. Divide it by their number.",
            ),
            (
                9.6667,
                "That is the mean of the dot products. Divide each by the lengths of both vectors.",
            ),
            (
                0.9897,
                "You divided by the length of one vector. Divide by those of both.",
            ),
            (
                1.5333,
                "You divided by the length of one vector. Divide by those of both.",
            ),
            (
                0.0177,
                "You divided by the squares of the lengths. A length is `dot(a, a).sqrt()`.",
            ),
            (
                0.7590,
                "That is 1 minus the cosine, a distance. Return the similarity.",
            ),
            (
                0.4974,
                "Keep the sign: an angle above 90° has a negative cosine.",
            ),
        ] {
            judge.holds(&said, (yours - slip).abs() > 2e-4, think);
        }
        judge.close(
            "the mean cosine of (2, 0), (3, 4) and (-5, 12)",
            yours,
            (3.0 / 5.0 - 5.0 / 13.0 + 33.0 / 65.0) / 3.0,
            1e-6,
            "Three pairs: (0, 1), (0, 2) and (1, 2). Add their cosines up and divide by 3.",
        );
        let ids: Vec<u32> = (1000..1007).collect();
        let seven = inside::word_vectors(&model, &ids).unwrap_or_default();
        let pairs = (0..7).flat_map(|j| (0..j).map(move |i| (i, j)));
        let cosines: Vec<f64> = pairs
            .map(|(i, j)| inside::cosine(&seven[i], &seven[j]))
            .collect();
        judge.close(
            "the mean cosine of seven word vectors",
            mean_cosine(&seven),
            mean(&cosines),
            1e-9,
            "Seven vectors make 21 pairs.",
        );
    });

    // %% [markdown]
    // Say the mean cosine of *left* is 0.6. Is that much? It depends on the cosine of *any* two
    // words. If the vectors of a layer lie around one direction, as in a cone, then all words look
    // alike. Such vectors are called **anisotropic**: not spread equally in all directions. So the
    // control is the mean cosine of random words from different sentences. How much more the vectors
    // of one word have is what counts (section 3.4).
    //
    // These sentences come from `questions`, which the model has never read. `states` has the vectors
    // of their tokens at each stage, and `random_rows` names one random token of each sentence:

    // %%
    let texts: Vec<Vec<u32>> = inside::sentences_of_questions(&tokenizer)?;
    let packed: Packed = inside::pack(&texts);
    let states: Vec<Vec<f32>> = engine.hidden_states(&packed, 0..LAYERS + 1)?.layers;
    let mut draws: Draws = Stream::new(20, 0, Site::Other(0), 0).draws();
    let random_rows: Vec<usize> = packed
        .ranges()
        .map(|range| range.start + 1 + draws.below(range.len() as u32 - 2) as usize)
        .collect();

    // %%
    if solved!("20.2") {
        let mut chart = BarChart::new("Mean cosine of all pairs");
        for (at, stage) in STAGES.iter().enumerate() {
            let numbers = |&row: &usize| -> Vec<f64> {
                let state = &states[at][row * H..][..H];
                state.iter().map(|&x| f64::from(x)).collect()
            };
            let random: Vec<Vec<f64>> = random_rows.iter().map(numbers).collect();
            let (word, control) = (mean_cosine(&contexts[at]), mean_cosine(&random));
            let more = word - control;
            println!("after {stage}: {word:.2}, random words {control:.2}, {more:.2} more");
            chart = chart
                .bar(format!("“{WORD}” after {stage}"), word)
                .beside("random words", control);
        }
        show!(chart);
    }

    // %% [markdown]
    // Compare one layer with two. The mean cosine of *left* is the same, so its vectors seem to be
    // equally alike. But random words have become more alike. Above the control, *left* falls from
    // stage to stage: 0.56, 0.49, 0.41. The sentence counts for more and more. Ethayarajh finds the
    // same in BERT-base: above the control, the vectors of a word are less alike in upper layers.

    // %% [markdown]
    // ## Step 3: what can be read out of a layer
    //
    // A **probe** is a small classifier that is trained on a layer's vectors while the model itself
    // stays frozen. If a linear probe can report where in the sentence a token stands, then that
    // information is in the vector, in a form that is easy to read. `probe` trains one and returns
    // its accuracy on other tokens. First the position, from 1 to 12, at each stage:

    // %%
    for (layer, stage) in STAGES.iter().enumerate() {
        // Sentences with even numbers train the probe, the others measure it.
        let mut halves: [Labelled; 2] = Default::default();
        for (number, range) in packed.ranges().enumerate() {
            for position in 1..=12.min(range.len() - 2) {
                let row = range.start + position;
                halves[number % 2].push(&states[layer][row * H..][..H], position as u32 - 1);
            }
        }
        println!(
            "position after {stage}: {:.1} % right",
            100.0 * probe::<H, 12>(&halves[0], &halves[1])?
        );
    }

    // %% [markdown]
    // The embeddings contain the position, because it was added to them. After one layer all of it
    // is still there; after two it is lost for six tokens out of ten: the last vector must say which
    // *word* belongs here.
    //
    // Now something that the model was never given. Its text is lower case: the tokenizer removed
    // the capital letters. Can a probe report which words had one? It could do so by memorising
    // words: *london* has one, *table* has none. So a good score alone does not show that the layer
    // knows anything. [Hewitt and Liang
    // 2019](https://arxiv.org/abs/1909.03368) propose a **control task**: labels without meaning,
    // drawn at random for each word of the vocabulary. What a probe reaches on these, it reaches by
    // memorising. How much more it reaches on the real labels is its **selectivity**.
    //
    // **Exercise 20.3.** Draw the control labels: 1 with probability `share`, else 0. The same piece
    // gets the same label wherever it stands; another seed gives other labels.
    // `Stream::new(seed, 0, Site::Other(0), number).draws().uniform()` returns a number in [0, 1)
    // that depends only on `seed` and `number`.

    // %%
    fn control_labels(ids: &[u32], share: f64, seed: u64) -> Vec<u32> {
        // BEGIN SOLUTION
        cloze::solution!("20.3");
        let label = |&id: &u32| {
            let mut draws = Stream::new(seed, 0, Site::Other(0), u64::from(id)).draws();
            u32::from(draws.uniform() < share)
        };
        ids.iter().map(label).collect()
        // END SOLUTION
    }

    // %%
    check!("20.3", |judge| {
        let many: Vec<u32> = (0..8_000).collect();
        let first = control_labels(&many, 0.3, 1);
        judge.equal(
            "the number of labels",
            first.len(),
            many.len(),
            "There is one label for each id.",
        );
        judge.holds(
            "labels are 0 and 1",
            first.iter().all(|&label| label < 2),
            "Two classes: 1 with probability `share`, else 0.",
        );
        let ones = first.iter().map(|&label| f64::from(label)).sum::<f64>();
        judge.close(
            "the share of ones among 8,000 pieces for a share of 0.3",
            ones / 8_000.0,
            0.3,
            0.02,
            "The label is 1 where the number from [0, 1) is below the share. About 0.7 means that \
             0 and 1 are swapped.",
        );
        let twice = control_labels(&[17, 99, 17, 4_000, 99, 17], 0.5, 2);
        judge.holds(
            &format!(
                "the same piece has the same label everywhere: pieces 17, 99, 17, 4000, 99, 17 got \
                 {twice:?}"
            ),
            twice.len() == 6
                && twice[0] == twice[2]
                && twice[2] == twice[5]
                && twice[1] == twice[4],
            "Draw by the id, not one number after the other: a probe must be able to memorise the \
             control.",
        );
        let mut turned = many.clone();
        turned.reverse();
        let mut back = control_labels(&turned, 0.3, 1);
        back.reverse();
        judge.holds(
            "a piece's label does not depend on where in the list it stands",
            back == first,
            "Make a stream for each id: `Stream::new(seed, 0, Site::Other(0), u64::from(id))`.",
        );
        let other = control_labels(&many, 0.3, 2);
        let alike = first.iter().zip(&other).filter(|(a, b)| a == b).count();
        judge.close(
            "the share of pieces with the same label under two seeds",
            alike as f64 / 8_000.0,
            0.58,
            0.03,
            "Two independent draws agree with probability 0.3² + 0.7² = 0.58. A share of 1 means \
             that the seed was not used.",
        );
        let neighbours = first.windows(2).filter(|pair| pair[0] == pair[1]).count();
        judge.close(
            "the share of neighbouring ids with the same label",
            neighbours as f64 / 8_000.0,
            0.58,
            0.03,
            "The label should be random, not follow from whether the id is even, for example.",
        );
    });

    // %% [markdown]
    // The data set `names` of [lesson 17](17_names.rs) has its words with their capitals. The first
    // word of each sentence is left out, since it always has one. The control is drawn three times,
    // and the three accuracies are averaged:

    // %%
    let train: Words = Words::read("train.txt", &tokenizer, &mut engine)?;
    let test: Words = Words::read("valid.txt", &tokenizer, &mut engine)?;
    println!(
        "{} words to measure on; \"no capital\" is right for {:.1} %",
        test.ids.len(),
        100.0 * (1.0 - test.share_of_capitals())
    );

    // %%
    if solved!("20.3") {
        let share = train.share_of_capitals();
        let mut chart = BarChart::new("What a linear probe gets right").unit("%");
        for (layer, stage) in STAGES.iter().enumerate() {
            let capitals = |words: &Words| words.labelled(layer, words.capitals.clone());
            let real = probe::<H, 2>(&capitals(&train), &capitals(&test))?;
            let mut control = 0.0;
            for seed in 1..=3 {
                let labels = |words: &Words| control_labels(&words.ids, share, seed);
                let [train, test] =
                    [&train, &test].map(|words| words.labelled(layer, labels(words)));
                control += probe::<H, 2>(&train, &test)? / 3.0;
            }
            println!("{stage}: selectivity {:.1}", 100.0 * (real - control));
            chart = chart
                .bar(format!("{stage}: capital letters"), 100.0 * real)
                .beside("control", 100.0 * control);
        }
        show!(chart);
    }

    // %% [markdown]
    // Read both bars of a layer together. At the embeddings the probe is hardly better than on
    // labels without meaning: what looked like knowledge was mostly memorised words. After two layers
    // the control has fallen, since a word's identity is mixed with its context, and the real task
    // has risen: the selectivity grows from 3 to 7 points. The finding is modest. An accuracy over
    // 779 words has a standard error of about 1.2 points (lesson 09), so this growth is at the limit
    // of what can be measured here.
    //
    // A probe shows what *can* be read from a layer, not what the model *uses*. To find that out you
    // have to remove something, as in lesson 19.

    // %% [markdown]
    // ## What goes wrong
    //
    // This is the crate's answer to a sentence that does not have the word as one piece:

    // %%
    const WRONG: [&str; 2] = ["he left.", "she will leave."];

    if let Err(error) = inside::in_context(&mut engine, &tokenizer, WORD, &WRONG) {
        println!("{error}");
    }

    // %% [markdown]
    // And these mistakes cause no error:
    //
    // - **No mean subtracted before a PCA.** The first axis is then roughly the mean itself, and the
    //   picture mostly shows how long the vectors are.
    // - **Distances read off the picture.** 63 % of the spread is not in it.
    // - **A cosine without its control.** 0.63 means one thing where random words have 0.14 and
    //   another where they have 0.22.
    // - **A probe without a control, or without the share of the largest class.** 85 % sounds like
    //   knowledge, until you know that always saying "no" gives 76 %, and labels without meaning
    //   82 %.
    // - **A layer counted wrongly.** State 0 is the output of the embeddings, state 1 that of layer 0.

    // %% [markdown]
    // ## Expected numbers
    //
    // After the embeddings, one layer and two layers:
    //
    // - *left*: the nearest vector has the same sense for 65, 95 and 100 % of the sentences (65 % by
    //   the position alone);
    // - mean cosines of *left* 0.81, 0.63 and 0.63, of random words 0.24, 0.14 and 0.22;
    // - the position can be read for 100, 99.9 and 39.5 % of the tokens;
    // - capital letters 85.1, 85.1 and 87.9 %, control 82.4, 81.9 and 80.9 %.
    //
    // Two axes show 37 % of the spread of 45 word vectors.

    // %% [markdown]
    // ## On a real model
    //
    // This command writes the vectors of all tokens of each line, from the embeddings (0) and from
    // all 12 layers of BERT-base, side by side:
    //
    // ```text
    // cloze features --model google-bert/bert-base-uncased --layers 0..12 --pool none --format safetensors --out vectors.safetensors < lines.txt
    // ```
    //
    // To take this lesson's measurements there, set `folder` to the model's folder, `LAYERS` to 12
    // and `H` to 768, and give `STAGES` 13 names.

    // %% [markdown]
    // ## Open questions
    //
    // 1. A probe with more layers of its own would read more from the same vectors. At what size does
    //    it no longer measure the model, but itself?
    // 2. Suppose that you subtract the mean of all vectors of a layer before you take cosines. What
    //    becomes of the control, and which question do the cosines answer then?
    //
    // The crate's source for this part: `src/model/inspect.rs`, `src/view/scatter.rs` and
    // `src/cli/features.rs`. Next: [lesson 21](21_ship_it.rs), in which your model becomes a program.

    // %% [end]
    cloze::lessons::finish("20_probes")
}
