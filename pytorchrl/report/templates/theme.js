"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// Plotly reads names as a kind of HTML.
// Control characters, and those that reverse what follows, are shown by their numbers.
const printable = (text) => text.replace(/\p{C}/gu, (sign) => `\\x${sign.codePointAt(0).toString(16).padStart(2, "0")}`);
const escaped = (text) => printable(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const COLORS = {
  light: ["#1f6fb4", "#d2590a", "#2a8a3e", "#c02b2f", "#7d4fb5", "#8a5a44", "#c8479e", "#6a6a6a", "#8c8a10", "#0f97a8"],
  dark: ["#5aa9ee", "#ff9d4d", "#5fca74", "#ff7b76", "#b794f0", "#c69a86", "#f08bd0", "#a9a9a9", "#d3d04a", "#4cd3e2"],
};
const DASHES = ["solid", "dash", "longdash", "dashdot"];
const darkness = matchMedia("(prefers-color-scheme: dark)");

const styleOf = (number) => {
  const colors = COLORS[darkness.matches ? "dark" : "light"];
  return { color: colors[number % colors.length], dash: DASHES[Math.floor(number / colors.length) % DASHES.length] };
};

const transparent = (color, alpha) => color + Math.round(255 * alpha).toString(16).padStart(2, "0");

const layoutOf = (changes) => {
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { gridcolor: variable("--grid"), linecolor: variable("--line"), zeroline: false, automargin: true };
  const { xaxis, yaxis, ...others } = changes;
  return {
    paper_bgcolor: variable("--paper"), plot_bgcolor: variable("--paper"), showlegend: false,
    font: { color: variable("--ink"), family: "system-ui, sans-serif", size: 13 },
    margin: { l: 56, r: 12, t: 24, b: 48 }, hovermode: "closest",
    hoverlabel: { bgcolor: variable("--shade"), font: { color: variable("--ink") }, namelength: 40 },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...others,
  };
};

// Those buttons alone, because others send the data elsewhere.
const SETTINGS = {
  responsive: true, displaylogo: false, plotlyServerURL: "",
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  toImageButtonOptions: { format: "svg", filename: "curves" },
};
