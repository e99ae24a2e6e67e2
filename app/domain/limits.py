"""Limits of what clients send, shared by the document, the checks and the tables."""

from __future__ import annotations

MAX_NAME = 64
"""Characters of a collection's, a modality's or a key's name: short enough to be shown in one line."""
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
"""A name stands in paths as it is."""
MAX_IDENTIFIER = 128
"""Characters of an item or pair id: two SHA-256 digests in hexadecimal digits."""
IDENTIFIER_PATTERN = r"[A-Za-z0-9_.:@+\-]+"
"""An id stands in paths as it is. The hyphen is escaped for readers of the document in JavaScript."""
MAX_LABEL = 200
"""Characters of a label: a label is a class name, not a text."""
MAX_LABELS = 100
"""Labels of an item: each row carries all of them."""
MAX_METADATA = 20_000
"""Characters of an item's metadata as JSON: every hit of a search carries them."""
MAX_KEY_COLLECTIONS = 100
"""Collections that a key can be restricted to: they are compared at each request."""
MAX_MAGNITUDE = 1e12
"""Largest number of a vector: squares, summed over any gallery, stay far inside single precision."""
MAX_K = 10_000
"""Results of a search: what people and programs read at once."""
LARGEST_VERSION = 2**31 - 1
"""Largest version number that the database column holds."""
LARGEST_FEEDBACK_ID = 2**53 - 1
"""Largest integer that every reader of JSON keeps exactly."""
STORABLE_PATTERN = r"^[^\u0000]*$"
"""Text without NUL, which PostgreSQL cannot store."""
