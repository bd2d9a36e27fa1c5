"""How large the clusters were over the rounds, from what ledgers say: read, and not yet checked.

A report is made of runs as well whose evidence fails, so nothing here may raise or grow large for
what a ledger says. `audits.checks.cohorts` holds the same entries to the rule (O5).
"""

from __future__ import annotations

from audits.evidence.steps import Case
from audits.report.sections import Clustering, Clusters
from protocols.evidence.ledger import Entry
from protocols.wire.roles import Role

_Parts = tuple[int, ...]


def cluster_sizes(case: Case) -> Clusters | None:
    """Return the sizes of a run's clusters over its rounds; None where its form never splits."""
    splits, everybody = case.plan.splits, (1 << len(case.plan.clients)) - 1
    if splits is None:
        return None
    cuts = _cuts(case, everybody) if splits.signed else []
    made: dict[int, int] = {}  # clusters of signed cuts, and in which round they were signed
    for round, sides in cuts:
        made.update({side: round for side in sides if side not in made})
    parts: _Parts = (everybody,)
    asked, rows = {everybody}, [_row(1, parts, {everybody}, ())]
    for round, clusters in _told(case, everybody).items():
        new = [cluster for cluster in clusters if cluster not in asked]
        for cluster in new:
            parts = _divided(parts, cluster)
        asked.update(new)
        signed = tuple(sorted({made[cluster] for cluster in new if cluster in made}))
        row = _row(round, parts, asked, signed)
        if (row.sizes, row.apart) != (rows[-1].sizes, rows[-1].apart):
            rows.append(row)  # at most three a client, whatever ledgers say
    unused = sum(asked.isdisjoint(sides) for _, sides in cuts)
    return Clusters(signed=splits.signed, rows=tuple(rows), unused=unused)


def _cuts(case: Case, everybody: int) -> list[tuple[int, _Parts]]:
    """Return the round and both sides of every cut that the key authority signed."""
    who = {p["name"] for p in case.roster.document() if p["role"] == Role.KEY_AUTHORITY}
    found: list[tuple[int, _Parts]] = []
    for party, entry in case.ledger_index.of_kind("cut"):
        if party in who:
            cluster, side = _set(entry, "cluster", everybody), _set(entry, "side", everybody)
            found.append((entry["round"], (side, cluster & ~side)))
    return found


def _told(case: Case, everybody: int) -> dict[int, list[int]]:
    """Return by round the clusters that clients were told of, each once a round."""
    entries = [entry for _, entry in case.ledger_index.of_kind("cluster")]
    found: dict[int, dict[int, None]] = {}
    for round, _, entry in sorted(
        ((_when(case, entry), entry["exchange"], entry) for entry in entries),
        key=lambda one: one[:2],
    ):
        if cluster := _set(entry, "cluster", everybody):
            found.setdefault(round, {})[cluster] = None
    return {round: [*clusters] for round, clusters in found.items()}


def _when(case: Case, entry: Entry) -> int:
    """Return an entry's round; one more than the run has, if its Ask is none of the rounds'."""
    round: int = entry["round"]
    last = case.plan.rounds
    sent = case.ledger_index.releases_of(entry["exchange"])
    if any(one.ask and one.planned and not one.planned.per_round for one in sent):
        return last + 1
    return min(max(round, 1), last + 1)


def _divided(parts: _Parts, cluster: int) -> _Parts:
    """Put the sides of every part that a cluster cuts in its place: the larger first."""
    made: list[int] = []
    for part in parts:
        sides = [side for side in (part & cluster, part & ~cluster) if side]
        made += sorted(sides, key=lambda side: (-side.bit_count(), side & -side))
    return tuple(made)


def _row(round: int, parts: _Parts, asked: set[int], signed: tuple[int, ...]) -> Clustering:
    sizes = tuple(part.bit_count() for part in parts if part in asked)
    apart = sum(part.bit_count() for part in parts if part not in asked)
    return Clustering(round=round, sizes=sizes, apart=apart, signed=signed)


def _set(entry: Entry, name: str, everybody: int) -> int:
    """Return a set of clients; who is not on the roster is left out, and so is what is no set."""
    try:
        return int.from_bytes(bytes.fromhex(entry[name]), "little") & everybody
    except ValueError:
        return 0
