from __future__ import annotations

import pytest

from apps.drills.reload import (
    ClientFigures,
    File,
    all_verified,
    combine,
    deadline_seconds,
    jain,
    split,
    stragglers,
    weighted_ratio,
)


def ranked(count: int, size_bytes: int = 100) -> dict[int | None, list[File]]:
    return {rank: [File(f"r{rank}", size_bytes)] for rank in range(count)}


@pytest.mark.parametrize(
    ("ranks", "clients", "expected"),
    [
        (4, 4, [(0,), (1,), (2,), (3,)]),
        (4, 2, [(0, 1), (2, 3)]),
        (4, 3, [(0,), (1,), (2, 3)]),
        (5, 2, [(0, 1), (2, 3, 4)]),
        (4, 1, [(0, 1, 2, 3)]),
        (2, 4, [(0,), (1,)]),
    ],
)
def test_ranks_go_to_clients_in_order_and_blocks(ranks: int, clients: int, expected: list[tuple[int, ...]]) -> None:
    shares = split(ranked(ranks), clients)
    assert [share.ranks for share in shares] == expected
    assert sorted(file.path for share in shares for file in share.files) == sorted(f"r{rank}" for rank in range(ranks))


def test_files_without_ranks_are_split_evenly_by_bytes() -> None:
    files = [File(f"f{n}", size) for n, size in enumerate((50, 30, 30, 20, 10, 10))]
    shares = split({None: files}, 3)
    assert [share.total_bytes for share in shares] == [50, 50, 50]
    assert sorted(file.path for share in shares for file in share.files) == sorted(file.path for file in files)


def test_a_metadata_file_of_every_rank_is_read_once_per_client() -> None:
    common = File("metadata", 5, for_every_reader=True)
    files: dict[int | None, list[File]] = {rank: [File(f"r{rank}", 10), common] for rank in range(4)}
    shares = split(files, 2)
    assert [[file.path for file in share.files] for share in shares] == [
        ["r0", "metadata", "r1"],
        ["r2", "metadata", "r3"],
    ]


def test_metadata_beside_files_without_ranks_goes_to_every_client_that_reads() -> None:
    files = {None: [File("a", 10), File("b", 10), File("index", 1, for_every_reader=True)]}
    shares = split(files, 4)
    assert [[file.path for file in share.files] for share in shares] == [["a", "index"], ["b", "index"]]


def test_no_client_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one client"):
        split(ranked(1), 0)


def test_a_single_tiny_file_still_has_minutes_and_a_huge_one_hours() -> None:
    small, large = split({0: [File("a", 10)]}, 1), split({0: [File("a", 10**12)]}, 1)
    assert deadline_seconds(small, None) == 300
    assert deadline_seconds(large, None) == 100_000
    assert deadline_seconds(large, 10_000_000) == 200_000


def client(name: str = "a", *, start: float = 0, seconds: float = 1, size: int = 100, **more: object) -> ClientFigures:
    values: dict[str, object] = {"phases": {"read": seconds}, "cached_ratio_before": 0.0, "verified": True, **more}
    return ClientFigures(name=name, ranks=(0,), bytes=size, seconds=seconds, started_seconds=start, **values)  # type: ignore[arg-type]


def test_the_fleet_time_is_that_of_whoever_ends_last_with_its_late_start_apart() -> None:
    fleet = combine([client("a", start=10.0, seconds=3), client("b", start=10.5, seconds=2.8)])
    assert fleet.slowest == "b"
    assert fleet.seconds == pytest.approx(3.3)
    assert fleet.phases == {"read": 2.8}
    assert fleet.unattributed_seconds == pytest.approx(0.5)
    assert fleet.start_skew_seconds == pytest.approx(0.5)
    assert fleet.bytes_per_second == pytest.approx(200 / 3.3)


def test_what_a_client_did_not_attribute_is_not_hidden() -> None:
    fleet = combine([client(seconds=2.0, phases={"read": 1.2, "verify": 0.3})])
    assert fleet.unattributed_seconds == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rates", "expected"), [([1, 1, 1, 1], 1.0), ([4, 0, 0, 0], 0.25), ([1, 3], 0.8), ([], None), ([0, 0], None)]
)
def test_jain_index(rates: list[float], expected: float | None) -> None:
    assert jain(rates) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(100, 0.0), (300, 1.0)], 0.75),
        ([(100, 0.5)], 0.5),
        ([(100, None), (300, 1.0)], None),
        ([(0, None), (10, 0.2)], 0.2),
        ([], None),
    ],
)
def test_the_cached_share_is_weighted_by_bytes_and_unknown_if_any_is(
    parts: list[tuple[int, float | None]], expected: float | None
) -> None:
    assert weighted_ratio(parts) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([True, True], True),
        ([True, None], None),
        ([True, False, None], False),
        ([None], None),
        ([], None),
    ],
)
def test_verified_needs_every_rank(verdicts: list[bool | None], expected: bool | None) -> None:
    assert all_verified(verdicts) is expected


def test_stragglers_are_named_slowest_first_and_only_against_at_least_three() -> None:
    assert stragglers({"a": 1, "b": 1, "c": 1.3, "d": 2.0, "e": 1}) == ("d", "c")
    assert stragglers({"a": 1, "b": 9}) == ()
