"""The HTTP application."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.metadata import version

import anyio
from anyio import to_thread
from fastapi import FastAPI

from app.api import openapi, problems
from app.api.admission import ConcurrencyLimits, KeyChecks
from app.api.gate import ForwardedMiddleware, Gate
from app.api.metrics import Metrics
from app.api.probes import CachedProbe, Repeated
from app.api.routes import ROUTERS
from app.api.search_batches import SearchBatches
from app.api.state import ApiLimits, ApiState
from app.bootstrap import Services
from app.domain.entities import value_of
from app.services.health import DATABASE_TIMEOUT_SECONDS
from app.services.serving.reloads import MAX_WAITING
from app.web.pages import mount_pages

_DESCRIPTION = (
    "Learns a similarity between two kinds of data, and searches one with the other. Unknown fields and "
    "parameters are refused (422). HEAD works wherever GET does."
)
_BODIES_AT_ONCE = 4  # memory for request bodies, in bodies of the largest size
_EVENT_STREAMS = 64  # each takes a thread for a moment four times a second
_OTHER_THREADS = 8  # for what is not limited, such as pages and their files
_PROBE_SECONDS = 10.0  # how long a request for `/readyz` or `/metrics` waits for the database
_READINESS_SECONDS = 0.2
"""How long an answer of `/readyz` is reused, so that frequent probes do not load the database."""
_RECORD_USE_SECONDS = 30.0  # between writes of when keys were last used
_VERSION = version("lrbs")
_KEEP_UP_SECONDS = 0.5  # writes of other processes are to be searchable within a second
_SHARE_SECONDS = 1.0
_ASK_SECONDS = 5.0  # between updates of what processes share: metrics, and counts of calls for rate limits


def create_app(services: Services) -> FastAPI:
    """Return the application over a set of services."""
    settings = services.settings
    concurrency = ConcurrencyLimits(ROUTERS, settings.max_running, settings.max_waiting, _EVENT_STREAMS)
    metrics = Metrics(
        services.health, lambda: services.garbage_collector.swept, lambda: services.snapshots.n_damaged
    )
    concurrency.watch(metrics.on_queue_change, metrics.on_refusal)
    # FastAPI's own pages of documentation load their scripts from other hosts; `mount_pages` adds one.
    application = FastAPI(
        title="LRBS",
        version=_VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_background(services, concurrency, metrics),
    )
    application.state.api = _api_state(services, concurrency, metrics)
    problems.install(application)
    for router in ROUTERS:
        # Included, each route would be made again for this application, and every request matched twice.
        application.router.routes += router.routes
    openapi.describe(application, ROUTERS, ["/metrics"] if settings.open_metrics else [])
    mount_pages(application)
    # The last one added is the first that a request meets.
    application.add_middleware(
        Gate,
        concurrency=concurrency,
        max_body_bytes=settings.max_body_bytes,
        pause_seconds=settings.body_pause_seconds,
        body_bytes_at_once=_BODIES_AT_ONCE * settings.max_body_bytes,
        on_answer=metrics.on_answer,
        on_change=metrics.on_change,
        origins=settings.allowed_origins,
    )
    if settings.proxies or settings.root_path:
        application.add_middleware(
            ForwardedMiddleware, proxies=settings.proxies, root_path=settings.root_path
        )
    return application


def _background(
    services: Services, concurrency: ConcurrencyLimits, metrics: Metrics
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan of the application: what is repeated as long as it serves."""
    record_use = Repeated("record when keys were last used", services.access.record_use)
    share_counts = Repeated("share counts of calls with other processes", services.access.share_counts)
    keep_up = Repeated(
        "look for what others have written",
        partial(services.snapshots.reload_stale, DATABASE_TIMEOUT_SECONDS),
    )

    ask = Repeated("ask whether stores and engines answer", services.health.backends)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # FastAPI runs plain functions in the threads of this limiter: as many as are admitted.
        to_thread.current_default_thread_limiter().total_tokens = (
            concurrency.threads + MAX_WAITING + _OTHER_THREADS
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_use.repeat, _RECORD_USE_SECONDS)
            tasks.start_soon(keep_up.repeat, _KEEP_UP_SECONDS)
            tasks.start_soon(share_counts.repeat, _SHARE_SECONDS)
            tasks.start_soon(ask.repeat, _ASK_SECONDS)
            if metrics.shared_folder is not None:
                share = Repeated("share metrics with the other processes", metrics.share)
                tasks.start_soon(share.repeat, _SHARE_SECONDS)
            yield
            tasks.cancel_scope.cancel()
        await record_use.run(is_last=True)

    return lifespan


def _api_state(services: Services, concurrency: ConcurrencyLimits, metrics: Metrics) -> ApiState:
    settings = services.settings
    return value_of(
        ApiState,
        services,
        key_checks=KeyChecks(services.access, concurrency.keys),
        batches=SearchBatches(services.search),
        # Threads of their own for each, so that requests for one cannot keep out those for the other.
        readiness=CachedProbe(services.health.check, _READINESS_SECONDS, _PROBE_SECONDS),
        # Prepared for each request; those that come while one is being prepared get the one before.
        metrics=CachedProbe(metrics.text, 0.0, _PROBE_SECONDS),
        limits=value_of(ApiLimits, settings),
        open_search=settings.open_search,
        open_metrics=settings.open_metrics,
        stopping=threading.Event(),
    )
