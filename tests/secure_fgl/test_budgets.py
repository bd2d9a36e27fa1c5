"""The budget store (O20): it only grows, never refunds, and refuses to be put back."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crypto.canonical import canonical
from crypto.signatures import SigningKey
from protocols.accounting import ORDERS, WRAP, net_epsilon
from protocols.budget import Reserve
from protocols.errors import BudgetExceeded, EvidenceError, LedgerError, NotInPlan, PolicyError
from protocols.policy import Budget
from secure_fgl import _budget_lines, budgets
from secure_fgl.budgets import Anchor, BudgetStore, Reservation, default_folder, origin_of
from secure_fgl.errors import UsageError

SITE, DATA = "bank-1", "accounts"
RHO = 0.5  # zCDP of one run: its curve is α ρ
CURVE = [repr(RHO * order) for order in ORDERS]
NOTHING = "0"
DELTA = 1e-5


def together(runs: int) -> float:
    """Return epsilon of so many runs, from the curve itself."""
    left = DELTA - (runs - 1) * WRAP
    return net_epsilon(np.asarray(ORDERS) * RHO * runs, left, tails=0.0)[0]


CAP = Budget(epsilon=together(2) * 1.001, delta=DELTA)  # covers two runs, not three


def reserve(store: BudgetStore, run: str = "r", data: str = DATA, cap: Budget = CAP) -> Reservation:
    return store.reserve(SITE, data, run, CURVE, NOTHING, cap)


@pytest.fixture
def store(tmp_path: Path) -> BudgetStore:
    return BudgetStore(tmp_path / "budgets")


def file_of(store: BudgetStore, ending: str = "jsonl") -> Path:
    (found,) = store.path.glob(f"*.{ending}")
    return found


def refused(store: BudgetStore) -> EvidenceError:
    with pytest.raises(EvidenceError) as raised:
        reserve(store)
    assert raised.value.step == "budget"
    return raised.value


# --- composing ----------------------------------------------------------------------------------


def test_o20_reservations_compose_and_the_cap_holds(store: BudgetStore) -> None:
    first, second = reserve(store), reserve(store)
    assert (first.entries, second.entries) == (1, 2)
    for found, runs in ((first, 1), (second, 2)):
        assert together(runs) <= float(found.epsilon) <= together(runs) * 1.00001  # rounded up
        assert found.delta == repr(DELTA)
    before = file_of(store).read_bytes()
    with pytest.raises(BudgetExceeded) as raised:
        reserve(store)
    assert isinstance(raised.value, PolicyError)
    assert "accounts" in str(raised.value) and "before: 2;" in raised.value.why
    assert file_of(store).read_bytes() == before  # a refused run has reserved nothing
    assert store.spent(SITE, DATA, DELTA) == second


def test_o20_one_run_too_large_is_refused_at_once(store: BudgetStore) -> None:
    with pytest.raises(BudgetExceeded):
        reserve(store, cap=Budget(epsilon=together(1) * 0.999, delta=DELTA))
    assert store.spent(SITE, DATA, DELTA).entries == 0
    assert reserve(store, cap=Budget(epsilon=together(1) * 1.001, delta=DELTA)).entries == 1


def test_o20_nothing_is_refunded_and_the_same_run_pays_again(store: BudgetStore) -> None:
    assert [reserve(store, "run").entries for _ in range(2)] == [1, 2]
    with pytest.raises(BudgetExceeded):
        reserve(BudgetStore(store.path), "run")  # another object, the same file
    assert not [name for name in dir(store) if "refund" in name or "remove" in name]


def test_o20_every_data_set_and_site_has_its_own_budget(store: BudgetStore) -> None:
    reserve(store)
    reserve(store)
    assert reserve(store, data="loans").entries == 1
    assert store.reserve("bank-2", DATA, "r", CURVE, NOTHING, CAP).entries == 1
    assert len(list(store.path.glob("*.jsonl"))) == 3


def test_o20_a_smaller_cap_of_a_later_policy_counts_what_went_before(store: BudgetStore) -> None:
    reserve(store)
    with pytest.raises(BudgetExceeded):
        reserve(store, cap=Budget(epsilon=together(1) * 1.2, delta=DELTA))


def test_o19_tails_of_all_runs_come_out_of_delta(store: BudgetStore) -> None:
    wide = Budget(epsilon=1000.0, delta=DELTA)
    part = DELTA * 1e-5
    curve = np.asarray(ORDERS) * RHO
    for runs in (1, 2):
        found = store.reserve(SITE, DATA, "r", CURVE, repr(part), wide)
        left = DELTA - (runs - 1) * WRAP
        exact = net_epsilon(curve * runs, left, tails=part * runs)[0]
        assert float(found.epsilon) == pytest.approx(exact, rel=1e-5)
        assert float(found.epsilon) > together(runs) * 1.00002
    with pytest.raises(BudgetExceeded):
        store.reserve(SITE, DATA, "r", CURVE, repr(DELTA), wide)  # e^ε times this is all of it


def test_o19_wrap_comes_out_of_delta_once_for_every_run(store: BudgetStore) -> None:
    cap = Budget(epsilon=1000.0, delta=2.5 * WRAP)
    flat = ["0"] * len(ORDERS)
    for _ in range(2):
        store.reserve(SITE, DATA, "r", flat, NOTHING, cap)
    with pytest.raises(BudgetExceeded):
        store.reserve(SITE, DATA, "r", flat, NOTHING, cap)


def test_o20_a_session_gets_a_door_to_its_own_site_only(store: BudgetStore) -> None:
    door: Reserve = store.door(SITE)
    curve = [float(text) for text in CURVE]
    facts = door(dataset=DATA, run="r", rdp=curve, cap=CAP)
    assert sorted(facts) == ["dataset", "delta", "entries", "epsilon", "head"]
    assert (facts["dataset"], facts["entries"], facts["delta"]) == (DATA, 1, repr(DELTA))
    assert facts["head"] == store.spent(SITE, DATA, DELTA).head
    door(dataset=DATA, run="r", rdp=curve, cap=CAP)
    with pytest.raises(BudgetExceeded):
        door(dataset=DATA, run="r", rdp=curve, cap=CAP)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e", "", "0x1", "1" * 65])
def test_a_reservation_holds_numbers_only(store: BudgetStore, text: str) -> None:
    for curve, delta in (([text, *CURVE[1:]], NOTHING), (CURVE, text)):
        with pytest.raises(UsageError):
            store.reserve(SITE, DATA, "r", curve, delta, CAP)
    with pytest.raises(UsageError):
        store.reserve(SITE, DATA, "r", CURVE[1:], NOTHING, CAP)
    assert store.spent(SITE, DATA, DELTA).entries == 0


def test_o20_a_site_reserves_for_its_own_data_only(store: BudgetStore) -> None:
    """A plan from somebody else may name other data, whose budget is untouched."""
    take = store.door(SITE, DATA)
    curve = [RHO * order for order in ORDERS]
    with pytest.raises(NotInPlan, match="another data set"):
        take(dataset="other", run="r", rdp=curve, cap=CAP)
    assert not list(store.path.glob("*.jsonl"))
    assert take(dataset=DATA, run="r", rdp=curve, cap=CAP)["entries"] == 1


# --- a step back --------------------------------------------------------------------------------


def cosigned(store: BudgetStore, key: SigningKey, signer: str = "bank-2") -> Anchor:
    return Anchor(store.checkpoint(SITE, DATA).sign(key, signer), signer, key.public)


Spoil = Callable[[Path, bytes], None]


def put_back(file: Path, old: bytes) -> None:
    file.write_bytes(old)


def cut_tail(file: Path, old: bytes) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def cut_lines(file: Path, old: bytes) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def edit(file: Path, old: bytes) -> None:
    file.write_bytes(file.read_bytes().replace(b'"run":"r"', b'"run":"s"', 1))


def lower(file: Path, old: bytes) -> None:
    """Spend less, with a chain that holds."""
    entries = [json.loads(line) for line in file.read_bytes().splitlines()]
    for entry in entries[1:]:
        entry["rdp"] = ["0"] * len(ORDERS)
    file.write_bytes(rechained(entries))


def empty(file: Path, old: bytes) -> None:
    file.write_bytes(b"")


def delete(file: Path, old: bytes) -> None:
    file.unlink()


def rechained(entries: list[dict[str, object]]) -> bytes:
    lines: list[bytes] = []
    for entry in entries:
        lines.append(canonical({**entry, "prev": _budget_lines._head(lines)}) + b"\n")
    return b"".join(lines)


STEPS_BACK = [put_back, cut_tail, cut_lines, edit, lower, empty, delete]


@pytest.mark.parametrize("spoil", STEPS_BACK)
def test_o20_a_store_that_was_put_back_cut_or_edited_is_refused(
    store: BudgetStore, spoil: Spoil
) -> None:
    reserve(store)
    old = file_of(store).read_bytes()
    reserve(store)
    spoil(file_of(store), old)
    refused(store)
    with pytest.raises(EvidenceError):
        store.spent(SITE, DATA, DELTA)


@pytest.mark.parametrize("spoil", STEPS_BACK)
def test_o20_a_whole_folder_that_was_put_back_is_refused_below_an_anchor(
    store: BudgetStore, spoil: Spoil
) -> None:
    key = SigningKey.generate()
    reserve(store)
    old = file_of(store).read_bytes()
    reserve(store)
    anchor = cosigned(store, key)
    BudgetStore.open(store.path, SITE, DATA, [anchor])  # as it stands, it is fine
    spoil(file_of(store), old)
    file_of(store, "floor").unlink()  # whoever edits one file can edit the other
    with pytest.raises(EvidenceError) as raised:
        BudgetStore.open(store.path, SITE, DATA, [anchor])
    assert raised.value.step == "budget"


@pytest.mark.parametrize("line", [0, 1, 2])
def test_o20_a_line_that_is_edited_or_gone_breaks_the_chain(store: BudgetStore, line: int) -> None:
    for _ in range(3):
        reserve(store, cap=Budget(epsilon=1e6, delta=DELTA))
    file_of(store, "floor").unlink()
    lines = file_of(store).read_bytes().splitlines(keepends=True)
    for spoilt in (
        [*lines[:line], *lines[line + 1 :]],
        [*lines[:line], lines[line].replace(b'"seq":', b'"seq":1'), *lines[line + 1 :]],
        [*lines[:line], lines[line].replace(b'"prev":"', b'"prev":"0'), *lines[line + 1 :]],
        [
            *lines[:line],
            lines[line].replace(b"bank-1", b"bank-2").replace(b'"r"', b'"s"'),
            *lines[line + 1 :],
        ],
        [*lines[: line + 1], *lines[line:]],
    ):
        file_of(store).write_bytes(b"".join(spoilt))
        refused(store)


def test_o20_the_control_without_an_anchor_a_rewritten_folder_passes(store: BudgetStore) -> None:
    reserve(store)
    reserve(store)
    lower(file_of(store), b"")
    file_of(store, "floor").unlink()
    assert reserve(store).entries == 3  # so only what others signed forbids it


def test_o20_anchors_bind_an_open_store(store: BudgetStore) -> None:
    key = SigningKey.generate()
    reserve(store)
    old = file_of(store).read_bytes()
    reserve(store)
    opened = BudgetStore.open(store.path, SITE, DATA, [cosigned(store, key)])
    file_of(store).write_bytes(old)
    file_of(store, "floor").unlink()
    assert "was put back" in refused(opened).what


def test_o20_the_highest_note_is_remembered(store: BudgetStore) -> None:
    key = SigningKey.generate()
    reserve(store)
    low = cosigned(store, key)
    reserve(store)
    high = cosigned(store, key)
    for anchor in (low, high, low):
        store.anchor(anchor, SITE, DATA)
    assert json.loads(file_of(store, "floor").read_bytes())["note"] == high.note
    reserve(store, cap=Budget(epsilon=1e6, delta=DELTA))
    kept = json.loads(file_of(store, "floor").read_bytes())
    assert (kept["note"], kept["size"]) == (high.note, 4)  # a header and three reservations


def test_o20_a_note_that_the_store_does_not_extend_is_refused(
    store: BudgetStore, tmp_path: Path
) -> None:
    key, other = SigningKey.generate(), BudgetStore(tmp_path / "elsewhere")
    reserve(store, "mine")
    reserve(other, "theirs")
    with pytest.raises(EvidenceError):
        store.anchor(cosigned(other, key), SITE, DATA)  # as long as this store, another content
    reserve(other, "theirs")
    with pytest.raises(EvidenceError):
        store.anchor(cosigned(other, key), SITE, DATA)  # later than this store


def test_o20_a_note_counts_only_with_its_signature_and_origin(store: BudgetStore) -> None:
    key = SigningKey.generate()
    reserve(store)
    good = cosigned(store, key)
    wrong_key = Anchor(good.note, good.signer, SigningKey.generate().public)
    edited = Anchor(good.note.replace("\n2\n", "\n0\n"), good.signer, key.public)
    assert edited.note != good.note
    for bad in (wrong_key, edited):
        with pytest.raises(EvidenceError):
            store.anchor(bad, SITE, DATA)
        with pytest.raises(EvidenceError):
            BudgetStore.open(store.path, SITE, DATA, [bad])
    with pytest.raises(EvidenceError):
        store.anchor(good, SITE, "loans")
    with pytest.raises(EvidenceError):
        BudgetStore.open(store.path, "bank-2", DATA, [good])
    empty_store = Anchor(store.checkpoint(SITE, "loans").sign(key, "x"), "x", key.public)
    with pytest.raises(EvidenceError):
        store.anchor(empty_store, SITE, DATA)  # of size 0, which everything extends


def test_an_edited_floor_is_refused(store: BudgetStore) -> None:
    reserve(store)
    file_of(store, "floor").write_bytes(b'{"note":"","root":"","size":"many"}')
    refused(store)


def test_a_curve_at_other_orders_is_not_added_to(store: BudgetStore) -> None:
    reserve(store)
    entries = [json.loads(line) for line in file_of(store).read_bytes().splitlines()]
    entries[0]["orders"][0] = "2.0"
    file_of(store).write_bytes(rechained(entries))
    assert "another site, data set or version" in refused(store).what


# --- two at once, full disks, hostile names -----------------------------------------------------


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
    assert len({origin_of(*pair) for pair in pairs}) == len(pairs)
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
