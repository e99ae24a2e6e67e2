"""Mutations of a whole request's bytes, of its headers and of its form."""

import functools
import gzip
import zlib
from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.fuzz.wire import BOUNDARY, Good, Part, Wire, rendered

_BOMB_MEGABYTES = 64


def _truncated(random: Random, wire: Wire) -> Wire:
    return wire.with_body(wire.body[: random.randrange(len(wire.body) + 1)])


def _cut_short(random: Random, wire: Wire) -> Wire:
    body = wire.body[: random.randrange(len(wire.body))]
    return replace(wire, body=body, announced=len(wire.body) + random.choice((0, 1, 1000, 1 << 20)))


def _announced_less(random: Random, wire: Wire) -> Wire:
    return replace(wire, announced=random.randrange(len(wire.body)))


def _flipped(random: Random, wire: Wire) -> Wire:
    body = bytearray(wire.body)
    for _ in range(random.choice((1, 2, 8, 64))):
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
    return wire.with_body(bytes(body))


def _inserted(random: Random, wire: Wire) -> Wire:
    place = random.randrange(len(wire.body) + 1)
    return wire.with_body(
        wire.body[:place] + random.randbytes(random.choice((1, 4, 100))) + wire.body[place:]
    )


def _bad_utf8(random: Random, wire: Wire) -> Wire:
    bad = random.choice(
        (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80", b"\xfe\xff")
    )
    place = random.randrange(len(wire.body) + 1)
    return wire.with_body(wire.body[:place] + bad + wire.body[place:])


def _other_encoding(random: Random, wire: Wire) -> Wire:
    encoding = random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"))
    return wire.with_body(wire.body.decode("latin-1").encode(encoding, "replace"))


def _repeated(random: Random, wire: Wire) -> Wire:
    return wire.with_body(wire.body * random.choice((2, 3, 50)))


def _noise(random: Random, wire: Wire) -> Wire:
    return wire.with_body(random.randbytes(random.choice((0, 1, 100, 10_000))))


@functools.cache
def _bomb(megabytes: int) -> bytes:
    return gzip.compress(b"0" * (megabytes << 20), 9)


def _compressed(random: Random, wire: Wire) -> Wire:
    """A decompression bomb for who would inflate what a client says is compressed."""
    packed = _bomb(random.choice((1, 8, _BOMB_MEGABYTES)))
    encoding = random.choice(("gzip", "deflate", "br", "zstd", "gzip, gzip"))
    if encoding == "deflate":
        packed = zlib.compress(packed)
    return wire.with_body(packed).with_header("Content-Encoding", encoding)


def _wrong_type(random: Random, wire: Wire) -> Wire:
    return wire.with_header(
        "Content-Type",
        random.choice(
            (
                "text/plain",
                "application/xml",
                "application/x-www-form-urlencoded",
                "",
                "json",
                "multipart/mixed; boundary=x",
                "application/json; charset=utf-16",
                "multipart/form-data",
                "MULTIPART/FORM-DATA; BOUNDARY=x",
                "*/*",
                ";;;",
                "multipart/form-data; boundary=",
                'multipart/form-data; boundary="',
                "application/x-ndjson",
                "ÿþ",
                f"multipart/form-data; boundary={'x' * 5000}",
                f"multipart/form-data; boundary={BOUNDARY}; charset=nothing",
            )
        ),
    )


def _odd_header(random: Random, wire: Wire) -> Wire:
    name, value = random.choice(
        (
            ("Content-Type", "application/json" * 500),
            ("Accept", "image/png"),
            ("If-None-Match", "*" * 4000),
            ("Range", "bytes=0-"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-Request-ID", "\xe9" * 100),
            ("traceparent", "00-" + "f" * 500),
            ("Forwarded", 'for="[::1]"'),
            ("Cookie", "a=" + "b" * 5000),
            ("Expect", "nothing"),
        )
    )
    return wire.with_header(name, value)


def _path(random: Random, wire: Wire) -> Wire:
    piece = random.choice(
        (
            "%00",
            "%ff",
            "%2e%2e",
            "..",
            "%2F",
            "%0d%0a",
            "a" * 3000,
            "%F0%9F%98%80",
            "'",
            "%25",
            ";",
            "*",
            "-to-",
            "%ed%a0%80",
        )
    )
    pieces = wire.path.split("/")
    number = random.randrange(2, len(pieces))
    pieces[number] = random.choice((piece, pieces[number] + piece, piece + pieces[number]))
    return replace(wire, path="/".join(pieces))


OCTETS: dict[str, Callable[[Random, Good], Wire]] = {
    name: lambda random, good, change=change: change(random, rendered(good))  # type: ignore[misc]
    for name, change in (
        ("truncated", _truncated),
        ("cut short", _cut_short),
        ("announced less", _announced_less),
        ("bits flipped", _flipped),
        ("bytes inserted", _inserted),
        ("bad UTF-8", _bad_utf8),
        ("other encoding", _other_encoding),
        ("repeated", _repeated),
        ("noise", _noise),
        ("compressed", _compressed),
        ("wrong content type", _wrong_type),
        ("odd header", _odd_header),
        ("odd path", _path),
    )
}


def _boundary(random: Random, good: Good) -> Wire:
    wire = rendered(good)
    mark = BOUNDARY.encode()
    change = random.choice(
        (
            lambda body: body.replace(mark, mark + b"x", 1),
            lambda body: body.replace(b"--" + mark + b"--", b""),
            lambda body: body.replace(b"\r\n", b"\n"),
            lambda body: body.replace(b"\r\n\r\n", b"\r\n", 1),
            lambda body: body.replace(b"--" + mark, b"-" + mark, 1),
            lambda body: b"preamble\r\n" + body + b"epilogue" * 100,
            lambda body: (b"--" + mark + b"\r\n") * 2000,
        )
    )
    return wire.with_body(change(wire.body))


def _disposition(random: Random, good: Good) -> Wire:
    wire = rendered(good)
    old, new = random.choice(
        (
            (b"form-data; name=", b"form-data; nam="),
            (b"form-data", b"attachment"),
            (b"Content-Disposition", b"Content-Dispositio"),
            (b"Content-Disposition: ", b"Content-Disposition: " + b"x" * 20_000),
            (b'name="picture"', b'name="pic\x00ture"'),
            (b'name="picture"', b'name="../../etc/passwd"'),
            (b'filename="a.png"', b"filename*=UTF-8''%ff%00"),
            (b'filename="a.png"', b'filename="' + b"a" * 5000 + b'"'),
            (b'name="picture"', b'name="picture'),
            (b"Content-Type: image/", b"Content-Type: multipart/mixed; boundary=y; a="),
            (b"Content-Type: image/", b"Content-Transfer-Encoding: base64\r\nContent-Type: image/"),
            (b"Content-Disposition", b"X-More: 1\r\n" * 300 + b"Content-Disposition"),
        )
    )
    return wire.with_body(wire.body.replace(old, new, 1))


def _parts(random: Random, good: Good) -> Wire:
    parts = list(good.value)
    number = random.randrange(len(parts))
    choice = random.randrange(6)
    if choice == 0:
        parts *= random.choice((2, 30, 1100))
    elif choice == 1:
        del parts[number]
    elif choice == 2:
        parts[number] = replace(
            parts[number], name=random.choice(("", "pictures", "a" * 3000, "é", "k", "item", "filter"))
        )
    elif choice == 3:
        parts.append(Part(random.choice(("text", "vector", "more")), random.randbytes(10)))
    elif choice == 4:
        parts[number] = replace(parts[number], content=random.randbytes(random.choice((0, 10, 70_000))))
    else:
        filename = random.choice((None, "", "a/b", "a\\b", "x" * 300))
        parts[number] = replace(
            parts[number], filename=filename, media_type=random.choice((None, "text/html", "x"))
        )
    return rendered(good.with_value(parts))


FORMS: dict[str, Callable[[Random, Good], Wire]] = {
    "boundary": _boundary,
    "disposition": _disposition,
    "parts": _parts,
}
"""Of forms only."""
