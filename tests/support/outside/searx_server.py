"""A real searx, from Debian's packages, over one engine that the test plays itself.

Where the packages are not installed they are downloaded and unpacked into a folder of the user's; that needs no rights,
but a Debian (or a relative of it) whose apt can reach its archive. They run on the system's own Python.
"""

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.servers.child import start_child

PYTHON = "/usr/bin/python3"
WAIT_TIMEOUT_S = 60
# searx, what it is written with, and the libraries behind that.
PACKAGES = """
    python3-searx python-babel-localedata python3-babel python3-brotli python3-certifi python3-chardet
    python3-charset-normalizer python3-click python3-colorama python3-dateutil python3-flask python3-flask-babel
    python3-idna python3-itsdangerous python3-jinja2 python3-langdetect python3-lxml python3-markupsafe
    python3-pkg-resources python3-pygments python3-requests python3-setproctitle python3-six python3-tz python3-urllib3
    python3-werkzeug python3-yaml libxslt1.1 libyaml-0-2
"""

SETTINGS = """
general: {{ debug: false, instance_name: test, contact_url: false, enable_stats: false }}
brand: {{ git_url: "", git_branch: "", issue_url: "", docs_url: "", public_instances: "", wiki_url: "",
          twitter_url: "" }}
search: {{ safe_search: 0, autocomplete: "", default_lang: "", ban_time_on_fail: 0, max_ban_time_on_fail: 0,
           prefer_configured_language: false, formats: [html, json] }}
server: {{ port: {port}, bind_address: 127.0.0.1, secret_key: only for tests, base_url: false, image_proxy: false,
           http_protocol_version: "1.0", method: POST, default_http_headers: {{}} }}
ui: {{ autofocus: true, archive_today: false, static_path: "{share}/static", templates_path: "{share}/templates",
       default_theme: oscar, default_locale: "", theme_args: {{ oscar_style: logicodev }} }}
outgoing: {{ request_timeout: 5.0, useragent_suffix: "", pool_connections: 10, pool_maxsize: 10 }}
checker: {{ off_when_debug: true }}
locales: {{ en: English }}
doi_resolvers: {{ none: "https://doi.test/" }}
default_doi_resolver: none
engines:
  - {{ name: local, engine: json_engine, shortcut: lo, categories: general, enable_http: true, disabled: false,
       search_url: "{engine_url}?q={{query}}", results_query: results, url_query: url, title_query: title,
       content_query: content }}
"""


class SearxMissing(Exception):
    """Says what this machine lacks."""


def unpack_searx() -> Path:
    """The folder under which its files are; / if it is installed."""
    if Path("/usr/share/python3-searx").exists():
        return Path("/")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "legato-tests" / "searx"
    if (cache / "usr/share/python3-searx").exists():
        return cache
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and Path(PYTHON).exists()):
        raise SearxMissing("searx is not installed, and there is no apt to get it with")
    with tempfile.TemporaryDirectory() as folder:
        download = ["apt-get", "download", "-o", "APT::Sandbox::User=", *PACKAGES.split()]
        done = subprocess.run(download, cwd=folder, capture_output=True, timeout=300, check=False)
        if done.returncode:
            raise SearxMissing("searx is not installed, and apt cannot download it")
        draft = Path(folder) / "unpacked"
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(draft)], check=True)
        cache.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(cache, ignore_errors=True)
        shutil.move(draft, cache)
    return cache


class _Engine(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.results: list[dict[str, str]] = []
        self.asked: list[str] = []


class _Answer(http.server.BaseHTTPRequestHandler):
    """Gives the results the engine was told, whatever is asked."""

    server: _Engine

    def do_GET(self) -> None:
        self.server.asked.append(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["q"][0])
        body = json.dumps({"results": self.server.results}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class SearxServer:
    def __init__(self) -> None:
        self._engine = _Engine()
        self._folder = Path(tempfile.mkdtemp(prefix="legato-searx-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self.base_url = ""

    @property
    def results(self) -> list[dict[str, str]]:
        """The engine's finds: url, title and content."""
        return self._engine.results

    @property
    def asked(self) -> list[str]:
        """The queries that reached the engine."""
        return self._engine.asked

    def __enter__(self) -> "SearxServer":
        root = unpack_searx()
        threading.Thread(target=self._engine.serve_forever, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}"
        engine_url = f"http://127.0.0.1:{self._engine.server_address[1]}/"
        settings = self._folder / "settings.yml"
        settings.write_text(SETTINGS.format(port=port, share=root / "usr/share/python3-searx", engine_url=engine_url))
        libraries = [str(path) for path in (root / "usr/lib").glob("*-linux-gnu*")]
        environ = {
            "SEARX_SETTINGS_PATH": str(settings),
            "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
            "LD_LIBRARY_PATH": ":".join(libraries) if root != Path("/") else "",
        }
        command = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        self._process = start_child(
            [*command, PYTHON, "-m", "searx.webapp"], self._folder / "output", last_signal=signal.SIGKILL
        )
        self._wait_until_it_answers()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._engine.shutdown()
        self._engine.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_it_answers(self) -> None:
        give_up_at_s = time.monotonic() + WAIT_TIMEOUT_S
        while True:
            try:
                urllib.request.urlopen(f"{self.base_url}/config", timeout=5).close()
            except (urllib.error.URLError, OSError) as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > give_up_at_s:
                    said = (self._folder / "output").read_text()
                    raise AssertionError(f"searx does not answer: {error}\n{said}") from None
                time.sleep(0.1)
            else:
                return
