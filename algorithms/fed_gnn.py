"""FedGNN (Wu et al. 2021) as FED-PUB compares itself with it: embeddings of nodes beyond one's own.

Baek et al. (ICML 2023) describe their baseline in one sentence: where nodes of two clients have the
same neighbour, their embeddings are exchanged and augment the clients' graphs; then training is
FedAvg. No program of it is public, so everything below is this project's choice (docs/adr/0055).

After `warm` rounds of FedAvg, once in a run, every client computes of its own nodes

    h_u = ReLU(sum over w of P_uw x_w W + b),

the model's first layer with the weights that the aggregator hands out for it, on the client's own
graph. The shared neighbour is a node v that one client owns and others know by its number; its row
is the sum of h_u / sqrt(d_u) over its neighbours u at other clients, and how many these are. The
owner gives v that sum in the second layer, as so many neighbours more, and keeps it:

    second layer at v:  1/sqrt(d_v) * (sum over own neighbours and v of h_u / sqrt(d_u) + row of v),

where h of own nodes is computed anew in every step and the row stays. A node's degree d counts its
neighbours elsewhere if its row was told, or if there are none; else its own client's alone. So with
all rows told, and the weights they were computed with, logits are those of a GCN whose first layer
sees the clients' own graphs and whose second layer sees the whole graph; with none it is FedAvg.

Rows are found, added up and handed out as FedGCN's: one exchange, the same forms (`rows_by_tags`,
`rows_in_blocks`, see `algorithms.fed_gcn`). With `nodes: 0` nothing is exchanged, and this is
FedAvg, form by form.

A node's features are in its neighbours' embeddings, too, so noise that covers one term does not
cover them. With `alone` an embedding is of the node by itself, and zero without features,

    h_u = ReLU(x_u W + b) - ReLU(b),

which the noise on rows covers: policies that noise rows admit this alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from algorithms import fed_gcn
from algorithms._shared.row_sums import (
    Linked,
    check_numbers,
    features,
    local,
    look,
    own_inputs,
    sorted_rows,
    staged,
)
from algorithms.fed_avg import Start, fed_avg
from algorithms.tasks import Kind, Site, Task
from algorithms.tasks.node import NodeTask
from protocols.forms import Algorithm
from protocols.messages import Message

if TYPE_CHECKING:
    import scipy.sparse as sp

    from algorithms.tasks.inputs import NodeData

__all__ = ["ALGORITHM", "MODELS", "augmented", "embeddings", "fed_gnn"]

MODELS: Mapping[Kind, str] = {"node": "gcn"}
"""What the configuration's model is where it names none."""

_CITATION = "Wu et al. 2021, FedGNN, as a baseline of Baek et al., FED-PUB, ICML 2023"
_TWO_LAYERS = (("gcn", 2), ("gcn_linear", 2))


class Embeddings(fed_gcn.NodeTerms):
    """One client's terms of all rows: embeddings, in which features of neighbours are, too."""

    of_one = False


@dataclass(frozen=True)
class Client(fed_gcn.Client):
    """A client whose terms are embeddings, and whose second layer hears those of others.

    Attributes:
        warm, alone: see `fed_gnn`.
        width: entries of an embedding.
    """

    warm: int
    alone: bool
    width: int

    @property
    def terms(self) -> type[fed_gcn.NodeTerms]:
        """What a client says of all rows that are found by tags."""
        return fed_gcn.NodeTerms if self.alone else Embeddings

    @property
    def handed(self) -> tuple[type[Message], ...]:
        """What a client is given when it is asked for rows: the model, too."""
        return (fed_gcn.Gather, Start)

    def asking(self, state: fed_gcn.Server, block: int) -> tuple[Message, ...]:
        """Return the same of one block."""
        return fed_gcn.Gather(block=block), state.start

    def once(self, rounds: int) -> int:
        """Return in how many of so many rounds rows are asked for."""
        return int(rounds > self.warm)

    def linked(self, site: Site, *given: Message) -> Linked:
        """Return what a client's nodes say to rows.

        Raises:
            ValueError: the client knows no such edges, or others hold some of its nodes and tell
                their terms: it would be told of nodes that its own second layer hears, again.
        """
        (start,) = (one for one in given if isinstance(one, Start))
        data = local(site.data)
        if data.tells is not None:
            raise ValueError(
                "rows of fed_gnn are of nodes with one client each, and in this partition clients "
                "hold nodes together; take METIS with linked: true, or nodes: 0"
            )
        bare = Linked(data, 1)
        check_numbers(bare.links[1], self.nodes)
        inputs = features(data)[: len(bare.ids)] if self.alone else _inputs(data, bare)
        return Linked(data, 1, embeddings(inputs, start.weights, self.width, alone=self.alone))

    def look(self, site: Site) -> None:
        """Give the site's graph the rows that are here."""
        look(site, augmented)


def embeddings(
    inputs: sp.csr_array, weights: npt.NDArray[np.float32], width: int, *, alone: bool = False
) -> npt.NDArray[np.float64]:
    """Return the first layer's activations, (n, width).

    Args:
        inputs: what the layer hears, (n, F).
        weights: of the model, which begin with W (F, width) and b (width,) of that layer.
        width: of the layer.
        alone: less the activations of no input.
    """
    size = inputs.shape[1] * width
    matrix, bias = weights[:size].reshape(-1, width), weights[size : size + width]
    found: npt.NDArray[np.float64] = np.maximum(inputs @ matrix.astype(np.float64) + bias, 0.0)
    return found - np.maximum(bias, 0.0) if alone else found


def augmented(data: NodeData, rows: Mapping[str, Any]) -> NodeData:
    """Return a client's graph whose second layer hears the rows that were told.

    Args:
        data: the client's own graph.
        rows: ``nodes``, (r,) numbers of own nodes, and ``sums``, (r, D + 1): what other clients'
            terms add up to.
    """
    import scipy.sparse as sp
    import torch

    mine = Linked(data, 1)
    told, sums = sorted_rows(rows)
    own, nodes = data.edges.numpy(), len(mine.ids)
    places = np.searchsorted(mine.ids, told)
    degree = 1 + np.bincount(np.hstack(list(own)), minlength=nodes)
    degree[places] = mine.degree[places]
    pairs = np.hstack([own, own[::-1], np.tile(np.arange(nodes), (2, 1))])
    heard = np.stack([places, nodes + np.arange(len(told))])
    weight = 1.0 / np.sqrt(np.hstack([degree[pairs[0]] * degree[pairs[1]], degree[places]]))
    shape = (nodes, nodes + len(told))
    second = sp.csr_array((weight, tuple(np.hstack([pairs, heard]))), shape=shape)
    first = _inputs(data, mine)
    inputs = sp.csr_array(sp.vstack([first, sp.csr_array((len(told), first.shape[1]))]))
    given = torch.tensor(sums[:, :-1], dtype=torch.float32)
    return staged(data, inputs, second, len(told), given)


def _inputs(data: NodeData, mine: Linked) -> sp.csr_array:
    """Return the first layer's inputs on the client's own graph, (n, F)."""
    return own_inputs(data, mine, np.zeros(0, np.int64), np.zeros((0, 0)))


def fed_gnn(
    task: Task,
    *,
    epochs: int = 1,
    nodes: int = 0,
    warm: int = 10,
    alone: bool = False,
    block: int = 256,
) -> Algorithm[Any]:
    """Return FedGNN for a task.

    Args:
        task: trains and predicts; with `nodes` a model of two GCN layers on nodes.
        epochs: local epochs per round.
        nodes: how many public numbers of nodes there are; 0: no embedding leaves, FedAvg.
        warm: rounds of FedAvg before embeddings are exchanged.
        alone: embeddings are of nodes by themselves, which noise on rows covers.
        block: rows that leave in one message in `rows_in_blocks`.

    Raises:
        ValueError: an option is out of range, or the model is another one.
    """
    if nodes < 0 or warm < 0 or block < 1:
        raise ValueError(
            f"nodes = {nodes} and warm = {warm} are 0 or more, and block = {block} is 1 or more"
        )
    plain = fed_avg(task, epochs=epochs)
    if not nodes:
        less = (
            "FedAvg: no rows are exchanged (nodes is not set), and edges between clients are not "
            "used"
        )
        return replace(plain, name="fed_gnn", citation=_CITATION, reduced=lambda rounds: less)
    if not isinstance(task, NodeTask) or task.architecture not in _TWO_LAYERS:
        raise ValueError(
            "fed_gnn with nodes hands embeddings from the first of two GCN layers to the second; "
            "take model.name: gcn or gcn_linear and model.layers: 2, or nodes: 0"
        )
    width = next(shape for _, shape in task.layout())[1]
    client = Client(task, plain, epochs, 1, nodes, block, warm, alone, width)
    return Algorithm(
        name="fed_gnn",
        citation=_CITATION,
        init=lambda rng: fed_gcn.Server(plain.init(rng), before=warm),
        model=client.model,
        forms=client.forms(),
        dims={**plain.dims, "block": block, "width": width + 1, "nodes": nodes},
        reduced=lambda rounds: _too_short(warm) if rounds <= warm else "",
        linked=True,
    )


def _too_short(warm: int) -> str:
    return f"FedAvg: embeddings leave after warm = {warm} rounds, which is when the run is over"


ALGORITHM = fed_gnn
