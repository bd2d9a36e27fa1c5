"""What the attacks on tags are given: what was compared in captured rounds, and what is true of it.

Items, or the nodes of rows that are found by tags; an item is then a node's public number.
The matcher captured the tags, every client which of its own are of which item, every tag server
what its share makes by itself. Nothing that a ledger says was compared may be missing, and clients
and matcher must have captured the same tags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from algorithms._shared.item_expansion import by_popularity
from audits.attacks import Tagged
from audits.evidence.steps import Case
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import TAG_BYTES, public_tags
from protocols.disclosures.match.protocol.wire import public_key
from protocols.disclosures.match.run import match_guard, match_item
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import row_item, rows_guard
from protocols.errors import EvidenceError
from protocols.evidence.capture import captured_rounds
from protocols.messages import Array
from protocols.sessions.store.recording import Captured
from protocols.wire.roles import Role
from secure_fgl.attack_inputs.mixtures import Replayed
from secure_fgl.attack_inputs.truths import items_of

__all__ = ["tag_material"]

Views = Callable[[str, Role], Mapping[int, Mapping[str, bytes]]]
"""Reads what a tag server or the matcher captured, by exchange number."""


def tag_material(
    run: Replayed, answers: Mapping[str, Sequence[Captured]], views: Views
) -> list[Tagged]:
    """Return every captured matching, oldest first.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.
        views: see `Views`.

    Raises:
        EvidenceError: something that was to be captured is missing, or captures contradict.
    """
    case, kind = run.case, _matching(run)
    if kind is None:
        return []
    rounds = captured_rounds(case.policy.capture, case.plan.rounds)
    (matcher,) = case.roster.names(Role.MATCHER)
    told = [
        e for p, e in case.ledger_index.of_kind(kind.entry) if p == matcher and e["round"] in rounds
    ]
    compared = views(matcher, Role.MATCHER)
    servers = {s: views(s, Role.TAG_SERVER) for s in sorted(case.roster.names(Role.TAG_SERVER))}
    found = []
    for entry in told:
        number = entry["exchange"]
        if number not in compared or any(number not in view for view in servers.values()):
            _fail(f"lacks what it captured while {kind.what} were matched")
        own = {c: a for c, those in answers.items() for a in those if a.number == number}
        known = _known(case, kind.entry, number, own, compared[number])
        alone = tuple(_table(view[number]["alone"]) for view in servers.values())
        items = kind.items(own, compared[number])
        found.append(_tagged(run, kind, entry["round"], compared[number], known, alone, items))
    return found


@dataclass(frozen=True)
class _Matching:
    """What a run has tags of.

    Attributes:
        what: in words.
        entry: kind of the ledger entries that say who took part.
        guard: how tags are made.
        catalogue: how many things there are to make tags of.
        items: gives, of clients that were compared, all that each has, (k,) numbers of the
            catalogue; of its captured answers by client.
    """

    what: str
    entry: str
    guard: Match
    catalogue: int
    items: Callable[[Mapping[str, Captured], Mapping[str, bytes]], dict[str, Array]]


def _matching(run: Replayed) -> _Matching | None:
    """Return what is matched in a run, items or the nodes of rows; None if nothing is."""
    case = run.case
    if match_item(case.plan) is not None:
        guard = match_guard(case.policy.rules.get(Disclosure.MATCH, ()))
        catalogue = case.plan.dims["items"]

        def rated(own: Mapping[str, Captured], there: Mapping[str, bytes]) -> dict[str, Array]:
            place = np.argsort(_order(run, catalogue))
            return {c: place[items_of(run.sites[c], run.task.spec)] for c in there}

        return None if guard is None else _Matching("items", "match", guard, catalogue, rated)
    rows = rows_guard(case.policy)
    if row_item(case.plan) is None or rows is None:
        return None
    return _Matching("nodes", "rows", rows.tags, case.plan.dims["nodes"], _nodes)


def _nodes(own: Mapping[str, Captured], there: Mapping[str, bytes]) -> dict[str, Array]:
    """Return the nodes that clients have, or have an edge to: none is left out of their tags."""
    tags = {client: own[client].tags for client in there if client in own}
    return {client: one["items"] for client, one in tags.items() if one is not None}


def _fail(what: str) -> NoReturn:
    raise EvidenceError("captured", f"a party {what}")


def _known(
    case: Case,
    kind: str,
    number: int,
    own: Mapping[str, Captured],
    compared: Mapping[str, bytes],
) -> dict[bytes, int]:
    """Return tag -> item of all clients, whose captures must be the matcher's."""
    truth: dict[bytes, int] = {}
    told = {p for p, e in case.ledger_index.of_kind(kind) if e["exchange"] == number}
    for client, sent in compared.items():
        tags = own[client].tags if client in own else None
        if tags is None:
            if client in told:
                _fail("lacks the tags that its ledger says it had compared")
            continue
        if np.ascontiguousarray(tags["sent"]).tobytes() != sent:
            _fail("captured other tags than the matcher")
        rows = _cut(sent)
        truth |= {rows[r]: int(i) for i, r in zip(tags["items"], tags["rows"], strict=True)}
    return truth


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + TAG_BYTES] for at in range(0, len(data), TAG_BYTES)]


def _table(data: bytes) -> dict[bytes, int]:
    return {tag: item for item, tag in enumerate(_cut(data))}


def _tagged(
    run: Replayed,
    kind: _Matching,
    round: int,
    compared: Mapping[str, bytes],
    truth: Mapping[bytes, int],
    alone: tuple[Mapping[bytes, int], ...],
    items: Mapping[str, Array],
) -> Tagged:
    guard, catalogue = kind.guard, kind.catalogue
    public = guard.mode == "deterministic"
    opened = public_tags(public_key(run.case.roster), catalogue) if public else []
    return Tagged(
        round=round,
        keyed=guard.mode == "hmac",
        quota=guard.places,
        left_out=int(guard.popular * catalogue),
        catalogue=catalogue,
        sent={client: tuple(_cut(data)) for client, data in compared.items()},
        truth=truth,
        items=items,
        alone=alone,
        opened={tag: item for item, tag in enumerate(opened)},
    )


def _order(run: Replayed, catalogue: int) -> Array:
    """Return the items in the order of the public list, the most popular first."""
    chosen = run.config.algorithm
    popular = chosen.options.get(chosen.name, {}).get("popular", ())
    return by_popularity(popular, catalogue)
