// Draws every chart of the page with uPlot. Data stands in the page as JSON; nothing is fetched.
(() => {
  "use strict";
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const { strokes, colorOf } = figures;
  // In the legend, while the mouse is over the chart.
  const shown = (u, value) => (value == null ? "" : Number(value.toPrecision(4)).toString());
  // As many decimals as the step has: uPlot's own labels stop at a thousandth.
  const marked = (u, splits, axis, space, step) => {
    let places = 0;
    while (places < 15 && Math.abs(Math.round(step * 10 ** places) / (step * 10 ** places) - 1) > 1e-6) places++;
    return splits.map(value => (value == null ? "" : value.toLocaleString("en-US", { maximumFractionDigits: places })));
  };
  const axisWith = more => ({
    stroke: css("--soft"), grid: { stroke: css("--line"), width: 0.7 }, ticks: { stroke: css("--line") }, values: marked, ...more,
  });
  // The legend shows each line as it is drawn: colours are used again with other dashes.
  const keys = (plot, series) => plot.root.querySelectorAll(".u-legend .u-marker").forEach((marker, i) => {
    if (i) marker.replaceChildren(figures.key(colorOf(series[i - 1], i - 1), series[i - 1].dash));
  });
  const MOST_LINES = 6; // more at once cannot be told apart; the legend shows the others on a click
  const tints = ["rgba(11,110,143,.13)", "rgba(194,87,26,.13)", "rgba(91,140,42,.13)", "rgba(123,63,168,.13)"];
  const charts = JSON.parse(document.getElementById("charts").textContent);

  // One colour per kind of band: "epoch 1" and "epoch 2" share their first word. What is not work is grey.
  const grey = "rgba(120,130,140,.10)";
  const known = {
    idle: grey, sync: grey, setup: grey, warmup: grey, night: grey,
    probe: tints[1], epoch: tints[0], wait: tints[2], load: tints[3], download: tints[3], upload: tints[3],
  };
  const tintOf = bands => {
    const kinds = [...new Set(bands.map(b => b.label.split(" ")[0]))];
    return label => {
      const kind = label.split(" ")[0];
      return known[kind] || tints[kinds.indexOf(kind) % tints.length];
    };
  };

  const bandPlugin = (bands, note) => {
    const tint = tintOf(bands);
    const draw = u => {
      const { ctx } = u, { top, height, left, width } = u.bbox;
      ctx.save();
      ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = "left"; ctx.textBaseline = "alphabetic"; // as the axes left them, otherwise
      for (const b of bands) {
        const x0 = Math.max(left, u.valToPos(b.start, "x", true));
        const x1 = Math.min(left + width, u.valToPos(b.end, "x", true));
        if (x1 < left || x0 > left + width) continue; // zoomed out of sight
        ctx.fillStyle = tint(b.label);
        ctx.fillRect(x0, top, Math.max(1, x1 - x0), height);
        ctx.fillRect(x0, top, devicePixelRatio, height); // where one band follows another at once
        ctx.fillStyle = css("--soft");
        if (ctx.measureText(b.label).width < x1 - x0 - 6) {
          ctx.fillText(b.label, x0 + 3 * devicePixelRatio, top + 12 * devicePixelRatio);
        } else if (x1 - x0 > 12 * devicePixelRatio) { // upright, where it is too narrow
          ctx.save();
          ctx.translate((x0 + x1) / 2 + 4 * devicePixelRatio, top + 3 * devicePixelRatio);
          ctx.rotate(Math.PI / 2);
          ctx.textBaseline = "bottom";
          ctx.fillText(b.label, 0, 8 * devicePixelRatio);
          ctx.restore();
        }
      }
      ctx.restore();
    };
    const idle = note.textContent;
    const hover = u => {
      // Where the mouse is, not the nearest sample: of a long trace only some samples are here.
      const x = u.cursor.left < 0 ? NaN : u.posToVal(u.cursor.left, "x");
      const b = bands.find(b => b.start <= x && x < b.end);
      note.textContent = b ? `${b.label}: ${b.note}` : idle;
    };
    return { hooks: { drawClear: draw, setCursor: hover } };
  };

  const bandNote = place => {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = "Move the mouse over the trace; drag to zoom, double-click to go back.";
    place.after(note);
    return note;
  };

  // Two cursors, set by clicks: what lies between them, by the sums of measure_energy (see cursor_cells.py).
  const between = (cells, a, b) => {
    const parts = cells.sums.slice(a, b), seconds = cells.edges[b] - cells.edges[a];
    if (parts.includes(null)) return null;
    const total = parts[0].map((_, i) => parts.reduce((sum, part) => sum + part[i], 0));
    const n = cells.ranges, joules = total[2 * n], charge = total[2 * n + 1];
    const sensitivity = [...total, ...total.slice(n, 2 * n), charge];
    const limits = cells.factors[0].map((_, k) => sensitivity.reduce((sum, s, i) => sum + s * cells.factors[i][k], 0));
    const noise = 1.959963984540054 * Math.sqrt(cells.variance.slice(a, b).reduce((x, y) => x + y, 0));
    const known = values => values.slice(a, b).filter(x => x != null);
    return {
      joules, half: Math.hypot(noise, ...limits), seconds, mean: joules / seconds,
      low: Math.min(...known(cells.low)), high: Math.max(...known(cells.high)),
    };
  };
  const spoken = (cells, a, b) => {
    const from = cells.edges[a], to = cells.edges[b], found = between(cells, a, b);
    const where = `${from.toFixed(6)} s to ${to.toFixed(6)} s after the first sample`;
    if (!found) return `${where}: not known, samples are missing`;
    const digits = Math.max(0, 1 - Math.floor(Math.log10(found.half || 1e-9)));
    return `${where}: ${found.joules.toFixed(digits)} ± ${found.half.toFixed(digits)} J, mean ${shown(null, found.mean)} W, `
      + `lowest ${shown(null, found.low)} W, highest ${shown(null, found.high)} W. `
      + `The same: joulefleet meter show JOB --from ${from.toFixed(6)} --to ${to.toFixed(6)}`;
  };
  const cursorPlugin = (cells, place) => {
    const note = document.createElement("p");
    note.className = "note cursors";
    note.textContent = "Click two places for the joules between them.";
    place.after(note);
    let set = [];
    const nearest = x => {
      let best = 0;
      cells.edges.forEach((edge, i) => { if (Math.abs(edge - x) < Math.abs(cells.edges[best] - x)) best = i; });
      return best;
    };
    const ready = u => {
      let pressed = 0;
      u.over.addEventListener("mousedown", event => { pressed = event.clientX; });
      u.over.addEventListener("click", event => {
        if (Math.abs(event.clientX - pressed) > 3) return; // it was a drag, which zooms
        const x = u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x") - cells.first;
        set = set.length === 2 ? [nearest(x)] : [...set, nearest(x)];
        const [a, b] = [...set].sort((p, q) => p - q);
        note.textContent = set.length === 2 && a < b ? spoken(cells, a, b) : "Click a second place.";
        u.redraw();
      });
    };
    const draw = u => {
      const { ctx } = u, { top, height, left, width } = u.bbox;
      ctx.save();
      ctx.strokeStyle = css("--ink");
      ctx.lineWidth = 1.5 * devicePixelRatio;
      set.forEach(i => {
        const x = u.valToPos(cells.edges[i] + cells.first, "x", true);
        if (x < left || x > left + width) return;
        ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, top + height); ctx.stroke();
      });
      ctx.restore();
    };
    return { hooks: { ready, draw } };
  };

  const errorBars = chart => {
    const draw = u => {
      const { ctx } = u;
      ctx.save();
      ctx.beginPath(); ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); ctx.clip();
      ctx.lineWidth = devicePixelRatio;
      chart.series.forEach((s, k) => (s.halfWidth || []).forEach((width, i) => {
        const value = u.data[k + 1][i];
        if (width == null || value == null) return;
        const x = u.valToPos(u.data[0][i], "x", true);
        ctx.strokeStyle = colorOf(s, k);
        ctx.beginPath();
        ctx.moveTo(x, u.valToPos(value - width, "y", true));
        ctx.lineTo(x, u.valToPos(value + width, "y", true));
        ctx.stroke();
      }));
      ctx.restore();
    };
    return { hooks: { draw } };
  };

  // A ribbon around each line, in its colour: where several runs lie.
  const ribbons = chart => {
    const draw = u => {
      const { ctx } = u;
      ctx.save();
      ctx.beginPath(); ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); ctx.clip();
      chart.series.forEach((s, k) => {
        if (!s.low || !u.series[k + 1].show) return;
        const at = i => u.valToPos(u.data[0][i], "x", true);
        const known = s.low.map((value, i) => (value == null || s.high[i] == null ? -1 : i)).filter(i => i >= 0);
        ctx.beginPath();
        known.forEach((i, n) => ctx[n ? "lineTo" : "moveTo"](at(i), u.valToPos(s.high[i], "y", true)));
        known.reverse().forEach(i => ctx.lineTo(at(i), u.valToPos(s.low[i], "y", true)));
        ctx.closePath();
        ctx.globalAlpha = 0.1;
        ctx.fillStyle = colorOf(s, k);
        ctx.fill();
      });
      ctx.restore();
    };
    return { hooks: { drawClear: draw } };
  };

  // The y axis has to hold the error bars and ribbons too.
  const rangeWith = chart => (u, low, high) => {
    chart.series.forEach((s, k) => (s.halfWidth || []).forEach((width, i) => {
      const value = u.data[k + 1][i];
      if (width == null || value == null) return;
      low = Math.min(low, value - width);
      high = Math.max(high, value + width);
    }));
    chart.series.forEach((s, k) => {
      if (!s.low || !u.series[k + 1].show) return;
      low = Math.min(low, ...s.low.filter(value => value != null));
      high = Math.max(high, ...s.high.filter(value => value != null));
    });
    return uPlot.rangeNum(low, high, 0.1, true);
  };

  // Two recordings, shifted so that the same phase begins at nought in both. Their data stand on the page already.
  const overlay = (place, chart) => {
    const recordings = Object.fromEntries(charts.filter(c => c.recording).map(c => [c.recording, c]));
    const bar = document.createElement("div");
    bar.className = "pick";
    place.before(bar);
    const choice = (label, names, value) => {
      const about = document.createElement("label"), select = document.createElement("select");
      select.append(...names.map(name => new Option(name, name, name === value, name === value)));
      about.append(`${label} `, select);
      bar.append(about);
      return select;
    };
    const names = Object.keys(recordings);
    const picked = chart.shown.map((name, i) => choice(i ? "over" : "recording", names, name));
    const labels = [...new Set(names.flatMap(name => recordings[name].bands.map(b => b.label)))];
    const marker = choice("aligned where this begins:", labels, chart.marker);
    let plot = null;
    const show = () => {
      if (plot) plot.destroy();
      place.textContent = "";
      const found = picked.map(select => recordings[select.value]);
      const starts = found.map(one => one.bands.find(b => b.label === marker.value));
      const missing = found.filter((_, i) => !starts[i]).map(one => one.recording);
      if (missing.length) {
        place.textContent = `${missing.join(" and ")}: no phase ${marker.value}`;
        return;
      }
      const data = uPlot.join(found.map((one, i) => [one.data[0].map(t => t - starts[i].start), one.data[1]]));
      plot = new uPlot({
        width: place.clientWidth, height: 280, scales: { x: { time: false } },
        axes: [axisWith({ label: `time since ${marker.value} began (s)` }), axisWith({ label: found[0].yLabel, size: 60 })],
        series: [{}, ...found.map((one, i) => ({ label: one.recording, stroke: strokes[i], width: 1.2, value: shown, points: { show: false } }))],
      }, data, place);
    };
    [...picked, marker].forEach(select => select.addEventListener("change", show));
    addEventListener("resize", () => plot && place.clientWidth && plot.setSize({ width: place.clientWidth, height: 280 }));
    show();
  };
  figures.draw.overlay = overlay;

  const draw = place => {
    const chart = charts[place.dataset.chart];
    if (chart.kind) {
      figures.draw[chart.kind](place, chart);
      document.documentElement.dataset.drawn = ++drawn;
      return;
    }
    const whole = /^(round|exchange|M:)/.test(chart.xLabel); // there is no round 1.5
    const hasBars = chart.series.some(s => s.halfWidth), hasRibbons = chart.series.some(s => s.low);
    const options = {
      width: place.clientWidth, height: 280,
      scales: { x: { time: false }, y: hasBars || hasRibbons ? { range: rangeWith(chart) } : {} },
      legend: { markers: { width: 0 } },
      axes: [
        axisWith({ label: chart.xLabel, ...(whole ? { incrs: [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap(p => [p, 2 * p, 5 * p]) } : {}) }),
        axisWith({ label: chart.yLabel, size: 60 }),
      ],
      series: [
        { label: chart.xLabel, value: shown }, // the style sheet keeps it out of the legend
        ...chart.series.map((s, i) => ({
          label: s.label, value: shown, stroke: colorOf(s, i), dash: s.dash, width: chart.bands.length ? 1.2 : 2.2, points: { show: s.points },
          show: i < MOST_LINES, ...(s.line ? {} : { paths: () => null }),
        })),
      ],
      plugins: [
        ...(chart.bands.length ? [bandPlugin(chart.bands, bandNote(place))] : []), ...(hasBars ? [errorBars(chart)] : []),
        ...(hasRibbons ? [ribbons(chart)] : []), ...(chart.cells ? [cursorPlugin(chart.cells, place)] : []),
      ],
    };
    const plot = new uPlot(options, chart.data, place);
    keys(plot, chart.series);
    const hidden = chart.series.length - MOST_LINES;
    if (hidden > 0) {
      const note = document.createElement("p");
      note.className = "note";
      note.textContent = `${hidden} more ${hidden > 1 ? "lines" : "line"}: click a name to show or hide it.`;
      place.after(note);
    }
    // Folded away it has no width.
    const fit = () => place.clientWidth && plot.setSize({ width: place.clientWidth, height: 280 });
    addEventListener("resize", fit);
    // A canvas does not shrink by itself to the width of paper.
    addEventListener("beforeprint", () => place.clientWidth && plot.setSize({ width: paperWidth, height: 280 }));
    addEventListener("afterprint", fit);
    document.documentElement.dataset.drawn = ++drawn;
  };

  const paperWidth = 640; // CSS pixels: A4 or Letter within Chromium's margins and ours

  let drawn = 0;
  // What is folded away has no width: it is drawn when every fold around it is open, once.
  const drawVisible = root => root.querySelectorAll(".chart:not([data-begun])").forEach(place => {
    if (place.closest("details:not([open])")) return;
    place.dataset.begun = "";
    draw(place);
  });
  drawVisible(document);
  document.querySelectorAll("details").forEach(fold => fold.addEventListener("toggle", () => drawVisible(fold)));
})();
