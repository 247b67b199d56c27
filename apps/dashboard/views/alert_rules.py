"""`/alerts/rules/`: what is alerted on, from when on, and how severe it is."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.alerts import rules
from apps.alerts.models import AlertRule, RuleKind
from apps.alerts.rule_kinds import KINDS
from apps.checkpoints.models import TrainingRun
from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.dashboard import pages
from apps.dashboard.alert_forms import NewRuleForm, RuleForm, threshold_words
from apps.dashboard.views.policies import MAX_CHOICES
from apps.fleet.access import require_role, scoped, visible_clusters


@pages.page
def rule_list(request: HttpRequest) -> HttpResponse:
    """Every kind with the rule for everywhere, then those of clusters and runs."""
    order = list(KINDS)
    rows = list(_visible(request).order_by("cluster__name", "run__name", "pk")[:MAX_CHOICES])
    rows.sort(key=lambda rule: (order.index(rule.kind), rule.cluster_id is not None, rule.run_id is not None))
    shown = [{"rule": rule, "says": KINDS[rule.kind].says, "threshold": threshold_words(rule)} for rule in rows]
    context = {"rows": shown, "can_operate_some": pages.may_operate_somewhere(request)}
    return render(request, "dashboard/alert_rules.html", context)


@pages.page
def rule_detail(request: HttpRequest, rule_id: str) -> HttpResponse:
    rule = _rule(request, rule_id)
    form = RuleForm(request.POST or None, kind=rule.kind, initial=RuleForm.initial_of(rule))
    context = {"rule": rule, "kind": KINDS[rule.kind], "form": form, "threshold": threshold_words(rule)}
    context["can_change"] = _may_change(request, rule)
    if request.method != "POST":
        return render(request, "dashboard/alert_rule.html", context)
    require_role(request, Role.OPERATOR, rule.cluster_id)
    if form.is_valid():
        try:
            rules.update_rule(rule=rule, changes=form.cleaned_data, actor=request.user.get_username())
        except InvalidInput as error:
            form.add_error(field_of(error, form), error.detail)
        else:
            messages.success(request, "The rule is saved; alerts follow within ten seconds.")
            return redirect("alert-rules")
    return render(request, "dashboard/alert_rule.html", context, status=422)


@pages.page
def rule_create(request: HttpRequest) -> HttpResponse:
    """A rule for one cluster, or one of its runs, of the kind that the URL names."""
    kind = request.GET.get("kind", "")
    if kind not in RuleKind.values:
        raise Http404("There is no such kind of rule.")
    clusters = list(visible_clusters(request).order_by("name")[:MAX_CHOICES])
    form = NewRuleForm(
        request.POST or None,
        kind=kind,
        clusters=[(cluster.pk, cluster.name) for cluster in clusters],
        runs=run_choices(request),
        initial=RuleForm.initial_of(rules.standing_rules().of(kind, None, None)),
    )
    if request.method == "POST" and form.is_valid():
        details = dict(form.cleaned_data)
        named = details.pop("cluster")
        cluster = next(one for one in clusters if one.pk == named)
        actor = pages.authorize(request, Role.OPERATOR, cluster.pk)
        try:
            rules.create_rule(
                kind=kind, cluster=cluster, run=run_of(request, details.pop("run", "")), actor=actor, **details
            )
        except (InvalidInput, Conflict) as error:
            form.add_error(field_of(error, form), error.detail)
        else:
            messages.success(request, f"{cluster.name} has a rule of its own now.")
            return redirect("alert-rules")
    context = {"form": form, "label": RuleKind(kind).label, "kind": KINDS[kind]}
    return render(request, "dashboard/alert_rule_form.html", context, status=422 if request.method == "POST" else 200)


@pages.action
def rule_delete(request: HttpRequest, rule_id: str) -> HttpResponse:
    rule = _rule(request, rule_id)
    require_role(request, Role.OPERATOR, rule.cluster_id)
    rules.delete_rule(rule=rule, actor=request.user.get_username())
    messages.success(request, "The wider rule holds again.")
    return redirect("alert-rules")


def run_choices(request: HttpRequest) -> list[tuple[str, str]]:
    rows = scoped(request, TrainingRun.objects.filter(archived_at=None).select_related("cluster"), "cluster")
    return [(run.pk, f"{run.name} ({run.cluster.name})") for run in rows.order_by("name")[:MAX_CHOICES]]


def run_of(request: HttpRequest, run_id: str) -> TrainingRun | None:
    return scoped(request, TrainingRun.objects.all(), "cluster").filter(pk=run_id).first() if run_id else None


def field_of(error: ApplicationError, form: Any) -> str | None:
    name = (error.pointer or "").strip("/")
    return name if name in form.fields else None


def _visible(request: HttpRequest) -> Any:
    return rules.rule_rows().filter(Q(cluster=None) | Q(cluster__in=visible_clusters(request)))


def _rule(request: HttpRequest, rule_id: str) -> AlertRule:
    rule: AlertRule | None = _visible(request).filter(pk=rule_id).first()
    if rule is None:
        raise Http404(f"There is no alert rule {rule_id} here.")
    return rule


def _may_change(request: HttpRequest, rule: AlertRule) -> bool:
    if rule.cluster_id is None:
        return pages.operates_everywhere(request)
    return pages.operates(request, rule.cluster_id)
