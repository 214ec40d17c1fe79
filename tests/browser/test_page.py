"""The page: chat streams, stop stops, the rings drawn are those of /debug/rings, and nothing is logged as an error."""

import json
import os
import pathlib
import re
import tempfile
import time
import unittest
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from serving import PLAIN_TEMPLATE, Server

ENDLESS = 8000  # tokens
# Once there are a few words: a click, or a key wherever the focus is.
STOP_SOON = {
    how: f"""const observer = new MutationObserver(() => {{
      const body = document.querySelector(".message.assistant .body");
      if (!body || body.textContent.length < 20) return;
      observer.disconnect();
      {act}
    }});
    observer.observe(document.getElementById("log"), {{childList: true, subtree: true, characterData: true}});"""
    for how, act in {
        "button": 'document.getElementById("stop").click();',
        "escape": 'document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));',
    }.items()
}
SCREENSHOTS = os.environ.get("SLIPRING_SCREENSHOTS")


def browser(width, height, dark=False):
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--window-size={width},{height}"):
        options.add_argument(argument)
    if dark:
        options.add_argument("--force-dark-mode")
        options.add_argument("--blink-settings=preferredColorScheme=0")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service("/usr/bin/chromedriver")
    return webdriver.Chrome(service=service, options=options)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        template = pathlib.Path(cls.folder.name) / "template"
        template.write_text(PLAIN_TEMPLATE)
        # The longest context, and no hurry: a slow browser should find answers that still run.
        cls.server = Server("--ctx", "8192", "-t", "1", "--chat-template", str(template), "--name", "glimmer-tiny")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def open(self, width=1360, height=1330, dark=False):
        self.driver = browser(width, height, dark)
        self.addCleanup(self.driver.quit)
        self.driver.get(self.server.url + "/")
        self.wait(lambda: "glimmer-tiny" in self.find("#model").text)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def wait(self, condition, seconds=240):
        WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(lambda _: condition())

    def answer(self):
        bodies = self.driver.find_elements(By.CSS_SELECTOR, ".message.assistant .body")
        return bodies[-1].text if bodies else ""

    def set_field(self, name, value):
        self.driver.execute_script(
            "const f = document.getElementById(arguments[0]); f.value = arguments[1]; f.dispatchEvent(new Event('change'));",
            name, str(value))

    def rings(self):
        with urllib.request.urlopen(self.server.url + "/debug/rings") as reply:
            return json.load(reply)

    def cancelled(self):
        """Requests that the server ended because their client left."""
        with urllib.request.urlopen(self.server.url + "/metrics") as reply:
            return int(re.search(r"^slipring_generations_cancelled_total (\d+)", reply.read().decode(), re.M).group(1))

    def last_request(self):
        """The newest request that the server knows of."""
        rings = self.rings()
        return max([one["request"] for one in rings["sequences"] + [rings["last"]] if one], default=0)

    def drawn_length(self, after):
        """Positions of the request that the page draws; 0 while that is none later than `after`."""
        drawn = json.loads(self.find("#layers").get_attribute("data-state") or "{}").get("sequence")
        return drawn["length"] if drawn and drawn["request"] > after else 0

    def picture(self, name):
        if SCREENSHOTS:
            self.driver.save_screenshot(str(pathlib.Path(SCREENSHOTS) / f"{name}.png"))

    def expect_clean_console(self):
        log = [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        self.assertEqual(log, [])

    def send(self, text):
        self.find("#prompt").send_keys(text)
        self.find("#prompt").send_keys(Keys.ENTER)

    def test_chat_streams(self):
        self.open()
        self.set_field("max_tokens", 400)
        self.set_field("temperature", 0)
        # The page itself counts what it shows: a driver may be too slow to see the text grow.
        self.driver.execute_script(
            "window.lengths = new Set(); new MutationObserver(() => {"
            "  const body = document.querySelector('.message.assistant .body');"
            "  if (body) window.lengths.add(body.textContent.length);"
            "}).observe(document.getElementById('log'), {childList: true, subtree: true, characterData: true});")
        self.send("And the LORD spake")
        self.wait(lambda: self.answer() and self.find("#send").is_enabled())
        # It came in pieces, not at once.
        self.assertGreater(self.driver.execute_script("return window.lengths.size"), 3)
        self.assertGreater(len(self.answer()), 100)
        self.assertIn("tokens in", self.find("#status").text)
        self.expect_clean_console()

    def test_stop_stops(self):
        self.open()
        self.set_field("max_tokens", ENDLESS)
        self.set_field("temperature", 0)
        for stopper in ("button", "escape"):
            self.find("#clear").click()
            cancelled = self.cancelled()
            # The page itself stops at the first words: a slow driver might come after the answer's end.
            self.driver.execute_script(STOP_SOON[stopper])
            self.send("And it came to pass")
            self.wait(lambda: self.answer() and self.find("#send").is_enabled())
            stopped = self.answer()
            self.wait(lambda: self.rings()["running"] == 0)
            # The server stopped for it, too, far from the limit, and nothing came afterwards.
            self.assertEqual(self.cancelled(), cancelled + 1)
            self.assertLess(self.rings()["last"]["length"], ENDLESS)
            self.assertEqual(self.answer(), stopped)
            self.assertEqual(self.find(".message.assistant:last-child .end").text, "stopped")
        self.expect_clean_console()

    def test_rings_are_those_of_the_server(self):
        self.open()
        self.set_field("max_tokens", ENDLESS)
        self.set_field("temperature", 0)
        before = self.last_request()
        self.send("And the LORD spake")
        # Past the window of 128, so that the rings have wrapped.
        self.wait(lambda: self.drawn_length(before) > 300)
        self.picture("page-light")
        drawn = json.loads(self.find("#layers").get_attribute("data-state"))["sequence"]
        capacity = [layer["capacity"] for layer in self.rings()["layers"]]
        self.assertEqual(capacity, [128, 128, 128, None] * 2)
        for index, cache in enumerate(drawn["layers"]):
            if capacity[index]:
                self.assertEqual(cache["first_held"], drawn["length"] - capacity[index])
                self.assertEqual(cache["next_slot"], drawn["length"] % capacity[index])
            else:
                self.assertEqual(cache["first_held"], 0)
        # What is on the page is what it was told, for the same step.
        shown = self.driver.execute_script(
            "return [JSON.parse(document.getElementById('layers').dataset.state).sequence.layers,"
            " [...document.querySelectorAll('.layer')].map(b => [b.dataset.firstHeld, b.dataset.nextSlot, b.getAttribute('aria-label')])]")
        self.assertEqual(len(shown[1]), 8)
        for cache, (first_held, next_slot, label) in zip(*shown):
            self.assertEqual([str(cache["first_held"]), str(cache["next_slot"])], [first_held, next_slot])
            self.assertIn("Layer", label)
        self.find(".layer:nth-child(4)").click()
        self.assertIn("full attention", self.find("#d-title").text)
        self.find(".layer:nth-child(3)").send_keys(Keys.ENTER)
        self.assertIn("ring, window 128", self.find("#d-title").text)
        self.assertRegex(self.find("#m-draft").text, r"^\d+ of \d+$")
        rings, without = (self.find(f"#kv-{kind}").text for kind in ("rings", "without"))
        self.assertNotEqual(rings, without)
        self.find("#stop").click()
        self.wait(lambda: self.rings()["running"] == 0)
        # Now that it stands still: what is drawn is what the server says.
        last = self.rings()["last"]
        self.wait(lambda: json.loads(self.find("#layers").get_attribute("data-state"))["sequence"] == last)
        self.assertEqual(self.find("#m-length").text, f"{last['length']} (ended)")
        self.expect_clean_console()

    def test_dark_and_phone(self):
        self.open(dark=True)
        self.set_field("max_tokens", ENDLESS)
        self.set_field("temperature", 0)  # a drawn answer might end early
        before = self.last_request()
        self.send("And the LORD spake")
        self.wait(lambda: self.drawn_length(before) > 200)
        self.picture("page-dark")
        self.driver.quit()
        self.open(390, 844)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
        self.set_field("max_tokens", ENDLESS)
        self.set_field("temperature", 0)  # a drawn answer might end early
        before = self.last_request()
        self.send("And the LORD spake")
        self.wait(lambda: self.drawn_length(before) > 150)
        self.assertLessEqual(self.driver.execute_script("return document.documentElement.scrollWidth"), 390)
        self.picture("page-phone-chat")
        self.driver.execute_script("document.querySelector('.rings').scrollIntoView()")
        time.sleep(0.3)
        self.picture("page-phone-rings")
        self.expect_clean_console()

    def test_keyboard_alone(self):
        self.open()
        self.find("body").send_keys(Keys.TAB)
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("class"), "skip")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        seen = set()
        for _ in range(24):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            element = self.driver.switch_to.active_element
            seen.add(element.get_attribute("id") or element.get_attribute("class") or element.tag_name)
        self.assertTrue({"send", "clear", "summary", "layer"} <= seen, seen)


if __name__ == "__main__":
    unittest.main()
