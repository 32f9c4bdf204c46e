"""Black-box tests of the installed kernelspec `cloze`, with Jupyter's own client.

Run with the kernel installed below a prefix:

    cloze-kernel install --prefix "$P"
    JUPYTER_PATH="$P/share/jupyter" python tests/jupyter/parallel.py

Times are printed; the assertions on them leave a factor of three for a busy machine.
"""

import base64
import os
import signal
import statistics
import struct
import tempfile
import time
import unittest

from jupyter_client.manager import start_new_kernel
from jupyter_client.session import Session

from driver import FIRST_CELL, Cell, WithKernel, children, gone, memory


def interrupt(test, code):
    """Interrupts a cell of the test's kernel; returns its reply, and the seconds until it came."""
    message = test.client.execute(code)
    deadline = time.time() + 60
    # The interrupt must reach the running cell, not its compilation.
    while time.time() < deadline:
        published = test.client.get_iopub_msg(timeout=60)
        if published["msg_type"] == "stream":
            break
    started = time.time()
    test.manager.interrupt_kernel()
    while True:
        reply = test.client.get_shell_msg(timeout=60)
        if reply["parent_header"]["msg_id"] == message:
            return reply["content"], time.time() - started


class SpeedTest(WithKernel):
    """How fast one kernel answers."""

    ALONE = True

    def test_the_first_cell_and_warm_cells_are_fast(self):
        figures = {"ready": self.ready, "first_tensor": self.run_cell(FIRST_CELL).seconds}
        cells = {
            "let": "let a = 1;",
            "tensor": "let y = (x.clone() + 1.0).sum::<Rank0, _>();",
            "expression": "1 + 1",
        }
        for name, code in cells.items():
            figures[name] = statistics.median(self.run_cell(code).seconds for _ in range(7))
        wrong = [self.run_cell("let a: i32 = \"no\";", "error").seconds for _ in range(3)]
        figures["first_error"] = wrong[0]
        pid = self.manager.provisioner.pid
        sizes = [memory(p) for p in [pid, *children(pid)]]
        rounded = {name: round(value, 3) for name, value in figures.items()}
        print(f"\nseconds {rounded}, memory in MiB (kernel, child): {sizes}")
        self.assertLess(figures["ready"], 3)
        self.assertLess(figures["first_tensor"], 30)
        self.assertLess(figures["let"], 1.5)
        self.assertLess(figures["tensor"], 1.5)

    def test_the_kernel_tells_complete_cells_while_one_runs(self):
        self.client.execute("std::thread::sleep(std::time::Duration::from_secs(2));")
        time.sleep(0.5)
        started = time.time()
        asked = {}
        for code in ("1 + 1", "fn f() {", "}"):
            asked[self.client.is_complete(code)] = code
        answers = {}
        while len(answers) < 3:
            reply = self.client.get_shell_msg(timeout=10)
            if reply["msg_type"] == "is_complete_reply":
                answers[asked[reply["parent_header"]["msg_id"]]] = reply["content"]["status"]
        self.assertLess(time.time() - started, 1.4)
        self.assertEqual(answers, {"1 + 1": "complete", "fn f() {": "incomplete", "}": "invalid"})
        self.client.get_shell_msg(timeout=60)


class KernelTest(WithKernel):
    """One kernel for all tests that leave it usable."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert Cell(cls.client, FIRST_CELL).status == "ok"

    def test_a_warm_cell_is_compiled_without_cargo(self):
        # Each time cargo is used, it records again how it calls rustc.
        recipe = (
            "std::fs::metadata(concat!(env!(\"CARGO_MANIFEST_DIR\"), "
            "\"/../../toolchain/bin/rustc.json\"))?.modified()?"
        )
        times = {
            self.run_cell(recipe).of("execute_result")[0]["data"]["text/plain"] for _ in range(3)
        }
        self.assertEqual(len(times), 1)

    def test_prints_stream_while_the_cell_runs_and_come_before_idle(self):
        code = (
            "for i in 0..4 { println!(\"{i}\"); "
            "std::thread::sleep(std::time::Duration::from_millis(300)); }"
        )
        cell = self.run_cell(code)
        self.assertEqual(cell.text(), "0\n1\n2\n3\n")
        at = [t for m, t in zip(cell.messages, cell.times) if m["msg_type"] == "stream"]
        self.assertGreaterEqual(len(at), 3)
        self.assertGreater(at[-1] - at[0], 0.5)
        self.assertEqual(cell.messages[-1]["content"], {"execution_state": "idle"})
        self.assertEqual(cell.of("execute_result"), [])

    def test_an_unfinished_line_is_shown_while_it_grows(self):
        code = (
            "for i in 0..3 { print!(\"\\r{i}\"); "
            "std::thread::sleep(std::time::Duration::from_millis(300)); }"
        )
        cell = self.run_cell(code)
        self.assertEqual(cell.text(), "\r0\r1\r2")
        self.assertGreaterEqual(len(cell.of("stream")), 2)

    def test_standard_error_comes_before_idle_every_time(self):
        for turn in range(10):
            cell = self.run_cell(f"eprintln!(\"e{turn}\"); println!(\"o{turn}\");")
            self.assertEqual(cell.text("stderr"), f"e{turn}\n")
            self.assertEqual(cell.text("stdout"), f"o{turn}\n")

    def test_a_flood_of_output_arrives_whole(self):
        cell = self.run_cell("for i in 0..200_000 { println!(\"{i:09}\"); }")
        self.assertEqual(len(cell.text()), 200_000 * 10)
        self.assertTrue(cell.text().endswith("000199999\n"))

    def test_an_expression_is_the_result(self):
        cell = self.run_cell("6 * 7")
        self.assertEqual(cell.of("execute_result")[0]["data"], {"text/plain": "42"})

    def test_variables_are_kept(self):
        self.run_cell("let kept = vec![1, 2, 3];")
        cell = self.run_cell("kept.len()")
        self.assertEqual(cell.of("execute_result")[0]["data"]["text/plain"], "3")

    def test_a_mistake_is_explained_in_the_cell_s_own_lines(self):
        cell = self.run_cell("// größe\nlet wrong: i32 = \"no\";", "error")
        (error,) = cell.of("error")
        self.assertEqual(error["ename"], "error[E0308]")
        self.assertEqual(error["evalue"], "`i32` is expected here, and this is `&str`")
        text = "\n".join(error["traceback"])
        self.assertIn("this cell, line 2", text)
        self.assertIn("let wrong: i32 = \"no\";", text)

    def test_a_panic_is_an_error_with_its_line_and_keeps_variables(self):
        self.run_cell("let before = 5;")
        cell = self.run_cell("let zero = 0;\nassert_eq!(before, zero, \"not equal\");", "error")
        (error,) = cell.of("error")
        self.assertEqual(error["ename"], "panic")
        self.assertIn("not equal", error["evalue"])
        self.assertIn("this cell, line 2", "\n".join(error["traceback"]))
        self.assertIn("5", self.run_cell("before").of("execute_result")[0]["data"]["text/plain"])

    def test_a_caught_panic_is_no_error(self):
        self.run_cell("let _ = std::panic::catch_unwind(|| panic!(\"caught\"));")

    def test_an_error_through_the_question_mark_is_an_error(self):
        cell = self.run_cell("let n: i32 = \"x\".parse()?;", "error")
        self.assertIn("invalid digit", cell.of("error")[0]["evalue"])
        # It is shown once.
        self.assertEqual(cell.text("stderr"), "")

    def test_two_displays_and_a_result_in_one_cell(self):
        code = (
            "cloze::display::html(\"<b>1</b>\");\n"
            "println!(\"between\");\n"
            "cloze::display::svg(\"<svg/>\");\n"
            "7"
        )
        cell = self.run_cell(code)
        kinds = [m["msg_type"] for m in cell.messages]
        kinds = [k for k in kinds if k not in ("status", "execute_input")]
        self.assertEqual(kinds, ["display_data", "stream", "display_data", "execute_result"])
        shown = [c["data"] for c in cell.of("display_data")]
        self.assertEqual(shown, [{"text/html": "<b>1</b>"}, {"image/svg+xml": "<svg/>"}])

    def test_a_chart_is_shown_and_saved_as_a_picture(self):
        cell = self.run_cell(
            "use cloze::prelude::*;\n"
            "let chart = LineChart::new(\"Loss\").line(\"training\", &[(0.0, 9.0), (1.0, 4.0)]);\n"
            "let folder = std::env::temp_dir().join(format!(\"cloze-{}\", std::process::id()));\n"
            "std::fs::create_dir(&folder)?;\n"
            "chart.save(folder.join(\"loss.png\"))?;\n"
            "display::png(&chart.png()?);\n"
            "display::image(folder.join(\"loss.png\"))?;\n"
            "std::fs::remove_dir_all(&folder)?;"
        )
        (shown, saved) = cell.of("display_data")
        picture = base64.b64decode(shown["data"]["image/png"])
        # A PNG's signature, and width and height in its first chunk.
        self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", picture[16:24]), (1440, 720))
        self.assertEqual(shown["metadata"], {"image/png": {"width": 720, "height": 360}})
        self.assertEqual(saved["data"], shown["data"])
        cell = self.run_cell('chart.save("loss.gif")?;', "error")
        self.assertIn("loss.gif", cell.of("error")[0]["evalue"])

    def test_a_live_display_is_updated_in_place_and_output_is_cleared(self):
        code = (
            "use cloze::display::{self, Content};\n"
            "for i in 0..3 { display::live(\"n\", Content::text(format!(\"{i}\"))); }\n"
            "display::clear_output(true);"
        )
        cell = self.run_cell(code)
        (shown,) = cell.of("display_data")
        self.assertEqual(shown["transient"], {"display_id": "n"})
        # Of several waiting updates only the newest is sent.
        updates = [c["data"]["text/plain"] for c in cell.of("update_display_data")]
        self.assertIn(updates, [["1", "2"], ["2"]])
        self.assertEqual(cell.of("clear_output"), [{"wait": True}])

    def test_printed_text_is_text_whatever_it_says(self):
        # All markers that evcxr's generated code prints, with markup that a page would run.
        attack = '<img src=x onerror="document.title = 1">'
        contents = [
            f"EVCXR_BEGIN_CONTENT {mime}\n{data}\nEVCXR_END_CONTENT\n"
            for mime, data in [
                ("text/html", attack),
                ("image/svg+xml", f"<svg>{attack}</svg>"),
                ("application/javascript", "document.title = 1"),
                ("text/markdown", attack),
                ("text/plain", attack),
            ]
        ]
        words = [
            "EVCXR_VARIABLE_CHANGED_TYPE:kept\n",
            "EVCXR_PANIC_NOTIFICATION\n",
            "EVCXR_ERROR_OCCURRED\n",
            "EVCXR_EXECUTION_COMPLETE\n",
            "EVCXR_BEGIN_CONTENT text/html\n" + attack + "\n",
        ]
        self.run_cell('let kept = 7;\nlet runs = std::sync::atomic::AtomicU32::new(0);')
        with tempfile.TemporaryDirectory() as folder:
            # Alone, each one comes first in its cell, as evcxr's own would.
            for text in [*contents, *words, "".join(contents + words)]:
                file = os.path.join(folder, "text")
                with open(file, "w", encoding="utf-8") as written:
                    written.write(text)
                count = "runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);"
                for stream, code in [
                    ("stdout", f'print!("{{}}", std::fs::read_to_string("{file}")?);\n{count}'),
                    ("stderr", f'eprint!("{{}}", std::fs::read_to_string("{file}")?);\n{count}'),
                    ("stdout", f"!cat {file}"),
                    ("stderr", f"!cat {file} >&2"),
                ]:
                    with self.subTest(code=code, text=text):
                        cell = self.run_cell(code)
                        self.assertEqual(cell.text(stream), text)
                        kinds = {m["msg_type"] for m in cell.messages}
                        self.assertEqual(kinds, {"status", "execute_input", "stream"})
        # No variable was lost and no cell ran twice.
        cell = self.run_cell("(kept, runs.load(std::sync::atomic::Ordering::Relaxed))")
        self.assertEqual(cell.of("execute_result")[0]["data"], {"text/plain": f"(7, {2 * 11})"})

    def test_a_variable_of_a_redefined_type_is_dropped(self):
        self.run_cell("struct Changes { a: u8 }\nlet (changes, stays) = (Changes { a: 1 }, 2);")
        cell = self.run_cell('struct Changes { b: u8, c: u8 }\nprintln!("once");')
        self.assertEqual(cell.text(), "once\n")
        self.assertIn("changes", cell.text("stderr"))
        self.assertEqual(self.run_cell("stays").of("execute_result")[0]["data"]["text/plain"], "2")
        self.run_cell("changes", "error")

    def test_patterns_of_every_kind_redefine_variables(self):
        for pattern, value in (
            ("(one, two)", "(1, 2)"),
            ("[one, two]", '["1", "2"]'),
            ("[one, two]", '["3", "4"]'),
            ("one @ two", "5.5"),
            ("(one, [.., mut two])", "('6', [0, 7])"),
            ("((Ok(one) | Err(one)), two)", "(Ok::<u8, u8>(8), 9)"),
        ):
            with self.subTest(pattern):
                self.run_cell(f"let {pattern} = {value};")
                now = self.run_cell("format!(\"{one:?} {two:?}\")").of("execute_result")
                then = self.run_cell(f"{{ let {pattern} = {value}; format!(\"{{one:?}} {{two:?}}\") }}")
                self.assertEqual(now[0]["data"], then.of("execute_result")[0]["data"])

    def test_a_variable_is_dropped_even_if_its_type_keeps_its_names(self):
        self.run_cell("struct Inner { a: i64 }\nstruct Outer { i: Inner }\nstruct Other(u8);")
        self.run_cell("let list = vec![Outer { i: Inner { a: 1 } }];\nlet other = Other(7);")
        # A derived implementation changes nothing.
        self.run_cell("#[derive(Clone)]\nstruct Inner { a: i64 }")
        self.run_cell("list[0].i.a")
        cell = self.run_cell("struct Inner { a: f64 }\nother.0")
        self.assertEqual(cell.text("stderr"), "`list` had the old `Inner` and is gone: define it again\n")
        cell = self.run_cell("list[0].i.a", "error")
        self.assertIn("its type was defined anew", cell.of("error")[0]["evalue"])

    def test_after_an_error_the_cells_already_sent_are_aborted(self):
        ids = [self.client.execute(code) for code in ("panic!(\"stop\")", "1", "2")]
        replies = {}
        while len(replies) < 3:
            reply = self.client.get_shell_msg(timeout=60)
            replies[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
        self.assertEqual([replies[i] for i in ids], ["error", "aborted", "aborted"])

    def test_completion_gives_bare_names(self):
        self.run_cell("let letters = vec!['a'];")
        code = "letters.is_em"
        self.client.complete(code)
        reply = self.client.get_shell_msg(timeout=60)["content"]
        self.assertIn("is_empty", reply["matches"])
        self.assertEqual(code[reply["cursor_start"]:reply["cursor_end"]], "is_em")

    def test_a_message_with_a_wrong_signature_is_dropped(self):
        session = Session(key=b"not the key", signature_scheme="hmac-sha256")
        session.send(self.client.shell_channel.socket, session.msg("kernel_info_request", {}))
        with self.assertRaises(Exception):
            self.client.get_shell_msg(timeout=1)
        # The kernel still answers signed messages.
        self.run_cell("1")

    def test_an_interrupt_ends_any_loop_and_keeps_variables(self):
        self.assertEqual(Cell(self.client, "let mut kept = 7u64;").status, "ok")
        # Each reports progress, so that it has counted before it is interrupted.
        for loop in [
            'loop { kept += 1; if kept == 9 { println!("go"); } }',
            'while kept > 0 {\n    kept += 1;\n    if kept == 9 { println!("go"); }\n}',
            'for i in 0u64.. { kept = i.max(8); if i == 9 { println!("go"); } }',
        ]:
            reply, seconds = interrupt(self, f"kept = 7; {loop}")
            self.assertEqual((reply["status"], reply["ename"]), ("error", "interrupted"), loop)
            self.assertLess(seconds, 1.5)
            cell = Cell(self.client, "kept")
            self.assertGreater(int(cell.of("execute_result")[0]["data"]["text/plain"]), 7)

    def test_a_cell_that_is_interrupted_before_it_runs_does_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "ran")
            self.run_cell("let kept = 7;")
            long = "std::thread::sleep(std::time::Duration::from_secs(20));"
            message = self.client.execute(f'std::fs::write("{file}", "")?;\n{long}')
            time.sleep(0.1)
            started = time.time()
            self.manager.interrupt_kernel()
            reply = self.client.get_shell_msg(timeout=60)
            self.assertEqual(reply["parent_header"]["msg_id"], message)
            self.assertEqual((reply["content"]["status"], reply["content"]["ename"]), ("error", "interrupted"))
            self.assertLess(time.time() - started, 10)
            self.assertFalse(os.path.exists(file))
            self.assertEqual(self.run_cell("kept").of("execute_result")[0]["data"]["text/plain"], "7")

    def test_expressions_are_answered_beside_a_cell(self):
        wanted = {"a": "six * 7", "b": "no_such_name", "c": "let x = 1;"}
        cell = Cell(self.client, "let six = 6;", user_expressions=wanted)
        self.assertEqual(cell.status, "ok")
        answers = cell.reply["content"]["user_expressions"]
        self.assertEqual(answers["a"]["status"], "ok")
        self.assertEqual(answers["a"]["data"]["text/plain"], "42")
        self.assertEqual(answers["b"]["status"], "error")
        self.assertIn("no_such_name", answers["b"]["evalue"])
        self.assertIn("has no value", answers["c"]["evalue"])
        self.assertEqual(cell.of("execute_result"), [])

    def test_an_expression_that_reads_finds_the_end_of_its_input(self):
        reads = "{ let mut line = String::new(); std::io::stdin().read_line(&mut line)? }"
        cell = Cell(self.client, "6 * 7", user_expressions={"read": reads})
        answer = cell.reply["content"]["user_expressions"]["read"]
        self.assertEqual(answer["data"]["text/plain"], "0")

    def test_a_loop_in_a_const_function_is_not_rewritten(self):
        # Earlier variables that are references do not matter.
        self.assertEqual(Cell(self.client, "let word: &str = \"kept\";").status, "ok")
        code = """const fn triangle(n: u32) -> u32 {
    let (mut i, mut sum) = (0, 0);
    while i < n { i += 1; sum += i; }
    sum
}
const SUM: u32 = triangle(4);
SUM"""
        cell = Cell(self.client, code)
        self.assertEqual(cell.of("execute_result")[0]["data"]["text/plain"], "10")

    def test_an_error_in_a_loop_shows_the_cell_as_it_was_written(self):
        cell = Cell(self.client, "for i in 0..3 { let wrong: u8 = \"text\"; }")
        self.assertEqual(cell.status, "error")
        traceback = "\n".join(cell.of("error")[0]["traceback"])
        self.assertIn("for i in 0..3 { let wrong: u8 =", traceback)
        self.assertNotIn("poll", traceback)

    def test_a_type_s_own_display_comes_first(self):
        code = """#[derive(Debug)]
struct Own;
impl Own {
    fn evcxr_display(&self) {
        println!("EVCXR_BEGIN_CONTENT text/html\\n<i>own</i>\\nEVCXR_END_CONTENT");
    }
}
Own"""
        cell = Cell(self.client, code)
        self.assertEqual(cell.of("execute_result")[0]["data"], {"text/html": "<i>own</i>"})
        # Also if it is not the last expression, and separate from what is printed.
        printed = """fn printed() -> Own {
    println!("EVCXR_BEGIN_CONTENT text/html\\n<b>no</b>\\nEVCXR_END_CONTENT");
    Own
}
"""
        for last in ["printed()", "printed().evcxr_display();\nlet n = 1;"]:
            cell = Cell(self.client, printed + last)
            self.assertEqual(
                cell.text(), "EVCXR_BEGIN_CONTENT text/html\n<b>no</b>\nEVCXR_END_CONTENT\n"
            )
            shown = cell.of("execute_result") + cell.of("display_data")
            self.assertEqual([c["data"] for c in shown], [{"text/html": "<i>own</i>"}])
        # References, values without their own display, and displays that panic.
        for last in ["&&Own", "if true { Own } else { printed() }"]:
            cell = Cell(self.client, last)
            shown = [c["data"] for c in cell.of("execute_result")]
            self.assertEqual(shown, [{"text/html": "<i>own</i>"}], last)
        cell = Cell(self.client, 'vec!["a\\n"]')
        self.assertEqual(cell.of("execute_result")[0]["data"], {"text/plain": '["a\\n"]'})
        self.assertEqual(Cell(self.client, "for own in [Own] { own.evcxr_display() }").status, "ok")
        code = """struct Fails;
impl Fails { fn evcxr_display(&self) { println!("EVCXR_BEGIN_CONTENT text/html\\n<b>"); panic!("in it"); } }
Fails"""
        cell = Cell(self.client, code)
        self.assertEqual(cell.of("error")[0]["evalue"].splitlines()[0], "in it")
        self.assertEqual(cell.text(), "EVCXR_BEGIN_CONTENT text/html\n<b>\n")
        self.assertEqual(Cell(self.client, "2").of("execute_result")[0]["data"], {"text/plain": "2"})

    def test_a_value_without_a_text_says_what_is_missing(self):
        cell = Cell(self.client, "struct Bare;\nBare")
        self.assertEqual(cell.status, "error")
        self.assertIn("Debug", "\n".join(cell.of("error")[0]["traceback"]))


class EndTest(unittest.TestCase):
    """Tests that stop cells or kernels: each has its own kernel."""

    def setUp(self):
        self.manager, self.client = start_new_kernel(kernel_name="cloze", startup_timeout=60)

    def tearDown(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def processes(self):
        """Returns the processes of the kernel after its first cell."""
        cell = Cell(self.client, "1")
        self.assertEqual(cell.status, "ok")
        pid = self.manager.provisioner.pid
        return [pid, *children(pid)]

    def test_a_cell_that_never_polls_is_ended_and_the_session_continues(self):
        self.assertEqual(Cell(self.client, "let lost = 7;").status, "ok")
        reply, seconds = interrupt(
            self, "println!(\"go\"); std::thread::sleep(std::time::Duration::from_secs(600));"
        )
        self.assertEqual((reply["status"], reply["ename"]), ("error", "interrupted"))
        self.assertIn("All variables are lost", reply["evalue"])
        self.assertLess(seconds, 6)
        cell = Cell(self.client, "40 + 2")
        self.assertEqual(cell.of("execute_result")[0]["data"]["text/plain"], "42")

    def test_a_cell_that_ends_its_process_says_so_with_its_last_output(self):
        cell = Cell(self.client, "print!(\"last words\"); std::process::exit(3)")
        self.assertEqual(cell.status, "error")
        self.assertEqual(cell.of("error")[0]["ename"], "crash")
        self.assertEqual(cell.text(), "last words")
        self.assertEqual(Cell(self.client, "1").status, "ok")

    def test_the_user_s_own_crate_is_compiled_again_when_it_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "src", "lib.rs")
            os.mkdir(os.path.dirname(source))
            with open(os.path.join(folder, "Cargo.toml"), "w", encoding="utf-8") as manifest:
                manifest.write('[package]\nname = "mine"\nversion = "0.1.0"\nedition = "2024"\n')
            for turn, answer in enumerate([1, 2]):
                with open(source, "w", encoding="utf-8") as code:
                    code.write(f"pub fn answer() -> u32 {{ {answer} }}\n")
                dep = f':dep mine = {{ path = "{folder}" }}\n' if turn == 0 else ""
                cell = Cell(self.client, f"{dep}mine::answer()")
                self.assertEqual(cell.of("execute_result")[0]["data"]["text/plain"], str(answer))

    def test_shutdown_leaves_no_process(self):
        processes = self.processes()
        self.client.execute("std::thread::sleep(std::time::Duration::from_secs(60));")
        time.sleep(1.5)
        self.manager.shutdown_kernel()
        self.assertTrue(gone(processes))

    def test_a_killed_kernel_ends_its_child(self):
        processes = self.processes()
        self.assertGreaterEqual(len(processes), 2)
        os.kill(processes[0], signal.SIGKILL)
        self.assertTrue(gone(processes[1:]))

    def test_a_restart_drops_variables_and_works(self):
        self.assertEqual(Cell(self.client, "let forgotten = 1;").status, "ok")
        self.manager.restart_kernel()
        self.client.wait_for_ready(timeout=60)
        self.assertEqual(Cell(self.client, "forgotten").status, "error")
        self.assertEqual(Cell(self.client, "1").status, "ok")


if __name__ == "__main__":
    unittest.main(verbosity=2)
