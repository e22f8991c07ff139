// Trains the net of the page on the points of its canvas. The address may say how many steps come first: ?steps=500.
import { begin, blank, curve, redrawn, sliders } from "./plot.mjs";

const KEPT = 400; // losses in the curve; each is the mean of as many steps as that takes
const TURN = 30; // milliseconds after which a picture is drawn, whatever the pace
const SECOND = 1000; // milliseconds

// Numbers below a bound, the same in each browser (Numerical Recipes' linear congruential generator).
function drawer() {
  let seed = 1;
  return (bound) => Math.floor((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32 * bound);
}

begin("train", (root, program, { points, labels, grid }) => {
  const [plane, chart] = root.querySelectorAll("canvas"), said = root.querySelector("#train-said");
  const { predict, state } = program, lr = state["adam/lr"];
  const first = Object.fromEntries(Object.entries(state).map(([name, array]) => [name, array.slice()]));
  const sides = Float32Array.from({ length: grid }, (_, i) => (2 * i + 1) / grid - 1);
  const surface = new OffscreenCanvas(grid, grid), pixels = new ImageData(grid, grid);
  let places, classes, steps, losses, each, sum, last, running = false, speed = 0, below;

  predict.feeds.x.forEach((_, i, x) => { x[i] = i % 2 ? -sides[Math.floor(i / 2 / grid)] : sides[Math.floor(i / 2) % grid]; });

  function train(settings) {
    const { feeds, results, run } = program[`train_${settings.batch}`];
    for (let i = 0; i < settings.batch; i++) {
      const at = below(classes.length);
      feeds.x.set(places[at], 2 * i);
      feeds.t[i] = classes[at];
    }
    lr[0] = settings.lr;
    run();
    [last] = results.loss;
    sum += last;
    if (++steps % each) return;
    losses.push(sum / each);
    sum = 0;
    if (losses.length < KEPT) return;
    losses = losses.filter((_, i) => i % 2).map((loss, i) => (loss + losses[2 * i]) / 2);
    each *= 2;
  }

  // The share of points that lie where the net predicts their class; predict has run.
  function right() {
    const cell = (at) => Math.min(grid - 1, Math.max(0, Math.floor((at + 1) / 2 * grid)));
    const hits = places.filter(([x, y], i) => (predict.results.chance[cell(-y) * grid + cell(x)] > 0.5) == classes[i]);
    return hits.length / places.length;
  }

  function draw() {
    predict.run();
    const { context, width, height, colour } = blank(plane), hues = [colour("first"), colour("second")];
    const channels = hues.map((hue) => hue.match(/\w\w/g).map((digits) => parseInt(digits, 16)));
    predict.results.chance.forEach((chance, i) => {
      pixels.data.set(channels[Number(chance > 0.5)], 4 * i);
      pixels.data[4 * i + 3] = 300 * Math.abs(chance - 0.5);
    });
    surface.getContext("2d").putImageData(pixels, 0, 0);
    context.drawImage(surface, 0, 0, width, height);
    places.forEach(([x, y], i) => {
      context.beginPath();
      const [across, down] = [(x + 1) / 2 * width, (1 - y) / 2 * height];
      if (classes[i]) context.rect(across - 3.5, down - 3.5, 7, 7); // a shape too: colours are not all that tells
      else context.arc(across, down, 4, 0, 2 * Math.PI);
      context.fillStyle = hues[classes[i]];
      context.strokeStyle = colour("paper");
      context.fill();
      context.stroke();
    });
    curve(chart, losses.map((_, i) => (i + 1) * each), losses.map((loss) => Math.log10(loss)), { powers: true });
    said.textContent = !places.length ? "There are no points: click into the plane." :
      `Step ${steps}` + (steps ? `, loss ${last.toPrecision(3)}` : "") +
      `, ${Math.round(100 * right())} % of ${places.length} points where their class is predicted` +
      (running && speed ? `, ${Math.round(speed)} steps a second` : "") + ".";
    Object.assign(root.dataset, { steps, points: places.length, loss: losses.at(-1) ?? "", right: right() });
  }

  const settings = sliders(root, () => {});
  const button = (name, pressed) => root.querySelector(`[name=${name}]`).addEventListener("click", pressed);
  const spirals = () => [places, classes] = [points.slice(), labels.slice()];
  function again() {
    Object.entries(first).forEach(([name, array]) => state[name].set(array));
    [steps, losses, each, sum, below] = [0, [], 1, 0, drawer()];
  }

  let counted, since;
  function turn(now) {
    if (!running) return;
    const { pace, ...rest } = settings(), end = performance.now() + TURN;
    for (let i = 0; i < pace && places.length && performance.now() < end; i++) train(rest);
    if (now - since >= SECOND) {
      speed = (steps - counted) / (now - since) * SECOND;
      [counted, since] = [steps, now];
    }
    draw();
    requestAnimationFrame(turn);
  }
  button("run", ({ target }) => {
    running = !running;
    target.textContent = running ? "Pause" : "Start";
    [counted, since, speed] = [steps, performance.now(), 0];
    if (running) requestAnimationFrame(turn);
    else draw();
  });
  button("again", () => { again(); counted = 0; draw(); });
  button("clear", () => { places = []; classes = []; draw(); });
  button("spirals", () => { spirals(); draw(); });
  plane.addEventListener("click", ({ offsetX, offsetY }) => {
    places.push([2 * offsetX / plane.clientWidth - 1, 1 - 2 * offsetY / plane.clientHeight]);
    classes.push(Number(root.querySelector("[name=class]:checked").value));
    draw();
  });

  spirals();
  again();
  for (let n = Number(new URLSearchParams(location.search).get("steps")); n > 0; n--) train(settings());
  redrawn(root, draw);
});
