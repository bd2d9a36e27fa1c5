"""One file a role: what its session is made of, its table of states, and its parties' names.

The registry is this folder; `protocols.wire.roster.Role` is made of its files. A file holds

    SESSION      the session's class
    NAMES        the names that its parties have, in order; a run takes as many as it needs.
                 Not at clients, whom the plan names

and may hold, where a role serves others,

    count        how many of the names a run needs: of the plan's items and the policy; else all
    plan         what it adds to the plan for one kind of Ask; see `protocols.plan.planning`
    AGGREGATOR   the aggregator's part in its work, a `protocols.sessions.part.SessionPart`
    CLIENT       the client's part in it

Nothing outside this folder names a role's file; what all sessions do is in `protocols.sessions`.
"""

from __future__ import annotations
