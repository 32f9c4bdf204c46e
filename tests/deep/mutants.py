"""Counts how many small mistakes the tests find.

    python3 tests/deep/mutants.py FOLDER [--mutants 150] [--seed 27] [--jobs 2] [--again]

`cargo mutants --list` names every change of an operator or a function's value in AREAS. A fixed seed draws from them;
each is made in a copy of the repository in FOLDER, where the tests of its area run until one fails, the fastest first.
A change that does not compile is replaced by the next one. Results are appended to FOLDER/results.jsonl, and a change that stands
there is not tried again, so that an interrupted check continues; with --again those that no test found are.

The exit code is 1 if fewer than 90 % are found.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import queue
import random
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 0.9
# A change that makes a test wait forever is found by the clock.
PATIENCE = 900
LIBRARY = ["--package", "cloze", "--lib"]
RANKS = ["--package", "cloze", "--features", "mpi", "--test", "ranks"]


def library(*names):
    return [*LIBRARY, "--", *names]


def binary(name, *names):
    return ["--package", "cloze", "--test", name, "--", *names]


# The sources and, for each, the arguments of `cargo test`, of which one must fail.
AREAS = {
    "src/eval": [
        library("eval::", "tasks::", "train::"),
        binary("training", "tasks::", "task_options::", "glue::"),
        binary("command"),
    ],
    "src/data/pretraining": [
        library("data::", "train::"), binary("data"), binary("training", "pretrain", "store::"),
    ],
    "src/data/squad": [
        library("data::", "tasks::", "eval::"), binary("data"), binary("training", "tasks::", "own_data::"),
    ],
    "src/tasks": [
        library("tasks::", "predict::", "train::"),
        binary("training", "tasks::", "task_options::", "own_data::"),
        binary("command"),
    ],
    "src/train/parallel": [
        library("train::", "ranks::"), RANKS,
    ],
    "src/train": [
        library("train::", "tasks::", "cli::"), binary("training"), binary("command"), binary("crash"), RANKS,
    ],
    "src/files": [library("files::", "train::", "data::"), binary("crash"), binary("command")],
    "kernel/src/session/rewrite.rs": [["--package", "cloze-kernel", "--bin", "cloze-kernel"]],
    "kernel/src/session/outline.rs": [["--package", "cloze-kernel", "--bin", "cloze-kernel"]],
}


def all_tests():
    return {" ".join(arguments): arguments for tests in AREAS.values() for arguments in tests}.values()


def area(mutant):
    return next(area for area in AREAS if mutant["file"].startswith(area))


def listed():
    """Returns all changes in AREAS, of both packages, in an order of their own."""
    files = [word for area in AREAS for word in ("--file", area if area.endswith(".rs") else f"{area}/**")]
    command = ["cargo", "mutants", "--list", "--json", "--diff", "--workspace", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(json.loads(done.stdout), key=lambda mutant: mutant["name"])


def builds(tree, arguments):
    command = [*arguments[:arguments.index("--")], "--no-run"] if "--" in arguments else [*arguments, "--no-run"]
    quiet = {"cwd": tree, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run(["cargo", "test", "--quiet", *command], **quiet, check=False).returncode == 0


def cargo_test(tree, arguments):
    """Returns "passed", "failed" (as soon as one test has), "late" or "unfit" (it does not compile), and what failed."""
    if not builds(tree, arguments):
        return "unfit", ""
    quiet = {"cwd": tree, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = ["cargo", "test", *arguments]
    tests = subprocess.Popen(command, **{**quiet, "stdout": subprocess.PIPE}, text=True, start_new_session=True)
    late = threading.Event()

    def end():
        subprocess.run(["pkill", "-KILL", "-s", str(tests.pid)], check=False)

    clock = threading.Timer(PATIENCE, lambda: (late.set(), end()))
    clock.start()
    failures = (line for line in tests.stdout if line.startswith("test ") and line.rstrip().endswith("FAILED"))
    failed = next(failures, "")
    if failed:
        end()
    code = tests.wait()
    clock.cancel()
    what = " ".join([*arguments, *failed.split()[1:2]])
    if late.is_set():
        return "late", what
    return ("failed", what) if failed or code else ("passed", "")


def judge(tree, mutant):
    """Makes a change, runs the tests of its area until one fails, and takes the change back."""
    # The new name in its diff is the change's, not the file's.
    patch = ["patch", "--quiet", "--no-backup-if-mismatch", mutant["file"]]
    subprocess.run(patch, cwd=tree, input=mutant["diff"], text=True, check=True)
    try:
        for arguments in AREAS[area(mutant)]:
            result, what = cargo_test(tree, arguments)
            if result != "passed":
                return result, what
        return "passed", ""
    finally:
        subprocess.run(["git", "checkout", "--quiet", "."], cwd=tree, check=True)


def prepare(tree, head):
    """Makes a copy of the repository and builds its tests."""
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree], cwd=ROOT, check=True)
    subprocess.run(["git", "checkout", "--quiet", "--detach", head], cwd=tree, check=True)
    for arguments in all_tests():
        if not builds(tree, arguments):
            sys.exit(f"without a change, cargo test {' '.join(arguments)} does not compile")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / "results.jsonl"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    trees = queue.SimpleQueue()
    for number in range(options.jobs):
        tree = options.folder / f"tree{number}"
        prepare(tree, head)
        trees.put(tree)
    known = {}
    if not file.exists():
        for arguments in all_tests():
            result, what = cargo_test(options.folder / "tree0", arguments)
            if result != "passed":
                sys.exit(f"without a change, cargo test {what} {result}")
    else:
        for line in file.read_text().splitlines():
            known[json.loads(line)["name"]] = json.loads(line)
    mutants = listed()
    random.Random(options.seed).shuffle(mutants)

    def result(mutant):
        name = mutant["name"]
        if name in known and not (options.again and known[name]["result"] == "passed"):
            return known[name]["result"]
        tree, began = trees.get(), time.time()
        try:
            found, tests = judge(tree, mutant)
        finally:
            trees.put(tree)
        known[name] = {"name": name, "result": found, "tests": tests, "seconds": round(time.time() - began)}
        with open(file, "a", encoding="utf-8") as results:
            results.write(json.dumps(known[name]) + "\n")
        print(f"{found}: {name} ({known[name]['seconds']} s)", flush=True)
        return found

    counts = collections.defaultdict(collections.Counter)
    survivors, judged, at = [], 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # As many as are missing, until all of them compiled.
        while missing := min(options.mutants - judged, len(mutants) - at):
            drawn = mutants[at:at + missing]
            at += missing
            for mutant, found in zip(drawn, pool.map(result, drawn)):
                counts[area(mutant)][found] += 1
                judged += found != "unfit"
                if found == "passed":
                    survivors.append(mutant["name"])
    for where, results in counts.items():
        print(where, dict(results))
    print("\n".join(["not found by a test:", *survivors]))
    found = 1 - len(survivors) / judged
    print(f"{len(mutants)} possible changes; of {judged}, {found:.1%} found")
    sys.exit(found < LEAST)


if __name__ == "__main__":
    main()
