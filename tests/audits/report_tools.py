"""What the tests of report share."""

from __future__ import annotations

import html.parser
import json

import pytest

from audits.formats import FORMATS, render
from audits.report.build import build_report
from audits.report.models import Report
from tests.audits.toy_run import CLIENTS, Toy

HOSTILE = "<script>alert(1)</script>"


FORMULA = "=1+1|'cmd'"


LINK, TABLE = "[x](javascript:alert(1))", "a|b`c*_&amp;\n| x |"


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
