"""Executes the notebooks of a folder with the kernel `cloze` and fails on the first error.

    cloze lessons build --solutions --out DIR
    python tests/jupyter/run_notebooks.py [--timed] DIR [NUMBER ...]

The numbers name lessons; without any, all are executed. The executed notebooks, outputs included, are written to
DIR/executed. Two kernels execute them side by side, each one after another, with `:clear` between two: a new kernel for
each took 12 s longer (AMD EPYC, Zen 3). With --timed each has a kernel of its own, and nothing runs beside it; how many
seconds it took is written to DIR/times.json, which `cloze lessons check --times` compares with what the lessons state.
"""

import json
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

# A solution takes under 45 s on two idle cores; a busy machine may take longer.
CELL_TIMEOUT = 600


class Kernel:
    """A kernel that executes notebooks one after another, all of them in the thread of the first."""

    def __init__(self):
        self.manager = AsyncKernelManager(kernel_name="cloze")
        self.client = None

    def execute(self, notebook):
        runner = NotebookClient(notebook, km=self.manager, timeout=CELL_TIMEOUT)
        # A second client of the same kernel gets no answer.
        runner.kc = self.client
        runner.execute()
        self.client = runner.kc

    def clear(self):
        self.execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(":clear")]))

    def end(self):
        # It has none before its first notebook.
        if self.manager.has_kernel:
            run_sync(self.manager.shutdown_kernel)(now=True)


def execute(path, folder, kernel):
    """Executes a notebook and returns the seconds."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    started = time.time()
    try:
        kernel.execute(notebook)
    finally:
        nbformat.write(notebook, folder / path.name)
    seconds = time.time() - started
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = sum(len(cell.outputs) for cell in cells)
    pages = [output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs]
    pictures = sum("<svg" in page or "<iframe" in page for page in pages)
    print(f"{path.name}: {len(cells)} cells, {outputs} outputs, {pictures} pictures, {seconds:.0f} s", flush=True)
    assert pictures > 0, f"{path.name} has no picture"
    return seconds


def main():
    arguments = sys.argv[1:]
    timed = arguments[0] == "--timed"
    source, *numbers = arguments[timed:]
    source = pathlib.Path(source)
    executed = source / "executed"
    executed.mkdir(parents=True, exist_ok=True)
    notebooks = [path for path in sorted(source.glob("*.ipynb")) if not numbers or path.name[:2] in numbers]
    assert len(notebooks) >= max(1, len(numbers)), f"a notebook is missing in {source}"
    waiting, times = iter(notebooks), {}

    def work(_):
        kernel = Kernel()
        try:
            # Both threads take from the same iterator.
            for path in waiting:
                times[path.stem] = round(execute(path, executed, kernel), 1)
                if timed:
                    kernel.end()
                    kernel = Kernel()
                else:
                    kernel.clear()
        finally:
            kernel.end()

    count = 1 if timed else 2
    with ThreadPoolExecutor(count) as pool:
        # The first failure is raised here.
        list(pool.map(work, range(count)))
    if timed:
        (source / "times.json").write_text(json.dumps(times, indent=2) + "\n")


if __name__ == "__main__":
    main()
