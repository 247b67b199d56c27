"""Emulated: uploads in parts with CRCs that the store compares, keeps and tells, and puts under a condition, as the S3
of Amazon has them and the real server of the tests does not. Each test that runs against it is marked `emulated`."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from muster_agent.formats.crc32c import crc32c
from muster_agent.formats.fast_crc import fast_crc

from tests.servers.emulated_s3 import EmulatedS3, Handler, Stored

_FIELD = "x-amz-checksum-{}"


@dataclass
class Part:
    data: bytes
    crc: int


@dataclass
class UnderWay:
    key: str
    algorithm: str
    parts: dict[int, Part] = field(default_factory=dict)


@dataclass
class Summed(Stored):
    """`sums` are the headers that tell what is kept; the ETag of an upload in parts is made of their MD5s."""

    sums: dict[str, str] = field(default_factory=dict)
    part_sizes: tuple[int, ...] = ()

    @property
    def etag(self) -> str:
        if not self.part_sizes:
            return hashlib.md5(self.data).hexdigest()
        at, digests = 0, b""
        for size in self.part_sizes:
            digests += hashlib.md5(self.data[at : at + size]).digest()
            at += size
        return f"{hashlib.md5(digests).hexdigest()}-{len(self.part_sizes)}"


class EmulatedUploads(EmulatedS3):
    """`compares`: the kinds of CRC that it knows. `unknown`: what it does with another: `ignore`, or refuse with 400 or
    501. `tells`: where it tells what it keeps: in the answer to `head`, by `attributes`, or nowhere (``). `turns` says
    which key's data rots while it is stored, before the CRC that is kept is made; `spoils_parts` turns a bit of every
    part once its MD5 was compared."""

    def __init__(self) -> None:
        self.compares: tuple[str, ...] = ("crc64nvme", "crc32c")
        self.unknown, self.tells = "ignore", "head"
        self.turns = ""
        self.spoils_parts = False
        self.keeps_conditions = True
        self.under_way: dict[str, UnderWay] = {}
        super().__init__()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return type("OneHandler", (_Uploads,), {"store": self})


class _Uploads(Handler):
    store: EmulatedUploads

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_POST(self) -> None:  # noqa: N802 - the name that the server looks for
        key, query = self._target()
        body = self._body()
        if "uploads" in query:
            self._begin(key)
        else:
            self._complete(key, query["uploadId"][0], body.decode())

    def _begin(self, key: str) -> None:
        store = self.store
        algorithm = self.headers.get("x-amz-checksum-algorithm", "").lower()
        if algorithm and algorithm not in store.compares and store.unknown != "ignore":
            return self._refuse(int(store.unknown), "InvalidRequest" if store.unknown == "400" else "NotImplemented")
        algorithm = algorithm if algorithm in store.compares else ""
        number = f"up-{len(store.asked)}"
        store.under_way[number] = UnderWay(key, algorithm)
        told = {"x_amz_checksum_algorithm": algorithm.upper()} if algorithm else {}
        xml = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
        return self._answer(200, xml.encode(), **told)

    def do_PUT(self) -> None:  # noqa: N802 - the name that the server looks for
        key, query = self._target()
        body = self._body()
        md5 = self.headers.get("Content-MD5")
        if md5 and base64.b64decode(md5) != hashlib.md5(body).digest():
            return self._refuse(400, "BadDigest")
        if "uploadId" in query:
            return self._put_part(query["uploadId"][0], int(query["partNumber"][0]), body)
        there = self.store.objects.get(key)
        if self.store.keeps_conditions:
            wanted = self.headers.get("If-Match")
            if wanted and there is None:
                return self._refuse(404, "NoSuchKey")
            if (wanted and there and wanted.strip('"') != there.etag) or (self.headers.get("If-None-Match") and there):
                return self._refuse(412, "PreconditionFailed")
        elif self.headers.get("If-Match"):
            return self._refuse(412, "PreconditionFailed")
        self.store.objects[key] = made = Summed(body)
        return self._answer(200, ETag=f'"{made.etag}"')

    def _put_part(self, upload_id: str, number: int, body: bytes) -> None:
        upload = self.store.under_way.get(upload_id)
        if upload is None:
            return self._refuse(404, "NoSuchUpload")
        if self.store.spoils_parts:
            body = body[:-1] + bytes([body[-1] ^ 1])
        crc = _crc(upload.algorithm, body)
        sent = self.headers.get(_FIELD.format(upload.algorithm))
        if upload.algorithm and (sent is None or sent != _coded(upload.algorithm, crc)):
            return self._refuse(400, "BadDigest")
        upload.parts[number] = Part(body, crc)
        return self._answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')

    def _complete(self, key: str, upload_id: str, asked: str) -> None:
        upload = self.store.under_way.get(upload_id)
        if upload is None:
            return self._refuse(404, "NoSuchUpload")
        parts = [upload.parts[int(one)] for one in re.findall(r"<PartNumber>(\d+)</PartNumber>", asked)]
        data = b"".join(part.data for part in parts)
        if self.store.turns and self.store.turns in key:
            data = data[:-1] + bytes([data[-1] ^ 1])
        whole = _coded(upload.algorithm, _crc(upload.algorithm, b"".join(part.data for part in parts)))
        if self.headers.get(_FIELD.format(upload.algorithm), whole) != whole:
            return self._refuse(400, "BadDigest")
        sums = self._sums(upload.algorithm, parts, data)
        made = Summed(data, sums=sums, part_sizes=tuple(len(part.data) for part in parts))
        self.store.objects[key] = made
        del self.store.under_way[upload_id]
        xml = f"<CompleteMultipartUploadResult><ETag>&quot;{made.etag}&quot;</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, xml.encode())

    def _sums(self, algorithm: str, parts: list[Part], data: bytes) -> dict[str, str]:
        """CRC-64/NVME is of the whole object, CRC-32C of the parts' sums."""
        if not algorithm:
            return {}
        if algorithm == "crc64nvme":
            told, kind = _coded(algorithm, _crc(algorithm, data)), "FULL_OBJECT"
        else:
            joined = b"".join(part.crc.to_bytes(4, "big") for part in parts)
            turned = data != b"".join(part.data for part in parts)
            told = f"{_coded(algorithm, crc32c(joined) ^ turned)}-{len(parts)}"
            kind = "COMPOSITE"
        return {_FIELD.format(algorithm): told, "x-amz-checksum-type": kind}

    def do_DELETE(self) -> None:  # noqa: N802 - the name that the server looks for
        key, query = self._target()
        if "uploadId" in query:
            self.store.under_way.pop(query["uploadId"][0], None)
        else:
            self.store.objects.pop(key, None)
        self._answer(204)

    def told(self, stored: Stored) -> dict[str, str]:
        asked = self.command == "HEAD" and self.headers.get("x-amz-checksum-mode") == "ENABLED"
        return stored.sums if asked and self.store.tells == "head" and isinstance(stored, Summed) else {}

    def do_GET(self) -> None:  # noqa: N802 - the name that the server looks for
        key, query = self._target()
        stored = self.store.objects.get(key)
        if "attributes" in query and isinstance(stored, Summed):
            return self._attributes(stored)
        return self.serve(key, query)

    def _attributes(self, stored: Summed) -> None:
        told, parts = "", ""
        if self.store.tells == "attributes":
            for name, value in stored.sums.items():
                short = name.removeprefix("x-amz-checksum-")
                tag = "ChecksumType" if short == "type" else f"Checksum{short.upper()}"
                told += (
                    f"<{tag}>{value.partition('-')[0]}</{tag}>" if tag != "ChecksumType" else f"<{tag}>{value}</{tag}>"
                )
            parts = f"<ObjectParts><PartsCount>{len(stored.part_sizes)}</PartsCount></ObjectParts>"
        xml = f"<GetObjectAttributesResponse><Checksum>{told}</Checksum>{parts}</GetObjectAttributesResponse>"
        self._answer(200, xml.encode())


def _crc(algorithm: str, data: bytes) -> int:
    crc = fast_crc(algorithm)
    return crc.of(memoryview(data)) if crc is not None else 0


def _coded(algorithm: str, value: int) -> str:
    crc = fast_crc(algorithm)
    return crc.coded(value) if crc is not None else ""
