"""Input, commands, history and crashes of a session, with Jupyter's own client."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from jupyter_client.manager import start_new_kernel

from driver import Cell, WithKernel


class SessionTest(WithKernel):
    """One kernel for all tests; each leaves it usable."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.questions = []
        cell = Cell(cls.client, "use cloze::prelude::*;\nlet device = Cpu::default();")
        assert cell.status == "ok", cell.messages

    def answering(self, *answers):
        """Answers a cell's questions in order, and keeps the prompts."""
        waiting = list(answers)
        self.questions = []

        def answer(message):
            self.questions.append(message["content"])
            self.client.input(waiting.pop(0))

        return {"allow_stdin": True, "stdin_hook": answer}

    def value(self, cell):
        return cell.of("execute_result")[0]["data"]["text/plain"]

    def shown(self, cell):
        return "\n".join(c["data"]["text/plain"] for c in cell.of("display_data"))

    def test_a_cell_asks_with_a_prompt(self):
        code = 'let word: String = input::ask("Your word? ")?;\nword.len()'
        cell = self.run_cell(code, **self.answering("größe"))
        self.assertEqual(self.value(cell), "7")
        self.assertEqual(self.questions, [{"prompt": "Your word? ", "password": False}])

    def test_any_read_of_standard_input_asks(self):
        code = """let mut sum: i64 = 0;
for _ in 0..2 {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    sum += line.trim().parse::<i64>()?;
}
sum"""
        cell = self.run_cell(code, **self.answering("40", "2"))
        self.assertEqual(self.value(cell), "42")
        self.assertEqual(len(self.questions), 2)

    def test_without_a_front_end_to_ask_the_input_is_at_its_end(self):
        for turn in range(2):
            cell = self.run_cell('input::ask("? ").is_err()', allow_stdin=False)
            self.assertEqual(self.value(cell), "true", turn)
            code = "std::io::stdin().lines().count()"
            self.assertEqual(self.value(self.run_cell(code, allow_stdin=False)), "0")

    def test_a_question_can_be_stopped(self):
        self.run_cell("let kept = 3;")
        self.client.execute('let word = input::ask("? ")?;', allow_stdin=True)
        self.client.get_stdin_msg(timeout=60)
        self.manager.interrupt_kernel()
        reply = self.client.get_shell_msg(timeout=10)["content"]
        self.assertEqual((reply["status"], reply["ename"]), ("error", "interrupted"))
        self.assertEqual(self.value(self.run_cell("kept")), "3")

    def test_variables_and_shapes_are_listed(self):
        self.run_cell("let x: Tensor<Rank2<2, 3>, f32, Cpu> = device.ones();\nlet rows = 4usize;")
        self.run_cell("let y: Tensor<(usize, Const<3>), f32, Cpu> = "
                      "device.zeros_like(&(rows, Const));")
        variables = self.shown(self.run_cell(":vars"))
        self.assertRegex(variables, r"rows +usize")
        shapes = self.shown(self.run_cell(":shapes"))
        self.assertRegex(shapes, r"x +2×3 f32 cpu")
        self.assertRegex(shapes, r"y +4×3 f32 cpu")

    def test_a_type_is_shown_without_running_anything(self):
        self.assertEqual(self.shown(self.run_cell(":type vec![1u8].len()")), "usize")
        cell = self.run_cell(":type no_such_thing", "error")
        self.assertIn("no_such_thing", cell.of("error")[0]["evalue"])

    def inspected(self, marked):
        """Returns the first lines about the place of the mark `|`."""
        self.client.inspect(marked.replace("|", "", 1), marked.index("|"))
        reply = self.client.get_shell_msg(timeout=60)["content"]
        return reply["data"].get("text/plain", "").split("\n\n")[0].split("\n")

    def test_names_and_calls_are_inspected_with_their_shapes(self):
        self.run_cell("let left: Tensor<Rank2<4, 8>, f32, Cpu> = device.ones();\n"
                      "fn times(count: usize, text: &str) -> String { text.repeat(count) }")
        self.assertEqual(self.inspected("left|"), ["left: (4, 8) f32 cpu"])
        self.assertEqual(self.inspected("left.sqrt|"),
                         ["fn sqrt(self: (4, 8) f32 cpu) -> (4, 8) f32 cpu"])
        self.assertEqual(self.inspected("left.matmul(|"), [
            "fn matmul(self: (4, 8) f32 cpu, rhs: Rhs) -> Self::Output",
            "                                ^^^^^^^^",
        ])
        self.assertEqual(self.inspected('println!("{}", times(left.array().len(), |))'), [
            "fn times(count: usize, text: &str) -> String",
            "                       ^^^^^^^^^^",
            "left.array().len(): usize",
        ])
        self.assertEqual(self.inspected("no_such_thing(|"), [""])

    def test_completion_begins_with_what_the_session_uses(self):
        self.run_cell("let ranked: Tensor<Rank2<2, 3>, f32, Cpu> = device.ones();\n"
                      "ranked.clone().square().array()")
        self.run_cell("ranked.clone().square().tanh().array()")
        self.client.complete("ranked.")
        reply = self.client.get_shell_msg(timeout=60)["content"]
        matches = reply["matches"]
        self.assertLess(matches.index("square"), matches.index("tanh"))
        self.assertLess(matches.index("tanh"), matches.index("abs"))
        typed = reply["metadata"]["_jupyter_types_experimental"]
        self.assertEqual([item["text"] for item in typed], matches)
        self.assertEqual(typed[matches.index("tanh")]["signature"], "() -> (2, 3) f32 cpu")
        self.client.complete("cloze::view::tensor::")
        matches = self.client.get_shell_msg(timeout=60)["content"]["matches"]
        self.assertIn("shapes", matches)
        # A private function.
        self.assertNotIn("tensor_shape", matches)

    def test_code_is_checked_without_running_it(self):
        self.run_cell("let checked: Tensor<Rank2<2, 3>, f32, Cpu> = device.ones();\n"
                      "let words = vec![String::new()];")
        cell = self.run_cell(':check\n!echo runs\nprintln!("runs");\nlet root = checked.sqrt();')
        self.assertEqual(cell.text(), "")
        self.assertEqual(self.shown(cell), "no errors; nothing was run\nroot  (2, 3) f32 cpu")
        self.run_cell("checked.shape()")
        self.run_cell("root", "error")
        shown = self.shown(self.run_cell(
            ":check checked.clone().sqrt();\n"
            "fn same(a: u8, b: u8) -> bool {\n    a == a;\n    true\n}\n"
            'std::fs::remove_file("none");\nlet moved = checked;\nmoved.sqrt()'))
        for line, text in ((1, "nothing uses this tensor, (2, 3) f32 cpu"),
                           (2, "nothing uses the variable `b`"),
                           (3, "nothing uses this comparison"),
                           (6, "nothing uses this `Result`")):
            self.assertIn(f"warning: {text}\n  --> this cell, line {line}\n", shown)
        self.assertEqual(shown.count("warning"), 4)
        self.assertIn("(the value)  (2, 3) f32 cpu", shown)
        for code, line, says in (
                (":check checked.clone().matmul(checked.clone())", 1, "the inner sizes 3 and 2 differ"),
                (":check\nlet a = 1;\nlet b = checked.reshape::<Rank1<7>>();", 3, "7 holds 7"),
                (":check\nlet b: u8 = missing;", 2, "there is no variable `missing` now"),
                (":check\nlet first = &words[0];", 2, "`first` borrows")):
            error = self.run_cell(code, "error").of("error")[0]
            self.assertIn(says, error["evalue"])
            self.assertIn(f"this cell, line {line}", "\n".join(error["traceback"]))

    def test_time_and_documentation(self):
        code = ":time\nstd::thread::sleep(std::time::Duration::from_millis(200));\n1"
        cell = self.run_cell(code)
        self.assertEqual(self.value(cell), "1")
        self.assertRegex(self.shown(cell), r"^ran 0\.2\d\d s, compiled \d")
        runs = self.run_cell(":time 3\nlet a = 1;\na + 1").text()
        self.assertRegex(runs, r"^3 runs: median \S+, minimum \S+, maximum \S+\n$")
        for command in [":time", ":time 2"]:
            for code in ["\nlet a = 1;\nmissing_name", "\nlet none = None::<u8>;\nnone.unwrap();"]:
                error = self.run_cell(command + code, "error").of("error")[0]
                self.assertIn("this cell, line 3", "\n".join(error["traceback"]))
        shown = self.shown(self.run_cell(":doc Vec::new"))
        self.assertIn("Constructs a new, empty", shown)
        # Without the hidden lines of examples.
        self.assertIn("\nlet mut vec: Vec<i32> = Vec::new();", shown)
        self.assertNotIn("# #", shown)
        self.assertIn(":replay", self.shown(self.run_cell(":help")))
        self.run_cell(":nonsense", "error")

    def test_an_exercise_by_commands(self):
        self.run_cell(":lesson 2")
        for _ in range(10):
            cell = self.run_cell(":next")
            if "Exercise 02.1" in self.shown(cell):
                break
        self.assertIn("fn split_words", self.shown(cell))
        early = self.run_cell(":check", "error")
        self.assertIn("write the exercise's code", early.of("error")[0]["evalue"])
        stub = 'fn split_words(text: &str) -> Vec<String> { cloze::exercise!("02.1") }'
        self.run_cell(stub)
        self.assertIn("not solved yet", self.shown(self.run_cell(":check")))
        self.assertIn("Hint 1 of", self.run_cell(":hint").text())
        self.assertIn("Hint 2 of", self.run_cell(":hint 02.1").text())
        solution = self.shown(self.run_cell(":solution"))
        self.assertNotIn("exercise!", solution)
        self.run_cell(solution)
        self.assertIn("right", self.shown(self.run_cell(":next")))
        self.assertIn("1 of 3 exercises passed", self.shown(self.run_cell(":lesson")))
        wrong = self.run_cell(":hint 02.77", "error")
        self.assertIn("02.1, 02.2", wrong.of("error")[0]["evalue"])

    def test_adding_a_crate_changes_no_other_version(self):
        # A dependency of Cloze needs no network.
        cell = self.run_cell(':dep itoa = "1"\nitoa::Buffer::new().format(42u32).to_owned()')
        self.assertEqual(self.value(cell), '"42"')
        lock = "std::fs::read_to_string(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../Cargo.lock\"))?"
        versions = f"let packages = {lock};\nprintln!(\"{{packages}}\");"
        before = self.run_cell(versions).text().split("[[package]]")
        self.run_cell(':dep ryu = "1"\nryu::Buffer::new().format(1.5f64).to_owned()')
        after = self.run_cell(versions).text().split("[[package]]")
        for name, known in [("itoa", before), ("ryu", after)]:
            (package,) = [each for each in known if f'name = "{name}"' in each]
            self.assertIn(package.strip(), [each.strip() for each in after])

    def test_a_progress_bar_moves_in_place(self):
        code = """let bar = progress::bar(20, "steps");
for _ in 0..20 { std::thread::sleep(std::time::Duration::from_millis(20)); bar.inc(1); }
bar.finish();"""
        cell = self.run_cell(code)
        (shown,) = cell.of("display_data")
        self.assertIn("of 20", shown["data"]["text/plain"])
        last = cell.of("update_display_data")[-1]["data"]
        self.assertIn("20 of 20", last["text/plain"])
        self.assertIn("█" * 40, last["text/html"])


class AnswersTest(unittest.TestCase):
    """A later session uses the code with which a learner has passed an exercise."""

    TYPES = """use cloze::prelude::*;
type Rows<const N: usize> = Tensor<(usize, Const<N>), f32, Cpu>;
type Grid = Tensor<(usize, usize), f32, Cpu>;"""
    # The answer is the learner's own in every way: names, a helper in another cell.
    HELPER = "fn root(size: usize) -> f32 { (size as f32).sqrt() }"
    ANSWER = """fn scores<const K: usize>(asking: Rows<K>, asked: Rows<K>) -> Grid {
    let turned = asked.permute::<_, Axes2<1, 0>>();
    asking.matmul(turned) / root(K)
}"""

    def setUp(self):
        data = pathlib.Path(os.environ.get("XDG_DATA_HOME", pathlib.Path.home() / ".local/share"))
        self.answer = data / "cloze/answers/scores.rs"
        self.answer.parent.mkdir(exist_ok=True)
        self.answer.unlink(missing_ok=True)
        self.addCleanup(self.answer.unlink, missing_ok=True)

    def cells(self, *codes):
        """Runs cells in a session of their own and returns what they show."""
        env = {**os.environ, "CLOZE_SPARE": "off"}
        manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60, env=env)
        try:
            shown = []
            for code in codes:
                cell = Cell(client, code)
                self.assertEqual(cell.status, "ok", (code, cell.messages))
                found = cell.of("display_data") + cell.of("execute_result")
                shown.append("\n".join(each["data"]["text/plain"] for each in found))
            return shown
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

    def test_an_answer_is_kept_when_its_check_passes_and_a_later_session_runs_it(self):
        wrong = self.ANSWER.replace("root(K)", "1.0")
        use = "scores::<4>(Cpu::default().ones_like(&(1, Const)), Cpu::default().ones_like(&(1, Const))).as_vec()"
        shown = self.cells(":yours 04.1", "use cloze::prelude::*;", use)
        self.assertIn("The lessons' solutions: 04.1.", shown[0])
        self.assertEqual(shown[2], "[2.0]")
        # A notebook with solutions has this line in each.
        solution = self.ANSWER.replace("{\n", '{\n    cloze::solution!("04.1");\n', 1)
        shown = self.cells(self.TYPES, self.HELPER, solution, ":check 04.1")
        self.assertIn("right", shown[3])
        self.assertFalse(self.answer.exists())
        shown = self.cells(self.TYPES, self.HELPER, wrong, ":check 04.1", self.ANSWER, ":check 04.1", wrong)
        self.assertIn("divide by sqrt(K)", shown[3])
        self.assertIn("right", shown[5])
        self.assertIn("You have changed your answer to 04.1", shown[6])
        kept = self.answer.read_text()
        self.assertTrue("fn root" in kept and "asking.matmul(turned) / root(K)" in kept, kept)
        shown = self.cells(":yours 04.1", "use cloze::prelude::*;", use)
        self.assertIn("Your own answers: 04.1.", shown[0])
        self.assertEqual(shown[2], "[2.0]")
        # It is really that code which runs.
        self.answer.write_text(kept.replace("/ root(K)", "* 10.0"))
        self.assertEqual(self.cells(":yours 04.1", "use cloze::prelude::*;", use)[2], "[40.0]")


    def test_a_lesson_runs_with_the_answers_that_are_kept(self):
        self.answer.write_text("fn scores<const K: usize>(q: Rows<K>, k: Rows<K>) -> Grid { q.matmul(k.permute::<_, Axes2<1, 0>>()) }\n")
        program = pathlib.Path(__file__).parents[2] / "target/debug/cloze"
        env = {**os.environ, "CLOZE_LESSON_QUICK": "1"}
        ran = subprocess.run([program, "lessons", "run", "04"], env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("divide by sqrt(K)", ran.stdout)
        self.assertIn("✓ 04.2", ran.stdout)


class ReviewTest(unittest.TestCase):
    """The questions with which a lesson opens and ends, in a session of a learner who has answered none."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        data = pathlib.Path(folder.name)
        # The learner's own folder has the template that sessions share.
        user = pathlib.Path(os.environ.get("XDG_DATA_HOME", pathlib.Path.home() / ".local/share")) / "cloze"
        shared = pathlib.Path(os.environ.get("CLOZE_DATA", user))
        (data / "templates").symlink_to(shared / "templates")
        cls.file = data / "answers.jsonl"
        env = {**os.environ, "CLOZE_SPARE": "off", "CLOZE_DATA": folder.name}
        cls.manager, cls.client = start_new_kernel(kernel_name="cloze", startup_timeout=60, env=env)
        cls.addClassCleanup(cls.manager.shutdown_kernel, now=True)
        cls.addClassCleanup(cls.client.stop_channels)

    def setUp(self):
        self.file.unlink(missing_ok=True)

    def run_cell(self, code, *answers):
        """Runs a cell with these answers; without any there is nobody to ask."""
        waiting = list(answers)
        self.prompts = []

        def answer(message):
            self.prompts.append(message["content"]["prompt"])
            self.client.input(waiting.pop(0))

        cell = Cell(self.client, code, allow_stdin=bool(answers), stdin_hook=answer)
        self.assertEqual(cell.status, "ok", cell.messages)
        return [content["data"] for content in cell.of("display_data")]

    def test_answers_are_asked_explained_and_kept(self):
        shown = self.run_cell(":review 04", "no number", "1", "1", "")
        self.assertEqual(len(self.prompts), 4)
        self.assertRegex(self.prompts[0], r"^Your answer \(1 to [34], or only Enter to stop\): $")
        texts = [data["text/plain"] for data in shown]
        self.assertEqual(len(texts), 6, texts)
        self.assertIn("Question 1 of 5 (lesson 04)", texts[0])
        self.assertIn("<ol><li>", shown[0]["text/html"])
        for text in (texts[1], texts[3]):
            self.assertRegex(text, "^(✓ Right|✗ Not this one)")
        self.assertRegex(texts[5], "^[012] of 2 right; you left 3 open")
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        self.assertEqual([line["right"] for line in lines], [text.startswith("✓") for text in (texts[1], texts[3])])

    def test_a_lesson_opens_with_questions_on_what_it_builds_on(self):
        shown = self.run_cell(":review before 03", "")
        self.assertIn("Question 1 of 3 (lesson 02)", shown[0]["text/plain"])
        self.run_cell(":review 01", "1", "")
        self.assertIn("(lesson 01)", self.run_cell(":review before 03", "")[0]["text/plain"])

    def test_without_anybody_to_ask_the_answers_are_folded_and_nothing_is_kept(self):
        shown = self.run_cell(":review 04")
        self.assertEqual(len(shown), 11)
        for question, answer in zip(shown[:10:2], shown[1:10:2], strict=True):
            self.assertIn("<ol>", question["text/html"])
            self.assertTrue(answer["text/html"].startswith("<details>"))
            self.assertEqual(answer["text/plain"].count("✓"), 1)
        self.assertIn("Nobody was asked", shown[10]["text/plain"])
        self.assertFalse(self.file.exists())

    def test_a_notebook_that_runs_as_a_whole_waits_for_no_answer_but_for_other_input(self):
        cells = [":review before 05", "1 + 1", ":review 04"]
        sent = [self.client.execute(code, allow_stdin=True) for code in cells]
        for _ in cells:
            self.assertEqual(self.client.get_shell_msg(timeout=120)["content"]["status"], "ok")
        self.assertFalse(self.client.stdin_channel.msg_ready())
        shown, done = {message: [] for message in sent}, False
        while not done:
            message = self.client.get_iopub_msg(timeout=60)
            content, cell = message["content"], message["parent_header"].get("msg_id")
            if message["msg_type"] == "display_data":
                shown[cell].append(content["data"]["text/plain"])
            done = cell == sent[-1] and content.get("execution_state") == "idle"
        for review, questions in ((sent[0], 3), (sent[2], 5)):
            self.assertEqual(len(shown[review]), 2 * questions + 1, shown[review])
            self.assertIn("Run this cell alone to answer.", shown[review][-1])
        for code in ('cloze::view::input::ask("? ")?', "1 + 1"):
            self.client.execute(code, allow_stdin=True)
        self.assertEqual(self.client.get_stdin_msg(timeout=120)["content"]["prompt"], "? ")
        self.client.input("x")
        for _ in range(2):
            self.assertEqual(self.client.get_shell_msg(timeout=120)["content"]["status"], "ok")

    def test_an_unknown_lesson_is_an_error(self):
        cell = Cell(self.client, ":review before 99")
        self.assertEqual(cell.status, "error")
        self.assertIn("there is no lesson", cell.of("error")[0]["evalue"])


class FaultTest(WithKernel):
    """Cells that end their process: the session reports why, continues, and can replay."""

    def test_the_session_reports_and_survives_every_crash(self):
        ways = {
            "a memory fault": "unsafe { *(8 as *mut u64) = 1; }",
            "an abort": "std::process::abort();",
            "a stack overflow":
                "fn deep(n: u64) -> u64 { if n == 0 { 0 } else { 1 + deep(std::hint::black_box(n)) } }\n"
                "println!(\"{}\", deep(1));",
            "exit code 3": "std::process::exit(3);",
            "out of memory": "let v: Vec<u8> = Vec::with_capacity(1 << 46);\nprintln!(\"{}\", v.len());",
        }
        for reason, code in ways.items():
            with self.subTest(reason):
                self.assertEqual(Cell(self.client, "fn seven() -> u8 { 7 }").status, "ok")
                self.assertEqual(Cell(self.client, "let kept = seven();").status, "ok")
                cell = Cell(self.client, code)
                self.assertEqual(cell.status, "error", cell.messages)
                error = cell.of("error")[0]
                self.assertEqual(error["ename"], "crash")
                self.assertIn(reason, error["evalue"])
                self.assertIn(":replay", error["evalue"])
                self.assertEqual(Cell(self.client, "kept").status, "error")
                self.assertEqual(Cell(self.client, ":replay").status, "ok")
                value = Cell(self.client, "kept").of("execute_result")[0]["data"]["text/plain"]
                self.assertEqual(value, "7")


class HistoryTest(unittest.TestCase):
    def test_history_outlives_the_kernel(self):
        word = f"history_{time.time_ns()}"
        for turn in range(2):
            manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
            try:
                if turn == 0:
                    self.assertEqual(Cell(client, f"let {word} = 1;").status, "ok")
                    continue
                client.history(hist_access_type="search", pattern=f"*{word}*", output=False)
                reply = {"msg_type": None}
                while reply["msg_type"] != "history_reply":
                    reply = client.get_shell_msg(timeout=30)
                found = reply["content"]["history"]
                self.assertEqual([line for _, _, line in found], [f"let {word} = 1;"])
            finally:
                client.stop_channels()
                manager.shutdown_kernel(now=True)


class TemplateTest(unittest.TestCase):
    def test_a_session_compiles_nothing_but_cells(self):
        env = {**os.environ, "CLOZE_SPARE": "off"}
        manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60, env=env)
        try:
            for code in ("use cloze::prelude::*;", "let t = Cpu::default().tensor([1.0f32]);"):
                self.assertEqual(Cell(client, code).status, "ok")
            # A wrong cell is also checked.
            self.assertEqual(Cell(client, "let wrong: i32 = t;").status, "error")
            data = pathlib.Path(os.environ.get("XDG_DATA_HOME", pathlib.Path.home() / ".local/share"))
            session = data / "cloze/sessions" / str(manager.provisioner.pid)
            compiled = {path.name for path in session.glob("ctx/target/**/deps/*")}
            self.assertTrue(any(name.startswith("libcode_") for name in compiled), compiled)
            others = {name for name in compiled if not name.removeprefix("lib").startswith(("ctx", "code_"))}
            self.assertEqual(others, set())
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
