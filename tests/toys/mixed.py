"""A toy FedEgo (Zhang et al., 2023): the server learns from mixed records of all clients."""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
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
    """The mean of all mixtures of the last round."""

    mean: Vector = real("f", unit="feature", meaning="mean of the mixtures of the last round")
    shares: Vector = real("c", unit="share", meaning="mean of their labels")


class Mashed(MixedMessage):
    """Mixtures of a client's records."""

    features: Array = real("mixtures", "places", "f", unit="feature", meaning="one mixture a row")
    label: Matrix = real("mixtures", "c", unit="share", meaning="mixed label", label=True)


def mixed(*, group: int, places: int, f: int, c: int, **more: int) -> Algorithm[Centre]:
    """Return the toy; `site.data` holds `table`, `index` and `label`, `more` are dimensions."""

    def init(rng: np.random.Generator) -> Centre:
        return Centre(mean=np.zeros(f), shares=np.zeros(c))

    def mash(site: Site, given: Centre) -> Mashed:
        records = site.data
        table = records.table * (1 + 0.1 * np.abs(given.mean).max())
        return Mashed.unmixed(table=table, index=records.index, label=records.label)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Centre, cohort: Cohort) -> Round[Centre]:
        reply = yield Ask(cohort, given=state, back=Mashed)
        rows = np.concatenate([each.features[:, 0] for each in reply.each(Mashed)])
        labels = np.concatenate([each.label for each in reply.each(Mashed)])
        return Centre(mean=rows.mean(axis=0), shares=labels.mean(axis=0))

    return Algorithm(
        name="toy_mixed",
        citation="after Zhang et al., FedEgo, 2023, section 3",
        init=init,
        model=model,
        forms=(Form.of("mixup", round, answers={Centre: mash}),),
        dims={"group": group, "places": places, "f": f, "c": c, **more},
    )
