"""A toy of GCFL+'s gradient norms (Xie et al., NeurIPS 2021): each client's number, after noise."""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.forms import Algorithm, Form
from protocols.messages import Message, NoisedMessage, ReleasedMessage, count, real
from protocols.rounds import Ask, Cohort, Round


class Spread(ReleasedMessage):
    """How far apart the clients were last time."""

    largest: float = real(unit="norm", meaning="largest norm of the last round")
    smallest: float = real(unit="norm", meaning="smallest norm of the last round")


class Norm(NoisedMessage):
    """How strongly a client's training pulls."""

    norm: float = real(unit="norm", meaning="L2 norm of the change of the model")
    steps: int = count(unit="step", meaning="local steps taken")


def noised() -> Algorithm[Spread]:
    """Return the toy; `site.data` holds `norm` and `steps`."""

    def init(rng: np.random.Generator) -> Spread:
        return Spread(largest=0.0, smallest=0.0)

    def tell(site: Site, given: Spread) -> Norm:
        return Norm(norm=site.data.norm, steps=site.data.steps)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Spread, cohort: Cohort) -> Round[Spread]:
        reply = yield Ask(cohort, given=state, back=Norm)
        norms = [each.norm for each in reply.each(Norm)]
        return Spread(largest=max(norms), smallest=min(norms))

    return Algorithm(
        name="toy_noised",
        citation="after Xie et al., NeurIPS 2021, eq. 5",
        init=init,
        model=model,
        forms=(Form.of("norms", round, answers={Spread: tell}),),
    )
