// A table that is wider than its box has a shadow at its right, and a line that says so, until it is moved to its end.
for (const box of document.querySelectorAll(".box")) {
  const inner = box.querySelector(".scroll");
  const mark = () => {
    const hidden = inner.scrollWidth - inner.clientWidth;
    box.classList.toggle("wide", hidden > 1);
    box.classList.toggle("end", hidden - inner.scrollLeft <= 1);
  };
  inner.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(inner);
  mark();
}
