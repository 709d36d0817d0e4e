// Charts of the lab's page, drawn with uPlot.
const labCharts = (() => {
  "use strict";
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axes = (x, y) => {
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 0.7 }, ticks: { stroke: css("--line") } };
    return [{ ...axis, label: x }, { ...axis, label: y, size: 64 }];
  };
  const stageTint = stage => ({ round: "rgba(11,110,143,.16)", idle_before: "rgba(120,130,140,.10)", idle_after: "rgba(120,130,140,.10)" }[stage] || "rgba(194,87,26,.10)");
  const bands = stages => ({
    hooks: {
      drawClear: u => {
        const { ctx } = u, { top, height, left, width } = u.bbox;
        ctx.save();
        ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.textAlign = "left"; ctx.textBaseline = "alphabetic"; // as the axes left them, otherwise
        stages().forEach((s, i, all) => {
          const x0 = Math.max(left, u.valToPos(s.from_s, "x", true));
          const x1 = Math.min(left + width, i + 1 < all.length ? u.valToPos(all[i + 1].from_s, "x", true) : left + width);
          if (!(x1 > x0)) return;
          ctx.fillStyle = stageTint(s.stage);
          ctx.fillRect(x0, top, x1 - x0, height);
          ctx.fillStyle = css("--soft");
          if (ctx.measureText(s.stage).width < x1 - x0 - 6) ctx.fillText(s.stage.replaceAll("_", " "), x0 + 4, top + 13 * devicePixelRatio);
        });
        ctx.restore();
      },
    },
  });

  // Lowest and highest power as one filled line.
  const powerChart = (place, { stages = () => [], colors = ["#0072b2"], names = [""], plugins = [], selects } = {}) => {
    const value = (u, watts) => (watts == null ? "" : Number(watts.toPrecision(4)).toString()); // while the mouse is over it
    const series = colors.flatMap((color, i) => [
      { label: `${names[i]}highest W`, value, stroke: color, width: 1.2, points: { show: false } },
      { label: `${names[i]}lowest W`, value, stroke: color, width: 1.2, points: { show: false } },
    ]);
    const plot = new uPlot({
      width: place.clientWidth || 600, height: 260, scales: { x: { time: false } }, axes: axes("seconds", "watts"),
      series: [{ label: "seconds" }, ...series],
      bands: colors.map((color, i) => ({ series: [2 * i + 1, 2 * i + 2], fill: `${color}33` })),
      plugins: [bands(stages), ...plugins],
      cursor: { drag: { x: true, setScale: !selects } },
      hooks: selects ? { setSelect: [u => u.select.width > 4 && selects(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))] } : {},
    }, [[], ...series.map(() => [])], place);
    addEventListener("resize", () => place.clientWidth && plot.setSize({ width: place.clientWidth, height: 260 }));
    return plot;
  };

  // A line for every emulation; of two runs those of the second are thinner.
  const curves = (place, emulations, x, y, label, yLabel) => {
    const xs = [...new Set(emulations.flatMap(e => e[x]))].filter(v => v != null).sort((a, b) => a - b);
    const at = new Map(xs.map((v, i) => [v, i]));
    const data = emulations.map(e => {
      const column = new Array(xs.length).fill(undefined);
      e[x].forEach((v, i) => { if (v != null) column[at.get(v)] = e[y][i]; });
      return column;
    });
    place.replaceChildren();
    new uPlot({
      width: place.clientWidth || 600, height: 280, scales: { x: { time: false } }, axes: axes(label, yLabel),
      series: [{ label }, ...emulations.map(e => ({ label: `${e.method} s${e.seed}`, stroke: e.color, dash: e.dash, width: e.thin ? 1 : 2.4, spanGaps: true, points: { show: false } }))],
      legend: { show: false }, // one for all charts stands above them
    }, [xs, ...data], place);
  };

  return { css, powerChart, curves };
})();
