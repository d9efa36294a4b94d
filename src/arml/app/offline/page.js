// A predictor in a page: onnxruntime's WebAssembly runs the model in model.js.
"use strict";
(async () => {
  const LARGEST = 512; // the most pixels of the shorter side; the model averages them to its own size
  const model = window.ARML_MODEL;
  const element = (name) => document.getElementById(name);
  const say = (text, bad = false) => {
    element("status").textContent = text;
    element("status").classList.toggle("bad", bad);
  };
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const floats = (text) => new Float32Array(bytes(text).buffer);
  const answers = [];
  let session, answering, fitting, taught = false;

  try {
    // As data and not as files: a page that was opened from a folder cannot load files.
    const code = new Blob([bytes(window.ARML_RUNTIME.mjs)], { type: "text/javascript" });
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = { mjs: URL.createObjectURL(code) };
    ort.env.wasm.wasmBinary = bytes(window.ARML_RUNTIME.wasm).buffer;
    const open = (text) => ort.InferenceSession.create(bytes(text), { executionProviders: ["wasm"] });
    session = await open(model.onnx);
    if (model.head) [answering, fitting] = [await open(model.answer), await open(model.fit)];
  } catch (error) {
    say(`The model cannot be loaded: ${error.message}`, true);
    return;
  }
  const tellClasses = () => {
    // The temperature and the bound of novelty stay: Python chooses them on folds, which this page does not have.
    const rougher = taught ? " It learned in this page, so its probabilities and novelty are rougher than those of arml adapt." : "";
    element("about").textContent = `It knows ${model.classes.length} classes: ${model.classes.join(", ")}.${rougher}`;
  };
  tellClasses();

  // A predictor of photographs has three models. One makes vectors, one predicts by the head that
  // Python fitted, and one fits the head again after the user has taught a class.
  let head = null, d = 0;
  if (model.head) {
    const part = Object.fromEntries(Object.entries(model.head).map(([name, text]) => [name, floats(text)]));
    d = part.middle.length;
    const ways = model.classes.length, rank = part.factor.length / d;
    const shapes = { middle: [d], weights: [d, ways], lengths: [ways], factor: [rank, d], temperature: [1], bound: [1], prior: [ways] };
    head = Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, new ort.Tensor("float32", part[name], shape)]));
    const all = floats(model.vectors);
    model.vectors = model.labels.map((_, i) => all.slice(i * d, (i + 1) * d));
    element("teach").hidden = false;
    tellNames();
  }
  function tellNames() {
    const options = model.classes.map((name) => Object.assign(document.createElement("option"), { value: name }));
    element("names").replaceChildren(...options);
    tellClasses();
  }
  /** Fit the head to examples, and keep both. Nothing changes if that fails. */
  async function refit(examples) {
    const n = examples.labels.length, ways = examples.classes.length;
    const vectors = new Float32Array(n * d), member = new Float32Array(n * ways);
    examples.vectors.forEach((vector, i) => vectors.set(vector, i * d));
    examples.labels.forEach((k, i) => (member[i * ways + k] = 1));
    const found = await fitting.run({
      vectors: new ort.Tensor("float32", vectors, [n, d]),
      member: new ort.Tensor("float32", member, [n, ways]),
      weight: new ort.Tensor("float32", Float32Array.from(examples.weight), [n]),
    });
    Object.assign(model, examples);
    taught = true;
    // The prior of the predictor: the frequencies of the examples, or fixed. A new class gets the mean, 0.
    const counts = new Float32Array(ways);
    if (model.prior === "examples") model.labels.forEach((k, i) => (counts[k] += model.weight[i]));
    const prior = model.prior === "examples" ? counts.map(Math.log) : counts.map((_, k) => head.prior.data[k] ?? 0);
    head = { ...head, ...found, prior: new ort.Tensor("float32", prior, [ways]) };
    tellNames();
  }
  /** The probability of each class for a vector, and the novelty of the vector. */
  async function answer(vector) {
    const found = await answering.run({ vectors: new ort.Tensor("float32", vector, [1, d]), ...head });
    return { vector, novelty: found.novelty.data[0], probabilities: [...found.probabilities.data] };
  }

  /** The probability of each class for pixels `[height, width, 3]`, and the novelty of a photograph. */
  async function predict(data, height, width) {
    const pictures = new ort.Tensor("uint8", data, [1, height, width, 3]);
    const found = await session.run({ pictures });
    return head ? answer(found.vectors.data) : { probabilities: [...found.probabilities.data] };
  }
  window.armlPredict = predict;

  /** The same for anything that a canvas can draw. */
  function look(source, width, height) {
    const scale = Math.min(1, LARGEST / Math.min(width, height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.imageSmoothingQuality = "high";
    context.drawImage(source, 0, 0, canvas.width, canvas.height);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const data = new Uint8Array(canvas.width * canvas.height * 3);
    // Behind transparent pixels is white paper, but black behind a drawing that is nearly white, as in Python.
    let light = 0, opacity = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      light += (pixels[i] + pixels[i + 1] + pixels[i + 2]) * pixels[i + 3];
      opacity += 3 * pixels[i + 3];
    }
    const paper = light > 224 * opacity ? 0 : 255;
    for (let i = 0, j = 0; i < pixels.length; i++)
      if (i % 4 < 3) data[j++] = Math.round(paper + ((pixels[i] - paper) * pixels[i - (i % 4) + 3]) / 255);
    return predict(data, canvas.height, canvas.width);
  }

  /** The same for a file. Throws an Error with the reason if there is no answer. */
  async function lookAt(file) {
    const start = new Uint8Array(await file.slice(0, 25).arrayBuffer());
    // A canvas keeps 8 bits. Python stretches some pictures of 16 bits before it reduces them to 8.
    if (start[24] === 16 && String.fromCharCode(...start.slice(1, 4)) === "PNG")
      throw new Error("expected a picture with 8 bits, got a PNG with 16: convert it, or use arml predict");
    const picture = await createImageBitmap(file).catch(() => {
      throw new Error("expected a picture that this browser can show, got something else");
    });
    return look(picture, picture.width, picture.height);
  }

  function bars(place, answer) {
    const best = answer.probabilities.indexOf(Math.max(...answer.probabilities));
    const head = document.createElement("h3");
    head.textContent = `${model.classes[best]}, ${percent(answer.probabilities[best])}`;
    // An answer from before a class was taught has fewer classes.
    const rows = model.classes.slice(0, answer.probabilities.length).map((name, i) => {
      const row = document.createElement("div");
      row.className = "bar";
      const label = document.createElement("span"), value = document.createElement("b");
      const meter = document.createElement("meter");
      label.textContent = name;
      value.textContent = percent(answer.probabilities[i]);
      meter.value = answer.probabilities[i];
      meter.setAttribute("aria-label", name);
      row.append(label, meter, value);
      return row;
    });
    const more = [];
    if (answer.novelty > 1) {
      const note = document.createElement("p");
      note.textContent = "This picture is unlike the examples of every class.";
      more.push(note);
    }
    place.replaceChildren(head, ...rows, ...more);
    return model.classes[best];
  }

  async function add(files) {
    for (const file of files) {
      const [row, own, name, text] = ["div", "div", "small", "div"].map((kind) => document.createElement(kind));
      row.className = "answer";
      row.append(own);
      own.append(text);
      try {
        const answer = await lookAt(file);
        const image = document.createElement("img");
        image.src = URL.createObjectURL(file);
        image.alt = file.name;
        row.prepend(image);
        name.textContent = file.name;
        own.append(name);
        answers.push({ name: file.name, label: bars(text, answer), text, ...answer });
      } catch (error) {
        text.textContent = `${file.name}: ${error.message}`;
        text.className = "bad";
        answers.push({ name: file.name, problem: error.message });
      }
      element("answers").append(row);
      element("save").disabled = element("clear").disabled = element("found").hidden = false;
    }
    const bad = answers.filter((one) => one.problem).length;
    say(bad ? `${bad} of ${answers.length} pictures have no answer: see below.` : "", bad > 0);
  }

  element("files").addEventListener("change", (event) => {
    add([...event.target.files]);
    event.target.value = "";
  });
  const drop = element("drop");
  for (const name of ["dragenter", "dragover"])
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    add([...event.dataTransfer.files]);
  });
  element("clear").addEventListener("click", () => {
    answers.splice(0);
    element("answers").replaceChildren();
    element("save").disabled = element("clear").disabled = element("found").hidden = true;
  });
  element("save").addEventListener("click", () => {
    const cell = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    // The columns of `arml predict`, and the probability of each class.
    const rows = answers.map((one) => one.problem
      ? [one.name, "", "", ...(head ? [""] : []), one.problem, ...model.classes.map(() => "")]
      : [one.name, one.label, Math.max(...one.probabilities).toFixed(4), ...(head ? [one.novelty.toFixed(2)] : []), "",
        ...one.probabilities.map((p) => p.toFixed(4))]);
    rows.unshift(["file", "label", "probability", ...(head ? ["novelty"] : []), "problem", ...model.classes]);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.map((row) => row.map(cell).join(",")).join("\n") + "\n"]));
    link.download = "answers.csv";
    link.click();
  });

  /** Learn from pictures of one class, which may be new, and predict all pictures again. */
  async function learn(files) {
    const name = element("name").value.trim();
    if (!name) {
      say("Name the class first.", true);
      return;
    }
    const learned = [], bad = [];
    for (const file of files) {
      try {
        learned.push((await lookAt(file)).vector);
      } catch (error) {
        bad.push(`${file.name} (${error.message})`);
      }
    }
    const without = bad.length ? `, without ${bad.join(", ")}` : "";
    if (learned.length) {
      const classes = [...new Set([...model.classes, name])], k = classes.indexOf(name);
      const [labels, weight] = [[...model.labels, ...learned.map(() => k)], [...model.weight, ...learned.map(() => 1)]];
      await refit({ classes, vectors: [...model.vectors, ...learned], labels, weight });
    }
    for (const one of answers.filter((one) => one.vector)) {
      Object.assign(one, await answer(one.vector));
      one.label = bars(one.text, one);
    }
    say(`Learned ${learned.length} of ${name}${without}.`, bad.length > 0);
  }
  element("examples").addEventListener("change", async (event) => {
    await learn([...event.target.files]).catch((error) => say(`Nothing was learned: ${error.message}`, true));
    event.target.value = "";
  });
  element("teach").addEventListener("submit", (event) => event.preventDefault());

  let stream = null;
  const camera = element("camera"), video = element("video");
  camera.addEventListener("click", async () => {
    if (stream) {
      for (const track of stream.getTracks()) track.stop();
      stream = null;
    } else {
      try {
        stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      } catch (error) {
        say(`The webcam cannot be used: ${error.message}`, true);
        return;
      }
      video.srcObject = stream;
      await video.play();
      watch();
    }
    element("live").hidden = !stream;
    camera.setAttribute("aria-pressed", Boolean(stream));
    camera.textContent = stream ? "Stop the webcam" : "Use the webcam";
  });
  async function watch() {
    while (stream) {
      if (video.videoWidth) bars(element("seen"), await look(video, video.videoWidth, video.videoHeight));
      await new Promise((done) => setTimeout(done, 200));
    }
  }
  say("");
  document.body.dataset.ready = "yes";
})();
