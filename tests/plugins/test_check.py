"""The check finds what it can find, and names what it cannot: each by a leak that is planted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from secure_fgl.checking.laws import LAWS, UNSEEN, admitted, ask, told
from secure_fgl.checking.subject import Subject, subject_of
from secure_fgl.data.loading import load
from tests.plugins.leaks import CAUGHT, DIGITS
from tests.plugins.leaks import UNSEEN as LEAKS
from tests.plugins.page import DATA, FEDPROX, MODEL, PARTITION, ROOT, changed, write
from tests.secure_fgl.cli_tools import invoke

BY_NAME = {law.name: law for law in LAWS}
SLOW = {"policies", "resume", "isolation"}


def statuses(subject: Subject, *names: str) -> dict[str, str]:
    found = [ask(BY_NAME[name], subject) for name in names]
    return {outcome.law: f"{outcome.status}: {outcome.detail}" for outcome in found}


@pytest.mark.parametrize("leak", sorted(CAUGHT))
def test_a_planted_fault_breaks_its_law(leak: str, tmp_path: Path) -> None:
    law, text = CAUGHT[leak]
    with subject_of([write(tmp_path, text=text)]) as subject:
        found = statuses(subject, "runs", law)
        assert found[law].startswith("FAIL: "), found
        assert law == "runs" or found["runs"].startswith("OK"), found


def test_without_the_faults_their_laws_are_kept(tmp_path: Path) -> None:
    """Control: the same file before it was changed."""
    laws = {law for law, _ in CAUGHT.values()}
    with subject_of([write(tmp_path)]) as subject:
        found = statuses(subject, *sorted(laws))
    assert set(found) == laws and all(text.startswith("OK") for text in found.values()), found


@pytest.mark.parametrize(
    "leak", [n if n != "later" else pytest.param(n, marks=pytest.mark.long) for n in sorted(LEAKS)]
)
def test_a_leak_that_no_law_finds_is_named_among_what_is_not_seen(
    leak: str, tmp_path: Path
) -> None:
    section, text = LEAKS[leak]
    assert section in UNSEEN
    names = [law.name for law in LAWS if law.name != "shape" and law.name not in SLOW]
    with subject_of([write(tmp_path, text=text)]) as subject:
        found = statuses(subject, *names)
        assert all(text.startswith("OK") for text in found.values()), found
        lines = dict(told(subject, admitted(subject)))
    if leak == "wide":  # what a reader has beside it: the bound, and what was said at most
        assert "at most 32" in lines["  .delta"] and "said 0.0" in lines["  .delta"]


def test_the_digits_really_tell_one_record_s_feature(tmp_path: Path) -> None:
    with subject_of([write(tmp_path, text=DIGITS)]) as subject:
        probe = subject.preset("unsafe_plaintext")
        task, algorithm = probe.build()
        site = load(probe.config, task).sites[2]
        start = algorithm.init(np.random.default_rng(1))
        said = algorithm.forms[0].exchanges[0].answer(site, start)
        read = np.round((said.delta - np.round(said.delta, 1)) / 0.01).astype(int) % 10
        assert set(read) == {int(abs(float(site.data.x[0, 2])) * 8) % 8}


def test_a_file_that_no_preset_admits(tmp_path: Path) -> None:
    text = changed(
        ("ReleasedMessage, SumMessage,", "NoisedMessage, ReleasedMessage,"),
        ("class Update(SumMessage)", "class Update(NoisedMessage)"),
        (", Vector, count, real", ", Vector, count, real  # noqa"),
    )
    with subject_of([write(tmp_path, text=text)]) as subject:
        found = admitted(subject)
        assert "Update" in found["pilot"] and found["pilot"].startswith("no: ")


@pytest.mark.parametrize(
    ("name", "text", "asked"),
    [
        ("my_sum", MODEL, ("plans", "runs", "repeats", "memory")),
        ("my_ring", DATA, ("plans", "shape", "runs", "repeats")),
        ("my_fifth", PARTITION, ("plans", "runs", "repeats")),
    ],
)
def test_models_data_and_partitions_keep_the_laws_that_are_asked_of_them(
    name: str, text: str, asked: tuple[str, ...], tmp_path: Path
) -> None:
    with subject_of([write(tmp_path, name, text)]) as subject:
        assert {law.name for law in LAWS if subject.main.kind in law.kinds} >= set(asked)
        found = statuses(subject, *asked)
        assert all(text.startswith("OK") for text in found.values()), found


def test_a_description_that_is_not_the_data_breaks_the_law(tmp_path: Path) -> None:
    text = changed(('Shape("node", 8, 2, 200', 'Shape("node", 8, 2, 100'), text=DATA)
    with subject_of([write(tmp_path, "my_ring", text)]) as subject:
        assert "records = 100" in statuses(subject, "shape")["shape"]


def test_exit_codes_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from secure_fgl.checking import laws

    monkeypatch.setattr(laws, "LAWS", tuple(BY_NAME[n] for n in ("plans", "repeats")))
    broken = invoke("check", write(tmp_path, text=CAUGHT["chance"][1]), "--format", "json")
    assert broken.exit_code == 3
    document = json.loads(broken.stdout)
    assert [law["status"] for law in document["laws"]] == ["OK", "FAIL"]
    assert document["plugin"]["kind"] == "algorithm" and set(document["unseen"]) == set(UNSEEN)
    assert invoke("check", tmp_path / "none.py").exit_code == 2

    def unasked(subject: Subject) -> list[str]:
        raise laws.Unasked("there is no such kernel")

    monkeypatch.setattr(laws, "LAWS", (laws.Law("isolation", unasked, ""),))  # type: ignore[arg-type]
    file = write(tmp_path, text=FEDPROX)
    assert invoke("check", file).exit_code == 0
    assert invoke("check", file, "--strict").exit_code == 4


def test_an_error_of_the_plug_in_is_a_broken_law_with_its_text(tmp_path: Path) -> None:
    text = changed(
        ("        w = site.memory", '        raise ValueError("so")\n        w = site.memory')
    )
    with subject_of([write(tmp_path, text=text)]) as subject:
        assert "ValueError: so" in statuses(subject, "runs")["runs"]


OURS = {
    "fed_ego": ("fields", "runs", "repeats", "memory"),
    "fed_pub": ("memory", "held-out"),
    "fed_per_gnn": ("runs", "memory", "planted"),
    "local": ("memory", "clipping"),
}
"""What single ones of ours show: mixtures, weighted sums, ratings, clients that say nothing."""


@pytest.mark.parametrize(
    "name", [n if n == "fed_pub" else pytest.param(n, marks=pytest.mark.long) for n in sorted(OURS)]
)
def test_our_own_algorithms_keep_the_laws_as_plug_ins(name: str, tmp_path: Path) -> None:
    ours = (ROOT / "algorithms" / f"{name}.py").read_text("utf-8")
    text = changed((f'name="{name}"', f'name="my_{name}"'), text=ours)
    with subject_of([write(tmp_path, f"my_{name}", text)]) as subject:
        found = statuses(subject, *OURS[name])
        assert all(text.startswith("OK") for text in found.values()), found
