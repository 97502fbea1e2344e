// Lines over an axis that the reader chooses, with levels and groups, such as seeds, to switch.
function curvesBlock(block) {
  const names = [...new Set(block.lines.map((line) => line.name))];
  const groups = [...new Set(block.lines.map((line) => line.group))];
  const hidden = { name: new Set(), group: new Set(groups.filter((group) => !block.shown.includes(group))) };
  const place = element("div");
  const axis = element("select", { "aria-label": `Over, ${block.title}` }, ...block.axes.map((title, number) => element("option", { value: number }, title)));

  function draw() {
    const number = Number(axis.value);
    const lines = block.lines.filter((line) => !hidden.name.has(line.name) && !hidden.group.has(line.group)).map((line) => lineOver(line, number));
    place.replaceChildren(linesElement({ title: block.title, across: block.axes[number], up: block.up }, lines));
  }

  axis.addEventListener("change", draw);
  draw();
  const levels = switchesOf(names, hidden.name, (name) => [keyOf(block.lines.find((line) => line.name === name).colour)], draw);
  const chosen = block.axes.length > 1 ? [element("label", { class: "filter" }, "over ", axis)] : [];
  return element("figure", { class: "charted" }, element("figcaption", {}, block.title), ...chosen, levels, switchesOf(groups, hidden.group, () => [], draw), place);
}

// The points that have a place on that axis.
function lineOver(line, number) {
  const known = line.values.map((value, at) => [line.places[number][at], value, line.low[at], line.high[at]]).filter((point) => point.every((part) => part !== null));
  return { ...line, name: line.group ? `${line.name}, ${line.group}` : line.name, points: known.map(([x, y]) => [x, y]), band: known.map(([x, , low, high]) => [x, low, high]) };
}
