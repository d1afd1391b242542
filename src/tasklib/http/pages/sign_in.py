"""The sign-in page: plain HTML without a script, because a caller without a token gets nothing else."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from html import escape
from typing import Final
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse

from tasklib.http.errors import Refused
from tasklib.http.parts import parts_of

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f2a; --soft: #5b6275; --line: #d8dce6; --page: #f6f7fa; --card: #fff;
  --accent: #4f46e5; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f2; --soft: #a3abbd; --line: #333a4b; --page: #0f131c;
  --card: #171c28; --accent: #6d66f2; --bad: #ff9b8f; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 24rem; padding: 1.75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
h1 { margin: 0 0 .25rem; font-size: 1.25rem; }
p { margin: 0 0 1rem; color: var(--soft); }
p.bad { color: var(--bad); }
label { display: block; margin-bottom: .25rem; font-weight: 600; }
input { width: 100%; padding: .55rem .7rem; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--soft); border-radius: 8px; }
input:focus-visible, button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
button { width: 100%; margin: 1rem 0; padding: .6rem; font: inherit; font-weight: 600; color: #fff;
  background: #4f46e5; border: 0; border-radius: 8px; cursor: pointer; }
code { font: 13px ui-monospace, monospace; }
"""
DIGEST: Final = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{DIGEST}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
FORM: Final = """<form method="post" action="{action}">
<input type="hidden" name="next" value="{target}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" spellcheck="false" autofocus required>
<button>Sign in</button>
</form>
<p>Create a token on the machine of the service: <code>tasklib token create me --role operator</code></p>"""
PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">{refresh}
<title>Sign in · tasklib</title><style>{style}</style></head>
<body><main><h1>tasklib</h1>{content}</main></body>
</html>
"""


def page(request: Request, refused: Refused) -> HTMLResponse:
    """The form, with the reason why the last token was refused; it shows nothing of the queue."""
    if _came_from_elsewhere(request):
        # The cookie is not sent with the first request after a link on another site; it is with the next.
        return _answer(request, "<p>One moment …</p>", 401, refresh='<meta http-equiv="refresh" content="0">')
    if not parts_of(request).takes_tokens:
        text = "Sign in to the application that hosts this dashboard, with an account that may see it."
        return _answer(request, f'<p class="bad">{text}</p>', refused.status_code)
    tried = request.method == "POST"
    if refused.status_code == 403:
        said = "This token is valid, but its role may not see the dashboard; use one of a viewer, operator or admin."
    else:
        said = "This token is not known, or no longer valid." if tried else "Sign in with a token to see the dashboard."
    bad = ' class="bad"' if tried or refused.status_code == 403 else ""
    form = FORM.format(action=f"{_root(request)}/sign-in", target=escape(_wanted(request)))
    return _answer(request, f"<p{bad}>{said}</p>{form}", refused.status_code)


def target(request: Request) -> str:
    """Where to go after signing in: a place inside this dashboard, whatever the form says."""
    wanted = _wanted(request).lstrip("/\\")
    return f"{_root(request)}/{wanted}"


def _wanted(request: Request) -> str:
    if request.method == "POST":
        said: str = request.state.form.get("next", "")
        return "".join(character for character in said if character.isprintable())
    path = request.url.path.removeprefix(request.scope.get("root_path", "")).lstrip("/")
    return f"{path}?{request.url.query}" if request.url.query else path


def _answer(request: Request, content: str, status: int, refresh: str = "") -> HTMLResponse:
    # A form on a page that sends no referrer would come from the origin `null`, which the guard refuses.
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="tasklib"'
    return HTMLResponse(PAGE.format(style=STYLE, content=content, refresh=refresh), status, headers)


def _came_from_elsewhere(request: Request) -> bool:
    return request.method == "GET" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _root(request: Request) -> str:
    return quote(request.scope.get("root_path", ""))
