"""A small OpenID Connect provider with real keys, over real HTTP on loopback; its consent needs no person.

`lie(...)` makes the next ID token wrong in one way.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "muster", "the-client-s-secret"


class Provider:
    """`claims` are those of whoever signs in next; `issuer` goes into the settings."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.other_key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.claims: dict[str, Any] = {"sub": "u-1", "preferred_username": "olga", "groups": ["ml-infra"]}
        self.lies: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.broken = False
        self.named: dict[str, str] = {}
        """What its document says instead of the truth."""
        self.moved_to = ""
        self.asked_for: list[dict[str, str]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.get(self)

            def do_POST(self) -> None:
                provider.post(self)

            def log_message(self, *_given: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def lie(self, **claims: Any) -> None:
        """Claims of the next ID token, a `key` to sign with, or `unsigned`."""
        self.lies = claims

    def get(self, handler: Any) -> None:
        url = urlsplit(handler.path)
        if self.broken:
            return _send(handler, 500, {"error": "down"})
        if self.moved_to:
            handler.send_response(307)
            handler.send_header("Location", self.moved_to)
            handler.send_header("Content-Length", "0")
            return handler.end_headers()
        if url.path == "/.well-known/openid-configuration":
            return _send(handler, 200, self._metadata())
        if url.path == "/keys":
            return _send(handler, 200, {"keys": [self.key.as_dict(private=False)]})
        if url.path == "/authorize":
            return self._authorize(handler, {name: values[0] for name, values in parse_qs(url.query).items()})
        return _send(handler, 404, {})

    def post(self, handler: Any) -> None:
        length = int(handler.headers["Content-Length"])
        form = {name: values[0] for name, values in parse_qs(handler.rfile.read(length).decode()).items()}
        given = self.codes.pop(form.get("code", ""), None)
        wanted = "Basic " + base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if handler.headers.get("Authorization") != wanted:
            return _send(handler, 401, {"error": "invalid_client"})
        if given is None or _challenge(form.get("code_verifier", "")) != given["code_challenge"]:
            return _send(handler, 400, {"error": "invalid_grant", "error_description": "no such code"})
        told = {
            "access_token": secrets.token_hex(8),
            "token_type": "Bearer",
            "id_token": self._id_token(given["nonce"]),
        }
        return _send(handler, 200, told)

    def _authorize(self, handler: Any, asked: dict[str, str]) -> None:
        self.asked_for.append(asked)
        code = secrets.token_hex(8)
        self.codes[code] = asked
        handler.send_response(302)
        handler.send_header("Location", f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")
        handler.end_headers()

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        lies = dict(self.lies)
        self.lies = {}
        key, unsigned = lies.pop("key", self.key), lies.pop("unsigned", False)
        claims = {
            "iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce, **self.claims, **lies,
        }  # fmt: skip
        if unsigned:
            parts = ({"alg": "none"}, claims)
            return ".".join(_base64(json.dumps(part).encode()) for part in parts) + "."
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            **self.named,
        }


def _challenge(verifier: str) -> str:
    return _base64(hashlib.sha256(verifier.encode()).digest())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _send(handler: Any, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
