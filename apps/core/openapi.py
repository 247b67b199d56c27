"""How operations appear in the OpenAPI document: with their problem responses."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": ["string", "null"]},
        "request_id": {"type": ["string", "null"]},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {"type": ["string", "null"]},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
# In the components, once; 80 operations with 12 of them each would otherwise be most of the document.
PROBLEM_COMPONENTS: dict[str, Any] = {
    "schemas": {"Problem": PROBLEM_SCHEMA},
    "parameters": {
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Sent again with the same key and body within 24 hours, the request gets its first answer.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        },
        "IfMatch": {
            "name": "If-Match",
            "in": "header",
            "required": True,
            "description": "The ETag of what is changed, as its GET gave it; `*` changes whatever it is now.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            "example": "*",
        },
        "IfNoneMatch": {
            "name": "If-None-Match",
            "in": "header",
            "description": "An ETag; where it still holds the answer is 304 without a body.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        },
    },
    "responses": {
        "Problem": {
            "description": "Problem",
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    },
}
PROBLEM_STATUSES = ("400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "429", "503")
CONDITIONAL_STATUSES = ("412", "428")


VERBS = {"retrieve": "get", "create": "create", "partial_update": "update", "destroy": "delete"}


def operation_id(action: str | None, method: str, path_words: list[str]) -> str:
    """`list_drills`, `get_drill`, `create_drill`, `cancel_drill`, `list_drill_ranks`. Pure."""
    *owners, last = [word.replace("-", "_") for word in path_words]
    nouns = [singular(word) for word in owners]
    if action == "list":
        return "_".join(["list", *nouns, last])
    if action in VERBS:
        return "_".join([VERBS[action], *nouns, singular(last)])
    return "_".join([last, *nouns]) if action else f"{method.lower()}_{'_'.join([*nouns, last])}"


def singular(noun: str) -> str:
    """Of the plain plurals that this API's paths have."""
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


class ProblemAutoSchema(AutoSchema):
    """Adds every problem status that this API's handlers can give, all with the same body; names operations alike."""

    def get_operation_id(self) -> str:
        return operation_id(getattr(self.view, "action", None), self.method, self._tokenize_path())

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation = super().get_operation(*args, **kwargs)
        if operation is not None:
            for status in PROBLEM_STATUSES:
                operation["responses"].setdefault(status, {"$ref": "#/components/responses/Problem"})
            self._add_headers(operation)
        return operation

    def _add_headers(self, operation: dict[str, Any]) -> None:
        """What the middleware and `etags.ConditionalMixin` read, by reference."""
        parameters = operation.setdefault("parameters", [])
        if self.method == "POST":
            parameters.append({"$ref": "#/components/parameters/IdempotencyKey"})
        if self.method in getattr(self.view, "guarded", ()):
            parameters.append({"$ref": "#/components/parameters/IfMatch"})
            for status in CONDITIONAL_STATUSES:
                operation["responses"].setdefault(status, {"$ref": "#/components/responses/Problem"})
        if self.method == "GET":
            parameters.append({"$ref": "#/components/parameters/IfNoneMatch"})
            operation["responses"].setdefault("304", {"description": "Not modified since the ETag that was sent"})


def add_problem_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """A postprocessing hook: what the operations' problem responses refer to."""
    for section, entries in PROBLEM_COMPONENTS.items():
        result.setdefault("components", {}).setdefault(section, {}).update(entries)
    return result
