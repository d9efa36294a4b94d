// A function of two inputs: its points are placed on the plane, the fitted surface is drawn below.
import { ask, draw, make, say } from "./common.js";
import { drawGraph } from "./graph.js";

const SIZE = 480, EDGE = 34, WAIT = 600;  // pixels, pixels, milliseconds
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];  // viridis

export function startFunctions(about, limits) {
  const { low, high } = about;
  const points = [];
  let answer = null, cross = { x1: (low + high) / 2, x2: (low + high) / 2 }, pending = null, timer = 0;
  const canvas = make("canvas");
  const svg = draw("svg", {
    viewBox: `0 0 ${SIZE + 2 * EDGE} ${SIZE + 2 * EDGE}`, tabindex: 0, role: "application",
    "aria-label": "The plane of x1 and x2. Arrow keys move the cross, Enter places a point, Delete removes the nearest.",
  });
  document.getElementById("plane").className = "plane";
  document.getElementById("plane").append(svg);
  document.getElementById("functions-about").textContent =
    `The learner is ${about.learner}. Click to place a point of the height chosen; the surface is fitted anew ` +
    `after each change. With the keyboard: arrow keys, Enter, Delete.`;

  const across = (x1) => EDGE + (SIZE * (x1 - low)) / (high - low);
  const up = (x2) => EDGE + SIZE - (SIZE * (x2 - low)) / (high - low);
  const inside = (x) => Math.min(high, Math.max(low, x));
  const range = () => {
    const heights = [...points.map((point) => point[2]), ...(answer ? answer.grid.flat() : [])];
    const least = Math.min(...heights), most = Math.max(...heights);
    return heights.length ? [least, most > least ? most : least + 1] : [0, 1];
  };

  function paint() {
    const [least, most] = range();
    const coloured = (height) => colour((height - least) / (most - least));
    const parts = [];
    if (answer) parts.push(draw("image", {
      href: surface(canvas, answer.grid, coloured), x: EDGE, y: EDGE, width: SIZE, height: SIZE, preserveAspectRatio: "none",
    }));
    parts.push(draw("rect", { x: EDGE, y: EDGE, width: SIZE, height: SIZE, class: "edge", "fill-opacity": 0 }));
    for (let i = 0; i <= 5; i++) {
      const x = low + ((high - low) * i) / 5, text = String(+x.toFixed(2));
      parts.push(draw("text", { x: across(x), y: EDGE + SIZE + 16, "text-anchor": "middle" }, text));
      parts.push(draw("text", { x: EDGE - 6, y: up(x) + 4, "text-anchor": "end" }, text));
    }
    parts.push(draw("text", { x: EDGE + SIZE / 2, y: SIZE + 2 * EDGE - 4, "text-anchor": "middle" }, "x1"));
    parts.push(draw("text", { x: 4, y: EDGE - 14 }, "x2"));
    for (let i = 0; i < 60; i++)
      parts.push(draw("rect", { x: EDGE + 240 + 3 * i, y: 10, width: 3.2, height: 10, fill: colour(i / 59) }));
    parts.push(draw("text", { x: EDGE + 234, y: 19, "text-anchor": "end" }, `height ${least.toFixed(2)}`));
    parts.push(draw("text", { x: EDGE + 427, y: 19 }, most.toFixed(2)));
    for (const [x1, x2, height] of points) {
      parts.push(draw("circle", { cx: across(x1), cy: up(x2), r: 8, class: "point", fill: coloured(height) }));
      parts.push(draw("circle", { cx: across(x1), cy: up(x2), r: 9.5, class: "point-ring" }));
    }
    for (const name of ["cross", "cross-inner"]) {
      const x = across(cross.x1), y = up(cross.x2);
      parts.push(draw("path", { d: `M${x - 9} ${y}H${x + 9}M${x} ${y - 9}V${y + 9}`, class: name }));
    }
    svg.replaceChildren(...parts);
    const fitted = answer ? `, fitted height ${at(answer, cross).toFixed(2)}` : "";
    document.getElementById("reading").textContent = `x1 ${cross.x1.toFixed(2)}, x2 ${cross.x2.toFixed(2)}${fitted}`;
  }

  function list() {
    document.querySelector("#points tbody").replaceChildren(...points.map((point, i) => {
      const cells = ["x1", "x2", "height"].map((name, j) => {
        const input = make("input", { type: "number", step: "any", value: point[j], "aria-label": `${name} of point ${i + 1}` });
        input.addEventListener("change", () => {
          if (!Number.isFinite(input.valueAsNumber)) return void (input.value = point[j]);
          point[j] = j < 2 ? inside(input.valueAsNumber) : input.valueAsNumber;
          input.value = point[j];
          changed(false);
        });
        return make("td", {}, input);
      });
      const remove = make("button", { type: "button", "aria-label": `Remove point ${i + 1}` }, "✕");
      remove.addEventListener("click", () => {
        points.splice(i, 1);
        changed();
      });
      return make("tr", {}, ...cells, make("td", { className: "fitted" }), make("td", {}, remove));
    }));
  }

  function changed(relist = true) {
    if (relist) list();
    pending?.abort();
    clearTimeout(timer);
    if (points.length) {
      timer = setTimeout(fit, WAIT);
    } else {
      answer = null;
      say("functions-status", "");
      drawGraph(document.getElementById("functions-graph"), null, []);
    }
    paint();
  }

  async function fit() {
    pending = new AbortController();
    say("functions-status", "Fitting … the first answer for a number of points takes some seconds.");
    try {
      const began = performance.now();
      answer = await ask("surface", { points }, pending.signal);
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      say("functions-status", `Fitted to ${points.length} points in ${seconds} s.`);
      document.querySelectorAll("#points .fitted").forEach((cell, i) => (cell.textContent = answer.fitted[i].toFixed(2)));
      const rows = (answer.reading ?? []).map((weights, i) => ({ name: `prototype ${i}`, weights }));
      drawGraph(document.getElementById("functions-graph"), answer.graph, rows);
      paint();
    } catch (error) {
      if (error.name !== "AbortError") say("functions-status", error.message, true);
    }
  }

  const height = document.getElementById("height"), slider = document.getElementById("height-slider");
  slider.addEventListener("input", () => (height.value = slider.value));
  height.addEventListener("input", () => (slider.value = height.value));
  function place() {
    if (points.length >= limits.points || !Number.isFinite(height.valueAsNumber)) {
      say("functions-status", `expected a number as the height, and at most ${limits.points} points`, true);
      return;
    }
    points.push([+cross.x1.toFixed(3), +cross.x2.toFixed(3), height.valueAsNumber]);
    changed();
  }
  const move = (event) => {
    const box = svg.getBoundingClientRect(), zoom = (SIZE + 2 * EDGE) / box.width;
    cross = {
      x1: inside(low + (((event.clientX - box.left) * zoom - EDGE) / SIZE) * (high - low)),
      x2: inside(high - (((event.clientY - box.top) * zoom - EDGE) / SIZE) * (high - low)),
    };
  };
  svg.addEventListener("pointermove", (event) => {
    move(event);
    paint();
  });
  svg.addEventListener("click", (event) => {
    move(event);
    place();
  });
  svg.addEventListener("keydown", (event) => {
    const step = ((high - low) / 50) * (event.shiftKey ? 5 : 1);
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key in moves) {
      const [dx, dy] = moves[event.key];
      cross = { x1: inside(cross.x1 + dx), x2: inside(cross.x2 + dy) };
      paint();
    } else if (event.key === "Enter" || event.key === " ") {
      place();
    } else if (event.key === "Delete" && points.length) {
      const away = ([x1, x2]) => (x1 - cross.x1) ** 2 + (x2 - cross.x2) ** 2;
      points.splice(points.reduce((best, point, i) => (away(point) < away(points[best]) ? i : best), 0), 1);
      changed();
    } else return;
    event.preventDefault();
  });

  document.getElementById("clear").addEventListener("click", () => {
    points.splice(0);
    changed();
  });
  document.getElementById("example-function").addEventListener("click", async () => {
    try {
      const example = await ask("example-function");
      points.splice(0, points.length, ...example.points);
      answer = null;
      changed();
      say("functions-status", `Ten noisy points of a ${example.family}. Fitting …`);
    } catch (error) {
      say("functions-status", error.message, true);
    }
  });
  paint();
}

function colour(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (SCALE.length - 1), i = Math.floor(place);
  const mixed = SCALE[i].map((low, k) => Math.round(low + (SCALE[i + 1][k] - low) * (place - i)));
  return `rgb(${mixed})`;
}

/** The heights as a picture: a row of the grid has one x2, and the last is on top. */
function surface(canvas, grid, coloured) {
  canvas.width = canvas.height = grid.length;
  const context = canvas.getContext("2d");
  grid.forEach((row, i) => row.forEach((height, j) => {
    context.fillStyle = coloured(height);
    context.fillRect(j, grid.length - 1 - i, 1, 1);
  }));
  return canvas.toDataURL();
}

/** The fitted height at the grid's point nearest to the cross. */
function at(answer, { x1, x2 }) {
  const index = (x) => Math.round(((x - answer.low) / (answer.high - answer.low)) * (answer.grid.length - 1));
  return answer.grid[index(x2)][index(x1)];
}
