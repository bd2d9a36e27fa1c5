"""Clients' models, predictions and evaluations under drop-outs, wrong names and hostile folders."""

from __future__ import annotations

import csv
import hashlib
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from protocols.versions import CLIENT_MODEL
from secure_fgl.config import Config
from secure_fgl.data.own import load_spec
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.model_file import model_bytes
from secure_fgl.predicting import predict
from secure_fgl.store.finished_run import Run
from tests.laws.runs import config as law
from tests.secure_fgl import test_predicting as sites
from tests.secure_fgl.cli_tools import few, invoke
from tests.secure_fgl.test_client_models import opened

NAMES = ("a", "b", "c", "d")
LOST = ",".join(f"{client}@3:after_upload" for client in (1, 2, 3))


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    monkeypatch.setattr(sites, "SITES", NAMES)
    return tmp_path / "keys"


def played(
    root: Path,
    algorithm: str = "fed_per",
    features: str = "standard",
    write: Callable[[Path], None] | None = None,
    model: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    (root / "data").mkdir(parents=True)
    (write or sites.node_sites)(root / "data")
    document = {
        "algorithm": {"name": algorithm, "rounds": 3},
        "model": model or {"hidden": 8},
        "data": {
            "name": "own", "root": str(root / "data"), "partition": {"clients": 4},
            "features": features,
        },
        "policy": "unsafe_plaintext",
        **more,
    }  # fmt: skip
    chosen = Config.parse(document)
    return Federation(config=chosen, policy=few(chosen.policy)).run(root / "run")


# --- which round's model it is


def dropped(to: Path, drop: str, seed: int, rounds: int = 6, lr: float = 1.0) -> Run:
    chosen = law("fed_avg", "masks", drop=drop, seed=seed, rounds=rounds, lr=lr)
    return Federation.from_config(chosen).run(to)


def has_the_best(run: Run) -> dict[str, bool]:
    with np.load(run.path / "checkpoints" / "best.npz") as file:
        best = file["weights"]
    clients = run.client_models.clients()
    return {c: bool(np.array_equal(opened(run, c).model.shared, best)) for c in clients}


def test_a_lost_round_replaces_nobody_s_best_model(tmp_path: Path) -> None:
    run = dropped(tmp_path / "run", LOST, 5)
    assert run.result["lost_rounds"] == [3] and run.metrics["best_round"] == 1
    assert all(has_the_best(run).values())


@pytest.mark.parametrize(("drop", "seed"), [("2@2", 5), ("2@4", 8)])
def test_a_client_that_was_away_says_which_round_its_model_is_of(
    drop: str, seed: int, tmp_path: Path
) -> None:
    run = dropped(tmp_path / "run", drop, seed)
    found, best = has_the_best(run), run.metrics["best_round"]
    assert all(same for client, same in found.items() if client != "client-2")
    for client, same in found.items():
        facts = run.trained(client).facts
        assert facts["best_after_rounds"] == best
        assert (facts["after_rounds"] == best) is same


def test_a_client_that_came_at_all_has_a_model(tmp_path: Path) -> None:
    run = dropped(tmp_path / "run", "2@2,2@3,2@4", 1, rounds=4, lr=0.05)
    assert run.client_models.clients() == [f"client-{n}" for n in range(1, 6)]


def test_a_client_that_missed_the_end_keeps_names_and_scaling(tmp_path: Path) -> None:
    run = played(tmp_path, "fed_avg", policy="masks", faults={"drop": "1@3"})
    for client, name in zip(run.client_models.clients(), NAMES, strict=True):
        trained = run.trained(client)
        assert trained.facts["site"] == name and trained.facts["data_sha256"]
        assert trained.scaling["mean"].shape == (3,)


# --- whose it is


def test_a_folder_s_name_is_never_taken_for_another_client_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "SITES", ("client-1", "client-10", "client-2", "client-3"))
    run = played(tmp_path)  # the plan's client-2 is the folder client-10
    folder = tmp_path / "data" / "client-2"
    shown = invoke("predict", run.path, "--site", folder, "--out", tmp_path / "p.csv")
    assert shown.exit_code == 0 and "that of client-2," in shown.stderr
    assert invoke("evaluate", run.path, "--site", folder).exit_code == 0
    with pytest.raises(UsageError, match="another client's name"):
        run.model("client-2")  # either could be meant
    assert run.trained("client-10").facts["client"] == "client-2"


def test_the_model_of_one_user_answers_for_nobody_else(tmp_path: Path) -> None:
    def users(root: Path) -> None:
        rng = np.random.default_rng(1)
        scale = {"lowest": 1.0, "highest": 5.0, "records": 32, "split": [0.6, 0.2, 0.2]}
        text = sites.spec(name="films", task="rating", users=4, items=20, **scale)
        (root / "spec.yaml").write_text(text)
        for user, name in enumerate(NAMES):
            (root / name).mkdir()
            items = rng.choice(20, 12, replace=False)
            rows = [[user, item, float(rng.integers(1, 6))] for item in items]
            sites.write(root / name / "ratings.csv", ["user", "item", "rating"], rows)

    run = played(tmp_path, "fed_per_gnn", "raw", users, {"hidden": 4})
    new = tmp_path / "new" / "a"
    new.mkdir(parents=True)
    (new / "ratings.csv").write_text("user,item,rating\n0,1,5\n3,2,\n")
    shown = invoke("predict", run.path, "--site", new, "--out", tmp_path / "p.csv")
    assert shown.exit_code == 2 and "that of user 0 alone" in shown.stderr
    (new / "ratings.csv").write_text("user,item,rating\n0,1,5\n0,2,\n")
    assert invoke("predict", run.path, "--site", new, "--out", tmp_path / "p.csv").exit_code == 0


def test_a_changed_model_is_not_replaced_by_the_shared_one_unsaid(tmp_path: Path) -> None:
    run = played(tmp_path, "fed_avg", "raw")
    file = run.path / "models" / "client-1" / "model"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UsageError, match="cannot be opened"):
        run.model("client-1")
    assert run.model("b") is not None and run.model() is not None  # and spoils no other


@pytest.mark.parametrize("spoilt", ["version", "link"])
def test_one_spoilt_model_spoils_no_other(spoilt: str, tmp_path: Path) -> None:
    run = played(tmp_path, "fed_avg", "raw")
    file = run.path / "models" / "client-1" / "model"
    data = bytearray(file.read_bytes())
    data[len(CLIENT_MODEL.head) - 1] += 1
    file.write_bytes(data)
    if spoilt == "link":
        file.unlink()
        file.symlink_to("/etc/hostname")
    assert run.model() is not None and run.model("c") is not None


def test_in_a_party_s_folder_the_key_lies_beside_its_run(tmp_path: Path, keys: Path) -> None:
    run = played(tmp_path, "fed_per")
    party = tmp_path / "party"
    place = party / "runs" / run.name
    for folder in (party / "keys", place):
        folder.mkdir(parents=True)
    for file in (party / "identity.json", place / "charter.json"):
        file.write_text("{}")
    run.path.rename(place / "run")
    (keys / "models").rename(party / "keys" / "models")
    assert Run(place / "run").model("client-1") is not None


# --- forgetting


def test_a_stranger_s_folder_forgets_no_key_of_mine(tmp_path: Path) -> None:
    run, stranger = played(tmp_path), tmp_path / "stranger"
    stranger.mkdir()
    shutil.copy(run.path / "roster.json", stranger)  # every party and every bundle has it
    (stranger / "plan.json").write_text("{}")
    assert invoke("model", "forget", stranger).exit_code == 2
    shutil.copytree(run.path, tmp_path / "copy")
    assert invoke("model", "forget", tmp_path / "copy").exit_code == 2
    assert run.model("a") is not None


def test_what_was_not_removed_is_not_called_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Path
) -> None:
    run = played(tmp_path)
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "others"))
    shown = invoke("model", "forget", run.path)
    assert shown.exit_code == 2 and "nothing was removed" in shown.stderr
    monkeypatch.setenv("SECURE_FGL_STATE", str(keys))
    assert run.model("a") is not None
    place = next((keys / "models").iterdir())
    place.rename(tmp_path / "vault")
    place.symlink_to(tmp_path / "vault")  # keys on an encrypted disk
    assert invoke("model", "forget", run.path).exit_code != 0
    assert list((tmp_path / "vault").iterdir())


# --- what is predicted from


def test_without_a_key_another_order_of_columns_is_refused(tmp_path: Path, keys: Path) -> None:
    run = played(tmp_path, "fed_avg", "raw")
    keys.rename(tmp_path / "away")  # a newcomer has the run folder and no key
    text = (tmp_path / "data" / "spec.yaml").read_text()
    new = tmp_path / "new"
    shutil.copytree(tmp_path / "data" / "a", new / "z")
    for before, after in (
        ('"age", "income"', '"income", "age"'),
        ('"fine", "risky"', '"risky", "fine"'),
        ("classes: [", 'classes: ["more", '),
    ):
        assert before in text
        (new / "spec.yaml").write_text(text.replace(before, after))
        shown = invoke("predict", run.path, "--site", new / "z", "--out", tmp_path / "p.csv")
        assert shown.exit_code == 2 and "spec.yaml has" in shown.stderr, before
    (new / "spec.yaml").write_text(text)
    shown = invoke("predict", run.path, "--site", new / "z", "--out", tmp_path / "p.csv")
    assert shown.exit_code == 0 and "the shared one" in shown.stderr


def test_without_a_key_other_ratings_are_refused(tmp_path: Path, keys: Path) -> None:
    run = played(tmp_path, "fed_avg", "raw", sites.rating_sites, {"hidden": 4})
    keys.rename(tmp_path / "away")
    (tmp_path / "new" / "z").mkdir(parents=True)
    text = (tmp_path / "data" / "spec.yaml").read_text()
    (tmp_path / "new" / "z" / "ratings.csv").write_text("user,item,rating\n1,2,3\n3,4,\n")
    for before in ("users: 4", "items: 2", "highest: 5"):
        (tmp_path / "new" / "spec.yaml").write_text(text.replace(before, before + "1"))
        shown = invoke(
            "predict", run.path, "--site", tmp_path / "new" / "z", "--out", tmp_path / "p.csv"
        )
        assert shown.exit_code == 2, before


def test_the_shared_model_does_not_scale_new_records_by_themselves(tmp_path: Path) -> None:
    run = played(tmp_path, "fed_avg", "standard")
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text("id,age,income,debt\nq,-9,0,0\n")
    (new / "edges.csv").write_text("source,target\n")
    shown = invoke("predict", run.path, "--site", new, "--out", tmp_path / "p.csv")
    assert shown.exit_code == 2 and "cannot scale new records" in shown.stderr
    seen = []
    for value in (-9, 9):
        (new / "nodes.csv").write_text(f"id,age,income,debt\nq,{value},0,0\n")
        seen.append(predict(run.trained("a"), new, load_spec(tmp_path / "data")).values)
    assert not np.allclose(*seen)


def test_records_of_another_folder_are_not_called_held_out(tmp_path: Path) -> None:
    run = played(tmp_path)
    site = tmp_path / "data" / "a-2024"
    (tmp_path / "data" / "a").rename(site)
    asked = ["evaluate", run.path, "--site", site, "--of", "a"]
    shown = invoke(*asked)
    assert shown.exit_code == 2 and "--part all" in shown.stderr
    assert invoke(*asked, "--part", "all").exit_code == 0
    rows = (tmp_path / "data" / "b" / "nodes.csv").read_text().splitlines()
    (tmp_path / "data" / "b" / "nodes.csv").write_text("\n".join([*rows[:-1], ""]))
    edges = tmp_path / "data" / "b" / "edges.csv"
    edges.write_text("source,target\n")
    assert invoke("evaluate", run.path, "--site", tmp_path / "data" / "b").exit_code == 2


def test_a_vocabulary_is_found_from_inside_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def films(root: Path) -> None:
        words = "".join(f"film{number:03}\n" for number in range(20))
        (root / "vocabulary").mkdir()
        (root / "vocabulary" / "items.txt").write_text(words)
        rng, digest = np.random.default_rng(1), hashlib.sha256(words.encode()).hexdigest()
        scale = {"lowest": 1.0, "highest": 5.0, "records": 64, "split": [0.6, 0.2, 0.2]}
        text = sites.spec(
            name="films", task="rating", users=40, items=20, vocabulary={"items": digest}, **scale
        )
        (root / "spec.yaml").write_text(text)
        for number, name in enumerate(NAMES):
            (root / name).mkdir()
            rows = [
                [user, f"film{item:03}", float(rng.integers(1, 6))]
                for user in range(10 * number, 10 * number + 10)
                for item in rng.choice(20, 8, replace=False)
            ]
            sites.write(root / name / "ratings.csv", ["user", "item", "rating"], rows)

    run = played(tmp_path, "fed_per", "raw", films, {"name": "dot", "hidden": 4})
    monkeypatch.chdir(tmp_path / "data" / "a")
    assert invoke("predict", run.path, "--site", ".", "--out", tmp_path / "p.csv").exit_code == 0


# --- files


def test_no_spreadsheet_takes_a_name_for_a_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "CLASSES", ('=HYPERLINK("http://x","y")', "@b", "+c"))
    run = played(tmp_path)
    out = tmp_path / "p.csv"
    assert invoke("predict", run.path, "--site", tmp_path / "data/a", "--out", out).exit_code == 0
    assert invoke("evaluate", run.path, "--site", tmp_path / "data/a").exit_code == 0
    for file in (out, *(tmp_path / "data/a/evaluation").glob("*.csv")):
        cells = [cell for row in csv.reader(file.open()) for cell in row]
        assert cells and not [cell for cell in cells if cell[:1] in ("=", "+", "@")], file


def test_an_evaluation_follows_no_link(tmp_path: Path) -> None:
    run, mine = played(tmp_path), tmp_path / "mine"
    mine.mkdir()
    (mine / "evaluation.json").write_text("mine")
    (tmp_path / "data" / "a" / "evaluation").symlink_to(mine)
    assert invoke("evaluate", run.path, "--site", tmp_path / "data" / "a").exit_code != 0
    assert (mine / "evaluation.json").read_text() == "mine"


def test_both_forms_of_a_model_lie_side_by_side_and_closed_to_others(tmp_path: Path) -> None:
    trained = played(tmp_path).trained("a")
    trained.write_with(tmp_path / "m.npz", model_bytes(trained))
    trained.write_with(tmp_path / "m.onnx", b"x")
    for name in ("m.npz", "m.onnx", "m.json"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    other = Run(tmp_path / "run").trained("b")
    with pytest.raises(UsageError, match="cannot be written"):
        other.write_with(tmp_path / "m.bin", b"x")  # the facts there are of another model
    assert not (tmp_path / "m.bin").exists()


def test_nothing_private_stands_in_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"zebrasite-{letter}" for letter in "abcd")
    monkeypatch.setattr(sites, "SITES", names)
    monkeypatch.setattr(sites, "CLASSES", ("zebraclass1", "zebraclass2", "zebraclass3"))
    run = played(tmp_path, isolate=True)  # tables are read in a process of one thread in the end
    trained = [run.trained(name) for name in names]
    needles = [b"zebrasite", b"zebraclass", b"income"]
    needles += [one.facts["data_sha256"].encode() for one in trained]
    needles += [one.scaling["mean"].tobytes() for one in trained]
    assert invoke("audit", "bundle", run.path, "--out", tmp_path / "b.zip").exit_code == 0
    zipfile.ZipFile(tmp_path / "b.zip").extractall(run.path / "unpacked")
    files = [file for file in run.path.rglob("*") if file.is_file()]
    assert len(files) > 20
    for file in files:
        data = file.read_bytes()
        assert not [needle for needle in needles if needle in data], file


@pytest.mark.long  # half a minute, for a process of its own
def test_a_stranger_s_configuration_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that verifies, whose config.yaml, bound in every ledger, names a vast model."""
    text = Config.text

    def lie(self: Config) -> str:
        document = yaml.safe_load(text(self))
        document["model"].update(hidden=65536, layers=64)
        return yaml.safe_dump(document, sort_keys=False)

    with monkeypatch.context() as patched:
        patched.setattr(Config, "text", lie)
        document = law("fed_avg", "unsafe_plaintext").model_dump(mode="json")
        chosen = Config.parse({**document, "keep_models": False})
        run = Federation.from_config(chosen).run(tmp_path / "run")
    assert run.verify().ok
    code = f"""
        import resource, torch, torch_geometric
        from secure_fgl import Run
        from secure_fgl.errors import UsageError
        resource.setrlimit(resource.RLIMIT_AS, ({6 << 30}, {6 << 30}))
        try:
            Run({str(run.path)!r}).model()
        except UsageError as error:
            print("refused", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "refused What fed_avg shares is not a whole model" in done.stdout, done.stderr[-500:]
