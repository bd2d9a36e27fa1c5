"""What plans, policies and reports show of themselves, and what markup in a name comes to there."""

from __future__ import annotations

from typing import ClassVar

import pytest

from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.shown import Shown, line, page

HOSTILE = "<script>alert('x')</script>&\"\x1b[2J"


class Named(Shown):
    facts: ClassVar = ("name",)
    listed: ClassVar = ("friends", "name")
    name: str
    friends: tuple[Named, ...] = ()


def test_markup_in_names_stays_text() -> None:
    subject = Named(name=HOSTILE, friends=(Named(name="<b>"),))
    shown = subject._repr_html_()
    assert "<script" not in shown and "<b>" not in shown and '"' not in shown
    assert "&lt;script&gt;" in shown and "&lt;b&gt;" in shown
    assert "<i>" not in page("<i>", [("<i>", "<i>")], ["<i>"], [["<i>"]])


def test_a_line_is_printable_and_short() -> None:
    shown = repr(Named(name=HOSTILE + "\n" + "x" * 500))
    assert shown.isprintable() and len(shown) < 200
    assert str(Named(name="a")) == "<Named name: a>" == line("Named", [("name", "a")])


def test_a_long_table_is_counted_and_not_shown() -> None:
    shown = Named(name="a", friends=tuple(Named(name=f"f{n}") for n in range(50)))._repr_html_()
    assert "f39" in shown and "f40" not in shown and "and 10 more" in shown
    assert "(9 in all)" in line("x", [("clients", tuple("abcdefghi"))])


@pytest.mark.parametrize("name", PRESETS)
def test_a_policy_explains_each_disclosure_and_guard(name: str) -> None:
    policy = PrivacyPolicy.preset(name)
    told, table = policy.explain(), policy._repr_html_()
    for disclosure in Disclosure:
        chain = policy.rules.get(disclosure, ())
        assert (f"{disclosure}. Its receiver learns: {disclosure.meaning}" in told) == bool(chain)
        assert f"<td>{disclosure}</td>" in table or not chain
        for place, guard in enumerate(chain, 1):
            assert f"  {place}. {guard.guard}" in told
    assert ("UNSAFE" in told) == bool(policy.unsafe)


OTHER = {
    "name": "other",
    "minimum_cohort": 7,
    "colluders": 2,
    "cohort_changes": "floor",
    "topology_floor": "unsafe",
    "rekey_rounds": 9,
    "budget": {"epsilon": 3.0, "delta": 1e-6},
    "capture": None,
    "training": {
        "epsilon": 4.0,
        "delta": 1e-5,
        "steps": 10,
        "batch": 8,
        "records": 100,
        "clip": 1.0,
        "budget": {"epsilon": 5.0, "delta": 1e-5},
    },
    "holders": 3,
    "minimum_records": 5,
    "messages": ("Update",),
    "models": "as_sent",
    "approvals": {"dpo": "ab" * 32},
    "release": {"requires": ("A05",)},
    "retention": {"client": {"models": 90}},
    "audit": {"share": ("A04", "A05")},
    "canaries": {"records": 50},
}


def test_every_setting_is_explained_and_compared() -> None:
    """A setting that neither tells of would let a weaker policy look like the old one."""
    policy = PrivacyPolicy.preset("masks")
    assert {*OTHER} == {*PrivacyPolicy.model_fields} - {"rules"}
    assert policy.diff(policy) == []
    for name, value in OTHER.items():
        if name in ("budget", "training"):
            continue  # they need other rules or settings; see below
        other = policy.changed(**{name: value})
        assert other.explain() != policy.explain(), name
        (told,) = policy.diff(other)
        assert told.startswith(f"{name}: ")
    noised = PrivacyPolicy.preset("calibrated")
    tighter = noised.changed(budget=OTHER["budget"])
    assert noised.diff(tighter) == [
        "budget: (epsilon=10.0, delta=1e-05) became (epsilon=3.0, delta=1e-06)"
    ]
    assert "epsilon=3.0" in tighter.explain()


def test_changes_of_rules_are_told_guard_by_guard() -> None:
    policy = PrivacyPolicy.preset("pilot")
    told = policy.diff(PrivacyPolicy.preset("calibrated"))
    assert "SUM: he(scheme=bfv) is gone" in told
    assert "SUM: clip(norm=linf, bound=0.5) became clip(norm=l2, bound=1.0)" in told
    assert any(line.startswith("SUM: noise(") and line.endswith("is added") for line in told)
    back = PrivacyPolicy.preset("calibrated").diff(policy)
    assert any(line.startswith("MIXED: is allowed, by clip(") for line in back)


def test_a_changed_policy_is_checked_as_a_whole() -> None:
    policy = PrivacyPolicy.preset("masks")
    own = policy.changed(name="own", rules={Disclosure.MIXED: None})
    assert Disclosure.MIXED not in own.rules and own.digest != policy.digest
    for wrong in ({"minimum_cohort": 1}, {"rules": {"SUM": [{"guard": "mask"}]}}, {"colour": 1}):
        with pytest.raises(PolicyError, match="no valid policy"):
            policy.changed(**wrong)


def test_a_table_shows_no_character_that_turns_text_round() -> None:
    shown = page("x", [("name\u202e", "\u2067evil\x9b")], ["a\x1b"], [["\u202eb"]])
    assert "evil" in shown and shown.isprintable()
