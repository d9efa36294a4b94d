// Pictures: a few of each class, what to predict, and what came out.
import { ask, draw, make, say } from "./app.js";
import { drawGraph } from "./graph.js";

const IMAGE = /^image\//;

export function startPictures(about, limits) {
  const classes = [];
  const queries = { files: [] };
  const place = document.getElementById("classes");
  document.getElementById("pictures-about").textContent =
    `The learner is ${about.learner}: two classes or more, pictures seen at ${about.size} x ${about.size} ` +
    `pixels, meta-trained on ${about.families.join(", ")}.`;

  const changed = () => {
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
    const drop = make("div", { className: "drop" });
    known.card = make("div", { className: "class" }, make("div", { className: "row" }, known.name, known.remove), drop);
    dropZone(drop, known, "Add pictures");
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
  dropZone(document.getElementById("queries"), queries, "Add pictures to predict");
  addClass(unused());
  addClass(unused());
  document.getElementById("add-class").addEventListener("click", () => {
    addClass(unused());
    classes.at(-1).name.focus();
  });

  document.getElementById("folder").addEventListener("change", (event) => {
    const named = new Map();
    for (const file of event.target.files) {
      // chosen/class/.../picture.png
      const parts = file.webkitRelativePath.split("/");
      if (parts.length < 3 || !IMAGE.test(file.type)) continue;
      named.set(parts[1], [...(named.get(parts[1]) ?? []), file]);
    }
    event.target.value = "";
    const found = [...named].sort();
    if (found.length < 2) {
      say("pictures-status", `expected a folder with two or more folders of pictures, one a class, got ${found.length}`, true);
      return;
    }
    restart(found);
    say("pictures-status", "");
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

  const button = document.getElementById("predict");
  button.addEventListener("click", async () => {
    button.disabled = true;
    say("pictures-status", "Learning … the first answer for a number of pictures takes some seconds.");
    try {
      const size = [...classes, queries].flatMap((known) => known.files).reduce((sum, file) => sum + file.size, 0);
      if (size * 4 / 3 > limits.megabytes * 2 ** 20)
        throw new Error(`expected about ${Math.floor(limits.megabytes * 3 / 4)} MiB of pictures, got ${Math.ceil(size / 2 ** 20)}: choose fewer or smaller ones`);
      const encoded = (known) => Promise.all(known.files.map(asBase64));
      const asked = [...queries.files];
      const content = { classes: [], queries: await encoded(queries) };
      for (const known of classes) content.classes.push({ name: known.name.value.trim(), pictures: await encoded(known) });
      const began = performance.now();
      show(await ask("classify", content), asked);
      say("pictures-status", `Answered in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
    } catch (error) {
      say("pictures-status", error.message, true);
    } finally {
      button.disabled = false;
    }
  });
}

/** A place that takes pictures into `owner.files`, by drop or by choice. */
function dropZone(place, owner, text) {
  const list = make("ul", { className: "pictures" });
  const input = make("input", { type: "file", accept: "image/*", multiple: true });
  place.append(make("label", { className: "button" }, text, input), list);
  owner.files = [];
  owner.add = (files) => {
    for (const file of files) {
      const url = URL.createObjectURL(file);
      const remove = make("button", { type: "button", "aria-label": `Remove ${file.name}` }, "✕");
      const item = make("li", {}, make("img", { src: url, alt: file.name }), remove);
      remove.addEventListener("click", () => {
        owner.files.splice(owner.files.indexOf(file), 1);
        URL.revokeObjectURL(url);
        item.remove();
        input.focus();
      });
      owner.files.push(file);
      list.append(item);
    }
  };
  owner.clear = () => {
    owner.files.splice(0);
    list.replaceChildren();
  };
  input.addEventListener("change", () => {
    owner.add([...input.files]);
    input.value = "";
  });
  for (const name of ["dragenter", "dragover"])
    place.addEventListener(name, (event) => {
      event.preventDefault();
      place.classList.add("over");
    });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    owner.add([...event.dataTransfer.files]);
  });
}

function asFile(text, name) {
  const bytes = Uint8Array.from(atob(text.split(",")[1]), (letter) => letter.charCodeAt(0));
  return new File([bytes], name, { type: "image/png" });
}

function asBase64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1] ?? "");
    reader.onerror = () => failed(new Error(`${file.name}: could not be read`));
    reader.readAsDataURL(file);
  });
}

function show(answer, files) {
  const names = answer.classes.map((known) => known.name);
  document.getElementById("answer").hidden = false;
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
  const read = answer.classes.filter((known) => known.reading);
  const rows = read.map((known) => ({ name: known.name, weights: known.reading }));
  const first = Math.max(0, rows.findIndex((row) => row.name === answer.queries[0].label));
  drawGraph(document.getElementById("pictures-graph"), answer.graph, rows, first);
  document.getElementById("answer").scrollIntoView({ block: "nearest" });
}

function bar(name, probability) {
  const filled = draw("rect", { width: 100 * probability, height: 10 });
  return make("div", { className: "bar" }, make("span", { title: name }, name),
    draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, filled),
    make("b", {}, percent(probability)));
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)}%`;
}
