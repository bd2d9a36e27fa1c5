"""A plan that is rehearsed: on one site's folder, with nothing left of it, and quoted."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from audits.elsewhere.rehearsal import Rehearsal, quoted, read_rehearsal
from protocols.errors import EvidenceError
from secure_fgl.config import Config
from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings
from secure_fgl.data.stand_ins import stand_in
from secure_fgl.elsewhere import rehearsing
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import invoke

SITES = ("east", "north", "south", "west")
SPEC = """
name: pilot
task: node
features: [age, income, tenure, visits]
classes: [fine, risky]
records: 64
split: [0.6, 0.2, 0.2]
"""
CONFIG = """
algorithm: {{name: fed_avg, rounds: 2}}
model: {{name: gcn, hidden: 8}}
data: {{name: own, root: {root}, partition: {{names: [east, north, south, west]}}}}
evaluation: {{references: []}}
policy: strict
"""


def _folder(root: Path, names: tuple[str, ...]) -> Path:
    """A root of own data with folders of some sites, the same ones wherever they lie."""
    root.mkdir(parents=True)
    (root / "spec.yaml").write_text(SPEC)
    for name in names:
        rng = np.random.default_rng(SITES.index(name))
        place = root / name
        place.mkdir()
        risky = rng.random(60) < 0.2 + 0.15 * SITES.index(name)
        rows = rng.normal(size=(60, 4)) + risky[:, None]
        lines = [
            f"n{i},{'risky' if risky[i] else 'fine'}," + ",".join(f"{v:.3f}" for v in row)
            for i, row in enumerate(rows)
        ]
        (place / "nodes.csv").write_text(
            "\n".join(["id,label,age,income,tenure,visits", *lines]) + "\n"
        )
        pairs = [f"n{i},n{(i * 7 + 3) % 60}" for i in range(60) if i != (i * 7 + 3) % 60]
        (place / "edges.csv").write_text("\n".join(["source,target", *pairs]) + "\n")
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders of keys and of temporary files that are this test's alone."""
    place = tmp_path_factory.mktemp("rehearsal")
    with pytest.MonkeyPatch.context() as patch:
        for variable, name in (
            ("SECURE_FGL_STATE", "keys"), ("SECURE_FGL_BUDGETS", "budgets"), ("TMPDIR", "tmp")
        ):  # fmt: skip
            (place / name).mkdir()
            patch.setenv(variable, str(place / name))
        patch.setattr("tempfile.tempdir", None)
        patch.delenv("SECURE_FGL_DATA", raising=False)
        yield place


@pytest.fixture(scope="module")
def config(place: Path) -> Path:
    """Of a site at which one folder of four lies."""
    root = _folder(place / "one", ("north",))
    file = place / "one.yaml"
    file.write_text(CONFIG.format(root=root))
    return file


@pytest.fixture(scope="module")
def rehearsed(place: Path, config: Path) -> Path:
    file = place / "rehearsal.json"
    before = sorted((place / "keys").rglob("*"))  # of runs that other tests made first
    shown = invoke("audit", "rehearse", config, "--out", file)
    assert shown.exit_code == 0, shown.output
    assert "REHEARSAL of the plan" in shown.stdout and "The others' data are not here" in (
        " ".join(shown.stdout.split())
    )
    assert not [*(place / "tmp").iterdir()]
    assert sorted((place / "keys").rglob("*")) == before
    assert not [*(place / "budgets").iterdir()]
    return file


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    """The run that was rehearsed, on all four folders, under a policy that keeps nothing."""
    root = _folder(place / "all", SITES)
    text = CONFIG.format(root=root)
    file = place / "all.yaml"
    file.write_text(text)
    return Federation(config=Config.load(file)).run(place / "run")


def test_one_site_rehearses_what_no_attack_can_look_at(rehearsed: Path) -> None:
    found = Rehearsal.model_validate_json(rehearsed.read_bytes())
    assert found.heading == "REHEARSAL" and found.plan_digest != found.played_digest
    assert (found.here, found.stand_ins) == (("north",), ("east", "south", "west"))
    measured = {row.id for row in found.attacks.rows if row.protected is not None}
    assert {"A04", "A05", "A12"} <= measured  # which need captures, or the clients' data
    assert found.differs == ("capture: none became (rounds=all, days=1)",)
    assert any("drawn" in text for text in found.cannot)


def test_a_report_quotes_it_beside_what_was_not_tested(run: Run, rehearsed: Path) -> None:
    before = run.leakage()
    assert before.rehearsed is None
    shown = invoke("audit", "report", run.path, "--rehearsal", rehearsed, "--fail-on", "never")
    assert shown.exit_code == 0, shown.output
    after = Run(run.path).leakage()
    assert after.rehearsed is not None and after.rehearsed.stand_ins == 3
    rows = {row.id for row in after.rehearsed.rows}
    assert {"A04", "A05"} <= rows
    assert {row.in_run for row in after.rehearsed.rows} == {"NOT_TESTED"}
    # In the place of nothing: all else is as it was.
    assert after.model_copy(update={"rehearsed": None}) == before
    for name in ("report.md", "report.html"):
        page = (run.path / "report" / name).read_text()
        assert "REHEARSAL" in page and after.rehearsed.played_digest in page
    assert Run(run.path).verify().ok
    dropped = invoke("audit", "report", run.path, "--no-rehearsal", "--fail-on", "never")
    assert dropped.exit_code == 0 and not (run.path / "rehearsal.json").exists()


def test_where_the_run_has_a_verdict_of_its_own_nothing_is_quoted(rehearsed: Path) -> None:
    found = Rehearsal.model_validate_json(rehearsed.read_bytes())
    own = [row for row in found.attacks.rows if row.id == "A05"]
    assert "A05" in {row.id for row in quoted(found, ()).rows}
    left = {(row.id, row.what) for row in quoted(found, own).rows}
    assert not left & {(row.id, row.what) for row in own if row.protected is not None}


def test_a_rehearsal_of_another_plan_is_refused_with_both_digests(
    run: Run, rehearsed: Path, config: Path, place: Path
) -> None:
    found = Rehearsal.model_validate_json(rehearsed.read_bytes())
    other = found.model_copy(update={"plan_digest": "ab" * 32})
    file = place / "other.json"
    file.write_text(other.text())
    shown = invoke("audit", "report", run.path, "--rehearsal", file)
    told = "".join(shown.stderr.split())
    assert shown.exit_code == 2 and "ab" * 32 in told and found.plan_digest in told
    # Put into the run by hand it is a finding, and nothing of it is quoted.
    view = replace(run.view(), rehearsal_text=other.text().encode())
    from audits.report.build import build_report

    report = build_report(view)
    assert report.rehearsed is None
    assert "REHEARSAL_REFUSED" in {finding.rule for finding in report.findings}


def test_figures_that_do_not_give_their_verdicts_are_refused(rehearsed: Path) -> None:
    data = rehearsed.read_bytes()
    digest = json.loads(data)["plan_digest"]
    read_rehearsal(data, digest)  # the control: as it was written
    document = json.loads(data)
    row = next(r for r in document["attacks"]["rows"] if r["verdict"] == "INCONCLUSIVE")
    row["verdict"], row["detectable"] = "PASS", "0.1"
    spoilt = (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
    with pytest.raises(EvidenceError, match="figures"):
        read_rehearsal(spoilt, digest)
    for wrong in (b"{}", b"[]", data + b" ", data.replace(b'"REHEARSAL"', b'"RUN"')):
        with pytest.raises(EvidenceError):
            read_rehearsal(wrong, digest)


@pytest.mark.parametrize("end", ["error", "Ctrl-C", "SIGTERM"])
def test_nothing_is_left_however_it_ends(
    end: str, place: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def material(run: Run, **options: Any) -> Any:
        (folder,) = (place / "tmp").iterdir()
        seen["mode"] = stat.S_IMODE(folder.stat().st_mode)
        seen["pieces"] = [p for p in (run.path / "captured").rglob("*") if p.is_file()]
        seen["keys"] = [p for p in (folder / "keys").rglob("*.key")]
        if end == "error":
            raise UsageError("nothing works")
        if end == "Ctrl-C":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGTERM)

    before = sorted((place / "keys").rglob("*"))
    monkeypatch.setattr(rehearsing, "material", material)
    with pytest.raises(UsageError if end == "error" else KeyboardInterrupt):
        rehearsing.rehearse(Config.load(config, ["algorithm.rounds=1"]))
    assert seen["mode"] == 0o700 and seen["pieces"] and seen["keys"]  # the control: it was there
    assert not [*(place / "tmp").iterdir()] and sorted((place / "keys").rglob("*")) == before
    assert os.environ["SECURE_FGL_STATE"] == str(place / "keys")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_plug_in_that_is_to_be_isolated_is_not_run_beside_keys_and_data(
    config: Path, place: Path
) -> None:
    code = place / "theirs.py"
    code.write_text("THEIRS = 1\n")
    for setting in ([], ["isolate=true"]):
        with pytest.raises(UsageError, match="does not isolate"):
            rehearsing.rehearse(Config.load(config, setting), plugins=[code])
    with pytest.raises(UsageError, match="offers nothing"):  # the control: it is looked at
        rehearsing.rehearse(Config.load(config, ["isolate=false"]), plugins=[code])


def test_without_any_folder_of_a_site_it_says_what_is_missing(place: Path) -> None:
    root = place / "none"
    root.mkdir()
    (root / "spec.yaml").write_text(SPEC)
    (root / "elsewhere").mkdir()
    with pytest.raises(UsageError, match="0 folders of the plan's 4 clients"):
        rehearsing.rehearse(Config.parse(_parsed(root)))


def _parsed(root: Path) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(CONFIG.format(root=root))
    return found


def _roles(count: int) -> dict[str, Any]:
    kinds = np.arange(count) % 5
    return {"train": kinds < 3, "val": kinds == 3, "test": kinds == 4}


@pytest.mark.parametrize("sparse", [False, True])
def test_a_stand_in_is_like_its_site_and_holds_no_record_of_it(sparse: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 12)).astype(np.float32)
    x[np.abs(x) < 0.5] = 0
    y = (rng.random(300) < 0.3).astype(np.int64)
    edges = np.unique(np.sort(rng.integers(300, size=(2, 600)), axis=0), axis=1)
    edges = edges[:, edges[0] < edges[1]]
    own = ClientGraph(
        edges, sp.csr_array(x) if sparse else x, y, nodes=np.arange(300), **_roles(300)
    )
    made = stand_in(own, np.random.default_rng(1))
    assert isinstance(made, ClientGraph)
    rows = made.x.toarray() if sparse else made.x
    assert rows.shape == x.shape and rows.dtype == np.float32 and sparse is sp.issparse(made.x)
    assert not {row.tobytes() for row in x} & {row.tobytes() for row in rows}
    assert set(np.unique(rows)) <= set(np.unique(x))  # each number is one of its column's
    assert (made.edges[0] < made.edges[1]).all() and len(np.unique(made.edges, axis=1).T) == len(
        made.edges.T
    )
    assert 0.9 * edges.shape[1] < made.edges.shape[1] <= edges.shape[1]
    mixes = [stand_in(own, np.random.default_rng(n)).y.mean() for n in range(20)]  # type: ignore[union-attr]
    assert np.ptp(mixes) > 0.2  # clients differ, or label counts could not be asked of
    again = stand_in(own, np.random.default_rng(1))
    assert isinstance(again, ClientGraph) and (again.edges == made.edges).all()


def test_stand_ins_of_graphs_and_of_ratings() -> None:
    rng = np.random.default_rng(4)
    sizes = rng.integers(2, 9, size=30)
    starts = np.cumsum(sizes) - sizes
    edges = np.stack([starts, starts + 1])
    own = ClientGraphs(
        sizes, edges, rng.normal(size=(sizes.sum(), 3)).astype(np.float32),
        rng.integers(2, size=30), graphs=np.arange(30), **_roles(30),
    )  # fmt: skip
    made = stand_in(own, rng)
    assert isinstance(made, ClientGraphs) and len(made.sizes) == 30
    of = np.repeat(np.arange(30), made.sizes)
    assert len(of) == len(made.x) and (of[made.edges[0]] == of[made.edges[1]]).all()
    user = np.repeat(np.arange(4), 5)
    rated = ClientRatings(
        user, np.tile(np.arange(5), 4) * 2, rng.integers(1, 6, 20).astype(np.float32),
        rows=np.arange(20), **_roles(20),
    )  # fmt: skip
    other = stand_in(rated, rng)
    assert isinstance(other, ClientRatings)
    assert len({*zip(other.user, other.item, strict=True)}) == 20
    assert set(other.item) <= set(rated.item)
