"""Stops, closes and kills kernels while they build the session template. Runs in an environment with the kernel.

    CLOZE_DATA=DATA python tests/deep/unfinished.py

The check fails unless

- the stop button ends the first cell at once, while the kernel stays and the template is built further;
- closing a kernel ends cargo and its compilers, and the next kernel continues with the crates that were compiled;
- a kernel that starts after another one was killed waits for the cargo that the dead one has left, and then continues;
- no start takes a half-made template as whole.

DATA is an empty folder; the crates may have been downloaded.
"""

import os
import pathlib
import re
import signal
import time

from jupyter_client.manager import start_new_kernel

DATA = pathlib.Path(os.environ["CLOZE_DATA"])


class Kernel:
    def __init__(self):
        self.manager, self.client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
        self.states = []
        self.client.execute("let x = 1 + 1; x")

    def until(self, pattern, least=0):
        """Waits for progress that matches, with a number of at least `least`, and returns that number."""
        deadline = time.time() + 900
        while time.time() < deadline:
            message = self.client.get_iopub_msg(timeout=900)
            assert message["msg_type"] != "execute_result", "the cell ran"
            text = message["content"].get("data", {}).get("text/plain", "")
            found = re.search(pattern, text)
            if found and int(found[1]) >= least:
                return int(found[1])
        raise AssertionError(f"no progress like {pattern}")

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


def builders():
    """Returns the processes of cargo and rustc that work on the template, cargo first."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(DATA) in command and "cloze-kernel" not in command:
            found.append((0 if "--manifest-path" in command else 1, int(process.name)))
    return [process for _, process in sorted(found)]


def ended():
    for _ in range(50):
        if not builders():
            return True
        time.sleep(0.1)
    return False


def unfinished():
    assert not list(DATA.glob("templates/*/finished")), "a half-made template counts as whole"


def main():
    steps, waits = r"Compiling: (\d+) of", r"(\d+):\d+ · another process"
    kernel = Kernel()
    kernel.until(steps, 20)
    kernel.manager.interrupt_kernel()
    asked = time.time()
    reply = kernel.client.get_shell_msg(timeout=20)["content"]
    assert reply["status"] == "error" and "still being prepared" in reply["evalue"], reply
    print(f"the stop button ended the cell after {time.time() - asked:.1f} s")
    kernel.client.execute("1")
    reached = kernel.until(steps, 30)
    assert builders(), "no cargo runs"
    kernel.close()
    assert ended(), builders()
    unfinished()

    kernel = Kernel()
    again = kernel.until(steps)
    assert again >= reached, (again, reached)
    print(f"closed after {reached} steps, begun again after {again}")
    os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
    time.sleep(1)
    assert builders(), "cargo has ended with the kernel"

    second = Kernel()
    second.until(waits)
    unfinished()
    os.killpg(builders()[0], signal.SIGKILL)
    after = second.until(steps)
    assert after >= again, (after, again)
    print(f"after a kill, begun again after {after}")
    second.close()
    kernel.close()
    assert ended(), builders()
    unfinished()


if __name__ == "__main__":
    main()
