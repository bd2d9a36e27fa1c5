"""Every client's own model opens where its key is, and answers as it did in the run."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import predictions
from algorithms.tasks.evaluation import total
from protocols.disclosures.names import Disclosure
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.catalogue import algorithm_names
from secure_fgl.config import Config
from secure_fgl.data import read_dataset
from secure_fgl.data.loading import load
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.predicting import answers
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.store.client_models import CHECKPOINTS, ClientModels
from secure_fgl.store.finished_run import Run
from secure_fgl.store.trained_model import TrainedModel
from tests.laws.runs import config as law
from tests.laws.runs import unlike
from tests.secure_fgl.cli_tools import invoke

ROUNDS = 3


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let each test have keys of its own."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    return tmp_path / "keys"


def played(
    name: str, to: Path, policy: str = "unsafe_plaintext", **more: Any
) -> tuple[Config, Run]:
    document = law(name, policy, rounds=ROUNDS).model_dump(mode="json")
    document["data"]["features"] = "standard"
    chosen = Config.parse({**document, **more})
    return chosen, Federation.from_config(chosen).run(to)


def opened(run: Run, client: str) -> Any:
    best = next(filter(None, map(run.folder.read, CHECKPOINTS)), b"")
    return run.client_models.open(client, best)


def metrics_of(chosen: Config, run: Run) -> dict[str, Any]:
    """Score every client's module on its own records, as the run counted; check it on the way."""
    task, _ = Federation.from_config(chosen).build()
    scaled = load(chosen, task).sites
    bare = load(chosen.model_copy(update={"data": raw(chosen)}), task).sites
    scores = []
    for number, (site, unscaled) in enumerate(zip(scaled, bare, strict=True), 1):
        client = f"client-{number}"
        trained = run.trained(client)
        part = unscaled.about.args[0]  # type: ignore[union-attr]  # the part as the data has it
        found = answers(trained, part, part.train)
        held = opened(run, client)
        if held.model.beside:
            task_neighbours(task, site, held.model.beside)
        np.testing.assert_allclose(found, predictions(task, held.model, site), atol=1e-5)
        scores.append(task.score(predictions(task, held.model, site), site))
    return dict(task.scoring.read(total(scores)))


def raw(chosen: Config) -> Any:
    return chosen.data.model_copy(update={"features": "raw"})


def task_neighbours(task: Any, site: Any, beside: Any) -> None:
    from algorithms.nn._shared.ratings import neighbours

    places = np.searchsorted(site.data.items, beside["items"])
    site.data.graph.neighbours = neighbours(places, beside["vectors"], len(site.data.items))


AS_OTHERS = ("fed_gate", "fed_prox", "gcfl_plus", "graph_fl_domain")
"""They hand on what `fed_avg`, `gcfl` and `graph_fl` do."""


@pytest.mark.parametrize("name", unlike(algorithm_names(), AS_OTHERS))
def test_every_algorithm_s_models_answer_as_in_the_run(name: str, tmp_path: Path) -> None:
    policy = "masks" if Disclosure.MIXED not in kinds(name) else "unsafe_plaintext"
    chosen, run = played(name, tmp_path / "run", policy)
    found = metrics_of(chosen, run)
    for metric, value in found.items():
        if value is not None and metric in run.metrics:
            assert run.metrics[metric] == pytest.approx(value, abs=1e-6), metric


def kinds(name: str) -> set[Any]:
    _, algorithm = Federation.from_config(law(name)).build()
    return {kind.disclosure for form in algorithm.forms for kind in form.messages()}


@pytest.mark.parametrize("name", [pytest.param("apfl", marks=pytest.mark.long), "fed_per_gnn"])
def test_a_model_of_isolated_answers_is_the_same(name: str, tmp_path: Path) -> None:
    _, run = played(name, tmp_path / "run", "masks")
    _, isolated = played(name, tmp_path / "isolated", "masks", isolate=True)
    for client in run.client_models.clients():
        ours, theirs = opened(run, client), opened(isolated, client)
        assert ours.about["data_sha256"] == theirs.about["data_sha256"]
        assert np.array_equal(ours.model.shared, theirs.model.shared)
        same = ours.model.own is None or np.array_equal(ours.model.own, theirs.model.own)
        assert same and ours.model.alpha == theirs.model.alpha


def test_what_all_share_is_not_written_again(tmp_path: Path) -> None:
    _, mean = played("fed_avg", tmp_path / "mean")
    _, head = played("fed_per", tmp_path / "head")
    _, whole = played("local", tmp_path / "whole")
    sizes = [len(r.folder.read("models/client-1/model")) for r in (mean, head, whole)]
    assert sizes[0] < sizes[1] < sizes[2]
    shared, own = mean.trained(), mean.trained("client-1")
    for name, value in shared.module.state_dict().items():
        assert np.array_equal(value.numpy(), own.module.state_dict()[name].numpy())


def test_it_opens_only_where_the_key_is(tmp_path: Path, keys: Path) -> None:
    _, run = played("fed_per", tmp_path / "run")
    name = json.loads(run.folder.read("roster.json"))["run"]
    file = run.path / "models" / "client-2" / "model"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    place = keys / "models" / name
    assert sorted(f.name for f in place.iterdir()) == [
        *(f"client-{n}.key" for n in range(1, 6)),
        "folder",
    ]
    assert stat.S_IMODE((place / "client-2.key").stat().st_mode) == 0o600
    weights = opened(run, "client-2").model.weights
    assert all(piece.tobytes() not in file.read_bytes() for piece in weights)

    (place / "client-2.key").rename(tmp_path / "away")
    with pytest.raises(UsageError, match="locked, and its key is not here"):
        run.model("client-2")
    assert run.model("client-1") is not None
    shutil.copy(place / "client-1.key", place / "client-2.key")
    with pytest.raises(UsageError, match="cannot be opened"):
        run.model("client-2")
    with pytest.raises(UsageError, match="kept no model of 'client-9'"):
        run.model("client-9")


def test_what_was_changed_or_moved_does_not_open(tmp_path: Path, keys: Path) -> None:
    _, run = played("fed_per", tmp_path / "run")
    _, other = played("fed_per", tmp_path / "other")
    mine, theirs = (r.path / "models/client-1/model" for r in (run, other))
    before = mine.read_bytes()
    for place in (0, 4, 5, 20, len(before) - 1):
        mine.write_bytes(before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :])
        with pytest.raises(UsageError):
            run.model("client-1")
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(UsageError, match="cannot be opened"):
        run.model("client-1")
    mine.write_bytes((run.path / "models/client-3/model").read_bytes())
    with pytest.raises(UsageError, match="cannot be opened"):
        run.model("client-1")
    mine.write_bytes(before)
    assert run.model("client-1") is not None  # the control
    best = run.path / "checkpoints" / "best.npz"
    with np.load(best) as arrays:
        best.write_bytes(npz_bytes({n: arrays[n] + arrays[n].dtype.type(1) for n in arrays.files}))
    with pytest.raises(UsageError, match="another checkpoint"):
        run.model("client-1")


def test_no_link_is_followed(tmp_path: Path) -> None:
    _, run = played("fed_per", tmp_path / "run")
    mine = run.path / "models/client-1/model"
    mine.rename(tmp_path / "elsewhere")
    mine.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="link"):
        run.model("client-1")


def test_no_model_is_in_a_bundle_or_touches_the_evidence(tmp_path: Path) -> None:
    _, run = played("fed_per", tmp_path / "run", "masks")
    assert run.result["verdict"] == "self-consistent only" and run.verify().ok
    assert invoke("audit", "bundle", run.path, "--out", tmp_path / "b.zip").exit_code == 0
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        assert not [name for name in bundle.namelist() if "models" in name]
        packed = b"".join(bundle.read(name) for name in bundle.namelist())
    assert all(p.tobytes() not in packed for p in opened(run, "client-1").model.weights[1:])


def test_forgetting_ends_them_and_leaves_the_rest(tmp_path: Path, keys: Path) -> None:
    _, run = played("apfl", tmp_path / "run")
    _, other = played("apfl", tmp_path / "other")
    assert invoke("model", "forget", run.path).exit_code == 0
    assert not (run.path / "models").exists() and run.client_models.clients() == []
    with pytest.raises(UsageError, match="kept no model"):
        run.model("client-1")
    assert run.model() is not None and other.model("client-1") is not None and run.verify().ok


def test_a_site_may_keep_none(tmp_path: Path, keys: Path) -> None:
    _, run = played("fed_per", tmp_path / "run", keep_models=False)
    assert not (run.path / "models").exists() and not (keys / "models").exists()
    with pytest.raises(UsageError, match="kept no model") as caught:
        run.client_models.open("client-1")
    assert "keep_models" in str(caught.value.why)


def test_keys_that_cannot_be_written_end_the_run_with_what_helps(
    tmp_path: Path, keys: Path
) -> None:
    keys.mkdir()
    (keys / "models").write_text("")
    with pytest.raises(UsageError, match="cannot be kept") as caught:
        played("fed_per", tmp_path / "run")
    assert "keep_models: false" in str(caught.value.fix)


def test_where_nothing_is_scored_the_model_trained_last_is_kept(tmp_path: Path) -> None:
    graph = read_dataset("synthetic_banks", customers=40, transactions=60)
    policy = PrivacyPolicy.preset("calibrated")
    chosen = law("fed_avg", "calibrated", rounds=ROUNDS, store=tmp_path / "budgets")
    run = Federation(graph, policy=policy, config=chosen).run(tmp_path / "run")
    assert run.metrics["best_round"] is None
    final = run.trained()  # the noised mean, of the last round
    own = run.trained("client-1")  # and what that client made of it
    assert isinstance(final, TrainedModel) and final.facts["weights_sha256"] == run.model_sha256
    assert own.facts["weights_sha256"] != final.facts["weights_sha256"]


def test_a_run_that_was_killed_leaves_them_too(tmp_path: Path) -> None:
    from tests.laws.killing import play
    from tests.laws.runs import config as small

    whole = Federation.from_config(small("apfl", "masks")).run(tmp_path / "whole")
    killed = play(small("apfl", "masks"), tmp_path / "killed", at=30, after=True)
    assert killed.killed and not (tmp_path / "killed" / "models").exists()
    resumed = Federation.from_config(small("apfl", "masks")).run(tmp_path / "killed", resume=True)
    for client in whole.client_models.clients():
        ours, theirs = opened(whole, client).model, opened(resumed, client).model
        assert np.array_equal(ours.own, theirs.own) and ours.alpha == theirs.alpha


def test_only_names_that_a_run_can_have_are_used() -> None:
    with pytest.raises(UsageError, match="32 hexadecimal"):
        ClientModels("../elsewhere", Path())
