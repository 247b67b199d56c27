"""`/alerts/silences/`: which alerts are not told to channels, until when and why."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from apps.accounts.models import Role
from apps.alerts import silences
from apps.alerts.models import Alert, Silence
from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.alert_forms import SilenceForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.telling import SILENCES, silences_in_sight
from apps.dashboard.views.alert_rules import field_of, run_choices, run_of
from apps.dashboard.views.policies import MAX_CHOICES
from apps.fleet.access import require_role, scoped, visible_clusters


@pages.page
def silence_list(request: HttpRequest) -> HttpResponse:
    now, context = timezone.now(), context_of(SILENCES, request)
    everywhere = pages.operates_everywhere(request)
    operable = pages.operable(request, {row.cluster_id for row in context["page"].items if row.cluster_id})
    for row in context["page"].items:
        row.holds, row.has_ended = row.stands(now), row.ends_at <= now
        row.can_end = not row.has_ended and (row.cluster_id in operable if row.cluster_id else everywhere)
    context["can_operate_some"] = pages.may_operate_somewhere(request)
    return render(request, "dashboard/silences.html", context)


@pages.page
def silence_create(request: HttpRequest) -> HttpResponse:
    """For the alert that the URL names, or from nothing."""
    clusters = list(visible_clusters(request).order_by("name")[:MAX_CHOICES])
    choices = [(cluster.pk, cluster.name) for cluster in clusters]
    if pages.operates_everywhere(request):
        choices.insert(0, ("", "every cluster"))
    form = SilenceForm(request.POST or None, clusters=choices, runs=run_choices(request), initial=_like_alert(request))
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data
        cluster = next((one for one in clusters if one.pk == wanted["cluster"]), None)
        require_role(request, Role.OPERATOR, cluster)
        try:
            silences.create_silence(
                cluster=cluster,
                run=run_of(request, wanted["run"]),
                actor=request.user.get_username(),
                **form.details(),
            )
        except InvalidInput as error:
            form.add_error("lasts" if error.pointer == "/ends_at" else field_of(error, form), error.detail)
        else:
            messages.success(request, "Silenced. Matching alerts stay listed; what is still wrong then is told.")
            return redirect("silences")
    status = 422 if request.method == "POST" else 200
    return render(request, "dashboard/silence_form.html", {"form": form}, status=status)


@pages.action
def silence_end(request: HttpRequest, silence_id: str) -> HttpResponse:
    silence: Silence | None = silences_in_sight(request).filter(pk=silence_id).first()
    if silence is None:
        raise Http404(f"There is no silence {silence_id} here.")
    require_role(request, Role.OPERATOR, silence.cluster_id)
    silences.end_silence(silence=silence, actor=request.user.get_username())
    messages.success(request, "The silence has ended; what is still wrong is told.")
    return redirect(pages.back(request, "silences"))


def _like_alert(request: HttpRequest) -> dict[str, str]:
    found = scoped(request, Alert.objects.all(), "cluster").filter(pk=request.GET.get("alert", "")).first()
    if found is None:
        return {}
    return {
        "cluster": found.cluster_id or "", "rule": found.rule, "run": found.run_id or "", "subject_id": found.subject_id
    }  # fmt: skip
