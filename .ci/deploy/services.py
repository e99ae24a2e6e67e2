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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compose import arguments_of, fill_in, load, make_storage_secrets, scale_environment
from engine import ROOT, Engine, run

_URL = "http://127.0.0.1:8000"
_PICTURES = """
from app.sample import draw_sample
for name, kind in (("shoe", "sailing boats"), ("bag", "starry nights")):
    for number in (1, 2, 3):
        draw_sample(kind, number).image.save(f"/out/{name}-{number}.jpg")
"""
_BOUNDS = """
id -u
touch /data/x && rm /data/x && touch /tmp/x && ! touch /opt/lrbs/x 2>/dev/null && echo read-only
grep CapEff /proc/self/status | cut -f 2
cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes
"""
_OBJECTS = """
import collections, s3fs
names = s3fs.S3FileSystem().find("lrbs")
print(dict(collections.Counter(name.split("/")[2] for name in names)))
"""
_STORAGE = ("LRBS_STORAGE_URL", "AWS_ENDPOINT_URL", "LRBS_STORAGE_CREDENTIALS")
"""Variables of the profile `scale` about files; its galleries need pgvector, which is not here."""
_SCRAPE_SECONDS = 60.0
_STAND_INS = {
    "proxy": (
        "programs",
        ("--env=XDG_DATA_HOME=/data", "--env=XDG_CONFIG_HOME=/config"),
        ("caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"),
    ),
    "prometheus": ("programs", ("--user=65534",), ("prometheus",)),
    "object-store": ("objects", (), ()),
}
"""Images instead of those of registries, and the options and beginnings of commands that stand in these."""


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
        self._environment = {"LRBS_SECRETS": str(self.secrets)}
        self.set_environment({})

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """Fill variables of compose in, for what is started later."""
        filled = {name: fill_in(value, self._environment) for name, value in variables.items()}
        self.compose = load({**self._environment, **filled})
        self.services: dict[str, dict[str, Any]] = self.compose["services"]

    def put_secret(self, name: str, value: str) -> None:
        """Write a secret as docker-compose.yml says: the folder keeps others out, the file does not."""
        (self.secrets / name).write_text(f"{value}\n", encoding="utf-8")
        (self.secrets / name).chmod(0o644)

    def make_database(self) -> None:
        """Make the database of compose, empty, instead of one that is there."""
        server, password = _find_postgres(), (self.secrets / "database-password").read_text(encoding="utf-8")
        facts = self.services["db"]["environment"]
        for command in ("DROP DATABASE IF EXISTS", "CREATE DATABASE"):
            ask = (
                "-qh",
                "127.0.0.1",
                "-U",
                facts["POSTGRES_USER"],
                "-c",
                f"{command} {facts['POSTGRES_DB']}",
            )
            environment = {
                **os.environ,
                "PGPASSWORD": password.strip(),
                "PGOPTIONS": "-c client_min_messages=warning",
            }
            run(server / "psql", *ask, "postgres", env=environment)

    def start_database(self) -> Callable[[], object]:
        """Start PostgreSQL as the image of compose does: a superuser by name, the password asked for."""
        server = _find_postgres()
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
        self.make_database()
        return lambda: run(*control, "-m", "fast", "stop", cwd=data)

    def start(self, name: str) -> None:
        """Start a service in the background, and wait for its health check if it has one."""
        service = self.services[name]
        image, options, command = _STAND_INS.get(name, ("lrbs", (), ()))
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


def _find_postgres() -> Path:
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


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
    """Search over TLS, find /metrics closed, and search while the API is replaced."""
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
    search = (*call, *headers, *body, "https://localhost/v1/collections/shop/search/text-to-image")
    found = [run(*search)]
    over = threading.Event()

    def search_on() -> None:
        while not over.is_set():
            found.append(run(*search))

    clients = [threading.Thread(target=search_on) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        deployment.stop("api")
        deployment.engine.podman("rm", "api")
        deployment.start("api")
    finally:
        over.set()
        for client in clients:
            client.join()
    print(f"over TLS: /metrics {status}; searches while the API was replaced: {dict(Counter(found))}")
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


def check_object_store(deployment: Deployment, folder: Path, key: str) -> None:
    """Move the deployment into an object store by its copy, store and search there, also on another host."""
    engine = deployment.engine
    for name in ("worker", "api"):
        deployment.stop(name)
        engine.podman("rm", name)
    engine.podman("volume", "rm", "data")
    variables = scale_environment()
    deployment.set_environment({name: variables[name] for name in _STORAGE})
    run("bash", "-euc", make_storage_secrets(), cwd=folder)
    deployment.make_database()
    deployment.start("object-store")
    deployment.finish("bucket", *deployment.services["bucket"]["command"])
    options = [*arguments_of(deployment.compose, "api"), f"--volume={folder / 'backups'}:/backups:ro"]
    print(engine.finish("restore", options, "lrbs", "db", "restore", "/backups/copy"))
    for name in ("api", "worker"):
        deployment.start(name)
    call = ("curl", "-sS", "--noproxy", "*", "--fail-with-body", "-H", f"Authorization: Bearer {key}")
    picture, items = folder / "desk" / "shoe-3.jpg", f"{_URL}/v1/collections/shop/items"
    run(*call, items, "-F", f"picture=@{picture}", "-F", 'item={"id": "another", "modality": "image"}')
    shown = folder / "shown.jpg"
    run(*call, f"{items}/another/content", "-o", shown)
    objects = engine.finish("objects", [*options, "--entrypoint=python"], "lrbs", "-c", _OBJECTS)
    print("objects:", objects)
    options += ["--tmpfs=/elsewhere:mode=1777", "--env=LRBS_DATA_DIR=/elsewhere"]
    search = ("search", "shop", "--text", "a shoe", "-k", "9", "--json")
    found = engine.finish("search", options, "lrbs", *search)
    print("on a host with no files:", found[:60])
    is_stored = "'pictures': 5" in objects and shown.read_bytes() == picture.read_bytes()
    if not is_stored or "another" not in found:
        raise RuntimeError(f"what was stored in the object store is not found: {found}")


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
        check_restore(deployment, folder)
        check_object_store(deployment, folder, key)
        check_training(deployment)
        print(deployment.engine.podman("stats", "--no-stream", "--format={{.Name}} {{.MemUsage}} {{.PIDS}}"))
        for name in ("prometheus", "proxy", "worker", "api", "object-store"):
            deployment.stop(name)
    finally:
        deployment.engine.remove_all()
        stop_database()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
