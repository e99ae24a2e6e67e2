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
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from app.api import openapi, problems
from app.api.header_names import REQUEST_ID
from app.api.key_checks import KeyChecks
from app.api.metrics import Metrics
from app.api.middleware.admission import AdmissionMiddleware, ConcurrencyLimits
from app.api.middleware.failures import FailureMiddleware
from app.api.middleware.request_body_limits import RequestBodyLimitMiddleware
from app.api.middleware.request_log import RequestLog, RequestLogMiddleware
from app.api.middleware.response_backpressure import ResponseBackpressureMiddleware
from app.api.middleware.security_headers import SecurityHeadersMiddleware
from app.api.middleware.workload import Workloads
from app.api.own_writes import OwnWrites
from app.api.probes import CachedProbe, ProbeThreads
from app.api.repeated import Repeated
from app.api.routes import ROUTERS
from app.api.routes.light_searches import LightSearchMiddleware
from app.api.routes.short_way import ShortSearchRoute
from app.api.search_batches import SearchBatches
from app.api.state import ApiLimits, ApiState
from app.bootstrap import Services
from app.services.health.status import DATABASE_TIMEOUT_SECONDS
from app.services.serving.waiting_room import MAX_WAITING
from app.settings import Settings
from app.web.pages import mount_pages

_DESCRIPTION = "Learns a similarity between two kinds of data, and searches one with the other."
_BODIES_AT_ONCE = 4
"""Memory for request bodies, in bodies of the largest size."""
_EVENT_STREAMS = 64
"""Each takes a thread for a moment four times a second."""
_OTHER_THREADS = 8
"""For what is not limited, such as pages and their files."""
_PROBE_SECONDS = 10.0
"""How long a request for `/readyz` or `/metrics` waits for the database."""
_READINESS_SECONDS = 0.2
"""How long an answer of `/readyz` is reused, so that frequent probes do not load the database."""
_RECORD_USE_SECONDS = 30.0
"""Between writes of when keys were last used."""
_KEEP_UP_SECONDS = 0.5
"""Writes of other processes are to be searchable within a second."""
_SHARE_SECONDS = 1.0
_ASK_SECONDS = 5.0
"""Between updates of what processes share: metrics, and counts of calls for rate limits."""


class _Application(FastAPI):
    """FastAPI's application behind an entrance: light searches do not pass its own middleware either."""

    entrance: ASGIApp | None = None

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entrance = self.pass_on if self.entrance is None else self.entrance
        await entrance(scope, receive, send)

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that has passed the entrance."""
        await super().__call__(scope, receive, send)


def create_app(services: Services) -> FastAPI:
    """Return the application over a set of services.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    """
    settings = services.settings
    workloads = Workloads(ROUTERS)
    concurrency = ConcurrencyLimits(settings.max_running, settings.max_waiting, _EVENT_STREAMS, workloads)
    metrics = _metrics(services, concurrency)
    log = RequestLog(metrics.on_answer, metrics.on_change)
    # FastAPI's own pages of documentation load their scripts from other hosts; `mount_pages` adds one.
    application = _Application(
        title="LRBS",
        version=version("lrbs"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=openapi.operation_id,
        lifespan=_background(services, concurrency, metrics),
    )
    application.state.api = _api_state(services, KeyChecks(services.access, concurrency.keys), metrics)
    problems.install(application)
    for router in ROUTERS:
        application.include_router(router)
    openapi.describe(application, ROUTERS, ["/metrics"] if settings.open_metrics else [])
    mount_pages(application)
    application.router.routes.insert(0, ShortSearchRoute())
    _add_middleware(application, settings, workloads, concurrency, log)
    application.entrance = LightSearchMiddleware(
        application.pass_on, application.state.api, concurrency, log, settings.body_pause_seconds
    )
    return application


def _metrics(services: Services, concurrency: ConcurrencyLimits) -> Metrics:
    metrics = Metrics(
        services.status, lambda: services.garbage_collector.swept, lambda: services.snapshots.n_damaged
    )
    concurrency.watch(metrics.on_queue_change, metrics.on_refusal)
    return metrics


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

    ask = Repeated("ask whether stores and engines answer", services.status.backends)

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
            if metrics.shares is not None:
                share = Repeated("share metrics with the other processes", metrics.share)
                tasks.start_soon(share.repeat, _SHARE_SECONDS)
            yield
            tasks.cancel_scope.cancel()
        await record_use.run(is_last=True)

    return lifespan


def _add_middleware(
    application: FastAPI,
    settings: Settings,
    workloads: Workloads,
    concurrency: ConcurrencyLimits,
    log: RequestLog,
) -> None:
    """Add the middleware; the last one added is the first that a request meets."""
    application.add_middleware(AdmissionMiddleware, concurrency=concurrency)
    application.add_middleware(FailureMiddleware)
    application.add_middleware(
        ResponseBackpressureMiddleware,
        concurrency=concurrency,
        max_bytes_at_once=settings.max_body_bytes,
        pause_seconds=settings.body_pause_seconds,
    )
    application.add_middleware(
        RequestBodyLimitMiddleware,
        workloads=workloads,
        max_bytes=settings.max_body_bytes,
        max_bytes_at_once=_BODIES_AT_ONCE * settings.max_body_bytes,
        pause_seconds=settings.body_pause_seconds,
    )
    if settings.allowed_origins:
        application.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", REQUEST_ID],
            expose_headers=["Location", "Retry-After", REQUEST_ID],
        )
    application.add_middleware(SecurityHeadersMiddleware)
    application.add_middleware(RequestLogMiddleware, log=log)


def _api_state(services: Services, key_checks: KeyChecks, metrics: Metrics) -> ApiState:
    settings = services.settings
    return ApiState(
        catalogue=services.catalogue,
        imports=services.imports,
        feedback=services.feedback,
        search=services.search,
        values=services.values,
        maps=services.maps,
        training=services.training,
        versions=services.versions,
        access=services.access,
        key_checks=key_checks,
        own_writes=OwnWrites(),
        batches=SearchBatches(settings.max_running),
        # Threads of their own for each, so that requests for one cannot keep out those for the other.
        readiness=CachedProbe(ProbeThreads(_PROBE_SECONDS), services.readiness.check, _READINESS_SECONDS),
        # Prepared for each request; those that come while one is being prepared get the one before.
        metrics=CachedProbe(ProbeThreads(_PROBE_SECONDS), metrics.text, 0.0),
        limits=ApiLimits(
            body_bytes=settings.max_body_bytes,
            search_body_bytes=settings.max_search_body_bytes,
            import_bytes=settings.max_import_bytes,
            import_line_bytes=settings.max_import_line_bytes,
            picture_bytes=settings.max_picture_bytes,
            entries=settings.max_batch,
        ),
        open_search=settings.open_search,
        open_metrics=settings.open_metrics,
        stopping=threading.Event(),
    )
