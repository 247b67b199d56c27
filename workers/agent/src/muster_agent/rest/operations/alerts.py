"""The operations on alerts."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class AlertsOperations(Calling):
    def acknowledge_alert(self, id: str, /) -> t.Alert:
        """Say that somebody is on it; it stays until its cause is gone."""
        return cast("t.Alert", self.call("POST", f"/alerts/{part(id)}/acknowledge/"))

    def create_alert_rule(self, body: t.CreateAlertRuleRequest) -> t.AlertRule:
        """Give a cluster, or one of its runs, a rule of its own."""
        return cast("t.AlertRule", self.call("POST", "/alert-rules/", body))

    def create_channel(self, body: t.CreateChannelRequest) -> t.NewChannel:
        """Add a channel; a signing key that is made is in this answer only."""
        return cast("t.NewChannel", self.call("POST", "/channels/", body))

    def create_silence(self, body: t.CreateSilenceRequest) -> t.Silence:
        """Keep matching alerts from being told to channels for a while."""
        return cast("t.Silence", self.call("POST", "/silences/", body))

    def delete_alert_rule(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a cluster's or run's own rule; the wider one holds again."""
        self.call("DELETE", f"/alert-rules/{part(id)}/", if_match=if_match)

    def delete_channel(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a channel with its log of deliveries."""
        self.call("DELETE", f"/channels/{part(id)}/", if_match=if_match)

    def drop_channel_old_key(self, id: str, /) -> t.Channel:
        """End the rotation: sign with the newest key alone."""
        return cast("t.Channel", self.call("POST", f"/channels/{part(id)}/drop-old-key/"))

    def end_silence(self, id: str, /) -> t.Silence:
        """End a silence now; what is still wrong is told."""
        return cast("t.Silence", self.call("POST", f"/silences/{part(id)}/end/"))

    def get_alert(self, id: str, /) -> t.Alert:
        """One alert."""
        return cast("t.Alert", self.call("GET", f"/alerts/{part(id)}/"))

    def get_alert_rule(self, id: str, /) -> t.AlertRule:
        """One alert rule."""
        return cast("t.AlertRule", self.call("GET", f"/alert-rules/{part(id)}/"))

    def get_channel(self, id: str, /) -> t.Channel:
        """One channel."""
        return cast("t.Channel", self.call("GET", f"/channels/{part(id)}/"))

    def get_delivery(self, id: str, /) -> t.WholeDelivery:
        """One delivery with its tries."""
        return cast("t.WholeDelivery", self.call("GET", f"/deliveries/{part(id)}/"))

    def get_health(self) -> t.Health:
        """Whether Muster itself is watching, part by part."""
        return cast("t.Health", self.call("GET", "/health/"))

    def get_silence(self, id: str, /) -> t.Silence:
        """One silence."""
        return cast("t.Silence", self.call("GET", f"/silences/{part(id)}/"))

    def list_alert_rules(self, **query: Unpack[t.ListAlertRulesQuery]) -> Iterator[t.AlertRule]:
        """List alert rules."""
        return cast("Iterator[t.AlertRule]", self.items("/alert-rules/", query))

    def list_alerts(self, **query: Unpack[t.ListAlertsQuery]) -> Iterator[t.Alert]:
        """List alerts."""
        return cast("Iterator[t.Alert]", self.items("/alerts/", query))

    def list_channels(self, **query: Unpack[t.ListChannelsQuery]) -> Iterator[t.Channel]:
        """List channels."""
        return cast("Iterator[t.Channel]", self.items("/channels/", query))

    def list_deliveries(self, **query: Unpack[t.ListDeliveriesQuery]) -> Iterator[t.Delivery]:
        """The log of deliveries."""
        return cast("Iterator[t.Delivery]", self.items("/deliveries/", query))

    def list_silences(self, **query: Unpack[t.ListSilencesQuery]) -> Iterator[t.Silence]:
        """List silences."""
        return cast("Iterator[t.Silence]", self.items("/silences/", query))

    def replay_delivery(self, id: str, /) -> t.Delivery:
        """Send it again, with the same id."""
        return cast("t.Delivery", self.call("POST", f"/deliveries/{part(id)}/replay/"))

    def rotate_channel(self, id: str, /, body: t.RotateRequest) -> t.SigningKey:
        """Replace a webhook's signing key; messages carry signatures of both meanwhile."""
        return cast("t.SigningKey", self.call("POST", f"/channels/{part(id)}/rotate/", body))

    def test_channel(self, id: str, /) -> t.Delivery:
        """Send a test, tried once; the delivery tells what came back."""
        return cast("t.Delivery", self.call("POST", f"/channels/{part(id)}/test/"))

    def update_alert_rule(
        self, id: str, /, body: t.PatchedUpdateAlertRuleRequest, *, if_match: str = "*"
    ) -> t.AlertRule:
        """Change a rule's severity or threshold, or disable it."""
        return cast("t.AlertRule", self.call("PATCH", f"/alert-rules/{part(id)}/", body, if_match=if_match))

    def update_channel(self, id: str, /, body: t.PatchedUpdateChannelRequest, *, if_match: str = "*") -> t.Channel:
        """Change a channel, disable or enable it."""
        return cast("t.Channel", self.call("PATCH", f"/channels/{part(id)}/", body, if_match=if_match))
