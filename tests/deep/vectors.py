"""Checks in the compiler's assembly that the CPU engine's loops consist of vector instructions.

    vectors.py DIRECTORY

reads the `.s` files of a release build with line numbers for x86-64 or ARM64. A line of the engine's sources whose
arithmetic on f32 is in more loops of scalar than of vector instructions fails the check: a vector loop may have a
scalar one for its last values. Loops that no step's time depends on are named in SLOW, each with its reason. A line that
takes a logarithm is left out: that is a call for each row.
"""

import collections
import pathlib
import re
import sys

SLOW = {
    "cpu/gemm/check.rs": "a test product of 37 × 67 numbers at the start",
    "cpu/heads.rs": "the pooler's activation: a row for each example",
    "cpu/gemm/neon/mod.rs": "the last columns of a product",
    "cpu/muon.rs": "a loop over the matrices' sizes",
}
ENGINE = pathlib.Path(__file__).parents[2] / "src/engine"
SCALAR = re.compile(
    r"v?(add|sub|mul|div|sqrt|max|min|fn?m(add|sub)\d+)ss\s"
    r"|f(mul|add|sub|div|madd|msub|nmul|nmadd|nmsub|sqrt|max|min|maxnm|minnm)\s+s\d"
)
VECTOR = re.compile(
    r"v?(add|sub|mul|div|sqrt|max|min|fn?m(add|sub)\d+)ps\s|vdpbf16ps|tdpbf16ps"
    r"|f(mul|add|sub|div|mla|mls|sqrt|max|min|maxnm|minnm)\s+v\d+\.[24]s|bfmmla"
)
JUMP = re.compile(r"(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.LBB\w+)$")


def loops(lines):
    """Returns the innermost loops of each function as (first, last) line."""
    labels, found = {}, []
    for number, line in enumerate(lines):
        if line.startswith(".LBB") and line.endswith(":"):
            labels[line[:-1]] = number
        elif (jump := JUMP.match(line.strip())) and jump[1] in labels:
            found.append((labels[jump[1]], number))
        elif line.startswith("_") and line.endswith(":"):
            yield from innermost(found)
            labels, found = {}, []
    yield from innermost(found)


def innermost(found):
    found = sorted(set(found), key=lambda loop: loop[1] - loop[0])
    for at, (first, last) in enumerate(found):
        if not any(first <= a and b <= last for a, b in found[:at]):
            yield first, last


def main():
    counts = collections.defaultdict(lambda: [0, 0])
    for path in sorted(pathlib.Path(sys.argv[1]).glob("cloze-*.s")):
        lines = path.read_text(errors="replace").split("\n")
        files = {}
        for line in lines:
            if file := re.match(r'\s+\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]+)"', line):
                files[file[1]] = file[2].split("src/engine/")[-1] if "src/engine/" in file[2] else None
        for first, last in loops(lines):
            kinds, source = collections.defaultdict(set), None
            for line in lines[first:last]:
                line = line.strip()
                if line.startswith(".loc"):
                    _, file, number = line.split()[:3]
                    name = files.get(file)
                    engine = name and (name.startswith("cpu/") or name == "simd.rs")
                    source = f"{name}:{number}" if engine else None
                elif source and VECTOR.match(line):
                    kinds[source].add(1)
                elif source and SCALAR.match(line):
                    kinds[source].add(0)
            for source, kind in kinds.items():
                for which in kind:
                    counts[source][which] += 1
    if not counts:
        sys.exit(f"{sys.argv[1]}: expected the assembly of Cloze with line numbers")
    bad = 0
    for source, (scalar, vector) in sorted(counts.items()):
        file, line = source.split(":")
        # Line 0 stands for instructions that belong to no line.
        text = (ENGINE / file).read_text().split("\n")[int(line) - 1] if line != "0" else ""
        if scalar > vector and file not in SLOW and ".ln()" not in text:
            bad += 1
            print(f"src/engine/{source}: {scalar} scalar loops, {vector} vector loops")
    print(f"{len(counts)} lines of the engine compute in loops, {bad} without vector instructions")
    sys.exit(bad > 0)


main()
