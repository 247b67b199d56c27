"""The one place where something is sent to a receiver. Nothing here writes rows.

A receiver's address came from a person, so its name is resolved once, judged (`storage.addresses`), and connected to
as judged; redirects are not followed, and nothing is sent in the clear to public addresses.
"""

from __future__ import annotations

import contextlib
import http.client
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.utils import timezone
from muster_agent.storage.addresses import AddressRefused, Resolved, connect_to, resolve

from apps.alerts import messages, standard_webhooks
from apps.alerts.answers import MAX_ANSWER_CHARACTERS, Answer, judge_http
from apps.alerts.messages import Told
from apps.alerts.models import Channel
from apps.core.sealing import SealBroken, unseal

CONNECT_SECONDS = 10.0
WHOLE_SECONDS = 20.0
"""From the connection to the end of the answer, however slowly it drips."""
_AGENT = "Muster-Notifier/1"
_JSON = "application/json"


def send(channel: Channel, told: Told) -> Answer:
    """Try once. Never raises: whatever goes wrong is the answer's problem."""
    began = time.monotonic()
    try:
        answer = _SENDERS[channel.kind](channel, told)
    except SealBroken as error:
        answer = Answer(problem=str(error))
    except AddressRefused as error:
        answer = Answer(problem=f"not sent: {error.strerror}")
    except smtplib.SMTPException as error:
        answer = _refused_mail(error)
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer = Answer(problem=_said(error))
    return Answer(**{**answer.__dict__, "seconds": time.monotonic() - began})


def _webhook(channel: Channel, told: Told) -> Answer:
    body = messages.cloud_event(told)
    signed = standard_webhooks.headers(
        message_id=told.id, timestamp=int(time.time()), body=body, signing_keys=unseal(channel.secrets)
    )
    return post(channel.target, body, {"Content-Type": "application/cloudevents+json; charset=utf-8", **signed})


def _slack(channel: Channel, told: Told) -> Answer:
    return post(unseal(channel.secrets)[0], messages.slack_body(told), {"Content-Type": _JSON})


def _pagerduty(channel: Channel, told: Told) -> Answer:
    body = messages.pagerduty_body(told, unseal(channel.secrets)[0])
    return post(channel.target, body, {"Content-Type": _JSON})


def _email(channel: Channel, told: Told) -> Answer:
    if not settings.EMAIL_HOST:
        return Answer(problem="no mail server is set: MUSTER_SMTP_URL of the workers names it")
    mail = messages.mail(told)
    recipients = [address.strip() for address in channel.target.split(",")]
    headers = {"Message-ID": mail.message_id, "References": mail.thread_id, "Auto-Submitted": "auto-generated"}
    message = EmailMessage(
        mail.subject, mail.text, settings.DEFAULT_FROM_EMAIL, recipients, headers=headers,
        connection=get_connection(timeout=CONNECT_SECONDS),
    )  # fmt: skip
    message.send()
    return Answer(status=250)


def _refused_mail(error: smtplib.SMTPException) -> Answer:
    """Tried again even after a 5xx: what a mail server calls permanent, its administrator often mends."""
    code, text = getattr(error, "smtp_code", None), getattr(error, "smtp_error", b"")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    if code is None:
        return Answer(problem=_said(error))
    return Answer(status=code, problem=f"SMTP {code}: {shown[:MAX_ANSWER_CHARACTERS]}")


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """One POST over a connection of its own. Raises OSError and HTTPException."""
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    found = resolve(host, port, settings.ALLOWED_NETWORKS)
    if not is_tls:
        _refuse_clear_text(found)
    sock = connect_to(found, CONNECT_SECONDS)
    with contextlib.closing(_connection(sock, host, port, is_tls)) as connection, _cut_after(WHOLE_SECONDS, connection):
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, {"User-Agent": _AGENT, "Connection": "close", **headers})
        response = connection.getresponse()
        text = response.read(MAX_ANSWER_CHARACTERS).decode("utf-8", "replace").replace("\0", "")
        return judge_http(response.status, response.headers.get("Retry-After"), text, timezone.now())


def _refuse_clear_text(found: list[Resolved]) -> None:
    if any(ip_address(str(address[0]).partition("%")[0]).is_global for *_how, address in found):
        raise AddressRefused("plain HTTP only goes to allowed private networks; use https")


def _connection(sock: socket.socket, host: str, port: int, is_tls: bool) -> http.client.HTTPConnection:
    """Over a socket that is connected to a judged address, so that http.client looks up no name again."""
    connection = http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
    connection.default_port = 443 if is_tls else 80  # which the Host header leaves out
    try:
        connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host) if is_tls else sock
    except BaseException:
        sock.close()
        raise
    return connection


@contextlib.contextmanager
def _cut_after(seconds: float, connection: http.client.HTTPConnection) -> Iterator[None]:
    """A socket's timeout begins anew with every byte; this ends the whole of it. Raises TimeoutError then."""
    sock, is_over = connection.sock, threading.Event()

    def cut() -> None:
        is_over.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if is_over.is_set():
            raise TimeoutError from error
        raise
    else:
        if is_over.is_set():  # what was cut within its headers reads as an answer that ended there
            raise TimeoutError
    finally:
        timer.cancel()


def _said(error: Exception) -> str:
    """Without the URL, which may hold a secret."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    text = getattr(error, "strerror", None) or type(error).__name__
    return f"no answer: {text}"


_SENDERS: dict[str, Callable[[Channel, Told], Answer]] = {
    Channel.Kind.WEBHOOK: _webhook,
    Channel.Kind.SLACK: _slack,
    Channel.Kind.PAGERDUTY: _pagerduty,
    Channel.Kind.EMAIL: _email,
}
