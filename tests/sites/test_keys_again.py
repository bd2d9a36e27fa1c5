"""An epoch's public keys that do not reach two of five sites, over both relays."""

from __future__ import annotations

from pathlib import Path

import pytest

from nvflare.apis.shareable import ReservedHeaderKey, Shareable

from protocols.errors import RemoteProtocolError
from protocols.evidence.ledger import read_lines
from protocols.keys.setup import Setup
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.broker import channel
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.pushed import awaited, carrier
from tests.sites.stage import Parties, assemble, banks, gather, side
from tests.sites.test_late_requests import Network, played, refusals, seats_of

ROUNDS, MISSED = 3, ("client-1", "client-3")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parties:
    """Return five clients and an authority; an exchange takes two seconds at most."""
    parties = assemble(banks(rounds=ROUNDS, policy="he"), tmp_path / "parties")
    place = parties.folders[AGGREGATOR_NAME].absolute() / channel.SOCKET
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(place))
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    monkeypatch.setattr(carrier, "_LOST_SECONDS", 0.2)
    monkeypatch.setattr(carrier, "_FIRST_HOLD_SECONDS", 60.0)  # every answer is the reply
    monkeypatch.setattr(awaited, "_GRACE_SECONDS", 60.0)
    return parties


def items(asked: Shareable) -> list[str]:
    """Return of which items the envelopes of a request are."""
    found = wire.unpack(asked) if "envelopes" in asked else []
    if asked.get_header(ReservedHeaderKey.TASK_NAME) != TASK:
        return []
    return [Envelope.decode(data).header.item for data in found]


def losing(network: Network, site: str, asked: Shareable) -> Shareable | None:
    """Lose the first handing out of public keys on the way to two sites."""
    if items(asked) == ["key.offer"] and site in MISSED:
        return None
    return network.deliver(site, asked)


def taken(parties: Parties, site: str) -> list[str]:
    """Return which items of the aggregator's and the authority's a site took, in order."""
    folder = parties.folders[site]
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
    network = Network(seats_of(stage), losing)
    played(stage, network, deadline=2.0)
    lost = [1] if mended else [1, 2, 3]
    assert stage.result()["lost_rounds"] == lost and refusals(stage) == []
    if not mended:
        return
    for site in MISSED:
        first = taken(stage, site)
        assert first.count("key.offer") == 1
        assert first.index("key.offer") < first.index("train.down")
    verdict = Run(gather(stage, tmp_path / "gathered")).verify().verdict
    assert verdict == "self-consistent only"


def deaf(network: Network, site: str, asked: Shareable) -> Shareable | None:
    """Lose what two sites are asked for pair secrets, and all that comes after it."""
    if site in MISSED and any(item.startswith("pair.") for item in items(asked)):
        return None
    return network.deliver(site, asked)


def test_o6_secrets_that_too_few_agreed_on_stop_the_run_and_it_goes_on(
    stage: Parties, tmp_path: Path
) -> None:
    """Two of five are away for longer than a deadline; four are needed. The next job finds them."""
    network = Network(seats_of(stage), deaf)
    with pytest.raises(RemoteProtocolError, match="did not agree"):
        played(stage, network, deadline=2.0)
    assert not (side(stage.folders[AGGREGATOR_NAME]) / "result.json").exists()
    network.does = lambda network, site, asked: network.deliver(site, asked)
    played(stage, network, deadline=2.0)
    assert stage.result()["lost_rounds"] == [] and refusals(stage) == []
    verdict = Run(gather(stage, tmp_path / "gathered")).verify().verdict
    assert verdict == "self-consistent only"
