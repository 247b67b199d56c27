"""Requests to every operation of the REST API with values that no database, JSON text or column takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

PREFIX = "/api/v1/"
HOSTILE_TEXT = ("a\0b", "9" * 40, "-1", "NaN", "Infinity", "1e999", "x" * 20_000, "\ufffe\U0010ffff", "%00", "[]")
HOSTILE_JSON = (
    '"a\\u0000b"',
    '"\\ud800"',
    "9223372036854775808",
    "1" + "0" * 400,
    "-1",
    "NaN",
    "-Infinity",
    "1e999",
    '{"a": {"b": ["\\u0000"]}}',
    '["\\udfff"]',
    "null",
    '{"\\u0000": 1}',
    "[[[[]]]]",
)


@dataclass(frozen=True)
class Request:
    """`path` is encoded and has its query; `body` is JSON text or something like it."""

    method: str
    path: str
    body: str | None = None


class Requests:
    """Those of an OpenAPI document. `known` gives the value of what is named so: an id, a moment, a word."""

    def __init__(self, document: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        self._document = document
        self._known = known

    def with_text(self, text: str) -> Iterator[Request]:
        """`text` as each part of each path and as each parameter of each query, one at a time."""
        for path, method, operation in self._operations():
            for parameter in self._parameters(operation):
                name = parameter["name"]
                if parameter["in"] == "path":
                    yield Request(method, self._path(path, {name: text}))
                elif parameter["in"] == "query":
                    yield Request(method, f"{self._path(path, {})}?{urlencode({name: text})}")

    def with_json(self, value: str) -> Iterator[Request]:
        """`value` as the whole body, and as each field of each body that is otherwise as it should be."""
        for path, method, operation in self._operations():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if schema is None:
                continue
            yield Request(method, self._path(path, {}), value)
            for body in self._bodies(self._resolved(schema)):
                yield Request(method, self._path(path, {}), json.dumps(body).replace('"@@"', value))

    def _operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, operations in self._document["paths"].items():
            for method, operation in operations.items():
                yield path, method, operation

    def _parameters(self, operation: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [self._resolved(parameter) for parameter in operation.get("parameters", [])]

    def _path(self, path: str, given: Mapping[str, str]) -> str:
        for name in [part.split("}")[0] for part in path.split("{")[1:]]:
            value = given.get(name) or self._id_in(path, name)
            path = path.replace("{" + name + "}", quote(str(value), safe=""))
        return path

    def _id_in(self, path: str, name: str) -> Any:
        kind = path.split("{" + name)[0].removeprefix(PREFIX).strip("/").split("/")[-1]
        return self._known.get(f"{kind}/", self._known.get(name, "nothing"))

    def _bodies(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The body that is as it should be, with `@@` in place of one field after the other."""
        fields = schema.get("properties", {})
        whole = {name: self._value(name, self._resolved(fields[name])) for name in schema.get("required", [])}
        for name, described in fields.items():
            yield {**whole, name: "@@"}
            inner = self._resolved(described)
            if inner.get("properties"):
                for body in self._bodies(inner):
                    yield {**whole, name: body}
            items = self._resolved(inner.get("items", {})) if inner.get("type") == "array" else {}
            if items:
                yield {**whole, name: ["@@"]}
                for body in self._bodies(items):
                    yield {**whole, name: [body]}

    def _value(self, name: str, schema: dict[str, Any]) -> Any:
        if name in self._known:
            return self._known[name]
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) else kind
        makers: dict[Any, Callable[[], Any]] = {
            "boolean": lambda: True,
            "integer": lambda: schema.get("minimum", 1),
            "number": lambda: schema.get("minimum", 1),
            "array": lambda: [self._value(name.rstrip("s"), self._resolved(schema.get("items", {})))],
            "object": lambda: self._object(schema),
        }
        return makers.get(kind, lambda: "x")()

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        fields = schema.get("properties", {})
        return {name: self._value(name, self._resolved(fields[name])) for name in schema.get("required", [])}

    def _resolved(self, schema: Any) -> dict[str, Any]:
        while "$ref" in schema:
            found: Any = self._document
            for name in schema["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            schema = found
        for way in ("allOf", "oneOf", "anyOf"):
            if way in schema:
                return self._resolved(schema[way][0])
        return dict(schema)
