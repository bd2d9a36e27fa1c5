"""What must be as it was where a killed run goes on."""

from __future__ import annotations

from pydantic import ValidationError

from protocols.errors import EvidenceError
from protocols.plan.plan import Plan
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.plugins.in_use import Plugins
from secure_fgl.store.run_folder import RunFolder

__all__ = ["check_same"]


def check_same(folder: RunFolder, config: Config, plugins: Plugins) -> None:
    """See that configuration and plug-ins are those that a killed run began with.

    Raises:
        PlanDrift: a plug-in is another file, is missing or is new.
        UsageError: the configuration is another one.
        EvidenceError: the folder's plan is none.
    """
    if folder.bytes("config.yaml").decode() != config.text():
        raise UsageError(
            "The configuration is not the one that the killed run began with.",
            fix=f"resume with the same --set and --plugin, or with {folder.path / 'config.yaml'}",
        )
    try:
        plan = Plan.model_validate_json(folder.bytes("plan.json"))
    except ValidationError as error:
        raise EvidenceError("plan", "the plan of the killed run cannot be read") from error
    plugins.hold_to(plan)
