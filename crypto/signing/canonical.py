"""One value, one byte string: the subset of RFC 8785 (JSON Canonicalization Scheme) that we sign.

Accepted: dict with str keys, list, str, int with |i| < 2^53, bool and None. Floats have no place in
anything that is signed here, so they are refused rather than formatted (RFC 8785 section 3.2.2.3 is
the part that implementations get wrong). Object members are sorted by UTF-16 code units
(section 3.2.3).
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from operator import itemgetter
from sys import intern
from typing import Any, NoReturn

from crypto.errors import NotCanonical

__all__ = ["MAX_DEPTH", "MAX_INTEGER", "canonical", "parse"]

MAX_DEPTH = 16  # our deepest header nests 5 levels
MAX_INTEGER = 2**53 - 1  # RFC 7493 section 2.2: exact in every JSON reader

_LONGEST_INTEGER = len(str(-MAX_INTEGER))
_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))  # what stands for itself
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
        return _object(value, depth + 1)
    raise NotCanonical(f"A value of type {type(value).__name__} has no canonical encoding.")


def _texts(values: Sequence[object], depth: int) -> list[str]:
    if values and depth > MAX_DEPTH:
        raise NotCanonical(f"The value nests deeper than {MAX_DEPTH} levels.")
    if _is_clean("".join([value for value in values if type(value) is str])):
        return [f'"{v}"' if type(v) is str else _text(v, depth) for v in values]
    return [_text(value, depth) for value in values]


def _is_clean(joined: str) -> bool:
    # Digests and names hold nothing to escape: to look at all at once takes a tenth of the time.
    return joined.isascii() and not joined.encode().translate(None, _PLAIN)


def _object(value: dict[Any, Any], depth: int) -> str:
    pick, texts, others, quoted, bare = _shape(tuple(value), tuple(map(type, value.values())))
    values = pick(value)
    if depth > MAX_DEPTH or not _is_clean("".join(texts(values))):
        return _between(bare, _texts(values, depth))
    if others:
        ready = list(values)
        for place in others:
            found = ready[place]
            whole = type(found) is int and -MAX_INTEGER <= found <= MAX_INTEGER
            ready[place] = str(found) if whole else _text(found, depth)
        return _between(quoted, ready)
    return _between(quoted, values)


def _between(around: Sequence[str], values: Sequence[str]) -> str:
    """Return the values with the text around them; an object of many costs a third of `%`."""
    parts = [*around, *values]
    parts[::2], parts[1::2] = around, values
    return "".join(parts)


Pick = Callable[[Any], tuple[Any, ...]]


@lru_cache(maxsize=256)  # headers and ledger entries are of few shapes
def _shape(
    names: tuple[object, ...], kinds: tuple[type, ...]
) -> tuple[Pick, Pick, tuple[int, ...], list[str], list[str]]:
    """Return what objects of these keys and types of values have in common.

    Returns:
        What picks the values in order, what picks the texts among them, where the others stand, and
        the text around the values: with the quotes of texts, and without.
    """
    ordered = [name for name in names if isinstance(name, str)]
    if len(ordered) != len(names):
        raise NotCanonical("An object has a key that is not a string.")
    ordered.sort(key=_utf16)
    kind_of = dict(zip(names, kinds, strict=True))
    quotes = ['"' if kind_of[name] is str else "" for name in ordered]
    texts = [place for place, quote in enumerate(quotes) if quote]
    others = tuple(place for place, quote in enumerate(quotes) if not quote)
    return _picker(ordered), _picker(texts), others, _around(ordered, quotes), _around(ordered)


def _around(names: Sequence[str], quotes: Sequence[str] | None = None) -> list[str]:
    """Return an object's text before, between and behind its values."""
    found, before = [], "{"
    for name, quote in zip(names, quotes or [""] * len(names), strict=True):
        found.append(f"{before}{encode_basestring(name)}:{quote}")
        before = f"{quote},"
    return [*found, f"{before[:-1]}}}" if found else "{}"]


def _picker(places: Sequence[Any]) -> Pick:
    """Return what picks these places of a value as a tuple, which `itemgetter` does from two on."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda value: tuple([value[place] for place in places])


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
    # Ledgers of a run repeat names, digests and parties: held once they take 2/5 of the memory.
    members = {intern(name): _shared(value) for name, value in pairs}
    if len(members) != len(pairs):
        raise NotCanonical("An object repeats a key.")
    return members


def _shared(value: Any) -> Any:
    return intern(value) if type(value) is str else value


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER or abs(int(digits)) > MAX_INTEGER:
        raise NotCanonical("An integer is 2^53 or more.")
    return int(digits)


def _no_float(_: str) -> NoReturn:
    raise NotCanonical("Floats have no canonical encoding here; send an integer and its scale.")
