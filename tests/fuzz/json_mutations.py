"""Mutations of JSON values: what stands at a random place becomes something else."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.fuzz.wire import Good, Part, Wire, rendered

_HOLE = "@@hole@@"
_Path = tuple[Any, ...]


def places(value: Any, path: _Path = ()) -> Iterator[_Path]:
    """Yield the path of a value and of everything in it."""
    yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        yield from places(entry, (*path, key))


def replaced(value: Any, path: _Path, new: Any) -> Any:
    """Return a copy with something else at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def _huge_number(random: Random) -> str:
    return random.choice(
        (
            "1e999",
            "-1e999",
            "1e-999",
            "1e308",
            "1e39",
            "-1e13",
            "9" * 400,
            "9" * 5000,
            "-" + "9" * 30,
            "0." + "0" * 400 + "1",
            "18446744073709551616",
            "9223372036854775808",
            "2147483648",
            "1E400",
            "-0",
            "-0.0",
        )
    )


def _no_number(random: Random) -> str:
    return random.choice(
        ("NaN", "Infinity", "-Infinity", "nan", "inf", "+1", "01", "1.", ".5", "0x1F", "1_000", "--1")
    )


def _deep(random: Random) -> str:
    depth = random.choice((20, 100, 300, 1000, 5000, 100_000))
    opening, closing = random.choice((("[", "]"), ('{"a":', "}"), ('[{"b":', "}]")))
    return (
        opening * depth + random.choice(("1", '"x"', "")) + (closing * depth if random.random() < 0.7 else "")
    )


def _wrong_type(random: Random) -> str:
    return random.choice((
        "null", "true", "false", "0", "-1", "1.5", '""', '"5"', '"true"', "[]", "{}", "[null]", '{"":""}',
        "[[]]", '{"$ref": "#"}', '["a", 1, {}]', '"2015-01-01"', "[1, 2, 3]", '{"type": "vector"}',
    ))  # fmt: skip


def _surrogate(random: Random) -> str:
    return random.choice((
        '"\\ud800"', '"a\\udfffb"', '"\\udc00\\ud800"', '"\\u0000"', '"x\\u0000y"', '"\\uFFFF"',
        '"\\ud83d"', '"\\ud83d\\ude00"', '"\\u202e"', '"\\u"', '"\\ud8"', '"\\x41"', '"\ufeff"',
        '{"\\ud800": 1}', '{"a\\u0000": 1}',
    ))  # fmt: skip


def _large_string(random: Random) -> str:
    length = random.choice((129, 201, 1000, 20_001, 200_000, 2_000_000))
    return json.dumps(random.choice(("a", "é", "\U0001f600", " ", "a b", '"', "../")) * length)


def _large_array(random: Random) -> str:
    length = random.choice((101, 1001, 5000, 20_000, 200_000))
    entry = random.choice(
        ("1", "0.5", '"a"', "null", "[]", "{}", '{"modality":"text","text":"a"}', '{"vector":[1]}')
    )
    return "[" + ",".join([entry] * length) + "]"


def _large_object(random: Random) -> str:
    length = random.choice((100, 1000, 20_000))
    return "{" + ",".join(f'"k{number}":{number}' for number in range(length)) + "}"


def _duplicated(random: Random) -> str:
    key = random.choice(("id", "modality", "text", "vector", "k", "name", "items", "type"))
    return f'{{"{key}": 1, "{key}": "two", "{key}": {{"{key}": []}}}}'


_TOKENS: dict[str, Callable[[Random], str]] = {
    "huge number": _huge_number,
    "no number": _no_number,
    "deep nesting": _deep,
    "wrong type": _wrong_type,
    "surrogates": _surrogate,
    "large string": _large_string,
    "large array": _large_array,
    "large object": _large_object,
    "duplicate keys": _duplicated,
}


def _as_token(token: Callable[[Random], str]) -> Callable[[Random, Good], Wire]:
    def mutate(random: Random, good: Good) -> Wire:
        return in_json(random, good, lambda value: _with_token(random, value, token(random)))

    return mutate


def _with_token(random: Random, value: Any, token: str) -> bytes:
    path = random.choice(list(places(value)))
    text = json.dumps(replaced(value, path, _HOLE))
    return text.replace(json.dumps(_HOLE), token).encode("utf-8", "surrogatepass")


def _twice(random: Random, value: Any) -> bytes:
    """Repeat each key of the outer object, with another value first or last."""
    text = json.dumps(value)
    if not isinstance(value, dict) or not value:
        return f"[{text},{text}]".encode()
    key = random.choice(list(value))
    other = f"{json.dumps(key)}: {_wrong_type(random)}"
    inner = text[1:-1]
    return f"{{{other}, {inner}}}".encode() if random.random() < 0.5 else f"{{{inner}, {other}}}".encode()


def _without(random: Random, value: Any) -> bytes:
    inner = [path for path in places(value) if path]
    if not inner:
        return b""
    path = random.choice(inner)

    def cut(part: Any, rest: _Path) -> Any:
        copy = dict(part) if isinstance(part, dict) else list(part)
        if len(rest) == 1:
            del copy[rest[0]]
        else:
            copy[rest[0]] = cut(copy[rest[0]], rest[1:])
        return copy

    return json.dumps(cut(value, path)).encode()


def _with_more(random: Random, value: Any) -> bytes:
    objects = [path for path in places(value) if isinstance(_at(value, path), dict)]
    path = random.choice(objects) if objects else ()
    key = random.choice(
        ("extra", "", "__proto__", "id", "dim", "path", "a" * 5000, "\x00", "modality", "$where")
    )
    base = _at(value, path) if objects else {}
    return json.dumps(replaced(value, path, {**base, key: random.choice((1, None, "x", [], {}))})).encode()


def _at(value: Any, path: _Path) -> Any:
    for key in path:
        value = value[key]
    return value


def in_json(random: Random, good: Good, change: Callable[[Any], bytes]) -> Wire:
    """Return the request with its JSON changed: the body, one of its lines, or one of its form's parts."""
    wire = rendered(good)
    if good.kind == "json":
        return wire.with_body(change(good.value))
    if good.kind == "ndjson":
        lines = [json.dumps(line).encode() for line in good.value]
        number = random.randrange(len(lines))
        lines[number] = change(good.value[number])
        return wire.with_body(b"\n".join([*lines, b""]))
    parts = list(good.value)
    number = random.choice([n for n, part in enumerate(parts) if part.name != "picture"])
    part = parts[number]
    value = json.loads(part.content) if part.content[:1] in b'{["0123456789' else part.content.decode()
    parts[number] = Part(part.name, change(value), part.filename, part.media_type)
    return rendered(good.with_value(parts))


def _of_bytes(change: Callable[[Random, Any], bytes]) -> Callable[[Random, Good], Wire]:
    return lambda random, good: in_json(random, good, lambda value: change(random, value))


TREES: dict[str, Callable[[Random, Good], Wire]] = {
    **{name: _as_token(token) for name, token in _TOKENS.items()},
    "key twice": _of_bytes(_twice),
    "field missing": _of_bytes(_without),
    "field added": _of_bytes(_with_more),
}
