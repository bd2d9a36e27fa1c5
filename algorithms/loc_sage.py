"""LocSage (Zhang et al., NeurIPS 2021, section 5): FedSage's model, every client trained alone.

This is `algorithms.local` with the model and the training of `algorithms.fed_sage`. The paper's
rows hold each client's model against the whole graph, which is the reference `whole_graph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from algorithms.local import Step, local
from algorithms.tasks import Kind, Task
from protocols.forms import Algorithm

MODELS: Mapping[Kind, str] = {"node": "graph_sage_sampled"}


def loc_sage(task: Task, *, epochs: int = 1) -> Algorithm[Step]:
    """Return LocSage for a task.

    Args:
        task: trains and predicts; `task.size` is d.
        epochs: local epochs per round.
    """
    alone = local(task, epochs=epochs)
    return replace(alone, name="loc_sage", citation="Zhang et al., NeurIPS 2021, LocSage")


ALGORITHM = loc_sage
