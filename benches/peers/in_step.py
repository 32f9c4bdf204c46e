"""Trains with PyTorch + transformers on the batches of a run of `cloze finetune mrpc`, from the same
weights and at the same rates, and compares the losses step by step.

    pip install torch transformers
    cloze finetune mrpc --data MRPC --model DIR --out start --limit 32 --epochs 1 --lr 1e-30
    cloze finetune mrpc --data MRPC --model start --out run --lr 5e-5 --adam-epsilon 1e-8 --dropout 0 --seed 1
    python benches/peers/in_step.py --data MRPC --start start --run run [--steps N]

The first command makes the head that both start from. Without dropout nothing is random: the losses should
agree to the rounding of float32. With `--dropout P` (and the same for `cloze`) the masks differ, and `--seed`
shows how much they change the accuracy on dev.
"""

import argparse
import csv
import json
import pathlib
import sys

import torch
import transformers

# The random stream for the order of an epoch (src/random.rs).
ORDER = 6
WORD = 0xFFFFFFFF


def philox(key, counter):
    """Philox 4x32 with 10 rounds (Salmon et al., 2011)."""
    key, c = [key & WORD, key >> 32], list(counter)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ key[0], second & WORD, (first >> 32) ^ c[3] ^ key[1], first & WORD]
        key = [(key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD]
    return c


def order(rows, seed, epoch):
    """Returns the order of the rows in an epoch of Cloze."""
    places = list(range(rows))
    for draw, left in enumerate(range(rows - 1, 0, -1)):
        bits = philox(seed, [draw // 4, epoch, ORDER, 0])[draw % 4]
        other = bits * (left + 1) >> 32
        places[left], places[other] = places[other], places[left]
    return places


def read(path, tokenizer):
    with open(path, encoding="utf-8-sig") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [(tokenizer(row[3], row[4], truncation=True, max_length=128), int(row[0])) for row in rows]


def collate(tokenizer, batch):
    return tokenizer.pad([text for text, _ in batch], return_tensors="pt"), torch.tensor([label for _, label in batch])


def main():
    parser = argparse.ArgumentParser()
    for name in ["data", "start", "run"]:
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--order", type=int, default=1, help="seed of the run of Cloze")
    parser.add_argument("--seed", type=int, default=1, help="of PyTorch's dropout")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    lines = [json.loads(line) for line in open(options.run / "trainer" / "metrics.jsonl")]
    recorded = [line for line in lines if "loss" in line][: options.steps]

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.start)
    p = options.dropout
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.start, hidden_dropout_prob=p, attention_probs_dropout_prob=p, classifier_dropout=p
    )
    plain = lambda name: "bias" in name or "LayerNorm" in name
    decayed = [value for name, value in model.named_parameters() if not plain(name)]
    others = [value for name, value in model.named_parameters() if plain(name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups)
    rows = read(options.data / "train.tsv", tokenizer)
    steps = -(-len(rows) // 32)
    largest = 0.0
    model.train()
    for step, line in enumerate(recorded):
        if step % steps == 0:
            places = order(len(rows), options.order, step // steps)
        first = step % steps * 32
        inputs, labels = collate(tokenizer, [rows[place] for place in places[first : first + 32]])
        for group in optimizer.param_groups:
            group["lr"] = line["learning_rate"]
        loss = torch.nn.functional.cross_entropy(model(**inputs).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        largest = max(largest, abs(loss.item() - line["loss"]))
        print(f"step {step + 1}: Cloze {line['loss']:.7f}, PyTorch {loss.item():.7f}", file=sys.stderr)

    model.eval()
    right, dev = 0, read(options.data / "dev.tsv", tokenizer)
    with torch.no_grad():
        for first in range(0, len(dev), 32):
            inputs, labels = collate(tokenizer, dev[first : first + 32])
            right += int((model(**inputs).logits.argmax(-1) == labels).sum())
    print(json.dumps({"steps": len(recorded), "largest_difference": largest, "dev_accuracy": right / len(dev)}))


if __name__ == "__main__":
    main()
