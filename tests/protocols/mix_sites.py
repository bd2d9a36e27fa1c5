"""A client's records in the tests of mixtures, and what of them leaves."""

from __future__ import annotations

import numpy as np

from protocols.disclosures.mixed import mixing
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from tests.protocols.mix import (
    MEMBERS,
    Mashed,
    chain,
    fill,
    mixing_plan,
    mixing_policy,
)

RNG = np.random.default_rng(6)


class Site:
    """Records that a test changes."""

    def __init__(self, members: int = MEMBERS, seed: int = 3) -> None:
        fill(self, np.random.default_rng(seed), members)

    def message(self) -> Mashed:
        return Mashed.unmixed(table=self.table, index=self.index, label=self.label)


def released(site: Site, mixer: Mixer | None = None, **facts: object) -> Mashed:
    """Return what a receiver reads after one release."""
    world_policy = mixing_policy(chain(**facts))
    plan = mixing_plan(world_policy, records=128)
    how = mixing.MixLayout(Mashed, world_policy.rules[Disclosure.MIXED], plan.dims)
    body, *_ = (mixer or Mixer()).mixed(site.message(), how, bytes(32))
    return how.decode(body)


def nothing_left(site: Site, **facts: object) -> bool:
    """Tell whether a release holds nothing but zeros, in every round."""
    policy, mixer = mixing_policy(chain(**facts)), Mixer()
    plan = mixing_plan(policy, records=128)
    how = mixing.MixLayout(Mashed, policy.rules[Disclosure.MIXED], plan.dims)
    body, _, told = mixer.mixed(site.message(), how, bytes(32))
    again, _, more = mixer.mixed(site.message(), how, bytes(32))
    assert len(body) == how.body_bytes and body == again and not more
    assert (told["mix"]["mixtures"] == 0) is not any(body)
    return not any(body)
