"""Takes the core of the course as a learner would, from an empty data folder to the exported model.

    python tests/deep/course.py CLOZE WORK [--skip]

CLOZE is the program `cloze`; the kernel `cloze` must be installed where JUPYTER_PATH says, and CLOZE_DATA names a data
folder, which is emptied. Every answer is a learner's: the solution with other names for its variables. With --skip every third exercise is left open: then every lesson must still run to its end.

Afterwards the model of lesson 11 must stand in the data folder, `cloze lessons mine` must write a crate that
says that all is the learner's, and with a deliberate change in the learner's attention lesson 11 must give
other weights.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import nbformat
from nbclient import NotebookClient

CORE = 13
EXPORT = "21_ship_it"


def text(output):
    if output.output_type == "stream":
        return output.text
    return output.get("data", {}).get("text/plain", "")


def renamed(code):
    """Returns a function with other names for the variables that its body introduces."""
    head, brace, body = code.partition("{\n")
    names = set(re.findall(r"\blet (?:mut )?(\w+)\b", body)) | set(re.findall(r"\bfor (\w+) in\b", body))
    for name in sorted(names):
        if re.search(rf"^\s*{name},$", body, re.MULTILINE):
            # It may be a struct's field in short form.
            continue
        # Fields, methods, paths and functions keep their name; a closure is a variable.
        called = "" if re.search(rf"\blet {name} =\s*(?:move )?\|", body) else r"|\("
        body = re.sub(rf"(?<!(?<!\.)\.)(?<![\w:]){name}\b(?!\s*:[^:]|!|::{called})", f"my_{name}", body)
        # A field in short form, `Step {{ loss }}`, needs its name now.
        body = re.sub(rf"(\b[A-Z]\w* {{[^{{}}\n]*?)\bmy_{name}\b(?=[^{{}}\n:]*}})", rf"\g<1>{name}: my_{name}", body)
        body = re.sub(rf"\b(let (?:mut )?){name}(\s*:[^:])", rf"\1my_{name}\2", body)
    return head + brace + "    // Mine.\n" + body


def learner_s(stubs, solutions, skip):
    """Returns a notebook in which every answer is the learner's, and the ids of the answered exercises."""
    answered, open_ones = [], []
    for stub, solution in zip(stubs.cells, solutions.cells, strict=True):
        found = re.search(r'cloze::exercise!\("([\d.]+)"\)', stub.source)
        if stub.cell_type != "code" or not found:
            continue
        if skip and (len(answered) + len(open_ones)) % 3 == 2:
            open_ones.append(found[1])
            continue
        answered.append(found[1])
        own = re.sub(r" *cloze::solution!.*\n", "", solution.source)
        before = own.rfind("\nfn ") + 1
        stub.source = own[:before] + renamed(own[before:])
    return answered, open_ones


def run(path, skip, solutions):
    notebook = nbformat.read(path, as_version=4)
    answered, open_ones = learner_s(notebook, nbformat.read(solutions / path.name, as_version=4), skip)
    client = NotebookClient(notebook, kernel_name="cloze", timeout=600)
    client.execute()
    shown = "\n".join(text(output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    for number in answered:
        # An exercise may need one that is open.
        waits = open_ones and re.search(rf"○ {number} .* needs exercise", shown)
        assert waits or f"✓ {number} " in shown, f"{number} did not pass in {path.name}\n{shown[-4000:]}"
    for number in open_ones:
        assert f"○ {number} " in shown, f"{number} is not open in {path.name}"
    brought = [line for line in shown.splitlines() if line.startswith(("Your own answers", "The lessons' sol"))]
    print(f"{path.name}: {len(answered)} answers, {len(open_ones)} left open", *brought, sep="\n  ", flush=True)
    return brought


def weights(data):
    return hashlib.sha256((data / "your-bert/model.safetensors").read_bytes()).hexdigest()


def main():
    program, work, skip = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), "--skip" in sys.argv
    data = pathlib.Path(os.environ["CLOZE_DATA"])
    # All but the kernel's template.
    for name in ["answers", "your-bert"]:
        shutil.rmtree(data / name, ignore_errors=True)
    (data / "progress.jsonl").unlink(missing_ok=True)
    for kind, more in [("stubs", []), ("solutions", ["--solutions"])]:
        shutil.rmtree(work / kind, ignore_errors=True)
        subprocess.run([program, "lessons", "build", "--out", work / kind, *more], check=True, stdout=subprocess.DEVNULL)
    lessons = sorted((work / "stubs").glob("[0-9]*.ipynb"))
    lessons = [path for path in lessons if path.stem != "00_index"]
    for path in [*lessons[:CORE], *(path for path in lessons if path.stem == EXPORT)]:
        brought = run(path, skip, work / "solutions")
        assert skip or not any("solutions" in line for line in brought), brought

    progress = json.loads(subprocess.check_output([program, "lessons", "progress", "--json"]))
    print(f"{progress['passed']} exercises passed")
    mine = work / "mine"
    shutil.rmtree(mine, ignore_errors=True)
    said = subprocess.check_output([program, "lessons", "mine", "--out", mine], text=True)
    print(said.splitlines()[-2])
    if skip:
        assert "The lessons' solutions, because you have not passed them yet" in said, said
        return
    assert "solutions" not in said, said
    assert "// Mine." in (mine / "src/heads.rs").read_text()
    before = weights(data)
    answer = data / "answers/multi_head.rs"
    changed = answer.read_text().replace(".sqrt())", ".sqrt() * 3.0)")
    assert changed != answer.read_text(), "the scale of the scores was not found"
    for _ in range(2):
        subprocess.run([program, "lessons", "run", "11"], check=True, stdout=subprocess.DEVNULL)
        print("weights of lesson 11:", weights(data)[:16])
        if answer.read_text() == changed:
            break
        assert weights(data) == before, "the same answers give other weights"
        answer.write_text(changed)
    assert weights(data) != before, "the learner's attention does not change the weights"


if __name__ == "__main__":
    main()
