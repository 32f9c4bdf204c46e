"""Counts how many small mistakes the tests find.

    python3 tests/deep/mutants.py FOLDER [--mutants 150] [--seed 27] [--again]

`cargo mutants --list` names every change of an operator or a function's value in AREAS. A fixed seed draws from them.
Most are compiled together, in a copy of the repository in FOLDER: a function that is changed holds each changed body
beside its own, and the environment variable CLOZE_MUTANT chooses one. The others (constants, functions with an opaque
result) are made one by one. For each, the tests of its area run until one fails, the fastest first. A change that does
not compile is replaced by the next one. Results are appended to FOLDER/results.jsonl, and a change that stands there is
not tried again, so that an interrupted check continues; with --again those that no test found are.

The exit code is 1 if fewer than 90 % are found.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 0.9
# A change that makes a test wait forever is found by the clock.
PATIENCE = 900
# One set of features, so that everything is compiled once.
ALL = ["--workspace", "--features", "cloze/mpi"]
KERNEL = [*ALL, "--bin", "cloze-kernel"]
RANKS = [*ALL, "--test", "ranks"]
# Which change runs; none if the variable is not set.
CHOICE = """
#[doc(hidden)]
#[allow(missing_docs)]
pub fn mutant(number: usize) -> bool {
    static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("CLOZE_MUTANT").map_or(0, |n| n.parse().unwrap())) == number
}
"""


def library(*names):
    return [*ALL, "--lib", "--", *names]


def binary(name, *names):
    return [*ALL, "--test", name, "--", *names]


# The sources and, for each, the arguments of `cargo test`, of which one must fail.
AREAS = {
    "src/eval": [
        library("eval::", "tasks::", "train::"),
        binary("data"),
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
    "kernel/src/session/rewrite.rs": [KERNEL],
    "kernel/src/session/outline.rs": [KERNEL],
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


def output(tree, command, **more):
    return subprocess.run(command, cwd=tree, text=True, check=True, stdout=subprocess.PIPE, **more).stdout


def original(tree, name):
    return output(tree, ["git", "show", f"HEAD:{name}"])


def changed(tree, mutant):
    """Returns the text of a file with a change."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(original(tree, mutant["file"]))
        file.flush()
        # The new name in its diff is the change's, not the file's.
        return output(tree, ["patch", "--quiet", "--output=-", file.name], input=mutant["diff"])


def write(tree, texts):
    """Gives these files these texts and all others their own; one that is as it should be isn't compiled again."""
    for name in output(tree, ["git", "diff", "--name-only"]).split():
        if name not in texts:
            output(tree, ["git", "checkout", "--quiet", name])
    for name, text in texts.items():
        file = tree / name
        if file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def is_alone(mutant):
    """Whether a change cannot stand in a function beside the unchanged body, which would be of another type."""
    return mutant["function"] is None or "impl " in mutant["function"]["return_type"]


def opening(function):
    """Returns where the body of a function begins."""
    depth, at = 0, 0
    while function[at] != "{" or depth:
        # Comments come before it.
        at = function.index("\n", at) if function.startswith("//", at) else at
        depth += (function[at] in "([") - (function[at] in ")]")
        at += 1
    return at


def combine(tree, numbered):
    """Writes the sources with all these changes; returns {file: [(first line, last line, number of the change)]}."""
    texts, places, by_file = {}, {}, collections.defaultdict(list)
    for number, mutant in numbered.items():
        by_file[mutant["file"]].append((number, mutant))
    for name, mutants in by_file.items():
        lines = original(tree, name).splitlines(keepends=True)
        spans = {tuple((m["function"]["span"][end]["line"] for end in ("start", "end"))) for _, m in mutants}
        functions = collections.defaultdict(list)
        for number, mutant in mutants:
            line = mutant["function"]["span"]["start"]["line"]
            # A function inside of another one is changed with it.
            functions[min(span for span in spans if span[0] <= line <= span[1])].append((number, mutant))
        places[name], written, after = [], [], 0
        for (first, last), changes in sorted(functions.items()):
            written += lines[after:first - 1]
            after = last
            function = "".join(lines[first - 1:last])
            at = opening(function)
            written.append(function[:at] + "{\n")
            for number, mutant in changes:
                other = changed(tree, mutant).splitlines(keepends=True)
                body = "".join(other[first - 1:last + len(other) - len(lines)])
                body = body[opening(body):].rstrip()
                before = "".join(written).count("\n")
                written.append(f"if crate::mutant({number}) {body} else\n")
                places[name].append((before + 1, before + 1 + body.count("\n"), number))
            written.append(function[at:].rstrip() + "\n}\n")
        texts[name] = "".join(written + lines[after:])
    texts["src/lib.rs"] = original(tree, "src/lib.rs") + CHOICE
    texts["kernel/src/main.rs"] = original(tree, "kernel/src/main.rs") + "\npub(crate) use cloze::mutant;\n"
    write(tree, texts)
    return places


def unfit(tree, places):
    """Returns the changes in which the compiler finds errors, or none if everything compiles."""
    command = ["cargo", "check", "--quiet", *ALL, "--tests", "--message-format=json"]
    done = subprocess.run(command, cwd=tree, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    found = set()
    for line in done.stdout.splitlines():
        message = json.loads(line).get("message")
        if message is None or message["level"] != "error":
            continue
        spans = [(span["file_name"], span["line_start"]) for span in message["spans"] if span["is_primary"]]
        numbers = {number for file, at in spans for first, last, number in places.get(file, []) if first <= at <= last}
        if spans and not numbers:
            sys.exit(f"an error outside of the changes:\n{message['rendered']}")
        found |= numbers
    if done.returncode and not found:
        sys.exit(done.stderr)
    return found


def builds(tree, arguments):
    command = [*arguments[:arguments.index("--")], "--no-run"] if "--" in arguments else [*arguments, "--no-run"]
    quiet = {"cwd": tree, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run(["cargo", "test", "--quiet", *command], **quiet, check=False).returncode == 0


def cargo_test(tree, arguments, number):
    """Returns "passed", "failed" (as soon as one test has), "late" or "unfit" (it does not compile), and what failed."""
    if not builds(tree, arguments):
        return "unfit", ""
    command = ["cargo", "test", *arguments]
    tests = subprocess.Popen(
        command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env=os.environ | {"CLOZE_MUTANT": str(number)},
    )
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


def judge(tree, tests, number):
    """Runs the tests until one fails."""
    for arguments in tests:
        result, what = cargo_test(tree, arguments, number)
        if result != "passed":
            return result, what
    return "passed", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    tree, file = options.folder / "tree", options.folder / "results.jsonl"
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree], cwd=ROOT, check=True)
    head = output(ROOT, ["git", "rev-parse", "HEAD"])
    if output(tree, ["git", "rev-parse", "HEAD"]) != head:
        output(tree, ["git", "checkout", "--quiet", "--force", "--detach", head.strip()])
    mutants = listed()
    random.Random(options.seed).shuffle(mutants)
    # Some do not compile and are replaced.
    drawn = dict(enumerate(mutants[:options.mutants + options.mutants // 3], 1))
    known = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            known[json.loads(line)["name"]] = json.loads(line)

    def keep(mutant, result, tests, began):
        name = mutant["name"]
        known[name] = {"name": name, "result": result, "tests": tests, "seconds": round(time.time() - began)}
        with open(file, "a", encoding="utf-8") as results:
            results.write(json.dumps(known[name]) + "\n")
        print(f"{result}: {name} ({known[name]['seconds']} s)", flush=True)

    def is_known(mutant):
        result = known.get(mutant["name"], {}).get("result")
        return result is not None and not (options.again and result == "passed")

    together = {
        number: mutant for number, mutant in drawn.items()
        if not is_alone(mutant) and known.get(mutant["name"], {}).get("result") != "unfit"
    }
    while bad := unfit(tree, combine(tree, together)):
        for number in bad:
            keep(together.pop(number), "unfit", "", time.time())
    for arguments in all_tests():
        if not builds(tree, arguments):
            sys.exit(f"cargo test {' '.join(arguments)} does not compile")
    if len(known) == sum(result["result"] == "unfit" for result in known.values()):
        for arguments in all_tests():
            result, what = cargo_test(tree, arguments, 0)
            if result != "passed":
                sys.exit(f"without a change, cargo test {what} {result}")
    wanted = [number for number in together if number <= options.mutants]
    alone = [number for number, mutant in drawn.items() if is_alone(mutant) and number <= options.mutants]
    wanted += [number for number in together if number > options.mutants][:options.mutants - len(wanted) - len(alone)]

    def is_found(number, tests, of, is_last=True):
        """Tries a change; the result is kept unless more tests may find it."""
        mutant, began = drawn[number], time.time()
        result, test = judge(tree, tests, of)
        if is_last or result != "passed":
            keep(mutant, result, test, began)
        return result != "passed"

    # The first tests find most changes in seconds.
    left = [number for number in wanted if not is_known(drawn[number])]
    left = [number for number in left if not is_found(number, AREAS[area(drawn[number])][:1], number, is_last=False)]
    for number in left:
        is_found(number, AREAS[area(drawn[number])][1:], number)
    for number in alone:
        if not is_known(mutant := drawn[number]):
            write(tree, {mutant["file"]: changed(tree, mutant)})
            is_found(number, AREAS[area(mutant)], 0)

    counts = collections.defaultdict(collections.Counter)
    judged = [drawn[number] for number in [*wanted, *alone] if known[drawn[number]["name"]]["result"] != "unfit"]
    survivors = [mutant["name"] for mutant in judged if known[mutant["name"]]["result"] == "passed"]
    for mutant in judged:
        counts[area(mutant)][known[mutant["name"]]["result"]] += 1
    for where, results in counts.items():
        print(where, dict(results))
    print("\n".join(["not found by a test:", *survivors]))
    found = 1 - len(survivors) / len(judged)
    print(f"{len(mutants)} possible changes; of {len(judged)}, {found:.1%} found")
    sys.exit(found < LEAST)


if __name__ == "__main__":
    main()
