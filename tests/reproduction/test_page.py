"""The page of everything recorded: read as HTML, and opened and clicked in a browser where there is one."""

import base64
import json
import os
import re
import shutil
from html.parser import HTMLParser

import pytest

from fedsaf.reproduction.claims.definition import claim_definitions
from fedsaf.reproduction.selection import table_definitions
from page import main
from tests.reproduction.recorded import record_place, record_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOADS = {"src", "href", "srcset", "data", "action", "poster", "background"}
HITS = {"gcsa0": (62, "fedsaf_gcsa", 0), "gcsa1": (75, "fedsaf_gcsa", 1), "mse0": (9, "fedsaf_mse", 0)}
NAMES = {"fedsaf_gcsa": "FedSAF-GCSA", "fedsaf_mse": "FedSAF-MSE"}


class Page(HTMLParser):
    """Elements of the page, with the text of table rows by the name of their run."""

    VOID = {"meta", "input", "br", "img", "link"}

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(text)
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "attributes": dict(attributes), "text": "", "parents": [one["tag"] for one in self.open]}
        element["row"] = next((one for one in reversed(self.open) if one["tag"] == "tr"), None)
        self.elements.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def find(self, tag, **attributes):
        wanted = {key.replace("_", "-"): value for key, value in attributes.items()}
        return [e for e in self.elements if e["tag"] == tag and wanted.items() <= e["attributes"].items()]

    def cells(self, row):
        return [e for e in self.elements if e["tag"] in ("td", "th") and e["row"] is row]


def made(tmp_path):
    main([str(tmp_path / "runs"), "--output", str(tmp_path / "out" / "index.html")])
    return tmp_path / "out" / "index.html"


def parsed(tmp_path):
    return Page(made(tmp_path).read_text(encoding="utf-8"))


def record(tmp_path, scale="full"):
    for name, (hits, method, seed) in HITS.items():
        record_place(tmp_path / "runs" / name, "saf-f9", f"CIFAR-10, {NAMES[method]}", hits, scale, seed=seed)


def faults(page):
    return [element["text"] for element in page.find("li", **{"class": "fault"})]


def test_everything_is_inline(tmp_path):
    record(tmp_path)
    text = made(tmp_path).read_text(encoding="utf-8")
    page = Page(text)
    for element in page.elements:
        for key in element["attributes"].keys() & LOADS:
            assert re.match(r"#\w|data:image/svg\+xml;base64,", element["attributes"][key]), element["attributes"]
    assert not page.find("link")
    assert "@import" not in text
    assert "url(" not in text
    assert "http" not in re.sub(r'"data:[^"]*"', "", text).replace("http-equiv", "")
    (policy,) = page.find("meta", http_equiv="Content-Security-Policy")
    assert policy["attributes"]["content"].startswith("default-src 'none'; img-src data:;")
    pictures = [base64.b64decode(e["attributes"]["src"].partition(",")[2]) for e in page.find("img")]
    assert pictures
    assert all(b"</svg>" in picture for picture in pictures)


def test_rows_of_runs_say_what_the_summaries_say(tmp_path):
    record(tmp_path)
    page = parsed(tmp_path)
    heads = [
        head["text"] for head in page.cells(next(e for e in page.elements if e["tag"] == "tr" and "Seed" in e["text"]))
    ]
    for name, (hits, method, seed) in HITS.items():
        (row,) = page.find("tr", data_run=name)
        values = [cell["attributes"]["data-value"] for cell in page.cells(row)]
        summary = json.loads((tmp_path / "runs" / name / "summary.json").read_text())
        found = dict(zip(heads, values, strict=True))
        assert float(found["Best"]) == 100 * summary["classifier"]["best"]["pooled"] == pytest.approx(hits)
        assert float(found["Last"]) == 100 * summary["classifier"]["last"]["pooled"]
        assert (found["Method"], int(found["Seed"]), int(found["Rounds"])) == (method, seed, 300)
        assert (float(found["Upload MiB"]), float(found["Download MiB"])) == (450.0, 900.0)
        assert float(found["Minutes"]) == summary["seconds"]["total"] / 60 == 75
        assert (found["Scale"], found["Rule"]) == ("full", "classifier")
        assert "batch_size: 100" in row["text"]


def test_cells_hold_our_mean_and_the_printed_number(tmp_path):
    record(tmp_path)
    page = parsed(tmp_path)
    (cell,) = [
        e for e in page.find("td", data_runs="gcsa0 gcsa1") if "88.03" in e["text"] and "Table III" in title(page, e)
    ]
    assert float(cell["attributes"]["data-value"]) == 68.5
    assert "68.50 ± 6.50" in cell["text"]
    assert "paper 88.03 ± 0.13" in cell["text"]
    empty = [e for e in page.find("td", data_runs="", data_value="") if e["text"] == "paper 88.06 ± 0.24"]
    assert empty


def title(page, cell):
    before = page.elements[: page.elements.index(cell)]
    return next(element["text"] for element in reversed(before) if element["tag"] == "h3")


def test_claims_stand_there_with_verdict_and_interval(tmp_path):
    record(tmp_path)
    page = parsed(tmp_path)
    rows = {e["attributes"]["data-claim"]: e for e in page.elements if "data-claim" in e["attributes"]}
    assert rows.keys() == claim_definitions().keys()
    row = rows["saf-t3-structure (CIFAR-10)"]
    assert "2 of 4 places without a run that counts" in row["text"]
    assert page.cells(row)[-1]["attributes"]["data-value"] == "undecided"
    decided = {name for name, row in rows.items() if page.cells(row)[-1]["attributes"]["data-value"] != "undecided"}
    assert decided <= {"saf-f7-client"}  # the only claim that two seeds of one cell decide


def test_no_runs_at_all(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert main([str(tmp_path / "runs"), "--output", str(tmp_path / "index.html")]) == 0
    page = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    titles = [e["text"] for e in page.find("h3") if e["text"].endswith("(not run)")]
    assert len(titles) == len(table_definitions())
    assert not page.find("img")
    assert not [e for e in page.elements if e["attributes"].get("data-run")]
    assert not faults(page)
    assert "0 finished runs" in capsys.readouterr().out


def test_bad_runs_are_named_and_fill_no_cell(tmp_path, capsys):
    root = tmp_path / "runs"
    for name in ("cut", "nan", "torn"):
        record_run(root / name, 60, choices={"dataset": "cifar100"}, seed=len(name))
    (root / "cut" / "summary.json").unlink()
    for name, old, new in (("nan", "0.6", "NaN"), ("torn", '"round": 2', '"round": 2"')):
        path = root / name / "metrics.jsonl"
        path.write_text(path.read_text().replace(old, new))
    record_run(root / "one", 60)
    record_run(root / "other", 61)
    record_run(root / "failed", 60, finish=False, seed=5)
    assert main([str(root), "--output", str(tmp_path / "out" / "index.html")]) == 1
    page = Page((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    named = "\n".join(faults(page))
    assert "cut: summary.json is missing" in named
    assert re.search(r"nan: metrics.jsonl, line \d: is damaged: holds NaN, expected finite numbers", named)
    assert "torn: metrics.jsonl, line 2: is damaged" in named
    assert re.search(
        r"one .* and other .* have seed 0 and one configuration, but different results \(in .*saf-t3", named
    )
    assert "failed" not in named
    assert page.find("td", data_value="unfinished")
    assert not [e for e in page.find("td") if e["attributes"].get("data-runs")]
    assert "does not count: " in capsys.readouterr().out


def test_what_runs_say_of_themselves_cannot_become_part_of_the_page(tmp_path):
    record_run(tmp_path / "runs" / "<b>run", choices={"method": "<script>alert(1)</script>"})
    page = parsed(tmp_path)
    assert len(page.find("script")) == 1
    assert not page.find("b")
    assert page.find("tr", data_run="<b>run")


@pytest.fixture(scope="module")
def browser():
    """A headless browser of this machine, driven by playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on the path: {', '.join(BROWSERS)}")
    with api.sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to start as root with its own
        yield driver.chromium.launch(executable_path=path, args=arguments)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where the page of runs in two scales lies."""
    folder = tmp_path_factory.mktemp("page")
    record(folder)
    record_run(folder / "runs" / "small", 30, scale="small", seed=7)
    return made(folder).as_uri()


@pytest.fixture
def opened(browser, address):
    """The page in a browser; at the end nothing went wrong, and no network was asked for anything."""
    page, trouble = browser.new_page(), []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("data:", address)) or trouble.append(request.url))
    page.goto(address)
    yield page
    page.close()
    assert not trouble


def shown_runs(page):
    return page.locator("#runs tr[data-run]:visible").evaluate_all("rows => rows.map(row => row.dataset.run)")


def test_a_browser_sorts_and_filters(opened):
    runs = opened.locator("#runs")
    assert shown_runs(opened) == ["gcsa0", "gcsa1", "mse0", "small"]
    runs.get_by_role("button", name="Best").first.click()
    assert shown_runs(opened) == ["mse0", "small", "gcsa0", "gcsa1"]  # as numbers: 9 before 30
    assert runs.locator("th", has_text="Best").get_attribute("aria-sort") == "ascending"
    runs.get_by_role("button", name="Best").first.focus()
    opened.keyboard.press("Enter")
    assert shown_runs(opened) == ["gcsa1", "gcsa0", "small", "mse0"]
    search = runs.get_by_label("Filter").first
    search.focus()
    opened.keyboard.type("GCSA small")
    assert shown_runs(opened) == ["small"]
    assert runs.locator("output").first.inner_text() == "1 of 4 rows"
    search.fill("")
    runs.get_by_label("Method").select_option("fedsaf_mse")
    assert shown_runs(opened) == ["mse0"]
    runs.get_by_label("Method").select_option("")
    assert len(shown_runs(opened)) == 4


def test_a_browser_shows_one_scale_and_the_settings_of_a_run(opened):
    opened.get_by_label("Scale").first.select_option("small")
    assert shown_runs(opened) == ["small"]
    assert opened.locator("#tables div[data-scale=full]:visible").count() == 0
    assert opened.locator("#tables div[data-scale=small]:visible").count() > 0
    settings = opened.locator("tr[data-run=small] details")
    assert not settings.locator("pre").is_visible()
    settings.locator("summary").focus()
    opened.keyboard.press("Enter")
    assert "batch_size: 100" in settings.locator("pre").inner_text()
    opened.get_by_label("Scale").first.select_option("")
    claims = opened.locator("#claims")
    claims.get_by_label("Verdict").select_option("undecided")
    assert claims.locator("tbody tr:visible").count() >= len(claim_definitions())
    opened.get_by_role("link", name="Figures").click()
    picture = opened.locator("#figures img").first
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 100


def test_print_leaves_controls_out(opened):
    opened.emulate_media(media="print")
    assert opened.locator(".controls:visible, nav:visible").count() == 0
    assert len(shown_runs(opened)) == 4
