// The tab of tables. Rows with a value in one column are the examples. The other rows are predicted.
import { ask, make, say } from "./common.js";
import { asBase64, keep, onDrop } from "./files.js";
import { bar } from "./pictures.js";

const WAIT = 400;  // milliseconds
const SHOWN = 200;  // rows that are shown; the saved file has all
const KINDS = { classes: "a class", numbers: "a number" };

export function startTables(about, limits) {
  const [text, target, kind] = ["text", "target", "kind"].map((name) => document.getElementById(`table-${name}`));
  const buttons = ["predict", "check"].map((id) => document.getElementById(`table-${id}`));
  let known = [], pending = null, timer = 0;
  document.getElementById("tables-about").textContent =
    "Any columns of numbers, dates and categories, with or without empty cells, or a column of texts; at most " +
    `${limits.rows.toLocaleString("en")} rows.`;
  kind.replaceChildren(...about.kinds.map((name) => make("option", { value: name }, KINDS[name] ?? `a class, from ${name}`)));

  // Hide the answers: they belong to another table now.
  const stale = () => {
    for (const id of ["answer", "matter"]) document.getElementById(`table-${id}`).hidden = true;
  };
  const enable = (ready) => {
    for (const control of [target, kind, ...buttons]) control.disabled = !ready;
  };
  const count = () => {
    stale();
    const column = known.find(({ name }) => name === target.value);
    const rows = text.dataset.rows - column.empty;
    document.getElementById("table-count").textContent = `${rows} examples, ${column.empty} to predict`;
  };
  const choose = () => {
    const suggested = known.find(({ name }) => name === target.value).kind;
    if (about.kinds.includes(suggested)) kind.value = suggested;
    count();
  };
  target.addEventListener("change", choose);
  kind.addEventListener("change", stale);

  async function read(remark = "") {
    pending?.abort();
    pending = new AbortController();
    stale();
    enable(false);
    document.getElementById("table-count").textContent = "";
    if (!text.value.trim()) return say("tables-status", "");
    try {
      const before = target.value;
      const found = await ask("columns", { csv: text.value }, pending.signal);
      known = found.columns;
      text.dataset.rows = found.rows;
      target.replaceChildren(...known.map(({ name }) => make("option", { value: name }, name)));
      target.value = known.some(({ name }) => name === before) ? before : found.target;
      choose();
      enable(true);
      say("tables-status", remark);
    } catch (error) {
      if (error.name !== "AbortError") say("tables-status", error.message, true);
    }
  }
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(read, WAIT);
  };
  const take = async (file) => {
    try {
      const { csv, remark } = await ask("read-table", { name: file.name, data: await asBase64(file) });
      target.replaceChildren();
      text.value = csv;
      await read(remark);
    } catch (error) {
      say("tables-status", error.message, true);
    }
  };
  text.addEventListener("input", changed);
  document.getElementById("table-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await take(file);
    event.target.value = "";
  });
  onDrop(document.getElementById("table-drop"), (dropped) => {
    const [file] = dropped.files;
    if (file) take(file);
    else {
      text.value = dropped.getData("text");
      changed();
    }
  });
  document.getElementById("example-table").addEventListener("click", async () => {
    try {
      text.value = (await ask("example-table")).csv;
      target.replaceChildren();
      await read();
    } catch (error) {
      say("tables-status", error.message, true);
    }
  });

  /** Run `work` on the answer when a button is pressed, one at a time, and show how long it took. */
  const working = (id, path, doing, done, work) => document.getElementById(id).addEventListener("click", async () => {
    enable(false);
    say("tables-status", doing);
    try {
      const began = performance.now();
      work(await ask(path, { csv: text.value, target: target.value, kind: kind.value }));
      say("tables-status", `${done} in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
    } catch (error) {
      say("tables-status", error.message, true);
    } finally {
      enable(true);
    }
  });
  working("table-predict", "table", "Learning … The first answer takes some seconds.", "Answered", show);
  working("table-check", "matter", "Predicting each example from the others …", "Checked", showMatter);
}

function show({ header, rows, csv, remark }) {
  document.getElementById("table-answer").hidden = false;
  const more = rows.length > SHOWN ? ` The first ${SHOWN} are shown; the saved file has all.` : "";
  document.getElementById("table-remark").textContent = remark + more;
  const line = (cells, name, more) => make("tr", {}, ...cells.map((cell) => make(name, more, cell)));
  document.getElementById("table-rows").replaceChildren(make("table", {},
    make("thead", {}, line(header, "th", { scope: "col" })),
    make("tbody", {}, ...rows.slice(0, SHOWN).map((row) => line(row, "td", {})))));
  document.getElementById("table-save").onclick = () => keep("answers.csv", new Blob([csv]));
}

function showMatter({ summary, columns }) {
  document.getElementById("table-matter").hidden = false;
  document.getElementById("table-trust").textContent = summary;
  const most = Math.max(1e-9, ...columns.map(({ factor }) => Math.log(factor)));
  document.getElementById("table-columns").replaceChildren(
    ...columns.map(({ name, factor }) => bar(name, Math.max(0, Math.log(factor) / most), `× ${factor.toFixed(2)}`)));
}
