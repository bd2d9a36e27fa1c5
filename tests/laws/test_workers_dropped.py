"""Law: from the fork on, the process that forked holds no client's session or secrets."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from protocols.roles.client import ClientSession
from secure_fgl.run.workers import Workers
from tests.laws.test_workers import ran, with_workers


def test_o26_the_parent_drops_its_copies_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, here, left = Workers._start, list[weakref.ref[Any]](), list[tuple[int, int]]()

    def started(self: Workers) -> None:
        here.extend(map(weakref.ref, self._parties.others.values()))
        before = sum(isinstance(one(), ClientSession) for one in here)
        start(self)
        gc.collect()
        left.append((before, sum(isinstance(one(), ClientSession) for one in here)))

    monkeypatch.setattr(Workers, "_start", started)
    ran(with_workers("fed_avg", "masks", 2), tmp_path / "run")
    ((before, after),) = left
    assert before > 2  # the control: they were here until then
    assert after == 0
