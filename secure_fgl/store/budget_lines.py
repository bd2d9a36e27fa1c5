"""What a budget file holds: one reservation per line, its chain, and what all of them compose to.

Composition: Rényi curves add up order by order (Mironov, CSF 2017, proposition 1), and so do the
distances of the samplers from the exact noise; wrap is taken out of delta once per run (O19).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal, DecimalException
from functools import partial
from typing import Any

import numpy as np

from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from crypto.signing.merkle import Tree
from protocols.errors import EvidenceError, OtherEvidence
from protocols.privacy.accounting import ORDERS, WRAP, net_epsilon
from protocols.versions import BUDGET
from protocols.wire.header import NONE
from secure_fgl.errors import UsageError

STEP = "budget"
LINE_LIMIT = 1 << 16  # bytes; one of ours is about 4 kB
_LONGEST_NUMBER = 64  # characters
_FACTS = ("rdp", "run", "tails")
_UP = Context(prec=6, rounding=ROUND_UP)
_SUM = Context(prec=60, rounding=ROUND_CEILING)

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Floor:
    """A size (lines) and root that a store must extend; `note`: what others signed, or empty."""

    size: int
    root: bytes
    note: str = ""

    def check(self, lines: Sequence[bytes]) -> None:
        """Raise EvidenceError unless these lines extend it."""
        if len(lines) < self.size:
            raise EvidenceError(
                STEP,
                f"a budget has {len(lines)} lines and was seen with {self.size}: it was put back",
            )
        if not hmac.compare_digest(_root(lines[: self.size]), self.root):
            raise EvidenceError(STEP, "a budget is not the one that was anchored: it was rewritten")


@dataclass(frozen=True)
class Log:
    """A budget file as read: its complete lines, and what they reserve."""

    lines: tuple[bytes, ...]
    reservations: tuple[Entry, ...]

    @property
    def head(self) -> str:
        """SHA-256 (hex) over the last line, which holds the head before."""
        return _head(self.lines)

    def floor(self) -> Floor:
        """Return where the file stands."""
        return Floor(len(self.lines), _root(self.lines))

    def plus(self, header: Entry, entry: Entry) -> Log:
        """Return the file after a reservation; the first brings the header along."""
        lines = list(self.lines)
        for content in (entry,) if lines else (header, entry):
            facts = {**content, "prev": _head(lines), "seq": len(lines)}
            lines.append(canonical(facts) + b"\n")
        if any(len(line) > LINE_LIMIT for line in lines[len(self.lines) :]):
            raise UsageError("A reservation is larger than readers of budgets accept.")
        return Log(tuple(lines), (*self.reservations, entry))


def header(site: str, dataset: str) -> dict[str, Any]:
    """Return the first line of a budget file; curves at other orders cannot be added to its own."""
    return {
        "dataset": dataset,
        "orders": list(map(_spell, ORDERS)),
        "site": site,
        "version": BUDGET.version,
    }


def read_log(data: bytes, first: Entry) -> Log:
    """Read every line strictly; an empty file holds no reservations.

    Args:
        data: the file.
        first: the header that it must have.

    Raises:
        EvidenceError: at step ``budget``: a line is not ours, out of sequence, or does not follow
            from the one before it.
    """
    lines, found = data.splitlines(keepends=True), []
    for number, line in enumerate(lines):
        try:
            entry = parse(line.removesuffix(b"\n"), limit=LINE_LIMIT)
        except CryptoError:
            raise EvidenceError(STEP, f"line {number} of a budget is not canonical") from None
        if not number:
            _check_version(entry)
        wanted = {*_FACTS, "prev", "seq"} if number else {*first, "prev", "seq"}
        if not isinstance(entry, dict) or set(entry) != wanted or not line.endswith(b"\n"):
            raise EvidenceError(STEP, f"line {number} of a budget is not complete")
        if entry["seq"] != number or entry["prev"] != _head(
            lines[number - 1 : number] if number else []
        ):
            raise EvidenceError(STEP, f"line {number} of a budget does not follow from those above")
        if number:
            found.append(_reservation(number, entry))
        elif any(entry[name] != first[name] for name in first):
            raise EvidenceError(STEP, "a budget is of another site, data set or list of orders")
    return Log(tuple(lines), tuple(found))


def _check_version(first: object) -> None:
    found = first.get("version") if isinstance(first, dict) else None
    if not BUDGET.check(found, partial(OtherEvidence, STEP)):
        raise EvidenceError(STEP, "a budget states no format version")


def _reservation(number: int, entry: Entry) -> Entry:
    made = {name: entry[name] for name in _FACTS}
    try:
        check_reservation(made)
    except UsageError as error:
        raise EvidenceError(STEP, f"line {number} of a budget: {error.what}") from None
    return made


def check_reservation(entry: Entry) -> None:
    """Raise UsageError unless an entry holds a run's name, a whole curve and a distance."""
    rdp = entry["rdp"]
    if not isinstance(entry["run"], str) or not isinstance(rdp, list) or len(rdp) != len(ORDERS):
        raise UsageError(f"A reservation names a run and a divergence at {len(ORDERS)} orders.")
    for text in (*rdp, entry["tails"]):
        _number(text)


def compose(reservations: Sequence[Entry], delta: float) -> float:
    """Return epsilon of all reservations together at `delta`; infinite if `delta` is used up."""
    if not reservations:
        return 0.0
    curve, tails = [Decimal(0)] * len(ORDERS), Decimal(0)
    for entry in reservations:
        tails = _SUM.add(tails, _number(entry["tails"]))
        curve = [_SUM.add(a, _number(b)) for a, b in zip(curve, entry["rdp"], strict=True)]
    left = delta - (len(reservations) - 1) * WRAP  # net_epsilon takes out one
    rdp = np.array([_above(value) for value in curve])
    return net_epsilon(rdp, left, tails=_above(tails))[0]


def rounded_up(value: float) -> str:
    """Return a number with six figures, never smaller than it is, or ``infinity``."""
    return f"{_UP.create_decimal_from_float(value):g}" if math.isfinite(value) else "infinity"


def _number(text: object) -> Decimal:
    try:
        if isinstance(text, str) and len(text) <= _LONGEST_NUMBER:
            found = Decimal(text)
            if found.is_finite() and found >= 0:
                return found
    except DecimalException:
        pass
    raise UsageError("A reservation holds something else than a decimal number of at least 0.")


def _above(value: Decimal) -> float:
    return math.nextafter(float(value), math.inf) if value else 0.0


def _spell(order: float) -> str:
    return repr(float(order))


def _head(lines: Sequence[bytes]) -> str:
    """Return the head after these lines: a hash of the last, which holds the head before it."""
    return hashlib.sha256(b"secure-fgl/budget\0" + lines[-1]).hexdigest() if lines else NONE


def _root(lines: Sequence[bytes]) -> bytes:
    tree = Tree()
    for line in lines:
        tree.append(line)
    return tree.root()
