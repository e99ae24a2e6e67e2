"""Originals encoded by the workers of a Dask cluster (extra `dask`).

Contents travel to the workers, which need neither the database nor the store. They need the packages of the
encoders, and their model files under the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from app.domain.entities import Content, Features
from app.domain.errors import EncoderUnavailableError, ServiceError
from app.encoders.registry import ContentLimits, EncoderRegistry

if TYPE_CHECKING:
    from solver import DaskEngine


class DaskEncoding:
    """Encodes batches on workers, several at a time; an `app.domain.ports.EncodeBatches`.

    Parameters
    ----------
    open_engine : callable
        Returns the engine that knows the workers; closed after each use.
    limits : ContentLimits
        Of the encoders.
    """

    def __init__(self, open_engine: Callable[[], DaskEngine], limits: ContentLimits) -> None:
        self._open_engine = open_engine
        self._limits = limits

    def __call__(
        self, options: Mapping[str, Any], batches: Iterable[Sequence[Content]]
    ) -> Iterator[Features]:
        """Yield what the encoder of some options stores of each batch, in their order.

        Raises
        ------
        EncoderUnavailableError
            If a worker lacks the package or the file of the encoder.
        EngineError
            If scheduler and workers are away.
        """
        engine = self._open_engine()
        try:
            yield from engine.map(
                encode_batch, ((dict(options), self._limits, list(batch)) for batch in batches)
            )
        finally:
            engine.close()


def encode_batch(options: Mapping[str, Any], limits: ContentLimits, contents: Sequence[Content]) -> Features:
    """Return what an encoder stores of some contents: what a worker does.

    Raises
    ------
    EncoderUnavailableError
        If that worker cannot have the encoder; other errors of the service do not survive the way back.
    """
    try:
        return _registry(limits).make(options).encode_to_store(contents)
    except ServiceError as error:
        raise EncoderUnavailableError(f"a Dask worker cannot encode: {error}") from error


@lru_cache(1)
def _registry(limits: ContentLimits) -> EncoderRegistry:
    return EncoderRegistry(limits)
