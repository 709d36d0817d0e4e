// Figures without a canvas: heat map, stacked bars, dots with intervals. Plain elements, so that they print and scale as text does.
const figures = (() => {
  "use strict";
  // As in looks.py; lines that stand for a method bring their own.
  const strokes = ["#0072b2", "#d55e00", "#009e73", "#e40048", "#e69f00", "#56b4e9", "#a03ce0", "#7f8c99"];
  const colorOf = (item, i) => item.color || strokes[i % strokes.length];
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
    if (names.length < 2) return; // the title says it
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
    const low = Math.min(0, ...known), high = Math.max(0, low + 1e-9, ...known);
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

  const svg = (place, name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text;
    return place.appendChild(element);
  };

  // Methods that share a colour differ in their dashes; as points in their shape, numbered as the dashes are.
  const shapes = [
    "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0 -6 0Z", "M-5.5 -5.5H5.5V5.5H-5.5Z", "M0 -7L7 5.5H-7Z", "M0 -7.5L7.5 0L0 7.5L-7.5 0Z",
    "M0 7L7 -5.5H-7Z", "M-2.2 -7H2.2V-2.2H7V2.2H2.2V7H-2.2V2.2H-7V-2.2H-2.2Z",
  ];
  // What stands before a line's name: a piece of it.
  const key = (color, dash) => {
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    Object.entries({ class: "key", width: 46, height: 10 }).forEach(([name, value]) => picture.setAttribute(name, value));
    svg(picture, "line", { x1: 1, x2: 45, y1: 5, y2: 5, stroke: color, "stroke-width": 3, "stroke-dasharray": (dash || []).join(" ") });
    return picture;
  };

  // Points with intervals in both directions; a line through those that no other beats.
  const scatter = (place, chart) => {
    place.classList.add("plain");
    // On a phone the picture is drawn smaller, not shrunk: its text stays as large as the page's.
    const narrow = place.clientWidth > 0 && place.clientWidth < 560;
    const width = narrow ? 400 : 900, height = narrow ? 340 : 400, left = narrow ? 46 : 70, right = narrow ? 102 : 160, top = 14, bottom = 46;
    const range = key => {
      const all = chart.points.flatMap(p => p[key]).filter(x => x != null);
      const low = Math.min(...all), high = Math.max(...all), pad = (high - low || Math.abs(high) || 1) * 0.08;
      return [low - pad, high + pad];
    };
    const [x0, x1] = range("x"), [y0, y1] = range("y");
    const px = x => left + (x - x0) / (x1 - x0) * (width - left - right);
    const py = y => height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom);
    const picture = svg(place, "svg", { viewBox: `0 0 ${width} ${height}`, class: "scatter", role: "img" });
    marks(x0, x1).forEach(x => {
      svg(picture, "line", { x1: px(x), x2: px(x), y1: top, y2: height - bottom, class: "grid" });
      svg(picture, "text", { x: px(x), y: height - bottom + 16, "text-anchor": "middle" }, number(x));
    });
    marks(y0, y1).forEach(y => {
      svg(picture, "line", { x1: left, x2: width - right, y1: py(y), y2: py(y), class: "grid" });
      svg(picture, "text", { x: left - 8, y: py(y) + 4, "text-anchor": "end" }, number(y));
    });
    svg(picture, "text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle", class: "axis" }, chart.xLabel);
    const turned = `rotate(-90 16 ${height / 2})`;
    svg(picture, "text", { x: 16, y: height / 2, "text-anchor": "middle", class: "axis", transform: turned }, chart.yLabel);
    const named = Object.fromEntries(chart.points.map(p => [p.label, p]));
    const line = chart.front.map(name => `${px(named[name].x[0])},${py(named[name].y[0])}`).join(" ");
    svg(picture, "polyline", { points: line, class: "front" });
    let lowest = -Infinity; // labels do not lie on each other
    [...chart.points].sort((a, b) => py(a.y[0]) - py(b.y[0])).forEach(p => {
      const [x, xl, xh] = p.x, [y, yl, yh] = p.y, color = p.color;
      if (xl != null) svg(picture, "line", { x1: px(xl), x2: px(xh), y1: py(y), y2: py(y), stroke: color, class: "reach" });
      if (yl != null) svg(picture, "line", { x1: px(x), x2: px(x), y1: py(yl), y2: py(yh), stroke: color, class: "reach" });
      const dot = svg(picture, "path", { d: shapes[p.shape], transform: `translate(${px(x)} ${py(y)})`, fill: color, class: "point" });
      svg(dot, "title", {}, `${p.label}: ${number(x)}, ${number(y)}`);
      const at = Math.max(py(y) + 4, lowest + 15);
      lowest = at;
      svg(picture, "line", { x1: px(x), y1: py(y), x2: width - right + 6, y2: at - 4, stroke: color, class: "leader" });
      svg(picture, "path", { d: shapes[p.shape], transform: `translate(${width - right + 14} ${at - 4}) scale(.75)`, fill: color, class: "key" });
      svg(picture, "text", { x: width - right + 23, y: at, class: "name" }, p.label);
    });
  };

  return { strokes, colorOf, key, draw: { heat, stack, dots, scatter } };
})();
