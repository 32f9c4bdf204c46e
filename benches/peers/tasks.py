"""Peer: fine-tunes a BERT folder with PyTorch and transformers on CODAH, CoNLL-2003 or SQuAD 1.1.

    pip install torch transformers numpy seqeval
    python benches/peers/tasks.py codah --data codah --model DIR [--fold 1] [--seed 1]
    python benches/peers/tasks.py ner --data conll2003 --model DIR
    python benches/peers/tasks.py squad --data squad --model DIR --limit 8000 --out predictions.json

Prints one JSON line: seconds of training, real tokens a second, the metric on the development data;
for SQuAD it writes the predictions, to be scored by `cloze score squad`. The recipe is `cloze
finetune`'s: AdamW with weight decay 0.01 on weights, clipping at 1, warm-up over a tenth of the
steps, then linear decay; batches in random order, padded to their longest sequence. With `--micro N`,
N rows of similar length at a time are padded and computed, and their gradients are added up: the same
update with less padding. (For SQuAD almost the same, as transformers' softmax over positions includes the
padding.)
"""

import argparse
import csv
import gzip
import json
import random
import time
from pathlib import Path

import numpy as np
import torch
import transformers

IGNORED = -100


def opened(path):
    packed = path.with_name(path.name + ".gz")
    return gzip.open(packed, "rt", encoding="utf-8") if packed.exists() else open(path, encoding="utf-8")


class Codah:
    """Holds out every fifth row, from row `fold` on, as `cloze finetune codah --fold` does."""

    model = transformers.AutoModelForMultipleChoice
    max_len = 80
    more = {}

    def __init__(self, options, tokenizer):
        self.tokenizer = tokenizer
        with opened(options.data / "full_data.tsv") as lines:
            rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        apart = lambda i: i % 5 == options.fold - 1
        self.train = [self.encode(row) for i, row in enumerate(rows) if not apart(i)]
        self.dev = [self.encode(row) for i, row in enumerate(rows) if apart(i)]

    def encode(self, row):
        choices = [self.tokenizer(row[1], ending, truncation=True, max_length=self.max_len) for ending in row[2:6]]
        return choices, int(row[6])

    def collate(self, batch):
        flat = [choice for choices, _ in batch for choice in choices]
        inputs = self.tokenizer.pad(flat, padding="longest", return_tensors="pt")
        inputs = {name: x.view(len(batch), 4, -1) for name, x in inputs.items()}
        return {**inputs, "labels": torch.tensor([label for _, label in batch])}

    def measure(self, outputs):
        right = [int(logits.argmax() == label) for (logits,), (_, label) in zip(outputs, self.dev)]
        return {"accuracy": sum(right) / len(right)}

    def split(self, output, inputs):
        return [(row,) for row in output.logits.numpy()]


class Entities:
    model = transformers.AutoModelForTokenClassification
    max_len = 128

    def __init__(self, options, tokenizer):
        self.tokenizer = tokenizer
        train, dev = self.read(options.data / "eng.train"), self.read(options.data / "eng.testa")
        kinds = sorted({tag[2:] for _, tags in train for tag in tags if tag != "O"})
        self.labels = ["O"] + [f"{place}-{kind}" for kind in kinds for place in "BI"]
        self.more = {"num_labels": len(self.labels)}
        self.train, self.dev = map(self.encode, train), map(self.encode, dev)
        self.train, self.dev = list(self.train), list(self.dev)
        self.gold = [tags for _, tags in dev]

    @staticmethod
    def read(path):
        """Returns sentences with tags in IOB2."""
        sentences, words, tags = [], [], []
        with opened(path) as lines:
            for line in [*lines, ""]:
                fields = line.split()
                if fields and fields[0] != "-DOCSTART-":
                    words.append(fields[0])
                    tags.append(fields[-1])
                elif not fields and words:
                    for i in reversed(range(len(tags))):
                        inside = i > 0 and tags[i - 1][2:] == tags[i][2:] and tags[i - 1] != "O"
                        if tags[i][0] == "I" and not inside:
                            tags[i] = "B" + tags[i][1:]
                    sentences.append((words, tags))
                    words, tags = [], []
        return sentences

    def encode(self, sentence):
        words, tags = sentence
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.max_len)
        labels, before = [], None
        for word in encoded.word_ids():
            first = word is not None and word != before
            labels.append(self.labels.index(tags[word]) if first else IGNORED)
            before = word
        return encoded, labels

    def collate(self, batch):
        inputs = self.tokenizer.pad([encoded for encoded, _ in batch], padding="longest", return_tensors="pt")
        longest = inputs["input_ids"].shape[1]
        rows = [labels + [IGNORED] * (longest - len(labels)) for _, labels in batch]
        return {**inputs, "labels": torch.tensor(rows)}

    def split(self, output, inputs):
        return list(zip(output.logits.argmax(-1).numpy(), inputs["labels"].numpy()))

    def measure(self, outputs):
        from seqeval.metrics import f1_score

        predicted = []
        for (predicted, labels), gold in zip(outputs, self.gold):
            tags = [self.labels[p] for p, label in zip(predicted, labels) if label != IGNORED]
            predicted.append(tags + ["O"] * (len(gold) - len(tags)))
        return {"f1": float(f1_score(self.gold, predicted))}


class Squad:
    model = transformers.AutoModelForQuestionAnswering
    max_len, stride, longest_question, longest_answer, best = 384, 128, 64, 30, 20
    more = {}

    def __init__(self, options, tokenizer):
        self.tokenizer, self.out = tokenizer, options.out
        train = self.read(options.data / "train-v1.1.json")[: options.limit or None]
        self.train = [window for question in train for window in self.windows(question, True)]
        self.questions = self.read(options.data / "dev-v1.1.json")[: options.dev_limit or None]
        self.dev = [window for question in self.questions for window in self.windows(question, False)]

    @staticmethod
    def read(path):
        with opened(path) as file:
            data = json.load(file)["data"]
        return [(qa["id"], qa["question"], p["context"], qa["answers"][0])
                for article in data for p in article["paragraphs"] for qa in p["qas"]]

    def windows(self, question, training):
        name, text, context, answer = question
        # First the question alone is truncated, as in google-research/bert.
        ids = self.tokenizer(text, add_special_tokens=False, truncation=True, max_length=self.longest_question)
        text = self.tokenizer.decode(ids["input_ids"]) if len(ids["input_ids"]) == self.longest_question else text
        encoded = self.tokenizer(text, context, truncation="only_second", max_length=self.max_len,
                                 stride=self.max_len - len(ids["input_ids"]) - 3 - self.stride,
                                 return_overflowing_tokens=True, return_offsets_mapping=True)
        start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
        for i in range(len(encoded["input_ids"])):
            segments, offsets = encoded.sequence_ids(i), encoded["offset_mapping"][i]
            rows = [row for row, segment in enumerate(segments) if segment == 1]
            span = (0, 0)
            if offsets[rows[0]][0] <= start and end <= offsets[rows[-1]][1]:
                span = (max(r for r in rows if offsets[r][0] <= start), min(r for r in rows if offsets[r][1] >= end))
            inputs = {key: encoded[key][i] for key in ["input_ids", "token_type_ids", "attention_mask"]}
            kept = None if training else (name, context, {r: offsets[r] for r in rows})
            yield inputs, span, kept

    def collate(self, batch):
        inputs = self.tokenizer.pad([inputs for inputs, _, _ in batch], padding="longest", return_tensors="pt")
        spans = torch.tensor([span for _, span, _ in batch])
        return {**inputs, "start_positions": spans[:, 0], "end_positions": spans[:, 1]}

    def split(self, output, inputs):
        return list(zip(output.start_logits.numpy(), output.end_logits.numpy()))

    def measure(self, outputs):
        found = {}
        for (starts, ends), (_, _, (name, context, offsets)) in zip(outputs, self.dev):
            top = lambda logits: [int(r) for r in np.argsort(-logits) if int(r) in offsets][: self.best]
            for i in top(starts):
                for j in top(ends):
                    score = starts[i] + ends[j]
                    if i <= j < i + self.longest_answer and score > found.get(name, (-np.inf, ""))[0]:
                        found[name] = (score, context[offsets[i][0]:offsets[j][1]])
        predictions = {name: found.get(name, (0, ""))[1] for name, _, _, _ in self.questions}
        self.out.write_text(json.dumps(predictions, ensure_ascii=False))
        return {}


def length(row):
    """Returns the number of pieces of a row, or of the longest of its choices."""
    texts = row[0] if isinstance(row[0], list) else [row[0]]
    return max(len(text["input_ids"]) for text in texts)


def labelled(inputs):
    """Returns the number of labels in the mean loss of these rows."""
    labels = inputs["labels"] if "labels" in inputs else inputs["start_positions"]
    return int((labels != IGNORED).sum())


TASKS = {"codah": Codah, "ner": Entities, "squad": Squad}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("task", choices=TASKS)
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--micro", type=int, default=0, help="rows computed at a time; 0: the whole batch")
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--fold", type=int, default=1)
    p.add_argument("--limit", type=int, default=0, help="questions of SQuAD to train on")
    p.add_argument("--dev-limit", type=int, default=0, help="questions of SQuAD to answer")
    p.add_argument("--out", type=Path, help="predictions of SQuAD")
    p.add_argument("--threads", type=int, default=2)
    options = p.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    order = random.Random(options.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    task = TASKS[options.task](options, tokenizer)
    model = task.model.from_pretrained(options.model, **task.more)
    plain = lambda name: "bias" in name or "LayerNorm" in name
    groups = [[q for n, q in model.named_parameters() if plain(n) == which] for which in (False, True)]
    optimizer = torch.optim.AdamW([{"params": groups[0], "weight_decay": 0.01},
                                   {"params": groups[1], "weight_decay": 0.0}], lr=options.lr, fused=True)
    steps = options.epochs * -(-len(task.train) // options.batch)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(0.1 * steps), steps)
    cut = lambda rows, size: [rows[i:i + size] for i in range(0, len(rows), size)]
    tokens, seconds = 0, 0.0
    model.train()
    for _ in range(options.epochs):
        rows = task.train[:]
        order.shuffle(rows)
        started = time.time()
        for batch in cut(rows, options.batch):
            batch = sorted(batch, key=length) if options.micro else batch
            parts = [task.collate(part) for part in cut(batch, options.micro or options.batch)]
            labels = sum(map(labelled, parts))
            optimizer.zero_grad(set_to_none=True)
            for inputs in parts:
                tokens += int(inputs["attention_mask"].sum())
                (model(**inputs).loss * (labelled(inputs) / labels)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        seconds += time.time() - started
    model.eval()
    outputs = [None] * len(task.dev)
    with torch.no_grad():
        for rows in cut(sorted(range(len(task.dev)), key=lambda i: length(task.dev[i])), options.batch):
            inputs = task.collate([task.dev[i] for i in rows])
            for i, output in zip(rows, task.split(model(**inputs), inputs)):
                outputs[i] = output
    print(json.dumps({"task": options.task, "train_seconds": seconds, "real_tokens_per_s": tokens / seconds,
                      "dev": task.measure(outputs)}))


if __name__ == "__main__":
    main()
