"""The report: deterministic, closed, honest about its limits, and harmless to open."""

from __future__ import annotations

import csv
import html.parser
import io
import itertools
import json
import re
from dataclasses import replace

import jsonschema
import pytest
from markupsafe import escape

from audits import svg, words
from audits.findings import findings
from audits.formats import FORMATS, file_names, render
from audits.formats.json import schema
from audits.models import Dropouts, Report, Vanished
from audits.report import build_report
from audits.steps import Case, Status
from audits.summary import SIMULATION, notes
from audits.verify import verify
from protocols.errors import EvidenceError
from protocols.learns import ACTIVE_AGGREGATOR
from protocols.policy import PRESETS
from tests.audits.test_verify import refused
from tests.audits.toy_run import CLIENTS, RESULT, Toy, edit_last, forge, maskless, run_toy, text

HOSTILE = "<script>alert(1)</script>"
FORMULA = "=1+1|'cmd'"
SENT = ("up.SUM", "vote", "shares")
LINK, TABLE = "[x](javascript:alert(1))", "a|b`c*_&amp;\n| x |"


@pytest.fixture(scope="module")
def toy() -> Toy:
    return run_toy()


@pytest.fixture(scope="module")
def report(toy: Toy) -> Report:
    return build_report(toy.view())


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return render(report, ["html"])["report.html"].decode()


@pytest.fixture(scope="module")
def hostile(report: Report) -> dict[str, str]:
    """The report with names that no roster accepts: the formats must not rely on the roster."""
    text = report.model_dump_json()
    for name, planted in zip(CLIENTS, (HOSTILE, FORMULA, LINK, TABLE), strict=True):
        text = text.replace(f'"{name}"', json.dumps(planted))
    text = text.replace('"toy"', json.dumps(HOSTILE)).replace("step.up.SUM", HOSTILE)
    planted_report = Report.model_validate_json(text)
    return {name: data.decode() for name, data in render(planted_report, FORMATS).items()}


class Page(html.parser.HTMLParser):
    """Collects tags, attributes and text of a page, and checks that they nest."""

    VOID = ("meta", "br", "path", "circle", "rect")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def test_two_reports_of_one_run_are_byte_equal(toy):
    first = render(build_report(toy.view()), FORMATS)
    assert first == render(build_report(toy.view()), FORMATS)
    assert set(first) == {name for kind in FORMATS for name in file_names(kind)}


def test_what_a_verifier_brings_along_does_not_enter(toy, report):
    view = replace(toy.view(), held_heads=toy.checkpoints, expected_plan=toy.plan.digest)
    assert build_report(view) == report


def test_the_order_of_the_files_does_not_enter(toy, report):
    view = toy.view()
    turned = {party: view.ledgers[party] for party in reversed(list(view.ledgers))}
    assert render(build_report(replace(view, ledgers=turned)), FORMATS) == render(report, FORMATS)


def test_the_json_validates_against_its_own_closed_schema(report):
    document = json.loads(render(report, ["json"])["report.json"])
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    validator.validate(document)
    assert not validator.is_valid({**document, "more": 1})
    assert not validator.is_valid({**document, "subject": {**document["subject"], "more": 1}})
    assert Report.model_validate(document) == report


def test_an_unknown_format_is_named():
    with pytest.raises(ValueError, match="html, json, md"):
        render(build_report(run_toy(rounds=1).view()), ["pdf"])


def test_the_inventory_counts_what_every_client_sent(toy, report):
    for client in CLIENTS:
        rows = {r.item: r for r in report.inventory if r.sender == client}
        assert list(rows) == sorted(("pair.boxes", "pair.rows", *(f"step.{k}" for k in SENT)))
        row = rows["step.up.SUM"]
        assert (row.count, row.recipient) == (2, "aggregator")
        assert (row.first_round, row.last_round) == (1, 2)
        assert row.bytes == 2 * toy.plan.item("step.up.SUM").bytes
        assert not any(row.unsafe for row in rows.values())
    assert sum(row.count for row in report.inventory) == report.plan_diff.seen == 70
    (up,) = [row for row in report.egress if row.item == "step.up.SUM"]
    assert (up.sender_role, up.senders, up.count) == ("client", 4, 8)
    assert [field.name for message in up.messages for field in message.fields] == [
        "delta",
        "count",
    ]
    assert up.learns["aggregator"].startswith("only the cohort's total")


def test_plan_and_actual_of_an_honest_run_agree(report):
    diff = report.plan_diff
    assert not diff.unplanned
    assert not diff.missing
    assert not diff.denied
    assert report.verdict_strip[0].state == "OK"
    assert len(report.verdict_strip) == 6


def test_o16_the_budget_says_infinity_and_covers_nothing(report):
    (account,) = report.accounting
    assert account.epsilon == "infinity"
    assert account.covered == ()
    assert account.not_covered == ("Answer",)
    assert "epsilon = infinity" in account.statement


def test_o26_simulation_and_synthetic_data_are_said_first(report, page):
    assert report.notes == (
        "SIMULATION: roles are not separated",
        "SYNTHETIC DATA: generated, about nobody",
    )
    for note in report.notes:
        assert page.index(note) < page.index("Six questions")


def test_a_separated_run_on_real_data_carries_neither_banner():
    # No transport of this version separates roles, so the words are asked for one that would.
    view = run_toy(maskless(), synthetic=False, rounds=1).view(reports=False)
    case, report = Case(view), build_report(view)
    about = case.plan, report.egress, verify(view)
    assert notes(*about, simulated=False) == ()
    assert notes(*about, simulated=True) == report.notes == (SIMULATION,)
    facts = (report.plan_diff, report.egress, report.dropouts, report.accounting[0])
    found = findings(case.plan, *facts, about[2], case.result, simulated=False)
    assert {f.rule for f in found} == {"ACTIVE_AGGREGATOR"}


@pytest.mark.parametrize("value", [1.5, -0.01, 10**30, "0.5", True, None, [0.5]])
def test_a_metric_that_cannot_be_is_a_high_finding(toy, report, value):
    assert not any(f.rule == "IMPOSSIBLE_METRIC" for f in report.findings)
    metrics = {**RESULT["metrics"], "test_accuracy": value}
    made = build_report(replace(toy.view(), result_text=text({**RESULT, "metrics": metrics})))
    (finding,) = [f for f in made.findings if f.rule == "IMPOSSIBLE_METRIC"]
    assert finding.severity == "high"
    assert finding.message.startswith("1 metric of result.json")


def test_metrics_at_both_ends_are_possible(toy):
    metrics = {"best_round": 99, "test_accuracy": 1, "val_accuracy": 0.0}
    made = build_report(replace(toy.view(), result_text=text({"metrics": metrics})))
    assert not any(f.rule == "IMPOSSIBLE_METRIC" for f in made.findings)


def test_o4_without_masks_an_active_aggregator_is_a_finding_and_a_limit(report):
    assert not any(f.rule == "ACTIVE_AGGREGATOR" for f in report.findings)
    assert not any(ACTIVE_AGGREGATOR in limit for limit in report.limits)
    report = build_report(run_toy(maskless(), rounds=1).view())
    (finding,) = [f for f in report.findings if f.rule == "ACTIVE_AGGREGATOR"]
    assert finding.severity == "medium"
    assert any(ACTIVE_AGGREGATOR in limit for limit in report.limits)


def test_unsafe_messages_are_critical_and_said_in_word_shape_and_colour():
    view = run_toy("unsafe_plaintext", rounds=1).view()
    report = build_report(view)
    (finding,) = [f for f in report.findings if f.rule == "UNSAFE_CLEAR"]
    assert (finding.severity, finding.recipient_role) == ("critical", "aggregator")
    assert report.notes[0].startswith("UNSAFE")
    assert report.verdict_strip[1].state == "FAIL"
    page = view.reports["report.html"].decode()
    assert "UNSAFE: in clear" in page
    assert "url(#egress-hatch)" in page


def test_a_refusal_is_a_high_finding_and_its_reason_stays_in_the_ledger():
    toy = refused()
    report = build_report(toy.view())
    (finding,) = [f for f in report.findings if f.severity == "high"]
    assert finding.rule == "REFUSED_UNFIT"
    assert report.plan_diff.denied[0].party == CLIENTS[2]
    detail = "holds NaN or Inf"
    assert any(detail.encode() in store.lines for store in toy.stores.values())
    assert all(detail.encode() not in data for data in toy.view().reports.values())


def test_items_that_never_left_are_missing_with_low_severity():
    report = build_report(refused().view())
    assert "step.open" in report.plan_diff.missing
    assert {f.severity for f in report.findings if f.rule == "MISSING"} == {"low"}


def test_clipped_values_are_counted_and_nothing_more_is_said():
    toy = run_toy(site=lambda name: 9.0 if name == CLIENTS[0] else 0.25)
    report = build_report(toy.view())
    (finding,) = [f for f in report.findings if f.rule == "CLIPPED"]
    assert finding.message.startswith("In 2 of 8 envelopes")
    assert finding.severity == "info"


def test_an_unplanned_release_is_critical_and_the_evidence_is_called_broken(toy):
    view = forge(toy, toy.view(), CLIENTS[0], edit_last("release", item="secret.up.SUM"))
    report = build_report(view)
    rules = {f.rule: f.severity for f in report.findings}
    assert rules["UNPLANNED"] == rules["EVIDENCE_BROKEN"] == "critical"
    assert report.notes[0].startswith("EVIDENCE BROKEN")
    assert report.verdict_strip[0].state == report.verdict_strip[5].state == "FAIL"
    assert report.plan_diff.unplanned[0].item == "secret.up.SUM"
    assert "secret.up.SUM" in render(report, ["html"])["report.html"].decode()


def test_a_fingerprint_names_rule_item_and_role_but_no_count(toy, report):
    again = build_report(run_toy(rounds=1).view())
    prints = [{f.rule: f.fingerprint for f in r.findings} for r in (report, again)]
    assert prints[0] == prints[1]
    assert len(set(prints[0].values())) == len(prints[0])


def test_integrity_lists_the_steps_without_the_report_itself(report):
    steps = {s.name: s.status for s in report.integrity.steps}
    assert "report" not in steps
    assert steps["heads"] == Status.NOT_CHECKED
    assert report.integrity.verdict == "self-consistent only"


def test_a_run_whose_papers_cannot_be_read_has_no_report(toy):
    with pytest.raises(EvidenceError) as raised:
        build_report(replace(toy.view(), plan_text=b"{}"))
    assert raised.value.step == "files"


def test_values_of_the_result_are_bounded_text(toy):
    result = {
        "metrics": {f"m{n}": n / 3 for n in range(200)} | {"nested": {"x": 1}, "flag": True},
        "backend": "b" * 9000,
        "model_sha256": "line\nbreak",
        "wall_s": 1.5,
    }
    facts = build_report(replace(toy.view(), result_text=text(result))).results
    assert len(facts) <= 64
    assert all(len(fact.value) <= 120 and fact.value.isprintable() for fact in facts)
    assert not any("wall" in fact.name or "nested" in fact.name for fact in facts)


# --- the page -----------------------------------------------------------------------------------


def test_the_page_loads_nothing_and_runs_nothing(page):
    found = Page(page)
    assert not {"script", "link", "iframe", "object", "embed", "img", "form"} & set(found.tags)
    assert not [name for _, name, _ in found.attributes if name.startswith("on") or name == "style"]
    for name in ("src", "srcset", "action", "data"):
        assert not found.values(name)
    assert all(value.startswith("#") for value in found.values("href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    (policy,) = [v for v in found.values("content") if "default-src" in v]
    assert "default-src 'none'" in policy
    assert "style-src 'unsafe-inline'" in policy


def test_the_page_is_readable_with_a_keyboard_and_a_screen_reader(page):
    found = Page(page)
    assert found.open == []
    assert found.values("lang") == ["en"]
    assert len(found.ids) == len(set(found.ids))
    assert {value[1:] for value in found.values("href")} <= set(found.ids)
    assert {v for t in found.values("aria-labelledby") for v in t.split()} <= set(found.ids)
    assert found.tags.count("table") == found.tags.count("caption")
    assert found.tags.count("h1") == 1
    assert found.values("href")[0] == "#main"  # the skip link comes first
    assert set(found.values("scope")) == {"col", "row"}
    assert found.tags.count("th") == len(found.values("scope"))
    regions = [v for _, n, v in found.attributes if n == "role" and v == "region"]
    assert len(regions) == found.values("tabindex").count("0") == found.tags.count("table")
    levels = [int(tag[1]) for tag in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_every_figure_has_a_title_a_description_and_a_table(page):
    charts = page.count('class="bars"')
    assert charts == 1
    assert page.count("<desc ") == charts
    assert page.index('class="bars"') < page.index("What left, rolled up by role")


def test_a_bar_s_value_stands_below_its_label_and_is_never_cut():
    bar = str(svg.bars("b", "t", "d", [svg.Bar("x" * 99, "540 kB UNSAFE", 0.5, unsafe=True)]))
    (label, _), (value, shown) = re.findall(r'<text x="0" y="(\d+)"[^>]*>([^<]*)<', bar)
    assert int(value) - int(label) >= 16  # pixels: a line of text
    assert shown == "540 kB UNSAFE"


def test_states_are_told_by_word_and_shape_beside_colour(page):
    marks = {state: str(svg.mark(state)) for state in ("OK", "ATTENTION", "FAIL", "NOT TESTED")}
    assert len(set(marks.values())) == 4
    for word in ("OK", "ATTENTION", "NOT TESTED"):
        assert f"{marks[word]}{word}</span>" in page


@pytest.mark.parametrize("word", ["compliant", "anonymous", "anonymised", "safe"])
def test_no_report_promises_what_it_cannot_know(toy, word):
    for data in toy.view().reports.values():
        assert not re.search(rf"\b{word}\b", data.decode(), re.IGNORECASE)


def test_hostile_names_are_text_everywhere(hostile):
    assert HOSTILE not in hostile["report.html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in hostile["report.html"]
    assert "script" not in Page(hostile["report.html"]).tags
    assert HOSTILE not in hostile["report.md"]
    assert "](javascript" not in hostile["report.md"]
    rows = list(csv.reader(io.StringIO(hostile["inventory.csv"])))
    cells = [cell for row in rows for cell in row]
    assert f"'{FORMULA}" in cells
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    assert json.loads(hostile["report.json"])["parties"]


def test_the_csv_holds_every_route_with_all_its_facts(report):
    files = render(report, ["csv"])
    rows = list(csv.DictReader(io.StringIO(files["inventory.csv"].decode())))
    assert len(rows) == len(report.inventory)
    (row,) = [r for r in rows if (r["sender"], r["item"]) == (CLIENTS[0], "step.up.SUM")]
    assert "Answer.delta f8[8] weight: change of the model" in row["fields"]
    assert "aggregator: only the cohort's total" in row["learns"]
    found = list(csv.DictReader(io.StringIO(files["findings.csv"].decode())))
    assert [f["id"] for f in found] == [f.id for f in report.findings]


def test_a_page_of_many_clients_stays_readable():
    names = tuple(f"client-{n:03d}" for n in range(250))
    view = run_toy("unsafe_plaintext", rounds=1, clients=names).view()
    page = view.reports["report.html"].decode()
    assert page.count("client-007") <= 3  # party table and heads; no row per route
    assert "stand in <code>inventory.csv</code>" in page
    assert view.reports["inventory.csv"].count(b"client-007") == 2
    roll_up = page[page.index("rolled up by role") : page.index("What is in each of them")]
    assert "client-" not in roll_up


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (102_400, "102 kB"),
        (999_600, "1.0 MB"),
        (10_474_080, "10.5 MB"),
        (3 * 10**12, "3000 GB"),
    ],
)
def test_sizes_have_three_figures_and_a_unit(count, text):
    assert words.size(count) == text


def test_policy_presets_all_have_words_for_their_protection():
    for policy in PRESETS.values():
        for chain in policy.rules.values():
            assert words.protection(tuple(guard.guard for guard in chain)) != "unknown"


@pytest.mark.parametrize(
    ("guards", "text"),
    [
        ("clip quantise he(scheme=bfv) seal", "encrypted sum, sealed"),
        ("clip quantise mask seal", "masked sum, sealed"),
        ("clip quantise noise mask seal", "noised and masked sum, sealed"),
        ("clip quantise noise mask ckks seal", "noised, masked and encrypted sum, sealed"),
        ("clip quantise mask unsafe_clear", "UNSAFE: in clear"),
    ],
)
def test_protection_is_said_in_words(guards, text):
    assert words.protection(tuple(guards.split())) == text


# --- who vanished, and who could see what -------------------------------------------------------


def test_a_run_in_which_nobody_vanished_says_so(report, page):
    assert report.dropouts.vanished == report.dropouts.lost == ()
    assert "Nobody vanished." in page and "No round was skipped." in page
    assert "vanished" not in report.summary


def viewers(policy):
    report = build_report(run_toy(policy, rounds=1).view(reports=False))
    return {view.viewer: view for view in report.views}


def test_o30_every_role_and_collusion_has_its_view(report, page):
    views = {view.viewer: view for view in report.views}
    assert list(views)[:4] == ["client", "aggregator", "key_authority", "network"]
    assert sum(views[role].received for role in list(views)[:3]) == 74  # every receipt
    sees = "; ".join(views["key_authority"].sees)
    assert "uniform noise, and who took part when" in sees and "total" not in sees
    assert "step.up.SUM: only the cohort's total (and who took part)" in views["aggregator"].sees
    assert views["aggregator and key authority"].sees[0].startswith("no more than")
    assert "less what the colluders sent" in views["aggregator and one client"].sees[0]
    assert "aggregator, key authority and 4 of the clients that hold a client's shares" in views
    assert all(str(escape(text)) in page for v in report.views for text in v.sees)


def test_o30_a_weaker_policy_shows_what_more_is_seen():
    bare = viewers(maskless())
    assert bare["aggregator and key authority"].sees[0].startswith("EVERY single upload")
    assert not any("shares" in name for name in bare)
    clear = viewers("unsafe_plaintext")
    assert "EVERY single message in clear" in clear["aggregator alone"].sees
    assert "EVERYTHING" in clear["network"].sees[0]
    assert "key_authority" not in viewers("masks")


def test_many_that_vanish_are_cut_off_in_the_page_and_whole_in_the_json(report):
    one = {"round": 1, "exchange": 1, "moment": "before it answered"}
    gone = tuple(Vanished(client=f"client-{n:03d}", **one) for n in range(250))
    many = report.model_copy(update={"dropouts": Dropouts(vanished=gone, lost=())})
    files = {name: data.decode() for name, data in render(many, FORMATS).items()}
    for name in ("report.html", "report.md"):
        assert "client-099" in files[name] and "client-100" not in files[name]
    assert len(json.loads(files["report.json"])["dropouts"]["vanished"]) == 250
