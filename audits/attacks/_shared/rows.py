"""The rows of one attack: run, judged, and never lost to a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from audits.attacks._shared.material import Exposure, Material
from audits.attacks._shared.models import (
    AttackRow,
    Claim,
    Profile,
    bucket,
)
from audits.attacks._shared.verdicts import Attack, NotApplicable, Samples


class AttackRows:
    """Makes the rows of one attack."""

    def __init__(self, one: Attack, profile: Profile, seed: str) -> None:
        self._attack, self._profile, self._seed = one, profile, seed

    def made(self, material: Material) -> tuple[list[AttackRow], tuple[Claim, ...]]:
        """Run the attack; return its rows and claims. A crash is one row, and no claim."""
        one = self._attack
        if one.needs_capture and not material.exposures:
            why = material.missing or "no message was captured in this run"
            # Whoever takes keys or data away must not make an attack look superfluous.
            return [self._blank("NOT_TESTED" if material.unread else "NOT_APPLICABLE", why)], ()
        if one.needs_capture and any(map(_unreadable, material.exposures)):
            return [self._blank("ERROR", "what the receiver saw cannot be read")], ()
        try:
            found = one.run(material, self._generator(0), self._profile)
            there = material.canaries is not None and one.needs_capture
            gone = material.canaries.unopened if material.canaries and there else ()
            kept = [_without(_of(row, material.units), gone) for row in found.rows]
            made = [(row, self.row(n, row)) for n, row in enumerate(kept, 1)]
            rows = [row for found, row in made if row.verdict == "FAIL" or not _alone(found)]
        except Exception as error:  # fails closed: no crash may hide the other attacks or pass
            return [self._blank("ERROR", f"the attack failed ({type(error).__name__})")], ()
        if not rows:
            return [self._blank("ERROR", "the attack gave no row at all")], ()
        return rows, found.claims

    def cut(self, why: str) -> tuple[list[AttackRow], tuple[Claim, ...]]:
        """Return the row of an attack that did not begin."""
        return [self._blank("NOT_TESTED", why)], ()

    def untested(self, why: str, old: AttackRow) -> AttackRow:
        """Return a row of this attack that is NOT_TESTED, about what an earlier row is about."""
        return self._blank("NOT_TESTED", why, old.payload, old.what)

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.default_rng([number, *bytes.fromhex(self._seed)])

    def _blank(self, verdict: str, reason: str, payload: str = "", what: str = "") -> AttackRow:
        one = self._attack
        return AttackRow.model_validate(
            {
                **self._names(payload, what),
                "n_clients": 0,
                "n_pos": 0,
                "n_neg": 0,
                "metric": one.metric,
                "chance": "",
                "margin": _decimal(one.margin),
                "gate": _decimal(one.gate),
                "null_side": one.rules[0].null_side,
                "exact": one.rules[0].exact,
                "verdict": verdict,
                "reason": reason[:600],
            }
        )

    def _names(self, payload: str, what: str) -> dict[str, object]:
        one = self._attack
        return {
            "id": one.id,
            "name": one.name,
            "question": one.question,
            "payload": payload,
            "what": what[:200],
            "profile": self._profile,
            "seed": self._seed,
        }

    def row(self, number: int, found: Samples | NotApplicable) -> AttackRow:
        """Return one judged row; raises ValueError for one that a reader would refuse."""
        from audits.attacks._shared.reading import row_doubt
        from audits.attacks._shared.verdicts import judge

        if isinstance(found, NotApplicable):
            verdict = "NOT_TESTED" if found.arises else "NOT_APPLICABLE"
            return self._blank(verdict, found.reason, found.payload, found.what)
        one = self._attack
        margin = one.margin if found.margin is None else found.margin
        gate = one.gate if found.gate is None else found.gate
        # Null controls that are estimates are judged later, all of the report's together.
        biased = None if found.exact else False
        judged = judge(found, self._generator(number), margin=margin, gate=gate, biased=biased)
        if found.doubt and judged.verdict == "PASS":
            return self._blank("NOT_TESTED", found.doubt, found.payload, found.what)
        reason = f"{judged.reason}. {found.note}" if found.note else f"{judged.reason}."
        row = AttackRow(
            **self._names(found.payload, found.what),  # type: ignore[arg-type]
            rounds=tuple(sorted(set(found.rounds))),
            n_clients=len(set(found.units)) if found.client_clusters else 0,
            replicas=found.replicas,
            n_pos=bucket(found.positives),
            n_neg=bucket(found.negatives),
            metric=found.metric or one.metric,
            chance=judged.chance,
            **judged.saved,  # type: ignore[arg-type]
            margin=_decimal(margin),
            gate=_decimal(gate),
            null_side=found.null_side,
            exact=found.exact,
            verdict=judged.verdict,
            reason=reason[:600],
            needed_n=judged.needed,
            detectable=judged.detectable,
        )
        if doubt := row_doubt(row, one, self._seed):  # a reader would refuse it
            raise ValueError(f"an attack gave a row that cannot be its own: {doubt}")
        return row


def _of(found: Samples | NotApplicable, units: frozenset[str]) -> Samples | NotApplicable:
    """Return what was measured of some clients alone; the others were there as controls."""
    if isinstance(found, NotApplicable) or not units or not found.client_clusters:
        return found
    there = np.array([unit in units for unit in found.units])
    if not there.any():
        why = "this client has too few records on one side of the question"
        return NotApplicable(why, found.payload, found.what, arises=True)
    values = {name: getattr(found, name)[there] for name in ("prior", "raw", "null", "protected")}
    part = there.mean()  # all clients' records are counted together, and are equally many
    return replace(
        found,
        units=tuple(unit for unit in found.units if unit in units),
        positives=int(found.positives * part),
        negatives=int(found.negatives * part),
        note=" ".join(filter(None, (found.note, _CONTROLS))),
        **values,
    )


def _without(found: Samples | NotApplicable, gone: Sequence[str]) -> Samples | NotApplicable:
    """Name the clients that a row on all clients' messages is not about, as nobody knows theirs."""
    if isinstance(found, NotApplicable) or not found.client_clusters or not gone:
        return found
    note = _GONE.format(", ".join(gone[:_SHOWN]) + (", …" if len(gone) > _SHOWN else ""))
    return replace(found, note=" ".join(filter(None, (note, found.note))))


def _alone(found: Samples | NotApplicable) -> bool:
    """Tell whether a row is of the run's own draw, beside one that has replicas besides."""
    return isinstance(found, Samples) and found.alone


_SHOWN = 4
_GONE = "Not looked at, as the coins of its canaries were never opened: {}."
_CONTROLS = "The other clients of the controls were drawn from this site's own statistics"


def _unreadable(exposure: Exposure) -> bool:
    """Tell whether a field that was sent is missing in what was seen, or is no number."""
    seen = exposure.seen
    if seen is None:
        return False
    return bool(set(exposure.raw) - set(seen)) or not all(
        np.isfinite(values).all() for values in seen.values()
    )


def _decimal(number: float) -> str:
    from audits.attacks._shared.verdicts import decimal

    return decimal(number)
