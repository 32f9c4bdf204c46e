"""The kernel with nbconvert, papermill, jupytext, the console, and in the order of VS Code's messages.

Needs the packages of requirements.txt and the kernelspec `cloze`; see test_kernel.py for the way
to run these. nbclient executes the lessons, see run_notebooks.py; test_browser.py drives JupyterLab and
Notebook 7. papermill runs a notebook too, but cannot hand parameters to one in Rust: it writes them as code and knows
no such language.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import nbformat
import pexpect
import pyte
from jupyter_client import KernelManager

COLUMNS, ROWS = 100, 40
PATIENCE = 120


def needs(package):
    """Skips a test if its client is not installed, except in CI."""
    missing = importlib.util.find_spec(package) is None and os.environ.get("CI_BROWSER") != "1"
    return unittest.skipIf(missing, f"{package} is not installed")


class ProgramTest(unittest.TestCase):
    """Notebooks executed by commands."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, *cells):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        notebook.metadata["kernelspec"] = {
            "name": "cloze", "display_name": "Rust (Cloze)", "language": "rust",
        }
        nbformat.write(notebook, self.folder / "in.ipynb")

    def call(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE,
        )

    @needs("nbconvert")
    def test_nbconvert_writes_a_page_with_the_outputs(self):
        self.write(
            "use cloze::prelude::*;\nprintln!(\"printed {}\", 6 * 7);",
            "LineChart::new(\"Loss\").line(\"run\", &[(0.0, 2.0), (1.0, 1.0)])",
        )
        done = self.call("nbconvert", "--to", "html", "--execute", "in.ipynb")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = (self.folder / "in.html").read_text(encoding="utf-8")
        self.assertIn("printed 42", page)
        self.assertRegex(page, r"(?s)<svg.*Loss.*</svg>")

    @needs("papermill")
    def test_papermill_ends_at_a_cell_that_fails_and_says_why(self):
        self.write("let kept = 6;", "kept * 7", "let wrong: i32 = \"no\";", "println!(\"after\");")
        done = self.call("papermill", "--no-progress-bar", "in.ipynb", "out.ipynb")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("`i32` is expected here, and this is `&str`", done.stderr)
        notebook = nbformat.read(self.folder / "out.ipynb", as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        self.assertEqual(cells[1].outputs[0]["data"]["text/plain"], "42")
        self.assertEqual(cells[2].outputs[0]["ename"], "error[E0308]")
        self.assertEqual(cells[3].outputs, [])

    @needs("jupytext")
    def test_jupytext_runs_a_file_of_cells_and_writes_it_back(self):
        cells = (
            "// %% [markdown]\n// # A title\n//\n// Some *text*.\n\n"
            "// %%\nlet a = 6;\n\n"
            "// %%\n/// Twice as much.\nfn twice(x: i32) -> i32 {\n    // A comment.\n    2 * x\n}\n\n"
            "// %%\ntwice(a * 7)\n"
        )
        (self.folder / "in.rs").write_text(cells, encoding="utf-8")
        done = self.call("jupytext", "--to", "ipynb", "--set-kernel", "cloze", "--execute", "in.rs")
        self.assertEqual(done.returncode, 0, done.stderr)
        notebook = nbformat.read(self.folder / "in.ipynb", as_version=4)
        self.assertEqual(notebook.cells[0].source, "# A title\n\nSome *text*.")
        self.assertEqual(notebook.cells[-1].outputs[0]["data"]["text/plain"], "84")
        done = self.call("jupytext", "--to", "rs:percent", "--output", "out.rs", "in.ipynb")
        self.assertEqual(done.returncode, 0, done.stderr)
        written = (self.folder / "out.rs").read_text(encoding="utf-8")
        # Before the cells stands the notebook's metadata.
        self.assertEqual(written.partition("// ---\n\n")[2], cells)


class ConsoleTest(unittest.TestCase):
    """`jupyter console` at a terminal."""

    @needs("jupyter_console")
    def test_cells_of_one_and_more_lines_run_in_the_console(self):
        screen = pyte.Screen(COLUMNS, ROWS)
        stream = pyte.ByteStream(screen)
        console = pexpect.spawn(
            sys.executable,
            ["-m", "jupyter_console", "--kernel", "cloze"],
            dimensions=(ROWS, COLUMNS),
            # The console would ask for the position of the cursor.
            env={**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        self.addCleanup(console.close, force=True)

        def shows(pattern):
            deadline = time.time() + PATIENCE
            while True:
                text = "\n".join(line.rstrip() for line in screen.display)
                if re.search(pattern, text, re.MULTILINE):
                    return
                self.assertLess(time.time(), deadline, f"{pattern} is not on the screen:\n{text}")
                try:
                    stream.feed(console.read_nonblocking(65536, timeout=0.1))
                except pexpect.TIMEOUT:
                    pass

        shows(r"^In \[1\]:")
        console.send("6 * 7\r")
        shows(r"^Out\[1\]: 42$")
        shows(r"^In \[2\]:")
        # A line that ends within a brace is incomplete, and the console asks for more.
        console.send("for n in 0..2 {\r")
        shows(r"^ +\.\.\.:")
        console.send("println!(\"line {n}\");\r")
        console.send("}\r")
        shows(r"^line 0\nline 1$")
        shows(r"^In \[3\]:")
        console.send("\x04")
        shows(r"Do you really want to exit")
        console.send("y\r")
        console.expect(pexpect.EOF, timeout=PATIENCE)
        console.wait()
        self.assertEqual(console.exitstatus, 0)


class VisualStudioCodeTest(unittest.TestCase):
    """The messages of VS Code's extension (microsoft/vscode-jupyter, its sources in src/kernels)."""

    def setUp(self):
        self.start()
        self.addCleanup(self.stop)

    def start(self):
        # raw/session/rawKernelConnection.node.ts: a new process, also after a restart.
        self.manager = KernelManager(kernel_name="cloze")
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        # It asks on both sockets, and again until one has answered and something was published.
        self.asked = [self.send("control", "kernel_info_request") for _ in range(2)]
        self.asked += [self.send("shell", "kernel_info_request") for _ in range(2)]
        info = self.reply("control", self.asked[0])
        self.assertEqual(info["language_info"]["name"], "rust")
        self.reply("shell", self.asked[-1])
        self.assertTrue(self.client.get_iopub_msg(timeout=PATIENCE))

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def channel(self, name):
        return getattr(self.client, f"{name}_channel")

    def send(self, channel, kind, **content):
        message = self.client.session.msg(kind, content)
        self.channel(channel).send(message)
        return message["header"]["msg_id"]

    def reply(self, channel, asked):
        deadline = time.time() + PATIENCE
        while True:
            reply = self.channel(channel).get_msg(timeout=deadline - time.time())
            if reply["parent_header"]["msg_id"] == asked:
                return reply["content"]

    def published(self, asked):
        """Returns what was published for a request until it was done."""
        found = []
        deadline = time.time() + PATIENCE
        while True:
            message = self.client.get_iopub_msg(timeout=deadline - time.time())
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["content"].get("execution_state") == "idle":
                return found
            found.append((message["msg_type"], message["content"]))

    def execute(self, code, store_history):
        # helpers.ts for hidden code, execution/cellExecution.ts for cells.
        asked = self.send(
            "shell", "execute_request", code=code, silent=False, store_history=store_history,
            user_expressions={}, allow_stdin=True, stop_on_error=False,
        )
        # A cell has ended when both have come, in either order.
        shown = self.published(asked)
        return self.reply("shell", asked), shown

    def test_its_order_of_messages(self):
        # kernel.ts: the user's startup commands go to every kernel, and are hidden; then it asks again.
        self.assertEqual(self.execute("use cloze::prelude::*;", False)[0]["status"], "ok")
        self.assertEqual(self.execute("%matplotlib inline", False)[0]["status"], "error")
        self.reply("shell", self.send("shell", "kernel_info_request"))
        # The first cell has the number 1.
        reply, shown = self.execute("let letters = vec!['a'];\nletters.len()", True)
        self.assertEqual((reply["status"], reply["execution_count"]), ("ok", 1))
        (value,) = (content for kind, content in shown if kind == "execute_result")
        self.assertEqual(value["data"]["text/plain"], "1")
        # Two cells of "run all": the second one runs, although the first one fails.
        failed, after = (
            self.send(
                "shell", "execute_request", code=code, silent=False, store_history=True,
                user_expressions={}, allow_stdin=True, stop_on_error=False,
            )
            for code in ("panic!(\"stop\")", "40 + 2")
        )
        self.assertEqual(self.reply("shell", failed)["ename"], "panic")
        self.assertEqual(self.reply("shell", after)["status"], "ok")
        # Completion and inspection; the types must be as many as the matches.
        asked = self.send("shell", "complete_request", code="letters.is_e", cursor_pos=12)
        found = self.reply("shell", asked)
        types = found["metadata"]["_jupyter_types_experimental"]
        self.assertIn("is_empty", found["matches"])
        self.assertEqual(len(types), len(found["matches"]))
        asked = self.send("shell", "inspect_request", code="letters", cursor_pos=3, detail_level=0)
        self.assertIn("char", self.reply("shell", asked)["data"]["text/plain"])
        # An interrupt is a message on the control socket, whose reply and end it waits for.
        cell = self.send(
            "shell", "execute_request", code="loop {}", silent=False, store_history=True,
            user_expressions={}, allow_stdin=True, stop_on_error=False,
        )
        time.sleep(2)
        asked = self.send("control", "interrupt_request")
        self.assertEqual(self.reply("control", asked)["status"], "ok")
        self.assertEqual(self.reply("shell", cell)["ename"], "interrupted")
        self.assertEqual(self.execute("letters", True)[0]["status"], "ok")
        # Widgets: it asks which exist.
        asked = self.send("shell", "comm_info_request", target_name="jupyter.widget")
        self.assertEqual(self.reply("shell", asked)["comms"], {})
        # A restart ends the process and starts another one.
        self.stop()
        self.start()
        self.assertEqual(self.execute("letters", True)[0]["ename"], "error[E0425]")
