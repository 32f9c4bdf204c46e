"""Trains for a long time while everything around the runs goes wrong.

Pre-training and fine-tuning runs get random SIGINT, SIGTERM, SIGHUP and SIGKILL, a full disk, a closed stderr, a data
file that vanishes for a while, and clocks that jump by days between runs and during them. Each is started again with
`--resume` until it ends. It must end with the bits of the uninterrupted run, refuse with a reason what it cannot do, and
use no more and more memory.

Needs libfaketime for the clocks. As root, runs have a disk of their own that gets full; else their files may not grow.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import time

FAKETIME = next(pathlib.Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1"), None)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGKILL)
FAULTS = ("signal", "signal", "signal", "full disk", "closed stderr", "clock", "no data")
# What a run may say when it ends by a fault.
REASONS = ("No space left", "File too large", "train.tsv", "text.txt")
# Seconds between two looks at a run, and seconds after which its memory is judged.
LOOK, LONG = 0.05, 15
# MiB by which the memory may grow from the second to the last quarter of a run.
GROWTH = 8


def resident(pid):
    """Returns the resident memory of a process in MiB, or `None` after its end."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


class Place:
    """A folder for runs, with ways to fill its disk, to hide a data file and to turn the clock."""

    def __init__(self, folder, dice):
        self.dice, self.clock = dice, folder / "clock"
        self.output, self.messages = folder / "output", folder / "messages"
        self.disk, self.data = folder / "disk", folder / "data"
        self.mounted = os.geteuid() == 0
        self.disk.mkdir()
        self.data.mkdir()
        if self.mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "soak", self.disk], check=True)
        rows = "".join(f"the number {i} was {['bad', 'good'][i % 2]}\t{i % 2}\n" for i in range(48))
        for name in ("train.tsv", "dev.tsv"):
            (self.data / name).write_text("sentence\tlabel\n" + rows, encoding="utf-8")
        words = "the cat sat on a mat and saw that it was good . "
        documents = ((words * 3 + "\n") * 4 + "\n") * 60
        (self.data / "text.txt").write_text(documents, encoding="utf-8")
        self.repair()

    def repair(self):
        (self.disk / "filler").unlink(missing_ok=True)
        for hidden in self.data.glob("*.hidden"):
            hidden.rename(hidden.with_suffix(""))
        # Each start is at another time, before or after the earlier ones.
        self.turn()

    def fill(self):
        try:
            with open(self.disk / "filler", "wb", buffering=0) as filler:
                while True:
                    filler.write(b"\0" * 65536)
        except OSError:
            pass

    def hide(self):
        for name in ("train.tsv", "text.txt"):
            (self.data / name).rename(self.data / f"{name}.hidden")

    def turn(self):
        self.clock.write_text(f"{self.dice.randint(-2_000_000, 2_000_000):+d}\n", encoding="utf-8")

    def close(self):
        if self.mounted:
            subprocess.run(["umount", self.disk], check=True)


def start(command, place, fault):
    environment = {
        **os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(place.clock),
        "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1",
    }

    def limit():
        if fault == "full disk" and not place.mounted:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    # A pipe for standard error only where it will be closed: nobody reads it.
    with open(place.output, "w") as output, open(place.messages, "w") as messages:
        return subprocess.Popen(
            [*command, "--json"], env=environment, preexec_fn=limit, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.PIPE if fault == "closed stderr" else messages,
        )


def judge(sizes, what):
    """Returns by how many MiB the memory of a long run grew; in its first quarter it fills its buffers."""
    part = len(sizes) // 4
    if LOOK * len(sizes) < LONG:
        return None
    before, after = min(sizes[part:2 * part]), min(sizes[-part:])
    assert after <= before + GROWTH, f"{what}: {before:.0f} MiB grew to {after:.0f}"
    return after - before


def go(command, place, fault, counts, growth):
    """Runs the command under a fault, or with none to its end; returns whether it is finished."""
    if fault == "no data" and place.dice.random() < 0.5:
        place.hide()
    process = start(command, place, fault)
    began, sizes = time.monotonic(), []
    at = began + place.dice.choice([place.dice.uniform(0.05, 2), place.dice.uniform(2, 30)])
    while process.poll() is None:
        now = time.monotonic()
        size = resident(process.pid)
        if size is not None:
            sizes.append(size)
        if fault and now > at:
            if fault == "signal":
                process.send_signal(place.dice.choice(SIGNALS))
            elif fault == "full disk" and place.mounted:
                place.fill()
            elif fault == "closed stderr":
                process.stderr.close()
            elif fault == "clock":
                place.turn()
            elif fault == "no data" and not list(place.data.glob("*.hidden")):
                place.hide()
            # A run that goes on after its fault gets another one: it must not last for ever.
            at = now + 5 if fault in ("signal", "clock") else float("inf")
        time.sleep(LOOK)
    if process.stderr:
        process.stderr.close()
    # A run that comes to its end draws charts, for which it needs 40 MiB more. Killed ones were training.
    grown = judge(sizes, command) if process.returncode == -signal.SIGKILL else None
    if grown is not None:
        growth.append(grown)
    code, message = process.returncode, place.messages.read_text(encoding="utf-8")
    finished = code == 0 and not json.loads(place.output.read_text(encoding="utf-8"))["stopped"]
    # A signal stops a run in order or kills it; a second SIGINT ends it at once.
    usual = [0] if fault in (None, "closed stderr", "clock") else [0, 1, 2]
    usual += [-signal.SIGKILL, 128 + signal.SIGINT] if fault == "signal" else []
    assert code in usual, (fault, code, message)
    assert code not in (1, 2) or any(reason in message for reason in REASONS), (fault, code, message)
    assert finished or fault not in (None, "closed stderr", "clock"), (fault, message)
    how = "finished" if finished else {0: "stopped", 1: "refused", 2: "refused"}.get(code, "killed")
    counts[f"{fault or 'whole'}: {how}"] += 1
    place.repair()
    return finished


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cloze", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    assert FAKETIME, "libfaketime is not installed"
    end = time.monotonic() + 60 * options.minutes
    dice, cloze = random.Random(options.seed), str(options.cloze.resolve())
    counts, growth, rounds = collections.Counter(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(pathlib.Path(folder), dice)
        try:
            base = pathlib.Path(folder) / "base"
            # One phase: longer sequences in a second one take more memory.
            pretrain = [cloze, "pretrain", "--text", place.data / "text.txt", "--seq", "40", "--save-every", "5",
                        "--eval-every", "20"]
            assert go([*pretrain, "--steps", "20", "--out", base], place, None, counts, growth)
            finetune = [cloze, "finetune", "sst-2", "--data", place.data, "--model", base, "--epochs", "60",
                        "--batch", "4", "--save-every", "10", "--seeds", "2", "--keep-best"]
            commands = {"pretrain": [*pretrain, "--steps", "2000"], "finetune": finetune}
            expected = {}
            for kind, command in commands.items():
                out = pathlib.Path(folder) / f"{kind}-whole"
                assert go([*command, "--out", out], place, None, counts, growth)
                expected[kind] = (out / "model.safetensors").read_bytes()
            while time.monotonic() < end:
                rounds += 1
                kind = list(commands)[rounds % 2]
                out = place.disk / f"{kind}-{rounds}"
                resume, finished = [], False
                while not finished:
                    # After the time is over, the last run may end in peace.
                    fault = dice.choice(FAULTS) if time.monotonic() < end else None
                    finished = go([*commands[kind], "--out", out, *resume], place, fault, counts, growth)
                    resume = ["--resume"] if (out / "trainer").exists() else []
                assert (out / "model.safetensors").read_bytes() == expected[kind], f"{out} differs"
                subprocess.run(["rm", "-r", out], check=True)
        finally:
            place.close()
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    assert growth or options.minutes < 30, "no run was killed after it had trained for long"
    most = max(growth, default=0)
    print(f"{rounds} runs ended with the same bits; memory was judged {len(growth)} times and grew by at most {most:.1f} MiB")


main()
