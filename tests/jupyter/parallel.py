"""Runs the tests of this folder, three classes at a time, and prints what each took.

    python tests/jupyter/parallel.py [PATTERN]

Each class has a process of its own, which shows its output when it ends. Classes with the attribute `ALONE` measure
times, or end processes of other tests: they run at the end, one after another. A class that failed beside another one is
run once more alone, and is named at the end if it passes then. The exit code is 1 if a test failed.
"""

import pathlib
import re
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor, as_completed

FOLDER = pathlib.Path(__file__).resolve().parent
AT_ONCE = 3
# A class in which nothing happens for this many seconds is ended, so that the others still report.
PATIENCE = 1800


def classes(suite):
    """Returns the test classes of a suite, in its order."""
    found = {}
    for test in suite:
        found.update(classes(test) if isinstance(test, unittest.TestSuite) else {type(test): None})
    return found


def run(name):
    """Runs a class and returns its exit code, its output and its seconds."""
    started = time.time()
    command = [sys.executable, "-m", "unittest", "-v", name]
    try:
        done = subprocess.run(
            command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=PATIENCE, check=False,
        )
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = 1, (late.stdout or b"").decode(errors="replace") + "\nFAILED: it did not end"
    return name, code, output, time.time() - started


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else "test_*.py"
    loader = unittest.TestLoader()
    found = classes(loader.discover(str(FOLDER), pattern))
    if loader.errors:
        sys.exit("\n".join(loader.errors))
    names = {kind: f"{kind.__module__}.{kind.__qualname__}" for kind in found}
    alone = [name for kind, name in names.items() if getattr(kind, "ALONE", False)]
    beside = [name for name in names.values() if name not in alone]
    tests, times = {}, []

    def failures(part, at_once):
        failed = []
        with ThreadPoolExecutor(at_once) as pool:
            for done in as_completed([pool.submit(run, name) for name in part]):
                name, code, output, seconds = done.result()
                print(f"\n-- {name}, {seconds:.0f} s\n{output}", flush=True)
                count = re.search(r"^Ran (\d+) test", output, re.MULTILINE)
                tests[name] = int(count[1]) if count else 0
                times.append((seconds, name))
                if code:
                    failed.append(name)
        return failed

    again = failures(beside, AT_ONCE)
    failed = failures(alone + again, 1)
    for seconds, name in sorted(times, reverse=True):
        print(f"{seconds:6.0f} s  {name}")
    unsteady = [name for name in again if name not in failed]
    print(f"Failed once, then passed alone: {', '.join(unsteady) or 'none'}")
    print(f"Ran {sum(tests.values())} tests of {len(tests)} classes; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed or not sum(tests.values()) else 0)


if __name__ == "__main__":
    main()
