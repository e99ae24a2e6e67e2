"""The alerts and the dashboard of `deploy` speak of metrics that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.routes import ROUTERS
from app.bootstrap import build
from app.domain.entities import JobState
from app.main import create_app
from app.settings import Settings
from tests.app.closing import close
from tests.app.e2e.refusals import client_of

DEPLOY = Path(__file__).parents[3] / "deploy"
EXPRESSIONS = [
    *(
        rule["expr"]
        for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    ),
    *(
        target["expr"]
        for panel in json.loads((DEPLOY / "grafana/dashboards/lrbs.json").read_text())["panels"]
        for target in panel["targets"]
    ),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    services = build(Settings(data_dir=tmp_path_factory.mktemp("told"), database_url="", open_metrics=True))
    services.schema.upgrade()
    with client_of(create_app(services), {}) as client:
        yield client.get("/metrics").text
    close(services)


def test_every_name_is_that_of_a_metric(told: str) -> None:
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", told, re.MULTILINE))
    names = {f"{name}_bucket" if kind == "histogram" else name for name, kind in kinds.items()}
    used = {name for text in EXPRESSIONS for name in re.findall(r"\blrbs_\w+", text)}
    assert len(used) > 10
    assert used <= names


def test_values_of_labels_exist() -> None:
    states = {state for text in EXPRESSIONS for state in re.findall(r'state="(\w+)"', text)}
    assert states <= {state.value for state in JobState}
    patterns = {pattern for text in EXPRESSIONS for pattern in re.findall(r'route=~"([^"]+)"', text)}
    routes: list[Any] = [route for router in ROUTERS for route in router.routes]
    for pattern in patterns:
        matching = [route.path for route in routes if re.fullmatch(pattern, route.path)]
        assert matching
        assert all("search" in path for path in matching)


def test_prometheus_and_compose_agree() -> None:
    root = DEPLOY.parent
    services = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert services[service]["environment"]["LRBS_PORT"] == port
    secret = Path(job["authorization"]["credentials_file"])
    assert secret.parent == Path("/run/secrets")
    assert secret.name in services["prometheus"]["secrets"]
    assert f"{{$LRBS_UPSTREAM:{target}}}" in (DEPLOY / "Caddyfile").read_text()
    mounts = [mount for one in services.values() for mount in one.get("volumes", [])]
    folders = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(folders) == 4
    assert all((root / folder).exists() for folder in folders)
