"""A real browser for tests: Debian's chromium without a screen, asked over its own protocol."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium")
# What a page looks like to whoever holds the browser; the page itself may run nothing.
_SEEN = """JSON.stringify({
    text: document.body.innerText,
    wide: document.documentElement.scrollWidth > innerWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    elements: [...new Set([...document.querySelectorAll("*")].map(one => one.localName))],
    asked: performance.getEntriesByType("resource").map(one => one.name),
    ran: window.ran === undefined ? "nothing" : window.ran,
})"""


def seen(
    folder: Path, url: str, *, width: int = 1000, dark: bool = False, attack: str = ""
) -> dict[str, Any]:
    """What a browser makes of a page, with what it says against it in `refused`.

    Args:
        folder: for the browser's own files; `seen.png` there is a picture of the page.
        url: of the page.
        width: of the window, in pixels; a telephone has 360.
        dark: whether its owner wants dark pages.
        attack: a script that is run in the page, first.
    """
    if PROGRAM is None:
        pytest.skip("needs Debian's chromium")
    aiohttp = pytest.importorskip("aiohttp", reason="needs the extra net")
    quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")
    command = [PROGRAM, *quiet, "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
        assert browser.stderr is not None
        try:
            address = next(line for line in browser.stderr if "DevTools listening on" in line)
            place = address.split()[-1].split("/")[2]
            return asyncio.run(_asked(aiohttp, place, folder, url, width, dark, attack))
        finally:
            browser.kill()


async def _asked(
    aiohttp: Any, place: str, folder: Path, url: str, width: int, dark: bool, attack: str
) -> dict[str, Any]:
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://{place}/json/new?about:blank") as opened:
            page = await opened.json()
        async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as line:
            asking = _Asking(line)
            for domain in ("Page", "Runtime", "Log"):
                await asking.call(f"{domain}.enable")
            await asking.call("Emulation.setEmulatedMedia", features=scheme)
            await asking.call("Emulation.setDeviceMetricsOverride", **screen)
            await asking.call("Page.navigate", url=url)
            await asking.event("Page.loadEventFired")
            if attack:
                await asking.call("Runtime.evaluate", expression=attack)
                await asyncio.sleep(0.5)
            result = await asking.call("Runtime.evaluate", expression=_SEEN)
            shot = await asking.call("Page.captureScreenshot", captureBeyondViewport=True)
            (folder / "seen.png").write_bytes(b64decode(shot["data"]))
            found: dict[str, Any] = json.loads(result["result"]["value"])
            return found | {"refused": _refused(asking.events)}


class _Asking:
    """One line to a page: calls with their answers, and what it tells meanwhile."""

    def __init__(self, line: Any) -> None:
        self._line, self._number = line, 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        self._number += 1
        await self._line.send_json({"id": self._number, "method": method, "params": given})
        while (said := await self._line.receive_json(timeout=30)).get("id") != self._number:
            self.events.append(said)
        result: dict[str, Any] = said["result"]
        return result

    async def event(self, method: str) -> None:
        while not any(one.get("method") == method for one in self.events):
            self.events.append(await self._line.receive_json(timeout=30))


def _refused(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the browser says in its console."""
    entries = [one["params"]["entry"] for one in events if one.get("method") == "Log.entryAdded"]
    return [str(entry["text"]) for entry in entries if "favicon" not in str(entry.get("url"))]
