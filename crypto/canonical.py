"""One value, one byte string: the subset of RFC 8785 (JSON Canonicalization Scheme) that we sign.

Accepted: dict with str keys, list, str, int with |i| < 2^53, bool and None. Floats have no place in
anything that is signed here, so they are refused rather than formatted (RFC 8785 section 3.2.2.3 is
the part that implementations get wrong). Object members are sorted by UTF-16 code units
(section 3.2.3).
"""

import json
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NoReturn

from crypto.errors import NotCanonical

__all__ = ["MAX_DEPTH", "MAX_INTEGER", "canonical", "parse"]

MAX_DEPTH = 16  # our deepest header nests 5 levels
MAX_INTEGER = 2**53 - 1  # RFC 7493 section 2.2: exact in every JSON reader

_LONGEST_INTEGER = len(str(-MAX_INTEGER))
_CONSTANTS = {None: "null", True: "true", False: "false"}
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: object) -> bytes:
    """Return the only accepted UTF-8 encoding of `value`.

    Raises NotCanonical for a type outside the subset, an integer of 2^53 or more, a lone surrogate,
    or more than `MAX_DEPTH` levels.
    """
    text = _text(value, 0)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotCanonical("A string holds a lone surrogate, which UTF-8 cannot carry.") from None


def _text(value: object, depth: int) -> str:
    if isinstance(value, str):
        # Python escapes exactly what RFC 8785 section 3.2.2.2 asks for when ASCII is not forced.
        return encode_basestring(value)
    if type(value) is int:
        if abs(value) > MAX_INTEGER:
            raise NotCanonical("An integer is 2^53 or more; carry it as a string or in limbs.")
        return str(value)
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    if isinstance(value, list):
        return f"[{','.join(_texts(value, depth + 1))}]"
    if isinstance(value, dict):
        names, around = _around(tuple(value))
        return around % tuple(_texts([value[name] for name in names], depth + 1))
    raise NotCanonical(f"A value of type {type(value).__name__} has no canonical encoding.")


def _texts(values: list[object], depth: int) -> list[str]:
    if values and depth > MAX_DEPTH:
        raise NotCanonical(f"The value nests deeper than {MAX_DEPTH} levels.")
    # Digests and names hold nothing to escape: to look at all at once takes a fifth of the time.
    joined = "".join([value for value in values if type(value) is str])
    if joined.isprintable() and '"' not in joined and "\\" not in joined:
        return [f'"{v}"' if type(v) is str else _text(v, depth) for v in values]
    return [_text(value, depth) for value in values]


@lru_cache(maxsize=256)  # headers and ledger entries are of few shapes
def _around(names: tuple[object, ...]) -> tuple[tuple[str, ...], str]:
    """Return an object's names in order, and the text around its values."""
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) != len(names):
        raise NotCanonical("An object has a key that is not a string.")
    texts.sort(key=_utf16)
    spelt = [encode_basestring(name).replace("%", "%%") for name in texts]
    return tuple(texts), "{" + ",".join(f"{name}:%s" for name in spelt) + "}"


def _utf16(key: object) -> bytes:
    return str(key).encode("utf-16-be", "surrogatepass")


def parse(data: bytes, *, limit: int) -> Any:
    """Return the value whose canonical encoding is `data`, or raise NotCanonical.

    The size is checked before anything is parsed. Duplicate keys, floats, NaN, long integers,
    invalid UTF-8 and deep nesting are refused, and the result is encoded again and compared, so no
    second spelling of a signed value can pass.
    """
    if len(data) > limit:
        raise NotCanonical(f"The encoding is longer than the limit of {limit} bytes.")
    try:
        value = json.loads(
            bytes(data).decode("utf-8", "strict"),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
    except (ValueError, RecursionError):
        # UnicodeDecodeError and JSONDecodeError are ValueErrors and quote their input: drop them.
        raise NotCanonical from None
    if _again(value, data) != data:
        raise NotCanonical
    return value


def _again(value: object, data: bytes) -> bytes:
    """Return the canonical encoding of what `data` was parsed into.

    Ledgers are long: where ASCII makes Python's sorting the right one and too few brackets are
    there to nest deeper than `MAX_DEPTH`, the encoder in C writes the same bytes six times faster.
    """
    if data.isascii() and data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return _ENCODER.encode(value).encode("utf-8", "surrogatepass")
    return canonical(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotCanonical("An object repeats a key.")
    return members


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER or abs(int(digits)) > MAX_INTEGER:
        raise NotCanonical("An integer is 2^53 or more.")
    return int(digits)


def _no_float(_: str) -> NoReturn:
    raise NotCanonical("Floats have no canonical encoding here; send an integer and its scale.")
