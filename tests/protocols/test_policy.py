"""Guards and policies: what does not protect does not construct; what is not named is refused."""

import itertools
import re

import pytest
from pydantic import ValidationError

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import He
from protocols.errors import CohortTooSmall, NotAdmitted, PolicyError
from protocols.forms import Algorithm, Exchange, Form
from protocols.policy.admission import check_chain
from protocols.policy.guard import describe, find
from protocols.policy.guards import Clip, Quantise, Seal, Sign, UnsafeClear
from protocols.policy.policy import PRESETS, PrivacyPolicy
from tests.protocols.toys import Gift, Start, Update, toy_algorithm, toy_plan, train
from tests.protocols.wire import World

BASE = PRESETS["pilot"].rules
HE = (Clip(), Quantise(), He(), Seal())
CLEAR = (Clip(), Quantise(), UnsafeClear())
GUARDS = (Clip(), Quantise(), He(), Seal(), Sign(), UnsafeClear())


def policy(**facts):
    return PrivacyPolicy(**{"name": "mine", "rules": BASE, **facts})


def test_of_all_chains_of_up_to_four_guards_two_are_a_protected_sum():
    good = set()
    for length in range(5):
        for chain in itertools.product(GUARDS, repeat=length):
            try:
                check_chain(Disclosure.SUM, chain)
            except ValueError:
                continue
            good.add(tuple(guard.guard for guard in chain))
    assert good == {
        ("clip", "quantise", "he", "seal"),
        ("clip", "quantise", "unsafe_clear"),
    }


SINGLE = {
    Disclosure.SEALED: {("seal",)},
    Disclosure.RELEASED: {("seal",)},
    Disclosure.PUBLIC: {("sign",), ("seal",)},
    Disclosure.NEIGHBOUR_SUM: {("clip", "quantise", "unsafe_clear")},
}


@pytest.mark.parametrize("disclosure", [d for d in Disclosure if d is not Disclosure.SUM])
def test_elsewhere_no_chain_names_a_step_that_nobody_applies(disclosure):
    allowed = SINGLE.get(disclosure, {("unsafe_clear",)})
    for length in range(5):
        for chain in itertools.product(GUARDS, repeat=length):
            names = tuple(guard.guard for guard in chain)
            if names not in allowed:
                with pytest.raises(ValueError, match=str(disclosure)):
                    check_chain(disclosure, chain)


def test_an_empty_chain_protects_nothing():
    for disclosure in Disclosure:
        with pytest.raises(ValueError, match="empty"):
            check_chain(disclosure, ())
        with pytest.raises(ValidationError):
            policy(rules={**BASE, disclosure: ()})
    with pytest.raises(ValidationError):
        policy(rules={})


def test_a_sum_without_encryption_must_be_called_unsafe():
    with pytest.raises(ValidationError, match="SUM"):
        policy(rules={**BASE, Disclosure.SUM: (Seal(),)})
    unsafe = policy(rules={**BASE, Disclosure.SUM: CLEAR})
    assert unsafe.unsafe == (Disclosure.SUM,)
    assert policy().unsafe == ()


def test_guards_are_found_and_described():
    assert find(HE, "clip") == Clip()
    assert find(HE, "sign") is None
    assert describe(Quantise(bits=20)) == "quantise(bits=20)"
    assert describe(Seal()) == "seal"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Clip(bound=0),
        lambda: Clip(bound=-1),
        lambda: Clip(bound=float("nan")),
        lambda: Clip(bound=float("inf")),
        lambda: Clip(norm="l0"),
        lambda: Quantise(bits=3),
        lambda: Quantise(bits=33),
        lambda: He(scheme="ckks"),
        lambda: policy(minimum_cohort=0),
        lambda: policy(minimum_cohort=True),
        lambda: policy(colluders=-1),
        lambda: policy(name="Not A Name"),
        lambda: policy(name=""),
    ],
)
def test_values_outside_their_range_are_refused(make):
    with pytest.raises(ValidationError):
        make()


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(ValidationError, match="minimum_cohort"):
        policy(minimum_cohrt=3)
    with pytest.raises(ValidationError, match="bound"):
        Clip(bond=1.0)
    with pytest.raises(PolicyError) as caught:
        PrivacyPolicy.preset("piolt")
    assert "pilot" in str(caught.value)


def test_errors_do_not_echo_values():
    with pytest.raises(ValidationError) as caught:
        Clip(bound="0.987654321x")
    assert "0.987654321x" not in str(caught.value)


def test_policies_are_frozen_and_presets_are_nobodys():
    with pytest.raises(ValidationError):
        policy().minimum_cohort = 1
    before = PrivacyPolicy.preset("pilot").digest
    try:
        PrivacyPolicy.preset("pilot").rules[Disclosure.NOISED] = (UnsafeClear(),)
    except TypeError:
        return
    changed = PrivacyPolicy.preset("pilot").digest
    PRESETS["pilot"].rules.pop(Disclosure.NOISED, None)
    assert changed == before


def test_the_digest_changes_with_every_part_of_the_content():
    variants = [
        policy(),
        policy(name="other"),
        policy(minimum_cohort=4),
        policy(colluders=1),
        policy(messages=("Update",)),
        policy(messages=()),
        policy(rules={**BASE, Disclosure.SUM: CLEAR}),
        policy(rules={**BASE, Disclosure.SUM: (Clip(bound=0.25), *HE[1:])}),
        policy(rules={**BASE, Disclosure.SUM: (Clip(norm="l2"), *HE[1:])}),
        policy(rules={**BASE, Disclosure.SUM: (Clip(), Quantise(bits=15), *HE[2:])}),
        policy(rules={**BASE, Disclosure.NOISED: (UnsafeClear(),)}),
    ]
    assert len({p.digest for p in variants}) == len(variants)
    assert policy().digest == policy(rules=dict(reversed(BASE.items()))).digest


def test_deny_by_default():
    algorithm = toy_algorithm(World().form)
    bare = policy(rules={Disclosure.PUBLIC: (Sign(),)})
    for refuse in (lambda: bare.admit(algorithm), lambda: toy_plan(policy=bare)):
        with pytest.raises(NotAdmitted) as caught:
            refuse()
        assert "Start" in str(caught.value)
    for disclosure in Disclosure:
        if disclosure is not Disclosure.PUBLIC:
            with pytest.raises(NotAdmitted):
                bare.chain(disclosure)


def test_a_message_that_is_not_allowed_is_refused_before_and_during_the_run():
    algorithm = toy_algorithm(World().form)
    with pytest.raises(NotAdmitted, match="toy"):
        policy(messages=("Start",)).admit(algorithm)
    assert policy(messages=("Start", "Update")).admit(algorithm).name == "train"
    world = World(policy=policy(messages=("Start", "Update"))).start()
    assert world.round(1).total(Update).count == 20


def test_admit_takes_the_first_form_that_fits():
    def form(name, back):
        return Form(name, lambda s, c: None, (Exchange(name, (Start,), (back,), train),))

    algorithm = Algorithm("a", "c", None, None, (form("sealed", Gift), form("sum", Update)), {})
    only_sums = {k: v for k, v in BASE.items() if k is not Disclosure.SEALED}
    assert policy().admit(algorithm).name == "sealed"
    assert policy(rules=only_sums).admit(algorithm).name == "sum"


@pytest.mark.parametrize(("others", "colluders"), [(3, 0), (3, 2), (5, 0), (5, 4)])
def test_o10_the_minimum_cohort_counts_others_and_colluders(others, colluders):
    chosen = policy(minimum_cohort=others, colluders=colluders)
    assert chosen.smallest_cohort == others + colluders + 1
    chosen.check_cohort(others + colluders + 1)
    for size in (0, 1, others, others + colluders):
        with pytest.raises(CohortTooSmall):
            chosen.check_cohort(size)


@pytest.mark.parametrize("name", PRESETS)
def test_o10_presets_stay_at_four_but_for_the_one_in_clear(name):
    assert PRESETS[name].smallest_cohort == (3 if name == "unsafe_plaintext" else 4)


@pytest.mark.parametrize("others", [2, 3, 5])
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_o10_a_refusal_says_what_may_be_written_and_that_is_admitted(others, colluders):
    chosen = policy(minimum_cohort=others, colluders=colluders)
    for size in range(chosen.smallest_cohort):
        with pytest.raises(CohortTooSmall) as caught:
            chosen.check_cohort(size)
        fix = caught.value.fix
        assert f"take at least {chosen.smallest_cohort} clients" in fix
        written = dict(re.findall(r"(minimum_cohort|colluders): (\d+)", fix))
        assert written or (size < 3 and chosen.smallest_cohort == 3)
        changed = policy(
            minimum_cohort=int(written.get("minimum_cohort", others)),
            colluders=int(written.get("colluders", colluders)),
        )
        changed.check_cohort(max(size, 3))
        assert ("no policy admits fewer" in fix) == (size < 3)
        assert ("two clients that pool" in fix) == (changed.minimum_cohort == 2 and bool(written))


def test_o10_no_policy_admits_two_clients():
    with pytest.raises(ValidationError, match="minimum_cohort"):
        policy(minimum_cohort=1)
    with pytest.raises(CohortTooSmall):
        policy(minimum_cohort=2).check_cohort(2)


def test_o10_the_default_is_three_others():
    assert policy().smallest_cohort == 4
    with pytest.raises(CohortTooSmall):
        toy_plan(clients=("a", "b", "c"))


def test_o10_a_name_twice_is_not_a_second_client():
    with pytest.raises(PolicyError):
        toy_plan(clients=("a", "a", "b", "c"))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_complete_and_named_after_themselves(name):
    preset = PrivacyPolicy.preset(name)
    assert preset is PrivacyPolicy.load(name) or preset == PrivacyPolicy.load(name)
    assert preset.name == name
    assert bool(preset.unsafe) == name.startswith("unsafe")
    assert PrivacyPolicy.model_validate(preset.document()) == preset
    assert PrivacyPolicy.model_validate(preset.document()).digest == preset.digest


def test_o4_all_presets_mask_sums_but_for_the_one_in_clear():
    guards = {n: [guard.guard for guard in p.chain(Disclosure.SUM)] for n, p in PRESETS.items()}
    assert {n for n, chain in guards.items() if "mask" not in chain} == {"unsafe_plaintext"}


def test_policies_are_loaded_from_files_or_refused(tmp_path):
    good = tmp_path / "good.yaml"
    good.write_text(
        "name: mine\nrules:\n  SUM: [{guard: clip}, {guard: quantise}, {guard: he},"
        " {guard: seal}]\n  PUBLIC: [{guard: sign}]\n"
    )
    assert PrivacyPolicy.load(good).chain(Disclosure.SUM) == HE
    for text in ("", "[]", "name: x", "a: [", "name: x\nrules: {SUMM: [{guard: seal}]}", "\xff"):
        bad = tmp_path / "bad.yaml"
        bad.write_bytes(text.encode("latin-1"))
        with pytest.raises(PolicyError):
            PrivacyPolicy.load(bad)
    for missing in (tmp_path, tmp_path / "none.yaml", "no-such-preset"):
        with pytest.raises(PolicyError):
            PrivacyPolicy.load(missing)
