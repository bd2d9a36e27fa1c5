"""A pydantic base that is closed: unknown keys are errors that name the nearest known key."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema


def nearest(word: str, known: list[str]) -> str:
    """Return a hint such as ``did you mean 'rounds'?``, or the list of known words."""
    spelt = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), spelt, n=1, cutoff=0.5)
    return f"did you mean {spelt[close[0]]!r}?" if close else f"known: {', '.join(sorted(known))}"


def problems(error: ValidationError) -> str:
    """Return what is wrong, key by key, without values; names of keys and guards are none."""
    told = dict[str, list[str]]()  # what may be of two kinds is wrong in two ways at one place
    for found in error.errors():
        place, text = _problem(dict(found))
        told.setdefault(place, []).append(text)
    return "; ".join(f"{place}: {', or '.join(texts)}" for place, texts in told.items())


_WANTED = {
    "int": "must be a whole number",
    "float": "must be a number",
    "finite": "must be a finite number",
    "bool": "must be true or false",
    "string": "must be a text",
    "tuple": "must be a list",
    "list": "must be a list",
}
"""What pydantic's kinds of problems are in plain words, by the first part of their names."""
_BOUND = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}


_BRANCH = re.compile(r".*\[.*\]|constrained-.*")
"""What pydantic puts into a place beside keys: which kind it tried there, and ``[key]``."""


def _problem(found: dict[str, Any]) -> tuple[str, str]:
    """Return where one problem is, and what would be right there."""
    kind, known = found["type"], found.get("ctx", {})
    place = [str(part) for part in found["loc"] if not _BRANCH.fullmatch(str(part))]
    text = found["msg"].removeprefix("Value error, ")
    if kind in _BOUND:
        key, words = _BOUND[kind]
        text = f"must be {words} {known[key]}"
    elif kind == "union_tag_invalid":
        key = known["discriminator"].strip("'")
        names = re.findall(r"'([^']*)'", known["expected_tags"])
        text = f"there is no {key} {known['tag'][:40]!r}: {nearest(known['tag'], names)}"
    elif kind in ("enum", "literal_error"):
        text = f"must be {known['expected']}"
        if found["loc"][-1] == "[key]":
            names = re.findall(r"'([^']*)'", known["expected"])
            text = f"there is no such key: {nearest(place[-1], names)}"
    elif kind == "missing":
        text = "is missing"
    elif kind == "string_pattern_mismatch":
        text = f"must be of the pattern {known['pattern']}"
    elif kind in ("model_type", "dict_type"):
        text = "must hold keys and values"
        if place and kind == "model_type":
            text = f"is a group of keys, not one value; set {'.'.join((*place, 'KEY'))}"
    elif kind.endswith(("_type", "_parsing", "_number", "_from_float")):
        text = _WANTED.get(kind.partition("_")[0], text)
    return ".".join(place) or "top level", text


def not_yaml(error: Exception) -> str:
    """Return in one line why a text is not YAML, with the line; nothing of the text is repeated."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem or mark is None:
        return str(error).partition("\n")[0]
    if "'\\t'" in problem:
        problem = "a tab stands where YAML takes only spaces"
    return f"line {mark.line + 1}: {problem}"


TEXT_LIMIT = 1 << 20  # characters; configurations and policies are about a thousand


DEPTH = 50  # of nesting; ours have five levels
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?[0-9]*\.?[0-9]*([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)", re.IGNORECASE)


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a text says what a reader thinks that it says.

    No anchors or aliases, which let a small text grow without bound; no key twice, of which the
    last would win; no number that YAML 1.1 reads in its own way (``010`` is 8, ``1:30`` is 90).
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:
            raise _at(event.start_mark, "anchors (&name) and aliases (*name) are not allowed here")
        self._depth += 1
        if self._depth > DEPTH:
            raise _at(event.start_mark, f"it is nested deeper than {DEPTH} levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise _at(key.start_mark, "a key stands twice")
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if not _DECIMAL.fullmatch(node.value):
            raise _at(node.start_mark, "a whole number is not written in plain decimal digits")
        if len(node.value) > 20 or not -(1 << 63) <= int(node.value) < 1 << 64:
            raise _at(node.start_mark, "a number takes more than 64 bits")
        return int(node.value)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        if not _REAL.fullmatch(node.value):
            raise _at(node.start_mark, "a number is not written in plain decimal digits")
        return float(super().construct_yaml_float(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _at(mark: yaml.Mark, problem: str) -> yaml.MarkedYAMLError:
    """Return an error that names the line, and repeats nothing of it."""
    bare = yaml.Mark(mark.name, mark.index, mark.line, mark.column, None, 0)
    return yaml.MarkedYAMLError(problem=problem, problem_mark=bare)


def read_yaml(text: str) -> Any:
    """Parse a small YAML text that can be read in one way only.

    Raises:
        yaml.YAMLError: anchors, aliases, keys that stand twice, nesting deeper than 50, numbers
            beyond 64 bits or not in plain decimal digits, each with the line; texts above 1 MB, and
            values that are not of the kind that they look like or are tagged.
    """
    if len(text) > TEXT_LIMIT:
        raise yaml.YAMLError("the text is too long")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # What YAML's constructors raise over a value that is none of its kind (2001-99-99).
        raise yaml.YAMLError(
            "a value is not of the kind that it looks like, or is tagged"
        ) from None


def exact(schema: Any) -> None:
    """Have a schema of pydantic take no number or truth value in the place of another kind.

    Else ``yes`` and ``"1"`` are 1, 1.0 is a whole number, and 1 is true. A whole number is still
    taken where a real one is asked for, and a list where a tuple is.
    """
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        for key, inner in schema.items():
            if key not in ("default", "metadata"):
                exact(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            exact(inner)


class Strict(BaseModel):
    """Frozen and closed, of exact kinds; errors never echo the rejected value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        exact(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, values: Any) -> Any:
        if isinstance(values, dict):
            known = _keys(cls)
            for key in values:
                if key not in known:
                    inner = inner_keys(cls, str(key))
                    hint = nearest(str(key), inner if len(inner) == 1 else [*known])
                    raise ValueError(f"unknown key {str(key)[:40]!r}: {hint}")
        return values


@functools.cache  # a plan has a thousand such objects of twenty classes
def _keys(model: type[BaseModel]) -> dict[str, None]:
    """Return the keys of a class as a file spells them, in their order."""
    return dict.fromkeys(field.alias or name for name, field in model.model_fields.items())


def inner_keys(model: type[BaseModel], key: str) -> list[str]:
    """Return where a key stands further in, for example ``algorithm.rounds``."""
    found = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            below = [*([key] if key in kind.model_fields else []), *inner_keys(kind, key)]
            found += [f"{name}.{path}" for path in below]
    return found
