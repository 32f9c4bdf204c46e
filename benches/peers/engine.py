"""Compares Cloze's CPU engine with the fastest of the programs that do the same work, and writes a table.

    cargo build --release -p cloze
    python -m venv peers && peers/bin/pip install torch transformers scipy scikit-learn openvino nncf onnx onnxruntime
    python benches/peers/engine.py --python peers/bin/python --model DIR --glue DIR --paragraphs FILE \\
        [--rounds N] [--only WORD] [--out FILE.json]

`--model` is a BERT in the Hugging Face layout, `--glue` holds MRPC and SST-2, `--paragraphs` is text with a paragraph
in each line (.gz too); the peers are the torch_*.py and runtime_features.py beside this. The programs of a row run in
turns, medians count, and the ratio is to the fastest peer. PyTorch runs with the allocator's settings that make its
steps up to 1.4 times as fast, and its steps compiled and not. Run it by hand on an idle machine.
"""

import argparse
import datetime
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches"))
import machine  # noqa: E402  (needs the path)

RESULTS = ROOT / "benches" / "results" / "engine.json"
PEERS = ROOT / "benches" / "peers"
SENTENCES, PARAGRAPHS = 2000, 300


def measured(command, stdin, environment):
    """Returns tokens per second, as the program reports them, and peak memory in MiB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=stdin, stdout=out, stderr=err, env=os.environ | environment
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


def rows(options):
    """Returns name, our command, the peers' commands by their names, and the text on standard input."""
    cloze, python, native = options.cloze, options.python, machine.flags() & {"amx_bf16", "avx512_bf16"}
    # Without bf16 instructions nobody computes in bf16: PyTorch is then 30 times slower than in f32.
    dtypes = ["f32", "bf16"] if native else ["f32"]
    for size, batch, seq, steps in [("minilm", 16, 128, 10), ("base", 8, 384, 4)]:
        for dtype in dtypes:
            shape = ["--size", size, "--batch", batch, "--seq", seq, "--dtype", dtype]
            shape += ["--steps", steps]
            theirs = [python, PEERS / "torch_step.py", *shape]
            peers = {"PyTorch": theirs, "PyTorch, compiled": [*theirs, "--compile"]}
            yield f"{size} {batch}x{seq} {dtype}", [cloze, "bench", "train", "--json", *shape], peers, None
    for dtype, pad, limit in [("f32", "sorted", 0), ("f32", "max", 800), ("bf16", "sorted", 0)]:
        if dtype not in dtypes:
            continue
        common = ["--model", options.model, "--epochs", 1, "--lr", 5e-5, "--dtype", dtype]
        if limit:
            common += ["--limit", limit]
        ours = [cloze, "finetune", "mrpc", "--data", options.glue / "MRPC", "--json"]
        ours += ["--out", pathlib.Path(tempfile.gettempdir()) / "cloze-peer-mrpc", "--overwrite", *common]
        theirs = [python, PEERS / "torch_glue.py", "--task", "MRPC", "--data", options.glue, "--pad", pad, *common]
        yield f"MRPC {dtype}, peer {pad}", ours, {"PyTorch": theirs}, None
    texts = {"sentences": (sentences(options.glue), 32), "paragraphs": (paragraphs(options.paragraphs), 8)}
    for dtype in [*dtypes, "int8"]:
        common = ["--model", options.model, "--dtype", dtype]
        ours = [cloze, "features", "--max-len", 256, *common]
        for what, (lines, batch) in texts.items():
            common = ["--model", options.model, "--dtype", dtype, "--batch", batch]
            peers = {} if dtype == "int8" else {"PyTorch": [python, PEERS / "torch_features.py", *common]}
            tools = {"OpenVINO": "openvino"} | ({} if dtype == "bf16" else {"ONNX Runtime": "onnxruntime"})
            for name, tool in tools.items():
                peers[name] = [python, PEERS / "runtime_features.py", tool, *common]
            yield f"features of {what}, {dtype}", ours, peers, lines


def sentences(glue):
    """Returns the first sentences of SST-2's training file, of many lengths."""
    lines = (glue / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[0] for line in lines[:SENTENCES]]


def paragraphs(path):
    """Returns paragraphs of 150 words or more, from all of a file."""
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8") as file:
        long = [line.strip() for line in file if len(line.split()) >= 150]
    return long[::max(1, len(long) // PARAGRAPHS)][:PARAGRAPHS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloze", type=pathlib.Path, default=ROOT / "target/release/cloze")
    for name in ["python", "model", "glue", "paragraphs"]:
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, help="one file a machine")
    parser.add_argument("--only", default="", help="measure only rows with this in their name")
    options = parser.parse_args()
    found = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else {}
    for name, ours, peers, lines in rows(options):
        if options.only not in name:
            continue
        runs = {program: [] for program in ["Cloze", *peers]}
        for _ in range(options.rounds):
            for program, command in {"Cloze": ours, **peers}.items():
                with tempfile.TemporaryFile("w+", encoding="utf-8") as stdin:
                    stdin.write("".join(f"{line}\n" for line in lines or []))
                    stdin.seek(0)
                    environment = machine.PYTORCH_ALLOCATOR if program.startswith("PyTorch") else {}
                    runs[program].append(measured(command, stdin, environment))
        speed = {program: statistics.median(run[0] for run in runs[program]) for program in runs}
        memory = {program: min(run[1] for run in runs[program]) for program in runs}
        best = max(peers, key=speed.get)
        found[name] = {
            "tokens_per_s": round(speed["Cloze"]),
            "peer": best,
            "peer_tokens_per_s": round(speed[best]),
            "ratio": round(speed["Cloze"] / speed[best], 2),
            "peak_MiB": round(memory["Cloze"]),
            "peer_peak_MiB": round(memory[best]),
            "others": {program: round(speed[program]) for program in peers if program != best},
        }
        print(f"{name}: {json.dumps(found[name])}", flush=True)
        today = datetime.date.today().isoformat()
        summary = {"date": today, "processor": machine.processor(), "rows": found}
        options.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print("\n| work | tokens/s | fastest peer | tokens/s | ratio | peak MiB | peer |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(str(value) for key, value in row.items() if key != "others") + " |")


if __name__ == "__main__":
    main()
