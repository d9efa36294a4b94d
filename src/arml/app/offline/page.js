// A predictor in a page: onnxruntime's WebAssembly runs the model that model.js holds.
"use strict";
(async () => {
  const LARGEST = 512; // pixels of a side that the model is given; it averages them itself
  const model = window.ARML_MODEL;
  const element = (name) => document.getElementById(name);
  const say = (text, bad = false) => {
    element("status").textContent = text;
    element("status").classList.toggle("bad", bad);
  };
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const answers = [];
  let session;

  try {
    // As data and not as files, so that the page also works where it was opened from a folder.
    const code = new Blob([bytes(window.ARML_RUNTIME.mjs)], { type: "text/javascript" });
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = { mjs: URL.createObjectURL(code) };
    ort.env.wasm.wasmBinary = bytes(window.ARML_RUNTIME.wasm).buffer;
    session = await ort.InferenceSession.create(bytes(model.onnx), { executionProviders: ["wasm"] });
  } catch (error) {
    say(`The model cannot be loaded: ${error.message}`, true);
    return;
  }
  const tellClasses = () => {
    element("about").textContent = `It knows ${model.classes.length} classes: ${model.classes.join(", ")}.`;
  };
  tellClasses();

  // A predictor of photographs: the model makes vectors, and the page learns from those of examples.
  let head = null;
  if (model.vectors) {
    const all = new Float32Array(bytes(model.vectors).buffer), d = all.length / model.labels.length;
    model.vectors = model.labels.map((_, i) => all.slice(i * d, (i + 1) * d));
    refit();
    element("teach").hidden = false;
  }
  function refit() {
    head = armlHead.fit(model.vectors, model.labels, model.classes.length, model.temperature);
    const options = model.classes.map((name) => Object.assign(document.createElement("option"), { value: name }));
    element("names").replaceChildren(...options);
    tellClasses();
  }

  /** The probabilities of bytes `[height, width, 3]`, and the novelty of photographs. */
  async function predict(data, height, width) {
    const pictures = new ort.Tensor("uint8", data, [1, height, width, 3]);
    const found = await session.run({ pictures });
    if (head) {
      const vector = found.vectors.data;
      const novelty = armlHead.distance(head, vector) / model.bound;
      return { vector, novelty, probabilities: armlHead.probabilities(head, vector) };
    }
    return { probabilities: [...found.probabilities.data] };
  }
  window.armlPredict = predict;

  /** The same of anything that can be drawn. */
  function look(source, width, height) {
    const scale = Math.min(1, LARGEST / Math.max(width, height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white"; // transparency is laid on white
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingQuality = "high";
    context.drawImage(source, 0, 0, canvas.width, canvas.height);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const data = new Uint8Array(canvas.width * canvas.height * 3);
    for (let i = 0, j = 0; i < pixels.length; i += 4) {
      data[j++] = pixels[i];
      data[j++] = pixels[i + 1];
      data[j++] = pixels[i + 2];
    }
    return predict(data, canvas.height, canvas.width);
  }

  function bars(place, answer) {
    const best = answer.probabilities.indexOf(Math.max(...answer.probabilities));
    const head = document.createElement("h3");
    head.textContent = `${model.classes[best]}, ${percent(answer.probabilities[best])}`;
    const rows = model.classes.map((name, i) => {
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
      try {
        const picture = await createImageBitmap(file);
        const answer = await look(picture, picture.width, picture.height);
        const image = document.createElement("img"), text = document.createElement("div");
        image.src = URL.createObjectURL(file);
        image.alt = file.name;
        const row = document.createElement("div");
        row.className = "answer";
        row.append(image, text);
        const label = bars(text, answer);
        element("answers").append(row);
        answers.push({ name: file.name, label, text, ...answer });
        element("save").disabled = element("clear").disabled = element("found").hidden = false;
        say("");
      } catch {
        say(`${file.name}: expected a picture that this browser can show, got something else`, true);
      }
    }
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
    const rows = answers.map((one) => [one.name, one.label, ...one.probabilities.map((p) => p.toFixed(4))]);
    rows.unshift(["file", "label", ...model.classes]);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.map((row) => row.map(cell).join(",")).join("\n") + "\n"]));
    link.download = "answers.csv";
    link.click();
  });

  /** Learn from pictures of one class, which may be new, and answer again. */
  async function learn(files) {
    const name = element("name").value.trim();
    if (!name) {
      say("Name the class first.", true);
      return;
    }
    for (const file of files) {
      try {
        const picture = await createImageBitmap(file);
        const { vector } = await look(picture, picture.width, picture.height);
        if (!model.classes.includes(name)) model.classes.push(name);
        model.vectors.push(vector);
        model.labels.push(model.classes.indexOf(name));
      } catch {
        say(`${file.name}: expected a picture that this browser can show, got something else`, true);
        return;
      }
    }
    refit();
    for (const one of answers) {
      one.probabilities = armlHead.probabilities(head, one.vector);
      one.novelty = armlHead.distance(head, one.vector) / model.bound;
      one.label = bars(one.text, one);
    }
    say(`Learned ${files.length} of ${name}.`);
  }
  element("examples").addEventListener("change", async (event) => {
    await learn([...event.target.files]);
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
