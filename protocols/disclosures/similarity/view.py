"""What the aggregator holds of vectors that are compared, and in the end their cosines (O3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np

from protocols.clusters.cuts import Cut, cut_in_two, weighed
from protocols.disclosures._base.view import ClearView, OneVerb
from protocols.disclosures._evaluated.view import Uploaded
from protocols.errors import LocalProtocolError
from protocols.forms import Exchange
from protocols.messages import Array, Message, SimilarityMessage, Vector
from protocols.plan.steps import Part
from protocols.rounds import View
from protocols.wire.codec import decode
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class CosinesView(OneVerb):
    """SIMILARITY, protected: one rounded cosine per pair, sorted by client.

    Args:
        cosines: (K, K).
        cut: of the cluster that was compared; None if none may happen.
        splits: the form splits its clients by this message.
    """

    verb = "similarity"

    def __init__(self, cosines: Array, cut: Cut | None = None, splits: bool = False) -> None:
        self._cosines, self._cut, self._splits = cosines, cut, splits

    def read(self, verb: str, **options: Any) -> Any:
        """Answer the verb, or say how the cluster is cut; raises TypeError for any other."""
        if verb == "split":
            return cut_of(self._cut, self._splits, **options)
        return super().read(verb, **options)

    def _answer(self, **options: Any) -> Array:
        return self._cosines.copy()


class ClearCosines(ClearView):
    """SIMILARITY in clear, with the cut that the aggregator makes of it; see `CosinesView`."""

    def __init__(
        self,
        kind: type[Message],
        sent: Mapping[str, Message],
        dims: Mapping[str, int],
        cut: Cut | None = None,
        splits: bool = False,
    ) -> None:
        super().__init__(kind, sent, dims)
        self._cut, self._splits = cut, splits

    def read(self, verb: str, **options: Any) -> Any:
        """Answer the verb, or say how the cluster is cut; raises TypeError for any other."""
        if verb == "split":
            return cut_of(self._cut, self._splits, **options)
        return super().read(verb, **options)


def cut_of(cut: Cut | None, splits: bool, kind: type[Message]) -> Cut | None:
    """Return a cut; raises TypeError where the form does not say that it splits."""
    if not splits:
        raise TypeError(f"the form does not say that it splits by {kind.__name__}: Form.split_by")
    return cut


class Compared(Uploaded):
    """The vectors of one Ask.

    Attributes:
        cosines: of every pair, once they were opened.
        cut: of the cohort, as the key authority signed it; None: none may happen.
    """

    verb: ClassVar[str] = CosinesView.verb
    adds: ClassVar[bool] = False

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.cosines: Vector | None = None
        self.cut: Cut | None = None

    def views(self) -> dict[type[Message], View]:
        """Return the cosines; raises LocalProtocolError if they are not here."""
        if not self.protected:
            return self._in_clear()
        if self.cosines is None:
            raise LocalProtocolError("The cosines were not opened yet.")
        return {k: CosinesView(self.cosines, self.cut, self.splits(k)) for k in self.kinds}

    def splits(self, kind: type[Message]) -> bool:
        """Tell whether the form splits its clients by a message."""
        plan = self._context.plan.splits
        return plan is not None and plan.message == kind.__name__

    def _in_clear(self) -> dict[type[Message], View]:
        """Return cosines of vectors in clear, and the cut that is the aggregator's own word."""
        sent = {m: decode(self.kinds, body, self.dims) for m, body in self.bodies().items()}
        found: dict[type[Message], View] = {}
        for place, kind in enumerate(self.kinds):
            messages, splits = {m: said[place] for m, said in sent.items()}, self.splits(kind)
            cut = self._own_cut(self.clear(kind, messages, self.dims)) if splits else None
            found[kind] = ClearCosines(kind, messages, self.dims, cut, splits)
        return found

    def _own_cut(self, cosines: Array) -> Cut | None:
        """Return the cut of the whole cohort; None if none may happen, or somebody is away."""
        members, plan = self.where.members, self._context.plan.splits
        if plan is None or self.survivors != members:
            return None
        least = self._context.policy.smallest_cohort
        side = cut_in_two(weighed(cosines), plan.cut, plan.guard, least)
        if side is None:
            return None
        names = tuple(name for name, inside in zip(members, side, strict=True) if inside)
        return Cut(self.where.round, self.where.exchange, members, names, leaves=len(names) < least)

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Array:
        """Return how alike vectors are that came in clear: their cosines, unless `kind` says."""
        (field,) = kind.fields
        rows = np.stack([np.ravel(getattr(m, field.name)) for m in sent.values()])
        if (measure := cast(type[SimilarityMessage], kind).measure) is not None:
            return measure(rows)
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        cosines: Array = units @ units.T
        return cosines


VIEW = Compared
