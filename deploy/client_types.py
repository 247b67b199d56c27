"""Writes the typed client's generated modules from docs/openapi.yaml; `make openapi` runs it.

`types` has a TypedDict for each body and each query of the API, `operations` a method for each operation, both split by
subject. A schema that operations of several subjects reach lies in `types/shared.py`, which imports none of the others.
"""

from __future__ import annotations

import keyword
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs/openapi.yaml"
PACKAGE = ROOT / "workers/agent/src/muster_agent/rest"
HEADER = (
    '"""{}"""\n\n# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.\n'
    "from __future__ import annotations\n"
)
PREFIX = "/api/v1"
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
SUBJECTS = {
    "accounts": ("activity", "bulk-operations", "saved-views", "search", "tokens", "users", "whoami"),
    "alerts": ("alert-rules", "alerts", "channels", "deliveries", "health", "silences"),
    "analysis": ("advice", "rto-groups", "rto-history", "what-if"),
    "audits": ("audit-policies", "audits", "repairs"),
    "checkpoints": ("checkpoints", "checkpoints:batch"),
    "drills": ("drill-control", "drills"),
    "fleet": ("agents", "cluster-inventories", "clusters", "join-tokens", "node-actions", "nodes", "tasks"),
    "placements": ("findings", "placements"),
    "plans": ("plans",),
    "recovery": ("first-steps", "incidents", "objectives", "operations", "readiness"),
    "runs": ("runs",),
    "scans": ("inventory-changes", "scans", "stepless-checkpoints"),
    "storage": ("ceiling-runs", "tier-comparison", "tiers"),
    "transfers": ("policies", "transfers"),
}  # fmt: skip
"""Subject -> the tags of its operations."""
SUBJECT_OF = {tag: subject for subject, tags in SUBJECTS.items() for tag in tags}
SHARED = "shared"
METHODS = ("get", "post", "put", "patch", "delete")
Schema = dict[str, Any]


def main() -> int:
    """With `--check` nothing is written; the exit status says whether something would be."""
    stale = stale_modules(yaml.safe_load(DOCUMENT.read_text()))
    if "--check" not in sys.argv:
        for name, text in stale.items():
            path = PACKAGE / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return 0
    return 1 if stale else 0


def stale_modules(document: Schema) -> dict[str, str]:
    """Those that are not there, or not as the document gives them."""
    made = modules(document)
    return {name: text for name, text in made.items() if not is_written(PACKAGE / name, text)}


def is_written(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def modules(document: Schema) -> dict[str, str]:
    """File name -> source, formatted as the rest of the code is."""
    sources = {**types_modules(document), **operations_modules(document)}
    return {name: formatted(source) for name, source in sources.items()}


def formatted(source: str) -> str:
    for words in (["check", "--fix-only", "--quiet", "--select", "I,F401"], ["format"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(PACKAGE / "types/shared.py"), "-"]
        source = subprocess.run(command, input=source, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return source


# -- types -------------------------------------------------------------------------------------------------------------
def types_modules(document: Schema) -> dict[str, str]:
    schemas = {name: one for name, one in document["components"]["schemas"].items() if not is_page(one)}
    homes = homes_of(document, schemas)
    found = {
        f"types/{subject}.py": types_module(document, subject, schemas, homes)
        for subject in sorted({*homes.values(), *SUBJECTS})
    }
    stars = "".join(f"from muster_agent.rest.types.{name} import *  # noqa: F403\n" for name in (SHARED, *SUBJECTS))
    head = HEADER.format("Every body and every query of the REST API. Times are ISO 8601 in UTC.")
    return {"types/__init__.py": f"{head}\n{stars}", **found}


def homes_of(document: Schema, schemas: Schema) -> dict[str, str]:
    """Schema -> its subject; SHARED where operations of several reach it, or none does."""
    reached: dict[str, set[str]] = {name: set() for name in schemas}
    for one in operations(document):
        for name in reachable(one.references, document["components"]["schemas"]) & schemas.keys():
            reached[name].add(one.subject)
    return {name: next(iter(found)) if len(found) == 1 else SHARED for name, found in reached.items()}


def reachable(names: set[str], schemas: Schema) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(references(schemas[name]))
    return found


def references(value: Any) -> set[str]:
    """The schemas that a part of the document names."""
    if isinstance(value, list):
        return set().union(*(references(one) for one in value))
    if not isinstance(value, dict):
        return set()
    target = str(value.get("$ref", ""))
    own = {target.rsplit("/", 1)[-1]} if target.startswith("#/components/schemas/") else set()
    return own.union(*(references(one) for one in value.values()))


def types_module(document: Schema, subject: str, schemas: Schema, homes: dict[str, str]) -> str:
    kept = {name: schema for name, schema in schemas.items() if homes[name] == subject}
    asking = [one for one in operations(document) if one.query and one.subject == subject]
    enums = [f"{name} = {type_of(schema)}" for name, schema in kept.items() if "enum" in schema]
    bodies = [typed_dict(name, schema) for name, schema in kept.items() if "enum" not in schema]
    queries = [query_type(one) for one in asking]
    used = references(list(kept.values())).union(*(one.query_references for one in asking))
    shared = sorted(name for name in used if homes.get(name) == SHARED) if subject != SHARED else []
    imports = "from typing import Any, Literal, NotRequired, TypedDict\n"
    if shared:
        imports += f"\nfrom muster_agent.rest.types.{SHARED} import {', '.join(shared)}\n"
    head = HEADER.format("What several subjects share." if subject == SHARED else f"Bodies and queries: {subject}.")
    return "\n\n".join([head + "\n" + imports, *enums, *bodies, *queries]) + "\n"


def is_page(schema: Schema) -> bool:
    return "next_cursor" in schema.get("properties", {})


def typed_dict(name: str, schema: Schema) -> str:
    fields: Schema = schema.get("properties", {})
    required = set(schema.get("required", ()))
    typed = {
        field: type_of(value) if field in required else f"NotRequired[{type_of(value)}]"
        for field, value in fields.items()
    }
    return struct(name, typed, schema.get("description", ""), total=True)


def struct(name: str, typed: dict[str, str], description: str, *, total: bool) -> str:
    suffix = "" if total else ", total=False"
    if any(keyword.iskeyword(field) or not field.isidentifier() for field in typed):
        pairs = ", ".join(f"{field!r}: {type_text!r}" for field, type_text in typed.items())
        return f"{name} = TypedDict({name!r}, {{{pairs}}}{suffix})"
    lines = [f"class {name}(TypedDict{suffix}):"]
    if description:
        lines.append(textwrap.indent(docstring(description), "    "))
    lines.extend(f"    {field}: {type_text}" for field, type_text in typed.items())
    return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])


def docstring(text: str) -> str:
    clean = " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")
    wrapped = textwrap.fill(clean, 110)
    return f'"""{wrapped}"""' if "\n" not in wrapped else f'"""{wrapped}\n"""'


def type_of(schema: Schema) -> str:
    """The Python type of a schema, as an annotation."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return type_of(schema["allOf"][0])
    for combined in ("oneOf", "anyOf"):
        if combined in schema:
            return " | ".join(dict.fromkeys(type_of(one) for one in schema[combined]))
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(type_of({**schema, "type": one}) for one in kind))
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {type_of(values)}]" if isinstance(values, dict) and values else "dict[str, Any]"
    return SCALARS.get(str(kind), "Any")


# -- operations --------------------------------------------------------------------------------------------------------
class Operation:
    """One operation of the document, as far as a method of the client needs it."""

    def __init__(self, method: str, path: str, spec: Schema, components: Schema) -> None:
        schemas = components["schemas"]
        self.method, self.id, self.summary = method.upper(), spec["operationId"], spec["summary"]
        self.path = path.removeprefix(PREFIX)
        known = components.get("parameters", {})
        parameters = [known[type_of(one)] if "$ref" in one else one for one in spec.get("parameters", [])]
        self.path_parameters = [one["name"] for one in parameters if one["in"] == "path"]
        self.query = {one["name"]: type_of(one.get("schema", {})) for one in parameters if one["in"] == "query"}
        self.query_references = references([one.get("schema", {}) for one in parameters if one["in"] == "query"])
        self.subject = SUBJECT_OF[spec["tags"][0]]
        self.references = references(spec) | self.query_references
        self.conditional = any(one["name"] == "If-Match" for one in parameters)
        self.body = self._body(spec)
        self.item, self.answer = self._answer(spec, schemas)

    @property
    def query_name(self) -> str:
        return "".join(word.capitalize() for word in self.id.split("_")) + "Query"

    def _body(self, spec: Schema) -> str | None:
        content = spec.get("requestBody", {}).get("content", {}).get("application/json")
        return f"t.{type_of(content['schema'])}" if content else None

    def _answer(self, spec: Schema, schemas: Schema) -> tuple[str | None, str | None]:
        """The type of a list's items, or of the one answer; neither where there is no body."""
        good = next(response for status, response in spec["responses"].items() if status.startswith("2"))
        content = good.get("content", {}).get("application/json")
        if content is None:
            return None, None
        name = type_of(content["schema"])
        page = schemas.get(name, {})
        if is_page(page):
            return qualified(type_of(page["properties"]["items"]["items"])), None
        return None, qualified(name)

    def signature(self) -> str:
        words = ["self", *(f"{name}: str" for name in self.path_parameters)]
        if self.path_parameters:
            words.append("/")
        if self.body:
            words.append(f"body: {self.body}")
        if self.conditional:
            words.extend(["*", 'if_match: str = "*"'])
        if self.query:
            words.append(f"**query: Unpack[t.{self.query_name}]")
        return ", ".join(words)

    def source(self) -> str:
        path = repr(self.path)
        for name in self.path_parameters:
            path = path.replace(f"{{{name}}}", f"{{part({name})}}")
        path = f"f{path}" if self.path_parameters else path
        query = "query" if self.query else "None"
        if self.item:
            call, result = f"self.items({path}, {query})", f"Iterator[{self.item}]"
        else:
            more = ", body" if self.body else ""
            more += ", if_match=if_match" if self.conditional else ""
            more += ", query=query" if self.query else ""
            call, result = f"self.call({self.method!r}, {path}{more})", self.answer or "None"
        given = f"return cast({result!r}, {call})" if result != "None" else call
        summary = docstring(f"{self.summary}.")
        return f"    def {self.id}({self.signature()}) -> {result}:\n        {summary}\n        {given}\n"


def qualified(name: str) -> str:
    return f"t.{name}" if name.isidentifier() and name not in (*SCALARS.values(), "Any") else name


def operations(document: Schema) -> list[Operation]:
    return [
        Operation(method, path, spec[method], document["components"])
        for path, spec in sorted(document["paths"].items())
        for method in METHODS
        if method in spec and path.startswith(PREFIX)
    ]


def query_type(operation: Operation) -> str:
    return struct(operation.query_name, operation.query, f"Of `{operation.id}`.", total=False)


def operations_modules(document: Schema) -> dict[str, str]:
    ordered = sorted(operations(document), key=lambda one: one.id)
    found = {
        f"operations/{subject}.py": operations_module(subject, [one for one in ordered if one.subject == subject])
        for subject in SUBJECTS
    }
    imports = "".join(
        f"from muster_agent.rest.operations.{subject} import {class_name(subject)}\n" for subject in SUBJECTS
    )
    head = HEADER.format("Every operation of the REST API as a method; `client.Client` brings the transport.")
    bases = ", ".join(map(class_name, SUBJECTS))
    words = "One method per operation. Lists give an iterator that turns the pages."
    whole = f'class Operations({bases}):\n    """{words}"""\n'
    return {"operations/__init__.py": f"{head}\n{imports}\n\n{whole}", **found}


def class_name(subject: str) -> str:
    return f"{subject.capitalize()}Operations"


def operations_module(subject: str, ordered: list[Operation]) -> str:
    head = HEADER.format(f"The operations on {subject}.")
    imports = (
        "from collections.abc import Iterator\n"
        "from typing import TYPE_CHECKING, Any, cast\n\n"
        "from muster_agent.rest.calling import Calling\n"
        "from muster_agent.rest.transport import part\n\n"
        "if TYPE_CHECKING:\n    from typing import Unpack\n\n    from muster_agent.rest import types as t\n"
    )
    begin = f"class {class_name(subject)}(Calling):\n"
    return "\n".join([head, imports, "\n", begin, *(one.source() for one in ordered)])


if __name__ == "__main__":
    sys.exit(main())
