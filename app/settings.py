"""Settings from the environment; only the composition root and the entry points read them."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

DATABASE_FILE = "lrbs.sqlite3"
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Settings(BaseSettings):
    """Every setting has a default that works; each is read from ``LRBS_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="LRBS_", extra="ignore")

    data_dir: Path = Field(Path("data"), description="SQLite file, pictures, bundles: everything written")
    database_url: str = Field("", description="SQLAlchemy URL; SQLite inside the data folder when empty")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    open_search: bool = Field(False, description="search and reading need no key")
    max_body_bytes: int = Field(64 << 20, gt=0, description="largest request body")
    max_import_bytes: int = Field(16 << 30, gt=0, description="largest body of an import")
    max_import_line_bytes: int = Field(16 << 20, gt=0, description="longest line of an import")
    max_picture_bytes: int = Field(10 << 20, gt=0, description="largest picture file")
    max_picture_pixels: int = Field(40_000_000, gt=0, description="largest picture, decoded")
    max_text_chars: int = Field(20_000, gt=0, description="longest text")
    max_batch: int = Field(1000, gt=0, description="most items or queries in one call")
    max_batch_hits: int = Field(100_000, ge=10_000, description="most results ranked in one call")
    max_answer_bytes: int = Field(64 << 20, ge=1 << 20, description="largest answer of a search, or page")
    max_search_body_bytes: int = Field(16 << 20, gt=0, description="largest request body of a search")
    body_pause_seconds: float = Field(20.0, gt=0, description="how long the rest of a request is waited for")
    max_running: int = Field(4, ge=1, le=256, description="searches, and writes, that work at once")
    max_waiting: int = Field(13, ge=0, le=10_000, description="searches, and writes, that wait for those")
    max_connections: int = Field(
        1000, ge=1, description="connections open at once in a process, as far as it may open files"
    )
    trusted_proxies: str = Field(
        "", description="addresses and networks whose X-Forwarded-For is believed, comma-separated; none"
    )
    cors_origins: str = Field("", description="origins of other sites' pages, comma-separated; none")
    open_metrics: bool = Field(True, description="/metrics needs no key; else one of scope admin")
    log_format: Literal["text", "json"] = Field("text", description="text or json, a line for each entry")
    shutdown_seconds: float = Field(30.0, gt=0, description="how long a stop waits for what was accepted")
    processes: int = Field(1, ge=1, le=64, description="server processes behind one port")
    rate_limit: int = Field(0, ge=0, le=100_000, description="requests a minute of a key; 0 for no limit")
    lock_wait_seconds: float = Field(5.0, gt=0, description="how long a write waits for others")
    sweep_grace_seconds: float = Field(3600.0, ge=0, description="how long an unused file is kept")
    trash_seconds: float = Field(604_800.0, ge=0, description="how long swept files are kept aside")
    save_after_items: int = Field(
        1000, ge=1, description="after so many written items, and a tenth of all, galleries are saved"
    )
    max_snapshot_bytes: int = Field(
        0, ge=0, description="memory of a process for galleries; half of the machine's, shared, when 0"
    )
    lease_seconds: float = Field(30.0, gt=0, description="how long a silent worker keeps its job")
    job_attempts: int = Field(3, ge=1, description="how often a job whose worker or trainer died is tried")
    max_training_seconds: float = Field(14_400.0, gt=0, description="how long a training may take")
    job_retry_seconds: float = Field(
        5.0, ge=0, description="pause before a second attempt; doubles each time"
    )
    gate_tolerance: float = Field(0.02, ge=0, le=1, description="how much worse on held-out items may serve")
    gate_index_recall: float = Field(
        0.99, ge=0, le=1, description="recall@10 that an approximate index needs to serve"
    )
    keep_versions: int = Field(5, ge=1, description="how many inactive versions are kept")
    test_data: Path | None = Field(None, description="real data for benchmarks")
    worker_poll_seconds: float = Field(0.5, gt=0, description="how often an idle worker looks for a job")

    def passed_on_in(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment in which another process finds these settings, wherever they came from."""
        values = {**self.model_dump(mode="json", exclude_none=True), "data_dir": str(self.data_dir.resolve())}
        prefix = self.model_config["env_prefix"]
        own = {f"{prefix}{name}".upper() for name in type(self).model_fields}
        others = {name: value for name, value in environment.items() if name.upper() not in own}
        return others | {f"{prefix}{name}".upper(): str(value) for name, value in values.items()}

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        _networks(value)
        return value

    @property
    def proxies(self) -> list[str]:
        """Networks whose word on where a request came from is believed."""
        return _networks(self.trusted_proxies)

    @property
    def allowed_origins(self) -> list[str]:
        """Origins whose pages may call, each without a slash at its end."""
        return [origin.strip().rstrip("/") for origin in self.cors_origins.split(",") if origin.strip()]

    @property
    def resolved_snapshot_bytes(self) -> int:
        """The bound on galleries in memory, with the default filled in."""
        return self.max_snapshot_bytes or _memory_bytes() // (2 * self.processes)

    @property
    def model_write_seconds(self) -> float:
        """How long a finished model waits for a full disk: all pauses of a job together, an hour at most."""
        return min(self.job_retry_seconds * (2.0 ** min(self.job_attempts, 20) - 1.0), 3600.0)

    @property
    def resolved_database_url(self) -> str:
        """The database URL, with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir.resolve() / DATABASE_FILE}"


def _networks(listed: str) -> list[str]:
    """Return the networks that a setting lists; raises ValueError for what is neither network nor address."""
    named = [one.strip() for one in listed.split(",") if one.strip()]
    return [str(ipaddress.ip_network(one, strict=False)) for one in named]


def _memory_bytes() -> int:
    """Return the machine's memory, or that of the container where it has a limit."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTAINER_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return found
    return min(found, int(limit)) if limit.isdigit() else found
