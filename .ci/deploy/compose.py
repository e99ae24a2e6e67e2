"""What docker-compose.yml says of a service, as arguments of podman."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def load(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the file with its variables filled in."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    filled: dict[str, Any] = yaml.safe_load(fill_in(text, environment))
    return filled


def scale_environment() -> dict[str, str]:
    """Return the variables of the profile `scale`, in which others are left as they stand there."""
    text = (ROOT / "deploy" / "scale.env").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def make_storage_secrets() -> str:
    """Return the commands of `deploy/scale.env` that make the secrets of the object store."""
    text = (ROOT / "deploy" / "scale.env").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^#   (?!docker)(.*)$", text, re.MULTILINE))


def fill_in(value: str, environment: Mapping[str, str]) -> str:
    """Return a value with its variables: by name, or else with the default that stands there."""
    return _VARIABLE.sub(lambda match: environment.get(match[1], match[2]), value)


def arguments_of(compose: Mapping[str, Any], name: str) -> list[str]:
    """Return the arguments of `podman run` for a service, without image and command.

    What is left out, since nothing here could act on it: restarts, logging, published ports and networks (all
    containers share one network, in which the names of the services mean this host), and health checks, which
    podman leaves to systemd.

    Parameters
    ----------
    compose : mapping
        The whole file.
    name : str
        The service.
    """
    return [*_flags(compose["services"][name]), *_mounts(compose, name), *_limits(compose["services"][name])]


def _flags(service: Mapping[str, Any]) -> Iterator[str]:
    if service.get("init"):
        yield "--init"
    if service.get("read_only"):
        yield "--read-only"
        yield "--read-only-tmpfs=false"
    if "user" in service:
        yield f"--user={service['user']}"
    if "entrypoint" in service:
        yield f"--entrypoint={json.dumps(service['entrypoint'])}"
    for key, value in service.get("environment", {}).items():
        yield f"--env={key}={value}"
    for key, option in (("security_opt", "security-opt"), ("cap_drop", "cap-drop"), ("cap_add", "cap-add")):
        for value in service.get(key, []):
            yield f"--{option}={value.replace('no-new-privileges:true', 'no-new-privileges')}"


def _mounts(compose: Mapping[str, Any], name: str) -> Iterator[str]:
    service = compose["services"][name]
    for mount in service.get("tmpfs", []):
        yield f"--tmpfs={mount}"
    for volume in service.get("volumes", []):
        source, _, target = volume.partition(":")
        yield f"--volume={ROOT / source if source.startswith('.') else source}:{target}"
    for secret in service.get("secrets", []):
        file = Path(compose["secrets"][secret]["file"])
        yield f"--volume={file.resolve()}:/run/secrets/{secret}:ro"


def _limits(service: Mapping[str, Any]) -> Iterator[str]:
    limits = service["deploy"]["resources"]["limits"]
    yield f"--memory={limits['memory']}"
    yield f"--pids-limit={limits['pids']}"
    if "cpu_shares" in service:
        yield f"--cpu-shares={service['cpu_shares']}"
