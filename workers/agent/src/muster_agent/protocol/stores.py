"""How the bucket of a tier is reached, as the control plane may say it: never a secret."""

from __future__ import annotations

import msgspec


class StoreAt(msgspec.Struct, frozen=True, kw_only=True):
    """Both empty: as the environment of whoever reads says (`AWS_ENDPOINT_URL`, `AWS_PROFILE` and the like).
    `profile` names credentials in the files of that host."""

    endpoint_url: str = ""
    profile: str = ""
