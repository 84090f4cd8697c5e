"""The report in a browser: it draws its charts, and loads nothing from the network."""

from pathlib import Path

import pytest

from raylog.loadtest.report import write_html
from tests.support import load_results
from tests.support.chromium import Page, chromium, needs_chromium

DRAWN = """new Promise((done) => {
  const look = () => waiting.length > 0 ? setTimeout(look, 10) : done([
    document.querySelectorAll(".chart").length,
    document.querySelectorAll(".chart.js-plotly-plot").length,
    document.querySelectorAll(".chart .heatmaplayer image, .chart .hm image").length,
    document.documentElement.scrollWidth,
  ]);
  look();
})"""
"""Places of charts, those that were drawn, heat maps, and the width of the page."""
TABLE = """(() => {
  const table = [...document.querySelectorAll(".scrolls")]
    .find((one) => one.textContent.includes("p99, ms"));
  const wide = table.scrollWidth > table.clientWidth;
  table.scrollIntoView();
  table.scrollLeft = table.scrollWidth;
  const cells = [...table.querySelectorAll("th")];
  const first = cells[0].getBoundingClientRect();
  const seen = document.elementFromPoint(first.left + 12, first.top + 8);
  return [wide, cells.at(-1).getBoundingClientRect().right, first.left, seen && seen.textContent];
})()"""
"""Of the table of operations, scrolled to its end: whether it is too wide, where its last column
ends and its first one begins, and what is seen there."""
HOSTILE = "<img src='http://127.0.0.1:9/x'><a href='javascript:alert(1)'>x</a>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Page:  # type: ignore[misc]
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.long
@needs_chromium
@pytest.mark.parametrize("width", [390, 1200])
def test_charts_are_drawn_without_the_network(browser: Page, tmp_path: Path, width: int) -> None:
    result = load_results.failed(seconds=70, errors={HOSTILE: 3}, notes=[HOSTILE])
    path = tmp_path / "run.html"
    write_html([result], path)
    browser.size(width, 800, mobile=width < 600)
    browser.open(path)
    places, drawn, heat_maps, page_width = browser.evaluate(DRAWN)
    assert drawn == places > 10
    assert heat_maps == 2
    assert page_width <= width
    assert [each for each in browser.requests if not each.startswith("data:")] == [path.as_uri()]
    assert browser.complaints == []


@pytest.mark.long
@needs_chromium
@pytest.mark.parametrize(("width", "scrolls"), [(480, True), (1400, False)])
def test_all_columns_of_a_wide_table_can_be_reached(
    browser: Page, tmp_path: Path, width: int, scrolls: bool
) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.result(10)], path)
    browser.size(width, 800, mobile=width < 600)
    browser.open(path)
    is_wide, last_end, first_begins, shown = browser.evaluate(TABLE)
    assert (is_wide, last_end <= width, first_begins >= 0) == (scrolls, True, True)
    assert shown == "operation"


@needs_chromium
def test_axes_on_a_narrow_page_have_no_prefix_for_thousandths(
    browser: Page, tmp_path: Path
) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.result(70, median_us=300)], path)
    browser.size(480, 800, mobile=True)
    browser.open(path)
    browser.evaluate(DRAWN)
    ticks = browser.evaluate(
        "[...document.querySelectorAll('.ytick')].map((one) => one.textContent)"
    )
    assert {"0.5", "1,000", "20k"} <= set(ticks)
    assert [one for one in ticks if one.endswith("m")] == []


@needs_chromium
def test_a_dark_page_has_dark_charts_that_print_light(browser: Page, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.result(10)], path)
    browser.media(scheme="dark")
    browser.open(path)
    browser.evaluate(DRAWN)
    ground = "getComputedStyle(document.querySelector('.main-svg')).backgroundColor"
    dark = browser.evaluate(ground)
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = browser.evaluate(ground)
    assert (dark, printed) == ("rgb(20, 24, 28)", "rgb(255, 255, 255)")


@needs_chromium
def test_runs_of_a_comparison_are_drawn_when_they_are_opened(browser: Page, tmp_path: Path) -> None:
    path = tmp_path / "compared.html"
    write_html([load_results.result(10, seed=seed) for seed in (1, 2)], path)
    browser.open(path)
    _, before, _, _ = browser.evaluate(DRAWN)
    browser.evaluate(
        "new Promise((done) => { const run = document.querySelector('details.run');"
        " run.addEventListener('toggle', () => setTimeout(done, 0)); run.open = true; })"
    )
    _, after, _, _ = browser.evaluate(DRAWN)
    assert 0 < before < after
    assert browser.complaints == []
