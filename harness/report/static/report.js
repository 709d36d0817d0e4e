// Draws every chart of the page with uPlot. Data stands in the page as JSON; nothing is fetched.
(() => {
  "use strict";
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const strokes = ["#0b6e8f", "#c2571a", "#5b8c2a", "#7b3fa8", "#b2304f"];
  const tints = ["rgba(11,110,143,.13)", "rgba(194,87,26,.13)", "rgba(91,140,42,.13)", "rgba(123,63,168,.13)"];
  const charts = JSON.parse(document.getElementById("charts").textContent);

  // One colour per kind of band: "epoch 1" and "epoch 2" share their first word.
  const tintOf = bands => {
    const kinds = [...new Set(bands.map(b => b.label.split(" ")[0]))];
    return label => tints[kinds.indexOf(label.split(" ")[0]) % tints.length];
  };

  const bandPlugin = (bands, note) => {
    const tint = tintOf(bands);
    const draw = u => {
      const { ctx } = u, { top, height, left, width } = u.bbox;
      ctx.save();
      ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      for (const b of bands) {
        const x0 = u.valToPos(b.start, "x", true), x1 = u.valToPos(b.end, "x", true);
        ctx.fillStyle = tint(b.label);
        ctx.fillRect(x0, top, Math.max(1, x1 - x0), height);
        ctx.fillRect(x0, top, devicePixelRatio, height); // where one band follows another at once
        if (ctx.measureText(b.label).width < x1 - x0 - 6) {
          ctx.fillStyle = css("--soft");
          ctx.fillText(b.label, x0 + 3 * devicePixelRatio, top + 12 * devicePixelRatio);
        }
      }
      ctx.restore();
    };
    const idle = note ? note.textContent : "";
    const hover = u => {
      if (!note || u.cursor.idx == null) return;
      const x = u.data[0][u.cursor.idx];
      const b = bands.find(b => b.start <= x && x < b.end);
      note.textContent = b ? `${b.label}: ${b.note}` : idle;
    };
    return { hooks: { drawClear: draw, setCursor: hover } };
  };

  const draw = place => {
    const index = place.dataset.chart, chart = charts[index];
    const note = document.querySelector(`[data-note="${index}"]`);
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line") }, ticks: { stroke: css("--line") } };
    const options = {
      width: place.clientWidth, height: 280,
      scales: { x: { time: false } },
      axes: [{ ...axis, label: chart.xLabel }, { ...axis, label: chart.yLabel, size: 60 }],
      series: [
        { label: chart.xLabel },
        ...chart.series.map((s, i) => ({
          label: s.label, stroke: strokes[i % strokes.length], width: 1.5, points: { show: s.points },
        })),
      ],
      plugins: chart.bands.length ? [bandPlugin(chart.bands, note)] : [],
    };
    const plot = new uPlot(options, chart.data, place);
    addEventListener("resize", () => plot.setSize({ width: place.clientWidth, height: 280 }));
  };

  document.querySelectorAll(".chart").forEach(draw);
  document.documentElement.dataset.drawn = charts.length;
})();
