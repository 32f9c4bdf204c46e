"""Reads the system calls of saves: would the saved files survive a power failure?

The bytes of each file must be synced before it is renamed into place, its folder after the rename, and the
parent of each new folder after its creation. Only records that are soon written again are exempt.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# The records of a run, which can continue without them.
PASSING = ("report.html", "metrics.jsonl", "events.out")
CALLS = "openat,creat,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,write,writev,pwrite64"
LINE = re.compile(r"^\d+\s+(\w+)\((.*)\)\s+= (-?\d+)")
DESCRIPTOR = re.compile(r"^(?:AT_FDCWD|\d+)<(.*?)>")
NAMES = re.compile(r'(?:(?:AT_FDCWD|\d+)<(.*?)>, )?"([^"]*)"')


def traced(command, trace):
    strace = ["strace", "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", trace]
    subprocess.run([*strace, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for line in pathlib.Path(trace).read_text(errors="replace").splitlines():
        found = LINE.match(line)
        if found and int(found[3]) >= 0:
            yield found[1], found[2]


def paths(arguments):
    return [str(pathlib.Path(folder or "/", name)) for folder, name in NAMES.findall(arguments)]


def check(calls, out):
    """Returns the number of saved files and folders, and what is wrong with them."""
    wrong, saved = [], 0
    dirty, unsynced = set(), {}
    for call, arguments in calls:
        if call in ("write", "writev", "pwrite64"):
            dirty.add(DESCRIPTOR.match(arguments)[1])
        elif call in ("fsync", "fdatasync"):
            path = DESCRIPTOR.match(arguments)[1]
            if "(deleted)" in path:
                wrong.append(f"{path} was synced after it had been removed")
            dirty.discard(path)
            unsynced.pop(path, None)
        elif call.startswith("rename"):
            source, target = paths(arguments)
            if not target.startswith(out):
                continue
            saved += 1
            if pathlib.Path(target).name.startswith(PASSING):
                continue
            if source in dirty:
                wrong.append(f"{target} was renamed before its bytes were synced")
            unsynced[str(pathlib.Path(target).parent)] = target
        elif call.startswith(("mkdir", "unlink")):
            path = paths(arguments)[0]
            temporary = "/.cloze-" in path or "/tokens" in path
            passing = temporary or pathlib.Path(path).name.startswith(PASSING)
            if path.startswith(out) and not passing:
                saved += 1
                unsynced[str(pathlib.Path(path).parent)] = path
    wrong += [f"{path}: its folder was never synced" for path in unsynced.values()]
    return saved, wrong


def main():
    cloze = str(pathlib.Path(sys.argv[1]).resolve())
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder).resolve()
        rows = "".join(f"the number {i} was {['bad', 'good'][i % 2]}\t{i % 2}\n" for i in range(24))
        for name in ["train.tsv", "dev.tsv"]:
            (place / name).write_text("sentence\tlabel\n" + rows)
        model, tuned = place / "deep/er/model", place / "tuned"
        vectors, other = place / "vectors.safetensors", place / "converted"
        pretrain = [cloze, "pretrain", "--out", model, "--save-every", "2", "--eval-every", "100"]
        finetune = [cloze, "finetune", "sst-2", "--data", place, "--model", model, "--out", tuned]
        finetune += ["--epochs", "2", "--save-every", "3", "--keep-best"]
        lines = place / "lines.txt"
        lines.write_text("a text\nanother\n")
        features = f"exec {cloze} features --model {model} --format safetensors --out {vectors} < {lines}"
        for what, command in [
            ("pretrain", [*pretrain, "--steps", "5"]),
            ("pretrain --resume", [*pretrain, "--steps", "7", "--resume"]),
            ("pretrain --overwrite", [*pretrain, "--steps", "3", "--overwrite"]),
            ("finetune", [*finetune, "--seeds", "2"]),
            ("finetune --frozen", [*finetune, "--frozen", "--overwrite"]),
            ("convert", [cloze, "convert", model, other]),
            ("features", ["sh", "-c", features]),
        ]:
            calls = traced([str(word) for word in command], str(place / "trace"))
            saved, wrong = check(calls, folder)
            print(f"{what}: {saved} files, folders and removals, {len(wrong)} not safe")
            print("".join(f"  {line}\n" for line in wrong), end="")
            failed |= bool(wrong) or not saved
    sys.exit(failed)


main()
