"""PARTY/site.log: the site's own people learn why, in words that hold no data and no key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from protocols.errors import RemoteProtocolError
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import UsageError
from secure_fgl.sites import session
from secure_fgl.sites.session import Answerer
from secure_fgl.store.sides import party_side
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply
from tests.sites.stage import assemble
from tests.sites.test_own_folders import NAMES, SPEC, own, tables

SENTINEL = "Zz-patient-4711"
WHEN = "2026-11-26T05:00:00Z"


def logged(party: Path) -> str:
    file = party / party_side.NAME
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text()


def test_o27_a_site_whose_data_cannot_be_read_tells_its_own_people_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for number, name in enumerate(NAMES):
        tables(data / name, number)
    (data / SPEC_FILE).write_text(SPEC)
    parties = assemble(own(data), tmp_path / "parties")
    table = data / NAMES[0] / "nodes.csv"
    folder = parties.folders[NAMES[0]]
    monkeypatch.setenv("SECURE_FGL_DATA", str(data))
    monkeypatch.setattr(session, "close_network", lambda: None)  # of the process of this test
    monkeypatch.setattr(session, "socket", SimpleNamespace(socket=lambda fileno: os.close(fileno)))
    monkeypatch.setattr(session, "signal", Mock())
    for number, broken in enumerate((f"1,fine,{SENTINEL},2", f"1,{SENTINEL},3,2")):
        lines = table.read_text().splitlines()
        lines[2] = broken
        table.write_text("\n".join(lines))
        assert session.main([str(folder), parties.charter.run, str(tmp_path / "socket"), "0"]) == 2
        text = logged(folder)
        assert text.count("the session did not start, or stopped (UsageError)") == number + 1
        assert str(table) in text and ("age" if not number else "label") in text
    secret = json.loads((folder / "identity.json").read_text())["seed"]
    assert SENTINEL in table.read_text()  # the control: it is there to be quoted
    for shown in (text, capsys.readouterr().err):
        assert shown and SENTINEL not in shown and secret not in shown


def test_o27_of_an_error_that_is_not_ours_the_class_and_the_place_are_told(tmp_path: Path) -> None:
    for number, error in enumerate((ValueError, KeyError, RuntimeError), 1):

        def failing(data: bytes, kind: type[Exception] = error) -> None:
            raise kind(SENTINEL)

        kit = SimpleNamespace(party=tmp_path, charter=SimpleNamespace(run="ab" * 16))
        answerer = Answerer(SimpleNamespace(kit=kit, receive=failing))  # type: ignore[arg-type]
        assert answerer.answer(TASK, [b"x"]) == SiteReply(Code.FAILED)  # no word of why
        text = logged(tmp_path)
        assert error.__name__ in text and SENTINEL not in text
        assert text.count("in secure_fgl.sites.session, line") == number


def test_o27_no_text_of_an_error_that_is_not_ours_is_written(tmp_path: Path) -> None:
    for error in (
        ValueError(SENTINEL),
        KeyError(SENTINEL),
        OSError(5, SENTINEL),
        OSError(SENTINEL),
    ):
        try:
            raise UsageError("Ours.") from error
        except UsageError as ours:
            party_side.note(tmp_path, "it stopped", ours)
        if not getattr(error, "strerror", None):
            party_side.note(tmp_path, "it stopped", error)
    assert logged(tmp_path).count("it stopped") == 7
    assert SENTINEL not in logged(tmp_path)


def test_a_log_grows_no_further_than_it_may_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(party_side, "_MOST", 300)
    error = UsageError("One\x1b[31m line.", why="x" * 2000, fix="\n".join("ab"))
    for _ in range(9):
        party_side.note(tmp_path, "it stopped", error, now=lambda: WHEN)
    assert {f.name for f in tmp_path.iterdir()} == {"site.log", "site.log.1"}
    assert all(f.stat().st_size < 3000 for f in tmp_path.iterdir())
    text = logged(tmp_path)
    assert text.startswith(f"{WHEN} it stopped (UsageError)\n  Error: One?[31m line.\n  Why: xx")
    assert max(map(len, text.splitlines())) < 510
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "site.log").unlink()
    (tmp_path / "site.log").symlink_to(elsewhere)
    party_side.note(tmp_path, "it stopped", error)  # stops nothing, and writes nothing
    assert elsewhere.read_text() == "mine"
    party_side.note(tmp_path / "nowhere", "it stopped", RemoteProtocolError("x"))
