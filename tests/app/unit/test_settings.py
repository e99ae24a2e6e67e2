from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from app.domain import hosts
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


def test_the_password_of_the_database_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p@ss/w:rd%20 \n")
    settings = Settings(
        database_url="postgresql+psycopg://lrbs:other@db:5432/lrbs", database_password_file=file
    )
    url = make_url(settings.resolved_database_url)
    assert (url.username, url.password, url.host, url.database) == ("lrbs", "p@ss/w:rd%20", "db", "lrbs")
    told = settings.passed_on_in({})
    assert told["LRBS_DATABASE_PASSWORD_FILE"] == str(file)
    assert not any("p@ss" in value for value in told.values())
    assert "sqlite" in Settings(database_url="", database_password_file=file).resolved_database_url


@pytest.mark.parametrize(("text", "told"), [("\n", "is empty"), (None, "cannot be read: No such file")])
def test_a_file_without_a_password_is_refused(text: str | None, told: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "password").write_text(text)
    with pytest.raises(ValidationError, match=told) as refused:
        Settings(database_password_file=tmp_path / "password")
    assert refused.value.errors()[0]["loc"] == ("database_password_file",)


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("LRBS_PROCESES", ": do you mean LRBS_PROCESSES?"),
        ("lrbs_datadir", ": do you mean LRBS_DATA_DIR?"),
        ("LRBS_SERVICE_HOST", ""),
    ],
)
def test_what_is_no_setting_is_named_and_not_passed_on(variable: str, hint: str) -> None:
    kept = {"LRBS_URL": "", "LRBS_TEST_POSTGRES_URL": "", "LRBS_TEST_DATA": "/data", "PATH": ""}
    environment = {variable: "3", "LRBS_PORT": "80", **kept}
    assert Settings.faults_in(environment) == {
        variable: f"{variable} is not a setting and has no effect{hint}"
    }
    assert variable not in Settings().passed_on_in(environment)
    assert {"LRBS_URL", "LRBS_TEST_POSTGRES_URL", "PATH"} < set(Settings().passed_on_in(environment))


def test_settings_of_earlier_releases_are_named() -> None:
    environment = {"LRBS_MAX_BATCH_HITS": "1", "lrbs_worker_poll_seconds": "2", "LRBS_PORT": "80", "PATH": ""}
    faults = Settings.faults_in(environment)
    assert list(faults) == ["LRBS_MAX_BATCH_HITS", "lrbs_worker_poll_seconds"]
    assert all("not a setting any more" in fault for fault in faults.values())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("67108864", 1 << 26),
        ("64MiB", 1 << 26),
        ("64 mib", 1 << 26),
        ("64Mi", 1 << 26),
        ("64MB", 64_000_000),
        ("64M", 64_000_000),
        ("1.5GiB", 3 << 29),
    ],
)
def test_every_size_takes_units(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [name for name in Settings.model_fields if name.endswith("_bytes")]
    assert len(sizes) > 6
    for name in sizes:
        monkeypatch.setenv(f"LRBS_{name.upper()}", text)
    assert {getattr(Settings(), name) for name in sizes} == {size}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("1.5", 1.5), ("90s", 90.0), ("2 min", 120.0), ("12H", 43_200.0)]
)
def test_every_duration_takes_units(text: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    durations = [name for name in Settings.model_fields if name.endswith("_seconds")]
    assert len(durations) > 6
    for name in durations:
        monkeypatch.setenv(f"LRBS_{name.upper()}", text)
    assert {getattr(Settings(), name) for name in durations} == {seconds}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_body_bytes", "64 sacks", "with a unit as in 64MiB"),
        ("max_body_bytes", "1,5GB", "with a unit as in 64MiB"),
        ("max_body_bytes", "64MiB and more", "with a unit as in 64MiB"),
        ("max_body_bytes", "0MiB", "greater than 0"),
        ("lock_wait_seconds", "2 parsecs", "unknown unit 'parsecs'"),
        ("lock_wait_seconds", "0s", "greater than 0"),
        ("database_url", "mysql://user@host/name", "names mysql"),
        ("database_url", "host:secret/name", "is not a URL such as postgresql://"),
    ],
)
def test_a_value_that_means_nothing_is_refused(name: str, value: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told) as refused:
        Settings.model_validate({name: value})
    assert refused.value.errors()[0]["loc"] == (name,)


@pytest.mark.parametrize("scheme", ["postgres", "PostgreSQL", "postgresql+psycopg", "postgres+asyncpg"])
def test_a_url_of_postgresql_is_taken_as_hosters_print_it(scheme: str) -> None:
    settings = Settings(database_url=f"{scheme}://me:p%40ss@db.example:6432/shop?sslmode=require")
    url = make_url(settings.resolved_database_url)
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port) == ("me", "p@ss", "db.example", 6432)
    assert (url.database, dict(url.query)) == ("shop", {"sslmode": "require"})


@pytest.mark.parametrize(("n_cores", "processes"), [(1, 1), (2, 2), (4, 4), (64, 4)])
def test_there_is_a_server_process_for_each_core(
    monkeypatch: pytest.MonkeyPatch, n_cores: int, processes: int
) -> None:
    monkeypatch.setattr("app.settings.usable_cores", lambda: n_cores)
    monkeypatch.setattr("app.settings._memory_bytes", lambda: 1 << 40)
    assert Settings().resolved_processes == processes
    assert Settings(processes=3).resolved_processes == 3
    monkeypatch.setattr("app.settings._memory_bytes", lambda: 2_000_000_000)
    assert Settings().resolved_processes == 1


def test_memory_that_a_container_may_not_use_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr("app.settings._CONTAINER_LIMITS", limits)
    installed = Settings(processes=1).resolved_snapshot_bytes
    assert installed > 1 << 28
    for limit in limits:
        for text, bound in (("max", installed), ("9223372036854771712", installed), ("536870912", 1 << 28)):
            limit.write_text(f"{text}\n")
            assert Settings(processes=1).resolved_snapshot_bytes == bound
        limit.unlink()


def test_cores_that_a_process_may_not_use_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "cpu.max"
    monkeypatch.setattr(hosts, "_CONTAINER_LIMIT", limit)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    assert hosts.usable_cores() == 3
    for text, expected in (("max 100000", 3), ("200000 100000", 2), ("50000 100000", 1), ("broken", 3)):
        limit.write_text(text)
        assert hosts.usable_cores() == expected
