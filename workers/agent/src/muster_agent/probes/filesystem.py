"""Which file system a path lies on, and whether the kernel's page cache is its client's cache."""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple


class FileSystem(NamedTuple):
    """`name` is `unknown` with the magic number where it is not in the table."""

    name: str
    uses_page_cache: bool
    """False also where that is not known: FUSE, GPFS, WEKA and ZFS keep caches of their own."""
    is_remote: bool


_KNOWN: dict[int, FileSystem] = {
    0xEF53: FileSystem("ext4", True, False),
    0x58465342: FileSystem("xfs", True, False),
    0x9123683E: FileSystem("btrfs", True, False),
    0xF2F52010: FileSystem("f2fs", True, False),
    0x01021994: FileSystem("tmpfs", True, False),
    0x794C7630: FileSystem("overlay", True, False),
    0x6969: FileSystem("nfs", True, True),
    0x0BD00BD0: FileSystem("lustre", True, True),
    0x00C36400: FileSystem("ceph", True, True),
    0xFE534D42: FileSystem("smb", True, True),
    0xFF534D42: FileSystem("cifs", True, True),
    0x65735546: FileSystem("fuse", False, True),
    0x47504653: FileSystem("gpfs", False, True),
    0x19830326: FileSystem("beegfs", False, True),
    0x2FC12FC1: FileSystem("zfs", False, False),
    0x01021997: FileSystem("9p", False, True),
}

_MADE_UP: dict[int, str] = {
    0x9FA0: "proc",
    0x62656572: "sysfs",
    0x27E0EB: "cgroup",
    0x63677270: "cgroup2",
    0x64626720: "debugfs",
    0x74726163: "tracefs",
    0x1CD1: "devpts",
    0x73636673: "securityfs",
    0x62656570: "configfs",
    0x6165676C: "pstore",
    0xCAFE4A11: "bpf",
    0x19800202: "mqueue",
    0x42494E4D: "binfmt_misc",
    0xF97CFF8C: "selinuxfs",
    0xDE5E81E4: "efivarfs",
    0x65735543: "fusectl",
}
"""File systems that hold no files of anybody's: the kernel makes up what is read there."""
FSTAB = "/etc/fstab"
_LIBC = ctypes.CDLL(None, use_errno=True)


def parse_magic(magic: int) -> FileSystem:
    """The table entry of statfs(2)'s `f_type`."""
    return _KNOWN.get(magic & 0xFFFFFFFF, FileSystem(f"unknown (0x{magic & 0xFFFFFFFF:x})", False, True))


def read_file_system(path: str) -> FileSystem:
    """The file system that holds `path`; `unknown` where the kernel does not say."""
    magic = _magic_of(path)
    return FileSystem("unknown", False, True) if magic is None else parse_magic(magic)


def made_up_by_the_kernel(path: str) -> str | None:
    """The name of the file system at `path` where it holds nobody's files, as `proc` does; else None."""
    magic = _magic_of(path)
    return None if magic is None else _MADE_UP.get(magic & 0xFFFFFFFF)


def _magic_of(path: str) -> int | None:
    # struct statfs is 120 bytes on 64-bit Linux and begins with f_type, a long; Python's statvfs leaves it out.
    buffer = ctypes.create_string_buffer(256)
    if _LIBC.statfs(os.fsencode(path), buffer) != 0:
        return None
    return ctypes.c_ulong.from_buffer(buffer).value


def missing_mount(path: str) -> str | None:
    """The place at or above `path` where this machine is set up to mount a file system, and has not."""
    try:
        with open(FSTAB, encoding="utf-8", errors="replace") as table:
            places = parse_mount_places(table.read())
    except OSError:
        return None
    above = [place for place in places if path == place or path.startswith(place + "/")]
    return next((place for place in sorted(above, key=len, reverse=True) if not os.path.ismount(place)), None)


def parse_mount_places(table: str) -> list[str]:
    """The mount points of an fstab that are mounted at every start."""
    rows = [line.split() for line in table.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    asked = [row for row in rows if len(row) >= 4 and "noauto" not in row[3].split(",")]
    return [row[1].replace("\\040", " ") for row in asked if row[1].startswith("/") and row[1] != "/"]
