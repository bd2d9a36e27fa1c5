"""What plans say of rows: who sees what, and what a reader must know (O10, O24, O25)."""

from __future__ import annotations

from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import Rows
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import guard_of

MATCHER = (
    "which tags are equal, which tags of a client are nodes and rows, and which node enters which "
    "row: so the graph of all nodes without their numbers, from which well-known nodes can be "
    "guessed; no number, no feature, no sum"
)
TOLD = (
    "of its own tags, which rows it adds to, for whom and with whom by name, and which rows it is "
    "told"
)
PARTS = (
    "uniform words, under masks and blinds that it has no key of; who adds how many rows for whom, "
    "by labels that tell no node"
)
ROWS = (
    "of rows that it asked for, what at least as many other clients' terms as the policy says add "
    "up to, and how many terms these are (less its own: the node's degree); by name who adds; what "
    "was computed from disclosed totals (the global model)"
)
TOGETHER = (
    "the two tag servers together with the matcher read the whole graph by its public numbers; the "
    "matcher with one client tests one quota of guesses, the client's tags, and knows its part of "
    "the graph; the matcher and one tag server learn nothing more; the aggregator with the matcher "
    "learns which tags' rows are for whom, and no sum; a receiver with the aggregator learns no "
    "more than its rows; all adders of a row but one, with its receiver, learn that one's sum, so "
    "colluders are counted on top of the smallest number"
)
WHOLE = (
    "a row that is told is a sum without noise: each node enters one row at most in the run, so no "
    "rows can be solved for fewer clients than one rests on; but a sum of a few sparse nodes, such "
    "as bags of words, can be parted by itself (A15); no epsilon holds for it"
)
AGAIN = (
    "nothing counts rows over several runs: a row that is told once with a client and once without "
    "it, in another run over the same data, tells that client's sum; the aggregator with a client "
    "can leave another one out before tags are compared, and have this one claim the other's nodes "
    "and be told their rows"
)
CLEAR = (
    "UNSAFE: the aggregator reads every client's sums of neighbours' features, by public numbers "
    "of nodes, and so all edges between clients; a receiver of a row with one neighbour reads its "
    "raw features (A15)"
)

_PAIRS = {
    "matcher, of rows": MATCHER,
    "matcher and one client, of rows": "that client's part of the graph by number; one quota of "
    "guesses at other nodes; guesses of clients add up",
    "matcher and one tag server, of rows": "nothing more",
    "matcher and both tag servers, of rows": "EVERY edge between clients, by public numbers",
    "aggregator and matcher, of rows": "which tags' rows are for whom; no sum",
    "aggregator and a receiver of rows": "that receiver's rows",
    "a receiver of a row and all who add to it but one": "that one's sum",
}


class RowSumWords(Words):
    """Rows of neighbours' features."""

    limits = (TOGETHER, WHOLE, AGAIN, CLEAR)

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "what other clients' terms of rows that it asked for add up to"

    def in_clear(self, item: Item) -> str:
        """Return the warning of rows in clear."""
        return CLEAR

    def warnings(self, plan: Planned) -> list[str]:
        """Say what rows rest on, where they are found by tags."""
        rows = [item for item in plan.items if item.part is self.disclosure]
        if not any(item.step is Step.COMPARE for item in rows):
            return []
        return [TOGETHER, WHOLE, AGAIN]

    def together(self, chain: Chain) -> dict[str, str]:
        """Return who sees what together, where rows are found by tags (O24)."""
        rows = guard_of(chain, Rows)
        return {} if rows is None or rows.unsafe else dict(_PAIRS)

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a message in clear tells it."""
        return {**super().learns(chain, network), "aggregator": self.disclosure.meaning}


WORDS = RowSumWords(Disclosure.ROW_SUM)
