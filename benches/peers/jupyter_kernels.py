"""Compares Cloze's notebook kernel with evcxr_jupyter, and its times with ipykernel's, and writes
benches/results/kernels.{json,md}.

    cargo install evcxr_jupyter --version 0.22.0 --root /tmp/evcxr
    XDG_DATA_HOME=/tmp/evcxr/share /tmp/evcxr/bin/evcxr_jupyter --install
    cargo build --workspace --bins && target/debug/cloze-kernel install --prefix /tmp/cloze
    JUPYTER_PATH=/tmp/cloze/share/jupyter:/tmp/evcxr/share/jupyter \\
        python benches/peers/jupyter_kernels.py [--repeat N] [--suites N]

All get the same cells, in their own form if there is no common one (such as for pictures, or in Python: `a = 1` for
`let a = 1;`, a NumPy array for the tensor, an unknown name for the wrong cell). Needs what tests/jupyter needs, ipykernel
and NumPy. Run it by hand on an idle machine.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import unittest
from queue import Empty

import jupyter_kernel_test
from jupyter_client.manager import start_new_kernel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "jupyter"), str(ROOT / "benches")]

import machine  # noqa: E402  (these lie in the folders that were just added)
from driver import Cell  # noqa: E402
from test_protocol import ClozeProtocol  # noqa: E402

RESULTS = ROOT / "benches" / "results" / "kernels.json"
HEAD = """# Cloze's kernel, evcxr_jupyter and ipykernel

Written by `benches/peers/jupyter_kernels.py`, from [kernels.json](kernels.json).

"""
PEER = "rust"
PYTHON = "python3"


def evcxr_display(mime, data):
    """evcxr shows something that is printed between two markers."""
    return f'println!("EVCXR_BEGIN_CONTENT {mime}\\n{data}\\nEVCXR_END_CONTENT");'


class PeerProtocol(ClozeProtocol):
    """The same tests in evcxr's form. It has no calls for the pager and for clearing, and its completions
    contain parameters, which is allowed."""

    kernel_name = PEER
    language_name = "Rust"
    completion_samples = [{"text": "std::process::ex"}]
    code_display_data = [
        {"code": evcxr_display("image/svg+xml", "<svg/>"), "mime": "image/svg+xml"},
        {"code": evcxr_display("text/html", "<b>1</b>"), "mime": "text/html"},
    ]
    code_page_something = ""
    code_clear_output = ""


class PeerWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = PEER
    support_iopub_welcome = True

    def test_recv_iopub_welcome_msg(self):
        # The suite would wait forever for a missing answer.
        self.kc.start_channels()
        message = self.kc.get_iopub_msg(timeout=10)
        self.assertEqual(message["msg_type"], "iopub_welcome")


class ClozeWelcome(PeerWelcome):
    kernel_name = "cloze"


KERNELS = {
    "cloze": {
        "suites": [ClozeProtocol, ClozeWelcome],
        "displays": 'cloze::display::html("<b>1</b>");\ncloze::display::html("<b>2</b>");',
    },
    PEER: {
        "suites": [PeerProtocol, PeerWelcome],
        "displays": "\n".join(evcxr_display("text/html", f"<b>{n}</b>") for n in (1, 2)),
    },
}


class Outcomes(unittest.TestResult):
    """Returns the outcome of each test by name."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def startTest(self, test):
        super().startTest(test)
        self.of[test.id().rsplit(".", 1)[1]] = "pass"

    def note(self, test, outcome):
        name = test.id().rsplit(".", 1)[1]
        if name in self.of:
            self.of[name] = outcome

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "fail")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "fail")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "none")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "fail")


def suite(kernel, times):
    """Returns how often each row of Jupyter's own suite passed, None if the kernel lacks the feature."""
    passed = {}
    for _ in range(times):
        tests = unittest.TestSuite(
            unittest.defaultTestLoader.loadTestsFromTestCase(case)
            for case in KERNELS[kernel]["suites"]
        )
        result = Outcomes()
        tests.run(result)
        for name, outcome in result.of.items():
            name = name.removeprefix("test_")
            if outcome == "none":
                passed[name] = None
            else:
                passed[name] = passed.get(name, 0) + (outcome == "pass")
    return passed


def behaviour(kernel):
    """Returns what a user sees in one session."""
    manager, client = start_new_kernel(kernel_name=kernel, startup_timeout=60)
    sleep = "std::thread::sleep(std::time::Duration::from_millis(300));"
    try:
        Cell(client, "1", timeout=180)
        seen = {}
        panic = Cell(client, 'panic!("no")')
        seen["status_of_a_panic"] = panic.status
        question = Cell(client, 'let n: i32 = "x".parse()?;')
        seen["status_of_a_failed_question_mark"] = question.status
        client.is_complete("fn f() {")
        try:
            reply = client.get_shell_msg(timeout=5)
            seen["is_complete_of_an_open_function"] = reply["content"].get("status")
        except Empty:
            seen["is_complete_of_an_open_function"] = None
        displays = Cell(client, KERNELS[kernel]["displays"])
        seen["displays_shown_of_two"] = len(displays.of("display_data")) + len(
            displays.of("execute_result")
        )
        partial = Cell(client, f'for i in 0..3 {{ print!("\\r{{i}}"); {sleep} }}')
        seen["text_of_a_progress_line"] = partial.text()
        seen["messages_of_a_progress_line"] = len(partial.of("stream"))
        loop = Cell(client, "for _ in 0..1 {}")
        values = [c["data"].get("text/plain") for c in loop.of("execute_result")]
        seen["value_of_a_trailing_for"] = values[0] if values else None
        early = [
            Cell(client, f'eprintln!("e{turn}");').text("stderr") == f"e{turn}\n"
            for turn in range(10)
        ]
        seen["stderr_before_idle_of_ten"] = sum(early)
        ids = [client.execute(code) for code in ("let a: i32 = \"no\";", "1")]
        replies = {}
        while len(replies) < 2:
            reply = client.get_shell_msg(timeout=60)
            replies[reply["parent_header"].get("msg_id")] = reply["content"].get("status")
        seen["status_of_a_cell_queued_behind_an_error"] = replies[ids[1]]
        return seen
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def latencies(repeat, binary):
    """Runs `cloze bench cells` with all kernels in turns."""
    command = [binary, "bench", "cells", "--json", "--repeat", str(repeat)]
    for kernel in [*KERNELS, PYTHON]:
        command += ["--kernel", kernel]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {found["kernel"]: found for found in map(json.loads, run.stdout.splitlines())}


def shown(value, unit=""):
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f"`{value}`" if value else "nothing"
    return f"{value:,.0f}{unit}" if unit == " MiB" else f"{value:.3g}{unit}"


LATENCIES = [
    ("ready: the process starts, `kernel_info` is answered", "ready"),
    ("first tensor cell, sent then", "first_tensor"),
    ("start of the process to the end of that cell", "start_to_first_tensor"),
    ("`let a = 1;`", "let"),
    ("tensor cell", "tensor"),
    ("expression `1 + 1`", "expression"),
    ("first wrong cell", "first_error"),
    ("the same again", "error"),
    ("interrupt of `loop { n += 1; }`", "interrupt"),
]

BEHAVIOUR = [
    ("a panic's status", "status_of_a_panic"),
    ("status of `?` with an error", "status_of_a_failed_question_mark"),
    ("a cell queued behind an error", "status_of_a_cell_queued_behind_an_error"),
    ("`is_complete` of `fn f() {`", "is_complete_of_an_open_function"),
    ("of two displays in a cell, shown", "displays_shown_of_two"),
    ("messages of a progress line without line end, 3 prints", "messages_of_a_progress_line"),
    ("value shown of a trailing `for`", "value_of_a_trailing_for"),
    ("stderr before the cell's end, of 10 cells", "stderr_before_idle_of_ten"),
]


def table(found):
    """Returns the comparison in Markdown."""
    cloze, peer, python = (found["kernels"][kernel] for kernel in [*KERNELS, PYTHON])
    times = found["suites"]

    def row(title, values):
        return f"| {title} | " + " | ".join(values) + " |"

    def suite_cell(passed):
        if passed is None:
            return "no call for it"
        return {0: "fails", times: "passes"}.get(passed, f"passes {passed} of {times}")

    lines = [
        f"{found['date']}, {found['machine']}, load average {found['load']} before the start; each "
        f"kernel started {cloze['latency']['runs']}x, their cells in turns (medians); the suite run "
        f"{times}x.",
        "",
        "| | " + " | ".join(k["latency"]["implementation"] for k in (cloze, peer, python)) + " |",
        "|---|---|---|---|",
    ]
    for title, key in LATENCIES:
        lines.append(row(title, [shown(k["latency"][key], " s") for k in (cloze, peer, python)]))
    lines.append(
        row(
            "variables kept by the interrupt",
            [shown(k["latency"]["variables_kept"]) for k in (cloze, peer, python)],
        )
    )
    for title, key in [
        ("resident memory after these cells, kernel", "memory_kernel_mib"),
        ("with its child", "memory_mib"),
    ]:
        lines.append(row(title, [shown(k["latency"][key], " MiB") for k in (cloze, peer, python)]))
    for title, key in BEHAVIOUR:
        lines.append(row(title, [*(shown(k["behaviour"][key]) for k in (cloze, peer)), ""]))
    for name in sorted(cloze["suite"]):
        cells = [*(suite_cell(k["suite"].get(name)) for k in (cloze, peer)), ""]
        lines.append(row(f"`jupyter_kernel_test`: {name}", cells))
    lines += [
        "",
        f"The first tensor cell of {peer['latency']['implementation']}, which compiles dfdx in each "
        "session:",
        "",
        "```",
        peer["latency"]["setup"],
        "```",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="kernels started for the latencies")
    parser.add_argument("--suites", type=int, default=3, help="runs of Jupyter's own suite")
    parser.add_argument("--cloze", default=str(ROOT / "target" / "debug" / "cloze"))
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    kernels = {name: {} for name in KERNELS}
    for name, kernel in kernels.items():
        print(f"{name}: behaviour", file=sys.stderr)
        kernel["behaviour"] = behaviour(name)
        print(f"{name}: the suite, {options.suites} times", file=sys.stderr)
        kernel["suite"] = suite(name, options.suites)
    for name, found in latencies(options.repeat, options.cloze).items():
        kernels.setdefault(name, {})["latency"] = found
    found = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.processor(),
        "load": load,
        "suites": options.suites,
        "kernels": kernels,
    }
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(HEAD + table(found), encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
