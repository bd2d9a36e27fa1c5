"""An account under other assumptions: fewer honest clients and a smaller delta cost more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audits.accounting import rows
from audits.accounting.otherwise import otherwise
from audits.accounting.rows import Tally
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from protocols.errors import PolicyError
from protocols.plan.cohorts import DrawnPlan
from protocols.policy.policy import PrivacyPolicy
from tests.audits.noised_run import NoisedRun
from tests.audits.test_account_training import PrivateRun
from tests.secure_fgl.cli_tools import invoke


@pytest.fixture(scope="module")
def view() -> RunView:
    return NoisedRun().view()


def test_the_policy_s_assumptions_give_the_account_s_numbers(view: RunView) -> None:
    (row,) = otherwise(view)
    found = NoisedRun().account()
    (run,) = [scope for scope in found.scopes if scope.scope == row.planned.scope]
    assert row.planned.value == run.planned.value
    assert row.recorded.value == run.recorded.value
    shares = {share.missing: share.epsilon.value for share in found.honest_share}
    for row in otherwise(view, missing=range(4)):
        assert row.missing is not None and row.planned.value == shares[row.missing]


def test_more_missing_and_a_smaller_delta_cost_more(view: RunView) -> None:
    found = otherwise(view, missing=range(4))
    for name in ("planned", "recorded"):
        told = [getattr(row, name).as_float() for row in found]
        assert told == sorted(told) and told[0] < told[-1]
    (same,), (small,) = otherwise(view), otherwise(view, delta=1e-8)
    assert same.recorded.as_float() < small.recorded.as_float()
    assert (same.recorded.delta, small.recorded.delta) == ("1e-05", "1e-08")
    assert "in place of what the policy assumes" in " ".join(small.planned.assumptions)


def test_only_who_shares_a_total_adds_noise_to_it(view: RunView) -> None:
    """Of a run whose clients lots cut into cohorts, others' noise is in other totals (O18)."""
    tally = Tally(Case(view.folder_only))
    everybody = max(share.honest for share in rows.shares(tally, rows.labels(tally)))
    assert everybody == tally.together == len(tally.plan.clients)  # the control
    cut = DrawnPlan(
        size=3, cohorts=2, smallest=3, largest=4, colluders=0, within=0, least=3, by_lot=True
    )
    tally.plan = tally.plan.model_copy(update={"drawn": cut})
    told = list(rows.shares(tally, rows.labels(tally)))
    assert max(share.honest for share in told) == cut.smallest < everybody
    assert told[0].epsilon.as_float() > tally.meter.own(tally.planned(everybody))


def test_a_record_is_counted_by_itself() -> None:
    run = PrivateRun()
    found = run.account().records
    assert found is not None
    (row,) = otherwise(run.view(), unit="record")
    assert row.recorded == found.recorded and row.missing is None
    (small,) = otherwise(run.view(), unit="record", delta=float(row.recorded.delta) / 100)
    assert small.recorded.as_float() > row.recorded.as_float()
    with pytest.raises(PolicyError):
        otherwise(run.view(), unit="record", missing=[1])


def test_what_cannot_be_counted_is_refused(view: RunView) -> None:
    bare = NoisedRun(policy=PrivacyPolicy.preset("masks")).view()
    for wrong in ({"missing": [-1]}, {"missing": [99]}, {"delta": 0.0}, {"delta": 2.0}):
        with pytest.raises(PolicyError):
            otherwise(view, **wrong)
    with pytest.raises(PolicyError) as without:
        otherwise(bare)
    assert "no noise" in without.value.why
    with pytest.raises(PolicyError) as plain:
        otherwise(view, unit="record")
    assert "not private" in plain.value.why


def test_the_command_prints_rows_and_exits_as_the_account(view: RunView, tmp_path: Path) -> None:
    run = NoisedRun().save(tmp_path / "run")
    whole = invoke("audit", "account", run, "--format", "json")
    anew = invoke("audit", "account", run, "--missing", "0..3", "--format", "json")
    assert whole.exit_code == anew.exit_code
    assert [row["missing"] for row in json.loads(anew.stdout)] == [0, 1, 2, 3]
    table = invoke("audit", "account", run, "--missing", "2", "--delta", "1e-7")
    assert "1e-07" in table.stdout and "2 others are away or collude" in " ".join(
        table.stdout.split()
    )
    for bad in ("x", "3..1", "0..999", "-1"):
        assert invoke("audit", "account", run, f"--missing={bad}").exit_code == 2
