"""Headless Chromium for tests: one page in one browser, its console and network recorded."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver here"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1280,900",
)  # fmt: skip


class Browser:
    """One page in one browser: opens it, waits, asks."""

    def __init__(self, profile: Path) -> None:
        """Start Chromium with a fresh profile, its console and network recorded."""
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))

    def open(self, path: Path, hash_: str = "") -> None:
        """Load the page anew."""
        self.driver.get("about:blank")
        self.log("browser")
        self.log("performance")
        self.driver.get(path.as_uri() + hash_)

    def log(self, kind: str) -> list[str]:
        """What the console or the network said since the last call."""
        return [entry["message"] for entry in self.driver.get_log(kind)]

    def run(self, script: str) -> object:
        """The value of a script in the page."""
        return self.driver.execute_script(script)

    def wait(self, script: str, seconds: float = 40.0) -> object:
        """The first true value of a script; fails when it stays false."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}")
