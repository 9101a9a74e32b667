"""The pictures of reports/: `python tests/browser/take_pictures.py` takes them of the example.

Needs Chromium with its driver. English in the light, Chinese in the dark, and the charts of a
narrow screen zoomed to where it went wrong.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPORTS = Path(__file__).resolve().parents[2] / "reports"


@dataclass(frozen=True)
class Picture:
    """A view of the page: size in pixels, where, and which part is brought to the top."""

    name: str
    width: int
    height: int
    hash: str
    top: str = ""


PICTURES = (
    Picture("example-en.png", 1280, 860, "#steps=0:520&lang=en&theme=light"),
    Picture("example-zh-dark.png", 1280, 860, "#steps=0:520&lang=zh&theme=dark"),
    Picture("example-charts.png", 1280, 860, "#LA101-1&lang=en&theme=light", "#charts"),
)


def main() -> None:
    """Take every picture."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chrome") or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-sync",
                     "--disable-background-networking", "--disable-component-update",
                     "--hide-scrollbars", f"--user-data-dir={profile}"):  # fmt: skip
            options.add_argument(flag)
        service = Service(shutil.which("chromedriver") or "chromedriver")
        driver = webdriver.Chrome(options=options, service=service)
        try:
            for picture in PICTURES:
                take(driver, picture)
        finally:
            driver.quit()


def take(driver: object, picture: Picture) -> None:
    """Open the example as the picture wants it and save what is seen."""
    from selenium.webdriver.chrome.webdriver import WebDriver

    assert isinstance(driver, WebDriver)
    size = {"width": picture.width, "height": picture.height, "deviceScaleFactor": 1,
            "mobile": False}  # fmt: skip
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get("about:blank")
    driver.get((REPORTS / "example.html").as_uri() + picture.hash)
    place = f"document.querySelector('{picture.top}')?.scrollIntoView({{behavior: 'instant'}})"
    scroll = place if picture.top else "scrollTo({top: 0, behavior: 'instant'})"
    end = time.monotonic() + 60
    while time.monotonic() < end and not driver.execute_script(
        f"{scroll}; const all = [...document.querySelectorAll('figure[data-chart]')];"
        "return all.filter((f) => f.chart.visible).every((f) => f.dataset.drawn && !f.chart.dirty)"
    ):
        time.sleep(0.2)
    time.sleep(1.0)
    driver.execute_script(scroll)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    target = REPORTS / picture.name
    target.write_bytes(base64.b64decode(shot["data"]))
    sys.stdout.write(f"{target.name}: {target.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
