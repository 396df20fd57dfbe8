// Curves of a metric, over steps, seconds or episodes; seeds of one composition together or apart.
const RETURN = "return";
const UNITS = { steps: data.curves.unit, seconds: "seconds of training", episodes: "training episodes" };
const MOST_SMOOTHED_POINTS = 500;
const environments = [...new Set(data.curves.groups.map((group) => group.environment))];
const hiddenGroups = new Set();

const partsOf = (metric) => (metric === RETURN ? ["test/return", "train/return"] : [metric]);
const isTraining = (name) => name.startsWith("train/");
const groupsShown = () => data.curves.groups.filter((group) => group.environment === byId("environment").value);

const curveOf = (run, name, over, share) => {
  const series = run.series[name];
  if (!series || !series[over].length) return null;
  const at = series.y.map((_, number) => number).filter((number) => series[over][number] !== null);
  const y = isTraining(name) ? smoothed(series.y, weightsOf(run, series), Number(share)) : series.y;
  return at.length ? { x: at.map((number) => series[over][number]), y: at.map((number) => y[number]) } : null;
};

// Episodes count alike, however many a record holds.
const weightsOf = (run, series) => {
  const episodes = run.series["train/episodes"];
  return episodes && episodes.y.length === series.y.length ? episodes.y : series.y.map(() => 1);
};

const smoothed = (values, weights, share) => {
  const half = Math.floor(Math.min(Math.floor(values.length * share), MOST_SMOOTHED_POINTS * share) / 2);
  return values.map((_, middle) => {
    let sum = 0;
    let total = 0;
    for (let at = Math.max(0, middle - half); at <= Math.min(values.length - 1, middle + half); at += 1) {
      sum += values[at] * weights[at];
      total += weights[at];
    }
    return sum / total;
  });
};

const line = (curve, name, style, isBehind, isDotted) => ({
  x: curve.x, y: curve.y, name: escaped(name), type: "scatter", mode: curve.x.length === 1 ? "markers" : "lines",
  line: {
    color: transparent(style.color, isBehind ? 0.6 : 1), width: isBehind ? 1.2 : 2, dash: isDotted ? "dot" : style.dash,
  },
  marker: { color: style.color },
});

const area = (band, style) => ({
  x: [...band.x, ...[...band.x].reverse()], y: [...band.high, ...[...band.low].reverse()],
  type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
  fillcolor: transparent(style.color, 0.16), line: { width: 0, color: transparent(style.color, 0) },
});

const tracesOf = (group, style, chosen) => {
  const isEvaluated = group.runs.some((run) => "test/return" in run.series);
  return partsOf(chosen.metric).flatMap((name) => {
    const isDotted = chosen.metric === RETURN && isTraining(name);
    const isBehind = isDotted && isEvaluated;
    const runs = group.runs.map((run) => ({ run, curve: curveOf(run, name, chosen.over, chosen.share) }))
      .filter((one) => one.curve);
    const of = isDotted ? ", training" : "";
    const band = chosen.together ? group.bands[name]?.[chosen.over]?.[isTraining(name) ? chosen.share : "0"] : null;
    if (!band) return runs.map(({ run, curve }) => line(curve, run.name + of, style, isBehind, isDotted));
    const middle = line(band, `${group.label}${of}, ${runs.length} runs`, style, isBehind, isDotted);
    return isBehind ? [middle] : [area(band, style), middle];
  });
};

const drawCurves = () => {
  const chosen = {
    metric: byId("metric").value, over: byId("over").value, together: byId("seeds").value === "together",
    share: byId("smoothing").value,
  };
  const traces = groupsShown().flatMap((group, number) =>
    hiddenGroups.has(group) ? [] : tracesOf(group, styleOf(number), chosen));
  const none = byId("curve-none");
  none.hidden = traces.length > 0;
  none.textContent = chosen.over === "episodes" ? "No run shown has logged episodes beside this metric."
    : "No run shown has logged this metric.";
  byId("curve-plot").hidden = !traces.length;
  if (!traces.length) return;
  const y = chosen.metric === RETURN ? "return per episode" : chosen.metric;
  Plotly.react("curve-plot", traces, layoutOf({
    xaxis: { title: { text: UNITS[chosen.over] }, rangemode: "tozero" },
    yaxis: { title: { text: escaped(y) }, type: byId("logarithmic").checked ? "log" : "linear" },
  }), SETTINGS);
};

const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: printable(text) });

const fillMenus = () => {
  byId("environment").append(...environments.map((name) => option(name, name)));
  byId("environments").hidden = environments.length < 2;
  const hasReturn = data.curves.groups.some((group) => group.runs.some((run) =>
    partsOf(RETURN).some((name) => name in run.series)));
  if (hasReturn) byId("metric").append(option(RETURN, "return"));
  const kinds = new Map();
  for (const name of data.curves.metrics) {
    const kind = name.includes("/") ? name.slice(0, name.indexOf("/")) : "others";
    kinds.set(kind, [...(kinds.get(kind) ?? []), name]);
  }
  for (const [kind, names] of kinds) {
    const together = Object.assign(document.createElement("optgroup"), { label: kind });
    together.append(...names.map((name) => option(name, name)));
    byId("metric").append(together);
  }
};

const swatch = (style) => {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const dashes = { solid: "none", dash: "6 3", longdash: "10 4", dashdot: "8 3 2 3" };
  const places = { x1: 2, x2: 26, y1: 6, y2: 6, stroke: style.color, "stroke-width": 3, "stroke-dasharray": dashes[style.dash] };
  for (const [name, value] of Object.entries(places)) stroke.setAttribute(name, value);
  picture.append(stroke);
  picture.setAttribute("aria-hidden", "true");
  return picture;
};

const entryOf = (group, number) => {
  const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !hiddenGroups.has(group) });
  box.addEventListener("change", () => {
    if (box.checked) hiddenGroups.delete(group);
    else hiddenGroups.add(group);
    drawCurves();
  });
  const label = document.createElement("label");
  label.append(box, " ", swatch(styleOf(number)), " ", group.label + (group.runs.length > 1 ? ` (${group.runs.length} runs)` : ""));
  const item = document.createElement("li");
  item.append(label);
  return item;
};

const fillLegend = () => document.querySelector("#legend ul").replaceChildren(...groupsShown().map(entryOf));

const showGroups = (shown) => {
  groupsShown().forEach((group) => (shown ? hiddenGroups.delete(group) : hiddenGroups.add(group)));
  fillLegend();
  drawCurves();
};

fillMenus();
fillLegend();
byId("show-all").addEventListener("click", () => showGroups(true));
byId("show-none").addEventListener("click", () => showGroups(false));
byId("environment").addEventListener("change", () => {
  fillLegend();
  drawCurves();
});
byId("curve-controls").addEventListener("change", drawCurves);
byId("curve-controls").addEventListener("submit", (event) => event.preventDefault());
byId("part-curves").addEventListener("shown", drawCurves);
darkness.addEventListener("change", () => {
  fillLegend();
  if (!byId("part-curves").hidden) drawCurves();
});
