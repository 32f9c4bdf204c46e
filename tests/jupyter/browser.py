"""A notebook in JupyterLab in a real browser, for tests.

Needs Chromium on the PATH beside the packages of requirements.txt, and the kernelspec `cloze`; see
test_kernel.py for the way to run tests. Without Playwright they are skipped, except where
CI_BROWSER=1 requires them to run.
"""

import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import nbformat

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    if os.environ.get("CI_BROWSER") == "1":
        raise
    sync_playwright = None

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The most time that anything in the page may take, also on a busy machine.
PATIENCE = 120
DONE = re.compile(r"\[\d+\]:")
RUNNING = "[*]:"


def browser_program():
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    raise AssertionError(f"no Chromium on the PATH; looked for {', '.join(BROWSERS)}")


def chromium(add_cleanup):
    """Starts Chromium and returns it; `add_cleanup` receives what ends it."""
    playwright = sync_playwright().start()
    add_cleanup(playwright.stop)
    # Its sandbox does not start in containers nor for root.
    browser = playwright.chromium.launch(executable_path=browser_program(), args=["--no-sandbox"])
    add_cleanup(browser.close)
    expect.set_options(timeout=PATIENCE * 1000)
    return browser


@unittest.skipIf(sync_playwright is None, "playwright is not installed")
class WithPages(unittest.TestCase):
    """A folder for pages that stand alone, and a browser for them, for the tests of a class."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.browser = chromium(cls.addClassCleanup)

    def observed(self, path, width=1280, height=820, scheme="light"):
        """Opens a page and returns it with the errors that it will report and the addresses that it will ask for."""
        page = self.browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.addCleanup(page.close)
        complaints, asked = [], []
        # Chromium warns about reading canvases, which only tests do.
        page.on("console", lambda message: message.type != "warning" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page, complaints, asked

    def quiet(self, path, **options):
        """Opens a page that must report no errors and send no requests until the test ends."""
        page, complaints, asked = self.observed(path, **options)
        self.addCleanup(lambda: self.assertEqual((complaints, asked), ([], [path.as_uri()])))
        return page


class Lab:
    """A JupyterLab, or a Notebook, with its own folder, settings and port."""

    def __init__(self, folder, program="jupyterlab"):
        self.files = folder / "files"
        self.files.mkdir()
        config = folder / "config"
        (config / "labconfig").mkdir(parents=True)
        # The question about news would cover the notebook.
        disabled = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
        (config / "labconfig" / "page_config.json").write_text(json.dumps(disabled))
        for plugin, settings in {
            # As `cargo lab` sets it.
            "@jupyter-widgets/jupyterlab-manager/plugin": {"saveState": True},
            # After a second, the page would forget that it has asked for completions.
            "@jupyterlab/completer-extension/manager": {"providerTimeout": 1000 * PATIENCE},
        }.items():
            file = config / "lab/user-settings" / f"{plugin}.jupyterlab-settings"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(settings))
        self.token = secrets.token_hex(16)
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", program, "--no-browser", "--allow-root",
                    f"--IdentityProvider.token={self.token}",
                    f"--ServerApp.root_dir={self.files}",
                ],
                env={
                    **os.environ,
                    "JUPYTER_CONFIG_DIR": str(config),
                    "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
                },
                stdout=log,
                stderr=log,
            )
        self.port = self.served(folder / "runtime" / f"jpserver-{self.process.pid}.json")

    def served(self, file):
        """Returns the free port that the server found and writes to a file once it listens."""
        deadline = time.time() + PATIENCE
        while time.time() < deadline and self.process.poll() is None:
            try:
                return json.loads(file.read_text())["port"]
            except (OSError, ValueError):
                time.sleep(0.1)
        self.stop()
        raise AssertionError("JupyterLab did not start:\n" + self.log.read_text())

    def notebook(self, name):
        """Writes an empty notebook of the kernel `cloze` and returns its address."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell()])
        notebook.metadata["kernelspec"] = {
            "name": "cloze", "display_name": "Rust (Cloze)", "language": "rust",
        }
        nbformat.write(notebook, self.files / name)
        return self.address(name)

    def address(self, name):
        return f"http://127.0.0.1:{self.port}/doc/tree/{name}?token={self.token}"

    def stop(self):
        """Ends the server and its kernels."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@unittest.skipIf(sync_playwright is None, "playwright is not installed")
class WithNotebook(unittest.TestCase):
    """One notebook and one kernel for the tests of a class; each begins with a notebook of one empty cell."""

    @classmethod
    def setUpClass(cls):
        browser = chromium(cls.addClassCleanup)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        lab = Lab(pathlib.Path(folder.name))
        cls.addClassCleanup(lab.stop)
        cls.lab, cls.browser = lab, browser
        cls.page = browser.new_page(viewport={"width": 1100, "height": 900})
        cls.page.set_default_timeout(PATIENCE * 1000)
        cls.page.goto(lab.notebook("seen.ipynb"))
        cls.cells = cls.page.locator(".jp-Notebook .jp-CodeCell")
        expect(cls.cells).to_have_count(1)
        cls.keys = cls.page.keyboard
        # Before the kernel answers, the page runs no cell.
        cls.idle = cls.page.get_by_text("Rust (Cloze) | Idle")
        expect(cls.idle).to_be_visible()
        cls.done(cls.run_cell("use cloze::prelude::*;\nlet device = Cpu::default();"))

    def setUp(self):
        self.cells.last.locator(".cm-content").click()
        for key in ("Escape", "Control+a", "d", "d"):
            self.keys.press(key)
        expect(self.cells).to_have_count(1)
        expect(self.cells.first.locator(".jp-OutputArea-output")).to_have_count(0)

    def tearDown(self):
        # A cell that a failed test left running would block the next tests.
        if self.cells.locator(".jp-InputPrompt", has_text=RUNNING).count():
            self.button("notebook:interrupt-kernel")

    @classmethod
    def write(cls, code):
        """Pastes `code` into the last cell, which is empty, and returns the cell."""
        cell = cls.cells.nth(cls.cells.count() - 1)
        cell.locator(".cm-content").click()
        # While typing, the editor would insert closing brackets.
        cls.keys.insert_text(code)
        return cell

    @classmethod
    def run_cell(cls, code):
        """Runs `code` in the last cell as Shift+Enter does, which puts an empty one below."""
        count = cls.cells.count()
        cell = cls.write(code)
        cls.keys.press("Shift+Enter")
        expect(cls.cells).to_have_count(count + 1)
        return cell

    @classmethod
    def done(cls, cell):
        expect(cell.locator(".jp-InputPrompt")).to_have_text(DONE)
        return cell

    def result(self, code):
        return self.done(self.run_cell(code)).locator(".jp-OutputArea-output").last

    def button(self, command):
        self.page.locator(f'.jp-NotebookPanel-toolbar [data-command="{command}"]').click()
