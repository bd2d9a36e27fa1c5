"""`spec.yaml`: closed, checked key by key, and all that a plan needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from secure_fgl.data.own import load_spec
from secure_fgl.errors import UsageError
from tests.secure_fgl.own_tools import GRAPH, NODE, RATING, spec


def write(tmp_path: Path, document: Any) -> Path:
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    (tmp_path / "spec.yaml").write_text(text, "utf-8")
    return tmp_path


def test_a_node_spec_is_what_a_plan_may_know(tmp_path: Path) -> None:
    found = load_spec(write(tmp_path, NODE)).data_spec(5)
    assert (found.task, found.features, found.classes, found.records) == ("node", 2, 2, 64)
    assert (found.clients, found.synthetic, found.name) == (5, False, "pilot")


def test_a_graph_spec_knows_the_atoms_features() -> None:
    from secure_fgl.data.sources.molecules import FEATURES

    found = spec(GRAPH).data_spec(3)
    assert (found.features, found.classes, found.multilabel) == (FEATURES, 2, True)
    assert spec(GRAPH, features=7).data_spec(3).features == 7
    one = spec(GRAPH, classes=["active"]).data_spec(3)
    assert one.classes == 1


def test_a_rating_spec_knows_the_scale() -> None:
    found = spec(RATING).data_spec(3)
    assert (found.users, found.items, found.lowest, found.highest) == (10, 20, 1, 5)
    assert (found.features, found.classes) == (0, 1)
    below = spec(RATING, lowest=-5, highest=0).data_spec(3)
    assert (below.lowest, below.highest) == (-5, 0)


def test_no_file_but_the_spec_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, NODE)
    read = Path.read_text

    def only_the_spec(self: Path, *arguments: Any) -> str:
        assert self.name == "spec.yaml"
        return read(self, *arguments)

    monkeypatch.setattr(Path, "read_text", only_the_spec)
    monkeypatch.setattr(Path, "read_bytes", None)
    monkeypatch.setattr(Path, "iterdir", None)
    assert load_spec(tmp_path).data_spec(4).clients == 4


def test_labels_that_are_numbers_may_be_written_so() -> None:
    assert spec(NODE, classes=[1, 2, 5]).labels == ("1", "2", "5")
    assert spec(NODE, classes=3).labels == ("0", "1", "2")
    assert spec(NODE, features=2).feature_columns == ("x0", "x1")
    assert spec(GRAPH, classes=2).label_columns == ("y0", "y1")


@pytest.mark.parametrize(
    ("base", "changes", "word"),
    [
        (NODE, {"featurs": 3}, "did you mean 'features'"),
        (NODE, {"task": "edge"}, "task"),
        (NODE, {"records": 1000}, "power of two, for example 1024"),
        (NODE, {"records": 0}, "records"),
        (NODE, {"features": None}, "needs features"),
        (NODE, {"classes": None}, "needs classes"),
        (NODE, {"classes": ["fine"]}, "at least two"),
        (NODE, {"classes": 1}, "at least two"),
        (NODE, {"classes": ["fine", "fine"]}, "twice"),
        (NODE, {"features": ["age", "age"]}, "twice"),
        (NODE, {"features": ["age", "split"]}, "'split' has a meaning of its own"),
        (NODE, {"features": ["label"]}, "'label' has a meaning of its own"),
        (NODE, {"features": 0}, "features"),
        (NODE, {"features": []}, "features"),
        (NODE, {"features": ["age", ""]}, "features"),
        (NODE, {"multilabel": True}, "a node task has no multilabel"),
        (NODE, {"users": 3}, "a node task has no users"),
        (NODE, {"highest": 3}, "a node task has no highest"),
        (NODE, {"vocabulary": {"items": "0" * 64}}, "no vocabulary"),
        (NODE, {"split": [0.5, 0.5, 0.5]}, "sum to 1"),
        (NODE, {"split": [0, 0.5, 0.5]}, "training above 0"),
        (NODE, {"split": "colum"}, "split"),
        (NODE, {"name": "a b"}, "name"),
        (NODE, {"name": "../x"}, "name"),
        (GRAPH, {"classes": None}, "needs classes"),
        (GRAPH, {"classes": ["label", "toxic"]}, "'label' has a meaning of its own"),
        (GRAPH, {"features": ["toxic"]}, "as a feature and as a label"),
        (GRAPH, {"multilabel": False, "classes": ["a"]}, "at least two"),
        (RATING, {"users": None}, "needs users"),
        (RATING, {"items": None}, "needs items"),
        (RATING, {"highest": 1}, "lowest below highest"),
        (RATING, {"highest": float("inf")}, "highest"),
        (RATING, {"classes": 2}, "a rating task has no classes"),
        (RATING, {"users": 2**31}, "users"),
        (RATING, {"vocabulary": {"items": "abc"}}, "vocabulary"),
        (RATING, {"vocabulary": {"films": "0" * 64}}, "vocabulary"),
    ],
)
def test_a_wrong_key_is_named(base: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        spec(base, **changes)


def test_truth_values_among_labels_are_explained(tmp_path: Path) -> None:
    text = (
        yaml.safe_dump({k: v for k, v in NODE.items() if k != "classes"}) + "classes: [yes, no]\n"
    )
    with pytest.raises(UsageError) as caught:
        load_spec(write(tmp_path, text))
    assert "put every name in quotes" in caught.value.why


@pytest.mark.parametrize("text", ["a: [", "- 1\n", "", "&a [*a]", "a: \x00"])
def test_what_is_no_spec_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"spec\.yaml"):
        load_spec(write(tmp_path, text))


def test_a_missing_spec_names_its_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        load_spec(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere" / "spec.yaml") in str(caught.value)
    assert "secure-fgl init" in caught.value.fix


def test_an_error_holds_no_value(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_spec(write(tmp_path, {**NODE, "records": "Mallory"}))
    assert "records" in caught.value.why
    assert "Mallory" not in str(caught.value)
