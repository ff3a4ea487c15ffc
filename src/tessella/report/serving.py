"""Shows run folders in a browser of this machine: a list, live curves, and the pages and figures that lie beside.

The server listens on the loopback address and answers only requests that were addressed to it by that name, so that no
page of another site can read through it. It gives out nothing but what lies under its folder, and writes nothing.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tessella import __version__
from tessella.report.run_reading import details, found, is_run, new_metrics, summary
from tessella.report.shell import asset, closed_document, escape

ADDRESS = "127.0.0.1"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".pdf": "application/pdf",
    ".json": "application/json",
    ".jsonl": "text/plain; charset=utf-8",
}
"""What is given out, by the ending of its name."""

# Pages and drawings from a run folder run their scripts apart: they cannot read the other answers of this server.
SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def own_hosts(port: int) -> list[str]:
    """What browsers call the server in `Host`: its two names with the port, which they leave out where it is 80."""
    names = [ADDRESS, "localhost"]
    return [f"{name}:{port}" for name in names] + (names if port == 80 else [])


class RunServer(ThreadingHTTPServer):
    """Serves the runs under one folder. A port of 0 takes any that is free."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int):
        if not folder.is_dir():
            raise ValueError(f"folder: got {folder}, which is not there, expected a folder with runs in it")
        self.folder = folder.resolve()
        self.shell = _shell(folder)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ValueError(
                f"port: got {port}, which cannot be had ({why}), expected a free one, or 0 for any"
            ) from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.port}/"


class _Refusal(Exception):
    """A request that is answered by a status and one line."""

    def __init__(self, status: HTTPStatus, line: str):
        super().__init__(line)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: RunServer
    server_version = f"tessella/{__version__}"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        try:
            self._check_host()
            kind, content, policy = self._content()
            status = HTTPStatus.OK
        except _Refusal as refusal:
            status, policy = refusal.status, ""
            kind, content = "text/plain; charset=utf-8", f"{refusal}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Frame-Options", "DENY")
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _check_host(self) -> None:
        """A name that resolves to this machine but is not its own would be another site's, rebound."""
        host = self.headers.get("Host", "")
        if host not in own_hosts(self.server.port):
            raise _Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"Host: got {host!r}, expected {self.server.address}")

    def _content(self) -> tuple[str, bytes, str]:
        """What is asked for: its type, its bytes, and a policy beyond the one that it carries itself."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path in ("/", "/run"):
            return TYPES[".html"], self.server.shell, "frame-ancestors 'none'"
        if parts.path.startswith("/files/"):
            return self._file(unquote(parts.path.removeprefix("/files/")))
        folder = self.server.folder
        if parts.path == "/api/runs":
            return _json(found(folder))
        if parts.path == "/api/run":
            return _json(details(folder, self._run(query)))
        if parts.path == "/api/metrics":
            run = self._run(query)
            new = new_metrics(run / "metrics.jsonl", query.get("from", ""))
            told = {"records": new.records, "cursor": new.cursor, "restarted": new.restarted}
            return _json({**told, **summary(folder, run)})
        raise _Refusal(HTTPStatus.NOT_FOUND, f"path: got {parts.path!r}, which is not there")

    def _run(self, query: dict[str, str]) -> Path:
        folder = self._inside(query.get("at", ""))
        if not is_run(folder):
            raise _Refusal(HTTPStatus.NOT_FOUND, f"at: got {query.get('at', '')!r}, which is not a run")
        return folder

    def _file(self, name: str) -> tuple[str, bytes, str]:
        path = self._inside(name)
        kind = TYPES.get(path.suffix.lower())
        if kind is None or not path.is_file():
            raise _Refusal(HTTPStatus.NOT_FOUND, f"path: got {name!r}, which is not a page, figure or record here")
        try:
            return kind, path.read_bytes(), "" if path.suffix.lower() == ".pdf" else SANDBOX
        except OSError as error:
            raise _Refusal(HTTPStatus.NOT_FOUND, f"path: got {name!r}, which cannot be read") from error

    def _inside(self, name: str) -> Path:
        """A path under the folder; neither dots nor links lead out of it, and hidden names are not there."""
        refusal = _Refusal(HTTPStatus.NOT_FOUND, f"path: got {name!r}, which is not under the folder that is served")
        if "\0" in name or "\\" in name or any(part.startswith(".") and part != "." for part in name.split("/")):
            raise refusal
        try:
            path = (self.server.folder / name).resolve()
            # Resolving takes names that are too long for the system, which a look at them refuses.
            path.exists()
        except OSError as error:
            raise refusal from error
        if not path.is_relative_to(self.server.folder):
            raise refusal
        return path

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keeps the terminal quiet: a page that watches asks every other second."""


def _json(value: Any) -> tuple[str, bytes, str]:
    return TYPES[".json"], json.dumps(value, allow_nan=False).encode(), ""


def _shell(folder: Path) -> bytes:
    """The one document of the server: its script shows the list, or the runs that the address names."""
    style = asset("page.css") + asset("inspection.css")
    script = "".join(map(asset, ("elements.js", "theme.js", "charts.js", "serving.js")))
    name = folder.resolve().name or str(folder)
    body = asset("serving.html").replace("{name}", escape(name))
    more = "connect-src 'self'; img-src 'self' data:"
    return closed_document(f"Runs in {name}", body, style, script, more).encode()
