// ---
// title = "Making it fast: no padding, shorter numbers"
// summary = "Pack a batch without padding, find out what 16-bit numbers cost in a sum, round to bf16 by hand, and measure the whole ladder from dfdx on one thread to packed bf16."
// track = "systems"
// minutes = 58
// seconds = 55
// needs = ["25"]
//
// [[exercise]]
// id = "26.1"
// key = "pack"
// was = "14.4"
// title = "Pack a batch"
// hints = [
//     "Keep only the tokens of each row that are not `pad`: `row.iter().copied().filter(|&id| id != pad)`.",
//     "Positions begin at 0 in every sequence. The bounds begin with one 0, and after each sequence comes the number of ids so far.",
// ]
//
// [[exercise]]
// id = "26.2"
// key = "dot_bf16"
// was = "14.5"
// title = "A dot product in bf16"
// hints = [
//     "Round both factors, `round_to_bf16(*x) * round_to_bf16(*y)`, and add the product to the sum. Don't round the product itself.",
//     "If `round_sum` is true, replace the sum by `round_to_bf16(sum)` after every addition, not only at the end.",
// ]
//
// [[exercise]]
// id = "26.3"
// key = "to_bf16"
// title = "Round to bf16 by hand"
// hints = [
//     "`x.to_bits()` is a u32 with the bits of the number. Shifted right by 16 it is what remains of it. Rounding up means that the upper half grows by 1.",
//     "Rounding is an addition before the shift. Adding `0x7fff` carries into the upper half if the lower half is above `0x8000`, the middle. In the middle itself the carry is only wanted if the last bit that remains, `bits >> 16 & 1`, is 1: add that bit too.",
//     "NaN comes first: `if x.is_nan()`, return the upper half with `| 0x40`, the highest bit of the fraction. Otherwise the addition can carry its bits away, or the shift can cut them off.",
//     "`let odd = bits >> 16 & 1;` and `((bits + 0x7fff + odd) >> 16) as u16`.",
// ]
// ---

fn main() -> cloze::lessons::LessonResult {
    // %% [markdown]
    // # 26 · Making it fast: no padding, shorter numbers
    //
    // Lesson 25 put every core to work, joined operations, and never wrote the matrix of attention. In
    // this lesson you leave out the work that nobody needs, and shorten the numbers of the rest. You
    // pack a batch without padding, find out what 16-bit numbers cost in a sum, and round to them bit
    // by bit. At the end one chart shows the whole ladder, from the dfdx model on one thread to packed
    // bf16, measured on your machine.
    //
    // *About 58 minutes; you need lesson 25. The cells compute for less than a minute. Close other
    // programs: a busy core makes every figure here wrong.*

    // %%
    use std::sync::Arc;

    use cloze::engine::{Precision, Setup, measured_peak, round_to_bf16};
    use cloze::lessons::support::speed::{self, Encoder, Ladder, training_step};
    use cloze::model::{Part, flops_per_token};
    use cloze::prelude::*;
    use cloze::random::{Draws, Site, Stream};
    use cloze::text::embedded;
    use cloze::{check, show, solved};

    // %% [markdown]
    // ## The ladder so far
    //
    // The model and the text are those of lesson 25: a BERT of size *mini* and 16 paragraphs from the
    // crate. `batch` holds their tokens; `full` holds the same sequences, each filled up with `[PAD]`
    // to the longest, as most programs do it.

    // %%
    let texts: Vec<String> = embedded::paragraphs().map(|p| p.text).collect();
    let tokenizer: WordPiece =
        WordPiece::train(texts.iter().cloned().map(Ok), 1_000, Casing::Uncased)?;
    let mut sequences: Vec<Vec<u32>> = Vec::new();
    for text in texts.iter().take(16) {
        sequences.push(tokenizer.encode_with_special(text).ids);
    }
    let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
    let longest: usize = lengths.iter().copied().max().unwrap_or(0);
    let real: usize = lengths.iter().sum();
    let pad: u32 = tokenizer.special().pad;
    let mut batch: Packed = Packed::default();
    let mut full: Packed = Packed::default();
    let mut padded: Vec<Vec<u32>> = sequences.clone();
    for (example, (ids, row)) in (0..).zip(sequences.iter().zip(&mut padded)) {
        batch.push(example, ids, &vec![0; ids.len()]);
        row.resize(longest, pad);
        full.push(example, row, &vec![0; longest]);
    }

    // %% [markdown]
    // Climb the first three rungs again. The speed is in **real tokens a second**: padding takes time,
    // but it is not work done.

    // %%
    let config: Config = Size::Mini.config(tokenizer.vocab_size());
    let layout: Arc<Layout> = Layout::new(&config, &Part::SequenceClassifier(2).with_encoder());
    let first: Vec<f32> = layout.initialise(1);
    let mut alone: Reference = Reference::new(&config, &layout, first.clone())?.with_threads(1)?;
    let mut threaded: Reference = Reference::new(&config, &layout, first.clone())?;
    let mut engine: CpuEngine = CpuEngine::new(&config, &layout, first.clone())?;
    let mut training: Ladder = Ladder::default();
    let mut forward: Ladder = Ladder::default();
    for (name, model, batch) in [
        (
            "dfdx, one thread",
            &mut alone as &mut dyn TaskEngine,
            &batch,
        ),
        ("dfdx, a part a thread", &mut threaded, &batch),
        ("engine, padded", &mut engine, &full),
    ] {
        let steps = speed::of_training(model, batch, real)?;
        println!("{}", training.add(name, steps));
        forward.add(name, speed::of_forward(model, batch, real)?);
    }

    // %% [markdown]
    // The second ladder compares with your code again: `Encoder` runs a forward pass on the functions
    // of lesson 25. Here they are in short (`attend` takes one key at a time). Put your own in their
    // place if you like; `pack` will be yours in any case.

    // %%
    fn add_norm(x: &mut [f32], residual: &[f32], bias: &[f32], gain: &[f32], shift: &[f32]) {
        let width = bias.len();
        for (row, residual) in x.chunks_mut(width).zip(residual.chunks(width)) {
            for ((x, r), b) in row.iter_mut().zip(residual).zip(bias) {
                *x += r + b;
            }
            let mean = row.iter().sum::<f32>() / width as f32;
            let squares: f32 = row.iter().map(|x| (x - mean) * (x - mean)).sum();
            let scale = 1.0 / (squares / width as f32 + 1e-12).sqrt();
            for ((x, g), s) in row.iter_mut().zip(gain).zip(shift) {
                *x = (*x - mean) * scale * g + s;
            }
        }
    }

    // %%
    fn attend(query: &[f32], keys: &[f32], values: &[f32], _: usize) -> Vec<f32> {
        let width = query.len();
        let (mut largest, mut sum, mut output) = (f32::NEG_INFINITY, 0.0, vec![0.0; width]);
        for (key, value) in keys.chunks(width).zip(values.chunks(width)) {
            let dot: f32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            let score = dot / (width as f32).sqrt();
            let before: f32 = largest;
            largest = before.max(score);
            let (shrink, power) = ((before - largest).exp(), (score - largest).exp());
            sum = shrink * sum + power;
            for (o, v) in output.iter_mut().zip(value) {
                *o = shrink * *o + power * v;
            }
        }
        output.iter().map(|o| o / sum).collect()
    }

    let encoder: Encoder = Encoder::new(&config, &layout, first.clone(), add_norm, attend);
    let cores: usize = std::thread::available_parallelism()?.get();
    let passes: f64 = encoder.speed(&full, &full.balanced(cores), real)?;
    println!("forward, {}", forward.yours(passes));

    // %% [markdown]
    // ## Rung 4: no padding
    //
    // With $n_i$ the length of sequence $i$ and $B$ sequences, a batch padded to its longest sequence
    // computes this share of its tokens for nothing:
    //
    // $$ 1 - \frac{\sum_i n_i}{B \cdot \max_i n_i} $$

    // %%
    let shade: Vec<f32> = lengths
        .iter()
        .flat_map(|&n| (0..longest).map(move |at| f32::from(u8::from(at < n))))
        .collect();
    show!(HeatMap::new(
        "A padded batch: one row for each sequence, dark where there is a token",
        &shade,
        longest
    ));
    let all: usize = 16 * longest;
    println!("{} of {all} tokens are padding", all - real);

    // %% [markdown]
    // Everything in BERT except attention treats tokens one by one. So the real tokens can stand end
    // to end in one list, and attention only needs to know where each sequence begins. (In Wikipedia,
    // cut to at most 512 tokens, half of a padded batch is padding:
    // [Krell et al. 2021](https://arxiv.org/abs/2107.02027).)
    //
    // **Exercise 26.1.** Turn padded rows into ids, positions and bounds. The bounds are
    // $0, n_1, n_1 + n_2, \dots$: the tokens of sequence $i$, counted from 0, stand from bound $i$ up
    // to bound $i + 1$.

    // %%
    fn pack(padded: &[Vec<u32>], pad: u32) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        // BEGIN SOLUTION
        cloze::solution!("26.1");
        let (mut ids, mut positions, mut bounds) = (Vec::new(), Vec::new(), vec![0]);
        for row in padded {
            let real = row.iter().copied().filter(|&id| id != pad);
            for (position, id) in (0..).zip(real) {
                ids.push(id);
                positions.push(position);
            }
            bounds.push(ids.len() as u32);
        }
        (ids, positions, bounds)
        // END SOLUTION
    }

    // %%
    check!("26.1", |judge| {
        let (ids, positions, bounds) = pack(&[vec![2, 7, 3, 0, 0], vec![2, 8, 9, 9, 3]], 0);
        judge.same_list(
            "the ids of pack(&[[2, 7, 3, 0, 0], [2, 8, 9, 9, 3]], 0)",
            &ids,
            &[2, 7, 3, 2, 8, 9, 9, 3],
            "The real tokens, sequence after sequence.",
        );
        judge.holds(
            &format!("its positions are [0, 1, 2, 0, 1, 2, 3, 4]; yours {positions:?}"),
            positions != [0, 1, 2, 3, 4, 5, 6, 7],
            "You counted on. Positions start at 0 in each sequence: the model looks them up in a \
             table.",
        );
        judge.same_list(
            "its positions",
            &positions,
            &[0, 1, 2, 0, 1, 2, 3, 4],
            "Positions start at 0 in each sequence: the model looks them up in a table.",
        );
        let what = format!("its bounds are [0, 3, 8]; yours {bounds:?}");
        for (slip, think) in [
            (
                vec![0, 3, 5],
                "Those are lengths. Each bound is the number of ids so far.",
            ),
            (
                vec![3, 8],
                "The first bound is 0, where the first sequence begins.",
            ),
            (
                vec![0, 3],
                "The last bound is the number of tokens, where the last sequence ends.",
            ),
            (vec![0, 5, 10], "Those bounds count the padding too."),
        ] {
            judge.holds(&what, bounds != slip, think);
        }
        judge.same_list(
            "its bounds",
            &bounds,
            &[0, 3, 8],
            "There is one more bound than sequences; the last is the number of tokens.",
        );
        let (ids, positions, bounds) = pack(&padded, pad);
        judge.same_list(
            "the ids of our batch",
            &ids,
            &batch.ids,
            "Keep the order of the sequences and of their tokens.",
        );
        judge.same_list(
            "its positions",
            &positions,
            &batch.positions,
            "Count the positions of each sequence from 0.",
        );
        judge.same_list(
            "its bounds",
            &bounds,
            &batch.cu_seqlens,
            "After each sequence comes the number of ids so far.",
        );
    });

    // %%
    let steps: f64 = speed::of_training(&mut engine, &batch, real)?;
    let passes: f64 = speed::of_forward(&mut engine, &batch, real)?;
    println!("training: {}", training.add("engine, packed", steps));
    println!("forward:  {}", forward.add("engine, packed", passes));
    if solved!("26.1") {
        let (ids, positions, cu_seqlens) = pack(&padded, pad);
        let (segments, examples) = (vec![0; ids.len()], (0..16).collect());
        let own = Packed {
            ids,
            segments,
            positions,
            cu_seqlens,
            examples,
        };
        let passes = encoder.speed(&own, &own.balanced(cores), real)?;
        println!("forward, {}", forward.yours(passes));
    }

    // %% [markdown]
    // ## Rung 5: shorter numbers
    //
    // What is left is mostly matrix products. Processors have units that multiply 16-bit numbers,
    // several times as many at once as f32: AMX and AVX512-BF16 on CPUs, tensor cores on GPUs. The
    // format **bf16** is an f32 rounded to its upper 16 bits:
    //
    // ```text
    // f32   s eeeeeeee fffffffffffffffffffffff     sign, exponent, fraction
    // bf16  s eeeeeeee fffffff
    // ```
    //
    // It keeps the 8 bits of the exponent, so nothing overflows that did not before, and 8 significant
    // bits (the first is always 1 and is not stored): the neighbour of 1 is 1.0078.
    //
    // How wrong does a product become? That depends on the sum. The units round the *factors* and add
    // up in f32. Would a sum in bf16 do as well?
    //
    // **Exercise 26.2.** Compute the dot product of two vectors with both factors rounded to bf16. If
    // `round_sum` is true, round the sum to bf16 too, after every addition. `round_to_bf16` is given.

    // %%
    fn dot_bf16(a: &[f32], b: &[f32], round_sum: bool) -> f32 {
        // BEGIN SOLUTION
        cloze::solution!("26.2");
        let mut sum = 0.0;
        for (x, y) in a.iter().zip(b) {
            sum += round_to_bf16(*x) * round_to_bf16(*y);
            if round_sum {
                sum = round_to_bf16(sum);
            }
        }
        sum
        // END SOLUTION
    }

    // %%
    check!("26.2", |judge| {
        let one = dot_bf16(&[1.003], &[1000.0], false);
        judge.holds(
            &format!("dot_bf16(&[1.003], &[1000.0], false) is 1000; yours {one}"),
            (one - 1003.0).abs() > 0.01,
            "The factors were not rounded: in bf16, 1.003 is 1.",
        );
        judge.holds(
            &format!("dot_bf16(&[1.003], &[1000.0], false) is 1000; yours {one}"),
            one != 1004.0,
            "You rounded the product instead of the factors.",
        );
        judge.equal(
            "dot_bf16(&[1.003], &[1000.0], false)",
            one,
            1000.0,
            "In bf16, 1.003 is 1 and 1000 is 1000.",
        );
        judge.equal(
            "dot_bf16(&[256.0, 1.0, 1.0], &[1.0, 1.0, 1.0], false)",
            dot_bf16(&[256.0, 1.0, 1.0], &[1.0; 3], false),
            258.0,
            "Without `round_sum` the sum stays in f32.",
        );
        judge.equal(
            "dot_bf16(&[256.0, 1.0, 1.0], &[1.0, 1.0, 1.0], true)",
            dot_bf16(&[256.0, 1.0, 1.0], &[1.0; 3], true),
            256.0,
            "Round after every addition: the neighbours of 256 in bf16 are 255 and 258, and 257 \
             rounds to 256.",
        );
        let (a, b): (Vec<f32>, Vec<f32>) = (0..64)
            .map(|i| ((i as f32).sin(), (i as f32).cos() + 0.5))
            .unzip();
        judge.close(
            "the difference from the sum over 64 rounded factors",
            f64::from(dot_bf16(&a, &b, false)),
            a.iter()
                .zip(&b)
                .map(|(x, y)| f64::from(round_to_bf16(*x)) * f64::from(round_to_bf16(*y)))
                .sum(),
            1e-4,
            "Every pair of factors enters the sum.",
        );
    });

    // %% [markdown]
    // Now the error by the length of the vectors. They are random numbers between 0 and 1, and the
    // right answer is computed in f64:

    // %%
    if solved!("26.2") {
        let mut draws: Draws = Stream::new(14, 0, Site::Other(0), 0).draws();
        let (mut in_f32, mut in_bf16) = (Vec::new(), Vec::new());
        for length in [16usize, 64, 256, 1024, 4096] {
            let [a, b]: [Vec<f32>; 2] =
                [(); 2].map(|_| (0..length).map(|_| draws.uniform() as f32).collect());
            let products = a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y));
            let right: f64 = products.sum();
            let error = |sum: f32| 100.0 * (f64::from(sum) / right - 1.0).abs();
            let (full, short) = (
                error(dot_bf16(&a, &b, false)),
                error(dot_bf16(&a, &b, true)),
            );
            let unit = error(speed::dot_on_unit(&a, &b, Precision::Bf16));
            println!("{length}: f32 {full:.4} % off, bf16 {short:.1} %, the unit {unit:.4} %");
            in_f32.push((length as f64, full.max(1e-4)));
            in_bf16.push((length as f64, short.max(1e-4)));
        }
        show!(
            LineChart::new("A dot product of bf16 factors: by how many % it is off")
                .logarithmic()
                .line("sum in f32", &in_f32)
                .line("sum in bf16", &in_bf16)
        );
    }

    // %% [markdown]
    // With the sum in f32 the errors of the factors go both ways and mostly cancel. With the sum in
    // bf16 the result gets stuck: once the sum is a few hundred times as large as the next product,
    // adding it changes nothing. The same would happen to parameters: an update is much smaller than
    // the parameter. That is why only the factors of products are bf16, while sums, parameters and
    // the optimizer stay in f32.

    // %% [markdown]
    // ## The rounding itself
    //
    // The simplest way to 16 bits is to cut the lower half off. But that always rounds towards 0: the
    // errors no longer cancel. So take the nearer of the two neighbours. If the lower half is exactly
    // `8000` (hexadecimal, like all bits in this table), both are equally near. Then take the
    // neighbour whose last bit is 0 (**ties to even**). So ties go up as often as down.
    //
    // | x | bits | lower half | bf16 | |
    // |---|---|---|---|---|
    // | 1.003 | `3f80 624e` | below `8000` | `3f80` | down |
    // | 1.006 | `3f80 c49c` | above | `3f81` | up |
    // | 1 + 1/256 | `3f80 8000` | a tie | `3f80` | down, to the even one |
    // | 1 + 3/256 | `3f81 8000` | a tie | `3f82` | up, to the even one |
    // | 1.999 | `3fff df3b` | above | `4000` | up: the carry reaches the exponent, this is 2 |
    // | a NaN | `7f80 0001` | | `7fc0` | must stay NaN |
    //
    // NaN has an exponent of ones and a fraction that is not 0; with the fraction 0 it is infinity. A
    // NaN whose ones all stand in the lower half becomes infinity if you cut it.
    //
    // **Exercise 26.3.** Return the upper 16 bits of `x`, rounded to the nearest, ties to even. NaN
    // stays NaN (which one does not matter).

    // %%
    fn to_bf16(x: f32) -> u16 {
        // BEGIN SOLUTION
        cloze::solution!("26.3");
        let bits = x.to_bits();
        if x.is_nan() {
            return (bits >> 16) as u16 | 0x40;
        }
        let odd = bits >> 16 & 1;
        ((bits + 0x7fff + odd) >> 16) as u16
        // END SOLUTION
    }

    // %%
    check!("26.3", |judge| {
        type Slips = [(u16, &'static str)];
        let cases: [(u32, &str, u16, &Slips); 8] = [
            (
                0x3f80_c49c,
                "1.006",
                0x3f81,
                &[
                    (
                        0x3f80,
                        "You cut the lower half off. 1.0078 is nearer to 1.006 than 1 is.",
                    ),
                    (
                        0xc49c,
                        "That is the lower half. Sign and exponent are in the upper: `>> 16`.",
                    ),
                    (
                        0xc49d,
                        "That is the lower half. Sign and exponent are in the upper: `>> 16`.",
                    ),
                    (
                        1,
                        "`as u16` made a whole number of it. You want its bits: `x.to_bits()`.",
                    ),
                ],
            ),
            (
                0x3f80_624e,
                "1.003",
                0x3f80,
                &[(
                    0x3f81,
                    "You always rounded up. 1 is nearer to 1.003 than 1.0078 is.",
                )],
            ),
            (
                0x3f80_8000,
                "1 + 1/256, a tie",
                0x3f80,
                &[(
                    0x3f81,
                    "You rounded a tie up. Take the neighbour whose last bit is 0.",
                )],
            ),
            (
                0x3f81_8000,
                "1 + 3/256, a tie",
                0x3f82,
                &[(
                    0x3f81,
                    "You rounded a tie down. Take the neighbour whose last bit is 0.",
                )],
            ),
            (
                0xbf80_c49c,
                "-1.006",
                0xbf81,
                &[
                    (0xbf80, "A negative number is rounded like a positive one."),
                    (0x3f81, "The sign got lost: it is the highest bit."),
                ],
            ),
            (
                0x3fff_df3b,
                "1.999",
                0x4000,
                &[
                    (
                        0x3fff,
                        "You rounded down. The nearest is 2: let the carry run into the exponent.",
                    ),
                    (
                        0x3f80,
                        "The carry got lost at the end of the fraction. Let it run into the exponent.",
                    ),
                ],
            ),
            (
                0x7f7f_ffff,
                "f32::MAX",
                0x7f80,
                &[(
                    0x7f7f,
                    "The largest bf16 is farther away than the next step up, which is infinity.",
                )],
            ),
            (
                0x7f80_0000,
                "infinity",
                0x7f80,
                &[(0x7fc0, "Infinity is not NaN: its fraction is 0.")],
            ),
        ];
        for (bits, name, expected, slips) in cases {
            let yours = to_bf16(f32::from_bits(bits));
            let what = format!("to_bf16 of {name} is {expected:04x}; yours {yours:04x}");
            for (slip, think) in slips {
                judge.holds(&what, yours != *slip, think);
            }
            judge.holds(&what, yours == expected, "Compare with the table.");
        }
        let back = |x: u16| f32::from_bits(u32::from(x) << 16);
        for bits in [0x7f80_0001u32, 0x7fff_ffff, 0xff80_0001, 0x7fc0_0000] {
            let yours = to_bf16(f32::from_bits(bits));
            let what = format!("to_bf16 of the NaN {bits:08x} is a NaN; yours {yours:04x}");
            judge.holds(
                &what,
                !back(yours).is_infinite(),
                "It became infinity: all ones of its fraction were in the lower half.",
            );
            judge.holds(
                &what,
                back(yours) != 0.0,
                "It became 0: the addition carried through the exponent into the sign. Treat NaN \
                 before you add.",
            );
            judge.holds(&what, back(yours).is_nan(), "Treat NaN before you add.");
        }
        let wrong = (0..20_000u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)))
            // The crate rounds subnormal numbers to 0, as the processors' instructions do.
            .filter(|x| !x.is_nan() && !x.is_subnormal())
            .find(|&x| back(to_bf16(x)).to_bits() != round_to_bf16(x).to_bits());
        judge.holds(
            &format!("to_bf16 agrees with the crate on 20,000 numbers; it differs for {wrong:?}"),
            wrong.is_none(),
            "The table's cases are right. Write down the bits of this number.",
        );
    });

    // %%
    if solved!("26.3") {
        let x = || (0..=250).map(|i| 1.0 + i as f32 / 8192.0);
        let with = |bits: &dyn Fn(f32) -> u32| -> Vec<(f64, f64)> {
            x().map(|x| (x.into(), f32::from_bits(bits(x)).into()))
                .collect()
        };
        let nearest = with(&|x| u32::from(to_bf16(x)) << 16);
        let cut_off = with(&|x| x.to_bits() & 0xffff_0000);
        for (name, points) in [("to_bf16", &nearest), ("cut off", &cut_off)] {
            let off: f64 = points.iter().map(|(x, y)| y / x - 1.0).sum();
            println!("{name}: {:+.3} % off in the mean", 100.0 * off / 251.0);
        }
        show!(
            LineChart::new("Two ways to 16 bits")
                .axes("x", "in 16 bits")
                .line("to_bf16", &nearest)
                .line("cut off", &cut_off)
        );
    }

    // %% [markdown]
    // And the speed?

    // %%
    let peak: f64 = measured_peak(Precision::F32);
    let peak_bf16: f64 = measured_peak(Precision::Bf16);
    println!("large products, f32: {:.0} GFLOP/s", peak / 1e9);
    let unit: String = CpuEngine::unit(Precision::Bf16);
    println!("bf16 on {unit}: {:.0} GFLOP/s", peak_bf16 / 1e9);
    let mut short: CpuEngine =
        CpuEngine::new(&config, &layout, first.clone())?.with_precision(Precision::Bf16);
    let steps: f64 = speed::of_training(&mut short, &batch, real)?;
    let passes: f64 = speed::of_forward(&mut short, &batch, real)?;
    println!("training: {}", training.add("engine, packed, bf16", steps));
    println!("forward:  {}", forward.add("engine, packed, bf16", passes));

    // %% [markdown]
    // If bf16 is no faster on your machine, compare these two figures: rounding the factors takes time
    // too, and only clearly faster products repay it.
    //
    // Does it still learn? Two models, one in f32 and one in bf16, start from the same parameters and
    // memorise labels. (A label says only whether the paragraph's number is odd.)

    // %%
    let labels: Vec<u32> = (0..16).map(|i| i % 2).collect();
    let mut curves: LineChart =
        LineChart::new("The same training in f32 and in bf16").axes("step", "cross-entropy (nats)");
    for precision in [Precision::F32, Precision::Bf16] {
        let mut learner: CpuEngine =
            CpuEngine::new(&config, &layout, first.clone())?.with_precision(precision);
        let mut losses: Vec<(f64, f64)> = Vec::new();
        for number in 1..=cloze::lessons::steps(60) as u32 {
            let loss = training_step(&mut learner, &batch, &labels, number)?;
            losses.push((f64::from(number), loss));
        }
        curves = curves.line(precision.to_string(), &losses);
    }
    show!(curves);

    // %% [markdown]
    // ## The whole ladder

    // %%
    show!(training.chart(format!("A training step of BERT-mini, {real} real tokens")));
    let work: f64 = flops_per_token(&config, real / 16);
    println!("{}", training.table(work, peak));
    show!(forward.chart("A forward pass, the crate's and yours"));

    // %% [markdown]
    // The last column shows how near each rung is to the limit: 100 % would be a step of nothing but f32
    // matrix products at their best speed.

    // %% [markdown]
    // ## What goes wrong
    //
    // **Positions that run on.** Count the positions of a packed batch over all sequences, and nothing
    // complains as long as there are no more than 512. The second text just gets other scores:

    // %%
    let mut running: Packed = batch.slice(0..4);
    println!("{:?}", &engine.task_logits(&running)?[2..4]);
    running.positions = (0..running.rows() as u32).collect();
    println!("{:?}", &engine.task_logits(&running)?[2..4]);

    // %% [markdown]
    // **A fast setting that the model does not have.** The reference refuses what it can't do, so that
    // nobody measures f32 and calls it bf16:

    // %%
    let impossible: Setup = Setup {
        precision: Precision::Bf16,
        ..Setup::from(Backend::Reference)
    };
    if let Err(error) = impossible.engine(&config, &layout, first) {
        println!("{error}");
    }

    // %% [markdown]
    // ## Expected numbers
    //
    // On two virtual cores of an AMD EPYC (Zen 4):
    //
    // - 598 of 1,520 tokens are padding, 39 %. Packing makes the engine 1.6 times as fast, as
    //   1,520 / 922 tokens promise;
    // - bf16 gains nothing: this processor's products reach 206 GFLOP/s in f32 and 208 in bf16. On
    //   another EPYC (Zen 5) `benches/NOTES.md` has 410 and 800 to 850;
    // - the packed engine trains 9 times as fast as dfdx on one thread, and its forward pass is three
    //   to four times as fast as `Encoder`'s, padded and packed alike;
    // - a dot product of 4,096 bf16 factors is 0.004 % off with its sum in f32, 75 % with its sum in
    //   bf16;
    // - from 1 to 1.03, `to_bf16` is 0.001 % off in the mean, cutting 0.37 %.

    // %% [markdown]
    // ## On real sizes
    //
    // `cloze bench train --size base --batch 8 --seq 384 --dtype bf16` times the paper's base model on
    // this machine. Every training command takes `--dtype bf16`, and none of them pads.

    // %% [markdown]
    // ## Open questions
    //
    // 1. Packing removes the cost of padding, but attention still costs the
    //    square of each length. Two batches have the same number of tokens, one as 4 sequences of 512,
    //    the other as 64 sequences of 32. Which is slower at BERT-base, and by how much?
    // 2. A sum of 4,096 products is computed in bf16, but in 64 parts of 64, whose sums are then added
    //    up. How does the error change, and why?
    //
    // The crate's source for this part: `src/data/packed.rs` and `src/engine/cpu/gemm/rounding.rs`.
    // Next: [lesson 27](27_masks.rs), which of BERT's decisions mattered.

    // %% [end]
    cloze::lessons::finish("26_packing")
}
