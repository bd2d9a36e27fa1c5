"""Attacks on a model of one's own: its layers are found, or nobody claims that there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from secure_fgl import Run
from secure_fgl.attack_inputs.captured_sent import layers_of, outside
from secure_fgl.federation import Federation
from tests.plugins.page import config, write
from tests.secure_fgl.cli_tools import invoke

MLP = '''"""Two linear layers and a shortcut, on a node's own features."""
import torch
from algorithms.nn import GraphModel

NAME, TASK, PROPAGATION = "my_mlp", "node", "symmetric"


class MyMlp(GraphModel):
    def __init__(self, features, classes, hidden):
        super().__init__()
        self.first = torch.nn.Linear(features, hidden)
        self.last = torch.nn.Linear(hidden, classes)
        self.short = torch.nn.Linear(features, classes)

    def forward(self, x, propagation, generator, training):
        return self.last(torch.relu(self.first(x))) + self.short(x)


def build(features, classes, hidden, layers, dropout):
    return MyMlp(features, classes, hidden)
'''


class Spec:
    features, classes = 4, 3


def test_weights_of_linear_layers_are_found_and_turned() -> None:
    parts = (("first.weight", (8, 4)), ("first.bias", (8,)), ("last.weight", (3, 8)),
             ("last.bias", (3,)), ("short.weight", (3, 4)), ("short.bias", (3,)))  # fmt: skip
    turned = {"first.weight", "last.weight", "short.weight"}
    found = layers_of(parts, Spec, 1000, turned)
    vector = np.arange(float(sum(int(np.prod(shape)) for _, shape in parts)))
    assert found.first is not None and found.last_weight is not None
    assert np.array_equal(found.part(vector, found.first), vector[:32].reshape(8, 4).T)
    assert np.array_equal(found.part(vector, found.last_weight), vector[40:64].reshape(3, 8).T)
    assert found.last_bias == (slice(64, 67), (3,)) and found.first_bias == (slice(32, 40), (8,))
    assert layers_of(parts, Spec, 1000, set()).turned == found.turned  # by their shapes alone


def test_a_square_layer_is_turned_if_its_module_says_so() -> None:
    parts = (("first.weight", (4, 4)), ("first.bias", (4,)))
    assert layers_of(parts, Spec, 20, {"first.weight"}).turned == {0}
    assert not layers_of(parts, Spec, 20, set()).turned


def test_a_layer_of_ours_is_never_turned() -> None:
    parts = (("first.weight", (8, 4)), ("last.weight", (3, 8)), ("last.bias", (3,)))
    found = layers_of(parts, Spec, 1000)
    assert found.first is found.last_weight is None and not found.foreign


def _rows(folder: Path, text: str) -> dict[str, set[str]]:
    file = write(folder, "my_mlp", text)
    chosen = config(
        "unsafe_plaintext", algorithm={"name": "fed_avg", "rounds": 2},
        model={"name": "my_mlp", "hidden": 8}, isolate=False,
    )  # fmt: skip
    run = Federation(config=chosen, plugins=[file]).run(folder / "run")
    shown = invoke("audit", "attack", run.path, "--plugin", file, "--fail-on", "never",
                   "--attacks", "A04,A05", "--profile", "quick")  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert Run(run.path).verify().ok
    found: dict[str, set[str]] = {}
    for row in Run(run.path).leakage().attacks:
        found.setdefault(row.id, set()).add(f"{row.verdict}: {row.reason}")
    return found


def test_linear_layers_are_asked_for_records_and_labels(tmp_path: Path) -> None:
    found = _rows(tmp_path, MLP)
    assert any(row.startswith(("FAIL", "ABOVE_PRIOR")) for row in found["A05"]), found["A05"]
    assert any(not row.startswith(("NOT_", "ERROR")) for row in found["A04"]), found["A04"]
    assert not any("no last layer" in row for row in found["A04"])


def test_a_layer_that_nobody_finds_is_not_tested_and_not_called_absent(tmp_path: Path) -> None:
    flat = MLP.replace(
        "self.first = torch.nn.Linear(features, hidden)",
        "self.wide = hidden; self.first = torch.nn.Parameter(torch.rand(features * hidden))",
    )
    flat = flat.replace("self.first(x)", "x.to_dense() @ self.first.reshape(-1, self.wide)")
    flat = flat.replace("        self.short = torch.nn.Linear(features, classes)\n", "")
    flat = flat.replace(" + self.short(x)", "")
    flat = flat.replace(
        "torch.nn.Linear(hidden, classes)", "torch.nn.Linear(hidden, classes, bias=False)"
    )
    found = _rows(tmp_path, flat)
    for name in ("A04", "A05"):
        (row,) = found[name]
        assert row.startswith("NOT_TESTED: the model is from outside"), row


def test_the_module_names_its_own_linear_layers(tmp_path: Path) -> None:
    file = write(tmp_path, "my_mlp", MLP)
    chosen = config(algorithm={"name": "fed_avg"}, model={"name": "my_mlp", "hidden": 8})
    task: Any = Federation(config=chosen, plugins=[file]).build()[0]
    assert outside(task) == {"first.weight", "last.weight", "short.weight"}
    assert outside(Federation(config=config(algorithm={"name": "fed_avg"})).build()[0]) is None
