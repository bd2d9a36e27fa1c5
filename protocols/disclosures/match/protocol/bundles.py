"""Bundles of boxes, one of each client: what tag servers and the matcher are sent and answer."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.disclosures.match.messages import Bundle
from protocols.disclosures.match.protocol.wire import Kind, MatchRun
from protocols.disclosures.match.run import match_run_of
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.sessions.part import Engine
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


def run_of(context: RunContext) -> MatchRun:
    """Return what all parties of the matching agree on."""
    found = match_run_of(context)
    if found is None:
        raise LocalProtocolError("Nothing is matched in this run.")
    return found


def read_bundle(
    engine: Engine, incoming: Incoming, kind: Kind, run: MatchRun
) -> tuple[Where, dict[str, bytes]]:
    """Return where a bundle belongs, and its boxes by client.

    Raises:
        BadEnvelope: the cohort is not the one that the header names, or a stranger's box.
        CohortTooSmall: fewer clients than the policy's minimum are in it.
    """
    bundle = engine.read_one(incoming, Bundle)
    header, context = incoming.header, engine.context
    members = context.roster.unmask(bundle.members)
    where = Where(header.round, header.exchange, members, header.given, header.attempt)
    if header.cohort != context.cohort(where) or header.attempt != 1:
        raise BadEnvelope("A bundle's cohort is not the one that its header names.")
    boxes = cut_bundle(run, kind, bundle.bundle)
    if set(boxes) - set(members):
        raise BadEnvelope("A bundle holds a box from outside its cohort.")
    context.policy.check_cohort(len(boxes))
    return where, boxes


def bundled(run: MatchRun, where: Where, kind: Kind, boxes: Mapping[str, bytes]) -> Bundle:
    """Return a cohort's boxes as one message."""
    members = run.roster.mask(where.members)
    return Bundle(members=members, bundle=bundle_of(run, kind, boxes))


def bundle_of(run: MatchRun, kind: Kind, boxes: Mapping[str, bytes]) -> bytes:
    """Return boxes by roster client, zeros where there is none."""
    empty = bytes(run.length(kind))
    return b"".join(boxes.get(name, empty) for name in run.roster.clients)


def cut_bundle(run: MatchRun, kind: Kind, data: bytes) -> dict[str, bytes]:
    """Return the boxes of a bundle by client; raises BadEnvelope for another size."""
    size, clients = run.length(kind), run.roster.clients
    if len(data) != size * len(clients):
        raise BadEnvelope("A bundle does not have the planned size.")
    cut = {name: data[at * size : (at + 1) * size] for at, name in enumerate(clients)}
    return {name: box for name, box in cut.items() if any(box)}
