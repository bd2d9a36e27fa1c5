"""Secure-FGL: federated graph learning in which each message leaves by one audited door.

The public names::

    from secure_fgl import Federation, PrivacyPolicy, load_dataset

What each is, with an example, and what of it is stable: ``docs/api.md``. Everything else is the
business of the floors below and may change.
"""

from secure_fgl import _floors

_floors.check()  # before anything of ours is imported: a stranger's `crypto` must not replace it

from importlib import metadata  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from secure_fgl.errors import check_platform  # noqa: E402

if TYPE_CHECKING:
    from audits.report.models import Report
    from protocols.disclosures.names import Disclosure
    from protocols.errors import BudgetExceeded, EvidenceError, PolicyError, SecureFglError
    from protocols.plan.plan import Plan
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.data import Graph, GraphSet, Ratings, load_dataset
    from secure_fgl.errors import PlanDrift, UsageError
    from secure_fgl.federation import Federation
    from secure_fgl.model_file import load_model
    from secure_fgl.store.finished_run import Run

__all__ = [
    "BudgetExceeded",
    "Config",
    "Disclosure",
    "EvidenceError",
    "Federation",
    "Graph",
    "GraphSet",
    "Plan",
    "PlanDrift",
    "PolicyError",
    "PrivacyPolicy",
    "Ratings",
    "Report",
    "Run",
    "SecureFglError",
    "UsageError",
    "load_dataset",
    "load_model",
]
try:
    __version__ = metadata.version("secure-fgl")
except metadata.PackageNotFoundError:  # imported from a checkout that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that ``--help`` need not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'secure_fgl' has no attribute {name!r}")
    check_platform()
    if name == "Federation":
        from secure_fgl.federation import Federation

        return Federation
    if name == "Config":
        from secure_fgl.config import Config

        return Config
    if name == "Run":
        from secure_fgl.store.finished_run import Run

        return Run
    if name == "load_model":
        from secure_fgl.model_file import load_model

        return load_model
    if name in ("Graph", "GraphSet", "Ratings", "load_dataset"):
        from secure_fgl import data

        return getattr(data, name)
    return _of_lower_floors(name)


def _of_lower_floors(name: str) -> Any:
    if name == "PrivacyPolicy":
        from protocols.policy.policy import PrivacyPolicy

        return PrivacyPolicy
    if name == "Disclosure":
        from protocols.disclosures.names import Disclosure

        return Disclosure
    if name == "Plan":
        from protocols.plan.plan import Plan

        return Plan
    if name == "Report":
        from audits.report.models import Report

        return Report
    from protocols import errors as below
    from secure_fgl import errors

    return getattr(errors if name in ("PlanDrift", "UsageError") else below, name)


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
