"""What lies in a run folder is what the head of `secure_fgl.store.run_folder` says, no more."""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from audits.evidence.run_files import UNREADABLE
from protocols.wire.roster import weights_digest
from secure_fgl.run.model_digest import npz_bytes, npz_digest
from secure_fgl.store import run_folder as runs
from secure_fgl.store.files import Folder
from tests.secure_fgl.cli_tools import config, invoke
from tests.secure_fgl.test_audit_cli import waivers

pytestmark = pytest.mark.usefixtures("kept_state")


def named() -> set[str]:
    """Return the names that the docstring gives, braces spelt out."""
    _, _, rest = (runs.__doc__ or "").partition("RUN/")
    tree = re.sub(r"\(.*?\)", "", rest.partition("\n\n")[0], flags=re.S)
    found = set()
    for word in tree.split():
        inner = re.search(r"\{(.*)\}", word)
        for part in inner[1].split(",") if inner else [""]:
            found.add(word.replace(inner[0], part) if inner else word)
    return found


def kind(path: Path) -> str:
    """Return a file's place with its party left open."""
    place = path.as_posix()
    if path.parts[0] in ("captured", "models", "private"):
        return f"{path.parts[0]}/<party>/"
    if path.stem.startswith("round-"):
        return "checkpoints/round-<n>.npz"
    if path.parts[0] in ("attacks", "ledger", "heads"):
        return f"{path.parts[0]}/<party>{path.suffix}"
    return place


def test_every_file_of_a_run_and_its_audits_is_named_and_no_other(tmp_path: Path) -> None:
    run, seen = tmp_path / "run", set()

    def look(words: tuple[object, ...]) -> None:
        shown = invoke(*words)
        assert shown.exit_code in (0, 3), (words, shown.stderr)
        seen.update(kind(f.relative_to(run)) for f in run.rglob("*") if f.is_file())

    words = ("run", config(tmp_path), "--set", "policy=masks", "--out", run)
    look((*words, "--checkpoint-every", 2))
    accepted = waivers(tmp_path, {"rule": "SIMULATION"})
    for words in (("attack",), ("report", "--baseline", run, "--waivers", accepted), ("bundle",)):
        look(("audit", words[0], run, *words[1:]))
    # Of runs between organisations, gathered; of policies that name approvers; while it runs.
    between = {"charter.json", "checkpoints.json", "forgotten/<party>.jsonl"}
    between |= {"attacks/<party>.json", "rehearsal.json"}
    assert named() - seen == {"private/<party>/", "approvals.json", *between}
    assert seen <= named()


def test_lines_of_a_ledger_are_flushed_to_the_device_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    store = runs.FileStore(Folder(tmp_path), "ledger/party.jsonl")
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_size))
    store.append(b"one\n")
    assert flushed == [4]  # once, with all of it written

    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError):
        store.append(b"two\n")
    store.close()
    assert (tmp_path / "ledger" / "party.jsonl").read_bytes() == b"one\n"


def _respelt(text: str) -> list[str]:
    """Return texts that hold the same JSON value."""
    return [text + " ", text.replace("{", "{ ", 1), text.replace(": 3,", ": 3.0,", 1)]


def test_no_paper_of_a_run_has_a_second_spelling(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert invoke("run", config(tmp_path), "--out", out).exit_code == 0
    for name in ("plan.json", "policy.json"):
        text = (out / name).read_text()
        for other in {*_respelt(text)} - {text}:
            (out / name).write_text(other)
            shown = invoke("audit", "verify", out)
            assert shown.exit_code == 5 and "FAILED at files" in shown.stderr, name
        (out / name).write_text(text)
    assert invoke("audit", "verify", out).exit_code == 0


def test_a_model_s_container_is_bound_by_its_bytes(tmp_path: Path) -> None:
    arrays = {"weights": np.arange(3.0), "bias": np.ones(1)}
    data = npz_bytes(arrays)
    assert npz_digest(data) == weights_digest(arrays) and npz_bytes(arrays) == data
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    dated = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(dated, "w") as new:
        for member in old.infolist():
            new.writestr(zipfile.ZipInfo(member.filename, (2026, 1, 1, 0, 0, 0)), old.read(member))
    for other in (data + b"\0", b"\0" + data, packed.getvalue(), dated.getvalue(), b""):
        assert npz_digest(other) == UNREADABLE
    with np.load(io.BytesIO(dated.getvalue())) as same:  # the control: the arrays are the very same
        assert np.array_equal(same["weights"], arrays["weights"])
