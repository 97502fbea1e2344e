"use strict";
// Elements are made of names and text alone: no text of a record is ever read as HTML.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function keyOf(colour) {
  const key = element("span", { class: "key", "aria-hidden": "true" });
  key.style.background = colour;
  return key;
}

function secondsText(seconds) {
  if (seconds >= 7200) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} us`;
}

// Buttons that switch what has these names; hidden: those that are off.
function switchesOf(names, hidden, keys, draw) {
  const buttons = names.map((name) => {
    const button = element("button", { type: "button", "aria-pressed": String(!hidden.has(name)) }, ...keys(name), name);
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      draw();
    });
    return button;
  });
  return element("div", { class: "legend" }, ...(buttons.length > 1 ? buttons : []));
}
