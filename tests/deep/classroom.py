"""Installs the kernel for all users and lets two users work at the same time, from empty home folders.

    sudo /usr/bin/python3 tests/deep/classroom.py KERNEL

KERNEL is the program `cloze-kernel` in cargo's target folder; other users must be able to run this Python. The check makes two users (useradd), removes them at the
end, and must run as root. It fails unless

- a toolchain that other users cannot read is refused with a sentence that says so;
- both users run cells, in the REPL and through Jupyter's client, without a template of their own, and neither can
  write anything below the prefix, which is the same to the byte afterwards;
- an update leaves a running session its program and its template, and the next installation removes them;
- `uninstall --system` leaves nothing.

It prints what each user's home folder and processes take.
"""

import hashlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
REPL = """use cloze::prelude::*;
let t = Cpu::default().tensor([[1.0f32, 2.0], [3.0, 4.0]]);
#[derive(Debug)] struct Pair { name: String, sum: f32 }
let pair = Pair { name: String::from("sum"), sum: t.clone().sum::<Rank0, _>().array() };
pair
t.clone().matmul(t).array()
:hint 01.1
"""
SHOWN = ['Pair { name: "sum", sum: 10.0 }', "[[7.0, 10.0], [15.0, 22.0]]", "Hint 1 of"]
CELLS = [
    ("use cloze::prelude::*;\nlet t = Cpu::default().tensor([1.0f32, 2.0]);\n(t.clone() + t).array()", "[2.0, 4.0]"),
    ("let words = vec![\"a\", \"b\"];\nwords.len()", "2"),
    ("words.join(\"-\")", '"a-b"'),
]


def student():
    """Runs the cells that standard input names, one JSON string a line, in one kernel. Runs as a user."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="cloze", startup_timeout=60)
    for line in sys.stdin:
        shown = []

        def keep(message):
            content = message["content"]
            shown.append(content.get("data", {}).get("text/plain", "") or content.get("evalue", ""))

        began = time.time()
        reply = client.execute_interactive(json.loads(line), output_hook=keep, timeout=120)
        answer = [reply["content"]["status"], "\n".join(filter(None, shown)), time.time() - began]
        print(json.dumps(answer), flush=True)
    client.stop_channels()
    manager.shutdown_kernel()


class User:
    """A user with an empty home folder."""

    def __init__(self, name, work):
        self.name, self.work, self.home = name, work, work / "home" / name
        subprocess.run(["useradd", "--create-home", "--home-dir", self.home, name], check=True)
        self.id = pwd.getpwnam(name).pw_uid

    def run(self, *command, **options):
        return subprocess.Popen(self.command(*command), text=True, cwd=self.home, **options)

    def command(self, *command):
        own = ["setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups", "--reset-env"]
        return own + ["env", f"JUPYTER_PATH={self.work}/prefix/share/jupyter", *map(str, command)]

    def kernel(self, *variables):
        python = self.work / "venv/bin/python"
        command = ["env", *variables, python, self.work / "classroom.py", "--student"]
        return self.run(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def processes(self):
        """Returns what each of the user's processes of the kernel is, and its memory: PSS and what is its own."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.stat().st_uid != self.id:
                    continue
                if "/lib/cloze/" not in os.readlink(entry / "exe"):
                    continue
                words = (entry / "cmdline").read_bytes().split(b"\0")
                sizes = [line.split() for line in (entry / "smaps_rollup").read_text().splitlines()[1:]]
            except OSError:
                continue
            sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in sizes}
            role = words[1].decode() if len(words) > 2 else "cells"
            found.append((role, sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"]))
        return sorted(found)

    def end(self):
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and entry.exists() and entry.stat().st_uid == self.id:
                os.kill(int(entry.name), signal.SIGKILL)
        time.sleep(0.5)


def ask(kernel, code):
    kernel.stdin.write(json.dumps(code) + "\n")
    kernel.stdin.flush()
    line = kernel.stdout.readline()
    assert line, "the kernel's client has ended"
    return json.loads(line)


def together(tasks):
    """Runs functions at the same time and returns what they return."""
    results = [None] * len(tasks)

    def call(at, task):
        results[at] = task()

    threads = [threading.Thread(target=call, args=each) for each in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in results, "a thread has failed, see above"
    return results


def repl(user):
    began = time.time()
    run = user.run(user.work / "prefix/bin/cloze-kernel", "repl", "cells.rs", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 0, output
    for part in SHOWN:
        assert part in output, (part, output)
    return time.time() - began


def cells(kernel):
    times = []
    for code, expected in CELLS:
        status, shown, seconds = ask(kernel, code)
        assert status == "ok" and expected in shown, (code, status, shown)
        times.append(seconds)
    return times


def state(folder):
    """Returns each path below a folder with its permissions, its owner, its time and its contents' hash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        of = path.lstat()
        if path.is_symlink():
            contents = os.readlink(path)
        elif path.is_file():
            with path.open("rb") as file:
                contents = hashlib.file_digest(file, "sha256").hexdigest()
        else:
            contents = None
        found[str(path)] = (stat.filemode(of.st_mode), of.st_uid, of.st_mtime_ns, contents)
    return found


def size(folder):
    output = subprocess.run(["du", "-sk", folder], check=True, stdout=subprocess.PIPE, text=True).stdout
    return int(output.split()[0]) * 1024 / MIB


def install(program, work, path):
    """Installs for all users, with root's own data folder elsewhere and a umask that hides new files from others."""
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "CLOZE_DATA": str(work / "root")}
    command = [program, "install", "--system", "--prefix", work / "prefix"]
    return subprocess.run(command, env=environment, umask=0o077, stderr=subprocess.PIPE, text=True, check=False)


def templates(work):
    return {path.name for path in (work / "prefix/lib/cloze").iterdir() if path.is_dir()}


def open_toolchain(work):
    """Copies the Rust toolchain to where all users can read it, and returns the folder of its programs."""
    rust = work / "rust"
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, stdout=subprocess.PIPE, text=True)
    rust.mkdir()
    # Links cost no space, if they are possible.
    for flags in ("-al", "-a"):
        shutil.rmtree(rust / "all", ignore_errors=True)
        if subprocess.run(["cp", flags, sysroot.stdout.strip(), rust / "all"], check=False).returncode == 0:
            break
    rust.chmod(0o755)
    return rust / "all/bin"


def check(program, work, users):
    # What the users run.
    shutil.copy(__file__, work / "classroom.py")
    (work / "classroom.py").chmod(0o644)
    tools = open_toolchain(work)
    rust = tools.parent.parent
    rust.chmod(0o700)
    refused = install(program, work, tools)
    assert refused.returncode == 1 and f"{rust} is closed to them" in refused.stderr, refused.stderr
    rust.chmod(0o755)

    began = time.time()
    installed = install(program, work, tools)
    assert installed.returncode == 0, installed.stderr
    prefix = work / "prefix"
    (first,) = templates(work)
    print(f"installed in {time.time() - began:.0f} s, {size(prefix):.0f} MiB")
    before = state(prefix)
    for user in users:
        (user.home / "cells.rs").write_text(REPL)
        can_write = user.run("find", prefix, "!", "-type", "l", "-writable", stdout=subprocess.PIPE)
        assert can_write.communicate()[0] == "" and can_write.returncode == 0

    times = together([lambda user=user: repl(user) for user in users])
    print("REPL, both at the same time:", ", ".join(f"{seconds:.1f} s" for seconds in times))
    for user in users:
        print(f"home of {user.name} after the REPL: {size(user.home):.2f} MiB")

    kernels = [user.kernel("CLOZE_SPARE=1") for user in users]
    times = together([lambda kernel=kernel: cells(kernel) for kernel in kernels])
    print("Jupyter, both at the same time, seconds of each cell:", json.dumps([[round(s, 2) for s in all] for all in times]))
    print_memory("with one kernel each", users)
    deadline = time.time() + 90
    # Six seconds after the last cell a spare begins to warm up.
    while not all(spare_is_warm(user) for user in users):
        assert time.time() < deadline, "no spare session has become ready"
        time.sleep(1)
    time.sleep(3)
    print_memory("with one kernel and a spare each", users)
    for user in users:
        print(f"home of {user.name} while two sessions run: {size(user.home):.1f} MiB")
    for kernel in kernels:
        kernel.stdin.close()
        assert kernel.wait(60) == 0
    for user in users:
        user.end()
        print(f"home of {user.name} afterwards: {size(user.home):.2f} MiB")
        own = user.home / ".local/share/cloze/templates"
        assert not own.exists() or not any(own.iterdir()), "the user has got a template"
    assert state(prefix) == before, "the installation has changed"

    # An update, as from a newer program, while one user works.
    kernel = users[0].kernel("CLOZE_SPARE=off")
    cells(kernel)
    newer = work / "newer"
    newer.mkdir()
    shutil.copy(program, newer / "cloze-kernel")
    # The compiled parts of Cloze, which are linked anew.
    (newer / "deps").symlink_to(program.parent / "deps")
    updated = install(newer / "cloze-kernel", work, tools)
    assert updated.returncode == 0, updated.stderr
    (second,) = templates(work) - {first}
    assert first in templates(work), "an update has removed a template in use"
    assert cells(kernel), "the session has not survived the update"
    status, shown, _ = ask(kernel, "std::process::abort();")
    assert status == "error", shown
    # The process of the cells was started again, by the old program.
    assert cells(kernel)
    assert repl(users[1])
    kernel.stdin.close()
    assert kernel.wait(60) == 0
    assert install(newer / "cloze-kernel", work, tools).returncode == 0
    assert templates(work) == {second}, templates(work)
    print("an update left the running session alone, and the old template was removed after it")

    removed = subprocess.run([newer / "cloze-kernel", "uninstall", "--system", "--prefix", prefix], check=True, stderr=subprocess.PIPE)
    left = [path for path in prefix.rglob("*") if not path.is_dir()]
    assert not left, (left, removed.stderr)


def spare_is_warm(user):
    return any((user.home / ".local/share/cloze/spares").glob("*.socket"))


def print_memory(when, users):
    for user in users:
        processes = user.processes()
        parts = ", ".join(f"{role} {pss / MIB:.0f} ({own / MIB:.0f})" for role, pss, own in processes)
        total = [sum(each[at] for each in processes) / MIB for at in (1, 2)]
        print(f"memory {when}, {user.name}: PSS {total[0]:.0f} MiB, of its own {total[1]:.0f} MiB: {parts}")


def with_two_users(packages, check):
    """Runs a check with the program in the arguments, a folder with an environment that has these packages, and users."""
    if os.geteuid() != 0 or len(sys.argv) != 2:
        sys.exit(f"usage, as root: {sys.argv[0]} KERNEL")
    program = pathlib.Path(sys.argv[1]).resolve()
    # Other users must be able to enter it.
    work = pathlib.Path(tempfile.mkdtemp(prefix="cloze-classroom-", dir="/var/tmp"))
    work.chmod(0o755)
    users = []
    try:
        (work / "home").mkdir(mode=0o755)
        subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
        subprocess.run([work / "venv/bin/python", "-m", "pip", "install", "--quiet", *packages], check=True)
        for number in (1, 2):
            users.append(User(f"cloze-test-{number}", work))
        check(program, work, users)
    finally:
        for user in users:
            user.end()
            subprocess.run(["userdel", "--remove", user.name], check=True, stderr=subprocess.DEVNULL)
        shutil.rmtree(work)


def main():
    if sys.argv[1:] == ["--student"]:
        return student()
    with_two_users(["jupyter_client"], check)


if __name__ == "__main__":
    main()
