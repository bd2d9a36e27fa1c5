"""Everything that can go wrong on this floor, drawn once.

::

    SecureFglError
    ├── PolicyError            our policy forbids it; nothing has left
    │   ├── NotAdmitted        the policy names no protection for a message the algorithm needs
    │   ├── NotInPlan          a message, size or count that the plan does not hold
    │   ├── CohortTooSmall     fewer other parties than the policy's minimum
    │   ├── CohortChanged      totals of this run would differ by too few clients
    │   ├── BudgetExceeded     the privacy budget of this site's data does not cover it
    │   └── UnfitMessage       wrong shape or type, NaN or Inf
    ├── LocalProtocolError     our own code called a session in the wrong order
    ├── RemoteProtocolError    a peer sent something that is not acceptable
    │   ├── BadEnvelope        cannot be decoded, or is not signed by who it says
    │   ├── Replay             seen before, or older than what was already accepted
    │   ├── WrongStage         a valid message that this state does not expect
    │   ├── RoundLost          too many clients vanished: this sum is not opened, the round ends
    │   └── Refused            the peer refused; carries a code from the closed list
    ├── LedgerError            the record could not be written, so nothing was sent
    ├── EvidenceError          a stored record fails verification (names the step)
    └── OtherVersion           a format of an older or newer program; nothing more of it was read
        ├── OtherEnvelope      and a BadEnvelope
        ├── OtherState         and a LedgerError
        └── OtherEvidence      and an EvidenceError

No text of any error holds a payload value, a label, an identifier of a record or key material.
"""

from __future__ import annotations


class SecureFglError(Exception):
    """Base of all errors of the message layer.

    Args:
        what: what happened.
        why: the likely cause.
        fix: what to do next.
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(what)

    def __str__(self) -> str:
        """Return what happened, the likely cause and the next step, one per line."""
        lines = [self.what]
        if self.why:
            lines.append(f"Why: {self.why}")
        if self.fix:
            lines.append(f"What to do: {self.fix}")
        return "\n".join(lines)


class PolicyError(SecureFglError):
    """The policy forbids it; nothing has left the client."""


class NotAdmitted(PolicyError):
    """The policy names no protection for a message that the algorithm needs."""


class NotInPlan(PolicyError):
    """A message, recipient, size or count that the plan does not hold."""


class CohortTooSmall(PolicyError):
    """Fewer other parties than the policy's minimum cohort."""


class CohortChanged(PolicyError):
    """A sum over other clients than earlier ones, as the policy does not let cohorts change."""


class BudgetExceeded(PolicyError):
    """The privacy budget of this site's data does not cover what the run would spend (O20)."""


class UnfitMessage(PolicyError):
    """A message whose shape, type or values (NaN, Inf, out of range) may not be said."""


class LocalProtocolError(SecureFglError):
    """Our own code used a session out of order."""


class RemoteProtocolError(SecureFglError):
    """A peer sent something unacceptable."""


class BadEnvelope(RemoteProtocolError):
    """Bytes that cannot be decoded, or are not signed by who they claim."""


class Replay(RemoteProtocolError):
    """An envelope seen before, or older than one already accepted."""


class WrongStage(RemoteProtocolError):
    """A valid message that the current state does not expect."""


class RoundLost(RemoteProtocolError):
    """Too few clients are left to open a sum, or others than the policy's `cohort_changes` allows.

    The sum stays closed; the round ends here.

    What the round opened before stays opened. An algorithm with several sums in a round catches
    this and returns the state that rests on them, so that none of them is asked for a second time
    of other clients (O5, O10); else the state before the round stands.

    Attributes:
        state: what the algorithm returned, None if it did not.
    """

    state: object = None


class Refused(RemoteProtocolError):
    """A peer refused to answer.

    Args:
        sender: the party that refused.
        code: one of :data:`protocols.wire.control.REFUSALS`.

    Attributes:
        generated: whether all data of the run were generated; then its cause's text may be shown.
    """

    generated = False

    def __init__(self, sender: str, code: str) -> None:
        self.sender, self.code = sender, code
        why = "its own policy, plan or data does not allow the answer"
        if code == "internal":
            why = "an error in its program or in the algorithm's code stopped the answer"
        super().__init__(
            f"{sender} refused to answer ({code}).",
            why=f"{why}; the reason stays in its local ledger",
            fix=f"ask {sender} to read the last 'refusal' entry of its ledger",
        )


class LedgerError(SecureFglError):
    """The ledger could not be written, so nothing was sent."""


class EvidenceError(SecureFglError):
    """A stored record fails verification.

    Args:
        step: the verification step that failed.
        what: what is wrong with it.
    """

    def __init__(self, step: str, what: str) -> None:
        self.step = step
        super().__init__(what, fix="keep a copy; ask each party for its own ledger")


class OtherVersion(SecureFglError):
    """A format of an older or a newer program, by the number that stands in it.

    Nothing more of it was read, so the number is its own word: whoever spoils a record may write
    any. Where that matters it is an error of the reader's own kind as well, and is handled as such.

    Args:
        name: of the format; see `protocols.versions`.
        found: the number that stands there.
        reads: the first and the last number that this program reads.
        fix: what to do with it.
    """

    def __init__(self, name: str, found: int, reads: tuple[int, int], fix: str) -> None:
        self.facts = name, found, reads, fix
        what, why = self._words()
        SecureFglError.__init__(self, f"This {what}.", why=why, fix=fix)

    def _words(self) -> tuple[str, str]:
        name, found, (first, last), _ = self.facts
        numbers = f"version {last}" if first == last else f"versions {first} to {last}"
        says = f"{name} says that it is of format version {found}, and this program reads {numbers}"
        return says, f"{'a newer' if found > last else 'an older'} program wrote it"


class OtherEnvelope(OtherVersion, BadEnvelope):
    """An envelope of another version."""


class OtherState(OtherVersion, LedgerError):
    """What a party kept, written in another version."""


class OtherEvidence(OtherVersion, EvidenceError):
    """A record of another version: it fails verification, since nothing of it was verified.

    Args:
        step: the verification step that met it.
        name, found, reads, fix: see :class:`OtherVersion`.
    """

    def __init__(self, step: str, name: str, found: int, reads: tuple[int, int], fix: str) -> None:
        self.facts, self.step = (name, found, reads, fix), step
        what, why = self._words()
        # A step's outcome is one sentence, so this one says everything.
        told = f"the {what}: {why}, and nothing of it was verified; {fix}"
        SecureFglError.__init__(self, told)
