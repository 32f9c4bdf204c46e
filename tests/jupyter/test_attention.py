"""The page of `cloze attention` in a real browser, used by mouse and keyboard.

Needs Chromium and Playwright as browser.py does, and `cloze` built. With the environment variable
CLOZE_TEST_MINILM, which names a model folder, a published model is looked at too.
"""

import html
import json
import math
import os
import pathlib
import subprocess
import unittest

from browser import WithPages, expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOZE = ROOT / "target" / "debug" / "cloze"
FIXTURE = ROOT / "tests" / "fixtures" / "attention"
A, B = "I went to the store.", "At the store, I bought fresh strawberries."
VIEWS = ("head", "model", "neuron")
# The page computes weights from queries and keys of 16 bits.
NEAR = 2e-4


def attention(model, out, *texts, options=()):
    """Writes the page and returns what the command prints."""
    run = subprocess.run(
        [CLOZE, "attention", "--model", model, *texts, "--out", out, "--json", *options],
        capture_output=True, text=True, check=False, timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


class AttentionPageTest(WithPages):
    """Each test has its own page, which must not report errors or send requests."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = attention(FIXTURE, cls.folder / "pair.html", A, B)
        # 12 layers of 12 heads, a size that has no type, and texts of 100 words.
        config = json.loads((FIXTURE / "config.json").read_text(encoding="utf-8"))
        config |= {
            "hidden_size": 96, "num_hidden_layers": 12, "num_attention_heads": 12,
            "intermediate_size": 96, "max_position_embeddings": 128,
        }
        del config["vocab_size"]
        shape = cls.folder / "shape.json"
        shape.write_text(json.dumps({**config, "vocab_size": 17}), encoding="utf-8")
        pretrain = [
            CLOZE, "pretrain", "--size", shape, "--vocab", FIXTURE / "vocab.txt", "--steps", "1",
            "--batch", "2", "--seq", "64", "--out", cls.folder / "large",
        ]
        run = subprocess.run(pretrain, capture_output=True, text=True, check=False, timeout=600)
        assert run.returncode == 0, run.stderr
        words = "i went to the store , at the store i bought fresh strawberries . "
        cls.large = attention(cls.folder / "large", cls.folder / "large.html", words * 3, words * 4)

    def opened(self, name="pair.html", width=1280, scheme="light"):
        page = self.quiet(self.folder / name, width=width, scheme=scheme)
        expect(page.locator("[role=tab][aria-selected=true]")).to_have_count(1)
        return page

    def shares(self, root, rows="aside li"):
        """Returns token and share of each row of a list or table."""
        return root.locator(rows).evaluate_all(
            "rows => rows.map(row => [Number(row.dataset.index),"
            " Number([...row.querySelectorAll('data')].at(-1).value)])"
        )

    def agrees(self, shares, expected):
        """Returns whether the `shares` of some tokens are the largest of `expected`, which has one per token."""
        self.assertTrue(shares)
        for index, share in shares:
            self.assertAlmostEqual(share, expected[index], delta=NEAR)
        left = [x for i, x in enumerate(expected) if i not in dict(shares)]
        self.assertGreaterEqual(min(dict(shares).values()) + NEAR, max(left, default=0))

    def test_views_are_switched_by_keyboard_and_mouse(self):
        page = self.opened()
        tab = page.get_by_role("tab", selected=True)
        says = page.locator("#explains")
        explanations = []
        for name in ("Model", "Neuron", "Head"):
            page.get_by_role("tab", name=name).click()
            expect(tab).to_have_text(name)
            explanations.append(says.inner_text())
        self.assertEqual(len(set(explanations)), 3)
        page.get_by_role("tab", name="Head").focus()
        for key, name in (("ArrowRight", "Model"), ("End", "Neuron"), ("ArrowLeft", "Model")):
            page.keyboard.press(key)
            expect(tab).to_have_text(name)
            expect(tab).to_be_focused()

    def test_a_page_opens_with_the_view_asked_for(self):
        for view in VIEWS:
            attention(FIXTURE, self.folder / "one.html", A, options=["--view", view])
            page = self.opened("one.html")
            expect(page.locator("#stage")).to_have_class(view)
            expect(page.locator(".filter")).to_have_count(0)

    def test_hovering_shows_what_a_token_attends_to_and_a_click_keeps_it(self):
        page = self.opened()
        weights = self.found["weights"][0]
        mean = [
            [sum(head[i][j] for head in weights) / len(weights) for j in range(19)]
            for i in range(19)
        ]
        left, right = (page.locator(f".tokens.{side} .token") for side in ("from", "to"))
        self.assertEqual(left.all_inner_texts(), self.found["tokens"])
        left.nth(2).hover()
        expect(page.locator("aside h2")).to_have_text("went looks at")
        self.agrees(self.shares(page), mean[2])
        right.nth(5).hover()
        expect(page.locator("aside h2")).to_have_text("store is looked at by")
        self.agrees(self.shares(page), [row[5] for row in mean])
        left.nth(4).click()
        expect(left.nth(4)).to_have_attribute("aria-pressed", "true")
        right.nth(7).hover()
        expect(page.locator("aside h2")).to_have_text("the looks at")
        self.agrees(self.shares(page), mean[4])
        # The same shares stand beside the tokens, in per cent.
        for share, text in zip(mean[4], right.locator(".share").all_inner_texts(), strict=True):
            self.assertAlmostEqual(share, float(text or 0) / 100, delta=0.0052)
        left.nth(4).click()
        page.mouse.move(1, 1)
        expect(page.locator("aside h2")).to_have_text("Strongest links")

    def test_keys_select_and_keep_tokens(self):
        page = self.opened()
        page.locator(".tokens.from .token").first.focus()
        for key in ("ArrowDown", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        chosen = page.locator(".token.chosen")
        expect(chosen).to_have_attribute("data-index", "2")
        expect(chosen).to_have_attribute("aria-pressed", "true")
        # The focused element has an outline.
        style = "e => getComputedStyle(e).outlineStyle"
        self.assertEqual(page.locator(":focus").evaluate(style), "solid")
        page.keyboard.press("Tab")
        expect(page.locator(".tokens.to .token").first).to_be_focused()
        expect(page.locator("aside h2")).to_have_text("went looks at")
        page.keyboard.press("Escape")
        expect(page.locator("aside h2")).to_have_text("[CLS] is looked at by")

    def test_arrows_change_layer_and_head(self):
        page = self.opened()
        layer = page.get_by_label("Layer", exact=True)
        pressed = page.locator(".chip[aria-pressed=true]")
        expect(pressed).to_have_count(3)
        page.keyboard.press("ArrowDown")
        expect(layer).to_have_value("1")
        for text in ("0", "1"):
            page.keyboard.press("ArrowRight")
            expect(pressed).to_have_text(text)
        page.get_by_role("tab", name="Neuron").click()
        # On the tabs, arrows switch the view instead.
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowUp")
        expect(page.get_by_label("Head", exact=True)).to_have_value("2")
        expect(layer).to_have_value("0")

    def test_heads_are_switched_on_and_off(self):
        page = self.opened()
        chips, pressed = page.locator(".chip"), page.locator(".chip[aria-pressed=true]")
        note = page.locator("aside .note")
        chips.nth(1).click()
        expect(pressed).to_have_text(["0", "2"])
        expect(note).to_contain_text("Mean of 2 heads")
        chips.nth(1).dblclick()
        expect(pressed).to_have_text(["1"])
        expect(note).to_contain_text("Head 1, layer 0")
        for key in ("ArrowRight", "Space"):
            page.keyboard.press(key)
        expect(pressed).to_have_text(["1", "2"])
        page.keyboard.press("Shift+Enter")
        expect(pressed).to_have_text(["2"])
        page.get_by_role("button", name="None").click()
        expect(page.locator("aside h2")).to_have_text("No head is switched on")
        page.get_by_role("button", name="All").click()
        expect(pressed).to_have_count(3)

    def test_lines_are_as_strong_as_their_weights(self):
        page = self.opened()
        page.locator(".chip").nth(2).dblclick()
        head = self.found["weights"][0][2]
        # The line of the largest weight.
        token = max(range(19), key=lambda i: max(head[i]))
        page.locator(".tokens.from .token").nth(token).click()
        alpha = """([left, right]) => {
            const canvas = document.querySelector('.lines canvas');
            const rows = document.querySelectorAll('.tokens.from .token').length;
            const y = (left + right + 1) / 2 / rows * canvas.height;
            return [...canvas.getContext('2d').getImageData(canvas.width / 2, y, 1, 1).data];
        }"""
        best = max(range(19), key=lambda i: head[token][i])
        *colour, strength = page.evaluate(alpha, [token, best])
        for found, expected in zip(colour, (0x1F, 0x9E, 0x77), strict=True):
            self.assertAlmostEqual(found, expected, delta=3)
        self.assertAlmostEqual(strength / 255, math.sqrt(head[token][best]), delta=0.1)
        # Tiny weights have no line.
        least = min(range(19), key=lambda i: head[token][i])
        self.assertLess(page.evaluate(alpha, [token, least])[3], 40)

    def test_filters_show_one_text_on_each_side(self):
        page = self.opened()
        left, right = (page.locator(f".tokens.{side} .token") for side in ("from", "to"))
        tokens = self.found["tokens"]
        parts = {"A": tokens[:8], "B": tokens[8:]}
        for name in ("A → A", "A → B", "B → A", "B → B"):
            page.get_by_text(name).click()
            self.assertEqual(left.all_inner_texts(), parts[name[0]])
            self.assertEqual(right.all_inner_texts(), parts[name[-1]])
        page.get_by_role("radio", name="B → B").press("ArrowLeft")
        expect(right).to_have_text(parts["A"])
        left.nth(5).hover()
        expect(page.locator("aside h2")).to_have_text("bought looks at")
        weights = self.found["weights"][0]
        mean = [sum(head[13][j] for head in weights) / len(weights) for j in range(8)]
        self.agrees(self.shares(page), mean)
        page.get_by_role("tab", name="Neuron").click()
        expect(page.locator("tbody tr")).to_have_count(8)

    def test_the_grid_enlarges_a_head(self):
        page = self.opened()
        page.get_by_role("tab", name="Model").click()
        cells = page.locator(".cell")
        expect(cells).to_have_count(6)
        cells.nth(4).hover()
        expect(page.locator(".status")).to_contain_text("Layer 1, head 1:")
        cells.first.focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        title = dialog.locator("#detail-title")
        expect(title).to_have_text("Layer 1, head 2")
        dialog.locator(".tokens.from .token").nth(3).hover()
        self.agrees(self.shares(dialog), self.found["weights"][1][2][3])
        dialog.get_by_role("button", name="previous head").click()
        expect(title).to_have_text("Layer 1, head 1")
        page.keyboard.press("ArrowUp")
        expect(title).to_have_text("Layer 0, head 1")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(cells.nth(5)).to_be_focused()
        cells.nth(1).click()
        dialog.get_by_role("button", name="Neuron view").click()
        expect(page.get_by_label("Head", exact=True)).to_have_value("1")

    def test_the_neuron_view_is_the_head_s_arithmetic(self):
        page = self.opened()
        page.get_by_role("tab", name="Neuron").click()
        page.get_by_label("Layer", exact=True).select_option("1")
        page.get_by_label("Head", exact=True).select_option("2")
        tokens = page.locator(".tokens.from .token")
        tokens.nth(13).hover()
        expect(page.locator("thead .asked")).to_have_text("q of bought")
        expected = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))
        size = 8

        def vector(which, token):
            start = (2 * 19 + token) * size
            return expected[which][1][start : start + size]

        query = vector("queries", 13)
        dots = page.locator("td.dot data").evaluate_all("all => all.map(d => Number(d.value))")
        self.assertEqual(len(dots), 19)
        for token, dot in enumerate(dots):
            products = [q * k for q, k in zip(query, vector("keys", token), strict=True)]
            self.assertAlmostEqual(dot, sum(products), delta=1e-3)
        shares = dict(self.shares(page, "tbody tr"))
        for token, weight in enumerate(self.found["weights"][1][2][13]):
            self.assertAlmostEqual(shares[token], weight, delta=NEAR)
        self.assertAlmostEqual(sum(shares.values()), 1, delta=1e-4)
        # A strip is blue above zero and orange below, and shows the number under the pointer.
        strip = page.locator("tbody tr").nth(6).locator("canvas").first
        pixels = strip.evaluate(
            "c => [...c.getContext('2d').getImageData(0, 0, c.width, 1).data]"
        )
        for i, value in enumerate(vector("keys", 6)):
            if pixels[4 * i + 3] > 40:
                blue = pixels[4 * i + 2] > pixels[4 * i]
                self.assertEqual(blue, value > 0)
        box = strip.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 5.5 / size, box["y"] + box["height"] / 2)
        q, k = query[5], vector("keys", 6)[5]
        note = page.locator(".neurons .note").inner_text().replace("−", "-")
        self.assertEqual(note, f"Number 5: q {q:.2f} × k . {k:.2f} = {q * k:.2f}")
        # Keys select the next token and keep it; then pointing at another one changes nothing.
        tokens.nth(13).focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("thead .asked")).to_have_text("q of fresh")
        page.keyboard.press("Enter")
        tokens.nth(3).hover()
        expect(page.locator("thead .asked")).to_have_text("q of fresh")

    def test_light_and_dark(self):
        paper = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        for scheme, dark in (("light", False), ("dark", True)):
            page = self.opened(scheme=scheme)
            self.assertEqual(max(page.evaluate(paper)) < 60, dark)
            page.locator("#theme").click()
            self.assertEqual(max(page.evaluate(paper)) < 60, not dark)

    def test_nothing_is_wider_than_the_window(self):
        for name in ("pair.html", "large.html"):
            for width in (1280, 700):
                page = self.opened(name, width)
                for view in VIEWS:
                    page.locator(f"#tab-{view}").click()
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    self.assertLessEqual(wide, width, f"{name}, {view}")

    def test_twelve_layers_of_twelve_heads_over_a_hundred_tokens(self):
        tokens = len(self.large["tokens"])
        self.assertGreater(tokens, 99)
        page = self.opened("large.html")
        page.get_by_role("tab", name="Model").click()
        cells = page.locator(".cell")
        expect(cells).to_have_count(144)
        cells.nth(143).scroll_into_view_if_needed()
        drawn = """() => {
            const canvas = [...document.querySelectorAll('.cell canvas')].at(-1);
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return data.some(value => value > 0);
        }"""
        page.wait_for_function(drawn)
        cells.nth(143).click()
        dialog = page.get_by_role("dialog")
        dialog.locator(".tokens.from .token").nth(60).hover()
        self.agrees(self.shares(dialog), self.large["weights"][11][11][60])

    def test_a_frame_around_the_page_is_as_high_as_its_view(self):
        inner = html.escape((self.folder / "pair.html").read_text(encoding="utf-8"))
        frame = f'<iframe srcdoc="{inner}" style="width: 1000px; height: 200px; border: 0"></iframe>'
        (self.folder / "frame.html").write_text(frame, encoding="utf-8")
        page = self.browser.new_page()
        self.addCleanup(page.close)
        page.goto((self.folder / "frame.html").as_uri())
        inside = page.frame_locator("iframe")
        heights = set()
        for view in VIEWS:
            inside.locator(f"#tab-{view}").click()
            # The frame neither scrolls nor has empty space.
            fits = """() => {
                const { document: { documentElement: root }, innerHeight } = window.frames[0];
                return Math.abs(innerHeight - root.getBoundingClientRect().height) < 4;
            }"""
            page.wait_for_function(fits)
            heights.add(page.evaluate("window.frames[0].innerHeight"))
        self.assertEqual(len(heights), 3)

    def test_a_published_model(self):
        model = os.environ.get("CLOZE_TEST_MINILM")
        if not model:
            self.skipTest("CLOZE_TEST_MINILM is not set")
        found = attention(model, self.folder / "minilm.html", A, B)
        page = self.opened("minilm.html")
        # In layer 0, one head attends to the previous token.
        page.locator(".chip").nth(2).dblclick()
        for token in (2, 12):
            page.locator(".tokens.from .token").nth(token).hover()
            shares = self.shares(page)
            self.agrees(shares, found["weights"][0][2][token])
            self.assertEqual(shares[0][0], token - 1)
