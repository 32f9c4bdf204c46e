#!/usr/bin/env python3
"""Measures everything that counts about a GPU that is there for minutes, beside PyTorch, in the order of its value.

    python3 benches/gpu/run.py pack FOLDER --minilm DIR --squad DIR --mrpc DIR    # what a run takes along, here
    python3 benches/gpu/run.py run --budget 600 --out DIR --packed FOLDER         # on the machine with the GPU

`pack` builds the command, strips and compresses it, and adds MiniLM in f16 and the data: less than 60 MiB together.
`run` begins with the self-test, then times training steps in turn with PyTorch's (torch_step.py, with compiled models
and fused attention), fine-tunes and pre-trains. What does not fit into the budget is left out. Each result is written
as it comes; tables, charts and DIR.tar.gz are made at the end, and again after each result.
With --emulate the kernels run on the processor, at tiny sizes: that tests this script.
"""

import argparse
import gzip
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 60 << 20
QUESTIONS = 8000
DTYPES = ["bf16", "fp16", "tf32", "f32"]
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
    subprocess.run(["cargo", "build", "--release", "-p", "cloze", *features], cwd=ROOT, check=True)
    binary = folder / "cloze"
    shutil.copy2(ROOT / "target/release/cloze", binary)
    subprocess.run(["strip", binary], check=True)
    (folder / "cloze.xz").write_bytes(lzma.compress(binary.read_bytes(), preset=6))
    convert = [binary, "convert", options.minilm, folder / "minilm", "--dtype", "f16", "--overwrite"]
    subprocess.run(convert, check=True)
    binary.unlink()
    questions(options.squad, "train-v1.1.json", folder / "squad", QUESTIONS)
    questions(options.squad, "dev-v1.1.json", folder / "squad", QUESTIONS // 4)
    (folder / "mrpc").mkdir(exist_ok=True)
    for name in ["train.tsv", "dev.tsv"]:
        shutil.copy2(options.mrpc / name, folder / "mrpc" / name)
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
        self.cloze = options.cloze or self.unpack()

    def unpack(self):
        # Compressed archives lose the bit that makes a file a program.
        binary = self.out / "cloze"
        binary.write_bytes(lzma.decompress((self.options.packed / "cloze.xz").read_bytes()))
        binary.chmod(0o755)
        return binary

    def left(self):
        return self.until - time.monotonic()

    def keep(self, result):
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

    def train(self, size, batch, length, dtype, seconds, kind="speed"):
        """Times training steps, in turn with the peer's."""
        steps = "2" if self.options.emulate else "10"
        name = f"{size} {batch}×{length} {dtype}"
        shape = {"size": size, "seq": length, "dtype": dtype, "kind": kind}
        ours = [self.cloze, "bench", "train", "--json", "--size", size, "--seq", str(length), "--steps", steps]
        ours += ["--dtype", *OURS[dtype], *self.backend()]
        ours += ["--find-batch"] if batch == "largest" else ["--batch", str(batch)]
        self.command(name, ours, seconds, who="cloze", batch=batch, **shape)
        theirs = [sys.executable, self.peer(), "--size", size, "--seq", str(length), "--dtype", dtype]
        theirs += ["--device", "cpu" if self.options.emulate else "cuda", "--steps", steps]
        if batch == "largest":
            found = self.command(f"{name}, found", [*theirs, "--find-batch"], seconds, who="torch", batch=batch, **shape)
            if not found:
                return
            batch = found["max_batch"]
        theirs += ["--batch", str(batch)]
        if not self.options.emulate:
            theirs.append("--compile")
        self.command(name, theirs, seconds, who="torch", batch=batch, **shape)

    def peer(self):
        return (self.options.packed or ROOT / "benches/peers") / "torch_step.py"

    def whole(self):
        small = self.options.emulate
        selftest = [self.cloze, "bench", "--gpu-selftest", "--json", "--out", self.out / "selftest"]
        if small:
            selftest += ["--emulate", "--short", "--match", "norm_forward"]
        else:
            selftest += ["--minutes", f"{min(8.0, self.left() * 0.6 / 60):.2f}"]
        self.command("self-test", selftest, 20, kind="selftest")
        sizes = ["tiny"] if small else ["base", "large"]
        batch, length = (2, 16) if small else (64, 384)
        for size in sizes:
            self.train(size, batch, length, "bf16", 25)
        if not small:
            for size in sizes:
                self.train(size, "largest", length, "bf16", 40, kind="largest")
        for dtype in DTYPES[1:]:
            for size in sizes:
                self.train(size, batch, length, dtype, 25)
        for other in [8] if small else [128, 512]:
            for size in sizes:
                self.train(size, batch * length // other, other, "bf16", 25)
        if not small:
            for dtype in DTYPES[1:]:
                for size in sizes:
                    self.train(size, "largest", length, dtype, 40, kind="largest")
        self.tune()
        self.pretrain()

    def tune(self):
        packed = self.options.packed
        if not packed or not (packed / "minilm").exists():
            return
        for task, data, epochs in [("mrpc", "mrpc", 3), ("squad", "squad", 1)]:
            command = [self.cloze, "finetune", task, "--data", packed / data, "--model", packed / "minilm"]
            command += ["--out", self.out / f"tuned-{task}", "--dtype", "bf16", "--json", "--overwrite", *self.backend()]
            command += ["--epochs", str(epochs)]
            if self.options.emulate:
                command += ["--limit", "8"]
            self.command(f"fine-tuning {task}", command, 60, kind="finetune")
            shutil.rmtree(self.out / f"tuned-{task}", ignore_errors=True)

    def pretrain(self):
        steps = "5" if self.options.emulate else "2000"
        command = [self.cloze, "pretrain", "--out", self.out / "pretrained", "--steps", steps, "--dtype", "bf16", "--json"]
        command += ["--overwrite", *self.backend()]
        self.command("a pre-training curve", command, 60, kind="pretrain")


# ---- What is left behind.


def speed(result):
    return (result.get("result") or {}).get("tokens_per_s")


def rows(results, kind):
    """Returns, for each size, length, batch and format, the two speeds and the two batches."""
    table = {}
    for result in results:
        if result.get("kind") != kind or "who" not in result:
            continue
        measured = result.get("result") or {}
        if "max_batch" in measured:
            continue
        key = (result["size"], result["seq"], result["dtype"], "largest" if kind == "largest" else result["batch"])
        table.setdefault(key, {})[result["who"]] = (speed(result), measured.get("batch"), result.get("error"))
    return table


def report(results, out):
    lines = [f"# Measured on {machine()}", ""]
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
        for kind, name, unit in [("speed", "throughput", "tokens/s"), ("largest", "batch", "sequences")]:
            draw(results, size, kind, unit, out / f"{name}-{size}.svg")
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


def draw(results, size, kind, unit, path):
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
        bars += [(name, value, "published") for name, value in PUBLISHED.get(size, {}).items()]
    if not bars:
        return
    most, height = max(value for _, value, _ in bars), 26
    colours = {"cloze": "#2563eb", "torch": "#9ca3af", "published": "#d1d5db"}
    title = f"{size}, {length} tokens a sequence: {'training speed' if kind == 'speed' else 'largest batch'} ({unit})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{60 + height * len(bars)}" '
        'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="16" y="26" font-size="15" font-weight="bold">{title}</text>',
    ]
    for row, (name, value, who) in enumerate(bars):
        y, width = 44 + row * height, 380 * value / most
        parts.append(f'<text x="216" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="226" y="{y}" width="{width:.1f}" height="18" fill="{colours[who]}"/>')
        parts.append(f'<text x="{232 + width:.1f}" y="{y + 14}">{value:,.0f}</text>')
    path.write_text("\n".join(parts) + "\n</svg>\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("folder", type=pathlib.Path)
    for name in ["--minilm", "--squad", "--mrpc"]:
        packing.add_argument(name, type=pathlib.Path, required=True)
    packing.add_argument("--emulator", action="store_true", help="build the command with the emulated device")
    running = commands.add_parser("run")
    running.add_argument("--budget", type=float, required=True, help="seconds for everything")
    running.add_argument("--out", type=pathlib.Path, required=True)
    running.add_argument("--packed", type=pathlib.Path)
    running.add_argument("--cloze", type=pathlib.Path, help="the command, instead of the packed one")
    running.add_argument("--emulate", action="store_true")
    options = parser.parse_args()
    if options.command == "pack":
        return pack(options)
    if not options.cloze and not options.packed:
        parser.error("--cloze or --packed is needed")
    run = Run(options)
    run.whole()
    print(f"{options.out.parent / options.out.name}.tar.gz")


if __name__ == "__main__":
    main()
