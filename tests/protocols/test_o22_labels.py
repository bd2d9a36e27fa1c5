"""O22: what mixtures' labels tell, in one release and in many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.disclosures.mixed import mixing
from protocols.disclosures.mixed.guards import Blur
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.policy.guard import Guard
from protocols.sessions.store.state_keeper import state_codec
from tests.protocols.mix import (
    CLASSES,
    FLOOR,
    MASH,
    MEMBERS,
    Mashed,
    asked,
    chain,
    fill,
    mixing_plan,
    mixing_policy,
)
from tests.protocols.mix import mixing as world_of


class Site:
    """Records that a test changes."""

    def __init__(self, members: int = MEMBERS) -> None:
        fill(self, np.random.default_rng(3), members)

    def message(self) -> Mashed:
        return Mashed.unmixed(table=self.table, index=self.index, label=self.label)


def layout_of(*extra: Guard) -> mixing.MixLayout:
    policy = mixing_policy(chain(*extra))
    plan = mixing_plan(policy, records=128)
    return mixing.MixLayout(Mashed, policy.rules[Disclosure.MIXED], plan.dims)


def releases(mixer: Mixer, how: mixing.MixLayout, rounds: int) -> list[Any]:
    """Return what a receiver reads of one site in so many rounds, each rounded by another seed."""
    seeds, site = (number.to_bytes(32, "big") for number in range(rounds)), Site()
    return [how.decode(mixer.mixed(site.message(), how, seed)[0]) for seed in seeds]


def counts_told(shares: Any, mixer: Mixer) -> float:
    """Return in what share of entries the exact number of centres of a class comes out."""
    sizes = np.bincount(mixer._groups)
    label = Site().label
    true = np.stack(
        [np.bincount(label[mixer._groups == g], minlength=CLASSES) for g in range(len(sizes))]
    )
    return float((np.rint(shares * sizes[:, None]) == true).mean())


@pytest.mark.parametrize("extra", [(), (Blur(multiplier=2.0),)])
def test_o22_labels_leave_the_same_in_every_release(extra: tuple[Guard, ...]) -> None:
    first, *later = releases(Mixer(), layout_of(*extra), 4)
    assert all(message.label.tobytes() == first.label.tobytes() for message in later)
    assert all(message.features.tobytes() != first.features.tobytes() for message in later)


def test_o22_rounds_do_not_average_the_noise_of_labels_out() -> None:
    mixer, how = Mixer(), layout_of(Blur(multiplier=2.0))
    said = [message.label for message in releases(mixer, how, 100)]
    assert counts_told(np.mean(said, axis=0), mixer) == counts_told(said[0], mixer) < 1.0


def test_o22_control_noise_drawn_in_every_release_averages_out() -> None:
    class Forgetful(Mixer):
        def mixed(self, *given: Any) -> Any:
            self._labels = None
            return super().mixed(*given)

    mixer, how = Forgetful(), layout_of(Blur(multiplier=2.0))
    # Rounding to the count takes 7.5 standard errors of so many, all counts in one 10^-10.
    said = [message.label for message in releases(mixer, how, 900)]
    assert counts_told(said[0], mixer) < 1.0
    assert counts_told(np.mean(said, axis=0), mixer) == 1.0


def test_the_noise_of_features_does_average_out() -> None:
    """Which LIMITATIONS says: the table may change, so it is drawn anew each time."""
    said = [m.features for m in releases(Mixer(), layout_of(Blur(multiplier=2.0)), 64)]
    spread = np.std(said, axis=0).mean()
    halves = np.mean(said[:32], axis=0) - np.mean(said[32:], axis=0)
    assert np.std(halves) < 0.5 * spread


def test_labels_as_they_left_are_kept_with_the_state() -> None:
    world = world_of(chain(Blur(multiplier=2.0)))
    first = asked(world).each(Mashed)
    session = world.clients["client-3"]
    codec = state_codec(session.context, MASH, session._site, session.ledger, bytes(32))
    again = codec.unpack(codec.pack(session._gateway))
    assert np.array_equal(again._own["MIXED"]._labels, session._gateway._own["MIXED"]._labels)
    session._gateway._own["MIXED"] = again._own["MIXED"]
    later = asked(world, 2).each(Mashed)
    assert {m.label.tobytes() for m in later} == {m.label.tobytes() for m in first}
    assert len(first[0].label) == MEMBERS // FLOOR


def test_labels_stay_with_their_mixtures_where_others_are_withheld() -> None:
    mixer, how, site = Mixer(), layout_of(Blur(multiplier=2.0)), Site()
    first = how.decode(mixer.mixed(site.message(), how, bytes(32))[0])
    one, other = np.flatnonzero(mixer._groups == 1)[:2]
    site.table[site.index[one, 0]] = site.table[site.index[other, 0]]
    later = how.decode(mixer.mixed(site.message(), how, bytes(32))[0])
    left = [
        int(mixer._groups[np.flatnonzero(mixer.groups == k)[0]]) for k in range(len(later.label))
    ]
    assert left and 1 not in left
    assert np.array_equal(later.label, first.label[left])


def test_o22_the_labels_tell_how_many_training_nodes_a_client_has() -> None:
    """As LIMITATIONS says, whatever the bucket: shares are k/s, and all sizes are s or s + 1."""
    for members in (33, 40, 61):
        policy = mixing_policy(chain(bucket=4))
        plan = mixing_plan(policy, records=128)
        how = mixing.MixLayout(Mashed, policy.rules[Disclosure.MIXED], plan.dims)
        shares = how.decode(Mixer().mixed(Site(members).message(), how, bytes(32))[0]).label
        sizes = np.arange(FLOOR, members + 1)
        off = np.abs(shares[..., None] * sizes - np.rint(shares[..., None] * sizes)).max(axis=1)
        fits = [set(sizes[row < sizes / 32767 + 1e-6].tolist()) for row in off]
        told = next(s for s in sizes.tolist() if all({s, s + 1} & fit for fit in fits))
        assert sum(told if told in fit else told + 1 for fit in fits) == members


@pytest.mark.parametrize("change", [(0, -5), (0, 40), (1, -40)])
def test_labels_that_are_no_shares_are_refused(change: tuple[int, int]) -> None:
    how, (place, by) = layout_of(), change
    body = bytearray(Mixer().mixed(Site().message(), how, bytes(32))[0])
    start = len(body) - how.most * how.parts[1]
    levels = np.frombuffer(body, dtype="<i2", offset=start, count=CLASSES)
    levels[place] = by if by == -5 else levels[place] + by
    with pytest.raises(BadEnvelope, match=r"no shares|outside its grid"):
        how.decode(bytes(body))
