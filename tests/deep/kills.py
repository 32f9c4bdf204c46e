"""Kills runs at random moments and resumes them until they finish.

At the end a run has the same bits as an uninterrupted one. In between, its folder has a model that works, or no
model yet, or is refused with a reason. No temporary files are left.
"""

import argparse
import pathlib
import random
import subprocess
import tempfile
import time

REFUSAL = "was saved with another"


def run(command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cloze", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice, cloze = random.Random(options.seed), str(options.cloze.resolve())
    counts = {"killed": 0, "stopped": 0, "answered": 0, "refused": 0, "rounds": 0}
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        rows = "".join(f"the number {i} was {['bad', 'good'][i % 2]}\t{i % 2}\n" for i in range(48))
        for name in ["train.tsv", "dev.tsv"]:
            (place / name).write_text("sentence\tlabel\n" + rows)
        pretrain = [cloze, "pretrain", "--steps", "60", "--save-every", "1", "--eval-every", "7"]
        finetune = [cloze, "finetune", "sst-2", "--data", str(place), "--model", str(place / "base")]
        finetune += ["--epochs", "6", "--batch", "4", "--save-every", "1", "--seeds", "2", "--keep-best"]
        base = run([cloze, "pretrain", "--steps", "20", "--out", str(place / "base")])
        assert base.returncode == 0, base.stderr
        for kind, command in [("pretrain", pretrain), ("finetune", finetune)]:
            whole = place / f"{kind}-whole"
            uninterrupted = run([*command, "--out", str(whole)])
            assert uninterrupted.returncode == 0, uninterrupted.stderr
            expected = (whole / "model.safetensors").read_bytes()
            target = counts["killed"] + options.kills // 2
            while counts["killed"] < target:
                counts["rounds"] += 1
                out = place / f"{kind}-{counts['rounds']}"
                interrupted(cloze, [*command, "--out", str(out)], out, kind, dice, counts)
                assert (out / "model.safetensors").read_bytes() == expected, f"{out} differs"
                left = [path.name for path in out.rglob("*") if path.name.startswith((".cloze-", ".tmp"))]
                assert not left, left
    print(", ".join(f"{count} {what}" for what, count in counts.items()))


def interrupted(cloze, command, out, kind, dice, counts):
    """Runs the command to its end, with many kills."""
    started = False
    while True:
        process = subprocess.Popen(
            [*command, "--resume"] if started else command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started = True
        deadline = time.monotonic() + dice.uniform(0.02, 0.9)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        ended = process.poll() is not None
        if not ended:
            name = dice.choice(["kill", "kill", "kill", "terminate"])
            getattr(process, name)()
            counts["killed" if name == "kill" else "stopped"] += 1
        _, message = process.communicate()
        if ended:
            assert process.returncode == 0, message
            return
        ask = ["fill-mask", "--model", str(out), "a [MASK]"]
        if kind == "finetune":
            data = str(out.parent / "dev.tsv")
            ask = ["evaluate", "sst-2", "--data", data, "--model", str(out)]
        asked = run([cloze, *ask])
        counts["answered" if asked.returncode == 0 else "refused"] += 1
        if asked.returncode != 0 and (out / "model.safetensors").exists():
            assert REFUSAL in asked.stderr, asked.stderr


main()
