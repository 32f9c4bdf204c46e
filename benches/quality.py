"""Fine-tunes with `cloze` and with PyTorch + transformers by the same recipe and compares the metrics.

    cargo build --release -p cloze
    pip install torch transformers numpy scipy scikit-learn seqeval
    python benches/quality.py --model DIR --data DIR [--tasks mrpc rte ..]

`--data` holds glue/, squad/, codah/ and conll2003/. Writes benches/results/quality.json after every
run and resumes there; `--table` compares the runs that both have finished. `--jobs 2` makes two runs at
the same time with half of the cores each: more runs per hour, but their seconds do not measure speed.
Our mean should be at least the peer's minus two standard errors of the difference.

`--own` makes runs of Cloze without a peer instead: the same recipe from random weights, which shows the
value of pre-training, and the paper's feature-based heads (section 5.3). `--transfer` fine-tunes the models that come
with Cloze, and random weights of cloze-tiny's size, by its default recipe; it needs no `--model`.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results" / "quality.json"
PEERS = ROOT / "benches" / "peers"

# Task: folder of the data, metric, seeds or folds, options of the recipe that both take.
TASKS = {
    "mrpc": ("glue/MRPC", "accuracy", 5, []),
    "rte": ("glue/RTE", "accuracy", 5, []),
    "cola": ("glue/CoLA", "mcc", 5, []),
    "sts-b": ("glue/STS-B", "pearson", 5, []),
    "sst-2": ("glue/SST-2", "accuracy", 2, ["--epochs", "1"]),
    "ner": ("conll2003", "f1", 2, []),
    "codah": ("codah", "accuracy", 5, ["--batch", "16"]),
    "squad": ("squad", "f1", 1, ["--limit", "8000", "--epochs", "2", "--batch", "16", "--lr", "1e-4"]),
}

# The paper's rate, unless a task's recipe names another one; a model's width decides Cloze's default.
RATE = ["--lr", "5e-5"]
# PyTorch's AdamW; Cloze would take the 1e-6 of google-research/bert.
EPSILON = ["--adam-epsilon", "1e-8"]

# Name: task, options after the recipe's; the metric is the task's.
OWN = {
    "mrpc scratch": ("mrpc", ["--from-scratch"]),
    "sts-b scratch": ("sts-b", ["--from-scratch"]),
    "sst-2 scratch": ("sst-2", ["--from-scratch"]),
    "ner scratch": ("ner", ["--from-scratch"]),
    "ner frozen": ("ner", ["--frozen"]),
    "ner frozen-lstm": ("ner", ["--frozen", "--head", "bilstm", "--lstm-width", "256", "--epochs", "5"]),
}

# Weights: options.
TRANSFER = {
    "random": ["--model", "cloze-tiny", "--from-scratch"],
    "cloze-tiny": ["--model", "cloze-tiny"],
    "cloze-small": ["--model", "cloze-small"],
}
# Task: seeds, options beside Cloze's default recipe. Cloze's models read 128 tokens.
TRANSFER_TASKS = {
    "mrpc": (3, []),
    "rte": (3, []),
    "sts-b": (3, []),
    "cola": (3, []),
    "sst-2": (2, ["--epochs", "1"]),
    "ner": (3, []),
    "squad": (2, "--limit 8000 --epochs 2 --batch 16 --max-len 128 --doc-stride 64".split()),
}


def ours(options, task, turn, more=()):
    folder, _, _, recipe = TASKS[task]
    with tempfile.TemporaryDirectory() as out:
        command = [options.cloze, "finetune", task, "--json", "--out", out, "--model", options.model, *EPSILON, *more]
        command += ["--data", options.data / folder, *rated(recipe), "--seed", turn]
        command += ["--fold", turn] if task == "codah" else []
        return run(command, options.threads)


def rated(recipe):
    return recipe if "--lr" in recipe else [*recipe, *RATE]


def peer(options, task, turn):
    folder, _, _, recipe = TASKS[task]
    if folder.startswith("glue/"):
        command = [options.python, PEERS / "torch_glue.py", "--task", folder.removeprefix("glue/")]
        command += ["--data", options.data / "glue", "--pad", "longest"]
    else:
        command = [options.python, PEERS / "tasks.py", task, "--data", options.data / folder, "--micro", 4]
        command += ["--fold", turn] if task == "codah" else []
    command += ["--model", options.model, *recipe, "--seed", turn, "--threads", options.threads]
    if task != "squad":
        return run(command, options.threads)
    with tempfile.TemporaryDirectory() as out:
        predictions = pathlib.Path(out) / "predictions.json"
        scores = run([*command, "--out", predictions], options.threads)
        data = options.data / "squad" / "dev-v1.1.json.gz"
        score = [options.cloze, "score", "squad", "--data", data, "--predictions", predictions, "--json"]
        return scores | {"dev": run(score, options.threads)}


def own(options, name, turn):
    task, more = OWN[name]
    return ours(options, task, turn, more)


def transfer(options, name, turn):
    task, weights = name.split()
    recipe = TRANSFER_TASKS[task][1]
    with tempfile.TemporaryDirectory() as out:
        command = [options.cloze, "finetune", task, "--json", "--out", out, "--data", options.data / TASKS[task][0]]
        return run([*command, *recipe, *TRANSFER[weights], "--seed", turn], options.threads)


def run(command, threads):
    # The thread pools: rayon's here, OpenMP's in PyTorch, that of tokenizers in both.
    pools = {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | pools)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(runs):
    print("| task | metric | runs | Cloze | PyTorch | difference | two standard errors |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for task, (_, metric, turns, _) in TASKS.items():
        names = {who: [f"{task} {who} {turn}" for turn in range(1, turns + 1)] for who in ["cloze", "torch"]}
        both = [i for i in range(turns) if all(names[who][i] in runs for who in names)]
        if not both:
            continue
        scores = {who: [runs[names[who][i]]["dev"][metric] for i in both] for who in names}
        mean = {who: statistics.mean(scores[who]) for who in scores}
        error = "-"
        if len(both) > 1:
            variances = [statistics.variance(scores[who]) / len(both) for who in scores]
            error = f"{2 * math.sqrt(sum(variances)):.4f}"
        difference = mean["cloze"] - mean["torch"]
        print(f"| {task} | {metric} | {len(both)} | {mean['cloze']:.4f} | {mean['torch']:.4f} "
              f"| {difference:+.4f} | {error} |")
    print("\n| Cloze alone, seed 1 | metric | |\n|---|---|---:|")
    for name, (task, _) in OWN.items():
        if f"{name} 1" in runs:
            metric = TASKS[task][1]
            print(f"| {name} | {metric} | {runs[f'{name} 1']['dev'][metric]:.4f} |")
    print(f"\n| task | metric | {' | '.join(TRANSFER)} |\n|---|---|{'---:|' * len(TRANSFER)}")
    for task, (turns, _) in TRANSFER_TASKS.items():
        metric = TASKS[task][1]
        names = [[f"{task} {weights} {turn}" for turn in range(1, turns + 1)] for weights in TRANSFER]
        scores = [[runs[name]["dev"][metric] for name in each if name in runs] for each in names]
        means = [f"{statistics.mean(each):.3f}" if each else "-" for each in scores]
        print(f"| {task} | {metric} | {' | '.join(means)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloze", type=pathlib.Path, default=ROOT / "target/release/cloze")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--turns", type=int, default=5, help="at most so many seeds or folds")
    parser.add_argument("--jobs", type=int, default=1, help="runs beside each other")
    parser.add_argument("--only", choices=["cloze", "torch"], help="the runs of one program")
    parser.add_argument("--own", nargs="*", choices=OWN, help="these runs of Cloze alone, or all of them")
    parser.add_argument("--transfer", action="store_true", help="the runs of Cloze's models, and those from random weights")
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    options = parser.parse_args()
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table and not (options.data and (options.model or options.transfer)):
        parser.error("--model and --data are needed")
    options.threads = max(1, (os.cpu_count() or 1) // options.jobs)
    lock = threading.Lock()

    def one(name, train, task, turn):
        result = train(options, task, turn)
        # Without the reports on classes and errors, which would fill the file and hold texts of the data.
        result = {key: value for key, value in result.items() if key == "dev" or not isinstance(value, (dict, list))}
        result["dev"] = {key: value for key, value in result["dev"].items() if isinstance(value, (int, float))}
        with lock:
            runs[name] = result
            print(name, result["dev"], flush=True)
            RESULTS.write_text(json.dumps(dict(sorted(runs.items())), indent=1) + "\n")

    if options.table:
        wanted = []
    elif options.transfer:
        wanted = [
            (f"{task} {weights} {turn}", transfer, f"{task} {weights}", turn)
            for task, (turns, _) in TRANSFER_TASKS.items()
            for weights in TRANSFER
            for turn in range(1, turns + 1)
        ]
    elif options.own is not None:
        wanted = [(f"{name} 1", own, name, 1) for name in options.own or OWN]
    else:
        wanted = [
            (f"{task} {who} {turn}", train, task, turn)
            for turn in range(1, options.turns + 1)
            for task in options.tasks
            for who, train in [("cloze", ours), ("torch", peer)]
            if turn <= TASKS[task][2] and options.only in [None, who]
        ]
    missing = [each for each in wanted if each[0] not in runs]
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(one, *each) for each in missing]:
            done.result()
    table(runs)


if __name__ == "__main__":
    main()
