"""Installs a wheel in an environment without an `ipykernel`, and uses its kernel as a newcomer does.

    python3 tests/deep/wheel.py WHEEL WORK

WORK is a folder for the environment, the home folder and the data of that newcomer. The check fails unless

- without Rust, the program says in one line what to install;
- Jupyter's client finds the kernel, though the environment is not activated and Rust is not on PATH, and a first cell
  is answered after the crates were downloaded and the template was built, with counts of what is done, on a machine that
  does nothing else within five minutes;
- without Rust, the first cell says what to install;
- what `unfinished.py` checks holds;
- lesson 01 runs as a notebook, and `lab --check` reports the wheel's kernelspec;
- `cloze-kernel install` names the program in the environment, beside its sources;
- `pip uninstall` leaves no file.

It prints the times.
"""

import json
import os
import pathlib
import re
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
    done = [int(count) for count in re.findall(r"Compiling: (\d+) of \d+ steps", "".join(shown))]
    assert len(done) > 5 and done == sorted(done), shown
    print(f"the kernel was there after {ready:.1f} s, the first cell's answer after {taken:.0f} s")


def without_rust():
    """Runs a cell in a kernel that finds no Rust. Runs in the environment."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
    reply = client.execute_interactive(CELL, output_hook=lambda message: None, timeout=60)["content"]
    client.stop_channels()
    manager.shutdown_kernel()
    assert reply["status"] == "error" and "install Rust" in reply["evalue"], reply
    print(reply["evalue"])


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
    if sys.argv[1:] == ["--without-rust"]:
        return without_rust()
    if len(sys.argv) != 3:
        sys.exit("usage: wheel.py WHEEL WORK")
    wheel, work = map(pathlib.Path, sys.argv[1:])
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.0f} MB")
    environment = work / "env"
    python = environment / "bin/python"
    home = work / "home"
    # Rust where rustup puts it. Cargo downloads everything.
    (home / ".cargo").mkdir(parents=True)
    rust = subprocess.run(["rustc", "--print", "sysroot"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    (home / ".cargo/bin").symlink_to(pathlib.Path(rust, "bin"))
    # As a Jupyter that was started from a menu: the environment is not activated, and rustup's folder is not on PATH.
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": os.environ["TMPDIR"], "CLOZE_SPARE": "off"}
    with_rust = f"{home}/.cargo/bin:{variables['PATH']}"

    def run(*command, **more):
        subprocess.run([python, *command], env={**variables, **more}, cwd=work, check=True)

    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", wheel], check=True)
    no_rust = {"PATH": "", "CARGO_HOME": str(work / "none")}
    refused = subprocess.run(
        [python, "-m", "cloze_kernel", "install"], env={**variables, **no_rust}, cwd=work, stderr=subprocess.PIPE, text=True, check=False
    )
    assert refused.returncode == 1 and "install Rust" in refused.stderr, refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr
    print(refused.stderr, end="")

    subprocess.run([*pip, "install", "jupyter_client", "nbclient", "nbformat"], check=True)
    assert not list(environment.rglob("ipykernel")), "the environment has another kernel"
    run(pathlib.Path(__file__).resolve(), "--without-rust", **no_rust)
    began, all_began, own_began = time.time(), busy_seconds(), own_seconds()
    run(pathlib.Path(__file__).resolve(), "--first-cell")
    taken, own = time.time() - began, own_seconds() - own_began
    others = (busy_seconds() - all_began - own) / (taken * os.cpu_count())
    print(f"it took {own:.0f} s of processor time on {os.cpu_count()} processors; others used {others:.0%} of the machine")
    # A busy machine says nothing of the time that a newcomer waits.
    assert taken < LIMIT or others > 0.1, f"a newcomer waits for {taken:.0f} s"

    run(TESTS / "deep/unfinished.py", CLOZE_DATA=str(work / "unfinished"))

    notebooks = work / "notebooks"
    subprocess.run([environment / "bin/cloze", "lessons", "build", "--solutions", "--out", notebooks], check=True, env=variables)
    run(TESTS / "jupyter/run_notebooks.py", notebooks, "01", "01")

    checked = subprocess.run(
        [environment / "bin/cloze-kernel", "lab", "--check"], env={**variables, "PATH": with_rust}, stdout=subprocess.PIPE, text=True, check=False
    ).stdout
    assert f"found    kernelspec: {environment}/share/jupyter/kernels/cloze/kernel.json" in checked, checked

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
