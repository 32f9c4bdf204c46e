"""Compares Cloze's CPU engine with PyTorch programs that do the same work, and writes a table.

    cargo build --release -p cloze
    python -m venv torch && torch/bin/pip install torch transformers scipy scikit-learn
    python benches/peers/engine.py --python torch/bin/python --model DIR --glue DIR \\
        [--rounds N] [--only WORD] [--out FILE.json]

`--model` is a BERT in the Hugging Face layout, `--glue` holds MRPC and SST-2; the peers are the
torch_*.py beside this. The two programs of a pair run in turns; medians count. Run it by hand on an idle machine.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results" / "engine.json"
TEXTS = 2000


def measured(command, stdin=None):
    """Returns tokens per second, as the program reports them, and peak memory in MiB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=stdin, stdout=out, stderr=err
        )
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        err.seek(0)
        errors = err.read().decode(errors="replace")
        if status != 0:
            sys.exit(f"{' '.join(map(str, command))} failed:\n{errors}")
        answer = out.read().decode(errors="replace")
    return tokens_per_second(answer, errors), usage.ru_maxrss / 1024


def tokens_per_second(answer, errors):
    lines = [line for line in answer.splitlines() if line.startswith("{")]
    if lines and '"vector"' in lines[-1]:
        # `cloze features` prints vectors, and the time on stderr.
        return float(errors.rsplit("texts/s, ", 1)[1].split()[0])
    found = json.loads(lines[-1])
    return found.get("tokens_per_s") or found["real_tokens_per_s"]


def pairs(options):
    """Returns name, our command, the peer's command, and their input."""
    peers, cloze, python = ROOT / "benches" / "peers", options.cloze, options.python
    for size, batch, seq, steps in [("minilm", 16, 128, 10), ("base", 8, 384, 4)]:
        for dtype in ["f32", "bf16"]:
            shape = ["--size", size, "--batch", batch, "--seq", seq, "--dtype", dtype]
            shape += ["--steps", steps]
            ours = [cloze, "bench", "train", "--json", *shape]
            yield f"{size} {batch}x{seq} {dtype}", ours, [python, peers / "torch_step.py", *shape]
    for dtype, pad, limit in [("f32", "sorted", 0), ("f32", "max", 800), ("bf16", "sorted", 0)]:
        common = ["--model", options.model, "--epochs", 1, "--lr", 5e-5, "--dtype", dtype]
        if limit:
            common += ["--limit", limit]
        ours = [cloze, "finetune", "mrpc", "--data", options.glue / "MRPC", "--json"]
        ours += ["--out", pathlib.Path(tempfile.gettempdir()) / "cloze-peer-mrpc", *common]
        theirs = [python, peers / "torch_glue.py", "--task", "MRPC", "--data", options.glue]
        yield f"MRPC {dtype}, peer {pad}", ours, [*theirs, "--pad", pad, *common]
    for dtype in ["f32", "bf16"]:
        common = ["--model", options.model, "--dtype", dtype]
        ours = [cloze, "features", "--max-len", 256, *common]
        yield f"features {dtype}", ours, [python, peers / "torch_features.py", *common]


def texts(glue):
    """Returns the first sentences of SST-2's training file, of many lengths."""
    lines = (glue / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    sentences = [line.split("\t")[0] for line in lines[:TEXTS]]
    file = tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False, encoding="utf-8")
    with file:
        file.write("\n".join(sentences) + "\n")
    return file.name


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloze", type=pathlib.Path, default=ROOT / "target/release/cloze")
    for name in ["python", "model", "glue"]:
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, help="one file a machine")
    parser.add_argument("--only", default="", help="measure only rows with this in their name")
    options = parser.parse_args()
    lines = texts(options.glue)
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else {}
    for name, ours, theirs in pairs(options):
        if options.only not in name:
            continue
        runs = {"ours": [], "peer": []}
        for _ in range(options.rounds):
            for who, command in [("ours", ours), ("peer", theirs)]:
                with open(lines) as stdin:
                    runs[who].append(measured(command, stdin))
        speed = {who: statistics.median(run[0] for run in runs[who]) for who in runs}
        memory = {who: min(run[1] for run in runs[who]) for who in runs}
        rows[name] = {
            "tokens_per_s": round(speed["ours"]),
            "peer_tokens_per_s": round(speed["peer"]),
            "ratio": round(speed["ours"] / speed["peer"], 2),
            "peak_MiB": round(memory["ours"]),
            "peer_peak_MiB": round(memory["peer"]),
        }
        print(f"{name}: {json.dumps(rows[name])}", flush=True)
    options.out.write_text(
        json.dumps(
            {
                "date": datetime.date.today().isoformat(),
                "processor": processor(),
                "cores": os.cpu_count(),
                "rows": rows,
            },
            indent=2,
        )
        + "\n"
    )
    print("\n| work | tokens/s | PyTorch | ratio | peak MiB | PyTorch |\n|---|---:|---:|---:|---:|---:|")
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
