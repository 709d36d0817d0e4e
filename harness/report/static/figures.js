// Figures without a canvas: heat map, stacked bars, dots with intervals. Plain elements, so that they print and scale as text does.
const figures = (() => {
  "use strict";
  const strokes = [
    "#0b6e8f", "#c2571a", "#5b8c2a", "#7b3fa8", "#b2304f", "#1f9e89", "#8a6d00",
    "#3b62c4", "#c0569b", "#6b7785", "#7a4a2b", "#2f7d32",
  ];
  const make = (place, name, className, text = "") => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    return place.appendChild(element);
  };
  const number = value => (value == null ? "unknown" : Number(value.toPrecision(3)).toString());

  const heat = (place, chart) => {
    place.classList.add("plain");
    const top = Math.max(...chart.rows.flatMap(row => row.values.map(value => value ?? 0)), 1e-12);
    const note = make(place, "p", "note legend", `light: 0, dark: ${number(top)} ${chart.unit}; one cell per ${chart.column}`);
    const idle = note.textContent;
    for (const row of chart.rows) {
      const line = document.createElement("div");
      line.className = "heat";
      place.insertBefore(line, note);
      make(line, "span", "name", row.label).title = row.label;
      const cells = make(line, "span", "cells");
      row.values.forEach((value, i) => {
        const cell = make(cells, "i", "");
        cell.style.opacity = value == null ? 0 : 0.06 + 0.94 * value / top;
        cell.addEventListener("mouseenter", () => {
          note.textContent = `${row.label}, ${chart.column} ${i}: ${number(value)} ${chart.unit}`;
        });
      });
      line.addEventListener("mouseleave", () => { note.textContent = idle; });
    }
  };

  const legendOf = (place, names) => {
    const legend = make(place, "p", "note legend");
    names.forEach((name, i) => {
      const item = make(legend, "span", "item");
      make(item, "i", "").style.background = strokes[i % strokes.length];
      item.append(name);
    });
  };

  const stack = (place, chart) => {
    place.classList.add("plain");
    const totals = chart.rows.map(row => row.values.reduce((a, b) => a + b, 0));
    const top = Math.max(...totals, 1e-12);
    chart.rows.forEach((row, r) => {
      const line = make(place, "div", "heat stack");
      make(line, "span", "name", row.label).title = row.label;
      const bar = make(line, "span", "cells");
      row.values.forEach((value, i) => {
        const part = make(bar, "i", "");
        part.style.width = `${100 * value / top}%`;
        part.style.background = strokes[i % strokes.length];
        part.title = `${chart.parts[i]}: ${number(value)} ${chart.unit} (${number(100 * value / (totals[r] || 1))} %)`;
      });
      make(line, "span", "total", `${number(totals[r])} ${chart.unit}`);
    });
    legendOf(place, chart.parts);
  };

  // At most six marks of a scale, at 1, 2 or 5 times a power of ten.
  const marks = (low, high) => {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough * (1 - 1e-9));
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
  };

  const dots = (place, chart) => {
    place.classList.add("plain");
    const known = chart.rows.flatMap(row => row.values.flatMap(value => value || [])).filter(x => x != null);
    const low = Math.min(0, ...known), high = Math.max(low + 1e-9, ...known);
    const at = x => `${100 * (x - low) / (high - low)}%`;
    const ticks = marks(low, high);
    const put = (cells, name, className, style, text) => Object.assign(make(cells, name, className, text).style, style);
    for (const row of chart.rows) {
      const line = make(place, "div", "heat dots");
      make(line, "span", "name", row.label).title = row.label;
      const cells = make(line, "span", "cells");
      ticks.forEach(x => put(cells, "b", x ? "" : "zero", { left: at(x) }));
      row.values.forEach((value, i) => {
        if (value == null) return;
        const lane = make(cells, "span", "lane");
        const [mean, least, most] = value, color = strokes[i % strokes.length], sure = least != null && most != null;
        if (sure) put(lane, "i", "reach", { left: at(least), width: `calc(${at(most)} - ${at(least)})`, background: color });
        put(lane, "i", "dot", { left: at(mean), background: color });
        const reach = sure ? `, ${number(least)} to ${number(most)} ${chart.unit}` : ", no interval";
        lane.title = `${row.label}, ${chart.sources[i]}: ${number(mean)} ${chart.unit}${reach}`;
      });
    }
    const scale = make(make(place, "div", "heat dots scale"), "span", "cells");
    ticks.forEach(x => put(scale, "span", "", { left: at(x) }, `${number(x)} ${chart.unit}`));
    legendOf(place, chart.sources);
  };

  return { strokes, draw: { heat, stack, dots } };
})();
