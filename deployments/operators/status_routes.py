"""`GET /status`: one static page that polls `/policy`. It holds no data, only how to show it."""

import base64
import hashlib
import re
from importlib import resources

from fastapi import FastAPI, Response

_PAGE = resources.files("deployments.status_page").joinpath("status.html")


def add_status_routes(app: FastAPI) -> None:
    """Let an app answer `/status`."""
    page = status_page()

    @app.get("/status")
    async def show_status() -> Response:
        return page


def status_page(status_code: int = 200) -> Response:
    """Return the page, with a policy under which nothing but its own script can run.

    Args:
        status_code: 401 where a key is wanted: the page is what asks people for it.
    """
    text = _PAGE.read_text(encoding="utf-8")
    headers = {
        "Content-Security-Policy": _content_policy(text),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(text, status_code, headers, media_type="text/html; charset=utf-8")


def _content_policy(text: str) -> str:
    """Return the header: everything is forbidden but what stands in the file, and asking back."""
    script, style = (_digest(text, tag) for tag in ("script", "style"))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digest(text: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert found is not None, f"the page has no {tag}"
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"
