"""A warmed spare session waits for the next kernel, which then answers at once."""

import glob
import os
import signal
import subprocess
import tempfile
import time
import unittest

from jupyter_client.manager import start_new_kernel

from driver import FIRST_CELL, Cell, children, gone


def spares():
    """Returns the ids of all waiting spares."""
    found = subprocess.run(["pgrep", "-f", "cloze-kernel spare$"], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def sockets():
    """Returns the sockets at which warm spares wait."""
    home = os.environ.get("XDG_DATA_HOME", os.path.expanduser("~/.local/share"))
    data = os.environ.get("CLOZE_DATA", os.path.join(home, "cloze"))
    return glob.glob(os.path.join(data, "spares", "*.socket"))


def wait_for(holds, seconds=120):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False


class SpareTest(unittest.TestCase):
    """The first kernel leaves a spare for the next one."""

    ALONE = True

    @classmethod
    def setUpClass(cls):
        cls.switch = os.environ.pop("CLOZE_SPARE", None)
        cls.end_spares()

    @classmethod
    def tearDownClass(cls):
        if cls.switch is not None:
            os.environ["CLOZE_SPARE"] = cls.switch
        cls.end_spares()

    @staticmethod
    def end_spares():
        for pid in spares():
            os.kill(pid, signal.SIGKILL)
        for socket in sockets():
            os.unlink(socket)

    def start(self, **options):
        started = time.time()
        manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60, **options)

        def end():
            client.stop_channels()
            manager.shutdown_kernel(now=True)

        self.addCleanup(end)
        return manager, client, time.time() - started

    def test_the_next_kernel_starts_warm_and_works_like_any_other(self):
        _, first, _ = self.start()
        self.assertEqual(Cell(first, "let a = 1;").status, "ok")
        self.assertTrue(wait_for(sockets), "no spare is waiting")

        folder = tempfile.mkdtemp()
        os.environ["WORD_OF_THE_TEST"] = "in the notebook"
        self.addCleanup(os.environ.pop, "WORD_OF_THE_TEST")
        manager, client, ready = self.start(cwd=folder)
        tensor = Cell(client, FIRST_CELL)
        print(f"\nwith a spare: ready {ready:.2f} s, first tensor {tensor.seconds:.2f} s")
        self.assertEqual(tensor.status, "ok")
        self.assertLess(tensor.seconds, 6)
        self.assertFalse(sockets(), "the spare was taken")

        # It is a new session, with this kernel's folder and environment, also after a crash.
        self.assertEqual(Cell(client, "a").status, "error")
        place = "(std::env::current_dir()?, std::env::var(\"WORD_OF_THE_TEST\")?)"
        expected = f"({os.path.realpath(folder)!r}, 'in the notebook')".replace("'", '"')
        for crash in (False, True):
            if crash:
                self.assertEqual(Cell(client, "std::process::abort()").status, "error")
            cell = Cell(client, place)
            self.assertEqual(cell.of("execute_result")[0]["data"]["text/plain"], expected)

        # A signal to the process that Jupyter knows reaches the cell.
        client.execute("println!(\"go\"); loop {}")
        while client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
            pass
        os.kill(manager.provisioner.pid, signal.SIGINT)
        self.assertEqual(client.get_shell_msg(timeout=60)["content"]["ename"], "interrupted")

        # Each ends if the other ends.
        session = self.session_of(folder)
        os.kill(manager.provisioner.pid, signal.SIGKILL)
        self.assertTrue(gone(session))

    def session_of(self, folder):
        """Returns the processes that work in a folder."""
        found = []
        for pid in spares():
            if os.path.realpath(f"/proc/{pid}/cwd") == os.path.realpath(folder):
                found += [pid, *children(pid)]
        self.assertTrue(found)
        return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
