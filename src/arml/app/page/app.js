// The tabs of the page.
import { ask } from "./common.js";
import { startPictures } from "./pictures.js";
import { startTables } from "./tables.js";

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
startTabs(["pictures", "tables"].filter((name) => name in about));
if (about.pictures) startPictures(about.pictures, about.limits);
if (about.tables) startTables(about.tables, about.limits);
document.body.dataset.ready = "yes";
