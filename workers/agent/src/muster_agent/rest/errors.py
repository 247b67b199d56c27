"""What a call can end with other than its answer."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """The control plane refused. `detail` is its sentence for people, `code` its stable word, `errors` name fields by
    JSON pointer, `request_id` finds the request in its log."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        errors = problem.get("errors")
        self.status = status
        self.errors: list[dict[str, Any]] = errors if isinstance(errors, list) else []
        self.detail = str(problem.get("detail") or f"status {status}")
        self.code = str(self.errors[0].get("code") or "") if self.errors else ""
        self.request_id = str(problem.get("request_id") or "")
        super().__init__(self.detail)


class Unreachable(Exception):
    """There was no answer of a control plane, after all attempts; the message says why."""


class AddressRefused(ValueError):
    """The address cannot be used; the message says what to write instead."""
