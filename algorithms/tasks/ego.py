"""Node classification on ego-graphs of a fixed shape: FedEgo's task, and its baselines'.

A training node is seen through one ego-graph, sampled once in a run, as Algorithm 1 of FedEgo does
(Zhang et al., 2022). Predictions take all neighbours: nothing is sampled where models are scored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from algorithms import nn
from algorithms.nn._shared.layouts import entries, levels
from algorithms.tasks import DataSpec, Moments, Predictions, Site, Weights
from algorithms.tasks.flat import Numbers
from algorithms.tasks.node import NodeTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.modules import EgoNet
    from algorithms.tasks.inputs import NodeData
    from algorithms.tasks.training import Stepper

__all__ = ["EgoTask", "Egos"]

Floats = npt.NDArray[np.floating[Any]]


class Egos(NamedTuple):
    """A client's ego-graphs, one a training node.

    Attributes:
        places: int64 (n, positions), nodes; column 0 holds the centres, ascending.
        label: int64 (n,), classes of the centres.
    """

    places: Numbers
    label: Numbers


class EgoTask(NodeTask):
    """Node classification with a network in two parts, `algorithms.nn._shared.modules.EgoNet`.

    The flat vector is Theta, the `reduction` parameters, then Phi. Weights start from
    He-normal matrices (He et al., ICCV 2015, eq. 10) and zero biases.

    Args:
        spec: what is known of the data in public.
        model: an ego model of `algorithms/nn`: ego_sage, ego_sage_linear or ego_mlp.
        layers: hops of an ego-graph, k.
        fan_out: children of each position, n; 6 in FedEgo.
        options: of `NodeTask`.

    Raises:
        ValueError: as `NodeTask`, or the model is no ego model, or `fan_out` is below 1.
    """

    def __init__(
        self, spec: DataSpec, *, model: str = "ego_sage", fan_out: int = 6, **options: Any
    ) -> None:
        if not nn.on_egos(model):
            raise ValueError(
                f"{model!r} is no model of ego-graphs; choose ego_sage, ego_sage_linear or ego_mlp"
            )
        if type(fan_out) is not int or fan_out < 1:
            raise ValueError("fan_out counts an ego-graph's children; choose 1 or more")
        self._fan_out = fan_out
        super().__init__(spec, model=model, **options)
        shapes = self._layout.whole
        below = tuple(part for part in shapes if part[0].startswith("reduction."))
        self._theta = entries(below)
        self._parts = tuple(math.prod(shape) for _, shape in shapes[len(below) :])
        personal = (name for name, _ in shapes if name.startswith("personal."))
        self._hops = sum(name.endswith(".near") for name in personal)  # one for each `Sage`

    @property
    def reduction(self) -> int:
        """Number of parameters of the reduction layers, Theta; they come first."""
        return self._theta

    @property
    def parts(self) -> tuple[int, ...]:
        """Numbers of parameters of the matrices and biases of Phi, in their order."""
        return self._parts

    @property
    def positions(self) -> int:
        """Positions of an ego-graph: 1 + n + ... + n^k."""
        return sum(self.rings)

    @property
    def rings(self) -> tuple[int, ...]:
        """Positions at each distance from the centre, in their order: 1, n, ..., n^k."""
        return levels(self._hops, self._fan_out)

    @property
    def embedding(self) -> int:
        """Entries of a reduction embedding, D."""
        return self._shape[2]

    @property
    def keeps(self) -> bool:
        """Whether moments stay from one round to the next."""
        return self._keeps

    # At a client.

    def _unmade(self, rng: np.random.Generator) -> Weights:
        """He-normal matrices and zero biases, (d,), drawn with numpy."""
        parts = []
        for _, shape in self._layout.whole:
            spread = np.sqrt(2.0 / shape[0]) if len(shape) > 1 else 0.0
            parts.append((spread * rng.standard_normal(shape)).astype(np.float32).ravel())
        return np.concatenate(parts)

    def egos(self, site: Site) -> Egos:
        """Return the site's ego-graphs: the same ones in all of a run, a resumed one included."""
        from algorithms.tasks.ego_graphs import Neighbours, sample

        data: NodeData = site.data
        if "ego_seed" not in site.memory:
            site.memory["ego_seed"] = int(site.generator("egos").integers(2**63))
        known = (site.memory["ego_seed"], self._hops, self._fan_out)
        if data.kept.get("egos_of") != known:
            graph = Neighbours.of(data.edges.numpy(), data.nodes)
            centres, rng = self._records(data), np.random.default_rng(known[0])
            places = sample(graph, centres, self._hops, self._fan_out, rng)
            data.kept.update(egos_of=known, egos=Egos(places, data.y.numpy()[centres]))
        found: Egos = data.kept["egos"]
        return found

    def reduce(self, weights: Weights, site: Site) -> Predictions:
        """Return the reduction embedding of every node of the site, float32 (N, D), no dropout.

        Raises:
            ValueError: weights or data do not fit the model.
        """
        import torch

        net, data = cast("EgoNet", self._load(weights, site)), site.data
        with torch.no_grad():
            return self._numbers(self._reduced(net, data, torch.Generator(), False))

    def _ready(self, site: Site) -> None:
        self.egos(site)

    def _stepper(self, parameters: list[torch.nn.Parameter]) -> Stepper:
        from algorithms.tasks import training

        rates = self._lr, self._weight_decay
        return training.Stepper(self._optimiser, parameters, *rates, fused=True)

    def _build(self) -> EgoNet:
        return cast("EgoNet", self._file.build(*self._shape))

    def _reduced(
        self, net: EgoNet, data: NodeData, draws: torch.Generator, training: bool
    ) -> Tensor:
        return net.reduce(data.x, data.propagation(self._file.PROPAGATION), draws, training)

    def _outputs(
        self,
        module: torch.nn.Module,
        data: NodeData,
        records: Numbers | None,
        draws: torch.Generator,
        training: bool,
    ) -> Tensor:
        import torch

        from algorithms.nn._shared.modules import EgoNet
        from algorithms.nn._shared.sparse import dropout, rows

        if records is None or not isinstance(module, EgoNet):
            return self._on_graph(module, data, records, draws, training)
        egos: Egos = data.kept["egos"]
        places = egos.places[np.searchsorted(egos.places[:, 0], records)]
        if module.alone:  # then only nodes that occur are reduced
            seen, places = np.unique(places, return_inverse=True)
            reduced = module.reduce(rows(data.x, seen), None, draws, training)
        else:
            reduced = self._reduced(module, data, draws, training)
        reduced = dropout(reduced, module.rate, draws, training)
        index = torch.from_numpy(places.reshape(len(records), -1))
        return module.judge(reduced[index], self._fan_out, draws, training)

    # On mixtures, at the aggregator or a client.

    def slope(self, phi: Weights, features: Floats, label: Floats, seed: int) -> Weights:
        """Return the gradient, in Phi, of the mean cross entropy of mixtures, float32 (d_Phi,).

        Without weight decay, which is `stepped`'s.

        Args:
            phi: (d_Phi,), the personalisation layers.
            features: (B, positions, D).
            label: (B, C), rows that sum to one.
            seed: of dropout.

        Raises:
            ValueError: they do not fit the model.
        """
        import torch

        from algorithms.nn._shared.sparse import dropout

        wanted = (self.positions, self.embedding), (self.spec.classes,)
        if (features.shape[1:], label.shape[1:]) != wanted or len(features) != len(label):
            raise ValueError(
                "mixtures need one embedding a position and one share a class; both ends need the "
                "same model options"
            )
        net, parameters = self._personal(phi)
        draws = torch.Generator().manual_seed(seed)
        egos = dropout(torch.tensor(features, dtype=torch.float32), net.rate, draws, True)
        logits = net.judge(egos, self._fan_out, draws, True)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(label, dtype=torch.float32))
        loss.backward()  # type: ignore[no-untyped-call]
        found = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1)
                           for p in parameters])  # fmt: skip
        slopes: Weights = found.numpy()
        return slopes

    def stepped(self, phi: Weights, slope: Weights, moments: Moments) -> tuple[Weights, Moments]:
        """Return Phi after one step of the optimiser along a slope, and what it remembers.

        Raises:
            FloatingPointError: training diverged to NaN or infinity.
        """
        import torch
        from torch.nn.utils import parameters_to_vector

        from algorithms.tasks import training

        _, parameters = self._personal(phi)
        steps = self._stepper(parameters)
        training.restore(steps, moments)
        sizes = [parameter.numel() for parameter in parameters]
        whole = torch.split(torch.tensor(slope, dtype=torch.float32), sizes)
        for parameter, part in zip(parameters, whole, strict=True):
            parameter.grad = part.reshape(parameter.shape)
        steps.step()
        self._finite(parameters)
        moved: Weights = parameters_to_vector(parameters).detach().numpy()
        return moved, training.moments(steps)

    def _personal(self, phi: Weights) -> tuple[EgoNet, list[torch.nn.Parameter]]:
        import torch
        from torch.nn.utils import vector_to_parameters

        net = cast("EgoNet", self.module())
        parameters = [*net.personal.parameters(), *net.head.parameters()]
        if phi.shape != (self.size - self._theta,):
            raise ValueError(
                f"the personalisation layers have {self.size - self._theta} parameters and were "
                f"given {phi.shape}; both ends need the same model options"
            )
        vector_to_parameters(torch.tensor(phi, dtype=torch.float32), parameters)
        return net, parameters
