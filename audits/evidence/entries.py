"""What each entry of a ledger holds, by its kind; no fact more, and none less."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.evidence.captures import is_piece
from protocols.evidence.ledger import Entry
from protocols.wire.control import REFUSALS

ROUTE: dict[str, type] = {
    "attempt": int,
    "cohort": str,
    "exchange": int,
    "given": str,
    "item": str,
    "key": str,
    "plan": str,
    "policy": str,
    "recipient": str,
    "round": int,
    "sender": str,
}
_COMMON: dict[str, type] = {
    "kind": str,
    "party": str,
    "prev": str,
    "run": str,
    "salt": str,
    "seq": int,
    "time": str,
}
_SUM: dict[str, type] = {
    "cohort": str,
    "exchange": int,
    "members": int,
    "round": int,
    "survivors": int,
}
_RESULT: dict[str, type] = {"digest": str, "disclosure": str, "uploads": int}
_TABLE: dict[str, type] = {"group": int, "rank": int, "solved": int, "table": str}
_FACTS: dict[str, dict[str, type]] = {
    "plan": dict.fromkeys(("config", "plan", "policy", "role", "roster", "transport"), str),
    "key": {"event": str, "key": str},
    "release": {
        **ROUTE,
        "bytes": int,
        "clipped": bool,
        "commitment": str,
        "disclosure": str,
        "messages": str,
        "protection": list,
        "unsafe": bool,
    },
    "receipt": {**ROUTE, "bytes": int, "commitment": str, "sender_head": str},
    "refusal": {"code": str, "exchange": int, "reason": str, "round": int},
    "budget": {"dataset": str, "delta": str, "entries": int, "epsilon": str, "head": str},
    "training": {
        "clip": str,
        "noise": str,
        "rate": str,
        "round": int,
        "steps": int,
        "unit": str,
    },
    "mix": {"exchange": int, "floor": int, "item": str, "mixtures": int, "round": int},
    "withheld": {"exchange": int, "item": str, "mixtures": int, "round": int},
    "survivors": {**_SUM, "list": str},
    "drawn": {"cohorts": int, "members": str, "seed": str},
    "open": _SUM,
    "cluster": {"cluster": str, "cohort": str, "exchange": int, "round": int},
    "cut": {"cluster": str, "cohort": str, "exchange": int, "round": int, "side": str},
    "offered": {"commitment": str, "exchange": int, "round": int},
    "neighbourhood": {"absent": list, "commitments": list, "exchange": int, "round": int},
    "weights": {
        **_TABLE,
        "exchange": int,
        "flattened": list,
        "receivers": int,
        "round": int,
        "uploads": int,
    },
    "witness": {**_SUM, **_RESULT},
    "relay": {**_SUM, "item": str},
    "tags": {
        "clients": int,
        "epoch": int,
        "exchange": int,
        "quota": int,
        "refused": int,
        "round": int,
    },
    "canary": {"canary": str, "exchange": int, "round": int},
    "match": {"canary": str, "cells": int, "exchange": int, "round": int},
    "row_tags": {
        "clients": int,
        "epoch": int,
        "exchange": int,
        "quota": int,
        "refused": int,
        "round": int,
    },
    "rows": {"exchange": int, "round": int},
    "captured": {"digest": str, "exchange": int, "piece": str, "round": int},
    "heads": {"exchange": int, "root": str, "round": int},
    "taken": {"digest": str, "exchange": int, "round": int},
    "model": {"digest": str, "piece": str},
    "close": {"state": str},
}
_OPTIONAL: dict[str, dict[str, type]] = {
    "plan": {"canaries": str},
    "key": {"scheme": str},
    "release": {"masked": str},
    "budget": {"unit": str},
    "mix": {"alone": int},
    "open": {**_RESULT, "reader": str},
    "survivors": {"reader": str},
    "witness": _TABLE,
    "match": {"clients": int},
    "rows": {
        "adding": int,
        "canary": str,
        "clients": int,
        "clipped": int,
        "delta": str,
        "dropped": int,
        "entered": int,
        "epsilon": str,
        "getting": int,
        "scale": str,
        "sums": int,
        "told": int,
    },
    "heads": {"received": int, "items": int, "missing": int},
    "refusal": {"detail": str},
    "close": {"canaries": str, "result": dict},
}
RESULT = {"best", "document", "metrics", "model"}  # digests of what a finished run leaves
_MODELS = {"best", "model"}  # "" for no model
ROUND = re.compile(r"round-([1-9]\d{0,5})")  # besides these: of a model of that round, if kept
MODELS = ("model", "last")  # pieces of a client's own: the best one, and the one scored last
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_facts(number: int, entry: Entry) -> None:
    """Raise EvidenceError unless an entry holds exactly the facts of its kind."""
    kind = entry["kind"]
    needed = {**_COMMON, **_FACTS[kind], **({} if number else {"version": int})}
    known = {**needed, **_OPTIONAL.get(kind, {})}
    if not (set(needed) <= set(entry) <= set(known)):
        raise EvidenceError("chain", f"entry {number} does not hold exactly the facts of its kind")
    for name, value in entry.items():
        wanted = known[name]
        if type(value) is not wanted or (isinstance(value, int) and value < 0):
            raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")
    if kind == "refusal" and entry["code"] not in REFUSALS:
        raise EvidenceError("chain", f"entry {number} refuses with a code outside the closed list")
    if kind == "open" and 0 < len(set(_RESULT) & set(entry)) < len(_RESULT):
        raise EvidenceError("chain", f"entry {number} does not hold exactly the facts of its kind")
    if kind == "witness":  # of rows it says what weights it was shown
        rows = entry["disclosure"] == Disclosure.WEIGHTED_SUM
        if set(_TABLE) & set(entry) != (set(_TABLE) if rows else set()):
            raise EvidenceError(
                "chain", f"entry {number} does not hold exactly the facts of its kind"
            )
    if kind == "weights" and not all(isinstance(name, str) for name in entry["flattened"]):
        raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")
    if kind in _MORE:
        _MORE[kind](number, entry)
    if not _DIGEST.fullmatch(entry.get("canaries", "0" * 64)) and kind in ("plan", "close"):
        raise EvidenceError("chain", f"entry {number} states no canaries of a client")
    if "result" in entry and not _is_result(entry["result"]):
        raise EvidenceError("chain", f"entry {number} states a result in an unknown form")


def _check_captured(number: int, entry: Entry) -> None:
    place = entry["piece"], entry["round"], entry["exchange"]
    if not (_DIGEST.fullmatch(entry["digest"]) and is_piece(*place)):
        raise EvidenceError("chain", f"entry {number} names no captured piece")


def _check_model(number: int, entry: Entry) -> None:
    if not _DIGEST.fullmatch(entry["digest"]) or entry["piece"] not in MODELS:
        raise EvidenceError("chain", f"entry {number} names no model of a client's own")


def _check_taken(number: int, entry: Entry) -> None:
    if not _DIGEST.fullmatch(entry["digest"]):
        raise EvidenceError("chain", f"entry {number} states no digest of a model")


def _check_release(number: int, entry: Entry) -> None:
    if not all(isinstance(guard, str) for guard in entry["protection"]):
        raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")
    if entry["disclosure"] not in list(Disclosure):
        raise EvidenceError("chain", f"entry {number} names no known disclosure")


def _check_offered(number: int, entry: Entry) -> None:
    if not _DIGEST.fullmatch(entry["commitment"]):
        raise EvidenceError("chain", f"entry {number} states no digest of a model")


def _check_neighbourhood(number: int, entry: Entry) -> None:
    told = entry["commitments"]
    if not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in told):
        raise EvidenceError("chain", f"entry {number} states no digests of models")
    if not all(isinstance(name, str) for name in entry["absent"]):
        raise EvidenceError("chain", f"entry {number} holds a fact of the wrong type")


_MORE: dict[str, Callable[[int, Entry], None]] = {
    "captured": _check_captured,
    "model": _check_model,
    "neighbourhood": _check_neighbourhood,
    "offered": _check_offered,
    "release": _check_release,
    "taken": _check_taken,
}


def _is_result(found: Mapping[str, object]) -> bool:
    """Tell whether a result holds exactly its digests; only its two models may be absent."""
    return (
        set(found) >= RESULT
        and all(ROUND.fullmatch(name) for name in set(found) - RESULT)
        and all(
            isinstance(digest, str) and (_DIGEST.fullmatch(digest) or (not digest and n in _MODELS))
            for n, digest in found.items()
        )
    )
