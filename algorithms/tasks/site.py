"""What a client holds and never sends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from algorithms.tasks.private import PrivateSteps

__all__ = ["Labelled", "Records", "Site"]

_STAYS = (
    "a Site cannot be pickled, copied or serialised: it holds a client's private graph and "
    "labels, which leave only as messages through the gateway. Pass the Site itself within the "
    "client's process, or declare a Message for what must be said"
)


class Records(Protocol):
    """Task-specific private records; all that `Site` needs of them is how many train."""

    @property
    def count(self) -> int:
        """Number of training records."""


class Labelled(NamedTuple):
    """Numbers of records at a site, each once, and the labels they train with, int64 (n,) each."""

    records: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


class Site:
    """A client's private side: its records, its memory between rounds, its learning randomness.

    Args:
        data: the task's record, for example `algorithms.tasks.inputs.nodes.NodeData`.
        seed: root of this client's *learning* randomness (dropout, shuffles), at least 0. Secrets
            never come from here; they come from the operating system.
        training: draws batches and noise where the policy asks for private training, else None.
        about: tells what belongs to a model that is taken away from this site (names of features
            and classes, their scaling, the digest of the data), plain values by name.

    Attributes:
        data, training, about: as given.
        memory: private state across rounds (personal layers, momentum), owned by the algorithm.
        draws: how often each generator label was asked; belongs to a saved client state together
            with `memory`, so that a resumed client continues with the same random streams.

    The representation is mute and every way of copying is refused, so that a stray log line or a
    queue between processes cannot carry a graph out of the client.
    """

    __slots__ = ("_seed", "about", "data", "draws", "memory", "training")

    def __init__(
        self,
        data: Any,
        *,
        seed: int,
        training: PrivateSteps | None = None,
        about: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        if seed < 0:
            raise ValueError("a site's seed must be 0 or more; choose a non-negative integer")
        self.data, self.training, self.about = data, training, about
        self.memory: dict[str, Any] = {}
        self.draws: dict[str, int] = {}
        self._seed = seed

    @property
    def count(self) -> int:
        """Number of training records (private: it leaves only inside a protected sum)."""
        return int(self.data.count)

    def generator(self, label: str) -> np.random.Generator:
        """A fresh generator for one purpose, the same in every replay.

        It depends on (seed, label, how often this label was asked) and on nothing else: asking
        for one label never shifts the stream of another. The label enters through SHA-256, since
        Python's own `hash` of a string changes from process to process.
        """
        asked = self.draws.get(label, 0)
        self.draws[label] = asked + 1
        words = np.frombuffer(hashlib.sha256(label.encode()).digest(), dtype="<u4")
        return np.random.default_rng([self._seed, asked, *(int(word) for word in words)])

    def on(self, data: Any) -> Site:
        """Return this site on other data of its client: one memory, and the same random streams."""
        other = Site(data, seed=self._seed, training=self.training, about=self.about)
        other.memory, other.draws = self.memory, self.draws
        return other

    def __repr__(self) -> str:
        return "<Site>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(_STAYS)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(_STAYS)

    def __getstate__(self) -> NoReturn:
        raise TypeError(_STAYS)

    def __copy__(self) -> NoReturn:
        raise TypeError(_STAYS)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(_STAYS)
