"""A model of one's own starts from what its module makes, learns, and holds no running figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import yaml

from algorithms.tasks.flat import Sized
from secure_fgl.checking.laws import LAWS, ask
from secure_fgl.checking.subject import subject_of
from secure_fgl.data.datasets import GENERATED, dataset_names, is_generated
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.reasons import explain
from tests.plugins.page import MODEL, changed, config, write
from tests.secure_fgl.cli_tools import invoke

BY_NAME = {law.name: law for law in LAWS}
NORM = "self.norm = torch.nn.LayerNorm(hidden)\n        self.last ="
USED = "torch.relu(self.norm(product(x, self.first)))"


def normed(norm: str = NORM, used: str = USED) -> str:
    """Return the page's model with a layer between its two."""
    return changed(("self.last =", norm), ("torch.relu(product(x, self.first))", used), text=MODEL)


def federation(file: Path, **more: Any) -> Federation:
    chosen = config(
        algorithm={"name": "fed_avg", "rounds": 2},
        model={"name": file.stem, "hidden": 8},
        evaluation={"references": []},
        **more,
    )
    return Federation(config=chosen, plugins=[file])


def parts(file: Path, seed: int = 0) -> dict[str, Any]:
    """Return the starting values by parameter."""
    task: Any = federation(file).build()[0]
    flat, place, found = task.initial(np.random.default_rng(seed)), 0, {}
    for name, shape in task.layout():
        size = int(np.prod(shape))
        found[name] = flat[place : place + size].reshape(shape)
        place += size
    return found


def test_scales_start_as_their_module_makes_them_and_the_rest_is_drawn(tmp_path: Path) -> None:
    found = parts(write(tmp_path, "my_sum", normed()))
    assert (found["norm.weight"] == 1.0).all() and (found["norm.bias"] == 0.0).all()
    assert np.isfinite(found["first"]).all() and found["first"].std() > 0.0


def test_the_start_is_the_seed_s_and_another_seed_s_another(tmp_path: Path) -> None:
    text = normed("self.mid = torch.nn.Linear(hidden, hidden)\n        self.last =",
                  "self.mid(torch.relu(product(x, self.first)))")  # fmt: skip
    file = write(tmp_path, "my_sum", text)
    one, again, other = parts(file), parts(file), parts(file, 1)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["mid.weight"], other["mid.weight"])


def test_a_buffer_that_training_changes_is_refused_with_what_to_do(tmp_path: Path) -> None:
    norm = "self.norm = torch.nn.BatchNorm1d(hidden)\n        self.last ="
    file = write(tmp_path, "my_sum", normed(norm))
    with pytest.raises(UsageError, match=r"norm\.running_mean") as refused:
        federation(file).build()
    assert "nobody adds up" in refused.value.why and "LayerNorm" in refused.value.fix


@pytest.mark.parametrize(
    ("norm", "used"),
    [
        (
            "self.norm = torch.nn.BatchNorm1d(hidden, track_running_stats=False)\n"
            "        self.last =",
            USED,
        ),
        (
            "self.register_buffer('fixed', torch.rand(hidden))\n        self.last =",
            "self.fixed * torch.relu(product(x, self.first))",
        ),
    ],
)
def test_a_buffer_that_stays_is_the_same_at_every_client(
    norm: str, used: str, tmp_path: Path
) -> None:
    task: Any = federation(write(tmp_path, "my_sum", normed(norm, used))).build()[0]
    one, other = (dict(task.module().named_buffers()) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_check_asks_whether_a_model_learns(tmp_path: Path) -> None:
    """The control starts every scale at 0, as all parameters without two dimensions once did."""
    file = write(tmp_path, "my_sum", normed())

    def outcome() -> Any:
        with subject_of([file]) as subject:
            return ask(BY_NAME["learns"], subject), ask(BY_NAME["start"], subject)

    learns, start = outcome()
    assert (learns.status, start.status) == ("OK", "OK"), (learns, start)
    with patch("algorithms.nn._shared.modules.started", lambda module, drawn: drawn):
        learns, start = outcome()
    assert learns.status == start.status == "FAIL"
    assert "commonest class" in learns.detail and "norm.weight" in start.detail


def test_a_module_that_is_made_otherwise_each_time_breaks_the_law(tmp_path: Path) -> None:
    text = changed(
        ("import torch\n", "import numpy as np\nimport torch\n"),
        ("torch.empty(hidden, classes)",
         "torch.tensor(np.random.default_rng().normal(size=(hidden, classes))).float()"),
        text=MODEL,
    )  # fmt: skip
    with subject_of([write(tmp_path, "my_sum", text)]) as subject:
        found = ask(BY_NAME["start"], subject)
    assert found.status == "FAIL" and "last is made otherwise each time" in found.detail


def test_ours_are_drawn_as_before() -> None:
    chosen = config(algorithm={"name": "fed_avg", "rounds": 1}, model={"name": "gcn", "hidden": 8})
    task: Any = Federation(config=chosen).build()[0]
    drawn = Sized._unmade(task, np.random.default_rng(3))
    assert np.array_equal(task.initial(np.random.default_rng(3)), drawn)


BROKEN = changed(("@ self.last)", "@ self.first)"), text=MODEL)


@pytest.mark.parametrize("isolate", [True, False])
def test_a_plug_in_s_error_names_its_own_line(isolate: bool, tmp_path: Path) -> None:
    file = write(tmp_path, "my_sum", BROKEN)
    line = next(n for n, text in enumerate(BROKEN.splitlines(), 1) if "@ self.first" in text)
    with pytest.raises(Exception, match="internal") as refused:
        federation(file, isolate=isolate).run(tmp_path / "run")
    assert "does not allow" not in str(refused.value)  # no policy refused it
    told = "\n".join(explain(refused.value))
    assert f"my_sum.py, line {line}: return" in told and "cannot be multiplied" in told
    assert "does not allow" not in told and "the code of a plug-in raised it" in told
    if not isolate:
        refused.value.generated = False  # type: ignore[attr-defined]
        told = "\n".join(explain(refused.value))  # of real data the text may hold a value
        assert f"my_sum.py, line {line}: return" in told and "cannot be multiplied" not in told


def test_the_check_names_the_line_as_well(tmp_path: Path) -> None:
    shown = invoke("check", write(tmp_path, "my_sum", BROKEN), "--format", "json")
    line = next(n for n, text in enumerate(BROKEN.splitlines(), 1) if "@ self.first" in text)
    assert shown.exit_code == 3 and f"my_sum.py, line {line}: return" in shown.stdout


def test_texts_of_errors_on_tables_called_synthetic_are_not_shown(tmp_path: Path) -> None:
    """`synthetic: true` in spec.yaml is anybody's word; the control is the test above."""
    shared = {"name": "pilot", "task": "node", "features": 6, "classes": 2, "records": 64}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**shared, "synthetic": True}))
    names = [f"bank-{n}" for n in range(5)]
    head = "id,label," + ",".join(f"x{n}" for n in range(6)) + "\n"
    for name in names:
        (tmp_path / name).mkdir()
        rows = "".join(f"n{n},{n % 2}{',1.5' * 6}\n" for n in range(120))
        (tmp_path / name / "nodes.csv").write_text(head + rows)
        (tmp_path / name / "edges.csv").write_text("source,target\nn0,n1\n")
    data = {"name": "own", "root": str(tmp_path), "partition": {"names": names}}
    run = federation(write(tmp_path / "code", "my_sum", BROKEN), data=data, isolate=False)
    assert run.plan().data.synthetic
    with pytest.raises(Exception, match="internal") as refused:
        run.run(tmp_path / "run")
    told = "\n".join(explain(refused.value))
    assert "my_sum.py, line" in told and "cannot be multiplied" not in told


def test_whose_word_it_is_that_data_are_generated() -> None:
    """Texts of foreign errors are shown of what our own generators drew, and of nothing else."""
    chosen = config(algorithm={"name": "fed_avg", "rounds": 1})
    ours = Federation(config=chosen).plan()
    assert is_generated(ours)  # the control
    for changes in (
        {"data": ours.data.model_copy(update={"spec": "ab" * 32})},  # spec.yaml: synthetic: true
        {"data": ours.data.model_copy(update={"name": "pilot"})},
        {"code": {**ours.code, "plugin.data.theirs": "cd" * 32}},
    ):
        theirs = ours.model_copy(update=changes)
        assert theirs.data.synthetic and not is_generated(theirs)
    assert {name for name in dataset_names() if name.startswith("synthetic_")} == GENERATED


def test_a_fault_of_ours_is_said_as_one(tmp_path: Path) -> None:
    chosen = config(algorithm={"name": "fed_avg", "rounds": 1})
    wrong = IndexError("amax(): Expected reduction dim 0 to have non-zero size")

    def fails(*_: Any, **__: Any) -> Any:
        raise wrong

    with (
        patch("algorithms.tasks.flat.FlatTask.fit", fails),
        pytest.raises(Exception, match="internal") as refused,
    ):
        Federation(config=chosen).run(tmp_path / "run")
    told = "\n".join(explain(refused.value))
    assert "a fault in the program, not in your data" in told and "--verbose" in told
    refused.value.__cause__ = ValueError("a label outside the classes")
    assert "not in your data" not in "\n".join(explain(refused.value))  # control


def test_an_error_while_a_model_is_built_names_the_plug_in_s_line(tmp_path: Path) -> None:
    text = changed(("self.last =", "{}['none']\n        self.last ="), text=MODEL)
    file = write(tmp_path, "my_sum", text)
    with pytest.raises(KeyError) as raised:
        federation(file).plan()
    told = explain(raised.value)
    assert told[0] == "Error: The code of a plug-in raised KeyError."
    assert "my_sum.py, line" in told[-2] and "secure-fgl check" in told[-1]
    assert not any("Internal" in line for line in told)


LINEAR = changed(
    ("torch.nn.Parameter(torch.empty(features, hidden))", "torch.nn.Linear(features, hidden)"),
    ("product(x, self.first)", "self.first(x)"),
    text=MODEL,
)
"""The page's model with a layer that torch draws."""


def test_a_layer_that_torch_draws_starts_as_its_module_makes_it(tmp_path: Path) -> None:
    """The control starts from what the task would draw, and so from none that the module made."""
    with subject_of([write(tmp_path, "my_sum", LINEAR)]) as subject:
        found = ask(BY_NAME["start"], subject)
        assert found.status == "OK", found
        with patch("algorithms.nn._shared.modules.started", lambda module, drawn: drawn):
            found = ask(BY_NAME["start"], subject)
    assert found.status == "FAIL" and "first.weight starts from something else" in found.detail
