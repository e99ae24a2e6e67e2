"""Settings from the environment, by concern; only the composition root and the entry points read them."""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    TypeAdapter,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from app.domain.hosts import path_prefix_of, usable_cores

DATABASE_FILE = "lrbs.sqlite3"
_CONTAINER_LIMITS = tuple(
    Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory/memory.limit_in_bytes")
)
"""Of the second version of control groups, and of the first."""
_MOST_PROCESSES_BY_DEFAULT = 4  # server processes: each holds the galleries in memory
_BYTES_OF_PROCESS = 1 << 30  # memory of the machine for each of them by default
_LONGEST_WRITE_SECONDS = 3600.0
"""A finished model waits no longer than this for room on the disk: an operator may not notice."""


OWN_PATHS = (
    *("v1", "static", "docs", "collection", "models", "model"),
    *("openapi.json", "healthz", "readyz", "metrics"),
)
"""First parts of the service's addresses: a path that begins with one could be either."""
_RETIRED = ("gate_index_recall", "max_batch_hits", "worker_poll_seconds")  # settings of earlier releases
_OTHER_VARIABLES = re.compile(r"LRBS_(URL|API_KEY|REQUIRE|FAULTS_RUN|TEST_.*)", re.IGNORECASE)
"""What is no setting and has a meaning elsewhere: to commands over HTTP, and to the tests."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}  # units of durations
_BYTES = TypeAdapter(ByteSize)


def _read_size(value: Any) -> Any:
    """Return bytes for a number with a unit, also as Kubernetes writes them (64Mi)."""
    if not isinstance(value, str):
        return value
    try:
        # Of others Pydantic reads the beginning: 1,5GB as 1.
        if not re.fullmatch(r"\s*[\d_]*\.?\d+\s*[A-Za-z]*\s*", value):
            raise ValueError
        return int(_BYTES.validate_python(re.sub(r"(?i)(?<=[kmgt]i)\s*$", "B", value)))
    except ValueError as error:
        raise ValueError("expected bytes, or a number with a unit as in 64MiB, 64MB and 64Mi") from error


def _read_duration(value: Any) -> Any:
    """Return seconds for a number with a unit."""
    parts = re.fullmatch(r"\s*(\d+\.?\d*)\s*([A-Za-z]+)\s*", value) if isinstance(value, str) else None
    if parts is None:
        return value
    unit = _SECONDS.get(parts[2].lower())
    if unit is None:
        raise ValueError(f"unknown unit {parts[2]!r}, expected one of {', '.join(_SECONDS)}")
    return float(parts[1]) * unit


def _secret_in(file: Path) -> str:
    """Return the first line of a file; raises ValueError if it is empty or cannot be read."""
    try:
        secret = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    if not secret:
        raise ValueError(f"{file} is empty")
    return secret


Size = Annotated[int, BeforeValidator(_read_size)]
"""Bytes, also with a unit: 64MiB and 64Mi are of 2**20, 64MB and 64M of a million."""
Seconds = Annotated[float, BeforeValidator(_read_duration)]
"""Seconds, also with a unit: 90s, 15m, 12h, 7d."""
SecretFile = Annotated[Path, AfterValidator(lambda file: _secret_in(file) and file)]
"""A file that holds a secret: one that does not fails at the start rather than at the first use."""


class StorageSettings(BaseModel):
    """Where data is kept, and for how long."""

    data_dir: Path = Field(Path("data"), description="SQLite file, pictures, bundles: everything written")
    database_url: str = Field(
        "",
        description="`postgresql://user@host/name` (extra `postgres`; parameters of libpq such as "
        "`?sslmode=require`), or an SQLAlchemy URL; SQLite in the data folder when empty",
    )
    database_password_file: SecretFile | None = Field(
        None, description="file with the password for `LRBS_DATABASE_URL`, such as a mounted secret"
    )
    storage_url: str = Field(
        "",
        description="where pictures, models and saved galleries are kept: the data folder when empty, or "
        "`s3://bucket/prefix` for several hosts (extra `s3`; keys and address as in `AWS_ACCESS_KEY_ID`, "
        "`AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL`)",
    )
    storage_cache_bytes: Size = Field(
        10 * 2**30,
        ge=2**20,
        description="bound on the copies of what `LRBS_STORAGE_URL` keeps, in the data folder",
    )
    lock_wait_seconds: Seconds = Field(
        5.0, gt=0, description="how long a write waits for others, then it is answered 503"
    )
    sweep_grace_seconds: Seconds = Field(
        3600.0,
        ge=0,
        description="age at which unused files go to the trash, and traces of deleted items are purged",
    )
    trash_seconds: Seconds = Field(604_800.0, ge=0, description="how long files stay in the trash")
    test_data: Path | None = Field(
        None, description="folder of real data for `lrbs bench` and `lrbs compare`"
    )

    @field_validator("database_url")
    @classmethod
    def _names_a_driver(cls, url: str) -> str:
        """Take the URL of PostgreSQL as libpq, hosters and users of other drivers write it."""
        url = re.sub(r"(?i)^postgres(ql)?(\+\w+)?://", "postgresql+psycopg://", url.strip())
        try:
            backend = make_url(url).get_backend_name() if url else "sqlite"
        except ArgumentError as error:  # its text may hold a password
            raise ValueError("is not a URL such as postgresql://user@host/name") from error
        if backend not in ("postgresql", "sqlite"):
            raise ValueError(f"names {backend}, expected postgresql or sqlite")
        return url

    @field_validator("storage_url")
    @classmethod
    def _names_a_bucket(cls, url: str) -> str:
        if url and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/].*", url):
            raise ValueError("has to name a bucket, as in s3://bucket/prefix")
        return url

    @property
    def resolved_database_url(self) -> str:
        """The database URL, with the default and the password of the file filled in."""
        if not self.database_url:
            return f"sqlite:///{self.data_dir.resolve() / DATABASE_FILE}"
        if self.database_password_file is None:
            return self.database_url
        url = make_url(self.database_url).set(password=_secret_in(self.database_password_file))
        return url.render_as_string(hide_password=False)


class HttpSettings(BaseModel):
    """The HTTP server: where it listens, whom it trusts, and how many requests it takes at the same time."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    processes: int = Field(
        0,
        ge=0,
        le=64,
        description="server processes behind one port; 0: one for each core and gibibyte, 4 at most",
    )
    shutdown_seconds: Seconds = Field(
        30.0,
        gt=0,
        description="how long a stop waits for accepted requests; the process ends 5 s later at most",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="`text`, or `json` with a line for every request"
    )
    open_search: bool = Field(False, description="searching and reading need no key")
    open_metrics: bool = Field(True, description="`/metrics` needs no key; otherwise one of scope `metrics`")
    cors_origins: str = Field("", description="sites (origins) whose pages may call the API, comma-separated")
    trusted_proxies: str = Field(
        "",
        description="addresses and networks whose `X-Forwarded-For`, `-Proto` and `-Prefix` are believed, "
        "comma-separated",
    )
    root_path: str = Field(
        "", description="path under which a proxy has put the service, such as `/lrbs`, stripped or not"
    )
    rate_limit: int = Field(
        0,
        ge=0,
        le=100_000,
        description="most requests a minute per key, counted over all processes and hosts; 0: no limit",
    )
    max_running: int = Field(
        4,
        ge=1,
        le=256,
        description="most searches, and as many writes, at once; a collection gets all but one place",
    )
    max_waiting: int = Field(13, ge=0, le=10_000, description="most searches, and as many writes, that wait")
    max_connections: int = Field(
        1000, ge=1, description="most open connections of a process, if its limit on files allows"
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        _networks(value)
        return value

    @field_validator("root_path")
    @classmethod
    def _is_no_path_of_the_service(cls, path: str) -> str:
        prefix = path_prefix_of(path)
        if prefix.partition("/")[2].partition("/")[0] in OWN_PATHS:
            raise ValueError(f"the service has addresses of its own under {prefix}: choose another path")
        return prefix

    @property
    def proxies(self) -> list[str]:
        """Networks whose forwarded headers are believed."""
        return _networks(self.trusted_proxies)

    @property
    def allowed_origins(self) -> list[str]:
        """Origins whose pages may call, each without a trailing slash."""
        return [origin.strip().rstrip("/") for origin in self.cors_origins.split(",") if origin.strip()]


class RequestSettings(BaseModel):
    """Limits on one request and its answer."""

    max_body_bytes: Size = Field(64 << 20, gt=0, description="largest request body")
    max_search_body_bytes: Size = Field(16 << 20, gt=0, description="largest request body of a search")
    max_answer_bytes: Size = Field(64 << 20, ge=1 << 20, description="largest search result or page of items")
    max_import_bytes: Size = Field(16 << 30, gt=0, description="largest body of an import")
    max_import_line_bytes: Size = Field(16 << 20, gt=0, description="longest line of an import")
    max_picture_bytes: Size = Field(10 << 20, gt=0, description="largest picture file")
    max_picture_pixels: int = Field(
        40_000_000, gt=0, description="most pixels of a picture (WebP: a third), or of all being decoded"
    )
    max_text_chars: int = Field(20_000, gt=0, description="longest text")
    max_batch: int = Field(
        1000, gt=0, description="most items or queries in one call; at most 100000 queries x (`offset` + `k`)"
    )
    body_pause_seconds: Seconds = Field(
        20.0, gt=0, description="longest pause of a client in sending a request or reading a response"
    )


class JobSettings(BaseModel):
    """Retrain jobs and the worker that runs them."""

    lease_seconds: Seconds = Field(
        30.0,
        gt=0,
        description="silence after which a worker loses its job, or (10 s at most) an import its place",
    )
    job_attempts: int = Field(
        3, ge=1, description="most attempts at a job if its worker or trainer dies, or the disk is full"
    )
    job_retry_seconds: Seconds = Field(
        5.0, ge=0, description="pause before a second attempt; doubles each time"
    )
    max_training_seconds: Seconds = Field(14_400.0, gt=0, description="how long a training may take")
    checkpoint_seconds: Seconds = Field(
        30.0,
        ge=0,
        description="pause between two checkpoints of a fit, from which a training that died goes on when it "
        "is tried again",
    )
    training_engine: Literal["local", "dask"] = Field(
        "local",
        description="where large fits are evaluated, and originals encoded for other encoders: in the "
        "training process, or by workers of Dask (extra `dask`), with the same result",
    )
    dask_scheduler: str = Field(
        "",
        pattern=r"^((tcp|tls)://.+)?$",
        description="address of the scheduler, such as `tcp://host:8786`, whose workers see the data "
        "folder under the same path; empty: processes of this machine, one per core, during a training",
    )
    dask_from_pairs: int = Field(
        50_000_000, ge=0, description="fits of fewer pairs are evaluated in the training process anyway"
    )
    alive_file: Path | None = Field(
        None, description="file that a worker touches as long as it looks for jobs or runs one"
    )

    @property
    def model_write_seconds(self) -> float:
        """How long a finished model waits for a full disk: all pauses of a job together, an hour at most."""
        pauses = self.job_retry_seconds * (2.0 ** min(self.job_attempts, 20) - 1.0)
        return min(pauses, _LONGEST_WRITE_SECONDS)


class ModelSettings(BaseModel):
    """Model versions, and the galleries that are searched with them."""

    gate_tolerance: float = Field(
        0.02,
        ge=0,
        le=1,
        description="held-out value of the objective that a new version may lose and still be activated; "
        "a version is refused only if it is worse beyond chance, too",
    )
    keep_versions: int = Field(5, ge=1, description="newest inactive versions that are kept")
    max_snapshot_bytes: Size = Field(
        0,
        ge=0,
        description="memory of a process for galleries; the least recently searched are unloaded; "
        "0 means half of the machine's memory, divided among its processes",
    )
    vector_engine: Literal["faiss", "postgresql", "milvus"] = Field(
        "faiss",
        description="where galleries are searched: in each process's memory; in the PostgreSQL database, "
        "which then needs the extension pgvector 0.8 or newer; or in a Milvus server (extra `milvus`)",
    )
    milvus_uri: str = Field("", description="address of the Milvus server, such as `http://milvus:19530`")
    milvus_token_file: SecretFile | None = Field(
        None, description="file with the token for the Milvus server, such as a mounted secret"
    )
    approximate_from_items: int = Field(
        200_000,
        ge=1,
        description="a training builds approximate indexes for galleries of this size or more (of a higher "
        "rank than 128 in proportion), which serve where their recall@10 is 0.99; smaller ones are searched "
        "exactly",
    )
    save_after_items: int = Field(
        1000, ge=1, description="galleries are saved after this many written items, at least a tenth of all"
    )

    @property
    def milvus_token(self) -> str:
        """The token of the file; empty without one."""
        return "" if self.milvus_token_file is None else _secret_in(self.milvus_token_file)


# Pydantic lists the fields of the last base first.
class Settings(ModelSettings, JobSettings, RequestSettings, HttpSettings, StorageSettings, BaseSettings):
    """All settings, by concern; each has a default that works and is read from ``LRBS_<NAME>``. The groups
    are base classes rather than nested models, so that the names of the variables have one level."""

    model_config = SettingsConfigDict(env_prefix="LRBS_", extra="ignore")

    @property
    def resolved_processes(self) -> int:
        """The number of server processes, with the default filled in."""
        by_memory = max(_memory_bytes() // _BYTES_OF_PROCESS, 1)
        return self.processes or min(usable_cores(), by_memory, _MOST_PROCESSES_BY_DEFAULT)

    @property
    def resolved_snapshot_bytes(self) -> int:
        """The bound on galleries in memory, with the default filled in."""
        return self.max_snapshot_bytes or _memory_bytes() // (2 * self.resolved_processes)

    @model_validator(mode="after")
    def _has_the_database_of_its_engine(self) -> Self:
        is_postgresql = make_url(self.resolved_database_url).get_backend_name() == "postgresql"
        if self.vector_engine == "postgresql" and not is_postgresql:
            raise ValueError(
                "LRBS_VECTOR_ENGINE is postgresql: LRBS_DATABASE_URL has to be that of PostgreSQL"
            )
        if self.vector_engine == "milvus" and not self.milvus_uri.startswith(("http://", "https://")):
            # A file of Milvus Lite can be opened by one process, and the service has several.
            raise ValueError(
                "LRBS_VECTOR_ENGINE is milvus: LRBS_MILVUS_URI has to begin with http:// or https://"
            )
        return self

    @classmethod
    def faults_in(cls, environment: Mapping[str, str]) -> dict[str, str]:
        """Return what is wrong with variables of an environment that look like settings, by name."""
        own = [cls._variable(name) for name in cls.model_fields]
        retired = {cls._variable(name) for name in _RETIRED}
        faults = {}
        for name in sorted(environment):
            upper = name.upper()
            if not upper.startswith("LRBS_") or upper in own or _OTHER_VARIABLES.fullmatch(name):
                continue
            if upper in retired:
                faults[name] = f"{name} is not a setting any more and has no effect"
            else:
                nearest = difflib.get_close_matches(upper, own, 1, 0.75)
                hint = f": do you mean {nearest[0]}?" if nearest else ""
                faults[name] = f"{name} is not a setting and has no effect{hint}"
        return faults

    def passed_on_in(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment from which another process reads these settings, wherever they came from.
        What is no setting was named by this process, and is left out."""
        values = {**self.model_dump(mode="json", exclude_none=True), "data_dir": str(self.data_dir.resolve())}
        own = {self._variable(name) for name in type(self).model_fields}
        left_out = self.faults_in(environment)
        others = {
            name: value
            for name, value in environment.items()
            if name.upper() not in own and name not in left_out
        }
        return others | {self._variable(name): str(value) for name, value in values.items()}

    @classmethod
    def _variable(cls, name: str) -> str:
        return f"{cls.model_config['env_prefix']}{name}".upper()


def _networks(listed: str) -> list[str]:
    """Return the networks that a setting lists; raises ValueError for what is neither network nor address."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return [str(ipaddress.ip_network(name, strict=False)) for name in names]


def _memory_bytes() -> int:
    """Return the machine's memory, or the container's limit where there is one."""
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CONTAINER_LIMITS:
        with contextlib.suppress(OSError):
            limit = file.read_text(encoding="ascii").strip()
            bounds += [int(limit)] if limit.isdigit() else []
    return min(bounds)
