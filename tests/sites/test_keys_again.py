"""An epoch's public keys that do not reach two of five sites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from protocols.errors import RemoteProtocolError
from protocols.evidence.ledger import read_lines
from protocols.keys.setup import Setup
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import Broker
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply
from tests.sites.one_process import Desk, played
from tests.sites.stage import NOWHERE, Parties, assemble, banks, gather, side
from tests.sites.test_late_requests import refusals

ROUNDS, MISSED = 3, ("client-1", "client-3")


@pytest.fixture
def stage(tmp_path: Path) -> Parties:
    """Return five clients and an authority; an exchange takes one second at most."""
    config = banks(rounds=ROUNDS, policy="he")
    return assemble(config, tmp_path / "parties", broker=Broker(NOWHERE.urls, "", deadline=1))


def items(task: str, sent: Sequence[bytes]) -> list[str]:
    """Return of which items the envelopes of a request are."""
    return [Envelope.decode(data).header.item for data in sent] if task == TASK else []


def losing(desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply | None:
    """Lose the first handing out of public keys on the way to two sites."""
    if items(task, sent) == ["key.offer"] and party in MISSED:
        return SiteReply(Code.AWAY)
    return desk.deliver(party, task, sent)


def taken(folder: Path) -> list[str]:
    """Return which items of the aggregator's and the authority's a site took, in order."""
    ledger = side(folder) / "ledger" / f"{folder.name}.jsonl"
    entries = [entry for entry, _ in read_lines(ledger.read_bytes())]
    return [entry["item"] for entry in entries if entry["kind"] == "receipt"]


@pytest.mark.parametrize("mended", [True, False])
def test_o9_sites_that_missed_the_public_keys_get_them_with_the_next_ask(
    mended: bool, stage: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it (the control) every round of the epoch is lost, though all five are there."""
    if not mended:
        monkeypatch.setattr(Setup, "lacks", lambda setup, name: False)
    played(stage, losing)
    lost = [1] if mended else [1, 2, 3]
    assert stage.result()["lost_rounds"] == lost and refusals(stage) == []
    if not mended:
        return
    for name in MISSED:
        first = taken(stage.folders[name])
        assert first.count("key.offer") == 1
        assert first.index("key.offer") < first.index("train.down")
    verdict = Run(gather(stage, tmp_path / "gathered")).verify().verdict
    assert verdict == "self-consistent only"


def deaf(desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply | None:
    """Lose what two sites are asked for pair secrets."""
    if party in MISSED and any(item.startswith("pair.") for item in items(task, sent)):
        return SiteReply(Code.AWAY)
    return desk.deliver(party, task, sent)


def test_o6_secrets_that_too_few_agreed_on_stop_the_run_and_it_goes_on(
    stage: Parties, tmp_path: Path
) -> None:
    """Two of five are away for longer than a deadline; four are needed. A new start finds them."""
    with pytest.raises(RemoteProtocolError, match="did not agree"):
        played(stage, deaf)
    assert not (side(stage.folders[AGGREGATOR_NAME]) / "result.json").exists()
    played(stage)
    assert stage.result()["lost_rounds"] == [] and refusals(stage) == []
    verdict = Run(gather(stage, tmp_path / "gathered")).verify().verdict
    assert verdict == "self-consistent only"
