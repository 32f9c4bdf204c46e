"""Unpacks the archive of a release and uses its JupyterLab as a newcomer does.

    python3 tests/deep/archive.py ARCHIVE WORK

WORK is a folder for the archive's files and the home folder of that newcomer. The check fails unless

- `bin/cloze-kernel lab` installs JupyterLab, makes the notebooks and serves them at the address that it prints;
- the session template is compiled from the sources in the archive, not from those that the program was built from;
- the server's own list has the kernel, and a cell that is sent through the server is answered;
- lesson 01 runs as a notebook.

It prints the times.
"""

import json
import pathlib
import re
import subprocess
import sys
import time
import uuid

from hub import ask

CELL = "use cloze::prelude::*;\nlet t = Cpu::default().tensor([1.0f32, 2.0]);\n(t.clone() + t).array()"
# Building the session template included.
LIMIT = 1200


def through_the_server(address, token):
    """Starts a kernel and runs a cell as JupyterLab's page does. Runs in JupyterLab's environment."""
    import websocket

    assert "cloze" in ask(f"{address}api/kernelspecs", "GET", token)["kernelspecs"]
    kernel = ask(f"{address}api/kernels", "POST", token, {"name": "cloze"})["id"]
    channels = f"{address.replace('http', 'ws', 1)}api/kernels/{kernel}/channels?token={token}"
    connection = websocket.create_connection(channels, timeout=LIMIT)
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": uuid.uuid4().hex,
              "username": "", "version": "5.3"}
    content = {"code": CELL, "silent": False, "store_history": True, "allow_stdin": False}
    connection.send(json.dumps({
        "channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content,
    }))
    shown, reply = [], None
    # The reply and the output come on different channels.
    while reply is None or "[2.0, 4.0]" not in "".join(shown):
        message = json.loads(connection.recv())
        if message["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        shown.append(str(message["content"]))
        if message["msg_type"] == "execute_reply":
            reply = message["content"]
            assert reply["status"] == "ok", shown
    connection.close()


def main():
    if sys.argv[1:2] == ["--through-the-server"]:
        return through_the_server(*sys.argv[2:])
    if len(sys.argv) != 3:
        sys.exit("usage: archive.py ARCHIVE WORK")
    archive, work = map(pathlib.Path, sys.argv[1:])
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.0f} MB")
    home = work / "home"
    # Rust where rustup puts it. Cargo downloads everything.
    (home / ".cargo").mkdir(parents=True)
    rust = subprocess.run(["rustc", "--print", "sysroot"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    (home / ".cargo/bin").symlink_to(pathlib.Path(rust, "bin"))
    variables = {"PATH": f"{home}/.cargo/bin:/usr/bin:/bin", "HOME": str(home), "CLOZE_SPARE": "off"}
    subprocess.run(["tar", "xzf", archive, "-C", work], check=True)
    (programs,) = work.glob("*/bin")

    began, log = time.time(), work / "lab.log"
    with log.open("w", encoding="utf-8") as output:
        command = [programs / "cloze-kernel", "lab", "--no-browser", "--", "--port=9977"]
        lab = subprocess.Popen(command, env=variables, cwd=home, stdout=output, stderr=output)
    try:
        address = None
        while address is None:
            time.sleep(0.5)
            printed = log.read_text(encoding="utf-8")
            assert lab.poll() is None and time.time() - began < LIMIT, printed
            address = re.search(r"(http://127\.0\.0\.1:\d+/)lab/tree/00_index\.ipynb\?token=(\w+)", printed)
        address, token = address.groups()
        print(f"JupyterLab served the lessons after {time.time() - began:.0f} s")
        names = [entry["name"] for entry in ask(f"{address}api/contents", "GET", token)["content"]]
        assert "00_index.ipynb" in names and "28_students.ipynb" in names, names
        data = home / ".local/share/cloze"
        assert (data / "notebooks/00_index.ipynb").is_file(), "the notebooks are elsewhere"

        jupyter = data / "python/bin/jupyter"
        python = jupyter.with_name("python")
        began = time.time()
        through = [python, pathlib.Path(__file__).resolve(), "--through-the-server", address, token]
        subprocess.run(through, env=variables, check=True)
        print(f"a cell was answered through the server after {time.time() - began:.0f} s")
        # Cargo has rewritten the manifest in the archive, so it differs from the checkout's.
        (manifest,) = data.glob("templates/*/source/Cargo.toml")
        packed = programs.parent / "share/cloze/source/Cargo.toml"
        assert manifest.read_bytes() == packed.read_bytes(), "the template is of other sources"

        solutions = work / "solutions"
        build = [programs / "cloze", "lessons", "build", "--solutions", "--out", solutions]
        subprocess.run(build, env=variables, check=True, stdout=subprocess.DEVNULL)
        (lesson,) = solutions.glob("01_*.ipynb")
        subprocess.run([jupyter, "execute", lesson], env={**variables, "CLOZE_LESSON_QUICK": "1"}, check=True)
        print("lesson 01 ran")
    finally:
        lab.terminate()
        lab.wait()


if __name__ == "__main__":
    main()
