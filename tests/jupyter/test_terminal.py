"""Twenty tasks of a user in a terminal of 80 columns, most of them in one session.

See test_kernel.py for the way to run these. The tests are in the order of their numbers: later ones use variables
of earlier ones.
"""

import os
import subprocess
import tempfile
import time
import unittest

from test_repl import PATIENCE, Terminal, program

COLUMNS = 80

BLOCK = """\
fn long(n: u32) -> u32 {
    let mut total = 0;
    for i in 0..n {
        if i % 2 == 0 {
            total += i;
        } else {
            total += 1;
        }
        // one
        // two
        // three
        // four
        // five
        // six
        // seven
        // eight
        // nine
        // ten
        total += 1;
        total += 1;
        total += 1;
        total += 1;
    }
    total
}
let first = long(3);
let second = long(4);
let both = vec![first, second];
both
"""


def script(code, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(code)
    return subprocess.Popen(
        [program(), "repl", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Tasks(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        editor = os.path.join(cls.folder.name, "editor")
        with open(editor, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nsed -i 's/40/41/' \"$1\"\n")
        os.chmod(editor, 0o755)
        history = os.path.join(cls.folder.name, "history.txt")
        cls.terminal = Terminal(history, columns=COLUMNS, VISUAL=editor)
        cls.terminal.cell("use cloze::prelude::*;")

    @classmethod
    def tearDownClass(cls):
        cls.terminal.close()
        cls.folder.cleanup()

    def cell(self, code):
        return self.terminal.cell(code)

    def text(self, code):
        """Runs a cell and returns its output without line ends, which the width decides."""
        return " ".join(line.strip() for line in self.cell(code))

    def test_01_define(self):
        self.cell("let dev: Cpu = Cpu::default();")
        self.cell("let a: Tensor<Rank2<2, 3>, f32, Cpu> = dev.ones();")
        self.cell("let b: Tensor<Rank2<2, 3>, f32, Cpu> = dev.ones();")
        self.assertEqual(self.cell("a.array()"), ["[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]"])

    def test_02_shape_error(self):
        shown = self.text("a.clone().matmul(b.clone())")
        self.assertIn("the left is 2×3 and the right is 2×3", shown)

    def test_03_interrupt(self):
        self.terminal.keys('\x0cprintln!("go"); loop {}\r')
        self.terminal.until(lambda: "go" in self.terminal.lines()[1:])
        self.terminal.keys("\x03")
        self.terminal.prompted(timeout=10)
        self.terminal.shows("interrupted: the cell was stopped; variables of earlier cells are kept")

    def test_04_complete(self):
        self.terminal.begun("a.sq")
        self.terminal.keys("\t")
        self.terminal.shows("() -> (2, 3) f32 cpu")
        self.terminal.keys("\x03")
        self.terminal.prompted()

    def test_05_history_search(self):
        self.terminal.keys("\x0c\x12let dev")
        self.terminal.shows("let dev: Cpu = Cpu::default();")
        self.terminal.keys("\r")
        self.terminal.prompted()

    def test_06_edit(self):
        self.terminal.begun("40 + 1")
        self.terminal.keys("\x18\x05")
        self.terminal.prompted()
        self.terminal.shows(">> 41 + 1")
        self.terminal.keys("\r")
        self.terminal.prompted()
        self.assertIn("42", self.terminal.lines())

    def test_07_lesson(self):
        self.assertIn("Lesson 01: Gradients", self.text(":lesson 01"))
        shown = []
        for _ in range(12):
            shown += self.cell(":next")
            if any("Exercise 01.1: write" in line for line in shown):
                break
        text = "\n".join(shown)
        self.assertIn("∂L/∂w = ∂L/∂e · ∂e/∂p · ∂p/∂w", text)
        for mark in ("\\", "**", "$"):
            self.assertNotIn(mark, text)
        self.assertLessEqual(max(map(len, shown)), COLUMNS)

    def test_08_wrong_answer(self):
        answer = "fn neuron_gradient(w: f64, b: f64, x: f64, y: f64) -> (f64, f64, f64) { (w, b, x + y) }"
        self.cell(answer)
        shown = self.cell(":next")
        self.assertIn("01.1", shown[0])
        self.assertIn("not right yet", shown[0])
        self.assertIn("(the check's code: `:check 01.1 code`)", shown)
        self.assertFalse(any("assert" in line for line in shown), shown)

    def test_09_hint(self):
        self.assertIn("Go forward first", self.text(":hint"))

    def test_10_chart(self):
        shown = self.cell('LineChart::new("Rise").axes("x", "y").line("up", &[(0.0, 1.0), (9.0, 5.0)])')
        self.assertTrue(any("┤" in line for line in shown), shown)
        self.assertLessEqual(max(map(len, shown)), COLUMNS)

    def test_11_script(self):
        code = 'fn main() -> Result<(), String> {\n    println!("ran");\n    Err("bad".into())\n}\n'
        process = script(code, self.folder.name, "main.rs")
        out, error = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, out), (1, "ran\n"))
        self.assertEqual(error.count("bad"), 1, error)

    def test_12_file_with_an_error(self):
        process = script("let fine = 1;\nlet wrong: u8 = true;\n", self.folder.name, "wrong.rs")
        _, error = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1)
        self.assertIn("E0308", error)
        self.assertIn("wrong.rs:2", error)

    def arrives_whole(self):
        self.terminal.until(lambda: self.terminal.lines()[-2:] == ["[15, 20]", ">>"])
        self.terminal.prompts = self.terminal.written.count(b"\x1b[?2004h")
        written = "\n".join(self.terminal.lines())
        definition = BLOCK[: BLOCK.index("let first")].rstrip()
        self.assertIn(">> " + definition, written)

    def test_13_paste_without_brackets(self):
        self.terminal.keys("\x0c" + BLOCK.replace("\n", "\r"))
        self.arrives_whole()

    def test_14_typed_ahead(self):
        self.terminal.keys("\x0cstd::thread::sleep(std::time::Duration::from_secs(2));\r")
        time.sleep(1)
        self.terminal.keys(BLOCK)
        self.arrives_whole()

    def test_15_resize(self):
        self.terminal.process.setwinsize(50, 60)
        self.terminal.screen.resize(50, 60)
        self.terminal.keys("\x03")
        self.terminal.prompted()
        shown = self.cell("vec![1; 40]")
        self.assertEqual("".join(shown).replace(" ", ""), "[" + ",".join("1" * 40) + "]")
        self.assertLessEqual(max(map(len, shown)), 60)
        self.terminal.process.setwinsize(50, COLUMNS)
        self.terminal.screen.resize(50, COLUMNS)
        self.terminal.keys("\x03")
        self.terminal.prompted()

    def test_16_doc(self):
        self.cell("struct Pair(u8); impl Pair { pub fn first(&self) -> u8 { self.0 } }")
        shown = self.cell(":doc Pair")
        self.assertIn("Functions and methods of Pair", shown)
        self.assertIn("  first(&self) -> u8", shown)

    def test_17_long_value(self):
        shown = self.text("(0..10_000).collect::<Vec<u32>>()")
        self.assertIn("[0, 1, 2,", shown)
        self.assertIn("9999]", shown)
        self.assertIn("of 10,000 elements are left out; `println!", shown)

    def test_18_move(self):
        for code in ("let q = vec![1];", "let r = q;", "let w = 1;"):
            self.cell(code)
        shown = self.text("q")
        self.assertIn("`q` is no longer there: the cell `let r = q;` moved its value away", shown)

    def test_19_words(self):
        for word, advice in (
            ("exit", "`:quit`"),
            ("help", "`:help`"),
            ("?Vec", "`:doc Vec`"),
            ("Vec?", "`:doc Vec`"),
            (":lessons", "do you mean `:lesson`?"),
        ):
            self.assertIn(advice, self.text(word))

    def test_20_time_repeats(self):
        shown = self.text(":time 10 (0..1000u64).sum::<u64>()")
        self.assertRegex(shown, r"10 runs: median \S+, minimum \S+, maximum \S+")

    def test_21_syntax_error_is_coloured_while_typing(self):
        self.terminal.begun("let x 5 = 3;")
        self.terminal.until(lambda: self.terminal.colour("5 =") == "red")
        self.terminal.keys("\x03")
        self.terminal.prompted()


if __name__ == "__main__":
    unittest.main()
