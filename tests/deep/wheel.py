"""Installs a wheel in an environment without an `ipykernel`, and uses its kernel as a newcomer does.

    python3 tests/deep/wheel.py WHEEL WORK

WORK is a folder for the environment, the home folder and the data of that newcomer. The check fails unless

- without Rust, the program says in one line what to install;
- Jupyter's client finds the kernel, though the environment is not activated and Rust is not on PATH, and a first cell
  is answered after the template was built, on a machine that does nothing else within five minutes;
- lesson 01 runs as a notebook;
- `cloze-kernel install` names the program in the environment, beside its sources;
- `pip uninstall` leaves no file.

It prints the times.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

LIMIT = 300
CELL = "use cloze::prelude::*;\nlet t = Cpu::default().tensor([1.0f32, 2.0]);\n(t.clone() + t).array()"
TESTS = pathlib.Path(__file__).resolve().parent.parent


def first_cell():
    """Runs a cell in a new kernel and prints the seconds until its answer. Runs in the environment."""
    from jupyter_client.manager import start_new_kernel

    shown = []
    began = time.time()
    manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
    ready = time.time() - began
    reply = client.execute_interactive(CELL, output_hook=lambda message: shown.append(str(message["content"])), timeout=3600)
    taken = time.time() - began
    client.stop_channels()
    manager.shutdown_kernel()
    assert reply["content"]["status"] == "ok" and "[2.0, 4.0]" in "".join(shown), (reply["content"], shown)
    print(f"the kernel was there after {ready:.1f} s, the first cell's answer after {taken:.0f} s")


def busy_seconds():
    """Returns how many seconds all processors together have worked since the start of the machine."""
    first = pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    user, nice, system, _idle, _waiting, irq, soft, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    if sys.argv[1:] == ["--first-cell"]:
        return first_cell()
    if len(sys.argv) != 3:
        sys.exit("usage: wheel.py WHEEL WORK")
    wheel, work = map(pathlib.Path, sys.argv[1:])
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.0f} MB")
    environment = work / "env"
    python = environment / "bin/python"
    home = pathlib.Path.home()
    (work / "home").mkdir()
    # As a Jupyter that was started from a menu: the environment is not activated, and rustup's folder is not on PATH.
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work / "home"),
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(home / ".cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(home / ".rustup")),
        "CLOZE_SPARE": "off",
    }

    with_rust = f"{variables['CARGO_HOME']}/bin:{variables['PATH']}"

    def run(*command):
        subprocess.run([python, *command], env=variables, cwd=work, check=True)

    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", wheel], check=True)
    without_rust = {**variables, "PATH": "", "CARGO_HOME": str(work / "none")}
    refused = subprocess.run(
        [python, "-m", "cloze_kernel", "install"], env=without_rust, cwd=work, stderr=subprocess.PIPE, text=True, check=False
    )
    assert refused.returncode == 1 and "install Rust" in refused.stderr, refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr
    print(refused.stderr, end="")

    subprocess.run([*pip, "install", "jupyter_client", "nbclient", "nbformat"], check=True)
    assert not list(environment.rglob("ipykernel")), "the environment has another kernel"
    began, all_began, own_began = time.time(), busy_seconds(), own_seconds()
    run(pathlib.Path(__file__).resolve(), "--first-cell")
    taken, own = time.time() - began, own_seconds() - own_began
    others = (busy_seconds() - all_began - own) / (taken * os.cpu_count())
    print(f"it took {own:.0f} s of processor time on {os.cpu_count()} processors; others used {others:.0%} of the machine")
    # A busy machine says nothing of the time that a newcomer waits.
    assert taken < LIMIT or others > 0.1, f"a newcomer waits for {taken:.0f} s"

    notebooks = work / "notebooks"
    subprocess.run([environment / "bin/cloze", "lessons", "build", "--solutions", "--out", notebooks], check=True, env=variables)
    run(TESTS / "jupyter/run_notebooks.py", notebooks, "01", "01")

    # For a Jupyter in another environment: the program stays beside its sources.
    subprocess.run([environment / "bin/cloze-kernel", "install", "--prefix", work / "jupyter"], check=True, env={**variables, "PATH": with_rust})
    spec = json.loads((work / "jupyter/share/jupyter/kernels/cloze/kernel.json").read_text(encoding="utf-8"))
    assert spec["argv"][0] == str(environment / "bin/cloze-kernel"), spec

    subprocess.run([*pip, "uninstall", "--yes", "cloze-kernel"], check=True)
    # pip leaves an empty folder.
    left = [path for path in environment.rglob("*") if "cloze" in str(path.relative_to(environment)) and path.is_file()]
    assert not left, left


if __name__ == "__main__":
    main()
