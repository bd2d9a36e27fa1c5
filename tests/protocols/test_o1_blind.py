"""O1: what the key authority decrypts is uniform mod t and says nothing about the data.

The same statistic is run on a control, an aggregator that forgets the blind: it must be recognised,
or the test would prove nothing.
"""

import numpy as np
import pytest
from scipy import stats

from crypto.homomorphic.he import SecretKey
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.view import Summands
from protocols.sessions.part import Collection
from tests.protocols.toys import Update
from tests.protocols.wire import World

D = 200  # one ciphertext of 4096 coefficients; most of them are padding, which is blinded too
LEVEL = 1e-12  # false alarms per statistic: keys are new in each run of these tests


def view(monkeypatch, fill=None, rounds=3, blind=True, d=D):
    """Return everything the authority decrypts in a run, shape (rounds, 4096)."""
    world, seen = World(d=d, rounds=rounds), []
    for site in world.sites.values():
        if fill is not None:
            site.delta = np.full(d, fill)
    if not blind:
        plain = type(world.scheme)
        real = plain.blind
        monkeypatch.setattr(plain, "blind", lambda s, seed, n: np.zeros_like(real(s, seed, n)))
    decrypt = type(world.scheme).decrypt

    def watched(scheme, key, blob):
        values = decrypt(scheme, key, blob)
        seen.append(values.copy())
        return values

    monkeypatch.setattr(type(world.scheme), "decrypt", watched)
    world.start()
    for number in range(1, rounds + 1):
        total = world.round(number).total(Update)
        assert total.count == 20
    monkeypatch.undo()
    return np.stack(seen), world.scheme.plain_modulus


def p_values(values, modulus):
    """Return chi-square p-values of the low and the high 6 bits, pooled over all openings."""
    cells = 64
    low = np.bincount((values % cells).ravel().astype(int), minlength=cells)
    high = (values.ravel().astype(object) * cells // modulus).astype(int)
    return [stats.chisquare(c).pvalue for c in (low, np.bincount(high, minlength=cells))]


def test_o1_the_authority_decrypts_uniform_noise(monkeypatch):
    values, modulus = view(monkeypatch)
    assert values.shape[1] >= 4096
    assert int(values.max()) < modulus
    assert min(p_values(values, modulus)) > LEVEL
    assert min(p_values(values[:, : D // 2], modulus)) > LEVEL  # where the data are
    assert len(np.unique(values)) == values.size  # openings share nothing


def test_o1_without_the_blind_the_same_statistic_sees_it(monkeypatch):
    values, modulus = view(monkeypatch, blind=False)
    assert max(p_values(values, modulus)) < LEVEL
    assert min(p_values(values[:, : D // 2], modulus)) < LEVEL


@pytest.mark.parametrize("blind", [True, False])
def test_o1_the_view_does_not_tell_two_data_sets_apart(monkeypatch, blind):
    views = [view(monkeypatch, fill=f, blind=blind)[0][:, : D // 2] for f in (0.0, 4.9)]
    p = stats.ks_2samp(*(v.ravel().astype(float) for v in views)).pvalue
    assert p > LEVEL if blind else p < LEVEL


def test_o1_openings_of_one_run_are_not_related(monkeypatch):
    values, modulus = view(monkeypatch, fill=0.1)
    difference = (values[1].astype(object) - values[0].astype(object)) % modulus
    assert min(p_values(difference.astype(np.uint64), modulus)) > LEVEL


def blind_of(world):
    """Return the blind that the aggregator keeps for the total on its way."""
    return world.aggregator.asked.answers.of(Disclosure.SUM, Summands)._blind


def test_the_blind_covers_every_coefficient():
    world = World().start()
    request = world.until_open(1)
    assert blind_of(world).size == 4096 == world.plan.item("train.opened").body // 8
    assert np.count_nonzero(blind_of(world)) == 4096  # one zero in 2^44 each
    assert world.deliver(request)


def test_the_blind_is_fresh_is_forgotten_and_never_travels():
    world, blinds = World().start(), []
    for number in (1, 2, 3):
        request = world.until_open(number)
        blinds.append(blind_of(world).astype("<u8").tobytes())
        for answer in world.deliver(request):
            world.aggregator.receive(answer.data)
        assert blind_of(world) is None
        assert not world.aggregator.advance()
    assert len(set(blinds)) == 3
    raw = b"".join([*world.wire, *(s.lines for s in world.stores.values())])
    assert not any(blind[i : i + 16] in raw for blind in blinds for i in range(0, 4096, 256))


def test_only_the_authority_ever_holds_a_secret_key():
    world = World().start()
    world.round(1)

    def holds(thing, depth=4):
        if isinstance(thing, SecretKey):
            return True
        if isinstance(thing, dict) and depth > 0:
            return any(holds(v, depth - 1) for v in thing.values())
        if depth <= 0 or not hasattr(thing, "__dict__"):
            return False
        return any(holds(v, depth - 1) for v in vars(thing).values())

    assert holds(world.authority)
    assert not any(holds(s) for s in (world.aggregator, *world.clients.values()))


def test_o9_uploads_are_forgotten_once_they_are_added():
    world = World().start()
    world.until_open(1)
    held = [v for part in world.aggregator.parts.values() for v in vars(part).values()]
    kept = [v.get(Disclosure.SUM, Summands) for v in held if isinstance(v, Collection)]
    assert kept
    assert all(not received for c in kept for received in [c._received])
