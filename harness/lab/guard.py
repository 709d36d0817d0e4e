"""Who may ask the lab.

Somebody who has the address that the terminal printed. A page of another site can send requests to a port of
this machine, and can give itself a name that leads here (DNS rebinding). It has neither the random word in
the address nor the right `Host`, `Origin` and `Sec-Fetch-Site`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LONGEST_PATH = 2_000
"""Three words and the name of a folder; Python refuses to read numbers of 4,300 digits."""


class Guard:
    """Refuses whoever is not the page itself, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One question."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._may(scope):
            await send(
                {"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]}
            )
            await send({"type": "http.response.body", "body": b"refused\n"})
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.lower().encode() not in given
                    ),
                ]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _may(self, scope: Scope) -> bool:
        values: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name, []).append(value)
        hosts, origins, sites = (values.get(name, []) for name in (b"host", b"origin", b"sec-fetch-site"))
        own = (
            len(scope["path"]) <= LONGEST_PATH
            and len(hosts) == 1
            and hosts[0] in self._hosts
            and set(origins) <= self._origins
            and (set(sites) <= {b"same-origin", b"none"} or _opens_page(scope, values))
        )
        if scope["method"] == "POST":  # a browser says where it comes from, and asks before it sends JSON
            return own and len(origins) == 1 and values.get(b"content-type") == [b"application/json"]
        return own and scope["method"] in ("GET", "HEAD")


def _opens_page(scope: Scope, values: dict[bytes, list[bytes]]) -> bool:
    """Whether a link somewhere is followed to the page itself, in a window of its own."""
    how = (b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document")
    is_page = scope["path"].count("/") == 2 and scope["path"].endswith("/")
    return is_page and scope["method"] == "GET" and all(values.get(name) == [value] for name, value in how)
