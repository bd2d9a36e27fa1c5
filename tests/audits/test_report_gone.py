"""The report on who vanished, and on who could see what."""

from __future__ import annotations

import json

from markupsafe import escape

from audits.formats import FORMATS, render
from audits.report.build import build_report
from audits.report.models import Dropouts, Vanished
from tests.audits.toy_run import maskless, run_toy


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
    assert sum(views[role].received for role in list(views)[:3]) == 66  # every receipt
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


def test_many_that_vanish_alike_stand_in_one_row_and_whole_in_the_json(report):
    gone = tuple(
        Vanished(client=f"client-{n:03d}", round=n, exchange=1, moment="before it answered")
        for n in range(250)
    )
    alike = tuple(one.model_copy(update={"round": 1}) for one in gone)
    for vanished, last in ((gone, 99), (alike, 2)):
        many = report.model_copy(update={"dropouts": Dropouts(vanished=vanished, lost=())})
        page = render(many, ["html"])["report.html"].decode()
        assert f"client-{last:03d}" in page and f"client-{last + 1:03d}" not in page
        assert ("... (250 in all)" in page) is (last == 2)
        files = {name: data.decode() for name, data in render(many, FORMATS).items()}
        assert f"client-{last:03d}" in files["report.md"]
        assert f"client-{last + 1:03d}" not in files["report.md"]
        assert len(json.loads(files["report.json"])["dropouts"]["vanished"]) == 250
