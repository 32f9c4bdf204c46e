"""Runs entries of the speedrun and keeps their results; README.md beside this has the rules.

    python3 benches/speedrun/run.py prepare --data DIR --work DIR
    python3 benches/speedrun/run.py train NAME --work DIR [--minutes 60] [--seed 1] [-- OPTIONS of cloze pretrain]
    python3 benches/speedrun/run.py train NAME --work DIR --torch PYTHON [..] [-- OPTIONS of peers/torch_pretrain.py]
    python3 benches/speedrun/run.py search [NAME] --work DIR [--minutes 10]
    python3 benches/speedrun/run.py tasks NAME --work DIR --data DIR [--seed 1]
    python3 benches/speedrun/run.py table [--minutes 60]

`prepare` makes the text, its vocabulary and a token store in --work, once. `train` trains within the time, measures the
model, which stays in WORK/NAME-MINUTES-SEED, and adds a line to results.jsonl. `tasks` fine-tunes that model and adds
the scores. `search` trains each of candidates.txt that has no result yet, or those of which the names begin with NAME.
In options `--shape 4x192` is a model of 4 layers, 192 wide, with heads of 64 and positions for 128 tokens.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "benches"))
import machine  # noqa: E402  (needs the path)

RESULTS = HERE / "results.jsonl"
CANDIDATES = HERE / "candidates.txt"
PIECES, SEQ = 8000, 128
# Seconds that are trained to find out how many steps fit into the time, and the share of the time that is planned:
# on a shared machine no two runs have the same speed.
PROBE, PLANNED = 20, 0.98

# Task: data below --data or the lessons' data, metric, options.
LESSONS = {
    "spam": ("custom", "accuracy", ["--columns", "text,label", "--epochs", "5"]),
    "answerable": ("qnli", "accuracy", ["--epochs", "10"]),
    "endings": ("swag", "accuracy", ["--epochs", "10"]),
    "names": ("ner", "f1", ["--epochs", "20"]),
    "questions": ("squad2", "f1", ["--epochs", "10"]),
}
GLUE = {
    "mrpc": ("glue/MRPC", "accuracy"),
    "rte": ("glue/RTE", "accuracy"),
    "sts-b": ("glue/STS-B", "pearson"),
    "cola": ("glue/CoLA", "mcc"),
}
LESSONS_SEEDS, GLUE_SEEDS = 3, 1
# Tasks of which the official score is a percentage; the others' are at most 1.
PERCENT = ("squad2",)


def call(command, **options):
    """Runs a command and returns the JSON object in the last line of what it prints."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed")
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def prepare(options):
    work = options.work
    counts = call([sys.executable, HERE / "corpus.py", "--data", options.data, "--out", work])
    vocabulary, store = work / "vocab.txt", work / "store"
    text = ["--text", work / "train.txt"]
    call([options.cloze, "vocab", *text, "--size", PIECES, "--out", vocabulary])
    call([options.cloze, "prepare", *text, "--vocab", vocabulary, "--out", store])
    print(json.dumps(counts))


def shaped(options):
    """Returns the options with the size in place of the shape."""
    words = options.options
    if "--shape" not in words:
        return words
    at = words.index("--shape")
    layers, hidden = map(int, words[at + 1].split("x"))
    size = {"layers": layers, "hidden": hidden, "heads": max(2, hidden // 64), "intermediate": 4 * hidden, "positions": SEQ}
    rest = words[:at] + words[at + 2:]
    if options.torch:
        return [word for name, value in size.items() for word in (f"--{name}", value)] + rest
    config = options.work / f"{words[at + 1]}.json"
    # As Cloze's narrow models.
    config.write_text(json.dumps({
        "model_type": "bert", "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": size["heads"], "intermediate_size": size["intermediate"],
        "max_position_embeddings": SEQ, "vocab_size": PIECES, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "initializer_range": 0.9 / math.sqrt(hidden),
    }), encoding="utf-8")
    return ["--size", config, *rest]


def pretrain(options, out, steps, evaluate, more=()):
    command = [options.cloze, "pretrain", "--store", options.work / "store", "--held-out", options.work / "held-out.txt"]
    command += ["--seq", SEQ, "--dtype", "bf16", "--seed", options.seed, *shaped(options), *more]
    command += ["--out", out, "--overwrite", "--json", "--save-every", 0, "--steps", steps]
    return call([*command, "--eval-every", evaluate])


def step_times(folder):
    """Returns the seconds of each step, without the evaluations between them."""
    lines = [json.loads(line) for line in open(folder / "trainer" / "metrics.jsonl", encoding="utf-8")]
    return [now["time"] - before["time"] for before, now in zip(lines, lines[1:]) if "loss" in now]


def step_time(options):
    """Trains for some seconds, with both phases in their shares, and returns the mean of a step."""
    mean = PROBE
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            steps = max(50, int(PROBE / mean))
            pretrain(options, folder, steps, steps, ["--eval-sequences", 32])
            # The first steps allocate buffers.
            mean = statistics.mean(step_times(pathlib.Path(folder))[3:])
    return mean


def measure(options, model):
    """Returns the fixed metric: what a model predicts of held-out text with the paper's masks."""
    text = options.work / "held-out.txt"
    with tempfile.TemporaryDirectory() as out:
        # A run is measured before its first step.
        call([options.cloze, "pretrain", "--init", model, "--text", text, "--held-out", text, "--seq", SEQ,
              "--steps", 1, "--batch", 32, "--eval-sequences", 4096, "--seed", 0, "--out", out, "--overwrite", "--json"])
        with open(pathlib.Path(out) / "trainer" / "metrics.jsonl", encoding="utf-8") as lines:
            first = json.loads(lines.readline())["eval"]
    # A head that was not trained was made for the measurement.
    pairs = None if "--no-nsp" in options.options else first["nsp_accuracy"]
    return {"held_out_loss": first["mlm_loss"], "held_out_accuracy": first["mlm_accuracy"], "next_sentence": pairs}


def train(options):
    """Trains and measures an entry, for as many steps as fit into the time."""
    folder = options.work / f"{options.name}-{options.minutes:g}-{options.seed}"
    seconds = 60 * options.minutes
    if options.torch:
        command = [options.torch, ROOT / "benches/peers/torch_pretrain.py", "--text", options.work / "train.txt"]
        command += ["--vocab", options.work / "vocab.txt", "--out", folder, "--seconds", seconds, "--seed", options.seed]
        command += ["--threads", os.cpu_count(), *shaped(options)]
        trained = call(command, env=os.environ | machine.PYTORCH_ALLOCATOR)
    else:
        # An entry is probed just before it trains.
        steps = int(seconds * PLANNED / step_time(options))
        summary = pretrain(options, folder, steps, max(1, steps // 10))
        times = step_times(folder)
        trained = {"steps": steps, "train_seconds": round(sum(times)), "tokens_per_s": round(summary["tokens_per_s"])}
    result = {
        "name": options.name, "program": "torch" if options.torch else "cloze", "minutes": options.minutes,
        "seed": options.seed, "options": " ".join(options.options), **trained, **measure(options, folder),
        "date": datetime.date.today().isoformat(), "processor": machine.processor(), "comment": options.comment,
    }
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(json.dumps(result))


def results():
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def candidates(options):
    """Yields the names of the candidates, with the options set to each."""
    for line in CANDIDATES.read_text(encoding="utf-8").splitlines():
        options.name, separator, words = line.partition(": --")
        options.options = f"--{words}".split()
        if separator:
            yield options.name


def search(options):
    begin = options.name or ""
    done = {(line["name"], line["minutes"], line["seed"]) for line in results()}
    for name in candidates(options):
        if name.startswith(begin) and (name, options.minutes, options.seed) not in done:
            train(options)


def tasks(options):
    model = options.work / f"{options.name}-{options.minutes:g}-{options.seed}"
    scores = {}
    runs = [(name, task, ROOT / "lessons/data" / name, metric, LESSONS_SEEDS, more)
            for name, (task, metric, more) in LESSONS.items()]
    runs += [(task, task, options.data / folder, metric, GLUE_SEEDS, ["--epochs", "3"])
             for task, (folder, metric) in GLUE.items()]
    for name, task, data, metric, seeds, more in runs:
        found = []
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory() as out:
                command = [options.cloze, "finetune", task, "--data", data, "--model", model, "--batch", 16, "--seed", seed]
                found.append(call([*command, *more, "--out", out, "--overwrite", "--json"])["dev"][metric])
        scores[name] = statistics.mean(found) / (100 if task in PERCENT else 1)
        print(f"{name}: {scores[name]:.4f}", file=sys.stderr, flush=True)
    lines = results()
    for line in lines:
        if (line["name"], line["minutes"], line["seed"]) == (options.name, options.minutes, options.seed):
            line["tasks"] = scores | {"mean": statistics.mean(scores.values())}
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def table(options):
    rows = {}
    for line in results():
        if line["minutes"] == options.minutes:
            rows.setdefault((line["name"], line["program"]), []).append(line)

    def mean(runs, key):
        values = [run[key] for run in runs if run.get(key) is not None]
        return statistics.mean(values) if values else None

    print("| entry | program | seeds | steps | tokens/s | held-out loss | accuracy | next sentence | tasks |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for (name, program), runs in sorted(rows.items(), key=lambda row: mean(row[1], "held_out_loss")):
        scored = [run["tasks"]["mean"] for run in runs if "tasks" in run]
        tasks = f"{statistics.mean(scored):.3f}" if scored else ""
        pairs = mean(runs, "next_sentence")
        pairs = f"{pairs:.1%}" if pairs is not None else ""
        print(f"| {name} | {program} | {len(runs)} | {mean(runs, 'steps'):.0f} | {mean(runs, 'tokens_per_s'):.0f} "
              f"| {mean(runs, 'held_out_loss'):.3f} | {mean(runs, 'held_out_accuracy'):.1%} | {pairs} | {tasks} |")


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "train", "search", "tasks", "table"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--cloze", type=pathlib.Path, default=ROOT / "target/release/cloze")
    parser.add_argument("--torch", type=pathlib.Path, help="a Python with torch and transformers, which trains")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, help="default: 10 for search, else 60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--comment", default="", help="what the result should be read with")
    options = parser.parse_args(arguments[:at])
    options.options = arguments[at + 1:]
    options.minutes = options.minutes or (10 if options.command == "search" else 60)
    needed = {"prepare": ["data", "work"], "train": ["name", "work"], "search": ["work"], "table": [],
              "tasks": ["name", "work", "data"]}
    for name in needed[options.command]:
        if getattr(options, name) is None:
            parser.error(f"{options.command} needs {'NAME' if name == 'name' else '--' + name}")
    commands = {"prepare": prepare, "train": train, "search": search, "tasks": tasks, "table": table}
    commands[options.command](options)


if __name__ == "__main__":
    main()
