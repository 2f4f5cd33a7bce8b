"""The HTTP side of the page: sessions, checks of each request, questions out and answers in."""

# Without `from __future__ import annotations`: FastAPI reads the annotations of local functions.

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from stacksl.errors import MissingExtra, RunError
from stacksl.label import pages
from stacksl.label.access import OWNER, SESSION_SECONDS, Access, Limit, csrf_of
from stacksl.label.player import Player
from stacksl.labelers.sheets import Reply
from stacksl.labelers.sheets.cells import visible

BODY = 65_536  # bytes of a request
PATIENCE = 10.0  # seconds that a reply waits for the answer to be in the ledger
WEB = Path(__file__).parent / "web"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Entry(BaseModel):
    """The secret of a link."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    secret: str = Field(max_length=200)


class Act(BaseModel):
    """What the owner of the run does; `link` and `revoke` are about an annotator."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    act: Literal["pause", "resume", "link", "revoke"]
    name: str | None = Field(None, max_length=1000)


class Given(BaseModel):
    """An answer as the browser sends it; `client` and `seq` name it if it is sent again."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    client: str = Field(min_length=8, max_length=64)
    seq: int = Field(ge=1, le=2**53)
    key: str = Field(max_length=40)
    said: Literal["label", "none", "ambiguous", "broken"]
    position: int | None = Field(None, ge=0, le=10**6)
    text: str | None = Field(None, max_length=2000)
    note: str | None = Field(None, max_length=4000)

    def reply(self) -> Reply:
        """The answer as a row of a sheet would give it."""
        text, note = _free(self.text if self.said == "none" else None), _free(self.note)
        return Reply(0, self.key, self.said, self.position, text, note)


def make_app(player: Player, access: Access, *, hosts: Collection[str]) -> Any:
    """The application for one run.

    Args:
        player: the run.
        access: links and sessions.
        hosts: the host names by which the page may be reached, without ports.

    Raises:
        MissingExtra: FastAPI is not installed.
    """
    try:
        from fastapi import FastAPI, Request, Response
        from fastapi.exceptions import RequestValidationError
        from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
    except ImportError as fault:
        raise MissingExtra.of("the page for annotators", "label") from fault

    run = player.folder.path.name
    cookie = cookie_of(player)
    tries, requests = Limit(20, 60.0), Limit(240, 10.0)
    app = FastAPI(title="stacksl label", docs_url=None, redoc_url=None, openapi_url=None)

    def said(sentence: str, status: int) -> Any:
        return JSONResponse({"state": "error", "sentence": sentence}, status)

    def checked(request: Request) -> Any:
        """Why a request is refused; None if it is not."""
        host = _host(request.headers.get("host", ""))
        if host not in hosts:
            return said("the page was opened under another name than it is served by", 421)
        if request.method not in ("GET", "HEAD", "POST"):
            return said("this method is not served", 405)
        if request.method == "POST":
            origin = urlsplit(request.headers.get("origin", ""))
            if origin.netloc != request.headers.get("host"):
                return said("the request is from another page", 403)
            length = request.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY:
                return said(f"a request has a length of at most {BODY} bytes", 413)
        return None

    async def guard(request: Request, serve: Callable[[Request], Awaitable[Response]]) -> Response:
        response = checked(request) or await serve(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    async def unreadable(request: Request, fault: Exception) -> Response:
        return said("the request is not of the form that the page sends", 422)

    app.middleware("http")(guard)
    app.add_exception_handler(RequestValidationError, unreadable)

    def who(request: Request, *, posts: bool = False) -> tuple[str | None, Any]:
        """The annotator of a request, or None and the reply that says why not."""
        token = request.cookies.get(cookie, "")
        name = access.who(token)
        if name is None:
            return None, said("the session has expired: open a new link", 401)
        if posts and not hmac.compare_digest(
            request.headers.get("x-csrf-token", "").encode(), csrf_of(token).encode()
        ):
            return None, said("the request is not from this session's page", 403)
        if not requests.allows(token):
            return None, JSONResponse(
                {"state": "error", "sentence": "too many requests: wait some seconds"},
                429,
                {"Retry-After": "5"},
            )
        return name, None

    def shown(name: str) -> dict[str, Any]:
        view = player.view
        return {
            "state": view.state,
            "rows": pages.rows(player.questions(name), view.classes),
            "answered": view.answered.get(name, 0),
        }

    def figures() -> dict[str, Any]:
        """What the owner sees: numbers of all rows together, nothing of the audit."""
        view, paused = player.view, player.paused
        doing = {"open": "is paused" if paused else "goes on", "finished": "has finished"}
        people = [
            (name, len(view.rows.get(name, ())), view.answered.get(name, 0))
            for name in player.annotators
        ]
        return {
            "spent": view.spent,
            "budget": view.budget,
            "state": doing.get(view.state, "has stopped"),
            "sentence": view.sentence,
            "people": people,
            "paused": paused,
        }

    async def page(request: Request) -> Response:
        token = request.cookies.get(cookie, "")
        name = access.who(token)
        if name is None:
            return HTMLResponse(pages.rendered("enter", run=run))
        if name == OWNER:
            own = figures()
            return HTMLResponse(pages.rendered("owner", run=run, csrf=csrf_of(token), **own))
        shared = pages.whole_list(player.view.classes)
        values = {"run": run, "who": name, "csrf": csrf_of(token), "shared": shared}
        return HTMLResponse(pages.rendered("label", **values, **shown(name)))

    async def rows(request: Request) -> Response:
        name, refused = who(request)
        if name is None:
            return refused
        if name == OWNER:
            return HTMLResponse(pages.rendered("figures", **figures()))
        return HTMLResponse(pages.rendered("rows", **shown(name)))

    async def enter(request: Request, entry: Entry) -> Response:
        if not tries.allows("enter"):
            return said("too many tries: wait a minute", 429)
        token = access.exchange(entry.secret)
        if token is None:
            return said(
                "this link was used before or has expired: ask the owner of the run for a new one",
                403,
            )
        response = JSONResponse({"state": "entered"})
        secure = request.headers.get("origin", "").startswith("https:")
        response.set_cookie(
            cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure
        )
        return response

    async def answer(request: Request, given: Given) -> Response:
        name, refused = who(request, posts=True)
        if name is None:
            return refused
        if name == OWNER:
            return said("the owner of a run gives no answers", 403)
        future = player.give(name, given.client, given.seq, given.reply())
        try:
            outcome = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), PATIENCE)
        except TimeoutError:  # a refit is under way: the browser keeps the answer and asks again
            return JSONResponse({"state": "waiting"}, 202)
        except RunError:
            return said("the run is closed at the moment: the answer stays in this browser", 503)
        return JSONResponse({"state": outcome})

    async def owner(request: Request, act: Act) -> Response:
        name, refused = who(request, posts=True)
        if name is None:
            return refused
        if name != OWNER:
            return said("this is for the owner of the run", 403)
        if act.act in ("pause", "resume"):
            player.paused = act.act == "pause"
            return JSONResponse({"state": "done"})
        if act.name not in player.annotators:
            return said("no annotator of this run has that name", 422)
        if act.act == "link":
            return JSONResponse({"state": "done", "link": access.link(act.name)})
        access.revoke(act.name)
        return JSONResponse({"state": "done", "sentence": "Sessions and links were ended."})

    async def leave(request: Request) -> Response:
        name, refused = who(request, posts=True)
        if name is None:
            return refused
        access.leave(request.cookies.get(cookie, ""))
        response = JSONResponse({"state": "left"})
        response.delete_cookie(cookie)
        return response

    async def static(name: Literal["page.js", "page.css"]) -> Response:
        return FileResponse(WEB / name)

    for path, serve in (("/", page), ("/rows", rows), ("/web/{name}", static)):
        app.add_api_route(path, serve, methods=["GET"], response_model=None)
    for path, take in (
        ("/enter", enter),
        ("/answer", answer),
        ("/leave", leave),
        ("/owner", owner),
    ):
        app.add_api_route(path, take, methods=["POST"], response_model=None)
    return app


def cookie_of(player: Player) -> str:
    """The name of the cookie of a run: cookies are shared by all ports of a host."""
    import hashlib

    path = str(player.folder.path.resolve())
    return f"stacksl-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    return (urlsplit(f"//{header}").hostname or "") if "@" not in header else ""


def _free(text: str | None) -> str | None:
    return None if text is None else visible(text).strip() or None
