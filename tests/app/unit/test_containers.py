"""Dockerfile and docker-compose.yml speak of commands, settings and files that exist."""

import configparser
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import cli
from app.settings import Settings

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("migrate", "api", "worker")
KNOWN = {f"LRBS_{name.upper()}" for name in Settings.model_fields}


KUBERNETES = {
    file.stem: list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    for file in (ROOT / "deploy" / "kubernetes").glob("*.yaml")
}
PODS = {
    document["metadata"]["name"]: document["spec"]["template"]["spec"]
    for documents in KUBERNETES.values()
    for document in documents
    if document["kind"] == "Deployment"
}


def instruction(name: str) -> list[str]:
    """Return what the last such instruction of the Dockerfile lists."""
    found: list[str] = json.loads(re.findall(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    return found


def runs(arguments: list[str]) -> bool:
    """Return whether a command with its options is known; it is only parsed."""
    assert CliRunner().invoke(cli, ["no-such-command", "--help"]).exit_code != 0
    return CliRunner().invoke(cli, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("name", OURS)
def test_commands_and_settings_exist(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    assert runs(service["command"]), service["command"]
    assert not runs([*service["command"], "--no-such-option"])
    settings = {variable for variable in service["environment"] if variable.startswith("LRBS_")}
    assert settings <= KNOWN
    assert {"LRBS_DATA_DIR", "LRBS_DATABASE_URL"} <= settings
    # ${NAME:-default} as compose reads it where NAME is not set.
    values = {key: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(service["environment"][key])) for key in settings}
    password = tmp_path / "password"
    password.write_text("secret")
    values["LRBS_DATABASE_PASSWORD_FILE"] = str(password)
    Settings(**{key.removeprefix("LRBS_").lower(): value for key, value in values.items()})


def test_the_image_serves_by_itself() -> None:
    assert instruction("ENTRYPOINT") == ["lrbs"]
    assert runs(instruction("CMD"))
    variables = set(re.findall(r"\b(LRBS_[A-Z_]+)=", DOCKERFILE))
    assert variables <= KNOWN
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert user in re.findall(r"useradd --uid (\d+)", DOCKERFILE), "Kubernetes asks for a number"
    assert "constraints.txt" in DOCKERFILE
    (version,) = re.findall(r"^ARG VERSION=(.*)$", DOCKERFILE, re.MULTILINE)
    assert version == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_image_gets_every_file_it_copies_and_no_secret() -> None:
    wanted = {
        path
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for path in line.split()[:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    assert {f"!{path}" for path in wanted} == {line for line in ignored if line.startswith("!")}
    assert all((ROOT / path).exists() for path in wanted)
    package_data = {"app", "solver", "migrations"}
    assert package_data <= wanted


def test_secrets_come_from_files() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            is_secret = "PASSWORD" in variable or "SECRET" in variable or "@" in str(value)
            if is_secret and variable != "LRBS_DATABASE_URL":
                assert str(value).removeprefix("/run/secrets/") in service["secrets"], (name, variable)
    for name in OURS:
        assert SERVICES[name]["environment"]["LRBS_DATABASE_URL"] == "postgresql+psycopg://lrbs@db:5432/lrbs"
    files = {name: secret["file"] for name, secret in COMPOSE["secrets"].items()}
    # Nothing is missing where there is no object store.
    assert files.pop("storage-credentials") == "${LRBS_STORAGE_CREDENTIALS:-/dev/null}"
    assert files == {name: f"${{LRBS_SECRETS:-./secrets}}/{name}" for name in files}
    assert "PASSWORD" not in DOCKERFILE
    assert {"/.env", "/secrets/"} <= set((ROOT / ".gitignore").read_text(encoding="utf-8").split())


def test_every_variable_of_env_is_used() -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for name, value in re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE):
        assert f"${{{name}:-{value}}}" in compose, name


SCALE = (ROOT / "deploy" / "scale.env").read_text(encoding="utf-8")


def test_the_profile_of_dask_has_what_its_settings_name() -> None:
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    values = dict(re.findall(r"^(\w+)=(.*)$", SCALE, re.MULTILINE))
    assert all(f"${{{name}:-" in compose for name in values)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (usual,) = re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert f"${{LRBS_EXTRAS:-{usual}}}" in compose
    assert {"dask", "s3", *usual.split(",")} <= set(values["LRBS_EXTRAS"].split(",")) <= set(extras)
    environment = SERVICES["api"]["environment"]
    passed_on = {name: values[name] for name in environment if name in values}
    passed_on["LRBS_DATABASE_URL"] = environment["LRBS_DATABASE_URL"]
    settings = Settings(**{name.removeprefix("LRBS_").lower(): value for name, value in passed_on.items()})
    assert (settings.vector_engine, settings.training_engine) == ("postgresql", "dask")
    assert settings.dask_scheduler == "tcp://dask-scheduler:8786"
    scheduler, worker = SERVICES["dask-scheduler"], SERVICES["dask-worker"]
    assert "8786" in scheduler["command"]
    assert settings.dask_scheduler in worker["command"]
    for service in (scheduler, worker):
        assert service["image"] == SERVICES["worker"]["image"]
        assert "secrets" not in service
        assert service["networks"] == ["training"]
        assert service["read_only"] is True
    assert "training" in SERVICES["worker"]["networks"]
    assert worker["volumes"] == ["data:/data:ro"], "the samples of a training, under the path of the trainer"


def test_the_object_store_is_where_its_clients_look_and_keeps_others_out(tmp_path: Path) -> None:
    values = dict(re.findall(r"^(\w+)=(.*)$", SCALE, re.MULTILINE))
    store, bucket = SERVICES["object-store"], SERVICES["bucket"]
    assert values["AWS_ENDPOINT_URL"] == "http://object-store:8333"
    assert "127.0.0.1:8333" in store["healthcheck"]["test"][-1]
    assert values["LRBS_STORAGE_URL"].startswith("s3://lrbs/")
    assert "makedirs('lrbs'" in bucket["command"][0]
    assert {"-ip.bind=127.0.0.1", "-s3.ip.bind=0.0.0.0", "-s3.autoCreateBucket=false"} <= set(
        store["command"]
    ), "of its parts S3 alone asks for keys"
    assert store["networks"] == ["storage"]
    assert COMPOSE["networks"]["storage"] == {"internal": True}
    assert store["secrets"] == ["storage-identities"]
    assert "ports" not in store
    for name in (*OURS, "bucket"):
        assert "storage" in SERVICES[name]["networks"]
        assert "storage-credentials" in SERVICES[name]["secrets"]
        place = "/run/secrets/storage-credentials"
        assert SERVICES[name]["environment"]["AWS_SHARED_CREDENTIALS_FILE"] == place

    commands = "\n".join(re.findall(r"^#   (?!docker)(.*)$", SCALE, re.MULTILINE))
    (tmp_path / "secrets").mkdir()
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True)
    read = configparser.ConfigParser()
    assert read.read(tmp_path / "secrets" / "storage-credentials")
    (identity,) = json.loads((tmp_path / "secrets" / "storage-identities").read_text())["identities"]
    (key,) = identity["credentials"]
    assert dict(read["default"]) == {
        "aws_access_key_id": key["accessKey"],
        "aws_secret_access_key": key["secretKey"],
    }
    assert len(key["secretKey"]) == 48
    assert identity["actions"] == ["Admin:lrbs"]


def test_services_wait_for_what_they_need() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for name in ("api", "worker"):
        assert SERVICES[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES["migrate"]["restart"] == "no"
    assert "healthcheck" in SERVICES["db"]
    assert "HEALTHCHECK" in DOCKERFILE


def test_every_service_is_bounded() -> None:
    for name, service in SERVICES.items():
        assert {"memory", "pids"} <= set(service["deploy"]["resources"]["limits"]), name
        assert {"max-size", "max-file"} <= set(service["logging"]["options"]), name
        assert "no-new-privileges:true" in service["security_opt"], name
    for name in (*OURS, "object-store", "bucket"):
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert [mount.partition(":")[0] for mount in SERVICES[name]["tmpfs"]] == ["/tmp"]


def test_the_health_check_of_the_image_is_that_of_compose() -> None:
    (of_image,) = re.findall(r"^    CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert SERVICES["api"]["healthcheck"]["test"] == ["CMD", *json.loads(of_image)]
    environment, check = SERVICES["worker"]["environment"], SERVICES["worker"]["healthcheck"]["test"]
    assert environment["LRBS_ALIVE_FILE"] in check[1]


def test_api_and_worker_share_one_volume_and_the_database_has_its_own() -> None:
    assert {tuple(SERVICES[name]["volumes"]) for name in OURS} == {("data:/data",)}
    assert all(SERVICES[name]["environment"]["LRBS_DATA_DIR"] == "/data" for name in OURS)
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    named = {mount for mount in mounts if not mount.startswith(".")}
    assert set(COMPOSE["volumes"]) == named
    assert mounts.count("database") == 1
    assert "ports" not in SERVICES["db"]


def test_a_stop_leaves_more_time_than_requests_get() -> None:
    grace = int(SERVICES["api"]["stop_grace_period"].removesuffix("s"))
    assert grace > int(SERVICES["api"]["environment"]["LRBS_SHUTDOWN_SECONDS"])


@pytest.mark.parametrize("name", ["lrbs-api", "lrbs-worker"])
def test_pods_run_what_exists_as_compose_does(name: str) -> None:
    pod, (configuration,) = PODS[name], KUBERNETES["kustomization"]
    service = SERVICES[name.removeprefix("lrbs-")]
    assert pod["securityContext"]["runAsUser"] == int(
        re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)[0]
    )
    for container in (*pod["initContainers"], *pod["containers"]):
        assert runs(container["args"])
        assert not runs([*container["args"], "--no-such-option"])
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is service["read_only"]
        assert rights["capabilities"]["drop"] == service["cap_drop"]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
            "/data",
            "/tmp",
            "/run/secrets/lrbs",
        }
    (image,) = configuration["images"]
    (generated,) = configuration["configMapGenerator"]
    settings = dict(literal.split("=", 1) for literal in generated["literals"])
    (container,) = pod["containers"]
    assert set(settings) | {entry["name"] for entry in container.get("env", [])} <= KNOWN
    assert settings["LRBS_DATABASE_PASSWORD_FILE"].startswith("/run/secrets/lrbs/")
    assert pod["terminationGracePeriodSeconds"] > int(settings["LRBS_SHUTDOWN_SECONDS"]) + 5
    assert f"ARG VERSION={image['newTag']}\n" in DOCKERFILE


def test_the_worker_of_kubernetes_is_watched_as_that_of_compose() -> None:
    (container,) = PODS["lrbs-worker"]["containers"]
    assert container["livenessProbe"]["exec"]["command"][-1] == SERVICES["worker"]["healthcheck"]["test"][-1]
    (alive,) = container["env"]
    assert alive["value"] == SERVICES["worker"]["environment"][alive["name"]]
