"""ONNX models small enough to be written by hand."""

import threading


def wait_for_looks() -> None:
    """Wait until the looks at model files that this process began have ended."""
    for thread in threading.enumerate():
        if thread.name == "look-at-model":
            thread.join(60.0)


def field(number: int, value: bytes | int | str) -> bytes:
    """One field of a protocol buffer message."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def flattening_model(side: int, before: str = "Identity", *, channels_last: bool = False) -> bytes:
    """An ONNX model that takes (1, 3, side, side), applies an operator to each number, and flattens it."""
    shape = (1, side, side, 3) if channels_last else (1, 3, side, side)

    def tensor(name: str, *shape: int) -> bytes:
        dims = b"".join(field(1, field(1, size)) for size in shape)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

    first = field(1, "pixels") + field(2, "changed") + field(4, before)
    second = field(1, "changed") + field(2, "features") + field(4, "Flatten")
    graph = field(1, first) + field(1, second) + field(2, "flat") + field(11, tensor("pixels", *shape))
    graph += field(12, tensor("features", 1, 3 * side * side))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))
