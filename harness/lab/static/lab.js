// The lab's page: asks the server again and again and draws what it says. Text from runs is only ever set as text.
(() => {
  "use strict";
  const main = document.getElementById("main"), lead = document.getElementById("lead"), where = document.getElementById("where");
  const { css, powerChart, curves } = labCharts;
  const base = location.pathname.replace(/\/$/, "");
  const ask = async (path, said) => {
    const sent = said && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(said) };
    const answer = await fetch(`${base}/api${path}`, sent);
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.error || answer.statusText);
    return data;
  };
  const make = (name, options = {}, ...children) => {
    const element = Object.assign(document.createElement(name), options);
    element.append(...children);
    return element;
  };
  const number = (value, digits = 4) => (value == null ? "unknown" : Number(value.toPrecision(digits)).toString());
  const clock = s => {
    if (s == null) return "unknown";
    const whole = Math.round(s), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60;
    return h ? `${h} h ${m} min` : m ? `${m} min ${whole % 60} s` : `${whole} s`;
  };
  const badge = state => make("span", { className: `state ${state}`, textContent: state });
  const address = (root, run) => `/runs/${root}/${encodeURIComponent(run)}`;

  // One view at a time; a view that was left stops asking, and an answer that comes too late is dropped.
  let view = 0;
  // A question that takes long is asked less often: who records needs the processor more. Returns how to ask at once.
  const every = (ms, get, show) => {
    const mine = view;
    let turns = 0;
    const turn = async () => {
      const my_turn = ++turns, began = performance.now(), current = () => mine === view && my_turn === turns;
      try {
        const found = await get();
        if (current()) show(found);
      } catch (error) { if (current()) lead.textContent = `No answer: ${error.message}`; }
      if (current()) setTimeout(() => current() && turn(), Math.max(document.hidden ? 5 * ms : ms, Math.min(4 * (performance.now() - began), 1000)));
    };
    turn();
    return turn;
  };

  // What people wrote about a run, or one of its jobs, and a place to write more.
  const notesOf = (root, run, job = "") => {
    const list = make("ul"), text = make("textarea", { rows: 2, maxLength: 2000, ariaLabel: "a note" });
    const write = make("button", { textContent: "Write" }), said = make("p", { className: "note" }), hint = "A word like #baseline is a tag; #-baseline takes it away.";
    const show = found => list.replaceChildren(...found.notes.filter(n => !job || !n.job || n.job === job).map(n =>
      make("li", { textContent: `${n.written_utc.slice(0, 16).replace("T", " ")} UTC${n.job ? `, ${n.job}` : ""}: ${n.text}` })));
    const send = async body => {
      try { show(await ask(`${address(root, run)}/notes`, body)); if (body) text.value = ""; said.textContent = hint; } catch (error) { said.textContent = error.message; }
    };
    write.addEventListener("click", () => send({ text: text.value, job }));
    send();
    return make("section", { className: "notes" }, make("h2", { textContent: "Notes" }), list, make("div", { className: "tools" }, text, write), said);
  };

  const showRuns = () => {
    where.textContent = "";
    const search = make("input", { type: "search", placeholder: "search" });
    const compare = make("button", { textContent: "Compare two", disabled: true });
    const body = make("tbody"), ticked = new Map();
    const head = make("tr", {}, ...["", "state", "run", "tags", "kind", "began", "page"].map(text => make("th", { textContent: text })));
    main.replaceChildren(make("section", {}, make("div", { className: "tools" }, search, compare),
      make("div", { className: "scroll" }, make("table", {}, make("thead", {}, head), body))));
    let runs = [];
    const tag = word => {
      const button = make("button", { className: "state", textContent: `#${word}` });
      button.addEventListener("click", () => { search.value = `#${word}`; again(); });
      return button;
    };
    const fill = () => {
      body.replaceChildren(...runs.map(r => {
        const key = `${r.root}/${r.run}`, tick = make("input", { type: "checkbox", checked: ticked.has(key), ariaLabel: `compare ${r.run}` });
        tick.addEventListener("change", () => {
          if (tick.checked) ticked.set(key, r); else ticked.delete(key);
          compare.disabled = ticked.size !== 2;
        });
        const page = r.page ? make("a", { href: r.page, target: "_blank", rel: "noopener", textContent: "open" }) : "";
        const link = r.kind ? make("a", { href: `#/${r.root}/${r.run}`, textContent: r.run }) : r.run;
        const began = (r.created_utc || "").slice(0, 16).replace("T", " ");
        return make("tr", {}, make("td", {}, tick), make("td", {}, badge(r.state)), make("td", {}, link), make("td", {}, ...r.tags.map(tag)),
          make("td", { textContent: [r.kind, r.problem].filter(Boolean).join("; ") }), make("td", { textContent: began }), make("td", {}, page));
      }));
    };
    search.addEventListener("input", () => again());
    compare.addEventListener("click", () => { location.hash = `#compare/${[...ticked.keys()].join("|")}`; });
    const again = every(3000, () => ask(`/runs?words=${encodeURIComponent(search.value)}`), found => {
      const going = found.runs.filter(r => r.state === "running").length;
      const some = found.runs.length < found.all ? `${found.runs.length} of ${found.all} runs` : `${found.all} run${found.all === 1 ? "" : "s"}`;
      lead.textContent = `${some}, ${going} going on; in ${found.roots.join(", ")}`;
      if (JSON.stringify(found.runs) !== JSON.stringify(runs)) { runs = found.runs; fill(); }
    });
  };

  // A run on the bench.
  const card = () => {
    const title = make("h2"), said = make("p", { className: "alarm", hidden: true }), numbers = make("dl", { className: "now" });
    const place = make("div", { className: "chart" });
    const section = make("section", { className: "device" }, title, said, numbers, place);
    let stages = [], plot;
    const update = (now, job) => {
      title.textContent = now.recording.replace(/^jobs\//, "");
      if (now.origin) title.append(" ", make("span", { className: `badge ${now.origin}`, textContent: now.origin }));
      const problems = [];
      if (now.problem) problems.push(now.problem);
      if (job && job.attempt > 1) problems.push(`Attempt ${job.attempt}; the last one failed: ${job.error}`);
      said.hidden = !problems.length;
      said.textContent = problems.join(" ");
      const facts = {
        "power now": `${number(now.power_w)} W`, "so far": `${number(now.energy_j)} J`, "for": clock(now.seconds),
        stage: ((job && job.stage) || (now.stages?.at(-1)?.stage) || "-").replaceAll("_", " "),
        "samples lost": now.lost == null ? "unknown" : `${now.lost} of ${(now.samples || 0) + now.lost}`,
      };
      numbers.replaceChildren(...Object.entries(facts).map(([name, value]) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
      if (!now.trace) return;
      stages = now.stages;
      plot = plot || powerChart(place, { stages: () => stages });
      plot.setData([now.trace.t, now.trace.high, now.trace.low]);
      document.documentElement.dataset.drawn = now.trace.t.at(-1) ?? "";
    };
    return { section, update };
  };
  const showBench = (root, run) => {
    const whole = make("input", { type: "checkbox" });
    const live = make("div"), body = make("tbody"), list = make("ul");
    const head = make("tr", {}, ...["job", "state", "stage", "attempt", "last failure"].map(text => make("th", { textContent: text })));
    const choice = make("label", { hidden: true }, whole, " whole recording instead of the last minute");
    main.replaceChildren(make("div", { className: "tools" }, choice), live,
      make("section", {}, make("h2", { textContent: "Jobs" }), make("div", { className: "scroll" }, make("table", {}, make("thead", {}, head), body))),
      make("section", {}, make("h2", { textContent: "Recordings" }), list), notesOf(root, run));
    const cards = new Map();
    let shown = "";
    every(500, () => ask(`${address(root, run)}${whole.checked ? "?whole=1" : ""}`), found => {
      const counts = Object.entries(found.counts || {}).map(([state, n]) => `${n} ${state}`).join(", ");
      lead.replaceChildren(badge(found.state), ` ${counts}`, found.left_s ? `, about ${clock(found.left_s)} left` : "", found.waits_for ? `; ${found.waits_for}` : "");
      const jobs = Object.fromEntries((found.jobs || []).map(j => [j.name, j]));
      const seen = new Set();
      choice.hidden = !found.live.length;
      for (const now of found.live) {
        seen.add(now.recording);
        if (!cards.has(now.recording)) { const c = card(); cards.set(now.recording, c); live.append(c.section); }
        cards.get(now.recording).update(now, jobs[now.recording.split("/").pop()]);
      }
      for (const [name, c] of cards) if (!seen.has(name)) { c.section.remove(); cards.delete(name); }
      if (JSON.stringify([found.jobs, found.recordings]) === shown) return;
      shown = JSON.stringify([found.jobs, found.recordings]);
      body.replaceChildren(...(found.jobs || []).map(j => make("tr", {}, make("td", { textContent: j.name }), make("td", {}, badge(j.state)),
        make("td", { textContent: j.stage.replaceAll("_", " ") }), make("td", { textContent: j.attempt || "" }), make("td", { className: "long", textContent: j.error }))));
      list.replaceChildren(...found.recordings.map(r => make("li", {}, r.finished
        ? make("a", { href: `#/${root}/${run}/${r.recording}`, textContent: r.recording }) : `${r.recording} (not finished)`)));
    });
  };

  // A finished recording.
  const showRecording = (root, run, recording) => {
    where.textContent = recording;
    const place = make("div", { className: "chart" }), said = make("p", { className: "note" });
    const tools = make("div", { className: "tools" }), job = (recording.match(/^jobs\/([^/]+)$/) || [])[1];
    main.replaceChildren(make("section", {}, tools, place, said), notesOf(root, run, job));
    const question = `recording=${encodeURIComponent(recording)}`;
    const mine = view;
    let cursors = [], plot, length = 0, seen = [0, 0], asked = 0;
    const marks = { hooks: { draw: u => {
      const { ctx } = u, { top, height } = u.bbox;
      ctx.save(); ctx.strokeStyle = css("--ink"); ctx.lineWidth = 1.5 * devicePixelRatio;
      cursors.forEach(t => { const x = u.valToPos(t, "x", true); ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, top + height); ctx.stroke(); });
      ctx.restore();
    } } };
    const energy = async () => {
      const [a, b] = [...cursors].sort((x, y) => x - y).map(t => Math.round(t * 1e6) / 1e6);
      const e = await ask(`${address(root, run)}/energy?${question}&from=${a}&to=${b}`);
      const joules = e.energy_j == null ? `not known: ${e.problems.join("; ")}` : `${number(e.energy_j, 5)} J, 95 %: ${number(e.low_j, 5)} to ${number(e.high_j, 5)}; mean ${number(e.mean_w)} W`;
      said.textContent = `${a} s to ${b} s: ${joules}, lowest ${number(e.min_w)} W, highest ${number(e.max_w)} W`;
      said.dataset.energy = e.energy_j ?? "";
    };
    const show = async (from, to) => {
      const points = Math.max(200, Math.round(place.clientWidth || 800));
      const began = performance.now(), turn = ++asked;
      if (to != null) { // at least two samples wide, and inside
        const wide = Math.min(length, Math.max(to - from, 1e-3));
        seen = [Math.min(Math.max(0, from), length - wide), 0];
        seen[1] = seen[0] + wide;
      }
      const t = await ask(`${address(root, run)}/trace?${question}&points=${points}${to == null ? "" : `&from=${seen[0]}&to=${seen[1]}`}`);
      if (mine !== view || turn !== asked) return;
      length = t.length_s;
      if (to == null) seen = [0, length];
      if (!plot) {
        plot = powerChart(place, { plugins: [marks], selects: (a, b) => { plot.setSelect({ width: 0, height: 0 }, false); shows(a, b); } });
        plot.over.addEventListener("click", event => {
          if (cursors.length === 2) cursors = [];
          cursors.push(plot.posToVal(event.offsetX, "x"));
          said.textContent = "Click a second place.";
          plot.redraw();
          if (cursors.length === 2) energy().catch(error => { said.textContent = error.message; });
        });
        plot.over.addEventListener("wheel", event => {
          event.preventDefault();
          if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(Math.sign(event.deltaX || event.deltaY) / 4);
          else zoom(event.deltaY < 0 ? 0.5 : 2, plot.posToVal(event.offsetX, "x"));
        }, { passive: false });
      }
      plot.setData([t.t, t.high, t.low]);
      lead.textContent = `${clock(t.length_s)}, shown in ${Math.round(performance.now() - began)} ms; numbers are ${t.origin}`;
      Object.assign(document.documentElement.dataset, { drawn: `${t.t.length}`, view: seen.join(" "), took: performance.now() - began });
    };
    const shows = (...stretch) => show(...stretch).catch(error => { lead.textContent = error.message; });
    const pan = part => shows(seen[0] + part * (seen[1] - seen[0]), seen[1] + part * (seen[1] - seen[0]));
    const zoom = (factor, at = (seen[0] + seen[1]) / 2) => shows(at + (seen[0] - at) * factor, at + (seen[1] - at) * factor);
    const tool = (textContent, ariaLabel, act) => {
      const button = make("button", { textContent, ariaLabel });
      button.addEventListener("click", act);
      return button;
    };
    tools.append(tool("Whole recording", "whole recording", () => shows()), tool("\u25c0", "earlier", () => pan(-0.5)), tool("\u25b6", "later", () => pan(0.5)),
      tool("+", "zoom in", () => zoom(0.5)), tool("\u2212", "zoom out", () => zoom(2)), make("a", { href: `#/${root}/${run}`, textContent: "back to the run" }));
    lead.textContent = "Reading it; the first look at a day takes a minute.";
    said.textContent = "Drag or turn the wheel to zoom, with Shift to move. Click two places for the joules between them.";
    shows();
  };

  // Emulations.
  const emulationView = (ask_all, ...below) => {
    // Six lines at once, as on a page: a seed of six methods; a name shows or hides its method.
    const most = 6, names = make("p", { className: "tools methods" }), shown = new Map(), all = make("input", { type: "checkbox" });
    const seeds = make("label", {}, all, " every seed");
    const choose = emulations => {
      for (const e of emulations) {
        if (shown.has(e.method)) continue;
        shown.set(e.method, shown.size < most);
        const name = make("button", { ariaPressed: `${shown.get(e.method)}` }, figures.key(e.color, e.dash), e.method);
        name.addEventListener("click", () => {
          shown.set(e.method, !shown.get(e.method));
          name.ariaPressed = `${shown.get(e.method)}`;
          drawn();
        });
        names.insertBefore(name, seeds);
      }
      const first = new Map(); // the seed that stands for its method
      emulations.forEach(e => { if (!(first.get(e.method) <= e.seed)) first.set(e.method, e.seed); });
      return emulations.filter(e => shown.get(e.method) && (all.checked || e.seed === first.get(e.method)));
    };
    let found_now = [];
    const drawn = () => {
      const some = choose(found_now);
      curves(charts[0], some, "time_s", "accuracy", "seconds", "accuracy");
      curves(charts[1], some, "energy_j", "accuracy", "joules", "accuracy");
      const [unit, days] = some.some(e => e.day.at(-1) > 2) ? ["days", 1] : some.some(e => e.day.at(-1) > 0.1) ? ["hours", 1 / 24] : ["seconds", 1 / 86400];
      curves(charts[2], some.map(e => ({ ...e, when: e.day.map(d => d == null ? d : d / days) })), "when", "eligible", unit, "devices");
      document.documentElement.dataset.lines = some.length;
    };
    names.append(seeds);
    all.addEventListener("change", drawn);
    const bar = make("progress", { max: 1 }), charts = ["time", "energy", "day"].map(() => make("div", { className: "chart" }));
    const titles = ["Accuracy against time of the rounds", "Accuracy against energy, every probe counted", "Devices that could take part"];
    main.replaceChildren(bar, names, ...charts.map((c, i) => make("section", {}, make("h2", { textContent: titles[i] }), c)), ...below);
    let last = "";
    every(2000, ask_all, found => {
      bar.value = found.share ?? 0;
      const played = found.emulations.reduce((n, e) => n + e.played, 0);
      lead.replaceChildren(badge(found.state), ` ${found.emulations.length} of ${found.count} emulations have begun, ${Math.round(100 * (found.share ?? 0))} % of all rounds are played`, found.problems.length ? `; ${found.problems[0]}` : "");
      if (`${played}` === last) return;
      last = `${played}`;
      found_now = found.emulations;
      drawn();
      document.documentElement.dataset.drawn = last;
    });
  };
  const showCompare = async pairs => {
    where.textContent = "two runs";
    const both = pairs.split("|").map(key => [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)]);
    const found = await Promise.all(both.map(([root, run]) => ask(address(root, run))));
    if (found.every(f => f.emulations)) {
      emulationView(async () => {
        const now = await Promise.all(both.map(([root, run]) => ask(address(root, run))));
        const named = now.flatMap((f, i) => f.emulations.map(e => ({ ...e, method: `${"AB"[i]}: ${e.method}`, thin: i > 0 })));
        const shares = now.map(f => f.share ?? 0);
        return { state: now.map(f => f.state).join(", "), count: now[0].count + now[1].count, emulations: named, problems: now.flatMap(f => f.problems), share: (shares[0] + shares[1]) / 2 };
      });
      return;
    }
    if (!found.every(f => f.recordings)) { lead.textContent = "A run on the bench and an emulation have nothing in common to draw."; return; }
    const place = make("div", { className: "chart" });
    const choices = found.map((f, i) => make("select", { ariaLabel: `recording of run ${"AB"[i]}` }, ...f.recordings.filter(r => r.finished).map(r => make("option", { value: r.recording, textContent: `${"AB"[i]}: ${r.recording}` }))));
    main.replaceChildren(make("section", {}, make("div", { className: "tools" }, ...choices), place, make("p", { className: "note", textContent: "Both begin with their first sample." })));
    let plot;
    const draw = async () => {
      const traces = await Promise.all(both.map(([root, run], i) => ask(`${address(root, run)}/trace?recording=${encodeURIComponent(choices[i].value)}&points=1000`)));
      plot = plot || powerChart(place, { colors: ["#0072b2", "#d55e00"], names: ["A: ", "B: "] });
      const joined = uPlot.join(traces.map(t => [t.t, t.high, t.low])); // undefined: only the other has that moment; null is a gap
      plot.setData(joined);
      lead.textContent = traces.map((t, i) => `${"AB"[i]}: ${clock(t.length_s)}, ${t.origin}`).join("; ");
      document.documentElement.dataset.drawn = `${joined[0].length}`;
    };
    choices.forEach(c => c.addEventListener("change", draw));
    await draw();
  };

  const route = async () => {
    ++view;
    lead.textContent = "Asking the server.";
    main.replaceChildren();
    delete document.documentElement.dataset.drawn;
    const hash = decodeURIComponent(location.hash.slice(1));
    try {
      if (hash.startsWith("compare/")) return await showCompare(hash.slice(8));
      const [, root, run, ...inside] = hash.split("/");
      if (!run) return showRuns();
      if (inside.length) return showRecording(root, run, inside.join("/"));
      where.textContent = run;
      const found = await ask(address(root, run));
      if (found.emulations) emulationView(() => ask(address(root, run)), notesOf(root, run));
      else showBench(root, run);
    } catch (error) { lead.textContent = error.message; }
  };
  addEventListener("hashchange", route);
  route();
})();
