"""The budget store under two runs at once, full disks and hostile names."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from protocols.errors import BudgetExceeded, LedgerError
from protocols.policy.budget import budget_origin
from secure_fgl.errors import UsageError
from secure_fgl.store import budgets
from secure_fgl.store.budgets import BudgetStore, default_folder
from tests.secure_fgl.budget_tools import (
    CAP,
    CURVE,
    DATA,
    DELTA,
    NOTHING,
    SITE,
    file_of,
    reserve,
)


def _race(path: str, gate: str, results: multiprocessing.Queue[str]) -> None:
    while not Path(gate).exists():
        pass
    try:
        reserve(BudgetStore(path), f"run-{os.getpid()}")
        results.put("reserved")
    except BudgetExceeded:
        results.put("exceeded")
    except BaseException as error:
        results.put(repr(error))


def test_o20_runs_at_the_same_time_cannot_take_the_last_budget_twice(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    gate, path = tmp_path / "gate", tmp_path / "budgets"
    runs = [context.Process(target=_race, args=(str(path), str(gate), results)) for _ in range(6)]
    for run in runs:
        run.start()
    gate.touch()
    found = sorted(results.get(timeout=60) for _ in runs)
    for run in runs:
        run.join(timeout=60)
    assert found == ["exceeded"] * 4 + ["reserved"] * 2
    assert BudgetStore(path).spent(SITE, DATA, DELTA).entries == 2


def test_o20_a_full_disk_reserves_nothing(
    store: BudgetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(store)
    before, real = file_of(store).read_bytes(), os.write
    calls = iter(range(10))

    def full(file: int, data: bytes) -> int:
        if next(calls):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, bytes(data)[:10])  # a part of the line still fits

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(LedgerError):
            reserve(store)
    assert file_of(store).read_bytes() == before
    assert reserve(store).entries == 2  # with space again, the store is whole


def test_o20_a_reservation_that_cannot_be_made_durable_is_none(
    store: BudgetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fails(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):  # folders are synchronised, too
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(LedgerError):
            reserve(store)
    assert store.spent(SITE, DATA, DELTA).entries == 0


def test_o20_a_reservation_stands_if_what_comes_after_it_fails(
    store: BudgetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(budgets, "_remember", fails)
        with pytest.raises(LedgerError):
            reserve(store)
    assert store.spent(SITE, DATA, DELTA).entries == 1  # spent, though the run may not start


def test_names_never_become_paths(store: BudgetStore, tmp_path: Path) -> None:
    pairs = [("../../up", "x"), ("..", "../up/x"), ("/etc", "a/b"), ("/etc/a", "b"), ("é", "💧")]
    pairs += [("ab", "c"), ("a", "bc")]
    for site, data in pairs:
        store.reserve(site, data, "r", CURVE, NOTHING, CAP)
    files = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert all(name.startswith("budgets/") and name.count("/") == 1 for name in files)
    assert len(list(store.path.glob("*.jsonl"))) == len(pairs)
    assert len({budget_origin(*pair) for pair in pairs}) == len(pairs)
    for bad in ("", "line\nbreak", "x" * 300):
        for site, data in ((bad, "x"), ("x", bad)):
            with pytest.raises(UsageError):
                store.reserve(site, data, "r", CURVE, NOTHING, CAP)


def test_files_are_the_owner_s_alone_and_links_are_not_followed(
    store: BudgetStore, tmp_path: Path
) -> None:
    reserve(store)
    for path in store.path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    moved = tmp_path / "moved"
    file_of(store).rename(moved)
    (store.path / budgets._file_name(SITE, DATA)).with_suffix(".jsonl").symlink_to(moved)
    for use in (lambda: reserve(store), lambda: store.spent(SITE, DATA, DELTA)):
        with pytest.raises(LedgerError):
            use()


def test_the_default_folder_lies_in_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "named"))
    assert BudgetStore().path == default_folder() == tmp_path / "named"
    monkeypatch.delenv("SECURE_FGL_BUDGETS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "secure-fgl" / "budgets"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "state" / "secure-fgl" / "budgets"
