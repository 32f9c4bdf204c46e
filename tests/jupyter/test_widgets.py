"""Widgets: comm messages between the page and a function of a cell, and what a saved notebook keeps of them.

test_browser.py moves a slider in JupyterLab.
"""

import time

import nbformat
from nbclient import NotebookClient

from driver import WithKernel

PRELUDE = "use cloze::prelude::*;"
SLIDER = (
    'Slider::new("slope", 0.0..=2.0).start(1.0).show(|slope| {\n'
    '    if slope == 1.111 { panic!("no such slope"); }\n'
    '    while slope == 1.222 { std::thread::sleep(std::time::Duration::from_millis(5)); }\n'
    '    display::Content::text(format!("slope is {slope:?}"))\n'
    "});"
)
# How fast the picture must follow on a busy machine.
SOON = 20


class Widgets(WithKernel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.execute_interactive(PRELUDE, timeout=120)

    def opened(self, cell):
        """Returns the widgets that a cell has opened: their states by their ids."""
        opened = [m for m in cell.messages if m["msg_type"] == "comm_open"]
        for message in opened:
            self.assertEqual(message["content"]["target_name"], "jupyter.widget")
            self.assertEqual(message["metadata"]["version"], "2.1.0")
        return {m["content"]["comm_id"]: m["content"]["data"]["state"] for m in opened}

    def slider(self):
        cell = self.run_cell(SLIDER)
        widgets = self.opened(cell)
        (model,) = (i for i, state in widgets.items() if state["_model_name"] == "FloatSliderModel")
        view, picture = cell.of("display_data")
        self.assertEqual(view["data"]["application/vnd.jupyter.widget-view+json"]["model_id"], model)
        self.assertEqual(view["data"]["text/plain"], "slope = 1")
        self.assertEqual(picture["data"]["text/plain"], "slope is 1.0")
        for part in ("layout", "style"):
            self.assertIn(widgets[model][part].removeprefix("IPY_MODEL_"), widgets)
        return model, picture["transient"]["display_id"]

    def send(self, model, data, kind="comm_msg"):
        content = {"comm_id": model, "data": data}
        self.client.shell_channel.send(self.client.session.msg(kind, content))

    def move(self, model, value):
        self.send(model, {"method": "update", "state": {"value": value}, "buffer_paths": []})

    def next(self, kind, wanted=lambda content: True):
        deadline = time.time() + SOON
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.time()))
            if message["msg_type"] == kind and wanted(message["content"]):
                return message["content"]

    def shows(self, display, text):
        def this(content):
            shown = content["data"].get("text/plain")
            return content["transient"]["display_id"] == display and shown == text
        self.next("update_display_data", this)

    def test_a_picture_follows_its_slider_without_another_compilation(self):
        model, display = self.slider()
        for value in (0.5, 2.0, 1.0):
            self.move(model, value)
            self.shows(display, f"slope is {value}")

    def test_it_follows_while_a_cell_runs_and_the_cell_goes_on(self):
        model, display = self.slider()
        asked = self.client.execute(
            "for _ in 0..30 { std::thread::sleep(std::time::Duration::from_millis(100)); }\n"
            'println!("the end");'
        )
        self.next("execute_input")
        self.move(model, 0.25)
        self.shows(display, "slope is 0.25")
        ended = lambda content: content.get("text") == "the end\n"
        self.next("stream", ended)
        reply = self.client.get_shell_msg(timeout=60)
        self.assertEqual((reply["parent_header"]["msg_id"], reply["content"]["status"]), (asked, "ok"))

    def test_a_slider_that_cannot_move_is_explained(self):
        cell = self.run_cell('Slider::new("s", 1.0..=1.0).show(|x| display::Content::text(format!("{x}")));')
        (shown,) = cell.of("display_data")
        self.assertIn("slider `s`: expected a range", shown["data"]["text/plain"])
        self.assertEqual(self.opened(cell), {})

    def test_a_fast_slider_ends_at_its_last_value(self):
        model, display = self.slider()
        for step in range(201):
            self.move(model, step / 100)
        self.shows(display, "slope is 2.0")

    def test_a_panic_is_printed_and_the_next_value_is_shown(self):
        model, display = self.slider()
        self.move(model, 1.111)
        self.next("stream", lambda content: "no such slope" in content["text"])
        self.move(model, 0.75)
        self.shows(display, "slope is 0.75")
        self.assertEqual(self.run_cell("20 + 1").of("execute_result")[0]["data"]["text/plain"], "21")

    def test_the_stop_button_ends_a_function_that_does_not(self):
        model, display = self.slider()
        self.move(model, 1.222)
        time.sleep(0.5)
        self.manager.interrupt_kernel()
        self.move(model, 0.5)
        self.shows(display, "slope is 0.5")

    def test_a_page_that_is_loaded_again_finds_the_widgets(self):
        model, display = self.slider()
        self.move(model, 0.5)
        self.shows(display, "slope is 0.5")
        self.client.comm_info(target_name="jupyter.widget")
        comms = self.client.get_shell_msg(timeout=10)["content"]["comms"]
        self.assertEqual(comms[model], {"target_name": "jupyter.widget"})
        self.send(model, {"method": "request_state"})
        update = self.next("comm_msg", lambda content: content["data"]["method"] == "update")
        self.assertEqual(update["comm_id"], model)
        self.assertEqual(update["data"]["state"]["value"], 0.5)
        # The page's own comm for all states at once is refused, so it asks for each.
        content = {"comm_id": "page-1", "target_name": "jupyter.widget.control", "data": {}}
        self.client.shell_channel.send(self.client.session.msg("comm_open", content))
        self.assertEqual(self.next("comm_close")["comm_id"], "page-1")

    def test_a_module_of_ones_own_changes_the_state_and_is_changed(self):
        cell = self.run_cell(
            "use cloze::view::Widget;\n"
            'let counter = Widget::new("export default {}", cloze::view::json!({ "clicks": 0 }))\n'
            '    .css("b {}").show(|counter| println!("{:?} clicks", counter.get("clicks")));'
        )
        (model,) = (
            i for i, state in self.opened(cell).items() if state["_model_name"] == "AnyModel"
        )
        state = self.opened(cell)[model]
        self.assertEqual((state["_esm"], state["_css"]), ("export default {}", "b {}"))
        self.send(model, {"method": "update", "state": {"clicks": 3}, "buffer_paths": []})
        self.next("stream", lambda content: content["text"] == "Some(Number(3)) clicks\n")
        cell = self.run_cell('counter.set("clicks", cloze::view::json!(10)); counter.get("clicks")')
        (sent,) = cell.of("comm_msg")
        self.assertEqual(sent["data"]["state"], {"clicks": 10})
        self.assertEqual(cell.of("execute_result")[0]["data"]["text/plain"], "Some(Number(10))")

    def test_the_page_learns_that_a_widget_is_gone(self):
        model, _ = self.slider()
        self.run_cell(":clear")
        self.move(model, 0.5)
        self.assertEqual(self.next("comm_close")["comm_id"], model)
        self.run_cell(PRELUDE)
        model, _ = self.slider()
        self.send(model, {}, kind="comm_close")
        self.move(model, 0.5)
        self.assertEqual(self.next("comm_close")["comm_id"], model)

    def test_a_saved_notebook_has_the_state_and_the_picture(self):
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(code) for code in (PRELUDE, SLIDER)]
        )
        NotebookClient(notebook, kernel_name="cloze", timeout=120).execute()
        saved = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
        states = {widget["model_name"]: widget["state"] for widget in saved.values()}
        self.assertEqual(states["FloatSliderModel"]["value"], 1.0)
        self.assertEqual(notebook.cells[1].outputs[1]["data"]["text/plain"], "slope is 1.0")
