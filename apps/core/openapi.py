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
PROBLEM_STATUSES = ("400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "429", "503")


class ProblemAutoSchema(AutoSchema):
    """Adds every problem status that this API's handlers can give, all with the same body."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation = super().get_operation(*args, **kwargs)
        if operation is not None:
            body = {"content": {"application/problem+json": {"schema": PROBLEM_SCHEMA}}}
            for status in PROBLEM_STATUSES:
                operation["responses"].setdefault(status, {"description": "Problem", **body})
        return operation
