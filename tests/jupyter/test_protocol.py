"""Jupyter's own conformance suite, for what this kernel declares."""

import unittest

import jupyter_kernel_test


class ClozeProtocol(jupyter_kernel_test.KernelTests):
    kernel_name = "cloze"
    language_name = "rust"
    file_extension = ".rs"
    code_hello_world = "println!(\"hello, world\")"
    code_stderr = "eprintln!(\"test\")"
    completion_samples = [{"text": "std::process::ex", "matches": ["exit"]}]
    complete_code_samples = ["1", "println!(\"hi\");", "fn f() {}"]
    incomplete_code_samples = ["fn f() {", "println!(", "let s = \"a"]
    invalid_code_samples = ["}", "f(]"]
    code_page_something = "cloze::display::page(\"help\");"
    code_generate_error = "let a: i32 = \"no\";"
    code_execute_result = [
        {"code": "6 * 7", "result": "42"},
        {"code": "vec![1, 2]", "result": "[1, 2]"},
    ]
    code_display_data = [
        {"code": "cloze::display::svg(\"<svg/>\");", "mime": "image/svg+xml"},
        {"code": "cloze::display::html(\"<b>1</b>\");", "mime": "text/html"},
    ]
    code_history_pattern = "6*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "Vec::new"
    code_clear_output = "cloze::display::clear_output(false);"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The suite allows 15 seconds for an answer, but on a busy machine a session may warm up for longer.
        cls.kc.execute_interactive("1", timeout=120, output_hook=lambda message: None)


class ClozeWelcome(jupyter_kernel_test.IopubWelcomeTests):
    """A late subscriber gets a welcome message (JEP 65)."""

    kernel_name = "cloze"
    support_iopub_welcome = True


if __name__ == "__main__":
    unittest.main(verbosity=2)
