"""What of a changed OpenAPI document would break a client of the old one: `python -m deploy.api_compatibility OLD NEW`.

Within v1 the API only grows. It may not lose an operation, a status of success, a field of an answer or a value that a
request may have; it may not demand what it did not demand before, nor change a type.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
MAX_DEPTH = 12


def main() -> int:
    old, new = (yaml.safe_load(Path(name).read_text()) for name in sys.argv[1:3])
    found = list(breaking(old, new))
    sys.stdout.write("".join(f"{line}\n" for line in found) or "nothing that breaks a client\n")
    return 1 if found else 0


def breaking(old: Schema, new: Schema) -> Iterator[str]:
    """A line for each change that a client of `old` would trip over."""
    for path, methods in old["paths"].items():
        for method in METHODS:
            if method not in methods:
                continue
            place = f"{method.upper()} {path}"
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{place}: is gone"
            else:
                yield from _operation(place, Sides(old, new), methods[method], after)


class Sides:
    """Both documents, in which references are looked up."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self.old, self.new = old, new

    def before(self, schema: Schema) -> Schema:
        return resolved(self.old, schema)

    def after(self, schema: Schema) -> Schema:
        return resolved(self.new, schema)


def resolved(document: Schema, schema: Schema) -> Schema:
    """The schema that a reference, or a single `allOf`, stands for."""
    for _ in range(MAX_DEPTH):
        if "$ref" in schema:
            found: Any = document
            for word in schema["$ref"].removeprefix("#/").split("/"):
                found = found[word]
            schema = found
        elif len(schema.get("allOf", ())) == 1:
            schema = schema["allOf"][0]
        else:
            break
    return schema


def _operation(place: str, sides: Sides, old: Schema, new: Schema) -> Iterator[str]:
    if old.get("operationId") != new.get("operationId"):
        yield f"{place}: is called {new.get('operationId')} and was {old.get('operationId')}"
    yield from _parameters(place, sides, old, new)
    before, after = (
        _json_of(sides.before(old.get("requestBody", {}))),
        _json_of(sides.after(new.get("requestBody", {}))),
    )
    if after is not None:
        yield from _request(f"{place}: body", sides, before or {}, after, 0)
    for status, response in old["responses"].items():
        if not status.startswith("2"):
            continue
        if status not in new["responses"]:
            yield f"{place}: no longer answers {status}"
            continue
        was, now = _json_of(sides.before(response)), _json_of(sides.after(new["responses"][status]))
        if was is not None:
            yield from _answer(f"{place}: {status}", sides, was, now or {}, 0)


def _json_of(body: Schema) -> Schema | None:
    schema: Schema | None = body.get("content", {}).get("application/json", {}).get("schema")
    return schema


def _parameters(place: str, sides: Sides, old: Schema, new: Schema) -> Iterator[str]:
    before = {one["name"]: one for one in map(sides.before, old.get("parameters", []))}
    after = {one["name"]: one for one in map(sides.after, new.get("parameters", []))}
    for name in before.keys() - after.keys():
        yield f"{place}: parameter {name} is gone"
    for name, one in after.items():
        if one.get("required") and not before.get(name, {}).get("required"):
            yield f"{place}: parameter {name} is demanded now"
        if name in before:
            yield from _request(f"{place}: parameter {name}", sides, before[name]["schema"], one["schema"], 0)


def _request(place: str, sides: Sides, old: Schema, new: Schema, depth: int) -> Iterator[str]:
    """What may be sent may only become more."""
    old, new = sides.before(old), sides.after(new)
    if depth > MAX_DEPTH:
        return
    for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{place}/{name}: is demanded now"
    if lost := sorted(map(str, set(old.get("enum", ())) - set(new.get("enum", old.get("enum", ()))))):
        yield f"{place}: no longer takes {', '.join(lost)}"
    if "enum" in new and "enum" not in old and old:
        yield f"{place}: takes only some values now"
    if lost_types := _types(old) - _types(new):
        yield f"{place}: no longer takes {', '.join(sorted(lost_types))}"
    for name, value in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{place}/{name}: is gone"
        else:
            yield from _request(f"{place}/{name}", sides, value, new["properties"][name], depth + 1)
    if "items" in old and "items" in new:
        yield from _request(f"{place}/*", sides, old["items"], new["items"], depth + 1)


def _answer(place: str, sides: Sides, old: Schema, new: Schema, depth: int) -> Iterator[str]:
    """What a client reads may not go, nor become of another type."""
    old, new = sides.before(old), sides.after(new)
    if depth > MAX_DEPTH:
        return
    if new_types := _types(new) - _types(old):
        yield f"{place}: may be {', '.join(sorted(new_types))} now"
    for name, value in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{place}/{name}: is gone"
            continue
        if name in old.get("required", ()) and name not in new.get("required", ()):
            yield f"{place}/{name}: may be absent now"
        yield from _answer(f"{place}/{name}", sides, value, new["properties"][name], depth + 1)
    if "items" in old and "items" in new:
        yield from _answer(f"{place}/*", sides, old["items"], new["items"], depth + 1)


def _types(schema: Schema) -> set[str]:
    """The JSON types that a schema allows; empty where it says none (then nothing is compared)."""
    if "oneOf" in schema:
        return {kind for one in schema["oneOf"] for kind in (_types(one) or {"object"})}
    kind = schema.get("type")
    found = set(kind) if isinstance(kind, list) else {kind} if kind else set()
    return found | {"integer"} if "number" in found else found


if __name__ == "__main__":
    sys.exit(main())
