"""`/alerts/channels/` and `/alerts/deliveries/`: who is told, and what became of it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.alerts import channels, deliveries, targets
from apps.alerts.models import Channel, Delivery
from apps.core.errors import Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.channel_forms import ChannelForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.telling import CHANNELS, DELIVERIES
from apps.dashboard.views.alert_rules import field_of
from apps.dashboard.views.policies import MAX_CHOICES
from apps.fleet.access import require_role
from apps.fleet.models import Cluster


@pages.page
def channel_list(request: HttpRequest) -> HttpResponse:
    context = context_of(CHANNELS, request)
    for channel in context["page"].items:
        channel.shown_target = targets.shown(channel)
    context |= {"is_admin": pages.operates_everywhere(request, Role.ADMIN), "kinds": Channel.Kind.choices}
    return render(request, "dashboard/channels.html", context)


@pages.page
def channel_create(request: HttpRequest) -> HttpResponse:
    """A channel of the kind that the URL names. A webhook's signing key is shown in the answer, once."""
    require_role(request, Role.ADMIN)
    kind = request.GET.get("kind", Channel.Kind.WEBHOOK)
    if kind not in Channel.Kind.values:
        raise Http404("There is no such kind of channel.")
    form = ChannelForm(request.POST or None, kind=kind, clusters=_cluster_choices())
    context: dict[str, Any] = {"form": form, "label": Channel.Kind(kind).label}
    if request.method == "POST" and form.is_valid():
        try:
            channel, key = channels.create_channel(
                kind=kind, actor=request.user.get_username(), **_details(form, shown_target=None)
            )
        except (InvalidInput, Conflict) as error:
            form.add_error(field_of(error, form), error.detail)
        else:
            if key:
                return render(request, "dashboard/channel_key.html", {"channel": channel, "key": key})
            messages.success(request, f"{channel.name} is saved. Send a test to see whether it arrives.")
            return redirect("channel", channel_id=channel.pk)
    status = 422 if request.method == "POST" else 200
    return render(request, "dashboard/channel_form.html", context, status=status)


@pages.page
def channel_detail(request: HttpRequest, channel_id: str) -> HttpResponse:
    _require_sight(request)
    channel = _channel(channel_id)
    is_admin, shown = pages.operates_everywhere(request, Role.ADMIN), targets.shown(channel)
    form = ChannelForm(
        request.POST or None,
        kind=channel.kind,
        clusters=_cluster_choices() if is_admin else (),
        initial=ChannelForm.initial_of(channel, shown),
    )
    context = {"channel": channel, "form": form, "is_admin": is_admin, "shown_target": shown}
    context |= {"secret_count": channels.secret_count(channel), "can_test": pages.operates_everywhere(request)}
    context["deliveries"] = deliveries.delivery_rows().filter(channel=channel).order_by("-created_at", "-pk")[:10]
    if request.method != "POST":
        return render(request, "dashboard/channel.html", context)
    require_role(request, Role.ADMIN)
    if form.is_valid():
        try:
            changes = _details(form, shown_target=shown)
            channels.update_channel(channel=channel, changes=changes, actor=request.user.get_username())
        except (InvalidInput, Conflict) as error:
            form.add_error(field_of(error, form), error.detail)
        else:
            messages.success(request, f"{channel.name} is saved.")
            return redirect("channel", channel_id=channel.pk)
    return render(request, "dashboard/channel.html", context, status=422)


@pages.page
def channel_rotate(request: HttpRequest, channel_id: str) -> HttpResponse:
    """The new signing key is shown in the answer, once."""
    require_role(request, Role.ADMIN)
    channel = _channel(channel_id)
    if request.method != "POST":
        return redirect("channel", channel_id=channel.pk)
    key = channels.rotate_signing_key(channel=channel, actor=request.user.get_username())
    return render(request, "dashboard/channel_key.html", {"channel": channel, "key": key, "is_rotated": True})


@pages.action
def channel_drop_old_key(request: HttpRequest, channel_id: str) -> HttpResponse:
    require_role(request, Role.ADMIN)
    channels.drop_old_key(channel=_channel(channel_id), actor=request.user.get_username())
    messages.success(request, "Messages are signed with the new key alone.")
    return redirect("channel", channel_id=channel_id)


@pages.action
def channel_test(request: HttpRequest, channel_id: str) -> HttpResponse:
    require_role(request, Role.OPERATOR)
    delivery = channels.send_test(channel=_channel(channel_id), actor=request.user.get_username())
    messages.success(request, "A test is on its way; this page tells what came back.")
    return redirect("delivery", delivery_id=delivery.pk)


@pages.page
def channel_delete(request: HttpRequest, channel_id: str) -> HttpResponse:
    require_role(request, Role.ADMIN)
    channel = _channel(channel_id)
    if request.method != "POST":
        return render(request, "dashboard/channel_delete.html", {"channel": channel})
    name = channel.name
    channels.delete_channel(channel=channel, actor=request.user.get_username())
    messages.success(request, f"{name} is deleted.")
    return redirect("channels")


@pages.page
def delivery_list(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/deliveries.html", context_of(DELIVERIES, request))


@pages.page
def delivery_detail(request: HttpRequest, delivery_id: str) -> HttpResponse:
    _require_sight(request)
    delivery = _delivery(delivery_id)
    is_over = delivery.state != Delivery.State.PENDING
    context: dict[str, Any] = {"delivery": delivery, "attempts": delivery.attempts.order_by("-pk")[:100]}
    context["can_replay"] = is_over and delivery.channel.enabled and pages.operates_everywhere(request)
    return render(request, "dashboard/delivery.html", context)


@pages.action
def delivery_replay(request: HttpRequest, delivery_id: str) -> HttpResponse:
    require_role(request, Role.OPERATOR)
    deliveries.replay(delivery=_delivery(delivery_id), actor=request.user.get_username())
    messages.success(request, "It is on its way again, with the same id.")
    return redirect("delivery", delivery_id=delivery_id)


def _require_sight(request: HttpRequest) -> None:
    """Channels are of no single cluster; for those whose role is on one only there is nothing here."""
    if not pages.operates_everywhere(request, Role.VIEWER):
        raise Http404("There is nothing here.")


def _channel(channel_id: str) -> Channel:
    channel = Channel.objects.prefetch_related("clusters").filter(pk=channel_id).first()
    if channel is None:
        raise Http404(f"There is no channel {channel_id}.")
    return channel


def _delivery(delivery_id: str) -> Delivery:
    delivery = deliveries.delivery_rows().filter(pk=delivery_id).first()
    if delivery is None:
        raise Http404(f"There is no delivery {delivery_id}.")
    return delivery


def _cluster_choices() -> list[tuple[str, str]]:
    return list(Cluster.objects.order_by("name").values_list("pk", "name")[:MAX_CHOICES])


def _details(form: ChannelForm, shown_target: str | None) -> dict[str, Any]:
    given = form.changes(shown_target) if shown_target is not None else form.changes("\0")
    return {**given, "clusters": list(Cluster.objects.filter(pk__in=given["clusters"]))}
