"""Images and containers without a daemon: buildah and podman, with a storage of their own."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 1.0


def run(*command: str | Path, **options: object) -> str:
    """Return what a command printed; raises CalledProcessError after showing what it said."""
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **options
    )  # type: ignore[call-overload]
    if done.returncode:
        print(done.stdout, flush=True)
        raise subprocess.CalledProcessError(done.returncode, command)
    said: str = done.stdout
    return said


class Engine:
    """Builds images and runs containers.

    Parameters
    ----------
    folder : Path
        Where images, containers and volumes are.
    """

    def __init__(self, folder: Path) -> None:
        self._storage = [
            f"--root={folder / 'storage'}",
            f"--runroot={folder / 'run'}",
            "--storage-driver=overlay",
        ]
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # runc, since crun refuses machines with both kinds of cgroups.
        choices = ("--runtime=runc", "--cgroup-manager=cgroupfs", "--log-level=error")
        self._podman = ["podman", *choices, *self._storage]
        # Podman would raise them, which root is not allowed to everywhere.
        self._bounds = [f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=4096:4096"]
        self._overlay = folder / "storage" / "overlay"

    def podman(self, *arguments: str | Path) -> str:
        """Run podman, and return what it printed."""
        return run(*self._podman, *arguments).strip()

    def bring_in(self, root: Path, tag: str) -> None:
        """Make an image of a file tree."""
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packing:
            into = [*self._podman, "import", "--quiet", "-", tag]
            subprocess.run(into, stdin=packing.stdout, stdout=subprocess.DEVNULL, check=True)

    def build(self, tag: str, folder: Path, *options: str) -> None:
        """Build an image by the Dockerfile of a folder, every step of it."""
        isolated = ["--format=docker", "--isolation=chroot", "--layers"]
        run("buildah", *self._storage, "bud", *isolated, *options, f"--tag={tag}", folder)

    def sizes(self, tag: str, folder: Path) -> tuple[int, int]:
        """Return the size of an image and that of its compressed layers, in bytes."""
        self.podman("push", "--quiet", tag, f"oci:{folder}:{tag}")
        packed = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        shutil.rmtree(folder)
        return int(self.podman("image", "inspect", "--format={{.Size}}", tag)), packed

    def start(self, name: str, options: Sequence[str], image: str, *command: str) -> None:
        """Start a container on this host's network, in the background."""
        self.podman("run", "--detach", "--no-healthcheck", *self._common(name), *options, image, *command)

    def finish(self, name: str, options: Sequence[str], image: str, *command: str) -> str:
        """Run a container to its end, and return what it printed."""
        return self.podman("run", "--rm", "--no-healthcheck", *self._common(name), *options, image, *command)

    def wait_until(self, name: str, *check: str, seconds: float = 90.0) -> None:
        """Wait until a command succeeds in a container."""
        deadline = time.monotonic() + seconds
        command = [*self._podman, "exec", name, *check]
        while subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: {' '.join(check)}\n{self.logs(name)}")
            time.sleep(_POLL_SECONDS)

    def logs(self, name: str) -> str:
        """Return what a container printed so far."""
        return run(*self._podman, "logs", name, stderr=subprocess.STDOUT)

    def stop(self, name: str, seconds: int) -> None:
        """Stop a container; raises RuntimeError unless it ended by itself, in order, within that time."""
        self.podman("stop", f"--time={seconds}", name)
        status = self.podman("container", "inspect", "--format={{.State.ExitCode}}", name)
        if status != "0":
            raise RuntimeError(f"{name} ended with {status}:\n{self.logs(name)}")

    def remove_all(self) -> None:
        """End and remove all containers."""
        self.podman("rm", "--all", "--force", "--time=0")

    def close(self) -> None:
        """End everything, so that the folder can be deleted."""
        self.remove_all()
        subprocess.run(["umount", str(self._overlay)], stderr=subprocess.DEVNULL)

    def _common(self, name: str) -> list[str]:
        hosts = [
            f"--add-host={host}:127.0.0.1"
            for host in ("db", "api", "prometheus", "dask-scheduler", "object-store")
        ]
        return [f"--name={name}", "--network=host", *hosts, *self._bounds]
