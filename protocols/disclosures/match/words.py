"""What plans say of matching: who sees what, and what a reader must know (O24, O25)."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.disclosures._base.words import NETWORK, Chain, Planned, Words, listed, under
from protocols.disclosures.match.guards import Match
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.words import local_noise
from protocols.plan.plan import Item
from protocols.plan.steps import Step

POINTS = "who asks and when; uniform points, as many of everybody; no item, no tag"
SECOND_POINTS = (
    "the second one: who asks and when; uniform points (a client's times the first share), as many "
    "of everybody; no item, no tag"
)
HALFWAY = "its own points times the first tag server's share: uniform"
BOXED = "size only: boxes that it cannot open, and who takes part when"
MATCHER = (
    "which tags are equal, so the graph of clients and items without the items' names, from which "
    "popular items can be guessed (A03); no item, no vector, no total"
)
HANDED = (
    "single vectors, noised, of some who hold its own items; no names, the same vector under every "
    "item that they share; no other tag"
)
TAKEN = "that the lists arrived"
LISTED = (
    "that all were matched by one canary; and what was computed from disclosed totals (the global "
    "model)"
)
OPENED = "EVERY item of every client: anybody turns these tags back"
TOLD = "who shares its cell, by name; which cells hold its own items; no other tag"
CELL = "who stands in one cell; boxes that it cannot open"
PART = "uniform numbers: shares under a blind that only clients know"
OPEN_PART = "the cells' totals: anybody makes the key of the blinds that its shares are under"
TOTALS = (
    "the mean of every cell; of its own items, which cells hold them; and what was computed from "
    "disclosed totals (the global model)"
)
KEYED = (
    "tags are made with one key that all clients hold (hmac): any client, together with the "
    "matcher, reads every item of everybody"
)
SHARED = (
    "the two tag servers together with the matcher read every item of everybody; the matcher with "
    "one client tests one quota of guesses an epoch, the most held items first, and knows a tag "
    "again in later epochs: as many as the policy's 'epochs' in one run, lost rounds included, if "
    "the aggregator asks for them, and runs add up; the aggregator and one tag server, lying with "
    "them, add no guess beyond that client's quota"
)
OPEN = (
    "UNSAFE: tags are made with a public key (deterministic): the matcher by itself reads every "
    "item of everybody, and all vectors where they are published; the aggregator the cells' totals"
)
UNSERVED = (
    "clients learn by name with whom they share a cell; all of a cell but one together learn that "
    "one's vector; the aggregator with one client learns which cells, of whom by name, hold items "
    "of that client's quota"
)
CELLS = f"{UNSERVED}, and with both tag servers the cells' totals"
LISTS = (
    "UNSAFE: clients read single others' vectors, clipped and noised, without names; the matcher "
    "together with any client reads all of them, and which of them are of whom; the aggregator, "
    "which says who is matched together, learns with any client whose vectors that one reads, and "
    "who of these holds which items of its quota"
)

LISTED_NOISED = (
    "noise is added to the vector of {} by itself: epsilon = infinity for the run, as which items "
    "match depends on the data; covered: vectors alone, as said below; not covered: all messages "
    "as a whole"
)

TEXTS = (KEYED, SHARED, OPEN, CELLS, UNSERVED, LISTS)
"""What plans warn of, and reports say again."""


def upload_learns(match: Match) -> dict[str, str]:
    """Return, per role, what the first boxes of a matching tell it."""
    others = "its vector, noised, by itself" if match.form == "published" else "nothing"
    return {"aggregator": BOXED, "other clients": others, "network": NETWORK} | (
        {"tag_server": POINTS} if match.servers else {"matcher": matcher_learns(match)}
    )


def part_learns(match: Match) -> str:
    """Return what the members' sums of shares tell the aggregator by itself."""
    return OPEN_PART if match.mode == "deterministic" else PART


def matcher_learns(match: Match) -> str:
    """Return what the tags tell the matcher by itself."""
    return OPENED if match.mode == "deterministic" else MATCHER


class MatchWords(Words):
    """Items that are matched by tags."""

    limits = TEXTS

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "what others hold under its own keys"

    def in_clear(self, item: Item) -> str:
        """Say nothing of boxes that stay locked; what others get out of them is said below."""
        return "" if under(item, "match") else super().in_clear(item)

    def warnings(self, plan: Planned) -> list[str]:
        """Say what matching rests on, where a plan matches by tags."""
        if not any((i.part, i.step) == (self.disclosure, Step.COMPARE) for i in plan.items):
            return []
        guards = [text for i in plan.items for text in i.guards if text.startswith("match(")]
        modes = {"oprf": SHARED, "hmac": KEYED, "deterministic": OPEN}
        lists = any(item.step is Step.TAKEN for item in plan.items)
        made = [said for mode, said in modes.items() if f"mode={mode}," in guards[0]]
        return [*made, LISTS if lists else CELLS if SHARED in made else UNSERVED]

    def unaccounted(self, items: Sequence[Item]) -> str:
        """Name the items whose vectors are noised one by one."""
        noised = [item for item in items if under(item, "laplace") and under(item, "match")]
        return listed(LISTED_NOISED, noised)

    def spends(self, item: Item, chain: Chain) -> list[str]:
        """Return what the noise on one number of a vector comes to."""
        beside = "which items a client holds, nor by which of them its vector reaches others"
        return local_noise(item, chain, beside)


WORDS = MatchWords(Disclosure.MATCH)
