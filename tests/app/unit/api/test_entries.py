import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, field_validator

from app.api.bodies import parse_entries

_seen: list[int] = []


class _Entry(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def note(cls, n: int) -> int:
        _seen.append(n)
        return n


class _Body(BaseModel):
    entries: list[_Entry]
    k: int = 0


def test_each_entry_is_parsed_once_and_when_it_is_asked_for() -> None:
    _seen.clear()
    body = b'{"entries": [{"n": 0}, {"n": 1}, {"n": 2}, {"n": "two"}], "k": 5}'
    whole, entries = parse_entries(_Body, _Entry, "entries", body, 10)
    assert whole.k == 5
    assert _seen == [0]
    assert [next(entries).n for _ in range(3)] == [0, 1, 2]
    assert _seen == [0, 1, 2]
    with pytest.raises(RequestValidationError) as raised:
        next(entries)
    assert raised.value.errors()[0]["loc"] == ("entries", 3, "n")
