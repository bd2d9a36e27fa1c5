"""Known answers and mutations that several test modules use."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def vectors(name: str) -> Any:
    """Return one file of published known answers."""
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def unhex(*values: str) -> list[bytes]:
    """Decode hex strings."""
    return [bytes.fromhex(value) for value in values]


@st.composite
def mutations(draw: st.DrawFn, original: bytes) -> bytes:
    """Cut, extend or flip a few bytes; the result always differs from `original`."""
    kind = draw(st.sampled_from(["flip", "cut", "extend", "insert"]))
    data = bytearray(original)
    if kind == "cut":
        return bytes(data[: draw(st.integers(0, len(data) - 1))])
    if kind == "extend":
        return bytes(data) + draw(st.binary(min_size=1, max_size=40))
    if kind == "insert":
        place = draw(st.integers(0, len(data)))
        return bytes(data[:place]) + draw(st.binary(min_size=1, max_size=9)) + bytes(data[place:])
    for place in draw(st.sets(st.integers(0, len(data) - 1), min_size=1, max_size=6)):
        data[place] ^= draw(st.integers(1, 255))
    return bytes(data)
