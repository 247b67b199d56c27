"""Writing to an object store that speaks S3: uploads in parts, each compared with its MD5 by the store before it keeps
it, and with a CRC where the store has one. Nothing of an upload is to be seen before it is completed."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from muster_agent.formats.fast_crc import fast_crc
from muster_agent.storage.s3_client import S3Store
from muster_agent.storage.s3_sent_sums import SentSums, begin_fields, field, is_taken

MIN_PART_BYTES = 5 * 1024 * 1024
MAX_PARTS = 10_000


class Upload(NamedTuple):
    """One that was begun and neither completed nor aborted."""

    key: str
    upload_id: str


class Begun(NamedTuple):
    """A new upload; `algorithm` is the CRC that the store will compare, empty where it has none that was asked for."""

    upload_id: str
    algorithm: str


class SentPart(NamedTuple):
    """`md5` is what the store compared, `etag` what it gave, both hex where its ETags are MD5 sums; `crc` the value of
    the upload's CRC, 0 where it has none."""

    md5: str
    etag: str
    crc: int


def etag_of_parts(etags: Mapping[int, str]) -> str:
    """The ETag that a store gives an object of these parts, where ETags are MD5 sums."""
    digests = b"".join(bytes.fromhex(etags[number]) for number in sorted(etags))
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


class S3Writer(S3Store):
    """All raise OSError, as `ObjectStore` says."""

    @classmethod
    def over(cls, store: S3Store) -> S3Writer:
        """A writer with the same client."""
        return cls(store._client, first_wait_seconds=store.first_wait_seconds, networks=store.networks)

    def begin(self, bucket: str, key: str) -> str:
        """The id of a new upload."""
        return self.begin_summed(bucket, key, ()).upload_id

    def begin_summed(self, bucket: str, key: str, algorithms: Sequence[str]) -> Begun:
        """A new upload with the first of these kinds of CRC (`s3_sent_sums`) that the store says it will compare."""
        unsummed = ""
        for algorithm in (*algorithms, ""):
            if unsummed and not algorithm:
                break
            try:
                answer = self._begin(bucket, key, algorithm)
            except OSError as error:
                if not algorithm or error.errno != errno.EOPNOTSUPP:
                    raise
                continue
            if unsummed:
                with contextlib.suppress(OSError):  # what cannot be dropped now is, before the proof
                    self.abort(bucket, Upload(key, unsummed))
            if not algorithm or is_taken(answer, algorithm):
                return Begun(answer["UploadId"], algorithm)
            unsummed = answer["UploadId"]
        return Begun(unsummed, "")

    def _begin(self, bucket: str, key: str, algorithm: str) -> dict[str, Any]:
        asked = {"Bucket": bucket, "Key": key, **begin_fields(algorithm)}
        return self._tried(lambda: dict(self._client.create_multipart_upload(**asked)))

    def put_part(self, bucket: str, upload: Upload, number: int, data: memoryview, algorithm: str = "") -> SentPart:
        """Send part `number` (from 1) with its MD5, and with the CRC that the upload has. Sending a part again replaces
        it."""
        body = bytes(data)
        md5 = hashlib.md5(body, usedforsecurity=False)
        asked: dict[str, Any] = {
            "Bucket": bucket,
            "Key": upload.key,
            "UploadId": upload.upload_id,
            "PartNumber": number,
            "ContentMD5": base64.b64encode(md5.digest()).decode(),
        }
        crc = fast_crc(algorithm)
        value = 0 if crc is None else crc.of(memoryview(body))
        if crc is not None:
            asked[field(algorithm)] = crc.coded(value)
        etag = self._tried(lambda: str(self._client.upload_part(Body=body, **asked)["ETag"]))
        return SentPart(md5.hexdigest(), etag.strip('"'), value)

    def copy_part(self, bucket: str, upload: Upload, number: int, begin: int, end: int, etag: str) -> str:
        """Have the store make part `number` of bytes [begin, end) of the object that has the upload's key now, which
        must be the one with that ETag; gives the part's ETag."""
        asked = {
            "Bucket": bucket,
            "Key": upload.key,
            "UploadId": upload.upload_id,
            "PartNumber": number,
            "CopySource": {"Bucket": bucket, "Key": upload.key},
            "CopySourceRange": f"bytes={begin}-{end - 1}",
            "CopySourceIfMatch": etag,
        }
        made = self._tried(lambda: str(self._client.upload_part_copy(**asked)["CopyPartResult"]["ETag"]))
        return made.strip('"')

    def complete(self, bucket: str, upload: Upload, etags: Mapping[int, str], sums: SentSums | None = None) -> str:
        """Make the object of its parts; its ETag. `sums`: of the same parts, where the upload has a CRC. Raises
        FileNotFoundError where there is no such upload (any more)."""
        parts = [
            {"PartNumber": number, "ETag": f'"{etags[number]}"', **(sums.part_fields(index) if sums else {})}
            for index, number in enumerate(sorted(etags))
        ]
        asked = {"Bucket": bucket, "Key": upload.key, "UploadId": upload.upload_id, "MultipartUpload": {"Parts": parts}}
        if sums is not None:
            asked |= sums.whole_fields()
        answer = self._tried(lambda: str(self._client.complete_multipart_upload(**asked).get("ETag", "")))
        return answer.strip('"')

    def abort(self, bucket: str, upload: Upload) -> None:
        """Drop an upload and its parts; one that is gone is fine."""
        asked = {"Bucket": bucket, "Key": upload.key, "UploadId": upload.upload_id}
        try:
            self._tried(lambda: self._client.abort_multipart_upload(**asked))
        except FileNotFoundError:
            return

    def unfinished(self, bucket: str, prefix: str) -> list[Upload]:
        """Uploads of keys that begin with `prefix`."""
        asked = {"Bucket": bucket, "Prefix": prefix}
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        return [
            Upload(one["Key"], one["UploadId"])
            for page in self._pages(partial(self._client.list_multipart_uploads), asked, marks)
            for one in page.get("Uploads", ())
            if one["Key"].startswith(prefix)
        ]

    def head(self, bucket: str, key: str) -> tuple[int, str] | None:
        """Size in bytes and ETag of an object; None where there is none. (A listing may lag behind a completion.)"""
        try:
            seen = self._tried(lambda: self._client.head_object(Bucket=bucket, Key=key))
        except FileNotFoundError:
            return None
        return int(seen["ContentLength"]), str(seen.get("ETag", "")).strip('"')

    def kept_sum(self, bucket: str, key: str, etag: str, algorithm: str) -> str:
        """The store's CRC of the object with that ETag, as it tells it: base64, with `-N` behind it where it is made of
        N parts' sums; empty where it tells none. Nothing is read. Raises OSError: ENOENT where the object is gone,
        ESTALE where it is another one now."""
        asked = {"Bucket": bucket, "Key": key, "IfMatch": f'"{etag}"', "ChecksumMode": "ENABLED"}
        head = self._tried(lambda: self._client.head_object(**asked))
        return str(head.get(field(algorithm)) or "") or self._attributes(bucket, key, algorithm)

    def _attributes(self, bucket: str, key: str, algorithm: str) -> str:
        """For stores that tell it there only. Not every store, and not every user of one, may ask."""
        asked = {"Bucket": bucket, "Key": key, "ObjectAttributes": ["Checksum", "ObjectParts"]}
        try:
            told = self._tried(lambda: self._client.get_object_attributes(**asked))
        except OSError:
            return ""
        kept = str(told.get("Checksum", {}).get(field(algorithm)) or "")
        count = told.get("ObjectParts", {}).get("TotalPartsCount")
        is_composite = told.get("Checksum", {}).get("ChecksumType") == "COMPOSITE" and count
        return f"{kept}-{count}" if kept and is_composite and "-" not in kept else kept

    def restore(self, bucket: str, key: str, days: int) -> None:
        """Have an archived object brought back for so many days; one that is on its way already is fine."""
        wanted = {"Days": days, "GlacierJobParameters": {"Tier": "Standard"}}
        try:
            self._tried(lambda: self._client.restore_object(Bucket=bucket, Key=key, RestoreRequest=wanted))
        except OSError as error:
            if error.errno != errno.ESTALE:  # 409: it is on its way
                raise

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object; one that is gone is fine."""
        self._tried(lambda: self._client.delete_object(Bucket=bucket, Key=key))
