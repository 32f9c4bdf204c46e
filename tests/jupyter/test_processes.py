"""Processes that cells and shell lines start, partial output, and interrupts.

Run as `test_kernel.py` is.
"""

import os
import pathlib
import stat
import time
import unittest
import unittest.mock

from jupyter_client.manager import start_new_kernel

from driver import Cell, WithKernel, children, gone


class ProcessesTest(WithKernel):
    """One kernel for all tests; each leaves it usable."""

    @classmethod
    def setUpClass(cls):
        # A spare would run the cells in a process that Jupyter did not start. Under the other variable, cells were once
        # taken from evcxr's cache of crates: the first cell of a new process ran an earlier cell.
        with unittest.mock.patch.dict(os.environ, CLOZE_SPARE="off", CARGO_INCREMENTAL="0"):
            super().setUpClass()

    def value(self, cell):
        return cell.of("execute_result")[0]["data"]["text/plain"]

    def kernel(self):
        return self.manager.provisioner.pid

    def begin(self, code, **options):
        """Sends a cell and waits for its first output."""
        message = self.client.execute(code, **options)
        deadline = time.time() + 60
        while time.time() < deadline:
            if self.client.get_iopub_msg(timeout=60)["msg_type"] == "stream":
                return message
        raise AssertionError("the cell printed nothing")

    def end(self, message):
        while True:
            reply = self.client.get_shell_msg(timeout=60)
            if reply["parent_header"]["msg_id"] == message:
                return reply["content"]

    def test_an_unfinished_marker_does_not_block_the_cell(self):
        for stream in ("println", "eprintln", "print", "eprint"):
            with self.subTest(stream):
                code = f'{stream}!("EVCXR_BEGIN_CONTENT text/plain\\nopen");'
                cell = self.run_cell(code, timeout=30)
                text = cell.text("stderr" if stream.startswith("e") else "stdout")
                self.assertEqual(text.rstrip("\n"), "EVCXR_BEGIN_CONTENT text/plain\nopen")
                self.assertEqual(self.value(self.run_cell("40 + 2", timeout=30)), "42")

    def test_a_display_that_a_thread_is_writing_does_not_swallow_the_cell_s_end(self):
        self.run_cell("use cloze::prelude::*;")
        code = """std::thread::spawn(|| for _ in 0..30 { display::html("x".repeat(300_000)); });
std::thread::sleep(std::time::Duration::from_millis(5));"""
        for _ in range(5):
            self.run_cell(code, timeout=60)

    def test_a_child_s_own_pipe_is_its_input(self):
        asked = []
        code = """let mut cat = std::process::Command::new("cat")
    .stdin(std::process::Stdio::piped()).spawn()?;
std::thread::sleep(std::time::Duration::from_millis(1000));
drop(cat.stdin.take());
cat.wait()?.success()"""
        cell = self.run_cell(code, allow_stdin=True, stdin_hook=asked.append)
        self.assertEqual(self.value(cell), "true")
        self.assertEqual(asked, [])

    def test_only_the_user_can_read_the_session_s_folder(self):
        data = os.environ.get("XDG_DATA_HOME", pathlib.Path.home() / ".local/share")
        data = pathlib.Path(os.environ.get("CLOZE_DATA", pathlib.Path(data) / "cloze"))
        session = data / "sessions" / str(self.kernel())
        self.assertEqual(stat.S_IMODE(session.stat().st_mode), 0o700)

    def test_programs_that_a_cell_started_end_with_its_process(self):
        start = 'std::process::Command::new("sleep").arg("1000").spawn()?;\nprintln!("on");\n'
        for ends in ("std::process::abort();", ":clear", None):
            with self.subTest(ends):
                before = set(children(self.kernel()))
                if ends is None:
                    forever = "std::thread::sleep(std::time::Duration::from_secs(600));"
                    message = self.begin(start + forever)
                    started = set(children(self.kernel())) - before
                    self.manager.interrupt_kernel()
                    self.assertEqual(self.end(message)["ename"], "interrupted")
                elif ends == ":clear":
                    self.run_cell(start)
                    started = set(children(self.kernel())) - before
                    self.run_cell(ends)
                else:
                    self.run_cell(start)
                    started = set(children(self.kernel())) - before
                    self.run_cell(ends, "error")
                self.assertTrue(started)
                self.assertTrue(gone(started))
                self.assertEqual(self.value(self.run_cell("40 + 2")), "42")

    def test_after_clear_the_types_of_variables_are_still_inferred(self):
        for _ in range(2):
            self.run_cell("use cloze::prelude::*;\nlet device = Cpu::default();")
            # Only rust-analyzer knows the types of the parts.
            self.run_cell("let [a, b] = [1.0, 2.0].map(|x| (device.ones::<Rank2<2, 3>>() * x).array());")
            self.assertEqual(self.value(self.run_cell("b[1][2] - a[0][0]")), "1.0")
            self.run_cell(":clear")

    def test_a_shell_line_prints_at_once_and_has_the_user_s_environment(self):
        cell = self.run_cell("!echo first; sleep 1; echo [$RUSTUP_TOOLCHAIN$EVCXR_TMPDIR]; echo wrong >&2")
        given = os.environ.get("RUSTUP_TOOLCHAIN", "") + os.environ.get("EVCXR_TMPDIR", "")
        self.assertEqual(cell.text(), f"first\n[{given}]\n")
        self.assertEqual(cell.text("stderr"), "wrong\n")
        seen = [at for at, m in zip(cell.times, cell.messages) if m["msg_type"] == "stream"]
        self.assertGreater(seen[-1] - seen[0], 0.5)
        cell = self.run_cell("!echo beside\n// Rust\n40 + 2")
        self.assertEqual((cell.text(), self.value(cell)), ("beside\n", "42"))
        cell = self.run_cell("!exit 3\n40 + 2", "error")
        self.assertIn("exit code 3", cell.of("error")[0]["evalue"])
        self.assertEqual(cell.of("execute_result"), [])

    def test_a_shell_line_can_be_stopped_and_variables_are_kept(self):
        self.run_cell("let kept = 7;")
        message = self.begin("!echo on; sleep 1000")
        started = time.time()
        self.manager.interrupt_kernel()
        self.assertEqual(self.end(message)["ename"], "interrupted")
        self.assertLess(time.time() - started, 5)
        self.assertEqual(self.value(self.run_cell("kept")), "7")

    def test_a_shell_line_can_ask_for_input(self):
        answer = {"allow_stdin": True, "stdin_hook": lambda _: self.client.input("größe")}
        cell = self.run_cell("!read word; echo got $word", **answer)
        self.assertEqual(cell.text(), "got größe\n")

    def test_a_line_of_rust_that_begins_with_a_sign_is_no_command(self):
        self.run_cell("let (a, b) = (false, false);\nlet both =\n    !a && !b;")
        self.assertEqual(self.value(self.run_cell("both")), "true")
        self.client.is_complete("let both =\n!a && !b;")
        reply = {"msg_type": None}
        while reply["msg_type"] != "is_complete_reply":
            reply = self.client.get_shell_msg(timeout=30)
        self.assertEqual(reply["content"]["status"], "complete")

    def test_an_interrupt_of_an_idle_kernel_stops_no_later_cell(self):
        self.run_cell("1")
        self.manager.interrupt_kernel()
        time.sleep(0.5)
        code = "let mut sum = 0;\nfor i in 0..100 { sum += i; }\nsum"
        self.assertEqual(self.value(self.run_cell(code)), "4950")


class EndTest(unittest.TestCase):
    def test_an_interrupt_before_the_session_is_warm_stops_the_cell_that_waits(self):
        env = {**os.environ, "CLOZE_SPARE": "off"}
        manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60, env=env)
        try:
            message = client.execute('println!("ran");')
            time.sleep(0.3)
            manager.interrupt_kernel()
            reply = {"parent_header": {"msg_id": None}}
            while reply["parent_header"]["msg_id"] != message:
                reply = client.get_shell_msg(timeout=120)
            self.assertEqual(reply["content"]["ename"], "interrupted")
            value = Cell(client, "40 + 2").of("execute_result")[0]["data"]["text/plain"]
            self.assertEqual(value, "42")
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

    def test_shutdown_ends_what_cells_and_the_shell_have_started(self):
        env = {**os.environ, "CLOZE_SPARE": "off"}
        for code in (
            'std::process::Command::new("sleep").arg("1000").spawn()?;',
            "!sleep 1000",
        ):
            manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60, env=env)
            try:
                self.assertEqual(Cell(client, "1").status, "ok")
                client.execute(code)
                time.sleep(3)
                processes = children(manager.provisioner.pid)
                manager.shutdown_kernel()
                self.assertTrue(gone(processes), code)
            finally:
                client.stop_channels()
                manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
