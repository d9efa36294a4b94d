// Pictures: a few of each class, what to predict, and what came out.
import { ask, draw, make, say } from "./common.js";
import { dropZone, keep, prepared } from "./files.js";
import { drawGraph } from "./graph.js";
import { byFolder, fromTable } from "./labels.js";

export function startPictures(about, limits) {
  const classes = [];
  const queries = { files: [] };
  const labels = new WeakMap(); // of queries whose class is known
  const place = document.getElementById("classes");
  const by = about.model && about.model !== about.learner ? ` by the frozen model ${about.model}` : "";
  document.getElementById("pictures-about").textContent =
    `The learner is ${about.learner}. It takes two classes or more, sees each picture${by} at ${about.size} x ${about.size} ` +
    `pixels, and was trained on ${about.families.join(", ")}.`;

  // What was answered is of other pictures now.
  const stale = () => {
    for (const id of ["answer", "trust"]) document.getElementById(id).hidden = true;
  };
  const changed = () => {
    stale();
    for (const known of classes) known.remove.disabled = classes.length <= 2;
  };
  const addClass = (name, files = []) => {
    const known = { files: [] };
    known.name = make("input", { type: "text", value: name, maxLength: 60, "aria-label": "Name of the class" });
    known.remove = make("button", { type: "button", "aria-label": "Remove this class" }, "✕");
    known.remove.addEventListener("click", () => {
      classes.splice(classes.indexOf(known), 1);
      known.card.remove();
      changed();
    });
    known.name.addEventListener("input", stale);
    const drop = make("div", { className: "drop" });
    known.card = make("div", { className: "class" }, make("div", { className: "row" }, known.name, known.remove), drop);
    dropZone(drop, known, "Add pictures", stale);
    known.add(files);
    classes.push(known);
    place.append(known.card);
    changed();
  };
  const restart = (named) => {
    classes.splice(0);
    place.replaceChildren();
    for (const [name, files] of named) addClass(name, files);
  };
  const unused = () => {
    for (let i = 1; ; i++) if (!classes.some((known) => known.name.value === `class ${i}`)) return `class ${i}`;
  };
  dropZone(document.getElementById("queries"), queries, "Add pictures to predict", stale);
  addClass(unused());
  addClass(unused());
  document.getElementById("add-class").addEventListener("click", () => {
    addClass(unused());
    classes.at(-1).name.focus();
  });

  document.getElementById("folder").addEventListener("change", (event) => {
    const found = [...byFolder(event.target.files)];
    event.target.value = "";
    if (found.length < 2) {
      say("pictures-status", `expected a folder with two or more folders of pictures, one for each class, got ${found.length}`, true);
      return;
    }
    restart(found);
    say("pictures-status", "");
  });

  document.getElementById("query-folder").addEventListener("change", (event) => {
    const found = byFolder(event.target.files);
    event.target.value = "";
    for (const [name, files] of found) {
      for (const file of files) labels.set(file, name);
      queries.add(files);
    }
    say("pictures-status", found.size ? "" : "expected a folder with folders of pictures that are named as the classes, got none", !found.size);
  });
  document.getElementById("query-labels").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    try {
      const known = fromTable(await file.text());
      const found = queries.files.filter(({ name }) => known.has(name));
      if (!found.length) throw new Error(`${file.name}: expected the names of pictures that were added to predict, got none: add the pictures first`);
      for (const picture of found) labels.set(picture, known.get(picture.name));
      stale();
      say("pictures-status", `${found.length} of ${queries.files.length} pictures have a label.`);
    } catch (error) {
      say("pictures-status", error.message, true);
    }
    event.target.value = "";
  });

  document.getElementById("example-pictures").addEventListener("click", async () => {
    try {
      const example = await ask("example-pictures");
      const files = (texts) => texts.map((text, i) => asFile(text, `${i}.png`));
      restart(example.classes.map((known) => [known.name, files(known.pictures)]));
      queries.clear();
      queries.add(files(example.queries));
      say("pictures-status", `Classes of ${example.family} of the starter set's test part.`);
    } catch (error) {
      say("pictures-status", error.message, true);
    }
  });

  // Larger pictures are made small here: the learner sees few pixels of them.
  const side = Math.min(8 * about.size, Math.max(256, 2 * about.size));
  const content = async (asked) => {
    const encoded = (files) => Promise.all(files.map((file) => prepared(file, side)));
    const content = { classes: [], queries: await encoded(asked) };
    for (const known of classes) content.classes.push({ name: known.name.value.trim(), pictures: await encoded(known.files) });
    return content;
  };
  const buttons = ["predict", "check", "keep"].map((id) => document.getElementById(id));
  /** Run `work` when a button is pressed, once at a time, and say how long it took. */
  const working = (id, doing, done, work) => document.getElementById(id).addEventListener("click", async () => {
    for (const button of buttons) button.disabled = true;
    say("pictures-status", doing);
    try {
      const began = performance.now();
      await work();
      say("pictures-status", `${done} in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
    } catch (error) {
      say("pictures-status", error.message, true);
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  });
  working("predict", "Learning …", "Answered", async () => {
    stale();
    const asked = [...queries.files];
    const known = asked.map((file) => labels.get(file) ?? null);
    show(await ask("classify", { ...(await content(asked)), labels: known }), asked);
  });
  working("check", "Predicting each picture of the classes from the others …", "Checked", async () => {
    const files = classes.flatMap((known) => known.files.map((file) => ({ file, name: known.name.value.trim() })));
    showTrust(await ask("trust", await content([])), files);
  });
  working("keep", "Learning …", "Kept", async () => {
    const { zip } = await ask("keep", await content([]));
    keep("predictor.zip", new Blob([Uint8Array.from(atob(zip), (letter) => letter.charCodeAt(0))], { type: "application/zip" }));
  });
}

function asFile(text, name) {
  const bytes = Uint8Array.from(atob(text.split(",")[1]), (letter) => letter.charCodeAt(0));
  return new File([bytes], name, { type: "image/png" });
}

/** How labelled queries were predicted, and the surest mistakes. */
function showMarks(marks, files) {
  document.getElementById("marks").hidden = !marks;
  if (!marks) return;
  document.getElementById("marks-said").textContent = `The labelled pictures: ${marks.said}.`;
  document.getElementById("marks-table").replaceChildren(confusion(marks));
  document.getElementById("worst").replaceChildren(...marks.mistakes.map(({ place, own, label, share }) => make("li", {},
    make("img", { src: URL.createObjectURL(files[place]), className: "seen", alt: files[place].name }),
    ` ${files[place].name}: labelled ${own}, predicted as ${label} (${percent(share)})`)));
}

/** How well the pictures of the classes predict each other, and those that look odd. */
function showTrust(trust, files) {
  document.getElementById("trust").hidden = false;
  document.getElementById("trust-said").textContent = trust.said;
  document.getElementById("confusion").replaceChildren(confusion(trust));
  document.getElementById("odd").replaceChildren(...trust.odd.map(({ place, label, share }) => make("li", {},
    make("img", { src: URL.createObjectURL(files[place].file), className: "seen", alt: files[place].file.name }),
    ` ${files[place].file.name}: labelled ${files[place].name}, but predicted as ${label} from the other pictures (${percent(share)})`)));
}

/** How many pictures of each class (row) were predicted as each class (column), and the accuracy of each. */
function confusion({ classes, confusion }) {
  const cell = (text, className = "") => make("td", { className }, String(text));
  const heading = (text, scope) => make("th", { scope }, text);
  const rows = classes.map(({ name, accuracy }, i) => make("tr", {}, heading(name, "row"),
    cell(accuracy === null ? "–" : percent(accuracy)),
    ...confusion[i].map((count, j) => cell(count || "", count ? (i === j ? "right" : "wrong") : ""))));
  const columns = ["labelled", "accuracy", ...classes.map(({ name }) => `as ${name}`)];
  return make("table", {}, make("thead", {}, make("tr", {}, ...columns.map((name) => heading(name, "col")))), make("tbody", {}, ...rows));
}

function show(answer, files) {
  const names = answer.classes.map((known) => known.name);
  document.getElementById("save-csv").onclick = () => {
    const cell = (text) => (/[",\n]/.test(text) ? `"${String(text).replaceAll('"', '""')}"` : text);
    const rows = answer.queries.map((query, i) => [files[i].name, query.label, ...query.probabilities.map((p) => p.toFixed(4))]);
    keep("answers.csv", new Blob([[["file", "label", ...names], ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n"]));
  };
  document.getElementById("answer").hidden = false;
  showMarks(answer.marks, files);
  document.getElementById("predictions").replaceChildren(
    ...answer.queries.map((query, i) => make("div", { className: "answer" },
      make("img", { src: query.seen, className: "seen", alt: files[i].name }),
      make("div", {},
        make("h3", {}, `${query.label}, ${percent(Math.max(...query.probabilities))}`),
        ...names.map((name, j) => bar(name, query.probabilities[j]))))));
  document.getElementById("prototypes").replaceChildren(
    ...answer.classes.map((known) => make("div", { className: "prototype" },
      make("h3", {}, known.name),
      make("figure", {}, make("img", { className: "seen", src: known.mean, alt: `Mean of ${known.name}` }), "mean"),
      ...known.seen.map((seen, i) => make("img", {
        src: seen, className: i === known.nearest ? "seen nearest" : "seen",
        alt: `${known.name} ${i + 1}${i === known.nearest ? ", nearest to the prototype" : ""}`,
      })))));
  document.getElementById("framed").hidden = !answer.classes.some((known) => "nearest" in known);
  const read = answer.classes.filter((known) => known.reading);
  const rows = read.map((known) => ({ name: known.name, weights: known.reading }));
  const first = Math.max(0, rows.findIndex((row) => row.name === answer.queries[0].label));
  drawGraph(document.getElementById("pictures-graph"), answer.graph, rows, first);
  document.getElementById("answer").scrollIntoView({ block: "nearest" });
}

/** A name, a bar that fills a share of its width, and the share or another text. */
export function bar(name, share, text = percent(share)) {
  const filled = draw("rect", { width: 100 * share, height: 10 });
  return make("div", { className: "bar" }, make("span", { title: name }, name),
    draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, filled),
    make("b", {}, text));
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)}%`;
}
