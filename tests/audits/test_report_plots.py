"""The pictures: what they draw, what they say in words, and what no input can make of them."""

from __future__ import annotations

import re

import pytest

from audits import plots
from audits.formats import render
from audits.report.build import build_report
from audits.report.learning import Curve, Point
from audits.report.sections import (
    Clustering,
    Clusters,
    Flow,
    RoundBytes,
    RoundPart,
    Spending,
    SpentAt,
)
from protocols.policy.policy import PrivacyPolicy
from tests.audits.attack_tools import BLANK, LEAK, attacked, claim, row
from tests.audits.report_tools import HOSTILE, Page
from tests.audits.toy_run import countless, run_toy


def flow(**changes):
    facts = {
        "sender": "client", "recipient": "aggregator", "items": ("a",), "count": 3, "bytes": 5000,
        "protection": ("masked sum, sealed",), "unsafe": False,
    }  # fmt: skip
    return Flow(**{**facts, **changes})


def rounds(*sizes: int, planned: int = 1000):
    return [
        RoundBytes(
            round=number,
            planned=planned,
            seen=size,
            parts=(RoundPart(sender="client", recipient="aggregator", bytes=size),),
        )
        for number, size in enumerate(sizes)
    ]


def spent(*values: str, target: str = "8"):
    points = tuple(SpentAt(round=n, value=v) for n, v in enumerate(values))
    return Spending(unit="client", rows=(), shares=(), target=target, timeline=points)


def numbers(text: str) -> list[float]:
    return [
        float(found) for found in re.findall(r'(?:x|y|x1|x2|y1|y2|width|height)="([-\d.]+)', text)
    ]


def test_every_figure_of_a_full_report_has_words_and_its_table_below():
    policy = PrivacyPolicy.preset("calibrated")
    toy = run_toy(policy, algorithm=countless())
    view = attacked(toy.view(reports=False), row(payload="P06"), claims=(claim(),))
    page = render(build_report(view), ["html"])["report.html"].decode()
    figures = re.findall(r"<figure>.*?</figure>\s*(.{0,400})", page, re.DOTALL)
    assert len(figures) == 8  # flows, stacks, bars, seen, timeline, attacks, claims, curves
    assert all("<table>" in after for after in figures)
    assert page.count('role="img"') - page.count('class="meter"') == 8 == page.count("<desc ")
    found = Page(page)
    assert found.open == [] and len(found.ids) == len(set(found.ids))
    labels = {v for text in found.values("aria-labelledby") for v in text.split()}
    assert labels <= set(found.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(found.ids)


def test_a_flow_in_clear_is_told_by_word_dashes_and_another_tip():
    drawn = str(plots.flows([flow(), flow(unsafe=True, protection=("UNSAFE: in clear",))]))
    assert drawn.count('class="flow unsafe"') == 1 == drawn.count("#flows-tip-unsafe)")
    assert "UNSAFE: " in drawn


def test_a_message_to_everyone_goes_to_every_other_lane():
    rows = [flow(), flow(sender="key_authority", recipient="roster")]
    drawn = str(plots.flows(rows))
    assert drawn.count('class="flow"') == 1 + 2
    assert drawn.count('class="lane"') == 3


def test_a_role_that_nobody_knows_gets_a_lane_and_its_name_is_text():
    drawn = str(plots.flows([flow(sender=HOSTILE, recipient=HOSTILE)]))
    assert "<script" not in drawn and "&lt;script" in drawn
    assert drawn.count('class="flow"') == 1


def test_a_round_stands_as_high_as_its_bytes_inside_what_was_planned():
    drawn = str(plots.stacks(rounds(500, 1000, 250)))
    seen = [
        float(h) for h in re.findall(r'class="part" fill="[^"]*" x=[^>]* height="([\d.]+)"', drawn)
    ]
    planned = [float(h) for h in re.findall(r'class="planned" x=[^>]* height="([\d.]+)"', drawn)]
    assert planned == [190.0] * 3 and seen == [95.0, 190.0, 47.5]
    assert "in 0 of them more left than was planned" in drawn
    assert "in 1 of them more" in str(plots.stacks(rounds(500, 1001)))


def test_many_rounds_share_columns_and_round_0_stands_alone():
    drawn = str(plots.stacks(rounds(*[10] * 5001, planned=10)))
    planned = re.findall(r'class="planned" x=', drawn)
    assert len(planned) <= plots.MOST_COLUMNS + 1
    assert ">0</text>" in drawn and ">1–84</text>" not in drawn.partition(">0</text>")[0]


def test_routes_beyond_the_patterns_are_said_to_share_one():
    parts = tuple(RoundPart(sender="client", recipient=f"r{n}", bytes=9 - n) for n in range(7))
    drawn = str(plots.stacks([RoundBytes(round=1, planned=99, seen=42, parts=parts)]))
    assert "the other 3 routes" in drawn


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0), (10**18, 0)])
def test_a_run_of_nothing_still_has_a_picture(sizes):
    found = numbers(str(plots.stacks(rounds(*sizes, planned=0))))
    assert all(-20 <= value <= 10_000 for value in found)


def test_a_timeline_draws_its_points_and_the_line_of_the_budget():
    drawn = str(plots.timeline(spent("0", "2", "4"), "timeline-1"))
    assert drawn.count('class="curve"') == 2 and drawn.count('class="point"') == 3
    assert drawn.count('class="budget"') == 1 and "budget: ε = 8" in drawn
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" overflow', drawn)]
    assert heights == sorted(heights, reverse=True) and len(set(heights)) == 3


@pytest.mark.parametrize("values", [(), ("0",), ("infinity", "infinity"), ("0", "infinity")])
def test_an_infinite_epsilon_is_said_in_words_and_never_drawn(values):
    drawn = str(plots.timeline(spent(*values, target="infinity"), "timeline-1"))
    assert 'class="budget"' not in drawn and "nan" not in drawn and '"inf' not in drawn
    endless = sum(value == "infinity" for value in values)
    assert f"{endless} of the points are infinite" in drawn


def test_an_attack_has_five_marks_of_five_shapes_and_its_limit():
    drawn = str(plots.attacks([row()]))
    body = drawn[drawn.index("A05 grad-span") :]
    for kind in ("chance", "prior", "null", "protected", "raw"):
        assert body.count(f'class="{kind}"') == 1
    assert body.count('class="limit"') == 1
    assert body.count('class="interval') == 4  # chance has none
    assert len({str(shape) for kind, shape in plots._DOTS_SHAPES.items() if kind in body}) >= 5
    assert f"PASS; {row().metric}" in body


def test_titles_and_scores_of_attacks_are_not_cut():
    what = "training nodes of a client, from a total over the cohort, at one false alarm in 100"
    drawn = str(plots.attacks([row(what=what), row()]))
    words = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    assert f"A05 grad-span, P05: {what} PASS; {row().metric}" in words and "…" not in drawn
    tops = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="start" class="value"', drawn)]
    assert len(tops) == len(set(tops)) == 4  # three lines of the first title, one of the second


def test_a_mark_stands_where_its_value_is():
    drawn = str(plots.attacks([row(**LEAK)]))
    body = drawn[drawn.index("A05 grad-span") :]
    (place,) = re.findall(r'<svg x="([\d.]+)%" [^>]*><circle class="protected"', body)
    assert float(place) == pytest.approx(3 + 94 * 0.93, abs=0.01)
    (limit,) = re.findall(r'class="limit" x1="([\d.]+)%', body)
    assert float(limit) == pytest.approx(3 + 94 * 0.552, abs=0.01)


def test_figures_outside_0_to_1_and_below_0_stay_in_the_picture():
    wide = row(protected="-3 -4 -2", raw="900000 800000 999999", verdict="INCONCLUSIVE")
    found = [float(x) for x in re.findall(r'x1?="([-\d.]+)%"', str(plots.attacks([wide])))]
    assert all(0 <= x <= 100 for x in found)


def test_rows_without_figures_are_not_drawn_and_many_are_cut():
    blank = row(**BLANK, verdict="NOT_APPLICABLE", reason="none")
    assert "A05" not in str(plots.attacks([blank]))
    drawn = str(plots.attacks([row()] * (plots.MOST + 9)))
    assert drawn.count("A05 grad-span") == plots.MOST


def test_a_claim_has_its_bound_its_ceiling_and_itself():
    drawn = str(plots.claims([claim(text=HOSTILE), claim(epsilon_lb="", status="untested")]))
    assert "<script" not in drawn
    body = drawn[drawn.index("&lt;script") :]
    assert [body.count(f'class="{kind}"') for kind in ("protected", "prior", "null")] == [1, 1, 1]


def fell(*rows: tuple[int, tuple[int, ...], int]) -> Clusters:
    found = tuple(Clustering(round=r, sizes=s, apart=a, signed=()) for r, s, a in rows)
    return Clusters(signed=False, rows=found, unused=0)


def boxes(drawn: str) -> list[tuple[str, float, float, float, float]]:
    found = re.findall(
        r'<rect class="(cluster[^"]*)" x="([\d.]+)%" y="([\d.]+)" width="([\d.]+)%" '
        r'height="([\d.]+)"',
        drawn,
    )
    return [(kind, *map(float, numbers)) for kind, *numbers in found]


def test_a_cluster_is_one_box_as_high_as_its_clients_and_as_long_as_it_lasted():
    found = fell((1, (20,), 0), (3, (12, 8), 0), (5, (7, 5, 8), 0))
    drawn = str(plots.clusters(found, 8))
    wide, one = 98 / 8, 220 / 20
    assert sorted(boxes(drawn)) == [
        ("cluster", *map(pytest.approx, place))
        for place in sorted(
            [
                (1, 24, 2 * wide, 20 * one),
                (1 + 2 * wide, 24, 2 * wide, 12 * one),
                (1 + 2 * wide, 24 + 12 * one, 6 * wide, 8 * one),  # of two rows
                (1 + 4 * wide, 24, 4 * wide, 7 * one),
                (1 + 4 * wide, 24 + 7 * one, 4 * wide, 5 * one),
            ]
        )
    ]
    values = re.findall(r'class="value">([^<]*)<', drawn)
    assert sorted(values) == sorted(["20 clients", "20", "12", "8", "7", "5"])
    assert re.findall(r'class="tick">([^<]*)<', drawn)[:4] == ["1", "3", "5", "8"]
    assert "from round 3: 12, 8; from round 5: 7, 5, 8." in drawn


def test_clients_that_were_asked_in_no_cluster_are_dashed_and_the_end_is_named():
    drawn = str(plots.clusters(fell((1, (9,), 0), (3, (5,), 4)), 2))
    assert [kind for kind, *_ in boxes(drawn)].count("cluster apart") == 1
    assert re.findall(r'class="tick">([^<]*)<', drawn)[:2] == ["1", "end"]
    assert "from round 1: 9; from the end: 5." in drawn


@pytest.mark.parametrize("rows", [(), ((1, (0,), 0),), ((1, (9,), 0), (1, (5, 4), 0))])
def test_clusters_of_nothing_and_of_one_round_stay_in_the_picture(rows):
    drawn = str(plots.clusters(fell(*rows), 0))
    assert all(0 <= x <= x + wide <= 100 for _, x, _, wide, _ in boxes(drawn))
    many = fell(*((n, (1,) * n, 1000 - n) for n in range(1, 400)))
    assert len(boxes(str(plots.clusters(many, 400)))) < 1000


@pytest.mark.parametrize("value", ["-1", "0", "-0.5", "1", "1e+308", "-1e+308"])
def test_a_score_that_never_changes_is_drawn_whatever_it_is(value: str) -> None:
    points = tuple(Point(round=number, value=value) for number in (0, 1))
    (chart,) = plots.charts([Curve(name="odd", points=points)])
    assert "polyline" in str(chart.picture) and "nan" not in str(chart.picture)
