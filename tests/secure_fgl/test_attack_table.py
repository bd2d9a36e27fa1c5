"""What ``audit attack`` prints: five figures, an interval, a verdict, single blanks."""

from __future__ import annotations

from types import SimpleNamespace

from audits.attacks import NotTested
from secure_fgl.cli.attack import print_found
from tests.audits.attack_tools import BLANK, LEAK, UNSURE, row

NO = {"verdict": "NOT_APPLICABLE", "reason": "no noise"}


def test_the_table_has_five_figures_and_the_interval_of_what_is_left(capsys) -> None:
    blank = row(**{**BLANK, "id": "A09", "what": "singletons"}, verdict="NOT_TESTED", reason="no")
    found = SimpleNamespace(rows=(row(**LEAK), blank), claims=())
    print_found(found, [NotTested(payload="P19", why="none yet")], "")  # type: ignore[arg-type]
    said = capsys.readouterr().out
    for word in ("Chance", "0.5", "0.502", "0.998", "0.498", "0.93", "0.9 to 0.95", "FAIL"):
        assert word in said
    assert "A09 singletons" in said and "NOT TESTED" in said
    assert "Not tested: P19: none yet" in said
    assert max(map(len, said.splitlines())) <= 80


def test_at_80_columns_neither_a_verdict_nor_a_question_is_broken(capsys) -> None:
    asked = {"id": "A14", "payload": "P08", "what": "which item a tag is of, by tag-dictionary"}
    unsure = row(**{**UNSURE, **asked})
    found = SimpleNamespace(rows=(row(**LEAK), unsure, row(**BLANK, **NO)), claims=())
    print_found(found, [], "")  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("A14 P08 "))
    assert lines[place].endswith("INCONCLUSIVE") and len(lines[place]) <= 80
    assert lines[place + 1] == f"  {unsure.what}"
    assert next(line for line in lines if line.endswith("NOT APPLICABLE"))


def test_a_line_below_the_table_names_its_payload_and_question(capsys) -> None:
    found = SimpleNamespace(rows=(row(**LEAK),), claims=())
    print_found(found, [], "")  # type: ignore[arg-type]
    (said,) = [x for x in capsys.readouterr().out.splitlines() if "FAIL:" in x]
    assert said.startswith(f"{row(**LEAK).id} P05 Answer.delta FAIL:")
