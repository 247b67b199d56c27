"""What services raise. Each carries the HTTP status it becomes and a sentence that tells the user what to do."""

from __future__ import annotations


class ApplicationError(Exception):
    """A request that cannot be carried out. `detail` is for the user; `code` is stable; `pointer` names the field."""

    status = 400
    code = "invalid"
    title = "Invalid request"

    def __init__(self, detail: str, *, code: str | None = None, pointer: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.code
        self.pointer = pointer


class InvalidInput(ApplicationError):
    status = 422
    code = "invalid"
    title = "Invalid input"


class NotFound(ApplicationError):
    status = 404
    code = "not_found"
    title = "Not found"


class Conflict(ApplicationError):
    status = 409
    code = "conflict"
    title = "Conflict"


class NotSignedIn(ApplicationError):
    status = 401
    code = "not_authenticated"
    title = "Not signed in"


class Forbidden(ApplicationError):
    status = 403
    code = "permission_denied"
    title = "Not allowed"


class Unavailable(ApplicationError):
    status = 503
    code = "unavailable"
    title = "Unavailable"


class TooLarge(ApplicationError):
    status = 413
    code = "too_large"
    title = "Too large"


class PreconditionFailed(ApplicationError):
    status = 412
    code = "changed_meanwhile"
    title = "Changed meanwhile"


class PreconditionRequired(ApplicationError):
    status = 428
    code = "if_match_missing"
    title = "Precondition required"


class TooManyRequests(ApplicationError):
    status = 429
    code = "quota-exceeded"
    title = "Too many requests"
