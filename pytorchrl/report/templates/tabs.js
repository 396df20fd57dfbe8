// Sections as tabs: one is shown at a time, arrow keys move between them, the address names the one that is open. It is
// no element's id, to which a browser would move the page.
const PREFIX = "part-";
const sections = [...document.querySelectorAll("main > section")];
const tabs = sections.map((section) => {
  const tab = document.createElement("button");
  tab.type = "button";
  tab.id = "tab-" + section.id;
  tab.append(...[...section.querySelector("h2").childNodes].map((node) => node.cloneNode(true)));
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", section.id);
  section.setAttribute("role", "tabpanel");
  section.setAttribute("aria-labelledby", tab.id);
  section.tabIndex = 0;
  tab.addEventListener("click", () => open(section.id));
  return tab;
});

const open = (id) => {
  const shown = sections.some((section) => section.id === id) ? id : sections[0].id;
  sections.forEach((section, number) => {
    const isShown = section.id === shown;
    section.hidden = !isShown;
    tabs[number].setAttribute("aria-selected", String(isShown));
    tabs[number].tabIndex = isShown ? 0 : -1;
  });
  history.replaceState(null, "", "#" + shown.slice(PREFIX.length));
  byId(shown).dispatchEvent(new Event("shown"));
};

const bar = byId("tabs");
bar.setAttribute("role", "tablist");
bar.append(...tabs);
bar.addEventListener("keydown", (event) => {
  const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const at = tabs.indexOf(document.activeElement);
  const last = tabs.length - 1;
  const next = Number.isFinite(moves[event.key]) ? (at + moves[event.key] + tabs.length) % tabs.length
    : event.key === "End" ? last : 0;
  tabs[next].focus();
  tabs[next].click();
});
document.documentElement.classList.add("tabbed");
const openNamed = () => open(PREFIX + location.hash.slice(1));
addEventListener("hashchange", openNamed);
