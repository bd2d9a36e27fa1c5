"""The algorithm and the model that a run's configuration names, ours or the auditor's plug-ins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from algorithms.tasks import Kind, Task
from protocols.forms import Algorithm
from secure_fgl.catalogue import build_algorithm, preferred_model
from secure_fgl.config import Config
from secure_fgl.data.kinds import model_name
from secure_fgl.muting import quiet
from secure_fgl.plugins.in_use import Plugins

__all__ = ["RunCode"]


@dataclass(frozen=True)
class RunCode:
    """Attributes: config, of the run; plugins, the auditor's own copies, held to the run's plan."""

    config: Config
    plugins: Plugins

    def bare(self, task: Task) -> Algorithm[Any]:
        """Return the run's algorithm without scores, over its own task or another one."""
        chosen = self.config.algorithm
        with self.plugins.in_use():
            return quiet(
                build_algorithm(chosen.name, task, epochs=chosen.epochs, options=chosen.options)
            )

    def model_name(self, kind: Kind) -> str:
        """Return the name of the run's model."""
        with self.plugins.in_use():
            preferred = preferred_model(self.config.algorithm.name)
        return model_name(kind, self.config.model, preferred)
