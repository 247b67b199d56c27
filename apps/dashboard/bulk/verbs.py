"""What can be done to many rows at once. Each verb calls the service that its button on one row calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apps.alerts import services as alerts
from apps.audits import services as audits
from apps.audits.models import Audit
from apps.checkpoints.models import Placement
from apps.core.errors import Conflict, InvalidInput
from apps.drills import services as drills
from apps.transfers import marks
from apps.transfers import services as transfers

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """What a verb asks for beside the rows."""

    name: str
    label: str
    max_length: int = 500


@dataclass(frozen=True)
class Verb:
    """`act` does it to one row for an actor and says what it did; a service's refusal is the row's result."""

    name: str
    list_name: str
    label: str
    act: Callable[[Any, Parameters, str], str]
    cluster_of: Callable[[Any], str]
    label_of: Callable[[Any], str]
    fields: tuple[Field, ...] = ()
    dangerous: bool = False


def _of_run(row: Any) -> str:
    return str(row.run.cluster_id)


def _own(row: Any) -> str:
    return str(row.cluster_id)


def _cancel_drill(row: Any, _parameters: Parameters, actor: str) -> str:
    drills.cancel_drill(drill=row, actor=actor)
    return "being cancelled"


def _cancel_audit(row: Any, _parameters: Parameters, actor: str) -> str:
    audits.cancel_audit(audit=row, actor=actor)
    return "being cancelled"


def _cancel_transfer(row: Any, _parameters: Parameters, actor: str) -> str:
    transfers.cancel(transfer=row, actor=actor)
    return "cancelled"


def _acknowledge(row: Any, _parameters: Parameters, actor: str) -> str:
    alerts.acknowledge(alert=row, actor=actor)
    return "acknowledged"


def _pin(row: Any, parameters: Parameters, actor: str) -> str:
    marks.pin(checkpoint=row, reason=str(parameters.get("reason", "")), actor=actor)
    return "pinned"


def _unpin(row: Any, _parameters: Parameters, actor: str) -> str:
    marks.unpin(checkpoint=row, actor=actor)
    return "not pinned any more"


def _label(row: Any, parameters: Parameters, actor: str) -> str:
    """Adds to the labels that it has."""
    added = str(parameters.get("labels", "")).replace(",", " ").split()
    if not added:
        raise InvalidInput("Name at least one label.", pointer="/labels")
    has = [label.label for label in row.labels.all()]
    told = marks.set_labels(checkpoint=row, labels=[*has, *added], actor=actor)
    return f"labels: {', '.join(told)}"


def _audit(mode: str) -> Callable[[Any, Parameters, str], str]:
    def act(row: Any, _parameters: Parameters, actor: str) -> str:
        """Every copy that there is something to read of; refused where none was taken."""
        copies = Placement.objects.filter(checkpoint=row).select_related("checkpoint__run", "tier__cluster", "manifest")
        refusals, begun = list[str](), list[str]()
        for copy in copies.order_by("tier__speed_order", "pk"):
            try:
                audits.request_audit(placement=copy, mode=mode, actor=actor)
                begun.append(copy.tier.name)
            except (Conflict, InvalidInput) as error:
                refusals.append(f"{copy.tier.name}: {error.detail}")
        if not begun:
            raise Conflict("; ".join(refusals) or "No copy of it is known.")
        return f"on {', '.join(begun)}" + (f"; not {'; '.join(refusals)}" if refusals else "")

    return act


def _drill_label(row: Any) -> str:
    return f"{row.get_kind_display()} of {row.run.name}"


def _checkpoint_label(row: Any) -> str:
    return f"step {row.step:,} of {row.run.name}"


def _copy_label(row: Any) -> str:
    return f"{row.get_mode_display()} of step {row.placement.checkpoint.step:,} of {row.placement.checkpoint.run.name}"


_CHECKPOINT: dict[str, Any] = {"list_name": "checkpoints", "cluster_of": _of_run, "label_of": _checkpoint_label}
_ALL = (
    Verb("cancel", "drills", "Cancel", _cancel_drill, _own, _drill_label, dangerous=True),
    Verb(
        "cancel", "audits", "Cancel", _cancel_audit, lambda row: str(row.placement.tier.cluster_id), _copy_label,
        dangerous=True,
    ),
    Verb(
        "cancel", "transfers", "Cancel", _cancel_transfer, _own,
        lambda row: f"{row.get_kind_display()} of step {row.checkpoint.step:,} of {row.checkpoint.run.name}",
        dangerous=True,
    ),
    Verb("acknowledge", "alerts", "Acknowledge", _acknowledge, _own, lambda row: str(row.summary)),
    Verb("verify", act=_audit(Audit.Mode.VERIFY), label="Verify", **_CHECKPOINT),
    Verb("seal", act=_audit(Audit.Mode.SEAL), label="Seal", **_CHECKPOINT),
    Verb("pin", act=_pin, label="Pin", fields=(Field("reason", "Why they are to be kept"),), **_CHECKPOINT),
    Verb("unpin", act=_unpin, label="Unpin", dangerous=True, **_CHECKPOINT),
    Verb("label", act=_label, label="Add labels", fields=(Field("labels", "Labels, apart by spaces"),), **_CHECKPOINT),
)  # fmt: skip
VERBS = {(verb.list_name, verb.name): verb for verb in _ALL}


def verbs_of(list_name: str) -> list[Verb]:
    return [verb for verb in _ALL if verb.list_name == list_name]


def find_verb(list_name: str, name: str) -> Verb:
    """Raises InvalidInput, with what there is."""
    verb = VERBS.get((list_name, name))
    if verb is None:
        known = ", ".join(verb.name for verb in verbs_of(list_name)) or "nothing at once"
        raise InvalidInput(f"Of {list_name} one can {known}.", pointer="/verb")
    return verb
