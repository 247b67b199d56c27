"""The client's generated modules are those that the committed document gives."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml
from muster_agent.cli.kinds import KINDS
from muster_agent.rest.operations import Operations

from deploy import client_types

DOCUMENT = yaml.safe_load(client_types.DOCUMENT.read_text())


def test_the_generated_modules_are_current() -> None:
    stale = [name for name, text in client_types.modules(DOCUMENT).items() if written(name) != text]
    assert stale == [], "run `make openapi`"
    assert {f"{path.parent.name}/{path.name}" for path in generated()} == client_types.modules(DOCUMENT).keys()


def generated() -> list[Path]:
    return [*client_types.PACKAGE.glob("types/*.py"), *client_types.PACKAGE.glob("operations/*.py")]


def written(name: str) -> str:
    return Path(client_types.PACKAGE / name).read_text()


def test_every_operation_of_the_document_has_a_method() -> None:
    ids = {one.id for one in client_types.operations(DOCUMENT)}
    assert ids
    assert sorted(one for one in ids if not callable(getattr(Operations, one, None))) == []


def test_every_field_of_a_body_keeps_its_name() -> None:
    trees = [ast.parse(path.read_text()) for path in generated()]
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    drill = {node.target.id for node in classes["Drill"].body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    assert drill == set(DOCUMENT["components"]["schemas"]["Drill"]["properties"])


def test_every_column_of_the_command_line_is_a_field_that_the_api_has() -> None:
    unknown = [
        (kind.name, column.field)
        for kind in KINDS
        for column in kind.columns
        if not field_exists(row_schema(kind.listing), column.field.split("."))
    ]
    assert unknown == []


def row_schema(listing: str) -> dict[str, object]:
    operation = next(
        spec
        for methods in DOCUMENT["paths"].values()
        for spec in methods.values()
        if isinstance(spec, dict) and spec.get("operationId") == listing
    )
    page = resolved(operation["responses"]["200"]["content"]["application/json"]["schema"])
    return resolved(page["properties"]["items"]["items"])  # type: ignore[index]


def resolved(schema: dict[str, object]) -> dict[str, object]:
    for one in (schema, *schema.get("allOf", ()), *schema.get("oneOf", ())):  # type: ignore[misc]
        if "$ref" in one:
            return DOCUMENT["components"]["schemas"][str(one["$ref"]).rsplit("/", 1)[-1]]  # type: ignore[no-any-return]
    return schema


def field_exists(schema: dict[str, object], words: list[str]) -> bool:
    properties = schema.get("properties", {})
    if words[0] not in properties:  # type: ignore[operator]
        return False
    return len(words) == 1 or field_exists(resolved(properties[words[0]]), words[1:])  # type: ignore[index]
