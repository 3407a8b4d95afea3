"""A headless Chromium, driven through a pipe by the DevTools protocol: no driver program, no port,
no library.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import time
from pathlib import Path
from typing import Any

NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
SECONDS = 400  # until an answer is late; a busy machine needs a few


def find_chromium() -> str | None:
    """The program: the environment's CHROMIUM, or else the first of NAMES on PATH; None where there
    is none.
    """
    names = [named] if (named := os.environ.get("CHROMIUM")) else NAMES
    return next((path for name in names if (path := shutil.which(name))), None)


# Words whose contrast with what is behind them is below 4.5 to 1, the least of WCAG's level AA.
# Words in pictures are left out: their backgrounds are drawn, not styled.
FAINT_WORDS = r"""(() => {
    const channels = colour => {
        const numbers = colour.match(/[\d.]+/g).map(Number);
        const scale = colour.startsWith('color(') ? 255 : 1;
        return [...numbers.slice(0, 3).map(one => one * scale), numbers[3] ?? 1];
    };
    const over = (above, below) => [0, 1, 2].map(
        i => above[i] * above[3] + below[i] * (1 - above[3]));
    const luminance = colour => colour.slice(0, 3)
        .map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        const layers = [];
        for (let e = element; e; e = e.parentElement) {
            layers.unshift(channels(getComputedStyle(e).backgroundColor));
            if (layers[0][3] === 1) break;
        }
        return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const faint = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim();
        const element = walker.currentNode.parentElement;
        const seen = {opacityProperty: true, visibilityProperty: true};
        if (!text || element.closest('svg, :disabled') || !element.checkVisibility(seen)) continue;
        const colour = channels(getComputedStyle(element).color);
        for (let e = element; e; e = e.parentElement) colour[3] *= getComputedStyle(e).opacity;
        const back = behind(element);
        const [low, high] = [luminance(over(colour, back)), luminance(back)].sort((a, b) => a - b);
        if ((high + 0.05) / (low + 0.05) < 4.5) faint.add(text);
    }
    return [...faint];
})()"""


class Chromium:
    """One browser with one page. `close` ends it."""

    def __init__(self, program: str, profile: Path):
        arguments = [
            program,
            "--headless",
            "--no-sandbox",  # which root may not use
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        # The browser reads from descriptor 3 and writes to 4. Ours are far above, so that none is
        # overwritten.
        commands, self._to = (self._above(end) for end in os.pipe())
        self._from, answers = (self._above(end) for end in os.pipe())
        self._process = os.posix_spawn(
            program,
            arguments,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, commands, 3),
                (os.POSIX_SPAWN_DUP2, answers, 4),
            ],
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    @staticmethod
    def _above(descriptor: int) -> int:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 100)
        os.close(descriptor)
        return high

    def close(self) -> None:
        self._session = None
        try:
            self.command("Browser.close")
        finally:
            os.close(self._to)
            os.close(self._from)
            os.waitpid(self._process, 0)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer. Events that come in between are kept in
        `events`.
        """
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._to, text) :]
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, address: str, width: int = 1300, height: int = 900, dark: bool = False) -> None:
        """Loads a page, from nothing, in a window of this size; what happened before is
        forgotten.
        """
        self.command("Page.navigate", url="about:blank")
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.command("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = self.command("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Writes the window's content as PNG."""
        answer = self.command("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def faint_words(self) -> list[str]:
        """Words that are hard to read against what is behind them."""
        return self.run(FAINT_WORDS)

    def point(self, selector: str) -> None:
        """Moves the mouse to the middle of the first element that fits."""
        self._mouse("mouseMoved", *self._middle(selector))

    def click(self, selector: str) -> None:
        x, y = self._middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(kind, x, y)

    def away(self) -> None:
        """Moves the mouse to the corner."""
        self._mouse("mouseMoved", 1, 1)

    def press(self, key: str) -> None:
        """A key by its name: Tab, Enter, Escape, ArrowDown ..."""
        codes = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        options = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.command(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **options, **text
        )
        self.command("Input.dispatchKeyEvent", type="keyUp", **options)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions that nobody caught."""
        self.run("0")  # what was said before has then arrived
        found = []
        for event in self.events:
            details = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(
                    details["exceptionDetails"].get("exception", {}).get("description", "exception")
                )
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(str(details["args"]))
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] in (
                "error",
                "warning",
            ):
                found.append(details["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for since `open`, the page's own among them."""
        self.run("0")
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _middle(self, selector: str) -> tuple[float, float]:
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return "
            "null; e.scrollIntoView({block: 'center', inline: 'center'}); const b = "
            "e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        if place is None:
            raise LookupError(f"the page has no {selector}")
        return place[0], place[1]

    def _mouse(self, kind: str, x: float, y: float) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)
