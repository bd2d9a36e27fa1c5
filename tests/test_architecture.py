"""docs/architecture.md and its picture say what the code says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from protocols.disclosures.names import Disclosure
from protocols.wire.roles import Role
from scripts import architecture

ROOT = Path(__file__).resolve().parents[1]


def test_both_files_are_what_the_code_says() -> None:
    assert architecture.main(["--check"]) == 0


def test_another_registry_is_another_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    before = architecture.picture()
    monkeypatch.setattr(architecture, "works", lambda *_: False)
    assert architecture.picture() != before
    assert architecture.main(["--check"]) == 1


def test_every_role_disclosure_and_floor_stands_in_the_picture_and_every_role_in_its_flow() -> None:
    said = {text.text for text in ET.fromstring(architecture.picture()).iter() if text.text}
    assert {str(one) for one in Disclosure} <= said
    assert {str(role).replace("_", " ") for role in Role} <= said
    assert {name for name, _ in architecture.floors()} <= said
    reached = {role for route in architecture.routes() for role in route}
    assert {str(role) for role in Role} <= reached


def test_everything_but_keys_passes_the_aggregator() -> None:
    for route, parts in architecture.routes().items():
        assert str(Role.AGGREGATOR) in route or parts == ["keys"], route


def test_what_the_page_names_is_there() -> None:
    page = architecture.PAGE.read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert links and all((architecture.PAGE.parent / link).exists() for link in links)
    paths = [path for path in re.findall(r"`([\w/]+(?:/|\.py))`", page) if "/" in path]
    assert len(paths) > 10 and all((ROOT / path).exists() for path in paths)
