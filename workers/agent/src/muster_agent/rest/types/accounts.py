"""Bodies and queries: accounts."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

CreateBulkOperationListEnum = Literal["alerts", "audits", "checkpoints", "drills", "transfers"]

CreateSavedViewListEnum = Literal[
    "activity",
    "alerts",
    "audit-policies",
    "audits",
    "changes",
    "channels",
    "checkpoints",
    "clusters",
    "deliveries",
    "drills",
    "incidents",
    "nodes",
    "objectives",
    "plans",
    "policies",
    "repairs",
    "runs",
    "silences",
    "transfers",
]

RoleEnum = Literal["viewer", "operator", "admin"]

VerbEnum = Literal["acknowledge", "cancel", "label", "pin", "seal", "unpin", "verify"]


class Activity(TypedDict):
    id: int
    at: str
    actor: str
    action: str
    target_kind: str
    target_id: str
    cluster: str
    request_id: str
    detail: NotRequired[Any]
    previous: str
    digest: str


class ActivityCheck(TypedDict):
    at: str
    up_to_id: int
    entry_count: int
    broken_id: int | None
    problem: NotRequired[str]


class BulkItem(TypedDict):
    target_id: str
    label: str
    outcome: str
    detail: str
    done_at: str | None


class BulkOperation(TypedDict):
    id: str | None
    list: str
    verb: str
    parameters: dict[str, Any]
    query: str
    actor: str
    state: str
    total_count: int
    done_count: int
    refused_count: int
    created_at: str
    finished_at: str | None


class CreateBulkOperationRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    list: CreateBulkOperationListEnum
    verb: VerbEnum
    ids: NotRequired[list[str]]
    query: NotRequired[str]
    parameters: NotRequired[dict[str, str]]
    expected_count: NotRequired[int]


class CreateSavedViewRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    list: CreateSavedViewListEnum
    name: str
    query: str
    shared: NotRequired[bool]


class CreateTokenRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    role: NotRequired[RoleEnum]
    days: NotRequired[int]
    username: NotRequired[str]


class CreateUserRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    username: str
    role: NotRequired[RoleEnum]
    is_service: NotRequired[bool]
    password: NotRequired[str]


class Found(TypedDict):
    name: str
    detail: str
    url: str


class FoundGroup(TypedDict):
    label: str
    items: list[Found]


class NewToken(TypedDict):
    """A token just made: the only time its secret is shown."""

    id: str
    name: str
    user: str
    role: NotRequired[RoleEnum]
    created_at: str
    expires_at: str
    last_used_at: NotRequired[str | None]
    revoked_at: NotRequired[str | None]
    secret: str


class PatchedUpdateUserRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    role: NotRequired[RoleEnum]
    is_active: NotRequired[bool]


class SavedView(TypedDict):
    id: str
    list: str
    name: str
    query: str
    shared: bool
    owner: str
    created_at: str


class Search(TypedDict):
    groups: list[FoundGroup]


class Token(TypedDict):
    id: str
    name: str
    user: str
    role: NotRequired[RoleEnum]
    created_at: str
    expires_at: str
    last_used_at: NotRequired[str | None]
    revoked_at: NotRequired[str | None]


class User(TypedDict):
    id: int
    username: str
    role: NotRequired[RoleEnum]
    is_service: NotRequired[bool]
    is_active: NotRequired[bool]
    date_joined: NotRequired[str]
    last_login: NotRequired[str | None]


class WhoAmI(TypedDict):
    username: str
    role: RoleEnum
    is_service: bool
    token_expires_at: str | None


class ListActivityQuery(TypedDict, total=False):
    """Of `list_activity`."""

    action: str
    actor: str
    cluster: str
    cursor: str
    limit: int
    request_id: str
    sort: Literal["at", "-at"]
    target_id: str
    target_kind: str


class ExportActivityQuery(TypedDict, total=False):
    """Of `export_activity`."""

    after: int


class ListBulkOperationsQuery(TypedDict, total=False):
    """Of `list_bulk_operations`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListBulkOperationItemsQuery(TypedDict, total=False):
    """Of `list_bulk_operation_items`."""

    cursor: str
    limit: int
    sort: Literal["id", "-id"]


class ListSavedViewsQuery(TypedDict, total=False):
    """Of `list_saved_views`."""

    cursor: str
    limit: int
    list: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class SearchQuery(TypedDict, total=False):
    """Of `search`."""

    q: str


class ListTokensQuery(TypedDict, total=False):
    """Of `list_tokens`."""

    cursor: str
    limit: int
    sort: Literal["created_at", "-created_at"]


class ListUsersQuery(TypedDict, total=False):
    """Of `list_users`."""

    cursor: str
    limit: int
    sort: Literal["username", "-username", "date_joined", "-date_joined"]
