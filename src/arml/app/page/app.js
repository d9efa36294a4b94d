// The page: its tabs, and what all of them use.
import { startPictures } from "./pictures.js";
import { startFunctions } from "./functions.js";
import { startTables } from "./tables.js";

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

function startTabs(shown) {
  const tabs = shown.map((name) => document.getElementById(`tab-${name}`));
  const choose = (tab) => {
    for (const other of document.querySelectorAll("[role=tab]")) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", chosen);
      other.tabIndex = chosen ? 0 : -1;
      other.hidden = !tabs.includes(other);
      document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
    }
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      choose(next);
      next.focus();
    });
  });
  choose(tabs[0]);
}

const about = await ask("about");
startTabs(["pictures", "functions", "tables"].filter((name) => name in about));
if (about.pictures) startPictures(about.pictures, about.limits);
if (about.functions) startFunctions(about.functions, about.limits);
if (about.tables) startTables(about.tables, about.limits);
document.body.dataset.ready = "yes";
