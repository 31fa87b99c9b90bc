"""The status page in a real Chromium against a live app: what people read, do and see."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deployments.guard.guard import Guard
from deployments.guard.keys import new_key
from deployments.guard.settings import GuardSettings
from tests.rigs.browser import Page, browsing, chromium
from tests.rigs.fleet import FleetServer, serving_fleet
from tests.rigs.keyed_server import entry, write_keys

# Set, the pictures of the documentation are taken anew; nothing is written otherwise.
PICTURES = os.environ.get("DFLASH_PICTURES")
IMAGES = Path(__file__).parents[2] / "docs" / "images"
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}
PIN_CELL = "document.querySelector('#rows [data-replica=r1] [data-cell=pin]')"
COLUMNS = ["replica", "plan", "why", "load", "acceptance", "gain", "latency", "memory", "pin"]

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium on the PATH: apt-get install chromium"
)


@pytest.fixture(scope="module")
def served() -> Iterator[FleetServer]:
    """A fleet that has seen every kind of load."""
    with serving_fleet(("r1", "r2", "r3")) as server:
        server.member("r1").steps(1500)
        server.member("r2").steps(900, rows=6, right=7)
        server.member("r3").steps(300, rows=20, right=2)
        for member in server.members:
            member.loop.step_s = 0.002
        for _ in range(9):
            httpx.post(f"{server.base_url}/v1/chat/completions", json=CHAT).raise_for_status()
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page, served: FleetServer) -> Page:
    """The page as somebody just opened it."""
    served.client.silent.clear()
    browser.complaints.clear()
    browser.look(width=1440)
    browser.open(f"{served.base_url}/status")
    browser.wait_for("document.querySelectorAll('#rows tr').length === 3 && !!$('log').children[0]")
    return browser


def cells(page: Page, replica: str) -> dict[str, str]:
    """Return what people read in each cell of a replica's row."""
    found = page.value_of(
        f"""JSON.stringify(Object.fromEntries([...document.querySelectorAll(
        '#rows tr[data-replica="{replica}"] td')].map((td) => [td.dataset.cell, td.innerText])))"""
    )
    return json.loads(found)


def choose(page: Page, select: str, value: str) -> None:
    """Choose one of several."""
    page.value_of(f"$('{select}').value = '{value}'")
    page.value_of(f"$('{select}').dispatchEvent(new Event('change'))")


def test_every_cell_of_every_replica_says_what_it_knows_or_that_it_does_not(page: Page):
    page.wait_for("$('rows').innerText.split('3 requests').length === 4")
    one, two, three = (cells(page, name) for name in ("r1", "r2", "r3"))
    assert [*one] == COLUMNS
    assert one["replica"].startswith("r1")
    assert "reported" in one["replica"]
    assert one["plan"].startswith("dflash2, 7")
    assert "since" in one["plan"]
    assert "docs/policy.md#" in one["why"]
    assert one["load"].split() == ["1", "decode", "0", "wait"]
    assert one["acceptance"].startswith("8.00 of 8 tokens a step")
    assert "graded" in one["acceptance"]
    assert "\u00d7" in one["gain"]
    assert "measured" in one["gain"]
    assert "expected" in one["gain"]
    assert "TPOT p95" in one["latency"]
    assert "TTFT p95" in one["latency"]
    assert "3 requests" in one["latency"]
    assert "5.00 GiB free of 24.0 GiB" in one["memory"]
    for part in ("weights", "drafter", "KV free", "other", "headroom", "floor"):
        assert part in one["memory"]
    assert one["pin"] == "none"
    assert two["plan"].startswith("mtp, 3")
    assert "dflash2, idle" in two["acceptance"]
    assert three["plan"].startswith("plain")
    assert "not measured yet" in three["acceptance"]
    assert "no trial yet" in three["gain"]
    assert page.complaints == []


def test_the_top_line_is_in_words_and_the_bars_tell_what_they_show(page: Page):
    assert page.text_of("#summary").startswith("2 of 3 replicas speculate. Output ")
    assert page.text_of("#sign") == "\u2713 Well"
    bars = page.value_of("document.querySelector('.places').getAttribute('aria-label')")
    assert bars.startswith("dflash2: drafts right up to place 1, 2")
    heights = page.value_of("[...document.querySelector('.places').children].length")
    assert heights == 7


def test_the_log_is_newest_first_folded_and_can_be_asked_for_one_reason(page: Page):
    def texts(selector: str) -> list[str]:
        script = f"[...document.querySelectorAll('#log {selector}')].map((n) => n.innerText)"
        return page.value_of(script)

    assert page.value_of("$('log-reason').value") == "all but trials"
    assert any(text.endswith("\u00d7") for text in texts(".count"))
    assert "probe" not in page.text_of("#log")
    choose(page, "log-reason", "probe")
    assert set(texts(".reason")) == {"probe"}
    times = page.value_of("[...document.querySelectorAll('#log time')].map((n) => n.dateTime)")
    assert times == sorted(times, reverse=True)


def test_a_pin_is_set_and_lifted_by_keyboard_alone(page: Page, served: FleetServer):
    page.value_of("$('pin-plan').value = 'mtp:2'; $('pin-plan').focus()")
    for key in ("Tab", "Tab", " "):
        page.press(key)
    assert page.value_of("document.activeElement.value") == "r1"
    assert not page.value_of("document.querySelector('[name=replicas][value=\"*\"]').checked")
    for id_, text in (("pin-minutes", ""), ("pin-why", "night shift"), ("pin-author", "ana")):
        page.value_of(f"$('{id_}').focus()")
        page.write(text)
    page.press("Enter")
    page.wait_for("$('pin-said').innerText.includes('mtp:2 is pinned on r1.')")
    page.wait_for(f"{PIN_CELL}.querySelector('button')")
    shown = cells(page, "r1")["pin"]
    assert "by ana: night shift" in shown
    assert "min left" in shown
    assert cells(page, "r2")["pin"] == "none"
    assert "1 pin holds." in page.text_of("#summary")
    ready = httpx.get(f"{served.base_url}/readyz").json()
    assert [pin["why"] for pin in ready["pins"]] == ["night shift"]
    page.value_of(f"{PIN_CELL}.querySelector('button').focus()")
    page.press("Enter")
    page.wait_for("$('pin-said').innerText.includes('is removed')")
    page.wait_for(f"{PIN_CELL}.innerText === 'none'")


def test_what_a_pin_lacks_is_said_beside_the_form_and_release_goes_with_plain_alone(page: Page):
    page.value_of("$('pin-why').value = 'x'; $('pin-author').value = ''")
    page.value_of("$('pin-form').requestSubmit()")
    page.wait_for("$('pin-said').innerText.includes('who is answerable')")
    choose(page, "pin-plan", "mtp:2")
    assert page.value_of("$('pin-release').disabled")
    choose(page, "pin-plan", "plain")
    assert not page.value_of("$('pin-release').disabled")


def test_a_silent_replica_is_greyed_and_said_in_words(page: Page, served: FleetServer):
    served.client.silent.add("r2")
    page.wait_for("document.querySelector('tr.stale')", 30)
    assert "silent for" in cells(page, "r2")["replica"]
    assert page.text_of("#sign") == "\u25b2 Look here"
    assert "r2: silent for" in page.text_of("#alarms")
    served.client.silent.clear()
    page.wait_for("!document.querySelector('tr.stale')")


def test_a_server_that_does_not_answer_is_said_and_so_is_one_that_does_again(page: Page):
    page.value_of("window.kept = fetch; window.fetch = () => Promise.reject(new Error('gone'))")
    page.wait_for("$('summary').innerText.startsWith('No answer for')")
    assert page.value_of("document.querySelectorAll('tr.stale').length") == 3
    page.value_of("window.fetch = window.kept; poll()")
    page.wait_for("$('summary').innerText.includes('replicas speculate')")


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_nothing_is_cut_off_at_any_width(page: Page, width: int):
    page.look(width=width, is_phone=width < 500)
    assert page.value_of("document.documentElement.scrollWidth") <= width


def test_text_stands_out_by_day_and_by_night(page: Page):
    """Contrast of at least 4.5 between each text colour and what it stands on."""
    script = """(() => {
      const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
      const light = (name) => {
        canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
          .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const pairs = [['--ink', '--paper'], ['--ink', '--sheet'], ['--soft', '--paper'],
        ['--soft', '--sheet'], ['--good', '--good-back'], ['--bad', '--bad-back'],
        ['--ink', '--bad-back'], ['--note', '--note-back'], ['--on-accent', '--accent']];
      return pairs.map(([one, other]) => {
        const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
        return [one, other, (high + 0.05) / (low + 0.05)];
      });
    })()"""
    for is_dark in (False, True):
        page.look(width=1440, is_dark=is_dark)
        for one, other, contrast in page.value_of(script):
            assert contrast >= 4.5, (one, other, is_dark)


def test_every_control_has_a_name(page: Page):
    nameless = page.value_of(
        """[...document.querySelectorAll('button, input, select')].filter((each) =>
        !(each.innerText || '').trim() && !(each.labels && each.labels.length)).map((e) => e.id)"""
    )
    assert nameless == []


def test_where_keys_are_set_the_page_asks_for_one_and_its_name_is_the_author(
    browser: Page, tmp_path: Path
):
    looks, rules = new_key(), new_key()
    write_keys(tmp_path / "keys.yaml", entry("eve", looks, "status"), entry("ana", rules, "admin"))
    guard = Guard(GuardSettings(keys_file=str(tmp_path / "keys.yaml")))
    with serving_fleet(("r1",), guard) as server:
        browser.open(server.base_url.replace("://", f"://any:{looks}@") + "/status")
        for key in (looks, rules):
            browser.wait_for("!$('key-section').hidden")
            browser.value_of("$('key').focus()")
            browser.write(key)
            browser.press("Enter")
            browser.wait_for("$('key-section').hidden")
            browser.wait_for("document.querySelectorAll('#rows tr').length === 1")
            browser.value_of("$('pin-why').value = 'mine'; $('pin-form').requestSubmit()")
        browser.wait_for(f"{PIN_CELL}.innerText.includes('by ana: mine')")
        assert rules not in browser.value_of("document.documentElement.outerHTML")


@pytest.mark.skipif(PICTURES is None, reason="DFLASH_PICTURES=1 takes the pictures anew")
def test_pictures_of_the_documentation(page: Page, served: FleetServer):
    pin = {"plan": "plain", "minutes": 45, "replicas": ["r3"], "author": "ana"}
    url = f"{served.base_url}/policy/pins"
    made = httpx.post(url, json={**pin, "why": "baseline for the nightly benchmark"}).json()
    served.member("r3").steps(20, rows=20)
    page.wait_for("document.querySelector('[data-replica=r3] .word').innerText === 'pinned'")
    IMAGES.mkdir(exist_ok=True)
    for name, look in {
        "status-light": {"width": 1440},
        "status-dark": {"width": 1440, "is_dark": True},
        "status-phone": {"width": 390, "is_phone": True},
    }.items():
        page.look(**look)
        page.wait_for("document.querySelectorAll('#rows tr').length === 3")
        page.picture(IMAGES / f"{name}.png", most_height=1150)
    httpx.delete(f"{url}/{made['pin']['id']}").raise_for_status()
