"""Law: after a loss of power a run goes on to the identical result, or is refused (O5, O6).

Simulated on real files: a process is killed, and files are put back to what they were when the
device was last told to write them. Ledgers are flushed before anything leaves, so they stay.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from protocols.evidence.ledger import read_lines
from secure_fgl.store.finished_run import Run
from secure_fgl.store.state_store import KeptStateStore, StateStores
from tests.laws.killing import Ended, play
from tests.laws.runs import config

SAME = ("model_sha256", "metrics", "lost_rounds", "rounds", "form")
REFUSED = ("LedgerError", "UsageError")
AT = 46  # of about 50 messages: secrets were used up and totals opened, and not all is flushed


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return play(config("fed_avg", "masks"), tmp_path_factory.mktemp("expected") / "run")


def _shadowing(shadow: Path, *, alone: bool) -> Callable[[], None]:
    """Return what keeps, at each flush of a number outside, that file and its party's folder.

    Args:
        shadow: where.
        alone: each flush that is asked for is made, as where a party is alone in its process.
    """

    def arrange() -> None:
        fdatasync, flushed = os.fdatasync, []
        overwrite = KeptStateStore._overwrite

        def noted(file: int) -> None:
            fdatasync(file)
            key = Path(os.readlink(f"/proc/self/fd/{file}"))
            (shadow / "keys").mkdir(parents=True, exist_ok=True)
            shutil.copy(key, shadow / "keys" / key.name)
            flushed.append(key)

        def overwritten(self: KeptStateStore, at: int, data: bytes, *, flush: bool) -> None:
            flushed.clear()
            overwrite(self, at, data, flush=flush)
            if flushed:  # the state as it is then: the device has written all of it, or nothing
                place = shadow / self._name
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(self._folder.path / self._name, place)

        patch.object(os, "fdatasync", noted).start()
        patch.object(KeptStateStore, "_overwrite", overwritten).start()
        if alone:
            patch.object(StateStores, "_flush_now", lambda self: True).start()

    return arrange


def _put_back(shadow: Path, out: Path, keys: Path, lost: str) -> int:
    """Put the lost files back, and return how many of them differ from what was there."""
    (folder,) = {file.parent for file in keys.glob("*/aggregator.key")}
    changed = 0
    if "numbers" in lost:
        for file in (shadow / "keys").iterdir():
            changed += file.read_bytes() != (folder / file.name).read_bytes()
            shutil.copy(file, folder / file.name)
    if "states" in lost:
        for place in (shadow / "private").iterdir():
            there = out / "private" / place.name
            before = {f.name: f.read_bytes() for f in there.iterdir()}
            changed += before != {f.name: f.read_bytes() for f in place.iterdir()}
            shutil.rmtree(there)
            shutil.copytree(place, there)
    return changed


def _opened_once(out: Path) -> None:
    for file in sorted((out / "ledger").glob("*.jsonl")):
        seen = set()
        for entry, _ in read_lines(file.read_bytes()):
            if entry["kind"] not in ("open", "release"):
                continue
            place = (entry["kind"], entry["exchange"], entry.get("item"), entry.get("recipient"))
            assert place not in seen, (file.stem, place)
            seen.add(place)


@pytest.mark.parametrize(
    ("lost", "alone", "ends"),
    [
        ("", True, "goes on"),
        ("", False, "goes on"),
        ("numbers, states", True, "goes on"),  # nothing is: whatever leaves is flushed before
        ("numbers", False, "either"),
        ("states", False, "refused"),  # by what its ledger says
        ("numbers, states", False, "either"),
    ],
)
def test_o5_after_a_loss_of_power_it_ends_the_same_or_is_refused(
    lost: str,
    alone: bool,
    ends: str,
    expected: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, out, shadow = tmp_path / "keys", tmp_path / "run", tmp_path / "shadow"
    monkeypatch.setenv("SECURE_FGL_STATE", str(keys))
    chosen = config("fed_avg", "masks")
    first = play(chosen, out, at=AT, after=True, sabotage=_shadowing(shadow, alone=alone))
    assert first.killed, first.error
    assert bool(_put_back(shadow, out, keys, lost)) == (bool(lost) and not alone)
    ledgers = {f.name: f.read_bytes() for f in (out / "ledger").iterdir()}
    ended = play(chosen, out, resume=True)
    _opened_once(out)
    if ended.result is None:
        assert ends != "goes on" and ended.error.startswith(REFUSED), ended.error
        now = {f.name: f.read_bytes() for f in (out / "ledger").iterdir()}
        assert all(now[name].startswith(data) for name, data in ledgers.items())
        return
    assert ends != "refused", "a state from before what its ledger says went on"
    assert expected.result is not None
    assert {name: ended.result[name] for name in SAME} == {n: expected.result[n] for n in SAME}
    assert Run(out).verify().verdict == "self-consistent only"
