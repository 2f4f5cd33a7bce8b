"""The application: a reply to each path, behind the checks of `Site`."""

# Without `from __future__ import annotations`: FastAPI reads the annotations of local functions.
# mypy: disable-error-code="untyped-decorator"

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from pydantic import Field
from uvicorn.protocols.http.h11_impl import H11Protocol

from stacksl.errors import StackslError
from stacksl.label import pages
from stacksl.label.owner import Act, Form, act_on, enter_sheet
from stacksl.label.site import HEADERS, OWNER, SESSION_SECONDS, Refused, Site, csrf_of
from stacksl.labelers.sheets.cells import visible
from stacksl.labelers.sheets.rows import Reply
from stacksl.ledger.purchases import Skip
from stacksl.telemetry import refuse_telemetry

PATIENCE = 10.0  # seconds that a reply waits for the answer to be in the ledger
MOST = 1_000_000  # pages of rows
WHOLE = 20.0  # seconds for a whole request, its body included
WAITING = 250  # connections without a whole request, of all addresses
WEB = Path(__file__).parent / "web"
REPORT = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class LinkSecret(Form):
    """The secret of a link."""

    secret: str = Field(max_length=200)


class SubmittedAnswer(Form):
    """An answer; it is sent until there is a reply, and entered once."""

    key: str = Field(max_length=40)
    kind: Literal["label", "none", "ambiguous", "broken"]
    position: int | None = Field(default=None, ge=0, le=10**6, strict=True)
    text: str | None = Field(default=None, max_length=2000)
    note: str | None = Field(default=None, max_length=4000)


class Passed(Form):
    """A row that is skipped."""

    key: str = Field(max_length=40)
    why: Skip
    note: str | None = Field(default=None, max_length=4000)


def _free(text: str | None) -> str | None:
    return None if text is None else visible(text).strip() or None


async def caller(request: Request) -> str:
    """The name of the session's owner; see `Site.caller`."""
    return str(request.app.state.site.caller(request))


async def annotator(name: Annotated[str, Depends(caller)]) -> str:
    """The annotator who sends a request; the owner of the run is refused."""
    if name == OWNER:
        raise Refused("the owner of a run gives no answers", 403)
    return name


async def owner(name: Annotated[str, Depends(caller)]) -> None:
    """Refuse everybody but the owner of the run."""
    if name != OWNER:
        raise Refused("this is for the owner of the run", 403)


Annotator = Annotated[str, Depends(annotator)]


def make_app(site: Site) -> FastAPI:
    """The application for one run.

    A route has its role by its signature or its router: without one it knows of no annotator.
    """
    refuse_telemetry()
    app = FastAPI(title="stacksl label", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.site = site

    async def guard(request: Request, serve: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            site.check(request)
        except Refused as refusal:
            response = _refusal(refusal)
        else:
            response = await serve(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def refused(request: Request, refusal: Refused) -> Response:
        return _refusal(refusal)

    async def unreadable(request: Request, fault: Exception) -> Response:
        return _refusal(Refused("the request is not of the form that the page sends", 422))

    app.middleware("http")(guard)
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(RequestValidationError, unreadable)
    app.include_router(_of_all(site))
    app.include_router(_of_owner(site))
    return app


def _of_all(site: Site) -> APIRouter:
    """The pages and their parts, sessions, and what annotators do."""
    router = APIRouter()

    @router.get("/", response_class=HTMLResponse)
    async def page(request: Request) -> Response:
        name = site.access.session_owner(request.cookies.get(site.cookie))
        if name is None:
            return HTMLResponse(pages.rendered("enter", run=site.player.folder.path.name))
        site.player.see(name)
        csrf = csrf_of(request.cookies.get(site.cookie, ""))
        return HTMLResponse(pages.page(site, name, csrf))

    @router.get("/rows", response_class=HTMLResponse)
    async def rows(name: Annotated[str, Depends(caller)], here: bool = False) -> Response:
        if here:
            site.player.see(name)
        template = "figures" if name == OWNER else "rows"  # which changes
        return HTMLResponse(pages.rendered(template, **pages.page_values(site, name)))

    @router.get("/web/{name}", response_class=FileResponse)
    async def static(name: Literal["page.js", "page.css"]) -> Response:
        return FileResponse(WEB / name)

    @router.post("/enter")
    async def enter(request: Request, entry: LinkSecret) -> Response:
        token = site.access.exchange(entry.secret)
        if token is None:
            raise Refused(
                "this link was used before or has expired: ask the owner of the run for a new one",
                403,
            )
        response = JSONResponse({"state": "entered"})
        secure = request.headers.get("origin", "").startswith("https:")
        response.set_cookie(
            site.cookie, token, SESSION_SECONDS, httponly=True, samesite="strict", secure=secure
        )
        return response

    @router.post("/leave", dependencies=[Depends(caller)])
    async def leave(request: Request) -> Response:
        site.access.leave(request.cookies[site.cookie])
        response = JSONResponse({"state": "left"})
        response.delete_cookie(site.cookie)
        return response

    async def settled(outcome: Future[Any]) -> Response:
        settling = asyncio.shield(asyncio.wrap_future(outcome))
        try:
            return JSONResponse({"state": await asyncio.wait_for(settling, PATIENCE)})
        except TimeoutError:  # the browser keeps the answer and asks again
            return JSONResponse({"state": "waiting"}, 202)
        except StackslError:
            raise Refused(
                "the run is closed at the moment: the answer stays in this browser", 503
            ) from None

    @router.post("/answer")
    async def answer(name: Annotator, submitted: SubmittedAnswer) -> Response:
        text = _free(submitted.text if submitted.kind == "none" else None)
        note = _free(submitted.note)
        reply = Reply(0, submitted.key, submitted.kind, submitted.position, text, note)
        return await settled(site.player.say(name, reply.key, lambda run: run.enter(name, reply)))

    @router.post("/skip")
    async def skip(name: Annotator, row: Passed) -> Response:
        arguments = (name, row.key, row.why, _free(row.note))
        return await settled(site.player.say(name, row.key, lambda run: run.skip(*arguments)))

    return router


def _of_owner(site: Site) -> APIRouter:
    """What the owner alone sees and does."""
    router = APIRouter(dependencies=[Depends(owner)])

    @router.get("/report", response_class=HTMLResponse)
    async def report() -> Response:
        path = site.player.folder.path / "report.html"
        if site.player.view.state != "finished" or not path.is_file():
            raise Refused("the report can be opened once the run has finished", 404)
        return FileResponse(path, headers={"Content-Security-Policy": REPORT})

    @router.get("/asked", response_class=HTMLResponse)
    async def asked(
        request: Request,
        page: Annotated[int, Query(ge=1, le=MOST)] = 1,
        find: Annotated[str, Query(max_length=1000)] = "",
    ) -> Response:
        if site.player.view.state != "finished":
            raise Refused("the rows can be opened once the run has finished", 404)
        csrf = csrf_of(request.cookies.get(site.cookie, ""))
        try:
            return HTMLResponse(await asyncio.to_thread(pages.rows_page, site, page, find, csrf))
        except StackslError as fault:
            raise Refused(str(fault), 404) from None

    @router.post("/owner")
    async def act(act: Act) -> Response:
        return JSONResponse(await asyncio.to_thread(act_on, site, act))

    @router.post("/sheet")
    async def sheet(request: Request, name: Annotated[str, Query(max_length=255)]) -> Response:
        data = await request.body()
        return JSONResponse(await asyncio.to_thread(enter_sheet, site, name, data))

    return router


def _refusal(refusal: Refused) -> Response:
    return JSONResponse({"state": "error", "sentence": refusal.sentence}, refusal.status)


class Connection(H11Protocol):  # type: ignore[misc]  # uvicorn is an extra
    """A connection that is closed where its request is not there in time.

    Who keeps a request back leaves room for those who send theirs: of more than `WAITING` the
    oldest one of the address that has most of them is closed. Browsers send a request as soon as
    they are connected, and connect again.
    """

    waiting: ClassVar[dict["Connection", asyncio.TimerHandle]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        """Read what has arrived; a whole request is answered, and no longer waited for."""
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and not (cycle.more_body or cycle.response_complete):
            self._end_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._end_wait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._end_wait()
        self.waiting[self] = self.loop.call_later(WHOLE, self.transport.abort)
        if len(self.waiting) > WAITING:
            [(address, _)] = Counter(peer.client[0] for peer in self.waiting).most_common(1)
            oldest = next(peer for peer in self.waiting if peer.client[0] == address)
            oldest._end_wait()
            oldest.transport.abort()

    def _end_wait(self) -> None:
        if (timer := self.waiting.pop(self, None)) is not None:
            timer.cancel()
