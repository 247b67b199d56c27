"""Where a channel may send to: judged when it is saved, and again whenever it is connected to."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from muster_agent.storage.addresses import AddressRefused, resolve

from apps.alerts.models import Channel
from apps.core.errors import InvalidInput

MAX_CHARACTERS = 1024
MAX_ADDRESSES = 20


def checked_url(text: str, *, pointer: str = "/target") -> str:
    """An http or https URL of a place that may be reached. Raises InvalidInput. A name that cannot be resolved now is
    taken: it is judged again when it is connected to."""
    url = text.strip()
    parts = _parts(url, pointer)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        resolve(parts.hostname.rstrip("."), port, settings.ALLOWED_NETWORKS)
    except AddressRefused as refused:
        raise InvalidInput(f"{refused.strerror}.", pointer=pointer) from refused
    except (OSError, UnicodeError):
        return url
    return url


def _parts(url: str, pointer: str) -> SplitResult:
    told = "Write an address such as https://host/path, without a user name or a fragment."
    if len(url) > MAX_CHARACTERS or not url.isascii() or any(ord(one) <= 32 or ord(one) == 127 for one in url):
        raise InvalidInput(f"{told} At most {MAX_CHARACTERS} characters of ASCII, no blanks.", pointer=pointer)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidInput(told, pointer=pointer) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.fragment:
        raise InvalidInput(told, pointer=pointer)
    return parts


def origin_of(url: str) -> str:
    """Scheme and host, which are no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def shown_url(url: str) -> str:
    """Without the query, which may hold one."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?…" if parts.query else "")


def shown(channel: Channel) -> str:
    """Where a channel leads, without what may be secret."""
    return channel.target if channel.kind == Channel.Kind.EMAIL else shown_url(channel.target)


def checked_addresses(text: str, *, pointer: str = "/target") -> str:
    """One to twenty e-mail addresses with commas. Raises InvalidInput that names the bad one."""
    found = [address.strip() for address in text.split(",") if address.strip()]
    if not 1 <= len(found) <= MAX_ADDRESSES or len(", ".join(found)) > MAX_CHARACTERS:
        raise InvalidInput(f"Give one to {MAX_ADDRESSES} e-mail addresses, with commas.", pointer=pointer)
    for address in found:
        try:
            validate_email(address)
        except ValidationError as error:
            raise InvalidInput(f"{address!r} is no e-mail address.", pointer=pointer) from error
    return ", ".join(found)
