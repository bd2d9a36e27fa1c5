"""What is printed: nothing that steers a terminal, nothing lost, no bar for what is short."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rich.console import Console

from secure_fgl.cli._shared import output
from secure_fgl.cli._shared.gate import FailOn
from secure_fgl.cli._shared.output import clean, grid, print_json, print_pairs, say
from secure_fgl.cli.run import _what_is_left

Capture = pytest.CaptureFixture[str]


def test_control_characters_do_not_reach_the_terminal(capsys: Capture) -> None:
    hostile = "client\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e"
    say(hostile)
    print_pairs([(hostile, hostile)], stderr=True)
    printed = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "client?]0;owned" in printed
    assert clean("a\nb") == "a\nb"


def test_markup_is_printed_as_it_is(capsys: Capture) -> None:
    say("weights[2754] [bold]x[/bold] :smile:", stderr=False)
    assert capsys.readouterr().out == "weights[2754] [bold]x[/bold] :smile:\n"


def test_a_long_word_is_folded_and_not_cut(capsys: Capture) -> None:
    table = grid(["Name", ">Number"])
    table.add_row("x" * 200, "1")
    Console(width=80).print(table)
    assert capsys.readouterr().out.count("x") == 200


def test_a_path_can_be_clicked_in_a_terminal_and_is_plain_elsewhere(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [("report", "/tmp/a run/\x1b]8;;evil\x1b\\.html"), ("other", "/tmp/b")]
    print_pairs(pairs, wrap=False, links=["report"])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_pairs(pairs, wrap=False, links=["report"])
    shown = capsys.readouterr().out
    assert ";file:///tmp/a%20run/%1B%5D8" in shown and "file:///tmp/b" not in shown


def test_json_is_printed_verbatim(capsys: Capture) -> None:
    print_json('{"a": "\\u001b"}\n')
    assert capsys.readouterr().out == '{"a": "\\u001b"}\n'


def _play(monkeypatch: pytest.MonkeyPatch, rounds: int, seconds: float) -> None:
    """Report rounds that take `seconds` each, on a clock of the test's own."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with output.RunProgress("test_accuracy") as bar:
        for number in range(1, rounds + 1):
            now += seconds
            bar(number, rounds, {"round": number - 1, "val_accuracy": 0.25, "test_accuracy": 0.5})


def test_a_short_run_shows_no_progress(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _play(monkeypatch, 15, 0.1)
    assert capsys.readouterr().err == ""


def test_a_long_run_tells_some_lines_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    _play(monkeypatch, 1000, 0.1)
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 12
    assert lines[-1] == "round 1000/1000  val 0.250  test 0.500, after round 999"


def test_what_an_interrupt_left_is_told_as_it_is(tmp_path: Path) -> None:
    assert _what_is_left(tmp_path / "none") == "Nothing was sent."
    for folder in ("ledger", "heads"):
        (tmp_path / folder).mkdir()
    (tmp_path / "ledger" / "a.jsonl").touch()
    assert _what_is_left(tmp_path).startswith("Not every ledger could be closed")
    (tmp_path / "heads" / "a.checkpoint").touch()
    assert _what_is_left(tmp_path).startswith("The ledgers were closed")


@pytest.mark.parametrize(
    ("limit", "failing"),
    [
        ("critical", ["critical"]),
        ("medium", ["critical", "high", "medium"]),
        ("low", ["critical", "high", "medium", "low"]),
        ("never", []),
    ],
)
def test_fail_on(limit: str, failing: list[str]) -> None:
    severities = ["critical", "high", "medium", "low", "info"]
    assert [s for s in severities if FailOn(limit).reached(s)] == failing
