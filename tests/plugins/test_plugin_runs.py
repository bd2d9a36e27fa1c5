"""Plans, runs, sites that run apart, and audits with plug-ins: digests first, everywhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError, NotInPlan
from protocols.plan.steps import Step
from scripts.compare_ledgers import differences
from secure_fgl.charters.joining import sign
from secure_fgl.checking.killed import kill
from secure_fgl.config import Config
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.isolation.sandbox import Sandbox
from secure_fgl.plugins import in_use, loading
from secure_fgl.run.simulation import Preparation
from secure_fgl.sites import process as party_process
from secure_fgl.store.finished_run import Run
from tests.kept import kept
from tests.plugins.page import DATA, FEDPROX, MODEL, PARTITION, changed, config, write
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble

OTHER = changed(("mu: float = 0.01", "mu: float = 0.02"))
BANKS = """
algorithm: {name: my_fedprox, rounds: 2}
model: {hidden: 8}
data:
  name: synthetic_banks
  options: {customers: 40, transactions: 60}
  partition: {name: by_owner, clients: 5}
policy: masks
"""


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note which plug-ins would be run from now on."""
    noted: list[str] = []

    def load(plugin: Any) -> None:
        noted.append(plugin.name)
        raise AssertionError("a plug-in was run")

    monkeypatch.setattr(in_use, "load", load)
    yield noted


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run under masks, which captures, and the file that made it."""
    folder = tmp_path_factory.mktemp("finished")
    file = write(folder)
    return Federation(config=config(isolate=False), plugins=[file]).run(folder / "run"), file


def test_a_plug_in_s_answers_are_the_same_in_workers(finished: tuple[Run, Path]) -> None:
    run, file = finished
    document = {**config().model_dump(mode="json"), "transport": {"workers": 2}}
    document["isolate"] = False  # one process computes all isolated answers
    spread = Federation(config=Config.parse(document), plugins=[file]).run(run.path.parent / "two")
    assert list(differences(run.path, spread.path)) == []


def learnt(run: Run) -> tuple[Any, Any]:
    return run.result["model_sha256"], run.result["metrics"]


# --- plans and runs -------------------------------------------------------------------------------


def test_the_plan_lists_a_plug_in_with_kind_and_digest(tmp_path: Path) -> None:
    file, text = write(tmp_path), tmp_path / "banks.yaml"
    text.write_text(BANKS)
    shown = invoke("plan", text, "--plugin", file, "--out", tmp_path / "plan.json")
    assert shown.exit_code == 0, shown.output
    (digest,) = Federation(config=config(), plugins=[file]).plugins.code.values()
    told = " ".join(shown.stdout.split())
    assert f"my_fedprox, algorithm from outside the package: trusted code, sha256 {digest}" in told
    assert "is a plug-in: code from outside this program" in told
    assert f'"plugin.algorithm.my_fedprox": "{digest}"' in (tmp_path / "plan.json").read_text()


def test_a_file_changed_after_the_plan_is_drift_and_is_not_run(
    tmp_path: Path, nothing_runs: list[str]
) -> None:
    file, text = write(tmp_path), tmp_path / "banks.yaml"
    text.write_text(BANKS)
    plan = tmp_path / "plan.json"
    with pytest.MonkeyPatch.context() as before:
        before.setattr(in_use, "load", loading.load)
        assert invoke("plan", text, "--plugin", file, "--out", plan).exit_code == 0
    write(tmp_path, text=OTHER)
    refused = invoke("run", text, "--plugin", file, "--plan", plan, "--out", tmp_path / "run")
    assert refused.exit_code == 6, refused.output
    assert "plug-in my_fedprox (algorithm): another one is here" in refused.stderr
    write(tmp_path)
    other = write(tmp_path, "my_sum", MODEL)
    more = invoke(
        "run", text, "--plugin", file, "--plugin", other, "--plan", plan, "--out", tmp_path / "run"
    )
    assert more.exit_code == 6 and "my_sum (model): not in the approved plan" in more.stderr
    assert nothing_runs == [] and not (tmp_path / "run").exists()


def test_plan_against_an_approved_one(tmp_path: Path) -> None:
    file, text = write(tmp_path), tmp_path / "banks.yaml"
    text.write_text(BANKS)
    plan = tmp_path / "plan.json"
    assert invoke("plan", text, "--plugin", file, "--out", plan).exit_code == 0
    assert invoke("plan", text, "--plugin", file, "--against", plan).exit_code == 0
    write(tmp_path, text=OTHER)
    again = invoke("plan", text, "--plugin", file, "--against", plan)
    assert again.exit_code == 6 and "another one is here" in again.stderr


def test_a_file_changed_since_it_was_read_is_not_run(tmp_path: Path) -> None:
    federation = Federation(config=config(), plugins=[write(tmp_path)])
    plan = federation.plan()
    write(tmp_path, text=OTHER)
    with pytest.raises(UsageError, match="was changed since it was read"):
        federation.run(tmp_path / "run", plan=plan)
    with pytest.raises(PlanDrift, match="another one is here"):
        Federation(config=config(), plugins=[tmp_path / "my_fedprox.py"]).run(
            tmp_path / "run", plan=plan
        )
    with pytest.raises(UsageError, match="There is no algorithm"):
        Federation(config=config()).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_party_compares_its_own_digests_with_the_plan(tmp_path: Path) -> None:
    federation = Federation(config=config(), plugins=[write(tmp_path)])
    other = Federation(config=config(), plugins=[write(tmp_path, text=OTHER)])
    prepared: Preparation = federation.prepare(other.plan())
    prepared.load()
    from secure_fgl.store.run_folder import RunFolder
    from secure_fgl.transports.memory import MemoryTransport

    folder = RunFolder(tmp_path / "run")
    folder.make()
    with pytest.raises(NotInPlan, match="other plug-ins than are here"):
        prepared.train(folder, None, MemoryTransport)
    assert not list((tmp_path / "run" / "ledger").glob("*.jsonl"))


def test_a_run_is_that_of_the_built_in_and_its_evidence_holds(
    finished: tuple[Run, Path], tmp_path: Path
) -> None:
    run, _ = finished
    same = config().model_dump(mode="json")
    same["algorithm"]["name"] = "fed_prox"
    ours = Federation(config=Config.parse(same)).run(tmp_path / "ours")
    assert learnt(run) == learnt(ours)
    assert run.verify().ok
    assert "plugins:\n- my_fedprox\n" in (run.path / "config.yaml").read_text()
    told = (run.path / "report" / "report.md").read_text()
    assert "Code from outside the program" in told


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")
def test_isolated_answers_are_the_same_bits_and_the_worker_reads_its_own_copy(
    finished: tuple[Run, Path], tmp_path: Path
) -> None:
    run, file = finished
    alone = Federation(config=config(isolate=True), plugins=[file])
    assert learnt(alone.run(tmp_path / "run")) == learnt(run)
    other, plan = write(tmp_path, text=OTHER), alone.plan()
    with pytest.raises(UsageError, match="another one is here"):
        Sandbox(alone.config, alone.policy, plan, plan.clients, plugins=[other])


def test_a_killed_run_goes_on_with_the_same_file_alone(
    finished: tuple[Run, Path], tmp_path: Path
) -> None:
    run, _ = finished
    file, out = write(tmp_path), tmp_path / "run"
    federation = Federation(config=config(), plugins=[file])
    assert kill(federation.config, federation.plugins, out, at=20)
    write(tmp_path, text=OTHER)
    for given, words in (([file], "another one is here"), ([], "not the one that the killed run")):
        with kept(), pytest.raises((PlanDrift, UsageError), match=words):
            named = config() if given else config(algorithm={"name": "fed_avg", "rounds": 2})
            Federation(config=named, plugins=given).run(out, resume=True)
    write(tmp_path)
    with kept():
        resumed = Federation(config=config(), plugins=[file]).run(out, resume=True)
    assert learnt(resumed) == learnt(run)


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("my_sum", MODEL, {"model": {"name": "my_sum", "hidden": 4}}),
        (
            "my_ring",
            DATA,
            {"data": {"name": "ring", "partition": {"name": "iid_nodes", "clients": 5}}},
        ),
        (
            "my_fifth",
            PARTITION,
            {
                "data": {
                    "options": {"customers": 40, "transactions": 60},
                    "records": 64,
                    "partition": {"name": "my_fifth", "clients": 5},
                }
            },
        ),
    ],
)
def test_models_data_and_partitions_run_beside_ours(
    name: str, text: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    chosen = config(algorithm={"name": "fed_avg", "rounds": 1}, **settings)
    file = write(tmp_path, name, text)
    with pytest.raises(UsageError):
        Federation(config=chosen).plan()
    federation = Federation(config=chosen, plugins=[file])
    (entry,) = federation.plan().plugins
    assert entry.endswith(f".{name}")
    assert federation.run(tmp_path / "run").verify().ok


# --- sites that run apart -------------------------------------------------------------------------


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parties:
    """Everybody agreed on a charter whose plan names the plug-in; nobody has a copy yet."""
    file = write(tmp_path / "drawn-up")
    named = config(plugins=[str(file)])
    return assemble(named, tmp_path / "parties")


def test_each_site_runs_its_own_copy_or_none(parties: Parties, nothing_runs: list[str]) -> None:
    assert parties.charter.config.plugins == ("my_fedprox",)
    kit, theirs = parties.kit("client-1"), parties.kit("client-1").folder / "plugins"
    with pytest.raises(UsageError, match="There is no plug-in 'my_fedprox'"):
        party_process._prepared(kit)
    write(theirs, text=OTHER)
    with pytest.raises(PlanDrift, match="another one is here"):
        party_process._prepared(kit)
    assert nothing_runs == []
    write(theirs)
    with pytest.raises(AssertionError, match="was run"):  # control: now it is
        party_process._prepared(kit)


def test_no_charter_names_a_file_of_its_signer_s_machine(parties: Parties) -> None:
    agreed = parties.charter.config.model_copy(update={"plugins": ("/tmp/my_fedprox.py",)})
    drawn_up = replace(parties.charter, config=agreed, signatures={})
    with pytest.raises(EvidenceError, match=r"each site's own \(plugins\)"):
        sign(parties.folders["client-1"], drawn_up)


def test_a_site_with_the_plan_s_copy_takes_part(parties: Parties) -> None:
    for site in parties.folders:
        write(parties.kit(site).folder / "plugins")
    for site in ("client-1", "aggregator"):
        process = party_process.open_process(parties.kit(site))
        assert process.prepared.plugins.code == parties.charter.plan.plugins
        process.files.close()


# --- audits ---------------------------------------------------------------------------------------


def test_no_audit_runs_what_a_run_names(
    finished: tuple[Run, Path], nothing_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = finished
    monkeypatch.chdir(file.parent)  # where a file of that name lies
    assert invoke("audit", "verify", run.path).exit_code == 0
    assert invoke("audit", "report", run.path).exit_code == 0
    shown = invoke("audit", "attack", run.path, "--fail-on", "never")
    assert shown.exit_code == 0, shown.output
    assert "NOT TESTED: This run's code is a plug-in (my_fedprox)" in shown.stdout
    assert "give your own copy with --plugin FILE" in shown.stdout
    assert nothing_runs == []


def test_not_even_an_installed_one(
    finished: tuple[Run, Path],
    tmp_path: Path,
    nothing_runs: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.plugins.test_plugins import install

    monkeypatch.syspath_prepend(str(install(tmp_path)))
    shown = invoke("audit", "attack", finished[0].path, "--fail-on", "never")
    assert shown.exit_code == 0 and "NOT TESTED: This run's code is a plug-in" in shown.stdout
    assert nothing_runs == []


def test_an_auditor_s_copy_is_accepted_by_its_digest_alone(
    finished: tuple[Run, Path], tmp_path: Path
) -> None:
    _, file = finished
    # A copy, as what an attack found stays in the folder, and other tests look for what it did not.
    run = Run(Path(shutil.copytree(finished[0].path, tmp_path / "copied")))
    for text in (OTHER, FEDPROX + LATE):
        other = write(tmp_path, text=text)
        refused = invoke("audit", "attack", run.path, "--plugin", other)
        assert refused.exit_code == 2, refused.output
        assert "is not what this run's plan names" in refused.stderr
        assert "it was run" not in refused.output
    shown = invoke("audit", "attack", run.path, "--plugin", file, "--fail-on", "never")
    assert shown.exit_code == 0, shown.output
    assert "code is a plug-in" not in shown.stdout and "A05" in shown.stdout


LATE = 'raise RuntimeError("it was run")\n'


def test_an_audit_of_a_run_without_plug_ins_takes_none(tmp_path: Path) -> None:
    plain = config(algorithm={"name": "fed_avg", "rounds": 1})
    run = Federation(config=plain).run(tmp_path / "run")
    refused = invoke("audit", "attack", run.path, "--plugin", write(tmp_path))
    assert refused.exit_code == 2 and "not in the approved plan" in refused.stderr


def test_the_plan_s_items_are_the_algorithm_s(finished: tuple[Run, Path]) -> None:
    plan = Federation(config=config(), plugins=[finished[1]]).plan()
    assert plan.find("train", Disclosure.SUM, Step.UP).messages[0].name == "Update"


def test_a_model_is_taken_out_with_a_copy_of_the_plan_s_file(
    finished: tuple[Run, Path], tmp_path: Path, nothing_runs: list[str]
) -> None:
    run, file = finished
    to = tmp_path / "model.npz"
    refused = invoke("model", "export", run.path, "--to", to)
    assert refused.exit_code == 2 and "give your own copy: --plugin FILE" in refused.stderr
    other = invoke("model", "export", run.path, "--to", to, "--plugin", write(tmp_path, text=OTHER))
    assert other.exit_code == 6 and nothing_runs == [] and not to.exists()
    with pytest.MonkeyPatch.context() as before:
        before.setattr(in_use, "load", loading.load)
        shown = invoke("model", "export", run.path, "--to", to, "--plugin", file)
    assert shown.exit_code == 0, shown.output
    assert to.is_file()


def test_a_model_without_a_plain_form_is_called_with_edges(tmp_path: Path) -> None:
    chosen = config(
        algorithm={"name": "fed_avg", "rounds": 1}, model={"name": "my_sum", "hidden": 8}
    )
    file = write(tmp_path, "my_sum", MODEL)
    federation = Federation(config=chosen, plugins=[file])
    run = federation.run(tmp_path / "run")
    with pytest.raises(UsageError, match="a plug-in says"):
        run.model()
    with pytest.raises(PlanDrift):
        run.model(plugins=[write(tmp_path / "other", "my_sum", MODEL + "\n# changed\n")])
    module = run.model(plugins=[file])
    prepared = federation.prepare()
    prepared.load()
    site = prepared.sites[0]
    once = site.data.edges
    logits = module(site.data.x, torch.cat([once, once.flip(0)], dim=1))
    weights = np.load(run.path / "checkpoints" / "best.npz")["weights"]
    expected = prepared.task.predict(weights, site)
    assert np.array_equal(logits.softmax(dim=1).detach().numpy(), expected)
    shown = invoke("model", "export", run.path, "--to", tmp_path / "m.npz", "--plugin", file)
    assert shown.exit_code == 0, shown.output
