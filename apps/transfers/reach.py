"""Which places the workers may read and write for transfers."""

from __future__ import annotations

import os

from django.conf import settings

from apps.storage.paths import contains, is_posix


def why_out_of_reach(path: str) -> str:
    """Why the workers may not touch `path`, in a sentence; empty where they may. By its text only: links are followed
    when the work begins (`why_led_out`)."""
    if any(contains(root, path) for root in settings.WORKER_ROOTS):
        return ""
    return f"Workers move checkpoints only below the places in MUSTER_WORKER_ROOTS, and {path} is in none of them."


def why_led_out(path: str) -> str:
    """Why a path, its links followed, lies outside of what the workers may touch; empty where it does not. For a path
    that is not there yet the nearest folder above counts."""
    if not is_posix(path):
        return why_out_of_reach(path)
    real = os.path.realpath(path)
    if any(contains(os.path.realpath(root), real) for root in settings.WORKER_ROOTS if is_posix(root)):
        return ""
    led = "" if real == path else f" (it leads to {real})"
    return f"workers move checkpoints only below MUSTER_WORKER_ROOTS, and {path}{led} is in none of them"
