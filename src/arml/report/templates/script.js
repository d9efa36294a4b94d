"use strict";
// Tables: a click on a heading sorts by its column, a second one the other way round.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value ?? "";
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const numeric = x - y;
        return (up ? 1 : -1) * (Number.isNaN(numeric) ? x.localeCompare(y) : numeric);
      });
      body.append(...rows);
    });
  });
}
// Graphs: the pointer or the keyboard chooses a vertex, whose panel is shown.
for (const explorer of document.querySelectorAll(".explorer")) {
  const vertices = [...explorer.querySelectorAll("g.vertex")];
  const panels = [...explorer.querySelectorAll(".panel")];
  const choose = (chosen) => {
    vertices.forEach((vertex, i) => vertex.setAttribute("aria-pressed", String(i === chosen)));
    panels.forEach((panel, i) => { panel.hidden = i !== chosen; });
  };
  vertices.forEach((vertex, i) => {
    vertex.addEventListener("pointerenter", () => choose(i));
    vertex.addEventListener("focus", () => choose(i));
    vertex.addEventListener("click", () => { choose(i); vertex.focus(); });
    vertex.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) vertices[(i + step + vertices.length) % vertices.length].focus();
      else if (event.key === "Enter" || event.key === " ") choose(i);
      else return;
      event.preventDefault();
    });
  });
  const slider = explorer.querySelector("input[type=range]");
  const said = explorer.querySelector("output");
  const cut = () => {
    let shown = 0;
    for (const link of explorer.querySelectorAll("line")) {
      link.style.display = Number(link.dataset.weight) < Number(slider.value) ? "none" : "";
      shown += link.style.display === "";
    }
    said.textContent = `${Number(slider.value).toFixed(3)}: ${shown} links`;
  };
  if (slider) { slider.addEventListener("input", cut); cut(); }
  if (vertices.length) choose(0);
}
document.documentElement.dataset.ready = "yes";
