"""What users of evcxr's own kernel complain of, and how this one answers (docs/kernel.md has the table)."""

import os
import pathlib
import tempfile
import unittest

from jupyter_client.manager import start_new_kernel

from driver import Cell, WithKernel


class Complaints(WithKernel):
    def test_422_an_unfinished_path_is_an_error_and_the_kernel_goes_on(self):
        for code in ["let a = std::", "let b = ", "std::"]:
            self.run_cell(code, status="error", timeout=60)
        self.run_cell("let a = 3; assert_eq!(a, 3);")

    def test_404_after_a_wrong_input_the_next_one_is_answered(self):
        for code in ["let x: i32 = \"a\";", "nothing_of_that_name", "fn f( {", "}"]:
            cell = self.run_cell(code, status="error", timeout=60)
            states = [content["execution_state"] for content in cell.of("status")]
            self.assertEqual(states[-1], "idle")
            self.assertTrue(cell.of("error")[0]["evalue"])
        self.assertEqual(self.run_cell("1 + 1").of("execute_result")[0]["data"]["text/plain"], "2")

    def test_146_output_is_shown_while_the_cell_runs(self):
        cell = self.run_cell(
            'print!("begun"); std::thread::sleep(std::time::Duration::from_secs(2)); println!(" done");'
        )
        shown = [time for message, time in zip(cell.messages, cell.times) if message["msg_type"] == "stream"]
        self.assertEqual(cell.text(), "begun done\n")
        self.assertGreater(cell.times[-1] - shown[0], 1)


class Crates(unittest.TestCase):
    def test_304_a_crate_is_compiled_once_for_all_sessions(self):
        cell = ':dep itoa = "1"\nitoa::Buffer::new().format(7).to_owned()'
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "XDG_CACHE_HOME": cache}
            hits = []
            for _ in range(2):
                manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60, env=environment)
                try:
                    self.assertEqual(Cell(client, cell).status, "ok")
                finally:
                    client.stop_channels()
                    manager.shutdown_kernel(now=True)
                counts = pathlib.Path(cache).glob("evcxr/**/hits")
                hits.append(sum(int(path.read_text()) for path in counts))
            self.assertEqual(hits[0], 0)
            self.assertGreater(hits[1], 0)
