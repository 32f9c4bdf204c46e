"""Kills the real program at system calls, resumes it, and compares the bits with those of an unbroken run.

strace kills the process when it makes its N-th call of a kind. Each point ends in one of three ways: the same bits, an
older state or a change that is reported, or a refusal with a reason. A folder in between holds a model that answers,
no model yet, or is refused with a reason.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

CONFIG = {
    "model_type": "bert", "vocab_size": 90, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 64, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}  # fmt: skip
CALLS = ["fsync", "rename", "unlink", "write", "mkdir"]
KINDS = {"rename": "/^rename", "unlink": "/^unlink", "mkdir": "/^mkdir"}
REFUSALS = ("was saved with another", "holds no model", "is neither a folder", "No such file", "is not finished", "is no store")
REPORTS = ("is continued from the state before", "from here on", "starting a fresh run")
RESULT = re.compile(r"^(model\.safetensors|config\.json|vocab\.txt|tokenizer\.json|shard-.*|manifest\.json)$")


def run(command):
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, errors="replace")


def result(out):
    files = out.iterdir() if out.exists() else []
    return {path.name: path.read_bytes() for path in files if RESULT.match(path.name)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cloze", type=pathlib.Path)
    parser.add_argument("--points", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cloze, dice = options.cloze.resolve(), random.Random(options.seed)
    counts, wrong = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        rows = "".join(f"the number {i} was {['bad', 'good'][i % 2]}\t{i % 2}\n" for i in range(24))
        for name in ["train.tsv", "dev.tsv"]:
            (place / name).write_text("sentence\tlabel\n" + rows)
        (place / "text.txt").write_text("".join(f"One {i}. Two {i} went home.\n\n" for i in range(200)))
        base, out = place / "base", place / "out"
        (place / "small.json").write_text(json.dumps(CONFIG))
        small = ["--text", place / "text.txt", "--seq", "16", "--batch", "4", "--eval-sequences", "4"]
        new = [cloze, "pretrain", "--size", place / "small.json", "--vocab-size", "90", *small]
        pretrain = [*new, "--steps", "4", "--save-every", "1", "--eval-every", "2", "--out", out]
        finetune = [cloze, "finetune", "sst-2", "--data", place, "--model", base, "--out", out]
        finetune += ["--epochs", "2", "--batch", "8", "--save-every", "2", "--lr", "1e-3"]
        distill = [cloze, "distill", "--teacher", base, "--out", out, *small]
        distill += ["--steps", "3", "--save-every", "1"]
        prepare = [cloze, "prepare", "--text", place / "text.txt", "--vocab", base / "vocab.txt", "--out", out]
        made = run([*new, "--steps", "2", "--out", base])
        assert made.returncode == 0, made.stderr
        masked = ["fill-mask", "--model", out, "a [MASK]"]
        rated = ["evaluate", "sst-2", "--data", place / "dev.tsv", "--model", out]
        commands = [
            ("pretrain", pretrain, ["--resume"], masked),
            ("pretrain --overwrite", [*pretrain, "--overwrite"], [], masked),
            ("finetune", finetune, ["--resume"], rated),
            ("finetune --seeds --keep-best", [*finetune, "--seeds", "2", "--keep-best"], ["--resume"], rated),
            ("distill", distill, ["--resume"], masked),
            ("convert", [cloze, "convert", base, out], [], masked),
            ("prepare", prepare, [], ["prepare", "--check", out]),
        ]
        for name, command, again, ask in commands:
            shutil.rmtree(out, ignore_errors=True)
            traced = {}
            for call in CALLS:
                shutil.rmtree(out, ignore_errors=True)
                trace = place / "trace"
                whole = run(["strace", "-f", "-y", "-e", f"trace={KINDS.get(call, call)}", "-o", trace, *command])
                assert whole.returncode == 0, whole.stderr
                # Counted in each thread; the first one saves.
                lines = [line.split(None, 1) for line in trace.read_text(errors="replace").splitlines()]
                first = [text for thread, text in lines if thread == lines[0][0] and f"{call}" in text]
                traced[call] = [n for n, text in enumerate(first, 1) if str(place) in text]
            expected = result(out)
            print(f"{name}: {sum(map(len, traced.values()))} calls; so far: {dict(counts)}", flush=True)
            points = [(call, n) for call, numbers in traced.items() for n in numbers]
            for call, n in dice.sample(points, min(len(points), options.points // len(commands) + 1)):
                at = f"{name}, killed at {call} {n}"
                shutil.rmtree(out, ignore_errors=True)
                kind = KINDS.get(call, call)
                inject = ["-e", f"trace={kind}", "-e", f"inject={kind}:signal=KILL:when={n}"]
                killed = run(["strace", "-f", "-o", "/dev/null", *inject, *command])
                counts["killed" if killed.returncode != 0 else "not killed"] += 1
                asked = run([cloze, *ask])
                known = asked.returncode == 0 or any(refusal in asked.stderr for refusal in REFUSALS)
                counts["answered" if asked.returncode == 0 else "refused or no model yet"] += 1
                if not known or "panicked" in asked.stderr:
                    wrong.append(f"{at}: asked: {asked.stderr}")
                second = run([*command, *again])
                reported = any(report in second.stderr for report in REPORTS)
                if "panicked" in second.stderr:
                    wrong.append(f"{at}: {second.stderr}")
                elif second.returncode != 0:
                    counts["second run refused: " + second.stderr.strip().splitlines()[-1][-40:]] += 1
                elif result(out) == expected:
                    counts["the same bits" + (", reported as begun anew" if reported else "")] += 1
                elif reported:
                    counts["other bits, reported"] += 1
                else:
                    wrong.append(f"{at}: other bits, and no word of it: {second.stderr}")
    for what, count in counts.items():
        print(f"{count} {what}")
    print("\n".join(wrong))
    sys.exit(bool(wrong) or counts["killed"] < min(100, options.points))


main()
