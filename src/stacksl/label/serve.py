"""Serving the page of a run until the run has finished."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from stacksl.errors import MissingExtra, SettingsError
from stacksl.label.player import IDLE, Player
from stacksl.label.site import OWNER, Access, Site
from stacksl.runs.storage.folder import RunFolder

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
LINGER = 20.0  # seconds after the run's end in which open pages learn that it has finished
LONGEST = 900.0  # seconds for which the owner may read report and rows on the page


def serve(
    folder: RunFolder,
    ready: Callable[[Mapping[str, str]], None],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    idle: float = IDLE,
    guidelines: str = "",
) -> None:
    """Serve the page until the run has finished; an interrupt stops it before.

    Args:
        ready: called with the links of the owner and of each annotator once the page can be opened.
        host: an address to listen on, or the name by which a proxy on this machine is reached.
        port: 0 for a free one.
        idle: seconds without an answer after which somebody's rows go to others; 0 for never.
        guidelines: shown next to each question.

    Raises:
        MissingExtra: FastAPI or uvicorn is not installed.
        SettingsError: the address or the port cannot be used.
        StackslError: the run cannot be played, or failed.
    """
    try:
        import uvicorn

        from stacksl.label.app import Connection, make_app
    except ImportError as fault:
        raise MissingExtra.of("the page for annotators", "label") from fault

    access = Access()
    with closing(_listening(host, port)) as listener:
        address, bound_port = listener.getsockname()[:2]
        page = f"http://[{host}]:{bound_port}/" if ":" in host else f"http://{host}:{bound_port}/"
        player = Player(folder, idle, page)
        site = Site(player, access, LOOPBACK | {host, address}, guidelines)
        app = make_app(site)
        config = uvicorn.Config(
            app,
            http=Connection,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=500,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        player.start()
        try:
            finished = player.view.state == "finished"
            names = {name: name for name in player.annotators if not finished} | {"(owner)": OWNER}
            ready({title: f"{page}#{access.link(name)}" for title, name in names.items()})
            _stop_at_the_end(site, server, keep_open=finished)
            server.run(sockets=[listener])
        finally:
            player.stop()
    if player.fault is not None:
        raise player.fault


def _stop_at_the_end(site: Site, server: Any, *, keep_open: bool) -> None:
    """End the server after the run and its owner's visit; with `keep_open` only after a fault."""

    def watch() -> None:
        site.player.over.wait()
        while keep_open and site.player.fault is None:
            time.sleep(0.5)
        until = time.monotonic() + LONGEST
        time.sleep(LINGER)
        while site.watched and time.monotonic() < until:
            time.sleep(0.5)
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()


def _listening(host: str, port: int) -> socket.socket:
    """A socket at an address; for a name at loopback, which a proxy passes its requests to."""
    address = host if is_address(host) else "127.0.0.1"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise SettingsError(
            f"the page cannot be served at {address}, port {port} ({why}): give another --port"
        ) from fault


def is_address(host: str) -> bool:
    """Whether `host` is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
