"""A distinctive value planted in features and labels turns up nowhere outside the site."""

from __future__ import annotations

import dataclasses
import logging
import traceback
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import SecureFglError
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking.laws import LONG, SHORT, banks, ratings
from secure_fgl.checking.laws import places as found
from secure_fgl.checking.subject import rated
from secure_fgl.data import Dataset, Graph
from tests.laws.runs import ALIKE, Recording, config, record, spread

NAMES = algorithm_names()
FEATURED = [name for name in NAMES if not rated(name)]


@pytest.fixture(scope="module")
def planted() -> Graph:
    return banks()


def planted_in(name: str, graph: Graph) -> Dataset:
    """Return the planted data that an algorithm takes."""
    return ratings() if rated(name) else graph


def places(recording: Recording, *texts: str) -> list[str]:
    """Return where the value or the label is seen, as bytes or as text."""
    everything = {"wire": recording.wire(), **recording.files()}
    return found({**everything, **{f"text {i}": text.encode() for i, text in enumerate(texts)}})


def outputs(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> list[str]:
    shown = capfd.readouterr()
    return [shown.out, shown.err, caplog.text]


@pytest.mark.parametrize(
    ("name", "policy"), spread(NAMES, ["he", "masks", "unsafe_plaintext"], ALIKE)
)
def test_a_planted_value_appears_nowhere(
    name: str,
    policy: str,
    planted: Graph,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    recording = record(config(name, policy), tmp_path / "run", graph=planted_in(name, planted))
    assert recording.run is not None and "report/report.html" in recording.files()
    assert places(recording, *outputs(capfd, caplog)) == []


@pytest.mark.parametrize(("name", "policy"), spread(FEATURED, ["he", "unsafe_plaintext"], ALIKE))
def test_a_failed_training_tells_nothing(
    name: str,
    policy: str,
    planted: Graph,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    x = np.array(planted.x)
    x[:, 8:] = 3e38  # finite in float32, but the layers' sums are not
    graph = dataclasses.replace(planted, x=x)
    wide = config(name, policy, hidden=32)  # two hidden units may both be dead, and nothing fails
    recording = record(wide, tmp_path / "run", graph=graph, fails=True)
    error = recording.error
    assert isinstance(error, SecureFglError), error
    told = [str(error), repr(error), str(error)]
    told += traceback.format_exception(error)
    assert "FloatingPointError" in "".join(told), "".join(told)
    assert places(recording, *told, *outputs(capfd, caplog)) == []
    refusals = [e for e in recording.entries() if e["kind"] == "refusal"]
    assert refusals and {e["code"] for e in refusals} <= {"internal", "unfit"}
    codes = [e for e in recording.envelopes().values() if e.header.item == "refusal.client"]
    sizes = {len(envelope.encode()) for envelope in codes}
    assert codes and sizes == {recording.plan.item("refusal.client").bytes}


def test_the_search_finds_what_is_planted(planted: Graph, tmp_path: Path) -> None:
    recording = record(config("fed_avg", "unsafe_plaintext"), tmp_path / "run", graph=planted)
    wire = recording.wire()
    for needle in [*LONG, *(2 * short for short in SHORT)]:
        assert found({"wire": wire + b"x" + needle + b"y"}) == ["wire: bytes"]
    assert places(recording, "1234.5678") == ["text 0: text"]
    for text in ("1234.57", "1,234.6", "label 4321,", "1.23456789e3", "1.235e+03"):
        assert found({"text": text.encode()}) == ["text: text"]
    (recording.path / "report" / "extra.txt").write_text("label=4321 value")
    assert places(recording) == ["report/extra.txt: text"]
