"""How much noise a policy's target asks of each client, and that a plan says just that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crypto import ldp_vectors
from crypto.noise import TAIL_BITS, DiscreteGaussian, DiscreteLaplace
from crypto.samplers import KEY_BYTES, Mute, Stream, derive, entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Noise
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import LocalProtocolError, NotInPlan
from protocols.plan.plan import Item, NoisePlan, Plan
from protocols.plan.steps import Step
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import OwnNoise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy import accounting
from protocols.privacy.pure import Pure
from protocols.privacy.training import LEVELS, TrainingPlan, plan_training

__all__ = [
    "PURE",
    "RANDOMISERS",
    "ROUNDING_BETA",
    "SAMPLERS",
    "TAIL_BITS",
    "Gradients",
    "Numbers",
    "PrivateSteps",
    "Reals",
    "check_noise",
    "check_training",
    "divergence",
    "mechanism",
    "noise_for",
    "noise_in",
    "noise_of",
    "noises",
    "on_grid",
    "plan_noise",
    "run_divergence",
]

ROUNDING_BETA = 0.6065306597126334
"""exp(-1/2): conditional rounding succeeds with probability at least 1 - beta (Kairouz et al.)."""
SAMPLERS: dict[str, type[DiscreteGaussian | DiscreteLaplace]] = {
    "discrete_gaussian": DiscreteGaussian,
    "discrete_laplace": DiscreteLaplace,
}


RANDOMISERS = frozenset({"gaussian_vector", "laplace_vector", "sqkr"})
"""Local randomisers of NOISED messages, by the names that plans state."""
PURE = frozenset({"laplace_vector", "sqkr"})
"""Those that draw by an epsilon of one message, which plans state; no other noise has one."""


def noise_in(chain: Sequence[Guard]) -> Noise | OwnNoise | None:
    """Return the guard of a chain that adds noise to sums, or None."""
    return guard_of(chain, Noise) or guard_of(chain, OwnNoise)


def noise_of(policy: PrivacyPolicy) -> Noise | OwnNoise | None:
    """Return the policy's noise for sums, or None."""
    return noise_in(policy.rules.get(Disclosure.SUM, ()))


@lru_cache(maxsize=16)
def plan_noise(
    guard: Noise | OwnNoise, levels: int, coordinates: int, releases: int, honest: int, clients: int
) -> NoisePlan:
    """Return the noise that keeps a whole run within the policy's target.

    Args:
        guard: mechanism and target (epsilon, delta) for the run; under `OwnNoise` two vectors may
            lie two norms apart (replace-one), and `honest` is 1.
        levels: the clip norm in grid steps.
        coordinates: of the largest noised vector of the run.
        releases: noised vectors of one client in the run, all items together.
        honest: noise shares that are counted on: the smallest cohort without the colluders (O18).
        clients: at most so many shares stand in a total; they set the head-room (O19).

    Raises:
        PolicyError: no noise of this grid reaches the target.
    """
    l2 = accounting.rounded_sensitivity(float(levels), coordinates, ROUNDING_BETA)
    l1 = accounting.rounded_l1(l2, coordinates)
    own = isinstance(guard, OwnNoise)
    sigma = accounting.calibrate(
        mechanism=_summed(guard),
        epsilon=guard.epsilon,
        delta=guard.delta,
        releases=releases,
        l2=2.0 * l2 if own else l2,
        l1=2.0 * l1 if own else l1,
        dimension=coordinates,
        honest=honest,
        tails=accounting.tails(honest=clients, dimension=coordinates, releases=releases),
    )
    margin = accounting.margin(
        _summed(guard), sigma, clients=clients, dimension=coordinates, releases=releases
    )
    return NoisePlan(
        mechanism=guard.mechanism,
        sigma=repr(sigma),
        l2=repr(l2),
        l1=repr(l1),
        coordinates=coordinates,
        honest=honest,
        margin=margin,
        releases=releases,
        epsilon=repr(guard.epsilon),
        delta=repr(guard.delta),
        adjacency="replace-one" if own else "zero-out",
    )


def _summed(guard: Noise | OwnNoise) -> accounting.Mechanism:
    """Return the mechanism of sums."""
    return "discrete_laplace" if guard.mechanism == "discrete_laplace" else "discrete_gaussian"


def _honest(policy: PrivacyPolicy, *, read: bool) -> int:
    """Return how many clients' noise is counted on.

    Args:
        policy: of the run.
        read: one client reads some total: it is in the cohort, and sends a blind without noise.
    """
    return policy.smallest_cohort - policy.colluders - read


def noise_for(
    layouts: Sequence[tuple[SumLayout, int]],
    policy: PrivacyPolicy,
    clients: int,
    *,
    read: bool = False,
) -> NoisePlan | None:
    """Return the one shared noise of all SUM items of a run: the largest vector decides for all.

    Args:
        layouts: per item its layout and how often one client sends it.
        policy: holds the target; None is returned without the guard `noise`.
        clients: on the plan.
        read: one client reads the total of some item.
    """
    guard = noise_of(policy)
    if not isinstance(guard, Noise) or not layouts:
        return None
    levels = max(
        column.grid.levels for layout, _ in layouts for column in layout.columns if column.grid
    )
    coordinates = max(layout.length for layout, _ in layouts)
    releases = sum(times for _, times in layouts)
    honest = _honest(policy, read=read)
    return plan_noise(guard, levels, coordinates, releases, honest, clients)


def check_noise(item: Item, layout: SumLayout, plan: Plan, policy: PrivacyPolicy) -> None:
    """Raise NotInPlan unless a plan's noise is at least what the policy's target asks for.

    The plan may have come from somebody else; the noise protects this client. Noise of its own is
    held to the target in `protocols.privacy.own_target`.
    """
    guard = noise_of(policy)
    if not isinstance(guard, Noise):
        if item.noise is not None:
            raise NotInPlan(f"{item.id}: the plan names noise that the policy does not.")
        return
    noised = [i for i in plan.items if i.noise is not None and i.disclosure is item.disclosure]
    summed = plan.all_of(Disclosure.SUM, Step.UP)
    if item.noise is None or len(noised) != len(summed):
        raise NotInPlan("The plan leaves a sum without the noise that the policy asks for.")
    if layout.length > item.noise.coordinates:
        raise NotInPlan(f"{item.id}: the plan's noise is for a smaller vector.")
    levels = max(column.grid.levels for column in layout.columns if column.grid)
    wanted = plan_noise(
        guard,
        levels,
        item.noise.coordinates,
        sum(i.times for i in summed),
        _honest(policy, read=any(i.reader for i in summed)),
        len(plan.clients),
    )
    if any(i.noise != wanted for i in noised):
        raise NotInPlan(f"{item.id}: the plan's noise is not what the policy's target needs.")


def run_divergence(plan: Plan) -> tuple[float, ...]:
    """Return the Renyi divergence, at `accounting.ORDERS`, of all noised releases of one client.

    Zero everywhere for a plan without noise.
    """
    total = [0.0] * len(accounting.ORDERS)
    for noise in noises(plan.items).values():
        one = divergence(noise, noise.honest)
        total = [sum_ + noise.releases * value for sum_, value in zip(total, one, strict=True)]
    return tuple(total)


def noises(items: Sequence[Item]) -> dict[Disclosure, NoisePlan]:
    """Return the one noise of each disclosure; its releases are all of the run."""
    return {item.disclosure: item.noise for item in items if item.noise is not None}


def divergence(noise: NoisePlan, honest: int) -> tuple[float, ...]:
    """Return the Renyi divergence of one release, with `honest` shares the adversary lacks."""
    return tuple(float(value) for value in mechanism(noise).rdp(honest))


def mechanism(noise: NoisePlan) -> accounting.Noise | Pure:
    """Return a plan's noise as the accountant takes it."""
    if noise.pure:
        return Pure(float(noise.pure))
    return accounting.Noise(
        "discrete_laplace" if noise.mechanism == "discrete_laplace" else "discrete_gaussian",
        float(noise.sigma),
        noise.apart * float(noise.l2),
        noise.apart * float(noise.l1),
        noise.coordinates,
    )


# --- The mechanism of private training at one client: Poisson batches, clipping on the grid, noise
# ---
#
# Everything that protects a record happens here. The task brings the graphs' gradients and gets one
# noised mean; it is never told which of its graphs were drawn. Every draw comes from the operating
# system (O15), so that no seed of the configuration can repeat or remove it.
#
# What it cannot hide is time: a step takes as long as its batch is large.

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]
Gradients = Callable[[Numbers], Iterable[NDArray[np.floating]]]
"""From positions among the training records, ascending, to one gradient (d,) for each, in order."""


def on_grid(gradient: NDArray[np.floating], clip: float) -> Numbers:
    """Return a gradient clipped to an L2 norm and truncated to the grid, int64 (d,).

    Its integer norm is at most `LEVELS`, checked in integers, so the sensitivity holds whatever
    floating point did. One that is not finite counts as zero: an error would tell of its record.
    """
    return ldp_vectors.on_grid(gradient, clip, LEVELS)


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
