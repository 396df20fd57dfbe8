// Of the panels of all runs, that which a menu has chosen.
for (const menu of document.querySelectorAll("select[data-shows]")) {
  const panels = [...document.querySelectorAll(`[data-panel="${menu.dataset.shows}"]`)];
  const show = () => {
    panels.forEach((panel, number) => { panel.hidden = String(number) !== menu.value; });
    menu.closest("section").dispatchEvent(new Event("shown"));
  };
  menu.addEventListener("change", show);
  show();
}
