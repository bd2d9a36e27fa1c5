"""Secure-FGL: federated graph learning in which nothing leaves a client except one audited door.

The public names::

    from secure_fgl import Federation, PrivacyPolicy, load_dataset

Everything else is the business of the floors below and may change.
"""

from secure_fgl import _floors

_floors.check()  # before anything of ours is imported: a stranger's `crypto` must not replace it

from importlib import metadata  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from protocols.plan.plan import Plan
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.data import Graph, load_dataset
    from secure_fgl.federation import Federation
    from secure_fgl.predicting.model_file import load_model
    from secure_fgl.store.finished_run import Run

__all__ = [
    "Config",
    "Federation",
    "Graph",
    "Plan",
    "PrivacyPolicy",
    "Run",
    "load_dataset",
    "load_model",
]
try:
    __version__ = metadata.version("secure-fgl")
except metadata.PackageNotFoundError:  # imported from a checkout that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that ``--help`` need not wait for torch."""
    if name in ("Federation",):
        from secure_fgl.federation import Federation

        return Federation
    if name == "PrivacyPolicy":
        from protocols.policy.policy import PrivacyPolicy

        return PrivacyPolicy
    if name == "Plan":
        from protocols.plan.plan import Plan

        return Plan
    if name == "Config":
        from secure_fgl.config import Config

        return Config
    if name == "Run":
        from secure_fgl.store.finished_run import Run

        return Run
    if name == "load_model":
        from secure_fgl.predicting.model_file import load_model

        return load_model
    if name in ("Graph", "load_dataset"):
        from secure_fgl import data

        return getattr(data, name)
    raise AttributeError(f"module 'secure_fgl' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
