"""Models written by `cloze convert --format onnx` give in onnxruntime what PyTorch and Cloze give.

    CLOZE=target/debug/cloze python -m unittest discover -v tests/onnx

Needs onnxruntime. The expected outputs are those of transformers, stored in tests/fixtures/models and
tests/fixtures/families (make.py), and what the `cloze` command prints.
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/fixtures/models"
FAMILIES = ROOT / "tests/fixtures/families"
CLOZE = os.environ.get("CLOZE", str(ROOT / "target/debug/cloze"))
TOLERANCE = 1e-4
TEXTS = ["the cat sat on the mat .", "a dog", "it was old and it ran to the new red house"]


def cloze(*args, text=None):
    """What the command prints."""
    done = subprocess.run([CLOZE, *map(str, args)], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


class Model:
    """A model folder, converted and loaded."""

    def __init__(self, folder, to):
        cloze("convert", folder, to, "--format", "onnx", "--accept-changes")
        self.folder = to
        self.session = onnxruntime.InferenceSession(to / "model.onnx", providers=["CPUExecutionProvider"])
        self.axes = {output.name: output.shape for output in self.session.get_outputs()}

    def run(self, ids, segments, more=0):
        """Outputs by name for sequences of several lengths, padded to the longest and `more` tokens."""
        longest = max(map(len, ids)) + more
        pad = lambda rows: numpy.array([row + [0] * (longest - len(row)) for row in rows], dtype=numpy.int64)
        inputs = {
            "input_ids": pad(ids),
            "attention_mask": pad([[1] * len(row) for row in ids]),
            "token_type_ids": pad(segments),
        }
        inputs = {one.name: inputs[one.name] for one in self.session.get_inputs()}
        if len(self.session.get_inputs()[0].shape) == 3:
            inputs = {name: values[None] for name, values in inputs.items()}
        return dict(zip(self.axes, self.session.run(None, inputs)))


class Onnx(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.out = Path(self.temporary.name)

    def agree(self, got, expected, what):
        self.assertEqual(len(got), len(expected), what)
        self.assertLess(numpy.abs(numpy.array(got) - numpy.array(expected)).max(), TOLERANCE, what)

    def test_every_class_gives_the_outputs_of_transformers(self):
        folders = [path for path in MODELS.iterdir() if path.is_dir()]
        self.assertEqual(len(folders), 12)
        for folder in folders:
            model = Model(folder, self.out / folder.name)
            expected = json.loads((folder / "expected.json").read_text())
            ids, segments = expected["ids"], expected["segments"]
            # All in one batch; with padding that none needs; the same sequences twice.
            for times, more in [(1, 0), (1, 5), (2, 0)]:
                outputs = model.run(ids * times, segments * times, more)
                self.assertEqual(set(outputs), set(expected["outputs"]))
                for name, output in outputs.items():
                    if model.axes[name][1] == "sequence_length":
                        rows = zip(output, ids * times)
                        output = numpy.concatenate([row[: len(tokens)] for row, tokens in rows])
                    values = expected["outputs"][name] * times
                    self.agree(output.reshape(-1), values, f"{folder.name}: {name}")

    def test_every_class_of_other_families_gives_the_outputs_of_transformers(self):
        folders = [path for path in FAMILIES.iterdir() if (path / "config.json").exists()]
        self.assertEqual(len(folders), 21)
        for folder in folders:
            model = Model(folder, self.out / folder.name)
            inputs = [one.name for one in model.session.get_inputs()]
            self.assertEqual("token_type_ids" in inputs, folder.name.startswith("Electra"))
            expected = json.loads((folder / "expected.json").read_text())
            ids, segments = ([text[key] for text in expected["texts"]] for key in ["ids", "segments"])
            added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
            [mask] = [token["id"] for token in added if token["content"].strip("<>[]").lower() == "mask"]
            for times, more in [(1, 0), (1, 5), (2, 0)]:
                outputs = model.run(ids * times, segments * times, more)
                for name, output in outputs.items():
                    if model.axes[name][1:2] == ["sequence_length"]:
                        output = numpy.concatenate([row[: len(tokens)] for row, tokens in zip(output, ids * times)])
                        if folder.name.endswith("ForMaskedLM"):
                            # Those of mask tokens only.
                            output = output[numpy.concatenate(ids * times) == mask]
                    self.agree(output.reshape(-1), expected["outputs"][name] * times, f"{folder.name}: {name}")

    def encoder(self, folder):
        """Compares a model's hidden states with those that `cloze features` prints."""
        model = Model(folder, self.out / "encoder")
        printed = lines(cloze("features", "--model", folder, "--pool", "none", "--json", text="\n".join(TEXTS)))
        tokens = lines(cloze("tokenize", "--vocab", model.folder, "--json", text="\n".join(TEXTS)))
        ids = [line["ids"] for line in tokens]
        together = model.run(ids, [[0] * len(row) for row in ids], 3)["last_hidden_state"]
        for row, own, line in zip(ids, together, printed):
            alone = model.run([row], [[0] * len(row)])["last_hidden_state"][0]
            for states in (alone, own[: len(row)]):
                self.agree(states, line["vectors"], line["text"])

    def left_to_right(self, name):
        """A copy of a fixture in which tokens see only earlier ones."""
        changed = self.out / "changed"
        changed.mkdir()
        for file in (MODELS / name).iterdir():
            (changed / file.name).write_bytes(file.read_bytes())
        config = json.loads((changed / "config.json").read_text())
        config["is_decoder"] = True
        (changed / "config.json").write_text(json.dumps(config))
        # Without the checksums of the unchanged files.
        copy = self.out / "left-to-right"
        cloze("convert", changed, copy, "--accept-changes")
        return copy

    def test_an_encoder_gives_the_features_of_cloze(self):
        self.encoder(MODELS / "BertModel")

    def test_a_left_to_right_encoder_gives_the_features_of_cloze(self):
        self.encoder(self.left_to_right("BertModel"))

    @unittest.skipUnless("CLOZE_TEST_MINILM" in os.environ, "CLOZE_TEST_MINILM is not set")
    def test_a_real_model_gives_the_features_of_cloze(self):
        self.encoder(Path(os.environ["CLOZE_TEST_MINILM"]))

    def test_classifiers_give_the_probabilities_of_cloze(self):
        name = "BertForSequenceClassification"
        for which, folder in enumerate([MODELS / name, self.left_to_right(name)]):
            model = Model(folder, self.out / f"classifier-{which}")
            rows = self.out / "rows.jsonl"
            rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
            printed = lines(
                cloze("predict", "custom", "--columns", "text", "--model", folder, "--input", rows, "--json")
            )
            ids = [line["ids"] for line in lines(cloze("tokenize", "--vocab", folder, "--json", text="\n".join(TEXTS)))]
            logits = model.run(ids, [[0] * len(row) for row in ids], 2)["logits"]
            odds = numpy.exp(logits)
            for row, line in zip(odds / odds.sum(1, keepdims=True), printed):
                self.agree(row, list(line["probabilities"].values()), line)


if __name__ == "__main__":
    unittest.main()
