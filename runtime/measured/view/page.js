"use strict";
/* The views of one program. What is chosen, a kernel, a memory or a source line, is marked in all of them. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { kernels, memories, lines } = data;
  const byId = (id) => document.getElementById(id);
  const MANY_KERNELS = 300; // from here on the graph begins with source lines
  const COLOURS = ["#7aa6d8", "#e6a05c", "#7fbf8e", "#c58fd0", "#d98880", "#9aa7b8", "#c9b458", "#6fbfbf"];
  const SLOT_COLOUR = "#b9bcc2";
  const families = [...new Set(kernels.map((k) => k.family))].sort();
  const colourOf = (family) => COLOURS[families.indexOf(family) % COLOURS.length];
  const timed = data.calls !== null;

  // -- texts ---------------------------------------------------------------------------------------------------------

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  };
  const scaled = (value, units, base) => {
    let unit = 0;
    while (Math.abs(value) >= base && unit < units.length - 1) { value /= base; unit += 1; }
    return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)}${units[unit]}`;
  };
  const byteText = (count) => scaled(count, [" B", " KiB", " MiB", " GiB"], 1024);
  const countText = (count) => scaled(count, ["", " k", " M", " G", " T"], 1000);
  const microseconds = (seconds) => (seconds * 1e6).toFixed(seconds < 1e-4 ? 2 : 0);
  const placeOf = (number) => `${lines[number].file.split(/[\\/]/).pop()}:${lines[number].line}`;
  const weight = (k) => (timed ? k.seconds : Math.max(k.flops / 1.5e11, k.bytes / 3e10));
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const total = sum(kernels.map(weight)) || 1;

  // -- who reads and writes what -------------------------------------------------------------------------------------

  const readers = memories.map(() => []), writers = memories.map(() => []);
  kernels.forEach((k, number) => {
    k.reads.forEach((m) => readers[m].push(number));
    k.writes.forEach((m) => writers[m].push(number));
  });
  const ofLine = lines.map((_, line) => ({
    kernels: kernels.flatMap((k, number) => (k.line === line ? [number] : [])),
    buffers: memories.flatMap((m, number) => (m.line === line ? [number] : [])),
  }));

  // -- what is chosen ------------------------------------------------------------------------------------------------

  let chosen = null; // {kind: "kernel" | "memory" | "line", number}
  const views = [];
  const choose = (kind, number) => {
    chosen = kind === null ? null : { kind, number };
    views.forEach((view) => view());
  };
  /** The kernels and memories that belong to what is chosen: {kernels, read, written}. */
  const marked = () => {
    if (chosen === null) return { kernels: [], read: [], written: [] };
    const { kind, number } = chosen;
    if (kind === "kernel") return { kernels: [number], read: kernels[number].reads, written: kernels[number].writes };
    if (kind === "memory") return { kernels: [...writers[number], ...readers[number]], read: [], written: [number] };
    return { kernels: ofLine[number].kernels, read: [], written: ofLine[number].buffers };
  };
  const link = (kind, number, text) =>
    element("a", { class: "choose", onclick: () => choose(kind, number) }, text);

  // -- the graph -----------------------------------------------------------------------------------------------------

  const label = (text, most = 30) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  /** Nodes and edges: kernels (or source lines), memories of the caller, an edge for what flows between them. */
  const elements = (grain, withSlots) => {
    const nodes = [], edges = new Map();
    const nodeOf = (k) => (grain === "kernels" || kernels[k].line === null ? `k${k}` : `l${kernels[k].line}`);
    const add = (id, text, colour, share, shape) => // as wide as its text, higher where more of the work is
      nodes.push({ data: { id, text, colour, width: 18 + 6.3 * text.length, height: 20 + 36 * Math.sqrt(share), shape } });
    const seen = new Set();
    kernels.forEach((k, number) => {
      const id = nodeOf(number);
      if (seen.has(id)) return;
      seen.add(id);
      if (id.startsWith("k")) add(id, label(k.name), colourOf(k.family), weight(k) / total, "round-rectangle");
      else {
        const inside = ofLine[k.line].kernels;
        add(id, label(lines[k.line].text || placeOf(k.line), 44), colourOf(k.family),
          sum(inside.map((n) => weight(kernels[n]))) / total, "round-rectangle");
      }
    });
    const connect = (from, to, bytes) => {
      if (from === to) return;
      const key = `${from}>${to}`;
      edges.set(key, { data: { id: key, source: from, target: to, bytes: bytes + (edges.get(key)?.data.bytes ?? 0) } });
    };
    memories.forEach((m, number) => {
      const sources = writers[number], sinks = readers[number];
      const shown = m.kind === "feed" || m.kind === "result" || (withSlots && m.kind !== "buffer" && m.kind !== "internal");
      if (shown && (sources.length || sinks.length)) {
        const shape = { feed: "ellipse", result: "ellipse", variable: "barrel" }[m.kind] ?? "cut-rectangle";
        add(`m${number}`, label(m.name, 22), SLOT_COLOUR, 0, shape);
        sinks.forEach((k) => connect(`m${number}`, nodeOf(k), m.bytes));
        if (m.kind === "result") sources.forEach((k) => connect(nodeOf(k), `m${number}`, m.bytes));
      }
      // A reader gets what the last step before it has written.
      sinks.forEach((sink) => {
        const before = sources.filter((source) => source < sink);
        if (before.length) connect(nodeOf(before[before.length - 1]), nodeOf(sink), m.bytes);
      });
    });
    return [...nodes, ...edges.values()];
  };

  let graph = null;
  const fit = () => graph.fit(undefined, 24);
  const drawGraph = () => {
    const grain = byId("grain").value, withSlots = byId("slots").checked;
    graph?.destroy();
    graph = cytoscape({
      container: byId("graph"), elements: elements(grain, withSlots), minZoom: 0.02, maxZoom: 4,
      style: [
        { selector: "node", style: {
          label: "data(text)", "font-size": 11, color: "#111", "background-color": "data(colour)", shape: "data(shape)",
          width: "data(width)", height: "data(height)", "text-valign": "center", "text-halign": "center",
          "min-zoomed-font-size": 5,
        } },
        { selector: "edge", style: {
          width: "mapData(logBytes, 0, 24, 0.6, 4)", "line-color": "#9aa0a8", "curve-style": "bezier",
          "target-arrow-shape": "triangle", "target-arrow-color": "#9aa0a8", "arrow-scale": 0.7, opacity: 0.7,
        } },
        { selector: ".marked", style: { "border-width": 3, "border-color": "#ea580c" } },
        { selector: ".faded", style: { opacity: 0.22 } },
      ],
      layout: { name: "null" },
    });
    graph.edges().forEach((edge) => { edge.data("logBytes", Math.log2(1 + edge.data("bytes"))); });
    const edgeWeight = (edge) => Math.max(1, edge.data("logBytes") - 8) ** 2; // what moves much goes straight down
    graph.layout({ name: "dagre", rankDir: "TB", nodeSep: 14, rankSep: 26, edgeWeight, animate: false }).run();
    fit();
    graph.on("tap", (event) => {
      if (event.target === graph) return choose(null);
      const id = event.target.id();
      const kind = { k: "kernel", m: "memory", l: "line" }[id[0]];
      if (event.target.isNode()) choose(kind, Number(id.slice(1)));
    });
    graph.on("mouseover", "node", (event) => tip(event.originalEvent, titleOf(event.target.id())));
    graph.on("mouseout", "node", () => tip(null));
    markGraph();
  };
  const titleOf = (id) => {
    const number = Number(id.slice(1));
    if (id[0] === "k") return kernelTitle(number);
    if (id[0] === "m") return memoryTitle(number);
    return `${placeOf(number)}\n${lines[number].text}\n${ofLine[number].kernels.length} kernels`;
  };
  const markGraph = () => {
    const { kernels: marks } = marked();
    graph.elements().removeClass("marked faded");
    if (chosen === null) return;
    const ids = new Set(marks.flatMap((k) => [`k${k}`, `l${kernels[k].line}`]));
    if (chosen.kind === "memory") ids.add(`m${chosen.number}`);
    if (chosen.kind === "line") ids.add(`l${chosen.number}`);
    const found = graph.nodes().filter((node) => ids.has(node.id()));
    found.addClass("marked");
    graph.elements().not(found.closedNeighborhood()).addClass("faded");
  };
  views.push(markGraph);

  // -- buffers over time ---------------------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const buffers = memories.flatMap((m, number) => (m.kind === "buffer" ? [{ ...m, number }] : []));

  const drawMemory = () => {
    const svg = byId("memory"), box = svg.getBoundingClientRect();
    const [left, top, right, bottom] = [70, 22, 14, 30];
    const width = Math.max(box.width - left - right, 10), height = Math.max(box.height - top - bottom, 10);
    const steps = Math.max(kernels.length, 1), most = Math.max(data.arena, data.bound, 1);
    const x = (step) => left + (step / steps) * width, y = (bytes) => top + height - (bytes / most) * height;
    const { kernels: marks, read, written } = marked();
    svg.replaceChildren(
      shape("text", { x: left, y: 14 }, `arena ${byteText(data.arena)}, at least ${byteText(data.bound)} alive at once`),
      shape("line", { class: "axis", x1: left, x2: left + width, y1: y(0), y2: y(0) }),
      shape("text", { x: left + width / 2, y: top + height + 24, "text-anchor": "middle" }, `steps 0 to ${steps}`));
    for (let part = 0; part <= 4; part += 1) {
      const bytes = (most * part) / 4;
      svg.append(shape("line", { class: "axis", x1: left, x2: left + width, y1: y(bytes), y2: y(bytes) }),
        shape("text", { x: left - 6, y: y(bytes) + 4, "text-anchor": "end" }, byteText(bytes)));
    }
    marks.forEach((k) => svg.append(shape("rect",
      { class: "band", x: x(k), y: top, width: Math.max(width / steps, 2), height })));
    buffers.forEach((b) => {
      const touched = written.includes(b.number) ? "chosen" : read.includes(b.number) ? "read" : "";
      const [across, up] = [x(Math.max(b.last, b.first + 0.2)) - x(b.first), y(b.offset) - y(b.offset + b.bytes)];
      const rect = shape("rect", {
        class: `buffer ${touched || (chosen === null ? "" : "dim")}`, x: x(b.first), y: y(b.offset + b.bytes),
        width: across, height: Math.max(up, 0.8), fill: COLOURS[b.number % COLOURS.length],
      });
      rect.addEventListener("click", () => choose("memory", b.number));
      rect.addEventListener("mousemove", (event) => tip(event, memoryTitle(b.number)));
      rect.addEventListener("mouseleave", () => tip(null));
      svg.append(rect);
      if (up > 12 && across > 7 * b.name.length) {
        svg.append(shape("text", { class: "label", x: x(b.first) + across / 2, y: y(b.offset + b.bytes / 2) + 4,
          "text-anchor": "middle" }, b.name));
      }
    });
    svg.append(shape("line", { class: "bound", x1: left, x2: left + width, y1: y(data.bound), y2: y(data.bound) }));
  };
  views.push(drawMemory);

  // -- the panel -----------------------------------------------------------------------------------------------------

  const kernelTitle = (number) => {
    const k = kernels[number];
    const time = timed ? `, ${microseconds(k.seconds)} µs` : "";
    return `${k.name}\n${k.family}, ${countText(k.flops)} flops, ${byteText(k.bytes)}${time}`
      + (k.line === null ? "" : `\n${placeOf(k.line)}  ${lines[k.line].text}`);
  };
  const memoryTitle = (number) => {
    const m = memories[number];
    const life = m.kind === "buffer" ? `\nsteps [${m.first}, ${m.last}), ${m.why}` : `\n${m.kind} ${m.type ?? ""}`;
    return `${m.name}: ${byteText(m.bytes)}${life}`
      + (m.line === null || m.line === undefined ? "" : `\n${placeOf(m.line)}  ${lines[m.line].text}`);
  };
  const source = (number) => (number === null || number === undefined ? null
    : element("p", {}, link("line", number, placeOf(number)), " ", element("code", {}, lines[number].text)));
  const listed = (title, kind, numbers, nameOf) => (numbers.length === 0 ? [] : [
    element("h3", {}, title),
    ...numbers.map((number) => element("p", {}, link(kind, number, nameOf(number)))),
  ]);
  const memoryName = (m) => `${memories[m].name} (${memories[m].kind}, ${byteText(memories[m].bytes)})`;
  const kernelName = (k) => `${k}: ${kernels[k].name}`;

  const details = () => {
    if (chosen === null) {
      return [element("p", {}, "Choose a kernel, a buffer or a source line: in the graph, in the picture of the memory, or in the tables.")];
    }
    const { kind, number } = chosen;
    if (kind === "kernel") {
      const k = kernels[number];
      const reach = timed && k.seconds > 0 ? `, ${Math.round((100 * k.floor) / k.seconds)} % of what the machine allows` : "";
      return [
        element("h2", {}, `${number}: ${k.name}`),
        element("p", {}, `${k.family}, ${countText(k.flops)} flops, ${byteText(k.bytes)} read and written`
          + (timed ? `, ${microseconds(k.seconds)} µs${reach}` : "")),
        source(k.line), ...listed("reads", "memory", k.reads, memoryName),
        ...listed("writes", "memory", k.writes, memoryName), element("h3", {}, "what it does"), element("pre", {}, k.text),
      ];
    }
    if (kind === "memory") {
      const m = memories[number];
      return [
        element("h2", {}, m.name),
        element("p", {}, m.kind === "buffer"
          ? `${m.bytes} bytes at offset ${m.offset}, alive in the steps [${m.first}, ${m.last}): ${m.why}`
          : `${m.kind} ${m.type ?? ""}, ${byteText(m.bytes)}`),
        source(m.line), ...listed("written by", "kernel", writers[number], kernelName),
        ...listed("read by", "kernel", readers[number], kernelName),
      ];
    }
    return [
      element("h2", {}, placeOf(number)), element("pre", {}, lines[number].text),
      ...listed("kernels", "kernel", ofLine[number].kernels, kernelName),
      ...listed("buffers", "memory", ofLine[number].buffers, memoryName),
    ];
  };

  const orders = {}; // of the tables: {column, down} by tab
  /** A table of rows [cells, kind, number]; numbers are right-aligned, a click on a head sorts. */
  const table = (tab, heads, rows) => {
    const order = orders[tab];
    const sorted = order === undefined ? rows : [...rows].sort((a, b) => {
      const [p, q] = [a.keys[order.column], b.keys[order.column]];
      return (p < q ? -1 : p > q ? 1 : 0) * (order.down ? -1 : 1);
    });
    const numeric = heads.map((_, column) => rows.length > 0 && typeof rows[0].keys[column] === "number");
    const wanted = byId("search").value.toLowerCase();
    const head = element("tr", {}, ...heads.map((text, column) => element("th", {
      class: numeric[column] ? "n" : "",
      onclick: () => { orders[tab] = { column, down: order?.column === column ? !order.down : numeric[column] }; show(); },
    }, text + (order?.column === column ? (order.down ? " ▾" : " ▴") : ""))));
    const body = sorted.filter((row) => row.text.toLowerCase().includes(wanted)).map((row) => element("tr", {
      "data-choose": row.kind,
      class: chosen !== null && chosen.kind === row.kind && chosen.number === row.number ? "chosen" : "",
      onclick: () => { if (row.kind !== null) choose(row.kind, row.number); },
    }, ...row.cells.map((cell, column) => element("td", { class: numeric[column] ? "n" : "" }, cell))));
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  };
  const withBar = (text, share) => {
    const cell = document.createElement("span");
    cell.append(text, element("span", { class: "bar", style: `width:${(100 * share).toFixed(1)}%` }));
    return cell;
  };
  const kernelTable = () => {
    const most = Math.max(...kernels.map(weight), 1e-30);
    const first = timed ? ["µs", "GFLOP/s", "GB/s", "% of floor"] : [];
    return table("kernels", ["step", "kernel", "family", ...first, "flops", "bytes", "source"], kernels.map((k, number) => {
      const times = timed ? [k.seconds, k.flops / (k.seconds || 1) / 1e9, k.bytes / (k.seconds || 1) / 1e9,
        (100 * k.floor) / (k.seconds || 1)] : [];
      const place = k.line === null ? "" : placeOf(k.line);
      return {
        kind: "kernel", number, text: `${k.name} ${k.family} ${place} ${k.line === null ? "" : lines[k.line].text}`,
        keys: [number, k.name, k.family, ...times, k.flops, k.bytes, place],
        cells: [`${number}`, withBar(k.name, weight(k) / most), k.family,
          ...times.map((value, column) => (column === 0 ? microseconds(value) : value.toFixed(column === 3 ? 0 : 1))),
          countText(k.flops), byteText(k.bytes), place],
      };
    }));
  };
  const lineTable = () => table("lines", ["source", "kernels", timed ? "µs" : "flops", "bytes moved", "buffers"],
    lines.map((line, number) => {
      const { kernels: inside, buffers: own } = ofLine[number];
      const cost = sum(inside.map((k) => (timed ? kernels[k].seconds : kernels[k].flops)));
      const moved = sum(inside.map((k) => kernels[k].bytes)), kept = sum(own.map((m) => memories[m].bytes));
      return {
        kind: "line", number, text: `${placeOf(number)} ${line.text}`,
        keys: [placeOf(number), inside.length, cost, moved, kept],
        cells: [element("span", {}, `${placeOf(number)} `, element("code", {}, line.text)), `${inside.length}`,
          timed ? microseconds(cost) : countText(cost), byteText(moved), byteText(kept)],
      };
    }));
  const bufferTable = () => table("buffers", ["buffer", "bytes", "offset", "from", "to", "why", "source"],
    buffers.map((b) => {
      const place = b.line === null ? "" : placeOf(b.line);
      return { kind: "memory", number: b.number, text: `${b.name} ${b.why} ${place}`,
        keys: [b.name, b.bytes, b.offset, b.first, b.last, b.why, place],
        cells: [b.name, byteText(b.bytes), `${b.offset}`, `${b.first}`, `${b.last}`, b.why, place] };
    }));
  const priceTable = () => [
    element("p", {}, "What each hook, retained gradient, print and callback adds, found by planning without it."),
    table("prices", ["adds", "kept bytes", "arena bytes", "kernels", "moved bytes", "source"], data.prices.map((p) => {
      const place = p.line === null ? "" : placeOf(p.line);
      return { kind: p.line === null ? null : "line", number: p.line, text: `${p.what} ${place}`,
        keys: [p.what, p.kept, p.arena, p.kernels, p.moved, place],
        cells: [p.what, `${p.kept}`, `${p.arena}`, `${p.kernels}`, `${p.moved}`, place] };
    }))];

  const tabs = [
    ["details", "details", () => details()],
    ["kernels", timed ? "profile" : "kernels", () => [kernelTable()]],
    ["lines", "source lines", () => [lineTable()]],
    ["buffers", "buffers", () => [bufferTable()]],
    ...(data.prices.length ? [["prices", "prices", priceTable]] : []),
    ["graph", "graph text", () => [element("pre", {}, data.graph)]],
  ];
  let open = "kernels";
  const show = () => {
    byId("tabs").replaceChildren(...tabs.map(([id, text]) => element("button", {
      type: "button", "aria-selected": id === open, onclick: () => { open = id; show(); },
    }, text)));
    byId("panel").replaceChildren(...tabs.find(([id]) => id === open)[2]().filter((child) => child !== null));
  };
  views.push(() => { if (chosen !== null) open = "details"; show(); });

  // -- the page ------------------------------------------------------------------------------------------------------

  const tip = (event, text) => {
    const box = byId("tip");
    box.hidden = event === null || event === undefined;
    if (box.hidden) return;
    box.textContent = text;
    box.style.left = `${Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8)}px`;
    box.style.top = `${Math.min(event.clientY + 14, window.innerHeight - box.offsetHeight - 8)}px`;
  };
  byId("title").textContent = data.title;
  byId("totals").textContent = `${kernels.length} kernels for ${data.target}, `
    + `${countText(sum(kernels.map((k) => k.flops)))} flops, ${byteText(sum(kernels.map((k) => k.bytes)))} read and written, `
    + `arena ${byteText(data.arena)}` + (timed ? `, ${microseconds(total)} µs (medians of ${data.calls} calls)` : "");
  byId("legend").append(...families.map((family) => element("span", {},
    element("i", { style: `background:${colourOf(family)}` }), family)));
  if (kernels.length > MANY_KERNELS) byId("grain").value = "lines";
  byId("grain").addEventListener("change", drawGraph);
  byId("slots").addEventListener("change", drawGraph);
  byId("fit").addEventListener("click", fit);
  byId("search").addEventListener("input", () => { if (open === "details" || open === "graph") open = "kernels"; show(); });
  window.addEventListener("resize", drawMemory);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") choose(null); });
  drawGraph();
  drawMemory();
  show();
  const [kind, number] = location.hash.slice(1).split(":"); // page.html#kernel:3 opens with a choice
  const things = { kernel: kernels, memory: memories, line: lines }[kind];
  if (things?.[number] !== undefined) choose(kind, Number(number));
  document.body.dataset.ready = "true";
})();
