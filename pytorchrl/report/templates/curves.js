// Curves of a metric, over steps, seconds or episodes; seeds of one composition together or apart.
const RETURN = "return";
const UNITS = { steps: data.curves.unit, seconds: "seconds of training", episodes: "training episodes" };
const MOST_SMOOTHED_POINTS = 500;
const hiddenGroups = new Set();

const partsOf = (metric) => (metric === RETURN ? ["test/return", "train/return"] : [metric]);
const isTraining = (name) => name.startsWith("train/");

const curveOf = (run, name, over, share) => {
  const series = run.series[name];
  if (!series || !series[over].length) return null;
  const at = series.y.map((_, number) => number).filter((number) => series[over][number] !== null);
  const y = isTraining(name) ? smoothed(series.y, weightsOf(run, series), share) : series.y;
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

const interpolated = (curve, xs) => {
  let right = 0;
  return xs.map((x) => {
    while (right < curve.x.length - 1 && curve.x[right] < x) right += 1;
    const left = Math.max(0, right - 1);
    const width = curve.x[right] - curve.x[left];
    return width > 0 ? curve.y[left] + ((curve.y[right] - curve.y[left]) * (x - curve.x[left])) / width : curve.y[right];
  });
};

// Where all curves were measured: beyond the end of the shortest the mean would be that of others.
const meanAndSpread = (curves) => {
  const first = Math.max(...curves.map((curve) => curve.x[0]));
  const last = Math.min(...curves.map((curve) => curve.x[curve.x.length - 1]));
  if (first > last) return null;
  const x = [...new Set(curves.flatMap((curve) => curve.x))].filter((at) => at >= first && at <= last).sort((a, b) => a - b);
  const values = curves.map((curve) => interpolated(curve, x));
  const mean = x.map((_, at) => values.reduce((sum, one) => sum + one[at], 0) / curves.length);
  const spread = x.map((_, at) =>
    Math.sqrt(values.reduce((sum, one) => sum + (one[at] - mean[at]) ** 2, 0) / Math.max(1, curves.length - 1)));
  return { x, mean, spread };
};

const line = (curve, name, style, training) => ({
  x: curve.x, y: curve.y, name: escaped(name), type: "scatter", mode: curve.x.length === 1 ? "markers" : "lines",
  line: { color: transparent(style.color, training ? 0.65 : 1), width: training ? 1.2 : 2, dash: training ? "dot" : style.dash },
});

const band = (found, style) => ({
  x: [...found.x, ...[...found.x].reverse()],
  y: [...found.mean.map((value, at) => value + found.spread[at]),
    ...found.mean.map((value, at) => value - found.spread[at]).reverse()],
  type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
  fillcolor: transparent(style.color, 0.16), line: { width: 0, color: transparent(style.color, 0) },
});

const tracesOf = (group, number, chosen) => {
  const style = styleOf(number);
  return partsOf(chosen.metric).flatMap((name) => {
    const training = chosen.metric === RETURN && isTraining(name);
    const runs = group.runs.map((run) => ({ run, curve: curveOf(run, name, chosen.over, chosen.share) }))
      .filter((one) => one.curve);
    const label = group.label + (training ? ", training" : "");
    const found = chosen.together && runs.length > 1 ? meanAndSpread(runs.map((one) => one.curve)) : null;
    if (!found) {
      return runs.map(({ run, curve }) => line(curve, run.name + (training ? ", training" : ""), style, training));
    }
    const mean = line({ x: found.x, y: found.mean }, `${label}, mean of ${runs.length}`, style, training);
    return training ? [mean] : [band(found, style), mean];
  });
};

const drawCurves = () => {
  const chosen = {
    metric: byId("metric").value, over: byId("over").value, together: byId("seeds").value === "together",
    share: Number(byId("smoothing").value),
  };
  const traces = data.curves.groups.flatMap((group, number) =>
    hiddenGroups.has(number) ? [] : tracesOf(group, number, chosen));
  const none = byId("curve-none");
  none.hidden = traces.length > 0;
  none.textContent = chosen.over === "episodes" ? "No run that is shown has counted episodes beside this metric."
    : "No run that is shown has measured this.";
  byId("curve-plot").hidden = !traces.length;
  if (!traces.length) return;
  const y = chosen.metric === RETURN ? "return per episode" : chosen.metric;
  Plotly.react("curve-plot", traces, layoutOf({
    xaxis: { title: { text: UNITS[chosen.over] } },
    yaxis: { title: { text: escaped(y) }, type: byId("logarithmic").checked ? "log" : "linear" },
  }), SETTINGS);
};

const fillMetrics = () => {
  const hasReturn = data.curves.groups.some((group) => group.runs.some((run) =>
    partsOf(RETURN).some((name) => name in run.series)));
  const option = (name, text) => Object.assign(document.createElement("option"), { value: name, textContent: text });
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

const swatch = (number) => {
  const style = styleOf(number);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const dashes = { solid: "none", dash: "6 3", longdash: "10 4", dashdot: "8 3 2 3" };
  const places = { x1: 2, x2: 26, y1: 6, y2: 6, stroke: style.color, "stroke-width": 3, "stroke-dasharray": dashes[style.dash] };
  for (const [name, value] of Object.entries(places)) stroke.setAttribute(name, value);
  picture.append(stroke);
  picture.setAttribute("aria-hidden", "true");
  return picture;
};

const fillLegend = () => {
  const list = document.querySelector("#legend ul");
  list.replaceChildren(...data.curves.groups.map((group, number) => {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !hiddenGroups.has(number) });
    box.addEventListener("change", () => {
      if (box.checked) hiddenGroups.delete(number);
      else hiddenGroups.add(number);
      drawCurves();
    });
    const label = document.createElement("label");
    const runs = group.runs.length > 1 ? ` (${group.runs.length} runs)` : "";
    label.append(box, " ", swatch(number), " ", group.label + runs);
    const item = document.createElement("li");
    item.append(label);
    return item;
  }));
};

const showGroups = (shown) => {
  data.curves.groups.forEach((_, number) => (shown ? hiddenGroups.delete(number) : hiddenGroups.add(number)));
  fillLegend();
  drawCurves();
};

fillMetrics();
fillLegend();
byId("show-all").addEventListener("click", () => showGroups(true));
byId("show-none").addEventListener("click", () => showGroups(false));
byId("curve-controls").addEventListener("change", drawCurves);
byId("curves").addEventListener("shown", drawCurves);
darkness.addEventListener("change", () => {
  fillLegend();
  if (!byId("curves").hidden) drawCurves();
});
