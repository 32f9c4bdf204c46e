"""Hostile text in a notebook: whatever a text says and however a cell shows it, JupyterLab runs none of it.

test_kernel.py and test_load.py send the same kinds of text to Jupyter's client, one by one and in large.
"""

import json
import pathlib
import re
import tempfile

from browser import WithNotebook, expect
from driver import WithKernel

SCRIPT = "window.attacked = true"
IMAGE = f'<img src="no" onerror="{SCRIPT}">'
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{SCRIPT}">{IMAGE}</svg>'
RECORD = json.dumps({"Display": {"mode": {"New": {"id": None}}, "content": {"text/html": IMAGE}}})


def records(token):
    """Returns a record that shows markup, and broken ones, all with this token."""
    return "".join(
        f"\x1e{token} {body}\n"
        for body in (RECORD, RECORD[:-1], RECORD.replace("Display", "Eval"), "[" * 9_000, "", "{}", "\x00")
    )


# What is shown. Every marker of evcxr's generated code is among it, as `grep -o 'EVCXR_[A-Z_]*'` finds them.
TEXTS = {
    "markup": f"<script>{SCRIPT}</script>{IMAGE}{SVG}<iframe srcdoc='{IMAGE}'></iframe></pre><b>no</b>\n",
    "evcxr's contents": "".join(
        f"EVCXR_BEGIN_CONTENT {mime}\n{data}\nEVCXR_END_CONTENT\n"
        for mime, data in [
            ("text/html", IMAGE), ("image/svg+xml", SVG), ("application/javascript", SCRIPT),
            ("text/markdown", IMAGE), ("text/latex", f"\\href{{javascript:{SCRIPT}}}{{x}}"),
            ("application/vnd.jupyter.widget-view+json", '{"model_id": "1"}'),
        ]
    ),
    "evcxr's words": "EVCXR_VARIABLE_CHANGED_TYPE:kept\nEVCXR_PANIC_NOTIFICATION\nEVCXR_ERROR_OCCURRED\n"
                     "EVCXR_EXECUTION_COMPLETE\nEVCXR_END_CONTENT\n",
    "an open content": f"EVCXR_BEGIN_CONTENT text/html\n{IMAGE}\n",
    "records without a token": records(""),
    "records with another token": records("0" * 32),
    "escape sequences": "\x1b]0;title\x07\x1b]8;;javascript:" + SCRIPT + "\x1b\\click\x1b]8;;\x1b\\"
                        "\x1b]1337;File=inline=1:AAAA\x07\x1b]52;c;AAAA\x07\x1bP1$r\x1b\\\x1b[2J\x1b[H\x1b[999999C"
                        f"\x1b[38;5;{IMAGE}m\x1b[31;1m{IMAGE}\x1b[0m\x9b31m\x9d0;x\x9c\x1b[\x1b",
    "controls": f"\x00\x08\x08\x7f\u202e\ufeff\u2028{IMAGE}\r\x0b\x0c\x85",
    "links": f"javascript:{SCRIPT} data:text/html,{IMAGE} [x](javascript:{SCRIPT}) https://a.invalid/'{IMAGE}\n",
}
# How it is shown, by a cell that has read it into `text` or that names its file.
WAYS = {
    "print": 'print!("{text}");',
    "eprint": 'eprint!("{text}");',
    "a panic": 'panic!("{text}");',
    "`?`": 'Err::<(), String>(text)?;',
    "cat": "!cat FILE",
    "cat to standard error": "!cat FILE >&2",
    "an unknown name": ":doc MARKUP",
    "a value": "text",
    "a display of text": "display::text(text);",
    "a chart": 'LineChart::new(text.clone()).axes(&text, &text).line(text, &[(0.0, 1.0), (1.0, 2.0)])',
    "a bar": 'let bar = progress::bar(2, &text); bar.inc(1); bar.finish();',
    "a slider": 'Slider::new(text.clone(), 0.0..=2.0).show(move |_| display::Content::text(text.clone()));',
}
# Ways that show all of the text as it is.
WHOLE = ("print", "eprint", "cat", "cat to standard error", "a display of text")
FORBIDDEN = "script, img, iframe, object, embed, b, svg[onload], a[href^='javascript' i]"


class HostileNotebook(WithNotebook):
    """JupyterLab shows all texts together in every way, and each alone as a file."""

    def shown(self, code):
        cell = self.done(self.run_cell(code))
        output = cell.locator(".jp-OutputArea-output")
        expect(output.first).to_be_attached()
        expect(output.locator(FORBIDDEN)).to_have_count(0)
        self.assertFalse(self.page.evaluate("'attacked' in window"))
        return output

    def test_no_text_is_more_than_text(self):
        asked, dialogs = [], []
        self.page.on("request", lambda request: asked.append(request.url))
        self.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        self.done(self.run_cell("let kept = 7;"))
        title = self.page.title()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "text"
            for what, text in TEXTS.items():
                with self.subTest(text=what):
                    file.write_text(text, encoding="utf-8")
                    self.shown(f"!cat {file}")
            file.write_text("".join(TEXTS.values()), encoding="utf-8")
            for way, code in WAYS.items():
                with self.subTest(way=way):
                    code = code.replace("FILE", str(file)).replace("MARKUP", IMAGE)
                    read = "" if code[0] in "!:" else f'let text = std::fs::read_to_string("{file}")?;\n'
                    output = self.shown(read + code)
                    if way in WHOLE:
                        expect(output.first).to_contain_text(IMAGE)
                        expect(output.first).to_contain_text("EVCXR_EXECUTION_COMPLETE")
                    # The next cell answers, and nothing was lost.
                    expect(self.result("kept * 6")).to_have_text("42")
        self.assertEqual((dialogs, self.page.title()), ([], title))
        ours = re.compile(rf"^(data:|blob:)|^(http|ws)://127\.0\.0\.1:{self.lab.port}/")
        self.assertEqual([url for url in asked if not ours.match(url)], [])
        # The same markup runs in a display, so these checks would see it.
        self.done(self.run_cell(f"display::html({json.dumps(IMAGE)});"))
        self.page.wait_for_function("window.attacked === true")


class HostileRecords(WithKernel):
    """Large and broken records, also with the session's own token, which only its cells know."""

    BODIES = (
        '"x".repeat(5_000_000)', '"[".repeat(40_000_000)', 'r#"{"Display": {"mode": 1}}"#.into()',
        'r#"{"Begin": {"child": -1, "run": 1e999}}"#.into()', '"\\u{0}\\u{1e}".into()', 'String::new()',
    )

    def after(self, code):
        """Runs a cell, and another one, which must answer."""
        cell = self.run_cell(code)
        value = self.run_cell("6 * 7").of("execute_result")[0]["data"]
        self.assertEqual(value, {"text/plain": "42"})
        return cell

    def test_a_shell_line_does_not_know_the_token(self):
        self.assertEqual(self.after("!echo [$CLOZE_SESSION]").text(), "[]\n")

    def test_broken_records_are_text_and_the_kernel_goes_on(self):
        bodies = f"let bodies: Vec<String> = vec![{', '.join(self.BODIES)}];\n"
        own = "cloze::display::wire::token().unwrap_or_default().to_owned()"
        for stream in ("print", "eprint"):
            for token in (own, '"0".repeat(32)'):
                with self.subTest(stream=stream, token=token):
                    show = f'{stream}!("\\u{{1e}}{{token}} {{body}}\\n");'
                    cell = self.after(f"let token = {token};\n{bodies}for body in &bodies {{ {show} }}")
                    shown = {m["msg_type"] for m in cell.messages}
                    self.assertEqual(shown, {"status", "execute_input", "stream"})

    def test_a_display_of_tens_of_megabytes_is_shown(self):
        cell = self.after('cloze::display::html("<b>".repeat(20_000_000));')
        (shown,) = cell.of("display_data")
        self.assertEqual(len(shown["data"]["text/html"]), 60_000_000)
