"""The gate that keeps v1 growing only."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from deploy.api_compatibility import breaking
from deploy.client_types import DOCUMENT

WHOLE = yaml.safe_load(DOCUMENT.read_text())
SCHEMAS = ("components", "schemas")
Change = Callable[[dict[str, Any]], Any]


def changed(change: Change) -> list[str]:
    new = copy.deepcopy(WHOLE)
    change(new)
    return list(breaking(WHOLE, new))


def drills(document: dict[str, Any]) -> Any:
    return document["paths"]["/api/v1/drills/"]


def schema(document: dict[str, Any], name: str) -> Any:
    return document["components"]["schemas"][name]


BREAKS: dict[str, Change] = {
    "is gone": lambda new: new["paths"].pop("/api/v1/drills/"),
    "is called": lambda new: drills(new)["get"].update(operationId="drills"),
    "parameter run is gone": lambda new: drills(new)["get"].update(
        parameters=[one for one in drills(new)["get"]["parameters"] if one.get("name") != "run"]
    ),
    "parameter zone is demanded now": lambda new: drills(new)["get"]["parameters"].append(
        {"name": "zone", "in": "query", "required": True, "schema": {"type": "string"}}
    ),
    "body/choice: is demanded now": lambda new: schema(new, "CreateDrillRequest")["required"].append("choice"),
    "body/step: is gone": lambda new: schema(new, "CreateDrillRequest")["properties"].pop("step"),
    "no longer takes herd": lambda new: schema(new, "DrillKindEnum")["enum"].remove("herd"),
    "no longer answers 201": lambda new: drills(new)["post"]["responses"].pop("201"),
    "seconds: is gone": lambda new: schema(new, "Drill")["properties"].pop("seconds"),
    "id: may be integer now": lambda new: schema(new, "Drill")["properties"]["id"].update(type="integer"),
    "state: may be absent now": lambda new: schema(new, "Drill")["required"].remove("state"),
}
GROWS: dict[str, Change] = {
    "an operation": lambda new: new["paths"].update({"/api/v1/new/": copy.deepcopy(drills(new))}),
    "a field of an answer": lambda new: schema(new, "Drill")["properties"].update(more={"type": "string"}),
    "a field that may be sent": lambda new: schema(new, "CreateDrillRequest")["properties"].update(more={}),
    "a value that may be sent": lambda new: schema(new, "DrillKindEnum")["enum"].append("fire"),
    "a parameter": lambda new: drills(new)["get"]["parameters"].append(
        {"name": "zone", "in": "query", "schema": {"type": "string"}}
    ),
    "a whole number instead of any": lambda new: schema(new, "Drill")["properties"]["seconds"].update(
        type=["integer", "null"]
    ),
}


def test_the_same_document_breaks_nothing() -> None:
    assert changed(lambda _new: None) == []


@pytest.mark.parametrize("said", BREAKS)
def test_what_a_client_would_trip_over_is_named(said: str) -> None:
    assert any(said in line for line in changed(BREAKS[said])), changed(BREAKS[said])


@pytest.mark.parametrize("said", GROWS)
def test_what_only_adds_breaks_nothing(said: str) -> None:
    assert changed(GROWS[said]) == []
