"""The explorable pictures of the lessons in a real browser, used by mouse and keyboard.

Needs Chromium and Playwright as browser.py does, and `cloze` built. The expected numbers are the crate's: a unit test
compares tests/fixtures/pictures/expected.json with what it computes, and the page that follows a token is compared with
what other commands print.
"""

import html
import json
import pathlib
import re
import subprocess
import unittest

from browser import WithPages, expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOZE = ROOT / "target" / "debug" / "cloze"
EXPECTED = json.loads((ROOT / "tests/fixtures/pictures/expected.json").read_text(encoding="utf-8"))
NAMES = ("layer-norm", "softmax", "heads", "residual", "masking", "schedule")
VOCABULARY = ROOT / "lessons/data/cloze-tiny/vocab.txt"
TEXT = "He opened the [MASK]."


def cloze(*arguments, stdin=None):
    run = subprocess.run([CLOZE, *arguments], capture_output=True, text=True, check=False, timeout=300, input=stdin)
    assert run.returncode == 0, run.stderr
    return run.stdout


class PicturesTest(WithPages):
    """Each test has its own page, which must not report errors or send requests."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in NAMES:
            cloze("lessons", "picture", name, "--out", cls.folder / f"{name}.html")
        follow = ["lessons", "picture", "token", "--text", TEXT, "--answer", "door"]
        cloze(*follow, "--out", cls.folder / "token.html")
        for after in (1, 3, 7):
            cloze(*follow, "--after", f"{after:02}", "--out", cls.folder / f"after-{after}.html")

    def opened(self, name, width=1100, scheme="light"):
        page = self.quiet(self.folder / f"{name}.html", width=width, height=900, scheme=scheme)
        expect(page.locator("h1")).not_to_be_empty()
        return page

    def column(self, root, index):
        """Returns the numbers of a column of a table, whose first cell has the name."""
        rows = root.locator("tbody tr").all()
        return [float(row.locator("td").nth(index).locator("data").get_attribute("value")) for row in rows]

    def near(self, found, expected, delta=1e-5):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected, strict=True):
            self.assertAlmostEqual(a, b, delta=delta * max(1, abs(b)))

    def drag(self, page, handle, x, y):
        """Drags the middle of an element by some pixels."""
        box = handle.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 + x, box["y"] + box["height"] / 2 + y, steps=4)
        page.mouse.up()

    def slide(self, page, label, value):
        """Moves a slider by its keys to a value, as a hand would, and returns it."""
        slider = page.get_by_label(label, exact=True)
        slider.focus()
        step = float(slider.get_attribute("step"))
        for _ in range(2000):
            away = value - float(slider.input_value())
            if abs(away) < step / 2:
                return slider
            page.keyboard.press("ArrowRight" if away > 0 else "ArrowLeft")
        raise AssertionError(f"{label} does not reach {value}")

    def test_softmax_by_keys_and_mouse(self):
        page = self.opened("softmax")
        table = page.locator("table")
        start, moved, cold = EXPECTED["softmax"]

        def shows(case):
            self.near(self.column(table, 1), case["dots"])
            self.near(self.column(table, 4), case["weights"])

        shows(start)
        query = page.get_by_role("slider", name="query")
        query.focus()
        for key in ("Shift+ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        shows(moved)
        expect(query).to_have_attribute("aria-valuetext", "2.1, 0.7")
        # Back by the mouse, to the nearest hundredth: a unit of the plane is 60 of 400 units.
        unit = page.locator("svg.plane").bounding_box()["width"] * 60 / 400
        self.drag(page, query, -0.5 * unit, -0.1 * unit)
        self.near(self.column(table, 1), start["dots"], 0.1)
        page.get_by_role("button", name="Start again").click()
        shows(start)
        state = page.locator(".state")
        expect(state).to_contain_text("Not yet: the largest weight is 49.")
        self.slide(page, "Temperature T", -1)
        shows(cold)
        page.get_by_role("button", name="T = √d").click()
        shows(start)

    def test_the_question_of_softmax_is_answered_by_trying(self):
        page = self.opened("softmax")
        answer = page.locator("details p")
        expect(answer).to_be_hidden()
        page.locator("summary").press("Enter")
        expect(answer).to_be_visible()
        state = page.locator(".state")
        self.slide(page, "Temperature T", -1)
        expect(state).to_contain_text("Not yet: the largest weight is 96")
        page.get_by_label("Temperature T").press("Home")
        expect(state).to_have_text("✓ You have found it.")
        page.get_by_role("slider", name="shore").press("ArrowLeft")
        expect(state).to_contain_text("You have moved an arrow")

    def test_layer_norm_by_keys_and_mouse(self):
        page = self.opened("layer-norm")
        table = page.locator("table")
        start, moved, scaled = EXPECTED["layer-norm"]

        def shows(case):
            self.near(self.column(table, 0), case["x"])
            self.near(self.column(table, 3), case["y"])

        shows(start)
        handle = page.get_by_role("slider", name="number 2")
        handle.press("Shift+ArrowUp")
        shows(moved)
        unit = page.locator("svg").first.bounding_box()["width"] / 390
        self.drag(page, handle, 0, 0.5 / 6 * 120 * unit)
        self.near(self.column(table, 0), start["x"], 0.06)
        page.get_by_role("button", name="Start again").click()
        self.slide(page, "γ", 2)
        self.slide(page, "β", -3)
        shows(scaled)

    def test_the_question_of_layer_norm(self):
        page = self.opened("layer-norm")
        state = page.locator(".state")
        expect(state).to_have_text("Not yet: 0 inputs are changed, 8 outputs are as they were.")
        page.get_by_role("slider", name="number 2").press("ArrowUp")
        expect(state).to_contain_text("1 inputs are changed")
        page.get_by_role("button", name="Start again").click()
        self.slide(page, "Add to all", 1)
        expect(page.locator(".state.done")).to_have_text("✓ You have found it.")

    def test_masks_are_those_of_the_crate(self):
        page = self.opened("masking")
        for case in EXPECTED["masking"]:
            page.get_by_label("choose whole words").set_checked(case["whole"])
            page.get_by_label("Example").press("Home")
            for example, first in enumerate(case["first"]):
                expect(page.get_by_label("Example")).to_have_value(str(example))
                self.assertEqual(page.locator(".sequence .seen").all_inner_texts(), first["seen"])
                chosen = page.locator(".sequence li").evaluate_all(
                    "all => all.flatMap((li, i) => li.classList.contains('fate') ? [i] : [])"
                )
                self.assertEqual(chosen, first["chosen"])
                page.keyboard.press("ArrowRight")
            chosen, masked, random, kept = self.column(page.locator("table"), 0)
            self.assertEqual((chosen, masked), (case["chosen"], case["masked"]))
            self.assertEqual(chosen, masked + random + kept)
            # A random token may be the one that stood there.
            self.assertAlmostEqual(kept, case["unchanged"], delta=12)

    def test_the_shares_of_masking_and_the_question(self):
        page = self.opened("masking")
        state = page.locator(".state")
        expect(state).to_contain_text("Not yet: it is asked for 3.")
        self.slide(page, "random token", 5)
        # Half a random token leaves at most half for [MASK].
        expect(page.get_by_label("of these [MASK]")).to_have_value("5")
        expect(page.locator("#kept")).to_have_text("kept as it is: 0 %")
        self.slide(page, "of these [MASK]", 10)
        expect(page.locator(".state.done")).to_have_count(1)
        self.assertEqual(self.column(page.locator("table"), 0)[2:], [0, 0])
        self.slide(page, "Chosen", 50)
        self.assertAlmostEqual(self.column(page.locator("table"), 1)[0], 0.5, delta=0.02)

    def test_heads_are_those_of_the_crate(self):
        page = self.opened("heads")

        def values(where):
            return page.locator(where).evaluate_all("all => all.map(d => Number(d.value))")

        expected = EXPECTED["heads"]
        self.near(values("#x data"), [v for row in expected["x"] for v in row])
        for case in expected["cases"]:
            page.get_by_role("radio", name=str(case["heads"]), exact=True).check(force=True)
            self.near(values("#parts .shares data"), case["weights"])
            back = page.get_by_label("transpose back")
            back.check()
            self.near(values("#joined data"), case["joined"])
            back.uncheck()
            self.near(values("#joined data"), case["wrong"])

    def test_a_number_is_followed_through_the_heads(self):
        page = self.opened("heads")
        path, state = page.locator("#path"), page.locator(".state")
        expect(path).to_contain_text("Column 3 of “cat” is number 1 of head 1")
        expect(path).to_contain_text("where it belongs")
        page.get_by_role("button", name="cat, column 3").focus()
        for key in ("ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
        expect(path).to_contain_text("Column 4 of “sat” is number 0 of head 2")
        expect(page.get_by_role("button", name="sat, column 4")).to_be_focused()
        page.get_by_label("transpose back").uncheck()
        expect(path).to_contain_text("not its own place")
        expect(state).to_contain_text("Not yet")
        page.get_by_role("button", name="down, column 5").click()
        expect(page.locator(".state.done")).to_have_count(1)
        page.get_by_role("radio", name="3", exact=True).press("ArrowLeft")
        expect(page.get_by_role("radio", name="2", exact=True)).to_be_focused()
        expect(state).to_have_text("Choose three heads.")

    def test_gradients_are_those_of_the_crate(self):
        page = self.opened("residual")
        for case in EXPECTED["residual"]:
            self.slide(page, "Layers", case["depth"])
            self.slide(page, "Size of the weights", case["scale"])
            self.slide(page, "Look below layer", case["layer"])
            for column, index in ((1, 0), (2, 1)):
                found = self.column(page.locator("table"), column)
                for a, lengths in zip(found, case["lengths"], strict=True):
                    self.assertAlmostEqual(a / lengths[index], 1, delta=1e-4)

    def test_the_question_of_the_residual(self):
        page = self.opened("residual")
        expect(page.locator(".state")).to_contain_text("Not yet")
        found = []
        slider = page.get_by_label("Size of the weights")
        slider.press("Home")
        for _ in range(58):
            plain = self.column(page.locator("table"), 2)[0]
            expect(page.locator(".state.done")).to_have_count(1 if 0.1 <= plain <= 10 else 0)
            found.append(0.1 <= plain <= 10)
            slider.press("ArrowRight")
        self.assertTrue(any(found) and not all(found))

    def test_rates_and_losses_of_a_schedule(self):
        page = self.opened("schedule")
        runs = json.loads((ROOT / "src/lessons/pictures/runs.json").read_text(encoding="utf-8"))
        for case in EXPECTED["schedule"]:
            peak = runs["peaks"].index(case["peak"])
            warmup = runs["warmups"].index(case["warmup"])
            decay = runs["decays"].index(case["decay"])
            for legend, index in (("Peak", peak), ("Warm-up", warmup), ("Decay", decay)):
                group = page.get_by_role("group", name=re.compile(legend))
                group.get_by_role("radio").nth(index).check(force=True)
            means = runs["runs"][peak][warmup][decay]
            for step, rate in case["rates"]:
                slider = page.get_by_label("Step", exact=True)
                slider.fill(str(step))
                shown = page.locator("#now data").evaluate_all("all => all.map(d => Number(d.value))")
                self.near(shown, [rate, means[(step - 1) // 5], means[-1]], 1e-9)

    def test_sick_runs_are_diagnosed(self):
        page = self.opened("schedule")
        faults = ["Placeless", "Fast", "None", "Visible", "Over", "Shifted"]
        runs = page.get_by_role("group", name="Run").get_by_role("radio")
        for right, fault in enumerate(faults, 1):
            page.get_by_label("Its fault").select_option(fault)
            if right < 6:
                expect(page.locator(".state")).to_have_text(f"{right} of 6 are right.")
                runs.nth(right - 1).focus()
                page.keyboard.press("ArrowRight")
                expect(runs.nth(right)).to_be_checked()
        expect(page.locator(".state.done")).to_have_count(1)

    def test_the_page_that_follows_a_token_has_the_model_s_numbers(self):
        page = self.opened("token")
        attention = json.loads(cloze("attention", TEXT, "--model", "cloze-tiny", "--json"))
        stages = page.locator(".stage")
        expect(stages).to_have_count(13)
        pieces = page.locator("#stage-02 tbody tr")
        self.assertEqual(pieces.locator("th").all_inner_texts(), attention["tokens"])
        ids = json.loads(cloze("tokenize", "--vocab", VOCABULARY, "--json", stdin=f"{TEXT}\n"))["ids"]
        self.assertEqual([int(x) for x in pieces.locator("td:nth-child(3)").all_inner_texts()], ids)
        # The head's weights, for another token, layer and head by keys.
        blank = attention["tokens"].index("[MASK]")
        weights = page.locator("#stage-04 table:not(.vectors)")
        self.near(self.column(weights, 2), attention["weights"][0][0][blank], 1e-4)
        page.get_by_label("Token", exact=True).select_option(index=2)
        page.get_by_label("Layer", exact=True).press("ArrowDown")
        page.get_by_role("button", name="next Head").press("Enter")
        self.near(self.column(weights, 2), attention["weights"][1][1][2], 1e-4)
        # The vector after the last layer, as `cloze features` prints it.
        asked = ["features", "--model", "cloze-tiny", "--pool", "none", "--layers", "-1"]
        features = json.loads(cloze(*asked, stdin=f"{TEXT}\n"))
        self.slide(page, "Number", 17)
        last = page.locator("#stage-06 .vectors").last.locator("tr").last.locator("data")
        self.assertAlmostEqual(float(last.get_attribute("value")), features["vectors"][2][17], delta=1e-4)
        # Softmax and loss, as `cloze fill-mask` has them.
        asked = ["fill-mask", TEXT, "--model", "cloze-tiny", "--top-k", "8000", "--json"]
        guesses = json.loads(cloze(*asked))["masks"][0]
        shares = {guess["token"]: guess["probability"] for guess in guesses}
        rows = page.locator("#stage-07 table:not(.vectors) tbody tr")
        self.assertEqual(rows.locator("th").all_inner_texts()[:8], [guess["token"] for guess in guesses[:8]])
        for name, share in zip(rows.locator("th").all_inner_texts(), self.column(rows.locator("xpath=ancestor::table"), 1)):
            self.assertAlmostEqual(share, shares[name], delta=1e-5)
        p, loss = page.locator("#stage-07 .formula data").evaluate_all("all => all.map(d => Number(d.value))")
        self.assertAlmostEqual(p, shares["door"], delta=1e-6)
        gradient = page.locator("#stage-08 tbody tr", has_text=re.compile("^door")).locator("data").last
        self.assertAlmostEqual(float(gradient.get_attribute("value")), p - 1, delta=1e-6)

    def test_sums_of_one_number_add_up(self):
        page = self.opened("token")
        page.get_by_label("Number", exact=True).press("End")
        embeddings = self.column(page.locator("#stage-03 .vectors"), 2)
        self.assertAlmostEqual(sum(embeddings[:3]), embeddings[3], delta=1e-6)
        head = page.locator("#stage-04")
        products = self.column(head.locator("table:not(.vectors)"), 5)
        context = self.column(head.locator(".vectors").last, 2)[0]
        self.assertAlmostEqual(sum(products), context, delta=1e-6)
        # A click into a vector chooses a number.
        canvas = page.locator("#stage-03 canvas").first
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] * 40.5 / 128, "y": 4})
        expect(page.get_by_label("Number", exact=True)).to_have_value("40")
        page.get_by_role("button", name="Start again").click()
        expect(page.get_by_label("Number", exact=True)).to_have_value("0")

    def test_a_stage_comes_with_each_lesson(self):
        for after in (1, 3, 7):
            page = self.opened(f"after-{after}")
            expect(page.locator(".stage")).to_have_count(after + 1)
            expect(page.locator("#next")).to_have_text(f"The next stage comes with lesson {after + 1:02}.")
            expect(page.get_by_label("Head", exact=True)).to_have_count(1 if after >= 4 else 0)

    def test_light_and_dark(self):
        colours = "() => ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))"
        for name in (*NAMES, "token"):
            for scheme, dark in (("light", False), ("dark", True)):
                page = self.opened(name, scheme=scheme)
                for expected in (dark, not dark):
                    paper, ink = page.evaluate(colours)
                    self.assertEqual((max(paper) < 60, min(ink) > 200), (expected, expected))
                    page.locator("#theme").click()

    def test_nothing_is_wider_than_the_window(self):
        for name in (*NAMES, "token"):
            for width in (1100, 700, 480):
                page = self.opened(name, width)
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width, name)

    def test_every_control_has_a_name_and_shows_its_focus(self):
        for name in (*NAMES, "token"):
            page = self.opened(name)
            seen = set()
            for _ in range(60):
                page.keyboard.press("Tab")
                focused = page.evaluate(
                    """() => {
                        const e = document.activeElement;
                        if (e === document.body) return null;
                        const text = e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent;
                        const shown = [e, e.nextElementSibling].some(it => {
                            const style = it && getComputedStyle(it);
                            return style && (style.outlineStyle === "solid" || style.outlineStyle === "auto"
                                || (it === e && style.strokeWidth === "3px"));
                        });
                        return [text.trim(), shown];
                    }"""
                )
                if focused is None:
                    break
                text, shown = focused
                self.assertTrue(text and shown, f"{name}: {focused}")
                seen.add(text)
            self.assertIn("Start again", seen)
            self.assertGreater(len(seen), 4)

    def test_a_frame_is_as_high_as_the_picture_and_has_the_notebook_s_colours(self):
        inner = html.escape((self.folder / "masking.html").read_text(encoding="utf-8"))
        frame = f'<body style="background: #111"><iframe srcdoc="{inner}" style="width: 700px; height: 200px"></iframe>'
        (self.folder / "frame.html").write_text(frame, encoding="utf-8")
        page = self.browser.new_page()
        self.addCleanup(page.close)
        page.goto((self.folder / "frame.html").as_uri())
        expect(page.frame_locator("iframe").locator("html")).to_have_attribute("data-theme", "dark")
        fits = """() => {
            const { document: { documentElement: root }, innerHeight } = window.frames[0];
            return Math.abs(innerHeight - root.getBoundingClientRect().height) < 6;
        }"""
        page.wait_for_function(fits)
        inside = page.frame_locator("iframe")
        inside.get_by_label("Chosen", exact=True).press("ArrowRight")
        expect(inside.locator(".slider", has_text="Chosen").locator("span")).to_have_text("20 %")
        page.evaluate("document.body.style.background = '#fff'")
        expect(inside.locator("html")).to_have_attribute("data-theme", "light")
