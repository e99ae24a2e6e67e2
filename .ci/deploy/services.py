"""Starts the services of docker-compose.yml and calls them as the README does; started by `run.py`."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compose import arguments_of, load, scale_environment
from engine import ROOT, Engine, run

_URL = "http://127.0.0.1:8000"
_PICTURES = """
from app.sample import draw_sample
for name, kind in (("shoe", "sailing boats"), ("bag", "starry nights")):
    for number in (1, 2):
        draw_sample(kind, number).image.save(f"/out/{name}-{number}.jpg")
"""
_BOUNDS = """
id -u
touch /data/x && rm /data/x && touch /tmp/x && ! touch /opt/lrbs/x 2>/dev/null && echo read-only
grep CapEff /proc/self/status | cut -f 2
cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes
"""
_SCRAPE_SECONDS = 60.0
_STAND_INS = {
    "proxy": (
        ("--env=XDG_DATA_HOME=/data", "--env=XDG_CONFIG_HOME=/config"),
        ("caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"),
    ),
    "prometheus": (("--user=65534",), ("prometheus",)),
}
"""Options and beginnings of commands that stand in the images of registries."""


class Deployment:
    """The services of compose over a PostgreSQL server of its own.

    Parameters
    ----------
    folder : Path
        For everything that is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.engine = Engine(folder)
        self.secrets = folder / "secrets"
        self.secrets.mkdir(mode=0o700)
        for name in ("database-password", "metrics-key", "grafana-password"):
            self.put_secret(name, secrets.token_hex(24))
        self.compose = load({"LRBS_SECRETS": str(self.secrets)})
        self.services: dict[str, dict[str, Any]] = self.compose["services"]

    def put_secret(self, name: str, value: str) -> None:
        """Write a secret as docker-compose.yml says: the folder keeps others out, the file does not."""
        (self.secrets / name).write_text(f"{value}\n", encoding="utf-8")
        (self.secrets / name).chmod(0o644)

    def start_database(self) -> Callable[[], object]:
        """Start PostgreSQL as the image of compose does: a superuser by name, the password asked for."""
        server = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        data = self._folder / "database"
        data.mkdir()
        shutil.chown(data, "postgres")
        password = self._folder / "password"
        shutil.copy(self.secrets / "database-password", password)
        shutil.chown(password, "postgres")
        as_postgres = ("runuser", "-u", "postgres", "--")
        user = self.services["db"]["environment"]["POSTGRES_USER"]
        new = ("-U", user, "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C.UTF-8")
        run(*as_postgres, server / "initdb", "-D", data, *new, cwd=data)
        control = (*as_postgres, server / "pg_ctl", "-D", data, "-w")
        settings = "-c listen_addresses=127.0.0.1 -c unix_socket_directories="
        run(*control, "-l", data / "log", "-o", settings, "start", cwd=data)
        environment = {**os.environ, "PGPASSWORD": password.read_text(encoding="utf-8").strip()}
        create = f"CREATE DATABASE {self.services['db']['environment']['POSTGRES_DB']}"
        run(server / "psql", "-qh", "127.0.0.1", "-U", user, "-c", create, "postgres", env=environment)
        return lambda: run(*control, "-m", "fast", "stop", cwd=data)

    def start(self, name: str) -> None:
        """Start a service in the background, and wait for its health check if it has one."""
        service = self.services[name]
        options, command = _STAND_INS.get(name, ((), ()))
        image = "programs" if name in _STAND_INS else "lrbs"
        options = [*arguments_of(self.compose, name), *options]
        self.engine.start(name, options, image, *command, *service.get("command", []))
        kind, *check = service.get("healthcheck", {}).get("test", ["NONE"])
        if kind != "NONE":
            began = time.monotonic()
            self.engine.wait_until(name, *(("sh", "-c", *check) if kind == "CMD-SHELL" else check))
            print(f"{name} is healthy after {time.monotonic() - began:.1f} s")

    def finish(self, name: str, *command: str, of: str = "") -> str:
        """Run a command in a container of a service to its end."""
        return self.engine.finish(name, arguments_of(self.compose, of or name), "lrbs", *command)

    def stop(self, name: str) -> None:
        """Stop a service in the time that compose gives it."""
        began = time.monotonic()
        self.engine.stop(name, int(self.services[name].get("stop_grace_period", "10s").removesuffix("s")))
        print(f"{name} ended in order after {time.monotonic() - began:.1f} s")


def call_as_the_readme(deployment: Deployment, folder: Path, key: str) -> None:
    """Run the block of curl calls of the README, with drawn pictures."""
    folder.mkdir()
    folder.chmod(0o777)  # for the user of the image
    draw = [f"--volume={folder}:/out", "--entrypoint=python"]
    deployment.engine.finish("draw", draw, "lrbs", "-c", _PICTURES)
    (block,) = re.findall(
        r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    environment = {**os.environ, "URL": _URL, "KEY": key, "no_proxy": "*"}
    answers = run("bash", "-eu", "-c", block, cwd=folder, env=environment).splitlines()
    for answer in answers[-2:]:
        hits = json.loads(answer)["hits"]
        print("hits", [hit["id"] for hit in hits])
        if not hits:
            raise RuntimeError("the search of the README found nothing")


def check_bounds(deployment: Deployment) -> None:
    """Check what a service may do: write where it should, as a user without rights, in bounded memory."""
    for name in ("api", "worker"):
        found = deployment.engine.podman("exec", name, "sh", "-c", _BOUNDS).split()
        print(f"{name}: user {found[0]}, {found[1]}, capabilities {found[2]}, memory {found[3]}")
        if found[:3] != ["10001", "read-only", "0" * 16] or not found[3].isdigit():
            raise RuntimeError(f"{name}: {found}")


def check_proxy(deployment: Deployment, folder: Path, key: str) -> None:
    """Search over TLS, find /metrics closed, and read while the API is replaced.

    Only read: Debian's Caddy 2.6 sends no body a second time ("body closed by handler", 502).
    """
    deployment.start("proxy")
    authority = "/data/caddy/pki/authorities/local/root.crt"
    deployment.engine.wait_until("proxy", "test", "-s", authority)
    certificate = folder / "root.crt"
    certificate.write_text(deployment.engine.podman("exec", "proxy", "cat", authority), encoding="utf-8")
    call = ("curl", "-sS", "--noproxy", "*", "--cacert", certificate, "-o", "/dev/null", "-w", "%{http_code}")
    retries = ("--retry", "5", "--retry-all-errors")
    status = run(*call, *retries, "https://localhost/metrics")
    body = ("-H", "Content-Type: application/json", "-d", '{"text": "a shoe", "k": 1}')
    headers = ("-H", f"Authorization: Bearer {key}")
    found = [run(*call, *headers, *body, "https://localhost/v1/collections/shop/search/text-to-image")]
    over = threading.Event()

    def read_on() -> None:
        while not over.is_set():
            found.append(run(*call, *headers, "https://localhost/v1/collections"))

    reading = threading.Thread(target=read_on)
    reading.start()
    try:
        deployment.stop("api")
        deployment.engine.podman("rm", "api")
        deployment.start("api")
    finally:
        over.set()
        reading.join()
    print(f"over TLS: /metrics {status}; answers while the API was replaced: {dict(Counter(found))}")
    if status != "404" or set(found) != {"200"}:
        raise RuntimeError(deployment.engine.logs("proxy"))


def check_training(deployment: Deployment) -> None:
    """Train on a worker of Dask, as the profile `scale` has trainings do."""
    for name in ("dask-scheduler", "dask-worker"):
        deployment.start(name)
    scheduler = scale_environment()["LRBS_DASK_SCHEDULER"]
    # Of the few pairs there are, which would be evaluated in the training process.
    options = [*arguments_of(deployment.compose, "worker"), "--env=LRBS_DASK_FROM_PAIRS=1"]
    train = ("train", "shop", "--method", "lrbs", "--engine", "dask", "--scheduler", scheduler)
    print("trained on Dask:", deployment.engine.finish("train", options, "lrbs", *train)[:60])
    said = deployment.engine.logs("dask-scheduler")
    if "Receive client connection" not in said:
        raise RuntimeError(f"no training asked the scheduler: {said}")
    for name in ("dask-worker", "dask-scheduler"):
        deployment.stop(name)


def check_restore(deployment: Deployment, folder: Path) -> None:
    """Copy the deployment while it runs, restore the copy into another folder, and search there."""
    backups, elsewhere = folder / "backups", folder / "elsewhere"
    for place in (backups, elsewhere):
        place.mkdir()
        place.chmod(0o777)  # for the user of the image
    options = arguments_of(deployment.compose, "api")
    written = [*options, f"--volume={backups}:/backups"]
    print(deployment.engine.finish("backup", written, "lrbs", "db", "backup", "/backups/copy"))
    options += [f"--volume={backups}:/backups:ro", f"--volume={elsewhere}:/elsewhere"]
    options += ["--env=LRBS_DATA_DIR=/elsewhere", "--env=LRBS_DATABASE_URL="]
    print(deployment.engine.finish("restore", options, "lrbs", "db", "restore", "/backups/copy"))
    search = ("search", "shop", "--text", "a shoe", "-k", "1", "--json")
    print("restored:", deployment.engine.finish("search", options, "lrbs", *search)[:60])


def check_monitoring(deployment: Deployment, key: str) -> None:
    """Let Prometheus read the metrics with a key of its own, and the alerts."""
    deployment.put_secret("metrics-key", key)
    deployment.start("prometheus")
    address = "http://127.0.0.1:9090/api/v1"
    call = (
        "curl",
        "-sS",
        "--noproxy",
        "*",
        "--fail",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
    )
    deadline = time.monotonic() + _SCRAPE_SECONDS
    found: list[Any] = []
    while not found and time.monotonic() < deadline:
        time.sleep(1.0)
        found = json.loads(run(*call, f"{address}/query?query=lrbs_active_version"))["data"]["result"]
    groups = json.loads(run(*call, f"{address}/rules"))["data"]["groups"]
    faults = [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]
    print(
        f"Prometheus: {found[0]['metric'] if found else None}, {sum(len(g['rules']) for g in groups)} alerts"
    )
    if not found or faults:
        raise RuntimeError(f"Prometheus: {found} {faults}")


def main(folder: Path) -> None:
    """Start everything in the order of compose, use it, and stop it."""
    run("ip", "link", "set", "lo", "up")
    deployment = Deployment(folder)
    stop_database = deployment.start_database()
    try:
        print("migrate:", deployment.finish("migrate", *deployment.services["migrate"]["command"]))
        deployment.start("api")
        deployment.start("worker")
        key = deployment.finish("key", "keys", "create", "--scope", "admin", of="api").splitlines()[0]
        check_bounds(deployment)
        call_as_the_readme(deployment, folder / "desk", key)
        check_proxy(deployment, folder, key)
        check_monitoring(
            deployment, deployment.finish("key", "keys", "create", "--scope", "metrics", of="api")
        )
        check_training(deployment)
        check_restore(deployment, folder)
        print(deployment.engine.podman("stats", "--no-stream", "--format={{.Name}} {{.MemUsage}} {{.PIDS}}"))
        for name in ("prometheus", "proxy", "worker", "api"):
            deployment.stop(name)
    finally:
        deployment.engine.remove_all()
        stop_database()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
