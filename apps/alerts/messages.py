"""How an event reads for each kind of receiver. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MAX_BODY_BYTES = 20_000
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
TEST, TEST_ENDED = "channel.test", "channel.test_ended"
ALERT_OPENED, ALERT_ACKNOWLEDGED, ALERT_RESOLVED = "alert.opened", "alert.acknowledged", "alert.resolved"
_PAGERDUTY_ACTIONS = {
    ALERT_OPENED: "trigger",
    ALERT_ACKNOWLEDGED: "acknowledge",
    ALERT_RESOLVED: "resolve",
    TEST: "trigger",
    TEST_ENDED: "resolve",
}
_COLOURS = {"critical": "#c8321f", "warning": "#b87a00", "info": "#3465a4", "resolved": "#2e7d32"}


@dataclass(frozen=True)
class Told:
    """An event, as it is told. `data` is what the event row holds; `home_url` Muster's own address, "" if not known."""

    id: str
    type: str
    subject: str
    at: datetime
    data: Mapping[str, Any]
    home_url: str = ""

    @property
    def severity(self) -> str:
        return str(self.data.get("severity") or "info")

    @property
    def headline(self) -> str:
        """One line for people."""
        summary = str(self.data.get("summary") or self.type)
        if self.type == ALERT_RESOLVED:
            return f"Resolved: {summary}"
        if self.type == ALERT_ACKNOWLEDGED:
            return f"Acknowledged by {self.data.get('acknowledged_by')}: {summary}"
        return summary

    @property
    def link(self) -> str:
        return self.home_url + str(self.data.get("page") or "/alerts/") if self.home_url else ""


def cloud_event(told: Told) -> bytes:
    """CloudEvents 1.0, structured mode; below 20 kB whatever the data. `sequence` orders as text does."""
    event = {
        "specversion": "1.0",
        "id": told.id,
        "source": told.home_url or "urn:muster",
        "type": f"io.muster.{told.type}.v1",
        "subject": told.subject,
        "time": _iso(told.at),
        "sequence": told.id,
        "datacontenttype": "application/json",
        "data": dict(told.data),
    }
    body = _json(event)
    if len(body) < MAX_BODY_BYTES:
        return body
    return _json({**event, "data": {"truncated": True, "summary": str(told.data.get("summary", ""))[:1000]}})


def slack_body(told: Told) -> bytes:
    """What Slack's incoming webhooks take, and Mattermost's and others' after their manner."""
    colour = _COLOURS["resolved" if told.type == ALERT_RESOLVED else told.severity]
    text = _slack_text(told.headline)
    if told.link:
        text += f"\n<{told.link}|Open Muster>"
    attachment = {"color": colour, "fallback": _slack_text(told.headline), "text": text, "ts": int(told.at.timestamp())}
    return _json({"text": _slack_text(_title(told)), "attachments": [{**attachment, "footer": _place(told)}]})


def pagerduty_body(told: Told, routing_key: str) -> bytes:
    """Events API v2. One incident for each alert: its id is the `dedup_key`, so acknowledging and resolving find it."""
    action = _PAGERDUTY_ACTIONS[told.type]
    body: dict[str, Any] = {"routing_key": routing_key, "event_action": action, "dedup_key": dedup_key(told)}
    if action != "trigger":
        return _json(body)
    body["payload"] = {
        "summary": told.headline[:1024],
        "source": _place(told),
        "severity": told.severity,
        "timestamp": _iso(told.at),
        "class": str(told.data.get("rule") or told.type),
        "component": f"{told.data.get('subject_kind', '')} {told.data.get('subject_id', '')}".strip() or "muster",
        "custom_details": dict(told.data),
    }
    if told.link:
        body |= {"client": "Muster", "client_url": told.link}
    return _json(body)


def dedup_key(told: Told) -> str:
    return told.subject.rpartition("/")[2]


@dataclass(frozen=True)
class Mail:
    subject: str
    text: str
    message_id: str
    thread_id: str
    """The same for all mails of one alert, so that readers see them together."""


def mail(told: Told) -> Mail:
    """Its message id is the event's, the same at every try: servers and readers drop what came twice."""
    lines = [told.headline, ""]
    named = (("Severity", "severity"), ("Rule", "rule_label"), ("Cluster", "cluster_name"), ("Run", "run_name"))
    lines += [f"{label}: {told.data[name]}" for label, name in named if told.data.get(name)]
    lines += [f"At: {told.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"See: {told.link}"] if told.link else []
    one_line = " ".join(_title(told).split())
    return Mail(f"[Muster] {one_line}"[:200], "\n".join(lines) + "\n", _address(told.id), _address(dedup_key(told)))


def _title(told: Told) -> str:
    if told.type in (TEST, TEST_ENDED):
        return "Test"
    state = {ALERT_OPENED: told.severity, ALERT_RESOLVED: "resolved", ALERT_ACKNOWLEDGED: "acknowledged"}
    label = told.data.get("rule_label") or told.type
    return f"{state.get(told.type, told.severity)}: {label} ({_place(told)})"


def _place(told: Told) -> str:
    return str(told.data.get("cluster_name") or "Muster")


def _address(name: str) -> str:
    return f"<{name}@muster.invalid>"


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
