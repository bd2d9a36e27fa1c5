"""Where clients train: which device is chosen, and what is placed on it.

There is no GPU here, and none in CI: what needs one is skipped, by name. What places tensors is
tested with PyTorch's device "meta", which computes shapes and no values, and refuses to mix its
tensors with those of the processor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from algorithms.nn._shared import sparse
from algorithms.nn._shared.sparse import dropout
from secure_fgl import UsageError, devices, placing
from secure_fgl.config import Config
from secure_fgl.devices import chosen
from secure_fgl.placing import Placing
from secure_fgl.run.workers import how_many
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import config, invoke

Patch = pytest.MonkeyPatch
SETTINGS = ("--set", "policy=masks", "--set", "keep_models=false", "--set", "algorithm.epochs=2")


@pytest.fixture
def bare(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("usual")
    assert invoke("run", config(folder), *SETTINGS, "--out", folder / "run").exit_code == 0
    return Run(folder / "run")


# --- which one ---------------------------------------------------------------------------------


def test_a_gpu_that_is_not_there_is_refused_and_nothing_is_started(
    bare: None, tmp_path: Path
) -> None:
    words = ("run", config(tmp_path), *SETTINGS, "--out", tmp_path / "run")
    shown = invoke(*words, "--set", "device=cuda")
    assert shown.exit_code == 2 and "has no GPU" in shown.stderr
    assert "device=auto" in shown.stderr and not (tmp_path / "run").exists()
    assert invoke("plan", config(tmp_path), "--set", "device=cuda").exit_code == 2


def test_auto_without_a_gpu_is_the_processor_bit_for_bit(
    bare: None, usual: Run, tmp_path: Path
) -> None:
    words = ("run", config(tmp_path), *SETTINGS, "--set", "device=auto")
    shown = invoke(*words, "--out", tmp_path / "run")
    assert shown.exit_code == 0 and "Clients train on: the processor." in shown.stderr
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["model_sha256"] == usual.model_sha256 and found["device"] == "cpu"


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    assert chosen(Config(device="auto")) == chosen(Config(device="cuda")) == "cuda"
    assert chosen(Config()) == "cpu"
    assert "a card" in devices.told(Config(device="auto"))
    assert "a card" in json.dumps(json.loads(invoke("doctor", "--format", "json").stdout))
    assert how_many(Config(device="auto"), 100) == 1
    several = {"device": "cuda", "transport": {"workers": 2}}
    with pytest.raises(UsageError, match="no fork can go on with"):
        how_many(Config.parse(several), 100)
    # Isolated answers and sites apart have no device.
    apart: list[dict[str, Any]] = [{"isolate": True}, {"transport": {"name": "broker"}}]
    for setting in apart:
        assert chosen(Config.parse({"device": "auto", **setting})) == "cpu"
        with pytest.raises(UsageError, match="cannot be computed on a GPU"):
            chosen(Config.parse({"device": "cuda", **setting}))
    assert Config(device="cuda").shared().device == "cpu"  # no organisation agrees on it


# --- what is placed ----------------------------------------------------------------------------


def test_what_is_made_and_what_is_computed_is_on_the_device() -> None:
    array = np.ones((3, 3), np.float32)
    left = torch.zeros(3)
    with Placing("meta"):
        raw = torch.from_numpy(array)
        made = [torch.zeros(2), torch.tensor([1.0]), torch.arange(3), torch.ones_like(raw)]
        made += [raw @ raw, raw[0], torch.cat([raw, raw]), raw.clone(), left + 1]
        assert raw.shape == (3, 3)
    assert not raw.is_meta  # no copy is made of what only becomes an array again
    assert all(one.is_meta for one in made)
    assert not torch.zeros(2).is_meta  # the control: outside of it


def test_what_is_written_into_stays_where_it_is() -> None:
    array = np.zeros(3, np.float32)
    with Placing("meta"):
        raw = torch.from_numpy(array)
        raw[1] = 5.0
        raw.add_(torch.from_numpy(np.ones(3, np.float32)))
        parameter = torch.nn.Parameter(torch.zeros(2))
        parameter.grad = torch.from_numpy(np.ones(2, np.float32))
    assert array.tolist() == [1.0, 6.0, 1.0]
    assert parameter.grad is not None and parameter.grad.is_meta


def test_draws_are_those_of_the_processor() -> None:
    def drawn() -> Tensor:
        draws = torch.Generator().manual_seed(7)
        return dropout(torch.ones(4, 5), 0.5, draws, True) + torch.randn((4, 5), generator=draws)

    with Placing("cpu"):
        found = drawn()
    assert torch.equal(found, drawn())
    with Placing("meta"):  # a generator of the processor would be refused there
        assert drawn().is_meta


_VALUES = {"__bool__": False, "__float__": 1.0, "__int__": 1, "item": 1.0}


class Pretended(Placing):
    """The device meta; arrays are zero, and single numbers one."""

    def __init__(self, device: str, seen: set[str]) -> None:
        super().__init__("meta")
        self.seen = seen

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first = args[0] if args and isinstance(args[0], Tensor) and args[0].is_meta else None
        if first is not None:
            self.seen.add(getattr(function, "__name__", ""))
            if function in (Tensor.numpy, Tensor.__array__):
                return np.zeros(first.shape, str(first.dtype).removeprefix("torch."))
            if (value := _VALUES.get(function.__name__)) is not None:
                return value
            if "matmul" in function.__name__ and first.layout is torch.sparse_csr:
                assert args[1].is_meta  # meta has no sparse products
                return torch.zeros(first.shape[0], args[1].shape[1], device="meta")
        return super().__torch_function__(function, types, args, kwargs)


@pytest.fixture
def pretending(monkeypatch: Patch) -> Iterator[set[str]]:
    def backward(ctx: Any, slope: Tensor) -> tuple[None, None, Tensor]:
        _, transpose = ctx.saved_tensors
        assert slope.is_meta and transpose.is_meta
        return None, None, torch.zeros(transpose.shape[0], slope.shape[1], device="meta")

    seen: set[str] = set()
    monkeypatch.setattr(sparse._Product, "backward", staticmethod(backward))
    assume = "torch.fx.experimental._config.meta_nonzero_assume_all_nonzero"  # labels[mask]
    monkeypatch.setattr(assume, True)
    monkeypatch.setattr(placing, "Placing", lambda device: Pretended(device, seen))
    monkeypatch.setattr(devices, "gpu", lambda: "pretended")
    yield seen


def test_a_whole_run_trains_on_the_device_and_sends_arrays_of_the_processor(
    pretending: set[str], tmp_path: Path
) -> None:
    words = ("run", config(tmp_path), *SETTINGS, "--set", "device=cuda")
    shown = invoke(*words, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.stderr
    assert "Clients train on: a GPU, pretended." in shown.stderr
    assert {"numpy", "backward", "cross_entropy"} <= pretending
    assert json.loads((tmp_path / "run" / "result.json").read_text())["device"] == "cuda"
    with np.load(tmp_path / "run" / "checkpoints" / "final.npz") as model:
        # A client's own weights are zeros, as meta has no values; a sum of five is rounded.
        assert np.abs(model["weights"]).max() < 1e-2


def test_all_calls_pass_through_and_change_no_bit(
    usual: Run, monkeypatch: Patch, tmp_path: Path
) -> None:
    """The same run through `Placing` itself, with the processor as its device."""
    made: list[str] = []

    def there(device: str) -> Placing:
        made.append(device)
        return Placing("cpu")

    monkeypatch.setattr(placing, "Placing", there)
    monkeypatch.setattr(devices, "gpu", lambda: "pretended")
    words = ("run", config(tmp_path), *SETTINGS, "--set", "device=auto")
    assert invoke(*words, "--out", tmp_path / "run").exit_code == 0
    assert made == ["cuda"]
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["model_sha256"] == usual.model_sha256


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_a_gpu_s_model_is_the_processor_s_but_for_rounding(usual: Run, tmp_path: Path) -> None:
    words = ("run", config(tmp_path), *SETTINGS, "--set", "device=cuda", "--out", tmp_path / "run")
    assert invoke(*words).exit_code == 0
    models = [run.path / "checkpoints" / "final.npz" for run in (usual, Run(tmp_path / "run"))]
    one, other = (SimpleNamespace(**np.load(model)) for model in models)
    assert np.abs(one.weights - other.weights).max() < 1e-3
    assert invoke("audit", "verify", tmp_path / "run").exit_code == 0
