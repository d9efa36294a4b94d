// The tab of pictures: a few pictures of each class, pictures to predict, and the predictions.
import { ask, draw, make, say } from "./common.js";
import { asBase64, byFolder, dropZone, isPicture, keep, prepared, thumbnail } from "./files.js";

export function startPictures(about, limits) {
  const classes = [];
  const queries = { files: [] };
  let labels = new WeakMap(); // the labels of queries, where they are known
  let predictor = null; // the opened predictor: its file and its classes
  const element = (id) => document.getElementById(id);
  const place = element("classes");
  const buttons = ["predict", "check", "keep"].map(element);
  element("pictures-about").textContent =
    `Add a few pictures of two or more classes. The learner, ${about.learner}, was trained on ${about.families.join(", ")}.`;

  // Hide the answers after a change: they belong to other pictures.
  const changed = () => {
    for (const id of ["answer", "trust"]) element(id).hidden = true;
    for (const known of classes) known.remove.disabled = classes.length <= 2;
    const n = queries.files.length + (predictor ? 0 : classes.reduce((sum, known) => sum + known.files.length, 0));
    const over = n > limits.pictures;
    element("count").textContent = `${n} of at most ${limits.pictures} pictures${over ? ": leave some out, or use arml adapt" : ""}`;
    for (const button of buttons) button.disabled = over;
    buttons[2].disabled ||= predictor !== null;
    element("no-labels").hidden = !queries.files.some((file) => labels.get(file));
    note([]);
    say("pictures-status", "");
  };
  /** Show lines of the server, for example about doubtful pictures. */
  const note = (lines) => element("pictures-notes").replaceChildren(...lines.map((line) => make("li", {}, line)));
  const addClass = (name, files = []) => {
    const known = { files: [] };
    known.name = make("input", { type: "text", value: name, maxLength: 60, "aria-label": "Name of the class" });
    known.remove = make("button", { type: "button", "aria-label": "Remove this class" }, "✕");
    known.remove.addEventListener("click", () => {
      classes.splice(classes.indexOf(known), 1);
      known.card.remove();
      changed();
    });
    known.name.addEventListener("input", changed);
    const drop = make("div", { className: "drop" });
    known.card = make("div", { className: "class" }, make("div", { className: "row" }, known.name, known.remove), drop);
    dropZone(drop, known, "Add pictures", changed);
    classes.push(known);
    known.add(files);
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
  /** Run `work` each time the user chooses files, and show its error. */
  const onChoice = (id, work) => element(id).addEventListener("change", async (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    say("pictures-status", "");
    try {
      if (files.length) await work(files);
    } catch (error) {
      say("pictures-status", error.message, true);
    }
  });
  dropZone(element("queries"), queries, "Add pictures to predict", changed);
  addClass(unused());
  addClass(unused());
  element("add-class").addEventListener("click", () => {
    addClass(unused());
    classes.at(-1).name.focus();
  });

  onChoice("folder", (files) => {
    const found = [...byFolder(files)];
    if (found.length < 2) throw new Error(`This folder has ${found.length} folders of pictures: choose one with two or more, one for each class.`);
    restart(found);
  });
  const use = (opened) => {
    predictor = opened;
    element("opened").hidden = !opened;
    element("examples").hidden = !!opened;
    if (opened) element("opened").firstElementChild.textContent = `${opened.name} knows ${opened.classes.length} classes: ${opened.classes.join(", ")}.`;
    changed();
  };
  onChoice("open", async ([file]) => {
    const data = await asBase64(file);
    use({ name: file.name, data, ...(await ask("open", { predictor: data })) });
  });
  element("close").addEventListener("click", () => use(null));
  onChoice("query-folder", (files) => {
    const names = predictor ? predictor.classes : classes.map((known) => known.name.value.trim());
    for (const [name, own] of byFolder(files)) if (names.includes(name)) for (const file of own) labels.set(file, name);
    const pictures = files.filter(isPicture);
    if (!pictures.length) throw new Error("This folder has no pictures: choose another.");
    queries.add(pictures);
  });
  onChoice("query-labels", async ([file]) => {
    const { header, rows } = await ask("read-table", { name: file.name, data: await asBase64(file) });
    const [name, label] = ["file", "label"].map((one) => header.map((cell) => cell.toLowerCase()).indexOf(one));
    if (name < 0 || label < 0) throw new Error(`${file.name} needs the columns file and label: rename its columns.`);
    const last = (path) => path.trim().split(/[\\/]/).at(-1).normalize(); // of paths of all systems
    const known = new Map();
    for (const row of rows) {
      const own = known.get(last(row[name])) ?? row[label].trim();
      known.set(last(row[name]), own === row[label].trim() ? own : ""); // none if the files of one name have two labels
    }
    const found = queries.files.filter((picture) => known.has(last(picture.name)));
    if (!found.length) throw new Error(`${file.name} has no label for any picture to predict: add the pictures first.`);
    for (const picture of found) labels.set(picture, known.get(last(picture.name)) || null);
    changed();
    const n = queries.files.length, without = queries.files.filter((picture) => !labels.get(picture)).map((picture) => picture.name);
    const names = without.length ? `; without a label: ${without.slice(0, 5).join(", ")}${without.length > 5 ? ", …" : ""}` : "";
    say("pictures-status", `${n - without.length} of ${n} pictures have a label${names}.`);
  });
  element("no-labels").addEventListener("click", () => {
    labels = new WeakMap();
    changed();
    element("query-labels").focus();
  });

  element("example-pictures").addEventListener("click", async () => {
    try {
      const example = await ask("example-pictures");
      const files = (texts, name) => texts.map((text, i) => asFile(text, `${name}-${i + 1}.png`));
      restart(example.classes.map((known) => [known.name, files(known.pictures, known.name)]));
      queries.clear();
      queries.add(files(example.queries, "query"));
      say("pictures-status", `Example pictures from the package: ${example.family}.`);
    } catch (error) {
      say("pictures-status", error.message, true);
    }
  });

  // Large pictures are made smaller here, because the learner uses few pixels.
  const side = Math.min(8 * about.size, Math.max(256, 2 * about.size));
  /** The pictures to send, and their files. Unreadable ones are marked, and `failed` is called with each. */
  const encoded = async (owner, failed) => {
    const sent = [], files = [];
    for (const file of owner.files) {
      try {
        sent.push({ name: file.name, data: await prepared(file, side) });
        files.push(file);
        owner.mark(file, "");
      } catch (error) {
        owner.mark(file, error.message);
        failed(file, error.message);
      }
    }
    return { sent, files };
  };
  /** The request with the examples, and a function that marks and counts those that the server left out. */
  const content = async () => {
    const content = { queries: [] }, examples = [];
    let bad = 0;
    if (predictor) content.predictor = predictor.data;
    else content.classes = [];
    for (const known of predictor ? [] : classes) {
      const name = known.name.value.trim();
      if (!known.files.length) throw new Error(`Add pictures of ${name || "each class"} first.`);
      const { sent, files } = await encoded(known, () => bad++);
      if (!sent.length) throw new Error(`No picture of ${name || "a class"} can be read: add one.`);
      content.classes.push({ name, pictures: sent });
      for (const file of files) examples.push({ file, name, mark: known.mark });
    }
    const leftOut = (answer) => {
      note(answer.notes);
      for (const [i, problem] of Object.entries(answer.left_out)) examples[i].mark(examples[i].file, problem);
      bad += Object.keys(answer.left_out).length;
      return bad ? `, without ${bad} of the examples, which cannot be read` : "";
    };
    return { content, examples, leftOut };
  };
  /** Run `work` when a button is pressed, one at a time, and show how long it took. */
  const working = (id, doing, done, work) => element(id).addEventListener("click", async () => {
    const before = buttons.map((button) => button.disabled);
    for (const button of buttons) button.disabled = true;
    note([]);
    say("pictures-status", doing);
    try {
      const began = performance.now();
      const more = (await work()) ?? "";
      say("pictures-status", `${done} in ${((performance.now() - began) / 1000).toFixed(1)} s${more}.`, more !== "");
    } catch (error) {
      say("pictures-status", error.message, true);
    } finally {
      buttons.forEach((button, i) => (button.disabled = before[i]));
    }
  });
  working("predict", "Learning …", "Answered", async () => {
    if (!queries.files.length) throw new Error("Add pictures to predict first.");
    element("answer").hidden = true;
    const problems = new Map(), all = [...queries.files];
    const { content: own, leftOut } = await content();
    const { sent, files: asked } = await encoded(queries, (file, problem) => problems.set(file, problem));
    own.queries = sent;
    if (!asked.length) throw new Error("None of these pictures can be read.");
    const known = asked.map((file) => labels.get(file) ?? null);
    const answer = await ask("classify", { ...own, labels: known });
    for (const [i, problem] of Object.entries(answer.problems)) {
      queries.mark(asked[i], problem);
      problems.set(asked[i], problem);
    }
    show(answer, asked, [...problems].map(([file, problem]) => ({ file, problem })));
    return leftOut(answer) + (problems.size ? `, but ${problems.size} of ${all.length} pictures cannot be read` : "");
  });
  working("check", "Predicting each picture of the classes from the others …", "Checked", async () => {
    const { content: own, examples, leftOut } = await content();
    const trust = await ask("trust", own);
    element("trust").hidden = false;
    element("trust-summary").textContent = trust.summary;
    element("confusion").replaceChildren(confusion(trust));
    element("doubtful").replaceChildren(...trust.doubtful.map(({ place, label, probability }) => predictor
      ? make("li", {}, `example ${place + 1} is predicted as ${label} from the other pictures (${percent(probability)})`)
      : wrong(examples[place].file, `labelled ${examples[place].name}, but predicted as ${label} from the other pictures (${percent(probability)})`)));
    return leftOut(trust);
  });
  working("keep", "Learning …", "Saved", async () => {
    const { content: own, leftOut } = await content();
    const answer = await ask("keep", own);
    keep("predictor.zip", new Blob([Uint8Array.from(atob(answer.zip), (letter) => letter.charCodeAt(0))], { type: "application/zip" }));
    return leftOut(answer);
  });
}

function asFile(text, name) {
  const bytes = Uint8Array.from(atob(text.split(",")[1]), (letter) => letter.charCodeAt(0));
  return new File([bytes], name, { type: "image/png" });
}

/** A picture that was predicted as another class. */
function wrong(file, text) {
  return make("li", {}, thumbnail(file), `${file.name}: ${text}`);
}

/** A table: how many pictures of each class (row) were predicted as each class (column), and the accuracy. */
function confusion({ classes, confusion }) {
  const cell = (text, className = "") => make("td", { className }, String(text));
  const heading = (text, scope) => make("th", { scope }, make("span", {}, text));
  const rows = classes.map(({ name, accuracy }, i) => make("tr", {}, heading(name, "row"),
    cell(accuracy === null ? "–" : percent(accuracy)),
    ...confusion[i].map((count, j) => cell(count || "", count ? (i === j ? "right" : "wrong") : ""))));
  const columns = ["right", ...classes.map(({ name }) => `as ${name}`)];
  const head = make("tr", {}, make("th", { scope: "col" }, "labelled"), ...columns.map((name) => heading(name, "col")));
  return make("table", { className: "confusion" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

/** Show the answers for `files`. `bad` are the pictures that cannot be read. */
function show(answer, files, bad) {
  const element = (id) => document.getElementById(id);
  const { classes, evaluation } = answer;
  const places = [...files.keys()].filter((i) => answer.probabilities[i]);
  const found = places.map((i) => {
    const chances = answer.probabilities[i], order = [...chances.keys()].sort((a, b) => chances[b] - chances[a]);
    const novelty = answer.novelty?.[i];
    return { file: files[i], own: answer.own[i], chances, label: classes[order[0]], top: chances[order[0]], order, novelty };
  });
  element("save-csv").onclick = () => {
    // The columns of `arml predict`, and the probability of each class.
    const cell = (text) => (/[",\n]/.test(text) ? `"${String(text).replaceAll('"', '""')}"` : text);
    const extra = answer.novelty ? ["novelty"] : [], wrong = bad.length ? ["problem"] : [];
    const rows = found.map(({ file, label, top, novelty, chances }) => [file.name, label, top.toFixed(4),
      ...extra.map(() => novelty.toFixed(2)), ...wrong.map(() => ""), ...chances.map((p) => p.toFixed(4))]);
    for (const { file, problem } of bad) rows.push([file.name, "", "", ...extra.map(() => ""), problem, ...classes.map(() => "")]);
    const header = ["file", "label", "probability", ...extra, ...wrong, ...classes];
    keep("answers.csv", new Blob([[header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n"]));
  };
  element("answer").hidden = false;
  element("answer-remark").textContent = `Predicted by ${answer.remark}.`;
  element("evaluation").hidden = !evaluation;
  if (evaluation) {
    element("evaluation-summary").textContent = `The labelled pictures: ${evaluation.summary}.`;
    element("evaluation-table").replaceChildren(confusion(evaluation));
    element("mistakes").replaceChildren(...evaluation.mistakes.map(({ place, own, label, probability }) =>
      wrong(files[place], `labelled ${own}, predicted as ${label} (${percent(probability)})`)));
  }
  const failed = bad.map(({ file, problem }) => make("li", { className: "bad" }, make("div", {},
    make("span", { className: "problem" }, problem.startsWith(file.name) ? problem : `${file.name}: ${problem}`))));
  const cards = found.map(({ file, own, label, top, order, chances, novelty }) => {
    const others = order.slice(1, 3).map((k) => `${classes[k]} ${percent(chances[k])}`).join(", ");
    const className = own === null || own === order[0] ? "" : "wrong";
    return make("li", { className, title: file.name }, thumbnail(file),
      make("div", {}, make("b", {}, `${label} ${percent(top)}`), make("span", {}, others),
        ...(novelty > 1 ? [make("em", {}, "unlike the examples of every class")] : []), make("small", {}, file.name)));
  });
  const orders = {
    added: () => 0,
    name: (a, b) => found[a].file.name.localeCompare(found[b].file.name, undefined, { numeric: true }),
    label: (a, b) => found[a].order[0] - found[b].order[0] || found[b].top - found[a].top,
    unsure: (a, b) => found[a].top - found[b].top,
  };
  const arrange = () => element("predictions").replaceChildren(...[...cards.keys()].sort(orders[element("sort").value]).map((i) => cards[i]), ...failed);
  element("sort").onchange = arrange;
  arrange();
  element("answer").scrollIntoView({ block: "nearest" });
}

/** A name, a bar filled to a share of its width, and a text. */
export function bar(name, share, text) {
  const filled = draw("rect", { width: 100 * share, height: 10 });
  return make("div", { className: "bar" }, make("span", {}, name),
    draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, filled),
    make("b", {}, text));
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)}%`;
}
