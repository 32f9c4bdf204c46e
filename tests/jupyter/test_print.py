"""BERT on one page fits one sheet of A4 when it is printed.

Needs Chromium and Playwright as browser.py does.
"""

import pathlib
import re
import unittest

from browser import chromium, sync_playwright

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "bert-on-one-page.html"


@unittest.skipIf(sync_playwright is None, "playwright is not installed")
class Printed(unittest.TestCase):
    def test_the_page_about_bert_is_one_sheet_and_nothing_is_cut_off(self):
        page = chromium(self.addCleanup).new_page()
        page.goto(PAGE.as_uri())
        pdf = page.pdf(prefer_css_page_size=True)
        self.assertEqual(len(re.findall(rb"/Type\s*/Page\b", pdf)), 1)
        width, height = (float(size) for size in re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf).groups())
        self.assertAlmostEqual(width, 595, delta=1.5)
        self.assertAlmostEqual(height, 842, delta=1.5)
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1055})
        self.assertTrue(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


if __name__ == "__main__":
    unittest.main()
