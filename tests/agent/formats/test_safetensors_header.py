from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Severity
from muster_agent.formats.safetensors_header import Header, parse_header, read_header
from muster_agent.formats.safetensors_quick import quick_names

from tests.agent.formats.fuzz import examples

BAD = Path(__file__).parents[2] / "data" / "safetensors" / "bad"
CASES = json.loads((BAD / "verdicts.json").read_text())["cases"]
STRICTER = {"duplicate-key"}


def head(document: object, data: bytes = b"") -> bytes:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def judge(data: bytes, **options: bool) -> Header:
    return parse_header(data[:65536], len(data), "x", lambda count: data[8 : 8 + count], **options)


def codes(header: Header) -> list[str]:
    return [found.code for found in header.findings]


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_verdict_is_the_librarys_or_stricter_where_two_readers_could_differ(name: str) -> None:
    header = read_header(str(BAD / f"{name}.safetensors"), name)
    accepted = CASES[name]["verdict"] == "accepted" and name not in STRICTER
    assert header.ok is accepted
    if accepted:
        assert sorted(header.names) == sorted(CASES[name]["keys"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_quick_yes_is_never_said_of_what_the_careful_reader_refuses(name: str) -> None:
    path = str(BAD / f"{name}.safetensors")
    quick, careful = read_header(path, name, with_tensors=False), read_header(path, name)
    assert (quick.ok, sorted(quick.names), quick.tensor_bytes) == (
        careful.ok,
        sorted(careful.names),
        careful.tensor_bytes,
    )
    assert quick.findings == careful.findings


def test_a_name_that_comes_twice_is_damage_and_named() -> None:
    entry = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    header = judge(head(f'{{"w":{entry},"w":{entry}}}'.encode(), b"x"))
    assert codes(header) == ["metadata_unreadable"]
    assert "'w' twice" in header.findings[0].detail


def test_a_field_that_comes_twice_inside_an_entry_is_damage() -> None:
    header = judge(head(b'{"w":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}', b"x"))
    assert not header.ok


def test_a_colon_in_a_name_is_no_duplicate() -> None:
    document = {"a:b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    assert judge(head(document, b"x")).ok
    assert judge(head(document, b"x"), with_tensors=False).ok


def test_a_git_lfs_pointer_is_named_with_its_own_cure() -> None:
    header = judge(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    assert "git lfs pull" in header.findings[0].cure


def test_an_html_page_is_named_as_a_failed_download() -> None:
    header = judge(b"<!DOCTYPE html><html><body>403</body></html>")
    assert "HTML" in header.findings[0].detail


def test_a_header_whose_length_looks_like_an_angle_bracket_is_read_as_a_header() -> None:
    raw = json.dumps({"__metadata__": {"k": ""}})
    raw = raw.replace('""', '"' + "x" * (60 - len(raw)) + '"')
    assert len(raw) == ord("<")
    assert judge(head(raw.encode())).ok


def test_a_file_of_zeros_is_data_that_never_reached_the_disk() -> None:
    header = judge(bytes(4096))
    assert (codes(header), header.findings[0].severity) == (["sparse_hole"], Severity.DAMAGE)


def test_a_data_type_of_a_newer_writer_is_unknown_and_not_damage() -> None:
    header = judge(head({"w": {"dtype": "F2", "shape": [4], "data_offsets": [0, 1]}}, b"x"))
    assert header.ok
    assert header.unknown_dtypes == {"F2"}


def test_a_header_with_too_many_entries_is_refused_before_it_is_decoded() -> None:
    raw = b"[" * 20_000_000
    header = judge(head(raw))
    assert "more entries" in header.findings[0].detail


def test_a_deeply_nested_header_is_refused() -> None:
    header = judge(head(b'{"a":' + b"[" * 100_000))
    assert codes(header) == ["metadata_unreadable"]


def test_truncation_names_the_bytes_that_are_lost() -> None:
    data = head({"w": {"dtype": "U8", "shape": [100], "data_offsets": [0, 100]}}, bytes(100))
    header = judge(data[:-40])
    found = header.findings[0]
    assert (found.code, found.begin_byte, found.end_byte) == ("shard_truncated", len(data) - 40, len(data))


def test_a_file_that_is_not_there_and_one_without_permission_are_findings(tmp_path: Path) -> None:
    assert codes(read_header(str(tmp_path / "none"), "none")) == ["listing_failed"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:

    os.mkfifo(tmp_path / "pipe")
    assert not read_header(str(tmp_path / "pipe"), "pipe").ok


def test_a_hole_in_a_whole_file_is_a_warning_with_its_range(tmp_path: Path) -> None:
    size = 8 * 1024 * 1024
    raw = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "w.safetensors"
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(raw)) + raw + b"w" * (size // 2 + 4096))
        stream.truncate(8 + len(raw) + size)
    header = read_header(str(path), "w")
    assert header.ok
    assert codes(header) == ["sparse_hole"]
    assert header.findings[0].end_byte == 8 + len(raw) + size


names = st.text(max_size=8)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "F32", "BF16", "F4", "nope"]),
        "shape": st.lists(st.integers(-1, 5), max_size=3),
        "data_offsets": st.lists(st.integers(-1, 40), min_size=1, max_size=3),
    }
)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(names, entries, max_size=3), st.binary(max_size=40), st.booleans())
def test_quick_and_careful_reading_never_disagree(
    document: dict[str, object], data: bytes, with_metadata: bool
) -> None:
    if with_metadata:
        document["__metadata__"] = {"format": "pt"}
    raw = head(document, data)
    quick = quick_names(raw[8 : len(raw) - len(data)], len(data))
    careful = judge(raw)
    sound = careful.ok and not careful.unknown_dtypes
    assert quick is None or (sound and sorted(quick) == sorted(careful.names))


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_header_with_findings_or_none(data: bytes) -> None:
    header = judge(data)
    assert header.ok or header.findings


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=120))
def test_any_header_text_gives_a_header_with_findings_or_none(raw: bytes) -> None:
    header = judge(head(raw, b"1234"))
    assert header.ok or header.findings


@pytest.mark.parametrize("name", ["extra-field", "leading-space-header"])
def test_what_is_odd_but_sound_has_no_cure_for_damage(name: str) -> None:
    header = read_header(str(BAD / f"{name}.safetensors"), name)
    assert header.ok and codes(header) == ["metadata_unreadable"]
    assert header.findings[0].severity is not Severity.DAMAGE
    assert "Copy the file back" not in header.findings[0].cure
