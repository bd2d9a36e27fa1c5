"""Result: are metrics and models those that the aggregator's ledger ends with?"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Set
from datetime import date, timedelta
from functools import partial
from typing import Any

from audits.checks.parties import Forgotten, forgotten, own_models, told
from audits.evidence.captured_files import CapturedFiles, PieceFile
from audits.evidence.entries import ROUND
from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.run_files import fail, json_digest, result_digest
from audits.evidence.steps import Case, Check, NotChecked
from audits.evidence.taken_models import check_taken
from audits.report.words import plural
from protocols.errors import OtherEvidence
from protocols.evidence.captures import captured_rounds
from protocols.versions import CAPTURE
from protocols.wire.roles import Role

_MERITS = {"val_told": 1, "val_accuracy": 1, "val_roc_auc": 1, "val_rmse": -1}
"""Validation metrics by which the best round is chosen, with their sign."""
_FILES = {"final": "model", "best": "best"}  # file in checkpoints/ -> its digest in the ledger


def result(case: Case) -> str:
    """Metrics, models and result.json are what the aggregator recorded when it finished."""
    stated = _stated(case)
    own_models(case)
    if stated is None:
        if case.view.result_text:
            fail("result", "there is a result.json, but no ledger says that the run finished")
        raise NotChecked("the run did not finish")
    if not _same(hashlib.sha256(case.view.metrics_text).hexdigest(), stated["metrics"]):
        fail("result", "metrics.jsonl is not the one that the aggregator recorded")
    _models(case, stated)
    if not case.view.result_text:
        fail("result", "the run finished, but there is no result.json")
    if case.result.get("model_sha256", "") != (stated["model"] or None):
        fail("result", "result.json names another model than the aggregator recorded")
    alone = check_taken(case, stated["model"], stated["best"])
    _skipped(case)
    best = None if _unscored(case) else _best(case)
    if not _same(result_digest(case.result), stated["document"]):
        fail("result", "result.json is not the one that the aggregator recorded")
    models = sum(map(bool, stated.values())) - 2  # two are those of metrics and result.json
    if best is None:
        return f"digests of {models} models are as recorded{alone}; no score left the clients"
    return (
        f"digests of {models} models, all metrics and those of round {best} are as recorded{alone}"
    )


def _skipped(case: Case) -> None:
    """Raise EvidenceError unless result.json names the rounds that the ledgers show as skipped.

    It may name more: a round with too few clients to be asked at all leaves no entry. The closing
    score, after the last round, counts as one more round.
    """
    claimed, rounds = case.result.get("lost_rounds", []), case.plan.rounds
    if not isinstance(claimed, list) or any(type(number) is not int for number in claimed):
        fail("result", "the skipped rounds of result.json are no list of numbers")
    if sorted(set(claimed)) != claimed or not set(claimed) <= set(range(1, rounds + 2)):
        fail("result", "result.json names a skipped round twice, or one that was not planned")
    if case.view.side:
        return  # who answered stands in the clients' ledgers
    for ask in case.exchanges.all.values():
        named = ask.round in claimed or (ask.round == rounds and rounds + 1 in claimed)
        if ask.lost(case.plan.smallest_cohort) and not named:
            fail("result", f"round {ask.round} was skipped, and result.json does not say so")


def _unscored(case: Case) -> bool:
    """Tell whether no score ever left; then there are no metrics, and no best model, at all."""
    if case.view.metrics_text:
        return False
    claimed = case.result.get("metrics")
    known = claimed if isinstance(claimed, dict) else {}
    named = "best_round" in known and set(known) & set(_MERITS)
    if not named or any(value is not None for value in known.values()):
        fail("result", "result.json states metrics, and metrics.jsonl has none")
    if "best" in case.view.weights:
        fail("result", "there is a best model, and no score by which it could be chosen")
    return True


def _stated(case: Case) -> Mapping[str, str] | None:
    """Return the digests with which the aggregator's ledger ends, if it finished."""
    found: list[Mapping[str, str]] = []
    for party, entry in case.ledger_index.of_kind("close"):
        if "result" in entry:
            if case.roster.party(party).role is not Role.AGGREGATOR:
                fail("result", f"{party} states a result and is no aggregator")
            found.append(entry["result"])
    if len(found) > 1:
        fail("result", "the aggregator states a result twice")
    return found[0] if found else None


def _models(case: Case, stated: Mapping[str, str]) -> None:
    """Raise EvidenceError unless the models are those recorded, and no others lie beside them."""
    rounds = {name: ROUND.fullmatch(name) for name in stated}
    if any(found and int(found[1]) > case.plan.rounds for found in rounds.values()):
        fail("result", "the aggregator recorded a model of a round that was not planned")
    files = _FILES | {name: name for name, found in rounds.items() if found}
    if set(case.view.weights) - set(files):
        fail("result", "checkpoints/ holds a model that no ledger covers")
    for file, name in files.items():
        if not _same(case.view.weights.get(file, ""), stated[name]):
            fail("result", f"checkpoints/{file}.npz is not the model that the aggregator recorded")


def _best(case: Case) -> int:
    """Return the round of the result's metrics, which must be the best on validation records."""
    claimed = case.result.get("metrics")
    if not isinstance(claimed, dict):
        fail("result", "result.json holds no metrics")
    rows = [row for row in case.metrics if set(row) & set(_MERITS)]
    if not rows:
        fail("result", "metrics.jsonl holds no validation score")
    merits = [_merit(row) for row in rows]
    best: dict[str, Any] = rows[-1]  # without a validation record the last round counts
    if any(merit > -math.inf for merit in merits):
        equals = [row for row, merit in zip(rows, merits, strict=True) if merit == max(merits)]
        trained = [row for row in equals if row.get("round") != 0]
        best = (trained or equals)[0]  # the first of them, but no untrained model before another
    expected = {"best_round" if name == "round" else name: best[name] for name in best}
    if json_digest(claimed) != json_digest(expected):
        fail("result", "the metrics of result.json are not those of the best line of metrics.jsonl")
    number = best.get("round")
    if type(number) is not int:
        fail("result", "a line of metrics.jsonl names no round")
    return number


def _merit(row: Mapping[str, Any]) -> float:
    """Return how good a line's validation score is; minus infinity where it has none."""
    for name, sign in _MERITS.items():
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return sign * float(value)
    return -math.inf


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


CHECKS = (Check("result", ("files", "roster", "chain"), result),)


# --- Captured: are the captured rounds those that the ledgers name, to the byte? ---
#
# Their keys are destroyed when the days of the policy are over; what is left of them stays bound by
# its digest. A party may then remove its folder as a whole, which is told apart from a change:
# before that day, and for a part of it on any day, it is one. A party that destroyed them earlier
# says so under its key (`audits.checks.parties`).


def recorded_pieces(ledger_index: LedgerIndex) -> dict[str, dict[str, str]]:
    """Return the digest (hex) of every captured piece, by party and name.

    Raises:
        EvidenceError: at step ``captured``: a ledger names a piece twice.
    """
    found: dict[str, dict[str, str]] = {}
    for party, entry in ledger_index.of_kind("captured"):
        pieces = found.setdefault(party, {})
        if entry["piece"] in pieces:
            fail("captured", f"the ledger of {party} names the piece {entry['piece']} twice")
        pieces[entry["piece"]] = entry["digest"]
    return found


def captured(case: Case) -> str:
    """Every captured piece is the one that its party's ledger names, and no other is there."""
    notes = forgotten(case)
    try:
        return _captured(case, {p for p, n in notes.items() if _gone(n)}) + told(notes)
    except NotChecked as reason:
        raise NotChecked(f"{reason}{told(notes)}") from None


def _gone(notes: tuple[Forgotten, ...]) -> bool:
    return any("captures" in note.what for note in notes)


def _captured(case: Case, destroyed: Set[str]) -> str:
    recorded = recorded_pieces(case.ledger_index)
    _planned(case)
    if case.view.captured is None:
        raise NotChecked("captured rounds stay at their parties and are not among these files")
    files = case.view.captured()
    if files.strays:
        fail("captured", f"captured/ holds {plural(files.strays, 'thing')} that are no pieces")
    if strangers := set(files.pieces) - set(recorded):
        whose = plural(len(strangers), "folder")
        fail("captured", f"captured/ holds {whose} of parties whose ledgers name no piece")
    gone = [party for party in recorded if not files.pieces.get(party)]
    for party in sorted(set(recorded) - set(gone)):
        _same_captured(party, files.pieces[party], recorded[party])
    here = f"{sum(map(len, files.pieces.values()))} captured pieces are those that ledgers name"
    if not gone:
        return here if recorded else "no ledger names a captured piece, and none is there"
    left = [party for party in gone if party not in destroyed]
    why = _removable(case, files, left) if left else "each signed that it destroyed them"
    raise NotChecked(
        f"the captured rounds of {len(gone)} of {len(recorded)} parties, among them {gone[0]}, are "
        f"not here at all: {why}" + (f"; {here}" if files.pieces else "")
    )


def _planned(case: Case) -> None:
    """Ledgers name pieces of the rounds that the policy captures, and of no other."""
    rounds = set(captured_rounds(case.policy.capture, case.plan.rounds))
    for party, entry in case.ledger_index.of_kind("captured"):
        if entry["round"] not in rounds:
            fail("captured", f"{party} captured round {entry['round']}, against the policy")


def _same_captured(party: str, there: Mapping[str, PieceFile], recorded: Mapping[str, str]) -> None:
    if more := len(set(there) - set(recorded)):
        what = plural(more, "piece")
        fail("captured", f"captured/{party} holds {what} that its ledger does not name")
    if gone := sorted(set(recorded) - set(there)):
        kept = f"{len(gone)} of {len(recorded)} captured pieces, among them {gone[0]}"
        fail("captured", f"{party} lacks {kept}: they were removed one by one")
    for name, digest in recorded.items():
        _of_this_version(party, name, there[name])
        if not hmac.compare_digest(there[name].digest, digest):
            fail("captured", f"the piece {name} of {party} is not the one that its ledger names")


def _of_this_version(party: str, name: str, piece: PieceFile) -> None:
    """A ledger of this version names pieces of this version: another number was put there."""
    try:
        CAPTURE.begins(piece.head, partial(OtherEvidence, "captured"))
    except OtherEvidence as error:
        changed = "the ledger that names it is of this version, so it was changed"
        fail("captured", f"the piece {name} of {party}: {error.what}; {changed}")


def _removable(case: Case, files: CapturedFiles, gone: list[str]) -> str:
    """Return why the captures of some parties may be away; raises EvidenceError if they may not.

    Only a simulation, or a party's own side, has the captures in the folder that is looked at.
    """
    capture = case.policy.capture
    if capture is None:
        fail("captured", "a piece was captured against the policy")
    if not case.roster_file.simulated and not case.view.side:
        return "each party keeps its own, and removes them after its days"
    begun = max(_day(case, party) for party in gone)
    until = begun + timedelta(days=capture.days)
    if files.day <= until:
        fail("captured", f"captured/{gone[0]} was removed before its days were over, {until}")
    return f"removed whole, as they may be after {until}"


def _day(case: Case, party: str) -> date:
    """Return the day on which a party's ledger was begun."""
    try:
        return date.fromisoformat(str(case.ledger_index.first[party]["time"])[:10])
    except ValueError:
        fail("captured", f"the ledger of {party} says no day on which it was begun")


CAPTURED = Check("captured", ("files", "plan", "roster", "chain", "tree"), captured)
