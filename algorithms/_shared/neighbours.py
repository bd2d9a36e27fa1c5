"""NeighGen (Zhang et al., NeurIPS 2021, FedSage+): a client guesses the neighbours that it misses.

A client hides some of its own nodes, and what it sees of the rest is an example of a graph with
missing neighbours (`impaired`). Of every node v it learns how many are missing (dGen, `counted`),
and what their features are (fGen, `draw`), and then adds such nodes to its whole graph
(`mended`). Both look at a code z_v of the node and what is around it (`encoded`).

**Codes** are random projections of means over two hops. The encoder is not trained: its matrices
are drawn from a public seed, so that nothing about anybody's nodes lies in them. A node's code
joins its own features, the mean of its neighbours', and the mean of their means, each projected by
a matrix of its own and brought to one length; z has the length sqrt(c) that a code drawn from N(0,
I) has about.

**dGen**: how many neighbours a node misses, n~ = ReLU(<theta, z> + b). The bias is ours: it starts
at the examples' mean, so that no node starts where the ReLU is flat.

**fGen**: features of missing neighbours, drawn from a code. A record is one code z. Its loss is the
mean, over the p neighbours drawn for it, of the squared distance to the nearest of its candidates
(Zhang et al., NeurIPS 2021, section 4.1): the nearest is found anew for each draw, and the gradient
goes through the draw alone. Gradients are written out, since clipping needs each record's own: the
lengths come without making a vector for each record.

**Answers to another client's fGen** (`answered`): gradients at public codes, in pools. The codes
are no data: m of them are drawn from N(0, I) by a public seed. The client deals its nodes at random
into m pools, one a code, and matches what fGen draws from a code with the nodes of that code's pool
alone. Each code's gradient is clipped, so a node, which is in one pool, moves the answer by at most
2/m of the largest answer there is; no edge enters it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from algorithms._shared.neighbour_sizes import Learning, Sizes
from algorithms.nn._shared.sparse import Features, Sparse, product, propagation, rows
from algorithms.tasks import Weights
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.training import Stepper

__all__ = [
    "Drawn",
    "Examples",
    "NeighGen",
    "Slopes",
    "answered",
    "at_codes",
    "counted",
    "dealt",
    "dense",
    "draw",
    "encoded",
    "entered",
    "fit_counting",
    "impaired",
    "inputs",
    "learnt",
    "mended",
    "moved",
    "nearest",
    "record_slopes",
    "slopes",
    "with_neighbours",
]

_SMALL = 1e-12


def encoded(x: Features, edges: Tensor, sizes: Sizes, seed: int) -> Tensor:
    """Return the codes of all nodes of a graph, float32 (N, c); zero where there is no feature.

    Args:
        x: features (N, F).
        edges: int64 (2, M), each undirected pair once.
        sizes: of the codes.
        seed: public; of the encoder's matrices.
    """
    nodes = (x if isinstance(x, Tensor) else x.matrix).shape[0]
    near = propagation(edges, nodes, "mean")
    rng = np.random.default_rng(seed)
    joined = torch.zeros(nodes, sizes.latent)
    for hops in range(3):
        drawn = rng.standard_normal((sizes.features, sizes.latent)).astype(np.float32)
        part = product(x, torch.from_numpy(drawn))
        for _ in range(hops):
            part = product(near, part)
        joined += _scaled(part)
    return _scaled(joined) * float(np.sqrt(sizes.latent))


def _scaled(rows: Tensor) -> Tensor:
    """Return rows of length 1, and zeros where they are zero."""
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp_min(_SMALL)


def fit_counting(codes: Tensor, missing: Tensor, *, steps: int, lr: float) -> Tensor:
    """Return theta and b, (c + 1,), after Adam's steps on the smooth L1 loss over all examples.

    Args:
        codes: (B, c).
        missing: how many neighbours each of them misses, float32 (B,).
        steps: of Adam, without weight decay.
        lr: step size.
    """
    start = torch.zeros(codes.shape[1] + 1)
    start[-1] = missing.mean() if len(missing) else 0.0
    weights = torch.nn.Parameter(start)
    stepper = Stepper("adam", [weights], lr, 0.0)
    for _ in range(steps if len(missing) else 0):
        stepper.zero_grad()
        smooth_l1_loss(_counts(weights, codes), missing).backward()  # type: ignore[no-untyped-call]
        stepper.step()
    return weights.detach()


def counted(weights: Tensor, codes: Tensor, most: int) -> Tensor:
    """Return round(n~) of each code, at most `most`, int64 (N,)."""
    return _counts(weights, codes).round().clamp(0, most).to(torch.int64)


def _counts(weights: Tensor, codes: Tensor) -> Tensor:
    return torch.relu(codes @ weights[:-1] + weights[-1])


class Drawn(NamedTuple):
    """What fGen drew, with all that its gradient needs.

    Attributes:
        inputs: z + e, (B, p, c).
        hidden: after the ReLU, (B, p, h).
        rows: features, (B, p, F).
    """

    inputs: Tensor
    hidden: Tensor
    rows: Tensor


class Slopes(NamedTuple):
    """Gradients of B records, in factors.

    Attributes:
        losses: (B,).
        inputs, hidden: as in `Drawn`.
        below: of the loss by what enters the ReLU, (B, p, h).
        above: of the loss by what enters the tanh, (B, p, F).
    """

    losses: Tensor
    inputs: Tensor
    hidden: Tensor
    below: Tensor
    above: Tensor

    def norms(self) -> Tensor:
        """Return the length of each record's gradient, (B,).

        A layer's gradient is sum_k a_k d_k^T, and its squared length sum_kl <a_k, a_l> <d_k, d_l>.
        """
        squares = torch.zeros_like(self.losses)
        for entered, left in ((self.inputs, self.below), (self.hidden, self.above)):
            alike = entered @ entered.mT + 1.0  # 1: the bias
            squares = squares + (alike * (left @ left.mT)).sum(dim=(1, 2))
        return squares.clamp_min(0.0).sqrt()

    def total(self, scales: Tensor) -> Tensor:
        """Return sum_b scales_b g_b, a vector in fGen's order; `scales` is (B,)."""
        parts = []
        for entered, left in ((self.inputs, self.below), (self.hidden, self.above)):
            weighed = (left * scales[:, None, None]).flatten(0, 1)
            parts += [(entered.flatten(0, 1).T @ weighed).reshape(-1), weighed.sum(dim=0)]
        return torch.cat(parts)


def inputs(codes: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Return z + e with a fresh e ~ N(0, I) for each draw, (B, p, c), from codes (B, c)."""
    noise = torch.randn((len(codes), draws, codes.shape[1]), generator=generator)
    return codes[:, None, :] + noise.to(codes.dtype)


def draw(sizes: Sizes, weights: Tensor, entered: Tensor) -> Drawn:
    """Return what fGen draws from z + e, (B, p, c)."""
    first, shift, second, base = _parts(sizes, weights)
    hidden = torch.relu(entered @ first + shift)
    return Drawn(entered, hidden, torch.tanh(hidden @ second + base))


def nearest(rows: Tensor, candidates: Tensor, allowed: Tensor) -> Tensor:
    """Return the features that are nearest to each drawn row, (B, p, F).

    Args:
        rows: (B, p, F).
        candidates: (n, F).
        allowed: bool (B, n), which of them a record is held against; at least one each.

    Raises:
        ValueError: a record has no candidate.
    """
    if not bool(allowed.any(dim=1).all()):
        raise ValueError(
            "a record has no candidate to be held against; leave such records out of the step"
        )
    size = candidates.square().sum(dim=1)
    away = size - 2.0 * rows @ candidates.T  # |x~|^2 is the same for all of them
    away = away.masked_fill(~allowed[:, None, :], torch.inf)
    return candidates[away.argmin(dim=2)]


def slopes(sizes: Sizes, weights: Tensor, drawn: Drawn, wanted: Tensor) -> Slopes:
    """Return losses and gradients where each drawn row should be another, (B, p, F).

    Args:
        sizes: fGen's.
        weights: fGen's.
        drawn: from these very weights.
        wanted: the features to be near to, see `nearest`.
    """
    _, _, second, _ = _parts(sizes, weights)
    apart = drawn.rows - wanted
    draws = apart.shape[1]
    above = 2.0 / draws * apart * (1.0 - drawn.rows.square())
    below = (above @ second.T) * (drawn.hidden > 0.0)
    losses = apart.square().sum(dim=(1, 2)) / draws
    return Slopes(losses, drawn.inputs, drawn.hidden, below, above)


def _parts(sizes: Sizes, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    latent, hidden, features = sizes.latent, sizes.hidden, sizes.features
    lengths = [latent * hidden, hidden, hidden * features, features]
    first, shift, second, base = torch.split(weights, lengths)
    return first.reshape(latent, hidden), shift, second.reshape(hidden, features), base


class Examples(NamedTuple):
    """The nodes left visible, with what they miss.

    Attributes:
        codes: of the visible nodes in the impaired graph, (B, c).
        missing: how many hidden neighbours each has, float32 (B,).
        hidden: features of the hidden nodes, (n, F).
        links: bool (B, n), who is whose neighbour.
    """

    codes: Tensor
    missing: Tensor
    hidden: Tensor
    links: Tensor

    def with_missing(self) -> Examples:
        """Return the examples of nodes that miss somebody; only these train fGen."""
        some = self.missing > 0
        return Examples(self.codes[some], self.missing[some], self.hidden, self.links[some])


def impaired(
    data: NodeData, sizes: Sizes, seed: int, rng: np.random.Generator, *, share: float
) -> Examples:
    """Hide a share of a client's nodes with their edges, and return what the others then miss.

    Features and edges of any of the client's own nodes are read, held-out ones too; labels are not.
    A test graph that all clients were given is left out.

    Args:
        data: the client's graph.
        sizes: of the codes.
        seed: public; of the encoder.
        rng: draws who is hidden.
        share: of the nodes, in (0, 1); one node at least stays visible.
    """
    own = np.flatnonzero(~data.common.numpy())
    count = min(max(round(share * len(own)), 1), len(own) - 1)
    hidden = np.sort(rng.permutation(own)[:count])
    visible = np.setdiff1d(own, hidden)
    place = np.full(data.nodes, -1)
    place[visible], is_hidden = np.arange(len(visible)), np.zeros(data.nodes, dtype=bool)
    is_hidden[hidden] = True
    edges = data.edges.numpy()
    kept = edges[:, (place[edges] >= 0).all(axis=0)]
    cut = np.hstack([edges, edges[::-1]])
    cut = cut[:, (place[cut[0]] >= 0) & is_hidden[cut[1]]]
    links = np.zeros((len(visible), len(hidden)), dtype=bool)
    links[place[cut[0]], np.searchsorted(hidden, cut[1])] = True
    codes = encoded(rows(data.x, visible), torch.from_numpy(place[kept]), sizes, seed)
    return Examples(
        codes,
        torch.from_numpy(links.sum(axis=1).astype(np.float32)),
        _dense(rows(data.x, hidden)),
        torch.from_numpy(links),
    )


def mended(data: NodeData, counts: Tensor, features: Tensor) -> NodeData:
    """Return the graph with new nodes added, behind all others; they have no label and no role.

    Args:
        data: the client's graph; returned as it is where nothing is added.
        counts: how many new neighbours each node gets, int64 (N,).
        features: of the new ones, (sum of counts, F), node after node.

    Raises:
        ValueError: counts and features disagree.
    """
    added = int(counts.sum())
    if counts.shape != (data.nodes,) or features.shape != (added, data.features):
        raise ValueError(
            "counts must say of every node how many neighbours it gets, and there is one row of "
            "features for each new one"
        )
    if not added:
        return data
    parents = torch.repeat_interleave(torch.arange(data.nodes), counts)
    edges = torch.stack([parents, data.nodes + torch.arange(added)])
    no = torch.zeros(added, dtype=torch.bool)
    return replace(
        data,
        edges=torch.cat([data.edges, edges], dim=1),
        x=_below(data.x, features),
        y=torch.cat([data.y, torch.full((added,), -1)]),
        train=torch.cat([data.train, no]),
        val=torch.cat([data.val, no]),
        test=torch.cat([data.test, no]),
        tune=torch.cat([data.tune, no]),
        common=torch.cat([data.common, no]),
        kept={},
        _propagation={},
    )


def _dense(x: Features) -> Tensor:
    return x.matrix.to_dense() if isinstance(x, Sparse) else x


def _below(x: Features, more: Tensor) -> Features:
    if not isinstance(x, Sparse):
        return torch.cat([x, more])
    parts = (x.matrix.values(), x.matrix.col_indices(), x.matrix.crow_indices())
    nodes, wide = x.matrix.shape
    known = sp.csr_array(tuple(part.numpy() for part in parts), shape=(nodes, wide))
    return Sparse.of(sp.csr_array(sp.vstack([known, sp.csr_array(more.numpy())])))


class NeighGen(NamedTuple):
    """Attributes: counting, dGen's values, (c + 1,); features, fGen's, (P,). float32 both."""

    counting: Weights
    features: Weights


def learnt(
    data: NodeData,
    sizes: Sizes,
    begun: Weights,
    seed: int,
    rng: np.random.Generator,
    how: Learning,
) -> NeighGen:
    """Return a client's NeighGen after training on its own graph alone.

    Args:
        data: the client's graph.
        sizes: fGen's.
        begun: what fGen starts from, (P,).
        seed: public; of the encoder.
        rng: hides nodes, draws batches and codes' noise.
        how: steps and sizes.

    Raises:
        FloatingPointError: training diverged to NaN or infinity.
    """
    hidings = [
        impaired(data, sizes, seed, rng, share=how.share)
        for _ in range(min(how.hidings, how.steps))
    ]
    counted = fit_counting(
        torch.cat([one.codes for one in hidings]),
        torch.cat([one.missing for one in hidings]),
        steps=how.steps,
        lr=how.lr,
    )
    missing = [found for one in hidings if len((found := one.with_missing()).codes)]
    weights = torch.nn.Parameter(torch.tensor(begun))
    stepper = Stepper("adam", [weights], how.lr, 0.0)
    noise = torch.Generator().manual_seed(int(rng.integers(2**63)))
    for step in range(how.steps if missing else 0):
        examples = missing[step % len(missing)]
        batch = rng.permutation(len(examples.codes))[: how.batch]
        slope = record_slopes(sizes, weights.detach(), examples, torch.from_numpy(batch), noise)
        weights.grad = slope.total(torch.full((len(batch),), 1.0 / len(batch)))
        stepper.step()
    made = NeighGen(counted.numpy(), weights.detach().numpy())
    if not all(np.isfinite(part).all() for part in made):
        raise FloatingPointError(
            "NeighGen's training diverged, most likely because features are very large; scale them"
        )
    return made


def record_slopes(
    sizes: Sizes, weights: Tensor, examples: Examples, batch: Tensor, noise: torch.Generator
) -> Slopes:
    """Return each record's loss and gradient, of examples that miss somebody.

    Args:
        sizes: fGen's.
        weights: fGen's.
        examples: see `Examples.with_missing`.
        batch: int64, which of them.
        noise: draws e.
    """
    drawn = draw(sizes, weights, inputs(examples.codes[batch], sizes.draws, noise))
    wanted = nearest(drawn.rows, examples.hidden, examples.links[batch])
    return slopes(sizes, weights, drawn, wanted)


def with_neighbours(data: NodeData, sizes: Sizes, by: NeighGen, seed: int) -> NodeData:
    """Return a client's graph with the neighbours that its NeighGen guesses; see `mended`.

    The same values give the same graph: noise of the codes comes from the public seed.
    """
    codes = encoded(data.x, data.edges, sizes, seed)
    counts = counted(torch.tensor(by.counting), codes, sizes.draws)
    counts[data.common] = 0
    wanted = torch.repeat_interleave(codes, counts, dim=0)
    entered = inputs(wanted, 1, torch.Generator().manual_seed(seed))
    rows = draw(sizes, torch.tensor(by.features), entered).rows[:, 0]
    return mended(data, counts, rows)


def answered(
    data: NodeData,
    sizes: Sizes,
    weights: Weights,
    place: tuple[int, ...],
    rng: np.random.Generator,
    *,
    codes: int,
    clip: float,
) -> NDArray[np.float64]:
    """Return the sum over all codes of their clipped gradients, in units of `codes` x `clip`, (g,).

    Its length is at most 1.

    Args:
        data: the client's graph; features of its own nodes alone are read.
        sizes: fGen's.
        weights: another client's fGen, (g,).
        place: whole numbers that the codes are drawn from: public.
        rng: deals nodes into pools.
        codes: m.
        clip: largest length of one code's gradient.
    """
    own, pool = dealt(data, rng, codes)
    allowed = torch.from_numpy(pool[None, :] == np.arange(codes)[:, None])
    slope = at_codes(sizes, torch.from_numpy(weights), place, dense(data, own), allowed)
    scales = clip / slope.norms().clamp_min(clip) / (codes * clip)
    total: NDArray[np.float64] = slope.total(scales).numpy().astype(np.float64)
    return total


def dense(data: NodeData, nodes: NDArray[np.int64]) -> Tensor:
    """Return some nodes' features, (n, F)."""
    found = rows(data.x, nodes)
    return found.matrix.to_dense() if isinstance(found, Sparse) else found


def at_codes(
    sizes: Sizes, weights: Tensor, place: tuple[int, ...], held: Tensor, allowed: Tensor
) -> Slopes:
    """Return the gradients at the public codes of a place, of those codes that have candidates.

    Args:
        sizes: fGen's.
        weights: fGen's, (g,).
        place: see `answered`.
        held: features of candidates, (n, F).
        allowed: bool (m, n), which of them a code is held against.
    """
    some = allowed.any(dim=1)
    drawn = draw(sizes, weights, entered(sizes, place, len(allowed))[some])
    return slopes(sizes, weights, drawn, nearest(drawn.rows, held, allowed[some]))


def entered(sizes: Sizes, place: tuple[int, ...], codes: int) -> Tensor:
    """Return the public codes of a place with their noise, (m, p, c): no data is in them."""
    words = np.random.SeedSequence(place).generate_state(1, np.uint64)
    public = torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))
    return inputs(torch.randn((codes, sizes.latent), generator=public), sizes.draws, public)


def dealt(
    data: NodeData, rng: np.random.Generator, codes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a client's own nodes, (n,), and the pool that each is dealt into."""
    own = np.flatnonzero(~data.common.numpy())
    return own, rng.integers(codes, size=len(own))


def moved(weights: Weights, total: NDArray[np.float64], answers: int, step: float) -> Weights:
    """Return fGen after a step along the others' mean, (g,).

    Args:
        weights: before it.
        total: of the others' answers, (g,).
        answers: how many they are.
        step: length of the step for the largest mean there is.
    """
    found: Weights = (weights - step / answers * total).astype(np.float32)
    return found
