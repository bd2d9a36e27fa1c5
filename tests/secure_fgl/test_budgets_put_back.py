"""The budget store (O20) refuses to be cut, edited or put back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crypto.signing import SigningKey, canonical
from protocols.errors import EvidenceError
from protocols.policy.policy import Budget
from protocols.privacy.accounting import ORDERS
from secure_fgl.store import budgets
from secure_fgl.store.budgets import Anchor, BudgetStore
from tests.secure_fgl.budget_tools import (
    DATA,
    DELTA,
    SITE,
    file_of,
    refused,
    reserve,
)


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
        lines.append(canonical({**entry, "prev": budgets._head(lines)}) + b"\n")
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
    assert "another site, data set or list of orders" in refused(store).what
