from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"open_search": True, "open_metrics": False, "processes": 3, "shutdown_seconds": 1.5},
        {"data_dir": Path("elsewhere"), "database_url": "sqlite:///a%20b.sqlite3", "log_format": "json"},
        {"cors_origins": "https://a.example, https://b.example", "test_data": Path("/data")},
    ],
)
def test_another_process_finds_the_same_settings(
    changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"LRBS_DATA_DIR": "given", "LRBS_OPEN_SEARCH": "false", "lrbs_port": "1", "PATH": "/bin"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings().model_copy(update=changed)
    told = settings.passed_on_in(given)
    assert told["PATH"] == "/bin"
    for name in given:
        monkeypatch.delenv(name)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings.model_copy(update={"data_dir": (tmp_path / settings.data_dir).resolve()})


def test_settings_of_earlier_releases_are_named() -> None:
    environment = {"LRBS_MAX_BATCH_HITS": "1", "lrbs_worker_poll_seconds": "2", "LRBS_PORT": "80", "PATH": ""}
    assert Settings().retired_in(environment) == ["LRBS_MAX_BATCH_HITS", "lrbs_worker_poll_seconds"]
    assert Settings().retired_in({"LRBS_MAX_BATCH": "1"}) == []


@pytest.mark.parametrize(("cores", "processes"), [(None, 1), (1, 1), (2, 2), (4, 4), (64, 4)])
def test_there_is_a_server_process_for_each_core(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, processes: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert Settings().resolved_processes == processes
    assert Settings(processes=3).resolved_processes == 3
