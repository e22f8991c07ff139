// What the widgets of the site share: their program, sliders, and curves on canvases that follow the page's colours.
import { load } from "./loader.mjs";

// Shows a widget and calls start with its form, its program (of load) and its data. What fails is said in the page.
export async function begin(name, start) {
  const root = document.getElementById(name);
  root.hidden = false;
  try {
    const data = JSON.parse(document.getElementById(`${name}-program`).textContent);
    const code = Uint8Array.from(atob(data.code), (letter) => letter.charCodeAt(0));
    await start(root, await load(code, data.interface), data);
  } catch (error) {
    const note = document.createElement("p");
    note.className = "widget-note";
    note.setAttribute("role", "alert");
    note.textContent = `The program does not run in this browser: ${error.message}`;
    root.replaceChildren(note);
    throw error;
  }
}

// A function of the sliders' values by their names. A slider with data-power is the exponent of 10, one with
// data-choices an index of them. Each says its value behind it; changed is called when one is moved.
export function sliders(root, changed) {
  const all = [...root.querySelectorAll("input[type=range]")];
  const value = ({ dataset, valueAsNumber: at }) =>
    dataset.choices ? Number(dataset.choices.split(" ")[at]) : "power" in dataset ? 10 ** at : at;
  function say(slider) {
    const text = `${Number(value(slider).toPrecision(3))}`;
    slider.setAttribute("aria-valuetext", text);
    slider.parentElement.querySelector("output").textContent = text;
  }
  for (const slider of all) {
    slider.addEventListener("input", () => { say(slider); changed(); });
    say(slider);
  }
  return () => Object.fromEntries(all.map((slider) => [slider.name, value(slider)]));
}

// Calls draw now, and whenever the widget has another width or the page other colours.
export function redrawn(root, draw) {
  new ResizeObserver(draw).observe(root);
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

// The context of an empty canvas, in pixels of the page, with its width and height and a function of colours by name.
export function blank(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas, scale = devicePixelRatio;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d"), style = getComputedStyle(canvas);
  context.scale(scale, scale);
  context.font = "12px sans-serif";
  return { context, width, height, colour: (name) => style.getPropertyValue(`--widget-${name}`).trim() };
}

const STEPS = [1, 2, 5, 10]; // between ticks, by powers of ten
const MARGIN = 0.05; // of a plot above and below its curve, as a part of the curve's height
const EDGES = { left: 46, right: 8, top: 8, bottom: 20 }; // of a plot, in pixels

function ticks(least, most, count) {
  const power = 10 ** Math.floor(Math.log10((most - least) / count));
  const step = power * STEPS.find((factor) => factor * power * count >= most - least);
  const first = Math.ceil(least / step), last = Math.floor(most / step);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

// Draws y over x, with a vertical line where mark says, if it does; powers: y are exponents of 10.
export function curve(canvas, x, y, { mark, powers = false } = {}) {
  const { context, width, height, colour } = blank(canvas);
  let least = Math.min(...y), most = Math.max(...y);
  if (powers) [least, most] = [Math.floor(least), Math.ceil(most)];
  if (!(most - least > 1e-9)) [least, most] = [least - 1, most + 1];
  if (!powers) [least, most] = [least - MARGIN * (most - least), most + MARGIN * (most - least)];
  const left = x[0], right = Math.max(x[x.length - 1], left + 1);
  const across = (at) => EDGES.left + (width - EDGES.left - EDGES.right) * (at - left) / (right - left);
  const up = (at) => height - EDGES.bottom - (height - EDGES.top - EDGES.bottom) * (at - least) / (most - least);

  function line(points, name, breadth) {
    context.beginPath();
    points.forEach(([a, b]) => context.lineTo(a, b));
    context.strokeStyle = colour(name);
    context.lineWidth = breadth;
    context.stroke();
  }
  context.fillStyle = colour("text");
  context.textAlign = "right";
  for (const at of ticks(least, most, 5)) {
    if (powers && !Number.isInteger(at)) continue;
    line([[EDGES.left, up(at)], [width - EDGES.right, up(at)]], "grid", 1);
    context.fillText(powers ? `${Number((10 ** at).toPrecision(1))}` : `${at}`, EDGES.left - 5, up(at) + 4);
  }
  context.textAlign = "center";
  for (const at of ticks(left, right, 4)) context.fillText(`${at}`, Math.min(across(at), width - 14), height - 4);
  if (mark !== undefined) line([[across(mark), EDGES.top], [across(mark), height - EDGES.bottom]], "second", 1);
  line(Array.from(y, (at, i) => [across(x[i]), up(at)]), "first", 2);
}
