"""A toy FedEgo (Zhang et al., 2023): the server learns from mixed records of all clients."""

from __future__ import annotations

import numpy as np

from algorithms.site import Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Array,
    Matrix,
    Message,
    MixedMessage,
    ReleasedMessage,
    Vector,
    real,
)
from protocols.rounds import Ask, Cohort, Round


class Centre(ReleasedMessage):
    """The mean of all mixtures seen so far."""

    mean: Vector = real("f", unit="feature", meaning="mean of the mixtures of the last round")


class Mashed(MixedMessage):
    """Mixtures of a client's records."""

    features: Matrix = real("mixtures", "f", unit="feature", meaning="one mixture a row")
    label: Matrix = real("mixtures", "c", unit="share", meaning="mixed one-hot label", wire="f4")


def mixed(*, mixtures: int, f: int, c: int) -> Algorithm[Centre]:
    """Return the toy; `site.data` holds `features` (mixtures, f) and `label` (mixtures, c)."""

    def init(rng: np.random.Generator) -> Centre:
        return Centre(mean=np.zeros(f))

    def mash(site: Site, given: Centre) -> Mashed:
        return Mashed(features=site.data.features, label=site.data.label)

    def predict(site: Site, given: Message | None) -> Array:
        return np.zeros((0, 0))

    def round(state: Centre, cohort: Cohort) -> Round[Centre]:
        reply = yield Ask(cohort, given=state, back=Mashed)
        rows = np.concatenate([each.features for each in reply.each(Mashed)])
        return Centre(mean=rows.mean(axis=0))

    return Algorithm(
        name="toy_mixed",
        citation="after Zhang et al., FedEgo, 2023, section 3",
        init=init,
        predict=predict,
        forms=(Form.of("mixup", round, answers={Centre: mash}),),
        dims={"mixtures": mixtures, "f": f, "c": c},
    )
