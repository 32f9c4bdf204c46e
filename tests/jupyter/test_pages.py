"""The files of a run that a browser shows: hostile names and texts stay text, and a policy blocks what is injected.

Needs Chromium and Playwright as browser.py does, and `cloze` built.
"""

import csv
import pathlib
import subprocess
import unittest

import mistune

from browser import WithPages, expect

CLOZE = pathlib.Path(__file__).resolve().parents[2] / "target" / "debug" / "cloze"
SCRIPT = "window.attacked=true"
# It fits a file's name, and a column's, which has no comma.
IMAGE = f'<img src=x onerror="{SCRIPT}">'
TEXT = f"<script>{SCRIPT}</script>{IMAGE}</td></pre></title></style>`{IMAGE}`|[x](javascript:{SCRIPT})![y](x){{{{style}}}}"
INJECTED = f"<script>{SCRIPT}</script>{IMAGE}<style>h1 {{ color: rgb(1, 2, 3) }}</style><h1 style='color: red'>No</h1>"


def cloze(*arguments):
    done = subprocess.run([CLOZE, *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr


class HostilePages(WithPages):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = cls.folder / f"{IMAGE}.csv"
        with open(rows, "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow([f"text{IMAGE}", f"label{IMAGE}"])
            table.writerows((f"{TEXT} number {i}", f"{['no', 'yes'][i % 2]}{IMAGE}") for i in range(8))
        cls.tuned, cls.trained = cls.folder / f"tuned {IMAGE}`", cls.folder / f"trained {IMAGE}`"
        columns = ["--columns", f"text{IMAGE},label{IMAGE}", "--max-len", "16", "--batch", "4", "--epochs", "1"]
        cloze("finetune", "custom", "--train", rows, "--dev", rows, *columns, "--out", cls.tuned)
        text = cls.folder / f"{IMAGE}.txt"
        text.write_text(f"{TEXT}\n{TEXT}\n\n" * 20, encoding="utf-8")
        cloze("pretrain", "--text", text, "--steps", "2", "--eval-every", "1", "--out", cls.trained)
        cls.attention = cls.folder / "attention.html"
        cloze("attention", "--model", cls.trained, TEXT, IMAGE, "--out", cls.attention)
        cls.followed = cls.folder / "token.html"
        followed = ["lessons", "picture", "token", "--model", cls.trained, "--text", f"{TEXT} [MASK]"]
        cloze(*followed, "--out", cls.followed)

    def opened(self, path):
        """Opens a page and returns it with what it complained of and asked for."""
        page, complaints, asked = self.observed(path)
        page.wait_for_timeout(300)
        self.assertFalse(page.evaluate("'attacked' in window"), path)
        return page, complaints, asked

    def is_inert(self, path):
        page, complaints, asked = self.opened(path)
        expect(page.locator("img, iframe, object, a[href^='javascript' i]")).to_have_count(0)
        self.assertEqual((complaints, asked), ([], [path.as_uri()]))
        return page

    def blocks(self, path):
        """Checks that the page's policy blocks a script, an event and styles that were written into it."""
        whole = path.read_text(encoding="utf-8")
        broken = self.folder / "broken.html"
        broken.write_text(whole.replace("</body>", f"{INJECTED}</body>"), encoding="utf-8")
        page, complaints, _ = self.opened(broken)
        self.assertGreaterEqual(sum("Content Security Policy" in text for text in complaints), 4, complaints)
        colours = page.locator("h1").evaluate_all("all => all.map(h => getComputedStyle(h).color)")
        self.assertEqual(len(set(colours)), 1, colours)

    def test_the_report_of_a_run(self):
        for out in (self.tuned, self.trained):
            path = out / "trainer" / "report.html"
            page = self.is_inert(path)
            expect(page.locator("h1")).to_contain_text(IMAGE)
            # Its own styles and those of the charts hold.
            style = "e => [getComputedStyle(e).borderRadius, getComputedStyle(e.querySelector('svg')).maxWidth]"
            self.assertEqual(page.locator("section").first.evaluate(style), ["6px", "100%"])
            self.blocks(path)

    def test_a_page_of_attention(self):
        page = self.is_inert(self.attention)
        expect(page.locator("[role=tab][aria-selected=true]")).to_have_count(1)
        self.blocks(self.attention)

    def test_the_page_that_follows_a_token(self):
        page = self.is_inert(self.followed)
        expect(page.locator(".stage")).to_have_count(13)
        expect(page.locator("#stage-00")).to_contain_text(IMAGE)
        self.blocks(self.followed)

    def test_a_model_card_that_is_rendered_with_raw_markup(self):
        render = mistune.create_markdown(escape=False, plugins=["table"])
        for out in (self.tuned, self.trained):
            card = (out / "README.md").read_text(encoding="utf-8")
            _, _, text = card.removeprefix("---\n").partition("---\n")
            path = self.folder / "card.html"
            path.write_text(f"<meta charset='utf-8'>{render(text)}", encoding="utf-8")
            page = self.is_inert(path)
            expect(page.locator("h1")).to_have_text(out.name)
            expect(page.locator("pre").last).to_contain_text(out.name)
            expect(page.get_by_text(f"{IMAGE}").first).to_be_visible()
