"""A YAML text is read in one way, or refused with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, Field, ValidationError

from protocols.disclosures.registry import guards
from protocols.plan.plan import Plan
from protocols.policy.guards import COMMON
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import DEPTH, Strict, not_yaml, problems, read_yaml
from secure_fgl.config import Config
from secure_fgl.consortium import Consortium
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.errors import UsageError

REFUSED = {
    "a key twice": ("seed: 1\nrounds: 2\nseed: 3\n", 3),
    "a key twice, deeper": ("a:\n  b: 1\n  b: 1\n", 3),
    "octal": ("seed: 010\n", 1),
    "octal with a letter": ("a: 1\nseed: 0o17\nb: 0x1F\n", 3),
    "base 60": ("a: 1\ntime: 1:30\n", 2),
    "base 60 with a fraction": ("time: 1:30.5\n", 1),
    "underscores": ("seed: 1_000\n", 1),
    "binary": ("seed: 0b11\n", 1),
    "an anchor": ("a: &x 1\n", 1),
    "an alias": ("a: &x [1]\nb: *x\n", 1),
    "65 bits": (f"seed: {1 << 64}\n", 1),
    "64 bits below zero": (f"a: 1\nseed: -{(1 << 63) + 1}\n", 2),
    "a million digits": ("seed: " + "9" * 100_000, 1),
    "too deep": ("a: " + "[" * DEPTH + "1" + "]" * DEPTH, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_with_its_line(name: str) -> None:
    text, line = REFUSED[name]
    with pytest.raises(yaml.YAMLError) as caught:
        read_yaml(text)
    assert f"line {line}," in str(caught.value)
    assert "seed:" not in str(caught.value)  # nothing of the text is repeated


def test_what_is_plain_is_read() -> None:
    text = "a: [0, -5, +3, 12]\nb: 1.0e-4\nc: .5\nd: '010'\ne: 1e3x\nf: {g: [[[1]]]}\nh: -0.0\n"
    found = read_yaml(text)
    assert found["a"] == [0, -5, 3, 12] and found["b"] == 1e-4 and found["c"] == 0.5
    assert found["d"] == "010" and found["e"] == "1e3x" and found["f"] == {"g": [[[1]]]}
    assert read_yaml(f"{(1 << 64) - 1}") == (1 << 64) - 1
    assert read_yaml("[" * (DEPTH - 1) + "1" + "]" * (DEPTH - 1))
    assert read_yaml("a: 1\nA: 2\n'1': 3\n1: 4\n") == {"a": 1, "A": 2, "1": 3, 1: 4}


@pytest.mark.parametrize(
    "text", ["a: 2001-99-99", "a: !!bool x", "a: !!timestamp x", "a: !!float .", "a: !!set x"]
)
def test_what_a_tag_cannot_make_of_a_value_is_refused_as_yaml(text: str) -> None:
    """YAML's own constructors raise whatever Python raises; texts of others come here, too."""
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)
    with pytest.raises(UsageError):
        Config.of_others(text)


class Inner(Strict):
    rounds: int = Field(default=1, ge=1, lt=9)
    share: float = Field(default=0.5, gt=0.0, le=1.0)
    on: bool = True
    name: str = "x"
    how: Literal["raw", "row"] = "raw"


class Outer(Strict):
    first: Inner = Inner()
    second: dict[str, int] = Field(default_factory=dict)
    third: tuple[int, ...] = ()
    fourth: tuple[str, ...] | Annotated[int, Field(ge=1, strict=True)] = 1
    fifth: str = Field(default="a", pattern="^[a-z]+$")
    sixth: tuple[int, int] | Literal["column"] = "column"
    name: str = ""


SAID = [
    ({"first": {"rounds": "SECRET"}}, "first.rounds: must be a whole number"),
    ({"first": {"rounds": 1.5}}, "first.rounds: must be a whole number"),
    ({"first": {"rounds": 0}}, "first.rounds: must be at least 1"),
    ({"first": {"rounds": 9}}, "first.rounds: must be below 9"),
    ({"first": {"share": 0}}, "first.share: must be above 0.0"),
    ({"first": {"share": 2}}, "first.share: must be at most 1.0"),
    ({"first": {"share": "SECRET"}}, "first.share: must be a number"),
    ({"first": {"share": float("nan")}}, "first.share: must be a finite number"),
    ({"first": {"on": "SECRET"}}, "first.on: must be true or false"),
    ({"first": {"name": 7731}}, "first.name: must be a text"),
    ({"first": {"how": "SECRET"}}, "first.how: must be 'raw' or 'row'"),
    ({"first": "SECRET"}, "first: is a group of keys, not one value; set first.KEY"),
    ({"second": "SECRET"}, "second: must hold keys and values"),
    ({"third": 7731}, "third: must be a list"),
    ({"fourth": {}}, "fourth: must be a list, or must be a whole number"),
    ({"fourth": 0}, "fourth: must be a list, or must be at least 1"),
    ({"fifth": "SECRET"}, "fifth: must be of the pattern ^[a-z]+$"),
    ({"sixth": [1]}, "sixth.1: is missing; sixth: must be 'column'"),
    ({"rounds": 7731}, "top level: unknown key 'rounds': did you mean 'first.rounds'?"),
    ({"frist": {}}, "top level: unknown key 'frist': did you mean 'first'?"),
    ([7731], "top level: must hold keys and values"),
]


@pytest.mark.parametrize(("given", "said"), SAID)
def test_what_is_wrong_is_told_in_plain_words_and_without_values(given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(given)
    assert problems(caught.value) == said


@pytest.mark.parametrize("name", REFUSED)
def test_why_a_text_is_not_yaml_is_one_line_that_names_it(name: str) -> None:
    text, line = REFUSED[name]
    with pytest.raises(yaml.YAMLError) as caught:
        read_yaml(text)
    assert not_yaml(caught.value).startswith(f"line {line}: ")
    assert "\n" not in not_yaml(caught.value) and "seed:" not in not_yaml(caught.value)


def test_a_text_in_another_encoding_is_not_quoted() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"Z\xfcrich".decode("utf-8")
    assert not_yaml(caught.value) == "it is not UTF-8 text"


def _models() -> list[type[Strict]]:
    """Return the classes behind configuration, policy, consortium, spec and plan."""
    found: dict[type[Strict], None] = {}
    waiting: list[Any] = [Config, PrivacyPolicy, Consortium, OwnSpec, Plan, *COMMON, *guards()]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, Strict):
            if kind not in found:
                found[kind] = None
                waiting += [field.annotation for field in kind.model_fields.values()]
        else:
            waiting += get_args(kind)
    return list(found)


def _of_other_kinds(kind: Any) -> Iterator[Any]:
    """Yield values that are nearly of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, float, bool):
        others = {int: (True, "1", 1.0), float: (True, "1"), bool: (1, "yes", "true")}[kind]
        yield from others
    elif origin is Annotated:
        yield from _of_other_kinds(inner[0])
    elif origin in (Union, UnionType) and str not in inner:
        # Of a union of numbers one may take what another does not.
        yield from (
            other
            for one in inner
            if one is not float or int not in inner
            for other in _of_other_kinds(one)
        )
    elif origin is tuple and inner:
        size = 1 if inner[-1] is Ellipsis else len(inner)
        yield from ((other,) * size for other in _of_other_kinds(inner[0]))
    elif origin in (dict, Mapping) and inner and inner[0] is str:
        yield from ({"a": other} for other in _of_other_kinds(inner[1]))


FIELDS = [
    pytest.param(model, name, id=f"{model.__name__}.{name}")
    for model in _models()
    for name, field in model.model_fields.items()
    if any(_of_other_kinds(field.annotation))
]


def test_the_fields_are_seen() -> None:
    names = {param.id for param in FIELDS}
    assert {
        "Config.seed",
        "ModelConfig.lr",
        "Config.resume",
        "PrivacyPolicy.minimum_cohort",
    } <= names
    assert {"Clip.bound", "Server.port", "OwnSpec.records", "DataConfig.split"} <= names


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_no_field_takes_a_number_or_truth_value_of_another_kind(
    model: type[Strict], name: str
) -> None:
    """``seed: yes`` was 1, and ``rounds: "5"`` was 5: a plan said what its file did not."""
    for other in _of_other_kinds(model.model_fields[name].annotation):
        with pytest.raises(ValidationError) as caught:
            model.model_validate({name: other})
        kinds = {error["type"] for error in caught.value.errors() if error["loc"][:1] == (name,)}
        alone = {error["loc"] for error in caught.value.errors()} == {()}  # refused as a whole
        assert kinds & {"int_type", "float_type", "bool_type"} or alone, other


def test_control_pydantic_by_itself_takes_them() -> None:
    class Open(BaseModel):
        seed: int

    assert [Open.model_validate({"seed": v}).seed for v in (True, "1", 1.0)] == [1, 1, 1]


@pytest.mark.parametrize("text", ["yes", "true", "'1'", "1.0", "on"])
def test_a_seed_that_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        Config.parse(read_yaml(f"seed: {text}"))
    assert refused.value.why == "seed: must be a whole number"


def test_a_variable_is_read_as_if_it_stood_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, seed in (("7", 7), ("yes", None), ("'7'", None)):
        monkeypatch.setenv("SECURE_FGL_SEED", text)
        document = {"seed": "${SECURE_FGL_SEED}", "data": {"root": "/a/${SECURE_FGL_SEED}"}}
        if seed is None:
            with pytest.raises(UsageError) as refused:
                Config.parse(document)
            assert refused.value.why == "seed: must be a whole number"
        else:
            found = Config.parse(document)
            assert (found.seed, found.data.root) == (seed, "/a/7")
