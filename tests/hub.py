"""A hub on this machine that speaks enough of the real one's language to load models from: folders by id."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(models: Mapping[str, Path], requests: list[str]) -> Iterator[str]:
    """Serve the folders under their ids; yields what HF_ENDPOINT should be. `requests` receives the paths."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            requests.append("/".join(parts))
            if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) in models:
                self._api(models["/".join(parts[2:4])], "/".join(parts[2:4]), parts[4:])
                return
            folder = models.get("/".join(parts[:2]))
            file = None if folder is None or parts[2:3] != ["resolve"] else folder / "/".join(parts[4:])
            if file is None or not file.is_file():
                self._missing("RepoNotFound" if folder is None else "EntryNotFound")
                return
            data = file.read_bytes()
            first = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(data) - first))
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if with_body:
                self.wfile.write(data[first:])

        def _api(self, folder: Path, name: str, what: list[str]) -> None:
            files = []
            for path in filter(Path.is_file, sorted(folder.iterdir())):
                data = path.read_bytes()
                blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
                files.append((path.name, len(data), blob))
            tree = [{"type": "file", "path": path, "size": size, "oid": blob} for path, size, blob in files]
            siblings = [{"rfilename": path} for path, _, _ in files]
            about = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": []}
            data = json.dumps(tree if what[:1] == ["tree"] else about).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def _missing(self, code: str) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
