"""FedSage (Zhang et al., NeurIPS 2021, section 3.1): FedAvg with GraphSAGE, all clients alike.

A client trains for an epoch on batches in which every node hears five of its neighbours, and a
second hop five of theirs. Edges between clients are in nobody's graph. Forms and messages are
FedAvg's that weight all clients alike, see `algorithms._shared.steps`; what makes it FedSage is the
model, `algorithms.nn.graph_sage_sampled`, and what it is trained with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from algorithms.fed_avg import Start, fed_avg
from algorithms.tasks import Kind, Task
from protocols.forms import Algorithm

MODELS: Mapping[Kind, str] = {"node": "graph_sage_sampled"}


def fed_sage(task: Task, *, epochs: int = 1) -> Algorithm[Start]:
    """Return FedSage for a task.

    Args:
        task: trains and predicts; `task.size` is d.
        epochs: local epochs per round.
    """
    plain = fed_avg(task, epochs=epochs)
    _, *alike = plain.forms
    return replace(
        plain,
        name="fed_sage",
        citation="Zhang et al., NeurIPS 2021, FedSage",
        forms=tuple(alike),
    )


ALGORITHM = fed_sage
