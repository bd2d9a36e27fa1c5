"""``plan``, ``list`` and ``schema``: nothing is trained."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from protocols.plan.plan import Plan
from protocols.plan.steps import Way
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.catalogue import algorithm_names
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.secure_fgl.cli_tools import ROOT, config, invoke


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return config(tmp_path)


def test_json_on_stdout_is_the_plan_file_and_fits_its_schema(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    shown = invoke("plan", tiny, "--format", "json", "--out", file)
    assert shown.exit_code == 0
    assert shown.stdout == file.read_text()
    plan = Plan.model_validate(json.loads(shown.stdout))
    assert plan.digest in shown.stderr
    schema = json.loads(invoke("schema", "plan").stdout)
    Draft202012Validator(schema).validate(plan.document())


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_table_holds_every_fact_at_any_width(
    tiny: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    plan = Plan.model_validate(json.loads(invoke("plan", tiny, "--format", "json").stdout))
    shown = invoke("plan", tiny).stdout
    assert "\x1b" not in shown and "…" not in shown
    assert max(map(len, shown.splitlines())) <= max(80, int(columns))
    told = re.sub(r"[^\w=.]", "", shown)  # wrapping may break anywhere; order within a cell stays
    facts = [plan.digest, plan.policy_digest, f"{len(plan.clients)} (client-1 to client-5)"]
    for item in plan.items:
        facts += [item.id, f"{item.sender} -> {item.recipient}", str(item.bytes)]
        facts += [f"{m.name}.{f.name}" for m in item.messages for f in m.fields]
    for fact in facts:
        assert re.sub(r"[^\w=.]", "", fact) in told, fact
    words = set(re.findall(r"[\w.()=]+", shown))
    for item in plan.items:
        assert set(re.findall(r"[\w.()=]+", " ".join(item.guards))) <= words
        for role, what in item.learns.items():
            assert role in shown
            assert set(re.findall(r"[\w.()=]+", what)) <= words
    for way in Way:  # beside each item that leaves in place of others
        assert shown.count(f"  {way}") >= len([i for i in plan.items if i.way is way]) > 0
    for warning in (*plan.warnings, plan.budget):
        assert set(re.findall(r"[\w.()=]+", warning)) <= words


def test_unsafe_is_written_out(tiny: Path) -> None:
    shown = invoke("plan", tiny, "--set", "policy=unsafe_plaintext").stdout
    assert "UNSAFE clip" in shown
    assert "UNSAFE" not in invoke("plan", tiny).stdout


def test_against_passes_less_and_refuses_more(tiny: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    assert invoke("plan", tiny, "--out", old).exit_code == 0
    fewer = invoke("plan", tiny, "--against", old, "--set", "algorithm.rounds=1")
    assert fewer.exit_code == 0
    more = invoke("plan", tiny, "--against", old, "--set", "algorithm.rounds=3")
    assert more.exit_code == 6
    assert "train.up.SUM: times grew from 2 to 3" in more.stderr
    assert "grew" not in more.stdout


def test_out_may_not_replace_the_plan_it_is_compared_with(tiny: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    invoke("plan", tiny, "--out", old)
    before = old.read_bytes()
    shown = invoke("plan", tiny, "--against", old, "--out", old, "--set", "algorithm.rounds=3")
    assert (shown.exit_code, old.read_bytes()) == (2, before)


def _another_type(text: str) -> str:
    return text.replace('"rounds": 2', '"rounds": "2"')


def _another_key(text: str) -> str:
    return text.replace('"rounds": 2', '"round": 2')


def _twice(text: str) -> str:
    return text.replace('"rounds": 2', '"rounds": 2, "rounds": 2')


def _cut(text: str) -> str:
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_another_type, "rounds: Input should be a valid integer"),
        (_another_key, "did you mean 'rounds'"),
        (_twice, "not JSON"),
        (_cut, "not JSON"),
    ],
)
def test_a_bad_plan_file_is_refused(tiny: Path, tmp_path: Path, spoil: object, said: str) -> None:
    old = tmp_path / "old.json"
    invoke("plan", tiny, "--out", old)
    assert callable(spoil)
    old.write_text(spoil(old.read_text()))
    shown = invoke("plan", tiny, "--against", old)
    assert shown.exit_code == 2
    assert said in shown.stderr
    assert "What to do: make one with: secure-fgl plan" in shown.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["algorithm.roundz=3"], "did you mean 'rounds'"),
        (["data.partition.clients=3"], "cohort of 3 is too small"),
        (["policy=pilott"], "did you mean 'pilot'"),
        (["data.name=corra"], "did you mean 'cora'"),
        (["model.name=gcnn"], "did you mean 'gcn'"),
        (["algorithm.name=fed_av"], "did you mean 'fed_avg'"),
        (["rounds"], "KEY=VALUE"),
    ],
)
def test_a_bad_setting_is_a_usage_error(tiny: Path, settings: list[str], said: str) -> None:
    shown = invoke("plan", tiny, *(word for s in settings for word in ("--set", s)))
    assert shown.exit_code == 2
    assert said in shown.stderr
    assert "Traceback" not in shown.stderr
    assert shown.stdout == ""


def test_a_policy_that_does_not_name_sum_is_refused(tiny: Path, tmp_path: Path) -> None:
    policy = tmp_path / "quiet.yaml"
    policy.write_text(
        "name: quiet\n"
        "rules: {PUBLIC: [{guard: sign}], RELEASED: [{guard: seal}], SEALED: [{guard: seal}]}\n"
    )
    shown = invoke("plan", tiny, "--set", f"policy={policy}")
    assert shown.exit_code == 2
    assert "needs SUM" in shown.stderr


def test_list_names_what_there_is() -> None:
    for subject, known in (
        ("algorithms", set(algorithm_names())),
        ("datasets", {"cora", "synthetic_banks"}),
        ("partitions", {"by_owner", "louvain_balanced"}),
        ("policies", {"he", "pilot", "unsafe_plaintext"}),
        ("models", {"gcn", "graph_sage", "sgc"}),
    ):
        rows = json.loads(invoke("list", subject, "--format", "json").stdout)
        assert known <= {row["name"] for row in rows}
        assert all(row["summary"] for row in rows)
        table = invoke("list", subject).stdout
        assert all(row["name"] in table for row in rows)


def test_generated_data_are_labelled_in_the_list() -> None:
    rows = json.loads(invoke("list", "datasets", "--format", "json").stdout)
    labels = {row["name"]: "SYNTHETIC" in row["summary"] for row in rows}
    assert labels["synthetic_banks"] and not labels["cora"]


@pytest.mark.parametrize("subject", ["policy", "config", "plan", "report"])
def test_schemas_are_closed_json_schemas(subject: str) -> None:
    shown = invoke("schema", subject)
    schema = json.loads(shown.stdout)
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("policy", "clients", "algorithm", "rule"),
    [
        ("masks", 4, "fed_avg", "fixed"),
        ("pilot", 4, "fed_pub", "fixed"),
        ("strict", 4, "fed_avg", "fixed"),
        ("masks", 5, "fed_avg", "any"),  # here a round goes on without one
        ("unsafe_plaintext", 3, "fed_avg", "any"),  # clients are shown no list to refuse
    ],
)
def test_a_preset_keeps_cohorts_fixed_where_that_costs_nothing(
    policy: str, clients: int, algorithm: str, rule: str
) -> None:
    made = Federation(
        "synthetic_banks", algorithm=algorithm, partition="louvain_balanced", clients=clients,
        config=Config.parse({"policy": policy}),
    )  # fmt: skip
    preset = PrivacyPolicy.preset(policy)
    assert made.policy == preset.model_copy(update={"cohort_changes": rule})
    assert json.loads(made.plan().policy_fields["cohort_changes"]) == rule


def test_an_algorithm_that_splits_clients_keeps_the_presets_rule() -> None:
    document = {
        "algorithm": {"name": "gcfl"},
        "data": {
            "name": "synthetic_banks",
            "partition": {"name": "louvain_balanced", "clients": 4},
        },
        "policy": "masks",
    }
    assert Federation.from_config(Config.parse(document)).policy.cohort_changes == "any"


def test_a_plan_says_what_rounding_costs_under_a_loose_bound() -> None:
    """Sixteen bits a value: the grid has as many steps however loose the bound of records is."""
    shown = [
        " ".join(
            invoke(
                "plan", ROOT / "examples/banks.yaml", "--set", f"data.records={records}"
            ).output.split()
        )
        for records in (256, 1 << 20)
    ]
    for text, records in zip(shown, (256, 1 << 20), strict=True):
        assert "rounding by at most 0.0031 % of the largest update; k times as much" in text
        assert f"with 1/k of the {records} records that the bound allows" in text
