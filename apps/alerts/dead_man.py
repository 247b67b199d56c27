"""The dead-man signal: a monitor elsewhere expects a call every minute, and raises the alarm when none comes.

It is only sent while every part of Muster gives signs of life: a blind Muster goes silent too.
"""

from __future__ import annotations

import logging

import urllib3
from django.conf import settings

from apps.alerts import own_health

log = logging.getLogger(__name__)
_SECONDS = 10.0


def signal() -> bool:
    """Call `MUSTER_DEAD_MAN_URL`. False when there is none, when Muster is not watching, or when it did not arrive."""
    if not settings.DEAD_MAN_URL:
        return False
    still = [part.name for part in own_health.parts() if not part.is_well]
    if still:
        log.error("the dead-man signal is withheld: %s", ", ".join(still))
        return False
    try:
        answer = urllib3.request(
            "POST", settings.DEAD_MAN_URL, body=b"", redirect=False, retries=False, timeout=_SECONDS
        )
    except urllib3.exceptions.HTTPError as error:
        # its address may carry a secret, and urllib3 names it
        log.warning("the dead-man signal did not arrive (%s)", type(error).__name__)
        return False
    if answer.status >= 300:
        log.warning("the dead-man signal was answered with HTTP %d", answer.status)
    return answer.status < 300
