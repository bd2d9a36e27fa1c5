"""A run whose uploads are not masked as planned does not finish, or does not pass its audit.

In one process `crypto.masks` is replaced: totals come out right all the same, as masks of nothing
come off as well as others. Every look at them is tried by itself, with the others taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crypto import masks
from protocols.disclosures.sum import disclosure as protect
from protocols.disclosures.sum import view
from protocols.errors import BadEnvelope, EvidenceError, LocalProtocolError, Refused
from secure_fgl.attack_inputs import captured_sent
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run

POLICIES = ["masks", "he", "ckks"]
Mask = Callable[..., None]
_real = masks._mask


def play(folder: Path, policy: str, hidden: int = 8, seed: int = 1) -> Run:
    document = {
        "algorithm": {"name": "fed_avg", "rounds": 1},
        "model": {"hidden": hidden},
        "data": {"name": "synthetic_banks", "partition": {"clients": 5}},
        "evaluation": {"references": []},
        "policy": policy,
        "seed": seed,
    }
    return Federation.from_config(Config.parse(document)).run(folder)


def zeros(total: Any, modulus: int, plus: Any, minus: Any) -> None:
    """No masks at all."""


def half(total: Any, modulus: int, plus: Any, minus: Any) -> None:
    """Masks on the first half only, as a wrong length would leave them."""
    _real(total[: total.size // 2], modulus, plus, minus)


def constants(total: Any, modulus: int, plus: Any, minus: Any) -> None:
    """One number of each key on every coordinate."""
    one = np.zeros(1, dtype=total.dtype)
    _real(one, modulus, plus, minus)
    wide = (total.astype(object) + int(one[0])) % modulus
    total[:] = wide.astype(total.dtype)


WEAK: list[Mask] = [zeros, half, constants]


def nobody_looks(patch: pytest.MonkeyPatch, *places: tuple[Any, str]) -> None:
    for place, name in places:
        patch.setattr(place, name, lambda *_: None)


SENDER = (protect, "check_mask")
UPLOAD, TOTAL = (view, "check_masked"), (view, "check_mask")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weak", WEAK)
def test_the_sender_lets_nothing_out_that_its_masks_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, weak: Mask
) -> None:
    monkeypatch.setattr(masks, "_mask", weak)
    with pytest.raises(Refused, match="refused to answer \\(internal\\)") as refused:
        play(tmp_path / "run", policy)
    assert isinstance(refused.value.__cause__, LocalProtocolError)
    assert "Masks that should be uniform are not" in str(refused.value.__cause__)
    assert not (tmp_path / "run" / "result.json").exists()
    uploads = [line for f in (tmp_path / "run").rglob("*.jsonl") for line in f.open()]
    assert not any('"kind":"release"' in u and '"train.up.SUM"' in u for u in uploads)


@pytest.mark.parametrize(("hidden", "seed"), [(2, 1), (8, 2), (32, 3)])
@pytest.mark.parametrize("weak", WEAK)
def test_the_aggregator_takes_no_upload_that_stands_bare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: int, seed: int, weak: Mask
) -> None:
    monkeypatch.setattr(masks, "_mask", weak)
    nobody_looks(monkeypatch, SENDER, TOTAL)
    with pytest.raises(BadEnvelope, match="An upload that should be masked is not"):
        play(tmp_path / "run", "masks", hidden, seed)
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weak", WEAK)
def test_the_aggregator_takes_no_masks_off_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, weak: Mask
) -> None:
    monkeypatch.setattr(masks, "_mask", weak)
    nobody_looks(monkeypatch, SENDER, UPLOAD)
    with pytest.raises(LocalProtocolError, match="Masks that should be uniform are not"):
        play(tmp_path / "run", policy)
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("policy", POLICIES)
def test_an_audit_of_what_was_captured_finds_what_nobody_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """What was possible before: the run finishes, and its record verifies."""
    with monkeypatch.context() as patch:
        patch.setattr(masks, "_mask", zeros)
        nobody_looks(patch, SENDER, UPLOAD, TOTAL)
        run = play(tmp_path / "run", policy)
    assert run.verify().failed is None
    with pytest.raises(EvidenceError, match="what client-1 sent was not masked") as found:
        material(run)
    assert found.value.step == "captured"
    assert material(play(tmp_path / "masked", policy)).exposures  # control: the same, masked


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_an_audit_finds_single_coordinates_that_were_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """What the vector alone does not tell follows from what the client said, computed again."""

    def nearly(total: Any, modulus: int, plus: Any, minus: Any) -> None:
        bare = total[:12].copy()
        _real(total, modulus, plus, minus)
        total[:12] = bare

    with monkeypatch.context() as patch:
        patch.setattr(masks, "_mask", nearly)
        nobody_looks(patch, SENDER, UPLOAD, TOTAL)
        run = play(tmp_path / "run", policy)
    with monkeypatch.context() as patch:
        patch.setattr(captured_sent, "strange_masked", lambda *_: "")
        with pytest.raises(EvidenceError, match="coordinates are as they were"):
            material(run)


def test_what_is_kept_of_a_masked_vector_is_what_the_ledger_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protocols.sessions.store import recording

    real = recording.Recorder.sent

    def other(self: Any, *given: Any) -> None:
        inside = {item: np.roll(words, 1) for item, words in given[-1].items()}
        real(self, *given[:-1], inside)

    def nothing(self: Any, *given: Any) -> None:
        real(self, *given[:-1], {})

    for number, (keep, text) in enumerate(
        [(other, "is not what its ledger says left"), (nothing, "lacks a masked vector")]
    ):
        with monkeypatch.context() as patch:
            patch.setattr(recording.Recorder, "sent", keep)
            run = play(tmp_path / f"run{number}", "masks")
        with pytest.raises(EvidenceError, match=text):
            material(run)
