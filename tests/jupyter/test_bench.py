"""`cloze bench cells`: its measurements and its error messages."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from driver import gone

CLOZE = pathlib.Path(__file__).resolve().parents[2] / "target" / "debug" / "cloze"


def bench(*options, path=None):
    environment = {**os.environ, **({"JUPYTER_PATH": path} if path else {})}
    return subprocess.run(
        [CLOZE, "bench", "cells", *options],
        env=environment, capture_output=True, text=True, timeout=600,
    )


class BenchTest(unittest.TestCase):
    def test_the_figures_of_a_kernel(self):
        run = bench("--repeat", "1", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        print(f"\n{found}")
        self.assertEqual(found["kernel"], "cloze")
        for figure in ("ready", "first_tensor", "let", "tensor", "expression", "first_error"):
            self.assertGreater(found[figure], 0, figure)
        self.assertLess(found["ready"], 10)
        self.assertGreaterEqual(found["start_to_first_tensor"], found["first_tensor"])
        self.assertLess(found["interrupt"], 5)
        self.assertIs(found["variables_kept"], True)
        self.assertGreater(found["memory_mib"], found["memory_kernel_mib"])
        self.assertIn("cloze::prelude", found["setup"])

    def test_an_unknown_kernel_is_refused_and_the_known_ones_are_listed(self):
        run = bench("--kernel", "no-such-kernel")
        self.assertEqual(run.returncode, 2)
        self.assertIn("no-such-kernel", run.stderr)
        self.assertIn("cloze", run.stderr)

    def kernel(self, folder, script):
        spec = pathlib.Path(folder) / "kernels" / "odd" / "kernel.json"
        spec.parent.mkdir(parents=True)
        argv = ["sh", "-c", script]
        text = json.dumps({"argv": argv, "display_name": "odd", "language": "none"})
        spec.write_text(text, encoding="utf-8")
        return folder

    def test_a_kernel_that_dies_is_quoted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.kernel(folder, "echo first >&2; echo last words >&2; exit 3")
            run = bench("--kernel", "odd", path=path)
        self.assertEqual(run.returncode, 1)
        self.assertIn("last words", run.stderr)
        self.assertNotIn("first", run.stderr)

    def test_a_kernel_that_never_answers_fails_after_the_timeout(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.kernel(folder, f"echo $$ > {folder}/pid; exec sleep 600")
            run = bench("--kernel", "odd", "--timeout", "2", path=path)
            pid = (pathlib.Path(folder) / "pid").read_text(encoding="utf-8").strip()
        self.assertEqual(run.returncode, 1)
        self.assertIn("--timeout", run.stderr)
        self.assertTrue(gone([int(pid)]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
