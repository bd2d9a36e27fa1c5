"""What a run shows of itself, and how a run that was started from Python shows its progress."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from secure_fgl import notebook
from secure_fgl.notebook import Results

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J"
RESULT = {
    "algorithm": HOSTILE,
    "data": {"name": HOSTILE, "synthetic": True},
    "rounds": 2,
    "metrics": {"test_accuracy": 0.5},
    "verdict": "self-consistent only",
    "per_client": {"client-1": 0.123456},
}
ROUNDS = [{"round": 0, "test_accuracy": 0.25}, {"round": 1, HOSTILE: 0.5}]


class Kept(Results):
    """A run of two files."""

    def __init__(self, **files: str) -> None:
        self.path, self._files = Path("runs/x"), files

    def _content(self, name: str) -> bytes:
        return self._files.get(name.partition(".")[0], "").encode()


RUN = Kept(result=json.dumps(RESULT), metrics="".join(json.dumps(row) + "\n" for row in ROUNDS))


def test_a_run_shows_its_result_and_escapes_names() -> None:
    shown, text = RUN._repr_html_(), repr(RUN)
    assert "<img" not in shown and "&lt;img" in shown
    assert text.isprintable() and "(SYNTHETIC DATA)" in text and "test accuracy: 0.5" in text
    assert "0.123456" not in shown + text  # what is not listed is not shown


def test_a_run_that_did_not_finish_or_is_damaged_shows_that() -> None:
    assert "did not finish" in repr(Kept())
    damaged = Kept(result="{", metrics="[]")
    assert "cannot be read" in repr(damaged) and "cannot be read" in damaged._repr_html_()


def test_history_is_a_frame_where_pandas_is_and_else_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert RUN.history == ROUNDS
    stand_in = types.ModuleType("pandas")
    stand_in.DataFrame = lambda rows: ("frame", rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    assert RUN.history == ("frame", ROUNDS)


def test_history_is_what_pandas_makes_of_it() -> None:
    pandas = pytest.importorskip("pandas")
    assert isinstance(RUN.history, pandas.DataFrame) and list(RUN.history["round"]) == [0, 1]


def _told(progress_: Any) -> Any:
    with notebook.watched(progress_, lambda: "test_accuracy") as told:
        if told is not None:
            told(1, 2, {"test_accuracy": 0.5})
            told(2, 2, {"test_accuracy": 0.75})
    return told


def test_progress_is_what_the_place_wants(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    assert _told(False) is None
    _told(lambda round, rounds, metrics: seen.append(round))
    assert seen == [1, 2] and capsys.readouterr().err == ""
    assert type(_told(True)).__name__ == "RunProgress" and not notebook.in_notebook()
    capsys.readouterr()
    shell = type("ZMQInteractiveShell", (), {})()
    kernel = types.SimpleNamespace(get_ipython=lambda: shell, version_info=(8,))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    assert notebook.in_notebook()
    _told(True)
    assert "2/2" in capsys.readouterr().err
