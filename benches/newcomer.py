"""From command to answer: a newcomer's task in Cloze, in a plain PyTorch loop and in transformers' Trainer.

    python benches/newcomer.py --squad SQUAD/train-v1.1.json.gz --model MINILM --cloze target/release/cloze

Writes CSV files of the questions on six subjects, the articles of SQuAD 1.1 with the most questions (3,819 to train on,
545 to measure on; like TREC's set, short questions with six labels), trains three epochs in batches of 32 at a learning rate of 1e-4, measures on
those held out, and times each whole process: start-up, tokenising, training, measuring, saving. The programs take
turns, and the medians count. Needs torch, transformers and accelerate.
"""

import argparse
import csv
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HELD_OUT, EPOCHS, BATCH, RATE = 545, 3, 32, 1e-4


def write_csv(squad, folder):
    data = json.load(gzip.open(squad))["data"]
    sizes = {a["title"]: sum(len(p["qas"]) for p in a["paragraphs"]) for a in data}
    subjects = sorted(sizes, key=sizes.get)[-6:]
    rows = [
        (qa["question"].strip(), article["title"])
        for article in data
        if article["title"] in subjects
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    # A fixed shuffle, so that both files have all subjects.
    rows.sort(key=lambda row: hash_of(row[0]))
    for name, part in [("train.csv", rows[HELD_OUT:]), ("dev.csv", rows[:HELD_OUT])]:
        with open(folder / name, "w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *part])
    return len(rows[HELD_OUT:])


def hash_of(text):
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def read_csv(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def torch_loop(args):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

    torch.manual_seed(1)
    folder = pathlib.Path(args.data)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    (texts, names), (dev_texts, dev_names) = read_csv(folder / "train.csv"), read_csv(folder / "dev.csv")
    classes = sorted(set(names))
    labels, dev = [classes.index(n) for n in names], [classes.index(n) for n in dev_names]
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=len(classes))
    steps = EPOCHS * -(-len(texts) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    for _ in range(EPOCHS):
        order = torch.randperm(len(texts)).tolist()
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=128, return_tensors="pt")
            loss = model(**batch, labels=torch.tensor([labels[i] for i in rows])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(dev), 64):
            batch = tokenizer(dev_texts[start : start + 64], padding=True, truncation=True, max_length=128, return_tensors="pt")
            right += (model(**batch).logits.argmax(-1) == torch.tensor(dev[start : start + 64])).sum().item()
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    print(right / len(dev))


def trainer(args):
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    folder = pathlib.Path(args.data)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    classes = sorted(set(read_csv(folder / "train.csv")[1]))

    class Rows(torch.utils.data.Dataset):
        def __init__(self, path):
            texts, names = read_csv(path)
            self.encoded = tokenizer(texts, truncation=True, max_length=128)
            self.labels = [classes.index(name) for name in names]

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, index):
            return {**{k: v[index] for k, v in self.encoded.items()}, "labels": self.labels[index]}

    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=len(classes))
    settings = TrainingArguments(
        args.out,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        learning_rate=RATE,
        warmup_steps=0.1,
        weight_decay=0.01,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
    )
    run = Trainer(
        model,
        settings,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=Rows(folder / "train.csv"),
        eval_dataset=Rows(folder / "dev.csv"),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )
    run.train()
    accuracy = run.evaluate()["eval_accuracy"]
    run.save_model(args.out)
    tokenizer.save_pretrained(args.out)
    print(accuracy)


def cloze(args, data, out):
    command = [
        args.cloze, "finetune", "custom", "--train", f"{data}/train.csv", "--dev", f"{data}/dev.csv",
        "--columns", "text,label", "--model", args.model, "--out", out, "--lr", str(RATE),
        "--epochs", str(EPOCHS), "--batch", str(BATCH), "--json",
    ]  # fmt: skip
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(text)["dev"]["accuracy"]


def peer(name):
    def run(args, data, out):
        command = [sys.executable, __file__, "--peer", name, "--data", data, "--model", args.model, "--out", out]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        return float(text.split()[-1])

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--squad")
    parser.add_argument("--model", required=True)
    parser.add_argument("--cloze", default="target/release/cloze")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", choices=["loop", "trainer"])
    parser.add_argument("--data")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.peer:
        return {"loop": torch_loop, "trainer": trainer}[args.peer](args)
    programs = {"Cloze": cloze, "PyTorch loop": peer("loop"), "Trainer": peer("trainer")}
    seconds, accuracy = {name: [] for name in programs}, {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        print("rows to train on:", write_csv(args.squad, pathlib.Path(folder)))
        for turn in range(args.rounds):
            for name, run in programs.items():
                out = os.path.join(folder, f"{name.split()[0]}-{turn}")
                start = time.perf_counter()
                accuracy[name].append(run(args, folder, out))
                seconds[name].append(time.perf_counter() - start)
                print(f"{name}: {seconds[name][-1]:.1f} s, accuracy {accuracy[name][-1]:.4f}", flush=True)
    for name in programs:
        median = statistics.median(seconds[name])
        print(f"{name}: median {median:.1f} s, {median / statistics.median(seconds['Cloze']):.2f} of Cloze's")


main()
