"""Runs many cells in one session and reports memory and seconds per cell.

    JUPYTER_PATH="$P/share/jupyter" python tests/jupyter/endurance.py [CELLS]

Compiled cells are never unloaded (a variable may hold their code), so memory grows with each. Run by
hand with 1,000 cells; `test_load.py` runs a few dozen.
"""

import json
import statistics
import sys

from jupyter_client.manager import start_new_kernel

from driver import FIRST_CELL, Cell, children, memory

# The number of cells after which everything that is loaded once has been loaded.
WARM = 10


def measure(cells, say=lambda line: None):
    """Returns the costs of `cells` equal cells after the warm-up."""
    manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
    try:
        assert Cell(client, FIRST_CELL).status == "ok"
        kernel = manager.provisioner.pid

        def sizes():
            return [memory(kernel), sum(memory(pid) for pid in children(kernel))]

        seconds = []
        for number in range(WARM + cells):
            if number == WARM:
                before = sizes()
            code = (
                f"let total = (x.clone() + {number}.0).sum::<Rank0, _>().array();\n"
                'println!("{total}");'
            )
            cell = Cell(client, code)
            assert cell.text() == f"{number * 6}\n", (cell.status, cell.text())
            if number >= WARM:
                seconds.append(cell.seconds)
            if number % 50 == 0:
                say(f"{number} cells, {cell.seconds:.2f} s, MiB (kernel, child): {sizes()}")
        after = sizes()
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    part = max(cells // 10, 10)
    first, last = statistics.median(seconds[:part]), statistics.median(seconds[-part:])
    return {
        "cells": cells,
        "seconds_first": round(first, 3),
        "seconds_last": round(last, 3),
        "ratio": round(last / first, 2),
        "kernel_mib_a_cell": round((after[0] - before[0]) / cells, 3),
        "child_mib_a_cell": round((after[1] - before[1]) / cells, 3),
        "mib_after": after,
    }


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(json.dumps(measure(count, say=lambda line: print(line, file=sys.stderr, flush=True))))
