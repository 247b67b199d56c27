"""The place that is to be inspected, and why it could not be."""

from __future__ import annotations

import os

from muster_agent.formats.places import PlaceInvalid, place_of
from muster_agent.probes.filesystem import made_up_by_the_kernel, missing_mount


class RootUnreadable(Exception):
    """The place to inspect is not there or cannot be listed; `hint` says what to do."""

    def __init__(self, path: str, reason: str, hint: str, *, is_missing: bool = False) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason, self.hint, self.is_missing = path, reason, hint, is_missing


def root_place(root: str | os.PathLike[str]) -> str:
    """The absolute path of the root. Raises RootUnreadable."""
    try:
        return place_of(os.fspath(root))
    except PlaceInvalid as invalid:
        raise RootUnreadable(os.fspath(root), str(invalid), "name a folder", is_missing=True) from None


def check_folder(place: str) -> None:
    """Raises RootUnreadable where the folder or file is not there or cannot be looked at."""
    try:
        if os.path.isdir(place):
            os.scandir(place).close()
        else:
            os.stat(place)
    except (FileNotFoundError, NotADirectoryError):
        hint = "check the spelling; if it lies on a mount, check that the storage is mounted here"
        raise RootUnreadable(place, "there is no such file or folder", hint, is_missing=True) from None
    except PermissionError:
        hint = f"run as a user who may read it, or give uid {os.geteuid()} read and search permission on it"
        raise RootUnreadable(place, "this user may not read it", hint) from None
    except OSError as error:
        hint = "check the mount and its server, then run again"
        raise RootUnreadable(place, f"it could not be read ({error.strerror})", hint) from None


def check_holds_files(place: str) -> None:
    """Raises RootUnreadable for /proc and its like: numbers as names and sizes of 0 look like steps of nothing."""
    kind = made_up_by_the_kernel(place)
    if kind is not None:
        reason = f"it is a {kind} file system, which the kernel makes up: no checkpoint can lie there"
        raise RootUnreadable(place, reason, "name the folder that checkpoints are saved to")


def check_mount(place: str) -> None:
    """An empty folder may be the place where the storage should be."""
    unmounted = missing_mount(os.path.realpath(place))
    if unmounted is not None:
        hint = f"mount it (`mount {unmounted}`), then run again"
        raise RootUnreadable(place, f"nothing is mounted at {unmounted}, where /etc/fstab has a file system", hint)
