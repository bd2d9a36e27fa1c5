"""Law: a run whose clients fall into clusters goes on after a kill to the identical result (O5).

No list of clusters is kept: what a run that is taken up knows of them it knows from the replies
that it plays back, from signed cuts, and from what each party kept of the clusters it was told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from protocols.clusters import Told
from protocols.disclosures._evaluated.parties import CutSigning
from protocols.evidence.ledger import Entry, read_lines
from protocols.sessions.clusters import ClusterHistory
from protocols.wire.envelope import Envelope
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from tests.laws.killing import Ended, KillingTransport, Sabotage, die, play

SAME = ("model_sha256", "metrics", "lost_rounds", "rounds", "form")
EAGER = {"epsilon1": 1e3, "epsilon2": 1e-6, "first_split": 0}


def chosen(policy: str = "masks") -> Config:
    """Eight clients, who are cut in two after the first of two rounds."""
    document = subject.document("gcfl", policy, rounds=2)
    document["algorithm"]["options"] = {"gcfl": EAGER}
    document["data"] = {**subject.BANKS, "partition": {"name": "iid_nodes", "clients": 8}}
    return Config.parse(document)


class Listing(KillingTransport):
    """Writes down what each message carries, in order."""

    file = Path()

    def exchange(self, deliveries: Any) -> Any:
        with self.file.open("a", encoding="utf-8") as lines:
            for delivery in deliveries:
                header = Envelope.decode(delivery.data).header
                lines.write(json.dumps([header.item, header.recipient, header.exchange]) + "\n")
        return super().exchange(deliveries)


@dataclass(frozen=True)
class Whole:
    """The run that was not killed: how it ended, its folder, what each message carried."""

    ended: Ended
    out: Path
    items: tuple[tuple[str, str, int], ...]

    def of(self, item: str, exchange: int = 0) -> list[int]:
        """Return the numbers of the messages that carry an item, in one exchange or in any."""
        found = [
            number
            for number, (name, _, where) in enumerate(self.items, 1)
            if name == item and exchange in (0, where)
        ]
        assert found, f"no {item} was sent in exchange {exchange}"
        return found


@pytest.fixture(autouse=True)
def _keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    Listing.file = folder / "items"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECURE_FGL_STATE", str(folder / "keys"))
        ended = play(chosen(), folder / "run", connect=Listing)
    assert ended.result is not None, ended.error
    lines = Listing.file.read_text("utf-8").splitlines()
    return Whole(ended, folder / "run", tuple(tuple(json.loads(line)) for line in lines))


def entries(out: Path, kind: str) -> list[Entry]:
    """Return what all ledgers of a run say of one kind, less what every run draws anew."""
    return [
        {name: entry[name] for name in ("party", "exchange", "round", "cluster")}
        | {"side": entry.get("side")}
        for file in sorted((out / "ledger").glob("*.jsonl"))
        for entry, _ in read_lines(file.read_bytes())
        if entry["kind"] == kind
    ]


def ends_alike(ended: Ended, whole: Whole, out: Path) -> None:
    """Hold a run that was taken up to the one that was not killed."""
    assert ended.result is not None, ended.error
    assert whole.ended.result is not None
    for name in SAME:
        assert ended.result[name] == whole.ended.result[name], name
    for kind in ("cut", "cluster"):
        assert entries(out, kind) == entries(whole.out, kind)
    verification = Run(out).verify()
    assert verification.verdict == "self-consistent only", verification.steps
    (opened,) = (step.detail for step in verification.steps if step.name == "opened")
    assert "4, 4, by signed cuts" in opened
    assert not (out / "private").exists()


def taken_up(
    out: Path, at: int = 0, *, after: bool = False, sabotage: Sabotage | None = None
) -> Ended:
    """Kill a run at a message or by a sabotage, and go on with it."""
    first = play(chosen(), out, at=at, after=after, sabotage=sabotage)
    assert first.killed, first.error or "the run finished before it could be killed"
    return play(chosen(), out, resume=True)


def test_o5_a_run_killed_where_its_cut_was_signed_and_not_heard_of(
    whole: Whole, tmp_path: Path
) -> None:
    """The authority holds the cut; the aggregator does not, asks again and gets the same one."""
    with np.load(whole.out / "checkpoints/final.npz") as found:
        assert sorted(found.files) == ["cluster_1_weights", "cluster_2_weights"]
    assert len(entries(whole.out, "cut")) == 1
    assert len(entries(whole.out, "cluster")) == 8
    (at,) = whole.of("compare.open.SIMILARITY")
    ends_alike(taken_up(tmp_path / "run", at, after=True), whole, tmp_path / "run")


PLACES = {
    "before the cosines are asked": ("compare.down", 2, 0, False),
    "while the cosines arrive": ("compare.down", 2, 3, True),
    "before the cosines are opened": ("compare.open.SIMILARITY", 2, 0, False),
    "after the split, before a cluster is asked": ("train.down", 3, 0, False),
    "while clients of the first cluster are told it": ("train.down", 3, 1, True),
    "while the first cluster is opened": ("train.all_here", 3, 4, True),
    "between the clusters": ("train.down", 4, 0, False),
    "while clients of the second cluster are told it": ("train.down", 4, 1, True),
    "between the clusters' last Asks": ("evaluate.down", 6, 0, False),
    "after the last Ask": ("evaluate.all_here", 6, -1, True),
}


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_o5_a_run_killed_around_its_split(place: str, whole: Whole, tmp_path: Path) -> None:
    item, exchange, number, after = PLACES[place]
    at = whole.of(item, exchange)[number]
    ends_alike(taken_up(tmp_path / "run", at, after=after), whole, tmp_path / "run")


@pytest.mark.long
def test_o5_an_authority_killed_between_recording_a_cut_and_signing_it(
    whole: Whole, tmp_path: Path
) -> None:
    def sabotage() -> None:
        patch.object(Told, "text", lambda *_: die()).start()  # it is the first to call it

    ends_alike(taken_up(tmp_path / "run", sabotage=sabotage), whole, tmp_path / "run")


@pytest.mark.long
def test_o5_a_run_with_clusters_that_is_killed_again_and_again(
    whole: Whole, tmp_path: Path
) -> None:
    out, kills = tmp_path / "run", 0
    ended = play(chosen(), out, at=14, after=True)
    while ended.killed and kills < 50:
        kills += 1
        ended = play(chosen(), out, at=14, after=True, resume=True)
    assert kills > 3
    ends_alike(ended, whole, out)


def test_o5_parties_that_forget_their_clusters_do_not_end_alike(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the law rests on what each party kept of the clusters that it was told."""
    monkeypatch.setattr(ClusterHistory, "apart", ClusterHistory.lasting)
    ended = taken_up(tmp_path / "run", whole.of("train.down", 4)[1], after=True)
    assert ended.result is not None, ended.error
    assert entries(tmp_path / "run", "cluster") != entries(whole.out, "cluster")


@pytest.mark.long
@pytest.mark.parametrize("forgets", [False, True])
def test_o5_an_authority_that_opens_totals_knows_its_cuts_again(
    forgets: bool, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before it opens the second cluster's total; one that forgot its cuts refuses."""
    if forgets:
        monkeypatch.setattr(CutSigning, "apart", CutSigning.lasting)
    asked, opened = CutSigning.asked, set[tuple[str, ...]]()

    def deadly(self: CutSigning, members: Sequence[str]) -> None:
        opened.add(tuple(members))
        if len(opened) == 3:  # all clients, a cluster, the other one
            die()
        asked(self, members)

    def sabotage() -> None:
        patch.object(CutSigning, "asked", deadly).start()

    out = tmp_path / "run"
    first = play(chosen("he"), out, sabotage=sabotage)
    assert first.killed, first.error
    ended = play(chosen("he"), out, resume=True)
    if forgets:
        assert "key-authority refused to answer" in ended.error
        return
    assert ended.result is not None, ended.error
    assert whole.ended.result is not None
    assert ended.result["model_sha256"] == whole.ended.result["model_sha256"]
