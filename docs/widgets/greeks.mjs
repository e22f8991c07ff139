// Draws an option's value and its derivatives over the price of the stock, again whenever a parameter changes.
import { begin, curve, redrawn, sliders } from "./plot.mjs";

const CALLS = 10; // that are timed together: the clock of a browser is coarse
const APART = 10; // rows of the table are every tenth price

begin("greeks", (root, { greeks }, { spots, titles }) => {
  const { feeds, results, run } = greeks, said = root.querySelector("#greeks-said");
  const plots = Object.entries(titles).map(([name, title]) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    const canvas = document.createElement("canvas");
    caption.textContent = title;
    canvas.className = "widget-plot";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title} over the price of the stock; the table below has its values`);
    figure.append(caption, canvas);
    root.querySelector(".widget-grid").append(figure);
    return { name, canvas };
  });

  const table = root.querySelector("table");
  ["price", ...Object.keys(titles)].forEach((name) => {
    const head = document.createElement("th");
    head.textContent = name;
    (table.tHead?.rows[0] ?? table.createTHead().insertRow()).append(head);
  });
  const rows = table.createTBody();
  const cells = spots.flatMap((spot, at) => {
    if (at % APART) return [];
    const row = rows.insertRow();
    row.insertCell().textContent = spot;
    return plots.map(({ name }) => ({ name, at, data: row.insertCell().appendChild(document.createElement("data")) }));
  });

  const settings = sliders(root, compute);
  function compute() {
    const chosen = settings(), begun = performance.now();
    Object.entries(chosen).forEach(([name, value]) => feeds[name].fill(value));
    for (let i = 0; i < CALLS; i++) run();
    const microseconds = Math.round((performance.now() - begun) / CALLS * 1000);
    said.textContent = `${spots.length} prices, each with ${plots.length - 1} derivatives: ${microseconds} µs a call.`;
    for (const { name, at, data } of cells) {
      data.value = results[name][at];
      data.textContent = results[name][at].toFixed(4);
    }
    draw();
  }
  function draw() {
    plots.forEach(({ name, canvas }) => curve(canvas, spots, results[name], { mark: settings().strike }));
  }

  feeds.spot.set(spots);
  compute();
  redrawn(root, draw);
});
