from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, look
from muster_agent.formats.torch_archive import (
    Loaded,
    TorchFile,
    add_torch_shard,
    examine,
    inspect,
    load,
    scalar,
    tensor_ranges,
)
from muster_agent.formats.tree import Opened

from tests.agent.formats.fuzz import examples
from tests.agent.torch_factory import (
    Call,
    Global,
    New,
    Tensor,
    entry,
    huge_zip,
    members_of,
    payload,
    torch_legacy,
    torch_zip,
    zip_of,
)

DATA = Path(__file__).parents[2] / "data"
STATE = {"model": {"w": Tensor("0", (4, 8)), "b": Tensor("1", (8,), "bfloat16")}, "step": 7, "epoch": 1}


class Bytes:
    """A file that lies in memory. See `tree.Opened`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size_bytes = data, len(data)

    def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
        assert length_bytes >= 0
        assert offset_bytes >= 0
        return self.data[offset_bytes : offset_bytes + length_bytes]

    def hole(self) -> None:
        return None


def seen(data: bytes) -> TorchFile:
    return examine(Bytes(data), "x.pt")  # type: ignore[arg-type]


def loaded(place: Path, data: bytes, name: str = "x.pt") -> Loaded:
    (place / name).write_bytes(data)
    return load(look(str(place), str(place)), name)


def codes(file: TorchFile | Loaded) -> list[str]:
    return [found.code for found in file.findings]


def damage_of(file: TorchFile | Loaded) -> list[str]:
    return [found.detail for found in file.findings if found.severity is Severity.DAMAGE]


# -- whole files -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kind"),
    [("zip.pt", "zip"), ("legacy.pt", "legacy"), ("torchscript.pt", "torchscript"), ("custom-class.pt", "zip")],
)
def test_real_files_are_whole(name: str, kind: str) -> None:
    folder = look(str(DATA / "torch"), str(DATA))
    file = inspect(folder, name)
    assert (file.kind, file.ok, file.findings) == (kind, True, ())


def test_real_values_and_tensors_are_found() -> None:
    read = load(look(str(DATA / "torch"), str(DATA)), "zip.pt")
    assert scalar(read.value, "step", "iteration") == 1234
    places = {tensor.name: tensor for tensor in tensor_ranges(read, "zip.pt")}
    assert places["model.w_view"].offset_bytes == places["model.w"].offset_bytes + 64
    raw = (DATA / "torch" / "zip.pt").read_bytes()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        weight = places["model.w"]
        assert raw[weight.offset_bytes : weight.offset_bytes + weight.length_bytes] == archive.read("zip/data/0")


def test_a_real_legacy_file_gives_its_tensors() -> None:
    read = load(look(str(DATA / "torch"), str(DATA)), "legacy.pt")
    raw = (DATA / "torch" / "legacy.pt").read_bytes()
    weight = next(tensor for tensor in tensor_ranges(read, "legacy.pt") if tensor.name == "model.w")
    values = struct.unpack("<64f", raw[weight.offset_bytes : weight.offset_bytes + weight.length_bytes])
    assert values == tuple(float(value) for value in range(64))


def test_a_class_of_the_training_script_is_only_a_note() -> None:
    read = load(look(str(DATA / "torch"), str(DATA)), "custom-class.pt")
    assert [(found.code, found.severity) for found in read.findings] == [("custom_globals", Severity.NOTE)]


def test_files_without_check_sums_are_whole(tmp_path: Path) -> None:
    assert loaded(tmp_path, torch_zip(STATE, with_crc=False)).findings == ()


def test_the_made_files_are_like_the_real_ones(tmp_path: Path) -> None:
    read = loaded(tmp_path, torch_zip(STATE))
    raw = (tmp_path / "x.pt").read_bytes()
    for tensor, made in zip(tensor_ranges(read, "x.pt"), STATE["model"].values(), strict=True):  # type: ignore[attr-defined]
        assert tensor.offset_bytes % 64 == 0
        assert raw[tensor.offset_bytes : tensor.offset_bytes + tensor.length_bytes] == payload(made)


def test_a_directory_larger_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    state = {f"layer{number}": Tensor(str(number), (2,)) for number in range(500)}
    read = loaded(tmp_path, torch_zip(state))
    assert read.findings == ()
    assert len(tensor_ranges(read, "x.pt")) == 500


def test_more_members_than_sixteen_bits_count() -> None:
    archive = zip_of([("a/data.pkl", b"N."), *((f"a/data/{number}", b"x") for number in range(66_000))])
    file = seen(archive)
    assert (file.ok, len(file.members)) == (True, 66_002 - 1)


def test_offsets_beyond_four_gib_are_right(tmp_path: Path) -> None:
    state = {"first": Tensor("0", (5, 1 << 30), "bfloat16"), "second": Tensor("1", (8,)), "step": 3}
    headers = huge_zip(tmp_path / "big.pt", state, lambda tensor: tensor.size_bytes)
    assert headers[1] > 1 << 33
    read = load(look(str(tmp_path), str(tmp_path)), "big.pt")
    assert (read.file.kind, damage_of(read)) == ("zip", [])
    places = {tensor.name: tensor for tensor in tensor_ranges(read, "big.pt")}
    assert places["first"].length_bytes == 5 << 31
    assert places["second"].offset_bytes == headers[1] + 64


def test_a_zip_with_a_comment_is_read(tmp_path: Path) -> None:
    data = torch_zip(STATE)
    comment = b"saved by hand PK\x05\x06 and more"
    assert loaded(tmp_path, data[:-2] + struct.pack("<H", len(comment)) + comment).findings == ()


def test_a_zip_written_again_by_another_tool_is_a_warning(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members_of(STATE):
            archive.writestr(name, data * 1)
    file = inspect(look(str(tmp_path), str(tmp_path)), "x.pt")
    assert [(found.code, found.severity) for found in file.findings] == [("metadata_unreadable", Severity.WARNING)]


def test_two_archives_in_one_file_are_told(tmp_path: Path) -> None:
    first, second = torch_zip({"step": 1}), torch_zip({**STATE, "step": 2})
    read = loaded(tmp_path, first + second)
    assert [(found.code, found.severity) for found in read.findings] == [("shard_oversized", Severity.WARNING)]
    assert scalar(read.value, "step") == 2
    assert tensor_ranges(read, "x.pt")[0].offset_bytes > len(first)


def test_legacy_files_are_whole_where_the_storages_end_with_the_file(tmp_path: Path) -> None:
    data = torch_legacy(STATE)
    assert loaded(tmp_path, data).findings == ()
    assert codes(seen(data[:-1])) == ["shard_truncated"]
    assert codes(seen(data + b"x")) == ["shard_oversized"]
    assert codes(seen(data[:300])) == ["shard_truncated"]


# -- files that are something else -------------------------------------------------------------------------------------
LOOKALIKES = {
    "is a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "is an HTML or XML page": b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
    "is JSON text": b'{"error": "Entry not found", "request": "3f"}',
    "holds only zeros": bytes(9000),
    "is a safetensors file": struct.pack("<Q", 60) + b'{"w":{"dtype":"F32"' + b" " * 100,
    "has 0 bytes": b"",
    "was cut at byte": torch_zip(STATE)[:900],
    "ends with zeros": torch_zip(STATE)[:900] + bytes(700),
    "bytes more lie behind its end": torch_zip(STATE) + b"another 16 bytes",
    "its beginning is zeros": bytes(4096) + torch_zip({f"w{n}": Tensor(str(n), (64,)) for n in range(30)})[4096:],
    "does not begin as a zip": b"<html>" + torch_zip(STATE)[6:],
    "is a pickle that does not end as one": b"\x80\x04]q\x00(K\x01K\x02",
}


@pytest.mark.parametrize("sentence", LOOKALIKES)
def test_a_file_that_is_something_else_says_what_it_is(sentence: str) -> None:
    file = seen(LOOKALIKES[sentence])
    assert not file.ok
    assert [sentence in detail for detail in damage_of(file)] == [True]


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"\x93NUMPY\x01\x00v\x00", "other"), (b"GGUF\x03\x00\x00\x00", "other"), (bytes(8) + b"text" * 200, "other")],
)
def test_what_is_not_recognised_is_no_damage(data: bytes, kind: str) -> None:
    file = seen(data)
    assert (file.kind, codes(file), damage_of(file)) == (kind, ["format_unknown"], [])


def test_a_tar_of_the_first_torch_is_told_as_not_read() -> None:
    header = b"sys_info" + bytes(249) + b"ustar" + bytes(250)
    assert (seen(header).kind, codes(seen(header))) == ("tar", ["format_unknown"])


def test_a_zip_of_something_else_is_not_recognised() -> None:
    assert (seen(zip_of([("word/document.xml", b"<x/>")])).kind) == "other"


# -- damage ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["zip.pt", "custom-class.pt", "torchscript.pt", "legacy.pt"])
def test_every_cut_of_a_real_file_is_found(name: str) -> None:
    data = (DATA / "torch" / name).read_bytes()
    for size in range(len(data)):
        assert damage_of(seen(data[:size])), size


def test_a_member_that_the_pickle_needs_and_is_not_there(tmp_path: Path) -> None:
    members = [member for member in members_of(STATE) if not member[0].endswith("data/1")]
    read = loaded(tmp_path, zip_of(members))
    assert codes(read) == ["ranges_gap"]
    assert "'archive/data/1'" in damage_of(read)[0]


def test_a_member_that_is_too_short(tmp_path: Path) -> None:
    members = [(name, data[:-4] if name.endswith("data/0") else data) for name, data in members_of(STATE)]
    read = loaded(tmp_path, zip_of(members))
    assert damage_of(read) == ["member 'archive/data/0' of x.pt has 124 bytes, its tensors need 128"]
    assert [tensor.name for tensor in tensor_ranges(read, "x.pt")] == ["model.b"]


def test_a_foreign_middle_is_found_where_members_should_begin(tmp_path: Path) -> None:
    data = bytearray(torch_zip({f"w{number}": Tensor(str(number), (64,)) for number in range(40)}))
    data[2000:9000] = random.Random(1).randbytes(7000)
    read = loaded(tmp_path, bytes(data))
    assert codes(read) == ["metadata_unreadable"]
    assert "lie other bytes" in damage_of(read)[0]


@pytest.mark.parametrize(
    ("name", "code"),
    [("../../evil", "path_unsafe"), ("/etc/x", "path_unsafe"), ("a\\b", "path_unsafe"), ("a/./b", "path_unsafe")],
)
def test_names_that_lead_elsewhere_are_refused(name: str, code: str) -> None:
    assert codes(seen(zip_of([("archive/data.pkl", b"N."), (name, b"x")]))) == [code]


def test_a_name_with_a_nul_is_refused() -> None:
    data = torch_zip(STATE).replace(b"archive/data/1", b"archive/\0ata/1")
    assert codes(seen(data)) == ["path_unsafe"]


def test_overlapping_members_are_refused() -> None:
    members = [("archive/data.pkl", b"N."), ("archive/data/0", b"x" * 100), ("archive/data/1", b"y" * 100)]
    data = zip_of(members)
    header = data.rindex(b"PK\x03\x04")
    first = entry("archive/data/1", header, 100, zlib.crc32(b"y" * 100))
    assert codes(seen(data.replace(first, entry("archive/data/1", 64, 100, 0)))) == ["ranges_overlap"]


@pytest.mark.parametrize(
    ("field", "value"),
    [(-10, 1 << 31), (-6, 1 << 31), (-12, 3), (-98 + 32, 1 << 60), (-98 + 48, 1 << 60)],
)
def test_an_end_record_that_lies_costs_nothing(field: int, value: int) -> None:
    data = bytearray(torch_zip(STATE))
    if field < -22:
        data[len(data) + field : len(data) + field + 8] = value.to_bytes(8, "little")
    else:
        del data[-98:-22]
        width = 2 if value < 100 else 4
        data[len(data) + field : len(data) + field + width] = value.to_bytes(width, "little")
    assert codes(seen(bytes(data))) == ["metadata_unreadable"]


def test_a_member_beyond_the_data_is_refused() -> None:
    data = torch_zip(STATE)
    last = entry("archive/.data/serialization_id", data.rindex(b"PK\x03\x04"), 40, zlib.crc32(b"1" * 40))
    longer = last[:20] + struct.pack("<LL", 4000, 4000) + last[28:]
    assert "into the directory" in damage_of(seen(data.replace(last, longer)))[0]


def test_a_hole_in_a_file_without_sums_is_a_warning_with_its_range(tmp_path: Path) -> None:
    data = torch_zip({"w": Tensor("0", (1 << 20,))}, with_crc=False)
    (tmp_path / "x.pt").write_bytes(data)
    with (tmp_path / "x.pt").open("r+b") as file:
        file.truncate(1 << 20)
        file.truncate(len(data))
        file.seek(3 << 20)
        file.write(data[3 << 20 :])
    file_seen = inspect(look(str(tmp_path), str(tmp_path)), "x.pt")
    assert [(found.code, found.severity, found.begin_byte) for found in file_seen.findings] == [
        ("sparse_hole", Severity.WARNING, 1 << 20)
    ]


# -- pickles that ask for code -----------------------------------------------------------------------------------------
def test_code_is_named_and_the_step_stays_readable(tmp_path: Path) -> None:
    state = {**STATE, "hook": Call(Global("posix", "system"), ("true",))}
    read = loaded(tmp_path, torch_zip(state))
    assert (codes(read), scalar(read.value, "step")) == (["metadata_unsafe"], 7)
    assert len(tensor_ranges(read, "x.pt")) == 2


def test_the_draft_keeps_its_structure_where_a_pickle_asks_for_code(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(torch_zip({"hook": Call(Global("builtins", "eval"), ("1",))}))
    draft = Draft("torch_save")
    add_torch_shard(draft, look(str(tmp_path), str(tmp_path)), "x.pt", values=True, role=Role.MODEL, rank=1)
    assert draft.structure_known
    assert (draft.shards[0].role, draft.shards[0].rank) == (Role.MODEL, 1)


def test_a_state_of_a_third_class_is_read_through(tmp_path: Path) -> None:
    read = loaded(tmp_path, torch_zip(New(Global("my.code", "State"), {"step": 5})))
    assert (codes(read), scalar(read.value, "step")) == (["custom_globals"], 5)


# -- what could not be looked at ---------------------------------------------------------------------------------------
def test_an_absent_file_is_missing_and_a_blocked_one_is_not(tmp_path: Path) -> None:
    draft, folder = Draft("torch_save"), look(str(tmp_path), str(tmp_path))
    folder.blocked.add("blocked.pt")
    assert add_torch_shard(draft, folder, "gone.pt") is None
    assert add_torch_shard(draft, folder, "blocked.pt") is None
    assert [(found.code, found.path) for found in draft.findings] == [("shard_missing", "gone.pt")]


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    folder = _Denied(str(tmp_path), str(tmp_path))
    assert codes(inspect(folder, "x.pt")) == codes(load(folder, "x.pt")) == ["permission_denied"]


class _Denied(Folder):
    """A folder whose files cannot be opened."""

    def open(self, name: str) -> Opened:
        raise PermissionError(13, f"{name} is not for you")


# -- any bytes ---------------------------------------------------------------------------------------------------------
ARCHIVE = torch_zip(STATE)


@settings(max_examples=examples(300), deadline=5_000)
@given(st.lists(st.tuples(st.integers(0, len(ARCHIVE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_zip_with_changed_bytes(changes: list[tuple[int, int]]) -> None:
    data = bytearray(ARCHIVE)
    for place, byte in changes:
        data[place] = byte
    file = seen(bytes(data))
    assert file.ok or file.findings
    assert len(file.members) < 20


@settings(max_examples=examples(300), deadline=5_000)
@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 1 << 33), st.integers(0, 1 << 33))
def test_any_directory_behind_any_end_record(raw: bytes, count: int, size: int, offset: int) -> None:
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size % (1 << 32), offset % (1 << 32), 0)
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 0, 0, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, offset, 1)
    for ending in (end, wide + locator + end, locator + end):
        file = seen(b"PK\x03\x04" + raw + ending)
        assert file.ok or file.findings


@settings(max_examples=examples(300), deadline=5_000)
@given(st.binary(max_size=600), st.sampled_from([b"", b"\x80\x02", b"PK\x03\x04", torch_legacy(STATE)[:120]]))
def test_any_bytes_as_a_torch_file(data: bytes, head: bytes) -> None:
    file = seen(head + data)
    assert file.ok or file.findings
