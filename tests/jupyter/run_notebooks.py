"""Executes the notebooks of a folder with the kernel `cloze` and fails on the first error.

    cloze lessons build --solutions --out DIR
    python tests/jupyter/run_notebooks.py [--timed] DIR [FIRST LAST]

FIRST and LAST are numbers of lessons, by default 00 and 99. The executed notebooks, outputs included, are written to
DIR/executed. Two are executed at a time. With --timed it is one, and how many seconds each took is written to
DIR/times.json, which `cloze lessons check --times` compares with what the lessons state.
"""

import json
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import nbformat
from nbclient import NotebookClient

# A solution takes under 45 s on two idle cores; a busy machine may take longer.
CELL_TIMEOUT = 600


def execute(path, folder):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    started = time.time()
    client = NotebookClient(notebook, kernel_name="cloze", timeout=CELL_TIMEOUT)
    try:
        client.execute()
    finally:
        nbformat.write(notebook, folder / path.name)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = sum(len(cell.outputs) for cell in cells)
    pages = [output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs]
    pictures = sum("<svg" in page or "<iframe" in page for page in pages)
    seconds = time.time() - started
    print(f"{path.name}: {len(cells)} cells, {outputs} outputs, {pictures} pictures, {seconds:.0f} s", flush=True)
    assert pictures > 0, f"{path.name} has no picture"
    return seconds


def main():
    arguments = sys.argv[1:]
    timed = arguments[0] == "--timed"
    source, *part = arguments[timed:]
    source = pathlib.Path(source)
    executed = source / "executed"
    executed.mkdir(parents=True, exist_ok=True)
    first, last = part or ("00", "99")
    notebooks = [path for path in sorted(source.glob("*.ipynb")) if first <= path.name[:2] <= last]
    assert notebooks, f"no notebooks in {source}"
    with ThreadPoolExecutor(1 if timed else 2) as pool:
        seconds = list(pool.map(lambda path: execute(path, executed), notebooks))
    if timed:
        times = {path.stem: round(taken, 1) for path, taken in zip(notebooks, seconds, strict=True)}
        (source / "times.json").write_text(json.dumps(times, indent=2) + "\n")


if __name__ == "__main__":
    main()
