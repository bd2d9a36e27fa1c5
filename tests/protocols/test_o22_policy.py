"""What a policy and a plan hold of mixtures: chains, forms, sizes (O14, O16, O22)."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.mixed.layout import MixLayout, mixed_fields, whole
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Mask
from protocols.errors import NotAdmitted, NotInPlan
from protocols.forms import Exchange, Form
from protocols.messages import MixedMessage, ReleasedMessage, count, real
from protocols.policy.admission import check_chain
from protocols.policy.budget import Budget
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.privacy.training import Training
from tests.protocols.mix import (
    CLASSES,
    FLOOR,
    GRID,
    MASH,
    PLACES,
    WIDTH,
    Go,
    Mashed,
    chain,
    mash,
    mixing_plan,
    mixing_policy,
    toy,
)
from tests.protocols.wire import World

CLIP, MIX = Clip(norm="l2", bound=16.0), Mix()


# --- chains -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        (MIX, CLIP, Seal()),
        (MIX, Seal()),
        (CLIP, Seal()),
        (CLIP, MIX),
        (Clip(), MIX, Seal()),  # every coordinate by itself is no bound of a record
        (CLIP, Blur(multiplier=1), MIX, Seal()),
        (CLIP, MIX, Blur(multiplier=1), Blur(multiplier=1), Seal()),
        (CLIP, MIX, MIX, Seal()),
        (CLIP, Quantise(), MIX, Seal()),
        (CLIP, Quantise(), Mask(), Seal()),
        (CLIP, MIX, UnsafeClear()),
        (Seal(),),
        (CLIP, MIX, Blur(multiplier=0.001), Seal()),  # 1 grid step: 8 are needed (O19)
    ],
)
def test_o14_a_chain_in_a_wrong_order_does_not_construct(wrong):
    with pytest.raises(ValueError):
        check_chain(Disclosure.MIXED, wrong)
    with pytest.raises(ValidationError):
        PrivacyPolicy(name="wrong", rules={Disclosure.MIXED: wrong})


def test_o14_the_order_is_clip_mix_noise_seal():
    check_chain(Disclosure.MIXED, (CLIP, MIX, Seal()))
    check_chain(Disclosure.MIXED, (CLIP, MIX, Blur(multiplier=1), Seal()))
    check_chain(Disclosure.MIXED, (UnsafeClear(),))
    for other in set(Disclosure) - {Disclosure.MIXED}:
        with pytest.raises(ValueError):
            check_chain(other, (CLIP, MIX, Seal()))


@pytest.mark.parametrize(
    "facts", [{"floor": 3}, {"floor": 8, "apart": 9}, {"apart": 1}, {"bucket": 0}, {"bits": 25}]
)
def test_a_floor_is_no_single_record(facts):
    with pytest.raises(ValidationError):
        Mix(**facts)


def test_presets_name_mixtures_but_for_strict_and_calibrated():
    named = {name for name, policy in PRESETS.items() if Disclosure.MIXED in policy.rules}
    assert named == {"pilot", "he", "shuffled", "masks", "ckks", "unsafe_plaintext"}
    for name in ("strict", "calibrated"):
        with pytest.raises(NotAdmitted) as error:
            PRESETS[name].admit(toy())
        assert "Mashed needs MIXED" in error.value.why


def test_the_first_admitted_form_is_taken():
    class Sum(ReleasedMessage):
        step: int = count(unit="round", meaning="rounds")

    def quiet(site, given):
        return None

    other = Form("no_ego_upload", MASH.round, (Exchange("quiet", (Sum,), (), quiet),))
    both = toy()
    both = type(both)(**{**vars(both), "forms": (MASH, other)})
    assert PRESETS["pilot"].admit(both) is MASH
    assert PRESETS["strict"].admit(both) is other


def test_o16_mixtures_are_not_accounted_so_a_budget_refuses_them():
    with pytest.raises(ValidationError, match="budget"):
        PrivacyPolicy(
            name="both",
            rules={Disclosure.MIXED: chain()},
            budget=Budget(epsilon=1.0, delta=1e-5),
        )


def test_private_training_refuses_mixtures_of_records():
    training = Training(
        rate=0.5, batch=4, epsilon=8.0, delta=1e-5, budget=Budget(epsilon=9, delta=1e-4)
    )
    policy = mixing_policy().model_copy(update={"training": training})
    form = Form("mash", MASH.round, MASH.exchanges, by_gradients=True)
    with pytest.raises(NotAdmitted) as error:
        policy.admit(toy(form))
    assert "mixed from records" in error.value.why


def test_o22_a_form_of_single_records_is_refused_when_the_plan_is_made():
    """Not when it first speaks; and only a chain that mixes is in its way."""
    form = Form("unmixed", MASH.round, MASH.exchanges, unmixed=True)
    for preset in ("pilot", "masks"):
        with pytest.raises(NotAdmitted) as error:
            mixing_plan(mixing_policy(preset=preset), form)
        assert "'unmixed': message Mashed would hold single records" in error.value.why
        assert "take unsafe_plaintext" in error.value.why
        assert "of the presets" not in error.value.fix
    assert mixing_plan(PRESETS["unsafe_plaintext"], form).form == "unmixed"
    assert mixing_plan(mixing_policy(), MASH).form == MASH.name


def test_two_mixed_messages_of_one_ask_are_refused():
    class Second(MixedMessage):
        rows: object = real("mixtures", "width", unit="1", meaning="m")

    form = Form("two", MASH.round, (Exchange("two", (Go,), (Mashed, Second), mash),))
    with pytest.raises(NotAdmitted) as error:
        mixing_policy().admit(toy(form))
    assert "two MIXED" in error.value.why


def declared():
    class NoMixtures(MixedMessage):
        rows: object = real("width", "width", unit="1", meaning="m")

    class Counts(MixedMessage):
        rows: object = count("mixtures", "width", unit="1", meaning="m")

    class Two(MixedMessage):
        rows: object = real("mixtures", "width", unit="1", meaning="m")
        more: object = real("mixtures", "width", unit="1", meaning="m")

    class Everywhere(MixedMessage):
        rows: object = real("mixtures", "places", "width", unit="1", meaning="m")
        label: object = real("mixtures", "places", "classes", unit="1", meaning="m", label=True)

    class Flat(MixedMessage):
        rows: object = real("mixtures", unit="1", meaning="m")

    class Labels(MixedMessage):
        label: object = real("mixtures", "classes", unit="1", meaning="m", label=True)

    return [NoMixtures, Counts, Two, Everywhere, Flat, Labels]


@pytest.mark.parametrize("kind", declared(), ids=lambda kind: kind.__name__)
def test_labels_are_the_centres_and_fields_are_mixtures(kind):
    with pytest.raises(ValueError, match=kind.__name__):
        mixed_fields(kind)


# --- plans --------------------------------------------------------------------------------------


def test_the_plan_says_what_leaves_and_in_which_protection():
    plan = mixing_plan(mixing_policy(chain(Blur(multiplier=1.0))), records=128)
    item = plan.item("mash.up.MIXED")
    assert plan.dims["mixtures"] == 16
    assert item.body == 8 + 16 * (PLACES * WIDTH + CLASSES) * 4  # with noise: four bytes an entry
    assert item.guards == (
        "clip(norm=l2, bound=16.0)",
        "mix(floor=8, apart=2, bucket=1, bits=16)",
        "blur(multiplier=1.0)",
        "seal",
    )
    features, label = item.messages[0].fields
    assert (features.bound, label.bound) == ("16.0", "1.0")
    assert float(features.step) == pytest.approx(GRID) and features.shape == (16, PLACES, WIDTH)


def test_the_number_of_mixtures_follows_from_public_facts():
    for records, group, bucket, wanted in (
        (64, 0, 1, 8),
        (64, 16, 1, 4),
        (512, 0, 8, 64),
        (512, 30, 8, 16),
        (4, 0, 4, 1),
    ):
        policy = mixing_policy(chain(bucket=bucket))
        facts = {"group": group} if group else {}
        assert mixing_plan(policy, records=records, **facts).dims["mixtures"] == wanted
    assert [whole(n, 4) for n in range(10)] == [1, 1, 2, 2, 4, 4, 4, 4, 8, 8]


def test_a_plan_without_room_for_a_mixture_is_refused():
    with pytest.raises(ValueError, match="no room"):
        mixing_plan(mixing_policy(), mixtures=0)


def test_a_plan_with_a_lower_floor_is_refused():
    policy = mixing_policy()
    plan = mixing_plan(policy)
    item = plan.item("mash.up.MIXED")
    loose = item.model_copy(
        update={"guards": tuple(g.replace("floor=8", "floor=4") for g in item.guards)}
    )
    items = tuple(loose if i.id == item.id else i for i in plan.items)
    with pytest.raises(NotInPlan, match="another protection"):
        World(MASH, policy, plan=plan.model_copy(update={"items": items}))


def test_an_algorithm_s_group_below_the_floor_does_not_lower_it():
    policy = mixing_policy(chain(floor=FLOOR))
    made = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy, group=2).dims)
    assert made.size == FLOOR
