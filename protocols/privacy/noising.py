"""How much noise a policy's target asks of each client, and that a plan says just that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from crypto.noise import TAIL_BITS, DiscreteGaussian, DiscreteLaplace
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Noise
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import NotInPlan
from protocols.plan.plan import Item, NoisePlan, Plan
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy import accounting

__all__ = [
    "ROUNDING_BETA",
    "SAMPLERS",
    "TAIL_BITS",
    "check_noise",
    "divergence",
    "mechanism",
    "noise_for",
    "noise_of",
    "plan_noise",
    "run_divergence",
]

ROUNDING_BETA = 0.6065306597126334
"""exp(-1/2): conditional rounding succeeds with probability at least 1 - beta (Kairouz et al.)."""
SAMPLERS: dict[str, type[DiscreteGaussian | DiscreteLaplace]] = {
    "discrete_gaussian": DiscreteGaussian,
    "discrete_laplace": DiscreteLaplace,
}


def noise_of(policy: PrivacyPolicy) -> Noise | None:
    """Return the policy's noise for sums, or None."""
    found = find(policy.rules.get(Disclosure.SUM, ()), "noise")
    return found if isinstance(found, Noise) else None


@lru_cache(maxsize=16)
def plan_noise(
    guard: Noise, levels: int, coordinates: int, releases: int, honest: int, clients: int
) -> NoisePlan:
    """Return the noise that keeps a whole run within the policy's target.

    Args:
        guard: mechanism and target (epsilon, delta) for the run.
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
    sigma = accounting.calibrate(
        mechanism=guard.mechanism,
        epsilon=guard.epsilon,
        delta=guard.delta,
        releases=releases,
        l2=l2,
        l1=l1,
        dimension=coordinates,
        honest=honest,
        tails=accounting.tails(honest=clients, dimension=coordinates, releases=releases),
    )
    margin = accounting.margin(
        guard.mechanism, sigma, clients=clients, dimension=coordinates, releases=releases
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
    )


def noise_for(
    layouts: Sequence[tuple[SumLayout, int]], policy: PrivacyPolicy, clients: int
) -> NoisePlan | None:
    """Return the one noise of all SUM items of a run: the largest vector decides for all.

    Args:
        layouts: per item its layout and how often one client sends it.
        policy: holds the target; None is returned without a noise guard.
        clients: on the plan.
    """
    guard = noise_of(policy)
    if guard is None or not layouts:
        return None
    levels = max(
        column.grid.levels for layout, _ in layouts for column in layout.columns if column.grid
    )
    coordinates = max(layout.length for layout, _ in layouts)
    releases = sum(times for _, times in layouts)
    honest = policy.smallest_cohort - policy.colluders
    return plan_noise(guard, levels, coordinates, releases, honest, clients)


def check_noise(item: Item, layout: SumLayout, plan: Plan, policy: PrivacyPolicy) -> None:
    """Raise NotInPlan unless a plan's noise is at least what the policy's target asks for.

    The plan may have come from somebody else; the noise protects this client.
    """
    guard = noise_of(policy)
    if guard is None:
        if item.noise is not None:
            raise NotInPlan(f"{item.id}: the plan names noise that the policy does not.")
        return
    noised = [i for i in plan.items if i.noise is not None]
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
        policy.smallest_cohort - policy.colluders,
        len(plan.clients),
    )
    if any(i.noise != wanted for i in noised):
        raise NotInPlan(f"{item.id}: the plan's noise is not what the policy's target needs.")


def run_divergence(plan: Plan) -> tuple[float, ...]:
    """Return the Renyi divergence, at `accounting.ORDERS`, of all noised releases of one client.

    Zero everywhere for a plan without noise.
    """
    noise = next((item.noise for item in plan.items if item.noise is not None), None)
    if noise is None:
        return (0.0,) * len(accounting.ORDERS)
    one = divergence(noise, noise.honest)
    return tuple(noise.releases * value for value in one)


def divergence(noise: NoisePlan, honest: int) -> tuple[float, ...]:
    """Return the Renyi divergence of one release, with `honest` shares the adversary lacks."""
    return tuple(float(value) for value in mechanism(noise).rdp(honest))


def mechanism(noise: NoisePlan) -> accounting.Noise:
    """Return a plan's noise as the accountant takes it."""
    return accounting.Noise(
        "discrete_laplace" if noise.mechanism == "discrete_laplace" else "discrete_gaussian",
        float(noise.sigma),
        float(noise.l2),
        float(noise.l1),
        noise.coordinates,
    )
