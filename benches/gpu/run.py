#!/usr/bin/env python3
"""Measures everything that counts about a GPU that is there for minutes, beside PyTorch, in the order of its value.

    python3 benches/gpu/run.py pack FOLDER --minilm DIR --squad DIR --glue DIR    # what a run takes along, here
    python3 benches/gpu/run.py run --budget 600 --out DIR --packed FOLDER         # on the machine with the GPU
    python3 benches/gpu/run.py report DIR --machine TEXT --results FILE...        # tables and charts of several runs

`pack` builds the command, strips and compresses it, and adds MiniLM in bf16, which compresses best, and the data: less than
60 MiB together.
`run` starts PyTorch's programs first (torch_step.py, with compiled models and fused attention): they compile while the
self-test compares kernels and steps with the CPU, and while models are fine-tuned and pre-trained. Then it times training
steps, its own before and after each of PyTorch's, and looks for the largest batches. What does not fit into the budget is
left out. Each result is written as it comes; tables, charts and DIR.tar.gz are made at the
end, and again after each result.
With --emulate the kernels run on the processor, at tiny sizes: that tests this script.
"""

import argparse
import gzip
import json
import lzma
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 60 << 20
QUESTIONS = 8000
DTYPES = ["bf16", "fp16", "tf32", "f32"]
# The seeds of benches/precision.py, whose figures of the CPU engine the GPU's are compared with.
SEEDS = range(1, 6)
# How this program and the peer name the formats.
OURS = {"bf16": ["bf16"], "fp16": ["f16"], "tf32": ["f32", "--matmul", "fast"], "f32": ["f32"]}
# Published tokens per second of fine-tuning on SQuAD at length 384 on one H200, with NVIDIA's PyTorch container: bars to
# compare with.
PUBLISHED = {
    "base": {"H200, FP16, batch 592": 358_000},
    "large": {"H200, FP16, batch 192": 134_000},
}


# ---- What a run takes along.


def pack(options):
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    features = ["--features", "emulator"] if options.emulator else []
    if not options.cloze:
        subprocess.run(["cargo", "build", "--release", "-p", "cloze", *features], cwd=ROOT, check=True)
    binary = folder / "cloze"
    shutil.copy2(options.cloze or ROOT / "target/release/cloze", binary)
    subprocess.run(["strip", binary], check=True)
    (folder / "cloze.xz").write_bytes(lzma.compress(binary.read_bytes(), preset=6))
    shutil.rmtree(folder / "minilm", ignore_errors=True)
    convert = [binary, "convert", options.minilm, folder / "minilm", "--dtype", "bf16"]
    subprocess.run(convert, check=True)
    weights = folder / "minilm/model.safetensors"
    (folder / "minilm/weights.xz").write_bytes(lzma.compress(weights.read_bytes(), preset=6))
    weights.unlink()
    binary.unlink()
    questions(options.squad, "train-v1.1.json", folder / "squad", QUESTIONS)
    questions(options.squad, "dev-v1.1.json", folder / "squad", QUESTIONS // 4)
    for task in ["mrpc", "sts-b"]:
        (folder / task).mkdir(exist_ok=True)
        for name in ["train.tsv", "dev.tsv"]:
            shutil.copy2(options.glue / task.upper() / name, folder / task / name)
    shutil.copy2(ROOT / "benches/peers/torch_step.py", folder / "torch_step.py")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 2**20:.1f} MiB")
    if size > LIMIT:
        sys.exit(f"{folder} takes more than {LIMIT >> 20} MiB")


def questions(source, name, target, most):
    """Keeps whole articles of a SQuAD file, which may be packed, until they hold `most` questions."""
    packed = source / f"{name}.gz"
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else (source / name).read_bytes()
    data = json.loads(text)
    kept, count = [], 0
    for article in data["data"]:
        if count >= most:
            break
        kept.append(article)
        count += sum(len(paragraph["qas"]) for paragraph in article["paragraphs"])
    target.mkdir(parents=True, exist_ok=True)
    (target / name).write_text(json.dumps({"version": data["version"], "data": kept}))


# ---- A run.


class Run:
    def __init__(self, options):
        self.options = options
        self.out = options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.until = time.monotonic() + options.budget
        self.results = []
        self.lock = threading.Lock()
        self.scratch = pathlib.Path(tempfile.mkdtemp())
        self.packed = options.packed
        self.minilm = self.scratch / "minilm"
        if self.packed and (self.packed / "minilm").exists():
            shutil.copytree(self.packed / "minilm", self.minilm)
            weights = lzma.decompress((self.minilm / "weights.xz").read_bytes())
            (self.minilm / "model.safetensors").write_bytes(weights)
        self.cloze = options.cloze or self.unpack()

    def unpack(self):
        # Compressed archives lose the bit that makes a file a program.
        binary = self.scratch / "cloze"
        binary.write_bytes(lzma.decompress((self.packed / "cloze.xz").read_bytes()))
        binary.chmod(0o755)
        return binary

    def left(self):
        return self.until - time.monotonic()

    def keep(self, result):
        with self.lock:
            self.keep_alone(result)

    def keep_alone(self, result):
        self.results.append(result)
        with open(self.out / "results.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(json.dumps(result), flush=True)
        report(self.results, self.out)

    def command(self, name, command, seconds, **more):
        """Runs a command that takes at least `seconds`, if they are left; keeps the last line of JSON that it prints."""
        result = {"name": name, **more, "command": " ".join(map(str, command))}
        if self.left() < seconds:
            self.keep({**result, "skipped": f"{self.left():.0f} s were left, it needs {seconds:.0f}"})
            return None
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(self.left(), 1), check=False)
        except subprocess.TimeoutExpired as late:
            text = (late.stderr or b"")[-2000:]
            text = text if isinstance(text, str) else text.decode(errors="replace")
            self.keep({**result, "seconds": time.monotonic() - began, "error": f"the budget was over: {text}"})
            return None
        except OSError as error:
            self.keep({**result, "error": str(error)})
            return None
        result["seconds"] = time.monotonic() - began
        if done.returncode:
            result["error"] = done.stderr[-2000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if lines:
            result["result"] = json.loads(lines[-1])
        self.keep(result)
        return result.get("result")

    def backend(self):
        return [] if self.options.emulate else ["--backend", "cuda"]

    def ours(self, size, batch, length, dtype, seconds, kind="speed"):
        steps = "2" if self.options.emulate else "10"
        command = [self.cloze, "bench", "train", "--json", "--size", size, "--seq", str(length), "--steps", steps]
        command += ["--dtype", *OURS[dtype], *self.backend()]
        command += ["--find-batch"] if batch == "largest" else ["--batch", str(batch)]
        shape = {"size": size, "seq": length, "dtype": dtype, "kind": kind, "batch": batch}
        return self.command(f"{size} {batch}×{length} {dtype}", command, seconds, who="cloze", **shape)

    def theirs(self, size, batch, length, dtype):
        steps = "2" if self.options.emulate else "10"
        command = [sys.executable, (self.packed or ROOT / "benches/peers") / "torch_step.py", "--size", size]
        command += ["--seq", str(length), "--dtype", dtype, "--steps", steps]
        command += ["--device", "cpu" if self.options.emulate else "cuda"]
        command += ["--find-batch"] if batch == "largest" else ["--batch", str(batch)]
        return command

    def largest(self, size, length, dtype):
        """Compares the largest batches, and the speed with them."""
        self.ours(size, "largest", length, dtype, 15, kind="largest")
        shape = {"size": size, "seq": length, "dtype": dtype, "kind": "largest", "batch": "largest"}
        command = self.theirs(size, "largest", length, dtype)
        self.command(f"{size} largest×{length} {dtype}", command, 30, who="torch", **shape)

    def compared(self, peer):
        """Times training steps before and after the peer's, once it has compiled its model."""
        size, batch, length, dtype = peer.shape
        self.ours(*peer.shape, 12)
        if not peer.measure(self.left()):
            why = f"it was not ready: {peer.last_words()}"
            self.keep({"name": peer.name, "who": "torch", **peer.about, "error": why})
            return
        self.keep({"name": peer.name, "who": "torch", **peer.about, "result": peer.result})
        self.ours(*peer.shape, 12)

    def whole(self):
        small = self.options.emulate
        length = 16 if small else 384
        shape = lambda size, dtype: (size, {"tiny": 2, "base": 64, "large": 32}[size], length, dtype)
        sizes = ["tiny"] if small else ["base", "large"]
        compiled = [shape(*peer.split(":")) for peer in (["tiny:bf16"] if small else self.options.peers)]
        peers = [Peer(self, one) for one in compiled]
        selftest = [self.cloze, "bench", "--gpu-selftest", "--json"]
        checks = ["kernels:norm_forward"] if small else self.options.checks
        # At once: most of the time the CPU computes what is compared.
        done = [threading.Thread(target=self.tested, args=(selftest, check)) for check in checks]
        if self.options.scores:
            done.append(threading.Thread(target=self.scores))
        done.append(threading.Thread(target=self.curves))
        for thread in done:
            thread.start()
        for thread in done:
            thread.join()
        for peer in peers:
            peer.wait_until_ready(self.left() - 60)
        for peer in peers:
            self.compared(peer)
        if not small:
            profile = ["--only", "speed", "--match", f"base 64×{length}", "--minutes", "3"]
            self.command("launches", [*selftest, *profile, "--out", self.out / "launches"], 15, kind="selftest")
            for size in sizes:
                self.largest(size, length, "bf16")
            for size in sizes:
                for other in [128, 512]:
                    self.ours(size, shape(size, "bf16")[1] * length // other, other, "bf16", 6)
            # Not compiled: that takes longer than what is left.
            for one in [shape(*peer.split(":")) for peer in self.options.eager]:
                self.ours(*one, 12)
                about = {"size": one[0], "seq": length, "dtype": one[3], "kind": "speed", "batch": one[1]}
                name = f"{one[0]} {one[1]}×{length} {one[3]}, not compiled"
                self.command(name, self.theirs(*one), 20, who="torch", **about)
            for dtype in DTYPES[1:]:
                for size in sizes:
                    self.ours(size, "largest", length, dtype, 8, kind="largest")
            self.pretrain_large()
        for peer in peers:
            peer.stop()

    def tested(self, command, check):
        """Runs the checks of a section whose names contain a text: SECTION:TEXT."""
        section, _, text = check.partition(":")
        out = self.out / f"selftest-{check.replace(' ', '-').replace(':', '-')}"
        options = ["--only", section, *(["--match", text] if text else [])]
        options += ["--emulate", "--short"] if self.options.emulate else ["--minutes", "5"]
        self.command(f"self-test: {check}", [*command, *options, "--out", out], 20, kind="selftest")

    def tune(self, task, dtype, more, seconds):
        command = [self.cloze, "finetune", task, "--data", self.packed / task, "--model", self.minilm, "--json"]
        out = self.scratch / f"tuned-{task}-{dtype}-{'-'.join(map(str, more))}"
        command += ["--out", out, "--dtype", dtype, *map(str, more), *self.backend()]
        if self.options.emulate:
            command += ["--limit", "8"]
        name = f"fine-tuning {task} {dtype} {' '.join(map(str, more))}"
        self.command(name, command, seconds, kind="finetune", task=task, dtype=dtype)
        shutil.rmtree(out, ignore_errors=True)

    def scores(self):
        """Fine-tunes MRPC and STS-B as benches/precision.py does on the CPU."""
        if not self.minilm.exists():
            return
        for seed in [1] if self.options.emulate else SEEDS:
            for task in ["mrpc", "sts-b"]:
                self.tune(task, "bf16", ["--epochs", 2, "--lr", 5e-5, "--seed", seed], 10)

    def curves(self):
        """Fine-tunes on SQuAD, and pre-trains."""
        if self.minilm.exists():
            self.tune("squad", "bf16", ["--epochs", 1], 25)
        steps = "5" if self.options.emulate else "2000"
        command = [self.cloze, "pretrain", "--out", self.scratch / "pretrained", "--steps", steps, "--dtype", "bf16"]
        command += ["--json", "--overwrite", *self.backend()]
        self.command("a pre-training curve", command, 25, kind="pretrain")

    def pretrain_large(self):
        """Measures pre-training with full sequences, whose tokens are all real."""
        command = [self.cloze, "pretrain", "--out", self.scratch / "large", "--size", "large", "--seq", "512"]
        command += ["--first-seq", "512", "--batch", "96", "--steps", "30", "--no-nsp", "--sentences", "full", "--json"]
        command += ["--vocab", self.minilm / "vocab.txt", "--dtype", "bf16", "--overwrite", *self.backend()]
        self.command("pre-training of large at 512", command, 35, kind="pretrain")


class Peer:
    """PyTorch's program, which compiles its model and waits."""

    def __init__(self, run, shape):
        self.shape = shape
        size, batch, length, dtype = shape
        self.about = {"size": size, "seq": length, "dtype": dtype, "kind": "speed", "batch": batch}
        self.name = f"{size} {batch}×{length} {dtype}"
        self.go = run.scratch / f"go-{size}-{dtype}"
        self.log = open(run.scratch / f"peer-{size}-{dtype}", "w+b")
        self.result, self.ready = None, False
        command = [*run.theirs(*shape), "--wait", self.go]
        if not run.options.emulate:
            command.append("--compile")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                found = json.loads(line)
                if "ready" in found:
                    self.ready = True
                else:
                    self.result = found

    def wait_until_ready(self, seconds):
        until = time.monotonic() + seconds
        while not self.ready and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.2)

    def measure(self, seconds):
        """Lets it measure; returns whether it did."""
        self.go.touch()
        if not self.ready:
            self.stop()
            return False
        try:
            self.process.wait(timeout=max(min(seconds, 60), 1))
        except subprocess.TimeoutExpired:
            self.stop()
        time.sleep(0.5)
        return self.result is not None

    def last_words(self):
        self.log.seek(0)
        return self.log.read()[-1500:].decode(errors="replace")

    def stop(self):
        self.process.kill()


# ---- What is left behind.


def rows(results, kind):
    """Returns, for each size, length, batch and format, the two median speeds and the two batches."""
    table = {}
    for result in results:
        if result.get("kind") != kind or "who" not in result:
            continue
        measured = result.get("result") or {}
        key = (result["size"], result["seq"], result["dtype"], "largest" if kind == "largest" else result["batch"])
        both = table.setdefault(key, {})
        speeds, batch, error = both.get(result["who"], ([], None, None))
        speeds += [measured["tokens_per_s"]] if "tokens_per_s" in measured else []
        batch = batch or measured.get("max_batch") or measured.get("batch")
        both[result["who"]] = (speeds, batch, error or result.get("error"))
    median = lambda all: statistics.median(all) if all else None
    return {
        key: {who: (median(speeds), batch, error) for who, (speeds, batch, error) in both.items()}
        for key, both in table.items()
    }


def report(results, out, name=None):
    lines = [f"# Measured on {name or machine()}", ""]
    for kind, title in [("speed", "Training steps"), ("largest", "The largest batch that fits")]:
        table = rows(results, kind)
        if not table:
            continue
        lines += [f"## {title}", "", "| size | length | batch | format | Cloze, tokens/s | PyTorch | ratio |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for (size, length, dtype, batch), both in table.items():
            ours, theirs = (both.get(who, (None, None, None)) for who in ["cloze", "torch"])
            number = lambda one: f"{one[0]:,.0f}" if one[0] else "failed" if one[2] else "-"
            ratio = f"{ours[0] / theirs[0]:.2f}" if ours[0] and theirs[0] else "-"
            if batch == "largest":
                batch = f"{ours[1] or '-'} and {theirs[1] or '-'}"
            lines.append(f"| {size} | {length} | {batch} | {dtype} | {number(ours)} | {number(theirs)} | {ratio} |")
        lines.append("")
    lines += ["## Everything", ""]
    for result in results:
        what = result.get("skipped") or result.get("error") or result.get("result")
        lines.append(f"- {result['name']} ({result.get('who', 'cloze')}): {str(what)[:300]}")
    (out / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for size in ["base", "large", "tiny"]:
        for kind, chart, unit in [("speed", "throughput", "tokens/s"), ("largest", "batch", "sequences")]:
            draw(results, size, kind, unit, out / f"{chart}-{size}.svg", name or machine())
    if name:
        return
    archive = out.parent / f"{out.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        # Neither the program nor weights.
        left_out = ("/cloze", ".safetensors")
        file.add(out, out.name, filter=lambda entry: None if entry.name.endswith(left_out) else entry)


def machine():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        gpu = "no GPU: kernels emulated on the processor"
    return f"{gpu}, {time.strftime('%Y-%m-%d')}"


def draw(results, size, kind, unit, path, where):
    """Draws a bar for each format and program, at the first length and batch that were measured."""
    table = {key: both for key, both in rows(results, kind).items() if key[0] == size}
    if not table:
        return
    length = next(iter(table))[1]
    bars = []
    for (_, of, dtype, _), both in table.items():
        for who, (tokens, batch, _) in both.items():
            value = tokens if kind == "speed" else batch
            if of == length and value:
                bars.append((f"{dtype}, {'Cloze' if who == 'cloze' else 'PyTorch'}", value, who))
    if kind == "speed":
        bars += [(f"published: {name}", value, "published") for name, value in PUBLISHED.get(size, {}).items()]
    if not bars:
        return
    most, height = max(value for _, value, _ in bars), 26
    colours = {"cloze": "#2563eb", "torch": "#9ca3af", "published": "#d1d5db"}
    title = f"{size}, {length} tokens a sequence: {'training speed' if kind == 'speed' else 'largest batch'} ({unit})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{82 + height * len(bars)}" '
        'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="16" y="26" font-size="15" font-weight="bold">{title}</text>',
        f'<text x="16" y="48" fill="#4b5563">{where}</text>',
    ]
    for row, (name, value, who) in enumerate(bars):
        y, width = 66 + row * height, 380 * value / most
        parts.append(f'<text x="246" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="256" y="{y}" width="{width:.1f}" height="18" fill="{colours[who]}"/>')
        parts.append(f'<text x="{262 + width:.1f}" y="{y + 14}">{value:,.0f}</text>')
    path.write_text("\n".join(parts) + "\n</svg>\n", encoding="utf-8")


def joined(options):
    """Makes tables and charts of what several runs measured; what was left out or failed doesn't count."""
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [line for file in options.results for line in file.read_text(encoding="utf-8").splitlines()]
    results = [json.loads(line) for line in lines]
    results = [result for result in results if "result" in result and "error" not in result]
    report(results, options.out, options.machine)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("folder", type=pathlib.Path)
    for name in ["--minilm", "--squad", "--glue"]:
        packing.add_argument(name, type=pathlib.Path, required=True)
    packing.add_argument("--cloze", type=pathlib.Path, help="a command that is already built")
    packing.add_argument("--emulator", action="store_true", help="build the command with the emulated device")
    running = commands.add_parser("run")
    running.add_argument("--budget", type=float, required=True, help="seconds for everything")
    running.add_argument("--out", type=pathlib.Path, required=True)
    running.add_argument("--packed", type=pathlib.Path)
    running.add_argument("--cloze", type=pathlib.Path, help="the command, instead of the packed one")
    running.add_argument("--emulate", action="store_true")
    running.add_argument(
        "--checks", nargs="*", default=["kernels:attention", "steps"], metavar="SECTION[:TEXT]",
        help="parts of the self-test, which run at once",
    )
    running.add_argument(
        "--peers", nargs="*", default=["base:bf16", "large:bf16"], metavar="SIZE:FORMAT",
        help="what PyTorch compiles, all at once: the models must fit into the GPU's memory together",
    )
    running.add_argument(
        "--eager", nargs="*", metavar="SIZE:FORMAT",
        default=["base:tf32", "base:f32", "large:tf32", "large:f32"],
        help="what PyTorch also runs without compiling",
    )
    running.add_argument("--no-scores", dest="scores", action="store_false", help="without MRPC and STS-B")
    joining = commands.add_parser("report")
    joining.add_argument("out", type=pathlib.Path)
    joining.add_argument("--machine", required=True, help="the GPU, its driver and the date")
    joining.add_argument("--results", type=pathlib.Path, nargs="+", required=True, metavar="results.jsonl")
    options = parser.parse_args()
    if options.command == "pack":
        return pack(options)
    if options.command == "report":
        return joined(options)
    if not options.cloze and not options.packed:
        parser.error("--cloze or --packed is needed")
    run = Run(options)
    run.whole()
    print(f"{options.out.parent / options.out.name}.tar.gz")


if __name__ == "__main__":
    main()
