"""Hostile files: verification never crashes, and no changed byte passes with another meaning."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.errors import EvidenceError
from tests.audits.toy_run import run_toy, text

FLIPS = 100
FEWER = settings(max_examples=settings.default.max_examples // 3)  # whole verifications each
TOY = run_toy()
VIEW = TOY.view()
DOCUMENTS = ("plan_text", "policy_text", "roster_text")
TEXTS = (*DOCUMENTS, "result_text", "metrics_text")


def files() -> dict[tuple[str, str], bytes]:
    """Return every file of the run by the place it takes in a view."""
    found = {(name, ""): getattr(VIEW, name) for name in TEXTS}
    found |= {("ledgers", party): data for party, data in VIEW.ledgers.items()}
    found |= {("checkpoints", party): note.encode() for party, note in VIEW.checkpoints.items()}
    return found | {("reports", name): data for name, data in VIEW.reports.items()}


FILES = files()


def put(place: tuple[str, str], data: bytes) -> RunView:
    """Return the view with one file replaced."""
    kind, name = place
    if kind in TEXTS:
        return replace(VIEW, **{kind: data})
    value = data.decode("utf-8", "replace") if kind == "checkpoints" else data
    return replace(VIEW, **{kind: {**getattr(VIEW, kind), name: value}})


def test_the_files_as_they_are_pass():
    view = VIEW
    for place, data in FILES.items():
        view = replace(view, **{place[0]: getattr(put(place, data), place[0])})
    assert verify(view).ok


@pytest.mark.parametrize(
    "seed", [20_26, *(pytest.param(s, marks=pytest.mark.long) for s in (1, 2))]
)
def test_no_single_changed_byte_passes(seed):
    rng = random.Random(seed)
    places = sorted(FILES)
    survivors = []
    for _ in range(FLIPS):
        place = rng.choice(places)
        data = bytearray(FILES[place])
        position = rng.randrange(len(data))
        data[position] ^= rng.randrange(1, 256)
        found = verify(put(place, bytes(data)))
        if found.ok:
            survivors.append((place, position))
    assert not survivors


@pytest.mark.parametrize("place", sorted(FILES))
def test_cut_doubled_emptied_or_filled_files_never_pass(place):
    data = FILES[place]
    for changed in (data[: len(data) // 2], data + data, b"", b"\0" * 99, b"\n", b"\xff\xfe"):
        assert not verify(put(place, changed)).ok


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)


@given(st.sampled_from(DOCUMENTS), JSON)
def test_any_json_as_a_paper_is_refused_without_a_crash(name, value):
    view = replace(VIEW, **{name: json.dumps(value).encode()})
    assert verify(view).verdict == "FAILED at files"
    with pytest.raises(EvidenceError):
        build_report(view)


@given(st.data())
def test_any_change_of_a_paper_is_refused_without_a_crash(data):
    name = data.draw(st.sampled_from(DOCUMENTS))
    document = json.loads(getattr(VIEW, name))
    key = data.draw(st.sampled_from(sorted(document)))
    value = data.draw(JSON)
    changed = {**document, key: value}
    if json.dumps(changed) == json.dumps(document):
        return
    if data.draw(st.booleans()):
        del changed[key]
    found = verify(replace(VIEW, **{name: text(changed)}))
    assert not found.ok


@FEWER
@given(st.sampled_from(sorted(VIEW.ledgers)), st.lists(st.binary(max_size=80), max_size=5))
def test_any_bytes_as_a_ledger_are_refused_without_a_crash(party, parts):
    view = replace(VIEW, ledgers={**VIEW.ledgers, party: b"\n".join(parts)})
    assert not verify(view).ok
    build_report(view)  # a broken ledger still gets its report, which says so


@FEWER
@given(st.dictionaries(st.text(max_size=9), JSON, max_size=6))
def test_any_result_is_rendered_or_refused(result):
    found = {**result, "metrics": result, "backend": result}
    view = replace(VIEW, result_text=json.dumps(found).encode(), reports={})
    assert not verify(view).ok
    with contextlib.suppress(EvidenceError):  # NaN and Infinity are refused
        build_report(view)


@FEWER
@given(st.sampled_from(sorted(VIEW.ledgers)), st.text(max_size=200))
def test_any_text_as_a_head_is_refused_without_a_crash(party, note):
    notes = {**VIEW.checkpoints, party: note}
    assert verify(replace(VIEW, checkpoints=notes)).verdict == "FAILED at tree"
    assert verify(replace(VIEW, held_heads={party: note})).verdict == "FAILED at heads"
