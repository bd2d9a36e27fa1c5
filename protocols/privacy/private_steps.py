"""The mechanism of private training at one client: Poisson batches, clipping on the grid, noise.

Everything that protects a record happens here. The task brings the graphs' gradients and gets one
noised mean; it is never told which of its graphs were drawn. Every draw comes from the operating
system (O15), so that no seed of the configuration can repeat or remove it.

What it cannot hide is time: a step takes as long as its batch is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from crypto.handles import Mute
from crypto.ldp import grid
from crypto.noise import DiscreteGaussian
from crypto.samplers import KEY_BYTES, Stream, derive, entropy
from protocols.errors import LocalProtocolError, NotInPlan
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import LEVELS, TrainingPlan, plan_training

__all__ = ["Gradients", "PrivateSteps", "check_training", "on_grid"]

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]
Gradients = Callable[[Numbers], Iterable[NDArray[np.floating]]]
"""From positions among the training records, ascending, to one gradient (d,) for each, in order."""


def on_grid(gradient: NDArray[np.floating], clip: float) -> Numbers:
    """Return a gradient clipped to an L2 norm and truncated to the grid, int64 (d,).

    Its integer norm is at most `LEVELS`, checked in integers, so the sensitivity holds whatever
    floating point did. One that is not finite counts as zero: an error would tell of its record.
    """
    return grid.on_grid(gradient, clip, LEVELS)


class PrivateSteps(Mute):
    """Draws the batches and the noise of one client in one run; a session says how many.

    Args:
        plan: of the run's private training, already compared with the policy.
    """

    __slots__ = ("_left", "_noise", "_round", "_taken", "plan")

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan = plan
        self._noise = DiscreteGaussian(float(plan.noise) * plan.levels)
        self._round = self._left = self._taken = 0

    @property
    def unit(self) -> str:
        """What one record is."""
        return self.plan.unit

    @property
    def steps(self) -> int:
        """Noised gradients of a round."""
        return self.plan.steps

    @property
    def round(self) -> int:
        """The round that was opened last, 0 before the first."""
        return self._round

    @property
    def taken(self) -> int:
        """Steps taken in this round."""
        return self._taken

    def open(self, round: int, before: int) -> None:
        """Allow the steps of one more round; the session's, which puts it into the ledger.

        Args:
            round: later than the last one that was opened.
            before: how many rounds were opened before it in the run. The session keeps the number,
                since a client that is started anew goes on with new steps.

        Raises:
            NotInPlan: a round that is not later, or more rounds than were reserved.
        """
        if round <= self._round or (before + 1) * self.plan.steps > self.plan.releases:
            raise NotInPlan("Private training is asked for more rounds than were reserved.")
        self._round, self._left, self._taken = round, self.plan.steps, 0

    def step(self, records: int, size: int, gradients: Gradients) -> Reals:
        """Return one noised gradient, divided by the agreed batch size, shape (size,).

        Args:
            records: how many training records there are; 0 gives noise alone.
            size: d.
            gradients: called once, with the positions of the batch, which may be empty.

        Raises:
            NotInPlan: the round's steps are used up, or no round is open.
            LocalProtocolError: not one gradient of this size for each record of the batch.
        """
        if self._left < 1:
            raise NotInPlan(
                f"Training takes more than the {self.plan.steps} noised gradients a round that "
                "policy.training allows.",
                why="the algorithm takes more local steps, or several gradients in a step",
                fix="lower the algorithm's steps or epochs, or agree on more training.steps",
            )
        self._left, self._taken = self._left - 1, self._taken + 1
        key = entropy(KEY_BYTES)
        drawn = Stream(derive(key, "training", "batch")).unit(records) < float(self.plan.rate)
        batch, total, seen = np.flatnonzero(drawn), np.zeros(size, dtype=np.int64), 0
        for gradient in gradients(batch):
            if gradient.shape != (size,):
                raise LocalProtocolError("A gradient does not have the model's size.")
            total += on_grid(gradient, float(self.plan.clip))
            seen += 1
        if seen != len(batch):
            raise LocalProtocolError("There is not one gradient for each record of a batch.")
        total += self._noise.sample(Stream(derive(key, "training", "noise")), size)
        scale = float(self.plan.clip) / LEVELS / float(self.plan.batch)
        return total.astype(np.float64) * scale

    @property
    def standing(self) -> tuple[int, int, int]:
        """The round, the steps left in it and those taken: what a kill must not reset."""
        return self._round, self._left, self._taken

    def take_up(self, standing: tuple[int, int, int]) -> None:
        """Go on where `standing` was read, after a kill."""
        self._round, self._left, self._taken = standing

    def facts(self, round: int) -> dict[str, str | int]:
        """Return what the ledger says before a round's first draw."""
        plan = self.plan
        return {
            "clip": plan.clip,
            "noise": plan.noise,
            "rate": plan.rate,
            "round": round,
            "steps": plan.steps,
            "unit": plan.unit,
        }


def check_training(plan: Plan, policy: PrivacyPolicy) -> None:
    """Raise NotInPlan unless a plan's private training is what the policy's comes to.

    The plan may have come from somebody else; the noise protects this client's graphs.
    """
    wanted, planned = policy.training, plan.training
    if wanted is None and planned is None:
        return
    if wanted is None or planned is None:
        raise NotInPlan("Plan and policy disagree on whether training is private.")
    if planned != plan_training(wanted, plan.rounds, planned.held_out):
        raise NotInPlan("The plan's private training is not what the policy's target needs.")
