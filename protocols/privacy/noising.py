"""How much noise a policy's target asks of each client, and that a plan says just that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from crypto.noise import TAIL_BITS, DiscreteGaussian, DiscreteLaplace
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Noise
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import NotInPlan
from protocols.plan.noise import NoisePlan
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Step
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import OwnNoise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy import accounting
from protocols.privacy.pure import Pure

__all__ = [
    "PURE",
    "RANDOMISERS",
    "ROUNDING_BETA",
    "SAMPLERS",
    "TAIL_BITS",
    "check_noise",
    "divergence",
    "mechanism",
    "noise_for",
    "noise_in",
    "noise_of",
    "noises",
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
