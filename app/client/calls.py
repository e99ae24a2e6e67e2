"""One call of the REST interface, before it is sent, and how it becomes a method of a client."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Call(Generic[_T]):
    """A call."""

    method: str
    path: str
    answer: type[_T]  # of JSON, by msgspec; ``bytes`` as they are; or nothing
    query: Mapping[str, Any] = field(default_factory=dict)  # those that are None are left out
    json: Any = None
    lines: Iterable[Any] | None = None  # a body as a stream of JSON lines
    is_repeatable: bool = False  # sending it twice does no more than sending it once


class Sender(Protocol):
    """Sends calls, and waits for their answers."""

    def send(self, call: Call[_T]) -> _T:
        """Return the answer of a call."""


class AsyncSender(Protocol):
    """Sends calls, whose answers are awaited."""

    async def send(self, call: Call[_T]) -> _T:
        """Return the answer of a call."""


class Operation(Generic[_P, _T]):
    """A function that makes a call, as a method that sends it: of a `Sender`, or of an `AsyncSender`."""

    def __init__(self, make: Callable[_P, Call[_T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Operation[_P, _T]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[_P, Awaitable[_T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the method of a client; the operation itself where it is asked of the class."""
        if client is None:
            return self

        @functools.wraps(self._make)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            return client.send(self._make(*args, **kwargs))

        return call


def path(template: str, **parts: object) -> str:
    """Return a path whose parts are quoted, whatever they are made of."""
    return template.format(**{name: quote(str(part), safe="") for name, part in parts.items()})


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
