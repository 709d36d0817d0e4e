// Figures without axes: heat map and stacked bars. Plain elements, so that they print and scale as text does.
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
    const legend = make(place, "p", "note legend");
    chart.parts.forEach((part, i) => {
      const item = make(legend, "span", "item");
      make(item, "i", "").style.background = strokes[i % strokes.length];
      item.append(part);
    });
  };

  return { strokes, draw: { heat, stack } };
})();
