"""The service under a path, behind an nginx that ends TLS: the README's block, and proxies that say less."""

import random
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import httpx
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

from app.bootstrap import Services, build
from app.client import Client, InvalidRequestError
from app.domain.entities import JobState
from app.domain.names import Scope
from app.main import create_app
from app.settings import Settings
from tests.app.e2e.browsing import Watch, wait_for_images
from tests.app.e2e.conftest import LrbsInside, Server
from tests.app.e2e.test_documents import block
from tests.faults.processes import free_port

SECONDS = 30.0
OTHER_PROXIES = """
    location /whole/ {
        proxy_pass http://127.0.0.1:8000;
        proxy_set_header X-Forwarded-Prefix "";
    }
    location = /whole { proxy_pass http://127.0.0.1:8000; }
    location /silent/ {
        proxy_pass http://127.0.0.1:8000/;
        proxy_set_header X-Forwarded-Prefix "";
        client_max_body_size 100k;
    }
}
"""
"""One that passes on the path, which is a setting, and one that strips it without a word."""


@dataclass(frozen=True, slots=True)
class Site:
    """A server behind nginx."""

    url: str
    direct_url: str
    key: str
    certificate: Path
    services: Services


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, nginx: str, drawn_demo: Path) -> Iterator[Site]:
    """Under `/lrbs/` stands the README's block; `/whole/` and `/silent/` are the others."""
    folder = tmp_path_factory.mktemp("site")
    data = folder / "data"
    copytree(drawn_demo, data)
    services = build(Settings(data_dir=data, database_url=""))
    _, key = services.access.create(Scope.ADMIN)
    server = Server(data, ("serve", "--no-worker"), LRBS_TRUSTED_PROXIES="127.0.0.1", LRBS_ROOT_PATH="/whole")
    proxy = None
    try:
        server.wait_until_ready()
        port = free_port()
        certificate = make_certificate(folder)
        proxy = start_nginx(nginx, folder, port, server.url)
        yield Site(f"https://localhost:{port}", server.url, key, certificate, services)
    finally:
        if proxy is not None:
            proxy.kill()
            proxy.wait()
        server.end()
        services.database.engine.dispose()


def make_certificate(folder: Path) -> Path:
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=lrbs"
    )
    options = "-addext subjectAltName=DNS:localhost -keyout site.key -out site.pem"
    subprocess.run(f"{command} {options}".split(), cwd=folder, check=True, capture_output=True)
    return folder / "site.pem"


def start_nginx(program: str, folder: Path, port: int, upstream: str) -> subprocess.Popen[bytes]:
    ours = block("nginx", "X-Forwarded-Prefix").rstrip().removesuffix("}") + OTHER_PROXIES
    for theirs, own in (
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("/etc/ssl/certs/example.org.pem", f"{folder}/site.pem"),
        ("/etc/ssl/private/example.org.key", f"{folder}/site.key"),
        ("http://127.0.0.1:8000", upstream),
    ):
        assert theirs in ours
        ours = ours.replace(theirs, own)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own_folders = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/nginx.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{own_folders}{ours}}}\n"
    )
    command = (program, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/nginx.log")
    proxy = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            httpx.get(f"https://localhost:{port}/", verify=False, trust_env=False)
        except httpx.TransportError:
            assert proxy.poll() is None, (folder / "nginx.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return proxy


@pytest.fixture
def visited(browser: Browser) -> Iterator[Page]:
    """A page that takes the certificate."""
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


@pytest.fixture
def caller(site: Site) -> Iterator[httpx.Client]:
    """Calls the site with the key, and follows nothing."""
    headers = {"Authorization": f"Bearer {site.key}"}
    trusting = ssl.create_default_context(cafile=site.certificate)
    with httpx.Client(base_url=site.url, headers=headers, verify=trusting, trust_env=False) as client:
        yield client


@pytest.mark.browser
@pytest.mark.parametrize("path", ["/lrbs", "/whole", "/silent"])
def test_the_pages_work_under_a_path(site: Site, visited: Page, path: str) -> None:
    page, watch, home = visited, Watch(visited), f"{site.url}{path}/"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(home)
    assert page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"
    page.locator("#key").fill(site.key)
    page.get_by_role("button", name="Use key").click()
    page.get_by_role("searchbox").fill("boats on the sea")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#hits .hit-picture img").first).to_be_visible()
    wait_for_images(page, "#hits img")
    found = page.url
    assert found.startswith(f"{home}?collection=sample")
    if path != "/lrbs":
        page.goto(f"{home}docs/")
        expect(page.locator("#reference")).to_contain_text("/v1/collections")
        assert [url for url in asked if not url.startswith((home, "blob:", "data:"))] == []
        return
    page.reload()
    expect(page.locator("#hits .hit-picture img").first).to_be_visible()
    page.get_by_role("link", name="Models").click()
    expect(page.locator("#versions")).to_contain_text("1")
    assert page.url == f"{home}models?collection=sample"
    page.go_back()
    expect(page.locator("#hits .hit-picture img").first).to_be_visible()
    assert page.url == found
    page.get_by_role("link", name="Collection", exact=True).click()
    expect(page.locator("#hits img").first).to_be_visible()
    page.get_by_role("link", name="API reference").click()
    expect(page.locator("#reference")).to_contain_text("/v1/collections")
    assert page.url == f"{home}docs"
    assert [said for said in watch.complaints if "401" not in said] == [], "the key is asked for by a 401"
    assert [url for url in asked if not url.startswith((home, "blob:", "data:"))] == []
    assert page.context.cookies() == []
    stored = page.evaluate("Object.keys(sessionStorage)")
    assert stored == [f"lrbs-key{path}"], "another service of this host has another key"


@pytest.mark.browser
def test_what_the_proxy_refuses_is_said_in_words(site: Site, visited: Page) -> None:
    page = visited
    page.add_init_script(f"sessionStorage.setItem('lrbs-key/silent', '{site.key}')")
    page.goto(f"{site.url}/silent/")
    expect(page.get_by_role("search")).to_be_visible()
    large = {"name": "mine.png", "mimeType": "image/png", "buffer": random.Random(1).randbytes(200_000)}
    page.locator("input[type=file]").set_input_files(large)
    expect(page.get_by_role("alert")).to_contain_text("takes no upload of this size")


@pytest.mark.browser
def test_a_training_is_watched_while_it_runs(site: Site, visited: Page) -> None:
    page = visited
    page.add_init_script(f"sessionStorage.setItem('lrbs-key/lrbs', '{site.key}')")
    page.goto(f"{site.url}/lrbs/models?collection=sample")
    page.get_by_role("button", name="Retrain").click()
    page.get_by_role("button", name="Continue").click()
    page.locator("#confirmation .primary").click()
    expect(page.locator("#training-state")).to_have_text("Waiting for a worker")
    with site.services.database.write() as work:
        job = work.jobs.claim("a worker", 600.0, 3)
        assert job is not None
        work.jobs.heartbeat(job, 600.0, {"phase": "fitting", "percent": 42.0})
    expect(page.locator("#training-state")).to_have_text("42 % · learning from all items")
    page.get_by_role("button", name="Cancel the training").click()
    expect(page.get_by_role("button", name="Cancel the training")).to_be_disabled()
    with site.services.database.write() as work:
        work.jobs.finish(job, JobState.CANCELLED, None, None)
    expect(page.locator("#training-state")).to_have_text(
        "The last training was cancelled; it changed nothing."
    )


def test_addresses_in_answers_can_be_followed(site: Site, caller: httpx.Client) -> None:
    for path, other in (("/lrbs", "/elsewhere"), ("/whole", "/elsewhere")):
        claimed = {"X-Forwarded-Prefix": other}  # a visitor's own, which the proxy replaces
        queued = caller.post(f"{path}/v1/admin/collections/sample/retrain", headers=claimed)
        assert queued.status_code == 202
        job = queued.headers["Location"]
        assert job == f"{path}/v1/admin/jobs/{queued.json()['id']}"
        assert caller.get(job).json()["state"] == "queued"
        with caller.stream("GET", f"{job}/events") as events:
            assert events.headers.get_list("cache-control") == ["no-store"]
            assert next(events.iter_lines()) == "event: state", "while the job is open"
        caller.post(f"{job}/cancel").raise_for_status()
        items = caller.get(f"{path}/v1/collections/sample/items?modality=image&limit=1").json()["items"]
        query = {"item_id": items[0]["id"], "k": 1}
        single = caller.post(f"{path}/v1/collections/sample/search/image-to-image", json=query).json()
        batch = {"queries": [{"item_id": items[0]["id"]}], "k": 1}
        (of_batch,) = caller.post(
            f"{path}/v1/collections/sample/search/image-to-image/batch", json=batch
        ).json()["results"]
        for shown in (items[0], *single["hits"], *of_batch["hits"]):
            assert shown["content_url"].startswith(f"{path}/v1/collections/sample/items/")
            assert caller.get(shown["content_url"]).headers["Content-Type"].startswith("image/")
        assert caller.get(f"{path}/v1/collections/none").json()["instance"] == f"{path}/v1/collections/none"
        document = caller.get(f"{path}/openapi.json", headers=claimed).json()
        assert document["servers"] == [{"url": path}]
        for probe in ("healthz", "readyz", "metrics"):
            assert caller.get(f"{path}/{probe}").status_code == 200


def test_searches_that_are_answered_together_get_addresses_of_their_own_path(caller: httpx.Client) -> None:
    def found_from(path: str) -> str:
        query = {"text": "boats on the sea", "k": 1}
        answer = caller.post(f"{path}/v1/collections/sample/search/text-to-image", json=query)
        return str(answer.raise_for_status().json()["hits"][0]["content_url"])

    found_from("/lrbs")
    refused = caller.post("/lrbs/v1/collections/sample/search/text-to-image?k=1", json={"text": "boats"})
    assert (refused.status_code, refused.json()["field"]) == (422, "k"), "the shortest way refuses it, too"
    paths = ["/lrbs", "/whole"] * 8
    with ThreadPoolExecutor(len(paths)) as threads:
        addresses = list(threads.map(found_from, paths))
    assert [address.partition("/v1/")[0] for address in addresses] == paths


def test_head_is_answered_as_get_is_but_for_the_body(site: Site, caller: httpx.Client) -> None:
    key = {"Authorization": caller.headers["Authorization"]}
    with httpx.Client(base_url=site.direct_url, headers=key, trust_env=False) as direct:
        item = direct.get("/v1/collections/sample/items?modality=image&limit=1").json()["items"][0]
        content = item["content_url"]
        for address in (
            "/",
            "/models",
            "/static/app.js",
            "/openapi.json",
            "/healthz",
            "/readyz",
            content,
            "/none",
        ):
            whole, head = direct.get(address), direct.head(address)
            assert (head.status_code, head.content) == (whole.status_code, b"")
            own = {"date", "x-request-id"}
            assert {name: value for name, value in head.headers.items() if name not in own} == {
                name: value for name, value in whole.headers.items() if name not in own
            }
        job = direct.post("/v1/admin/collections/sample/retrain").json()["id"]
        events = direct.head(f"/v1/admin/jobs/{job}/events")  # at once, although the job is open
        assert events.headers["Content-Type"].startswith("text/event-stream")
        assert events.headers["X-Accel-Buffering"] == "no"
        assert events.headers.get_list("Cache-Control") == ["no-store"]
        direct.post(f"/v1/admin/jobs/{job}/cancel").raise_for_status()
    assert caller.head("/lrbs/v1/collections").status_code == 200


def test_what_no_trusted_proxy_says_has_no_effect(site: Site) -> None:
    prefix = {"X-Forwarded-Prefix": "/evil"}
    stranger = TestClient(create_app(site.services))  # which trusts nobody
    assert "servers" not in stranger.get("/openapi.json", headers=prefix).json()
    assert stranger.get("/evil/healthz", headers=prefix).status_code == 404
    with httpx.Client(base_url=site.direct_url, trust_env=False) as proxy:
        for wrong in ("//evil", "https://evil", "/a/../b", "evil", "/a b"):
            document = proxy.get("/openapi.json", headers={"X-Forwarded-Prefix": wrong}).json()
            assert document["servers"] == [{"url": "/whole"}]
        # What was stripped is not stripped again: a visitor would reach what the proxy keeps from strangers.
        assert proxy.get("/evil/metrics", headers=prefix).status_code == 404


def test_client_and_commands_work_under_a_path(
    site: Site, lrbs_inside: LrbsInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(site.certificate))
    for path in ("/lrbs", "/lrbs/", "/whole", "/silent"):
        with Client(f"{site.url}{path}", site.key, patience=0.0) as client:
            hit = client.search("sample", "text", "image", text="boats", k=1).hits[0]
            assert client.get_content("sample", hit.id)
    asked = ("search", "sample", "--text", "boats", "-k", "1")
    done = lrbs_inside(*asked, LRBS_URL=f"{site.url}/lrbs", LRBS_API_KEY=site.key)
    assert done.returncode == 0, done.stderr
    assert hit.id in done.stdout
    items = [{"id": f"spare{n}", "modality": "text", "text": "word " * 3999} for n in range(20)]
    words = "a proxy in front of the service takes no body of this size"
    with (
        Client(f"{site.url}/silent", site.key, patience=0.0) as client,
        pytest.raises(InvalidRequestError, match=words),
    ):
        client.create_items("sample", items)
    with Client(f"{site.url}/lrbs", site.key, patience=0.0) as client:
        assert client.import_items("sample", items).created == len(items)
        for item in items:
            client.delete_item("sample", item["id"])


def test_slashes_lead_to_the_page(caller: httpx.Client) -> None:
    for asked, page in (
        ("/lrbs/models/?collection=a%20b", "/lrbs/models?collection=a%20b"),
        ("/silent/docs/", "/silent/docs"),
        ("/whole/collection/", "/whole/collection"),
        ("/whole/model/", "/whole/model"),
        ("/whole", "/whole/"),
    ):
        answer = caller.get(asked, follow_redirects=True)
        assert (answer.status_code, answer.url.raw_path.decode()) == (200, page)
        assert len(answer.history) == 1
        assert "content-security-policy" in answer.history[0].headers
