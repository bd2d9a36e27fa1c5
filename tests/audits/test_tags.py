"""A02 and A03: whether tags of items can be turned back, in every mode and collusion.

Trials: 12 clients of 8 items each among 60. Items are pinned; keys are drawn anew, and two tags of
different items are equal with a chance far below 1e-9.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from audits.attacks._shared.tags import dictionary, frequency, signatures
from crypto.oprf import blind, joined, unsafe_signature_tags
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import (
    TAG_BYTES,
    TagBatch,
    TagServer,
    _item,
    keyed,
)
from tests.protocols.matching import KEY, RUN, crowd, finished, keyed_all, served

MATCH, CATALOGUE = Match(cap=8, canaries=2), 60
ITEMS = crowd(12, CATALOGUE, 8, seed=2)


def view(tags):
    """What the matcher holds, and the truth."""
    held = Counter(row.tobytes() for mine in tags.values() for row in mine.sent)
    truth = {
        mine.sent[at].tobytes(): item for mine in tags.values() for item, at in mine.places.items()
    }
    return held, truth


@pytest.fixture(scope="module")
def oprf():
    servers = (TagServer(MATCH), TagServer(MATCH))
    return servers, view(served(ITEMS, MATCH, 0, servers))


def table(share):
    """All tags that a key makes: what a server could do with it."""
    batch = blind([_item(item) for item in range(CATALOGUE)])
    outputs = batch.finalize(share.evaluate(batch.points))
    return {output[:TAG_BYTES]: item for item, output in enumerate(outputs)}


def test_a02_the_fields_tags_fall_to_the_public_key_alone():
    key = rsa.generate_private_key(65537, 2048)
    texts = {b"%d" % item: item for item in range(CATALOGUE)}
    held, truth = Counter(), {}
    for own in ITEMS.values():
        for item, tag in zip(
            own, unsafe_signature_tags(key, [b"%d" % i for i in own]), strict=True
        ):
            held[tag] += 1
            truth[tag] = item
    found = dictionary(held, truth, signatures(key.public_key(), held, texts))
    assert (found.share, found.weight) == (1.0, 1.0)


def test_a02_one_tag_server_and_the_matcher_find_nothing(oprf):
    servers, (held, truth) = oprf
    for server in servers:
        assert dictionary(held, truth, table(server._share)).share == 0.0
    both = joined(servers[0]._share, servers[1]._share)
    assert dictionary(held, truth, table(both)).share == 1.0


def test_a02_one_client_and_the_matcher_find_its_quota_at_most(oprf):
    servers, (held, truth) = oprf
    counts = Counter(item for own in ITEMS.values() for item in own)
    guesses = [item for item, _ in counts.most_common(MATCH.cap)]  # the best it can ask for
    batch = TagBatch(guesses, MATCH, RUN, 0)
    tags = finished(batch, "thief", servers)
    found = dictionary(held, truth, {tags.sent[at].tobytes(): i for i, at in tags.places.items()})
    assert found.share == pytest.approx(MATCH.cap / len(counts))
    assert found.weight > found.share  # spent on the popular, it finds more holders


def test_a02_in_hmac_mode_one_client_and_the_matcher_find_everything():
    held, truth = view(keyed_all(ITEMS, MATCH))
    found: dict[bytes, int] = {}
    for start in range(0, CATALOGUE, MATCH.cap):
        some = list(range(start, min(start + MATCH.cap, CATALOGUE)))
        tags = keyed(some, KEY, MATCH, RUN, 0)
        found |= {tags.sent[at].tobytes(): item for item, at in tags.places.items()}
    assert dictionary(held, truth, found).share == 1.0


def test_a03_a_perfect_prior_ranks_and_a_false_one_does_not():
    match = Match(cap=64, canaries=2, popular=0.05)
    own = {n: [i for i in mine if i >= 10] for n, mine in crowd(400, 200, 60, seed=5).items()}
    held, truth = view(keyed_all(own, match))
    counts = np.bincount([i for mine in own.values() for i in mine], minlength=200).astype(float)
    perfect = frequency(held, truth, counts + 1e-6 * np.arange(200))
    assert perfect.exact > 0.3 and perfect.near > 0.9
    rng = np.random.default_rng(0)
    blind_guess = frequency(held, truth, rng.permutation(counts))
    assert blind_guess.near < 0.35
    known = 1e9 * (np.arange(200) < 10) + counts  # the popular ones that nobody tags
    assert frequency(held, truth, known, skip=10).near == pytest.approx(perfect.near, abs=0.05)
    assert frequency(held, truth, known).exact < perfect.exact / 2
