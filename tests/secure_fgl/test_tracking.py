"""Metrics in TensorBoard and MLflow: the rows of metrics.jsonl and public names of the plan alone.

The libraries' calls are recorded by doubles, as neither is part of the tests' environment; where
TensorBoard is, its event files are read back.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from protocols.plan.plan import Plan
from secure_fgl import Federation, UsageError, tracking
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from secure_fgl.tracking import facts, scalars
from tests.secure_fgl.cli_tools import config, few, invoke

SECRET = 7231.5
SITES = ("hush-a", "hush-b", "hush-c", "hush-d")
HIDDEN = (*SITES, "7231", "hush")
"""What nothing that is written may hold: clients' names and values of their tables."""

Calls = list[tuple[Any, ...]]


class Recorder:
    """Stands for an object of a library: each call is noted, with the keywords it was given."""

    def __init__(self, calls: Calls, fail: str = "") -> None:
        self._calls, self._fail = calls, fail

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            if name == self._fail:
                raise ConnectionError("mlflow.example.org does not answer")
            self._calls.append((name, *given, *sorted(named.items())))
            found = {"get_experiment_by_name": None, "create_experiment": "7"}
            return found.get(name, SimpleNamespace(info=SimpleNamespace(run_id="r1")))

        return call


def doubles(patch: pytest.MonkeyPatch, fail: str = "") -> dict[str, Calls]:
    """Put doubles in both libraries' places; return what they are called with."""
    calls: dict[str, Calls] = {"mlflow": [], "tensorboard": []}

    def made(kind: str) -> Any:
        def make(*given: Any, **named: Any) -> Recorder:
            calls[kind].append(("made", *given, *sorted(named.items())))
            return Recorder(calls[kind], fail)

        return make

    for place, name, kind in (
        ("mlflow", "MlflowClient", "mlflow"),
        ("torch.utils.tensorboard", "SummaryWriter", "tensorboard"),
    ):
        module = ModuleType(place)
        setattr(module, name, made(kind))
        patch.setitem(sys.modules, place, module)
    return calls


def federation(targets: tuple[str, ...]) -> Federation:
    def graph(number: int) -> Data:
        x = torch.full((12, 3), SECRET) + torch.arange(12)[:, None] * number
        arcs = torch.stack([torch.arange(11), torch.arange(1, 12)])
        return Data(x=x, y=torch.arange(12) % 2, edge_index=torch.cat([arcs, arcs.flip(0)], dim=1))

    chosen = Config(tracking=targets, keep_models=False)
    sites = {name: graph(number) for number, name in enumerate(SITES)}
    return Federation.from_pyg(sites, config=chosen, policy=few("masks"), rounds=2)


class Tracked(SimpleNamespace):
    run: Run
    plan: Plan
    calls: dict[str, Calls]
    said: list[str]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracked]:
    folder, said = tmp_path_factory.mktemp("tracked"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECURE_FGL_STATE", str(folder / "state"))
        patch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
        calls = doubles(patch)
        given = (f"tensorboard:{folder}/logs", "mlflow:http://me:pass@tracking")
        run = federation(given).run(folder / "run", tell=said.append)
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
        plan = Plan.model_validate_json((run.path / "plan.json").read_bytes())
        yield Tracked(run=run, plan=plan, calls=calls, said=said)


def rows(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def test_what_goes_out_is_the_released_rows_and_names_of_the_plan_and_nothing_else(
    tracked: Tracked,
) -> None:
    told, known = rows(tracked.run), facts(tracked.plan)
    assert len(told) == 3 and scalars(told[0])
    numbers = [(n, value, row["round"]) for row in told for n, value in scalars(row).items()]

    made, text, *calls, last = tracked.calls["tensorboard"]
    assert made == ("made", str(tracked.run.path.parent / "logs" / "run"), ("purge_step", 0))
    assert text[:2] == ("add_text", "run")
    assert text[2].split("\n")[2:] == [f"| {name} | {value} |" for name, value in known.items()]
    assert [call[1:] for call in calls if call != ("flush",)] == numbers
    assert {call[0] for call in calls} == {"add_scalar", "flush"} and last == ("close",)

    sent = tracked.calls["mlflow"]
    assert sent[0] == ("made", ("tracking_uri", "http://me:pass@tracking"))
    assert sent[1:4] == [
        ("get_experiment_by_name", "secure-fgl"),
        ("create_experiment", "secure-fgl"),
        ("create_run", "7", ("run_name", "run")),
    ]
    assert [call[2:] for call in sent if call[0] == "log_param"] == list(known.items())
    logged = [(c[2], c[3], c[4][1]) for c in sent if c[0] == "log_metric"]
    assert logged == numbers and sent[-1] == ("set_terminated", "r1", "FINISHED")
    assert len(sent) == 5 + len(known) + len(numbers)
    assert tracked.said == []


def test_nothing_of_a_site_is_in_what_goes_out(tracked: Tracked) -> None:
    whole = repr(tracked.calls)
    assert not [word for word in HIDDEN if word in whole]
    plan = (tracked.run.path / "plan.json").read_text()
    assert "hush-a" in plan  # the control: the plan, of which names are taken, holds them
    assert os.uname().nodename not in whole and "metrics" not in whole


def test_a_run_folder_does_not_say_where_metrics_went(tracked: Tracked) -> None:
    names = ("config.yaml", "result.json", "plan.json", "roster.json")
    text = "".join((tracked.run.path / name).read_text() for name in names)
    assert "me:pass" not in text and "tracking" not in text
    assert tracked.run.verify().ok
    with pytest.raises(UsageError, match="none that a run leaves"):
        Config.of_others("tracking: ['mlflow:http://elsewhere']")


def test_a_sink_that_fails_is_left_out_and_the_run_goes_on(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, said = doubles(monkeypatch, fail="log_metric"), list[str]()
    targets = ("mlflow:http://me:pass@tracking", "tensorboard:logs")
    with tracking.Sinks(targets, "run", tracked.plan, said.append) as row:
        for one in rows(tracked.run):
            row(one)
    assert said == ["Metrics go to mlflow no more (ConnectionError); metrics.jsonl has all."]
    assert calls["tensorboard"][-1] == ("close",)
    assert "set_terminated" not in {call[0] for call in calls["mlflow"]}


def test_a_run_that_does_not_finish_is_marked_so(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = doubles(monkeypatch)
    with (
        pytest.raises(KeyboardInterrupt),
        tracking.Sinks(("mlflow:here",), "run", tracked.plan, print),
    ):
        raise KeyboardInterrupt
    assert calls["mlflow"][-1] == ("set_terminated", "r1", "FAILED")


def test_what_cannot_be_opened_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles(monkeypatch, fail="create_run")
    with pytest.raises(UsageError, match="mlflow could not be opened") as caught:
        federation(("mlflow:http://me:pass@tracking",)).run(tmp_path / "run")
    assert not (tmp_path / "run").exists() and "me:pass" not in str(caught.value)


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow"])
def test_without_its_package_the_extra_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "torch.utils.tensorboard" if kind == "tensorboard" else kind
    monkeypatch.setitem(sys.modules, place, None)  # an import of it raises ImportError
    out = tmp_path / "run"
    shown = invoke("run", config(tmp_path), "--track", f"{kind}:{tmp_path}/logs", "--out", out)
    assert shown.exit_code == 2 and f"pip install 'secure-fgl[{kind}]'" in shown.stderr
    assert not out.exists()


@pytest.mark.parametrize("text", ["wandb:x", "tensorboard", "tensorboard:", "mlflow"])
def test_other_places_are_refused(text: str, tmp_path: Path) -> None:
    shown = invoke("run", config(tmp_path), "--track", text, "--out", tmp_path / "run")
    assert shown.exit_code == 2 and "tensorboard:FOLDER or mlflow:URI" in shown.stderr
    assert not (tmp_path / "run").exists()


def test_only_finite_numbers_are_scalars() -> None:
    row = {"round": 3, "a": 0.5, "b": None, "c": float("nan"), "d": True, "e": [1.0], "f": 2}
    assert scalars(row) == {"a": 0.5, "f": 2.0}


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="the extra tensorboard is not installed"
)
def test_tensorboard_reads_back_what_was_written(tracked: Tracked, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told = rows(tracked.run)
    with tracking.Sinks((f"tensorboard:{tmp_path}",), "run", tracked.plan, print) as row:
        for one in told:
            row(one)
    found = EventAccumulator(str(tmp_path / "run")).Reload()
    assert set(found.Tags()["scalars"]) == {name for one in told for name in scalars(one)}
    for name in found.Tags()["scalars"]:
        read = {event.step: event.value for event in found.Scalars(name)}
        wanted = {one["round"]: scalars(one)[name] for one in told if name in scalars(one)}
        assert read == pytest.approx(wanted)
    (file,) = (tmp_path / "run").iterdir()
    assert not [word for word in HIDDEN if word.encode() in file.read_bytes()]


@pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="the extra mlflow is not installed"
)
def test_mlflow_holds_what_was_written(
    tracked: Tracked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # which needs no database's packages
    from mlflow import MlflowClient

    told, place = rows(tracked.run), f"{tmp_path}/store"
    with tracking.Sinks((f"mlflow:{place}",), "run", tracked.plan, print) as row:
        for one in told:
            row(one)
    client = MlflowClient(tracking_uri=place)
    known = client.get_experiment_by_name("secure-fgl")
    assert known is not None
    (found,) = client.search_runs([known.experiment_id])
    assert found.data.params == facts(tracked.plan)
    for name in scalars(told[0]):
        read = {m.step: m.value for m in client.get_metric_history(found.info.run_id, name)}
        assert read == {one["round"]: scalars(one)[name] for one in told}
