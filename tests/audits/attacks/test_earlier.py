"""What an earlier report still says: leaks stay, an old PASS is no result."""

from __future__ import annotations

from typing import Any

import pytest

from audits.attacks._shared.models import AttackRow
from audits.attacks._shared.together import carried, claims_carried
from tests.audits.attack_tools import BIASED, BLANK, LEAK, UNSURE, claim, row

FACTS: dict[str, dict[str, Any]] = {
    "PASS": {}, "FAIL": LEAK, "INCONCLUSIVE": UNSURE, "INVALID": BIASED,
    "NOT_TESTED": {**BLANK, "verdict": "NOT_TESTED", "reason": "it was not asked for"},
    "NOT_APPLICABLE": {**BLANK, "verdict": "NOT_APPLICABLE", "reason": "nothing was captured"},
    "ERROR": {**BLANK, "verdict": "ERROR", "reason": "the attack failed (KeyError)"},
}  # fmt: skip


def one(verdict: str, **changes: Any) -> AttackRow:
    return row(**{**FACTS[verdict], "payload": "P05", "what": "delta", **changes})


def blank(why: str, old: AttackRow) -> AttackRow:
    gone = {**BLANK, "verdict": "NOT_TESTED", "reason": why}
    return row(**{**gone, "payload": old.payload, "what": old.what})


@pytest.mark.parametrize("silent", ["NOT_TESTED", "NOT_APPLICABLE", "ERROR"])
@pytest.mark.parametrize("whole", [True, False])
def test_where_nothing_is_measured_leaks_stay_and_a_pass_does_not(silent, whole):
    bare = {"payload": "", "what": ""} if whole else {}
    found = [one(silent, **bare)] + ([] if whole else [one("PASS", what="other")])
    for verdict, stays in (
        ("FAIL", "FAIL"), ("INCONCLUSIVE", "INCONCLUSIVE"),
        ("PASS", "NOT_TESTED"), ("INVALID", "NOT_TESTED"),
    ):  # fmt: skip
        (made, *_) = carried(found, [one(verdict)], blank)
        assert (made.verdict, made.what) == (stays, "delta")
        if stays == "NOT_TESTED":
            assert f"an earlier quick run of this attack said {verdict}" in made.reason
            assert made.protected is None and made.detectable == ""
    for nothing in ("NOT_TESTED", "NOT_APPLICABLE", "ERROR"):
        assert carried(found, [one(nothing)], blank)[0] is found[0]
    assert carried(found, [], blank) == found


@pytest.mark.parametrize("verdict", ["PASS", "INCONCLUSIVE", "INVALID", "NOT_TESTED"])
def test_a_weaker_profile_never_replaces_a_leak_that_a_stronger_one_found(verdict):
    old, now = one("FAIL", profile="default"), one(verdict)
    assert carried([now, one("PASS", what="other")], [old], blank)[0] is old
    # As strong a look replaces it, if it looked; so does a stronger one.
    for profile in ("quick", "default"):
        again = one("PASS", profile="default")
        assert carried([again], [one("FAIL", profile=profile)], blank) == [again]
    weak = one("PASS", profile="default")
    assert carried([now, one("PASS", what="other")], [weak], blank)[0].verdict in (
        verdict,
        "NOT_TESTED",
    )


def test_a_leak_in_a_question_that_is_no_longer_asked_stays():
    old = one("FAIL", what="all rounds", profile="default")
    assert carried([one("PASS")], [old], blank)[-1] is old
    passed = one("PASS", what="all rounds", profile="default")
    assert carried([one("PASS")], [passed], blank) == [one("PASS")]
    assert carried([one("PASS", profile="default")], [one("FAIL", what="x")], blank) == [
        one("PASS", profile="default")
    ]


def test_a_leak_of_a_part_that_cannot_be_run_any_more_stays():
    """A11 asks models without any capture; once captures are gone its leak in messages stays."""
    leak = one("FAIL", what="canaries of a client, by loss")
    model = one("PASS", payload="P19", what="canaries of a client, from the last model",
                profile="default")  # fmt: skip
    for silent in ("NOT_TESTED", "ERROR"):
        gone = one(silent, payload="", what="messages", profile="default")
        assert carried([gone, model], [leak], blank) == [gone, model, leak]
        other = one(silent, payload="P19", what="own models", profile="default")
        assert carried([other, model], [leak], blank) == [other, model]  # it is about another kind
    (bad,) = claims_carried((), (claim(status="falsified", epsilon_lb="5"),), [leak], silent=False)
    assert bad.status == "falsified"


def test_claims_stay_falsified_and_none_stands_by_hearsay():
    good, bad = claim(), claim(text="other", status="falsified", epsilon_lb="5")
    found = claims_carried((), (good, bad), (), silent=True)
    assert [c.status for c in found] == ["untested", "falsified"]
    assert claims_carried((good,), (bad,), [one("PASS")], silent=False) == (good,)
    assert claims_carried((good,), (bad,), [one("FAIL")], silent=False) == (good, bad)
    mended = bad.model_copy(update={"status": "not_falsified", "epsilon_lb": "1"})
    assert claims_carried((mended,), (bad,), [one("FAIL")], silent=False) == (bad,)
