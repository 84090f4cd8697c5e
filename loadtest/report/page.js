"use strict";
// Draws the charts described by the page's JSON, in the colours of the theme.
const THEMES = {
  light: { text: "#1c2024", grid: "#e3e7eb", ground: "#ffffff", many: "#08306b", few: "#d6e4f2" },
  dark: { text: "#e6e9ec", grid: "#2c333a", ground: "#14181c", many: "#f2f8ff", few: "#1d3f66" },
};
// Line colours that are too dark on a dark background, and their replacements.
const LIGHTER = { "#0072b2": "#4aa8e0", "#009e73": "#2cc79b", "#d55e00": "#ff8736" };
const MIDDLE = { light: "#3f82bd", dark: "#5b9bd5" };
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map();

function axis(own, theme) {
  return {
    gridcolor: theme.grid, zerolinecolor: theme.grid, linecolor: theme.grid, ...own,
  };
}

function coloured(trace, name, narrow) {
  const theme = THEMES[name];
  if (trace.type === "heatmap") {
    const colorscale = [[0, theme.few], [0.5, MIDDLE[name]], [1, theme.many]];
    return { ...trace, colorscale, showscale: !narrow };
  }
  const part = trace.type === "bar" ? "marker" : "line";
  const colour = trace[part].color;
  const shown = name === "dark" ? LIGHTER[colour] ?? colour : colour;
  return { ...trace, [part]: { ...trace[part], color: shown } };
}

// With SI prefixes d3 writes 0.5 as "500m", so only large numbers get a prefix.
function ticks(chart, narrow) {
  const values = chart.data.flatMap((trace) => trace.y);
  const isLarge = chart.layout.yaxis?.type !== "log" && values.some((value) => value >= 10000);
  return narrow && isLarge ? "~s" : ",~r";
}

function draw(place, chart, shared, name) {
  const theme = THEMES[name];
  const narrow = place.clientWidth < 500;
  const data = chart.data.map((trace) => coloured(trace, name, narrow));
  const layout = {
    ...shared, ...chart.layout,
    xaxis: axis(shared.xaxis, theme),
    yaxis: axis({ tickformat: ticks(chart, narrow), ...chart.layout.yaxis }, theme),
    paper_bgcolor: theme.ground, plot_bgcolor: theme.ground,
    font: { color: theme.text, family: "inherit", size: 12 },
    // The same margins everywhere, so that the times and marks of all charts are aligned.
    margin: { l: narrow ? 52 : 70, r: narrow ? 10 : 80, t: 24, b: 40 },
    hovermode: "closest",
    showlegend: data[0].type !== "heatmap",
    legend: { orientation: "h", x: 0, y: -0.12, yanchor: "top" },
  };
  Plotly.react(place, data, layout, {
    displayModeBar: narrow ? false : "hover",
    displaylogo: false,
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],  // no button that sends data away
    responsive: true,
  });
  drawn.set(place, () => [chart, shared]);
}

function theme() {
  return dark.matches ? "dark" : "light";
}

function redraw(name) {
  for (const [place, of] of drawn) {
    draw(place, ...of(), name);
  }
}

const waiting = [];

function drawNext() {
  const next = waiting.shift();
  if (next !== undefined) {
    draw(...next, theme());
    setTimeout(drawNext, 0);
  }
}

for (const group of JSON.parse(document.getElementById("charts").textContent)) {
  for (const chart of group.charts) {
    const place = document.getElementById(chart.id);
    const closed = place.closest("details");
    if (closed === null) {
      waiting.push([place, chart, group.shared]);
    } else {
      closed.addEventListener("toggle", () => {
        if (closed.open && !drawn.has(place)) {
          draw(place, chart, group.shared, theme());
        }
      });
    }
  }
}
drawNext();
dark.addEventListener("change", () => redraw(theme()));
addEventListener("beforeprint", () => redraw("light"));
addEventListener("afterprint", () => redraw(theme()));
