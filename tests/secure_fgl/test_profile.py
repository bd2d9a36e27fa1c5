"""A run that is profiled: where time and bytes went, each moment counted once."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from audits.bundle.making import portable
from audits.formats import render
from audits.report.build import build_report
from audits.report.method import NOT_PROFILED, cost
from crypto import spans
from crypto.spans import KINDS, spent
from protocols.wire.roles import Role
from secure_fgl.checking import small
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.run.profile import watch as watching
from secure_fgl.run.profile.flames import flame_graph
from secure_fgl.run.profile.tables import document, table
from secure_fgl.run.profile.watch import Watch
from secure_fgl.store.finished_run import Run
from tests.kept import kept

TOLERANCE = 1e-6  # of floats that are added up in another order


def ran(out: Path, *, profile: bool, workers: int = 1) -> Run:
    document = {**small.document("fed_avg", "he"), "transport": {"workers": workers}}
    with kept():
        return Federation.from_config(Config.parse(document)).run(out, profile=profile)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("profiled")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECURE_FGL_STATE", str(folder / "keys"))
        return {
            "plain": ran(folder / "plain", profile=False),
            "one": ran(folder / "one", profile=True),
            "two": ran(folder / "two", profile=True, workers=2),
        }


def said(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.folder.read("profile/profile.json"))
    return found


class Clock:
    """Goes on by one at every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ticks = itertools.count()
        monkeypatch.setattr(watching.time, "perf_counter_ns", lambda: next(self._ticks))


def test_each_moment_belongs_to_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)

    @spent("cryptography")
    def inner() -> None:
        return None

    @spent("state")
    def outer() -> None:
        inner()
        spans.reached(1)
        raise ValueError

    watch = Watch()
    with pytest.raises(ValueError), watch.listening():
        inner()
        with watch.party(Role.CLIENT):
            outer()
    places = {place: spent for place, (spent, _) in watch.places.items()}
    assert places == {
        (0, ("aggregator",)): 2,
        (0, ("aggregator", "cryptography")): 1,
        (0, ("client",)): 1,
        (0, ("client", "state")): 2,
        (0, ("client", "state", "cryptography")): 1,
        (1, ("client", "state")): 1,
        (1, ("client",)): 1,
        (1, ("aggregator",)): 1,
    }
    assert sum(places.values()) == watch.wall
    inner()  # nobody listens any more
    assert sum(spent for spent, _ in watch.places.values()) == watch.wall


@pytest.mark.parametrize("name", ["one", "two"])
def test_all_tables_add_up_to_the_same_whole(name: str, runs: dict[str, Run]) -> None:
    found = said(runs[name])
    for rows in ("roles", "rounds"):
        whole = sum(ms for row in found[rows] for ms in row["ms"].values())
        assert whole == pytest.approx(found["all_ms"], rel=TOLERANCE)
        assert all(set(row["ms"]) <= set(KINDS) for row in found[rows])
    assert sum(p["ms"] for p in found["paths"]) == pytest.approx(found["all_ms"], rel=TOLERANCE)
    roles = {row["of"]: row for row in found["roles"]}
    assert set(roles) == {"aggregator", "client", "key_authority"}
    assert [row["of"] for row in found["rounds"]] == [0, 1, 2]
    waited = roles["aggregator"]["ms"].get("waiting (processes)", 0.0)
    if name == "one":
        assert found["wall_ms"] == pytest.approx(found["all_ms"], rel=TOLERANCE)
        assert waited == 0
    else:
        assert 0 < waited < found["wall_ms"] < found["all_ms"]
    for kind in ("cryptography", "encoding", "signatures", "ledger", "state", "waiting (disk)"):
        assert roles["client"]["ms"][kind] > 0
    assert roles["client"]["ms"]["learning"] > 0
    assert "learning" not in roles["key_authority"]["ms"]


def test_bytes_and_syncs_are_counted_alike_with_any_number_of_workers(
    runs: dict[str, Run],
) -> None:
    one, two = (said(runs[name]) for name in ("one", "two"))
    for rows in ("roles", "rounds"):
        for first, second in zip(one[rows], two[rows], strict=True):
            names = ("syncs", "bytes received", "bytes sent", "bytes of ledgers")
            counts = [{n: row["counts"].get(n) for n in names} for row in (first, second)]
            assert counts[0] == counts[1]
    client = next(row["counts"] for row in one["roles"] if row["of"] == "client")
    result = runs["one"].result
    assert client["bytes sent"] >= result["bytes_up"]
    size = sum(f.stat().st_size for f in (runs["one"].path / "ledger").glob("*.jsonl"))
    assert sum(row["counts"]["bytes of ledgers"] for row in one["roles"]) == size
    assert runs["one"].result["model_sha256"] == runs["plain"].result["model_sha256"]


def test_without_being_asked_nothing_listens(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not (runs["plain"].path / "profile").exists()
    assert "profile" not in runs["plain"].result
    told: list[Any] = []
    monkeypatch.setattr(spans, "listen", told.append)
    monkeypatch.setattr(Watch, "enter", lambda self, kind: told.append(kind))
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    ran(tmp_path / "run", profile=False)
    assert told == []
    ran(tmp_path / "again", profile=True)
    assert told  # the control


def test_the_picture_is_one_well_formed_file_that_needs_nothing(runs: dict[str, Run]) -> None:
    text = runs["one"].folder.read("profile/flames.svg").decode()
    root = ElementTree.fromstring(text)
    names = {node.tag.rpartition("}")[2] for node in root.iter()}
    assert names == {"svg", "rect", "title", "text", "g"}
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "href" not in text
    assert "style" not in text


def test_names_are_escaped() -> None:
    name = "<script>\"'&]]>"
    text = flame_graph({("client", name): 5, ("client",): 3, (): 1}, name)
    root = ElementTree.fromstring(text)
    assert any(name in (node.text or "") for node in root.iter())
    assert "<script" not in text
    assert ElementTree.fromstring(flame_graph({}, "")) is not None


def test_the_text_has_80_columns(runs: dict[str, Run]) -> None:
    for name in ("one", "two"):
        text = runs[name].folder.read("profile/profile.txt").decode()
        assert max(map(len, text.splitlines())) <= 80
    watch = Watch()
    for number in range(100):
        watch.places[number, ("client", "state")] = 10**12, 1
        watch.counts[number, "key_authority", "bytes of state"] = 10**9
    lines = table(document(watch, 0)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "60 more rounds stand in profile.json." in lines


def test_the_report_has_a_section_in_every_form(runs: dict[str, Run]) -> None:
    for name in ("plain", "one"):
        view = runs[name].view()
        report = build_report(view)
        files = render(report, ["html", "json", "md", "csv"])
        assert view.reports == files  # as the run left them
        page, text = (files[f"report.{end}"].decode() for end in ("html", "md"))
        assert "What did protection cost?" in page
        assert "## 11. What protection cost" in text
        told = json.loads(files["report.json"])["cost"]
        if name == "plain":
            assert told is None
            assert NOT_PROFILED in page
            assert NOT_PROFILED in text
            continue
        assert told["learning_ms"] + told["protection_ms"] == sum(s["ms"] for s in told["spent"])
        for shown in (page, text):
            assert "syncs a round" in shown
            assert "waiting (disk)" in shown
        assert runs[name].verify().verdict == "self-consistent only"


def test_nothing_of_it_is_in_a_bundle(runs: dict[str, Run]) -> None:
    view = runs["one"].view()
    assert b'"profile"' in view.result_text
    bare = portable(view)
    assert b'"profile"' not in bare.result_text
    assert build_report(bare).cost is None


ROW = {"role": "client", "ms": {"learning": 3, "the rest": 4}, "syncs": 1, "ledger_bytes": 2}
GOOD = {
    "wall_ms": 7, "workers": 0, "syncs_a_round": 1, "rows": [{**ROW, "state_bytes": 0}],
}  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        None, [], "x", {}, {**GOOD, "rows": [ROW]}, {**GOOD, "wall_ms": 1.5},
        {**GOOD, "workers": True}, {**GOOD, "syncs_a_round": -1}, {**GOOD, "rows": 3},
        {**GOOD, "rows": [{**GOOD["rows"][0], "role": "<b>"}]},  # type: ignore[index]
        {**GOOD, "rows": [{**GOOD["rows"][0], "ms": {"learning": "1"}}]},  # type: ignore[index]
        {**GOOD, "rows": [{**GOOD["rows"][0], "role": ["client"]}]},  # type: ignore[index]
    ],
)  # fmt: skip
def test_what_is_no_profile_is_none(bad: Any) -> None:
    assert cost({"profile": bad}) is None
    found = cost({"profile": GOOD})
    assert found is not None
    assert (found.learning_ms, found.protection_ms) == (3, 4)


def test_a_report_holds_only_names_of_ours(runs: dict[str, Run]) -> None:
    result = json.loads(runs["one"].view().result_text)
    result["profile"]["rows"][0]["ms"]["<i>strange</i>"] = 1
    view = replace(runs["one"].view(), result_text=json.dumps(result).encode())
    assert "strange" not in render(build_report(view), ["md"])["report.md"].decode()
