"""A new algorithm is one new file: the catalogue finds it and the laws judge it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import algorithms
from algorithms import fed_avg
from protocols.errors import NotAdmitted
from secure_fgl import _floors
from secure_fgl.catalogue import algorithm_names
from secure_fgl.federation import Federation
from tests import forked
from tests.laws import test_admission as admission
from tests.laws import test_equality as equality
from tests.laws import test_evidence as evidence
from tests.laws import test_wiretap as wiretap
from tests.laws.conftest import Recorded
from tests.laws.runs import POLICIES, config

NEW = "zz_new"
SOURCE = Path(str(fed_avg.__file__)).read_text("utf-8")


@pytest.fixture
def drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the catalogue looks into as well.

    The guard would refuse it, as a second folder of a floor (tests/secure_fgl/test_floors.py).
    """
    monkeypatch.setattr(_floors, "check", lambda: None)
    folder = tmp_path / "dropped"
    folder.mkdir()
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(folder)])
    yield folder
    sys.modules.pop(f"algorithms.{NEW}", None)
    vars(algorithms).pop(NEW, None)


def write(folder: Path, *changes: tuple[str, str]) -> None:
    text = SOURCE.replace('name="fed_avg"', f'name="{NEW}"')
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / f"{NEW}.py").write_text(text, "utf-8")


def test_a_copy_under_a_new_name_is_judged_by_every_law(
    drop: Path, recorded: Recorded, tmp_path: Path
) -> None:
    assert NEW not in algorithm_names()
    write(drop)
    assert NEW in algorithm_names()
    for policy in ("masks", "unsafe_plaintext"):
        admission.test_admitted_in_some_form(NEW, policy)
        admission.test_every_field_has_shape_unit_and_meaning(NEW, policy)
        admission.test_planned_bytes_are_the_bytes_sent_and_counts_stay_within_times(
            NEW, policy, recorded
        )
        evidence.test_one_entry_at_the_sender_and_one_at_each_receiver(NEW, policy, recorded)
    refused = tmp_path / "refused"
    refused.mkdir()
    admission.test_refused_before_data_folder_or_ledger_exist(NEW, admission.NO_SUM, refused)
    wiretap.test_a_wiretap_sees_no_clear_payload(NEW, "he", recorded)
    equality.test_every_policy_gives_the_same_model_and_metrics(NEW, POLICIES, recorded)
    same = {recorded(name, "he").result["model_sha256"] for name in (NEW, "fed_avg")}
    assert len(same) == 1


@pytest.mark.long
def test_a_copy_under_a_new_name_learns_the_same_at_sites(
    drop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.sites.test_equality import test_sites_learn_what_memory_learns as at_sites

    forked.use(monkeypatch)  # a fresh process would not look into the folder
    write(drop)
    at_sites(NEW, "masks", tmp_path)


def test_a_file_that_sends_each_update_is_not_admitted_by_the_pilot(drop: Path) -> None:
    write(
        drop,
        ("    SumMessage,\n", "    NoisedMessage,\n    SumMessage,\n"),
        ("class Update(SumMessage)", "class Update(NoisedMessage)"),
        ("reach=1.0), *equal)", "reach=1.0),)"),
    )
    assert NEW in algorithm_names()
    with pytest.raises(NotAdmitted) as refused:
        Federation.from_config(config(NEW)).plan()
    assert "Update" in refused.value.why and "NOISED" in refused.value.why


def test_a_field_without_a_unit_breaks_the_law(drop: Path) -> None:
    write(drop, ('unit="weight x record"', 'unit=""'))
    with pytest.raises(AssertionError):
        admission.test_every_field_has_shape_unit_and_meaning(NEW, "pilot")


def test_a_dimension_that_nobody_sizes_cannot_be_planned(drop: Path) -> None:
    write(drop, ('dims={"d": task.size}', "dims={}"))
    with pytest.raises(Exception, match=r"'d'|dimension"):
        Federation.from_config(config(NEW)).plan()
