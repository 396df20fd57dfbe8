// What storages hold: drawn when their panel is shown, because a hidden place has no width.
const drawHistograms = () => {
  for (const place of document.querySelectorAll(".histograms")) {
    if (!place.getClientRects().length) continue;
    const histograms = data.histograms[Number(place.dataset.histograms)];
    while (place.children.length < histograms.length) place.append(document.createElement("div"));
    histograms.forEach((one, number) => {
      const middles = one.heights.map((_, at) => (one.edges[at] + one.edges[at + 1]) / 2);
      const widths = one.heights.map((_, at) => one.edges[at + 1] - one.edges[at]);
      const bars = { x: middles, y: one.heights, width: widths, type: "bar", marker: { color: styleOf(0).color } };
      Plotly.react(place.children[number], [bars], layoutOf({
        title: { text: escaped(one.title), font: { size: 14 } }, xaxis: { title: { text: escaped(one.unit) } },
        margin: { l: 48, r: 8, t: 40, b: 44 }, bargap: 0,
      }), { ...SETTINGS, displayModeBar: false });
    });
  }
};
byId("part-storages").addEventListener("shown", drawHistograms);
darkness.addEventListener("change", drawHistograms);

// Last, when everything listens.
openNamed();
