"""Rules that what is compared and what is weighed have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from protocols.disclosures._base.rules import Chain, Limits, Rules
from protocols.disclosures._evaluated.guards import evaluated
from protocols.forms import Form
from protocols.messages import Message


class EvaluatedRules(Rules):
    """Exactly one chain, or in clear.

    Attributes:
        chain: the names of its guards, in order.
    """

    chain: ClassVar[tuple[str, ...]]

    def check(self, chain: Chain) -> None:
        """Hold what is computed on ciphertexts to its one chain."""
        if evaluated(chain) is None:
            super().check(chain)
        elif tuple(guard.guard for guard in chain) != self.chain:
            raise ValueError(f"needed are exactly {', '.join(self.chain)}")

    def accounted(self, chain: Chain) -> bool:
        """Results have no noise, so none can be accounted."""
        return evaluated(chain) is None

    def alone(self, chain: Chain) -> bool:
        """Results are opened for one message an exchange."""
        return evaluated(chain) is not None

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse what cannot be computed with while it is encrypted."""
        if evaluated(policy.rules.get(kind.disclosure, ())) is None:
            return None
        if any(field.wire not in ("f4", "f8") for field in kind.fields):
            return f"message {kind.__name__} holds counts, which cannot be weighed or compared"
        return self.not_computed(kind, form, policy)

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Say why just this cannot be computed on ciphertexts; None if it can."""
        return None
