"""Whole epochs of matching without any transport, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crypto.samplers import entropy
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.cells import (
    LABEL_BYTES,
    CellPlace,
    Matched,
    blinded,
    cell_label,
    matched,
    opened,
    partial,
    shares,
    total,
)
from protocols.disclosures.match.protocol.tagging import TagBatch, Tags, TagServer, keyed

RUN = "5e" * 16
KEY = bytes(range(32))


def served(
    items: Mapping[str, Sequence[int]], match: Match, epoch: int = 0, servers=None
) -> dict[str, Tags]:
    """Return every client's tags, by two tag servers, one after the other."""
    servers = servers or (TagServer(match), TagServer(match))
    for server in servers:
        server.begin(epoch)
    found = {}
    for name, own in items.items():
        batch = TagBatch(own, match, RUN, epoch)
        found[name] = finished(batch, name, servers, epoch)
    return found


def finished(batch: TagBatch, client: str, servers: Sequence[TagServer], epoch: int = 0) -> Tags:
    """Return a batch's tags, as the two servers make them."""
    first, second = servers
    halfway = batch.checked(first.answer(client, epoch, batch.points))
    return batch.finish(second.answer(client, epoch, halfway))


def keyed_all(items: Mapping[str, Sequence[int]], match: Match, epoch: int = 0) -> dict[str, Tags]:
    """Return every client's tags in hmac mode, which is quick."""
    return {name: keyed(own, KEY, match, RUN, epoch) for name, own in items.items()}


def compared(tags: Mapping[str, Tags], match: Match, cells=None) -> Matched:
    """Return what the matcher finds."""
    sent = {name: mine.sent for name, mine in tags.items()}
    return matched(sent, {name: mine.digest for name, mine in tags.items()}, match, cells)


def plain(items: Mapping[str, Sequence[int]], cells: Mapping[str, int], floor: int):
    """Return, by client and item, the cells that hold it: by the items themselves, in loops."""
    holders: dict[int, list[str]] = {}
    for name, own in items.items():
        for item in own:
            holders.setdefault(item, []).append(name)
    return {
        name: {
            item: sorted({cells[other] for other in holders[item]})
            for item in sorted(own)
            if len(holders[item]) >= floor
        }
        for name, own in items.items()
    }


def added(
    values: Mapping[str, np.ndarray],
    tags: Mapping[str, Tags],
    found: Matched,
    exchange: int = 1,
    gone: Sequence[str] = (),
    seen: dict | None = None,
):
    """Return the (cells, d) blinded totals, which are complete, and the cells' labels."""
    size = len(next(iter(values.values())))
    cells = max(found.cells.values()) + 1
    totals, there = np.zeros((cells, size), np.uint32), np.zeros(cells, bool)
    labels = [bytes(LABEL_BYTES)] * cells
    for cell in range(cells):
        members = tuple(sorted(n for n, c in found.cells.items() if c == cell))
        if set(members) & set(gone):
            continue
        place = CellPlace(RUN, exchange, cell, members)
        split = {name: shares(values[name], members) for name in members}
        label = cell_label({name: entropy(32) for name in members}, place)
        parts = []
        for me in members:
            words = partial({other: split[other][me] for other in members}, place, size)
            parts.append((label, blinded(words, tags[me].group, place, label, me)))
        if seen is not None:
            seen[cell] = (split, parts)
        labels[cell], totals[cell] = total(parts, len(members), size)
        there[cell] = True
    return totals, there, labels


def read(totals, there, labels, told, group, exchange: int = 1, levels: int = 1000):
    """Open all totals at one client."""
    return opened(totals, there, labels, told, group, (RUN, exchange), levels)


def crowd(clients: int, items: int, each: int, seed: int = 0) -> dict[str, list[int]]:
    """Return clients with items by a popularity that falls off; invented."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, items + 1) ** 0.7
    weight /= weight.sum()
    return {
        f"c{n:03d}": sorted(
            int(i)
            for i in rng.choice(items, size=int(rng.integers(3, each + 1)), replace=False, p=weight)
        )
        for n in range(clients)
    }
