"""What is shipped in deploy/ lets nobody in behind a proxy who has no token, and says truly who asked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tasklib import ConfigurationError, TaskQueue
from tasklib.cli.main import main
from tests.fixtures.reverse_proxy import PUBLIC_NAME, ReverseProxy, Setting, guide, name_only, nothing
from tests.integration.http.serving import Server

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = "helm/tasklib/templates/serve.yaml"
CLIENT = "127.0.0.5"
"""From where the client speaks to the proxy: not the address from which the proxy speaks to the service."""
RELEASE = "tried"
"""What Helm would call the release, and what stands here for every value of a chart."""
ROUTES = [("GET", "/api/tasks"), ("POST", "/api/tasks"), ("GET", "/api/audit"), ("POST", "/api/tokens"), ("GET", "/")]


def words_of(path: Path) -> list[list[str]]:
    """The words of every call of the program in a file of deploy/; of a chart, without what is empty by default."""
    text = re.sub(r"[ ]*\{\{- range .*?\{\{- end \}\}\n", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", RELEASE, re.sub(r"^\s*\{\{-.*\}\}\n", "", text, flags=re.MULTILINE))
    match path.suffix:
        case ".service":
            return [shlex.split(line)[1:] for line in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)]
        case ".yaml":
            documents = list(yaml.safe_load_all(text))
            services = [each for document in documents for each in document.get("services", {}).values()]
            specs = [
                document["spec"].get("template", {}).get("spec", {}) for document in documents if "spec" in document
            ]
            containers = [each for spec in specs for each in spec.get("containers", ())]
            return [each["command"] for each in services if "command" in each] + [each["args"] for each in containers]
        case _ if path.name == "Dockerfile":
            return [yaml.safe_load(each) for each in re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)]
        case _:
            return []


SERVED = {
    str(path.relative_to(DEPLOY)): list(map(str, words[1:]))
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file()
    for words in words_of(path)
    if words[0] == "serve"
}


def test_every_file_that_serves_is_tried() -> None:
    assert set(SERVED) == {
        "Dockerfile",
        "compose.yaml",
        CHART,
        "kubernetes/serve.yaml",
        "systemd/tasklib-serve.service",
    }


def options_of(file: str) -> list[str]:
    """The options of the file, on a free port."""
    words = list(SERVED[file])
    if "--port" in words:
        at = words.index("--port")
        del words[at : at + 2]
    return words


@pytest.fixture
def admin(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The header of an administrator's token, the first there is."""
    assert main(["token", "create", "me", "--role", "admin", "--database-url", sqlite_url]) == 0
    return {"Authorization": f"Bearer {capsys.readouterr().out.strip()}"}


@contextmanager
def behind(url: str, setting: Setting, http_version: int = 10) -> Iterator[httpx.Client]:
    """A client elsewhere, of a proxy in front of the service."""
    service = url.replace("0.0.0.0", "127.0.0.1")
    transport = httpx.HTTPTransport(local_address=CLIENT)
    with (
        ReverseProxy(service, setting, http_version) as proxy,
        httpx.Client(transport=transport, base_url=proxy.url, timeout=180) as client,
    ):
        yield client


def statuses(client: httpx.Client, **options: Any) -> set[int]:
    return {client.request(method, path, **options).status_code for method, path in ROUTES}


@pytest.mark.parametrize("file", SERVED)
def test_nothing_is_served_before_there_is_a_token(
    sqlite_url: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *options_of(file), "--database-url", sqlite_url]) == 2
    assert "make one first: tasklib token create" in capsys.readouterr().err


@pytest.mark.parametrize("file", SERVED)
def test_behind_nginx_only_a_token_gets_in(sqlite_url: str, admin: dict[str, str], tmp_path: Path, file: str) -> None:
    forged = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9", "X-Real-Ip": "203.0.113.9"}
    name = {"compose.yaml": "localhost", CHART: f"{RELEASE}-serve"}.get(file, PUBLIC_NAME)

    def setting(*given: Any) -> dict[str, str]:
        return {**guide(*given), "host": name}

    with Server(sqlite_url, tmp_path, *options_of(file)) as server, behind(server.url, setting) as client:
        assert statuses(client, headers=forged) == {401}
        assert client.get("/healthz").status_code == 200
        assert client.post("/api/tasks", json={"type": "job"}, headers={**forged, **admin}).status_code == 201
        made, *_ = client.get("/api/audit", headers=admin).json()["entries"]
        # The address that nobody but the proxy, or the connection itself, can say.
        assert made["remote"] == (CLIENT if "--trusted-proxy" in SERVED[file] else "127.0.0.1")
        cookie = client.post("/api/session", headers=admin).headers["set-cookie"]
        assert ("Secure" in cookie) == ("--trusted-proxy" in SERVED[file])


def test_without_tokens_a_proxy_opens_nothing_whatever_it_was_told(sqlite_url: str, tmp_path: Path) -> None:
    def local_name(*given: Any) -> dict[str, str]:
        return {**guide(*given), "host": "localhost"}

    with Server(sqlite_url, tmp_path) as server:
        assert httpx.get(f"{server.url}/api/tasks", timeout=180).status_code == 200
        for setting, http_version, refused in (
            (guide, 10, {403}),
            (name_only, 10, {403}),
            (local_name, 11, {401}),
            (nothing, 10, {401}),
        ):
            with behind(server.url, setting, http_version) as client:
                assert statuses(client) == refused, setting
        with behind(server.url, nothing) as client:
            assert "came through a proxy" in client.get("/api/tasks").json()["detail"]
        assert httpx.get(f"{server.url}/api/tokens", timeout=180).json() == {"tokens": [], "total": 0}


def test_a_caller_cannot_say_from_where_it_asks(sqlite_url: str, admin: dict[str, str], tmp_path: Path) -> None:
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", **admin}
    with Server(sqlite_url, tmp_path) as server:
        assert httpx.post(f"{server.url}/api/tasks/pause", headers=forged, timeout=180).status_code == 200
        assert (
            "Secure" not in httpx.post(f"{server.url}/api/session", headers=forged, timeout=180).headers["set-cookie"]
        )
        entries = httpx.get(f"{server.url}/api/audit", headers=admin, timeout=180).json()["entries"]
    assert {entry["remote"] for entry in entries} == {"127.0.0.1"}


@pytest.mark.parametrize("proxy", ["*", "nginx", "10.0.0.1/8", ""])
def test_a_proxy_to_trust_is_an_address(sqlite_url: str, proxy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--trusted-proxy", proxy, "--database-url", sqlite_url]) == 2
    assert "--trusted-proxy is an address or a network" in capsys.readouterr().err


def test_an_open_service_answers_for_this_machine_only(sqlite_url: str) -> None:
    with TaskQueue(sqlite_url) as queue:
        with pytest.raises(ConfigurationError, match=r"tasks\.example\.com.*auth='tokens'"):
            queue.asgi(auth="local", hosts=["localhost", PUBLIC_NAME])
        queue.asgi(auth="local", hosts=["localhost", "127.0.0.2"])


@pytest.mark.parametrize(
    "peer, headers, status",
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("192.0.2.7", {}, 401),
        ("192.0.2.7", {"X-Forwarded-For": "127.0.0.1"}, 401),
        ("127.0.0.1", {"Forwarded": "for=127.0.0.1"}, 401),
        ("127.0.0.1", {"X-Forwarded-Host": "localhost"}, 401),
        ("127.0.0.1", {"Via": "1.1 proxy"}, 401),
        ("127.0.0.1", {"X-Real-IP": "127.0.0.1"}, 401),
    ],
)
async def test_open_means_this_machine_itself(sqlite_url: str, peer: str, headers: dict[str, str], status: int) -> None:
    """Also where a server of one's own listens to other machines, which can name any host."""
    async with TaskQueue(sqlite_url) as queue:
        transport = httpx.ASGITransport(queue.asgi(auth="local"), client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/api/tasks", headers=headers)).status_code == status
            assert (await client.post("/api/tasks", json={"type": "job"}, headers=headers)).is_success is (
                status == 200
            )
