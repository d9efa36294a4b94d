// Functions for all tabs: they make elements, ask the server, and print a line.

/** An element with properties and children; text is never read as HTML. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** An SVG element with attributes and children. */
export function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** What the server answers; an Error with its one line if it refuses. */
export async function ask(path, content, signal) {
  const post = { method: "POST", headers: { "content-type": "application/json" } };
  const options = content === undefined ? {} : { ...post, body: JSON.stringify(content) };
  let response, text;
  try {
    response = await fetch(path, { ...options, signal });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("no answer: is `arml app` still running?");
  }
  if (!response.headers.get("content-type")?.includes("json")) throw new Error(text);
  const answer = JSON.parse(text);
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** A line that says how things stand. */
export function say(id, text, bad = false) {
  const line = document.getElementById(id);
  line.textContent = text;
  line.classList.toggle("bad", bad);
}
