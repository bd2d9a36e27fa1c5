"""What plans say of rows: who sees what, and what a reader must know (O10, O24, O25)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import Rows
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import guard_of
from protocols.privacy.row_noise import sensitivity

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
    "more than its rows"
)
BUT_ONE = (
    "all adders of a row but one, with its receiver, learn that one's sum, so colluders are "
    "counted on top of the smallest number"
)
NOISY_ROWS = (
    "of rows that it asked for, what other clients' terms add up to, one client's alone perhaps, "
    "each under its client's own noise, and how many terms these are, exactly (less its own: the "
    "node's degree); by name who adds; what was computed from disclosed totals (the global model)"
)
NOISED = (
    "noise hides one node's features in the rows that are told, and nothing else: not which edges "
    "there are, which rows are told and who adds to them, nor how many terms a row has, which are "
    "degrees; not labels, nor what else the run sends of the same nodes (updates of models); a row "
    "may rest on one client and one node, and no number of colluders changes that; no epsilon "
    "holds for the run"
)
WHOLE = (
    "a row that is told is a sum without noise: each node enters one row at most in the run, so no "
    "rows can be solved for fewer clients than one rests on; but a sum of a few sparse nodes, such "
    "as bags of words, can be parted by itself (A15), and where terms follow from a model that the "
    "aggregator hands out, it can choose one that leaves a single node's; no epsilon holds for it"
)
NOISED_AGAIN = (
    "rows of several runs over the same data are noised anew, and the nodes' budget is charged for "
    "each; the aggregator with a client can leave another one out before tags are compared, and "
    "have this one claim the other's nodes and be told their rows"
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

HIDES = (
    "noise on rows hides single nodes' features in them, and no client as a whole: epsilon = "
    "infinity for the run; covered: nothing; not covered: all messages"
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
_NOISED_PAIRS = {
    "a receiver of a row and all who add to it but one": "that one's sum under its own noise",
    "all receivers of a row": "what one of them reads: each adder's noise is the same for all",
}


class RowSumWords(Words):
    """Rows of neighbours' features."""

    limits = (TOGETHER, BUT_ONE, WHOLE, AGAIN, NOISED, NOISED_AGAIN, CLEAR)

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
        if any(item.counted is not None for item in rows):
            return [TOGETHER, NOISED, NOISED_AGAIN]
        return [TOGETHER, BUT_ONE, WHOLE, AGAIN]

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Say that noise on rows hides no client, where rows are noised."""
        return HIDES if any(item.counted is not None for item in items) else ""

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what the noise on rows comes to, for one node's features."""
        counted = item.counted
        if counted is None:
            return []
        moved = f"{sensitivity(counted):.4g}"
        return [
            f"for one node's features: epsilon <= {counted.epsilon}, delta = {counted.delta} "
            "(unit: node; adjacency: its features are there, or zeros stand in their place, all "
            "edges as they are; model: local, each client adds noise to its own rows; scope: run, "
            f"all in its one round of rows; assumptions: a node enters {counted.fields} rows at "
            "most, to which its client holds the matcher, a term is made of one node's features "
            "alone, as the algorithm's file says, and nobody else's noise is counted on); "
            f"covered: {item.id} and the rows that follow, which one node moves by {moved} times "
            f"the clip in L2 (the root of {counted.fields}), under noise of "
            f"{float(counted.scale):.4g} times the clip on every number; not covered: edges, which "
            "rows are told, who adds to them and how many terms they have (degrees), labels, and "
            "every other message of the run"
        ]

    def together(self, chain: Chain) -> dict[str, str]:
        """Return who sees what together, where rows are found by tags (O24)."""
        rows = guard_of(chain, Rows)
        if rows is None or rows.unsafe:
            return {}
        return {**_PAIRS, **(_NOISED_PAIRS if rows.noised else {})}

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a message in clear tells it."""
        return {**super().learns(chain, network), "aggregator": self.disclosure.meaning}


WORDS = RowSumWords(Disclosure.ROW_SUM)
