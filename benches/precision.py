"""Fine-tunes in f32 and in bf16 with several seeds and shows whether bf16 costs quality.

    cargo build --release -p cloze
    python benches/precision.py --model DIR --glue DIR [--seeds 5] [--epochs 3]

Writes benches/results/precision.json after every run and resumes there. The means may differ by two standard
errors of their difference.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results" / "precision.json"
TASKS = {"mrpc": ("MRPC", "accuracy"), "sts-b": ("STS-B", "pearson")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloze", type=pathlib.Path, default=ROOT / "target/release/cloze")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--glue", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    runs = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else {}
    for seed in range(1, options.seeds + 1):
        for task, (folder, _) in TASKS.items():
            for dtype in ["f32", "bf16"]:
                key = f"{task} {dtype} {options.epochs} epochs seed {seed}"
                if key in runs:
                    continue
                with tempfile.TemporaryDirectory() as out:
                    command = [options.cloze, "finetune", task, "--json", "--out", out]
                    command += ["--data", options.glue / folder, "--model", options.model]
                    command += ["--epochs", options.epochs, "--lr", 5e-5, "--seed", seed, "--dtype", dtype]
                    done = subprocess.run(
                        [str(word) for word in command], capture_output=True, check=True
                    )
                runs[key] = json.loads(done.stdout)
                print(key, runs[key]["dev"], flush=True)
                RESULTS.write_text(json.dumps({"runs": runs}, indent=2) + "\n")
    print("\n| task | metric | f32 | bf16 | difference | two standard errors |\n|---|---|---:|---:|---:|---:|")
    for task, (_, metric) in TASKS.items():
        scores = {}
        for dtype in ["f32", "bf16"]:
            keys = [
                f"{task} {dtype} {options.epochs} epochs seed {seed}"
                for seed in range(1, options.seeds + 1)
            ]
            scores[dtype] = [runs[key]["dev"][metric] for key in keys]
        means = {dtype: statistics.mean(scores[dtype]) for dtype in scores}
        error = math.sqrt(
            sum(statistics.variance(scores[dtype]) / len(scores[dtype]) for dtype in scores)
        )
        difference = means["bf16"] - means["f32"]
        print(
            f"| {task} | {metric} | {means['f32']:.4f} | {means['bf16']:.4f} "
            f"| {difference:+.4f} | {2 * error:.4f} |"
        )


if __name__ == "__main__":
    main()
