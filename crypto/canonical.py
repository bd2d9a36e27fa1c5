"""One value, one byte string: the subset of RFC 8785 (JSON Canonicalization Scheme) that we sign.

Accepted: dict with str keys, list, str, int with |i| < 2^53, bool and None. Floats have no place in
anything that is signed here, so they are refused rather than formatted (RFC 8785 section 3.2.2.3 is
the part that implementations get wrong). Object members are sorted by UTF-16 code units
(section 3.2.3).
"""

import json
from json.encoder import encode_basestring
from typing import Any, NoReturn

from crypto.errors import NotCanonical

__all__ = ["MAX_DEPTH", "MAX_INTEGER", "canonical", "parse"]

MAX_DEPTH = 16  # our deepest header nests 5 levels
MAX_INTEGER = 2**53 - 1  # RFC 7493 section 2.2: exact in every JSON reader

_LONGEST_INTEGER = len(str(-MAX_INTEGER))
_TEXTS = frozenset({str, bool, type(None)})
_PLAIN = _TEXTS | {int, list}
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: object) -> bytes:
    """Return the only accepted UTF-8 encoding of `value`.

    Raises NotCanonical for a type outside the subset, an integer of 2^53 or more, a lone surrogate,
    or more than `MAX_DEPTH` levels.
    """
    if _is_plain(value):
        text = _ENCODER.encode(value)
    else:
        pieces: list[str] = []
        _write(value, pieces, 0)
        text = "".join(pieces)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotCanonical("A string holds a lone surrogate, which UTF-8 cannot carry.") from None


def _is_plain(value: object) -> bool:
    """Tell whether the encoder in C writes a value as `_write` would: headers and ledger entries.

    These are lists and objects of texts and small integers, at most one level of lists deep, whose
    keys are ASCII, so that Python sorts them as UTF-16 code units. Exact types only.
    """
    if type(value) is dict:
        if set(map(type, value)) != {str} or not all(map(str.isascii, value)):
            return False
        items = list(value.values())
    elif type(value) is list:
        items = value
    else:
        return False
    kinds = set(map(type, items))
    if kinds <= _TEXTS:
        return True
    if not kinds <= _PLAIN:
        return False
    integers = (item for item in items if type(item) is int)
    lists = (item for item in items if type(item) is list)
    return all(abs(item) <= MAX_INTEGER for item in integers) and all(
        set(map(type, item)) <= _TEXTS for item in lists
    )


def _write(value: object, out: list[str], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise NotCanonical(f"The value nests deeper than {MAX_DEPTH} levels.")
    if value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, str):
        # Python escapes exactly what RFC 8785 section 3.2.2.2 asks for when ASCII is not forced.
        out.append(encode_basestring(value))
    elif type(value) is int:
        if abs(value) > MAX_INTEGER:
            raise NotCanonical("An integer is 2^53 or more; carry it as a string or in limbs.")
        out.append(str(value))
    elif isinstance(value, list):
        _write_list(value, out, depth)
    elif isinstance(value, dict):
        _write_object(value, out, depth)
    else:
        raise NotCanonical(f"A value of type {type(value).__name__} has no canonical encoding.")


def _write_list(items: list[object], out: list[str], depth: int) -> None:
    out.append("[")
    for index, item in enumerate(items):
        if index:
            out.append(",")
        _write(item, out, depth + 1)
    out.append("]")


def _write_object(members: dict[object, object], out: list[str], depth: int) -> None:
    for key in members:
        if not isinstance(key, str):
            raise NotCanonical("An object has a key that is not a string.")
    out.append("{")
    for index, key in enumerate(sorted(members, key=_utf16)):
        if index:
            out.append(",")
        _write(key, out, depth + 1)
        out.append(":")
        _write(members[key], out, depth + 1)
    out.append("}")


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
