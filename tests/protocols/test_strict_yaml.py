"""A YAML text is read in one way, or refused with its line."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field, ValidationError

from protocols.strict import DEPTH, Strict, not_yaml, problems, read_yaml
from secure_fgl.config import Config
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
