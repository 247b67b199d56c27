"""Writing to an object store that speaks S3: uploads in parts, each compared with its MD5 by the store before it keeps
it. Nothing of an upload is to be seen before it is completed."""

from __future__ import annotations

import base64
import errno
import hashlib
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from muster_agent.storage.s3_client import S3Store

MIN_PART_BYTES = 5 * 1024 * 1024
MAX_PARTS = 10_000


class Upload(NamedTuple):
    """One that was begun and neither completed nor aborted."""

    key: str
    upload_id: str


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
        return str(self._tried(lambda: self._client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]))

    def put_part(self, bucket: str, upload: Upload, number: int, data: memoryview) -> tuple[str, str]:
        """Send part `number` (from 1); gives the MD5 that the store compared, and the ETag that it gave, both hex where
        its ETags are MD5 sums. Sending a part again replaces it."""
        body = bytes(data)
        md5 = hashlib.md5(body, usedforsecurity=False)
        asked = {
            "Bucket": bucket,
            "Key": upload.key,
            "UploadId": upload.upload_id,
            "PartNumber": number,
            "ContentMD5": base64.b64encode(md5.digest()).decode(),
        }
        etag = self._tried(lambda: str(self._client.upload_part(Body=body, **asked)["ETag"]))
        return md5.hexdigest(), etag.strip('"')

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

    def complete(self, bucket: str, upload: Upload, etags: Mapping[int, str]) -> str:
        """Make the object of its parts; its ETag. FileNotFoundError where there is no such upload (any more)."""
        parts = [{"PartNumber": number, "ETag": f'"{etags[number]}"'} for number in sorted(etags)]
        asked = {"Bucket": bucket, "Key": upload.key, "UploadId": upload.upload_id, "MultipartUpload": {"Parts": parts}}
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
