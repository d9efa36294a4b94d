// Functions of all tabs: to make elements, send requests to the server, and show a line of status.

/** An element with properties and children. Text is never parsed as HTML. */
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

/** The answer of the server to a request. Throws an Error with the server's one line if it refuses. */
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

/** Show a line of status, in red if it is `bad`. */
export function say(id, text, bad = false) {
  const line = document.getElementById(id);
  line.textContent = text;
  line.classList.toggle("bad", bad);
}
