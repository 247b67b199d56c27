"""The operations on accounts."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class AccountsOperations(Calling):
    def cancel_bulk_operation(self, id: str, /) -> t.BulkOperation:
        """Stop a bulk operation: rows that wait stay as they are."""
        return cast("t.BulkOperation", self.call("POST", f"/bulk-operations/{part(id)}/cancel/"))

    def check_activity(self) -> t.ActivityCheck:
        """Check the activity log's whole chain now (admin)."""
        return cast("t.ActivityCheck", self.call("POST", "/activity/check/"))

    def create_bulk_operation(self, body: t.CreateBulkOperationRequest) -> t.BulkOperation:
        """Do one thing to many rows: to these ids, or to all that match a list's query."""
        return cast("t.BulkOperation", self.call("POST", "/bulk-operations/", body))

    def create_saved_view(self, body: t.CreateSavedViewRequest) -> t.SavedView:
        """Keep a list's query under a name; the same name again gets the new query."""
        return cast("t.SavedView", self.call("POST", "/saved-views/", body))

    def create_token(self, body: t.CreateTokenRequest) -> t.NewToken:
        """Create a token; its secret is in this answer only."""
        return cast("t.NewToken", self.call("POST", "/tokens/", body))

    def create_user(self, body: t.CreateUserRequest) -> t.User:
        """Create a user or service account (admin)."""
        return cast("t.User", self.call("POST", "/users/", body))

    def delete_saved_view(self, id: str, /) -> None:
        """Delete a saved view."""
        self.call("DELETE", f"/saved-views/{part(id)}/")

    def delete_token(self, id: str, /) -> None:
        """Revoke a token at once."""
        self.call("DELETE", f"/tokens/{part(id)}/")

    def export_activity(self, **query: Unpack[t.ExportActivityQuery]) -> None:
        """The activity log as JSON lines in the order of its chain, to check it elsewhere (admin)."""
        self.call("GET", "/activity/export/", query=query)

    def get_activity_check(self) -> t.ActivityCheck:
        """What the last check of the activity log's chain found (admin)."""
        return cast("t.ActivityCheck", self.call("GET", "/activity/check/"))

    def get_bulk_operation(self, id: str, /) -> t.BulkOperation:
        """One bulk operation and how far it is."""
        return cast("t.BulkOperation", self.call("GET", f"/bulk-operations/{part(id)}/"))

    def get_saved_view(self, id: str, /) -> t.SavedView:
        """One saved view."""
        return cast("t.SavedView", self.call("GET", f"/saved-views/{part(id)}/"))

    def get_user(self, id: str, /) -> t.User:
        """One user (admin)."""
        return cast("t.User", self.call("GET", f"/users/{part(id)}/"))

    def list_activity(self, **query: Unpack[t.ListActivityQuery]) -> Iterator[t.Activity]:
        """The activity log, newest first (admin)."""
        return cast("Iterator[t.Activity]", self.items("/activity/", query))

    def list_bulk_operation_items(
        self, operation: str, /, **query: Unpack[t.ListBulkOperationItemsQuery]
    ) -> Iterator[t.BulkItem]:
        """What became of each row of an operation."""
        return cast("Iterator[t.BulkItem]", self.items(f"/bulk-operations/{part(operation)}/items/", query))

    def list_bulk_operations(self, **query: Unpack[t.ListBulkOperationsQuery]) -> Iterator[t.BulkOperation]:
        """Bulk operations: one's own, all for an admin."""
        return cast("Iterator[t.BulkOperation]", self.items("/bulk-operations/", query))

    def list_saved_views(self, **query: Unpack[t.ListSavedViewsQuery]) -> Iterator[t.SavedView]:
        """Saved views of lists: one's own and the shared ones."""
        return cast("Iterator[t.SavedView]", self.items("/saved-views/", query))

    def list_tokens(self, **query: Unpack[t.ListTokensQuery]) -> Iterator[t.Token]:
        """List API tokens: one's own, or everybody's for an admin."""
        return cast("Iterator[t.Token]", self.items("/tokens/", query))

    def list_users(self, **query: Unpack[t.ListUsersQuery]) -> Iterator[t.User]:
        """List users (admin)."""
        return cast("Iterator[t.User]", self.items("/users/", query))

    def search(self, **query: Unpack[t.SearchQuery]) -> t.Search:
        """Find runs, plans, nodes, tiers, clusters and checkpoints by name or step, anything by its id."""
        return cast("t.Search", self.call("GET", "/search/", query=query))

    def update_user(self, id: str, /, body: t.PatchedUpdateUserRequest, *, if_match: str = "*") -> t.User:
        """Change a user's role, or close the account (admin)."""
        return cast("t.User", self.call("PATCH", f"/users/{part(id)}/", body, if_match=if_match))

    def who_am_i(self) -> t.WhoAmI:
        """The account and role behind this request."""
        return cast("t.WhoAmI", self.call("GET", "/whoami/"))
