// The meta-knowledge graph: its vertices on a circle, and how much each prototype reads each.
import { draw, make } from "./common.js";

const WIDTH = 560, LEFT = 150, RADIUS = 115, FAINT = 0.02;
const ALIKE = 0.02;  // weights that differ by less say nothing

/** Draw `graph` into `place`; `rows` have a `name` and the `weights` of the vertices. The row that
 * was chosen stays so, unless another is. */
export function drawGraph(place, graph, rows, chosen) {
  chosen ??= Math.max(0, [...place.querySelectorAll("input")].findIndex((radio) => radio.checked));
  place.replaceChildren();
  if (!graph || !rows.length) return;
  place.className = "graph";
  const picture = make("div");
  const group = `row-${place.id}`;
  const choices = rows.map((row, i) => {
    const radio = make("input", { type: "radio", name: group, checked: i === chosen });
    radio.addEventListener("change", () => picture.replaceChildren(...drawn(graph, rows, i)));
    return make("label", {}, radio, ` ${row.name}`);
  });
  picture.append(...drawn(graph, rows, chosen));
  place.append(
    make("h2", {}, "How the meta-knowledge graph is read"),
    make("fieldset", {}, make("legend", {}, "Show the vertices that are read by"), ...choices),
    picture,
    make("p", { className: "about" },
      "The thicker the line, the more the vertex is read; the weights add up to one. Grey lines between ",
      `vertices are links of weight ${graph.threshold.toFixed(2)} or more.`),
  );
}

function drawn(graph, rows, chosen) {
  const { name, weights } = rows[chosen];
  const alike = Math.max(...weights) - Math.min(...weights) < ALIKE;
  const said = `${name} reads all vertices alike, so the graph says nothing about it.`;
  return [svg(graph, rows, chosen), ...(alike ? [make("p", {}, said)] : [])];
}

function svg(graph, rows, chosen) {
  const count = graph.links.length;
  const height = Math.max(2 * RADIUS + 70, rows.length * 26 + 30);
  const centre = { x: WIDTH - RADIUS - 40, y: height / 2 };
  const vertices = graph.links.map((_, i) => {
    const angle = (2 * Math.PI * i) / count - Math.PI / 2;  // clockwise from the top
    return { x: centre.x + RADIUS * Math.cos(angle), y: centre.y + RADIUS * Math.sin(angle) };
  });
  const start = (i) => ({ x: LEFT, y: (height * (i + 0.5)) / rows.length });
  const line = (a, b, attributes) => draw("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, ...attributes });
  const reads = rows[chosen].weights.flatMap((weight, j) => weight < FAINT ? [] :
    [line(start(chosen), vertices[j], { class: "reads", "stroke-width": 0.6 + 8 * weight })]);

  const between = [];
  for (let i = 0; i < count; i++)
    for (let j = i + 1; j < count; j++)
      if (graph.links[i][j] > 0 && graph.links[i][j] >= graph.threshold)
        between.push(line(vertices[i], vertices[j], { class: "between", "stroke-width": 0.5 + 1.5 * graph.links[i][j] }));
  const names = rows.map((row, i) => draw("text", {
    x: LEFT - 8, y: start(i).y + 4, "text-anchor": "end", "font-weight": i === chosen ? "bold" : "normal",
  }, shortened(row.name)));
  const circles = vertices.flatMap((vertex, j) => [
    draw("circle", { cx: vertex.x, cy: vertex.y, r: 13 + 12 * rows[chosen].weights[j], class: "vertex" }),
    draw("text", { x: vertex.x, y: vertex.y + 4, "text-anchor": "middle" }, `V${j}`),
  ]);
  const said = rows[chosen].weights.map((w, j) => `V${j} ${w.toFixed(2)}`).join(", ");
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${rows[chosen].name} reads ${said}` },
    ...between, ...reads, ...circles, ...names);
}

function shortened(name) {
  return name.length > 18 ? `${name.slice(0, 17)}…` : name;
}
