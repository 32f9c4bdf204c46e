"""Training steps of one process with all threads, and of ranks that share the threads and the batch.

    cargo build --release --features mpi
    python benches/ranks.py --cloze target/release/cloze --text PATH --vocab VOCAB [--size minilm] [--dtype bf16]

Every run takes the same steps of the same sequences of up to 128 tokens. The runs take turns; the figures are
medians of the tokens a second that the runs report for their steps. Needs mpirun.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

def run(args, ranks, threads):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as out:
        command = [
            args.cloze, "--threads", str(threads), "pretrain", "--text", args.text, "--vocab", args.vocab,
            "--out", out, "--size", args.size, "--steps", str(args.steps), "--seq", "128", "--first-seq", "128",
            "--batch", str(args.batch // ranks), "--save-every", "0", "--eval-every", str(args.steps),
            "--eval-sequences", "16", "--dtype", args.dtype, "--dropout", "0.1", "--json",
        ]  # fmt: skip
        if ranks > 1:
            command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        with open(os.path.join(out, "trainer", "metrics.jsonl")) as lines:
            steps = [step["tokens_per_s"] for step in map(json.loads, lines) if "tokens_per_s" in step]
        json.loads(done.stdout)
    # The first steps grow the buffers.
    return statistics.median(steps[2:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloze", default="target/release/cloze")
    parser.add_argument("--text", required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--size", default="minilm")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    args = parser.parse_args()
    shapes = [(1, args.cores), (2, max(1, args.cores // 2)), (4, max(1, args.cores // 4))]
    speeds = {shape: [] for shape in shapes}
    for _ in range(args.rounds):
        for shape in shapes:
            speeds[shape].append(run(args, *shape))
            print(f"{shape[0]} x {shape[1]} threads: {speeds[shape][-1]:.0f} tokens/s", flush=True)
    alone = statistics.median(speeds[shapes[0]])
    for ranks, threads in shapes:
        median = statistics.median(speeds[ranks, threads])
        print(f"{ranks} ranks of {threads} threads: {median:.0f} tokens/s, {median / alone:.3f} of one process")


main()
