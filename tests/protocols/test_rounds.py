"""Asks, cohorts and replies: an algorithm reads what its messages' disclosures allow."""

import pickle

import numpy as np
import pytest

from protocols.disclosures._base.view import ClearView
from protocols.disclosures.sealed.disclosure import HandedView
from protocols.disclosures.sum.view import TotalView
from protocols.errors import SecureFglError
from protocols.forms import Exchange, Form, exchange_of
from protocols.messages import (
    MatchMessage,
    Message,
    MixedMessage,
    NoisedMessage,
    SimilarityMessage,
    WeightedSumMessage,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Reply, Sealed
from protocols.wire.control import Refusal
from tests.protocols.toys import Gift, Start, Toy, Update, fill, toy_plan, train
from tests.protocols.wire import World


class Model(WeightedSumMessage):
    weights: object = real(3, unit="w", meaning="m")


class Portrait(SimilarityMessage):
    vector: object = real(3, unit="w", meaning="m")


class Tags(MatchMessage):
    tag: object = count(2, unit="t", meaning="m", key=True)
    value: object = real(2, unit="t", meaning="m")


class Found(MatchMessage):
    row: object = count(4, unit="t", meaning="m")
    value: object = real(4, unit="t", meaning="m")


class Mixture(MixedMessage):
    rows: object = real(2, unit="w", meaning="m")


class Noisy(NoisedMessage):
    value: float = real(unit="w", meaning="m")


KINDS = {
    "total": Update,
    "similarity": Portrait,
    "weighted": Model,
    "matched": Tags,
    "handed": Gift,
    "each": Noisy,
}
OPTIONS = {"weighted": {"alpha": np.eye(2)}, "matched": {"into": Found}}


def views():
    sent = {
        Model: [Model(weights=np.arange(3.0) * k) for k in (1, 2)],
        Portrait: [Portrait(vector=np.array(v)) for v in ([1.0, 0, 0], [1.0, 1.0, 0])],
        Tags: [
            Tags(tag=np.array([7, 9]), value=np.array([1.0, 2.0])),
            Tags(tag=np.array([9, 0]), value=np.array([5.0, 6.0])),
        ],
        Noisy: [Noisy(value=1.0), Noisy(value=2.0)],
        Mixture: [Mixture(rows=np.zeros(2)), Mixture(rows=np.ones(2))],
    }
    found = {k: ClearView(k, {"a": v[0], "b": v[1]}, {}) for k, v in sent.items()}
    found[Update] = TotalView(Update(delta=np.zeros(5), count=1))
    found[Gift] = HandedView(Gift, {"a": b"aAaB", "b": b"bAbB"}, 2)
    return found


@pytest.mark.parametrize("verb", KINDS)
@pytest.mark.parametrize("kind", KINDS.values())
def test_each_message_answers_its_own_verb_only(verb, kind):
    reply = Reply(views())
    if KINDS[verb] is kind:
        assert getattr(reply, verb)(kind, **OPTIONS.get(verb, {})) is not None
        return
    with pytest.raises(TypeError, match="not allowed"):
        getattr(reply, verb)(kind, **OPTIONS.get(verb, {}))
    with pytest.raises(TypeError):  # nor by way of the view
        views()[kind].read(verb, **OPTIONS.get(verb, {}))


def test_what_was_not_asked_is_not_there():
    with pytest.raises(TypeError, match="asked"):
        Reply({}).total(Update)


def test_a_sealed_result_is_opaque():
    reply = Reply(views())
    for token in (reply.weighted(Model, np.eye(2)), reply.handed(Gift)):
        assert isinstance(token, Sealed)
        assert "Sealed" in repr(token)
        assert str(token) == f"<Sealed {token.kind.__name__}>"
        with pytest.raises(TypeError):
            pickle.dumps(token)
        public = {name for name in dir(token) if not name.startswith("_")}
        assert public == {"joined", "kind"}
        for operation in (len, iter, float, bytes, np.linalg.norm):
            with pytest.raises((TypeError, ValueError)):
                operation(token)


def test_handed_boxes_are_sorted_by_addressee():
    assert Reply(views()).handed(Gift)._deliveries == {"a": b"aAbA", "b": b"aBbB"}


def test_the_clear_views_compute_what_they_say():
    reply = Reply(views())
    assert reply.similarity(Portrait)[0, 1] == pytest.approx(2**-0.5)
    mixed = reply.weighted(Model, np.array([[0.5, 0.5], [0, 1]]))._deliveries
    assert np.allclose(mixed["a"].weights, np.arange(3) * 1.5)
    for alpha in (np.eye(3), np.ones((2, 2)), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="rows"):
            reply.weighted(Model, alpha)
    found = reply.matched(Tags, into=Found)._deliveries["a"]
    assert found.row.tolist() == [2, 0, 0, 0]
    assert found.value.tolist() == [5.0, 0, 0, 0]


def test_each_does_not_follow_the_senders():
    one, two = Noisy(value=1.0), Noisy(value=2.0)
    orders = {
        tuple(m.value for m in Reply({Noisy: ClearView(Noisy, sent, {})}).each(Noisy))
        for sent in ({"a": one, "b": two}, {"a": two, "b": one})
    }
    assert len(orders) == 1


def test_a_cohort_tells_its_size_only():
    cohort = Cohort(["bank-b", "bank-a"])
    assert cohort.size == 2
    assert "bank" not in repr(cohort)
    assert {n for n in dir(cohort) if not n.startswith("_")} == {
        "begun",
        "divisible",
        "parts",
        "size",
        "split",
    }


def test_split_gives_disjoint_cohorts_in_order():
    parts = Cohort(list("dcba")).split([2, 0, 2, 0])
    assert [p._members for p in parts] == [("b", "d"), ("a", "c")]
    assert [p.size for p in Cohort(list("abc")).split(np.array([1, 1, 1]))] == [3]
    for groups in ([], [1, 1], [1] * 4):
        with pytest.raises(ValueError, match="one group"):
            Cohort(list("abc")).split(groups)


def test_a_name_twice_does_not_make_a_cohort_larger():
    world = World().start()
    members = ["client-1", "client-1", "client-2", "client-3"]
    with pytest.raises((ValueError, SecureFglError)):
        world.aggregator.ask(Ask(Cohort(members), Start(weights=np.zeros(5)), Update), 1)


def answer_none(site: Toy, given: Start) -> None: ...
def answer_two(site: Toy, given: Start) -> tuple[Update, Gift]: ...
def answer_nothing_said(site, given): ...
def answer_maybe(site: Toy, given: Start) -> Update | None: ...
def answer_any(site: Toy, given: Start) -> tuple[Update, ...]: ...
def answer_message(site: Toy, given: Start) -> Message: ...
def answer_number(site: Toy, given: Start) -> int: ...


def test_exchange_of_reads_the_annotation():
    assert exchange_of(Start, train).back == (Update,)
    assert exchange_of(Start, train).name == "train"
    assert exchange_of(Start, answer_none).back == ()
    assert exchange_of(Start, answer_two).back == (Update, Gift)


@pytest.mark.parametrize(
    "answer", [answer_nothing_said, answer_maybe, answer_any, answer_message, answer_number]
)
def test_exchange_of_refuses_other_annotations(answer):
    with pytest.raises(TypeError, match="annotated"):
        exchange_of(Start, answer)


def test_how_often_an_exchange_may_happen():
    assert Exchange("x", (Start,), (), train, per_round=2, outside=3).times(10) == 23


def test_a_form_finds_the_exchange_of_an_ask():
    form = Form.of("f", lambda s, c: None, {Start: train, Refusal: fill})
    start = Start(weights=np.zeros(5))
    assert form.find(Ask(Cohort(["a"]), start, Update)).name == "train"
    for ask in (Ask(Cohort(["a"]), start, Gift), Ask(Cohort(["a"]), start)):
        with pytest.raises(TypeError, match="declares no exchange"):
            form.find(ask)
    assert form.messages() == (Start, Update, Refusal, Gift)


def test_two_exchanges_of_one_name_are_refused():
    twice = (Exchange("x", (Start,), (Update,), train), Exchange("x", (Refusal,), (), train))
    with pytest.raises((ValueError, SecureFglError)):
        toy_plan(Form("f", lambda s, c: None, twice))


@pytest.mark.parametrize("name", ["key", "pair", "refusal"])
def test_names_of_the_layers_own_exchanges_are_refused(name):
    with pytest.raises(ValueError, match="layer's own"):
        Form("f", lambda s, c: None, (Exchange(name, (Start,), (Update,), train),))
