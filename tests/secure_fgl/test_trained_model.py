"""A run's shared model comes out as a plain module that answers as the run's model did."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_undirected

from algorithms.tasks.evaluation import total
from protocols.errors import EvidenceError
from protocols.wire.roster import weights_digest
from secure_fgl.config import Config
from secure_fgl.data.loading import load
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.model_file import load_model, model_bytes
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import few, invoke

BANKS: dict[str, Any] = {"name": "synthetic_banks", "partition": {"clients": 5}}


def config(name: str = "fed_avg", data: Any = BANKS, **more: Any) -> Config:
    document = {
        "algorithm": {"name": name, "rounds": 3},
        "model": {"hidden": 8, **more.pop("model", {})},
        "data": data,
        "policy": "unsafe_plaintext",
        **more,
    }
    return Config.parse(document)


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    Federation.from_config(config(data={**BANKS, "features": "standard"})).run(folder)
    return folder


def scored(chosen: Config, module: torch.nn.Module) -> dict[str, Any]:
    """Return the metrics of a plain module on all sites, as the run counts them."""
    task, _ = Federation.from_config(chosen).build()
    scores = []
    for site in load(chosen, task).sites:
        data: Any = site.data
        x = data.x if isinstance(data.x, torch.Tensor) else data.x.matrix.to_dense()
        both = to_undirected(data.edges, num_nodes=len(x))
        with torch.no_grad():
            logits = module(x, both)
        scores.append(task.score(torch.softmax(logits, dim=1).numpy(), site))
    return dict(task.scoring.read(total(scores)))


def test_it_scores_what_the_run_scored(banks: Path) -> None:
    run = Run(banks)
    found = scored(config(data={**BANKS, "features": "standard"}), run.model())
    for name in ("test_accuracy", "val_accuracy"):
        assert found[name] == pytest.approx(run.metrics[name], abs=1e-9)
    untrained = run.model()
    for parameter in untrained.parameters():
        torch.nn.init.zeros_(parameter)  # the control: another model scores something else
    other = scored(config(data={**BANKS, "features": "standard"}), untrained)
    assert other["test_accuracy"] != found["test_accuracy"]


@pytest.mark.parametrize("name", ["fed_prox", "fed_gate", "apfl", "apfl_gate"])
def test_every_algorithm_that_shares_a_whole_model_has_one(name: str, tmp_path: Path) -> None:
    run = Federation.from_config(config(name)).run(tmp_path / "run")
    task, _ = Federation.from_config(config(name)).build()
    assert sum(p.numel() for p in run.model().parameters()) == task.size  # type: ignore[attr-defined]


def test_graphs_have_one_too(data_root: Path, tmp_path: Path) -> None:
    data = {
        "name": "mutag",
        "root": str(data_root),
        "split": [0.6, 0.2, 0.2],
        "records": 64,
        "partition": {"name": "dirichlet_count", "clients": 5, "options": {"beta": 50.0}},
    }
    run = Federation(config=config(data=data), policy=few()).run(tmp_path / "run")
    module = run.model()
    x, batch = torch.ones(3, run.trained().facts["features"]), torch.tensor([0, 0, 1])
    assert module(x, torch.tensor([[0, 1], [1, 0]]), batch).shape == (2, 2)
    assert run.trained().facts["takes"] == "x, edge_index, batch"


RATINGS = {
    "name": "synthetic_ratings",
    "partition": {"name": "user_per_client", "clients": 60},
}


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("fed_per", {}, "not a whole model"),
        ("local", {}, "left no shared model"),
        ("fed_pub", {"model": {"name": "gcn_linear"}}, "left no shared model"),
        ("fed_mf", {"data": RATINGS}, "not a whole model"),
    ],
)
def test_what_is_no_whole_model_is_refused(
    name: str, more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    run = Federation.from_config(config(name, **more)).run(tmp_path / "run")
    with pytest.raises(UsageError, match=why):
        run.model()


def test_nothing_of_a_folder_that_was_changed_is_used(banks: Path, tmp_path: Path) -> None:
    for name, change in (
        ("checkpoints/best.npz", lambda data: data[:-30] + bytes(1) + data[-29:]),
        ("config.yaml", lambda data: data.replace(b"hidden: 8", b"hidden: 9")),
        ("plan.json", lambda data: data.replace(b'"classes": 2', b'"classes": 3')),
    ):
        given = Path(shutil.copytree(banks, tmp_path / name.replace("/", "-")))
        data = (given / name).read_bytes()
        (given / name).write_bytes(change(data))
        assert change(data) != data
        with pytest.raises(EvidenceError):
            Run(given).model()
        shown = invoke("model", "export", given, "--to", tmp_path / "out" / "model.npz")
        assert shown.exit_code == 5 and not (tmp_path / "out").exists()


def test_the_command_writes_weights_and_what_belongs_to_them(banks: Path, tmp_path: Path) -> None:
    to = tmp_path / "out" / "model.npz"
    shown = invoke("model", "export", banks, "--to", to)
    assert shown.exit_code == 0 and str(to) in shown.stdout
    facts = json.loads(to.with_suffix(".json").read_text())
    assert facts["scaling"] == "standard" and facts["model"]["name"] == "gcn"
    assert facts["plan"] == Run(banks).trained().facts["plan"]
    loaded, expected = load_model(to), Run(banks).model().state_dict()
    assert all(torch.equal(v, expected[name]) for name, v in loaded.module.state_dict().items())
    of_run = {n: v for n, v in Run(banks).trained().facts.items() if n != "chosen"}
    assert dict(loaded.facts) == of_run  # how a run chose it, only the run says
    assert load_model(to, run=banks).facts == loaded.facts
    again = invoke("model", "export", banks, "--to", to)
    assert again.exit_code == 2 and "cannot be written" in again.stderr


def test_a_file_whose_numbers_were_changed_is_refused_with_and_without_its_run(
    banks: Path, tmp_path: Path
) -> None:
    data = model_bytes(Run(banks).trained())
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    arrays["weights"] = arrays["weights"] + np.float32(1)
    (tmp_path / "changed.npz").write_bytes(npz_bytes(arrays))
    with pytest.raises(UsageError, match="not a model's file of ours"):
        load_model(tmp_path / "changed.npz")
    facts = json.loads(bytes(arrays.pop("description")))  # a forger names the new digest, too
    facts["arrays"] = weights_digest(arrays)
    text = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    (tmp_path / "forged.npz").write_bytes(npz_bytes({**arrays, "description": text}))
    assert load_model(tmp_path / "forged.npz").facts["model"]  # the control: alone it looks right
    with pytest.raises(UsageError, match="is not the model that"):
        load_model(tmp_path / "forged.npz", run=banks)


def test_weights_are_not_left_without_what_belongs_to_them(banks: Path, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("mine")
    assert invoke("model", "export", banks, "--to", tmp_path / "model.npz").exit_code == 2
    assert not (tmp_path / "model.npz").exists()
    assert (tmp_path / "model.json").read_text() == "mine"


def test_it_writes_through_no_link(banks: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "model.npz").symlink_to(mine)
    assert invoke("model", "export", banks, "--to", tmp_path / "model.npz").exit_code == 2
    assert mine.read_text() == "mine"
