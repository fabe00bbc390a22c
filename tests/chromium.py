"""A real browser for tests of pages: the fixture `browser` starts it, and `open_page` opens a page in it.

Chromium and its driver are Debian's `chromium` and `chromium-driver`, or those of the machine; tests are skipped if
there are none.
"""

from __future__ import annotations

import json
import shutil
import time

import pytest

__all__ = ["DESK", "PHONE", "open_page", "start_browser"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PHONE, DESK = 390, 1280


def start_browser():
    """Headless Chromium with its logs."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser here: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    # Containers and root often do not allow a sandbox, and the pages are our own.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.set_script_timeout(600)  # seconds, however slow the machine
    return browser


def open_page(browser, address, *, width=DESK, scheme="light"):
    """Open a page and return the messages of the console and the network."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    time.sleep(0.2)  # wait for late requests
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return browser.get_log("browser"), requests
