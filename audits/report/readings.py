"""What the figures of each attack mean, for readers who know no statistics."""

from __future__ import annotations

__all__ = ["POWER", "lesson", "reading"]

_ESTIMATES = {
    "A01": "AUC: of two items, one that the user trained on and one not, how often the attack "
    "names the right one; 0.5 is a coin, 1 is always. It is asked over the whole catalogue, and "
    "among the rows seen, where decoys should hide the true ones. Prior: who ranks by popularity.",
    "A02": "The share of a client's tags that are turned back. Two rows are facts: the matcher has "
    "no key, and one tag server one share of it. With one client the matcher has a quota of "
    "guesses, which find what they find by design: that is the prior.",
    "A03": "The share of a client's tags whose rank, by how many clients hold them, is that of the "
    "item. The attacker knows the run's own counts, the worst case. Prior: ranks drawn at random.",
    "A04": "Overlap: the share of a client's records that the guess puts into the right class. "
    "AUC: of two classes, one held and one not, how often the right one is named. Chance is the "
    "guess that all classes are equally common, which is good where they are. Prior is the best "
    "guess from what the other clients hold. Where that is above 0.8, so that little room is left, "
    "a row asks for the share of what it has wrong: 0 is the prior, 1 the truth. It is about a "
    "client as a whole, not one person.",
    "A05": "AUC: of two records, one used for training and one not, how often the attack names the "
    "right one; 0.5 is a coin, 1 is always. TPR at 1 % FPR: the share of training records that are "
    "found while one other record in a hundred is accused. Prior: the same without the message.",
    "A06": "AUC: of two records of one client, one in a mixture and one not, how often the attack "
    "names the right one; 0.5 is a coin, 1 is always. Recall: the share of a mixture's records "
    "among as many guesses. Two rows are facts: 1 if a mixture holds fewer records than the policy "
    "asks for, or two differ by fewer; and the share of mixtures of which the counts of classes "
    "follow exactly from the mixed labels.",
    "A11": "As A12, of records that a site made up. Epsilon is as for A10: proved, and claimed.",
    "A12": "As A05, of a model: its sureness of the true answer, or LiRA's. Prior: no such model.",
    "A13": "Share right: of two other clients, how often the one with data more like a client's is "
    "named; 0.5 is a coin. Share of clients: to how many of K their own data is given by who has "
    "the data of all; 1/K is a guess. Prior: who knows roughly how many records each has. Share of "
    "what sets a client's vector apart: what is read in one comparison by clients that send chosen "
    "vectors and work with the aggregator; 0 is nothing, 1 all of it.",
    "A14": "Share right: for how many of the rows that a generator drew the record behind it is "
    "named, of all that clients hold; one over their number is a guess. Prior: who names the "
    "record nearest to what was drawn, without any message.",
    "A15": "Of other clients' nodes in a receiver's rows, the share that it can solve for.",
    "A20": "Records: the share of training records, of each of which three words are known, that "
    "come back word for word. F1: how right and how complete the words are that are named beside "
    "the known ones; 1 is all of them and nothing else. Prior: the most popular words. The model "
    "is no model of the run: it is what an aggregator could have handed out, what one client could "
    "have brought all to compute, or what the code could have drawn at the start.",
}
_FACTS = {
    "A09": "No estimates and no intervals: facts from the record. 1 if at least one client can be "
    "singled out, else 0. Raw is 1 if every violation that was planted as a test was found; null "
    "(every client with a double) and prior should be 0. The number of clients concerned stands in "
    "the reason. The row on all rounds is a warning level: it takes for granted that updates "
    "hardly change.",
    "A16": "Facts: 1 if nine tenths of what sets a client's number apart follow from totals, or if "
    "sizes of its messages stand out; else 0. Raw and null are as for A09.",
    "A10": "No intervals. Prior is the claimed epsilon. Protected (Left) is the epsilon that was "
    "proved, a lower bound. Raw is what was proved of noise made ten times too small as a test; it "
    "has to break the claim. Null has the record in neither run and has to prove nothing. A bound "
    "below the claim does not confirm it: the verdict then is NOT FALSIFIED. Rows on the code are "
    "shares of values that break a rule.",
}
_ANY = (
    "Larger is worse. Five values stand beside each other. Chance is a blind guess. Prior is the "
    "best guess without the message, from what is public anyway. Raw is the same attack on the "
    "message before it was protected: it shows that the attack works at all. Null is the attack on "
    "somebody else's message: it shows that the test is fair. Protected (Left) is what the "
    "receiver learnt. Only protected against prior says something about the run, and only while "
    "raw and null are as they should be. Each value has an interval over clients; a wide one means "
    "that too few clients were looked at."
)
_FOUND = (
    "Power, beside every PASS: the smallest gain over the prior that would have been found, as a "
    "FAIL, with a chance of 95 % by as many clients. A smaller gain may be there."
)
_PLANTED = (
    "Of facts, power is the gain that was planted as a test and found; nothing smaller was tried."
)
POWER = f"{_FOUND} {_PLANTED}"


def reading(attack: str) -> str:
    """Return how to read the rows of an attack, by its id."""
    if attack in _FACTS:
        return f"{_FACTS[attack]} {_PLANTED}"
    return _ESTIMATES.get(attack, _general())


def lesson(attack: str) -> str:
    """Return the same for readers with no report in hand: what the five values are comes first."""
    return f"{_general()} {_ESTIMATES[attack]}" if attack in _ESTIMATES else reading(attack)


def _general() -> str:
    return f"{_ANY} {_FOUND}"
