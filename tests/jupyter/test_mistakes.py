"""Mistakes that learners make, and how the kernel explains them.

The mistakes stand in `mistakes.toml`. Run as `test_kernel.py` is.
"""

import pathlib
import re
import time
import tomllib
import unittest

from driver import Cell, WithKernel

CORPUS = tomllib.loads(
    pathlib.Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8")
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Words of the code that the session adds around a cell, and of traits that learners never write.
GENERATED = ("evcxr", "cloze_session", "the following other types", "src/lib.rs")


class MistakesTest(WithKernel):
    """One kernel for all mistakes: a failing cell leaves the session unchanged."""

    def test_every_mistake_is_explained(self):
        mistakes = CORPUS["mistake"]
        self.assertGreaterEqual(len(mistakes), 40)
        started = time.time()
        for early in (True, False):
            if not early:
                self.run_cell(CORPUS["setup"])
            for mistake in mistakes:
                if mistake.get("early", False) == early:
                    with self.subTest(cell=mistake["cell"]):
                        self.made(mistake)
        print(f"{len(mistakes)} mistakes in {time.time() - started:.0f} s")

    def made(self, mistake):
        for code in mistake.get("before", []):
            self.run_cell(code)
        self.explained(mistake)

    def explained(self, mistake):
        cell = Cell(self.client, mistake["cell"])
        self.assertEqual(cell.status, "error")
        (error,) = cell.of("error")
        text = COLOURS.sub("", "\n".join(error["traceback"]))
        self.assertEqual(error["ename"], mistake["ename"], text)
        self.assertIn(mistake["says"], error["evalue"])
        # The sentence comes first.
        first = text[: len(error["ename"]) + 2 + len(error["evalue"])]
        self.assertEqual(first, f"{error['ename']}: {error['evalue']}")
        self.assertIn(mistake.get("hint", ""), text)
        if "line" in mistake:
            self.assertIn(f"--> this cell, line {mistake['line']}", text)
        for words in (*GENERATED, *filter(None, [mistake.get("not")])):
            self.assertNotIn(words, text)


if __name__ == "__main__":
    unittest.main()
