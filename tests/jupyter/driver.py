"""Shared by the tests of the kernel: cells as a front end sees them, and processes."""

import os
import time
import unittest

from jupyter_client.manager import start_new_kernel

FIRST_CELL = (
    "use cloze::prelude::*;\n"
    "let device = Cpu::default();\n"
    "let x: Tensor<Rank2<2, 3>, f32, Cpu> = device.zeros();"
)


class Cell:
    """Everything that one executed cell sent, in order."""

    def __init__(self, client, code, timeout=120, **options):
        self.messages = []
        self.times = []
        started = time.time()

        def keep(message):
            self.messages.append(message)
            self.times.append(time.time() - started)

        self.reply = client.execute_interactive(code, output_hook=keep, timeout=timeout, **options)
        self.seconds = time.time() - started
        self.status = self.reply["content"]["status"]

    def of(self, kind):
        return [m["content"] for m in self.messages if m["msg_type"] == kind]

    def text(self, stream="stdout"):
        return "".join(c["text"] for c in self.of("stream") if c["name"] == stream)


class WithKernel(unittest.TestCase):
    """Tests that share one kernel and leave it usable."""

    @classmethod
    def setUpClass(cls):
        started = time.time()
        cls.manager, cls.client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
        cls.ready = time.time() - started

    @classmethod
    def tearDownClass(cls):
        cls.client.stop_channels()
        cls.manager.shutdown_kernel(now=True)

    def run_cell(self, code, status="ok", **options):
        cell = Cell(self.client, code, **options)
        self.assertEqual(cell.status, status, [m["content"] for m in cell.messages])
        return cell


def children(pid):
    """Returns the ids of the processes below `pid`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found.append(int(entry))
            found.extend(children(int(entry)))
    return found


def memory(pid):
    """Returns the resident memory of a process in MiB."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return 0


def gone(pids, seconds=10):
    """Returns whether all processes end within `seconds`."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        alive = []
        for pid in pids:
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[0] != "Z":
                        alive.append(pid)
            except OSError:
                pass
        if not alive:
            return True
        time.sleep(0.05)
    return False
