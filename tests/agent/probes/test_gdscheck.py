"""What gdscheck and nvidia-fs say, from outputs that were recorded on real machines, and from a few that
say themselves that they were composed."""

from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.probes.gdscheck import parse_gdscheck, read_gdscheck
from muster_agent.probes.nvidia_fs import NvidiaFs, parse_nvidia_fs, read_nvidia_fs, reads_between

from tests.agent.probes.recordings import COMPOSED, RECORDED, example, recorded, sources_of


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.txt")), ids=lambda path: path.stem)
def test_each_recording_names_its_source_date_machine_and_command(path: Path) -> None:
    assert list(sources_of(path)) == ["source", "date", "machine", "command"]
    assert all(sources_of(path).values()) and recorded(path.name).strip()


@pytest.mark.parametrize("path", sorted(COMPOSED.glob("*.txt")), ids=lambda path: path.stem)
def test_what_no_machine_printed_says_so(path: Path) -> None:
    told = sources_of(path)
    assert list(told) == ["source", "date", "machine", "command"]
    assert told["machine"].startswith("none") and told["command"].startswith("none; ")


@pytest.mark.parametrize(
    ("name", "release", "nvidia_fs", "nvme", "direct"),
    [
        ("gdscheck-supported-p2pdma.txt", "1.13.1.3", "2.24", ("p2pdma", "nvfs"), True),
        ("gdscheck-unsupported.txt", "1.7.1.12", "2.17", (), False),
        ("gdscheck-environment.txt", "1.16.1.26", "2.27", (), False),
        ("gdscheck-modes.txt", None, None, ("c2c", "nvfs", "compat"), True),
    ],
)
def test_both_forms_of_gdscheck_give_the_ways_to_a_storage(
    name: str, release: str | None, nvidia_fs: str | None, nvme: tuple[str, ...], direct: bool
) -> None:
    check = parse_gdscheck(example(name))
    assert (check.release, check.nvidia_fs) == (release, nvidia_fs)
    assert check.modes["NVMe"] == nvme and check.is_direct("NVMe") is direct


def test_compat_alone_is_no_direct_way() -> None:
    check = parse_gdscheck(example("gdscheck-modes.txt"))
    assert check.modes["NFS"] == ("compat",) and not check.is_direct("NFS")
    assert check.is_direct("NVMeOF") and not check.is_direct("SomethingElse")


def test_rows_of_other_sections_are_no_storage() -> None:
    check = parse_gdscheck(example("gdscheck-environment.txt"))
    assert set(check.modes) == {"NVMe", "NVMeOF", "VIRTIOFS", "Userspace RDMA"}
    assert check.properties == {"properties.use_pci_p2pdma": "false", "properties.use_compat_mode": "false"}


@pytest.mark.parametrize("text", ["", "Segmentation fault", ":::\n: x\n", "DRIVER CONFIGURATION:\n:\n"])
def test_anything_else_gives_no_modes(text: str) -> None:
    assert not any(parse_gdscheck(text).modes.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia-fs-enabled.txt", NvidiaFs(version="2.20.5", counts_reads=True, reads=0)),
        ("nvidia-fs-disabled.txt", NvidiaFs(version="2.25.7", counts_reads=False, reads=None)),
        ("nvidia-fs-first.txt", NvidiaFs(version="2.7.49", counts_reads=None, reads=None)),
        ("nvidia-fs-reads.txt", NvidiaFs(version="2.24", counts_reads=True, reads=1048576)),
    ],
)
def test_counters_that_are_off_are_unknown_and_not_zero(name: str, expected: NvidiaFs) -> None:
    assert parse_nvidia_fs(example(name)) == expected


def test_only_counters_that_were_on_before_and_after_tell_how_many_reads() -> None:
    off = parse_nvidia_fs(example("nvidia-fs-disabled.txt"))
    zero, many = (parse_nvidia_fs(example(f"nvidia-fs-{name}.txt")) for name in ("enabled", "reads"))
    assert reads_between(zero, many) == 1048576
    assert reads_between(off, many) is reads_between(zero, off) is reads_between(None, many) is None


def test_a_node_without_them_has_none() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA driver")
    assert read_gdscheck() is None and read_nvidia_fs() is None
