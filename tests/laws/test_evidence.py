"""One ledger entry per envelope at each end, committed to its bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from audits.report.build import build_report
from protocols.wire.envelope import Envelope, commitment
from protocols.wire.roles import Role
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking.laws import used
from tests.laws.conftest import Recorded
from tests.laws.runs import POLICIES, PROTECTED, Recording, config, pairs, quick, record

NAMES = algorithm_names()
COMPUTED = ("SIMILARITY", "WEIGHTED_SUM")  # on ciphertexts


def recipients(recording: Recording, envelope: Envelope) -> list[str]:
    """Return who must have recorded this envelope's receipt."""
    if envelope.header.recipient != "roster":
        return [envelope.header.recipient]
    roster = recording.parties.roster
    keys = envelope.header.item == "key.offer"  # to all that compute with them
    witnesses = roster.names(Role.WITNESS) if keys else ()
    return sorted({"aggregator", *roster.clients, *witnesses} - {envelope.header.sender})


@pytest.mark.parametrize(("name", "policy"), quick(pairs(POLICIES)))
def test_one_entry_at_the_sender_and_one_at_each_receiver(
    name: str, policy: str, recorded: Recorded
) -> None:
    recording = recorded(name, policy)
    moved = [e for e in recording.entries() if e["kind"] in ("release", "receipt")]
    left = {(e["kind"], e["party"], e["commitment"]) for e in moved}
    assert len(left) == len(moved)
    for data, envelope in recording.envelopes().items():
        promise, header = commitment(envelope), envelope.header
        for kind, parties in (
            ("release", [header.sender]),
            ("receipt", recipients(recording, envelope)),
        ):
            for party in parties:
                assert (kind, party, promise) in left, (kind, header.item)
                left.remove((kind, party, promise))
        (entry,) = (e for e in moved if e["kind"] == "release" and e["commitment"] == promise)
        assert (entry["bytes"], entry["item"]) == (len(data), header.item)
        assert entry["recipient"] == header.recipient and entry["round"] == header.round
    assert left == set(), "an entry without an envelope"


@pytest.mark.parametrize("name", NAMES)
def test_a_commitment_binds_every_byte(name: str, recorded: Recorded) -> None:
    for data, envelope in list(recorded(name, "he").envelopes().items())[:8]:
        promise = commitment(envelope)
        header = envelope.header
        for other in (
            Envelope(header, bytes(64), envelope.body),
            Envelope(replace(header, nonce="0" * 32), *rest(envelope)),
            Envelope(replace(header, body="0" * 64), *rest(envelope)),
        ):
            assert commitment(other) != promise
        changed = bytearray(data)
        changed[-1] ^= 1  # a byte of the body: no longer the body of this header
        if envelope.body:
            with pytest.raises(Exception, match="digest"):
                Envelope.decode(bytes(changed))


def rest(envelope: Envelope) -> tuple[bytes, bytes]:
    return envelope.signature, envelope.body


@pytest.mark.parametrize("name", NAMES)
def test_what_is_unsafe_is_called_unsafe_everywhere(name: str, recorded: Recorded) -> None:
    clear, protected = recorded(name, "unsafe_plaintext"), recorded(name, "he")
    uploads = [
        i for i in used(clear.plan) if i.disclosure in ("SUM", "MIXED", "NEIGHBOUR_SUM", *COMPUTED)
    ]
    assert uploads and all(item.unsafe for item in uploads)
    assert any("UNSAFE" in warning for warning in clear.plan.warnings)
    flagged = [e for e in clear.entries() if e["kind"] == "release" and e["unsafe"]]
    assert {e["item"] for e in flagged} == {item.id for item in uploads}
    assert "UNSAFE" in clear.files()["report/report.md"].decode().upper()
    assert not [e for e in protected.entries() if e["kind"] == "release" and e["unsafe"]]
    assert not any(item.unsafe for item in protected.plan.items)


# --- drop-outs and noise ------------------------------------------------------------------------

MOMENTS = {
    "": "before the request reached it",
    ":after_upload": "before the survivor list reached it",
    ":before_shares": "before its shares arrived",
}


@pytest.mark.parametrize("moment", sorted(MOMENTS))
@pytest.mark.parametrize("policy", PROTECTED)
def test_o5_the_evidence_names_who_vanished_and_holds(
    policy: str, moment: str, recorded: Recorded
) -> None:
    recording = recorded("fed_avg", policy, rounds=3, drop=f"2@2{moment}")
    assert recording.run is not None
    verified = recording.run.verify()
    assert verified.ok, verified.failed
    details = {step.name: step.detail for step in verified.steps}
    assert details["receipts"].endswith("with clients that vanished: client-2 in round 2")
    assert "totals, each opened once and over the uploads that had arrived" in details["opened"]
    (gone,) = build_report(recording.run.view()).dropouts.vanished
    assert (gone.client, gone.round, gone.moment) == ("client-2", 2, MOMENTS[moment])
    opens = [e for e in recording.entries() if e["kind"] == "open"]
    assert {e["survivors"] for e in opens if e["round"] == 2} == {5 if moment else 4}
    assert {e["survivors"] for e in opens if e["round"] != 2} == {5}


def test_o20_a_run_with_noise_leaves_evidence_and_a_number(tmp_path: Path) -> None:
    chosen = config("fed_avg", "calibrated", store=tmp_path / "budgets")
    recording = record(chosen, tmp_path / "run")
    assert recording.run is not None
    verified = recording.run.verify()
    assert verified.ok, verified.failed
    details = {step.name: step.detail for step in verified.steps}
    assert details["budget"] == "5 clients reserved their budget before any noise was drawn"
    assert "no score left the clients" in details["result"]
    (account,) = build_report(recording.run.view()).accounting
    assert account.borne_out and account.not_covered == ()
    assert float(account.recorded) <= float(account.target)
    assert recording.result["metrics"]["test_accuracy"] is None
