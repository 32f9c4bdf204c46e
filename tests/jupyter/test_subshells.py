"""Answers while a cell runs: subshells (JEP 91), completions, inspections, and the queue of cells."""

import time

from driver import FIRST_CELL, WithKernel

LONG_CELL = "for step in 0..60 { std::thread::sleep(std::time::Duration::from_millis(100)); let _ = step; }"
# How fast an answer must be on a busy machine; benches/results/kernels.md has the measured times.
SOON = 3


class Subshells(WithKernel):
    ALONE = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.execute_interactive(FIRST_CELL, timeout=120)
        cls.client.execute_interactive("let weights = vec![1.0f32; 4];", timeout=120)
        cls.subshell = cls.control("create_subshell_request")["subshell_id"]

    @classmethod
    def control(cls, kind, **content):
        message = cls.client.session.msg(kind, content)
        cls.client.control_channel.send(message)
        while True:
            reply = cls.client.get_control_msg(timeout=10)
            if reply["parent_header"]["msg_id"] == message["header"]["msg_id"]:
                return reply["content"]

    def send(self, kind, subshell=None, **content):
        message = self.client.session.msg(kind, content)
        if subshell:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def execute(self, code, subshell=None):
        return self.send("execute_request", subshell, code=code, silent=False, store_history=True)

    def answer(self, message, timeout=60):
        """Returns a reply's content and what was published for its request until then."""
        deadline = time.time() + timeout
        while message not in self.replies:
            reply = self.client.get_shell_msg(timeout=deadline - time.time())
            self.replies[reply["parent_header"]["msg_id"]] = reply["content"]
        shown = []
        while True:
            published = self.client.get_iopub_msg(timeout=deadline - time.time())
            if published["parent_header"].get("msg_id") != message:
                continue
            if published["content"].get("execution_state") == "idle":
                return self.replies[message], "\n".join(shown)
            data = published["content"].get("data", {})
            shown.append(data.get("text/plain", "") + published["content"].get("text", ""))

    def setUp(self):
        self.replies = {}

    def test_the_kernel_declares_them(self):
        message = self.client.session.msg("kernel_info_request", {})
        self.client.control_channel.send(message)
        info = self.client.get_control_msg(timeout=10)["content"]
        self.assertIn("kernel subshells", info["supported_features"])

    def test_subshells_are_created_listed_and_deleted(self):
        created = self.control("create_subshell_request")["subshell_id"]
        listed = self.control("list_subshell_request")["subshell_id"]
        self.assertEqual(set(listed), {self.subshell, created})
        self.assertEqual(self.control("delete_subshell_request", subshell_id=created)["status"], "ok")
        self.assertEqual(self.control("list_subshell_request")["subshell_id"], [self.subshell])
        again = self.control("delete_subshell_request", subshell_id=created)
        self.assertEqual(again["status"], "error")
        refused = self.execute(":vars", created)
        reply, _ = self.answer(refused, timeout=10)
        self.assertEqual(reply["status"], "error")

    def test_answers_come_while_a_cell_runs(self):
        running = self.execute(LONG_CELL)
        time.sleep(1.5)
        times = {}

        def timed(name, message):
            started = time.time()
            content, shown = self.answer(message, timeout=10)
            times[name] = time.time() - started
            return content, shown

        code = "weights.spl"
        found, _ = timed("complete", self.send("complete_request", code=code, cursor_pos=len(code)))
        self.assertIn("split_at", found["matches"])
        asked = self.send("inspect_request", code="weights", cursor_pos=3, detail_level=0)
        self.assertTrue(timed("inspect", asked)[0]["found"])
        for command, expected in [
            (":vars", "weights"),
            (":shapes", "(2, 3)"),
            (":type weights.len()", "usize"),
            (":time", "has run for"),
            (":queue", "No cell waits"),
        ]:
            content, shown = timed(command, self.execute(command, self.subshell))
            self.assertEqual(content["status"], "ok", shown)
            self.assertIn(expected, shown)
        print({name: round(seconds, 3) for name, seconds in times.items()})
        self.assertLess(max(times.values()), SOON, times)
        # The cell is not done.
        self.assertNotIn(running, self.replies)
        self.assertEqual(self.answer(running)[0]["status"], "ok")

    def test_waiting_cells_are_listed_and_cancelled(self):
        running = self.execute(LONG_CELL)
        first, second = self.execute("let kept = 1;"), self.execute("let dropped = 2;")
        beside = self.execute("kept + 1", self.subshell)
        time.sleep(1)
        _, listed = self.answer(self.execute(":queue", self.control("create_subshell_request")["subshell_id"]))
        self.assertEqual(listed.strip().split("\n"), ["1  let kept = 1;", "2  let dropped = 2;"])
        other = self.control("create_subshell_request")["subshell_id"]
        _, shown = self.answer(self.execute(":cancel 2", other))
        self.assertIn("cancelled: let dropped = 2;", shown)
        content, _ = self.answer(self.execute(":cancel 7", other))
        self.assertEqual(content["status"], "error")
        for message, status in [(running, "ok"), (first, "ok")]:
            while message not in self.replies:
                reply = self.client.get_shell_msg(timeout=60)
                self.replies[reply["parent_header"]["msg_id"]] = reply["content"]
            self.assertEqual(self.replies[message]["status"], status)
        self.assertEqual(self.replies[second]["status"], "aborted")
        # Rust code in a subshell waits for the cells that were requested before it.
        while beside not in self.replies:
            reply = self.client.get_shell_msg(timeout=60)
            self.replies[reply["parent_header"]["msg_id"]] = reply["content"]
        self.run_cell("assert_eq!(kept, 1);")
        self.run_cell("dropped", status="error")

    def test_the_kernel_stays_busy_while_a_cell_runs(self):
        running = self.execute(LONG_CELL)
        time.sleep(1)
        self.answer(self.execute(":vars", self.subshell))
        # After the idle status of the command comes a busy one of the cell.
        published = self.client.get_iopub_msg(timeout=2)
        self.assertEqual(published["content"].get("execution_state"), "busy")
        self.assertEqual(published["parent_header"]["msg_id"], running)
        self.assertEqual(self.answer(running)[0]["status"], "ok")

    def test_an_interrupt_stops_the_cell_and_keeps_the_variables(self):
        running = self.execute("loop { std::hint::spin_loop(); }")
        time.sleep(1.5)
        _, shown = self.answer(self.execute(":time", self.subshell))
        self.assertIn("has run for", shown)
        self.manager.interrupt_kernel()
        self.assertEqual(self.answer(running)[0]["ename"], "interrupted")
        self.run_cell("assert_eq!(weights.len(), 4);")
