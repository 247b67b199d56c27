"""Whether copies that were not found are gone, or their storage is."""

from __future__ import annotations

from typing import Any

import pytest

from apps.checkpoints.vanished import doubt

MOUNTED = {"mount_point": "/fast", "device": 70, "inode": 2}
BARE = {"mount_point": "/", "device": 1, "inode": 9001}
OTHER_DISK = {"mount_point": "/fast", "device": 71, "inode": 2}
REPLACED = {"mount_point": "/fast", "device": 70, "inode": 55}


def judged(known: int, vanished: int, listed: int, before: Any = MOUNTED, now: Any = MOUNTED) -> str:
    return doubt("/fast", known=known, vanished=vanished, listed=listed, before=before, now=now)


def test_nothing_vanished_is_no_reason_for_doubt_even_in_another_root() -> None:
    assert judged(5, 0, 5, now=BARE) == judged(0, 0, 0, before=None) == ""


def test_copies_removed_from_a_root_that_is_the_same_are_gone_even_all_of_them() -> None:
    assert judged(5, 1, 4) == judged(5, 5, 0) == judged(1, 1, 0) == ""


@pytest.mark.parametrize("now", [BARE, OTHER_DISK, REPLACED, None])
def test_everything_at_once_is_not_gone_where_the_root_is_not_surely_the_same(now: Any) -> None:
    assert "unmounted" in judged(5, 5, 0, now=now)
    assert "unmounted" in judged(1, 1, 0, before=None, now=now)


def test_a_mount_point_without_its_mount_is_named_also_where_old_copies_lie_under_it() -> None:
    said = judged(9, 8, 1, now=BARE)
    assert said == (
        "/fast was on the file system mounted at /fast and is now on that at /, and 8 of 9 copies were not found in it"
    )
    assert "another folder or file system" in judged(9, 8, 1, now=REPLACED)


def test_a_root_mounted_anew_with_nearly_all_copies_in_it_is_believed() -> None:
    assert judged(9, 1, 8, now=OTHER_DISK) == ""


def test_a_run_that_keeps_only_its_newest_checkpoint_loses_all_known_ones_without_doubt() -> None:
    assert judged(1, 1, 1) == judged(1, 1, 1, before=None) == ""
