"""A headless Chromium driven over its own debugging pipe: no driver, no package, no port."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
PATIENCE = 120.0  # seconds; a busy machine is slow, not broken
# The browser reads commands from its file 3 and writes answers to its file 4.
ONTO_3_AND_4 = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def executable() -> str | None:
    """The browser to use: $GFRNN_BROWSER, or the first that is installed."""
    return os.environ.get("GFRNN_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process; `page` opens a tab of its own: pages leave nothing behind, and a window takes longer."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="gfrnn-browser-", ignore_cleanup_errors=True)
        commands, self.to_browser = os.pipe()
        self.from_browser, answers = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands, answers)]
        for fd in (commands, answers):
            os.close(fd)
        command = [sys.executable, "-c", ONTO_3_AND_4, *map(str, theirs), path, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.profile.name},
        )
        for fd in theirs:
            os.close(fd)
        self.answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.pages: dict[str, Page] = {}
        self.last = 0
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()

    def _listen(self) -> None:
        waiting = b""
        while chunk := os.read(self.from_browser, 1 << 20):
            *messages, waiting = (waiting + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers[message["id"]].put(message)
                elif page := self.pages.get(message.get("sessionId", "")):
                    page.event(message["method"], message["params"])
        for answer in self.answers.values():
            answer.put({"error": {"message": "the browser has ended"}})

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        answer = self.send(method, session, **params).get(timeout=PATIENCE)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def send(self, method: str, session: str | None = None, **params: Any) -> queue.Queue[dict[str, Any]]:
        self.last += 1
        answer = self.answers[self.last] = queue.Queue()
        message = {"id": self.last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        return answer

    @contextlib.contextmanager
    def page(self, width: int = 1280, height: int = 900, **options: Any) -> Iterator[Page]:
        page = Page(self, width, height, **options)
        try:
            yield page
        finally:
            self.call("Target.closeTarget", targetId=page.target)

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError, queue.Empty):
            self.call("Browser.close")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.profile.cleanup()


class Page:
    """A tab: what it said to the console, what it asked the network for, and how to use it."""

    def __init__(self, browser: Browser, width: int, height: int, dark: bool = False) -> None:
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.complaints, self.requests = list[str](), list[str]()
        self.loaded = threading.Event()
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # also when another tab is in front
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}]
        )

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(arg.get("value")) for arg in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded.set()
        elif method == "Target.attachedToTarget":  # a worker: its requests count, too
            self.browser.pages[params["sessionId"]] = self
            self.browser.send("Network.enable", params["sessionId"])
            self.browser.send("Runtime.enable", params["sessionId"])

    def before_scripts(self, source: str) -> None:
        self.call("Page.addScriptToEvaluateOnNewDocument", source=source)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def goto(self, address: str) -> None:
        self.loaded.clear()
        self.call("Page.navigate", url=address)
        assert self.loaded.wait(PATIENCE), f"{address} did not load"

    def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        options = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = self.call("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def expect(self, condition: str) -> Any:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if value := self.run(condition):
                return value
            time.sleep(0.02)
        raise AssertionError(f"never true: {condition}\nthe page said: {self.complaints}")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def all(self, selector: str, answer: str) -> list[Any]:
        """What a script answers for `one` of all elements a selector finds."""
        return list(self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => {answer})"))

    def choose(self, selector: str, value: str, event: str = "change") -> None:
        """Give a field a value, as a user of it does."""
        one = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{one}.focus(); {one}.value = {json.dumps(value)}; {one}.dispatchEvent(new Event('{event}'))")

    def click(self, selector: str) -> None:
        """With the mouse, where a reader would."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, name: str, **options: Any) -> None:
        codes = {
            "Tab": 9,
            "Enter": 13,
            "End": 35,
            "Home": 36,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            " ": 32,
        }
        text = {"Enter": "\r", " ": " "}.get(name)
        common = {
            "key": name,
            "code": "Space" if name == " " else name,
            "windowsVirtualKeyCode": codes[name],
            **options,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def downloads(self, folder: Path) -> None:
        self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def picture(self, path: Path, whole: bool = True, clip: dict[str, float] | None = None) -> None:
        options: dict[str, Any] = {"captureBeyondViewport": True}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        if clip:
            options["clip"] = {**clip, "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))


class ScriptError(Exception):
    """What a script of the page threw."""
