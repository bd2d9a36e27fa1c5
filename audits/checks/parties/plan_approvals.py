"""``approvals.json``: who approved this run's plan before it began, where the policy asks for it.

::

    {"approvals": [{"made": TIME, "name": ..., "plan": HEX, "signature": HEX, "until": DAY}, ...]}

A policy names its approvers with their public keys, and the plan holds the policy's digest. So an
approval is one signature over the plan's digest, and whoever changes plan, policy or a key changes
what was signed. A run between organisations has its charter for that. `made` is the approver's own
word: that the signature is older than the run rests on its clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audits.evidence.run_files import fail
from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from crypto.signing.signatures import SigningKey, VerifyKey

__all__ = ["PlanApproval", "approvals_text", "hold", "read_approvals"]

STEP = "approvals"
LIMIT = 1 << 20  # bytes; an approval takes about 300
_DOMAIN = "plan approval"
_MEMBERS = ("made", "name", "plan", "signature", "until")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DAY = re.compile(r"\d{4}-\d\d-\d\d|")


@dataclass(frozen=True)
class PlanApproval:
    """One approver's signed yes to one plan.

    Attributes:
        name: as the policy calls the approver.
        plan: digest (hex) of the plan.
        made: when, by the approver's clock (UTC, to the second).
        until: the last day (UTC) on which a run may begin with it; empty: any.
        signature: Ed25519 over all of these.
    """

    name: str
    plan: str
    made: str
    until: str
    signature: bytes

    @classmethod
    def of(cls, key: SigningKey, name: str, plan: str, made: str, until: str = "") -> PlanApproval:
        """Approve a plan, by its digest."""
        return cls(name, plan, made, until, key.sign(_DOMAIN, _said(name, plan, made, until)))

    def check(self, key: VerifyKey) -> None:
        """Raise CryptoError unless this key signed just this."""
        said = _said(self.name, self.plan, self.made, self.until)
        key.verify(_DOMAIN, self.signature, said)


def _said(name: str, plan: str, made: str, until: str) -> bytes:
    return canonical([name, plan, made, until])


def approvals_text(approvals: Sequence[PlanApproval]) -> bytes:
    """Return the file, in canonical JSON, sorted by name."""
    listed = [
        {**vars(one), "signature": one.signature.hex()}
        for one in sorted(approvals, key=lambda one: one.name)
    ]
    return canonical({"approvals": listed})


def read_approvals(data: bytes) -> tuple[PlanApproval, ...]:
    """Read the file strictly; whose signatures they are is not looked at.

    Raises:
        EvidenceError: at step ``approvals``: it is no list of approvals, or names one twice.
    """
    try:
        found = parse(data, limit=LIMIT)
        if not isinstance(found, dict) or set(found) != {"approvals"}:
            raise ValueError
        if not isinstance(found["approvals"], list):
            raise ValueError
        approvals = tuple(_approval(one) for one in found["approvals"])
        if len({one.name for one in approvals}) != len(approvals):
            raise ValueError
    except (CryptoError, TypeError, ValueError):
        fail(STEP, "approvals.json is no list of approvals")
    return approvals


def _approval(found: object) -> PlanApproval:
    if not isinstance(found, dict) or set(found) != set(_MEMBERS):
        raise ValueError
    texts = {name: found[name] for name in _MEMBERS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError
    if not _TIME.fullmatch(texts["made"]) or not _DAY.fullmatch(texts["until"]):
        raise ValueError
    return PlanApproval(**{**texts, "signature": bytes.fromhex(texts["signature"])})


def hold(
    approvals: Sequence[PlanApproval], approvers: Mapping[str, str], plan: str, began: str
) -> None:
    """Hold approvals against the policy that asks for them and the plan that runs.

    Args:
        approvals: as they were read.
        approvers: by name, the public key (hex) that the policy names.
        plan: digest (hex) of the run's plan.
        began: when the run began (UTC, to the second).

    Raises:
        EvidenceError: at step ``approvals``: one is missing, of another plan or key, of somebody
            whom the policy does not name, was made later than `began`, or had expired.
    """
    named = {one.name: one for one in approvals}
    if missing := sorted(set(approvers) - set(named)):
        fail(STEP, f"{missing[0]} did not approve this plan, and the policy asks for it")
    if set(named) - set(approvers):
        fail(STEP, "somebody approved this plan whom the policy does not name")
    for name, one in sorted(named.items()):
        try:
            one.check(VerifyKey(bytes.fromhex(approvers[name])))
        except (CryptoError, ValueError):
            fail(STEP, f"the approval of {name} is not signed with the key that the policy names")
        if one.plan != plan:
            fail(STEP, f"{name} approved another plan than this run's")
        if one.made > began:
            fail(STEP, f"{name} approved this plan after the run had begun")
        if one.until and one.until < began[:10]:
            fail(STEP, f"the approval of {name} had expired when the run began")
