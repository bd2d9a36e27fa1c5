"""The noised releases that a plan claims an epsilon for: of sums, messages, rows, training."""

from __future__ import annotations

from collections.abc import Iterator

from audits.accounting.rows import Tally
from audits.attacks._noise.local_release import local_releases
from audits.attacks._noise.release import GAUSSIAN, LAPLACE, WIDEST, Release
from audits.attacks._shared.payloads import payload_of, updates
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import CountPlan
from protocols.policy.guard import guard_of
from protocols.policy.guards import Quantise
from protocols.privacy.noising import RANDOMISERS
from protocols.privacy.record_noise import counted_epsilon, counted_in
from protocols.privacy.row_noise import sensitivity
from protocols.privacy.training import TrainingPlan, training_epsilon

__all__ = ["releases"]


def releases(case: Case) -> Iterator[Release]:
    """Yield every noised release that a plan claims an epsilon for, but noise on counts.

    Noise on counts of single records (`record_noise`) is not attacked: tests hold its samplers and
    divergences, and the account its numbers.

    Raises:
        EvidenceError: the plan states noise that is none.
        PolicyError: its private training cannot be counted with.
    """
    tally = Tally(case)
    for noise, items in tally.groups.items():
        if noise.mechanism in RANDOMISERS:
            payload = payload_of(items[0], case.plan, case.policy)
            chain = case.policy.chain(items[0].disclosure)
            yield from local_releases(noise, items, tally, payload, chain)
            continue
        item, laplace = items[0], noise.mechanism == LAPLACE
        shares = 1 if item.unsafe or laplace else noise.honest
        epsilon = tally.planned_message(item)
        names = ", ".join(found.id for found in items)
        yield Release(
            payload=payload_of(item, case.plan, case.policy),
            text=f"one release of {names[:120]}: epsilon {epsilon:.4g} at delta {tally.delta:g} "
            f"for one client ({noise.adjacency}), against whoever lacks {shares} shares of "
            f"{noise.mechanism} noise",
            unit="client",
            epsilon=epsilon,
            delta=tally.delta,
            mechanism=noise.mechanism,
            scale=float(noise.sigma),
            shares=shares,
            norm=noise.apart * float(noise.l2),
            entries=noise.coordinates,
        )
    if (rows := counted_in(case.plan.items, "node")) is not None:
        yield _rows(rows, case)
    if case.plan.training is not None:
        yield _step(case.plan.training, updates(case.plan, case.policy))


def _rows(noise: CountPlan, case: Case) -> Release:
    """Return all rows that one node enters, together: what one run tells of its features."""
    epsilon = counted_epsilon(noise, len(case.plan.clients))
    grid = guard_of(case.policy.chain(Disclosure.ROW_SUM), Quantise) or Quantise()
    levels = (1 << (grid.bits - 1)) - 1
    return Release(
        payload="P13",
        text=f"all {noise.fields} rows that one node enters: epsilon {epsilon:.4g} at delta "
        f"{float(noise.delta):g} for its features (there, or zeros), each row under its client's "
        "own noise alone",
        unit=noise.unit,
        epsilon=epsilon,
        delta=float(noise.delta),
        mechanism=noise.mechanism,
        scale=float(noise.scale) * levels,
        shares=1,
        norm=sensitivity(noise) * levels,
        entries=WIDEST,
    )


def _step(plan: TrainingPlan, payload: str) -> Release:
    """Return one noised gradient of private training."""
    rate, noise, delta = float(plan.rate), float(plan.noise), float(plan.delta)
    epsilon = training_epsilon(rate=rate, noise=noise, releases=1, delta=delta)
    return Release(
        payload=payload,
        text=f"one step of private training: epsilon {epsilon:.4g} at delta {delta:g} for one "
        f"training {plan.unit} (add or remove), drawn with probability {plan.rate}",
        unit=plan.unit,
        epsilon=epsilon,
        delta=delta,
        mechanism=GAUSSIAN,
        scale=noise * plan.levels,
        shares=1,
        norm=float(plan.levels),
        entries=WIDEST,
        rate=rate,
    )
