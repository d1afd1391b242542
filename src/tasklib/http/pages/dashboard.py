"""The dashboard: one page for all its URLs, its files, and signing in with a token."""

from __future__ import annotations

import gzip
import mimetypes
from collections.abc import Callable, Coroutine
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tasklib.errors import TaskLibError
from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.errors import Refused
from tasklib.http.pages import sign_in
from tasklib.http.parts import parts_of
from tasklib.http.routes.session import log_in
from tasklib.http.security.auth import Permission, cookie_name, needs

PAGES: Final = (
    "/",
    "/tasks",
    "/tasks/{task_id}",
    "/errors",
    "/errors/{group_id}",
    "/workers",
    "/schedules",
    "/questions",
    "/types",
    "/latency",
    "/lanes",
    "/report",
    "/settings",
)
BUILT: Final = files("tasklib.http") / "static"
FOREVER: Final = "private, max-age=31536000, immutable"
"""For files that have a digest of their content in their name."""
MAX_FORM_BYTES: Final = 4096
PATIENCE_SECONDS: Final = 1.0
"""How long the database may take to identify the caller, before it counts as away."""


class PageRoute(AuditedRoute):
    """A route for browsers: a refused caller gets the sign-in page, and a form's token counts like a header's.

    While the database does not answer nobody can be identified: then everybody gets the dashboard's own files, which
    hold nothing of the queue, and the page itself says what is wrong and recovers.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with refusals as pages where the caller is a browser."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            if request.method == "POST":
                request = await _with_token_of_form(request)
            patience = PATIENCE_SECONDS if request.method == "GET" else None
            try:
                async with parts_of(request).service.timing.timeout(patience):
                    return await handle(request)
            except (TaskLibError, TimeoutError):
                if request.method != "GET":
                    raise
                return await _without_database(request)
            except Refused as refused:
                if "text/html" not in request.headers.get("accept", "") or refused.status_code not in (401, 403):
                    raise
                if _brings_a_token(request):  # Without a token nobody has tried anything yet.
                    await parts_of(request).refusals.record(request, refused.status_code, refused.kind)
                return sign_in.page(request, refused)

        return shown


router = APIRouter(include_in_schema=False, route_class=PageRoute)


async def show_page(request: Request) -> HTMLResponse:
    """The dashboard, which chooses what to show by its own URL."""
    root = quote(request.scope.get("root_path", ""))
    return HTMLResponse(_index().replace('="./', f'="{root}/').replace('root" content=""', f'root" content="{root}"'))


for path in PAGES:
    router.add_api_route(path, show_page, methods=["GET"], **needs(Permission.READ))


@router.get("/assets/{name}", **needs(Permission.READ))
async def get_asset(name: str, request: Request) -> Response:
    """One file of the dashboard, compressed if the browser can."""
    return _file(f"assets/{name}", request, {"Cache-Control": FOREVER})


@router.get("/icon.svg", **needs(Permission.READ))
async def get_icon(request: Request) -> Response:
    """The icon of the browser's tab."""
    return _file("icon.svg", request, {})


@router.post("/sign-in", **needs(Permission.LOOK))
async def sign_in_by_form(request: Request) -> Response:
    """Store the form's token in a cookie, and redirect to the page that was asked for."""
    response = RedirectResponse(sign_in.target(request), 303)
    await log_in(request, response)
    return response


async def _without_database(request: Request) -> Response:
    """The page or file that was asked for; both are the same for everybody."""
    if request.url.path.endswith("/icon.svg"):
        return await get_icon(request)
    name = request.path_params.get("name")
    return await (show_page(request) if name is None else get_asset(name, request))


def _brings_a_token(request: Request) -> bool:
    return "authorization" in request.headers or cookie_name(request) in request.cookies


async def _with_token_of_form(request: Request) -> Request:
    """The request with the token of its form in the Authorization header, which every route checks."""
    body = await request.body()
    form = parse_qs(body.decode("ascii", "replace")) if len(body) <= MAX_FORM_BYTES else {}
    request.state.form = {name: values[0] for name, values in form.items()}
    token = request.state.form.get("token", "").strip()
    if not token:
        return request
    others = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    bearer = (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))
    return Request({**request.scope, "headers": [*others, bearer]}, request.receive)


def _file(name: str, request: Request, headers: dict[str, str]) -> Response:
    found = _contents().get(name)
    if found is None:
        raise Refused(404, "not-found", f"the dashboard has no file {name!r}")
    body, packed = found
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers = packed, {**headers, "Content-Encoding": "gzip"}
    return Response(body, media_type=kind, headers={**headers, "Vary": "Accept-Encoding"})


@cache
def _index() -> str:
    page = BUILT / "index.html"
    if not page.is_file():
        raise Refused(503, "not-built", "the dashboard is not built in this source tree; build it by: make setup")
    return page.read_text()


@cache
def _contents() -> dict[str, tuple[bytes, bytes]]:
    """Every file as it is and compressed: a few hundred kilobytes, read once."""
    found = [(f"assets/{each.name}", each) for each in (BUILT / "assets").iterdir()]
    found.append(("icon.svg", BUILT / "icon.svg"))
    bodies = {name: each.read_bytes() for name, each in found}
    return {name: (body, gzip.compress(body, 9, mtime=0)) for name, body in bodies.items()}
