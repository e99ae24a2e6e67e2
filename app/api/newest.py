"""Dictionaries of bounded size that forget what was set longest ago."""

from __future__ import annotations

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def set_newest(entries: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Set an entry as the newest one, and forget the oldest if there are now more than `most`."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]
