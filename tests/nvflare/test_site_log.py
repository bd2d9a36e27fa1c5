"""PARTY/site.log: the site's own people learn why, in words that hold no data and no key."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.utils import fobs

from protocols.errors import RemoteProtocolError
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import UsageError
from secure_fgl.store.sides import site_log
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.executor import Seat
from secure_fgl.transports.nvflare.party import PARTY_VARIABLE
from tests.nvflare.stage import assemble
from tests.nvflare.test_own_folders import NAMES, SPEC, own, tables

SENTINEL = "Zz-patient-4711"
WHEN = "2026-11-26T05:00:00Z"


def logged(party: Path) -> str:
    file = party / site_log.NAME
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text()


def test_o27_a_site_whose_data_cannot_be_read_tells_its_own_people_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    for number, name in enumerate(NAMES):
        tables(data / name, number)
    (data / SPEC_FILE).write_text(SPEC)
    parties = assemble(own(data), tmp_path / "parties")
    table = data / NAMES[0] / "nodes.csv"
    for number, broken in enumerate((f"1,fine,{SENTINEL},2", f"1,{SENTINEL},3,2")):
        lines = table.read_text().splitlines()
        lines[2] = broken
        table.write_text("\n".join(lines))
        folder = parties.folders[parties.charter.sites[NAMES[0]]]
        monkeypatch.setenv(PARTY_VARIABLE, str(folder))
        monkeypatch.setenv("SECURE_FGL_DATA", str(data))
        seat = Seat()
        with caplog.at_level(logging.DEBUG):
            seat.handle_event(EventType.START_RUN, FLContext())
            said = seat.execute(wire.TASK, wire.pack([b"x"]), FLContext(), Signal())
        assert said.get_return_code() == ReturnCode.BAD_TASK_DATA  # no word of why
        text = logged(folder)
        assert text.count("the session stopped (UsageError)") == number + 1
        assert str(table) in text and ("age" if not number else "label") in text
        others = fobs.dumps(said).decode("latin-1") + caplog.text
        assert str(table) not in others and "UsageError" in caplog.text
    secret = json.loads((folder / "identity.json").read_text())["seed"]
    assert SENTINEL in table.read_text()  # the control: it is there to be quoted
    for shown in (text, others):
        assert SENTINEL not in shown and secret not in shown


def test_o27_of_an_error_that_is_not_ours_the_class_and_the_place_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARTY_VARIABLE, str(tmp_path))
    for number, error in enumerate((ValueError, KeyError, RuntimeError), 1):

        class Failing:
            def receive(self, data: bytes, kind: type[Exception] = error) -> None:
                raise kind(SENTINEL)

        seat = Seat()
        seat._process = Failing()  # type: ignore[assignment]
        seat.execute(wire.TASK, wire.pack([b"x"]), FLContext(), Signal())
        text = logged(tmp_path)
        assert error.__name__ in text and SENTINEL not in text
        assert text.count("in secure_fgl.transports.nvflare.executor, line") == number


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
            site_log.note(tmp_path, "it stopped", ours)
        if not getattr(error, "strerror", None):
            site_log.note(tmp_path, "it stopped", error)
    assert logged(tmp_path).count("it stopped") == 7
    assert SENTINEL not in logged(tmp_path)


def test_a_log_grows_no_further_than_it_may_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_log, "_MOST", 300)
    error = UsageError("One\x1b[31m line.", why="x" * 2000, fix="\n".join("ab"))
    for _ in range(9):
        site_log.note(tmp_path, "it stopped", error, now=lambda: WHEN)
    assert {f.name for f in tmp_path.iterdir()} == {"site.log", "site.log.1"}
    assert all(f.stat().st_size < 3000 for f in tmp_path.iterdir())
    text = logged(tmp_path)
    assert text.startswith(f"{WHEN} it stopped (UsageError)\n  Error: One?[31m line.\n  Why: xx")
    assert max(map(len, text.splitlines())) < 510
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "site.log").unlink()
    (tmp_path / "site.log").symlink_to(elsewhere)
    site_log.note(tmp_path, "it stopped", error)  # stops nothing, and writes nothing
    assert elsewhere.read_text() == "mine"
    site_log.note(tmp_path / "nowhere", "it stopped", RemoteProtocolError("x"))
