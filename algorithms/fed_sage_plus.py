"""FedSage+ (Zhang et al., NeurIPS 2021, section 3.2): neighbours are guessed before FedSage trains.

Edges between clients are in nobody's graph, so nodes miss neighbours. A client hides some of its
own nodes, learns from the rest how many neighbours are missing and what they are like (NeighGen,
see `algorithms._shared.neighbours`), and adds such nodes to its graph, once. Then the classifier
is trained as in `algorithms.fed_sage`, on the mended graphs. Forms:

    generator_alone         each client learns NeighGen by itself (alpha = 0 in the paper), and
                            nothing leaves but changes of the classifier: FedSage's messages.
    generator_alone_noised  the same with each change under its client's own noise.
    generator_sums          with `alpha`: each client's fGen first steps along the sum of what all
                            other clients say to it, which it alone reads; what leaves besides is
                            its fGen, see `algorithms._shared.generator_sums`.
    published               with `alpha` and `published`: codes of nodes and every client's gradient
                            leave as they are, see `algorithms._shared.published_generators`.
                            Unsafe: a control that only a policy in clear admits.

Where this departs from the paper:

* the encoder is fixed, drawn from a public seed (`_shared.neighbours`), not trained with the
  generator, so there is no classifier's loss in the generator's;
* fGen has one output head of 64 hidden units, drawn from p times (`_shared.neighbour_sizes`);
* others are hidden several times, since NeighGen learns one hiding by heart;
* mended graphs are trained on. Predictions read the graph as it is, as the paper's do, which are
  made on the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from algorithms._shared.generator_sums import (
    Help,
    Helped,
    Steps,
    learn_alone,
    mended_site,
    with_steps,
)
from algorithms._shared.neighbour_sizes import Learning, Sizes
from algorithms._shared.published_generators import Published
from algorithms._shared.steps import alike
from algorithms.tasks import ClientModel, Kind, Site, Task
from protocols.forms import Algorithm
from protocols.messages import Array, Message, ReleasedMessage, Vector, count, real

MODELS: Mapping[Kind, str] = {"node": "graph_sage_sampled"}


class Start(ReleasedMessage):
    """The global model, and the public seed of everybody's encoder."""

    weights: Vector = real("d", unit="weight", meaning="the global model w", wire="f4")
    seed: int = count(unit="seed", meaning="seed of the encoder and of what fGen starts from")


def moved(state: Start, mean: Array) -> Start:
    """Return the model after the mean of all changes, (d,)."""
    return Start(weights=(state.weights + mean).astype(np.float32), seed=state.seed)


def fed_sage_plus(  # noqa: PLR0913 - settings, all by name
    task: Task,
    *,
    epochs: int = 1,
    share: float = 0.15,
    steps: int = 100,
    alpha: float = 0.0,
    joint: int = 3,
    codes: int = 32,
    clip: float = 1.0,
    published: bool = False,
) -> Algorithm[Any]:
    """Return FedSage+ for a task.

    Args:
        task: trains and predicts classes of nodes; `task.size` is d.
        epochs: local epochs of the classifier per round.
        share: of its nodes that a client hides to learn from, in (0, 1); the paper's are 0.034 to
            0.278.
        steps: of NeighGen's training at a client, before its first round.
        alpha: step size of each fGen along the mean of the others' gradients; 0: no client helps
            another one.
        joint: such steps of each fGen, all before the first round's classifier.
        codes: public codes of one step; each client deals its nodes into as many pools. In the
            form `published`, of its own nodes that a client shows.
        clip: largest length of one code's gradient at one client; in the form `published`, of the
            mean of all clients' gradients when it arrived.
        published: with alpha, take the form of that name in the place of `generator_sums`.

    Raises:
        ValueError: the task is another, or an option is out of range.
    """
    if task.spec.task != "node":
        raise ValueError(
            "fed_sage_plus guesses neighbours of a client's nodes: it needs a node task, and this "
            f"is a {task.spec.task} task"
        )
    if not 0.0 < share < 1.0 or steps < 1:
        raise ValueError("out of range; needed are 0 < share < 1 and steps >= 1")
    if alpha < 0.0 or min(joint, codes) < 1 or not clip > 0.0:
        raise ValueError("out of range; needed are alpha >= 0, joint, codes >= 1 and clip > 0")
    if published and not alpha:
        raise ValueError("published is a form in which clients help one another: set alpha > 0")
    sizes, how = Sizes(task.spec.features), Learning(share=share, steps=steps)

    def init(rng: np.random.Generator) -> Start | Helped[Start]:
        start = Start(weights=task.initial(rng), seed=int(rng.integers(2**31)))
        return Helped(start) if alpha else start

    def change(site: Site, given: Start) -> Array:
        learn_alone(site, sizes, given.seed, how)
        mended = mended_site(site, sizes, given.seed)
        fitted = task.fit(given.weights, mended, epochs=epochs)
        site.memory["trained"] = fitted
        return fitted.astype(np.float64) - given.weights

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((given.weights if isinstance(given, Start) else site.memory["trained"],))

    of_sums, of_each = alike(Start, change, moved, name="train_alike")
    helps: tuple[str, Steps] = ("generator_sums", Help(sizes, joint, codes, clip, alpha))
    dims = {"g": sizes.size} if alpha else {}
    if published:
        helps = "published", Published(sizes, joint, codes, clip, alpha, how)
        dims = {"fgen": sizes.size, "shown": codes, "latent": sizes.latent}
    name, aid = helps
    alone = (
        replace(of_sums, name="generator_alone", by_gradients=False),  # NeighGen reads records
        replace(of_each, name="generator_alone_noised", by_gradients=False),
    )
    return Algorithm(
        name="fed_sage_plus",
        citation="Zhang et al., NeurIPS 2021, FedSage+",
        init=init,
        model=model,
        forms=(with_steps(name, of_sums, aid, lambda start: start.seed),) if alpha else alone,
        dims={"d": task.size, **dims},
    )


ALGORITHM = fed_sage_plus
