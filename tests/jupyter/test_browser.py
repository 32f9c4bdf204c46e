"""A notebook in JupyterLab and in Notebook 7; browser.py says what this needs."""

import pathlib
import re
import tempfile
import time
import unittest

import nbformat
from nbformat.sign import NotebookNotary

from browser import PATIENCE, RUNNING, Lab, WithNotebook, chromium, expect, sync_playwright


class BrowserTest(WithNotebook):
    def different(self, seen, count=3):
        """Waits until `seen` has given `count` different answers."""
        found = []
        deadline = time.time() + PATIENCE
        while len(found) < count:
            self.assertLess(time.time(), deadline, f"only {len(found)} states were seen")
            state = seen()
            if state not in found:
                found.append(state)
            self.page.wait_for_timeout(50)
        return found

    def test_a_result_a_tensor_and_a_chart_are_shown(self):
        expect(self.result("6 * 7")).to_have_text("42")
        tensor = self.result("device.tensor([[1.5f32, 2.0], [3.0, 4.0]])")
        expect(tensor.get_by_text("2×2 f32 cpu")).to_be_visible()
        expect(tensor.locator("table td").first).to_have_text("1.5")
        chart = self.result('LineChart::new("Loss").line("run", &[(0.0, 2.0), (1.0, 1.0)])')
        svg = chart.locator("svg")
        expect(svg).to_be_visible()
        box = svg.bounding_box()
        self.assertGreater(box["width"], 300)
        self.assertGreater(box["height"], 200)
        expect(svg.get_by_text("Loss")).to_be_visible()
        size = (box["width"], box["height"])
        shown = self.result('display::png(&LineChart::new("Loss").line("run", &[(0.0, 1.0)]).png()?);')
        picture = shown.locator("img")
        expect(picture).to_be_visible()
        # It has 1440×720 pixels and is as large as the chart above.
        box = picture.bounding_box()
        self.assertEqual((round(box["width"]), round(box["height"])), tuple(map(round, size)))

    def test_a_chart_and_a_bar_move_while_the_loop_runs(self):
        # No fixed waiting times: the loop runs until it is stopped.
        cell = self.run_cell(
            'let bar = progress::bar(100_000, "steps");\n'
            'let mut chart = LiveChart::new(LineChart::new("Live"));\n'
            "for step in 1.. {\n"
            "    std::thread::sleep(std::time::Duration::from_millis(20));\n"
            "    bar.inc(1);\n"
            '    chart.push("loss", step as f64, 1.0 / step as f64);\n'
            "}"
        )
        svg = cell.locator(".jp-OutputArea-output svg")
        expect(svg).to_be_visible()
        bar = cell.locator(".jp-OutputArea-output pre", has_text="of 100,000")
        expect(bar).to_be_visible()
        charts = self.different(svg.inner_html)
        bars = self.different(bar.inner_text)
        expect(cell.locator(".jp-InputPrompt")).to_have_text(RUNNING)
        self.assertEqual(len(set(charts)), 3)
        counts = [int(re.search(r"([\d,]+) of", text)[1].replace(",", "")) for text in bars]
        self.assertEqual(counts, sorted(counts))
        # Both were updated in place: there is one of each.
        expect(svg).to_have_count(1)
        expect(bar).to_have_count(1)
        self.button("notebook:interrupt-kernel")
        self.done(cell)

    def test_the_stop_button_and_its_keys_end_a_loop_and_keep_variables(self):
        self.done(self.run_cell("let kept = 7;"))
        for turn, stop in enumerate(("button", "keys")):
            cell = self.run_cell(f'println!("turn {turn}");\nloop {{}}')
            expect(cell.locator(".jp-OutputArea-output").first).to_have_text(f"turn {turn}")
            expect(cell.locator(".jp-InputPrompt")).to_have_text(RUNNING)
            if stop == "button":
                self.button("notebook:interrupt-kernel")
            else:
                for key in ("Escape", "i", "i"):
                    self.keys.press(key)
            self.done(cell)
            expect(cell.locator(".jp-OutputArea-output").last).to_contain_text("interrupted")
        expect(self.result("kept")).to_have_text("7")

    def test_tab_lists_completions_and_enter_takes_one(self):
        self.done(self.run_cell("let letters = vec!['a'];"))
        cell = self.write("letters.is_")
        self.keys.press("Tab")
        listed = self.page.locator(".jp-Completer")
        expect(listed.get_by_text("is_empty", exact=True)).to_be_visible()
        expect(listed.get_by_text("is_sorted", exact=True)).to_be_visible()
        self.keys.type("em")
        expect(listed.get_by_text("is_sorted", exact=True)).to_have_count(0)
        self.keys.press("Enter")
        expect(cell.locator(".cm-content")).to_contain_text("letters.is_empty")

    def test_one_notebook_can_show_two_pages_of_attention(self):
        self.done(self.run_cell(
            "let config = Size::Tiny.config(8);\n"
            "let layout = Layout::new(&config, &PRETRAINING);\n"
            "let mut engine = Backend::Reference.engine(&config, &layout, layout.initialise(1))?;\n"
            'let vocab = "[PAD] [UNK] [CLS] [SEP] [MASK] one two three".split(\' \');\n'
            "let wordpiece = WordPiece::from_vocab(vocab.map(String::from).collect(), Casing::Uncased)?;"
        ))
        frames = []
        for texts in ('"one two", None', '"two", Some("three one")'):
            shown = self.result(f"AttentionView::of(engine.as_mut(), &wordpiece, {texts})?")
            self.assertGreater(shown.locator("iframe").bounding_box()["height"], 400)
            frames.append(shown.frame_locator("iframe"))
        for frame, tokens in zip(frames, (4, 6), strict=True):
            expect(frame.locator(".tokens.from .token")).to_have_count(tokens)
            frame.locator(".tokens.from .token").nth(1).click()
        # Each has its own state.
        expect(frames[0].locator("aside h2")).to_have_text("one looks at")
        expect(frames[1].locator("aside h2")).to_have_text("two looks at")
        frames[1].get_by_role("tab", name="Neuron").click()
        expect(frames[1].locator("tbody tr")).to_have_count(6)
        expect(frames[0].get_by_role("tab", selected=True)).to_have_text("Head")
        # The page follows the notebook's colours, whatever the system's are.
        expect(frames[0].locator("html")).to_have_attribute("data-theme", "light")
        around = self.page.locator("body")
        around.evaluate("body => body.style.setProperty('--jp-layout-color0', '#111')")
        around.evaluate("body => body.style.setProperty('--jp-layout-color1', '#111')")
        expect(frames[0].locator("html")).to_have_attribute("data-theme", "dark")
        around.evaluate("body => body.removeAttribute('style')")

    def test_an_error_shows_its_sentence_and_is_red(self):
        cell = self.done(self.run_cell('let wrong: i32 = "no";'))
        shown = cell.locator(".jp-OutputArea-output").last
        expect(shown).to_contain_text("`i32` is expected here, and this is `&str`")
        expect(shown).to_contain_text("this cell, line 1")
        colour = "e => getComputedStyle(e).color.match(/\\d+/g).map(Number)"
        red, green, blue = shown.locator(".ansi-red-intense-fg").first.evaluate(colour)[:3]
        self.assertGreater(red, 150)
        self.assertLess(max(green, blue), 100)

    def test_a_question_has_a_field_for_its_answer(self):
        cell = self.run_cell('let name = input::ask("Name? ")?;\nname.to_uppercase()')
        expect(cell.locator(".jp-Stdin-prompt")).to_have_text(re.compile(r"Name\?"))
        field = cell.locator("input.jp-Stdin-input")
        expect(field).to_be_focused()
        self.keys.type("Größe")
        self.keys.press("Enter")
        self.done(cell)
        expect(field).to_have_count(0)
        expect(cell.locator(".jp-OutputArea-output").last).to_have_text('"GRÖSSE"')

    def test_a_slider_moves_a_picture_and_a_saved_notebook_shows_both(self):
        cell = self.done(self.run_cell(
            'Slider::new("slope", 0.0..=2.0).start(1.0).step(0.25).show(|slope| {\n'
            '    LineChart::new(format!("slope {slope:?}")).line("y", &[(0.0, 0.0), (1.0, slope)])\n'
            "});"
        ))
        slider = cell.locator(".widget-slider")
        expect(slider.locator(".widget-readout")).to_have_text("1.00")
        picture = cell.locator(".jp-OutputArea-output svg")
        expect(picture.get_by_text("slope 1.0", exact=True)).to_be_visible()
        handle = slider.locator(".noUi-handle")
        handle.focus()
        for _ in range(3):
            self.keys.press("ArrowRight")
        expect(picture.get_by_text("slope 1.75", exact=True)).to_be_visible()
        # With the mouse, too, and while another cell runs.
        running = self.run_cell("loop { std::thread::sleep(std::time::Duration::from_millis(1)); }")
        expect(running.locator(".jp-InputPrompt")).to_have_text(RUNNING)
        track = slider.locator(".noUi-connects").bounding_box()
        self.page.mouse.click(track["x"] + 2, track["y"] + track["height"] / 2)
        expect(picture.get_by_text("slope 0.0", exact=True)).to_be_visible()
        expect(picture).to_have_count(1)
        self.button("notebook:interrupt-kernel")
        self.done(running)
        self.button("docmanager:save")
        file = self.lab.files / "seen.ipynb"
        deadline = time.time() + PATIENCE
        while "slope 0.0" not in file.read_text(encoding="utf-8"):
            self.assertLess(time.time(), deadline, "the notebook was not saved")
            time.sleep(0.1)
        notebook = nbformat.read(file, as_version=4)
        # Otherwise the page would show no markup of a file that it did not write.
        NotebookNotary().sign(notebook)
        nbformat.write(notebook, self.lab.files / "again.ipynb")
        page = self.browser.new_page(viewport={"width": 1100, "height": 900})
        self.addCleanup(page.close)
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(self.lab.address("again.ipynb"))
        # Its own kernel has run no cell.
        expect(page.locator(".jp-OutputArea-output svg").get_by_text("slope 0.0")).to_be_visible()
        expect(page.locator(".widget-slider .widget-readout")).to_have_text("0.00")

    def test_a_widget_of_ones_own_counts_clicks_in_rust(self):
        cell = self.done(self.run_cell(
            'let module = "export default { render({ model, el }) {\n'
            "    const button = document.createElement('button');\n"
            "    const show = () => button.textContent = `square ${model.get('square')}`;\n"
            "    button.onclick = () => {\n"
            "        model.set('clicks', model.get('clicks') + 1);\n"
            "        model.save_changes();\n"
            "    };\n"
            "    model.on('change:square', show);\n"
            "    show();\n"
            "    el.append(button);\n"
            '} }";\n'
            "use cloze::view::{Widget, json};\n"
            'Widget::new(module, json!({ "clicks": 0, "square": 0 })).show(|counter| {\n'
            '    let clicks = counter.get("clicks").and_then(|clicks| clicks.as_i64()).unwrap_or(0);\n'
            '    counter.set("square", json!(clicks * clicks));\n'
            "});"
        ))
        button = cell.locator(".jp-OutputArea-output button")
        expect(button).to_have_text("square 0")
        for square in ("square 1", "square 4", "square 9"):
            button.click()
            expect(button).to_have_text(square)

    def run_all(self, first, *others):
        """Writes cells, chooses "Run All Cells" in the menu, and returns the cells."""
        self.write(first)
        for count, code in enumerate(others, 2):
            for key in ("Escape", "b"):
                self.keys.press(key)
            expect(self.cells).to_have_count(count)
            self.write(code)
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(r"^Run$")).click()
        self.page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
        return [self.cells.nth(n) for n in range(1 + len(others))]

    def test_run_all_stops_at_a_panic(self):
        first, wrong, after = self.run_all("let first = 1;\nfirst", 'panic!("stop here")', "2")
        self.done(wrong)
        expect(first.locator(".jp-OutputArea-output")).to_have_text("1")
        expect(wrong.locator(".jp-OutputArea-output")).to_contain_text("stop here")
        # The cell below was aborted.
        expect(after.locator(".jp-InputPrompt")).to_have_text(re.compile(r"^\[ \]:$"))
        expect(after.locator(".jp-OutputArea-output")).to_have_count(0)

    def test_run_all_does_not_wait_at_the_questions_of_a_lesson(self):
        review, other, last = self.run_all(":review 04", "6 * 7", ":review 05")
        expect(self.done(last).locator("details")).to_have_count(5)
        expect(other.locator(".jp-OutputArea-output")).to_have_text("42")
        answers = review.locator("details")
        expect(answers).to_have_count(5)
        expect(answers.first.locator("p").first).to_be_hidden()
        answers.first.locator("summary").click()
        expect(answers.first.locator("p").first).to_be_visible()
        # Alone, the cell asks.
        review.locator(".cm-content").click()
        self.keys.press("Control+Enter")
        expect(review.locator(".jp-Stdin-prompt")).to_have_text(re.compile("Your answer"))
        self.keys.press("Enter")
        self.done(review)
        expect(review.locator(".jp-OutputArea-output").last).to_have_text("You left all 5 open.")

    def test_after_a_restart_the_variables_are_gone(self):
        self.done(self.run_cell("let gone = 7;"))
        self.button("notebook:restart-kernel")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        expect(self.page.locator(".jp-Dialog")).to_have_count(0)
        expect(self.idle).to_be_visible()
        cell = self.done(self.run_cell("gone"))
        shown = cell.locator(".jp-OutputArea-output").last
        expect(shown).to_contain_text("gone")
        expect(shown).to_contain_text("E0425")
        # The count of cells starts again too.
        expect(cell.locator(".jp-InputPrompt")).to_have_text("[1]:")
        self.done(self.run_cell("use cloze::prelude::*;\nlet device = Cpu::default();"))


@unittest.skipIf(sync_playwright is None, "playwright is not installed")
class NotebookTest(unittest.TestCase):
    """Notebook 7, which has JupyterLab's parts in another frame."""

    def test_a_cell_a_chart_an_interrupt_and_a_slider(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        lab = Lab(pathlib.Path(folder.name), "notebook")
        self.addCleanup(lab.stop)
        lab.notebook("one.ipynb")
        browser = chromium(self.addCleanup)
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(f"http://127.0.0.1:{lab.port}/notebooks/one.ipynb?token={lab.token}")
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        expect(cells).to_have_count(1)

        def run(code):
            cell = cells.nth(cells.count() - 1)
            cell.locator(".cm-content").click()
            page.keyboard.insert_text(code)
            prompt = cell.locator(".jp-InputPrompt")
            # Until the page has met its kernel it runs no cell, and nothing on it shows when it has.
            deadline = time.time() + PATIENCE
            while prompt.inner_text() == "[ ]:":
                self.assertLess(time.time(), deadline, "the page did not run the cell")
                cell.locator(".cm-content").click()
                page.keyboard.press("Shift+Enter")
                page.wait_for_timeout(1000)
            return cell

        first = run(
            "use cloze::prelude::*;\n"
            'Slider::new("slope", 0.0..=2.0).start(1.0).show(|slope| {\n'
            '    LineChart::new(format!("slope {slope:?}")).line("y", &[(0.0, 0.0), (1.0, slope)])\n'
            "});\n6 * 7"
        )
        expect(first.locator(".jp-OutputArea-executeResult")).to_contain_text("42")
        expect(first.locator(".widget-slider .widget-readout")).to_have_text("1.00")
        expect(first.locator("svg").get_by_text("slope 1.0", exact=True)).to_be_visible()
        loop = run("loop {}")
        expect(loop.locator(".jp-InputPrompt")).to_have_text(RUNNING)
        page.locator('[data-command="notebook:interrupt-kernel"]').first.click()
        expect(loop.locator(".jp-OutputArea-output")).to_contain_text("interrupted")
