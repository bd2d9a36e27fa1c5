"""What a topology's sums over neighbours rest on, where that is too few."""

from __future__ import annotations

from audits.findings.rules import made
from audits.report.models import Finding
from protocols.plan.plan import Plan


def thin(plan: Plan) -> tuple[Finding, ...]:
    """Return a finding where the policy lets sums over too few neighbours run (O5)."""
    topology = plan.topology
    if topology is None or topology.floor == "checked":
        return ()
    message = (
        f"Sums over neighbours rest on too few: {topology.thinnest}. The policy lets that run "
        "(topology_floor: unsafe)."
    )
    remedy = (
        "Give every client more neighbours (topology: regular with a higher degree, or complete); "
        "keep this one for baselines on data that may be seen."
    )
    return (made("THIN_NEIGHBOURHOODS", "critical", message, remedy, role="client"),)
