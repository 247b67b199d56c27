"""The operations on fleet."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class FleetOperations(Calling):
    def approve_agent(self, id: str, /) -> t.Agent:
        """Let a pending agent take work (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/approve/"))

    def create_cluster(self, body: t.CreateClusterRequest) -> t.Cluster:
        """Create a cluster (admin)."""
        return cast("t.Cluster", self.call("POST", "/clusters/", body))

    def create_join_token(self, body: t.CreateJoinTokenRequest) -> t.NewJoinToken:
        """Create a join token; its secret is in this answer only (admin)."""
        return cast("t.NewJoinToken", self.call("POST", "/join-tokens/", body))

    def create_node_action(self, body: t.CreateNodeActionRequest) -> t.NodeAction:
        """Park a node as a spare, or bring one back through the gate (operator)."""
        return cast("t.NodeAction", self.call("POST", "/node-actions/", body))

    def delete_join_token(self, id: str, /) -> None:
        """Revoke a join token at once (admin)."""
        self.call("DELETE", f"/join-tokens/{part(id)}/")

    def drain_agent(self, id: str, /) -> t.Agent:
        """Give an agent no new work (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/drain/"))

    def get_agent(self, id: str, /) -> t.Agent:
        """One agent."""
        return cast("t.Agent", self.call("GET", f"/agents/{part(id)}/"))

    def get_cluster(self, id: str, /) -> t.Cluster:
        """One cluster."""
        return cast("t.Cluster", self.call("GET", f"/clusters/{part(id)}/"))

    def get_cluster_inventory(self, id: str, /) -> t.ClusterInventoryDetail:
        """One inventory with what changed since the one before."""
        return cast("t.ClusterInventoryDetail", self.call("GET", f"/cluster-inventories/{part(id)}/"))

    def get_drill_rules(self, cluster: str, /) -> t.Rules:
        """What drills may do here."""
        return cast("t.Rules", self.call("GET", f"/clusters/{part(cluster)}/drill-rules/"))

    def get_join_token(self, id: str, /) -> t.JoinToken:
        """One join token."""
        return cast("t.JoinToken", self.call("GET", f"/join-tokens/{part(id)}/"))

    def get_node(self, id: str, /) -> t.Node:
        """One node with its agent."""
        return cast("t.Node", self.call("GET", f"/nodes/{part(id)}/"))

    def get_node_action(self, id: str, /) -> t.NodeAction:
        """One of them, with the gate's checks."""
        return cast("t.NodeAction", self.call("GET", f"/node-actions/{part(id)}/"))

    def get_task(self, id: str, /) -> t.AgentTaskDetail:
        """One task with its parameters and result."""
        return cast("t.AgentTaskDetail", self.call("GET", f"/tasks/{part(id)}/"))

    def list_agents(self, **query: Unpack[t.ListAgentsQuery]) -> Iterator[t.Agent]:
        """List agents."""
        return cast("Iterator[t.Agent]", self.items("/agents/", query))

    def list_cluster_inventories(self, **query: Unpack[t.ListClusterInventoriesQuery]) -> Iterator[t.ClusterInventory]:
        """List inventories of clusters, newest first."""
        return cast("Iterator[t.ClusterInventory]", self.items("/cluster-inventories/", query))

    def list_clusters(self, **query: Unpack[t.ListClustersQuery]) -> Iterator[t.Cluster]:
        """List the clusters that the caller may view."""
        return cast("Iterator[t.Cluster]", self.items("/clusters/", query))

    def list_join_tokens(self, **query: Unpack[t.ListJoinTokensQuery]) -> Iterator[t.JoinToken]:
        """List join tokens; secrets are never shown."""
        return cast("Iterator[t.JoinToken]", self.items("/join-tokens/", query))

    def list_node_actions(self, **query: Unpack[t.ListNodeActionsQuery]) -> Iterator[t.NodeAction]:
        """Nodes that were parked or brought back."""
        return cast("Iterator[t.NodeAction]", self.items("/node-actions/", query))

    def list_nodes(self, **query: Unpack[t.ListNodesQuery]) -> Iterator[t.Node]:
        """List nodes with their agents."""
        return cast("Iterator[t.Node]", self.items("/nodes/", query))

    def list_task_events(self, task_id: str, /, **query: Unpack[t.ListTaskEventsQuery]) -> Iterator[t.AgentEvent]:
        """A task's events, oldest first."""
        return cast("Iterator[t.AgentEvent]", self.items(f"/tasks/{part(task_id)}/events/", query))

    def list_tasks(self, **query: Unpack[t.ListTasksQuery]) -> Iterator[t.AgentTask]:
        """List the work handed to agents."""
        return cast("Iterator[t.AgentTask]", self.items("/tasks/", query))

    def reset_drill_breaker(self, cluster: str, /) -> t.Rules:
        """Let disruptive drills start again after several went wrong (admin)."""
        return cast("t.Rules", self.call("POST", f"/clusters/{part(cluster)}/drill-rules/reset-breaker/"))

    def resume_agent(self, id: str, /) -> t.Agent:
        """Give a drained agent work again (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/resume/"))

    def revoke_agent(self, id: str, /, body: t.RevokeAgentRequest) -> t.Agent:
        """Refuse an agent's credential from now on (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/revoke/", body))

    def take_cluster_inventory(self, id: str, /) -> None:
        """Take the cluster's inventory now (operator)."""
        self.call("POST", f"/clusters/{part(id)}/take-inventory/")

    def update_cluster(self, id: str, /, body: t.PatchedUpdateClusterRequest, *, if_match: str = "*") -> t.Cluster:
        """Change a cluster's scheduler, size, price or permission to disrupt (admin)."""
        return cast("t.Cluster", self.call("PATCH", f"/clusters/{part(id)}/", body, if_match=if_match))

    def update_drill_rules(self, cluster: str, /, body: t.PatchedUpdateRulesRequest, *, if_match: str = "*") -> t.Rules:
        """Change what drills may do here (admin)."""
        return cast("t.Rules", self.call("PATCH", f"/clusters/{part(cluster)}/drill-rules/", body, if_match=if_match))
