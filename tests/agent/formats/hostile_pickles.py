"""Pickles that were made to hurt whoever reads them: to run code, or to cost far more than they weigh.

Each is harmless to bytes on disk: what it would run makes a file at CANARY.
"""

from __future__ import annotations

import os
import pickle
import random
import struct
from typing import Any

CANARY = "muster-canary"
_TOUCH = f"touch {CANARY}"


class Attack:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def name(module: str, attribute: str) -> bytes:
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def nested_stream() -> bytes:
    inner = pickle.dumps(Attack(os.system, _TOUCH), 2)
    return (
        b"\x80\x02"
        + name("torch.storage", "_load_from_bytes")
        + b"B"
        + struct.pack("<I", len(inner))
        + inner
        + b"\x85R."
    )


def colliding(count: int) -> bytes:
    """Two-number tuples whose hashes are equal: what the first number adds to the hash, the second takes away."""
    first, second, third, mask = 11400714785074694791, 14029467366897019727, 2870177450012600261, (1 << 64) - 1
    goal, made, number = 0x1234567, [], 0
    inverse_first, inverse_second = pow(first, -1, 1 << 64), pow(second, -1, 1 << 64)

    def turned(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & mask

    while len(made) < count:
        number += 1
        after_one = turned((third + number * second) & mask, 31) * first & mask
        before_last = turned(goal * inverse_first & mask, 33)
        last = (before_last - after_one) * inverse_second & mask
        if last < (1 << 61) - 1:
            made.append((number, last))
    assert len({hash(pair) for pair in made[:10]}) == 1
    return b"".join(b"\x8a\x08" + struct.pack("<Q", one) + b"\x8a\x08" + struct.pack("<Q", two) for one, two in made)


COLLIDING = colliding(20_000)
METADATA = "torch.distributed.checkpoint.metadata"
CHUNK_BEGIN = b")\x81}(" + text("offsets")


def metadata(entries: bytes) -> bytes:
    return (
        b"\x80\x04"
        + name(METADATA, "Metadata")
        + b")\x81}("
        + text("state_dict_metadata")
        + entries
        + text("storage_data")
        + b"}ub."
    )


def tensor(chunks: bytes) -> bytes:
    return name(METADATA, "TensorStorageMetadata") + b")\x81}(" + text("size") + b")" + text("chunks") + chunks + b"ub"


def chunks_with_colliding_offsets() -> bytes:
    numbers = COLLIDING
    one = name(METADATA, "ChunkStorageMetadata") + b"q\x01" + text("offsets") + b"q\x02" + text("sizes") + b"q\x03000"
    parts = (b"h\x01)\x81}(h\x02" + numbers[at : at + 20] + b"\x86h\x03)ub" for at in range(0, len(numbers), 20))
    return metadata(b"}(" + text("w") + one + tensor(b"](" + b"".join(parts) + b"e") + b"u")


def chunks_shared_by_all_tensors(tensors: int, chunks: int) -> bytes:
    one = name(METADATA, "ChunkStorageMetadata") + b")\x81}(" + text("offsets") + b")" + text("sizes") + b")ub"
    first = tensor(b"]q\x01(" + one + b"q\x02" + b"h\x02" * chunks + b"e")
    rest = b"".join(text(f"w{index}") + tensor(b"h\x01") for index in range(tensors))
    return metadata(b"}(" + text("w") + first + rest + b"u")


def protocols(attack: Attack) -> dict[str, bytes]:
    return {str(protocol): pickle.dumps({"step": 1, "x": attack}, protocol) for protocol in range(6)}


SHARED_LIST = b"\x80\x04](" + b"N" * 100_000 + b"eq\x00"
SHARED_TEXT = b"\x80\x04" + text("x" * 500_000) + b"q\x00"

RUNS: dict[str, bytes] = {
    **{f"shell-{key}": data for key, data in protocols(Attack(os.system, _TOUCH)).items()},
    **{f"exec-{key}": data for key, data in protocols(Attack(exec, f"open({CANARY!r}, 'w')")).items()},
    "inst": b"(S'" + _TOUCH.encode() + b"'\nios\nsystem\n.",
    "obj": b"(" + name("os", "system") + text(_TOUCH) + b"o.",
    "new-object": name("os", "system") + text(_TOUCH) + b"\x85\x81.",
    "new-object-with-names": name("os", "system") + text(_TOUCH) + b"\x85}\x92.",
    "getattr-chain": name("builtins", "getattr") + name("os", "path") + text("os") + b"\x86R.",
    "dotted-name": b"\x80\x04" + text("torch") + text("serialization.os.system") + b"\x93" + text(_TOUCH) + b"\x85R.",
    "name-from-memo": b"\x80\x04"
    + text("system")
    + b"q\x00"
    + text("os")
    + b"q\x0100h\x01h\x00\x93"
    + text(_TOUCH)
    + b"\x85R.",
    "name-made-at-run-time": b"\x80\x04" + text("os") + b"K\x01\x93" + text(_TOUCH) + b"\x85R.",
    "memo-overwritten": b"\x80\x04"
    + text("Size")
    + b"q\x000"
    + text("system")
    + b"q\x000"
    + text("os")
    + b"h\x00\x93"
    + text(_TOUCH)
    + b"\x85R.",
    "pop-below-a-mark": b"\x80\x04"
    + text("os")
    + b"(00"
    + text("os")
    + text("system")
    + b"\x93"
    + text(_TOUCH)
    + b"\x85R.",
    "call-of-a-result": name("functools", "partial") + name("os", "system") + text(_TOUCH) + b"\x86R)R.",
    "call-through-a-rebuild": name("torch._tensor", "_rebuild_from_type_v2")
    + b"("
    + name("os", "system")
    + name("torch", "Tensor")
    + text(_TOUCH)
    + b"\x85NtR.",
    "nested-stream": nested_stream(),
    "extension-1": b"\x80\x02\x82\x01.",
    "extension-2": b"\x80\x02\x83\x01\x00.",
    "extension-4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "state-of-a-function": name("os", "system") + text("x") + b"b.",
    "default-factory": name("collections", "defaultdict") + name("os", "getcwd") + b"\x85R.",
    "numpy-load": pickle.dumps(Attack(os.remove, CANARY), 4),
}
"""Loading these would run something, or reach for a name that no checkpoint needs."""

COSTS: dict[str, bytes] = {
    "text-of-2^62-bytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "bytes-of-2^62-bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.",
    "byte-array-of-2^40-bytes": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "bytes-of-4-GiB": b"\x80\x03B\xff\xff\xff\xffx.",
    "text-of-4-GiB": b"\x80\x03X\xff\xff\xff\xffx.",
    "old-text-of-2-GiB": b"\x80\x02T\xff\xff\xff\x7fx.",
    "integer-of-2-GiB": b"\x80\x02\x8b\xff\xff\xff\x7fx.",
    "integer-of-a-negative-length": b"\x80\x02\x8b\xff\xff\xff\xffx.",
    "integer-of-a-million-digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "frame-of-2^60-bytes": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
    "memo-place-4-billion": b"\x80\x02Nr\xff\xff\xff\xff.",
    "memo-place-of-many-digits": b"Np" + b"9" * 100 + b"\n.",
    "negative-memo-place": b"Np-1\n.",
    "next-buffer": b"\x80\x05\x97.",
    "read-only-buffer": b"\x80\x05N\x98.",
    "deep-lists": b"\x80\x04" + b"]" * 500_000 + b"a" * 499_999 + b".",
    "deep-tuples": b"\x80\x04)" + b"\x85" * 1_000_000 + b".",
    "deep-dictionaries": b"\x80\x04" + b"}N" * 300_000 + b"Ns" + b"s" * 299_999 + b".",
    "deep-tuple-as-a-key": b"\x80\x04})" + b"\x85" * 1_000_000 + b"K\x01s.",
    "deep-rebuild": b"\x80\x04"
    + (name("torch._tensor", "_rebuild_from_type_v2") + b"N") * 20_000
    + b")"
    + b"N\x87" * 20_000
    + b"R.",
    "deep-new-objects": b"\x80\x04" + name("copyreg", "__newobj__") + b"q\x00(" + b"h\x00" * 500_000 + b"tR.",
    "deep-state": b"\x80\x04" + name("torch", "device") + b"q\x00" + b"h\x00)\x81" * 200_000 + b"b" * 199_999 + b".",
    "flood-of-marks": b"\x80\x04" + b"(" * 1_000_000,
    "flood-of-duplicates": b"\x80\x04N" + b"2" * 1_000_000,
    "flood-of-dictionaries": b"\x80\x04" + b"}" * 1_000_000,
    "flood-of-small-dictionaries": b"\x80\x04]" + b"}NNsa" * 200_000 + b".",
    "flood-of-references": b"\x80\x04" + b"j\x01\x02\x03\x00" * 200_000,
    "references-hidden-in-bytes": b"\x80\x04B"
    + struct.pack("<I", 1_000_000)
    + random.Random(1).randbytes(500_000).hex().replace("0", "j").encode()
    + b".",
    "laughing-lists": b"\x80\x02]q\x000" + b"".join(b"]q%c(h%ch%ce0" % (n + 1, n, n) for n in range(200)) + b"h\xc8.",
    "laughing-tuples": b"\x80\x02Nq\x00"
    + b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(200))
    + b"0" * 200
    + b".",
    "list-in-itself": b"\x80\x02]q\x00h\x00a.",
    "dictionary-in-itself": b"\x80\x02}q\x00Nh\x00s.",
    "state-in-itself": name("torch", "device") + b")\x81q\x00h\x00b.",
    "shared-list-copied-again": SHARED_LIST + name("builtins", "set") + b"q\x01" + b"0h\x01h\x00\x85R" * 40_000 + b".",
    "shared-pairs-copied-again": b"\x80\x04]("
    + b"NN\x86" * 50_000
    + b"eq\x00"
    + name("collections", "OrderedDict")
    + b"q\x01"
    + b"0h\x01h\x00\x85R" * 40_000
    + b".",
    "shared-text-encoded-again": SHARED_TEXT
    + name("_codecs", "encode")
    + b"q\x01"
    + text("latin1")
    + b"q\x02"
    + b"0h\x01h\x00h\x02\x86R" * 40_000
    + b".",
    "shared-text-in-names": SHARED_TEXT + b"0" + b"h\x00h\x00\x930" * 90_000 + b"N.",
    "shared-text-as-a-number": SHARED_TEXT
    + name("numpy.core.multiarray", "scalar")
    + b"q\x01"
    + name("numpy", "dtype")
    + text("i8")
    + b"\x85Rq\x02"
    + b"0h\x01h\x02h\x00\x86R" * 40_000
    + b".",
    "shared-state-merged-again": b"\x80\x04}("
    + b"".join(b"M%bN" % struct.pack("<H", n) for n in range(999))
    + b"uq\x00h\x00\x86q\x01"
    + name("torch", "device")
    + b"q\x02]"
    + b"h\x02)\x81h\x01ba" * 40_000
    + b".",
    "storage-placed-on-a-deep-list": b"\x80\x02("
    + text("storage")
    + name("torch", "FloatStorage")
    + text("0")
    + b"]" * 100_000
    + b"a" * 99_999
    + b"K\x01tQ.",
    "tensor-of-a-million-dimensions": b"\x80\x02"
    + name("torch._utils", "_rebuild_tensor_v2")
    + b"(("
    + text("storage")
    + name("torch", "FloatStorage")
    + text("0")
    + text("cpu")
    + b"K\x01tQK\x00("
    + b"K\x01" * 500_000
    + b"t)\x89NtR.",
    "numbers-that-collide": b"\x80\x04}("
    + b"".join(b"\x8a\x0b" + (n * ((1 << 61) - 1)).to_bytes(11, "little") + b"N" for n in range(2, 75_000))
    + b"u.",
    "tuples-that-collide": b"\x80\x04}("
    + b"".join(COLLIDING[at : at + 20] + b"\x86N" for at in range(0, len(COLLIDING), 20))
    + b"u.",
    "offsets-that-collide": chunks_with_colliding_offsets(),
    "chunks-shared-by-all-tensors": chunks_shared_by_all_tensors(2_000, 300_000),
    "long-path-above-many-tensors": b"\x80\x02"
    + (b"}" + text("p" * 500)) * 30
    + b"}("
    + b"".join(text(f"{n}") + b"]" for n in range(90_000))
    + b"u"
    + b"s" * 30
    + b".",
    "text-that-is-not-utf-8": b"\x80\x04\x8c\x02\xff\xfe.",
    "bytes-behind-the-end": b"\x80\x04N." + b"x" * 1_000_000,
    "protocol-of-the-future": b"\x80\x09N.",
    "nothing-at-all": b"",
    "no-end": b"\x80\x04N",
    "two-values": b"\x80\x04NN.",
    "an-open-mark": b"\x80\x04(N.",
    "line-without-end": b"c" + b"a" * 1_000_000,
}
"""These cost time or memory beyond their size, or break off."""
