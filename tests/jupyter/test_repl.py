"""Black-box tests of the REPL, in a terminal of 100 columns and as a script.

The program is the one that the installed kernelspec `cloze` names; see test_kernel.py for the way
to run these.
"""

import os
import signal
import subprocess
import tempfile
import time
import unittest

import pexpect
import pyte
from jupyter_client.kernelspec import KernelSpecManager

COLUMNS, ROWS = 100, 50
PATIENCE = 120
# The line editor turns bracketed paste on when it begins to read a line.
READING = b"\x1b[?2004h"


def program():
    return KernelSpecManager().get_kernel_spec("cloze").argv[0]


class Terminal:
    """A REPL and its screen."""

    def __init__(self, history, columns=COLUMNS, **environment):
        self.screen = pyte.Screen(columns, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TMUX")}
        self.process = pexpect.spawn(
            program(),
            ["repl"],
            dimensions=(ROWS, columns),
            env={**inherited, "TERM": "xterm-256color", "CLOZE_HISTORY": history, **environment},
        )
        self.written = b""
        self.prompts = 0
        self.prompted()

    def read(self, seconds=0.05):
        try:
            written = self.process.read_nonblocking(65536, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.stream.feed(written)
        self.written += written

    def prompted(self, timeout=PATIENCE):
        """Waits for the next prompt: earlier input would not reach the line editor."""
        self.until(lambda: self.written.count(READING) > self.prompts, timeout)
        self.prompts = self.written.count(READING)

    def lines(self):
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def last(self):
        """Returns the last line, or an empty text: while the screen is drawn anew, it can be empty."""
        return (self.lines() or [""])[-1]

    def text(self):
        return "\n".join(self.lines())

    def until(self, condition, timeout=PATIENCE):
        deadline = time.time() + timeout
        while not condition():
            if time.time() > deadline:
                raise AssertionError("the screen stayed:\n" + self.text())
            self.read()

    def shows(self, text, timeout=PATIENCE):
        self.until(lambda: text in self.text(), timeout)

    def keys(self, keys):
        self.process.send(keys)

    def begun(self, text):
        """Types a text and waits until the screen shows it."""
        self.keys(text)
        self.until(lambda: self.last().endswith(text.rstrip()))

    def cell(self, code):
        """Runs a cell on a clear screen and returns the lines that it shows."""
        self.keys("\x0c")
        self.until(lambda: self.lines() == [">>"])
        # What was drawn so far belongs to the cell before. A prompt alone on the screen does, too.
        self.prompts = self.written.count(READING)
        self.keys(code + "\r")
        self.prompted()
        self.until(lambda: self.last() == ">>" and self.lines() != [">>"])
        return self.lines()[1:-1]

    def colour(self, text):
        """Returns the colour of the first character of `text` on the last line that has it."""
        for row in reversed(range(ROWS)):
            column = self.screen.display[row].find(text)
            if column >= 0:
                return self.screen.buffer[row][column].fg
        raise AssertionError(f"{text} is not on the screen:\n{self.text()}")

    def close(self):
        self.process.close(force=True)


class InATerminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.history = os.path.join(cls.folder.name, "history.txt")
        editor = os.path.join(cls.folder.name, "editor")
        with open(editor, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\nsed -i 's/40/41/' \"$1\"\n")
        os.chmod(editor, 0o755)
        cls.terminal = Terminal(cls.history, VISUAL=editor)
        cls.terminal.cell("use cloze::prelude::*;")

    @classmethod
    def tearDownClass(cls):
        cls.terminal.close()
        cls.folder.cleanup()

    def tearDown(self):
        self.terminal.keys("\x03")
        self.terminal.prompted()

    def test_code_is_coloured_as_it_is_typed(self):
        self.terminal.begun('let answer: Vec<u8> = vec![42]; // "why"')
        colours = [self.terminal.colour(text) for text in ("let", "Vec", "vec!", "42", "// ")]
        self.assertEqual(len(set(colours)), 5, colours)
        self.assertEqual(self.terminal.colour("answer"), "default")

    def test_a_cell_continues_while_a_bracket_is_open_and_is_recalled_as_a_whole(self):
        self.terminal.keys("\x0cfn twice(x: i32) -> i32 {\rif true {\r2 * x\r} else {\r0\r}\r}")
        written = [
            ">> fn twice(x: i32) -> i32 {",
            "    if true {",
            "        2 * x",
            "    } else {",
            "        0",
            "    }",
            "}",
        ]
        self.terminal.until(lambda: self.terminal.lines() == written)
        self.terminal.keys("\r")
        self.terminal.prompted()
        self.assertEqual(self.terminal.cell("twice(21)"), ["42"])
        self.terminal.keys("\x0c\x1b[A\x1b[A")
        self.terminal.until(lambda: self.terminal.lines() == written)

    def test_an_earlier_cell_is_suggested_and_accepted_with_the_right_arrow(self):
        self.terminal.cell("let hinted = 1234;")
        self.terminal.keys("let hin")
        self.terminal.shows(">> let hinted = 1234;")
        self.terminal.keys("\x1b[C\r")
        self.terminal.prompted()
        self.assertEqual(self.terminal.cell("hinted"), ["1234"])

    def test_completions_have_types(self):
        self.terminal.cell("let tensor: Tensor<Rank2<2, 3>, f32, Cpu> = Cpu::default().ones();")
        self.terminal.begun("tensor.sq")
        self.terminal.keys("\t")
        self.terminal.shows("() -> (2, 3) f32 cpu")
        self.terminal.keys("u\t")
        self.terminal.until(lambda: self.terminal.last() == ">> tensor.square")

    def test_alt_h_shows_the_signature_and_keeps_the_line(self):
        self.terminal.cell("let wide: Tensor<Rank2<2, 9>, f32, Cpu> = Cpu::default().ones();")
        self.terminal.begun("wide.maximum()")
        self.terminal.keys("\x1b[D\x1bh")
        self.terminal.shows("fn maximum<R>(self: (2, 9) f32 cpu, rhs: (2, 9) f32 cpu")
        self.terminal.until(lambda: self.terminal.last() == ">> wide.maximum()")
        self.terminal.keys("wide.clone()")
        self.terminal.until(lambda: self.terminal.last() == ">> wide.maximum(wide.clone())")
        self.terminal.keys("\x03")
        self.terminal.prompted()

    def test_control_c_ends_the_cell_and_keeps_the_variables(self):
        self.terminal.cell("let kept = 77;")
        self.terminal.keys('\x0cprintln!("go"); loop {}\r')
        self.terminal.until(lambda: "go" in self.terminal.lines()[1:])
        self.terminal.keys("\x03")
        self.terminal.prompted(timeout=10)
        self.terminal.shows("interrupted")
        self.assertEqual(self.terminal.cell("kept"), ["77"])

    def test_control_c_drops_the_line_and_a_second_one_explains_how_to_leave(self):
        self.terminal.begun("let dropped")
        for _ in range(3):
            self.terminal.keys("\x03")
            self.terminal.prompted()
        self.terminal.shows("`:quit` exits")

    def test_control_d_at_a_question_of_a_lesson_leaves_the_others_open(self):
        self.terminal.keys("\x0c")
        self.terminal.begun(":review 04")
        self.terminal.keys("\r")
        self.terminal.prompted()
        self.terminal.shows("Your answer (1 to ")
        self.terminal.keys("\x04")
        self.terminal.prompted()
        self.terminal.shows("You left all 5 open.")
        self.assertNotIn("The answer", self.terminal.text())

    def test_charts_are_drawn_and_displays_move_in_place(self):
        points = "&[(0.0, 1.0), (10.0, 5.0)]"
        chart = self.terminal.cell(f'LineChart::new("Rise").axes("x", "y").line("up", {points})')
        self.assertEqual(chart[0], "Rise · y")
        self.assertTrue(any("┤" in line for line in chart), chart)
        moved = self.terminal.cell(
            "for step in 0..9 { cloze::display::live("
            '"counter", cloze::display::Content::text(format!("step {step}\\nof 9"))); }'
        )
        self.assertEqual(moved[-2:], ["step 8", "of 9"])
        self.assertFalse(any("step 0" in line for line in moved), moved)

    def test_an_error_points_at_the_cell(self):
        shown = self.terminal.cell('let wrong: i32 = "text";')
        self.assertIn("E0308", "".join(shown))
        self.assertTrue(any("^" in line for line in shown), shown)


class Leaving(unittest.TestCase):
    def enter(self, terminal, history, code, part):
        """Enters a cell and waits until it is in the history, but not for its result."""
        terminal.keys(code + "\r")

        def remembered():
            if not os.path.exists(history):
                return False
            with open(history, encoding="utf-8") as file:
                return part in file.read()

        terminal.until(remembered)

    def test_history_survives_a_kill_and_two_sessions_share_it(self):
        with tempfile.TemporaryDirectory() as folder:
            history = os.path.join(folder, "history.txt")
            one, other = Terminal(history), Terminal(history)
            self.enter(one, history, "fn kept() {\r1\r}", "kept")
            self.enter(other, history, "let other = 2;", "other")
            for terminal in (one, other):
                terminal.process.kill(signal.SIGKILL)
                terminal.close()
            again = Terminal(history)
            again.keys("\x1b[A")
            again.until(lambda: again.last() == ">> let other = 2;")
            again.keys("\x0c\x1b[A")
            again.until(lambda: again.lines() == [">> fn kept() {", "    1", "}"])
            again.keys("\x03")
            again.prompted()
            again.keys(":quit\r")
            again.process.expect(pexpect.EOF, timeout=PATIENCE)
            again.process.close()
            self.assertEqual(again.process.exitstatus, 0)


class Scripts(unittest.TestCase):
    def start(self, *arguments, **options):
        return subprocess.Popen(
            [program(), "repl", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def test_code_from_the_command_line_a_file_and_standard_input(self):
        live = (
            "for i in 0..5 {\n"
            '    cloze::display::live("n", cloze::display::Content::text(format!("at {i}")));\n'
            "}\n"
        )
        with tempfile.NamedTemporaryFile("w", suffix=".rs") as file:
            file.write("#!/usr/bin/env -S cloze-kernel repl\nlet x = Some(20)\n    .map(|x| x + 1);\n")
            file.write("x.unwrap() * 2\n" + live)
            file.flush()
            cells = self.start("-e", "let x = 1;", "-e", "x + 1")
            script = self.start(file.name)
            failing = self.start()
            ended = [
                cells.communicate(timeout=PATIENCE),
                script.communicate(timeout=PATIENCE),
                failing.communicate("1 + 1\nlet x: u8 = true;\n3 + 3\n", timeout=PATIENCE),
            ]
        self.assertEqual((cells.returncode, ended[0]), (0, ("2\n", "")))
        self.assertEqual((script.returncode, ended[1]), (0, ("42\nat 4\n", "")))
        out, error = ended[2]
        self.assertEqual((failing.returncode, out), (1, "2\n"))
        self.assertIn("E0308", error)
        self.assertIn("standard input:2", error)
        self.assertNotIn("\x1b", error)

    def test_wrong_usage(self):
        process = self.start("-e", "1", "file.rs")
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 2)


if __name__ == "__main__":
    unittest.main()
