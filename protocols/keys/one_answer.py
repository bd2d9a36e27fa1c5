"""Where holders may confirm a list that lacks nobody and serve it in one answer (ADR 0035).

Votes go round before shares so that no two lists of one slot are both served. In one answer nobody
has seen anybody's vote, so the number of shares that rebuild a seed must say as much as the number
of votes does. With all pairs, n holders of which c may answer both ways, t shares, q votes:

* 2 t > n + c: no client's self-mask and row are both rebuilt, whatever honest holders were told.
* t + q > n + c: a row is rebuilt only if q voted for a list without its client. At most n - q of
  the honest then answered that all are here, and with the corrupt these are fewer than t.
* 2 q > n + c: no two lists that contradict each other both have their votes.

On a sparse graph the same holds around each client, but not for the list as a whole: parts of the
circle that serve different short lists can be kept apart by a part that serves everybody, and what
opens is a list that nobody signed. There lists go the two steps.
"""

from __future__ import annotations

from protocols.keys.groups import Group, planned_corrupt, planned_degree
from protocols.policy.policy import PrivacyPolicy


def one_answer(group: Group, policy: PrivacyPolicy) -> bool:
    """Tell whether a group's holders may serve a list that lacks nobody in one answer."""
    count, shares = len(group.called), group.threshold
    corrupt = planned_corrupt(count, policy, group.within)
    enough = 2 * min(shares, group.quorum) > count + corrupt
    return group.complete and enough


def planned_one_answer(count: int, policy: PrivacyPolicy, within: int | None = None) -> bool:
    """Tell whether some list among `count` clients may be served in one answer."""
    return planned_degree(count, policy, within) == count - 1
