"""The kernel under load and under attack: floods, replayed and forged messages, a front end that dies.

Runs like `test_kernel.py`. Bounds on time and memory are wide: they catch what grows without end.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import zmq
from jupyter_client.connect import write_connection_file
from jupyter_client.kernelspec import get_kernel_spec
from jupyter_client.manager import start_new_kernel
from jupyter_client.session import Session

import endurance
from driver import Cell, children, gone, memory


class Running(unittest.TestCase):
    """One kernel for the tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.manager, cls.client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
        assert Cell(cls.client, "1").status == "ok"

    @classmethod
    def tearDownClass(cls):
        cls.client.stop_channels()
        cls.manager.shutdown_kernel(now=True)

    def value(self, code, timeout=60):
        cell = Cell(self.client, code, timeout=timeout)
        self.assertEqual(cell.status, "ok", [m["content"] for m in cell.messages])
        return cell.of("execute_result")[0]["data"]["text/plain"]


class FloodTest(Running):
    LINE = 'let line = "x".repeat(99);\n'

    def test_ten_megabytes_arrive_whole(self):
        cell = Cell(self.client, self.LINE + 'for _ in 0..100_000 { println!("{line}"); }')
        self.assertEqual(len(cell.text()), 10_000_000)
        self.assertEqual(cell.text("stderr"), "")

    def test_a_hundred_megabytes_are_truncated_and_counted(self):
        kernel = self.manager.provisioner.pid
        before = memory(kernel)
        cell = Cell(self.client, self.LINE + 'for _ in 0..1_000_000 { println!("{line}"); }')
        self.assertEqual(cell.status, "ok")
        self.assertEqual(len(cell.text()), 10_000_000)
        notes = cell.text("stderr")
        self.assertIn("90 MB of text", notes)
        self.assertIn("CLOZE_OUTPUT_LIMIT", notes)
        grown = memory(kernel) - before
        print(f"\n100 MB of output: {cell.seconds:.1f} s, the kernel grew by {grown} MiB")
        self.assertLess(grown, 150)
        self.assertLess(cell.seconds, 60)
        self.assertEqual(self.value("20 + 1"), "21")

    def test_a_large_value_does_not_stall_the_kernel(self):
        cell = Cell(self.client, 'cloze::display::text("x".repeat(20_000_000)); "x".repeat(20_000_000)')
        (shown,) = cell.of("display_data")
        self.assertEqual(len(shown["data"]["text/plain"]), 20_000_000)
        (value,) = cell.of("execute_result")
        self.assertLess(len(value["data"]["text/plain"]), 2_000)
        self.assertLess(cell.seconds, 30)

    def test_many_small_displays_arrive_in_order(self):
        code = "for i in 0..20_000 { cloze::display::text(format!(\"{i}\")); }"
        cell = Cell(self.client, code)
        shown = [int(c["data"]["text/plain"]) for c in cell.of("display_data")]
        print(f"\n20,000 displays: {cell.seconds:.1f} s")
        self.assertEqual(shown, list(range(20_000)))

    def test_displays_have_a_limit_too(self):
        code = (
            'let big = "x".repeat(1_000_000);\n'
            "for _ in 0..90 { cloze::display::text(big.as_str()); }"
        )
        cell = Cell(self.client, code)
        self.assertEqual(len(cell.of("display_data")), 80)
        self.assertIn("10 displays", cell.text("stderr"))

    def test_the_last_of_a_flood_of_updates_is_shown(self):
        code = (
            "use cloze::display::{self, Content};\n"
            "for i in 0..100_000 { display::live(\"n\", Content::text(format!(\"{i}\"))); }"
        )
        cell = Cell(self.client, code)
        self.assertEqual(len(cell.of("display_data")), 1)
        updates = [int(c["data"]["text/plain"]) for c in cell.of("update_display_data")]
        print(f"\n100,000 updates: {cell.seconds:.1f} s, {len(updates)} sent")
        self.assertEqual(updates[-1], 99_999)
        self.assertEqual(updates, sorted(updates))

    def test_an_endless_flood_can_be_stopped(self):
        asked = self.client.execute('loop { println!("again"); }')
        while self.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
            pass
        time.sleep(3)
        self.manager.interrupt_kernel()
        while True:
            reply = self.client.get_shell_msg(timeout=60)
            if reply["parent_header"]["msg_id"] == asked:
                break
        self.assertEqual(reply["content"]["ename"], "interrupted")
        self.assertEqual(self.value("20 + 2"), "22")


class AttackTest(Running):
    """Messages that must neither be executed nor end the kernel."""

    def setUp(self):
        self.session = self.client.session
        self.socket = self.client.shell_channel.socket
        self.assertEqual(Cell(self.client, "let mut counter = 0;").status, "ok")

    def tearDown(self):
        self.assertEqual(self.value("counter"), "0")

    def signed(self, parts):
        """Returns frames with a valid signature."""
        return [b"<IDS|MSG>", self.session.sign(parts[:4]), *parts]

    def parts(self, kind="execute_request", content=None):
        content = {"code": "counter += 1;"} if content is None else content
        message = self.session.msg(kind, content)
        keys = ("header", "parent_header", "metadata", "content")
        return [self.session.pack(message[key]) for key in keys]

    def drops(self, frames):
        """Checks that the kernel does not answer these frames and continues."""
        self.socket.send_multipart(frames)
        asked = self.client.kernel_info()
        reply = self.client.get_shell_msg(timeout=10)
        self.assertEqual(reply["parent_header"]["msg_id"], asked)

    def test_frames_that_are_no_message(self):
        header, parent, metadata, content = self.parts()
        for frames in [
            [b""],
            [b"hello"],
            [b"<IDS|MSG>"],
            [b"<IDS|MSG>", b""],
            [b"<IDS|MSG>", b"", b"{}"],
            self.signed([header, parent, metadata]),
            self.signed([header]),
            [b"\xff" * 100_000] * 20,
            self.signed([header, parent, metadata, content])[1:],
        ]:
            with self.subTest(frames=[frame[:20] for frame in frames]):
                self.drops(frames)

    def test_signed_nonsense(self):
        header, parent, metadata, content = self.parts()
        deep = b"[" * 100_000
        for parts in [
            [b"{", parent, metadata, content],
            [b"[]", parent, metadata, content],
            [b"{}", parent, metadata, content],
            [header, parent, metadata, b"not json"],
            [header, parent, metadata, b"[1]"],
            [header, parent, metadata, b"{}"],
            [header, parent, metadata, deep],
            [deep, deep, deep, deep],
            [header, parent, b"\xff\xfe", content],
        ]:
            with self.subTest(parts=[part[:20] for part in parts]):
                self.drops(self.signed(parts))

    def test_fields_of_a_wrong_type(self):
        for kind, content in [
            ("execute_request", {"code": 1}),
            ("execute_request", {"code": ["counter += 1;"]}),
            ("execute_request", {"code": "counter += 1;", "silent": "yes"}),
            ("execute_request", {"code": "counter += 1;", "user_expressions": [1]}),
            ("complete_request", {"code": "a", "cursor_pos": -1}),
            ("complete_request", {"code": "a", "cursor_pos": "end"}),
            ("inspect_request", {"code": None}),
            ("history_request", {"hist_access_type": "all of it"}),
            ("shutdown_request", {"restart": "perhaps"}),
        ]:
            with self.subTest(kind=kind, content=content):
                self.drops(self.signed(self.parts(kind, content)))

    def test_positions_beyond_the_code(self):
        for kind in ("complete", "inspect"):
            content = {"code": "ü", "cursor_pos": 10**6, "detail_level": 0}
            self.socket.send_multipart(self.signed(self.parts(f"{kind}_request", content)))
            reply = self.client.get_shell_msg(timeout=30)
            self.assertEqual(reply["msg_type"], f"{kind}_reply")

    def test_unknown_message_types_are_ignored(self):
        for kind in ("debug_request", "hello", "execute_reply"):
            with self.subTest(kind=kind):
                self.drops(self.signed(self.parts(kind, {})))

    def test_unsigned_and_wrongly_signed_messages(self):
        parts = self.parts()
        for signature in (b"", b"0" * 64, b"zz", self.session.sign([b"{}"] * 4)):
            with self.subTest(signature=signature):
                self.drops([b"<IDS|MSG>", signature, *parts])

    def test_a_changed_message(self):
        frames = self.signed(self.parts(content={"code": "counter += 0;"}))
        frames[5] = frames[5].replace(b"+= 0", b"+= 1")
        self.drops(frames)

    def test_a_replayed_message_is_not_executed(self):
        frames = self.signed(self.parts(content={"code": "counter += 1;"}))
        self.socket.send_multipart(frames)
        reply = self.client.get_shell_msg(timeout=30)
        self.assertEqual(reply["content"]["status"], "ok")
        for _ in range(3):
            self.drops(frames)
        # Nor on the other socket.
        self.client.control_channel.socket.send_multipart(frames)
        self.assertEqual(self.value("counter"), "1")
        self.assertEqual(Cell(self.client, "counter = 0;").status, "ok")

    def test_bytes_that_are_not_zeromq(self):
        info = self.client.get_connection_info()
        for name in ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"):
            for data in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 10_000, os.urandom(10_000)):
                with socket.create_connection((info["ip"], info[name])) as peer:
                    try:
                        peer.sendall(data)
                    except OSError:
                        pass
        self.assertTrue(self.client.is_alive())
        self.assertEqual(self.value("6 * 7"), "42")

    def test_comms_are_closed_and_their_messages_ignored(self):
        content = {"comm_id": "1", "target_name": "nobody", "data": {}}
        self.session.send(self.socket, "comm_open", content)
        while True:
            message = self.client.get_iopub_msg(timeout=10)
            if message["msg_type"] == "comm_close":
                break
        self.assertEqual(message["content"]["comm_id"], "1")
        for kind in ("comm_msg", "comm_close"):
            self.drops(self.signed(self.parts(kind, {"comm_id": "1", "data": {}})))
        self.client.comm_info()
        reply = self.client.get_shell_msg(timeout=10)
        self.assertEqual(reply["content"], {"status": "ok", "comms": {}})


class DeclaredTest(Running):
    """The kernel keeps what it declares."""

    def test_the_protocol_s_version_is_in_every_message_and_its_rules_are_kept(self):
        self.client.kernel_info()
        reply = self.client.get_shell_msg(timeout=10)
        content = reply["content"]
        self.assertEqual(content["protocol_version"], "5.5")
        self.assertEqual(content["supported_features"], ["kernel subshells"])
        # Version 5.5 requires an answer on the control socket too.
        control = self.client.control_channel
        request = self.client.session.msg("kernel_info_request", {})
        control.send(request)
        answer = self.client.get_control_msg(timeout=10)
        self.assertEqual(answer["content"], content)
        cell = Cell(self.client, 'println!("a"); 1')
        messages = [reply, answer, cell.reply, *cell.messages]
        self.assertEqual({m["header"]["version"] for m in messages}, {"5.5"})


class ManyTest(unittest.TestCase):
    ALONE = True

    def test_two_kernels_are_independent(self):
        kernels = [start_new_kernel(kernel_name="cloze", startup_timeout=60) for _ in range(2)]
        answers = {}

        def use(number, client):
            cells = [Cell(client, f"let mine = {number};")]
            cells += [Cell(client, "mine * 10") for _ in range(5)]
            answers[number] = [
                (cell.status, [c["data"]["text/plain"] for c in cell.of("execute_result")])
                for cell in cells[1:]
            ]

        threads = [
            threading.Thread(target=use, args=(number, client))
            for number, (_, client) in enumerate(kernels, 1)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=180)
            for number in (1, 2):
                self.assertEqual(answers[number], [("ok", [str(number * 10)])] * 5)
            # The end of one does not end the other.
            manager, client = kernels.pop()
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            self.assertEqual(Cell(kernels[0][1], "mine").status, "ok")
        finally:
            for manager, client in kernels:
                client.stop_channels()
                manager.shutdown_kernel(now=True)

    def test_many_cells_neither_slow_down_nor_fill_the_memory(self):
        costs = endurance.measure(40)
        print(f"\n{costs}")
        self.assertLess(costs["ratio"], 1.5)
        self.assertLess(costs["kernel_mib_a_cell"], 1.0)
        self.assertLess(costs["child_mib_a_cell"], 0.5)


# A front end to be killed: it prints which kernel it has started, and that a cell runs.
FRONT_END = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
client.execute('println!("go"); loop { std::thread::sleep(std::time::Duration::from_secs(1)); }')
while client.get_iopub_msg(timeout=120)["msg_type"] != "stream":
    pass
print(manager.provisioner.pid, flush=True)
client.get_shell_msg(timeout=600)
"""


class SurroundingsTest(unittest.TestCase):
    def test_a_front_end_killed_in_a_cell_leaves_no_process(self):
        front_end = subprocess.Popen(
            [sys.executable, "-c", FRONT_END], stdout=subprocess.PIPE, text=True
        )
        with front_end:
            kernel = int(front_end.stdout.readline())
            processes = [kernel, *children(kernel)]
            self.assertGreaterEqual(len(processes), 2)
            front_end.send_signal(signal.SIGKILL)
        self.assertTrue(gone(processes, 15))

    def test_a_connection_file_that_others_can_read_is_reported(self):
        for mode, warned in ((0o644, True), (0o600, False)):
            with tempfile.TemporaryDirectory() as folder:
                path, _ = write_connection_file(os.path.join(folder, "kernel.json"), key=b"secret")
                os.chmod(path, mode)
                log = pathlib.Path(folder) / "log"
                with open(log, "w", encoding="utf-8") as file, self.kernel(path, file):
                    # It still answers.
                    self.answers(path)
                log = log.read_text(encoding="utf-8")
                warnings = [line for line in log.splitlines() if "warning" in line]
                self.assertEqual(len(warnings), int(warned), log)
                if warned:
                    self.assertIn("kernel.json", warnings[0])
                    self.assertIn("644", warnings[0])

    def test_a_closed_log_does_not_end_the_kernel(self):
        with tempfile.TemporaryDirectory() as folder:
            path, _ = write_connection_file(os.path.join(folder, "kernel.json"), key=b"secret")
            # It warns about this at once, and later about a message with a wrong signature.
            os.chmod(path, 0o644)
            reader, writer = os.pipe()
            os.close(reader)
            with self.kernel(path, writer):
                os.close(writer)
                with self.assertRaises(AssertionError):
                    self.answers(path, b"another key", seconds=1)
                self.answers(path)

    def test_a_connection_file_without_a_key_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path, _ = write_connection_file(os.path.join(folder, "kernel.json"), key=b"")
            with self.kernel(path, subprocess.PIPE) as kernel:
                _, log = kernel.communicate(timeout=30)
            self.assertEqual(kernel.returncode, 1)
            (line,) = log.decode().splitlines()
            self.assertIn("kernel.json", line)
            self.assertIn("expected a key", line)

    @contextlib.contextmanager
    def kernel(self, connection_file, log):
        """Starts a kernel with this connection file as Jupyter does."""
        spec = get_kernel_spec("cloze")
        command = [word.replace("{connection_file}", connection_file) for word in spec.argv]
        environment = {
            **os.environ,
            **{k: v.replace("${PATH}", os.environ["PATH"]) for k, v in spec.env.items()},
        }
        kernel = subprocess.Popen(command, env=environment, stderr=log)
        try:
            yield kernel
        finally:
            kernel.terminate()
            kernel.wait(timeout=30)

    def answers(self, connection_file, key=None, seconds=30):
        info = json.loads(pathlib.Path(connection_file).read_text(encoding="utf-8"))
        session = Session(key=key or info["key"].encode())
        with zmq.Context() as context, context.socket(zmq.DEALER) as shell:
            shell.linger = 0
            shell.connect(f"tcp://{info['ip']}:{info['shell_port']}")
            session.send(shell, "kernel_info_request", {})
            self.assertTrue(shell.poll(1000 * seconds), "no answer")
            _, reply = session.recv(shell, mode=0)
            self.assertEqual(reply["msg_type"], "kernel_info_reply")


if __name__ == "__main__":
    unittest.main(verbosity=2)
