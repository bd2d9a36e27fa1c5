"""Every model of the catalogue comes out as ONNX and answers alike elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import nn
from algorithms.tasks import ClientModel, DataSpec
from algorithms.tasks.training import plain_model
from secure_fgl.config import ModelConfig
from secure_fgl.data.kinds import build_task
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.store import trained_model
from secure_fgl.store.client_models import Opened, Origin
from secure_fgl.store.trained_model import TAKES, TrainedModel, onnx_bytes
from tests.laws.runs import config
from tests.secure_fgl.cli_tools import invoke

QUICK = {"gin", "gcn_dot"}
MODELS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in nn.model_names()
]
RNG = np.random.default_rng(11)


def trained(name: str, *, mixed: bool = False) -> TrainedModel:
    kind: Any = next(k for k in ("node", "graph", "rating") if name in nn.model_names(k))
    ratings = {"users": 5, "items": 9, "lowest": 1.0, "highest": 5.0} if kind == "rating" else {}
    spec = DataSpec(
        task=kind, features=0 if ratings else 6, classes=1 if ratings else 3, records=16, clients=1,
        synthetic=True, name="toy", **ratings,  # type: ignore[arg-type]
    )  # fmt: skip
    task: Any = build_task(spec, ModelConfig(name=name, hidden=4))
    own, shared = (RNG.normal(size=task.size).astype(np.float32) * 0.2 for _ in range(2))
    model = ClientModel((shared,), (own,) if mixed else (), 0.3 if mixed else 0.0)
    facts = {"takes": TAKES[kind], "gives": "ratings" if ratings else "logits"}
    source = Opened("", model, Origin(spec, "", ""), {}, 0, 0)
    return TrainedModel(plain_model(task, model), spec, facts, source)


@pytest.mark.parametrize("name", MODELS)
def test_it_answers_alike(name: str) -> None:
    import onnxruntime

    made = trained(name)
    session = onnxruntime.InferenceSession(onnx_bytes(made))
    names = made.facts["takes"].split(", ")
    assert [one.name for one in session.get_inputs()] == names
    given = trained_model._drawn(made, 20)  # another size than the two that were tried
    seen = session.run(None, {n: t.numpy() for n, t in zip(names, given, strict=True)})[0]
    with torch.no_grad():
        expected = made.module(*given).numpy()
    np.testing.assert_allclose(seen, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", ["gcn", pytest.param("gin", marks=pytest.mark.long)])
def test_a_mixture_too(name: str) -> None:
    assert onnx_bytes(trained(name, mixed=True))


def test_a_file_that_answers_otherwise_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trained_model, "ATOL", -1.0)
    with pytest.raises(UsageError, match="does not answer as the model does"):
        onnx_bytes(trained("sgc"))


def test_what_the_exporter_cannot_write_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("an operator is missing\nand more")

    monkeypatch.setattr(torch.onnx, "export", broken)
    with pytest.raises(UsageError, match="cannot write this model") as caught:
        onnx_bytes(trained("sgc"))
    assert caught.value.why == "an operator is missing"


def test_the_command_writes_it_with_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    Federation.from_config(config("apfl", "unsafe_plaintext")).run(tmp_path / "run")
    to = tmp_path / "model.onnx"
    shown = invoke("model", "export", tmp_path / "run", "--site", "client-3", "--to", to)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.split() == [str(to), str(to.with_suffix(".json"))]
    facts = json.loads(to.with_suffix(".json").read_text())
    assert facts["site"] == "client-3" and facts["takes"] == "x, edge_index" and facts["run"]
    refused = invoke("model", "export", tmp_path / "run", "--to", tmp_path / "model.pt")
    assert refused.exit_code == 2 and "a .pt file is a pickle" in refused.stderr.replace("\n", " ")
