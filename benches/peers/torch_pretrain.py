"""Peer: pre-trains a BERT with PyTorch and transformers for a given time, on the CPU in bf16 or f32.

    pip install torch transformers numpy
    python benches/peers/torch_pretrain.py --text train.txt --vocab vocab.txt --out DIR --seconds 3600 [--seed 1]

The defaults are the paper's recipe: pairs as in google-research/bert's create_pretraining_data.py, 15 % of the tokens
masked, AdamW, warm-up over a hundredth, linear decay, dropout 0.1. The other options are those of Cloze's recipes.
Only training counts as time: the examples are made before, in --passes over the text, and the masks are drawn anew in
every pass. The logits are computed for the masked tokens only, which transformers' own loss does not do. The learning
rate and the phases follow the clock, so that the time is used to its end; with --steps in place of --seconds they follow
the steps. Prints one JSON line; `cloze` reads DIR.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import time

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertForPreTraining

SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+")
SHORT = 0.1


def documents(options, tokenizer):
    """Returns documents as lists of sentences as lists of ids."""
    text = options.text.read_text(encoding="utf-8")
    found = []
    for document in re.split(r"\n\s*\n", text):
        sentences = [s for line in document.splitlines() for s in SENTENCE.split(line) if s.strip()]
        encoded = tokenizer.encode_batch(sentences, add_special_tokens=False)
        if ids := [np.array(e.ids, dtype=np.int32) for e in encoded if e.ids]:
            found.append(ids)
    return found


def pairs(texts, seq, dice):
    """Yields (ids of A, ids of B, whether B is another text's) as create_pretraining_data.py makes them."""
    order = list(range(len(texts)))
    dice.shuffle(order)
    for number in order:
        document, most = texts[number], seq - 3
        chunk, length, at = [], 0, 0
        target = dice.randint(2, most) if dice.random() < SHORT else most
        while at < len(document):
            chunk.append(document[at])
            length += len(document[at])
            if at == len(document) - 1 or length >= target:
                split = dice.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                first = np.concatenate(chunk[:split])
                another = len(chunk) == 1 or dice.random() < 0.5
                if another:
                    other = texts[dice.choice([n for n in (dice.randrange(len(texts)) for _ in range(10)) if n != number])]
                    begin, second = dice.randrange(len(other)), []
                    while begin < len(other) and sum(map(len, second)) < target - len(first):
                        second.append(other[begin])
                        begin += 1
                    # The sentences that were not used are not lost.
                    at -= len(chunk) - split
                else:
                    second = chunk[split:]
                second = np.concatenate(second) if second else first[:0]
                while len(first) + len(second) > most:
                    longer_is_first = len(first) > len(second)
                    cut = slice(1, None) if dice.random() < 0.5 else slice(None, -1)
                    first, second = (first[cut], second) if longer_is_first else (first, second[cut])
                if len(first) and len(second):
                    yield first, second, int(another)
                chunk, length = [], 0
                target = dice.randint(2, most) if dice.random() < SHORT else most
            at += 1


def full(texts, seq, dice, sep):
    """Yields sequences of RoBERTa's full sentences: a [SEP] between documents, no second segment."""
    order = list(range(len(texts)))
    dice.shuffle(order)
    parts = [part for number in order for part in (*texts[number], np.array([sep], dtype=np.int32))]
    ids = np.concatenate(parts)
    for at in range(0, len(ids) - seq, seq - 2):
        yield ids[at:at + seq - 2], ids[:0], 0


class Examples:
    """All examples of one length, as arrays."""

    def __init__(self, options, texts, seq, special):
        dice = random.Random(options.seed)
        made = []
        for _ in range(options.passes):
            made += full(texts, seq, dice, special["[SEP]"]) if options.no_nsp else pairs(texts, seq, dice)
        self.ids = np.full((len(made), seq), special["[PAD]"], dtype=np.int32)
        self.lengths, self.seconds = np.zeros(len(made), dtype=np.int64), np.zeros(len(made), dtype=np.int64)
        self.labels = np.array([label for _, _, label in made], dtype=np.int64)
        for row, (first, second, _) in enumerate(made):
            both = [[special["[CLS]"]], first, [special["[SEP]"]], second, [special["[SEP]"]] if len(second) else []]
            ids = np.concatenate([np.asarray(part, dtype=np.int32) for part in both])
            self.ids[row, :len(ids)] = ids
            self.lengths[row], self.seconds[row] = len(ids), len(first) + 2
        self.order, self.at, self.draw = np.zeros(0, dtype=np.int64), 0, np.random.default_rng(options.seed)
        self.special, self.seq = special, seq

    def batch(self, size, share, pieces):
        if self.at + size > len(self.order):
            self.order, self.at = self.draw.permutation(len(self.ids)), 0
        rows = self.order[self.at:self.at + size]
        self.at += size
        ids, lengths = self.ids[rows].astype(np.int64), self.lengths[rows]
        place = np.arange(self.seq)
        real = place < lengths[:, None]
        special = np.isin(ids, [self.special["[CLS]"], self.special["[SEP]"]])
        # The tokens with the smallest random numbers are masked.
        chance = np.where(real & ~special, self.draw.random(ids.shape), 2.0)
        most = max(1, round(self.seq * share))
        places = np.argpartition(chance, most - 1, axis=1)[:, :most]
        drawn = np.sort(np.take_along_axis(chance, places, axis=1), axis=1)
        places = np.take_along_axis(places, np.argsort(np.take_along_axis(chance, places, axis=1), axis=1), axis=1)
        counts = np.maximum(1, np.round(lengths * share)).astype(np.int64)
        used = (np.arange(most) < counts[:, None]) & (drawn < 2.0)
        labels = np.where(used, np.take_along_axis(ids, places, axis=1), -100)
        how = self.draw.random(places.shape)
        replaced = np.where(how < 0.8, self.special["[MASK]"], np.take_along_axis(ids, places, axis=1))
        replaced = np.where(how >= 0.9, self.draw.integers(len(self.special), pieces, places.shape), replaced)
        np.put_along_axis(ids, places, np.where(used, replaced, np.take_along_axis(ids, places, axis=1)), axis=1)
        types = ((place >= self.seconds[rows][:, None]) & real).astype(np.int64)
        tensors = [ids, types, real.astype(np.int64), places, labels, self.labels[rows]]
        return [torch.from_numpy(array) for array in tensors], int(lengths.sum())


def forward(model, batch, no_nsp):
    ids, types, real, places, labels, another = batch
    hidden = model.bert(input_ids=ids, token_type_ids=types, attention_mask=real)
    states = hidden.last_hidden_state
    masked = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2]))
    words, next_sentence = model.cls(masked, hidden.pooler_output)
    loss = torch.nn.functional.cross_entropy(words.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
    if not no_nsp:
        loss = loss + torch.nn.functional.cross_entropy(next_sentence.float(), another)
    return loss


def optimizers(options, model):
    """AdamW, with decay of the matrices alone; with Muon, the layers' matrices are its own."""
    layers, weights, others = [], [], []
    for name, parameter in model.named_parameters():
        if options.optimizer == "muon" and ".layer." in name and parameter.ndim == 2:
            layers.append(parameter)
        else:
            (others if name.endswith("bias") or "LayerNorm" in name else weights).append(parameter)
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    made = [torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, options.beta2), eps=1e-6, fused=True)]
    if layers:
        made.append(torch.optim.Muon(layers, lr=options.lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"))
    return made


def repeat_positions(model, trained):
    """Repeats the vectors of the trained positions for the others, as Cloze does when the first phase ends."""
    table = model.bert.embeddings.position_embeddings.weight
    with torch.no_grad():
        for row in range(trained, len(table)):
            table[row] = table[1 + (row - 1) % (trained - 1)]


def shrink_blocks(model, scale):
    """Multiplies the first weights of each block's last layer, as Cloze's recipe `hour` does."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("output.dense.weight"):
                parameter.mul_(scale)


def rate(options, done):
    """The share of the highest learning rate after a share of the time."""
    if done < options.warmup:
        return done / options.warmup
    left = (1 - done) / (1 - options.warmup)
    return min(1.0, left / 0.4) if options.schedule == "trapezoid" else left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("text", "vocab", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=float)
    length.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=2)
    for name, value in {"layers": 2, "hidden": 128, "heads": 2, "intermediate": 512, "positions": 128, "seq": 128,
                        "first-seq": 128, "batch": 32}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in {"lr": 1e-4, "warmup": 0.01, "beta2": 0.999, "dropout": 0.1, "initializer-range": 0.02,
                        "last-layer-scale": 1.0, "mask-prob": 0.15, "phase-share": 0.9}.items():
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--schedule", choices=["linear", "trapezoid"], default="linear")
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    parser.add_argument("--no-nsp", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--f32", action="store_true", help="compute in f32: faster where no unit multiplies bf16")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = BertWordPieceTokenizer(str(options.vocab), lowercase=True)
    pieces = tokenizer.get_vocab_size()
    special = {name: tokenizer.token_to_id(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    texts = documents(options, tokenizer)
    examples = {seq: Examples(options, texts, seq, special) for seq in {options.first_seq, options.seq}}
    config = BertConfig(
        vocab_size=pieces, num_hidden_layers=options.layers, hidden_size=options.hidden,
        num_attention_heads=options.heads, intermediate_size=options.intermediate,
        max_position_embeddings=options.positions, hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout, initializer_range=options.initializer_range,
        attn_implementation="sdpa", pad_token_id=special["[PAD]"],
    )
    model = BertForPreTraining(config).train()
    shrink_blocks(model, options.last_layer_scale)
    step_of = torch.compile(forward) if options.compile else forward
    # Compiling is not training: both lengths are seen once before, without an update.
    for seq in examples if options.compile else []:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not options.f32):
            step_of(model, examples[seq].batch(options.batch, options.mask_prob, pieces)[0], options.no_nsp).backward()
        model.zero_grad(set_to_none=True)
    chosen = optimizers(options, model)
    seq = options.first_seq
    steps, tokens, losses, began = 0, 0, [], time.perf_counter()
    while True:
        done = steps / options.steps if options.steps else (time.perf_counter() - began) / options.seconds
        if done >= 1:
            break
        if seq < options.seq and done >= options.phase_share:
            repeat_positions(model, seq)
            seq = options.seq
        batch, count = examples[seq].batch(options.batch, options.mask_prob, pieces)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not options.f32):
            loss = step_of(model, batch, options.no_nsp)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in chosen:
            for group in optimizer.param_groups:
                group["lr"] = options.lr * rate(options, done)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        steps, tokens = steps + 1, tokens + count
    seconds = time.perf_counter() - began
    model.save_pretrained(options.out)
    shutil.copy(options.vocab, options.out / "vocab.txt")
    print(json.dumps({"steps": steps, "train_seconds": round(seconds), "tokens_per_s": round(tokens / seconds),
                      "loss_last": round(float(np.mean(losses[-100:])), 4)}))


if __name__ == "__main__":
    main()
