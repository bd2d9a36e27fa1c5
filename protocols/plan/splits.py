"""How a form's clusters come about under a policy (O5)."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.plan.split_plan import SplitPlan
from protocols.policy.policy import PrivacyPolicy


def plan_splits(form: Form[Any], policy: PrivacyPolicy) -> SplitPlan | None:
    """Return how a form's clusters come about; None if it never splits its clients."""
    if form.splits is None:
        return None
    return SplitPlan(
        message=form.splits.kind.__name__,
        cut=form.splits.cut,
        guard=form.splits.guard,
        signed=evaluated(policy.rules.get(Disclosure.SIMILARITY, ())) is not None,
    )
