"""A killed run under own noise goes on without telling one value under two draws."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.laws.killing import play
from tests.laws.runs import config
from tests.secure_fgl.test_ldp_run import accepting


@pytest.fixture(autouse=True)
def _keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def _releases(out: Path) -> dict[str, list[str]]:
    """Return per client its ledger's lines of randomised or noised messages."""
    found = {}
    for file in sorted((out / "ledger").glob("client-*.jsonl")):
        lines = file.read_text().splitlines()
        found[file.stem] = [
            line
            for line in lines
            if (entry := json.loads(line))["kind"] == "release" and ".up." in entry["item"]
        ]
    return found


@pytest.mark.parametrize("disclosure", ["NOISED", pytest.param("SUM", marks=pytest.mark.long)])
@pytest.mark.parametrize("after", [False, True])
def test_o15_a_resumed_client_does_not_draw_again(
    tmp_path: Path, disclosure: str, after: bool
) -> None:
    policy = accepting(tmp_path, disclosure)
    chosen = config("fed_avg", str(policy), store=tmp_path / "budgets")
    out = tmp_path / "run"
    assert play(chosen, out, at=14, after=after).killed
    before = _releases(out)
    assert any(before.values()), "nothing had left yet: choose a later kill"
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    for client, lines in _releases(out).items():
        assert lines[: len(before[client])] == before[client]
        asked = Counter(json.loads(line)["exchange"] for line in lines)
        assert set(asked.values()) == {1}, "one Ask was answered with two draws"
