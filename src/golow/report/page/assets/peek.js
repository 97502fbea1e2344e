// What stands behind a cell, shown beside it while the pointer rests on it or the keyboard is there.
// It stays while the pointer is on it, and Escape closes it.
const peekPlace = element("div", { id: "peek", role: "tooltip", "aria-label": "What stands behind this cell" });
peekPlace.hidden = true;
let [peekOf, peekEnds] = [null, 0];

function peekElement(content, blocks) {
  const button = element("button", { type: "button", class: "peek", "aria-describedby": "peek" }, content);
  for (const name of ["pointerenter", "focus", "click"]) button.addEventListener(name, () => openPeek(button, blocks));
  button.addEventListener("pointerleave", closePeekSoon);
  button.addEventListener("blur", closePeek);
  return button;
}

function openPeek(button, blocks) {
  clearTimeout(peekEnds);
  peekOf = button;
  peekPlace.replaceChildren(...blocks.map(blockElement));
  peekPlace.hidden = false;
  placePeek();
}

function placePeek() {
  if (peekPlace.hidden) return;
  const [at, own] = [peekOf.getBoundingClientRect(), peekPlace.getBoundingClientRect()];
  const within = (place, size, whole) => Math.max(8, Math.min(place, whole - size - 8));
  const below = at.bottom + own.height + 12 <= innerHeight;
  const above = at.top >= own.height + 12;
  const left = below || above ? at.left : at.right + 4; // where neither has room, beside the cell
  const top = below ? at.bottom + 4 : above ? at.top - own.height - 4 : at.top;
  peekPlace.style.left = `${within(left, own.width, innerWidth)}px`;
  peekPlace.style.top = `${within(top, own.height, innerHeight)}px`;
}

function closePeek() {
  clearTimeout(peekEnds);
  peekPlace.hidden = true;
}

function closePeekSoon() {
  clearTimeout(peekEnds);
  peekEnds = setTimeout(closePeek, 200);
}

peekPlace.addEventListener("pointerenter", () => clearTimeout(peekEnds));
peekPlace.addEventListener("pointerleave", closePeekSoon);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closePeek(); });
document.addEventListener("scroll", placePeek, { passive: true, capture: true });
