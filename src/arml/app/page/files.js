// Pictures that the user drops, chooses or takes with the webcam. They are made smaller before they are sent.
import { ask, make } from "./common.js";

const SENT = /^image\/(png|jpeg|webp|bmp)$/;

/** Let the user add pictures to `owner.files` in the element `place`: by drop, by choice or by webcam. */
export function dropZone(place, owner, text, changed) {
  const list = make("ul", { className: "pictures" });
  const input = make("input", { type: "file", accept: "image/*", multiple: true });
  const camera = make("button", { type: "button" }, "Webcam");
  place.append(make("div", { className: "row" }, make("label", { className: "button" }, text, input), camera),
    make("p", { className: "hint" }, "or drop pictures here"), list);
  const items = new Map();
  owner.files = [];
  /** Show a problem beside its picture until the picture is removed. */
  owner.mark = (file, problem) => {
    const item = items.get(file);
    item.querySelector(".problem")?.remove();
    item.classList.toggle("bad", problem !== "");
    if (problem) item.append(make("span", { className: "problem" }, problem));
  };
  owner.add = (files) => {
    for (const file of files) {
      const remove = make("button", { type: "button", "aria-label": `Remove ${file.name}` }, "✕");
      const item = make("li", {}, thumbnail(file, file.name), remove);
      remove.addEventListener("click", () => {
        owner.files.splice(owner.files.indexOf(file), 1);
        item.remove();
        items.delete(file);
        input.focus();
        changed();
      });
      owner.files.push(file);
      items.set(file, item);
      list.append(item);
    }
    changed();
  };
  owner.clear = () => {
    owner.files.splice(0);
    items.clear();
    list.replaceChildren();
  };
  input.addEventListener("change", () => {
    owner.add([...input.files]);
    input.value = "";
  });
  camera.addEventListener("click", () => takePictures((file) => owner.add([file])));
  onDrop(place, (dropped) => owner.add([...dropped.files]));
}

const shown = new WeakMap(); // the URL of the thumbnail of each file

/** A file as an image element. An animation shows its first frame. The server decodes what the browser cannot. */
export function thumbnail(file, alt = "") {
  const image = make("img", { alt, loading: "lazy" });
  if (!shown.has(file)) shown.set(file, address(file));
  shown.get(file).then((url) => (image.src = url), () => image.replaceWith(make("span", { className: "unseen" }, file.name)));
  return image;
}

async function address(file) {
  const picture = (await forServer(file)) ? null : await createImageBitmap(file).catch(() => null);
  if (!picture) return (await ask("preview", { queries: [{ name: file.name, data: await asBase64(file) }] })).picture;
  if (/jpe?g$/.test(file.type)) return URL.createObjectURL(file);
  return URL.createObjectURL(await drawn(picture, picture.width, picture.height, Math.min(1, 128 / Math.max(picture.width, picture.height))));
}

/** Whether the server must decode a file: most browsers cannot read TIFF, and a canvas keeps only 8 of a PNG's 16 bits. */
async function forServer(file) {
  const start = new Uint8Array(await file.slice(0, 25).arrayBuffer());
  const png = String.fromCharCode(...start.slice(1, 4)) === "PNG";
  return /tiff?$/i.test(file.type) || (png && start[24] === 16);
}

/** Call `take` with the data dropped on `place`, which is highlighted during the drag. */
export function onDrop(place, take) {
  for (const name of ["dragenter", "dragover"])
    place.addEventListener(name, (event) => {
      event.preventDefault();
      place.classList.add("over");
    });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    take(event.dataTransfer);
  });
}

let taken = 0;

/** Show the webcam until the user closes it. `take` is called with each picture. */
async function takePictures(take) {
  const dialog = document.getElementById("camera"), video = dialog.querySelector("video");
  const status = dialog.querySelector(".status"), shoot = document.getElementById("shoot");
  shoot.disabled = true;
  dialog.showModal();
  status.textContent = "";
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: true });
    video.srcObject = stream;
    await video.play();
  } catch (error) {
    status.textContent = `The webcam cannot be used: ${error.message}`;
  }
  shoot.disabled = !stream;
  shoot.onclick = async () => {
    const blob = await drawn(video, video.videoWidth, video.videoHeight, 1);
    take(new File([blob], `webcam ${++taken}.png`, { type: "image/png" }));
    status.textContent = `Picture ${taken} is added.`;
  };
  dialog.onclose = () => stream?.getTracks().forEach((track) => track.stop());
}

/** A picture as base64; its shorter side has at most `side` pixels. Throws an Error with the file name for any other file. */
export async function prepared(file, side) {
  if (/hei[cf]/i.test(file.type) || /\.hei[cf]$/i.test(file.name))
    throw new Error(`${file.name}: HEIC pictures cannot be read here: save it as JPEG or PNG`);
  let picture;
  try {
    if (await forServer(file)) return await asBase64(file);
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name}: expected a picture (PNG, JPEG, WebP, GIF, BMP or TIFF), got something else`);
  }
  const scale = Math.min(1, side / Math.min(picture.width, picture.height));
  if (scale === 1 && SENT.test(file.type)) return asBase64(file);
  return asBase64(await drawn(picture, picture.width, picture.height, scale));
}

function drawn(source, width, height, scale) {
  const canvas = make("canvas", { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** A file's content as base64. */
export function asBase64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1] ?? "");
    reader.onerror = () => failed(new Error(`${file.name}: could not be read`));
    reader.readAsDataURL(file);
  });
}

/** Whether a file of a folder is a picture. */
export const isPicture = (file) => /^image\//.test(file.type);

/** The pictures of a chosen folder, grouped by its subfolders. Deeper folders belong to their subfolder. */
export function byFolder(files) {
  const named = new Map();
  for (const file of files) {
    const parts = file.webkitRelativePath.split("/"); // chosen/class/.../picture.png
    if (parts.length < 3 || !isPicture(file)) continue;
    named.set(parts[1], [...(named.get(parts[1]) ?? []), file]);
  }
  return new Map([...named].sort());
}

/** Download data as a file. */
export function keep(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
